//! Training on several ranks: the losses, norms and adapters of one.

use std::sync::Arc;
use std::time::Duration;

use challenges::fsdp::{self, Host, Pipeline, Rank, Room, Team, Traffic};
use challenges::graph;
use challenges::nf4::DEQUANTIZER;
use challenges::train::{Machine, Microbatch};
use kernels::comm::Comm;
use kernels::{Cpu, threads};
use reference::graph::interpret::Values;
use reference::graph::ranks::Mesh;
use reference::llama::Spec;
use reference::llama::train::Report;
use reference::loss::IGNORED;
use reference::schedule::{Buffer, GENERATORS, Held, Placement, Stage, Times, Workload};
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
        positions: (0..shape[0]).flat_map(|_| 0..shape[1] as i32).collect(),
        documents: vec![1; ids.len()],
    }
}

/// A rank's golden run, a row a micro-batch.
struct Trained {
    reports: Vec<Report>,
    state: Values<f32>,
    traffic: Traffic,
    weight_bytes: usize,
}

/// How the ranks of a test work together.
#[derive(Clone, Copy, Default)]
struct How<'a> {
    pipeline: Option<&'a Pipeline<'a>>,
    room: Room,
}

/// The golden run on so many ranks; where there are fewer rows than ranks, some have padding.
fn golden_run(tiny: &TinyLlama, mesh: &Mesh, how: How<'_>) -> Vec<Trained> {
    let outcomes = threads::launch(mesh.ranks(), GENEROUS, |comm| {
        let (run, llama, adapter) = (tiny.run(), tiny.open("nf4"), tiny.adapter("adapter-start"));
        let device = Cpu::with_threads(1);
        let start = adapter.values();
        let spec = Spec { adapter: Some(adapter.config), ..llama.spec() };
        let on = Machine { passes: &graph::Solution, device: &device, dequantizer: &DEQUANTIZER };
        let comm: Arc<dyn Comm> = comm;
        let team = Team { world: comm, mesh, pipeline: how.pipeline, room: how.room };
        let mut rank = Rank::new(on, team, &fsdp::Solution, &llama, spec, &recipe(&run), &start)?;
        let mut reports = Vec::new();
        for number in 0..run.steps {
            let row = |row: usize| {
                let ids = tiny.ids::<f32>(run.batch * number + row..run.batch * number + row + 1);
                (batch(ids.as_integers(), [1, ids.shape[1]]), [0; 2])
            };
            let rows: Vec<_> = (0..run.batch).map(row).collect();
            let items: usize = rows.iter().map(|(row, _)| row.shape[1] - 1).sum();
            let logged = rank.accumulate(&rows, items as u64)?;
            let grad_norm = rank.update(number as u64 + 1, run.lr)?;
            reports.push(Report { loss: logged.iter().map(|row| row.loss).sum(), grad_norm });
        }
        let (traffic, weight_bytes) = (rank.traffic(), rank.weight_bytes());
        Ok::<Trained, fsdp::Error>(Trained { reports, state: rank.state()?, traffic, weight_bytes })
    });
    let expect = |outcome: Result<Result<Trained, _>, _>| match outcome {
        Ok(Ok(trained)) => trained,
        Ok(Err(error)) => panic!("{error}"),
        Err(error) => panic!("{error}"),
    };
    outcomes.into_iter().map(expect).collect()
}

/// That every rank of a mesh has the losses, the norms and the adapter of the golden run.
fn check_mesh(axes: &[(&str, usize)], how: How<'_>) {
    let Some(tiny) = TinyLlama::find() else { return };
    let mesh = Mesh::new(axes.iter().copied()).expect("a mesh");
    let all = golden_run(&tiny, &mesh, how);
    let Trained { reports, state, .. } = &all[0];
    let same = |other: &Trained| other.reports == *reports && other.state == *state;
    assert!(all.iter().all(same), "every rank has the same losses, norms and adapter");
    println!("{axes:?}");
    check_run(&tiny, reports, state);
}

#[test]
fn a_run_in_shards_is_as_near_the_truth_as_the_original_is() {
    (1..=4).for_each(|ranks| check_mesh(&[("fsdp", ranks)], How::default()));
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
    for (name, generator) in GENERATORS.into_iter().filter(|(name, _)| *name != "interleaved") {
        for recomputed in [true, false] {
            for buffer in [None, Some(Buffer { chunks: 1, reads: None })] {
                let workload = workload(recomputed, buffer);
                println!("{name}, recomputed: {recomputed}, dequantised: {}", buffer.is_some());
                let pipeline =
                    Pipeline { chunks: 1, placement: Placement::Looped, workload, schedule: &generator };
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
    let mesh = Mesh::line("fsdp", 2).expect("ranks");
    let run = |room: Room| golden_run(&tiny, &mesh, How { room, ..How::default() }).swap_remove(0);
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
