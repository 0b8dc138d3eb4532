//! Contract: a report holds as it was written, and not with any of its parts changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use tests::program::{Ran, run};

/// Runs the grader: `own` with nothing to hand in.
fn grader(arguments: &[&str]) -> Ran {
    run(Path::new(env!("CARGO_BIN_EXE_own")), &tests::place::tests(), arguments)
}

/// A way to tamper with a report.
type Tamper = fn(&mut Value);

#[test]
fn a_report_holds_and_a_tampered_one_does_not() {
    let folder = tempfile::tempdir().expect("a folder for reports");
    let path = folder.path().join("card.json");
    let name = path.to_str().expect("a plain path");
    let made = grader(&["score", "nf4", "--attempt", "solution", "--quick", "--json", "-o", name]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let holds = grader(&["verify-report", name]);
    assert_eq!(holds.code, 0, "{}{}", holds.stdout, holds.stderr);
    let card: Value =
        serde_json::from_str(&fs::read_to_string(&path).expect("the report")).expect("a scorecard");
    for (what, tamper) in tampers() {
        let mut tampered = card.clone();
        tamper(&mut tampered);
        assert_ne!(tampered, card, "{what} was changed");
        fs::write(&path, tampered.to_string()).expect("the report can be written");
        let ran = grader(&["verify-report", name]);
        assert_eq!(ran.code, 1, "{what} was changed, and the report still holds:\n{}", ran.stdout);
        assert!(ran.stdout.contains("the report says "), "{what}: {}", ran.stdout);
    }
}

fn tampers() -> BTreeMap<&'static str, Tamper> {
    fn nf4(card: &mut Value) -> &mut Value {
        &mut card["challenges"][0]
    }
    fn number<'a>(card: &'a mut Value, name: &str) -> &'a mut Value {
        card["challenges"][0]["measurements"].get_mut(name).unwrap_or_else(|| panic!("no number {name}"))
    }
    fn scaled(value: &mut Value, factor: f64) {
        *value = (value.as_f64().expect("a number") * factor).into();
    }
    BTreeMap::from([
        ("the total", (|card| card["points"] = 55.into()) as Tamper),
        ("what is possible", |card| card["possible"] = 13.into()),
        ("a challenge's points", |card| nf4(card)["points"] = 13.into()),
        ("a row's points", |card| nf4(card)["rows"][0]["points"] = 4.into()),
        ("a row's fact", |card| nf4(card)["rows"][5]["fact"] = "unmet".into()),
        ("a row's wording", |card| nf4(card)["rows"][0]["wording"] = "works".into()),
        ("a row's basis", |card| nf4(card)["rows"][0]["basis"] = "as published".into()),
        ("a missing row", |card| _ = nf4(card)["rows"].as_array_mut().map(Vec::pop)),
        ("a check's outcome", |card| {
            for check in nf4(card)["checks"].as_array_mut().into_iter().flatten() {
                check["outcome"] = "wrong".into();
            }
        }),
        ("a guard", |card| card["guards"][0]["tripped"] = true.into()),
        ("an interval", |card| scaled(&mut number(card, "nf4.speedup")["interval"][0], 1.01)),
        ("a case's interval", |card| {
            scaled(&mut number(card, "nf4.speedup.1024x4096.bf16")["interval"][1], 1.01);
        }),
        ("a speed-up", |card| scaled(&mut number(card, "nf4.speedup")["value"], 1.001)),
        ("a sample", |card| scaled(&mut number(card, "nf4.attempt.4096x14336.bf16")["samples"][0], 0.99)),
        ("a baseline's sample", |card| {
            scaled(&mut number(card, "nf4.baseline.2048x8192.f16")["samples"][1], 1.02);
        }),
        ("a share of the bound", |card| {
            scaled(&mut number(card, "nf4.share_of_bound.2048x8192.f16")["value"], 1.1);
        }),
        ("the hash of the code", |card| nf4(card)["code"] = "0".repeat(64).into()),
    ])
}
