//! The Llama, its training step and its files, against the original libraries and against damaged checkpoints.

use reference::graph::interpret::Values;
use reference::graph::{Array, Real, interpret};
use reference::llama::train::{Recipe, Report, Trainer};
use reference::llama::{Llama, rope};
use reference::optim::AdamW;
use tests::tiny_llama::{Run, TinyLlama};

#[test]
fn dense_logits_and_loss_are_those_of_the_original() {
    let Some(tiny) = TinyLlama::find() else { return };
    let llama = tiny.open("dense");
    check_logits::<f32>(&tiny, &llama, "logits_dense_f32", 2e-5);
    check_logits::<f64>(&tiny, &llama, "logits_dense_f32", 2e-5);
    let graph = llama.spec().training_loss().expect("a graph");
    let rows = tiny.numbers("expected.safetensors", "logits_dense_f32").shape[0];
    let ids = tiny.ids::<f32>(0..rows);
    let mut values = inputs(&llama, &ids);
    values.insert("labels".into(), ids);
    let loss = interpret(&graph, &values).expect("a loss")[0].wide()[0];
    let want = tiny.numbers("expected.safetensors", "loss_dense_f32").values[0];
    assert!((loss - want).abs() < 2e-6, "loss {loss}, the original has {want}");
}

#[test]
fn logits_of_the_quantised_model_are_those_of_the_original() {
    let Some(tiny) = TinyLlama::find() else { return };
    check_logits::<f32>(&tiny, &tiny.open("nf4"), "logits_nf4_f32", 2e-5);
}

#[test]
fn a_run_in_f32_is_as_near_the_truth_as_the_original_is() {
    let Some(tiny) = TinyLlama::find() else { return };
    let (run, trained) = trained::<f32>(&tiny);
    let series = [("qlora_losses", "losses", 5e-6), ("qlora_grad_norms", "grad_norms", 2e-4)];
    let own: [Vec<f64>; 2] =
        [run.iter().map(|step| step.loss).collect(), run.iter().map(|step| step.grad_norm).collect()];
    for ((original, truth, floor), own) in series.into_iter().zip(own) {
        let original = tiny.numbers("expected.safetensors", original).values;
        let truth = tiny.numbers("truth.safetensors", truth).values;
        let (theirs, ours) = (farthest(&original, &truth), farthest(&own, &truth));
        println!("f32 run: ours {ours:e} from the truth, theirs {theirs:e}");
        assert!(ours <= (3.0 * theirs).max(floor), "{ours} from the truth, the original {theirs}");
    }
    let end = tiny.adapter("adapter-end").values::<f32>();
    let (ours, theirs) = (adapter_distance(&tiny, &trained), adapter_distance(&tiny, &end));
    println!("f32 adapter: ours {ours:e}, theirs {theirs:e}");
    assert!(ours <= (3.0 * theirs).max(1e-4), "adapter {ours} from the truth, the original {theirs}");
}

#[test]
fn a_run_in_f64_is_the_truth() {
    let Some(tiny) = TinyLlama::find() else { return };
    let (run, trained) = trained::<f64>(&tiny);
    let losses = tiny.numbers("truth.safetensors", "losses").values;
    let norms = tiny.numbers("truth.safetensors", "grad_norms").values;
    for (step, report) in run.iter().enumerate() {
        let (loss, norm) = ((report.loss - losses[step]).abs(), (report.grad_norm - norms[step]).abs());
        println!("step {step}: loss {:.9} off by {loss:e}, norm off by {norm:e}", report.loss);
        let slack = if step < 20 { 1e-9 } else { 1e-6 };
        assert!(loss <= slack && norm <= slack, "step {step}: {loss} and {norm} from the truth");
    }
    println!("adapter {:e} from the truth", adapter_distance(&tiny, &trained));
    assert!(adapter_distance(&tiny, &trained) < 1e-6);
}

/// Logits of the first rows, as many as the file has.
fn check_logits<R: Real>(tiny: &TinyLlama, llama: &Llama, name: &str, slack: f64) {
    let want = tiny.numbers("expected.safetensors", name);
    let ids = tiny.ids::<R>(0..want.shape[0]);
    let graph = llama.spec().forward().expect("a graph");
    graph.check().expect("the graph is sound");
    let logits = interpret(&graph, &inputs(llama, &ids)).expect("logits").remove(0);
    assert_eq!(logits.shape, want.shape);
    let off = farthest(&logits.wide(), &want.values);
    println!("{name}: off by {off:e}");
    assert!(off <= slack, "{name}: {off} from the original");
}

/// Weights, tables and tokens.
fn inputs<R: Real>(llama: &Llama, ids: &Array<R>) -> Values<R> {
    let mut values = llama.values().expect("weights");
    values.append(&mut rope::values(&llama.config, ids.shape[1]));
    values.insert("ids".into(), ids.clone());
    values
}

/// The golden run: what every step reports, and the values at the end.
fn trained<R: Real>(tiny: &TinyLlama) -> (Vec<Report>, Values<R>) {
    let (run, llama, start) = (tiny.run(), tiny.open("nf4"), tiny.adapter("adapter-start"));
    let mut values = llama.values::<R>().expect("weights");
    values.append(&mut start.values());
    let mut spec = llama.spec();
    spec.adapter = Some(start.config);
    let mut trainer = Trainer::new(spec, recipe(&run), values).expect("a graph");
    let step = |step: usize| {
        let ids = tiny.ids(run.batch * step..run.batch * (step + 1));
        trainer.step(ids.clone(), ids, run.lr).expect("a step")
    };
    let reports = (0..run.steps).map(step).collect();
    (reports, trainer.values().clone())
}

fn recipe(run: &Run) -> Recipe {
    let [beta1, beta2] = run.betas;
    let optimizer = AdamW { beta1, beta2, eps: run.eps, weight_decay: run.weight_decay };
    Recipe { optimizer, max_norm: run.clip }
}

/// The largest difference.
fn farthest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Relative distance (L2, over all tensors) of an adapter from the true end of the golden run.
fn adapter_distance<R: Real>(tiny: &TinyLlama, values: &Values<R>) -> f64 {
    let names = values.keys().filter(|name| name.starts_with("base_model."));
    let (mut off, mut all) = (0.0, 0.0);
    for name in names {
        let truth = tiny.numbers("truth.safetensors", &format!("adapter.{name}")).values;
        off += values[name].wide().iter().zip(&truth).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        all += truth.iter().map(|b| b * b).sum::<f64>();
    }
    (off / all).sqrt()
}
