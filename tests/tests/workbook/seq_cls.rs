//! `trainer train` with `task_type = "SEQ_CLS"`: runs as transformers makes them (`classify_transformers.json`, by
//! `tests/peers/classify_transformers.py`), what is learned, runs that go on, and what is refused by name.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use reference::llama::Llama;
use reference::lora::{Adapter, Module};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::example_run::{Example, files, metrics, on_devices};
use tests::program::{self, Ran};

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");
const KEPT: &str = include_str!("classify_transformers.json");
const NAMES: [&str; 3] = ["question", "exclamation", "statement"];

fn example() -> Example {
    Example::of_task(TRAINER, "SEQ_CLS")
}

/// What a row of the example is held against in a problem, as the script beside the kept logs has it.
fn label(row: &Value, problem: &str) -> Value {
    let text = row["text"].as_str().expect("a text");
    let sign = NAMES.iter().position(|name| row["label"] == *name).expect("a class");
    let is = |yes: bool| f64::from(u8::from(yes));
    match problem {
        "multi_label_classification" => {
            json!([is(sign == 0), is(text.contains(" is ")), is(text.len() > 26)])
        }
        "regression" => json!([text.len() as f64 / 16.0 - 1.5]),
        _ => json!(sign),
    }
}

/// Writes the example's data for a problem; the settings of a run over it.
fn of_problem(example: &Example, problem: &str) -> Vec<String> {
    for (from, to) in [("data.jsonl", "labelled.jsonl"), ("held-out.jsonl", "labelled-held-out.jsonl")] {
        let lines = fs::read_to_string(example.path(from)).expect("data");
        let mut text = String::new();
        for line in lines.lines() {
            let row: Value = serde_json::from_str(line).expect("JSON");
            writeln!(text, "{}", json!({"text": row["text"], "label": label(&row, problem)}))
                .expect("a text");
        }
        fs::write(example.path(to), text).expect("it can be written");
    }
    let mut settings = vec![
        format!("problem_type={problem}"),
        format!("dataset_name={}", example.path("labelled.jsonl").display()),
        format!("eval_dataset_name={}", example.path("labelled-held-out.jsonl").display()),
    ];
    if problem == "regression" {
        settings.push("id2label=[\"length\"]".into());
    }
    settings
}

fn texts(settings: &[String]) -> Vec<&str> {
    settings.iter().map(String::as_str).collect()
}

/// The relative distance of a key in two logs.
fn apart(key: &str, log: &[Value], own: &[Value]) -> f64 {
    let number = |line: &Value| line[key].as_f64().unwrap_or(f64::NAN);
    assert_eq!(log.len(), own.len(), "{key}");
    let each = log
        .iter()
        .zip(own)
        .map(|(want, got)| ((number(want) - number(got)) / number(want).abs().max(1e-30)).abs());
    each.fold(0.0, |most: f64, apart| if apart.is_nan() { f64::INFINITY } else { most.max(apart) })
}

#[test]
fn runs_of_a_classifier_are_those_of_transformers() {
    let (example, kept) = (example(), serde_json::from_str::<Value>(KEPT).expect("JSON"));
    let given = kept["settings"].as_object().expect("settings");
    let given: Vec<String> = given.iter().map(|(key, value)| format!("{key}={value}")).collect();
    for device in on_devices().into_iter().chain(["ranks=2", "ranks=3"]) {
        for (problem, runs) in kept["runs"].as_object().expect("runs") {
            let settings = [
                given.clone(),
                of_problem(&example, problem),
                vec![device.into(), "eval_strategy=no".into()],
            ];
            let folder = TempDir::new().expect("a folder");
            let own = example.metrics_of(&folder.path().join("out"), &texts(&settings.concat()));
            let [wide, narrow] = ["f64", "f32"].map(|dtype| runs[dtype].as_array().expect("a log"));
            for (key, floor) in [("loss", 5e-6), ("grad_norm", 5e-5), ("learning_rate", 1e-9)] {
                // no further from the run in f64 than three times the original's own run in f32
                let (ours, theirs) = (apart(key, wide, &own), apart(key, wide, narrow));
                println!("{problem}: {key}: ours {ours:.1e}, theirs {theirs:.1e}");
                assert!(
                    ours <= (3.0 * theirs).max(floor),
                    "{problem}: {key}: {ours:.1e} off, theirs {theirs:.1e}"
                );
            }
        }
    }
}

