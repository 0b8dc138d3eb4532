//! Padding: whatever stands in it, not a bit of a result depends on it.

use std::collections::BTreeMap;

use compiler::rewrite::pad::{Padded, length_name, narrow, pad, widen};
use proptest::prelude::*;
use reference::grad::{differentiate, pull_back};
use reference::graph::interpret::Values;
use reference::graph::programs::{self, ScoreEntry};
use reference::graph::{
    Array, Attention, Builder, Data, Dim, Dtype, Facts, Graph, Id, Real, Symbol, Tape, Tensor, Type,
    interpret, product,
};
use reference::llama::train::{Recipe, moments, step_graph};
use reference::llama::{Llama, rope};
use reference::lora;
use reference::optim::AdamW;
use tests::graphs::{self, Case};
use tests::small_llama::SmallLlama;
use tests::tiny_llama::TinyLlama;

pub(crate) type Sizes = BTreeMap<Symbol, i64>;

/// What stands in the padding: something else at every place.
#[derive(Clone, Copy, Debug)]
enum Junk {
    /// NaN, and numbers far out of range.
    Wild,
    /// Numbers that could be real.
    Mild,
}

impl Junk {
    fn float<R: Real>(self, i: usize) -> R {
        R::of(match self {
            Junk::Wild => [f64::NAN, f64::INFINITY, -3e38, f64::NEG_INFINITY][i % 4],
            Junk::Mild => (i % 7) as f64 - 2.5,
        })
    }

    fn integer(self, i: usize) -> i32 {
        match self {
            Junk::Wild => [i32::MIN, i32::MAX, -1, 0][i % 4],
            Junk::Mild => (i % 3) as i32,
        }
    }

    fn byte(self, i: usize) -> u8 {
        [255, (i % 2) as u8][self as usize]
    }
}

/// The elements of an array in a larger one, with junk around them.
fn spread<T: Copy>(real: &[T], shape: &[usize], padded: &[usize], junk: impl Fn(usize) -> T) -> Vec<T> {
    let marks: Vec<u8> = (1..=real.len() as u32).flat_map(u32::to_ne_bytes).collect();
    let marks = widen(&marks, 4, shape, padded);
    let marks = marks.as_chunks().0.iter().map(|mark| u32::from_ne_bytes(*mark) as usize);
    marks.enumerate().map(|(i, mark)| if mark == 0 { junk(i) } else { real[mark - 1] }).collect()
}

fn padded_array<R: Real>(x: &Array<R>, shape: &[usize], junk: Junk) -> Array<R> {
    let data = match &x.data {
        Data::Float(data) => Data::Float(spread(data, &x.shape, shape, |i| junk.float(i))),
        Data::U8(data) => Data::U8(spread(data, &x.shape, shape, |i| junk.byte(i))),
        Data::I32(data) => Data::I32(spread(data, &x.shape, shape, |i| junk.integer(i))),
    };
    Array { dtype: x.dtype, shape: shape.to_vec(), data }
}

/// The bits of the elements in the leading part of a shape; every NaN is one.
fn bits<R: Real>(x: &Array<R>, shape: &[usize]) -> Vec<u64> {
    let bit = |x: &f64| if x.is_nan() { u64::MAX } else { x.to_bits() };
    let bytes: Vec<u8> = x.wide().iter().flat_map(|x| bit(x).to_ne_bytes()).collect();
    let part = narrow(&bytes, 8, shape, &x.shape);
    part.as_chunks().0.iter().map(|eight| u64::from_ne_bytes(*eight)).collect()
}

/// The sizes of a graph's symbols, read off the values.
fn sizes<R: Real>(graph: &Graph, values: &Values<R>) -> Sizes {
    let mut sizes = Sizes::new();
    for (name, id) in graph.inputs() {
        let Some(value) = values.get(name) else { continue };
        for (dim, size) in graph.ty(id).shape.iter().zip(&value.shape) {
            if let Some(symbol) = dim.as_symbol() {
                sizes.insert(symbol.clone(), *size as i64);
            }
        }
    }
    sizes
}

