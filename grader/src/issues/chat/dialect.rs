//! D.7: JSON out of a dialect of it.

use challenges::issues::chat::Steps;
use serde_json::{Map, Value, json};

use super::{Check, Rows, calls, same, same_text};
use crate::random::Random;

/// The strings of a dialect in use: a text of its own on both sides.
const QUOTE: &str = "<|\"|>";

pub(super) const CHECKS: &Rows<Check> = &[
    ("names", |steps, _| {
        one(
            steps,
            "{a:1,b_2:{ä:[c,d]},\"e\":2, f:3}",
            &[],
            true,
            "{\"a\":1,\"b_2\":{\"ä\":[c,d]},\"e\":2, f:3}",
        )
    }),
    ("strings", |steps, _| {
        one(steps, "{a:<|\"|>x<|\"|>}", &quotes(), true, "{\"a\":\"x\"}")
            .and_then(|()| one(steps, "[<|\"|><|\"|>]", &quotes(), false, "[\"\"]"))
    }),
    ("strings-hold-anything", |steps, _| {
        one(
            steps,
            "{a:<|\"|>{b:1,c:\"\\\n\u{1}0\u{2}}<|\"|>,d:2}",
            &quotes(),
            true,
            "{\"a\":\"{b:1,c:\\\"\\\\\\n\\u00010\\u0002}\",\"d\":2}",
        )
    }),
    ("several-pairs", |steps, _| {
        let pairs = [pair("«", "»"), pair("'", "'")];
        one(steps, "{a:'x',b:«it's»,c:'y'}", &pairs, true, "{\"a\":\"x\",\"b\":\"it's\",\"c\":\"y\"}")
    }),
    ("without-an-end", |steps, _| one(steps, "{a:<|\"|>x}", &quotes(), true, "{\"a\":<|\"|>x}")),
    ("json-stays-as-it-is", |steps, _| {
        one(steps, "{\"a\": [1, true, \"b:c\"]}", &[], false, "{\"a\": [1, true, \"b:c\"]}")
            .and_then(|()| one(steps, "{a:1}", &quotes(), false, "{a:1}"))
    }),
    ("drawn", |steps, random| (0..300).try_for_each(|_| drawn(steps, &quotes(), random))),
    ("own-calls", |steps, random| calls::all(steps, random)),
];

fn one(
    steps: &Steps,
    text: &str,
    strings: &[(String, String)],
    names: bool,
    want: &str,
) -> Result<(), String> {
    let what = format!("{text:?} with the strings {strings:?}, unquoted keys {names}");
    same_text(&what, &steps.chat().json_of(text, strings, names), want)
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
