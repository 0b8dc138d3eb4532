//! Pictures of a challenge's measurements, as SVG written by hand.
//!
//! A figure is a pure function from a [`Challenge`] to `Option<String>`: `None` where the measurements it
//! needs are missing, otherwise one SVG element that stands alone - style, title and a description in
//! words are inside, nothing is loaded, and it follows the light or dark scheme around it. The pieces
//! ([`Scale`], [`Axis`], [`Panel`], [`Plot`]) know nothing of challenges.
//!
//! Each figure answers one question. [`speedup`]: is the attempt faster, surely, and past which of the published
//! thresholds? [`where_time_stands`]: how much of the way from the baseline to the machine's limit is done? [`strip`]:
//! what do the raw samples look like before anything was averaged? Of a compiled step: [`memory`]: where does each
//! buffer lie, and for how long? [`timeline`]: what does the step spend its time on? [`curves`]: is the compiled run,
//! or the chunked one, the same run? Of a chunked loss: [`chunks`]: which bytes are alive, and when? [`sizes`]: what
//! does a chunk's size cost? Of a run on ranks: [`gantt`]: does a pipeline keep to its schedule? [`overlap`]: how long
//! does a step wait for its gathers? Of a classifier: [`confusion`]: which classes does it still take for which?
//! [`graph`], [`lives`], [`prompt`], [`shares`], [`attention`] and [`file`] draw what no scorecard holds - a graph, its
//! launches, a model's text, a rank's bytes, a mask, a file - and are for the book. Times differ tenfold between cases
//! and meaning lies in ratios, hence logarithmic axes; where thresholds lie close together the speed-up axis is
//! stretched around them and says so.

mod bars;
mod lane;
mod plot;
mod scale;

pub mod attention;
pub mod beside;
pub mod chunks;
pub mod confusion;
pub mod curves;
pub mod file;
pub mod gantt;
pub mod graph;
pub mod layers;
pub mod lives;
pub mod memory;
pub mod number;
pub mod overlap;
pub mod parts;
pub mod prompt;
pub mod shares;
pub mod sizes;
pub mod timeline;
pub mod timing;
pub mod vision;

pub use layers::Rect;
pub use plot::{Anchor, Axis, CODE, Ink, Panel, Pass, Plot, Share, StepKind, WIDTH, escape, stacked};
pub use scale::{Law, Piece, Scale};

use number::{Time, digits, tick};
use scorecard::{Challenge, Measurement};
use timing::Timing;

/// A figure with the name of its file, without an extension.
#[derive(Clone, Debug)]
pub struct Figure {
    /// `speedup`, `where_time_stands`, `staircase`, `strip`, `memory`, `timeline`, `losses`,
    /// `chunks`, `sizes`, `training`, `ranks`, `gantt`, `overlap` or `confusion`.
    pub name: &'static str,
    /// One sentence on how to read it.
    pub caption: &'static str,
    /// The SVG element.
    pub svg: String,
}

const LEFT: f64 = 8.0;
const RIGHT: f64 = WIDTH - 8.0;
const TICK_GAP: f64 = 34.0;
const ROW: f64 = 42.0;

