//! The correctness checks of the CUDA steps: every kernel against the oracle, bit for bit.

use challenges::nf4::cuda::{Build, OnCard, STEPS};
use challenges::nf4::{CASES, Case};
use kernels::cuda::Arguments;
use reference::nf4::{Absmax, NF4, OutputDtype, Quantized, Weight, dequantize_bits};

use super::content::{Content, GRAIN};
use super::marks::{self, Kind};
use super::output::Output;
use super::session::{Session, Via};
use super::trouble::{Tried, Trouble};
use crate::gather::Child;
use crate::nf4::checks::{LENGTHS, codes_of};
use crate::nf4::diagnose::{self, Found};
use crate::nf4::inputs::{Levels, ManyScales, SCALES, Scale, weight, weight_with_own_tables};
use crate::nf4::{DTYPES, dtype_name};
use crate::random::Random;
use crate::scorecard::{ELSEWHERE, Outcome};
use crate::stub;
use crate::table;

/// Words of 16 bytes that the hinted copy is tried with.
const COPIES: [(&str, usize); 4] =
    [("one-word", 1), ("less-than-a-warp", 31), ("ragged", 257), ("many-blocks", 100_003)];

/// Byte shifts of the codes and element shifts of the output in a view.
const SHIFTS: [(usize, usize); 7] = [(0, 1), (1, 0), (2, 3), (3, 8), (4, 4), (5, 31), (8, 2)];

/// Elements of weights that signed and unsigned 32-bit indices cannot count: 5.4 and 10.8 GB on the card.
const MANY: [(&str, usize); 2] = [
    ("more-than-2^31-elements", (1 << 31) + GRAIN * 3 + 37),
    ("more-than-2^32-elements", (1 << 32) + GRAIN * 5 + 21),
];

/// What a check does with a text.
type Check = Box<dyn Fn(&Session, &mut Random) -> Tried>;

/// Every check with its name, in the order of the steps.
fn table() -> Vec<(String, Check)> {
    let mut table: Vec<(String, Check)> = Vec::new();
    for (case, len) in LENGTHS {
        table.push((format!("A.7/{case}"), Box::new(move |session, random| codes(session, len, random))));
    }
    for (case, levels) in SCALES {
        table.push((format!("A.8/{case}"), Box::new(move |session, random| scales(session, levels, random))));
    }
    table.extend(whole("A.9"));
    table.extend(whole("A.10"));
    for (case, words) in COPIES {
        let run = move |session: &Session, random: &mut Random| copied(session, bf16(), words, random);
        table.push((format!("A.11/{case}"), Box::new(run)));
    }
    table.push(("A.11/without-inline-ptx".into(), Box::new(plain_copy)));
    table.push(("A.11/hints-in-the-code".into(), Box::new(|session, _| hinted(session, bf16()))));
    table.extend(whole("A.12"));
    for dtype in DTYPES {
        let named = |case: &str| format!("A.12/{case}-{}", dtype_name(dtype));
        table.push((
            named("as-compute_75-ptx"),
            tried("A.12", dtype, |trial| Trial { via: Via::Ptx75, ..trial }.every_case()),
        ));
        table.push((
            named("without-inline-ptx"),
            tried("A.12", dtype, |trial| Trial { build: trial.build.plain(), ..trial }.every_case()),
        ));
    }
    for (case, len) in MANY {
        let many = tried("A.12", OutputDtype::Bf16, move |trial| trial.many(len));
        table.push((format!("A.12/{case}-bf16"), many));
    }
    table
}

/// The checks of a step whose kernel dequantises whole weights.
fn whole(step: &'static str) -> impl Iterator<Item = (String, Check)> {
    DTYPES.into_iter().flat_map(move |dtype| {
        let named = |case: &str| format!("{step}/{case}-{}", dtype_name(dtype));
        let mut table: Vec<(String, Check)> = CASES
            .iter()
            .map(|case| (named(case.name), tried(step, dtype, |trial| trial.case(case))))
            .collect();
        table.push((named("unaligned-views"), tried(step, dtype, |trial| trial.views())));
        table.push((
            named("own-table"),
            tried(step, dtype, |trial| trial.judge(&weight_with_own_tables(trial.seed), 0, 0)),
        ));
        table.push((
            named("extreme-scales"),
            tried(step, dtype, |trial| {
                trial.judge(&weight(64 * 90 + 21, 64, false, Scale::Extreme, trial.seed), 0, 0)
            }),
        ));
        table
    })
}

