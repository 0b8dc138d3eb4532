//! From a Jinja template to a template of the engine.
//!
//! Jinja's expressions are Python's: `+` joins lists, `x.items` finds a method, `none` is not iterable. The engine's are
//! its own. So a template is read by Jinja's grammar ([`lexer`], [`parser`]) into a tree ([`tree`]) and written again for
//! the engine ([`write`]): control flow stays what it is, and whatever Python would do differently becomes a filter or a
//! test of `super::python`. Nothing of the engine that could panic or grow is ever written.

pub(crate) mod lexer;
pub(crate) mod parser;
pub(crate) mod tree;
pub(crate) mod write;
