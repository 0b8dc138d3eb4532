//! The embedding and the head with more rows: old rows are the same bytes, new rows are their mean, all else is a copy.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use half::{bf16, f16};
use proptest::prelude::*;
use reference::checkpoint::Checkpoint;
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use tempfile::TempDir;
use trainer::resize::resize;

type Tensors = Vec<(&'static str, Dtype, Vec<usize>, Vec<u8>)>;

fn bytes(dtype: Dtype, numbers: &[f32]) -> Vec<u8> {
    match dtype {
        Dtype::F16 => numbers.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
        Dtype::BF16 => numbers.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
        _ => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

fn file(tensors: &Tensors) -> Vec<u8> {
    let view = |(name, dtype, shape, bytes): &(&'static str, Dtype, Vec<usize>, Vec<u8>)| {
        (*name, TensorView::new(*dtype, shape.clone(), bytes).expect("it fits").data().to_vec())
    };
    let kept: Vec<_> = tensors.iter().map(view).collect();
    let views = tensors.iter().zip(&kept).map(|((name, dtype, shape, _), (_, bytes))| {
        (*name, TensorView::new(*dtype, shape.clone(), bytes).expect("it fits"))
    });
    serialize(views, Some(HashMap::from([("format".into(), "pt".into())]))).expect("it serializes")
}

fn model(dtype: Dtype, rows: usize) -> Tensors {
    let table: Vec<f32> = (0..rows * 3).map(|at| at as f32 * 0.37 - 2.0).collect();
    vec![
        ("model.embed_tokens.weight", dtype, vec![rows, 3], bytes(dtype, &table)),
        ("model.norm.weight", Dtype::F32, vec![3], bytes(Dtype::F32, &[1.0, 2.0, 3.0])),
        ("lm_head.weight", dtype, vec![rows, 3], bytes(dtype, &table.iter().map(|x| -x).collect::<Vec<_>>())),
    ]
}

fn folder(config: &Value, files: &[(&str, Vec<u8>)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("config.json"), config.to_string()).expect("a file");
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).expect("a file");
    }
    folder
}

fn numbers(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        Dtype::F16 => bytes.chunks(2).map(|two| f16::from_le_bytes([two[0], two[1]]).to_f32()).collect(),
        Dtype::BF16 => bytes.chunks(2).map(|two| bf16::from_le_bytes([two[0], two[1]]).to_f32()).collect(),
        _ => bytes.chunks(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect(),
    }
}

/// Holds the resized checkpoint to the tensors that it was made of.
fn compare(before: &Tensors, to: &Path, rows: usize) {
    let after = Checkpoint::open(to).expect("what is written is sound");
    assert_eq!(after.names().count(), before.len());
    for (name, dtype, shape, bytes) in before {
        let tensor = after.tensor(name).expect("it is there");
        assert_eq!(tensor.dtype, *dtype);
        assert_eq!(&tensor.bytes[..bytes.len()], bytes, "{name}: the old rows");
        if shape.len() == 1 {
            assert_eq!(tensor.shape, shape);
            continue;
        }
        assert_eq!(tensor.shape, [rows, shape[1]]);
        let (old, new) = (numbers(*dtype, bytes), numbers(*dtype, &tensor.bytes[bytes.len()..]));
        for (at, got) in new.iter().enumerate() {
            let column = old.iter().skip(at % shape[1]).step_by(shape[1]).map(|x| f64::from(*x));
            let mean = (column.sum::<f64>() / shape[0] as f64) as f32;
            let want = numbers(*dtype, &self::bytes(*dtype, &[mean]))[0];
            assert_eq!(got.to_bits(), want.to_bits(), "{name}: the mean");
        }
    }
}

/// Names of files, and what they hold.
type Files = Vec<(&'static str, Vec<u8>)>;

#[test]
fn new_rows_are_the_mean_and_all_else_is_the_same_bytes() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        let before = model(dtype, 5);
        let from = folder(&json!({"vocab_size": 5, "other": [1.5]}), &[("model.safetensors", file(&before))]);
        for (rows, pad, want) in
            [(5, None, 5), (7, None, 7), (3, None, 5), (6, Some(8), 8), (5, Some(64), 64)]
        {
            let to = tempfile::tempdir().expect("a folder");
            let done = resize(from.path(), to.path(), rows, pad).expect("it can be resized");
            assert_eq!((done.before, done.after, done.tensors.len()), (5, want, 2));
            compare(&before, to.path(), want as usize);
            let config = fs::read_to_string(to.path().join("config.json")).expect("a file");
            let config: Value = serde_json::from_str(&config).expect("JSON");
            assert_eq!(config, json!({"vocab_size": want, "other": [1.5]}));
        }
    }
}

