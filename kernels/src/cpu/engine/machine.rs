//! One thread's machine: its registers, where in the space it is, and the order in which it runs a program.

#![allow(unsafe_code)] // a value's lanes are read where they are

use super::memory::{Spot, filled, floats};
use super::{Launch, Pass, TILE};
use crate::cpu::Vector;
use crate::cpu::lanes::{self, Operand, PARTIAL};
use crate::error::DeviceError;
use crate::tile::{Op, Slot, Value};

/// A stretch of a tile that lies in one row.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub(super) row: usize,
    pub(super) col: usize,
    pub(super) at: usize, // first lane of the tile
    pub(super) len: usize,
}

/// One thread's registers, and where it is.
pub(super) struct Machine<'a> {
    pub(super) pass: Pass<'a>,
    pub(super) frame: &'a Launch,
    pub(super) unit: Vector,
    pub(super) registers: &'a mut [f32],
    pub(super) kept: &'a mut [f32],
    pub(super) values: &'a mut [Spot], // where the tile of each value is
    pub(super) row: &'a mut [u32],     // the bits of constants and of values of the row
    pub(super) parts: &'a mut [[f32; PARTIAL]],
    pub(super) whole_sums: &'a mut [i32],
    pub(super) first: usize, // lane, in the whole space
    pub(super) lanes: usize, // of the tile
}

impl<'a> Machine<'a> {
    pub(super) fn new(pass: Pass<'a>, unit: Vector, memory: &'a mut [u8]) -> Self {
        let frame = pass.launch;
        let (ops, schedule) = (&frame.program.ops, &frame.schedule);
        let mut rest = memory;
        let row = filled(&mut rest, ops.len(), 0_u32);
        for (row, op) in row.iter_mut().zip(ops) {
            *row = match *op {
                Op::Float(value) => value.to_bits(),
                Op::Whole(value) => value as u32,
                _ => 0,
            };
        }
        Self {
            pass,
            frame,
            unit,
            row,
            values: filled(&mut rest, ops.len(), Spot::Row),
            parts: filled(&mut rest, ops.len(), [0.0; PARTIAL]),
            whole_sums: filled(&mut rest, ops.len(), 0),
            registers: floats(&mut rest, schedule.registers * TILE),
            kept: floats(&mut rest, schedule.kept * frame.cols),
            first: 0,
            lanes: 0,
        }
    }

    /// Runs `count` rows from row `first` on, or lanes if nothing is reduced.
    pub(super) unsafe fn run(&mut self, first: usize, count: usize) -> Result<(), DeviceError> {
        if !self.frame.reduces {
            for tile in (0..count).step_by(TILE) {
                // SAFETY: the caller's.
                unsafe { self.tile(0, first + tile, TILE.min(count - tile))? };
                unsafe { self.store() };
            }
            return Ok(());
        }
        let (cols, phases) = (self.frame.cols, self.frame.schedule.phases.len());
        for row in first..first + count {
            for phase in 0..phases {
                self.begin(phase);
                for col in (0..cols).step_by(TILE) {
                    // SAFETY: the caller's.
                    unsafe { self.tile(phase, row * cols + col, TILE.min(cols - col))? };
                    if phase == phases - 1 {
                        unsafe { self.store() };
                    }
                }
                self.end(phase);
            }
            // SAFETY: the caller's.
            unsafe { self.store_row(row) };
        }
        Ok(())
    }

    /// Empties the sums of a phase.
    fn begin(&mut self, phase: usize) {
        for work in &self.frame.schedule.phases[phase] {
            match self.frame.program.ops[work.value] {
                Op::RowSum(_) => {
                    self.parts[work.value] = [0.0; PARTIAL];
                    self.whole_sums[work.value] = 0;
                }
                Op::RowMax(_) => self.parts[work.value] = [f32::NEG_INFINITY; PARTIAL],
                _ => {}
            }
        }
    }

    /// Joins the sums of a phase.
    fn end(&mut self, phase: usize) {
        for work in &self.frame.schedule.phases[phase] {
            let parts = self.parts[work.value];
            self.row[work.value] = match self.frame.program.ops[work.value] {
                Op::RowSum(_) if self.frame.whole[work.value] => self.whole_sums[work.value] as u32,
                Op::RowSum(_) => lanes::joined(parts, |a, b| a + b).to_bits(),
                Op::RowMax(_) => lanes::joined(parts, lanes::larger_of).to_bits(),
                _ => continue,
            };
        }
    }

    /// One phase of one tile.
    unsafe fn tile(&mut self, phase: usize, first: usize, lanes: usize) -> Result<(), DeviceError> {
        (self.first, self.lanes) = (first, lanes);
        let frame = self.frame;
        for work in &frame.schedule.phases[phase] {
            // SAFETY: the caller's.
            unsafe { self.work(*work, &frame.program.ops[work.value])? };
        }
        Ok(())
    }

    /// The stretches of the tile's first `lanes`, row by row.
    pub(super) fn segments(&self, lanes: usize) -> impl Iterator<Item = Segment> + use<> {
        let (first, cols) = (self.first, self.frame.cols);
        let mut at = 0;
        std::iter::from_fn(move || {
            let (row, col) = ((first + at) / cols, (first + at) % cols);
            let len = (cols - col).min(lanes - at);
            let segment = Segment { row, col, at, len };
            at += len;
            (len > 0).then_some(segment)
        })
    }

    /// The memory that a value of this tile is written to.
    pub(super) fn tile_memory(&mut self, place: Slot) -> *mut f32 {
        match place {
            Slot::Register(register) => self.registers[register * TILE..][..TILE].as_mut_ptr(),
            Slot::Kept(kept) => {
                let col = self.first % self.frame.cols;
                self.kept[kept * self.frame.cols + col..][..self.lanes].as_mut_ptr()
            }
            Slot::Row => std::ptr::null_mut(),
        }
    }

    /// Where a value's lanes are; nothing if it is one number.
    fn lanes_of(&self, value: Value) -> Option<*const f32> {
        match self.values[value] {
            Spot::Row => None,
            Spot::Tile(at) => Some(at),
            Spot::Kept(kept) => {
                let col = self.first % self.frame.cols;
                Some(self.kept[kept * self.frame.cols + col..][..self.lanes].as_ptr())
            }
        }
    }

    /// A value as f32.
    pub(super) fn float(&self, value: Value) -> Operand<'_, f32> {
        match self.lanes_of(value) {
            None => Operand::Splat(f32::from_bits(self.row[value])),
            // SAFETY: the value's register, row or input holds at least the tile's lanes.
            Some(at) => Operand::Lanes(unsafe { std::slice::from_raw_parts(at, self.lanes) }),
        }
    }

    /// A value as whole numbers.
    pub(super) fn integer(&self, value: Value) -> Operand<'_, i32> {
        match self.lanes_of(value) {
            None => Operand::Splat(self.row[value] as i32),
            // SAFETY: as in `float`; a value's kind is the one that it was written as.
            Some(at) => Operand::Lanes(unsafe { std::slice::from_raw_parts(at.cast(), self.lanes) }),
        }
    }
}
