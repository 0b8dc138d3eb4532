//! Contract: results that an attempt writes itself win nothing, nor does leaving while somebody looks.

use scorecard::{Challenge, Check, Outcome, Scorecard, Truth};
use tests::attempts::{FORGERS, LEAVERS};
use tests::program::{own, tripped};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// An attempt, its challenge, and a check of the step that it forges in.
const FORGED: [(&str, &str, &str); 4] = [
    ("forges A", "nf4", "A.6/one-block-f16"),
    ("forges C", "graph", "C.1/operations-alone"),
    ("forges D", "issues", "D.1/exponents"),
    ("forges E", "loss", "E.2/cross-entropy"),
];

fn graded<'a>(card: &'a Scorecard, name: &str) -> &'a Challenge {
    card.challenges.iter().find(|challenge| challenge.name == name).expect("all five are there")
}

#[test]
fn results_without_a_nonce_are_a_fault_of_their_item() {
    for (forger, challenge, check) in FORGED {
        let ran = own(OWN, forger, &["replay", &format!("{challenge}:{check}"), "--seed", "0x1"]);
        let message = "has not the nonce of the item in progress";
        assert!(ran.code == 1 && ran.stdout.contains(message), "{forger}: {}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn a_forger_of_results_wins_nothing() {
    for (forger, challenge, _) in FORGED.iter().filter(|(_, challenge, _)| *challenge != "nf4") {
        let card = own(OWN, forger, &["score", challenge, "--quick", "--json", "--seed", "0x1"]).card();
        let graded = graded(&card, challenge);
        assert!(graded.points <= 0, "{forger}: {:#?}", graded.rows);
    }
    let card = own(OWN, "forges A", &["test", "nf4", "--json", "--seed", "0x1"]).card();
    let passed = |check: &&Check| check.step() == "A.6" && check.outcome == Outcome::Passed;
    assert_eq!(graded(&card, "nf4").checks.iter().find(passed), None);
    assert!(graded(&card, "nf4").points <= 0, "{:#?}", graded(&card, "nf4").rows);
}

/// An attempt, its challenge, the guard that it leaves, and a row that rests on that.
const LEFT: [(&str, &str, &str, &str); 4] = [
    ("leaves when A is timed", "nf4", "wrong answers in timed calls", "tested_in_f16_and_bf16"),
    ("leaves a guard of C", "graph", "answers of the examples", "attention_compiled"),
    ("leaves a guard of D", "issues", "known tokens only", "Tool calling"),
    ("leaves a guard of E", "loss", "logits kept", "VRAM_50_percent_reduction"),
];

#[test]
fn a_guard_that_did_not_run_is_one_that_tripped() {
    for (leaver, challenge, name, wording) in LEFT {
        let ran = own(OWN, leaver, &["score", challenge, "--quick", "--json", "--seed", "0x1"]);
        let card = ran.card();
        assert!(tripped(&card).is_empty(), "{leaver}: {:#?}", card.guards);
        let blind: Vec<_> =
            card.guards.iter().filter(|guard| !guard.ran).map(|guard| guard.name.as_str()).collect();
        assert!(blind.contains(&name), "{leaver}: {blind:?}");
        let graded = graded(&card, challenge);
        let open = |check: &&Check| !matches!(check.outcome, Outcome::Passed | Outcome::NotMeasured);
        assert_eq!(graded.checks.iter().find(open), None, "{leaver}: the checks see nothing");
        let row = graded.rows.iter().find(|row| row.wording == wording).expect("a published wording");
        assert_eq!((row.fact, row.points <= 0), (Truth::Unmet, true), "{leaver}: {}", row.evidence);
        assert!(row.evidence.contains("could not look"), "{leaver}: {}", row.evidence);
        assert_eq!(ran.code, 1, "{leaver}");
    }
}

#[test]
fn every_forger_and_every_leaver_is_tried() {
    let tried = |name: &str| {
        FORGED.iter().any(|(known, ..)| *known == name) || LEFT.iter().any(|(known, ..)| *known == name)
    };
    for entry in FORGERS.iter().chain(&LEAVERS) {
        assert!(tried(entry.name), "{}", entry.name);
    }
}
