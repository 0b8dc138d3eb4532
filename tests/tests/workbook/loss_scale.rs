//! `trainer train` in f16: a loss scale that follows torch's, steps that are left out, and numbers that no scale cures.

use std::fs;
use std::path::Path;

use challenges::train::LEAST;
use challenges::train::LossScale;
use reference::checkpoint::Checkpoint;
use serde_json::{Value, json};
use tests::example_run::{Example, files, metrics};

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

/// Written by `tests/peers/loss_scale.py`.
const KEPT: &str = include_str!("loss_scale.json");

#[test]
fn a_loss_scale_is_that_of_torch() {
    let kept: Value = serde_json::from_str(KEPT).expect("JSON");
    let overflows: Vec<u64> = serde_json::from_value(kept["overflows"].clone()).expect("steps");
    let mut scale = LossScale::default();
    assert_eq!(kept["first"], scale.factor);
    let mut changes = Vec::new();
    for step in 0..kept["steps"].as_u64().expect("a number") {
        let before = scale.factor;
        scale.update(!overflows.contains(&step));
        if before.to_bits() != scale.factor.to_bits() {
            changes.push(json!([step, scale.factor]));
        }
    }
    assert_eq!(kept["changes"].as_array().expect("a list"), &changes);
    assert!(changes.len() > 10, "{changes:?}");
}

#[test]
fn a_loss_scale_ends_below_its_least_value_and_stays_finite() {
    let mut scale = LossScale::default();
    let steps = (0..).take_while(|_| {
        scale.update(false);
        !scale.is_exhausted()
    });
    assert_eq!(steps.count(), 30);
    assert!(scale.factor < LEAST && 2.0 * scale.factor >= LEAST);
    let mut scale = LossScale { factor: 2.0_f64.powi(127), finite_steps: 1999 };
    scale.update(true);
    assert_eq!(scale, LossScale { factor: 2.0_f64.powi(127), finite_steps: 0 }, "twice as much is no f32");
}

/// The number of a key in each line.
fn numbers(lines: &[Value], key: &str) -> Vec<Option<f64>> {
    lines.iter().map(|line| line[key].as_f64()).collect()
}

const STEPS: &str = "max_steps=40";

#[test]
fn a_run_in_f16_is_near_the_run_in_f32() {
    let example = Example::new(TRAINER);
    let plain = example.metrics_of(&example.path("f32"), &[STEPS]);
    assert!(plain.iter().all(|line| line.get("loss_scale").is_none()));
    for chunks in [&[][..], &["loss_chunk_bytes=60000"]] {
        let settings = [&["dtype=float16", STEPS][..], chunks].concat();
        let output = example.path(&format!("f16-{}", chunks.len()));
        let half = example.metrics_of(&output, &settings);
        let skipped = half.last().expect("a line")["skipped_steps"].as_u64().expect("a count") as usize;
        let made: Vec<Value> = half.iter().filter(|line| line["grad_norm"].is_f64()).cloned().collect();
        assert_eq!(made.len() + skipped, half.len());
        assert_eq!(numbers(&made, "learning_rate"), numbers(&plain[..made.len()], "learning_rate"));
        if skipped == 0 {
            for (step, (half, plain)) in half.iter().zip(&plain).enumerate() {
                let [half, plain] = [half, plain].map(|line| line["loss"].as_f64().expect("a loss"));
                let allowed = if step < 5 { 2e-3 } else { 2e-2 }; // roundings drive two trainings apart
                assert!((half - plain).abs() <= allowed * plain, "step {step}: {half}, in f32 {plain}");
            }
        }
    }
}

/// Says in a checkpoint what the loss is multiplied by.
fn scaled_by(checkpoint: &Path, scale: f64, growth_tracker: u64) {
    let path = checkpoint.join("trainer_state.json");
    let mut state: Value = serde_json::from_slice(&fs::read(&path).expect("a state")).expect("JSON");
    assert!(state["loss_scale"]["scale"].is_f64(), "{state}");
    state["loss_scale"] = json!({"scale": scale, "growth_tracker": growth_tracker});
    fs::write(path, state.to_string()).expect("it can be written");
}

/// A run in f16 of which only the checkpoint of step 3 is left.
fn begun(example: &Example, output: &Path) {
    example.metrics_of(output, &["dtype=float16", STEPS, "save_steps=1"]);
    for step in (1..=40).filter(|step| *step != 3) {
        fs::remove_dir_all(output.join(format!("checkpoint-{step}"))).expect("a checkpoint");
    }
    fs::remove_dir_all(output.join("adapter")).expect("an adapter");
}

