//! `template`: a chat template rendered, tried, mended.
//!
//! A template is a file of its own (`.jinja`), an entry of a `tokenizer_config.json`, or what a checkpoint's folder holds.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use challenges::issues::chat::defuse::Defuser;
use challenges::issues::chat::files::{read_json, read_text, write_json};
use challenges::issues::chat::lint::{Came, Finding, Probe, limits, lint_by, probes};
use challenges::issues::chat::markers::{Markers, Place, Plan};
use challenges::issues::chat::repair::{Repaired, Style, Wish, repair_by};
use challenges::issues::chat::resize::{is_free, resize};
use challenges::issues::chat::{self, Clock, Conversation, Moment, Steps};
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use crate::options::{Failure, Options};
use crate::report::clean;
use crate::terminal::{print, print_foreign};

/// What is done with a template.
#[derive(Debug, Subcommand)]
pub(crate) enum Template {
    /// Writes a conversation as text
    Render(Render),
    /// Says what a template loses, changes or mislabels; exit code 1 if there is something
    Lint {
        /// A template, a `tokenizer_config.json`, or a checkpoint's folder
        from: PathBuf,
    },
    /// Mends what lint finds, shows the difference, and writes the result to --output
    Repair(Repair),
}

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

#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// A template, a `tokenizer_config.json`, or a checkpoint's folder
    from: PathBuf,
    /// Markers that the tokenizer must have, with commas between them
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    markers: Vec<String>,
    /// Copies the weights, with a row for every token in the embedding and the head
    #[arg(long)]
    resize: bool,
    /// Makes the number of rows a multiple of this
    #[arg(long, value_name = "N", requires = "resize", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pad: Option<u64>,
}

/// Runs `template`.
pub(crate) fn template(options: &Options, what: &Template) -> Result<u8, Failure> {
    options.needs_no_exercise("template")?;
    match what {
        Template::Render(render) => render.run(options),
        Template::Lint { from } => lint(options, from),
        Template::Repair(repair) => repair.run(options),
    }
}

/// What a file says stands in the message: a template, or the names in a checkpoint.
fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::Usage(clean(&error.to_string()))
}

fn fault(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Fault(clean(&format!("{}: {error}", path.display())))
}

fn moment(text: &str) -> Result<Moment, String> {
    let parts: Vec<&str> = text.split(['-', 'T', ':', ' ']).collect();
    let numbers: Option<Vec<u32>> = parts.iter().map(|part| part.parse().ok()).collect();
    let whole = format!("{text:?}: invalid time; expected YYYY-MM-DDThh:mm:ss");
    let Some(&[year, month, day, hour, minute, second]) = numbers.as_deref() else { return Err(whole) };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let is = (1..=9999).contains(&year) && (1..=12).contains(&month) && (1..=days).contains(&day);
    let is = is && hour < 24 && minute < 60 && second < 60;
    is.then_some(Moment { year: year as i32, month, day, hour, minute, second }).ok_or(whole)
}

fn variable(text: &str) -> Result<(String, Json), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("expected NAME=JSON, found {text:?}"))?;
    let json = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
    Ok((name.into(), json))
}

/// A template and where it is from.
struct Source {
    text: String,
    kind: Kind,
    markers: Markers,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A file of nothing else.
    Text,
    /// A `tokenizer_config.json`.
    Config,
    /// A folder with a `chat_template.jinja`.
    Folder,
    /// A folder whose template is in its `tokenizer_config.json`.
    FolderConfig,
}

impl Source {
    fn read(path: &Path) -> Result<Source, Failure> {
        if path.is_dir() {
            let markers = Markers::read(path).map_err(usage)?;
            let own = path.join("chat_template.jinja").exists();
            return Source::of(path, markers, if own { Kind::Folder } else { Kind::FolderConfig });
        }
        if path.extension().is_some_and(|end| end == "json") {
            return Source::of(path, Markers::of_config(path).map_err(usage)?, Kind::Config);
        }
        let text = read_text(path).map_err(usage)?;
        let text = text.ok_or_else(|| usage(format!("{}: there is no such file", path.display())))?;
        Ok(Source { text, kind: Kind::Text, markers: Markers::default() })
    }

