//! Roles of messages that a chat template drops or does not name.
//!
//! ```text
//! writes the content, names the role     nothing to report
//! writes the content of any role         a notice, if the role is not one of the usual four
//! writes nothing, names the role         a notice with the number of messages
//! writes nothing, does not name it       an error: the turn would be lost
//! ```
//!
//! A template writes the messages of a role if its text changes with their content. That is rendered once for each role
//! that it writes, and once for each conversation with a role that it does not.

use std::cell::RefCell;
use std::collections::BTreeMap;

use challenges::issues::chat::Conversation;
use serde_json::Value as Json;

/// The roles that every chat model knows.
const USUAL: [&str; 4] = ["system", "user", "assistant", "tool"];

/// Names of roles in other data sets, and the usual name of each.
const OTHER_NAMES: [(&str, &str); 10] = [
    ("human", "user"),
    ("prompter", "user"),
    ("gpt", "assistant"),
    ("chatgpt", "assistant"),
    ("bot", "assistant"),
    ("model", "assistant"),
    ("ai", "assistant"),
    ("function", "tool"),
    ("observation", "tool"),
    ("ipython", "tool"),
];

/// Returns true if a message has a role that not every chat model knows.
pub(crate) fn is_unusual(message: &Json) -> bool {
    message["role"].as_str().is_some_and(|role| !USUAL.contains(&role))
}

/// The roles that a template was given so far.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    templates: String, // their texts
    seen: RefCell<BTreeMap<String, Seen>>,
}

/// The counts of a role.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    messages: usize,
    lost: usize,
    is_written: bool,
}

impl Roles {
    /// Roles of no message yet, given the texts of the templates.
    pub fn new<'t>(templates: impl Iterator<Item = &'t str>) -> Self {
        Self { templates: templates.collect::<Vec<_>>().join("\n"), seen: RefCell::default() }
    }

    /// Counts the roles of a conversation that was rendered as `text`.
    ///
    /// Fails where the template neither names a role nor writes its messages.
    pub fn check<E>(
        &self,
        conversation: &Conversation,
        text: &str,
        render: impl Fn(&Conversation) -> Result<String, E>,
    ) -> Result<(), String> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let roles = conversation.messages.iter().filter_map(|message| message["role"].as_str());
        roles.for_each(|role| *counts.entry(role).or_default() += 1);
        for (role, count) in counts {
            let mut all = self.seen.borrow_mut();
            let seen = all.entry(role.to_owned()).or_default();
            seen.messages += count;
            if seen.is_written {
                continue;
            }
            let Some(changed) = changed(conversation, role) else { continue };
            seen.is_written = !render(&changed).is_ok_and(|other| other == text);
            if seen.is_written {
                continue;
            }
            seen.lost += count;
            if !self.names(role) {
                return Err(format!(
                    "the chat template writes nothing for the role {role:?}{}",
                    renamed(role)
                ));
            }
        }
        Ok(())
    }

    /// Returns true if a template has the role's name as a text.
    fn names(&self, role: &str) -> bool {
        ['\'', '"'].iter().any(|quote| self.templates.contains(&format!("{quote}{role}{quote}")))
    }

    /// The names of the roles that were seen, with commas between them; `None` if there was none.
    pub fn listed(&self) -> Option<String> {
        let seen = self.seen.borrow();
        let names: Vec<String> = seen.keys().map(|role| format!("{role:?}")).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Takes what there is to report.
    pub fn take_notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        for (role, seen) in self.seen.take() {
            if seen.lost > 0 {
                let lost = messages(seen.lost);
                notices.push(format!("the chat template writes nothing for {lost} of the role {role:?}"));
            } else if !USUAL.contains(&role.as_str()) && !self.names(&role) {
                let (count, other) = (messages(seen.messages), renamed(&role));
                notices.push(format!("the chat template does not name the role {role:?} of {count}{other}"));
            }
        }
        notices
    }
}

/// The conversation with another content in the messages of a role; `None` if none of them has a text.
fn changed(conversation: &Conversation, role: &str) -> Option<Conversation> {
    let mut changed = conversation.clone();
    let mut is_changed = false;
    for message in changed.messages.iter_mut().filter(|message| message["role"] == role) {
        let has_calls = message.get("tool_calls").is_some_and(|calls| !calls.is_null());
        let Some(content) = message.get_mut("content").filter(|_| !has_calls) else { continue };
        let parts: Vec<&mut Json> = match content {
            Json::Array(parts) => parts.iter_mut().filter_map(text_of).collect(),
            content => vec![content],
        };
        for part in parts {
            if let Json::String(text) = part {
                text.push('x');
                is_changed = true;
            }
        }
    }
    is_changed.then_some(changed)
}

/// The text of a part of a content.
fn text_of(part: &mut Json) -> Option<&mut Json> {
    if part.is_object() { part.get_mut("text") } else { Some(part) }
}

fn messages(count: usize) -> String {
    format!("{count} message{}", if count == 1 { "" } else { "s" })
}

/// The advice to rename a role.
fn renamed(role: &str) -> String {
    let usual =
        OTHER_NAMES.iter().find(|(other, _)| other.eq_ignore_ascii_case(role)).map(|(_, usual)| *usual);
    let usual =
        usual.or_else(|| USUAL.into_iter().find(|usual| usual.eq_ignore_ascii_case(role) && *usual != role));
    match usual {
        Some(usual) => format!("; the usual name is {usual:?}"),
        None if USUAL.contains(&role) => String::new(),
        None => "; the usual roles are system, user, assistant and tool".to_owned(),
    }
}
