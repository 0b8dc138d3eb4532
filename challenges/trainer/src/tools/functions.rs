//! The functions that the model is taught to call. They run: an answer counts for what its call returns.

use challenges::issues::chat::tools::{ArgumentType, Typed};
use serde_json::{Map, Value as Json};

/// A unit to convert to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// From kilometres.
    Miles,
    /// From kilograms.
    Pounds,
    /// From degrees Celsius.
    Fahrenheit,
}

impl Unit {
    /// Each with its name.
    pub const ALL: [(&str, Unit); 3] =
        [("miles", Unit::Miles), ("pounds", Unit::Pounds), ("fahrenheit", Unit::Fahrenheit)];
}

impl Typed for Unit {
    fn kind() -> ArgumentType {
        ArgumentType::Choice(Self::ALL.map(|(name, _)| name.to_owned()).to_vec())
    }
}

challenges::tool! {
    /// The sum of two whole numbers.
    pub fn add(
        /// The first.
        a: i64,
        /// The second.
        b: i64,
    ) -> Result<String, String> {
        a.checked_add(b).map(|sum| sum.to_string()).ok_or_else(|| "the sum is too large".to_owned())
    }
}

challenges::tool! {
    /// The area of a rectangle.
    pub fn area(
        /// How wide it is.
        w: i64,
        /// How high it is.
        h: i64,
    ) -> Result<String, String> {
        w.checked_mul(h).map(|area| area.to_string()).ok_or_else(|| "the area is too large".to_owned())
    }
}

challenges::tool! {
    /// Converts kilometres to miles, kilograms to pounds, or degrees Celsius to Fahrenheit.
    pub fn convert(
        /// How much.
        n: i64,
        /// The unit to convert to.
        to: Unit,
    ) -> Result<String, String> {
        let n = n as f64;
        let converted = match to {
            Unit::Miles => n / 1.609_344,
            Unit::Pounds => n / 0.453_592_37,
            Unit::Fahrenheit => n * 1.8 + 32.0,
        };
        Ok(format!("{converted:.2}"))
    }
}

challenges::tool! {
    /// A name, written from its end.
    pub fn backwards(
        /// The name.
        name: String,
    ) -> Result<String, String> {
        Ok(name.chars().rev().collect())
    }
}

challenges::tool! {
    /// How many letters a word has.
    pub fn letters(
        /// The word.
        word: String,
    ) -> Result<String, String> {
        Ok(word.chars().count().to_string())
    }
}

/// The tools as a model is told of them.
pub fn tools() -> Json {
    let tools = [add::tool(), area::tool(), convert::tool(), backwards::tool(), letters::tool()];
    serde_json::to_value(tools).unwrap_or_default()
}

/// Whether a call names a tool and its arguments are what the tool's schema asks for: each that is required is there,
/// each that is there is declared, of its type and, where there is a choice, one of it. Says what is not.
pub fn check(tools: &Json, name: &str, arguments: &Map<String, Json>) -> Result<(), String> {
    let mut all = tools.as_array().into_iter().flatten().map(|tool| &tool["function"]);
    let tool = all.find(|tool| tool["name"] == name).ok_or_else(|| format!("there is no tool {name:?}"))?;
    let (properties, required) = (&tool["parameters"]["properties"], &tool["parameters"]["required"]);
    let mut required = required.as_array().into_iter().flatten().filter_map(Json::as_str);
    if let Some(missing) = required.find(|argument| !arguments.contains_key(*argument)) {
        return Err(format!("{name}: the argument {missing} is missing"));
    }
    for (argument, value) in arguments {
        let schema =
            properties.get(argument).ok_or_else(|| format!("{name} has no argument {argument:?}"))?;
        if !fits(schema, value) {
            return Err(format!("{name}: {argument}: expected {schema}, found {value}"));
        }
    }
    Ok(())
}

/// Whether a value is of a schema's type, one of those that the functions above have.
fn fits(schema: &Json, value: &Json) -> bool {
    let is_typed = match schema["type"].as_str() {
        Some("integer") => value.is_i64(),
        Some("string") => value.is_string(),
        _ => false,
    };
    is_typed && schema.get("enum").and_then(Json::as_array).is_none_or(|choices| choices.contains(value))
}

/// Runs a call; what the function returns, or why it could not.
pub fn execute(name: &str, arguments: &Map<String, Json>) -> Result<String, String> {
    let missing =
        |argument: &str| format!("{name}: expected the argument {argument}, found none of its type");
    let integer =
        |argument: &str| arguments.get(argument).and_then(Json::as_i64).ok_or_else(|| missing(argument));
    let text = |argument: &str| {
        let value = arguments.get(argument).and_then(Json::as_str);
        value.map(str::to_owned).ok_or_else(|| missing(argument))
    };
    let unit = |argument: &str| {
        let named = text(argument)?;
        let found = Unit::ALL.into_iter().find(|(name, _)| *name == named);
        found.map(|(_, unit)| unit).ok_or_else(|| missing(argument))
    };
    match name {
        "add" => add::call(integer("a")?, integer("b")?),
        "area" => area::call(integer("w")?, integer("h")?),
        "convert" => convert::call(integer("n")?, unit("to")?),
        "backwards" => backwards::call(text("name")?),
        "letters" => letters::call(text("word")?),
        _ => Err(format!("there is no tool {name:?}")),
    }
}
