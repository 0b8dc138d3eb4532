//! What is trained beside low-rank pairs: whole modules and rows of tokens, number for number as TRL and peft train
//! them (`modules_trl.json`, by `tests/peers/modules_to_save.py`), and by their laws.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use reference::grad;
use reference::graph::interpret::{Values, interpret};
use reference::graph::{Array, Dtype, Id};
use reference::llama::{Llama, Spec, rope};
use reference::lora::{self, Adapter, Module, Modules};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::example_run::on_devices;
use tests::small_llama::SmallLlama;

use crate::sft::{Sft, close, metrics, train};

const KEPT: &str = include_str!("modules_trl.json");

/// A folder with the adapter that the golden run starts from, and modules beside it as the base has them.
pub(crate) fn start(sft: &Sft, llama: &Llama, variant: &Value, folder: &Path) -> PathBuf {
    let pairs = Adapter::open(sft.path("published/adapter-start"), &llama.config).expect("an adapter");
    let modules = Modules::read(variant.get("modules_to_save"), variant.get("trainable_token_indices"));
    let modules = modules.unwrap_or_else(|error| panic!("{error}"));
    let mut values: Values<f32> = pairs.values();
    values.extend(modules.start(llama, 1).unwrap_or_else(|error| panic!("{error}")));
    let config = lora::Config { modules, ..pairs.config };
    let whole = Adapter::of(config, &llama.config, &values).unwrap_or_else(|error| panic!("{error}"));
    let path = folder.join("start");
    whole.save(&path).expect("it can be written");
    path
}

/// The settings of the kept runs, over those of the golden one.
fn settings(kept: &Value, start: &Path) -> Vec<String> {
    let changed = kept["changed"].as_object().expect("settings").iter();
    let changed = changed.map(|(key, value)| format!("{key}={value}"));
    changed.chain([format!("adapter_name_or_path={}", start.display())]).collect()
}

fn texts(settings: &[String]) -> Vec<&str> {
    settings.iter().map(String::as_str).collect()
}

#[test]
fn whole_modules_and_rows_of_tokens_are_trained_as_in_peft() {
    let Some(sft) = Sft::find() else { return };
    let kept: Value = serde_json::from_str(KEPT).expect("JSON");
    let llama = sft.base.open("nf4");
    let rows: Vec<Vec<usize>> = (0..8).collect::<Vec<usize>>().chunks(2).map(<[usize]>::to_vec).collect();
    let first = sft.first_loss("published", &rows, Some(1024));
    let variants = kept["variants"].as_object().expect("variants");
    let ways: Vec<Vec<&str>> = on_devices()
        .into_iter()
        .flat_map(|device| [vec![device], vec![device, "loss_chunk_bytes=500000"]])
        .collect();
    for ((name, variant), way) in
        variants.iter().flat_map(|variant| ways.iter().map(move |way| (variant, way)))
    {
        println!("{name} with {way:?}");
        let folder = TempDir::new().expect("a folder");
        let output = folder.path().join("out");
        let start = start(&sft, &llama, variant, folder.path());
        let config = sft.config("published", &output);
        let settings = settings(&kept, &start);
        let settings: Vec<&str> = texts(&settings).into_iter().chain(way.iter().copied()).collect();
        let ran = train(folder.path(), &config, &settings);
        assert_eq!(ran.code, 0, "{name}: {}{}", ran.stdout, ran.stderr);
        let (own, log) = (metrics(&output), kept["runs"][name]["f64"].as_array().expect("a log"));
        assert_eq!(own.len(), log.len(), "{name}: steps");
        let own_adapter = Adapter::open(output.join("adapter"), &llama.config);
        let own_adapter = own_adapter.unwrap_or_else(|error| panic!("{name}: {error}"));
        let begun = Adapter::open(&start, &llama.config).expect("it was written");
        assert_eq!(own_adapter.config.modules, begun.config.modules, "{name}");
        let (ours, before): (Values<f32>, Values<f32>) = (own_adapter.values(), begun.values());
        for tensor in own_adapter.config.modules.tensors(&llama.config).expect("tokens of the model") {
            assert_ne!(ours[&tensor.name], before[&tensor.name], "{name}: {} was not trained", tensor.name);
        }
        if (first - log[0]["loss"].as_f64().expect("a loss")).abs() > 1e-5 * first {
            println!("not measured: {name}: the kept log is of another base");
            continue;
        }
        close(name, "loss", log, &own, 5e-6);
        close(name, "grad_norm", log, &own, 2e-5);
    }
}

