//! *Evaluation*: every scorecard in `book/src/results`, rows by machines.
//!
//! A scorecard is what `cargo grader score --json` wrote; nothing on the page was typed. One that cannot be read, or
//! that contradicts itself, fails the book. One that another version wrote - other checks, other sentences, another
//! solution - is shown as such: this version cannot judge it again.

use std::path::Path;

use grader::About;
use grader::rubric::Rubric;
use scorecard::{Basis, Challenge, Machine, Measurement, Outcome, Row, Scorecard, Truth};

use crate::figure::framed;
use crate::html::escape;
use crate::rubric::signed;

/// A recorded scorecard and the name of its file.
#[derive(Debug)]
pub struct Report {
    /// The file's name without `.json`.
    pub name: String,
    /// What it holds.
    pub card: Scorecard,
}

/// Shown while nothing of what is asked for has been recorded.
pub(crate) const NOTHING: &str = "<p class=\"no-result\">No result has been recorded yet.</p>";

/// Reads every `*.json` of the folder, in the order of their names. A missing folder is an empty one.
///
/// # Errors
/// Where a file is no scorecard, or one that contradicts itself.
pub fn read(folder: &Path) -> Result<Vec<Report>, String> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    crate::files(folder, "json").map_err(|error| error.to_string())?.iter().map(|path| report(path)).collect()
}

fn report(path: &Path) -> Result<Report, String> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let text = crate::read(path).map_err(|error| error.to_string())?;
    let card = serde_json::from_str(&text).map_err(|error| format!("results/{name}.json: {error}"))?;
    verify(&card).map_err(|what| format!("results/{name}.json: {what}"))?;
    Ok(Report { name, card })
}

/// Holds a scorecard to its own samples, as `verify-report` does.
fn verify(card: &Scorecard) -> Result<(), String> {
    let found = grader::verify(card).findings;
    let contradictions = found.iter().filter(|finding| finding.about == About::Numbers);
    let contradictions: Vec<String> = contradictions.map(ToString::to_string).collect();
    if contradictions.is_empty() { Ok(()) } else { Err(contradictions.join("; ")) }
}

/// What is said of a report that this version did not write.
fn version(card: &Scorecard) -> &'static str {
    if grader::verify(card).findings.is_empty() {
        return "";
    }
    "<br><small>of an earlier version: follows from its own samples, not judged again</small>"
}

/// The plots of a challenge, each with its caption.
fn plots(challenge: &Challenge) -> Vec<(String, &'static str)> {
    figures::all(challenge).into_iter().map(|figure| (figure.svg, figure.caption)).collect()
}

/// The whole Evaluation page as Markdown with HTML blocks.
///
/// # Errors
/// None today; the signature is that of a directive.
pub fn page(reports: &[Report]) -> Result<String, String> {
    if reports.is_empty() {
        return Ok(NOTHING.into());
    }
    let mut page = format!("## Machines\n\n{}\n\n", machines(reports));
    for rubric in &grader::rubric::RUBRICS {
        if reports.iter().any(|report| challenge(report, rubric.name).is_some()) {
            page += &section(reports, rubric);
        }
    }
    Ok(page)
}

/// A challenge that a report built and holds.
pub(crate) fn challenge<'a>(report: &'a Report, name: &str) -> Option<&'a Challenge> {
    report.card.challenges.iter().find(|challenge| challenge.name == name && challenge.built)
}

fn machines(reports: &[Report]) -> String {
    let rows: String = reports.iter().map(machine).collect();
    table(&["report", "machine", "system", "attempt", "points", "on stand-ins", "not measured", "day"], &rows)
}

fn machine(report: &Report) -> String {
    let Scorecard { machine, attempt, points, possible, unmeasured, stand_in, .. } = &report.card;
    format!(
        "<tr><th><a href=\"results/{0}.json\">{0}</a>{5}</th><td class=\"machine\">{1}</td><td>{2} {3}</td><td>{attempt}</td>\
         <td>{points} of {possible}</td><td>{stand_in}</td><td>{unmeasured}</td><td>{4}</td></tr>",
        escape(&report.name),
        escape(&processor(machine)),
        escape(&grader::report::system(machine)),
        escape(&machine.arch),
        escape(&machine.date),
        version(&report.card),
        attempt = escape(attempt),
    )
}

/// A machine in words, the GPU that was used first.
pub(crate) fn processor(machine: &Machine) -> String {
    let Machine { cpu, cores, vector, cache_bytes, memory_bytes, gpu, .. } = machine;
    let gpu = gpu.as_ref().map_or(String::new(), |gpu| format!("{gpu}; "));
    let mut words = format!("{gpu}{cpu}, {cores} cores, {vector}");
    if *cache_bytes > 0 {
        words += &format!(", {} MiB last-level cache", cache_bytes >> 20);
    }
    if *memory_bytes > 0 {
        words += &format!(", {} GiB memory", memory_bytes >> 30);
    }
    words
}

