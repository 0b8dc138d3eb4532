//! `trainer export`: the merged model says what the adapter beside the model says.

use std::fs;
use std::path::Path;

use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, interpret};
use reference::llama::{Llama, Storage, rope};
use reference::lora::{Adapter, Config, Module, Modules, Targets};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::example_run::Example;
use tests::program::{Ran, run};
use tests::small_llama::{SmallLlama, Stored};
use tests::tiny_llama::TinyLlama;

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

fn export(folder: &Path, arguments: &[&str]) -> Ran {
    run(Path::new(TRAINER), folder, &[&["export"], arguments].concat())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The logits of eight tokens, in f64.
fn logits(model: &Llama, adapter: Option<&Adapter>) -> Vec<f64> {
    logits_of(model, adapter, std::array::from_fn(|i| 65 + 3 * i as i32))
}

fn logits_of(model: &Llama, adapter: Option<&Adapter>, ids: [i32; 8]) -> Vec<f64> {
    let mut spec = model.spec();
    spec.adapter = adapter.map(|adapter| adapter.config.clone());
    let mut values: Values<f64> = model.values().expect("weights");
    values.extend(adapter.map(Adapter::values).unwrap_or_default());
    values.append(&mut rope::values(&model.config, 8));
    values.insert("ids".into(), Array::integers(&[1, 8], ids.to_vec()));
    interpret(&spec.forward().expect("a graph"), &values).expect("it means something")[0].wide()
}

fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn a_merged_model_has_the_logits_of_model_and_adapter() {
    let (example, folder) = (Example::new(TRAINER), TempDir::new().expect("a folder"));
    example.metrics_of(&folder.path().join("out"), &["max_steps=20", "learning_rate=1e-2"]);
    let (model, adapter) = (text(&example.path("model")), text(&folder.path().join("out/adapter")));
    let opened = Llama::open(&model).expect("a model");
    let beside = Adapter::open(&adapter, &opened.config).expect("an adapter");
    let want = logits(&opened, Some(&beside));
    let moved = largest_difference(&want, &logits(&opened, None));
    assert!(moved > 0.1, "the adapter moves logits by {moved}");
    let table = [
        (None, Dtype::F32, 1e-5),
        (Some("bfloat16"), Dtype::Bf16, 0.05),
        (Some("float16"), Dtype::F16, 0.005),
    ];
    for (dtype, stored, bound) in table {
        let name = dtype.unwrap_or("float32");
        let asked = dtype.map_or(Vec::new(), |dtype| vec!["--dtype", dtype]);
        let ran = export(folder.path(), &[&[&model, "--adapter", &adapter, name], &asked[..]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{name}");
        assert_eq!(ran.stdout, format!("the merged model is in {name}\n"));
        let merged = Llama::open(&text(&folder.path().join(name))).expect("a merged model");
        let off = largest_difference(&want, &logits(&merged, None));
        assert!(off < bound && off < moved / 10.0, "{name}: {off} from the adapter beside the model");
        let is_stored = |storage: &Storage| *storage == Storage::Dense(stored);
        assert!(merged.storages().values().all(is_stored), "{name}: {:?}", merged.storages());
        for file in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"] {
            let [from, to] =
                [example.path("model"), folder.path().join(name)].map(|at| fs::read(at.join(file)));
            assert_eq!(from.expect("it is there"), to.expect("it is copied"), "{file}");
        }
        let config = fs::read(folder.path().join(name).join("config.json")).expect("it is written");
        let config: Value = serde_json::from_slice(&config).expect("JSON");
        assert_eq!(config.get("dtype").and_then(Value::as_str), dtype);
    }
}

/// What was trained beside the pairs is in the merged model, and a model whose embedding is its output layer has an
/// output layer of its own where the two were trained apart.
#[test]
fn whole_modules_and_rows_are_merged() {
    for (is_tied, modules, is_apart) in [
        (false, Modules { to_save: vec![Module::EmbedTokens, Module::LmHead], ..Modules::none() }, true),
        (true, Modules { to_save: vec![Module::EmbedTokens], ..Modules::none() }, true),
        (true, Modules { to_save: vec![Module::LmHead], ..Modules::none() }, true),
        (true, rows(&[(Module::EmbedTokens, [9, 2])]), false),
        (true, rows(&[(Module::EmbedTokens, [9, 2]), (Module::LmHead, [2, 11])]), true),
        (false, rows(&[(Module::EmbedTokens, [16, 2]), (Module::LmHead, [5, 11])]), true),
    ] {
        let folder = TempDir::new().expect("a folder");
        let mut small = SmallLlama::sound();
        if is_tied {
            small = small.with("tie_word_embeddings", json!(true));
            small.tensors.remove("lm_head.weight");
        }
        fs::create_dir(folder.path().join("model")).expect("a folder");
        small.save(&folder.path().join("model"));
        let model = Llama::open(&text(&folder.path().join("model"))).expect("it is sound");
        let config = Config { modules, ..Config::new(2, 4.0, Targets::AllLinear) };
        let mut values: Values<f32> = Adapter::beside(config.clone(), &model, 3).expect("it fits").trained();
        for (at, value) in values.values_mut().enumerate() {
            let moved =
                value.wide().into_iter().enumerate().map(|(i, x)| x + 0.01 * ((i + at) % 7) as f64 - 0.03);
            *value = Array::floats(value.dtype, &value.shape.clone(), moved);
        }
        let adapter = Adapter::of(config, &model.config, &values).expect("it fits");
        adapter.save(folder.path().join("adapter")).expect("it can be written");
        let ran = export(folder.path(), &["model", "--adapter", "adapter", "merged"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{:?}", adapter.config.modules);
        let merged = Llama::open(&text(&folder.path().join("merged"))).expect("a merged model");
        assert_eq!(merged.config.tied, !is_apart, "{:?}", adapter.config.modules);
        let ids = [3, 9, 5, 2, 9, 11, 16, 1];
        let (want, got) = (logits_of(&model, Some(&adapter), ids), logits_of(&merged, None, ids));
        let off = largest_difference(&want, &got);
        assert!(off < 1e-5, "{:?}, tied: {is_tied}: {off}", adapter.config.modules);
        assert!(largest_difference(&want, &logits_of(&model, None, ids)) > 1e-3);
    }
}

fn rows(tokens: &[(Module, [usize; 2])]) -> Modules {
    let tokens = tokens.iter().map(|(module, tokens)| (*module, tokens.to_vec()));
    Modules { tokens: tokens.collect(), ..Modules::none() }
}

/// A tensor that no Llama has is named; one that is known to say nothing of its own is not.
#[test]
fn tensors_that_are_left_out_are_named() {
    let folder = TempDir::new().expect("a folder");
    let (model, mut small) = (folder.path().join("model"), SmallLlama::sound());
    small.tensors.insert("model.layers.0.self_attn.rotary_emb.inv_freq".into(), Stored::floats(&[2], 5));
    fs::create_dir(&model).expect("a folder");
    small.save(&model);
    let opened = Llama::open(&text(&model)).expect("it is sound");
    let adapter = Adapter::beside(Config::new(2, 4.0, Targets::AllLinear), &opened, 3).expect("it fits");
    adapter.save(folder.path().join("adapter")).expect("it can be written");
    drop(opened); // on Windows a file that is mapped cannot be written
    let ran = export(folder.path(), &["model", "--adapter", "adapter", "merged"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    for name in ["k_norm", "q_norm"] {
        let name = format!("model.layers.1.self_attn.{name}.weight");
        small.tensors.insert(name, Stored::floats(&[4], 7));
    }
    small.save(&model);
    let ran = export(folder.path(), &["model", "--adapter", "adapter", "again"]);
    let named =
        "left out, since a Llama has no such tensor: model.layers.1.self_attn.k_norm.weight and 1 more";
    assert!(ran.code == 0 && ran.stderr.contains(named), "{}: {}", ran.code, ran.stderr);
}

#[test]
fn what_cannot_be_merged_is_refused_and_nothing_is_left() {
    let (example, folder) = (Example::new(TRAINER), TempDir::new().expect("a folder"));
    example.metrics_of(&folder.path().join("out"), &["max_steps=1"]);
    let (model, adapter) = (text(&example.path("model")), text(&folder.path().join("out/adapter")));
    let refused = |arguments: &[&str], why: &str| {
        let ran = export(folder.path(), arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.stdout);
        assert!(ran.stderr.contains(why), "{arguments:?}: expected {why:?} in {:?}", ran.stderr);
    };
    refused(&[&model, "--adapter", &adapter, "out"], "out: expected no such folder, found one");
    refused(&[&model, "--adapter", "nowhere", "new"], "nowhere");
    refused(&["no/such-model", "--adapter", &adapter, "new"], "no/such-model");
    refused(&[&model, "--adapter", &adapter, ".."], "expected");
    if let Some(tiny) = TinyLlama::find() {
        let (nf4, sft) = (text(&tiny.path("nf4")), tests::golden::find_archive("open-sft.tgz"));
        let Some(sft) = sft else { return };
        let runs = fs::read_dir(sft.path().join("open-sft")).expect("runs").flatten();
        let of_tiny = runs.map(|run| run.path().join("adapter-start")).find(|path| path.exists());
        let of_tiny = text(&of_tiny.expect("an adapter"));
        refused(&[&nf4, "--adapter", &of_tiny, "new"], "expected a dense weight, found NF4");
    }
    let left: Vec<_> =
        fs::read_dir(folder.path()).expect("a folder").flatten().map(|at| at.file_name()).collect();
    assert_eq!(left, ["out"]);
}
