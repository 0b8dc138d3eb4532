//! B.7: ranks that share a layer, against the whole layer: forward and gradients, each rank with its part of the
//! weights.

use std::collections::BTreeMap;

use challenges::fsdp::programs::{self, Layout, Placed};
use challenges::fsdp::{FSDP, Fsdp, Sharding, TP};
use reference::fsdp::Cut;
use reference::graph::interpret::Values;
use reference::graph::ranks::{Mesh, interpret_ranks};
use reference::graph::{Array, Dim, Dtype, Graph, interpret};
use reference::llama::train::{self, STREAM_GRAD};
use reference::llama::{Config, Piece, Rope, Rows as Batching, Scaling, Spec, Storage, rope};
use reference::lora;

use super::{Check, Rows};
use crate::compare::describe;
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("every-parameter-is-cut", |steps, _| {
        [2, 3].into_iter().try_for_each(|ranks| laid_out(steps, ranks).map(|_| ()))
    }),
    ("forward", |steps, random| [2, 3].into_iter().try_for_each(|ranks| layer(steps, ranks, &["y"], random))),
    ("gradient-of-the-stream", |steps, random| {
        [2, 3].into_iter().try_for_each(|ranks| gradients(steps, ranks, STREAM_GRAD, random))
    }),
    ("gradients-of-adapters", |steps, random| {
        [2, 3].into_iter().try_for_each(|ranks| gradients(steps, ranks, "grad.", random))
    }),
];

/// A dense layer whose heads 2 and 3 ranks can share, while its MLP has a width that 3 cannot share equally.
fn spec() -> Spec {
    let config = Config {
        vocab: 17,
        hidden: 12,
        intermediate: 20,
        layers: 1,
        heads: 6,
        key_heads: 6,
        head_dim: 4,
        positions: 32,
        norm_eps: 1e-5,
        rope: Rope { theta: 10_000.0, scaling: Scaling::None },
        tied: false,
        quantized: false,
        classifier: None,
        images: None,
    };
    let storages = config.tensor_specs().into_iter().map(|spec| (spec.name, Storage::Dense(Dtype::F32)));
    Spec {
        storages: storages.collect(),
        config,
        compute: Dtype::F32,
        adapter: Some(lora::Config::new(3, 6.0, lora::Targets::AllLinear)),
        rows: Batching::default(),
        dropout: false,
    }
}

fn mesh(ranks: usize) -> Result<Mesh, String> {
    Mesh::new([(FSDP, 1), (TP, ranks)]).map_err(describe)
}

fn laid_out(attempt: &dyn Fsdp, ranks: usize) -> Result<Layout, String> {
    let layout = Layout::new(attempt, &spec(), &mesh(ranks)?, Sharding::Parameters).map_err(describe)?;
    let is_torn =
        |placed: &&Placed| placed.shared.cut != Cut::Whole && placed.shared.local == placed.shared.whole;
    match layout.parameters().iter().find(is_torn) {
        None => Ok(layout),
        Some(Placed { parameter, shared, .. }) => Err(format!(
            "`{}`: expected {:?}, found {:?}: on each of {ranks} ranks it is as large as the whole, {:?}",
            parameter.name,
            Cut::Whole,
            shared.cut,
            shared.whole
        )),
    }
}

/// [`layer`] of gradients. While the forward is wrong, what they look like says nothing about their own cause.
fn gradients(attempt: &dyn Fsdp, ranks: usize, outputs: &str, random: &mut Random) -> Result<(), String> {
    let Err(message) = layer(attempt, ranks, &[outputs], random) else { return Ok(()) };
    if layer(attempt, ranks, &["y"], random).is_ok() {
        return Err(message);
    }
    let found = message.split("\nlikely cause: ").next().unwrap_or_default();
    Err(format!("{found}\nthe forward is wrong as well (B.7/forward): it comes first"))
}

/// Rows and tokens of the micro-batch.
const BATCH: [usize; 2] = [2, 5];

/// The dimensions of a graph's input.
fn dims(graph: &Graph, name: &str) -> Vec<usize> {
    let Some(id) = graph.find_input(name) else { return Vec::new() };
    let size = |dim: &Dim| match (dim.as_fixed(), dim.as_symbol()) {
        (Some(size), _) => size as usize,
        (None, Some(symbol)) if &**symbol == "B" => BATCH[0],
        _ => BATCH[1],
    };
    graph.ty(id).shape.iter().map(size).collect()
}

/// Numbers that f32 holds.
fn numbers(shape: &[usize], random: &mut Random) -> Array<f64> {
    let count: usize = shape.iter().product();
    Array::floats(
        Dtype::F32,
        shape,
        (0..count).map(|_| f64::from(random.unit() as f32 - 0.5)).collect::<Vec<_>>(),
    )
}

