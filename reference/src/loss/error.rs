//! What can be wrong with what a loss is given.

use std::error;
use std::fmt;

/// Why a loss cannot be computed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// A tensor has another number of elements.
    Length {
        /// Which.
        what: &'static str,
        /// Its elements.
        got: usize,
        /// The elements needed.
        need: usize,
    },
    /// A tensor without elements.
    Empty {
        /// Which.
        what: &'static str,
    },
    /// The elements of a tensor do not make whole rows.
    Width {
        /// Which.
        what: &'static str,
        /// Its elements.
        got: usize,
        /// The elements of a row.
        width: usize,
    },
    /// A label is neither the ignored one nor an entry of the vocabulary.
    Label {
        /// The row, from 0.
        row: usize,
        /// The label.
        got: i32,
        /// The entries of the vocabulary.
        vocab: usize,
        /// The label that is ignored.
        ignored: i32,
    },
    /// A weight, a mask or an advantage is NaN or infinite.
    NotFinite {
        /// Which tensor.
        what: &'static str,
        /// Where in it, counted row-major.
        index: usize,
        /// The value.
        got: f64,
    },
    /// A setting makes no sense.
    Setting {
        /// Which.
        what: &'static str,
        /// Its value.
        got: f64,
        /// What is needed.
        need: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Length { what, got, need } => {
                write!(f, "length of `{what}`: expected {need}, found {got}")
            }
            Error::Empty { what } => write!(f, "`{what}` has no elements"),
            Error::Width { what, got, width } => {
                write!(f, "`{what}` has {got} elements, which make no whole rows of {width}")
            }
            Error::Label { row, got, vocab, ignored } => {
                write!(f, "`labels`[{row}]: expected 0 to {} or {ignored}, found {got}", *vocab as i64 - 1)
            }
            Error::NotFinite { what, index, got } => {
                write!(f, "`{what}`[{index}]: expected a finite number, found {got}")
            }
            Error::Setting { what, got, need } => write!(f, "`{what}`: expected {need}, found {got}"),
        }
    }
}

impl error::Error for Error {}
