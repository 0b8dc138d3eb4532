//! The interpreter: every operation against a formula of its own, roundings, integers, and what it refuses.

#![allow(clippy::float_cmp)] // a definition fixes every rounding

use std::collections::BTreeMap;

use half::{bf16, f16};
use proptest::prelude::*;
use reference::graph::interpret::{Bound, Values};
use reference::graph::{
    Array, Binary, Builder, Compare, Data, Dim, Dtype, Fault, Graph, Id, Node, Op, Real, Reduce, Tensor,
    Type, Unary, interpret,
};
use reference::philox::philox4x32_10;
use tests::graphs::{self, Case};

/// The place of an element in each dimension.
fn coordinates(shape: &[usize], element: usize) -> Vec<usize> {
    let mut rest = element;
    let mut place: Vec<usize> = shape
        .iter()
        .rev()
        .map(|size| {
            let here = rest % size;
            rest /= size;
            here
        })
        .collect();
    place.reverse();
    place
}

/// The element at a place.
fn at<R: Real>(x: &Array<R>, place: &[usize]) -> f64 {
    let element = place.iter().zip(&x.shape).fold(0, |element, (i, size)| element * size + i);
    x.wide()[element]
}

/// The place with one coordinate replaced.
fn with(place: &[usize], dim: usize, i: usize) -> Vec<usize> {
    let mut place = place.to_vec();
    place[dim] = i;
    place
}

