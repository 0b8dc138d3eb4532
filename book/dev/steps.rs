//! A challenge's steps as the reader meets them: the stub and the hints.
//!
//! Both come from the challenge's own folder. The stub is derived from `solution.rs` by the one rule of
//! [`grader::stub`] and not taken from `exercise.rs`, which is the reader's text: a book built beside a
//! half-done exercise still shows the steps as they were.

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
/// Where the file or the anchor is missing, or no stub can be derived from the file.
pub fn stub(src: &Path, challenge: &str, step: &str) -> Result<String, String> {
    let path = file(src, challenge, "solution.rs");
    let text = crate::read(&path).map_err(|error| error.to_string())?;
    let stub = grader::stub::derive(&text, grader::stub::Language::Rust)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let anchor = format!("{challenge}-step-{}", step.rsplit('.').next().unwrap_or(step));
    let item =
        anchored(&stub, &anchor).ok_or_else(|| format!("{} has no anchor `{anchor}`", path.display()))?;
    Ok(format!("```rust,ignore\n{item}\n```"))
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
fn anchored(text: &str, anchor: &str) -> Option<String> {
    let is =
        |line: &&str, mark: &str| line.trim().strip_prefix(mark).is_some_and(|name| name.trim() == anchor);
    let mut lines = text.lines().skip_while(|line| !is(line, "// ANCHOR:"));
    lines.next()?;
    let lines: Vec<&str> = lines.take_while(|line| !is(line, "// ANCHOR_END:")).collect();
    let indent =
        lines.iter().filter(|line| !line.trim().is_empty()).map(|l| l.len() - l.trim_start().len()).min()?;
    Some(lines.iter().map(|line| line.get(indent..).unwrap_or("")).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    const SOLUTION: &str = "impl Solution {
    // ANCHOR: x-step-1
    // why: because
    // step X.1: do it
    #[inline]
    fn one(&self) {
        if true { work() }
    }
    // ANCHOR_END: x-step-1
}
";

    #[test]
    fn a_stub_is_what_the_reader_finds_in_the_exercise() {
        let folder = tempfile::tempdir().unwrap();
        let src = folder.path().join("book/src");
        std::fs::create_dir_all(&src).unwrap();
        std::fs::create_dir_all(folder.path().join("challenges/src/x")).unwrap();
        std::fs::write(folder.path().join("challenges/src/x/solution.rs"), SOLUTION).unwrap();
        let stub = |step| super::stub(&src, "x", step);
        let first = stub("X.1").unwrap();
        assert!(
            first.starts_with(
                "```rust,ignore\n// step X.1: do it\n#[inline]\nfn one(&self) {\n    todo!(\"X.1"
            ),
            "{first}"
        );
        assert!(first.ends_with(")\n}\n```") && !first.contains("work"), "{first}");
        assert!(stub("X.2").unwrap_err().ends_with("has no anchor `x-step-2`"));
    }
}
