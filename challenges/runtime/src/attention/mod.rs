//! The back ends of attention: one request, written as a graph in the way of each.
//!
//! What all back ends have in common is asked of an attempt: the steps of [`Attend`], challenge D's contract of
//! `attention`.

mod back_end;
pub mod backends;
mod contract;
mod feature;
mod request;

pub use back_end::{BackEnd, Part, Way};
pub use backends::BACK_ENDS;
pub use contract::{Attend, Packing, Verdict, follow};
pub use feature::Feature;
pub use reference::issues::attention::{Problem, Rules, Sizes};
pub use request::{Body, Request, explain};
