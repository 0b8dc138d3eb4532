//! Random numbers without a state: Philox 4x32-10.
//!
//! A bijection of 128-bit counters, one for each 64-bit key, whose outputs pass every statistical battery: ten rounds
//! of
//!
//! ```text
//! (c0, c1, c2, c3) -> (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0))
//! (k0, k1)         -> (k0 + W0, k1 + W1)                                              between rounds
//! ```
//!
//! The number at a counter depends on the key and the counter alone, so whoever asks - another device, another rank, a
//! second pass over the same layer - gets the same bits, in any order.
//!
//! Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), section 3.2 and table 2.

/// Multipliers of the first and the third word.
pub const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];

/// What is added to the key between two rounds: the golden ratio and the square root of 3, less 1.
pub const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Number of rounds.
pub const ROUNDS: u32 = 10;

/// The four words at a counter.
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    (0..ROUNDS).fold(counter, |counter, number| {
        let key = [0, 1].map(|i| key[i].wrapping_add(WEYL[i].wrapping_mul(number)));
        round(counter, key)
    })
}

fn round([c0, c1, c2, c3]: [u32; 4], [k0, k1]: [u32; 2]) -> [u32; 4] {
    let [first, third] =
        [(MULTIPLIERS[0], c0), (MULTIPLIERS[1], c2)].map(|(m, c)| u64::from(m) * u64::from(c));
    let [high, low] = [|x: u64| (x >> 32) as u32, |x: u64| x as u32];
    [high(third) ^ c1 ^ k0, low(third), high(first) ^ c3 ^ k1, low(first)]
}

/// The least number that a word has to be below, for an event of that probability (0 to 1): exact where the probability
/// is a multiple of 2^-32, else rounded up to one.
pub fn threshold(probability: f64) -> u64 {
    (probability * 4_294_967_296.0).ceil() as u64
}

/// Element `index` of a mask: whether an event of that probability happens there. The counter is
/// `(index, stream, 0, 0)`, and the first word decides.
pub fn happens(key: [u32; 2], index: u32, stream: u32, probability: f64) -> bool {
    let [word, ..] = philox4x32_10([index, stream, 0, 0], key);
    u64::from(word) < threshold(probability)
}
