//! Tile programs: a pass over memory, as data.
//!
//! A program is run over a *space*, a shape whose last dimension makes up the *rows*; each element of it is a *lane*.
//! Its operations form a list; each one makes a value that later ones may use, and some values are stored. A device
//! runs the whole list over a tile of lanes that fits its fastest memory before it goes on to the next tile, so a chain
//! of operations costs one pass over memory, however long it is. That is what *fused* means, and a list is the smallest
//! thing that can be fused, printed and counted.
//!
//! Most values are one a lane. A sum or a maximum over the row is one a row; what uses it waits until the row has been
//! seen to its end, and what was computed on the way stays in fast memory. So a normalisation or a softmax is one
//! program as well.
//!
//! Values are f32 or whole numbers (i32: codes, indices, conditions). Every operation rounds once, to f32; a store
//! rounds once more to its type. Nothing is contracted. A program without sums and functions such as `exp` therefore
//! gives equal bits on every device; a sum's order and a function's last bits are the device's own.

mod check;
mod schedule;

use std::fmt;

pub use crate::element::Element;
pub(crate) use schedule::{Schedule, Scheduled, Slot, phases};

/// The number of an operation whose value is used.
pub type Value = usize;

/// Which element of an input or output belongs to a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// Its own: the lane's number, counted row-major.
    Lane,
    /// One for each 2^n lanes: element lane >> n.
    Block(u32),
    /// The first, for all lanes.
    First,
    /// What the launch says: an offset and a stride for each dimension of the space.
    View,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// An element of an input: a whole number if it is one in memory, else an f32.
    Load {
        /// The input's number.
        input: usize,
        /// Its type.
        element: Element,
        /// Which one.
        index: Index,
    },
    /// Half a byte of an input, the high half for even lanes: a whole number below 16.
    Nibble {
        /// The input's number.
        input: usize,
    },
    /// The f32 of an input at the place that a whole number names, modulo the entries.
    Table {
        /// The input's number.
        input: usize,
        /// The whole number.
        at: Value,
        /// Entries of the table, a power of two.
        entries: usize,
    },
    /// The element of an input at the place that a whole number names. A place outside the input fails the launch.
    Gather {
        /// The input's number.
        input: usize,
        /// Its type.
        element: Element,
        /// The whole number.
        at: Value,
    },
    /// An f32, the same in every lane.
    Float(f32),
    /// A whole number, the same in every lane.
    Whole(i32),
    /// A lane's index along a dimension of the space: a whole number.
    Coordinate(usize),
    /// A function of an f32.
    Unary(Unary, Value),
    /// Arithmetic of two values of one kind.
    Binary(Binary, Value, Value),
    /// A relation of two values of one kind: the whole number 1 or 0.
    Compare(Compare, Value, Value),
    /// The second value where the first, a whole number, is not 0; else the third.
    Select(Value, Value, Value),
    /// An f32 rounded to f16 or bf16, and back.
    Round(Element, Value),
    /// A whole number as the nearest f32.
    ToFloat(Value),
    /// An f32 as a whole number, towards zero; to the nearest bound if it is out of range, 0 if it is none.
    ToWhole(Value),
    /// The sum over the row.
    RowSum(Value),
    /// The largest of the row; NaN if one is.
    RowMax(Value),
    /// 1 where the first word of [`philox`](crate::philox) at the counter (index, stream, 0, 0) is below the threshold,
    /// else 0. Key and index are the bits of whole numbers.
    RandomMask {
        /// The key's two words.
        key: [Value; 2],
        /// The counter's first word.
        index: Value,
        /// The counter's second word.
        stream: u32,
        /// At most 2^32, for an event that always happens.
        threshold: u64,
    },
}

/// A function of an f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// -x
    Neg,
    /// e^x
    Exp,
    /// ln x
    Log,
    /// The square root, rounded to nearest.
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