/// Beside the adapter's own fields, the file has what peft reads back; and a run goes on bit for bit.
#[test]
fn a_run_with_whole_modules_goes_on_bit_for_bit() {
    let Some(sft) = Sft::find() else { return };
    let kept: Value = serde_json::from_str(KEPT).expect("JSON");
    let llama = sft.base.open("nf4");
    for variant in
        [json!({"modules_to_save": ["lm_head", "embed_tokens"]}), json!({"trainable_token_indices": [3, 2]})]
    {
        let folder = TempDir::new().expect("a folder");
        let start = start(&sft, &llama, &variant, folder.path());
        let (whole, parted) = (folder.path().join("whole"), folder.path().join("parted"));
        let run = |output: &Path, more: &[&str]| {
            let settings = settings(&kept, &start);
            let settings: Vec<&str> = texts(&settings).into_iter().chain(more.iter().copied()).collect();
            let ran = train(folder.path(), &sft.config("published", output), &settings);
            assert_eq!(ran.code, 0, "{variant}: {}{}", ran.stdout, ran.stderr);
        };
        run(&whole, &["save_steps=5"]);
        run(&parted, &["save_steps=5"]);
        for step in [10, 12] {
            fs::remove_dir_all(parted.join(format!("checkpoint-{step}"))).expect("it was saved");
        }
        fs::remove_dir_all(parted.join("adapter")).expect("it was written");
        run(&parted, &["save_steps=5", "resume_from_checkpoint=true"]);
        assert_eq!(metrics(&whole), metrics(&parted), "{variant}");
        let file = "adapter/adapter_model.safetensors";
        let bytes = |output: &Path| fs::read(output.join(file)).expect("an adapter");
        assert!(bytes(&whole) == bytes(&parted), "{variant}: the adapters differ");
        let text = fs::read_to_string(whole.join("adapter/adapter_config.json")).expect("a config");
        let config: Value = serde_json::from_str(&text).expect("JSON");
        let tokens = json!({"embed_tokens": [3, 2]});
        match variant.get("modules_to_save") {
            Some(_) => assert_eq!(config["modules_to_save"], json!(["embed_tokens", "lm_head"])),
            None => assert_eq!(config["trainable_token_indices"], tokens),
        }
    }
}

fn config(modules: Modules) -> lora::Config {
    let targets = lora::Targets::Named(vec!["q_proj".into()]);
    lora::Config { modules, ..lora::Config::new(2, 4.0, targets) }
}

/// The loss of a small model and its gradients with respect to what is trained, in f64 by the interpreter.
fn gradients(llama: &Llama, modules: Modules) -> (f64, BTreeMap<String, Array<f64>>) {
    let adapter = Adapter::beside(config(modules), llama, 1).unwrap_or_else(|error| panic!("{error}"));
    let spec = Spec { adapter: Some(adapter.config.clone()), ..llama.spec() };
    let mut graph = spec.training_loss().expect("a graph");
    let trained: Vec<(String, Id)> = graph
        .inputs()
        .filter(|(name, _)| name.starts_with("base_model."))
        .map(|(name, id)| (name.to_owned(), id))
        .collect();
    let ids: Vec<Id> = trained.iter().map(|(_, id)| *id).collect();
    let loss = graph.outputs()[0].1;
    let gradients = grad::differentiate(&mut graph, loss, &ids).expect("it has gradients");
    for ((name, _), gradient) in trained.iter().zip(&gradients) {
        graph.output(format!("grad.{name}"), *gradient);
    }
    let ids = [3, 5, 5, 2, 9, 3, 16, 1]; // 3 and 5 twice, 4 and 0 never
    let mut values: Values<f64> = llama.values().expect("weights");
    values.append(&mut rope::values(&llama.config, 4));
    values.append(&mut adapter.values());
    values.insert("ids".into(), Array::integers(&[2, 4], ids.to_vec()));
    values.insert("labels".into(), Array::integers(&[2, 4], vec![3, 5, -100, 2, 9, 3, 16, -100]));
    let mut results = interpret(&graph, &values).expect("it runs").into_iter();
    let loss = results.next().expect("a loss").wide()[0];
    (loss, trained.into_iter().map(|(name, _)| name).zip(results).collect())
}

