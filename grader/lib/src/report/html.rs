//! The scorecard as one HTML file: nothing is loaded, nothing runs, it can be mailed.
//!
//! This file decides what is said, the template (`scorecard.html.jinja`) where it stands. Escaping is on
//! for everything that the template prints; the only text it takes as markup are the figures, which
//! [`crate::figure`] escapes itself. A content security policy forbids scripts and requests besides, so a
//! report of somebody else's attempt is safe to open. Light and dark follow the reader's system.

use std::collections::BTreeSet;

use figures::beside;
use figures::number::{Time, digits};
use figures::timing::{self, Timing};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, Value};
use serde::Serialize;

use super::{Finding, Tone, amount, clean, findings, idle, points, ratio, title, truth};
use crate::rubric::THRESHOLDS;
use crate::scorecard::{Basis, Challenge, Guard, Measurement, Row, Scorecard};

/// What the template sees of a scorecard; every foreign text is cleaned.
#[derive(Serialize)]
struct Page {
    points: i32,
    possible: i32,
    total: String,
    standing: String,
    bar: Vec<Cell>,
    thresholds: Vec<Mark>,
    about: Vec<(&'static str, String)>,
    guards: String,
    tripped: Vec<Watch>,
    watches: Vec<Watch>,
    challenges: Vec<Part>,
    idle: Vec<(String, String, String)>,
}

/// A stretch of the bar of points, in percent of what is possible.
#[derive(Serialize)]
struct Cell {
    kind: &'static str,
    meaning: String,
    width: f64,
}

#[derive(Serialize)]
struct Mark {
    value: i32,
    left: f64,
    passed: bool,
}

#[derive(Serialize)]
struct Watch {
    challenge: String,
    name: String,
    state: &'static str,
    detail: String,
}

/// A challenge with something to show.
#[derive(Serialize)]
struct Part {
    letter: String,
    name: String,
    title: &'static str,
    device: String,
    points: i32,
    possible: i32,
    rows: Vec<Line>,
    stand_ins: bool,
    figures: Vec<Picture>,
    unit: &'static str,
    times: Vec<[String; 7]>,
    speedup: Option<String>,
    way: Option<String>,
    versus: Vec<[String; 4]>,
    heads: [&'static str; 6],
    beside: Vec<[String; 6]>,
    note: &'static str,
    counters: Vec<(&'static str, String)>,
    counts: Vec<String>,
    tally: String,
    findings: Vec<Note>,
}

#[derive(Serialize)]
struct Line {
    tone: &'static str,
    symbol: &'static str,
    wording: String,
    fact: &'static str,
    points: String,
    stand_in: bool,
    evidence: String,
}

#[derive(Serialize)]
struct Picture {
    caption: &'static str,
    svg: Value,
}

#[derive(Serialize)]
struct Note {
    outcome: &'static str,
    names: String,
    detail: String,
    replay: String,
    fault: bool,
}

/// The whole scorecard as a document of its own.
pub fn render(card: &Scorecard) -> Result<String, Error> {
    let mut env = Environment::new();
    env.set_auto_escape_callback(|_| AutoEscape::Html);
    env.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    env.add_template("scorecard", include_str!("scorecard.html.jinja"))?;
    env.get_template("scorecard")?.render(Serde(page(card)))
}

fn page(card: &Scorecard) -> Page {
    let (idle, shown): (Vec<_>, Vec<_>) = card.challenges.iter().partition(|c| idle(c).is_some());
    Page {
        points: card.points,
        possible: card.possible,
        total: super::total(card),
        standing: super::thresholds(card.points),
        bar: bar(card),
        thresholds: THRESHOLDS.map(|value| mark(value, card)).into(),
        about: about(card),
        guards: super::guards(card),
        tripped: card.guards.iter().filter(|guard| guard.tripped).map(watch).collect(),
        watches: card.guards.iter().map(watch).collect(),
        challenges: shown.into_iter().map(part).collect(),
        idle: idle
            .into_iter()
            .map(|c| (clean(&c.letter), clean(&c.name), clean(&super::idle(c).unwrap_or_default())))
            .collect(),
    }
}

fn about(card: &Scorecard) -> Vec<(&'static str, String)> {
    vec![
        ("attempt", clean(&card.attempt)),
        ("machine", clean(&super::machine(&card.machine))),
        ("day", clean(&card.machine.date)),
        ("seed", clean(&card.seed)),
        ("warpbook", clean(&card.warpbook)),
    ]
}

// ---- the bar of points

fn bar(card: &Scorecard) -> Vec<Cell> {
    let won = card.points.clamp(0, card.possible.max(0));
    let stand_in = card.stand_in.clamp(0, won);
    let open = card.unmeasured.clamp(0, card.possible.max(0) - won);
    let cells = [
        ("published", won - stand_in, "as published"),
        ("stand-in", stand_in, "on stand-ins"),
        ("unmeasured", open, "not measured or not run"),
        ("rest", card.possible - won - open, "not reached"),
    ];
    let cell = |(kind, n, meaning)| Cell { kind, meaning: format!("{n} {meaning}"), width: percent(n, card) };
    cells.into_iter().filter(|(_, n, _)| *n > 0).map(cell).collect()
}

fn mark(value: i32, card: &Scorecard) -> Mark {
    Mark { value, left: percent(value, card), passed: card.points >= value }
}

fn percent(n: i32, card: &Scorecard) -> f64 {
    (10000.0 * f64::from(n) / f64::from(card.possible.max(1))).round() / 100.0
}

fn watch(guard: &Guard) -> Watch {
    let state = match guard {
        Guard { tripped: true, .. } => "tripped",
        Guard { ran: true, .. } => "quiet",
        _ => "could not run",
    };
    Watch {
        challenge: clean(&guard.challenge),
        name: clean(&guard.name),
        state,
        detail: clean(&guard.detail),
    }
}

// ---- one challenge

fn part(challenge: &Challenge) -> Part {
    let (cases, versus) = (timing::timings(challenge), timing::versus(challenge));
    let times = cases.iter().flat_map(|case| [case.baseline, case.attempt, case.bound]).flatten();
    let unit = Time::of(times.map(|m| m.value));
    let picture = |figure: figures::Figure| Picture {
        caption: figure.caption,
        svg: Value::from_safe_string(figure.svg),
    };
    Part {
        letter: clean(&challenge.letter),
        name: clean(&challenge.name),
        title: title(challenge),
        device: clean(&challenge.device),
        points: challenge.points,
        possible: challenge.possible,
        rows: lines(challenge),
        stand_ins: challenge.rows.iter().any(stands_in),
        figures: figures::all(challenge).into_iter().map(picture).collect(),
        unit: unit.name(),
        times: cases.iter().map(|case| time(case, unit)).collect(),
        speedup: timing::total(challenge).map(ratio),
        way: versus.first().map(|row| clean(&row.way)),
        versus: versus.iter().map(|row| super::compared(row).map(|cell| clean(&cell))).collect(),
        heads: beside::HEADS,
        beside: beside::rows(challenge).into_iter().map(|row| row.cells.map(|cell| clean(&cell))).collect(),
        note: beside::NOTE,
        counters: super::counters(challenge).into_iter().map(|(says, count)| (says, clean(&count))).collect(),
        counts: timing::counts(challenge).iter().map(|(name, m)| clean(&amount(name, m))).collect(),
        tally: super::tally(challenge),
        findings: findings(challenge).iter().map(note).collect(),
    }
}

/// The rows; what a row above said is not said again.
fn lines(challenge: &Challenge) -> Vec<Line> {
    let mut above = BTreeSet::new();
    let line = |row: &Row, evidence: String| Line {
        tone: Tone::of(challenge, row).name(),
        symbol: Tone::of(challenge, row).symbol(),
        wording: clean(&row.wording),
        fact: truth(row.fact),
        points: points(challenge, row),
        stand_in: stands_in(row),
        evidence: clean(&evidence),
    };
    challenge.rows.iter().map(|row| line(row, super::unsaid(&mut above, &row.evidence))).collect()
}

fn stands_in(row: &Row) -> bool {
    row.basis == Basis::StandIn && row.points != 0
}

fn time(case: &Timing, unit: Time) -> [String; 7] {
    let time = |m: Option<&Measurement>| m.map_or(String::new(), |m| digits(unit.scaled(m.value)));
    [
        clean(&timing::label(case.case, "\u{d7}")),
        time(case.baseline),
        time(case.attempt),
        time(case.bound),
        case.share.map_or(String::new(), |m| format!("{:.0} %", 100.0 * m.value)),
        case.rate.map_or(String::new(), |m| digits(m.value)),
        case.speedup.map_or(String::new(), ratio),
    ]
}

fn note(finding: &Finding) -> Note {
    Note {
        outcome: finding.outcome.word(),
        names: clean(&finding.names()),
        detail: clean(finding.detail),
        replay: if finding.is_fault() { clean(&finding.checks[0].replay) } else { String::new() },
        fault: finding.is_fault(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_document_is_whole_and_loads_nothing() {
        let html = render(&fixture::solved()).unwrap();
        assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
        assert_eq!(html.matches("<svg").count(), 3);
        let outside = html.replace("http://www.w3.org/2000/svg", "");
        for forbidden in
            ["http:", "https:", "<script", "<link", "<img", "@import", "url(", "onerror", "onload"]
        {
            assert!(!outside.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn hostile_words_are_escaped() {
        let html = render(&fixture::half_done()).unwrap();
        assert!(html.contains("&lt;script&gt;alert(1)&lt;&#x2f;script&gt;"));
        assert!(!html.contains("<script") && !html.contains("<b>the") && !html.contains('\u{1b}'));
        assert!(!html.contains('\u{202e}') && !html.contains("[1;31m"));
    }

    #[test]
    fn hostile_names_are_escaped_wherever_they_stand() {
        let mut card = fixture::half_done();
        let evil = "\"><script>1</script>{{ 7 * 7 }}";
        card.attempt = evil.into();
        card.seed = evil.into();
        card.machine.cpu = evil.into();
        card.guards[0].name = evil.into();
        let first = &mut card.challenges[0];
        (first.device, first.letter) = (evil.into(), evil.into());
        first.rows[0].wording = evil.into();
        first.checks[3].replay = evil.into();
        let m = first.measurements["nf4.launches"].clone();
        first.measurements.insert(format!("nf4.speedup.{evil}"), m.clone());
        first.measurements.insert(evil.into(), m);
        let html = render(&card).unwrap();
        assert!(!html.contains("<script") && html.contains("{{ 7 * 7 }}"));
    }
}
