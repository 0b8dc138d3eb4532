//! Attention's logarithmic sums: what they are for, and that they cost no launch.

use challenges::graph::Solution;
use compiler::compile::{Level, compile};
use kernels::plan::Step;
use reference::grad::differentiate;
use reference::graph::interpret::Values;
use reference::graph::programs::{self, ScoreEntry, mask};
use reference::graph::{Array, Attention, Builder, Dtype, Graph, Id, Real, Tensor, interpret};
use tests::one_graph::devices;

use crate::compiled::Runner;

const SHAPE: [usize; 4] = [2, 2, 5, 3];

fn inputs(builder: &Builder, dtype: Dtype) -> [Tensor; 3] {
    ["q", "k", "v"].map(|name| builder.tape().input(name, dtype, SHAPE))
}

fn values<R: Real>(dtype: Dtype) -> Values<R> {
    let value = |seed: usize| {
        let numbers = (0..60).map(|i| ((i * 7 + seed * 131) as f64 * 0.618_034).fract() * 2.4 - 1.2);
        let held: Array<f32> = Array::floats(dtype, &SHAPE, numbers);
        Array::floats(dtype, &SHAPE, held.wide())
    };
    ["q", "k", "v"].into_iter().enumerate().map(|(seed, name)| (name.to_owned(), value(seed))).collect()
}

/// An attention in which a query sees the keys before its own place, so that the first one sees none.
fn strict(scale: f64) -> Attention {
    let before = mask("before", &[], |at: &ScoreEntry| at.key.less(&at.query)).expect("scalars");
    Attention { mask: Some(before), ..Attention::plain(scale) }
}

/// Attention to all keys from attention to each half of them: outputs weighted by e^lse, as ranks that hold parts of a
/// sequence do it.
#[test]
fn parts_of_the_keys_are_put_together_by_their_logarithmic_sums() {
    let builder = Builder::new("parts");
    let [q, k, v] = inputs(&builder, Dtype::F32);
    let whole = q.attend(Attention::plain(0.7), &k, &v, &[]);
    let lse_of_all = q.attend_lse(Attention::plain(0.7), &k, &v, &[]);
    let part = |from: usize, to: usize| {
        let [k, v] = [&k, &v].map(|x| x.slice(2, from, to));
        let [output, lse] =
            [q.attend(Attention::plain(0.7), &k, &v, &[]), q.attend_lse(Attention::plain(0.7), &k, &v, &[])];
        (output, lse.reshape([2, 2, 5, 1]))
    };
    let ((a, la), (b, lb)) = (part(0, 2), part(2, 5));
    let total = builder.tape().concat(&[&la, &lb], 3).logsumexp(3);
    let joined = &(&a * &(&la - &total).exp()) + &(&b * &(&lb - &total).exp());
    builder.tape().output("apart", &(&joined - &whole));
    builder.tape().output("lse", &(&total.reshape([2, 2, 5]) - &lse_of_all));
    let got = interpret(&builder.finish().expect("sound"), &values::<f64>(Dtype::F32)).expect("runs");
    assert!(got.iter().flat_map(Array::wide).all(|off| off.abs() < 1e-14));
}

/// A query that sees no key has minus infinity, and a gradient of zeros.
#[test]
fn a_blind_query_has_minus_infinity_and_no_gradient() {
    let builder = Builder::new("blind");
    let [q, k, v] = inputs(&builder, Dtype::F32);
    let lse = q.attend_lse(strict(0.7), &k, &v, &[]);
    let [loss, ids @ ..] = [&lse.exp().total(), &q, &k, &v].map(|tensor| builder.id(tensor).expect("a node"));
    builder.tape().output("lse", &lse);
    let mut graph = builder.finish().expect("sound");
    let gradients = differentiate(&mut graph, loss, &ids).expect("rules");
    gradients.iter().enumerate().for_each(|(i, id)| graph.output(format!("{i}"), *id));
    let got = interpret(&graph, &values::<f64>(Dtype::F32)).expect("runs");
    let blind = |lse: &[f64]| lse.chunks(5).all(|row| row[0] == f64::NEG_INFINITY && row[1].is_finite());
    assert!(blind(&got[0].wide()));
    assert!(got[1].wide().chunks(15).all(|head| head[..3].iter().all(|g| *g == 0.0) && head[3] != 0.0));
    assert!(got[2..].iter().flat_map(Array::wide).all(f64::is_finite));
    assert!(got[3].wide().iter().all(|g| *g == 0.0), "values do not matter");
}

