//! The steps of challenge B, of which one is under test.

use std::sync::atomic::AtomicU64;

use challenges::fsdp::{Activations, Fsdp, Gradient, Host, LayerBytes, Solution, solution_calls};
use reference::fsdp::{Cut, Parameter, Placement, Shards};
use reference::graph::{Group, Tape, Tensor};
use reference::schedule::{Error, Schedule, Shape, Workload};

use crate::calls::few;

/// The attempt's step of that name; all others are the solution's.
pub(super) type StepUnderTest<'a> = crate::step_under_test::StepUnderTest<'a, dyn Fsdp + 'a>;

/// Nothing of it has run yet.
pub(super) fn step_under_test<'a>(step: &'a str, attempt: &'a dyn Fsdp) -> StepUnderTest<'a> {
    step_among(step, attempt, &Solution)
}

/// The same where all other steps are those of `others`: so several steps of an attempt are tried together.
pub(super) fn step_among<'a>(
    step: &'a str,
    attempt: &'a dyn Fsdp,
    others: &'a dyn Fsdp,
) -> StepUnderTest<'a> {
    StepUnderTest { step, attempt, solution: others, solution_calls, asked: AtomicU64::new(0) }
}

impl Fsdp for StepUnderTest<'_> {
    fn place(&self, parameter: &Parameter, ranks: usize) -> Placement {
        self.of("B.1", || format!("place: {ranks} ranks, {parameter:?}"), |step| step.place(parameter, ranks))
    }

    fn gather(&self, shard: &Tensor, shards: &Shards, group: &Group) -> Tensor {
        self.of(
            "B.2",
            || format!("gather: shard {}, {}", shard.ty(), of_shards(shards, group)),
            |step| step.gather(shard, shards, group),
        )
    }

    fn keep(&self, bytes: &[usize], room: usize) -> Vec<bool> {
        self.of("B.3", || format!("keep: room {room}, bytes {}", few(bytes)), |step| step.keep(bytes, room))
    }

    fn reduce(&self, gradient: &Tensor, shards: &Shards, group: &Group) -> Tensor {
        self.of(
            "B.4",
            || format!("reduce: gradient {}, {}", gradient.ty(), of_shards(shards, group)),
            |step| step.reduce(gradient, shards, group),
        )
    }

    fn norm(&self, tape: &Tape, gradients: &[Gradient], groups: &[Group]) -> Tensor {
        let shards = || {
            let one = |gradient: &Gradient| format!("{} on {} ranks", gradient.shard.ty(), gradient.copies);
            gradients.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        self.of(
            "B.4",
            || format!("norm: shards {}; groups {groups:?}", shards()),
            |step| step.norm(tape, gradients, groups),
        )
    }

    fn prefetch(&self, bytes: &[usize], room: usize) -> Vec<bool> {
        self.of(
            "B.5",
            || format!("prefetch: room {room}, bytes {}", few(bytes)),
            |step| step.prefetch(bytes, room),
        )
    }

    fn activations(&self, layers: &[LayerBytes], room: usize, host: Host) -> Vec<Activations> {
        self.of(
            "B.6",
            || format!("activations: room {room}, host {host:?}, layers {}", few(layers)),
            |step| step.activations(layers, room, host),
        )
    }

    fn cut(&self, parameter: &str) -> Cut {
        self.of("B.7", || format!("cut: {parameter:?}"), |step| step.cut(parameter))
    }

    fn join(&self, module: &str, y: &Tensor, group: &Group) -> Tensor {
        self.of(
            "B.7",
            || format!("join: {module:?}, y {}, {group:?}", y.ty()),
            |step| step.join(module, y, group),
        )
    }

    fn total(&self, gradient: &Tensor, cut: Cut, group: &Group) -> Tensor {
        self.of(
            "B.7",
            || format!("total: gradient {}, {cut:?}, {group:?}", gradient.ty()),
            |step| step.total(gradient, cut, group),
        )
    }

    fn schedule(&self, shape: Shape, workload: &Workload) -> Result<Schedule, Error> {
        self.of("B.8", || format!("schedule: {shape}\n{workload:?}"), |step| step.schedule(shape, workload))
    }
}

fn of_shards(shards: &Shards, group: &Group) -> String {
    format!("shards of {} elements, ranges {}, {group:?}", shards.len, few(&shards.ranges))
}
