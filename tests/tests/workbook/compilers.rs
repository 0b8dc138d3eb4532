//! Contract of challenge C: every guard is tripped by a cheat of its kind, and by no honest compiler.

use scorecard::{Challenge, Outcome, Scorecard, Truth};
use tests::attempts::COMPILERS;
use tests::program::{own, tripped};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// A cheat, and the guards that see it.
const CAUGHT: [(&str, &[&str]); 6] = [
    ("hides its fallbacks", &["a fallback that hides", "a guard on values"]),
    ("guards on values", &["a guard on values"]),
    ("recompiles in secret", &["a recompilation that is not counted"]),
    ("runs the loss eagerly", &["an eager loss"]),
    ("bakes the examples in", &["answers of the examples"]),
    ("knows the checked programs", &["right on the checked programs only"]),
];

fn graph(card: &Scorecard) -> &Challenge {
    card.challenges.iter().find(|challenge| challenge.name == "graph").expect("all five are there")
}

#[test]
fn a_cheating_compiler_trips_the_guard_of_its_kind() {
    for (cheat, guards) in CAUGHT {
        let ran = own(OWN, cheat, &["test", "graph", "--json", "--seed", "0x1"]);
        let card = ran.card();
        let tripped = tripped(&card);
        assert!(tripped.contains(&guards[0]), "{cheat} is not seen: {:#?}", card.guards);
        assert!(tripped.iter().all(|guard| guards.contains(guard)), "{cheat}: {:#?}", card.guards);
        assert!(graph(&card).points <= 0 && ran.code == 1, "{cheat} gains something");
    }
}

/// A slip, and the check that sees it.
const SEEN: [(&str, &str); 12] = [
    ("notes no lines", "C.1/operations-alone"),
    ("takes both zeros for one", "C.3/computed-twice"),
    ("takes two streams for one", "C.3/random-masks"),
    ("merges collectives", "C.3/collectives"),
    ("keeps nothing", "C.4/used-often"),
    ("never rounds", "C.6/half-precision"),
    ("rounds constants twice", "C.6/constants"),
    ("rounds whole numbers twice", "C.6/casts"),
    ("draws from the first stream", "C.6/random-masks"),
    ("lowers a collective", "C.6/not-on-elements"),
    ("times one after the other", "C.7/a-slow-moment"),
    ("forgets the facts", "C.8/one-launch-each"),
];

#[test]
fn a_slip_in_a_step_is_seen_by_a_check_of_that_step() {
    for (slip, check) in SEEN {
        let ran = own(OWN, slip, &["replay", &format!("graph:{check}"), "--seed", "0x5"]);
        assert!(ran.code == 1 && ran.stdout.contains(": wrong"), "{slip}: {}", ran.stdout);
        let words = ran.stdout.split("\n\ncalls (>)").next().unwrap_or_default(); // what was called comes after
        assert!(words.lines().count() < 60, "{slip} is told at length: {}", ran.stdout);
    }
}

#[test]
fn an_honest_compiler_trips_no_guard_and_passes_every_check() {
    let honest = COMPILERS.last().expect("it is the last one").name;
    let ran = own(OWN, honest, &["test", "C", "--json", "--seed", "0x2"]);
    let card = ran.card();
    assert!(tripped(&card).is_empty(), "{:#?}", card.guards);
    let open: Vec<_> = graph(&card).checks.iter().filter(|check| check.outcome != Outcome::Passed).collect();
    assert!(open.is_empty() && ran.code == 0, "{open:#?}");
}

/// Whether an attempt's run of a case gives a number.
fn is_measured(attempt: &str, case: &str, number: &str) -> bool {
    let case = ["bench", "graph", "--quick", "--case", case, "--samples", "2", "--json", "--seed", "0x1"];
    let card = own(OWN, attempt, &case).card();
    graph(&card).measurements.contains_key(number)
}

#[test]
#[cfg(target_os = "linux")]
fn plans_timed_beside_a_spinning_thread_are_no_measurement() {
    let is_timed = |attempt: &str| is_measured(attempt, "bench/step", "graph.over_op_by_op");
    assert!(!is_timed("spins beside the plans"));
    assert!(is_timed("sleeps beside the plans"));
}

#[test]
fn plans_of_the_solution_are_no_measurement() {
    let is_counted = |attempt: &str| is_measured(attempt, "watch/lengths", "graph.lengths_right");
    assert!(!is_counted("asks for the plan that is measured"));
    assert!(is_counted("an honest compiler"));
}

#[test]
fn a_secret_recompilation_costs_what_it_gained() {
    let ran = own(OWN, "recompiles in secret", &["score", "graph", "--quick", "--json", "--seed", "0x3"]);
    let card = ran.card();
    let row = |wording: &str| {
        let found = graph(&card).rows.iter().find(|row| row.wording == wording);
        found.unwrap_or_else(|| panic!("no row {wording}")).clone()
    };
    assert_eq!(row("attention_compiled").fact, Truth::Unmet, "{}", row("attention_compiled").evidence);
    assert!(graph(&card).points <= 0, "{:#?}", graph(&card).rows);
}

#[test]
fn the_solution_gets_every_point_of_the_cpu() {
    let ran = own(OWN, "none", &[]);
    assert_eq!(ran.code, 2, "no attempt is called none");
    let ran = own(OWN, "an honest compiler", &["score", "graph", "--quick", "--json", "--seed", "0x4"]);
    let card = ran.card();
    assert_eq!((graph(&card).points, graph(&card).unmeasured), (9, 0), "{:#?}", graph(&card).rows);
}

#[test]
fn a_program_that_hands_in_no_compiler_is_told_so() {
    let ran = own(OWN, "answers zero", &["score", "graph"]);
    assert!(ran.code == 2 && ran.stderr.contains("no attempt at challenge C"), "{}", ran.stderr);
}
