//! (D) `issues`: repairs around a model.

pub mod chat;
