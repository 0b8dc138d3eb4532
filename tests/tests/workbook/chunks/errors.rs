//! What is wrong is said by its name, whoever is wrong: the user's inputs, or an attempt's plan.

use std::collections::BTreeMap;

use challenges::graph;
use challenges::loss::losses::Answers;
use challenges::loss::problem::row_dim;
use challenges::loss::run::{Hidden, Job, Runner, Size};
use challenges::loss::{Chunked, Cost, Loss, Problem, Sampled, Solution};
use compiler::session::DeviceTensor;
use kernels::Device;
use reference::graph::{Array, Builder, Dtype, Error, Graph, Tape, Tensor, Type};
use reference::loss::{Dpo, IGNORED, Policy, Reduction};
use tests::one_graph::{CPU, devices};

use super::case::Case;
use super::drawn::{self, Sizes};
use crate::loss::problem::Random;

const SIZES: Sizes = Sizes { sequences: 2, length: 4, width: 5, vocab: 11 };

/// Every row counts.
fn sound() -> Case {
    let mut case = drawn::plain(SIZES, Reduction::Mean, [true; 3], 4);
    let rows = case.counts.len();
    case.values.insert("labels".into(), Array::integers(&[rows], (0..rows as i32).collect()));
    case.counts.fill(true);
    case.upstream = None;
    case
}

/// What is reported of a case.
fn describe(case: &Case) -> String {
    told_of(case, &Solution, Size::Rows(3))
}

fn told_of(case: &Case, attempt: &dyn Chunked, size: Size) -> String {
    let results = case.results_of(&*CPU, attempt, size);
    results.map(|results| results.loss).expect_err("something is wrong").to_string()
}

fn says(message: &str, words: &[&str]) {
    assert!(words.iter().all(|words| message.contains(words)), "{message}, expected was {words:?}");
}

/// The solution, changed on its way out.
struct Changed {
    cut: fn(Vec<Vec<usize>>) -> Vec<Vec<usize>>,
    each: fn(Graph) -> Graph,
    seeds: fn(Graph) -> Graph,
}

const UNCHANGED: Changed = Changed { cut: |chunks| chunks, each: |graph| graph, seeds: |graph| graph };

impl Chunked for Changed {
    fn log_sum_exp(&self, hidden: &Tensor, weight: &Tensor, stretch: usize) -> Tensor {
        Solution.log_sum_exp(hidden, weight, stretch)
    }

    fn cut(&self, counts: &[bool], size: usize) -> Vec<Vec<usize>> {
        (self.cut)(Solution.cut(counts, size))
    }

    fn forward(&self, problem: &Problem) -> Result<Graph, Error> {
        Solution.forward(problem)
    }

    fn backward(&self, problem: &Problem) -> Result<Graph, Error> {
        Solution.backward(problem).map(self.each)
    }

    fn seeds(&self, problem: &Problem) -> Result<Graph, Error> {
        Solution.seeds(problem).map(self.seeds)
    }

    fn shift(&self, labels: &[i32], length: usize) -> Vec<i32> {
        Solution.shift(labels, length)
    }

    fn policy(&self, policy: &Policy, sampled: &Sampled) -> Result<Loss, Error> {
        Solution.policy(policy, sampled)
    }

    fn size(&self, costs: &[Cost], rows: usize, budget: usize) -> Option<usize> {
        Solution.size(costs, rows, budget)
    }
}

#[test]
fn chunks_that_are_not_the_rows_that_count_are_refused() {
    type Cut = fn(Vec<Vec<usize>>) -> Vec<Vec<usize>>;
    let table: [(Cut, &str); 7] = [
        (|chunks| chunks[1..].to_vec(), "row 1 counts, and no chunk has it"),
        (
            |mut chunks| {
                chunks[1].pop();
                chunks
            },
            "row 7 counts, and no chunk has it",
        ),
        (|_| vec![], "row 1 counts, and no chunk has it"),
        (
            |mut chunks| {
                chunks[1].push(2);
                chunks
            },
            "row 2 of chunk 1 does not count, or was there before",
        ),
        (
            |mut chunks| {
                chunks[0][0] = 0;
                chunks
            },
            "row 0 of chunk 0 does not count",
        ),
        (
            |mut chunks| {
                chunks.push(vec![usize::MAX]);
                chunks
            },
            "of chunk 2 does not count",
        ),
        (
            |mut chunks| {
                chunks.insert(1, vec![]);
                chunks
            },
            "chunk 1 is empty",
        ),
    ];
    let mut case = sound();
    let labels = [IGNORED, 1, 2, 3, 4, 5, 6, 7];
    case.values.insert("labels".into(), Array::integers(&[8], labels.to_vec()));
    case.counts[0] = false;
    for (cut, words) in table {
        says(&told_of(&case, &Changed { cut, ..UNCHANGED }, Size::Rows(4)), &["the chunks: ", words]);
    }
}

