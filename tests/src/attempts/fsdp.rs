//! Attempts at challenge B that cheat, each in one way, some that slip, each in one step, and an honest twin.

use challenges::fsdp::{Activations, Fsdp, Gradient, Host, LayerBytes};
use reference::fsdp::{Cut, Parameter, Placement, Shards};
use reference::graph::{Dtype, Group, Tape, Tensor};
use reference::schedule::{self, Schedule, Shape, Workload, shortest};

use super::Entry;
use super::honest::fsdp::Solution;

/// Every cheat, then the honest one.
pub const SHARDERS: [Entry; 7] = [
    Entry { name: "holds everything on every rank", hand_in: |all| all.fsdp(Slips(Slip::Replicated)) },
    Entry { name: "leaves everything to rank 0", hand_in: |all| all.fsdp(Slips(Slip::OneRank)) },
    Entry { name: "gathers in wide numbers", hand_in: |all| all.fsdp(Slips(Slip::Wide)) },
    Entry { name: "takes its own gradient for the sum", hand_in: |all| all.fsdp(Slips(Slip::OwnGradient)) },
    Entry { name: "takes its own norm for everyone's", hand_in: |all| all.fsdp(Slips(Slip::OwnNorm)) },
    Entry { name: "searches for its schedule", hand_in: |all| all.fsdp(Slips(Slip::Search)) },
    Entry { name: "an honest sharder", hand_in: |all| all.fsdp(Slips(Slip::None)) },
];

/// Every slip.
pub const SHARD_SLIPS: [Entry; 11] = [
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
];

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
            _ => Solution.gather(shard, shards, group),
        }
    }

    fn keep(&self, bytes: &[usize], room: usize) -> Vec<bool> {
        if self.0 == Slip::KeepsAll { vec![true; bytes.len()] } else { Solution.keep(bytes, room) }
    }

    fn reduce(&self, gradient: &Tensor, shards: &Shards, group: &Group) -> Tensor {
        let ranks = shards.ranks() as f64;
        match self.0 {
            // right where all ranks have the same micro-batch
            Slip::OwnGradient => {
                &Solution.reduce(&(gradient * 0.0), shards, group) + &own(gradient, shards, ranks)
            }
            Slip::AllReduce => Solution.reduce(&(&gradient.all_reduce(group) * (1.0 / ranks)), shards, group),
            _ => Solution.reduce(gradient, shards, group),
        }
    }

    fn norm(&self, tape: &Tape, gradients: &[Gradient], groups: &[Group]) -> Tensor {
        match self.0 {
            Slip::OwnNorm => Solution.norm(tape, gradients, &[]),
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
            _ => Solution.activations(layers, room, host),
        }
    }

    fn cut(&self, parameter: &str) -> Cut {
        if self.0 == Slip::Whole { Cut::Whole } else { Solution.cut(parameter) }
    }

    fn join(&self, module: &str, y: &Tensor, group: &Group) -> Tensor {
        if self.0 == Slip::Apart { y.clone() } else { Solution.join(module, y, group) }
    }

    fn total(&self, gradient: &Tensor, cut: Cut, group: &Group) -> Tensor {
        if self.0 == Slip::NoTotal { gradient.clone() } else { Solution.total(gradient, cut, group) }
    }

    fn schedule(&self, shape: Shape, workload: &Workload) -> Result<Schedule, schedule::Error> {
        match self.0 {
            Slip::OneFOneB => schedule::one_f_one_b(shape, workload),
            Slip::Search if shape.ranks() * shape.micro_batches() <= 6 => {
                let found = shortest(shape, workload, 1_000_000)?;
                found.map_or_else(|| Solution.schedule(shape, workload), |found| Ok(found.schedule))
            }
            _ => Solution.schedule(shape, workload),
        }
    }
}

/// The first elements of a gradient, as many as a shard has, as often as there are ranks.
fn own(gradient: &Tensor, shards: &Shards, ranks: f64) -> Tensor {
    let flat = gradient.reshape([reference::graph::product(gradient.shape())]);
    &flat.slice(0, 0, shards.len as i64) * ranks
}
