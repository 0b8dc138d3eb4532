//! Generated weights, and output buffers that show what was done to them.

use challenges::nf4::Output;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use kernels::Cpu;
use reference::nf4::{Absmax, CODE2, NESTED_BLOCK, NF4, OutputDtype, Quantized, Scales};

use crate::random::Random;

/// How the scales of a generated weight are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scale {
    /// As in a trained model: a few hundredths, all within a factor of two.
    Plain,
    /// Anywhere from subnormal f16 to past its largest number.
    Wide,
    /// So small that nearly every f16 is subnormal or zero.
    Small,
    /// So large that f16 overflows, in some block at least.
    Large,
    /// At the ends of f32: outputs that are subnormal in bf16 and in f32, and such that nearly overflow.
    Extreme,
}

/// A weight of random codes with well-formed scales. Every byte is random, the padding nibble of an odd
/// length too.
pub(super) fn weight(len: usize, block_size: usize, nested: bool, scale: Scale, seed: u64) -> Quantized {
    let mut random = Random::named(seed, "weight");
    let packed = random.bytes(len.div_ceil(2));
    let blocks = len.div_ceil(block_size);
    let magnitude = |random: &mut Random| match scale {
        Scale::Plain => (0.01 + 0.02 * random.unit()) as f32,
        Scale::Wide => (random.unit() * 40.0 - 24.0).exp2() as f32,
        Scale::Small => (random.unit() * 10.0 - 22.0).exp2() as f32,
        Scale::Large => (random.unit() * 2.5 + 15.5).exp2() as f32,
        Scale::Extreme if random.below(2) == 0 => (random.unit() * 20.0 - 145.0).exp2() as f32,
        Scale::Extreme => (random.unit() * 3.0 + 124.9).exp2() as f32,
    };
    let absmax = if nested {
        let scales = (0..blocks.div_ceil(NESTED_BLOCK)).map(|_| magnitude(&mut random)).collect();
        let offset = magnitude(&mut random);
        let codes = random.bytes(blocks);
        Scales::Double { codes, table: Box::new(CODE2), scales, block_size: NESTED_BLOCK, offset }
    } else {
        Scales::Single((0..blocks).map(|_| magnitude(&mut random)).collect())
    };
    Quantized { shape: vec![len], dtype: OutputDtype::F32, packed, table: NF4, block_size, absmax }
}

/// A weight whose two tables are not the built-in ones.
pub(super) fn weight_with_own_tables(seed: u64) -> Quantized {
    let mut own = weight(64 * 70 + 5, 64, true, Scale::Plain, seed);
    let mut random = Random::new(seed);
    own.table = std::array::from_fn(|_| random.unit() as f32 * 2.0 - 1.0);
    if let Scales::Double { table, .. } = &mut own.absmax {
        **table = std::array::from_fn(|_| random.unit() as f32 * 2.0 - 1.0);
    }
    own
}

/// What is special about the scales of a weight.
#[derive(Clone, Copy)]
pub(super) struct Levels {
    /// Whether they are there as they are, without a second level.
    single: bool,
    /// Whether the second level has a table of its own.
    own_table: bool,
    /// Scales that share one of the second level.
    block_size: usize,
    /// What is added to each; drawn if nothing is said.
    offset: Option<f32>,
}

/// Two levels as they are published.
const NESTED: Levels = Levels { single: false, own_table: false, block_size: 256, offset: None };

/// Cases of the step that puts a scale together.
pub(super) const SCALES: [(&str, Levels); 6] = [
    ("single-level", Levels { single: true, ..NESTED }),
    ("every-code", NESTED),
    ("second-scale-block", Levels { block_size: 128, ..NESTED }),
    ("own-table", Levels { own_table: true, block_size: 64, ..NESTED }),
    ("fused-multiply-add", NESTED),
    ("offset", Levels { offset: Some(3.5), ..NESTED }),
];

