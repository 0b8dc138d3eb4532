//! Times DPO with a trained head, in one pass over chunks of whole pairs and in two passes over chunks of as
//! many rows.
//!
//!     passes > book/src/results/loss-passes.txt
//!
//! Both compute the same loss of the same rows. The one of two passes has seeds that ask for every row's value, times
//! 0; so no chunk but one of all rows knows its seeds. They take turns, and the first run of each, which compiles, is
//! left out.

extern crate solutions as _; // what `Solution` calls

use std::collections::BTreeMap;
use std::time::Instant;

use challenges::graph;
use challenges::loss::losses::Answers;
use challenges::loss::run::{Hidden, Job, Results, Runner, Size};
use challenges::loss::{Chunked, Cost, Loss, Problem, Sampled, Solution, Trains};
use compiler::session::DeviceTensor;
use kernels::{Buffer, Cpu};
use reference::graph::{Builder, Dtype, Error, Graph, Tensor};
use reference::loss::{Dpo, Policy, Reduction};

type Failure = Box<dyn std::error::Error>;

const ANSWERS: Answers = Answers { count: 16, length: 32, vocab: 16_384 };
const ROWS: usize = ANSWERS.count * ANSWERS.length;
const WIDTH: usize = 512;
const CHUNK: usize = 64;
const RUNS: usize = 10;

fn main() -> Result<(), Failure> {
    let device = Cpu::new();
    let loss = ANSWERS.dpo(Dpo { beta: 0.1, label_smoothing: 0.0 }, Reduction::Mean)?;
    let trains = Trains { hidden: true, weight: true, bias: false };
    let (dtype, vocab) = (Dtype::F32, ANSWERS.vocab);
    let problem =
        Problem { loss, width: WIDTH, vocab, dtype, accumulate_dtype: Dtype::F32, bias: false, trains };
    let upload = |shape: &[usize], bytes: Vec<u8>| DeviceTensor::new(&device, shape, &bytes);
    let hidden = upload(&[ROWS, WIDTH], floats(ROWS * WIDTH, 1.0))?.buffer;
    let labels = (0..ROWS).flat_map(|row| ((row * 7919 % vocab) as i32).to_ne_bytes());
    let given = BTreeMap::from([
        ("weight".to_owned(), upload(&[vocab, WIDTH], floats(vocab * WIDTH, 0.1))?),
        ("labels".to_owned(), upload(&[ROWS], labels.collect())?),
        ("reference".to_owned(), upload(&[ANSWERS.count], floats(ANSWERS.count, 1.0))?),
    ]);
    let runner = |attempt| Runner::new(&device, &graph::Solution, attempt, &problem);
    let mut runners = [runner(&Solution), runner(&Coupled)];
    let run = |runner: &mut Runner<'_>| -> Result<(f64, usize, Results), Failure> {
        let (counts, size) = (&[true; ROWS][..], Size::Rows(CHUNK));
        let products = runner.plan(counts, size)?.graphs.passes.products();
        let hidden = Hidden::Borrowed(&hidden);
        let start = Instant::now();
        let so_far = BTreeMap::new();
        let results = runner.run(Job { hidden, given: &given, counts, upstream: None, size, so_far })?;
        Ok((start.elapsed().as_secs_f64() * 1e3, products, results))
    };
    let mut times = [vec![], vec![]];
    let mut last = vec![];
    for turn in 0..=RUNS {
        last.clear();
        for (runner, times) in runners.iter_mut().zip(&mut times) {
            let (time, products, results) = run(runner)?;
            if turn > 0 {
                times.push(time);
            }
            last.push((products, results));
        }
    }
    println!(
        "DPO with a trained head: {ROWS} rows, answers of {} tokens, hidden size {WIDTH}, {vocab} words, f32;",
        ANSWERS.length
    );
    println!("chunks of {CHUNK} rows, {RUNS} runs each in turns, milliseconds\n");
    for ((products, results), times) in last.iter().zip(&mut times) {
        let all = times.iter().map(|time| format!("{time:.0}")).collect::<Vec<_>>().join(" ");
        times.sort_by(f64::total_cmp);
        let median = f64::midpoint(times[RUNS / 2 - 1], times[RUNS / 2]);
        println!(
            "logits computed {products}x, {} chunks: median {median:.0}, all {all}",
            results.chunks.len()
        );
    }
    println!();
    for (name, one) in &last[0].1.gradients {
        let far = difference(one, &last[1].1.gradients[name]);
        println!("{name}: largest difference over the largest element {far:.1e}");
    }
    Ok(())
}

/// Numbers between -scale / 2 and scale / 2, the same ones on every machine.
fn floats(count: usize, scale: f32) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223); // Numerical Recipes, section 7.1
        ((state >> 8) as f32 / (1 << 24) as f32 - 0.5) * scale
    };
    (0..count).flat_map(|_| next().to_ne_bytes()).collect()
}

fn difference(a: &Buffer, b: &Buffer) -> f32 {
    let (a, b) = (a.view::<f32>(), b.view::<f32>());
    let largest = a.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    a.iter().zip(b).fold(0.0_f32, |far, (a, b)| far.max((a - b).abs())) / largest
}

/// The solution, with seeds that ask for the values of all rows.
struct Coupled;

impl Chunked for Coupled {
    fn seeds(&self, problem: &Problem) -> Result<Graph, Error> {
        let mut graph = Solution.seeds(problem)?;
        let Some(log_p) = graph.find_input("log_p") else { return Ok(graph) };
        let outputs = graph.outputs().to_vec();
        graph.clear_outputs();
        let builder = Builder::onto(graph);
        let nothing = &builder.tensor(log_p).total() * 0.0;
        for (name, id) in outputs {
            let seed = builder.tensor(id);
            builder.tape().output(&name, &(&seed + &nothing.spread(seed.shape())));
        }
        builder.finish()
    }

    fn log_sum_exp(&self, hidden: &Tensor, weight: &Tensor, stretch: usize) -> Tensor {
        Solution.log_sum_exp(hidden, weight, stretch)
    }

    fn cut(&self, counts: &[bool], size: usize) -> Vec<Vec<usize>> {
        Solution.cut(counts, size)
    }

    fn forward(&self, problem: &Problem) -> Result<Graph, Error> {
        Solution.forward(problem)
    }

    fn backward(&self, problem: &Problem) -> Result<Graph, Error> {
        Solution.backward(problem)
    }

    fn shift(&self, labels: &[i32], length: usize) -> Vec<i32> {
        Solution.shift(labels, length)
    }

    fn policy(&self, policy: &Policy, sampled: &Sampled) -> Result<Loss, Error> {
        Solution.policy(policy, sampled)
    }

    fn size(&self, costs: &[Cost], rows: usize, budget: usize) -> Option<usize> {
        Solution.size(costs, rows, budget)
    }
}
