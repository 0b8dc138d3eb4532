//! What a node can do: every operation that a graph is made of.
//!
//! Shapes are written (d0, d1, ...); nothing broadcasts, casts or reorders by itself: where a size or a type
//! changes, a node says so. An operation's precision is its output's [`Dtype`]: sums and products of f16 and bf16
//! are taken in f32 and rounded once, at the end.

use super::{Collective, Dim, Graph, Group, Type};
pub use crate::dtype::Dtype;

/// An operation with all that is not a tensor about it. Inputs are named in the order in which a node lists them.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    // What comes from outside.
    /// `() -> any`: what the caller gives under this name.
    Input {
        /// The name; no other input has it.
        name: String,
    },
    /// `() -> any`: one value everywhere.
    Constant {
        /// The value, rounded to the type.
        value: f64,
    },
    /// `() -> i32`: an element's own index along `dim`.
    Iota {
        /// The dimension that counts.
        dim: usize,
    },

    // Element by element; all shapes are equal.
    /// `x -> any`: the nearest value of another type, ties to even; towards zero, and to the nearest bound, from a
    /// float to an integer.
    Cast,
    /// `x -> x`: the same; no gradient passes.
    Detach,
    /// `x -> x` of a float; [`Unary::Neg`] of i32 too.
    Unary(Unary),
    /// `a, b -> a`: both of one type.
    Binary(Binary),
    /// `a, b -> u8`: 1 where it holds, else 0; never of a NaN.
    Compare(Compare),
    /// `condition u8, a, b -> a`: a where the condition is not 0, else b.
    Select,

    // Along a dimension.
    /// `x (.., n, ..) -> (.., 1, ..)`
    Reduce(Reduce, usize),
    /// `a (.., M, K), b (.., K, N) -> (.., M, N)`: equal leading dimensions, sum over K in order.
    Matmul,
    /// `table (n, ..), index i32 (s..) -> (s.., ..)`: the table's rows; an index outside 0..n is an error, unless the
    /// result has no elements.
    Gather,
    /// `rows (s.., ..), index i32 (s..) -> (n, ..)`: zeros, and every row added where its index points; an index
    /// outside 0..n is an error, unless the result has no elements.
    ScatterAdd,

    // The same elements, elsewhere.
    /// `x -> as many elements`: in row-major order.
    Reshape,
    /// `x -> (x[order[0]], x[order[1]], ..)`: output dimension i is the input's `order[i]`.
    Transpose {
        /// A permutation of the dimensions.
        order: Vec<usize>,
    },
    /// `x -> as many dimensions`: those of size 1 repeated.
    Broadcast,
    /// `x (.., n, ..) -> (.., end - start, ..)`
    Slice {
        /// The dimension that is cut.
        dim: usize,
        /// The first index kept.
        start: Dim,
        /// The index after the last one kept.
        end: Dim,
    },
    /// `a (.., n, ..), b (.., m, ..), .. -> (.., n + m + .., ..)`
    Concat {
        /// The dimension along which they follow each other.
        dim: usize,
    },

    // What the project is about.
    /// `packed u8, table f32 (16), absmax f32 -> (out, in)`, or, with a second level,
    /// `packed u8, table f32 (16), codes u8, code table f32 (256), scales f32, offset f32 () -> (out, in)`:
    /// the NF4 format of [`crate::nf4`], to the bit. It is frozen: no gradient passes.
    Dequantize {
        /// Elements that share one absmax.
        block_size: usize,
        /// Codes that share one second-level scale, if there is a second level.
        nested: Option<usize>,
    },
    /// `q (B, H, Tq, D), k (B, G, Tk, D), v (B, G, Tk, Dv), extras.. -> (B, H, Tq, Dv)`; see [`Attention`].
    Attention(Box<Attention>),
    /// The inputs of an attention and the gradient of its output `-> ` the gradient of the input `wrt`.
    AttentionGrad {
        /// What it differentiates.
        attention: Box<Attention>,
        /// The input, by its number: 0 is q, 1 is k, 2 is v, 3 the first extra.
        wrt: usize,
    },
    /// The inputs of an attention `-> f32 (B, H, Tq)`: the logarithm of the sum over the keys that a query may see of
    /// `e^score`, which an attention beside it computes on the way; minus infinity where it may see none.
    AttentionLse(Box<Attention>),
    /// The inputs of an attention and the gradient f32 (B, H, Tq) of its [`Op::AttentionLse`] `-> ` the gradient of the
    /// input `wrt`.
    AttentionLseGrad {
        /// What it differentiates.
        attention: Box<Attention>,
        /// The input, by its number: 0 is q, 1 is k, 2 is v, 3 the first extra.
        wrt: usize,
    },
    /// `key0 i32, key1 i32, index i32 -> u8`, all of one shape: 1 with that probability, else 0, drawn by
    /// [`happens`](crate::philox::happens) from the bits of the key, the index and the stream. The same three give the
    /// same bit on every device, rank and recomputation.
    RandomMask {
        /// The probability of a 1, from 0 to 1.
        probability: f64,
        /// Which of the masks that share a key.
        stream: u32,
    },
    /// What ranks do together: see [`Collective`].
    Collective {
        /// What they do.
        kind: Collective,
        /// Which ranks.
        group: Group,
    },
}