/// Compares a graph with itself padded to other sizes.
fn agrees<R: Real>(
    graph: &Graph,
    padded: &Padded,
    values: &Values<R>,
    to: &Sizes,
    junk: Junk,
) -> Result<(), String> {
    let Ok(want) = interpret(graph, values) else { return Ok(()) };
    let real = sizes(graph, values);
    let mut whole = real.clone();
    whole.extend(to.clone());
    let mut wide = Values::new();
    for (name, id) in graph.inputs().filter(|(name, _)| values.contains_key(*name)) {
        let shape: Vec<usize> =
            graph.ty(id).shape.iter().map(|dim| dim.value(&whole).expect("bound") as usize).collect();
        wide.insert(name.to_owned(), padded_array(&values[name], &shape, junk));
    }
    for symbol in to.keys() {
        wide.insert(length_name(symbol), Array::integers(&[], vec![real[symbol] as i32]));
    }
    let got = interpret(&padded.graph, &wide).map_err(|error| error.to_string())?;
    for (((name, _), want), got) in graph.outputs().iter().zip(&want).zip(&got) {
        if bits(want, &want.shape) != bits(got, &want.shape) {
            return Err(format!(
                "{name:?}, {real:?} in {to:?}: found {got:?}\nexpected {want:?}\n{graph}\n{}",
                padded.graph
            ));
        }
    }
    Ok(())
}

/// Both kinds of floats, both kinds of junk.
pub(crate) fn check_all(
    graph: &Graph,
    padded: &Padded,
    values: &Values<f64>,
    to: &Sizes,
) -> Result<(), String> {
    let narrow: Values<f32> =
        values.iter().map(|(name, value)| (name.clone(), graphs::narrow(value))).collect();
    [Junk::Wild, Junk::Mild].into_iter().try_for_each(|junk| {
        agrees::<f64>(graph, padded, values, to, junk)?;
        agrees::<f32>(graph, padded, &narrow, to, junk)
    })
}

/// The facts of both symbols of the small graphs below.
const RANGE: (i64, i64) = (1, 64);

/// A graph of inputs x (B, T, 4), y (T, 4) f32 and n (T) i32 below T and c (T) u8; whether padding changes it at no
/// length.
fn check(body: impl Fn(&Tape, [Dim; 2], [Tensor; 4]) -> Vec<Tensor>) -> Padded {
    let builder = Builder::new("body");
    let tape = builder.tape();
    let [b, t] = ["B", "T"].map(|name| tape.symbol(name, Facts::range(RANGE.0, RANGE.1)));
    let x = tape.input("x", Dtype::F32, [b.clone(), t.clone(), 4.into()]);
    let y = tape.input("y", Dtype::F32, [t.clone(), 4.into()]);
    let n = tape.input("n", Dtype::I32, [&t]);
    let c = tape.input("c", Dtype::U8, [&t]);
    for (i, output) in body(tape, [b, t], [x, y, n, c]).iter().enumerate() {
        tape.output(&format!("out{i}"), output);
    }
    let graph = builder.finish().unwrap_or_else(|error| panic!("{error}"));
    let mut result = None;
    for symbols in [vec!["T"], vec!["B"], vec!["B", "T"]] {
        let symbols: Vec<Symbol> = symbols.into_iter().map(Symbol::from).collect();
        let padded = pad(&graph, &symbols).unwrap_or_else(|error| panic!("{error}\n{graph}"));
        for (b, t) in [(1, 1), (2, 5), (3, 7), (3, 8), (1, 8), (2, 3)] {
            let values = small_values(b, t);
            let to =
                symbols.iter().map(|symbol| (symbol.clone(), if &**symbol == "B" { 3 } else { 8 })).collect();
            check_all(&graph, &padded, &values, &to).unwrap_or_else(|error| panic!("{error}"));
        }
        result = Some(padded);
    }
    result.expect("padded")
}

fn small_values(b: usize, t: usize) -> Values<f64> {
    let floats = |shape: &[usize], seed: usize| {
        let value = |i: usize| ((i * 7919 + seed * 104729) % 1009) as f64 / 300.0 - 1.6;
        Array::floats(Dtype::F32, shape, (0..shape.iter().product()).map(|i| f64::from(value(i) as f32)))
    };
    Values::from([
        ("x".into(), floats(&[b, t, 4], 1)),
        ("y".into(), floats(&[t, 4], 2)),
        ("n".into(), Array::integers(&[t], (0..t).map(|i| ((i * 5 + 3) % t) as i32).collect())),
        ("c".into(), Array::bytes(&[t], (0..t).map(|i| (i % 2) as u8).collect())),
    ])
}

