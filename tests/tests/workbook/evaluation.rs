//! Evaluations while training: their losses are training's own, when they come, how batches count.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use tests::example_run::Example;

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

fn number(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap_or_else(|| panic!("{key} in {line}"))
}

#[track_caller]
fn close(what: &str, own: f64, want: f64, most: f64) {
    assert!((own - want).abs() <= most * want.abs(), "{what}: expected {want}, found {own}");
}

fn evaluations(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|line| line.get("eval_loss").is_some()).collect()
}

/// A step over the rows of an evaluation has its loss, before its update; the evaluation has no dropout.
#[test]
fn an_evaluation_has_the_loss_of_a_step_over_its_rows() {
    let example = Example::new(TRAINER);
    for shape in [
        &["packing=false"][..],
        &["packing=true", "max_length=70"],
        &["dtype=bfloat16"],
        &["loss_chunk_bytes=40000"],
        &["loss_chunk_bytes=40000", "packing=true", "max_length=70"],
    ] {
        let folder = TempDir::new().expect("a folder");
        let whole = ["eval_strategy=steps", "eval_steps=2", "per_device_eval_batch_size=64"];
        let rows = format!("eval_dataset_name={}", example.path("eval.jsonl").display());
        let settings = ["max_steps=2", "lora_dropout=0.5", &rows];
        let lines = example.metrics_of(&folder.path().join("a"), &[shape, &whole, &settings].concat());
        let evaluation = evaluations(&lines)[0];
        let adapter = format!("adapter_name_or_path={}", folder.path().join("a/adapter").display());
        let settings = [
            "dataset_name=eval.jsonl",
            "max_steps=1",
            "per_device_train_batch_size=64",
            "lora_dropout=0.0",
            &adapter,
        ];
        // Rows lie otherwise in the two runs; a sum in another order may be rounded to the bf16 beside it.
        let most = if shape == ["dtype=bfloat16"] { 1e-5 } else { 1e-6 };
        let step = &example.metrics_of(&folder.path().join("b"), &[shape, &settings].concat())[0];
        for key in ["loss", "mean_token_accuracy", "entropy"] {
            close(
                &format!("{shape:?}: {key}"),
                number(evaluation, &format!("eval_{key}")),
                number(step, key),
                most,
            );
        }
        assert_eq!(evaluation["eval_num_tokens"], lines[1]["num_tokens"]);
        assert_eq!((&evaluation["step"], &evaluation["epoch"]), (&lines[1]["step"], &lines[1]["epoch"]));
    }
}

/// The mean over rows of the losses of their batches; the means over batches of accuracy and entropy.
#[test]
fn batches_of_an_evaluation_count_as_they_do_in_transformers() {
    let example = Example::new(TRAINER);
    let evaluated = |name: &str, batch: &str| {
        let folder = TempDir::new().expect("a folder");
        let (name, batch) =
            (format!("eval_dataset_name={name}"), format!("per_device_eval_batch_size={batch}"));
        let settings = ["max_steps=3", "eval_strategy=epoch", &name, &batch];
        let lines = example.metrics_of(&folder.path().join("out"), &settings);
        evaluations(&lines)[0].clone()
    };
    example.write_rows("first.jsonl", 40..48);
    example.write_rows("last.jsonl", 48..53);
    let parts = [evaluated("first.jsonl", "8"), evaluated("last.jsonl", "8")];
    let all = evaluated("eval.jsonl", "8");
    let [first, last] = parts.each_ref().map(|part| number(part, "eval_loss"));
    close("loss", number(&all, "eval_loss"), (8.0 * first + 5.0 * last) / 13.0, 1e-6);
    for key in ["eval_mean_token_accuracy", "eval_entropy"] {
        let [first, last] = parts.each_ref().map(|part| number(part, key));
        close(key, number(&all, key), f64::midpoint(first, last), 1e-6);
    }
}

#[test]
fn evaluations_come_when_they_are_asked_for() {
    let example = Example::new(TRAINER);
    let steps = |settings: &[&str]| {
        let folder = TempDir::new().expect("a folder");
        let all = [&["eval_dataset_name=eval.jsonl", "max_steps=15"], settings].concat();
        let lines = example.metrics_of(&folder.path().join("out"), &all);
        evaluations(&lines).iter().map(|line| number(line, "step") as u64).collect::<Vec<_>>()
    };
    assert_eq!(steps(&["eval_strategy=no"]), Vec::<u64>::new());
    assert_eq!(steps(&["eval_strategy=steps", "eval_steps=5"]), [5, 10, 15]);
    assert_eq!(steps(&["eval_strategy=steps", "eval_steps=6"]), [6, 12, 15]);
    assert_eq!(steps(&["eval_strategy=steps", "logging_steps=8"]), [8, 15]);
    assert_eq!(steps(&["eval_strategy=epoch"]), [13, 15]);
}

#[test]
fn an_evaluation_changes_nothing_of_the_training() {
    let example = Example::new(TRAINER);
    let losses = |settings: &[&str]| {
        let folder = TempDir::new().expect("a folder");
        let all = [&["eval_dataset_name=eval.jsonl", "max_steps=8"], settings].concat();
        let lines = example.metrics_of(&folder.path().join("out"), &all);
        let steps = lines.iter().filter(|line| line.get("loss").is_some());
        steps.map(|line| number(line, "loss").to_bits()).collect::<Vec<_>>()
    };
    assert_eq!(losses(&["eval_strategy=no"]), losses(&["eval_strategy=steps", "eval_steps=1"]));
}

#[test]
fn an_evaluation_without_data_is_refused() {
    let example = Example::new(TRAINER);
    let output = Path::new("out");
    let ran = example.run(output, &["eval_strategy=steps"]);
    assert!(ran.code == 2 && ran.stderr.contains("expected eval_dataset_name beside it"), "{}", ran.stderr);
    let ran = example.run(output, &["eval_strategy=epoch", "eval_dataset_name=none.jsonl"]);
    assert!(ran.code == 2 && ran.stderr.contains("none.jsonl"), "{}", ran.stderr);
    let ran = example.run(output, &["eval_steps=0"]);
    assert!(
        ran.code == 2 && ran.stderr.contains("eval_steps: expected a whole number above 0"),
        "{}",
        ran.stderr
    );
}