#[test]
fn a_step_that_overflows_changes_nothing_but_the_scale() {
    let example = Example::new(TRAINER);
    let output = example.path("out");
    begun(&example, &output);
    scaled_by(&output.join("checkpoint-3"), 2.0_f64.powi(40), 1999);
    let settings = ["dtype=float16", STEPS, "save_steps=1", "resume_from_checkpoint=true"];
    let lines = example.metrics_of(&output, &settings);
    assert_eq!(lines.len(), 40);
    let after = &lines[3..];
    let skipped = after.iter().take_while(|line| line["grad_norm"].is_null()).count();
    assert!((10..30).contains(&skipped), "{skipped} steps");
    let kept = files(&output.join("checkpoint-3"));
    for (i, line) in after[..skipped].iter().enumerate() {
        assert_eq!(line["loss_scale"].as_f64(), Some(2.0_f64.powi(40 - i as i32)));
        assert_eq!(line["learning_rate"], after[0]["learning_rate"]);
        assert_eq!(line["skipped_steps"].as_u64(), Some(i as u64 + 1));
        assert!(line["loss"].is_f64(), "{line}");
        let files = files(&output.join(format!("checkpoint-{}", i + 4)));
        for name in ["adapter_model.safetensors", "optimizer-00001-of-00001.safetensors"] {
            assert_eq!(files[Path::new(name)], kept[Path::new(name)], "{name} after step {}", i + 4);
        }
    }
    let made = &after[skipped];
    assert_eq!(made["learning_rate"], after[0]["learning_rate"], "the schedule goes on where it was");
    assert!(made["grad_norm"].is_f64() && made["skipped_steps"].as_u64() == Some(skipped as u64));
    let files = files(&output.join(format!("checkpoint-{}", skipped + 4)));
    assert_ne!(files[Path::new("adapter_model.safetensors")], kept[Path::new("adapter_model.safetensors")]);
}

#[test]
fn a_scale_grows_and_goes_on_from_a_checkpoint() {
    let example = Example::new(TRAINER);
    let output = example.path("out");
    begun(&example, &output);
    scaled_by(&output.join("checkpoint-3"), 4.0, 1998);
    let settings = ["dtype=float16", STEPS, "save_steps=5", "resume_from_checkpoint=true"];
    let lines = example.metrics_of(&output, &settings);
    assert_eq!(numbers(&lines[3..7], "loss_scale"), [4.0, 4.0, 8.0, 8.0].map(Some));
    let whole = files(&output);
    for step in (10..=40).step_by(5) {
        fs::remove_dir_all(output.join(format!("checkpoint-{step}"))).expect("a checkpoint");
    }
    example.metrics_of(&output, &settings);
    assert!(files(&output) == whole, "what goes on from step 5 is the same, byte for byte");
}

#[test]
fn a_damaged_scale_is_named() {
    let example = Example::new(TRAINER);
    let output = example.path("out");
    begun(&example, &output);
    let goes_on = || example.run(&output, &["dtype=float16", STEPS, "resume_from_checkpoint=true"]);
    for scale in [0.0, -1.0, 1e39] {
        scaled_by(&output.join("checkpoint-3"), scale, 0);
        let ran = goes_on();
        assert_eq!(ran.code, 2, "{scale}: {}", ran.stderr);
        assert!(ran.stderr.contains("expected loss_scale with a scale above 0"), "{scale}: {}", ran.stderr);
    }
    scaled_by(&output.join("checkpoint-3"), 1.0, 0);
    let path = output.join("checkpoint-3/trainer_state.json");
    let state =
        fs::read_to_string(&path).expect("a state").replace("\"skipped_steps\":0", "\"skipped_steps\":4");
    fs::write(path, state).expect("it can be written");
    let ran = goes_on();
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("expected skipped_steps of at most 3, found 4"), "{}", ran.stderr);
}

