//! Training on several ranks: the losses, norms and adapters of one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use challenges::fsdp::forecast::Planned;
use challenges::fsdp::{
    self, Activations, Fsdp, Gradient, Host, LayerBytes, Pipeline, Rank, Room, Semaphore, Sharding, Store,
    Team, Trace, Traffic,
};
use challenges::loss::run::Size;
use challenges::nf4::DEQUANTIZER;
use challenges::train::chunks::{InChunks, Total, causal};
use challenges::train::{Machine, Microbatch};
use challenges::{graph, loss};
use kernels::callee::{Callee, HostCallee, Quantized};
use kernels::comm::{Comm, CommError};
use kernels::tile::Element;
use kernels::{Counts, Cpu, Device, threads};
use reference::fsdp::{self as fsdp_oracle, Cut, Parameter, Shards};
use reference::graph::interpret::Values;
use reference::graph::ranks::Mesh;
use reference::graph::{Array, Dtype, Group, Tape, Tensor};
use reference::llama::train::{Recipe, Report};
use reference::llama::{Llama, Spec, Storage};
use reference::lora::{self, Adapter, Targets};
use reference::loss::IGNORED;
use reference::optim::AdamW;
use reference::schedule::{
    self, Buffer, GENERATORS, Generator, Held, Placement, Schedule, Shape, Stage, Times, Workload,
};
use tests::small_llama::SmallLlama;
use tests::tiny_llama::TinyLlama;

use crate::llama::{check_run, recipe};

/// Longer than a busy machine keeps a thread waiting: no test here is about its end.
const GENEROUS: Duration = Duration::from_mins(5);

/// Rows all of whose tokens are trained.
fn batch(ids: &[i32], shape: [usize; 2]) -> Microbatch {
    let labels = ids.chunks(shape[1]).flat_map(|row| [IGNORED].into_iter().chain(row[1..].iter().copied()));
    Microbatch {
        shape,
        ids: ids.to_vec(),
        labels: labels.collect(),
        targets: Vec::new(),
        positions: (0..shape[0]).flat_map(|_| 0..shape[1] as i32).collect(),
        documents: vec![1; ids.len()],
        images: None,
    }
}

/// How the ranks of a test work together.
#[derive(Clone, Copy, Default)]
struct How<'a> {
    pipeline: Option<&'a Pipeline<'a>>,
    room: Room,
    sharding: Sharding,
    loss: Option<InChunks<'a>>,
    stores_apart: bool,
}

/// What is trained, and on what: the micro-batches of each step.
struct Job<'a> {
    model: &'a Llama,
    spec: Spec,
    start: Values<f32>,
    recipe: Recipe,
    rate: f64,
    steps: Vec<Vec<Microbatch>>,
}

/// A rank's run.
struct Trained {
    reports: Vec<Report>,
    state: Values<f32>,
    traffic: Traffic,
    weight_bytes: usize,
    compilations: usize,
    counts: Counts, // of its device, after the last step
    trace: Trace,   // of the last step
}

impl Job<'_> {
    /// What one rank of several makes of it.
    fn on(&self, team: Team<'_>, attempt: &dyn Fsdp) -> Result<Trained, fsdp::Error> {
        let device = Cpu::with_threads(1);
        let on = Machine { passes: &graph::Solution, device: &device, dequantizer: &DEQUANTIZER };
        let mut rank =
            Rank::new(on, team, attempt, self.model, self.spec.clone(), &self.recipe, &self.start)?;
        let mut reports = Vec::new();
        for (number, step) in (1..).zip(&self.steps) {
            let counts = |batch: &Microbatch| batch.labels.iter().filter(|label| **label != IGNORED).count();
            let items: usize = step.iter().map(counts).sum();
            let keyed: Vec<(Microbatch, [i32; 2])> =
                (0..).zip(step).map(|(key, batch)| (batch.clone(), [number as i32, key])).collect();
            let logged = rank.accumulate(&keyed, items as u64)?;
            let grad_norm = rank.update(number, self.rate)?;
            reports.push(Report { loss: logged.iter().map(|batch| batch.loss).sum(), grad_norm });
        }
        let (traffic, weight_bytes) = (rank.traffic(), rank.weight_bytes());
        let (compilations, counts) = (rank.counters().compilations, device.counts());
        let trace = rank.trace().clone();
        Ok(Trained { reports, state: rank.state()?, traffic, weight_bytes, compilations, counts, trace })
    }

    /// Every rank's outcome.
    fn run(&self, mesh: &Mesh, how: How<'_>, attempt: &dyn Fsdp) -> Vec<Result<Trained, String>> {
        let How { pipeline, room, sharding, loss, stores_apart } = how;
        let store = Store::default();
        let own = || if stores_apart { Store::default() } else { store.clone() };
        let team = |world| Team { world, mesh, pipeline, room, sharding, loss, store: own() };
        let outcomes = threads::launch(mesh.ranks(), GENEROUS, |comm| self.on(team(comm), attempt));
        let flat = |outcome: Result<Result<Trained, fsdp::Error>, CommError>| {
            outcome.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
        };
        outcomes.into_iter().map(flat).collect()
    }

    /// Every rank's run.
    fn train(&self, axes: &[(&str, usize)], how: How<'_>) -> Vec<Trained> {
        let mesh = Mesh::new(axes.iter().copied()).expect("a mesh");
        let all = self.run(&mesh, how, &fsdp::Solution).into_iter();
        let all: Vec<Trained> =
            all.map(|outcome| outcome.unwrap_or_else(|error| panic!("{axes:?}: {error}"))).collect();
        let same = |other: &Trained| other.reports == all[0].reports && other.state == all[0].state;
        assert!(all.iter().all(same), "{axes:?}: every rank has the same losses, norms and adapter");
        all
    }
}

