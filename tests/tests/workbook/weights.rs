//! A weight's way from a mapped file to a device: the bytes that it has there, and the memory that the way takes.

use std::collections::BTreeMap;
use std::process::Command;

use challenges::graph::Solution;
use challenges::nf4::DEQUANTIZER;
use challenges::train::Trainer;
use challenges::weights::{load, load_quantized};
use compiler::session::{DeviceTensor, Settings};
use kernels::bytes::Peak;
use kernels::{Cpu, Device};
use reference::graph::Array;
use reference::llama::train::{Recipe, moments, step_of};
use reference::llama::{self, Llama, Storage, rope};
use reference::lora::{self, Adapter, Targets};
use reference::nf4;
use reference::optim::AdamW;
use safetensors::tensor::Dtype as StoredDtype;
use serde_json::json;
use tests::one_graph::{CPU, OneGraph, bytes, devices, upload};
use tests::small_llama::{SmallLlama, Stored};
use tests::tiny_llama::TinyLlama;

/// A small model in every way that its weights may be stored.
fn models() -> Vec<(String, SmallLlama)> {
    let narrow = |dtype: StoredDtype| {
        let mut small = SmallLlama::sound();
        small.tensors.values_mut().for_each(|stored| *stored = stored.narrowed(dtype));
        (dtype.to_string(), small)
    };
    let mut models: Vec<_> = [StoredDtype::F32, StoredDtype::F16, StoredDtype::BF16].map(narrow).into();
    let mut tied = SmallLlama::sound().with("tie_word_embeddings", json!(true));
    tied.tensors.remove("lm_head.weight");
    models.push(("tied".into(), tied));
    for (block_size, nested) in [(32, false), (64, false), (32, true), (64, true), (4096, true)] {
        let name = format!("nf4 in blocks of {block_size}, second level: {nested}");
        models.push((name, SmallLlama::sound().quantized(block_size, nested)));
    }
    models
}

/// That what is loaded are the names, dimensions and bytes that numbers on the way would have given.
fn agrees(device: &dyn Device, name: &str, llama: &Llama) {
    let loaded = load(device, llama).unwrap_or_else(|error| panic!("{name}: {error}"));
    let values = llama.values::<f32>().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(loaded.keys().eq(values.keys()), "{name}: {:?}", loaded.keys());
    for (input, value) in &values {
        let DeviceTensor { shape, buffer } = &loaded[input];
        assert_eq!(*shape, value.shape, "{name}: {input}");
        assert!(bytes(device, buffer) == value.to_memory(), "{name}: {input} has other bytes");
    }
}

/// The projections of a model's layers, quantised while they are loaded, are the oracle's to the bit.
#[test]
fn weights_quantised_on_the_way_have_the_oracles_bytes() {
    devices().into_iter().for_each(quantised_as_the_oracle_does);
}

fn quantised_as_the_oracle_does(device: &dyn Device) {
    for (name, small) in models().into_iter().take(4) {
        let llama = small.open().unwrap_or_else(|error| panic!("{name}: {error}"));
        let values = llama.values::<f32>().unwrap_or_else(|error| panic!("{name}: {error}"));
        for nested in [false, true] {
            let (storages, loaded) =
                load_quantized(device, &llama, nested, CPU.threads()).expect("finite weights");
            let mut count = 0;
            for (weight, storage) in &storages {
                let Storage::Nf4 { dtype, .. } = storage else { continue };
                let value = &values[weight];
                let dtype = nf4::OutputDtype::try_from(*dtype).expect("a float");
                let quantize = if nested { nf4::Quantized::double } else { nf4::Quantized::single };
                let oracle = quantize(value.as_floats(), &value.shape, dtype, 64).expect("finite");
                for (part, want) in llama::parts::<f32, _>(weight, &oracle) {
                    assert_eq!(loaded[&part].shape, want.shape, "{name}: {part}");
                    assert!(
                        bytes(device, &loaded[&part].buffer) == want.to_memory(),
                        "{name}: {part} has other bytes"
                    );
                }
                count += 1;
            }
            assert_eq!(count, 7 * llama.config.layers, "{name}: the projections and nothing else");
            assert!(loaded.contains_key("model.embed_tokens.weight"));
        }
    }
}

