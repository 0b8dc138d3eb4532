//! (A) `nf4`: dequantise NF4 in one fused kernel.

#![allow(unsafe_code)] // vector instructions and streaming stores have no safe form

use challenges::nf4::{Absmax, Nf4, Output, Weight};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use kernels::{Cpu, Vector};

/// The attempt.
pub struct Solution;

impl Nf4 for Solution {
    // ANCHOR: nf4-step-1
    // why: element e lives in byte e / 2, so even elements take the high nibble and odd ones the low. Going
    // over the codes, not over the bytes, makes an odd length end by itself on a high nibble.
    // step A.1: split each byte into its two codes, high nibble first
    fn unpack(&self, packed: &[u8], codes: &mut [u8]) {
        for (e, code) in codes.iter_mut().enumerate() {
            let byte = packed[e / 2];
            *code = if e % 2 == 0 { byte >> 4 } else { byte & 15 };
        }
    }
    // ANCHOR_END: nf4-step-1

    // ANCHOR: nf4-step-2
    // why: the 16 values are the quantiles of a normal distribution; there is no formula to evaluate, only a
    // table to read. It is handed in because a checkpoint may carry its own.
    // step A.2: replace each code by its table value
    fn look_up(&self, codes: &[u8], table: &[f32; 16], values: &mut [f32]) {
        for (value, code) in values.iter_mut().zip(codes) {
            *value = table[*code as usize];
        }
    }
    // ANCHOR_END: nf4-step-2

    // ANCHOR: nf4-step-3
    // why: the table spans -1 to 1, the block's scale is its largest magnitude. One multiplication, rounded
    // to f32; the codes never need a buffer of their own.
    // step A.3: multiply one block's table values by the block's scale
    fn block(&self, packed: &[u8], table: &[f32; 16], absmax: f32, values: &mut [f32]) {
        for (pair, byte) in values.chunks_mut(2).zip(packed) {
            pair[0] = table[(byte >> 4) as usize] * absmax;
            if let Some(odd) = pair.get_mut(1) {
                *odd = table[(byte & 15) as usize] * absmax;
            }
        }
    }
    // ANCHOR_END: nf4-step-3

    // ANCHOR: nf4-step-4
    // why: two roundings, so two statements. `mul_add` would keep the product's extra bits and change a
    // few f16 outputs in a million and about one of bf16: near enough for a tolerance, and not the format.
    // step A.4: find a block's scale, through both levels where it is quantised itself
    fn absmax(&self, absmax: &Absmax<'_>, block: usize) -> f32 {
        match absmax {
            Absmax::Single(scales) => scales[block],
            Absmax::Double { codes, table, scales, block_size, offset } => {
                let group = block >> block_size.trailing_zeros(); // a power of two: a shift, no division
                let scaled = table[codes[block] as usize] * scales[group];
                scaled + offset
            }
        }
    }
    // ANCHOR_END: nf4-step-4

    // ANCHOR: nf4-step-5
    // why: one launch over the output; whoever owns a piece of it finds everything else from the piece's
    // first index. The scale is worked out once a block, where it is needed, so nothing is stored between
    // input and output.
    // step A.5: dequantise the whole weight in one pass, rounded once to the output's type
    fn dequantize(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        match out {
            Output::F16(out) => self.pass(cpu, weight, out, f16::from_f32),
            Output::Bf16(out) => self.pass(cpu, weight, out, bf16::from_f32),
            Output::F32(out) => self.pass(cpu, weight, out, |w| w),
        }
    }
    // ANCHOR_END: nf4-step-5

    // ANCHOR: nf4-step-6
    // why: a block's 64 outputs take only 16 different values. Multiply and round those 16 once, keep them
    // in a register, and an output is one shuffle of its code: no conversion and no multiplication is left in
    // the inner loop, and the pass waits for memory alone. f16 and bf16 then differ in the rounding of 16
    // numbers a block; both outputs are 16-bit patterns. f32 outputs are their own table.
    // step A.6: the same bits with vector instructions, streaming stores and all threads
    fn dequantize_fast(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        match out {
            Output::F16(out) => fast(cpu, weight, Kind::F16, out.reinterpret_cast_mut()),
            Output::Bf16(out) => fast(cpu, weight, Kind::Bf16, out.reinterpret_cast_mut()),
            Output::F32(out) => self.pass(cpu, weight, out, |w| w),
        }
    }
    // ANCHOR_END: nf4-step-6
}

