//! Generation: with a cache a model says what it says without one, and what transformers says.
//!
//! `generate.json` holds what transformers 5.23 goes on with in f64, over the golden Llama and two of the adapters of
//! `open-sft`: written by `tests/peers/generate_hf.py`, with the prompts of the golden `open-generate.json`.

use std::fs;
use std::path::Path;

use challenges::decode::Decoder;
use kernels::{Cpu, Device};
use proptest::prelude::*;
use reference::graph::interpret::Values;
use reference::graph::{Array, Dim, interpret};
use reference::llama::{Llama, rope};
use reference::lora::Adapter;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::one_graph::{CPU, card, devices};
use tests::program::{Ran, run};
use tests::small_llama::SmallLlama;
use tests::tiny_llama::TinyLlama;
use tests::{golden, place};
use trainer::constrain::Token;
use trainer::generate::{Limit, Text, Weights, decoder, vocabulary};

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

/// Below this gap between the two largest logits rounding may choose.
const CLOSE: f32 = 1e-4;

/// How far a gap in f64 may be from a recorded one of the same base: a recorded one has six digits.
const SAME_BASE: f64 = 1e-3;

/// A file of continuations.
#[derive(Deserialize)]
struct Continuations {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    adapter: Option<String>,
    row: usize,
    prompt_ids: Vec<i32>,
    new_ids: Vec<i32>,
    gaps: Vec<f32>,
}

/// The logits (T, V) of a row of tokens by the interpreter, in f64.
fn logits(model: &Llama, adapter: Option<&Adapter>, ids: &[i32]) -> Vec<Vec<f64>> {
    let mut spec = model.spec();
    spec.adapter = adapter.map(|adapter| adapter.config.clone());
    let mut values: Values<f64> = model.values().expect("weights");
    values.extend(adapter.map(Adapter::values).unwrap_or_default());
    values.append(&mut rope::values(&model.config, ids.len()));
    values.insert("ids".into(), Array::integers(&[1, ids.len()], ids.to_vec()));
    let outputs = interpret(&spec.forward().expect("a graph"), &values).expect("it means something");
    outputs[0].wide().chunks(model.config.vocab).map(<[f64]>::to_vec).collect()
}

/// The largest and how much larger it is than the next.
fn largest(logits: &[f64]) -> (usize, f64) {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    (order[0], logits[order[0]] - logits[order[1]])
}

/// Whether a file was made over a base: the first gap of each case without an adapter is the base's.
fn fits(model: &Llama, file: &Continuations) -> bool {
    let plain: Vec<&Case> = file.cases.iter().filter(|case| case.adapter.is_none()).collect();
    assert!(!plain.is_empty(), "a file without a case of the base alone cannot be told from another base's");
    plain.iter().all(|case| {
        let logits = logits(model, None, &case.prompt_ids);
        let (_, gap) = largest(logits.last().expect("a token"));
        (gap - f64::from(case.gaps[0])).abs() <= SAME_BASE
    })
}

/// Holds every case of a file against what is generated, up to the first gap that rounding may close; how many tokens
/// were compared.
fn compare(device: &dyn Device, model: &Llama, adapters: &Path, file: &Continuations) -> usize {
    let mut compared = 0;
    let mut names: Vec<Option<&String>> = file.cases.iter().map(|case| case.adapter.as_ref()).collect();
    names.dedup();
    for name in names {
        let adapter = name.map(|name| Adapter::open(adapters.join(name), &model.config).expect("an adapter"));
        let mut decoder =
            decoder(device, model, Weights::AsStored, adapter.as_ref(), 128).expect("a decoder");
        for case in file.cases.iter().filter(|case| case.adapter.as_ref() == name) {
            let limit = Limit { tokens: case.new_ids.len(), stops: Vec::new() };
            let mut text = Text::begin(&mut decoder, &case.prompt_ids).expect("it reads");
            let made = text.all(&limit, None).expect("it writes");
            assert_eq!(made.len(), case.new_ids.len());
            for (step, made) in made.iter().enumerate().take_while(|(step, _)| case.gaps[*step] >= CLOSE) {
                let what = format!("{name:?}, row {}, token {step} on {}", case.row, device.name());
                assert_eq!(made.id, case.new_ids[step], "{what}");
                assert!(
                    (made.gap - case.gaps[step]).abs() <= CLOSE,
                    "{what}: {} {}",
                    made.gap,
                    case.gaps[step]
                );
                compared += 1;
            }
        }
    }
    compared
}

