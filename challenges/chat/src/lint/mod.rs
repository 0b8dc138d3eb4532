//! What is wrong with a chat template, found by trying it.
//!
//! A template that loses a call loses it silently: the text looks well, training goes on, and the model never learns to
//! call. So it is tried: conversations whose every part holds a word of its own ([`probes`]) are rendered, and what
//! became of a part is read off the text. Nothing is concluded from the source, which may do the same in many ways; and
//! what no probe has is not seen.
//!
//! ```text
//! probe -> forms -> rendered -> expectations -> finding
//!          as text, as parts,   a word is there, is not,
//!          arguments as object  is inside a mark, outside
//! ```

mod expectation;
mod probe;
mod rule;

use std::fmt;
use std::time::{Duration, Instant};

pub use crate::criterion::Criterion;
pub use expectation::Expectation;
pub use probe::{Probe, probes};
pub use rule::Rule;

use crate::jinja::{Conversation, Error, Kind, Limits};
use crate::render::ChatTemplate;

/// Something that is wrong, with what showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub rule: Rule,
    /// The probe that showed it.
    pub probe: &'static str,
    /// What was looked for in the text, if there was one.
    pub expectation: Option<Expectation>,
    /// What came out instead.
    pub observed: Observed,
}

/// What came out of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// A text.
    Text(String),
    /// An error: the template refused, or took more than it may.
    Refusal(Error),
}

/// How long all probes of a template may take together.
const LONGEST: Duration = Duration::from_secs(30);

/// Limits that suit probes, for a template that is compiled to be tried.
pub fn limits() -> Limits {
    Limits {
        steps: 1_000_000,
        work_bytes: 64 << 20,
        output_bytes: 4 << 20,
        time: Duration::from_secs(2),
        ..Limits::default()
    }
}

/// What is wrong with a template, at most one finding a rule, in the order of [`Rule::ALL`].
pub fn lint(template: &ChatTemplate) -> Vec<Finding> {
    lint_by(template, &probes())
}

/// The same by other probes, or by probes with other variables.
pub fn lint_by(template: &ChatTemplate, probes: &[Probe]) -> Vec<Finding> {
    let until = Instant::now() + LONGEST;
    let mut findings: Vec<Finding> = Vec::new();
    for probe in probes {
        if findings.iter().any(|finding| probe.unless.contains(&finding.rule)) {
            continue;
        }
        for finding in probe.tried(template, until) {
            if findings.iter().all(|known| known.rule != finding.rule) {
                findings.push(finding);
            }
        }
    }
    findings.sort_by_key(|finding| finding.rule);
    findings
}

impl Probe {
    /// What is wrong with the form that the template takes best; with a spare one where it takes none.
    fn tried(&self, template: &ChatTemplate, until: Instant) -> Vec<Finding> {
        let first = self.best(&self.forms, template, until);
        let spare = || self.best(&self.spare, template, until).filter(|(refused, _)| !refused);
        let best = first.map(|first| if first.0 { spare().unwrap_or(first) } else { first });
        best.map_or_else(Vec::new, |(_, wrong)| wrong)
    }

    fn best(
        &self,
        forms: &[Conversation],
        template: &ChatTemplate,
        until: Instant,
    ) -> Option<(bool, Vec<Finding>)> {
        let mut best: Option<(bool, Vec<Finding>)> = None;
        for form in forms {
            let tried = self.form(template, form, until);
            let order = |(refused, wrong): &(bool, Vec<Finding>)| (*refused, wrong.len());
            if best.as_ref().is_none_or(|best| order(&tried) < order(best)) {
                best = Some(tried);
            }
            if best.as_ref().is_some_and(|best| order(best) == (false, 0)) {
                break;
            }
        }
        best
    }

    /// Whether a form is refused, and what is wrong with it.
    fn form(&self, template: &ChatTemplate, form: &Conversation, until: Instant) -> (bool, Vec<Finding>) {
        if Instant::now() > until {
            let error = Error::new(Kind::Limit, format!("the probes together take longer than {LONGEST:?}"));
            return (true, vec![self.refusal(Rule::Unusable, error)]);
        }
        match template.chat(form) {
            Err(error) if error.kind == Kind::Limit => (true, vec![self.refusal(Rule::Unusable, error)]),
            Err(error) => (true, self.refused.map(|rule| self.refusal(rule, error)).into_iter().collect()),
            Ok(rendered) => {
                let wrong = self
                    .expectations
                    .iter()
                    .filter(|expectation| !expectation.holds(template, form, &rendered));
                let finding = |expectation: &Expectation| Finding {
                    rule: expectation.rule,
                    probe: self.name,
                    expectation: Some(*expectation),
                    observed: Observed::Text(rendered.text.clone()),
                };
                (false, wrong.map(finding).collect())
            }
        }
    }

    fn refusal(&self, rule: Rule, error: Error) -> Finding {
        Finding { rule, probe: self.name, expectation: None, observed: Observed::Refusal(error) }
    }
}

/// How many characters of a text a sentence shows.
const SHOWN: usize = 90;

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}: ", self.rule.name(), self.rule.sentence(), self.probe)?;
        match (&self.observed, &self.expectation) {
            (Observed::Refusal(error), _) => write!(f, "{error}"),
            (Observed::Text(text), Some(expectation)) => {
                write!(f, "{expectation} {}", shown(text, expectation.near()))
            }
            (Observed::Text(text), None) => write!(f, "{}", shown(text, "")),
        }
    }
}

/// The part of a text that ends soon after a word, or at its end.
fn shown(text: &str, word: &str) -> String {
    let at = if word.is_empty() { None } else { text.rfind(word) };
    let end = at.map_or(text.len(), |at| at + word.len());
    let after: String = text.get(end..).unwrap_or_default().chars().take(SHOWN / 3).collect();
    let before = text.get(..end).unwrap_or_default();
    let skipped = before.chars().count().saturating_sub(SHOWN);
    let before: String = before.chars().skip(skipped).collect();
    let dots = |more: bool| if more { "..." } else { "" };
    format!("{}{:?}{}", dots(skipped > 0), format!("{before}{after}"), dots(end + after.len() < text.len()))
}
