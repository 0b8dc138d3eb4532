//! A compiled graph against what the interpreter says that it means, by the fair tolerance ([`crate::fair`]).

use std::collections::BTreeMap;

use challenges::graph::Compile;
use challenges::nf4::{self, Nf4};
use compiler::compile::{Compiled, Options, compile};
use kernels::{Buffer, Cpu};
use reference::graph::interpret::Values;
use reference::graph::{Array, Data, Dim, Graph, Id, Symbol, interpret};

use super::model::upload;
use crate::fair::{self, other_bits};

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
    compiled.run(device, &mut arena, &inputs, &nf4::Callee(dequantizer)).map_err(told)?;
    let output = |port: &compiler::compile::Port| {
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
    let narrow = narrowed(values);
    let plain = interpret(graph, &narrow).map_err(told)?;
    let truth = interpret(graph, values).map_err(told)?;
    let (compiled, got) = run(passes, graph, &narrow, options)?;
    for (i, (name, id)) in graph.outputs().iter().enumerate() {
        let told = difference(&got[i], &plain[i], &truth[i]);
        told.map_or(Ok(()), |told| Err(format!("output `{name}`: {told}\n{}", origin(graph, *id))))?;
    }
    Ok(compiled)
}

/// What a graph compiles to, if its results have the interpreter's bits: for operations that are rounded once.
pub(super) fn exact(
    passes: &dyn Compile,
    graph: &Graph,
    values: &Values<f64>,
    options: Options,
) -> Result<Compiled, String> {
    let narrow = narrowed(values);
    let want = interpret(graph, &narrow).map_err(told)?;
    let (compiled, got) = run(passes, graph, &narrow, options)?;
    match unequal(graph, &want, &got) {
        Some(told) => Err(told),
        None => Ok(compiled),
    }
}

/// The first output whose bits are others than needed, and where it comes from.
pub(super) fn unequal(graph: &Graph, want: &[Array<f32>], got: &[Array<f32>]) -> Option<String> {
    let outputs = graph.outputs().iter().zip(want.iter().zip(got));
    outputs.into_iter().find_map(|((name, id), (want, got))| {
        let told = other_bits(want, got)?;
        Some(format!("output `{name}`: {told}\n{}", origin(graph, *id)))
    })
}

/// The lines of a graph that a node is computed from, the nearest ones.
fn origin(graph: &Graph, id: Id) -> String {
    let all: Vec<Id> = graph.ancestors([id]).into_iter().collect();
    let last = &all[all.len().saturating_sub(ORIGIN)..];
    last.iter().map(|id| graph.line(*id)).collect::<Vec<_>>().join("\n")
}

/// How many lines of a graph are shown with an output.
const ORIGIN: usize = 12;

/// The same numbers as f32.
pub(crate) fn narrowed(values: &Values<f64>) -> Values<f32> {
    let one = |value: &Array<f64>| match &value.data {
        Data::Float(numbers) => Array::floats(value.dtype, &value.shape, numbers.iter().copied()),
        Data::U8(bytes) => Array::bytes(&value.shape, bytes.clone()),
        Data::I32(numbers) => Array::integers(&value.shape, numbers.clone()),
    };
    values.iter().map(|(name, value)| (name.clone(), one(value))).collect()
}

/// The sizes of a graph's symbols, read off the values.
pub(crate) fn sizes(graph: &Graph, values: &Values<f32>) -> BTreeMap<Symbol, i64> {
    let mut sizes = BTreeMap::new();
    for (name, id) in graph.inputs() {
        let Some(value) = values.get(name) else { continue };
        let dims = graph.ty(id).shape.iter().map(Dim::as_symbol).zip(&value.shape);
        sizes.extend(dims.filter_map(|(symbol, size)| Some((symbol?.clone(), *size as i64))));
    }
    sizes
}

/// Where a result is further from the truth than it may be; whole numbers have to be equal.
pub(crate) fn difference(got: &Array<f32>, plain: &Array<f32>, truth: &Array<f64>) -> Option<String> {
    fair::difference(got, plain, truth, 0.0).map(told)
}

/// An error in words.
pub(crate) fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}
