//! Time against bytes over the sizes of chunks, and the size that was chosen; both axes are logarithmic.

use super::number::{bytes, count, digits, tick};
use super::plot::{Anchor, Axis, Ink, Panel, Plot, WIDTH};
use super::{Law, Scale, TICK_GAP, labelled, usable};
use scorecard::Challenge;

/// How to read it.
pub const CAPTION: &str = "What one run takes for each size of chunks, in rows: bytes above inputs and returned gradients \
                           to the right, time up, both logarithmic. Below and to the left is better; the disc is the size \
                           that the attempt chose for a tenth of the bytes.";

/// What a run took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Rows of a chunk.
    pub rows: f64,
    /// The most bytes.
    pub bytes: f64,
    /// The time in ms.
    pub ms: f64,
}

/// What runs took.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// For each size, ascending.
    pub all: Vec<Point>,
    /// With all logits.
    pub whole: [f64; 2],
    /// In chunks of the chosen size.
    pub chosen: Point,
}

const FIRST: f64 = 58.0;
const LAST: f64 = WIDTH - 8.0;

impl Sizes {
    /// What the measurements `sizes.ROWS.time` and `sizes.ROWS.bytes`, `timed.whole`, `timed.chunked`, their `.bytes`
    /// and `timed.rows` hold; nothing, where fewer than two sizes were tried.
    pub fn of(challenge: &Challenge) -> Option<Self> {
        let get =
            |name: &str| usable(challenge.measurements.get(&format!("{}.{name}", challenge.name))?.value);
        let before = format!("{}.sizes.", challenge.name);
        let rows = challenge
            .measurements
            .keys()
            .filter_map(|name| name.strip_prefix(&before)?.strip_suffix(".time")?.parse::<u32>().ok());
        let point = |rows: u32| {
            let (bytes, ms) = (get(&format!("sizes.{rows}.bytes"))?, get(&format!("sizes.{rows}.time"))?);
            Some(Point { rows: rows.into(), bytes, ms })
        };
        let mut all: Vec<Point> = rows.filter_map(point).collect();
        all.sort_by(|a, b| a.rows.total_cmp(&b.rows));
        let whole = [get("timed.whole.bytes")?, get("timed.whole")?];
        let chosen =
            Point { rows: get("timed.rows")?, bytes: get("timed.chunked.bytes")?, ms: get("timed.chunked")? };
        (all.len() > 1).then_some(Self { all, whole, chosen })
    }

    fn range(&self, of: impl Fn(&Point) -> f64, whole: f64) -> [f64; 2] {
        let all = || self.all.iter().chain([&self.chosen]).map(&of).chain([whole]);
        [all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max)]
    }
}

/// The figure.
pub fn costs(sizes: &Sizes) -> String {
    let mut plot = Plot::new("Time against bytes over sizes of chunks", &describe(sizes));
    let panel = Panel { left: FIRST, right: LAST, top: 88.0, bottom: 300.0 };
    let [[least, most], [fast, slow]] =
        [sizes.range(|point| point.bytes, sizes.whole[0]), sizes.range(|point| point.ms, sizes.whole[1])];
    let across = Scale::new(Law::Log, [least * 0.7, most * 1.4], [FIRST, LAST]);
    let up = Scale::new(Law::Log, [fast * 0.85, slow * 1.25], [panel.bottom, panel.top]);
    legend(&mut plot, sizes);
    heights(&mut plot, panel, &up);
    let axis = labelled_bytes(across.clone());
    plot.axis(panel, &axis);
    plot.grid(&[panel], &axis, Ink::Grid);
    let at = |bytes: f64, ms: f64| (across.at(bytes), up.at(ms));
    let line: Vec<(f64, f64)> = sizes.all.iter().map(|point| at(point.bytes, point.ms)).collect();
    plot.track(&line, 1.2, Ink::Quiet);
    plot.dots(line.iter().copied(), Ink::Text);
    let (whole, chosen) = (at(sizes.whole[0], sizes.whole[1]), at(sizes.chosen.bytes, sizes.chosen.ms));
    names(&mut plot, sizes, &line, [whole, chosen]);
    plot.mark(whole.0, whole.1, Ink::Baseline);
    plot.mark(chosen.0, chosen.1, Ink::Attempt);
    plot.finish(panel.bottom + 36.0)
}

/// The two that were timed in turns, one a line.
fn legend(plot: &mut Plot, sizes: &Sizes) {
    let of = |bytes_of: f64, ms: f64| format!("{}, {} ms", bytes(bytes_of), digits(ms));
    let Sizes { whole, chosen, .. } = sizes;
    let chosen = format!("chosen, {} rows: {}", count(chosen.rows), of(chosen.bytes, chosen.ms));
    let whole = format!("all logits: {}", of(whole[0], whole[1]));
    plot.legend(40.0, &[(Ink::Attempt, &chosen)]);
    plot.legend(60.0, &[(Ink::Baseline, &whole)]);
}

fn heights(plot: &mut Plot, panel: Panel, up: &Scale) {
    let [low, high] = up.domain();
    for value in Scale::new(Law::Log, [low, high], [panel.top, panel.bottom]).ticks(22.0) {
        let y = up.at(value);
        plot.line((panel.left, y), (panel.right, y), 1.0, Ink::Grid);
        plot.text((panel.left - 5.0, y + 4.0), Anchor::End, Ink::Quiet, &tick(value));
    }
    plot.text((panel.left, panel.top - 6.0), Anchor::Start, Ink::Quiet, "ms, logarithmic");
}

/// Powers of two, as far apart as words need.
fn labelled_bytes(scale: Scale) -> Axis {
    let [least, most] = scale.domain();
    let powers = (least.log2().ceil() as i32)..=(most.log2().floor() as i32);
    let mut ticks: Vec<(f64, String)> = Vec::new();
    for value in powers.map(|power| f64::from(power).exp2()) {
        let is_free = |last: &(f64, String)| scale.at(value) - scale.at(last.0) >= TICK_GAP + 18.0;
        if ticks.last().is_none_or(is_free) {
            ticks.push((value, bytes(value)));
        }
    }
    if ticks.len() < 2 {
        return labelled(scale, TICK_GAP + 30.0, "bytes, logarithmic".into());
    }
    Axis { scale, ticks, label: "bytes, logarithmic".into() }
}

/// The rows of each size above its dot, below it where a mark is in the way, as far as there is room.
fn names(plot: &mut Plot, sizes: &Sizes, line: &[(f64, f64)], marks: [(f64, f64); 2]) {
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for (point, (x, y)) in sizes.all.iter().zip(line) {
        let covered = |mark: &(f64, f64)| (mark.0 - x).abs() < 24.0 && (mark.1 - (y - 14.0)).abs() < 12.0;
        let y = if marks.iter().any(covered) { y + 18.0 } else { y - 10.0 };
        if taken.iter().all(|other| (other.0 - x).abs() > 34.0 || (other.1 - y).abs() > 10.0) {
            plot.text((*x, y), Anchor::Middle, Ink::Quiet, &count(point.rows));
            taken.push((*x, y));
        }
    }
}

fn describe(sizes: &Sizes) -> String {
    let one = |point: &Point| {
        format!("{} rows {} and {} ms", count(point.rows), bytes(point.bytes), digits(point.ms))
    };
    let all: Vec<String> = sizes.all.iter().map(one).collect();
    format!(
        "Bytes and time for each size of chunks: {}. All logits took {} and {} ms; chosen were {}.",
        all.join(", "),
        bytes(sizes.whole[0]),
        digits(sizes.whole[1]),
        one(&sizes.chosen)
    )
}
