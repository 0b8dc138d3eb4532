//! Times the back ends of attention on this machine's CPU, f32, two at a time in turns.
//!
//!     attend > book/src/results/attention-cpu.txt
//!
//! - every score in memory against tile by tile: 2,048 tokens, 8 heads of 64, causal, forward and backward;
//! - full causal against a window of 256: 4,096 tokens, the same heads;
//! - padded rows against documents end to end: rows of drawn lengths;
//! - one token against a cache of 4,096 keys, of as many heads and of a quarter, and a read of as many bytes by the
//!   same threads.
//!
//! The first run of each compiles and is left out. What is printed are medians, and the quotient of medians.

extern crate solutions as _; // what `Solution` calls

use std::collections::BTreeMap;
use std::time::Instant;

use challenges::graph;
use challenges::issues::attention::backends::{Shape, graph as write};
use challenges::issues::attention::{Attend, Feature, Request, Rules, Sizes, Solution, Way};
use challenges::nf4::DEQUANTIZER;
use compiler::session::{DeviceTensor, Program, Session, Settings};
use kernels::cpu::stream;
use kernels::{Cpu, Device};
use reference::graph::{Dim, Dtype, Graph};

type Failure = Box<dyn std::error::Error>;
type Tensors = BTreeMap<String, DeviceTensor>;

/// Runs of each that are timed, and of what is short.
const RUNS: usize = 9;
const SHORT_RUNS: usize = 99;

const HEADS: usize = 8;
const DEPTH: usize = 64;

/// Rows of a padded batch, and the longest of them.
const ROWS: usize = 8;
const LONGEST: usize = 1024;

const CAUSAL: Rules = Rules { causal: true, window: None, prefix: None, documents: false };

fn main() -> Result<(), Failure> {
    let cpu = Cpu::new();
    println!("{}, f32, {HEADS} heads of {DEPTH}; medians of {RUNS} runs in turns", cpu.identity());
    tiles(&cpu)?;
    window(&cpu)?;
    documents(&cpu)?;
    decode(&cpu, HEADS)?;
    decode(&cpu, HEADS / 4)
}

/// Every score in memory, and none.
fn tiles(cpu: &Cpu) -> Result<(), Failure> {
    let sizes = square(1, 2048);
    let request = trained(CAUSAL);
    let [expanded, tiled] =
        in_turns(cpu, [Way::Expanded, Way::Tiled].map(|way| (way, &request, &sizes, &[][..])))?;
    say("2048 tokens, causal, forward and backward", ("expanded", expanded), ("tiled", tiled));
    Ok(())
}

/// Blocks that a window leaves out.
fn window(cpu: &Cpu) -> Result<(), Failure> {
    let sizes = square(1, 4096);
    let requests = [CAUSAL, Rules { window: Some(256), ..CAUSAL }].map(trained);
    let [all, window] =
        in_turns(cpu, requests.each_ref().map(|request| (Way::Tiled, request, &sizes, &[][..])))?;
    say("4096 tokens, forward and backward", ("causal", all), ("a window of 256", window));
    Ok(())
}

/// Rows that are padded, and the same tokens end to end.
fn documents(cpu: &Cpu) -> Result<(), Failure> {
    let lengths = lengths();
    let sizes = square(ROWS, LONGEST);
    let request = trained(Rules { documents: true, ..CAUSAL });
    let document = |token: usize| i32::from(token % LONGEST < lengths[token / LONGEST]);
    let documents: Vec<i32> = (0..ROWS * LONGEST).map(document).collect();
    let given = |way| (way, &request, &sizes, &documents[..]);
    let [padded, packed] = in_turns(cpu, [Way::Tiled, Way::Packed].map(given))?;
    let what = format!(
        "{ROWS} rows of {} to {} tokens, {} of {} slots filled, forward and backward",
        lengths.iter().min().unwrap_or(&0),
        lengths.iter().max().unwrap_or(&0),
        lengths.iter().sum::<usize>(),
        documents.len()
    );
    say(&what, ("padded", padded), ("packed", packed));
    let alone: Vec<i32> = (0..).zip(&documents).map(|(token, document)| document * (1 + token)).collect();
    let mut runs = Runs::new(cpu, Way::Packed, &request, &sizes, &alone)?;
    let times = (0..=RUNS).map(|_| runs.time()).collect::<Result<Vec<f64>, _>>()?;
    let time = median(times[1..].to_vec());
    println!(
        "of the packed, what asks the mask of every block: {time:.1} ms, if each token is a document of its own"
    );
    Ok(())
}