/// The golden run, a row a micro-batch.
fn golden_run(tiny: &TinyLlama, axes: &[(&str, usize)], how: How<'_>) -> Vec<Trained> {
    let (run, model, adapter) = (tiny.run(), tiny.open("nf4"), tiny.adapter("adapter-start"));
    let row = |row: usize| {
        let ids = tiny.ids::<f32>(row..row + 1);
        batch(ids.as_integers(), [1, ids.shape[1]])
    };
    let steps = (0..run.steps).map(|step| (step * run.batch..(step + 1) * run.batch).map(row).collect());
    let (steps, start) = (steps.collect(), adapter.values());
    let spec = Spec { adapter: Some(adapter.config), ..model.spec() };
    let job = Job { model: &model, spec, start, recipe: recipe(&run), rate: run.lr, steps };
    job.train(axes, how)
}

/// That a mesh has the losses, the norms and the adapter of the golden run.
fn check_mesh(axes: &[(&str, usize)], how: How<'_>) {
    let Some(tiny) = TinyLlama::find() else { return };
    let all = golden_run(&tiny, axes, how);
    println!("{axes:?}");
    check_run(&tiny, &all[0].reports, &all[0].state);
}

#[test]
fn a_run_in_shards_is_as_near_the_truth_as_the_original_is() {
    (1..=4).for_each(|ranks| check_mesh(&[("fsdp", ranks)], How::default()));
}

/// Flat rows have the bits of shards of each parameter, whatever is gathered early, kept or on the host.
#[test]
fn flat_rows_have_the_bits_of_parameters() {
    check_mesh(&[("fsdp", 2)], How { sharding: Sharding::Flat, ..How::default() });
    let model = SmallLlama::sound().deep(4).quantized(32, true).open().expect("a sound model");
    let job = small_job(&model, 4, Targets::AllLinear);
    let all = usize::MAX;
    let rooms = [
        Room::default(),
        Room { prefetch_bytes: all, kept_bytes: 5000, has_shards_on_host: true, ..Room::default() },
    ];
    for axes in [&[("fsdp", 2)][..], &[("fsdp", 3)], &[("fsdp", 2), ("pp", 2)]] {
        for room in rooms {
            let how = How { room, ..How::default() };
            let each = job.train(axes, how).remove(0);
            let flat = job.train(axes, How { sharding: Sharding::Flat, ..how }).remove(0);
            assert!(flat.state == each.state && flat.reports == each.reports, "{axes:?}, {room:?}");
            assert!(flat.weight_bytes <= each.weight_bytes, "{axes:?}, {room:?}");
        }
    }
}

#[test]
fn a_run_of_ranks_that_share_layers_is_as_near_the_truth_as_the_original_is() {
    check_mesh(&[("tp", 2)], How::default());
    check_mesh(&[("fsdp", 2), ("tp", 2)], How::default());
    check_mesh(&[("tp", 2), ("fsdp", 3)], How::default());
}

/// What a step costs where activations are computed again and weights dequantised as operations of their own, or not.
fn workload(recomputed: bool, buffer: Option<Buffer>) -> Workload {
    let times = Times { forward: 1.0, backward: 1.0, weight: 0.1, recompute: 1.0, dequantize: 0.2 };
    let stage =
        Stage { times, held: Held { forward: 1, recompute: 1, weight: 1 }, recomputed, trained: true };
    Workload { buffer, ..Workload::uniform(stage) }
}

#[test]
fn a_run_through_stages_is_as_near_the_truth_as_the_original_is() {
    check_mesh(&[("pp", 2)], How::default());
    check_mesh(&[("pp", 3)], How::default());
    check_mesh(&[("fsdp", 2), ("pp", 2)], How::default());
    check_mesh(&[("pp", 2), ("tp", 2)], How::default());
}

#[test]
fn every_schedule_is_as_near_the_truth_as_the_original_is() {
    let own: Generator = |shape, workload| fsdp::Solution.schedule(shape, workload);
    let all = GENERATORS.into_iter().chain([("of B.8", own)]);
    for (name, generator) in all.filter(|(name, _)| *name != "interleaved") {
        for recomputed in [true, false] {
            for buffer in [None, Some(Buffer { chunks: 1, reads: None })] {
                let workload = workload(recomputed, buffer);
                println!("{name}, recomputed: {recomputed}, dequantised: {}", buffer.is_some());
                let pipeline = Pipeline {
                    chunks: 1,
                    placement: Placement::Looped,
                    workload,
                    schedule: &generator,
                    slots: None,
                };
                check_mesh(&[("pp", 2)], How { pipeline: Some(&pipeline), ..How::default() });
            }
        }
    }
}

