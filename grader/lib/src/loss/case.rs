//! A problem with drawn numbers, what is true of it, and what a run makes of it.
//!
//! The truth is the interpreter's in f64, on the whole problem as one graph, differentiated by the rules; `tests` holds
//! these graphs against the written derivatives of [`reference::loss`]. What a run gives in f32 may be as far from the
//! truth as the interpreter in f32 three times, and a hundred-thousandth of the largest element further, or of 0.1
//! where all are smaller.

use std::collections::BTreeMap;

use challenges::graph;
use challenges::loss::problem::ROWS;
use challenges::loss::run::{Hidden, Job, Results, Runner, Size};
use challenges::loss::{Chunked, Loss, Problem, Trains};
use compiler::session::DeviceTensor;
use kernels::{Buffer, Device};
use reference::grad;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dim, Dtype, Graph, Real, Tensor, interpret};
use reference::loss::IGNORED;

use crate::compare::{array, describe, difference, narrowed};
use crate::random::Random;

/// A problem and everything that it is given.
pub(super) struct Case {
    pub problem: Problem,
    /// `hidden`, `weight`, `bias`, and what the loss asks for; exact in their types.
    pub values: Values<f64>,
    pub counts: Vec<bool>,
    pub upstream: Option<Vec<f32>>,
}

/// An attempt, and where its chunks run.
#[derive(Clone, Copy)]
pub(super) struct Trial<'a> {
    pub attempt: &'a dyn Chunked,
    pub device: &'a dyn Device,
}

/// Sizes of a case: rows, width, vocabulary.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub rows: usize,
    pub width: usize,
    pub vocab: usize,
}

/// Small enough for the interpreter.
pub(super) const SMALL: Sizes = Sizes { rows: 13, width: 12, vocab: 37 };

/// Everything is trained.
pub(super) const ALL: Trains = Trains { hidden: true, weight: true, bias: true };

/// What a loss and its gradients are, by name: `loss`, `hidden.grad`, `weight.grad`, `bias.grad`.
pub(super) type Found = BTreeMap<String, Array<f32>>;

impl Case {
    /// Numbers for a loss, in f32; labels are drawn, and every fifth is ignored.
    pub fn drawn(loss: Loss, sizes: Sizes, random: &mut Random) -> Self {
        let Sizes { width, vocab, .. } = sizes;
        let problem = Problem {
            loss,
            width,
            vocab,
            dtype: Dtype::F32,
            accumulate_dtype: Dtype::F32,
            bias: false,
            trains: ALL,
        };
        let mut case =
            Self { problem, values: Values::new(), counts: vec![true; sizes.rows], upstream: None };
        case.floats("hidden", &[sizes.rows, width], 1.0, random);
        case.floats("weight", &[vocab, width], 1.0, random);
        case.labels(random);
        case.extras(random);
        case
    }

    /// The same with a bias.
    pub fn biased(mut self, random: &mut Random) -> Self {
        self.problem.bias = true;
        self.floats("bias", &[self.problem.vocab], 1.0, random);
        self
    }

    /// Numbers around 0 under a name, in f32.
    pub fn floats(&mut self, name: &str, shape: &[usize], reach: f64, random: &mut Random) {
        let count = shape.iter().product::<usize>();
        let numbers = (0..count).map(|_| f64::from((reach * (2.0 * random.unit() - 1.0)) as f32));
        self.values.insert(name.into(), Array::floats(Dtype::F32, shape, numbers));
    }

    fn labels(&mut self, random: &mut Random) {
        let rows = self.counts.len();
        let label = |row| if row % 5 == 3 { IGNORED } else { random.below(self.problem.vocab) as i32 };
        self.label((0..rows).map(label).collect());
    }

    /// Labels; rows whose label is ignored do not count.
    pub fn label(&mut self, labels: Vec<i32>) {
        let asked = |graph: &Graph| graph.find_input("labels").is_some();
        if asked(&self.problem.loss.rows) || asked(&self.problem.loss.whole) {
            self.counts = labels.iter().map(|label| *label != IGNORED).collect();
            self.values.insert("labels".into(), Array::integers(&[labels.len()], labels));
        }
    }

