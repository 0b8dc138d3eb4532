//! What is looked for in a rendered text.

use std::fmt;

use serde_json::json;

use reference::jinja::Conversation;
use reference::jinja::Rendered;

use super::super::render::ChatTemplate;
use super::probe::DECLARED;
use super::rule::Rule;

/// A word that a probe's text must hold, or must not, and what is wrong otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// What is wrong if it does not hold.
    pub rule: Rule,
    /// What the word is: `a call's name`.
    pub what: &'static str,
    /// The word.
    pub word: &'static str,
    /// How it is looked for.
    pub criterion: Criterion,
}

// ANCHOR: chat-criterion
/// How a word is looked for. A mark is a span of the assistant's that holds a character. A word is inside a
/// mark if all of it is in that one, and outside of marks if none of it is in any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Criterion {
    /// It is in the text.
    Written,
    /// It is not in the text.
    Unwritten,
    /// There is a mark, whatever the word.
    Any,
    /// It is nowhere outside of marks, or there are no marks.
    Marked,
    /// It is nowhere inside a mark.
    Unmarked,
    /// The last of the marks that hold it goes on after its last place in it, by more than white space; or
    /// nothing but white space follows that mark; or no mark holds it.
    Closed,
    /// The text begins with the text of all messages but the last and the beginning of a turn.
    SameStart,
    /// The text is the same if there is no clock.
    SameDay,
}
// ANCHOR_END: chat-criterion

impl Criterion {
    /// What is so if it does not hold, to be read between a word and a text.
    fn failed(self) -> &'static str {
        match self {
            Criterion::Written | Criterion::Any => "is nowhere in",
            Criterion::Unwritten => "is written in",
            Criterion::Marked | Criterion::Closed => "is outside the marks in",
            Criterion::Unmarked => "is inside the marks in",
            Criterion::SameStart => "comes after another beginning than the prompt in",
            Criterion::SameDay => "is asked for in",
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = if self.word.is_empty() { String::new() } else { format!(" {:?}", self.word) };
        write!(f, "{}{quoted} {}", self.what, self.criterion.failed())
    }
}

impl Expectation {
    /// The word beside which a text is to be looked at.
    pub(super) fn near(&self) -> &'static str {
        if self.rule == Rule::CutsTools { DECLARED } else { self.word }
    }

    /// Whether the text of a conversation is as it should be.
    pub fn holds(&self, template: &ChatTemplate, conversation: &Conversation, rendered: &Rendered) -> bool {
        match self.criterion {
            Criterion::SameStart => begins(template, conversation, rendered),
            Criterion::SameDay => is_timeless(template, conversation, rendered),
            criterion => template.options().steps.chat().shows(rendered, self.word, criterion),
        }
    }
}

fn begins(template: &ChatTemplate, conversation: &Conversation, rendered: &Rendered) -> bool {
    let mut start = Conversation { add_generation_prompt: true, ..conversation.clone() };
    start.messages.pop();
    template.chat(&start).is_ok_and(|start| rendered.text.starts_with(&start.text))
}

/// The clock is taken away by a variable of its name that cannot be called.
fn is_timeless(template: &ChatTemplate, conversation: &Conversation, rendered: &Rendered) -> bool {
    let mut without = conversation.clone();
    without.variables.push(("strftime_now".into(), json!("no clock")));
    template.chat(&without).is_ok_and(|without| without.text == rendered.text)
}
