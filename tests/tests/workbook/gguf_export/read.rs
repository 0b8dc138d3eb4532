//! A GGUF file in the place of a checkpoint: it is read, goes on and is trained beside as the checkpoint is.

use super::*;

/// What two models have for numbers, by the names of their inputs.
fn same_values(a: &Llama, b: &Llama) {
    let [a, b] = [a, b].map(|model| model.values::<f32>().expect("weights"));
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, value) in &a {
        assert_eq!((&value.shape, value.wide()), (&b[name].shape, b[name].wide()), "{name}");
    }
}

#[test]
fn a_file_is_read_as_the_checkpoint_that_it_was() {
    let Some(golden) = Golden::find() else { return };
    for (name, _) in &TYPES[..3] {
        golden.exported("dense", &format!("{name}.gguf"), &["--dtype", name]);
    }
    let own = golden.tiny.open("dense");
    let read = |name: &str| {
        Llama::open(&text(&golden.out.path().join(name))).unwrap_or_else(|error| panic!("{error}"))
    };
    let file = read("float32.gguf");
    same_values(&own, &file);
    let [a, b] = [&own, &file].map(|model| model.config.clone());
    assert_eq!((a.vocab, a.hidden, a.intermediate, a.layers), (b.vocab, b.hidden, b.intermediate, b.layers));
    assert_eq!(
        (a.heads, a.key_heads, a.head_dim, a.positions),
        (b.heads, b.key_heads, b.head_dim, b.positions)
    );
    assert_eq!((a.tied, a.norm_eps as f32, a.rope.theta), (b.tied, b.norm_eps as f32, b.rope.theta));
    let [a, b] = [&a, &b].map(|config| reference::llama::rope::frequencies(&config.rope, config.head_dim));
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-6 * a), "{a:?}, {b:?}");
    let half = read("float16.gguf");
    let name = "model.layers.2.self_attn.q_proj.weight";
    let [want, got] =
        [&own, &half].map(|model| model.dense::<f32>(name).expect("a weight").expect("numbers").wide());
    let rounded: Vec<f64> = want.iter().map(|x| half::f16::from_f64(*x).to_f64()).collect();
    assert_eq!(got, rounded);
}

#[test]
fn a_file_goes_on_with_the_same_tokens_as_its_checkpoint() {
    let Some(golden) = Golden::find() else { return };
    golden.exported("dense", "dense.gguf", &["--dtype", "float32"]);
    let generated = |model: &Path, more: &[&str]| -> Json {
        let model = text(model);
        let flags = [
            "generate",
            &model,
            "--prompt",
            "  It<|role|>user\nnaïve 12345\n\n<|end|>sorted letters",
            "--ignore-eos",
        ];
        let flags = [&flags[..], &["--max-new-tokens", "64", "--json", "--device", "cpu"], more].concat();
        let ran = run(Path::new(TRAINER), golden.out.path(), &flags);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        serde_json::from_str(&ran.stdout).expect("JSON")
    };
    let tokenizer = text(&golden.tokenizer());
    let want = generated(&golden.tiny.path("dense"), &["--tokenizer", &tokenizer]);
    let got = generated(Path::new("dense.gguf"), &[]);
    for key in ["prompt_ids", "new_ids", "text"] {
        assert_eq!(got[key], want[key], "{key}");
    }
    generated(Path::new("dense.gguf"), &["--load-in-4bit"]);
}

#[test]
fn a_file_is_trained_beside_as_its_checkpoint_is() {
    let example = Example::new(TRAINER);
    let folder = TempDir::new().expect("a folder");
    let model = example.path("model");
    let file = text(&folder.path().join("model.gguf"));
    exported(folder.path(), &[&text(&model), &file, "--dtype", "float32"]);
    let losses = |name: &str, model: &str| {
        let out = folder.path().join(name);
        let lines = example.metrics_of(&out, &["max_steps=5", &format!("model_name_or_path={model}")]);
        lines.iter().filter_map(|line| line["loss"].as_f64()).collect::<Vec<f64>>()
    };
    let (want, got) = (losses("a", &text(&model)), losses("b", &file));
    assert!(want.len() >= 5 && want == got, "{want:?}, {got:?}");
}

