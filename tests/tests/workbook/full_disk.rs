//! Standard output that cannot be written: exit code 6 with the reason, from every verb of both programs. A message on
//! standard error that cannot be written ends nothing.
#![cfg(target_os = "linux")] // which has a device that is always full

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tests::example_run::Example;
use tests::place::{self, workbook};
use tests::program::{Ran, finish};

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");
const GRADER: &str = env!("CARGO_BIN_EXE_own"); // without an attempt it is the grader

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").expect("it can be opened")
}

fn command(program: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(place::program(Path::new(program)));
    command.current_dir(folder).args(arguments);
    command
}

/// A run whose standard output is a full disk.
#[track_caller]
fn is_reported(program: &str, folder: &Path, arguments: &[&str]) -> Ran {
    let ran = finish(command(program, folder, arguments).stdout(full()));
    let reason = "standard output cannot be written: No space left on device";
    assert!(ran.code == 6 && ran.stderr.contains(reason), "{arguments:?}: {}: {}", ran.code, ran.stderr);
    assert_eq!(ran.stderr.matches(reason).count(), 1, "{arguments:?}: {}", ran.stderr);
    ran
}

const GRAPH: &str = r#"graph "twice" (T in 1..=64) {
  %0 = input "x" : f32[T, 8]
  %1 = add %0 %0 : f32[T, 8]
  return "y" %1
}
"#;

const MESSAGES: &str = r#"[{"role": "user", "content": "a"}]"#;

#[test]
fn trainer_verbs_report_a_full_disk() {
    let example = Example::new(TRAINER);
    let folder = example.path("");
    fs::write(folder.join("messages.json"), MESSAGES).expect("it can be written");
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["help", "train"],
        &["train", "--help"],
        &["template", "render", "--help"],
        &["train", "--example", "another"],
        &["train", "config.toml", "--plan"],
        &["train", "config.toml", "--set", "max_steps=2", "--set", "device=cpu"],
        &["generate", "model", "--prompt", "a", "--max-new-tokens", "2", "--device", "cpu"],
        &["generate", "model", "--prompt", "a", "--max-new-tokens", "2", "--device", "cpu", "--json"],
        &["template", "render", "model", "--messages", "messages.json"],
        &["template", "render", "model", "--messages", "messages.json", "--json"],
        &["template", "lint", "model", "--json"],
        &["template", "repair", "model", "--json"],
        &["export", "model", "copy"],
        &["export", "model", "copy.gguf", "--gguf"],
        &["tools", "calls", "--only-files"],
    ] {
        is_reported(TRAINER, &folder, arguments);
    }
    let outputs = ["another", "copy", "copy.gguf", "calls"].map(|name| folder.join(name).exists());
    assert_eq!(outputs, [true; 4], "what was asked for is written");
}

/// The run is not lost with its log.
#[test]
fn a_run_saves_its_adapter_without_a_log() {
    let example = Example::new(TRAINER);
    let settings = ["max_steps=3", "save_steps=1", "logging_steps=1", "device=cpu"];
    let ran = finish(example.command(&example.path("out"), &settings).stdout(full()).stderr(Stdio::piped()));
    assert_eq!(ran.code, 6, "{}", ran.stderr);
    for name in ["adapter/adapter_model.safetensors", "checkpoint-3/trainer_state.json"] {
        assert!(example.path("out").join(name).exists(), "{name}");
    }
}

#[test]
fn grader_verbs_report_a_full_disk() {
    let folder = TempDir::new().expect("a folder");
    let card = folder.path().join("card.json");
    let card = card.to_str().expect("a path of plain letters");
    let graph = folder.path().join("graph.txt");
    fs::write(&graph, GRAPH).expect("it can be written");
    let graph = graph.to_str().expect("a path of plain letters");
    let solution = ["--attempt", "solution"];
    let test = [&["test", "nf4", "--case", "A.1"][..], &solution].concat();
    let made = finish(&mut command(GRADER, workbook(), &[&test[..], &["--json", "-o", card]].concat()));
    assert_eq!(made.code, 0, "{}", made.stderr);
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["help", "score"],
        &["score", "--help"],
        &["list"],
        &["list", "nf4"],
        &["rubric"],
        &["rubric", "nf4"],
        &["doctor"],
        &["report", card],
        &["report", card, "--json"],
        &["verify-report", card],
        &test,
        &[&test[..], &["--json"]].concat(),
        &["replay", "nf4:A.1/one-byte", "--attempt", "solution"],
        &["score", "nf4", "--case", "A.1", "--attempt", "solution"],
        &["bench", "nf4", "--quick", "--case", "1024x4096", "--attempt", "solution"],
        &["graph", graph, "--attempt", "solution"],
        &["watch", "nf4"],
    ] {
        is_reported(GRADER, workbook(), arguments);
    }
}

#[test]
fn messages_that_cannot_be_written_end_nothing() {
    let example = Example::new(TRAINER);
    let folder = example.path("");
    let wrong = ["train", "config.toml", "--set", "zzzzzz=1"];
    let idle = ["train", "config.toml", "--set", "max_steps=1", "--set", "eval_dataset_name=eval.jsonl"];
    for (code, program, folder, arguments) in [
        (2, TRAINER, folder.as_path(), &wrong[..]),
        (0, TRAINER, folder.as_path(), &idle),
        (2, TRAINER, folder.as_path(), &["train", "--zzzzzz"]),
        (2, GRADER, workbook(), &["score", "nf5"]),
        (2, GRADER, workbook(), &["score", "--zzzzzz"]),
    ] {
        let ran = finish(command(program, folder, arguments).stderr(full()));
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.stdout);
    }
    let both = finish(command(GRADER, workbook(), &["rubric"]).stdout(full()).stderr(full()));
    assert_eq!(both.code, 6);
}

/// `| head` closes the pipe early.
#[test]
fn a_closed_pipe_is_not_an_error() {
    let example = Example::new(TRAINER);
    let folder = example.path("");
    for (program, folder, arguments) in [
        (TRAINER, folder.as_path(), &["train", "config.toml", "--plan"][..]),
        (TRAINER, folder.as_path(), &["generate", "model", "--prompt", "a", "--max-new-tokens", "2"]),
        (TRAINER, folder.as_path(), &["--help"]),
        (GRADER, workbook(), &["rubric"]),
        (GRADER, workbook(), &["list"]),
        (GRADER, workbook(), &["--help"]),
    ] {
        let mut command = command(program, folder, arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), message.as_str()), (Some(0), ""), "{arguments:?}");
    }
}
