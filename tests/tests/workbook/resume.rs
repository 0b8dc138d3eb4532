//! Where a run resumes: from a whole checkpoint, or nowhere without a word.

use std::fs;
use std::path::{Path, PathBuf};

use tests::example_run::{Example, metrics};

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

const STEPS: [&str; 3] = ["max_steps=4", "save_steps=2", "device=cpu"];

/// A run that has ended, with checkpoints of steps 2 and 4.
fn ended(example: &Example) -> PathBuf {
    let output = example.path("out");
    assert_eq!(example.run(&output, &STEPS).code, 0);
    output
}

/// Cuts a file of a checkpoint short.
fn damage(checkpoint: &Path) {
    let file = fs::File::options().write(true).open(checkpoint.join("adapter_model.safetensors"));
    file.and_then(|file| file.set_len(1000)).expect("it can be cut");
}

fn resumed<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["save_steps=2", "device=cpu", "resume_from_checkpoint=true"], more].concat()
}

#[test]
fn damaged_checkpoints_only_are_an_error() {
    let example = Example::new(TRAINER);
    let output = ended(&example);
    let lines = metrics(&output);
    for step in [2, 4] {
        damage(&output.join(format!("checkpoint-{step}")));
    }
    let ran = example.run(&output, &resumed(&["max_steps=4"]));
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    for want in [
        "expected a whole checkpoint, found damaged ones only",
        "checkpoint-4: adapter_model.safetensors is damaged: its SHA-256",
        "checkpoint-2: adapter_model.safetensors is damaged: its SHA-256",
        "restore one from a copy, or begin anew in another output_dir",
    ] {
        assert!(ran.stderr.contains(want), "expected {want:?} in {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("the run resumes"), "{}", ran.stderr);
    assert_eq!(metrics(&output), lines, "nothing is written");
}

#[test]
fn a_damaged_checkpoint_names_the_one_taken() {
    let example = Example::new(TRAINER);
    let output = ended(&example);
    damage(&output.join("checkpoint-4"));
    let ran = example.run(&output, &resumed(&["max_steps=6"]));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let want = "checkpoint-4: adapter_model.safetensors is damaged: its SHA-256 is not the one in trainer_state.json; \
                the run resumes from checkpoint-2\n";
    assert!(ran.stderr.contains(want), "{}", ran.stderr);
    let steps: Vec<_> = metrics(&output).iter().map(|line| line["step"].as_u64()).collect();
    assert_eq!(steps, (1..=6).map(Some).collect::<Vec<_>>());
}

/// The adapter of a run that ended is not replaced by one that begins at its first step.
#[test]
fn an_adapter_without_checkpoints_is_kept() {
    let example = Example::new(TRAINER);
    let output = ended(&example);
    for step in [2, 4] {
        fs::remove_dir_all(output.join(format!("checkpoint-{step}"))).expect("a checkpoint");
    }
    let adapter = fs::read(output.join("adapter/adapter_model.safetensors")).expect("an adapter");
    let lines = metrics(&output);
    let ran = example.run(&output, &resumed(&["max_steps=4"]));
    let want = "expected a checkpoint, found only the adapter of a run that ended";
    assert!(ran.code == 2 && ran.stderr.contains(want), "{}: {}", ran.code, ran.stderr);
    assert!(ran.stderr.contains("adapter_name_or_path = "), "{}", ran.stderr);
    assert_eq!(metrics(&output), lines);
    assert!(fs::read(output.join("adapter/adapter_model.safetensors")).expect("an adapter") == adapter);
}

#[test]
fn a_run_without_checkpoints_begins_and_says_so() {
    let example = Example::new(TRAINER);
    let output = example.path("out");
    let begins = "found no checkpoint to resume from; the run begins at step 1";
    let ran = example.run(&output, &resumed(&["max_steps=2"]));
    assert!(ran.code == 0 && ran.stdout.contains(begins), "{}{}", ran.stdout, ran.stderr);
    // as a run leaves it that is killed before its first checkpoint
    for name in ["adapter", "checkpoint-2"] {
        fs::remove_dir_all(output.join(name)).expect("a folder");
    }
    let lines = fs::read(output.join("metrics.jsonl")).expect("metrics");
    let ran = example.run(&output, &resumed(&["max_steps=2"]));
    assert!(ran.code == 0 && ran.stdout.contains(begins), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("metrics-1.jsonl"), "{}", ran.stdout);
    assert!(fs::read(output.join("metrics-1.jsonl")).expect("the metrics that were there") == lines);
    assert_eq!(metrics(&output).len(), 2);
}

#[test]
fn a_checkpoint_cannot_be_named() {
    let example = Example::new(TRAINER);
    let output = ended(&example);
    let ran = example.run(&output, &["resume_from_checkpoint=out/checkpoint-2"]);
    let want = "resume_from_checkpoint: expected true or false, found \"out/checkpoint-2\"; true resumes from the newest";
    assert!(ran.code == 2 && ran.stderr.contains(want), "{}: {}", ran.code, ran.stderr);
}