/// A file on every device, where the golden base and the adapters are there.
fn check(what: &str, bytes: &[u8]) -> Option<usize> {
    let (tiny, sft) = (TinyLlama::find()?, golden::find_archive("open-sft.tgz")?);
    let (model, file) = (tiny.open("nf4"), serde_json::from_slice(bytes).expect("continuations"));
    if !fits(&model, &file) {
        println!("not measured: {what} was made over another base");
        return None;
    }
    let compared =
        devices().into_iter().map(|device| compare(device, &model, &sft.path().join("open-sft"), &file));
    compared.min()
}

#[test]
fn golden_continuations_are_met() {
    let Some(bytes) = golden::find("open-generate.json") else { return };
    if let Some(compared) = check("open-generate.json", &bytes) {
        assert!(compared > 0, "every gap is too small to compare");
    }
}

#[test]
fn continuations_are_those_of_transformers() {
    let path = place::tests().join("tests/workbook/generate.json");
    if let Some(compared) = check("generate.json", &fs::read(path).expect("it is kept")) {
        assert!(compared > 500, "{compared} tokens are too few");
    } else {
        let (base, chosen) = ("the kept file is of the golden base", std::env::var_os("WARPBOOK_GOLDEN"));
        assert!(chosen.is_some(), "{base}");
    }
}

/// Reads a row in pieces; the logits after each.
fn in_pieces(decoder: &mut Decoder<'_>, ids: &[i32], pieces: &[usize]) -> Vec<(usize, Vec<f32>)> {
    let (mut all, mut at) = (Vec::new(), 0);
    decoder.truncate(0);
    for piece in pieces {
        let end = (at + piece).min(ids.len());
        if end > at {
            all.push((end, decoder.read(&ids[at..end]).expect("it reads")));
        }
        at = end;
    }
    all
}

/// Whether logits are those of the whole row without a cache, in f64.
fn agree(want: &[Vec<f64>], got: &[(usize, Vec<f32>)]) {
    for (end, got) in got {
        let want = &want[end - 1];
        let scale = want.iter().fold(1.0_f64, |max, logit| max.max(logit.abs()));
        assert_eq!(got.len(), want.len());
        for (token, (got, want)) in got.iter().zip(want).enumerate() {
            let apart = (f64::from(*got) - want).abs();
            assert!(apart <= 1e-5 * scale, "after {end} tokens, token {token}: expected {want}, found {got}");
        }
    }
}

fn small(quantized: bool) -> Llama {
    let small = SmallLlama::sound();
    let small = if quantized { small.quantized(64, true) } else { small };
    small.open().expect("it is sound")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Rows of any length up to the context, cut anywhere; several in one session, so that a cache holds what the row
    /// before left.
    #[test]
    fn a_cache_changes_no_logit(
        quantized in any::<bool>(),
        rows in proptest::collection::vec(proptest::collection::vec(0..17_i32, 1..=32), 1..4),
        pieces in proptest::collection::vec(prop_oneof![3 => Just(1_usize), 1 => 2..20_usize, 1 => Just(32)], 32),
    ) {
        changes_no_logit(&*CPU, quantized, &rows, &pieces);
    }
}

