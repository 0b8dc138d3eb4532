//! The PTX of this repository's own kernels, so that a driver alone is enough to run them.
//!
//! Each file under `kernels/ptx/` was compiled from a text of this repository by an NVRTC of CUDA 12, whose PTX
//! (ISA 8.x) drivers since 12.0 read. Its first line names the hash of what it was compiled from and the
//! architecture. A kept PTX stands for a text only if their hashes are equal, so changed code is never run from
//! an old PTX; a test refuses stale ones, and `cargo dev ptx` writes them afresh.

use super::compile::Source;

/// A kept PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its file's name, without the ending.
    pub name: &'static str,
    /// The PTX, its first line included.
    pub ptx: &'static str,
}

macro_rules! kept {
    ($($name:literal),* $(,)?) => {
        &[$(Kept { name: $name, ptx: include_str!(concat!("../../ptx/", $name, ".ptx")) }),*]
    };
}

/// All of them.
pub const KEPT: &[Kept] = kept![
    "fill-75",
    "fill-90",
    "nf4-baseline-bf16-75",
    "nf4-baseline-bf16-80",
    "nf4-baseline-f16-75",
    "nf4-baseline-f16-80",
    "nf4-baseline-f32-75",
    "nf4-baseline-f32-80",
    "nf4-solution-bf16-75",
    "nf4-solution-bf16-90",
    "nf4-solution-f16-75",
    "nf4-solution-f16-90",
    "nf4-solution-f32-75",
    "nf4-solution-f32-90",
    "nf4-solution-plain-bf16-75",
    "nf4-solution-plain-f16-75",
    "nf4-solution-plain-f32-75",
];

/// The mark that the first line begins with.
pub const MARK: &str = "// source ";

impl Kept {
    /// The first line of a file for a text that was compiled for an architecture.
    pub fn first_line(source: &Source<'_>, capability: (i32, i32)) -> String {
        format!("{MARK}{} compute_{}{}", source.code_hash(), capability.0, capability.1)
    }

    /// The hash of what it was compiled from.
    pub fn hash(&self) -> &'static str {
        self.words().next().unwrap_or_default()
    }

    /// The architecture that it was compiled for, as a number: 75 for `compute_75`.
    pub fn architecture(&self) -> i32 {
        let name = self.words().nth(1).and_then(|word| word.strip_prefix("compute_"));
        name.and_then(|digits| digits.parse().ok()).unwrap_or(i32::MAX)
    }

    fn words(&self) -> impl Iterator<Item = &'static str> {
        let line = self.ptx.lines().next().unwrap_or_default();
        line.strip_prefix(MARK).unwrap_or_default().split_whitespace()
    }

    /// The newest one that a card of this compute capability can run, of those that stand for the text.
    pub fn of(source: &Source<'_>, capability: (i32, i32)) -> Option<&'static Self> {
        let hash = source.code_hash();
        let card = capability.0 * 10 + capability.1;
        let fits = KEPT.iter().filter(|kept| kept.hash() == hash && kept.architecture() <= card);
        fits.max_by_key(|kept| kept.architecture())
    }
}
