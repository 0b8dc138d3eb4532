//! Times the back ends of attention on this machine's CPU, f32, in turns.
//!
//!     attend > book/src/results/attention-cpu.txt
//!     attend parts > book/src/results/attention-cpu-parts.csv
//!
//! - every score in memory against tile by tile: 2,048 tokens, 8 heads of 64, causal, forward and backward;
//! - full causal against a window of 256: 4,096 tokens, the same heads;
//! - rows of drawn lengths: padded, with the padding computed along or left out by a mask; packed, from padded rows or
//!   handed in end to end;
//! - one token against a cache of 4,096 keys, of as many heads and of a quarter, and a read of as many bytes by the
//!   same threads: each time others, so that none is in the processor's own caches.
//!
//! The first run of each compiles and is left out. What is printed are medians, and the quotient of medians.
//!
//! `parts` prints where the time of a run goes, by the kind of a launch, for every way.

extern crate solutions as _; // what `Solution` calls

use std::collections::BTreeMap;
use std::time::Instant;

use challenges::graph;
use challenges::issues::attention::backends::{Shape, graph as write};
use challenges::issues::attention::{Attend, Feature, Request, Rules, Sizes, Solution, Way};
use challenges::nf4::DEQUANTIZER;
use compiler::session::{DeviceTensor, Io, Program, Session, Settings};
use kernels::cpu::stream;
use kernels::plan::Step;
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
const ROWS: usize = 32;
const LONGEST: usize = 1024;

/// Bytes of keys and values between two reads of the same: more than a processor's caches hold.
const FAR: usize = 256 << 20;

/// Rows of the batch whose parts are timed: every score of its heads is in memory once.
const FEW_ROWS: usize = 8;

/// Kinds of launches.
const KINDS: [&str; 4] = ["product", "program", "attention", "scatter"];

const CAUSAL: Rules = Rules { causal: true, window: None, prefix: None, documents: false };

fn main() -> Result<(), Failure> {
    let cpu = Cpu::new();
    match std::env::args().nth(1).as_deref() {
        None => times(&cpu),
        Some("parts") => parts(&cpu),
        Some(other) => Err(format!("expected nothing or `parts`, found `{other}`").into()),
    }
}

fn times(cpu: &Cpu) -> Result<(), Failure> {
    println!("{}, f32, {HEADS} heads of {DEPTH}; medians of {RUNS} runs in turns", cpu.identity());
    tiles(cpu)?;
    window(cpu)?;
    documents(cpu)?;
    decode(cpu, HEADS)?;
    decode(cpu, HEADS / 4)
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
    let Padded { lengths, sizes, request, documents, row, of_row } = padded(ROWS);
    let along = trained(CAUSAL);
    let [along, masked, packed, joined] = in_turns(
        cpu,
        [
            (Way::Tiled, &along, &sizes, &[][..]),
            (Way::Tiled, &request, &sizes, &documents),
            (Way::Packed, &request, &sizes, &documents),
            (Way::Tiled, &request, &row, &of_row),
        ],
    )?;
    let [least, most] = [lengths.iter().min(), lengths.iter().max()].map(|length| length.unwrap_or(&0));
    let (slots, filled) = (documents.len(), row.keys);
    println!(
        "{ROWS} rows of {least} to {most} tokens, {filled} of {slots} slots filled, forward and backward:"
    );
    println!("    padded, the padding computed along   {along:6.1} ms");
    println!("    padded, the padding masked           {masked:6.1} ms");
    println!("    padded, packed and unpacked          {packed:6.1} ms");
    println!(
        "    handed in as one row, end to end     {joined:6.1} ms, {:.2} times as fast as the first",
        along / joined
    );
    Ok(())
}

/// Where the time of a run goes: forward and backward over rows of drawn lengths, and one token against a cache.
fn parts(cpu: &Cpu) -> Result<(), Failure> {
    println!(
        "# {}, f32, {HEADS} heads of {DEPTH}: milliseconds of a run by kind of launch, medians of {RUNS}.",
        cpu.identity()
    );
    println!(
        "# {FEW_ROWS} rows of {LONGEST} or fewer tokens, causal, forward and backward; but for the split: one token"
    );
    println!("# against 4096 keys. `attend parts` writes this file.");
    println!("way,{}", KINDS.join(","));
    let Padded { sizes, request, documents, row, of_row, .. } = padded(FEW_ROWS);
    let (one, decoding) = decoding(HEADS);
    let jobs: [(&str, Job); 5] = [
        ("expanded", (Way::Expanded, &request, &sizes, &documents)),
        ("tiled", (Way::Tiled, &request, &sizes, &documents)),
        ("packed", (Way::Packed, &request, &sizes, &documents)),
        ("tiled, end to end", (Way::Tiled, &request, &row, &of_row)),
        ("split one token", (Way::Split, &decoding, &one, &[])),
    ];
    for (name, job) in jobs {
        let times = Runs::new(cpu, job, 1)?.parts()?.map(|time| format!("{time:.3}"));
        println!("{},{}", name.replace(", ", " "), times.join(","));
    }
    Ok(())
}

/// One token against 4,096 keys.
fn decoding(groups: usize) -> (Sizes, Request) {
    let sizes = Sizes { groups, queries: 1, ..square(1, 4096) };
    let mut more = vec![Feature::ShortQueries, Feature::Decoding];
    more.extend((groups < HEADS).then_some(Feature::GroupedHeads));
    let offset = sizes.keys - 1;
    (sizes, Request { scale: scale(), offset, rules: CAUSAL, more, ..Request::default() })
}