/// Whatever there is room for, and wherever it lies, every bit is the same: what is kept, gathered early, moved to the
/// host and back is what would have been computed or gathered again.
#[test]
fn room_changes_no_bit() {
    let Some(tiny) = TinyLlama::find() else { return };
    let run = |room: Room| golden_run(&tiny, &[("fsdp", 2)], How { room, ..How::default() }).swap_remove(0);
    let plain = run(Room::default());
    let host = |activation_bytes: usize| Room { activation_bytes, host: Host::Used, ..Room::default() };
    let all = usize::MAX;
    let fewer: fn(Traffic, Traffic) -> bool =
        |found, plain| found.gathers < plain.gathers && found.early == 0;
    let early: fn(Traffic, Traffic) -> bool =
        |found, plain| found.gathers == plain.gathers && found.early > 0;
    let both: fn(Traffic, Traffic) -> bool = |found, plain| found.gathers < plain.gathers && found.early > 0;
    let moved: fn(Traffic, Traffic) -> bool = |found, _| found.offloaded_bytes > 0;
    let same: fn(Traffic, Traffic) -> bool = |found, plain| found == plain;
    let rooms = [
        (Room { kept_bytes: all, ..Room::default() }, fewer),
        (Room { kept_bytes: 200_000, ..Room::default() }, fewer),
        (Room { prefetch_bytes: all, ..Room::default() }, early),
        (Room { kept_bytes: 200_000, prefetch_bytes: all, ..Room::default() }, both),
        (Room { has_shards_on_host: true, ..Room::default() }, same),
        (Room { has_shards_on_host: true, prefetch_bytes: all, ..Room::default() }, early),
        (host(1), moved),
        (host(40_000), moved),
    ];
    for (room, does) in rooms {
        let found = run(room);
        assert!(found.reports == plain.reports && found.state == plain.state, "{room:?}");
        assert!(does(found.traffic, plain.traffic), "{room:?}: {:?}, {:?}", found.traffic, plain.traffic);
        assert!(found.weight_bytes == plain.weight_bytes || room.has_shards_on_host, "{room:?}");
    }
    for activation_bytes in [500_000, all] {
        let found = run(Room { activation_bytes, ..Room::default() });
        check_run(&tiny, &found.reports, &found.state); // what is kept was rounded where it was computed
    }
}

/// A small model with an adapter whose B is not zero, and so many micro-batches a step, whose lengths grow from step to
/// step.
fn small_job(model: &Llama, micro_batches: usize, targets: Targets) -> Job<'_> {
    let config = lora::Config::new(3, 6.0, targets);
    let mut start =
        Adapter::fresh(config.clone(), &model.config, 7).expect("targets that there are").values();
    for (seed, value) in start.values_mut().enumerate() {
        let count: usize = value.shape.iter().product();
        let numbers = (0..count).map(|i| ((i * 31 + seed * 17) % 23) as f64 / 46.0 - 0.25);
        *value = Array::floats(Dtype::F32, &value.shape, numbers.collect::<Vec<_>>());
    }
    let row = |step: usize, number: usize| {
        let length = 3 + step * 5;
        let ids: Vec<i32> = (0..length).map(|i| ((i * 7 + number * 3) % 17) as i32).collect();
        batch(&ids, [1, length])
    };
    let steps = (0..3).map(|step| (0..micro_batches).map(|i| row(step, step * micro_batches + i)).collect());
    let recipe = Recipe { optimizer: AdamW::default(), max_norm: f64::MAX };
    let spec = Spec { adapter: Some(config), ..model.spec() };
    Job { model, spec, start, recipe, rate: 1e-2, steps: steps.collect() }
}

/// Where no gradient is shortened and no sum has another order, ranks have the bits of one: for rows that are no whole
/// number of blocks, layers that differ, fewer rows of A than ranks.
#[test]
fn ranks_have_the_bits_of_one() {
    let sound = SmallLlama::sound;
    for small in [
        sound(),
        sound().quantized(32, true),
        sound().quantized(64, false),
        sound().deep(4).quantized(32, true),
    ] {
        let model = small.open().expect("a sound model");
        for ranks in [2, 3, 5] {
            let job = small_job(&model, ranks, Targets::AllLinear);
            let one = job.train(&[("fsdp", 1)], How::default()).remove(0);
            let stages = model.config.layers.min(ranks);
            for axes in [[("fsdp", ranks)], [("pp", stages)]] {
                let found = job.train(&axes, How::default()).remove(0);
                assert!(found.state == one.state, "{axes:?}");
                let losses = |run: &Trained| run.reports.iter().map(|report| report.loss).collect::<Vec<_>>();
                assert_eq!(losses(&found), losses(&one), "{axes:?}");
            }
        }
    }
}

