//! Guards: attempts that answer what they have seen. `tests` holds a cheat for each.

use challenges::issues::vision::{Cut, Image, Normalization, Side, Size, Vision};
use reference::vision::oracle_calls;

use super::super::part::remembered;
use super::drawn::{self, PLACEHOLDERS};
use super::pixels::{equal, resized};
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
    ("a reference that answers", |steps, random| oracle_called(steps, random)),
];

/// Their names.
pub(super) const NAMES: [&str; 3] = table::names(&GUARDS);

/// Runs one guard.
pub(super) fn run(name: &str, steps: &dyn Vision, seed: u64) -> Verdict {
    table::find(&GUARDS, name)?(steps, &mut Random::named(seed, name))
}

/// The same memory holds another image in the next batch.
fn remembers(steps: &dyn Vision, random: &mut Random) -> Option<String> {
    let (from, to) = (Size::new(20, 16), Size::new(28, 28));
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

/// The plain functions count their calls; no step may add to them.
fn oracle_called(steps: &dyn Vision, random: &mut Random) -> Verdict {
    let asked = |step: &str, run: &mut dyn FnMut()| {
        let before = oracle_calls();
        run();
        let calls = oracle_calls() - before;
        (calls > 0).then(|| format!("the reference was called {calls} times while {step} ran"))
    };
    let image: Image = drawn::image(Size::new(12, 8), random);
    let cut = Cut { patch: 2, merge: 2, frames: 2 };
    let (rule, by) = (drawn::rule(random), PLACEHOLDERS[0]);
    let sample = drawn::sample(&by, 2, random);
    let row = sample.expanded(&by).map_err(|error| error.to_string())?;
    let rows = [row.clone()];
    let all: [(&str, &mut dyn FnMut()); 8] = [
        ("D.23", &mut || drop(steps.limited(rule, Some(500)))),
        ("D.23", &mut || drop(steps.size(rule, image.size))),
        ("D.24", &mut || drop(steps.resized(&image, Size::new(5, 9)))),
        ("D.24", &mut || drop(steps.patches(&image, cut, &Normalization::CLIP))),
        ("D.25", &mut || drop(steps.expanded(&sample, &by))),
        ("D.25", &mut || drop(steps.positions(&row, &by))),
        ("D.26", &mut || drop(steps.labels(&row))),
        ("D.27", &mut || drop(steps.batch(&rows, &by, 0, Side::Right))),
    ];
    Ok(all.into_iter().find_map(|(step, run)| asked(step, run)))
}
