//! A second name for a library that is open.
//!
//! cudarc opens libraries by names of its own, and some are not to be had under them: NCCL's wheel has a
//! `libnccl.so.2` only; beside an old driver the compiler of CUDA 12 is wanted, and the loader's path has the
//! one of CUDA 13. The loader takes a library that is open already before it searches its path, and goes by
//! the name that is written inside (`DT_SONAME`). So an empty library is made that has the wanted name and
//! needs (`DT_NEEDED`) the right file: a function looked up in it is found in what it needs.
//!
//! Source: System V Application Binary Interface, chapters 4 (object files) and 5 (dynamic linking).

use std::path::Path;

use libloading::Library;

/// The empty library, open.
#[derive(Debug)]
pub(super) struct Alias(#[allow(dead_code)] Library); // held, never read

/// Makes the loader know the library `file` as `name` too.
#[cfg(target_os = "linux")]
pub(super) fn alias(name: &str, file: &Path) -> Result<Alias, String> {
    use std::os::unix::ffi::OsStrExt;

    use super::loader::{Opening, load};

    let image =
        image(name.as_bytes(), file.as_os_str().as_bytes()).ok_or("no second name on this processor")?;
    let describe = |error: std::io::Error| format!("a second name for it cannot be written: {error}");
    let folder = tempfile::Builder::new().prefix("warpbook-").tempdir().map_err(describe)?; // nobody else's
    let written = folder.path().join(name);
    let opened = std::fs::write(&written, image).map_err(describe).and_then(|()| {
        load(&written).map(Alias).map_err(|opening| match opening {
            Opening::Absent => "a second name for it is gone".into(),
            Opening::Refused { why, .. } => format!("a second name for it is refused: {why}"),
        })
    });
    let _ = folder.close(); // an open library needs no file
    opened
}

#[cfg(not(target_os = "linux"))]
pub(super) fn alias(name: &str, _: &Path) -> Result<Alias, String> {
    Err(format!("cudarc looks for {name} and finds another one, or none"))
}

/// A shared object without code, called `name`, that needs `file`. `None` on processors other than x86-64
/// and 64-bit Arm.
#[cfg(target_os = "linux")]
fn image(name: &[u8], file: &[u8]) -> Option<Vec<u8>> {
    const HEADER: u64 = 64; // bytes of each part, in the order in which they follow
    const SEGMENTS: u64 = 3 * 56;
    const DYNAMIC: u64 = 8 * 16;
    const SYMBOLS: u64 = 24;
    const HASH: u64 = 16;
    const AT_DYNAMIC: u64 = HEADER + SEGMENTS;
    const AT_SYMBOLS: u64 = AT_DYNAMIC + DYNAMIC;
    const AT_HASH: u64 = AT_SYMBOLS + SYMBOLS;
    const AT_STRINGS: u64 = AT_HASH + HASH;
    const READ_WRITE: u64 = 6; // the loader writes addresses into the dynamic section
    const PAGE: u64 = 1 << 16; // the largest of both processors

    let machine: u64 = match std::env::consts::ARCH {
        "x86_64" => 62,
        "aarch64" => 183,
        _ => return None,
    };
    let strings = [b"\0", name, b"\0", file, b"\0"].concat();
    let strings_bytes = strings.len() as u64;
    let bytes = AT_STRINGS + strings_bytes;

    let mut image = b"\x7fELF\x02\x01\x01".to_vec(); // 64 bits, little end first, version 1
    image.resize(16, 0);
    let mut put = |size: usize, values: &[u64]| {
        for value in values {
            image.extend_from_slice(&value.to_le_bytes()[..size]);
        }
    };
    put(2, &[3, machine]); // a shared object
    put(4, &[1]);
    put(8, &[0, HEADER, 0]); // no entry, the segments' place, no sections
    put(4, &[0]);
    put(2, &[HEADER, 56, 3, 0, 0, 0]);
    let mut segment = |kind: u64, at: u64, bytes: u64, align: u64| {
        put(4, &[kind, READ_WRITE]);
        put(8, &[at, at, at, bytes, bytes, align]);
    };
    segment(1, 0, bytes, PAGE); // PT_LOAD
    segment(2, AT_DYNAMIC, DYNAMIC, 8); // PT_DYNAMIC
    segment(0x6474_e551, 0, 0, 16); // PT_GNU_STACK: the stack stays without code
    put(8, &[1, name.len() as u64 + 2]); // DT_NEEDED
    put(8, &[14, 1]); // DT_SONAME
    put(8, &[4, AT_HASH]);
    put(8, &[5, AT_STRINGS]);
    put(8, &[6, AT_SYMBOLS]);
    put(8, &[10, strings_bytes]);
    put(8, &[11, SYMBOLS]); // bytes of a symbol
    put(8, &[0, 0]);
    put(8, &[0; 3]); // the one symbol that every table begins with
    put(4, &[1, 1, 0, 0]); // DT_HASH: one bucket, one symbol, both empty
    image.extend_from_slice(&strings);
    Some(image)
}