/// A check of a step's kernel that writes elements of a type.
fn tried(step: &'static str, dtype: OutputDtype, run: impl Fn(Trial<'_>) -> Tried + 'static) -> Check {
    Box::new(move |session, random| {
        let kernel = STEPS.iter().find(|(name, _)| *name == step);
        let (_, kernel) = kernel.ok_or_else(|| Trouble::Wrong(format!("no step is called {step}")))?;
        let seed = random.next_u64();
        run(Trial { session, kernel, build: Build::of(dtype), via: Via::Machine, dtype, seed })
    })
}

fn bf16() -> Build {
    Build::of(OutputDtype::Bf16)
}

/// Every check's name, in the order of the steps.
pub(super) fn names() -> Vec<String> {
    table().into_iter().map(|(name, _)| name).collect()
}

/// Runs one check and reports it.
pub(super) fn report(child: &mut Child, session: &Session, name: &str, seed: u64) {
    let step = name.split('/').next().unwrap_or_default().to_owned();
    let (outcome, detail) = match run(session, name, seed) {
        Ok(()) => (Outcome::Passed, String::new()),
        Err(Trouble::Uncompiled { words, line }) => {
            (Outcome::DoesNotCompile, blamed(session, &step, words, line))
        }
        Err(trouble) => {
            child.ends_if(trouble.is_broken());
            trouble.outcome()
        }
    };
    child.outcome(name, outcome, &detail);
}

/// The compiler's words for the step whose line it refused; for the others, which step that is.
fn blamed(session: &Session, step: &str, words: String, line: Option<usize>) -> String {
    let at_fault = line.and_then(|line| stub::step_at(&session.attempt.text, line));
    match at_fault {
        Some(fault) if fault.name != step => {
            format!("{ELSEWHERE}{}", fault.name)
        }
        _ => words,
    }
}

fn run(session: &Session, name: &str, seed: u64) -> Tried {
    let table = table();
    table::find(&table, name).map_err(Trouble::Wrong)?(session, &mut Random::named(seed, name))
}

/// A.7: the codes, one a thread.
fn codes(session: &Session, len: usize, random: &mut Random) -> Tried {
    let (packed, want) = codes_of(len, random);
    let scales = vec![1.0; len.div_ceil(64)];
    let weight =
        Weight { len, block_size: 64, packed: &packed, table: &NF4, absmax: Absmax::Single(&scales) };
    let weight = OnCard::upload(&session.gpu, &weight, 0)?;
    let out = session.gpu.uploaded("codes", &vec![0xee; len])?;
    session.run(Build::of(OutputDtype::Bf16), Via::Machine, "codes", &weight, out.address())?;
    let mut got = vec![0; len];
    out.read(0, &mut got)?;
    diagnose::codes(&packed, &got, &want).map_err(Trouble::Wrong)
}

/// A.8: the scales, one a thread.
fn scales(session: &Session, levels: Levels, random: &mut Random) -> Tried {
    let scales = ManyScales::of(levels, random);
    let blocks = scales.blocks();
    let packed = random.bytes(blocks * 32);
    let weight =
        Weight { len: blocks * 64, block_size: 64, packed: &packed, table: &NF4, absmax: scales.absmax() };
    let weight = OnCard::upload(&session.gpu, &weight, 0)?;
    let out = session.gpu.uploaded("scales", &[0xff].repeat(blocks * 4))?;
    session.run(Build::of(OutputDtype::Bf16), Via::Machine, "scales", &weight, out.address())?;
    let mut got = vec![0; blocks * 4];
    out.read(0, &mut got)?;
    let got: Vec<f32> = got.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect();
    diagnose::scales(&scales.absmax(), &got).map_err(Trouble::Wrong)
}