/// Scales of a few hundred blocks.
pub(super) struct ManyScales {
    single: Option<Vec<f32>>,
    codes: Vec<u8>,
    table: [f32; 256],
    scales: Vec<f32>,
    block_size: usize,
    offset: f32,
}

impl ManyScales {
    /// Drawn.
    pub fn of(levels: Levels, random: &mut Random) -> Self {
        let singles: Vec<f32> = (0..300).map(|_| random.unit() as f32).collect();
        let codes: Vec<u8> = (0..=255).chain(random.bytes(300)).collect();
        let own: [f32; 256] = std::array::from_fn(|_| random.unit() as f32 - 0.5);
        let block_size = levels.block_size;
        let scales = (0..codes.len().div_ceil(block_size)).map(|_| random.unit() as f32 * 0.1).collect();
        let offset = levels.offset.unwrap_or_else(|| random.unit() as f32 * 0.05);
        let single = levels.single.then_some(singles);
        let table = if levels.own_table { own } else { CODE2 };
        Self { single, codes, table, scales, block_size, offset }
    }

    /// As a step gets them.
    pub fn absmax(&self) -> Absmax<'_> {
        match &self.single {
            Some(scales) => Absmax::Single(scales),
            None => Absmax::Double {
                codes: &self.codes,
                table: &self.table,
                scales: &self.scales,
                block_size: self.block_size,
                offset: self.offset,
            },
        }
    }

    /// How many.
    pub fn blocks(&self) -> usize {
        self.single.as_ref().map_or(self.codes.len(), Vec::len)
    }
}

/// Elements on either side of an output that nobody may touch.
const CANARY: usize = 64;

/// Elements of 16 bits in a cache line.
const LINE: usize = 32;

/// An output between canaries, filled with poison: what nobody wrote is seen.
pub(super) struct Buffer {
    storage: Storage,
    begin: usize, // first element of the output: 64-byte aligned, plus the asked shift
    len: usize,
    poison: u16,
}

enum Storage {
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    F32(Vec<f32>),
}

impl Buffer {
    /// `len` elements of poison; `seed` chooses the poison.
    pub fn new(dtype: OutputDtype, len: usize, seed: u64) -> Self {
        Self::shifted(dtype, len, seed, 0)
    }

    /// The same, `shift` elements off a 64-byte boundary.
    pub fn shifted(dtype: OutputDtype, len: usize, seed: u64, shift: usize) -> Self {
        let poison = 0x7c01 | Random::new(seed).next_u64() as u16; // a NaN in f16 and in f32, huge in bf16
        let total = len + 2 * CANARY + 32 + shift;
        let storage = match dtype {
            OutputDtype::F16 => Storage::F16(vec![f16::from_bits(poison); total]),
            OutputDtype::Bf16 => Storage::Bf16(vec![bf16::from_bits(poison); total]),
            OutputDtype::F32 => {
                Storage::F32(vec![f32::from_bits(poison_bits(OutputDtype::F32, poison)); total])
            }
        };
        let offset = match &storage {
            Storage::F16(all) => all[CANARY..].as_ptr().align_offset(64),
            Storage::Bf16(all) => all[CANARY..].as_ptr().align_offset(64),
            Storage::F32(all) => all[CANARY..].as_ptr().align_offset(64),
        };
        Self { storage, begin: CANARY + offset + shift, len, poison }
    }

