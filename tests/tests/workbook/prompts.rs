//! Prompts and completions that are messages: tokens and masks as TRL makes them (`prompts_trl.json`, by
//! `tests/peers/prompts_trl.py`).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use trainer::train::data::{Dataset, Encoder};

use crate::sft::Sft;

const KEPT: &str = include_str!("prompts_trl.json");

/// The golden tokenizer with another template, and a file of rows.
struct Place(TempDir);

impl Place {
    fn new(sft: &Sft, template: &Value, rows: &[Value]) -> Self {
        let place = Self(TempDir::new().expect("a folder"));
        for name in ["tokenizer.json", "tokenizer_config.json"] {
            fs::copy(sft.path("tokenizer").join(name), place.path(name)).expect("it can be copied");
        }
        let template = template.as_str().expect("a text");
        fs::write(place.path("chat_template.jinja"), template).expect("it can be written");
        let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
        fs::write(place.path("rows.jsonl"), lines.join("\n")).expect("it can be written");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn rows(&self, assistant_only: bool) -> Result<Dataset, String> {
        let encoder =
            Encoder::open(self.0.path(), 512, assistant_only).map_err(|failure| failure.to_string())?;
        encoder.rows(Path::new(&self.path("rows.jsonl")), None).map_err(|failure| failure.to_string())
    }
}

#[test]
fn prompts_that_are_messages_have_the_librarys_tokens_and_masks() {
    let Some(sft) = Sft::find() else { return };
    let kept: Value = serde_json::from_str(KEPT).expect("JSON");
    let rows = kept["rows"].as_array().expect("rows");
    for (name, template) in kept["templates"].as_object().expect("templates") {
        let place = Place::new(&sft, template, rows);
        let want = kept["kept"][name].as_array().expect("rows");
        for (assistant_only, mask) in [(false, "completion"), (true, "assistant")] {
            let data = place.rows(assistant_only).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(data.rows.len(), want.len(), "{name}: {} are left out", data.left_out);
            for (number, (row, want)) in data.rows.iter().zip(want).enumerate() {
                assert_eq!(Value::from(row.ids.clone()), want["input_ids"], "{name}, row {number}");
                let trained: String =
                    row.trained.iter().map(|trained| char::from(b'0' + u8::from(*trained))).collect();
                assert_eq!(trained, want[mask], "{name}, row {number}, {mask}");
            }
            assert_eq!(data.merged, if name == "thought" { want.len() } else { 0 }, "{name}");
        }
    }
}

#[test]
fn a_row_of_messages_that_is_none_is_named() {
    let Some(sft) = Sft::find() else { return };
    let kept: Value = serde_json::from_str(KEPT).expect("JSON");
    let (user, answer) =
        (json!([{"role": "user", "content": "a"}]), json!([{"role": "assistant", "content": "b"}]));
    for (row, want) in [
        (json!({"prompt": user, "completion": "b"}), "line 1: completion: expected a list of messages"),
        (json!({"prompt": user}), "line 1: expected the key completion next to prompt"),
        (json!({"messages": user, "tools": 3}), "line 1: tools: expected a list, or its JSON as a text"),
        (json!({"prompt": "a", "completion": answer}), "line 1: completion: expected a text"),
        (
            json!({"prompt": [], "completion": answer}),
            "line 1: prompt: expected at least one message, found an empty list",
        ),
        (json!({"prompt": user, "completion": answer, "tools": "[1"}), "line 1: tools: invalid JSON: EOF"),
        (
            json!({"messages": user, "chat_template_kwargs": 1}),
            "line 1: chat_template_kwargs: expected an object",
        ),
        (
            json!({"messages": user, "chat_template_kwargs": {"tools": []}}),
            "line 1: chat_template_kwargs: expected variables of the template, found tools",
        ),
        (json!({"messages": "a"}), "line 1: messages: expected a list"),
    ] {
        let place = Place::new(&sft, &kept["templates"]["tools"], std::slice::from_ref(&row));
        let error = place.rows(false).expect_err("it is refused");
        assert!(error.contains(want), "{row}: expected {want}, found {error}");
    }
    let texts = json!({"prompt": "a", "completion": "b"});
    let error = Place::new(&sft, &kept["templates"]["own"], &[texts]).rows(true).expect_err("it is refused");
    assert!(error.contains("assistant_only_loss needs `messages`"), "{error}");
}

#[test]
fn rows_with_tools_take_the_template_for_tools() {
    let Some(sft) = Sft::find() else { return };
    let messages = json!([{"role": "user", "content": "river"}, {"role": "assistant", "content": "stone"}]);
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
    let rows = [
        json!({"messages": messages}),
        json!({"messages": messages, "tools": null}),
        json!({"messages": messages, "tools": tools}),
        json!({"messages": messages, "tools": tools.to_string()}),
        json!({"messages": messages, "tools": []}),
    ];
    let default = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}";
    let place = Place::new(&sft, &json!(default), &rows);
    fs::create_dir(place.path("additional_chat_templates")).expect("a folder");
    fs::write(place.path("additional_chat_templates/tool_use.jinja"), "{{ messages[1].content }}")
        .expect("it can be written");
    let data = place.rows(false).expect("rows");
    let ids: Vec<&Vec<i32>> = data.rows.iter().map(|row| &row.ids).collect();
    assert!(ids[0] == ids[1] && ids[2] == ids[3] && ids[3] == ids[4] && ids[0] != ids[2], "{ids:?}");
    let error = place.rows(true).expect_err("the template for tools has no marks");
    assert!(error.contains("line 3: assistant_only_loss needs {% generation %} marks"), "{error}");
}

