//! Guards: attempts that look right or fast, and are not.
//!
//! Each guard provokes one way of cheating and looks for its trace. An honest attempt cannot trip one; an
//! attempt that is wrong anyway is left to the checks. `tests` holds a cheat for each guard, and its honest
//! twin.

use std::time::Duration;

use challenges::nf4::{CASES, Nf4, solution_calls};
use kernels::{Cpu, bytes};
use reference::nf4::{OutputDtype, Quantized, Scales, dequantize_bits};

use super::Subject;
use super::inputs::{Buffer, Scale, weight};
use crate::gather::{Source, caught};
use crate::oracles::{self, INSIDE_A_STEP};
use crate::random::Random;
use crate::table;

/// What a guard does.
type Guard = fn(&Workbench<'_>) -> Verdict;

/// `Some` says what was caught.
type Verdict = Result<Option<String>, String>;

/// The guards that run by themselves; one more, "past the physical bound", watches the timed runs.
const GUARDS: [(&str, Guard); 12] = [
    ("answers cached by pointer", |bench| bench.cached_by_pointer()),
    ("answers cached by content", |bench| bench.cached_by_content()),
    ("answers cached by call count", |bench| bench.cached_by_call_count()),
    ("unwritten outputs", |bench| bench.unwritten()),
    ("inputs modified", |bench| bench.inputs_modified()),
    ("constants and zeros", |bench| bench.constants()),
    ("NaN as a wildcard", |bench| bench.wildcard()),
    ("work finished after the clock stops", |bench| bench.late_work()),
    ("right on the checked shapes only", |bench| bench.unseen_shapes()),
    ("lower precision", |bench| bench.lower_precision()),
    ("writes outside the buffer", |bench| bench.outside()),
    (INSIDE_A_STEP, |bench| bench.oracle_called()),
];

/// Their names.
pub(super) const NAMES: [&str; 12] = table::names(&GUARDS);

/// Rounds of the guard on oracles: a large weight, then small ones.
const ROUNDS: usize = 24;

/// Runs one guard.
pub(super) fn run(name: &str, attempt: &dyn Nf4, source: Source, seed: u64) -> Verdict {
    let guard = table::find(&GUARDS, name)?;
    guard(&Workbench { subject: Subject::of(attempt), cpu: Cpu::new(), source, seed, len: drawn_len(seed) })
}

struct Workbench<'a> {
    subject: Subject<'a>,
    cpu: Cpu,
    source: Source,
    seed: u64,
    len: usize, // elements of a weight
}

/// A few thousand blocks and a ragged tail: no size that an attempt could know.
pub(super) fn drawn_len(seed: u64) -> usize {
    let mut random = Random::named(seed, "a guard's weight");
    64 * (2001 + random.below(1900)) + 1 + random.below(63)
}

/// Lengths of outputs, and elements from the beginning of a line at which they begin: one element, less than a block,
/// two of some blocks, and one of `len` elements.
pub(super) fn outputs(len: usize, seed: u64) -> [(usize, usize); 5] {
    let mut random = Random::named(seed, "writes outside the buffer");
    let mut of_blocks = |blocks: usize| 64 * (1 + random.below(blocks)) + 1 + random.below(63);
    let [few, many] = [of_blocks(16), of_blocks(64)];
    [(1, 0), (2 + random.below(62), 0), (few, 1), (many, 3), (len, 0)]
}

/// Why a guard cannot look.
pub(super) const WRONG_ANYWAY: &str = "the answers are wrong to begin with: see the checks";

