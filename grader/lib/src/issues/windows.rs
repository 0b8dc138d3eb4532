//! The row *Windows support*: whether the graded program runs there is a fact of the machine and of what it graded.
//!
//! A pure function of what a report holds, so that `verify-report` can compute it again.

use kernels::Vector;

use crate::course::Course;
use crate::evidence::{Seen, met, unmeasured, unmet};
use crate::expected::Expected;
use crate::rubric::Fact;
use crate::scorecard::{Basis, Check, Machine, Outcome};
use crate::verdict::{Verdict, outcomes, verdict};

/// The name of the row and of its fact.
pub(crate) const ROW: &str = "Windows support";

/// The fact: on Windows at least one part of the challenge is right, whole. Wine stands in for Windows.
pub(crate) fn fact(machine: &Machine, courses: &[&Course], seen: &Seen<'_>) -> Fact {
    if machine.os != "windows" {
        return unmeasured(&format!("asks for Windows, this is {}", machine.os));
    }
    let right: Vec<&Course> = courses.iter().copied().filter(|course| is_right(course, seen)).collect();
    let system =
        machine.wine.as_ref().map_or("Windows".into(), |version| format!("Wine {version}, for Windows"));
    if right.is_empty() {
        return unmet(&format!("no part of the challenge passes all of its checks on {system}"));
    }
    let owned = |check: &&Check| right.iter().any(|course| course.owns(check));
    let passed = seen.checks.iter().filter(owned).filter(|check| check.outcome == Outcome::Passed).count();
    let (right, all) = (right.len(), courses.len());
    let evidence =
        format!("{right} of {all} parts right on {system}: {passed} checks passed, no guard tripped");
    Fact { basis: machine.wine.as_ref().map(|_| Basis::StandIn), ..met(&evidence) }
}

/// Whether every check of a part ran and passed, and no guard tripped.
fn is_right(course: &Course, seen: &Seen<'_>) -> bool {
    let expected = Expected::of(&[course], Vector::Portable);
    let guards: Vec<&str> = expected.guards.iter().map(String::as_str).chain(expected.timed_guards).collect();
    let whole = verdict(seen, expected.checks.iter().map(String::as_str), &guards);
    let passed = outcomes(seen.checks.iter().filter(|check| course.owns(check)));
    (whole, passed) == (Verdict::Sound, Verdict::Sound)
}
