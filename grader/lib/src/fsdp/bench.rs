//! The step on two ranks with A's dequantiser, against the same step with the three passes of the usual library, in
//! turns. A step takes as long as its slowest rank.
//!
//! A dequantiser that writes nothing is fast: so A's attempt is tried at the sizes of this model first, and both runs
//! have to have the same losses and norms in every step, those that are timed among them. The weights are the same in
//! every step, and an output may still hold the answer of the step before. So some elements of each output, which are
//! drawn, are made NaN before each call of either dequantiser.
//!
//! Both steps have one thread a rank. On Linux no other thread of the process may run while they are timed: such a thread
//! slows the three passes down, or does work of the attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use challenges::fsdp::{FSDP, Fsdp, Rank, Store};
use challenges::nf4::{self, Absmax, Dequantizer, Nf4, Output, Weight, baseline::Baseline};
use kernels::Cpu;
use kernels::callee::{Callee, HostCallee, Quantized};
use kernels::cpu::Tick;
use kernels::tile::Element;
use reference::graph::ranks::Mesh;

use super::job::{How, Job, on_ranks};
use super::train::how;
use super::trial::{NARROWER, RANKS, Stop, TIMED, Trial, number};
use crate::beside::{self, Beside, Thread};
use crate::compare::describe;
use crate::gather::Child;
use crate::graph::model::Sizes;
use crate::loss::series_apart;
use crate::nf4::{AtSizes, at_sizes};
use crate::random::{self, Random};
use crate::scorecard::{LOSSES_APART, Measurement};
use crate::timing::{FEWEST_ROUNDS, MOST_ROUNDS, Pairs, median, speedup};

/// The width that counts, that of a Llama of 1B. Few tokens: most of the step is what is done to weights.
const WIDTH: usize = 2048;
/// Pairs of steps of each narrower width.
const FEW_PAIRS: usize = 8;
const SHAPE: [usize; 2] = [1, 4];
const RATE: f64 = 2e-4;
/// Steps of each before any is timed: programs are compiled, memory is there.
const WARM: usize = 2;

/// Times it and reports the numbers.
pub(super) fn run(child: &mut Child, attempt: &dyn Fsdp, own: Option<&dyn Nf4>) {
    let effort = child.request.effort.clone();
    // Decoding is a small part of a step: an interval that tells a few percent apart needs many rounds.
    let planned = if effort.quick { FEWEST_ROUNDS } else { MOST_ROUNDS };
    let pairs = effort.samples.unwrap_or(2 * planned);
    let run = || {
        let right = own.filter(|own| crate::nf4::is_right(*own, effort.seed)).map(crate::nf4::answer);
        let sizes = right.as_ref().map(|own| at_sizes(own, sizes_of(WIDTH), effort.seed));
        let own = right.filter(|_| sizes.as_ref().is_some_and(|sizes| sizes.wrong == 0));
        let dequantizer = own.as_ref().map_or(&nf4::Solution as &dyn Nf4, |own| own as &dyn Nf4);
        let narrower = NARROWER.into_iter().filter(|_| !effort.quick).map(|width| {
            let few = pairs.min(FEW_PAIRS);
            Ok((width, Timed { attempt, dequantizer, width, seed: effort.seed, pairs: few }.run()?))
        });
        let narrower = narrower.collect::<Result<Vec<_>, Stop>>()?;
        let wide = Timed { attempt, dequantizer, width: WIDTH, seed: effort.seed, pairs }.run()?;
        Ok(All { narrower, wide, sizes, is_own: own.is_some() })
    };
    Trial { name: TIMED, attempt }.run(child, run, report);
}

/// Everything that was timed and counted.
struct All {
    narrower: Vec<(usize, Seen)>,
    wide: Seen,
    sizes: Option<AtSizes>, // of an attempt at A that passes its own checks
    is_own: bool,
}

