//! Marks around the assistant's text.
//!
//! The body of the loop over messages is caught as a text. A turn of the assistant is cut after the words that begin
//! every such turn, which the template itself writes when it is asked for the beginning of one; what follows them is
//! what a model writes, up to and with the end of the turn, and is put between marks. The body stays as it is.

use super::prelude::{free, quoted};
use super::scan::{Loop, loops, tags};

/// `source` with the marks that it has taken out; `None` if it has none.
///
/// A tag becomes a condition that holds, so white space around it goes as before.
pub(super) fn unmarked(source: &str) -> Option<String> {
    let mut out = source.to_string();
    let marks = tags(source).into_iter().rev();
    let marks = marks.filter(|tag| matches!(tag.word.as_str(), "generation" | "endgeneration"));
    let mut any = false;
    for tag in marks {
        let word = if tag.word == "generation" { " if true " } else { " endif " };
        out.replace_range(tag.inside, word);
        any = true;
    }
    any.then_some(out)
}

/// The most loops that are tried, and the most names that an item of one is given.
const MOST: [usize; 2] = [24, 4];

/// Every way to mark a turn that begins with `head`: one loop at a time, then all outer loops. With `content` a turn
/// that begins otherwise is cut before the message's own text.
pub(super) fn marked(source: &str, head: &str, content: bool) -> impl Iterator<Item = String> {
    let about_roles = |found: &Loop| source.get(found.body.clone()).is_some_and(|body| body.contains("role"));
    let found: Vec<Loop> = loops(source).into_iter().filter(about_roles).take(MOST[0]).collect();
    let outer = found.iter().filter(|found| found.depth == 0);
    let outer: Vec<(Loop, String)> =
        outer.filter_map(|found| Some((found.clone(), found.names.last()?.clone()))).collect();
    let single = found.into_iter().flat_map(|found| {
        let names = found.names.clone().into_iter().take(MOST[1]);
        names.map(move |name| vec![(found.clone(), name)]).collect::<Vec<_>>()
    });
    let together = (outer.len() > 1).then_some(outer);
    let turn = free(source, "turn");
    single.chain(together).map(move |loops| wrapped(source, &turn, &loops, head, content))
}

fn wrapped(source: &str, turn: &str, loops: &[(Loop, String)], head: &str, content: bool) -> String {
    let mut out = source.to_string();
    for (found, name) in loops.iter().rev() {
        let branches = branches(name, turn, head, content);
        out.insert_str(found.body.end, &close(found, &branches, turn, indent(source, found.body.end)));
        out.insert_str(found.body.start, &format!("{{% set {turn} {}%}}", found.after_open));
    }
    out
}

/// The white space before a tag, if it begins its line.
fn indent(source: &str, at: usize) -> &str {
    let before = source.get(..at).unwrap_or_default();
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    let space = before.get(line..).unwrap_or_default();
    if space.trim().is_empty() { space } else { "" }
}

/// For each way in which a turn may begin: when it does so, the words at which it is cut, and whether they are left
/// outside.
fn branches(name: &str, turn: &str, head: &str, content: bool) -> Vec<(String, String, bool)> {
    let assistant = format!("{name}.role == 'assistant'");
    let mut all = Vec::new();
    if !head.is_empty() {
        let head = quoted(head);
        all.push((format!("{assistant} and {head} in {turn}"), head, true));
    }
    if content {
        let given = format!("{name}.content");
        let own = format!("({given} if {given} is string else {given}[0].text)");
        let holds =
            format!("{given} and {given} is sequence and {own} is string and {own} and {own} in {turn}");
        all.push((format!("{assistant} and {holds}"), own, false));
    }
    all
}

/// The end of a loop's body: a turn is cut at the first branch that fits it.
fn close(found: &Loop, branches: &[(String, String, bool)], turn: &str, indent: &str) -> String {
    let mut lines = vec![format!("{{%{} endset -%}}", found.before_close)];
    for (at, (holds, cut, outside)) in branches.iter().enumerate() {
        let word = if at == 0 { "if" } else { "elif" };
        let (head, rest) = if *outside {
            (format!(" ~ {cut}"), String::new())
        } else {
            (String::new(), format!("{cut} ~ "))
        };
        lines.extend([
            format!("{{%- {word} {holds} -%}}"),
            format!("    {{{{- {turn}.split({cut}, 1)[0]{head} -}}}}"),
            "    {%- generation -%}".to_string(),
            format!("        {{{{- {rest}{turn}.split({cut}, 1)[1] -}}}}"),
            "    {%- endgeneration -%}".to_string(),
        ]);
    }
    lines.extend([
        "{%- else -%}".into(),
        format!("    {{{{- {turn} -}}}}"),
        "{%- endif -%}".into(),
        String::new(),
    ]);
    lines.join(&format!("\n{indent}"))
}
