//! A short training run, compiled and operation by operation: the same losses, but for sums in another order.

use challenges::graph::{Compile, Solution};
use challenges::nf4;
use challenges::train::Trainer;
use compiler::compile::{Level, Options};
use compiler::session::Settings;
use kernels::Device;
use reference::graph::interpret::Values;

use super::begun::Begun;
use super::model::{Model, TINY};
use crate::compare::describe;
use crate::gather::Child;
use crate::random::Random;
use crate::scorecard::Measurement;

const STEPS: usize = 40;
const LENGTH: usize = 24;
/// Sequences that take turns.
const BATCHES: usize = 2;

/// Runs it and reports both series; says nothing where it cannot be run, for nothing rests on it.
pub(super) fn run(child: &mut Child, device: &dyn Device, attempt: &dyn Compile, begun: &Begun, seed: u64) {
    let Ok(Ok(series)) = crate::gather::caught(|| both(device, attempt, begun, seed)) else { return };
    for (name, samples) in series {
        if let Some(last) = samples.last().copied().filter(|_| samples.iter().all(|loss| loss.is_finite())) {
            let measurement = Measurement { value: last, unit: "nats".into(), interval: None, samples };
            child.measured(&format!("graph.losses.{name}"), measurement);
        }
    }
}

fn both(
    device: &dyn Device,
    attempt: &dyn Compile,
    begun: &Begun,
    seed: u64,
) -> Result<[(&'static str, Vec<f64>); 2], String> {
    let model = Model::drawn(TINY, seed)?;
    let captured = attempt.capture("llama_loss", &model.program(), &Values::new()).map_err(describe)?;
    let step = Model::step(captured.graph)?;
    let start = model.start(&step);
    let mut random = Random::named(seed, "losses");
    let batches: Vec<Values<f32>> = (0..BATCHES).map(|_| model.tokens(LENGTH, &mut random)).collect();
    let Settings { options, level, .. } = begun.settings();
    let own = options.unwrap_or(level.options());
    let plain = Options { flex: false, ..Level::O1.options() };
    let train = |passes: &dyn Compile, options: Options| {
        let settings = Settings { options: Some(options), exact: true, ..Settings::default() };
        let trainer = Trainer::new(passes, device, &nf4::DEQUANTIZER, settings, &step, &start);
        train(trainer.map_err(describe)?, &batches)
    };
    Ok([("compiled", train(attempt, own)?), ("op_by_op", train(&Solution, plain)?)])
}

/// The loss before each update.
fn train(mut trainer: Trainer<'_>, batches: &[Values<f32>]) -> Result<Vec<f64>, String> {
    let step = |number: usize| {
        let mut batch = batches[number % batches.len()].clone();
        batch.append(&mut Model::recipe().optimizer.rates(number as u64 + 1, 1e-2));
        trainer.step(&batch).map_err(describe)
    };
    (0..STEPS).map(step).collect()
}
