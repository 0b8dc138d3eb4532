//! The scorecard on a terminal.
//!
//! It is read from the bottom up: the last lines stand above the prompt, so the total, the thresholds and
//! the guards come last, and the reasons above them. Each row of the rubric has a symbol, a word and its
//! points - never colour alone - and one sentence of evidence; what the row above already said is `as above`.
//! Times stand beside the machine's own limit.

use std::collections::BTreeSet;

use figures::beside;
use figures::number::{Time, digits};
use figures::timing::{self, Timing};

use super::paper::{Paper, Style, columns, left, right, wrap};
use super::{Aside, Before, Finding, Tone, amount, findings, idle, points, ratio, title, truth};
use crate::rubric::THRESHOLDS;
use crate::scorecard::{Basis, Challenge, Guard, Measurement, Outcome, Row, Scorecard};

/// How the terminal is written to.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether ANSI colours are understood.
    pub color: bool,
    /// Columns of a line; at least 40 are used.
    pub width: usize,
    /// Whether points are shown: a run of checks alone has none to show.
    pub points: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { color: false, width: 80, points: true }
    }
}

/// Lines of a finding's detail that are shown; the rest is counted.
const DETAIL_LINES: usize = 40;

/// The whole scorecard; every line ends in `\n` and is at most `options.width` columns wide.
pub fn render(card: &Scorecard, options: Options) -> String {
    render_after(card, options, &[])
}

/// The same, with what the challenges that were not run now got before.
pub fn render_after(card: &Scorecard, options: Options, before: &[Before]) -> String {
    let ran: Vec<&Challenge> = card.challenges.iter().filter(|c| c.built && !super::not_run(c)).collect();
    let mut parts = Parts::new(options);
    let mut text = parts.header(card, ran.iter().map(|c| (c.letter.as_str(), c.name.as_str())));
    for challenge in &card.challenges {
        let before = before.iter().find(|before| before.name == challenge.name);
        text += &parts.challenge(challenge, before);
    }
    text + &parts.end(card, before)
}

/// The parts of the text in their order, for a scorecard that is shown while it is made.
#[derive(Debug)]
pub(crate) struct Parts {
    options: Options,
    follows_idle: bool, // challenges of one line each have no rule between them
}

impl Parts {
    /// Of a scorecard of which nothing is shown yet.
    pub fn new(options: Options) -> Self {
        Self { options, follows_idle: false }
    }

    /// The lines above all challenges. `ran` are the letters and names of those that run, whether or not `card` holds
    /// them yet.
    pub fn header<'a>(&self, card: &Scorecard, ran: impl Iterator<Item = (&'a str, &'a str)>) -> String {
        let ran: Vec<String> = ran.map(|(letter, name)| format!("{letter} {name}")).collect();
        self.written(|paper| header(paper, card, &ran.join(", ")))
    }

    /// The next challenge; empty if it has nothing to show.
    pub fn challenge(&mut self, challenge: &Challenge, before: Option<&Before>) -> String {
        let points = self.options.points;
        if !points && challenge.checks.is_empty() {
            return String::new();
        }
        let is_idle = idle(challenge).is_some();
        let has_rule = !is_idle || !self.follows_idle;
        self.follows_idle = is_idle;
        self.written(|paper| {
            if has_rule {
                paper.rule();
            }
            self::challenge(paper, challenge, points, before);
        })
    }

    /// The lines below all challenges.
    pub fn end(&self, card: &Scorecard, before: &[Before]) -> String {
        self.written(|paper| {
            paper.rule();
            guards(paper, card);
            if self.options.points {
                total(paper, card);
                so_far(paper, card, before);
            }
        })
    }

    fn written(&self, write: impl FnOnce(&mut Paper)) -> String {
        let mut paper = Paper::new(self.options.color, self.options.width);
        write(&mut paper);
        paper.finish()
    }
}

