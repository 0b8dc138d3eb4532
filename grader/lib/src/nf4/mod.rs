//! Challenge A in the grader: what is tried, what is measured, and what that says about each published line.

mod bench;
mod checks;
mod cores;
mod course;
pub(crate) mod cuda;
mod diagnose;
mod evidence;
mod footprint;
mod guards;
mod in_a_graph;
mod inputs;
mod library;
mod shown;
mod staircase;
mod waits;
mod watched;

use challenges::nf4::{Absmax, BENCHES, Nf4, Output, Weight, solution_calls};
use kernels::Cpu;
use kernels::bytes::Peak;
use reference::nf4::{OutputDtype, dequantize_bits};

pub(crate) use bench::PAST_THE_BOUND;
pub use bench::total_bytes;
pub(crate) use course::COURSE;
use evidence::facts;
pub(crate) use evidence::former_interval;
pub use evidence::total as total_speedup;
pub(crate) use footprint::BYTES_PER_THREAD;

use crate::gather::{Child, Effort, Item, Kind};
use crate::oracles;
use crate::table::{self, Measured};

/// Measures something of an attempt.
type Measure = Box<dyn Fn(&mut Child, &dyn Nf4)>;

/// The same without a name of a case.
type Watch = fn(&mut Child, &dyn Nf4);

/// What is watched.
const WATCHED: [Measured<Watch>; 3] = [
    Measured {
        name: "watch/bytes",
        seconds: 60,
        numbers: &["nf4.working_bytes", "nf4.peak_bytes", "nf4.launches"],
        fresh: true,
        quick: true,
        run: watched::bytes,
    },
    Measured {
        name: "watch/instructions",
        seconds: 180, // each part has its own limit of 60 s
        numbers: &[
            "nf4.instructions",
            "nf4.vector_instructions",
            "nf4.streaming_stores",
            "nf4.unfenced_stores",
            "nf4.streamed_bytes",
            "nf4.timed_*",
        ],
        fresh: true,
        quick: true,
        run: |child, _| watched::instructions(child),
    },
    Measured {
        name: "watch/graph",
        seconds: 60,
        numbers: &["nf4.graph_*"],
        fresh: true,
        quick: true,
        run: watched::in_a_graph,
    },
];

/// What is watched and timed, with what does it.
fn measured(effort: &Effort) -> Vec<(Item, Measure)> {
    let seconds = if effort.quick { 120 } else { 240 }; // a hang, not a busy machine, runs into it
    let watched = WATCHED.iter().map(|measured| (measured.item(), Box::new(measured.run) as Measure));
    let benches = BENCHES.iter().filter(|bench| bench.published || !effort.quick).map(|bench| {
        let name = bench_name(bench);
        let item = Item::new(format!("bench/{name}"), seconds).measuring(&[&format!("nf4.*.{name}")]);
        let run = move |child: &mut Child, attempt: &dyn Nf4| bench::run(child, attempt, bench);
        (item.guarded(&bench::GUARDS), Box::new(run) as Measure)
    });
    let staircase = Item::new("bench/staircase", 30).measuring(&["nf4.version.*", "nf4.version"]);
    let staircase = (!effort.quick).then(|| (staircase, Box::new(staircase::run) as Measure));
    watched.chain(benches).chain(staircase).collect()
}

/// Everything that there is to do, in order.
fn items(effort: &Effort) -> Vec<Item> {
    let checks = checks::names().into_iter().map(|name| Item::new(name, 10));
    let guards = guards::NAMES.iter().map(|name| Item::new(format!("guard/{name}"), 30));
    checks.chain(guards).chain(measured(effort).into_iter().map(|(item, _)| item)).collect()
}

/// Does one item.
fn work(child: &mut Child, attempt: &dyn Nf4, name: &str) {
    let (seed, source) = (child.request.effort.seed, child.request.source);
    let watched = shown::Watched(attempt);
    let attempt = &watched;
    match Kind::of(name) {
        Kind::Check => child.check(name, || {
            let before = solution_calls();
            checks::run(name, attempt, seed)?;
            source.own_work(solution_calls() - before)
        }),
        Kind::Guard(guard) => child.guard(guard, || guards::run(guard, attempt, source, seed)),
        Kind::Number => match table::made(&measured(&child.request.effort), name) {
            Ok(run) => run(child, attempt),
            Err(unknown) => child.unmeasured(name, &unknown),
        },
    }
}

