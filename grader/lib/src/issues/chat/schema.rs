//! D.4: a function as a tool, against what transformers' `get_json_schema` writes of it.

use challenges::issues::chat::Steps;
use challenges::issues::chat::tools::{Argument, ArgumentType, Signature};

use super::{Check, Rows, python, same_text};

pub(super) const CHECKS: &Rows<Check> = &[
    ("simple-types", |steps, _| schemas(steps, "simple-types")),
    ("choice", |steps, _| schemas(steps, "choice")),
    ("nested-types", |steps, _| schemas(steps, "nested-types").and_then(|()| null_or_null(steps))),
    ("required", |steps, _| tools(steps, "required")),
    ("nothing-required", |steps, _| tools(steps, "nothing-required")),
    ("order", |steps, _| tools(steps, "order")),
];

/// Types by their annotation in Python. Keys count in their order: a template writes them in it.
fn schemas(steps: &Steps, check: &str) -> Result<(), String> {
    python::rows("schemas", check).iter().try_for_each(|row| {
        let kind = kind(python::text(&row[0]));
        same_text(&format!("{kind:?}"), &steps.chat().schema(&kind).to_string(), &row[1].to_string())
    })
}

/// What no annotation of Python says: there a null that may be null is a null.
fn null_or_null(steps: &Steps) -> Result<(), String> {
    let kind = ArgumentType::Nullable(Box::new(ArgumentType::Null));
    same_text(
        &format!("{kind:?}"),
        &steps.chat().schema(&kind).to_string(),
        r#"{"type":"null","nullable":true}"#,
    )
}

/// The type that an annotation of Python names.
fn kind(annotation: &str) -> ArgumentType {
    let inner = annotation.strip_suffix(']').and_then(|text| text.split_once('['));
    let (name, inner) = inner.unwrap_or((annotation, ""));
    let boxed = |text| Box::new(kind(text));
    match name {
        "Any" => ArgumentType::Any,
        "None" => ArgumentType::Null,
        "bool" => ArgumentType::Boolean,
        "int" => ArgumentType::Integer,
        "float" => ArgumentType::Number,
        "str" => ArgumentType::Text,
        "Literal" => ArgumentType::Choice(inner.split(", ").map(|text| text.replace('\'', "")).collect()),
        "Optional" => ArgumentType::Nullable(boxed(inner)),
        "list" => ArgumentType::List(boxed(inner)),
        "tuple" => ArgumentType::Tuple(inner.split(", ").map(kind).collect()), // of types without a comma
        "dict" => ArgumentType::Map(boxed(inner.trim_start_matches("str, "))),
        other => panic!("no type for the annotation {other}"),
    }
}

/// Functions by their arguments in Python: an annotation says what may be given, a default that none has to be.
fn tools(steps: &Steps, check: &str) -> Result<(), String> {
    python::rows("tools", check).iter().try_for_each(|row| {
        let arguments: Vec<&str> = row[0].as_array().into_iter().flatten().map(python::text).collect();
        let signature = Signature {
            name: "f".into(),
            description: "Does it.".into(),
            arguments: arguments.iter().map(|argument| self::argument(argument)).collect(),
        };
        let got = serde_json::to_value(steps.chat().tool(&signature)).map_err(|error| error.to_string())?;
        let what = format!("the function f({})", arguments.join(", "));
        same_text(&what, &got.to_string(), &row[1].to_string())
    })
}

/// An argument such as `days: Optional[str] = None`.
fn argument(text: &str) -> Argument {
    let (name, rest) = text.split_once(": ").expect("an argument with its type");
    let (annotation, default) = rest.split_once(" = ").map_or((rest, None), |(type_, it)| (type_, Some(it)));
    Argument {
        name: name.into(),
        description: format!("About {name}."),
        kind: kind(annotation),
        optional: default.is_some(),
    }
}
