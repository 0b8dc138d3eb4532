//! Tile programs on the CPU: threads over rows or lanes, a tile at a time, each operation a loop over the tile.
//!
//! A program that reduces runs row by row, since a row's sum has to be known before what uses it; any other one runs
//! over all lanes of the space as if they were one row, so that short rows cost nothing. A tile's registers stay in the
//! first-level cache: the memory traffic is that of the loads and stores alone. Sums do not depend on the number of
//! threads or on the vector unit.

#![allow(clippy::mut_mut)] // a slice of scratch that shrinks from its front
#![allow(unsafe_code)] // threads write disjoint lanes of one memory

use std::sync::{Arc, Mutex, PoisonError};

use half::{bf16, f16};
use rayon::prelude::*;

use super::lanes::{self, Operand, PARTIAL};
use super::{Cpu, Vector};
use crate::buffer::cast_mut;
use crate::error::DeviceError;
use crate::tile::{Binary, Element, Index, Op, Program, Schedule, Scheduled, Slot, Store, Value};

/// Bytes of a cache line: what memory is aligned to.
pub(super) const LINE: usize = 64;

/// Lanes of a tile: 2 KiB a value, so that a dozen values stay in the first-level cache.
pub(crate) const TILE: usize = 512;

/// Where an input or output begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// The first byte, aligned to an element.
    pub base: *mut u8,
    /// Bytes from there on.
    pub bytes: usize,
    /// Elements before the first lane's, for [`Index::View`].
    pub offset: usize,
}

// SAFETY: whoever makes a launch promises what `Cpu::pass` asks for.
unsafe impl Send for Binding {}
// SAFETY: as above.
unsafe impl Sync for Binding {}

/// A program on a space, with the strides of its views: what does not change from run to run.
#[derive(Debug)]
pub(crate) struct Launch {
    pub program: Arc<Program>,
    pub schedule: Arc<Schedule>,
    space: Vec<usize>,
    inputs: Vec<Vec<usize>>,  // strides of each, for [`Index::View`]
    outputs: Vec<Vec<usize>>, // the same
    rows: usize,
    cols: usize,
    reduces: bool,
    whole: Vec<bool>,
    clobbered: Vec<bool>, // whether a value's input may be overwritten before the value is stored
}

/// A launch with everything that it runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass<'a> {
    pub launch: &'a Launch,
    /// What is added to a lane's index along each dimension when the program asks for it; zeros if empty.
    pub origin: &'a [usize],
    pub inputs: &'a [Binding],
    pub outputs: &'a [Binding],
}

/// Runs a program on the calling thread alone, in `memory` of [`Launch::machine_bytes`]: [`Cpu::pass`] for a part of
/// some larger work.
///
/// # Safety
/// As for [`Cpu::pass`].
pub(crate) unsafe fn pass_here(unit: Vector, pass: Pass, memory: &mut [u8]) -> Result<(), DeviceError> {
    let total = pass.launch.units();
    // SAFETY: the caller's promise.
    unsafe { Machine::new(pass, unit, memory).run(0, total) }
}

