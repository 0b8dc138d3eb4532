//! Templates mended: what [`lint`](challenges::issues::chat::lint) found, taken out by rewriting the source.
//!
//! ```text
//! | tojson of what is text already     becomes a condition                        in place
//! calls, answers, tools, the system    are said in texts, before the template     prelude
//! marks                                around what the loop over messages writes  marks
//! ```
//!
//! None of these reads what the template means; each is a guess, and each guess is tried. **A repair counts only if**
//! the template afterwards lacks a fault that it had and has none that it had not, and renders every probe that the
//! repair is not about to the very same text, spans and errors. Guesses are few and every trial is bounded, so this
//! ends.
//!
//! **What it cannot know**: how the model was trained. A released model may have learned from quoted answers or from
//! answers in a role of its own; a repaired template is for a model that is trained with it.

mod diff;
mod marks;
mod prelude;
mod scan;
mod style;

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use challenges::issues::chat::Conversation;
use challenges::issues::chat::lint::{Finding, Probe, Rule, limits, lint_by, probes};
use challenges::issues::chat::{self, ChatTemplate};
use prelude::{Parts, Takes};

pub use diff::unified;
pub use style::{HERMES, LLAMA, Style};

/// A template after its repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The source; what it was if nothing could be done.
    pub source: String,
    /// What was changed, as a unified diff; empty if nothing was.
    pub diff: String,
    /// What is no longer found.
    pub fixed: Vec<Finding>,
    /// What is still found.
    pub unfixed: Vec<Unfixed>,
}

/// Something that was not mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfixed {
    /// What it is.
    pub finding: Finding,
    /// Why it is still there.
    pub why: &'static str,
}

/// What a repair aims at.
#[derive(Clone, Debug)]
pub struct Options {
    /// How calls are written where the template has no way of its own.
    pub style: Style,
    /// What templates are compiled with to be tried.
    pub template: chat::Options,
    /// By what they are judged.
    pub probes: Vec<Probe>,
}

impl Default for Options {
    fn default() -> Options {
        let template = chat::Options { limits: limits(), ..chat::Options::default() };
        Options { style: HERMES, template, probes: probes() }
    }
}

/// Mends what was found in a template, as far as it can.
pub fn repair(source: &str, findings: &[Finding]) -> Repaired {
    repair_by(source, findings, &Options::default())
}

/// The same in another style, or judged by other probes.
pub fn repair_by(source: &str, findings: &[Finding], options: &Options) -> Repaired {
    let wanted: Vec<Rule> = findings.iter().map(|finding| finding.rule).collect();
    let Some(mut work) = Work::new(source, options) else {
        let why = "the template does not compile or is not to be tried";
        return Repaired {
            source: source.into(),
            diff: String::new(),
            fixed: Vec::new(),
            unfixed: findings.iter().map(|finding| Unfixed { finding: finding.clone(), why }).collect(),
        };
    };
    work.unquote(&wanted);
    work.say(&wanted);
    work.mark(&wanted);
    let (unfixed, fixed): (Vec<_>, Vec<_>) =
        findings.iter().cloned().partition(|finding| work.has(finding.rule));
    let unfixed =
        unfixed.into_iter().map(|finding| Unfixed { why: why_left(finding.rule), finding }).collect();
    Repaired {
        diff: unified(source, &work.source, "chat_template.jinja"),
        source: work.source,
        fixed,
        unfixed,
    }
}

fn why_left(rule: Rule) -> &'static str {
    match rule {
        Rule::Unusable => "a template that cannot say a text cannot be built on",
        Rule::PromptDiffers => "how a turn begins is for whoever trained the model to say",
        Rule::TellsTime => "the day is part of what the model was trained on: give a clock that stands still",
        Rule::NeedsObject => "a template cannot read JSON: give the arguments as an object",
        Rule::CutsTools => "how tools are declared is the template's own: what is missing belongs there",
        Rule::LosesSpace => "what takes the space away is the template's own text",
        _ => "no rewriting that was tried takes it away and leaves all else as it was",
    }
}