    fn of(path: &Path, markers: Markers, kind: Kind) -> Result<Source, Failure> {
        let only = match markers.templates.as_slice() {
            [(_, only)] => Some(only.as_str()),
            _ => markers.template("default"),
        };
        if let Some(text) = only {
            return Ok(Source { text: text.into(), kind, markers });
        }
        let names: Vec<&str> = markers.templates.iter().map(|(name, _)| name.as_str()).collect();
        let there = if names.is_empty() { "none".to_string() } else { names.join(", ") };
        Err(usage(format!("{}: expected one template, or one called default, found {there}", path.display())))
    }

    /// Special tokens by the names that templates ask for.
    fn variables(&self) -> Vec<(String, Json)> {
        self.markers.named.iter().map(|(name, token)| (name.clone(), json!(token))).collect()
    }

    /// The probes, with this tokenizer's special tokens.
    fn probes(&self) -> Vec<Probe> {
        let mut probes = probes();
        let forms = probes.iter_mut().flat_map(|probe| probe.forms.iter_mut().chain(&mut probe.spare));
        forms.for_each(|form| {
            for (name, token) in self.variables() {
                form.variables.retain(|(known, _)| *known != name);
                form.variables.push((name, token));
            }
        });
        probes
    }

    fn compiled(&self, path: &Path, options: chat::Options) -> Result<chat::Template, Failure> {
        let named = |error| usage(format!("{}: {error}", path.display()));
        chat::Template::new(&self.text, options).map_err(named)
    }

    fn findings(&self, path: &Path) -> Result<Vec<Finding>, Failure> {
        let compiled = self.compiled(path, chat::Options { limits: limits(), ..chat::Options::default() })?;
        Ok(lint_by(&compiled, &self.probes()))
    }

    /// The tokens that no user may write.
    fn special(&self, path: &Path) -> Result<Vec<&str>, Failure> {
        let named = self.markers.named.iter().map(|(_, token)| token.as_str());
        let all: Vec<&str> = self.markers.added().map(|(token, _)| token).chain(named).collect();
        if all.is_empty() {
            return Err(usage(format!(
                "{}: no special token is known; --defuse needs a tokenizer_config.json or a checkpoint's folder",
                path.display()
            )));
        }
        Ok(all)
    }
}

/// Writes to `--output`, or prints.
fn give(options: &Options, text: &str) -> Result<(), Failure> {
    let Some(path) = &options.output else {
        print_foreign(text);
        return Ok(());
    };
    reference::atomic_write::write(path, text.as_bytes()).map_err(|error| fault(path, error))
}

impl Render {
    fn run(&self, options: &Options) -> Result<u8, Failure> {
        let given = [&self.tools, &self.documents].into_iter().flatten();
        let read: Vec<&Path> =
            [&self.from, &self.messages].into_iter().chain(given).map(PathBuf::as_path).collect();
        options.writes_elsewhere(&read)?;
        let source = Source::read(&self.from)?;
        let clock = self.now.map_or(Clock::Utc, Clock::Fixed);
        let compiled = source.compiled(&self.from, chat::Options { clock, ..chat::Options::default() })?;
        let rendered = match compiled.chat(&self.conversation(&source)?) {
            Ok(rendered) => rendered,
            Err(error) => {
                eprintln!("warpbook: {}", clean(&format!("{}: {error}", self.from.display())));
                return Ok(1);
            }
        };
        let spans: Vec<[usize; 2]> = rendered.spans.iter().map(|span| [span.start, span.end]).collect();
        let text = match (options.json, self.spans) {
            (true, _) => format!("{}\n", json!({"text": rendered.text, "spans": spans})),
            (false, true) => format!("{}\n", json!(spans)),
            (false, false) => rendered.text,
        };
        give(options, &text)?;
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
                    Err(usage(format!("{file}: expected a list of {name}, found {}", kind(&other))))
                }
                value => Ok(value),
            }
        };
        let (tools, documents) =
            (of("tools", self.tools.as_ref())?, of("documents", self.documents.as_ref())?);
        let messages = if given.is_object() { given.get("messages") } else { Some(&given) };
        let Some(Json::Array(messages)) = messages else {
            return Err(usage(format!(
                "{}: expected a list of messages or an object with messages, found neither",
                self.messages.display()
            )));
        };
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

