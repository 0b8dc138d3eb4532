//! Where CUDA's libraries are.

use std::fmt;
use std::path::PathBuf;

/// A library of CUDA that is opened when it is first needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// libcuda.
    Driver,
    /// The run-time compiler.
    Nvrtc,
}

/// A library that was found and opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub kind: Kind,
    /// Where.
    pub path: PathBuf,
    /// Version.
    pub version: Option<(i32, i32)>,
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFound(String);

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl NotFound {
    /// The line that mends it.
    pub fn fix(&self) -> String {
        String::new()
    }
}

/// Opens a library.
pub fn open(kind: Kind) -> Result<&'static Found, NotFound> {
    use std::sync::OnceLock;
    static D: OnceLock<Found> = OnceLock::new();
    static N: OnceLock<Found> = OnceLock::new();
    // SAFETY: only asks whether the library can be opened.
    let present = unsafe {
        match kind {
            Kind::Driver => cudarc::driver::sys::is_culib_present(),
            Kind::Nvrtc => cudarc::nvrtc::sys::is_culib_present(),
        }
    };
    let cell = if kind == Kind::Driver { &D } else { &N };
    if present {
        return Ok(cell.get_or_init(|| Found { kind, path: PathBuf::new(), version: None }));
    }
    Err(NotFound(format!("no {kind:?}")))
}
