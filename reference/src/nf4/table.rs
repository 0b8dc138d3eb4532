//! The two tables, as bit patterns.
//!
//! Both are embedded rather than generated: the 16 values are quantiles of the normal distribution and the
//! 256 are a float-like grid of steps, and what a generator yields in the last place depends on the host's
//! rounding. Bits do not.

/// The 16 values of the NormalFloat data type: ascending, -1 to 1, zero at index 7.
///
/// Eight values below and nine from zero up are quantiles of N(0, 1), scaled to end at -1 and 1
/// (QLoRA, section 3 and appendix E).
pub const NF4: [f32; 16] = from_bits(NF4_BITS);

/// The 256 values of the second level, the 8-bit "dynamic" map: ascending, zero at index 127, 1 at 255.
///
/// Index i < 127 holds the negative of index 254 - i, so that -1 is missing: 127 values on either side of
/// zero, and one more on top (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022).
pub const CODE2: [f32; 256] = mirrored(&CODE2_ABOVE_ZERO);

/// The values of a table of bit patterns.
const fn from_bits<const N: usize>(bits: [u32; N]) -> [f32; N] {
    let mut values = [0.0; N];
    let mut i = 0;
    while i < N {
        values[i] = f32::from_bits(bits[i]);
        i += 1;
    }
    values
}

/// A whole map from the 127 values between zero and one.
const fn mirrored(above_zero: &[u32; 127]) -> [f32; 256] {
    let above = from_bits(*above_zero);
    let mut values = [0.0; 256];
    let mut i = 0;
    while i < 127 {
        values[128 + i] = above[i];
        values[126 - i] = -above[i];
        i += 1;
    }
    values[255] = 1.0;
    values
}

const NF4_BITS: [u32; 16] = [
    0xbf800000, 0xbf3239b1, 0xbf066b30, 0xbeca32a0, 0xbe91a24d, 0xbe3d353f, 0xbdba7871, 0x00000000,
    0x3da2faff, 0x3e24cae3, 0x3e7c04dd, 0x3ead033a, 0x3ee1a4b8, 0x3f1007ab, 0x3f3913b3, 0x3f800000,
];

const CODE2_ABOVE_ZERO: [u32; 127] = [
    0x3513a3b7, 0x365a1a94, 0x370205ff, 0x37b24206, 0x38378034, 0x388aefb3, 0x38ba1f4b, 0x3923d70b,
    0x398ce705, 0x39c7e283, 0x3a016f01, 0x3a1eecc1, 0x3a3c6a80, 0x3a59e83e, 0x3a7765ff, 0x3aa7ef9d,
    0x3af1a9fc, 0x3b1db22d, 0x3b428f5c, 0x3b676c8a, 0x3b8624dd, 0x3b989374, 0x3bab020d, 0x3bbd70a4,
    0x3bcfdf3b, 0x3be24dd3, 0x3bf4bc6a, 0x3c039581, 0x3c0ccccd, 0x3c160418, 0x3c1f3b64, 0x3c3ae148,
    0x3c68f5c3, 0x3c8b851f, 0x3ca28f5d, 0x3cb9999a, 0x3cd0a3d7, 0x3ce7ae15, 0x3cfeb852, 0x3d0ae148,
    0x3d166667, 0x3d21eb85, 0x3d2d70a3, 0x3d38f5c3, 0x3d447ae1, 0x3d500000, 0x3d5b851f, 0x3d670a3d,
    0x3d728f5d, 0x3d7e147b, 0x3d84cccd, 0x3d8a8f5d, 0x3d9051eb, 0x3d96147b, 0x3d9bd70a, 0x3da1999a,
    0x3da75c2a, 0x3dad1eb8, 0x3db2e148, 0x3db8a3d7, 0x3dbe6667, 0x3dc428f7, 0x3dc9eb85, 0x3ddb3334,
    0x3df80000, 0x3e0a6666, 0x3e18cccd, 0x3e273333, 0x3e35999a, 0x3e440000, 0x3e526666, 0x3e60cccd,
    0x3e6f3333, 0x3e7d9999, 0x3e860000, 0x3e8d3334, 0x3e946666, 0x3e9b999a, 0x3ea2cccc, 0x3eaa0000,
    0x3eb13333, 0x3eb86666, 0x3ebf999a, 0x3ec6cccc, 0x3ece0000, 0x3ed53333, 0x3edc6666, 0x3ee3999a,
    0x3eeacccc, 0x3ef20000, 0x3ef93332, 0x3f003333, 0x3f03cccc, 0x3f076666, 0x3f0b0000, 0x3f0e999a,
    0x3f123334, 0x3f15cccd, 0x3f196666, 0x3f1d0000, 0x3f20999a, 0x3f243334, 0x3f27cccd, 0x3f2b6666,
    0x3f2f0000, 0x3f32999a, 0x3f363334, 0x3f39cccd, 0x3f3d6666, 0x3f410000, 0x3f44999a, 0x3f483333,
    0x3f4bcccd, 0x3f4f6666, 0x3f530000, 0x3f56999a, 0x3f5a3333, 0x3f5dcccd, 0x3f616666, 0x3f650000,
    0x3f68999a, 0x3f6c3333, 0x3f6fcccd, 0x3f736666, 0x3f770000, 0x3f7a999a, 0x3f7e3333,
];

/// What a search by bisection rests on: every table is strictly ascending.
const fn ascends(table: &[f32]) -> bool {
    let mut i = 1;
    while i < table.len() && table[i - 1] < table[i] {
        i += 1;
    }
    i == table.len()
}

const _: () = assert!(ascends(&NF4) && NF4[0] == -1.0 && NF4[7] == 0.0 && NF4[15] == 1.0);
const _: () = assert!(ascends(&CODE2) && CODE2[127] == 0.0 && CODE2[255] == 1.0);
