//! `trainer train`: the runs of TRL's `SFTTrainer` number for number, runs that are stopped and go on, bad input.
//!
//! A run's log belongs to the base that it was made over. `open-sft.tgz` names `open-tiny-llama/nf4`, but the losses in
//! it are those of another model: even before the first update the oracle's loss over the checkpoint is 1.8 % off, and
//! so is TRL's own (`tests/peers/trainer_trl.py`). So what does not depend on the weights - tokens, masks, rates,
//! counts - is held to the set's logs, losses and norms are only where the oracle finds its first loss, and the same
//! runs by TRL over the checkpoint itself are kept in `trainer_trl.json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reference::graph::Array;
use reference::graph::interpret::{Values, interpret};
use reference::llama::{Llama, Spec, rope};
use reference::lora::Adapter;
use serde_json::Value;
use tempfile::TempDir;
use tests::example_run::{self, on_devices};
use tests::program::{self, Ran};
use tests::tiny_llama::TinyLlama;
use tests::{golden, place};
use trainer::train::data::Encoder;

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");
const KEPT: &str = include_str!("trainer_trl.json");

/// The golden runs and their base.
pub(crate) struct Sft {
    folder: TempDir,
    pub base: TinyLlama,
}

impl Sft {
    pub fn find() -> Option<Self> {
        Some(Self { base: TinyLlama::find()?, folder: golden::find_archive("open-sft.tgz")? })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("open-sft").join(name)
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name)).expect("it is there")).expect("JSON")
    }

    /// The names of the runs.
    fn runs(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("")).expect("a folder").flatten();
        let runs = entries.filter(|entry| entry.path().join("run.json").exists());
        let mut names: Vec<String> =
            runs.map(|entry| entry.file_name().into_string().expect("a name")).collect();
        names.sort();
        names
    }

    /// A run's config with the trainer's keys, for an output folder.
    pub fn config(&self, run: &str, output: &Path) -> String {
        let given = self.json(&format!("{run}/run.json"));
        let mut keys = BTreeMap::from([
            ("model_name_or_path".to_owned(), text(&self.base.path("nf4"))),
            ("tokenizer_name_or_path".to_owned(), text(&self.path("tokenizer"))),
            ("adapter_name_or_path".to_owned(), text(&self.path(&format!("{run}/adapter-start")))),
            ("dataset_name".to_owned(), text(&self.path("data.jsonl"))),
            ("output_dir".to_owned(), text(output)),
            ("assistant_only_loss".to_owned(), true.into()),
            ("train_sampling_strategy".to_owned(), "sequential".into()),
            ("lora_target_modules".to_owned(), "all-linear".into()),
        ]);
        let of = |part: &str| given["config"][part].as_object().expect("settings").clone();
        for (key, value) in of("lora").into_iter().chain(of("args")) {
            let named = match key.as_str() {
                "r" | "target_modules" | "modules_to_save" => format!("lora_{key}"),
                _ => key,
            };
            keys.insert(named, value);
        }
        keys.iter().fold(String::new(), |mut text, (key, value)| {
            _ = writeln!(text, "{key} = {value}"); // such JSON is TOML
            text
        })
    }

    /// The loss of a run's first step before any update, by the oracle.
    pub fn first_loss(&self, run: &str, micro: &[Vec<usize>], most: Option<usize>) -> f64 {
        let llama = Llama::open(self.base.path("nf4").to_str().expect("a path")).expect("a model");
        let adapter =
            Adapter::open(self.path(&format!("{run}/adapter-start")), &llama.config).expect("an adapter");
        let encoder = Encoder::open(&self.path("tokenizer"), llama.config.vocab, true).expect("a tokenizer");
        let rows = encoder.rows(&self.path("data.jsonl"), most).expect("rows").rows;
        let graph =
            Spec { adapter: Some(adapter.config.clone()), ..llama.spec() }.microbatch().expect("a graph");
        let items: usize = micro.concat().iter().map(|row| rows[*row].counted()).sum();
        let loss = |row: &usize| {
            let row = &rows[*row];
            let shape = [1, row.ids.len()];
            let mut values: Values<f64> = llama.values().expect("weights");
            values.append(&mut rope::values(&llama.config, row.ids.len()));
            values.append(&mut adapter.values());
            values.insert("ids".into(), Array::integers(&shape, row.ids.clone()));
            values.insert("labels".into(), Array::integers(&shape, row.labels()));
            values.insert("items".into(), Array::scalar(items as f64));
            interpret(&graph, &values).expect("it runs")[0].wide()[0]
        };
        micro.concat().iter().map(loss).sum()
    }
}

