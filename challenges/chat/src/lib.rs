//! Conversations as text, byte for byte as transformers renders them, and text as calls ([`parse`]).
//!
//! The language of templates is written out in [`jinja`]. An attempt writes two of its texts by its steps, the methods
//! of [`Chat`]. This package owns that trait, and `challenges` re-exports it as the contract of tool calling.
//!
//! | module | holds |
//! |---|---|
//! | [`jinja`] | the language of templates |
//! | [`contract`] | the trait that the learner writes |
//! | [`criterion`], [`signature`], [`word`] | the words that the contract uses |
//! | [`steps`] | the attempt that a renderer or a parser asks |
//! | [`render`] | a compiled template with an attempt's steps |
//! | [`parse`] | response templates: text back to messages and calls |
//! | [`tools`] | tools derived from Rust functions |
//! | [`defuse`] | special tokens in what users wrote |
//! | [`lint`] | what a template loses, found by probes |
//! | [`own`], [`toy`] | the project's own templates and conversations; a toy tokenizer |
//! | [`given`] | the counter of calls to given code that computes a step's answer |

pub mod contract;
pub mod criterion;
pub mod defuse;
pub mod given;
pub mod jinja;
pub mod lint;
pub mod own;
pub mod parse;
pub mod render;
pub mod signature;
pub mod steps;
pub mod tools;
pub mod toy;
pub mod word;

use serde_json::Value;

pub use contract::{Chat, Counted, Find, MarkerState, Match, Next, Solution, solution_calls, solution_text};
pub use jinja::{Clock, Conversation, Error, Kind, Layout, Limits, Moment, Rendered, Variables};
pub use reference::issues::chat::{Function, Message, Tool};
pub use render::{ChatTemplate, Options};
pub use steps::Steps;
pub use word::is_word;

/// JSON text as Python's `json.dumps` writes it, with an attempt's [`Chat::json_string`] and [`Chat::float`]; see
/// [`jinja::json_text`].
pub fn json_text(value: &Value, layout: &Layout, steps: &Steps) -> Result<String, Error> {
    jinja::json_text(value, layout, steps)
}
