//! What went wrong in a lane: noted on the card by the first step that fails, and told when the host next waits.
//!
//! A kernel cannot stop its plan. A lane that reads a place outside its table, or divides by zero, goes on with 0 and
//! leaves a note: the number of its step, its operation, its lane. What a failed run wrote is of no use, as after a run
//! that failed on the CPU. A note costs nothing where no lane fails: kernels write it, the host reads its 24 bytes
//! after a run, when it waits anyway.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::super::driver::check;
use super::super::error::CudaError;
use super::super::memory::Allocation;
use super::super::order::Stream;
use super::super::probe::Gpu;
use super::score::{MASK, SCORE, SLOPE};
use crate::error::DeviceError;
use crate::plan::{Attention, Plan, Step};
use crate::tile::{Op, Program};

/// Ids of a step: attention has three programs.
const PROGRAMS: usize = 3;

/// Bytes of the note, as `struct Fault` of plan.cuh has them.
const NOTE: usize = 24;

/// Where lanes leave their notes, and which steps they can be of.
#[derive(Debug, Default)]
pub(in crate::cuda) struct Faults {
    note: OnceLock<Allocation>,
    is_open: AtomicBool, // whether something ran since the note was read
    plans: Arc<Mutex<Plans>>,
}

/// The plans that are prepared, by the id of their first step.
#[derive(Debug, Default)]
struct Plans {
    by_first_id: BTreeMap<usize, Arc<Plan>>,
    next: usize,
}

/// The ids of one plan's steps, as long as it is prepared.
pub(super) struct StepIds {
    /// Of its first step.
    pub first: usize,
    plans: Arc<Mutex<Plans>>,
}

fn locked(plans: &Mutex<Plans>) -> MutexGuard<'_, Plans> {
    plans.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a step's faults name it by, given the id of its plan's first step; those of its programs follow it.
pub(super) fn step_id(first: usize, step: usize) -> usize {
    first + step * PROGRAMS
}

impl Drop for StepIds {
    fn drop(&mut self) {
        locked(&self.plans).by_first_id.remove(&self.first);
    }
}

impl Gpu {
    /// Ids for a plan's steps; 0 is no step's.
    pub(super) fn step_ids(&self, plan: &Arc<Plan>) -> StepIds {
        let shared = &self.inner.faults.plans;
        let mut plans = locked(shared);
        let first = plans.next + 1;
        plans.next = first + plan.steps.len() * PROGRAMS;
        plans.by_first_id.insert(first, Arc::clone(plan));
        StepIds { first, plans: Arc::clone(shared) }
    }

    /// Where lanes leave their notes.
    pub(super) fn fault_address(&self) -> Result<u64, CudaError> {
        let faults = &self.inner.faults;
        if let Some(note) = faults.note.get() {
            return Ok(note.address());
        }
        let note = self.hold("fault", NOTE)?;
        self.stream().zero(note.address(), NOTE)?;
        Ok(faults.note.get_or_init(|| note).address())
    }

    /// That a run was queued whose lanes may leave a note.
    pub(super) fn may_have_failed(&self) {
        self.inner.faults.is_open.store(true, Relaxed);
    }

    /// What a lane of the runs so far did wrong, if one did. Waits for the note.
    pub(in crate::cuda) fn check_faults(&self) -> Result<(), DeviceError> {
        let faults = &self.inner.faults;
        if !faults.is_open.swap(false, Relaxed) {
            return Ok(());
        }
        let Some(note) = faults.note.get() else { return Ok(()) };
        let mut bytes = [0; NOTE];
        note.read(0, &mut bytes)?;
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if word(4) == 0 {
            return Ok(());
        }
        self.stream().zero(note.address(), NOTE)?;
        let (step_id, op, got) = (word(4) as usize, word(8) as usize, word(12).cast_signed());
        let lane = u64::from(word(16)) | u64::from(word(20)) << 32;
        let plans = locked(&faults.plans);
        let found = plans.by_first_id.range(..=step_id).next_back();
        let failed = found.and_then(|(first, plan)| {
            let step = plan.steps.get((step_id - first) / PROGRAMS)?;
            error_of(step, (step_id - first) % PROGRAMS, op, lane as usize, got)
        });
        let gone = || DeviceError::Call {
            name: format!("{step_id}"),
            reason: format!("operation {op} failed in lane {lane} at {got}, of a plan that is gone"),
        };
        Err(failed.unwrap_or_else(gone))
    }
}

impl Stream {
    /// Queues a fill with zero bytes of a range that lies inside an allocation.
    pub(super) fn zero(&self, at: u64, bytes: usize) -> Result<(), CudaError> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: the caller's.
        check("cuMemsetD8Async", unsafe { cudarc::driver::sys::cuMemsetD8Async(at, 0, bytes, self.handle()) })
    }
}

/// The error of an operation of a step.
fn error_of(step: &Step, which: usize, op: usize, lane: usize, got: i32) -> Option<DeviceError> {
    match step {
        Step::Pass { program, inputs, .. } => {
            of_program(program, op, lane, got, |input| inputs.get(input).map(|view| view.bytes))
        }
        Step::Attention { attention, .. } => of_attention(attention, None, which, op, lane, got),
        Step::AttentionGrad(grad) => {
            of_attention(&grad.attention, grad.slope.as_deref(), which, op, lane, got)
        }
        Step::Scatter { table, .. } => {
            Some(DeviceError::RowIndex { program: "scatter".into(), op, lane, got, rows: *table })
        }
        Step::Product(_) | Step::Call { .. } | Step::Start(_) | Step::Wait { .. } => None,
    }
}

fn of_attention(
    attention: &Attention,
    slope: Option<&Program>,
    which: usize,
    op: usize,
    lane: usize,
    got: i32,
) -> Option<DeviceError> {
    let (program, own) = match which {
        SCORE => (attention.score.as_deref()?, 1),
        MASK => (attention.mask.as_deref()?, 1),
        SLOPE => (slope?, 2),
        _ => return None,
    };
    let bytes = |input: usize| attention.extras.get(input.checked_sub(own)?).map(|view| view.bytes);
    of_program(program, op, lane, got, bytes)
}

fn of_program(
    program: &Program,
    op: usize,
    lane: usize,
    got: i32,
    bytes: impl Fn(usize) -> Option<usize>,
) -> Option<DeviceError> {
    let name = program.name.clone();
    Some(match *program.ops.get(op)? {
        Op::Gather { input, element, .. } => {
            DeviceError::RowIndex { program: name, op, lane, got, rows: bytes(input)? / element.bytes() }
        }
        _ => DeviceError::DivisionByZero { program: name, op, lane },
    })
}
