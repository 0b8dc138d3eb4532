//! Adapters: the layout of the original library, what is refused, what is written.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use reference::graph::{Dtype, interpret};
use reference::llama::{self, Llama, Spec, rope};
use reference::lora::{Adapter, Config, Targets, keys};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype as StoredDtype;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::small_llama::{SmallLlama, Stored, file};
use tests::tiny_llama::TinyLlama;

#[test]
fn an_adapter_is_read_and_written_as_it_was() {
    let Some(tiny) = TinyLlama::find() else { return };
    let model = tiny.open("nf4").config;
    for name in ["adapter-start", "adapter-end"] {
        let adapter = tiny.adapter(name);
        let folder = TempDir::new().expect("a temporary folder can be made");
        adapter.save(folder.path()).expect("it can be written");
        assert_eq!(Adapter::open(folder.path(), &model).expect("it can be read"), adapter);
        let [written, original] = [folder.path(), &tiny.path(name)].map(tensors);
        assert_eq!(written, original, "{name}: the same names, shapes and bytes");
        let [written, original] = [folder.path(), &tiny.path(name)].map(settings);
        for (field, value) in written.as_object().expect("an object") {
            let same = field == "target_modules" || Some(value) == original.get(field);
            assert!(same, "{name}: {field} is {value}, the original has {:?}", original.get(field));
        }
    }
}

#[test]
fn only_the_two_files_are_left_after_writing_over_an_adapter() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let model = small().config;
    for seed in [1, 2] {
        let adapter = Adapter::fresh(config(Targets::AllLinear), &model, seed).expect("an adapter");
        adapter.save(folder.path().join("new")).expect("it can be written");
        assert_eq!(Adapter::open(folder.path().join("new"), &model).expect("it can be read"), adapter);
    }
    let files =
        fs::read_dir(folder.path().join("new")).expect("a folder").map(|file| file.unwrap().file_name());
    let mut files: Vec<_> = files.collect();
    files.sort();
    assert_eq!(files, ["adapter_config.json", "adapter_model.safetensors"]);
}

/// Equal adapters make equal files, also with the note about their base.
#[test]
fn a_4_bit_base_is_noted() {
    let model = small().config;
    let fresh = Adapter::fresh(config(Targets::AllLinear), &model, 3).expect("it fits");
    let [plain, noted] = [false, true].map(|is_on_nf4| {
        let folder = TempDir::new().expect("a folder");
        fresh.clone().on_nf4(is_on_nf4).save(folder.path()).expect("it can be written");
        let read = Adapter::open(folder.path(), &model).expect("it is sound");
        assert_eq!(read.is_on_nf4(), is_on_nf4);
        let path = folder.path().join("adapter_model.safetensors");
        let bytes = fs::read(&path).expect("a file");
        for _ in 0..8 {
            read.save(folder.path()).expect("it can be written");
            assert!(fs::read(&path).expect("a file") == bytes, "another file of the same adapter");
        }
        let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("a header");
        let entries = header.metadata().clone().expect("metadata");
        assert_eq!(entries.get("format").map(String::as_str), Some("pt"));
        assert_eq!(entries.contains_key("base_quantization"), is_on_nf4);
        let mut tensors: Vec<(String, Vec<u8>)> =
            file.tensors().into_iter().map(|(name, view)| (name, view.data().to_vec())).collect();
        tensors.sort();
        tensors
    });
    assert!(plain == noted, "the numbers are the same");
}

#[test]
fn a_fresh_adapter_changes_nothing_and_its_seed_is_all_that_it_depends_on() {
    let llama = small();
    let make = |seed| Adapter::fresh(config(Targets::AllLinear), &llama.config, seed).expect("an adapter");
    let (one, again, other) = (make(7), make(7), make(8));
    assert_eq!(one, again);
    assert_ne!(one, other);
    for (name, value) in one.values::<f32>() {
        let bound = if name.contains("lora_A") { 1.0 / (value.shape[1] as f64).sqrt() } else { 0.0 };
        let largest = value.wide().into_iter().map(f64::abs).fold(0.0, f64::max);
        assert!(largest <= bound && largest >= 0.6 * bound, "{name}: {largest} of {bound}");
    }
    assert_eq!(logits(&llama, Some(&one)), logits(&llama, None));
}

