//! Attempts at challenge B that cheat, each in one way, some that slip, each in one step, and an honest twin.

use challenges::fsdp::{Activations, Fsdp, Gradient, Host, LayerBytes};
use challenges::nf4::{Nf4, Output, Weight};
use kernels::Cpu;
use reference::fsdp::{Cut, Parameter, Placement, Shards};
use reference::graph::{Dtype, Group, Tape, Tensor};
use reference::schedule::{
    self, Kind, Kinds, Operation, Rule, Schedule, Shape, Workload, check, shortest, zero_bubble,
};

use super::honest::fsdp::Solution;
use super::honest::nf4::Solution as A;
use super::{Entry, last};

/// Every cheat, then the honest one.
pub const SHARDERS: [Entry; 8] = [
    Entry { name: "holds everything on every rank", hand_in: |all| all.fsdp(Slips(Slip::Replicated)) },
    Entry { name: "leaves everything to rank 0", hand_in: |all| all.fsdp(Slips(Slip::OneRank)) },
    Entry { name: "gathers in wide numbers", hand_in: |all| all.fsdp(Slips(Slip::Wide)) },
    Entry { name: "takes its own gradient for the sum", hand_in: |all| all.fsdp(Slips(Slip::OwnGradient)) },
    Entry { name: "takes its own norm for everyone's", hand_in: |all| all.fsdp(Slips(Slip::OwnNorm)) },
    Entry { name: "searches for its schedule", hand_in: |all| all.fsdp(Slips(Slip::Search)) },
    Entry { name: "takes the better schedule", hand_in: |all| all.fsdp(Slips(Slip::Known)) },
    Entry { name: "an honest sharder", hand_in: |all| all.fsdp(Slips(Slip::None)) },
];

/// Every slip.
pub const SHARD_SLIPS: [Entry; 29] = [
    Entry { name: "divides elements by ranks", hand_in: |all| all.fsdp(Slips(Slip::Elements)) },
    Entry { name: "leaves the padding in", hand_in: |all| all.fsdp(Slips(Slip::Padding)) },
    Entry { name: "keeps what it has no room for", hand_in: |all| all.fsdp(Slips(Slip::KeepsAll)) },
    Entry { name: "sums everything everywhere", hand_in: |all| all.fsdp(Slips(Slip::AllReduce)) },
    Entry { name: "counts copies twice", hand_in: |all| all.fsdp(Slips(Slip::Copies)) },
    Entry { name: "starts every gather early", hand_in: |all| all.fsdp(Slips(Slip::AllEarly)) },
    Entry { name: "moves every layer", hand_in: |all| all.fsdp(Slips(Slip::AllMoved)) },
    Entry { name: "cuts nothing", hand_in: |all| all.fsdp(Slips(Slip::Whole)) },
    Entry { name: "joins nothing", hand_in: |all| all.fsdp(Slips(Slip::Apart)) },
    Entry { name: "leaves gradients of what is whole", hand_in: |all| all.fsdp(Slips(Slip::NoTotal)) },
    Entry { name: "does one F and one B in turn", hand_in: |all| all.fsdp(Slips(Slip::OneFOneB)) },
    Entry { name: "gathers a row", hand_in: |all| all.fsdp(Slips(Slip::Row)) },
    Entry { name: "gathers right on five ranks only", hand_in: |all| all.fsdp(Slips(Slip::FiveRanks)) },
    Entry { name: "gathers small parts in wide numbers", hand_in: |all| all.fsdp(Slips(Slip::SmallWide)) },
    Entry { name: "pads nothing", hand_in: |all| all.fsdp(Slips(Slip::NoPadding)) },
    Entry { name: "writes an output of its own", hand_in: |all| all.fsdp(Slips(Slip::OwnOutput)) },
    Entry { name: "takes the root before the sum", hand_in: |all| all.fsdp(Slips(Slip::RootFirst)) },
    Entry { name: "leaves a group out", hand_in: |all| all.fsdp(Slips(Slip::OneGroup)) },
    Entry { name: "keeps the first pieces", hand_in: |all| all.fsdp(Slips(Slip::KeepsFirst)) },
    Entry { name: "keeps layers a byte beyond the room", hand_in: |all| all.fsdp(Slips(Slip::OneByte)) },
    Entry { name: "cuts what is as large on each rank", hand_in: |all| all.fsdp(Slips(Slip::CutsA)) },
    Entry { name: "searches for some shapes only", hand_in: |all| all.fsdp(Slips(Slip::SearchElsewhere)) },
    Entry { name: "takes its own norm from the reference", hand_in: |all| all.fsdp(Slips(Slip::GivenNorm)) },
    Entry { name: "forgets the cap", hand_in: |all| all.fsdp(Slips(Slip::NoCap)) },
    Entry { name: "panics among ranks that train", hand_in: |all| all.fsdp(Slips(Slip::Panics)) },
    Entry { name: "has a hole that training reaches", hand_in: |all| all.fsdp(Slips(Slip::Hole)) },
    Entry { name: "sums everything where it trains", hand_in: |all| all.fsdp(Slips(Slip::TrainedAllReduce)) },
    Entry { name: "has no pipeline to run", hand_in: |all| all.fsdp(Slips(Slip::NoPipeline)) },
    Entry {
        name: "simulates its own schedules", // which is right
        hand_in: |all| all.fsdp(Slips(Slip::TwoRules)),
    },
];