fn changes_no_logit(device: &dyn Device, quantized: bool, rows: &[Vec<i32>], pieces: &[usize]) {
    let model = small(quantized);
    let decoder = decoder(device, &model, Weights::AsStored, None, model.config.positions);
    let mut decoder = decoder.expect("a decoder");
    for ids in rows {
        let got = in_pieces(&mut decoder, ids, pieces);
        assert_eq!(got.last().map(|(end, _)| *end), Some(ids.len()));
        agree(&logits(&model, None, ids), &got);
    }
}

#[test]
fn a_cache_changes_no_logit_on_a_card() {
    let Some(card) = card() else { return };
    let row = |length: i32, seed: i32| (0..length).map(|i| (i * i * 3 + seed * 5) % 17).collect::<Vec<_>>();
    let rows = [row(32, 1), row(1, 2), row(19, 3)];
    for pieces in [vec![1; 32], vec![32], vec![3, 1, 1, 7, 2, 20], vec![16, 1, 1, 1, 13]] {
        for quantized in [false, true] {
            changes_no_logit(card, quantized, &rows, &pieces);
        }
    }
}

/// The interpreter on the graph with a cache, in f64: what the compiled one is held against means the same.
#[test]
fn a_cache_changes_no_meaning() {
    let model = small(false);
    let ids: Vec<i32> = (0..9).map(|i| (i * i + 3) % 17).collect();
    let want = logits(&model, None, &ids);
    let spec = model.spec().with_context(12);
    let graph = spec.decode().expect("a graph");
    let mut values: Values<f64> = model.values().expect("weights");
    values.append(&mut rope::values(&spec.config, 12));
    let (names, ty) = spec.caches();
    let shape: Vec<usize> = ty.shape.iter().filter_map(Dim::as_fixed).map(|size| size as usize).collect();
    for name in names {
        values.insert(name, Array::floats(ty.dtype, &shape, vec![0.0; shape.iter().product()]));
    }
    for (from, to) in [(0, 4), (4, 5), (5, 6), (6, 9)] {
        values.insert("ids".into(), Array::integers(&[1, to - from], ids[from..to].to_vec()));
        values.insert("start".into(), Array::integers(&[], vec![from as i32]));
        let outputs = interpret(&graph, &values).expect("it means something");
        for ((name, _), value) in graph.outputs().iter().zip(outputs) {
            if name == "logits" {
                let apart =
                    value.wide().iter().zip(&want[to - 1]).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(apart < 1e-12, "tokens {from} to {to}: {apart}");
            } else {
                values.insert(name.clone(), value);
            }
        }
    }
}

#[test]
fn a_token_more_than_the_context_is_refused() {
    let model = small(false);
    for device in devices() {
        let mut decoder = decoder(device, &model, Weights::AsStored, None, 8).expect("a decoder");
        decoder.read(&[1; 8]).expect("it fits");
        let error = decoder.read(&[1]).expect_err("it is full").to_string();
        assert_eq!(error, "expected 1 to 0 tokens, found 1");
        decoder.truncate(3);
        assert_eq!(decoder.read(&[]).expect_err("nothing").to_string(), "expected 1 to 5 tokens, found 0");
    }
}

/// One program reads every prompt of a bucket, and every token after them.
#[test]
fn lengths_share_two_programs() {
    let model = small(false);
    let cpu = Cpu::with_threads(1);
    for device in [&cpu as &dyn Device].into_iter().chain(card()) {
        let mut decoder = decoder(device, &model, Weights::AsStored, None, 32).expect("a decoder");
        for length in [2, 7, 16] {
            let prompt: Vec<i32> = (0..length).collect();
            let limit = Limit { tokens: 4, stops: Vec::new() };
            Text::begin(&mut decoder, &prompt).expect("it reads").all(&limit, None).expect("it writes");
        }
        assert_eq!(decoder.counters().compilations, 2);
    }
}

