//! Boxes in a row of time: what a rank does, and when.
//!
//! Each [`Pass`] has a colour and a shape. The forward is as high as the row; so is the backward, under a thick edge;
//! recomputation is lower, and what is fetched or summed up for weights takes less than half. A box that does several
//! things is that of the chief of them, over a strip for each other.
//!
//! In a scorecard such a row is a measurement whose samples are flat triples: a number, a start and an end.

use reference::schedule::Span;

use super::Scale;
use super::layers::Rect;
use super::plot::{Anchor, Ink, Pass, Plot};
use scorecard::Measurement;

/// Most boxes that are drawn of one measurement.
const MOST: usize = 20_000;

/// Something that a rank did.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Done {
    /// What, at least one.
    pub passes: Vec<Pass>,
    /// For which micro-batch or piece.
    pub number: Option<usize>,
    /// When.
    pub span: Span,
}

/// Where a row lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Band {
    pub top: f64,
    pub height: f64,
}

impl Band {
    pub fn bottom(self) -> f64 {
        self.top + self.height
    }
}

/// The triples of a measurement in ms; nothing where one is broken. A number of -1 is none.
pub(super) fn triples(measurement: &Measurement) -> Option<Vec<(Option<usize>, Span)>> {
    let samples = &measurement.samples;
    let is_whole = samples.len() % 3 == 0 && samples.len() / 3 <= MOST && measurement.unit == "ms";
    is_whole.then(|| samples.chunks_exact(3).map(triple).collect())?
}

fn triple(samples: &[f64]) -> Option<(Option<usize>, Span)> {
    let (number, span) = (samples[0], Span { start: samples[1], end: samples[2] });
    let is_number = number.fract() == 0.0 && (-1.0..1e6).contains(&number);
    (is_number && is_sound(span)).then_some(((number >= 0.0).then_some(number as usize), span))
}

/// Whether it ends after it begins, at a time that a picture can show.
pub(super) fn is_sound(span: Span) -> bool {
    (0.0..1e12).contains(&span.start) && (span.start..1e12).contains(&span.end)
}

/// Whether spans of one worker follow each other, but for a thousandth of all the time.
pub(super) fn follow(spans: &[Span]) -> bool {
    let mut spans = spans.to_vec();
    spans.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.end.total_cmp(&b.end)));
    let slack = 1e-3 * spans.iter().map(|span| span.end).fold(0.0, f64::max);
    spans.windows(2).all(|pair| pair[1].start >= pair[0].end - slack)
}

/// A shape of a box.
struct Shape {
    pass: Pass,
    at: Rect,
    solid: bool, // an edge or a strip
}

/// Where a time's box lies: it begins where its time begins, and ends a hair before its time ends.
pub(super) fn place(span: Span, across: &Scale, band: Band) -> Rect {
    let [left, right] = [span.start, span.end].map(|time| across.at(time));
    let width = right - left;
    let gap = if width > 3.0 { 0.8 } else { 0.2 * width };
    Rect { x: left, y: band.top, width: width - gap, height: band.height }
}

/// Boxes over the ground of a row, which is seen where nothing is done, faint or strong.
pub(super) fn draw(plot: &mut Plot, all: &[Done], across: &Scale, band: Band, opacity: f64) {
    let shapes: Vec<Shape> = all.iter().flat_map(|done| shapes(done, across, band)).collect();
    for pass in Pass::ALL {
        let of = |solid| shapes.iter().filter(move |shape| shape.pass == pass && shape.solid == solid);
        plot.areas(of(false).map(|shape| &shape.at), Ink::Pass(pass), opacity);
        plot.areas(of(true).map(|shape| &shape.at), Ink::Pass(pass), 0.95);
    }
}

fn shapes(done: &Done, across: &Scale, band: Band) -> Vec<Shape> {
    let (at, chief) = (place(done.span, across, band), chief(&done.passes));
    let height = band.height * share(chief);
    let body = Rect { y: band.bottom() - height, height, ..at };
    let thick = 0.12 * band.height;
    let edge = (chief == Pass::Backward).then_some(Shape {
        pass: chief,
        at: Rect { height: thick, ..at },
        solid: true,
    });
    let others = done.passes.iter().filter(|pass| **pass != chief).enumerate();
    let strip = |(i, pass): (usize, &Pass)| {
        let y = band.bottom() - thick * (i + 1) as f64;
        Shape { pass: *pass, at: Rect { y, height: thick, ..at }, solid: true }
    };
    std::iter::once(Shape { pass: chief, at: body, solid: false })
        .chain(edge)
        .chain(others.map(strip))
        .collect()
}

/// What a box that does several things is drawn as.
fn chief(passes: &[Pass]) -> Pass {
    let order = [Pass::Backward, Pass::Forward, Pass::Recompute, Pass::Weight];
    order.into_iter().find(|pass| passes.contains(pass)).unwrap_or(Pass::Fetch)
}

/// How much of a row's height it takes, from below.
fn share(pass: Pass) -> f64 {
    match pass {
        Pass::Forward | Pass::Backward => 1.0,
        Pass::Recompute => 0.75,
        Pass::Fetch | Pass::Weight => 0.4,
    }
}

/// The numbers in boxes of a row, where there is room: after the letters of what is done, if `letters` gives any.
pub(super) fn numbers(
    plot: &mut Plot,
    all: &[Done],
    across: &Scale,
    band: Band,
    letters: impl Fn(&Done) -> String,
) {
    for done in all.iter().filter(|_| band.height > 11.0) {
        let Some(number) = done.number else { continue };
        let (at, strips) = (place(done.span, across, band), done.passes.len() - 1);
        let room = |text: &String| {
            let signs = text.chars();
            signs.map(|sign| if sign.is_ascii_digit() { 6.6 } else { 8.4 }).sum::<f64>() + 3.0 <= at.width
        };
        let long = format!("{}{number}", letters(done));
        let base = band.bottom() - (band.height - 8.0) / 2.0 - 1.6 * strips as f64;
        if let Some(text) = [long, number.to_string()].into_iter().find(room) {
            plot.text((at.x + at.width / 2.0, base), Anchor::Middle, Ink::Quiet, &text);
        }
    }
}

/// Boxes with their meanings, from the left, in as many lines as it takes; the base of the last one.
pub(super) fn legend(plot: &mut Plot, y: f64, entries: &[(Pass, &str)]) -> f64 {
    plot.entries(y, entries, swatch)
}

/// A box as a legend has it.
pub(super) fn swatch(plot: &mut Plot, (x, y): (f64, f64), pass: Pass) {
    let done = Done { passes: vec![pass], number: None, span: Span { start: 0.0, end: 1.0 } };
    let across = Scale::new(super::Law::Linear, [0.0, 1.0], [x, x + 12.0]);
    draw(plot, &[done], &across, Band { top: y - 10.0, height: 11.0 }, 0.5);
}
