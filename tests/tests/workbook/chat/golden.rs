//! Every golden pair of a template and a conversation, and every golden expression.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use challenges::issues::chat::{ChatTemplate, Conversation, Error, Rendered};
use serde_json::{Value, json};
use tests::golden;

use super::{options, render};

/// What differs: the name of a row, and why.
const REASONS: &str = include_str!("differs.txt");
/// Templates drawn by `tests/peers/chat_drawn.py`, and what jinja2 writes; the variables of all stand in the first
/// line.
const DRAWN: &str = include_str!("drawn.jsonl");

/// How many differences a message shows.
const SHOWN: usize = 5;

fn conversation(row: &Value) -> Conversation {
    let given = |name: &str| Some(row[name].clone()).filter(|value| !value.is_null());
    let named = |name: &str| row[name].as_object().cloned().unwrap_or_default();
    Conversation {
        messages: row["messages"].as_array().cloned().unwrap_or_default(),
        tools: given("tools"),
        documents: given("documents"),
        add_generation_prompt: row["add_generation_prompt"] == true,
        continue_final_message: row["continue_final_message"] == true,
        variables: named("special_tokens").into_iter().chain(named("kwargs")).collect(),
    }
}

/// What differs between a row and what came out.
fn difference(row: &Value, got: &Result<Rendered, Error>) -> Option<String> {
    let wanted = &row["error"]["kind"];
    match got {
        Err(error) if wanted == error.kind.name() => None,
        Err(error) => Some(format!("{error}; want {} {}", row["error"], row["expected"])),
        Ok(_) if !wanted.is_null() => Some(format!("a text; want {}", row["error"])),
        Ok(rendered) if row["expected"] != rendered.text => {
            let want = row["expected"].as_str().unwrap_or_default();
            let same = rendered.text.bytes().zip(want.bytes()).take_while(|(got, want)| got == want).count();
            let part =
                |text: &str| text.as_bytes()[same.saturating_sub(20)..].iter().take(80).copied().collect();
            let part = |text: &str| {
                String::from_utf8_lossy(&{
                    let part: Vec<u8> = part(text);
                    part
                })
                .into_owned()
            };
            Some(format!("at byte {same}: got {:?}, want {:?}", part(&rendered.text), part(want)))
        }
        Ok(rendered) => {
            let spans: Vec<_> = rendered.spans.iter().map(|span| vec![span.start, span.end]).collect();
            let want = &row["assistant_spans"];
            (!want.is_null() && *want != serde_json::json!(spans))
                .then(|| format!("spans {spans:?}, want {want}"))
        }
    }
}

fn template<'a>(
    known: &'a mut BTreeMap<String, Result<ChatTemplate, Error>>,
    folder: &Path,
    name: &str,
) -> &'a Result<ChatTemplate, Error> {
    known.entry(name.to_string()).or_insert_with(|| {
        let source =
            fs::read_to_string(folder.join("templates").join(name)).expect("a golden template can be read");
        ChatTemplate::new(&source, options())
    })
}

#[test]
fn every_conversation_is_rendered_as_transformers_renders_it() {
    let (Some(folder), Some(rows)) = (golden::chat_folder(), golden::chat_rows("render-trl")) else { return };
    let (mut templates, mut differing) = (BTreeMap::new(), Vec::new());
    for row in &rows {
        let name = row["template_file"].as_str().expect("a row names its template");
        let got = match template(&mut templates, &folder, name) {
            Ok(template) => template.chat(&conversation(row)),
            Err(error) => Err(error.clone()),
        };
        differing.extend(difference(row, &got).map(|how| format!("{name} {}: {how}", row["case_id"])));
    }
    let first = differing[..differing.len().min(SHOWN)].join("\n");
    assert!(differing.is_empty(), "{} of {} conversations differ:\n{first}", differing.len(), rows.len());
}

/// Renders expressions; answers the names of those that differ.
fn differing<'r>(rows: impl IntoIterator<Item = (&'r Value, &'r Value)>) -> BTreeSet<&'r str> {
    let mut names = BTreeSet::new();
    for (row, context) in rows {
        let source = row["template"].as_str().expect("a row holds its template");
        let want = match row["error"].as_str() {
            Some(kind) => json!({ "error": { "kind": kind } }),
            None => row.clone(),
        };
        let got = render(source, context).map(|text| Rendered { text, spans: Vec::new() });
        if let Some(how) = difference(&want, &got) {
            println!("differs: {} {source:?}: {how}", row["id"]);
            names.insert(row["id"].as_str().expect("a row has a name"));
        }
    }
    names
}

/// The rows that differ on purpose, of those that there are.
fn kept(rows: &[Value]) -> BTreeSet<&'static str> {
    let known = REASONS.lines().filter_map(|line| line.split_once(" : ")).map(|(name, _)| name);
    known.filter(|name| rows.iter().any(|row| row["id"] == *name)).collect()
}

#[test]
fn golden_expressions_differ_only_where_listed() {
    let Some(rows) = golden::chat_rows("jinja-open") else { return };
    assert_eq!(differing(rows.iter().map(|row| (row, &row["context"]))), kept(&rows));
}

#[test]
fn drawn_templates_differ_only_where_listed() {
    let lines: Vec<Value> =
        DRAWN.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let [first, rows @ ..] = lines.as_slice() else { panic!("the rows are empty") };
    assert_eq!(differing(rows.iter().map(|row| (row, &first["context"]))), kept(rows));
}
