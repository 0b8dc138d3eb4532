//! A large weight whose content is made on the card, and of which the host can compute any part.
//!
//! Codes and scale codes are the words of a generator that gives each word alone, so neither 20 matrices nor
//! one of 2^31 elements ever cross the bus: a window of the output is compared with the oracle's answer for a
//! window of the weight.

use challenges::nf4::cuda::OnCard;
use reference::nf4::{Absmax, CODE2, NF4, OutputDtype, Weight, dequantize_bits};

use super::session::Session;
use super::trouble::Tried;
use crate::random::Random;

/// Elements a block, and scale codes a second-level block: the usual ones.
const BLOCK: usize = 64;
const NESTED: usize = 256;

/// Elements of a second-level block: windows begin at its multiples.
pub(super) const GRAIN: usize = BLOCK * NESTED;

/// A double-quantised weight on the card.
pub(super) struct Content {
    pub weight: OnCard,
    len: usize,
    seed: u64,
    scales: Vec<f32>,
}

impl Content {
    /// `len` elements of the content that `seed` names.
    pub fn new(session: &Session, len: usize, seed: u64) -> Tried<Self> {
        let gpu = &session.gpu;
        let blocks = len.div_ceil(BLOCK);
        let mut random = Random::named(seed, "second-level scales");
        let scales: Vec<f32> =
            (0..blocks.div_ceil(NESTED)).map(|_| (random.unit() * 0.03 + 0.01) as f32).collect();
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
        let weight = OnCard {
            len,
            packed: session.filled("packed codes", len.div_ceil(2), seed)?,
            shift: 0,
            codes: Some(session.filled("scale codes", blocks, !seed)?),
            scales: gpu.uploaded("scales", &bytes(&scales))?,
            code2: Some(gpu.uploaded("scale table", &bytes(&CODE2))?),
            offset: 0.037,
            block_size: BLOCK,
            nested_block_size: NESTED,
            table: NF4,
        };
        Ok(Self { weight, len, seed, scales })
    }

    /// Replaces every code and scale code, at the same addresses.
    pub fn renew(&mut self, session: &Session, seed: u64) -> Tried {
        self.seed = seed;
        session.fill(&self.weight.packed, seed)?;
        match &self.weight.codes {
            Some(codes) => session.fill(codes, !seed),
            None => Ok(()),
        }
    }

    /// What the format says of `count` elements from `first` on, a multiple of [`GRAIN`].
    pub fn want(&self, dtype: OutputDtype, first: usize, count: usize) -> Vec<u32> {
        assert!(first % GRAIN == 0 && first + count <= self.len, "a window of the weight");
        let packed = part(self.seed, first / 2, count.div_ceil(2));
        let codes = part(!self.seed, first / BLOCK, count.div_ceil(BLOCK));
        let scales = &self.scales[first / GRAIN..(first + count).div_ceil(GRAIN)];
        let absmax =
            Absmax::Double { codes: &codes, table: &CODE2, scales, block_size: NESTED, offset: 0.037 };
        let window = Weight { len: count, block_size: BLOCK, packed: &packed, table: &NF4, absmax };
        dequantize_bits(&window, dtype)
    }
}

/// Bytes `first..first + count` of the content that `seed` names; `first` is a multiple of 8.
fn part(seed: u64, first: usize, count: usize) -> Vec<u8> {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15; // what the generator's state grows by with each word
    Random::new(seed.wrapping_add((first as u64 / 8).wrapping_mul(GOLDEN))).bytes(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_content_is_the_same_as_in_the_whole() {
        let whole = part(7, 0, 100);
        assert_eq!(part(7, 16, 40), whole[16..56]);
    }
}
