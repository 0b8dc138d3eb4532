//! A place in a file that numbers are read from, never past its end.

use super::{Endian, MAGIC, Problem};

/// The versions that are read.
const VERSIONS: [u32; 2] = [2, 3];

/// The longest name of a key or a tensor, in bytes.
const LONGEST_NAME: u64 = u16::MAX as u64;

/// A file, read from its begin on.
pub(super) struct Cursor<'a> {
    file: &'a [u8],
    at: usize,
    endian: Endian,
}

macro_rules! numbers {
    ($($name:ident),+) => { $(
        pub fn $name(&mut self) -> Result<$name, Problem> {
            let bytes = *self.array()?;
            Ok(match self.endian {
                Endian::Little => $name::from_le_bytes(bytes),
                Endian::Big => $name::from_be_bytes(bytes),
            })
        }
    )+ };
}

impl<'a> Cursor<'a> {
    pub fn new(file: &'a [u8]) -> Self {
        Self { file, at: 0, endian: Endian::Little }
    }

    numbers!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

    /// Bytes before it.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The order that [`begin`](Self::begin) found.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// The magic and the version, which says how numbers are written.
    pub fn begin(&mut self) -> Result<u32, Problem> {
        let magic = *self.array::<4>()?;
        if magic != MAGIC {
            return Err(Problem::Magic { got: magic });
        }
        let version = self.u32()?;
        if version.trailing_zeros() >= 16 {
            // read the wrong way round, versions below 65536 end in 16 zeros
            self.endian = Endian::Big;
        }
        let version = if self.endian == Endian::Big { version.swap_bytes() } else { version };
        if VERSIONS.contains(&version) { Ok(version) } else { Err(Problem::Version { got: version }) }
    }

    /// So many things of `least` bytes each, if the rest of the file could hold them.
    pub fn count(&self, what: &'static str, count: u64, least: usize) -> Result<usize, Problem> {
        let left = self.file.len() - self.at;
        let most = (left / least) as u64;
        if count > most {
            return Err(Problem::Count { what, got: count, left });
        }
        Ok(count as usize)
    }

    pub fn string(&mut self) -> Result<String, Problem> {
        let length = self.u64()?;
        let length = self.count("bytes of a string", length, 1)?;
        let at = self.at;
        let bytes = self.bytes(length)?.to_vec();
        String::from_utf8(bytes).map_err(|_| Problem::Utf8 { at })
    }

    /// The name of a key or a tensor.
    pub fn name(&mut self, of: &'static str) -> Result<String, Problem> {
        let at = self.at;
        let length = self.u64()?;
        if !(1..=LONGEST_NAME).contains(&length) {
            return Err(Problem::NameLength { of, got: length });
        }
        self.at = at;
        self.string()
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Problem> {
        let at = self.at;
        let ended = Problem::Ended { at, need: N, len: self.file.len() };
        let found = self.file[at..].first_chunk().ok_or(ended)?;
        self.at += N;
        Ok(found)
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Problem> {
        let ended = Problem::Ended { at: self.at, need: count, len: self.file.len() };
        let found = self.file[self.at..].get(..count).ok_or(ended)?;
        self.at += count;
        Ok(found)
    }
}
