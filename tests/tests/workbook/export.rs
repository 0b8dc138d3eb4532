//! `trainer export`: the merged model says what the adapter beside the model says.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, interpret};
use reference::llama::{Llama, Storage, rope};
use reference::lora::{Adapter, Config, Module, Modules, Targets};
use safetensors::SafeTensors;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::example_run::Example;
use tests::program::{Ran, run};
use tests::small_llama::{self, SmallLlama, Stored};

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
    let named = "left out, since the model of its config.json has no such tensor: \
                 model.layers.1.self_attn.k_norm.weight, model.layers.1.self_attn.q_norm.weight\n";
    assert!(ran.code == 0 && ran.stderr.contains(named), "{}: {}", ran.code, ran.stderr);
}

/// Every verb that opens a model names the tensors that it does not use.
#[test]
fn unused_tensors_are_named_by_every_verb() {
    let example = Example::new(TRAINER);
    let path = example.path("model/model.safetensors");
    let bytes = fs::read(&path).expect("weights");
    let read = SafeTensors::deserialize(&bytes).expect("a file of tensors");
    let mut tensors: BTreeMap<String, Stored> = BTreeMap::new();
    for (name, view) in read.tensors() {
        let stored =
            Stored { dtype: view.dtype(), shape: view.shape().to_vec(), bytes: view.data().to_vec() };
        tensors.insert(name, stored);
    }
    for part in ["q_proj", "k_proj", "v_proj", "o_proj"] {
        for layer in 0..3 {
            tensors.insert(format!("model.layers.{layer}.self_attn.{part}.bias"), Stored::floats(&[4], 7));
        }
    }
    tensors.insert("model.layers.9.input_layernorm.weight".into(), Stored::floats(&[4], 7)); // one layer too many
    tensors.insert("model.layers.0.self_attn.rotary_emb.inv_freq".into(), Stored::floats(&[2], 5));
    fs::write(&path, small_llama::file(&tensors)).expect("it can be written");
    let named = "model: left out, since the model of its config.json, which has no biases, has no such tensor: \
                 model.layers.0.self_attn.k_proj.bias, model.layers.0.self_attn.o_proj.bias, \
                 model.layers.0.self_attn.q_proj.bias, model.layers.0.self_attn.v_proj.bias, \
                 model.layers.1.self_attn.k_proj.bias, model.layers.1.self_attn.o_proj.bias, \
                 model.layers.1.self_attn.q_proj.bias, model.layers.1.self_attn.v_proj.bias and 5 more\n";
    let folder = example.path("");
    for arguments in [
        &["train", "config.toml", "--set", "max_steps=1", "--set", "device=cpu"][..],
        &["generate", "model", "--prompt", "a", "--max-new-tokens", "1", "--device", "cpu"],
        &["export", "model", "copy"],
        &["export", "model", "copy.gguf", "--gguf"],
    ] {
        let ran = run(Path::new(TRAINER), &folder, arguments);
        assert!(ran.code == 0 && ran.stderr.contains(named), "{arguments:?}: {}: {}", ran.code, ran.stderr);
    }
    let clean = export(&folder, &["copy", "again"]);
    assert_eq!((clean.code, clean.stderr.as_str()), (0, ""), "the copy holds what is used");
}

