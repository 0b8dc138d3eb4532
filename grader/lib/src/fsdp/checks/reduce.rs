//! B.4: sums of gradients in shards, and their norm, on ranks each of which has numbers of its own.

use challenges::fsdp::{FSDP, Fsdp, Gradient, Solution, TP};
use reference::fsdp::{Parameter, Shards};
use reference::graph::interpret::Values;
use reference::graph::ranks::{Mesh, interpret_ranks};
use reference::graph::{Array, Builder, Dim, Dtype, Graph, Group, Type};
use reference::llama::Storage;

use super::gather::{MOST_RANKS, bytes_on_the_wire};
use super::{Check, Rows, around_a_step};
use crate::compare::describe;
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("sums", |steps, random| sums(steps, [[8, 6], [12, 5]], random)),
    ("padding-is-zeros", |steps, random| sums(steps, [[7, 3], [2, 5]], random)),
    ("replicated", |steps, random| {
        sum_on_every_rank(steps, &Shards::replicated(6, 3), &[2, 3], random)?.map_or(Ok(()), Err)
    }),
    ("any-shape-on-any-ranks", |steps, random| any_shape(steps, random)),
    ("in-f32", |steps, random| in_f32(steps, random)),
    ("no-more-than-a-scatter", |steps, _| scattered(steps, [512, 64], 4)),
    ("norm", |steps, random| norms(steps, &[(FSDP, 3)], &[1, 1, 1], random)),
    ("norm-of-copies", |steps, random| norms(steps, &[(FSDP, 2), (TP, 2)], &[1, 2, 2], random)),
    ("norm-over-groups", |steps, random| norms(steps, &[(FSDP, 2), (TP, 3)], &[1, 3], random)),
    ("norm-of-nothing", |steps, random| norms(steps, &[(FSDP, 2)], &[], random)),
    ("norm-on-any-mesh", |steps, random| any_mesh(steps, random)),
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

/// Gradients that are drawn for each number of ranks, and their largest dimensions.
const DRAWN: usize = 4;
const LARGEST: [usize; 2] = [60, 40];

/// That gradients of any shape are summed on any number of ranks, and cost what a reduce-scatter does.
fn any_shape(attempt: &dyn Fsdp, random: &mut Random) -> Result<(), String> {
    for ranks in 1..=MOST_RANKS {
        for _ in 0..DRAWN {
            let shape = LARGEST.map(|most| 1 + random.below(most));
            let placement = Solution.place(&trained(shape), ranks);
            let of = |message: String| format!("{shape:?} on {ranks} ranks: {message}");
            sum_on_every_rank(attempt, &placement.parts[0], &shape, random)
                .and_then(|wrong| wrong.map_or(Ok(()), Err))
                .and_then(|()| scattered(attempt, shape, ranks))
                .map_err(of)?;
        }
    }
    Ok(())
}

fn reduce_graph(attempt: &dyn Fsdp, shards: &Shards, shape: &[usize]) -> Result<Graph, String> {
    let builder = Builder::new("reduce");
    let gradient = builder.tape().input("gradient", Dtype::F32, shape.iter().copied());
    let reduced = attempt.reduce(&gradient, shards, &Group::new(FSDP, shards.ranks()));
    builder.tape().output("shard", &reduced);
    let expected = Type::new(Dtype::F32, [shards.len]);
    around_a_step(builder, "shard", &expected, |found| shard_cause(found, shards, shape))
        .map_err(|message| format!("a shard of `shards.len` elements: {message}"))
}