impl Cpu {
    /// Runs a program that passed its check, over a space of at least one dimension.
    ///
    /// # Safety
    /// Every element that the program touches lies in its binding's bytes; no two lanes store to one element; and what
    /// is stored is not loaded, but in place: by the lane that stores it, as the same type, and only so.
    pub(crate) unsafe fn pass(&self, pass: Pass) -> Result<(), DeviceError> {
        let launch = pass.launch;
        let total = launch.units();
        if total == 0 {
            return Ok(());
        }
        let fault = Mutex::new(None);
        let unit = if launch.reduces { 1 } else { TILE };
        let least = if launch.reduces { (PIECE_LANES / launch.cols).max(1) } else { PIECE_LANES };
        self.pieces(total, unit, least, |first, count| {
            let mut scratch = self.scratch.of_this_thread(self);
            // SAFETY: the caller's promise; pieces are disjoint.
            let done = unsafe { Machine::new(pass, self.vector(), scratch.bytes()).run(first, count) };
            if let Err(error) = done {
                fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        });
        match fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Cuts `total` units into pieces of a multiple of `unit`, at least `least` long, and runs them on all threads.
    fn pieces(&self, total: usize, unit: usize, least: usize, body: impl Fn(usize, usize) + Sync) {
        let share = total.div_ceil(self.threads * PIECES_PER_THREAD).max(least);
        let length = share.div_ceil(unit) * unit;
        let pieces = total.div_ceil(length);
        match &self.pool {
            Some(pool) if pieces > 1 => pool.install(|| {
                (0..pieces).into_par_iter().for_each(|i| body(i * length, length.min(total - i * length)));
            }),
            _ => body(0, total),
        }
    }
}

/// Pieces for each thread: more than one, so that a thread which is held up does not hold up the pass.
const PIECES_PER_THREAD: usize = 4;

/// Lanes that are worth a thread.
const PIECE_LANES: usize = 8 * 1024;

impl Launch {
    /// A program that passed its check over a space, given the strides of its views, and which inputs' memory meets
    /// that of an output.
    pub fn new(
        program: Arc<Program>,
        schedule: Arc<Schedule>,
        space: Vec<usize>,
        [inputs, outputs]: [Vec<Vec<usize>>; 2],
        is_written: impl Fn(usize) -> bool,
    ) -> Self {
        let is_clobbered = |value: Value| {
            let read = Program::reads(&program.ops[value]);
            let stored = program.stores.iter().any(|store| store.value == value);
            stored && read.is_some_and(|(input, _)| is_written(input))
        };
        let clobbered = (0..program.ops.len()).map(is_clobbered).collect();
        let (reduces, whole) = (program.needs_rows(), program.kinds());
        let (rows, cols) = (0, 0);
        let mut launch =
            Self { program, schedule, space, inputs, outputs, rows, cols, reduces, whole, clobbered };
        launch.coalesce();
        launch.cols = *launch.space.last().unwrap_or(&1);
        launch.rows = launch.space.iter().product::<usize>() / launch.cols.max(1);
        launch
    }

    /// Rows if a row has to be seen to its end, else lanes.
    fn units(&self) -> usize {
        if self.reduces { self.rows } else { self.rows * self.cols }
    }

    /// Makes one dimension of two neighbours where every view runs through both in one stride. The last one is left
    /// alone if rows are reduced; all are, if the program asks for coordinates.
    fn coalesce(&mut self) {
        if self.space.contains(&0) || self.program.ops.iter().any(|op| matches!(op, Op::Coordinate(_))) {
            return;
        }
        let mut dim = self.space.len().saturating_sub(if self.reduces { 2 } else { 1 });
        while dim > 0 {
            let (outer, size) = (self.space[dim - 1], self.space[dim]);
            let through = |strides: &Vec<usize>| strides[dim].checked_mul(size) == Some(strides[dim - 1]);
            let one = |strides: &Vec<usize>| outer == 1 || size == 1 || through(strides);
            if self.inputs.iter().chain(&self.outputs).all(one) {
                self.merge(dim);
            }
            dim -= 1;
        }
    }

    /// Joins dimension `dim` to the one before it.
    fn merge(&mut self, dim: usize) {
        let size = self.space.remove(dim);
        for strides in self.inputs.iter_mut().chain(&mut self.outputs) {
            let inner = strides.remove(dim);
            if size > 1 {
                strides[dim - 1] = inner;
            }
        }
        self.space[dim - 1] *= size;
    }

    /// Bytes that a thread needs to run it.
    pub fn machine_bytes(&self) -> usize {
        machine_bytes(&self.program, &self.schedule, self.cols)
    }
}

/// Bytes that a thread needs to run a program over rows of so many lanes. What is too much to count is `usize::MAX`.
pub(super) fn machine_bytes(program: &Program, schedule: &Schedule, cols: usize) -> usize {
    let ops = program.ops.len();
    let kept = schedule.kept.saturating_mul(cols).saturating_mul(size_of::<f32>());
    let of_ops = [size_of::<Spot>(), size_of::<u32>(), size_of::<[f32; PARTIAL]>(), size_of::<i32>()];
    let of_ops = of_ops.map(|bytes| aligned_bytes(ops * bytes));
    let registers = aligned_bytes(schedule.registers * TILE * size_of::<f32>());
    of_ops.into_iter().chain([registers, kept]).fold(0, usize::saturating_add).saturating_add(LINE)
}

/// A stretch of a tile that lies in one row.
#[derive(Clone, Copy)]
struct Segment {
    row: usize,
    col: usize,
    at: usize, // first lane of the tile
    len: usize,
}

/// Where the lanes of a value are.
#[derive(Clone, Copy)]
enum Spot {
    /// It is one number, in `row`.
    Row,
    /// A tile, from this address on.
    Tile(*const f32),
    /// In the row that is kept.
    Kept(usize),
}

/// An input or output of a pass: where it begins, and its strides.
#[derive(Clone, Copy)]
struct Access<'a> {
    at: Binding,
    strides: &'a [usize],
}

/// One thread's registers, and where it is.
struct Machine<'a> {
    pass: Pass<'a>,
    frame: &'a Launch,
    unit: Vector,
    registers: &'a mut [f32],
    kept: &'a mut [f32],
    values: &'a mut [Spot], // where the tile of each value is
    row: &'a mut [u32],     // the bits of constants and of values of the row
    parts: &'a mut [[f32; PARTIAL]],
    whole_sums: &'a mut [i32],
    first: usize, // lane, in the whole space
    lanes: usize, // of the tile
}