/// The documented run: the held-out sayings are of sentences that no row of training has.
#[test]
fn a_classifier_of_sayings_answers_those_that_are_held_out() {
    let (example, folder) = (example(), TempDir::new().expect("a folder"));
    for device in on_devices() {
        let output = folder.path().join(device);
        let lines = example.metrics_of(&output, &[device]);
        let last = lines.iter().rfind(|line| line.get("eval_loss").is_some()).expect("an evaluation");
        let number = |key: &str| last[key].as_f64().expect("a number");
        println!("{device}: {last}");
        assert!(number("eval_accuracy") >= 0.95 && number("eval_f1") >= 0.95, "{last}");
        let counted =
            last["eval_confusion"].as_array().expect("rows").iter().flat_map(|row| row.as_array().unwrap());
        assert_eq!(counted.map(|count| count.as_u64().unwrap()).sum::<u64>(), 36);
        let model = example.path("model");
        let names = NAMES.map(str::to_owned);
        let model = Llama::open_classifier(model.to_str().expect("a path"), Some(&names)).expect("a model");
        let adapter = Adapter::open(output.join("adapter"), &model.config).expect("it is beside it");
        assert_eq!(adapter.config.modules.to_save, [Module::Score]);
        let text = fs::read_to_string(output.join("adapter/adapter_config.json")).expect("a config");
        let config: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(config["task_type"], "SEQ_CLS");
        assert_eq!(config["modules_to_save"], json!(["classifier", "score"]));
    }
}

/// Every problem, type, and way to lay rows is trained and evaluated.
#[test]
fn classifiers_are_trained_in_every_way() {
    let example = example();
    for (problem, metric) in [
        ("single_label_classification", "eval_f1"),
        ("multi_label_classification", "eval_f1"),
        ("regression", "eval_mse"),
    ] {
        let of_problem = of_problem(&example, problem);
        for more in [
            &["per_device_train_batch_size=1"][..],
            &["packing=true"],
            &["dtype=bfloat16"],
            &["dtype=float16"],
            &["load_in_4bit=true", "gradient_checkpointing=true"],
            &["lora_modules_to_save=[\"embed_tokens\"]"],
            &["trainable_token_indices=[63, 33]"],
        ] {
            let folder = TempDir::new().expect("a folder");
            let short = ["max_steps=6", "warmup_steps=0", "eval_steps=3", "save_steps=6"];
            let settings = [&texts(&of_problem)[..], more, &short].concat();
            let lines = example.metrics_of(&folder.path().join("out"), &settings);
            let losses = lines.iter().filter_map(|line| line["loss"].as_f64());
            assert!(losses.clone().all(f64::is_finite) && losses.count() == 6, "{problem}, {more:?}");
            let evaluated: Vec<f64> = lines.iter().filter_map(|line| line[metric].as_f64()).collect();
            assert!(
                evaluated.len() == 2 && evaluated.iter().all(|value| value.is_finite()),
                "{problem}, {more:?}"
            );
        }
    }
}

#[test]
fn classifiers_on_ranks_equal_one_rank() {
    let example = example();
    for problem in ["single_label_classification", "multi_label_classification", "regression"] {
        let of_problem = of_problem(&example, problem);
        let run = |more: &[&str]| {
            let folder = TempDir::new().expect("a folder");
            let short = ["device=cpu", "max_steps=4", "eval_strategy=steps", "eval_steps=2"];
            let parts = ["per_device_train_batch_size=4", "gradient_accumulation_steps=3"];
            let settings = [&texts(&of_problem)[..], &short, &parts, more].concat();
            example.metrics_of(&folder.path().join("out"), &settings)
        };
        for more in [&[][..], &["packing=true"]] {
            let one = run(more);
            for mesh in ["ranks=2", "ranks=4", "mesh=pp=2", "mesh=tp=2"] {
                let several = run(&[more, &[mesh]].concat());
                assert_eq!(several.len(), one.len());
                for (found, expected) in several.iter().zip(&one) {
                    for key in expected.as_object().expect("an object").keys() {
                        if ["peak_bytes", "tokens_per_second", "eval_runtime"].contains(&key.as_str()) {
                            continue;
                        }
                        let (Some(found), Some(expected)) = (found[key].as_f64(), expected[key].as_f64())
                        else {
                            assert_eq!(found[key], expected[key], "{problem}, {more:?}, {mesh}: {key}");
                            continue;
                        };
                        let distance = (found - expected).abs() / expected.abs().max(1e-3);
                        assert!(distance < 2e-5, "{problem}, {more:?}, {mesh}: {key} {found} {expected}");
                    }
                }
            }
        }
    }
}

