//! `cargo dev gpu-tests` packs the tests for a machine with a GPU and without Rust.
//!
//! The archive has the workbook's files, golden files included, the test binary, and the programs that tests start. The
//! program `gpu-tests` in it runs the tests and prints a table of those that used the GPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{Error, Fault};

/// The folder that the archive unpacks to.
const FOLDER: &str = "warpbook-gpu-tests";

/// The programs that tests start, and the one that starts the tests.
const PROGRAMS: [&str; 6] = ["chat", "checkpoint", "gpu-tests", "own", "own-trainer", "reward"];

/// Builds the tests, packs them into `target/gpu-tests.tar.xz` and prints the command line for the other machine.
pub fn pack(root: &Path) -> Result<(), Error> {
    let programs = built(root)?;
    let stage = root.join("target").join(FOLDER);
    if stage.exists() {
        fs::remove_dir_all(&stage).map_err(|source| Error::File { path: stage.clone(), source })?;
    }
    copy_tracked(root, &stage)?;
    for program in &programs {
        let target = stage.join("target/release").join(place_of(program));
        let folder = target.parent().unwrap_or(&stage);
        fs::create_dir_all(folder).map_err(|source| Error::File { path: folder.to_owned(), source })?;
        // Symbols are three quarters of a program's bytes.
        run(Command::new("strip").arg("-o").arg(&target).arg(program))?;
    }
    let archive = root.join("target/gpu-tests.tar.xz");
    // The programs share most of their code: a dictionary that holds several of them halves the archive.
    let mut tar = Command::new("tar");
    tar.env("XZ_OPT", "--lzma2=preset=3,dict=96MiB")
        .arg("-C")
        .arg(root.join("target"))
        .arg("-cJf")
        .arg(&archive)
        .arg(FOLDER);
    run(&mut tar)?;
    fs::remove_dir_all(&stage).map_err(|source| Error::File { path: stage, source })?;
    let bytes = fs::metadata(&archive).map_or(0, |data| data.len());
    println!("{}: {:.1} MB; on a machine with a GPU:", archive.display(), bytes as f64 / 1e6);
    println!("tar xJf gpu-tests.tar.xz && {FOLDER}/target/release/gpu-tests -o gpu-tests.txt");
    Ok(())
}

/// The test binary and the programs of the package `tests`, as cargo lists what it built.
fn built(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).stderr(Stdio::inherit());
    // All packages, so that cargo chooses the features that `cargo test --workspace` chose and compiles nothing twice.
    command.args([
        "test",
        "--release",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    let messages = run(&mut command)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let programs = messages.filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
    Ok(programs.filter(|path| is_packed(path)).collect())
}

/// Whether an executable is the test binary of the workbook or a program that tests start.
fn is_packed(path: &Path) -> bool {
    let is_test = path.parent().and_then(Path::file_name).is_some_and(|folder| folder == "deps");
    if is_test { name(path).starts_with("workbook-") } else { PROGRAMS.contains(&name(path)) }
}

/// The path of a program below `target/release`, where the tests look for it.
fn place_of(program: &Path) -> PathBuf {
    let name = name(program);
    if name.starts_with("workbook-") { Path::new("deps").join(name) } else { name.into() }
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Copies every file that git tracks.
fn copy_tracked(root: &Path, to: &Path) -> Result<(), Error> {
    let files = run(Command::new("git").current_dir(root).args(["ls-files", "-z"]))?;
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let (from, to) = (root.join(file), to.join(file));
        if !from.exists() {
            continue; // deleted and not yet committed
        }
        let folder = to.parent().unwrap_or(&to);
        let copied = fs::create_dir_all(folder).and_then(|()| fs::copy(&from, &to));
        copied.map_err(|source| Error::File { path: from, source })?;
    }
    Ok(())
}

/// Runs a command to its end and returns its standard output.
fn run(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let fault = |what: String| Error::Faults(vec![Fault { at: program.clone(), what }]);
    let output = command.output().map_err(|error| fault(format!("cannot be started: {error}")))?;
    if !output.status.success() {
        return Err(fault(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
