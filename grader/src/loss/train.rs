//! A small Llama with an adapter, trained twice for 40 steps: with the loss in the one graph of the step, and chunked.
//!
//! Chunked, a step is three parts: the hidden states, the chunked loss with their gradient, and the step of the model for
//! that gradient, which computes the states once more. An attempt at C that is right compiles the chunks as well.

use std::collections::BTreeMap;

use challenges::graph::Compile;
use challenges::loss::run::{Hidden, Job, Runner, Size};
use challenges::loss::{Chunked, Problem, Trains};
use challenges::{graph, nf4};
use compiler::compile::{Compiled, Level, Port, compile};
use compiler::executor::Given;
use kernels::{Buffer, Cpu, Device};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, Graph, interpret};
use reference::loss::{IGNORED, Reduction};

use super::checks::plain;
use crate::gather::{Child, Unwound, caught};
use crate::graph::model::{Model, Sizes, upload};
use crate::graph::{sizes, told};
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

/// A graph that is run again and again.
struct Part<'a> {
    device: &'a Cpu,
    graph: Graph,
    compiled: Compiled,
    arena: Buffer,
}

impl<'a> Part<'a> {
    fn new(device: &'a Cpu, graph: Graph, values: &Values<f32>) -> Result<Self, String> {
        let options = Level::O2.options();
        let compiled =
            compile(&graph::Solution, &graph, &sizes(&graph, values), options, None).map_err(told)?;
        let arena = compiled.arena(device).map_err(told)?;
        Ok(Self { device, graph, compiled, arena })
    }

    /// Its outputs, by name.
    fn run(&mut self, values: &Values<f32>) -> Result<Values<f32>, String> {
        let asked = values.iter().filter(|(name, _)| self.graph.find_input(name).is_some());
        let asked: Values<f32> = asked.map(|(name, value)| (name.clone(), value.clone())).collect();
        let given = upload(self.device, &asked).map_err(told)?;
        let inputs: BTreeMap<&str, &Buffer> =
            given.iter().map(|(name, given)| (name.as_str(), &given.buffer)).collect();
        self.compiled
            .run(self.device, &mut self.arena, &inputs, &nf4::Callee(&nf4::Solution))
            .map_err(told)?;
        let output = |port: &Port| {
            let bytes = self.compiled.output(&port.name, &self.arena, &inputs).unwrap_or_default();
            (port.name.clone(), Array::<f32>::from_memory(port.dtype, &port.shape, bytes))
        };
        Ok(self.compiled.outputs().iter().map(output).collect())
    }
}

/// What the first step starts with.
fn start(model: &Model, step: &Graph, batch: &Values<f32>) -> Values<f32> {
    let mut values = model.fixed(step);
    for (_, value) in values.iter_mut().filter(|(name, _)| name.starts_with("optim.exp_avg")) {
        let count = value.shape.iter().product();
        *value = Array::floats(value.dtype, &value.shape, vec![0.0; count]);
    }
    values.extend(batch.clone());
    values
}

fn whole(model: &Model, batches: &[Values<f32>]) -> Result<Vec<f64>, String> {
    let device = Cpu::with_threads(2);
    let step = Model::step(model.spec.training_loss().map_err(told)?)?;
    let mut values = start(model, &step, &batches[0]);
    let mut part = Part::new(&device, step, &values)?;
    let mut losses = Vec::new();
    for number in 0..STEPS {
        values.extend(batches[number % batches.len()].clone());
        values.append(&mut Model::recipe().optimizer.rates(number as u64 + 1, RATE));
        let results = part.run(&values)?;
        losses.push(results.get("loss").map_or(f64::NAN, |loss| loss.wide()[0]));
        values.extend(results);
    }
    Ok(losses)
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
        sums: Dtype::F32,
        bias: false,
        trains: Trains { hidden: true, weight: false, bias: false },
    };
    let mut runner = Runner::new(&device, passes, attempt, &problem);
    let step = Model::step(model.spec.surrogate_loss().map_err(told)?)?;
    let mut values = start(model, &step, &batches[0]);
    let head = interpret(&model.spec.output_layer().map_err(told)?, &values).map_err(told)?;
    let head = head.first().ok_or("there is no output layer")?;
    let weight = Given::new(&device, &head.shape, &head.to_memory()).map_err(told)?;
    let zeros = Array::floats(Dtype::F32, &[LENGTH, config.hidden], vec![0.0; LENGTH * config.hidden]);
    values.insert("hidden.grad".into(), zeros);
    let mut states = Part::new(&device, model.spec.hidden_states().map_err(told)?, &values)?;
    let mut update = Part::new(&device, step, &values)?;
    let mut given = BTreeMap::from([("weight".to_owned(), weight)]);
    let mut losses = Vec::new();
    for number in 0..STEPS {
        values.extend(batches[number % batches.len()].clone());
        values.append(&mut Model::recipe().optimizer.rates(number as u64 + 1, RATE));
        let hidden = states.run(&values)?.remove("hidden").ok_or("there are no hidden states")?;
        let mut buffer = device.alloc("hidden", hidden.as_floats().len() * 4).map_err(told)?;
        device.upload(&mut buffer, &hidden.to_memory()).map_err(told)?;
        let labels = attempt.shift(values["labels"].as_integers(), LENGTH);
        let counts: Vec<bool> = labels.iter().map(|label| *label != IGNORED).collect();
        let bytes: Vec<u8> = labels.iter().flat_map(|label| label.to_ne_bytes()).collect();
        given.insert("labels".into(), Given::new(&device, &[labels.len()], &bytes).map_err(told)?);
        let job = Job {
            hidden: Hidden::Handed(buffer),
            given: &given,
            counts: &counts,
            upstream: None,
            size: Size::Rows(ROWS),
            so_far: BTreeMap::new(),
        };
        let results = runner.run(job).map_err(told)?;
        losses.push(results.loss.first().map_or(f64::NAN, |loss| f64::from(*loss)));
        let gradient = results.gradients.get("hidden.grad").ok_or("there is no gradient")?;
        let gradient = Array::from_memory(Dtype::F32, &hidden.shape, gradient.view());
        values.insert("hidden.grad".into(), gradient);
        values.extend(update.run(&values)?);
    }
    Ok(losses)
}
