//! D.4: a function as a tool.

use challenges::issues::chat::Steps;
use challenges::issues::chat::tools::{Argument, ArgumentType, Signature};
use serde_json::{Value, json};

use super::{Check, Rows, same_text};

pub(super) const CHECKS: &Rows<Check> = &[
    ("simple-types", |steps, _| {
        SIMPLE.iter().try_for_each(|(kind, name)| one(steps, kind, &json!({ "type": name })))
    }),
    ("choice", |steps, _| {
        let kind = ArgumentType::Choice(vec!["z".into(), "a".into()]);
        one(steps, &kind, &json!({ "type": "string", "enum": ["z", "a"] }))
    }),
    ("nested-types", |steps, _| nested(steps)),
    ("required", |steps, _| {
        tool(steps, &[("city", false), ("days", true), ("unit", false)], Some(&["city", "unit"]))
    }),
    ("nothing-required", |steps, _| {
        tool(steps, &[("days", true)], None).and_then(|()| tool(steps, &[], None))
    }),
    ("order", |steps, _| tool(steps, &[("z", false), ("a", true), ("m", false)], Some(&["z", "m"]))),
];

const SIMPLE: [(ArgumentType, &str); 5] = [
    (ArgumentType::Null, "null"),
    (ArgumentType::Boolean, "boolean"),
    (ArgumentType::Integer, "integer"),
    (ArgumentType::Number, "number"),
    (ArgumentType::Text, "string"),
];

/// Keys count in their order: a template writes them in it.
fn one(steps: &Steps, kind: &ArgumentType, want: &Value) -> Result<(), String> {
    same_text(&format!("{kind:?}"), &steps.chat().schema(kind).to_string(), &want.to_string())
}

fn nested(steps: &Steps) -> Result<(), String> {
    use ArgumentType::{Any, Integer, List, Map, Nullable, Text, Tuple};
    let boxed = Box::new;
    let cases = [
        (Any, json!({})),
        (List(boxed(Integer)), json!({ "type": "array", "items": { "type": "integer" } })),
        (List(boxed(Any)), json!({ "type": "array", "items": {} })),
        (
            Tuple(vec![Text, List(boxed(Text))]),
            json!({ "type": "array", "prefixItems": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] }),
        ),
        (Map(boxed(Integer)), json!({ "type": "object", "additionalProperties": { "type": "integer" } })),
        (
            Nullable(boxed(List(boxed(Nullable(boxed(Integer)))))),
            json!({ "type": "array", "items": { "type": "integer", "nullable": true }, "nullable": true }),
        ),
    ];
    cases.iter().try_for_each(|(kind, want)| one(steps, kind, want))
}

/// A tool with arguments that are whole numbers, or texts that may be left out.
fn tool(steps: &Steps, arguments: &[(&str, bool)], required: Option<&[&str]>) -> Result<(), String> {
    let argument = |&(name, optional): &(&str, bool)| {
        let kind = if optional {
            ArgumentType::Nullable(Box::new(ArgumentType::Text))
        } else {
            ArgumentType::Integer
        };
        Argument { name: name.into(), description: format!("About {name}."), kind, optional }
    };
    let signature = Signature {
        name: "f".into(),
        description: "Does it.".into(),
        arguments: arguments.iter().map(argument).collect(),
    };
    let property = |&(name, optional): &(&str, bool)| {
        let about = format!("About {name}.");
        let schema = if optional {
            json!({ "type": "string", "nullable": true, "description": about })
        } else {
            json!({ "type": "integer", "description": about })
        };
        (name.to_owned(), schema)
    };
    let properties: serde_json::Map<_, _> = arguments.iter().map(property).collect();
    let mut parameters = json!({ "type": "object", "properties": properties });
    if let Some(required) = required {
        parameters["required"] = json!(required);
    }
    let function = json!({ "name": "f", "description": "Does it.", "parameters": parameters });
    let want = json!({ "type": "function", "function": function });
    let got = serde_json::to_value(steps.chat().tool(&signature)).map_err(|error| error.to_string())?;
    same_text(&format!("the arguments {arguments:?} (name, optional)"), &got.to_string(), &want.to_string())
}
