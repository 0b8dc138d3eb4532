//! The rows of challenge B under what they rest on: a whole report, and what is changed in it.

use std::collections::BTreeMap;

use crate::course::Backend;
use crate::courses;
use crate::evidence::Seen;
use crate::rubric::Facts;
use crate::scorecard::{Challenge, Check, Guard, Outcome, Scorecard, Truth};
use crate::whole_report;

/// A report in which every row holds, and what is changed in it.
fn judged(change: impl FnOnce(&mut Challenge, &mut Vec<Guard>)) -> Facts {
    let Scorecard { mut challenges, mut guards, machine, .. } = whole_report::whole(false);
    let mut challenge = challenges.swap_remove(1);
    guards.retain(|guard| guard.challenge == challenge.name);
    change(&mut challenge, &mut guards);
    let (checks, measurements) = (&challenge.checks, &challenge.measurements);
    let seen = Seen { checks, guards: &guards, measurements, unmeasured: &BTreeMap::new() };
    let rubric = crate::rubric::find("fsdp").expect("it is one of five");
    courses::facts(rubric, &courses::of_challenge("fsdp", Backend::Cpu), &seen, &machine)
}

fn end(challenge: &mut Challenge, steps: &[&str], how: Outcome) {
    let own = |check: &&mut Check| steps.iter().any(|step| check.name.starts_with(step));
    challenge.checks.iter_mut().filter(own).for_each(|check| check.outcome = how);
}

fn met(facts: &Facts) -> Vec<&'static str> {
    facts.iter().filter(|(_, fact)| fact.truth == Truth::Met).map(|(name, _)| *name).collect()
}

fn unmet(facts: &Facts, names: &[&str]) {
    for name in names {
        assert_eq!(facts[name].truth, Truth::Unmet, "{name}: {}", facts[name].evidence);
    }
}

const ORACLE: &str = "an oracle called inside a step";
const GUARDS: [&str; 4] =
    ["everything on every rank", "more than shards on the wire", "ranks left out", ORACLE];
const IN_SHARDS: &str = "B/trains-in-shards";
const SHARED: &str = "B/shares-layers";
const PIPELINE: &str = "B/runs-a-pipeline";
const FLAT: &str = "B/flat-rows";
const TIMED: &str = "B/times-a-step";
const FSDP2: &str = "FSDP2_works_with_QLoRA";
const FSDP1: &str = "FSDP1_works_with_QLoRA";
const PARTS: &str = "TP_or_PP_with_QLoRA";
const BUBBLE: &str = "zero_bubble";
const SHOWN: &str = "kaggle_notebook_2_tesla_t4_example";
const PART_A: &str = "uses_part_A_and_single_kernel_and_faster";

#[test]
fn a_guard_that_trips_takes_every_row_that_rests_on_it() {
    assert_eq!(met(&judged(|_, _| ())).len(), 7);
    for name in GUARDS {
        let facts = judged(|_, all| {
            let guard = all.iter_mut().find(|guard| guard.name == name).expect("every guard ran");
            (guard.tripped, guard.detail) = (true, "seen".into());
        });
        unmet(&facts, &[FSDP2, FSDP1, SHOWN]);
        assert_eq!(facts[BUBBLE].truth == Truth::Unmet, name == ORACLE, "{name}");
    }
}

#[test]
fn a_number_beyond_its_limit_takes_its_row() {
    for (number, value, names) in [
        ("fsdp.training.gathered", 1.0e8, &[FSDP2][..]),
        ("fsdp.training.reduced", 1.0e8, &[FSDP2]),
        ("fsdp.training.norms", 1e-3, &[FSDP2]),
        ("fsdp.training.adapter", 1e-2, &[FSDP2]),
        ("fsdp.training.beyond_share", 1.0, &[FSDP2]),
        ("fsdp.training.room", 1.0, &[FSDP2]),
        ("fsdp.pipeline", 1e-3, &[BUBBLE]),
        ("fsdp.dequantizer.apart", 1e-3, &[PART_A]),
        ("fsdp.dequantizer.wrong_sizes", 1.0, &[PART_A]),
        ("fsdp.dequantizer.working_bytes", 1e6, &[PART_A]),
        ("fsdp.dequantizer.calls", 20.0, &[PART_A]),
    ] {
        let facts = judged(|challenge, _| {
            challenge.measurements.get_mut(number).expect("it is there").value = value;
        });
        unmet(&facts, names);
    }
}

#[test]
fn a_run_that_fails_takes_its_rows() {
    for (run, names) in [
        (IN_SHARDS, &[FSDP2, "torch_compile_works"][..]),
        (PIPELINE, &[BUBBLE]),
        (FLAT, &[FSDP1]),
        (TIMED, &[PART_A]),
    ] {
        unmet(&judged(|challenge, _| end(challenge, &[run], Outcome::Wrong)), names);
    }
}

#[test]
fn who_wrote_less_wins_the_lines_for_less() {
    let shards = ["B.1", "B.2", "B.3", "B.4", "B.5", "B.6", IN_SHARDS, FLAT, TIMED];
    let only_parts = judged(|challenge, all| {
        end(challenge, &shards, Outcome::NotAttempted);
        for guard in all.iter_mut().filter(|guard| guard.name != ORACLE) {
            (guard.ran, guard.detail) = (false, "not written yet: B.1: cut".into());
        }
    });
    assert_eq!(met(&only_parts), [PARTS, SHOWN, BUBBLE]);
    unmet(&only_parts, &[FSDP2, FSDP1]);
    let only_flat = judged(|challenge, _| {
        end(challenge, &["B.3", "B.6", "B.7", "B.8", IN_SHARDS, SHARED, PIPELINE], Outcome::NotAttempted);
    });
    assert_eq!(only_flat[FSDP1].truth, Truth::Met);
    unmet(&only_flat, &[FSDP2, PARTS, BUBBLE]);
    let nothing = judged(|challenge, _| end(challenge, &["B"], Outcome::NotAttempted));
    assert!(nothing.values().filter(|fact| fact.truth == Truth::Unmet).count() == 2, "{nothing:#?}");
}
