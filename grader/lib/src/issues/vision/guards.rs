//! Guards: attempts that answer what they have seen. `tests` holds a cheat for each.

use challenges::issues::vision::{Size, Vision};

use super::super::part::remembered;
use super::drawn;
use super::pixels::{equal, resized};
use crate::oracles::{VISION, in_checks};
use crate::random::Random;
use crate::table;

/// What a guard does, with random numbers of the run's seed and its own name.
type Guard = fn(&dyn Vision, &mut Random) -> Verdict;

/// `Some` says what was caught.
type Verdict = Result<Option<String>, String>;

/// The guards of this part.
const GUARDS: [(&str, Guard); 3] = [
    ("an image that remembers", |steps, random| Ok(remembers(steps, random))),
    ("small images only", |steps, random| Ok(small_only(steps, random))),
    (VISION, |steps, random| {
        let check = |name: &str, seed| super::check(name, steps, seed);
        Ok(in_checks("issues", super::names(), random.next_u64(), check))
    }),
];

/// Their names.
pub(super) const NAMES: [&str; 3] = table::names(&GUARDS);

/// Runs one guard.
pub(super) fn run(name: &str, steps: &dyn Vision, seed: u64) -> Verdict {
    table::find(&GUARDS, name)?(steps, &mut Random::named(seed, name))
}

/// The same memory holds another image in the next batch.
fn remembers(steps: &dyn Vision, random: &mut Random) -> Option<String> {
    let mut edge = || 14 + random.below(20);
    let (from, to) = (Size::new(edge(), edge()), Size::new(edge(), edge()));
    let mut image = drawn::image(from, random);
    remembered(
        is_right(steps, random),
        (0..4).map(|round| {
            random.fill(&mut image.pixels);
            let got = steps.resized(&image, to);
            let wrong = equal(&image, to, &got, &image.resized(to)).err();
            (got, wrong.map(|wrong| format!("round {round} in the same memory: {wrong}")))
        }),
    )
}

/// Whether images of the checks are resized as they should be.
fn is_right(steps: &dyn Vision, random: &mut Random) -> bool {
    resized(steps, [40, 30], [10, 10], random).and(resized(steps, [7, 9], [28, 56], random)).is_ok()
}

/// An image as large as a photograph's thumbnail is resized as well as a small one.
fn small_only(steps: &dyn Vision, random: &mut Random) -> Option<String> {
    if !is_right(steps, random) {
        return None; // the checks tell it
    }
    (0..2).find_map(|_| {
        let mut edge = || 300 + random.below(500);
        let (from, to) = (Size::new(edge(), edge()), Size::new(edge(), edge()));
        let image = drawn::image(from, random);
        equal(&image, to, &steps.resized(&image, to), &image.resized(to)).err()
    })
}
