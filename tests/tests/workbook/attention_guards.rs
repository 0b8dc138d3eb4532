//! Contract of one interface for attention: every guard is tripped by a cheat of its kind, and by no honest attempt.

use scorecard::{Challenge, Outcome, Row, Scorecard, Truth};
use tests::program::{own, tripped};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// A cheat, and the guard that sees it.
const CAUGHT: [(&str, &str); 3] = [
    ("remembers where documents lay", "documents that are remembered"),
    ("knows the back ends by name", "known back ends only"),
    ("asks what attention is", "a definition that answers"),
];

fn issues(card: &Scorecard) -> &Challenge {
    card.challenges.iter().find(|challenge| challenge.name == "issues").expect("all five are there")
}

fn rows(card: &Scorecard) -> [&Row; 2] {
    ["Refactor attention", "Flex attention"]
        .map(|wording| issues(card).rows.iter().find(|row| row.wording == wording).expect("a published row"))
}

#[test]
fn a_cheating_attention_trips_the_guard_of_its_kind() {
    for (cheat, guard) in CAUGHT {
        let card = own(OWN, cheat, &["score", "attention", "--quick", "--json", "--seed", "0x1"]).card();
        assert_eq!(tripped(&card), [guard], "{cheat}: {:#?}", card.guards);
        assert_eq!(rows(&card).map(|row| row.points), [0, 0], "{cheat} gets a point");
    }
}

/// A slip, the check that sees it, and what that says.
const SEEN: [(&str, &str, &str); 10] = [
    ("keeps a key more than the window", "D.9/window", "should not see"),
    ("looks back only", "D.9/window-of-both-sides", "should not see"),
    ("sees its own padding", "D.9/documents", "should not see"),
    ("drops a feature", "D.10/none-can", "Lacks(Dropout)"),
    ("joins rows", "D.11/the-same-number-in-another-row", "starts: [0, 3, 6]"),
    ("adds parts up", "D.12/two-parts", "output["),
    ("merges without a largest", "D.12/large-scores", "output["),
    ("reads every key", "D.13/a-window", "want [900..925"),
    ("leaves a short piece", "D.13/uneven", "want [0..15, 15..30"),
    ("sinks without the sum", "D.14/small", "output["),
];

#[test]
fn a_slip_in_a_step_of_attention_is_seen_by_a_check_of_that_step() {
    for (slip, check, words) in SEEN {
        let ran = own(OWN, slip, &["replay", &format!("issues:{check}"), "--seed", "0x5"]);
        assert!(ran.code == 1 && ran.stdout.contains(": wrong"), "{slip}: {}", ran.stdout);
        assert!(ran.stdout.contains(words), "{slip}: {}", ran.stdout);
    }
}

/// Every check passes, and a request of 600 keys is not what the definition says: the row tells which.
#[test]
fn what_is_wrong_beyond_the_sizes_of_checks_is_unmet_and_named() {
    let wrong = "sees no key from 350 on";
    let card = own(OWN, wrong, &["score", "attention", "--quick", "--json", "--seed", "0x3"]).card();
    assert!(issues(&card).checks.iter().all(|check| check.outcome == Outcome::Passed), "{wrong}");
    let [interface, _] = rows(&card);
    assert_eq!((interface.fact, interface.points), (Truth::Unmet, 0), "{interface:?}");
    for words in ["results, gradients and L among them", "The first that is not: ", "Decoding", "output["] {
        assert!(interface.evidence.contains(words), "{words}: {}", interface.evidence);
    }
}

/// What is wrong in general is told by the checks; a guard would call it a cheat.
#[test]
fn a_slip_trips_no_guard() {
    for (slip, ..) in SEEN {
        let card = own(OWN, slip, &["test", "attention", "--json", "--seed", "0x5"]).card();
        assert!(tripped(&card).is_empty(), "{slip}: {:#?}", card.guards);
    }
}

#[test]
fn honest_attentions_trip_no_guard_and_get_their_points() {
    for honest in ["an honest attention", "an attention of its own"] {
        let ran = own(OWN, honest, &["score", "attention", "--quick", "--json", "--seed", "0x2"]);
        let card = ran.card();
        assert!(tripped(&card).is_empty(), "{honest}: {:#?}", card.guards);
        let open: Vec<_> =
            issues(&card).checks.iter().filter(|check| check.outcome != Outcome::Passed).collect();
        assert!(open.is_empty() && ran.code == 0, "{honest}: {open:#?}");
        let rows = rows(&card);
        assert_eq!(rows.map(|row| (row.points, row.fact)), [(2, Truth::Met); 2], "{honest}: {rows:#?}");
    }
}
