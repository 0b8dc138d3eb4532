//! An output layer may be stored in any way - its own or the embedding's, in any type, in NF4 -, and a chunked loss
//! reads it in the type that the model computes in: training is the same as with all logits, and what is not finite is
//! found.

use std::collections::BTreeMap;

use challenges::loss::Solution;
use challenges::loss::run::Size;
use challenges::nf4::DEQUANTIZER;
use challenges::train::chunks::{InChunks, Total, causal};
use challenges::train::{Activations, Machine, Microbatch, Replica};
use challenges::{graph, weights};
use kernels::Device;
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype};
use reference::llama::train::Recipe;
use reference::llama::{Llama, Spec};
use reference::lora::{self, Adapter, Module, Modules};
use reference::loss::IGNORED;
use reference::optim::AdamW;
use safetensors::tensor::Dtype as Stored;
use serde_json::json;
use tests::one_graph::devices;
use tests::small_llama::SmallLlama;

/// Models with every kind of output layer.
fn models() -> Vec<(&'static str, SmallLlama)> {
    let narrowed = |mut small: SmallLlama| {
        small.tensors.values_mut().for_each(|stored| *stored = stored.narrowed(Stored::BF16));
        small
    };
    let mut tied = SmallLlama::sound().with("tie_word_embeddings", json!(true));
    tied.tensors.remove("lm_head.weight");
    vec![
        ("f32", SmallLlama::sound()),
        ("bf16", narrowed(SmallLlama::sound())),
        ("tied", tied.clone()),
        ("tied, bf16", narrowed(tied)),
        ("NF4", SmallLlama::sound().quantized(64, false)),
        ("NF4 of two levels", SmallLlama::sound().quantized(64, true)),
    ]
}

/// What is trained beside the low-rank pairs.
fn modules() -> [Modules; 4] {
    let rows = |tokens: &[(Module, Vec<usize>)]| Modules {
        to_save: Vec::new(),
        tokens: tokens.iter().cloned().collect(),
    };
    [
        Modules::none(),
        Modules { to_save: vec![Module::EmbedTokens, Module::LmHead], tokens: BTreeMap::new() },
        rows(&[(Module::EmbedTokens, vec![5, 3, 11])]),
        rows(&[(Module::EmbedTokens, vec![9]), (Module::LmHead, vec![7, 3])]),
    ]
}

fn config(modules: Modules) -> lora::Config {
    let targets = lora::Targets::AllLinear;
    lora::Config { modules, ..lora::Config::new(2, 4.0, targets) }
}

/// What is done with an engine of a model, whole or in chunks of rows, whose adapter begins with B of this value.
fn with_engine<T>(
    device: &dyn Device,
    llama: &Llama,
    compute: Dtype,
    (modules, rows): (&Modules, Option<usize>),
    b: f64,
    then: impl FnOnce(&mut Replica<'_>) -> T,
) -> T {
    let config = config(modules.clone());
    let mut start: Values<f32> = Adapter::beside(config.clone(), llama, 1).expect("it fits").values();
    for (_, value) in start.iter_mut().filter(|(name, _)| name.contains("lora_B")) {
        let count = value.shape.iter().product();
        *value = Array::floats(value.dtype, &value.shape, std::iter::repeat_n(b, count));
    }
    let spec = Spec { adapter: Some(config), compute, ..llama.spec() };
    let causal = causal(&spec, Total::Sum).expect("a vocabulary");
    let chunks = rows.map(|rows| InChunks { attempt: &Solution, causal: &causal, size: Size::Rows(rows) });
    let on = Machine { passes: &graph::Solution, device, dequantizer: &DEQUANTIZER };
    let recipe = Recipe { optimizer: AdamW::default(), max_norm: 1.0 };
    let weights = weights::load(device, llama).expect("there is room");
    let engine = Replica::new(on, weights, spec, &recipe, &start, chunks.as_ref(), Activations::Kept);
    then(&mut engine.unwrap_or_else(|error| panic!("{error}")))
}

fn batch() -> Microbatch {
    let ids = vec![1, 4, 2, 9, 5, 7, 3, 3];
    let labels = vec![IGNORED, 4, 2, 9, IGNORED, 7, IGNORED, 3];
    Microbatch {
        shape: [2, 4],
        ids,
        labels,
        targets: Vec::new(),
        positions: [0, 1, 2, 3].repeat(2),
        documents: vec![1; 8],
        images: None,
    }
}

const ITEMS: u64 = 5;

fn losses(engine: &mut Replica<'_>) -> Vec<f64> {
    let step = |number: u64| {
        let logged = engine.microbatch(&batch(), ITEMS, [0; 2]).unwrap_or_else(|error| panic!("{error}"));
        engine.update(number, 1e-2).unwrap_or_else(|error| panic!("{error}"));
        logged.loss
    };
    (1..=6).map(step).collect()
}

#[test]
fn chunks_train_behind_an_output_layer_of_any_kind() {
    devices().into_iter().for_each(trains_behind_any_output_layer);
}

fn trains_behind_any_output_layer(device: &dyn Device) {
    for (name, small) in models() {
        let llama = small.open().unwrap_or_else(|error| panic!("{name}: {error}"));
        for (modules, (compute, near)) in modules()
            .iter()
            .filter(|modules| modules.start(&llama, 1).is_ok()) // an output layer in NF4 is not trained
            .flat_map(|modules| [(Dtype::F32, 2e-6), (Dtype::Bf16, 2e-2)].map(|of| (modules, of)))
        {
            let whole = with_engine(device, &llama, compute, (modules, None), 0.01, losses);
            let chunked = with_engine(device, &llama, compute, (modules, Some(2)), 0.01, losses);
            let name = &format!("{name}, {modules:?} on {}", device.name());
            assert!(whole[5] < whole[0], "{name}, {compute:?}: nothing is learnt: {whole:?}");
            let apart = whole.iter().zip(&chunked).map(|(whole, chunked)| (chunked / whole - 1.0).abs());
            let apart = apart.fold(0.0, f64::max);
            assert!(apart <= near, "{name}, {compute:?}: {apart} apart, {whole:?}, {chunked:?}");
        }
    }
}

#[test]
fn what_is_not_finite_is_found_behind_an_output_layer_of_any_kind() {
    devices().into_iter().for_each(finds_what_is_not_finite);
}

fn finds_what_is_not_finite(device: &dyn Device) {
    for (name, small) in models() {
        let llama = small.open().unwrap_or_else(|error| panic!("{name}: {error}"));
        let is_quantized = name.starts_with("NF4");
        for compute in [Dtype::F32, Dtype::F16] {
            for rows in [None, Some(2)] {
                let found = |b: f64| {
                    with_engine(
                        device,
                        &llama,
                        compute,
                        (&modules()[1 - usize::from(is_quantized)], rows),
                        b,
                        |engine| {
                            let found = engine.first_not_finite(&batch(), ITEMS, [0; 2]);
                            found.unwrap_or_else(|error| panic!("{name}, {compute:?}, {rows:?}: {error}"))
                        },
                    )
                };
                assert_eq!(found(0.01), None, "{name}, {compute:?}, {rows:?}");
                let overflown = found(1e38).unwrap_or_else(|| panic!("{name}, {compute:?}, {rows:?}"));
                assert!(overflown.layer.contains("layers.0."), "{name}, {compute:?}, {rows:?}: {overflown}");
            }
        }
    }
}
