//! (C) `graph`: compile QLoRA without a break.
//!
//! A training step is some two thousand operations. Run one by one, each reads its inputs from memory and writes its
//! output back, and every frozen weight gets a gradient that nobody reads. Compiled, the step is a few hundred launches
//! over one arena of memory that was laid out beforehand: what can be fused is fused, what is dead is gone, and what is
//! needed twice is kept or computed again, whichever is cheaper.
//!
//! **What is compiled.** A [`reference::graph::Graph`], forward, backward and optimiser together, for given sizes of its
//! symbols. **What comes out.** A [`kernels::plan::Plan`]: tile programs, products of matrices and dequantisations over
//! an arena. **What it means.** What the interpreter says: equal where every rounding is defined, elsewhere within the
//! fair tolerance (`tests/tests/workbook/compiled.rs`).
//!
//! The passes, in their order:
//!
//! | module | does |
//! |---|---|
//! | [`prune`] | takes out what no output needs, what is computed twice, what does nothing; opens attention |
//! | [`sized`] | binds the symbols |
//! | [`sums`] | lets products add up in one buffer |
//! | [`fuse`], [`emit`], [`map`] | decides what gets a buffer, and writes one tile program for everything between buffers |
//! | [`memory`] | places the buffers in the arena |
//! | [`compile`] | makes the plan and runs it |
//!
//! So far nothing of this is graded: the steps, their exercise and the rubric's rows follow.
//!
//! Sources: Ansel et al., "`PyTorch` 2" (2024), for what compiles today and where it breaks; Chen et al., "Training Deep
//! Nets with Sublinear Memory Cost" (2016), for computing again instead of keeping.

pub mod compile;
pub mod emit;
pub mod fuse;
pub mod map;
pub mod memory;
pub mod pad;
pub mod prune;
pub mod sized;
pub mod sums;
