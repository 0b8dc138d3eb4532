//! The Gantt chart of a schedule: a row for each rank, a box for each operation, as it was simulated and as it ran.
//!
//! Simulated boxes are high and pale, with the number of their micro-batch; the thin strong ones beneath them are
//! measured. Both stand on one axis of time, so a step that leaves its schedule is seen to drift to the right. The
//! ground of a row is idle time. What a box looks like says `lane.rs`.
//!
//! Idle shares and bubbles are those of [`Timeline`]: of the time from 0 to the end of the last operation on any rank.
//! Several charts share one axis, so that their lengths may be compared.

use reference::schedule::{Kind, Kinds, Schedule, Span, Timeline};

use super::lane::{self, Band, Done};
use super::number::digits;
use super::plot::{Anchor, Axis, Ink, Panel, Pass, Plot, WIDTH};
use super::{Law, Scale, TICK_GAP, labelled};
use scorecard::{Challenge, Measurement};

/// How to read it.
pub const CAPTION: &str = "A step of a pipeline, a row for each rank: above and pale as its schedule is simulated with \
                           the times of its operations, below and strong as it ran. A box is an operation, its number \
                           the micro-batch; the empty ground of a row is idle time, whose share stands at the right.";

/// An operation and when it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// What it does, at least one thing.
    pub kinds: Kinds,
    /// For which micro-batch; a dequantisation alone is for none.
    pub micro_batch: Option<usize>,
    /// From when to when, from the beginning of the step.
    pub span: Span,
}

/// What a rank does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// As it is simulated.
    pub simulated: Vec<Work>,
    /// As it ran; nothing where it was not measured.
    pub measured: Vec<Work>,
}

/// What all ranks do in a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gantt {
    /// What it is called, where several stand together.
    pub name: String,
    /// What time is counted in.
    pub unit: String,
    /// A row for each rank.
    pub ranks: Vec<Row>,
}

/// Most ranks, and operations of all, that are drawn.
const MOST_RANKS: usize = 64;
const MOST: usize = 20_000;

/// Left and right end of the axis.
const FIRST: f64 = 22.0;
const LAST: f64 = 410.0;
const RIGHT: f64 = WIDTH - 8.0;
/// Heights of simulated and of measured boxes.
const TALL: f64 = 20.0;
const THIN: f64 = 9.0;

impl Gantt {
    /// A schedule as it is simulated, and as it ran if that was measured.
    pub fn new(
        (name, unit): (&str, &str),
        schedule: &Schedule,
        simulated: &Timeline,
        measured: Option<&Timeline>,
    ) -> Self {
        let works = |rank: usize, timeline: &Timeline| -> Vec<Work> {
            let spans = timeline.spans().get(rank).into_iter().flatten();
            let all = schedule.ranks()[rank].iter().zip(spans);
            all.map(|(operation, span)| Work {
                kinds: operation.kinds,
                micro_batch: operation.has_micro_batch().then_some(operation.micro_batch),
                span: *span,
            })
            .collect()
        };
        let row = |rank| Row {
            simulated: works(rank, simulated),
            measured: measured.map_or_else(Vec::new, |timeline| works(rank, timeline)),
        };
        let ranks = (0..schedule.ranks().len()).map(row).collect();
        Self { name: name.into(), unit: unit.into(), ranks }
    }

    /// The step that a challenge's measurements `gantt.simulated.RANK.KINDS` and `gantt.measured.RANK.KINDS` hold, in
    /// ms: samples are flat triples of micro-batch, start and end, and the micro-batch of a `D` is -1.
    pub fn of(challenge: &Challenge) -> Option<Self> {
        let mut gantt = Self { unit: "ms".into(), ..Self::default() };
        let before = format!("{}.gantt.", challenge.name);
        for (name, measurement) in &challenge.measurements {
            if let Some(rest) = name.strip_prefix(&before) {
                gantt.add(rest, measurement)?;
            }
        }
        gantt.is_sound().then_some(gantt)
    }

    /// Adds what `simulated.RANK.KINDS` or `measured.RANK.KINDS` holds; nothing if it makes no sense.
    fn add(&mut self, name: &str, measurement: &Measurement) -> Option<()> {
        let mut words = name.split('.');
        let (which, rank, letters) = (words.next()?, words.next()?, words.next()?);
        let number: usize = rank.parse().ok().filter(|number| *number < MOST_RANKS)?;
        let kinds = letters.chars().map(Kind::of_letter).collect::<Option<Kinds>>()?;
        if words.next().is_some() || number.to_string() != rank || kinds.to_string() != letters {
            return None;
        }
        let is_fetch = letters == "D";
        let triples = lane::triples(measurement)?;
        if triples.iter().any(|(micro_batch, _)| micro_batch.is_none() != is_fetch) {
            return None;
        }
        self.ranks.resize_with(self.ranks.len().max(number + 1), Row::default);
        let works = triples.into_iter().map(|(micro_batch, span)| Work { kinds, micro_batch, span });
        match which {
            "simulated" => self.ranks[number].simulated.extend(works),
            "measured" => self.ranks[number].measured.extend(works),
            _ => return None,
        }
        Some(())
    }