/// softmax over the keys of `score(q . k * scale)`, where the mask allows, times v.
///
/// Head h of the queries reads head h / (H / G) of the keys. The programs are graphs over scalars, applied to every
/// (batch, head, query, key): their inputs are `score` f32, `batch`, `head`, `query`, `key` i32, and the extras with
/// the types that they have outside. What depends on the first five has no dimensions; what does not, a *table*, may
/// be any tensor, and is read by [`Op::Gather`]. A query that may see no key has an output of zeros.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// What the product of a query and a key is multiplied with.
    pub scale: f64,
    /// From a score to a score (f32); as it is, if absent.
    pub score: Option<Graph>,
    /// Whether the query may see the key (u8); always, if absent.
    pub mask: Option<Graph>,
}

impl Attention {
    /// Whether it is the same, programs and all; of constants to the bit.
    pub fn is(&self, other: &Attention) -> bool {
        let same = |a: &Option<Graph>, b: &Option<Graph>| match (a, b) {
            (Some(a), Some(b)) => a.is(b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let scales = self.scale.to_bits() == other.scale.to_bits();
        scales && same(&self.score, &other.score) && same(&self.mask, &other.mask)
    }
}

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// -x
    Neg,
    /// e^x
    Exp,
    /// ln x
    Log,
    /// The square root.
    Sqrt,
    /// The hyperbolic tangent.
    Tanh,
    /// 1 / (1 + e^-x)
    Sigmoid,
    /// sin x
    Sin,
    /// cos x
    Cos,
}

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// a + b
    Add,
    /// a - b
    Sub,
    /// a * b
    Mul,
    /// a / b; of i32 rounded down, where b = 0 is an error.
    Div,
    /// The smaller one; NaN if one is. Of u8: a and b.
    Min,
    /// The larger one; NaN if one is. Of u8: a or b.
    Max,
}

/// A relation of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    /// a < b
    Less,
    /// a = b
    Equal,
}

/// What becomes of the numbers along a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// Their sum, in order.
    Sum,
    /// The largest; NaN if one is. Of none: minus infinity.
    Max,
}

impl Unary {
    /// Every one, with its name in a graph's text.
    pub const NAMES: [(Unary, &str); 8] = [
        (Unary::Neg, "neg"),
        (Unary::Exp, "exp"),
        (Unary::Log, "log"),
        (Unary::Sqrt, "sqrt"),
        (Unary::Tanh, "tanh"),
        (Unary::Sigmoid, "sigmoid"),
        (Unary::Sin, "sin"),
        (Unary::Cos, "cos"),
    ];
}

impl Binary {
    /// Every one, with its name in a graph's text.
    pub const NAMES: [(Binary, &str); 6] = [
        (Binary::Add, "add"),
        (Binary::Sub, "sub"),
        (Binary::Mul, "mul"),
        (Binary::Div, "div"),
        (Binary::Min, "min"),
        (Binary::Max, "max"),
    ];
}

impl Compare {
    /// Every one, with its name in a graph's text.
    pub const NAMES: [(Compare, &str); 2] = [(Compare::Less, "less"), (Compare::Equal, "equal")];
}

impl Reduce {
    /// Every one, with its name in a graph's text.
    pub const NAMES: [(Reduce, &str); 2] = [(Reduce::Sum, "sum"), (Reduce::Max, "reduce_max")];
}

