//! `template repair`: a mended template, the markers that it needs, and rows for them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use reference::atomic_write;
use serde_json::{Value as Json, json};

use super::source::{Kind, Source};
use crate::chat_templates::{self, Place};
use crate::files::{copy, read_json, write_json};
use crate::markers::{Plan, TokenSource};
use crate::output::{Failure, Options, print, print_foreign};
use crate::repair::{self, Repaired, Style, Unfixed, repair_by};
use crate::resize::{is_free, resize};

/// The files of a tokenizer, which go along with a template that is mended.
const TOKENIZER: [&str; 10] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "tokenizer.model",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
];

/// The files of a processor that may hold a template.
const PROCESSOR: [&str; 3] = ["processor_config.json", "preprocessor_config.json", chat_templates::LEGACY];

/// A template's name, and what became of it.
type Mended = (String, Repaired);

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

impl Repair {
    pub fn run(&self, options: &Options) -> Result<u8, Failure> {
        let source = Source::read(&self.from)?;
        let folder = source.kind == Kind::Folder;
        if !folder && (self.resize || !self.markers.is_empty()) {
            return Err(Failure::usage(format!(
                "{}: --markers and --resize need a checkpoint's folder",
                self.from.display()
            )));
        }
        if self.resize && options.output.is_none() {
            return Err(Failure::usage("--resize needs --output, a folder to write to"));
        }
        let wanted: Vec<&str> = self.markers.iter().map(String::as_str).collect();
        let plan = (!wanted.is_empty()).then(|| source.markers.plan(&wanted));
        let style = Style::fitting(|text| wanted.contains(&text) || source.markers.id(text).is_some());
        let mut all: Vec<Mended> = Vec::new();
        for ((name, text), (_, findings)) in source.templates.iter().zip(source.findings(&self.from)?) {
            let aim = repair::Options { style, probes: source.probes(name), ..repair::Options::default() };
            all.push((name.clone(), repair_by(text, &findings, &aim)));
        }
        let written = self.write(options.output.as_deref(), &source, &all, plan.as_ref())?;
        if options.json {
            print(&format!("{}\n", summary(&all, plan.as_ref())));
        } else {
            print_foreign(&format!("{}{}{written}", diff(&all), sentences(&all, plan.as_ref())));
        }
        Ok(u8::from(all.iter().any(|(_, repaired)| !repaired.unfixed.is_empty())))
    }

    /// Writes the result; says what was written.
    fn write(
        &self,
        to: Option<&Path>,
        source: &Source,
        repaired: &[Mended],
        plan: Option<&Plan>,
    ) -> Result<String, Failure> {
        let Some(to) = to else { return Ok(String::new()) };
        if matches!(source.kind, Kind::Text | Kind::Config) {
            if fs::metadata(to).is_ok_and(|there| there.len() > 0 || there.is_dir()) {
                return Err(Failure::usage(format!(
                    "{}: expected a new or an empty file, found one with something in it",
                    to.display()
                )));
            }
            match (source.kind, repaired) {
                (Kind::Text, [(_, only)]) => {
                    atomic_write::write(to, only.source.as_bytes())
                        .map_err(|error| Failure::fault(to, error))?;
                }
                _ => with_templates(&self.from, to, repaired)?,
            }
            let how = if diff(repaired).is_empty() { ", as it was" } else { "" };
            return Ok(format!("written: {}{how}\n", to.display()));
        }
        if !is_free(to) {
            return Err(Failure::usage(format!(
                "{}: expected a new or an empty folder, found one with something in it",
                to.display()
            )));
        }
        fs::create_dir_all(to).map_err(|error| Failure::fault(to, error))?;
        self.write_folder(to, source, repaired, plan)
    }

    /// A folder that can be a `tokenizer_name_or_path`: the template, and every file of the tokenizer that the plan for
    /// its markers leaves as it is.
    fn write_folder(
        &self,
        to: &Path,
        source: &Source,
        repaired: &[Mended],
        plan: Option<&Plan>,
    ) -> Result<String, Failure> {
        for name in TOKENIZER {
            copy(&self.from.join(name), &to.join(name)).map_err(Failure::usage)?;
        }
        let mut rows = source.markers.size;
        if let Some(plan) = plan {
            rows = plan.apply(&self.from, to).map_err(Failure::usage)?;
        }
        self.write_templates(to, source, repaired)?;
        let mut message = String::new();
        if self.resize {
            let done = resize(&self.from, to, rows.into(), self.pad).map_err(Failure::usage)?;
            message = format!(
                "rows: {} before, {} after, in {}\n",
                done.before,
                done.after,
                done.tensors.join(", ")
            );
        } else if plan.is_some() {
            message = format!("rows: the embedding needs {rows}; --resize sees to it\n");
        }
        Ok(format!("{message}written: {}\n", to.display()))
    }

