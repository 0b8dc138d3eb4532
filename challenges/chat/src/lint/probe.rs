//! Conversations that show what a template does with each part of them.
//!
//! Every part holds a word that no template writes by itself. Templates differ in how they want a message written: its
//! content as text or as a list of parts, arguments as an object or as JSON text, no content or an empty one. So a
//! probe has several forms that say the same, and a template is judged by the one that it takes best.

use serde_json::{Value as Json, json};

use super::expectation::{DECLARED, Expectation};
use super::rule::Rule;
use crate::criterion::Criterion;
use crate::jinja::Conversation;

/// A conversation that is tried, and what must be seen in its text.
#[derive(Clone, Debug)]
pub struct Probe {
    /// What it tries: `a call`.
    pub name: &'static str,
    /// The conversation, in the forms that templates take.
    pub forms: Vec<Conversation>,
    /// Forms for a template that refuses all of these.
    pub spare: Vec<Conversation>,
    /// What is wrong if every form is refused.
    pub refused: Option<Rule>,
    /// What must be seen.
    pub expectations: Vec<Expectation>,
    /// It tells nothing more if one of these was found.
    pub unless: Vec<Rule>,
}

/// Words: a part of a conversation each.
const SYSTEM: &str = "basalt";
const USER: &str = "kestrel";
const AGAIN: &str = "plover";
const SAID: &str = "larch";
const BESIDE: &str = "juniper";
const SPACED: &str = "if kestrel:\n\n\tgo  on";
const PURPOSE: &str = "walnut";
const PARAMETER: &str = "canal";
const CALLED: &str = "locate_ferry";
const KEY: &str = "harbour";
const VALUES: [&str; 2] = ["saffron", "turmeric"];
const ANSWERS: [&str; 2] = ["obsidian", "graphite"];
/// What the tools answer: the quotes are escaped if the text is written as JSON.
const RESULTS: [&str; 2] = ["obsidian \"7\"", "graphite \"8\""];
const QUOTED: &str = "obsidian \\\"7\\\"";
/// Nine letters and digits: what the strictest templates ask of an identifier.
const IDS: [&str; 2] = ["call00001", "call00002"];

