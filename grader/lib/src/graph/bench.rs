//! The timed step: four layers, forward, backward and update, against the same step run operation by operation -
//! without dead gradients, each other operation a launch, memory used again as soon as it is free. On a CPU layers have
//! a width of 512 and the sequence 512 tokens, on a card 2,048 and 2,048. A run has ended when the device has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use challenges::graph::{Compile, Solution};
use challenges::nf4;
use compiler::compile::{Compiled, Level, Options, compile};
use compiler::session::{DeviceTensor, Io, Program, Session, Settings};
use compiler::tune::Tuned;
use kernels::Device;
use kernels::cpu::Tick;
use reference::graph::Graph;
use reference::graph::interpret::Values;

use super::begun::Begun;
use super::model::{Model, Sizes, TIMED, TIMED_ON_A_CARD};
use super::{losses, shown};
use crate::beside::{self, Beside};
use crate::compare::{describe, sizes, upload};
use crate::device::{Lent, Processor};
use crate::gather::{Child, Effort};
use crate::random::Random;
use crate::scorecard::Measurement;
use crate::timing::{FEWEST_ROUNDS, Pairs, median, speedup};

/// Times it and reports the numbers.
pub(super) fn run(child: &mut Child, processor: Processor, attempt: &dyn Compile) {
    let effort = child.request.effort.clone();
    let device = processor.timed();
    let begun = Begun::of(attempt);
    if let Some(step) = begun.lacks() {
        return child.unmeasured("graph.over_op_by_op", &format!("{step} is not written yet"));
    }
    match crate::gather::caught(|| measure(&device, &Timing::of(processor, &effort), attempt, &begun)) {
        Ok(Ok(seen)) => {
            report(child, &seen);
            shown::memory(child, &seen.compiled);
            shown::timeline(child, &seen.compiled, &seen.launch_times);
            losses::run(child, &*device, attempt, &begun, effort.seed);
        }
        Ok(Err(reason)) | Err(crate::gather::Unwound::Panic(reason)) => {
            child.unmeasured("graph.over_op_by_op", &reason);
        }
        Err(crate::gather::Unwound::Hole(hole)) => {
            child.unmeasured("graph.over_op_by_op", &format!("not written yet: {hole}"));
        }
    }
}

/// What is timed.
struct Timing {
    model: Sizes,
    length: usize,
    pairs: usize,
    /// Runs of each before: a card captures what it runs again over the same memory.
    warm_ups: usize,
    seed: u64,
}

impl Timing {
    fn of(processor: Processor, effort: &Effort) -> Self {
        let (model, length) = if processor.is_card() { (TIMED_ON_A_CARD, 2048) } else { (TIMED, 512) };
        let (length, pairs) = if effort.quick { (length / 4, 3) } else { (length, 2 * FEWEST_ROUNDS) };
        let warm_ups = 1 + usize::from(processor.is_card());
        Self { model, length, pairs: effort.samples.unwrap_or(pairs), warm_ups, seed: effort.seed }
    }
}

/// Milliseconds and bytes.
struct Seen {
    compile: f64,
    tuning: f64,
    attempt: Vec<f64>,
    plain: Vec<f64>,
    bytes: usize,
    plain_bytes: usize,
    launches: usize,
    plain_launches: usize,
    compiled: Arc<Compiled>,
    launch_times: Vec<Duration>,
}

