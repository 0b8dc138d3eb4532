//! What is looked for in a rendered text.

use std::fmt;

use serde_json::json;

use super::rule::Rule;
use crate::criterion::Criterion;
use crate::jinja::{Conversation, Rendered};
use crate::render::ChatTemplate;

/// The name of the tool that probes declare.
pub(super) const DECLARED: &str = "count_barges";

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