/// Stages of which a rank has two, in both placements.
#[test]
fn a_rank_may_have_several_stages() {
    let model = SmallLlama::sound().deep(8).quantized(32, true).open().expect("a sound model");
    let job = small_job(&model, 4, Targets::AllLinear);
    let one = job.train(&[("fsdp", 1)], How::default()).remove(0);
    for (name, generator) in
        GENERATORS.into_iter().filter(|(name, _)| ["interleaved", "gpipe"].contains(name))
    {
        for placement in [Placement::Looped, Placement::V] {
            if name == "interleaved" && placement == Placement::V {
                continue; // which it is not made for
            }
            for buffer in
                [None, Some(Buffer { chunks: 1, reads: None }), Some(Buffer { chunks: 2, reads: None })]
            {
                let workload = workload(true, buffer);
                let pipeline = Pipeline { chunks: 2, placement, workload, schedule: &generator, slots: None };
                let how = How { pipeline: Some(&pipeline), ..How::default() };
                let found = job.train(&[("pp", 2)], how).remove(0);
                for (found, one) in found.reports.iter().zip(&one.reports) {
                    assert!((found.loss / one.loss - 1.0).abs() < 1e-5, "{name}: {found:?}, {one:?}");
                    assert!(
                        (found.grad_norm / one.grad_norm - 1.0).abs() < 1e-4,
                        "{name}: {found:?}, {one:?}"
                    );
                }
            }
        }
    }
}

/// Rows of unequal lengths, more of them than ranks and fewer: each has its own size on its rank, and what is logged
/// stands in their order.
#[test]
fn batches_of_unequal_sizes_have_the_losses_of_one_rank() {
    let model = SmallLlama::sound().deep(4).quantized(32, true).open().expect("a sound model");
    let row = |seed: usize, length: usize| {
        let ids: Vec<i32> = (0..length).map(|i| ((i * 7 + seed * 3) % 17) as i32).collect();
        batch(&ids, [1, length])
    };
    let lengths = [[3, 30, 9, 17, 5], [31, 2, 2, 29, 32], [8, 8, 32, 8, 8]];
    let steps =
        lengths.iter().map(|step| step.iter().enumerate().map(|(i, length)| row(i, *length)).collect());
    let job = Job { steps: steps.collect(), ..small_job(&model, 1, Targets::AllLinear) };
    let one = job.train(&[("fsdp", 1)], How::default()).remove(0);
    let all = usize::MAX;
    let rooms = [
        Room::default(),
        Room { prefetch_bytes: all, activation_bytes: all, ..Room::default() },
        Room { activation_bytes: 3000, host: Host::Used, ..Room::default() },
    ];
    for axes in [&[("fsdp", 2)][..], &[("fsdp", 3)], &[("fsdp", 7)], &[("fsdp", 2), ("pp", 2)], &[("pp", 3)]]
    {
        for room in rooms {
            let found = job.train(axes, How { room, ..How::default() }).remove(0);
            for (found, one) in found.reports.iter().zip(&one.reports) {
                assert!((found.loss / one.loss - 1.0).abs() < 1e-5, "{axes:?}, {room:?}: {found:?}, {one:?}");
                let norms = found.grad_norm / one.grad_norm - 1.0;
                assert!(norms.abs() < 1e-4, "{axes:?}, {room:?}: {found:?}, {one:?}");
            }
        }
    }
}

/// A step of a pipeline of two or three ranks, of which so many compute at a time.
fn traced(ranks: usize, slots: Option<&Semaphore>) -> (Schedule, Vec<Trace>) {
    let model = SmallLlama::sound().deep(4).quantized(32, true).open().expect("a sound model");
    let job = small_job(&model, 6, Targets::AllLinear);
    let own: Generator = |shape, workload| fsdp::Solution.schedule(shape, workload);
    let (workload, placement) = (workload(true, None), Placement::Looped);
    let pipeline = Pipeline { chunks: 1, placement, workload, schedule: &own, slots };
    let all = job.train(&[("pp", ranks)], How { pipeline: Some(&pipeline), ..How::default() });
    let shape = Shape::line(ranks, 6).expect("a shape");
    let schedule = own(shape, &pipeline.workload).expect("a schedule");
    (schedule, all.into_iter().map(|rank| rank.trace).collect())
}

/// Every operation of the schedule is there once, each after the one before it, and none begins before the rank before
/// or behind it has sent what it reads.
#[test]
fn operations_begin_when_what_they_need_has_ended() {
    for ranks in [2, 3] {
        let (schedule, traces) = traced(ranks, None);
        let mut ends = BTreeMap::new();
        for (rank, (line, trace)) in schedule.ranks().iter().zip(&traces).enumerate() {
            assert_eq!(trace.operations.len(), line.len(), "rank {rank}");
            assert!(trace.operations.windows(2).all(|pair| pair[0].end <= pair[1].begin), "rank {rank}");
            let done = line.iter().zip(&trace.operations);
            ends.extend(done.map(|(operation, moment)| ((rank, operation.to_string()), *moment)));
        }
        for ((rank, name), moment) in &ends {
            let other = match name.chars().next() {
                Some('F') => rank.checked_sub(1),
                Some('B') => Some(rank + 1).filter(|other| *other < ranks),
                _ => None,
            };
            let Some(other) = other else { continue };
            let sent = ends[&(other, name.clone())];
            assert!(
                sent.begin <= moment.begin,
                "{name} of rank {rank} begins before it does on rank {other}"
            );
        }
    }
}

