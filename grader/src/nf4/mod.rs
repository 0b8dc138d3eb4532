//! Challenge A in the grader: what is tried, what is measured, and what that says about each published line.

mod bench;
mod checks;
pub(crate) mod cuda;
mod diagnose;
mod evidence;
mod guards;
mod inputs;
mod shown;
mod staircase;
mod watched;

use std::time::Duration;

use challenges::nf4::{Absmax, BENCHES, Nf4, Output, Weight};
use kernels::Cpu;
use reference::nf4::Dtype;

pub(crate) use evidence::{facts, total as total_speedup};

use crate::calls;
use crate::gather::{Child, Effort, Item};

/// Bytes that a child of this challenge may hold: three matrices of the largest case, inputs and outputs,
/// beside the attempt's own.
pub(crate) const MEMORY_LIMIT: usize = 3 << 30;

/// Everything that there is to do, in order.
pub(crate) fn items(effort: &Effort) -> Vec<Item> {
    let bench_limit = Duration::from_secs(if effort.quick { 15 } else { 45 });
    let item = |name: String, seconds| Item { name, limit: Duration::from_secs(seconds), fresh: false };
    let checks = checks::names().into_iter().map(|name| item(name, 10));
    let guards = guards::NAMES.iter().map(|name| item(format!("guard/{name}"), 20));
    let watched = ["watch/bytes", "watch/instructions", "watch/graph"]
        .map(|name| Item { fresh: true, ..item(name.into(), 20) });
    let benches = BENCHES
        .iter()
        .filter(|bench| bench.published || !effort.quick)
        .map(|bench| Item { limit: bench_limit, ..item(format!("bench/{}", bench_name(bench)), 0) });
    let staircase = (!effort.quick).then(|| item("bench/staircase".into(), 30));
    checks.chain(guards).chain(watched).chain(benches).chain(staircase).collect()
}

/// Does one item.
pub(crate) fn work(child: &mut Child, attempt: &dyn Nf4, name: &str) {
    let seed = child.request.effort.seed;
    match name.split_once('/') {
        Some(("guard", guard)) => child.guard(guard, || guards::run(guard, attempt, seed)),
        Some(("watch", "bytes")) => watched::bytes(child, attempt),
        Some(("watch", "instructions")) => watched::instructions(child),
        Some(("watch", "graph")) => watched::in_a_graph(child, attempt),
        Some(("bench", "staircase")) => staircase::run(child, attempt),
        Some(("bench", case)) => bench::run(child, attempt, case),
        _ if calls::are_shown() => child.check(name, || checks::run(name, &shown::Shown(attempt), seed)),
        _ => child.check(name, || checks::run(name, attempt, seed)),
    }
}

pub(crate) use watched::step_through;

/// An attempt as other challenges use it.
pub(crate) fn answer(attempt: &dyn Nf4) -> impl Nf4 {
    Subject::of(attempt)
}

/// Whether an attempt's answer passes its checks, for a challenge that would use it.
pub(crate) fn is_right(attempt: &dyn Nf4, seed: u64) -> bool {
    let step = if Subject::of(attempt).fast { "A.6/" } else { "A.5/" };
    let names = checks::names().into_iter().filter(|name| name.starts_with(step));
    names
        .into_iter()
        .all(|name| matches!(crate::gather::caught(|| checks::run(&name, attempt, seed)), Ok(Ok(()))))
}

/// `4096x14336.bf16`.
fn bench_name(bench: &challenges::nf4::Bench) -> String {
    format!("{}x{}.{}", bench.rows, bench.columns, dtype_name(bench.dtype))
}

fn dtype_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F16 => "f16",
        Dtype::Bf16 => "bf16",
        Dtype::F32 => "f32",
    }
}

const DTYPES: [Dtype; 3] = [Dtype::F16, Dtype::Bf16, Dtype::F32];

/// The step that answers the challenge: A.6, or A.5 as long as A.6 is a hole.
#[derive(Clone, Copy)]
struct Subject<'a> {
    attempt: &'a dyn Nf4,
    fast: bool,
}

impl<'a> Subject<'a> {
    /// Tries A.6 on one block.
    fn of(attempt: &'a dyn Nf4) -> Self {
        let weight = inputs::weight(64, 64, true, inputs::Scale::Plain, 1);
        let mut out = inputs::Buffer::new(Dtype::Bf16, 64, 1);
        let run = || attempt.dequantize_fast(&Cpu::with_threads(1), &weight.view(), out.output());
        let hole = matches!(crate::gather::caught(run), Err(crate::gather::Unwound::Hole(_)));
        Self { attempt, fast: !hole }
    }

    fn run(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        if self.fast {
            self.attempt.dequantize_fast(cpu, weight, out);
        } else {
            self.attempt.dequantize(cpu, weight, out);
        }
    }
}

/// The attempt as other challenges use it: its fast step is A.5 as long as A.6 is a hole.
impl Nf4 for Subject<'_> {
    fn unpack(&self, packed: &[u8], codes: &mut [u8]) {
        self.attempt.unpack(packed, codes);
    }

    fn look_up(&self, codes: &[u8], table: &[f32; 16], values: &mut [f32]) {
        self.attempt.look_up(codes, table, values);
    }

    fn block(&self, packed: &[u8], table: &[f32; 16], absmax: f32, values: &mut [f32]) {
        self.attempt.block(packed, table, absmax, values);
    }

    fn absmax(&self, absmax: &Absmax<'_>, block: usize) -> f32 {
        self.attempt.absmax(absmax, block)
    }

    fn dequantize(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        self.attempt.dequantize(cpu, weight, out);
    }

    fn dequantize_fast(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        self.run(cpu, weight, out);
    }
}
