//! A step of one rank twice: its gathers started when they are needed, and started early.
//!
//! One lane has what is gathered, the other what is computed; the numbers are the model's pieces. Under a gather that
//! begins when its piece is next the lower lane is empty, since the rank waits for it; under one that began early it is
//! full. Both steps stand on one axis. Gathers that are in flight at once share the height of their lane.

use reference::schedule::Span;

use super::lane::{self, Band, Done};
use super::layers::Rect;
use super::number::digits;
use super::plot::{Anchor, Ink, Panel, Pass, Plot, WIDTH};
use super::{Law, Scale, TICK_GAP, labelled};
use scorecard::Challenge;

/// How to read it.
pub const CAPTION: &str = "A step of one rank on one axis of time, with each piece's weights gathered when they are \
                           needed and with gathers that start early. The empty ground of the lower lane is a rank that \
                           waits; the numbers are the pieces of the model.";

/// A step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Way {
    /// Gathers: the piece, and when.
    pub gathers: Vec<(Option<usize>, Span)>,
    /// What is computed: what it is, the piece, and when. One follows the other.
    pub computes: Vec<(Pass, Option<usize>, Span)>,
}

/// Both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overlap {
    /// Gathers are started when they are needed.
    pub late: Way,
    /// Gathers are started early.
    pub early: Way,
}

const FIRST: f64 = 70.0;
const LAST: f64 = WIDTH - 8.0;
const TALL: f64 = 24.0;
const GAP: f64 = 5.0;
/// Most gathers at once that have a part of the lane of their own.
const MOST_ROWS: usize = 4;

impl Way {
    /// The step that a challenge's measurements `step.WAY.gather`, `.forward`, `.backward` and `.update` hold, in ms:
    /// samples are flat triples of piece, start and end.
    fn of(challenge: &Challenge, way: &str) -> Option<Self> {
        let get = |what: &str| {
            lane::triples(challenge.measurements.get(&format!("{}.step.{way}.{what}", challenge.name))?)
        };
        let mut computes = Vec::new();
        for (pass, what) in
            [(Pass::Forward, "forward"), (Pass::Backward, "backward"), (Pass::Weight, "update")]
        {
            computes.extend(get(what)?.into_iter().map(|(piece, span)| (pass, piece, span)));
        }
        Some(Self { gathers: get("gather")?, computes })
    }

    /// When the last of all ends.
    pub fn end(&self) -> f64 {
        let computes = self.computes.iter().map(|(.., span)| span.end);
        self.gathers.iter().map(|(_, span)| span.end).chain(computes).fold(0.0, f64::max)
    }

    /// The share of the step in which nothing is computed.
    pub fn waits(&self) -> f64 {
        let busy: f64 = self.computes.iter().map(|(.., span)| span.end - span.start).sum();
        (1.0 - busy / self.end()).max(0.0)
    }

    fn is_sound(&self) -> bool {
        let computes: Vec<Span> = self.computes.iter().map(|(.., span)| *span).collect();
        let gathers = self.gathers.iter().map(|(_, span)| *span);
        gathers.chain(computes.iter().copied()).all(lane::is_sound)
            && !computes.is_empty()
            && lane::follow(&computes)
            && self.end() > 0.0
    }
}

impl Overlap {
    /// The steps that a challenge's measurements `step.late` and `step.early` hold.
    pub fn of(challenge: &Challenge) -> Option<Self> {
        let both = Self { late: Way::of(challenge, "late")?, early: Way::of(challenge, "early")? };
        both.is_sound().then_some(both)
    }

    fn is_sound(&self) -> bool {
        self.late.is_sound() && self.early.is_sound()
    }
}

