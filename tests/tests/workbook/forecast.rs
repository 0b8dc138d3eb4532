//! `train --plan` against the peak that the same run counts.

use std::fmt::Write as _;
use std::fs;

use kernels::Cpu;
use tempfile::TempDir;
use tests::example_run::{Example, metrics};

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

/// The bytes that a plan says in all.
fn planned(example: &Example, settings: &[&str]) -> f64 {
    let ran = example.plan(settings);
    assert_eq!(ran.code, 0, "{settings:?}: {}", ran.stderr);
    let all = ran.stdout.lines().find_map(|line| line.trim().strip_prefix("all "));
    let bytes = all.and_then(|all| all.split_whitespace().next()?.parse().ok());
    bytes.unwrap_or_else(|| panic!("expected the bytes of all, found {}", ran.stdout))
}

/// Every row of `long.jsonl` has 256 tokens or more, of `short.jsonl` 101.
fn write_rows(example: &Example) {
    for (name, words) in [("long.jsonl", 60), ("short.jsonl", 20)] {
        let mut text = String::new();
        for row in 10..74 {
            let _ = writeln!(text, "{{\"text\": \"{}\"}}", format!("{row}abc").repeat(words));
        }
        fs::write(example.path(name), text).expect("it can be written");
    }
}

const WHOLE: &str = "lora_modules_to_save=[\"embed_tokens\", \"lm_head\"]";

#[test]
fn a_plan_is_within_a_fiftieth_of_the_counted_peak() {
    let example = Example::new(TRAINER);
    write_rows(&example);
    let cpu = Cpu::new();
    let of_a_thread = cpu.product_bytes() / cpu.threads();
    let idle = (of_a_thread * cpu.threads().saturating_sub(2)) as f64; // a thread without a product keeps nothing
    for settings in [
        &["dataset_name=long.jsonl", "per_device_train_batch_size=32"][..],
        &["dataset_name=long.jsonl", "per_device_train_batch_size=64", "dtype=bfloat16"],
        &["dataset_name=long.jsonl", "per_device_train_batch_size=32", "load_in_4bit=true"],
        &["dataset_name=short.jsonl", "per_device_train_batch_size=32", "packing=true", "max_length=202"],
        &["dataset_name=short.jsonl", "per_device_train_batch_size=64"],
        &["per_device_train_batch_size=100"],
        &["dataset_name=long.jsonl", "per_device_train_batch_size=32", "loss_chunk_bytes=2000000"],
        &["dataset_name=long.jsonl", "per_device_train_batch_size=32", "gradient_checkpointing=true"],
        &[
            "dataset_name=long.jsonl",
            "per_device_train_batch_size=32",
            "gradient_checkpointing=true",
            "loss_chunk_bytes=2000000",
        ],
        &["dataset_name=long.jsonl", "per_device_train_batch_size=32", WHOLE],
        &["dataset_name=long.jsonl", "per_device_train_batch_size=32", WHOLE, "loss_chunk_bytes=2000000"],
        &["dataset_name=long.jsonl", "per_device_train_batch_size=32", "trainable_token_indices=[7, 3]"],
        &[
            "dataset_name=short.jsonl",
            "per_device_train_batch_size=2",
            "eval_strategy=steps",
            "eval_steps=1",
            "eval_dataset_name=long.jsonl",
            "per_device_eval_batch_size=64",
        ],
    ] {
        let folder = TempDir::new().expect("a folder");
        // bytes of the process: where weights lie on a card there are fewer
        let common =
            ["device=cpu", "assistant_only_loss=false", "max_length=256", "max_steps=3", "save_steps=1"];
        let settings = [&common[..], settings].concat();
        let plan = planned(&example, &settings);
        let ran = example.run(&folder.path().join("out"), &settings);
        assert_eq!(ran.code, 0, "{settings:?}: {}", ran.stderr);
        let lines = metrics(&folder.path().join("out"));
        let peak = lines.iter().filter_map(|line| line["peak_bytes"].as_f64()).fold(0.0, f64::max);
        let error = (plan - peak) / peak;
        println!("{settings:?}: planned {plan}, counted {peak}: {:+.2} %", 100.0 * error);
        assert!(
            peak * 0.98 <= plan && plan <= peak * 1.02 + idle,
            "{settings:?}: planned {plan}, counted {peak}: {:+.2} %",
            100.0 * error
        );
    }
}

/// The data's longest row is the length, where it is shorter than `max_length`.
#[test]
fn a_plan_reads_the_data_where_it_can() {
    let example = Example::new(TRAINER);
    let plan = |settings: &[&str]| example.plan(settings).stdout;
    let with = plan(&[]);
    assert!(with.starts_with("micro-batches of 8 rows, laid in at most 8 of 56 tokens"), "{with}");
    let with = plan(&["per_device_train_batch_size=400"]);
    assert!(with.starts_with("micro-batches of 100 rows, laid in at most "), "{with}");
    let without = plan(&["dataset_name=none.jsonl"]);
    assert!(
        without.starts_with("the data cannot be read, so rows of max_length tokens are taken: "),
        "{without}"
    );
    assert!(without.contains("\nmicro-batches of 8 rows of 128 tokens"), "{without}");
}