fn report(child: &mut Child, seen: &All) -> Result<(), String> {
    for (width, seen) in &seen.narrower {
        child.measured(&format!("fsdp.narrower.{width}"), seen.ratio());
    }
    child.measured("fsdp.over_baseline", seen.wide.ratio());
    for (name, times) in [("attempt", &seen.wide.attempt), ("baseline", &seen.wide.baseline)] {
        let measurement = Measurement { value: median(times), samples: times.clone(), ..number(0.0, "ms") };
        child.measured(&format!("fsdp.timed.{name}"), measurement);
    }
    let All { wide: Seen { uses, apart, .. }, sizes, .. } = seen;
    let sizes = sizes.unwrap_or_default();
    for (name, value, unit) in [
        ("calls", uses.calls as f64, "count"),
        ("planned", uses.planned as f64, "count"),
        ("parts", uses.parts as f64, "count"),
        ("weights", uses.weights as f64, "count"),
        ("called", uses.called as f64, "count"),
        ("fewest", uses.fewest as f64, "count"),
        ("most", uses.most as f64, "count"),
        ("own", f64::from(u8::from(seen.is_own)), "count"),
        ("sizes", sizes.tried as f64, "count"),
        ("wrong_sizes", sizes.wrong as f64, "count"),
        ("working_bytes", sizes.working_bytes as f64, "B/thread"),
        ("apart", *apart, "relative"),
    ] {
        child.measured(&format!("fsdp.dequantizer.{name}"), number(value, unit));
    }
    let mut all = seen.narrower.iter().map(|(_, seen)| seen).chain([&seen.wide]);
    if let Some(reason) = all.find_map(|seen| seen.helped.clone()) {
        return Err(reason);
    }
    if *apart <= LOSSES_APART {
        return Ok(());
    }
    Err(format!(
        "expected the losses and norms of the steps with three passes (within {LOSSES_APART:.0e}), found them \
         {apart:.1e} apart"
    ))
}

/// Milliseconds of the slowest rank, how far the losses are apart, and what was asked of the dequantiser.
struct Seen {
    attempt: Vec<f64>,
    baseline: Vec<f64>,
    apart: f64,
    uses: Uses,
    /// The reason why the times cannot be compared, if there is one.
    helped: Option<String>,
}

impl Seen {
    fn ratio(&self) -> Measurement {
        let (value, interval) = speedup(Pairs { baseline: &self.baseline, attempt: &self.attempt });
        Measurement { interval, ..number(value, "x") }
    }
}

/// What one rank asked of a dequantiser in a step.
#[derive(Clone, Copy, Default)]
struct Uses {
    calls: u64,
    /// Those that the programs hold: as many as the three passes are asked for.
    planned: u64,
    /// Calls for something else than a whole weight of the model.
    parts: u64,
    /// Quantised weights of the model.
    weights: u64,
    /// Those that were asked for.
    called: u64,
    /// Calls for the one that was asked for least, and most.
    fewest: u64,
    most: u64,
}

/// A model that is timed.
fn model(width: usize) -> Sizes {
    Sizes { layers: 1, hidden: width, heads: width / 128, vocab: 96 }
}

/// The elements of its quantised weights, each number once.
fn sizes_of(width: usize) -> BTreeSet<usize> {
    let config = model(width).config();
    let quantized = config.tensor_specs().into_iter().filter(|spec| spec.quantizable);
    quantized.map(|spec| spec.shape.iter().product()).collect()
}

/// Pairs of steps at some width.
struct Timed<'a> {
    attempt: &'a dyn Fsdp,
    dequantizer: &'a dyn Nf4,
    width: usize,
    seed: u64,
    pairs: usize,
}

/// What a rank saw: of each way its milliseconds, and the loss and norm of each step.
#[derive(Default)]
struct OfRank {
    times: [Vec<f64>; 2],
    steps: [Vec<[f64; 2]>; 2],
    uses: Uses,
    /// As [`Seen::helped`]; known to the first rank alone.
    helped: Option<String>,
}

/// A rank's part in what all ranks do at the same time.
struct Together<'a> {
    rank: usize,
    meet: &'a dyn Fn() -> Result<(), String>,
    threads: &'a Mutex<Vec<Thread>>,
}

impl Together<'_> {
    /// A watch on each way's steps, for the first rank; of every other rank only the thread is noted.
    fn watches(&self) -> Result<Option<[Beside; 2]>, String> {
        let lock = || self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        lock().extend(Thread::present());
        (self.meet)()?;
        Ok((self.rank == 0).then(|| [(); 2].map(|()| Beside::of(lock().iter().copied()))))
    }

    /// Runs a step between meetings of all ranks, so that a watch sees the whole step of every rank. While the first rank
    /// reads the clocks, the others wait at a meeting: what does not run has exact clocks.
    fn step<T>(
        &self,
        watch: Option<&mut Beside>,
        run: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        (self.meet)()?;
        let whole = || {
            (self.meet)()?;
            let tick = Tick::now();
            let answer = run()?;
            (self.meet)()?;
            Ok::<_, String>((answer, tick.micros()))
        };
        beside::watch(watch, whole, |(_, micros)| *micros).map(|(answer, _)| answer)
    }
}

