//! Contract: a report verifies; a tampered one does not, and no file does harm to who reads it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use grader::{About, Finding, Verified, verify};
use scorecard::{Outcome, Scorecard, Truth};
use serde_json::{Value, json};
use tests::fixture;
use tests::program::{Ran, own, run};
use tests::whole_report;

/// Runs the grader: `own` with nothing to hand in.
fn grader(arguments: &[&str]) -> Ran {
    run(Path::new(env!("CARGO_BIN_EXE_own")), &std::env::temp_dir(), arguments)
}

fn json_of(card: &Scorecard) -> Value {
    serde_json::to_value(card).expect("a scorecard is JSON")
}

fn verified(card: &Value) -> Verified {
    verify(&serde_json::from_value(card.clone()).expect("still a scorecard"))
}

#[test]
fn a_run_verifies_and_a_run_of_part_wins_nothing() {
    let folder = tempfile::tempdir().expect("a folder for reports");
    let path = folder.path().join("card.json");
    let name = path.to_str().expect("a plain path");
    let runs: [(&[&str], &str); 4] = [
        (&["score", "nf4", "--quick"], "follows from its own numbers"),
        (&["test", "loss"], "follows from its own numbers"),
        (&["score", "loss", "--quick", "--case", "E.1/"], "loss: a run of part: "),
        (&["bench", "issues", "--quick"], "issues: a run of part: 0 of "),
    ];
    for (run, says) in runs {
        let made = grader(&[run, &["--attempt", "solution", "--json", "-o", name]].concat());
        assert!(matches!(made.code, 0 | 1), "{run:?}: {}", made.stderr); // a busy machine may be refused a speed
        let ran = grader(&["verify-report", name]);
        assert_eq!(ran.code, 0, "{run:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains(says) && ran.stdout.contains("Not covered: "), "{run:?}: {}", ran.stdout);
        if says.contains("part") {
            let card: Scorecard = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            let rows = card.challenges.iter().flat_map(|challenge| &challenge.rows);
            assert!(rows.clone().all(|row| row.fact == Truth::Unmeasured && row.points == 0), "{run:?}");
        }
    }
}

#[test]
fn an_edited_report_does_not_verify() {
    let mut held = Vec::new();
    let mut tried = |card: &Value, edits: Vec<(&'static str, Edit)>| {
        for (what, edit) in edits {
            let mut edited = card.clone();
            edit(&mut edited);
            assert_ne!(edited, *card, "{what} was edited");
            if verified(&edited).findings.is_empty() {
                held.push(what);
            }
        }
    };
    let [cpu, card] = [false, true].map(|on_a_card| json_of(&whole_report::whole(on_a_card)));
    assert_eq!((verified(&cpu), verified(&card)), (Verified::default(), Verified::default()));
    tried(&cpu, edits());
    tried(&cpu, edits_of_a_cpu());
    tried(&card, edits());
    tried(&card, vec![("the L2 of the GPU", |card| card["machine"]["gpu"] = "a GPU".into())]);
    assert!(held.is_empty(), "these were edited, and the report still holds: {held:#?}");
}

#[test]
fn an_attempt_past_the_bound_trips_the_guard_again() {
    for on_a_card in [false, true] {
        let mut card = json_of(&whole_report::whole(on_a_card));
        scale_all(number(&mut card, &format!("nf4.attempt.{CASE}")), 0.01);
        let found = verified(&card).findings;
        let bound = found.iter().find(|finding| finding.what.ends_with("past the physical bound"));
        assert!(bound.is_some_and(|finding| finding.follows.contains(CASE)), "{found:#?}");
    }
}

#[test]
fn a_run_verifies_whatever_became_of_it() {
    let folder = tempfile::tempdir().expect("a folder for reports");
    let path = folder.path().join("card.json");
    let name = path.to_str().expect("a plain path");
    let runs: [(&str, &[&str]); 6] = [
        ("panics", &["test", "nf4"]),
        ("segfaults", &["test", "nf4"]),
        ("exits", &["test", "nf4", "--case", "A.5"]),
        ("answers zero", &["test", "nf4"]),
        ("escapes markup", &["score", "issues", "--quick"]),
        ("answers zero", &["score", "--device", "sim"]),
    ];
    for (attempt, run) in runs {
        let ran = own(env!("CARGO_BIN_EXE_own"), attempt, &[run, &["--json", "-o", name]].concat());
        assert!(matches!(ran.code, 0 | 1), "{attempt}: {}", ran.stderr);
        let message = grader(&["verify-report", name]);
        assert_eq!(message.code, 0, "{attempt}: {}{}", message.stdout, message.stderr);
    }
}

/// A way to edit a report.
type Edit = fn(&mut Value);

fn nf4(card: &mut Value) -> &mut Value {
    &mut card["challenges"][0]
}

fn list<'a>(of: &'a mut Value, name: &str) -> &'a mut Vec<Value> {
    of[name].as_array_mut().unwrap_or_else(|| panic!("no list {name}"))
}

