//! A template whose names are found.

use std::ops::Range;
use std::sync::Arc;

use num_bigint::BigInt;

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
    /// The blocks by name, each a macro without arguments; `None` if it sees variables that only its own place has.
    pub(crate) blocks: Vec<(String, Option<usize>)>,
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
    Print(Expr),
    If(Vec<(Expr, Block)>, Block),
    /// Which loop of the program.
    For(usize),
    Set(Target, Expr),
    /// A body whose text is assigned, put through filters first.
    SetBlock(Target, Vec<Applied>, Scoped),
    FilterBlock(Vec<Applied>, Scoped),
    With(Vec<(Target, Expr)>, Scoped),
    Scope(Scoped),
    /// The number of the macro that writes the block at this place.
    OwnBlock(usize),
    /// A block of this name that no template writes.
    Required(String),
    Autoescape(Expr, Scoped),
    Generation(Scoped),
    /// Which macro of the program, and where it is kept.
    Macro(usize, VarRef),
    /// Which macro of the program is the caller, and what is called.
    CallBlock(usize, Expr),
    Import(Expr),
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
pub(crate) type Applied = (Filter, CallArgs);

/// Where a variable is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum VarRef {
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
pub(crate) enum Target {
    Slot(usize),
    Field(Expr, String),
    Tuple(Vec<Target>),
}

/// A loop.
#[derive(Debug)]
pub(crate) struct LoopCode {
    pub(crate) of: Iterable,
    pub(crate) target: Target,
    pub(crate) test: Option<Expr>,
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
pub(crate) enum Iterable {
    Value(Expr),
    /// `dict.items()`, whose pairs need not all be made.
    Method(Expr),
    /// `dict|items`.
    Filter(Expr),
}

/// A macro.
#[derive(Debug)]
pub(crate) struct MacroCode {
    pub(crate) head: Arc<Head>,
    /// The defaults of the last arguments.
    pub(crate) defaults: Vec<Expr>,
    pub(crate) slots: usize,
    pub(crate) body: Block,
    pub(crate) height: usize,
}

/// The arguments of a call.
#[derive(Debug, Default)]
pub(crate) struct CallArgs {
    pub(crate) positional: Vec<Expr>,
    pub(crate) named: Vec<(String, Expr)>,
    pub(crate) args_splat: Option<Box<Expr>>,
    pub(crate) kwargs_splat: Option<Box<Expr>>,
}

impl CallArgs {
    /// Whether all are given by their places.
    pub(crate) fn is_plain(&self) -> bool {
        self.named.is_empty() && self.args_splat.is_none() && self.kwargs_splat.is_none()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.positional.is_empty() && self.is_plain()
    }
}

/// An expression and where it stands.
#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) span: Span,
}

/// What an expression is.
#[derive(Debug)]
pub(crate) enum ExprKind {
    None,
    Bool(bool),
    Int(i128),
    /// A whole number that needs more than 128 bits.
    Huge(Arc<BigInt>),
    Float(f64),
    Text(Arc<str>),
    Name(VarRef),
    /// The first of these places that is assigned to.
    Names(Box<[VarRef]>),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    /// An item or field by a name that no method has.
    Field(Box<Expr>, Box<str>),
    Attribute(Box<Expr>, Box<str>),
    Item(Box<Expr>, Box<Expr>),
    /// The flag: all of it is literal.
    Slice(Box<Expr>, Box<[Expr; 3]>, bool),
    Call(Box<Expr>, CallArgs),
    Method(Box<Expr>, Box<str>, CallArgs),
    /// `loop(items)`: enters the loop of this number again.
    LoopRecurse(usize, Box<Expr>),
    Filter(Box<Expr>, Filter, CallArgs),
    /// A filter or a test that there is not, called by this name: an error once it is reached.
    Missing(Box<Expr>, Named, Box<str>, CallArgs),
    /// `value|trim`.
    Trim(Box<Expr>),
    /// `value|tojson(...)`.
    Json(Box<Expr>, CallArgs),
    Test(Box<Expr>, Test, CallArgs),
    Not(Box<Expr>),
    Signed(bool, Box<Expr>),
    Sum(Vec<Expr>),
    Binary(Operator, Box<Expr>, Box<Expr>),
    Concat(Vec<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    /// `value == 'text'`, or with false `!=`.
    IsText(Box<Expr>, Arc<str>, bool),
    Compare(Box<Expr>, Vec<(Relation, Expr)>),
    Cond(Box<Expr>, Box<Expr>, Option<Box<Expr>>),
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
