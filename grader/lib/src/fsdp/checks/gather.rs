//! B.2: whole parts from everyone's shards.

use challenges::fsdp::{FSDP, Fsdp, Solution};
use reference::fsdp::{Parameter, Shards};
use reference::graph::interpret::Values;
use reference::graph::ranks::{Mesh, interpret_ranks};
use reference::graph::{Array, Builder, Collective, Dim, Dtype, Graph, Group, Op, Type};
use reference::llama::Storage;
use reference::nf4::NESTED_BLOCK;

use super::{Check, Rows, around_a_step};
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
        sent(steps, &shards, Dtype::F32)
    }),
    ("any-part-on-any-ranks", |steps, random| any_part(steps, random)),
    ("four-bits-on-the-wire", |steps, _| four_bits(steps)),
];

/// The most ranks that a part is drawn for.
pub(super) const MOST_RANKS: usize = 9;
/// Parts that are drawn for each number of them.
const DRAWN: usize = 4;

fn packed(shape: [usize; 2]) -> Parameter {
    let storage = Storage::Nf4 { dtype: Dtype::Bf16, block_size: 64, nested: Some(NESTED_BLOCK) };
    Parameter { name: "w".into(), shape: shape.to_vec(), storage }
}

fn trained(shape: [usize; 2]) -> Parameter {
    Parameter { name: "a".into(), shape: shape.to_vec(), storage: Storage::Dense(Dtype::F32) }
}

/// The graph that gathers a part on each of the ranks.
fn gather_graph(attempt: &dyn Fsdp, shards: &Shards, dtype: Dtype) -> Result<Graph, String> {
    let builder = Builder::new("gather");
    let shard = builder.tape().input("shard", dtype, [shards.len]);
    let whole = attempt.gather(&shard, shards, &Group::new(FSDP, shards.ranks()));
    builder.tape().output("whole", &whole);
    let expected = Type::new(dtype, [shards.ranges.iter().map(|range| range.end).max().unwrap_or(0)]);
    around_a_step(builder, "whole", &expected, |found| size_cause(found, shards))
}

/// Bytes that all ranks together put on the wire in a graph, the own shard of each among them.
pub(super) fn bytes_on_the_wire(graph: &Graph, ranks: usize) -> usize {
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

/// That parts of any size, quantised or trained, are gathered on any number of ranks, each shard once and as it is.
fn any_part(attempt: &dyn Fsdp, random: &mut Random) -> Result<(), String> {
    for ranks in 1..=MOST_RANKS {
        for _ in 0..DRAWN {
            drawn_part(attempt, ranks, random).map_or(Ok(()), Err)?;
        }
    }
    Ok(())
}

/// What is wrong with the gather of a drawn parameter's parts, if anything is.
pub(in crate::fsdp) fn drawn_part(attempt: &dyn Fsdp, ranks: usize, random: &mut Random) -> Option<String> {
    let sizes = [1 + random.below(120), 32 * (1 + random.below(8))];
    let parameter = if random.below(3) == 0 { trained(sizes) } else { packed(sizes) };
    let placement = Solution.place(&parameter, ranks);
    for (part, shards) in parameter.parts().iter().zip(&placement.parts) {
        let wrong =
            gathers(attempt, shards, part.dtype, random).and_then(|()| sent(attempt, shards, part.dtype));
        if let Err(message) = wrong {
            let shape = &parameter.shape;
            return Some(format!("`{}`, {shape:?}, on {ranks} ranks: {message}", part.name));
        }
    }
    None
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
        let got = outputs[0].to_memory();
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
fn size_cause(found: &Type, shards: &Shards) -> String {
    let elements = found.shape.iter().filter_map(Dim::as_fixed).product::<i64>() as usize;
    let cause = if found.shape.len() != 1 {
        "a whole part has one dimension, (elements)"
    } else if elements == shards.len {
        "nothing is gathered"
    } else if elements == shards.len * shards.ranks() {
        "padding, or what two ranks hold, is still there"
    } else {
        return String::new();
    };
    format!("\nlikely cause: {cause}")
}

/// That each rank sends its shard once, as it is stored; what everyone holds, nobody sends.
fn sent(attempt: &dyn Fsdp, shards: &Shards, dtype: Dtype) -> Result<(), String> {
    let most = if shards.is_replicated() { 0 } else { shards.ranks() * shards.len * dtype.bytes() };
    let found = bytes_on_the_wire(&gather_graph(attempt, shards, dtype)?, shards.ranks());
    if found <= most {
        return Ok(());
    }
    let cause = if most == 0 {
        "a part that everyone holds (`shards.is_replicated()`) was gathered"
    } else {
        "a part is cast before it is gathered, or gathered twice"
    };
    Err(format!("{} ranks send {found} bytes (at most {most})\nlikely cause: {cause}", shards.ranks()))
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