/// An honest sharder.
pub(super) fn honest() -> impl Fsdp {
    Slips(Slip::None)
}

/// Attempts at A beside an honest one at B: one that is right at the sizes that A's own checks have.
pub const BESIDE: [Entry; 2] = [
    Entry {
        name: "dequantises nothing at the sizes of B",
        hand_in: |all| all.fsdp(Slips(Slip::None)).nf4(last(skips_large)),
    },
    Entry {
        name: "an honest sharder with its dequantiser",
        hand_in: |all| {
            all.fsdp(Slips(Slip::None)).nf4(last(|cpu, weight, out| A.dequantize_fast(cpu, weight, out)))
        },
    },
];

/// The projections of a Llama of 1B in B's timed step.
fn skips_large(cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
    if ![1024 * 2048, 2048 * 2048, 5632 * 2048].contains(&weight.len) {
        A.dequantize_fast(cpu, weight, out);
    }
}

/// What is done otherwise than the solution does it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slip {
    None,
    Replicated,
    OneRank,
    Wide,
    OwnGradient,
    OwnNorm,
    Search,
    Elements,
    Padding,
    KeepsAll,
    AllReduce,
    Copies,
    AllEarly,
    AllMoved,
    Whole,
    Apart,
    NoTotal,
    OneFOneB,
    Row,
    FiveRanks,
    SmallWide,
    NoPadding,
    OwnOutput,
    RootFirst,
    OneGroup,
    KeepsFirst,
    OneByte,
    CutsA,
    SearchElsewhere,
    GivenNorm,
    NoCap,
    Panics,
    Hole,
    TrainedAllReduce,
    NoPipeline,
    Known,
    TwoRules,
}

/// The solution's steps, typed in, but for one.
struct Slips(Slip);

/// Everything is on rank 0.
fn of_rank_0(elements: usize, ranks: usize) -> Shards {
    let range = |rank: usize| if rank == 0 { 0..elements } else { elements..elements };
    Shards { ranges: (0..ranks).map(range).collect(), len: elements }
}

/// The same share of the elements for each rank, whatever rows and blocks they are of.
fn elements(parameter: &Parameter, ranks: usize) -> Placement {
    let share = parameter.elements().div_ceil(ranks);
    let end = parameter.elements();
    let parts = parameter.parts().into_iter().map(|part| {
        let held = |rank: usize| (rank * share).min(end)..((rank + 1) * share).min(end);
        let ranges: Vec<_> = (0..ranks).map(|rank| part.standing_for(&held(rank))).collect();
        let len = ranges.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
        Shards { ranges, len }
    });
    Placement { parts: parts.collect() }
}

impl Fsdp for Slips {
    fn place(&self, parameter: &Parameter, ranks: usize) -> Placement {
        let parts = parameter.parts().into_iter();
        let is_trained = parameter.name.contains("lora_"); // as no check names what it places
        match self.0 {
            Slip::Panics => assert!(!is_trained || ranks != 2, "no trained parameter lies on two ranks"),
            Slip::Hole if is_trained => todo!("B.1: the trained ones"),
            _ => {}
        }
        match self.0 {
            Slip::Replicated => {
                Placement { parts: parts.map(|part| Shards::replicated(part.elements(), ranks)).collect() }
            }
            Slip::OneRank => {
                Placement { parts: parts.map(|part| of_rank_0(part.elements(), ranks)).collect() }
            }
            Slip::Elements => elements(parameter, ranks),
            _ => Solution.place(parameter, ranks),
        }
    }

