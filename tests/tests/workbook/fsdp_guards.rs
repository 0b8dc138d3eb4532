//! Contract of challenge B: every guard is tripped by a cheat of its kind, and by no honest attempt.

use grader::scorecard::{Challenge, Outcome, Scorecard};
use tests::attempts::SHARDERS;
use tests::program::{own, tripped};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// A cheat, and the guard that sees it.
const CAUGHT: [(&str, &str); 6] = [
    ("holds everything on every rank", "everything on every rank"),
    ("leaves everything to rank 0", "everything on every rank"),
    ("gathers in wide numbers", "more than shards on the wire"),
    ("takes its own gradient for the sum", "ranks left out"),
    ("takes its own norm for everyone's", "ranks left out"),
    ("searches for its schedule", "an oracle called inside a step"),
];

fn fsdp(card: &Scorecard) -> &Challenge {
    card.challenges.iter().find(|challenge| challenge.name == "fsdp").expect("all five are there")
}

#[test]
fn a_cheating_sharder_trips_the_guard_of_its_kind() {
    for (cheat, guard) in CAUGHT {
        let ran = own(OWN, cheat, &["test", "fsdp", "--json", "--seed", "0x1"]);
        let card = ran.card();
        assert_eq!(tripped(&card), [guard], "{cheat}: {:#?}", card.guards);
        assert!(ran.code == 1, "{cheat} passes");
    }
}

/// A slip, the check that sees it, and what that says.
const SEEN: [(&str, &str, &str); 13] = [
    ("divides elements by ranks", "B.1/rows-of-no-whole-number-of-blocks", "likely cause: elements or rows"),
    ("leaves the padding in", "B.2/padding", "likely cause: padding"),
    ("gathers in wide numbers", "B.2/four-bits-on-the-wire", "cast before they are gathered"),
    ("keeps what it has no room for", "B.3/no-room", "beyond the room"),
    ("takes its own gradient for the sum", "B.4/sums", "nobody was asked"),
    ("sums everything everywhere", "B.4/no-more-than-a-scatter", "an all-reduce"),
    ("counts copies twice", "B.4/norm-of-copies", "counts several times"),
    ("starts every gather early", "B.5/two-at-a-time", "the first gather has no work before it"),
    ("moves every layer", "B.6/everything", "layers go to the host"),
    ("cuts nothing", "B.7/every-parameter-is-cut", "B.7, `"),
    ("joins nothing", "B.7/forward", "what follows o_proj and down_proj is not summed"),
    ("leaves gradients of what is whole", "B.7/gradients-of-adapters", "not summed over the ranks"),
    ("does one F and one B in turn", "B.8/bubble-of-4-ranks", "likely cause: R waits for the gradient"),
];

#[test]
fn a_slip_in_a_step_of_a_sharder_is_seen_by_a_check_of_that_step() {
    for (slip, check, words) in SEEN {
        let ran = own(OWN, slip, &["replay", &format!("fsdp:{check}"), "--seed", "0x5"]);
        assert!(ran.code == 1 && ran.stdout.contains(": wrong"), "{slip}: {}", ran.stdout);
        assert!(ran.stdout.contains(words), "{slip}: {}", ran.stdout);
    }
}

/// Which dequantiser is faster depends on the machine: that row may be anything.
#[test]
fn an_honest_sharder_trips_no_guard_and_passes_every_check() {
    let honest = SHARDERS.last().expect("it is the last one").name;
    let ran = own(OWN, honest, &["score", "B", "--quick", "--json", "--seed", "0x2"]);
    let card = ran.card();
    assert!(tripped(&card).is_empty(), "{:#?}", card.guards);
    let open: Vec<_> = fsdp(&card).checks.iter().filter(|check| check.outcome != Outcome::Passed).collect();
    assert!(open.is_empty(), "{open:#?}");
    assert!(fsdp(&card).points >= 7, "{:#?}", fsdp(&card).rows);
}

#[test]
fn a_program_that_hands_in_no_sharder_is_told_so() {
    let ran = own(OWN, "answers zero", &["score", "fsdp"]);
    assert!(ran.code == 2 && ran.stderr.contains("no attempt at challenge B"), "{}", ran.stderr);
}