    /// When everything runs, as it is simulated.
    pub fn simulated(&self) -> Timeline {
        self.timeline(|row| &row.simulated)
    }

    /// When everything ran, if it was measured.
    pub fn measured(&self) -> Option<Timeline> {
        let is_measured = self.ranks.iter().any(|row| !row.measured.is_empty());
        is_measured.then(|| self.timeline(|row| &row.measured))
    }

    fn timeline(&self, of: impl Fn(&Row) -> &Vec<Work>) -> Timeline {
        let spans = |row| of(row).iter().map(|work| work.span).collect();
        Timeline::new(self.ranks.iter().map(spans).collect())
    }

    /// Whether every rank does something, one thing after the other, and was measured if one was.
    fn is_sound(&self) -> bool {
        let works = || self.ranks.iter().flat_map(|row| row.simulated.iter().chain(&row.measured));
        let both = [Some(self.simulated()), self.measured()];
        (1..=MOST_RANKS).contains(&self.ranks.len())
            && works().count() <= MOST
            && works().all(|work| !work.kinds.is_empty() && lane::is_sound(work.span))
            && both.iter().flatten().all(is_timeline)
    }
}

fn is_timeline(timeline: &Timeline) -> bool {
    let is_row = |spans: &Vec<Span>| !spans.is_empty() && lane::follow(spans);
    timeline.makespan() > 0.0 && timeline.spans().iter().all(is_row)
}

/// The figure; nothing where a time or a rank makes no sense, or where there are too many.
pub fn chart(title: &str, gantts: &[Gantt]) -> Option<String> {
    let unit = &gantts.first()?.unit;
    if !gantts.iter().all(Gantt::is_sound) {
        return None;
    }
    let across = across(gantts);
    let axis = labelled(across.clone(), TICK_GAP, unit.clone());
    let mut plot = Plot::new(title, &describe(gantts));
    let mut bottom = legend(&mut plot, gantts);
    for gantt in gantts {
        if gantts.len() > 1 {
            bottom += 24.0;
            plot.text((8.0, bottom), Anchor::Start, Ink::Text, &gantt.name);
        }
        let base = if gantts.len() > 1 { bottom } else { 18.0 };
        plot.text((RIGHT, base), Anchor::End, Ink::Quiet, &bubbles(gantt));
        bottom = rows(&mut plot, gantt, bottom + 8.0, &axis);
    }
    let panel = Panel { left: FIRST, right: LAST, top: 0.0, bottom };
    plot.axis(panel, &axis);
    plot.text((RIGHT, bottom + 14.0), Anchor::End, Ink::Quiet, "idle");
    Some(plot.finish(bottom + 36.0))
}

/// Where times lie.
pub fn across(gantts: &[Gantt]) -> Scale {
    let ends = |gantt: &Gantt| {
        let measured = gantt.measured().map_or(0.0, |timeline| timeline.makespan());
        gantt.simulated().makespan().max(measured)
    };
    Scale::new(Law::Linear, [0.0, gantts.iter().map(ends).fold(0.0, f64::max)], [FIRST, LAST])
}

fn bubbles(gantt: &Gantt) -> String {
    let simulated = format!("bubble {}", percent(gantt.simulated().bubble()));
    match gantt.measured() {
        Some(measured) => format!("{simulated}, measured {}", percent(measured.bubble())),
        None => simulated,
    }
}

/// The rows from `top` on, and lines of the axis between them; where the last one ends.
fn rows(plot: &mut Plot, gantt: &Gantt, top: f64, axis: &Axis) -> f64 {
    let (simulated, measured) = (gantt.simulated(), gantt.measured());
    let (height, gap) = if measured.is_some() { (TALL + 2.0 + THIN, 7.0) } else { (TALL, 5.0) };
    let bands = (0..gantt.ranks.len()).map(|rank| Band { top: top + (height + gap) * rank as f64, height });
    for (rank, (row, band)) in gantt.ranks.iter().zip(bands.clone()).enumerate() {
        let upper = Band { height: TALL, ..band };
        plot.text((8.0, upper.top + 14.0), Anchor::Start, Ink::Quiet, &rank.to_string());
        lay(plot, &row.simulated, &axis.scale, upper, (0.42, simulated.makespan()));
        lane::numbers(plot, &done(&row.simulated), &axis.scale, upper, letters);
        idle(plot, &simulated, rank, upper.top + 14.0);
        if let Some(measured) = &measured {
            let lower = Band { top: upper.bottom() + 2.0, height: THIN };
            lay(plot, &row.measured, &axis.scale, lower, (0.85, measured.makespan()));
            idle(plot, measured, rank, lower.bottom());
        }
    }
    let between =
        |band: Band| Panel { left: FIRST, right: LAST, top: band.bottom(), bottom: band.bottom() + gap };
    plot.grid(&bands.map(between).collect::<Vec<_>>(), axis, Ink::Grid);
    top + (height + gap) * gantt.ranks.len() as f64
}

