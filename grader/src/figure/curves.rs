//! Two training runs that should be one: their losses, and beneath them what is between them.

use super::number::{digits, tick};
use super::plot::{Anchor, Ink, Panel, Plot, WIDTH};
use super::{Law, Scale, TICK_GAP, labelled, usable};
use crate::scorecard::Challenge;

const FIRST: f64 = 58.0;
const LAST: f64 = WIDTH - 8.0;

/// The losses of each step, compiled and not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Runs {
    /// Of the compiled run.
    pub compiled: Vec<f64>,
    /// Of the other one.
    pub other: Vec<f64>,
    /// What the other one is.
    pub name: String,
    /// The same run in f64, and a third one in f32; without them the two are compared with each other.
    pub truth: Option<Truth>,
}

/// What two runs are held to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Truth {
    /// The losses in f64.
    pub losses: Vec<f64>,
    /// Those of a third run in f32.
    pub third: Vec<f64>,
    /// What the third run is.
    pub name: String,
}

impl Runs {
    /// The runs that a challenge's measurements `losses.compiled` and `losses.op_by_op` hold, a sample a step.
    pub fn of(challenge: &Challenge) -> Option<Self> {
        let get = |name: &str| {
            let samples = &challenge.measurements.get(&format!("{}.losses.{name}", challenge.name))?.samples;
            samples.iter().map(|loss| usable(*loss)).collect::<Option<Vec<f64>>>()
        };
        let (compiled, other) = (get("compiled")?, get("op_by_op")?);
        let sound = (2..10_000).contains(&compiled.len()) && compiled.len() == other.len();
        sound.then_some(Self { compiled, other, name: "op by op".into(), truth: None })
    }

    /// What is drawn below: each run minus the truth, or the compiled one minus the other.
    fn differences(&self) -> Vec<(Ink, Vec<f64>)> {
        match &self.truth {
            None => vec![(Ink::Attempt, minus(&self.compiled, &self.other))],
            Some(truth) => vec![
                (Ink::Threshold, minus(&truth.third, &truth.losses)),
                (Ink::Baseline, minus(&self.other, &truth.losses)),
                (Ink::Attempt, minus(&self.compiled, &truth.losses)),
            ],
        }
    }
}

fn minus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// The figure.
pub fn losses(runs: &Runs, title: &str) -> String {
    let differences = runs.differences();
    let mut plot = Plot::new(title, &told(runs, &differences));
    let upper = Panel { left: FIRST, right: LAST, top: 64.0, bottom: 232.0 };
    let lower = Panel { top: 264.0, bottom: 364.0, ..upper };
    let steps = runs.compiled.len();
    let across = Scale::new(Law::Linear, [0.0, (steps - 1) as f64], [FIRST + 4.0, LAST - 4.0]);
    let point = |up: &Scale, values: &[f64]| -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(i, value)| (across.at(i as f64), up.at(*value))).collect()
    };
    let all = || runs.compiled.iter().chain(&runs.other).copied();
    let range = [all().fold(f64::MAX, f64::min), all().fold(f64::MIN, f64::max)];
    let room = 0.04 * (range[1] - range[0]).max(1e-9);
    let up = Scale::new(Law::Linear, [range[0] - room, range[1] + room], [upper.bottom, upper.top]);
    heights(&mut plot, upper, &up, "loss, nats a token", tick);
    plot.track(&point(&up, &runs.other), 5.0, Ink::Baseline);
    plot.track(&point(&up, &runs.compiled), 1.6, Ink::Attempt);
    plot.legend(38.0, &[(Ink::Attempt, "compiled"), (Ink::Baseline, &runs.name)]);
    let most = differences.iter().flat_map(|(_, values)| values).map(|x| x.abs()).fold(1e-9, f64::max) * 1.1;
    let up = Scale::new(Law::Linear, [-most, most], [lower.bottom, lower.top]);
    let label = runs.truth.as_ref().map_or_else(
        || format!("compiled minus {}", runs.name),
        |truth| format!("each minus the same run in f64; dashed: {}", truth.name),
    );
    heights(
        &mut plot,
        lower,
        &up,
        &label,
        |value| {
            if value == 0.0 { "0".into() } else { format!("{value:.0e}") }
        },
    );
    for (ink, values) in &differences {
        plot.track(&point(&up, values), if *ink == Ink::Attempt { 1.8 } else { 1.3 }, *ink);
    }
    plot.axis(lower, &labelled(across, TICK_GAP, "step".into()));
    plot.finish(lower.bottom + 36.0)
}

/// Lines at round values.
fn heights(plot: &mut Plot, panel: Panel, up: &Scale, label: &str, shown: impl Fn(f64) -> String) {
    let [low, high] = up.domain();
    let ticks = Scale::new(Law::Linear, [low, high], [panel.top, panel.bottom]).ticks(22.0);
    for value in ticks {
        let y = up.at(value);
        plot.line((panel.left, y), (panel.right, y), 1.0, Ink::Grid);
        plot.text((panel.left - 5.0, y + 4.0), Anchor::End, Ink::Quiet, &shown(value));
    }
    plot.text((panel.left, panel.top - 5.0), Anchor::Start, Ink::Quiet, label);
}

fn told(runs: &Runs, differences: &[(Ink, Vec<f64>)]) -> String {
    let most = |values: &[f64]| values.iter().map(|x| x.abs()).fold(0.0, f64::max);
    let last = runs.compiled.len() - 1;
    let apart: Vec<String> =
        differences.iter().rev().map(|(_, values)| format!("{:.1e}", most(values))).collect();
    let apart = match &runs.truth {
        None => format!("they differ by at most {}", apart[0]),
        Some(truth) => format!(
            "they are at most {} and {} from the run in f64, {} at most {}",
            apart[0], apart[1], truth.name, apart[2]
        ),
    };
    format!(
        "Losses of {} steps, compiled from {} to {}, {} from {} to {}; {apart}.",
        last + 1,
        digits(runs.compiled[0]),
        digits(runs.compiled[last]),
        runs.name,
        digits(runs.other[0]),
        digits(runs.other[last])
    )
}