fn number<'a>(card: &'a mut Value, name: &str) -> &'a mut Value {
    let challenges = list(card, "challenges").iter_mut();
    let mut numbers = challenges.filter_map(|challenge| challenge["measurements"].get_mut(name));
    numbers.next().unwrap_or_else(|| panic!("no number {name}"))
}

fn without(card: &mut Value, name: &str) {
    for challenge in list(card, "challenges") {
        challenge["measurements"].as_object_mut().expect("numbers").remove(name);
    }
}

fn scale(value: &mut Value, factor: f64) {
    *value = (value.as_f64().expect("a number") * factor).into();
}

/// Scales samples, value and interval alike.
fn scale_all(number: &mut Value, factor: f64) {
    scale(&mut number["value"], factor);
    for sample in list(number, "samples") {
        scale(sample, factor);
    }
}

/// Takes the second half of the samples of every number of the case away.
fn halve(card: &mut Value, case: &str) {
    for kind in ["baseline", "attempt", "bound", "speedup"] {
        let samples = list(number(card, &format!("nf4.{kind}.{case}")), "samples");
        samples.truncate(samples.len() / 2);
    }
}

/// What is recomputed from an edit of times is edited, too, so that only what was meant to be is found.
fn consistent(card: &mut Value, case: &str) {
    let of: Scorecard = serde_json::from_value(card.clone()).expect("a scorecard");
    let numbers = &of.challenges[0].measurements;
    let times = |kind: &str| numbers[&format!("nf4.{kind}.{case}")].samples.as_slice();
    let pairs = grader::timing::Pairs { baseline: times("baseline"), attempt: times("attempt") };
    let (value, interval) = grader::timing::speedup(pairs);
    *number(card, &format!("nf4.speedup.{case}")) =
        json!({"value": value, "unit": "x", "interval": interval, "samples": pairs.ratios()});
    let [bound, attempt] = ["bound", "attempt"].map(|kind| grader::timing::median(times(kind)));
    for (kind, median) in [("bound", bound), ("attempt", attempt)] {
        number(card, &format!("nf4.{kind}.{case}"))["value"] = median.into();
    }
    number(card, &format!("nf4.share_of_bound.{case}"))["value"] = (bound / attempt).into();
}

const CASE: &str = "2048x8192.f16";

