//! A template whose names are found.

use std::ops::Range;
use std::sync::Arc;

use super::super::error::Span;
use super::super::python::filters::Filter;
use super::super::python::functions::Head;
use super::super::python::operators::Operator;
use super::super::python::predicates::Test;

/// A whole template.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) body: Block,
    /// How many places the outermost frame has.
    pub(crate) slots: usize,
    /// The names that are looked up in the variables that are given.
    pub(crate) globals: Vec<String>,
    pub(crate) macros: Vec<MacroCode>,
    pub(crate) loops: Vec<LoopCode>,
    /// Whether there is an `autoescape` block, within which everything that is written is escaped.
    pub(crate) escapes: bool,
    /// What it was compiled from: what errors show.
    pub(crate) source: String,
}

/// Statements and where their tags are.
pub(crate) type Block = Vec<(Op, Span)>;

/// A statement.
#[derive(Debug)]
pub(crate) enum Op {
    Data(String),
    Print(Code),
    If(Vec<(Code, Block)>, Block),
    /// Which loop of the program.
    For(usize),
    Set(Aim, Code),
    /// A body whose text is assigned, put through filters first.
    SetBlock(Aim, Vec<Applied>, Scoped),
    FilterBlock(Vec<Applied>, Scoped),
    With(Vec<(Aim, Code)>, Scoped),
    Scope(Scoped),
    Autoescape(Code, Scoped),
    Generation(Scoped),
    /// Which macro of the program, and where it is kept.
    Macro(usize, Spot),
    /// Which macro of the program is the caller, and what is called.
    CallBlock(usize, Code),
    Foreign(Code),
    Break,
    Continue,
}

/// Statements with names of their own, which are in these places.
#[derive(Debug)]
pub(crate) struct Scoped {
    pub(crate) names: Range<usize>,
    pub(crate) body: Block,
}

/// A filter and its arguments.
pub(crate) type Applied = (Filter, Given);

/// Where a variable is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Spot {
    /// In the frame that runs.
    Local(usize),
    /// In the outermost frame.
    Root(usize),
    /// So many definitions further out.
    Up(usize, usize),
    /// Among the variables that are given.
    Global(usize),
}

/// What is assigned to.
#[derive(Debug)]
pub(crate) enum Aim {
    Slot(usize),
    Field(Code, String),
    Tuple(Vec<Aim>),
}

/// A loop.
#[derive(Debug)]
pub(crate) struct LoopCode {
    pub(crate) of: Of,
    pub(crate) aim: Aim,
    pub(crate) test: Option<Code>,
    /// Where `loop` is kept.
    pub(crate) state: usize,
    /// The places that are empty when an item's turn begins.
    pub(crate) names: Range<usize>,
    /// The places of the body and of all within it.
    pub(crate) all: Range<usize>,
    pub(crate) body: Block,
    pub(crate) otherwise: Block,
    pub(crate) height: usize,
}

/// What a loop goes over.
#[derive(Debug)]
pub(crate) enum Of {
    Value(Code),
    /// `dict.items()`, whose pairs need not all be made.
    Method(Code),
    /// `dict|items`.
    Filter(Code),
}

/// A macro.
#[derive(Debug)]
pub(crate) struct MacroCode {
    pub(crate) head: Arc<Head>,
    /// The defaults of the last arguments.
    pub(crate) defaults: Vec<Code>,
    pub(crate) slots: usize,
    pub(crate) body: Block,
    pub(crate) height: usize,
}

/// The arguments of a call.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) positional: Vec<Code>,
    pub(crate) named: Vec<(String, Code)>,
    pub(crate) star: Option<Box<Code>>,
    pub(crate) stars: Option<Box<Code>>,
}

impl Given {
    /// Whether all are given by their places.
    pub(crate) fn is_plain(&self) -> bool {
        self.named.is_empty() && self.star.is_none() && self.stars.is_none()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.positional.is_empty() && self.is_plain()
    }
}

/// An expression and where it stands.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) kind: CodeKind,
    pub(crate) span: Span,
}

/// What an expression is.
#[derive(Debug)]
pub(crate) enum CodeKind {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Arc<str>),
    Name(Spot),
    /// The first of these places that is assigned to.
    Names(Box<[Spot]>),
    List(Vec<Code>),
    Tuple(Vec<Code>),
    Dict(Vec<(Code, Code)>),
    /// An item or field by a name that no method has.
    Field(Box<Code>, Box<str>),
    Attribute(Box<Code>, Box<str>),
    Item(Box<Code>, Box<Code>),
    /// The flag: all of it is literal.
    Slice(Box<Code>, Box<[Code; 3]>, bool),
    Call(Box<Code>, Given),
    Method(Box<Code>, Box<str>, Given),
    /// `loop(items)`: enters the loop of this number again.
    Again(usize, Box<Code>),
    Filter(Box<Code>, Filter, Given),
    /// A filter or a test that there is not, called by this name: an error once it is reached.
    Missing(Box<Code>, Named, Box<str>, Given),
    /// `value|trim`.
    Trim(Box<Code>),
    /// `value|tojson(...)`.
    Json(Box<Code>, Given),
    Test(Box<Code>, Test, Given),
    Not(Box<Code>),
    Signed(bool, Box<Code>),
    Sum(Vec<Code>),
    Binary(Operator, Box<Code>, Box<Code>),
    Concat(Vec<Code>),
    And(Vec<Code>),
    Or(Vec<Code>),
    /// `value == 'text'`, or with false `!=`.
    IsText(Box<Code>, Arc<str>, bool),
    Compare(Box<Code>, Vec<(Relation, Code)>),
    Cond(Box<Code>, Box<Code>, Option<Box<Code>>),
}

/// What a name that nobody knows was to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named {
    Filter,
    Test,
}

impl Named {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Named::Filter => "filter",
            Named::Test => "test",
        }
    }
}

/// What is asked of two values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Relation {
    Equal,
    Unequal,
    In,
    NotIn,
    /// One of `<`, `<=`, `>`, `>=`.
    Order(&'static str),
}
