//! Stand-ins for NVIDIA's libraries: compiled by a test, put where it wants them.

use std::path::Path;
use std::process::Command;

use crate::place;

/// Compiles `tests/stub/SOURCE.rs` in a variant (a `--cfg`, or empty) into the library `to`, with the folders
/// that it lies in.
///
/// # Panics
/// If it does not compile.
pub fn compile(source: &str, variant: &str, to: &Path) {
    let source = place::tests().join("stub").join(source).with_extension("rs");
    let folder = to.parent().expect("a library lies in a folder");
    std::fs::create_dir_all(folder).expect("a folder for a stand-in");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(compiler);
    command.args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "stub", "-Cpanic=abort"]);
    command.args(["-Awarnings", "-o"]).arg(to).arg(source);
    if !variant.is_empty() {
        command.args(["--cfg", variant]);
    }
    let output = command.output().expect("rustc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
