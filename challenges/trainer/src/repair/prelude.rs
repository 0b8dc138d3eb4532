//! Statements before a template that say in texts what the template cannot say.
//!
//! They rewrite the messages and leave the template as it is: a call becomes text of the assistant, an answer becomes
//! text of a user, tools become text of the system, or of the first user where there can be no system. What the
//! template does with texts it then does with these, whatever its own turns look like. Messages that need no rewriting
//! are handed on.

use std::fmt::Write;

use super::style::Style;

/// What is said as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is a part that may be there
pub(super) struct Parts {
    pub(super) system: bool,
    pub(super) tools: bool,
    pub(super) calls: bool,
    /// Arguments as JSON text, in calls that the template itself writes.
    pub(super) arguments: bool,
    pub(super) answers: bool,
}

impl Parts {
    pub(super) const NONE: Parts =
        Parts { system: false, tools: false, calls: false, arguments: false, answers: false };

    /// What either has; calls that are text need no arguments.
    pub(super) fn and(self, other: Parts) -> Parts {
        let calls = self.calls || other.calls;
        Parts {
            system: self.system || other.system,
            tools: self.tools || other.tools,
            calls,
            arguments: !calls && (self.arguments || other.arguments),
            answers: self.answers || other.answers,
        }
    }
}

/// What the template takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is asked for alone
pub(super) struct Takes {
    /// Content as a list of parts, not as a text.
    pub(super) parts: bool,
    /// A system message.
    pub(super) system: bool,
    /// Calls, and writes them as the style does.
    pub(super) calls: bool,
    /// Answers, and writes them as the style does.
    pub(super) answers: bool,
}

/// `source` after the statements for `parts`.
pub(super) fn before(source: &str, parts: Parts, takes: Takes, style: &Style) -> String {
    let space = free(source, "rewritten");
    let plain = free(source, "plain_text");
    let write = Writer { space: &space, plain: &plain, takes, style };
    let mut out = String::new();
    write.helpers(&mut out);
    if parts.system || parts.tools {
        write.instructions(&mut out, parts);
    }
    if parts.calls || parts.arguments || parts.answers {
        write.messages(&mut out, parts);
    }
    out.push_str(source);
    out
}

/// A name that the source does not hold.
pub(super) fn free(source: &str, name: &str) -> String {
    if !source.contains(name) {
        return name.to_string();
    }
    // longer than every number that stands after the name, so that it is the beginning of none
    let digits = |(at, name): (usize, &str)| {
        let rest = source[at + name.len()..].strip_prefix('_').unwrap_or_default();
        rest.bytes().take_while(u8::is_ascii_digit).count()
    };
    let longest = source.match_indices(name).map(digits).max().unwrap_or(0);
    format!("{name}_2{}", "0".repeat(longest))
}

/// A text as a literal of Jinja.
pub(super) fn quoted(text: &str) -> String {
    let escape = |c: char| match c {
        '\n' => "\\n".to_string(),
        '\r' => "\\r".to_string(),
        '\\' => "\\\\".to_string(),
        '\'' => "\\'".to_string(),
        c => c.to_string(),
    };
    format!("'{}'", text.chars().map(escape).collect::<String>())
}

struct Writer<'a> {
    space: &'a str,
    plain: &'a str,
    takes: Takes,
    style: &'a Style,
}

