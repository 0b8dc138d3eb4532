//! The program `checkpoint`: what it writes is read, and trained by its own config.

use std::fs;
use std::path::{Path, PathBuf};

use reference::llama::{Llama, Storage};
use reference::nf4::dequantize_f32;
use serde_json::Value;
use tempfile::TempDir;
use tests::example_run::metrics;
use tests::program::{self, Ran};

const CHECKPOINT: &str = env!("CARGO_BIN_EXE_checkpoint");
const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

/// The smallest one, in a folder of its own.
struct Written {
    folder: TempDir,
}

impl Written {
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let ran = checkpoint(folder.path(), &["tiny", "tiny"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("tiny")
    }

    /// A run by its config, with these settings.
    fn train(&self, arguments: &[&str]) -> Ran {
        let config = self.path().join("train.toml");
        let config = config.to_str().expect("a path of plain letters");
        program::run(
            Path::new(TRAINER),
            self.folder.path(),
            &[&["train", config, "--set", "device=cpu"], arguments].concat(),
        )
    }

    /// The losses of a run, each step's and the evaluation's, in one list.
    fn losses(&self, output: &str, settings: &[&str]) -> Vec<f64> {
        let output_dir = format!("output_dir={output}");
        let settings = [&["max_steps=3", &output_dir], settings].concat();
        let set: Vec<&str> = settings.iter().flat_map(|setting| ["--set", *setting]).collect();
        let ran = self.train(&set);
        assert_eq!(ran.code, 0, "{settings:?}: {}{}", ran.stdout, ran.stderr);
        let says = "median step";
        assert!(ran.stdout.contains(says), "expected {says:?} in {}", ran.stdout);
        let lines = metrics(&self.folder.path().join(output));
        assert!(
            lines.iter().all(|line| line.get("device_peak_bytes").is_none()),
            "a CPU has no memory of its own"
        );
        let loss = |line: &Value| line["loss"].as_f64().or(line["eval_loss"].as_f64());
        lines.iter().filter_map(loss).collect()
    }

    /// The bytes of a row of the plan.
    fn planned(&self, row: &str, settings: &[&str]) -> usize {
        let set: Vec<&str> = settings.iter().flat_map(|setting| ["--set", *setting]).collect();
        let ran = self.train(&[&["--plan"], &set[..]].concat());
        let line = ran.stdout.lines().find_map(|line| line.trim().strip_prefix(row));
        let bytes = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        bytes.unwrap_or_else(|| {
            panic!("{settings:?}: expected the bytes of {row}: {}{}", ran.stdout, ran.stderr)
        })
    }
}

fn checkpoint(folder: &Path, arguments: &[&str]) -> Ran {
    program::run(Path::new(CHECKPOINT), folder, arguments)
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let mut files: Vec<_> = entries
        .map(|entry| {
            let name = entry.file_name().into_string().expect("a name of plain letters");
            (name, fs::read(entry.path()).expect("a file"))
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_drawn_checkpoint_has_the_layout_of_a_real_one() {
    let written = Written::new();
    let folder = written.path();
    let model = Llama::open(folder.to_str().expect("a path of plain letters")).expect("a checkpoint");
    assert!(model.config.tied && model.config.quantized);
    for (name, storage) in model.storages() {
        let is_quantized = matches!(storage, Storage::Nf4 { block_size: 64, nested: Some(256), .. });
        assert_eq!(is_quantized, name.ends_with("_proj.weight"), "{name}: {storage:?}");
    }
    let shards = files(&folder).iter().filter(|(name, _)| name.ends_with(".safetensors")).count();
    assert!(shards >= 2, "{shards} shards");
    let index = fs::read(folder.join("model.safetensors.index.json")).expect("an index");
    let index: Value = serde_json::from_slice(&index).expect("JSON");
    let part = "model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4";
    assert!(index["weight_map"][part].is_string(), "{index:#}");
}

#[test]
fn drawn_weights_are_nearly_normal() {
    let written = Written::new();
    let model = Llama::open(written.path().to_str().expect("a path of plain letters")).expect("a checkpoint");
    let weight = model.quantized("model.layers.1.mlp.up_proj.weight").expect("a weight in NF4");
    let dense = model.dense::<f32>("model.embed_tokens.weight").expect("a weight").expect("a dense one");
    for (what, values) in [
        ("quantised", dequantize_f32(&weight.view())),
        ("dense", dense.wide().iter().map(|x| *x as f32).collect()),
    ] {
        let len = values.len() as f64;
        let mean = values.iter().map(|x| f64::from(*x)).sum::<f64>() / len;
        let deviation = (values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / len).sqrt();
        assert!(mean.abs() < 4e-4 && (deviation - 0.02).abs() < 6e-4, "{what}: {mean}, {deviation}");
    }
}

#[test]
fn a_seed_decides_every_byte() {
    let written = Written::new();
    for (seed, is_same) in [("0", true), ("1", false)] {
        let ran = checkpoint(written.folder.path(), &[seed, "tiny", seed]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let same = files(&written.path()) == files(&written.folder.path().join(seed));
        assert_eq!(same, is_same, "seed {seed}");
    }
}

#[test]
fn a_wrong_argument_of_checkpoint_is_named() {
    let written = Written::new();
    let table: [(&[&str], &str); 5] = [
        (&["new"], "expected FOLDER 1b|8b16|tiny [SEED]"),
        (&["new", "2b"], "expected one of 1b, 8b16, tiny, found \"2b\""),
        (&["new", "tiny", "-1"], "expected a number as seed, found \"-1\""),
        (&["tiny", "tiny"], "tiny: expected a new or an empty folder"),
        (&["tiny/config.json/new", "tiny"], "tiny/config.json/new: "),
    ];
    for (arguments, says) in table {
        let ran = checkpoint(written.folder.path(), arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{arguments:?}: expected {says:?} in {}", ran.stderr);
    }
}

#[test]
fn a_drawn_checkpoint_is_trained_by_its_config() {
    let written = Written::new();
    let whole = written.losses("whole", &[]);
    assert_eq!(whole.len(), 4, "{whole:?}");
    assert!((whole[0] - 512_f64.ln()).abs() < 0.2, "{whole:?}"); // the model knows nothing yet
    let other = [
        ("chunks", &["loss_chunk_bytes=100000"][..]),
        ("again", &["gradient_checkpointing=true"]),
        ("both", &["loss_chunk_bytes=100000", "gradient_checkpointing=true"]),
    ];
    for (output, settings) in other {
        let losses = written.losses(output, settings);
        let apart =
            whole.iter().zip(&losses).map(|(whole, own)| (own / whole - 1.0).abs()).fold(0.0, f64::max);
        assert!(losses.len() == whole.len() && apart < 2e-4, "{output}: {losses:?}, {whole:?}"); // in bf16
    }
}

#[test]
fn gradient_checkpointing_takes_less_memory() {
    let written = Written::new();
    let (again, chunks) = ("gradient_checkpointing=true", "loss_chunk_bytes=100000");
    let arena = |settings: &[&str]| written.planned("arena ", settings);
    assert!(arena(&[again]) * 10 <= arena(&[]) * 8, "{}, {}", arena(&[again]), arena(&[]));
    let saved = |settings: &[&str]| written.planned("saved ", settings);
    let [less, more] = [saved(&[again, chunks]), saved(&[chunks])];
    assert!(less * 2 <= more, "{less}, {more}");
}
