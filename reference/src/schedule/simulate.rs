//! When each operation of a schedule runs, if every rank begins each as soon as it can.
//!
//! An operation begins when the one before it on its rank has ended and its messages are there: a result that another
//! rank computes arrives a latency after the operation that computes it has ended, while that rank goes on. It takes
//! the sum of the times of its parts. Ranks do their operations in the order of the schedule, so these are the earliest
//! times that this order allows, and sends are asynchronous, whatever the workload says.
//!
//! *The bubble* is the idle time of all ranks between 0 and the makespan, as a part of `ranks * makespan`, where the
//! makespan is the end of the last operation on any rank:
//!
//! ```text
//! bubble = 1 - (sum of the times of all operations) / (ranks * makespan)
//! ```
//!
//! It says how much of the ranks' time goes by unused, not how long a step takes: a schedule that computes more, such
//! as one with recomputation, has a smaller bubble at the same idle time. Of two schedules of the same work, the
//! shorter one has the smaller bubble. (GPipe's paper counts as here, `(p - 1) / (m + p - 1)` for its own schedule;
//! arXiv 2104.04473 divides idle by ideal time, `(p - 1) / m`.)

use super::deadlock::Place;
use super::{Checked, Operation};

/// From when to when something runs.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Span {
    /// When it begins, from the beginning of the step.
    pub start: f64,
    /// When it ends.
    pub end: f64,
}

/// When each operation of each rank runs, as it was simulated or measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    spans: Vec<Vec<Span>>,
}

impl Checked<'_> {
    /// When each operation runs, in the workload's unit of time.
    pub fn simulate(&self) -> Timeline {
        self.timeline(|(rank, position)| self.takes(rank, self.schedule.ranks()[rank][position]))
    }

    /// When each operation runs if each of them takes as long as `durations` say, which were measured: a number for
    /// each operation of each rank, in the order of the schedule and in the workload's unit of time.
    ///
    /// # Panics
    /// If there is not one for each operation.
    pub fn replay(&self, durations: &[Vec<f64>]) -> Timeline {
        let counts = |lines: &mut dyn Iterator<Item = usize>| lines.collect::<Vec<_>>();
        let expected = counts(&mut self.schedule.ranks().iter().map(Vec::len));
        assert_eq!(counts(&mut durations.iter().map(Vec::len)), expected, "a duration for each operation");
        self.timeline(|(rank, position)| durations[rank][position])
    }

    /// Each operation as soon as its rank is free and its messages are there.
    fn timeline(&self, takes: impl Fn(Place) -> f64) -> Timeline {
        let spans = self.schedule.ranks().iter().map(|line| vec![Span::default(); line.len()]).collect();
        let mut timeline = Timeline { spans };
        for &place in &self.order {
            let start = self.start(place, &timeline);
            timeline.spans[place.0][place.1] = Span { start, end: start + takes(place) };
        }
        timeline
    }

    fn start(&self, (rank, position): Place, timeline: &Timeline) -> f64 {
        let free = position.checked_sub(1).map_or(0.0, |before| timeline.spans[rank][before].end);
        let sources = self.messages.sources((rank, position));
        sources.map(|(from, at)| timeline.spans[from][at].end + self.workload.latency).fold(free, f64::max)
    }

    /// How long an operation takes.
    fn takes(&self, rank: usize, operation: Operation) -> f64 {
        let stage = self.schedule.shape().stage(rank, operation.chunk);
        operation.kinds.iter().map(|kind| self.workload.time(kind, stage)).sum()
    }
}

impl Timeline {
    /// A timeline of these spans for each rank, such as were measured, from the beginning of the step. Those of one
    /// rank do not overlap.
    pub fn new(spans: Vec<Vec<Span>>) -> Self {
        Self { spans }
    }

    /// When each operation of each rank runs, in the order of the schedule.
    pub fn spans(&self) -> &[Vec<Span>] {
        &self.spans
    }

    /// Time that each rank is busy.
    pub fn busy(&self) -> Vec<f64> {
        let of_rank = |line: &Vec<Span>| line.iter().map(|span| span.end - span.start).sum();
        self.spans.iter().map(of_rank).collect()
    }

    /// The end of the last operation.
    pub fn makespan(&self) -> f64 {
        self.spans.iter().flatten().map(|span| span.end).fold(0.0, f64::max)
    }

    /// Idle time of all ranks, as a part of all ranks' time from 0 to the makespan; 0 if nothing takes any time.
    pub fn bubble(&self) -> f64 {
        let all = self.makespan() * self.spans.len() as f64;
        if all > 0.0 { 1.0 - self.busy().iter().sum::<f64>() / all } else { 0.0 }
    }
}