#[test]
fn ranks_that_share_a_core_compute_one_at_a_time() {
    let slots = Semaphore::new(1);
    let (_, traces) = traced(3, Some(&slots));
    let mut all: Vec<_> = traces.iter().flat_map(|trace| &trace.operations).collect();
    all.sort_by_key(|moment| moment.begin);
    assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].begin));
    let model = SmallLlama::sound().deep(4).open().expect("a sound model");
    let job = small_job(&model, 4, Targets::AllLinear);
    let own: Generator = |shape, workload| fsdp::Solution.schedule(shape, workload);
    let (workload, placement) = (workload(true, None), Placement::Looped);
    let pipeline = Pipeline { chunks: 1, placement, workload, schedule: &own, slots: Some(&slots) };
    let how = How { pipeline: Some(&pipeline), ..How::default() };
    assert_eq!(
        refusal(&job, &[("pp", 2), ("fsdp", 2)], how, &fsdp::Solution),
        "expected a rank for each of 2 stages where ranks take turns, found 4 ranks"
    );
}

/// What each rank says of a mesh on which a job cannot be run.
fn refusal(job: &Job<'_>, axes: &[(&str, usize)], how: How<'_>, attempt: &dyn Fsdp) -> String {
    let mesh = Mesh::new(axes.iter().copied()).expect("a mesh");
    let all = job.run(&mesh, how, attempt).into_iter();
    let errors: Vec<String> = all.map(|outcome| outcome.err().expect("no rank trains")).collect();
    errors[0].clone()
}

#[test]
fn what_ranks_cannot_do_is_refused_on_all_of_them() {
    let model = SmallLlama::sound().quantized(32, true).open().expect("a sound model");
    let job = small_job(&model, 2, Targets::AllLinear);
    let refused = |axes: &[(&str, usize)], says: &str| {
        let error = refusal(&job, axes, How::default(), &fsdp::Solution);
        assert_eq!(error, says);
    };
    refused(&[("dp", 2)], "expected a mesh of the axes \"fsdp\", \"tp\" and \"pp\", found \"dp\"");
    refused(&[("pp", 3)], "expected at least a layer for each of 3 stages, found 2 layers");
    refused(&[("tp", 4)], "expected the number of heads to be a multiple of 4, found 6");
    let dropped = lora::Config { dropout: 0.5, ..lora::Config::new(3, 6.0, Targets::AllLinear) };
    let dense = SmallLlama::sound().open().expect("a sound model");
    let job = Job { model: &dense, ..small_job(&dense, 2, Targets::AllLinear) };
    let job = Job { spec: Spec { adapter: Some(dropped), dropout: true, ..job.spec.clone() }, ..job };
    let error = refusal(&job, &[("tp", 2)], How::default(), &fsdp::Solution);
    assert_eq!(
        error,
        "expected lora_dropout = 0 where 2 ranks share a layer: their masks would not be those of one"
    );
}

