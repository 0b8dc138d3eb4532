//! A problem with numbers: what is true of it, and what a run makes of it.

use std::collections::BTreeMap;

use challenges::graph;
use challenges::loss::problem::ROWS;
use challenges::loss::run::{Error, Hidden, Job, Results, Runner, Size};
use challenges::loss::{Chunked, Problem, Solution};
use compiler::session::DeviceTensor;
use kernels::{Buffer, Device};
use reference::grad;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Data, Dim, Dtype, Graph, Id, Real, Tensor, interpret};
use reference::loss::Linear;
use tests::graphs::narrow;
use tests::one_graph::{bytes, devices};

use grader::fair::difference;

/// A problem and everything that it is given.
#[derive(Clone)]
pub struct Case {
    pub problem: Problem,
    /// `hidden`, `weight`, `bias`, and what the loss asks for.
    pub values: Values<f64>,
    pub counts: Vec<bool>,
    pub upstream: Option<Vec<f32>>,
}

/// `loss`, `hidden.grad`, `weight.grad` and `bias.grad`, as far as they are asked for.
pub type Found = BTreeMap<String, Array<f32>>;

/// A case's numbers in a device's memory.
pub struct Uploaded {
    pub hidden: Buffer,
    pub given: BTreeMap<String, DeviceTensor>,
}

/// Runs.
impl Case {
    /// The same with hidden states, weight and bias of another type, and gradients that are added up in some type.
    pub fn typed(mut self, dtype: Dtype, accumulate_dtype: Dtype) -> Self {
        (self.problem.dtype, self.problem.accumulate_dtype) = (dtype, accumulate_dtype);
        for name in ["hidden", "weight", "bias"] {
            if let Some(value) = self.values.get_mut(name) {
                *value = Array::floats(dtype, &value.shape, value.wide());
            }
        }
        self
    }

    pub fn uploaded(&self, device: &dyn Device) -> Uploaded {
        let upload = |(name, value): (&String, &Array<f64>)| {
            let value = narrow::<f32>(value);
            (name.clone(), DeviceTensor::new(device, &value.shape, &value.to_memory()).expect("room"))
        };
        let mut given: BTreeMap<String, DeviceTensor> = self.values.iter().map(upload).collect();
        Uploaded { hidden: given.remove("hidden").expect("hidden states").buffer, given }
    }

    pub fn job<'a>(&'a self, uploaded: &'a Uploaded, size: Size) -> Job<'a> {
        Job {
            hidden: Hidden::Borrowed(&uploaded.hidden),
            given: &uploaded.given,
            counts: &self.counts,
            upstream: self.upstream.as_deref(),
            size,
            so_far: BTreeMap::new(),
        }
    }

    /// What an attempt makes of it, `size` rows at a time.
    pub fn results_of(
        &self,
        device: &dyn Device,
        attempt: &dyn Chunked,
        size: Size,
    ) -> Result<Results, Error> {
        let uploaded = self.uploaded(device);
        Runner::new(device, &graph::Solution, attempt, &self.problem).run(self.job(&uploaded, size))
    }

    /// The same by the solution, as arrays.
    pub fn run(&self, device: &dyn Device, size: usize) -> Found {
        let results = self.results_of(device, &Solution, Size::Rows(size));
        self.found(device, &results.unwrap_or_else(|error| panic!("{size} rows at a time: {error}")))
    }

    /// That what a run makes of it on every device is near what is true of it.
    pub fn hold(&self, size: usize, what: &str) {
        for device in devices() {
            let far = self.far(&self.run(device, size));
            assert_eq!(far, None, "{what}, {size} rows at a time on {}", device.name());
        }
    }

    pub fn found(&self, device: &dyn Device, results: &Results) -> Found {
        let (rows, &Problem { width, vocab, dtype, accumulate_dtype: sums, .. }) =
            (self.counts.len(), &self.problem);
        let number = if results.loss.len() == 1 { vec![] } else { vec![results.loss.len()] };
        let loss = Array::floats(Dtype::F32, &number, results.loss.iter().copied().map(f64::from));
        let gradient = |(name, buffer): (&String, &Buffer)| {
            let (dtype, shape) = match name.as_str() {
                "hidden.grad" => (dtype, vec![rows, width]),
                "weight.grad" => (sums, vec![vocab, width]),
                _ => (sums, vec![vocab]),
            };
            (name.clone(), Array::from_memory(dtype, &shape, &bytes(device, buffer)))
        };
        results.gradients.iter().map(gradient).chain([("loss".to_owned(), loss)]).collect()
    }

    /// How many rows count.
    pub fn counted(&self) -> usize {
        self.counts.iter().filter(|counts| **counts).count()
    }
}