fn json_of(path: &Path) -> Result<Json, Failure> {
    let text = read_text(path).map_err(usage)?;
    let text = text.ok_or_else(|| usage(format!("{}: there is no such file", path.display())))?;
    serde_json::from_str(&text).map_err(|error| usage(format!("{}: invalid JSON: {error}", path.display())))
}

fn lint(options: &Options, from: &Path) -> Result<u8, Failure> {
    options.writes_elsewhere(&[from])?;
    let findings = Source::read(from)?.findings(from)?;
    let text = if options.json {
        format!("{}\n", Json::Array(findings.iter().map(told).collect()))
    } else if findings.is_empty() {
        format!("{}: nothing is lost in any probe\n", from.display())
    } else {
        findings.iter().fold(String::new(), |mut told, finding| {
            let _ = writeln!(told, "{}", clean(&finding.to_string()));
            told
        })
    };
    give(options, &text)?;
    Ok(u8::from(!findings.is_empty()))
}

fn told(finding: &Finding) -> Json {
    let mut told = json!({
        "rule": finding.rule.name(),
        "means": finding.rule.sentence(),
        "probe": finding.probe,
        "sought": finding.sign.map(|sign| json!({"what": sign.what, "word": sign.word})),
    });
    match &finding.came {
        Came::Text(text) => told["text"] = json!(text),
        Came::Refusal(error) => told["error"] = json!(error.brief()),
    }
    told
}

impl Repair {
    fn run(&self, options: &Options) -> Result<u8, Failure> {
        let source = Source::read(&self.from)?;
        let folder = matches!(source.kind, Kind::Folder | Kind::FolderConfig);
        if !folder && (self.resize || !self.markers.is_empty()) {
            return Err(usage(format!(
                "{}: --markers and --resize need a checkpoint's folder",
                self.from.display()
            )));
        }
        if self.resize && options.output.is_none() {
            return Err(usage("--resize needs --output, a folder to write to"));
        }
        let wanted: Vec<&str> = self.markers.iter().map(String::as_str).collect();
        let plan = (!wanted.is_empty()).then(|| source.markers.plan(&wanted));
        let style = Style::fitting(|text| wanted.contains(&text) || source.markers.id(text).is_some());
        let wish = Wish { style, probes: source.probes(), ..Wish::default() };
        let repaired = repair_by(&source.text, &source.findings(&self.from)?, &wish);
        let written = self.write(options.output.as_deref(), &source, &repaired, plan.as_ref())?;
        if options.json {
            print(&format!("{}\n", summary(&repaired, plan.as_ref())));
        } else {
            print_foreign(&format!("{}{}{written}", repaired.diff, sentences(&repaired, plan.as_ref())));
        }
        Ok(u8::from(!repaired.left.is_empty()))
    }

    /// Writes the result; says what was written.
    fn write(
        &self,
        to: Option<&Path>,
        source: &Source,
        repaired: &Repaired,
        plan: Option<&Plan>,
    ) -> Result<String, Failure> {
        let Some(to) = to else { return Ok(String::new()) };
        if matches!(source.kind, Kind::Text | Kind::Config) {
            if fs::metadata(to).is_ok_and(|there| there.len() > 0 || there.is_dir()) {
                return Err(usage(format!(
                    "{}: expected a new or an empty file, found one with something in it",
                    to.display()
                )));
            }
            match source.kind {
                Kind::Config => with_template(&self.from, to, &repaired.source)?,
                _ => reference::atomic_write::write(to, repaired.source.as_bytes())
                    .map_err(|error| fault(to, error))?,
            }
            let how = if repaired.diff.is_empty() { ", as it was" } else { "" };
            return Ok(format!("written: {}{how}\n", to.display()));
        }
        if !is_free(to) {
            return Err(usage(format!(
                "{}: expected a new or an empty folder, found one with something in it",
                to.display()
            )));
        }
        fs::create_dir_all(to).map_err(|error| fault(to, error))?;
        self.write_folder(to, source, repaired, plan)
    }

