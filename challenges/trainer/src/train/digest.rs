//! SHA-256 in hexadecimal digits.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// That of a file, read once in parts.
pub fn of_file(path: &Path) -> io::Result<String> {
    let (mut file, mut hasher, mut part) = (File::open(path)?, Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut part)? {
            0 => return Ok(digits(hasher)),
            count => hasher.update(&part[..count]),
        }
    }
}

/// That of what was hashed.
pub fn digits(hasher: Sha256) -> String {
    hasher.finalize().iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}"); // a string takes everything
        digits
    })
}