fn measure(lent: &Lent, timing: &Timing, attempt: &dyn Compile, begun: &Begun) -> Result<Seen, String> {
    let device: &dyn Device = &**lent;
    let Timing { length, pairs, warm_ups, seed, .. } = *timing;
    let mut beside = lent.cpu().map(Beside::new);
    let model = Model::drawn(timing.model, seed)?;
    let captured = attempt.capture("llama_loss", &model.program(), &Values::new()).map_err(describe)?;
    let step = Model::step(captured.graph)?;
    let mut values = model.fixed(&step);
    values.append(&mut model.tokens(length, &mut Random::named(seed, "timed")));
    let given = upload(device, &values).map_err(describe)?;
    let sizes = sizes(&step, &values);
    let settings = begun.settings();
    let options = settings.options.unwrap_or(settings.level.options());
    let start = Tick::now();
    let mut compiled = compile(attempt, &step, &sizes, options).map_err(describe)?;
    let compiling = start.micros() / 1e3;
    let mut tuned = Tuned::default();
    if begun.has("C.7") {
        compiled.tune(attempt, device, &mut tuned).map_err(describe)?;
    }
    let (mut ours, mut theirs) = (Bench::new(device, compiled)?, Bench::new(device, plain(&step, &sizes)?)?);
    let (mut attempts, mut plains) = (Vec::new(), Vec::new());
    for _ in 0..warm_ups {
        ours.run(&given)?;
        theirs.run(&given)?;
    }
    for pair in 0..pairs {
        let first = pair % 2 == 0; // two pairs are a round: attempt, baseline, baseline, attempt
        if first {
            attempts.push(ours.run(&given)?);
        }
        plains.push(beside::watch(beside.as_mut(), || theirs.run(&given), |time| time * 1e3)?);
        if !first {
            attempts.push(ours.run(&given)?);
        }
    }
    if let Some(reason) = beside.and_then(|beside| beside.fault("the run operation by operation was timed")) {
        return Err(reason);
    }
    let launch_times = ours.profile(&given)?;
    let (compiled, plain) = (ours.compiled(&given)?, theirs.compiled(&given)?);
    Ok(Seen {
        compile: compiling,
        tuning: tuned.time.as_secs_f64() * 1e3,
        attempt: attempts,
        plain: plains,
        bytes: compiled.arena.bytes,
        plain_bytes: plain.arena.bytes,
        launches: compiled.plan().steps.len(),
        plain_launches: plain.plan().steps.len(),
        compiled,
        launch_times,
    })
}

fn plain(step: &Graph, sizes: &BTreeMap<reference::graph::Symbol, i64>) -> Result<Compiled, String> {
    let options = Options { flex: false, ..Level::O1.options() };
    compile(&Solution, step, sizes, options).map_err(describe)
}

/// A plan with its memory.
struct Bench<'a> {
    session: Session<'a>,
    program: Program,
}

impl<'a> Bench<'a> {
    fn new(device: &'a dyn Device, compiled: Compiled) -> Result<Self, String> {
        let mut session = Session::new(&Solution, device, &nf4::DEQUANTIZER, Settings::default());
        let program = session.load_compiled(compiled).map_err(describe)?;
        Ok(Self { session, program })
    }

    /// One run, in milliseconds.
    fn run(&mut self, inputs: &BTreeMap<String, DeviceTensor>) -> Result<f64, String> {
        let device = self.session.device();
        device.sync().map_err(describe)?;
        let start = Tick::now();
        self.session.run(self.program, inputs).map_err(describe)?;
        device.sync().map_err(describe)?;
        Ok(start.micros() / 1e3)
    }

    /// One run, launch by launch.
    fn profile(&mut self, inputs: &BTreeMap<String, DeviceTensor>) -> Result<Vec<Duration>, String> {
        self.session.profile(self.program, inputs).map_err(describe)
    }

    fn compiled(&mut self, inputs: &BTreeMap<String, DeviceTensor>) -> Result<Arc<Compiled>, String> {
        self.session.compiled(self.program, &Io::from(inputs)).map_err(describe)
    }
}

fn report(child: &mut Child, seen: &Seen) {
    let (value, interval) = speedup(Pairs { baseline: &seen.plain, attempt: &seen.attempt });
    let number =
        |value: f64, unit: &str| Measurement { value, unit: unit.into(), interval: None, samples: vec![] };
    let timed = |samples: &[f64]| Measurement { samples: samples.to_vec(), ..number(median(samples), "ms") };
    child.measured("graph.over_op_by_op", Measurement { interval, ..number(value, "x") });
    child.measured("graph.step", timed(&seen.attempt));
    child.measured("graph.op_by_op.step", timed(&seen.plain));
    child.measured("graph.compile", number(seen.compile, "ms"));
    child.measured("graph.tuning", number(seen.tuning, "ms"));
    let saved = median(&seen.plain) - median(&seen.attempt);
    if saved > 0.0 {
        child.measured("graph.pays_after", number(((seen.compile + seen.tuning) / saved).ceil(), "steps"));
    }
    child.measured("graph.arena", number(seen.bytes as f64, "B"));
    child.measured("graph.op_by_op.arena", number(seen.plain_bytes as f64, "B"));
    child.measured("graph.step_launches", number(seen.launches as f64, "count"));
    child.measured("graph.op_by_op.launches", number(seen.plain_launches as f64, "count"));
}