/// W + scale B A, merged by hand, gives what the adapter beside W gives.
#[test]
fn an_adapter_is_a_change_of_the_weight() {
    let llama = small();
    for rank_stabilized in [false, true] {
        let targets = Targets::Named(vec!["q_proj".into(), "model.layers.1.mlp.down_proj".into()]);
        let config = Config { rank_stabilized, ..config(targets) };
        assert!(
            (config.scale() - if rank_stabilized { 5.0 / 3_f64.sqrt() } else { 5.0 / 3.0 }).abs() < 1e-15
        );
        let mut values =
            Adapter::fresh(config.clone(), &llama.config, 3).expect("an adapter").values::<f32>();
        for (name, value) in &mut values {
            let fill = Stored::floats(&value.shape, name.len());
            let fill = fill.bytes.as_chunks().0.iter().map(|four| f64::from(f32::from_le_bytes(*four)));
            *value = reference::graph::Array::floats(Dtype::F32, &value.shape, fill.collect::<Vec<_>>());
        }
        let adapter = Adapter::of(config, &llama.config, &values).expect("an adapter");
        assert_eq!(adapter.values::<f32>().len(), 2 * 3, "q_proj of two layers and one down_proj");
        let (beside, within) = (logits(&llama, Some(&adapter)), logits(&merged(&adapter), None));
        assert_ne!(beside, logits(&llama, None));
        let off = beside.iter().zip(&within).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(off < 1e-5, "{off} from the merged model");
    }
}

