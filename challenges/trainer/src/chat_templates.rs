//! The chat templates of a checkpoint's folder by name, from the files that transformers takes them from.
//!
//! ```text
//! chat_template.jinja                      the template `default`
//! additional_chat_templates/NAME.jinja     the template NAME: `tool_use`, `rag`
//! tokenizer_config.json: chat_template     a text, which is `default`, or a list of names and templates
//! ```
//!
//! Where there is a file of the first two kinds, the entry of `tokenizer_config.json` does not count. A folder with a
//! `processor_config.json` or a `preprocessor_config.json` has a processor, whose templates come first:
//!
//! ```text
//! processor_config.json: chat_template     a text, or templates by name
//! chat_template.json: chat_template        `default`, as older processors were written
//! ```
//!
//! Source: `PreTrainedTokenizerBase._from_pretrained` and `ProcessorMixin.get_processor_dict` of transformers 5.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::files::{FileError, Problem, read_json, read_text};

/// The template that is taken unless tools are given.
pub const DEFAULT: &str = "default";
/// The template that is taken if tools are given.
pub const TOOL_USE: &str = "tool_use";
/// The file of the template [`DEFAULT`].
pub const FILE: &str = "chat_template.jinja";
/// The folder of the other templates.
pub const FOLDER: &str = "additional_chat_templates";
/// The file of an older processor's template.
pub const LEGACY: &str = "chat_template.json";
/// The files that a folder with a processor has at least one of.
const PROCESSOR: [&str; 2] = ["processor_config.json", "preprocessor_config.json"];

/// Templates by name, in the order in which they are found.
pub type Named = Vec<(String, String)>;

/// Where a folder's templates are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In `tokenizer_config.json`.
    #[default]
    TokenizerConfig,
    /// In separate files.
    Files,
    /// In `processor_config.json`.
    ProcessorConfig,
    /// In `chat_template.json`.
    Legacy,
}

/// Whether a folder has a processor.
pub fn has_processor(folder: &Path) -> bool {
    PROCESSOR.iter().any(|name| folder.join(name).is_file())
}

/// The templates that come before those of `tokenizer_config.json`, if there are some.
pub fn read(folder: &Path) -> Result<Option<(Place, Named)>, FileError> {
    let files = files(folder)?;
    if has_processor(folder) {
        if let Some(named) = of_json(&folder.join(PROCESSOR[0]))? {
            return Ok(Some((Place::ProcessorConfig, named)));
        }
        let path = folder.join(LEGACY);
        if let Some(named) = of_json(&path)? {
            if files.iter().any(|(name, _)| name != DEFAULT) {
                let what = format!("expected no folder {FOLDER} next to a {LEGACY}, found both");
                return Err(Problem::Layout { what }.of(&path));
            }
            return Ok(Some((Place::Legacy, named)));
        }
    }
    Ok(Some(files).filter(|files| !files.is_empty()).map(|files| (Place::Files, files)))
}

/// The file of a template.
pub fn path(folder: &Path, name: &str) -> PathBuf {
    if name == DEFAULT { folder.join(FILE) } else { folder.join(FOLDER).join(format!("{name}.jinja")) }
}

/// The templates in separate files.
fn files(folder: &Path) -> Result<Named, FileError> {
    let mut all: Named =
        read_text(&folder.join(FILE))?.map(|text| (DEFAULT.to_owned(), text)).into_iter().collect();
    let mut others = Named::new();
    let additional = folder.join(FOLDER);
    for entry in additional.read_dir().into_iter().flatten() {
        let path = entry.map_err(|error| Problem::Io(error).of(&additional))?.path();
        let name =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".jinja"));
        let text = if name.is_some() { read_text(&path)? } else { None };
        others.extend(name.map(str::to_owned).zip(text));
    }
    others.sort();
    if others.iter().any(|(name, _)| name == DEFAULT) {
        all.clear(); // transformers reads this file last
    }
    all.extend(others);
    Ok(all)
}

/// The entry `chat_template` of a JSON file; `None` without the file or the entry.
fn of_json(path: &Path) -> Result<Option<Named>, FileError> {
    let Some(json) = read_json(path)? else { return Ok(None) };
    entry(&json["chat_template"]).map_err(|problem| problem.of(path))
}

/// Templates as a configuration has them: a text, a list of names and templates, or an object.
pub fn entry(json: &Json) -> Result<Option<Named>, Problem> {
    let text = |json: &Json, name: String| match json {
        Json::String(text) => Ok(text.clone()),
        other => Err(Problem::entry(name, other, "a text")),
    };
    match json {
        Json::Null => Ok(None),
        Json::String(source) => Ok(Some(vec![(DEFAULT.into(), source.clone())])),
        Json::Array(all) => {
            let part = |at: usize, entry: &Json, part: &str| {
                text(&entry[part], format!("chat_template[{at}].{part}"))
            };
            let one = |(at, entry)| Ok((part(at, entry, "name")?, part(at, entry, "template")?));
            let mut named = Named::new();
            for (name, source) in all.iter().enumerate().map(one).collect::<Result<Named, Problem>>()? {
                named.retain(|(known, _)| *known != name); // the last one of a name counts
                named.push((name, source));
            }
            Ok(Some(named))
        }
        Json::Object(all) => {
            let one = |(name, json): (&String, &Json)| {
                Ok((name.clone(), text(json, format!("chat_template.{name}"))?))
            };
            all.iter().map(one).collect::<Result<Named, Problem>>().map(Some)
        }
        other => Err(Problem::entry("chat_template", other, "a text or a list")),
    }
}
