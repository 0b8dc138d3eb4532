//! An output on a card, between canaries, full of poison.

use challenges::nf4::cuda::bits;
use kernels::cuda::{Allocation, Gpu};
use reference::nf4::OutputDtype;

use super::trouble::Tried;
use crate::nf4::inputs::poison_bits;
use crate::random::Random;

/// Elements on either side of an output that nobody may touch; 256 bytes of the narrowest type, so that an
/// output without a shift is aligned for every access.
const CANARY: usize = 128;

/// See the module's head.
pub(super) struct Output {
    memory: Allocation,
    dtype: OutputDtype,
    begin: usize, // elements
    len: usize,
    word: u16, // the poison
}

/// What was found in an output.
pub(super) struct Seen {
    /// Bit patterns of its elements.
    pub bits: Vec<u32>,
    /// The first element outside it that was written, relative to it.
    pub touched: Option<isize>,
}

impl Output {
    /// `len` elements of poison, `shift` elements off an aligned address; `seed` chooses the poison.
    pub fn new(gpu: &Gpu, dtype: OutputDtype, len: usize, seed: u64, shift: usize) -> Tried<Self> {
        let word = 0x7c01 | Random::new(seed).next_u64() as u16;
        let begin = CANARY + shift;
        let memory = gpu.reserve("output", (begin + len + CANARY) * dtype.bytes())?;
        let mut output = Self { memory, dtype, begin, len, word };
        output.poison(gpu)?;
        Ok(output)
    }

    /// Fills all of it with poison again.
    pub fn poison(&mut self, gpu: &Gpu) -> Tried {
        let pattern = poison_bits(self.dtype, self.word);
        let words = self.memory.bytes() / 2;
        match self.dtype {
            OutputDtype::F32 => self.memory.fill_words(gpu.stream(), pattern)?,
            _ => self.memory.fill(gpu.stream(), 0, pattern as u16, words)?,
        }
        Ok(())
    }

    /// The address of its first element.
    pub fn address(&self) -> u64 {
        self.memory.address() + (self.begin * self.dtype.bytes()) as u64
    }

    /// The pattern of an element that nobody wrote.
    pub fn unwritten(&self) -> u32 {
        poison_bits(self.dtype, self.word)
    }

    /// All of it.
    pub fn seen(&self) -> Tried<Seen> {
        let mut bytes = vec![0; self.memory.bytes()];
        self.memory.read(0, &mut bytes)?;
        let all = bits(self.dtype, &bytes);
        let end = self.begin + self.len;
        let outside = (0..self.begin).chain(end..all.len());
        let touched = outside.into_iter().find(|e| all[*e] != self.unwritten());
        let touched = touched.map(|e| e as isize - self.begin as isize);
        Ok(Seen { bits: all[self.begin..end].to_vec(), touched })
    }

    /// `count` elements from element `first` on.
    pub fn window(&self, first: usize, count: usize) -> Tried<Vec<u32>> {
        let size = self.dtype.bytes();
        let mut bytes = vec![0; count * size];
        self.memory.read((self.begin + first) * size, &mut bytes)?;
        Ok(bits(self.dtype, &bytes))
    }
}
