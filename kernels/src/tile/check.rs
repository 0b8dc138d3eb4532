//! Whether a program makes sense: every operation has the values that it needs, of the kind that it needs.

use super::{Element, Index, Op, Program, Value};
use crate::error::DeviceError;

impl Program {
    /// The inputs that a program may name.
    const MOST_INPUTS: usize = 1 << 16;

    /// Whether every operation has the values that it needs.
    pub fn check(&self) -> Result<(), DeviceError> {
        for (op, operation) in self.ops.iter().enumerate() {
            if Self::uses(operation).any(|value| value >= op) {
                return Err(self.refuse(op, "earlier values"));
            }
        }
        let whole = self.kinds();
        for (op, operation) in self.ops.iter().enumerate() {
            self.check_kinds(op, operation, &whole)?;
        }
        self.check_stores(&whole)
    }

    fn refuse(&self, op: usize, needed: &'static str) -> DeviceError {
        DeviceError::Value { program: self.name.clone(), op, needed }
    }

    fn check_kinds(&self, op: usize, operation: &Op, whole: &[bool]) -> Result<(), DeviceError> {
        let float = |value: Value| !whole[value];
        let alike = |a: Value, b: Value| whole[a] == whole[b];
        if Self::reads(operation).is_some_and(|(input, _)| input >= Self::MOST_INPUTS) {
            return Err(self.refuse(op, "one of at most 65536 inputs"));
        }
        let (fits, needed) = match *operation {
            Op::Load { index: Index::Block(shift), .. } => (shift < 32, "a block of at most 2^31 lanes"),
            Op::Table { at, entries, .. } if whole[at] => {
                (entries.is_power_of_two(), "a table of a power of two entries")
            }
            Op::Table { at, .. } | Op::Gather { at, .. } => (whole[at], "an earlier whole number"),
            Op::Unary(_, a) | Op::ToWhole(a) | Op::RowMax(a) => (float(a), "an earlier f32 value"),
            Op::Round(element, a) => (
                float(a) && matches!(element, Element::F16 | Element::Bf16),
                "an earlier f32 value, and f16 or bf16",
            ),
            Op::ToFloat(a) => (whole[a], "an earlier whole number"),
            Op::Binary(_, a, b) | Op::Compare(_, a, b) => (alike(a, b), "two earlier values of one kind"),
            Op::RandomMask { key: [a, b], index, threshold, .. } => {
                let fits = [a, b, index].into_iter().all(|value| whole[value]);
                (fits && threshold <= 1 << 32, "whole numbers, and a threshold of at most 2^32")
            }
            Op::Select(c, a, b) => (whole[c] && alike(a, b), "a whole number and two values of one kind"),
            Op::Load { index: Index::Lane | Index::First | Index::View, .. }
            | Op::Nibble { .. }
            | Op::Float(_)
            | Op::Whole(_)
            | Op::Coordinate(_)
            | Op::RowSum(_) => (true, ""),
        };
        if fits { Ok(()) } else { Err(self.refuse(op, needed)) }
    }

    fn check_stores(&self, whole: &[bool]) -> Result<(), DeviceError> {
        for store in &self.stores {
            let kind = whole.get(store.value).copied();
            if kind != Some(store.element.is_whole()) {
                return Err(self.refuse(store.value, "to be a value of the type that it is stored as"));
            }
            if store.per_row && store.index != Index::View {
                return Err(
                    self.refuse(store.value, "to be stored by view, as everything that is stored once a row")
                );
            }
            if !matches!(store.index, Index::Lane | Index::View) {
                return Err(self.refuse(store.value, "to be stored by lane or by view"));
            }
        }
        let mut outputs: Vec<usize> = self.stores.iter().map(|store| store.output).collect();
        outputs.sort_unstable();
        if outputs.is_empty() || !outputs.iter().copied().eq(0..outputs.len()) {
            return Err(self.refuse(self.ops.len(), "to store something, and one value an output"));
        }
        Ok(())
    }
}