impl Op {
    /// Its name in a graph's text.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input { .. } => "input",
            Op::Constant { .. } => "constant",
            Op::Iota { .. } => "iota",
            Op::Cast => "cast",
            Op::Detach => "detach",
            Op::Unary(unary) => named(&Unary::NAMES, unary),
            Op::Binary(binary) => named(&Binary::NAMES, binary),
            Op::Compare(compare) => named(&Compare::NAMES, compare),
            Op::Select => "select",
            Op::Reduce(reduce, _) => named(&Reduce::NAMES, reduce),
            Op::Matmul => "matmul",
            Op::Gather => "gather",
            Op::ScatterAdd => "scatter_add",
            Op::Reshape => "reshape",
            Op::Transpose { .. } => "transpose",
            Op::Broadcast => "broadcast",
            Op::Slice { .. } => "slice",
            Op::Concat { .. } => "concat",
            Op::Dequantize { .. } => "dequantize",
            Op::Attention(_) => "attention",
            Op::AttentionGrad { .. } => "attention_grad",
            Op::AttentionLse(_) => "attention_lse",
            Op::AttentionLseGrad { .. } => "attention_lse_grad",
            Op::RandomMask { .. } => "random_mask",
            Op::Collective { kind, .. } => kind.name(),
        }
    }

    /// Whether it is the same operation to the bit: unlike for `==`, a NaN is itself and 0 is not -0.
    pub fn is(&self, other: &Op) -> bool {
        match self {
            Op::Constant { value: a } => {
                matches!(other, Op::Constant { value: b } if a.to_bits() == b.to_bits())
            }
            Op::Attention(a) => matches!(other, Op::Attention(b) if a.is(b)),
            Op::AttentionGrad { attention: a, wrt: i } => {
                matches!(other, Op::AttentionGrad { attention: b, wrt: j } if i == j && a.is(b))
            }
            Op::AttentionLse(a) => matches!(other, Op::AttentionLse(b) if a.is(b)),
            Op::AttentionLseGrad { attention: a, wrt: i } => {
                matches!(other, Op::AttentionLseGrad { attention: b, wrt: j } if i == j && a.is(b))
            }
            Op::RandomMask { probability: a, stream: i } => {
                let same = |b: &f64| a.to_bits() == b.to_bits();
                matches!(other, Op::RandomMask { probability, stream } if same(probability) && i == stream)
            }
            // What holds no float is what it equals.
            Op::Input { .. } | Op::Iota { .. } | Op::Cast | Op::Detach | Op::Unary(_) => self == other,
            Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Reduce(..) | Op::Matmul => self == other,
            Op::Gather | Op::ScatterAdd | Op::Reshape | Op::Transpose { .. } => self == other,
            Op::Broadcast | Op::Slice { .. } | Op::Concat { .. } | Op::Dequantize { .. } => self == other,
            Op::Collective { .. } => self == other,
        }
    }

    /// Whether the output's type is the writer's choice and not the inputs' consequence: then a node is made with
    /// its type, and the check asks whether it fits.
    pub fn takes_type(&self) -> bool {
        match self {
            Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } | Op::Cast | Op::ScatterAdd => true,
            Op::Reshape | Op::Broadcast | Op::Dequantize { .. } => true,
            Op::Detach | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => false,
            Op::Reduce(..) | Op::Matmul | Op::Gather | Op::Transpose { .. } | Op::Slice { .. } => false,
            Op::Concat { .. } | Op::Attention(_) | Op::AttentionGrad { .. } | Op::AttentionLse(_) => false,
            Op::AttentionLseGrad { .. } | Op::RandomMask { .. } | Op::Collective { .. } => false,
        }
    }
}

/// The name that a table gives.
fn named<T: PartialEq>(names: &[(T, &'static str)], of: &T) -> &'static str {
    names.iter().find(|(one, _)| one == of).map_or("?", |(_, name)| name)
}

impl Attention {
    /// The types of a program's first inputs, by name.
    pub const ARGUMENTS: [(&'static str, Dtype); 5] = [
        ("score", Dtype::F32),
        ("batch", Dtype::I32),
        ("head", Dtype::I32),
        ("query", Dtype::I32),
        ("key", Dtype::I32),
    ];

    /// Plain attention: no score program, no mask.
    pub fn plain(scale: f64) -> Self {
        Self { scale, score: None, mask: None }
    }

    /// Both programs, with the type that each gives.
    pub fn programs(&self) -> impl Iterator<Item = (&Graph, Type)> {
        let score = self.score.iter().map(|program| (program, Type::scalar(Dtype::F32)));
        score.chain(self.mask.iter().map(|program| (program, Type::scalar(Dtype::U8))))
    }
}