/// Truths.
impl Case {
    /// All rows in one graph, with its gradients, where hidden states, weight and bias are of some type.
    fn graph(&self, dtype: Dtype) -> Graph {
        let builder = Builder::new("all");
        let tape = builder.tape();
        let rows = Dim::from(self.counts.len());
        let Problem { width, vocab, trains, ref loss, .. } = self.problem;
        let float = |name: &str, shape: &[Dim]| tape.input(name, dtype, shape);
        let hidden = float("hidden", &[rows.clone(), width.into()]);
        let weight = float("weight", &[vocab.into(), width.into()]);
        let bias = self.problem.bias.then(|| float("bias", &[vocab.into()]));
        let mut known =
            BTreeMap::from([("logits".to_owned(), Linear::graph(&hidden, &weight, bias.as_ref()))]);
        for part in [&loss.rows, &loss.whole] {
            let part = part.substitute(&BTreeMap::from([(ROWS.into(), rows.clone())])).expect("a size");
            let mut given = |(name, id): (&str, Id)| {
                let new = || tape.input(name, part.ty(id).dtype, &part.ty(id).shape);
                known.entry(name.to_owned()).or_insert_with(new).clone()
            };
            let given: Vec<Tensor> = part.inputs().map(&mut given).collect();
            let names = part.outputs().iter().map(|(name, _)| name.clone());
            known.extend(names.zip(tape.inline(&part, &given)));
        }
        let upstream = tape.input("upstream", Dtype::F32, known["loss"].shape());
        let wanted = [
            ("hidden.grad", Some(hidden).filter(|_| trains.hidden)),
            ("weight.grad", Some(weight).filter(|_| trains.weight)),
            ("bias.grad", bias.filter(|_| trains.bias)),
        ];
        let wanted: Vec<(&str, Tensor)> =
            wanted.into_iter().filter_map(|(name, of)| Some((name, of?))).collect();
        let id = |tensor: &Tensor| builder.id(tensor).expect("no mistake");
        let (loss, upstream) = (id(&known["loss"]), id(&upstream));
        let wrt: Vec<Id> = wanted.iter().map(|(_, of)| id(of)).collect();
        let mut graph = builder.finish().expect("a graph");
        let gradients = grad::pull_back(&mut graph, loss, upstream, &wrt).expect("floats");
        graph.output("loss", loss);
        wanted.iter().zip(gradients).for_each(|((name, _), gradient)| graph.output(*name, gradient));
        graph
    }

    fn interpreted<R: Real>(&self, dtype: Dtype) -> BTreeMap<String, Array<R>> {
        let graph = self.graph(dtype);
        let in_f32 = |value: &Array<f64>| narrow::<R>(&wide(&narrow::<f32>(value)));
        let typed = |(name, value): (&String, &Array<f64>)| {
            let is_own = ["hidden", "weight", "bias"].contains(&name.as_str());
            let value = in_f32(value);
            let own = || Array::floats(dtype, &value.shape, value.wide());
            (name.clone(), if is_own { own() } else { value.clone() })
        };
        let mut values: Values<R> = self.values.iter().map(typed).collect();
        let upstream = graph.ty(graph.find_input("upstream").expect("it was written"));
        let shape: Vec<usize> = upstream.shape.iter().filter_map(Dim::as_fixed).map(|n| n as usize).collect();
        let numbers = self.upstream.clone().unwrap_or_else(|| vec![1.0; shape.iter().product()]);
        let numbers = Array::floats(Dtype::F32, &shape, numbers.into_iter().map(f64::from));
        values.insert("upstream".into(), numbers);
        let found = interpret(&graph, &values).unwrap_or_else(|error| panic!("{error}"));
        graph.outputs().iter().map(|(name, _)| name.clone()).zip(found).collect()
    }

    /// Where results are further from the truth than the interpreter in f32 and a slack allow, or are not those asked
    /// for.
    pub fn far(&self, got: &Found) -> Option<String> {
        self.further(got, 0.0)
    }

    /// The same with a part of the largest element allowed for roundings.
    pub fn further(&self, got: &Found, rounding: f64) -> Option<String> {
        let naive = self.interpreted::<f32>(self.problem.dtype);
        let truth = self.interpreted::<f64>(Dtype::F32); // with no rounding at all
        if !got.keys().eq(naive.keys()) {
            return Some(format!("{:?}, asked for is {:?}", got.keys(), naive.keys()));
        }
        let one = |(name, got): (&String, &Array<f32>)| {
            let naive = Array::floats(got.dtype, &naive[name].shape, naive[name].wide());
            Some(format!("`{name}`: {}", difference(got, &naive, &truth[name], rounding)?))
        };
        got.iter().find_map(one)
    }
}

fn wide(value: &Array<f32>) -> Array<f64> {
    match &value.data {
        Data::Float(data) => Array::floats(value.dtype, &value.shape, data.iter().copied().map(f64::from)),
        Data::U8(data) => Array::bytes(&value.shape, data.clone()),
        Data::I32(data) => Array::integers(&value.shape, data.clone()),
    }
}

/// The bits of an array of floats.
pub fn bits(array: &Array<f32>) -> Vec<u32> {
    array.as_floats().iter().map(|x| x.to_bits()).collect()
}
