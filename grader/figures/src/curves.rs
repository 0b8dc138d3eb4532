//! Two training runs that should be one: their losses, and beneath them what is between them.

use super::number::{digits, tick};
use super::plot::{Anchor, Ink, Panel, Plot, WIDTH};
use super::{Law, Scale, TICK_GAP, labelled, usable};
use scorecard::Challenge;

const FIRST: f64 = 58.0;
const LAST: f64 = WIDTH - 8.0;

/// The losses of each step of two runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Runs {
    /// Of the run that is held to something.
    pub own: Vec<f64>,
    /// What it is.
    pub called: String,
    /// Of the other one.
    pub other: Vec<f64>,
    /// What the other one is.
    pub name: String,
    /// What is drawn beneath.
    pub held: Held,
}

/// What runs are held to.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Held {
    /// To each other: one minus the other.
    #[default]
    Other,
    /// To each other, as a part of the other, which may be so large either way.
    Part(f64),
    /// To the same run in f64.
    Truth(Truth),
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
        let (own, other) = (series(challenge, "losses.compiled")?, series(challenge, "losses.op_by_op")?);
        Self { own, called: "compiled".into(), other, name: "op by op".into(), held: Held::Other }.sound()
    }

    /// The runs that `training.chunked` and `training.whole` hold, and how far apart they may be.
    pub fn chunked(challenge: &Challenge, apart: f64) -> Option<Self> {
        let (own, other) = (series(challenge, "training.chunked")?, series(challenge, "training.whole")?);
        let (called, name) = ("in chunks".into(), "all logits".into());
        Self { own, called, other, name, held: Held::Part(apart) }.sound()
    }

    /// The runs that `training.one` and `training.rank_0` hold, and how far apart they may be.
    pub fn ranks(challenge: &Challenge, apart: f64) -> Option<Self> {
        let (own, other) = (series(challenge, "training.rank_0")?, series(challenge, "training.one")?);
        let ranks = challenge.measurements.get(&format!("{}.training.ranks", challenge.name));
        let count = ranks.and_then(|ranks| usable(ranks.value)).map_or("several".into(), tick);
        let (called, name) = (format!("rank 0 of {count}"), "one rank".into());
        Self { own, called, other, name, held: Held::Part(apart) }.sound()
    }

    fn sound(self) -> Option<Self> {
        let steps = self.own.len();
        ((2..10_000).contains(&steps) && steps == self.other.len()).then_some(self)
    }

    /// What is drawn below: each run minus the truth, or the one minus the other.
    fn differences(&self) -> Vec<(Ink, Vec<f64>)> {
        let apart = minus(&self.own, &self.other);
        match &self.held {
            Held::Other => vec![(Ink::Attempt, apart)],
            Held::Part(_) => {
                vec![(
                    Ink::Attempt,
                    apart.iter().zip(&self.other).map(|(apart, other)| apart / other).collect(),
                )]
            }
            Held::Truth(truth) => vec![
                (Ink::Threshold, minus(&truth.third, &truth.losses)),
                (Ink::Baseline, minus(&self.other, &truth.losses)),
                (Ink::Attempt, minus(&self.own, &truth.losses)),
            ],
        }
    }
}

fn series(challenge: &Challenge, name: &str) -> Option<Vec<f64>> {
    let samples = &challenge.measurements.get(&format!("{}.{name}", challenge.name))?.samples;
    samples.iter().map(|loss| usable(*loss)).collect()
}

fn minus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// The figure.
pub fn losses(runs: &Runs, title: &str) -> String {
    let differences = runs.differences();
    let mut plot = Plot::new(title, &describe(runs, &differences));
    let upper = Panel { left: FIRST, right: LAST, top: 64.0, bottom: 232.0 };
    let lower = Panel { top: 264.0, bottom: 364.0, ..upper };
    let steps = runs.own.len();
    let across = Scale::new(Law::Linear, [0.0, (steps - 1) as f64], [FIRST + 4.0, LAST - 4.0]);
    let point = |up: &Scale, values: &[f64]| -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(i, value)| (across.at(i as f64), up.at(*value))).collect()
    };
    let all = || runs.own.iter().chain(&runs.other).copied();
    let range = [all().fold(f64::MAX, f64::min), all().fold(f64::MIN, f64::max)];
    let room = 0.04 * (range[1] - range[0]).max(1e-9);
    let up = Scale::new(Law::Linear, [range[0] - room, range[1] + room], [upper.bottom, upper.top]);
    heights(&mut plot, upper, &up, "loss, nats a token", tick);
    plot.track(&point(&up, &runs.other), 5.0, Ink::Baseline);
    plot.track(&point(&up, &runs.own), 1.6, Ink::Attempt);
    plot.legend(38.0, &[(Ink::Attempt, &runs.called), (Ink::Baseline, &runs.name)]);
    let limit = if let Held::Part(limit) = runs.held { limit } else { 1e-9 };
    let most = differences.iter().flat_map(|(_, values)| values).map(|x| x.abs()).fold(limit, f64::max) * 1.1;
    let up = Scale::new(Law::Linear, [-most, most], [lower.bottom, lower.top]);
    let label = match &runs.held {
        Held::Other => format!("{} minus {}", runs.called, runs.name),
        Held::Part(_) => {
            format!("{} minus {}, as a part of it; dashed: what is allowed", runs.called, runs.name)
        }
        Held::Truth(truth) => format!("each minus the same run in f64; dashed: {}", truth.name),
    };
    heights(
        &mut plot,
        lower,
        &up,
        &label,
        |value| {
            if value == 0.0 { "0".into() } else { format!("{value:.0e}") }
        },
    );
    if let Held::Part(limit) = runs.held {
        for y in [up.at(limit), up.at(-limit)] {
            plot.line((lower.left, y), (lower.right, y), 1.3, Ink::Threshold);
        }
    }
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

fn describe(runs: &Runs, differences: &[(Ink, Vec<f64>)]) -> String {
    let most = |values: &[f64]| values.iter().map(|x| x.abs()).fold(0.0, f64::max);
    let last = runs.own.len() - 1;
    let apart: Vec<String> =
        differences.iter().rev().map(|(_, values)| format!("{:.1e}", most(values))).collect();
    let apart = match &runs.held {
        Held::Other => format!("they differ by at most {}", apart[0]),
        Held::Part(limit) => {
            format!("they differ by at most {} of the loss, and {limit:.0e} is allowed", apart[0])
        }
        Held::Truth(truth) => format!(
            "they are at most {} and {} from the run in f64, {} at most {}",
            apart[0], apart[1], truth.name, apart[2]
        ),
    };
    format!(
        "Losses of {} steps, {} from {} to {}, {} from {} to {}; {apart}.",
        last + 1,
        runs.called,
        digits(runs.own[0]),
        digits(runs.own[last]),
        runs.name,
        digits(runs.other[0]),
        digits(runs.other[last])
    )
}