    /// What the loss asks for and nobody has given yet: positive numbers.
    fn extras(&mut self, random: &mut Random) {
        let rows = self.counts.len();
        let bound = BTreeMap::from([(ROWS.into(), rows as i64)]);
        let outputs: Vec<String> = self.problem.loss.values().map(str::to_owned).collect();
        let mut needed = Vec::new();
        for graph in [&self.problem.loss.rows, &self.problem.loss.whole] {
            let inputs = graph.inputs().map(|(name, id)| (name.to_owned(), graph.ty(id).clone()));
            needed.extend(inputs.filter(|(name, _)| name != "logits" && !outputs.contains(name)));
        }
        for (name, ty) in needed {
            let shape: Vec<usize> =
                ty.shape.iter().filter_map(|dim| usize::try_from(dim.value(&bound).ok()?).ok()).collect();
            if self.values.contains_key(&name) || !ty.dtype.is_float() {
                continue;
            }
            let count = shape.iter().product();
            let numbers: Vec<f64> = match name.as_str() {
                "mask" | "desirable" => {
                    (0..count).map(|_| f64::from(u8::from(random.below(4) > 0))).collect()
                }
                _ => (0..count).map(|_| f64::from((0.2 + random.unit()) as f32)).collect(),
            };
            self.values.insert(name, Array::floats(ty.dtype, &shape, numbers));
        }
        if let Some(mask) = self.values.get("mask").filter(|_| !self.values.contains_key("labels")) {
            self.counts = mask.wide().iter().map(|mask| *mask != 0.0).collect();
        }
    }

    /// The whole problem as one graph of fixed sizes.
    fn graph(&self) -> Result<Graph, String> {
        let sizes = BTreeMap::from([(ROWS.into(), Dim::from(self.counts.len()))]);
        let builder = Builder::new("whole");
        let mut inputs: BTreeMap<String, Tensor> = BTreeMap::new();
        let mut input = |name: &str, dtype: Dtype, shape: &[Dim]| {
            inputs.entry(name.to_owned()).or_insert_with(|| builder.tape().input(name, dtype, shape)).clone()
        };
        let Problem { width, vocab, dtype, bias, trains, ref loss, .. } = self.problem;
        let rows = Dim::from(self.counts.len());
        let hidden = input("hidden", dtype, &[rows, width.into()]);
        let weight = input("weight", dtype, &[vocab.into(), width.into()]);
        let bias = bias.then(|| input("bias", dtype, &[vocab.into()]));
        let logits = reference::loss::Linear::graph(&hidden, &weight, bias.as_ref());
        let (of_rows, whole) = (
            loss.rows.substitute(&sizes).map_err(describe)?,
            loss.whole.substitute(&sizes).map_err(describe)?,
        );
        let mut given = |graph: &Graph, known: &BTreeMap<String, Tensor>| -> Vec<Tensor> {
            let one = |(name, id): (&str, _)| {
                let ty = graph.ty(id);
                known.get(name).cloned().unwrap_or_else(|| input(name, ty.dtype, &ty.shape))
            };
            graph.inputs().map(one).collect()
        };
        let known = BTreeMap::from([("logits".to_owned(), logits)]);
        let values = builder.tape().inline(&of_rows, &given(&of_rows, &known));
        let known = loss.values().map(str::to_owned).zip(values).collect();
        let result = builder.tape().inline(&whole, &given(&whole, &known)).remove(0);
        let upstream = input("upstream", Dtype::F32, result.shape());
        let wanted = [
            ("hidden.grad", trains.hidden.then_some(&hidden)),
            ("weight.grad", trains.weight.then_some(&weight)),
            ("bias.grad", bias.as_ref().filter(|_| trains.bias)),
        ];
        let wanted: Vec<(&str, &Tensor)> =
            wanted.iter().filter_map(|(name, of)| Some((*name, (*of)?))).collect();
        let ids =
            wanted.iter().map(|(_, of)| builder.id(of)).collect::<Result<Vec<_>, _>>().map_err(describe)?;
        let names: Vec<&str> = wanted.iter().map(|(name, _)| *name).collect();
        let [result, upstream] = [&result, &upstream].map(|end| builder.id(end).map_err(describe));
        let (result, upstream) = (result?, upstream?);
        let mut graph = builder.finish().map_err(describe)?;
        let gradients = grad::pull_back(&mut graph, result, upstream, &ids).map_err(describe)?;
        graph.output("loss", result);
        names.into_iter().zip(gradients).for_each(|(name, gradient)| graph.output(name, gradient));
        Ok(graph)
    }

