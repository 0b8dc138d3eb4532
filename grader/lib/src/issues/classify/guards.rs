//! Guards: attempts that answer what they have seen. `tests` holds a cheat for each.

use challenges::issues::classify::Classify;
use reference::graph::Dtype;
use reference::issues::classify::last_tokens;

use super::costs::{Case, PROBLEMS, Sizes};
use super::{Check, Rows, costs, rows};
use crate::oracles::{CLASSIFIER, in_checks};
use crate::random::Random;
use crate::table;

/// What a guard does, with random numbers of the run's seed and its own name.
type Guard = fn(&dyn Classify, &mut Random) -> Verdict;

/// `Some` says what was caught.
type Verdict = Result<Option<String>, String>;

/// The guards of this part.
const GUARDS: [(&str, Guard); 3] = [
    ("a batch that remembers", |steps, random| Ok(remembers(steps, random))),
    ("known sizes only", |steps, random| Ok(known_only(steps, random))),
    (CLASSIFIER, |steps, random| {
        let check = |name: &str, seed| super::check(name, steps, seed);
        Ok(in_checks("issues", super::names(), random.next_u64(), check))
    }),
];

/// Their names.
pub(super) const NAMES: [&str; 3] = table::names(&GUARDS);

/// Runs one guard.
pub(super) fn run(name: &str, steps: &dyn Classify, seed: u64) -> Verdict {
    table::find(&GUARDS, name)?(steps, &mut Random::named(seed, name))
}

/// The same memory holds other rows in the next step. A step that is wrong of the rows of its checks, too, is told by
/// them.
fn remembers(steps: &dyn Classify, random: &mut Random) -> Option<String> {
    let rounds = if passes(rows::CHECKS, steps, random) { 4 } else { 0 };
    let (row, rows) = (5 + random.below(5), 3 + random.below(4));
    let mut ids = vec![0; row * rows];
    (0..rounds).find_map(|round| {
        ids.fill_with(|| random.below(3) as i32);
        let (got, want) = (steps.last_tokens(&ids, row, Some(0)), last_tokens(&ids, row, Some(0)));
        let wrong = || format!("round {round} in the same memory, {ids:?}: got {got:?}, want {want:?}");
        (got != want).then(wrong)
    })
}

/// A head of as many classes as nobody has seen is trained as well as a small one. One that is wrong of small ones, too,
/// is told by the checks.
fn known_only(steps: &dyn Classify, random: &mut Random) -> Option<String> {
    let drawn = |random: &mut Random| Sizes {
        rows: 1 + random.below(20),
        classes: 8 + random.below(150),
        reach: 2.0,
        dtype: Dtype::F32,
    };
    let problems = if passes(costs::CHECKS, steps, random) { &PROBLEMS[..] } else { &[] };
    problems.iter().find_map(|problem| {
        let sizes = drawn(random);
        let wrong = Case::drawn(*problem, sizes, random).right(steps).err()?;
        Some(format!("{} rows of {} outputs: {wrong}", sizes.rows, sizes.classes))
    })
}

/// Whether a step is right of what its checks ask in every run.
fn passes(checks: &Rows<Check>, steps: &dyn Classify, random: &mut Random) -> bool {
    table::fixed(checks).all(|check| check(steps, random).is_ok())
}
