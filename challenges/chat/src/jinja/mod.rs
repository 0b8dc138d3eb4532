//! What a chat template means: Jinja as transformers sets it up, over Python's values.
//!
//! A template is a program from the network, written for a Python program. Its text is right if it is, byte for byte,
//! what transformers writes; and it must not hang, grow or read what is none of its business. An engine over other
//! values than Python's writes other texts, so the language is written out here.
//!
//! ```text
//! source -> syntax (Jinja's grammar) -> engine: names found, control flow, scopes, macros, limits
//!                                                    | every operator, filter, test and method
//!                                                 python: values, texts, numbers, JSON, the sandbox
//! ```
//!
//! A render is pure: a function of the template, the variables and the [`Environment`]. Two of its texts are written by
//! the [`Host`] that the environment names, so that a reader's own step can stand there.
//!
//! Source: Jinja 3.1, and `transformers.utils.chat_template_utils`.

pub mod clock;
mod context;
pub mod conversation;
mod engine;
pub mod error;
pub mod limits;
mod python;
pub mod render;
mod spans;
mod strftime;
mod syntax;

pub use clock::{Clock, Moment};
pub use conversation::Conversation;
pub use error::{Error, Kind};
pub use limits::Limits;
pub use python::json::Layout;
pub use render::{Environment, Rendered, Template, Variables};

/// What a render asks of whoever starts it.
pub trait Host {
    /// Adds `text` to `out` as a JSON string, as Python's `json.dumps` writes it.
    fn json_string(&self, text: &str, ensure_ascii: bool, out: &mut String);

    /// A finite number as Python's `repr` writes a float.
    fn float(&self, value: f64) -> String;
}

/// JSON text as Python's `json.dumps` writes it, with the host's strings and numbers.
///
/// Python keeps a float apart from a whole number and puts a space after `,` and `:` unless told otherwise. Refuses
/// values that are nested deeper than [`Limits`] allow by default.
pub fn json_text(value: &serde_json::Value, layout: &Layout, host: &dyn Host) -> Result<String, Error> {
    let limits = Limits::default();
    let variables = Variables::new([("value", value)], &limits)?;
    let cx = context::Context::new(&limits, host, Clock::default());
    variables.first().map_or_else(|| Ok(String::new()), |value| python::json::dumps(&cx, value, layout))
}