/// The figure; nothing where a time makes no sense.
pub fn steps(overlap: &Overlap, title: &str) -> Option<String> {
    if !overlap.is_sound() {
        return None;
    }
    let across = Scale::new(Law::Linear, [0.0, overlap.late.end().max(overlap.early.end())], [FIRST, LAST]);
    let axis = labelled(across.clone(), TICK_GAP, "ms".into());
    let mut plot = Plot::new(title, &describe(overlap));
    let mut bottom = legend(&mut plot);
    for (says, way) in
        [("gathered when it is needed", &overlap.late), ("gathers started early", &overlap.early)]
    {
        let said = format!("{says}: {} ms, {} waiting", digits(way.end()), percent(way.waits()));
        plot.text((8.0, bottom + 24.0), Anchor::Start, Ink::Text, &said);
        let top = bottom + 32.0;
        bottom = top + 2.0 * (TALL + GAP);
        plot.grid(&[Panel { left: FIRST, right: LAST, top: bottom - GAP, bottom }], &axis, Ink::Grid);
        lanes(&mut plot, way, top, &across);
    }
    plot.axis(Panel { left: FIRST, right: LAST, top: 0.0, bottom }, &axis);
    Some(plot.finish(bottom + 36.0))
}

/// What the colours are; the base of the last line.
fn legend(plot: &mut Plot) -> f64 {
    let meanings = [
        (Pass::Fetch, "gather"),
        (Pass::Forward, "forward"),
        (Pass::Backward, "backward"),
        (Pass::Weight, "update"),
    ];
    plot.entries(40.0, &meanings, |plot, (x, y), pass| match pass {
        Pass::Fetch => plot.area((x, y - 10.0), (x + 11.2, y + 1.0), Ink::Pass(pass), 0.5),
        _ => lane::swatch(plot, (x, y), pass),
    })
}

/// What is gathered above what is computed.
fn lanes(plot: &mut Plot, way: &Way, top: f64, across: &Scale) {
    let (gathers, computes) = (Band { top, height: TALL }, Band { top: top + TALL + GAP, height: TALL });
    for (band, name) in [(gathers, "gathers"), (computes, "computes")] {
        plot.text((8.0, band.top + 16.0), Anchor::Start, Ink::Quiet, name);
        plot.area((FIRST, band.top), (across.at(way.end()), band.bottom()), Ink::Grid, 0.5);
    }
    let rows = apart(&way.gathers);
    let height = TALL / rows.len().max(1) as f64;
    for (row, all) in rows.iter().enumerate() {
        let band = Band { top: top + height * row as f64, height };
        let rects: Vec<Rect> = all.iter().map(|done| lane::place(done.span, across, band)).collect();
        plot.areas(rects.iter(), Ink::Pass(Pass::Fetch), 0.5);
        lane::numbers(plot, all, across, band, |_| String::new());
    }
    let done = |(pass, number, span): &(Pass, Option<usize>, Span)| Done {
        passes: vec![*pass],
        number: *number,
        span: *span,
    };
    let all: Vec<Done> = way.computes.iter().map(done).collect();
    lane::draw(plot, &all, across, computes, 0.5);
    lane::numbers(plot, &all, across, computes, |_| String::new());
}

/// Gathers in rows in which none begins before the one before it has ended, as far as there are rows.
fn apart(gathers: &[(Option<usize>, Span)]) -> Vec<Vec<Done>> {
    let mut sorted = gathers.to_vec();
    sorted.sort_by(|(_, a), (_, b)| a.start.total_cmp(&b.start));
    let mut rows: Vec<Vec<Done>> = Vec::new();
    let end = |row: &Vec<Done>| row.last().map_or(0.0, |done| done.span.end);
    for (number, span) in sorted {
        let done = Done { passes: vec![Pass::Fetch], number, span };
        let free = rows.iter().position(|row| end(row) <= span.start);
        let soonest = || (0..rows.len()).min_by(|a, b| end(&rows[*a]).total_cmp(&end(&rows[*b])));
        match free.or_else(|| soonest().filter(|_| rows.len() == MOST_ROWS)) {
            Some(row) => rows[row].push(done),
            None => rows.push(vec![done]),
        }
    }
    rows
}

fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

fn describe(overlap: &Overlap) -> String {
    let one = |says: &str, way: &Way| {
        let (gathers, computes) = (way.gathers.len(), way.computes.len());
        let (end, waits) = (digits(way.end()), percent(way.waits()));
        format!(
            "{says}: {gathers} gathers beside {computes} computations in {end} ms, of which {waits} nothing is computed"
        )
    };
    let (late, early) = (one("Gathered when needed", &overlap.late), one("gathered early", &overlap.early));
    format!("{late}; {early}.")
}
