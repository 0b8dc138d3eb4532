//! Markers of a tokenizer: read from its files, planned without a fixed id, written without another change.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use trainer::files::Problem;
use trainer::markers::{Markers, TokenSource, ends_turn, is_reserved};

const WANTED: [&str; 2] = ["<|python_tag|>", "<|eom_id|>"];

fn folder(files: &[(&str, Value)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, json) in files {
        fs::write(folder.path().join(name), json.to_string()).expect("a file");
    }
    folder
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("JSON")
}

fn token(id: u32, text: &str) -> Value {
    json!({"id": id, "content": text, "special": true, "lstrip": false})
}

/// A tokenizer whose ids are nobody else's, with tokens that are reserved.
fn with_reserved() -> TempDir {
    let tokens = [
        token(40, "<s>"),
        token(41, "<|eot_id|>"),
        token(43, "<|reserved_special_token_1|>"),
        token(42, "<|reserved_special_token_0|>"),
    ];
    let decoder =
        json!({"40": {"content": "<s>"}, "42": {"content": "<|reserved_special_token_0|>", "special": true}});
    folder(&[
        (
            "tokenizer.json",
            json!({"version": "1.0", "added_tokens": tokens, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}),
        ),
        (
            "tokenizer_config.json",
            json!({"z": 1.5, "added_tokens_decoder": decoder, "bos_token": {"content": "<s>"}, "eos_token": "<|eot_id|>", "a": [1]}),
        ),
        ("generation_config.json", json!({"eos_token_id": 41, "temperature": 0.6})),
    ])
}

#[test]
fn markers_stops_and_holes_are_read_from_the_files() {
    let folder = with_reserved();
    let markers = Markers::read(folder.path()).expect("it is sound");
    assert_eq!(
        (markers.id("<|eot_id|>"), markers.id("a"), markers.id("<|eom_id|>")),
        (Some(41), Some(0), None)
    );
    assert_eq!(
        markers.reserved(),
        [(42, "<|reserved_special_token_0|>"), (43, "<|reserved_special_token_1|>")]
    );
    assert_eq!((markers.size, markers.holes, markers.stops.as_slice()), (44, 38, [41].as_slice()));
    let named =
        [("bos_token", "<s>"), ("eos_token", "<|eot_id|>")].map(|(name, text)| (name.into(), text.into()));
    assert_eq!(markers.named, named);
}

#[test]
fn a_marker_takes_a_reserved_place_and_nothing_else_changes() {
    let (from, to) = (with_reserved(), tempfile::tempdir().expect("a folder"));
    let markers = Markers::read(from.path()).expect("it is sound");
    let plan = markers.plan(&WANTED);
    let ids: Vec<u32> = plan.places.iter().map(|(_, place)| place.id()).collect();
    assert_eq!((ids, plan.rows, plan.stops.as_slice()), (vec![42, 43], 44, [41, 43].as_slice()));
    assert_eq!(plan.apply(from.path(), to.path()).expect("it can be written"), 44);
    let [tokenizer, config, generation] =
        ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]
            .map(|name| (read(&from.path().join(name)), read(&to.path().join(name))));
    let (mut want, got) = tokenizer;
    want["added_tokens"][3]["content"] = json!(WANTED[0]);
    want["added_tokens"][2]["content"] = json!(WANTED[1]);
    assert_eq!(got.to_string(), want.to_string());
    let (mut want, got) = config;
    want["added_tokens_decoder"]["42"]["content"] = json!(WANTED[0]);
    assert_eq!(got["added_tokens_decoder"]["43"]["content"], WANTED[1]);
    want["added_tokens_decoder"]["43"] = got["added_tokens_decoder"]["43"].clone();
    assert_eq!(got.to_string(), want.to_string());
    let (mut want, got) = generation;
    want["eos_token_id"] = json!([41, 43]);
    assert_eq!(got.to_string(), want.to_string());
    let again = Markers::read(to.path()).expect("what is written is sound").plan(&WANTED);
    assert!(again.places.iter().all(|(_, place)| matches!(place, TokenSource::There(_))));
    assert_eq!(again.stops, plan.stops);
}

