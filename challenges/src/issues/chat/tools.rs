//! Tools: what a model may call, as JSON schema, and derived from Rust functions.

use std::collections::BTreeMap;

use reference::issues::chat::{Function, Tool};
use serde_json::{Map, Value as Json, json};

/// A type of an argument, as JSON schema names it.
pub trait Schema {
    /// The schema: `{"type": ...}` and what belongs to it.
    fn schema() -> Json;

    /// Whether a call may leave the argument out.
    const OPTIONAL: bool = false;
}

macro_rules! named {
    ($name:literal: $($type:ty),*) => { $(
        impl Schema for $type {
            fn schema() -> Json {
                json!({ "type": $name })
            }
        }
    )* };
}

named!("integer": i8, i16, i32, i64, u8, u16, u32, u64, isize, usize);
named!("number": f32, f64);
named!("string": String, &str, char);
named!("boolean": bool);
named!("null": ());

impl Schema for Json {
    fn schema() -> Json {
        json!({})
    }
}

impl<T: Schema> Schema for Vec<T> {
    fn schema() -> Json {
        json!({ "type": "array", "items": T::schema() })
    }
}

impl<T: Schema> Schema for &[T] {
    fn schema() -> Json {
        Vec::<T>::schema()
    }
}

impl<T: Schema> Schema for BTreeMap<String, T> {
    fn schema() -> Json {
        json!({ "type": "object", "additionalProperties": T::schema() })
    }
}

impl<T: Schema> Schema for Option<T> {
    fn schema() -> Json {
        let mut schema = T::schema();
        schema["nullable"] = json!(true);
        schema
    }

    const OPTIONAL: bool = true;
}

impl<A: Schema, B: Schema> Schema for (A, B) {
    fn schema() -> Json {
        json!({ "type": "array", "prefixItems": [A::schema(), B::schema()] })
    }
}

/// A tool of its name, what it is for, and its arguments: name, schema, whether it may be left out, description.
pub fn tool_of(name: &str, description: &str, arguments: Vec<(&str, Json, bool, &str)>) -> Tool {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, mut schema, optional, description) in arguments {
        schema["description"] = json!(description);
        properties.insert(name.into(), schema);
        if !optional {
            required.push(json!(name));
        }
    }
    let mut parameters = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        parameters["required"] = Json::Array(required);
    }
    Tool::of(Function { name: name.into(), description: description.into(), parameters })
}

/// A function that is a tool too: written once, as a function with a description of itself and of each argument.
///
/// ```
/// challenges::tool! {
///     /// The current weather in a city.
///     fn weather(
///         /// The city and its country.
///         city: String,
///         /// Whether in degrees Fahrenheit.
///         fahrenheit: Option<bool>,
///     ) -> String {
///         format!("sunny in {city}, {}", if fahrenheit == Some(true) { "77 F" } else { "25 C" })
///     }
/// }
/// assert_eq!(weather::tool().function.parameters["required"], serde_json::json!(["city"]));
/// assert_eq!(weather::call("Paris, France".into(), None), "sunny in Paris, France, 25 C");
/// ```
#[macro_export]
macro_rules! tool {
    (
        $(#[doc = $text:literal])+
        $visible:vis fn $name:ident(
            $( $(#[doc = $about:literal])+ $argument:ident: $type:ty ),* $(,)?
        ) $(-> $answer:ty)? $body:block
    ) => {
        #[allow(missing_docs, clippy::needless_pass_by_value)]
        $visible mod $name {
            #[allow(unused_imports)]
            use super::*;

            /// What a model is told.
            pub fn tool() -> $crate::issues::chat::Tool {
                $crate::issues::chat::tools::tool_of(
                    stringify!($name),
                    concat!($($text, "\n"),+).trim(),
                    vec![$((
                        stringify!($argument),
                        <$type as $crate::issues::chat::tools::Schema>::schema(),
                        <$type as $crate::issues::chat::tools::Schema>::OPTIONAL,
                        concat!($($about, "\n"),+).trim(),
                    )),*],
                )
            }

            /// Does it.
            pub fn call($($argument: $type),*) $(-> $answer)? $body
        }
    };
}