#[test]
fn tied_heads_stay_tied_and_shards_stay_apart() {
    let mut tensors = model(Dtype::BF16, 4);
    tensors.pop();
    let (first, second): (Tensors, Tensors) =
        tensors.iter().cloned().partition(|(name, ..)| name.contains("embed"));
    let map = json!({"model.embed_tokens.weight": "a.safetensors", "model.norm.weight": "b.safetensors"});
    let index = json!({"metadata": {"total_size": 36}, "weight_map": map}).to_string().into_bytes();
    let (a, b) = (file(&first), file(&second));
    let config = json!({"text_config": {"vocab_size": 4}, "tie_word_embeddings": true});
    let from = folder(
        &config,
        &[("a.safetensors", a), ("b.safetensors", b.clone()), ("model.safetensors.index.json", index)],
    );
    let to = tempfile::tempdir().expect("a folder");
    let done = resize(from.path(), to.path(), 6, None).expect("it can be resized");
    assert_eq!(done.tensors, ["model.embed_tokens.weight"]);
    compare(&tensors, to.path(), 6);
    assert_eq!(fs::read(to.path().join("b.safetensors")).expect("a file"), b);
    let read = |name| {
        serde_json::from_str::<Value>(&fs::read_to_string(to.path().join(name)).expect("a file"))
            .expect("JSON")
    };
    assert_eq!(read("model.safetensors.index.json")["metadata"]["total_size"], 36 + 2 * 3 * 2);
    assert_eq!(read("config.json")["text_config"]["vocab_size"], 6);
}

#[test]
fn what_cannot_be_resized_is_refused_with_its_name_and_nothing_is_written() {
    let good = model(Dtype::F32, 5);
    let mut quantised = good.clone();
    quantised[0] = ("model.embed_tokens.weight", Dtype::U8, vec![5, 3], vec![0; 15]);
    let other: Tensors = vec![("model.norm.weight", Dtype::F32, vec![3], vec![0; 12])];
    let mut cut = file(&good);
    cut.pop();
    let size = json!({"vocab_size": 5});
    let cases: [(Value, Files, &str); 9] = [
        (
            size.clone(),
            vec![("model.safetensors", file(&quantised))],
            "embed_tokens.weight.dtype: expected F32, F16 or BF16",
        ),
        (json!({"vocab_size": 6}), vec![("model.safetensors", file(&good))], "a row for each token"),
        (
            json!({}),
            vec![("model.safetensors", file(&good))],
            "vocab_size: expected a number of tokens, found null",
        ),
        (
            json!({"vocab_size": 0}),
            vec![("model.safetensors", file(&good))],
            "vocab_size: expected a number of tokens, found 0",
        ),
        (size.clone(), vec![("model.safetensors", file(&other))], "no tensor is an embedding"),
        (size.clone(), vec![], "model.safetensors"),
        (size.clone(), vec![("model.safetensors", cut)], "header tells of"),
        (size.clone(), vec![("model.safetensors", vec![255; 20])], "a header of"),
        (
            size,
            vec![("model.safetensors.index.json", br#"{"weight_map": {"a": "../b"}}"#.to_vec())],
            "weight_map",
        ),
    ];
    for (config, files, want) in cases {
        let (from, to) = (folder(&config, &files), tempfile::tempdir().expect("a folder"));
        let error = resize(from.path(), to.path(), 8, None).expect_err(want).to_string();
        assert!(error.contains(want) && error.contains(&*from.path().to_string_lossy()), "{error}");
        assert_eq!(fs::read_dir(to.path()).expect("a folder").count(), 0, "{want}");
    }
}

proptest! {
    #[test]
    fn nothing_panics_on_a_spoilt_file(at in 0usize..700, value in any::<u8>(), rows in 0u64..9) {
        let mut bytes = file(&model(Dtype::BF16, 5));
        let at = at % bytes.len();
        bytes[at] = value;
        let (from, to) = (folder(&json!({"vocab_size": 5}), &[("model.safetensors", bytes)]), tempfile::tempdir().expect("a folder"));
        let _ = resize(from.path(), to.path(), rows, Some(4));
    }
}