fn tied(is_tied: bool) -> Llama {
    let mut small = SmallLlama::sound();
    if is_tied {
        small = small.with("tie_word_embeddings", json!(true));
        small.tensors.remove("lm_head.weight");
    }
    small.open().expect("it is sound")
}

/// Rows that are trained by themselves have the gradient of those rows of the whole: of the embedding, of the output
/// layer, or of both, where they are one.
#[test]
fn rows_have_the_gradient_of_the_whole_modules_rows() {
    let tokens = vec![5, 0, 3, 16, 4];
    let rows = |module| Modules { to_save: Vec::new(), tokens: BTreeMap::from([(module, tokens.clone())]) };
    let whole = Modules { to_save: vec![Module::EmbedTokens, Module::LmHead], tokens: BTreeMap::new() };
    for is_tied in [false, true] {
        let llama = tied(is_tied);
        let (loss, of_whole) = gradients(&llama, whole.clone());
        let (plain, _) = gradients(&llama, Modules::none());
        assert!((loss / plain - 1.0).abs() < 1e-14, "copies change nothing: {loss}, {plain}");
        let row = |module: Module, token: usize| {
            let gradient = of_whole[&module.whole()].wide();
            gradient[token * llama.config.hidden..][..llama.config.hidden].to_vec()
        };
        for module in [Module::EmbedTokens, Module::LmHead] {
            let (loss, own) = gradients(&llama, rows(module));
            assert!((loss / plain - 1.0).abs() < 1e-14, "rows change nothing: {loss}, {plain}");
            let own = own[&module.rows()].wide();
            let is_shared = is_tied && module == Module::EmbedTokens;
            for (own, token) in own.chunks(llama.config.hidden).zip(&tokens) {
                let mut want = row(module, *token);
                if is_shared {
                    want.iter_mut().zip(row(Module::LmHead, *token)).for_each(|(sum, more)| *sum += more);
                }
                let far = own.iter().zip(&want).any(|(own, want)| (own - want).abs() > 1e-12);
                assert!(!far, "{module:?} of token {token}, tied: {is_tied}: {own:?}, {want:?}");
            }
        }
    }
}

/// Equal lists of one weight are one list, as in peft, which writes and reads it under the embedding's name; lists in
/// another order are two.
#[test]
fn equal_rows_of_one_weight_are_trained_once() {
    let both = |head: &[usize]| Modules {
        tokens: BTreeMap::from([(Module::EmbedTokens, vec![9, 2]), (Module::LmHead, head.to_vec())]),
        ..Modules::none()
    };
    let one = Modules { tokens: BTreeMap::from([(Module::EmbedTokens, vec![9, 2])]), ..Modules::none() };
    for (is_tied, head, tensors) in [(true, [9, 2], 1), (true, [2, 9], 2), (false, [9, 2], 2)] {
        let llama = tied(is_tied);
        let modules = both(&head);
        assert_eq!(modules.tensors(&llama.config).expect("tokens of the model").len(), tensors);
        let (_, own) = gradients(&llama, modules);
        let (_, shared) = gradients(&llama, one.clone());
        let rows = Module::EmbedTokens.rows();
        assert_eq!(own[&rows] == shared[&rows], tensors == 1 || !is_tied, "tied: {is_tied}, {head:?}");
    }
    let pair = Modules { to_save: vec![Module::LmHead], ..one };
    let refused = pair.tensors(&tied(true).config).expect_err("peft trains no such pair").to_string();
    assert!(refused.contains("no rows of embed_tokens beside lm_head as a whole"), "{refused}");
    assert_eq!(pair.tensors(&tied(false).config).expect("two weights").len(), 2);
    let quantized = SmallLlama::sound().quantized(64, false).open().expect("it is sound");
    for (field, modules) in [
        ("modules_to_save", Modules { to_save: vec![Module::LmHead], ..Modules::none() }),
        (
            "trainable_token_indices",
            Modules { tokens: [(Module::LmHead, vec![1])].into(), ..Modules::none() },
        ),
    ] {
        let refused = modules.start(&quantized, 1).expect_err("it is in NF4").to_string();
        assert!(refused.contains(field) && refused.contains("lm_head, which is stored in NF4"), "{refused}");
    }
}