/// An attempt one of whose steps is another one.
struct Wrong(&'static str);

impl Fsdp for Wrong {
    fn place(&self, parameter: &Parameter, ranks: usize) -> fsdp_oracle::Placement {
        let mut placement = fsdp::Solution.place(parameter, ranks);
        if self.0 == "B.1" && parameter.name == "model.layers.1.mlp.down_proj.weight" {
            placement.parts[0].ranges[0].end -= 1;
        }
        placement
    }
    fn gather(&self, shard: &Tensor, shards: &Shards, group: &Group) -> Tensor {
        if self.0 == "B.2" { shard.clone() } else { fsdp::Solution.gather(shard, shards, group) }
    }
    fn keep(&self, bytes: &[usize], room: usize) -> Vec<bool> {
        if self.0 == "B.3" { vec![true; bytes.len()] } else { fsdp::Solution.keep(bytes, room) }
    }
    fn reduce(&self, gradient: &Tensor, shards: &Shards, group: &Group) -> Tensor {
        if self.0 == "B.4" { gradient.clone() } else { fsdp::Solution.reduce(gradient, shards, group) }
    }
    fn norm(&self, tape: &Tape, gradients: &[Gradient], groups: &[Group]) -> Tensor {
        fsdp::Solution.norm(tape, gradients, groups)
    }
    fn prefetch(&self, bytes: &[usize], room: usize) -> Vec<bool> {
        if self.0 == "B.5" { vec![true; bytes.len()] } else { fsdp::Solution.prefetch(bytes, room) }
    }
    fn activations(&self, layers: &[LayerBytes], room: usize, host: Host) -> Vec<Activations> {
        if self.0 == "B.6" { vec![] } else { fsdp::Solution.activations(layers, room, host) }
    }
    fn cut(&self, parameter: &str) -> Cut {
        if self.0 == "B.7" { Cut::Whole } else { fsdp::Solution.cut(parameter) }
    }
    fn join(&self, module: &str, y: &Tensor, group: &Group) -> Tensor {
        fsdp::Solution.join(module, y, group)
    }
    fn total(&self, gradient: &Tensor, cut: Cut, group: &Group) -> Tensor {
        fsdp::Solution.total(gradient, cut, group)
    }
    fn schedule(&self, shape: Shape, workload: &Workload) -> Result<Schedule, schedule::Error> {
        fsdp::Solution.schedule(shape, workload)
    }
}

#[test]
fn a_wrong_value_is_named_before_any_rank_runs_it() {
    let model = SmallLlama::sound().quantized(32, true).open().expect("a sound model");
    let job = small_job(&model, 2, Targets::AllLinear);
    let how = How { room: Room { activation_bytes: 1, ..Room::default() }, ..How::default() };
    let table = [
        ("B.1", "`model.layers.1.mlp.down_proj.weight`, rank 1: expected elements that go on from the"),
        ("B.2", "B.2, `model.embed_tokens.weight`: expected f32[204], found f32[108]"),
        ("B.3", "B.3, `room`: expected at most 0 bytes, found"),
        ("B.4", "B.4, `grad.base_model.model.model.layers.0."),
        ("B.5", "B.5, `room`: expected at most 0 bytes, found"),
        ("B.6", "B.6, `room`: expected 2 answers, found 0 answers"),
    ];
    for (step, says) in table {
        let error = refusal(&job, &[("fsdp", 2)], how, &Wrong(step));
        assert!(error.starts_with(says), "{error}\n{says}");
    }
    let dense = SmallLlama::sound().open().expect("a sound model");
    let job = small_job(&dense, 2, Targets::AllLinear);
    let error = refusal(&job, &[("tp", 2)], How::default(), &Wrong("B.7"));
    assert!(error.starts_with("B.7, `"), "{error}");
}

/// A dequantiser that fails at its n-th call.
struct Faulty {
    calls: AtomicUsize,
    panics: bool,
}

impl Callee for Faulty {
    fn name(&self) -> &'static str {
        "panics"
    }
    fn host(&self) -> Option<&dyn HostCallee> {
        Some(self)
    }
}

impl HostCallee for Faulty {
    fn check(&self, weight: &Quantized<'_>) -> Result<(), String> {
        DEQUANTIZER.check(weight)
    }
    fn dequantize(
        &self,
        cpu: &Cpu,
        weight: &Quantized<'_>,
        to: Element,
        out: &mut [u8],
    ) -> Result<(), String> {
        let is_last = self.calls.fetch_sub(1, Ordering::Relaxed) == 0;
        assert!(!is_last || !self.panics, "a bug");
        if is_last {
            return Err("the device gave up".to_owned());
        }
        DEQUANTIZER.dequantize(cpu, weight, to, out)
    }
}

/// A dense checkpoint that is quantised while it is loaded, on ranks that share layers: each takes its part of what is
/// quantised whole.
#[test]
fn weights_quantised_on_the_way_are_shared_as_those_of_a_file() {
    let Some(tiny) = TinyLlama::find() else { return };
    let (run, model, adapter) = (tiny.run(), tiny.open("dense"), tiny.adapter("adapter-start"));
    let ids = tiny.ids::<f32>(0..1);
    let steps = vec![vec![batch(ids.as_integers(), [1, ids.shape[1]])]; 3];
    for nested in [true, false] {
        let storages = challenges::weights::storages(&model, nested);
        let spec = Spec { adapter: Some(adapter.config.clone()), storages, ..model.spec() };
        let (start, recipe, steps) = (adapter.values(), recipe(&run), steps.clone());
        let job = Job { model: &model, spec, start, recipe, rate: run.lr, steps };
        let [one, two, both] = [&[("fsdp", 1)][..], &[("tp", 2)], &[("tp", 2), ("fsdp", 2)]]
            .map(|axes| job.train(axes, How::default()).swap_remove(0));
        for (found, one) in two.reports.iter().chain(&both.reports).zip(one.reports.iter().cycle()) {
            assert!((found.loss / one.loss - 1.0).abs() < 1e-5, "{nested}: {found:?}, {one:?}");
            assert!((found.grad_norm / one.grad_norm - 1.0).abs() < 1e-3, "{nested}: {found:?}, {one:?}");
        }
    }
}

