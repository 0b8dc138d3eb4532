//! Training on several ranks: the losses, norms and adapters of one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use challenges::fsdp::{self, Rank};
use challenges::graph;
use challenges::nf4::DEQUANTIZER;
use challenges::train::{Machine, Microbatch};
use kernels::comm::Comm;
use kernels::{Cpu, threads};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype};
use reference::llama::Spec;
use reference::llama::train::Report;
use reference::loss::IGNORED;
use tests::tiny_llama::TinyLlama;

use crate::llama::{check_run, recipe};

/// Longer than a busy machine keeps a thread waiting: no test here is about its end.
const GENEROUS: Duration = Duration::from_mins(5);

/// Rows all of whose tokens are trained, or none.
fn batch(ids: &[i32], shape: [usize; 2], is_padding: bool) -> Microbatch {
    let label = |id: &i32| if is_padding { IGNORED } else { *id };
    let labels = ids.chunks(shape[1]).flat_map(|row| [IGNORED].into_iter().chain(row[1..].iter().map(label)));
    Microbatch {
        shape,
        ids: ids.to_vec(),
        labels: labels.collect(),
        positions: (0..shape[0]).flat_map(|_| 0..shape[1] as i32).collect(),
        documents: vec![i32::from(!is_padding); ids.len()],
    }
}

/// What a rank has to show for a run: a report a step, its shards of what was trained.
struct Trained {
    reports: Vec<Report>,
    shards: BTreeMap<String, Vec<u8>>,
    layout: fsdp::programs::Layout,
}

/// The golden run on so many ranks, a row a micro-batch; ranks for which there is none have padding.
fn golden_run(tiny: &TinyLlama, ranks: usize) -> Vec<Trained> {
    let outcomes = threads::launch(ranks, GENEROUS, |comm| {
        let (run, llama, adapter) = (tiny.run(), tiny.open("nf4"), tiny.adapter("adapter-start"));
        let device = Cpu::with_threads(1);
        let start = adapter.values();
        let spec = Spec { adapter: Some(adapter.config), ..llama.spec() };
        let on = Machine { passes: &graph::Solution, device: &device, dequantizer: &DEQUANTIZER };
        let comm: Arc<dyn Comm> = comm;
        let own = comm.rank();
        let rank = Rank::new(on, comm, &fsdp::Solution, &llama, spec, &recipe(&run), &start);
        let mut rank = rank.unwrap_or_else(|error| panic!("{error}"));
        let one = |number: usize| {
            let first = run.batch * number;
            let mut loss = 0.0;
            for round in 0..run.batch.div_ceil(ranks) {
                let row = round * ranks + own;
                let ids = tiny.ids::<f32>(first + row..first + row + 1);
                let length = ids.shape[1];
                let items = run.batch * (length - 1);
                let batch = batch(ids.as_integers(), [1, length], row >= run.batch);
                let logged = rank.microbatch(&batch, items as u64, [0; 2]);
                loss += logged.unwrap_or_else(|error| panic!("{error}")).loss;
            }
            let norm = rank.update(number as u64 + 1, run.lr).unwrap_or_else(|error| panic!("{error}"));
            Report { loss, grad_norm: norm }
        };
        let reports: Vec<Report> = (0..run.steps).map(one).collect();
        let shards = rank.state().unwrap_or_else(|error| panic!("{error}"));
        Trained { reports, shards, layout: rank.layout().clone() }
    });
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// What was trained, whole.
fn whole(ranks: &[Trained]) -> Values<f32> {
    let layout = &ranks[0].layout;
    let of = |(name, _): (String, _)| {
        let (part, shards) = layout.part(&name).expect("a parameter");
        let bytes: Vec<&Vec<u8>> = ranks.iter().map(|rank| &rank.shards[&name]).collect();
        (name, Array::from_memory(Dtype::F32, &part.shape, &shards.whole(&bytes, 4)))
    };
    layout.trained().into_iter().map(of).collect()
}

#[test]
fn a_run_on_ranks_is_as_near_the_truth_as_the_original_is() {
    let Some(tiny) = TinyLlama::find() else { return };
    for ranks in [1, 2, 3, 4] {
        let trained = golden_run(&tiny, ranks);
        let reports: Vec<Report> = (0..trained[0].reports.len())
            .map(|step| Report {
                loss: trained.iter().map(|rank| rank.reports[step].loss).sum(),
                grad_norm: trained[0].reports[step].grad_norm,
            })
            .collect();
        for rank in &trained {
            let same = |(a, b): (&Report, &Report)| a.grad_norm.to_bits() == b.grad_norm.to_bits();
            assert!(rank.reports.iter().zip(&reports).all(same), "every rank has the same norm");
        }
        println!("{ranks} ranks");
        check_run(&tiny, &reports, &whole(&trained));
    }
}