/// Every figure that the challenge's measurements allow.
pub fn all(challenge: &Challenge) -> Vec<Figure> {
    let figure = |name, caption, svg: Option<String>| svg.map(|svg| Figure { name, caption, svg });
    let figures = [
        figure(
            "speedup",
            "Baseline time over attempt time with its 95 % interval. A threshold counts once the whole interval \
             lies to its right.",
            speedup(challenge),
        ),
        figure(
            "where_time_stands",
            "From the machine's limit to the baseline: what is won is solid, what is left is faint. Equal lengths \
             are equal ratios.",
            where_time_stands(challenge),
        ),
        figure(
            "staircase",
            "The same weight by every version, from the library's three passes to the fastest, and what the machine \
             needs to move the bytes. Medians; equal lengths are equal ratios.",
            staircase(challenge),
        ),
        figure(
            "strip",
            "Every sample as it was taken, the first on top: a slanting column is drift, a lone dot a disturbance.",
            strip(challenge),
        ),
        figure(
            "memory",
            "Above, each buffer where it lies in the arena and while it lives; below, the bytes alive at once. What is \
             free between the floor and the arena is lost to gaps.",
            memory::Memory::of(challenge).map(|memory| memory::staircase(&memory, "The arena over one step")),
        ),
        figure(
            "timeline",
            "One step, launch by launch, broken into lines like a text. A kind of work has a colour and a height; the \
             numbers are the longest launches.",
            timeline::Step::of(challenge).map(|step| timeline::timeline(&step, "One step")),
        ),
        figure(
            "losses",
            "The same training run twice. One line should lie on the other; beneath is what is between them, which is \
             rounding as long as it is far below what a step changes.",
            curves::Runs::of(challenge).map(|runs| curves::losses(&runs, "The loss, compiled and not")),
        ),
        figure("chunks", chunks::CAPTION, chunks::Way::all(challenge).map(|ways| chunks::stairs(&ways))),
        figure("sizes", sizes::CAPTION, sizes::Sizes::of(challenge).map(|sizes| sizes::costs(&sizes))),
        figure(
            "training",
            "The same training run with the loss in one piece and in chunks. One line should lie on the other; beneath \
             is what is between them, between the dashed lines of what is allowed.",
            curves::Runs::chunked(challenge, scorecard::LOSSES_APART)
                .map(|runs| curves::losses(&runs, "The loss, whole and in chunks")),
        ),
        figure(
            "ranks",
            "The same training run on one rank and on several. One line should lie on the other; beneath is what is \
             between them, between the dashed lines of what is allowed.",
            curves::Runs::ranks(challenge, scorecard::LOSSES_APART)
                .map(|runs| curves::losses(&runs, "The loss, on one rank and on several")),
        ),
        figure(
            "gantt",
            gantt::CAPTION,
            gantt::Gantt::of(challenge).and_then(|gantt| gantt::chart("A step of the pipeline", &[gantt])),
        ),
        figure(
            "overlap",
            overlap::CAPTION,
            overlap::Overlap::of(challenge)
                .and_then(|both| overlap::steps(&both, "A step with its gathers, late and early")),
        ),
        figure(
            "confusion",
            confusion::CAPTION,
            confusion::confusions("A classifier as it learns", &confusion::Look::all(challenge)),
        ),
    ];
    figures.into_iter().flatten().collect()
}

/// Each case's speed-up with its interval against the thresholds that the rubric's wordings name.
pub fn speedup(challenge: &Challenge) -> Option<String> {
    let cases = timing::timings(challenge);
    let total = timing::total(challenge).map(|total| ("published cases".to_owned(), total));
    let each = cases.iter().filter_map(|case| Some((timing::label(case.case, "\u{d7}"), case.speedup?)));
    let rows: Vec<(String, Interval)> =
        total.into_iter().chain(each).filter_map(|(label, x)| Some((label, Interval::of(x)?))).collect();
    if rows.is_empty() {
        return None;
    }
    let thresholds = thresholds(challenge);
    let mut plot = Plot::new(
        &format!("Speed-up of {} over the baseline", challenge.name),
        &speedup_alt(&rows, &thresholds),
    );
    let panel = Panel { left: LEFT, right: RIGHT, top: 30.0, bottom: 36.0 + ROW * rows.len() as f64 };
    let axis = speedup_axis(&rows, &thresholds);
    let bands = bands(panel, rows.len());
    stretch_note(&mut plot, panel, &axis, &thresholds);
    plot.axis(panel, &axis);
    let (judged, plain): (Vec<_>, Vec<_>) =
        axis.ticks.iter().cloned().partition(|(value, _)| thresholds.contains(value));
    plot.grid(&bands, &Axis { ticks: plain, ..axis.clone() }, Ink::Grid);
    plot.grid(&bands, &Axis { ticks: judged, ..axis.clone() }, Ink::Threshold);
    for (i, (label, x)) in rows.iter().enumerate() {
        speedup_row(&mut plot, &axis.scale, panel.top + ROW * i as f64, label, *x);
    }
    Some(plot.finish(panel.bottom + 36.0))
}

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

