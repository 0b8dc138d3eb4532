//! D.7: JSON out of a dialect of it.

use challenges::issues::chat::Steps;
use serde_json::{Map, Value, json};

use super::super::part::same;
use super::{Check, Rows, calls, python, same_text};
use crate::random::Random;

/// The strings of a dialect in use: a text of its own on both sides.
const QUOTE: &str = "<|\"|>";

pub(super) const CHECKS: &Rows<Check> = &[
    ("names", |steps, _| rows(steps, "names")),
    ("strings", |steps, _| rows(steps, "strings")),
    ("strings-hold-anything", |steps, _| rows(steps, "strings-hold-anything")),
    ("several-pairs", |steps, _| rows(steps, "several-pairs")),
    ("without-an-end", |steps, _| rows(steps, "without-an-end")),
    ("json-stays-as-it-is", |steps, _| rows(steps, "json-stays-as-it-is")),
    ("drawn", |steps, random| (0..300).try_for_each(|_| drawn(steps, &quotes(), random))),
    ("own-calls", |steps, random| calls::all(steps, random)),
];

/// Texts in a dialect and their JSON. Where transformers reads the dialect too, it reads the value of that JSON;
/// `tests/peers/chat_python.py` sees to it.
fn rows(steps: &Steps, check: &str) -> Result<(), String> {
    for row in python::rows("dialects", check) {
        let pairs = row["strings"].as_array().into_iter().flatten();
        let strings: Vec<_> =
            pairs.map(|both| pair(python::text(&both[0]), python::text(&both[1]))).collect();
        let (text, names) = (python::text(&row["text"]), row["unquoted_keys"] == true);
        let what = format!("{text:?} with the strings {strings:?}, unquoted keys {names}");
        same_text(&what, &steps.chat().json_of(text, &strings, names), python::text(&row["json"]))?;
    }
    Ok(())
}

fn pair(open: &str, close: &str) -> (String, String) {
    (open.to_owned(), close.to_owned())
}

fn quotes() -> [(String, String); 1] {
    [pair(QUOTE, QUOTE)]
}

/// A value written in the dialect comes back.
fn drawn(steps: &Steps, quotes: &[(String, String)], random: &mut Random) -> Result<(), String> {
    let value = Value::Object(object(random, 2));
    let text = written(&value);
    let got = steps.chat().json_of(&text, quotes, true);
    let back: Value = serde_json::from_str(&got)
        .map_err(|error| format!("{text} became {got}, which is no JSON: {error}"))?;
    same(&text, &back, &value)
}

fn object(random: &mut Random, depth: usize) -> Map<String, Value> {
    (0..random.below(4)).map(|index| (format!("name_{index}"), drawn_value(random, depth))).collect()
}

fn drawn_value(random: &mut Random, depth: usize) -> Value {
    let texts = ["", "a:1", "{b:2}", "x,y:z", "\"", "\\", "é\n", "1"];
    match random.below(if depth == 0 { 3 } else { 5 }) {
        0 => json!(random.below(1000)),
        1 => json!(texts[random.below(texts.len())]),
        2 => json!([true, false][random.below(2)]),
        3 => (0..random.below(3)).map(|_| drawn_value(random, depth - 1)).collect(),
        _ => Value::Object(object(random, depth - 1)),
    }
}

fn written(value: &Value) -> String {
    let list = |parts: Vec<String>| parts.join(",");
    match value {
        Value::String(text) => format!("{QUOTE}{text}{QUOTE}"),
        Value::Array(items) => format!("[{}]", list(items.iter().map(written).collect())),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name}:{}", written(value));
            format!("{{{}}}", list(fields.iter().map(field).collect()))
        }
        other => other.to_string(),
    }
}
