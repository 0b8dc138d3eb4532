//! The scorecard for a pull request or a job summary (GitHub Flavored Markdown).
//!
//! It is short: the total, one table of rows, one of times; what failed is folded. Three ways of quoting
//! keep foreign text harmless: names go into code spans, sentences get every active character escaped, and
//! details go into fences longer than any run of backticks inside them. Neither code nor fences are
//! searched for `@names`, and an `@` or a web address in a sentence is broken up, so a report notifies nobody.

use std::collections::BTreeSet;

use figures::beside;
use figures::number::{Time, digits};
use figures::timing::{self, Timing};

use super::{Finding, Tone, amount, findings, idle, points, ratio, title, truth};
use crate::scorecard::{Challenge, Measurement, Row, Scorecard};

/// Lines of a finding's detail that are kept; a job summary is limited to 1 MiB.
const DETAIL_LINES: usize = 200;

/// The whole scorecard as Markdown.
pub fn render(card: &Scorecard) -> String {
    let mut out = format!("## warpbook: {} of {}\n\n", card.points, card.possible);
    line(&mut out, &format!("**{}**; {}.", super::total(card), super::thresholds(card.points)));
    line(&mut out, "");
    guards(&mut out, card);
    for challenge in &card.challenges {
        match idle(challenge) {
            Some(said) => absent(&mut out, challenge, &said),
            None => self::challenge(&mut out, challenge),
        }
    }
    let seed = format!("seed {}, {}", span(&card.seed), text(&card.machine.date));
    let said = format!(
        "\n<sub>warpbook {}, attempt {}, {seed}. {}</sub>",
        text(&card.warpbook),
        span(&card.attempt),
        text(&super::machine(&card.machine))
    );
    line(&mut out, &said);
    out
}

fn guards(out: &mut String, card: &Scorecard) {
    if card.guards.is_empty() {
        return;
    }
    for guard in card.guards.iter().filter(|guard| guard.tripped) {
        line(out, "> [!CAUTION]");
        line(
            out,
            &format!(
                "> Guard tripped on {}: {}. {}",
                span(&guard.challenge),
                span(&guard.name),
                text(&guard.detail)
            ),
        );
        line(out, "");
    }
    line(out, &format!("Guards: {}.\n", super::guards(card)));
}

fn absent(out: &mut String, challenge: &Challenge, said: &str) {
    line(out, &format!("- **{} {}** {}", text(&challenge.letter), text(&challenge.name), text(said)));
}

fn challenge(out: &mut String, challenge: &Challenge) {
    let (letter, name) = (text(&challenge.letter), text(&challenge.name));
    let score = format!("{} of {}", challenge.points, challenge.possible);
    line(
        out,
        &format!("### {letter} {name}: {score}\n\n{} on {}\n", title(challenge), span(&challenge.device)),
    );
    line(out, "| | rubric | | points | evidence |\n|:-:|:--|:--|--:|:--|");
    let mut above = BTreeSet::new();
    for row in &challenge.rows {
        self::row(out, challenge, row, &super::unsaid(&mut above, &row.evidence));
    }
    times(out, challenge);
    if !challenge.checks.is_empty() {
        line(out, &format!("\nChecks: {}.", super::tally(challenge)));
    }
    for finding in findings(challenge) {
        self::finding(out, &finding);
    }
    line(out, "");
}

fn row(out: &mut String, challenge: &Challenge, row: &Row, evidence: &str) {
    let starred =
        if row.basis == crate::scorecard::Basis::StandIn && row.points != 0 { " (stand-in)" } else { "" };
    let cells = [
        Tone::of(challenge, row).symbol().to_owned(),
        span(&row.wording),
        truth(row.fact).to_owned(),
        format!("{}{starred}", points(challenge, row)),
        text(evidence),
    ];
    line(out, &format!("| {} |", cells.join(" | ")));
}

fn times(out: &mut String, challenge: &Challenge) {
    let cases = timing::timings(challenge);
    let times = cases.iter().flat_map(|case| [case.baseline, case.attempt, case.bound]).flatten();
    let unit = Time::of(times.map(|m| m.value));
    if !cases.is_empty() {
        let name = unit.name();
        line(
            out,
            &format!(
                "\n| case | baseline, {name} | attempt, {name} | bound, {name} | of bound | speed-up, 95 % |"
            ),
        );
        line(out, "|:--|--:|--:|--:|--:|:--|");
        for case in &cases {
            line(out, &time(case, unit));
        }
        if let Some(total) = timing::total(challenge) {
            line(out, &format!("| **published cases** | | | | | **{}** |", text(&ratio(total))));
        }
    }
    versus(out, challenge);
    beside(out, challenge);
    let counters: Vec<String> = super::counters(challenge)
        .into_iter()
        .map(|(says, count)| text(&format!("{says} {count}")))
        .collect();
    if !counters.is_empty() {
        line(out, &format!("\nCompiler: {}.", counters.join(", ")));
    }
    let counts: Vec<String> =
        timing::counts(challenge).iter().map(|(name, m)| text(&amount(name, m))).collect();
    if !counts.is_empty() {
        line(out, &format!("\nCounted: {}.", counts.join(", ")));
    }
}

