//! A compiled graph against what the interpreter says that it means.
//!
//! Three results: the truth in f64, the plain one in f32, the compiled one. The compiled one may be as far from the
//! truth as the plain one three times, and a hundred-thousandth of the largest element further: sums are taken in
//! another order, and functions have other last bits. A product in half precision is wrong by a hundred times that.

use std::collections::BTreeMap;

use challenges::graph::Compile;
use challenges::graph::compile::{Compiled, Options, compile};
use challenges::nf4::{self, Nf4};
use kernels::{Buffer, Cpu};
use reference::graph::interpret::Values;
use reference::graph::{Array, Data, Dim, Graph, Symbol, interpret};

use super::model::upload;

/// Of the largest element, or of 0.1 if that is larger.
const SLACK: f64 = 1e-5;

/// Results of a graph, compiled for the sizes of some values by some passes.
fn run(
    passes: &dyn Compile,
    graph: &Graph,
    values: &Values<f32>,
    options: Options,
) -> Result<(Compiled, Vec<Array<f32>>), String> {
    run_with(&Cpu::with_threads(2), passes, graph, values, options, &nf4::Solution)
}

/// The same with a device and a dequantiser.
pub(super) fn run_with(
    device: &Cpu,
    passes: &dyn Compile,
    graph: &Graph,
    values: &Values<f32>,
    options: Options,
    dequantizer: &dyn Nf4,
) -> Result<(Compiled, Vec<Array<f32>>), String> {
    let compiled = compile(passes, graph, &sizes(graph, values), options, None).map_err(told)?;
    let mut arena = compiled.arena(device).map_err(told)?;
    arena.view_mut::<u8>().fill(0xff); // NaN, wherever nothing is written
    let given = upload(device, values).map_err(told)?;
    let inputs: BTreeMap<&str, &Buffer> =
        given.iter().map(|(name, given)| (name.as_str(), &given.buffer)).collect();
    compiled.run(device, &mut arena, &inputs, dequantizer).map_err(told)?;
    let output = |port: &challenges::graph::compile::Port| {
        let bytes = compiled.output(&port.name, &arena, &inputs).unwrap_or_default();
        Array::from_memory(port.dtype, &port.shape, bytes)
    };
    let results = compiled.outputs().iter().map(output).collect();
    Ok((compiled, results))
}

/// What a graph compiles to, if its results are right.
pub(super) fn right(
    passes: &dyn Compile,
    graph: &Graph,
    values: &Values<f64>,
    options: Options,
) -> Result<Compiled, String> {
    let narrow: Values<f32> = values.iter().map(|(name, value)| (name.clone(), narrowed(value))).collect();
    let plain = interpret(graph, &narrow).map_err(told)?;
    let truth = interpret(graph, values).map_err(told)?;
    let (compiled, got) = run(passes, graph, &narrow, options)?;
    for (i, (name, _)) in graph.outputs().iter().enumerate() {
        difference(&got[i], &plain[i], &truth[i])
            .map_or(Ok(()), |told| Err(format!("output `{name}`: {told}\n{graph}")))?;
    }
    Ok(compiled)
}

/// The same numbers as f32.
fn narrowed(value: &Array<f64>) -> Array<f32> {
    match &value.data {
        Data::Float(numbers) => Array::floats(value.dtype, &value.shape, numbers.iter().copied()),
        Data::U8(bytes) => Array::bytes(&value.shape, bytes.clone()),
        Data::I32(numbers) => Array::integers(&value.shape, numbers.clone()),
    }
}

/// The sizes of a graph's symbols, read off the values.
pub(super) fn sizes(graph: &Graph, values: &Values<f32>) -> BTreeMap<Symbol, i64> {
    let mut sizes = BTreeMap::new();
    for (name, id) in graph.inputs() {
        let Some(value) = values.get(name) else { continue };
        let dims = graph.ty(id).shape.iter().map(Dim::as_symbol).zip(&value.shape);
        sizes.extend(dims.filter_map(|(symbol, size)| Some((symbol?.clone(), *size as i64))));
    }
    sizes
}

/// Where a result is further from the truth than it may be.
fn difference(got: &Array<f32>, plain: &Array<f32>, truth: &Array<f64>) -> Option<String> {
    if (got.dtype, &got.shape) != (plain.dtype, &plain.shape) {
        return Some(format!(
            "got {:?} {:?}, want {:?} {:?}",
            got.dtype, got.shape, plain.dtype, plain.shape
        ));
    }
    let (Data::Float(got), Data::Float(plain), Data::Float(truth)) = (&got.data, &plain.data, &truth.data)
    else {
        return (got.data != plain.data).then(|| format!("got {:?}, want {:?}", got.data, plain.data));
    };
    let largest = truth.iter().filter(|x| x.is_finite()).fold(0.1_f64, |max, x| max.max(x.abs()));
    (0..got.len()).find_map(|i| {
        let (g, p, t) = (f64::from(got[i]), f64::from(plain[i]), truth[i]);
        let alike = (g.is_nan() && p.is_nan()) || g.total_cmp(&p).is_eq();
        let near = (g - t).abs() <= 3.0 * (p - t).abs() + SLACK * largest;
        (!alike && !near).then(|| format!("element {i}: got {g:e}, want {p:e}, the truth is {t:e}"))
    })
}

/// An error in words.
pub(super) fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}
