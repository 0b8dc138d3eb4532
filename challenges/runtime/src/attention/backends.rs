//! The back ends: ways in which one request is written as a graph.
//!
//! | way | what it is | what it cannot |
//! |---|---|---|
//! | packed | tokens gathered, documents end to end, no padding | programs and prefixes, which speak of places in a row; decoding; dropout |
//! | split | a few queries against pieces of the keys, merged | gradients, dropout, lengths that are not known |
//! | tiled | one operation, tile by tile; what a mask leaves empty costs nothing | dropout: it changes weights, not scores |
//! | expanded | every score in memory, operation by operation | nothing |
//!
//! On a card the tiled one is the flash template, in whose place the plan's step runs.
//!
//! What each shares with the others is asked of an attempt's steps; so a wrong window is wrong on all of them.

use reference::grad;
use reference::graph::programs::{self, ScoreEntry};
use reference::graph::{
    Attention, Builder, Dim, Dtype, Error, Facts, Graph, Id, Tensor, Type, apply, product,
};

use super::Sizes;
use super::back_end::{BackEnd, Part, Way};
use super::contract::Attend;
use super::feature::Feature;
use super::request::Request;

use Feature as F;

const PACKED: BackEnd = BackEnd {
    name: "packed",
    way: Way::Packed,
    has: &[
        F::Causal,
        F::Window,
        F::Documents,
        F::LeftPadding,
        F::RightPadding,
        F::SoftCap,
        F::Alibi,
        F::GroupedHeads,
        F::Lse,
        F::Sinks,
        F::Gradients,
        F::DynamicLengths,
    ],
    of: &[F::Documents, F::LeftPadding, F::RightPadding],
};

const SPLIT: BackEnd = BackEnd {
    name: "split",
    way: Way::Split,
    has: &[
        F::Causal,
        F::Window,
        F::Prefix,
        F::Documents,
        F::LeftPadding,
        F::RightPadding,
        F::SoftCap,
        F::Alibi,
        F::ScoreProgram,
        F::MaskProgram,
        F::GroupedHeads,
        F::ShortQueries,
        F::Decoding,
        F::Lse,
        F::Sinks,
    ],
    of: &[F::Decoding],
};

const TILED: BackEnd = BackEnd {
    name: "tiled",
    way: Way::Tiled,
    has: &[
        F::Causal,
        F::Window,
        F::Prefix,
        F::Documents,
        F::LeftPadding,
        F::RightPadding,
        F::SoftCap,
        F::Alibi,
        F::ScoreProgram,
        F::MaskProgram,
        F::GroupedHeads,
        F::ShortQueries,
        F::Decoding,
        F::Lse,
        F::Sinks,
        F::Gradients,
        F::DynamicLengths,
    ],
    of: &[],
};

const EXPANDED: BackEnd = BackEnd { name: "expanded", way: Way::Expanded, has: &Feature::ALL, of: &[] };

/// The back ends, the fastest for what it is meant for first.
pub const BACK_ENDS: [BackEnd; 4] = [PACKED, SPLIT, TILED, EXPANDED];

/// Those of a card.
pub const ON_A_CARD: [BackEnd; 4] = [PACKED, SPLIT, BackEnd { name: "flash", ..TILED }, EXPANDED];

/// The most pieces into which the keys are split, and the fewest keys of one: enough for a thread each, and each long
/// enough to read memory as fast as it can be read.
pub const PIECES: [usize; 2] = [8, 256];

/// The tensors of a request.
#[derive(Clone)]
pub struct Given {
    /// (batch, heads, queries, depth)
    pub q: Tensor,
    /// (batch, groups, keys, depth)
    pub k: Tensor,
    /// (batch, groups, keys, width)
    pub v: Tensor,
    /// The document of each token, i32 (batch * keys), row after row.
    pub documents: Option<Tensor>,
    /// [`Packing::tokens`](super::Packing::tokens) and [`Packing::documents`](super::Packing::documents), i32.
    pub packed: Option<[Tensor; 2]>,
    /// f32 (heads)
    pub sinks: Option<Tensor>,
    /// The key of the random bits, i32 (2).
    pub key: Option<Tensor>,
}