fn one() -> Dim {
    Dim::fixed(1)
}

#[test]
fn what_works_on_each_element_is_right_in_any_padding() {
    let padded = check(|tape, [_, t], [x, y, n, _]| {
        let index = tape.iota(&[t], 0);
        vec![&x.exp() * &y, x.less(&y), &n + &index, x.cast(Dtype::Bf16), n.cast(Dtype::F32).sigmoid()]
    });
    assert_eq!(padded.selects, 0);
}

#[test]
fn sums_and_largest_ones_over_padding_meet_a_neutral_element() {
    check(|_, _, [x, y, n, _]| {
        vec![
            x.sum(1),
            x.sum(0),
            x.total(),
            x.reduce_max(1),
            x.reduce_max(0),
            x.sum(2).reduce_max(1),
            n.sum(0),
            y.cast(Dtype::F16).sum(0),
            &x.reduce_max(1) + &x.sum(1),
        ]
    });
}

/// A sum along one dimension masks the other padding of what is the same all along it; a sum along the other one has to
/// mask it once more.
#[test]
fn what_does_not_vary_along_a_padded_dimension_is_masked_along_it_where_that_is_added_up() {
    check(|tape, [b, t], _| {
        let place = tape.iota(&[b, t], 0).cast(Dtype::F32);
        vec![place.sum(0), place.sum(1), place.sum(0).sum(1)]
    });
}

#[test]
fn a_mean_is_one_over_the_real_elements() {
    check(|tape, [b, t], [x, y, n, _]| {
        let ones = tape.constant(1.0, &Type::new(Dtype::I32, [&b * &t]));
        vec![
            x.mean(1),
            y.mean(0),
            x.mean(0),
            x.reshape([&b * &t, 4.into()]).mean(0),
            ones.sum(0),
            x.softmax(1),
            x.logsumexp(1),
            n.cast(Dtype::F32).mean(0),
        ]
    });
}

#[test]
fn a_division_of_integers_by_padding_is_none_by_zero() {
    check(|_, _, [_, _, n, _]| {
        let divisor = &n + 1.0;
        vec![&(&n * 7.0) / &divisor, &n / &n.like(3.0)]
    });
}

#[test]
fn products_over_padding_are_right() {
    check(|_, [b, t], [x, y, _, _]| {
        let flat = x.reshape([&b * &t, 4.into()]);
        let wide = y.reshape([one(), t.clone(), 4.into()]).spread(&[b.clone(), t, 4.into()]);
        vec![
            x.matmul(&y.t()),
            flat.t().matmul(&flat),
            y.t().matmul(&y),
            x.t().matmul(&wide),
            y.exp().t().matmul(&y.log()),
            y.like(2.0).t().matmul(&y),
            flat.matmul(&y.t().matmul(&y)).sum(0),
        ]
    });
}

#[test]
fn rows_are_found_and_added_up() {
    check(|tape, [b, t], [x, y, n, _]| {
        let t4 = y.reshape([&t * &Dim::fixed(4)]);
        let ids = x.transpose(&[1, 0, 2]);
        let all = n.reshape([one(), t.clone()]).spread(&[b.clone(), t.clone()]);
        vec![
            y.gather(&n),
            ids.gather(&n),
            y.gather(&all),
            y.scatter_add(&n, t.clone()),
            x.transpose(&[1, 0, 2]).scatter_add(&n, &t * &b),
            y.like(1.0).scatter_add(&n, 64),
            x.scatter_add(&all, t.clone()),
            t4.gather(&(&n + 1.0)),
            tape.iota(&[&b * &t], 0).gather(&n),
        ]
    });
}

#[test]
fn a_slice_may_end_and_begin_at_a_symbol() {
    check(|tape, [b, t], [x, y, n, _]| {
        let last = &t - &one();
        let joined = tape.concat(&[&y, &y], 0);
        vec![
            x.slice(1, last.clone(), t.clone()),
            x.slice(1, Dim::fixed(0), last.clone()),
            x.slice(1, Dim::fixed(0), last.clone()).sum(1),
            x.slice(0, &b - &one(), b.clone()),
            joined.slice(0, t.clone(), &t + &t),
            joined.slice(0, Dim::fixed(1), &t + &t).sum(0),
            x.reshape([&b * &t, 4.into()]).slice(0, &(&b * &t) - &one(), &b * &t),
            x.reshape([&b * &t, 4.into()]).slice(0, Dim::fixed(0), one()),
            n.slice(0, last, t.clone()),
            n.like(3.0).slice(0, &t - &one(), t),
        ]
    });
}

