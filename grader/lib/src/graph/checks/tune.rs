//! C.7: the fastest candidate, by times that the check makes up.

use std::time::Duration;

use challenges::graph::Compile;
use kernels::plan::Choice;

use super::{Check, Rows};

pub(super) const CHECKS: &Rows<Check> = &[
    ("the-fastest", |trial| tune(trial.passes, &Choice::ALL, &Times::of([9, 4, 7, 3, 8, 6])).map(drop)),
    ("one-candidate", |trial| tune(trial.passes, &Choice::ALL[2..3], &DRAWN).map(drop)),
    ("a-slow-moment", |trial| tune(trial.passes, &Choice::ALL, &BUSY).map(drop)),
    ("every-candidate-is-tried", |trial| tried_twice(tune(trial.passes, &Choice::ALL, &DRAWN)?)),
];

/// What candidates are said to take.
struct Times {
    /// Hundred microseconds, in the order of [`Choice::ALL`].
    base: [u64; 6],
    /// Runs at the beginning that a busy machine holds up.
    slow: u32,
    /// What is said of those.
    message: &'static str,
}

impl Times {
    const fn of(base: [u64; 6]) -> Self {
        Self { base, slow: 0, message: "" }
    }
}

const DRAWN: Times = Times::of([6, 5, 4, 7, 8, 9]);

const BUSY: Times = Times {
    base: [4, 5, 6, 7, 9, 8],
    slow: 5, // one less than there are candidates
    message: ", but for the first five runs, when the machine was busy: whoever takes turns is hit but once",
};

/// That every candidate is run and the fastest chosen. Gives the runs of each.
fn tune(attempt: &dyn Compile, candidates: &[Choice], times: &Times) -> Result<[u32; 6], String> {
    let Times { base, slow, message } = times;
    let place = |choice: Choice| Choice::ALL.iter().position(|one| *one == choice).unwrap_or(0);
    let mut calls = [0_u32; 6];
    let chosen = attempt.tune(candidates, &mut |cut| {
        let at = place(cut);
        calls[at] += 1;
        let is_slow = calls.iter().sum::<u32>() <= *slow;
        Duration::from_micros(base[at] * 100 + if is_slow { 5000 } else { 0 })
    });
    let tried = |cut: &&Choice| calls[place(**cut)] > 0;
    if let Some(untried) = candidates.iter().find(|cut| !tried(cut)) {
        return Err(format!("{untried:?} was never run"));
    }
    let best = candidates.iter().min_by_key(|cut| base[place(**cut)]);
    if Some(&chosen) != best {
        let best = best.unwrap_or(&chosen);
        return Err(format!(
            "chose {chosen:?}, the fastest is {best:?}; they take {base:?} hundred microseconds{message}"
        ));
    }
    Ok(calls)
}

fn tried_twice(calls: [u32; 6]) -> Result<(), String> {
    if calls.iter().any(|calls| *calls < 2) {
        return Err(format!("runs of each candidate: {calls:?}; one run is no measurement"));
    }
    Ok(())
}
