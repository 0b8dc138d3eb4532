//! Runs the chunked loss for a peer that times it in turns with its own: `tests/peers/loss_cpu.py` starts it.
//!
//!     chunked FOLDER ROWS WIDTH VOCAB SIZE TRAINED
//!
//! The folder holds `hidden`, `weight` (f32) and `labels` (i32), as they lie in memory. For each line on standard input
//! it computes the mean cross entropy with its gradients, `SIZE` rows at a time, and prints the milliseconds, the loss
//! and the norm of each gradient.

extern crate solutions as _; // what `Solution` calls

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use challenges::graph;
use challenges::loss::run::{Hidden, Job, Results, Runner, Size};
use challenges::loss::{Problem, Solution, Trains, losses};
use compiler::session::DeviceTensor;
use kernels::{Buffer, Cpu};
use reference::graph::Dtype;
use reference::loss::{CrossEntropy, Head, Reduction};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, numbers @ ..] = &arguments[..] else { return Err("chunked: no folder is named".into()) };
    let numbers: Vec<usize> = numbers.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [rows, width, vocab, size, trained] = numbers[..] else {
        return Err("chunked: expected five numbers after the folder".into());
    };
    let device = Cpu::new();
    let read = |name: &str, shape: &[usize]| -> Result<DeviceTensor, Failure> {
        let path = Path::new(folder).join(name);
        Ok(DeviceTensor::new(&device, shape, &std::fs::read(path)?)?)
    };
    let hidden = read("hidden", &[rows, width])?.buffer;
    let weight = read("weight", &[vocab, width])?;
    let given = BTreeMap::from([("weight".into(), weight), ("labels".into(), read("labels", &[rows])?)]);
    let problem = problem(width, vocab, trained == 1)?;
    let counts = vec![true; rows];
    let mut runner = Runner::new(&device, &graph::Solution, &Solution, &problem);
    for line in std::io::stdin().lines() {
        line?;
        let hidden = Hidden::Borrowed(&hidden);
        let (size, so_far) = (Size::Rows(size), BTreeMap::new());
        let start = Instant::now();
        let results =
            runner.run(Job { hidden, given: &given, counts: &counts, upstream: None, size, so_far })?;
        println!("{} {}", start.elapsed().as_secs_f64() * 1e3, describe(&results));
    }
    Ok(())
}

/// The mean cross entropy of an f32 head.
fn problem(width: usize, vocab: usize, weight: bool) -> Result<Problem, Failure> {
    let (loss, head) = (CrossEntropy::default(), Head::default());
    let loss = losses::cross_entropy(loss, head, vocab, false, Reduction::Mean)?;
    let trains = Trains { hidden: true, weight, bias: false };
    Ok(Problem { loss, width, vocab, dtype: Dtype::F32, accumulate_dtype: Dtype::F32, bias: false, trains })
}

/// The loss, then each gradient's norm, hidden first.
fn describe(results: &Results) -> String {
    let norm = |gradient: &Buffer| {
        let squares = gradient.view::<f32>().iter().map(|x| f64::from(*x).powi(2));
        squares.sum::<f64>().sqrt().to_string()
    };
    let norms = results.gradients.values().map(norm);
    results.loss.iter().map(f32::to_string).chain(norms).collect::<Vec<_>>().join(" ")
}