impl Solution {
    // step A.5: cut the output into blocks; scale, multiply and round each block's elements
    fn pass<T: Send>(&self, cpu: &Cpu, weight: &Weight<'_>, out: &mut [T], round: impl Fn(f32) -> T + Sync) {
        cpu.launch(out, weight.block_size, |first, piece| {
            for (b, block) in piece.chunks_mut(weight.block_size).enumerate() {
                let begin = first + b * weight.block_size;
                let scale = self.absmax(&weight.absmax, begin / weight.block_size);
                for (pair, byte) in block.chunks_mut(2).zip(&weight.packed[begin / 2..]) {
                    pair[0] = round(weight.table[(byte >> 4) as usize] * scale);
                    if let Some(odd) = pair.get_mut(1) {
                        *odd = round(weight.table[(byte & 15) as usize] * scale);
                    }
                }
            }
        });
    }
}

/// The 16-bit type whose bit patterns a block's table holds.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    F16,
    Bf16,
}

/// One thread's share: `out` begins with block number `block`, and `packed` with that block's codes.
struct Piece<'a> {
    weight: &'a Weight<'a>,
    kind: Kind,
    block: usize,
    packed: &'a [u8],
    out: &'a mut [u16],
}

// why: the vector unit is asked for once a piece, not once a block: the whole loop then lives inside one
// `#[target_feature]` function, and everything it calls can be inlined.
// step A.6: one launch; each piece goes to the loop written for the vector unit that `cpu` names
fn fast(cpu: &Cpu, weight: &Weight<'_>, kind: Kind, out: &mut [u16]) {
    cpu.launch(out, weight.block_size, |first, out| {
        let packed = &weight.packed[first / 2..];
        let piece = Piece { weight, kind, block: first / weight.block_size, packed, out };
        match cpu.vector() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the device names a vector unit only where the machine has it.
            Vector::Avx512 => unsafe { piece_avx512(piece) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Vector::Avx2 => unsafe { piece_avx2(piece) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Vector::Neon => unsafe { piece_neon(piece) },
            _ => piece_portable(piece),
        }
    });
}

// why: the meaning of the vector loops, and the path of machines without a vector unit.
// step A.6: the loop without vector instructions
fn piece_portable(piece: Piece<'_>) {
    let Piece { weight, kind, block, packed, out } = piece;
    let size = weight.block_size;
    for ((block, packed), out) in (block..).zip(packed.chunks(size / 2)).zip(out.chunks_mut(size)) {
        let scale = Solution.absmax(&weight.absmax, block);
        let results = weight.table.map(|value| round(kind, value * scale)); // all that this block can hold
        for (pair, byte) in out.chunks_mut(2).zip(packed) {
            pair[0] = results[(byte >> 4) as usize];
            if let Some(odd) = pair.get_mut(1) {
                *odd = results[(byte & 15) as usize];
            }
        }
    }
}

// step A.6: one value to the output's type, nearest even, as its bits
fn round(kind: Kind, value: f32) -> u16 {
    match kind {
        Kind::F16 => f16::from_f32(value).to_bits(),
        Kind::Bf16 => bf16::from_f32(value).to_bits(),
    }
}

// why: 16 bytes hold 32 codes, which make one 64-byte line of outputs. A block is a power of two of lines, so
// the loop runs over lines and works out a new table whenever a block begins: nothing in it depends on a
// length, and what is left at the end, less than a line, goes the portable way.
//
// Each 16-bit word of packed bytes (b0, b1) is copied to four lanes and shifted by 4, 0, 12, 8, which leaves
// the codes b0 high, b0 low, b1 high, b1 low in the lanes' low four bits. VPERMW reads five bits of an index;
// the table stands twice in its register, so the fifth does not matter and nothing needs masking. Three
// instructions make a line.
//
// The line is stored past the caches (VMOVNTDQ): an ordinary store would first read the line that it is about
// to overwrite, and the output is too large to be found in a cache later anyway.
// step A.6: the loop with AVX-512: 32 outputs by one 16-bit permutation, one streaming store
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
unsafe fn piece_avx512(piece: Piece<'_>) {
    use core::arch::x86_64::*;
    let Piece { weight, kind, block, packed, out } = piece;
    let aligned = out.as_ptr().align_offset(64) == 0;
    let word_of_lane = _mm512_set_epi64(
        0x0007_0007_0007_0007,
        0x0006_0006_0006_0006,
        0x0005_0005_0005_0005,
        0x0004_0004_0004_0004,
        0x0003_0003_0003_0003,
        0x0002_0002_0002_0002,
        0x0001_0001_0001_0001,
        0,
    ); // (32,) u16: 0 0 0 0 1 1 1 1 ...
    let shift_of_lane = _mm512_set1_epi64(0x0008_000c_0000_0004); // (32,) u16: 4 0 12 8 ...
    // SAFETY: 16 floats.
    let values = unsafe { _mm512_loadu_ps(weight.table.as_ptr()) }; // (16,) f32
    let lines_log2 = (weight.block_size / 32).trailing_zeros(); // lines of a block
    let (lines, tail) = out.as_chunks_mut::<32>();
    let mut table = _mm512_setzero_si512(); // (32,) u16: a block's 16 results, twice
    for (i, (line, codes)) in lines.iter_mut().zip(packed.as_chunks::<16>().0).enumerate() {
        if i & ((1 << lines_log2) - 1) == 0 {
            let scale = Solution.absmax(&weight.absmax, block + (i >> lines_log2));
            let products = _mm512_mul_ps(values, _mm512_set1_ps(scale));
            let results = match kind {
                Kind::F16 => _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(products),
                Kind::Bf16 => round_to_bf16_avx512(products),
            }; // (16,) u16
            table = _mm512_broadcast_i64x4(results);
        }
        // SAFETY: `codes` is 16 bytes.
        let bytes = unsafe { _mm_loadu_si128(codes.as_ptr().cast()) };
        let words = _mm512_permutexvar_epi16(word_of_lane, _mm512_castsi128_si512(bytes));
        let outputs = _mm512_permutexvar_epi16(_mm512_srlv_epi16(words, shift_of_lane), table);
        // SAFETY: `line` is 64 bytes; streaming only where every line is aligned.
        unsafe {
            if aligned {
                _mm512_stream_si512(line.as_mut_ptr().cast(), outputs);
            } else {
                _mm512_storeu_si512(line.as_mut_ptr().cast(), outputs);
            }
        }
    }
    _mm_sfence(); // without it the last lines may still be on their way when the launch returns
    let done = lines.len();
    piece_portable(Piece {
        weight,
        kind,
        block: block + (done >> lines_log2),
        packed: &packed[done * 16..],
        out: tail,
    });
}

// why: VCVTNEPS2BF16 flushes subnormals, so the rounding is done on the bits: add half a unit in the last
// place, a hair less where the kept bit is even, and cut. A NaN keeps its sign and payload and becomes quiet.
// step A.6: 16 floats to bfloat16 bits, nearest even
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn round_to_bf16_avx512(values: core::arch::x86_64::__m512) -> core::arch::x86_64::__m256i {
    use core::arch::x86_64::*;
    let bits = _mm512_castps_si512(values);
    let cut = _mm512_srli_epi32::<16>(bits);
    let kept = _mm512_and_si512(cut, _mm512_set1_epi32(1));
    let half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), kept);
    let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, half));
    let quiet = _mm512_or_si512(cut, _mm512_set1_epi32(0x40));
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values);
    _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet))
}

