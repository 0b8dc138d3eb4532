//! Blocks as f32: of each type the formula of one block.
//!
//! ```text
//! Q4_0, Q5_0, Q8_0   x = d (q - 8), d (q - 16), d q          d: f16
//! Q4_1, Q5_1         x = d q + m                              d, m: f16
//! Q2_K, Q4_K, Q5_K   x = (d s) q - (d' s')                    s, s' of 16 or 32 elements
//! Q3_K, Q6_K         x = (d s) q
//! IQ4_NL, IQ4_XS     x = d K[q], (d s) K[q]                   K: 16 numbers, denser near 0
//! MXFP4              x = 2^e M[q]                             M: the 16 numbers of an FP4
//! TQ1_0, TQ2_0       x = d (q - 1)                            q: 0, 1 or 2, five of them in a byte or four
//! ```
//!
//! A parenthesis is rounded to f32, and so is what it is multiplied with. Half of a block's numbers lie in the low
//! halves of its bytes, half in the high ones.
//!
//! Source: `ggml-quants.c` of ggml, which is where the format is defined.

use half::{bf16, f16};

use super::super::Error;
use super::{Endian, GgufTensor, Problem, TensorType};

/// The numbers of `IQ4_NL` and `IQ4_XS`.
const NONLINEAR: [f32; 16] =
    [-127., -104., -83., -65., -49., -35., -22., -10., 1., 13., 25., 38., 53., 69., 89., 113.];

/// Twice the numbers of an FP4 with two bits of exponent and one of mantissa: the scale is halved instead.
const FP4_TWICE: [f32; 16] = [0., 1., 2., 3., 4., 6., 8., 12., 0., -1., -2., -3., -4., -6., -8., -12.];

/// A tensor's elements, in its order.
///
/// Fails for the types whose tables of hundreds of entries are not here (`IQ1` to `IQ3`), and for those that a file
/// does not hold weights in: whole numbers, `Q8_1`, `Q8_K`.
pub fn dequantize(tensor: &GgufTensor<'_>) -> Result<Vec<f32>, Error> {
    let of_block = block_of(tensor).ok_or(Problem::NotRead { ty: tensor.ty })?;
    let [elements, bytes] = tensor.ty.block();
    let mut all = vec![0.0; tensor.bytes.len() / bytes * elements];
    let blocks = tensor.bytes.chunks_exact(bytes).zip(all.chunks_exact_mut(elements));
    blocks.for_each(|(block, to)| of_block(block, to));
    Ok(all)
}

/// Reads a block.
type OfBlock = fn(&[u8], &mut [f32]);

fn block_of(tensor: &GgufTensor<'_>) -> Option<OfBlock> {
    let plain = |little: OfBlock, big: OfBlock| if tensor.endian == Endian::Big { big } else { little };
    Some(match tensor.ty {
        TensorType::F32 => plain(
            |block, to| to[0] = f32::from_le_bytes(four(block, 0)),
            |block, to| to[0] = f32::from_be_bytes(four(block, 0)),
        ),
        TensorType::F64 => plain(
            |block, to| to[0] = f64::from_bits(eight(block)) as f32,
            |block, to| to[0] = f64::from_bits(eight(block).swap_bytes()) as f32,
        ),
        TensorType::F16 => plain(
            |block, to| to[0] = half_at(block, 0),
            |block, to| to[0] = f16::from_be_bytes([block[0], block[1]]).to_f32(),
        ),
        TensorType::Bf16 => |block, to| to[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32(),
        TensorType::Q4_0 => q4_0,
        TensorType::Q4_1 => q4_1,
        TensorType::Q5_0 => q5_0,
        TensorType::Q5_1 => q5_1,
        TensorType::Q8_0 => q8_0,
        TensorType::Q2_K => q2_k,
        TensorType::Q3_K => q3_k,
        TensorType::Q4_K => q4_k,
        TensorType::Q5_K => q5_k,
        TensorType::Q6_K => q6_k,
        TensorType::IQ4_NL => iq4_nl,
        TensorType::IQ4_XS => iq4_xs,
        TensorType::TQ1_0 => tq1_0,
        TensorType::TQ2_0 => tq2_0,
        TensorType::MXFP4 => mxfp4,
        _ => return None,
    })
}

// ---- numbers of a block

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn four(block: &[u8], at: usize) -> [u8; 4] {
    [block[at], block[at + 1], block[at + 2], block[at + 3]]
}

fn eight(block: &[u8]) -> u64 {
    u64::from_le_bytes(block.first_chunk().copied().unwrap_or_default())
}

/// The low halves of some bytes, then their high halves.
fn halves(bytes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    bytes.iter().map(|byte| byte & 15).chain(bytes.iter().map(|byte| byte >> 4))
}

fn fill(to: &mut [f32], from: impl Iterator<Item = f32>) {
    to.iter_mut().zip(from).for_each(|(to, x)| *to = x);
}

// ---- blocks of 32

fn q4_0(block: &[u8], to: &mut [f32]) {
    let d = half_at(block, 0);
    fill(to, halves(&block[2..]).map(|q| d * (f32::from(q) - 8.0)));
}

fn q4_1(block: &[u8], to: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    fill(to, halves(&block[4..]).map(|q| f32::from(q) * d + m));
}

/// Numbers of five bits: the fifth of all 32 stand together.
fn of_five_bits(high: [u8; 4], low: &[u8]) -> impl Iterator<Item = f32> + '_ {
    let high = u32::from_le_bytes(high);
    halves(low).enumerate().map(move |(i, q)| f32::from(q | ((high >> i & 1) as u8) << 4))
}