/// A file of a small Llama, with one key or tensor changed.
pub(super) fn changed(change: impl FnOnce(&mut Vec<(String, Value)>, &mut Vec<Content>)) -> Vec<u8> {
    let size = |key: &str, size: u32| (format!("llama.{key}"), Value::U32(size));
    let mut keys = vec![
        ("general.architecture".to_owned(), Value::String("llama".into())),
        size("embedding_length", 8),
        size("feed_forward_length", 12),
        size("block_count", 1),
        size("context_length", 16),
        size("attention.head_count", 2),
        ("llama.attention.layer_norm_rms_epsilon".to_owned(), Value::F32(1e-5)),
    ];
    let weights = [
        ("token_embd", vec![8, 5]),
        ("output_norm", vec![8]),
        ("blk.0.attn_norm", vec![8]),
        ("blk.0.ffn_norm", vec![8]),
        ("blk.0.attn_q", vec![8, 8]),
        ("blk.0.attn_k", vec![8, 8]),
        ("blk.0.attn_v", vec![8, 8]),
        ("blk.0.attn_output", vec![8, 8]),
        ("blk.0.ffn_gate", vec![8, 12]),
        ("blk.0.ffn_up", vec![8, 12]),
        ("blk.0.ffn_down", vec![12, 8]),
    ];
    let content = |(name, sizes): (&str, Vec<usize>)| Content {
        name: format!("{name}.weight"),
        ty: TensorType::F32,
        sizes,
    };
    let mut tensors: Vec<Content> = weights.into_iter().map(content).collect();
    change(&mut keys, &mut tensors);
    let mut bytes = Vec::new();
    let mut writer = Writer::begin(&mut bytes, &keys, tensors.clone()).expect("a sound file");
    for tensor in tensors {
        writer.write(&vec![0; tensor.bytes().expect("whole blocks")]).expect("memory");
    }
    writer.finish();
    bytes
}

#[test]
fn a_file_that_is_no_llama_is_refused_by_name() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("model.gguf");
    let opened = |bytes: Vec<u8>| {
        fs::write(&path, bytes).expect("it can be written");
        Llama::open(&text(&path))
    };
    opened(changed(|_, _| ())).unwrap_or_else(|error| panic!("{error}"));
    let set = |key: &'static str, value: Value| {
        move |keys: &mut Vec<(String, Value)>, _: &mut Vec<Content>| {
            keys.retain(|(name, _)| name != key);
            keys.push((key.to_owned(), value));
        }
    };
    let refused = |bytes: Vec<u8>, words: &str| {
        let message = opened(bytes).expect_err(words).to_string();
        assert!(message.contains("model.gguf") && message.contains(words), "{message}, expected {words}");
    };
    let text_of = |text: &str| Value::String(text.into());
    refused(changed(set("general.architecture", text_of("mamba"))), "general.architecture");
    refused(changed(set("llama.block_count", Value::U32(1 << 23))), "at most the 11 tensors of the file");
    refused(changed(set("llama.block_count", Value::U32(2))), "blk.1.attn_norm.weight");
    refused(changed(set("llama.block_count", Value::String("1".into()))), "llama.block_count");
    refused(changed(set("llama.embedding_length", Value::U32(0))), "llama.embedding_length");
    refused(changed(set("llama.attention.head_count_kv", Value::U32(3))), "a divisor of 2 heads");
    refused(changed(set("llama.attention.key_length", Value::U32(3))), "an even width of a head");
    refused(changed(set("llama.attention.value_length", Value::U32(2))), "llama.attention.value_length");
    refused(changed(set("llama.rope.dimension_count", Value::U32(2))), "llama.rope.dimension_count");
    refused(changed(set("llama.rope.scaling.type", text_of("yarn"))), "\"none\" or \"linear\"");
    refused(changed(set("llama.rope.freq_base", Value::F32(f32::NAN))), "a number above 0");
    refused(
        changed(|keys, _| keys.retain(|(name, _)| name != "llama.context_length")),
        "llama.context_length",
    );
    refused(
        changed(|_, tensors| tensors.retain(|tensor| tensor.name != "blk.0.ffn_up.weight")),
        "blk.0.ffn_up.weight",
    );
    let bias = Content { name: "blk.0.attn_q.bias".into(), ty: TensorType::F32, sizes: vec![8] };
    refused(changed(|_, tensors| tensors.push(bias)), "blk.0.attn_q.bias");
    refused(changed(|_, tensors| tensors[4].sizes = vec![8, 4]), "blk.0.attn_q.weight");
    let factors = Content { name: "rope_freqs.weight".into(), ty: TensorType::F32, sizes: vec![2] };
    refused(changed(|_, tensors| tensors.push(factors)), "numbers above 0");
    fs::write(&path, b"GGUF").expect("it can be written");
    assert!(Llama::open(&text(&path)).is_err());
}

