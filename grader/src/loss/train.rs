//! A Llama with an adapter, trained twice by the trainer's own loop: with all logits at once, and in chunks.
//!
//! The model is small and drawn, or a reader's own checkpoint. An attempt at C that is right compiles model and chunks
//! as well.

use challenges::graph::Compile;
use challenges::loss::Chunked;
use challenges::loss::run::Size;
use challenges::train::chunked::{InChunks, causal};
use challenges::train::{Engine, Machine, Microbatch};
use challenges::{graph, nf4};
use kernels::Cpu;
use reference::graph::interpret::Values;
use reference::loss::IGNORED;

use crate::compare::describe;
use crate::gather::{Child, Effort, Unwound, caught};
use crate::graph::model::{Model, Sizes};
use crate::random::Random;
use crate::scorecard::Measurement;

/// Steps of a drawn model, and of a reader's own: so many has the run that was published.
const STEPS: usize = 40;
pub(super) const OWN_STEPS: usize = 25;
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
    let Series { parameters, losses } = series;
    child.measured("loss.training", number(apart(&losses), "relative", &[]));
    if let Some(parameters) = parameters {
        child.measured("loss.training.parameters", number(parameters as f64, "count", &[]));
    }
    for (name, samples) in ["whole", "chunked"].into_iter().zip(&losses) {
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
        child.measured(OWN, number(apart(&series.losses), "relative"));
    }
}

/// The losses of a run whose chunks the attempt's own compiler compiled, against those of the whole run.
const OWN: &str = "loss.training.own";

/// The losses before each update, with all logits and in chunks.
struct Series {
    parameters: Option<usize>, // of a reader's own model
    losses: [Vec<f64>; 2],
}

/// Both series; or what stood in the way is reported under a name.
fn series(child: &mut Child, name: &str, attempt: &dyn Chunked, passes: &dyn Compile) -> Option<Series> {
    let effort = child.request.effort.clone();
    match caught(|| both(attempt, passes, &effort)) {
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

fn both(attempt: &dyn Chunked, passes: &dyn Compile, effort: &Effort) -> Result<Series, String> {
    let own = effort.model.as_deref();
    let model = own.map_or_else(|| Model::drawn(LLAMA, effort.seed), |own| Model::open(own, effort.seed))?;
    let steps = if own.is_some() { OWN_STEPS } else { STEPS };
    let mut random = Random::named(effort.seed, "training");
    let batches: Vec<Microbatch> = (0..BATCHES).map(|_| drawn(&model, &mut random)).collect();
    let batches: Vec<&Microbatch> = batches.iter().cycle().take(steps).collect();
    let problem = causal(&model.spec.config, model.spec.compute).map_err(describe)?;
    let chunks = InChunks { attempt, problem: &problem, size: Size::Rows(ROWS) };
    let whole = train(&model, &graph::Solution, None, &batches)?;
    let chunked = train(&model, passes, Some(&chunks), &batches)?;
    Ok(Series { parameters: own.map(|_| model.parameters()), losses: [whole, chunked] })
}

/// A sequence whose first label, like one in its middle, is ignored.
fn drawn(model: &Model, random: &mut Random) -> Microbatch {
    let length = LENGTH.min(model.spec.config.positions);
    let mut draw = || (0..length).map(|_| random.below(model.spec.config.vocab) as i32).collect::<Vec<_>>();
    let (ids, mut labels) = (draw(), draw());
    labels[0] = IGNORED;
    labels[length / 2] = IGNORED;
    Microbatch {
        shape: [1, length],
        ids,
        labels,
        positions: (0..length as i32).collect(),
        documents: vec![1; length],
    }
}

/// The loss before each update.
fn train(
    model: &Model,
    passes: &dyn Compile,
    loss: Option<&InChunks<'_>>,
    batches: &[&Microbatch],
) -> Result<Vec<f64>, String> {
    let device = Cpu::with_threads(2);
    let on = Machine { passes, device: &device, dequantizer: &nf4::DEQUANTIZER };
    let (weights, adapter): (_, Values<f32>) = (model.upload_weights(&device)?, model.adapter());
    let engine = Engine::new(on, weights, model.spec.clone(), &Model::recipe(), &adapter, loss);
    let mut engine = engine.map_err(describe)?;
    let counted = |batch: &Microbatch| batch.labels.iter().skip(1).filter(|label| **label != IGNORED).count();
    let step = |(number, batch): (u64, &&Microbatch)| {
        let logged = engine.microbatch(batch, counted(batch) as u64, [0; 2]).map_err(describe)?;
        engine.update(number, RATE).map_err(describe)?;
        Ok(logged.loss)
    };
    (1..).zip(batches).map(step).collect()
}