/// The golden dense model, quantised while it is loaded, has the codes of the golden quantised one.
#[test]
fn the_golden_model_is_quantised_as_the_original_does() {
    let Some(tiny) = TinyLlama::find() else { return };
    let (_, made) = load_quantized(&*CPU, &tiny.open("dense"), true, CPU.threads()).expect("finite weights");
    let given = load(&*CPU, &tiny.open("nf4")).expect("it is there");
    assert!(made.keys().eq(given.keys()), "the same parts");
    for (name, part) in given.iter().filter(|(name, _)| !name.contains(".nested_")) {
        let differing = part.buffer.view::<u8>().iter().zip(made[name].buffer.view::<u8>());
        let differing = differing.filter(|(a, b)| a != b).count();
        // the second level's codes hang on the mean of the scales, whose order of summation the original leaves open
        let most = if name.ends_with(".absmax") { part.buffer.bytes() / 100 } else { 0 };
        assert!(differing <= most, "{name}: {differing} bytes differ");
    }
}

#[test]
fn a_weight_that_is_not_finite_is_not_quantised() {
    let mut small = SmallLlama::sound();
    let weight = small.tensors.get_mut("model.layers.0.mlp.up_proj.weight").expect("it has one");
    weight.bytes[..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let error = load_quantized(&*CPU, &small.open().expect("sound"), false, CPU.threads())
        .expect_err("must be refused");
    assert!(error.to_string().contains("model.layers.0.mlp.up_proj.weight"), "{error}");
}

#[test]
fn loaded_weights_have_the_bytes_that_numbers_would_give() {
    for (name, small) in models() {
        let llama = small.open().unwrap_or_else(|error| panic!("{name}: {error}"));
        for device in devices() {
            agrees(device, &name, &llama);
        }
    }
    let Some(tiny) = TinyLlama::find() else { return };
    for name in ["nf4", "dense"] {
        for device in devices() {
            agrees(device, name, &tiny.open(name));
        }
    }
}

#[test]
fn the_inputs_of_a_graph_are_those_that_are_stored() {
    for (name, small) in models() {
        let llama = small.open().unwrap_or_else(|error| panic!("{name}: {error}"));
        let graph = llama.spec().forward().expect("a graph");
        let stored = llama.stored().expect("weights");
        for input in &stored {
            let id = graph.find_input(&input.name).unwrap_or_else(|| panic!("{name}: {}", input.name));
            let shape: Vec<usize> =
                graph.ty(id).shape.iter().map(|dim| dim.as_fixed().expect("a size") as usize).collect();
            assert_eq!((graph.ty(id).dtype, shape), (input.dtype, input.shape.clone()), "{}", input.name);
        }
        let others =
            ["ids"].iter().chain(&rope::NAMES).filter(|name| graph.find_input(name).is_some()).count();
        assert_eq!(graph.inputs().count(), stored.len() + others, "{name}");
    }
}

#[test]
fn shards_are_loaded_as_one_file_is() {
    let folder = tempfile::TempDir::new().expect("a temporary folder can be made");
    let small = SmallLlama::sound().quantized(64, true);
    small.save_sharded(folder.path());
    let sharded = load(&*CPU, &tests::small_llama::open(folder.path()).expect("two shards")).expect("room");
    let whole = load(&*CPU, &small.open().expect("one file")).expect("room");
    assert!(sharded.keys().eq(whole.keys()));
    for (name, tensor) in &whole {
        assert!(sharded[name].buffer.view::<u8>() == tensor.buffer.view::<u8>(), "{name}");
    }
}

#[test]
fn a_graph_runs_on_loaded_weights_as_on_numbers() {
    let llama = SmallLlama::sound().quantized(32, true).open().expect("it is sound");
    let graph = llama.spec().forward().expect("a graph");
    let mut values = rope::values(&llama.config, 5);
    values.insert("ids".into(), Array::integers(&[1, 5], vec![1, 16, 2, 2, 0]));
    for device in devices() {
        let run = |weights: BTreeMap<String, DeviceTensor>| {
            let mut inputs = upload(device, &values);
            inputs.extend(weights);
            let mut session =
                OneGraph::new(&Solution, device, &graph, Settings::default()).expect("it can be padded");
            let results = session.run(&inputs).unwrap_or_else(|error| panic!("{error}"));
            bytes(device, &results["logits"].buffer)
        };
        let numbers = upload(device, &llama.values().expect("weights"));
        assert!(run(load(device, &llama).expect("room")) == run(numbers), "{}", device.name());
    }
}

/// Two steps of training, with weights as numbers in `start` and with weights that were loaded.
#[test]
fn a_trainer_takes_loaded_weights() {
    devices().into_iter().for_each(trains_on_loaded_weights);
}

fn trains_on_loaded_weights(device: &dyn Device) {
    let llama = SmallLlama::sound().quantized(64, true).open().expect("it is sound");
    let targets = Targets::AllLinear;
    let config = lora::Config::new(3, 6.0, targets);
    let adapter = Adapter::fresh(config.clone(), &llama.config, 7).expect("targets are projections");
    let mut spec = llama.spec();
    spec.adapter = Some(config);
    let recipe = Recipe { optimizer: AdamW::default(), max_norm: 1.0 };
    let step = step_of(spec.training_loss().expect("a graph"), &recipe).expect("a step");
    let mut start = adapter.values::<f32>();
    for (name, value) in adapter.values::<f32>() {
        let zeros = Array::floats(value.dtype, &value.shape, vec![0.0; value.data.len()]);
        start.extend(moments(&name).map(|moment| (moment, zeros.clone())));
    }
    let losses = |is_loaded: bool| {
        let mut start = start.clone();
        if !is_loaded {
            start.append(&mut llama.values().expect("weights"));
        }
        let mut trainer = Trainer::new(&Solution, device, &DEQUANTIZER, Settings::default(), &step, &start)
            .unwrap_or_else(|error| panic!("{error}"));
        if is_loaded {
            trainer.keep(load(device, &llama).expect("room"));
        }
        [1, 2].map(|number| {
            let mut batch = rope::values(&llama.config, 4);
            batch.append(&mut recipe.optimizer.rates(number, 1e-2));
            for name in ["ids", "labels"] {
                batch.insert(name.into(), Array::integers(&[1, 4], vec![1, 4, number as i32, 9]));
            }
            trainer.step(&batch).unwrap_or_else(|error| panic!("{error}")).to_bits()
        })
    };
    assert_eq!(losses(true), losses(false));
}

/// Beside the bytes on the device: names, shapes, the lists of both.
const LISTS: usize = 64 << 10;

#[test]
#[ignore = "counts the bytes of the whole process: run alone by the test below"]
fn counted_alone() {
    let mut large = SmallLlama::sound().with("vocab_size", json!(40_000));
    for name in ["model.embed_tokens.weight", "lm_head.weight"] {
        large.tensors.insert(name.into(), Stored::floats(&[40_000, 12], name.len()));
    }
    let mut half = large.clone();
    half.tensors.values_mut().for_each(|stored| *stored = stored.narrowed(StoredDtype::F16));
    for (name, small) in [("f32", large.clone()), ("f16", half), ("nf4", large.quantized(32, false))] {
        let (llama, device) = (small.open().expect("it is sound"), Cpu::with_threads(1));
        let peak = Peak::begin().expect("room for another peak");
        let loaded = load(&device, &llama).expect("there is room");
        let counted = peak.bytes();
        let bytes: usize = loaded.values().map(|tensor| tensor.buffer.bytes()).sum();
        println!("{name}: {bytes} bytes on the device, {counted} counted");
        assert!(bytes > 20 * LISTS, "{name}: {bytes} bytes prove nothing");
        assert!((bytes..=bytes + LISTS).contains(&counted), "{name}: {counted} counted, {bytes} loaded");
        let counts = device.counts();
        assert_eq!(counts.uploaded_bytes, bytes as u64, "{name}: each byte is copied once");
        assert_eq!(counts.allocated_bytes, bytes as u64, "{name}: nothing else is on the device");
    }
}

#[test]
fn loading_takes_the_memory_of_the_weights_once() {
    let own = std::env::current_exe().expect("this binary");
    let arguments = ["weights::counted_alone", "--exact", "--ignored", "--nocapture", "--test-threads=1"];
    let output = Command::new(own).args(arguments).output().expect("it runs");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    println!("{text}");
}
