//! Every raw sample of each case, in the order in which they were taken.

use scorecard::{Challenge, Measurement};

use super::layout::{LEFT, RIGHT, labelled, svg_name, usable};
use super::number::{Time, digits};
use super::plot::{Anchor, Ink, Panel, Plot};
use super::scale::{Law, Scale};
use super::timing::{self, Timing};

/// Raw samples of baseline and attempt, each case on an axis of its own, with the medians.
pub fn strip(challenge: &Challenge) -> Option<String> {
    let rows: Vec<Samples> = timing::timings(challenge).iter().filter_map(Samples::of).collect();
    if rows.is_empty() {
        return None;
    }
    let mut plot = Plot::new(&format!("Raw samples of {}", challenge.name), &strip_alt(&rows));
    plot.legend(38.0, &[(Ink::Attempt, "attempt"), (Ink::Baseline, "baseline")]);
    plot.text((RIGHT, 38.0), Anchor::End, Ink::Quiet, "bars are medians");
    for (i, row) in rows.iter().enumerate() {
        strip_row(&mut plot, 48.0 + STRIP_ROW * i as f64, row);
    }
    Some(plot.finish(50.0 + STRIP_ROW * rows.len() as f64))
}

const STRIP_ROW: f64 = 92.0;
const STRIP: f64 = 20.0;

/// The samples of one case in microseconds, in the order in which they were taken.
struct Samples {
    label: String,
    baseline: Vec<f64>,
    attempt: Vec<f64>,
}

impl Samples {
    fn of(timing: &Timing) -> Option<Self> {
        let raw = |measurement: Option<&Measurement>| {
            let samples: Vec<f64> = measurement?.samples.iter().copied().filter_map(usable).collect();
            (!samples.is_empty()).then_some(samples)
        };
        let label = timing::label(timing.case, "\u{d7}");
        Some(Self { label, baseline: raw(timing.baseline)?, attempt: raw(timing.attempt)? })
    }

    fn unit(&self) -> Time {
        Time::of(self.both())
    }

    fn both(&self) -> impl Iterator<Item = f64> {
        self.attempt.iter().chain(&self.baseline).copied()
    }
}

fn strip_row(plot: &mut Plot, top: f64, row: &Samples) {
    let unit = row.unit();
    let panel = Panel { left: LEFT, right: RIGHT, top: top + 20.0, bottom: top + 26.0 + 2.0 * STRIP };
    let lo = row.both().fold(f64::MAX, f64::min);
    let hi = row.both().fold(0.0, f64::max);
    let margin = (hi - lo) * 0.04;
    let domain = [unit.scaled(lo - margin), unit.scaled(hi + margin)];
    let axis = labelled(Scale::new(Law::Linear, domain, [LEFT + 6.0, RIGHT - 6.0]), 60.0, String::new());
    plot.text((LEFT + 4.0, top + 14.0), Anchor::Start, Ink::Text, &row.label);
    plot.axis(panel, &axis);
    plot.grid(&[panel], &axis, Ink::Grid);
    let message = format!("medians {} and {} {}", medians(row)[0], medians(row)[1], svg_name(unit));
    plot.text((RIGHT - 4.0, top + 14.0), Anchor::End, Ink::Quiet, &message);
    for (ink, samples, top) in [
        (Ink::Attempt, &row.attempt, panel.top + 2.0),
        (Ink::Baseline, &row.baseline, panel.top + 4.0 + STRIP),
    ] {
        lane(plot, &axis.scale, top, samples, ink, unit);
    }
}

/// One column of samples, the first on top, and its median.
fn lane(plot: &mut Plot, scale: &Scale, top: f64, samples: &[f64], ink: Ink, unit: Time) {
    let height = |i: usize| top + STRIP * (i as f64 + 0.5) / samples.len() as f64;
    plot.dots(samples.iter().enumerate().map(|(i, us)| (scale.at(unit.scaled(*us)), height(i))), ink);
    let x = scale.at(unit.scaled(median(samples)));
    plot.line((x, top), (x, top + STRIP), 2.0, ink);
}

fn medians(row: &Samples) -> [String; 2] {
    [&row.attempt, &row.baseline].map(|samples| digits(row.unit().scaled(median(samples))))
}

fn strip_alt(rows: &[Samples]) -> String {
    let row = |row: &Samples| {
        let [attempt, baseline] = medians(row);
        let (n, m, unit) = (row.attempt.len(), row.baseline.len(), row.unit().name());
        format!(
            "{}: {n} samples of the attempt, median {attempt} {unit}; {m} of the baseline, median {baseline} {unit}",
            row.label
        )
    };
    format!("Every raw sample as a dot. {}.", rows.iter().map(row).collect::<Vec<_>>().join(". "))
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}