/// A rank that dies in the middle of a step, or of an update, or whose device fails, is an error on all ranks, and none
/// hangs.
#[test]
fn a_rank_that_dies_or_fails_ends_the_others() {
    let model = SmallLlama::sound().quantized(32, true).open().expect("a sound model");
    let job = &small_job(&model, 2, Targets::AllLinear);
    for axes in [[("fsdp", 2)], [("pp", 2)]] {
        for (after, panics) in [0, 5, 20].into_iter().flat_map(|after| [(after, true), (after, false)]) {
            let (mesh, store) = (&Mesh::new(axes).expect("a mesh"), Store::default());
            let outcomes = threads::launch(2, GENEROUS, |comm| {
                let calls = AtomicUsize::new(if comm.rank() == 1 { after } else { usize::MAX });
                let faulty = Faulty { calls, panics };
                let device = Cpu::with_threads(1);
                let on = Machine { passes: &graph::Solution, device: &device, dequantizer: &faulty };
                let room = Room::default();
                let (world, sharding) = (comm, Sharding::Parameters);
                let team =
                    Team { world, mesh, pipeline: None, room, sharding, loss: None, store: store.clone() };
                let spec = job.spec.clone();
                let mut rank =
                    Rank::new(on, team, &fsdp::Solution, job.model, spec, &job.recipe, &job.start)?;
                for number in 1..100 {
                    let keyed: Vec<_> = job.steps[0].iter().map(|batch| (batch.clone(), [0; 2])).collect();
                    rank.accumulate(&keyed, 10)?;
                    rank.update(number, job.rate)?;
                }
                Ok::<(), fsdp::Error>(())
            });
            let [first, second] = &outcomes[..] else { panic!("two ranks") };
            let first = first.as_ref().expect("it lives").as_ref().expect_err("it is alone").to_string();
            if panics {
                assert_eq!(second.as_ref().expect_err("it died").to_string(), "rank 1 panicked: a bug");
                assert_eq!(first, "rank 1 panicked: a bug", "{axes:?}, after {after} calls");
            } else {
                let second = second.as_ref().expect("it lives").as_ref().expect_err("its device failed");
                assert!(second.to_string().contains("the device gave up"), "{second}");
                let says = first.starts_with("rank 1 aborted: ") && first.contains("the device gave up");
                assert!(says, "{axes:?}, after {after} calls: {first}");
            }
        }
    }
}

/// Layers that are alike share their programs, and ranks share them all.
#[test]
fn a_program_is_compiled_once_for_all_layers_and_ranks() {
    let compiled = |layers: usize, axes: &[(&str, usize)], stores_apart: bool| {
        let model = SmallLlama::sound().deep(layers).open().expect("a sound model");
        let job = small_job(&model, 2, Targets::AllLinear);
        let all = job.train(axes, How { stores_apart, ..How::default() });
        all.iter().map(|rank| rank.compilations).sum::<usize>()
    };
    for axes in [[("fsdp", 3)], [("tp", 2)]] {
        let (_, ranks) = axes[0];
        let three = compiled(3, &axes, false);
        assert!(three > 0);
        assert_eq!(compiled(7, &axes, false), three, "{axes:?}");
        assert_eq!(compiled(3, &axes, true), ranks * three, "{axes:?}");
    }
    let stages = [("pp", 2)];
    assert!(compiled(8, &stages, false) < compiled(8, &stages, true), "layers of both stages are alike");
}

fn planned<'a>(job: &'a Job<'_>, mesh: &'a Mesh, how: How<'a>, store: &'a Store) -> Planned<'a> {
    let How { pipeline, room, loss, .. } = how;
    let solutions = challenges::fsdp::planned_by_solutions(&job.spec, &job.recipe, mesh, store);
    Planned { pipeline, room, loss, ..solutions }
}

/// What is planned on paper is what a rank's device counts, to the byte.
#[test]
fn a_forecast_is_what_is_counted() {
    let dense = SmallLlama::sound().deep(4);
    let nf4 = dense.clone().quantized(32, true);
    check_forecasts(&nf4, &[&[("fsdp", 2)], &[("fsdp", 3)], &[("pp", 2)], &[("fsdp", 2), ("pp", 2)]]);
    check_forecasts(&dense, &[&[("tp", 2)], &[("tp", 2), ("fsdp", 2)]]);
}

