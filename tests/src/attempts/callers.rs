//! Attempts that call an oracle, or given code that computes a step's answer, and honest twins of them.
//!
//! Each is right everywhere. They differ in where they call: at sizes that a fixed guard would not have, from a new
//! thread, or through another function that wraps the oracle.

use std::sync::{LazyLock, Mutex};

use challenges::issues::attention::Rules;
use challenges::issues::chat::Chat;
use challenges::issues::chat::defuse::marked;
use challenges::issues::classify::{Classify, Problem};
use challenges::issues::gguf::{Gguf, TensorType};
use challenges::issues::vision::{Error, Grid, Image, Placeholders, Row, Sample, Size, Vision};
use challenges::nf4::baseline::Baseline;
use challenges::nf4::{Nf4, Output, Weight, tile};
use kernels::{Buffer, Cpu, Device};
use reference::graph::Tensor;
use reference::graph::programs::{self, ScoreEntry};
use reference::llama::{Rope, Scaling, rope};
use reference::loss::{BinaryCrossEntropy, Mse, next_token_rows};
use reference::nf4::dequantize_bits;
use serde_json::Value;

use super::honest::chat::Solution as D1;
use super::honest::classify::Solution as D15;
use super::honest::gguf::Solution as D19;
use super::honest::nf4::Solution as A;
use super::honest::vision::Solution as D23;
use super::output::{dtype, put};
use super::{Entry, attention, chat, classify, gguf, last, vision};

/// A: the oracle and the baseline.
pub const NF4_CALLERS: [Entry; 4] = [
    Entry { name: "asks the oracle for small weights", hand_in: |all| all.nf4(last(small_by_oracle)) },
    Entry { name: "asks the oracle from a thread", hand_in: |all| all.nf4(last(by_thread)) },
    Entry { name: "runs the baseline", hand_in: |all| all.nf4(last(by_baseline)) },
    Entry { name: "runs the given tile program", hand_in: |all| all.nf4(last(by_tiles)) },
];

/// D: one step each.
pub const PART_CALLERS: [Entry; 12] = [
    Entry {
        name: "sees by the given masks",
        hand_in: |all| all.attention(attention::Mine { sees: by_masks, ..attention::HONEST }),
    },
    Entry {
        name: "sees by the given masks where there is a window",
        hand_in: |all| all.attention(attention::Mine { sees: by_masks_in_windows, ..attention::HONEST }),
    },
    Entry {
        name: "takes its costs from the losses",
        hand_in: |all| all.classify(classify::Mine { losses: by_losses, ..classify::HONEST }),
    },
    Entry {
        name: "takes the costs of many rows from the oracle",
        hand_in: |all| all.classify(classify::Mine { losses: many_by_oracle, ..classify::HONEST }),
    },
    Entry {
        name: "finds last tokens on a thread",
        hand_in: |all| all.classify(classify::Mine { last: last_by_thread, ..classify::HONEST }),
    },
    Entry {
        name: "divides the given frequencies",
        hand_in: |all| all.gguf(gguf::Mine { rope_factors: by_frequencies, ..gguf::HONEST }),
    },
    Entry {
        name: "quantises on a thread",
        hand_in: |all| all.gguf(gguf::Mine { quantize: blocks_by_thread, ..gguf::HONEST }),
    },
    Entry {
        name: "asks for the rows of many heads",
        hand_in: |all| all.gguf(gguf::Mine { rotary_rows: rows_of_many_heads, ..gguf::HONEST }),
    },
    Entry {
        name: "asks for an image's tokens",
        hand_in: |all| all.vision(vision::Mine { expanded: by_tokens, ..vision::HONEST }),
    },
    Entry {
        name: "asks for the tokens of large grids",
        hand_in: |all| all.vision(vision::Mine { expanded: large_by_tokens, ..vision::HONEST }),
    },
    Entry {
        name: "resizes on a thread",
        hand_in: |all| all.vision(vision::Mine { resized: resized_by_thread, ..vision::HONEST }),
    },
    Entry {
        name: "breaks what the given code marks",
        hand_in: |all| all.chat(chat::Mine { defuse: by_marks, ..chat::HONEST }),
    },
];