#[test]
fn an_input_that_is_missing_is_named() {
    for name in ["weight", "bias", "labels"] {
        let mut case = sound();
        case.values.remove(name);
        assert_eq!(describe(&case), format!("missing input `{name}`"));
    }
    let loss = Answers { count: SIZES.sequences, length: SIZES.length, vocab: SIZES.vocab }
        .dpo(Dpo { beta: 0.1, label_smoothing: 0.0 }, Reduction::Mean);
    let mut case = drawn::with(loss.expect("a loss"), SIZES, [true; 3], &mut Random(1));
    case.values.remove("reference");
    assert_eq!(describe(&case), "missing input `reference`");
}

#[test]
fn an_input_of_another_shape_is_named_with_both() {
    let table = [
        ("hidden", vec![8, 4], vec!["`hidden`: expected", "found 128 bytes", "(8, 5)"]),
        ("weight", vec![10, 5], vec!["`weight`: expected", "found [10, 5]", "[11, 5]"]),
        ("weight", vec![5, 11], vec!["`weight`: expected", "found [5, 11]"]),
        ("bias", vec![5], vec!["`bias`: expected", "found [5]", "[11]"]),
    ];
    for (name, shape, words) in table {
        let mut case = sound();
        let zeros = vec![0.0; shape.iter().product()];
        case.values.insert(name.into(), Array::floats(Dtype::F32, &shape, zeros));
        says(&describe(&case), &words);
    }
    let mut case = sound();
    case.values.insert("labels".into(), Array::integers(&[7], vec![0; 7]));
    says(&describe(&case), &["`labels`: expected", "found [7]", "N = 8"]);
    let mut case = sound();
    case.upstream = Some(vec![1.0, 1.0]);
    says(&describe(&case), &["`upstream`: expected 1, found 2 numbers"]);
}

#[test]
fn memory_that_is_not_as_large_as_its_shape_says_is_refused() {
    let case = sound();
    for device in devices() {
        let mut uploaded = case.uploaded(device);
        let buffer = device.alloc("tensor", 8).expect("room");
        uploaded.given.insert("weight".into(), DeviceTensor { shape: vec![11, 5], buffer });
        let mut runner = Runner::new(device, &graph::Solution, &Solution, &case.problem);
        let message = runner.run(case.job(&uploaded, Size::Rows(3))).expect_err("8 bytes").to_string();
        says(&message, &["`weight`", "in 8 bytes"]);
    }
}

#[test]
fn gradients_so_far_of_another_size_are_refused() {
    devices().into_iter().for_each(refuses_gradients_of_another_size);
}

fn refuses_gradients_of_another_size(device: &dyn Device) {
    let case = sound();
    let uploaded = case.uploaded(device);
    for (name, need) in [("weight.grad", "220 bytes"), ("bias.grad", "44 bytes")] {
        let so_far = BTreeMap::from([(name.to_owned(), device.alloc("gradient", 12).expect("room"))]);
        let job = Job { so_far, ..case.job(&uploaded, Size::Rows(3)) };
        let mut runner = Runner::new(device, &graph::Solution, &Solution, &case.problem);
        let message = runner.run(job).expect_err("12 bytes").to_string();
        says(&message, &[name, "12 bytes", need]);
    }
}

#[test]
fn states_that_are_handed_over_are_looked_at_too() {
    let case = sound();
    for device in devices() {
        let uploaded = case.uploaded(device);
        let hidden = Hidden::Donated(device.alloc("hidden", 4).expect("room"));
        let job = Job { hidden, ..case.job(&uploaded, Size::Rows(3)) };
        let mut runner = Runner::new(device, &graph::Solution, &Solution, &case.problem);
        says(&runner.run(job).expect_err("4 bytes").to_string(), &["`hidden`: expected", "found 4 bytes"]);
    }
}

#[test]
fn a_label_outside_the_vocabulary_is_named_with_its_row() {
    for label in [-1, 11, i32::MAX, i32::MIN, IGNORED] {
        let mut case = sound();
        let mut labels: Vec<i32> = (0..8).collect();
        labels[5] = label;
        case.values.insert("labels".into(), Array::integers(&[8], labels));
        let want = format!("`labels`[5] of a row that counts: expected 0 to 10, found {label}");
        assert_eq!(describe(&case), want);
    }
}