/// A step's loss is the mean over its texts, however they are dealt out to micro-batches and laid in them.
#[test]
fn a_step_of_several_micro_batches_is_one_of_a_large_one() {
    let example = example();
    for problem in ["single_label_classification", "multi_label_classification", "regression"] {
        let of_problem = of_problem(&example, problem);
        let run = |rows: &str, parts: &str| {
            let folder = TempDir::new().expect("a folder");
            let short =
                ["max_steps=5", "eval_strategy=no", "train_sampling_strategy=sequential", rows, parts];
            example.metrics_of(&folder.path().join("out"), &[&texts(&of_problem)[..], &short].concat())
        };
        let whole = run("per_device_train_batch_size=12", "gradient_accumulation_steps=1");
        for (rows, parts) in [(6, 2), (1, 12), (5, 3)] {
            let parted = run(
                &format!("per_device_train_batch_size={rows}"),
                &format!("gradient_accumulation_steps={parts}"),
            );
            if rows * parts == 12 {
                for key in ["loss", "grad_norm"] {
                    let apart = apart(key, &whole, &parted);
                    assert!(apart < 2e-5, "{problem}, {rows} x {parts}: {key} {apart:.1e} apart");
                }
            }
        }
    }
}

/// A text that the token of padding ends is answered from the token before, as in the original; without one in the
/// model's config every text from its last.
#[test]
fn the_models_token_of_padding_is_none_to_answer_from() {
    let example = example();
    let config = example.path("model/config.json");
    let read = |pad: Value| {
        let mut own: Value =
            serde_json::from_str(&fs::read_to_string(&config).expect("a config")).expect("JSON");
        own["pad_token_id"] = pad;
        fs::write(&config, own.to_string()).expect("it can be written");
        let folder = TempDir::new().expect("a folder");
        let short = ["max_steps=1", "eval_strategy=no", "train_sampling_strategy=sequential"];
        example.metrics_of(&folder.path().join("out"), &short)[0]["loss"].as_f64().expect("a loss").to_bits()
    };
    let plain = read(Value::Null);
    assert_eq!(read(json!(258)), plain, "no text has it");
    // the last letter of every name in the first rows: `a` of Ada, `e` of Grace
    assert_ne!(read(json!(i32::from(b'a'))), plain);
}

/// The weights that a run begins with are its seed's alone, and a run that goes on has the same files.
#[test]
fn a_classifier_goes_on_bit_for_bit() {
    let (example, folder) = (example(), TempDir::new().expect("a folder"));
    let [whole, parted] = ["whole", "parted"].map(|name| folder.path().join(name));
    let short = ["max_steps=9", "save_steps=3", "eval_steps=3"];
    example.metrics_of(&whole, &short);
    example.metrics_of(&parted, &short);
    for name in ["checkpoint-6", "checkpoint-9", "adapter"] {
        fs::remove_dir_all(parted.join(name)).expect("it was written");
    }
    example.metrics_of(&parted, &[&short[..], &["resume_from_checkpoint=true"]].concat());
    let (whole, parted) = (files(&whole), files(&parted));
    assert!(whole.keys().eq(parted.keys()));
    for (name, bytes) in &whole {
        assert!(*bytes == parted[name], "{} differs", name.display());
    }
}

