//! How calls are written in a text where the template has no way of its own.

use serde_json::{Value as Json, json};

/// A way to write tools, calls and answers as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Its name.
    pub name: &'static str,
    /// The markers that a model of this style has.
    pub markers: &'static [&'static str],
    /// What stands before the tools and after them.
    pub tools: [&'static str; 2],
    /// How calls are written and where answers come, said after the tools where it is so.
    pub instructions: [&'static str; 2],
    /// What stands before a call and after it.
    pub call: [&'static str; 2],
    /// The key of the arguments.
    pub arguments: &'static str,
    /// What stands before an answer and after it.
    pub answer: [&'static str; 2],
}

/// JSON in `<tool_call>` tags: the style of Hermes, which most models can be taught.
pub const HERMES: Style = Style {
    name: "hermes",
    markers: &["<tool_call>", "</tool_call>"],
    tools: ["These functions can be called; each line declares one as JSON:\n<tools>", "\n</tools>"],
    instructions: [
        "\nA call is a JSON object between tags, one object a call:\n<tool_call>\n\
         {\"name\": NAME, \"arguments\": OBJECT}\n</tool_call>",
        "\nAnswers come between <tool_response> tags.",
    ],
    call: ["<tool_call>\n", "\n</tool_call>"],
    arguments: "arguments",
    answer: ["<tool_response>\n", "\n</tool_response>"],
};

/// JSON after `<|python_tag|>`: the style of Llama 3.
pub const LLAMA: Style = Style {
    name: "llama",
    markers: &["<|python_tag|>", "<|eom_id|>"],
    tools: ["These functions can be called; each line declares one as JSON:\n", ""],
    instructions: [
        "\nA call is one line, a JSON object after its mark:\n<|python_tag|>{\"name\": NAME, \"parameters\": OBJECT}",
        "\nAnswers come between <tool_response> tags.",
    ],
    call: ["<|python_tag|>", ""],
    arguments: "parameters",
    answer: ["<tool_response>\n", "\n</tool_response>"],
};

impl Style {
    /// Every style; the first is used where no markers speak for another.
    pub const ALL: [Style; 2] = [HERMES, LLAMA];

    /// The style whose markers a tokenizer has, all of them.
    pub fn fitting(has: impl Fn(&str) -> bool) -> Style {
        Style::ALL.into_iter().find(|style| style.markers.iter().all(|marker| has(marker))).unwrap_or(HERMES)
    }

    /// A response template for [`super::super::parse`], by which calls are read out of a turn that begins with `start`
    /// and ends with `end`.
    pub fn response(&self, start: &str, end: &str) -> Json {
        let end = escaped(end);
        let close = match self.call[1] {
            "" => format!("(?:\\n|{end}\\s*)"),
            close => format!("{}\\s*", escaped(close)),
        };
        json!({
            "defaults": {"role": "assistant"},
            "start_anchor": start,
            "fields": {
                "tool_calls": {
                    "open_pattern": format!("{}\\{{\"name\":\\s*\"(?P<name>[^\"]+)\",\\s*\"{}\":\\s*", escaped(self.call[0]), self.arguments),
                    "close_pattern": format!("\\}}{close}"),
                    "repeats": true,
                    "content": "json",
                    "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
                },
                "content": {"close_pattern": format!("{end}\\s*"), "content": "text"},
            },
        })
    }
}

/// A text as a pattern that matches it alone.
fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '\n' => "\\n".to_string(),
        c if c.is_alphanumeric() || c == '_' || c == ' ' || !c.is_ascii() => c.to_string(),
        c => format!("\\{c}"),
    };
    text.chars().map(escape).collect()
}