/// One token, whose time is that of reading the cache.
fn decode(cpu: &Cpu, groups: usize) -> Result<(), Failure> {
    let sizes = Sizes { groups, queries: 1, ..square(1, 4096) };
    let mut more = vec![Feature::ShortQueries, Feature::Decoding];
    more.extend((groups < HEADS).then_some(Feature::GroupedHeads));
    let request =
        Request { scale: scale(), offset: sizes.keys - 1, rules: CAUSAL, more, ..Request::default() };
    let mut runs = Runs::new(cpu, Way::Split, &request, &sizes, &[])?;
    let bytes = 2 * groups * sizes.keys * DEPTH * size_of::<f32>(); // k and v
    let (cache, mut out) = (vec![1_u8; bytes], vec![0; 1 << 11]); // almost nothing is written
    let mut times = [vec![], vec![]];
    for run in 0..=SHORT_RUNS {
        let of_run = [runs.time()?, time(|| stream(cpu, &cache, &mut out))];
        if run > 0 {
            times.iter_mut().zip(of_run).for_each(|(times, time)| times.push(time));
        }
    }
    let [attention, read] = times.map(median);
    let rate = |milliseconds: f64| bytes as f64 / milliseconds / 1e6;
    println!(
        "one token against {} keys of {groups} heads, medians of {SHORT_RUNS}: {attention:.3} ms for {:.1} MB of k and v, {:.1} \
         GB/s; a read of as many bytes {:.1} GB/s",
        sizes.keys,
        bytes as f64 / 1e6,
        rate(attention),
        rate(read)
    );
    Ok(())
}

// ---- a request with its tensors

/// As many queries as keys, as many heads of keys as of queries.
fn square(batch: usize, length: usize) -> Sizes {
    Sizes { batch, heads: HEADS, groups: HEADS, queries: length, keys: length, depth: DEPTH, width: DEPTH }
}

fn scale() -> f64 {
    (DEPTH as f64).sqrt().recip()
}

/// A request with gradients.
fn trained(rules: Rules) -> Request {
    Request { scale: scale(), rules, more: vec![Feature::Gradients], ..Request::default() }
}

/// Lengths of rows, one of them the longest.
fn lengths() -> [usize; ROWS] {
    let mut state = 3_u64;
    let mut lengths = [LONGEST; ROWS];
    for length in &mut lengths[1..] {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *length = 64 + (state >> 33) as usize % (LONGEST - 64);
    }
    lengths
}

/// What is timed.
struct Runs<'a> {
    session: Session<'a>,
    program: Program,
    given: Tensors,
}

impl<'a> Runs<'a> {
    fn new(
        cpu: &'a Cpu,
        way: Way,
        request: &Request,
        sizes: &Sizes,
        documents: &[i32],
    ) -> Result<Self, Failure> {
        let packing = (way == Way::Packed).then(|| Solution.pack(documents, sizes.keys));
        let tokens = packing.as_ref().map_or(0, |packing| packing.tokens.len());
        let graph = write(way, request, &Solution, &Shape::of(*sizes, tokens, Dtype::F32))?;
        let mut session = Session::new(&graph::Solution, cpu, &DEQUANTIZER, Settings::default());
        let program = session.load(&graph)?;
        let mut given = floats(cpu, &graph)?;
        let packing = packing.unwrap_or_default();
        let whole = [("documents", documents), ("tokens", &packing.tokens), ("packed", &packing.documents)];
        for (name, numbers) in whole.into_iter().filter(|(name, _)| graph.find_input(name).is_some()) {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
            given.insert(name.into(), DeviceTensor::new(cpu, &[numbers.len()], &bytes)?);
        }
        Ok(Self { session, program, given })
    }

    /// Milliseconds of a run.
    fn time(&mut self) -> Result<f64, Failure> {
        let begin = Instant::now();
        self.session.run(self.program, &self.given)?;
        self.session.device().sync()?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    }
}

/// Numbers between -1 and 1 for every input of f32.
fn floats(cpu: &Cpu, graph: &Graph) -> Result<Tensors, Failure> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let mut given = Tensors::new();
    for (name, id) in graph.inputs().filter(|(_, id)| graph.ty(*id).dtype == Dtype::F32) {
        let shape: Vec<usize> =
            graph.ty(id).shape.iter().filter_map(Dim::as_fixed).map(|size| size as usize).collect();
        let bytes: Vec<u8> = (0..shape.iter().product()).flat_map(|_: usize| next().to_ne_bytes()).collect();
        given.insert(name.to_owned(), DeviceTensor::new(cpu, &shape, &bytes)?);
    }
    Ok(given)
}

// ---- times

/// A request in the way of a back end.
type Job<'j> = (Way, &'j Request, &'j Sizes, &'j [i32]);

/// Medians in milliseconds of two that take turns.
fn in_turns(cpu: &Cpu, jobs: [Job<'_>; 2]) -> Result<[f64; 2], Failure> {
    let [a, b] = jobs.map(|(way, request, sizes, documents)| Runs::new(cpu, way, request, sizes, documents));
    let mut runs = [a?, b?];
    let mut times = [vec![], vec![]];
    for turn in 0..=RUNS {
        for (runs, times) in runs.iter_mut().zip(&mut times) {
            let time = runs.time()?;
            if turn > 0 {
                times.push(time);
            }
        }
    }
    Ok(times.map(median))
}

fn time(run: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    run();
    begin.elapsed().as_secs_f64() * 1e3
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn say(what: &str, (slow, slow_time): (&str, f64), (fast, fast_time): (&str, f64)) {
    println!(
        "{what}: {slow} {slow_time:.1} ms, {fast} {fast_time:.1} ms, {:.2} times as fast",
        slow_time / fast_time
    );
}
