//! B.2: whole parts from everyone's shards.

use challenges::fsdp::{FSDP, Fsdp, Solution};
use reference::fsdp::{Parameter, Shards};
use reference::graph::interpret::Values;
use reference::graph::ranks::{Mesh, interpret_ranks};
use reference::graph::{Array, Builder, Collective, Dim, Dtype, Graph, Group, Op};
use reference::llama::Storage;
use reference::nf4::NESTED_BLOCK;

use super::{Check, Rows};
use crate::compare::describe;
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("bytes", |steps, random| every_part(steps, &packed([192, 96]), Dtype::U8, random)),
    ("numbers", |steps, random| every_part(steps, &trained([12, 7]), Dtype::F32, random)),
    ("padding", |steps, random| {
        every_part(steps, &trained([7, 3]), Dtype::F32, random)?;
        every_part(steps, &trained([2, 5]), Dtype::F32, random)
    }),
    ("overlaps", |steps, random| {
        every_part(steps, &packed([24, 100]), Dtype::U8, random)?;
        every_part(steps, &packed([700, 64]), Dtype::F32, random)
    }),
    ("nothing-to-gather", |steps, random| {
        let shards = Shards::replicated(16, 3);
        gathers(steps, &shards, Dtype::F32, random)?;
        sent(steps, &shards, Dtype::F32, 0)
    }),
    ("four-bits-on-the-wire", |steps, _| four_bits(steps)),
];

fn packed(shape: [usize; 2]) -> Parameter {
    let storage = Storage::Nf4 { dtype: Dtype::Bf16, block_size: 64, nested: Some(NESTED_BLOCK) };
    Parameter { name: "w".into(), shape: shape.to_vec(), storage }
}

fn trained(shape: [usize; 2]) -> Parameter {
    Parameter { name: "a".into(), shape: shape.to_vec(), storage: Storage::Dense(Dtype::F32) }
}

/// The graph that gathers a part on each of the ranks.
pub(in crate::fsdp) fn gather_graph(
    attempt: &dyn Fsdp,
    shards: &Shards,
    dtype: Dtype,
) -> Result<Graph, String> {
    let builder = Builder::new("gather");
    let shard = builder.tape().input("shard", dtype, [shards.len]);
    let whole = attempt.gather(&shard, shards, &Group::new(FSDP, shards.ranks()));
    builder.tape().output("whole", &whole);
    builder.finish().map_err(describe)
}

/// Bytes that all ranks together put on the wire in a graph, the own shard of each among them.
pub(in crate::fsdp) fn bytes_on_the_wire(graph: &Graph, ranks: usize) -> usize {
    let of = |id| {
        let node = graph.node(id);
        let Op::Collective { kind, .. } = &node.op else { return 0 };
        let ty = graph.ty(node.inputs[0]);
        let elements: i64 = ty.shape.iter().filter_map(Dim::as_fixed).product();
        let times = if *kind == Collective::AllReduce { 2 } else { 1 }; // a scatter and a gather
        times * elements as usize * ty.dtype.bytes() * ranks
    };
    graph.ids().map(of).sum()
}

/// That every part of a type is gathered on 1 to 5 ranks.
fn every_part(
    attempt: &dyn Fsdp,
    parameter: &Parameter,
    dtype: Dtype,
    random: &mut Random,
) -> Result<(), String> {
    for ranks in 1..=5 {
        let placement = Solution.place(parameter, ranks);
        let parts = parameter.parts().into_iter().zip(&placement.parts);
        for (part, shards) in parts.filter(|(part, _)| part.dtype == dtype) {
            let of = |message: String| {
                format!("`{}`, {:?}, on {ranks} ranks: {message}", part.name, parameter.shape)
            };
            gathers(attempt, shards, dtype, random).map_err(of)?;
        }
    }
    Ok(())
}

/// That every rank has the whole, to the bit, whatever its bytes mean.
fn gathers(attempt: &dyn Fsdp, shards: &Shards, dtype: Dtype, random: &mut Random) -> Result<(), String> {
    let graph = gather_graph(attempt, shards, dtype)?;
    let (ranks, element) = (shards.ranks(), dtype.bytes());
    let elements = shards.ranges.iter().map(|range| range.end).max().unwrap_or(0);
    let bytes = random.bytes(elements * element);
    let values = |rank: usize| {
        let mut shard = shards.cut(&bytes, element, rank);
        let held = shards.ranges[rank].len() * element;
        shard[held..].fill(0xff); // padding may be anything
        Values::from([("shard".to_owned(), Array::<f32>::from_memory(dtype, &[shards.len], &shard))])
    };
    let values: Vec<_> = (0..ranks).map(values).collect();
    let mesh = Mesh::line(FSDP, ranks).map_err(describe)?;
    let all = interpret_ranks(&[&graph], &mesh, &values).map_err(describe)?;
    all.iter().enumerate().try_for_each(|(rank, outputs)| {
        let got = &outputs[0];
        let found: usize = got.shape.iter().product();
        if found != elements || got.dtype != dtype {
            return Err(format!(
                "rank {rank}: expected {elements} elements of {dtype:?}, found {found} of {:?}{}",
                got.dtype,
                size_cause(found, shards)
            ));
        }
        let got = got.to_memory();
        let Some(at) = got.iter().zip(&bytes).position(|(got, want)| got != want) else { return Ok(()) };
        let cause = if shards.pieces().len() > 1 {
            "\nlikely cause: shards overlap, or padding lies between them: `pieces` says what to take"
        } else {
            ""
        };
        Err(format!("rank {rank}: byte {at} is {:#04x}, {:#04x} in the whole{cause}", got[at], bytes[at]))
    })
}

/// Why there may be so many elements.
fn size_cause(found: usize, shards: &Shards) -> &'static str {
    if found == shards.len {
        "\nlikely cause: nothing is gathered"
    } else if found == shards.len * shards.ranks() {
        "\nlikely cause: padding, or what two ranks hold, is still there"
    } else {
        ""
    }
}

/// That ranks send so many bytes and no more.
fn sent(attempt: &dyn Fsdp, shards: &Shards, dtype: Dtype, expected: usize) -> Result<(), String> {
    let found = bytes_on_the_wire(&gather_graph(attempt, shards, dtype)?, shards.ranks());
    if found <= expected {
        return Ok(());
    }
    Err(format!("{} ranks send {found} bytes (at most {expected})", shards.ranks()))
}

/// That a large weight travels as it is stored: half a byte an element, and its scales.
fn four_bits(attempt: &dyn Fsdp) -> Result<(), String> {
    let parameter = packed([4096, 4096]);
    let elements = parameter.elements();
    let formula = elements / 2 + elements / 64 + 4 * elements / (64 * NESTED_BLOCK);
    for ranks in [2, 4] {
        let placement = Solution.place(&parameter, ranks);
        let mut found = 0;
        for (part, shards) in parameter.parts().iter().zip(&placement.parts) {
            found += bytes_on_the_wire(&gather_graph(attempt, shards, part.dtype)?, ranks);
        }
        let apart = (found as f64 / formula as f64 - 1.0).abs();
        if apart > 0.01 {
            return Err(format!(
                "4096 x 4096 on {ranks} ranks: {found} bytes are gathered, {:.2} times those of the 4-bit formula, \
                 {formula} (limit 1 %)\nlikely cause: parts are cast before they are gathered, or gathered twice",
                found as f64 / formula as f64
            ));
        }
    }
    Ok(())
}