/// A.11: the twin in plain C copies the same.
fn plain_copy(session: &Session, random: &mut Random) -> Tried {
    let plain = bf16().plain();
    let left = marks::marks(&marks::entry_of(&session.text(plain)?, "copy_once"));
    if left.iter().any(|mark| mark.kind == Kind::Inline) {
        let text = "inline PTX is left where INLINE_PTX is 0: the plain access belongs there";
        return Err(Trouble::Wrong(text.into()));
    }
    copied(session, plain, 4099, random)
}

/// A.11: whether both accesses are inline PTX with a hint.
fn hinted(session: &Session, build: Build) -> Tried {
    copied(session, build, 33, &mut Random::new(1))?;
    let found = marks::marks(&marks::entry_of(&session.text(build)?, "copy_once"));
    let any = |kind: fn(&Kind) -> bool| found.iter().any(|mark| kind(&mark.kind));
    let lacking = [
        (any(|kind| *kind == Kind::Inline), "inline PTX (`asm volatile(...)`)"),
        (any(|kind| matches!(kind, Kind::HintedLoad(_))), "a load from global memory with a hint"),
        (any(|kind| matches!(kind, Kind::HintedStore(_))), "a store to global memory with a hint"),
    ];
    match lacking.iter().find(|(found, _)| !found) {
        None => Ok(()),
        Some((_, what)) => Err(Trouble::Wrong(format!(
            "the PTX of copy_once has no {what}\n  rule what is touched once says so: .L1::no_allocate, .L1::evict_first \
             or .lu on the load, .cs on the store"
        ))),
    }
}

/// A.11: a copy through the two hinted accesses.
fn copied(session: &Session, build: Build, words: usize, random: &mut Random) -> Tried {
    let bytes = random.bytes(words * 16);
    let from = session.gpu.uploaded("copied from", &bytes)?;
    let to = session.gpu.uploaded("copied to", &vec![0xa5; words * 16 + 64])?;
    let arguments = Arguments::new().u64(from.address()).u64(to.address()).u64(words as u64);
    session.run_with(build, "copy_once", words * 4, arguments)?;
    let mut got = vec![0; to.bytes()];
    to.read(0, &mut got)?;
    if got[words * 16..].iter().any(|byte| *byte != 0xa5) {
        return Err(Trouble::Wrong("bytes behind the copy were written".into()));
    }
    let word =
        |of: &[u8], i: usize| u32::from_le_bytes([of[4 * i], of[4 * i + 1], of[4 * i + 2], of[4 * i + 3]]);
    let Some(wrong) = (0..words * 4).find(|i| word(&got, *i) != word(&bytes, *i)) else { return Ok(()) };
    let found = word(&got, wrong);
    let cause = match (0..words * 4).find(|i| word(&bytes, *i) == found) {
        Some(other) => format!("that is word {other} of what was to be copied"),
        None if found == 0xa5a5_a5a5 => "it was never written".into(),
        None => "no word of what was to be copied has these bits".into(),
    };
    Err(Trouble::Wrong(format!(
        "word {wrong} of {} is not what it was copied from\n  got  {found:#010x}\n  want {:#010x}\n  likely cause: {cause}",
        words * 4,
        word(&bytes, wrong)
    )))
}

/// How a whole weight is tried.
struct Trial<'a> {
    session: &'a Session,
    kernel: &'static str,
    build: Build,
    via: Via,
    dtype: OutputDtype,
    seed: u64,
}

