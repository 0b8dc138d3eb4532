//! What can be wrong with a graph, its text, or what it is run on.
//!
//! A [`Fault`] says what is there and what is needed; an [`Error`] adds where: a node, a name, a line of text.

use std::error;
use std::fmt;
use std::panic::Location;

use super::print::site;
use super::{Dim, Dtype, Facts, Id, Op, Symbol, Type};

/// Why a graph cannot be built, read or run.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// Where: a node such as `%12 matmul`, an input's or a symbol's name, a line of text.
    pub at: String,
    /// What is wrong.
    pub fault: Fault,
    /// The line of the program that asked for it, if it was built by one.
    pub source: Option<&'static Location<'static>>,
}

/// What is there and what is needed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    // Building.
    /// Another number of inputs.
    Arity {
        /// How many are there.
        got: usize,
        /// How many are needed.
        need: &'static str,
    },
    /// An input is no earlier node.
    NoSuchNode {
        /// The node named.
        id: Id,
    },
    /// An input's elements have another type.
    Dtype {
        /// Which input, from 0.
        input: usize,
        /// Its type.
        got: Dtype,
        /// What is needed.
        need: String,
    },
    /// An input has another shape.
    Shape {
        /// Which input, from 0.
        input: usize,
        /// Its shape.
        got: Vec<Dim>,
        /// What is needed.
        need: String,
    },
    /// No dimension of that number.
    NoSuchDim {
        /// The number.
        dim: usize,
        /// How many dimensions there are.
        rank: usize,
    },
    /// The node's own type is not the one that follows.
    Type {
        /// The type found.
        got: Type,
        /// The type needed.
        need: Type,
    },
    /// The node's own type has to be given, and is not.
    Untyped,
    /// The node's own type does not fit what it does.
    Result {
        /// The type found.
        got: Type,
        /// What is needed.
        need: String,
    },
    /// The order is no permutation of the dimensions.
    Order {
        /// The order.
        got: Vec<usize>,
        /// How many dimensions there are.
        rank: usize,
    },
    /// What is known of the symbols does not prove it.
    Unproven {
        /// What has to hold, such as `T - 1 >= 0`.
        claim: String,
        /// The symbols concerned, with what is known of them.
        known: String,
    },
    /// A value that its type cannot hold.
    Value {
        /// The value.
        got: f64,
        /// Its type.
        dtype: Dtype,
    },
    /// A setting of an operation.
    Setting {
        /// Which.
        what: &'static str,
        /// Its value.
        got: String,
        /// What is needed.
        need: &'static str,
    },
    /// Facts that no number satisfies.
    Facts {
        /// The facts.
        facts: Facts,
    },
    /// The name is used twice.
    Twice,
    /// Something in an attention's program.
    Program {
        /// The error there.
        error: Box<Error>,
    },
    /// A handle that stands for no node.
    Nowhere,
    /// A program looks at a value that is not computed yet.
    Read,
    /// A program does what no operation of a graph says.
    Outside {
        /// What it does.
        what: String,
    },
    /// A gradient is asked for where none passes.
    NoGradient {
        /// Why.
        reason: String,
    },

    // Ranks.
    /// What a send gives is read as if it were values.
    Token {
        /// By which input, from 0.
        input: usize,
    },
    /// A collective of several ranks is computed on one.
    Alone {
        /// The axis.
        axis: String,
        /// How many ranks it has.
        size: i64,
    },
    /// A rank does not do what the others of its group wait for, or the mesh is another one.
    Ranks {
        /// What is found.
        got: String,
        /// What is expected.
        need: String,
    },

    // Text.
    /// The text goes on otherwise than the grammar allows.
    Text {
        /// What stands there.
        got: String,
        /// What is needed.
        need: String,
    },

    // Running.
    /// An input is not given.
    NotGiven {
        /// Its name.
        name: String,
    },
    /// An input is given with another type or shape.
    Given {
        /// What is given.
        got: String,
        /// The input's type.
        need: Type,
    },
    /// A symbol has two values, or one that its facts exclude.
    Bound {
        /// The symbol.
        symbol: Symbol,
        /// The value.
        got: i64,
        /// What is needed.
        need: String,
    },
    /// A symbol that no input binds.
    Unbound {
        /// The symbol.
        symbol: Symbol,
    },
    /// An index outside its table.
    Index {
        /// The index.
        got: i64,
        /// Rows of the table.
        rows: usize,
        /// Which index, counted row-major.
        element: usize,
    },
    /// A division of integers by zero.
    DivisionByZero {
        /// Which element, counted row-major.
        element: usize,
    },
    /// A quantised weight that cannot be decoded.
    Weight {
        /// Why.
        reason: String,
    },
    /// More elements than fit in memory.
    TooLarge {
        /// The shape.
        shape: Vec<i64>,
    },
}

