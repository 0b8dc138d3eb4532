//! Bars that are stacked of parts, one below the other over one axis: a number in each part that has room for it, and
//! the total behind.

use super::plot::{Anchor, Axis, Ink, Panel, Plot};
use super::{Law, Scale};

/// Left and right end of the axis.
const FIRST: f64 = 58.0;
const LAST: f64 = 384.0;
const TALL: f64 = 22.0;
const PITCH: f64 = 29.0;

/// Most bars that are drawn.
const MOST: usize = 64;

/// A bar.
pub(super) struct Bar {
    pub name: String,
    /// As much of each kind.
    pub parts: Vec<f64>,
    /// What stands behind it.
    pub total: String,
}

/// What bars have in common.
pub(super) struct Bars<'a> {
    /// What the parts are, and the ink of each.
    pub kinds: &'a [(Ink, &'a str)],
    /// Where the axis begins, from the left of the figure beyond what names need otherwise.
    pub indent: f64,
    /// A part's number.
    pub say: fn(f64) -> String,
    /// The axis over a scale.
    pub axis: fn(Scale) -> Axis,
}

impl Bar {
    fn whole(&self) -> f64 {
        self.parts.iter().sum()
    }
}

impl Bars<'_> {
    /// The figure; nothing where there is nothing to draw, or a part that is below 0 or `most_of_all`, or none.
    pub fn draw(&self, title: &str, said: &str, bars: &[Bar], most_of_all: f64) -> Option<String> {
        let most = bars.iter().map(Bar::whole).fold(0.0, f64::max);
        let is_sound = |bar: &Bar| bar.parts.iter().all(|part| (0.0..most_of_all).contains(part));
        if !(1..=MOST).contains(&bars.len()) || !bars.iter().all(is_sound) || most <= 0.0 {
            return None;
        }
        let is_seen = |kind: usize| bars.iter().any(|bar| bar.parts[kind] > 2e-3 * most);
        let shown: Vec<usize> = (0..self.kinds.len()).filter(|kind| is_seen(*kind)).collect();
        let mut plot = Plot::new(title, said);
        let entries: Vec<(Ink, &str)> = shown.iter().map(|kind| self.kinds[*kind]).collect();
        let base = plot.entries(40.0, &entries, |plot, (x, y), ink| {
            plot.area((x, y - 9.0), (x + 11.0, y + 1.0), ink, 0.5);
        });
        let (left, top) = (FIRST + self.indent, base + 12.0);
        let panel = Panel { left, right: LAST, top, bottom: top + PITCH * bars.len() as f64 };
        let axis = (self.axis)(Scale::new(Law::Linear, [0.0, most], [left, LAST]));
        for (i, bar) in bars.iter().enumerate() {
            let top = panel.top + PITCH * i as f64;
            self.one(&mut plot, bar, &shown, (left, top), &axis.scale);
            plot.grid(&[Panel { top: top + TALL, bottom: top + PITCH, ..panel }], &axis, Ink::Grid);
        }
        plot.axis(panel, &axis);
        Some(plot.finish(panel.bottom + 36.0))
    }

    fn one(&self, plot: &mut Plot, bar: &Bar, shown: &[usize], (left, top): (f64, f64), across: &Scale) {
        plot.text((left - 6.0, top + 15.0), Anchor::End, Ink::Quiet, &bar.name);
        let mut begin = 0.0;
        for kind in shown {
            let end = begin + bar.parts[*kind];
            let [left, right] = [begin, end].map(|part| across.at(part));
            let ink = self.kinds[*kind].0;
            plot.area((left, top), (left + (right - left - 0.8).max(0.0), top + TALL), ink, 0.5);
            let said = (self.say)(end - begin);
            if right - left > 5.9 * said.chars().count() as f64 + 3.0 {
                plot.text((f64::midpoint(left, right), top + 15.0), Anchor::Middle, Ink::Quiet, &said);
            }
            begin = end;
        }
        plot.text((across.at(begin) + 6.0, top + 15.0), Anchor::Start, Ink::Text, &bar.total);
    }
}
