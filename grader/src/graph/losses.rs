//! A short training run, compiled and operation by operation: the same losses, but for sums in another order.

use std::collections::BTreeMap;

use challenges::graph::{Compile, Solution};
use challenges::nf4;
use compiler::compile::{Compiled, Level, Options, Port, compile};
use compiler::executor::Settings;
use kernels::{Buffer, Cpu};
use reference::graph::interpret::Values;
use reference::graph::{Array, Graph};

use super::begun::Begun;
use super::compare::{sizes, told};
use super::model::{Model, TINY, upload};
use crate::gather::Child;
use crate::random::Random;
use crate::scorecard::Measurement;

const STEPS: usize = 40;
const LENGTH: usize = 24;
/// Sequences that take turns.
const BATCHES: usize = 2;

/// Runs it and reports both series; says nothing where it cannot be run, for nothing rests on it.
pub(super) fn run(child: &mut Child, attempt: &dyn Compile, begun: &Begun, seed: u64) {
    let Ok(Ok(series)) = crate::gather::caught(|| both(attempt, begun, seed)) else { return };
    for (name, samples) in series {
        if let Some(last) = samples.last().copied().filter(|_| samples.iter().all(|loss| loss.is_finite())) {
            let measurement = Measurement { value: last, unit: "nats".into(), interval: None, samples };
            child.measured(&format!("graph.losses.{name}"), measurement);
        }
    }
}

fn both(attempt: &dyn Compile, begun: &Begun, seed: u64) -> Result<[(&'static str, Vec<f64>); 2], String> {
    let model = Model::drawn(TINY, seed)?;
    let captured = attempt.capture("llama_loss", &model.program(), &Values::new()).map_err(told)?;
    let step = Model::step(captured.graph)?;
    let mut values = model.fixed(&step);
    for (_, value) in values.iter_mut().filter(|(name, _)| name.starts_with("optim.exp_avg")) {
        let count = value.shape.iter().product();
        *value = Array::floats(value.dtype, &value.shape, vec![0.0; count]);
    }
    let mut random = Random::named(seed, "losses");
    let batches: Vec<Values<f32>> = (0..BATCHES).map(|_| model.tokens(LENGTH, &mut random)).collect();
    values.extend(batches[0].clone());
    let sizes = sizes(&step, &values);
    let Settings { options, level, .. } = begun.settings();
    let own = compile(attempt, &step, &sizes, options.unwrap_or(level.options()), None).map_err(told)?;
    let plain = Options { flex: false, ..Level::O1.options() };
    let plain = compile(&Solution, &step, &sizes, plain, None).map_err(told)?;
    let train = |compiled: &Compiled| train(&step, compiled, &values, &batches);
    Ok([("compiled", train(&own)?), ("op_by_op", train(&plain)?)])
}

/// The loss before each update.
fn train(
    step: &Graph,
    compiled: &Compiled,
    values: &Values<f32>,
    batches: &[Values<f32>],
) -> Result<Vec<f64>, String> {
    let device = Cpu::new();
    let mut arena = compiled.arena(&device).map_err(told)?;
    let mut values = values.clone();
    let mut losses = Vec::new();
    for number in 0..STEPS {
        values.extend(batches[number % batches.len()].clone());
        values.append(&mut Model::recipe().optimizer.rates(number as u64 + 1, 1e-2));
        let given = upload(&device, &values).map_err(told)?;
        let inputs: BTreeMap<&str, &Buffer> =
            given.iter().map(|(name, given)| (name.as_str(), &given.buffer)).collect();
        compiled.run(&device, &mut arena, &inputs, &nf4::Callee(&nf4::Solution)).map_err(told)?;
        let output = |port: &Port| {
            let bytes = compiled.output(&port.name, &arena, &inputs).unwrap_or_default();
            (port.name.clone(), Array::<f32>::from_memory(port.dtype, &port.shape, bytes))
        };
        let results: Values<f32> = compiled.outputs().iter().map(output).collect();
        losses.push(results.get("loss").map_or(f64::NAN, |loss| loss.wide()[0]));
        values.extend(results.into_iter().filter(|(name, _)| step.find_input(name).is_some()));
    }
    Ok(losses)
}
