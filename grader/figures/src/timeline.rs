//! One step, launch by launch, as it was timed: lines of a text whose words are launches.
//!
//! A kind of work has a colour and a height of its own. The longest launches carry a number and are named below.

use super::layers::Rect;
use super::number::{digits, tick};
use super::plot::{Anchor, Ink, Plot, StepKind, WIDTH};
use super::{Law, Scale, usable};
use scorecard::Challenge;

const LEFT: f64 = 8.0;
const RIGHT: f64 = WIDTH - 8.0;
/// Lines that the step is broken into.
const LINES: usize = 5;
const LINE: f64 = 46.0;
const TOP: f64 = 92.0;
/// Height of the tallest launch.
const TALL: f64 = 20.0;

/// What a step's launches took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// The kind and the milliseconds of each launch, in order.
    pub launches: Vec<(StepKind, f64)>,
    /// The longest: their number, and what they are.
    pub longest: Vec<(usize, String)>,
}

impl Step {
    /// The step that a challenge's measurements hold: `timeline.KIND` with a sample for each launch, 0 where it is of
    /// another kind, and `longest.NN.launch NUMBER WHAT`.
    pub fn of(challenge: &Challenge) -> Option<Self> {
        let own = |name: &str| challenge.measurements.get(&format!("{}.{name}", challenge.name));
        let kinds: Vec<(StepKind, &[f64])> = StepKind::ALL
            .into_iter()
            .filter_map(|work| Some((work, own(&format!("timeline.{}", work.name()))?.samples.as_slice())))
            .collect();
        let count = kinds.iter().map(|(_, samples)| samples.len()).max().filter(|count| *count < 100_000)?;
        let took = |i: usize| {
            let mut all = kinds.iter().filter_map(|(work, samples)| Some((*work, usable(*samples.get(i)?)?)));
            all.next().unwrap_or((StepKind::Program, 0.0))
        };
        let launches: Vec<(StepKind, f64)> = (0..count).map(took).collect();
        let before = format!("{}.longest.", challenge.name);
        let named = challenge.measurements.keys().filter_map(|name| {
            let (_, rest) = name.strip_prefix(&before)?.split_once(".launch ")?;
            let (number, what) = rest.split_once(' ')?;
            Some((number.parse().ok().filter(|number| *number < count)?, what.to_owned()))
        });
        let longest = named.take(20).collect();
        (launches.iter().map(|(_, ms)| ms).sum::<f64>() > 0.0).then_some(Self { launches, longest })
    }

    fn total(&self) -> f64 {
        self.launches.iter().map(|(_, ms)| ms).sum()
    }

    fn of_kind(&self, work: StepKind) -> (usize, f64) {
        let of = self.launches.iter().filter(|(kind, ms)| *kind == work && *ms > 0.0);
        of.fold((0, 0.0), |(count, sum), (_, ms)| (count + 1, sum + ms))
    }
}

/// The figure.
pub fn timeline(step: &Step, title: &str) -> String {
    let total = step.total();
    let mut plot = Plot::new(title, &describe(step, total));
    legend(&mut plot, step, total);
    let per_line = total / LINES as f64;
    let across = Scale::new(Law::Linear, [0.0, per_line], [LEFT, RIGHT]);
    for line in 0..LINES {
        let base = TOP + LINE * line as f64 + TALL;
        plot.line((LEFT, base + 1.0), (RIGHT, base + 1.0), 1.0, Ink::Grid);
        let from = format!("{} ms", digits(per_line * line as f64));
        plot.text((LEFT, base + 11.0), Anchor::Start, Ink::Quiet, &from);
    }
    let pieces = pieces(step, per_line, &across);
    for work in StepKind::ALL {
        let of = pieces.iter().filter(|piece| piece.work == work).map(|piece| &piece.at);
        plot.areas(of, Ink::Step(work), 0.9);
    }
    marks(&mut plot, step, &pieces);
    let bottom = TOP + LINE * LINES as f64 + 6.0;
    list(&mut plot, step, bottom);
    plot.finish(bottom + 20.0 + 15.0 * step.longest.len() as f64)
}

/// A launch's part of one line.
struct Piece {
    launch: usize,
    work: StepKind,
    line: usize,
    at: Rect,
}

