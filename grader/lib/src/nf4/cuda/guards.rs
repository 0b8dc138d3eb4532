//! Guards on a card: kernels that look right or fast, and are not.
//!
//! A kernel cannot call the host, but it can keep state: a module's globals live from launch to launch. So a
//! kernel can remember addresses, contents and how often it was called, leave work to the next launch, and
//! write where it should not. Each guard provokes one of these and looks for its trace; two more, "wrong
//! answers in timed calls" and "past the physical bound", watch the timed runs.

use challenges::nf4::CASES;
use challenges::nf4::cuda::{Build, OnCard};
use reference::nf4::{OutputDtype, Quantized, dequantize_bits};

use super::output::{Output, Seen};
use super::session::{Session, Via};
use super::trouble::{Tried, Trouble};
use crate::gather::Child;
use crate::nf4::guards::{WRONG_ANYWAY, drawn_len, outputs};
use crate::nf4::inputs::{Scale, weight};
use crate::nf4::{DTYPES, dtype_name};
use crate::random::Random;
use crate::table;

/// What a guard does.
type Guard = fn(&Bench<'_>) -> Verdict;

/// What tripped it, if anything.
type Verdict = Tried<Option<String>>;

/// The guards that run by themselves.
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
    ("overlap without a wait", |bench| bench.overlap()),
];

/// Their names.
pub(super) const NAMES: [&str; 12] = table::names(&GUARDS);

/// Bytes of globals that a module may keep: the prelude's and a few tables, no answer of a real size.
const KEPT_BYTES: usize = 64 * 1024;

/// Runs one guard and reports it.
pub(super) fn report(child: &mut Child, session: &Session, name: &str, seed: u64) {
    let verdict = table::find(&GUARDS, name)
        .map_err(Trouble::Wrong)
        .and_then(|guard| guard(&Bench { session, kernel: session.answer()?, seed, len: drawn_len(seed) }));
    if verdict.as_ref().is_err_and(Trouble::is_broken) {
        child.ends_if(true);
    }
    child.guard(name, || verdict.map_err(|trouble| trouble.reason()));
}

struct Bench<'a> {
    session: &'a Session,
    kernel: &'static str,
    seed: u64,
    len: usize, // elements of a weight
}

fn wrong_anyway<T>() -> Tried<T> {
    Err(Trouble::Wrong(WRONG_ANYWAY.into()))
}

