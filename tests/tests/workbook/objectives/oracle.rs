//! Objectives in f64 by another way than the trainer's: each row by itself and without padding, the loss and its
//! derivative by the plain functions of [`reference::loss`], and the gradient of the model by a second run, whose
//! log-probabilities have that derivative as their weights.
//!
//! ```text
//! log_p(row) by the policy, by the start      ->  loss, d loss / d log_p      [`Objective`]
//! sum log_p * d loss / d log_p                ->  gradients                   [`reference::grad`]
//! the norm, AdamW                             ->  A and B
//! ```

use reference::grad;
use reference::graph::interpret::{Values, interpret};
use reference::graph::{Array, Builder, Dtype, Graph, Id};
use reference::llama::{Llama, Spec, rope};
use reference::lora::Adapter;
use reference::loss::{IGNORED, LogProbabilities};
use trainer::train::data::Row;

/// What an objective makes of a micro-batch: of the policy's and the start's log-probabilities of each row's trained
/// tokens, the loss, and its derivative with respect to the policy's.
pub type Objective<'a> = dyn Fn(&[usize], &[Vec<f64>], &[Vec<f64>]) -> (f64, Vec<Vec<f64>>) + 'a;

/// A model that is trained by the interpreter.
pub struct Oracle {
    graph: Graph,
    parameters: Vec<String>,
    llama: Llama,
    values: Values<f64>,
    start: Values<f64>,
    moments: [Values<f64>; 2],
    steps: i32,
}

/// The bound on the gradient, and AdamW's numbers, which are the trainer's defaults but for the decay.
const MAX_NORM: f64 = 1.0;
const BETA1: f64 = 0.9;
const BETA2: f64 = 0.999;
const EPS: f64 = 1e-8;

impl Oracle {
    pub fn new(llama: Llama, adapter: &Adapter) -> Self {
        let spec = Spec { adapter: Some(adapter.config.clone()), ..llama.spec() };
        let (graph, parameters) = weighed(&spec);
        let mut values: Values<f64> = llama.values().expect("weights");
        values.extend(adapter.values());
        let of = |values: &Values<f64>| {
            parameters.iter().map(|name| (name.clone(), values[name].clone())).collect::<Values<f64>>()
        };
        let start = of(&values);
        let zeros: Values<f64> = start
            .iter()
            .map(|(name, value)| (name.clone(), floats(&value.shape, vec![0.0; value.wide().len()])))
            .collect();
        let moments = [zeros.clone(), zeros];
        Self { graph, parameters, llama, values, start, moments, steps: 0 }
    }

    /// The log-probabilities of a row's trained tokens, by the policy or by the start.
    pub fn log_p(&self, row: &Row, is_start: bool) -> Vec<f64> {
        let mut values = self.values.clone();
        if is_start {
            values.extend(self.start.clone());
        }
        let all = self.run(&values, row, &vec![0.0; row.ids.len()]).swap_remove(0).wide();
        places(row).map(|place| all[place]).collect()
    }

    fn run(&self, values: &Values<f64>, row: &Row, weights: &[f64]) -> Vec<Array<f64>> {
        let mut values = values.clone();
        let length = row.ids.len();
        let labels = row.ids[1..].iter().copied().chain([IGNORED]).collect();
        values.append(&mut rope::values(&self.llama.config, length));
        values.insert("ids".into(), Array::integers(&[1, length], row.ids.clone()));
        values.insert("next".into(), Array::integers(&[1, length], labels));
        values.insert("weights".into(), floats(&[1, length], weights.to_vec()));
        interpret(&self.graph, &values).expect("it runs")
    }