// why: AVX2 has no permutation of 16-bit lanes, but VPSHUFB looks up 16 bytes at once: once for the results'
// low bytes, once for their high bytes, and an interleave puts them together. Shuffle and interleave work within
// 128-bit halves, so the codes are laid out for that: a first VPSHUFB writes each byte twice, bytes 0 to 3 and 8 to
// 11 into the lower half, 4 to 7 and 12 to 15 into the upper one. The interleave's low results are then outputs 0
// to 15 in order, its high ones 16 to 31. Of a byte's two copies the first gives its high nibble and the second its
// low one, by a shift and a mask of the pair.
//
// The processor prefetches lines on its own, but streaming stores keep it busy, so the loop prefetches its codes.
// step A.6: the loop with AVX2: 32 outputs by two byte shuffles, two streaming stores
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn piece_avx2(piece: Piece<'_>) {
    use core::arch::x86_64::*;
    const AHEAD: usize = 1024; // bytes between the codes that are asked for and those that are used
    let Piece { weight, kind, block, packed, out } = piece;
    let aligned = out.as_ptr().align_offset(32) == 0;
    // SAFETY: 16 floats.
    let (first8, last8) =
        unsafe { (_mm256_loadu_ps(weight.table.as_ptr()), _mm256_loadu_ps(weight.table.as_ptr().add(8))) };
    let twice = _mm256_set_epi64x(
        0x0f0f_0e0e_0d0d_0c0c,
        0x0707_0606_0505_0404,
        0x0b0b_0a0a_0909_0808,
        0x0303_0202_0101_0000,
    ); // (32,) u8: 0 0 1 1 2 2 3 3 8 8 ...
    let (low_nibble, high_nibble) = (_mm256_set1_epi16(0x000f), _mm256_set1_epi16(0x0f00));
    let lines_log2 = (weight.block_size / 32).trailing_zeros(); // lines of a block
    let (lines, tail) = out.as_chunks_mut::<32>();
    let (mut low, mut high) = (_mm256_setzero_si256(), _mm256_setzero_si256()); // (16,) u8, twice
    for (i, (line, codes)) in lines.iter_mut().zip(packed.as_chunks::<16>().0).enumerate() {
        if i & ((1 << lines_log2) - 1) == 0 {
            _mm_prefetch::<_MM_HINT_T0>(codes.as_ptr().wrapping_add(AHEAD).cast());
            let scale = _mm256_set1_ps(Solution.absmax(&weight.absmax, block + (i >> lines_log2)));
            (low, high) = table_avx2(kind, _mm256_mul_ps(first8, scale), _mm256_mul_ps(last8, scale));
        }
        // SAFETY: `codes` is 16 bytes.
        let bytes = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(codes.as_ptr().cast()) });
        let pairs = _mm256_shuffle_epi8(bytes, twice);
        let even = _mm256_and_si256(_mm256_srli_epi16::<4>(pairs), low_nibble);
        let codes = _mm256_or_si256(even, _mm256_and_si256(pairs, high_nibble)); // (32,) u8
        let (lows, highs) = (_mm256_shuffle_epi8(low, codes), _mm256_shuffle_epi8(high, codes));
        let front = _mm256_unpacklo_epi8(lows, highs); // outputs 0 to 15
        let back = _mm256_unpackhi_epi8(lows, highs); // outputs 16 to 31
        let to = line.as_mut_ptr().cast::<__m256i>();
        // SAFETY: `line` is 64 bytes; streaming only where every half line is aligned.
        unsafe {
            if aligned {
                _mm256_stream_si256(to, front);
                _mm256_stream_si256(to.add(1), back);
            } else {
                _mm256_storeu_si256(to, front);
                _mm256_storeu_si256(to.add(1), back);
            }
        }
    }
    _mm_sfence(); // as above
    let done = lines.len();
    piece_portable(Piece {
        weight,
        kind,
        block: block + (done >> lines_log2),
        packed: &packed[done * 16..],
        out: tail,
    });
}

