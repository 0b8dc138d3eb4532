//! Keys of a GGUF file: those that change the model are obeyed or refused by name, and missing ones have llama.cpp's
//! defaults.

use reference::llama::Scaling;

use super::read::changed;
use super::*;

/// A file of a small Llama with these keys in addition to its own, or in their place.
fn with_keys(more: &[(&str, Value)]) -> Vec<u8> {
    changed(|keys, _| {
        for (key, value) in more {
            keys.retain(|(name, _)| name != key);
            keys.push(((*key).to_owned(), value.clone()));
        }
    })
}

/// The model of such a file, or the error without the file's name.
fn opened_with(more: &[(&str, Value)]) -> Result<Llama, String> {
    opened_bytes(&with_keys(more))
}

fn opened_bytes(bytes: &[u8]) -> Result<Llama, String> {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("model.gguf");
    fs::write(&path, bytes).expect("it can be written");
    Llama::open(&text(&path)).map_err(|error| {
        let message = error.to_string();
        assert!(message.contains("model.gguf"), "{message}");
        message
    })
}

fn float(x: f32) -> Value {
    Value::F32(x)
}

fn word(text: &str) -> Value {
    Value::String(text.into())
}

#[test]
fn a_factor_without_a_type_is_linear() {
    let scaling = |more: &[(&str, Value)]| {
        opened_with(more).unwrap_or_else(|error| panic!("{more:?}: {error}")).config.rope.scaling
    };
    let (ty, factor, old) =
        ("llama.rope.scaling.type", "llama.rope.scaling.factor", "llama.rope.scale_linear");
    let by_4 = Scaling::Linear { factor: 4.0 };
    assert_eq!(scaling(&[]), Scaling::None);
    assert_eq!(scaling(&[(factor, float(4.0))]), by_4);
    assert_eq!(scaling(&[(old, float(4.0))]), by_4);
    assert_eq!(scaling(&[(ty, word("linear")), (factor, float(4.0))]), by_4);
    assert_eq!(scaling(&[(ty, word("linear")), (old, float(4.0))]), by_4);
    assert_eq!(scaling(&[(factor, float(4.0)), (old, float(4.0))]), by_4);
    assert_eq!(scaling(&[(factor, float(1.0))]), Scaling::Linear { factor: 1.0 });
    assert_eq!(scaling(&[(ty, word("none")), (factor, float(4.0))]), Scaling::None);
    for (more, words) in [
        (&[(factor, float(4.0)), (old, float(2.0))][..], "`llama.rope.scale_linear`: expected 4, the"),
        (&[(ty, word("linear"))], "missing `llama.rope.scaling.factor`: expected a number above 0"),
        (&[(factor, float(0.0))], "`llama.rope.scaling.factor`: expected a number above 0, found 0"),
        (&[(factor, Value::U32(4))], "expected a number above 0, stored as a float, found 4"),
        (&[(old, float(-1.0))], "`llama.rope.scale_linear`: expected a number above 0, found -1"),
        (&[(ty, word("longrope"))], "expected \"none\" or \"linear\", found \"longrope\""),
    ] {
        let message = opened_with(more).expect_err(words);
        assert!(message.contains(words), "{message}, expected {words}");
    }
}