/// Attempts that do their own work where the callers above call, with vocabulary that steps may use.
pub const OWN_WORKERS: [Entry; 3] = [
    Entry {
        name: "joins its masks with the vocabulary",
        hand_in: |all| all.attention(attention::Mine { sees: own_masks, ..attention::HONEST }),
    },
    Entry {
        name: "computes frequencies itself",
        hand_in: |all| all.gguf(gguf::Mine { rope_factors: own_frequencies, ..gguf::HONEST }),
    },
    Entry {
        name: "works on a new thread",
        hand_in: |all| all.vision(vision::Mine { resized: on_own_thread, ..vision::HONEST }),
    },
];

/// Does its own work for large weights, as a guard of one size would have.
fn small_by_oracle(cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
    if weight.len > 9_000 { A.dequantize_fast(cpu, weight, out) } else { by_oracle(weight, out) }
}

fn by_oracle(weight: &Weight<'_>, mut out: Output<'_>) {
    let answers = dequantize_bits(weight, dtype(&out));
    answers.iter().enumerate().for_each(|(e, bits)| put(&mut out, e, *bits));
}

fn by_thread(_: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
    std::thread::scope(|threads| _ = threads.spawn(|| by_oracle(weight, out)));
}

fn by_baseline(cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
    static BASELINE: LazyLock<Mutex<Baseline>> = LazyLock::new(Mutex::default);
    BASELINE.lock().expect("no call panics").dequantize(cpu, weight, out);
}

fn by_tiles(cpu: &Cpu, weight: &Weight<'_>, mut out: Output<'_>) {
    let run = |out: &mut Output<'_>| {
        let uploaded = tile::upload(cpu, weight).ok()?;
        let dtype = dtype(out);
        let mut buffer: Buffer = cpu.alloc("out", weight.len * dtype.bytes()).ok()?;
        tile::run(cpu, &uploaded, dtype, weight.len, &mut buffer).ok()?;
        let mut bytes = vec![0; weight.len * dtype.bytes()];
        cpu.download(&buffer, &mut bytes).ok()?;
        for (e, bits) in bytes.chunks(dtype.bytes()).enumerate() {
            let mut word = [0; 4];
            word[..bits.len()].copy_from_slice(bits);
            put(out, e, u32::from_le_bytes(word));
        }
        Some(())
    };
    if run(&mut out).is_none() {
        A.dequantize_fast(cpu, weight, out);
    }
}

fn by_masks(at: &ScoreEntry, rules: &Rules) -> Tensor {
    let mut all = at.key.equal(&at.key);
    if rules.causal {
        let before = rules.prefix.map_or_else(|| programs::causal(at), |n| programs::prefix_lm(at, n));
        all = programs::and(&all, &before);
    }
    if let Some(window) = rules.window {
        let turned = ScoreEntry { query: at.key.clone(), key: at.query.clone(), ..at.clone() };
        let both = [at, &turned].map(|at| programs::sliding_window(at, window));
        all = programs::and(&all, &programs::and(&both[0], &both[1]));
    }
    if let (true, [documents, row, ..]) = (rules.documents, &at.extras[..]) {
        all = programs::and(&all, &programs::document_of_row(at, documents, row));
    }
    all
}

fn by_masks_in_windows(at: &ScoreEntry, rules: &Rules) -> Tensor {
    if rules.window.is_some() { by_masks(at, rules) } else { (attention::HONEST.sees)(at, rules) }
}

fn own_masks(at: &ScoreEntry, rules: &Rules) -> Tensor {
    let rest = (attention::HONEST.sees)(at, &Rules { causal: false, prefix: None, ..*rules });
    let own = (attention::HONEST.sees)(at, &Rules { window: None, documents: false, ..*rules });
    programs::and(&rest, &programs::or(&own, &own))
}