/// Writes a request in the way of a back end.
///
/// # Errors
/// Where a program makes a mistake, or a tensor is missing that the request needs.
pub fn write(way: Way, request: &Request, steps: &dyn Attend, given: &Given) -> Result<Part, Failure> {
    let part = match way {
        Way::Packed => packed(request, steps, given),
        Way::Split => split(request, steps, given),
        Way::Tiled => tiled(request, steps, given),
        Way::Expanded => expanded(request, steps, given),
    }?;
    if !request.sinks {
        return Ok(part);
    }
    let sinks = given.sinks.as_ref().ok_or_else(|| missing("sinks"))?;
    Ok(Part { output: steps.sink(&part, sinks), ..part })
}

/// Why a request cannot be written.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// A tensor that it needs is missing.
    Missing(&'static str),
    /// The graph makes a mistake.
    Graph(Error),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "expected a tensor `{what}`, found none"),
            Self::Graph(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Graph(error)
    }
}

fn missing(what: &'static str) -> Failure {
    Failure::Missing(what)
}

/// The documents and the keys of a row, as programs read them.
fn extras(request: &Request, given: &Given) -> Result<Vec<Tensor>, Failure> {
    if !request.rules.documents {
        return Ok(Vec::new());
    }
    let documents = given.documents.clone().ok_or_else(|| missing("documents"))?;
    let (tape, keys) = (given.k.tape(), given.k.dim(2));
    let row = match keys.as_fixed() {
        Some(keys) => tape.constant(keys as f64, &Type::scalar(Dtype::I32)),
        None => tape.constant(1.0, &Type::new(Dtype::I32, [keys])).total(), // as many ones, added up
    };
    Ok(vec![documents, row])
}

/// Where the tensors of an operation stand among those of the request.
#[derive(Clone, Copy, Default)]
struct Place {
    /// The first key.
    first: usize,
    /// Heads of one query each that are its queries, one below the other: those that share a head of keys.
    stacked: Option<usize>,
}

impl Place {
    /// An entry among those of the request.
    fn of(self, at: &ScoreEntry, offset: usize) -> ScoreEntry {
        let key = &at.key + self.first as f64;
        let (head, query) = match self.stacked {
            Some(heads) => (&(&at.head * heads as f64) + &at.query, at.query.like(0.0)),
            None => (at.head.clone(), at.query.clone()),
        };
        ScoreEntry { head, query: &query + offset as f64, key, ..at.clone() }
    }
}

/// A request's programs, at a place.
fn attention(
    request: &Request,
    steps: &dyn Attend,
    given: &Given,
    extras: &[Tensor],
    place: Place,
) -> Result<Attention, Failure> {
    let types: Vec<Type> = extras.iter().map(|extra| extra.ty().clone()).collect();
    let heads = given.q.dim(1).as_fixed().unwrap_or(1) as u32;
    let moved = |at: &ScoreEntry| place.of(at, request.offset);
    let scored = |at: &ScoreEntry| {
        let at = moved(at);
        let capped = request.softcap.map_or(at.score.clone(), |cap| programs::softcap(&at.score, cap));
        let sloped = if request.alibi { programs::alibi(&at, &capped, heads) } else { capped };
        let own = |body: &super::Body| body(&ScoreEntry { score: sloped.clone(), ..at.clone() });
        request.score.as_ref().map_or(sloped.clone(), own)
    };
    let seen = |at: &ScoreEntry| {
        let at = moved(at);
        let by_rules = steps.sees(&at, &request.rules);
        request.mask.as_ref().map_or(by_rules.clone(), |body| programs::and(&by_rules, &body(&at)))
    };
    let has_score = request.softcap.is_some() || request.alibi || request.score.is_some();
    let has_mask = request.rules != super::Rules::default() || request.mask.is_some();
    Ok(Attention {
        scale: request.scale,
        score: has_score.then(|| programs::score("score", &types, scored)).transpose()?,
        mask: has_mask.then(|| programs::mask("mask", &types, seen)).transpose()?,
    })
}

