//! B.4: sums of gradients in shards, and their norm, on ranks each of which has numbers of its own.

use challenges::fsdp::{FSDP, Fsdp, Gradient, Solution, TP};
use reference::fsdp::{Parameter, Shards};
use reference::graph::interpret::Values;
use reference::graph::ranks::{Mesh, interpret_ranks};
use reference::graph::{Array, Builder, Dtype, Graph, Group};
use reference::llama::Storage;

use super::gather::bytes_on_the_wire;
use super::{Check, Rows};
use crate::compare::describe;
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("sums", |steps, random| sums(steps, [[8, 6], [12, 5]], random)),
    ("padding-is-zeros", |steps, random| sums(steps, [[7, 3], [2, 5]], random)),
    ("replicated", |steps, random| {
        sum_on_every_rank(steps, &Shards::replicated(6, 3), &[2, 3], random)?.map_or(Ok(()), Err)
    }),
    ("in-f32", |steps, random| in_f32(steps, random)),
    ("no-more-than-a-scatter", |steps, _| scattered(steps)),
    ("norm", |steps, random| norms(steps, &[(FSDP, 3)], &[1, 1, 1], random)),
    ("norm-of-copies", |steps, random| norms(steps, &[(FSDP, 2), (TP, 2)], &[1, 2, 2], random)),
    ("norm-over-groups", |steps, random| norms(steps, &[(FSDP, 2), (TP, 3)], &[1, 3], random)),
    ("norm-of-nothing", |steps, random| norms(steps, &[(FSDP, 2)], &[], random)),
];

fn trained([rows, row]: [usize; 2]) -> Parameter {
    Parameter { name: "a".into(), shape: vec![rows, row], storage: Storage::Dense(Dtype::F32) }
}

/// Sums of parameters of some shapes on 1 to 5 ranks.
fn sums(attempt: &dyn Fsdp, shapes: [[usize; 2]; 2], random: &mut Random) -> Result<(), String> {
    for shape in shapes {
        for ranks in 1..=5 {
            let placement = Solution.place(&trained(shape), ranks);
            let wrong = sum_on_every_rank(attempt, &placement.parts[0], &shape, random)?;
            wrong.map_or(Ok(()), |message| Err(format!("{shape:?} on {ranks} ranks: {message}")))?;
        }
    }
    Ok(())
}

fn reduce_graph(attempt: &dyn Fsdp, shards: &Shards, shape: &[usize]) -> Result<Graph, String> {
    let builder = Builder::new("reduce");
    let gradient = builder.tape().input("gradient", Dtype::F32, shape.iter().copied());
    let reduced = attempt.reduce(&gradient, shards, &Group::new(FSDP, shards.ranks()));
    builder.tape().output("shard", &reduced);
    builder.finish().map_err(describe)
}

/// Small whole numbers over 8: sums of them are exact in f32, whatever their order.
fn eighths(count: usize, random: &mut Random) -> Vec<f64> {
    (0..count).map(|_| (random.below(2001) as f64 - 1000.0) / 8.0).collect()
}

/// That each rank has its shard of the sum of everyone's numbers, which are all different; or what it has instead.
pub(in crate::fsdp) fn sum_on_every_rank(
    attempt: &dyn Fsdp,
    shards: &Shards,
    shape: &[usize],
    random: &mut Random,
) -> Result<Option<String>, String> {
    let graph = reduce_graph(attempt, shards, shape)?;
    let (ranks, elements) = (shards.ranks(), shape.iter().product::<usize>());
    let own: Vec<Vec<f64>> = (0..ranks).map(|_| eighths(elements, random)).collect();
    let values = |numbers: &Vec<f64>| {
        Values::from([(
            "gradient".to_owned(),
            Array::<f32>::floats(Dtype::F32, shape, numbers.iter().copied()),
        )])
    };
    let values: Vec<_> = own.iter().map(values).collect();
    let mesh = Mesh::line(FSDP, ranks).map_err(describe)?;
    let all = interpret_ranks(&[&graph], &mesh, &values).map_err(describe)?;
    let sum: Vec<f64> = (0..elements).map(|e| own.iter().map(|numbers| numbers[e]).sum()).collect();
    for (rank, outputs) in all.iter().enumerate() {
        let (range, got) = (shards.ranges[rank].clone(), outputs[0].wide());
        let mut want = sum[range.clone()].to_vec();
        want.resize(shards.len, 0.0);
        if got.len() != want.len() || outputs[0].dtype != Dtype::F32 {
            let (found, ty) = (got.len(), outputs[0].dtype);
            return Ok(Some(format!("rank {rank}: expected {} f32, found {found} {ty:?}", want.len())));
        }
        let Some(at) = got.iter().zip(&want).position(|(got, want)| got != want) else { continue };
        let (found, expected) = (got[at], want[at]);
        let cause = sum_cause(found, &own, (rank, range.start + at), (at >= range.len(), expected));
        return Ok(Some(format!("rank {rank}, element {at}: expected {expected}, found {found}{cause}")));
    }
    Ok(None)
}

/// The likely mistake behind a number that is no sum.
fn sum_cause(
    found: f64,
    own: &[Vec<f64>],
    (rank, element): (usize, usize),
    (is_padding, sum): (bool, f64),
) -> &'static str {
    let ranks = own.len() as f64;
    let of_rank = own[rank].get(element).copied();
    if is_padding {
        "\nlikely cause: the padding is not zeros"
    } else if of_rank == Some(found) {
        "\nlikely cause: the rank's own gradient alone: nobody was asked"
    } else if of_rank.is_some_and(|own| own * ranks == found) {
        "\nlikely cause: the rank's own gradient as often as there are ranks: nobody was asked"
    } else if (found * ranks - sum).abs() < 1e-3 * sum.abs().max(1.0) {
        "\nlikely cause: a mean: the gradient of a step is a sum, the loss was divided already"
    } else {
        ""
    }
}