impl Fault {
    /// The fault of a node.
    pub(crate) fn at(self, node: usize, op: &Op) -> Error {
        Error { at: site(node, op), fault: self, source: None }
    }

    /// The fault of something with a name.
    pub(crate) fn of(self, name: &str) -> Error {
        Error { at: format!("`{name}`"), fault: self, source: None }
    }
}

impl Error {
    /// The same, with the rank on which it happened.
    pub(super) fn on(self, rank: usize) -> Self {
        Self { at: format!("rank {rank}: {}", self.at), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.fault)?;
        match self.source {
            Some(line) => write!(f, " ({}:{})", line.file(), line.line()),
            None => Ok(()),
        }
    }
}

impl error::Error for Error {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Arity { got, need } => write!(f, "inputs: expected {need}, found {got}"),
            Fault::NoSuchNode { id } => write!(f, "%{} is no earlier node", id.0),
            Fault::Dtype { input, got, need } => {
                write!(f, "input {input}: expected {need}, found {}", got.name())
            }
            Fault::Shape { input, got, need } => {
                write!(f, "input {input}: expected {need}, found shape {}", Shape(got))
            }
            Fault::NoSuchDim { dim, rank } => write!(f, "dimension {dim} of {rank}"),
            Fault::Type { got, need } => write!(f, "expected {need}, found {got}"),
            Fault::Untyped => write!(f, "its type has to be given"),
            Fault::Result { got, need } => write!(f, "expected {need}, found {got}"),
            Fault::Order { got, rank } => {
                write!(f, "order: expected a permutation of 0..{rank}, found {got:?}")
            }
            Fault::Unproven { claim, known } => {
                write!(f, "expected {claim}, which does not follow from {known}")
            }
            Fault::Value { got, dtype } => write!(f, "{got:?} is no value of {}", dtype.name()),
            Fault::Setting { what, got, need } => write!(f, "{what}: expected {need}, found {got}"),
            Fault::Facts { facts } => write!(f, "no size is in {facts}"),
            Fault::Twice => write!(f, "the name is used twice"),
            Fault::Program { error } => write!(f, "in its program: {error}"),
            Fault::Nowhere => write!(f, "it stands for no node"),
            Fault::Read => write!(f, "its value is read while the graph is recorded, before there is one"),
            Fault::Outside { what } => {
                write!(f, "{what} while the graph is recorded, and no operation says that")
            }
            Fault::NoGradient { reason } => write!(f, "no gradient passes: {reason}"),
            Fault::Token { input } => {
                write!(f, "expected a receive to read what a send gives, found it as input {input}")
            }
            Fault::Alone { axis, size } => {
                write!(f, "expected the values of all {size} ranks along {axis:?}, found those of one")
            }
            Fault::Ranks { got, need } => write!(f, "expected {need}, found {got}"),
            Fault::Text { got, need } => write!(f, "expected {need}, found {got}"),
            Fault::NotGiven { name } => write!(f, "missing input `{name}`"),
            Fault::Given { got, need } => write!(f, "expected {need}, found {got}"),
            Fault::Bound { symbol, got, need } => write!(f, "{symbol}: expected {need}, found {got}"),
            Fault::Unbound { symbol } => write!(f, "no input says how large {symbol} is"),
            Fault::Index { got, rows, element } => {
                write!(f, "index[{element}]: expected 0 to {}, found {got}", *rows as i64 - 1)
            }
            Fault::DivisionByZero { element } => write!(f, "element {element} is divided by 0"),
            Fault::Weight { reason } => write!(f, "the weight cannot be decoded: {reason}"),
            Fault::TooLarge { shape } => write!(f, "{shape:?} has more elements than fit in memory"),
        }
    }
}

/// A shape as a graph's text has it.
pub(super) struct Shape<'a>(pub &'a [Dim]);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.iter().map(Dim::to_string).collect();
        write!(f, "[{}]", dims.join(", "))
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype.name(), Shape(&self.shape))
    }
}