// why: the results' bytes are brought together by a shuffle within the halves and by a permutation across them. An
// f16 is two bytes of a word, a bfloat16 the two upper bytes of the f32 that it is rounded in.
// step A.6: a block's 16 products to two tables: the results' low bytes, and their high ones
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn table_avx2(
    kind: Kind,
    first8: core::arch::x86_64::__m256,
    last8: core::arch::x86_64::__m256,
) -> (core::arch::x86_64::__m256i, core::arch::x86_64::__m256i) {
    use core::arch::x86_64::*;
    match kind {
        Kind::F16 => {
            let a = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(first8);
            let b = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(last8);
            let apart = _mm_set_epi64x(0x0f0d_0b09_0705_0301, 0x0e0c_0a08_0604_0200);
            let apart = _mm256_broadcastsi128_si256(apart); // lows of a, highs of a, lows of b, highs of b
            let bytes = _mm256_shuffle_epi8(_mm256_set_m128i(b, a), apart);
            (
                _mm256_permute4x64_epi64::<0b10_00_10_00>(bytes),
                _mm256_permute4x64_epi64::<0b11_01_11_01>(bytes),
            )
        }
        Kind::Bf16 => {
            let apart = _mm_set_epi64x(0x0f0b_0703_0f0b_0703, 0x0e0a_0602_0e0a_0602);
            let apart = _mm256_broadcastsi128_si256(apart); // four lows, twice, and four highs, twice; so each half
            let a = _mm256_shuffle_epi8(round_to_bf16_avx2(first8), apart);
            let b = _mm256_shuffle_epi8(round_to_bf16_avx2(last8), apart);
            let bytes = _mm256_blend_epi32::<0b1010_1010>(a, b); // lows of a, of b, highs of a, of b; so each half
            let lows = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5);
            let highs = _mm256_setr_epi32(2, 6, 3, 7, 2, 6, 3, 7);
            (_mm256_permutevar8x32_epi32(bytes, lows), _mm256_permutevar8x32_epi32(bytes, highs))
        }
    }
}