fn check_forecasts(model: &SmallLlama, meshes: &[&[(&str, usize)]]) {
    let model = model.open().expect("a sound model");
    let job = small_job(&model, 4, Targets::AllLinear);
    let steps = vec![job.steps[2].clone(); 2];
    let shape = steps[0][0].shape;
    let once = Job { steps: steps[..1].to_vec(), ..small_job(&model, 4, Targets::AllLinear) };
    let job = Job { steps, ..job };
    let all = usize::MAX;
    let rooms = [
        Room::default(),
        Room { prefetch_bytes: all, activation_bytes: all, ..Room::default() },
        Room { kept_bytes: 5000, ..Room::default() },
        Room { host: Host::Used, activation_bytes: 1, has_shards_on_host: true, ..Room::default() },
    ];
    let causal = causal(&job.spec, Total::Sum).expect("a loss");
    let chunks = [Size::Rows(5), Size::Bytes(40_000), Size::Rows(usize::MAX)];
    let chunks = chunks.map(|size| InChunks { attempt: &loss::Solution, causal: &causal, size });
    let whole = rooms.map(|room| How { room, ..How::default() });
    let chunked = chunks.map(|loss| How { loss: Some(loss), ..How::default() });
    let all = || whole.into_iter().chain(chunked);
    for (axes, how) in meshes.iter().flat_map(|axes| all().map(|how| (*axes, how))) {
        let (mesh, store) = (Mesh::new(axes.iter().copied()).expect("a mesh"), Store::default());
        let planned = planned(&job, &mesh, how, &store);
        let [first, counted] = [&once, &job].map(|job| job.train(axes, how));
        for stage in 0..planned.stages() {
            let rank = mesh.group(0, "pp").map_or(0, |stages| stages[stage]);
            let forecast = planned.on_paper(stage, |sheet| sheet.step(shape, 4)).expect("a forecast");
            let gathered = first[rank].traffic.gathered_bytes + forecast.gathered;
            let Counts { peak_bytes, scratch_bytes, .. } = counted[rank].counts;
            let scratch = forecast.bytes["scratch"];
            let found = (forecast.total() - scratch, scratch, forecast.weights, gathered);
            let Trained { weight_bytes, traffic, .. } = counted[rank];
            assert_eq!(
                found,
                (peak_bytes, scratch_bytes, weight_bytes, traffic.gathered_bytes),
                "{axes:?}, {:?}, {:?}",
                how.room,
                how.loss.map(|loss| loss.size)
            );
        }
    }
}

/// Llama 3.2 1B in 4 bits with its adapter, from its sizes alone.
fn one_billion() -> (Spec, Recipe) {
    let text = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": false}"#;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("config.json"), text).expect("a file");
    let config = reference::llama::Config::read(&folder.path().join("config.json")).expect("a config");
    let nf4 = Storage::Nf4 { dtype: Dtype::Bf16, block_size: 64, nested: Some(256) };
    let storage = |name: &str| if name.ends_with("_proj.weight") { nf4 } else { Storage::Dense(Dtype::Bf16) };
    let storages =
        config.tensor_specs().into_iter().map(|tensor| (tensor.name.clone(), storage(&tensor.name)));
    let spec = Spec {
        storages: storages.collect(),
        compute: Dtype::Bf16,
        adapter: Some(lora::Config::new(64, 128.0, Targets::AllLinear)),
        rows: reference::llama::Rows::default(),
        dropout: false,
        config,
    };
    (spec, Recipe { optimizer: AdamW::default(), max_norm: 0.3 })
}

/// What a rank holds all the time is its share, and what it holds for a moment are two gathered pieces, the activations
/// of a micro-batch and an arena that does not depend on the ranks. What it gathers is the model in 4 bits, twice.
#[test]
fn a_rank_holds_its_share_and_two_layers_and_gathers_four_bits() {
    let (spec, recipe) = one_billion();
    let store = Store::default();
    let on = |ranks: usize| {
        let mesh = Mesh::line("fsdp", ranks).expect("a mesh");
        let room = Room { prefetch_bytes: usize::MAX, ..Room::default() };
        let planned =
            Planned { room, ..challenges::fsdp::planned_by_solutions(&spec, &recipe, &mesh, &store) };
        planned.on_paper(0, |sheet| sheet.step([1, 512], ranks)).expect("a forecast")
    };
    let (hidden, wide, layers, vocab) = (2048_u64, 8192_u64, 16_u64, 128_256_u64);
    let weights = hidden * (2 * hidden + 2 * 512 + 3 * wide); // of the projections of a layer
    let nf4 = |elements: u64| elements / 2 + elements / 64 + elements / 64 / 256 * 4; // codes, scales of both levels
    let adapter = 4 * 64 * (2 * (hidden + hidden) + 2 * (hidden + 512) + 3 * (hidden + wide));
    let (layer, dense) = (nf4(weights) + adapter, 2 * vocab * hidden);
    let [one, two, four] = [1, 2, 4].map(on);
    for (ranks, found) in [(2, &two), (4, &four)] {
        let gathered = 2 * layers * layer + 2 * dense; // the embedding and the head once each
        let excess = found.gathered as f64 / gathered as f64;
        assert!((0.99..1.01).contains(&excess), "{ranks} ranks: {} of {gathered}", found.gathered);
        let held = |it: &fsdp::forecast::Forecast| it.bytes["weights"] + it.bytes["trained"];
        assert!(held(found) <= held(&one) / ranks + 200_000, "{ranks} ranks hold {}", held(found)); // tables, norms
        assert!(found.bytes["parts"] <= dense + layer + 200_000, "{}", found.bytes["parts"]);
        assert_eq!(found.bytes["activation"], one.bytes["activation"], "{ranks} ranks");
        assert!(
            found.bytes["arena"] <= one.bytes["arena"] + 2 * layer,
            "{ranks} ranks: {}",
            found.bytes["arena"]
        );
        let rest = ["inputs", "tensor", "scratch"].map(|tag| found.bytes.get(tag).copied().unwrap_or(0));
        assert!(rest.iter().sum::<u64>() < 4 << 20, "{rest:?}");
    }
}