#[test]
fn whole_numbers_of_rows_are_exact() {
    let Some(sft) = Sft::find() else { return };
    let template = json!("{% for m in messages %}{{ m.content }}{% endfor %}{{ tools[0].max }}");
    let texts = [
        r#"{"messages": [{"role": "user", "content": 18446744073709551616}], "tools": [{"max": -0}], "label": 1e300}"#,
        r#"{"messages": [{"role": "user", "content": 18446744073709551616}], "tools": "[{\"max\": -0}]"}"#,
        r#"{"messages": [{"role": "user", "content": "18446744073709551616"}], "tools": [{"max": 0}]}"#,
    ];
    let place = Place::new(&sft, &template, &[]);
    fs::write(place.path("rows.jsonl"), texts.join("\n")).expect("it can be written");
    let data = place.rows(false).expect("rows");
    assert!(
        data.rows.len() == 3 && data.rows.iter().all(|row| row.ids == data.rows[0].ids),
        "{:?}",
        data.rows
    );
}

/// Lines that a table was written as have every key of all of them.
#[test]
fn keys_that_are_null_are_none() {
    let Some(sft) = Sft::find() else { return };
    let kept: Value = serde_json::from_str(KEPT).expect("JSON");
    let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
    let rows = [
        json!({"messages": messages}),
        json!({"prompt": null, "completion": null, "text": null, "messages": messages, "tools": null}),
    ];
    let data = Place::new(&sft, &kept["templates"]["own"], &rows).rows(false).expect("rows");
    assert_eq!(data.rows[0].ids, data.rows[1].ids);
}

/// As in TRL, whose rows of texts get the end of the sequence where they do not have it (`add_eos`).
#[test]
fn a_text_ends_once() {
    let Some(sft) = Sft::find() else { return };
    let kept: Value = serde_json::from_str(KEPT).expect("JSON");
    let rows = [
        json!({"text": "river stone"}),
        json!({"text": "river stone<|end|>"}),
        json!({"prompt": "river", "completion": " stone<|end|>"}),
        json!({"prompt": "river", "completion": " stone"}),
        json!({"prompt": "river<|end|>", "completion": ""}),
    ];
    let data = Place::new(&sft, &kept["templates"]["own"], &rows).rows(false).expect("rows");
    let ids: Vec<&Vec<i32>> = data.rows.iter().map(|row| &row.ids).collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] == ids[3], "{ids:?}");
    assert_eq!(ids[0].iter().filter(|id| **id == 2).count(), 1, "{ids:?}");
    assert_eq!(ids[4][ids[4].len() - 2..], [2, 2], "the completion is what ends");
}
