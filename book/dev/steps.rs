//! A challenge's steps as the reader meets them: the stub and the hints.
//!
//! Both come from the challenge's own folder. The stub is made from `solution.rs` and not taken from
//! `exercise.rs`, which is the reader's text: a book built beside a half-done exercise still shows the
//! steps as they were.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::html::inline;

/// The hints of one step, from a nudge to nearly the code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hints {
    small: String,
    medium: String,
    large: String,
}

/// A step of `challenges/src/NAME/solution.rs` with its body taken out, as a block of Markdown.
///
/// The step `A.3` of `nf4` is what stands between the marks of the anchor `nf4-step-3`.
///
/// # Errors
/// Where the file or the anchor is missing, or holds no marked step.
pub fn stub(src: &Path, challenge: &str, step: &str) -> Result<String, String> {
    let path = file(src, challenge, "solution.rs");
    let text = crate::read(&path).map_err(|error| error.to_string())?;
    let anchor = format!("{challenge}-step-{}", step.rsplit('.').next().unwrap_or(step));
    let item =
        anchored(&text, &anchor).ok_or_else(|| format!("{} has no anchor `{anchor}`", path.display()))?;
    let stub = without_body(&item).ok_or_else(|| format!("anchor `{anchor}` holds no marked step"))?;
    Ok(format!("```rust,ignore\n{stub}```"))
}

/// The hints of a step, each folded away, the larger inside the smaller.
///
/// # Errors
/// Where `hints.toml` is missing, is not of this form, or has nothing for the step.
pub fn hints(src: &Path, challenge: &str, step: &str) -> Result<String, String> {
    let path = file(src, challenge, "hints.toml");
    let text = crate::read(&path).map_err(|error| error.to_string())?;
    let mut steps: BTreeMap<String, Hints> =
        toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let hints = steps.remove(step).ok_or_else(|| format!("{} has no hints for `{step}`", path.display()))?;
    let large = folded("A large hint", &inline(&hints.large)?, "");
    let medium = folded("A larger hint", &inline(&hints.medium)?, &large);
    Ok(folded(&format!("A hint for {step}"), &inline(&hints.small)?, &medium))
}

fn folded(summary: &str, html: &str, more: &str) -> String {
    format!("<details class=\"hint\"><summary>{summary}</summary><p>{html}</p>{more}</details>")
}

fn file(src: &Path, challenge: &str, name: &str) -> PathBuf {
    src.join("../../challenges/src").join(challenge).join(name)
}

/// The lines between an anchor's marks, without the indentation that they share.
fn anchored(text: &str, anchor: &str) -> Option<Vec<String>> {
    let is =
        |line: &&str, mark: &str| line.trim().strip_prefix(mark).is_some_and(|name| name.trim() == anchor);
    let mut lines = text.lines().skip_while(|line| !is(line, "// ANCHOR:"));
    lines.next()?;
    let lines: Vec<&str> = lines.take_while(|line| !is(line, "// ANCHOR_END:")).collect();
    let indent =
        lines.iter().filter(|line| !line.trim().is_empty()).map(|l| l.len() - l.trim_start().len()).min()?;
    Some(lines.iter().map(|line| line.get(indent..).unwrap_or("").to_owned()).collect())
}

/// The item of a step with `todo!` for its body: what stands from `// step A.1: ...` to the first line
/// that opens a block.
fn without_body(item: &[String]) -> Option<String> {
    let at = item.iter().position(|line| line.starts_with("// step "))?;
    let (_, sentence) = item[at].split_once(' ')?.1.split_once(' ')?;
    let end = item[at..].iter().position(|line| line.ends_with('{'))?;
    let head = item[at + 1..=at + end].join("\n");
    Some(format!("{head}\n    todo!(\"{sentence}\")\n}}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOLUTION: &str = "impl A {
    // ANCHOR: x-step-1
    // why: because
    // step X.1: do it
    #[inline]
    fn one(
        &self,
    ) {
        if true { work() }
    }
    // ANCHOR_END: x-step-1
}";

    #[test]
    fn a_stub_keeps_the_head_and_loses_the_body() {
        let stub = without_body(&anchored(SOLUTION, "x-step-1").unwrap()).unwrap();
        assert_eq!(stub, "#[inline]\nfn one(\n    &self,\n) {\n    todo!(\"X.1: do it\")\n}\n");
        assert_eq!(anchored(SOLUTION, "x-step-2"), None);
    }
}
