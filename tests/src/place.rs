//! Where the workbook lies, found when the tests run: a checkout that moved together with its build folder is not
//! compiled anew, so a path that was compiled in would still lead to the old place.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The workbook's folder: above the package that cargo runs the tests of, else above the current folder or the program.
///
/// # Panics
/// If none of them lies in a workbook.
pub fn workbook() -> &'static Path {
    static FOUND: LazyLock<PathBuf> = LazyLock::new(|| {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let starts = [package, std::env::current_dir().ok(), std::env::current_exe().ok()];
        let mut above = starts.iter().flatten().flat_map(|start| start.ancestors());
        let found =
            above.find(|folder| folder.join("tests/look").is_dir() && folder.join("challenges/src").is_dir());
        found.expect("the tests run in a workbook or below it").to_path_buf()
    });
    &FOUND
}

/// The folder of the tests.
pub fn tests() -> PathBuf {
    workbook().join("tests")
}

/// The cargo that runs the tests.
pub fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

/// Where cargo puts programs below a build folder: `release`, or `x86_64-pc-windows-gnu/release` where the tests were
/// compiled for another system than the compiler's.
pub fn profile() -> PathBuf {
    let here = std::env::current_exe().unwrap_or_default();
    let parts: Vec<_> = here.iter().collect();
    let of = |name: &str| parts.iter().rposition(|part| *part == name);
    match (of("target"), of("deps")) {
        (Some(target), Some(deps)) if target < deps => parts[target + 1..deps].iter().collect(),
        _ => "release".into(),
    }
}

/// A program of the tests beside the one that runs, by the path that it was compiled to.
pub fn program(compiled: &Path) -> PathBuf {
    let here = std::env::current_exe().ok();
    let name = compiled.file_name().unwrap_or_default();
    let folder = here.as_deref().and_then(Path::parent).and_then(Path::parent); // above `deps`
    folder.map(|folder| folder.join(name)).filter(|path| path.exists()).unwrap_or_else(|| compiled.into())
}