fn q5_0(block: &[u8], to: &mut [f32]) {
    let d = half_at(block, 0);
    fill(to, of_five_bits(four(block, 2), &block[6..]).map(|q| d * (q - 16.0)));
}

fn q5_1(block: &[u8], to: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    fill(to, of_five_bits(four(block, 4), &block[8..]).map(|q| q * d + m));
}

fn q8_0(block: &[u8], to: &mut [f32]) {
    let d = half_at(block, 0);
    fill(to, block[2..].iter().map(|q| d * f32::from(q.cast_signed())));
}

fn iq4_nl(block: &[u8], to: &mut [f32]) {
    let d = half_at(block, 0);
    fill(to, halves(&block[2..]).map(|q| d * NONLINEAR[usize::from(q)]));
}

/// The scale is a power of two: 2^(e - 128), the smallest two below what a normal number can be.
fn mxfp4(block: &[u8], to: &mut [f32]) {
    let exponent = u32::from(block[0]);
    let d = f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 });
    fill(to, halves(&block[1..]).map(|q| d * FP4_TWICE[usize::from(q)]));
}

// ---- blocks of 256

fn q2_k(block: &[u8], to: &mut [f32]) {
    let (scales, quants, d, least) = (&block[..16], &block[16..80], half_at(block, 80), half_at(block, 82));
    for (part, to) in to.chunks_exact_mut(16).enumerate() {
        let (half, shift, side) = (part / 8, part / 2 % 4 * 2, part % 2 * 16);
        let (scale, offset) = (d * f32::from(scales[part] & 15), least * f32::from(scales[part] >> 4));
        let own = &quants[half * 32 + side..][..16];
        fill(to, own.iter().map(|q| scale * f32::from(q >> shift & 3) - offset));
    }
}

fn q3_k(block: &[u8], to: &mut [f32]) {
    let (high, quants, d) = (&block[..32], &block[32..96], half_at(block, 108));
    let scales = scales_of_six_bits(&block[96..108]);
    for (part, to) in to.chunks_exact_mut(16).enumerate() {
        let (half, shift, side) = (part / 8, part / 2 % 4 * 2, part % 2 * 16);
        let scale = d * (f32::from(scales[part]) - 32.0);
        let bit = half * 4 + part / 2 % 4;
        let own = quants[half * 32 + side..][..16].iter().zip(&high[side..]);
        fill(
            to,
            own.map(|(q, high)| scale * (f32::from(q >> shift & 3) - 4.0 * f32::from(!high >> bit & 1))),
        );
    }
}

/// Sixteen scales of six bits: the low four of all in the first eight bytes, the high two in the last four.
fn scales_of_six_bits(bytes: &[u8]) -> [u8; 16] {
    std::array::from_fn(|i| {
        let low = bytes[i % 8] >> (i / 8 * 4) & 15;
        low | (bytes[8 + i % 4] >> (i / 4 * 2) & 3) << 4
    })
}

