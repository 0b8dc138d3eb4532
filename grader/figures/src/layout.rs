//! Margins, tracks and axes that figures of several rows share.

use super::number::{Time, tick};
use super::plot::{Axis, Panel, WIDTH};
use super::scale::Scale;

pub(super) const LEFT: f64 = 8.0;
pub(super) const RIGHT: f64 = WIDTH - 8.0;
pub(super) const TICK_GAP: f64 = 34.0;
pub(super) const ROW: f64 = 42.0;

/// The lower part of each row, where its track lies; the row's words stand above it.
pub(super) fn bands(panel: Panel, rows: usize) -> Vec<Panel> {
    let y = |i: usize| track(panel.top + ROW * i as f64);
    (0..rows).map(|i| Panel { top: y(i) - 9.0, bottom: y(i) + 9.0, ..panel }).collect()
}

/// Where the track of a row lies.
pub(super) fn track(top: f64) -> f64 {
    top + ROW - 9.0
}

pub(super) fn labelled(scale: Scale, gap: f64, label: String) -> Axis {
    let ticks = scale.ticks(gap).into_iter().map(|value| (value, tick(value))).collect();
    Axis { scale, ticks, label }
}

/// A positive finite number of a size that a picture can show.
pub(super) fn usable(value: f64) -> Option<f64> {
    (1e-9..=1e15).contains(&value).then_some(value)
}

pub(super) fn svg_name(unit: Time) -> &'static str {
    if unit == Time::Micro { "\u{b5}s" } else { "ms" }
}
