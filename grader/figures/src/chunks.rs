//! The staircase of a chunked loss: the bytes alive over a run, one panel for each way of doing it.
//!
//! All panels have the same two scales, so areas may be compared: time goes to the right, bytes go up.

use super::number::{bytes, count, digits};
use super::plot::{Anchor, Ink, Panel, Plot, WIDTH};
use super::{Law, Scale, TICK_GAP, labelled};
use scorecard::Challenge;

/// How to read it.
pub const CAPTION: &str = "Bytes alive over one run above inputs and returned gradients, for a small problem: widths are \
                           measured times, heights what the compiler forecasts for each part. All panels have the same \
                           scales; upright lines are the boundaries of chunks.";

/// One way of computing the loss and its gradient.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Way {
    /// What it is.
    pub name: String,
    /// The bytes alive during each part.
    pub alive: Vec<f64>,
    /// What each part took, in ms.
    pub ms: Vec<f64>,
    /// The parts of each chunk.
    pub chunks: Vec<usize>,
}

/// The measurements that hold a way, and what it is.
const WAYS: [(&str, &str); 3] = [
    ("op_by_op", "all logits, operation by operation"),
    ("whole", "all logits, compiled"),
    ("chunked", "in chunks"),
];

const FIRST: f64 = 58.0;
const LAST: f64 = WIDTH - 8.0;
/// The highest panel, and the least room that one takes.
const HIGHEST: f64 = 190.0;
const LEAST: f64 = 26.0;
/// Room for the words above a panel.
const WORDS: f64 = 26.0;
/// Most parts and chunks that are drawn.
const MOST: usize = 100_000;
const CHUNKS: usize = 1000;

impl Way {
    /// The ways that a challenge's measurements `stairs.WAY`, bytes, and `stairs.WAY_ms` hold, a sample a part, and
    /// those of `stairs.parts`, a sample a chunk.
    pub fn all(challenge: &Challenge) -> Option<Vec<Self>> {
        let get = |name: &str| challenge.measurements.get(&format!("{}.stairs.{name}", challenge.name));
        let parts = get("parts")?.samples.iter().map(|parts| parts.clamp(0.0, MOST as f64) as usize);
        let chunks: Vec<usize> = parts.take(CHUNKS).collect();
        let rows = super::usable(get("rows")?.value)?;
        let way = |(name, says): (&str, &str)| {
            let (alive, ms) = (&get(name)?.samples, &get(&format!("{name}_ms"))?.samples);
            let is_chunked = name == "chunked";
            let name = if is_chunked { format!("{says} of {} rows", count(rows)) } else { says.into() };
            let chunks = if is_chunked { chunks.clone() } else { vec![alive.len()] };
            Self { name, alive: alive.clone(), ms: ms.clone(), chunks }.sound()
        };
        WAYS.into_iter().map(way).collect()
    }

    fn sound(self) -> Option<Self> {
        let is_sound = |value: &f64| (0.0..1e15).contains(value);
        let sound = (1..MOST).contains(&self.alive.len())
            && self.alive.len() == self.ms.len()
            && self.alive.iter().chain(&self.ms).all(is_sound)
            && self.total() > 0.0
            && self.peak() > 0.0;
        sound.then_some(self)
    }

    /// The most bytes alive at once.
    pub fn peak(&self) -> f64 {
        self.alive.iter().copied().fold(0.0, f64::max)
    }

    /// What it takes, in ms.
    pub fn total(&self) -> f64 {
        self.ms.iter().sum()
    }

    /// When each part begins, and when the last one ends.
    fn times(&self) -> Vec<f64> {
        let mut now = 0.0;
        let ends = self.ms.iter().map(|ms| {
            now += ms;
            now
        });
        std::iter::once(0.0).chain(ends).collect()
    }

    /// When each chunk but the first begins.
    fn boundaries(&self) -> Vec<f64> {
        let (times, mut part) = (self.times(), 0);
        let mut begins = Vec::new();
        for parts in self.chunks.iter().take(self.chunks.len().saturating_sub(1)) {
            part = (part + parts).min(self.ms.len());
            begins.push(times[part]);
        }
        begins
    }
}

/// The figure.
pub fn stairs(ways: &[Way]) -> String {
    let most = ways.iter().map(Way::peak).fold(1.0, f64::max);
    let longest = ways.iter().map(Way::total).fold(1e-9, f64::max);
    let across = Scale::new(Law::Linear, [0.0, longest], [FIRST, LAST]);
    let mut plot = Plot::new("Bytes alive while the loss is computed", &describe(ways));
    let mut bottom = 30.0;
    for (way, ink) in ways.iter().zip([Ink::Baseline, Ink::Bound, Ink::Attempt]) {
        let height = (HIGHEST * way.peak() / most).max(LEAST);
        let top = bottom + WORDS;
        bottom = top + height;
        let panel = Panel { left: FIRST, right: LAST, top, bottom };
        let up = Scale::new(Law::Linear, [0.0, most * height / HIGHEST], [bottom, top]);
        one(&mut plot, way, ink, panel, (&across, &up));
    }
    let last = Panel { left: FIRST, right: LAST, top: 30.0, bottom };
    plot.axis(last, &labelled(across, TICK_GAP, "ms".into()));
    plot.finish(bottom + 36.0)
}

/// A way in its panel.
fn one(plot: &mut Plot, way: &Way, ink: Ink, panel: Panel, (across, up): (&Scale, &Scale)) {
    let said = format!("{}: {} in {} ms", way.name, bytes(way.peak()), digits(way.total()));
    plot.text((FIRST, panel.top - 8.0), Anchor::Start, Ink::Text, &said);
    let peak = up.at(way.peak());
    for (y, label) in [(peak, bytes(way.peak())), (panel.bottom, "0".to_owned())] {
        plot.line((FIRST, y), (LAST, y), 1.0, Ink::Grid);
        let is_free = y <= peak || y - peak > 12.0;
        if is_free {
            plot.text((FIRST - 5.0, y + 4.0), Anchor::End, Ink::Quiet, &label);
        }
    }
    let times = way.times();
    let stairs = way.alive.iter().enumerate().map(|(part, alive)| {
        let (left, right, top) = (across.at(times[part]), across.at(times[part + 1]), up.at(*alive));
        super::Rect { x: left, y: top, width: right - left, height: panel.bottom - top }
    });
    let stairs: Vec<super::Rect> = stairs.collect();
    plot.areas(stairs.iter(), ink, 0.35);
    let corners = stairs.iter().flat_map(|stair| [(stair.x, stair.y), (stair.x + stair.width, stair.y)]);
    let begin = std::iter::once((FIRST, panel.bottom));
    let end = stairs.last().map(|stair| (stair.x + stair.width, panel.bottom));
    plot.track(&begin.chain(corners).chain(end).collect::<Vec<_>>(), 1.4, ink);
    for time in way.boundaries() {
        let x = across.at(time);
        plot.line((x, panel.top - 4.0), (x, panel.bottom), 0.8, Ink::Quiet);
    }
}

fn describe(ways: &[Way]) -> String {
    let one = |way: &Way| {
        let chunks =
            if way.chunks.len() > 1 { format!(", {} chunks", way.chunks.len()) } else { String::new() };
        format!("{}: at most {} in {} ms{chunks}", way.name, bytes(way.peak()), digits(way.total()))
    };
    format!("Bytes alive over time. {}.", ways.iter().map(one).collect::<Vec<_>>().join("; "))
}
