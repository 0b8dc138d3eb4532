//! Plans on a card: passes that go lane by lane. Each is generated and compiled when the plan is prepared.
//!
//! Any other step is refused then, and so is a program that a kernel is not generated for.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::compile::Source;
use super::device::output_defines;
use super::generate;
use super::module::{Arguments, Function, Grid};
use super::probe::Gpu;
use super::texts::PRELUDE;
use crate::buffer::Buffer;
use crate::device::{Counts, Device, Executable, Memories, Watch};
use crate::error::DeviceError;
use crate::plan::{Memory, Plan, Step, View};
use crate::tile::{Index, Program};

/// A plan that is ready on a card.
pub(super) struct CudaPlan<'a> {
    gpu: &'a Gpu,
    plan: Arc<Plan>,
    passes: Vec<FlatPass>, // one for each step
    counts: Counts,
}

/// A pass that goes lane by lane.
struct FlatPass {
    function: Function,
    grid: Grid,
    lanes: u64,
    views: Vec<View>, // inputs, then the output
    traffic: (u64, u64),
}

impl<'a> CudaPlan<'a> {
    /// Checks a plan and compiles its kernels.
    pub fn new(gpu: &'a Gpu, plan: Arc<Plan>) -> Result<Self, DeviceError> {
        plan.check()?;
        let pass = |(number, step): (usize, &Step)| FlatPass::new(gpu, &plan, number, step);
        let passes = plan.steps.iter().enumerate().map(pass).collect::<Result<_, _>>()?;
        Ok(Self { gpu, plan, passes, counts: Counts::default() })
    }
}

impl FlatPass {
    fn new(gpu: &Gpu, plan: &Plan, number: usize, step: &Step) -> Result<Self, DeviceError> {
        let Step::Pass { program, space, inputs, outputs } = step else {
            return Err(plan.refused(number, "to be a pass, the only step that this device runs"));
        };
        if program.needs_rows() || program.stores.iter().any(|store| store.index != Index::Lane) {
            return Err(plan.refused(number, "to store lane by lane on this device"));
        }
        if outputs.len() > 1 {
            return Err(plan.refused(number, "one output on this device"));
        }
        let function = compiled(gpu, program, inputs.len())?;
        let lanes: usize = space.iter().product();
        let blocks = i32::try_from(lanes.div_ceil(generate::THREADS as usize));
        let too_many = |_| plan.refused(number, "less than 2^31 blocks of lanes on this device");
        let blocks = blocks.map_err(too_many)?.unsigned_abs();
        Ok(Self {
            function,
            grid: Grid { blocks, threads: generate::THREADS, ..Grid::default() },
            lanes: lanes as u64,
            views: inputs.iter().chain(outputs).cloned().collect(),
            traffic: step.traffic(),
        })
    }
}

fn compiled(gpu: &Gpu, program: &Program, inputs: usize) -> Result<Function, DeviceError> {
    let text = generate::text(program, inputs)?;
    let defines = output_defines(program.stores[0].element);
    let source = Source { name: "program.cu", text: &text, headers: &[PRELUDE], defines: &defines };
    Ok(gpu.build(&source)?.function(generate::ENTRY)?)
}

impl Executable for CudaPlan<'_> {
    fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    fn scratch_bytes(&self) -> usize {
        0
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn run(
        &mut self,
        memories: &mut Memories<'_>,
        mut watch: Option<&mut Watch<'_>>,
    ) -> Result<(), DeviceError> {
        memories.fit(&self.plan, |buffer| buffer.on_card().map(|_| ()))?;
        memories.arena.on_card_mut()?;
        memories.donated.iter_mut().try_for_each(|buffer| buffer.on_card_mut().map(|_| ()))?;
        for (number, pass) in self.passes.iter().enumerate() {
            let mut arguments = Arguments::new();
            for view in &pass.views {
                arguments = arguments.u64(address(view, memories)?);
            }
            self.gpu.launch(&pass.function, pass.grid, arguments.u64(pass.lanes))?;
            self.counts.step(pass.traffic);
            self.gpu.inner.read.fetch_add(pass.traffic.0, Relaxed);
            self.gpu.inner.written.fetch_add(pass.traffic.1, Relaxed);
            if let Some(watch) = &mut watch {
                self.gpu.sync()?;
                watch(number, self.gpu.clock());
            }
        }
        Ok(())
    }
}

/// Where a view's memory begins on the card.
fn address(view: &View, memories: &Memories<'_>) -> Result<u64, DeviceError> {
    let of = |buffer: &Buffer| buffer.on_card().map(crate::cuda::Allocation::address);
    Ok(match view.memory {
        Memory::Arena(at) => of(memories.arena)? + at as u64,
        Memory::Input(number) => of(memories.inputs[number])?,
        Memory::InOut(number) => of(memories.donated[number])?,
    })
}
