//! The engine: a template's tree with its names found, and what walks over it.
//!
//! A tree is compiled once ([`compile`]): a name becomes a place in a frame, a filter a function, `m['role']` and
//! `m.role` one thing, pieces of text that follow each other one piece. [`run`] then walks over the [`program`]. What
//! it computes with is Python's (`super::python`); nothing is translated into another language's values and back.
//!
//! Why not an engine that there is? Its operators are those of its own values. Each of them would have to be replaced
//! by Python's, by a call of a filter where an operator stands.

mod call;
pub(crate) mod compile;
mod eval;
mod names;
mod output;
mod print;
pub(crate) mod program;
mod repeat;
pub(crate) mod run;
