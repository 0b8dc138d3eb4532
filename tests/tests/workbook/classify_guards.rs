//! Contract of sequence classification: every guard is tripped by a cheat of its kind, and by no honest attempt.

use std::fmt::Write as _;
use std::fs;

use scorecard::{Challenge, Outcome, Row, Scorecard, Truth};
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

/// What is wrong in general is told by the checks; a guard would call it a cheat.
#[test]
fn a_slip_trips_no_guard() {
    for (slip, ..) in SEEN {
        let card = own(OWN, slip, &["test", "classify", "--json", "--seed", "0x5"]).card();
        assert!(tripped(&card).is_empty(), "{slip}: {:#?}", card.guards);
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

/// What the book's figure is drawn from: the answers of the solution's run, as near as a processor's own roundings let
/// them be.
#[test]
fn the_kept_answers_are_those_of_a_run() {
    let flags = ["score", "classify", "--attempt", "solution", "--quick", "--json", "--seed", "0x1"];
    let card = own(OWN, "an honest classifier", &flags).card();
    let numbers = &issues(&card).measurements;
    let mut text = format!("{COMMENT}\n");
    for step in [0, 40, 80, 120] {
        let counts = &numbers[&format!("issues.classifier.confusion.{step}")].samples;
        let counts: Vec<String> = counts.iter().map(f64::to_string).collect();
        writeln!(text, "{step},{}", counts.join(",")).expect("a text");
    }
    let path = tests::place::workbook().join("book/src/results/classifier-confusions.csv");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &text).expect("it can be written");
    }
    let kept = fs::read_to_string(&path).expect("it is kept");
    let right = |text: &str| -> Vec<f64> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let numbers =
            |line: &str| line.split(',').map(|number| number.parse().unwrap()).collect::<Vec<f64>>();
        lines.map(numbers).map(|line| line[1] + line[5] + line[9]).collect()
    };
    let apart =
        right(&text).iter().zip(right(&kept)).map(|(own, kept)| (own - kept).abs()).fold(0.0, f64::max);
    assert!(apart <= 12.0 && right(&text).len() == right(&kept).len(), "{text}, and kept is {kept}");
}

const COMMENT: &str = "\
# Answers of challenge D's classifier to 240 texts that are held out: steps of training, then how often each class was
# answered for each, row by row. UPDATE=1 cargo test --release -p tests --test workbook classify_guards:: writes this file.";