#[test]
fn settings_that_would_change_the_result_are_refused_by_name() {
    let table = [
        ("peft_type", json!("LOHA"), r#"`peft_type`: expected "LORA", found "LOHA""#),
        ("r", json!(0), "`r`: expected an integer from 1 to 65536, found 0"),
        ("r", Value::Null, "missing `r`: "),
        ("lora_alpha", json!(-1), "`lora_alpha`: expected a number above 0, found -1"),
        (
            "lora_dropout",
            json!(1.0),
            "`lora_dropout`: expected a number of at least 0 and below 1, found 1.0",
        ),
        ("use_dora", json!(true), "`use_dora`: expected no value (unsupported field), found true"),
        ("rank_pattern", json!({"q_proj": 4}), "`rank_pattern`: expected no value (unsupported field)"),
        ("alpha_pattern", json!({"q_proj": 4}), "`alpha_pattern`: expected no value (unsupported field)"),
        ("bias", json!("all"), r#"`bias`: expected "none", found "all""#),
        ("lora_bias", json!(true), "`lora_bias`: expected no value (unsupported field), found true"),
        (
            "modules_to_save",
            json!(["norm"]),
            "`modules_to_save`: expected a list of embed_tokens and lm_head",
        ),
        (
            "modules_to_save",
            json!("lm_head"),
            "`modules_to_save`: expected a list of embed_tokens and lm_head",
        ),
        (
            "fan_in_fan_out",
            json!(true),
            "`fan_in_fan_out`: expected no value (unsupported field), found true",
        ),
        (
            "layers_to_transform",
            json!([0]),
            "`layers_to_transform`: expected no value (unsupported field), found [0]",
        ),
        ("exclude_modules", json!("o_proj"), "`exclude_modules`: expected no value (unsupported field)"),
        ("layer_replication", json!([[0, 1]]), "`layer_replication`: expected no value (unsupported field)"),
        (
            "trainable_token_indices",
            json!({"norm": [1]}),
            "`trainable_token_indices`: expected a list of tokens, each once, or such lists by embed_tokens",
        ),
        ("target_parameters", json!(["x"]), "`target_parameters`: expected no value (unsupported field)"),
        ("init_lora_weights", json!("pissa"), r#"the model's weights as they are, found "pissa""#),
        ("use_qalora", json!(true), "`use_qalora`: expected no value (unsupported field), found true"),
        ("a_field_of_tomorrow", json!("on"), "`a_field_of_tomorrow`: expected no value (unsupported field)"),
        ("target_modules", json!(".*_proj"), "`target_modules`: expected "),
        ("target_modules", json!([]), "or a list of names, found []"),
        ("target_modules", json!(["q_proj", "lm_head"]), r#"such as q_proj, found "lm_head""#),
        ("target_modules", json!(["proj"]), r#"such as q_proj, found "proj""#),
        ("use_rslora", json!("yes"), "`use_rslora`: expected "),
    ];
    let folder = saved(config(Targets::AllLinear));
    let path = folder.path().join("adapter_config.json");
    let sound = settings(folder.path());
    for (field, value, words) in table {
        let mut spoilt = sound.clone();
        spoilt[field] = value;
        fs::write(&path, spoilt.to_string()).expect("a file can be written");
        let error =
            Adapter::open(folder.path(), &small().config).expect_err("it is not supported").to_string();
        assert!(
            error.contains(words) && error.contains("adapter_config.json"),
            "{error}, expected was {words}"
        );
    }
}

#[test]
fn tensors_that_do_not_fit_are_refused_by_name() {
    let folder = saved(config(Targets::Named(vec!["k_proj".into()])));
    let path = folder.path().join("adapter_model.safetensors");
    let sound = tensors(folder.path());
    let [a, b] = keys("model.layers.1.self_attn.k_proj");
    let error = |change: &dyn Fn(&mut BTreeMap<String, Stored>)| {
        let mut spoilt = sound.clone();
        change(&mut spoilt);
        fs::write(&path, file(&spoilt)).expect("a file can be written");
        Adapter::open(folder.path(), &small().config).expect_err("it does not fit").to_string()
    };
    let missing = error(&|tensors| drop(tensors.remove(&b)));
    assert!(missing.contains(&format!("tensor `{b}`: not in the checkpoint")), "{missing}");
    let shape = error(&|tensors| drop(tensors.insert(a.clone(), Stored::floats(&[12, 3], 0))));
    assert!(shape.contains(&format!("tensor `{a}`: expected shape [3, 12], found [12, 3]")), "{shape}");
    let integers = Stored { dtype: StoredDtype::I32, shape: vec![8, 3], bytes: vec![0; 96] };
    let integers = error(&|tensors| drop(tensors.insert(b.clone(), integers.clone())));
    assert!(
        integers.contains(&format!("tensor `{b}`: expected elements of F32, F16 or BF16, found I32")),
        "{integers}"
    );
    let extra = error(&|tensors| {
        drop(tensors.insert("base_model.model.score.weight".into(), Stored::floats(&[3], 0)));
    });
    assert!(extra.contains("tensor `base_model.model.score.weight`: has no place in this model"), "{extra}");
    fs::remove_file(&path).expect("a file can be removed");
    let gone = Adapter::open(folder.path(), &small().config).expect_err("it is missing").to_string();
    assert!(gone.contains("adapter_model.safetensors"), "{gone}");
}

#[test]
fn numbers_of_another_model_make_no_adapter() {
    let model = small().config;
    let adapter = Adapter::fresh(config(Targets::AllLinear), &model, 1).expect("an adapter");
    let wide = llama::Config { hidden: 24, ..model };
    let error =
        Adapter::of(adapter.config.clone(), &wide, &adapter.values::<f64>()).expect_err("other sizes");
    assert!(error.to_string().contains("expected shape [3, 24]"), "{error}");
}

fn small() -> Llama {
    SmallLlama::sound().open().unwrap_or_else(|error| panic!("{error}"))
}

fn config(targets: Targets) -> Config {
    Config { base: Some("org/name".into()), ..Config::new(3, 5.0, targets) }
}

/// A fresh adapter of the small model, written.
fn saved(config: Config) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let adapter = Adapter::fresh(config, &small().config, 5).expect("an adapter");
    adapter.save(folder.path()).expect("it can be written");
    folder
}

fn settings(folder: &Path) -> Value {
    let json = fs::read(folder.join("adapter_config.json")).expect("a file");
    serde_json::from_slice(&json).expect("JSON")
}

/// The tensors of a folder, byte by byte.
fn tensors(folder: &Path) -> BTreeMap<String, Stored> {
    let bytes = fs::read(folder.join("adapter_model.safetensors")).expect("a file");
    let file = SafeTensors::deserialize(&bytes).expect("sound");
    let stored = |(name, view): (String, safetensors::tensor::TensorView)| {
        let stored =
            Stored { dtype: view.dtype(), shape: view.shape().to_vec(), bytes: view.data().to_vec() };
        (name, stored)
    };
    file.tensors().into_iter().map(stored).collect()
}

fn logits(llama: &Llama, adapter: Option<&Adapter>) -> Vec<f64> {
    let spec = Spec { adapter: adapter.map(|adapter| adapter.config.clone()), ..llama.spec() };
    let mut values = llama.values::<f32>().expect("weights");
    values.extend(adapter.map(Adapter::values).unwrap_or_default());
    values.append(&mut rope::values(&llama.config, 4));
    values.insert("ids".into(), reference::graph::Array::integers(&[1, 4], vec![3, 1, 4, 15]));
    interpret(&spec.forward().expect("a graph"), &values).expect("logits")[0].wide()
}

/// The small model with W + scale B A in place of W.
fn merged(adapter: &Adapter) -> Llama {
    let mut small = SmallLlama::sound();
    let values = adapter.values::<f64>();
    for (name, stored) in &mut small.tensors {
        let [a, b] = keys(name.trim_end_matches(".weight"));
        let (Some(a), Some(b)) = (values.get(&a), values.get(&b)) else { continue };
        let (rank, inputs) = (a.shape[0], a.shape[1]);
        for (i, bytes) in stored.bytes.as_chunks_mut().0.iter_mut().enumerate() {
            let (row, column) = (i / inputs, i % inputs);
            let term = |k: usize| b.wide()[row * rank + k] * a.wide()[k * inputs + column];
            let change = adapter.config.scale() * (0..rank).map(term).sum::<f64>();
            *bytes = ((f64::from(f32::from_le_bytes(*bytes)) + change) as f32).to_le_bytes();
        }
    }
    small.open().unwrap_or_else(|error| panic!("{error}"))
}
