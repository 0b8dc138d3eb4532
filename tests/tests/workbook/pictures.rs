//! Pictures of challenge C: nothing overlaps, nothing is cut off, and what is drawn is what was computed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use challenges::graph::compile::Level;
use tests::tiny_llama::TinyLlama;

use crate::compiled::{Runner, trains};
use crate::llama::trained;

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/results/qlora-losses.csv")
}

/// How far the losses of another machine may be from those that are kept: sums in another order, and what 40 updates
/// make of them.
const NEAR: f64 = 3e-4;

/// `UPDATE=1` writes the kept losses again.
#[test]
fn the_kept_losses_are_those_of_the_golden_run() {
    let Some(tiny) = TinyLlama::find() else { return };
    let compiled = trains(&tiny, |graph, values| Runner::new(graph, values, Level::O2));
    let (interpreted, _) = trained::<f32>(&tiny);
    let interpreted: Vec<f64> = interpreted.iter().map(|step| step.loss).collect();
    let libraries = tiny.numbers("expected.safetensors", "qlora_losses").values;
    let truth = tiny.numbers("truth.safetensors", "losses").values;
    if std::env::var("UPDATE").is_ok_and(|update| update == "1") {
        let mut text = String::from(
            "# Losses of the golden QLoRA run, nats a token: compiled at -O2, interpreted in f32, by the original libraries in f32, in f64.\n\
             # UPDATE=1 cargo test --release -p tests --test workbook pictures:: writes this file.\n\
             step,compiled,interpreted,libraries,truth\n",
        );
        for step in 0..truth.len() {
            let [a, b, c, d] = [&compiled, &interpreted, &libraries, &truth].map(|series| series[step]);
            _ = writeln!(text, "{step},{a:.9},{b:.9},{c:.9},{d:.9}");
        }
        fs::write(kept(), text).expect("the file can be written");
    }
    if std::env::var_os("WARPBOOK_GOLDEN").is_some() {
        return; // another run than the kept one
    }
    let text = fs::read_to_string(kept()).expect("kept losses");
    let rows: Vec<Vec<f64>> = text
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .map(|line| line.split(',').map(|cell| cell.parse().expect("a number")).collect())
        .collect();
    let steps: BTreeSet<usize> = rows.iter().map(|row| row[0] as usize).collect();
    assert_eq!(steps.len(), truth.len(), "a row for each step");
    for row in &rows {
        let step = row[0] as usize;
        for (kept, now) in row[1..].iter().zip([&compiled, &interpreted, &libraries, &truth]) {
            assert!((kept - now[step]).abs() <= NEAR, "step {step}: kept {kept}, now {}", now[step]);
        }
    }
}