/// One operation.
fn tiled(request: &Request, steps: &dyn Attend, given: &Given) -> Result<Part, Failure> {
    let extras = extras(request, given)?;
    let attention = attention(request, steps, given, &extras, Place::default())?;
    let Given { q, k, v, .. } = given;
    let extras: Vec<&Tensor> = extras.iter().collect();
    let output = q.attend(attention.clone(), k, v, &extras);
    Ok(Part { output, lse: q.attend_lse(attention, k, v, &extras) })
}

/// Each piece of the keys by itself, and all of them merged. One query of each head that shares a head of keys is a row
/// of one block, so that the keys are read once for all of them.
fn split(request: &Request, steps: &dyn Attend, given: &Given) -> Result<Part, Failure> {
    let Given { q, k, v, .. } = given;
    let size = |dim: Dim| dim.as_fixed().map(|size| size as usize).ok_or_else(|| missing("a fixed length"));
    let (queries, keys) = (size(q.dim(2))?, size(k.dim(2))?);
    let places = request.offset..request.offset + queries;
    let [most, least] = PIECES;
    let extras = extras(request, given)?;
    let (heads, groups) = (size(q.dim(1))?, size(k.dim(1))?);
    let stacked = (queries == 1 && groups < heads).then_some(heads / groups.max(1));
    let rows = match stacked {
        Some(share) => q.reshape([q.dim(0), k.dim(1), share.into(), q.dim(3)]),
        None => q.clone(),
    };
    let of = |piece: std::ops::Range<usize>| {
        let [k, v] = [k, v].map(|x| x.slice(2, piece.start, piece.end));
        let attention = attention(request, steps, given, &extras, Place { first: piece.start, stacked })?;
        let extras: Vec<&Tensor> = extras.iter().collect();
        let output = rows.attend(attention.clone(), &k, &v, &extras);
        let lse = rows.attend_lse(attention, &k, &v, &extras);
        let like = [q.dim(0), q.dim(1), q.dim(2), v.dim(3)];
        Ok(Part { output: output.reshape(&like), lse: lse.reshape(&like[..3]) })
    };
    let pieces = steps.pieces(places, keys, &request.rules, most, least);
    let parts = pieces.into_iter().map(of).collect::<Result<Vec<Part>, Failure>>()?;
    if parts.is_empty() {
        return Ok(nothing(q, v));
    }
    Ok(if let [one] = &parts[..] { one.clone() } else { steps.merge(&parts) })
}

/// What queries have that see nothing.
fn nothing(q: &Tensor, v: &Tensor) -> Part {
    let [batch, heads, queries, _] = [0, 1, 2, 3].map(|dim| q.dim(dim));
    let lse = Type::new(Dtype::F32, [&batch, &heads, &queries]);
    let output = Type::new(q.ty().dtype, [batch, heads, queries, v.dim(3)]);
    Part { output: q.tape().constant(0.0, &output), lse: q.tape().constant(f64::NEG_INFINITY, &lse) }
}

