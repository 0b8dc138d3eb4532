//! Two texts as a unified diff.

use similar::TextDiff;

/// Lines around a change.
const CONTEXT: usize = 3;

/// What makes `new` out of `old`, with the lines around it; empty if they are the same.
pub fn unified(old: &str, new: &str, name: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    diff.unified_diff().context_radius(CONTEXT).header(name, &format!("{name} (repaired)")).to_string()
}
