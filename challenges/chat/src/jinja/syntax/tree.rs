//! A template as a tree.

use std::sync::Arc;

use num_bigint::BigInt;

use super::super::error::Span;

/// An expression, where it stands and how deep it is.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) node: Node,
    pub(crate) span: Span,
    pub(crate) depth: usize,
}

/// What an expression is.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    None,
    Bool(bool),
    Int(i128),
    /// A whole number that needs more than 128 bits.
    Huge(Arc<BigInt>),
    Float(f64),
    Text(String),
    Name(String),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Attribute(Box<Expr>, String),
    Item(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Box<[Option<Expr>; 3]>),
    Call(Box<Expr>, Args),
    /// With no operand inside a filter block.
    Filter(Box<Expr>, String, Args),
    Test(Box<Expr>, String, Args),
    Not(Box<Expr>),
    Minus(Box<Expr>),
    Plus(Box<Expr>),
    /// Two or more, joined by `+` from the left.
    Sum(Vec<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    Concat(Vec<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Compare(Box<Expr>, Vec<(&'static str, Expr)>),
    Cond {
        test: Box<Expr>,
        yes: Box<Expr>,
        no: Option<Box<Expr>>,
    },
}

/// What stands between the parentheses of a call.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "`*args` and `**kwargs`, as Python calls them")]
pub(crate) struct Args {
    pub(crate) positional: Vec<Expr>,
    pub(crate) named: Vec<(String, Expr)>,
    pub(crate) args_splat: Option<Box<Expr>>,
    pub(crate) kwargs_splat: Option<Box<Expr>>,
}

impl Args {
    pub(crate) fn is_empty(&self) -> bool {
        self.positional.is_empty()
            && self.named.is_empty()
            && self.args_splat.is_none()
            && self.kwargs_splat.is_none()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Expr> {
        let named = self.named.iter().map(|(_, value)| value);
        let kwargs_splat = self.args_splat.iter().chain(&self.kwargs_splat).map(AsRef::as_ref);
        self.positional.iter().chain(named).chain(kwargs_splat)
    }
}

/// What is assigned to.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Name(String),
    /// `ns.name`.
    Field(String, String, Span),
    Tuple(Vec<Target>),
}

/// The arguments that a macro takes; the last ones may have defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signature {
    pub(crate) names: Vec<String>,
    pub(crate) defaults: Vec<Expr>,
}

/// A statement and where its tag begins.
#[derive(Clone, Debug)]
pub(crate) struct Stmt {
    pub(crate) kind: StmtKind,
    pub(crate) span: Span,
}

/// What a statement is.
#[derive(Clone, Debug)]
pub(crate) enum StmtKind {
    Data(String),
    Print(Expr),
    If {
        branches: Vec<(Expr, Vec<Stmt>)>,
        otherwise: Vec<Stmt>,
    },
    For {
        target: Target,
        of: Expr,
        test: Option<Expr>,
        recursive: bool,
        body: Vec<Stmt>,
        otherwise: Vec<Stmt>,
    },
    Set(Target, Expr),
    SetBlock {
        target: Target,
        filters: Vec<(String, Args)>,
        body: Vec<Stmt>,
    },
    With(Vec<(Target, Expr)>, Vec<Stmt>),
    Macro {
        name: String,
        signature: Signature,
        body: Vec<Stmt>,
    },
    CallBlock {
        signature: Signature,
        call: Expr,
        body: Vec<Stmt>,
    },
    FilterBlock {
        filters: Vec<(String, Args)>,
        body: Vec<Stmt>,
    },
    Autoescape(Expr, Vec<Stmt>),
    Generation(Vec<Stmt>),
    Block {
        name: String,
        /// Whether its body sees the variables of the loops and blocks around it.
        scoped: bool,
        /// Whether another template has to write it.
        required: bool,
        body: Vec<Stmt>,
    },
    /// `include`, `import`, `from`, `extends`: there is no other template.
    Import(Expr),
    Break,
    Continue,
}

/// A condition, and what is done under it.
type Branch = (Expr, Vec<Stmt>);

impl StmtKind {
    /// The statements within it.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &[Stmt]> {
        let (many, two): (&[Branch], [&[Stmt]; 2]) = match self {
            StmtKind::If { branches, otherwise } => (branches, [otherwise, &[]]),
            StmtKind::For { body, otherwise, .. } => (&[], [body, otherwise]),
            StmtKind::SetBlock { body, .. }
            | StmtKind::With(_, body)
            | StmtKind::Macro { body, .. }
            | StmtKind::CallBlock { body, .. }
            | StmtKind::FilterBlock { body, .. }
            | StmtKind::Autoescape(_, body)
            | StmtKind::Generation(body)
            | StmtKind::Block { body, .. } => (&[], [body, &[]]),
            StmtKind::Data(_)
            | StmtKind::Print(_)
            | StmtKind::Set(..)
            | StmtKind::Import(_)
            | StmtKind::Break
            | StmtKind::Continue => (&[], [&[], &[]]),
        };
        many.iter().map(|(_, body)| body.as_slice()).chain(two)
    }
}