/// Whether a conversation has what a finding is about, so that mending it may change the text.
fn touches(finding: &Finding, conversation: &Conversation) -> bool {
    let messages = &conversation.messages;
    let are = |role: &str| messages.iter().filter(|message| message["role"] == role).count();
    let calls = || messages.iter().filter_map(|message| Some((message, message["tool_calls"].as_array()?)));
    let as_text = |text: bool| {
        calls().any(|(_, calls)| calls.iter().any(|call| call["function"]["arguments"].is_string() == text))
    };
    let several = finding.probe.starts_with("two");
    match finding.rule {
        Rule::NoSystem => messages.first().is_some_and(|first| first["role"] == "system"),
        Rule::DropsTools | Rule::CutsTools => conversation.tools.is_some(),
        Rule::DropsCall => calls().any(|(_, calls)| calls.len() > usize::from(several)),
        Rule::DropsContent => {
            calls().any(|(message, _)| !matches!(message["content"].as_str(), None | Some("")))
        }
        Rule::NeedsObject | Rule::EncodesTwice => as_text(true),
        Rule::NeedsText | Rule::PythonArguments => as_text(false),
        Rule::NoToolRole | Rule::DropsResult | Rule::QuotesResult => are("tool") > usize::from(several),
        _ => false,
    }
}

/// A template on its way.
struct Work<'a> {
    source: String,
    template: ChatTemplate,
    found: Vec<Finding>,
    options: &'a Options,
    kept: Vec<Conversation>,
    until: Instant,
}

/// How long a repair may take.
const LONGEST: Duration = Duration::from_mins(1);

