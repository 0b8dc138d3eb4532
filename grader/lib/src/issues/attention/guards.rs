//! Guards: attempts that answer what they have seen. `tests` holds a cheat for each.

use challenges::issues::attention::{Attend, Rules};

use super::{Check, Rows, choice, packing, pieces, rules};
use crate::oracles::{DEFINITION, in_checks};
use crate::random::Random;
use crate::table;

/// What a guard does, with random numbers of the run's seed and its own name.
type Guard = fn(&dyn Attend, &mut Random) -> Verdict;

/// `Some` says what was caught.
type Verdict = Result<Option<String>, String>;

/// The guards of this part.
const GUARDS: [(&str, Guard); 3] = [
    ("documents that are remembered", |steps, random| Ok(remembers(steps, random))),
    ("known back ends only", |steps, random| Ok(known_only(steps, random))),
    (DEFINITION, |steps, random| {
        let check = |name: &str, seed| super::check(name, steps, seed);
        Ok(in_checks("issues", super::names(), random.next_u64(), check))
    }),
];

/// Their names.
pub(super) const NAMES: [&str; 3] = table::names(&GUARDS);

/// Runs one guard.
pub(super) fn run(name: &str, steps: &dyn Attend, seed: u64) -> Verdict {
    table::find(&GUARDS, name)?(steps, &mut Random::named(seed, name))
}

/// The same memory holds other documents in the next batch.
fn remembers(steps: &dyn Attend, random: &mut Random) -> Option<String> {
    let rounds = if passes(packing::CHECKS, steps, random) { 4 } else { 0 };
    let (row, rows) = (5 + random.below(5), 3 + random.below(4));
    let mut documents = vec![0; row * rows];
    (0..rounds).find_map(|round| {
        documents.copy_from_slice(&packing::drawn(random, row, rows));
        let wrong = packing::right(steps, &documents, row).err()?;
        Some(format!("round {round} in the same memory: {wrong}"))
    })
}

/// Back ends, windows and lengths that nobody has seen are treated as the known ones.
fn known_only(steps: &dyn Attend, random: &mut Random) -> Option<String> {
    unseen_back_ends(steps, random)
        .or_else(|| unseen_lengths(steps, random))
        .or_else(|| unseen_windows(steps, random))
}

fn unseen_back_ends(steps: &dyn Attend, random: &mut Random) -> Option<String> {
    let rounds = if passes(choice::CHECKS, steps, random) { 32 } else { 0 };
    (0..rounds).find_map(|_| {
        let back_ends: Vec<_> = (0..2 + random.below(4)).map(|_| choice::drawn(random)).collect();
        let wanted = choice::drawn(random).of;
        choice::right(steps, wanted, &back_ends).err()
    })
}

fn unseen_lengths(steps: &dyn Attend, random: &mut Random) -> Option<String> {
    let rounds = if passes(pieces::CHECKS, steps, random) { 32 } else { 0 };
    (0..rounds).find_map(|_| pieces::right(steps, &pieces::drawn(random)).err())
}

fn unseen_windows(steps: &dyn Attend, random: &mut Random) -> Option<String> {
    let window = 2 + random.below(8) as u32;
    let drawn = Rules { causal: random.below(2) > 0, window: Some(window), ..Rules::default() };
    let queries = 1 + random.below(rules::KEYS);
    let right = || rules::right(steps, drawn, queries, rules::KEYS - queries);
    passes(rules::CHECKS, steps, random).then(|| right().err())?
}

/// Whether a step is right of what its checks ask in every run; if not, they tell it, and no guard has to.
fn passes(checks: &Rows<Check>, steps: &dyn Attend, random: &mut Random) -> bool {
    table::fixed(checks).all(|check| check(steps, random).is_ok())
}
