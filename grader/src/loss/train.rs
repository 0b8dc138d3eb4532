//! A small Llama with an adapter, trained twice for 40 steps: with the loss in the one graph of the step, and chunked.
//!
//! Chunked, a step is three parts: the hidden states, the chunked loss with their gradient, and the step of the model
//! for that gradient, which computes the states once more. An attempt at C that is right compiles the chunks as well.

use challenges::graph::Compile;
use challenges::loss::run::Size;
use challenges::loss::{Chunked, Problem, Trains};
use challenges::train::{ChunkedLoss, Trainer};
use challenges::{graph, nf4};
use compiler::session::Settings;
use kernels::Cpu;
use reference::graph::interpret::Values;
use reference::graph::{Dtype, interpret};
use reference::loss::Reduction;

use super::checks::plain;
use crate::compare::describe;
use crate::gather::{Child, Unwound, caught};
use crate::graph::model::{Model, Sizes};
use crate::random::Random;
use crate::scorecard::Measurement;

const STEPS: usize = 40;
const LENGTH: usize = 64;
/// Sequences that take turns.
const BATCHES: usize = 2;
/// Rows of a chunk: 62 count, so the last chunk has two.
const ROWS: usize = 10;
const RATE: f64 = 2e-3;
const LLAMA: Sizes = Sizes { layers: 3, hidden: 64, heads: 4, vocab: 512 };

/// Runs both and reports both series.
pub(super) fn run(child: &mut Child, attempt: &dyn Chunked) {
    let Some(series) = series(child, "loss.training", attempt, &graph::Solution) else { return };
    let number = |value: f64, unit: &str, samples: &[f64]| Measurement {
        value,
        unit: unit.into(),
        interval: None,
        samples: samples.to_vec(),
    };
    child.measured("loss.training", number(apart(&series), "relative", &[]));
    for (name, samples) in ["whole", "chunked"].into_iter().zip(&series) {
        if let Some(last) = samples.last().filter(|_| samples.iter().all(|loss| loss.is_finite())) {
            child.measured(&format!("loss.training.{name}"), number(*last, "nats", samples));
        }
    }
}

/// The same once more with the attempt at C that belongs to this one, if there is one that is right.
pub(super) fn run_compiled_by(child: &mut Child, attempt: &dyn Chunked, own: Option<&dyn Compile>) {
    let number =
        |value: f64, unit: &str| Measurement { value, unit: unit.into(), interval: None, samples: vec![] };
    let seed = child.request.effort.seed;
    let right = own.filter(|own| crate::graph::wrong(*own, seed).is_none());
    child.measured("loss.compiler", number(f64::from(u8::from(right.is_some())), "count"));
    if let Some(series) = right.and_then(|own| series(child, OWN, attempt, own)) {
        child.measured(OWN, number(apart(&series), "relative"));
    }
}

/// The losses of a run whose chunks the attempt's own compiler compiled, against those of the whole run.
const OWN: &str = "loss.training.own";

/// Both series; or what stood in the way is reported under a name.
fn series(
    child: &mut Child,
    name: &str,
    attempt: &dyn Chunked,
    passes: &dyn Compile,
) -> Option<[Vec<f64>; 2]> {
    let seed = child.request.effort.seed;
    match caught(|| both(attempt, passes, seed)) {
        Ok(Ok(series)) => return Some(series),
        Ok(Err(reason)) | Err(Unwound::Panic(reason)) => child.unmeasured(name, &reason),
        Err(Unwound::Hole(hole)) => child.unmeasured(name, &format!("not written yet: {hole}")),
    }
    None
}

/// The largest difference, as a part of the loss.
pub(crate) fn apart([whole, chunked]: &[Vec<f64>; 2]) -> f64 {
    let apart = whole.iter().zip(chunked).map(|(whole, chunked)| ((chunked - whole) / whole).abs());
    let apart = apart.fold(0.0, |largest: f64, x| if x.is_nan() { f64::INFINITY } else { largest.max(x) });
    apart.min(f64::MAX)
}

/// The losses before each update: with all logits, and chunked.
fn both(attempt: &dyn Chunked, passes: &dyn Compile, seed: u64) -> Result<[Vec<f64>; 2], String> {
    let model = Model::drawn(LLAMA, seed)?;
    let mut random = Random::named(seed, "training");
    let batches: Vec<Values<f32>> = (0..BATCHES).map(|_| model.tokens(LENGTH, &mut random)).collect();
    Ok([whole(&model, &batches)?, chunked(&model, &batches, attempt, passes)?])
}

fn whole(model: &Model, batches: &[Values<f32>]) -> Result<Vec<f64>, String> {
    let device = Cpu::with_threads(2);
    let step = Model::step(model.spec.training_loss().map_err(describe)?)?;
    let (start, settings) = (model.start(&step), Settings { exact: true, ..Settings::default() });
    let trainer = Trainer::whole(&graph::Solution, &device, &nf4::DEQUANTIZER, settings, &step, &start)
        .map_err(describe)?;
    train(trainer, batches)
}

fn chunked(
    model: &Model,
    batches: &[Values<f32>],
    attempt: &dyn Chunked,
    passes: &dyn Compile,
) -> Result<Vec<f64>, String> {
    let device = Cpu::with_threads(2);
    let config = &model.spec.config;
    let problem = Problem {
        loss: plain(config.vocab, Reduction::Mean)?,
        width: config.hidden,
        vocab: config.vocab,
        dtype: Dtype::F32,
        accumulate_dtype: Dtype::F32,
        bias: false,
        trains: Trains { hidden: true, weight: false, bias: false },
    };
    let step = Model::step(model.spec.surrogate_loss().map_err(describe)?)?;
    let mut start = model.start(&step);
    let states = model.spec.hidden_states().map_err(describe)?;
    let head = interpret(&model.spec.output_layer().map_err(describe)?, &start).map_err(describe)?;
    let weight = head.first().ok_or("there is no output layer")?;
    let size = Size::Rows(ROWS);
    let loss =
        ChunkedLoss { attempt, passes, problem: &problem, states: &states, weight, length: LENGTH, size };
    start.remove("hidden.grad");
    let settings = Settings { exact: true, ..Settings::default() };
    let solution = &graph::Solution;
    let trainer = Trainer::chunked(solution, &device, &nf4::DEQUANTIZER, settings, &step, &start, &loss);
    train(trainer.map_err(describe)?, batches)
}

/// The loss before each update.
fn train(mut trainer: Trainer<'_>, batches: &[Values<f32>]) -> Result<Vec<f64>, String> {
    let step = |number: usize| {
        let mut batch = batches[number % batches.len()].clone();
        batch.append(&mut Model::recipe().optimizer.rates(number as u64 + 1, RATE));
        trainer.step(&batch).map_err(describe)
    };
    (0..STEPS).map(step).collect()
}