/// An update writes where it reads: no pass copies a cache.
#[test]
fn caches_change_in_place() {
    let model = small(false);
    for device in devices() {
        let mut decoder = decoder(device, &model, Weights::AsStored, None, 32).expect("a decoder");
        decoder.read(&[1, 2, 3]).expect("it reads");
        decoder.read(&[4]).expect("it reads");
        let plans = decoder.plans();
        assert_eq!(plans.len(), 2);
        for plan in plans {
            assert!(!plan.contains("alias"), "{plan}");
        }
    }
}

/// A folder with a model, a tokenizer and a template.
struct Place(TempDir);

/// The token after those of the 256 bytes, which ends a sequence.
const END: usize = 256;

impl Place {
    fn new() -> Self {
        let place = Self(TempDir::new().expect("a folder"));
        let model = SmallLlama::sound().with("max_position_embeddings", json!(64));
        place.model("small", &model, None);
        place
    }

    /// A model whose tokens are the bytes.
    fn with_bytes(template: &str) -> Self {
        let place = Self(TempDir::new().expect("a folder"));
        let mut model = SmallLlama::sound().with("vocab_size", json!(END + 1));
        model = model.with("max_position_embeddings", json!(512));
        for name in ["model.embed_tokens.weight", "lm_head.weight"] {
            let table = tests::small_llama::Stored::floats(&[END + 1, 12], 7);
            model.tensors.insert(name.into(), table);
        }
        place.model("small", &model, Some(template));
        place
    }

    fn model(&self, name: &str, model: &SmallLlama, template: Option<&str>) {
        let folder = self.0.path().join(name);
        fs::create_dir(&folder).expect("a folder");
        model.save(&folder);
        let Some(template) = template else { return };
        let is_plain = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let others = ('\u{100}'..).zip((0..=255).filter(|byte| !is_plain(byte)));
        let plain = (0..=255).filter(is_plain).map(|byte| (char::from(byte), byte));
        let vocab: serde_json::Map<String, Value> =
            plain.chain(others).map(|(c, byte)| (c.to_string(), json!(byte))).collect();
        let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
        let tokenizer = json!({
            "version": "1.0", "added_tokens": [{
                "id": END, "content": "<|end|>", "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false,
            }],
            "pre_tokenizer": level, "decoder": level, "model": {"type": "BPE", "vocab": vocab, "merges": []},
        });
        let write = |file: &str, text: &str| fs::write(folder.join(file), text).expect("a file");
        write("tokenizer.json", &tokenizer.to_string());
        write("tokenizer_config.json", &json!({"eos_token": "<|end|>"}).to_string());
        write("chat_template.jinja", template);
    }

    fn write(&self, name: &str, json: &Value) {
        fs::write(self.0.path().join(name), json.to_string()).expect("a file");
    }