/// The first thing to mend, as [`render`] tells it; of a compiler's words the first error. Empty where nothing is
/// wrong.
pub fn first_fault(challenge: &Challenge, options: Options) -> String {
    let mut paper = Paper::new(options.color, options.width);
    let faults = findings(challenge).into_iter().filter(Finding::is_fault).collect();
    if let Some(mut first) = telling(faults).into_iter().next() {
        let all = first.detail;
        if first.outcome == Outcome::DoesNotCompile {
            first.detail = first_error(all);
        }
        fault(&mut paper, &first);
        let hidden = all[first.detail.len()..].matches("\nerror").count();
        if hidden > 0 {
            paper.line(&[(Style::Quiet, &format!("    ... and {hidden} more; `test` shows them all"))]);
        }
    }
    paper.finish()
}

/// A compiler's words up to where its second error begins.
fn first_error(words: &str) -> &str {
    words.find("\nerror").map_or(words, |end| &words[..end])
}

fn header(paper: &mut Paper, card: &Scorecard, ran: &str) {
    let name = format!("warpbook {}", card.warpbook);
    let what = format!("   {ran}   {}", card.attempt);
    let when = format!("   seed {}   {}", card.seed, card.machine.date);
    if columns(&name) + columns(&what) + columns(&when) <= paper.width() {
        paper.line(&[(Style::Bold, &name), (Style::Plain, &what), (Style::Plain, &when)]);
    } else {
        paper.line(&[(Style::Bold, &name), (Style::Plain, &what)]);
        paper.line(&[(Style::Plain, &" ".repeat(6)), (Style::Plain, &when)]);
    }
    paper.wrapped(&[(Style::Quiet, "machine  ")], Style::Quiet, &super::machine(&card.machine));
}

fn challenge(paper: &mut Paper, challenge: &Challenge, points: bool, before: Option<&Before>) {
    let head = format!("{} {}", challenge.letter, challenge.name);
    if let Some(line) = idle(challenge) {
        let before = before.filter(|_| super::not_run(challenge));
        let line = before.map_or(line, |before| format!("{}, not run now", before.message));
        return paper.wrapped(&[(Style::Quiet, &left(&head, 10))], Style::Quiet, &line);
    }
    let score =
        if points { format!("{} of {}", challenge.points, challenge.possible) } else { String::new() };
    let title = format!("  {} ({})", title(challenge), challenge.device);
    let room = paper.width().saturating_sub(columns(&head) + score.len());
    paper.line(&[(Style::Bold, &head), (Style::Plain, &fitted(&title, room)), (Style::Bold, &score)]);
    if points {
        paper.gap();
        rows(paper, challenge);
    } else {
        steps(paper, challenge);
    }
    checks(paper, challenge);
    timings(paper, challenge);
}

// ---- rows

fn rows(paper: &mut Paper, challenge: &Challenge) {
    let mut above = BTreeSet::new();
    for row in &challenge.rows {
        self::row(paper, challenge, row);
        let evidence = super::unsaid(&mut above, &row.evidence);
        if !evidence.is_empty() {
            paper.wrapped(&[(Style::Plain, "      ")], Style::Quiet, &evidence);
        }
    }
    if challenge.rows.iter().any(|row| starred(row).is_some()) {
        paper.gap();
        paper.line(&[(
            Style::Quiet,
            "  * rests on a stand-in: a CPU for the GPU, threads for cards, a tiny model",
        )]);
    }
}

fn row(paper: &mut Paper, challenge: &Challenge, row: &Row) {
    let tone = Tone::of(challenge, row);
    let aside = Aside::of(challenge, row).is_some(); // its words take the place of both columns
    let word = if aside { "" } else { truth(row.fact) };
    let word = left(word, if aside { 0 } else { 14 });
    let points =
        format!("{} {}", right(&points(challenge, row), 22 - word.len()), starred(row).unwrap_or(" "));
    let room = paper.width() - 4 - 14 - 10;
    let style = style(tone);
    for (i, part) in wrap(&super::clean(&row.wording), room).iter().enumerate() {
        if i == 0 {
            let symbol = format!("  {} ", tone.symbol());
            paper.line(&[
                (style, &symbol),
                (Style::Plain, &left(part, room)),
                (style, &word),
                (style, &points),
            ]);
        } else {
            paper.line(&[(Style::Plain, "    "), (Style::Plain, part)]);
        }
    }
}

/// A star where points rest on a stand-in.
fn starred(row: &Row) -> Option<&'static str> {
    (row.basis == Basis::StandIn && row.points != 0).then_some("*")
}