fn pieces(step: &Step, per_line: f64, across: &Scale) -> Vec<Piece> {
    let (mut pieces, mut now) = (Vec::new(), 0.0);
    for (launch, (work, ms)) in step.launches.iter().enumerate() {
        let end = now + ms;
        let lines = (now / per_line) as usize..=((end / per_line) as usize).min(LINES - 1);
        for line in lines {
            let begin = line as f64 * per_line;
            let [left, right] = [now.max(begin), end.min(begin + per_line)].map(|ms| across.at(ms - begin));
            let (height, base) = (height(*work), TOP + LINE * line as f64 + TALL);
            let at = Rect { x: left, y: base - height, width: right - left, height };
            pieces.push(Piece { launch, work: *work, line, at });
        }
        now = end;
    }
    pieces
}

fn height(work: StepKind) -> f64 {
    match work {
        StepKind::Product => TALL,
        StepKind::Attention => TALL * 0.85,
        StepKind::Program => TALL * 0.6,
        StepKind::Optimiser => TALL * 0.5,
        StepKind::Dequantise => TALL * 0.35,
        StepKind::Scatter => TALL * 0.2,
    }
}

/// The numbers of the longest, above them, where there is room.
fn marks(plot: &mut Plot, step: &Step, pieces: &[Piece]) {
    let mut taken: Vec<(usize, f64)> = Vec::new();
    for (rank, (launch, _)) in step.longest.iter().enumerate() {
        let widest = pieces.iter().filter(|piece| piece.launch == *launch);
        let Some(piece) = widest.max_by(|a, b| a.at.width.total_cmp(&b.at.width)) else { continue };
        let x = (piece.at.x + piece.at.width / 2.0).clamp(LEFT + 7.0, RIGHT - 7.0);
        if taken.iter().all(|(line, other)| *line != piece.line || (other - x).abs() > 14.0) {
            let y = TOP + LINE * piece.line as f64 - 2.0;
            plot.text((x, y), Anchor::Middle, Ink::Quiet, &(rank + 1).to_string());
            taken.push((piece.line, x));
        }
    }
}

fn legend(plot: &mut Plot, step: &Step, total: f64) {
    let (mut x, mut y) = (LEFT, 38.0);
    for work in StepKind::ALL {
        let (count, ms) = step.of_kind(work);
        if count == 0 {
            continue;
        }
        let share = 100.0 * ms / total;
        let said = format!("{count} {}: {}, {share:.0} %", work.plural(), ms_of(ms));
        let room = 30.0 + 5.7 * said.chars().count() as f64;
        if x + room > RIGHT + 14.0 {
            (x, y) = (LEFT, y + 15.0);
        }
        let tall = height(work) / 2.0;
        plot.area((x, y - tall), (x + 10.0, y), Ink::Step(work), 0.9);
        plot.text((x + 14.0, y), Anchor::Start, Ink::Quiet, &said);
        x += room;
    }
}

/// The longest, one a line.
fn list(plot: &mut Plot, step: &Step, top: f64) {
    if !step.longest.is_empty() {
        plot.text((LEFT, top + 6.0), Anchor::Start, Ink::Quiet, "the longest launches");
    }
    for (rank, (launch, what)) in step.longest.iter().enumerate() {
        let y = top + 22.0 + 15.0 * rank as f64;
        let (work, ms) = step.launches[*launch];
        plot.text((LEFT + 16.0, y), Anchor::End, Ink::Quiet, &(rank + 1).to_string());
        plot.area((LEFT + 21.0, y - 8.0), (LEFT + 28.0, y), Ink::Step(work), 0.9);
        let what: String = what.chars().take(58).collect();
        plot.text((LEFT + 33.0, y), Anchor::Start, Ink::Quiet, &what);
        plot.text((RIGHT, y), Anchor::End, Ink::Quiet, &ms_of(ms));
    }
}

fn ms_of(ms: f64) -> String {
    format!("{} ms", if ms.fract() == 0.0 { tick(ms) } else { digits(ms) })
}

fn describe(step: &Step, total: f64) -> String {
    let kinds =
        StepKind::ALL.into_iter().map(|work| (work, step.of_kind(work))).filter(|(_, (count, _))| *count > 0);
    let kinds: Vec<String> =
        kinds.map(|(work, (count, ms))| format!("{count} {} in {}", work.plural(), ms_of(ms))).collect();
    format!("{} launches in {}: {}.", step.launches.len(), ms_of(total), kinds.join(", "))
}