/// Arithmetic of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// a + b; whole numbers wrap around.
    Add,
    /// a - b; whole numbers wrap around.
    Sub,
    /// a * b; whole numbers wrap around.
    Mul,
    /// a / b; of whole numbers rounded down, and a division by 0 fails the launch.
    Div,
    /// The smaller one; NaN if one is.
    Min,
    /// The larger one; NaN if one is.
    Max,
}

/// A relation of two values; false if one is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    /// a < b
    Less,
    /// a = b
    Equal,
}

/// A value that goes to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// The output's number.
    pub output: usize,
    /// The type that the value is rounded to; a whole number is stored as one.
    pub element: Element,
    /// Where it goes: [`Index::Lane`], or [`Index::View`].
    pub index: Index,
    /// Whether it is stored once a row, by view: the first lane's value, where it is not one of the row anyway.
    pub per_row: bool,
    /// The value.
    pub value: Value,
}

/// A list of operations with a name, and the values that are stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// For reports and errors.
    pub name: String,
    /// In order; operation n makes value n.
    pub ops: Vec<Op>,
    /// What goes to memory, once everything is computed.
    pub stores: Vec<Store>,
}

impl Index {
    /// Elements that `len` lanes touch; of a view, which is the launch's, none.
    pub(crate) fn touched(self, len: usize) -> usize {
        match self {
            Self::Lane => len,
            Self::Block(shift) => 1_usize.checked_shl(shift).map_or(1.min(len), |lanes| len.div_ceil(lanes)),
            Self::First => 1.min(len),
            Self::View => 0,
        }
    }
}

impl Program {
    /// A program that stores one value a lane, lane by lane.
    pub fn flat(name: &str, ops: Vec<Op>, value: Value, element: Element) -> Self {
        let store = Store { output: 0, element, index: Index::Lane, per_row: false, value };
        Self { name: name.into(), ops, stores: vec![store] }
    }

    /// The input that an operation reads, with the type of its elements, if it reads one.
    pub(crate) fn reads(op: &Op) -> Option<(usize, Element)> {
        match *op {
            Op::Load { input, element, .. } | Op::Gather { input, element, .. } => Some((input, element)),
            Op::Nibble { input } => Some((input, Element::U8)),
            Op::Table { input, .. } => Some((input, Element::F32)),
            Op::Float(_)
            | Op::Whole(_)
            | Op::Coordinate(_)
            | Op::Unary(..)
            | Op::Binary(..)
            | Op::Compare(..)
            | Op::Select(..)
            | Op::Round(..)
            | Op::ToFloat(_)
            | Op::ToWhole(_)
            | Op::RowSum(_)
            | Op::RowMax(_)
            | Op::RandomMask { .. } => None,
        }
    }

    /// Number of inputs that it names.
    pub fn inputs(&self) -> usize {
        self.ops.iter().filter_map(Self::reads).map(|(input, _)| input.saturating_add(1)).max().unwrap_or(0)
    }

    /// Number of outputs that it names.
    pub fn outputs(&self) -> usize {
        self.stores.iter().map(|store| store.output.saturating_add(1)).max().unwrap_or(0)
    }

    /// Whether it is the same program: name, operations ([`Op::is`]) and stores.
    pub fn is(&self, other: &Self) -> bool {
        let Self { name, ops, stores } = self; // a new field has to be compared too
        let same_ops = || ops.iter().zip(&other.ops).all(|(a, b)| a.is(b));
        *name == other.name && ops.len() == other.ops.len() && same_ops() && *stores == other.stores
    }

