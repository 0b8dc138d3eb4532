//! The golden QLoRA run with its loss in chunks, by the trainer's own loop.

use challenges::loss::Solution;
use challenges::loss::run::Size;
use challenges::nf4::DEQUANTIZER;
use challenges::train::chunks::{InChunks, Total, causal};
use challenges::train::{Activations, Machine, Microbatch, Replica};
use challenges::{graph, weights};
use kernels::Device;
use reference::graph::interpret::Values;
use reference::llama::Spec;
use reference::llama::train::Report;
use reference::loss::IGNORED;
use tests::one_graph::devices;
use tests::tiny_llama::TinyLlama;

use crate::llama::{check_run, recipe};

/// The largest relative difference of a loss where every sum has the same order.
const SAME_ORDER: f64 = 1e-6;

/// The largest relative difference of a loss that a different summation order may cause.
///
/// On a GPU, cuBLASLt chooses the order by the number of rows, so that chunks of other sizes are sums in other orders, and
/// Adam carries the difference through 40 steps. Each run is compared with the truth by `check_run`; the library's own f32
/// run is 1.5e-5 from it, so two runs that are as near may be twice that from each other.
fn near(device: &dyn Device) -> f64 {
    if device.name() == "cpu" { 1e-6 } else { 3e-5 }
}

#[test]
fn a_training_run_in_chunks_is_as_near_the_truth_as_the_original_is() {
    let Some(tiny) = TinyLlama::find() else { return };
    for device in devices() {
        let on = device.name();
        let whole = trained(device, &tiny, None, Activations::Kept);
        for size in [10, 64, usize::MAX] {
            let chunked = trained(device, &tiny, Some(size), Activations::Kept);
            let apart = whole.iter().zip(&chunked).map(|(whole, chunked)| (chunked / whole - 1.0).abs());
            let apart = apart.fold(0.0, f64::max);
            println!("{size} rows at a time on {on}: {apart:e} from all logits at once");
            assert!(apart <= near(device), "{size} rows at a time on {on}: {apart} from all logits at once");
        }
    }
}

#[test]
fn layers_computed_again_have_the_losses_of_layers_that_are_kept() {
    let Some(tiny) = TinyLlama::find() else { return };
    for device in devices() {
        for size in [None, Some(64)] {
            let [kept, again] = [Activations::Kept, Activations::Recomputed]
                .map(|activations| trained(device, &tiny, size, activations));
            let apart = kept.iter().zip(&again).map(|(kept, again)| (again / kept - 1.0).abs());
            let (apart, on) = (apart.fold(0.0, f64::max), device.name());
            println!("chunks of {size:?} rows on {on}: {apart:e} from layers that are kept");
            assert!(apart <= SAME_ORDER, "chunks of {size:?} rows on {on}: {apart}");
        }
    }
}

/// The losses of the golden run: with all logits, or so many rows in a chunk.
fn trained(device: &dyn Device, tiny: &TinyLlama, size: Option<usize>, activations: Activations) -> Vec<f64> {
    let (run, llama, adapter) = (tiny.run(), tiny.open("nf4"), tiny.adapter("adapter-start"));
    let start = adapter.values();
    let spec = Spec { adapter: Some(adapter.config), ..llama.spec() };
    let causal = causal(&spec, Total::Sum).expect("a vocabulary");
    let chunks = size.map(|size| InChunks { attempt: &Solution, causal: &causal, size: Size::Rows(size) });
    let on = Machine { passes: &graph::Solution, device, dequantizer: &DEQUANTIZER };
    let weights = weights::load(device, &llama).expect("weights");
    let engine = Replica::new(on, weights, spec, &recipe(&run), &start, chunks.as_ref(), activations);
    let mut engine = engine.expect("an adapter to train");
    let one = |number: usize| {
        let ids = tiny.ids::<f32>(run.batch * number..run.batch * (number + 1));
        let [rows, length] = ids.shape[..] else { panic!("ids are rows of tokens") };
        let batch = batch(ids.as_integers(), [rows, length]);
        let items = rows * (length - 1);
        let logged = engine.microbatch(&batch, items as u64, [0; 2]).expect("a micro-batch");
        let norm = engine.update(number as u64 + 1, run.lr).expect("an update");
        Report { loss: logged.loss, grad_norm: norm }
    };
    let reports: Vec<Report> = (0..run.steps).map(one).collect();
    check_run(tiny, &reports, &state(&engine));
    reports.iter().map(|report| report.loss).collect()
}

/// Rows all of whose tokens are trained.
fn batch(ids: &[i32], shape: [usize; 2]) -> Microbatch {
    let labels =
        ids.chunks(shape[1]).flat_map(|row| std::iter::once(IGNORED).chain(row[1..].iter().copied()));
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

/// A, B and their moments.
fn state(engine: &Replica<'_>) -> Values<f32> {
    let [mut state, moments] = [engine.adapter(), engine.moments()].map(|values| values.expect("a state"));
    state.extend(moments);
    state
}
