//! Challenge C's zoo as tables: what a program does, where that was seen, what `explain` says, what to write instead.
//!
//! Nothing of it is typed: every case is captured when the book is built.

use challenges::graph::zoo::{Case, Shows, zoo};
use challenges::graph::{Compile, Solution};
use compiler::front::capture::Capture;
use compiler::front::change::difference;
use compiler::front::explain::Break;
use reference::graph::Tape;
use reference::graph::interpret::Values;

use crate::html::{escape, inline};

/// The table of the `breaks`, or of the `recompilations`.
///
/// # Errors
/// Where the zoo has no such part, or a case cannot be captured.
pub fn rows(part: &str) -> Result<String, String> {
    let rows: Result<Vec<Option<String>>, String> = match part {
        "breaks" => zoo().iter().map(breaks).collect(),
        "recompilations" => zoo().iter().map(recompilations).collect(),
        _ => return Err(format!("the zoo has no part `{part}`")),
    };
    let second = if part == "breaks" { "what explain says" } else { "what changes" };
    let rows: String = rows?.into_iter().flatten().collect();
    Ok(format!(
        "<div class=\"table-wrapper\"><table class=\"zoo\"><thead><tr><th>the program</th><th>{second}</th>\
         <th>cure</th></tr></thead><tbody>{rows}</tbody></table></div>"
    ))
}

fn breaks(case: &Case) -> Result<Option<String>, String> {
    let Shows::Breaks { program, examples, .. } = &case.shows else { return Ok(None) };
    let found = record(case, program, &examples())?.breaks;
    let said = |one: &Break| format!("{}; {}", one.what, one.fact);
    let first = found.first().ok_or_else(|| format!("`{}` has no break", case.name))?;
    let more = match found.len() {
        1 => String::new(),
        count => format!(" ({count} breaks; this is the first)"),
    };
    row(case, &format!("{}{more}", said(first)), first.cure).map(Some)
}

fn recompilations(case: &Case) -> Result<Option<String>, String> {
    let Shows::Recompiles { numbers, program, examples, .. } = &case.shows else { return Ok(None) };
    let [a, b] = numbers.map(|number| record(case, &|tape: &Tape| program(tape, number), &examples(number)));
    let change = difference(&a?, &b?).ok_or_else(|| format!("`{}` has one graph", case.name))?;
    let said = format!("{}: `{}` becomes `{}`", change.what, change.was, change.is);
    row(case, &said, change.cure).map(Some)
}

fn record(case: &Case, program: &dyn Fn(&Tape), examples: &Values<f32>) -> Result<Capture, String> {
    Solution.capture("case", program, examples).map_err(|error| format!("`{}`: {error}", case.name))
}

fn row(case: &Case, said: &str, cure: &str) -> Result<String, String> {
    let name = format!("<b>{}</b><br>{}", escape(case.name), inline(case.seen)?);
    Ok(format!("<tr><td>{name}</td><td>{}</td><td>{}</td></tr>", inline(said)?, inline(cure)?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_is_in_one_of_the_tables() {
        let [breaks, changes] = ["breaks", "recompilations"].map(|part| super::rows(part).unwrap());
        let rows = |table: &str| table.matches("<tr><td>").count();
        assert_eq!(rows(&breaks) + rows(&changes), super::zoo().len());
        assert!(breaks.contains("<code>Params4bit.t</code> is called"), "{breaks}");
        assert!(super::rows("gnus").is_err());
    }
}
