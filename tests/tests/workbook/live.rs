//! Contract: a scorecard is shown while it is made, and is the same text as one that is shown whole.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;
use tests::attempts::{GATED, Gates, VARIABLE};
use tests::place::program;
use tests::program::finish;

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// The grader with an attempt that waits, and with more arguments.
fn gated(folder: &TempDir, more: &[&str]) -> Command {
    let mut command = Command::new(program(Path::new(OWN)));
    command.args(Gates::arguments()).args(more);
    command.env(VARIABLE, GATED[0].name).env(Gates::FOLDER, folder.path()).env_remove("CARGO_MANIFEST_DIR");
    command
}

/// The same while it runs, with the lines of its standard output.
fn running(folder: &TempDir) -> (Child, BufReader<ChildStdout>) {
    let mut command = gated(folder, &[]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    (child, stdout)
}

/// Lines up to the first that begins so. One that does not come keeps the attempt waiting until its check is wrong.
fn up_to(stdout: &mut impl BufRead, begin: &str) -> String {
    let mut text = String::new();
    while stdout.read_line(&mut text).expect("it is text") > 0 {
        if text.lines().last().is_some_and(|line| line.starts_with(begin)) {
            return text;
        }
    }
    panic!("no line begins with {begin:?}:\n{text}");
}

#[test]
fn each_part_is_there_before_the_next_challenge_is_done() {
    let folder = tempfile::tempdir().expect("a folder for gates");
    let gates = Gates::new(folder.path());
    let (mut child, mut stdout) = running(&folder);
    let mut text = up_to(&mut stdout, "machine  ");
    assert!(text.starts_with("warpbook 0.1.0   A nf4, E loss   own"), "{text}");
    gates.open("A");
    text += &up_to(&mut stdout, "  checks  ");
    assert!(text.contains("\nA nf4  "), "{text}");
    gates.open("E");
    stdout.read_to_string(&mut text).expect("it is text");
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "nothing waited in vain: {text}");

    let file = folder.path().join("card.txt"); // the same once more, whole
    let ran = finish(&mut gated(&folder, &["-o", file.to_str().expect("a plain path")]));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    assert_eq!(text, std::fs::read_to_string(file).expect("it was written"));
}

#[test]
fn whoever_closes_the_pipe_ends_the_run_quietly() {
    let folder = tempfile::tempdir().expect("a folder for gates");
    let gates = Gates::new(folder.path());
    let (child, mut stdout) = running(&folder);
    up_to(&mut stdout, "machine  ");
    drop(stdout);
    gates.open("A");
    let output = child.wait_with_output().expect("it ends");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), message.as_str()), (Some(0), ""), "what was scored by then is right");
    assert!(gates.is_reached("A") && !gates.is_reached("E"), "challenge E was not begun");
}

#[test]
fn files_that_were_asked_for_are_written_though_nobody_reads() {
    let folder = tempfile::tempdir().expect("a folder for gates");
    let gates = Gates::new(folder.path());
    gates.open("A");
    gates.open("E");
    let page = folder.path().join("card.md");
    let mut command = gated(&folder, &["--md", page.to_str().expect("a plain path")]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let page = std::fs::read_to_string(page).expect("it was written");
    assert!(page.contains("single_triton_kernel") && gates.is_reached("E"), "{page}");
}

#[cfg(target_os = "linux")] // which has a device that is always full
#[test]
fn a_full_disk_is_a_fault_and_ends_the_run() {
    let folder = tempfile::tempdir().expect("a folder for gates");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it can be opened");
    let child = gated(&folder, &[]).stdout(full).stderr(Stdio::piped()).spawn().expect("it starts");
    let output = child.wait_with_output().expect("it ends");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(6) && message.contains("standard output cannot be written"),
        "{message}"
    );
    assert!(!Gates::new(folder.path()).is_reached("A"), "no challenge was begun");
}

#[test]
fn a_name_of_no_check_is_told_and_nothing_is_shown() {
    let ran = finish(
        Command::new(program(Path::new(OWN)))
            .args(["test", "A", "--attempt", "solution"])
            .args(["--case", "no such check"]),
    );
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("no check or case is called \"no such check\""), "{}", ran.stderr);
}