    /// The templates where they were found: those that were mended, and the others as they are.
    fn write_templates(&self, to: &Path, source: &Source, repaired: &[Mended]) -> Result<(), Failure> {
        for name in PROCESSOR {
            copy(&self.from.join(name), &to.join(name)).map_err(Failure::usage)?;
        }
        let file = match source.markers.place {
            Place::TokenizerConfig => "tokenizer_config.json",
            Place::ProcessorConfig => "processor_config.json",
            Place::Legacy => chat_templates::LEGACY,
            Place::Files => {
                for (name, text) in &source.markers.templates {
                    let mended = repaired.iter().find(|(known, _)| known == name);
                    let text = mended.map_or(text, |(_, repaired)| &repaired.source);
                    let path = chat_templates::path(to, name);
                    let parent = path.parent().unwrap_or(to);
                    fs::create_dir_all(parent).map_err(|error| Failure::fault(parent, error))?;
                    atomic_write::write(&path, text.as_bytes())
                        .map_err(|error| Failure::fault(&path, error))?;
                }
                return Ok(());
            }
        };
        with_templates(&to.join(file), &to.join(file), repaired)
    }
}

/// A configuration with other templates.
fn with_templates(from: &Path, to: &Path, repaired: &[Mended]) -> Result<(), Failure> {
    let mut json = read_json(from).map_err(Failure::usage)?.unwrap_or_else(|| json!({}));
    for (name, Repaired { source, .. }) in repaired {
        match &mut json["chat_template"] {
            Json::Array(all) => {
                let named = all.iter_mut().filter(|entry| entry["name"] == *name);
                named.for_each(|entry| entry["template"] = json!(source));
            }
            Json::Object(all) => drop(all.insert(name.clone(), json!(source))),
            other => *other = json!(source),
        }
    }
    write_json(to, &json).map_err(|error| Failure::Fault(error.to_string()))
}

fn place(text: &str, place: &TokenSource) -> String {
    match place {
        TokenSource::There(id) => format!("marker: {text} is there, its id is {id}\n"),
        TokenSource::Reserved { id, was } => format!("marker: {text} takes the id {id} of {was}\n"),
        TokenSource::Added(id) => format!("marker: {text} is added, its id is {id}\n"),
    }
}

/// The differences of all templates, each under the name of its file.
fn diff(repaired: &[Mended]) -> String {
    let file = |name: &str| chat_templates::path(Path::new(""), name).display().to_string();
    let named = |(name, repaired): &Mended| repaired.diff.replacen(chat_templates::FILE, &file(name), 2);
    repaired.iter().map(named).collect()
}

fn sentences(repaired: &[Mended], plan: Option<&Plan>) -> String {
    let mut out = String::new();
    let several = repaired.len() > 1;
    for (name, repaired) in repaired {
        let before = if several { format!("{name}: ") } else { String::new() };
        for finding in &repaired.fixed {
            let _ = writeln!(out, "{before}mended: {}: {}", finding.rule.name(), finding.rule.sentence());
        }
        for unfixed in &repaired.unfixed {
            let _ = writeln!(out, "{before}left: {}: {}", unfixed.finding.rule.name(), unfixed.why);
        }
    }
    if out.is_empty() {
        out.push_str("nothing is lost in any probe\n");
    }
    if let Some(plan) = plan {
        plan.places.iter().for_each(|(text, at)| out.push_str(&place(text, at)));
        let stops: Vec<String> = plan.stops.iter().map(ToString::to_string).collect();
        let _ = writeln!(out, "generation stops at: {}", stops.join(", "));
    }
    out
}

fn summary(repaired: &[Mended], plan: Option<&Plan>) -> Json {
    let why = |one: &Unfixed| json!({"rule": one.finding.rule.name(), "why": one.why});
    let all = || repaired.iter().map(|(_, repaired)| repaired);
    let fixed = all().flat_map(|repaired| &repaired.fixed);
    json!({
        "diff": diff(repaired),
        "fixed": fixed.map(|finding| finding.rule.name()).collect::<Vec<_>>(),
        "left": all().flat_map(|repaired| &repaired.unfixed).map(why).collect::<Vec<_>>(),
        "markers": plan.map(|plan| plan.places.iter().map(|(text, place)| json!({"text": text, "id": place.id()})).collect::<Vec<_>>()),
        "stops": plan.map(|plan| plan.stops.clone()),
        "rows": plan.map(|plan| plan.rows),
    })
}
