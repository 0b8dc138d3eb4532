//! A Llama with an adapter, trained twice by the trainer's own loop: with all logits at once, and in chunks.
//!
//! The model is small and drawn, on a card as large as Llama 3.2 1B, or a reader's own checkpoint. An attempt at C
//! that is right compiles the small one and its chunks as well.
//!
//! A large model amplifies each rounding from step to step: its losses are held against those of a third run, with all
//! logits, whose adapter begins one ulp away.

use challenges::graph::Compile;
use challenges::loss::Chunked;
use challenges::loss::run::Size;
use challenges::train::chunks::{InChunks, Total, causal};
use challenges::train::{Activations, Machine, Microbatch, Replica};
use challenges::{graph, nf4};
use reference::graph::interpret::Values;
use reference::loss::IGNORED;

use crate::compare::describe;
use crate::device::Processor;
use crate::gather::{Child, Effort, Unwound, caught};
use crate::graph::model::{Model, Sizes, llama_1b};
use crate::random::Random;
use crate::scorecard::Measurement;

/// Steps of a run: on a CPU, and on a card as many as were published.
pub(super) const STEPS: [usize; 2] = [40, 25];
const LENGTH: usize = 64;
/// Sequences that take turns.
const BATCHES: usize = 2;
/// Rows of a chunk: 62 count, so the last chunk has two.
const ROWS: usize = 10;
const RATE: f64 = 2e-3;
/// Of a large model: that of the published runs. At ten times the rate a Llama of 1B makes of a rounding, within
/// 20 steps, a tenth of its loss.
const LARGE_RATE: f64 = 2e-4;
const LLAMA: Sizes = Sizes { layers: 3, hidden: 64, heads: 4, vocab: 512 };

/// What is trained, and where.
struct Run<'a> {
    attempt: &'a dyn Chunked,
    passes: &'a dyn Compile,
    processor: Processor,
    model: Model,
    is_large: bool,
    seed: u64,
}

impl<'a> Run<'a> {
    /// The small model.
    fn small(
        attempt: &'a dyn Chunked,
        passes: &'a dyn Compile,
        processor: Processor,
        seed: u64,
    ) -> Result<Self, String> {
        Ok(Self { attempt, passes, processor, model: Model::drawn(LLAMA, seed)?, is_large: false, seed })
    }

    /// The model that an effort asks for.
    fn of(attempt: &'a dyn Chunked, processor: Processor, effort: &Effort) -> Result<Self, String> {
        let (passes, seed) = (&graph::Solution, effort.seed);
        let model = match effort.model.as_deref() {
            Some(own) => Model::open(own, seed)?,
            None if processor.is_card() && !effort.quick => Model::of_config(llama_1b(), seed)?,
            None => return Self::small(attempt, passes, processor, seed),
        };
        Ok(Self { attempt, passes, processor, model, is_large: true, seed })
    }
}

/// Runs both and reports both series.
pub(super) fn run(child: &mut Child, processor: Processor, attempt: &dyn Chunked) {
    let effort = child.request.effort.clone();
    let run = || Run::of(attempt, processor, &effort)?.both();
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
pub(super) fn run_compiled_by(
    child: &mut Child,
    processor: Processor,
    attempt: &dyn Chunked,
    own: Option<&dyn Compile>,
) {
    let number =
        |value: f64, unit: &str| Measurement { value, unit: unit.into(), interval: None, samples: vec![] };
    let seed = child.request.effort.seed;
    let right = own.filter(|own| crate::graph::wrong(*own, processor, seed).is_none());
    child.measured("loss.compiler", number(f64::from(u8::from(right.is_some())), "count"));
    let of = |own| series(child, OWN, || Run::small(attempt, own, processor, seed)?.both());
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

/// What a large model has beside.
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

impl Run<'_> {
    fn both(&self) -> Result<Series, String> {
        let model = &self.model;
        let mut random = Random::named(self.seed, "training");
        let batches: Vec<Microbatch> = (0..BATCHES).map(|_| drawn(model, &mut random)).collect();
        let steps = STEPS[usize::from(self.processor.is_card())];
        let batches: Vec<&Microbatch> = batches.iter().cycle().take(steps).collect();
        // The mean, whose seeds depend on the tokens that count: an attempt that takes each chunk's own is seen.
        let causal = causal(&model.spec, Total::Mean).map_err(describe)?;
        let chunks = InChunks { attempt: self.attempt, causal: &causal, size: Size::Rows(ROWS) };
        let start = model.adapter();
        let whole = self.train(&graph::Solution, None, &batches, &start)?;
        let chunked = self.train(self.passes, Some(&chunks), &batches, &start)?;
        let beside = || {
            let ulp_away = self.train(&graph::Solution, None, &batches, &model.adapter_one_ulp_away())?;
            Ok::<Own, String>(Own { parameters: model.parameters(), ulp_away })
        };
        Ok(Series { losses: [whole, chunked], own: self.is_large.then(beside).transpose()? })
    }

    /// The loss before each update.
    fn train(
        &self,
        passes: &dyn Compile,
        loss: Option<&InChunks<'_>>,
        batches: &[&Microbatch],
        adapter: &Values<f32>,
    ) -> Result<Vec<f64>, String> {
        let Self { model, processor, is_large, .. } = self;
        let device = processor.checked();
        let on = Machine { passes, device: &*device, dequantizer: &nf4::DEQUANTIZER };
        let weights = model.upload_weights(&*device)?;
        let engine =
            Replica::new(on, weights, model.spec.clone(), &Model::recipe(), adapter, loss, Activations::Kept);
        let mut engine = engine.map_err(describe)?;
        let counts = |label: &&i32| **label != IGNORED;
        let counted = |batch: &Microbatch| batch.labels.iter().skip(1).filter(counts).count();
        let rate = if *is_large { LARGE_RATE } else { RATE };
        let step = |(number, batch): (u64, &&Microbatch)| {
            let logged = engine.microbatch(batch, counted(batch) as u64, [0; 2]).map_err(describe)?;
            engine.update(number, rate).map_err(describe)?;
            Ok(logged.loss)
        };
        (1..).zip(batches).map(step).collect()
    }
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
        targets: Vec::new(),
        positions: (0..length as i32).collect(),
        documents: vec![1; length],
        images: None,
    }
}
