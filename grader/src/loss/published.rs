//! The published size: planned for all its tokens, and run for some of them.

use std::collections::BTreeMap;

use challenges::graph;
use challenges::loss::run::{Hidden, Job, Runner, Size, bucket};
use challenges::loss::{Chunked, Problem, Trains};
use compiler::session::DeviceTensor;
use kernels::bytes::Peak;
use kernels::cpu::Tick;
use kernels::{Buffer, Cpu, Device};
use reference::graph::Dtype;
use reference::loss::Reduction;

use super::bytes::highest;
use super::checks::plain;
use crate::compare::describe;
use crate::gather::{Child, Unwound, caught};
use crate::random::Random;
use crate::scorecard::Measurement;

/// Batch 4 of 4096 tokens, hidden 4096, and the vocabulary of Llama 3, which the statement rounds to 128K.
const TOKENS: usize = 4 * 4096;
const WIDTH: usize = 4096;
const VOCAB: usize = 128_256;
/// Tokens that are run.
const RUN: usize = 1024;
/// What chunks may take.
const BUDGET: usize = 256 << 20;

/// Plans and runs it, and reports the numbers.
pub(super) fn run(child: &mut Child, attempt: &dyn Chunked) {
    let seed = child.request.effort.seed;
    match caught(|| measure(attempt, seed)) {
        Ok(Ok(numbers)) => {
            for (name, value, unit) in numbers {
                let measurement = Measurement { value, unit: unit.into(), interval: None, samples: vec![] };
                child.measured(&format!("loss.published.{name}"), measurement);
            }
        }
        Ok(Err(reason)) | Err(Unwound::Panic(reason)) => child.unmeasured("loss.published.planned", &reason),
        Err(Unwound::Hole(hole)) => {
            child.unmeasured("loss.published.planned", &format!("not written yet: {hole}"));
        }
    }
}

fn measure(attempt: &dyn Chunked, seed: u64) -> Result<Vec<(&'static str, f64, &'static str)>, String> {
    let problem = Problem {
        loss: plain(VOCAB, Reduction::Mean)?,
        width: WIDTH,
        vocab: VOCAB,
        dtype: Dtype::F32,
        accumulate_dtype: Dtype::F32,
        bias: false,
        trains: Trains { hidden: true, weight: false, bias: false },
    };
    let device = Cpu::new();
    let mut runner = Runner::new(&device, &graph::Solution, attempt, &problem);
    let budget = Size::Bytes(BUDGET);
    let size = runner.size(budget, RUN).map_err(describe)?;
    let planned = runner.size(budget, TOKENS).map_err(describe)?;
    let costs = runner.costs(budget, TOKENS).map_err(describe)?;
    let mut random = Random::named(seed, "published");
    let mut drawn = |shape: [usize; 2], spread: f32| -> Result<DeviceTensor, String> {
        let mut buffer = device.alloc("drawn", shape[0] * shape[1] * 4).map_err(describe)?;
        for pair in buffer.view_mut::<f32>().chunks_mut(2) {
            let bits = random.next_u64();
            let [low, high] = [bits as u32, (bits >> 32) as u32];
            let number = |bits: u32| spread * (bits as f32 / u32::MAX as f32 * 2.0 - 1.0);
            pair.iter_mut().zip([low, high]).for_each(|(to, bits)| *to = number(bits));
        }
        Ok(DeviceTensor { shape: shape.to_vec(), buffer })
    };
    let hidden = drawn([RUN, WIDTH], 1.0)?;
    let weight = drawn([VOCAB, WIDTH], 0.02)?;
    let labels: Vec<u8> = (0..RUN).flat_map(|_| (random.below(VOCAB) as i32).to_ne_bytes()).collect();
    let labels = DeviceTensor::new(&device, &[RUN], &labels).map_err(describe)?;
    let given = BTreeMap::from([("weight".to_owned(), weight), ("labels".to_owned(), labels)]);
    let counts = vec![true; RUN];
    let job = Job {
        hidden: Hidden::Borrowed(&hidden.buffer),
        given: &given,
        counts: &counts,
        upstream: None,
        size: Size::Rows(size),
        so_far: BTreeMap::new(),
    };
    let peak = Peak::begin().ok_or(super::bytes::NO_PEAK)?;
    let start = Tick::now();
    let results = runner.run(job).map_err(describe)?;
    let seconds = start.micros() / 1e6;
    let returned: usize = results.gradients.values().map(Buffer::bytes).sum();
    let counted = peak.bytes().saturating_sub(returned);
    Ok(vec![
        ("logits", (TOKENS * VOCAB * 4) as f64, "B"),
        ("planned", highest(&costs, bucket(planned)) as f64, "B"),
        ("rows", planned as f64, "count"),
        ("counted", counted as f64, "B"),
        ("seconds", seconds, "s"),
        ("loss", f64::from(results.loss.first().copied().unwrap_or(f32::NAN)), "nats"),
    ])
}
