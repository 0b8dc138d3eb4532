//! The speed-up of each case over its baseline, against the published thresholds.

use scorecard::{Challenge, Measurement};

use super::layout::{LEFT, RIGHT, ROW, TICK_GAP, bands, labelled, track, usable};
use super::number::{digits, tick};
use super::plot::{Anchor, Axis, Ink, Panel, Plot};
use super::scale::{Law, Piece, Scale};
use super::timing;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_thresholds_keep_their_room() {
        let axis = speedup_axis(
            &[("a".into(), Interval { value: 6.0, ends: [5.9, 6.1], known: true })],
            &[1.0, 1.05, 1.1, 1.15],
        );
        let at = |v| axis.scale.at(v);
        assert!(at(1.05) - at(1.0) > 25.0 && at(1.15) - at(1.1) > 25.0);
        assert!(at(6.0) - at(3.0) > 50.0 && at(6.0) < RIGHT);
    }
}
