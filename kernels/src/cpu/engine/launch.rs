//! A launch: a program on a space with the strides of its views, and the memory that a thread needs to run it.

use std::sync::Arc;

use super::TILE;
use super::memory::{LINE, Spot, aligned_bytes};
use crate::cpu::lanes::PARTIAL;
use crate::tile::{Op, Program, Schedule, Value};

/// A program on a space, with the strides of its views: what does not change from run to run.
#[derive(Debug)]
pub(crate) struct Launch {
    pub program: Arc<Program>,
    pub schedule: Arc<Schedule>,
    pub(super) space: Vec<usize>,
    pub(super) inputs: Vec<Vec<usize>>, // strides of each, for [`Index::View`]
    pub(super) outputs: Vec<Vec<usize>>, // the same
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) reduces: bool,
    pub(super) whole: Vec<bool>,
    pub(super) clobbered: Vec<bool>, // whether a value's input may be overwritten before the value is stored
}

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
    pub(super) fn units(&self) -> usize {
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
fn machine_bytes(program: &Program, schedule: &Schedule, cols: usize) -> usize {
    let ops = program.ops.len();
    let kept = schedule.kept.saturating_mul(cols).saturating_mul(size_of::<f32>());
    let of_ops = [size_of::<Spot>(), size_of::<u32>(), size_of::<[f32; PARTIAL]>(), size_of::<i32>()];
    let of_ops = of_ops.map(|bytes| aligned_bytes(ops * bytes));
    let registers = aligned_bytes(schedule.registers * TILE * size_of::<f32>());
    of_ops.into_iter().chain([registers, kept]).fold(0, usize::saturating_add).saturating_add(LINE)
}