use watched::step_through;

/// An attempt as other challenges use it.
pub(crate) fn answer(attempt: &dyn Nf4) -> impl Nf4 {
    Subject::of(attempt)
}

/// Whether an attempt's answer passes its checks, for a challenge that would use it.
pub(crate) fn is_right(attempt: &dyn Nf4, seed: u64) -> bool {
    let step = if Subject::of(attempt).fast { "A.6/" } else { "A.5/" };
    let names: Vec<String> = checks::names().into_iter().filter(|name| name.starts_with(step)).collect();
    let attempt = &shown::Watched(attempt);
    let is_passed = |name: &String| {
        matches!(crate::gather::caught(|| checks::run(name, attempt, seed)), Ok(Ok(())))
            && oracles::take().is_none()
    };
    names.iter().all(is_passed)
}

/// What an attempt's answer does with weights of some sizes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AtSizes {
    /// Sizes.
    pub tried: usize,
    /// Those at which a bit is wrong, or at which it does not run to its end.
    pub wrong: usize,
    /// The most bytes that it takes beside its output.
    pub working_bytes: usize,
}

/// Tries an attempt's answer at the sizes of a challenge that uses it: into f32, on one thread, bit for bit.
pub(crate) fn at_sizes(attempt: &dyn Nf4, sizes: impl IntoIterator<Item = usize>, seed: u64) -> AtSizes {
    let cpu = Cpu::with_threads(1);
    let mut all = AtSizes::default();
    for len in sizes {
        let ran = crate::gather::caught(|| at_size(attempt, &cpu, len, seed));
        all.tried += 1;
        all.wrong += usize::from(!matches!(ran, Ok((true, _))));
        all.working_bytes = all.working_bytes.max(ran.map_or(0, |(_, bytes)| bytes));
    }
    all
}

/// Returns whether an answer is right to the bit and the attempt's own work, and the bytes that it took.
fn at_size(attempt: &dyn Nf4, cpu: &Cpu, len: usize, seed: u64) -> (bool, usize) {
    let weight = inputs::weight(len, 64, true, inputs::Scale::Plain, seed);
    let mut out = inputs::Buffer::new(OutputDtype::F32, len, seed);
    cpu.launch(&mut [0_u8; 64], 1, |_, _| {}); // the thread pool starts its threads at its first use
    let peak = Peak::begin();
    shown::Watched(attempt).dequantize_fast(cpu, &weight.view(), out.output());
    let bytes = peak.map_or(usize::MAX, |peak| peak.bytes());
    if oracles::take().is_some() {
        return (false, bytes);
    }
    let truth = dequantize_bits(&weight.view(), OutputDtype::F32);
    (truth.iter().enumerate().all(|(element, bits)| out.bits(element) == *bits), bytes)
}

/// Whether a case's samples are refused by the guard on the physical bound, and what it says then.
pub(crate) fn past_the_bound(case: &str, [bound, attempt]: [&[f64]; 2]) -> Option<String> {
    let samples =
        bench::Samples { attempt: attempt.to_vec(), bound: bound.to_vec(), ..bench::Samples::default() };
    bench::past_the_bound(case, &samples, 0.0)
}

/// `4096x14336.bf16`.
pub fn bench_name(bench: &challenges::nf4::Bench) -> String {
    format!("{}x{}.{}", bench.rows, bench.columns, dtype_name(bench.dtype))
}

fn dtype_name(dtype: OutputDtype) -> &'static str {
    match dtype {
        OutputDtype::F16 => "f16",
        OutputDtype::Bf16 => "bf16",
        OutputDtype::F32 => "f32",
    }
}

const DTYPES: [OutputDtype; 3] = [OutputDtype::F16, OutputDtype::Bf16, OutputDtype::F32];

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
        let mut out = inputs::Buffer::new(OutputDtype::Bf16, 64, 1);
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
        Subject { attempt: &shown::Watched(self.attempt), fast: self.fast }.run(cpu, weight, out);
    }
}
