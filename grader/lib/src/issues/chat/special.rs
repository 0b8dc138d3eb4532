//! D.3: special tokens in what users wrote.

use challenges::issues::chat::Steps;

use super::{Check, Rows, python, same_text};
use crate::random::Random;

/// What breaks a token in texts that are not drawn.
const MARK: char = '\u{2060}';

/// What breaks a drawn one: a step puts in what it is given.
const MARKS: [char; 4] = [MARK, '\u{200c}', '\u{f0002}', '|'];

pub(super) const CHECKS: &Rows<Check> = &[
    ("none", |steps, _| rows(steps, "none")),
    ("one", |steps, _| rows(steps, "one")),
    ("inside-another", |steps, _| rows(steps, "inside-another")),
    ("one-character", |steps, _| rows(steps, "one-character")),
    ("repeated", |steps, _| rows(steps, "repeated")),
    ("drawn", |steps, random| (0..500).try_for_each(|_| drawn(steps, random))),
];

/// Texts, special tokens, and the text without them.
fn rows(steps: &Steps, check: &str) -> Result<(), String> {
    for row in python::rows("defused", check) {
        let special: Vec<&str> = row[1].as_array().into_iter().flatten().map(python::text).collect();
        let (text, want) = (python::text(&row[0]), python::text(&row[2]).replace(MARK, "|"));
        let what = format!("{text:?} with the tokens {special:?} and | for the mark");
        same_text(&what, &steps.chat().defuse(text, &special, MARK).replace(MARK, "|"), &want)?;
    }
    Ok(())
}

/// Nothing of a drawn vocabulary is left, and there is no mark that is not needed.
fn drawn(steps: &Steps, random: &mut Random) -> Result<(), String> {
    let alphabet = ['<', '>', 'a', 'é'];
    let mut text = |least: usize, most: usize| -> String {
        (0..least + random.below(most)).map(|_| alphabet[random.below(4)]).collect()
    };
    let special: Vec<String> = (0..3).map(|_| text(1, 3)).collect();
    let special: Vec<&str> = special.iter().map(String::as_str).collect();
    let text = text(0, 12);
    let mark = MARKS[random.below(4)];
    let got = steps.chat().defuse(&text, &special, mark);
    let shown = || format!("{text:?} with the tokens {special:?} and {mark:?} for the mark became {got:?}");
    if let Some(left) = special.iter().find(|token| got.contains(**token)) {
        return Err(format!("{}, which still holds {left:?}", shown()));
    }
    let begins = |(at, c): (usize, char)| {
        let here = special.iter().filter(|token| text[at..].starts_with(**token));
        here.map(|token| token.len() == c.len_utf8()).max()
    };
    let want: String = text
        .char_indices()
        .flat_map(|(at, c)| match begins((at, c)) {
            None => vec![c],
            Some(false) => vec![c, mark],
            Some(true) => vec![mark],
        })
        .collect();
    same_text(&shown(), &got, &want)
}
