//! C.5: buffers in an arena.

use challenges::graph::{Compile, Solution};
use compiler::compile::Level;
use compiler::ir::arena::{self, Life, aligned_bytes};

use super::{Check, Rows};
use crate::compare::describe;
use crate::graph::model::{Model, TINY};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("nothing", |trial| place(trial.passes, &[None, None], 1.0)),
    ("one-after-the-other", |trial| place(trial.passes, &lives(50, |i| Some(life(4096, i, i + 1))), 1.0)),
    ("all-at-once", |trial| place(trial.passes, &lives(50, |i| Some(life(64 + 192 * i, 0, 9))), 1.0)),
    ("empty-buffers", |trial| place(trial.passes, &lives(9, |i| Some(life(128 * (i % 2), 0, i))), 1.0)),
    ("random-lives", |trial| {
        let random = &mut trial.random;
        place(trial.passes, &lives(600, |i| (i % 17 != 0).then(|| drawn(random))), 1.35)
    }),
    ("a-training-step", |trial| place(trial.passes, &lives_of_a_step(trial.seed)?, 1.1)),
];

fn lives(count: usize, life: impl FnMut(usize) -> Option<Life>) -> Vec<Option<Life>> {
    (0..count).map(life).collect()
}

fn life(bytes: usize, first: usize, last: usize) -> Life {
    Life { bytes, parts: first..=last }
}

fn drawn(random: &mut Random) -> Life {
    let start = random.below(400);
    life(1 + random.below(1 << 16), start, start + random.below(60))
}

/// That no two buffers meet, and that they take at most `slack` times what is alive at once.
fn place(attempt: &dyn Compile, lives: &[Option<Life>], slack: f64) -> Result<(), String> {
    let arena = attempt.place(lives);
    if let Some(fault) = arena::fault(lives, &arena) {
        return Err(fault);
    }
    let floor = arena::floor(lives);
    if arena.bytes as f64 > floor as f64 * slack {
        let separate: usize = lives.iter().flatten().map(aligned_bytes).sum();
        let alive = "bytes are alive at once, and it has";
        return Err(format!("{floor} {alive} {}; each for itself they take {separate}", arena.bytes));
    }
    Ok(())
}

fn lives_of_a_step(seed: u64) -> Result<Vec<Option<Life>>, String> {
    let model = Model::drawn(TINY, seed)?;
    let step = Model::step(model.spec.training_loss().map_err(describe)?)?;
    let sizes = [("B".into(), 1), ("T".into(), 96)].into();
    let compiled = compiler::compile::compile(&Solution, &step, &sizes, Level::O2.options());
    Ok(compiled.map_err(describe)?.lives)
}
