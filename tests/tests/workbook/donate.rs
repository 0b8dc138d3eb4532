//! Passes in place and donated tensors: what is updated where it lies is what it would be apart.

use std::collections::BTreeMap;

use challenges::graph::Solution;
use compiler::compile::{Compiled, Level, Options, compile};
use kernels::Device;
use kernels::plan::{Memory, Step};
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dim, Dtype, Facts, Graph, interpret};
use reference::{grad, loss};
use tests::one_graph::{OneGraph, devices, upload};

use crate::compiled::sizes;

/// The sizes of a case: n, V, H.
const SIZES: [usize; 3] = [7, 37, 5];

/// The values of a chunk's rows, and their gradients; that of the weight is added to what is donated.
fn chunk(vocab: i64, width: i64, rows: impl Fn(&[reference::graph::Tensor; 4]) -> loss::Rows) -> Graph {
    let builder = Builder::new("chunk");
    let tape = builder.tape();
    let n = tape.symbol("N", Facts::range(1, 1 << 16));
    let [v, h] = [vocab, width].map(Dim::fixed);
    let hidden = tape.input("hidden", Dtype::F32, [&n, &h]);
    let weight = tape.input("weight", Dtype::F32, [&v, &h]);
    let labels = tape.input("labels", Dtype::I32, [&n]);
    let seed = tape.input("seed", Dtype::F32, [&n]);
    let sum = tape.input("weight.grad", Dtype::F32, [&v, &h]);
    let teacher = tape.input("teacher", Dtype::F32, [&n, &v]);
    let z = loss::Linear::graph(&hidden, &weight, None);
    let values = rows(&[z, labels, teacher, seed.clone()]).values;
    let [values, seed, hidden, weight, sum] =
        [&values, &seed, &hidden, &weight, &sum].map(|tensor| builder.id(tensor).expect("no mistake"));
    let mut graph = builder.finish().expect("shapes that fit");
    let gradients = grad::pull_back(&mut graph, values, seed, &[hidden, weight]).expect("floats");
    let builder = Builder::onto(graph);
    let sum = &builder.tensor(sum) + &builder.tensor(gradients[1]);
    builder.tape().output("values", &builder.tensor(values));
    builder.tape().output("hidden.grad", &builder.tensor(gradients[0]));
    builder.tape().output("weight.grad", &sum);
    builder.finish().expect("shapes that fit")
}

/// The losses of one row of logits, with what they need.
fn losses() -> Vec<(&'static str, Graph)> {
    let [_, vocab, width] = SIZES.map(|size| size as i64);
    all_losses(vocab, width)
}

fn all_losses(vocab: i64, width: i64) -> Vec<(&'static str, Graph)> {
    let plain = loss::CrossEntropy::default();
    let smooth = loss::CrossEntropy { label_smoothing: 0.1, ..plain };
    let cap = loss::Head { scale: 1.0, softcap: Some(30.0) };
    let z = loss::CrossEntropy { z_loss: 1e-2, ..plain };
    vec![
        ("cross entropy", chunk(vocab, width, |[z, labels, ..]| plain.rows(z, labels, None))),
        ("smoothed", chunk(vocab, width, |[z, labels, ..]| smooth.rows(z, labels, None))),
        ("capped", chunk(vocab, width, |[z, labels, ..]| plain.rows(&cap.graph(z), labels, None))),
        (
            "with z-loss",
            chunk(vocab, width, |[logits, labels, ..]| {
                let rows = z.rows(logits, labels, None);
                loss::Rows { values: &rows.values + &z.z_rows(logits, labels).values, ..rows }
            }),
        ),
        (
            "distilled",
            chunk(vocab, width, |[z, _, teacher, seed]| {
                loss::Divergence::ForwardKl.rows(z, teacher, &seed.like(1.0))
            }),
        ),
    ]
}

fn options(donate: bool) -> Options {
    Options { donate, remat: false, ..Level::O2.options() }
}

/// Numbers without a pattern, between -2 and 2.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| (((i + seed) * 7919 + 13) % 8191) as f64 / 2048.0 - 2.0).collect()
}

fn values([n, v, h]: [usize; 3]) -> Values<f32> {
    let float =
        |shape: &[usize], seed| Array::floats(Dtype::F32, shape, numbers(shape.iter().product(), seed));
    let labels = (0..n).map(|i| if i == 2 { -100 } else { (i * 11 % v) as i32 }).collect();
    BTreeMap::from([
        ("hidden".to_owned(), float(&[n, h], 1)),
        ("weight".to_owned(), float(&[v, h], 2)),
        ("seed".to_owned(), float(&[n], 3)),
        ("weight.grad".to_owned(), float(&[v, h], 4)),
        ("teacher".to_owned(), float(&[n, v], 5)),
        ("labels".to_owned(), Array::integers(&[n], labels)),
    ])
}

/// Runs a graph that carries, and returns every output by name.
fn run_carrying(
    device: &dyn Device,
    compiled: Compiled,
    values: &Values<f32>,
) -> BTreeMap<String, Array<f32>> {
    let donated: Vec<String> = compiled.donated().into_iter().map(str::to_owned).collect();
    let mut graph = OneGraph::of(&Solution, device, compiled).expect("it is taken");
    let (session, program) = graph.parts();
    let mut given = upload(device, values);
    for name in donated {
        let tensor = given.remove(&name).expect("a value");
        session.keep(&name, tensor);
    }
    let outputs = session.run(program, &given).expect("it runs");
    outputs.names().map(|name| (name.to_owned(), outputs.array(name).expect("an output"))).collect()
}