/// Keys of a tokenizer, hostile ones among them, and what is said of them.
#[test]
fn a_tokenizer_that_makes_no_sense_is_refused_by_name() {
    let folder = TempDir::new().expect("a folder");
    let texts =
        |all: &[&str]| Value::Array(Array::String(all.iter().map(|text| (*text).to_owned()).collect()));
    let (words, text) = (["<unk>", "<s>", "a", "b", "ab"], |text: &str| Value::String(text.into()));
    let ran = |more: &[(&str, Option<Value>)]| {
        let bytes = changed(|keys, _| {
            let own = [
                ("model", text("llama")),
                ("tokens", texts(&words)),
                ("token_type", Value::Array(Array::I32(vec![2, 3, 1, 1, 1]))),
                ("scores", Value::Array(Array::F32(vec![0.0, 0.0, 0.0, 0.0, -1.0]))),
                ("add_space_prefix", Value::Bool(false)),
                ("add_bos_token", Value::Bool(false)),
            ];
            keys.extend(own.map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)));
            for (key, value) in more {
                let key = format!("tokenizer.ggml.{key}");
                keys.retain(|(name, _)| *name != key);
                keys.extend(value.clone().map(|value| (key, value)));
            }
        });
        fs::write(folder.path().join("model.gguf"), bytes).expect("it can be written");
        let flags = ["generate", "model.gguf", "--prompt", "aba", "--max-new-tokens", "1", "--json"];
        run(Path::new(TRAINER), folder.path(), &[&flags[..], &["--device", "cpu"]].concat())
    };
    let right = ran(&[]);
    let found: Json = serde_json::from_str(&right.stdout).unwrap_or_else(|_| panic!("{}", right.stderr));
    assert_eq!(found["prompt_ids"], json!([4, 2]));
    let refused = |more: &[(&str, Option<Value>)], words: &str| {
        let ran = ran(more);
        assert!(
            ran.code == 2 && ran.stderr.contains(words),
            "{}: {}, expected {words}",
            ran.code,
            ran.stderr
        );
    };
    let long = "a".repeat(300);
    refused(&[("model", Some(text("bert")))], "tokenizer.ggml.model: expected \"gpt2\" or \"llama\"");
    refused(&[("model", None)], "tokenizer.ggml.model: expected a text, found none");
    refused(&[("tokens", None)], "tokenizer.ggml.tokens: expected a list of texts, found none");
    refused(&[("tokens", Some(text("a")))], "tokenizer.ggml.tokens: expected a list of texts");
    refused(
        &[("token_type", Some(Value::Array(Array::I32(vec![1]))))],
        "tokenizer.ggml.token_type: expected 5",
    );
    refused(&[("scores", None)], "tokenizer.ggml.scores: expected 5 numbers, found none");
    refused(
        &[("eos_token_id", Some(Value::U32(5)))],
        "tokenizer.ggml.eos_token_id: expected a number below 5",
    );
    refused(
        &[("tokens", Some(texts(&["<unk>", "<s>", &long, "b", "ab"])))],
        "at most 256 bytes, found one of 300",
    );
    let bytes = |more: &[(&'static str, Option<Value>)]| [&[("model", Some(text("gpt2")))], more].concat();
    refused(&bytes(&[]), "tokenizer.ggml.merges: expected a list of texts, found none");
    refused(&bytes(&[("merges", Some(texts(&["ab"])))]), "tokenizer.ggml.merges: expected two tokens");
    let merges = ("merges", Some(texts(&["a b"])));
    refused(&bytes(&[merges.clone(), ("pre", Some(text("mine")))]), "tokenizer.ggml.pre: expected one of");
    assert_eq!(ran(&bytes(&[merges, ("pre", Some(text("gpt-2")))])).code, 0);
}
