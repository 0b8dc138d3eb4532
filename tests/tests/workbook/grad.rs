//! Gradients: every rule against central differences in f64, where nothing is rounded.

use std::collections::BTreeMap;

use proptest::prelude::*;
use reference::grad::{differentiate, pull_back};
use reference::graph::interpret::Values;
use reference::graph::programs::{
    ScoreEntry, alibi, and, causal, distance_bias, document, mask, prefix_lm, relative_bias, score,
    sliding_window, softcap,
};
use reference::graph::{
    Array, Attention, Binary, Builder, Compare, Data, Dim, Dtype, Facts, Fault, Graph, Id, Op, Reduce,
    Tensor, Type, Unary, interpret,
};
use tests::graphs::{self, Case, nearest_tie};

/// How far the gradient of one operation may be from the difference, relative to the size of what is added up.
const SLACK: f64 = 1e-8;

/// The same of a chain of operations, whose fifth derivative may be large.
const CHAIN_SLACK: f64 = 1e-7;

/// The step of a difference. The error of the formula of four points is its fourth power.
const STEP: f64 = 2e-4;

/// Numbers in -1.2..1.2, no two alike.
fn spread(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7 + seed * 13 + 5) as f64 * 0.618_034).fract() * 2.4 - 1.2).collect()
}

/// The values with `step` times the direction added to one input.
fn moved(values: &Values<f64>, name: &str, direction: &[f64], step: f64) -> Values<f64> {
    let mut values = values.clone();
    if let Some(Array { data: Data::Float(x), .. }) = values.get_mut(name) {
        x.iter_mut().zip(direction).for_each(|(x, d)| *x += step * d);
    }
    values
}

/// The graph's only number where the input has moved.
fn loss(graph: &Graph, values: &Values<f64>) -> f64 {
    interpret(graph, values).expect("a sound graph runs")[0].wide()[0]
}

/// The derivative of the first output, a number, along a direction of one input: central differences of four points.
fn difference(graph: &Graph, values: &Values<f64>, name: &str, direction: &[f64], step: f64) -> f64 {
    let at = |steps: f64| loss(graph, &moved(values, name, direction, steps * step));
    (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * step)
}

/// Holds the gradient of the first output, a number, against differences: along two directions of each input.
pub(crate) fn agree(graph: &Graph, values: &Values<f64>, slack: f64) -> Result<(), String> {
    let inputs = graphs::trainable(graph);
    let only = |outputs: &[Id]| {
        let mut graph = graph.clone();
        graph.clear_outputs();
        outputs.iter().enumerate().for_each(|(i, id)| graph.output(format!("{i}"), *id));
        graph
    };
    let mut backward = only(&[]);
    let gradients =
        differentiate(&mut backward, graph.outputs()[0].1, &inputs).map_err(|error| error.to_string())?;
    backward.check().map_err(|error| error.to_string())?;
    gradients.iter().enumerate().for_each(|(i, id)| backward.output(format!("{i}"), *id));
    let gradients = interpret(&backward, values).map_err(|error| error.to_string())?;
    let forward = only(&[graph.outputs()[0].1]);
    let named: BTreeMap<Id, &str> = graph.inputs().map(|(name, id)| (id, name)).collect();
    for (id, gradient) in inputs.iter().zip(gradients) {
        let (name, gradient) = (named[id], gradient.wide());
        if let Some(value) = values.get(name) {
            assert_eq!(gradient.len(), value.wide().len(), "{name}");
        }
        for seed in 0..2 {
            let direction = spread(gradient.len(), seed + 1);
            let parts = gradient.iter().zip(&direction).map(|(g, d)| g * d);
            let (got, scale) = parts.fold((0.0, 1.0), |(sum, scale), part| (sum + part, scale + part.abs()));
            let difference = |step: f64| difference(&forward, values, name, &direction, step);
            let is_near = |want: f64| (got - want).abs() <= slack * (scale + want.abs());
            let want = difference(STEP);
            // Where the fifth derivative is larger still, a quarter of the step has an error 256 times as small; a
            // wrong gradient is wrong by any step.
            if !is_near(want) && !is_near(difference(STEP / 4.0)) {
                return Err(format!(
                    "{name}, direction {seed}: gradient {got}, difference {want}\n{backward}"
                ));
            }
        }
    }
    Ok(())
}

