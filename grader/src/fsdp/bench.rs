//! The step on two ranks with A's dequantiser, against the same step with the three passes of the usual library, in
//! turns. A step takes as long as its slowest rank.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use challenges::fsdp::{FSDP, Fsdp, Rank, Sharding, Store};
use challenges::nf4::{self, Absmax, Dequantizer, Nf4, Output, Weight, baseline::Baseline};
use kernels::Cpu;
use kernels::callee::{Callee, HostCallee, Quantized};
use kernels::cpu::Tick;
use kernels::tile::Element;
use reference::graph::ranks::Mesh;

use super::job::{How, Job, on_ranks};
use super::train::{RANKS, number, told};
use crate::compare::describe;
use crate::gather::Child;
use crate::graph::model::Sizes;
use crate::scorecard::Measurement;
use crate::timing::{FEWEST_ROUNDS, Pairs, median, speedup};

/// The width that counts, that of a Llama of 1B. Few tokens: most of the step is what is done to weights.
const WIDTH: usize = 2048;
/// Narrower layers, which are told beside it: they may stay in a processor's cache between the dequantiser and the
/// product, where streaming stores cost more than they save.
pub(super) const NARROWER: [usize; 2] = [512, 1024];
/// Rounds of each of these.
const FEW_ROUNDS: usize = 8;
const SHAPE: [usize; 2] = [1, 4];
const RATE: f64 = 2e-4;
/// Steps of each before any is timed: programs are compiled, memory is there.
const WARM: usize = 2;

/// Times it and reports the numbers.
pub(super) fn run(child: &mut Child, attempt: &dyn Fsdp, own: Option<&dyn Nf4>) {
    let effort = child.request.effort.clone();
    let rounds = effort.samples.unwrap_or(2 * FEWEST_ROUNDS);
    let own = own.filter(|own| crate::nf4::is_right(*own, effort.seed)).map(crate::nf4::answer);
    let dequantizer = own.as_ref().map_or(&nf4::Solution as &dyn Nf4, |own| own as &dyn Nf4);
    for width in NARROWER.into_iter().filter(|_| !effort.quick) {
        let measure = || timed(attempt, dequantizer, width, effort.seed, rounds.min(FEW_ROUNDS));
        let Some(Seen { attempt, baseline, .. }) = told(child, "fsdp.over_baseline", measure) else { return };
        let (value, interval) = speedup(Pairs { baseline: &baseline, attempt: &attempt });
        let narrower = Measurement { interval, ..number(value, "x") };
        child.measured(&format!("fsdp.narrower.{width}"), narrower);
    }
    let measure = || timed(attempt, dequantizer, WIDTH, effort.seed, rounds);
    let Some(seen) = told(child, "fsdp.over_baseline", measure) else { return };
    let Seen { attempt, baseline, uses } = seen;
    let (value, interval) = speedup(Pairs { baseline: &baseline, attempt: &attempt });
    child.measured("fsdp.over_baseline", Measurement { interval, ..number(value, "x") });
    for (name, samples) in [("attempt", attempt), ("baseline", baseline)] {
        let measurement = Measurement { value: median(&samples), samples, ..number(0.0, "ms") };
        child.measured(&format!("fsdp.timed.{name}"), measurement);
    }
    child.measured("fsdp.dequantizer.calls", number(uses.calls as f64, "count"));
    child.measured("fsdp.dequantizer.parts", number(uses.parts as f64, "count"));
    child.measured("fsdp.dequantizer.weights", number(uses.weights as f64, "count"));
    child.measured("fsdp.dequantizer.own", number(f64::from(u8::from(own.is_some())), "count"));
}

/// Milliseconds of the slowest rank, and what was asked of the dequantiser.
struct Seen {
    attempt: Vec<f64>,
    baseline: Vec<f64>,
    uses: Uses,
}

/// What one rank asked of a dequantiser in a step.
#[derive(Clone, Copy, Default)]
struct Uses {
    calls: u64,
    /// Calls for something else than a whole weight of the model.
    parts: u64,
    /// Different quantised weights.
    weights: u64,
}

