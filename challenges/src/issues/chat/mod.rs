//! (D) `chat`: conversations as text, byte for byte as transformers renders them, and text as calls ([`parse`]).
//!
//! A model reads text. What turns messages into it is a template that came with the model's weights, written for a
//! Python program: in Jinja, a language whose expressions are Python's. A renderer that is off by one space, or writes
//! `true` where Python writes `True`, feeds the model something that it was not trained on, and nothing fails loudly.
//! And a template is a program from the network: it must not hang, grow or read what is none of its business.
//!
//! **What is given.** The template's source, compiled once as a [`Template`], and a [`Conversation`].
//! **What comes out.** [`Rendered`]: the text, and where the assistant's own text is in it, for a mask of the tokens to
//! train on. Or an [`Error`] of the [`Kind`] that Python would raise.
//!
//! ```text
//! source -> syntax (Jinja's grammar) -> the engine's language -> minijinja: control flow, scopes, macros, fuel
//!                                                                    | every operator, filter, test and method
//!                                                                 python: values, texts, numbers, JSON, the sandbox
//! ```
//!
//! The engine is minijinja. It has Jinja's statements; its expressions are its own, so what Python would do differently
//! is written as a filter or a test of `python` before the engine sees it.

pub mod clock;
pub mod conversation;
pub mod defuse;
pub mod error;
pub mod limits;
pub mod parse;
pub mod render;
pub mod spans;
pub mod tools;

mod python;
mod syntax;

pub use clock::{Clock, Moment};
pub use conversation::Conversation;
pub use error::{Error, Kind};
pub use limits::Limits;
pub use python::json::Layout;
pub use reference::issues::chat::{Function, Message, Tool};
pub use render::{Options, Rendered, Template, Variables};
pub use spans::token_mask;

/// JSON text as Python's `json.dumps` writes it.
///
/// Python keeps a float apart from a whole number and writes it as `repr` does (`1e+22`, `0.1`), puts a space after
/// `,` and `:` unless told otherwise, and escapes `"`, `\`, control characters and, with `ensure_ascii`, everything
/// outside ASCII as UTF-16 units. Refuses values that are nested deeper than [`Limits`] allow by default.
pub fn json_text(value: &serde_json::Value, layout: &Layout) -> Result<String, Error> {
    let limits = Limits::default();
    let variables = Variables::new([("value", value)], &limits)?;
    variables.first().map_or_else(|| Ok(String::new()), |value| python::json::dumps(value, layout))
}

/// `text` without white space around it, as Python's `strip` takes it away.
fn trimmed(text: &str) -> &str {
    text.trim_matches(python::text::is_space)
}

/// `text` without white space at its end.
fn trimmed_end(text: &str) -> &str {
    text.trim_end_matches(python::text::is_space)
}
