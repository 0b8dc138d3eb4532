//! One operation of a rank: what it does, for which micro-batch, in which of the rank's chunks.
//!
//! An operation does one thing or several at once. `RBW3` is a backward as automatic differentiation runs it under
//! activation checkpointing: it begins when the gradient arrives, computes again, differentiates with respect to inputs
//! and weights, and hands the gradient on when all of that is done. `R3 B3 W3` are the same parts as operations of
//! their own: the first may run before the gradient arrives, and the gradient leaves before the last.

use std::fmt;

/// What a part of an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `D`: dequantises (or gathers) the weights of a chunk into the rank's buffer.
    Dequantize,
    /// `F`: the forward of a micro-batch through a stage.
    Forward,
    /// `R`: computes again what the forward did not keep.
    Recompute,
    /// `B`: the gradient with respect to the stage's input.
    Backward,
    /// `W`: the gradient with respect to the stage's trained weights.
    Weight,
}

impl Kind {
    /// All, in the order in which one operation does them.
    pub const ALL: [Self; 5] =
        [Self::Dequantize, Self::Forward, Self::Recompute, Self::Backward, Self::Weight];

    /// Its letter in a grid.
    pub const fn letter(self) -> char {
        match self {
            Self::Dequantize => 'D',
            Self::Forward => 'F',
            Self::Recompute => 'R',
            Self::Backward => 'B',
            Self::Weight => 'W',
        }
    }

    /// The kind of a letter; `None` if it is another one.
    pub fn of_letter(letter: char) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.letter() == letter)
    }

    /// Whether it reads the stage's frozen weights. `W` does not: the gradient of an adapter is made of the activations
    /// and of the gradients that `B` leaves.
    pub const fn reads_weights(self) -> bool {
        matches!(self, Self::Forward | Self::Recompute | Self::Backward)
    }
}

/// A set of kinds: what one operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Kinds(u8);

impl Kinds {
    /// The same with one more.
    #[must_use]
    pub const fn with(self, kind: Kind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }

    /// Whether it is one of them.
    pub const fn contains(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// They, in the order in which an operation does them.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }

    /// Whether one of them reads the stage's frozen weights.
    pub fn read_weights(self) -> bool {
        self.iter().any(Kind::reads_weights)
    }
}

impl FromIterator<Kind> for Kinds {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|kind| write!(f, "{}", kind.letter()))
    }
}

/// One operation of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation {
    /// What it does, at least one thing.
    pub kinds: Kinds,
    /// For which micro-batch, from 0; 0 for a `D` alone, which is for no micro-batch.
    pub micro_batch: usize,
    /// In which of the rank's chunks, from 0.
    pub chunk: usize,
}

impl Operation {
    /// An operation that does one thing.
    pub fn one(kind: Kind, micro_batch: usize, chunk: usize) -> Self {
        Self { kinds: Kinds::default().with(kind), micro_batch, chunk }
    }

    /// A `D` alone.
    pub fn dequantize(chunk: usize) -> Self {
        Self::one(Kind::Dequantize, 0, chunk)
    }

    /// Whether it belongs to a micro-batch: every operation does but a `D` alone.
    pub fn has_micro_batch(self) -> bool {
        self.kinds != Kinds::default().with(Kind::Dequantize)
    }
}

/// As in a grid: `F3` is micro-batch 3 in chunk 0, `RBW3.1` in chunk 1, `D.1` is a dequantisation of chunk 1.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kinds)?;
        if self.has_micro_batch() {
            write!(f, "{}", self.micro_batch)?;
        }
        if self.chunk > 0 {
            write!(f, ".{}", self.chunk)?;
        }
        Ok(())
    }
}
