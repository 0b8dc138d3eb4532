//! Planted bugs: one plain implementation, and the lines where readers go wrong.
//!
//! Each bug is written as someone would write it who did not mean to, in every step that it touches. What
//! the report says of it is compared with what was planted.

#![allow(unsafe_code)] // one bug writes past the end, which safe code cannot

use challenges::nf4::{Absmax, Nf4, Output, Weight};
use half::{bf16, f16};
use kernels::Cpu;

use super::Entry;

/// Every planted bug.
pub const PLANTED: [Entry; 14] = [
    Entry { name: "swap nibbles", hand_in: |all| all.nf4(Planted(Bug::NibblesSwapped)) },
    Entry { name: "shift a block", hand_in: |all| all.nf4(Planted(Bug::BlockShifted)) },
    Entry { name: "forget the second level", hand_in: |all| all.nf4(Planted(Bug::NoSecondLevel)) },
    Entry { name: "forget the second scale", hand_in: |all| all.nf4(Planted(Bug::NoSecondScale)) },
    Entry { name: "forget the offset", hand_in: |all| all.nf4(Planted(Bug::NoOffset)) },
    Entry { name: "fuse multiply and add", hand_in: |all| all.nf4(Planted(Bug::Fused)) },
    Entry { name: "round the scale to f16", hand_in: |all| all.nf4(Planted(Bug::ScaleToF16)) },
    Entry { name: "drop the last odd element", hand_in: |all| all.nf4(Planted(Bug::OddDropped)) },
    Entry { name: "drop the short block", hand_in: |all| all.nf4(Planted(Bug::ShortBlockDropped)) },
    Entry { name: "write past the tail", hand_in: |all| all.nf4(Planted(Bug::TailOverrun)) },
    Entry { name: "take 32 values a block", hand_in: |all| all.nf4(Planted(Bug::HalfBlocks)) },
    Entry { name: "cut to bf16", hand_in: |all| all.nf4(Planted(Bug::Cut)) },
    Entry { name: "clamp at the largest f16", hand_in: |all| all.nf4(Planted(Bug::Clamped)) },
    Entry { name: "flush subnormals", hand_in: |all| all.nf4(Planted(Bug::Flushed)) },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    NibblesSwapped,
    BlockShifted,
    NoSecondLevel,
    NoSecondScale,
    NoOffset,
    Fused,
    ScaleToF16,
    OddDropped,
    ShortBlockDropped,
    TailOverrun,
    HalfBlocks,
    Cut,
    Clamped,
    Flushed,
}

struct Planted(Bug);

impl Nf4 for Planted {
    fn unpack(&self, packed: &[u8], codes: &mut [u8]) {
        for (pair, byte) in codes.chunks_mut(2).zip(packed) {
            let both = self.split(*byte);
            if pair.len() == 2 || self.0 != Bug::OddDropped {
                pair.copy_from_slice(&both[..pair.len()]);
            }
        }
    }

    fn look_up(&self, codes: &[u8], table: &[f32; 16], values: &mut [f32]) {
        values.iter_mut().zip(codes).for_each(|(value, code)| *value = table[*code as usize]);
    }

    fn block(&self, packed: &[u8], table: &[f32; 16], absmax: f32, values: &mut [f32]) {
        self.fill(packed, table, absmax, values, |w| w);
    }

    fn absmax(&self, absmax: &Absmax<'_>, block: usize) -> f32 {
        let scale = match *absmax {
            Absmax::Single(scales) => scales[block],
            Absmax::Double { codes, table, scales, block_size, offset } => {
                let (value, scale) = (table[codes[block] as usize], scales[block / block_size]);
                match self.0 {
                    Bug::NoSecondLevel => value,
                    Bug::NoSecondScale => value + offset,
                    Bug::NoOffset => value * scale,
                    Bug::Fused => value.mul_add(scale, offset),
                    _ => value * scale + offset,
                }
            }
        };
        if self.0 == Bug::ScaleToF16 { f16::from_f32(scale).to_f32() } else { scale }
    }

    fn dequantize(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        match out {
            Output::F16(out) => self.pass(cpu, weight, out, |w| self.to_f16(w)),
            Output::Bf16(out) => self.pass(cpu, weight, out, |w| self.to_bf16(w)),
            Output::F32(out) => self.pass(cpu, weight, out, |w| w),
        }
    }

    fn dequantize_fast(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        self.dequantize(cpu, weight, out);
    }
}

impl Planted {
    fn split(&self, byte: u8) -> [u8; 2] {
        match self.0 {
            Bug::NibblesSwapped => [byte & 15, byte >> 4],
            _ => [byte >> 4, byte & 15],
        }
    }

    fn pass<T: Send>(&self, cpu: &Cpu, weight: &Weight<'_>, out: &mut [T], round: impl Fn(f32) -> T + Sync) {
        let size = if self.0 == Bug::HalfBlocks { weight.block_size / 2 } else { weight.block_size };
        let last = weight.len.div_ceil(weight.block_size) - 1;
        cpu.launch(out, weight.block_size, |first, piece| {
            for (b, values) in piece.chunks_mut(size).enumerate() {
                let shift = usize::from(self.0 == Bug::BlockShifted);
                let scale = self.absmax(&weight.absmax, (first / size + b + shift).min(last));
                let begin = first + b * size;
                let packed = &weight.packed[begin / 2..];
                if values.len() == size || self.0 != Bug::ShortBlockDropped {
                    self.fill(packed, weight.table, scale, values, &round);
                }
            }
        });
    }

    fn fill<T>(
        &self,
        packed: &[u8],
        table: &[f32; 16],
        scale: f32,
        values: &mut [T],
        round: impl Fn(f32) -> T,
    ) {
        for (pair, byte) in values.chunks_mut(2).zip(packed) {
            let [high, low] = self.split(*byte).map(|code| table[code as usize] * scale);
            match pair {
                [even, odd] => (*even, *odd) = (round(high), round(low)),
                [_] if self.0 == Bug::OddDropped => {}
                [even] => {
                    let at: *mut T = even;
                    *even = round(high);
                    if self.0 == Bug::TailOverrun {
                        // SAFETY: none; the grader's outputs have room after them.
                        unsafe { at.add(1).write(round(low)) };
                    }
                }
                _ => {}
            }
        }
    }

    fn to_f16(&self, w: f32) -> f16 {
        let smallest = 2f32.powi(-14);
        match self.0 {
            Bug::Clamped => f16::from_f32(w.clamp(-65504.0, 65504.0)),
            Bug::Flushed if w.abs() < smallest => f16::from_f32(0.0f32.copysign(w)),
            _ => f16::from_f32(w),
        }
    }

    fn to_bf16(&self, w: f32) -> bf16 {
        match self.0 {
            Bug::Cut => bf16::from_bits((w.to_bits() >> 16) as u16),
            _ => bf16::from_f32(w),
        }
    }
}