/// Where rows are moved, the model is the one whose table has them there.
#[test]
fn moved_rows_are_those_of_the_table() {
    for (is_tied, compute) in [(false, Dtype::F32), (true, Dtype::F32), (true, Dtype::Bf16)] {
        let llama = tied(is_tied);
        let tokens = vec![9, 2, 16];
        let modules =
            Modules { to_save: Vec::new(), tokens: BTreeMap::from([(Module::EmbedTokens, tokens.clone())]) };
        let adapter = Adapter::beside(config(modules), &llama, 1).expect("it fits");
        let mut values: Values<f64> = llama.values().expect("weights");
        values.append(&mut rope::values(&llama.config, 4));
        values.insert("ids".into(), Array::integers(&[2, 4], vec![3, 9, 5, 2, 9, 3, 16, 1]));
        let width = llama.config.hidden;
        let moved: Vec<f64> =
            (0..tokens.len() * width).map(|i| 0.25 * f64::from(i as u32 % 7) - 0.5).collect();
        let mut own = values.clone();
        own.append(&mut adapter.values());
        let rows = Array::floats(Dtype::F32, &[tokens.len(), width], moved.iter().copied());
        own.insert(Module::EmbedTokens.rows(), rows);
        let spec = Spec { adapter: Some(adapter.config), compute, ..llama.spec() };
        let got = interpret(&spec.forward().expect("a graph"), &own).expect("it runs")[0].wide();
        let table = values.get_mut("model.embed_tokens.weight").expect("a table");
        let mut numbers = table.wide();
        for (token, row) in tokens.iter().zip(moved.chunks(width)) {
            numbers[token * width..][..width].copy_from_slice(row);
        }
        *table = Array::floats(table.dtype, &table.shape.clone(), numbers);
        let plain = Spec { adapter: None, ..spec };
        let want = interpret(&plain.forward().expect("a graph"), &values).expect("it runs")[0].wide();
        assert_eq!(got, want, "tied: {is_tied}, {compute:?}");
    }
}

#[test]
fn what_cannot_be_trained_is_named() {
    let Some(sft) = Sft::find() else { return };
    let own = |settings: &[&str]| {
        let folder = TempDir::new().expect("a folder");
        let text = sft.config("published", &folder.path().join("out"));
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("adapter_name")).collect();
        let ran = train(folder.path(), &lines.join("\n"), settings);
        assert_eq!(ran.code, 2, "{settings:?}: {}{}", ran.stdout, ran.stderr);
        assert!(metrics(&folder.path().join("out")).is_empty(), "{settings:?}: something was written");
        ran.stderr
    };
    for (settings, words) in [
        (
            &["lora_modules_to_save=[\"norm\"]"][..],
            "lora_modules_to_save: expected a list of embed_tokens and lm_head",
        ),
        (&["lora_modules_to_save=[\"lm_head\", \"lm_head\"]"], "each at most once"),
        (
            &["trainable_token_indices=[3, 3]"],
            "trainable_token_indices: expected a list of tokens, each once",
        ),
        (&["trainable_token_indices=[-1]"], "trainable_token_indices: expected a list of tokens, each once"),
        (
            &["trainable_token_indices=[512]"],
            "expected tokens below 512, the size of the vocabulary, found 512",
        ),
        (
            &["trainable_token_indices=[3]", "lora_modules_to_save=[\"embed_tokens\"]"],
            "expected no tokens of embed_tokens, which is trained as a whole",
        ),
    ] {
        let message = own(settings);
        assert!(message.contains(words), "{settings:?}: {message}");
    }
}