/// Scale and offset, six bits each, of the eighths of a block: the first four have bytes of their own, of which the
/// high bits belong to the last four.
fn scale_and_offset(bytes: &[u8], part: usize) -> [f32; 2] {
    let [scale, offset] = if part < 4 {
        [bytes[part] & 63, bytes[part + 4] & 63]
    } else {
        let [low, high] = [bytes[part + 4] & 15, bytes[part + 4] >> 4];
        [low | (bytes[part - 4] >> 6) << 4, high | (bytes[part] >> 6) << 4]
    };
    [scale, offset].map(f32::from)
}

fn q4_k(block: &[u8], to: &mut [f32]) {
    let (d, least, scales, quants) = (half_at(block, 0), half_at(block, 2), &block[4..16], &block[16..]);
    for (part, to) in to.chunks_exact_mut(32).enumerate() {
        let [scale, offset] = scale_and_offset(scales, part);
        let (scale, offset) = (d * scale, least * offset);
        let own = &quants[part / 2 * 32..][..32];
        fill(to, own.iter().map(|q| scale * f32::from(q >> (part % 2 * 4) & 15) - offset));
    }
}

fn q5_k(block: &[u8], to: &mut [f32]) {
    let (d, least, scales) = (half_at(block, 0), half_at(block, 2), &block[4..16]);
    let (high, quants) = (&block[16..48], &block[48..]);
    for (part, to) in to.chunks_exact_mut(32).enumerate() {
        let [scale, offset] = scale_and_offset(scales, part);
        let (scale, offset) = (d * scale, least * offset);
        let own = quants[part / 2 * 32..][..32].iter().zip(high);
        let whole = own.map(|(q, high)| (q >> (part % 2 * 4) & 15) | (high >> part & 1) << 4);
        fill(to, whole.map(|q| scale * f32::from(q) - offset));
    }
}

fn q6_k(block: &[u8], to: &mut [f32]) {
    let (low, high, scales, d) = (&block[..128], &block[128..192], &block[192..208], half_at(block, 208));
    for (part, to) in to.chunks_exact_mut(16).enumerate() {
        let (half, quarter, side) = (part / 8, part / 2 % 4, part % 2 * 16);
        let scale = d * f32::from(scales[part].cast_signed());
        let low = &low[half * 64 + quarter % 2 * 32 + side..][..16];
        let high = &high[half * 32 + side..][..16];
        let whole = low
            .iter()
            .zip(high)
            .map(|(low, high)| (low >> (quarter / 2 * 4) & 15) | (high >> (quarter * 2) & 3) << 4);
        fill(to, whole.map(|q| scale * (f32::from(q) - 32.0)));
    }
}

fn iq4_xs(block: &[u8], to: &mut [f32]) {
    let (d, high) = (half_at(block, 0), u16::from_le_bytes([block[2], block[3]]));
    let (low, quants) = (&block[4..8], &block[8..]);
    for (part, to) in to.chunks_exact_mut(32).enumerate() {
        let scale = (low[part / 2] >> (part % 2 * 4) & 15) | ((high >> (part * 2) & 3) as u8) << 4;
        let scale = d * (f32::from(scale) - 32.0);
        fill(to, halves(&quants[part * 16..][..16]).map(|q| scale * NONLINEAR[usize::from(q)]));
    }
}

/// The digit of a number below 243 to the base of 3, as a fraction of 256: 0, 1 or 2.
fn third(byte: u8, digit: u32) -> f32 {
    let rest = byte.wrapping_mul(3_u8.pow(digit));
    f32::from(((u16::from(rest) * 3) >> 8) as u8)
}

fn tq1_0(block: &[u8], to: &mut [f32]) {
    let d = half_at(block, 52);
    let runs = [(&block[..32], 5), (&block[32..48], 5), (&block[48..52], 4)];
    let all = runs.into_iter().flat_map(|(bytes, digits)| {
        (0..digits).flat_map(move |digit| bytes.iter().map(move |byte| third(*byte, digit)))
    });
    fill(to, all.map(|q| (q - 1.0) * d));
}

fn tq2_0(block: &[u8], to: &mut [f32]) {
    let d = half_at(block, 64);
    for (part, to) in to.chunks_exact_mut(32).enumerate() {
        let own = &block[part / 4 * 32..][..32];
        fill(to, own.iter().map(|byte| (f32::from(byte >> (part % 4 * 2) & 3) - 1.0) * d));
    }
}