#[test]
fn what_follows_padding_stands_where_it_should() {
    check(|tape, [b, t], [x, y, n, _]| {
        let tail = |value: f64, rows: Dim| tape.constant(value, &Type::new(Dtype::F32, [rows, 4.into()]));
        let next =
            tape.concat(&[&n.slice(0, one(), t.clone()), &n.slice(0, Dim::fixed(0), one()).like(-100.0)], 0);
        let both = tape.concat(&[&y, &(&y * 2.0)], 0);
        vec![
            both.clone(),
            both.sum(0),
            tape.concat(&[&y, &tail(0.0, 2.into())], 0),
            tape.concat(&[&y, &tail(-0.0, t.clone())], 0),
            tape.concat(&[&tail(7.0, 2.into()), &y], 0),
            tape.concat(&[&tail(7.0, t.clone()), &y.slice(0, Dim::fixed(0), one()), &y], 0),
            tape.concat(&[&x, &x], 1).sum(1),
            tape.concat(&[&x, &x], 0),
            tape.concat(&[&y.exp(), &tail(0.5, one()), &tail(0.5, one())], 0),
            next.clone(),
            next.equal(&next.like(-100.0)).cast(Dtype::F32).total(),
            tape.concat(&[&x.reshape([&b * &t, 4.into()]), &y], 0),
        ]
    });
}

#[test]
fn merged_dimensions_are_taken_apart_in_any_way() {
    check(|tape, [b, t], [x, y, _, _]| {
        let (bt, four) = (&b * &t, Dim::fixed(4));
        let flat = x.reshape([bt.clone(), four.clone()]);
        let turned = x.transpose(&[1, 0, 2]).reshape([bt.clone(), four.clone()]);
        let number = tape.iota(std::slice::from_ref(&bt), 0).cast(Dtype::F32).reshape([bt.clone(), one()]);
        let across = x.reshape([t.clone(), b.clone(), four.clone()]);
        vec![
            flat.clone(),
            flat.reshape([b.clone(), t.clone(), 2.into(), 2.into()]).sum(1),
            &flat + &turned,
            turned.sum(0),
            across.clone(),
            across.sum(0),
            across.reshape([bt.clone(), four.clone()]).t().matmul(&flat),
            &flat * &number,
            x.reshape([4.into(), bt.clone()]),
            y.reshape([four.clone(), t.clone()]).sum(1),
            y.reshape([&t * &Dim::fixed(2), 2.into()]).sum(0),
            flat.reshape([product(&[b.clone(), t.clone(), four.clone()])]).reshape([b.clone(), &t * &four]),
        ]
    });
}

