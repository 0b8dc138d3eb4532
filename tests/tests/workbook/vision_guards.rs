//! Contract of vision: every guard is tripped by a cheat of its kind, and by no honest attempt.

use scorecard::{Challenge, Outcome, Row, Scorecard, Truth};
use tests::program::{own, tripped};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// The rows of this part.
const ROWS: [&str; 3] = ["VLM data collator", "VLM image resizing", "VLM train on completions only"];

/// A cheat, and the guard that sees it.
const CAUGHT: [(&str, &str); 3] = [
    ("remembers images by their place", "an image that remembers"),
    ("takes large images' nearest pixels", "small images only"),
    ("asks where tokens stand", "a reference that answers"),
];

fn issues(card: &Scorecard) -> &Challenge {
    card.challenges.iter().find(|challenge| challenge.name == "issues").expect("all five are there")
}

fn rows(card: &Scorecard) -> impl Iterator<Item = &Row> {
    issues(card).rows.iter().filter(|row| ROWS.contains(&row.wording.as_str()))
}

#[test]
fn a_cheating_seer_trips_the_guard_of_its_kind() {
    for (cheat, guard) in CAUGHT {
        let card = own(OWN, cheat, &["score", "vision", "--quick", "--json", "--seed", "0x1"]).card();
        assert_eq!(tripped(&card), [guard], "{cheat}: {:#?}", card.guards);
        assert!(rows(&card).all(|row| row.points == 0), "{cheat} gets a point");
    }
}

/// A slip, the check that sees it, and what that says.
const SEEN: [(&str, &str, &str); 17] = [
    ("rounds edges up at a half", "D.23/halves-go-to-the-even", "got Ok(Size { height: 56, width: 84 })"),
    ("crops whatever is given", "D.23/sizes-that-cannot-be-given", "Limit { only: Some(336), got: 0 }"),
    ("sizes what nobody sees", "D.23/long-and-thin", "want Err(Ratio { ratio: 201.0 })"),
    ("resizes columns first", "D.24/smaller", "40 x 30 to 10 x 10: colour "),
    ("does not antialias", "D.24/far-smaller", "700 x 3 to 2 x 3: colour 0 of row 0, column 0"),
    ("takes patches row by row", "D.24/patches-of-a-group", "float 0 of patch 2"),
    ("divides bytes by 255 first", "D.24/patches-of-all-sizes", "of patch "),
    ("forgets to merge", "D.25/qwen", "want Ok([1, 90, 90, 90, 90, 90, 90, 2])"),
    ("ends no last row", "D.25/pixtral", "want Ok([1, 90, 90, 90, 3, 90, 90, 90, 4, 2])"),
    (
        "drops images too many",
        "D.25/as-many-images-as-placeholders",
        "want Err(Images { placeholders: 0, images: 1 })",
    ),
    ("goes on after all tokens", "D.25/positions-of-an-image", "delta: -3"),
    ("counts one axis", "D.25/images-beside-each-other", "got Positions { axes: [[0, 1, 2, 3]"),
    ("labels placeholders", "D.26/an-image-in-the-answer", "[-100, 6, -100, -100, 7]"),
    ("labels what was asked", "D.26/a-text", "want [-100, 6, -100, 8]"),
    ("labels the token before", "D.26/a-text", "got [6, -100, 8, -100]"),
    ("begins slots anew", "D.27/slots-run-through-the-batch", "want [1, 2, 0, 0, 0, 0, 0, 0, 3, 4, 5, 0]"),
    ("pads on the right only", "D.27/padding-on-the-left", "ids: [90, 8, 7, 6, 6, 5]"),
];

#[test]
fn a_slip_in_a_step_of_a_seer_is_seen_by_a_check_of_that_step() {
    for (slip, check, words) in SEEN {
        let ran = own(OWN, slip, &["replay", &format!("issues:{check}"), "--seed", "0x5"]);
        assert!(ran.code == 1 && ran.stdout.contains(": wrong"), "{slip}: {}", ran.stdout);
        assert!(ran.stdout.contains(words), "{slip}: {}", ran.stdout);
    }
}

/// A usual slip, a check that sees it, and what that takes for the cause.
const NAMED: [(&str, &str, &str); 6] = [
    ("rounds edges up at a half", "D.23/halves-go-to-the-even", "a half is rounded up"),
    ("resizes columns first", "D.24/smaller", "columns are resampled before rows"),
    ("takes patches row by row", "D.24/patches-of-a-group", "patches stand in reading order"),
    ("divides bytes by 255 first", "D.24/patches-of-all-sizes", "another rounding"),
    ("goes on after all tokens", "D.25/positions-of-an-image", "a text goes on behind the tokens"),
    ("labels the token before", "D.26/a-text", "labels stand one token early"),
];

#[test]
fn the_cause_of_a_usual_slip_is_named_and_no_guard_takes_it_for_a_cheat() {
    for (slip, check, cause) in NAMED {
        let ran = own(OWN, slip, &["replay", &format!("issues:{check}"), "--seed", "0x5"]);
        assert!(ran.stdout.contains(&format!("likely cause: {cause}")), "{slip}: {}", ran.stdout);
        let card = own(OWN, slip, &["test", "vision", "--json", "--seed", "0x5"]).card();
        assert!(tripped(&card).is_empty(), "{slip}: {:#?}", card.guards);
    }
}

#[test]
fn honest_seers_trip_no_guard_and_get_their_points() {
    for honest in ["an honest seer", "a seer of its own"] {
        let ran = own(OWN, honest, &["score", "vision", "--quick", "--json", "--seed", "0x2"]);
        let card = ran.card();
        assert!(tripped(&card).is_empty(), "{honest}: {:#?}", card.guards);
        let open: Vec<_> =
            issues(&card).checks.iter().filter(|check| check.outcome != Outcome::Passed).collect();
        assert!(open.is_empty() && ran.code == 0, "{honest}: {open:#?}");
        for row in rows(&card) {
            assert_eq!((row.points, row.fact), (1, Truth::Met), "{honest}: {row:#?}");
        }
        assert_eq!(rows(&card).count(), 3);
    }
}
