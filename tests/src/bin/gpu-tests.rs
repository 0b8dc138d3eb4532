//! Runs the workbook's tests on a machine with a GPU and without Rust, and prints a table of those that used the GPU.
//!
//! Usage: `gpu-tests [-o FILE] [ARGUMENT ...]`. The arguments go to the test binary, which is looked for in `deps/` next
//! to this program: filters, `--skip NAME`, `--test-threads N`. `cargo dev gpu-tests` packs both with what they need.
//!
//! Exit codes: 0 every test that used the GPU passed, 1 one failed or none used it, 2 usage or a missing file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use kernels::Which;
use tests::gpu::VARIABLE;

/// How a test ended, and its seconds if the harness printed them.
#[derive(Clone, Debug, PartialEq)]
struct Ended {
    result: String,
    seconds: Option<f64>,
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let table = match arguments.iter().position(|argument| argument == "-o") {
        Some(at) if at + 1 < arguments.len() => {
            Some(PathBuf::from(arguments.drain(at..at + 2).nth(1).unwrap_or_default()))
        }
        Some(_) => return refused("-o: expected a file"),
        None => None,
    };
    match run(&arguments) {
        Ok((text, passed)) => {
            println!("\n{text}");
            if let Some(Err(error)) = table.as_ref().map(|path| fs::write(path, &text)) {
                return refused(&format!("{}: {error}", table.unwrap_or_default().display()));
            }
            if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(reason) => refused(&reason),
    }
}

fn refused(reason: &str) -> ExitCode {
    eprintln!("gpu-tests: {reason}");
    ExitCode::from(2)
}

/// The table, and whether at least one test used the GPU and all that did passed.
fn run(arguments: &[String]) -> Result<(String, bool), String> {
    let gpu = Which::Cuda(0).open(|_| {}).map_err(|reason| format!("no GPU can be used: {reason}"))?;
    let gpu = gpu.identity();
    let binary = test_binary()?;
    let notes = tempfile::NamedTempFile::new().map_err(|error| format!("no temporary file: {error}"))?;
    let mut child = Command::new(&binary)
        .args(["-Z", "unstable-options", "--report-time"])
        .args(arguments)
        .env("RUSTC_BOOTSTRAP", "1") // the harness of a stable compiler takes --report-time only with it
        .env(VARIABLE, notes.path())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", binary.display()))?;
    let mut ended = BTreeMap::new();
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok) {
        println!("{line}");
        ended.extend(parse(&line));
    }
    child.wait().map_err(|error| error.to_string())?;
    let noted = fs::read_to_string(notes.path()).map_err(|error| error.to_string())?;
    let noted: BTreeSet<&str> = noted.lines().collect();
    Ok(table(&gpu, &noted, &ended))
}

/// The newest test binary in `deps/` next to this program.
fn test_binary() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = own.parent().unwrap_or(Path::new(".")).join("deps");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let is_binary = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("workbook-") && !name.contains('.')
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_binary).collect();
    found.sort_by_key(|path| fs::metadata(path).and_then(|data| data.modified()).ok());
    found
        .pop()
        .ok_or_else(|| format!("{}: expected the test binary workbook-HASH, found none", folder.display()))
}

/// Parses a line of the harness: `test NAME ... ok <0.123s>`.
fn parse(line: &str) -> Option<(String, Ended)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (result, seconds) = rest.split_once(" <").map_or((rest, None), |(result, time)| (result, Some(time)));
    let seconds = seconds.and_then(|time| time.strip_suffix("s>")?.parse().ok());
    Some((name.to_owned(), Ended { result: result.trim().to_owned(), seconds }))
}

/// One line per test that used the GPU, and the totals of all others.
fn table(gpu: &str, noted: &BTreeSet<&str>, ended: &BTreeMap<String, Ended>) -> (String, bool) {
    let mut text = format!("Tests that ran on {gpu}, by `cargo dev gpu-tests`.\n\n");
    let mut failed = 0;
    for name in noted {
        // A test that aborts the process has no line.
        let none = Ended { result: "did not end".to_owned(), seconds: None };
        let Ended { result, seconds } = ended.get(*name).unwrap_or(&none);
        failed += usize::from(result != "ok");
        let seconds = seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"));
        let _ = writeln!(text, "{result:<8} {seconds:>8}  {name}");
    }
    let others = || ended.iter().filter(|(name, _)| !noted.contains(name.as_str()));
    let count = |result: &str| others().filter(|(_, ended)| ended.result.starts_with(result)).count();
    let passed = noted.len() - failed;
    let _ = writeln!(
        text,
        "\n{} tests used the GPU: {passed} passed, {failed} failed. {} did not: {} passed, {} failed, {} ignored.",
        noted.len(),
        others().count(),
        count("ok"),
        count("FAILED"),
        count("ignored"),
    );
    (text, failed == 0 && !noted.is_empty())
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn lines_of_the_harness_are_parsed() {
        let ended = |result: &str, seconds| Ended { result: result.to_owned(), seconds };
        let parsed = |line| parse(line).map(|(name, ended)| (name.len(), ended));
        assert_eq!(parsed("test a::b ... ok <0.250s>"), Some((4, ended("ok", Some(0.25)))));
        assert_eq!(parsed("test a::b ... FAILED <12.000s>"), Some((4, ended("FAILED", Some(12.0)))));
        assert_eq!(parsed("test a::b ... ignored"), Some((4, ended("ignored", None))));
        assert_eq!(parsed("test result: ok. 1 passed; 0 failed"), None);
        assert_eq!(parsed("running 3 tests"), None);
    }

    #[test]
    fn failed_and_missing_tests_are_counted() {
        let ended = ["test a ... ok <1.0s>", "test b ... FAILED <2.0s>", "test d ... ok <0.1s>"];
        let ended: BTreeMap<String, Ended> = ended.iter().filter_map(|line| parse(line)).collect();
        let (text, passed) = table("a GPU", &BTreeSet::from(["a", "b", "c"]), &ended);
        assert!(!passed);
        assert!(text.contains("did not end        -  c") && text.contains("FAILED      2.0 s  b"), "{text}");
        assert!(text.contains("3 tests used the GPU: 1 passed, 2 failed. 1 did not: 1 passed"), "{text}");
        assert!(!table("a GPU", &BTreeSet::new(), &ended).1);
        assert!(table("a GPU", &BTreeSet::from(["a"]), &ended).1);
    }
}
