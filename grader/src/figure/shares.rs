//! What a rank's device holds at its fullest, for several numbers of ranks: a bar each, stacked by what bytes are for.
//!
//! What lies in shards is at the left, and shrinks with every rank. What a rank needs for its own micro-batch follows,
//! and does not; so the bars show where another rank stops helping.

use challenges::fsdp::forecast::Forecast;

use super::number::bytes;
use super::plot::{Anchor, Axis, Ink, Panel, Plot, Share};
use super::{Law, Scale, TICK_GAP};

/// Bytes of a rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// What it is of: `4 ranks`.
    pub name: String,
    /// What they are for; what is not there is nothing.
    pub shares: Vec<(Share, f64)>,
}

/// Left and right end of the axis.
const FIRST: f64 = 58.0;
const LAST: f64 = 384.0;
const TALL: f64 = 22.0;
const PITCH: f64 = 29.0;
const GIB: f64 = (1_u64 << 30) as f64;
/// Most bars, and the most bytes of one, that are drawn.
const MOST: usize = 64;
const MOST_BYTES: f64 = 1e15;

impl Bar {
    /// The bytes of a forecast. Scratch is left out: how much a processor needs depends on its vectors.
    pub fn of(name: &str, forecast: &Forecast) -> Self {
        let sum = |share: Share| {
            let of = forecast.bytes.iter().filter(|(tag, _)| **tag != "scratch" && self::share(tag) == share);
            (share, of.map(|(_, bytes)| *bytes as f64).sum())
        };
        Self { name: name.into(), shares: Share::ALL.into_iter().map(sum).collect() }
    }

    /// All of them.
    pub fn total(&self) -> f64 {
        self.shares.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Those that are for one thing.
    pub fn bytes(&self, share: Share) -> f64 {
        self.shares.iter().filter(|(own, _)| *own == share).map(|(_, bytes)| bytes).sum()
    }
}

/// What a device's tag stands for.
fn share(tag: &str) -> Share {
    match tag {
        "weights" => Share::Weights,
        "trained" => Share::Trained,
        "parts" => Share::Gathered,
        "activation" => Share::Activations,
        "arena" => Share::Arena,
        _ => Share::Rest,
    }
}

fn meaning(share: Share) -> &'static str {
    match share {
        Share::Weights => "weights",
        Share::Trained => "adapter, moments",
        Share::Gathered => "gathered",
        Share::Activations => "activations",
        Share::Arena => "arena",
        Share::Rest => "rest",
    }
}

/// The figure; nothing where there are no bytes, or more than make sense.
pub fn shares(title: &str, bars: &[Bar]) -> Option<String> {
    let most = bars.iter().map(Bar::total).fold(0.0, f64::max);
    let is_sound = |bar: &Bar| bar.shares.iter().all(|(_, bytes)| (0.0..MOST_BYTES).contains(bytes));
    if !(1..=MOST).contains(&bars.len()) || !bars.iter().all(is_sound) || most <= 0.0 {
        return None;
    }
    let shown: Vec<Share> = Share::ALL.into_iter().filter(|share| is_shown(bars, *share, most)).collect();
    let mut plot = Plot::new(title, &describe(bars));
    let entries: Vec<(Share, &str)> = shown.iter().map(|share| (*share, meaning(*share))).collect();
    let base = plot.entries(40.0, &entries, |plot, (x, y), share| {
        plot.area((x, y - 9.0), (x + 11.0, y + 1.0), Ink::Share(share), 0.5);
    });
    let panel =
        Panel { left: FIRST, right: LAST, top: base + 12.0, bottom: base + 12.0 + PITCH * bars.len() as f64 };
    let axis = gibibytes(Scale::new(Law::Linear, [0.0, most], [FIRST, LAST]));
    for (i, bar) in bars.iter().enumerate() {
        let top = panel.top + PITCH * i as f64;
        one(&mut plot, bar, &shown, top, &axis.scale);
        plot.grid(&[Panel { top: top + TALL, bottom: top + PITCH, ..panel }], &axis, Ink::Grid);
    }
    plot.axis(panel, &axis);
    Some(plot.finish(panel.bottom + 36.0))
}

/// Whether some bar has enough of it to be seen.
fn is_shown(bars: &[Bar], share: Share, most: f64) -> bool {
    bars.iter().any(|bar| bar.bytes(share) > 2e-3 * most)
}

/// A bar, with the numbers that there is room for, and its total behind it.
fn one(plot: &mut Plot, bar: &Bar, shown: &[Share], top: f64, across: &Scale) {
    plot.text((FIRST - 6.0, top + 15.0), Anchor::End, Ink::Quiet, &bar.name);
    let mut begin = 0.0;
    for share in shown {
        let end = begin + bar.bytes(*share);
        let [left, right] = [begin, end].map(|bytes| across.at(bytes));
        plot.area((left, top), (left + (right - left - 0.8).max(0.0), top + TALL), Ink::Share(*share), 0.5);
        let said = gib(end - begin);
        if right - left > 5.9 * said.chars().count() as f64 + 3.0 {
            plot.text((f64::midpoint(left, right), top + 15.0), Anchor::Middle, Ink::Quiet, &said);
        }
        begin = end;
    }
    let total = bytes(bar.total());
    plot.text((across.at(begin) + 6.0, top + 15.0), Anchor::Start, Ink::Text, &total);
}

fn gib(bytes: f64) -> String {
    format!("{:.1}", bytes / GIB)
}

/// Round numbers of GiB.
fn gibibytes(scale: Scale) -> Axis {
    let [low, high] = scale.domain().map(|bytes| bytes / GIB);
    let ticks = Scale::new(Law::Linear, [low, high], [FIRST, LAST]).ticks(TICK_GAP);
    let ticks = ticks.into_iter().map(|gib| (gib * GIB, super::tick(gib))).collect();
    Axis { scale, ticks, label: "GiB of a rank".into() }
}

fn describe(bars: &[Bar]) -> String {
    let one = |bar: &Bar| {
        let there = bar.shares.iter().filter(|(_, bytes)| *bytes > 0.0);
        let parts: Vec<String> =
            there.map(|(share, of)| format!("{} {}", meaning(*share), bytes(*of))).collect();
        format!("{}: {}, of which {}.", bar.name, bytes(bar.total()), parts.join(", "))
    };
    format!(
        "Bytes that a rank's device holds at its fullest. {}",
        bars.iter().map(one).collect::<Vec<_>>().join(" ")
    )
}
