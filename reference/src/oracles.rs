//! Counters of the calls to each oracle.
//!
//! An attempt that answers by calling an oracle is always right and teaches nothing. So every public function that
//! computes what a step asks for, or a decisive part of it, counts its calls here, whichever thread makes them. The
//! grader reads the counters before and after each call of a step. Only this crate can change them.
//!
//! A test lists the public functions of the modules that hold oracles: each counts its calls, or is listed there as
//! vocabulary that steps may use.

use std::sync::atomic::{AtomicU64, Ordering};

/// The calls of this process to the functions of one oracle.
#[derive(Debug)]
pub struct Calls(AtomicU64);

/// NF4: dequantisation, block scales and quantisation.
pub static NF4: Calls = Calls::new();
/// The search for the shortest pipeline schedule.
pub static SHORTEST: Calls = Calls::new();
/// Schedules that are known: `GPipe`, 1F1B, interleaved, zero bubble.
pub static GENERATORS: Calls = Calls::new();
/// The norm of a gradient on one rank.
pub static NORMS: Calls = Calls::new();
/// The definition of attention, and of which keys a query sees.
pub static ATTENTION: Calls = Calls::new();
/// Mask programs: causal, sliding window, documents, prefix.
pub static MASKS: Calls = Calls::new();
/// Last tokens and losses of a classifier.
pub static CLASSIFIERS: Calls = Calls::new();
/// Losses of rows, as numbers and as graphs.
pub static LOSSES: Calls = Calls::new();
/// Policy losses.
pub static POLICIES: Calls = Calls::new();
/// Sums and means over the tokens of a sequence.
pub static POOLS: Calls = Calls::new();
/// The last product of a model and its gradients.
pub static PRODUCTS: Calls = Calls::new();
/// Names and shapes of the tensors of an adapter.
pub static ADAPTERS: Calls = Calls::new();
/// Tensors and keys of GGUF files.
pub static GGUF: Calls = Calls::new();
/// Quantised blocks of GGUF files.
pub static BLOCKS: Calls = Calls::new();
/// Frequencies of rotary embeddings.
pub static FREQUENCIES: Calls = Calls::new();
/// Sizes, pixels, tokens, positions, labels and batches of images.
pub static IMAGES: Calls = Calls::new();

impl Calls {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts one call.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of calls so far.
    pub fn so_far(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
