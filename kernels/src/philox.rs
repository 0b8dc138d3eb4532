//! Random numbers without a state: Philox 4x32-10, as a lane draws it.
//!
//! The oracle is `reference::philox`, which explains it; a test holds the two equal, and both equal to the authors'
//! known answers. Everything is arithmetic of 32 and 64 bits without a branch, so the compiler makes vector code of it.
//!
//! Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).

/// The first word at the counter (index, stream, 0, 0).
#[inline(always)]
#[allow(clippy::inline_always)] // a body becomes vector code only inside the function compiled for a unit
pub fn first_word(index: u32, stream: u32, key: [u32; 2]) -> u32 {
    let (mut c, mut key) = ([index, stream, 0, 0], key);
    for _ in 0..10 {
        let first = u64::from(c[0]) * 0xD251_1F53;
        let third = u64::from(c[2]) * 0xCD9E_8D57;
        c = [
            (third >> 32) as u32 ^ c[1] ^ key[0],
            third as u32,
            (first >> 32) as u32 ^ c[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    c[0]
}
