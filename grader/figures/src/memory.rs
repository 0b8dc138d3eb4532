//! The memory of a plan: a rectangle for each buffer, as wide as it lives and as high as its bytes, where it lies.
//!
//! Beneath it the bytes that are alive during each launch. The highest of these stairs is the floor: no arena can be
//! smaller. What the arena has beyond it are gaps.

use super::layers::Rect;
use super::number::bytes;
use super::plot::{Anchor, Ink, Panel, Plot, WIDTH};
use super::{Law, Scale, TICK_GAP, labelled};
use scorecard::Challenge;

/// A buffer in an arena.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Buffer {
    /// Its first byte.
    pub place: f64,
    /// Its size.
    pub bytes: f64,
    /// The first launch that touches it.
    pub first: usize,
    /// The last one; for a result the number after the last launch.
    pub last: usize,
}

/// A plan's memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// What lies in the arena.
    pub buffers: Vec<Buffer>,
    /// How many launches there are.
    pub launches: usize,
    /// Bytes of the arena.
    pub arena: f64,
    /// Bytes of the arena without the attempt, if known, and what that is.
    pub without: Option<(f64, String)>,
}

/// What a life says of a buffer.
const KINDS: [(Ink, &str); 3] =
    [(Ink::Bound, "a result"), (Ink::Attempt, "kept for long"), (Ink::Baseline, "soon free again")];

const FIRST: f64 = 58.0;
const LAST: f64 = WIDTH - 8.0;
/// Most launches and buffers that are drawn.
const MOST: usize = 100_000;

impl Memory {
    /// The memory that a challenge's measurements `plan.place`, `plan.bytes`, `plan.first` and `plan.last` hold, a
    /// sample for each buffer.
    pub fn of(challenge: &Challenge) -> Option<Self> {
        let get = |name: &str| challenge.measurements.get(&format!("{}.{name}", challenge.name));
        let [places, sizes, first, last] =
            [get("plan.place")?, get("plan.bytes")?, get("plan.first")?, get("plan.last")?]
                .map(|column| column.samples.as_slice());
        let lengths = [sizes.len(), first.len(), last.len()];
        let whole = |value: &f64| (0.0..MOST as f64).contains(value);
        let sound = lengths.iter().all(|length| *length == places.len())
            && (1..MOST).contains(&places.len())
            && first.iter().chain(last).all(whole)
            && places.iter().chain(sizes).all(|value| (0.0..1e15).contains(value));
        let buffer = |i: usize| Buffer {
            place: places[i],
            bytes: sizes[i],
            first: first[i].min(last[i]) as usize,
            last: last[i].max(first[i]) as usize,
        };
        let buffers: Vec<Buffer> = if sound { (0..places.len()).map(buffer).collect() } else { return None };
        let without = super::timing::versus(challenge).into_iter().find(|pair| pair.what == "arena");
        let without = without.and_then(|pair| Some((super::usable(pair.baseline?.value)?, pair.way)));
        let launches = buffers.iter().map(|buffer| buffer.last).max().unwrap_or(0);
        let arena = super::usable(get("plan.place")?.value)?;
        Some(Self { buffers, launches, arena, without })
    }

    /// The bytes alive during each launch, and those of the results.
    pub fn alive(&self) -> Vec<f64> {
        let mut changes = vec![0.0; self.launches + 2];
        for buffer in &self.buffers {
            changes[buffer.first] += buffer.bytes;
            changes[buffer.last.min(self.launches) + 1] -= buffer.bytes;
        }
        let sums = changes.iter().scan(0.0, |sum, change| {
            *sum += change;
            Some(*sum)
        });
        sums.take(self.launches + 1).collect()
    }

    /// The most bytes alive at once.
    pub fn floor(&self) -> f64 {
        self.alive().into_iter().fold(0.0, f64::max)
    }

    fn kind(&self, buffer: &Buffer) -> Ink {
        match buffer.last - buffer.first {
            _ if buffer.last >= self.launches => Ink::Bound,
            life if life * 8 > self.launches => Ink::Attempt,
            _ => Ink::Baseline,
        }
    }
}

/// The places of the buffers over the launches, and what is alive beneath it.
pub fn staircase(memory: &Memory, title: &str) -> String {
    let floor = memory.floor();
    let mut plot = Plot::new(title, &describe(memory, floor));
    legend(&mut plot);
    let upper = Panel { left: FIRST, right: LAST, top: 64.0, bottom: 284.0 };
    let lower = Panel { top: 336.0, bottom: 450.0, ..upper };
    let across = Scale::new(Law::Linear, [0.0, memory.launches as f64 + 1.0], [FIRST, LAST]);
    places(&mut plot, memory, upper, &across);
    alive(&mut plot, memory, lower, &across, floor);
    let ticks = labelled(across, TICK_GAP + 10.0, "launch".into());
    plot.axis(lower, &ticks);
    plot.finish(lower.bottom + 36.0)
}