impl<'a> Work<'a> {
    fn new(source: &str, options: &'a Options) -> Option<Work<'a>> {
        let template = ChatTemplate::new(source, options.template.clone()).ok()?;
        let found = lint_by(&template, &options.probes);
        let until = Instant::now() + LONGEST;
        let usable = found.iter().all(|finding| finding.rule != Rule::Unusable);
        usable.then(|| Work { source: source.into(), template, found, options, kept: kept(options), until })
    }

    fn has(&self, rule: Rule) -> bool {
        self.found.iter().any(|finding| finding.rule == rule)
    }

    /// Takes a rewritten source if at least `count` of `aims` are gone, nothing new is wrong and nothing else is
    /// changed.
    fn takes(&mut self, source: String, aims: &[Rule], count: usize) -> bool {
        if Instant::now() > self.until {
            return false;
        }
        let Ok(template) = ChatTemplate::new(&source, self.options.template.clone()) else { return false };
        let found = lint_by(&template, &self.options.probes);
        let has = |found: &[Finding], rule: Rule| found.iter().any(|finding| finding.rule == rule);
        let is_gone = |finding: &&Finding| aims.contains(&finding.rule) && !has(&found, finding.rule);
        let gone: Vec<&Finding> = self.found.iter().filter(is_gone).collect();
        let nothing_new = found.iter().all(|finding| self.has(finding.rule));
        if gone.len() < count || !nothing_new || !self.keeps(&template, &gone) {
            return false;
        }
        (self.source, self.template, self.found) = (source, template, found);
        true
    }

    /// Whether the conversations that what is `gone` is not about stay what they are.
    fn keeps(&self, template: &ChatTemplate, gone: &[&Finding]) -> bool {
        let marks = gone.iter().all(|finding| finding.rule.is_about_marks());
        let apart = |conversation: &&Conversation| !gone.iter().any(|finding| touches(finding, conversation));
        self.kept.iter().filter(apart).all(|conversation| {
            Instant::now() < self.until
                && match (self.template.chat(conversation), template.chat(conversation)) {
                    (Ok(before), Ok(after)) => {
                        before.text == after.text && (marks || before.spans == after.spans)
                    }
                    (Err(before), Err(after)) => before.kind == after.kind,
                    _ => false,
                }
        })
    }

    fn wants(&self, wanted: &[Rule], rules: &[Rule]) -> Vec<Rule> {
        rules.iter().copied().filter(|rule| wanted.contains(rule) && self.has(*rule)).collect()
    }

    /// Writes what is text already as it is.
    fn unquote(&mut self, wanted: &[Rule]) {
        for rule in self.wants(wanted, &[Rule::QuotesResult, Rule::EncodesTwice]) {
            for (operand, whole) in scan::json_filters(&self.source) {
                let Some(rewritten) = unquoted(&self.source, operand, whole) else { continue };
                if self.takes(rewritten, &[rule], 1) {
                    break;
                }
            }
        }
    }

    /// Says in texts what is lost: all at once, else part by part.
    fn say(&mut self, wanted: &[Rule]) {
        let lost = |part: &(Parts, &[Rule])| !self.wants(wanted, part.1).is_empty();
        let parts: Vec<(Parts, &[Rule])> = SAID.into_iter().filter(lost).collect();
        let all = parts.iter().fold(Parts::default(), |all, (part, _)| all.and(*part));
        let aims: Vec<Rule> = parts.iter().flat_map(|(_, rules)| rules.iter().copied()).collect();
        if parts.is_empty() || self.say_parts(all, &self.wants(wanted, &aims)) {
            return;
        }
        for (part, rules) in parts {
            self.say_parts(part, &self.wants(wanted, rules));
        }
    }

    /// Whether the template writes this anywhere where nobody has said it.
    fn writes(&self, text: &str) -> bool {
        let written =
            |conversation| self.template.chat(conversation).is_ok_and(|out| out.text.contains(text));
        self.kept.iter().any(written)
    }

    /// The first form of a prelude that takes all of `aims` away, else the first that takes some.
    fn say_parts(&mut self, parts: Parts, aims: &[Rule]) -> bool {
        let forms = [(false, true), (false, false), (true, true), (true, false)];
        let calls = self.writes(self.options.style.call[0]);
        let answers = self.writes(self.options.style.answer[0]);
        [aims.len(), 1].into_iter().any(|count| {
            forms.into_iter().any(|(list, system)| {
                let takes = Takes { parts: list, system, calls, answers };
                let rewritten = prelude::before(&self.source, parts, takes, &self.options.style);
                self.takes(rewritten, aims, count)
            })
        })
    }

    /// Puts marks around what the assistant writes.
    fn mark(&mut self, wanted: &[Rule]) {
        let about_marks: Vec<Rule> = Rule::ALL.into_iter().filter(|rule| rule.is_about_marks()).collect();
        let aims = self.wants(wanted, &about_marks);
        if aims.is_empty() {
            return;
        }
        let bare = marks::unmarked(&self.source).unwrap_or_else(|| self.source.clone());
        let heads = heads(&self.template, &self.kept);
        let by_head = heads.iter().flat_map(|head| marks::marked(&bare, head, false));
        let any = heads.iter().map(String::as_str).chain([""]);
        let by_content = any.flat_map(|head| marks::marked(&bare, head, true));
        let until = self.until;
        let mut in_time = by_head.chain(by_content).take_while(|_| Instant::now() < until);
        in_time.any(|rewritten| self.takes(rewritten, &aims, 1));
    }
}

/// What each part of a prelude is for.
const SAID: [(Parts, &[Rule]); 5] = [
    (Parts { system: true, ..Parts::NONE }, &[Rule::NoSystem]),
    (Parts { tools: true, ..Parts::NONE }, &[Rule::DropsTools]),
    (Parts { calls: true, ..Parts::NONE }, &[Rule::DropsCall, Rule::DropsContent]),
    (Parts { arguments: true, ..Parts::NONE }, &[Rule::NeedsText, Rule::PythonArguments]),
    (Parts { answers: true, ..Parts::NONE }, &[Rule::NoToolRole, Rule::DropsResult]),
];

/// `operand | tojson` only where the operand is no text.
fn unquoted(source: &str, operand: std::ops::Range<usize>, whole: std::ops::Range<usize>) -> Option<String> {
    let (value, filtered) = (source.get(operand)?, source.get(whole.clone())?);
    let mut out = source.to_string();
    out.replace_range(whole, &format!("({value} if {value} is string else {filtered})"));
    Some(out)
}

/// The conversations that stay what they are: those of the probes, and some of texts alone.
fn kept(options: &Options) -> Vec<Conversation> {
    let mut all: Vec<Conversation> =
        options.probes.iter().flat_map(|probe| probe.forms.iter().chain(&probe.spare).cloned()).collect();
    let variables = all.first().map(|first| first.variables.clone()).unwrap_or_default();
    let says = |role: &str, text: &str| json!({"role": role, "content": text});
    let mut thought = says("assistant", "So it is.");
    thought["reasoning_content"] = json!("Is it?");
    let texts = [
        vec![says("user", "One.")],
        vec![says("system", "Zero."), says("user", "One.")],
        vec![says("user", "One."), thought.clone(), says("user", "Two.")],
        vec![
            says("system", "Zero."),
            says("user", "One."),
            says("assistant", "1"),
            says("user", "Two."),
            thought,
        ],
        vec![json!({"role": "user", "content": [{"type": "text", "text": "One."}, {"type": "image"}]})],
        vec![says("user", "")],
    ];
    for messages in texts {
        for add_generation_prompt in [false, true] {
            let messages = messages.clone();
            all.push(Conversation {
                messages,
                add_generation_prompt,
                variables: variables.clone(),
                ..Conversation::default()
            });
        }
    }
    all
}

/// The most beginnings of a turn that are tried.
const MOST_HEADS: usize = 12;

/// How the assistant's turns may begin: what the template writes when it is asked for the beginning of one, as far as a
/// turn then goes on so; and, longer ones first, the same up to an earlier line or marker.
fn heads(template: &ChatTemplate, kept: &[Conversation]) -> Vec<String> {
    let Some(whole) = kept.iter().take(2).find_map(|both| head(template, both)) else { return Vec::new() };
    let ends = whole.char_indices().filter(|(_, c)| matches!(c, '\n' | '>')).map(|(at, c)| at + c.len_utf8());
    let mut cuts: Vec<usize> = ends.chain([whole.len()]).collect();
    cuts.dedup();
    let heads = cuts.iter().rev().take(MOST_HEADS).filter_map(|cut| whole.get(..*cut));
    heads.filter(|head| !head.trim().is_empty()).map(str::to_string).collect()
}

/// Of a user's and an assistant's text: what the turn and the asked beginning share after the user's.
fn head(template: &ChatTemplate, both: &Conversation) -> Option<String> {
    let rendered = |messages: &[Json], add_generation_prompt| {
        let one = Conversation { messages: messages.to_vec(), add_generation_prompt, ..both.clone() };
        template.chat(&one).ok().map(|rendered| rendered.text)
    };
    let user = both.messages.get(..1)?;
    let (before, asked, whole) =
        (rendered(user, false)?, rendered(user, true)?, rendered(&both.messages, false)?);
    let start = shared(&before, &whole);
    let end = if asked.len() > before.len() { shared(&asked, &whole) } else { answer(&whole, both)? };
    let opened = whole.get(..start)?.ends_with('<');
    let start = start - usize::from(opened);
    whole.get(start..end).map(str::to_string)
}

/// Where the assistant's text is in the text of all.
fn answer(whole: &str, both: &Conversation) -> Option<usize> {
    let content = &both.messages.get(1)?["content"];
    whole.rfind(content.as_str().or_else(|| content[0]["text"].as_str())?)
}

/// The bytes with which two texts begin alike.
fn shared(a: &str, b: &str) -> usize {
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    (0..=same).rev().find(|at| b.is_char_boundary(*at)).unwrap_or(0)
}
