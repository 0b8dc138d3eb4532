//! In what order a program's operations run over a row, and where their values live meanwhile.
//!
//! A row is gone through once for each *phase*: an operation that needs a sum over the row runs in the phase after the
//! one that sums. Within a phase the row goes by in tiles. A value that only its own phase uses lives in a register, a
//! tile long, and gives it away after its last use; one that a later phase uses is kept for the whole row, unless it
//! can be loaded again.

use super::{Op, Program, Store, Value};

/// A program, scheduled.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// What runs in each phase.
    pub phases: Vec<Vec<Scheduled>>,
    /// Registers that a tile needs.
    pub registers: usize,
    /// Values that are kept for the whole row.
    pub kept: usize,
    /// Whether each value is one number for the whole row.
    pub per_row: Vec<bool>,
}

/// One operation at its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scheduled {
    /// The value's number.
    pub value: Value,
    /// Where it goes.
    pub place: Slot,
}

/// Where a value lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// In a register, a tile long.
    Register(usize),
    /// In fast memory, a row long.
    Kept(usize),
    /// One number, for the whole row.
    Row,
}

impl Schedule {
    /// Schedules a program that passed its check, whose inputs are `steady` along rows or not.
    pub fn of(program: &Program, steady: &[bool]) -> Self {
        let per_row = program.per_row(if program.needs_rows() { steady } else { &[] });
        let phase = phases(program);
        let there = |value: Value| phase[value] + usize::from(is_reduction(&program.ops[value]));
        let stored = program.stores.iter().filter(|store| !store.per_row).map(|store| there(store.value));
        let last = phase.iter().copied().chain(stored).max().unwrap_or(0);
        let mut needed_in = needs(program, &phase, &per_row, last);
        let kept = keep(program, &phase, &per_row, &mut needed_in);
        let mut registers = Registers::default();
        let phases = (0..=last).map(|p| {
            let runs: Vec<Value> =
                (0..program.ops.len()).filter(|value| needed_in[*value].contains(&p)).collect();
            assign(program, &runs, &per_row, &kept, &mut registers)
        });
        let phases = phases.collect();
        Self { phases, registers: registers.count, kept: kept.iter().flatten().count(), per_row }
    }
}

/// The phase in which each value is first there: after a reduction, the next one.
pub(crate) fn phases(program: &Program) -> Vec<usize> {
    let mut phase: Vec<usize> = Vec::new();
    for op in &program.ops {
        let after = |value: Value| phase[value] + usize::from(is_reduction(&program.ops[value]));
        phase.push(Program::uses(op).map(after).max().unwrap_or(0));
    }
    phase
}

fn is_reduction(op: &Op) -> bool {
    matches!(op, Op::RowSum(_) | Op::RowMax(_))
}

/// The phases in which each value has to be at hand: its own, its users', and the last one if it is stored.
fn needs(program: &Program, phase: &[usize], per_row: &[bool], last: usize) -> Vec<Vec<usize>> {
    let mut needed: Vec<Vec<usize>> = phase.iter().map(|p| vec![*p]).collect();
    for (user, op) in program.ops.iter().enumerate() {
        for value in Program::uses(op).filter(|value| !per_row[*value]) {
            needed[value].push(phase[user]);
        }
    }
    let of_lanes = |store: &&Store| !per_row[store.value];
    for store in program.stores.iter().filter(of_lanes) {
        needed[store.value].push(last);
    }
    for phases in &mut needed {
        phases.sort_unstable();
        phases.dedup();
    }
    needed
}

/// Gives a row's memory to what later phases need and cannot load again; it then runs once only.
fn keep(
    program: &Program,
    phase: &[usize],
    per_row: &[bool],
    needed_in: &mut [Vec<usize>],
) -> Vec<Option<usize>> {
    let mut count = 0;
    let mut kept = vec![None; program.ops.len()];
    for (value, op) in program.ops.iter().enumerate() {
        let again = matches!(op, Op::Load { .. } | Op::Coordinate(_)) || op.is_constant();
        if needed_in[value].len() > 1 && !again && !per_row[value] {
            kept[value] = Some(count);
            count += 1;
            needed_in[value] = vec![phase[value]];
        }
    }
    kept
}

/// Registers in use and free.
#[derive(Default)]
struct Registers {
    free: Vec<usize>,
    count: usize,
}

impl Registers {
    fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }
}

/// Gives every value of a phase its place. A value's register is free again after its last use in the phase, or at the
/// phase's end if it is stored.
fn assign(
    program: &Program,
    runs: &[Value],
    per_row: &[bool],
    kept: &[Option<usize>],
    registers: &mut Registers,
) -> Vec<Scheduled> {
    let mut last_use = vec![None; program.ops.len()]; // in this phase
    for user in runs {
        Program::uses(&program.ops[*user]).for_each(|value| last_use[value] = Some(*user));
    }
    let mut stored = vec![false; program.ops.len()];
    program.stores.iter().for_each(|store| stored[store.value] = true);
    let mut held: Vec<Option<usize>> = vec![None; program.ops.len()];
    let mut works = Vec::new();
    for value in runs.iter().copied() {
        let place = match kept[value] {
            _ if per_row[value] || program.ops[value].is_constant() => Slot::Row,
            Some(row) => Slot::Kept(row),
            None => {
                let register = registers.take();
                held[value] = Some(register);
                Slot::Register(register)
            }
        };
        works.push(Scheduled { value, place });
        let mut done: Vec<Value> = Program::uses(&program.ops[value]).chain([value]).collect();
        done.retain(|other| !stored[*other] && last_use[*other].is_none_or(|user| user <= value));
        done.sort_unstable();
        registers.free.extend(done.into_iter().filter_map(|other| held[other].take()));
    }
    registers.free.extend(held.into_iter().flatten());
    works
}
