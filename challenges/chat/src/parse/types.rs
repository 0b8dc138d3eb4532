//! Arguments in the types that the tools declare.
//!
//! Formats without quotes write every argument as text. Where a tool's declaration is at hand, the text is read as the
//! first of its argument's types that it fits, and stays a text if it fits none.

use std::collections::HashMap;

use reference::exact;
use serde_json::{Map, Value};

use super::json;
use super::scalar::{float, int, strip};

/// The tools that a message may call.
#[derive(Clone, Debug, Default)]
pub struct Tools(HashMap<String, Map<String, Value>>);

impl Tools {
    /// From declarations `{"type": "function", "function": {"name": ..., "parameters": {"properties": ...}}}`, or the
    /// inner object alone; what has no name is passed over.
    pub fn new<'v>(tools: impl IntoIterator<Item = &'v Value>) -> Self {
        let named = tools.into_iter().filter_map(|tool| {
            let tool = tool.get("function").unwrap_or(tool);
            let properties = tool.get("parameters").and_then(|parameters| parameters.get("properties"));
            let properties = properties.and_then(Value::as_object).cloned().unwrap_or_default();
            Some((tool.get("name")?.as_str()?.to_owned(), properties))
        });
        Self(named.collect())
    }

    /// Casts the arguments of a call, or of each call in a list.
    pub(super) fn cast(&self, value: &mut Value) {
        if let Value::Array(calls) = value {
            for call in calls {
                self.cast(call);
            }
            return;
        }
        let function = value.get_mut("function");
        let properties = function.as_ref().and_then(|f| self.0.get(f.get("name")?.as_str()?));
        let (Some(function), Some(properties)) = (function, properties) else { return };
        let Some(Value::Object(arguments)) = function.get_mut("arguments") else { return };
        for (name, argument) in arguments {
            let types = properties.get(name).map(|schema| types(schema, 0)).unwrap_or_default();
            cast_argument(argument, &types);
        }
    }
}

/// A list is one of texts with the same key, unless it is what the tool wants.
fn cast_argument(argument: &mut Value, types: &[String]) {
    match argument {
        Value::String(text) => {
            if let Some(value) = types.iter().find_map(|kind| cast(text, kind)) {
                *argument = value;
            }
        }
        Value::Array(items) if !types.is_empty() && types.iter().all(|kind| kind != "array") => {
            items.iter_mut().filter(|item| item.is_string()).for_each(|item| cast_argument(item, types));
        }
        _ => {}
    }
}

/// The types of a schema, those of its alternatives included.
fn types(schema: &Value, depth: usize) -> Vec<String> {
    let mut names: Vec<String> = match schema.get("type") {
        Some(Value::String(name)) => vec![name.clone()],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    for union in ["anyOf", "oneOf"] {
        let choices = schema.get(union).and_then(Value::as_array).filter(|_| depth < json::DEEPEST);
        names.extend(choices.into_iter().flatten().flat_map(|choice| types(choice, depth + 1)));
    }
    if schema.get("nullable") == Some(&Value::Bool(true)) && !names.iter().any(|name| name == "null") {
        names.push("null".to_owned());
    }
    names
}

/// A text as a type, if it fits.
fn cast(text: &str, kind: &str) -> Option<Value> {
    let bare = strip(text);
    match kind {
        "integer" => int(bare).or_else(|| whole(float(bare)?.as_f64()?)),
        "number" => {
            let number = float(bare)?;
            // A float of more than 64 bits is written with an exponent. Python makes an integer of it, which is equal.
            let is_float = |whole: &Value| {
                text.contains('.') || text.contains(['e', 'E']) && exact::digits(whole).is_some()
            };
            let whole = number.as_f64().and_then(whole).filter(|whole| !is_float(whole));
            Some(whole.unwrap_or(number))
        }
        "boolean" => match bare.to_lowercase().as_str() {
            "true" | "1" => Some(true.into()),
            "false" | "0" => Some(false.into()),
            _ => None,
        },
        "null" => matches!(bare, "null" | "None").then_some(Value::Null),
        "object" => json::read(text).ok().filter(Value::is_object),
        "array" => json::read(text).ok().filter(Value::is_array),
        _ => None,
    }
}

/// A float without a fraction as an integer.
fn whole(number: f64) -> Option<Value> {
    let digits = format!("{number:.0}");
    (number.fract() == 0.0).then(|| json::integer(if digits == "-0" { "0" } else { &digits }))?
}