/// That the sum of many small numbers and a large one is not taken in 16 bits.
fn in_f32(attempt: &dyn Fsdp, random: &mut Random) -> Result<(), String> {
    let graph = reduce_graph(attempt, &Shards { ranges: vec![0..2, 2..4], len: 2 }, &[4])?;
    let narrow = |id| {
        let ty = graph.ty(id);
        matches!(ty.dtype, Dtype::F16 | Dtype::Bf16)
    };
    match graph.ids().find(|id| narrow(*id)) {
        Some(id) => Err(format!("a gradient is in 16 bits on its way:\n{}", graph.line(id))),
        None => sums(attempt, [[4, 1], [8, 2]], random),
    }
}

/// That a sum in shards costs what a reduce-scatter does.
fn scattered(attempt: &dyn Fsdp) -> Result<(), String> {
    let placement = Solution.place(&trained([512, 64]), 4);
    let graph = reduce_graph(attempt, &placement.parts[0], &[512, 64])?;
    let (found, most) = (bytes_on_the_wire(&graph, 4), 4 * 512 * 64 * 4);
    if found <= most {
        return Ok(());
    }
    Err(format!(
        "4 ranks send {found} bytes for a gradient of {} (at most {most}: a reduce-scatter)\nlikely cause: an \
         all-reduce, of which each rank throws away all but its shard, sends twice as much",
        512 * 64 * 4
    ))
}

/// The norm on a mesh: of each gradient a rank has a shard of numbers of its own, which the ranks along the axis of the
/// copies have, too, where there are copies.
fn norms(
    attempt: &dyn Fsdp,
    axes: &[(&str, usize)],
    copies: &[usize],
    random: &mut Random,
) -> Result<(), String> {
    norm_on_every_rank(attempt, axes, copies, random)?.map_or(Ok(()), Err)
}

fn norm_on_every_rank(
    attempt: &dyn Fsdp,
    axes: &[(&str, usize)],
    copies: &[usize],
    random: &mut Random,
) -> Result<Option<String>, String> {
    let builder = Builder::new("norm");
    let tape = builder.tape();
    let name = |i: usize| format!("gradient.{i}");
    let gradient = |(i, copies): (usize, &usize)| Gradient {
        shard: tape.input(&name(i), Dtype::F32, [3 + i]),
        copies: *copies,
    };
    let gradients: Vec<Gradient> = copies.iter().enumerate().map(gradient).collect();
    let groups: Vec<Group> = axes.iter().map(|(axis, size)| Group::new(*axis, *size)).collect();
    let norm = attempt.norm(tape, &gradients, &groups);
    tape.output("norm", &norm);
    let graph = builder.finish().map_err(describe)?;
    let mesh = Mesh::new(axes.iter().copied()).map_err(describe)?;
    let copied = axes.last().map_or(1, |(_, size)| *size);
    let mut values: Vec<Values<f64>> = vec![Values::new(); mesh.ranks()];
    let (mut squares, mut own) = (0.0, vec![0.0; mesh.ranks()]);
    for (i, copies) in copies.iter().enumerate() {
        for first in (0..mesh.ranks()).step_by(if *copies > 1 { copied } else { 1 }) {
            let numbers = eighths(3 + i, random);
            let square: f64 = numbers.iter().map(|x| x * x).sum();
            squares += square;
            for rank in first..first + if *copies > 1 { copied } else { 1 } {
                own[rank] += square;
                values[rank].insert(name(i), Array::floats(Dtype::F32, &[3 + i], numbers.iter().copied()));
            }
        }
    }
    let all = interpret_ranks(&[&graph], &mesh, &values).map_err(describe)?;
    let truth = squares.sqrt();
    for (rank, outputs) in all.iter().enumerate() {
        let found = outputs[0].wide().first().copied().unwrap_or(f64::NAN);
        if outputs[0].wide().len() == 1 && (found - truth).abs() <= 1e-9 * truth.max(1.0) {
            continue;
        }
        let cause = norm_cause(found, truth, own[rank], &own);
        return Ok(Some(format!(
            "mesh {axes:?}, rank {rank}: expected a norm of {truth}, found {found}{cause}"
        )));
    }
    Ok(None)
}

/// The likely mistake behind a number that is not the norm.
fn norm_cause(found: f64, truth: f64, own: f64, all: &[f64]) -> &'static str {
    let is = |value: f64| (found - value).abs() <= 1e-9 * value.max(1.0);
    if is(own.sqrt()) {
        "\nlikely cause: the rank's own shards alone"
    } else if is(all.iter().sum::<f64>().sqrt()) {
        "\nlikely cause: what several ranks have counts several times: `copies` says how often"
    } else if is(truth * truth) {
        "\nlikely cause: no root is taken"
    } else if is(all.iter().map(|square| square.sqrt()).sum()) {
        "\nlikely cause: a sum of norms; what adds up are squares"
    } else {
        ""
    }
}

/// What shows that a rank leaves others out of a sum or a norm, on fresh numbers.
pub(in crate::fsdp) fn left_out(attempt: &dyn Fsdp, random: &mut Random) -> Result<Option<String>, String> {
    for ranks in [2, 3] {
        let placement = Solution.place(&trained([9, 4]), ranks);
        if let Some(message) = sum_on_every_rank(attempt, &placement.parts[0], &[9, 4], random)? {
            return Ok(Some(format!("a sum: {message}")));
        }
        if let Some(message) = norm_on_every_rank(attempt, &[(FSDP, ranks)], &[1, 1], random)? {
            return Ok(Some(format!("a norm: {message}")));
        }
    }
    Ok(None)
}