/// One token, whose time is that of reading the cache.
fn decode(cpu: &Cpu, groups: usize) -> Result<(), Failure> {
    let (sizes, request) = decoding(groups);
    let bytes = 2 * groups * sizes.keys * DEPTH * size_of::<f32>(); // k and v
    let caches = FAR / bytes;
    let mut runs = Runs::new(cpu, (Way::Split, &request, &sizes, &[]), caches)?;
    let (all, mut out) = (vec![1_u8; caches * bytes], vec![0; 1 << 11]); // almost nothing is written
    let mut times = [vec![], vec![]];
    for run in 0..=SHORT_RUNS {
        let of_run = [runs.time()?, time(|| stream(cpu, &all[run % caches * bytes..][..bytes], &mut out))];
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

/// Rows of drawn lengths, one of them the longest: padded, and end to end.
struct Padded {
    lengths: Vec<usize>,
    sizes: Sizes,
    request: Request,
    documents: Vec<i32>,
    row: Sizes,
    of_row: Vec<i32>,
}

fn padded(rows: usize) -> Padded {
    let lengths = lengths(rows);
    let document = |token: usize| i32::from(token % LONGEST < lengths[token / LONGEST]);
    let of_row = (1..).zip(&lengths).flat_map(|(document, length)| std::iter::repeat_n(document, *length));
    Padded {
        sizes: square(rows, LONGEST),
        request: trained(Rules { documents: true, ..CAUSAL }),
        documents: (0..rows * LONGEST).map(document).collect(),
        row: square(1, lengths.iter().sum()),
        of_row: of_row.collect(),
        lengths,
    }
}

fn lengths(rows: usize) -> Vec<usize> {
    let mut state = 3_u64;
    let mut drawn = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        64 + (state >> 33) as usize % (LONGEST - 64)
    };
    std::iter::once(LONGEST).chain((1..rows).map(|_| drawn())).collect()
}

/// What is timed.
struct Runs<'a> {
    session: Session<'a>,
    program: Program,
    given: Vec<Tensors>, // taken in turn
    turn: usize,
}

impl<'a> Runs<'a> {
    /// A request with `sets` of tensors.
    fn new(cpu: &'a Cpu, (way, request, sizes, documents): Job<'_>, sets: usize) -> Result<Self, Failure> {
        let packing = (way == Way::Packed).then(|| Solution.pack(documents, sizes.keys));
        let tokens = packing.as_ref().map_or(0, |packing| packing.tokens.len());
        let graph = write(way, request, &Solution, &Shape::of(*sizes, tokens, Dtype::F32))?;
        let mut session = Session::new(&graph::Solution, cpu, &DEQUANTIZER, Settings::default());
        let program = session.load(&graph)?;
        let mut given = (0..sets).map(|_| floats(cpu, &graph)).collect::<Result<Vec<_>, _>>()?;
        let packing = packing.unwrap_or_default();
        let whole = [("documents", documents), ("tokens", &packing.tokens), ("packed", &packing.documents)];
        for (name, numbers) in whole.into_iter().filter(|(name, _)| graph.find_input(name).is_some()) {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
            for given in &mut given {
                given.insert(name.into(), DeviceTensor::new(cpu, &[numbers.len()], &bytes)?);
            }
        }
        Ok(Self { session, program, given, turn: 0 })
    }

    /// Milliseconds of a run.
    fn time(&mut self) -> Result<f64, Failure> {
        self.turn = (self.turn + 1) % self.given.len();
        let begin = Instant::now();
        self.session.run(self.program, &self.given[self.turn])?;
        self.session.device().sync()?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    }

    /// Milliseconds of a run by kind of launch.
    fn parts(&mut self) -> Result<[f64; KINDS.len()], Failure> {
        let mut all = [(); KINDS.len()].map(|()| vec![]);
        for run in 0..=RUNS {
            let times = self.session.profile(self.program, &self.given[0])?;
            let compiled = self.session.compiled(self.program, &Io::from(&self.given[0]))?;
            let kinds = || compiled.plan().steps.iter().map(kind);
            let of = |kind: usize| {
                let own = kinds().zip(&times).filter(|(own, _)| *own == kind);
                own.map(|(_, time)| time.as_secs_f64() * 1e3).sum::<f64>() + 0.0 // an empty sum is -0
            };
            if run > 0 {
                all.iter_mut().enumerate().for_each(|(kind, all)| all.push(of(kind)));
            }
        }
        Ok(all.map(median))
    }
}

/// The kind of a launch, as its place in [`KINDS`].
fn kind(step: &Step) -> usize {
    let name = match step {
        Step::Attention { .. } | Step::AttentionGrad(_) => "attention",
        Step::Product(_) => "product",
        Step::Scatter { .. } => "scatter",
        _ => "program",
    };
    KINDS.iter().position(|kind| *kind == name).unwrap_or_default()
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

/// Medians in milliseconds of some that take turns.
fn in_turns<const N: usize>(cpu: &Cpu, jobs: [Job<'_>; N]) -> Result<[f64; N], Failure> {
    let mut runs = jobs.into_iter().map(|job| Runs::new(cpu, job, 1)).collect::<Result<Vec<_>, _>>()?;
    let mut times = [(); N].map(|()| vec![]);
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