    /// Its results by the interpreter.
    fn interpreted<R: Real>(&self, values: Values<R>) -> Result<BTreeMap<String, Array<R>>, String> {
        let graph = self.graph()?;
        let mut values = values;
        if let Some(id) = graph.find_input("upstream") {
            let shape: Vec<usize> =
                graph.ty(id).shape.iter().filter_map(Dim::as_fixed).map(|n| n as usize).collect();
            let all = self.upstream.clone().unwrap_or_else(|| vec![1.0; shape.iter().product()]);
            values
                .insert("upstream".into(), Array::floats(Dtype::F32, &shape, all.into_iter().map(f64::from)));
        }
        let results = interpret(&graph, &values).map_err(describe)?;
        Ok(graph.outputs().iter().map(|(name, _)| name.clone()).zip(results).collect())
    }

    /// Its results by an attempt, `size` at a time.
    pub fn run(&self, Trial { attempt, device }: Trial<'_>, size: usize) -> Result<Found, String> {
        let (hidden, given) = self.given(device)?;
        let mut runner = Runner::new(device, &graph::Solution, attempt, &self.problem);
        let results =
            runner.run(self.job(Hidden::Borrowed(&hidden), &given, Size::Rows(size))).map_err(describe)?;
        self.found(device, &results)
    }

    /// What a runner is asked.
    pub fn job<'a>(
        &'a self,
        hidden: Hidden<'a>,
        given: &'a BTreeMap<String, DeviceTensor>,
        size: Size,
    ) -> Job<'a> {
        let (counts, upstream) = (self.counts.as_slice(), self.upstream.as_deref());
        Job { hidden, given, counts, upstream, size, so_far: BTreeMap::new() }
    }

    /// Its values in a device's memory: hidden states, and the rest.
    pub fn given(&self, device: &dyn Device) -> Result<(Buffer, BTreeMap<String, DeviceTensor>), String> {
        let mut given = BTreeMap::new();
        for (name, value) in narrowed(&self.values) {
            let value = self.typed(&name, value);
            given
                .insert(name, DeviceTensor::new(device, &value.shape, &value.to_memory()).map_err(describe)?);
        }
        let hidden = given.remove("hidden").ok_or("no hidden states")?.buffer;
        Ok((hidden, given))
    }

    /// A value in its type: operands have the problem's.
    pub fn typed(&self, name: &str, value: Array<f32>) -> Array<f32> {
        let is_operand = ["hidden", "weight", "bias"].contains(&name);
        let dtype = if is_operand { self.problem.dtype } else { value.dtype };
        Array { dtype, ..value }
    }

    fn found(&self, device: &dyn Device, results: &Results) -> Result<Found, String> {
        let rows = self.counts.len();
        let Problem { width, vocab, dtype, accumulate_dtype: sums, .. } = self.problem;
        let number = if results.loss.len() == 1 { vec![] } else { vec![results.loss.len()] };
        let loss = Array::floats(Dtype::F32, &number, results.loss.iter().copied().map(f64::from));
        let gradient = |(name, buffer): (&String, &Buffer)| {
            let (dtype, shape) = match name.as_str() {
                "hidden.grad" => (dtype, vec![rows, width]),
                "bias.grad" => (sums, vec![vocab]),
                _ => (sums, vec![vocab, width]),
            };
            Ok((name.clone(), array(device, dtype, &shape, buffer)?))
        };
        let all = results.gradients.iter().map(gradient).chain([Ok(("loss".to_owned(), loss))]);
        all.collect()
    }

    /// Whether results are as near the truth as they have to be.
    pub fn near(&self, got: &Found) -> Result<(), String> {
        let (plain, truth) = (self.interpreted(self.narrow())?, self.interpreted(self.wide())?);
        for (name, plain) in &plain {
            let Some(got) = got.get(name) else { return Err(format!("there is no `{name}`")) };
            let plain = Array { dtype: got.dtype, ..plain.clone() }; // sums are returned in f32
            if let Some(message) = difference(got, &plain, &truth[name]) {
                return Err(format!("`{name}`: {message}"));
            }
        }
        match got.keys().find(|name| !plain.contains_key(*name)) {
            Some(name) => Err(format!("there is a `{name}`, which nobody asked for")),
            None => Ok(()),
        }
    }

    /// That an attempt is right, `size` at a time.
    pub fn right(&self, on: Trial<'_>, size: usize) -> Result<(), String> {
        let got = self.run(on, size).map_err(|message| format!("{size} rows at a time: {message}"))?;
        self.near(&got).map_err(|message| format!("{size} rows at a time: {message}"))
    }
}

