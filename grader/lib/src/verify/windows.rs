//! The row *Windows support* on machines of each system.

use std::collections::BTreeMap;

use kernels::Vector;

use crate::course::Backend;
use crate::courses;
use crate::evidence::Seen;
use crate::expected::Expected;
use crate::issues::windows::ROW;
use crate::rubric::Fact;
use crate::scorecard::{Basis, Check, Guard, Machine, Outcome, Truth};
use crate::whole_report;

fn machine(os: &str, wine: Option<&str>) -> Machine {
    Machine { os: os.into(), wine: wine.map(str::to_owned), ..whole_report::whole(false).machine }
}

/// The fact of a run of all parts on a machine, with what `change` does to its checks and guards.
fn judged(machine: &Machine, change: impl Fn(&mut Check, &mut [Guard])) -> Fact {
    let courses = courses::of_challenge("issues", Backend::Cpu);
    let Expected { checks, guards, timed_guards } = Expected::of(&courses, Vector::Portable);
    let guards = guards.into_iter().chain(timed_guards.into_iter().map(str::to_owned));
    let clear =
        |name| Guard { challenge: "issues".into(), name, ran: true, tripped: false, detail: String::new() };
    let mut guards: Vec<Guard> = guards.map(clear).collect();
    let passed =
        |name: String| Check { name, outcome: Outcome::Passed, detail: String::new(), replay: String::new() };
    let mut checks: Vec<Check> = checks.into_iter().map(passed).collect();
    for check in &mut checks {
        change(check, &mut guards);
    }
    let (measurements, unmeasured) = (&BTreeMap::new(), &BTreeMap::new());
    let seen = Seen { checks: &checks, guards: &guards, measurements, unmeasured };
    let rubric = crate::rubric::find("issues").expect("it is one of five");
    courses::facts(rubric, &courses, &seen, machine)[ROW].clone()
}

#[test]
fn elsewhere_it_is_not_measured() {
    for os in ["linux", "macos"] {
        let fact = judged(&machine(os, None), |_, _| {});
        assert_eq!(fact.truth, Truth::Unmeasured);
        assert_eq!(fact.evidence, format!("not measured: asks for Windows, this is {os}"));
    }
}

#[test]
fn wine_is_a_stand_in_and_windows_is_not() {
    let fact = judged(&machine("windows", None), |_, _| {});
    assert_eq!((fact.truth, fact.basis), (Truth::Met, None), "{}", fact.evidence);
    let fact = judged(&machine("windows", Some("10.0")), |_, _| {});
    assert_eq!((fact.truth, fact.basis), (Truth::Met, Some(Basis::StandIn)), "{}", fact.evidence);
    assert!(fact.evidence.starts_with("5 of 5 parts right on Wine 10.0, for Windows: "), "{}", fact.evidence);
}

#[test]
fn one_whole_part_is_enough_and_none_is_too_few() {
    let windows = machine("windows", None);
    let other = |check: &mut Check, _: &mut [Guard]| {
        let of_chat = courses::of_key("issues.chat").is_some_and(|course| course.owns(check));
        check.outcome = if of_chat { Outcome::Passed } else { Outcome::NotAttempted };
    };
    let fact = judged(&windows, other);
    assert_eq!(fact.truth, Truth::Met);
    assert!(fact.evidence.starts_with("1 of 5 parts right on Windows: "), "{}", fact.evidence);
    for outcome in [Outcome::Wrong, Outcome::NotAttempted, Outcome::DoesNotCompile, Outcome::GraderFault] {
        assert_eq!(judged(&windows, |check, _| check.outcome = outcome).truth, Truth::Unmet, "{outcome:?}");
    }
    let tripped = |_: &mut Check, guards: &mut [Guard]| {
        for guard in guards {
            guard.tripped = true;
        }
    };
    assert_eq!(judged(&windows, tripped).truth, Truth::Unmet);
}
