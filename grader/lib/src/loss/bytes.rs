//! Bytes above inputs and returned gradients, whole and chunked: on a CPU the process's allocator counts them, on a
//! card the device's pool, and the driver is asked how much of its memory is gone meanwhile.

use challenges::graph;
use challenges::loss::run::{Hidden, Runner, Size, bucket};
use challenges::loss::{Chunked, Cost, Sampled, Solution};
use kernels::bytes::Peak;
use kernels::{Device, DeviceError, Watermark};
use reference::loss::{Clip, Policy, Reduction};

use super::case::{Case, Sizes, Trial};
use super::checks::plain;
use crate::compare::describe;
use crate::device::Processor;
use crate::gather::{Child, Unwound, caught};
use crate::random::Random;
use crate::scorecard::Measurement;

/// What was counted.
pub(super) struct Counted {
    /// What the run took.
    pub taken: Taken,
    /// What the formula says of it.
    pub formula: usize,
    /// Rows of a chunk.
    pub size: usize,
    /// Bytes more that the first run on a device takes.
    pub once: usize,
}

/// What a run took above inputs and returned gradients, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    /// The most of the device's memory at once.
    pub peak: usize,
    /// What the driver lacks after the run, if it tells.
    pub driver: Option<usize>,
    /// The most of the process's own memory at once: on a CPU the same as `peak`.
    pub host: usize,
}

/// Counts what a run takes.
pub(super) struct Meter<'a> {
    device: Box<dyn Watermark + 'a>,
    host: Peak,
}

impl<'a> Meter<'a> {
    /// Begins to count.
    pub fn begin(device: &'a dyn Device) -> Result<Self, String> {
        let host = Peak::begin().ok_or(DeviceError::Watermarks).map_err(describe)?;
        Ok(Self { host, device: device.watermark().map_err(describe)? })
    }

    /// What was taken so far above the gradients that a run returned.
    pub fn taken(&self, returned: usize) -> Result<Taken, String> {
        let bytes = |counted: u64| (counted as usize).saturating_sub(returned);
        let driver = self.device.driver_bytes().map_err(describe)?.map(bytes);
        Ok(Taken { peak: bytes(self.device.bytes()), driver, host: self.host.bytes() })
    }
}

/// A run of so many rows at a time. It is counted the second time, on a device that has computed before: what the
/// device's products keep for good is there by then, and is [`Counted::once`].
pub(super) fn counted(case: &Case, on: Trial<'_>, size: usize) -> Result<Counted, String> {
    let Trial { attempt, device } = on;
    let (hidden, given) = case.given(device)?;
    let count = || -> Result<Counted, String> {
        let mut runner = Runner::new(device, &graph::Solution, attempt, &case.problem);
        let costs = runner.costs(Size::Rows(size), case.counts.len()).map_err(describe)?;
        let meter = Meter::begin(device)?;
        let job = case.job(Hidden::Borrowed(&hidden), &given, Size::Rows(size));
        let results = runner.run(job).map_err(describe)?;
        let taken = meter.taken(results.gradient_bytes())?;
        let formula = highest(&costs, bucket(results.chunks.iter().copied().max().unwrap_or(0)));
        Ok(Counted { taken, formula, size, once: 0 })
    };
    let first = count()?;
    let second = count()?;
    Ok(Counted { once: first.taken.peak.saturating_sub(second.taken.peak), ..second })
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
pub(super) fn run(child: &mut Child, processor: Processor, attempt: &dyn Chunked) {
    let device = processor.checked();
    let on = Trial { attempt, device: &*device };
    let seed = child.request.effort.seed;
    let vocab = if child.request.effort.quick { SIZES.vocab / 4 } else { SIZES.vocab };
    let sizes = Sizes { vocab, ..SIZES };
    let random = &mut Random::named(seed, "bytes");
    let entropy = plain(vocab, Reduction::Mean).map(|loss| Case::drawn(loss, sizes, random));
    report(child, "bytes", || {
        let entropy = entropy?;
        both(&entropy, &entropy, on)
    });
    let sampled = Sampled {
        sequences: 16,
        length: SIZES.rows / 16,
        vocab,
        temperature: 1.0,
        old: true,
        reference: true,
    };
    report(child, "policy.bytes", || {
        let seed = random.next_u64();
        let case = |steps: &dyn Chunked| {
            let loss = steps.policy(&Policy::grpo(0.04, Clip::both(0.2)), &sampled).map_err(describe)?;
            Ok::<_, String>(Case::drawn(loss, sizes, &mut Random::new(seed)))
        };
        both(&case(attempt)?, &case(&Solution)?, on)
    });
}

/// All rows at once, and as many as fit in a quarter of that. All rows are computed by the solution, whose problem is
/// `plain`: an attempt that wastes memory where it has all rows would save as much as it wastes.
fn both(case: &Case, plain: &Case, on: Trial<'_>) -> Result<[Counted; 2], String> {
    let Trial { attempt, device } = on;
    let whole = counted(plain, Trial { attempt: &Solution, device }, plain.counts.len())?;
    let mut runner = Runner::new(device, &graph::Solution, attempt, &case.problem);
    let rows = case.counts.iter().filter(|counts| **counts).count();
    let budget = Size::Bytes(whole.taken.peak / PART);
    let own = caught(|| runner.size(budget, rows));
    let size = match own {
        Ok(size) => size.map_err(describe)?,
        Err(Unwound::Hole(_)) => {
            let mut runner = Runner::new(device, &graph::Solution, &Solution, &case.problem);
            runner.size(budget, rows).map_err(describe)?
        }
        Err(Unwound::Panic(message)) => return Err(message),
    };
    Ok([whole, counted(case, on, size)?])
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
            for (of, Taken { peak, driver, host }) in [("whole", whole.taken), ("chunked", chunked.taken)] {
                child.measured(&name(of), number(peak, "B"));
                if let Some(driver) = driver {
                    child.measured(&name(&format!("driver.{of}")), number(driver, "B"));
                    child.measured(&name(&format!("host.{of}")), number(host, "B"));
                }
            }
            child.measured(&name("formula"), number(chunked.formula, "B"));
            child.measured(&name("once"), number(whole.once, "B"));
            child.measured(&name("rows"), number(chunked.size, "count"));
        }
        Ok(Err(reason)) | Err(Unwound::Panic(reason)) => child.unmeasured(&name("chunked"), &reason),
        Err(Unwound::Hole(hole)) => child.unmeasured(&name("chunked"), &format!("not written yet: {hole}")),
    }
}