#[test]
fn a_marker_is_added_behind_all_others_where_nothing_is_reserved() {
    let tokenizer =
        json!({"added_tokens": [token(7, "<s>")], "model": {"vocab": [["a", -1.5], ["b", -2.0]]}});
    let (from, to) = (folder(&[("tokenizer.json", tokenizer)]), tempfile::tempdir().expect("a folder"));
    let plan = Markers::read(from.path()).expect("it is sound").plan(&["<|eom_id|>", "<|eom_id|>", "", "b"]);
    assert_eq!(
        plan.places,
        [("<|eom_id|>".into(), TokenSource::Added(8)), ("b".into(), TokenSource::There(1))]
    );
    assert_eq!(plan.apply(from.path(), to.path()).expect("it can be written"), 9);
    let markers = Markers::read(to.path()).expect("it is sound");
    assert_eq!(
        (markers.id("<|eom_id|>"), markers.stops.as_slice(), markers.size),
        (Some(8), [8].as_slice(), 9)
    );
}

#[test]
fn a_reserved_place_in_a_list_of_pieces_is_taken_there() {
    let tokenizer = json!({"added_tokens": [], "model": {"type": "Unigram", "vocab": [["<unk>", 0], ["<unused0>", 0], ["a", -1]]}});
    let (from, to) = (folder(&[("tokenizer.json", tokenizer)]), tempfile::tempdir().expect("a folder"));
    let plan = Markers::read(from.path()).expect("it is sound").plan(&["<call>"]);
    assert_eq!(plan.places, [("<call>".into(), TokenSource::Reserved { id: 1, was: "<unused0>".into() })]);
    plan.apply(from.path(), to.path()).expect("it can be written");
    let written = read(&to.path().join("tokenizer.json"));
    assert_eq!(written["model"]["vocab"], json!([["<unk>", 0], ["<call>", 0], ["a", -1]]));
    assert_eq!(Markers::read(to.path()).expect("it is sound").id("<call>"), Some(1));
}

#[test]
fn a_reserved_token_that_is_used_is_not_taken() {
    let tokens = [token(3, "<unused0>"), token(4, "<unused1>"), token(5, "[unused2]"), token(6, "<unused3>")];
    let folder = folder(&[
        ("tokenizer.json", json!({"added_tokens": tokens})),
        (
            "tokenizer_config.json",
            json!({"pad_token": "<unused0>", "chat_template": [{"name": "default", "template": "<unused1>"}]}),
        ),
        ("generation_config.json", json!({"eos_token_id": [5]})),
    ]);
    assert_eq!(Markers::read(folder.path()).expect("it is sound").reserved(), [(6, "<unused3>")]);
}

#[test]
fn a_template_of_its_own_file_comes_before_the_one_in_the_configuration() {
    let folder = folder(&[("tokenizer_config.json", json!({"chat_template": "old"}))]);
    fs::write(folder.path().join("chat_template.jinja"), "new").expect("a file");
    assert_eq!(Markers::read(folder.path()).expect("it is sound").template("default"), Some("new"));
}