impl Timed<'_> {
    fn run(&self) -> Result<Seen, Stop> {
        let job = Job::drawn(model(self.width), self.seed, RATE, [1, RANKS], SHAPE).map_err(Stop::Machine)?;
        let mesh = Mesh::line(FSDP, RANKS).map_err(|error| Stop::Machine(describe(error)))?;
        let store = Store::default();
        let threads = Mutex::default();
        let all = on_ranks(RANKS, |world| {
            let device = Cpu::with_threads(1);
            let passes = ThreePasses::default();
            let ours = Counted::new(self.dequantizer, &job)?;
            let theirs = Counted::new(&passes, &job)?;
            let rank = |counted| {
                let how = How { dequantizer: counted, ..how(self.attempt) };
                job.rank(how.team(world.clone(), &mesh, &store), &device, how).map_err(describe)
            };
            let meet = || world.exchange("").map(drop).map_err(describe);
            let together = Together { rank: world.rank(), meet: &meet, threads: &threads };
            let mut of_rank = self.turns(&job, [rank(&ours)?, rank(&theirs)?], &together, || {
                for all in [&ours, &theirs] {
                    all.forget();
                }
            })?;
            let steps = self.pairs as u64;
            of_rank.uses = Uses { planned: theirs.uses(steps).calls, ..ours.uses(steps) };
            Ok(of_rank)
        });
        all.map(|ranks| self.seen(&ranks)).map_err(Stop::Attempt)
    }

    /// Steps of both in turn.
    fn turns(
        &self,
        job: &Job,
        mut ranks: [Rank<'_>; 2],
        together: &Together<'_>,
        warm: impl FnOnce(),
    ) -> Result<OfRank, String> {
        let mut of_rank = OfRank::default();
        let mut watches = None;
        let mut step =
            |watches: &mut Option<[Beside; 2]>, way: usize, number: usize| -> Result<f64, String> {
                let watch = watches.as_mut().map(|watches| &mut watches[way]);
                let (loss_and_norm, time) = together.step(watch, || {
                    let tick = Tick::now();
                    let loss_and_norm = job.step(&mut ranks[way], number).map_err(describe)?;
                    Ok((loss_and_norm, tick.micros() / 1e3))
                })?;
                of_rank.steps[way].push(loss_and_norm);
                Ok(time)
            };
        for number in 1..=WARM {
            step(&mut watches, 0, number)?;
            step(&mut watches, 1, number)?;
        }
        warm();
        watches = together.watches()?;
        for pair in 0..self.pairs {
            // two pairs are a round: attempt, baseline, baseline, attempt
            for way in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
                let time = step(&mut watches, way, WARM + 1 + pair)?;
                of_rank.times[way].push(time);
            }
        }
        let timed = ["the steps of the attempt were timed", "the steps with three passes were timed"];
        let mut watches = watches.into_iter().flatten().zip(timed);
        of_rank.helped = watches.find_map(|(watch, timed)| watch.fault(timed));
        Ok(of_rank)
    }

    fn seen(&self, ranks: &[OfRank]) -> Seen {
        let slowest = |way: usize| -> Vec<f64> {
            let of = |pair: usize| ranks.iter().map(|rank| rank.times[way][pair]).fold(0.0, f64::max);
            (0..self.pairs).map(of).collect()
        };
        let series = |way: usize, of: usize| ranks[0].steps[way].iter().map(|step| step[of]).collect();
        let apart = [0, 1].map(|of| series_apart(&[series(1, of), series(0, of)]));
        let least = ranks.iter().map(|rank| rank.uses).min_by_key(|uses| uses.calls).unwrap_or_default();
        let parts = ranks.iter().map(|rank| rank.uses.parts).sum();
        let [attempt, baseline] = [0, 1].map(slowest);
        let helped = ranks.iter().find_map(|rank| rank.helped.clone());
        Seen { attempt, baseline, apart: apart[0].max(apart[1]), uses: Uses { parts, ..least }, helped }
    }
}