#[test]
fn both_kinds_of_factors_multiply() {
    let bytes = |factor: Option<f32>| {
        let tensor = Content { name: "rope_freqs.weight".into(), ty: TensorType::F32, sizes: vec![2] };
        let bytes = changed(|keys, tensors| {
            keys.extend(factor.map(|factor| ("llama.rope.scaling.factor".to_owned(), float(factor))));
            tensors.push(tensor);
        });
        // the last tensor is the one of the factors, which are above 0
        let at = opened_end(&bytes);
        let factors: Vec<u8> = [1.5_f32, 3.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        [&bytes[..at], &factors, &bytes[at + 8..]].concat()
    };
    let scaling = |bytes: &[u8]| opened_bytes(bytes).expect("a sound file").config.rope.scaling;
    assert_eq!(scaling(&bytes(None)), Scaling::Factors(vec![1.5, 3.0]));
    assert_eq!(scaling(&bytes(Some(4.0))), Scaling::Factors(vec![6.0, 12.0]));
}

/// Where the factors of frequencies begin in a file.
fn opened_end(bytes: &[u8]) -> usize {
    let file = Gguf::from_bytes(bytes.to_vec()).expect("a sound file");
    file.tensors().last().expect("tensors").bytes.start
}

#[test]
fn a_missing_epsilon_is_an_error() {
    let key = "llama.attention.layer_norm_rms_epsilon";
    let message =
        opened_bytes(&changed(|keys, _| keys.retain(|(name, _)| name != key))).expect_err("refused");
    assert!(message.contains(&format!("missing `{key}`: expected a number above 0")), "{message}");
}

#[test]
fn keys_that_change_the_model_are_refused() {
    for (key, value, need) in [
        ("rope.scaling.attn_factor", float(0.5), "expected 1 or no such key"),
        ("rope.scaling.yarn_ext_factor", float(1.0), "expected 0 or no such key"),
        ("rope.scaling.yarn_attn_factor", float(0.1), "expected 1 or no such key"),
        ("rope.scaling.yarn_log_multiplier", float(0.1), "expected 0 or no such key"),
        ("expert_count", Value::U32(8), "expected 0 or no such key"),
        ("expert_used_count", Value::U32(2), "expected 0 or no such key"),
        ("attention.sliding_window", Value::U32(15), "expected 0, at least the context length 16,"),
        ("attention.scale", float(0.3), "expected 1 / sqrt(4) or no such key"),
        ("attention.causal", Value::Bool(false), "expected true or no such key"),
        ("attn_logit_softcapping", float(50.0), "expected 0 or no such key"),
        ("final_logit_softcapping", float(30.0), "expected 0 or no such key"),
        ("logit_scale", float(0.5), "expected 1 or no such key"),
        ("logit_scale", word("1"), "expected 1 or no such key"),
        ("embedding_scale", float(12.0), "expected 1 or no such key"),
        ("residual_scale", float(0.2), "expected 1 or no such key"),
        ("pooling_type", Value::U32(1), "expected 0 or no such key"),
        ("attention.temperature_scale", float(0.1), "expected no such key"),
        ("rope.dimension_sections", Value::Array(Array::I32(vec![1, 1, 0, 0])), "expected no such key"),
        ("vocab_size", Value::U32(6), "expected 5, the rows of `token_embd.weight`"),
    ] {
        let key = format!("llama.{key}");
        let message = opened_with(&[(&key, value)]).expect_err(&key);
        assert!(message.contains(&format!("`{key}`: {need}")), "{message}, expected {need}");
    }
    let message = opened_with(&[("general.type", word("adapter"))]).expect_err("an adapter");
    assert!(message.contains("`general.type`: expected \"model\", found \"adapter\""), "{message}");
}

#[test]
fn keys_that_change_nothing_are_read() {
    let keys = [
        ("rope.scaling.attn_factor", float(1.0)),
        ("rope.scaling.finetuned", Value::Bool(false)),
        ("rope.scaling.original_context_length", Value::U32(8)),
        ("expert_count", Value::U32(0)),
        ("attention.sliding_window", Value::U32(16)),
        ("attention.scale", float(0.5)),
        ("attention.causal", Value::Bool(true)),
        ("logit_scale", float(1.0)),
        ("vocab_size", Value::U32(5)),
    ];
    let keys = keys.map(|(key, value)| (format!("llama.{key}"), value));
    let mut keys: Vec<(&str, Value)> =
        keys.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
    keys.extend([("general.type", word("model")), ("quantize.imatrix.file", word("a.dat"))]);
    opened_with(&keys).unwrap_or_else(|error| panic!("{error}"));
}

/// A key with its value.
type Key = (&'static str, Value);

/// Keys of a byte-level tokenizer of five tokens.
fn tokenizer(pre: &str) -> Vec<Key> {
    let texts = |all: &[&str]| Value::Array(Array::String(all.iter().map(|text| (*text).into()).collect()));
    vec![
        ("tokenizer.ggml.model", word("gpt2")),
        ("tokenizer.ggml.pre", word(pre)),
        ("tokenizer.ggml.tokens", texts(&["<s>", "</s>", "a", "b", "ab"])),
        ("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![3, 3, 1, 1, 1]))),
        ("tokenizer.ggml.merges", texts(&["a b"])),
        ("tokenizer.ggml.bos_token_id", Value::U32(0)),
        ("tokenizer.ggml.eos_token_id", Value::U32(1)),
    ]
}

fn generated(bytes: &[u8], flags: &[&str]) -> Ran {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("model.gguf"), bytes).expect("it can be written");
    let always = ["generate", "model.gguf", "--max-new-tokens", "1", "--device", "cpu"];
    run(Path::new(TRAINER), folder.path(), &[&always, flags].concat())
}

#[test]
fn the_first_token_follows_the_pattern() {
    let ids = |pre: &str, more: &[Key]| -> Json {
        let ran = generated(&with_keys(&[&tokenizer(pre)[..], more].concat()), &["--prompt", "ab", "--json"]);
        let found: Json = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
        found["prompt_ids"].clone()
    };
    let add = |key, flag| [(key, Value::Bool(flag))];
    for pre in ["llama-bpe", "llama3", "llama-v3"] {
        assert_eq!(ids(pre, &[]), json!([0, 4]), "{pre}");
    }
    for pre in ["gpt-2", "qwen2", "smollm"] {
        assert_eq!(ids(pre, &[]), json!([4]), "{pre}");
    }
    assert_eq!(ids("llama-bpe", &add("tokenizer.ggml.add_bos_token", false)), json!([4]));
    assert_eq!(ids("qwen2", &add("tokenizer.ggml.add_bos_token", true)), json!([0, 4]));
    assert_eq!(ids("qwen2", &add("tokenizer.ggml.add_eos_token", true)), json!([4, 1]));
}

#[test]
fn tokenizer_keys_without_an_effect_are_refused() {
    let refused = |change: &dyn Fn(&mut Vec<Key>), words: &str| {
        let mut keys = tokenizer("llama-bpe");
        change(&mut keys);
        let ran = generated(&with_keys(&keys), &["--prompt", "ab"]);
        assert!(ran.code == 2 && ran.stderr.contains(words), "{}, expected {words}", ran.stderr);
    };
    for key in ["tokenizer.ggml.add_sep_token", "tokenizer.ggml.remove_extra_whitespaces"] {
        refused(&|keys| keys.push((key, Value::Bool(true))), &format!("{key}: expected false"));
    }
    let prefix = "tokenizer.ggml.add_space_prefix";
    refused(&|keys| keys.push((prefix, Value::Bool(true))), &format!("{prefix}: expected false"));
    let bos = "tokenizer.ggml.bos_token_id";
    refused(&|keys| keys.retain(|(key, _)| *key != bos), &format!("{bos}: expected a number, as the token"));
    let pre = "tokenizer.ggml.pre";
    refused(&|keys| keys.retain(|(key, _)| *key != pre), &format!("{pre}: expected one of"));
}

#[test]
fn ids_need_no_tokenizer() {
    let bytes = with_keys(&[]);
    let ran = generated(&bytes, &["--ids", "1,2,3"]);
    assert_eq!((ran.code, ran.stdout.trim()), (0, "0"), "{}", ran.stderr);
    let stopped =
        with_keys(&[("tokenizer.ggml.model", word("none")), ("tokenizer.ggml.eos_token_id", Value::U32(0))]);
    let ran = generated(&stopped, &["--ids", "1,2,3", "--json"]);
    let found: Json = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
    assert_eq!((&found["finish_reason"], &found["text"]), (&json!("stop"), &Json::Null));
    let ran = generated(&bytes, &["--prompt", "a"]);
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    for words in ["model.gguf: the file has no tokenizer", "--tokenizer DIR"] {
        assert!(ran.stderr.contains(words), "{}, expected {words}", ran.stderr);
    }
}

#[test]
fn errors_name_the_gguf_file() {
    let template = |template: &str| [("tokenizer.chat_template", word(template))];
    let named = |more: &[Key], messages: &str, words: &str| {
        let folder = TempDir::new().expect("a folder");
        let messages_file = folder.path().join("messages.json");
        fs::write(&messages_file, messages).expect("it can be written");
        let keys = [&tokenizer("qwen2")[..], more].concat();
        let ran = generated(&with_keys(&keys), &["--messages", &text(&messages_file)]);
        assert_eq!(ran.code, 2, "{}", ran.stdout);
        assert!(ran.stderr.contains(words) && !ran.stderr.contains("tokenizer-"), "{}", ran.stderr);
    };
    let messages = r#"[{"role": "user", "content": "ab"}]"#;
    named(&template("{% if %}"), messages, "model.gguf: ");
    let texts = Value::Array(Array::String(["<s>", "</s>", "a", "b", "ab", "c"].map(Into::into).into()));
    let more = [
        ("tokenizer.ggml.tokens", texts),
        ("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![3, 3, 1, 1, 1, 1]))),
    ];
    named(&more, messages, "model.gguf: expected ids below 5");
}