/// Special tokens under the names that templates ask for.
const TOKENS: [(&str, &str); 4] =
    [("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "</s>")];

/// How messages are written.
#[derive(Clone, Copy, Debug)]
struct Form {
    parts: bool,
    text_arguments: bool,
    no_content: bool,
}

const TEXT: Form = Form { parts: false, text_arguments: false, no_content: false };
const PARTS: Form = Form { parts: true, ..TEXT };

impl Form {
    fn all() -> Vec<Form> {
        let bits = |at: u8| Form { parts: at & 4 > 0, text_arguments: at & 2 > 0, no_content: at & 1 > 0 };
        (0..8).map(bits).collect()
    }

    fn content(self, text: &str) -> Json {
        if self.parts { json!([{"type": "text", "text": text}]) } else { json!(text) }
    }

    fn says(self, role: &str, text: &str) -> Json {
        json!({"role": role, "content": self.content(text)})
    }

    fn calls(self, count: usize, beside: &str) -> Json {
        let calls = IDS.iter().zip(VALUES).take(count).map(|(id, value)| self.call(id, value));
        let mut message = json!({"role": "assistant", "tool_calls": calls.collect::<Vec<_>>()});
        if !beside.is_empty() {
            message["content"] = self.content(beside);
        } else if !self.no_content {
            message["content"] = json!("");
        }
        message
    }

    fn call(self, id: &str, value: &str) -> Json {
        let object = json!({KEY: value});
        let arguments =
            if self.text_arguments { json!(format!("{{\"{KEY}\": \"{value}\"}}")) } else { object };
        json!({"id": id, "type": "function", "function": {"name": CALLED, "arguments": arguments}})
    }

    fn answers(self, count: usize) -> impl Iterator<Item = Json> {
        IDS.into_iter().zip(RESULTS).take(count).map(move |(id, text)| {
            json!({"role": "tool", "tool_call_id": id, "name": CALLED, "content": self.content(text)})
        })
    }
}

/// The tool that is declared; another than the one that is called, so that neither is taken for the other.
fn tools() -> Json {
    let parameters = json!({
        "type": "object",
        "properties": {PARAMETER: {"type": "string", "description": "Which one."}},
        "required": [PARAMETER],
    });
    json!([{"type": "function", "function": {"name": DECLARED, "description": PURPOSE, "parameters": parameters}}])
}

fn spoken(messages: Vec<Json>) -> Conversation {
    let variables = TOKENS.map(|(name, token)| (name.to_string(), json!(token))).into();
    Conversation { messages, variables, ..Conversation::default() }
}

fn with_tools(messages: Vec<Json>) -> Conversation {
    Conversation { tools: Some(tools()), ..spoken(messages) }
}

/// Texts in both forms.
fn texts(said: &[(&str, &str)]) -> Vec<Conversation> {
    let form = |form: Form| spoken(said.iter().map(|(role, text)| form.says(role, text)).collect());
    [TEXT, PARTS].map(form).into()
}

/// What follows a user's text, in every form of calls.
fn calling(follows: impl Fn(Form) -> Vec<Json>) -> Vec<Conversation> {
    let after_user = |form: Form| [vec![form.says("user", USER)], follows(form)].concat();
    Form::all().into_iter().map(|form| with_tools(after_user(form))).collect()
}

/// What follows calls and their answers.
fn answered(count: usize, after: fn(Form) -> Vec<Json>) -> Vec<Conversation> {
    calling(|form| [vec![form.calls(count, "")], form.answers(count).collect(), after(form)].concat())
}

/// What follows answers of tools to an assistant that has called nothing: what can still be seen where calls are
/// refused.
fn unasked(count: usize, after: fn(Form) -> Vec<Json>) -> Vec<Conversation> {
    let messages = |form: Form| {
        let before = vec![form.says("user", USER), form.says("assistant", BESIDE)];
        [before, form.answers(count).collect(), after(form)].concat()
    };
    [TEXT, PARTS].map(|form| with_tools(messages(form))).into()
}

fn of(criterion: Criterion, rule: Rule, words: &[(&'static str, &'static str)]) -> Vec<Expectation> {
    words.iter().map(|(what, word)| Expectation { rule, what, word, criterion }).collect()
}

fn written(rule: Rule, words: &[(&'static str, &'static str)]) -> Vec<Expectation> {
    of(Criterion::Written, rule, words)
}

/// Every probe, in the order in which they are tried.
pub fn probes() -> Vec<Probe> {
    let mut probes = Vec::from(plain());
    probes.extend(of_tools());
    probes.extend(of_results());
    probes.extend(of_marks());
    for probe in probes.iter_mut().skip(1) {
        probe.unless.push(Rule::Unusable);
    }
    probes
}

fn plain() -> [Probe; 5] {
    let said = [("user", USER), ("assistant", SAID)];
    let [system, user, assistant] =
        [("a system message", SYSTEM), ("a user's text", USER), ("an answer", SAID)];
    let one = |name, forms, rule: Rule, expectations| Probe {
        name,
        forms,
        spare: vec![],
        refused: Some(rule),
        expectations,
        unless: vec![],
    };
    [
        one("two texts", texts(&said), Rule::Unusable, written(Rule::Unusable, &[user, assistant])),
        one(
            "a system message",
            texts(&[("system", SYSTEM), said[0], said[1]]),
            Rule::NoSystem,
            written(Rule::NoSystem, &[system]),
        ),
        one(
            "white space",
            texts(&[("user", SPACED), said[1]]),
            Rule::LosesSpace,
            written(Rule::LosesSpace, &[("a text of several lines", SPACED)]),
        ),
        Probe {
            refused: None,
            ..one(
                "a turn",
                texts(&said),
                Rule::PromptDiffers,
                of(Criterion::SameStart, Rule::PromptDiffers, &[assistant]),
            )
        },
        Probe {
            refused: None,
            ..one(
                "a day",
                texts(&said),
                Rule::TellsTime,
                of(Criterion::SameDay, Rule::TellsTime, &[("strftime_now", "")]),
            )
        },
    ]
}

fn of_tools() -> Vec<Probe> {
    let [value, second] = VALUES;
    let parts = [("a tool's purpose", PURPOSE), ("a tool's parameter", PARAMETER)];
    let arguments = [("an argument's name", KEY), ("an argument", value)];
    let call = [("a call's name", CALLED), arguments[0], arguments[1]];
    let one = |text| move |form: Form| vec![Form { text_arguments: text, ..form }.calls(1, "")];
    let prompted = |form: Form| Conversation {
        add_generation_prompt: true,
        ..with_tools(vec![form.says("user", USER)])
    };
    let mut object = written(Rule::NeedsText, &arguments);
    object.extend(of(
        Criterion::Unwritten,
        Rule::PythonArguments,
        &[("a dict of Python", "'harbour': 'saffron'")],
    ));
    let mut text = written(Rule::NeedsObject, &arguments);
    text.extend(of(Criterion::Unwritten, Rule::EncodesTwice, &[("an escaped argument", "\\\"harbour\\\"")]));
    let after_call = |name, forms, refused, expectations| Probe {
        name,
        forms,
        spare: vec![],
        refused,
        expectations,
        unless: vec![Rule::DropsCall],
    };
    vec![
        Probe {
            name: "a tool",
            forms: [TEXT, PARTS].map(prompted).into(),
            spare: vec![],
            refused: Some(Rule::DropsTools),
            expectations: written(Rule::DropsTools, &[("a tool's name", DECLARED)]),
            unless: vec![],
        },
        Probe {
            name: "a tool's parts",
            forms: [TEXT, PARTS].map(prompted).into(),
            spare: vec![],
            refused: None,
            expectations: written(Rule::CutsTools, &parts),
            unless: vec![Rule::DropsTools],
        },
        after_call(
            "a call",
            calling(|form| vec![form.calls(1, "")]),
            Some(Rule::DropsCall),
            written(Rule::DropsCall, &call),
        ),
        after_call("arguments as an object", calling(one(false)), Some(Rule::NeedsText), object),
        after_call("arguments as text", calling(one(true)), Some(Rule::NeedsObject), text),
        after_call(
            "two calls",
            calling(|form| vec![form.calls(2, "")]),
            None,
            written(Rule::DropsCall, &[("the second call's argument", second)]),
        ),
        after_call(
            "text beside a call",
            calling(|form| vec![form.calls(1, BESIDE)]),
            Some(Rule::DropsContent),
            written(Rule::DropsContent, &[("what is said beside it", BESIDE)]),
        ),
    ]
}

fn of_results() -> [Probe; 2] {
    let [first, second] = ANSWERS;
    let mut expectations = written(Rule::DropsResult, &[("a tool's answer", first)]);
    expectations.extend(of(Criterion::Unwritten, Rule::QuotesResult, &[("an escaped answer", QUOTED)]));
    let lost = vec![Rule::NoToolRole, Rule::DropsResult];
    [
        Probe {
            name: "a result",
            forms: answered(1, |_| vec![]),
            spare: unasked(1, |_| vec![]),
            refused: Some(Rule::NoToolRole),
            expectations,
            unless: vec![],
        },
        Probe {
            name: "two results",
            forms: answered(2, |_| vec![]),
            spare: unasked(2, |_| vec![]),
            refused: None,
            expectations: written(Rule::DropsResult, &[("the second tool's answer", second)]),
            unless: lost,
        },
    ]
}

fn of_marks() -> [Probe; 2] {
    let said = [("user", USER), ("assistant", BESIDE), ("user", AGAIN), ("assistant", SAID)];
    let any = of(Criterion::Any, Rule::NoGeneration, &[("a mark", "")]);
    let answers = [("an earlier answer", BESIDE), ("an answer", SAID)];
    let texts_written = written(Rule::LeavesText, &answers); // a form whose texts are not read tells nothing of marks
    let texts_marked = of(Criterion::Marked, Rule::LeavesText, &answers);
    let closed = of(Criterion::Closed, Rule::LeavesEnd, &[("the end of a turn after", SAID)]);
    let users =
        of(Criterion::Unmarked, Rule::TrainsInput, &[("a user's text", USER), ("a user's text", AGAIN)]);
    let last_written = written(Rule::LeavesText, &answers[1..]);
    let call =
        of(Criterion::Marked, Rule::LeavesText, &[("a call's argument", VALUES[0]), ("an answer", SAID)]);
    let tool = [("a tool's answer", ANSWERS[0]), ("a tool's purpose", PURPOSE), ("a user's text", USER)];
    let tool = of(Criterion::Unmarked, Rule::TrainsInput, &tool);
    let unmarked = vec![Rule::NoGeneration];
    [
        Probe {
            name: "marks of texts",
            forms: texts(&said),
            spare: vec![],
            refused: None,
            expectations: [any, texts_written, texts_marked, closed, users].concat(),
            unless: vec![],
        },
        Probe {
            name: "marks of a call",
            forms: answered(1, |form| vec![form.says("assistant", SAID)]),
            spare: unasked(1, |form| vec![form.says("assistant", SAID)]),
            refused: None,
            expectations: [last_written, call, tool].concat(),
            unless: unmarked,
        },
    ]
}