/// The attempt beside another way of doing the same.
fn versus(out: &mut String, challenge: &Challenge) {
    let rows = timing::versus(challenge);
    let Some(way) = rows.first().map(|row| text(&row.way)) else { return };
    line(out, &format!("\n| | {way} | attempt | ratio, 95 % |\n|:--|--:|--:|:--|"));
    for row in &rows {
        line(out, &format!("| {} |", super::compared(row).map(|cell| text(&cell)).join(" | ")));
    }
}

/// Chunks beside all logits.
fn beside(out: &mut String, challenge: &Challenge) {
    let rows = beside::rows(challenge);
    if rows.is_empty() {
        return;
    }
    line(out, &format!("\n| {} |\n|:--|--:|--:|--:|--:|:--|", beside::HEADS.map(text).join(" | ")));
    for row in rows {
        line(out, &format!("| {} |", row.cells.map(|cell| text(&cell)).join(" | ")));
    }
    line(out, &format!("\n{}", beside::NOTE));
}

fn time(case: &Timing, unit: Time) -> String {
    let time = |m: Option<&Measurement>| m.map_or(String::new(), |m| digits(unit.scaled(m.value)));
    let cells = [
        text(&timing::label(case.case, "x")),
        time(case.baseline),
        time(case.attempt),
        time(case.bound),
        case.share.map_or(String::new(), |m| format!("{:.0} %", 100.0 * m.value)),
        case.speedup.map_or(String::new(), |m| text(&ratio(m))),
    ];
    format!("| {} |", cells.join(" | "))
}

fn finding(out: &mut String, finding: &Finding) {
    let head = format!("{}: {}", finding.outcome.word(), html(&finding.names()));
    line(out, &format!("\n<details><summary>{head}</summary>\n"));
    let lines: Vec<&str> = finding.detail.lines().collect();
    let more = lines
        .get(DETAIL_LINES..)
        .filter(|more| !more.is_empty())
        .map(|more| format!("... {} lines more in --json", more.len()));
    let shown = lines.iter().take(DETAIL_LINES).copied().chain(more.as_deref());
    let detail = shown.collect::<Vec<_>>().join("\n");
    if !detail.is_empty() {
        line(out, &fence(&detail));
    }
    if finding.is_fault() && !finding.checks[0].replay.is_empty() {
        line(out, &format!("\nReplay: {}", span(&finding.checks[0].replay)));
    }
    line(out, "\n</details>");
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

// ---- quoting

/// A sentence in which nothing is active.
fn text(sentence: &str) -> String {
    let mut out = String::new();
    for c in super::clean(sentence).replace('\n', " ").chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '@' => out.push_str("@\u{2060}"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '!' | '$' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out.replace("://", "\\://").replace("www.", "www\\.")
}

/// A code span, also inside a table cell.
fn span(code: &str) -> String {
    let code = super::clean(code).replace('\n', " ").replace('|', "\\|");
    let ticks = "`".repeat(longest_run(&code) + 1);
    let pad = if code.starts_with('`') || code.ends_with('`') || code.is_empty() { " " } else { "" };
    format!("{ticks}{pad}{code}{pad}{ticks}")
}

/// A fenced block that nothing inside can close.
fn fence(code: &str) -> String {
    let code = super::clean(code);
    let ticks = "`".repeat(longest_run(&code).max(2) + 1);
    format!("{ticks}text\n{code}\n{ticks}")
}

/// Text inside HTML that stands in Markdown: entities, so that neither language sees a special character.
fn html(text: &str) -> String {
    let mut out = String::new();
    for c in super::clean(text).replace('\n', " ").chars() {
        match c {
            ' ' | ',' | '.' | '/' | '-' => out.push(c),
            c if c.is_alphanumeric() => out.push(c),
            c => out.extend(["&#", &(c as u32).to_string(), ";"]),
        }
    }
    out
}

fn longest_run(code: &str) -> usize {
    code.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn hostile_words_stay_words() {
        assert_eq!(
            text("a|b <script> @you *x* http://y"),
            "a\\|b &lt;script&gt; @\u{2060}you \\*x\\* http\\://y"
        );
        assert_eq!(span("a`b|c\nd"), "``a`b\\|c d``");
        assert_eq!(span("`"), "`` ` ``");
        assert_eq!(fence("x\n````\n\u{1b}[31my"), "`````text\nx\n````\ny\n`````");
        assert_eq!(html("A.1/x</summary>"), "A.1/x&#60;/summary&#62;");
    }

    #[test]
    fn markup_of_an_attempt_is_only_ever_inside_code() {
        let markdown = render(&fixture::half_done());
        let mut fenced = false;
        for line in markdown.lines() {
            fenced ^= line.starts_with("```");
            assert!(fenced || !line.contains("<script>"), "{line}");
        }
        assert!(!markdown.contains('\u{1b}') && !markdown.contains('\u{202e}'));
    }

    #[test]
    fn every_table_row_has_as_many_cells_as_its_head() {
        for card in [fixture::solved(), fixture::half_done()] {
            let markdown = render(&card).replace("\\|", "");
            let rows = markdown.lines().filter(|line| line.starts_with('|') && line.ends_with('|'));
            let counts: Vec<usize> = rows.map(|line| line.matches('|').count()).collect();
            assert!(counts.len() > 15 && counts.iter().all(|n| [6, 7].contains(n)), "{counts:?}");
        }
    }
}
