//! Numbers for a fresh adapter.
//!
//! ```text
//! state <- state + 0x9e3779b97f4a7c15
//! z = state;  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;  z = (z ^ z >> 27) * 0x94d049bb133111eb;  z ^ z >> 31
//! ```
//!
//! Normal numbers are made of two uniform ones, by Box and Muller's formula.
//!
//! Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014), known as SplitMix64.

/// A stream of uniform numbers.
pub(super) struct Uniform(u64);

impl Uniform {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number of -1..1, a multiple of 2^-23: exact in f32.
    pub fn signed(&mut self) -> f64 {
        let steps = self.next() >> 40; // 24 bits
        steps as f64 / f64::from(1 << 23) - 1.0
    }

    /// The next number of a normal distribution around 0 with the standard deviation 1.
    pub fn normal(&mut self) -> f64 {
        let [radius, turn] = [0; 2].map(|_| f64::midpoint(self.signed(), 1.0)); // 0..1
        (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * turn).cos()
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
