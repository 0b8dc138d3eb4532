//! Tile programs: a pass over memory, as data.
//!
//! A program computes an output lane by lane. Its operations form a list; each one makes a value that later
//! ones may use. A device runs the whole list over a tile of lanes that fits its fastest memory before it
//! goes on to the next tile, so a chain of operations costs one pass over memory, however long it is. That
//! is what *fused* means, and a list is the smallest thing that can be fused, printed and counted.
//!
//! Values are f32 or whole numbers (codes that index a table). Every operation rounds once, to f32; a store
//! rounds once more to its type. Nothing is contracted, so equal programs give equal bits on every device.

use std::fmt;

use half::{bf16, f16};

use crate::buffer::Buffer;
use crate::error::DeviceError;

/// The number of an operation whose value is used.
pub type Value = usize;

/// A number type in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// One byte, read as a whole number.
    U8,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Single precision.
    F32,
}

/// Which element a lane reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// Its own.
    Lane,
    /// One for each 2^n lanes: element lane >> n.
    Block(u32),
    /// The first, for all lanes.
    First,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// An element of an input.
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
    /// The f32 of an input at the place that a whole number names.
    Table {
        /// The input's number.
        input: usize,
        /// The whole number.
        at: Value,
        /// Entries of the table, a power of two.
        entries: usize,
    },
    /// Sum of two f32.
    Add(Value, Value),
    /// Product of two f32.
    Mul(Value, Value),
}

/// A list of operations with a name, and the value that is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// For reports and errors.
    pub name: String,
    /// In order; operation n makes value n.
    pub ops: Vec<Op>,
    /// The f32 value that goes to the output.
    pub result: Value,
    /// The type that it is rounded to.
    pub element: Element,
}

/// Lanes of a tile: a few KiB a value, so that a dozen values stay in the first-level cache.
pub(crate) const TILE: usize = 256;

/// A tile of one value.
#[derive(Clone)]
pub(crate) enum Lanes {
    /// f32 lanes.
    F32(Box<[f32; TILE]>),
    /// Whole-number lanes.
    Code(Box<[u8; TILE]>),
}

impl Element {
    /// Size in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }
}

impl Index {
    /// Elements that `len` lanes touch.
    fn touched(self, len: usize) -> usize {
        match self {
            Self::Lane => len,
            Self::Block(shift) => len.div_ceil(1 << shift),
            Self::First => 1.min(len),
        }
    }

    pub(crate) fn of(self, lane: usize) -> usize {
        match self {
            Self::Lane => lane,
            Self::Block(shift) => lane >> shift,
            Self::First => 0,
        }
    }
}

impl Program {
    /// Bytes of each input that `len` lanes touch, and of the output.
    pub fn traffic(&self, len: usize) -> (Vec<usize>, usize) {
        let mut read = Vec::new();
        for op in &self.ops {
            let (input, bytes) = match *op {
                Op::Load { input, element, index } => (input, index.touched(len) * element.bytes()),
                Op::Nibble { input } => (input, len.div_ceil(2)),
                Op::Table { input, entries, .. } => (input, entries * 4),
                Op::Add(..) | Op::Mul(..) => continue,
            };
            read.resize(read.len().max(input + 1), 0);
            read[input] = read[input].max(bytes);
        }
        (read, len * self.element.bytes())
    }

    /// Whether every operation has the values that it needs, and every buffer the bytes.
    pub fn check(&self, len: usize, inputs: &[&Buffer], output: &Buffer) -> Result<(), DeviceError> {
        self.check_values()?;
        let (read, written) = self.traffic(len);
        if read.len() > inputs.len() {
            let (needed, given) = (read.len(), inputs.len());
            return Err(DeviceError::Inputs { program: self.name.clone(), needed, given });
        }
        let touched = inputs.iter().copied().zip(read).chain([(output, written)]);
        for (buffer, needed) in touched {
            let (tag, given) = (buffer.tag(), buffer.bytes());
            if needed > given {
                return Err(DeviceError::Short { program: self.name.clone(), tag, needed, given });
            }
        }
        Ok(())
    }

    fn check_values(&self) -> Result<(), DeviceError> {
        for (op, operation) in self.ops.iter().enumerate() {
            let refuse = |needed| Err(DeviceError::Value { program: self.name.clone(), op, needed });
            let is_f32 = |value: Value| value < op && !self.makes_code(value);
            match *operation {
                Op::Table { at, .. } if at >= op || !self.makes_code(at) => return refuse("an earlier code"),
                Op::Table { entries, .. } if !entries.is_power_of_two() => {
                    return refuse("a table of a power of two entries");
                }
                Op::Add(a, b) | Op::Mul(a, b) if !is_f32(a) || !is_f32(b) => {
                    return refuse("two earlier f32 values");
                }
                _ => {}
            }
        }
        let ends =
            self.result < self.ops.len() && !self.makes_code(self.result) && self.element != Element::U8;
        if ends {
            return Ok(());
        }
        let needed = "to end in an f32 value and a float type";
        Err(DeviceError::Value { program: self.name.clone(), op: self.result, needed })
    }