/// Boxes over their ground.
fn lay(plot: &mut Plot, works: &[Work], across: &Scale, band: Band, (opacity, end): (f64, f64)) {
    plot.area((FIRST, band.top), (across.at(end), band.bottom()), Ink::Grid, 0.5);
    lane::draw(plot, &done(works), across, band, opacity);
}

/// The share of the time up to the makespan in which a rank does nothing.
fn idle(plot: &mut Plot, timeline: &Timeline, rank: usize, base: f64) {
    plot.text((RIGHT, base), Anchor::End, Ink::Quiet, &percent(share(timeline, rank)));
}

/// The idle share of a rank.
pub fn share(timeline: &Timeline, rank: usize) -> f64 {
    (1.0 - timeline.busy()[rank] / timeline.makespan()).max(0.0)
}

fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part.max(0.0))
}

fn done(works: &[Work]) -> Vec<Done> {
    let one = |work: &Work| Done {
        passes: work.kinds.iter().map(pass).collect(),
        number: work.micro_batch,
        span: work.span,
    };
    works.iter().map(one).collect()
}

fn pass(kind: Kind) -> Pass {
    match kind {
        Kind::Dequantize => Pass::Fetch,
        Kind::Forward => Pass::Forward,
        Kind::Recompute => Pass::Recompute,
        Kind::Backward => Pass::Backward,
        Kind::Weight => Pass::Weight,
    }
}

fn letter(pass: Pass) -> char {
    Kind::ALL.into_iter().find(|kind| self::pass(*kind) == pass).map_or('?', Kind::letter)
}

/// Those of an operation that does several things.
fn letters(done: &Done) -> String {
    if done.passes.len() > 1 { done.passes.iter().map(|pass| letter(*pass)).collect() } else { String::new() }
}

/// What occurs, and what is measured; the base of its last line.
fn legend(plot: &mut Plot, gantts: &[Gantt]) -> f64 {
    let works = || {
        gantts.iter().flat_map(|gantt| &gantt.ranks).flat_map(|row| row.simulated.iter().chain(&row.measured))
    };
    let meanings = [
        (Kind::Forward, "F forward"),
        (Kind::Recompute, "R recompute"),
        (Kind::Backward, "B backward"),
        (Kind::Weight, "W weights"),
        (Kind::Dequantize, "D dequantise"),
    ];
    let occurs = meanings.into_iter().filter(|(kind, _)| works().any(|work| work.kinds.contains(*kind)));
    let entries: Vec<(Pass, &str)> = occurs.map(|(kind, meaning)| (pass(kind), meaning)).collect();
    let base = lane::legend(plot, 40.0, &entries);
    if gantts.iter().all(|gantt| gantt.measured().is_none()) {
        return base;
    }
    plot.text(
        (8.0, base + 16.0),
        Anchor::Start,
        Ink::Quiet,
        "high and pale: simulated; thin and strong: measured",
    );
    base + 16.0
}

fn describe(gantts: &[Gantt]) -> String {
    gantts.iter().map(told).collect::<Vec<_>>().join(" ")
}

fn told(gantt: &Gantt) -> String {
    let name = if gantt.name.is_empty() { "A step" } else { &gantt.name };
    let timeline = |how: &str, timeline: &Timeline| {
        let idle: Vec<String> = (0..gantt.ranks.len()).map(|rank| percent(share(timeline, rank))).collect();
        format!(
            "{how} it ends after {} and has a bubble of {}, ranks idle {}",
            digits(timeline.makespan()),
            percent(timeline.bubble()),
            idle.join(", ")
        )
    };
    let measured = gantt.measured().map(|measured| timeline("; measured,", &measured)).unwrap_or_default();
    let operations: usize = gantt.ranks.iter().map(|row| row.simulated.len()).sum();
    format!(
        "{name}: {} ranks, {operations} operations, time in {}; {}{measured}.",
        gantt.ranks.len(),
        gantt.unit,
        timeline("simulated,", &gantt.simulated())
    )
}