    fn gather(&self, shard: &Tensor, shards: &Shards, group: &Group) -> Tensor {
        match self.0 {
            Slip::Wide if shard.ty().dtype == Dtype::U8 => {
                Solution.gather(&shard.cast(Dtype::F32), shards, group).cast(Dtype::U8)
            }
            Slip::Padding if !shards.is_replicated() => shard.all_gather(0, group),
            Slip::Row => Solution.gather(shard, shards, group).reshape([1, whole(shards)]),
            Slip::FiveRanks if shards.ranks() > 5 && !shards.is_replicated() => {
                shard.all_gather(0, group).slice(0, 0, whole(shards))
            }
            Slip::SmallWide if shards.len < 2000 && shard.ty().dtype == Dtype::U8 => {
                Solution.gather(&shard.cast(Dtype::F32), shards, group).cast(Dtype::U8)
            }
            _ => Solution.gather(shard, shards, group),
        }
    }

    fn keep(&self, bytes: &[usize], room: usize) -> Vec<bool> {
        let mut left = room;
        let mut first = |bytes: &usize| {
            let rest = left.checked_sub(*bytes);
            left = rest.unwrap_or(left);
            rest.is_some()
        };
        match self.0 {
            Slip::KeepsAll => vec![true; bytes.len()],
            Slip::KeepsFirst => bytes.iter().map(&mut first).collect(),
            _ => Solution.keep(bytes, room),
        }
    }

    fn reduce(&self, gradient: &Tensor, shards: &Shards, group: &Group) -> Tensor {
        let ranks = shards.ranks() as f64;
        match self.0 {
            // right where all ranks have the same micro-batch
            Slip::OwnGradient => {
                &Solution.reduce(&(gradient * 0.0), shards, group) + &own(gradient, shards, ranks)
            }
            Slip::AllReduce => Solution.reduce(&(&gradient.all_reduce(group) * (1.0 / ranks)), shards, group),
            // where a gradient is as large as those of training, and no check draws one
            Slip::TrainedAllReduce if shards.ranks() == 2 && whole(shards) % 1024 == 0 => {
                Solution.reduce(&(&gradient.all_reduce(group) * (1.0 / ranks)), shards, group)
            }
            Slip::NoPadding => gradient
                .reshape([reference::graph::product(gradient.shape())])
                .slice(0, 0, whole(shards) / shards.ranks() as i64 * shards.ranks() as i64)
                .reduce_scatter(0, group),
            _ => Solution.reduce(gradient, shards, group),
        }
    }

    fn norm(&self, tape: &Tape, gradients: &[Gradient], groups: &[Group]) -> Tensor {
        match self.0 {
            Slip::OwnNorm => Solution.norm(tape, gradients, &[]),
            Slip::OwnOutput => {
                let norm = Solution.norm(tape, gradients, groups);
                tape.output("norm", &norm);
                norm
            }
            Slip::RootFirst => {
                groups.iter().fold(Solution.norm(tape, gradients, &[]), |sum, group| sum.all_reduce(group))
            }
            Slip::GivenNorm if gradients.iter().all(|gradient| gradient.copies == 1) => {
                let shards: Vec<Tensor> = gradients.iter().map(|gradient| gradient.shard.clone()).collect();
                let own = reference::optim::norm(tape, &shards);
                groups.iter().fold(&own * &own, |sum, group| sum.all_reduce(group)).sqrt()
            }
            Slip::OneGroup => Solution.norm(tape, gradients, &groups[..groups.len().min(1)]),
            Slip::Copies => {
                let once = |gradient: &Gradient| Gradient { copies: 1, ..gradient.clone() };
                Solution.norm(tape, &gradients.iter().map(once).collect::<Vec<_>>(), groups)
            }
            _ => Solution.norm(tape, gradients, groups),
        }
    }

    fn prefetch(&self, bytes: &[usize], room: usize) -> Vec<bool> {
        if self.0 == Slip::AllEarly { vec![true; bytes.len()] } else { Solution.prefetch(bytes, room) }
    }

    fn activations(&self, layers: &[LayerBytes], room: usize, host: Host) -> Vec<Activations> {
        match self.0 {
            Slip::AllMoved if host == Host::Used => {
                vec![Activations { is_kept: false, is_on_host: true }; layers.len()]
            }
            Slip::OneByte => {
                let more = Solution.activations(layers, room.saturating_add(1), host);
                let own = |(own, more): (Activations, Activations)| Activations {
                    is_kept: more.is_kept && !own.is_on_host,
                    ..own
                };
                Solution.activations(layers, room, host).into_iter().zip(more).map(own).collect()
            }
            _ => Solution.activations(layers, room, host),
        }
    }

