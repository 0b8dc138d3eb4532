//! Tile programs on the CPU: threads over rows or lanes, a tile at a time, each operation a loop over the tile.
//!
//! A program that reduces runs row by row, since a row's sum has to be known before what uses it; any other one runs
//! over all lanes of the space as if they were one row, so that short rows cost nothing. A tile's registers stay in the
//! first-level cache: the memory traffic is that of the loads and stores alone. Sums do not depend on the number of
//! threads or on the vector unit.

#![allow(unsafe_code)] // threads write disjoint lanes of one memory

use std::sync::Mutex;

use half::{bf16, f16};
use rayon::prelude::*;

use super::lanes::{self, From, PARTIAL};
use super::{Cpu, Vector};
use crate::error::DeviceError;
use crate::tile::{Binary, Element, Index, Op, Place, Program, Schedule, Store, Value, Work};

/// Lanes of a tile: 2 KiB a value, so that a dozen values stay in the first-level cache.
pub(crate) const TILE: usize = 512;

/// An input or output: memory, and where a lane's element lies in it.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The first byte, aligned to an element.
    pub base: *mut u8,
    /// Bytes from there on.
    pub bytes: usize,
    /// Elements before the first lane's, for [`Index::View`].
    pub offset: usize,
    /// Elements between neighbours along each dimension of the space, for [`Index::View`].
    pub strides: Vec<usize>,
}

// SAFETY: whoever makes a launch promises what `Cpu::pass` asks for.
unsafe impl Send for Site {}
// SAFETY: as above.
unsafe impl Sync for Site {}

/// A program with everything that it runs on.
#[derive(Clone, Debug)]
pub(crate) struct Pass<'a> {
    pub program: &'a Program,
    pub schedule: &'a Schedule,
    pub space: Vec<usize>,
    /// What is added to a lane's index along each dimension when the program asks for it; zeros if empty.
    pub origin: Vec<usize>,
    pub inputs: Vec<Site>,
    pub outputs: Vec<Site>,
}

/// Runs a program on the calling thread alone: [`Cpu::pass`] for a part of some larger work.
///
/// # Safety
/// As for [`Cpu::pass`].
pub(crate) unsafe fn pass_here(unit: Vector, mut pass: Pass) -> Result<(), DeviceError> {
    if pass.space.iter().product::<usize>() == 0 {
        return Ok(());
    }
    pass.coalesce();
    let frame = Frame::of(&pass);
    let total = if frame.reduces { frame.rows } else { frame.rows * frame.cols };
    // SAFETY: the caller's promise.
    unsafe { Machine::new(&pass, &frame, unit).run(0, total) }
}

