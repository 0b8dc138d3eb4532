//! Vector units, found at run time.

use std::fmt;

/// A vector instruction set that a kernel may be written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vector {
    /// None: the code that the compiler makes of plain Rust.
    Portable,
    /// 128-bit Arm Advanced SIMD.
    Neon,
    /// 256-bit AVX2 with F16C.
    Avx2,
    /// 512-bit AVX-512 F, BW, VL and DQ with F16C.
    Avx512,
}

/// Whether the machine has every feature that a unit's code is compiled for.
#[cfg(target_arch = "x86_64")]
macro_rules! has {
    ($($feature:tt),+) => { $(is_x86_feature_detected!($feature))&&+ };
}

impl Vector {
    /// Every unit of this machine, narrowest first; `Portable` always.
    pub fn available() -> Vec<Self> {
        let mut units = vec![Self::Portable];
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            units.push(Self::Neon);
        }
        #[cfg(target_arch = "x86_64")]
        {
            if has!("avx2", "f16c") {
                units.push(Self::Avx2);
            }
            if has!("avx512f", "avx512bw", "avx512vl", "avx512dq", "f16c") {
                units.push(Self::Avx512);
            }
        }
        units
    }

    /// The widest unit of this machine.
    pub fn widest() -> Self {
        Self::available().into_iter().max().unwrap_or(Self::Portable)
    }
}

impl fmt::Display for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Neon => "NEON",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
        })
    }
}