    /// Bytes of each input and of each output that `len` lanes of a checked program touch, lane by lane; those of
    /// views, gathers and values of a row are the launch's and not counted here. What does not fit is `usize::MAX`,
    /// which no buffer has.
    pub fn traffic(&self, len: usize) -> (Vec<usize>, Vec<usize>) {
        let mut read = vec![0; self.inputs()];
        for op in &self.ops {
            let Some((input, _)) = Self::reads(op) else { continue };
            let bytes = match *op {
                Op::Load { element, index, .. } => index.touched(len).saturating_mul(element.bytes()),
                Op::Nibble { .. } => len.div_ceil(2),
                Op::Table { entries, .. } => entries.saturating_mul(4),
                _ => 0, // gathered
            };
            read[input] = read[input].max(bytes);
        }
        let mut written = vec![0; self.outputs()];
        for store in &self.stores {
            written[store.output] = store.index.touched(len).saturating_mul(store.element.bytes());
        }
        (read, written)
    }

    /// The values that an operation uses.
    pub(crate) fn uses(op: &Op) -> impl Iterator<Item = Value> + use<> {
        let values: [Option<Value>; 3] = match *op {
            Op::Load { .. } | Op::Nibble { .. } | Op::Float(_) | Op::Whole(_) | Op::Coordinate(_) => {
                [None, None, None]
            }
            Op::Table { at, .. } | Op::Gather { at, .. } => [Some(at), None, None],
            Op::Unary(_, a)
            | Op::Round(_, a)
            | Op::ToFloat(a)
            | Op::ToWhole(a)
            | Op::RowSum(a)
            | Op::RowMax(a) => [Some(a), None, None],
            Op::Binary(_, a, b) | Op::Compare(_, a, b) => [Some(a), Some(b), None],
            Op::Select(c, a, b) => [Some(c), Some(a), Some(b)],
            Op::RandomMask { key: [a, b], index, .. } => [Some(a), Some(b), Some(index)],
        };
        values.into_iter().flatten()
    }

    /// Whether each value is a whole number.
    pub(crate) fn kinds(&self) -> Vec<bool> {
        let mut whole: Vec<bool> = Vec::new();
        for op in &self.ops {
            let of = |value: &Value| whole.get(*value).copied().unwrap_or(false);
            let is_whole = match op {
                Op::Load { element, .. } | Op::Gather { element, .. } => element.is_whole(),
                Op::Nibble { .. } | Op::Whole(_) | Op::Coordinate(_) | Op::Compare(..) | Op::ToWhole(_) => {
                    true
                }
                Op::RandomMask { .. } => true,
                Op::Table { .. } | Op::Float(_) | Op::Unary(..) | Op::Round(..) | Op::ToFloat(_) => false,
                Op::Binary(_, a, _) | Op::Select(_, a, _) | Op::RowSum(a) | Op::RowMax(a) => of(a),
            };
            whole.push(is_whole);
        }
        whole
    }

    /// Whether it has to be run row by row.
    pub fn needs_rows(&self) -> bool {
        let reduces = self.ops.iter().any(|op| matches!(op, Op::RowSum(_) | Op::RowMax(_)));
        reduces || self.stores.iter().any(|store| store.per_row)
    }

    /// Whether each value is one a row: what is reduced, what is loaded by view from an input that is `steady` along
    /// rows, and what is made of such and of constants. An input that is not named is not steady.
    pub fn per_row(&self, steady: &[bool]) -> Vec<bool> {
        let mut per_row: Vec<bool> = Vec::new();
        for op in &self.ops {
            let one = |value: Value| per_row[value] || self.ops[value].is_constant();
            let made_of_rows = || Self::uses(op).any(|value| per_row[value]) && Self::uses(op).all(one);
            per_row.push(match *op {
                Op::RowSum(_) | Op::RowMax(_) => true,
                Op::Load { input, index, .. } => {
                    index == Index::View && steady.get(input).copied().unwrap_or(false)
                }
                _ => made_of_rows(),
            });
        }
        per_row
    }
}

