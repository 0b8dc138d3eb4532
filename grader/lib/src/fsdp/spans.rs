//! When ranks did what, by the clock: schedules of a pipeline beside their simulation, and a step with its gathers.
//!
//! A schedule is run for some steps, in which each kind of operation is timed on each rank: the median is what it
//! costs. The schedule is simulated with these costs, and its bubble stands beside that of other steps, as they ran:
//!
//! ```text
//! warm    programs are compiled, memory is there
//! cost    each operation's time -> a cost for each rank and kind -> simulated
//! held    begins and ends on all ranks -> measured
//! ```
//!
//! Where a machine has fewer cores than there are ranks, ranks share them by a [`Semaphore`]: an operation then takes
//! what it takes on a core of its own, and `measured` is what these times come to in the order of the schedule. Whether
//! a step ran by the clock or was put together so is `fsdp.bubbles.SHAPE.cores`: as many as ranks, or fewer.
//!
//! No line of the scheme rests on these numbers: they are for who wants to know what a simulated bubble is worth.

use std::collections::BTreeMap;
use std::time::Instant;

use challenges::fsdp::{
    EventKind, FSDP, Fsdp, Interval, PP, Pipeline, Room, Semaphore, Solution, Store, Trace,
};
use kernels::Cpu;
use reference::graph::ranks::Mesh;
use reference::schedule::{
    Checked, Kind, Kinds, Operation, Placement, Schedule, Shape, Span, Stage, Timeline, Times, Workload,
    check, one_f_one_b, zero_bubble,
};

use super::checks::asked;
use super::job::{How, Job, on_ranks};
use super::train;
use super::trial::number;
use crate::compare::describe;
use crate::gather::{Child, Unwound, caught};
use crate::graph::model::Sizes;
use crate::scorecard::Measurement;
use crate::timing::median;

/// Steps before any is timed, steps that say what operations cost, and steps that are held to it.
const STEPS: [usize; 3] = [2, 3, 5];
/// Of more ranks than two: each step is long.
const FEW: [usize; 3] = [1, 2, 3];
/// Wide enough for an operation to take far longer than a message; of a pipeline, with a layer on each rank at least.
const MODEL: Sizes = Sizes { layers: 4, hidden: 256, heads: 4, vocab: 96 };
const SHAPE: [usize; 2] = [1, 48];
const RATE: f64 = 1e-3;

/// A pipeline: its ranks, its micro-batches, its steps, and the schedules that are run.
type Case = (usize, usize, [usize; 3], &'static [&'static str]);

const CASES: [Case; 3] =
    [(2, 8, STEPS, &["1f1b", "zero-bubble", "own"]), (4, 8, FEW, &["1f1b", "own"]), (8, 32, FEW, &["own"])];

/// Times schedules; B.8 is the attempt's, everything else the solution's.
pub(super) fn bubbles(child: &mut Child, attempt: &dyn Fsdp) {
    let effort = child.request.effort.clone();
    let cores = Cpu::new().threads();
    let cases = CASES.into_iter().filter(|(ranks, ..)| !effort.quick || *ranks == 2);
    for (ranks, micro_batches, steps, names) in cases {
        let shape = format!("fsdp.bubbles.{ranks}x{micro_batches}");
        child.measured(&format!("{shape}.cores"), number(cores.min(ranks) as f64, "count"));
        for name in names {
            let run = || ScheduleRun { ranks, micro_batches, steps, name, attempt, cores }.run(effort.seed);
            let Some(seen) = reported(child, &format!("{shape}.{name}.measured"), run) else { return };
            for (what, value) in [("simulated", seen.simulated.bubble()), ("measured", seen.bubble())] {
                child.measured(&format!("{shape}.{name}.{what}"), number(value, "share"));
            }
            if ranks == 2 && *name == "own" {
                picture(child, &seen);
            }
        }
    }
}

/// A schedule that is run.
struct ScheduleRun<'a> {
    ranks: usize,
    micro_batches: usize,
    steps: [usize; 3],
    name: &'static str,
    attempt: &'a dyn Fsdp,
    cores: usize,
}

/// What was seen of it.
struct Seen {
    schedule: Schedule,
    simulated: Timeline,
    measured: Vec<Timeline>, // a step each
}

impl Seen {
    fn bubble(&self) -> f64 {
        median(&self.measured.iter().map(Timeline::bubble).collect::<Vec<_>>())
    }

    /// The step whose bubble is the median, or next to it.
    fn usual(&self) -> &Timeline {
        let apart = |timeline: &&Timeline| (timeline.bubble() - self.bubble()).abs();
        self.measured.iter().min_by(|a, b| apart(a).total_cmp(&apart(b))).expect("steps were measured")
    }
}