/// The time of every version of one pass, from the first idea to the machine's bound.
pub fn staircase(challenge: &Challenge) -> Option<String> {
    let versions = timing::versions(challenge);
    let rows: Vec<(&str, f64)> =
        versions.iter().filter_map(|(label, time)| Some((label.as_str(), usable(time.value)?))).collect();
    let slowest = rows.iter().map(|(_, us)| *us).reduce(f64::max)?;
    let unit = Time::of(rows.iter().map(|(_, us)| *us));
    let describe = |(label, us): &(&str, f64)| format!("{label} {}", unit.show(*us));
    let alt = format!("{}.", rows.iter().map(describe).collect::<Vec<_>>().join(", "));
    let mut plot = Plot::new(&format!("The staircase of {}", challenge.name), &alt);
    let panel = Panel { left: LEFT, right: RIGHT, top: 30.0, bottom: 36.0 + ROW * rows.len() as f64 };
    let least = rows.iter().map(|(_, us)| *us).reduce(f64::min)? * 0.7;
    let domain = [unit.scaled(least), unit.scaled(slowest * 1.14)];
    let scale = Scale::new(Law::Log, domain, [LEFT, RIGHT]);
    let axis = labelled(scale, TICK_GAP, format!("{}, logarithmic", svg_name(unit)));
    plot.axis(panel, &axis);
    plot.grid(&bands(panel, rows.len()), &axis, Ink::Grid);
    for (i, (label, us)) in rows.iter().enumerate() {
        let top = panel.top + ROW * i as f64;
        plot.text((LEFT + 4.0, top + 14.0), Anchor::Start, Ink::Text, label);
        plot.text(
            (RIGHT - 4.0, top + 14.0),
            Anchor::End,
            Ink::Quiet,
            &format!("{} {}", digits(unit.scaled(*us)), svg_name(unit)),
        );
        let (y, end) = (track(top), axis.scale.at(unit.scaled(*us)));
        plot.area((LEFT, y - 6.0), (end, y + 6.0), Ink::Attempt, 0.85);
    }
    Some(plot.finish(panel.bottom + 36.0))
}

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

// ---- speed-up

/// A ratio and the ends of its interval.
#[derive(Clone, Copy, Debug)]
struct Interval {
    value: f64,
    ends: [f64; 2],
    known: bool,
}

impl Interval {
    fn of(measurement: &Measurement) -> Option<Self> {
        let value = usable(measurement.value)?;
        let ends = measurement.interval.unwrap_or([value; 2]);
        usable(ends[0]).zip(usable(ends[1]))?;
        Some(Self {
            value,
            ends: [ends[0].min(value), ends[1].max(value)],
            known: measurement.interval.is_some(),
        })
    }

    fn show(self) -> String {
        let [lo, hi] = self.ends.map(digits);
        let interval = if self.known { format!(" [{lo}, {hi}]") } else { String::new() };
        format!("{}\u{d7}{interval}", digits(self.value))
    }
}