fn legend(plot: &mut Plot) {
    let mut x = FIRST;
    for (ink, meaning) in KINDS {
        plot.area((x, 30.0), (x + 10.0, 39.0), ink, 0.8);
        plot.text((x + 14.0, 39.0), Anchor::Start, Ink::Quiet, meaning);
        x += 34.0 + 6.0 * meaning.chars().count() as f64;
    }
}

/// Where each buffer lies, and when.
pub fn rectangles(memory: &Memory, across: &Scale, up: &Scale) -> Vec<(Ink, Rect)> {
    let one = |buffer: &Buffer| {
        let (left, right) = (across.at(buffer.first as f64), across.at(buffer.last as f64 + 1.0));
        let (top, bottom) = (up.at(buffer.place + buffer.bytes), up.at(buffer.place));
        (memory.kind(buffer), Rect { x: left, y: top, width: right - left, height: bottom - top })
    };
    memory.buffers.iter().map(one).collect()
}

fn places(plot: &mut Plot, memory: &Memory, panel: Panel, across: &Scale) {
    let up = Scale::new(Law::Linear, [0.0, memory.arena], [panel.bottom, panel.top]);
    heights(plot, panel, &up, "where each buffer lies", 5.0);
    let all = rectangles(memory, across, &up);
    for (ink, _) in KINDS {
        plot.areas(all.iter().filter(|(kind, _)| *kind == ink).map(|(_, at)| at), ink, 0.8);
    }
    plot.line((FIRST, panel.top), (LAST, panel.top), 1.5, Ink::Attempt);
}

fn alive(plot: &mut Plot, memory: &Memory, panel: Panel, across: &Scale, floor: f64) {
    let without = memory.without.as_ref().map_or(0.0, |(bytes, _)| *bytes);
    let top = memory.arena.max(without) * 1.08;
    let up = Scale::new(Law::Linear, [0.0, top], [panel.bottom, panel.top]);
    heights(plot, panel, &up, "alive at once", 20.0);
    let stairs = memory.alive();
    let corners = stairs
        .iter()
        .enumerate()
        .flat_map(|(i, alive)| [i, i + 1].map(|launch| (across.at(launch as f64), up.at(*alive))));
    plot.track(&corners.collect::<Vec<_>>(), 1.5, Ink::Baseline);
    let mut x = FIRST;
    let without = memory.without.iter().map(|(most, way)| (Ink::Threshold, way.as_str(), *most));
    for (ink, name, most) in
        [(Ink::Attempt, "arena", memory.arena), (Ink::Bound, "floor", floor)].into_iter().chain(without)
    {
        let said = format!("{name} {}", bytes(most));
        plot.line((FIRST, up.at(most)), (LAST, up.at(most)), 1.3, ink);
        plot.line((x, panel.top - 9.0), (x + 14.0, panel.top - 9.0), 1.5, ink);
        plot.text((x + 18.0, panel.top - 5.0), Anchor::Start, Ink::Quiet, &said);
        x += 32.0 + 6.2 * said.chars().count() as f64;
    }
}

/// Lines at round numbers of bytes.
fn heights(plot: &mut Plot, panel: Panel, up: &Scale, label: &str, above: f64) {
    let most = up.domain()[1];
    let step = (most / 4.0).log2().ceil().exp2();
    for tick in (0..=4).map(|i| f64::from(i) * step).filter(|tick| *tick <= most) {
        let y = up.at(tick);
        plot.line((panel.left, y), (panel.right, y), 1.0, Ink::Grid);
        plot.text((panel.left - 5.0, y + 4.0), Anchor::End, Ink::Quiet, &bytes(tick));
    }
    plot.text((panel.left, panel.top - above), Anchor::Start, Ink::Quiet, label);
}

fn describe(memory: &Memory, floor: f64) -> String {
    let without = match &memory.without {
        Some((most, way)) => format!(" {way} it is {}.", bytes(*most)),
        None => String::new(),
    };
    format!(
        "{} buffers over {} launches in an arena of {}; at most {} are alive at once.{without}",
        memory.buffers.len(),
        memory.launches,
        bytes(memory.arena),
        bytes(floor)
    )
}