impl Cpu {
    /// Runs a program that passed its check, over a space of at least one dimension.
    ///
    /// # Safety
    /// Every element that the program touches lies in its site's bytes; no two lanes store to one element; and what is
    /// stored is not loaded, but in place: by the lane that stores it, as the same type, and only so.
    pub(crate) unsafe fn pass(&self, mut pass: Pass) -> Result<(), DeviceError> {
        if pass.space.iter().product::<usize>() == 0 {
            return Ok(());
        }
        pass.coalesce();
        let frame = Frame::of(&pass);
        let fault = Mutex::new(None);
        let unit = if frame.reduces { 1 } else { TILE };
        let total = if frame.reduces { frame.rows } else { frame.rows * frame.cols };
        let least = if frame.reduces { (PIECE_LANES / frame.cols).max(1) } else { PIECE_LANES };
        self.pieces(total, unit, least, |first, count| {
            // SAFETY: the caller's promise; pieces are disjoint.
            let done = unsafe { Machine::new(&pass, &frame, self.vector()).run(first, count) };
            if let Err(error) = done {
                fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
            }
        });
        match fault.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
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

impl Pass<'_> {
    /// Makes one dimension of two neighbours where every view runs through both in one stride. The last one is left
    /// alone if rows are reduced; all are, if the program asks for coordinates.
    fn coalesce(&mut self) {
        if self.program.ops.iter().any(|op| matches!(op, Op::Coordinate(_))) {
            return;
        }
        let reduces = self.program.needs_rows();
        let mut dim = self.space.len().saturating_sub(if reduces { 2 } else { 1 });
        while dim > 0 {
            let (outer, size) = (self.space[dim - 1], self.space[dim]);
            let sites = || self.inputs.iter().chain(&self.outputs).filter(|site| !site.strides.is_empty());
            let through = |site: &Site| site.strides[dim].checked_mul(size) == Some(site.strides[dim - 1]);
            let one = |site: &Site| outer == 1 || size == 1 || through(site);
            if sites().all(one) {
                self.merge(dim);
            }
            dim -= 1;
        }
    }

    /// Joins dimension `dim` to the one before it.
    fn merge(&mut self, dim: usize) {
        let size = self.space.remove(dim);
        for site in self.inputs.iter_mut().chain(&mut self.outputs).filter(|site| !site.strides.is_empty()) {
            let inner = site.strides.remove(dim);
            if size > 1 {
                site.strides[dim - 1] = inner;
            }
        }
        self.space[dim - 1] *= size;
    }
}

/// What every thread has to know about a pass.
struct Frame {
    rows: usize,
    cols: usize,
    reduces: bool,
    whole: Vec<bool>,
    fleeting: Vec<bool>, // whether a value's input may be overwritten before the value is stored
}

impl Frame {
    fn of(pass: &Pass) -> Self {
        let cols = *pass.space.last().unwrap_or(&1);
        let rows = pass.space.iter().product::<usize>() / cols.max(1);
        let fleeting = |value: Value| {
            let read = Program::reads(&pass.program.ops[value]);
            let stored = pass.program.stores.iter().any(|store| store.value == value);
            let written = |(input, _)| pass.outputs.iter().any(|to| to.meets(&pass.inputs[input]));
            stored && read.is_some_and(written)
        };
        Self {
            rows,
            cols,
            reduces: pass.program.needs_rows(),
            whole: pass.program.kinds(),
            fleeting: (0..pass.program.ops.len()).map(fleeting).collect(),
        }
    }
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

/// One thread's registers, and where it is.
struct Machine<'a> {
    pass: &'a Pass<'a>,
    frame: &'a Frame,
    unit: Vector,
    registers: Vec<f32>,
    kept: Vec<f32>,
    values: Vec<Spot>, // where the tile of each value is
    row: Vec<u32>,     // the bits of constants and of values of the row
    parts: Vec<[f32; PARTIAL]>,
    whole_sums: Vec<i32>,
    first: usize, // lane, in the whole space
    lanes: usize, // of the tile
}

impl<'a> Machine<'a> {
    fn new(pass: &'a Pass<'a>, frame: &'a Frame, unit: Vector) -> Self {
        let ops = &pass.program.ops;
        let constant = |op: &Op| match *op {
            Op::Float(value) => value.to_bits(),
            Op::Whole(value) => value as u32,
            _ => 0,
        };
        Self {
            pass,
            frame,
            unit,
            registers: vec![0.0; pass.schedule.registers * TILE],
            kept: vec![0.0; pass.schedule.kept * frame.cols],
            values: vec![Spot::Row; ops.len()],
            row: ops.iter().map(constant).collect(),
            parts: vec![[0.0; PARTIAL]; ops.len()],
            whole_sums: vec![0; ops.len()],
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
        let (cols, phases) = (self.frame.cols, self.pass.schedule.phases.len());
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
        for work in &self.pass.schedule.phases[phase] {
            match self.pass.program.ops[work.value] {
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
        for work in &self.pass.schedule.phases[phase] {
            let parts = self.parts[work.value];
            self.row[work.value] = match self.pass.program.ops[work.value] {
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
        let pass = self.pass;
        for work in &pass.schedule.phases[phase] {
            // SAFETY: the caller's.
            unsafe { self.work(*work, &pass.program.ops[work.value])? };
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
    fn room(&mut self, place: Place) -> *mut f32 {
        match place {
            Place::Register(register) => self.registers[register * TILE..][..TILE].as_mut_ptr(),
            Place::Kept(kept) => {
                let col = self.first % self.frame.cols;
                self.kept[kept * self.frame.cols + col..][..self.lanes].as_mut_ptr()
            }
            Place::Row => std::ptr::null_mut(),
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
    fn float(&self, value: Value) -> From<'_, f32> {
        match self.lanes_of(value) {
            None => From::One(f32::from_bits(self.row[value])),
            // SAFETY: the value's register, row or input holds at least the tile's lanes.
            Some(at) => From::Lanes(unsafe { std::slice::from_raw_parts(at, self.lanes) }),
        }
    }

    /// A value as whole numbers.
    fn integer(&self, value: Value) -> From<'_, i32> {
        match self.lanes_of(value) {
            None => From::One(self.row[value] as i32),
            // SAFETY: as in `float`; a value's kind is the one that it was written as.
            Some(at) => From::Lanes(unsafe { std::slice::from_raw_parts(at.cast(), self.lanes) }),
        }
    }

    /// One operation on the tile.
    unsafe fn work(&mut self, work: Work, op: &Op) -> Result<(), DeviceError> {
        match *op {
            Op::Float(_) | Op::Whole(_) => return Ok(()), // in `row` since the beginning
            Op::RowSum(a) | Op::RowMax(a) => {
                self.take_in(work.value, op, a);
                return Ok(());
            }
            _ => {}
        }
        if work.place == Place::Row {
            return self.row_value(work.value, op);
        }
        if let Op::Load { input, element, index } = *op
            && !self.frame.fleeting[work.value]
            && let Some(direct) = self.direct(input, element, index)
        {
            self.values[work.value] = Spot::Tile(direct);
            return Ok(());
        }
        let mut room = Room { at: self.room(work.place), lanes: self.lanes };
        self.compute(work.value, op, &mut room)?;
        self.values[work.value] = match work.place {
            Place::Kept(kept) => Spot::Kept(kept),
            _ => Spot::Tile(room.at),
        };
        Ok(())
    }

    /// An operation that makes one value a lane.
    fn compute(&self, value: Value, op: &Op, to: &mut Room) -> Result<(), DeviceError> {
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
        self.compute(value, op, &mut Room { at: &raw mut one, lanes: 1 })?;
        self.row[value] = one.to_bits();
        Ok(())
    }

    /// Adds a tile to the sums.
    fn take_in(&mut self, value: Value, op: &Op, a: Value) {
        if self.frame.whole[a] {
            let sum = match self.integer(a) {
                From::Lanes(a) => a.iter().fold(0_i32, |sum, x| sum.wrapping_add(*x)),
                From::One(a) => a.wrapping_mul(self.lanes as i32),
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

    /// Where a row begins in a site, in elements.
    fn row_start(&self, site: &Site, row: usize) -> usize {
        let dims = self.pass.space.len();
        let mut rest = row;
        let mut start = site.offset;
        for dim in (0..dims - 1).rev() {
            start += rest % self.pass.space[dim] * site.strides[dim];
            rest /= self.pass.space[dim];
        }
        start
    }

    /// Where the tile's lanes lie in a row, if they lie side by side: nothing has to be copied then.
    fn direct(&self, input: usize, element: Element, index: Index) -> Option<*const f32> {
        if !matches!(element, Element::F32 | Element::I32) {
            return None;
        }
        let site = &self.pass.inputs[input];
        let start = match index {
            Index::Lane => self.first,
            Index::View if *site.strides.last()? == 1 => {
                let (row, col) = (self.first / self.frame.cols, self.first % self.frame.cols);
                if col + self.lanes > self.frame.cols {
                    return None;
                }
                self.row_start(site, row) + col
            }
            _ => return None,
        };
        Some(site.some::<f32>(start, self.lanes).as_ptr())
    }

    fn load(&self, input: usize, element: Element, index: Index, to: &mut Room) {
        let site = &self.pass.inputs[input];
        match element {
            Element::F32 => self.fetch(site, index, to.float(), copy::<f32>, |x| x),
            Element::F16 => self.fetch(site, index, to.float(), lanes::widen_f16, f16::to_f32),
            Element::Bf16 => self.fetch(site, index, to.float(), lanes::widen_bf16, bf16::to_f32),
            Element::I32 => self.fetch(site, index, to.whole(), copy::<i32>, |x| x),
            Element::U8 => {
                let widen = |from: &[u8], to: &mut [i32]| {
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = i32::from(*from));
                };
                self.fetch(site, index, to.whole(), widen, i32::from);
            }
        }
    }

    /// Reads a tile: `many` where elements lie side by side, else one by one.
    fn fetch<M: Copy, T: Copy>(
        &self,
        site: &Site,
        index: Index,
        to: &mut [T],
        many: impl Fn(&[M], &mut [T]),
        single: impl Fn(M) -> T,
    ) {
        let one = |place: usize| single(site.some::<M>(place, 1)[0]);
        match index {
            Index::Lane => many(site.some(self.first, to.len()), to),
            Index::First => to.fill(one(0)),
            Index::Block(shift) => {
                to.iter_mut().enumerate().for_each(|(lane, to)| *to = one((self.first + lane) >> shift));
            }
            Index::View => {
                let stride = *site.strides.last().unwrap_or(&0);
                for segment in self.segments(to.len()) {
                    let start = self.row_start(site, segment.row) + segment.col * stride;
                    let to = &mut to[segment.at..][..segment.len];
                    match stride {
                        0 => to.fill(one(start)),
                        1 => many(site.some(start, segment.len), to),
                        _ => to.iter_mut().enumerate().for_each(|(i, to)| *to = one(start + i * stride)),
                    }
                }
            }
        }
    }

    fn nibbles(&self, input: usize, to: &mut [i32]) {
        let from = self.pass.inputs[input].elements::<u8>();
        for (lane, to) in to.iter_mut().enumerate() {
            let e = self.first + lane;
            *to = i32::from(if e % 2 == 0 { from[e / 2] >> 4 } else { from[e / 2] & 15 });
        }
    }

    fn table(&self, input: usize, at: Value, entries: usize, to: &mut [f32]) {
        let table = &self.pass.inputs[input].elements::<f32>()[..entries];
        match self.integer(at) {
            From::Lanes(at) => {
                to.iter_mut().zip(at).for_each(|(to, at)| *to = table[*at as usize & (entries - 1)]);
            }
            From::One(at) => to.fill(table[at as usize & (entries - 1)]),
        }
    }

    fn gather(
        &self,
        value: Value,
        input: usize,
        element: Element,
        at: Value,
        to: &mut Room,
    ) -> Result<(), DeviceError> {
        let site = &self.pass.inputs[input];
        let rows = site.bytes / element.bytes();
        let places: &[i32] = match self.integer(at) {
            From::Lanes(places) => places,
            From::One(place) => &vec![place; to.lanes],
        };
        let outside =
            places.iter().position(|place| usize::try_from(*place).map_or(true, |place| place >= rows));
        if let Some(lane) = outside {
            let (program, op, lane, got) =
                (self.pass.program.name.clone(), value, self.first + lane, places[lane]);
            return Err(DeviceError::Place { program, op, lane, got, rows });
        }
        match element {
            Element::F32 => pick(site.elements(), places, to.float(), |x: f32| x),
            Element::F16 => pick(site.elements(), places, to.float(), f16::to_f32),
            Element::Bf16 => pick(site.elements(), places, to.float(), bf16::to_f32),
            Element::I32 => pick(site.elements(), places, to.whole(), |x: i32| x),
            Element::U8 => pick(site.elements::<u8>(), places, to.whole(), i32::from),
        }
        Ok(())
    }

    fn no_zero(&self, value: Value, divisor: Value) -> Result<(), DeviceError> {
        let zero = match self.integer(divisor) {
            From::Lanes(divisors) => divisors.iter().position(|divisor| *divisor == 0),
            From::One(divisor) => (divisor == 0).then_some(0),
        };
        match zero {
            None => Ok(()),
            Some(lane) => {
                let (program, lane) = (self.pass.program.name.clone(), self.first + lane);
                Err(DeviceError::DivisionByZero { program, op: value, lane })
            }
        }
    }

    fn coordinates(&self, dim: usize, to: &mut [i32]) {
        let space = &self.pass.space;
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
        for store in self.pass.program.stores.iter().filter(|store| !store.once) {
            // SAFETY: the caller's.
            unsafe { self.store_lanes(store, self.lanes) };
        }
        if self.first % self.frame.cols == 0 {
            let first_lane = |store: &&Store| store.once && !self.pass.schedule.per_row[store.value];
            for store in self.pass.program.stores.iter().filter(first_lane) {
                // SAFETY: the caller's.
                unsafe { self.store_lanes(store, 1) };
            }
        }
    }

    /// Stores the first `lanes` lanes of a tile.
    unsafe fn store_lanes(&self, store: &Store, lanes: usize) {
        let (site, index) = (&self.pass.outputs[store.output], store.index);
        let float = || self.float(store.value).first(lanes);
        let whole = || self.integer(store.value).first(lanes);
        let low_byte = |from: &[i32], to: &mut [u8]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from as u8);
        };
        // SAFETY: the caller's.
        unsafe {
            match store.element {
                Element::F32 => self.put(site, index, float(), lanes, copy),
                Element::F16 => self.put(site, index, float(), lanes, lanes::narrow_f16),
                Element::Bf16 => self.put(site, index, float(), lanes, lanes::narrow_bf16),
                Element::I32 => self.put(site, index, whole(), lanes, copy),
                Element::U8 => self.put(site, index, whole(), lanes, low_byte),
            }
        }
    }

    /// Writes a tile: at once where elements lie side by side, else one by one.
    unsafe fn put<T: Copy, M: Copy + Default>(
        &self,
        site: &Site,
        index: Index,
        value: From<'_, T>,
        lanes: usize,
        narrow: impl Fn(&[T], &mut [M]),
    ) {
        let spread;
        let from = match &value {
            From::Lanes(lanes) => lanes,
            From::One(one) if lanes == 1 => std::slice::from_ref(one),
            From::One(one) => {
                spread = vec![*one; lanes];
                &spread[..]
            }
        };
        if index == Index::Lane {
            // SAFETY: the caller's.
            return narrow(from, unsafe { site.stretch(self.first, lanes) });
        }
        let stride = *site.strides.last().unwrap_or(&0);
        for segment in self.segments(lanes) {
            let start = self.row_start(site, segment.row) + segment.col * stride;
            let from = &from[segment.at..][..segment.len];
            if stride == 1 {
                // SAFETY: the caller's.
                narrow(from, unsafe { site.stretch(start, segment.len) });
            } else {
                for (i, from) in from.iter().enumerate() {
                    // SAFETY: the caller's.
                    narrow(std::slice::from_ref(from), unsafe { site.stretch(start + i * stride, 1) });
                }
            }
        }
    }

    /// Stores the values of a row.
    unsafe fn store_row(&mut self, row: usize) {
        (self.first, self.lanes) = (row * self.frame.cols, 1);
        for store in self.pass.program.stores.iter().filter(|store| self.pass.schedule.per_row[store.value]) {
            // SAFETY: the caller's.
            unsafe { self.store_lanes(store, 1) };
        }
    }
}

/// Memory for a tile of one value: 32 bits a lane, read as the value's kind.
struct Room {
    at: *mut f32,
    lanes: usize,
}

impl Room {
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

impl Site {
    /// Whether two have bytes in common.
    fn meets(&self, other: &Site) -> bool {
        let [mine, theirs] = [self, other].map(|site| site.base.addr()..site.base.addr() + site.bytes);
        mine.start < theirs.end && theirs.start < mine.end
    }

    /// All of it, to be read: nothing of it is written by this pass.
    fn elements<T>(&self) -> &[T] {
        self.some(0, self.bytes / size_of::<T>())
    }

    /// Some of it, to be read. In place, other lanes may be written meanwhile: these are not.
    fn some<T>(&self, start: usize, len: usize) -> &[T] {
        assert!((start + len) * size_of::<T>() <= self.bytes, "a load inside the input");
        // SAFETY: the launch's promise: that many bytes, aligned, and not written by another lane.
        unsafe { std::slice::from_raw_parts(self.base.cast::<T>().add(start), len) }
    }

    /// Some of it, to be written.
    #[allow(clippy::mut_from_ref)] // the memory is not the site's own
    unsafe fn stretch<T>(&self, start: usize, len: usize) -> &mut [T] {
        assert!((start + len) * size_of::<T>() <= self.bytes, "a store inside the output");
        // SAFETY: the caller's: no other lane has these elements.
        unsafe { std::slice::from_raw_parts_mut(self.base.cast::<T>().add(start), len) }
    }
}
