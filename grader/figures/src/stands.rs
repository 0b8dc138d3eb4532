//! Where each case's time stands between the machine's limit and the baseline.

use scorecard::{Challenge, Measurement};

use super::layout::{LEFT, RIGHT, ROW, TICK_GAP, bands, labelled, svg_name, track, usable};
use super::number::{Time, digits};
use super::plot::{Anchor, Ink, Panel, Plot};
use super::scale::{Law, Scale};
use super::timing::{self, Timing};

/// For each case where the attempt stands between the machine's bound and the baseline, in time.
pub fn where_time_stands(challenge: &Challenge) -> Option<String> {
    let rows: Vec<Stand> = timing::timings(challenge).iter().filter_map(Stand::of).collect();
    let times = || rows.iter().flat_map(|row| [row.bound, row.attempt, row.baseline]);
    if rows.is_empty() {
        return None;
    }
    let unit = Time::of(times());
    let title = format!("Where the time of {} stands", challenge.name);
    let mut plot = Plot::new(&title, &stands_alt(&rows, unit));
    plot.legend(
        38.0,
        &[(Ink::Bound, "bound of this machine"), (Ink::Attempt, "attempt"), (Ink::Baseline, "baseline")],
    );
    let panel = Panel { left: LEFT, right: RIGHT, top: 46.0, bottom: 52.0 + ROW * rows.len() as f64 };
    let domain = [times().fold(f64::MAX, f64::min) * 0.88, times().fold(0.0, f64::max) * 1.14];
    let scale = Scale::new(Law::Log, domain.map(|us| unit.scaled(us)), [LEFT, RIGHT]);
    let axis = labelled(scale, TICK_GAP, format!("{}, logarithmic", svg_name(unit)));
    plot.axis(panel, &axis);
    plot.grid(&bands(panel, rows.len()), &axis, Ink::Grid);
    for (i, row) in rows.iter().enumerate() {
        stand_row(&mut plot, &axis.scale, panel.top + ROW * i as f64, row, unit);
    }
    Some(plot.finish(panel.bottom + 36.0))
}

/// Three times of one case in microseconds.
struct Stand {
    label: String,
    bound: f64,
    attempt: f64,
    baseline: f64,
}

impl Stand {
    fn of(timing: &Timing) -> Option<Self> {
        let value = |measurement: Option<&Measurement>| usable(measurement?.value);
        Some(Self {
            label: timing::label(timing.case, "\u{d7}"),
            bound: value(timing.bound)?,
            attempt: value(timing.attempt)?,
            baseline: value(timing.baseline)?,
        })
    }

    /// How fast the attempt is, of the most that the machine allows, in percent.
    fn percent(&self) -> String {
        format!("{:.0} %", 100.0 * self.bound / self.attempt)
    }
}

fn stand_row(plot: &mut Plot, scale: &Scale, top: f64, row: &Stand, unit: Time) {
    let y = track(top);
    let [bound, attempt, baseline] =
        [row.bound, row.attempt, row.baseline].map(|us| scale.at(unit.scaled(us)));
    plot.text((LEFT + 4.0, top + 16.0), Anchor::Start, Ink::Text, &row.label);
    let times = [row.bound, row.attempt, row.baseline].map(|us| digits(unit.scaled(us)));
    let message = format!("{} of the bound: {} {}", row.percent(), times.join(" \u{b7} "), svg_name(unit));
    plot.text((RIGHT - 4.0, top + 16.0), Anchor::End, Ink::Text, &message);
    plot.line((LEFT, y), (RIGHT, y), 1.0, Ink::Grid);
    plot.area((bound, y - 3.0), (attempt, y + 3.0), Ink::Attempt, 0.22);
    plot.area((attempt, y - 3.0), (baseline, y + 3.0), Ink::Attempt, 0.75);
    plot.mark(bound, y, Ink::Bound);
    plot.mark(baseline, y, Ink::Baseline);
    plot.mark(attempt, y, Ink::Attempt);
}

fn stands_alt(rows: &[Stand], unit: Time) -> String {
    let row = |row: &Stand| {
        let [bound, attempt, baseline] = [row.bound, row.attempt, row.baseline].map(|us| unit.show(us));
        format!(
            "{}: bound {bound}, attempt {attempt} ({} of the bound's speed), baseline {baseline}",
            row.label,
            row.percent()
        )
    };
    format!("Time of each case. {}.", rows.iter().map(row).collect::<Vec<_>>().join("; "))
}
