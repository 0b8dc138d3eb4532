//! What an attempt is compared with: the three passes of the usual library.
//!
//! (1) the 8-bit scales to an f32 buffer, (2) the offset added to it, (3) the 4-bit codes to the output with
//! byte loads, a table and 2-byte stores. All threads, no vector code. The buffer between the passes is kept
//! from call to call, as a caching allocator would.
//!
//! Bytes an element at block size 64, 16-bit output: 0.5 + 2 as in one pass, and 1/64 + 4/64 for pass one,
//! 8/64 for pass two, 4/64 for the scales of pass three.

use half::{bf16, f16};
use kernels::Cpu;

use super::{Absmax, Output, Weight};

/// The three-pass dequantiser with the buffer between its passes.
#[derive(Debug, Default)]
pub struct Baseline {
    scales: Vec<f32>, // (blocks,)
}

// ANCHOR: nf4-baseline
impl Baseline {
    /// Dequantises `weight` into `out`: three launches (one where the scales are f32 already).
    pub fn dequantize(&mut self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        let scales = match &weight.absmax {
            Absmax::Single(scales) => scales,
            Absmax::Double { codes, table, scales, block_size, offset } => {
                self.scales.resize(codes.len(), 0.0);
                cpu.launch(&mut self.scales, *block_size, |first, piece| {
                    for (b, scale) in (first..).zip(piece) {
                        *scale = table[codes[b] as usize] * scales[b / block_size];
                    }
                });
                cpu.launch(&mut self.scales, *block_size, |_, piece| {
                    for scale in piece {
                        *scale += offset;
                    }
                });
                self.scales.as_slice()
            }
        };
        match out {
            Output::F16(out) => codes_to_values(cpu, weight, scales, out, f16::from_f32),
            Output::Bf16(out) => codes_to_values(cpu, weight, scales, out, bf16::from_f32),
            Output::F32(out) => codes_to_values(cpu, weight, scales, out, |w| w),
        }
    }
}

/// The third pass: a byte in, two values out.
fn codes_to_values<T: Send>(
    cpu: &Cpu,
    weight: &Weight<'_>,
    scales: &[f32],
    out: &mut [T],
    round: impl Fn(f32) -> T + Sync,
) {
    cpu.launch(out, weight.block_size, |first, piece| {
        let blocks = piece.chunks_mut(weight.block_size).enumerate();
        for (b, block) in blocks {
            let begin = first + b * weight.block_size;
            let scale = scales[begin / weight.block_size];
            let packed = &weight.packed[begin / 2..];
            for (pair, byte) in block.chunks_mut(2).zip(packed) {
                pair[0] = round(weight.table[(byte >> 4) as usize] * scale);
                if let Some(odd) = pair.get_mut(1) {
                    *odd = round(weight.table[(byte & 15) as usize] * scale);
                }
            }
        }
    });
}
// ANCHOR_END: nf4-baseline
