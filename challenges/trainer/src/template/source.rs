//! Templates and where they are from: a `.jinja` file, the entry of a `tokenizer_config.json`, or what a
//! checkpoint's folder holds; and which of them a conversation is rendered with.

use std::path::Path;

use challenges::issues::chat::lint::{Finding, Probe, limits, lint_by, probes};
use challenges::issues::chat::{ChatTemplate, Conversation, Options, Rendered};
use serde_json::{Value as Json, json};

use crate::chat_templates::{DEFAULT, Named, TOOL_USE};
use crate::files::read_text;
use crate::markers::Markers;
use crate::output::Failure;

/// Templates and where they are from.
pub(crate) struct Source {
    /// The templates that a conversation may be rendered with: `default`, and `tool_use` for tools.
    pub templates: Named,
    pub kind: Kind,
    pub markers: Markers,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file of nothing else.
    Text,
    /// A `tokenizer_config.json`.
    Config,
    /// A folder.
    Folder,
}

impl Source {
    pub fn read(path: &Path) -> Result<Source, Failure> {
        if path.is_dir() {
            return Source::of(path, Markers::read(path).map_err(Failure::usage)?, Kind::Folder);
        }
        if path.extension().is_some_and(|end| end == "json") {
            return Source::of(path, Markers::of_config(path).map_err(Failure::usage)?, Kind::Config);
        }
        let text = read_text(path).map_err(Failure::usage)?;
        let text =
            text.ok_or_else(|| Failure::usage(format!("{}: there is no such file", path.display())))?;
        let templates = vec![(DEFAULT.to_owned(), text)];
        Ok(Source { templates, kind: Kind::Text, markers: Markers::default() })
    }

    /// A tokenizer takes `tool_use` if tools are given, else `default`; a processor always takes `default`.
    fn of(path: &Path, markers: Markers, kind: Kind) -> Result<Source, Failure> {
        let is_taken = |name: &str| name == DEFAULT || name == TOOL_USE && !markers.processor;
        let templates: Named = markers.templates.iter().filter(|(name, _)| is_taken(name)).cloned().collect();
        if !templates.is_empty() {
            return Ok(Source { templates, kind, markers });
        }
        let need = if markers.processor { DEFAULT.to_owned() } else { format!("{DEFAULT} or {TOOL_USE}") };
        Err(Failure::usage(format!(
            "{}: expected a chat template called {need}, found {}",
            path.display(),
            names(&markers.templates)
        )))
    }

    /// Special tokens by the names that templates ask for.
    pub fn variables(&self) -> Vec<(String, Json)> {
        self.markers.named.iter().map(|(name, token)| (name.clone(), json!(token))).collect()
    }

    /// The probes of a template, with this tokenizer's special tokens. Where tools choose the template, each is tried
    /// with the conversations that it is taken for.
    pub fn probes(&self, template: &str) -> Vec<Probe> {
        let mut probes = probes();
        let tools_choose = self.templates.iter().any(|(name, _)| name == TOOL_USE);
        let is_for = |form: &Conversation| !tools_choose || form.tools.is_some() == (template == TOOL_USE);
        for probe in &mut probes {
            probe.forms.retain(is_for);
            probe.spare.retain(is_for);
        }
        probes.retain(|probe| !probe.forms.is_empty() || !probe.spare.is_empty());
        let forms = probes.iter_mut().flat_map(|probe| probe.forms.iter_mut().chain(&mut probe.spare));
        forms.for_each(|form| {
            for (name, token) in self.variables() {
                form.variables.retain(|(known, _)| *known != name);
                form.variables.push((name, token));
            }
        });
        probes
    }

    pub fn compiled(&self, path: &Path, options: &Options) -> Result<Templates, Failure> {
        let compiled = |name: &str| {
            let found = self.templates.iter().find(|(known, _)| known == name);
            let template = |(_, text): &(String, String)| {
                let template = ChatTemplate::new(text, options.clone());
                let template =
                    template.map_err(|error| Failure::usage(self.described(path, name, &error)))?;
                Ok::<_, Failure>(Compiled { template, source: text.clone() })
            };
            found.map(template).transpose()
        };
        let names = names(&self.markers.templates);
        Ok(Templates { default: compiled(DEFAULT)?, tool_use: compiled(TOOL_USE)?, names })
    }

    /// An error of a template, which is named if there are several.
    pub fn described(&self, path: &Path, name: &str, error: &dyn std::fmt::Display) -> String {
        if self.templates.len() > 1 {
            format!("{}: {name}: {error}", path.display())
        } else {
            format!("{}: {error}", path.display())
        }
    }

    /// Returns the findings of each template with its name.
    pub fn findings(&self, path: &Path) -> Result<Vec<(&str, Vec<Finding>)>, Failure> {
        let compiled = self.compiled(path, &Options { limits: limits(), ..Options::default() })?;
        let of = |(name, _): &'_ (String, String)| {
            let template = if name == TOOL_USE { &compiled.tool_use } else { &compiled.default };
            template.as_ref().map(|one| lint_by(&one.template, &self.probes(name))).unwrap_or_default()
        };
        Ok(self.templates.iter().map(|named| (named.0.as_str(), of(named))).collect())
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

/// The templates that a conversation may be rendered with.
pub(crate) struct Templates {
    default: Option<Compiled>,
    tool_use: Option<Compiled>,
    /// The names of all templates that there are.
    names: String,
}

struct Compiled {
    template: ChatTemplate,
    source: String,
}

impl Templates {
    /// The template that transformers takes: `tool_use` if tools are given, be it an empty list, else `default`.
    fn pick(&self, conversation: &Conversation) -> Result<&Compiled, String> {
        let for_tools = self.tool_use.as_ref().filter(|_| conversation.tools.is_some());
        for_tools.or(self.default.as_ref()).ok_or_else(|| {
            format!(
                "expected a chat template called {DEFAULT}, or tools for {TOOL_USE}; found no tools, and the \
                 templates {}",
                self.names
            )
        })
    }

    /// The template of a conversation.
    pub fn template(&self, conversation: &Conversation) -> Result<&ChatTemplate, String> {
        self.pick(conversation).map(|picked| &picked.template)
    }

    /// The text of a conversation's template.
    pub fn source(&self, conversation: &Conversation) -> Result<&str, String> {
        self.pick(conversation).map(|picked| picked.source.as_str())
    }

    /// Renders a conversation with its template.
    pub fn chat(&self, conversation: &Conversation) -> Result<Rendered, String> {
        self.template(conversation)?.chat(conversation).map_err(|error| error.to_string())
    }
}

/// The names of templates in a sentence.
fn names(templates: &Named) -> String {
    let names: Vec<&str> = templates.iter().map(|(name, _)| name.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
