//! Quizzes: questions in a TOML file, answers folded away.
//!
//! A question is a `fieldset` of radio buttons and a `details` with the answer. It works without a script:
//! the style sheet colours a chosen answer once the fold is open.

use std::path::Path;

use serde::Deserialize;

use crate::html::inline;

/// The questions of one file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quiz {
    /// In the order in which they are asked.
    question: Vec<Question>,
}

/// One question with one right answer. Texts may hold code between backticks and maths between dollars.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    /// What is asked.
    ask: String,
    /// The answers to choose from.
    choices: Vec<String>,
    /// Which choice is right, from 1.
    answer: usize,
    /// Why it is.
    why: String,
}

/// Reads `NAME.toml`.
///
/// # Errors
/// Where the file is missing, is no quiz, or names an answer that is not among the choices.
pub fn read(folder: &Path, name: &str) -> Result<Quiz, String> {
    let path = folder.join(format!("{name}.toml"));
    let text = crate::read(&path).map_err(|error| error.to_string())?;
    let quiz: Quiz = toml::from_str(&text).map_err(|error| format!("quiz `{name}`: {error}"))?;
    match quiz.question.iter().find(|q| !(1..=q.choices.len()).contains(&q.answer)) {
        Some(q) => Err(format!(
            "quiz `{name}`: answer {} of \"{}\" is not one of its {} choices",
            q.answer,
            q.ask,
            q.choices.len()
        )),
        None => Ok(quiz),
    }
}

impl Quiz {
    /// The quiz as HTML.
    ///
    /// # Errors
    /// Where a formula in it cannot be read.
    pub fn html(&self, name: &str) -> Result<String, String> {
        let questions = self.question.iter().enumerate().map(|(i, question)| question.html(name, i + 1));
        Ok(format!("<section class=\"quiz\">{}</section>", questions.collect::<Result<String, _>>()?))
    }
}

impl Question {
    fn html(&self, quiz: &str, number: usize) -> Result<String, String> {
        let group = format!("{quiz}-{number}");
        let choices = self.choices.iter().enumerate().map(|(i, text)| self.choice(&group, i + 1, text));
        Ok(format!(
            "<fieldset><legend>{number}. {}</legend>{}<details><summary>Answer</summary>\
             <p><b>{}.</b> {}</p></details></fieldset>",
            inline(&self.ask)?,
            choices.collect::<Result<String, _>>()?,
            letter(self.answer),
            inline(&self.why)?,
        ))
    }

    fn choice(&self, group: &str, number: usize, text: &str) -> Result<String, String> {
        let right = if number == self.answer { "is-right" } else { "is-wrong" };
        Ok(format!(
            "<label class=\"{right}\"><input type=\"radio\" name=\"{group}\"><span><b>{}.</b> {}</span></label>",
            letter(number),
            inline(text)?
        ))
    }
}

/// a, b, c ... for 1, 2, 3 ...
fn letter(number: usize) -> char {
    char::from(b'a' + u8::try_from(number - 1).unwrap_or(25).min(25))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_beyond_the_choices_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[[question]]\nask = \"q\"\nchoices = [\"a\", \"b\"]\nanswer = 3\nwhy = \"w\"\n";
        std::fs::write(folder.path().join("x.toml"), text).unwrap();
        let error = read(folder.path(), "x").unwrap_err();
        assert_eq!(error, "quiz `x`: answer 3 of \"q\" is not one of its 2 choices");
    }
}
