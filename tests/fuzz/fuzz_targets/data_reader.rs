//! Fuzz: any bytes, read as training data with the tokenizer and the chat template of the trainer's example.
//!
//! Nothing may panic. Every row that is read has a trained token and fits the length that it was cut to.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use trainer::train::data::Encoder;

/// The longest row, in tokens.
const LENGTH: usize = 64;

/// A folder with the example, and a file for the data.
static FOLDER: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let example = folder.path().join("example");
    let words = ["trainer", "train", "--example"].map(Into::into).into_iter().chain([example.clone().into()]);
    trainer::run(words);
    assert!(example.join("model").is_dir(), "the example was not written");
    let data = folder.path().join("data.jsonl");
    (folder, data)
});

fuzz_target!(|bytes: &[u8]| {
    thread_local! {
        static ENCODER: Encoder<'static> = Encoder::open(&FOLDER.0.path().join("example/model"), usize::MAX, false)
            .unwrap_or_else(|failure| panic!("{failure}"));
    }
    let data = &FOLDER.1;
    fs::write(data, bytes).expect("the file can be written");
    let read = ENCODER.with(|encoder| encoder.rows(data, Some(LENGTH)));
    for row in read.iter().flat_map(|data| &data.rows) {
        assert!(row.counted() > 0 && row.ids.len() <= LENGTH, "{row:?}");
    }
});
