//! A conversation whose last message is to be continued.

use serde_json::Value as Json;

use super::error::{Error, Kind};
use super::python::text::is_space;

/// Cuts `rendered` after the text of the last message, so that a model goes on with it.
///
/// The message is found by its text without the space around it, the last time that it occurs. Space at its end is kept
/// where the template wrote it. A message that is not in the text, because the template drops or changes it, is an
/// error.
pub fn cut_after(rendered: &mut String, last: &Json) -> Result<(), Error> {
    let content = content_of(last)?;
    let bare = content.trim_matches(is_space);
    let Some(at) = rendered.rfind(bare) else {
        let message = "continue_final_message is set but the final message does not appear in the chat after applying \
                       the chat template";
        return Err(Error::new(Kind::Value, format!("{message}: {content}")));
    };
    let with_end = content.trim_start_matches(is_space);
    let kept = if rendered[at..].starts_with(with_end) && with_end == content { with_end } else { bare };
    rendered.truncate(at + kept.len());
    Ok(())
}

/// The text of a message: its content, or the last part of it that has one.
fn content_of(message: &Json) -> Result<&str, Error> {
    let missing = || Error::new(Kind::Value, "continue_final_message is set but there is no text to continue");
    match message.get("content") {
        Some(Json::String(text)) => Ok(text),
        Some(Json::Array(parts)) => parts.iter().rev().find_map(|part| part.get("text")?.as_str()).ok_or_else(missing),
        _ => Err(missing()),
    }
}
