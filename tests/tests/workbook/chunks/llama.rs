//! The golden QLoRA run with its loss in chunks: the hidden states, the loss with their gradient, and the step for it.

use std::collections::BTreeMap;

use challenges::graph;
use challenges::loss::losses;
use challenges::loss::run::{Hidden, Job, Runner, Size};
use challenges::loss::{Chunked, Problem, Solution, Trains};
use compiler::compile::Level;
use compiler::session::DeviceTensor;
use kernels::{Cpu, Device};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, interpret};
use reference::llama::train::{Report, step_of};
use reference::llama::{Spec, rope};
use reference::loss::{CrossEntropy, Head, IGNORED, Reduction};
use tests::tiny_llama::TinyLlama;

use crate::compiled::{self, started};
use crate::llama::{check_run, recipe};

/// Of one loss: what the order of a sum may cost.
const NEAR: f64 = 1e-6;

#[test]
fn a_training_run_in_chunks_is_as_near_the_truth_as_the_original_is() {
    let Some(tiny) = TinyLlama::find() else { return };
    let whole = trained(&tiny, usize::MAX);
    for size in [10, 64] {
        let chunked = trained(&tiny, size);
        let apart = whole.iter().zip(&chunked).map(|(whole, chunked)| (chunked / whole - 1.0).abs());
        let apart = apart.fold(0.0, f64::max);
        println!("{size} rows at a time: {apart:e} from all at once");
        assert!(apart <= NEAR, "{size} rows at a time: {apart} from all at once");
    }
}

/// The losses of the golden run with so many rows in a chunk.
fn trained(tiny: &TinyLlama, size: usize) -> Vec<f64> {
    let (run, llama, adapter) = (tiny.run(), tiny.open("nf4"), tiny.adapter("adapter-start"));
    let recipe = recipe(&run);
    let mut spec = llama.spec();
    let mut values = llama.values::<f32>().expect("weights");
    values.append(&mut adapter.values());
    spec.adapter = Some(adapter.config);
    let step = step_of(spec.surrogate_loss().expect("a graph"), &recipe).expect("a graph");
    started(&step, &mut values);
    let problem = problem(&spec);
    let device = Cpu::with_threads(2);
    let mut loss = Loss::new(&device, &problem, &spec, &values, size);
    let mut parts: Option<[compiled::Runner; 2]> = None;
    let one = |number: usize| {
        let ids = tiny.ids::<f32>(run.batch * number..run.batch * (number + 1));
        let [batch, length] = ids.shape[..] else { panic!("ids are rows of tokens") };
        values.append(&mut rope::values(&llama.config, length));
        values.append(&mut recipe.optimizer.rates(number as u64 + 1, run.lr));
        values.insert("ids".into(), ids.clone());
        let shape = [batch * length, problem.width];
        let zeros = || Array::floats(Dtype::F32, &shape, vec![0.0; shape[0] * shape[1]]);
        values.entry("hidden.grad".into()).or_insert_with(zeros);
        let [states, update] = parts.get_or_insert_with(|| {
            [&spec.hidden_states().expect("a graph"), &step]
                .map(|graph| compiled::Runner::new(graph, &values, Level::O2).expect("it compiles"))
        });
        let hidden = states.run(&values).expect("hidden states").remove(0);
        let (mean, gradient) = loss.of(&hidden, &Solution.shift(ids.as_integers(), length));
        values.insert("hidden.grad".into(), gradient);
        let results = update.run(&values).expect("a step");
        values.extend(step.outputs().iter().map(|(name, _)| name.clone()).zip(results));
        Report { loss: mean, grad_norm: values["grad_norm"].wide()[0] }
    };
    let reports: Vec<Report> = (0..run.steps).map(one).collect();
    check_run(tiny, &reports, &values);
    reports.iter().map(|report| report.loss).collect()
}

/// The mean cross entropy behind a frozen head.
fn problem(spec: &Spec) -> Problem {
    let (vocab, width) = (spec.config.vocab, spec.config.hidden);
    let loss = losses::cross_entropy(CrossEntropy::default(), Head::default(), vocab, false, Reduction::Mean);
    Problem {
        loss: loss.expect("a loss"),
        width,
        vocab,
        dtype: Dtype::F32,
        accumulate_dtype: Dtype::F32,
        bias: false,
        trains: Trains { hidden: true, weight: false, bias: false },
    }
}

/// The chunked loss of a model.
struct Loss<'a> {
    device: &'a Cpu,
    runner: Runner<'a>,
    given: BTreeMap<String, DeviceTensor>,
    size: usize,
}

impl<'a> Loss<'a> {
    fn new(device: &'a Cpu, problem: &'a Problem, spec: &Spec, values: &Values<f32>, size: usize) -> Self {
        let head = interpret(&spec.output_layer().expect("a graph"), values).expect("a weight").remove(0);
        let weight = DeviceTensor::new(device, &head.shape, &head.to_memory()).expect("room");
        let runner = Runner::new(device, &graph::Solution, &Solution, problem);
        Self { device, runner, given: BTreeMap::from([("weight".to_owned(), weight)]), size }
    }

    /// Of hidden states and labels: the mean, and the gradient of the states.
    fn of(&mut self, hidden: &Array<f32>, labels: &[i32]) -> (f64, Array<f32>) {
        let bytes: Vec<u8> = labels.iter().flat_map(|label| label.to_ne_bytes()).collect();
        let labelled = DeviceTensor::new(self.device, &[labels.len()], &bytes).expect("room");
        self.given.insert("labels".into(), labelled);
        let mut buffer = self.device.alloc("hidden", hidden.to_memory().len()).expect("room");
        self.device.upload(&mut buffer, &hidden.to_memory()).expect("equal lengths");
        let counts: Vec<bool> = labels.iter().map(|label| *label != IGNORED).collect();
        let job = Job {
            hidden: Hidden::Donated(buffer),
            given: &self.given,
            counts: &counts,
            upstream: None,
            size: Size::Rows(self.size),
            so_far: BTreeMap::new(),
        };
        let results = self.runner.run(job).unwrap_or_else(|error| panic!("{error}"));
        let counted = counts.iter().filter(|counts| **counts).count();
        assert_eq!(results.chunks.len(), counted.div_ceil(self.size));
        let gradient = results.gradients["hidden.grad"].view();
        (f64::from(results.loss[0]), Array::from_memory(Dtype::F32, &hidden.shape, gradient))
    }
}
