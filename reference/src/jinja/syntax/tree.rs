//! A template as a tree.

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
pub(crate) struct Args {
    pub(crate) positional: Vec<Expr>,
    pub(crate) named: Vec<(String, Expr)>,
    pub(crate) star: Option<Box<Expr>>,
    pub(crate) stars: Option<Box<Expr>>,
}

impl Args {
    pub(crate) fn is_empty(&self) -> bool {
        self.positional.is_empty() && self.named.is_empty() && self.star.is_none() && self.stars.is_none()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Expr> {
        let named = self.named.iter().map(|(_, value)| value);
        let stars = self.star.iter().chain(&self.stars).map(AsRef::as_ref);
        self.positional.iter().chain(named).chain(stars)
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
    pub(crate) what: What,
    pub(crate) span: Span,
}

/// What a statement is.
#[derive(Clone, Debug)]
pub(crate) enum What {
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
    Block(Vec<Stmt>),
    /// `include`, `import`, `from`, `extends`: there is no other template.
    Foreign(Expr),
    Break,
    Continue,
}

/// A condition, and what is done under it.
type Branch = (Expr, Vec<Stmt>);

impl What {
    /// The statements within it.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &[Stmt]> {
        let (many, two): (&[Branch], [&[Stmt]; 2]) = match self {
            What::If { branches, otherwise } => (branches, [otherwise, &[]]),
            What::For { body, otherwise, .. } => (&[], [body, otherwise]),
            What::SetBlock { body, .. }
            | What::With(_, body)
            | What::Macro { body, .. }
            | What::CallBlock { body, .. }
            | What::FilterBlock { body, .. }
            | What::Autoescape(_, body)
            | What::Generation(body)
            | What::Block(body) => (&[], [body, &[]]),
            What::Data(_)
            | What::Print(_)
            | What::Set(..)
            | What::Foreign(_)
            | What::Break
            | What::Continue => (&[], [&[], &[]]),
        };
        many.iter().map(|(_, body)| body.as_slice()).chain(two)
    }
}