fn text(path: &Path) -> Value {
    path.to_str().expect("a path").into()
}

fn start(folder: &Path, config: &str, settings: &[&str]) -> Command {
    let file = folder.join("config.toml");
    fs::write(&file, config).expect("it can be written");
    let mut command = Command::new(place::program(Path::new(TRAINER)));
    command.current_dir(folder).arg("train").arg(file);
    for setting in settings {
        command.args(["--set", setting]);
    }
    command
}

pub(crate) fn train(folder: &Path, config: &str, settings: &[&str]) -> Ran {
    program::finish(&mut start(folder, config, settings))
}

/// The lines of the metrics that are complete, without the keys that depend on the clock and the process.
pub(crate) fn metrics(output: &Path) -> Vec<Value> {
    example_run::complete_metrics(output).into_iter().map(example_run::without_process).collect()
}

#[track_caller]
pub(crate) fn close(run: &str, key: &str, log: &[Value], own: &[Value], most: f64) {
    let number = |line: &Value| line[key].as_f64().unwrap_or(f64::NAN);
    for (want, got) in log.iter().zip(own) {
        let (want, got) = (number(want), number(got));
        let error = (want - got).abs() / want.abs().max(1e-30); // 0 of two zeros
        assert!(error <= most, "{run}: {key}: expected {want}, found {got}, {error:.1e} off");
    }
}

/// The logs of the three runs, or of those of another set.
#[test]
fn runs_are_the_librarys_number_for_number() {
    for device in on_devices() {
        runs_are_the_librarys(&[device]);
    }
}

/// The same with a few tokens' logits at a time.
#[test]
fn runs_with_a_chunked_loss_are_the_librarys() {
    for device in on_devices() {
        runs_are_the_librarys(&["loss_chunk_bytes=100000", device]);
    }
}

/// The same on several ranks, more of them than a step has micro-batches and not.
#[test]
fn runs_on_ranks_are_the_librarys() {
    for setting in ["ranks=2", "ranks=3", "mesh=pp=2, tp=2"] {
        runs_are_the_librarys(&[setting]);
        runs_are_the_librarys(&[setting, "loss_chunk_bytes=100000"]);
    }
}

fn runs_are_the_librarys(settings: &[&str]) {
    let Some(sft) = Sft::find() else { return };
    let kept: Value = serde_json::from_str(KEPT).expect("JSON");
    for name in sft.runs() {
        let folder = TempDir::new().expect("a folder");
        let output = folder.path().join("out");
        let ran = train(folder.path(), &sft.config(&name, &output), settings);
        let run = format!("{name} with {settings:?}");
        assert_eq!(ran.code, 0, "{run}: {}{}", ran.stdout, ran.stderr);
        let (own, given) = (metrics(&output), sft.json(&format!("{name}/run.json")));
        let log = given["log"]["f64"].as_array().expect("a log");
        assert_eq!(own.len(), log.len(), "{run}: steps");
        for key in ["step", "num_tokens", "learning_rate"] {
            close(&run, key, log, &own, 1e-14);
        }
        close(&run, "epoch", log, &own, 1e-12);

        let args = &given["config"]["args"];
        let size = |key: &str, default: u64| args[key].as_u64().unwrap_or(default) as usize;
        let batch = size("per_device_train_batch_size", 8);
        let rows: Vec<usize> = (0..batch * size("gradient_accumulation_steps", 1)).collect();
        let micro: Vec<Vec<usize>> = rows.chunks(batch).map(<[usize]>::to_vec).collect();
        let first = sft.first_loss(&name, &micro, Some(size("max_length", 1024)));
        let fits = |log: &[Value]| (first - log[0]["loss"].as_f64().expect("a loss")).abs() < 1e-5 * first;
        let again = kept["runs"][&name]["f64"].as_array().filter(|again| fits(again));
        for log in [Some(log).filter(|log| fits(log)), again].into_iter().flatten() {
            close(&run, "loss", log, &own, 5e-6);
            close(&run, "grad_norm", log, &own, 2e-5);
            close(&run, "entropy", log, &own, 5e-6);
            close(&run, "mean_token_accuracy", log, &own, 1e-6);
        }
        if !fits(log) {
            println!(
                "not measured: {run}: the losses of the set's log are of another base than its checkpoint"
            );
        }
        let adapter = Adapter::open(output.join("adapter"), &sft.base.open("nf4").config);
        adapter.unwrap_or_else(|error| panic!("{run}: {error}"));
    }
}