#[allow(clippy::too_many_lines)] // a table
fn edits() -> Vec<(&'static str, Edit)> {
    vec![
        ("the total", |card| card["points"] = 55.into()),
        ("what is possible", |card| card["possible"] = 13.into()),
        ("what is unmeasured", |card| card["unmeasured"] = 0.into()),
        ("what rests on stand-ins", |card| card["stand_in"] = (-1).into()),
        ("the version", |card| card["warpbook"] = "9.9.9".into()),
        ("the attempt's name, to a program's own", |card| card["attempt"] = "own".into()),
        ("the attempt's name, to nobody's", |card| card["attempt"] = "mine".into()),
        ("the seed", |card| card["seed"] = "0x1".into()),
        ("the seed's form", |card| card["seed"] = "0x005eed".into()),
        ("the processor, with an escape sequence", |card| {
            card["machine"]["cpu"] = "fast\u{1b}[2J".into();
        }),
        ("the vector unit, to none there is", |card| card["machine"]["vector"] = "AVX-1024".into()),
        ("the processor's own unit", |card| card["machine"]["widest"] = "portable".into()),
        ("the architecture", |card| card["machine"]["arch"] = "aarch64".into()),
        ("a challenge's points", |card| nf4(card)["points"] = 12.into()),
        ("a challenge's letter", |card| nf4(card)["letter"] = "E".into()),
        ("a challenge's possible points", |card| nf4(card)["possible"] = 15.into()),
        ("whether it was attempted", |card| nf4(card)["attempted"] = false.into()),
        ("the device", |card| nf4(card)["device"] = "cuda:00".into()),
        ("challenges in another order", |card| list(card, "challenges").swap(0, 1)),
        ("a challenge twice", |card| {
            let again = nf4(card).clone();
            list(card, "challenges").push(again);
        }),
        ("a challenge that is missing", |card| _ = list(card, "challenges").pop()),
        ("a row's points", |card| nf4(card)["rows"][0]["points"] = 4.into()),
        ("a row's fact", |card| nf4(card)["rows"][4]["fact"] = "unmet".into()),
        ("a row's wording", |card| nf4(card)["rows"][0]["wording"] = "works".into()),
        ("a row's worth", |card| nf4(card)["rows"][0]["worth"] = 14.into()),
        ("a row's evidence", |card| nf4(card)["rows"][3]["evidence"] = "9.999x the baseline".into()),
        ("an evidence with an escape sequence", |card| {
            let evidence = &mut nf4(card)["rows"][0]["evidence"];
            *evidence = format!("{}\u{1b}[31m", evidence.as_str().expect("a sentence")).into();
        }),
        ("a row that is missing", |card| _ = list(nf4(card), "rows").pop()),
        ("a row twice", |card| {
            let again = nf4(card)["rows"][0].clone();
            list(nf4(card), "rows").insert(1, again);
        }),
        ("a check that is missing", |card| _ = list(nf4(card), "checks").pop()),
        ("a step's checks that are missing", |card| {
            list(nf4(card), "checks")
                .retain(|check| !check["name"].as_str().unwrap_or("").starts_with("A.1"));
        }),
        ("all checks that are missing", |card| list(nf4(card), "checks").clear()),
        ("a check's name", |card| nf4(card)["checks"][0]["name"] = "A.1/other".into()),
        ("a check twice", |card| {
            let again = nf4(card)["checks"][3].clone();
            list(nf4(card), "checks").insert(3, again);
        }),
        ("checks in another order", |card| list(nf4(card), "checks").swap(0, 1)),
        ("a check's outcome", |card| {
            for check in list(nf4(card), "checks") {
                check["outcome"] = "wrong".into();
            }
        }),
        ("a check's detail", |card| nf4(card)["checks"][0]["detail"] = "passed, but".into()),
        ("a check's replay", |card| nf4(card)["checks"][0]["replay"] = "rm -rf ~".into()),
        ("a guard that is missing", |card| _ = list(card, "guards").remove(0)),
        ("all guards that are missing", |card| list(card, "guards").clear()),
        ("the guard on the bound, which is missing", |card| {
            list(card, "guards").retain(|guard| guard["name"] != "past the physical bound");
        }),
        ("a guard's name", |card| card["guards"][0]["name"] = "nothing".into()),
        ("a guard's challenge", |card| card["guards"][0]["challenge"] = "loss".into()),
        ("a guard of no challenge", |card| card["guards"][0]["challenge"] = "none".into()),
        ("a guard twice", |card| {
            let again = card["guards"][0].clone();
            list(card, "guards").insert(0, again);
        }),
        ("a guard that tripped", |card| card["guards"][0]["tripped"] = true.into()),
        ("a guard that tripped on something", |card| {
            card["guards"][0]["tripped"] = true.into();
            card["guards"][0]["detail"] = "the second answer was the first".into();
        }),
        ("a guard that did not run", |card| {
            card["guards"][0]["ran"] = false.into();
            card["guards"][0]["detail"] = "left the process with exit(0) instead of returning".into();
        }),
        ("a guard that saw something", |card| card["guards"][0]["detail"] = "something".into()),
        ("a total that is missing", |card| without(card, "nf4.speedup")),
        ("a rate that is missing", |card| without(card, &format!("nf4.rate.{CASE}"))),
        ("an interval", |card| scale(&mut number(card, "nf4.speedup")["interval"][0], 1.01)),
        ("an interval that is missing", |card| {
            _ = number(card, "nf4.speedup").as_object_mut().expect("a number").remove("interval");
        }),
        ("an interval of a number without", |card| {
            number(card, "nf4.launches")["interval"] = json!([1.0, 1.0]);
        }),
        ("a case's interval", |card| {
            scale(&mut number(card, &format!("nf4.speedup.{CASE}"))["interval"][1], 1.01);
        }),
        ("a speed-up", |card| scale(&mut number(card, "nf4.speedup")["value"], 1.001)),
        ("a sample", |card| scale(&mut number(card, &format!("nf4.attempt.{CASE}"))["samples"][0], 0.99)),
        ("a baseline's sample", |card| {
            scale(&mut number(card, &format!("nf4.baseline.{CASE}"))["samples"][1], 1.02);
        }),
        ("a share of the bound", |card| {
            scale(&mut number(card, &format!("nf4.share_of_bound.{CASE}"))["value"], 1.1);
        }),
        ("a bound", |card| scale(&mut number(card, &format!("nf4.bound.{CASE}"))["value"], 0.5)),
        ("a rate", |card| scale(&mut number(card, &format!("nf4.rate.{CASE}"))["value"], 1.5)),
        ("samples, negative", |card| scale_all(number(card, &format!("nf4.bound.{CASE}")), -1.0)),
        ("the number of samples, halved in all", |card| {
            halve(card, CASE);
            consistent(card, CASE);
        }),
        ("times, halved in all", |card| {
            for kind in ["baseline", "attempt", "bound"] {
                scale_all(number(card, &format!("nf4.{kind}.{CASE}")), 0.5);
            }
            consistent(card, CASE);
        }),
        ("an attempt a hundred times past the bound", |card| {
            scale_all(number(card, &format!("nf4.attempt.{CASE}")), 0.01);
            consistent(card, CASE);
            scale(&mut number(card, &format!("nf4.rate.{CASE}"))["value"], 100.0);
        }),
        ("a bound that is missing", |card| without(card, &format!("nf4.bound.{CASE}"))),
        ("a baseline that is missing", |card| without(card, &format!("nf4.baseline.{CASE}"))),
        ("a count that is missing", |card| without(card, "nf4.launches")),
        ("a count", |card| number(card, "nf4.launches")["value"] = 2.into()),
        ("a count, negative", |card| number(card, "nf4.working_bytes")["value"] = (-1).into()),
        ("a number of another challenge", |card| {
            let launches = number(card, "nf4.launches").clone();
            nf4(card)["measurements"]["loss.launches"] = launches;
        }),
        ("the hash of the code", |card| nf4(card)["code"] = "0".repeat(64).into()),
        ("the hash of the code, which is missing", |card| nf4(card)["code"] = "".into()),
        ("the hash of code that was not graded", |card| {
            card["challenges"][1]["code"] = "0".repeat(64).into();
        }),
        ("a challenge that was not run, with points", |card| {
            let row = &mut card["challenges"][1]["rows"][0];
            (row["fact"], row["points"]) = ("met".into(), 5.into());
            card["challenges"][1]["points"] = 5.into();
            card["points"] = (card["points"].as_i64().expect("points") + 5).into();
        }),
        ("an unmeasured row's evidence", |card| {
            card["challenges"][1]["rows"][0]["evidence"] = "met with honours".into();
        }),
    ]
}

