//! Vector units, found at run time.

use std::ffi::OsString;
use std::fmt;
use std::sync::LazyLock;

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

/// The environment variable that holds a process to a narrower unit than its machine has, so that a fast machine can
/// measure what a plain one does. It is read once.
pub const VECTOR_VARIABLE: &str = "WARPBOOK_VECTOR";

static ASKED: LazyLock<Option<OsString>> = LazyLock::new(|| std::env::var_os(VECTOR_VARIABLE));

/// Whether the machine has every feature that a unit's code is compiled for.
#[cfg(target_arch = "x86_64")]
macro_rules! has {
    ($($feature:tt),+) => { $(is_x86_feature_detected!($feature))&&+ };
}

impl Vector {
    /// Every unit that this process may use, narrowest first: those of the machine up to [`Self::limit`]. `Portable` is
    /// always there.
    pub fn available() -> Vec<Self> {
        let mut units = Self::of_machine();
        if let Ok(Some(limit)) = Self::limit() {
            units.retain(|unit| *unit <= limit);
        }
        units
    }

    /// Every unit of this machine, narrowest first.
    pub fn of_machine() -> Vec<Self> {
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

    /// The widest unit that this process may use.
    pub fn widest() -> Self {
        Self::available().into_iter().max().unwrap_or(Self::Portable)
    }

    /// The unit to which [`VECTOR_VARIABLE`] holds this process; `None` if it is not set.
    ///
    /// # Errors
    /// If the variable names no unit of this machine. A program checks that before it begins.
    pub fn limit() -> Result<Option<Self>, String> {
        ASKED.as_ref().map(|asked| named(&asked.to_string_lossy(), &Self::of_machine())).transpose()
    }
}

/// The unit of that name among those of a machine.
fn named(asked: &str, units: &[Vector]) -> Result<Vector, String> {
    let name = |unit: Vector| unit.to_string().to_lowercase();
    units.iter().find(|unit| name(**unit) == asked.to_lowercase()).copied().ok_or_else(|| {
        let names: Vec<String> = units.iter().map(|unit| name(*unit)).collect();
        format!(
            "{VECTOR_VARIABLE}: expected a vector unit of this machine ({}), found {asked:?}",
            names.join(", ")
        )
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_found_by_its_name() {
        let units = [Vector::Portable, Vector::Avx2, Vector::Avx512];
        for (name, unit) in [("portable", units[0]), ("AVX2", units[1]), ("avx-512", units[2])] {
            assert_eq!(named(name, &units), Ok(unit));
        }
    }

    #[test]
    fn an_unknown_unit_is_an_error() {
        for name in ["", "neon", "avx512", "avx2 ", "1"] {
            let message = named(name, &[Vector::Portable, Vector::Avx2]).expect_err(name);
            assert!(
                message.starts_with("WARPBOOK_VECTOR: expected") && message.contains("portable, avx2"),
                "{message}"
            );
            assert!(message.ends_with(&format!("found {name:?}")), "{message}");
        }
    }
}