fn by_losses(problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor {
    let mean = |rows: reference::loss::Rows| &rows.values / &rows.weights;
    match problem {
        Problem::SingleLabel => next_token_rows(logits, targets).losses,
        Problem::MultiLabel => mean(BinaryCrossEntropy.rows(logits, targets)),
        Problem::Regression => mean(Mse.rows(logits, targets)),
    }
}

fn many_by_oracle(problem: Problem, logits: &Tensor, targets: &Tensor) -> Tensor {
    let is_small = logits.dim(0).as_fixed().is_some_and(|rows| rows <= 2);
    if is_small {
        return D15.losses(problem, logits, targets);
    }
    reference::issues::classify::losses(problem, logits, targets)
}

fn last_by_thread(ids: &[i32], length: usize, pad: Option<i32>) -> Vec<usize> {
    let find = || reference::issues::classify::last_tokens(ids, length, pad);
    std::thread::scope(|threads| threads.spawn(find).join().expect("no panic"))
}

fn by_frequencies(rope: &Rope, head_dim: usize) -> Option<Vec<f32>> {
    let Scaling::Llama3 { factor, low, high, original } = rope.scaling else { return None };
    let plain = rope::frequencies(&Rope { scaling: Scaling::None, ..rope.clone() }, head_dim);
    Some(plain.into_iter().map(|f| factor_of(f, [factor, low, high, original as f64])).collect())
}

fn own_frequencies(rope: &Rope, head_dim: usize) -> Option<Vec<f32>> {
    let Scaling::Llama3 { factor, low, high, original } = rope.scaling else { return None };
    let plain = |i: usize| {
        let exponent = f64::from((2 * i) as f32 / head_dim as f32);
        1.0 / f64::from(rope.theta as f32).powf(exponent) as f32
    };
    let all = (0..head_dim / 2).map(plain);
    Some(all.map(|f| factor_of(f, [factor, low, high, original as f64])).collect())
}

fn factor_of(frequency: f32, [factor, low, high, original]: [f64; 4]) -> f32 {
    let turns = original * f64::from(frequency) / std::f64::consts::TAU;
    if turns < low {
        return factor as f32;
    }
    if turns > high {
        return 1.0;
    }
    let smooth = (turns - low) / (high - low);
    (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
}

fn blocks_by_thread(ty: TensorType, numbers: &[f32]) -> Vec<u8> {
    let quantize = || reference::checkpoint::gguf::quantize(ty, numbers).expect("whole blocks");
    std::thread::scope(|threads| threads.spawn(quantize).join().expect("no panic"))
}

fn rows_of_many_heads(rows: usize, heads: usize) -> Vec<usize> {
    if heads < 3 { D19.rotary_rows(rows, heads) } else { reference::issues::gguf::rotary_rows(rows, heads) }
}

fn by_tokens(sample: &Sample, by: &Placeholders) -> Result<Row, Error> {
    let placeholders = sample.ids.iter().filter(|id| **id == by.image()).count();
    if placeholders != sample.grids.len() {
        return Err(Error::Images { placeholders, images: sample.grids.len() });
    }
    let (mut row, mut grids) = (Row::default(), sample.grids.iter());
    for (id, trained) in sample.ids.iter().zip(&sample.trained) {
        let grid: Option<&Grid> = if *id == by.image() { grids.next() } else { None };
        let begin = row.ids.len();
        match grid {
            Some(grid) => row.ids.extend(by.tokens(*grid)?),
            None => row.ids.push(*id),
        }
        row.trained.resize(row.ids.len(), *trained);
        row.images.extend(grid.map(|grid| (begin..row.ids.len(), *grid)));
    }
    Ok(row)
}

fn large_by_tokens(sample: &Sample, by: &Placeholders) -> Result<Row, Error> {
    let is_large = sample.grids.iter().any(|grid| grid.patches() > 4);
    if is_large { by_tokens(sample, by) } else { D23.expanded(sample, by) }
}

fn resized_by_thread(image: &Image, to: Size) -> Image {
    std::thread::scope(|threads| threads.spawn(|| image.resized(to)).join().expect("no panic"))
}

fn on_own_thread(image: &Image, to: Size) -> Image {
    std::thread::scope(|threads| threads.spawn(|| D23.resized(image, to)).join().expect("no panic"))
}

/// D.3 by the given code that marks special tokens.
fn by_marks(text: &str, special: &[&str], mark: char) -> String {
    let is_marked = marked(&Value::String(text.into()), special).as_str() != Some(text);
    if is_marked { D1.defuse(text, special, mark) } else { text.to_owned() }
}