impl Op {
    /// The same operation on other values.
    pub(crate) fn on(self, value: impl Fn(Value) -> Value) -> Self {
        match self {
            Op::Load { .. } | Op::Nibble { .. } | Op::Float(_) | Op::Whole(_) | Op::Coordinate(_) => self,
            Op::Table { input, at, entries } => Op::Table { input, at: value(at), entries },
            Op::Gather { input, element, at } => Op::Gather { input, element, at: value(at) },
            Op::Unary(unary, a) => Op::Unary(unary, value(a)),
            Op::Binary(binary, a, b) => Op::Binary(binary, value(a), value(b)),
            Op::Compare(compare, a, b) => Op::Compare(compare, value(a), value(b)),
            Op::Select(c, a, b) => Op::Select(value(c), value(a), value(b)),
            Op::Round(element, a) => Op::Round(element, value(a)),
            Op::ToFloat(a) => Op::ToFloat(value(a)),
            Op::ToWhole(a) => Op::ToWhole(value(a)),
            Op::RowSum(a) => Op::RowSum(value(a)),
            Op::RowMax(a) => Op::RowMax(value(a)),
            Op::RandomMask { key: [a, b], index, stream, threshold } => {
                Op::RandomMask { key: [value(a), value(b)], index: value(index), stream, threshold }
            }
        }
    }

    /// Whether it is the same operation: of floats, by their bits, so that 0 is not -0 and a NaN is itself.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Op::Float(a), Op::Float(b)) => a.to_bits() == b.to_bits(),
            _ => self == other,
        }
    }

    /// Whether it is the same number in every lane of every row.
    pub(crate) fn is_constant(&self) -> bool {
        matches!(self, Op::Float(_) | Op::Whole(_))
    }
}

impl fmt::Display for Program {
    /// One operation a line: `%3 = mul %1 %2`. Programs that differ have texts that differ.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program {}", self.name.escape_debug())?;
        for (n, op) in self.ops.iter().enumerate() {
            writeln!(f, "  %{n} = {op}")?;
        }
        for store in &self.stores {
            let number = if self.outputs() > 1 { store.output.to_string() } else { String::new() };
            let once = if store.per_row { " once a row" } else { "" };
            writeln!(f, "  store {} out{number}[{}] %{}{once}", store.element, store.index, store.value)?;
        }
        Ok(())
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Op::Load { input, element, index } => write!(f, "load {element} in{input}[{index}]"),
            Op::Nibble { input } => write!(f, "nibble in{input}[lane]"),
            Op::Table { input, at, entries } => write!(f, "table in{input}[%{at}] ({entries})"),
            Op::Gather { input, element, at } => write!(f, "gather {element} in{input}[%{at}]"),
            Op::Float(value) if value.is_nan() => write!(f, "NaN {:#x}", value.to_bits()),
            Op::Float(value) => write!(f, "{value:?}"),
            Op::Whole(value) => write!(f, "{value}"),
            Op::Coordinate(dim) => write!(f, "coordinate {dim}"),
            Op::Unary(unary, a) => write!(f, "{} %{a}", lower(unary)),
            Op::Binary(binary, a, b) => write!(f, "{} %{a} %{b}", lower(binary)),
            Op::Compare(compare, a, b) => write!(f, "{} %{a} %{b}", lower(compare)),
            Op::Select(c, a, b) => write!(f, "select %{c} %{a} %{b}"),
            Op::Round(element, a) => write!(f, "round {element} %{a}"),
            Op::ToFloat(a) => write!(f, "float %{a}"),
            Op::ToWhole(a) => write!(f, "whole %{a}"),
            Op::RowSum(a) => write!(f, "row sum %{a}"),
            Op::RowMax(a) => write!(f, "row max %{a}"),
            Op::RandomMask { key: [a, b], index, stream, threshold } => {
                write!(f, "random mask %{a} %{b} %{index} stream {stream} below {threshold:#x}")
            }
        }
    }
}

/// A variant's name as the text has it.
fn lower(name: impl fmt::Debug) -> String {
    format!("{name:?}").to_lowercase()
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lane => f.write_str("lane"),
            Self::Block(shift) => write!(f, "lane / {}", 2_u64.saturating_pow(*shift)),
            Self::First => f.write_str("0"),
            Self::View => f.write_str("view"),
        }
    }
}