    /// A step of micro-batches, each with its part of the loss: the loss, and the norm before the bound.
    pub fn step(
        &mut self,
        rows: &[Row],
        parts: &[Vec<usize>],
        objective: &Objective<'_>,
        rate: f64,
        decay: f64,
    ) -> (f64, f64) {
        let mut gradient: Values<f64> = self.moments[0]
            .iter()
            .map(|(name, value)| (name.clone(), floats(&value.shape, vec![0.0; value.wide().len()])))
            .collect();
        let mut loss = 0.0;
        for part in parts {
            let log_p =
                |is_start| part.iter().map(|row| self.log_p(&rows[*row], is_start)).collect::<Vec<_>>();
            let (own, slopes) = objective(part, &log_p(false), &log_p(true));
            loss += own;
            for (row, slopes) in part.iter().zip(slopes) {
                let mut weights = vec![0.0; rows[*row].ids.len()];
                places(&rows[*row]).zip(slopes).for_each(|(place, slope)| weights[place] = slope);
                let found = self.run(&self.values, &rows[*row], &weights);
                for (name, own) in self.parameters.iter().zip(&found[1..]) {
                    let sum = gradient[name].wide().iter().zip(own.wide()).map(|(a, b)| a + b).collect();
                    gradient.insert(name.clone(), floats(&own.shape, sum));
                }
            }
        }
        let norm = gradient.values().flat_map(Array::wide).map(|g| g * g).sum::<f64>().sqrt();
        self.update(&gradient, (MAX_NORM / (norm + 1e-6)).min(1.0), rate, decay);
        (loss, norm)
    }

    fn update(&mut self, gradient: &Values<f64>, factor: f64, rate: f64, decay: f64) {
        self.steps += 1;
        let [corrected, squares] = [BETA1, BETA2].map(|beta| 1.0 - beta.powi(self.steps));
        for name in &self.parameters {
            let g: Vec<f64> = gradient[name].wide().iter().map(|g| g * factor).collect();
            let shape = gradient[name].shape.clone();
            let mixed = |old: Vec<f64>, beta: f64, new: &dyn Fn(f64) -> f64| {
                old.iter().zip(&g).map(|(old, g)| beta * old + (1.0 - beta) * new(*g)).collect::<Vec<f64>>()
            };
            let m = mixed(self.moments[0][name].wide(), BETA1, &|g| g);
            let v = mixed(self.moments[1][name].wide(), BETA2, &|g| g * g);
            let moved = self.values[name].wide().into_iter().zip(m.iter().zip(&v)).map(|(p, (m, v))| {
                p * (1.0 - rate * decay) - rate * (m / corrected) / ((v / squares).sqrt() + EPS)
            });
            let moved = moved.collect();
            self.values.insert(name.clone(), floats(&shape, moved));
            self.moments[0].insert(name.clone(), floats(&shape, m));
            self.moments[1].insert(name.clone(), floats(&shape, v));
        }
    }
}

/// The positions that predict a row's trained tokens.
fn places(row: &Row) -> impl Iterator<Item = usize> + '_ {
    (1..row.ids.len()).filter(|token| row.trained[*token]).map(|token| token - 1)
}

fn floats(shape: &[usize], values: Vec<f64>) -> Array<f64> {
    Array::floats(Dtype::F32, shape, values)
}

/// The log-probabilities of a row's tokens, and the gradients of their weighed sum with respect to the adapter.
fn weighed(spec: &Spec) -> (Graph, Vec<String>) {
    let mut graph = spec.forward().expect("a graph");
    let logits = graph.outputs()[0].1;
    graph.clear_outputs();
    let parameters: Vec<(String, Id)> = graph
        .inputs()
        .filter(|(name, _)| name.starts_with("base_model."))
        .map(|(name, id)| (name.to_owned(), id))
        .collect();
    let builder = Builder::onto(graph);
    let (tape, logits) = (builder.tape(), builder.tensor(logits));
    let [batch, length, vocab] = [0, 1, 2].map(|dim| logits.dim(dim));
    let all = &batch * &length;
    let input =
        |name: &str, dtype| tape.input(name, dtype, [batch.clone(), length.clone()]).reshape([all.clone()]);
    let (next, weights) = (input("next", Dtype::I32), input("weights", Dtype::F32));
    let logits = logits.reshape([all.clone(), vocab]);
    let log_p = LogProbabilities::default().rows(&logits, &next).values;
    let total = builder.id(&(&log_p * &weights).total()).expect("a tensor");
    tape.output("log_p", &log_p);
    let mut graph = builder.finish().expect("a graph");
    let ids: Vec<Id> = parameters.iter().map(|(_, id)| *id).collect();
    let gradients = grad::differentiate(&mut graph, total, &ids).expect("a gradient");
    for ((name, _), id) in parameters.iter().zip(gradients) {
        graph.output(format!("grad.{name}"), id);
    }
    (graph, parameters.into_iter().map(|(name, _)| name).collect())
}