impl Bench<'_> {
    fn weight(&self) -> Quantized {
        weight(self.len, 64, true, Scale::Plain, self.seed)
    }

    fn launch(&self, weight: &OnCard, dtype: OutputDtype, output: &Output) -> Tried {
        self.session.run(Build::of(dtype), Via::Machine, self.kernel, weight, output.address())
    }

    fn output(&self, dtype: OutputDtype, len: usize, seed: u64) -> Tried<Output> {
        Output::new(&self.session.gpu, dtype, len, seed, 0)
    }

    fn upload(&self, weight: &Quantized) -> Tried<OnCard> {
        Ok(OnCard::upload(&self.session.gpu, &weight.view(), 0)?)
    }

    /// A fresh output of a fresh upload, and the pattern of what was not written.
    fn dequantize(&self, weight: &Quantized, dtype: OutputDtype, seed: u64) -> Tried<(Seen, u32)> {
        let (on_card, output) = (self.upload(weight)?, self.output(dtype, weight.shape[0], seed)?);
        self.launch(&on_card, dtype, &output)?;
        Ok((output.seen()?, output.unwritten()))
    }

    /// The same storage with other bytes must give other answers; the output keeps the old ones.
    fn cached_by_pointer(&self) -> Verdict {
        let mut weight = self.weight();
        let mut on_card = self.upload(&weight)?;
        let output = self.output(OutputDtype::Bf16, self.len, self.seed)?;
        self.launch(&on_card, OutputDtype::Bf16, &output)?;
        if wrong(&weight, OutputDtype::Bf16, &output.seen()?).is_some() {
            return wrong_anyway();
        }
        Random::named(self.seed, "other bytes").fill(&mut weight.packed);
        on_card.packed.write(0, &weight.packed)?;
        self.launch(&on_card, OutputDtype::Bf16, &output)?;
        Ok(wrong(&weight, OutputDtype::Bf16, &output.seen()?).map(|(n, _)| {
            format!("{n} answers stayed as they were after the bytes at the same address changed")
        }))
    }

    /// One byte changed deep inside must show, at the same addresses and into the same output; and a module
    /// that keeps as much as an answer is storing answers.
    fn cached_by_content(&self) -> Verdict {
        let mut weight = self.weight();
        let mut on_card = self.upload(&weight)?;
        let output = self.output(OutputDtype::Bf16, self.len, self.seed)?;
        self.launch(&on_card, OutputDtype::Bf16, &output)?;
        if wrong(&weight, OutputDtype::Bf16, &output.seen()?).is_some() {
            return wrong_anyway();
        }
        let mut random = Random::named(self.seed, "one byte");
        for _ in 0..8 {
            let at = random.below(weight.packed.len() - 1);
            weight.packed[at] ^= 0x11;
            on_card.packed.write(at, &weight.packed[at..=at])?;
            self.launch(&on_card, OutputDtype::Bf16, &output)?;
            if let Some((n, e)) = wrong(&weight, OutputDtype::Bf16, &output.seen()?) {
                return Ok(Some(format!(
                    "{n} answers (from element {e}) are those of a weight one byte away"
                )));
            }
        }
        let kept = super::marks::global_bytes(&self.session.text(Build::of(OutputDtype::Bf16))?);
        Ok((kept > KEPT_BYTES).then(|| {
            format!("the module keeps {kept} bytes of globals from launch to launch, room for answers")
        }))
    }

    /// The last call does the same work as the first.
    fn cached_by_call_count(&self) -> Verdict {
        let len = 1 + 64 * (200 + Random::named(self.seed, "call count").below(300));
        for call in 0..48 {
            let weight = weight(len, 64, true, Scale::Plain, self.seed ^ call);
            let (seen, _) = self.dequantize(&weight, OutputDtype::F16, call)?;
            if let Some((n, _)) = wrong(&weight, OutputDtype::F16, &seen) {
                if call == 0 {
                    return wrong_anyway();
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
        let (a, of_a) = self.dequantize(&weight, OutputDtype::Bf16, 3)?;
        let (b, of_b) = self.dequantize(&weight, OutputDtype::Bf16, 5)?;
        let left = (0..self.len).filter(|e| a.bits[*e] == of_a && b.bits[*e] == of_b).count();
        Ok((left > 0).then(|| format!("{left} of {} outputs were never written", self.len)))
    }

    /// The weight is lent: it comes back as it was.
    fn inputs_modified(&self) -> Verdict {
        let weight = self.weight();
        let (on_card, output) = (self.upload(&weight)?, self.output(OutputDtype::F16, self.len, 1)?);
        let before = parts(&on_card)?;
        self.launch(&on_card, OutputDtype::F16, &output)?;
        let after = parts(&on_card)?;
        let changed = before.iter().zip(&after).find(|((_, before), (_, after))| before != after);
        Ok(changed.map(|((name, _), _)| format!("the {name} changed")))
    }

    /// Random weights, the same answer everywhere.
    fn constants(&self) -> Verdict {
        let (seen, _) = self.dequantize(&self.weight(), OutputDtype::F16, 1)?;
        let first = seen.bits[0];
        let constant = seen.bits.iter().all(|other| *other == first);
        Ok(constant.then(|| format!("all {} outputs are {}", self.len, OutputDtype::F16.value(first))))
    }

    /// NaN compares unequal to everything: a careless check would let it pass.
    fn wildcard(&self) -> Verdict {
        let (seen, unwritten) = self.dequantize(&self.weight(), OutputDtype::Bf16, 1)?;
        let nan = |bits: &&u32| **bits != unwritten && OutputDtype::Bf16.value(**bits).is_nan();
        let nan = seen.bits.iter().filter(nan).count();
        Ok((nan > 0).then(|| format!("{nan} of {} outputs are NaN where every answer is finite", self.len)))
    }

    /// What is there when a launch is over is what is there after the next one.
    fn late_work(&self) -> Verdict {
        let first = self.weight();
        let second = weight(self.len, 64, true, Scale::Plain, !self.seed);
        let (a, b) = (self.upload(&first)?, self.upload(&second)?);
        let (out_a, out_b) = (
            self.output(OutputDtype::Bf16, self.len, self.seed)?,
            self.output(OutputDtype::Bf16, self.len, !self.seed)?,
        );
        for round in 0..3 {
            self.launch(&a, OutputDtype::Bf16, &out_a)?;
            let at_end = out_a.seen()?.bits;
            self.launch(&b, OutputDtype::Bf16, &out_b)?;
            let later = out_a.seen()?.bits;
            let changed = (0..self.len).filter(|e| at_end[*e] != later[*e]).count();
            if changed > 0 {
                return Ok(Some(format!(
                    "{changed} of {} outputs of call {} changed while the call after it ran",
                    self.len,
                    2 * round + 1
                )));
            }
        }
        Ok(None)
    }

    /// Shapes that no list names, for an attempt that is right on each that a list does name.
    fn unseen_shapes(&self) -> Verdict {
        let mut random = Random::named(self.seed, "unseen shapes");
        for case in &CASES {
            let weight = weight(case.len, case.block_size, case.nested, Scale::Wide, self.seed);
            if wrong(&weight, OutputDtype::F16, &self.dequantize(&weight, OutputDtype::F16, 1)?.0).is_some() {
                return wrong_anyway();
            }
        }
        for _ in 0..24 {
            let len = 1 + random.below(40_000);
            let block_size = 32 << random.below(8);
            let weight = weight(len, block_size, random.below(4) > 0, Scale::Wide, random.next_u64());
            if let Some((n, e)) =
                wrong(&weight, OutputDtype::F16, &self.dequantize(&weight, OutputDtype::F16, 1)?.0)
            {
                return Ok(Some(format!(
                    "{n} of {len} answers are wrong (from element {e}) at block size {block_size}, a shape of no list"
                )));
            }
        }
        Ok(None)
    }

    /// Close is not equal: every answer within a hundredth, and not the same bits.
    fn lower_precision(&self) -> Verdict {
        for dtype in DTYPES {
            let weight = self.weight();
            let got = self.dequantize(&weight, dtype, 1)?.0.bits;
            let want = dequantize_bits(&weight.view(), dtype);
            let near = |e: usize| {
                let (got, want) = (dtype.value(got[e]), dtype.value(want[e]));
                (got - want).abs() <= want.abs() * 0.01
            };
            let wrong = (0..self.len).filter(|e| got[*e] != want[*e]).count();
            if wrong > 0 && (0..self.len).all(near) {
                let name = dtype_name(dtype);
                return Ok(Some(format!(
                    "{wrong} of {} {name} answers are within 1 % of the truth, not equal",
                    self.len
                )));
            }
        }
        Ok(None)
    }

    /// Behind a kernel that lets it begin at once and writes late: codes must be the new ones, and nothing may be
    /// written before that kernel is done with the output.
    fn overlap(&self) -> Verdict {
        let (old, new) = (self.weight(), weight(self.len, 64, true, Scale::Plain, !self.seed));
        let new = Quantized { packed: new.packed, ..old.clone() };
        let (gpu, dtype) = (&self.session.gpu, OutputDtype::Bf16);
        let kernel = self.session.kernel(Build::of(dtype), Via::Machine, self.kernel)?;
        if !kernel.grid(gpu, self.len)?.overlap {
            return Ok(None);
        }
        let mut asked = self.upload(&old)?;
        asked.packed = gpu.uploaded("packed codes", &padded(&old.packed))?;
        let fresh = gpu.uploaded("codes that come late", &padded(&new.packed))?;
        let output = self.output(dtype, self.len, self.seed)?;
        self.session.write_late(
            &fresh,
            &asked.packed,
            (output.address(), self.len / 2 * 4),
            output.unwritten(),
        )?;
        kernel.run(gpu, &asked, output.address())?; // nothing in between: a copy would wait for the writer
        self.session.finished(&self.session.module(Build::of(dtype), Via::Machine)?)?;
        Ok(wrong(&new, dtype, &output.seen()?).map(|(n, e)| {
            format!(
                "{n} answers (from element {e}) do not follow from what the kernel before it wrote: with overlap \
                 nothing is read or written before griddepcontrol.wait"
            )
        }))
    }

    /// Canaries on both sides, at three alignments.
    fn outside(&self) -> Verdict {
        for (len, shift) in outputs(self.len, self.seed) {
            for dtype in DTYPES {
                let weight = weight(len, 64, true, Scale::Plain, self.seed);
                let on_card = self.upload(&weight)?;
                let output = Output::new(&self.session.gpu, dtype, len, self.seed, shift)?;
                self.launch(&on_card, dtype, &output)?;
                if let Some(e) = output.seen()?.touched {
                    return Ok(Some(format!("element {e} of an output of {len} elements was written")));
                }
            }
        }
        Ok(None)
    }
}

/// Bytes up to the next word.
fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(8), 0);
    padded
}

/// How many elements are not what the format says, and the first of them.
fn wrong(weight: &Quantized, dtype: OutputDtype, seen: &Seen) -> Option<(usize, usize)> {
    let want = dequantize_bits(&weight.view(), dtype);
    let mut wrong = (0..want.len()).filter(|e| seen.bits[*e] != want[*e]);
    let first = wrong.next()?;
    Some((1 + wrong.count(), first))
}

/// What a weight's buffers hold.
fn parts(weight: &OnCard) -> Tried<Vec<(&'static str, Vec<u8>)>> {
    let all = [Some(&weight.packed), weight.codes.as_ref(), Some(&weight.scales), weight.code2.as_ref()];
    let mut parts = Vec::new();
    for part in all.into_iter().flatten() {
        let mut bytes = vec![0; part.bytes()];
        part.read(0, &mut bytes)?;
        parts.push((part.tag(), bytes));
    }
    Ok(parts)
}