/// One challenge: rows by machines, then what each machine measured.
fn section(reports: &[Report], rubric: &Rubric) -> String {
    let names: Vec<&str> = reports.iter().map(|report| report.name.as_str()).collect();
    let head: Vec<&str> = ["published line"].into_iter().chain(names).collect();
    let lines = rubric.lines.iter().enumerate().map(|(i, line)| {
        let cells: String = reports.iter().map(|report| cell(report, rubric.name, i)).collect();
        format!("<tr><th><code>{}</code></th>{cells}</tr>", escape(line.wording))
    });
    let devices: String = reports.iter().map(|report| device(report, rubric.name)).collect();
    let total: String = reports.iter().map(|report| total(report, rubric.name)).collect();
    let lines = std::iter::once(format!("<tr><th>ran on</th>{devices}</tr>")).chain(lines);
    let body = lines.collect::<String>() + &format!("<tr><th>points</th>{total}</tr>");
    let details: String = reports.iter().map(|report| measurements(report, rubric.name)).collect();
    format!("## {}. {}\n\n{}\n\n{details}", rubric.letter, rubric.title, table(&head, &body))
}

/// What a report's challenge ran on: its device, and the GPU's name.
fn device(report: &Report, name: &str) -> String {
    let Some(challenge) = challenge(report, name) else { return "<td>not built</td>".into() };
    let gpu = report.card.machine.gpu.as_deref().filter(|_| challenge.device.starts_with("cuda"));
    let name = gpu.and_then(|gpu| gpu.split(',').next()).map_or(String::new(), |name| format!(", {name}"));
    format!("<td><code>{}</code>{}</td>", escape(&challenge.device), escape(&name))
}

fn total(report: &Report, name: &str) -> String {
    challenge(report, name).map_or("<td>not built</td>".into(), |challenge| {
        format!("<td><b>{} of {}</b></td>", challenge.points, challenge.possible)
    })
}

fn cell(report: &Report, name: &str, line: usize) -> String {
    match challenge(report, name).and_then(|challenge| challenge.rows.get(line)) {
        Some(row) => row_cell(row),
        None => "<td>not built</td>".into(),
    }
}

fn row_cell(row: &Row) -> String {
    let truth = match row.fact {
        Truth::Met => "met",
        Truth::Unmet => "unmet",
        Truth::Unmeasured => "not measured",
    };
    let basis = match row.basis {
        Basis::AsPublished => "as published",
        Basis::StandIn => "stand-in",
    };
    let class = class(row);
    format!(
        "<td class=\"{class}\"><b>{truth} {}</b> <small>{basis}</small><br>{}</td>",
        signed(row.points),
        escape(&row.evidence)
    )
}

/// The colour of a cell: won, missed or lost, open. A line that can only take is won where it took nothing.
fn class(row: &Row) -> &'static str {
    match row.fact {
        Truth::Unmeasured => "open",
        _ if row.points > 0 || (row.points == 0 && row.worth == 0) => "won",
        _ => "lost",
    }
}

/// What one machine measured: plots first, then the numbers, folded.
fn measurements(report: &Report, name: &str) -> String {
    let Some(challenge) = challenge(report, name) else { return String::new() };
    let passed = challenge.checks.iter().filter(|check| check.outcome == Outcome::Passed).count();
    let plots: String = plots(challenge).iter().map(|(svg, caption)| framed(svg, caption) + "\n\n").collect();
    let numbers: String = challenge.measurements.iter().map(|(name, m)| number(name, m)).collect();
    format!(
        "### {}: {name}\n\n<p>{passed} of {} checks passed, on {}.</p>\n\n{plots}\
         <details><summary>Every number</summary>{}</details>\n\n",
        report.name,
        challenge.checks.len(),
        escape(&challenge.device),
        table(&["name", "value", "95 % interval", "samples"], &numbers)
    )
}

fn number(name: &str, m: &Measurement) -> String {
    format!(
        "<tr><th><code>{}</code></th><td>{}</td><td>{}</td><td>{}</td></tr>",
        escape(name),
        value(m),
        interval(m),
        m.samples.len()
    )
}

/// A number with its unit.
pub(crate) fn value(m: &Measurement) -> String {
    format!("{} {}", digits(m.value), escape(&m.unit))
}

/// The ends of the interval, in brackets.
pub(crate) fn interval(m: &Measurement) -> String {
    m.interval.map_or(String::new(), |[lo, hi]| format!("[{}, {}]", digits(lo), digits(hi)))
}

/// About four significant digits; whole numbers whole.
pub(crate) fn digits(x: f64) -> String {
    match x.abs() {
        _ if x.fract() == 0.0 => format!("{x}"),
        a if a >= 1000.0 => format!("{x:.0}"),
        a if a >= 100.0 => format!("{x:.1}"),
        a if a >= 10.0 => format!("{x:.2}"),
        _ => format!("{x:.3}"),
    }
}

/// A table of results.
pub(crate) fn table(head: &[&str], rows: &str) -> String {
    let head = head.iter().map(|name| format!("<th>{}</th>", escape(name))).collect::<Vec<_>>().concat();
    format!(
        "<div class=\"table-wrapper\"><table class=\"results\"><thead><tr>{head}</tr></thead>\
         <tbody>{rows}</tbody></table></div>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_folder_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let reports = read(folder.path()).unwrap();
        assert!(page(&reports).unwrap().contains("No result has been recorded yet"));
    }

    #[test]
    fn a_file_that_is_no_scorecard_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("laptop.json"), "{}").unwrap();
        assert!(read(folder.path()).unwrap_err().starts_with("results/laptop.json: missing field"));
    }

    #[test]
    fn numbers_keep_four_digits() {
        let shown: Vec<_> = [4.0, 1.23456, 12.3456, 123.456, 1234.56].map(digits).into();
        assert_eq!(shown, ["4", "1.235", "12.35", "123.5", "1235"]);
    }
}