    fn makes_code(&self, value: Value) -> bool {
        matches!(self.ops[value], Op::Nibble { .. } | Op::Load { element: Element::U8, .. })
    }

    /// Runs one tile and returns its result: `first` is the number of its first lane, `lanes` how many there
    /// are, `values` the room of [`Self::values`].
    pub(crate) fn run_tile<'a>(
        &self,
        first: usize,
        lanes: usize,
        inputs: &[&Buffer],
        values: &'a mut [Lanes],
    ) -> &'a [f32] {
        for (n, op) in self.ops.iter().enumerate() {
            let (before, now) = values.split_at_mut(n);
            match (*op, &mut now[0]) {
                (Op::Load { input, element: Element::U8, index }, Lanes::Code(to)) => {
                    let from = inputs[input].view::<u8>();
                    (0..lanes).for_each(|lane| to[lane] = from[index.of(first + lane)]);
                }
                (Op::Load { input, element, index }, Lanes::F32(to)) => {
                    load(inputs[input], element, index, first, &mut to[..lanes]);
                }
                (Op::Nibble { input }, Lanes::Code(to)) => {
                    let from = inputs[input].view::<u8>();
                    for lane in 0..lanes {
                        let e = first + lane;
                        to[lane] = if e % 2 == 0 { from[e / 2] >> 4 } else { from[e / 2] & 15 };
                    }
                }
                (Op::Table { input, at, entries }, Lanes::F32(to)) => {
                    let table = &inputs[input].view::<f32>()[..entries];
                    let codes = code(&before[at]);
                    (0..lanes).for_each(|lane| to[lane] = table[codes[lane] as usize & (entries - 1)]);
                }
                (Op::Add(a, b), Lanes::F32(to)) => {
                    let (a, b) = (float(&before[a]), float(&before[b]));
                    (0..lanes).for_each(|lane| to[lane] = a[lane] + b[lane]);
                }
                (Op::Mul(a, b), Lanes::F32(to)) => {
                    let (a, b) = (float(&before[a]), float(&before[b]));
                    (0..lanes).for_each(|lane| to[lane] = a[lane] * b[lane]);
                }
                _ => unreachable!("values are made for their operations"),
            }
        }
        &float(&values[self.result])[..lanes]
    }

    /// Room for one tile of every value.
    pub(crate) fn values(&self) -> Vec<Lanes> {
        let room = |value| {
            if self.makes_code(value) {
                Lanes::Code(Box::new([0; TILE]))
            } else {
                Lanes::F32(Box::new([0.0; TILE]))
            }
        };
        (0..self.ops.len()).map(room).collect()
    }
}

fn code(lanes: &Lanes) -> &[u8; TILE] {
    match lanes {
        Lanes::Code(codes) => codes,
        Lanes::F32(_) => unreachable!("checked: a table takes codes"),
    }
}

fn float(lanes: &Lanes) -> &[f32; TILE] {
    match lanes {
        Lanes::F32(values) => values,
        Lanes::Code(_) => unreachable!("checked: arithmetic takes f32"),
    }
}

fn load(from: &Buffer, element: Element, index: Index, first: usize, to: &mut [f32]) {
    let each = to.iter_mut().enumerate().map(|(lane, to)| (index.of(first + lane), to));
    match element {
        Element::F16 => {
            let from = from.view::<f16>();
            each.for_each(|(e, to)| *to = from[e].to_f32());
        }
        Element::Bf16 => {
            let from = from.view::<bf16>();
            each.for_each(|(e, to)| *to = from[e].to_f32());
        }
        Element::F32 => {
            let from = from.view::<f32>();
            each.for_each(|(e, to)| *to = from[e]);
        }
        Element::U8 => unreachable!("bytes are loaded as codes"),
    }
}

impl fmt::Display for Program {
    /// One operation a line: `%3 = mul %1 %2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program {}", self.name)?;
        for (n, op) in self.ops.iter().enumerate() {
            match *op {
                Op::Load { input, element, index } => {
                    writeln!(f, "  %{n} = load {element} in{input}[{index}]")
                }
                Op::Nibble { input } => writeln!(f, "  %{n} = nibble in{input}[lane]"),
                Op::Table { input, at, entries } => {
                    writeln!(f, "  %{n} = table in{input}[%{at}] ({entries})")
                }
                Op::Add(a, b) => writeln!(f, "  %{n} = add %{a} %{b}"),
                Op::Mul(a, b) => writeln!(f, "  %{n} = mul %{a} %{b}"),
            }?;
        }
        writeln!(f, "  store {} out[lane] %{}", self.element, self.result)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        })
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lane => f.write_str("lane"),
            Self::Block(shift) => write!(f, "lane / {}", 1_u64 << shift),
            Self::First => f.write_str("0"),
        }
    }
}
