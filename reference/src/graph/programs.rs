//! The usual programs of attention, in parts that go together: masks, and functions from a score to a score.
//!
//! [`mask`] and [`score`] make a program of a function of a [`ScoreEntry`], the one score that the program is about:
//!
//! ```
//! use reference::graph::Attention;
//! use reference::graph::programs::{and, causal, mask, score, sliding_window, softcap};
//!
//! let attention = Attention {
//!     scale: 0.125,
//!     score: Some(score("capped", &[], |at| softcap(&at.score, 30.0))?),
//!     mask: Some(mask("local", &[], |at| and(&causal(at), &sliding_window(at, 4096)))?),
//! };
//! # assert!(attention.mask.is_some());
//! # Ok::<(), reference::graph::Error>(())
//! ```
//!
//! Reading: Dong et al., "Flex Attention" (2024), for masks and scores as functions of a place.

use std::f64::consts::LN_2;

use super::{Attention, Builder, Dtype, Error, Graph, Tensor, Type};
use crate::oracles::MASKS;

/// One entry of the matrix of scores. All but the extras have no dimensions.
#[derive(Clone)]
pub struct ScoreEntry {
    /// The score, f32.
    pub score: Tensor,
    /// The number of the sequence in the batch, i32.
    pub batch: Tensor,
    /// The number of the query's head, i32.
    pub head: Tensor,
    /// The query's number, i32.
    pub query: Tensor,
    /// The key's number, i32.
    pub key: Tensor,
    /// What else the attention is given, each with the type that it has outside.
    pub extras: Vec<Tensor>,
}

/// The former name of [`ScoreEntry`].
#[doc(hidden)]
#[deprecated(note = "renamed to `ScoreEntry`")]
pub type Place = ScoreEntry;

impl ScoreEntry {
    /// The same place where the first query stands at `offset`, as after a cache of that many keys.
    #[must_use]
    pub fn with_offset(&self, offset: i32) -> Self {
        Self { query: &self.query + f64::from(offset), ..self.clone() }
    }

    /// key - query, i32.
    pub fn distance(&self) -> Tensor {
        &self.key - &self.query
    }
}

/// A score program: `body` gives an f32 without dimensions. `extras` are the types of what else the attention is given.
///
/// Fails where the body makes a mistake; the error names its line.
pub fn score(name: &str, extras: &[Type], body: impl FnOnce(&ScoreEntry) -> Tensor) -> Result<Graph, Error> {
    program(name, "score", extras, body)
}

/// A mask: `body` gives a u8 without dimensions, 0 where the query may not see the key. `extras` are the types of what
/// else the attention is given.
///
/// Fails where the body makes a mistake; the error names its line.
pub fn mask(name: &str, extras: &[Type], body: impl FnOnce(&ScoreEntry) -> Tensor) -> Result<Graph, Error> {
    program(name, "mask", extras, body)
}

fn program(
    name: &str,
    output: &str,
    extras: &[Type],
    body: impl FnOnce(&ScoreEntry) -> Tensor,
) -> Result<Graph, Error> {
    let builder = Builder::new(name);
    let [score, batch, head, query, key] =
        Attention::ARGUMENTS.map(|(name, dtype)| builder.tape().input(name, dtype, SCALAR));
    let extra = |(i, ty): (usize, &Type)| builder.tape().input(&format!("extra{i}"), ty.dtype, &ty.shape);
    let extras = extras.iter().enumerate().map(extra).collect();
    let result = body(&ScoreEntry { score, batch, head, query, key, extras });
    builder.tape().output(output, &result);
    builder.finish()
}

/// No dimensions.
const SCALAR: [usize; 0] = [];

/// Whether both allow it.
pub fn and(a: &Tensor, b: &Tensor) -> Tensor {
    a.min(b)
}

/// Whether one allows it.
pub fn or(a: &Tensor, b: &Tensor) -> Tensor {
    a.max(b)
}

/// key <= query
pub fn causal(at: &ScoreEntry) -> Tensor {
    MASKS.count();
    at.key.less(&(&at.query + 1.0))
}

/// query - window < key: of the keys up to the query's own, the last `window`; later ones are not excluded.
pub fn sliding_window(at: &ScoreEntry, window: u32) -> Tensor {
    MASKS.count();
    at.query.less(&(&at.key + f64::from(window)))
}

/// ids\[query\] = ids\[key\], where `ids` (keys) i32 is an extra: both belong to one document.
pub fn document(at: &ScoreEntry, ids: &Tensor) -> Tensor {
    MASKS.count();
    ids.gather(&at.query).equal(&ids.gather(&at.key))
}

/// ids\[batch, query\] = ids\[batch, key\] > 0, where `ids` (batch * length) i32, one row after the other, and
/// `length` () i32, the tokens of a row, are extras: both belong to one document of their row. A number below 1 is
/// padding, which sees nothing and which nothing sees.
pub fn document_of_row(at: &ScoreEntry, ids: &Tensor, length: &Tensor) -> Tensor {
    MASKS.count();
    let row = &at.batch * length;
    let [query, key] = [&at.query, &at.key].map(|token| ids.gather(&(&row + token)));
    and(&query.equal(&key), &key.like(0.0).less(&key))
}

/// key <= query or key < prefix: the prefix sees itself whole.
pub fn prefix_lm(at: &ScoreEntry, prefix: u32) -> Tensor {
    MASKS.count();
    or(&causal(at), &at.key.less(&at.key.like(f64::from(prefix))))
}

/// cap * tanh(score / cap), as Gemma 2 has it.
pub fn softcap(score: &Tensor, cap: f64) -> Tensor {
    &(score / cap).tanh() * cap
}

/// score + 2^(-8 (head + 1) / heads) * (key - query), from Press et al., "Train Short, Test Long" (2022).
pub fn alibi(at: &ScoreEntry, score: &Tensor, heads: u32) -> Tensor {
    let number = &at.head.cast(Dtype::F32) + 1.0;
    let slope = (&number * (-8.0 * LN_2 / f64::from(heads))).exp();
    score + &(&slope * &at.distance().cast(Dtype::F32))
}

/// score - slope * |key - query|
pub fn distance_bias(at: &ScoreEntry, score: &Tensor, slope: f64) -> Tensor {
    let distance = at.distance();
    let distance = distance.max(&-&distance).cast(Dtype::F32);
    score - &(&distance * slope)
}

/// score + table\[key - query + reach\], with distances beyond `reach` taken for `reach`; `table` (2 reach + 1) f32 is
/// an extra. From Shaw et al., "Self-Attention with Relative Position Representations" (2018).
pub fn relative_bias(at: &ScoreEntry, score: &Tensor, table: &Tensor, reach: u32) -> Tensor {
    let distance = at.distance();
    let far = distance.like(f64::from(reach));
    let near = distance.min(&far).max(&-&far);
    score + &table.gather(&(&near + &far))
}