fn style(tone: Tone) -> Style {
    match tone {
        Tone::Won => Style::Good,
        Tone::Lost => Style::Bad,
        Tone::Open => Style::Plain,
        Tone::Idle | Tone::Unknown => Style::Quiet,
    }
}

// ---- checks

/// The steps whose checks have all passed, one a line.
fn steps(paper: &mut Paper, challenge: &Challenge) {
    let mut of_step: Vec<(&str, usize, usize)> = Vec::new(); // checks, and those that passed
    for check in &challenge.checks {
        let passed = usize::from(check.outcome == Outcome::Passed);
        match of_step.iter_mut().find(|(step, ..)| *step == check.step()) {
            Some((_, all, good)) => (*all, *good) = (*all + 1, *good + passed),
            None => of_step.push((check.step(), 1, passed)),
        }
    }
    for (step, all, _) in of_step.iter().filter(|(_, all, good)| all == good) {
        let checks = if *all == 1 { "check" } else { "checks" };
        paper.line(&[
            (Style::Good, &format!("  \u{2713} {step}")),
            (Style::Plain, &format!("  {all} {checks} passed")),
        ]);
    }
}

fn checks(paper: &mut Paper, challenge: &Challenge) {
    if challenge.checks.is_empty() {
        return;
    }
    paper.gap();
    paper.wrapped(&[(Style::Bold, "  checks  ")], Style::Plain, &super::tally(challenge));
    let (faults, holes): (Vec<_>, Vec<_>) = findings(challenge).into_iter().partition(Finding::is_fault);
    let faults = telling(faults);
    let shown = if faults.len() > FAULTS { FAULTS - 1 } else { FAULTS };
    faults.iter().take(shown).for_each(|finding| fault(paper, finding));
    let rest: Vec<&str> = faults
        .iter()
        .skip(shown)
        .flat_map(|finding| &finding.checks)
        .map(|check| check.name.as_str())
        .collect();
    if !rest.is_empty() {
        paper.gap();
        let lead = format!("  \u{2717} {} more  ", rest.len());
        paper.wrapped(&[(Style::Bad, &lead)], Style::Plain, &rest.join(", "));
    }
    for finding in &holes {
        missing(paper, finding);
    }
}

/// The most telling faults of each step first: each known cause once, then each other first, then the repetitions.
fn telling(mut faults: Vec<Finding<'_>>) -> Vec<Finding<'_>> {
    let (mut steps, mut message) = (Vec::new(), Vec::new());
    let mut rank = |finding: &Finding<'_>| {
        let step = finding.checks[0].step().to_owned();
        let place = steps.iter().position(|known| *known == step).unwrap_or(steps.len());
        if place == steps.len() {
            steps.push(step);
        }
        let cause = finding.detail.lines().find_map(|line| line.trim_start().strip_prefix("likely cause: "));
        let known =
            cause.is_some_and(|cause| !cause.contains("none of the known") && !cause.contains("too few"));
        let cause = cause.unwrap_or(finding.detail).to_owned();
        if message.contains(&cause) {
            return (place, 2);
        }
        message.push(cause);
        (place, i32::from(!known))
    };
    faults.sort_by_cached_key(|finding| rank(finding));
    faults
}

/// Faults that are reported in full: the first one mended often mends the others.
const FAULTS: usize = 5;

fn fault(paper: &mut Paper, finding: &Finding) {
    let style = if finding.outcome == Outcome::GraderFault { Style::Alarm } else { Style::Bad };
    paper.gap();
    paper.wrapped(
        &[
            (Style::Plain, "  "),
            (style, &format!("\u{2717} {}", finding.outcome.word())),
            (Style::Plain, "  "),
        ],
        Style::Bold,
        &finding.names(),
    );
    if finding.outcome == Outcome::DoesNotCompile {
        return paper.unfolded(4, Style::Plain, finding.detail); // carets point at columns
    }
    let lines: Vec<&str> = finding.detail.lines().collect();
    paper.verbatim(6, Style::Plain, &lines[..lines.len().min(DETAIL_LINES)].join("\n"));
    if lines.len() > DETAIL_LINES {
        paper.line(&[(
            Style::Quiet,
            &format!("      ... {} lines more in --json", lines.len() - DETAIL_LINES),
        )]);
    }
    if !finding.checks[0].replay.is_empty() {
        paper.whole(6, Style::Plain, &finding.checks[0].replay); // a seed that is cut is another seed
    }
}

