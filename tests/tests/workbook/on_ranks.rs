//! `trainer train` on several ranks: what one of them says, checkpoints that any number of ranks reads.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tests::example_run::{Example, files, metrics};

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

/// Three micro-batches a step, a checkpoint every other step; on the CPU, as ranks are.
const SETTINGS: [&str; 5] = [
    "device=cpu",
    "max_steps=8",
    "save_steps=2",
    "gradient_accumulation_steps=3",
    "per_device_train_batch_size=2",
];

/// Ranks that share a layer have none.
const NO_DROPOUT: &str = "lora_dropout=0";

fn with<'a>(settings: &[&'a str]) -> Vec<&'a str> {
    [&SETTINGS[..], settings].concat()
}

/// That two runs have the same numbers, but for what a sum in another order may do.
#[track_caller]
fn near(what: &str, found: &[Value], expected: &[Value]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        for key in ["step", "num_tokens", "learning_rate", "epoch", "skipped_steps", "loss_scale"] {
            assert_eq!(found[key], expected[key], "{what}: {key}");
        }
        for (key, most) in [("loss", 5e-6), ("grad_norm", 2e-4), ("entropy", 5e-6), ("eval_loss", 5e-6)] {
            let [found, expected] = [found, expected].map(|line| line[key].as_f64().unwrap_or(1.0));
            assert!((found / expected - 1.0).abs() <= most, "{what}: {key}: {found}, {expected}");
        }
    }
}

/// Takes away what a run made after a step.
fn cut(output: &Path, step: u64) {
    for later in (step + 1)..=8 {
        let _ = fs::remove_dir_all(output.join(format!("checkpoint-{later}")));
    }
    fs::remove_dir_all(output.join("adapter")).expect("the run has ended");
}

#[test]
fn a_checkpoint_is_gone_on_from_by_any_number_of_ranks() {
    let example = Example::new(TRAINER);
    let one = example.metrics_of(&example.path("one"), &SETTINGS);
    let output = example.path("out");
    let mut first = None;
    for (ranks, mesh) in [(2, "ranks=2"), (3, "ranks=3"), (2, "mesh=pp=2"), (1, "ranks=1"), (2, "ranks=2")] {
        let settings = match first {
            None => with(&[mesh]),
            Some(()) => with(&[mesh, "resume_from_checkpoint=true"]),
        };
        let ran = example.run(&output, &settings);
        assert_eq!(ran.code, 0, "{mesh}: {}{}", ran.stdout, ran.stderr);
        near(mesh, &metrics(&output), &one);
        let all = files(&output);
        let moments = all.keys().filter(|path| path.starts_with("checkpoint-8"));
        let moments = moments.filter(|path| path.to_string_lossy().contains("optimizer-"));
        assert_eq!(moments.count(), ranks, "{mesh}: a file of each rank");
        cut(&output, 4);
        first = Some(());
    }
}

#[test]
fn a_run_gone_on_with_by_as_many_ranks_has_the_same_files() {
    let example = Example::new(TRAINER);
    for mesh in ["ranks=2", "mesh=tp=2", "mesh=pp=2"] {
        let output = example.path(mesh);
        assert_eq!(example.run(&output, &with(&[mesh, NO_DROPOUT])).code, 0);
        let whole = files(&output);
        cut(&output, 4);
        let ran = example.run(&output, &with(&[mesh, NO_DROPOUT, "resume_from_checkpoint=true"]));
        assert_eq!(ran.code, 0, "{mesh}: {}{}", ran.stdout, ran.stderr);
        let own = files(&output);
        let differs = whole.iter().find(|(name, bytes)| own.get(*name) != Some(bytes));
        assert!(differs.is_none(), "{mesh}: {:?}", differs.map(|(name, _)| name));
    }
}

#[test]
fn a_part_of_a_checkpoint_that_is_missing_or_damaged_is_named() {
    let example = Example::new(TRAINER);
    let output = example.path("out");
    assert_eq!(example.run(&output, &with(&["ranks=2"])).code, 0);
    let part = |step: u64| output.join(format!("checkpoint-{step}/optimizer-00002-of-00002.safetensors"));
    fs::remove_file(part(8)).expect("a file");
    let mut bytes = fs::read(part(6)).expect("a file");
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(part(6), bytes).expect("a file");
    let ran = example.run(&output, &with(&["ranks=3", "resume_from_checkpoint=true"]));
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    for says in [
        "checkpoint-8: optimizer-00002-of-00002.safetensors: ",
        "checkpoint-6: optimizer-00002-of-00002.safetensors is damaged: its SHA-256 is not the one in trainer_state.json",
    ] {
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
    assert!(ran.stdout.contains("; 4 are made"), "{}", ran.stdout);
}

#[test]
fn evaluations_and_f16_are_those_of_one_rank() {
    let example = Example::new(TRAINER);
    let settings = ["eval_strategy=steps", "eval_steps=3", "eval_dataset_name=eval.jsonl", NO_DROPOUT];
    let one = example.metrics_of(&example.path("one"), &with(&settings));
    for mesh in ["ranks=3", "mesh=tp=2", "mesh=pp=2"] {
        let found = example.metrics_of(&example.path(mesh), &with(&[&settings[..], &[mesh]].concat()));
        near(mesh, &found, &one);
    }
    let half = ["dtype=float16"];
    let one = example.metrics_of(&example.path("half"), &with(&half));
    for mesh in ["ranks=2", "mesh=pp=2"] {
        let name = format!("half {mesh}");
        let found = example.metrics_of(&example.path(&name), &with(&[&half[..], &[mesh]].concat()));
        let skipped =
            |lines: &[Value]| lines.iter().map(|line| line["skipped_steps"].clone()).collect::<Vec<_>>();
        assert_eq!(skipped(&found), skipped(&one), "{mesh}");
        let [found, one] = [&found, &one].map(|lines| lines[0]["loss"].as_f64().expect("a loss"));
        assert!((found / one - 1.0).abs() < 1e-3, "{mesh}: {found}, {one}");
    }
}
