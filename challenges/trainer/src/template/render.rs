//! `template render`: a conversation as text.

use std::path::{Path, PathBuf};

use challenges::issues::chat::defuse::Defuser;
use challenges::issues::chat::{self, Clock, Conversation, Moment, Steps};
use clap::Args;
use jiff::civil::DateTime;
use reference::exact;
use serde_json::{Value as Json, json};

use super::source::Source;
use crate::files::read_exact;
use crate::messages;
use crate::output::{Failure, Options, warn};
use crate::roles::{self, Roles};

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools)] // each is a flag of the command line
pub(crate) struct Render {
    /// A template, a `tokenizer_config.json`, or a checkpoint's folder
    from: PathBuf,
    /// The messages, a list in JSON; or an object with messages, tools and documents
    #[arg(long, value_name = "FILE")]
    messages: PathBuf,
    /// The tools, a list in JSON
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// The documents, a list in JSON
    #[arg(long, value_name = "FILE")]
    documents: Option<PathBuf>,
    /// Ends with the beginning of the assistant's turn
    #[arg(long)]
    add_generation_prompt: bool,
    /// Ends where the last message does
    #[arg(long)]
    continue_final_message: bool,
    /// What the clock shows: 2026-01-05T09:07:03
    #[arg(long, value_name = "TIME", value_parser = moment)]
    now: Option<Moment>,
    /// A variable that the template asks for; a value that is no JSON is a text
    #[arg(long, value_name = "NAME=JSON", value_parser = variable)]
    set: Vec<(String, Json)>,
    /// Where the assistant's text is, in characters, instead of the text
    #[arg(long)]
    spans: bool,
    /// Breaks special tokens in what users, tools and documents say; needs a tokenizer's files
    #[arg(long)]
    defuse: bool,
}

fn moment(text: &str) -> Result<Moment, String> {
    let parsed = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"].map(|format| DateTime::strptime(format, text));
    let time = parsed.into_iter().flatten().find(|time| time.year() > 0);
    let time = time.ok_or_else(|| format!("{text:?}: invalid time; expected YYYY-MM-DDThh:mm:ss"))?;
    let [month, day, hour, minute, second] =
        [time.month(), time.day(), time.hour(), time.minute(), time.second()].map(|field| field as u32);
    Ok(Moment { year: time.year().into(), month, day, hour, minute, second })
}

fn variable(text: &str) -> Result<(String, Json), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("expected NAME=JSON, found {text:?}"))?;
    let json = exact::from_str(value).unwrap_or_else(|_| json!(value));
    Ok((name.into(), json))
}

impl Render {
    pub fn run(&self, options: &Options) -> Result<u8, Failure> {
        let given = [&self.tools, &self.documents].into_iter().flatten();
        let read: Vec<&Path> =
            [&self.from, &self.messages].into_iter().chain(given).map(PathBuf::as_path).collect();
        options.writes_elsewhere(&read)?;
        let source = Source::read(&self.from)?;
        let clock = self.now.map_or(Clock::Utc, Clock::Fixed);
        let compiled = source.compiled(&self.from, &chat::Options { clock, ..chat::Options::default() })?;
        let conversation = self.conversation(&source)?;
        let template = compiled.template(&conversation);
        let template =
            template.map_err(|error| Failure::usage(format!("{}: {error}", self.from.display())))?;
        let rendered = match template.chat(&conversation) {
            Ok(rendered) => rendered,
            Err(error) => {
                warn(&format!("{}: {error}", self.from.display()));
                return Ok(1);
            }
        };
        if conversation.messages.iter().any(roles::is_unusual) {
            let roles = Roles::new(source.templates.iter().map(|(_, text)| text.as_str()));
            let write = |other: &Conversation| compiled.chat(other).map(|other| other.text);
            let _ = roles.check(&conversation, &rendered.text, write); // its error is a notice, too
            for notice in roles.take_notices() {
                warn(&format!("{}: {notice}", self.from.display()));
            }
        }
        let spans: Vec<[usize; 2]> = rendered.spans.iter().map(|span| [span.start, span.end]).collect();
        let text = match (options.json, self.spans) {
            (true, _) => format!("{}\n", json!({"text": rendered.text, "spans": spans})),
            (false, true) => format!("{}\n", json!(spans)),
            (false, false) => rendered.text,
        };
        options.give(&text)?;
        Ok(0)
    }

    fn conversation(&self, source: &Source) -> Result<Conversation, Failure> {
        let given = json_of(&self.messages)?;
        let of = |name: &str, file: Option<&PathBuf>| {
            let value = match file {
                Some(file) => Some(json_of(file)?),
                None => given.get(name).filter(|value| !value.is_null()).cloned(),
            };
            match value {
                Some(other) if !other.is_array() => {
                    let file = file.unwrap_or(&self.messages).display();
                    Err(Failure::usage(format!("{file}: expected a list of {name}, found {}", kind(&other))))
                }
                value => Ok(value),
            }
        };
        let (tools, documents) =
            (of("tools", self.tools.as_ref())?, of("documents", self.documents.as_ref())?);
        let messages = if given.is_object() { given.get("messages") } else { Some(&given) };
        let Some(Json::Array(messages)) = messages else {
            return Err(Failure::usage(format!(
                "{}: expected a list of messages or an object with messages, found neither",
                self.messages.display()
            )));
        };
        messages::check(messages, "messages")
            .map_err(|error| Failure::usage(format!("{}: {error}", self.messages.display())))?;
        let mut variables = source.variables();
        variables.extend(self.set.iter().cloned());
        let special = if self.defuse { source.special(&self.from)? } else { Vec::new() };
        let steps = Steps::default();
        let defuser = Defuser::new(&special, &steps);
        let safe = |value: &Json| defuser.defused(value);
        let is_trusted = |message: &Json| message["role"] == "system" || message["role"] == "assistant";
        let messages = messages.iter().map(|one| if is_trusted(one) { one.clone() } else { safe(one) });
        Ok(Conversation {
            messages: messages.collect(),
            tools,
            documents: documents.as_ref().map(safe),
            add_generation_prompt: self.add_generation_prompt,
            continue_final_message: self.continue_final_message,
            variables,
        })
    }
}

/// What a value is, in a sentence.
fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a truth value",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

/// Reads a file's JSON.
pub(crate) fn json_of(path: &Path) -> Result<Json, Failure> {
    let json = read_exact(path).map_err(Failure::usage)?;
    json.ok_or_else(|| Failure::usage(format!("{}: expected a file, found none", path.display())))
}