/// A number of everything that `body` makes of inputs of these shapes: each element's own weight times its sine.
fn check(shapes: &[&[usize]], body: impl Fn(&[Tensor]) -> Tensor) {
    checked(shapes, |x, _| x, body);
}

/// The same with values of one's own.
fn checked(shapes: &[&[usize]], value: impl Fn(f64, usize) -> f64, body: impl Fn(&[Tensor]) -> Tensor) {
    let builder = Builder::new("one");
    let mut values = Values::new();
    let input = |(i, shape): (usize, &&[usize])| {
        let (name, numbers) = (format!("x{i}"), spread(shape.iter().product(), i));
        values
            .insert(name.clone(), Array::floats(Dtype::F32, shape, numbers.into_iter().map(|x| value(x, i))));
        builder.tape().input(&name, Dtype::F32, shape.iter().copied())
    };
    let inputs: Vec<Tensor> = shapes.iter().enumerate().map(input).collect();
    builder.tape().output("loss", &number(&body(&inputs)));
    let graph = builder.finish().expect("a sound graph");
    agree(&graph, &values, SLACK).unwrap_or_else(|error| panic!("{error}"));
}

/// One number of all elements, of which each counts differently.
fn number(y: &Tensor) -> Tensor {
    let flat = y.reshape([reference::graph::product(y.shape())]);
    let place = flat.tape().iota(flat.shape(), 0).cast(Dtype::F32);
    (&flat.sin() * &(&(&place * 0.9) + 0.3).cos()).total()
}

fn op(op: Op, inputs: &[&Tensor]) -> Tensor {
    inputs[0].tape().apply(op, inputs, None)
}

