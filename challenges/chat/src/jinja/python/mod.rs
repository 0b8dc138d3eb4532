//! What a template computes with: Python's values, operators, methods and texts, one file a kind.

pub(crate) mod args;
pub(crate) mod big;
pub(crate) mod compare;
pub(crate) mod containers;
pub(crate) mod filters;
pub(crate) mod format;
pub(crate) mod functions;
pub(crate) mod json;
pub(crate) mod methods;
pub(crate) mod number;
pub(crate) mod operators;
pub(crate) mod predicates;
pub(crate) mod repeat;
pub(crate) mod strings;
pub(crate) mod text;
pub(crate) mod unicode;
pub(crate) mod value;