#[test]
fn tokens_and_masks_are_the_librarys() {
    let Some(sft) = Sft::find() else { return };
    let vocab = sft.base.open("nf4").config.vocab;
    let encoder = Encoder::open(&sft.path("tokenizer"), vocab, true).expect("a tokenizer");
    let rows = encoder.rows(&sft.path("data.jsonl"), None).expect("rows");
    let want = sft.json("tokens.json");
    assert_eq!(rows.rows.len() + rows.left_out, want.as_array().expect("rows").len());
    let counts = |row: &&Value| row["assistant_mask"].as_array().is_some_and(|mask| mask.contains(&1.into()));
    for (row, want) in rows.rows.iter().zip(want.as_array().expect("rows").iter().filter(counts)) {
        assert_eq!(Value::from(row.ids.clone()), want["input_ids"]);
        let trained: Vec<u8> = row.trained.iter().map(|trained| u8::from(*trained)).collect();
        assert_eq!(Value::from(trained), want["assistant_mask"]);
    }
}

/// `UPDATE=1` writes the losses again that the book draws: those of the CPU.
#[test]
fn the_kept_losses_are_those_of_the_published_run() {
    let (Some(sft), None) = (Sft::find(), std::env::var_os("WARPBOOK_GOLDEN")) else { return };
    let folder = TempDir::new().expect("a folder");
    let output = folder.path().join("out");
    let ran = train(folder.path(), &sft.config("published", &output), &["device=cpu"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let path = tests::place::workbook().join("book/src/results/trainer-losses.csv");
    let text = fs::read_to_string(&path).expect("kept losses");
    let log: Value = serde_json::from_str(KEPT).expect("JSON");
    let own = metrics(&output);
    if std::env::var("UPDATE").is_ok_and(|update| update == "1") {
        let head = text.lines().take_while(|line| !line.starts_with(|c: char| c.is_ascii_digit()));
        let mut text = head.collect::<Vec<_>>().join("\n") + "\n";
        let loss = |dtype: &str, step: usize| {
            log["runs"]["published"][dtype][step]["loss"].as_f64().expect("a loss")
        };
        for (step, line) in own.iter().enumerate() {
            let (own, [narrow, wide]) =
                (line["loss"].as_f64().expect("a loss"), ["f32", "f64"].map(|of| loss(of, step)));
            _ = writeln!(text, "{},{own:.9},{narrow:.9},{wide:.9}", step + 1);
        }
        fs::write(&path, text).expect("it can be written");
        return;
    }
    let rows = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let kept: Vec<f64> =
        rows.map(|row| row.split(',').nth(1).and_then(|cell| cell.parse().ok()).expect("a loss")).collect();
    assert_eq!(kept.len(), own.len());
    for (kept, line) in kept.iter().zip(&own) {
        let now = line["loss"].as_f64().expect("a loss");
        assert!((kept - now).abs() < 1e-5 * now, "kept {kept}, now {now}");
    }
}

/// Rows packed into longer ones are the rows alone: the same loss and the same gradient.
#[test]
fn packed_rows_have_the_loss_of_the_rows_alone() {
    let Some(sft) = Sft::find() else { return };
    let first = |settings: &[&str]| {
        let folder = TempDir::new().expect("a folder");
        let output = folder.path().join("out");
        let ran = train(folder.path(), &sft.config("cosine", &output), settings);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        metrics(&output)
    };
    let alone = first(&[
        "max_steps=1",
        "max_length=200",
        "per_device_train_batch_size=96",
        "gradient_accumulation_steps=1",
    ]);
    let packed = first(&[
        "max_steps=1",
        "max_length=200",
        "per_device_train_batch_size=8",
        "gradient_accumulation_steps=64",
        "packing=true",
    ]);
    close("packed", "loss", &alone, &packed, 1e-6);
    close("packed", "grad_norm", &alone, &packed, 5e-6);
    close("packed", "num_tokens", &alone, &packed, 0.0);
}

/// A loss in chunks is the loss, whatever else is asked for, and its logits are never there at once.
#[test]
fn a_chunked_loss_is_the_loss_in_less_memory() {
    let Some(sft) = Sft::find() else { return };
    let run = |settings: &[&str]| {
        let folder = TempDir::new().expect("a folder");
        let output = folder.path().join("out");
        let ran = train(folder.path(), &sft.config("cosine", &output), settings);
        assert_eq!(ran.code, 0, "{settings:?}: {}{}", ran.stdout, ran.stderr);
        metrics(&output)
    };
    let large = ["max_steps=2", "gradient_accumulation_steps=2"];
    let of = [
        (vec!["per_device_train_batch_size=48"], 2e-6),
        (vec!["per_device_train_batch_size=3"], 2e-6),
        (vec!["per_device_train_batch_size=8", "packing=true", "max_length=200"], 2e-6),
        (vec!["per_device_train_batch_size=5", "dtype=bfloat16"], 1e-2),
    ];
    for (settings, most) in of {
        let settings = [&large[..], &settings].concat();
        let whole = run(&settings);
        let chunked = run(&[&settings[..], &["loss_chunk_bytes=60000"]].concat());
        assert_eq!(whole.len(), chunked.len());
        for key in ["loss", "grad_norm", "entropy", "mean_token_accuracy"] {
            close(
                &format!("{settings:?}"),
                key,
                &whole,
                &chunked,
                if key == "grad_norm" { 4.0 * most } else { most },
            );
        }
        let bytes = |lines: &[Value]| lines[0]["peak_bytes"].as_u64();
        if let (Some(whole), Some(chunked)) = (bytes(&whole), bytes(&chunked)) {
            println!("{settings:?}: {whole} bytes, in chunks {chunked}");
            assert!(chunked < whole, "{settings:?}: {chunked} bytes, {whole} with all logits");
        }
    }
    let dropped = || run(&[&large[..], &["loss_chunk_bytes=60000", "lora_dropout=0.2"]].concat());
    assert_eq!(dropped(), dropped()); // drawn for padded rows: other masks than those of all logits at once
}

/// Dropout is drawn from the seed and the step: runs repeat, seeds differ, and without it nothing is drawn.
#[test]
fn dropout_repeats_with_its_seed() {
    let Some(sft) = Sft::find() else { return };
    let run = |settings: &[&str]| {
        let folder = TempDir::new().expect("a folder");
        let output = folder.path().join("out");
        let ran = train(folder.path(), &sft.config("cosine", &output), settings);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        metrics(&output)
    };
    let dropped = run(&["max_steps=2", "lora_dropout=0.2", "seed=1"]);
    assert_eq!(dropped, run(&["max_steps=2", "lora_dropout=0.2", "seed=1"]));
    assert_ne!(dropped, run(&["max_steps=2", "lora_dropout=0.2", "seed=2"]));
    assert_ne!(dropped, run(&["max_steps=2", "seed=1"]));
    assert_eq!(run(&["max_steps=2", "seed=1"]), run(&["max_steps=2", "seed=2"]));
}

/// Waits until a run has written so many lines of metrics; whether it is still running.
fn has_steps(child: &mut Child, output: &Path, steps: usize) -> bool {
    let begin = Instant::now();
    while metrics(output).len() < steps {
        assert!(begin.elapsed() < Duration::from_mins(2), "no step in two minutes");
        if child.try_wait().expect("a child").is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// A run of 24 steps that is never stopped, and what it left.
fn whole(sft: &Sft) -> (Vec<Value>, Vec<u8>) {
    let folder = TempDir::new().expect("a folder");
    let output = folder.path().join("out");
    let ran = train(folder.path(), &sft.config("cosine", &output), SHORT);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    (metrics(&output), fs::read(output.join("adapter/adapter_model.safetensors")).expect("an adapter"))
}

/// Rows in a drawn order, and checkpoints often.
const SHORT: &[&str] = &["max_steps=24", "save_steps=3", "train_sampling_strategy=random"];
const RESUMED: &[&str] =
    &["max_steps=24", "save_steps=3", "train_sampling_strategy=random", "resume_from_checkpoint=true"];

#[test]
fn a_killed_run_goes_on_bit_for_bit() {
    let Some(sft) = Sft::find() else { return };
    let (lines, adapter) = whole(&sft);
    for steps in [2, 7, 12, 19] {
        let folder = TempDir::new().expect("a folder");
        let output = folder.path().join("out");
        let config = sft.config("cosine", &output);
        let mut child =
            start(folder.path(), &config, SHORT).stdout(Stdio::null()).spawn().expect("it starts");
        has_steps(&mut child, &output, steps);
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        let ran = train(folder.path(), &config, RESUMED);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        assert_eq!(metrics(&output), lines, "killed after {steps} steps");
        let again = fs::read(output.join("adapter/adapter_model.safetensors")).expect("an adapter");
        assert!(again == adapter, "the adapter of the run that was killed after {steps} steps differs");
    }
}

#[cfg(unix)]
#[test]
fn a_run_that_is_asked_to_stop_saves_first() {
    let Some(sft) = Sft::find() else { return };
    let folder = TempDir::new().expect("a folder");
    let output = folder.path().join("out");
    let config = sft.config("cosine", &output);
    let settings = ["max_steps=2000", "save_steps=1000000"];
    let mut child =
        start(folder.path(), &config, &settings).stdout(Stdio::null()).spawn().expect("it starts");
    assert!(has_steps(&mut child, &output, 2));
    let asked = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(asked.expect("kill runs").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    let last = metrics(&output).len();
    assert!(output.join(format!("checkpoint-{last}")).exists(), "a checkpoint of step {last}");
}

/// What happens to a checkpoint.
type Damage = fn(&Path);

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let Some(sft) = Sft::find() else { return };
    let (lines, adapter) = whole(&sft);
    let damages: [Damage; 5] = [
        |path| {
            let mut bytes = fs::read(path.join("adapter_model.safetensors")).expect("a file");
            *bytes.last_mut().expect("bytes") ^= 1;
            fs::write(path.join("adapter_model.safetensors"), bytes).expect("it can be written");
        },
        |path| fs::write(path.join("optimizer-00001-of-00001.safetensors"), b"").expect("it can be written"),
        |path| fs::remove_file(path.join("trainer_state.json")).expect("it is there"),
        |path| fs::write(path.join("trainer_state.json"), "{").expect("it can be written"),
        |path| fs::remove_dir_all(path).and_then(|()| fs::create_dir(path)).expect("a folder"),
    ];
    for damage in damages {
        let folder = TempDir::new().expect("a folder");
        let output = folder.path().join("out");
        let config = sft.config("cosine", &output);
        let mut child =
            start(folder.path(), &config, SHORT).stdout(Stdio::null()).spawn().expect("it starts");
        has_steps(&mut child, &output, 8);
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        let newest =
            (1..=8).rev().map(|n| output.join(format!("checkpoint-{}", 3 * n))).find(|path| path.exists());
        let newest = newest.expect("a checkpoint");
        damage(&newest);
        let ran = train(folder.path(), &config, RESUMED);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        let name = newest.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(
            ran.stderr.contains(name) && ran.stderr.contains("; the run resumes from checkpoint-"),
            "{}",
            ran.stderr
        );
        assert_eq!(metrics(&output), lines);
        assert!(fs::read(output.join("adapter/adapter_model.safetensors")).expect("an adapter") == adapter);
    }
}

#[test]
fn two_trainers_do_not_write_into_one_folder() {
    let Some(sft) = Sft::find() else { return };
    let folder = TempDir::new().expect("a folder");
    let output = folder.path().join("out");
    let config = sft.config("cosine", &output);
    let mut first =
        start(folder.path(), &config, &["max_steps=2000"]).stdout(Stdio::null()).spawn().expect("it starts");
    assert!(has_steps(&mut first, &output, 1));
    let second = train(folder.path(), &config, &["resume_from_checkpoint=true"]);
    first.kill().expect("it can be killed");
    first.wait().expect("it ends");
    assert_eq!(second.code, 2);
    assert!(second.stderr.contains("another trainer writes here"), "{}", second.stderr);
    let third = train(folder.path(), &config, &[]);
    assert_eq!(third.code, 2);
    assert!(third.stderr.contains("a run is here already"), "{}", third.stderr);
    let fourth = train(folder.path(), &config, &["max_steps=3", "resume_from_checkpoint=true"]);
    assert_eq!(fourth.code, 0, "the lock ends with the process that was killed: {}", fourth.stderr);
}

/// What is wrong with a config or its data, and a word that the message has.
#[test]
fn bad_input_is_named_and_nothing_is_written() {
    let Some(sft) = Sft::find() else { return };
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("it can be written");
        format!("dataset_name={}", folder.path().join(name).display())
    };
    let good = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#;
    let asked = r#"{"messages": [{"role": "user", "content": "a"}]}"#;
    let long = format!(
        r#"{{"messages": [{{"role": "user", "content": "a"}}, {{"role": "assistant", "content": "{}"}}]}}"#,
        "ember ".repeat(400)
    );
    let unmarked = folder.path().join("unmarked");
    fs::create_dir(&unmarked).expect("a folder");
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(sft.path("tokenizer").join(name), unmarked.join(name)).expect("it can be copied");
    }
    fs::write(unmarked.join("chat_template.jinja"), "{{ messages[0]['content'] }}")
        .expect("it can be written");
    let larger = folder.path().join("larger");
    fs::create_dir(&larger).expect("a folder");
    for name in ["tokenizer_config.json", "chat_template.jinja"] {
        fs::copy(sft.path("tokenizer").join(name), larger.join(name)).expect("it can be copied");
    }
    let tokenizer = fs::read_to_string(sft.path("tokenizer/tokenizer.json")).expect("a tokenizer");
    let mut tokenizer: Value = serde_json::from_str(&tokenizer).expect("JSON");
    let mut added = tokenizer["added_tokens"][0].clone();
    (added["id"], added["content"]) = (100_000.into(), "<|far|>".into());
    tokenizer["added_tokens"].as_array_mut().expect("tokens").push(added);
    fs::write(larger.join("tokenizer.json"), tokenizer.to_string()).expect("it can be written");
    let other = folder.path().join("other");
    fs::create_dir(&other).expect("a folder");
    fs::write(other.join("config.json"), r#"{"model_type": "mamba"}"#).expect("it can be written");

    let cases = [
        ("learning_rat=1e-3".to_owned(), "unknown key \"learning_rat\"; did you mean learning_rate?"),
        ("zzzzzz=1".to_owned(), "unknown key \"zzzzzz\""),
        ("bf16=true".to_owned(), "unknown key \"bf16\"; dtype = \"bfloat16\" computes in it"),
        ("learning_rate=fast".to_owned(), "learning_rate: expected a finite number"),
        ("learning_rate=-1.0".to_owned(), "learning_rate: expected a finite number"),
        ("lr_scheduler_type=polynomial".to_owned(), "expected linear, cosine"),
        ("loss_chunk_bytes=1000".to_owned(), "loss_chunk_bytes: budget: expected at least"),
        ("max_length=0".to_owned(), "max_length: expected a whole number above 0, or false"),
        ("per_device_train_batch_size=0".to_owned(), "per_device_train_batch_size"),
        ("lora_target_modules=[\"x_proj\"]".to_owned(), "x_proj"),
        ("lora_r=100000000".to_owned(), "lora_r: expected a whole number up to 65536"),
        ("adam_beta1=1".to_owned(), "adam_beta1: expected a number below 1"),
        ("dataset_name=nowhere.jsonl".to_owned(), "nowhere.jsonl"),
        (write("empty.jsonl", ""), "found an empty file"),
        (
            write("gap.jsonl", &format!("{good}\n\n{good}\n")),
            "line 2: expected a JSON object, found an empty line",
        ),
        (write("half.jsonl", &format!("{good}\n{good}\n{}", &good[..40])), "line 3, column 40: invalid JSON"),
        (write("list.jsonl", "[1]\n"), "line 1: expected a JSON object"),
        (write("keys.jsonl", "{\"chat\": 1}\n"), "line 1: assistant_only_loss needs `messages`"),
        (write("asked.jsonl", &format!("{asked}\n")), "no line has a trained token"),
        (write("long.jsonl", &format!("{good}\n{long}\n")), "max_length = 256 cuts it"),
        (format!("tokenizer_name_or_path={}", unmarked.display()), "{% generation %}"),
        (
            format!("tokenizer_name_or_path={}", larger.display()),
            "expected ids below 512, the rows of the model's embedding, found 100000; `trainer template repair \
             --resize`",
        ),
        (format!("model_name_or_path={}", other.display()), "model_type"),
        ("model_name_or_path=org/none".to_owned(), "org/none"),
    ];
    let output = folder.path().join("out");
    for (setting, message) in cases {
        let adapter = if setting.starts_with("lora_") { "" } else { "adapter_name_or_path" };
        let config = sft.config("cosine", &output);
        let kept = config.lines().filter(|line| !adapter.is_empty() || !line.starts_with("adapter_name"));
        let config = kept.collect::<Vec<_>>().join("\n");
        let ran = train(folder.path(), &config, &[&setting, "max_steps=1"]);
        assert_eq!(ran.code, 2, "{setting}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(message), "{setting}: {}", ran.stderr);
        assert!(!output.exists(), "{setting}: something was written");
    }
}

/// Where the end of a prompt and the beginning of its completion make one token, that token is trained, as in TRL 1.16
/// (`common_prefix_length`); and a bound of 0 bounds nothing, as in transformers.
#[test]
fn a_completion_begins_where_its_tokens_part_from_the_prompts() {
    let Some(sft) = Sft::find() else { return };
    let vocab = sft.base.open("nf4").config.vocab;
    let encoder = Encoder::open(&sft.path("tokenizer"), vocab, false).expect("a tokenizer");
    let folder = TempDir::new().expect("a folder");
    let ids = |text: &str| {
        let file = folder.path().join("text.jsonl");
        fs::write(&file, serde_json::json!({"text": text}).to_string()).expect("it can be written");
        encoder.rows(&file, None).expect("rows").rows.remove(0).ids
    };
    let mut parted = 0;
    for (prompt, completion) in
        [("user", " and"), ("us", "er"), ("assi", "stant"), ("a", "b"), ("syst", "em x")]
    {
        let file = folder.path().join("pair.jsonl");
        let line = serde_json::json!({"prompt": prompt, "completion": completion});
        fs::write(&file, line.to_string()).expect("it can be written");
        let data = encoder.rows(&file, None).expect("rows");
        let (alone, both) = (ids(prompt), ids(&format!("{prompt}{completion}")));
        let alone = &alone[..alone.len() - 1]; // without the end of the sequence
        let common = alone.iter().zip(&both).take_while(|(alone, both)| alone == both).count();
        assert_eq!(data.rows[0].ids, both);
        let trained: Vec<bool> = (0..both.len()).map(|token| token >= common).collect();
        assert_eq!(data.rows[0].trained, trained, "{prompt:?} {completion:?}");
        assert_eq!(data.merged, usize::from(common < alone.len()), "{prompt:?} {completion:?}");
        parted += data.merged;
    }
    assert!(parted > 0, "no pair merges a token");
    let run = |setting: &str| {
        let output = folder.path().join(setting);
        let ran = train(folder.path(), &sft.config("published", &output), &[setting, "max_steps=4"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        metrics(&output)
    };
    assert_eq!(run("max_grad_norm=0"), run("max_grad_norm=1e30"));
}

#[test]
fn the_example_has_every_key_and_learns() {
    let folder = TempDir::new().expect("a folder");
    let there = |name: &str| folder.path().join(name);
    let example = there("example");
    let ask = |arguments: &[&str]| program::run(Path::new(TRAINER), folder.path(), arguments);
    for flags in [&["--json"][..], &["-o", "x.txt"]] {
        let refused = ask(&[flags, &["train", "--example", "example"]].concat());
        assert!(refused.code == 2 && refused.stderr.contains("metrics.jsonl"), "{}", refused.stderr);
        assert!(!there("example").exists());
    }
    let written = ask(&["train", "--example", "example"]);
    assert_eq!(written.code, 0, "{}", written.stderr);
    let config = fs::read_to_string(example.join("config.toml")).expect("a config");
    for (key, _) in trainer::train::config::KEYS {
        assert!(
            config.contains(&format!("\n{key} = ")) || config.contains(&format!("\n# {key} = ")),
            "{key}"
        );
    }
    let again = ask(&["train", "--example", "example"]);
    assert!(again.code == 2 && again.stderr.contains("expected no such folder"), "{}", again.stderr);

    let plan = ask(&["train", "example/config.toml", "--plan"]);
    assert!(
        plan.code == 0 && plan.stdout.contains("the whole context fits into 24.0 GiB: 256 tokens"),
        "{}",
        plan.stdout
    );
    assert!(!example.join("out").exists(), "a plan writes nothing");
    let ran = ask(&["train", "example/config.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let lines = metrics(&example.join("out"));
    let loss = |line: &Value| line["loss"].as_f64().expect("a loss");
    assert!(loss(&lines[59]) < 0.6 * loss(&lines[0]), "from {} to {}", lines[0], lines[59]);
}
