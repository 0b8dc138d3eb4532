//! Guards: attempts that look as if they were chunked. `tests` holds a cheat for each guard.

use challenges::loss::plan::ChunkPlan;
use challenges::loss::run;
use kernels::Cpu;

use super::bytes;
use super::case::{Case, SMALL, Sizes, Trial};
use super::checks::{self, exact_in_half, made_up, plain, unequal};
use crate::compare::describe;
use crate::oracles::{INSIDE_A_STEP, in_checks};
use crate::random::Random;
use crate::table;
use reference::loss::Reduction;

/// What a guard does, with random numbers of the run's seed and its own name.
type Guard = fn(Trial<'_>, &mut Random) -> Verdict;

/// `Some` says what was caught.
type Verdict = Result<Option<String>, String>;

/// The guards of E.
const GUARDS: [(&str, Guard); 6] = [
    ("a hard-coded derivative", hard_coded),
    ("no upcast", no_upcast),
    ("logits kept", kept),
    ("chunk size ignored", ignored),
    ("mean of chunk means", means),
    (INSIDE_A_STEP, |on, random| {
        let cpu = Cpu::new(); // any device will do: only the calls matter
        let check = |name: &str, seed| checks::run(name, Trial { device: &cpu, ..on }, seed);
        Ok(in_checks("loss", checks::names(), random.next_u64(), check))
    }),
];

/// Their names.
pub(super) const NAMES: [&str; 6] = table::names(&GUARDS);

/// Runs one guard.
pub(super) fn run(name: &str, on: Trial<'_>, seed: u64) -> Verdict {
    table::find(&GUARDS, name)?(on, &mut Random::named(seed, name))
}

/// A loss that nobody has seen comes back with its own derivative.
fn hard_coded(on: Trial<'_>, random: &mut Random) -> Verdict {
    for _ in 0..6 {
        let case = Case::drawn(made_up(SMALL.vocab, random)?, SMALL, random);
        let got = case.run(on, 5)?;
        if let Err(message) = case.near(&got) {
            return Ok(Some(format!("a loss that was made up, by the name of cross entropy: {message}")));
        }
    }
    Ok(None)
}

/// What is not in f32 shows, although every product is exact in bf16.
fn no_upcast(on: Trial<'_>, random: &mut Random) -> Verdict {
    let case = exact_in_half(random)?;
    let got = case.run(on, 4)?;
    let alone = [("loss".to_owned(), got["loss"].clone())].into();
    let mut only_loss = case;
    only_loss.problem.trains = challenges::loss::Trains { hidden: false, weight: false, bias: false };
    Ok(only_loss.near(&alone).err().map(|message| format!("products are exact in bf16, and yet {message}")))
}

/// A sixteenth of the rows at a time takes much less than all logits.
fn kept(on: Trial<'_>, random: &mut Random) -> Verdict {
    let sizes = Sizes { rows: 512, width: 16, vocab: 16_384 };
    let case = Case::drawn(plain(sizes.vocab, Reduction::Mean)?, sizes, random);
    let seen = match bytes::counted(&case, on, sizes.rows / 16) {
        Err(message) if message.contains(run::NOT_ASKED) => return Ok(Some(message)),
        seen => seen?,
    };
    let logits = sizes.rows * sizes.vocab * 4;
    let describe =
        || format!("32 rows at a time take {} bytes at once; all logits are {logits}", seen.taken.peak);
    Ok((seen.taken.peak > logits / 2).then(describe))
}

/// Chunks are no larger than asked for.
fn ignored(on: Trial<'_>, random: &mut Random) -> Verdict {
    let sizes = Sizes { rows: 64, ..SMALL };
    let case = Case::drawn(plain(sizes.vocab, Reduction::Mean)?, sizes, random);
    for size in [1, 2, 7, 16, 63] {
        let plan = ChunkPlan::new(on.attempt, &case.problem, &case.counts, size).map_err(describe)?;
        if plan.largest() > size {
            return Ok(Some(format!("{size} rows were asked for, and a chunk has {}", plan.largest())));
        }
    }
    Ok(None)
}

/// The mean over all rows that count, whatever chunk they are in.
fn means(on: Trial<'_>, random: &mut Random) -> Verdict {
    for _ in 0..3 {
        let case = unequal(random)?;
        if let Err(message) = case.near(&case.run(on, 4)?) {
            return Ok(Some(format!("with chunks of 4, 4 and 2 rows that count: {message}")));
        }
    }
    Ok(None)
}
