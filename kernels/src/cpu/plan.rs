//! Plans on the CPU.

#![allow(unsafe_code)] // hands memory that the plan's check has seen to the engine and to the product

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::attention::{Gradients, Programs, Rows, Work};
use super::engine::{Pass, Site, TILE};
use super::product::Place;
use super::{Cpu, Vector};
use crate::buffer::{Buffer, cast, cast_mut};
use crate::error::DeviceError;
use crate::plan::{Attention, AttentionGrad, Memory, Plan, Step, View};
use crate::tile::{Element, Program, Schedule};

/// Work that a plan calls by number: it reads some bytes and writes others.
pub type Kernel<'a> = dyn Fn(&Cpu, &[&[u8]], &mut [u8]) -> Result<(), DeviceError> + Sync + 'a;

/// A plan that was checked and scheduled, to be run often.
#[derive(Debug)]
pub struct Prepared {
    plan: Plan,
    ready: Vec<Ready>, // one for each step
}

/// What is made for a step when its plan is prepared.
#[derive(Debug)]
enum Ready {
    Pass(Arc<Schedule>),
    Attention(Box<Programs>),
    Nothing,
}

impl Prepared {
    /// The most bytes of a row's values that a thread keeps for a later phase of a pass: 1 GiB.
    pub const MOST_KEPT_BYTES: usize = 1 << 30;

    /// Checks a plan and schedules its programs; one that several steps share is scheduled once.
    ///
    /// # Errors
    /// What [`Plan::check`] says, or that a pass would keep more of a row than [`Self::MOST_KEPT_BYTES`].
    pub fn new(plan: Plan) -> Result<Self, DeviceError> {
        plan.check()?;
        let mut known: HashMap<(*const Program, Vec<bool>), Arc<Schedule>> = HashMap::new();
        let mut schedule = |program: &Arc<Program>, inputs: &[View]| {
            let steady: Vec<bool> = inputs.iter().map(|view| view.strides.last() == Some(&0)).collect();
            let new = || Arc::new(Schedule::of(program, &steady));
            known.entry((Arc::as_ptr(program), steady.clone())).or_insert_with(new).clone()
        };
        let ready = |step: &Step| match step {
            Step::Pass { program, inputs, .. } => Ready::Pass(schedule(program, inputs)),
            Step::Attention { attention, .. } => Ready::Attention(Box::new(Programs::of(attention))),
            Step::AttentionGrad(grad) => Ready::Attention(Box::new(Programs::of_grad(grad))),
            _ => Ready::Nothing,
        };
        let prepared = Self { ready: plan.steps.iter().map(ready).collect(), plan };
        prepared.check_kept()?;
        Ok(prepared)
    }

    /// Whether no row is too long for what has to be kept of it.
    fn check_kept(&self) -> Result<(), DeviceError> {
        for (number, (step, ready)) in self.plan.steps.iter().zip(&self.ready).enumerate() {
            let (Step::Pass { space, .. }, Ready::Pass(schedule)) = (step, ready) else { continue };
            let floats = space.last().and_then(|columns| columns.checked_mul(schedule.kept));
            if schedule.kept > 0 && floats.is_none_or(|floats| floats > Self::MOST_KEPT_BYTES / 4) {
                return Err(self.plan.refused(number, "rows of which a thread keeps at most 1 GiB"));
            }
        }
        Ok(())
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The most bytes that a pass takes for its registers and for the rows that it keeps, on so many threads.
    pub fn pass_scratch(&self, threads: usize) -> usize {
        let of = |(step, ready): (&Step, &Ready)| match (step, ready) {
            (Step::Pass { program, space, .. }, Ready::Pass(schedule)) => {
                let columns = space.last().filter(|_| program.needs_rows()).copied().unwrap_or(0);
                threads * (schedule.registers * TILE + schedule.kept * columns) * size_of::<f32>()
            }
            _ => 0,
        };
        self.plan.steps.iter().zip(&self.ready).map(of).max().unwrap_or(0)
    }
}

/// The memory of a run.
struct Run<'a> {
    arena: *mut u8,
    given: &'a [&'a Buffer],
    carried: Vec<*mut u8>,
}

// SAFETY: its steps run one after the other, and what a step does on several threads is apart.
unsafe impl Send for Run<'_> {}
// SAFETY: as above.
unsafe impl Sync for Run<'_> {}