// why: as with AVX-512, on the bits; the result stays in the upper half of its lane. Here this is a third of the work
// on a block, so a NaN is not looked for: table and scales are finite, so a NaN can only come from inf - inf or 0 * inf,
// and the one that the processor makes then has zeros where the addition could carry.
// step A.6: 8 floats to bfloat16 bits, nearest even
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn round_to_bf16_avx2(values: core::arch::x86_64::__m256) -> core::arch::x86_64::__m256i {
    use core::arch::x86_64::*;
    let bits = _mm256_castps_si256(values);
    let kept = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    _mm256_add_epi32(bits, _mm256_add_epi32(_mm256_set1_epi32(0x7fff), kept))
}

// why: TBL is Arm's VPSHUFB: 16 bytes looked up at once, so the plan is AVX2's. A pair of vectors goes out by
// STNP, the store that asks the caches not to keep it.
// step A.6: the loop with NEON: 32 outputs by two byte tables, two non-temporal pair stores
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn piece_neon(piece: Piece<'_>) {
    use core::arch::aarch64::*;
    let Piece { weight, kind, block, packed, out } = piece;
    let lines_log2 = (weight.block_size / 32).trailing_zeros(); // lines of a block
    let (lines, tail) = out.as_chunks_mut::<32>();
    let (mut low, mut high) = (vdupq_n_u8(0), vdupq_n_u8(0)); // (16,) u8
    for (i, (line, codes)) in lines.iter_mut().zip(packed.as_chunks::<16>().0).enumerate() {
        if i & ((1 << lines_log2) - 1) == 0 {
            let scale = Solution.absmax(&weight.absmax, block + (i >> lines_log2));
            let results = weight.table.map(|value| round(kind, value * scale));
            // SAFETY: 32 bytes, taken apart into low and high ones.
            uint8x16x2_t(low, high) = unsafe { vld2q_u8(results.as_ptr().cast()) };
        }
        // SAFETY: `codes` is 16 bytes.
        let bytes = unsafe { vld1q_u8(codes.as_ptr()) };
        let (even, odd) = (vshrq_n_u8::<4>(bytes), vandq_u8(bytes, vdupq_n_u8(15)));
        for (half, codes) in [vzip1q_u8(even, odd), vzip2q_u8(even, odd)].into_iter().enumerate() {
            let (lows, highs) = (vqtbl1q_u8(low, codes), vqtbl1q_u8(high, codes));
            let (a, b) = (vzip1q_u8(lows, highs), vzip2q_u8(lows, highs));
            // SAFETY: 32 of the line's 64 bytes; STNP needs no alignment.
            unsafe {
                core::arch::asm!(
                    "stnp {a:q}, {b:q}, [{to}]",
                    a = in(vreg) a,
                    b = in(vreg) b,
                    to = in(reg) line.as_mut_ptr().add(half * 16),
                    options(nostack, preserves_flags),
                );
            }
        }
    }
    let done = lines.len();
    piece_portable(Piece {
        weight,
        kind,
        block: block + (done >> lines_log2),
        packed: &packed[done * 16..],
        out: tail,
    });
}
