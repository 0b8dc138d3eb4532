//! Expected texts: the rows of `python.json`, which `tests/peers/chat_python.py` writes by Python's and transformers'
//! own answers. The special tokens of D.3 and the JSON of D.7 follow the trait; of the latter transformers reads the
//! value, where it takes the dialect.

use std::sync::LazyLock;

use serde_json::Value;

static ANSWERS: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("python.json")).expect("python.json is JSON"));

/// The rows of one kind (`strings`, `floats`, ..) for a check.
pub(super) fn rows(kind: &str, check: &str) -> &'static [Value] {
    list(&ANSWERS[kind][check])
}

/// The rows of a kind that belong to no check in particular.
pub(super) fn documents() -> &'static [Value] {
    list(&ANSWERS["documents"])
}

/// A list of at least one value: a check without rows would pass whatever comes.
fn list(value: &Value) -> &[Value] {
    value.as_array().filter(|rows| !rows.is_empty()).expect("python.json has these rows")
}

/// A text in a row.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().expect("a text in python.json")
}