fn edits_of_a_cpu() -> Vec<(&'static str, Edit)> {
    vec![
        ("a row's basis", |card| nf4(card)["rows"][0]["basis"] = "as published".into()),
        ("the device, to a card", |card| nf4(card)["device"] = "cuda:0".into()),
        ("the vector unit", |card| card["machine"]["vector"] = "portable".into()),
        ("stores without a fence, which are missing", |card| without(card, "nf4.unfenced_stores")),
        ("breaks of a graph, which are missing", |card| without(card, "nf4.graph_breaks")),
        ("layers, which are missing", |card| without(card, "graph.layers")),
        ("hidden compilations, which are missing", |card| without(card, "graph.hidden_compilations")),
        ("breaks, which are missing", |card| without(card, "graph.breaks")),
        ("compilations", |card| number(card, "graph.compilations")["value"] = 31.into()),
        ("a ratio of C", |card| scale(&mut number(card, "graph.over_op_by_op")["value"], 1.01)),
        ("times of C", |card| {
            for time in list(number(card, "graph.step"), "samples") {
                scale(time, 0.5);
            }
        }),
        ("a ratio of E", |card| scale(&mut number(card, "loss.over_whole")["value"], 1.01)),
        ("losses of E", |card| scale(&mut number(card, "loss.training.chunked")["samples"][7], 1.1)),
        ("losses of E, which are missing", |card| {
            without(card, "loss.training.whole");
            without(card, "loss.training.chunked");
        }),
        ("texts of D", |card| number(card, "issues.prompts.same")["value"] = 431.into()),
        ("texts of D, which are missing", |card| without(card, "issues.prompts.all")),
        ("a time of D", |card| scale(&mut number(card, "issues.prompts.time")["value"], 0.5)),
        ("results of D's attention", |card| number(card, "issues.attention.same")["value"] = 545.into()),
        ("few results of D's attention", |card| {
            for name in ["issues.attention.same", "issues.attention.all"] {
                number(card, name)["value"] = 12.into();
            }
        }),
        ("compilations of D", |card| number(card, "issues.attention.compilations")["value"] = 40.into()),
        ("lengths of D, which are missing", |card| without(card, "issues.attention.lengths_right")),
        ("a gradient of D", |card| number(card, "issues.classifier.gradient")["value"] = 0.5.into()),
        ("losses of D", |card| {
            scale(&mut number(card, "issues.classifier.losses.attempt")["samples"][7], 1.1);
        }),
        ("an accuracy of D", |card| number(card, "issues.classifier.accuracy")["value"] = 0.9.into()),
        ("answers of D", |card| {
            number(card, "issues.classifier.confusion.120")["samples"][1] = 240.into();
        }),
        ("gradients of D, which are missing", |card| without(card, "issues.classifier.gradient")),
        ("a device that has no back end, with its GPU", |card| {
            card["challenges"][1]["device"] = "cuda:0".into();
            card["machine"]["gpu"] = "a GPU, 50 MiB L2".into();
            for row in list(&mut card["challenges"][1], "rows") {
                row["basis"] = "as published".into();
            }
            let points = card["challenges"][1]["points"].as_i64().expect("points");
            card["stand_in"] = (card["stand_in"].as_i64().expect("points") - points).into();
        }),
        ("C, moved to a card", |card| {
            card["challenges"][2]["device"] = "cuda:0".into();
            card["machine"]["gpu"] = "a GPU, 50 MiB L2".into();
            for row in list(&mut card["challenges"][2], "rows") {
                row["basis"] = "as published".into();
            }
            let points = card["challenges"][2]["points"].as_i64().expect("points");
            card["stand_in"] = (card["stand_in"].as_i64().expect("points") - points).into();
        }),
        ("bytes of E", |card| scale(&mut number(card, "loss.bytes.chunked")["value"], 0.5)),
        ("a wrong check of C that is taken away", |card| {
            list(&mut card["challenges"][2], "checks").truncate(12);
        }),
        ("a guard of E that is taken away", |card| _ = list(card, "guards").pop()),
        ("the attempt's name, to a reader's", |card| card["attempt"] = "exercise".into()),
    ]
}