impl Cpu {
    /// Runs a plan: writes the arena, reads what is given, updates what is carried, calls the kernels that it names.
    ///
    /// Nothing runs if the arena, a given or a carried buffer is too short; the first step that fails ends the run, and
    /// what is carried may then be updated in part.
    pub fn execute(
        &self,
        prepared: &Prepared,
        arena: &mut Buffer,
        given: &[&Buffer],
        carried: &mut [&mut Buffer],
        kernels: &[&Kernel<'_>],
    ) -> Result<(), DeviceError> {
        self.execute_watched(prepared, arena, given, carried, kernels, &mut |_, _| {})
    }

    /// [`Self::execute`], telling after each step its number and the device's clock.
    pub fn execute_watched(
        &self,
        prepared: &Prepared,
        arena: &mut Buffer,
        given: &[&Buffer],
        carried: &mut [&mut Buffer],
        kernels: &[&Kernel<'_>],
        watch: &mut (dyn FnMut(usize, std::time::Duration) + Send),
    ) -> Result<(), DeviceError> {
        let plan = &prepared.plan;
        fits(plan, arena, given, carried)?;
        let carried = carried.iter_mut().map(|buffer| buffer.view_mut::<u8>().as_mut_ptr()).collect();
        let run = Run { arena: arena.view_mut::<u8>().as_mut_ptr(), given, carried };
        let mut all = || {
            for (number, (step, ready)) in plan.steps.iter().zip(&prepared.ready).enumerate() {
                self.launches.fetch_add(1, Relaxed);
                // SAFETY: the plan was checked against these sizes when it was prepared.
                unsafe { self.step(step, ready, &run, kernels)? };
                watch(number, self.made.elapsed());
            }
            Ok(())
        };
        match &self.pool {
            Some(pool) => pool.install(all), // as one of its threads, which need not be woken for each step
            None => all(),
        }
    }

    unsafe fn step(
        &self,
        step: &Step,
        ready: &Ready,
        run: &Run,
        kernels: &[&Kernel<'_>],
    ) -> Result<(), DeviceError> {
        match (step, ready) {
            (Step::Pass { program, space, inputs, outputs }, Ready::Pass(schedule)) => {
                let sites = |views: &[View]| views.iter().map(|view| run.site(view)).collect();
                let (inputs, outputs) = (sites(inputs), sites(outputs));
                // SAFETY: checked with the plan.
                unsafe {
                    let (space, origin) = (space.clone(), Vec::new());
                    self.pass(Pass { program, schedule, space, origin, inputs, outputs })
                }
            }
            (Step::Product(product), _) => {
                // SAFETY: checked with the plan.
                unsafe {
                    let views = [&product.a, &product.b, &product.to];
                    let [a, b, to] = [0, 1, 2].map(|i| run.elements(views[i], product.elements[i]));
                    self.product(product, Place { a: a.cast_const(), b: b.cast_const(), to });
                }
                Ok(())
            }
            (Step::Scatter { rows, index, to, count, width, table }, _) => {
                let [rows_bytes, table_bytes] = [count, table].map(|rows| rows * width * size_of::<f32>());
                // SAFETY: checked with the plan: inside their memory, the table apart from the rest.
                unsafe {
                    scatter(
                        cast(&run.bytes(rows)[..rows_bytes]),
                        cast(&run.bytes(index)[..count * size_of::<i32>()]),
                        cast_mut(&mut run.bytes_mut(to)[..table_bytes]),
                        [*width, *table],
                    )
                }
            }
            (Step::Call { kernel, name, inputs, output }, _) => {
                let missing =
                    || DeviceError::Kernel { name: name.clone(), number: *kernel, given: kernels.len() };
                let work = kernels.get(*kernel).ok_or_else(missing)?;
                // SAFETY: checked with the plan: inside their memory, the output apart from the inputs.
                let inputs: Vec<&[u8]> = inputs.iter().map(|view| unsafe { run.bytes(view) }).collect();
                // SAFETY: as above.
                work(self, &inputs, unsafe { run.bytes_mut(output) })
            }
            (Step::Attention { attention, output, lse }, Ready::Attention(programs)) => {
                let work = run.attention(attention, programs, self.vector());
                // SAFETY: checked with the plan.
                unsafe {
                    let shape = attention.output_shape();
                    let lse = lse.as_ref().map(|lse| run.rows(lse, &shape[..3]));
                    self.attention(&work, run.rows(output, &shape), lse)
                }
            }
            (Step::AttentionGrad(grad), Ready::Attention(programs)) => {
                let work = run.attention(&grad.attention, programs, self.vector());
                // SAFETY: checked with the plan.
                unsafe { self.attention_grad(&work, &run.gradients(grad)) }
            }
            (Step::Pass { .. } | Step::Attention { .. } | Step::AttentionGrad(_), _) => {
                unreachable!("programs are scheduled when their plan is prepared")
            }
        }
    }
}

/// Whether the memory of a run is what the plan counts on.
fn fits(plan: &Plan, arena: &Buffer, given: &[&Buffer], carried: &[&mut Buffer]) -> Result<(), DeviceError> {
    for (needed, given) in [(plan.given.len(), given.len()), (plan.carried.len(), carried.len())] {
        if needed != given {
            return Err(DeviceError::Inputs { program: plan.name.clone(), needed, given });
        }
    }
    let carried = carried.iter().map(|buffer| &**buffer).zip(&plan.carried);
    let all = given.iter().copied().zip(&plan.given).chain(carried).chain([(arena, &plan.arena_bytes)]);
    for (buffer, needed) in all {
        buffer.on_host()?;
        if buffer.bytes() < *needed {
            let (program, tag) = (plan.name.clone(), buffer.tag());
            return Err(DeviceError::Short { program, tag, needed: *needed, given: buffer.bytes() });
        }
    }
    Ok(())
}

impl Run<'_> {
    /// A memory's first byte; what is given is only read.
    fn base(&self, memory: Memory) -> *mut u8 {
        match memory {
            // SAFETY: inside the arena: checked with the plan.
            Memory::Arena(at) => unsafe { self.arena.add(at) },
            Memory::Given(number) => self.given[number].view::<u8>().as_ptr().cast_mut(),
            Memory::Carried(number) => self.carried[number],
        }
    }

    fn site(&self, view: &View) -> Site {
        let base = self.base(view.memory);
        Site { base, bytes: view.bytes, offset: view.offset, strides: view.strides.clone() }
    }

    fn elements(&self, view: &View, element: Element) -> *mut u8 {
        // SAFETY: inside its memory: checked with the plan.
        unsafe { self.base(view.memory).add(view.offset * element.bytes()) }
    }

    fn floats(&self, view: &View) -> *mut f32 {
        self.elements(view, Element::F32).cast()
    }

    fn attention<'a>(&self, attention: &'a Attention, programs: &'a Programs, unit: Vector) -> Work<'a> {
        let q = self.rows(&attention.q, &attention.q_shape());
        let k = self.rows(&attention.k, &attention.k_shape());
        let v = self.rows(&attention.v, &attention.v_shape());
        let extras = attention.extras.iter().map(|view| self.site(view)).collect();
        Work { attention, programs, q, k, v, extras, unit }
    }

    fn gradients(&self, grad: &AttentionGrad) -> Gradients {
        let rows = |view: &Option<View>, shape: [usize; 4]| view.as_ref().map(|view| self.rows(view, &shape));
        let attention = &grad.attention;
        let like_output = attention.output_shape();
        Gradients {
            output: self.rows(&grad.output, &like_output),
            lse: self.rows(&grad.lse, &like_output[..3]),
            grad: self.rows(&grad.grad, &like_output),
            wrt_q: rows(&grad.wrt_q, attention.q_shape()),
            wrt_k: rows(&grad.wrt_k, attention.k_shape()),
            wrt_v: rows(&grad.wrt_v, attention.v_shape()),
        }
    }

    /// A tensor of up to four dimensions. One without elements stays where it is, since its strides lead anywhere.
    fn rows(&self, view: &View, space: &[usize]) -> Rows {
        let mut strides = [1; 4];
        strides.iter_mut().zip(&view.strides).for_each(|(to, from)| *to = *from);
        if space.contains(&0) {
            strides = [0; 4];
        }
        Rows { at: self.floats(view), strides }
    }

    unsafe fn bytes(&self, view: &View) -> &[u8] {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts(self.base(view.memory), view.bytes) }
    }

    #[allow(clippy::mut_from_ref)] // the memory is the arena's, or carried
    unsafe fn bytes_mut(&self, view: &View) -> &mut [u8] {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts_mut(self.base(view.memory), view.bytes) }
    }
}

/// Adds rows up where their indices point, given the numbers of a row and the rows of the table.
fn scatter(
    rows: &[f32],
    index: &[i32],
    to: &mut [f32],
    [width, table]: [usize; 2],
) -> Result<(), DeviceError> {
    to.fill(0.0);
    for (lane, got) in index.iter().enumerate() {
        let place = usize::try_from(*got).ok().filter(|place| *place < table);
        let outside =
            || DeviceError::Place { program: "scatter".into(), op: 0, lane, got: *got, rows: table };
        let sums = &mut to[place.ok_or_else(outside)? * width..][..width];
        sums.iter_mut().zip(&rows[lane * width..]).for_each(|(sum, x)| *sum += x);
    }
    Ok(())
}