/// The ratios named by wordings such as `speedup >= 1.05`, ascending.
fn thresholds(challenge: &Challenge) -> Vec<f64> {
    let named = |wording: &str| wording.strip_prefix("speedup ")?.get(3..)?.trim().parse::<f64>().ok();
    let mut all: Vec<f64> =
        challenge.rows.iter().filter_map(|row| named(&row.wording)).filter_map(usable).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// The zone around the thresholds is linear and wide; what lies beyond it on either side is logarithmic.
fn speedup_axis(rows: &[(String, Interval)], thresholds: &[f64]) -> Axis {
    let lo = rows.iter().map(|(_, x)| x.ends[0]).fold(f64::MAX, f64::min) * 0.95;
    let hi = rows.iter().map(|(_, x)| x.ends[1]).fold(0.0, f64::max) * 1.08;
    let [Some(first), Some(last)] = [thresholds.first(), thresholds.last()] else {
        return labelled(
            Scale::new(Law::Log, [lo, hi], [LEFT, RIGHT]),
            TICK_GAP,
            "times the baseline".into(),
        );
    };
    let zone = [first * 0.96, last * 1.04];
    let mut parts = vec![(Law::Linear, zone, 1.0)];
    if lo < zone[0] {
        parts.insert(0, (Law::Log, [lo, zone[0]], 0.5));
    }
    if hi > zone[1] {
        parts.push((Law::Log, [zone[1], hi], 1.3));
    }
    let scale = chained(&parts, [LEFT, RIGHT]);
    let free = |v: &f64| thresholds.iter().all(|t| (scale.at(*t) - scale.at(*v)).abs() >= TICK_GAP * 0.8);
    let named = thresholds.iter().map(|t| (*t, format!("{t:.2}")));
    let others = scale.ticks(TICK_GAP).into_iter().filter(free).map(|v| (v, tick(v)));
    let ticks = named.chain(others).collect();
    Axis { scale, ticks, label: "times as fast as the baseline".into() }
}

/// Pieces side by side, each as wide as its weight.
fn chained(parts: &[(Law, [f64; 2], f64)], range: [f64; 2]) -> Scale {
    let unit = (range[1] - range[0]) / parts.iter().map(|(_, _, weight)| weight).sum::<f64>();
    let mut left = range[0];
    let place = |(law, domain, weight): &(Law, [f64; 2], f64)| {
        let piece = Piece { law: *law, domain: *domain, range: [left, left + weight * unit] };
        left = piece.range[1];
        piece
    };
    Scale::joined(parts.iter().map(place).collect())
}

/// Shades the stretched zone and names it, so that nobody reads lengths across its border.
fn stretch_note(plot: &mut Plot, panel: Panel, axis: &Axis, thresholds: &[f64]) {
    let [Some(first), Some(last)] = [thresholds.first(), thresholds.last()] else { return };
    let zone = [first * 0.96, last * 1.04].map(|v| axis.scale.at(v));
    if zone[1] >= panel.right - 1.0 && zone[0] <= panel.left + 1.0 {
        return;
    }
    plot.area((zone[0], panel.top), (zone[1], panel.bottom), Ink::Threshold, 0.06);
    plot.text((panel.left, panel.bottom + 29.0), Anchor::Start, Ink::Quiet, "shaded: stretched, linear");
}

fn speedup_row(plot: &mut Plot, scale: &Scale, top: f64, label: &str, x: Interval) {
    let y = track(top);
    plot.text((LEFT + 4.0, top + 16.0), Anchor::Start, Ink::Text, label);
    plot.text((RIGHT - 4.0, top + 16.0), Anchor::End, Ink::Text, &x.show());
    plot.line((LEFT, y), (RIGHT, y), 1.0, Ink::Grid);
    let [lo, hi] = x.ends.map(|end| scale.at(end));
    plot.line((lo, y), (hi, y), 3.0, Ink::Attempt);
    for end in [lo, hi] {
        plot.line((end, y - 7.0), (end, y + 7.0), 1.5, Ink::Attempt);
    }
    plot.mark(scale.at(x.value), y, Ink::Attempt);
}

fn speedup_alt(rows: &[(String, Interval)], thresholds: &[f64]) -> String {
    let rows = rows.iter().map(|(label, x)| format!("{label}: {}", x.show()));
    let named: Vec<String> = thresholds.iter().map(|t| format!("{t:.2}")).collect();
    let against =
        if named.is_empty() { String::new() } else { format!(" Thresholds at {}.", named.join(", ")) };
    format!(
        "Speed-up over the baseline with 95 % intervals. {}.{against}",
        rows.collect::<Vec<_>>().join("; ")
    )
}

// ---- where the time stands

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

// ---- raw samples

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

// ---- shared

/// The lower part of each row, where its track lies; the row's words stand above it.
fn bands(panel: Panel, rows: usize) -> Vec<Panel> {
    let y = |i: usize| track(panel.top + ROW * i as f64);
    (0..rows).map(|i| Panel { top: y(i) - 9.0, bottom: y(i) + 9.0, ..panel }).collect()
}

/// Where the track of a row lies.
fn track(top: f64) -> f64 {
    top + ROW - 9.0
}

fn labelled(scale: Scale, gap: f64, label: String) -> Axis {
    let ticks = scale.ticks(gap).into_iter().map(|value| (value, tick(value))).collect();
    Axis { scale, ticks, label }
}

/// A positive finite number of a size that a picture can show.
fn usable(value: f64) -> Option<f64> {
    (1e-9..=1e15).contains(&value).then_some(value)
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

fn svg_name(unit: Time) -> &'static str {
    if unit == Time::Micro { "\u{b5}s" } else { "ms" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_close_together_keep_room_beside_a_large_speedup() {
        let axis = speedup_axis(
            &[("a".into(), Interval { value: 6.0, ends: [5.9, 6.1], known: true })],
            &[1.0, 1.05, 1.1, 1.15],
        );
        let at = |v| axis.scale.at(v);
        assert!(at(1.05) - at(1.0) > 25.0 && at(1.15) - at(1.1) > 25.0);
        assert!(at(6.0) - at(3.0) > 50.0 && at(6.0) < RIGHT);
    }
}
