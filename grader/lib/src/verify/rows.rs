//! The rows of a report against its checks, guards and numbers.

use super::{About, Findings, Subject};
use crate::courses;
use crate::evidence::Seen;
use crate::rubric::{Fact, Rubric};
use crate::score::{absent, is_attempt, judged, of_part};
use crate::scorecard::{Challenge, Guard, Row, Truth};

/// What stands for a reason in a sentence that is computed again: reasons are not in a report.
const REASON: &str = "\u{0}";

/// Reasons that facts ask for by name. Where a number of that name is there, there is no reason why not.
const ASKED: [&str; 2] = ["graph.wrong", "nf4.timed_elements"];

/// Whether anything of a challenge was run.
pub(super) fn was_run(challenge: &Challenge, guards: &[Guard]) -> bool {
    !(challenge.checks.is_empty() && challenge.measurements.is_empty() && guards.is_empty())
}

impl Findings {
    /// A challenge that was not run has nothing to show.
    pub(super) fn absent(&mut self, challenge: &Challenge, rubric: &'static Rubric, guards: &[Guard]) {
        if was_run(challenge, guards) {
            let what = format!("{} checks, guards and numbers", challenge.name);
            self.add(About::Version, &what, "some", "none, for it is not part of this version");
        }
        self.compare(About::Numbers, &format!("{} code", challenge.name), &challenge.code.as_str(), &"");
        let again = absent(rubric);
        let of_another = challenge.built != again.built; // one that builds more or less
        self.against(challenge, &again, if of_another { About::Version } else { About::Numbers });
    }

    /// Judges the challenge again.
    pub(super) fn rows(&mut self, subject: &Subject<'_>) {
        let challenge = subject.challenge;
        let asked = ASKED.into_iter().filter(|name| !challenge.measurements.contains_key(*name));
        let unmeasured = asked.map(|name| (name.to_owned(), REASON.to_owned())).collect();
        let seen = Seen {
            checks: &challenge.checks,
            guards: &subject.guards,
            measurements: &challenge.measurements,
            unmeasured: &unmeasured,
        };
        let facts = courses::facts(subject.rubric, &subject.courses, &seen, &subject.card.machine);
        let facts = match &subject.part {
            Some(part) => of_part(subject.rubric, part),
            None => facts.into_iter().map(|(name, fact)| (name, without_reason(&fact))).collect(),
        };
        let attempted = challenge.checks.iter().any(|check| is_attempt(check.outcome))
            || !challenge.measurements.is_empty();
        let again = judged(subject.rubric, &facts, Challenge { attempted, ..challenge.clone() });
        // Another version runs other checks and may judge by other rules.
        let own = self.0.findings.iter().filter(|finding| finding.what.starts_with(&challenge.name));
        // ... or has not taken a number that a row rests on here.
        let mut rows = challenge.rows.iter().zip(&again.rows);
        let lacks =
            rows.any(|(says, follows)| follows.fact == Truth::Unmeasured && says.fact != follows.fact);
        let of_another =
            lacks || subject.part.is_some() || own.clone().any(|finding| finding.about == About::Version);
        self.against(challenge, &again, if of_another { About::Version } else { About::Numbers });
    }

    /// What a challenge says against what follows.
    fn against(&mut self, says: &Challenge, follows: &Challenge, about: About) {
        let name = &says.name;
        self.compare(about, &format!("{name} attempted"), &says.attempted, &follows.attempted);
        self.compare(about, &format!("{name} points"), &says.points, &follows.points);
        self.compare(about, &format!("{name} unmeasured"), &says.unmeasured, &follows.unmeasured);
        self.compare(about, &format!("{name} rows"), &says.rows.len(), &follows.rows.len());
        for (says, follows) in says.rows.iter().zip(&follows.rows) {
            let what = format!("{name} row {}", follows.wording);
            self.compare(about, &what, &describe(says), &describe(follows));
            if !matches(&says.evidence, &follows.evidence) {
                let follows = follows.evidence.replace(REASON, "...");
                self.add(About::Version, &format!("{what} (evidence)"), &says.evidence, &follows);
            }
        }
        let same_basis =
            says.rows.iter().zip(&follows.rows).all(|(says, follows)| says.basis == follows.basis);
        self.compare(about, &format!("{name} basis"), &same_basis, &true);
    }
}

fn describe(row: &Row) -> String {
    format!("{} ({:?}, {:?}, {} of {} points)", row.wording, row.fact, row.basis, row.points, row.worth)
}

/// The reason why something was not measured does not stand in a report.
fn without_reason(fact: &Fact) -> Fact {
    let evidence = fact.evidence.replace("not measured: not run", &format!("not measured: {REASON}"));
    Fact { evidence, ..*fact }
}

/// Whether a sentence is the one that follows, whatever the reasons in it are.
fn matches(says: &str, follows: &str) -> bool {
    let mut parts = follows.split(REASON);
    let Some(mut rest) = says.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_compared_around_its_reasons() {
        let cases = [
            ("4 of 4", "4 of 4", true),
            ("4 of 4, or so", "4 of 4", false),
            ("not measured: no card", "not measured: \0", true),
            ("measured: no card", "not measured: \0", false),
            ("3 of 4 lengths: at 7; not measured: why", "3 of 4 lengths\0; not measured: \0", true),
            ("3 of 4 lengths; measured", "3 of 4 lengths\0; not measured: \0", false),
            ("a", "a\0a", false),
        ];
        for (says, follows, same) in cases {
            assert_eq!(matches(says, follows), same, "{says:?} {follows:?}");
        }
    }
}