#[test]
fn a_run_that_goes_on_in_another_type_keeps_its_schedule() {
    let example = Example::new(TRAINER);
    let output = example.path("out");
    begun(&example, &output);
    scaled_by(&output.join("checkpoint-3"), 2.0_f64.powi(40), 0);
    let settings = |dtype| [dtype, STEPS, "save_steps=1", "resume_from_checkpoint=true"];
    let half = example.metrics_of(&output, &settings("dtype=float16"));
    assert_eq!(half[4]["skipped_steps"].as_u64(), Some(2));
    for step in 6..=40 {
        fs::remove_dir_all(output.join(format!("checkpoint-{step}"))).expect("a checkpoint");
    }
    let plain = example.metrics_of(&output, &settings("dtype=float32"));
    assert_eq!(plain[5]["learning_rate"], half[3]["learning_rate"], "two steps of five were left out");
    assert!(plain[5].get("loss_scale").is_none());
    assert_ne!(plain[6]["learning_rate"], plain[5]["learning_rate"]);
}

/// An adapter whose first B is as large as this everywhere.
fn with_large_b(example: &Example, output: &Path, value: f32) {
    example.metrics_of(output, &["max_steps=1"]);
    let file = output.join("adapter/adapter_model.safetensors");
    let checkpoint = Checkpoint::open(&file).expect("an adapter");
    let mut names: Vec<String> = checkpoint.names().map(str::to_owned).collect();
    names.sort();
    let name = names.iter().find(|name| name.contains("lora_B")).expect("a B");
    let bytes = checkpoint.tensor(name).expect("it is there").bytes.to_vec();
    drop(checkpoint);
    let mut whole = fs::read(&file).expect("a file");
    let at = whole.windows(bytes.len()).position(|window| window == bytes).expect("its bytes");
    whole[at..at + bytes.len()].chunks_mut(4).for_each(|four| four.copy_from_slice(&value.to_le_bytes()));
    fs::write(file, whole).expect("it can be written");
}

#[test]
fn what_no_scale_cures_ends_the_run_and_is_named() {
    let example = Example::new(TRAINER);
    let (first, output) = (example.path("first"), example.path("out"));
    with_large_b(&example, &first, 1e30);
    let adapter = format!("adapter_name_or_path={}", first.join("adapter").display());
    let settings = ["dtype=float16", STEPS, "save_steps=1", &adapter];
    let ran = example.run(&output, &settings);
    println!("{}", ran.stderr);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("step 31: the loss is NaN"), "{}", ran.stderr);
    assert!(ran.stderr.contains("layers.0."), "{}", ran.stderr);
    assert_eq!(metrics(&output).len(), 31);
    let (first, plain) = (example.path("nan"), example.path("plain"));
    with_large_b(&example, &first, f32::NAN);
    let adapter = format!("adapter_name_or_path={}", first.join("adapter").display());
    let ran = example.run(&plain, &[STEPS, &adapter]);
    println!("{}", ran.stderr);
    assert_eq!(ran.code, 2, "f32 has no scale, so the first such step ends the run: {}", ran.stderr);
    assert!(ran.stderr.contains("step 1: the loss is NaN"), "{}", ran.stderr);
    assert!(ran.stderr.contains("input \"base_model.") && ran.stderr.contains("lora_B"), "{}", ran.stderr);
}

/// A step whose logits are not numbers has no accuracy, and the run's last lines count the steps that were skipped.
#[test]
fn skipped_steps_are_counted_at_the_end() {
    let example = Example::new(TRAINER);
    let wild = ["dtype=float16", "max_steps=8", "learning_rate=1e5", "device=cpu", "lora_dropout=0"];
    let evaluated = ["eval_dataset_name=eval.jsonl", "eval_strategy=steps", "eval_steps=4"];
    for more in [&[][..], &evaluated] {
        let output = example.path(&format!("wild-{}", more.len()));
        let ran = example.run(&output, &[&wild[..], more].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let lines = metrics(&output);
        for line in &lines {
            for before in ["", "eval_"] {
                let of = |name: &str| line.get(format!("{before}{name}"));
                if of("entropy").is_some_and(Value::is_null) {
                    assert!(of("mean_token_accuracy").is_some_and(Value::is_null), "{line}");
                }
            }
        }
        let skipped = lines.iter().filter_map(|line| line["skipped_steps"].as_u64()).max().expect("a count");
        assert!(skipped >= 4, "{skipped} of 8 steps");
        let want = format!("{skipped} of 8 steps were skipped, as their gradient was not finite; ");
        assert!(ran.stdout.contains(&want), "{}", ran.stdout);
    }
    let plain = example.run(&example.path("plain"), &["max_steps=2", "device=cpu"]);
    assert!(!plain.stdout.contains("skipped"), "{}", plain.stdout);
}