    fn write_folder(
        &self,
        to: &Path,
        source: &Source,
        repaired: &Repaired,
        plan: Option<&Plan>,
    ) -> Result<String, Failure> {
        let mut rows = source.markers.size;
        if let Some(plan) = plan {
            rows = plan.apply(&self.from, to).map_err(usage)?;
        }
        if source.kind == Kind::Folder {
            let path = to.join("chat_template.jinja");
            reference::atomic_write::write(&path, repaired.source.as_bytes())
                .map_err(|error| fault(&path, error))?;
        } else {
            let name = "tokenizer_config.json";
            let from = if plan.is_some() { to.join(name) } else { self.from.join(name) };
            with_template(&from, &to.join(name), &repaired.source)?;
        }
        let mut told = String::new();
        if self.resize {
            let done = resize(&self.from, to, rows.into(), self.pad).map_err(usage)?;
            told = format!(
                "rows: {} before, {} after, in {}\n",
                done.before,
                done.after,
                done.tensors.join(", ")
            );
        } else if plan.is_some() {
            told = format!("rows: the embedding needs {rows}; --resize sees to it\n");
        }
        Ok(format!("{told}written: {}\n", to.display()))
    }
}

/// A `tokenizer_config.json` with another template.
fn with_template(from: &Path, to: &Path, template: &str) -> Result<(), Failure> {
    let mut json = read_json(from).map_err(usage)?.unwrap_or_else(|| json!({}));
    match &mut json["chat_template"] {
        Json::Array(all) => {
            let one = all.len() == 1;
            let default = all.iter_mut().filter(|entry| entry["name"] == "default" || one);
            default.for_each(|entry| entry["template"] = json!(template));
        }
        other => *other = json!(template),
    }
    write_json(to, &json).map_err(|error| Failure::Fault(clean(&error.to_string())))
}

fn place(text: &str, place: &Place) -> String {
    match place {
        Place::There(id) => format!("marker: {text} is there, its id is {id}\n"),
        Place::Reserved { id, was } => format!("marker: {text} takes the id {id} of {was}\n"),
        Place::Added(id) => format!("marker: {text} is added, its id is {id}\n"),
    }
}

fn sentences(repaired: &Repaired, plan: Option<&Plan>) -> String {
    let mut out = String::new();
    for finding in &repaired.fixed {
        let _ = writeln!(out, "mended: {}: {}", finding.rule.name(), finding.rule.sentence());
    }
    for left in &repaired.left {
        let _ = writeln!(out, "left: {}: {}", left.finding.rule.name(), left.why);
    }
    if repaired.fixed.is_empty() && repaired.left.is_empty() {
        out.push_str("nothing is lost in any probe\n");
    }
    if let Some(plan) = plan {
        plan.places.iter().for_each(|(text, at)| out.push_str(&place(text, at)));
        let stops: Vec<String> = plan.stops.iter().map(ToString::to_string).collect();
        let _ = writeln!(out, "generation stops at: {}", stops.join(", "));
    }
    out
}

fn summary(repaired: &Repaired, plan: Option<&Plan>) -> Json {
    let left = |left: &challenges::issues::chat::repair::Left| json!({"rule": left.finding.rule.name(), "why": left.why});
    json!({
        "diff": repaired.diff,
        "fixed": repaired.fixed.iter().map(|finding| finding.rule.name()).collect::<Vec<_>>(),
        "left": repaired.left.iter().map(left).collect::<Vec<_>>(),
        "markers": plan.map(|plan| plan.places.iter().map(|(text, place)| json!({"text": text, "id": place.id()})).collect::<Vec<_>>()),
        "stops": plan.map(|plan| plan.stops.clone()),
        "rows": plan.map(|plan| plan.rows),
    })
}
