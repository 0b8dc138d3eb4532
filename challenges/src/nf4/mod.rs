//! (A) `nf4`: dequantise NF4 in one fused kernel.
//!
//! A QLoRA base weight is stored in 4 bits an element plus a scale for each block of 64, and the scales
//! themselves in 8 bits plus a scale for each 256 of them. Every matrix product of every step first turns
//! such a weight back into 16-bit floats. The usual library does that in three passes over memory; you
//! write one pass that runs at the speed of memory itself, and is equal to the bit.
//!
//! **Shapes.** `packed` (ceil(n/2),) u8 with the even element in the HIGH nibble; one scale for each
//! `block_size` elements; `out` (n,) f16, bf16 or f32. All flat, row-major over (out, in).
//!
//! **Traffic.** n/2 + n/64 + n/4096 bytes read and 2n written: 2.516 bytes an element for 16-bit outputs.
//! 4096 x 14336 elements are 148 MB, and no program takes less time than the machine needs to move them.
//!
//! **Rounding.** `a = f32(f32(code2[q8] * absmax2) + offset)`, `w = f32(table[q] * a)`, then once to the
//! output's type, to nearest even. Each step rounds by itself: a fused multiply-add gives other bits.
//!
//! **Not required.** Checking the weight (the grader hands in whole ones: all lengths fit, all scales are finite),
//! quantising, other formats. Outputs can still be subnormal, and can overflow.
//!
//! Sources: Dettmers et al., QLoRA (2023), section 3; the order of roundings is that of `bitsandbytes`.

pub mod baseline;
mod callee;
pub mod cuda;
pub mod tile;

pub use callee::{DEQUANTIZER, Dequantizer};
use half::{bf16, f16};
use kernels::Cpu;
#[doc(hidden)]
pub use reference::nf4::OutputDtype as Dtype; // its name before, in texts that readers have written
pub use reference::nf4::{Absmax, OutputDtype, Weight};

use linked::{Linked, counted, linked};

// ANCHOR: nf4-trait
/// The steps of challenge A, from small to large.
pub trait Nf4: Sync {
    /// A.1 - splits bytes into 4-bit codes, high nibble first. `codes` holds as many as there are
    /// elements: with an odd number the last low nibble is padding.
    fn unpack(&self, packed: &[u8], codes: &mut [u8]);

    /// A.2 - replaces each code (0 to 15) by its table value.
    fn look_up(&self, codes: &[u8], table: &[f32; 16], values: &mut [f32]);

    /// A.3 - dequantises one block: `values[e] = f32(table[code e] * absmax)`.
    fn block(&self, packed: &[u8], table: &[f32; 16], absmax: f32, values: &mut [f32]);

    /// A.4 - the f32 scale of block number `block`, with or without double quantisation.
    fn absmax(&self, absmax: &Absmax<'_>, block: usize) -> f32;

    /// A.5 - the whole weight in one pass, rounded to the output's type: one `cpu.launch`, and no buffer between
    /// input and output.
    fn dequantize(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>);

    /// A.6 - the same bits, fast: the vector unit that `cpu` names, streaming stores, all its threads; again one
    /// `cpu.launch`. A fence follows the last streaming store.
    /// With one thread the work is done on the calling thread, where the grader can watch it.
    fn dequantize_fast(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>);
}
// ANCHOR_END: nf4-trait

linked!(warpbook_nf4 -> Linked<dyn Nf4>);

counted! {
    Nf4, warpbook_nf4;

    fn unpack(&self, packed: &[u8], codes: &mut [u8]);
    fn look_up(&self, codes: &[u8], table: &[f32; 16], values: &mut [f32]);
    fn block(&self, packed: &[u8], table: &[f32; 16], absmax: f32, values: &mut [f32]);
    fn absmax(&self, absmax: &Absmax<'_>, block: usize) -> f32;
    fn dequantize(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>);
    fn dequantize_fast(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>);
}

/// Where a dequantised weight goes: one element for each of the weight's, all to be written.
#[derive(Debug)]
pub enum Output<'a> {
    /// IEEE half precision, subnormals kept, overflow to infinity.
    F16(&'a mut [f16]),
    /// bfloat16.
    Bf16(&'a mut [bf16]),
    /// Single precision: `w` as it is.
    F32(&'a mut [f32]),
}

/// A size that breaks things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What it tries.
    pub name: &'static str,
    /// Number of elements.
    pub len: usize,
    /// Elements a block.
    pub block_size: usize,
    /// Whether the scales are quantised.
    pub nested: bool,
}

const fn case(name: &'static str, len: usize, block_size: usize, nested: bool) -> Case {
    Case { name, len, block_size, nested }
}

/// Correctness cases of A.5 and A.6, each in f16, bf16 and f32.
pub const CASES: [Case; 17] = [
    case("one-element", 1, 64, true),
    case("one-byte", 2, 64, true),
    case("odd-length", 63, 64, true),
    case("one-block", 64, 64, true),
    case("ragged-tail", 65, 64, true),
    case("single-level-scales", 64 * 9 + 17, 64, false),
    case("prime", 8191, 64, true),
    case("two-scale-blocks", 64 * 257, 64, true),
    case("more-blocks-than-threads", 64 * 4099 + 3, 64, true),
    case("blocks-that-no-piece-divides", 4096 * 403 + 1, 4096, true),
    case("block-32", 32 * 301 + 7, 32, true),
    case("block-128", 128 * 67 + 99, 128, true),
    case("block-256-single-level", 256 * 33 + 1, 256, false),
    case("block-512", 512 * 19 + 5, 512, true),
    case("block-1024", 1024 * 21 + 1023, 1024, true),
    case("block-2048-single-level", 2048 * 11 + 31, 2048, false),
    case("block-4096", 4096 * 13 + 2049, 4096, true),
];

/// A timed case: three matrices (up, gate, down) of this shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bench {
    /// Rows, out features.
    pub rows: usize,
    /// Columns, in features.
    pub columns: usize,
    /// Output type.
    pub dtype: OutputDtype,
    /// The label that the published harness seeds its generator with.
    pub seed: u64,
    /// Whether it is part of the published total; the others are measured beside it.
    pub published: bool,
}

/// The published timed cases, then the largest of them in the other type.
pub const BENCHES: [Bench; 4] = [
    Bench { rows: 2048, columns: 8192, dtype: OutputDtype::F16, seed: 3407, published: true },
    Bench { rows: 1024, columns: 4096, dtype: OutputDtype::Bf16, seed: 3409, published: true },
    Bench { rows: 4096, columns: 14336, dtype: OutputDtype::Bf16, seed: 3408, published: true },
    Bench { rows: 4096, columns: 14336, dtype: OutputDtype::F16, seed: 3408, published: false },
];

/// The solution's text: what an exercise is derived from, and the last page of the lesson.
pub fn solution_text() -> &'static str {
    warpbook_nf4().text
}

/// Hints from small to large, chosen by the step that failed.
pub const HINTS: &str = include_str!("hints.toml");
