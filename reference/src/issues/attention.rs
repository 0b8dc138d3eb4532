//! Attention by its formulas, one query after the other, in f64.
//!
//! ```text
//! s[q,k] = score(cap(scale Q[q] . K[k]) + slope_h (k - q))       of the keys that q sees
//! p[q,k] = e^s[q,k] / (e^sink_h + sum_k e^s[q,k])                the sink's term only where there are sinks
//! O[q]   = sum_k m[q,k] p[q,k] V[k]                              m: 1, or with dropout 0 or 1 / keep
//! L[q]   = ln sum_k e^s[q,k]
//! ```
//!
//! A query that sees no key has zeros, and L = -inf. Head h reads the key head h / (heads / groups).
//!
//! The back ends of `challenges::issues::attention` build graphs; this shares no code with them.

use crate::oracles::ATTENTION;

/// Which keys a query sees, by their places: all of what is set has to allow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// None after the query's own.
    pub causal: bool,
    /// Keys less than this far away: the query's own and `window - 1` before it, and where it is not causal as many
    /// after it.
    pub window: Option<u32>,
    /// The first keys, which a causal rule does not hide from the queries before them.
    pub prefix: Option<u32>,
    /// Keys of the query's own document alone: numbers of documents, 0 or less for padding, come with the tensors.
    pub documents: bool,
}

/// Sizes of q (batch, heads, queries, depth), k (batch, groups, keys, depth) and v (batch, groups, keys, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Sequences.
    pub batch: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of the keys and values.
    pub groups: usize,
    /// Queries of a sequence.
    pub queries: usize,
    /// Keys of a sequence.
    pub keys: usize,
    /// Numbers of a query and of a key.
    pub depth: usize,
    /// Numbers of a value.
    pub width: usize,
}

impl Sizes {
    /// The shapes of q, k, v and the output.
    pub fn shapes(&self) -> [[usize; 4]; 4] {
        let Self { batch, heads, groups, queries, keys, depth, width } = *self;
        [
            [batch, heads, queries, depth],
            [batch, groups, keys, depth],
            [batch, groups, keys, width],
            [batch, heads, queries, width],
        ]
    }
}

/// One score: (batch, head, query, key), the query by its place among the keys.
pub type Entry = [usize; 4];

/// An attention.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Of its tensors.
    pub sizes: Sizes,
    /// What the product of a query and a key is multiplied with.
    pub scale: f64,
    /// The place of the first query among the keys.
    pub offset: usize,
    /// What a query sees.
    pub rules: Rules,
    /// The document of each key (batch * keys), row after row; a query's is that of its place.
    pub documents: Vec<i32>,
    /// cap tanh(s / cap).
    pub softcap: Option<f64>,
    /// Adds 2^(-8 (head + 1) / heads) (key - query).
    pub alibi: bool,
    /// A score and its derivative by the score before, after all else.
    pub score: Option<fn(f64, Entry) -> [f64; 2]>,
    /// Whether the query may see the key, beside the rules.
    pub mask: Option<fn(Entry) -> bool>,
    /// A logit of each head that takes its share of the softmax and has no value.
    pub sinks: Option<Vec<f64>>,
    /// What each probability (batch, heads, queries, keys) is multiplied with: 0, or 1 / keep.
    pub dropout: Option<Vec<f64>>,
}

/// What comes out.
#[derive(Clone, Debug, PartialEq)]
pub struct Attended {
    /// (batch, heads, queries, width)
    pub output: Vec<f64>,
    /// (batch, heads, queries)
    pub lse: Vec<f64>,
    /// By q, k and v, in their shapes.
    pub gradients: [Vec<f64>; 3],
}

impl Problem {
    /// Returns true if a query sees a key.
    pub fn sees(&self, entry: Entry) -> bool {
        ATTENTION.count();
        self.is_visible(entry)
    }

