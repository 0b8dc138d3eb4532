//! `template repair`: a mended template, the markers that it needs, and rows for them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use reference::atomic_write;
use serde_json::{Value as Json, json};

use super::source::{Kind, Source};
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
        let folder = matches!(source.kind, Kind::Folder | Kind::FolderConfig);
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
        let aim = repair::Options { style, probes: source.probes(), ..repair::Options::default() };
        let repaired = repair_by(&source.text, &source.findings(&self.from)?, &aim);
        let written = self.write(options.output.as_deref(), &source, &repaired, plan.as_ref())?;
        if options.json {
            print(&format!("{}\n", summary(&repaired, plan.as_ref())));
        } else {
            print_foreign(&format!("{}{}{written}", repaired.diff, sentences(&repaired, plan.as_ref())));
        }
        Ok(u8::from(!repaired.unfixed.is_empty()))
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
                return Err(Failure::usage(format!(
                    "{}: expected a new or an empty file, found one with something in it",
                    to.display()
                )));
            }
            match source.kind {
                Kind::Config => with_template(&self.from, to, &repaired.source)?,
                _ => atomic_write::write(to, repaired.source.as_bytes())
                    .map_err(|error| Failure::fault(to, error))?,
            }
            let how = if repaired.diff.is_empty() { ", as it was" } else { "" };
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
        repaired: &Repaired,
        plan: Option<&Plan>,
    ) -> Result<String, Failure> {
        for name in TOKENIZER {
            copy(&self.from.join(name), &to.join(name)).map_err(Failure::usage)?;
        }
        let mut rows = source.markers.size;
        if let Some(plan) = plan {
            rows = plan.apply(&self.from, to).map_err(Failure::usage)?;
        }
        if source.kind == Kind::Folder {
            let path = to.join("chat_template.jinja");
            atomic_write::write(&path, repaired.source.as_bytes())
                .map_err(|error| Failure::fault(&path, error))?;
        } else {
            let name = "tokenizer_config.json";
            with_template(&to.join(name), &to.join(name), &repaired.source)?;
        }
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
}

/// A `tokenizer_config.json` with another template.
fn with_template(from: &Path, to: &Path, template: &str) -> Result<(), Failure> {
    let mut json = read_json(from).map_err(Failure::usage)?.unwrap_or_else(|| json!({}));
    match &mut json["chat_template"] {
        Json::Array(all) => {
            let one = all.len() == 1;
            let default = all.iter_mut().filter(|entry| entry["name"] == "default" || one);
            default.for_each(|entry| entry["template"] = json!(template));
        }
        other => *other = json!(template),
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

fn sentences(repaired: &Repaired, plan: Option<&Plan>) -> String {
    let mut out = String::new();
    for finding in &repaired.fixed {
        let _ = writeln!(out, "mended: {}: {}", finding.rule.name(), finding.rule.sentence());
    }
    for unfixed in &repaired.unfixed {
        let _ = writeln!(out, "left: {}: {}", unfixed.finding.rule.name(), unfixed.why);
    }
    if repaired.fixed.is_empty() && repaired.unfixed.is_empty() {
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
    let why = |one: &Unfixed| json!({"rule": one.finding.rule.name(), "why": one.why});
    json!({
        "diff": repaired.diff,
        "fixed": repaired.fixed.iter().map(|finding| finding.rule.name()).collect::<Vec<_>>(),
        "left": repaired.unfixed.iter().map(why).collect::<Vec<_>>(),
        "markers": plan.map(|plan| plan.places.iter().map(|(text, place)| json!({"text": text, "id": place.id()})).collect::<Vec<_>>()),
        "stops": plan.map(|plan| plan.stops.clone()),
        "rows": plan.map(|plan| plan.rows),
    })
}
