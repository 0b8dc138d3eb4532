//! Sums over ranks, in rank order: `((x0 + x1) + x2) + ..`, whoever computes them.
//!
//! f32: each addition rounds to nearest. f16 and bf16: converted to f32, which is exact, added in f32, and rounded once
//! at the end, to nearest, ties to even. i32 and u8 wrap around. One rank's sum is its input, bit by bit. Which of
//! several NaNs comes out is the processor's choice; that one comes out is not.
//!
//! A tile of sums stays in the first-level cache while one rank's tile after the other is added, so each input is read
//! once and each result written once: (W + 1) elements of traffic for each element of the result.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::tile::Element;

/// Elements of a tile: 2 KiB of f32.
const TILE: usize = 512;

/// Writes the sum of the inputs, each of which has as many bytes as the output, a whole number of elements.
pub(super) fn sum(element: Element, inputs: &[&[u8]], output: &mut [u8]) {
    if let [single] = inputs {
        return output.copy_from_slice(single);
    }
    match element {
        Element::F32 => by_tiles(inputs, output, read_f32, |a, b| a + b, write_f32),
        Element::F16 => by_tiles(inputs, output, read_f16, |a, b| a + b, write_f16),
        Element::Bf16 => by_tiles(inputs, output, read_bf16, |a, b| a + b, write_bf16),
        Element::I32 => by_tiles(inputs, output, read_i32, i32::wrapping_add, write_i32),
        Element::U8 => by_tiles(inputs, output, read_u8, u8::wrapping_add, write_u8),
    }
}

/// Adds up tile by tile; `N` bytes an element, summed as `S`.
fn by_tiles<const N: usize, S: Copy + Default>(
    inputs: &[&[u8]],
    output: &mut [u8],
    read: impl Fn(&[[u8; N]], &mut [S]),
    add: impl Fn(S, S) -> S,
    write: impl Fn(&[S], &mut [[u8; N]]),
) {
    let (mut sums, mut terms) = ([S::default(); TILE], [S::default(); TILE]);
    for (number, to) in output.as_chunks_mut::<N>().0.chunks_mut(TILE).enumerate() {
        let tile = |input: usize| &inputs[input].as_chunks::<N>().0[number * TILE..][..to.len()];
        let (sums, terms) = (&mut sums[..to.len()], &mut terms[..to.len()]);
        read(tile(0), sums);
        for input in 1..inputs.len() {
            read(tile(input), terms);
            sums.iter_mut().zip(&*terms).for_each(|(sum, term)| *sum = add(*sum, *term));
        }
        write(sums, to);
    }
}

fn read_f32(from: &[[u8; 4]], to: &mut [f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = f32::from_ne_bytes(*from));
}

fn write_f32(from: &[f32], to: &mut [[u8; 4]]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_ne_bytes());
}

fn read_i32(from: &[[u8; 4]], to: &mut [i32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = i32::from_ne_bytes(*from));
}

fn write_i32(from: &[i32], to: &mut [[u8; 4]]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_ne_bytes());
}

fn read_u8(from: &[[u8; 1]], to: &mut [u8]) {
    to.copy_from_slice(from.as_flattened());
}

fn write_u8(from: &[u8], to: &mut [[u8; 1]]) {
    to.as_flattened_mut().copy_from_slice(from);
}

fn read_f16(from: &[[u8; 2]], to: &mut [f32]) {
    let mut halves = [f16::ZERO; TILE];
    halves.iter_mut().zip(from).for_each(|(half, from)| *half = f16::from_ne_bytes(*from));
    halves[..to.len()].convert_to_f32_slice(to);
}

fn write_f16(from: &[f32], to: &mut [[u8; 2]]) {
    let mut halves = [f16::ZERO; TILE];
    halves[..from.len()].convert_from_f32_slice(from);
    to.iter_mut().zip(&halves).for_each(|(to, half)| *to = half.to_ne_bytes());
}

fn read_bf16(from: &[[u8; 2]], to: &mut [f32]) {
    let mut halves = [bf16::ZERO; TILE];
    halves.iter_mut().zip(from).for_each(|(half, from)| *half = bf16::from_ne_bytes(*from));
    halves[..to.len()].convert_to_f32_slice(to);
}

fn write_bf16(from: &[f32], to: &mut [[u8; 2]]) {
    let mut halves = [bf16::ZERO; TILE];
    halves[..from.len()].convert_from_f32_slice(from);
    to.iter_mut().zip(&halves).for_each(|(to, half)| *to = half.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize, T: Copy>(numbers: &[T], to: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        numbers.iter().flat_map(|number| to(*number)).collect()
    }

    fn sum_of(element: Element, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut output = vec![0xAA; inputs[0].len()];
        sum(element, &inputs.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut output);
        output
    }

    /// In another order, these three have another sum.
    #[test]
    fn ranks_are_added_in_order() {
        let inputs = [1.0, 1e8, -1e8].map(|x: f32| bytes(&[x], f32::to_ne_bytes));
        assert_eq!(sum_of(Element::F32, &inputs), 0.0_f32.to_ne_bytes());
        let [a, b, c] = inputs;
        assert_eq!(sum_of(Element::F32, &[b, c, a]), 1.0_f32.to_ne_bytes());
    }

    /// Rounded after each addition, 2048 + 1 + 1 would stay 2048 in f16, and 256 + 1 + 1 stay 256 in bf16.
    #[test]
    fn halves_are_rounded_once_at_the_end() {
        let inputs = [2048.0, 1.0, 1.0].map(|x| bytes(&[f16::from_f32(x)], f16::to_ne_bytes));
        assert_eq!(sum_of(Element::F16, &inputs), f16::from_f32(2050.0).to_ne_bytes());
        let inputs = [256.0, 1.0, 1.0].map(|x| bytes(&[bf16::from_f32(x)], bf16::to_ne_bytes));
        assert_eq!(sum_of(Element::Bf16, &inputs), bf16::from_f32(258.0).to_ne_bytes());
    }

    #[test]
    fn whole_numbers_wrap_around() {
        assert_eq!(sum_of(Element::U8, &[vec![200], vec![100]]), [44]);
        let inputs = [i32::MAX, 1].map(i32::to_ne_bytes).map(Vec::from);
        assert_eq!(sum_of(Element::I32, &inputs), i32::MIN.to_ne_bytes());
    }

    #[test]
    fn every_tile_is_added_however_long_the_last_is() {
        for len in [0, 1, TILE - 1, TILE, TILE + 1, 3 * TILE + 7] {
            let numbers: Vec<i32> = (0..len as i32).collect();
            let inputs = vec![bytes(&numbers, i32::to_ne_bytes); 3];
            let tripled: Vec<i32> = numbers.iter().map(|x| 3 * x).collect();
            assert_eq!(sum_of(Element::I32, &inputs), bytes(&tripled, i32::to_ne_bytes), "{len}");
        }
    }

    #[test]
    fn one_ranks_sum_is_its_input_bit_by_bit() {
        let odd = bytes(&[f32::from_bits(0x7FA0_1234), -0.0], f32::to_ne_bytes); // a signalling NaN, a negative zero
        assert_eq!(sum_of(Element::F32, std::slice::from_ref(&odd)), odd);
    }
}