/// An exercise's report: its hash is another one, and everything else holds.
#[test]
fn an_exercise_verifies_with_a_hash_of_its_own() {
    let mut card = json_of(&whole_report::whole(false));
    card["attempt"] = "exercise".into();
    for challenge in list(&mut card, "challenges") {
        if challenge["attempted"] == true {
            challenge["code"] = "ab".repeat(32).into();
        }
    }
    assert_eq!(verified(&card), Verified::default());
    for code in ["", "ab", &"AB".repeat(32), &"zz".repeat(32)] {
        nf4(&mut card)["code"] = code.into();
        assert!(!verified(&card).findings.is_empty(), "{code:?}");
    }
}

/// The book keeps reports of earlier versions: they contradict this version, not themselves.
#[test]
fn a_report_of_another_version_is_told_from_a_contradiction() {
    let mut card = json_of(&whole_report::whole(false));
    card["guards"].as_array_mut().expect("guards").remove(2);
    nf4(&mut card)["code"] = "ab".repeat(32).into();
    let found = verified(&card).findings;
    assert!(!found.is_empty() && found.iter().all(|finding| finding.about == About::Version), "{found:#?}");
    scale(&mut number(&mut card, "nf4.speedup")["value"], 1.5);
    assert!(verified(&card).findings.iter().any(|finding| finding.about == About::Numbers));
}