impl<'a> Machine<'a> {
    fn new(pass: Pass<'a>, unit: Vector, memory: &'a mut [u8]) -> Self {
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
    unsafe fn run(&mut self, first: usize, count: usize) -> Result<(), DeviceError> {
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
    fn segments(&self, lanes: usize) -> impl Iterator<Item = Segment> + use<> {
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
    fn tile_memory(&mut self, place: Slot) -> *mut f32 {
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
    fn float(&self, value: Value) -> Operand<'_, f32> {
        match self.lanes_of(value) {
            None => Operand::Splat(f32::from_bits(self.row[value])),
            // SAFETY: the value's register, row or input holds at least the tile's lanes.
            Some(at) => Operand::Lanes(unsafe { std::slice::from_raw_parts(at, self.lanes) }),
        }
    }

    /// A value as whole numbers.
    fn integer(&self, value: Value) -> Operand<'_, i32> {
        match self.lanes_of(value) {
            None => Operand::Splat(self.row[value] as i32),
            // SAFETY: as in `float`; a value's kind is the one that it was written as.
            Some(at) => Operand::Lanes(unsafe { std::slice::from_raw_parts(at.cast(), self.lanes) }),
        }
    }

    /// One operation on the tile.
    unsafe fn work(&mut self, work: Scheduled, op: &Op) -> Result<(), DeviceError> {
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

    fn input(&self, number: usize) -> Access<'a> {
        Access { at: self.pass.inputs[number], strides: &self.frame.inputs[number] }
    }

    fn output(&self, number: usize) -> Access<'a> {
        Access { at: self.pass.outputs[number], strides: &self.frame.outputs[number] }
    }

    /// Where a row begins in an input or output, in elements.
    fn row_start(&self, access: Access<'_>, row: usize) -> usize {
        let dims = self.frame.space.len();
        let mut rest = row;
        let mut start = access.at.offset;
        for dim in (0..dims - 1).rev() {
            start += rest % self.frame.space[dim] * access.strides[dim];
            rest /= self.frame.space[dim];
        }
        start
    }

    /// Where the tile's lanes lie in a row, if they lie side by side: nothing has to be copied then.
    fn direct(&self, input: usize, element: Element, index: Index) -> Option<*const f32> {
        if !matches!(element, Element::F32 | Element::I32) {
            return None;
        }
        let access = self.input(input);
        let start = match index {
            Index::Lane => self.first,
            Index::View if *access.strides.last()? == 1 => {
                let (row, col) = (self.first / self.frame.cols, self.first % self.frame.cols);
                if col + self.lanes > self.frame.cols {
                    return None;
                }
                self.row_start(access, row) + col
            }
            _ => return None,
        };
        Some(access.some::<f32>(start, self.lanes).as_ptr())
    }

    fn load(&self, input: usize, element: Element, index: Index, to: &mut TileBuffer) {
        let access = self.input(input);
        match element {
            Element::F32 => self.fetch(access, index, to.float(), copy::<f32>, |x| x),
            Element::F16 => self.fetch(access, index, to.float(), lanes::widen_f16, f16::to_f32),
            Element::Bf16 => {
                let widen = |from: &[bf16], to: &mut [f32]| lanes::widen_bf16(self.unit, from, to);
                self.fetch(access, index, to.float(), widen, bf16::to_f32);
            }
            Element::I32 => self.fetch(access, index, to.whole(), copy::<i32>, |x| x),
            Element::U8 => {
                let widen = |from: &[u8], to: &mut [i32]| {
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = i32::from(*from));
                };
                self.fetch(access, index, to.whole(), widen, i32::from);
            }
        }
    }

    /// Reads a tile: `many` where elements lie side by side, else one by one.
    fn fetch<M: Copy, T: Copy>(
        &self,
        access: Access<'_>,
        index: Index,
        to: &mut [T],
        many: impl Fn(&[M], &mut [T]),
        single: impl Fn(M) -> T,
    ) {
        let one = |place: usize| single(access.some::<M>(place, 1)[0]);
        match index {
            Index::Lane => many(access.some(self.first, to.len()), to),
            Index::First => to.fill(one(0)),
            Index::Block(shift) => {
                to.iter_mut().enumerate().for_each(|(lane, to)| *to = one((self.first + lane) >> shift));
            }
            Index::View => {
                let stride = *access.strides.last().unwrap_or(&0);
                for segment in self.segments(to.len()) {
                    let start = self.row_start(access, segment.row) + segment.col * stride;
                    let to = &mut to[segment.at..][..segment.len];
                    match stride {
                        0 => to.fill(one(start)),
                        1 => many(access.some(start, segment.len), to),
                        _ => to.iter_mut().enumerate().for_each(|(i, to)| *to = one(start + i * stride)),
                    }
                }
            }
        }
    }