fn missing(paper: &mut Paper, finding: &Finding) {
    let symbol = if finding.outcome == Outcome::NotAttempted { "\u{25cb}" } else { "?" };
    let lead = format!("  {symbol} {}  ", left(finding.outcome.word(), 13));
    let names = finding.names();
    let text = if finding.detail.is_empty() { names } else { format!("{names}: {}", finding.detail) };
    paper.gap();
    paper.wrapped(&[(Style::Quiet, &lead)], Style::Plain, &text);
}

// ---- times

fn timings(paper: &mut Paper, challenge: &Challenge) {
    let cases = timing::timings(challenge);
    let times = cases.iter().flat_map(|case| [case.baseline, case.attempt, case.bound]).flatten();
    let unit = Time::of(times.map(|m| m.value));
    if !cases.is_empty() {
        paper.gap();
        paper.line(&[(Style::Bold, "  time"), (Style::Quiet, &heads(unit))]);
    }
    for case in &cases {
        timing(paper, case, unit);
    }
    if let Some(total) = timing::total(challenge) {
        let lead = left("  published cases", CASE + 3 * TIME + SHARE + 2);
        let room = paper.width().saturating_sub(lead.len());
        paper.line(&[(Style::Plain, &lead), (Style::Bold, &short_ratio(total, room))]);
    }
    staircase(paper, challenge);
    versus(paper, challenge);
    beside(paper, challenge);
    counts(paper, challenge);
}

/// Chunks beside all logits, one thing a line.
fn beside(paper: &mut Paper, challenge: &Challenge) {
    let rows = beside::rows(challenge);
    if rows.is_empty() {
        return;
    }
    let [_, whole, chunked, formula, count, over] = beside::HEADS;
    let heads = [whole, chunked, formula].map(|head| right(head, BYTES)).concat();
    let heads = format!("{heads}{}  {over}", right(count, ROWS));
    paper.gap();
    paper.line(&[(Style::Bold, &left("  chunks", WHAT)), (Style::Quiet, &heads)]);
    for row in &rows {
        let [what, whole, chunked, formula, count, over] = &row.cells;
        let after = format!("{}{}  {over}", right(formula, BYTES), right(count, ROWS));
        paper.line(&[
            (Style::Plain, &left(&format!("  {what}"), WHAT)),
            (Style::Plain, &right(whole, BYTES)),
            (Style::Bold, &right(chunked, BYTES)),
            (Style::Plain, &after),
        ]);
    }
    paper.wrapped(&[(Style::Quiet, "  ")], Style::Quiet, beside::NOTE);
}

/// The attempt beside another way of doing the same, one thing a line.
fn versus(paper: &mut Paper, challenge: &Challenge) {
    let rows = timing::versus(challenge);
    let Some(way) = rows.first().map(|row| row.way.clone()) else { return };
    paper.gap();
    let heads = [way.as_str(), "attempt"].map(|head| right(head, AMOUNT)).concat();
    paper.line(&[(Style::Bold, &left("  against", CASE)), (Style::Quiet, &format!("{heads}  ratio [95 %]"))]);
    for row in &rows {
        let [what, baseline, attempt, ratio] = super::compared(row);
        paper.line(&[
            (Style::Plain, &left(&format!("  {what}"), CASE)),
            (Style::Plain, &right(&baseline, AMOUNT)),
            (Style::Bold, &right(&attempt, AMOUNT)),
            (Style::Plain, &format!("  {ratio}")),
        ]);
    }
}

/// The versions of one pass, one a line.
fn staircase(paper: &mut Paper, challenge: &Challenge) {
    let versions = timing::versions(challenge);
    let unit = Time::of(versions.iter().map(|(_, time)| time.value));
    if !versions.is_empty() {
        paper.gap();
        let note = format!(" in {}, the same weight by every version", unit.name());
        paper.line(&[(Style::Bold, "  staircase"), (Style::Quiet, &note)]);
    }
    for (label, time) in &versions {
        let shown = right(&digits(unit.scaled(time.value)), TIME);
        paper.line(&[(Style::Plain, &left(&format!("  {label}"), CASE)), (Style::Plain, &shown)]);
    }
}