#[test]
fn a_hostile_file_is_refused_in_a_moment() {
    let folder = tempfile::tempdir().expect("a folder for reports");
    let path = folder.path().join("card.json");
    let whole = json_of(&whole_report::whole(false));
    let edited = |edit: &dyn Fn(&mut Value)| {
        let mut card = whole.clone();
        edit(&mut card);
        card.to_string()
    };
    let twice = whole.to_string().replacen(
        "\"nf4.launches\":",
        "\"nf4.launches\":{\"unit\":\"\",\"value\":9},\"nf4.launches\":",
        1,
    );
    let cases: [(&str, String, &str); 13] = [
        ("a list", serde_json::to_string(&[&whole]).expect("JSON"), "is not a scorecard"),
        ("no JSON", "{".into(), "is not a scorecard"),
        ("nothing", String::new(), "is not a scorecard"),
        ("a deep list", "[".repeat(1 << 20), "is not a scorecard"),
        ("a deep object", format!("{{\"x\":{}", "{\"x\":".repeat(1 << 20)), "is not a scorecard"),
        ("17 MiB", " ".repeat(17 << 20), "expected at most 16 MiB"),
        ("infinite", whole.to_string().replacen("0.0", "1e999", 1), "is not a scorecard"),
        ("a number twice", twice, "twice"),
        ("a field that nobody knows", edited(&|card| card["verified"] = true.into()), "\"verified\""),
        ("a field in a row", edited(&|card| nf4(card)["rows"][0]["note"] = "met".into()), "\"note\""),
        (
            "10,001 samples",
            edited(&|card| number(card, "nf4.launches")["samples"] = vec![1.0; 10_001].into()),
            "at most 10000 samples",
        ),
        (
            "guards without an end",
            edited(&|card| {
                let guard = card["guards"][0].clone();
                card["guards"] = vec![guard; 5000].into();
            }),
            "at most 2000 guards",
        ),
        ("a long text", edited(&|card| card["attempt"] = "x".repeat(1 << 20).into()), "texts of at most"),
    ];
    for (what, text, says) in cases {
        fs::write(&path, text).expect("the report can be written");
        for verb in ["verify-report", "report"] {
            let begin = Instant::now();
            let ran = grader(&[verb, path.to_str().expect("a plain path")]);
            assert_eq!(ran.code, 2, "{verb}: {what}: {}{}", ran.stdout, ran.stderr);
            assert!(ran.stderr.contains(says), "{verb}: {what}: {}", ran.stderr);
            assert!(begin.elapsed() < Duration::from_secs(20), "{verb}: {what}: {:?}", begin.elapsed());
        }
    }
    let ran = grader(&["verify-report", folder.path().to_str().expect("a plain path")]);
    assert!(ran.code == 2 && ran.stderr.contains("found a directory"), "{}", ran.stderr);
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_not_read() {
    let folder = tempfile::tempdir().expect("a folder for reports");
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    for path in ["/dev/zero", "/dev/null", pipe.to_str().expect("a plain path")] {
        for verb in ["verify-report", "report"] {
            let ran = grader(&[verb, path]);
            assert_eq!(ran.code, 2, "{verb} {path}");
            assert!(ran.stderr.contains("expected a regular file, found a device"), "{}", ran.stderr);
        }
    }
}

#[test]
fn the_most_samples_are_verified_in_time() {
    let mut card = json_of(&whole_report::whole(false));
    for challenge in list(&mut card, "challenges") {
        for (_, number) in challenge["measurements"].as_object_mut().expect("numbers") {
            let first = number["samples"].get(0).cloned();
            if let Some(sample) = first {
                number["samples"] = vec![sample; 10_000].into();
            }
        }
    }
    let begin = Instant::now();
    assert!(!verified(&card).findings.is_empty());
    assert!(begin.elapsed() < Duration::from_mins(2), "{:?}", begin.elapsed());
}

/// Strings of a stranger's report, wherever a scorecard has one.
#[test]
fn a_strangers_report_prints_nothing_but_text() {
    const HOSTILE: &str =
        "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\u{2066}\u{200b}\r\u{8}<script>@someone</script>";
    let folder = tempfile::tempdir().expect("a folder for reports");
    let [path, html, md] = ["card.json", "card.html", "card.md"].map(|name| folder.path().join(name));
    let [path, html, md] = [&path, &html, &md].map(|path| path.to_str().expect("a plain path"));
    let cards = [
        whole_report::whole(false),
        whole_report::whole(true),
        fixture::half_done(),
        fixture::untouched(),
        fixture::compiled(),
        fixture::chunked(),
        fixture::on_ranks(),
    ];
    for card in cards {
        for idle in [false, true] {
            let mut card = json_of(&card);
            poison(&mut card, HOSTILE);
            if idle {
                for challenge in list(&mut card, "challenges") {
                    challenge["attempted"] = false.into();
                    for check in list(challenge, "checks") {
                        check["outcome"] = "not measured".into();
                    }
                }
            }
            fs::write(path, card.to_string()).expect("the report can be written");
            let shown = grader(&["report", path, "--html", html, "--md", md]);
            let message = grader(&["verify-report", path]);
            assert_eq!(message.code, 1, "{}", message.stderr);
            let [html, md] = [html, md].map(|path| fs::read_to_string(path).expect("a report was written"));
            for text in [&shown.stdout, &shown.stderr, &message.stdout, &message.stderr, &html, &md] {
                let bad = text.chars().find(|c| {
                    (c.is_control() && *c != '\n') || "\u{202e}\u{2066}\u{200b}\u{9b}".contains(*c)
                });
                assert_eq!(bad, None, "{}", text.escape_debug());
            }
            for text in [&html, &outside_code(&md)] {
                assert!(!text.contains("<script>@someone"), "markup of a stranger: {text}");
            }
        }
    }
}

#[test]
fn a_strangers_template_prints_nothing_but_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let [template, messages] = ["t.jinja", "m.json"].map(|name| folder.path().join(name));
    fs::write(&messages, "[]").expect("messages");
    for text in ["{{ raise_exception('\u{1b}[2Jno\u{202e}') }}", "{{ \u{1b}[2J }}", "{% \u{9b}31m %}"] {
        fs::write(&template, text).expect("a template");
        let [template, messages] = [&template, &messages].map(|path| path.to_str().expect("a plain path"));
        let ran = grader(&["template", "render", template, "--messages", messages]);
        assert!(matches!(ran.code, 1 | 2) && !ran.stderr.is_empty(), "{text:?}: {}", ran.stdout);
        let bad = ran.stderr.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
        assert_eq!(bad, None, "{}", ran.stderr.escape_debug());
    }
}