#[test]
fn a_derivative_of_all_of_that_is_right() {
    let builder = Builder::new("loss");
    let tape = builder.tape();
    let [b, t] = ["B", "T"].map(|name| tape.symbol(name, Facts::range(RANGE.0, RANGE.1)));
    let x = tape.input("x", Dtype::F32, [b.clone(), t.clone(), 4.into()]);
    let y = tape.input("y", Dtype::F32, [t.clone(), 4.into()]);
    let n = tape.input("n", Dtype::I32, [&t]);
    let shifted = x.slice(1, one(), t.clone());
    let parts = [
        x.slice(1, &t - &one(), t.clone()).total(),
        (&shifted * &shifted.sin()).total(),
        x.softmax(1).matmul(&y.t()).reduce_max(2).total(),
        tape.concat(&[&x, &x.exp()], 1).sum(1).log().total(),
        (&y.gather(&n) / &(&y * &y).mean(0).sqrt()).total(),
        x.transpose(&[1, 0, 2]).reshape([&b * &t, 4.into()]).logsumexp(1).total(),
    ];
    let loss = parts.into_iter().reduce(|a, b| &a + &b).expect("a part");
    let [loss, x, y] = [loss, x, y].map(|tensor| builder.id(&tensor).expect("sound"));
    let mut graph = builder.finish().unwrap_or_else(|error| panic!("{error}"));
    for (name, id) in ["x", "y"].iter().zip(differentiate(&mut graph, loss, &[x, y]).expect("floats")) {
        graph.output(format!("grad_{name}"), id);
    }
    graph.output("loss", loss);
    let symbols: Vec<Symbol> = vec!["B".into(), "T".into()];
    let padded = pad(&graph, &symbols).unwrap_or_else(|error| panic!("{error}"));
    for (b, t) in [(1, 1), (2, 5), (3, 7), (3, 8)] {
        let to = Sizes::from([("B".into(), 3), ("T".into(), 8)]);
        check_all(&graph, &padded, &small_values(b, t), &to).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// A size that is a product of two that are cut grows with a third.
#[test]
fn a_product_of_cut_sizes_is_padded() {
    let builder = Builder::new("cut");
    let tape = builder.tape();
    let [b, n, t] = ["B", "N", "T"].map(|name| tape.symbol(name, Facts::range(2, 8)));
    let x = tape.input("x", Dtype::F32, [b.clone(), t.clone(), n.clone()]);
    let [to_b, to_n] = [&b, &n].map(|size| size - &Dim::fixed(2));
    let cut = x.slice(0, 0, &to_b).slice(2, 0, &to_n).reshape([&(&to_b * &t) * &to_n]);
    tape.output("squares", &(&cut * &cut).sum(0));
    let graph = builder.finish().expect("sound");
    let numbers = (0..4 * 2 * 5).map(|i| f64::from(i) - 15.5);
    let values = Values::from([("x".to_owned(), Array::floats(Dtype::F32, &[4, 2, 5], numbers))]);
    let all = Sizes::from([("B".into(), 8), ("N".into(), 8), ("T".into(), 8)]);
    for symbols in [&["B"][..], &["N"], &["T"], &["B", "N", "T"]] {
        let symbols: Vec<Symbol> = symbols.iter().map(|name| (*name).into()).collect();
        let padded = pad(&graph, &symbols).unwrap_or_else(|error| panic!("{error}"));
        let to = all.clone().into_iter().filter(|(symbol, _)| symbols.contains(symbol)).collect();
        check_all(&graph, &padded, &values, &to).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The same graph where every symbol may be larger than its facts say, if all proofs go through.
fn loosened(graph: &Graph) -> Graph {
    let mut loose = graph.clone();
    for (symbol, facts) in graph.known() {
        loose.know(symbol, Facts::range(facts.min, facts.max + 5));
    }
    if loose.check().is_ok() { loose } else { graph.clone() }
}

fn random_agrees(case: &Case, choice: usize) -> Result<(), TestCaseError> {
    let graph = loosened(&case.graph);
    let bound = sizes(&graph, &case.values);
    let symbols: Vec<Symbol> = bound
        .keys()
        .cloned()
        .enumerate()
        .filter(|(i, _)| choice >> i & 1 == 0)
        .map(|(_, symbol)| symbol)
        .collect();
    let padded = match pad(&graph, &symbols) {
        Ok(padded) => padded,
        Err(error) => return Err(TestCaseError::fail(format!("{error}\n{graph}"))),
    };
    let largest = |symbol: &Symbol| {
        let facts = graph.known()[symbol];
        (symbol.clone(), facts.max / facts.multiple * facts.multiple)
    };
    let to: Sizes = symbols.iter().map(largest).collect();
    check_all(&graph, &padded, &case.values, &to).map_err(TestCaseError::fail)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn padding_changes_no_bit_of_a_random_graph(case in graphs::any(), choice in 0..8_usize) {
        random_agrees(&case, choice)?;
    }

    #[test]
    fn padding_changes_no_bit_of_a_random_gradient(case in graphs::smooth(), choice in 0..8_usize) {
        let mut graph = case.graph.clone();
        let inputs = graphs::trainable(&graph);
        let loss = graph.outputs()[0].1;
        for (i, id) in differentiate(&mut graph, loss, &inputs).expect("floats").into_iter().enumerate() {
            graph.output(format!("grad{i}"), id);
        }
        random_agrees(&Case { graph, values: case.values }, choice)?;
    }
}

/// Programs of attention over tables of padded sizes: ids i32 (T), slopes f32 (T), bias f32 (7).
fn attention(kind: usize, extras: &[Type]) -> Attention {
    let score = |at: &ScoreEntry| match kind % 6 {
        0 => programs::softcap(&at.score, 2.0),
        1 => programs::alibi(at, &at.score, 4),
        2 => programs::softcap(&programs::relative_bias(at, &at.score, &at.extras[2], 3), 1.5),
        3 => &at.score * &at.extras[1].gather(&at.key),
        4 => &at.score + &at.extras[2].gather(&at.extras[0].gather(&at.key)).log(),
        _ => &at.score * &at.extras[1].exp().sum(0).reshape::<Dim>([]),
    };
    let mask = |at: &ScoreEntry| match kind % 5 {
        0 => programs::causal(at),
        1 => programs::and(&programs::causal(at), &programs::sliding_window(at, 2)),
        2 => programs::document(at, &at.extras[0]),
        3 => programs::prefix_lm(at, 2),
        _ => (&at.query / &at.extras[0].gather(&at.query).max(&at.query.like(1.0))).less(&(&at.key + 2.0)),
    };
    Attention {
        scale: 0.7,
        score: (kind % 7 > 0).then(|| programs::score("score", extras, score).expect("sound")),
        mask: (kind % 4 > 0).then(|| programs::mask("mask", extras, mask).expect("sound")),
    }
}

/// An attention and all its gradients, of f32 or bf16, among as many keys as queries, or not.
fn attention_graph(kind: usize, dtype: Dtype, keys: &str) -> Graph {
    let builder = Builder::new("attention");
    let tape = builder.tape();
    let [b, t, k] = ["B", "T", keys].map(|name| tape.symbol(name, Facts::range(RANGE.0, RANGE.1)));
    let input = |name: &str, shape: [&Dim; 2], heads: usize, depth: usize| {
        tape.input(name, dtype, [shape[0].clone(), heads.into(), shape[1].clone(), depth.into()])
    };
    let [q, key, v] = [input("q", [&b, &t], 4, 3), input("k", [&b, &k], 2, 3), input("v", [&b, &k], 2, 2)];
    let g = input("g", [&b, &t], 4, 2);
    let longest = if keys == "T" { k } else { Dim::fixed(9) };
    let ids = tape.input("ids", Dtype::I32, [&longest]);
    let slopes = tape.input("slopes", Dtype::F32, [&longest]);
    let bias = tape.input("bias", Dtype::F32, [7]);
    let extras = [&ids, &slopes, &bias].map(|extra| extra.ty().clone());
    let out = q.attend(attention(kind, &extras), &key, &v, &[&ids, &slopes, &bias]);
    let wrt = [&q, &key, &v, &slopes, &bias].map(|tensor| builder.id(tensor).expect("sound"));
    let [out, g] = [&out, &g].map(|tensor| builder.id(tensor).expect("sound"));
    let mut graph = builder.finish().unwrap_or_else(|error| panic!("{error}"));
    let gradients = pull_back(&mut graph, out, g, &wrt).expect("floats");
    for (i, id) in [out].into_iter().chain(gradients).enumerate() {
        graph.output(format!("out{i}"), id);
    }
    graph
}

fn attention_values(graph: &Graph, sizes: &Sizes) -> Values<f64> {
    let value = |(seed, (name, id)): (usize, (&str, Id))| {
        let ty = graph.ty(id);
        let shape: Vec<usize> =
            ty.shape.iter().map(|dim| dim.value(sizes).expect("bound") as usize).collect();
        let number = |i: usize| ((i * 7919 + seed * 104729) % 1009) as f64 / 500.0 - 1.0;
        let count = shape.iter().product();
        let array = match ty.dtype {
            Dtype::I32 => Array::integers(&shape, (0..count as i32).map(|i| i / 3 % 3).collect()),
            dtype => Array::floats(dtype, &shape, (0..count).map(|i| f32::nearest(number(i), dtype).wide())),
        };
        (name.to_owned(), array)
    };
    graph.inputs().enumerate().map(value).collect()
}

#[test]
fn attention_sees_no_padding_and_gives_it_no_gradient() {
    for (kind, keys) in (0..30).flat_map(|kind| ["T", "K"].map(|keys| (kind, keys))) {
        let graph = attention_graph(kind, [Dtype::F32, Dtype::Bf16][kind % 2], keys);
        for symbols in [vec!["T"], vec![keys], vec!["B"], vec!["B", "T", keys]] {
            let symbols: Vec<Symbol> = symbols.into_iter().map(Symbol::from).collect();
            let padded = pad(&graph, &symbols).unwrap_or_else(|error| panic!("{error}"));
            for (b, t, k) in [(1, 1, 1), (2, 5, 3), (1, 7, 7), (2, 2, 6)] {
                let bound: Sizes =
                    [("K", k), ("B", b), ("T", t)].map(|(name, size)| (name.into(), size)).into();
                let values = attention_values(&graph, &bound);
                let to = symbols
                    .iter()
                    .map(|symbol| (symbol.clone(), if &**symbol == "B" { 2 } else { 8 }))
                    .collect();
                check_all(&graph, &padded, &values, &to)
                    .unwrap_or_else(|error| panic!("kind {kind}: {error}"));
            }
        }
    }
}

#[test]
fn attention_of_merged_batches_sees_no_padding() {
    check(|_, [b, t], [x, _, _, _]| {
        let four = x.reshape([&b * &t, 2.into(), 1.into(), 2.into()]);
        let turned = x.transpose(&[1, 0, 2]).reshape([one(), 2.into(), &t * &b, 2.into()]);
        let across = turned.attend(Attention::plain(0.5), &turned, &turned, &[]);
        vec![four.attend(Attention::plain(0.5), &four, &four, &[]), across.clone(), across.total()]
    });
}

#[test]
fn what_cannot_be_padded_is_refused_with_its_place_and_reason() {
    let error = |symbols: &[&str], body: &dyn Fn(&Tape, [Dim; 2])| {
        let builder = Builder::new("refused");
        let [s, t] = ["S", "T"].map(|name| builder.tape().symbol(name, Facts::range(1, 9)));
        builder.tape().symbol("S", Facts::range(9, 20));
        body(builder.tape(), [s, t]);
        let graph = builder.finish().unwrap_or_else(|error| panic!("{error}"));
        let symbols: Vec<Symbol> = symbols.iter().map(|symbol| Symbol::from(*symbol)).collect();
        pad(&graph, &symbols).expect_err("it cannot be padded").to_string()
    };
    let cut = |tape: &Tape, [s, t]: [Dim; 2]| {
        let x = tape.input("x", Dtype::F32, [&s]);
        let _ = tape.input("y", Dtype::F32, [&t]);
        tape.output("cut", &tape.within("head", || x.slice(0, t.clone(), s.clone())));
    };
    assert_eq!(error(&["T"], &cut), "%2 slice of \"head\": a size of S - T would shrink where T is padded");
    assert_eq!(error(&["U"], &cut), "no input has a size with U in it");
    let shrinks = |tape: &Tape, [s, t]: [Dim; 2]| drop(tape.input("x", Dtype::F32, [&s - &t]));
    assert_eq!(error(&["T"], &shrinks), "%0 input \"x\": a size of S - T would shrink where T is padded");
    let taken = |tape: &Tape, [_, t]: [Dim; 2]| {
        let _ = tape.input("length.T", Dtype::F32, [&t]);
    };
    assert_eq!(error(&["T"], &taken), "\"length.T\" is the name of an input already");
}

#[test]
fn widening_puts_zeros_behind_and_narrowing_takes_them_off() {
    let bytes: Vec<u8> = (1..=12).collect();
    let wide = widen(&bytes, 2, &[2, 3], &[3, 4]);
    assert_eq!(wide, [1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 9, 10, 11, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(narrow(&wide, 2, &[2, 3], &[3, 4]), bytes);
    assert_eq!(widen(&[7], 1, &[], &[]), [7]);
    assert_eq!(widen(&[], 1, &[0, 3], &[2, 3]), [0; 6]);
    assert!(narrow(&[0; 6], 1, &[0, 2], &[2, 3]).is_empty());
}

/// One step of training a model with an adapter on rows of tokens.
fn step<R: Real>(llama: &Llama, config: &lora::Config, length: usize, rows: usize) -> (Graph, Values<R>) {
    let mut spec = llama.spec();
    spec.adapter = Some(config.clone());
    let optimizer = AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
    let recipe = Recipe { optimizer, max_norm: 1.0 };
    let graph = step_graph(&spec, &recipe).expect("an adapter");
    let mut values: Values<R> = llama.values().expect("weights");
    let trained = graph
        .inputs()
        .filter(|(name, _)| name.starts_with("base_model."))
        .map(|(name, id)| (name.to_owned(), id));
    for (seed, (name, id)) in trained.collect::<Vec<_>>().into_iter().enumerate() {
        let shape: Vec<usize> =
            graph.ty(id).shape.iter().filter_map(Dim::as_fixed).map(|n| n as usize).collect();
        let number = |i: usize| ((i * 7919 + seed * 104729 + 13) % 1009) as f64 / 5045.0 - 0.1;
        let floats = |scale: f64| {
            Array::floats(Dtype::F32, &shape, (0..shape.iter().product()).map(|i| scale * number(i).abs()))
        };
        let [first, second] = moments(&name);
        values.extend([(first, floats(0.1)), (second, floats(0.01))]);
        values.insert(name, Array::floats(Dtype::F32, &shape, (0..shape.iter().product()).map(number)));
    }
    let vocab = llama.config.vocab;
    let ids: Vec<i32> = (0..rows * length).map(|i| ((i * 31 + 5) % vocab) as i32).collect();
    let labels = ids.iter().enumerate().map(|(i, id)| if i % 4 == 1 { -100 } else { *id }).collect();
    values.append(&mut rope::values(&llama.config, length));
    values.append(&mut recipe.optimizer.rates(3, 1e-3));
    values.insert("ids".into(), Array::integers(&[rows, length], ids));
    values.insert("labels".into(), Array::integers(&[rows, length], labels));
    (graph, values)
}

fn a_step_agrees<R: Real>(
    llama: &Llama,
    config: &lora::Config,
    symbols: &[(&str, i64)],
    cases: &[(usize, usize)],
) -> usize {
    let (graph, _) = step::<R>(llama, config, 2, 1);
    let names: Vec<Symbol> = symbols.iter().map(|(name, _)| Symbol::from(*name)).collect();
    let padded = pad(&graph, &names).unwrap_or_else(|error| panic!("{error}"));
    let to: Sizes = symbols.iter().map(|(name, size)| (Symbol::from(*name), *size)).collect();
    for (rows, length) in cases {
        let (graph, values) = step::<R>(llama, config, *length, *rows);
        for junk in [Junk::Wild, Junk::Mild] {
            let found = agrees(&graph, &padded, &values, &to, junk);
            assert!(found.is_ok(), "{rows} rows of {length}, {junk:?}: {:.300}", found.unwrap_err());
        }
    }
    padded.selects
}

fn low_rank() -> lora::Config {
    lora::Config::new(3, 6.0, lora::Targets::AllLinear)
}

#[test]
fn a_step_of_training_a_small_llama_is_the_same_in_every_bucket() {
    let llama = SmallLlama::sound().open().expect("sound");
    let cases = [(2, 1), (2, 2), (1, 5), (2, 7), (2, 8)];
    let selects = a_step_agrees::<f32>(&llama, &low_rank(), &[("T", 8)], &cases);
    println!("{selects} selects in a step of {} layers padded in T", llama.config.layers);
    assert!(selects < 12 * llama.config.layers + 12, "{selects}");
    a_step_agrees::<f64>(&llama, &low_rank(), &[("T", 8)], &cases);
    let selects = a_step_agrees::<f32>(&llama, &low_rank(), &[("B", 3), ("T", 8)], &cases);
    println!("{selects} selects in a step padded in B and T");
    a_step_agrees::<f64>(&llama, &low_rank(), &[("B", 3), ("T", 8)], &cases);
}

#[test]
fn a_step_of_training_the_golden_llama_is_the_same_in_a_bucket() {
    let Some(tiny) = TinyLlama::find() else { return };
    let (llama, adapter) = (tiny.open("nf4"), tiny.adapter("adapter-start"));
    let selects = a_step_agrees::<f32>(&llama, &adapter.config, &[("T", 16)], &[(1, 11), (1, 16)]);
    println!("{selects} selects in a step of {} layers", llama.config.layers);
}
