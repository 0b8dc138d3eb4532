//! What an attempt does on a card: launches, memory, which of its instructions run, the host's share of a call.

use challenges::nf4::cuda::{Build, FASTEST, OnCard};
use kernels::cpu::Tick;
use reference::nf4::OutputDtype;

use super::content::Content;
use super::marks::{self, COUNTERS, Kind};
use super::output::Output;
use super::session::{Session, Via};
use super::trouble::{Tried, Trouble};
use crate::gather::Child;
use crate::nf4::in_a_graph;
use crate::nf4::inputs::{Scale, weight};
use crate::scorecard::Measurement;

/// Elements of the weight that is looked at: large enough that a buffer for its scales would show.
pub(super) const WATCHED_LEN: usize = 4096 * 4096;

/// Launches that the host's share is averaged over: fewer than a stream queues without waiting.
const QUEUED: usize = 400;

fn count(value: f64, unit: &str) -> Measurement {
    Measurement { value, unit: unit.into(), interval: None, samples: vec![] }
}

/// Reports what was measured under the names given, or why it was not, under the first of them.
fn report(child: &mut Child, names: &[(&str, &str)], measured: Tried<Vec<f64>>) {
    match measured {
        Ok(values) => {
            for ((name, unit), value) in names.iter().zip(values) {
                child.measured(name, count(value, unit));
            }
        }
        Err(trouble) => {
            child.ends_if(trouble.is_broken());
            child.unmeasured(names[0].0, &trouble.reason());
        }
    }
}

/// The kernel as an operation of a compiled graph on the card.
pub(super) fn in_a_graph(child: &mut Child, session: &Session) {
    match look_in_a_graph(session, child.request.effort.seed) {
        Ok(seen) => {
            for (name, value) in seen.numbers() {
                child.measured(name, count(value as f64, "count"));
            }
        }
        Err(trouble) => {
            child.ends_if(trouble.is_broken());
            child.unmeasured("nf4.graph_weights", &trouble.reason());
        }
    }
}

fn look_in_a_graph(session: &Session, seed: u64) -> Tried<in_a_graph::Seen> {
    if session.answer()? != FASTEST {
        return Err(Trouble::Hole);
    }
    let seen = in_a_graph::look(&session.gpu, &session.attempt, seed).map_err(Trouble::Unmeasured)?;
    session.gpu.stream().sync()?; // a kernel that ends the use of the card does so here
    Ok(seen)
}

/// Launches of one call, memory beside the output, registers and local memory of the kernel.
pub(super) fn memory(child: &mut Child, session: &Session) {
    let names = [
        ("nf4.working_bytes", "B"),
        ("nf4.launches", "count"),
        ("nf4.registers", "count"),
        ("nf4.spilled_bytes", "B/thread"),
        ("nf4.blocks_per_sm", "count"),
    ];
    report(child, &names, look_at_memory(session, child.request.effort.seed));
}

fn look_at_memory(session: &Session, seed: u64) -> Tried<Vec<f64>> {
    let (gpu, build) = (&session.gpu, Build::of(OutputDtype::Bf16));
    let name = session.answer()?;
    let content = Content::new(session, WATCHED_LEN, seed)?;
    let output = Output::new(gpu, OutputDtype::Bf16, WATCHED_LEN, seed, 0)?;
    let kernel = session.kernel(build, Via::Machine, name)?;
    gpu.reset_peak();
    let (launches, before) = (gpu.launches(), gpu.usage().peak);
    session.run(build, Via::Machine, name, &content.weight, output.address())?;
    let grown = gpu.usage().peak - before + marks::global_bytes(&session.text(build)?);
    let attributes = kernel.function.attributes()?;
    let resident = kernel.function.blocks_per_sm(kernel.launch.threads, kernel.launch.shared_bytes)?;
    Ok(vec![
        grown as f64,
        (gpu.launches() - launches) as f64,
        attributes.registers.into(),
        attributes.local_bytes.into(),
        resident.into(),
    ])
}

/// Runs the counting twin and reports what its counters say.
pub(super) fn marks(child: &mut Child, session: &Session) {
    let names = [
        ("nf4.inline_ptx_executions", "count"),
        ("nf4.plain_inline_ptx", "count"),
        ("nf4.hinted_load_bytes", "B"),
        ("nf4.hinted_store_bytes", "B"),
    ];
    report(child, &names, look_at_marks(session, child.request.effort.seed));
}

fn look_at_marks(session: &Session, seed: u64) -> Tried<Vec<f64>> {
    let build = Build::of(OutputDtype::Bf16);
    let name = session.answer()?;
    let found = marks::marks(&session.text(build)?);
    let content = Content::new(session, WATCHED_LEN, seed)?;
    let output = Output::new(&session.gpu, OutputDtype::Bf16, WATCHED_LEN, seed, 0)?;
    session.run(build, Via::Marked, name, &content.weight, output.address())?;
    let counters = session.module(build, Via::Marked)?.global(COUNTERS)?;
    let counters = counters.chunks_exact(8).map(|word| {
        u64::from_ne_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]) as f64
    });
    let (mut inline, mut loads, mut stores) = (0.0, 0.0, 0.0);
    for (mark, executed) in found.iter().zip(counters) {
        match mark.kind {
            Kind::Inline => inline += executed,
            Kind::HintedLoad(bytes) => loads += executed * f64::from(bytes),
            Kind::HintedStore(bytes) => stores += executed * f64::from(bytes),
        }
    }
    let plain = marks::entry_of(&session.text(build.plain())?, name);
    let plain = marks::marks(&plain).iter().filter(|mark| mark.kind == Kind::Inline).count();
    Ok(vec![inline, plain as f64, loads, stores])
}

/// The host's share of a call: many launches queued, none waited for.
pub(super) fn host(child: &mut Child, session: &Session) {
    let measured = look_at_host(session).map(|samples| {
        let value = crate::timing::median(&samples);
        Measurement { value, unit: "us".into(), interval: None, samples }
    });
    match measured {
        Ok(measured) => child.measured("nf4.host_share", measured),
        Err(trouble) => {
            child.ends_if(trouble.is_broken());
            child.unmeasured("nf4.host_share", &trouble.reason());
        }
    }
}

fn look_at_host(session: &Session) -> Tried<Vec<f64>> {
    let name = session.answer()?;
    let kernel = session.kernel(Build::of(OutputDtype::Bf16), Via::Machine, name)?;
    let small = OnCard::upload(&session.gpu, &weight(64, 64, true, Scale::Plain, 1).view(), 0)?;
    let output = Output::new(&session.gpu, OutputDtype::Bf16, 64, 1, 0)?;
    let mut samples = Vec::new();
    for _ in 0..9 {
        session.gpu.stream().sync()?;
        let begin = Tick::now();
        for _ in 0..QUEUED {
            kernel.run(&session.gpu, &small, output.address())?;
        }
        samples.push(begin.micros() / QUEUED as f64);
    }
    samples.remove(0); // the first round warms the driver's queue
    session.gpu.stream().sync().map_err(Trouble::from)?;
    Ok(samples)
}