/// One element of what a node gives, by a formula of its element's place; nothing where the formula is elsewhere.
fn element<R: Real>(node: &Node, x: &[&Array<R>], place: &[usize], bound: &Bound) -> Option<f64> {
    let dtype = node.ty.dtype;
    let float = |value: R| value.round_to(dtype).wide();
    let real = |value: f64| R::of(value);
    let sum = |parts: &mut dyn Iterator<Item = R>| parts.fold(R::default(), |sum, part| sum + part);
    Some(match &node.op {
        Op::Input { .. } | Op::Attention(_) | Op::AttentionGrad { .. } => return None,
        Op::AttentionLse(_) | Op::AttentionLseGrad { .. } | Op::Collective { .. } => return None,
        Op::RandomMask { probability, stream } => {
            let [key0, key1, index] = [0, 1, 2].map(|i| at(x[i], place) as i32 as u32);
            let [word, ..] = philox4x32_10([index, *stream, 0, 0], [key0, key1]);
            f64::from(u8::from(f64::from(word) < probability * 4_294_967_296.0))
        }
        Op::Constant { value } => {
            if dtype.is_float() {
                R::nearest(*value, dtype).wide()
            } else {
                *value
            }
        }
        Op::Iota { dim } => place[*dim] as f64,
        Op::Cast => converted(at(x[0], place), dtype, x[0].dtype, float),
        Op::Detach => at(x[0], place),
        Op::Unary(_) if dtype == Dtype::I32 => f64::from((at(x[0], place) as i32).wrapping_neg()),
        Op::Unary(unary) => float(function(*unary, real(at(x[0], place)))),
        Op::Binary(binary) => {
            let [a, b] = [at(x[0], place), at(x[1], place)];
            if dtype.is_float() {
                float(of_two(*binary, real(a), real(b)))
            } else {
                whole(*binary, a, b, dtype)
            }
        }
        Op::Compare(Compare::Less) => f64::from(u8::from(at(x[0], place) < at(x[1], place))),
        Op::Compare(Compare::Equal) => f64::from(u8::from(at(x[0], place) == at(x[1], place))),
        Op::Select => at(x[if at(x[0], place) == 0.0 { 2 } else { 1 }], place),
        Op::Reduce(reduce, dim) => {
            let row: Vec<f64> = (0..x[0].shape[*dim]).map(|i| at(x[0], &with(place, *dim, i))).collect();
            match reduce {
                Reduce::Sum if dtype == Dtype::I32 => {
                    f64::from(row.iter().map(|x| *x as i64).sum::<i64>() as i32)
                }
                Reduce::Sum => float(sum(&mut row.iter().map(|x| real(*x)))),
                Reduce::Max if row.iter().any(|x| x.is_nan()) => f64::NAN,
                Reduce::Max => row.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            }
        }
        Op::Matmul => {
            let (n, depth) = (place.len(), x[0].shape[place.len() - 1]);
            let part = |k| real(at(x[0], &with(place, n - 1, k))) * real(at(x[1], &with(place, n - 2, k)));
            float(sum(&mut (0..depth).map(part)))
        }
        Op::Gather => {
            let (index, row) = place.split_at(x[1].shape.len());
            at(x[0], &[&[at(x[1], index) as usize], row].concat())
        }
        Op::ScatterAdd => {
            let indices = (0..x[1].wide().len()).map(|i| coordinates(&x[1].shape, i));
            let mut here = indices.filter(|index| at(x[1], index) as usize == place[0]);
            float(sum(&mut here.by_ref().map(|index| real(at(x[0], &[&index, &place[1..]].concat())))))
        }
        Op::Reshape => x[0].wide()[flat(place, &node.ty, bound)],
        Op::Transpose { order } => {
            let mut from = place.to_vec();
            order.iter().zip(place).for_each(|(dim, i)| from[*dim] = *i);
            at(x[0], &from)
        }
        Op::Broadcast => {
            let from = place.iter().zip(&x[0].shape).map(|(i, size)| if *size == 1 { 0 } else { *i });
            at(x[0], &from.collect::<Vec<_>>())
        }
        Op::Slice { dim, start, .. } => {
            at(x[0], &with(place, *dim, place[*dim] + start.value(bound).expect("bound") as usize))
        }
        Op::Concat { dim } => {
            let mut i = place[*dim];
            let part = x.iter().find(|part| {
                let here = i < part.shape[*dim];
                i -= if here { 0 } else { part.shape[*dim] };
                here
            });
            at(part?, &with(place, *dim, i))
        }
        Op::Dequantize { block_size, nested } => {
            let e = flat(place, &node.ty, bound);
            let code = (x[0].wide()[e / 2] as usize >> (4 * (1 - e % 2))) & 15;
            let narrow = |i: usize, j: usize| x[i].wide()[j] as f32;
            let block = e / block_size;
            let absmax = match nested {
                None => narrow(2, block),
                Some(size) => narrow(3, x[2].wide()[block] as usize) * narrow(4, block / size) + narrow(5, 0),
            };
            (narrow(1, code) * absmax).round_to(dtype).wide()
        }
    })
}

/// An element's number in row-major order.
fn flat(place: &[usize], ty: &Type, bound: &Bound) -> usize {
    let sizes = ty.shape.iter().map(|dim| dim.value(bound).expect("bound") as usize);
    place.iter().zip(sizes).fold(0, |element, (i, size)| element * size + i)
}

fn converted<R: Real>(x: f64, to: Dtype, from: Dtype, float: impl Fn(R) -> f64) -> f64 {
    match to {
        Dtype::U8 => {
            if x.is_nan() {
                0.0
            } else {
                x.trunc().clamp(0.0, 255.0)
            }
        }
        Dtype::I32 => {
            if x.is_nan() {
                0.0
            } else {
                x.trunc().clamp(f64::from(i32::MIN), f64::from(i32::MAX))
            }
        }
        _ if from.is_float() => float(R::of(x)),
        _ => R::nearest(x, to).wide(),
    }
}

fn function<R: Real>(unary: Unary, x: R) -> R {
    match unary {
        Unary::Neg => -x,
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => R::of(1.0) / (R::of(1.0) + (-x).exp()),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
    }
}

fn of_two<R: Real>(binary: Binary, a: R, b: R) -> R {
    let nan = a.wide().is_nan() || b.wide().is_nan();
    match binary {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Min | Binary::Max if nan => R::of(f64::NAN),
        Binary::Min => R::of(a.wide().min(b.wide())),
        Binary::Max => R::of(a.wide().max(b.wide())),
    }
}