/// The tokens that are not padding, end to end, as one sequence of documents; and their results back in their places.
fn packed(request: &Request, steps: &dyn Attend, given: &Given) -> Result<Part, Failure> {
    let [tokens, documents] = given.packed.as_ref().ok_or_else(|| missing("packed"))?;
    let all = given.documents.as_ref().ok_or_else(|| missing("documents"))?;
    let [q, k, v] = [&given.q, &given.k, &given.v].map(|x| end_to_end(x, tokens));
    let inner = Given { q, k, v, documents: Some(documents.clone()), packed: None, ..given.clone() };
    let part = tiled(request, steps, &inner)?;
    let back = |x: &Tensor, like: &[Dim]| {
        let [batch, heads, length, width] = [0, 1, 2, 3].map(|dim| like[dim].clone());
        let rows =
            x.transpose(&[0, 2, 1, 3]).reshape([tokens.dim(0), product(&[heads.clone(), width.clone()])]);
        let rows = rows.scatter_add(tokens, product(&[batch.clone(), length.clone()]));
        rows.reshape([batch, length, heads, width]).transpose(&[0, 2, 1, 3])
    };
    let [batch, heads, length, _] = [0, 1, 2, 3].map(|dim| given.q.dim(dim));
    let like = [batch.clone(), heads.clone(), length.clone(), given.v.dim(3)];
    let output = back(&part.output, &like);
    let column = [batch.clone(), heads.clone(), length.clone(), Dim::fixed(1)];
    let lse = part.lse.reshape([&Dim::fixed(1), &heads, &tokens.dim(0), &Dim::fixed(1)]);
    let lse = back(&lse, &column).reshape([&batch, &heads, &length]);
    let real = all.like(0.0).less(all).reshape([&batch, &Dim::fixed(1), &length]).spread(lse.shape());
    Ok(Part { output, lse: real.select(&lse, &lse.like(f64::NEG_INFINITY)) })
}

/// (batch, heads, length, width) -> (1, heads, tokens, width)
fn end_to_end(x: &Tensor, tokens: &Tensor) -> Tensor {
    let [batch, heads, length, width] = [0, 1, 2, 3].map(|dim| x.dim(dim));
    let rows = x
        .transpose(&[0, 2, 1, 3])
        .reshape([product(&[batch, length]), product(&[heads.clone(), width.clone()])])
        .gather(tokens);
    rows.reshape([Dim::fixed(1), tokens.dim(0), heads, width]).transpose(&[0, 2, 1, 3])
}

/// Every score in memory, operation by operation.
fn expanded(request: &Request, steps: &dyn Attend, given: &Given) -> Result<Part, Failure> {
    let Given { q, k, v, .. } = given;
    let extras = extras(request, given)?;
    let attention = attention(request, steps, given, &extras, Place::default())?;
    let [k, v] = [k, v].map(|x| repeat_heads(&x.cast(Dtype::F32), &q.dim(1)));
    let scores = &q.cast(Dtype::F32).matmul(&k.t()) * request.scale; // (batch, heads, queries, keys)
    let scores = attention.score.as_ref().map_or(scores.clone(), |score| apply(score, &scores, &extras));
    let hidden = scores.like(f64::NEG_INFINITY);
    let seen = |mask: &Graph| apply(mask, &scores, &extras).select(&scores, &hidden);
    let scores = attention.mask.as_ref().map_or(scores.clone(), seen);
    let largest = scores.reduce_max(3).detach();
    let blind = largest.equal(&largest.like(f64::NEG_INFINITY));
    let shift = blind.select(&largest.like(0.0), &largest);
    let weights = (&scores - &shift).exp();
    let sum = weights.sum(3);
    let counted = blind.select(&sum.like(1.0), &sum);
    let p = &weights / &counted;
    let p = match (request.keep, &given.key) {
        (None, _) => p,
        (Some(keep), Some(key)) => p.dropout(key, keep, 0),
        (Some(_), None) => return Err(missing("key")),
    };
    let lse = blind.select(&counted.like(f64::NEG_INFINITY), &(&counted.log() + &shift));
    Ok(Part { output: p.matmul(&v).cast(q.ty().dtype), lse: lse.reshape(&lse.shape()[..3]) })
}

/// Every key head once for each query head that reads it: (batch, groups, keys, width) -> (batch, heads, keys, width).
fn repeat_heads(x: &Tensor, heads: &Dim) -> Tensor {
    let [batch, groups, keys, width] = [0, 1, 2, 3].map(|dim| x.dim(dim));
    let times = heads.divided_by(&groups).unwrap_or_else(|| Dim::fixed(1));
    let apart = x.reshape([&batch, &groups, &Dim::fixed(1), &keys, &width]);
    let repeated = apart.spread(&[batch.clone(), groups, times, keys.clone(), width.clone()]);
    repeated.reshape([&batch, heads, &keys, &width])
}