/// A folder in NF4 becomes a dense one, with an adapter or without.
#[test]
fn a_folder_in_nf4_is_decoded() {
    for nested in [false, true] {
        let folder = TempDir::new().expect("a folder");
        fs::create_dir(folder.path().join("model")).expect("a folder");
        let quantization = json!({"quant_method": "bitsandbytes", "load_in_4bit": true});
        let small = SmallLlama::sound().with("quantization_config", quantization).quantized(64, nested);
        small.save(&folder.path().join("model"));
        let model = Llama::open(&text(&folder.path().join("model"))).expect("it is sound");
        let fresh = Adapter::beside(Config::new(2, 4.0, Targets::AllLinear), &model, 3).expect("it fits");
        let mut values: Values<f32> = fresh.trained();
        for value in values.values_mut() {
            let moved = value.wide().into_iter().enumerate().map(|(i, x)| x + 0.01 * (i % 7) as f64 - 0.03);
            *value = Array::floats(value.dtype, &value.shape.clone(), moved);
        }
        let adapter = Adapter::of(fresh.config, &model.config, &values).expect("it fits").on_nf4(true);
        adapter.save(folder.path().join("adapter")).expect("it can be written");
        let ids = [3, 9, 5, 2, 9, 11, 16, 1];
        for (given, adapter, said) in [
            (&[][..], None, "the model, decoded from NF4, is in plain\n"),
            (&["--adapter", "adapter"], Some(&adapter), "the merged model, decoded from NF4, is in merged\n"),
        ] {
            let name = if adapter.is_some() { "merged" } else { "plain" };
            let ran = export(folder.path(), &[&["model", name, "--dtype", "float32"], given].concat());
            assert_eq!((ran.code, ran.stderr.as_str(), ran.stdout.as_str()), (0, "", said));
            let dense = Llama::open(&text(&folder.path().join(name))).expect("a model");
            assert!(!dense.config.quantized);
            let is_dense = |storage: &Storage| *storage == Storage::Dense(Dtype::F32);
            assert!(dense.storages().values().all(is_dense), "{:?}", dense.storages());
            let off = largest_difference(&logits_of(&model, adapter, ids), &logits_of(&dense, None, ids));
            assert!(off < 1e-5, "{name}, nested {nested}: {off}");
        }
        // each weight has the type that it had before it was quantised
        assert_eq!(export(folder.path(), &["model", "stored"]).code, 0);
        let stored = Llama::open(&text(&folder.path().join("stored"))).expect("a model");
        let of = |name: &str| stored.storages()[name];
        assert_eq!(of("model.layers.0.self_attn.q_proj.weight"), Storage::Dense(Dtype::Bf16));
        assert_eq!(of("model.layers.1.self_attn.q_proj.weight"), Storage::Dense(Dtype::F16));
        assert_eq!(of("model.norm.weight"), Storage::Dense(Dtype::F32));
    }
}

/// An adapter that was trained in 4 bits, merged into weights of 16 or 32 bits, or run next to them.
#[test]
fn a_4_bit_adapter_on_other_weights_warns() {
    let example = Example::new(TRAINER);
    let folder = example.path("");
    let warning =
        "the adapter was trained next to weights in 4 bits, and the model's weights are not in 4 bits";
    for (setting, is_warned) in [("load_in_4bit=true", true), ("load_in_4bit=false", false)] {
        example.metrics_of(&example.path(setting), &["max_steps=1", "device=cpu", setting]);
        for (at, made) in ["adapter", "checkpoint-1"].iter().enumerate() {
            let adapter = text(&example.path(setting).join(made));
            let [dense, gguf] = ["", ".gguf"].map(|end| format!("merged-{is_warned}-{at}{end}"));
            for more in [&[dense.as_str()][..], &[&gguf, "--gguf"]] {
                let ran = export(&folder, &[&["model", "--adapter", &adapter], more].concat());
                assert_eq!(ran.code, 0, "{}", ran.stderr);
                assert_eq!(ran.stderr.contains(warning), is_warned, "{made}, {setting}: {}", ran.stderr);
            }
            for (more, is_other) in [(&[][..], true), (&["--load-in-4bit"], false)] {
                let generate =
                    ["generate", "model", "--adapter", &adapter, "--prompt", "a", "--max-new-tokens", "1"];
                let ran = run(Path::new(TRAINER), &folder, &[&generate[..], more].concat());
                assert_eq!(ran.code, 0, "{}", ran.stderr);
                assert_eq!(ran.stderr.contains(warning), is_warned && is_other, "{more:?}: {}", ran.stderr);
            }
        }
    }
    // as another program writes it: its base says so
    let adapter = example.path("load_in_4bit=false/adapter/adapter_config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&adapter).expect("a file")).expect("JSON");
    config["base_model_name_or_path"] = json!("someone/llama-3-8b-bnb-4bit");
    fs::write(&adapter, config.to_string()).expect("it can be written");
    let ran = export(&folder, &["model", "--adapter", "load_in_4bit=false/adapter", "named"]);
    assert!(ran.code == 0 && ran.stderr.contains(warning), "{}", ran.stderr);
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
    let left: Vec<_> =
        fs::read_dir(folder.path()).expect("a folder").flatten().map(|at| at.file_name()).collect();
    assert_eq!(left, ["out"]);
}