    fn nibbles(&self, input: usize, to: &mut [i32]) {
        let from = self.input(input).elements::<u8>();
        for (lane, to) in to.iter_mut().enumerate() {
            let e = self.first + lane;
            *to = i32::from(if e % 2 == 0 { from[e / 2] >> 4 } else { from[e / 2] & 15 });
        }
    }

    fn table(&self, input: usize, at: Value, entries: usize, to: &mut [f32]) {
        let table = &self.input(input).elements::<f32>()[..entries];
        match self.integer(at) {
            Operand::Lanes(at) => {
                to.iter_mut().zip(at).for_each(|(to, at)| *to = table[*at as usize & (entries - 1)]);
            }
            Operand::Splat(at) => to.fill(table[at as usize & (entries - 1)]),
        }
    }

    fn gather(
        &self,
        value: Value,
        input: usize,
        element: Element,
        at: Value,
        to: &mut TileBuffer,
    ) -> Result<(), DeviceError> {
        let access = self.input(input);
        let rows = access.at.bytes / element.bytes();
        let spread;
        let places: &[i32] = match self.integer(at) {
            Operand::Lanes(places) => places,
            Operand::Splat(place) => {
                spread = [place; TILE];
                &spread[..to.lanes]
            }
        };
        let outside =
            places.iter().position(|place| usize::try_from(*place).map_or(true, |place| place >= rows));
        if let Some(lane) = outside {
            let (program, op, lane, got) =
                (self.frame.program.name.clone(), value, self.first + lane, places[lane]);
            return Err(DeviceError::RowIndex { program, op, lane, got, rows });
        }
        match element {
            Element::F32 => pick(access.elements(), places, to.float(), |x: f32| x),
            Element::F16 => pick(access.elements(), places, to.float(), f16::to_f32),
            Element::Bf16 => pick(access.elements(), places, to.float(), bf16::to_f32),
            Element::I32 => pick(access.elements(), places, to.whole(), |x: i32| x),
            Element::U8 => pick(access.elements::<u8>(), places, to.whole(), i32::from),
        }
        Ok(())
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

    /// Stores the values of the tile's lanes.
    unsafe fn store(&self) {
        for store in self.frame.program.stores.iter().filter(|store| !store.per_row) {
            // SAFETY: the caller's.
            unsafe { self.store_lanes(store, self.lanes) };
        }
        if self.first % self.frame.cols == 0 {
            let first_lane = |store: &&Store| store.per_row && !self.frame.schedule.per_row[store.value];
            for store in self.frame.program.stores.iter().filter(first_lane) {
                // SAFETY: the caller's.
                unsafe { self.store_lanes(store, 1) };
            }
        }
    }

    /// Stores the first `lanes` lanes of a tile.
    unsafe fn store_lanes(&self, store: &Store, lanes: usize) {
        let (access, index) = (self.output(store.output), store.index);
        let float = || self.float(store.value).first(lanes);
        let whole = || self.integer(store.value).first(lanes);
        let low_byte = |from: &[i32], to: &mut [u8]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from as u8);
        };
        // SAFETY: the caller's.
        unsafe {
            match store.element {
                Element::F32 => self.put(access, index, float(), lanes, copy),
                Element::F16 => self.put(access, index, float(), lanes, lanes::narrow_f16),
                Element::Bf16 => {
                    let narrow = |from: &[f32], to: &mut [bf16]| lanes::narrow_bf16(self.unit, from, to);
                    self.put(access, index, float(), lanes, narrow);
                }
                Element::I32 => self.put(access, index, whole(), lanes, copy),
                Element::U8 => self.put(access, index, whole(), lanes, low_byte),
            }
        }
    }

    /// Writes a tile: at once where elements lie side by side, else one by one.
    unsafe fn put<T: Copy, M: Copy + Default>(
        &self,
        access: Access<'_>,
        index: Index,
        value: Operand<'_, T>,
        lanes: usize,
        narrow: impl Fn(&[T], &mut [M]),
    ) {
        let spread;
        let from = match &value {
            Operand::Lanes(lanes) => lanes,
            Operand::Splat(one) if lanes == 1 => std::slice::from_ref(one),
            Operand::Splat(one) => {
                spread = [*one; TILE];
                &spread[..lanes]
            }
        };
        if index == Index::Lane {
            // SAFETY: the caller's.
            return narrow(from, unsafe { access.stretch(self.first, lanes) });
        }
        let stride = *access.strides.last().unwrap_or(&0);
        for segment in self.segments(lanes) {
            let start = self.row_start(access, segment.row) + segment.col * stride;
            let from = &from[segment.at..][..segment.len];
            if stride == 1 {
                // SAFETY: the caller's.
                narrow(from, unsafe { access.stretch(start, segment.len) });
            } else {
                for (i, from) in from.iter().enumerate() {
                    // SAFETY: the caller's.
                    narrow(std::slice::from_ref(from), unsafe { access.stretch(start + i * stride, 1) });
                }
            }
        }
    }

    /// Stores the values of a row.
    unsafe fn store_row(&mut self, row: usize) {
        (self.first, self.lanes) = (row * self.frame.cols, 1);
        for store in self.frame.program.stores.iter().filter(|store| self.frame.schedule.per_row[store.value])
        {
            // SAFETY: the caller's.
            unsafe { self.store_lanes(store, 1) };
        }
    }
}

