//! Guards: attempts that look as if they were chunked. `tests` holds a cheat for each guard.

use challenges::loss::plan::ChunkPlan;
use challenges::loss::run;
use kernels::Cpu;

use super::bytes;
use super::case::{Case, Sizes, Trial};
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

/// Sizes that no list names, small enough for the interpreter.
fn small(random: &mut Random) -> Sizes {
    Sizes { rows: 11 + random.below(8), width: 6 + random.below(12), vocab: 24 + random.below(50) }
}

/// A loss that nobody has seen comes back with its own derivative.
fn hard_coded(on: Trial<'_>, random: &mut Random) -> Verdict {
    for _ in 0..6 {
        let sizes = small(random);
        let case = Case::drawn(made_up(sizes.vocab, random)?, sizes, random);
        let got = case.run(on, 2 + random.below(6))?;
        if let Err(message) = case.near(&got) {
            return Ok(Some(format!("a loss that was made up, by the name of cross entropy: {message}")));
        }
    }
    Ok(None)
}

/// What is not in f32 shows, although every product is exact in bf16.
fn no_upcast(on: Trial<'_>, random: &mut Random) -> Verdict {
    let case = exact_in_half(small(random), random)?;
    let got = case.run(on, 2 + random.below(6))?;
    let alone = [("loss".to_owned(), got["loss"].clone())].into();
    let mut only_loss = case;
    only_loss.problem.trains = challenges::loss::Trains { hidden: false, weight: false, bias: false };
    Ok(only_loss.near(&alone).err().map(|message| format!("products are exact in bf16, and yet {message}")))
}

/// A sixteenth of the rows at a time takes much less than all logits.
fn kept(on: Trial<'_>, random: &mut Random) -> Verdict {
    let sizes = Sizes {
        rows: 16 * (24 + random.below(17)),
        width: 8 + random.below(17),
        vocab: 12_288 + random.below(8192),
    };
    let case = Case::drawn(plain(sizes.vocab, Reduction::Mean)?, sizes, random);
    let chunk = sizes.rows / 16;
    let seen = match bytes::counted(&case, on, chunk) {
        Err(message) if message.contains(run::NOT_ASKED) => return Ok(Some(message)),
        seen => seen?,
    };
    let logits = sizes.rows * sizes.vocab * 4;
    let describe =
        || format!("{chunk} rows at a time take {} bytes at once; all logits are {logits}", seen.taken.peak);
    Ok((seen.taken.peak > logits / 2).then(describe))
}

/// Chunks are no larger than asked for.
fn ignored(on: Trial<'_>, random: &mut Random) -> Verdict {
    let sizes = Sizes { rows: 40 + random.below(60), ..small(random) };
    let case = Case::drawn(plain(sizes.vocab, Reduction::Mean)?, sizes, random);
    for size in [1, 2, 3 + random.below(6), 10 + random.below(12), sizes.rows - 1] {
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
        let case = unequal(small(random), random)?;
        let rows = case.counts.iter().filter(|counts| **counts).count();
        let sizes: Vec<usize> = (2..rows).filter(|size| rows % size != 0).collect();
        let size = sizes[random.below(sizes.len())];
        if let Err(message) = case.near(&case.run(on, size)?) {
            let rest = rows % size;
            return Ok(Some(format!(
                "with chunks of {size} rows that count, the last one of {rest}: {message}"
            )));
        }
    }
    Ok(None)
}
