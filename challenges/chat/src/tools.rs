//! Tools: what a model may call, derived from Rust functions.
//!
//! A function's signature is data ([`Signature`]); its JSON schema is a step ([`Chat::tool`]).

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::contract::{Chat, Solution};

pub use crate::signature::{Argument, ArgumentType, Signature};
pub use reference::issues::chat::Tool;

impl Signature {
    /// As the solution writes it.
    pub fn tool(&self) -> Tool {
        Solution.tool(self)
    }
}

/// A type of Rust that an argument can have.
///
/// In Python a default and `None` are two things: `days: int = 1` may be left out and may not be null,
/// `days: Optional[int]` may be null and may not be left out. Rust has no defaults, so here `Option<T>` is both, as
/// `Optional[int] = None` is in Python. A [`Signature`] can say either alone.
pub trait Typed {
    /// What an argument of the type may be.
    fn kind() -> ArgumentType;

    /// Whether a call may leave the argument out.
    const OPTIONAL: bool = false;
}

macro_rules! typed {
    ($kind:ident: $($type:ty),*) => { $(
        impl Typed for $type {
            fn kind() -> ArgumentType {
                ArgumentType::$kind
            }
        }
    )* };
}

typed!(Integer: i8, i16, i32, i64, u8, u16, u32, u64, isize, usize);
typed!(Number: f32, f64);
typed!(Text: String, &str, char);
typed!(Boolean: bool);
typed!(Null: ());
typed!(Any: Json);

impl<T: Typed> Typed for Vec<T> {
    fn kind() -> ArgumentType {
        ArgumentType::List(Box::new(T::kind()))
    }
}

impl<T: Typed> Typed for &[T] {
    fn kind() -> ArgumentType {
        Vec::<T>::kind()
    }
}

impl<T: Typed> Typed for BTreeMap<String, T> {
    fn kind() -> ArgumentType {
        ArgumentType::Map(Box::new(T::kind()))
    }
}

impl<T: Typed> Typed for Option<T> {
    fn kind() -> ArgumentType {
        ArgumentType::Nullable(Box::new(T::kind()))
    }

    const OPTIONAL: bool = true;
}

impl<A: Typed, B: Typed> Typed for (A, B) {
    fn kind() -> ArgumentType {
        ArgumentType::Tuple(vec![A::kind(), B::kind()])
    }
}

/// An argument of a type.
pub fn argument<T: Typed>(name: &str, description: &str) -> Argument {
    Argument { name: name.into(), description: description.into(), kind: T::kind(), optional: T::OPTIONAL }
}

/// A function that is a tool too: written once, as a function with a description of itself and of each argument.
///
/// ```
/// # extern crate solutions as _;
/// use chat::tools::{ArgumentType, Typed};
///
/// enum Unit {
///     Celsius,
///     Fahrenheit,
/// }
///
/// impl Typed for Unit {
///     fn kind() -> ArgumentType {
///         ArgumentType::Choice(vec!["celsius".into(), "fahrenheit".into()])
///     }
/// }
///
/// chat::tool! {
///     /// The current weather in a city.
///     fn weather(
///         /// The city and its country.
///         city: String,
///         /// In which unit.
///         unit: Option<Unit>,
///     ) -> String {
///         format!("sunny in {city}, {}", if matches!(unit, Some(Unit::Fahrenheit)) { "77 F" } else { "25 C" })
///     }
/// }
/// assert_eq!(weather::tool().function.parameters["required"], serde_json::json!(["city"]));
/// assert_eq!(weather::tool().function.parameters["properties"]["unit"]["enum"][0], "celsius");
/// assert_eq!(weather::call("Paris, France".into(), None), "sunny in Paris, France, 25 C");
/// assert_eq!(weather::call("Rome, Italy".into(), Some(Unit::Celsius)), "sunny in Rome, Italy, 25 C");
/// ```
#[macro_export]
macro_rules! tool {
    (
        $(#[doc = $text:literal])+
        $visible:vis fn $name:ident(
            $( $(#[doc = $about:literal])+ $argument:ident: $type:ty ),* $(,)?
        ) $(-> $answer:ty)? $body:block
    ) => {
        $(#[doc = $text])+
        #[allow(non_camel_case_types)]
        $visible enum $name {}

        #[allow(dead_code, clippy::needless_pass_by_value)]
        impl $name {
            /// The function as data.
            pub fn signature() -> $crate::tools::Signature {
                $crate::tools::Signature {
                    name: stringify!($name).into(),
                    description: concat!($($text, "\n"),+).trim().into(),
                    arguments: vec![$(
                        $crate::tools::argument::<$type>(
                            stringify!($argument),
                            concat!($($about, "\n"),+).trim(),
                        )
                    ),*],
                }
            }

            /// What a model is told.
            pub fn tool() -> $crate::tools::Tool {
                Self::signature().tool()
            }

            /// Does it.
            pub fn call($($argument: $type),*) $(-> $answer)? $body
        }
    };
}
