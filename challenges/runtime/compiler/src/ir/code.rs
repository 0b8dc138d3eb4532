//! A tile program while it is written.

use kernels::tile::{self, Element, Op, Value};
use reference::graph::Dtype;

/// Operations of a program being written; the same one twice is one.
#[derive(Clone, Debug, Default)]
pub struct Code {
    pub(crate) ops: Vec<Op>,
}

impl Code {
    /// Adds an operation, if it is not there yet, and gives the number of its value.
    pub fn push(&mut self, op: Op) -> Value {
        self.ops.iter().position(|other| other.is(&op)).unwrap_or_else(|| {
            self.ops.push(op);
            self.ops.len() - 1
        })
    }

    /// A whole number as the nearest float of a type, rounded once.
    ///
    /// The nearest f32 may lie in the middle between two of bf16, and hide on which side the number is. So beyond 24
    /// bits what is cut off leaves a last bit behind: of the number's 256ths, twice, plus the sign of the rest.
    pub fn nearest(&mut self, whole: Value, to: Dtype) -> Value {
        let near = self.push(Op::ToFloat(whole));
        match to {
            Dtype::F16 => self.push(Op::Round(Element::F16, near)), // beyond 17 bits it is infinite
            Dtype::Bf16 => {
                let far = self.with_a_last_bit(whole);
                let [low, high] = [-(1 << 24), 1 << 24].map(|bound| self.push(Op::Whole(bound)));
                let clamped = self.push(Op::Binary(tile::Binary::Max, whole, low));
                let clamped = self.push(Op::Binary(tile::Binary::Min, clamped, high));
                let inside = self.push(Op::Compare(tile::Compare::Equal, clamped, whole));
                let value = self.push(Op::Select(inside, near, far));
                self.push(Op::Round(Element::Bf16, value))
            }
            _ => near,
        }
    }

    /// A whole number as an f32 that is cut off at 25 bits, with its last bit set where something was.
    fn with_a_last_bit(&mut self, whole: Value) -> Value {
        use tile::Binary::{Add, Div, Mul, Sub};
        use tile::Compare::Less;
        let (none, step) = (self.push(Op::Whole(0)), self.push(Op::Whole(256)));
        let quotient = self.push(Op::Binary(Div, whole, step));
        let multiple = self.push(Op::Binary(Mul, quotient, step));
        let rest = self.push(Op::Binary(Sub, whole, multiple));
        let (above, below) =
            (self.push(Op::Compare(Less, none, rest)), self.push(Op::Compare(Less, rest, none)));
        let sign = self.push(Op::Binary(Sub, above, below));
        let twice = self.push(Op::Binary(Add, quotient, quotient));
        let kept = self.push(Op::Binary(Add, twice, sign));
        let (float, half) = (self.push(Op::ToFloat(kept)), self.push(Op::Float(128.0)));
        self.push(Op::Binary(Mul, float, half))
    }

    /// What is written so far.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }
}

/// A type of the graph in memory.
pub fn element(dtype: Dtype) -> Element {
    match dtype {
        Dtype::F32 => Element::F32,
        Dtype::F16 => Element::F16,
        Dtype::Bf16 => Element::Bf16,
        Dtype::U8 => Element::U8,
        Dtype::I32 => Element::I32,
    }
}