impl Trial<'_> {
    /// With plain scales, with scales whose f16 are subnormal, and with such that overflow.
    fn case(&self, case: &Case) -> Tried {
        [Scale::Plain, Scale::Small, Scale::Large].into_iter().try_for_each(|scale| {
            let (weight, want) = self.session.known(case, scale, self.dtype);
            self.compare(&weight, &want, 0, 0)
        })
    }

    fn every_case(&self) -> Tried {
        CASES.iter().try_for_each(|case| self.case(case))?;
        self.views()
    }

    /// Codes and outputs that begin in the middle of a larger buffer.
    fn views(&self) -> Tried {
        let weight = weight(64 * 65 + 9, 64, true, Scale::Plain, self.seed);
        SHIFTS.into_iter().try_for_each(|(bytes, elements)| self.judge(&weight, bytes, elements))
    }

    /// One weight and what the format says of it, views included.
    fn judge(&self, weight: &Quantized, bytes: usize, elements: usize) -> Tried {
        self.compare(weight, &dequantize_bits(&weight.view(), self.dtype), bytes, elements)
    }

    /// One weight; its codes begin `bytes` off an aligned address, its output `elements`.
    fn compare(&self, weight: &Quantized, want: &[u32], bytes: usize, elements: usize) -> Tried {
        let view = weight.view();
        let on_card = OnCard::upload(&self.session.gpu, &view, bytes)?;
        let output = Output::new(&self.session.gpu, self.dtype, view.len, self.seed, elements)?;
        let place = match (bytes, elements) {
            (0, 0) => String::new(),
            _ => format!("codes {bytes} bytes and outputs {elements} elements off alignment:\n"),
        };
        let ran = self.session.run(self.build, self.via, self.kernel, &on_card, output.address());
        ran.map_err(|trouble| trouble.at(&place))?;
        let seen = output.seen()?;
        let found = Found { got: &seen.bits, want, poison: output.unwritten(), touched: seen.touched };
        diagnose::weight(&view, self.dtype, &found).map_err(|text| {
            let few = self.too_few(view.len, &seen.bits, output.unwritten()).unwrap_or_default();
            Trouble::Wrong(format!("{text}{few}")).at(&place)
        })
    }

    /// Whether what was not written begins where the threads of the launch end, each with one element.
    fn too_few(&self, len: usize, bits: &[u32], unwritten: u32) -> Option<String> {
        let kernel = self.session.kernel(self.build, self.via, self.kernel).ok()?;
        let grid = kernel.grid(&self.session.gpu, len).ok()?;
        let (threads, launch) = (grid.blocks as usize * grid.threads as usize, kernel.launch);
        let first = bits.iter().position(|bits| *bits == unwritten)?;
        (first == threads && bits[first..].iter().all(|bits| *bits == unwritten)).then(|| {
            format!(
                "\n  the launch has {} blocks of {} threads, and each wrote one element; LAUNCH({}, {}, {}, {}, ...) says \
                 {} elements a thread{}",
                grid.blocks,
                grid.threads,
                self.kernel,
                launch.threads,
                launch.per_thread,
                launch.blocks_per_sm,
                launch.per_thread,
                if launch.blocks_per_sm > 0 { ", and a grid of its own size, which wants a loop" } else { "" }
            )
        })
    }

    /// More elements than 32 bits count, compared where an index would wrap, and at random.
    fn many(&self, len: usize) -> Tried {
        let content = Content::new(self.session, len, self.seed)?;
        let output = Output::new(&self.session.gpu, self.dtype, len, self.seed, 0)?;
        self.session.run(self.build, self.via, self.kernel, &content.weight, output.address())?;
        let mut random = Random::named(self.seed, "windows");
        let last = len / GRAIN * GRAIN;
        let mut firsts = vec![0, (1 << 31) - GRAIN, 1 << 31, last - GRAIN, last];
        firsts.extend((0..60).map(|_| random.below(last / GRAIN) * GRAIN));
        for first in firsts {
            let count = GRAIN.min(len - first);
            let (want, got) = (content.want(self.dtype, first, count), output.window(first, count)?);
            if let Some(i) = (0..count).find(|i| got[*i] != want[*i]) {
                let unwritten = if got[i] == output.unwritten() { " (never written)" } else { "" };
                return Err(Trouble::Wrong(format!(
                    "element {} of {len} is {:#06x}{unwritten}, {:#06x} is right\n\
                     likely cause: an index in 32 bits: so many elements need a u64",
                    first + i,
                    got[i],
                    want[i]
                )));
            }
        }
        Ok(())
    }
}