#[allow(clippy::unnecessary_wraps)] // every guard has one signature, also those that can always run
impl Workbench<'_> {
    fn weight(&self) -> Quantized {
        weight(self.len, 64, true, Scale::Plain, self.seed)
    }

    /// Runs the step on a copy, so that what it does to its input changes no later comparison.
    fn dequantize(&self, weight: &Quantized, dtype: OutputDtype, seed: u64) -> Buffer {
        let mut buffer = Buffer::new(dtype, weight.shape[0], seed);
        self.subject.run(&self.cpu, &weight.clone().view(), buffer.output());
        buffer
    }

    /// How many elements are not what the format says, and the first of them.
    fn wrong(weight: &Quantized, dtype: OutputDtype, buffer: &Buffer) -> Option<(usize, usize)> {
        let want = dequantize_bits(&weight.view(), dtype);
        let mut wrong = (0..want.len()).filter(|e| buffer.bits(*e) != want[*e]);
        let first = wrong.next()?;
        Some((1 + wrong.count(), first))
    }

    /// The same storage with other bytes must give other answers.
    fn cached_by_pointer(&self) -> Verdict {
        let mut weight = self.weight();
        let mut buffer = Buffer::new(OutputDtype::Bf16, self.len, self.seed);
        let mut wrong = |weight: &Quantized| {
            let asked = weight.clone();
            self.subject.run(&self.cpu, &weight.view(), buffer.output());
            Self::wrong(&asked, OutputDtype::Bf16, &buffer)
        };
        if wrong(&weight).is_some() {
            return Err(WRONG_ANYWAY.into());
        }
        Random::named(self.seed, "other bytes").fill(&mut weight.packed);
        Ok(wrong(&weight).map(|(n, _)| {
            format!("{n} answers stayed as they were after the bytes at the same address changed")
        }))
    }

    /// One byte changed deep inside must show, and nothing as large as an answer may be kept.
    fn cached_by_content(&self) -> Verdict {
        let first = self.weight();
        if Self::wrong(&first, OutputDtype::Bf16, &self.dequantize(&first, OutputDtype::Bf16, 1)).is_some() {
            return Err(WRONG_ANYWAY.into());
        }
        let live = bytes::live();
        let mut random = Random::named(self.seed, "one byte");
        for _ in 0..8 {
            let mut changed = first.clone();
            let at = random.below(changed.packed.len() - 1);
            changed.packed[at] ^= 0x11;
            let buffer = self.dequantize(&changed, OutputDtype::Bf16, 2);
            if let Some((n, e)) = Self::wrong(&changed, OutputDtype::Bf16, &buffer) {
                return Ok(Some(format!(
                    "{n} answers (from element {e}) are those of a weight one byte away"
                )));
            }
        }
        let kept = bytes::live().saturating_sub(live);
        Ok((kept > self.len)
            .then(|| format!("{kept} bytes were kept after eight calls: answers are being stored")))
    }

    /// The last call does the same work as the first.
    fn cached_by_call_count(&self) -> Verdict {
        let len = 1 + 64 * (200 + Random::named(self.seed, "call count").below(300));
        for call in 0..24 {
            let weight = weight(len, 64, true, Scale::Plain, self.seed ^ call);
            let buffer = self.dequantize(&weight, OutputDtype::F16, call);
            if let Some((n, _)) = Self::wrong(&weight, OutputDtype::F16, &buffer) {
                if call == 0 {
                    return Err(WRONG_ANYWAY.into());
                }
                return Ok(Some(format!(
                    "call {} left {n} wrong answers; the calls before were right",
                    call + 1
                )));
            }
        }
        Ok(None)
    }

    /// What still holds two different poisons was not written.
    fn unwritten(&self) -> Verdict {
        let weight = self.weight();
        let (a, b) =
            (self.dequantize(&weight, OutputDtype::Bf16, 3), self.dequantize(&weight, OutputDtype::Bf16, 5));
        let left = (0..self.len).filter(|e| a.bits(*e) == a.poison() && b.bits(*e) == b.poison()).count();
        Ok((left > 0).then(|| format!("{left} of {} outputs were never written", self.len)))
    }

    /// The weight is borrowed: it comes back as it was.
    fn inputs_modified(&self) -> Verdict {
        let weight = self.weight();
        let before = weight.clone();
        let mut buffer = Buffer::new(OutputDtype::F16, self.len, 1);
        self.subject.run(&self.cpu, &weight.view(), buffer.output());
        Ok((weight != before).then(|| format!("the {} changed", changed_part(&weight, &before))))
    }

    /// Different weights, the same answer everywhere.
    fn constants(&self) -> Verdict {
        let bits = self.dequantize(&self.weight(), OutputDtype::F16, 1).all_bits();
        let constant = bits.iter().all(|other| *other == bits[0]);
        Ok(constant.then(|| format!("all {} outputs are {}", self.len, OutputDtype::F16.value(bits[0]))))
    }

    /// NaN compares unequal to everything: a careless check would let it pass.
    fn wildcard(&self) -> Verdict {
        let buffer = self.dequantize(&self.weight(), OutputDtype::Bf16, 1);
        let nan = (0..self.len).filter(|e| {
            buffer.bits(*e) != buffer.poison() && OutputDtype::Bf16.value(buffer.bits(*e)).is_nan()
        });
        let nan = nan.count();
        Ok((nan > 0).then(|| format!("{nan} of {} outputs are NaN where every answer is finite", self.len)))
    }

    /// What is there when the call returns must be right then, not some time later. How long later may be is no
    /// matter of a clock: what is wrong at the return is waited for.
    fn late_work(&self) -> Verdict {
        const SAMPLES: usize = 512;
        const ROUNDS: u64 = 8; // a machine that holds up the look at the return may hide one or two
        let len = 64 * (55_000 + Random::named(self.seed, "late work").below(10_000));
        let every = len / SAMPLES;
        let weight = weight(len, 64, true, Scale::Plain, self.seed);
        let want = dequantize_bits(&weight.view(), OutputDtype::Bf16);
        for round in 0..ROUNDS {
            let mut buffer = Buffer::new(OutputDtype::Bf16, len, round);
            self.subject.run(&self.cpu, &weight.view(), buffer.output());
            let at = |i: usize| len - 1 - i * every;
            let at_return: [u32; SAMPLES] = std::array::from_fn(|i| buffer.bits(at(i)));
            let wrong: Vec<usize> = (0..SAMPLES).filter(|i| at_return[*i] != want[at(*i)]).collect();
            let Some(first) = wrong.first() else { continue };
            if !changes(|| buffer.bits(at(*first)) != at_return[*first]) {
                return Err(WRONG_ANYWAY.into());
            }
            return Ok(Some(format!(
                "{} of {SAMPLES} sampled outputs were wrong when the call returned, and changed afterwards",
                wrong.len()
            )));
        }
        Ok(None)
    }

    /// Shapes that no list names, for an attempt that is right on each that a list does name.
    fn unseen_shapes(&self) -> Verdict {
        let mut random = Random::named(self.seed, "unseen shapes");
        let wrong_on_list = CASES.iter().any(|case| {
            let weight = weight(case.len, case.block_size, case.nested, Scale::Wide, self.seed);
            Self::wrong(&weight, OutputDtype::F16, &self.dequantize(&weight, OutputDtype::F16, 1)).is_some()
        });
        if wrong_on_list {
            return Err(WRONG_ANYWAY.into());
        }
        for _ in 0..24 {
            let len = 1 + random.below(40_000);
            let block_size = 32 << random.below(8);
            let weight = weight(len, block_size, random.below(4) > 0, Scale::Wide, random.next_u64());
            let buffer = self.dequantize(&weight, OutputDtype::F16, 1);
            if let Some((n, e)) = Self::wrong(&weight, OutputDtype::F16, &buffer) {
                return Ok(Some(format!(
                    "{n} of {len} answers are wrong (from element {e}) at block size {block_size}, a shape of no list"
                )));
            }
        }
        Ok(None)
    }

    /// Close is not equal: every answer within a hundredth, and not the same bits.
    fn lower_precision(&self) -> Verdict {
        for dtype in super::DTYPES {
            let weight = self.weight();
            let buffer = self.dequantize(&weight, dtype, 1);
            let want = dequantize_bits(&weight.view(), dtype);
            let off = |e: &usize| buffer.bits(*e) != want[*e];
            let near = |e: usize| {
                let (got, want) = (dtype.value(buffer.bits(e)), dtype.value(want[e]));
                (got - want).abs() <= want.abs() * 0.01
            };
            let wrong = (0..self.len).filter(off).count();
            if wrong > 0 && (0..self.len).all(near) {
                let name = super::dtype_name(dtype);
                return Ok(Some(format!(
                    "{wrong} of {} {name} answers are within 1 % of the truth, not equal",
                    self.len
                )));
            }
        }
        Ok(None)
    }

    /// Canaries on both sides, at every alignment.
    fn outside(&self) -> Verdict {
        for (len, shift) in outputs(self.len, self.seed) {
            for dtype in super::DTYPES {
                let weight = weight(len, 64, true, Scale::Plain, self.seed);
                let mut buffer = Buffer::shifted(dtype, len, self.seed, shift);
                self.subject.run(&self.cpu, &weight.view(), buffer.output());
                if let Some(e) = buffer.touched_canary() {
                    return Ok(Some(format!("element {e} of an output of {len} elements was written")));
                }
            }
        }
        Ok(None)
    }

    /// Calls every step with random weights. The oracles and the solution count their calls.
    fn oracle_called(&self) -> Verdict {
        _ = oracles::take(); // of the call that looks for a fast step
        let mut random = Random::named(self.seed, INSIDE_A_STEP);
        Ok((0..ROUNDS).find_map(|round| self.asked(round, &mut random)))
    }

    /// Calls every step once. Returns what a step called, if it called an oracle or the solution.
    fn asked(&self, round: usize, random: &mut Random) -> Option<String> {
        let len = 1 + random.below(if round == 0 { 400_000 } else { 9_000 });
        let (block_size, nested) = (32 << random.below(8), random.below(4) > 0);
        let weight = weight(len, block_size, nested, Scale::Plain, random.next_u64());
        let (view, attempt) = (weight.view(), self.subject.attempt);
        let blocks = len.div_ceil(block_size);
        let (block, elements) = (random.below(blocks), len.min(block_size));
        let (mut codes, mut values) = (vec![0; elements], vec![0.0; elements]);
        let packed = &view.packed[..elements.div_ceil(2)];
        let seven = vec![7; elements];
        let mut buffer = Buffer::new(super::DTYPES[random.below(3)], len, 1);
        let asked = |step: &str, run: &mut dyn FnMut()| {
            let before = solution_calls();
            _ = caught(run); // a hole calls nothing
            let calls = solution_calls() - before;
            let solution = self.source.own_work(calls).err();
            let solution = solution
                .map(|_| format!("the workbook's solution was called {calls} times while {step} ran"));
            let found = oracles::take().map(|found| found.message).or(solution)?;
            let again = format!("cargo grader test nf4 --case \"{INSIDE_A_STEP}\" --seed {:#x}", self.seed);
            Some(format!("{found}\n  {again}"))
        };
        asked("A.1", &mut || attempt.unpack(packed, &mut codes))
            .or_else(|| asked("A.2", &mut || attempt.look_up(&seven, view.table, &mut vec![0.0; elements])))
            .or_else(|| asked("A.3", &mut || attempt.block(packed, view.table, 1.5, &mut values)))
            .or_else(|| asked("A.4", &mut || _ = attempt.absmax(&view.absmax, block)))
            .or_else(|| asked("A.5", &mut || attempt.dequantize(&self.cpu, &view, buffer.output())))
            .or_else(|| asked("A.6", &mut || attempt.dequantize_fast(&self.cpu, &view, buffer.output())))
    }
}

/// Whether something comes true within a second or two.
fn changes(mut seen: impl FnMut() -> bool) -> bool {
    (0..150).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        seen()
    })
}

fn changed_part(after: &Quantized, before: &Quantized) -> &'static str {
    if after.packed != before.packed {
        return "packed codes";
    }
    if after.table.map(f32::to_bits) != before.table.map(f32::to_bits) {
        return "table";
    }
    match (&after.absmax, &before.absmax) {
        (Scales::Double { codes: a, .. }, Scales::Double { codes: b, .. }) if a != b => "scale codes",
        _ => "scales",
    }
}
