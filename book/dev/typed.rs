//! Numbers that prose types, held to the reports that it names.
//!
//! `{{#number NAME @WHICH}}` fills a number in where the book is built. Where a text types one itself - outside the
//! book, or rounded for its sentence - a comment right after the number says which one it is:
//! `1.6x<!-- number nf4.speedup @zen-2-cores -->`. The typed digits have to be those of the report's number, rounded to
//! as many places, in the typed unit.

use scorecard::Measurement;

use crate::Fault;
use crate::markdown::{Piece, line_of, pieces};
use crate::measured::{is, numbers};
use crate::results::Report;

const BEGIN: &str = "<!-- number ";
const END: &str = "-->";

/// The typed numbers of a Markdown file that its reports do not have.
pub fn faults(file: &str, markdown: &str, reports: &[Report]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for piece in pieces(markdown) {
        let Piece::Text(text) = piece else { continue };
        for (at, _) in text.match_indices(BEGIN) {
            let (inside, _) = text[at + BEGIN.len()..].split_once(END).unwrap_or((&text[at..], ""));
            if let Err(what) = held(&text[..at], inside.trim(), reports) {
                let tail = text.as_ptr() as usize - markdown.as_ptr() as usize + at;
                faults.push(Fault { at: format!("{file}:{}", line_of(markdown, &markdown[tail..])), what });
            }
        }
    }
    faults
}

/// Holds the number at the end of `before` to what the words of a comment name.
fn held(before: &str, words: &str, reports: &[Report]) -> Result<(), String> {
    let (name, which) = words.split_once(" @").ok_or_else(|| format!("`{words}` is no `NAME @WHICH`"))?;
    let report = reports.iter().find(|report| is(report, which));
    let report = report.ok_or_else(|| format!("`{words}`: no report is `{which}`"))?;
    let found = numbers(report).find(|(known, _)| *known == name);
    let (_, m) = found.ok_or_else(|| format!("results/{}.json has no measurement `{name}`", report.name))?;
    let (digits, unit) = typed(before).ok_or_else(|| format!("no number stands before `{words}`"))?;
    let number = digits.replace(',', "");
    let says: f64 = number.parse().map_err(|_| format!("`{digits}` before `{words}` is no number"))?;
    let follows = in_unit(m, unit).ok_or_else(|| format!("`{name}` is in `{}`, not in `{unit}`", m.unit))?;
    let places = number.split_once('.').map_or(0, |(_, places)| places.len());
    let rounded = format!("{follows:.places$}");
    let right = (says - follows).abs() <= 0.5 * 0.1_f64.powi(places as i32) * (1.0 + 1e-9);
    if right {
        Ok(())
    } else {
        Err(format!("`{name}` of {}: expected {rounded}, found {digits}", report.name))
    }
}

/// The number at the end of a text, and its unit.
fn typed(text: &str) -> Option<(&str, &str)> {
    let end = text.rfind(|c: char| c.is_ascii_digit())? + 1;
    let begin = text[..end]
        .rfind(|c: char| !matches!(c, '0'..='9' | '.' | ','))
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    let unit = text[end..].trim();
    (unit.chars().count() <= 5).then(|| (text[begin..end].trim_start_matches(['.', ',']), unit))
}

/// A measurement in the unit that a text types; none stands for its own.
fn in_unit(m: &Measurement, unit: &str) -> Option<f64> {
    let factor = match (m.unit.as_str(), unit) {
        (own, unit) if own == unit || unit.is_empty() => 1.0,
        ("us", "\u{b5}s") | ("x", "times") => 1.0,
        ("us", "ms") | ("ms", "s") => 1e-3,
        ("us", "s") => 1e-6,
        ("share", "%") => 100.0,
        ("B", "KiB") => 2.0_f64.powi(-10),
        ("B", "MiB") => 2.0_f64.powi(-20),
        ("B", "GiB") => 2.0_f64.powi(-30),
        _ => return None,
    };
    Some(m.value * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        let mut card = ::tests::fixture::solved();
        let m = |value, unit: &str| Measurement { value, unit: unit.into(), interval: None, samples: vec![] };
        card.challenges[0].measurements =
            [("nf4.a", m(1.628, "x")), ("nf4.b", m(4846.5, "us")), ("nf4.c", m(61_446_554.0, "B"))]
                .map(|(name, m)| (name.to_owned(), m))
                .into();
        let reports = [Report { name: "zen".into(), card }];
        faults("a.md", text, &reports).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_typed_number_is_that_of_its_report() {
        let right = "It is 1.63x<!-- number nf4.a @zen -->, 1.6<!-- number nf4.a @zen --> or 2\u{a0}times<!-- number \
                     nf4.a @zen -->; 4,847 \u{b5}s<!-- number nf4.b @zen --> are 4.8 ms<!-- number nf4.b @zen -->, and \
                     58.6 MiB<!-- number nf4.c @zen -->.";
        assert_eq!(of(right), [""; 0]);
    }

    #[test]
    fn one_that_is_not_is_told_with_its_line() {
        for (text, message) in [
            ("a\n1.62x<!-- number nf4.a @zen -->", "a.md:2: `nf4.a` of zen: expected 1.63, found 1.62"),
            ("5 us<!-- number nf4.a @zen -->", "a.md:1: `nf4.a` is in `x`, not in `us`"),
            ("1<!-- number nf4.z @zen -->", "a.md:1: results/zen.json has no measurement `nf4.z`"),
            ("1<!-- number nf4.a @t4 -->", "a.md:1: `nf4.a @t4`: no report is `t4`"),
            ("one<!-- number nf4.a @zen -->", "a.md:1: no number stands before `nf4.a @zen`"),
            ("1<!-- number nf4.a -->", "a.md:1: `nf4.a` is no `NAME @WHICH`"),
        ] {
            assert_eq!(of(text), [message]);
        }
    }

    #[test]
    fn code_and_other_comments_are_left_alone() {
        assert_eq!(of("`1<!-- number x -->` <!-- a word -->\n```text\n1<!-- number x -->\n```\n"), [""; 0]);
    }
}
