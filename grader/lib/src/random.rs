//! Random numbers that are the same everywhere: a report's seed reproduces its inputs for good.
//!
//! `SplitMix64` (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014). A library's
//! generator may change its stream with a version; a replayed case must not.

/// A generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts a stream.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream for something that has a name: equal seeds and names give equal streams.
    pub fn named(seed: u64, name: &str) -> Self {
        let folded = name.bytes().fold(seed, |hash, byte| Self(hash ^ u64::from(byte)).next_u64());
        Self(folded)
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in 0..n. The bias of at most n / 2^64 is of no consequence here.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "a number below nothing");
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.fill(&mut bytes);
        bytes
    }

    /// Overwrites with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }
}

/// A stream that no seed reproduces, from the system: what an attempt must not foresee is drawn with it. Whoever
/// sees one of its numbers can work out those that follow, so each purpose gets a stream of its own.
pub fn unforeseen() -> Result<Random, String> {
    let seed = getrandom::u64().map_err(|error| format!("the system gives no random bits: {error}"))?;
    Ok(Random::new(seed))
}

/// A seed that no attempt can know in advance: from the hash keys that the system hands each process.
pub fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