const CASE: usize = 20;
const AMOUNT: usize = 13;
const WHAT: usize = 16;
const BYTES: usize = 11;
const ROWS: usize = 7;
const TIME: usize = 9;
const SHARE: usize = 10;

fn heads(unit: Time) -> String {
    let times = ["baseline", "attempt", "bound"].map(|head| right(head, TIME)).concat();
    format!(
        "{}{times}{}  speed-up [95 %]",
        left(&format!(" in {}", unit.name()), CASE - 6),
        right("of bound", SHARE)
    )
}

fn timing(paper: &mut Paper, case: &Timing, unit: Time) {
    let time = |m: Option<&Measurement>| right(&m.map_or("-".into(), |m| digits(unit.scaled(m.value))), TIME);
    let share = case.share.map_or("-".into(), |m| format!("{:.0} %", 100.0 * m.value));
    let label = left(&format!("  {}", timing::label(case.case, "x")), CASE);
    let before = format!("{label}{}", time(case.baseline));
    let after = format!("{}{}", time(case.bound), right(&share, SHARE));
    let room = paper.width().saturating_sub(columns(&before) + TIME + columns(&after) + 2);
    let speedup = format!("  {}", case.speedup.map_or("-".into(), |m| short_ratio(m, room)));
    paper.line(&[
        (Style::Plain, &before),
        (Style::Bold, &time(case.attempt)),
        (Style::Plain, &after),
        (Style::Plain, &speedup),
    ]);
}

/// The ratio without its interval where both do not fit.
fn short_ratio(speedup: &Measurement, room: usize) -> String {
    let full = ratio(speedup);
    if columns(&full) <= room { full } else { format!("{}x", digits(speedup.value)) }
}

fn counts(paper: &mut Paper, challenge: &Challenge) {
    let counters: Vec<String> =
        super::counters(challenge).into_iter().map(|(says, count)| format!("{says} {count}")).collect();
    if !counters.is_empty() {
        paper.gap();
        paper.wrapped(&[(Style::Bold, "  compiler ")], Style::Plain, &counters.join(", "));
    }
    let counts: Vec<String> =
        timing::counts(challenge).into_iter().map(|(name, measurement)| amount(name, measurement)).collect();
    if !counts.is_empty() {
        paper.gap();
        paper.wrapped(&[(Style::Bold, "  counted  ")], Style::Quiet, &counts.join(", "));
    }
}

// ---- the last lines

fn guards(paper: &mut Paper, card: &Scorecard) {
    if card.guards.is_empty() {
        return;
    }
    paper.wrapped(&[(Style::Bold, "guards   ")], Style::Plain, &super::guards(card));
    for Guard { challenge, name, detail, .. } in card.guards.iter().filter(|guard| guard.tripped) {
        let said = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        let lead = [(Style::Plain, "         "), (Style::Alarm, " !! "), (Style::Plain, " ")];
        paper.wrapped(&lead, Style::Bad, &format!("{challenge} {name}{said}"));
    }
}

fn total(paper: &mut Paper, card: &Scorecard) {
    let names = THRESHOLDS.map(|t| t.to_string()).join(", ");
    paper.wrapped(&[(Style::Bold, "points   ")], Style::Bold, &super::total(card));
    bar(paper, card);
    let said = format!("{}  (published thresholds {names})", super::thresholds(card.points));
    paper.wrapped(&[(Style::Plain, "         ")], Style::Plain, &said);
}

/// The running total, where this run was of some challenges only.
fn so_far(paper: &mut Paper, card: &Scorecard, before: &[Before]) {
    if before.is_empty() {
        return;
    }
    let all = before.iter().fold(card.points, |sum, before| sum.saturating_add(before.points));
    let said = format!("{all} of {} with what was scored before; {}", card.possible, super::thresholds(all));
    paper.wrapped(&[(Style::Bold, "so far   ")], Style::Bold, &said);
}

