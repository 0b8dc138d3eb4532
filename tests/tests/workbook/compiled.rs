//! Agreement: what a compiled graph computes is what the interpreter says that it means.

use std::collections::BTreeMap;

use challenges::graph::compile::{Compiled, compile};
use challenges::nf4::Solution;
use kernels::{Buffer, Cpu, Device};
use proptest::prelude::*;
use reference::graph::interpret::Values;
use reference::graph::{Array, Data, Dtype, Graph, Symbol, interpret};
use tests::graphs::{self, Case};

/// The bytes of an array as memory has them.
fn bytes(array: &Array<f32>) -> Vec<u8> {
    let each = |f: fn(f32) -> Vec<u8>| array.as_floats().iter().flat_map(|x| f(*x)).collect();
    match array.dtype {
        Dtype::F32 => each(|x| x.to_ne_bytes().to_vec()),
        Dtype::F16 => each(|x| half::f16::from_f32(x).to_ne_bytes().to_vec()),
        Dtype::Bf16 => each(|x| half::bf16::from_f32(x).to_ne_bytes().to_vec()),
        Dtype::U8 => array.as_bytes().to_vec(),
        Dtype::I32 => array.as_integers().iter().flat_map(|x| x.to_ne_bytes()).collect(),
    }
}

/// Memory as an array.
fn array(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Array<f32> {
    let floats = |values: Vec<f64>| Array::floats(dtype, shape, values);
    let pairs = || bytes.as_chunks::<2>().0.iter();
    let fours = || bytes.as_chunks::<4>().0.iter();
    match dtype {
        Dtype::F32 => floats(fours().map(|x| f64::from(f32::from_ne_bytes(*x))).collect()),
        Dtype::F16 => floats(pairs().map(|x| half::f16::from_ne_bytes(*x).to_f64()).collect()),
        Dtype::Bf16 => floats(pairs().map(|x| half::bf16::from_ne_bytes(*x).to_f64()).collect()),
        Dtype::U8 => Array::bytes(shape, bytes.to_vec()),
        Dtype::I32 => Array::integers(shape, fours().map(|x| i32::from_ne_bytes(*x)).collect()),
    }
}

/// The sizes of a graph's symbols, read off the values.
fn sizes(graph: &Graph, values: &Values<f32>) -> BTreeMap<Symbol, i64> {
    let mut sizes = BTreeMap::new();
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

fn upload(device: &Cpu, values: &Values<f32>) -> BTreeMap<String, Buffer> {
    let one = |(name, value): (&String, &Array<f32>)| {
        let bytes = bytes(value);
        let mut buffer = device.alloc("input", bytes.len()).expect("room");
        device.upload(&mut buffer, &bytes).expect("equal lengths");
        (name.clone(), buffer)
    };
    values.iter().map(one).collect()
}

/// Compiles a graph for some values and runs it.
fn run(graph: &Graph, values: &Values<f32>) -> Result<Vec<Array<f32>>, String> {
    let device = Cpu::with_threads(2);
    let compiled: Compiled = compile(graph, &sizes(graph, values)).map_err(|error| error.to_string())?;
    let inputs = upload(&device, values);
    let mut arena = compiled.arena(&device).map_err(|error| error.to_string())?;
    arena.view_mut::<u8>().fill(0xff); // NaN, wherever nothing is written
    compiled.run(&device, &mut arena, &inputs, &Solution).map_err(|error| error.to_string())?;
    let output = |port: &challenges::graph::compile::Port| {
        let bytes = compiled.output(&port.name, &arena, &inputs).expect("an output of the graph");
        array(port.dtype, &port.shape, bytes)
    };
    Ok(compiled.outputs().iter().map(output).collect())
}

/// Of the largest element, or of 0.1 where terms of the size of 1 cancel: sums are taken in another order, functions have other last bits. A product in f16 or bf16
/// errs by a hundred times that.
const SLACK: f64 = 1e-5;

/// Where a result is further from the truth than the interpreter's f32 and a slack allow.
fn difference(got: &Array<f32>, naive: &Array<f32>, truth: &Array<f64>) -> Option<String> {
    if (got.dtype, &got.shape) != (naive.dtype, &naive.shape) {
        return Some(format!("{:?}{:?}, needed is {:?}{:?}", got.dtype, got.shape, naive.dtype, naive.shape));
    }
    let (Data::Float(got), Data::Float(naive), Data::Float(truth)) = (&got.data, &naive.data, &truth.data)
    else {
        return (got.data != naive.data).then(|| format!("{got:?}, needed is {naive:?}"));
    };
    let largest = truth.iter().filter(|x| x.is_finite()).fold(0.0_f64, |max, x| max.max(x.abs()));
    (0..got.len()).find_map(|i| {
        let (g, n, t) = (f64::from(got[i]), f64::from(naive[i]), truth[i]);
        let alike = (g.is_nan() && n.is_nan()) || g == n;
        let near = (g - t).abs() <= 3.0 * (n - t).abs() + SLACK * largest.max(t.abs()).max(0.1);
        (!alike && !near).then(|| format!("element {i} is {g}, the interpreter's {n}, the truth {t}"))
    })
}

fn agrees(case: &Case) -> Result<(), TestCaseError> {
    let values = case.values::<f32>();
    let (naive, truth) = (interpret(&case.graph, &values), interpret::<f64>(&case.graph, &case.values));
    let got = run(&case.graph, &values);
    let (naive, truth, got) = match (naive, truth, got) {
        (Ok(naive), Ok(truth), Ok(got)) => (naive, truth, got),
        (Err(_), _, Err(_)) => return Ok(()),
        (naive, _, got) => {
            return Err(TestCaseError::fail(format!(
                "the interpreter: {:?}; compiled: {:?}",
                naive.err(),
                got.err()
            )));
        }
    };
    for (((name, _), got), (naive, truth)) in
        case.graph.outputs().iter().zip(&got).zip(naive.iter().zip(&truth))
    {
        if let Some(difference) = difference(got, naive, truth) {
            return Err(TestCaseError::fail(format!("{name}: {difference}")));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_compiled_graph_computes_what_it_means(case in graphs::any()) {
        agrees(&case)?;
    }
}
