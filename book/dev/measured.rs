//! Recorded numbers where a chapter speaks of them.
//!
//! A number in a chapter is not typed: it is read out of a scorecard of `book/src/results`. Which of them is
//! said by a last word `@WHICH`: the report of that name, or those whose challenge ran on that device (`@cpu`,
//! `@cuda`). A number that a report lacks is an error, so a name that was mistyped or that has changed is found
//! when the book is built; one whose report has not been recorded yet says so on the page.

use std::collections::BTreeSet;

use figures::number::bytes;
use figures::timing;
use scorecard::{Challenge, Measurement};

use crate::figure::framed;
use crate::html::escape;
use crate::results::{NOTHING, Report, challenge, digits, interval, processor, table, value};

/// The reports that a last word `@WHICH` leaves, and the words before it.
pub fn chosen<'a>(reports: Vec<Report>, words: &'a [&'a str]) -> (Vec<Report>, &'a [&'a str]) {
    match words.split_last().and_then(|(last, rest)| Some((last.strip_prefix('@')?, rest))) {
        Some((which, rest)) => (reports.into_iter().filter(|report| is(report, which)).collect(), rest),
        None => (reports, words),
    }
}

/// Whether `@WHICH` names a report, or the device of one of its challenges.
pub(crate) fn is(report: &Report, which: &str) -> bool {
    let ran =
        |challenge: &Challenge| challenge.attempted && challenge.device.split(':').next() == Some(which);
    report.name == which || report.card.challenges.iter().any(ran)
}

/// One number, to stand within a sentence.
///
/// # Errors
/// Where a report is there and has no such number.
pub fn number(reports: &[Report], name: &str) -> Result<String, String> {
    let Some(report) = reports.first() else { return Ok("<em>(not measured yet)</em>".into()) };
    let found = numbers(report).find(|(known, _)| *known == name);
    let (_, m) = found.ok_or_else(|| format!("results/{}.json has no measurement `{name}`", report.name))?;
    Ok(in_words(m))
}

/// A number as a sentence has it.
fn in_words(m: &Measurement) -> String {
    match m.unit.as_str() {
        "us" => format!("{}\u{a0}\u{b5}s", digits(m.value)),
        "GB/s" => format!("{:.0}\u{a0}GB/s", m.value),
        "share" => format!("{:.1}\u{a0}%", m.value * 100.0),
        "x" => format!("{:.2}\u{a0}x", m.value),
        "count" => digits(m.value),
        "B" => bytes(m.value).replace(' ', "\u{a0}"),
        "relative" => format!("{:.1e}", m.value),
        unit => format!("{}\u{a0}{}", digits(m.value), escape(unit)),
    }
}

/// Numbers whose names begin with one of the given words: names by machines.
pub fn measured(reports: &[Report], prefixes: &[&str]) -> String {
    let wanted = |name: &&String| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let names: BTreeSet<&String> =
        reports.iter().flat_map(numbers).map(|(name, _)| name).filter(wanted).collect();
    if names.is_empty() {
        return NOTHING.into();
    }
    let head: Vec<&str> =
        ["measurement"].into_iter().chain(reports.iter().map(|report| report.name.as_str())).collect();
    let rows = names.into_iter().map(|name| {
        let cells: String = reports.iter().map(|report| cell(report, name)).collect();
        format!("<tr><th><code>{}</code></th>{cells}</tr>", escape(name))
    });
    table(&head, &rows.collect::<String>())
}

fn cell(report: &Report, name: &str) -> String {
    match numbers(report).find(|(n, _)| *n == name) {
        Some((_, m)) => format!("<td>{} {}</td>", value(m), interval(m)),
        None => "<td>not measured</td>".into(),
    }
}

/// All numbers of a report by their names.
pub(crate) fn numbers(report: &Report) -> impl Iterator<Item = (&String, &Measurement)> {
    report.card.challenges.iter().flat_map(|challenge| &challenge.measurements)
}

/// One figure of [`figures`] for each report that has what it needs, named by its machine.
pub fn plot(reports: &[Report], challenge: &str, name: &str) -> String {
    let plots: Vec<String> = reports.iter().filter_map(|report| plot_of(report, challenge, name)).collect();
    if plots.is_empty() { NOTHING.into() } else { plots.join("\n\n") }
}

fn plot_of(report: &Report, name: &str, figure: &str) -> Option<String> {
    let all = figures::all(challenge(report, name)?);
    let one = all.into_iter().find(|one| one.name == figure)?;
    let machine = escape(&processor(&report.card.machine));
    Some(framed(&one.svg, &format!("<b>{}</b> ({machine}). {}", escape(&report.name), one.caption)))
}

/// Every version of a challenge's staircase at its two sizes: time, rate, share of the last version's rate,
/// which is the machine's bound.
pub fn versions(reports: &[Report], name: &str) -> String {
    let tables: Vec<String> = reports.iter().filter_map(|report| versions_of(report, name)).collect();
    if tables.is_empty() { NOTHING.into() } else { tables.join("\n\n") }
}

fn versions_of(report: &Report, name: &str) -> Option<String> {
    let challenge = challenge(report, name)?;
    let names: Vec<&str> = challenge
        .measurements
        .keys()
        .filter_map(|key| key.strip_prefix(name)?.strip_prefix(".version_rate."))
        .collect();
    let last = names.last()?;
    let rows = names.iter().map(|version| {
        let cells: String = ["", "small_"].map(|size| rate_cells(challenge, size, version, last)).concat();
        format!("<tr><th><code>{}</code></th>{cells}</tr>", escape(version))
    });
    let head = ["version", "large", "", "of bound", "small", "", "of bound"];
    let machine = escape(&processor(&report.card.machine));
    let date = escape(&report.card.machine.date);
    let rows: String = rows.collect();
    Some(format!("<p><b>{}</b> ({machine}, {date})</p>\n\n{}", escape(&report.name), table(&head, &rows)))
}

fn rate_cells(challenge: &Challenge, size: &str, version: &str, last: &str) -> String {
    let of = |family: &str, version: &str| {
        challenge.measurements.get(&format!("{}.{size}{family}.{version}", challenge.name))
    };
    let (time, rate) = (of("version", version), of("version_rate", version));
    let bound = of("version_rate", last).map_or(f64::NAN, |m| m.value);
    match time.zip(rate) {
        Some((time, rate)) => format!(
            "<td>{}</td><td>{}</td><td>{:.1} %</td>",
            in_words(time),
            in_words(rate),
            rate.value / bound * 100.0
        ),
        None => "<td colspan=\"3\">not measured</td>".into(),
    }
}

/// The timed cases of a challenge: baseline, attempt, bound, share, speed-up with its interval.
pub fn cases(reports: &[Report], name: &str) -> String {
    let tables: Vec<String> = reports.iter().filter_map(|report| cases_of(report, name)).collect();
    if tables.is_empty() { NOTHING.into() } else { tables.join("\n\n") }
}

fn cases_of(report: &Report, name: &str) -> Option<String> {
    let challenge = challenge(report, name)?;
    let cases = timing::timings(challenge);
    if cases.is_empty() {
        return None;
    }
    let cell = |m: Option<&Measurement>| {
        m.map_or("<td>not measured</td>".into(), |m| {
            format!(
                "<td>{}{}</td>",
                in_words(m),
                m.interval.map_or(String::new(), |_| format!(" {}", interval(m)))
            )
        })
    };
    let row = |label: String, cells: [Option<&Measurement>; 5]| {
        let cells = cells.map(cell).concat();
        format!("<tr><th>{}</th>{cells}</tr>", escape(&label))
    };
    let rows = cases.iter().map(|case| {
        let cells = [case.baseline, case.attempt, case.bound, case.share, case.speedup];
        row(timing::label(case.case, "\u{d7}"), cells)
    });
    let total = timing::total(challenge).map(|total| {
        format!("<tr><th>published cases</th><td colspan=\"4\"></td>{}</tr>", cell(Some(total)))
    });
    let rows: String = rows.chain(total).collect();
    let head = ["case", "baseline", "attempt", "bound", "of bound", "speed-up [95 %]"];
    let machine = escape(&processor(&report.card.machine));
    let date = escape(&report.card.machine.date);
    Some(format!("<p><b>{}</b> ({machine}, {date})</p>\n\n{}", escape(&report.name), table(&head, &rows)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fixture's scorecard, on a GPU where `gpu` names one.
    fn report(name: &str, gpu: Option<&str>) -> Report {
        let mut card = ::tests::fixture::solved();
        card.machine.gpu = gpu.map(String::from);
        if gpu.is_some() {
            card.challenges[0].device = "cuda:0".into();
        }
        Report { name: name.into(), card }
    }

    fn two() -> Vec<Report> {
        vec![report("laptop", None), report("h100", Some("NVIDIA H100, 132 multiprocessors"))]
    }

    fn names(reports: &[Report]) -> Vec<&str> {
        reports.iter().map(|report| report.name.as_str()).collect()
    }

    #[test]
    fn the_last_word_chooses_reports_by_name_or_device() {
        for (which, want) in [("@h100", "h100"), ("@cuda", "h100"), ("@cpu", "laptop")] {
            let words = ["nf4.", which];
            let (left, words) = chosen(two(), &words);
            assert_eq!((names(&left), words), (vec![want], &["nf4."][..]));
        }
        assert_eq!(chosen(two(), &["nf4."]).0.len(), 2);
        assert!(chosen(two(), &["nf4.", "@t4"]).0.is_empty());
    }

    #[test]
    fn a_number_stands_within_a_sentence() {
        let reports = two();
        assert_eq!(number(&[], "nf4.speedup").unwrap(), "<em>(not measured yet)</em>");
        assert!(number(&reports, "nf4.speedup").unwrap().ends_with("\u{a0}x"));
        assert_eq!(
            number(&reports, "nf4.gone").unwrap_err(),
            "results/laptop.json has no measurement `nf4.gone`"
        );
    }

    #[test]
    fn bytes_and_small_numbers_are_readable() {
        let of = |value: f64, unit: &str| Measurement {
            value,
            unit: unit.into(),
            interval: None,
            samples: vec![],
        };
        assert_eq!(in_words(&of(1572864.0, "B")), "1.50\u{a0}MiB");
        assert_eq!(in_words(&of(2.34e-8, "relative")), "2.3e-8");
    }

    #[test]
    fn nothing_recorded_is_said() {
        assert_eq!(measured(&[], &["nf4."]), NOTHING);
        assert_eq!(plot(&[], "nf4", "staircase"), NOTHING);
        assert_eq!(versions(&[], "nf4"), NOTHING);
        assert_eq!(cases(&[], "nf4"), NOTHING);
    }

    #[test]
    fn every_timed_case_has_a_row() {
        let table = cases(&two(), "nf4");
        assert_eq!(table.matches("4096 \u{d7} 14336 bf16").count(), 2, "{table}");
        assert!(table.contains("NVIDIA H100") && table.contains("published cases"), "{table}");
    }

    #[test]
    fn a_version_stands_beside_the_bound() {
        let mut report = report("h100", Some("NVIDIA H100"));
        let m = |value, unit: &str| Measurement { value, unit: unit.into(), interval: None, samples: vec![] };
        let numbers = &mut report.card.challenges[0].measurements;
        for (name, us, rate) in [("01-naive", 300.0, 500.0), ("99-device-copy", 50.0, 2000.0)] {
            numbers.insert(format!("nf4.version.{name}"), m(us, "us"));
            numbers.insert(format!("nf4.version_rate.{name}"), m(rate, "GB/s"));
        }
        let table = versions(&[report], "nf4");
        assert!(table.contains("<td>300\u{a0}\u{b5}s</td><td>500\u{a0}GB/s</td><td>25.0 %</td>"), "{table}");
        assert!(table.contains("not measured"), "the small size was not recorded: {table}");
    }
}