/// Whether what comes out on every device is what the interpreter says, up to the order of sums.
fn agrees(what: &str, graph: &Graph, values: &Values<f32>, donate: Options) -> Compiled {
    let compile = || compile(&Solution, graph, &sizes(graph, values), donate).expect("it compiles");
    let compiled = compile();
    let want = interpret(graph, values).expect("it means something");
    for device in devices() {
        let got = run_carrying(device, compile(), values);
        for ((name, _), want) in graph.outputs().iter().zip(&want) {
            let largest = want.wide().iter().fold(1.0_f64, |max, x| max.max(x.abs()));
            for (i, (got, want)) in got[name].wide().iter().zip(want.wide()).enumerate() {
                assert!(
                    (got - want).abs() <= 1e-5 * largest,
                    "{what} on {}: {name} at {i}: expected {want}, found {got}",
                    device.name()
                );
            }
        }
    }
    compiled
}

#[test]
fn a_chunk_of_a_loss_has_one_buffer_of_logits_and_adds_to_the_gradient_of_the_weight() {
    for (what, graph) in losses() {
        let compiled = agrees(what, &graph, &values(SIZES), options(true));
        let steps = &compiled.plan().steps;
        let passes =
            steps.iter().filter(|step| matches!(step, Step::Pass { inputs, .. } if !inputs.is_empty()));
        assert_eq!(passes.count(), 1, "{what}: one pass over the logits\n{}", compiled.plan());
        let Some(Step::Product(last)) = steps.last() else { panic!("{what}: a product at the end") };
        assert!(last.add && last.to.memory == Memory::InOut(0), "{what}\n{}", compiled.plan());
        let sizes = BTreeMap::from([("N".into(), 192)]);
        let large = all_losses(3200, 64).into_iter().find(|(name, _)| *name == what).expect("it is there").1;
        let large = compile(&Solution, &large, &sizes, options(true)).expect("it compiles");
        let logits = 192 * 3200 * 4;
        assert!((logits..logits * 5 / 4).contains(&large.arena.bytes), "{what}: {}", large.plan());
    }
}

#[test]
fn what_is_not_carried_is_computed_as_ever() {
    for (what, graph) in losses() {
        let compiled =
            compile(&Solution, &graph, &sizes(&graph, &values(SIZES)), options(false)).expect("it compiles");
        assert!(compiled.plan().donated.is_empty(), "{what}");
    }
}

/// A graph of f32 (5, 3) inputs `a`, `b` and what is made of them.
fn small(make: impl Fn(&Builder, &reference::graph::Tensor, &reference::graph::Tensor)) -> Graph {
    let builder = Builder::new("small");
    let [a, b] = ["a", "b"].map(|name| builder.tape().input(name, Dtype::F32, [5_i64, 3].map(Dim::fixed)));
    make(&builder, &a, &b);
    builder.finish().expect("shapes that fit")
}

fn out(builder: &Builder, name: &str, tensor: &reference::graph::Tensor) {
    builder.tape().output(name, tensor);
}

/// Whether graphs of inputs `a` and `b` compute at every level what they mean.
fn agree(graphs: &[(&str, Graph)]) {
    let float = |seed| Array::floats(Dtype::F32, &[5, 3], numbers(15, seed));
    let values = BTreeMap::from([("a".to_owned(), float(1)), ("b".to_owned(), float(2))]);
    for (what, graph) in graphs {
        for level in [Level::O0, Level::O1, Level::O2] {
            agrees(what, graph, &values, Options { donate: true, ..level.options() });
        }
    }
}

#[test]
fn donated_inputs_may_swap() {
    let swap = small(|t, a, b| {
        out(t, "a", b);
        out(t, "b", a);
    });
    let crossed = small(|t, a, b| {
        out(t, "a", &(a + b));
        out(t, "b", &(a - b));
    });
    let another = small(|t, a, b| {
        out(t, "a", b);
        out(t, "c", &(a + b));
    });
    agree(&[("swap", swap), ("crossed", crossed), ("another input", another)]);
}

#[test]
fn donated_inputs_may_be_read_late() {
    let old = small(|t, a, b| {
        out(t, "a", &(a + b));
        out(t, "old", a);
    });
    agree(&[
        ("update", small(|t, a, b| out(t, "a", &(&(a + b) * 2.0)))),
        ("old value", old),
        ("by rows", small(|t, a, b| out(t, "a", &(a - &(&(a + b).sum(1).spread(a.shape()) * 0.5))))),
        ("by columns", small(|t, a, b| out(t, "a", &(a - &(&(a + b).sum(0).spread(a.shape()) * 0.5))))),
        ("product", small(|t, a, b| out(t, "a", &(a + &b.matmul(&b.t().matmul(b)))))),
        ("product of itself", small(|t, a, b| out(t, "a", &(a + &a.matmul(&b.t().matmul(b)))))),
        ("twice", small(|t, a, b| out(t, "a", &(&(a + a) + &b.matmul(&b.t().matmul(b)))))),
        ("less", small(|t, a, b| out(t, "a", &(&b.matmul(&b.t().matmul(b)) - a)))),
    ]);
}

#[test]
fn donated_inputs_may_pass_unchanged() {
    let unchanged = small(|t, a, b| {
        out(t, "a", a);
        out(t, "c", &(a + b));
    });
    agree(&[("unchanged", unchanged)]);
}

#[test]
fn donated_inputs_may_share_a_result() {
    let shared = small(|t, a, b| {
        let product = a * b;
        out(t, "a", &product);
        out(t, "b", &product);
        out(t, "c", &product);
    });
    agree(&[("three names", shared)]);
}
