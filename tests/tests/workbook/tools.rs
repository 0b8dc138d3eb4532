//! `trainer tools`: a model learns to call functions, with arguments that it has never seen.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tests::program::{Ran, run};
use trainer::tools::draw::{Draw, is_held_out};
use trainer::tools::folder::{held_out, write_example, write_pretraining};
use trainer::tools::functions::{check, execute, tools};
use trainer::tools::requests::Request;
use trainer::tools::score::{Scorer, Verdict};

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

fn show(folder: &Path, arguments: &[&str]) -> Ran {
    run(Path::new(TRAINER), folder, &[&["tools"], arguments].concat())
}

/// The arguments of a call that are drawn: all but the units.
fn drawn(arguments: &Map<String, Value>) -> impl Iterator<Item = String> {
    let texts = arguments.iter().filter(|(name, _)| *name != "to");
    texts.map(|(_, value)| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

fn rows(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("data.jsonl")).expect("rows");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The numbers before "of N calls are right" and "valid", at each look.
fn counts(screen: &str) -> Vec<(usize, usize)> {
    let number = |text: &str| text.split(' ').next()?.parse().ok();
    let line = |line: &str| {
        let (_, counted) = line.split_once(": ")?;
        let (right, valid) = counted.split_once(" calls are right, ")?;
        Some((number(right)?, number(valid)?))
    };
    screen.lines().filter_map(line).collect()
}

/// In fewer steps, with fewer requests than by default, so that it ends soon on a busy machine: the bound is weaker
/// than what the page says of a whole run.
#[test]
fn a_model_that_called_nothing_learns_to_call_functions() {
    let folder = TempDir::new().expect("a folder");
    let ran = show(folder.path(), &["seen", "--steps", "80", "--requests", "30"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let counts = counts(&ran.stdout);
    assert_eq!(counts.len(), 1 + 80 / 40, "{}", ran.stdout);
    assert_eq!(counts[0], (0, 0), "{}", ran.stdout);
    let (right, valid) = counts[counts.len() - 1];
    assert!(right >= 15 && valid >= right, "{}", ran.stdout);
    assert!(folder.path().join("seen/out/adapter/adapter_model.safetensors").exists());
    let again = show(folder.path(), &["seen"]);
    assert_eq!(
        (again.code, again.stderr.as_str()),
        (2, "warpbook: seen: expected no such folder, found one\n")
    );
}

#[test]
fn held_out_arguments_are_in_no_row() {
    let folder = TempDir::new().expect("a folder");
    let (example, pretraining) = (folder.path().join("a"), folder.path().join("b"));
    write_example(&example, 1).expect("it is written");
    write_pretraining(&pretraining).expect("it is written");
    let kept: BTreeSet<String> =
        held_out(1000).iter().flat_map(|request| drawn(&request.arguments)).collect();
    assert!(kept.len() > 500 && kept.iter().all(|text| is_held_out(text)), "{}", kept.len());
    for row in rows(&example) {
        let call = &row["messages"][1]["tool_calls"][0]["function"]["arguments"];
        let seen = drawn(call.as_object().expect("arguments")).find(|text| kept.contains(text));
        assert_eq!(seen, None, "{row}");
    }
    for row in rows(&pretraining) {
        let said = row["messages"].as_array().expect("messages").iter();
        let said: Vec<&str> = said.filter_map(|message| message["content"].as_str()).collect();
        let text = said.join(" ");
        assert!(!text.contains(['{', '<']), "the base has seen a call: {row}");
        let words = text.split(' ').map(|word| word.trim_end_matches(['.', ',', '?']).trim_end_matches("'s"));
        // what begins with a small letter is drawn letters, or repeats what stands in quotes before it
        let is_argument = |word: &&str| word.starts_with(|c: char| !c.is_ascii_lowercase());
        let seen = words.filter(is_argument).find(|word| kept.contains(word.trim_matches('"')));
        assert_eq!(seen, None, "{row}");
    }
}

#[test]
fn draws_depend_on_seed_and_row_alone() {
    let draw = |seed, row| Request::draw(&mut Draw::new(seed, row, false));
    assert_eq!(draw(1, 7), draw(1, 7));
    let drawn: BTreeSet<String> = (0..100).map(|row| draw(1, row).text).collect();
    assert!(drawn.len() > 90, "{}", drawn.len());
    assert_ne!(draw(1, 7), draw(2, 7));
}

#[test]
fn a_call_is_checked_against_the_schema_and_runs() {
    let object = |value: Value| value.as_object().cloned().expect("an object");
    let runs = [
        ("add", json!({"a": 17, "b": -2}), "15"),
        ("area", json!({"w": 12, "h": 30}), "360"),
        ("convert", json!({"n": 42, "to": "miles"}), "26.10"),
        ("convert", json!({"n": 100, "to": "fahrenheit"}), "212.00"),
        ("backwards", json!({"name": "Sarolu"}), "uloraS"),
        ("letters", json!({"word": "sarolu"}), "6"),
    ];
    for (name, arguments, returned) in runs {
        assert_eq!(check(&tools(), name, &object(arguments.clone())), Ok(()));
        assert_eq!(execute(name, &object(arguments)).as_deref(), Ok(returned), "{name}");
    }
    let refused = [
        ("subtract", json!({"a": 1, "b": 2}), "there is no tool \"subtract\""),
        ("add", json!({"a": 1}), "add: the argument b is missing"),
        ("add", json!({"a": 1, "b": 2, "c": 3}), "add has no argument \"c\""),
        ("add", json!({"a": 1, "b": "2"}), "add: b: expected {\"type\":\"integer\""),
        ("add", json!({"a": 1, "b": 2.5}), "found 2.5"),
        ("convert", json!({"n": 1, "to": "feet"}), "found \"feet\""),
        ("letters", json!({"word": 6}), "found 6"),
    ];
    for (name, arguments, why) in refused {
        let told = check(&tools(), name, &object(arguments.clone())).expect_err("it is no call");
        assert!(told.contains(why), "{name} {arguments}: expected {why:?} in {told:?}");
    }
    let large = object(json!({"a": i64::MAX, "b": 1}));
    assert_eq!(execute("add", &large), Err("the sum is too large".to_owned()));
}

/// What is counted as right is the asked-for call alone, whole and with its end.
#[test]
fn an_answer_is_right_if_its_one_call_returns_what_was_asked_for() {
    let folder = TempDir::new().expect("a folder");
    write_example(folder.path(), 1).expect("it is written");
    let scorer = Scorer::open(&folder.path().join("model"), Vec::new()).expect("a model");
    let arguments = json!({"a": 17, "b": 25}).as_object().cloned().expect("an object");
    let request = Request { text: "Add 17 and 25.".into(), name: "add", arguments };
    let call = |name: &str, arguments: &str| {
        format!("<tool_call>{{\"name\": \"{name}\", \"arguments\": {arguments}}}</tool_call>")
    };
    let right = call("add", r#"{"a": 17, "b": 25}"#);
    let table = [
        (format!("{right}<|end|>"), Verdict::Right),
        (call("add", r#"{"b": 17, "a": 25}"#) + "<|end|>", Verdict::Right),
        (call("add", r#"{"a": 17, "b": 26}"#) + "<|end|>", Verdict::Wrong),
        (call("area", r#"{"w": 6, "h": 7}"#) + "<|end|>", Verdict::Wrong),
        (call("add", r#"{"a": 17}"#) + "<|end|>", Verdict::Invalid),
        (call("add", r#"{"a": 17, "b": "25"}"#) + "<|end|>", Verdict::Invalid),
        (right.clone(), Verdict::Invalid),
        (format!("{right}{right}<|end|>"), Verdict::Invalid),
        (format!("Here: {right}<|end|>"), Verdict::Invalid),
        ("<tool_call>{\"name\": \"add\"<|end|>".to_owned(), Verdict::Invalid),
        ("42<|end|>".to_owned(), Verdict::Invalid),
        (String::new(), Verdict::Invalid),
    ];
    for (answer, verdict) in table {
        assert_eq!(scorer.judge(&request, &answer), verdict, "{answer}");
    }
}

#[test]
fn the_kept_model_has_at_most_three_megabytes() {
    let folder = TempDir::new().expect("a folder");
    write_example(folder.path(), 1).expect("it is written");
    let files = fs::read_dir(folder.path().join("model")).expect("a folder").flatten();
    let bytes: u64 = files.map(|file| file.metadata().expect("a file").len()).sum();
    assert!(bytes <= 3_000_000, "{bytes} bytes");
}
