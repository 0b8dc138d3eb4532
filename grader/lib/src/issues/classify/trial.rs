//! A small model with the attempt's steps around it: where rows are answered from, what answers cost, what is trained.
//!
//! ```text
//! ids --D.15--> the row of each answer      model, rows --> z (B, C) --D.16--> costs --mean--> loss --> gradients
//! layers --D.17--> names of what is trained                                                    of these
//! ```

use challenges::issues::classify::{Adapter, Classify, Layer, Problem};
use challenges::nf4::DEQUANTIZER;
use compiler::session::{DeviceTensor, Session, Settings};
use kernels::Cpu;
use reference::grad;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, Graph, Id, interpret};
use reference::issues::classify::{Targets, exact, last_tokens};
use reference::llama::{self, Classifier, Rows, Spec, rope, unnamed};

use super::task::{Batch, CLASSES, PAD};
use crate::compare::describe;
use crate::graph::model::{Model, Sizes};

/// Small enough for a run within seconds.
const LLAMA: Sizes = Sizes { layers: 2, hidden: 32, heads: 2, vocab: 96 };

/// A model with its adapter and an attempt at the steps around it.
pub(super) struct Trial<'a> {
    pub attempt: &'a dyn Classify,
    pub problem: Problem,
    pub model: Model,
}

/// A loss and the gradient of each tensor that is trained.
pub(super) struct Found {
    pub loss: f64,
    pub gradients: Vec<(String, Vec<f64>)>,
}

