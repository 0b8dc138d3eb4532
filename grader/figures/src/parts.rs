//! Where the time of runs goes: a bar each, stacked by what its launches do.

use super::bars::{Bar, Bars};
use super::number::digits;
use super::{Axis, Ink, Scale, StepKind, TICK_GAP, labelled};

/// A run, launch by launch, added up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// What is run.
    pub name: String,
    /// Milliseconds by kind of launch.
    pub parts: Vec<(StepKind, f64)>,
}

/// The most milliseconds of a part that are drawn: a day.
const MOST: f64 = 8.64e7;

impl Run {
    fn of(&self, kind: StepKind) -> f64 {
        self.parts.iter().filter(|(own, _)| *own == kind).map(|(_, ms)| ms).sum()
    }

    fn total(&self) -> f64 {
        self.parts.iter().map(|(_, ms)| ms).sum()
    }
}

/// The figure; nothing where there are no times, or some that make no sense.
pub fn parts(title: &str, runs: &[Run]) -> Option<String> {
    let kinds = StepKind::ALL.map(|kind| (Ink::Step(kind), kind.plural()));
    let one = |run: &Run| Bar {
        name: run.name.clone(),
        parts: StepKind::ALL.iter().map(|kind| run.of(*kind)).collect(),
        total: format!("{} ms", say(run.total())),
    };
    let bars = Bars { kinds: &kinds, indent: 52.0, say, axis };
    bars.draw(title, &describe(runs), &runs.iter().map(one).collect::<Vec<_>>(), MOST)
}

fn say(ms: f64) -> String {
    digits(ms)
}

fn axis(scale: Scale) -> Axis {
    labelled(scale, TICK_GAP, "milliseconds".into())
}

fn describe(runs: &[Run]) -> String {
    let one = |run: &Run| {
        let there = run.parts.iter().filter(|(_, ms)| *ms > 0.0);
        let parts: Vec<String> = there.map(|(kind, ms)| format!("{} {}", kind.plural(), say(*ms))).collect();
        format!("{}: {} ms, of which {}.", run.name, say(run.total()), parts.join(", "))
    };
    format!("Milliseconds of runs. {}", runs.iter().map(one).collect::<Vec<_>>().join(" "))
}