/// Shapes of a request's tensors; a length may be a symbol.
#[derive(Clone, Debug)]
pub struct Shape {
    /// All sizes but those of `lengths`.
    pub sizes: Sizes,
    /// Queries, keys and packed tokens, if they are not those of `sizes`.
    pub lengths: [Dim; 3],
    /// The type of q, k, v, the output and the gradients.
    pub element: Dtype,
    /// The largest length that a symbol may stand for.
    pub longest: usize,
}

impl Shape {
    /// With lengths that are known.
    pub fn of(sizes: Sizes, tokens: usize, element: Dtype) -> Self {
        let longest = sizes.queries.max(sizes.keys).max(tokens);
        Self { sizes, lengths: [sizes.queries, sizes.keys, tokens].map(Dim::from), element, longest }
    }
}

/// A request as a graph: inputs `q`, `k`, `v`, and as far as they are needed `documents`, `tokens`, `packed`, `sinks`,
/// `key`, and `grad`, the output's gradient; outputs `output`, `lse` and the gradients `grad_q`, `grad_k`, `grad_v`, if
/// they are wanted.
///
/// # Errors
/// As [`write`].
pub fn graph(way: Way, request: &Request, steps: &dyn Attend, shape: &Shape) -> Result<Graph, Failure> {
    let builder = Builder::new("attention");
    let tape = builder.tape();
    for symbol in shape.lengths.iter().flat_map(Dim::symbols) {
        tape.symbol(symbol, Facts::range(1, shape.longest as i64));
    }
    let Sizes { batch, heads, groups, depth, width, .. } = shape.sizes;
    let [queries, keys, tokens] = &shape.lengths;
    let input = |name: &str, heads: usize, length: &Dim, width: usize| {
        tape.input(name, shape.element, [&Dim::from(batch), &Dim::from(heads), length, &Dim::from(width)])
    };
    let features = request.features();
    let wants = |feature| features.contains(&feature);
    let documents = || tape.input("documents", Dtype::I32, [product(&[Dim::from(batch), keys.clone()])]);
    let packed = || ["tokens", "packed"].map(|name| tape.input(name, Dtype::I32, [tokens.clone()]));
    let given = Given {
        q: input("q", heads, queries, depth),
        k: input("k", groups, keys, depth),
        v: input("v", groups, keys, width),
        documents: request.rules.documents.then(documents),
        packed: (way == Way::Packed).then(packed),
        sinks: request.sinks.then(|| tape.input("sinks", Dtype::F32, [heads])),
        key: request.keep.is_some().then(|| tape.input("key", Dtype::I32, [2_usize])),
    };
    let grad = wants(Feature::Gradients).then(|| input("grad", heads, queries, width));
    let part = write(way, request, steps, &given)?;
    tape.output("output", &part.output);
    if wants(Feature::Lse) {
        tape.output("lse", &part.lse);
    }
    drop((given, part));
    let has_gradients = grad.is_some();
    drop(grad);
    let mut graph = builder.finish()?;
    if has_gradients {
        differentiate(&mut graph)?;
    }
    Ok(graph)
}

/// Adds the gradients of the output.
fn differentiate(graph: &mut Graph) -> Result<(), Error> {
    let output = graph.outputs()[0].1;
    let wrt: Vec<Id> = ["q", "k", "v"].iter().filter_map(|name| graph.find_input(name)).collect();
    let Some(seed) = graph.find_input("grad") else { return Ok(()) };
    let gradients = grad::pull_back(graph, output, seed, &wrt)?;
    for (name, id) in ["grad_q", "grad_k", "grad_v"].into_iter().zip(gradients) {
        graph.output(name, id);
    }
    Ok(())
}