/// One cell a point: as published, on stand-ins, not measured here, the rest; thresholds marked below.
fn bar(paper: &mut Paper, card: &Scorecard) {
    let possible = card.possible.clamp(0, 200) as usize;
    if possible + 9 > paper.width() {
        return;
    }
    let won = (card.points.max(0) as usize).min(possible);
    let stand_in = (card.stand_in.max(0) as usize).min(won);
    let open = (card.unmeasured.max(0) as usize).min(possible - won);
    paper.line(&[
        (Style::Plain, "         "),
        (Style::Good, &"\u{2588}".repeat(won - stand_in)),
        (Style::Good, &"\u{2593}".repeat(stand_in)),
        (Style::Quiet, &"\u{2591}".repeat(open)),
        (Style::Quiet, &"\u{b7}".repeat(possible - won - open)),
    ]);
    marks(paper);
    legend(paper, [won - stand_in, stand_in, open, possible - won - open]);
}

fn marks(paper: &mut Paper) {
    let mut marks = String::new();
    for threshold in THRESHOLDS {
        marks = format!("{}\u{2514}{threshold}", left(&marks, threshold as usize - 1));
    }
    paper.line(&[(Style::Quiet, &format!("         {marks}"))]);
}

/// What the cells of the bar mean, those in use.
fn legend(paper: &mut Paper, cells: [usize; 4]) {
    let meanings = [
        "\u{2588} as published",
        "\u{2593} on stand-ins",
        "\u{2591} not measured or not run",
        "\u{b7} not reached",
    ];
    let used = meanings.into_iter().zip(cells).filter(|(_, n)| *n > 0).map(|(meaning, _)| meaning);
    paper.wrapped(&[(Style::Plain, "         ")], Style::Quiet, &used.collect::<Vec<_>>().join(", "));
}

/// The text padded or cut to exactly `room` columns.
fn fitted(text: &str, room: usize) -> String {
    let cut: String = text.chars().take(room.saturating_sub(1)).collect();
    left(&cut, room)
}

#[cfg(test)]
mod tests {
    use super::super::paper;
    use super::*;
    use crate::fixture;
    use crate::scorecard::{Check, Truth};

    fn plain(card: &Scorecard, width: usize) -> String {
        render(card, Options { color: false, width, points: true })
    }

    #[test]
    fn no_line_is_wider_than_asked() {
        for card in [fixture::solved(), fixture::half_done(), fixture::untouched()] {
            for width in [40, 64, 80, 132] {
                let text = plain(&card, width);
                let compiler = text
                    .lines()
                    .skip_while(|line| !line.contains("error["))
                    .take_while(|line| !line.is_empty());
                let compiler: Vec<&str> = compiler.collect();
                let is_command = |line: &str| line.starts_with("      cargo grader replay ");
                let too_long = |line: &&str| {
                    paper::columns(line) > width && !compiler.contains(line) && !is_command(line)
                };
                let long: Vec<&str> = text.lines().filter(too_long).collect();
                assert!(long.is_empty(), "{width}: {long:#?}");
            }
        }
    }

    #[test]
    fn a_replay_command_is_whole_on_a_line_of_its_own() {
        let mut card = fixture::half_done();
        let command = "cargo grader replay issues:D.8/a-name-of-a-check-that-is-long --seed 0xa56fb9e5d198025d --device cuda:1";
        card.challenges[0].checks[2].replay = command.into();
        for width in [40, 80, 132] {
            assert!(plain(&card, width).lines().any(|line| line.trim() == command), "{width}");
        }
    }