impl ScheduleRun<'_> {
    /// The schedule with costs that are not known yet, and then with those that it had.
    fn run(&self, seed: u64) -> Result<Seen, String> {
        let guess = asked(None, None);
        let first = self.timed(seed, &guess)?;
        if self.name != "own" {
            return Ok(first);
        }
        let shape = first.schedule.shape();
        self.timed(seed, &costs(&first.schedule, &first.measured, shape, &guess))
    }

    fn schedule(&self, shape: Shape, workload: &Workload) -> Result<Schedule, reference::schedule::Error> {
        match self.name {
            "1f1b" => one_f_one_b(shape, workload),
            "zero-bubble" => zero_bubble(shape, workload),
            _ => self.attempt.schedule(shape, workload),
        }
    }

    fn timed(&self, seed: u64, workload: &Workload) -> Result<Seen, String> {
        let shape = Shape::line(self.ranks, self.micro_batches).map_err(describe)?;
        let steps = self.steps.iter().sum();
        let sizes = Sizes { layers: MODEL.layers.max(self.ranks), ..MODEL };
        let job = Job::drawn(sizes, seed, RATE, [steps, self.micro_batches], SHAPE)?;
        let all = self.traces(&job, workload, steps)?;
        let schedule = self.schedule(shape, workload).map_err(describe)?;
        let checked = check(&schedule, workload).map_err(describe)?;
        let spans: Vec<Vec<Vec<Span>>> = (self.steps[0]..steps).map(|step| spans(&all, step)).collect();
        let (cost, held) = spans.split_at(self.steps[1]);
        let simulated = checked.replay(&usual(&schedule, cost));
        let held = held.iter().map(|step| self.as_it_ran(&checked, step)).collect();
        Ok(Seen { simulated, measured: held, schedule })
    }

    /// A step by the clock, or, of ranks that shared cores, of its operations' times.
    fn as_it_ran(&self, checked: &Checked<'_>, spans: &[Vec<Span>]) -> Timeline {
        if self.ranks <= self.cores {
            return Timeline::new(spans.to_vec());
        }
        let takes = |line: &Vec<Span>| line.iter().map(|span| span.end - span.start).collect();
        checked.replay(&spans.iter().map(takes).collect::<Vec<Vec<f64>>>())
    }

    /// What each rank did in each step.
    fn traces(&self, job: &Job, workload: &Workload, steps: usize) -> Result<Vec<Vec<Trace>>, String> {
        let (mesh, store) = (Mesh::line(PP, self.ranks).map_err(describe)?, Store::default());
        let slots = Semaphore::new(self.cores);
        let schedule = |shape: Shape, workload: &Workload| self.schedule(shape, workload);
        let pipeline = Pipeline {
            chunks: 1,
            placement: Placement::Looped,
            workload: workload.clone(),
            schedule: &schedule,
            slots: Some(&slots),
        };
        let how = How { pipeline: Some(&pipeline), ..train::how(&Solution) };
        on_ranks(self.ranks, |world| {
            let device = Cpu::with_threads(1);
            let mut rank = job.rank(how.team(world, &mesh, &store), &device, how).map_err(describe)?;
            let step = |number| {
                job.step(&mut rank, number).map_err(describe)?;
                Ok(rank.trace().clone())
            };
            (1..=steps).map(step).collect()
        })
    }
}

/// What a run gives; or what stood in the way is reported under a name.
fn reported<T>(child: &mut Child, name: &str, run: impl FnOnce() -> Result<T, String>) -> Option<T> {
    let why = match caught(run) {
        Ok(Ok(seen)) => return Some(seen),
        Ok(Err(reason)) | Err(Unwound::Panic(reason)) => reason,
        Err(Unwound::Hole(hole)) => format!("not written yet: {hole}"),
    };
    child.unmeasured(name, &why);
    None
}

/// When all operations of a step ran, in ms from the first of any rank.
fn spans(ranks: &[Vec<Trace>], step: usize) -> Vec<Vec<Span>> {
    let lines = || ranks.iter().map(|steps| &steps[step].operations);
    let origin = lines().flatten().map(|interval| interval.begin).min().unwrap_or_else(Instant::now);
    lines().map(|line| line.iter().map(|interval| in_ms(*interval, origin)).collect()).collect()
}

fn in_ms(interval: Interval, origin: Instant) -> Span {
    let Span { start, end } = interval.span(origin);
    Span { start: start * 1e3, end: end * 1e3 }
}

/// What each kind of operation costs on each rank, the median of some steps, for each operation of a schedule.
fn usual(schedule: &Schedule, steps: &[Vec<Vec<Span>>]) -> Vec<Vec<f64>> {
    let mut all: BTreeMap<(usize, Kinds), Vec<f64>> = BTreeMap::new();
    for (rank, operation, span) in steps.iter().flat_map(|step| with_spans(schedule, step)) {
        all.entry((rank, operation.kinds)).or_default().push(span.end - span.start);
    }
    let costs: BTreeMap<(usize, Kinds), f64> =
        all.into_iter().map(|(kind, all)| (kind, median(&all))).collect();
    let of = |(rank, line): (usize, &Vec<Operation>)| {
        line.iter().map(|operation| costs.get(&(rank, operation.kinds)).copied().unwrap_or(0.0)).collect()
    };
    schedule.ranks().iter().enumerate().map(of).collect()
}

