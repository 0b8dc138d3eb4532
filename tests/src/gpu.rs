//! Notes which tests ran on a GPU, for the table that the program `gpu-tests` makes.
//!
//! A test that has a GPU form asks for a GPU through `one_graph::card`, or reads the metrics of a run that used one.
//! Both call [`note`]. The test harness names each test's thread after the test.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;

/// The environment variable that names the file with one test per line. Unset: nothing is noted.
pub const VARIABLE: &str = "WARPBOOK_GPU_TESTS";

/// Notes that the current thread's test ran on a GPU.
///
/// # Panics
/// If the file that [`VARIABLE`] names cannot be written.
pub fn note() {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    if let Some(name) = std::thread::current().name() {
        append(&path, name);
    }
}

/// Appends a line in one write, so that lines of tests that run at the same time do not mix.
fn append(path: &OsStr, name: &str) {
    let written = OpenOptions::new().create(true).append(true).open(path);
    let written = written.and_then(|mut file| file.write_all(format!("{name}\n").as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