/// Markdown without its code, which nothing searches for markup: what stands between two equal runs of backticks.
fn outside_code(md: &str) -> String {
    let (mut out, mut rest) = (String::new(), md);
    while let Some(at) = rest.find('`') {
        out.push_str(&rest[..at]);
        let run = rest[at..].chars().take_while(|c| *c == '`').count();
        let ticks = "`".repeat(run);
        let inside = &rest[at + run..];
        let closing = inside
            .match_indices(&ticks)
            .map(|(end, _)| end)
            .find(|end| !inside[..*end].ends_with('`') && !inside[end + run..].starts_with('`'));
        let Some(end) = closing else { panic!("code without an end: {inside}") };
        rest = &inside[end + run..];
    }
    out + rest
}

/// Every string of a report gets `more`, but for the words that a scorecard knows.
fn poison(value: &mut Value, more: &str) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|one| poison(one, more)),
        Value::Object(all) => {
            if let Some(Value::Object(numbers)) = all.get_mut("measurements") {
                let more: Vec<(String, Value)> =
                    numbers.iter().map(|(name, number)| (format!("{name}{more}"), number.clone())).collect();
                numbers.extend(more);
            }
            let known = ["fact", "basis", "outcome"];
            for (_, one) in all.iter_mut().filter(|(name, _)| !known.contains(&name.as_str())) {
                poison(one, more);
            }
        }
        Value::String(text) if !["nf4", "fsdp", "graph", "issues", "loss"].contains(&text.as_str()) => {
            text.push_str(more);
        }
        _ => {}
    }
}