    // ANCHOR: attention-sees
    /// Returns true if a query sees a key.
    fn is_visible(&self, entry: Entry) -> bool {
        let [batch, _, query, key] = entry;
        let Rules { causal, window, prefix, documents } = self.rules;
        let of = |place: usize| self.documents[batch * self.sizes.keys + place];
        let before = !causal || key <= query || prefix.is_some_and(|prefix| key < prefix as usize);
        let near = window.is_none_or(|window| query.abs_diff(key) < window as usize);
        let own = !documents || of(query) == of(key) && of(key) > 0;
        before && near && own && self.mask.is_none_or(|mask| mask(entry))
    }
    // ANCHOR_END: attention-sees

    /// The score of a product that was scaled, and its derivative.
    fn score(&self, s: f64, entry: Entry) -> [f64; 2] {
        let [_, head, query, key] = entry;
        let [s, cap_slope] = match self.softcap {
            Some(cap) => [cap * (s / cap).tanh(), 1.0 - (s / cap).tanh().powi(2)],
            None => [s, 1.0],
        };
        let steepness = (-8.0 * (head + 1) as f64 / self.sizes.heads as f64).exp2();
        let bias = if self.alibi { steepness * (key as f64 - query as f64) } else { 0.0 };
        let [s, slope] = self.score.map_or([s + bias, 1.0], |score| score(s + bias, entry));
        [s, slope * cap_slope]
    }

    /// The output, L, and the gradients where `grad` is that of the output.
    pub fn attend(&self, [q, k, v, grad]: [&[f64]; 4]) -> Attended {
        ATTENTION.count();
        let Sizes { batch, heads, groups, queries, keys, depth, width } = self.sizes;
        let zeros = |like: &[f64]| vec![0.0; like.len()];
        let mut found = Attended {
            output: zeros(grad),
            lse: Vec::with_capacity(batch * heads * queries),
            gradients: [zeros(q), zeros(k), zeros(v)],
        };
        for row in 0..batch * heads * queries {
            let (b, h, i) = (row / queries / heads, row / queries % heads, row % queries);
            let key_row = |j: usize| (b * groups + h / (heads / groups)) * keys + j;
            let [here, out] = [row * depth, row * width];
            let (qi, gi) = (&q[here..here + depth], &grad[out..out + width]);
            let entry = |j: usize| [b, h, i + self.offset, j];
            let seen: Vec<usize> = (0..keys).filter(|j| self.is_visible(entry(*j))).collect();
            let scored = seen
                .iter()
                .map(|j| self.score(self.scale * dot(qi, &k[key_row(*j) * depth..][..depth]), entry(*j)));
            let scores: Vec<[f64; 2]> = scored.collect();
            let lse = log_sum_exp(scores.iter().map(|[s, _]| *s));
            let total = match &self.sinks {
                Some(sinks) => log_sum_exp([lse, sinks[h]]),
                None => lse,
            };
            found.lse.push(lse);
            let p: Vec<f64> = scores.iter().map(|[s, _]| (s - total).exp()).collect();
            let kept = |j: usize| self.dropout.as_ref().map_or(1.0, |kept| kept[row * keys + j]);
            let dp: Vec<f64> =
                seen.iter().map(|j| kept(*j) * dot(gi, &v[key_row(*j) * width..][..width])).collect();
            let mean = dot(&p, &dp);
            for (at, j) in seen.iter().enumerate() {
                let (of_k, of_v) = (key_row(*j) * depth, key_row(*j) * width);
                let ds = self.scale * scores[at][1] * p[at] * (dp[at] - mean);
                let [dq, dk, dv] = &mut found.gradients;
                add(&mut found.output[out..out + width], kept(*j) * p[at], &v[of_v..of_v + width]);
                add(&mut dq[here..here + depth], ds, &k[of_k..of_k + depth]);
                add(&mut dk[of_k..of_k + depth], ds, qi);
                add(&mut dv[of_v..of_v + width], kept(*j) * p[at], gi);
            }
        }
        found
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}

fn log_sum_exp(x: impl IntoIterator<Item = f64> + Clone) -> f64 {
    let largest = x.clone().into_iter().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    largest + x.into_iter().map(|x| (x - largest).exp()).sum::<f64>().ln()
}