    #[test]
    fn what_another_line_won_or_took_nothing_is_not_missed() {
        let mut card = fixture::compiled();
        let graph = &mut card.challenges[2];
        for (row, points) in [(0, 3), (3, 1), (5, 2)] {
            (graph.rows[row].fact, graph.rows[row].points) = (Truth::Met, points);
        }
        for row in [1, 2, 4, 6] {
            graph.rows[row].fact = Truth::Unmet;
        }
        let text = plain(&card, 80);
        let line = |wording: &str| text.lines().find(|line| line.contains(wording)).unwrap_or_default();
        assert!(line("not dynamic").ends_with("won by the line above"), "{text}");
        assert!(line("else torch_compile_BnB").ends_with("won by the line above"), "{text}");
        assert!(line(" no_torch_compile_BnB").ends_with("penalty avoided"), "{text}");
        assert!(line(" mlp_compiled").ends_with("unmet           0 of 1"), "{text}");
        let lesser = &mut card.challenges[2].rows;
        (lesser[0].fact, lesser[0].points) = (Truth::Unmet, 0);
        (lesser[1].fact, lesser[1].points) = (Truth::Met, 1);
        assert!(plain(&card, 80).contains("unmet           0 of 3"), "one point does not stand for three");
    }

    #[test]
    fn the_running_total_stands_beside_a_run_of_some_challenges() {
        let mut card = fixture::solved();
        card.challenges[1..].iter_mut().for_each(|challenge| challenge.built = true);
        let message = "9 of 9 points at 10:42 UTC, file changed since".to_owned();
        let before = [Before { name: "graph".into(), points: 9, message }];
        let text = render_after(&card, Options::default(), &before);
        assert!(
            text.contains("C graph   9 of 9 points at 10:42 UTC, file changed since, not run now"),
            "{text}"
        );
        assert!(
            text.contains("so far   22 of 55 with what was scored before; 18 passed, 10 short of 32"),
            "{text}"
        );
        assert!(text.contains("B fsdp    not run, 10 points"), "{text}");
    }

    #[test]
    fn other_parts_count_in_the_running_total() {
        let mut card = fixture::solved();
        card.challenges[1..].iter_mut().for_each(|challenge| challenge.built = true);
        let name = card.challenges[0].name.clone();
        let before = [Before { name, points: 3, message: "3 of 14 points at 10:42 UTC".into() }];
        let text = render_after(&card, Options::default(), &before);
        assert!(text.contains("so far   16 of 55 with what was scored before"), "{text}");
        assert!(!text.contains("not run now"), "the challenge was run: {text}");
    }

    #[test]
    fn nothing_hostile_reaches_the_terminal() {
        let card = fixture::half_done();
        let text = plain(&card, 80);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        assert!(!text.contains('\u{202e}') && !text.contains("[1;31m"));
        assert!(text.contains("weight.packed"), "the compiler's words stay");
    }

    #[test]
    fn colour_only_adds_to_what_the_words_say() {
        let card = fixture::half_done();
        let colored = render(&card, Options { color: true, width: 80, points: true });
        assert_eq!(super::super::clean(&colored), plain(&card, 80));
        assert_ne!(colored, plain(&card, 80));
    }

    #[test]
    fn challenges_not_built_take_one_line_each() {
        let text = plain(&fixture::solved(), 80);
        assert!(text.contains("\nB fsdp    not built in this version, 10 points\n"), "{text}");
        assert!(text.contains("13 of 55 (13 rest on stand-ins; 1 not measured here; 41 not in this"));
        assert!(text.contains("none passed, 5 short of 18"));
    }

    #[test]
    fn a_run_of_checks_alone_shows_steps_and_no_points() {
        let text = render(&fixture::half_done(), Options { points: false, ..Options::default() });
        assert!(text.contains("\u{2713} A.1"), "{text}");
        assert!(!text.contains(" of 55") && !text.contains("B fsdp"), "{text}");
    }

    #[test]
    fn a_rule_stands_below_a_challenge_that_ran_whichever_were_left_out() {
        let mut card = fixture::compiled();
        let hole = Check { outcome: Outcome::NotAttempted, ..card.challenges[2].checks[0].clone() };
        (card.challenges[4].built, card.challenges[4].checks) = (true, vec![hole]);
        let text = render(&card, Options { points: false, ..Options::default() });
        let rules = text.lines().filter(|line| line.starts_with('\u{2500}')).count();
        assert_eq!((rules, text.contains("\nE loss    not attempted")), (4, true), "{text}");
    }

    #[test]
    fn a_very_long_detail_is_counted_not_printed() {
        let mut card = fixture::half_done();
        card.challenges[0].checks[2].detail = "line\n".repeat(500);
        assert!(plain(&card, 80).contains("... 460 lines more in --json"));
    }
}