/// A dequantiser whose calls are counted, and whose outputs are spoilt before.
struct Counted<'a> {
    inner: Dequantizer<'a>,
    spoils: Mutex<Random>,
    sizes: BTreeSet<usize>, // of whole weights
    weights: u64,
    calls: Mutex<BTreeMap<Key, u64>>,
    parts: AtomicU64,
}

/// How a weight is known again: its elements and how its codes begin.
type Key = (usize, Vec<u8>);

/// Bytes of codes that tell drawn weights apart.
const BEGIN: usize = 16;

/// Windows of an output that are spoilt before a call, and bytes of each: together far less than a pass writes.
const SPOILT: usize = 16;
const WINDOW: usize = 64;

impl<'a> Counted<'a> {
    fn new(inner: &'a dyn Nf4, job: &Job) -> Result<Self, String> {
        let quantized = job.spec.config.tensor_specs().into_iter().filter(|spec| spec.quantizable);
        let sizes: Vec<usize> = quantized.map(|spec| spec.shape.iter().product()).collect();
        Ok(Self {
            inner: Dequantizer(inner),
            spoils: Mutex::new(random::unforeseen()?),
            weights: sizes.len() as u64,
            sizes: sizes.into_iter().collect(),
            calls: Mutex::default(),
            parts: AtomicU64::new(0),
        })
    }

    /// Makes windows of an output NaN, whatever its type: every bit is set.
    fn spoil(&self, out: &mut [u8]) {
        let mut random = self.spoils.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..SPOILT {
            let first = random.below(out.len() / WINDOW + 1) * WINDOW;
            let end = out.len().min(first + WINDOW);
            out[first..end].fill(0xff);
        }
    }

    /// What was called so far counts no more.
    fn forget(&self) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// What each of some steps asked for.
    fn uses(&self, steps: u64) -> Uses {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let of_step = |calls: u64| calls / steps.max(1);
        Uses {
            calls: of_step(calls.values().sum()),
            planned: 0,
            parts: self.parts.load(Ordering::Relaxed),
            weights: self.weights,
            called: calls.len() as u64,
            fewest: calls.values().min().copied().map_or(0, of_step),
            most: calls.values().max().copied().map_or(0, |calls| calls.div_ceil(steps.max(1))),
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
        let key = (weight.len, weight.packed[..weight.packed.len().min(BEGIN)].to_vec());
        *self.calls.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
        self.parts.fetch_add(u64::from(!self.sizes.contains(&weight.len)), Ordering::Relaxed);
        self.spoil(out);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_spoilt_in_drawn_windows() {
        let job = Job::drawn(model(512), 1, RATE, [1, RANKS], SHAPE).expect("a job");
        let counted = Counted::new(&nf4::Solution, &job).expect("random numbers");
        let spoilt = || {
            let mut out = vec![0_u8; 4096 * WINDOW + 5];
            counted.spoil(&mut out);
            let windows = out.chunks(WINDOW).map(|window| window.contains(&0xff)).enumerate();
            let whole: Vec<usize> = windows.filter(|(_, spoilt)| *spoilt).map(|(at, _)| at).collect();
            assert!(out.iter().all(|byte| [0, 0xff].contains(byte)) && whole.len() <= SPOILT, "{whole:?}");
            assert!(whole.len() > SPOILT / 2, "{whole:?}");
            whole
        };
        assert_ne!(spoilt(), spoilt(), "windows are drawn anew");
    }

    /// Rank 0 is slower in one round, rank 1 in the other.
    #[test]
    fn a_step_takes_as_long_as_its_slowest_rank() {
        let of_rank = |times: [[f64; 2]; 2]| OfRank {
            times: times.map(|times| times.to_vec()),
            steps: [vec![[1.0, 2.0]; 2], vec![[1.0, 2.0]; 2]],
            ..OfRank::default()
        };
        let (attempt, dequantizer) = (&challenges::fsdp::Solution, &nf4::Solution);
        let timed = Timed { attempt, dequantizer, width: 512, seed: 1, pairs: 2 };
        let seen = timed.seen(&[of_rank([[1.0, 4.0], [5.0, 5.0]]), of_rank([[3.0, 2.0], [1.0, 9.0]])]);
        assert_eq!((seen.attempt, seen.baseline, seen.apart), (vec![3.0, 4.0], vec![5.0, 9.0], 0.0));
    }
}