/// That the ranks' layer is the whole one, in the outputs whose names begin with one of these.
fn layer(attempt: &dyn Fsdp, ranks: usize, outputs: &[&str], random: &mut Random) -> Result<(), String> {
    let (spec, layout) = (spec(), laid_out(attempt, ranks)?);
    let graph = train::piece_graph(&spec, Piece::Layer(0)).map_err(describe)?;
    let tables: Values<f64> = rope::values(&spec.config, BATCH[1]);
    let mut whole = Values::new();
    for (name, _) in graph.inputs() {
        let value = match tables.get(name) {
            Some(table) => table.clone(),
            None => numbers(&dims(&graph, name), random),
        };
        whole.insert(name.to_owned(), value);
    }
    let names = graph.outputs().iter().map(|(name, _)| name.clone());
    let truth: BTreeMap<String, Array<f64>> =
        names.zip(interpret(&graph, &whole).map_err(describe)?).collect();
    let pieces = programs::pieces(attempt, &layout).map_err(describe)?;
    let own = &pieces[1].training;
    let values: Vec<Values<f64>> =
        (0..ranks).map(|rank| values_of(own, &layout, &whole, rank, ranks)).collect::<Result<_, _>>()?;
    let all = interpret_ranks(&[own], &mesh(ranks)?, &values).map_err(describe)?;
    for (number, (name, _)) in own.outputs().iter().enumerate() {
        if !outputs.iter().any(|begin| name.starts_with(begin)) {
            continue;
        }
        let of_ranks: Vec<&Array<f64>> = all.iter().map(|outputs| &outputs[number]).collect();
        let want = truth.get(name).ok_or_else(|| format!("`{name}` is no output of the whole layer"))?;
        same(&layout, name, &of_ranks, want)
            .map_err(|message| format!("{ranks} ranks, `{name}`: {message}"))?;
    }
    Ok(())
}

/// A rank's values: its part of every parameter, everyone's x, its share of the gradient that comes in, sums of 0.
fn values_of(
    graph: &Graph,
    layout: &Layout,
    whole: &Values<f64>,
    rank: usize,
    ranks: usize,
) -> Result<Values<f64>, String> {
    let mut values = Values::new();
    for (name, id) in graph.inputs() {
        let shape = dims(graph, name);
        let value = match (layout.placed(name), whole.get(name)) {
            (Some(placed), Some(value)) => {
                let own = placed.shared.part(&exactly(&value.wide()), 8, rank);
                Array::floats(Dtype::F32, &placed.shared.local, read(&own))
            }
            (None, Some(value)) if name == STREAM_GRAD => {
                Array::floats(value.dtype, &value.shape, value.wide().into_iter().map(|x| x / ranks as f64))
            }
            (None, Some(value)) => value.clone(),
            (_, None) if name.starts_with("grad.") => {
                Array::floats(graph.ty(id).dtype, &shape, vec![0.0; shape.iter().product()])
            }
            (_, None) => return Err(format!("`{name}` is an input that the whole layer has not")),
        };
        values.insert(name.to_owned(), value);
    }
    Ok(values)
}

/// That what ranks have of an output is the whole's: of the stream everyone has all; of its gradient each has a part
/// of the sum; of a gradient of an adapter its own part.
fn same(layout: &Layout, name: &str, ranks: &[&Array<f64>], want: &Array<f64>) -> Result<(), String> {
    let truth = want.wide();
    if name == "y" {
        return ranks.iter().enumerate().try_for_each(|(rank, own)| {
            near(&own.wide(), &truth)
                .map_err(|message| format!("rank {rank}: {message}{}", y_cause(ranks, &truth)))
        });
    }
    let Some(parameter) = name.strip_prefix("grad.") else {
        let sum = (0..truth.len()).map(|i| ranks.iter().map(|own| own.wide()[i]).sum());
        return near(&sum.collect::<Vec<f64>>(), &truth)
            .map_err(|message| format!("{message}, summed over the ranks"));
    };
    let placed = layout.placed(parameter).ok_or("no such parameter")?;
    let row = placed.shared.whole.get(1).copied().unwrap_or(1);
    let parts: Vec<Vec<u8>> = ranks.iter().map(|own| exactly(&own.wide())).collect();
    if placed.shared.cut == Cut::Whole {
        return ranks.iter().enumerate().try_for_each(|(rank, own)| {
            near(&own.wide(), &truth).map_err(|message| {
                format!(
                    "rank {rank}: {message}\nlikely cause: what everyone has is not summed over the ranks"
                )
            })
        });
    }
    let together = placed.shared.together(&parts, 8);
    near(&read(&together), &truth).map_err(|message| {
        format!("{message} in rows of {row}\nlikely cause: what is cut has its gradient where it is, and is summed")
    })
}

fn exactly(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn read(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|eight| f64::from_le_bytes(*eight)).collect()
}

fn near(found: &[f64], expected: &[f64]) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("expected {} numbers, found {}", expected.len(), found.len()));
    }
    let is_far = |(found, expected): (&f64, &f64)| {
        let apart = (found - expected).abs();
        apart.is_nan() || apart > 1e-8 * expected.abs().max(1.0)
    };
    match found.iter().zip(expected).position(is_far) {
        Some(at) => Err(format!("element {at}: expected {}, found {}", expected[at], found[at])),
        None => Ok(()),
    }
}

/// The likely mistake behind a wrong output of a layer.
fn y_cause(ranks: &[&Array<f64>], truth: &[f64]) -> &'static str {
    let first = ranks[0].wide();
    if ranks.iter().any(|own| near(&own.wide(), &first).is_err()) {
        return "\nlikely cause: ranks have different outputs: what follows o_proj and down_proj is not summed";
    }
    if truth.len() == first.len() {
        return "\nlikely cause: what is cut by rows (q, k, v, gate, up) is each rank's own, and is summed";
    }
    ""
}