/// An index as a constant: element i is `place(i)` of an iota.
fn index(tape: &Tensor, size: usize, place: impl Fn(&Tensor) -> Tensor) -> Tensor {
    place(&tape.tape().iota(&[Dim::from(size)], 0))
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 20_000, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_gradient_of_a_random_graph_is_what_its_differences_say(case in graphs::smooth()) {
        prop_assume!(far_from_ties(&case, 50.0));
        if let Err(error) = agree(&case.graph, &case.values, CHAIN_SLACK) {
            prop_assert!(false, "{}", error);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 20_000, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn the_second_derivative_of_a_random_graph_is_what_differences_of_its_gradient_say(case in graphs::smooth()) {
        prop_assume!(far_from_ties(&case, 20.0) && case.graph.nodes().len() < 90);
        if let Err(error) = agree(&squared_gradient(&case), &case.values, CHAIN_SLACK) {
            prop_assert!(false, "{}", error);
        }
    }
}

/// Whether a step of a difference changes no choice, and no number is larger than `most`.
fn far_from_ties(case: &Case, most: f64) -> bool {
    let (tie, largest) = nearest_tie(case);
    tie > 50.0 * STEP && largest < most
}

/// A number made of the gradient of the loss: what it grows by is a second derivative.
fn squared_gradient(case: &Case) -> Graph {
    let mut graph = case.graph.clone();
    let inputs = graphs::trainable(&graph);
    let loss = graph.outputs()[0].1;
    let gradients = differentiate(&mut graph, loss, &inputs).expect("floats");
    graph.clear_outputs();
    let builder = Builder::onto(graph);
    let parts = gradients.iter().map(|id| number(&builder.tensor(*id)));
    let sum = parts.reduce(|sum, part| &sum + &part).expect("an input of floats");
    builder.tape().output("loss", &sum);
    builder.finish().expect("a sound graph")
}

#[test]
fn every_function_of_one_number_has_its_derivative() {
    for (unary, name) in Unary::NAMES {
        println!("{name}");
        let positive = matches!(unary, Unary::Log | Unary::Sqrt);
        let value = |x: f64, _| if positive { x + 2.0 } else { 1.5 * x };
        checked(&[&[7]], value, |x| op(Op::Unary(unary), &[&x[0]]));
    }
}

#[test]
fn every_function_of_two_numbers_has_both_derivatives() {
    for (binary, name) in Binary::NAMES {
        println!("{name}");
        let apart = |x: f64, i| if i == 0 { x } else { x + x.signum() * 0.5 };
        checked(&[&[3, 5], &[3, 5]], apart, |x| op(Op::Binary(binary), &[&x[0], &x[1]]));
    }
}

#[test]
fn a_division_by_itself_does_not_change() {
    checked(&[&[4]], |x, _| x + 2.0, |x| &x[0] / &x[0]);
}

#[test]
fn a_tie_gives_the_gradient_once() {
    for one in [Binary::Min, Binary::Max] {
        check(&[&[5]], |x| op(Op::Binary(one), &[&x[0], &x[0]]));
    }
    check(&[&[2, 1]], |x| x[0].spread(&[Dim::fixed(2), Dim::fixed(3)]).reduce_max(1));
}

#[test]
fn a_tie_of_the_largest_is_shared_equally() {
    let (graph, x, gradient) = largest_of(&[4]);
    let values =
        Values::from([("x".to_owned(), Array::<f64>::floats(Dtype::F32, &[4], [1.0, 3.0, 3.0, 2.0]))]);
    assert_eq!(graph.ty(x), graph.ty(gradient));
    assert_eq!(interpret(&graph, &values).expect("runs")[0].wide(), [0.0, 0.5, 0.5, 0.0]);
}

fn largest_of(shape: &[usize]) -> (Graph, Id, Id) {
    let mut graph = Graph::new("largest");
    let ty = Type::new(Dtype::F32, shape.iter().copied());
    let x = graph.push_as(Op::Input { name: "x".into() }, &[], ty).expect("an input");
    let y = graph.push(Op::Reduce(Reduce::Max, 0), &[x]).expect("a node");
    let gradient = differentiate(&mut graph, y, &[x]).expect("floats")[0];
    graph.output("gradient", gradient);
    (graph, x, gradient)
}

#[test]
fn a_choice_hands_the_gradient_to_the_chosen_one() {
    for (compare, _) in Compare::NAMES {
        check(&[&[7], &[7], &[7], &[7]], |x| op(Op::Compare(compare), &[&x[0], &x[1]]).select(&x[2], &x[3]));
    }
}

#[test]
fn a_sum_and_a_largest_have_the_gradient_along_every_dimension() {
    for (reduce, _) in Reduce::NAMES {
        for dim in 0..3 {
            check(&[&[2, 3, 5]], |x| op(Op::Reduce(reduce, dim), &[&x[0]]));
        }
    }
}

#[test]
fn a_product_of_matrices_has_both_gradients() {
    check(&[&[3, 5], &[5, 2]], |x| x[0].matmul(&x[1]));
    check(&[&[2, 3, 1, 5], &[2, 3, 5, 7]], |x| x[0].matmul(&x[1]));
    check(&[&[2, 3, 5], &[5, 2]], |x| x[0].matmul(&x[1]));
}

#[test]
fn a_table_and_rows_have_theirs_however_often_an_index_comes() {
    let twice = |i: &Tensor| i * &(i - 3.0); // 0, -2, -2, 0 of four
    check(&[&[3, 2]], |x| x[0].gather(&-&index(&x[0], 4, twice)));
    check(&[&[3]], |x| x[0].gather(&-&index(&x[0], 4, twice).reshape([2, 2])));
    check(&[&[4, 5]], |x| x[0].scatter_add(&-&index(&x[0], 4, twice), 3));
    check(&[&[2, 2]], |x| x[0].scatter_add(&-&index(&x[0], 4, twice).reshape([2, 2]), 7));
}

#[test]
fn what_only_moves_has_the_gradient_moved_back() {
    check(&[&[2, 3, 5]], |x| x[0].reshape([5, 6]));
    check(&[&[2, 3, 5]], |x| x[0].transpose(&[2, 0, 1]));
    check(&[&[2, 3, 5]], |x| x[0].transpose(&[1, 2, 0]));
    check(&[&[2, 1, 1]], |x| x[0].spread(&[2_usize, 3, 5].map(Dim::from)));
    check(&[&[7, 2]], |x| x[0].slice(0, 2, 6));
    check(&[&[2, 7]], |x| x[0].slice(1, 0, 7));
    check(&[&[2, 7]], |x| x[0].slice(1, 3, 3));
    check(&[&[2, 1], &[2, 3], &[2, 2]], |x| x[0].tape().concat(&[&x[0], &x[1], &x[2], &x[0]], 1));
    check(&[&[2, 3]], |x| x[0].cast(Dtype::F16).cast(Dtype::F32));
}

#[test]
fn a_size_that_is_not_known_is_differentiated_like_any_other() {
    let builder = Builder::new("symbolic");
    let tape = builder.tape();
    let t = tape.symbol("T", Facts::range(2, 9));
    let x = tape.input("x", Dtype::F32, [&t, &Dim::fixed(3)]);
    let parts = [x.slice(0, 1, &t), x.slice(0, 0, &t - &Dim::fixed(2)), x.clone()];
    let joined = tape.concat(&parts.iter().collect::<Vec<_>>(), 0);
    tape.output("loss", &number(&(&joined.reshape([&joined.dim(0) * &Dim::fixed(3)]).mean(0) * 2.0)));
    let graph = builder.finish().expect("sound");
    for rows in [2, 3, 9] {
        let x = Array::floats(Dtype::F32, &[rows, 3], spread(rows * 3, 1));
        agree(&graph, &Values::from([("x".to_owned(), x)]), SLACK).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_concat_of_sizes_that_are_products_of_differences_is_differentiated() {
    let builder = Builder::new("products");
    let tape = builder.tape();
    let (b, t) = (tape.symbol("B", Facts::range(1, 4)), tape.symbol("T", Facts::range(1, 3)));
    let x = tape.input("x", Dtype::F32, [&b, &t]);
    let later = x.slice(1, 1, &t);
    let flat = later.reshape([reference::graph::product(later.shape())]);
    tape.output(
        "loss",
        &number(&tape.concat(&[&flat, &flat.exp(), &x.sum(0).sum(1).reshape([1]), &flat], 0)),
    );
    let graph = builder.finish().expect("sound");
    for (rows, columns) in [(1, 1), (4, 1), (2, 3)] {
        let x = Array::floats(Dtype::F32, &[rows, columns], spread(rows * columns, 1));
        agree(&graph, &Values::from([("x".to_owned(), x)]), SLACK).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn what_several_use_has_the_sum_of_their_gradients() {
    check(&[&[3, 3]], |x| &(&x[0].exp() * &x[0].t()) + &x[0].matmul(&x[0]));
}

#[test]
fn softmax_and_logsumexp_have_theirs() {
    check(&[&[3, 5]], |x| x[0].softmax(1));
    check(&[&[3, 5]], |x| x[0].logsumexp(0));
}

#[test]
fn what_is_detached_is_a_constant() {
    let builder = Builder::new("detached");
    let x = builder.tape().input("x", Dtype::F32, [3]);
    let loss = (&x.detach() * &x).total();
    let [x, loss] = [&x, &loss].map(|tensor| builder.id(tensor).expect("a node"));
    let mut graph = builder.finish().expect("sound");
    let gradient = differentiate(&mut graph, loss, &[x]).expect("floats")[0];
    graph.output("gradient", gradient);
    let values = Values::from([("x".to_owned(), Array::<f64>::floats(Dtype::F32, &[3], [1.0, -2.0, 3.0]))]);
    assert_eq!(interpret(&graph, &values).expect("runs")[0].wide(), [1.0, -2.0, 3.0]);
}

/// Programs over the extras `bias` (7) f32 and `ids` (keys) i32.
type Program = Option<fn(&ScoreEntry) -> Tensor>;

const SCORES: [Program; 6] = [
    None,
    Some(|at| softcap(&at.score, 1.5)),
    Some(|at| alibi(at, &at.score, 4)),
    Some(|at| distance_bias(at, &at.score, 0.3)),
    Some(|at| relative_bias(at, &at.score, &at.extras[0], 3)),
    Some(|at| &softcap(&relative_bias(at, &at.score, &at.extras[0].tanh(), 3), 2.0) * &at.score),
];

const MASKS: [Program; 5] = [
    None,
    Some(causal),
    Some(|at| and(&causal(at), &sliding_window(at, 2))),
    Some(|at| document(at, &at.extras[1])),
    Some(|at| and(&prefix_lm(at, 2), &at.key.less(&at.key.like(4.0)))),
];

/// Calls with every pair of programs, q, k, v and extras, over shapes of which some group heads; a mask may hide every
/// key from a query.
fn each_attention(see: impl Fn(&Attention, &[Tensor], &Builder) -> Tensor) {
    let shapes = [[1, 1, 1, 3, 5, 2, 3], [2, 4, 2, 5, 5, 3, 2], [1, 2, 1, 1, 7, 1, 1]];
    for (i, score_of) in SCORES.into_iter().enumerate() {
        for (j, mask_of) in MASKS.into_iter().enumerate() {
            let [b, h, g, t, keys, d, dv] = shapes[(i + j) % 3];
            let ids = Type::new(Dtype::I32, [keys]);
            let extras = [Type::new(Dtype::F32, [7]), ids.clone()];
            let attention = Attention {
                scale: 0.8,
                score: score_of.map(|body| score("score", &extras, body).expect("sound")),
                mask: mask_of.map(|body| mask("mask", &extras, body).expect("sound")),
            };
            let floats = [vec![b, h, t, d], vec![b, g, keys, d], vec![b, g, keys, dv], vec![7]];
            let builder = Builder::new(&format!("score {i} mask {j}"));
            let mut values = Values::new();
            let mut inputs: Vec<Tensor> = floats
                .iter()
                .enumerate()
                .map(|(i, shape)| {
                    let numbers = spread(shape.iter().product(), i + 3);
                    values.insert(format!("x{i}"), Array::floats(Dtype::F32, shape, numbers));
                    builder.tape().input(&format!("x{i}"), Dtype::F32, shape.iter().copied())
                })
                .collect();
            values.insert("ids".into(), Array::integers(&[keys], (0..keys as i32).map(|i| i / 3).collect()));
            inputs.push(builder.tape().input("ids", Dtype::I32, ids.shape));
            builder.tape().output("loss", &number(&see(&attention, &inputs, &builder)));
            let graph = builder.finish().expect("sound");
            agree(&graph, &values, SLACK).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

#[test]
fn attention_has_the_gradient_of_every_input() {
    each_attention(|attention, inputs, _| {
        op(Op::Attention(Box::new(attention.clone())), &inputs.iter().collect::<Vec<_>>())
    });
}

/// The logarithmic sums, and -100 where a query sees no key.
fn seen_lse(attention: &Attention, inputs: &[Tensor]) -> Tensor {
    let lse = op(Op::AttentionLse(Box::new(attention.clone())), &inputs.iter().collect::<Vec<_>>());
    lse.max(&lse.like(-100.0))
}

#[test]
fn logarithmic_sums_have_the_gradient_of_every_input() {
    each_attention(|attention, inputs, _| seen_lse(attention, inputs));
}

#[test]
fn the_gradient_of_logarithmic_sums_has_the_gradient_of_every_input() {
    each_attention(|attention, inputs, builder| {
        let y = seen_lse(attention, inputs);
        let g = (&builder.tape().iota(y.shape(), 2).cast(Dtype::F32) + &y).cos();
        let all: Vec<&Tensor> = inputs.iter().chain([&g]).collect();
        let op_of = |wrt| Op::AttentionLseGrad { attention: Box::new(attention.clone()), wrt };
        let parts = (0..4).map(|wrt| number(&op(op_of(wrt), &all)));
        parts.reduce(|sum, part| &sum + &part).expect("four inputs")
    });
}

#[test]
fn the_gradient_of_attention_has_the_gradient_of_every_input() {
    each_attention(|attention, inputs, builder| {
        let y = op(Op::Attention(Box::new(attention.clone())), &inputs.iter().collect::<Vec<_>>());
        let g = (&builder.tape().iota(y.shape(), 3).cast(Dtype::F32) + &y).cos();
        let all: Vec<&Tensor> = inputs.iter().chain([&g]).collect();
        let parts = (0..4)
            .map(|wrt| number(&op(Op::AttentionGrad { attention: Box::new(attention.clone()), wrt }, &all)));
        parts.reduce(|sum, part| &sum + &part).expect("four inputs")
    });
}

#[test]
fn a_query_that_sees_no_key_has_no_output_and_no_gradient() {
    let none = mask("none", &[], |at| at.key.less(&at.query)).expect("sound"); // the first query sees nothing
    let attention = Attention { scale: 1.0, score: None, mask: Some(none) };
    let builder = Builder::new("blind");
    let inputs = ["q", "k", "v"].map(|name| builder.tape().input(name, Dtype::F32, [1, 1, 2, 2]));
    let y = inputs[0].attend(attention, &inputs[1], &inputs[2], &[]);
    builder.tape().output("y", &y);
    let ids = inputs.each_ref().map(|input| builder.id(input).expect("a node"));
    let loss = builder.id(&number(&y)).expect("a node");
    let mut graph = builder.finish().expect("sound");
    for (name, id) in ["dq", "dk", "dv"].iter().zip(differentiate(&mut graph, loss, &ids).expect("floats")) {
        graph.output(*name, id);
    }
    let value = |seed| Array::<f64>::floats(Dtype::F32, &[1, 1, 2, 2], spread(4, seed));
    let values = ["q", "k", "v"].iter().enumerate().map(|(i, name)| ((*name).to_owned(), value(i))).collect();
    let [y, dq, dk, dv] = interpret(&graph, &values).expect("runs").try_into().expect("four outputs");
    assert_eq!(y.wide()[..2], [0.0, 0.0]);
    assert_eq!(y.wide()[2..], values["v"].wide()[..2]);
    assert_eq!((dq.wide()[..2].to_vec(), dv.wide()[2..].to_vec()), (vec![0.0; 2], vec![0.0; 2]));
    assert!(dk.wide().iter().all(|x| x.abs() < 1e-15));
}

#[test]
fn a_gradient_that_cannot_pass_is_refused_and_the_graph_stays_as_it_was() {
    let mut graph = Graph::new("frozen");
    let input = |graph: &mut Graph, name: &str, dtype, size: usize| {
        graph.push_as(Op::Input { name: name.into() }, &[], Type::new(dtype, [size])).expect("an input")
    };
    let packed = input(&mut graph, "packed", Dtype::U8, 16);
    let table = input(&mut graph, "table", Dtype::F32, 16);
    let absmax = input(&mut graph, "absmax", Dtype::F32, 1);
    let op = Op::Dequantize { block_size: 32, nested: None };
    let weight = graph.push_as(op, &[packed, table, absmax], Type::new(Dtype::F32, [32])).expect("a weight");
    let loss = graph.push(Op::Reduce(Reduce::Sum, 0), &[weight]).expect("a number");
    let before = graph.clone();
    for (of, wrt, want) in [
        (
            loss,
            absmax,
            "%2 input \"absmax\": no gradient passes: a quantised weight that is made of it is frozen",
        ),
        (loss, packed, "%0 input \"packed\": no gradient passes: it is not of floats"),
        (
            weight,
            weight,
            "`%3`: no gradient passes: the loss has the shape of f32[32], and no gradient is given for it",
        ),
    ] {
        let error = differentiate(&mut graph, of, &[wrt]).expect_err("refused");
        assert!(matches!(error.fault, Fault::NoGradient { .. }));
        assert_eq!(error.to_string(), want);
        graph = before.clone();
    }
    let gradient = differentiate(&mut graph, loss, &[weight]).expect("the weight itself has one")[0];
    assert_eq!(graph.ty(gradient), graph.ty(weight));
}

#[test]
fn what_the_loss_does_not_depend_on_has_a_gradient_of_zeros() {
    let builder = Builder::new("apart");
    let [x, y] = ["x", "y"].map(|name| builder.tape().input(name, Dtype::F32, [2]));
    let loss = x.total();
    let [y, loss] = [&y, &loss].map(|tensor| builder.id(tensor).expect("a node"));
    let mut graph = builder.finish().expect("sound");
    let gradient = differentiate(&mut graph, loss, &[y]).expect("floats")[0];
    assert!(matches!(graph.node(gradient).op, Op::Constant { value: 0.0 }));
    assert_eq!(graph.ty(gradient), graph.ty(y));
}

#[test]
fn a_seed_of_ones_own_is_pulled_back() {
    let mut graph = Graph::new("seed");
    let ty = Type::new(Dtype::F32, [3]);
    let [x, seed] = ["x", "seed"]
        .map(|name| graph.push_as(Op::Input { name: name.into() }, &[], ty.clone()).expect("an input"));
    let y = graph.push(Op::Unary(Unary::Neg), &[x]).expect("a node");
    let gradient = pull_back(&mut graph, y, seed, &[x, y]).expect("floats");
    gradient.iter().enumerate().for_each(|(i, id)| graph.output(format!("{i}"), *id));
    let value = |numbers: [f64; 3]| Array::<f64>::floats(Dtype::F32, &[3], numbers);
    let values = Values::from([("seed".to_owned(), value([1.0, 2.0, 3.0]))]);
    let [of_x, of_y] = interpret(&graph, &values).expect("runs").try_into().expect("two outputs");
    assert_eq!((of_x, of_y), (value([-1.0, -2.0, -3.0]), value([1.0, 2.0, 3.0])));
}
