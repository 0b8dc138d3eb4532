//! `{{#name words}}`: the places in a chapter that the code fills in.

use std::path::Path;

use crate::{figure, maths, quiz, results, rubric, steps, tile};

/// Fills in the directives of a text that holds no code, and the formulas between them.
///
/// # Errors
/// One sentence on what cannot be filled in.
pub fn expand(text: &str, src: &Path) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, inside, after)) = next(rest) {
        out += &maths::expand(before, str::to_owned)?;
        out += &format!("\n\n{}\n\n", fill(inside, src)?);
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

fn fill(inside: &str, src: &Path) -> Result<String, String> {
    let words: Vec<&str> = inside.split_whitespace().collect();
    match words[..] {
        ["rubric", name] => rubric::table(name),
        ["quiz", name] => quiz::read(&src.join("quizzes"), name).and_then(|quiz| quiz.html(name)),
        ["figure", name] => figure::inline(&src.join("figures"), name),
        ["stub", challenge, step] => steps::stub(src, challenge, step),
        ["hints", challenge, step] => steps::hints(src, challenge, step),
        ["results"] => results::read(&src.join("results")).and_then(|reports| results::page(&reports)),
        ["measured", ref names @ ..] if !names.is_empty() => {
            results::read(&src.join("results")).map(|reports| results::measured(&reports, names))
        }
        ["plot", challenge, name] => {
            results::read(&src.join("results")).map(|reports| results::plot(&reports, challenge, name))
        }
        ["tile", challenge] => tile::program(challenge),
        _ => Err(format!("nothing fills in `{{{{#{inside}}}}}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_directive_is_named() {
        let error = expand("a {{#rubrik nf4}} b", Path::new("")).unwrap_err();
        assert_eq!(error, "nothing fills in `{{#rubrik nf4}}`");
    }
}