#[test]
fn a_budget_below_one_row_is_refused_with_what_one_takes() {
    let message = told_of(&sound(), &Solution, Size::Bytes(7));
    says(&message, &["budget: expected at least ", "a chunk of one row", "found 7"]);
}

/// A chunk's graph with an output replaced, added or left out.
fn replaced(mut graph: Graph, name: &str, by: impl FnOnce(&Builder) -> Option<Tensor>) -> Graph {
    let kept: Vec<_> = graph.outputs().iter().filter(|(one, _)| one != name).cloned().collect();
    graph.clear_outputs();
    for (name, id) in kept {
        graph.output(name, id);
    }
    let builder = Builder::onto(graph);
    if let Some(tensor) = by(&builder) {
        builder.tape().output(name, &tensor);
    }
    builder.finish().expect("a graph")
}

/// An input whose rows have a shape.
fn input(tape: &Tape, name: &str, shape: &[usize]) -> Tensor {
    let dims = [row_dim(tape)].into_iter().chain(shape.iter().map(|n| (*n).into()));
    tape.input(name, Dtype::F32, dims.collect::<Vec<_>>())
}

#[test]
fn a_graph_of_a_chunk_that_gives_something_else_is_refused() {
    type Each = fn(Graph) -> Graph;
    let table: [(Each, &[&str]); 8] = [
        (
            |graph| {
                let values = graph.find_output("nll").expect("an output");
                replaced(graph, "more", |builder| Some(builder.tensor(values).exp()))
            },
            &["`more`: expected", "found an output", "nobody asked for it"],
        ),
        (|graph| replaced(graph, "nll", |_| None), &["`nll`: expected", "found no output", "f32[N]"]),
        (
            |graph| replaced(graph, "hidden.grad", |_| None),
            &["`hidden.grad`: expected", "found no output", "f32[N, 5]"],
        ),
        (
            |graph| {
                let values = graph.find_output("nll").expect("an output");
                replaced(graph, "nll", |builder| Some(builder.tensor(values).total()))
            },
            &["`nll`: expected", "found f32[]", "f32[N]"],
        ),
        (
            |graph| {
                let hidden = graph.find_output("hidden.grad").expect("an output");
                replaced(graph, "hidden.grad", |builder| Some(builder.tensor(hidden).cast(Dtype::Bf16)))
            },
            &["`hidden.grad`: expected", "found bf16[N, 5]", "f32[N, 5]"],
        ),
        (
            |graph| {
                let weight = graph.find_output("weight.grad").expect("an output");
                replaced(graph, "weight.grad", |builder| Some(builder.tensor(weight).t()))
            },
            &["`weight.grad`: expected", "found f32[5, 11]", "f32[11, 5]"],
        ),
        (
            |graph| {
                over(&graph, |tape, name, ty| match name {
                    "weight.grad" => tape.constant(0.0, ty),
                    name => tape.input(name, ty.dtype, &ty.shape),
                })
            },
            &["`weight.grad`: expected", "found what one chunk adds", "an input of that name"],
        ),
        (|graph| renamed(&graph, "labels", "answers"), &["missing input `answers`"]),
    ];
    for (each, words) in table {
        says(&told_of(&sound(), &Changed { each, ..UNCHANGED }, Size::Rows(3)), words);
    }
}

/// The same program over other inputs, each made from the name and type of an old one.
fn over(graph: &Graph, input: impl Fn(&Tape, &str, &Type) -> Tensor) -> Graph {
    let builder = Builder::new("other");
    row_dim(builder.tape()); // the inputs speak of it
    let given: Vec<Tensor> =
        graph.inputs().map(|(name, id)| input(builder.tape(), name, graph.ty(id))).collect();
    let results = builder.tape().inline(graph, &given);
    graph.outputs().iter().zip(results).for_each(|((name, _), tensor)| builder.tape().output(name, &tensor));
    builder.finish().expect("a graph")
}

/// The same with an input called something else.
fn renamed(graph: &Graph, from: &str, to: &str) -> Graph {
    over(graph, |tape, name, ty| tape.input(if name == from { to } else { name }, ty.dtype, &ty.shape))
}

#[test]
fn a_graph_of_a_chunk_that_reads_what_is_not_there_is_refused() {
    let teacher = |graph: Graph| reading(graph, "teacher");
    let seed = |graph: Graph| reading(graph, "seed.z");
    for (each, name) in [(teacher as fn(Graph) -> Graph, "teacher"), (seed, "seed.z")] {
        let message = told_of(&sound(), &Changed { each, ..UNCHANGED }, Size::Rows(3));
        assert_eq!(message, format!("missing input `{name}`"));
    }
}

