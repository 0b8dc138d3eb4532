//! Contract: every guard is tripped by a cheat of its kind, and by no honest attempt.

use std::sync::LazyLock;

use kernels::Vector;
use scorecard::{Check, Outcome, Scorecard};
use tests::attempts::{ASKERS, BY_SYMBOL, CHEATS, Entry, SLOWERS, TWINS, TWO_PASSES, UNHIDDEN};
use tests::program::{Ran, checks, own, tripped, unpassed};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// A cheat, and how the grader shows that it saw it.
struct Caught {
    cheat: &'static str,
    /// The guard that trips, and others that may: memory that was given back is handed out again at the same
    /// address, so an answer by pointer is one by content, too.
    guards: &'static [&'static str],
    /// Whether the checks alone would have let it pass.
    passes_checks: bool,
}

const fn caught(cheat: &'static str, guards: &'static [&'static str], passes_checks: bool) -> Caught {
    Caught { cheat, guards, passes_checks }
}

/// The cheats that checks and guards see.
const BY_TEST: [Caught; 18] = [
    caught("answers by pointer", &["answers cached by pointer", "answers cached by content"], true),
    caught("answers by sampled content", &["answers cached by content"], true),
    caught("answers by whole content", &["answers cached by content"], true),
    caught("answers by call count", &["answers cached by call count"], true),
    caught("leaves zeros unwritten", &["unwritten outputs"], false),
    caught("scribbles on its input", &["inputs modified"], true),
    caught("makes its input fit its answer", &["inputs modified", "constants and zeros"], false),
    caught("answers zero", &["constants and zeros"], false),
    caught("answers a constant", &["constants and zeros"], false),
    caught("answers NaN", &["NaN as a wildcard"], false),
    caught("finishes later", &["work finished after the clock stops"], false),
    caught("knows the listed shapes", &["right on the checked shapes only"], true),
    caught("rounds the scale to bf16", &["lower precision"], false),
    caught("goes through f16", &["lower precision"], false),
    caught("writes past the end", &["writes outside the buffer"], false),
    caught("writes before the beginning", &["writes outside the buffer"], false),
    caught("asks the oracle", &["an oracle called inside a step"], false),
    caught("asks the oracle for a scale", &["an oracle called inside a step"], false),
];

/// The cheats that only the timed runs can see.
const BY_BENCH: [Caught; 7] = [
    caught("skips timed work", &["wrong answers in timed calls"], true),
    caught("mends only what was spoilt", &["wrong answers in timed calls"], true),
    caught("mends what was spoilt and bides its time", &["wrong answers in timed calls"], true),
    caught("remembers timed answers", &["wrong answers in timed calls"], true),
    caught("holds up the others", &HELD_UP, true),
    caught("spins now and then", &HELD_UP, true),
    caught("queues work on the device", &HELD_UP, true),
];

const HELD_UP: [&str; 2] = ["others held up while they are timed", "past the physical bound"];

/// The cheats that a number tells, and the rows that they do not win.
const BY_NUMBER: [(&str, &[&str]); 2] = [
    ("is fast for one thread alone", &["custom_asm_works", "uses_cache_eviction"]),
    ("counts a peak of its own", &["single_triton_kernel"]),
];

const TEST: [&str; 5] = ["test", "nf4", "--json", "--seed", "0x1"];
const BENCH: [&str; 8] =
    ["bench", "nf4", "--quick", "--case", "bench/2048x8192.f16", "--json", "--seed", "0x1"];

/// Thirty rounds at least: a busy machine holds a cheat up as well, and then only many rounds tell it by its speed.
const LONG_BENCH: [&str; 10] = [
    "bench",
    "nf4",
    "--quick",
    "--case",
    "bench/2048x8192.f16",
    "--samples",
    "60",
    "--json",
    "--seed",
    "0x1",
];

fn only_these_tripped(cheat: &str, guards: &[&str], card: &Scorecard) {
    let tripped = tripped(card);
    let is_seen = |guard: &&str| tripped.contains(guard);
    let by = if cfg!(target_os = "linux") { &guards[..1] } else { guards }; // the time of threads is told there alone
    assert!(by.iter().any(is_seen), "{cheat} is not seen: {:#?}", card.guards);
    assert!(tripped.iter().all(|guard| guards.contains(guard)), "{cheat}: {:#?}", card.guards);
}

fn nothing_is_won(what: &str, ran: &Ran, card: &Scorecard) {
    assert!(card.challenges[0].points <= 0, "{what}: {} points", card.challenges[0].points);
    assert_eq!(ran.code, 1, "{what}: exit code");
}

#[test]
fn a_cheat_trips_the_guard_of_its_kind() {
    for Caught { cheat, guards, passes_checks } in BY_TEST {
        let ran = own(OWN, cheat, &TEST);
        let card = ran.card();
        only_these_tripped(cheat, guards, &card);
        assert!(!passes_checks || unpassed(&card).is_empty(), "{cheat}: {:?}", unpassed(&card).first());
        nothing_is_won(cheat, &ran, &card);
    }
}

/// Times a cheat until its guard trips, a few times at most: one that is told by its speed alone is not always past the
/// bound while other work holds it up.
fn timed(cheat: &str, guard: &str) -> (Ran, Scorecard) {
    let run = || {
        let ran = own(OWN, cheat, &LONG_BENCH);
        let card = ran.card();
        (ran, card)
    };
    let seen = |(_, card): &(Ran, Scorecard)| tripped(card).contains(&guard);
    std::iter::repeat_with(run).take(4).find(seen).unwrap_or_else(run)
}

#[test]
fn a_cheat_on_the_clock_is_seen_by_the_timed_runs() {
    for Caught { cheat, guards, .. } in BY_BENCH {
        let (ran, card) = timed(cheat, guards[0]);
        only_these_tripped(cheat, guards, &card);
        nothing_is_won(cheat, &ran, &card);
        let untimed = own(OWN, cheat, &TEST).card();
        assert!(unpassed(&untimed).is_empty(), "{cheat} is careful outside timed calls");
    }
}

/// Everything of challenge A, as briefly as may be.
const SCORE: [&str; 8] = ["score", "nf4", "--quick", "--samples", "2", "--json", "--seed", "0x1"];

/// What an honest attempt gets.
static HONEST: LazyLock<Scorecard> = LazyLock::new(|| own(OWN, "honest", &SCORE).card());

#[test]
fn a_cheat_that_behaves_where_it_is_watched_does_not_win_the_row() {
    let won = |card: &Scorecard, wording: &str| {
        let row = card.challenges[0].rows.iter().find(|row| row.wording == wording).expect("a published row");
        (row.points > 0, row.evidence.clone())
    };
    let honest = &*HONEST;
    assert!(tripped(honest).is_empty(), "{:#?}", honest.guards);
    for (cheat, wordings) in BY_NUMBER {
        let card = own(OWN, cheat, &SCORE).card();
        for wording in wordings {
            let (by_cheat, message) = won(&card, wording);
            assert!(!by_cheat, "{cheat}: {wording}: {message}");
            let (by_honest, message) = won(honest, wording);
            assert!(by_honest || message.contains("not measured"), "honest: {wording}: {message}");
        }
    }
}

/// The words of a check whose step called the solution.
const ASKED: &str = "the workbook's solution";

#[test]
fn the_workbooks_solution_is_nobodys_attempt() {
    let parts = (2..7).map(|cheat| ("issues", cheat));
    for (challenge, cheat) in [("nf4", 0), ("graph", 1)].into_iter().chain(parts).chain([("loss", 7)]) {
        let cheat = ASKERS[cheat].name;
        let ran = own(OWN, cheat, &["test", challenge, "--json", "--seed", "0x1"]);
        let card = ran.card();
        let named = card.challenges.iter().find(|named| named.name == challenge).expect("was asked for");
        let asked = |detail: &str| detail.contains(ASKED);
        let message =
            named.checks.iter().filter(|check| check.outcome == Outcome::Wrong && asked(&check.detail));
        let (message, all) = (message.count(), named.checks.len()); // one or two checks ask nothing of the step itself
        assert!(
            message + 2 >= all && message > 0,
            "{cheat}: {message} of {all}, {:?}",
            unasked(&named.checks)
        );
        assert!(
            named.points <= 0 && ran.code == 1,
            "{cheat}: {} points, exit code {}",
            named.points,
            ran.code
        );
    }
    let by_guard = own(OWN, ASKERS[0].name, &TEST).card();
    assert_eq!(tripped(&by_guard), ["an oracle called inside a step"]);
}

/// The first check that passed although it should not have.
fn unasked(checks: &[Check]) -> Option<&Check> {
    checks.iter().find(|check| !check.detail.contains(ASKED))
}

/// The attempts that reach the linked solution: every check of the step is wrong, and the guard trips.
#[test]
fn linked_solution_called_by_symbol_is_caught() {
    for Entry { name, .. } in &BY_SYMBOL {
        let ran = own(OWN, name, &TEST);
        let card = ran.card();
        assert_eq!(tripped(&card), ["an oracle called inside a step"], "{name}");
        let of_step = checks(&card).iter().filter(|check| check.name.starts_with("A.6/"));
        let passed = of_step.filter(|check| check.outcome == Outcome::Passed).count();
        assert_eq!(passed, 0, "{name}");
        nothing_is_won(name, &ran, &card);
    }
}

/// Bytes per thread, bytes in all, and launches of the call whose memory is counted.
fn footprint(attempt: &str) -> [f64; 3] {
    let case = ["bench", "nf4", "--quick", "--case", "watch/bytes", "--json", "--seed", "0x1"];
    let card = own(OWN, attempt, &case).card();
    let of = |name: &str| {
        let measured = card.challenges[0].measurements.get(name);
        measured.unwrap_or_else(|| panic!("{attempt}: {name} was not measured")).value
    };
    ["nf4.working_bytes", "nf4.peak_bytes", "nf4.launches"].map(of)
}

/// Half of an f32 buffer for the scales, as the row has it.
const MOST_BYTES: f64 = 512.0 * 1024.0;

#[test]
#[cfg(target_os = "linux")]
fn memory_in_statics_and_on_stacks_counts() {
    let is_single = |[per_thread, all, launches]: [f64; 3]| {
        per_thread <= 65536.0 && all < MOST_BYTES && (launches - 1.0).abs() < 0.5
    };
    for Entry { name, .. } in &TWO_PASSES {
        let footprint = footprint(name);
        assert!(!is_single(footprint), "{name}: {footprint:?}");
    }
    let honest = UNHIDDEN.iter().map(|entry| entry.name).chain(["honest"]);
    for name in honest {
        let footprint = footprint(name);
        assert!(is_single(footprint), "{name}: {footprint:?}");
    }
}

#[test]
fn a_cheat_that_ends_its_process_before_a_guard_gains_nothing_by_it() {
    let cheat = "leaves when it is watched";
    let ran = own(OWN, cheat, &TEST);
    let card = ran.card();
    assert!(unpassed(&card).is_empty(), "the checks see nothing");
    let blind = card.guards.iter().filter(|guard| !guard.ran).count();
    assert!(blind > 0 && tripped(&card).is_empty(), "the guards could not run");
    nothing_is_won(cheat, &ran, &card);
}

#[test]
fn an_honest_twin_trips_no_guard() {
    for twin in TWINS.iter().chain(&UNHIDDEN) {
        let ran = own(OWN, twin.name, &TEST);
        let card = ran.card();
        assert!(tripped(&card).is_empty(), "{}: {:#?}", twin.name, card.guards);
        assert!(card.guards.iter().all(|guard| guard.ran), "{}: {:#?}", twin.name, card.guards);
        assert!(unpassed(&card).is_empty(), "{}: {:?}", twin.name, unpassed(&card).first());
        assert!(!checks(&card).is_empty() && ran.code == 0, "{}: exit code {}", twin.name, ran.code);
    }
}

/// A step without vector instructions is measured, however long it takes to follow it.
#[test]
fn a_scalar_step_is_seen_to_be_scalar() {
    let watched = ["bench", "nf4", "--quick", "--case", "watch/instructions", "--json", "--seed", "0x1"];
    let numbers = |twin: &str| {
        let card = own(OWN, twin, &watched).card();
        let number = |name: &str| card.challenges[0].measurements.get(name).map(|number| number.value);
        [number("nf4.vector_instructions"), number("nf4.timed_vector_instructions")]
    };
    let honest = numbers("honest");
    if honest[0].is_none() {
        return; // this system does not step through programs
    }
    let many = |number: Option<f64>| number.is_some_and(|number| number > 64.0);
    assert!(honest.into_iter().all(many) || Vector::widest() == Vector::Portable, "{honest:?}");
    let scalar = numbers("works in f64");
    assert!(scalar.into_iter().all(|number| number.is_some_and(|number| number < 64.0)), "{scalar:?}");
}

#[test]
fn an_honest_twin_is_timed_without_a_guard_tripping() {
    for twin in ["honest", "delegates and counts its calls", "keeps a sleeping thread"] {
        let ran = own(OWN, twin, &BENCH);
        let card = ran.card();
        assert!(tripped(&card).is_empty(), "{twin}: {:#?}", card.guards);
        assert_eq!(card.guards.len(), 3, "{twin}: all guards of the timed runs looked");
        assert_eq!(ran.code, 0, "{twin}: exit code");
    }
}

/// Threads that are moved to one core are held up without any work of another thread.
#[test]
#[cfg(target_os = "linux")]
fn moved_threads_are_seen() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return; // they are on one core anyway
    }
    let [cheat, twin] = tests::attempts::MOVERS.map(|entry| {
        let card = own(OWN, entry.name, &BENCH).card();
        (tripped(&card).contains(&HELD_UP[0]), card.guards)
    });
    assert!(cheat.0, "{:#?}", cheat.1);
    assert!(twin.1.iter().all(|guard| !guard.tripped), "{:#?}", twin.1);
}

#[test]
fn every_guard_is_tripped_by_some_cheat() {
    let guards = &HONEST.guards;
    assert!(guards.len() >= 14, "{} guards", guards.len());
    for guard in guards {
        let by =
            BY_TEST.iter().chain(&BY_BENCH).filter(|caught| caught.guards.contains(&guard.name.as_str()));
        assert!(by.count() > 0, "no cheat trips {:?}", guard.name);
    }
}

#[test]
fn every_cheat_is_tried() {
    let tried = |name| {
        let by_guard = BY_TEST.iter().chain(&BY_BENCH).any(|caught| caught.cheat == name);
        by_guard || BY_NUMBER.iter().any(|(cheat, _)| *cheat == name)
    };
    for cheat in CHEATS.iter().chain(&SLOWERS) {
        assert!(tried(cheat.name) || cheat.name == "leaves when it is watched", "{:?}", cheat.name);
    }
}