fn refused(ran: &Ran, words: &str) {
    assert_eq!(ran.code, 2, "{words}: {}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains(words), "expected {words:?}: {}", ran.stderr);
}

#[test]
fn what_no_classifier_can_do_is_named_and_nothing_is_written() {
    let (example, folder) = (example(), TempDir::new().expect("a folder"));
    let output = folder.path().join("out");
    for (settings, words) in [
        (&["task_type=TOKEN_CLS"][..], "task_type: expected CAUSAL_LM or SEQ_CLS, found \"TOKEN_CLS\""),
        (&["task_type=CAUSAL_LM"], "id2label: expected task_type = \"SEQ_CLS\" beside it"),
        (&["num_labels=4"], "num_labels: expected 3, the names of id2label, found 4"),
        (&["id2label=[\"a\", \"a\"]"], "id2label: expected a list of names, or a table of them"),
        (&["id2label={0 = \"a\", 2 = \"b\"}"], "id2label: expected a list of names, or a table of them"),
        (&["problem_type=ranking"], "problem_type: expected single_label_classification, multi_label"),
        (
            &["id2label=[\"a\"]", "problem_type=single_label_classification"],
            "problem_type: expected regression",
        ),
        (&["assistant_only_loss=true"], "assistant_only_loss: expected false with task_type = \"SEQ_CLS\""),
        (&["loss_chunk_bytes=100000"], "loss_chunk_bytes: expected false with task_type = \"SEQ_CLS\""),
        (&["lora_modules_to_save=[\"lm_head\"]"], "expected no lm_head beside a classifier, which has none"),
        (
            &["id2label=[\"a\", \"b\"]"],
            "line 1: label: expected a class below 2, or one of \"a\", \"b\", found \"question\"",
        ),
        (&["problem_type=regression"], "line 1: label: expected 3 numbers, found \"question\""),
    ] {
        refused(&example.run(&output, settings), words);
        assert!(metrics(&output).is_empty(), "{settings:?}: something was written");
    }
    for (line, words) in [
        (json!({"label": 1}), "line 1: expected the key text, or messages, next to the label"),
        (json!({"text": "a"}), "line 1: expected the key label, or labels, for a classifier"),
        (json!({"text": 1, "label": 1}), "line 1: text: expected a text"),
        (
            json!({"text": "a", "messages": [{"role": "user", "content": "a"}], "label": 1}),
            "line 1: expected text or messages next to the label, found both",
        ),
        (json!({"messages": "a", "label": 1}), "line 1: messages: expected a list"),
        (json!({"text": "", "label": 1}), "no line has a trained token"),
    ] {
        fs::write(example.path("bad.jsonl"), format!("{line}\n")).expect("it can be written");
        let given = format!("dataset_name={}", example.path("bad.jsonl").display());
        refused(&example.run(&output, &[&given]), words);
    }
}

/// Another task, other labels or another problem make another run.
#[test]
fn a_classifier_does_not_go_on_with_something_else() {
    let (example, folder) = (example(), TempDir::new().expect("a folder"));
    let output = folder.path().join("out");
    let of_numbers = of_problem(&example, "multi_label_classification");
    let short = ["max_steps=2", "save_steps=2", "eval_strategy=no"];
    example.metrics_of(&output, &short);
    let on = |more: &[&str]| {
        let longer = ["max_steps=4", "eval_strategy=no", "resume_from_checkpoint=true"];
        example.run(&output, &[&longer[..], more].concat())
    };
    refused(&on(&texts(&of_numbers)), "problem_type: expected ");
    let swapped = fs::read_to_string(example.path("data.jsonl"))
        .expect("data")
        .replace("\"statement\"", "\"question\"");
    fs::write(example.path("swapped.jsonl"), swapped).expect("it can be written");
    let given = format!("dataset_name={}", example.path("swapped.jsonl").display());
    refused(&on(&[&given]), "dataset_name: ");
    refused(
        &on(&["id2label=[\"a\", \"question\", \"exclamation\", \"statement\"]"]),
        "expected shape [4, 64]",
    );
}

fn trainer(arguments: &[&str]) -> Ran {
    program::run(Path::new(TRAINER), Path::new("."), arguments)
}

#[test]
fn a_classifier_is_no_language_model() {
    let (example, folder) = (example(), TempDir::new().expect("a folder"));
    let config = example.path("model/config.json");
    let mut own: Value = serde_json::from_str(&fs::read_to_string(&config).expect("a config")).expect("JSON");
    let model = example.path("model").display().to_string();
    let output = folder.path().join("out");
    example.metrics_of(&output, &["max_steps=1", "eval_strategy=no"]);
    let adapter = output.join("adapter").display().to_string();
    let generate = ["generate", &model, "--adapter", &adapter, "--ids", "1,2"];
    refused(&trainer(&generate), "expected no score beside a model that predicts the next token");
    own["architectures"] = json!(["LlamaForSequenceClassification"]);
    fs::write(&config, own.to_string()).expect("it can be written");
    refused(&trainer(&["generate", &model, "--ids", "1,2"]), "tensor `score.weight`: not in the checkpoint");
    refused(&example.run(&folder.path().join("other"), &[]), "tensor `score.weight`: not in the checkpoint");
}

#[test]
fn a_plan_of_a_classifier_is_made() {
    let example = example();
    let ran = example.plan(&[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("the whole context fits"), "{}", ran.stdout);
}