/// A chunk's graph whose values are made of one more input.
fn reading(graph: Graph, name: &str) -> Graph {
    let values = graph.find_output("nll").expect("an output");
    replaced(graph, "nll", |builder| Some(&builder.tensor(values) + &input(builder.tape(), name, &[])))
}

#[test]
fn a_graph_of_a_chunk_that_takes_an_input_for_another_shape_is_refused() {
    let says_of = |each: fn(Graph) -> Graph, words: &[&str]| {
        says(&told_of(&sound(), &Changed { each, ..UNCHANGED }, Size::Rows(3)), words);
    };
    says_of(
        |graph| {
            over(&graph, |tape, name, ty| match name {
                "seed.nll" => input(tape, name, &[3]).sum(1).reshape([row_dim(tape)]),
                name => tape.input(name, ty.dtype, &ty.shape),
            })
        },
        &["`seed.nll`: expected", "found f32[N, 3]", "f32[N]"],
    );
    says_of(
        |graph| {
            over(&graph, |tape, name, ty| match name {
                "hidden" => input(tape, name, &[9]).slice(1, 0, 5),
                name => tape.input(name, ty.dtype, &ty.shape),
            })
        },
        &["`hidden`: expected", "found f32[N, 9]", "f32[N, 5]"],
    );
    says_of(
        |graph| {
            over(&graph, |tape, name, ty| match name {
                "weight" => tape.input(name, ty.dtype, [11_usize, 6]).slice(1, 0, 5),
                name => tape.input(name, ty.dtype, &ty.shape),
            })
        },
        &["`weight`: expected", "found [11, 5]", "f32[11, 6]"],
    );
}

#[test]
fn seeds_that_are_not_one_for_each_row_are_refused() {
    let none = |mut graph: Graph| {
        graph.clear_outputs();
        graph
    };
    says(
        &told_of(&sound(), &Changed { seeds: none, ..UNCHANGED }, Size::Rows(3)),
        &["`seed.nll`: expected 8 numbers, found no output of `seeds`"],
    );
    let loss_too = |mut graph: Graph| {
        let seed = graph.find_output("seed.nll").expect("an output");
        graph.output("loss", seed);
        graph
    };
    says(
        &told_of(&sound(), &Changed { seeds: loss_too, ..UNCHANGED }, Size::Rows(3)),
        &["`loss`: expected", "found an output of `seeds`", "and no other", "second pass"],
    );
    let one = |graph: Graph| {
        let seed = graph.find_output("seed.nll").expect("an output");
        replaced(graph, "seed.nll", |builder| Some(builder.tensor(seed).total()))
    };
    says(
        &told_of(&sound(), &Changed { seeds: one, ..UNCHANGED }, Size::Rows(3)),
        &["`seed.nll`: expected 8 numbers, found 1 numbers"],
    );
}

#[test]
fn a_loss_that_declares_an_input_twice_is_refused_with_its_name() {
    let twice = |tape: &Tape, logits: &Tensor| {
        let weights = || input(tape, "weights", &[]);
        vec![("nll", &(&logits.sum(1).reshape([row_dim(tape)]) * &weights()) * &weights())]
    };
    let message =
        Loss::new("twice", 11, twice, |tape| input(tape, "nll", &[]).total()).expect_err("a name twice");
    says(&message.to_string(), &["`weights`", "the name is used twice"]);
    let mut case = sound();
    let builder = Builder::onto(case.problem.loss.whole);
    let _ = input(builder.tape(), "nll", &[]); // the second of that name
    case.problem.loss.whole = builder.finish().expect("a graph");
    says(&told_of(&case, &Solution, Size::Rows(3)), &["`nll`", "the name is used twice"]);
}

#[test]
fn labels_of_more_than_one_a_row_are_refused() {
    let rows = |tape: &Tape, logits: &Tensor| {
        let labels = tape.input("labels", Dtype::I32, [row_dim(tape), 2.into()]);
        vec![(
            "value",
            &logits.sum(1).reshape([row_dim(tape)])
                + &labels.cast(Dtype::F32).sum(1).reshape([row_dim(tape)]),
        )]
    };
    let loss = Loss::new("two labels", 11, rows, |tape| input(tape, "value", &[]).total());
    let mut case = sound();
    let count = case.counts.len();
    case.problem.loss = loss.expect("a loss");
    case.values.insert("labels".into(), Array::integers(&[count, 2], vec![0; 2 * count]));
    says(&describe(&case), &["`labels`", "i32[N, 2]", "a label for each row"]);
}
