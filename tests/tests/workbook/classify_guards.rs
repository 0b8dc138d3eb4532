//! Contract of sequence classification: every guard is tripped by a cheat of its kind, and by no honest attempt.

use grader::scorecard::{Challenge, Outcome, Row, Scorecard, Truth};
use tests::program::{own, tripped};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// A cheat, and the guard that sees it.
const CAUGHT: [(&str, &str); 3] = [
    ("remembers where rows lay", "a batch that remembers"),
    ("knows small heads", "known sizes only"),
    ("asks what classes cost", "an oracle that answers"),
];

fn issues(card: &Scorecard) -> &Challenge {
    card.challenges.iter().find(|challenge| challenge.name == "issues").expect("all five are there")
}

fn row(card: &Scorecard) -> &Row {
    let rows = &issues(card).rows;
    rows.iter().find(|row| row.wording == "Sequence classification").expect("a published row")
}

#[test]
fn a_cheating_classifier_trips_the_guard_of_its_kind() {
    for (cheat, guard) in CAUGHT {
        let card = own(OWN, cheat, &["score", "classify", "--quick", "--json", "--seed", "0x1"]).card();
        assert_eq!(tripped(&card), [guard], "{cheat}: {:#?}", card.guards);
        assert_eq!(row(&card).points, 0, "{cheat} gets a point");
    }
}

/// A slip, the check that sees it, and what that says.
const SEEN: [(&str, &str, &str); 12] = [
    ("answers from the end of the batch", "D.15/right", "[4, 4], want [2, 1]"),
    ("counts the tokens", "D.15/left", "[2, 1], want [4, 4]"),
    ("ends a text at its first padding", "D.15/padding-within-the-text", "want [2, 4]"),
    ("adds up over the labels", "D.16/any-of-labels", "multi_label_classification, losses[0]"),
    ("takes the logarithm of a sigmoid", "D.16/far-from-zero", "multi_label_classification, losses["),
    ("trains the targets", "D.16/constant-targets", "regression: expected no gradient of the targets"),
    ("puts a pair beside the head", "D.17/all-linear", "base_model.model.score.lora_A.weight"),
    ("names the adapter", "D.17/some-projections", "lora_A.default.weight"),
    ("takes any target", "D.17/a-target-that-is-none", "want Err(\"query\")"),
    ("takes the last of equals", "D.18/equal-logits", "got Class(2), want Class(1)"),
    ("turns the confusion", "D.18/who-was-taken-for-whom", "want [1, 1, 0, 0, 1, 0, 1, 0, 2]"),
    (
        "scores what nobody is",
        "D.18/classes-that-nobody-is",
        "want [Some(0.8888888888888888), Some(0.0), None]",
    ),
];

#[test]
fn a_slip_in_a_step_of_a_classifier_is_seen_by_a_check_of_that_step() {
    for (slip, check, words) in SEEN {
        let ran = own(OWN, slip, &["replay", &format!("issues:{check}"), "--seed", "0x5"]);
        assert!(ran.code == 1 && ran.stdout.contains(": wrong"), "{slip}: {}", ran.stdout);
        assert!(ran.stdout.contains(words), "{slip}: {}", ran.stdout);
    }
}

#[test]
fn honest_classifiers_trip_no_guard_and_get_their_point() {
    for honest in ["an honest classifier", "a classifier of its own"] {
        let ran = own(OWN, honest, &["score", "classify", "--quick", "--json", "--seed", "0x2"]);
        let card = ran.card();
        assert!(tripped(&card).is_empty(), "{honest}: {:#?}", card.guards);
        let open: Vec<_> =
            issues(&card).checks.iter().filter(|check| check.outcome != Outcome::Passed).collect();
        assert!(open.is_empty() && ran.code == 0, "{honest}: {open:#?}");
        assert_eq!((row(&card).points, row(&card).fact), (1, Truth::Met), "{honest}: {:#?}", row(&card));
    }
}