/// Why a shard may have another type.
fn shard_cause(found: &Type, shards: &Shards, shape: &[usize]) -> String {
    let elements = found.shape.iter().filter_map(Dim::as_fixed).product::<i64>() as usize;
    let whole: usize = shape.iter().product();
    let cause = if elements == shards.len && found.shape.len() != 1 {
        "a shard has one dimension, (`shards.len`)"
    } else if elements == shards.len {
        "sums are taken and handed out in f32"
    } else if elements == whole {
        "the sum is not handed out: everyone has all of it"
    } else if elements * shards.ranks() <= whole {
        "the gradient was not padded to `len` times the ranks"
    } else {
        return String::new();
    };
    format!("\nlikely cause: {cause}")
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
        let Some(at) = got.iter().zip(&want).position(|(got, want)| is_other(*got, *want)) else { continue };
        let (found, expected) = (got[at], want[at]);
        let cause = sum_cause(found, &own, (rank, range.start + at), (at >= range.len(), expected));
        return Ok(Some(format!("rank {rank}, element {at}: expected {expected}, found {found}{cause}")));
    }
    Ok(None)
}

/// Whether two sums of small whole numbers, which are exact, differ.
fn is_other(a: f64, b: f64) -> bool {
    a.partial_cmp(&b) != Some(std::cmp::Ordering::Equal) // a NaN is no sum
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
    } else if of_rank.is_some_and(|own| !is_other(own * ranks, found)) {
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

/// That a sum in shards costs what a reduce-scatter does. On one rank there is nothing to hand out.
fn scattered(attempt: &dyn Fsdp, shape: [usize; 2], ranks: usize) -> Result<(), String> {
    let placement = Solution.place(&trained(shape), ranks);
    let shards = &placement.parts[0];
    let graph = reduce_graph(attempt, shards, &shape)?;
    let (found, most) = (bytes_on_the_wire(&graph, ranks), ranks * ranks * shards.len * Dtype::F32.bytes());
    if found <= most || shards.is_replicated() {
        return Ok(());
    }
    Err(format!(
        "{ranks} ranks send {found} bytes for a gradient of {} (at most {most}: a reduce-scatter)\nlikely cause: an \
         all-reduce, of which each rank throws away all but its shard, sends twice as much",
        shape[0] * shape[1] * Dtype::F32.bytes()
    ))
}

/// Meshes that are drawn, and the most gradients on each.
const MESHES: usize = 24;
const GRADIENTS: usize = 30;

/// That the norm is right on meshes of up to 9 shards and 8 copies, for any gradients.
fn any_mesh(attempt: &dyn Fsdp, random: &mut Random) -> Result<(), String> {
    for mesh in 0..MESHES {
        let copied = 1 + mesh % 8;
        let ranks = 1 + random.below((2 * MOST_RANKS / copied).clamp(1, MOST_RANKS));
        let of_one = |random: &mut Random| if random.below(2) == 0 { 1 } else { copied };
        let copies: Vec<usize> = (0..random.below(GRADIENTS)).map(|_| of_one(random)).collect();
        norms(attempt, &[(FSDP, ranks), (TP, copied)], &copies, random)?;
    }
    Ok(())
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
    let mesh = Mesh::new(axes.iter().copied()).map_err(describe)?;
    let lengths: Vec<usize> = copies.iter().map(|_| 1 + random.below(9)).collect();
    let graph = norm_graph(attempt, axes, copies, &lengths)?;
    let copied = axes.last().map_or(1, |(_, size)| *size);
    let mut values: Vec<Values<f64>> = vec![Values::new(); mesh.ranks()];
    let mut squares = Squares { whole: 0.0, own: vec![0.0; mesh.ranks()], shared: vec![0.0; mesh.ranks()] };
    for (i, (copies, length)) in copies.iter().zip(&lengths).enumerate() {
        let alike = if *copies > 1 { copied } else { 1 };
        for first in (0..mesh.ranks()).step_by(alike) {
            let numbers = eighths(*length, random);
            let square: f64 = numbers.iter().map(|x| x * x).sum();
            squares.whole += square;
            for (rank, own) in values.iter_mut().enumerate().skip(first).take(alike) {
                squares.own[rank] += square;
                squares.shared[rank] += square / alike as f64;
                own.insert(shard_name(i), Array::floats(Dtype::F32, &[*length], numbers.iter().copied()));
            }
        }
    }
    let all = interpret_ranks(&[&graph], &mesh, &values).map_err(describe)?;
    let truth = squares.whole.sqrt();
    for (rank, outputs) in all.iter().enumerate() {
        let found = outputs[0].wide().first().copied().unwrap_or(f64::NAN);
        if is_near(found, truth) {
            continue;
        }
        let cause = squares.cause(found, rank, &mesh);
        return Ok(Some(format!(
            "mesh {axes:?}, rank {rank}: expected a norm of {truth}, found {found}{cause}"
        )));
    }
    Ok(None)
}

fn shard_name(gradient: usize) -> String {
    format!("gradient.{gradient}")
}

/// The norm of gradients of which a rank has shards of these lengths.
fn norm_graph(
    attempt: &dyn Fsdp,
    axes: &[(&str, usize)],
    copies: &[usize],
    lengths: &[usize],
) -> Result<Graph, String> {
    let builder = Builder::new("norm");
    let tape = builder.tape();
    let gradient = |(i, (copies, length)): (usize, (&usize, &usize))| Gradient {
        shard: tape.input(&shard_name(i), Dtype::F32, [*length]),
        copies: *copies,
    };
    let gradients: Vec<Gradient> = copies.iter().zip(lengths).enumerate().map(gradient).collect();
    let groups: Vec<Group> = axes.iter().map(|(axis, size)| Group::new(*axis, *size)).collect();
    let norm = attempt.norm(tape, &gradients, &groups);
    tape.output("norm", &norm);
    around_a_step(builder, "norm", &Type::scalar(Dtype::F32), |_| {
        "\nlikely cause: a norm is one number, ()".into()
    })
}

fn is_near(found: f64, value: f64) -> bool {
    (found - value).abs() <= 1e-9 * value.max(1.0)
}

/// Sums of squares: of everything once; of each rank's shards; of these, what several ranks have counted in part.
struct Squares {
    whole: f64,
    own: Vec<f64>,
    shared: Vec<f64>,
}

impl Squares {
    /// The likely mistake behind a number that is not the norm.
    fn cause(&self, found: f64, rank: usize, mesh: &Mesh) -> &'static str {
        let sum = |ranks: &[usize]| ranks.iter().map(|rank| self.shared[*rank]).sum::<f64>();
        let roots = |all: &[f64]| all.iter().map(|square| square.sqrt()).sum::<f64>();
        let alone =
            |axis: &str| mesh.group(rank, axis).is_some_and(|group| is_near(found, sum(&group).sqrt()));
        if [self.own[rank], self.shared[rank]].iter().any(|square| is_near(found, square.sqrt())) {
            "\nlikely cause: the rank's own shards alone"
        } else if mesh.axes().any(alone) {
            "\nlikely cause: a group is left out: the squares are summed over each of `groups`, one after the other"
        } else if is_near(found, self.own.iter().sum::<f64>().sqrt()) {
            "\nlikely cause: what several ranks have counts several times: `copies` says how often"
        } else if is_near(found, self.whole) {
            "\nlikely cause: no root is taken"
        } else if [&self.own, &self.shared].iter().any(|all| is_near(found, roots(all))) {
            "\nlikely cause: the root is taken before the sum: a sum of norms; what adds up are squares"
        } else {
            ""
        }
    }
}

/// What shows that a rank leaves others out of a sum or a norm, on fresh numbers.
pub(in crate::fsdp) fn left_out(attempt: &dyn Fsdp, random: &mut Random) -> Result<Option<String>, String> {
    for ranks in [2, 3 + random.below(3)] {
        let shape = [ranks + 1 + random.below(12), 2 + random.below(6)];
        let placement = Solution.place(&trained(shape), ranks);
        if let Some(message) = sum_on_every_rank(attempt, &placement.parts[0], &shape, random)? {
            return Ok(Some(format!("a sum: {message}")));
        }
        let copies = vec![1; 1 + random.below(4)];
        if let Some(message) = norm_on_every_rank(attempt, &[(FSDP, ranks)], &copies, random)? {
            return Ok(Some(format!("a norm: {message}")));
        }
    }
    Ok(None)
}
