//! Contract of tool calling: every guard is tripped by a cheat of its kind, and by no honest attempt.

use scorecard::{Challenge, Outcome, Row, Scorecard};
use tests::program::{own, tripped};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// A cheat, and the guard that sees it.
const CAUGHT: [(&str, &str); 3] = [
    ("waits for the end", "nothing before the end"),
    ("remembers where a text lay", "an answer that remembers"),
    ("knows two tokens", "known tokens only"),
];

fn issues(card: &Scorecard) -> &Challenge {
    card.challenges.iter().find(|challenge| challenge.name == "issues").expect("all five are there")
}

#[test]
fn a_cheating_chatter_trips_the_guard_of_its_kind() {
    for (cheat, guard) in CAUGHT {
        let card = own(OWN, cheat, &["score", "issues", "--quick", "--json", "--seed", "0x1"]).card();
        assert_eq!(tripped(&card), [guard], "{cheat}: {:#?}", card.guards);
        assert_eq!(issues(&card).points, 0, "{cheat} gets a point");
    }
}

/// A slip, the check that sees it, and what that says.
const SEEN: [(&str, &str, &str); 23] = [
    ("escapes markup", "D.1/plain", r"\\u0026"),
    ("escapes code points", "D.1/ensure-ascii", r"\\ud83d"),
    ("leaves U+007F", "D.1/ensure-ascii", r"\\u007f"),
    ("writes floats as Rust does", "D.1/exponents", "1e+22"),
    ("rounds halves up", "D.1/floats-drawn", "12384.675903320312"),
    ("wants whole tokens", "D.2/across-a-border", "tokens at "),
    ("looks at the first span", "D.2/nothing", "when asked for the mask of tokens at ["),
    ("looks at every span", "D.2/many-of-both", "D.2/many-of-both"),
    ("looks at every empty span", "D.2/many-of-both", "D.2/many-of-both"),
    ("gives a character to one token", "D.2/across-a-border", "1..2, 1..2, 1..2"),
    ("replaces tokens", "D.3/inside-another", "and | for the mark"),
    ("has a mark of its own", "D.3/drawn", "for the mark became"),
    ("asks for everything", "D.4/required", "the function f("),
    ("takes nullable for optional", "D.4/required", "f(city: Optional[str], days: int = 1"),
    ("asks for nothing by name", "D.4/nothing-required", "required"),
    ("holds nothing back", "D.5/begun", "want Pending(2)"),
    ("holds too little back", "D.5/begun-twice", "want Pending(0)"),
    ("takes what is there", "D.6/waits", "want Pending(3)"),
    ("waits for nothing at the end", "D.6/the-end", "want Pending(2)"),
    ("leaves names in quotes", "D.7/names", "unquoted keys true"),
    ("takes the first quote", "D.7/several-pairs", "unquoted keys true"),
    ("quotes names in strings", "D.7/strings-hold-anything", "unquoted keys true"),
    ("takes spans for bytes", "D.8/characters-of-several-bytes", "with the spans "),
];

#[test]
fn a_slip_in_a_step_of_a_chatter_is_seen_by_a_check_of_that_step() {
    for (slip, check, words) in SEEN {
        let ran = own(OWN, slip, &["replay", &format!("issues:{check}"), "--seed", "0x5"]);
        assert!(ran.code == 1 && ran.stdout.contains(": wrong"), "{slip}: {}", ran.stdout);
        assert!(ran.stdout.contains(words), "{slip}: {}", ran.stdout);
        let words = ran.stdout.split("\n\ncalls (>)").next().unwrap_or_default(); // what was called comes after
        assert!(words.lines().count() < 60, "{slip} is told at length: {}", ran.stdout);
    }
}

/// What is wrong in general is told by the checks; a guard would call it a cheat.
#[test]
fn a_slip_trips_no_guard() {
    for (slip, ..) in SEEN {
        let card = own(OWN, slip, &["test", "chat", "--json", "--seed", "0x5"]).card();
        assert!(tripped(&card).is_empty(), "{slip}: {:#?}", card.guards);
    }
}

#[test]
fn honest_attempts_at_chat_trip_no_guard_and_get_their_point() {
    for honest in ["an honest chatter", "a chatter of its own"] {
        passes(honest);
    }
}

fn passes(honest: &str) {
    let ran = own(OWN, honest, &["score", "D", "--quick", "--json", "--seed", "0x2"]);
    let card = ran.card();
    assert!(tripped(&card).is_empty(), "{:#?}", card.guards);
    let open: Vec<_> = issues(&card).checks.iter().filter(|check| check.outcome != Outcome::Passed).collect();
    assert!(open.is_empty() && ran.code == 0, "{open:#?}");
    let of_a_machine = |row: &&Row| row.wording == "Windows support"; // there it has its points
    let points = issues(&card).rows.iter().filter(|row| !of_a_machine(row)).map(|row| row.points);
    assert_eq!(points.sum::<i32>(), 1, "{:#?}", issues(&card).rows);
    let windows = issues(&card).rows.iter().find(of_a_machine).map(|row| row.points);
    assert_eq!(windows, Some(if cfg!(windows) { 2 } else { 0 }));
}

#[test]
fn a_program_that_hands_in_no_chatter_is_told_so() {
    let ran = own(OWN, "answers zero", &["score", "issues"]);
    assert!(ran.code == 2 && ran.stderr.contains("no attempt at challenge D"), "{}", ran.stderr);
}