/// What graphs of a chunk are interpreted with.
impl Case {
    /// The same with a seed for each row, for every output, and nothing yet in what chunks add up.
    pub fn seeded(&self, seeds: Vec<f64>) -> Self {
        let mut values = self.values.clone();
        let seeds: Vec<f64> = seeds.into_iter().map(|seed| f64::from(seed as f32)).collect();
        for name in self.problem.loss.values() {
            values.insert(
                format!("seed.{name}"),
                Array::floats(Dtype::F32, &[seeds.len()], seeds.iter().copied()),
            );
        }
        let Problem { width, vocab, .. } = self.problem;
        for (name, shape) in [("weight.grad", vec![vocab, width]), ("bias.grad", vec![vocab])] {
            let zeros = vec![0.0; shape.iter().product()];
            values.insert(name.into(), Array::floats(Dtype::F32, &shape, zeros));
        }
        let (problem, counts, upstream) = (self.problem.clone(), self.counts.clone(), self.upstream.clone());
        Self { problem, values, counts, upstream }
    }

    /// Some of its rows.
    pub fn part(&self, rows: std::ops::Range<usize>) -> Self {
        let all = self.counts.len();
        let part = |value: &Array<f64>| {
            let width = value.shape[1..].iter().product::<usize>();
            let shape: Vec<usize> =
                [rows.len()].into_iter().chain(value.shape[1..].iter().copied()).collect();
            if let reference::graph::Data::I32(numbers) = &value.data {
                Array::integers(&shape, numbers[rows.clone()].to_vec())
            } else {
                let numbers = value.wide()[rows.start * width..rows.end * width].to_vec();
                Array::floats(value.dtype, &shape, numbers)
            }
        };
        let cut = |(name, value): (&String, &Array<f64>)| {
            let of_rows = value.shape.first() == Some(&all) && name != "weight" && name != "bias";
            (name.clone(), if of_rows { part(value) } else { value.clone() })
        };
        let values = self.values.iter().map(cut).collect();
        let counts = self.counts[rows.clone()].to_vec();
        Self { problem: self.problem.clone(), values, counts, upstream: self.upstream.clone() }
    }

    /// Its values in f32, in their types.
    pub fn narrow(&self) -> Values<f32> {
        let all = narrowed(&self.values).into_iter();
        all.map(|(name, value)| (name.clone(), self.typed(&name, value))).collect()
    }

    /// The same in f64.
    pub fn wide(&self) -> Values<f64> {
        let typed = |(name, value): (&String, &Array<f64>)| {
            let is_operand = ["hidden", "weight", "bias"].contains(&name.as_str());
            let dtype = if is_operand { self.problem.dtype } else { value.dtype };
            (name.clone(), Array { dtype, ..value.clone() })
        };
        self.values.iter().map(typed).collect()
    }

    /// ln of each label's probability, at a temperature; 0 where it is ignored.
    pub fn log_probabilities(&self, labels: &[i32], temperature: f64) -> Vec<f64> {
        let (hidden, weight) = (self.values["hidden"].wide(), self.values["weight"].wide());
        let linear = reference::loss::Linear {
            hidden: &hidden,
            weight: &weight,
            bias: None,
            width: self.problem.width,
        };
        let tokens = linear.exact().and_then(|(z, vocab)| {
            let logits = reference::loss::Head::temperature(temperature).exact(&z)?;
            reference::loss::LogProbabilities::default().exact(&logits, vocab, labels)
        });
        tokens.map_or_else(|_| vec![0.0; labels.len()], |tokens| tokens.values)
    }
}

impl Case {
    /// The same with an entry of the vocabulary for every row.
    pub fn labelled(mut self) -> Self {
        let entry = |(row, label): (usize, &i32)| if *label == IGNORED { row as i32 } else { *label };
        if let Some(labels) = self.values.get("labels") {
            self.label(labels.as_integers().iter().enumerate().map(entry).collect());
        }
        self
    }
}