    /// The output as an attempt gets it.
    pub fn output(&mut self) -> Output<'_> {
        let range = self.begin..self.begin + self.len;
        match &mut self.storage {
            Storage::F16(all) => Output::F16(&mut all[range]),
            Storage::Bf16(all) => Output::Bf16(&mut all[range]),
            Storage::F32(all) => Output::F32(&mut all[range]),
        }
    }

    /// The bit pattern of element `e`.
    pub fn bits(&self, e: usize) -> u32 {
        self.raw(self.begin + e)
    }

    /// All bit patterns.
    pub fn all_bits(&self) -> Vec<u32> {
        (0..self.len).map(|e| self.bits(e)).collect()
    }

    /// The bit pattern that unwritten elements have.
    pub fn poison(&self) -> u32 {
        poison_bits(self.dtype(), self.poison)
    }

    /// Flips the lowest bit and, at random, others of every element of a 16-bit output: what stood there is
    /// nowhere right any more, and nobody can tell it from what stands there now.
    ///
    /// The masks of a cache line come from those of the line before, each by Marsaglia's xorshift of 16 bits, so that
    /// memory sets the pace: with `SplitMix64` for every four elements the flips of the largest case took twelve times
    /// as long as its timed calls (two cores of an Intel Xeon with AVX-512).
    pub fn flip(&mut self, cpu: &Cpu, seed: u64) {
        let words: &mut [u16] = match self.output() {
            Output::F16(out) => out.reinterpret_cast_mut(),
            Output::Bf16(out) => out.reinterpret_cast_mut(),
            Output::F32(_) => unreachable!("timed cases have 16-bit outputs"),
        };
        cpu.launch(words, LINE, |first, piece| {
            let mut random = Random::new(seed ^ (first as u64) << 20);
            let mut masks: [u16; LINE] = std::array::from_fn(|_| random.next_u64() as u16 | 1);
            let mut flip = |line: &mut [u16]| {
                masks.iter_mut().for_each(xorshift);
                line.iter_mut().zip(&masks).for_each(|(word, mask)| *word ^= mask | 1);
            };
            let (lines, rest) = piece.as_chunks_mut::<LINE>();
            for line in lines {
                flip(line);
            }
            flip(rest);
        });
    }

    /// The first canary that lost its poison, as an element index relative to the output.
    pub fn touched_canary(&self) -> Option<isize> {
        let total = match &self.storage {
            Storage::F16(all) => all.len(),
            Storage::Bf16(all) => all.len(),
            Storage::F32(all) => all.len(),
        };
        let outside = (0..self.begin).chain(self.begin + self.len..total);
        let touched = outside.into_iter().find(|e| self.raw(*e) != self.poison())?;
        Some(touched as isize - self.begin as isize)
    }

    fn dtype(&self) -> OutputDtype {
        match self.storage {
            Storage::F16(_) => OutputDtype::F16,
            Storage::Bf16(_) => OutputDtype::Bf16,
            Storage::F32(_) => OutputDtype::F32,
        }
    }

    fn raw(&self, index: usize) -> u32 {
        match &self.storage {
            Storage::F16(all) => all[index].to_bits() as u32,
            Storage::Bf16(all) => all[index].to_bits() as u32,
            Storage::F32(all) => all[index].to_bits(),
        }
    }
}

/// The poison of a type: a pattern that no finite weight and no rounding gives.
pub(super) fn poison_bits(dtype: OutputDtype, poison: u16) -> u32 {
    match dtype {
        OutputDtype::F16 | OutputDtype::Bf16 => poison as u32,
        OutputDtype::F32 => (0x7f80_0000 | (poison as u32) << 3) | 1,
    }
}

/// The next of 65,535 numbers other than 0. Source: Marsaglia, "Xorshift RNGs" (2003), section 3, for the way; that
/// these three shifts reach all 65,535 was counted.
fn xorshift(word: &mut u16) {
    *word ^= *word << 7;
    *word ^= *word >> 9;
    *word ^= *word << 8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flip_leaves_no_element_as_it_was() {
        for dtype in [OutputDtype::F16, OutputDtype::Bf16] {
            let mut buffer = Buffer::shifted(dtype, 64 * 1031 + 3, 1, 3);
            let before = buffer.all_bits();
            buffer.flip(&Cpu::with_threads(2), 7);
            assert!(buffer.all_bits().iter().zip(&before).all(|(after, before)| after != before));
            assert_eq!(buffer.touched_canary(), None);
        }
    }
}
