//! A compiled graph against what the interpreter says that it means, by the fair tolerance ([`crate::fair`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use challenges::graph::Compile;
use challenges::nf4::DEQUANTIZER;
use compiler::compile::{Compiled, Options};
use compiler::session::{DeviceTensor, Session, Settings};
use kernels::callee::Callee;
use kernels::{Buffer, Device, DeviceError};
use reference::graph::interpret::Values;
use reference::graph::{Array, Data, Dim, Dtype, Graph, Id, Symbol, interpret};

use crate::fair::{self, other_bits};

/// A compiled graph, and its results in their order.
type Run = (Arc<Compiled>, Vec<Array<f32>>);

/// Results of a graph on a device, compiled for the sizes of some values by some passes, with a dequantiser: those of
/// the last of so many runs.
pub(crate) fn run_with(
    device: &dyn Device,
    passes: &dyn Compile,
    graph: &Graph,
    values: &Values<f32>,
    options: Options,
    callee: &dyn Callee,
    runs: usize,
) -> Result<Run, String> {
    let settings = Settings { options: Some(options), exact: true, poison: true, ..Settings::default() };
    let mut session = Session::new(passes, device, callee, settings);
    let program = session.load(graph).map_err(describe)?;
    let given = upload(device, values).map_err(describe)?;
    for _ in 1..runs {
        session.run(program, &given).map_err(describe)?;
    }
    let outputs = session.run(program, &given).map_err(describe)?;
    let results = graph.outputs().iter().map(|(name, _)| outputs.array(name));
    let results = results.collect::<Result<_, _>>().map_err(describe)?;
    Ok((outputs.compiled().clone(), results))
}

/// What a graph compiles to, if its results are right.
pub(crate) fn right(
    device: &dyn Device,
    passes: &dyn Compile,
    graph: &Graph,
    values: &Values<f64>,
    options: Options,
) -> Result<Arc<Compiled>, String> {
    let narrow = narrowed(values);
    let plain = interpret(graph, &narrow).map_err(describe)?;
    let truth = interpret(graph, values).map_err(describe)?;
    let (compiled, got) = run_with(device, passes, graph, &narrow, options, &DEQUANTIZER, 1)?;
    for (i, (name, id)) in graph.outputs().iter().enumerate() {
        let message = difference(&got[i], &plain[i], &truth[i]);
        message
            .map_or(Ok(()), |message| Err(format!("output `{name}`: {message}\n{}", origin(graph, *id))))?;
    }
    Ok(compiled)
}

/// What a graph compiles to, if its results have the interpreter's bits: for operations that are rounded once.
pub(crate) fn exact(
    device: &dyn Device,
    passes: &dyn Compile,
    graph: &Graph,
    values: &Values<f64>,
    options: Options,
) -> Result<Arc<Compiled>, String> {
    let narrow = narrowed(values);
    let want = interpret(graph, &narrow).map_err(describe)?;
    let (compiled, got) = run_with(device, passes, graph, &narrow, options, &DEQUANTIZER, 1)?;
    match unequal(graph, &want, &got) {
        Some(message) => Err(message),
        None => Ok(compiled),
    }
}

/// The first output whose bits are others than needed, and where it comes from.
pub(crate) fn unequal(graph: &Graph, want: &[Array<f32>], got: &[Array<f32>]) -> Option<String> {
    let outputs = graph.outputs().iter().zip(want.iter().zip(got));
    outputs.into_iter().find_map(|((name, id), (want, got))| {
        let message = other_bits(want, got)?;
        Some(format!("output `{name}`: {message}\n{}", origin(graph, *id)))
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
    fair::difference(got, plain, truth, 0.0).map(describe)
}

/// An error in words.
pub(crate) fn describe(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Values in a device's memory.
pub(crate) fn upload(
    device: &dyn Device,
    values: &Values<f32>,
) -> Result<BTreeMap<String, DeviceTensor>, DeviceError> {
    values.iter().map(|(name, value)| tensor(device, name, value)).collect()
}

pub(crate) fn tensor(
    device: &dyn Device,
    name: &str,
    value: &Array<f32>,
) -> Result<(String, DeviceTensor), DeviceError> {
    Ok((name.to_owned(), DeviceTensor::new(device, &value.shape, &value.to_memory())?))
}

/// A device's memory as numbers of a type.
pub(crate) fn array(
    device: &dyn Device,
    dtype: Dtype,
    shape: &[usize],
    buffer: &Buffer,
) -> Result<Array<f32>, String> {
    let mut bytes = vec![0; buffer.bytes()];
    device.download(buffer, &mut bytes).map_err(describe)?;
    Ok(Array::from_memory(dtype, shape, &bytes))
}
