//! A Llama with an adapter, trained twice by the trainer's own loop: with all logits at once, and in chunks.
//!
//! The model is small and drawn, or a reader's own checkpoint. An attempt at C that is right compiles the drawn one and
//! its chunks as well.
//!
//! A large model amplifies each rounding from step to step: its losses are held against those of a third run, with all
//! logits, whose adapter begins one ulp away.

use challenges::graph::Compile;
use challenges::loss::Chunked;
use challenges::loss::run::Size;
use challenges::train::chunked::{InChunks, Total, causal};
use challenges::train::{Engine, Machine, Microbatch};
use challenges::{graph, nf4};
use kernels::Cpu;
use reference::graph::Array;
use reference::graph::interpret::Values;
use reference::loss::IGNORED;

use crate::compare::describe;
use crate::gather::{Child, Effort, Unwound, caught};
use crate::graph::model::{Model, Sizes};
use crate::random::Random;
use crate::scorecard::Measurement;

pub(super) const STEPS: usize = 40;
const LENGTH: usize = 64;
/// Sequences that take turns.
const BATCHES: usize = 2;
/// Rows of a chunk: 62 count, so the last chunk has two.
const ROWS: usize = 10;
const RATE: f64 = 2e-3;
/// Of a reader's own model: that of the published runs. At ten times the rate a Llama of 1B makes of a rounding, within
/// 20 steps, a tenth of its loss.
const OWN_RATE: f64 = 2e-4;
const LLAMA: Sizes = Sizes { layers: 3, hidden: 64, heads: 4, vocab: 512 };

/// Runs both and reports both series.
pub(super) fn run(child: &mut Child, attempt: &dyn Chunked) {
    let effort = child.request.effort.clone();
    let run = || both(attempt, &graph::Solution, &effort);
    let Some(series) = series(child, "loss.training", run) else { return };
    let number = |value: f64, unit: &str, samples: &[f64]| Measurement {
        value,
        unit: unit.into(),
        interval: None,
        samples: samples.to_vec(),
    };
    let Series { losses, own } = series;
    child.measured("loss.training", number(apart(&losses), "relative", &[]));
    if let Some(Own { parameters, .. }) = own {
        child.measured("loss.training.parameters", number(parameters as f64, "count", &[]));
    }
    let ulp = own.map(|own| own.ulp_away);
    for (name, samples) in ["whole", "chunked", "ulp"].into_iter().zip(losses.iter().chain(&ulp)) {
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
    let effort = Effort { model: None, ..child.request.effort.clone() };
    let of = |own| series(child, OWN, || both(attempt, own, &effort));
    if let Some(series) = right.and_then(of) {
        child.measured(OWN, number(apart(&series.losses), "relative"));
    }
}

/// The losses of a run whose chunks the attempt's own compiler compiled, against those of the whole run.
const OWN: &str = "loss.training.own";

/// The losses before each update, with all logits and in chunks.
struct Series {
    losses: [Vec<f64>; 2],
    own: Option<Own>,
}

/// What a reader's own model has beside.
struct Own {
    parameters: usize,
    ulp_away: Vec<f64>, // the losses with all logits of an adapter that begins one ulp away
}

/// What a run gives; or what stood in the way is reported under a name.
fn series(child: &mut Child, name: &str, run: impl FnOnce() -> Result<Series, String>) -> Option<Series> {
    match caught(run) {
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
    let mut random = Random::named(effort.seed, "training");
    let batches: Vec<Microbatch> = (0..BATCHES).map(|_| drawn(&model, &mut random)).collect();
    let batches: Vec<&Microbatch> = batches.iter().cycle().take(STEPS).collect();
    // The mean, whose seeds depend on the tokens that count: an attempt that takes each chunk's own is seen.
    let causal = causal(&model.spec, Total::Mean).map_err(describe)?;
    let chunks = InChunks { attempt, causal: &causal, size: Size::Rows(ROWS) };
    let start = model.adapter();
    let rate = if own.is_some() { OWN_RATE } else { RATE };
    let batches = (batches.as_slice(), rate);
    let whole = train(&model, &graph::Solution, None, batches, &start)?;
    let chunked = train(&model, passes, Some(&chunks), batches, &start)?;
    let beside = || {
        let ulp_away = train(&model, &graph::Solution, None, batches, &next_floats(&start))?;
        Ok::<Own, String>(Own { parameters: model.parameters(), ulp_away })
    };
    Ok(Series { losses: [whole, chunked], own: own.map(|_| beside()).transpose()? })
}

/// Each number's neighbour, away from 0.
fn next_floats(values: &Values<f32>) -> Values<f32> {
    let next = |value: &Array<f32>| {
        let numbers = value.as_floats().iter().map(|x| f64::from(f32::from_bits(x.to_bits() + 1)));
        Array::floats(value.dtype, &value.shape, numbers)
    };
    values.iter().map(|(name, value)| (name.clone(), next(value))).collect()
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
    (batches, rate): (&[&Microbatch], f64),
    adapter: &Values<f32>,
) -> Result<Vec<f64>, String> {
    let device = Cpu::with_threads(2);
    let on = Machine { passes, device: &device, dequantizer: &nf4::DEQUANTIZER };
    let weights = model.upload_weights(&device)?;
    let engine = Engine::new(on, weights, model.spec.clone(), &Model::recipe(), adapter, loss);
    let mut engine = engine.map_err(describe)?;
    let counted = |batch: &Microbatch| batch.labels.iter().skip(1).filter(|label| **label != IGNORED).count();
    let step = |(number, batch): (u64, &&Microbatch)| {
        let logged = engine.microbatch(batch, counted(batch) as u64, [0; 2]).map_err(describe)?;
        engine.update(number, rate).map_err(describe)?;
        Ok(logged.loss)
    };
    (1..).zip(batches).map(step).collect()
}