/// The first `count` values of a thread's memory, each `value`; what is left begins with a cache line.
pub(super) fn filled<'a, T: Copy>(rest: &mut &'a mut [u8], count: usize, value: T) -> &'a mut [T] {
    const { assert!(align_of::<T>() <= LINE) };
    let part = take(rest, count * size_of::<T>());
    assert!(part.as_ptr().addr().is_multiple_of(align_of::<T>()), "scratch begins with a cache line");
    let at = part.as_mut_ptr().cast::<T>();
    // SAFETY: as many bytes as the values have, aligned; each is written before there is a reference to it.
    unsafe {
        (0..count).for_each(|i| at.add(i).write(value));
        std::slice::from_raw_parts_mut(at, count)
    }
}

/// The first `count` f32 of a thread's memory, with whatever is in them; what is left begins with a cache line.
pub(super) fn floats<'a>(rest: &mut &'a mut [u8], count: usize) -> &'a mut [f32] {
    cast_mut(take(rest, count * size_of::<f32>()))
}

/// The first bytes of a thread's memory, in whole cache lines.
fn take<'a>(rest: &mut &'a mut [u8], bytes: usize) -> &'a mut [u8] {
    let all = std::mem::take(rest);
    let (part, after) = all.split_at_mut(aligned_bytes(bytes).min(all.len()));
    *rest = after;
    &mut part[..bytes]
}

/// Bytes, rounded up to whole cache lines.
pub(super) fn aligned_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(LINE)
}

/// Memory for a tile of one value: 32 bits a lane, read as the value's kind.
struct TileBuffer {
    at: *mut f32,
    lanes: usize,
}

impl TileBuffer {
    fn float(&mut self) -> &mut [f32] {
        // SAFETY: the schedule gives a value room for its lanes that nothing else alive has.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.lanes) }
    }

    fn whole(&mut self) -> &mut [i32] {
        // SAFETY: as above; f32 and i32 have one size and alignment, and any bits are a value of both.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.lanes) }
    }
}

fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    to.copy_from_slice(from);
}

fn pick<M: Copy, T>(from: &[M], places: &[i32], to: &mut [T], f: impl Fn(M) -> T) {
    to.iter_mut().zip(places).for_each(|(to, place)| *to = f(from[*place as usize]));
}

impl<'a> Access<'a> {
    /// All of it, to be read: nothing of it is written by this pass.
    fn elements<T>(self) -> &'a [T] {
        self.some(0, self.at.bytes / size_of::<T>())
    }

    /// Some of it, to be read. In place, other lanes may be written meanwhile: these are not.
    fn some<T>(self, start: usize, len: usize) -> &'a [T] {
        assert!((start + len) * size_of::<T>() <= self.at.bytes, "a load inside the input");
        // SAFETY: the launch's promise: that many bytes, aligned, and not written by another lane.
        unsafe { std::slice::from_raw_parts(self.at.base.cast::<T>().add(start), len) }
    }

    /// Some of it, to be written.
    unsafe fn stretch<T>(self, start: usize, len: usize) -> &'a mut [T] {
        assert!((start + len) * size_of::<T>() <= self.at.bytes, "a store inside the output");
        // SAFETY: the caller's: no other lane has these elements.
        unsafe { std::slice::from_raw_parts_mut(self.at.base.cast::<T>().add(start), len) }
    }
}
