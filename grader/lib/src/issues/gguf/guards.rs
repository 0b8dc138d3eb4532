//! Guards: attempts that answer what they have seen. `tests` holds a cheat for each.

use challenges::issues::gguf::Gguf;
use reference::issues::gguf::rotary_rows;

use super::super::part::remembered;
use super::blocks;
use super::drawn::{STORED, number};
use crate::oracles::{GGUF, in_checks};
use crate::random::Random;
use crate::table;

/// What a guard does, with random numbers of the run's seed and its own name.
type Guard = fn(&dyn Gguf, &mut Random) -> Verdict;

/// `Some` says what was caught.
type Verdict = Result<Option<String>, String>;

/// The guards of this part.
const GUARDS: [(&str, Guard); 3] = [
    ("blocks that are remembered", |steps, random| Ok(remembers(steps, random))),
    ("known heads only", |steps, random| Ok(known_only(steps, random))),
    (GGUF, |steps, random| {
        let check = |name: &str, seed| super::check(name, steps, seed);
        Ok(in_checks("issues", super::names(), random.next_u64(), check))
    }),
];

/// Their names.
pub(super) const NAMES: [&str; 3] = table::names(&GUARDS);

/// Runs one guard.
pub(super) fn run(name: &str, steps: &dyn Gguf, seed: u64) -> Verdict {
    table::find(&GUARDS, name)?(steps, &mut Random::named(seed, name))
}

/// The same memory holds the numbers of another weight in the next call.
fn remembers(steps: &dyn Gguf, random: &mut Random) -> Option<String> {
    let count = 32 * (1 + random.below(6));
    let mut numbers = vec![0.0_f32; count];
    STORED.into_iter().find_map(|ty| {
        let others: Vec<f32> = (0..count).map(|_| number(random)).collect();
        remembered(
            blocks::one(steps, ty, &others).is_ok(),
            (0..4).map(|round| {
                numbers.fill_with(|| number(random));
                let wrong = blocks::one(steps, ty, &numbers).err();
                let wrong = wrong.map(|wrong| format!("round {round} in the same memory: {wrong}"));
                (steps.quantize(ty, &numbers), wrong)
            }),
        )
    })
}

/// Heads of more rows, and more of them, than a check has.
fn known_only(steps: &dyn Gguf, random: &mut Random) -> Option<String> {
    let is_right = |(rows, heads)| steps.rotary_rows(rows, heads) == rotary_rows(rows, heads);
    if ![(8, 1), (12, 3)].into_iter().all(is_right) {
        return None; // the checks tell it
    }
    (0..4).find_map(|_| {
        let heads = 40 + random.below(90);
        let rows = heads * 2 * (60 + random.below(70));
        (!is_right((rows, heads)))
            .then(|| format!("{rows} rows of {heads} heads: the rows are others than the reference's"))
    })
}