/// Of integers: exact, then wrapped around.
fn whole(binary: Binary, a: f64, b: f64, dtype: Dtype) -> f64 {
    let [x, y] = [a as i128, b as i128];
    let exact = match binary {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => (a / b).floor() as i128,
        Binary::Min => x.min(y),
        Binary::Max => x.max(y),
    };
    if dtype == Dtype::U8 { exact as f64 } else { f64::from(exact as i32) }
}

/// Holds every node of a graph against its formula, given what its inputs are computed to be.
fn follows<R: Real>(case: &Case) -> Result<(), String> {
    let mut graph = case.graph.clone();
    graph.clear_outputs();
    graph.ids().collect::<Vec<_>>().into_iter().for_each(|id| graph.output(format!("{}", id.0), id));
    let values = interpret::<R>(&graph, &case.values()).map_err(|error| error.to_string())?;
    let first = graph.ty(Id(0)).shape.iter().zip(&values[0].shape);
    let bound: Bound =
        first.filter_map(|(dim, size)| Some((dim.as_symbol()?.clone(), *size as i64))).collect();
    for (id, got) in graph.ids().zip(&values) {
        let node = graph.node(id);
        let inputs: Vec<&Array<R>> = node.inputs.iter().map(|id| &values[id.0 as usize]).collect();
        for (i, got_one) in got.wide().into_iter().enumerate() {
            let place = coordinates(&got.shape, i);
            let Some(want) = element(node, &inputs, &place, &bound) else { continue };
            if got_one.to_bits() != want.to_bits() && got_one != want && !(got_one.is_nan() && want.is_nan())
            {
                return Err(format!(
                    "%{} {} at {place:?}: {got_one}, by formula {want}",
                    id.0,
                    node.op.name()
                ));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_element_of_every_node_is_what_a_formula_says_in_f64(case in graphs::any()) {
        prop_assert_eq!(follows::<f64>(&case), Ok(()));
    }

    #[test]
    fn every_element_of_every_node_is_what_a_formula_says_in_f32(case in graphs::any()) {
        prop_assert_eq!(follows::<f32>(&case), Ok(()));
    }

    #[test]
    fn a_float_is_a_value_of_its_type(case in graphs::any()) {
        for value in interpret::<f32>(&case.graph, &case.values()).expect("runs") {
            prop_assert!(value.is_sound());
            for x in value.as_floats() {
                prop_assert!(x.is_nan() || x.round_to(value.dtype) == *x, "{} is no {}", x, value.dtype.name());
            }
        }
    }

    #[test]
    fn integers_are_divided_downwards_and_wrap(a in any::<i32>(), b in any::<i32>(), small in -4..5_i32) {
        for b in [b, small, 1, -1, i32::MIN, i32::MAX].into_iter().filter(|b| *b != 0) {
            for (binary, _) in Binary::NAMES {
                let got = integers(&Op::Binary(binary), &[&[a], &[b]]).expect("no division by zero")[0];
                prop_assert_eq!(f64::from(got), whole(binary, f64::from(a), f64::from(b), Dtype::I32));
            }
        }
    }

    #[test]
    fn a_number_is_rounded_to_a_narrow_type_once(bits in any::<u64>(), near in any::<u16>(), tail in any::<i8>()) {
        let half = |bits: u16| f16::from_bits(bits).to_f64();
        let brain = |bits: u16| bf16::from_bits(bits).to_f64();
        let [middle, brain_middle] =
            [f64::midpoint(half(near), half(near ^ 1)), f64::midpoint(brain(near), brain(near ^ 1))];
        let numbers = [f64::from_bits(bits), beside(middle, tail), beside(brain_middle, tail)];
        for x in numbers.into_iter().filter(|x| !x.is_nan()) {
            prop_assert_eq!(f32::nearest(x, Dtype::F16).wide().to_bits(), nearest(x, &half).to_bits(), "{:e} to f16", x);
            prop_assert_eq!(f32::nearest(x, Dtype::Bf16).wide().to_bits(), nearest(x, &brain).to_bits(), "{:e} to bf16", x);
            prop_assert_eq!(f64::nearest(x, Dtype::F16).to_bits(), x.to_bits());
        }
    }
}

/// The f64 that many steps after a number.
fn beside(x: f64, steps: i8) -> f64 {
    f64::from_bits(x.to_bits().saturating_add_signed(i64::from(steps)))
}

/// The nearest of the values of a type of 16 bits, ties to the even pattern, by bisection over the positive ones.
fn nearest(x: f64, value: &dyn Fn(u16) -> f64) -> f64 {
    let infinity = (0..=0x7fff_u16).rev().find(|bits| value(*bits).is_infinite()).expect("there is one");
    let (mut low, mut high) = (0, infinity);
    while high - low > 1 {
        let middle = u16::midpoint(low, high);
        if value(middle) <= x.abs() { low = middle } else { high = middle }
    }
    let beyond = 2.0 * value(infinity - 1) - value(infinity - 2); // where the next value would be
    let above = if high == infinity { beyond } else { value(high) };
    let (down, up) = (x.abs() - value(low), above - x.abs());
    let even = if low % 2 == 0 { low } else { high };
    let bits = if down < up {
        low
    } else if up < down {
        high
    } else {
        even
    };
    value(bits).copysign(x)
}

/// A graph of one operation.
fn one(op: Op, inputs: &[Type], ty: Option<Type>) -> Graph {
    let mut graph = Graph::new("one");
    let input = |(i, ty): (usize, &Type)| {
        graph.push_as(Op::Input { name: format!("x{i}") }, &[], ty.clone()).expect("an input")
    };
    let ids: Vec<Id> = inputs.iter().enumerate().map(input).collect();
    let y = graph.add(op, &ids, ty, "").expect("inputs that fit");
    graph.output("y", y);
    graph
}

fn named<R: Real>(values: impl IntoIterator<Item = Array<R>>) -> Values<R> {
    values.into_iter().enumerate().map(|(i, value)| (format!("x{i}"), value)).collect()
}

/// One operation on numbers in a row.
fn run(op: Op, inputs: Vec<Array<f32>>, dtype: Dtype) -> Result<Array<f32>, Fault> {
    let types: Vec<Type> = inputs.iter().map(|x| Type::new(x.dtype, x.shape.iter().copied())).collect();
    let ty = op.takes_type().then(|| types[0].with(dtype));
    let result = interpret(&one(op, &types, ty), &named(inputs));
    result.map(|mut values| values.remove(0)).map_err(|error| error.fault)
}

fn integers(op: &Op, inputs: &[&[i32]]) -> Result<Vec<i32>, Fault> {
    let inputs = inputs.iter().map(|x| Array::integers(&[x.len()], x.to_vec())).collect();
    run(op.clone(), inputs, Dtype::I32).map(|value| value.as_integers().to_vec())
}

fn floats(op: Op, inputs: &[&[f32]]) -> Vec<f32> {
    let row = |x: &&[f32]| Array::floats(Dtype::F32, &[x.len()], x.iter().map(|x| f64::from(*x)));
    let result = run(op, inputs.iter().map(row).collect(), Dtype::F32).expect("runs");
    result.wide().into_iter().map(|x| x as f32).collect()
}

#[test]
fn the_rules_of_integers_are_those_of_the_hardware_but_for_division() {
    let div = Op::Binary(Binary::Div);
    assert_eq!(
        integers(&div, &[&[7, -7, 7, -7, i32::MIN], &[2, 2, -2, -2, -1]]),
        Ok(vec![3, -4, -4, 3, i32::MIN])
    );
    assert_eq!(integers(&div, &[&[1, 2], &[1, 0]]), Err(Fault::DivisionByZero { element: 1 }));
    assert_eq!(integers(&Op::Binary(Binary::Add), &[&[i32::MAX], &[1]]), Ok(vec![i32::MIN]));
    assert_eq!(integers(&Op::Binary(Binary::Mul), &[&[1 << 20], &[1 << 20]]), Ok(vec![0]));
    assert_eq!(integers(&Op::Unary(Unary::Neg), &[&[5, i32::MIN]]), Ok(vec![-5, i32::MIN]));
    assert_eq!(integers(&Op::Reduce(Reduce::Sum, 0), &[&[i32::MAX, 2]]), Ok(vec![i32::MIN + 1]));
}

#[test]
fn a_float_becomes_an_integer_towards_zero_and_within_bounds() {
    let x = [1.9, -1.9, f64::NAN, f64::INFINITY, -3e9, 255.5, 256.0];
    let x = Array::floats(Dtype::F32, &[7], x);
    let whole = run(Op::Cast, vec![x.clone()], Dtype::I32).expect("runs");
    assert_eq!(whole.as_integers(), [1, -1, 0, i32::MAX, i32::MIN, 255, 256]);
    assert_eq!(run(Op::Cast, vec![x], Dtype::U8).expect("runs").as_bytes(), [1, 0, 0, 255, 0, 255, 255]);
    let bytes = run(Op::Cast, vec![Array::integers(&[3], vec![-1, 7, 300])], Dtype::U8).expect("runs");
    assert_eq!(bytes.as_bytes(), [0, 7, 255]);
}

#[test]
fn an_integer_becomes_a_narrow_float_in_one_rounding() {
    let x = (1 << 24) + (1 << 16) + 1; // in f32 a tie of bf16, which it is not
    let cast = run(Op::Cast, vec![Array::integers(&[1], vec![x])], Dtype::Bf16).expect("runs");
    assert_eq!(cast.wide(), [f64::from((1 << 24) + (1 << 17))]);
    let constant = one(Op::Constant { value: f64::from(x) }, &[], Some(Type::scalar(Dtype::Bf16)));
    assert_eq!(interpret::<f32>(&constant, &Values::new()).expect("runs")[0].wide(), cast.wide());
}

#[test]
fn a_narrow_sum_is_taken_in_f32_and_rounded_at_the_end() {
    for (dtype, step) in [(Dtype::F16, 1.0 / 2048.0), (Dtype::Bf16, 1.0 / 256.0)] {
        let row: Vec<f64> = std::iter::once(1.0).chain(std::iter::repeat_n(step, 64)).collect(); // each step is half an ulp
        let x = Array::floats(dtype, &[65], row.clone());
        let sum = run(Op::Reduce(Reduce::Sum, 0), vec![x], dtype).expect("runs").wide()[0];
        assert_eq!(sum, 1.0 + 64.0 * step);
        let [a, b] =
            [Array::floats(dtype, &[1, 65], row.clone()), Array::floats(dtype, &[65, 1], vec![1.0; 65])];
        assert_eq!(run(Op::Matmul, vec![a, b], dtype).expect("runs").wide()[0], 1.0 + 64.0 * step);
        let rows = Array::floats(dtype, &[65], row);
        let graph = one(
            Op::ScatterAdd,
            &[Type::new(dtype, [65]), Type::new(Dtype::I32, [65])],
            Some(Type::new(dtype, [1])),
        );
        let values: Values<f32> = named([rows, Array::integers(&[65], vec![0; 65])]);
        assert_eq!(interpret(&graph, &values).expect("runs")[0].wide()[0], 1.0 + 64.0 * step);
    }
}

#[test]
fn not_a_number_is_handed_on_and_compares_with_nothing() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for binary in [Binary::Min, Binary::Max] {
        let got = floats(Op::Binary(binary), &[&[nan, 1.0, nan, inf], &[1.0, nan, nan, nan]]);
        assert!(got.iter().all(|x| x.is_nan()), "{binary:?} {got:?}");
    }
    assert_eq!(floats(Op::Binary(Binary::Max), &[&[inf, -inf], &[-inf, 1.0]]), [inf, 1.0]);
    assert_eq!(
        floats(Op::Compare(Compare::Less), &[&[nan, 1.0, nan, 1.0], &[1.0, nan, nan, 2.0]]),
        [0.0, 0.0, 0.0, 1.0]
    );
    assert_eq!(floats(Op::Compare(Compare::Equal), &[&[nan, 0.0], &[nan, -0.0]]), [0.0, 1.0]);
    assert!(floats(Op::Reduce(Reduce::Max, 0), &[&[1.0, nan, 2.0]])[0].is_nan());
    assert!(floats(Op::Reduce(Reduce::Max, 0), &[&[nan, 1.0]])[0].is_nan());
    assert_eq!(floats(Op::Reduce(Reduce::Max, 0), &[&[]]), [-inf]);
    assert_eq!(floats(Op::Reduce(Reduce::Sum, 0), &[&[]]), [0.0]);
}

#[test]
fn a_softmax_of_nothing_but_minus_infinity_is_not_a_number_and_its_logsumexp_is_minus_infinity() {
    let builder = Builder::new("masked");
    let x = builder.tape().input("x0", Dtype::F32, [3]);
    builder.tape().output("softmax", &x.softmax(0));
    builder.tape().output("logsumexp", &x.logsumexp(0));
    let graph = builder.finish().expect("sound");
    let run = |row: [f64; 3]| {
        interpret::<f32>(&graph, &named([Array::floats(Dtype::F32, &[3], row)])).expect("runs")
    };
    let masked = run([f64::NEG_INFINITY; 3]);
    assert!(masked[0].wide().iter().all(|x| x.is_nan()) && masked[1].wide() == [f64::NEG_INFINITY]);
    let large = run([1000.0, 1000.0, f64::NEG_INFINITY]);
    assert_eq!(large[0].wide(), [0.5, 0.5, 0.0]);
    assert!((large[1].wide()[0] - (1000.0 + 2.0_f64.ln())).abs() < 1e-4);
}

/// Numbers with a few large ones among them.
fn peaks(count: usize, seed: usize) -> Vec<f64> {
    let plain = |i: usize| f64::from(((i * 7 + seed * 13 + 5) as f32 * 0.618_034).fract() - 0.5);
    (0..count).map(|i| plain(i) * if i % 17 == 3 { 40.0 } else { 1.0 }).collect()
}

/// The largest error of an f32 run, of one that adds in the other order, and of the truth rounded to bf16.
fn errors(
    shape: &[usize],
    body: impl Fn(&Tensor) -> Tensor,
    reversed: impl Fn(&Tensor) -> Tensor,
) -> [f64; 3] {
    let run = |body: &dyn Fn(&Tensor) -> Tensor| {
        let builder = Builder::new("one");
        let x = builder.tape().input("x0", Dtype::F32, shape.iter().copied());
        builder.tape().output("y", &body(&x));
        let graph = builder.finish().expect("sound");
        let values = named([Array::<f64>::floats(Dtype::F32, shape, peaks(shape.iter().product(), 1))]);
        let narrow = values.iter().map(|(name, value)| (name.clone(), graphs::narrow(value))).collect();
        let truth = interpret::<f64>(&graph, &values).expect("runs")[0].wide();
        let got = interpret::<f32>(&graph, &narrow).expect("runs")[0].wide();
        (truth, got)
    };
    let (truth, got) = run(&body);
    let (_, naive) = run(&reversed);
    let rounded: Vec<f64> = truth.iter().map(|x| f32::nearest(*x, Dtype::Bf16).wide()).collect();
    [got, naive, rounded]
        .map(|x| x.iter().zip(&truth).map(|(x, y)| (x - y).abs() / y.abs().max(1.0)).fold(0.0, f64::max))
}

/// The rows of x in the other order.
fn backwards(x: &Tensor, rows: usize) -> Tensor {
    let place = x.tape().iota(&[Dim::from(rows)], 0);
    x.gather(&(&-&place + (rows as f64 - 1.0)))
}

#[test]
fn sums_in_f32_are_as_near_to_the_truth_as_in_another_order() {
    let slack = 8.0 * f64::from(f32::EPSILON);
    for (rows, columns) in [(1, 3), (63, 2), (65, 7), (257, 1), (1021, 3)] {
        let shape = [rows, columns];
        for [got, naive, bf16] in [
            errors(&shape, |x| x.sum(0), |x| backwards(x, rows).sum(0)),
            errors(&shape, |x| x.logsumexp(0), |x| backwards(x, rows).logsumexp(0)),
            errors(&shape, |x| x.t().matmul(x), |x| backwards(x, rows).t().matmul(&backwards(x, rows))),
        ] {
            assert!(got <= 2.0 * naive + slack, "{shape:?}: {got:e}, the other order has {naive:e}");
            assert!(bf16 > 2.0 * naive + slack, "{shape:?}: bf16 would do, too");
        }
    }
}

/// The error of a graph's text on values.
fn refused(text: &str, values: &Values<f32>) -> String {
    interpret(&Graph::parse(text).expect("sound"), values).expect_err(text).to_string()
}

fn zeros(shape: &[usize]) -> Array<f32> {
    Array::floats(Dtype::F32, shape, vec![0.0; shape.iter().product()])
}

const PAIR: &str = "graph \"g\" (T in 2..=8 by 2) { %0 = input \"x0\" : f32[T, 3] %1 = input \"x1\" : f32[T + 1] \
                    return \"a\" %0, \"b\" %1 }";

#[test]
fn what_does_not_fit_an_input_is_refused() {
    for (values, want) in [
        (vec![zeros(&[4, 3])], "`g`: missing input `x1`"),
        (vec![zeros(&[4]), zeros(&[5])], "`x0`: expected f32[T, 3], found f32[4]"),
        (vec![zeros(&[4, 2]), zeros(&[5])], "`x0`: expected f32[T, 3], found f32[4, 2]"),
        (vec![zeros(&[4, 3]), zeros(&[4])], "`x1`: expected f32[T + 1], found f32[4]"),
        (vec![zeros(&[4, 3]), Array::integers(&[5], vec![0; 5])], "`x1`: expected f32[T + 1], found i32[5]"),
        (vec![zeros(&[0, 3]), zeros(&[1])], "`g`: T: expected 2..=8 by 2, found 0"),
        (vec![zeros(&[3, 3]), zeros(&[4])], "`g`: T: expected 2..=8 by 2, found 3"),
        (vec![zeros(&[10, 3]), zeros(&[11])], "`g`: T: expected 2..=8 by 2, found 10"),
    ] {
        assert_eq!(refused(PAIR, &named(values)), want);
    }
    let unsound = Array { dtype: Dtype::F32, shape: vec![4, 3], data: Data::Float(vec![0.0; 11]) };
    assert_eq!(refused(PAIR, &named([unsound, zeros(&[5])])), "`x0`: expected f32[T, 3], found f32[4, 3]");
    let mixed = Array { dtype: Dtype::F32, shape: vec![4, 3], data: Data::U8(vec![0; 12]) };
    assert_eq!(refused(PAIR, &named([mixed, zeros(&[5])])), "`x0`: expected f32[T, 3], found f32[4, 3]");
}

#[test]
fn a_symbol_has_one_value_and_some_input_says_which() {
    let twice = "graph \"g\" { %0 = input \"x0\" : f32[T] %1 = input \"x1\" : f32[T] %2 = add %0 %1 : f32[T] return \"y\" %2 }";
    assert_eq!(
        refused(twice, &named([zeros(&[2]), zeros(&[3])])),
        "`g`: T: expected 2, as elsewhere, found 3"
    );
    let nowhere = "graph \"g\" { %0 = input \"x0\" : f32[2*T] return \"y\" %0 }";
    assert_eq!(refused(nowhere, &named([zeros(&[4])])), "`x0`: no input says how large T is");
    let made = "graph \"g\" { %0 = constant 1.0 : f32[T] return \"y\" %0 }";
    assert_eq!(refused(made, &Values::new()), "%0 constant: no input says how large T is");
}

#[test]
fn an_index_outside_its_table_is_refused() {
    let gather = "graph \"g\" { %0 = input \"x0\" : f32[4, 2] %1 = input \"x1\" : i32[2, 2] \
                  %2 = gather %0 %1 : f32[2, 2, 2] return \"y\" %2 }";
    let scatter = "graph \"g\" { %0 = input \"x0\" : f32[4] %1 = input \"x1\" : i32[4] \
                   %2 = scatter_add %0 %1 : f32[3] return \"y\" %2 }";
    let index = |shape: &[usize], numbers: [i32; 4]| Array::integers(shape, numbers.to_vec());
    let error = refused(gather, &named([zeros(&[4, 2]), index(&[2, 2], [0, 3, 4, 0])]));
    assert_eq!(error, "%2 gather: index[2]: expected 0 to 3, found 4");
    let error = refused(gather, &named([zeros(&[4, 2]), index(&[2, 2], [0, -1, 0, 0])]));
    assert_eq!(error, "%2 gather: index[1]: expected 0 to 3, found -1");
    let error = refused(scatter, &named([zeros(&[4]), index(&[4], [0, 1, 2, 3])]));
    assert_eq!(error, "%2 scatter_add: index[3]: expected 0 to 2, found 3");
}

#[test]
fn a_weight_that_cannot_be_decoded_is_refused() {
    let text = "graph \"g\" { %0 = input \"x0\" : u8[16] %1 = input \"x1\" : f32[16] %2 = input \"x2\" : f32[1] \
                %3 = dequantize %0 %1 %2 block 32 : f32[32] return \"y\" %3 }";
    let parts = [Array::bytes(&[16], vec![0; 16]), zeros(&[16]), Array::floats(Dtype::F32, &[1], [f64::NAN])];
    assert!(refused(text, &named(parts)).starts_with("%3 dequantize: the weight cannot be decoded: "));
}

#[test]
fn a_size_without_elements_may_be_large_and_what_fits_no_memory_is_refused() {
    let wide =
        |rest: &str| format!("graph \"g\" {{ %0 = input \"x0\" : f32[0, T, 3] {rest} return \"y\" %1 }}");
    let large = || named([zeros(&[0, 1 << 40, 3])]);
    for node in [
        "%1 = transpose %0 order 1 0 2 : f32[T, 0, 3]",
        "%1 = concat %0 %0 dim 2 : f32[0, T, 6]",
        "%1 = sum %0 dim 2 : f32[0, T, 1]",
    ] {
        let values = interpret(&Graph::parse(&wide(node)).expect("sound"), &large()).expect("nothing to do");
        assert!(values[0].wide().is_empty());
    }
    let error = refused(&wide("%1 = sum %0 dim 0 : f32[1, T, 3]"), &large());
    assert_eq!(error, "%1 sum: [1, 1099511627776, 3] has more elements than fit in memory");
    let error = refused(&wide("%1 = constant 1.0 : f32[T*T]"), &BTreeMap::new());
    assert_eq!(error, "%1 constant: no input says how large T is");
}

#[test]
fn what_no_output_needs_may_be_left_out() {
    let text = "graph \"g\" { %0 = input \"x0\" : f32[1] %1 = input \"x1\" : f32[1] %2 = neg %1 : f32[1] \
                %3 = add %0 %0 : f32[1] return \"y\" %3, \"again\" %3, \"itself\" %0 }";
    let values = named([Array::<f32>::floats(Dtype::F32, &[1], [2.0])]);
    let got = interpret(&Graph::parse(text).expect("sound"), &values).expect("runs");
    assert_eq!(got.iter().map(Array::wide).collect::<Vec<_>>(), [[4.0], [4.0], [2.0]]);
}