#[test]
fn names_tell_what_is_reserved_and_what_ends_a_turn() {
    for text in ["<|reserved_special_token_250|>", "[unused12]", "<unused3>", "<|extra_0|>", "[control_7]"] {
        assert!(is_reserved(text), "{text}");
    }
    for text in ["<|eot_id|>", "<unused>", "unused3", "<|im_start|>", "<tool_1>", "<>", ""] {
        assert!(!is_reserved(text), "{text}");
    }
    for text in ["<|eom_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>", "<|endoftext|>"] {
        assert!(ends_turn(text), "{text}");
    }
    for text in ["<|python_tag|>", "<|end_header_id|>", "<|tool_call_end|>", "</tool_call>", "legend"] {
        assert!(!ends_turn(text), "{text}");
    }
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_name_and_place() {
    let cases = [
        (
            "tokenizer.json",
            json!({"added_tokens": [{"id": -1, "content": "a"}]}),
            "added_tokens[0].id: expected an id of a token, found -1",
        ),
        ("tokenizer.json", json!({"added_tokens": [{"id": 1e300, "content": "a"}]}), "added_tokens[0].id"),
        (
            "tokenizer.json",
            json!({"added_tokens": {"id": 1}}),
            "added_tokens: expected a list, found {\"id\":1}",
        ),
        ("tokenizer.json", json!([1]), "it: expected an object, found [1]"),
        ("tokenizer.json", json!({"added_tokens": [token(1, "a"), token(2, "a")]}), "another file"),
        (
            "tokenizer.json",
            json!({"model": {"vocab": 3}}),
            "model.vocab: expected an object or a list, found 3",
        ),
        (
            "tokenizer_config.json",
            json!({"added_tokens_decoder": {"x": {"content": "a"}}}),
            "added_tokens_decoder[\"x\"]",
        ),
        (
            "tokenizer_config.json",
            json!({"chat_template": [{"name": 1}]}),
            "chat_template[0].name: expected a text, found 1",
        ),
        (
            "generation_config.json",
            json!({"eos_token_id": "</s>"}),
            "eos_token_id: expected an id of a token, found \"</s>\"",
        ),
    ];
    for (name, json, want) in cases {
        let mut files = vec![("tokenizer.json", json!({})), (name, json)];
        files.rotate_left(usize::from(name == "tokenizer.json"));
        files.truncate(if name == "tokenizer.json" { 1 } else { 2 });
        let error = Markers::read(folder(&files).path()).expect_err(want).to_string();
        assert!(error.contains(name) && error.contains(want), "{error}");
    }
    let empty = folder(&[]);
    let error = Markers::read(empty.path()).expect_err("nothing is there");
    assert!(matches!(error.problem, Problem::Missing { .. }), "{error}");
}

proptest! {
    #[test]
    fn nothing_panics_on_files_of_any_shape(at in 0usize..3, key in 0usize..6, inner in 0usize..6, value in 0usize..8) {
        let keys = ["added_tokens", "model", "added_tokens_decoder", "chat_template", "eos_token_id", "additional_special_tokens"];
        let parts = ["vocab", "0", "content", "id", "name", "template"];
        let values = [json!(null), json!(1), json!("a"), json!([]), json!([[]]), json!({"a": 1}), json!([{"id": 1, "content": "<unused1>"}]), json!(["b"])];
        for inner in [json!({parts[inner]: values[value]}), values[value].clone(), json!([{parts[inner]: values[value]}])] {
            let names = ["tokenizer.json", "tokenizer_config.json", "generation_config.json"];
            let from = folder(&[("tokenizer_config.json", json!({})), (names[at], json!({keys[key]: inner}))]);
            if let Ok(markers) = Markers::read(from.path()) {
                let to = tempfile::tempdir().expect("a folder");
                let _ = markers.plan(&WANTED).apply(from.path(), to.path());
            }
        }
    }
}

/// Where a folder says its tokens again, the old text of a reserved token would be a new token of its own.
#[test]
fn files_that_name_tokens_again_agree() {
    let from = with_reserved();
    let write =
        |name: &str, json: &Value| fs::write(from.path().join(name), json.to_string()).expect("a file");
    let first = "<|reserved_special_token_0|>";
    write(
        "special_tokens_map.json",
        &json!({"eos_token": "<|eot_id|>", "additional_special_tokens": [{"content": first}, first, "<s>"]}),
    );
    write("added_tokens.json", &json!({"<s>": 40, first: 42}));
    let markers = Markers::read(from.path()).expect("it is sound");
    let to = tempfile::tempdir().expect("a folder");
    markers
        .plan(&["<|python_tag|>", "<|eom_id|>", "<|third|>"])
        .apply(from.path(), to.path())
        .expect("it can be written");
    let [map, added] =
        ["special_tokens_map.json", "added_tokens.json"].map(|name| read(&to.path().join(name)));
    let special = json!([{"content": "<|python_tag|>"}, "<|python_tag|>", "<s>"]);
    assert_eq!(map, json!({"eos_token": "<|eot_id|>", "additional_special_tokens": special}));
    assert_eq!(added, json!({"<s>": 40, "<|python_tag|>": 42, "<|eom_id|>": 43, "<|third|>": 44}));
}
