//! A challenge's steps as the reader meets them: the stub and the hints.
//!
//! Both come from the challenge's own folder. The stub is derived from the solution by the one rule of
//! [`grader::stub`] and not taken from the exercise, which is the reader's text: a book built beside a
//! half-done exercise still shows the steps as they were. A challenge may have a solution in Rust, one in CUDA
//! C++, or both; a step belongs to the one that marks it. A part of challenge D is named like a challenge, and lies in
//! `issues`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use grader::stub::{Language, derive, steps};
use serde::Deserialize;

use crate::html::inline;

/// The texts that a challenge's folder may hold, what each is written in, and what a page calls that language.
const SOLUTIONS: [(&str, Language, &str); 2] =
    [("solution.rs", Language::Rust, "rust,ignore"), ("solution.cu", Language::Cuda, "cpp")];

/// The hints of one step, from a nudge to nearly the code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hints {
    small: String,
    medium: String,
    large: String,
}

/// A step of a challenge with its body taken out, as a block of Markdown.
///
/// The step `A.3` of `nf4` is what stands between the marks of the anchor `nf4-step-3`, in the solution that
/// has a marker of that step.
///
/// # Errors
/// Where no solution marks the step, the anchor is missing, or no stub can be derived from the file.
pub fn stub(src: &Path, challenge: &str, step: &str) -> Result<String, String> {
    let marks = |(name, _, _): &(&str, Language, &str)| {
        let text = crate::read(&file(src, challenge, name)).unwrap_or_default();
        steps(&text).iter().any(|known| known.name == step)
    };
    let found = SOLUTIONS.iter().find(|solution| marks(solution));
    let (name, language, shown) =
        found.ok_or_else(|| format!("no solution of {challenge} marks `{step}`"))?;
    let path = file(src, challenge, name);
    let text = crate::read(&path).map_err(|error| error.to_string())?;
    let stub = derive(&text, *language).map_err(|error| format!("{}: {error}", path.display()))?;
    let anchor = format!("{challenge}-step-{}", step.rsplit('.').next().unwrap_or(step));
    let item =
        anchored(&stub, &anchor).ok_or_else(|| format!("{} has no anchor `{anchor}`", path.display()))?;
    Ok(format!("```{shown}\n{item}\n```"))
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
    let all = src.join("../../challenges/src");
    let part = all.join("issues").join(challenge);
    let folder = if part.is_dir() { part } else { all.join(challenge) };
    folder.join(name)
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

    // step X.2: do more
    fn two(&self) {}
}
";

    const KERNELS: &str = "// ANCHOR: x-step-3
// why: because
// step X.3: a helper
__device__ int half_of(int x) { return x / 2; }

// step X.3: the kernel
__global__ void three(int* out) { out[0] = half_of(4); }
LAUNCH(three, 32, 1, 0, 0, 0);
// ANCHOR_END: x-step-3
";

    /// A workbook whose only challenge is `x`, and its book's sources.
    fn workbook(solutions: &[(&str, &str)]) -> (tempfile::TempDir, std::path::PathBuf) {
        placed("x", solutions)
    }

    /// A workbook whose only solutions lie in this folder.
    fn placed(at: &str, solutions: &[(&str, &str)]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (src, challenge) =
            (folder.path().join("book/src"), folder.path().join("challenges/src").join(at));
        std::fs::create_dir_all(&src).unwrap();
        std::fs::create_dir_all(&challenge).unwrap();
        for (name, text) in solutions {
            std::fs::write(challenge.join(name), text).unwrap();
        }
        (folder, src)
    }

    #[test]
    fn a_stub_is_what_the_reader_finds_in_the_exercise() {
        let (_folder, src) = workbook(&[("solution.rs", SOLUTION)]);
        let first = super::stub(&src, "x", "X.1").unwrap();
        assert!(
            first.starts_with(
                "```rust,ignore\n// step X.1: do it\n#[inline]\nfn one(&self) {\n    todo!(\"X.1"
            ),
            "{first}"
        );
        assert!(first.ends_with(")\n}\n```") && !first.contains("work"), "{first}");
        assert!(super::stub(&src, "x", "X.2").unwrap_err().ends_with("has no anchor `x-step-2`"));
    }

    #[test]
    fn a_step_is_found_in_the_solution_that_marks_it() {
        let (_folder, src) = workbook(&[("solution.rs", SOLUTION), ("solution.cu", KERNELS)]);
        let third = super::stub(&src, "x", "X.3").unwrap();
        let want = "```cpp\n// step X.3: a helper\n__device__ int half_of(int x) {\n    TODO(\"X.3: a helper\");\n}\n";
        assert!(third.starts_with(want), "{third}");
        assert!(third.contains("TODO(\"X.3: the kernel\");\n}\nLAUNCH(three, 32"), "{third}");
        assert!(super::stub(&src, "x", "X.1").unwrap().starts_with("```rust"));
        assert_eq!(super::stub(&src, "x", "X.4").unwrap_err(), "no solution of x marks `X.4`");
    }

    #[test]
    fn a_part_of_the_open_issues_is_found_by_its_own_name() {
        let (_folder, src) = placed("issues/x", &[("solution.rs", SOLUTION)]);
        assert!(super::stub(&src, "x", "X.1").unwrap().starts_with("```rust,ignore\n// step X.1: do it"));
        let hints = src.join("../../challenges/src/issues/x/hints.toml");
        std::fs::write(hints, "[\"X.1\"]\nsmall = \"s\"\nmedium = \"m\"\nlarge = \"l\"\n").unwrap();
        assert!(super::hints(&src, "x", "X.1").unwrap().contains("A hint for X.1"));
    }

    #[test]
    fn a_challenge_may_be_in_cuda_alone() {
        let (_folder, src) = workbook(&[("solution.cu", KERNELS)]);
        assert!(super::stub(&src, "x", "X.3").unwrap().starts_with("```cpp"));
    }
}
