//! The operations of a program on one tile, each a loop over the tile's lanes.

#![allow(unsafe_code)] // a tile's memory, read as the kind of its value

use super::machine::Machine;
use super::memory::Spot;
use crate::cpu::lanes::{self, Operand};
use crate::error::DeviceError;
use crate::tile::{Binary, Op, Scheduled, Slot, Value};

/// Memory for a tile of one value: 32 bits a lane, read as the value's kind.
pub(super) struct TileBuffer {
    pub(super) at: *mut f32,
    pub(super) lanes: usize,
}

impl TileBuffer {
    pub(super) fn float(&mut self) -> &mut [f32] {
        // SAFETY: the schedule gives a value room for its lanes that nothing else alive has.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.lanes) }
    }

    pub(super) fn whole(&mut self) -> &mut [i32] {
        // SAFETY: as above; f32 and i32 have one size and alignment, and any bits are a value of both.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.lanes) }
    }
}

impl Machine<'_> {
    /// One operation on the tile.
    pub(super) unsafe fn work(&mut self, work: Scheduled, op: &Op) -> Result<(), DeviceError> {
        match *op {
            Op::Float(_) | Op::Whole(_) => return Ok(()), // in `row` since the beginning
            Op::RowSum(a) | Op::RowMax(a) => {
                self.take_in(work.value, op, a);
                return Ok(());
            }
            _ => {}
        }
        if work.place == Slot::Row {
            return self.row_value(work.value, op);
        }
        if let Op::Load { input, element, index } = *op
            && !self.frame.clobbered[work.value]
            && let Some(direct) = self.direct(input, element, index)
        {
            self.values[work.value] = Spot::Tile(direct);
            return Ok(());
        }
        let mut buffer = TileBuffer { at: self.tile_memory(work.place), lanes: self.lanes };
        self.compute(work.value, op, &mut buffer)?;
        self.values[work.value] = match work.place {
            Slot::Kept(kept) => Spot::Kept(kept),
            _ => Spot::Tile(buffer.at),
        };
        Ok(())
    }

    /// An operation that makes one value a lane.
    fn compute(&self, value: Value, op: &Op, to: &mut TileBuffer) -> Result<(), DeviceError> {
        let unit = self.unit;
        match *op {
            Op::Load { input, element, index } => self.load(input, element, index, to),
            Op::Nibble { input } => self.nibbles(input, to.whole()),
            Op::Table { input, at, entries } => self.table(input, at, entries, to.float()),
            Op::Gather { input, element, at } => return self.gather(value, input, element, at, to),
            Op::Coordinate(dim) => self.coordinates(dim, to.whole()),
            Op::Unary(unary, a) => lanes::unary(unit, unary, self.float(a), to.float()),
            Op::Binary(Binary::Div, a, b) if self.frame.whole[a] => {
                self.no_zero(value, b)?;
                lanes::binary_whole(unit, Binary::Div, self.integer(a), self.integer(b), to.whole());
            }
            Op::Binary(binary, a, b) if self.frame.whole[a] => {
                lanes::binary_whole(unit, binary, self.integer(a), self.integer(b), to.whole());
            }
            Op::Binary(binary, a, b) => lanes::binary(unit, binary, self.float(a), self.float(b), to.float()),
            Op::Compare(compare, a, b) if self.frame.whole[a] => {
                lanes::compare_whole(unit, compare, self.integer(a), self.integer(b), to.whole());
            }
            Op::Compare(compare, a, b) => {
                lanes::compare(unit, compare, self.float(a), self.float(b), to.whole());
            }
            Op::Select(c, a, b) if self.frame.whole[a] => {
                lanes::select_whole(unit, self.integer(c), self.integer(a), self.integer(b), to.whole());
            }
            Op::Select(c, a, b) => {
                lanes::select(unit, self.integer(c), self.float(a), self.float(b), to.float());
            }
            Op::Round(element, a) => lanes::round(unit, element, self.float(a), to.float()),
            Op::ToFloat(a) => lanes::to_float(unit, self.integer(a), to.float()),
            Op::ToWhole(a) => lanes::to_whole(unit, self.float(a), to.whole()),
            Op::RandomMask { key: [a, b], index, stream, threshold } => {
                let key = [self.integer(a), self.integer(b)];
                lanes::random_mask(unit, key, self.integer(index), stream, threshold, to.whole());
            }
            Op::Float(_) | Op::Whole(_) | Op::RowSum(_) | Op::RowMax(_) => {}
        }
        Ok(())
    }

    /// An operation on values of the row: the same, on one lane.
    fn row_value(&mut self, value: Value, op: &Op) -> Result<(), DeviceError> {
        let mut one = 0.0_f32;
        self.compute(value, op, &mut TileBuffer { at: &raw mut one, lanes: 1 })?;
        self.row[value] = one.to_bits();
        Ok(())
    }

    /// Adds a tile to the sums.
    fn take_in(&mut self, value: Value, op: &Op, a: Value) {
        if self.frame.whole[a] {
            let sum = match self.integer(a) {
                Operand::Lanes(a) => a.iter().fold(0_i32, |sum, x| sum.wrapping_add(*x)),
                Operand::Splat(a) => a.wrapping_mul(self.lanes as i32),
            };
            self.whole_sums[value] = self.whole_sums[value].wrapping_add(sum);
            return;
        }
        let mut parts = self.parts[value];
        match op {
            Op::RowSum(_) => lanes::sum(self.unit, self.float(a), self.lanes, &mut parts),
            _ => lanes::max(self.unit, self.float(a), self.lanes, &mut parts),
        }
        self.parts[value] = parts;
    }

    fn no_zero(&self, value: Value, divisor: Value) -> Result<(), DeviceError> {
        let zero = match self.integer(divisor) {
            Operand::Lanes(divisors) => divisors.iter().position(|divisor| *divisor == 0),
            Operand::Splat(divisor) => (divisor == 0).then_some(0),
        };
        match zero {
            None => Ok(()),
            Some(lane) => {
                let (program, lane) = (self.frame.program.name.clone(), self.first + lane);
                Err(DeviceError::DivisionByZero { program, op: value, lane })
            }
        }
    }

    fn coordinates(&self, dim: usize, to: &mut [i32]) {
        let space = &self.frame.space;
        let origin = self.pass.origin.get(dim).copied().unwrap_or(0);
        for segment in self.segments(self.lanes) {
            let to = &mut to[segment.at..][..segment.len];
            if dim == space.len() - 1 {
                lanes::count(self.unit, (origin + segment.col) as i32, to);
            } else {
                let inner: usize = space[dim + 1..space.len() - 1].iter().product();
                to.fill((origin + segment.row / inner % space[dim]) as i32);
            }
        }
    }
}
