//! The golden Llama: a small checkpoint, dense and quantised, with what the original libraries compute from it.

use std::fs;
use std::path::PathBuf;

use reference::graph::{Array, Real};
use reference::llama::Llama;
use reference::lora::Adapter;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::golden;

/// The unpacked folder.
pub struct TinyLlama {
    folder: TempDir,
}

/// What the run of training in `expected.safetensors` was made with.
#[derive(Deserialize)]
pub struct Run {
    /// Updates.
    pub steps: usize,
    /// Rows a step.
    pub batch: usize,
    /// Constant learning rate.
    pub lr: f64,
    /// Of AdamW.
    pub betas: [f64; 2],
    /// Of AdamW.
    pub eps: f64,
    /// Of AdamW.
    pub weight_decay: f64,
    /// The largest norm.
    pub clip: f64,
}

/// A golden tensor, whatever its type was.
pub struct Numbers {
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Elements.
    pub values: Vec<f64>,
}

impl TinyLlama {
    /// The golden folder; `None`: not measured.
    pub fn find() -> Option<Self> {
        Some(Self { folder: golden::find_archive("open-tiny-llama.tgz")? })
    }

    /// A file or folder in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("open-tiny-llama").join(name)
    }

    /// One of its models.
    pub fn open(&self, name: &str) -> Llama {
        let path = self.path(name);
        Llama::open(path.to_str().expect("a path of plain letters")).unwrap_or_else(|error| panic!("{error}"))
    }

    /// One of its adapters.
    pub fn adapter(&self, name: &str) -> Adapter {
        Adapter::open(self.path(name), &self.open("nf4").config).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A tensor of a file of answers.
    pub fn numbers(&self, file: &str, name: &str) -> Numbers {
        let bytes = fs::read(self.path(file)).expect("a golden file can be read");
        let tensors = SafeTensors::deserialize(&bytes).expect("a golden file is sound");
        let tensor = tensors.tensor(name).unwrap_or_else(|error| panic!("{error}"));
        Numbers { shape: tensor.shape().to_vec(), values: wide(tensor.dtype(), tensor.data()) }
    }

    /// How the golden run was made.
    pub fn run(&self) -> Run {
        let bytes = fs::read(self.path("expected.safetensors")).expect("a golden file can be read");
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("a golden file has a sound header");
        let texts = header.metadata().as_ref().expect("it says how the run was made");
        let run: Value = serde_json::from_str(&texts["train"]).expect("which is JSON");
        serde_json::from_value(run).expect("with these fields")
    }

    /// Some rows of the golden token ids, the first again after the last.
    pub fn ids<R: Real>(&self, rows: std::ops::Range<usize>) -> Array<R> {
        let ids = self.numbers("expected.safetensors", "ids");
        let [count, length] = ids.shape[..] else { panic!("ids are rows of tokens") };
        let row = |row: usize| ids.values[row % count * length..][..length].iter().map(|id| *id as i32);
        Array::integers(&[rows.len(), length], rows.flat_map(row).collect())
    }
}

fn wide(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
    let eights = bytes.as_chunks::<8>().0.iter();
    match dtype {
        Dtype::F64 => eights.map(|bytes| f64::from_le_bytes(*bytes)).collect(),
        Dtype::I64 => eights.map(|bytes| i64::from_le_bytes(*bytes) as f64).collect(),
        Dtype::F32 => bytes.as_chunks().0.iter().map(|four| f64::from(f32::from_le_bytes(*four))).collect(),
        other => panic!("golden numbers of {other}"),
    }
}