    fn generate(&self, arguments: &[&str]) -> Ran {
        run(Path::new(TRAINER), self.0.path(), &[&["generate"], arguments].concat())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.generate(&[arguments, &["--json"]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
        serde_json::from_str(&ran.stdout).expect("JSON")
    }
}

/// What greedy generation by whole rows says.
fn without_cache(model: &Llama, prompt: &[i32], count: usize) -> Vec<i32> {
    let mut ids = prompt.to_vec();
    for _ in 0..count {
        let next = largest(logits(model, None, &ids).last().expect("a token")).0;
        ids.push(next as i32);
    }
    ids.split_off(prompt.len())
}

#[test]
fn a_prompt_of_tokens_is_gone_on_with() {
    let place = Place::new();
    let model = tests::small_llama::open(&place.0.path().join("small")).expect("a model");
    for prompt in [&[3][..], &[1, 2, 3, 4, 5]] {
        let text = prompt.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        let got = place.json(&["small", "--ids", &text, "--max-new-tokens", "12"]);
        assert_eq!(got["new_ids"], json!(without_cache(&model, prompt, 12)), "{text}");
        assert_eq!((&got["finish_reason"], &got["text"]), (&json!("length"), &Value::Null));
    }
    let got = place.generate(&["small", "--ids", "3", "--max-new-tokens", "2"]);
    let want = without_cache(&model, &[3], 2);
    assert_eq!(got.stdout, format!("{},{}\n", want[0], want[1]));
}

#[test]
fn the_context_is_used_to_its_end() {
    let place = Place::new();
    let model = tests::small_llama::open(&place.0.path().join("small")).expect("a model");
    let prompt: Vec<i32> = (0..60).map(|i| i * 7 % 17).collect();
    let text = prompt.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    let got = place.json(&["small", "--ids", &text]);
    assert_eq!(got["new_ids"], json!(without_cache(&model, &prompt, 4)), "as many as there is room for");
    let ran = place.generate(&["small", "--ids", &text, "--max-new-tokens", "5"]);
    let want = "--max-new-tokens 5: a prompt of 60 tokens leaves room for 4 in the model's context of 64";
    assert!(ran.code == 2 && ran.stderr.contains(want), "{}", ran.stderr);
    let text = vec!["1"; 64].join(",");
    let ran = place.generate(&["small", "--ids", &text]);
    let want = "the prompt has 64 tokens, the model's context 64; expected room for a token more";
    assert!(ran.code == 2 && ran.stderr.contains(want), "{}", ran.stderr);
}

#[test]
fn generation_stops_at_the_end_of_the_sequence() {
    let place = Place::new();
    let free = place.json(&["small", "--ids", "3", "--max-new-tokens", "12"]);
    let ids: Vec<i32> = serde_json::from_value(free["new_ids"].clone()).expect("ids");
    for eos in [json!(ids[1]), json!([16, ids[1]])] {
        place.write("small/generation_config.json", &json!({"eos_token_id": eos}));
        let got = place.json(&["small", "--ids", "3", "--max-new-tokens", "12"]);
        let is_end = |id: &i32| *id == ids[1] || (eos.is_array() && *id == 16);
        let end = ids.iter().position(is_end).expect("it is there");
        assert_eq!(got["new_ids"], json!(ids[..=end]));
        assert_eq!(got["finish_reason"], "stop");
    }
    let got = place.json(&["small", "--ids", "3", "--max-new-tokens", "12", "--ignore-eos"]);
    assert_eq!(got["new_ids"], free["new_ids"]);
}

#[test]
fn what_cannot_be_generated_is_refused_by_name() {
    let place = Place::new();
    place.write("messages.json", &json!([{"role": "user", "content": "a"}]));
    for (arguments, want) in [
        (&["small", "--ids", "17"][..], "--ids: expected tokens from 0 to 16, found 17"),
        (&["small", "--ids=-1"], "--ids: expected tokens from 0 to 16, found -1"),
        (&["small", "--prompt", "a"], "tokenizer.json: there is no such file"),
        (&["small", "--messages", "messages.json"], "tokenizer.json: there is no such file"),
        (&["nowhere", "--ids", "1"], "`nowhere` is neither a folder nor a repository's name"),
        (&["small", "--ids", "1", "--adapter", "small"], "adapter_config.json"),
        (&["small", "--ids", "1", "--prompt", "a"], "cannot be used with"),
        (&["small"], "required"),
        (&["small", "--ids", "1", "--constrained"], "--tools"),
    ] {
        let ran = place.generate(arguments);
        assert!(ran.code == 2 && ran.stderr.contains(want), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn a_tokenizer_that_does_not_fit_the_embedding_is_refused() {
    let place = Place::with_bytes("");
    place.model("other", &SmallLlama::sound(), None);
    let ran = place.generate(&["other", "--prompt", "a", "--tokenizer", "small"]);
    let want = "tokenizer.json: expected ids below 17, the rows of the model's embedding, found 256";
    assert!(ran.code == 2 && ran.stderr.contains(want), "{}", ran.stderr);
}

#[test]
fn an_adapter_of_another_model_is_refused() {
    let (Some(tiny), place) = (TinyLlama::find(), Place::new()) else { return };
    let adapter = tiny.path("adapter-end");
    let ran = place.generate(&["small", "--ids", "1", "--adapter", adapter.to_str().expect("a path")]);
    assert!(ran.code == 2 && ran.stderr.contains("adapter_model.safetensors"), "{}", ran.stderr);
}

const TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% for call in m.tool_calls or [] %}OPENING{\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}{% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}";

fn tools() -> Value {
    let parameters = json!({
        "type": "object", "additionalProperties": false, "required": ["unit", "day"],
        "properties": {"unit": {"type": "string", "enum": ["celsius", "kelvin"]}, "day": {"type": "boolean"}},
    });
    json!([{"type": "function", "function": {"name": "weather", "description": "", "parameters": parameters}}])
}

/// Weights that nobody trained write a valid call, and free of the grammar none.
#[test]
fn a_call_is_held_to_the_grammar_of_the_tools() {
    let place = Place::with_bytes(&TEMPLATE.replace("OPENING", ""));
    place.write("messages.json", &json!([{"role": "user", "content": "How warm is it?"}]));
    place.write("tools.json", &tools());
    let asked = ["small", "--messages", "messages.json", "--tools", "tools.json", "--max-new-tokens", "120"];
    let got = place.json(&[&asked[..], &["--constrained"]].concat());
    let text = got["text"].as_str().expect("a text");
    let call = serde_json::Deserializer::from_str(text).into_iter::<Value>().next();
    let call = call.and_then(Result::ok).unwrap_or_else(|| panic!("a call: {text:?}"));
    assert_eq!(call["name"], "weather");
    assert!(["celsius", "kelvin"].map(Value::from).contains(&call["arguments"]["unit"]), "{call}");
    assert!(call["arguments"]["day"].is_boolean(), "{call}");
    let free = place.json(&asked);
    let text = free["text"].as_str().expect("a text");
    assert!(
        serde_json::Deserializer::from_str(text).into_iter::<Value>().next().is_none_or(|call| call.is_err())
    );
    fs::write(place.0.path().join("small/chat_template.jinja"), "{{ messages[0].content }}").expect("a file");
    let ran = place.generate(&[&asked[..], &["--constrained"]].concat());
    let want = "--constrained: expected a template that writes a call as";
    assert!(ran.code == 2 && ran.stderr.contains(want), "{}", ran.stderr);
}

/// A byte that is named and a mark may write the same; one of both is left out.
#[test]
fn a_vocabulary_is_what_its_tokenizer_writes() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tokenizer.json");
    let special = |id: u32, content: &str| json!({"id": id, "content": content, "special": true});
    let mut json = json!({
        "added_tokens": [special(0, "<unk>"), special(5, "</s>"), {"id": 7, "content": "\u{e9}", "special": false}],
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace"}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"vocab": {"<unk>": 0, "<0x0A>": 1, "<0x20>": 2, "\u{2581}": 3, "\u{2581}the": 4, "</s>": 5}},
    });
    fs::write(&file, json.to_string()).expect("a file");
    let read = vocabulary(&file, 5).expect("it is sound");
    let text = |text: &str| Token::Text(text.into());
    let [unknown, end] = ["<unk>", "</s>"].map(|name| Token::Special(name.into()));
    let want = [unknown, text("\n"), text(""), text(" "), text(" the"), end, text(""), text("\u{e9}")];
    assert_eq!(read.tokens(), want);
    json["decoder"] = json!({"type": "WordPiece"});
    fs::write(&file, json.to_string()).expect("a file");
    let error = vocabulary(&file, 5).expect_err("another decoder");
    assert!(
        error.contains("tokenizer.json: decoder: expected one with ByteLevel or ByteFallback, found"),
        "{error}"
    );
    assert!(
        vocabulary(&folder.path().join("none"), 5).expect_err("no file").contains("there is no such file")
    );
}
