//! The back ends of attention: one request, written as a graph in the way of each.
//!
//! What all back ends have in common is asked of an attempt: the steps of [`Attend`], challenge D's contract of
//! `attention`.

pub mod backends;
mod contract;
mod request;

pub use backends::{BACK_ENDS, BackEnd, Part, Way};
pub use contract::{Attend, Packing, Verdict, follow};
pub use reference::issues::attention::{Problem, Rules, Sizes};
pub use request::{Body, Feature, Request, explain};
