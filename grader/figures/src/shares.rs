//! What a rank's device holds at its fullest, for several numbers of ranks: a bar each, stacked by what bytes are for.
//!
//! What lies in shards is at the left, and shrinks with every rank. What a rank needs for its own micro-batch follows,
//! and does not; so the bars show where another rank stops helping.

use std::collections::BTreeMap;

use super::bars::{self, Bars};
use super::number::bytes;
use super::plot::{Axis, Ink, Share};
use super::{Law, Scale, TICK_GAP};

/// Bytes of a rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// What it is of: `4 ranks`.
    pub name: String,
    /// What they are for; what is not there is nothing.
    pub shares: Vec<(Share, f64)>,
}

const GIB: f64 = (1_u64 << 30) as f64;
/// The most bytes of a bar that are drawn.
const MOST_BYTES: f64 = 1e15;

impl Bar {
    /// The bytes of a forecast, by tag. Scratch is left out: how much a processor needs depends on its vectors.
    pub fn of(name: &str, forecast: &BTreeMap<&str, u64>) -> Self {
        let sum = |share: Share| {
            let of = forecast.iter().filter(|(tag, _)| **tag != "scratch" && self::share(tag) == share);
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
pub fn shares(title: &str, all: &[Bar]) -> Option<String> {
    let kinds = Share::ALL.map(|share| (Ink::Share(share), meaning(share)));
    let one = |bar: &Bar| bars::Bar {
        name: bar.name.clone(),
        parts: Share::ALL.iter().map(|share| bar.bytes(*share)).collect(),
        total: bytes(bar.total()),
    };
    let drawn: Vec<bars::Bar> = all.iter().map(one).collect();
    let bars = Bars { kinds: &kinds, indent: 0.0, say: gib, axis: gibibytes };
    bars.draw(title, &describe(all), &drawn, MOST_BYTES)
}

fn gib(bytes: f64) -> String {
    format!("{:.1}", bytes / GIB)
}

/// Round numbers of GiB.
fn gibibytes(scale: Scale) -> Axis {
    let ends = scale.domain();
    let of_gib = Scale::new(Law::Linear, ends.map(|bytes| bytes / GIB), ends.map(|bytes| scale.at(bytes)));
    let ticks = of_gib.ticks(TICK_GAP);
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