fn with_spans<'s>(
    schedule: &'s Schedule,
    step: &'s [Vec<Span>],
) -> impl Iterator<Item = (usize, Operation, Span)> + 's {
    let lines = schedule.ranks().iter().zip(step).enumerate();
    lines.flat_map(|(rank, (line, spans))| {
        line.iter().zip(spans).map(move |(operation, span)| (rank, *operation, *span))
    })
}

/// A workload of what operations of one kind cost in some steps, a stage for each rank.
fn costs(schedule: &Schedule, steps: &[Timeline], shape: Shape, guess: &Workload) -> Workload {
    let time = |rank: usize, kind: Kind| {
        let kinds = Kinds::default().with(kind);
        let of = |timeline: &Timeline| {
            let all = with_spans(schedule, timeline.spans());
            let own = all.filter(|(owner, operation, _)| *owner == rank && operation.kinds == kinds);
            own.map(|(.., span)| span.end - span.start).collect::<Vec<f64>>()
        };
        let all: Vec<f64> = steps.iter().flat_map(of).collect();
        if all.is_empty() { guess.time(kind, rank) } else { median(&all) }
    };
    let stage = |rank: usize| Stage {
        times: Times {
            forward: time(rank, Kind::Forward),
            backward: time(rank, Kind::Backward),
            weight: time(rank, Kind::Weight),
            recompute: time(rank, Kind::Recompute),
            dequantize: 0.0,
        },
        ..guess.stages[0]
    };
    Workload { stages: (0..shape.ranks()).map(stage).collect(), ..guess.clone() }
}

/// The usual step and its simulation, as triples of micro-batch, start and end.
fn picture(child: &mut Child, seen: &Seen) {
    for (way, timeline) in [("simulated", &seen.simulated), ("measured", seen.usual())] {
        let mut rows: BTreeMap<(usize, Kinds), Vec<f64>> = BTreeMap::new();
        for (rank, operation, span) in with_spans(&seen.schedule, timeline.spans()) {
            let micro_batch = if operation.has_micro_batch() { operation.micro_batch as f64 } else { -1.0 };
            rows.entry((rank, operation.kinds)).or_default().extend([micro_batch, span.start, span.end]);
        }
        for ((rank, kinds), samples) in rows {
            let measurement = Measurement { samples, ..number(timeline.makespan(), "ms") };
            child.measured(&format!("fsdp.gantt.{way}.{rank}.{kinds}"), measurement);
        }
    }
}

/// A step of one of two ranks, with gathers when they are needed and with gathers that start early; the attempt's.
pub(super) fn overlap(child: &mut Child, attempt: &dyn Fsdp) {
    let seed = child.request.effort.seed;
    for (way, prefetch_bytes) in [("late", 0), ("early", usize::MAX)] {
        let room = Room { prefetch_bytes, activation_bytes: usize::MAX, ..Room::default() };
        let run = || step(attempt, room, seed);
        let Some(trace) = reported(child, &format!("fsdp.step.{way}.gather"), run) else { return };
        for (what, samples) in triples(&trace) {
            let last = samples.last().copied().unwrap_or_default();
            child.measured(&format!("fsdp.step.{way}.{what}"), Measurement { samples, ..number(last, "ms") });
        }
    }
}

fn step(attempt: &dyn Fsdp, room: Room, seed: u64) -> Result<Trace, String> {
    let [warm, ..] = STEPS;
    let job = Job::drawn(MODEL, seed, RATE, [warm + 1, 2], SHAPE)?;
    let (mesh, store) = (Mesh::line(FSDP, 2).map_err(describe)?, Store::default());
    let how = How { room, ..train::how(attempt) };
    let all = on_ranks(2, |world| {
        let device = Cpu::with_threads(1);
        let mut rank = job.rank(how.team(world, &mesh, &store), &device, how).map_err(describe)?;
        (1..=warm + 1).try_for_each(|number| job.step(&mut rank, number).map(|_| ())).map_err(describe)?;
        Ok(rank.trace().clone())
    })?;
    Ok(all.into_iter().next().unwrap_or_default())
}

/// Programs as triples of piece, start and end, in ms from the first.
fn triples(trace: &Trace) -> [(&'static str, Vec<f64>); 4] {
    let origin = trace.events.iter().map(|event| event.when.begin).min().unwrap_or_else(Instant::now);
    let of = |kind: EventKind| {
        let own = trace.events.iter().filter(|event| event.kind == kind);
        own.flat_map(|event| {
            let Span { start, end } = in_ms(event.when, origin);
            [event.piece as f64, start, end]
        })
        .collect()
    };
    [
        ("gather", of(EventKind::Gather)),
        ("forward", of(EventKind::Forward)),
        ("backward", of(EventKind::Backward)),
        ("update", of(EventKind::Update)),
    ]
}
