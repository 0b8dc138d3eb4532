//! Jinja's grammar: text to tokens ([`lexer`]), tokens to a tree ([`tree`], by [`parser`]).

pub(crate) mod lexer;
pub(crate) mod parser;
pub(crate) mod tree;