impl<'a> Trial<'a> {
    /// The drawn model of a seed.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(attempt: &'a dyn Classify, problem: Problem, seed: u64) -> Result<Self, String> {
        let classifier =
            Classifier { problem: Some(problem), pad: Some(PAD), ..Classifier::new(unnamed(CLASSES)) };
        let config = llama::Config { classifier: Some(classifier), positions: 64, ..LLAMA.config() };
        let mut model = Model::of_config(config, seed)?;
        model.spec.rows = Rows::PACKED;
        Ok(Self { attempt, problem, model })
    }

    /// Tokens below it.
    pub fn vocab(&self) -> usize {
        self.model.spec.config.vocab
    }

    /// The graph of the loss: the mean over the rows of the attempt's costs of their answers. Beside what the model
    /// reads it has `answers` i32 (B), rows of all tokens (B * T), and `targets`.
    ///
    /// # Errors
    /// If the attempt writes none.
    pub fn loss(&self) -> Result<Graph, String> {
        let builder = Builder::new("classifier_loss");
        let (tape, spec) = (builder.tape(), &self.model.spec);
        let model = llama::Model::new(spec, tape);
        let logits = model.logits(&model.tokens("ids"));
        let [batch, length, outputs] = [0, 1, 2].map(|dim| logits.dim(dim));
        let answers = tape.input("answers", Dtype::I32, [batch.clone()]);
        let answered = logits.reshape([&batch * &length, outputs.clone()]).gather(&answers); // (B, C)
        let targets = match self.problem {
            Problem::SingleLabel => tape.input("targets", Dtype::I32, [batch]),
            Problem::MultiLabel | Problem::Regression => tape.input("targets", Dtype::F32, [batch, outputs]),
        };
        let losses = self.attempt.losses(self.problem, &answered, &targets);
        tape.output("loss", &(&losses.total() / &losses.like(1.0).total()));
        builder.finish().map_err(describe)
    }

    /// What is trained, by the attempt.
    ///
    /// # Errors
    /// If it answers with a target that is missing, or other shapes than the model has.
    pub fn trained(&self) -> Result<Vec<String>, String> {
        let config = &self.model.spec.config;
        let specs = config.tensor_specs();
        let two = specs.iter().filter(|spec| spec.shape.len() == 2);
        let layers: Vec<Layer<'_>> = two
            .map(|spec| Layer {
                name: spec.name.trim_end_matches(".weight"),
                shape: [spec.shape[0], spec.shape[1]],
                is_linear: !spec.name.contains("embed_tokens"),
            })
            .collect();
        let rank = self.model.spec.adapter.as_ref().map_or(0, |adapter| adapter.rank);
        let settings = Adapter { rank, target_modules: None, modules_to_save: &[] };
        let all = self.attempt.trained(&layers, &settings);
        let all =
            all.map_err(|target| format!("D.17 found no layer called {target:?} for \"all-linear\""))?;
        let weights = self.model.adapter();
        let checked = all.into_iter().map(|tensor| match weights.get(&tensor.name) {
            Some(weight) if weight.shape == tensor.shape => Ok(tensor.name),
            Some(weight) => Err(format!(
                "{}: D.17 says {:?}, the model has {:?}",
                tensor.name, tensor.shape, weight.shape
            )),
            None => Err(format!("{}: D.17 names it, and the model has no such tensor", tensor.name)),
        });
        let names = checked.collect::<Result<Vec<String>, String>>()?;
        match weights.keys().find(|name| !names.contains(name)) {
            Some(missing) => Err(format!("{missing} is not trained: D.17 does not name it")),
            None => Ok(names),
        }
    }

    /// The rows of all tokens (B * T) that a batch is answered from, by the attempt.
    ///
    /// # Errors
    /// If it names another number of tokens, or one that is none of its row.
    pub fn answers(&self, batch: &Batch) -> Result<Vec<i32>, String> {
        let [rows, length] = batch.shape;
        let last = self.attempt.last_tokens(&batch.ids, length, Some(PAD));
        if last.len() != rows || last.iter().any(|token| *token >= length) {
            return Err(format!("D.15 answers {last:?} for {rows} rows of {length} tokens"));
        }
        Ok(last.iter().enumerate().map(|(row, token)| (row * length + token) as i32).collect())
    }

    /// Everything of a batch that the loss reads.
    ///
    /// # Errors
    /// As [`Self::answers`].
    pub fn batch(&self, batch: &Batch) -> Result<Values<f32>, String> {
        let mut values = self.tokens(batch);
        values.insert("answers".into(), Array::integers(&[batch.shape[0]], self.answers(batch)?));
        values.insert("targets".into(), self.targets(batch));
        Ok(values)
    }

    fn targets(&self, batch: &Batch) -> Array<f32> {
        let (rows, numbers) = (batch.shape[0], batch.targets(self.problem));
        match self.problem {
            Problem::SingleLabel => {
                Array::integers(&[rows], numbers.iter().map(|class| *class as i32).collect())
            }
            Problem::MultiLabel | Problem::Regression => Array::floats(Dtype::F32, &[rows, CLASSES], numbers),
        }
    }

    /// What the model reads of a batch.
    pub fn tokens(&self, batch: &Batch) -> Values<f32> {
        let integers = |values: Vec<i32>| Array::integers(&batch.shape, values);
        let mut values = rope::values(&self.model.spec.config, self.model.spec.config.positions);
        values.insert("ids".into(), integers(batch.ids.clone()));
        values.insert("positions".into(), integers(batch.positions()));
        values.insert("documents".into(), integers(batch.mask.clone()));
        values
    }

    /// The loss and its gradients as the attempt has them, compiled and run in f32.
    ///
    /// # Errors
    /// If a step answers something that cannot be used.
    pub fn found(&self, batch: &Batch) -> Result<Found, String> {
        let mut graph = self.loss()?;
        let names = self.trained()?;
        let input = |name: &String| {
            graph.find_input(name).ok_or_else(|| format!("{name}: the loss does not read it"))
        };
        let ids: Vec<Id> = names.iter().map(input).collect::<Result<_, String>>()?;
        let loss = graph.outputs()[0].1;
        let gradients = grad::differentiate(&mut graph, loss, &ids).map_err(describe)?;
        names.iter().zip(gradients).for_each(|(name, id)| graph.output(format!("grad.{name}"), id));
        let mut values = self.batch(batch)?;
        values.extend(self.weights());
        let cpu = Cpu::with_threads(1);
        let mut session = Session::new(&challenges::graph::Solution, &cpu, &DEQUANTIZER, Settings::default());
        let program = session.load(&graph).map_err(describe)?;
        let tensors = crate::compare::upload(&cpu, &values).map_err(describe)?;
        let read = |(name, tensor): (String, DeviceTensor)| graph.find_input(&name).map(|_| (name, tensor));
        let inputs = tensors.into_iter().filter_map(read).collect();
        let outputs = session.run(program, &inputs).map_err(describe)?;
        let number = |name: &str| Ok::<_, String>(outputs.array(name).map_err(describe)?.wide());
        let loss = number("loss")?.first().copied().unwrap_or(f64::NAN);
        let gradients = names.into_iter().map(|name| Ok((name.clone(), number(&format!("grad.{name}"))?)));
        Ok(Found { loss, gradients: gradients.collect::<Result<_, String>>()? })
    }

    /// The same by the plain functions and the meaning of the model, in f64.
    ///
    /// # Errors
    /// If the model cannot be interpreted.
    pub fn truth(&self, batch: &Batch) -> Result<Found, String> {
        let spec: &Spec = &self.model.spec;
        let mut graph = spec.forward().map_err(describe)?;
        let logits = graph.outputs()[0].1;
        let mut values: Values<f64> = self.tokens(batch).iter().map(widened).collect();
        values.extend(self.weights().iter().map(widened));
        let all = interpret(&graph, &values).map_err(describe)?.swap_remove(0); // (B, T, C)
        let last = last_tokens(&batch.ids, batch.shape[1], Some(PAD));
        let rows: Vec<usize> =
            last.iter().enumerate().map(|(row, token)| row * batch.shape[1] + token).collect();
        let answered = rows.iter().flat_map(|row| all.wide()[row * CLASSES..][..CLASSES].to_vec());
        let numbers = batch.targets(self.problem);
        let classes: Vec<i32> = batch.classes.iter().map(|class| *class as i32).collect();
        let targets = match self.problem {
            Problem::SingleLabel => Targets::Classes(&classes),
            Problem::MultiLabel | Problem::Regression => Targets::Numbers(&numbers),
        };
        let costs =
            exact(self.problem, &answered.collect::<Vec<f64>>(), CLASSES, targets).map_err(describe)?;
        let mean = 1.0 / rows.len() as f64;
        let mut upstream = vec![0.0; all.wide().len()];
        for (row, gradient) in rows.iter().zip(costs.gradient.chunks(CLASSES)) {
            upstream[row * CLASSES..][..CLASSES]
                .iter_mut()
                .zip(gradient)
                .for_each(|(to, from)| *to = mean * from);
        }
        let trained: Vec<(String, Id)> = graph
            .inputs()
            .filter(|(name, _)| name.starts_with("base_model."))
            .map(|(name, id)| (name.to_owned(), id))
            .collect();
        let ids: Vec<Id> = trained.iter().map(|(_, id)| *id).collect();
        let builder = Builder::onto(graph);
        let given = builder.tape().input("upstream", Dtype::F32, builder.tensor(logits).shape());
        let given = builder.id(&given).map_err(describe)?;
        graph = builder.finish().map_err(describe)?;
        let gradients = grad::pull_back(&mut graph, logits, given, &ids).map_err(describe)?;
        graph.clear_outputs();
        trained.iter().zip(gradients).for_each(|((name, _), id)| graph.output(name.clone(), id));
        values.insert("upstream".into(), Array::floats(Dtype::F32, &all.shape, upstream));
        let results = interpret(&graph, &values).map_err(describe)?;
        let gradients = trained.into_iter().map(|(name, _)| name).zip(results.iter().map(Array::wide));
        Ok(Found { loss: mean * costs.values.iter().sum::<f64>(), gradients: gradients.collect() })
    }

    /// Weights and adapter.
    pub fn weights(&self) -> Values<f32> {
        let weights = self.model.weights().map(|(name, value)| (name.clone(), value.clone()));
        weights.chain(self.model.adapter()).collect()
    }
}

fn widened((name, value): (&String, &Array<f32>)) -> (String, Array<f64>) {
    (name.clone(), value.widened())
}
