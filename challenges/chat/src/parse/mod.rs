//! Messages out of a model's text, by a response template.
//!
//! A [`ResponseTemplate`] says as data where the regions of a message begin and end, how each one's text is read, and what
//! shape it takes in the message; no format has code of its own. A [`Parser`] takes a text in pieces of any size and
//! tells what is certain of it: regions that open, text that is added to them, regions that close with their content.
//! Where a text is cut changes nothing but the moment at which something is certain.
//!
//! ```text
//! bytes -> characters -> markers (search) -> regions -> content -> transform -> message
//! ```
//!
//! **Cost.** Time is linear in the text, as long as a match is decided near where it ends: a pattern such as `a*b|a`
//! may read far for each short match. Memory is the text, the message, and at most some 10 MiB a pattern for what its
//! searches have learned. **Trust.** The template is the caller's; the text is anybody's: no text makes a parser panic,
//! loop or recurse deeper than [`json::DEEPEST`].
//!
//! **Differences.** Bytes that are not UTF-8 are an error, as are `NaN`, infinities and JSON deeper than the bound. An
//! empty closing of the implicit region that has no text ends the parse; an empty region that opens again where it
//! closed is an error, where the original does not return. `$` holds at the end of the text only, not at the end of a
//! piece. Some patterns are refused; `syntax.rs` names them.
//!
//! The content kind `python-calls` is an addition.
//!
//! Source: the response parser of transformers 5, whose template language this is.

pub mod content;
pub mod dialect;
pub mod entry;
pub mod error;
pub mod json;
mod lazy_dfa;
pub mod literal;
pub mod pattern;
pub mod regions;
pub mod scalar;
pub mod search;
mod syntax;
pub mod template;
pub mod transform;
mod types;

pub use error::{Error, Problem, TemplateError};
pub use regions::{Event, Message, Parser, parse};
pub use template::ResponseTemplate;
pub use types::Tools;
