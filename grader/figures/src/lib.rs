//! Pictures of a challenge's measurements, as SVG written by hand.
//!
//! A figure is a pure function from a [`Challenge`] to `Option<String>`: `None` where the measurements it
//! needs are missing, otherwise one SVG element that stands alone - style, title and a description in
//! words are inside, nothing is loaded, and it follows the light or dark scheme around it. The pieces
//! ([`Scale`], [`Axis`], [`Panel`], [`Plot`]) know nothing of challenges.
//!
//! Each figure answers one question. [`speedup`]: is the attempt faster, surely, and past which of the published
//! thresholds? [`where_time_stands`]: how much of the way from the baseline to the machine's limit is done? [`strip`]:
//! what do the raw samples look like before anything was averaged? Of a compiled step: [`memory`]: where does each
//! buffer lie, and for how long? [`timeline`]: what does the step spend its time on? [`curves`]: is the compiled run,
//! or the chunked one, the same run? Of a chunked loss: [`chunks`]: which bytes are alive, and when? [`sizes`]: what
//! does a chunk's size cost? Of a run on ranks: [`gantt`]: does a pipeline keep to its schedule? [`overlap`]: how long
//! does a step wait for its gathers? Of a classifier: [`confusion`]: which classes does it still take for which?
//! [`graph`], [`lives`], [`prompt`], [`shares`], [`attention`] and [`file`] draw what no scorecard holds - a graph, its
//! launches, a model's text, a rank's bytes, a mask, a file - and are for the book. Times differ tenfold between cases
//! and meaning lies in ratios, hence logarithmic axes; where thresholds lie close together the speed-up axis is
//! stretched around them and says so.

mod bars;
mod lane;
mod layout;
mod plot;
mod scale;
mod speedup;
mod staircase;
mod stands;
mod strip;

pub mod attention;
pub mod beside;
pub mod chunks;
pub mod confusion;
pub mod curves;
pub mod file;
pub mod gantt;
pub mod graph;
pub mod layers;
pub mod lives;
pub mod memory;
pub mod number;
pub mod overlap;
pub mod parts;
pub mod prompt;
pub mod shares;
pub mod sizes;
pub mod timeline;
pub mod timing;
pub mod vision;

pub use layers::Rect;
pub use plot::{Anchor, Axis, CODE, Ink, Panel, Pass, Plot, Share, StepKind, WIDTH, escape, stacked};
pub use scale::{Law, Piece, Scale};
pub use speedup::speedup;
pub use staircase::staircase;
pub use stands::where_time_stands;
pub use strip::strip;

use layout::{TICK_GAP, labelled, usable};
use number::tick;
use scorecard::Challenge;

/// A figure with the name of its file, without an extension.
#[derive(Clone, Debug)]
pub struct Figure {
    /// `speedup`, `where_time_stands`, `staircase`, `strip`, `memory`, `timeline`, `losses`,
    /// `chunks`, `sizes`, `training`, `ranks`, `gantt`, `overlap` or `confusion`.
    pub name: &'static str,
    /// One sentence on how to read it.
    pub caption: &'static str,
    /// The SVG element.
    pub svg: String,
}

/// Every figure that the challenge's measurements allow.
pub fn all(challenge: &Challenge) -> Vec<Figure> {
    let figure = |name, caption, svg: Option<String>| svg.map(|svg| Figure { name, caption, svg });
    let figures = [
        figure(
            "speedup",
            "Baseline time over attempt time with its 95 % interval. A threshold counts once the whole interval \
             lies to its right.",
            speedup(challenge),
        ),
        figure(
            "where_time_stands",
            "From the machine's limit to the baseline: what is won is solid, what is left is faint. Equal lengths \
             are equal ratios.",
            where_time_stands(challenge),
        ),
        figure(
            "staircase",
            "The same weight by every version, from the library's three passes to the fastest, and what the machine \
             needs to move the bytes. Medians; equal lengths are equal ratios.",
            staircase(challenge),
        ),
        figure(
            "strip",
            "Every sample as it was taken, the first on top: a slanting column is drift, a lone dot a disturbance.",
            strip(challenge),
        ),
        figure(
            "memory",
            "Above, each buffer where it lies in the arena and while it lives; below, the bytes alive at once. What is \
             free between the floor and the arena is lost to gaps.",
            memory::Memory::of(challenge).map(|memory| memory::staircase(&memory, "The arena over one step")),
        ),
        figure(
            "timeline",
            "One step, launch by launch, broken into lines like a text. A kind of work has a colour and a height; the \
             numbers are the longest launches.",
            timeline::Step::of(challenge).map(|step| timeline::timeline(&step, "One step")),
        ),
        figure(
            "losses",
            "The same training run twice. One line should lie on the other; beneath is what is between them, which is \
             rounding as long as it is far below what a step changes.",
            curves::Runs::of(challenge).map(|runs| curves::losses(&runs, "The loss, compiled and not")),
        ),
        figure("chunks", chunks::CAPTION, chunks::Way::all(challenge).map(|ways| chunks::stairs(&ways))),
        figure("sizes", sizes::CAPTION, sizes::Sizes::of(challenge).map(|sizes| sizes::costs(&sizes))),
        figure(
            "training",
            "The same training run with the loss in one piece and in chunks. One line should lie on the other; beneath \
             is what is between them, between the dashed lines of what is allowed.",
            curves::Runs::chunked(challenge, scorecard::LOSSES_APART)
                .map(|runs| curves::losses(&runs, "The loss, whole and in chunks")),
        ),
        figure(
            "ranks",
            "The same training run on one rank and on several. One line should lie on the other; beneath is what is \
             between them, between the dashed lines of what is allowed.",
            curves::Runs::ranks(challenge, scorecard::LOSSES_APART)
                .map(|runs| curves::losses(&runs, "The loss, on one rank and on several")),
        ),
        figure(
            "gantt",
            gantt::CAPTION,
            gantt::Gantt::of(challenge).and_then(|gantt| gantt::chart("A step of the pipeline", &[gantt])),
        ),
        figure(
            "overlap",
            overlap::CAPTION,
            overlap::Overlap::of(challenge)
                .and_then(|both| overlap::steps(&both, "A step with its gathers, late and early")),
        ),
        figure(
            "confusion",
            confusion::CAPTION,
            confusion::confusions("A classifier as it learns", &confusion::Look::all(challenge)),
        ),
    ];
    figures.into_iter().flatten().collect()
}