/// Values and logarithmic sums, and the gradient of the values.
fn both(dtype: Dtype, attention: &Attention, lse_first: bool) -> Graph {
    let builder = Builder::new("both");
    let [q, k, v] = inputs(&builder, dtype);
    let lse = || q.attend_lse(attention.clone(), &k, &v, &[]);
    let early = lse_first.then(lse);
    let output = q.attend(attention.clone(), &k, &v, &[]);
    let lse = early.unwrap_or_else(lse);
    builder.tape().output("loss", &output.cast(Dtype::F32).sin().total());
    builder.tape().output("lse", &lse);
    let [loss, ids @ ..] = [&output.cast(Dtype::F32).sin().total(), &q, &k, &v]
        .map(|tensor| builder.id(tensor).expect("a node"));
    let mut graph = builder.finish().expect("sound");
    let gradients: Vec<Id> = differentiate(&mut graph, loss, &ids).expect("rules");
    gradients.iter().enumerate().for_each(|(i, id)| graph.output(format!("{i}"), *id));
    graph
}

#[test]
fn attention_and_its_logarithmic_sums_are_one_launch() {
    let causal = mask("causal", &[], programs::causal).expect("scalars");
    let causal = Attention { mask: Some(causal), ..Attention::plain(0.7) };
    for (dtype, attention, lse_first) in [
        (Dtype::F32, Attention::plain(0.7), false),
        (Dtype::F32, causal, true),
        (Dtype::Bf16, strict(0.7), false),
        (Dtype::F16, strict(0.7), true),
    ] {
        let graph = both(dtype, &attention, lse_first);
        let values = values::<f32>(dtype);
        let compile = || {
            let compiled =
                compile(&Solution, &graph, &std::collections::BTreeMap::new(), Level::O2.options());
            compiled.expect("compiles")
        };
        let compiled = compile();
        let launches =
            compiled.plan().steps.iter().filter(|step| matches!(step, Step::Attention { .. })).count();
        assert_eq!(launches, 1, "{dtype:?}");
        let truth = interpret(
            &graph,
            &values.iter().map(|(name, x)| (name.clone(), x.widened())).collect::<Values<f64>>(),
        );
        let truth = truth.expect("runs");
        for device in devices() {
            let got = Runner::of(device, compile()).and_then(|mut runner| runner.run(&values));
            for (got, truth) in got.expect("runs").iter().zip(&truth) {
                let slack = if dtype == Dtype::F32 { 2e-6 } else { 2e-2 };
                for (got, truth) in got.wide().into_iter().zip(truth.wide()) {
                    let near = (got - truth).abs() <= slack * (1.0 + truth.abs());
                    let is_same = near || got.to_bits() == truth.to_bits();
                    assert!(is_same, "{dtype:?} on {}: {got} {truth}", device.name());
                }
            }
        }
    }
}

/// What no launch computes is computed by its definition.
#[test]
fn the_gradient_of_logarithmic_sums_is_compiled_by_its_definition() {
    let builder = Builder::new("lse");
    let [q, k, v] = inputs(&builder, Dtype::F32);
    let lse = q.attend_lse(Attention::plain(0.7), &k, &v, &[]);
    let [loss, ids @ ..] = [&lse.sin().total(), &q, &k].map(|tensor| builder.id(tensor).expect("a node"));
    let mut graph = builder.finish().expect("sound");
    let gradients = differentiate(&mut graph, loss, &ids).expect("rules");
    gradients.iter().enumerate().for_each(|(i, id)| graph.output(format!("{i}"), *id));
    let values = values::<f32>(Dtype::F32);
    let want = interpret(&graph, &values).expect("runs");
    for (device, level) in
        devices().into_iter().flat_map(|device| [Level::O0, Level::O2].map(|level| (device, level)))
    {
        let runner = Runner::new(device, &graph, &values, level);
        let got = runner.and_then(|mut runner| runner.run(&values)).expect("runs");
        for (got, want) in got.iter().zip(&want) {
            let off = got.wide().into_iter().zip(want.wide()).map(|(a, b)| (a - b).abs());
            assert!(off.fold(0.0, f64::max) < 1e-5);
        }
    }
}
