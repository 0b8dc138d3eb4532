//! Losses, each of them twice: as a plain f64 function with its derivative written beside it, and as a graph.
//!
//! ```text
//! (hidden, weight, bias) --Linear--> logits --Head--> logits --+--> CrossEntropy, Targets, Divergence: rows
//!                                                              |
//!                                                              +--> LogProbabilities --> Policy: rows
//!                                                                       |
//!                                                                       +--Pool--> Dpo, Orpo, Kto, SimPo: rows
//! ```
//!
//! A loss gives one value for each row, a token, a sequence or a pair, and the weight with which the row counts
//! ([`Exact`], [`Rows`]); a [`Reduction`] makes one number of them. The two are apart, so that what is computed in
//! chunks of rows can add up values and weights and divide at the end.
//!
//! `exact` is the oracle: slices in, numbers out, no operation of a graph. `rows` writes the same as operations; its
//! gradient is what [`crate::grad`] makes of them. Both compute in the order of the formula that stands above them.

mod binary;
mod check;
mod cross_entropy;
mod distillation;
mod error;
mod functions;
mod heads;
mod linear;
mod log_probabilities;
mod next_token;
mod pair;
mod policy;
mod preference;
mod reduction;
mod targets;

pub use binary::BinaryCrossEntropy;
pub use cross_entropy::CrossEntropy;
pub use distillation::Divergence;
pub use error::Error;
pub use functions::{log_add_exp, log_sigmoid, log_softmax};
pub use heads::{Mse, Nll};
pub use linear::{Head, Linear, LinearGradient};
pub use log_probabilities::{LogProbabilities, Pool, kept};
pub use next_token::{
    NextTokenRows, Statistics, causal, causal_statistics, cross_entropy, next_token_rows, within_documents,
};
pub use pair::{PairKind, PairLoss};
pub use policy::{Average, Clip, Level, Policy, Tokens};
pub use preference::{Compared, Dpo, Judged, Kto, Orpo, SimPo, kto_baseline};
pub use reduction::{Exact, Reduction, Rows, Value};
pub use targets::Targets;

/// The label of a row that does not count.
pub const IGNORED: i32 = -100;