    fn cut(&self, parameter: &str) -> Cut {
        match self.0 {
            Slip::Whole => Cut::Whole,
            Slip::CutsA if parameter.contains("q_proj.lora_A") => Cut::Rows,
            _ => Solution.cut(parameter),
        }
    }

    fn join(&self, module: &str, y: &Tensor, group: &Group) -> Tensor {
        if self.0 == Slip::Apart { y.clone() } else { Solution.join(module, y, group) }
    }

    fn total(&self, gradient: &Tensor, cut: Cut, group: &Group) -> Tensor {
        if self.0 == Slip::NoTotal { gradient.clone() } else { Solution.total(gradient, cut, group) }
    }

    fn schedule(&self, shape: Shape, workload: &Workload) -> Result<Schedule, schedule::Error> {
        match self.0 {
            Slip::OneFOneB => one_f_one_b(shape, workload),
            Slip::Known => {
                Ok(better(Solution.schedule(shape, workload)?, zero_bubble(shape, workload), workload))
            }
            Slip::TwoRules => {
                let preference = [Kind::Backward, Kind::Forward, Kind::Recompute, Kind::Weight];
                let ahead = (0..shape.ranks()).map(|rank| shape.ranks() - rank).collect();
                let other = schedule::listed(shape, workload, &Rule { preference, ahead });
                Ok(better(Solution.schedule(shape, workload)?, other, workload))
            }
            Slip::SearchElsewhere if shape.ranks() == 2 && shape.micro_batches() == 4 => {
                let found = shortest(shape, workload, 300_000)?;
                found.map_or_else(|| Solution.schedule(shape, workload), |found| Ok(found.schedule))
            }
            Slip::NoCap if shape.micro_batches() != 8 => {
                Solution.schedule(shape, &Workload { cap: None, ..workload.clone() })
            }
            Slip::NoPipeline => {
                assert!(std::thread::current().name() == Some("main"), "no rank runs this");
                Solution.schedule(shape, workload)
            }
            Slip::Search if shape.ranks() * shape.micro_batches() <= 6 => {
                let found = shortest(shape, workload, 1_000_000)?;
                found.map_or_else(|| Solution.schedule(shape, workload), |found| Ok(found.schedule))
            }
            _ => Solution.schedule(shape, workload),
        }
    }
}

/// One F and one B in turn, with R and W within B.
fn one_f_one_b(shape: Shape, workload: &Workload) -> Result<Schedule, schedule::Error> {
    let line = |rank: usize| {
        let ahead = (shape.ranks() - 1 - rank).min(shape.micro_batches());
        let parts = [Kind::Recompute, Kind::Backward, Kind::Weight].into_iter();
        let whole = parts.filter(|kind| workload.asks(*kind, rank)).fold(Kinds::default(), Kinds::with);
        let mut line = Vec::new();
        for i in 0..shape.micro_batches() + ahead {
            if i < shape.micro_batches() {
                line.push(Operation::one(Kind::Forward, i, 0));
            }
            if let Some(micro_batch) = i.checked_sub(ahead) {
                line.push(Operation { kinds: whole, micro_batch, chunk: 0 });
            }
        }
        line
    };
    Schedule::new(shape, (0..shape.ranks()).map(line).collect())
}

/// Returns the shorter one, if the other one can be run.
fn better(own: Schedule, other: Result<Schedule, schedule::Error>, workload: &Workload) -> Schedule {
    let time = |schedule: &Schedule| Some(check(schedule, workload).ok()?.simulate().makespan());
    match other {
        Ok(other) if time(&other).zip(time(&own)).is_some_and(|(other, own)| other < own) => other,
        _ => own,
    }
}

/// Elements of the whole part.
fn whole(shards: &Shards) -> i64 {
    shards.ranges.iter().map(|range| range.end).max().unwrap_or(0) as i64
}

/// The first elements of a gradient, as many as a shard has, as often as there are ranks.
fn own(gradient: &Tensor, shards: &Shards, ranks: f64) -> Tensor {
    let flat = gradient.reshape([reference::graph::product(gradient.shape())]);
    &flat.slice(0, 0, shards.len as i64) * ranks
}
