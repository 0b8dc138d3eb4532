//! A small Llama in NF4 with an adapter, trained in shards on two ranks and on one.

use challenges::fsdp::{FSDP, Fsdp, Host, Room, Sharding, Solution, solution_calls};
use challenges::nf4::DEQUANTIZER;
use reference::fsdp::Parameter;
use reference::llama::Storage;

use super::evidence::training;
use super::job::{How, Job, Trained};
use super::trial::{IN_SHARDS, RANKS, STEPS, STEPS_WITH_ROOM, Stop, Trial, number};
use super::wire::{Bytes, of_shards};
use crate::gather::Child;
use crate::graph::model::Sizes;
use crate::scorecard::Measurement;

/// Micro-batches of a step, and the rows and tokens of each: 2 x 4 as published.
pub(super) const MICRO_BATCHES: usize = 4;
pub(super) const SHAPE: [usize; 2] = [2, 16];
pub(super) const RATE: f64 = 1e-3;
pub(super) const LLAMA: Sizes = Sizes { layers: 2, hidden: 128, heads: 4, vocab: 96 };

/// Room for some of everything: for the whole parts of one layer, for any two gathers, for the activations of one layer
/// beside the x of both.
const ROOM: Room = Room {
    kept_bytes: 120 << 10,
    prefetch_bytes: 1 << 20,
    activation_bytes: 400 << 10,
    host: Host::Unused,
    has_shards_on_host: false,
};

/// Two ranks in shards against one.
pub(super) fn in_shards(child: &mut Child, attempt: &dyn Fsdp) {
    let (seed, source) = (child.request.effort.seed, child.request.source);
    let run = || {
        let job = Job::drawn(LLAMA, seed, RATE, [STEPS, MICRO_BATCHES], SHAPE).map_err(Stop::Machine)?;
        let one = one_rank(&job, STEPS).map_err(Stop::Machine)?;
        let before = solution_calls();
        let train = |room, steps| job.train(&[(FSDP, RANKS)], How { room, ..how(attempt) }, steps);
        let ranks = train(Room::default(), STEPS).map_err(Stop::Attempt)?;
        let roomy = train(ROOM, STEPS_WITH_ROOM).map_err(Stop::Attempt)?;
        source.own_work(solution_calls() - before).map_err(Stop::Attempt)?;
        let most = of_shards(&job.spec, RANKS).map_err(Stop::Machine)?;
        Ok(Shards { share: share(&job), one, ranks, roomy, most })
    };
    Trial { name: IN_SHARDS, attempt }.run(child, run, report);
}

/// A run in shards beside that of one rank.
struct Shards {
    one: Trained,
    ranks: Vec<Trained>,
    roomy: Vec<Trained>,
    share: [usize; 2], // bytes: the most that a rank may hold, and everything
    most: Bytes,       // on the wire, for one micro-batch of a rank's own
}

/// In shards, with all steps of an attempt.
pub(super) fn how(attempt: &dyn Fsdp) -> How<'_> {
    How {
        attempt,
        dequantizer: &DEQUANTIZER,
        pipeline: None,
        sharding: Sharding::Parameters,
        room: Room::default(),
    }
}

/// The run that all others are held to.
pub(super) fn one_rank(job: &Job, steps: usize) -> Result<Trained, String> {
    Ok(job.train(&[(FSDP, 1)], how(&Solution), steps)?.swap_remove(0))
}

/// The most bytes of frozen weights that one of the ranks may hold - 1/n of each in whole blocks, and tables - and the
/// bytes of all weights.
pub(super) fn share(job: &Job) -> [usize; 2] {
    let mut sums = [0; 2];
    for spec in job.spec.config.tensor_specs() {
        let storage = job.spec.storages.get(&spec.name).copied();
        let storage = storage.unwrap_or(Storage::Dense(job.spec.compute));
        let parameter = Parameter { name: spec.name, shape: spec.shape, storage };
        sums[0] += Solution.place(&parameter, RANKS).rank_bytes(&parameter);
        sums[1] += parameter.parts().iter().map(|part| part.elements() * part.dtype.bytes()).sum::<usize>();
    }
    sums
}

fn report(child: &mut Child, seen: &Shards) -> Result<(), String> {
    series(child, "one", &seen.one);
    for (rank, trained) in seen.ranks.iter().enumerate() {
        series(child, &format!("rank_{rank}"), trained);
    }
    let numbers = numbers(seen);
    for (name, value, unit) in &numbers {
        child.measured(name, number(*value, unit));
    }
    let of = |name: &str| numbers.iter().find(|(known, ..)| *known == name).map(|(_, value, _)| *value);
    let (holds, evidence) = training(&of).ok_or("a number is missing")?;
    if holds { Ok(()) } else { Err(evidence) }
}