#[test]
fn a_report_is_run_anew_with_its_seed() {
    let folder = tempfile::tempdir().expect("a folder for reports");
    let path = folder.path().join("card.json");
    let name = path.to_str().expect("a plain path");
    let made = grader(&["score", "issues", "--quick", "--attempt", "solution", "--json", "-o", name]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let again = grader(&["verify-report", "--again", "--quick", name]);
    assert_eq!(again.code, 0, "{}{}", again.stdout, again.stderr);
    assert!(again.stdout.contains("checks, guards and rows end alike"), "{}", again.stdout);
    let seeded = grader(&["verify-report", "--again", "--seed", "1", name]);
    assert!(seeded.code == 2 && seeded.stderr.contains("expected no --seed"), "{}", seeded.stderr);
    let mut card: Value =
        serde_json::from_str(&fs::read_to_string(&path).expect("the report")).expect("JSON");
    for check in list(&mut card["challenges"][3], "checks").iter_mut().skip(50) {
        (check["outcome"], check["detail"]) = ("not measured".into(), "no time".into());
    }
    // on Windows a row of the challenge follows from the checks of whole parts
    let findings = verified(&card).findings;
    let is_of_that_row = |finding: &Finding| cfg!(windows) && finding.what.starts_with("issues");
    assert!(findings.iter().all(is_of_that_row), "an outcome of a check is what it is: {findings:#?}");
    fs::write(&path, card.to_string()).expect("the report can be written");
    let again = grader(&["verify-report", "--again", "--quick", name]);
    let says = if cfg!(windows) { "it contradicts itself" } else { "end otherwise" };
    assert!(again.code == 1 && again.stdout.contains(says), "{}{}", again.stdout, again.stderr);
}

#[test]
fn progress_is_no_more_than_can_be() {
    let workbook = tempfile::tempdir().expect("a workbook");
    let run = |arguments: &[&str]| run(Path::new(env!("CARGO_BIN_EXE_own")), workbook.path(), arguments);
    fs::create_dir_all(workbook.path().join("challenges/src")).expect("a folder");
    assert_eq!(run(&["reset", "nf4", "--device", "cpu"]).code, 0);
    let text =
        fs::read_to_string(workbook.path().join("challenges/src/nf4/exercise.rs")).expect("an exercise");
    let code = grader::stub::code_hash(&text);
    let progress = workbook.path().join(".warpbook/progress.json");
    let standing = |points: i64, outcome: &str| {
        let check = json!({"name": "A.1/one\u{1b}[2J", "outcome": outcome, "detail": "", "replay": ""});
        let nf4 = json!({"code": code, "points": points, "checks": [check]});
        json!({"challenges": {"nf4": nf4}, "hints": {"A.1": u64::MAX}}).to_string()
    };
    for (points, outcome, shown) in [
        (99, "passed", "14 of 55."),
        (13, "passed", "13 of 55."),
        (14, "wrong", "0 of 55."),
        (-9, "passed", "of 55."),
    ] {
        fs::write(&progress, standing(points, outcome)).expect("progress");
        let list = run(&["list"]);
        assert!(list.code == 0 && list.stdout.contains(shown), "{points} {outcome}: {}", list.stdout);
        assert!(list.stderr.is_empty() && !list.stdout.contains('\u{1b}'), "{}", list.stderr);
        assert!(run(&["hint", "A.1"]).stdout.contains("large hint"));
    }
    let torn = standing(14, "passed");
    for hostile in [&torn[..torn.len() / 2], "[]", "\u{1b}[2J", &" ".repeat(17 << 20), &"[".repeat(1 << 20)] {
        fs::write(&progress, hostile).expect("progress");
        let list = run(&["list"]);
        assert!(list.code == 0 && list.stdout.starts_with("0 of 55."), "{}", list.stdout);
        assert_eq!(list.stderr.matches("progress is not read").count(), 1, "{}", list.stderr);
        assert!(!list.stderr.contains('\u{1b}'), "{}", list.stderr);
    }
}

#[test]
fn checks_are_told_by_their_outcomes() {
    let card = whole_report::whole(false);
    let checks = card.challenges.iter().flat_map(|challenge| &challenge.checks);
    assert!(checks.clone().count() > 300 && checks.clone().all(|check| check.outcome == Outcome::Passed));
}