fn timed(attempt: &dyn Fsdp, own: &dyn Nf4, width: usize, seed: u64, rounds: usize) -> Result<Seen, String> {
    let sizes = Sizes { layers: 1, hidden: width, heads: width / 128, vocab: 96 };
    let job = Job::drawn(sizes, seed, RATE, [1, RANKS], SHAPE)?;
    let (mesh, store) = (Mesh::line(FSDP, RANKS).map_err(describe)?, Store::default());
    let all = on_ranks(RANKS, |world| {
        let device = Cpu::with_threads(1);
        let passes = ThreePasses::default();
        let (ours, theirs) = (Counted::new(own, &job), Counted::new(&passes, &job));
        let with = |dequantizer| How { attempt, dequantizer, pipeline: None, sharding: Sharding::Parameters };
        let rank = |counted| {
            let how = with(counted);
            job.rank(how.team(world.clone(), &mesh, &store), &device, how).map_err(describe)
        };
        let mut ours = (rank(&ours)?, &ours);
        let mut theirs = (rank(&theirs)?, &theirs);
        for number in 1..=WARM {
            job.step(&mut ours.0, number).map_err(describe)?;
            job.step(&mut theirs.0, number).map_err(describe)?;
        }
        let before = ours.1.calls.load(Ordering::Relaxed);
        let (mut attempts, mut baselines) = (Vec::new(), Vec::new());
        for pair in 0..rounds {
            let number = WARM + 1 + pair;
            let time = |rank: &mut Rank<'_>| -> Result<f64, String> {
                world.exchange("").map_err(describe)?; // all begin together
                let begin = Tick::now();
                job.step(rank, number).map_err(describe)?;
                Ok(begin.micros() / 1e3)
            };
            let first = pair % 2 == 0; // two pairs are a round: attempt, baseline, baseline, attempt
            if first {
                attempts.push(time(&mut ours.0)?);
            }
            baselines.push(time(&mut theirs.0)?);
            if !first {
                attempts.push(time(&mut ours.0)?);
            }
        }
        let calls = (ours.1.calls.load(Ordering::Relaxed) - before) / rounds.max(1) as u64;
        let parts = ours.1.parts.load(Ordering::Relaxed);
        Ok((attempts, baselines, Uses { calls, parts, weights: ours.1.weights }))
    })?;
    let slowest = |times: &[&Vec<f64>]| -> Vec<f64> {
        (0..rounds).map(|round| times.iter().map(|rank| rank[round]).fold(0.0, f64::max)).collect()
    };
    let attempts: Vec<&Vec<f64>> = all.iter().map(|(attempts, ..)| attempts).collect();
    let baselines: Vec<&Vec<f64>> = all.iter().map(|(_, baselines, _)| baselines).collect();
    let least = all.iter().map(|(_, _, uses)| *uses).min_by_key(|uses| uses.calls).unwrap_or_default();
    let parts = all.iter().map(|(_, _, uses)| uses.parts).sum();
    Ok(Seen { attempt: slowest(&attempts), baseline: slowest(&baselines), uses: Uses { parts, ..least } })
}

/// A dequantiser whose calls are counted.
struct Counted<'a> {
    inner: Dequantizer<'a>,
    sizes: BTreeSet<usize>, // of whole weights
    weights: u64,
    calls: AtomicU64,
    parts: AtomicU64,
}

impl<'a> Counted<'a> {
    fn new(inner: &'a dyn Nf4, job: &Job) -> Self {
        let quantized = job.spec.config.tensor_specs().into_iter().filter(|spec| spec.quantizable);
        let sizes: Vec<usize> = quantized.map(|spec| spec.shape.iter().product()).collect();
        Self {
            inner: Dequantizer(inner),
            weights: sizes.len() as u64,
            sizes: sizes.into_iter().collect(),
            calls: AtomicU64::new(0),
            parts: AtomicU64::new(0),
        }
    }
}

impl Callee for Counted<'_> {
    fn name(&self) -> &'static str {
        "counted"
    }

    fn host(&self) -> Option<&dyn HostCallee> {
        Some(self)
    }
}

impl HostCallee for Counted<'_> {
    fn check(&self, weight: &Quantized<'_>) -> Result<(), String> {
        self.inner.check(weight)
    }

    fn dequantize(
        &self,
        cpu: &Cpu,
        weight: &Quantized<'_>,
        to: Element,
        out: &mut [u8],
    ) -> Result<(), String> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.parts.fetch_add(u64::from(!self.sizes.contains(&weight.len)), Ordering::Relaxed);
        self.inner.dequantize(cpu, weight, to, out)
    }
}

/// The three passes of the usual library behind A's trait; what else a learner writes there nobody asks for.
#[derive(Default)]
struct ThreePasses(Mutex<Baseline>);

impl Nf4 for ThreePasses {
    fn unpack(&self, packed: &[u8], codes: &mut [u8]) {
        nf4::Solution.unpack(packed, codes);
    }

    fn look_up(&self, codes: &[u8], table: &[f32; 16], values: &mut [f32]) {
        nf4::Solution.look_up(codes, table, values);
    }

    fn block(&self, packed: &[u8], table: &[f32; 16], absmax: f32, values: &mut [f32]) {
        nf4::Solution.block(packed, table, absmax, values);
    }

    fn absmax(&self, absmax: &Absmax<'_>, block: usize) -> f32 {
        nf4::Solution.absmax(absmax, block)
    }

    fn dequantize(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        self.dequantize_fast(cpu, weight, out);
    }

    fn dequantize_fast(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        let mut passes = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        passes.dequantize(cpu, weight, out);
    }
}
