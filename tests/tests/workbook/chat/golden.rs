//! Every golden pair of a template and a conversation, and every golden expression.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use challenges::issues::chat::{Conversation, Error, Rendered, Template};
use serde_json::Value;
use tests::golden;

use super::{options, render};

/// What differs on purpose: a part of the template, and why.
const REASONS: &str = include_str!("differs.txt");

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
    known: &'a mut BTreeMap<String, Result<Template, Error>>,
    folder: &Path,
    name: &str,
) -> &'a Result<Template, Error> {
    known.entry(name.to_string()).or_insert_with(|| {
        let source =
            fs::read_to_string(folder.join("templates").join(name)).expect("a golden template can be read");
        Template::new(&source, options())
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

#[test]
fn nearly_every_expression_means_what_it_means_in_python() {
    let Some(rows) = golden::chat_rows("jinja-open") else { return };
    let mut differing = 0;
    for row in &rows {
        let source = row["template"].as_str().expect("a row holds its template");
        let got = render(source, &row["context"]).map(|text| Rendered { text, spans: Vec::new() });
        let Some(how) = difference(row, &got) else { continue };
        differing += 1;
        let known = REASONS.lines().filter_map(|line| line.split_once(" : "));
        let why = known
            .into_iter()
            .find(|(part, _)| source.contains(part))
            .map_or("no reason known", |(_, why)| why);
        println!("differs: {} {source:?}: {how} ({why})", row["id"]);
    }
    let rate = 100.0 * (1.0 - f64::from(differing) / rows.len() as f64);
    println!("{rate:.2} % of {} expressions agree", rows.len());
    assert!(rate >= 97.0, "{differing} of {} expressions differ", rows.len());
}
