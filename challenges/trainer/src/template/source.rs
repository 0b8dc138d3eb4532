//! A template and where it is from: a file of its own (`.jinja`), an entry of a `tokenizer_config.json`, or what a
//! checkpoint's folder holds.

use std::path::Path;

use challenges::issues::chat::lint::{Finding, Probe, limits, lint_by, probes};
use challenges::issues::chat::{ChatTemplate, Options};
use serde_json::{Value as Json, json};

use crate::files::read_text;
use crate::markers::Markers;
use crate::output::Failure;

/// A template and where it is from.
pub(crate) struct Source {
    pub text: String,
    pub kind: Kind,
    pub markers: Markers,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
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
    pub fn read(path: &Path) -> Result<Source, Failure> {
        if path.is_dir() {
            let markers = Markers::read(path).map_err(Failure::usage)?;
            let own = path.join("chat_template.jinja").exists();
            return Source::of(path, markers, if own { Kind::Folder } else { Kind::FolderConfig });
        }
        if path.extension().is_some_and(|end| end == "json") {
            return Source::of(path, Markers::of_config(path).map_err(Failure::usage)?, Kind::Config);
        }
        let text = read_text(path).map_err(Failure::usage)?;
        let text =
            text.ok_or_else(|| Failure::usage(format!("{}: there is no such file", path.display())))?;
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
        Err(Failure::usage(format!(
            "{}: expected one template, or one called default, found {there}",
            path.display()
        )))
    }

    /// Special tokens by the names that templates ask for.
    pub fn variables(&self) -> Vec<(String, Json)> {
        self.markers.named.iter().map(|(name, token)| (name.clone(), json!(token))).collect()
    }

    /// The probes, with this tokenizer's special tokens.
    pub fn probes(&self) -> Vec<Probe> {
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

    pub fn compiled(&self, path: &Path, options: Options) -> Result<ChatTemplate, Failure> {
        let named = |error| Failure::usage(format!("{}: {error}", path.display()));
        ChatTemplate::new(&self.text, options).map_err(named)
    }

    pub fn findings(&self, path: &Path) -> Result<Vec<Finding>, Failure> {
        let compiled = self.compiled(path, Options { limits: limits(), ..Options::default() })?;
        Ok(lint_by(&compiled, &self.probes()))
    }

    /// The tokens that no user may write.
    pub fn special(&self, path: &Path) -> Result<Vec<&str>, Failure> {
        let named = self.markers.named.iter().map(|(_, token)| token.as_str());
        let all: Vec<&str> = self.markers.added().map(|(token, _)| token).chain(named).collect();
        if all.is_empty() {
            return Err(Failure::usage(format!(
                "{}: no special token is known; --defuse needs a tokenizer_config.json or a checkpoint's folder",
                path.display()
            )));
        }
        Ok(all)
    }
}