/// The losses of a run, if they are numbers.
fn series(child: &mut Child, name: &str, trained: &Trained) {
    let samples = &trained.losses;
    if let Some(last) = samples.last().filter(|_| samples.iter().all(|sample| sample.is_finite())) {
        let series = Measurement { samples: samples.clone(), ..number(*last, "nats") };
        child.measured(&format!("fsdp.training.{name}"), series);
    }
}

/// What the rows rest on: names, values, units.
fn numbers(Shards { one, ranks, roomy, share, most }: &Shards) -> Vec<(&'static str, f64, &'static str)> {
    let largest = |of: &dyn Fn(&Trained) -> f64| ranks.iter().map(of).fold(0.0, f64::max);
    let batches = (STEPS * MICRO_BATCHES / RANKS) as f64;
    let recompiled = |own: &Trained| (own.compilations[1] - own.compilations[0]) as f64;
    let differ = roomy.iter().zip(ranks).map(|(own, without)| differing(own, without)).sum::<usize>();
    let least = |all: &[Trained], of: fn(&Trained) -> u64| all.iter().map(of).min().unwrap_or(0) as f64;
    vec![
        ("fsdp.training", losses_apart(one, ranks), "relative"),
        ("fsdp.training.norms", largest(&|own| apart(&one.norms, &own.norms)), "relative"),
        ("fsdp.training.adapter", largest(&|own| state_apart(one, own)), "relative"),
        ("fsdp.training.ranks", ranks.len() as f64, "count"),
        ("fsdp.training.bytes", largest(&|own| own.weight_bytes as f64), "B"),
        ("fsdp.training.share", share[0] as f64, "B"),
        ("fsdp.training.all_bytes", share[1] as f64, "B"),
        ("fsdp.training.weights", largest(&|own| own.frozen.len() as f64), "count"),
        ("fsdp.training.beyond_share", largest(&|own| beyond_share(own) as f64), "count"),
        ("fsdp.training.gathered", largest(&|own| own.wire.gathered as f64), "B"),
        ("fsdp.training.gathered_most", most.gathered as f64 * batches, "B"),
        ("fsdp.training.reduced", largest(&|own| own.wire.reduced as f64), "B"),
        ("fsdp.training.reduced_most", most.reduced as f64 * batches, "B"),
        ("fsdp.training.compilations", largest(&|own| own.compilations[0] as f64), "count"),
        ("fsdp.training.recompilations", largest(&recompiled), "count"),
        ("fsdp.training.runs", least(ranks, |own| own.runs as u64), "count"),
        ("fsdp.training.room", differ as f64, "count"),
        ("fsdp.training.room_early", least(roomy, |own| own.traffic.early), "count"),
        ("fsdp.training.room_gathers", least(roomy, |own| own.traffic.gathers), "count"),
    ]
}

/// The largest difference, relative, of any rank's losses from those of one.
pub(super) fn losses_apart(one: &Trained, ranks: &[Trained]) -> f64 {
    ranks.iter().map(|own| apart(&one.losses, &own.losses)).fold(0.0, f64::max)
}

fn apart(one: &[f64], own: &[f64]) -> f64 {
    crate::loss::series_apart(&[one.to_vec(), own.to_vec()])
}

/// Losses and norms of a run of a few steps that have other bits than in a longer run.
fn differing(own: &Trained, without: &Trained) -> usize {
    let losses = own.losses.iter().zip(&without.losses);
    let norms = own.norms.iter().zip(&without.norms);
    losses.chain(norms).filter(|(own, without)| own.to_bits() != without.to_bits()).count()
}

/// Weights of which a rank holds more than its share: 1/n in whole blocks, and one scale that it has with a neighbour.
fn beyond_share(own: &Trained) -> usize {
    let scale = 4; // bytes
    let most = |parameter: &Parameter| Solution.place(parameter, RANKS).rank_bytes(parameter) + scale;
    own.frozen.iter().filter(|(parameter, placed)| placed.rank_bytes(parameter) > most(parameter)).count()
}

/// The largest difference of an adapter's number, as a part of the largest one.
fn state_apart(one: &Trained, own: &Trained) -> f64 {
    let trained = |name: &&String| name.starts_with("base_model.");
    let mut largest: [f64; 2] = [0.0; 2];
    for name in one.state.keys().filter(trained) {
        let Some(other) = own.state.get(name) else { return f64::MAX };
        for (x, y) in one.state[name].wide().into_iter().zip(other.wide()) {
            if !(x - y).is_finite() {
                return f64::MAX;
            }
            largest[0] = largest[0].max((x - y).abs());
            largest[1] = largest[1].max(x.abs());
        }
    }
    largest[0] / largest[1].max(f64::MIN_POSITIVE)
}
