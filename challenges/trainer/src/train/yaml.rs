//! A config in YAML, as TRL's users have it: recognised, and its first setting written as the TOML that is expected.
//!
//! No YAML is read here: of its forms a plain or quoted value, a list in brackets and a list of lines with dashes are
//! understood, which is what TRL's own configs are made of.

use std::iter::Peekable;
use std::path::Path;

use toml::{Table, Value};

/// What is expected in place of a text that is no TOML; `None` if it is not in YAML, either, by the name of its file or
/// its first line.
pub fn expected(path: &Path, text: &str) -> Option<String> {
    let is_named = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let mut lines = (1_usize..).zip(text.lines()).filter(|(_, line)| !is_empty(line)).peekable();
    let is_yaml = lines.peek().is_some_and(|(_, line)| setting(line).is_some());
    if !is_named && !is_yaml {
        return None;
    }
    let found = "expected a config in TOML, found YAML";
    Some(match first(&mut lines) {
        Some((number, line)) => format!("{found}; in TOML line {number} would be: {line}"),
        None => found.to_owned(),
    })
}

/// The number of the first setting that has a value, and the setting in TOML.
fn first<'a>(lines: &mut Peekable<impl Iterator<Item = (usize, &'a str)>>) -> Option<(usize, String)> {
    while let Some((number, line)) = lines.next() {
        let Some((key, value)) = setting(line) else { continue };
        let value = if value.is_empty() { list(lines) } else { scalar(value) };
        if let Some(value) = value {
            return Some((number, format!("{key} = {value}")));
        }
    }
    None
}

/// A line without a setting: empty, a comment, or the beginning of a document.
fn is_empty(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#') || line == "---"
}

/// A key and the text of its value, at the beginning of a line.
fn setting(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    let is_apart = value.is_empty() || value.starts_with([' ', '\t']);
    let value = value.trim();
    (is_key && is_apart).then(|| (key, if value.starts_with('#') { "" } else { value }))
}

/// The items of the lines that begin with a dash.
fn list<'a>(lines: &mut Peekable<impl Iterator<Item = (usize, &'a str)>>) -> Option<Value> {
    let mut items = Vec::new();
    while let Some(item) = lines.peek().and_then(|(_, line)| line.trim().strip_prefix("- ")) {
        items.push(scalar(item.trim())?);
        lines.next();
    }
    (!items.is_empty()).then_some(Value::Array(items))
}

/// A value as TOML has it; `None` if it is null or a form that is not understood.
///
/// Source: YAML 1.2.2, section 10.3.2, "Tag Resolution" of the core schema.
fn scalar(text: &str) -> Option<Value> {
    if let Some(value) = toml_value(text) {
        return Some(value); // numbers, quoted texts, lists of those; comments are alike
    }
    let text = text.split(" #").next().unwrap_or_default().trim_end();
    if let Some(items) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let items = items.split(',').map(str::trim).filter(|item| !item.is_empty());
        return items.map(scalar).collect::<Option<Vec<Value>>>().map(Value::Array);
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => None,
        "True" | "TRUE" => Some(true.into()),
        "False" | "FALSE" => Some(false.into()),
        _ if text.starts_with(['{', '&', '*', '!', '|', '>']) => None,
        _ if text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
            let whole = text.parse().map(Value::Integer);
            Some(whole.or_else(|_| text.parse().map(Value::Float)).unwrap_or_else(|_| text.into()))
        }
        _ => Some(text.into()),
    }
}

fn toml_value(text: &str) -> Option<Value> {
    format!("v = {text}").parse::<Table>().ok()?.remove("v")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Option<String> {
        expected(Path::new("config.toml"), text).map(|message| {
            let (_, line) = message.rsplit_once("would be: ").unwrap_or_default();
            line.to_owned()
        })
    }

    #[test]
    fn the_first_setting_is_shown_as_toml() {
        for (yaml, toml) in [
            ("model_name_or_path: Qwen/Qwen2.5-0.5B", "model_name_or_path = \"Qwen/Qwen2.5-0.5B\""),
            ("# a run\n---\n\nlearning_rate: 2.0e-4 # large", "learning_rate = 0.0002"),
            ("adam_epsilon: .5", "adam_epsilon = 0.5"),
            ("packing: True", "packing = true"),
            ("output_dir: 'a \"b\"'", "output_dir = 'a \"b\"'"),
            ("lora_target_modules: [q_proj, v_proj]", "lora_target_modules = [\"q_proj\", \"v_proj\"]"),
            (
                "lora_target_modules:\n  - q_proj\n  - v_proj\nseed: 1",
                "lora_target_modules = [\"q_proj\", \"v_proj\"]",
            ),
            ("dataset_config: ~\nseed: 1", "seed = 1"),
            ("lora_r:\n  nested: 1\nseed: 1\n", "seed = 1"),
            ("trainable_token_indices: null\n", ""),
        ] {
            assert_eq!(line(yaml).as_deref(), Some(toml), "{yaml}");
        }
    }

    #[test]
    fn what_begins_as_toml_is_toml_with_a_mistake() {
        for text in ["seed = 1\nlearning_rate: 1e-4", "[train]\na: 1", "", "seed", "a:b", "a b: 1"] {
            assert_eq!(line(text), None, "{text}");
        }
        assert!(expected(Path::new("config.yml"), "[train").is_some());
    }
}
