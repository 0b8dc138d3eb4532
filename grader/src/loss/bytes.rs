//! Bytes above inputs and returned gradients, counted by the process's allocator: whole and chunked.

use challenges::graph;
use challenges::loss::run::{Hidden, Runner, Size, bucket};
use challenges::loss::{Chunked, Cost, Sampled, Solution};
use kernels::bytes::Peak;
use kernels::{Buffer, Cpu};
use reference::loss::{Clip, Policy, Reduction};

use super::case::{Case, Sizes};
use super::checks::plain;
use crate::compare::describe;
use crate::gather::{Child, Unwound, caught};
use crate::random::Random;
use crate::scorecard::Measurement;

/// What was counted.
pub(super) struct Counted {
    /// The largest number of bytes above inputs and returned gradients.
    pub peak: usize,
    /// What the formula says of it.
    pub formula: usize,
    /// Rows of a chunk.
    pub size: usize,
    /// Bytes more that the first run on a device takes.
    pub once: usize,
}

/// Why a peak is not counted.
pub(super) const NO_PEAK: &str = "too many peaks are counted already";

/// A run of so many rows at a time. It is counted the second time, on a device that has computed before: what the
/// device's products keep for good is there by then, and is [`Counted::once`].
pub(super) fn counted(case: &Case, attempt: &dyn Chunked, size: usize) -> Result<Counted, String> {
    let device = Cpu::with_threads(2);
    let (hidden, given) = case.given(&device)?;
    let count = || -> Result<Counted, String> {
        let mut runner = Runner::new(&device, &graph::Solution, attempt, &case.problem);
        let costs = runner.costs(Size::Rows(size), case.counts.len()).map_err(describe)?;
        let peak = Peak::begin().ok_or(NO_PEAK)?;
        let results =
            runner.run(case.job(Hidden::Borrowed(&hidden), &given, Size::Rows(size))).map_err(describe)?;
        let returned: usize = results.gradients.values().map(Buffer::bytes).sum();
        let peak = peak.bytes().saturating_sub(returned);
        let formula = highest(&costs, bucket(results.chunks.iter().copied().max().unwrap_or(0)));
        Ok(Counted { peak, formula, size, once: 0 })
    };
    let first = count()?;
    let second = count()?;
    Ok(Counted { once: first.peak.saturating_sub(second.peak), ..second })
}

/// The bytes of a chunk of n rows.
pub(super) fn highest(costs: &[Cost], n: usize) -> usize {
    costs.iter().map(|cost| cost.of(n)).max().unwrap_or(0)
}

/// The problem that is counted: logits of 512 MiB, a quarter of that in a hurry, beside which what a process has once
/// and for all is little.
const SIZES: Sizes = Sizes { rows: 1024, width: 64, vocab: 131_072 };

/// The part of the whole run's bytes that an attempt may choose its chunks for.
const PART: usize = 4;

/// Counts cross entropy and a policy, and reports both.
pub(super) fn run(child: &mut Child, attempt: &dyn Chunked) {
    let seed = child.request.effort.seed;
    let vocab = if child.request.effort.quick { SIZES.vocab / 4 } else { SIZES.vocab };
    let sizes = Sizes { vocab, ..SIZES };
    let random = &mut Random::named(seed, "bytes");
    let entropy = plain(vocab, Reduction::Mean).map(|loss| Case::drawn(loss, sizes, random));
    report(child, "bytes", || both(&entropy?, attempt));
    let sampled = Sampled {
        sequences: 16,
        length: SIZES.rows / 16,
        vocab,
        temperature: 1.0,
        old: true,
        reference: true,
    };
    report(child, "policy.bytes", || {
        let loss = attempt.policy(&Policy::grpo(0.04, Clip::both(0.2)), &sampled).map_err(describe)?;
        both(&Case::drawn(loss, sizes, random), attempt)
    });
}

/// All rows at once, and as many as fit in a quarter of that.
fn both(case: &Case, attempt: &dyn Chunked) -> Result<[Counted; 2], String> {
    let whole = counted(case, attempt, case.counts.len())?;
    let device = Cpu::with_threads(2);
    let mut runner = Runner::new(&device, &graph::Solution, attempt, &case.problem);
    let rows = case.counts.iter().filter(|counts| **counts).count();
    let budget = Size::Bytes(whole.peak / PART);
    let own = caught(|| runner.size(budget, rows));
    let size = match own {
        Ok(size) => size.map_err(describe)?,
        Err(Unwound::Hole(_)) => {
            let mut runner = Runner::new(&device, &graph::Solution, &Solution, &case.problem);
            runner.size(budget, rows).map_err(describe)?
        }
        Err(Unwound::Panic(message)) => return Err(message),
    };
    Ok([whole, counted(case, attempt, size)?])
}

fn report(child: &mut Child, name: &str, count: impl FnOnce() -> Result<[Counted; 2], String>) {
    let name = |part: &str| format!("loss.{name}.{part}");
    match caught(count) {
        Ok(Ok([whole, chunked])) => {
            let number = |value: usize, unit: &str| Measurement {
                value: value as f64,
                unit: unit.into(),
                interval: None,
                samples: vec![],
            };
            child.measured(&name("whole"), number(whole.peak, "B"));
            child.measured(&name("chunked"), number(chunked.peak, "B"));
            child.measured(&name("formula"), number(chunked.formula, "B"));
            child.measured(&name("once"), number(whole.once, "B"));
            child.measured(&name("rows"), number(chunked.size, "count"));
        }
        Ok(Err(reason)) | Err(Unwound::Panic(reason)) => child.unmeasured(&name("chunked"), &reason),
        Err(Unwound::Hole(hole)) => child.unmeasured(&name("chunked"), &format!("not written yet: {hole}")),
    }
}
