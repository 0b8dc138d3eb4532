//! `{{#name words}}`: the places in a chapter that the code fills in.

use std::path::Path;

use crate::results::Report;
use crate::{figure, maths, measured, profile, quiz, results, rubric, steps, tile, zoo};

/// Fills in the directives of a text that holds no code, and the formulas between them.
///
/// # Errors
/// One sentence on what cannot be filled in.
pub fn expand(text: &str, src: &Path) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, inside, after)) = next(rest) {
        out += &maths::expand(before, str::to_owned)?;
        let filled = fill(inside, src)?;
        out += &if inline(inside) { filled } else { format!("\n\n{filled}\n\n") };
        rest = after;
    }
    Ok(out + &maths::expand(rest, str::to_owned)?)
}

/// The first directive: (what stands before it, its inside, what follows).
fn next(text: &str) -> Option<(&str, &str, &str)> {
    let (before, from) = text.split_once("{{#")?;
    let (inside, after) = from.split_once("}}")?;
    Some((before, inside, after))
}

/// Whether what is filled in stands within a sentence.
fn inline(inside: &str) -> bool {
    inside.split_whitespace().next() == Some("number")
}

fn fill(inside: &str, src: &Path) -> Result<String, String> {
    let words: Vec<&str> = inside.split_whitespace().collect();
    match words[..] {
        ["rubric", name] => rubric::table(name),
        ["quiz", name] => quiz::read(&src.join("quizzes"), name).and_then(|quiz| quiz.html(name)),
        ["figure", name] => figure::inline(&src.join("figures"), name),
        ["stub", challenge, step] => steps::stub(src, challenge, step),
        ["hints", challenge, step] => steps::hints(src, challenge, step),
        ["results"] => results::read(&src.join("results")).and_then(|reports| results::page(&reports)),
        ["number" | "measured" | "plot" | "versions" | "cases", ref rest @ ..] if !rest.is_empty() => {
            let (reports, rest) = measured::chosen(results::read(&src.join("results"))?, rest);
            recorded(words[0], &reports, rest).unwrap_or_else(|| Err(unknown(inside)))
        }
        ["profile", name, ref rows @ ..] => profile::shown(&src.join("results"), name, rows),
        ["tile", challenge] => tile::program(challenge),
        ["zoo", part] => zoo::rows(part),
        _ => Err(unknown(inside)),
    }
}

fn unknown(inside: &str) -> String {
    format!("nothing fills in `{{{{#{inside}}}}}`")
}

/// What is filled in from recorded scorecards; nothing if the words do not fit.
fn recorded(kind: &str, reports: &[Report], rest: &[&str]) -> Option<Result<String, String>> {
    Some(match (kind, rest) {
        ("number", [name]) => measured::number(reports, name),
        ("measured", [_, ..]) => Ok(measured::measured(reports, rest)),
        ("plot", [challenge, name]) => Ok(measured::plot(reports, challenge, name)),
        ("versions", [challenge]) => Ok(measured::versions(reports, challenge)),
        ("cases", [challenge]) => Ok(measured::cases(reports, challenge)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_directive_is_named() {
        let error = expand("a {{#rubrik nf4}} b", Path::new("")).unwrap_err();
        assert_eq!(error, "nothing fills in `{{#rubrik nf4}}`");
        let error = expand("{{#plot nf4}}", Path::new("nowhere")).unwrap_err();
        assert_eq!(error, "nothing fills in `{{#plot nf4}}`");
    }

    #[test]
    fn a_number_stays_in_its_sentence() {
        let text = expand("It takes {{#number nf4.x @h100}} here.", Path::new("nowhere")).unwrap();
        assert_eq!(text, "It takes <em>(not measured yet)</em> here.");
    }
}
