//! Times the chunked cross entropy of a bf16 head on a device, with its gradients: what `e_loss.py`, the peers' script,
//! times with torch and others.
//!
//!     loss DEVICE WIDTH frozen|trained MIB[,MIB..] [ROWS] [VOCAB]
//!
//! Chunks are of the rows that fit in so many MiB above inputs and gradients; 0 stands for all rows at once. A trained
//! head's gradient is added up in f32. ROWS are 8192 and VOCAB is 128256 where nothing else is asked for.

extern crate solutions as _; // what `Solution` calls

use std::collections::BTreeMap;
use std::time::Instant;

use challenges::graph;
use challenges::loss::run::{Hidden, Job, Results, Runner, Size};
use challenges::loss::{Problem, Solution, Trains, losses};
use compiler::session::DeviceTensor;
use half::bf16;
use kernels::{Device, Which};
use reference::graph::Dtype;
use reference::loss::{CrossEntropy, Head, Reduction};

type Failure = Box<dyn std::error::Error>;

/// Runs that are timed.
const RUNS: usize = 8;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, width, head, budgets, sizes @ ..] = &arguments[..] else {
        return Err("loss: expected a device, a width, frozen or trained, and budgets in MiB".into());
    };
    let is_trained = match &**head {
        "trained" => true,
        "frozen" => false,
        other => return Err(format!("loss: expected frozen or trained, found {other}").into()),
    };
    let size = |at: usize, or: usize| sizes.get(at).map_or(Ok(or), |text| text.parse());
    let (rows, vocab) = (size(0, 8192)?, size(1, 128_256)?);
    let device = device.parse::<Which>()?.open(|reason| eprintln!("on the CPU: {reason}"))?;
    let width = width.parse()?;
    let problem = problem(width, vocab, is_trained)?;
    println!("{rows} rows, hidden {width}, vocabulary {vocab}, {head} head, bf16, on {}", device.identity());
    let mut state = 88_172_645_463_325_252;
    let hidden = drawn(&*device, [rows, width], 1.7, &mut state)?;
    let weight = drawn(&*device, [vocab, width], 0.034, &mut state)?;
    let labels: Vec<u8> =
        (0..rows).flat_map(|_| ((next(&mut state) % vocab as u64) as i32).to_ne_bytes()).collect();
    let labels = DeviceTensor::new(&*device, &[rows], &labels)?;
    let given = BTreeMap::from([("weight".into(), weight), ("labels".into(), labels)]);
    for budget in budgets.split(',') {
        let size = match budget.parse()? {
            0 => Size::Rows(rows),
            budget => Size::Bytes(budget << 20_usize),
        };
        time(&*device, &problem, &hidden, &given, size)?;
    }
    Ok(())
}

/// The mean cross entropy of a head.
fn problem(width: usize, vocab: usize, is_trained: bool) -> Result<Problem, Failure> {
    let (loss, head) = (CrossEntropy::default(), Head::default());
    let loss = losses::cross_entropy(loss, head, vocab, false, Reduction::Mean)?;
    let trains = Trains { hidden: true, weight: is_trained, bias: false };
    let (dtype, accumulate_dtype) = (Dtype::Bf16, Dtype::F32);
    Ok(Problem { loss, width, vocab, dtype, accumulate_dtype, bias: false, trains })
}

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 24
}

/// Numbers between -most and most.
fn drawn(
    device: &dyn Device,
    shape: [usize; 2],
    most: f32,
    state: &mut u64,
) -> Result<DeviceTensor, Failure> {
    let number = |bits: u64| ((bits & 0xff_ffff) as f32 / (1 << 23) as f32 - 1.0) * most;
    let bytes: Vec<u8> =
        (0..shape[0] * shape[1]).flat_map(|_| bf16::from_f32(number(next(state))).to_ne_bytes()).collect();
    Ok(DeviceTensor::new(device, &shape, &bytes)?)
}

/// Times one size of chunk: the median of runs that are waited for.
fn time(
    device: &dyn Device,
    problem: &Problem,
    hidden: &DeviceTensor,
    given: &BTreeMap<String, DeviceTensor>,
    size: Size,
) -> Result<(), Failure> {
    let counts = vec![true; hidden.shape[0]];
    let mut runner = Runner::new(device, &graph::Solution, &Solution, problem);
    let rows = runner.size(size, counts.len())?;
    let mut run = || -> Result<Results, Failure> {
        let (size, so_far) = (Size::Rows(rows), BTreeMap::new());
        let hidden = Hidden::Borrowed(&hidden.buffer);
        Ok(runner.run(Job { hidden, given, counts: &counts, upstream: None, size, so_far })?)
    };
    let loss = run()?.loss[0];
    run()?; // what a card captures
    let mut times = Vec::new();
    for _ in 0..RUNS {
        device.sync()?;
        let begin = Instant::now();
        run()?;
        device.sync()?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let (median, least) = (times[RUNS / 2], times[0]);
    println!("  {rows} rows a chunk: median {median:.2} ms, least {least:.2}, loss {loss:.6}");
    Ok(())
}
