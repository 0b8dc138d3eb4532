//! The physical bound of a pass: stream so many bytes in and so many out, and do nothing else.
//!
//! A kernel that touches every input and output byte once cannot be faster than the memory system moves
//! them. How fast that is depends on the mix: an ordinary store first reads the line that it will
//! overwrite, and hides as a third kind of traffic; a streaming (non-temporal) store does not. So the
//! bound is measured, for the case's own mix, with streaming stores, on all threads: [`stream`] reads all
//! of `source` while it writes all of `out`, both at the case's proportion throughout.
//!
//! Source: Intel 64 and IA-32 Architectures Optimization Reference Manual, "Non-temporal stores".

#![allow(unsafe_code)] // vector code: streaming stores have no safe form

use super::{Cpu, Vector};

const LINE: usize = 64; // bytes of a cache line
const WORDS: usize = LINE / 2; // 16-bit words of a line

/// Reads every whole line of `source` and writes all of `out`, side by side, on all threads of `cpu`.
///
/// `out` (16-bit words) is best aligned to 64 bytes; an unaligned head or tail is filled by plain stores. Its
/// contents afterwards mean nothing.
pub fn stream(cpu: &Cpu, source: &[u8], out: &mut [u16]) {
    let (total, lines_in) = (out.len(), source.len() / LINE);
    cpu.launch(out, WORDS, |first, piece| {
        let begin = (first as u128 * lines_in as u128 / total.max(1) as u128) as usize;
        let end = ((first + piece.len()) as u128 * lines_in as u128 / total.max(1) as u128) as usize;
        piece_of(cpu.vector(), &source[begin * LINE..end * LINE], piece);
    });
}

/// Fills one piece while reading its share of the source.
fn piece_of(vector: Vector, source: &[u8], out: &mut [u16]) {
    let head = out.as_ptr().align_offset(LINE).min(out.len());
    let (head, body) = out.split_at_mut(head);
    let (body, tail) = body.split_at_mut(body.len() / WORDS * WORDS);
    head.fill(1);
    tail.fill(1);
    match vector {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the device offers `Avx512` only where the machine has it; `body` is whole aligned lines.
        Vector::Avx512 => unsafe { lines_avx512(source, body) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above for AVX2.
        Vector::Avx2 => unsafe { lines_avx2(source, body) },
        _ => lines_portable(source, body),
    }
}

/// Plain stores: all that portable Rust has. On Arm these are what the machine's own copy uses too.
fn lines_portable(source: &[u8], out: &mut [u16]) {
    let mut lines = source.chunks_exact(LINE);
    let (mut due, every) = (0, out.len() / WORDS);
    let mut sum = [0u16; WORDS];
    for line in out.chunks_exact_mut(WORDS) {
        due += source.len() / LINE;
        while due >= every.max(1) {
            due -= every;
            let Some(read) = lines.next() else { break };
            for (sum, word) in sum.iter_mut().zip(read.as_chunks::<2>().0) {
                *sum ^= u16::from_ne_bytes(*word);
            }
        }
        line.copy_from_slice(&sum);
    }
}

/// One 64-byte streaming store a line.
///
/// # Safety
/// The machine has AVX-512 F; `out` begins on a line and is whole lines.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn lines_avx512(source: &[u8], out: &mut [u16]) {
    use core::arch::x86_64::{
        __m512i, _mm_sfence, _mm512_loadu_si512, _mm512_setzero_si512, _mm512_stream_si512, _mm512_xor_si512,
    };
    let (every, given) = (out.len() / WORDS, source.len() / LINE);
    let (mut due, mut next) = (0, 0);
    let mut sum = _mm512_setzero_si512();
    for line in 0..every {
        due += given;
        while due >= every {
            due -= every;
            // SAFETY: `next` counts at most `given` whole lines of `source`.
            sum =
                _mm512_xor_si512(sum, unsafe { _mm512_loadu_si512(source.as_ptr().add(next * LINE).cast()) });
            next += 1;
        }
        // SAFETY: `line` is one of `every` whole, aligned lines of `out`.
        unsafe { _mm512_stream_si512(out.as_mut_ptr().add(line * WORDS).cast::<__m512i>(), sum) };
    }
    _mm_sfence(); // without it the lines may still wait in the fill buffers when the clock stops
}

/// Two 32-byte streaming stores a line.
///
/// # Safety
/// The machine has AVX2; `out` begins on a line and is whole lines.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn lines_avx2(source: &[u8], out: &mut [u16]) {
    use core::arch::x86_64::{
        __m256i, _mm_sfence, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_stream_si256, _mm256_xor_si256,
    };
    let (every, given) = (out.len() / WORDS, source.len() / LINE);
    let (mut due, mut next) = (0, 0);
    let mut sum = _mm256_setzero_si256();
    for line in 0..every {
        due += given;
        while due >= every {
            due -= every;
            // SAFETY: `next` counts at most `given` whole lines of `source`.
            let from = unsafe { source.as_ptr().add(next * LINE).cast::<__m256i>() };
            // SAFETY: both halves of that line.
            let (low, high) = unsafe { (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1))) };
            sum = _mm256_xor_si256(sum, _mm256_xor_si256(low, high));
            next += 1;
        }
        // SAFETY: `line` is one of `every` whole, aligned lines of `out`.
        unsafe {
            let to = out.as_mut_ptr().add(line * WORDS).cast::<__m256i>();
            _mm256_stream_si256(to, sum);
            _mm256_stream_si256(to.add(1), sum);
        }
    }
    _mm_sfence(); // as above
}