impl Writer<'_> {
    /// `text`, an expression, as the content of a message.
    fn content(&self, text: &str) -> String {
        if self.takes.parts { format!("[{{'type': 'text', 'text': {text}}}]") } else { text.to_string() }
    }

    /// A macro for the text of any content, and what is kept from message to message.
    fn helpers(&self, out: &mut String) {
        let (space, plain) = (self.space, self.plain);
        let _ = write!(
            out,
            "{{#- What the template below has no words for is said in texts. #}}\n\
             {{%- macro {plain}(content) %}}\n    \
                 {{%- if content is string %}}{{{{- content }}}}\n    \
                 {{%- elif content is mapping or content is number %}}{{{{- content | tojson }}}}\n    \
                 {{%- elif content %}}\n        \
                     {{%- for part in content %}}\n            \
                         {{%- if part.text is string %}}{{{{- part.text }}}}{{%- else %}}{{{{- part | tojson }}}}{{%- endif %}}\n        \
                     {{%- endfor %}}\n    \
                 {{%- endif %}}\n\
             {{%- endmacro %}}\n\
             {{%- set {space} = namespace(messages=[], message={{}}, calls=[], text='') %}}\n"
        ); // a String takes all text
    }

    /// The system's text and the tools, put in front of the first message that may hold them.
    fn instructions(&self, out: &mut String, parts: Parts) {
        let (space, plain) = (self.space, self.plain);
        if parts.system {
            let _ = write!(
                out,
                "{{%- if messages[0].role == 'system' %}}\n    \
                     {{%- set {space}.text = {plain}(messages[0].content) %}}\n    \
                     {{%- set messages = messages[1:] %}}\n\
                 {{%- endif %}}\n"
            );
        }
        if parts.tools {
            let before = quoted(self.style.tools[0]);
            let after = quoted(&self.behind_tools(parts));
            let _ = write!(
                out,
                "{{%- if tools %}}\n    \
                     {{%- set {space}.text = {space}.text ~ ('\\n\\n' if {space}.text else '') ~ {before} %}}\n    \
                     {{%- for tool in tools %}}{{%- set {space}.text = {space}.text ~ '\\n' ~ (tool | tojson) %}}{{%- endfor %}}\n    \
                     {{%- set {space}.text = {space}.text ~ {after} %}}\n    \
                     {{%- set tools = none %}}\n\
                 {{%- endif %}}\n"
            );
        }
        let role = if self.takes.system && !parts.system { "system" } else { "user" };
        let own = self.content(&format!("{space}.text"));
        let first = format!("({space}.text ~ '\\n\\n' ~ first.content)");
        let part = format!("[{{'type': 'text', 'text': {space}.text ~ '\\n\\n'}}] + first.content");
        let _ = write!(
            out,
            "{{%- if {space}.text %}}\n    \
                 {{%- if messages and messages[0].role == '{role}' %}}\n        \
                     {{%- set first = messages[0] %}}\n        \
                     {{%- set messages = [dict(first, content={first} if first.content is string else {part})] + messages[1:] %}}\n    \
                 {{%- else %}}\n        \
                     {{%- set messages = [{{'role': '{role}', 'content': {own}}}] + messages %}}\n    \
                 {{%- endif %}}\n\
             {{%- endif %}}\n"
        );
    }

    /// What the model is told after the tools: of calls and answers only what will be so. A template that writes calls
    /// in a way of its own leaves the style's untold.
    fn behind_tools(&self, parts: Parts) -> String {
        let [calls, answers] = self.style.instructions;
        let calls = if parts.calls || self.takes.calls { calls } else { "" };
        let answers = if parts.answers || self.takes.answers { answers } else { "" };
        [self.style.tools[1], calls, answers].concat()
    }

    /// Calls and answers, each message in turn.
    fn messages(&self, out: &mut String, parts: Parts) {
        let space = self.space;
        if parts.system || parts.tools {
            let _ = writeln!(out, "{{%- set {space}.text = '' %}}");
        }
        out.push_str("{%- for message in messages %}\n");
        if parts.answers {
            self.answers(out);
        }
        let word = if parts.answers { "elif" } else { "if" };
        if parts.calls {
            self.calls(out, word);
        } else if parts.arguments {
            self.arguments(out, word);
        }
        let _ = write!(
            out,
            "    {{%- else %}}\n        \
                     {{%- set {space}.messages = {space}.messages + [message] %}}\n    \
                 {{%- endif %}}\n\
             {{%- endfor %}}\n\
             {{%- set messages = {space}.messages %}}\n"
        );
    }

    fn answers(&self, out: &mut String) {
        let (space, plain) = (self.space, self.plain);
        let [before, after] = self.style.answer.map(quoted);
        let content = self.content(&format!("{space}.text"));
        let _ = write!(
            out,
            "    {{%- if message.role == 'tool' %}}\n        \
                 {{%- set {space}.text = {space}.text ~ ('\\n' if {space}.text else '') ~ {before} ~ {plain}(message.content) ~ {after} %}}\n        \
                 {{%- if loop.last or loop.nextitem.role != 'tool' %}}\n            \
                     {{%- set {space}.messages = {space}.messages + [{{'role': 'user', 'content': {content}}}] %}}\n            \
                     {{%- set {space}.text = '' %}}\n        \
                 {{%- endif %}}\n"
        );
    }

    fn calls(&self, out: &mut String, word: &str) {
        let (space, plain) = (self.space, self.plain);
        let [before, after] = self.style.call.map(quoted);
        let key = quoted(&format!(", \"{}\": ", self.style.arguments));
        let content = self.content(&format!("{space}.text"));
        let _ = write!(
            out,
            "    {{%- {word} message.role == 'assistant' and message.tool_calls %}}\n        \
                 {{%- set {space}.text = {plain}(message.content) %}}\n        \
                 {{%- for call in message.tool_calls %}}\n            \
                     {{%- set call = call.function if call.function is defined else call %}}\n            \
                     {{%- set arguments = call.arguments if call.arguments is string else call.arguments | default({{}}) | tojson %}}\n            \
                     {{%- set {space}.text = {space}.text ~ ('\\n' if {space}.text else '') ~ {before} ~ '{{\"name\": ' ~ (call.name | tojson) ~ {key} ~ (arguments or '{{}}') ~ '}}' ~ {after} %}}\n        \
                 {{%- endfor %}}\n        \
                 {{%- set {space}.message = {{}} %}}\n        \
                 {{%- for key in message if key not in ['content', 'tool_calls'] %}}\n            \
                     {{%- set {space}.message = dict({space}.message, **{{key: message[key]}}) %}}\n        \
                 {{%- endfor %}}\n        \
                 {{%- set {space}.messages = {space}.messages + [dict({space}.message, content={content})] %}}\n        \
                 {{%- set {space}.text = '' %}}\n"
        );
    }

    /// Calls as the template writes them, with arguments that are JSON text.
    fn arguments(&self, out: &mut String, word: &str) {
        let space = self.space;
        let _ = write!(
            out,
            "    {{%- {word} message.role == 'assistant' and message.tool_calls %}}\n        \
                 {{%- set {space}.calls = [] %}}\n        \
                 {{%- for call in message.tool_calls %}}\n            \
                     {{%- set inner = call.function if call.function is defined else call %}}\n            \
                     {{%- set inner = inner if inner.arguments is string else dict(inner, arguments=inner.arguments | default({{}}) | tojson) %}}\n            \
                     {{%- set {space}.calls = {space}.calls + [dict(call, function=inner) if call.function is defined else inner] %}}\n        \
                 {{%- endfor %}}\n        \
                 {{%- set {space}.messages = {space}.messages + [dict(message, tool_calls={space}.calls)] %}}\n"
        );
    }
}
