//! `grader graph FILE`: every graph of the tests passes through it, a slip is caught at its node, no text brings it
//! down.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use challenges::graph::zoo::{Shows, zoo};
use challenges::graph::{Compile, Solution};
use challenges::nf4;
use compiler::compile::Level;
use grader::trial::{self, Answer, Trial};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use reference::graph::Tape;
use reference::graph::interpret::Values;
use reference::llama::train::step_graph;
use serde_json::Value;
use tests::graphs;
use tests::place;
use tests::program::{Ran, own};
use tests::svg::Svg;
use tests::tiny_llama::TinyLlama;

use crate::llama::recipe;
use crate::look::looks_like;
use crate::ranks_compiled;

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// The attempt that does nothing wrong.
const HONEST: &str = "an honest compiler";

/// A graph at every level, on values of a seed.
fn tried(text: &str, seed: u64) -> Result<Vec<Answer>, String> {
    let graph = trial::read(text)?;
    let (sizes, _) = trial::sizes(&graph, &BTreeMap::new(), None, seed)?;
    let trial = Trial::new(text, &sizes, None, seed)?;
    let at = |level: Level| {
        let answer = trial.at(&Solution, &nf4::Solution, level, true);
        answer.map_err(|message| format!("{level:?} of sizes {sizes:?}: {message}"))
    };
    Level::ALL.into_iter().map(at).collect()
}

fn passes(name: &str, text: &str, seed: u64) -> Vec<Answer> {
    tried(text, seed).unwrap_or_else(|message| panic!("{name}: {message}\n{text}"))
}

#[test]
fn a_hundred_drawn_graphs_pass() {
    let mut runner = TestRunner::deterministic();
    let kinds = [graphs::any().boxed(), graphs::smooth().boxed(), graphs::repeated().boxed()];
    let mut with_results = 0;
    for i in 0..102 {
        let case = kinds[i % 3].new_tree(&mut runner).expect("a graph").current();
        let answers = passes(&format!("drawn graph {i}"), &case.graph.to_string(), i as u64);
        with_results += usize::from(answers.iter().all(|answer| answer.refused.is_none()));
    }
    assert!(with_results > 90, "{with_results} of 102 have a meaning");
}

#[test]
fn drawn_graphs_of_ranks_pass() {
    let mut runner = TestRunner::deterministic();
    let recipes = ranks_compiled::recipe(false, 12);
    let (mut with_results, mut with_ranks) = (0, 0);
    for i in 0..40 {
        let (graph, _) = recipes.new_tree(&mut runner).expect("a graph").current().follow();
        let text = graph.to_string();
        let Ok((_, mesh)) = trial::sizes(&graph, &BTreeMap::new(), None, i) else { continue }; // no input says a size
        let answers = passes(&format!("drawn graph of ranks {i}"), &text, i);
        with_results += usize::from(answers.iter().all(|answer| answer.refused.is_none()));
        with_ranks += usize::from(mesh.ranks() > 1);
    }
    assert!(
        with_results > 30 && with_ranks > 20,
        "{with_results} have a meaning, {with_ranks} several ranks"
    );
}

/// Ranks along two axes: the sums of rows and of columns of a mesh.
const OF_MESH: &str = "graph \"mesh\" (T in 1..=9, W in 1..=8) {
  %0 = input \"x\" : f32[W, T]
  %1 = all_reduce %0 over \"dp\" size 2 : f32[W, T]
  %2 = all_gather %1 dim 0 over \"tp\" size W : f32[W*W, T]
  %3 = exp %2 : f32[W*W, T]
  %4 = reduce_scatter %3 dim 0 over \"tp\" size W : f32[W, T]
  return \"y\" %4
}";

#[test]
fn a_graph_of_several_ranks_is_tried_on_as_many() {
    for (flags, text) in [
        (&["--size", "W=3"][..], "on 6 ranks of the cpu"),
        (&["--size", "W=3", "--ranks", "6"], "on 6 ranks of the cpu"),
        (&["--size", "W=1", "--plan"], "on 2 ranks of the cpu"),
    ] {
        let ran = given(OF_MESH.as_bytes(), flags);
        assert!(ran.code == 0 && ran.stdout.contains(text), "{flags:?}: {}{}", ran.stdout, ran.stderr);
    }
    let line = OF_MESH.replace("size 2", "size 1");
    let line = line.replace("over \"dp\"", "over \"tp\"").replace("size 1", "size W");
    let ran = given(line.as_bytes(), &["--ranks", "3", "--json"]);
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(
        (&json["ranks"], &json["sizes"]["W"], &json["outcome"]),
        (&3.into(), &3.into(), &"passed".into())
    );
    for (text, flags, message) in [
        (
            OF_MESH,
            &["--size", "W=3", "--ranks", "4"][..],
            "--ranks: expected 6, as the graph has ranks 2 along \"dp\", 3",
        ),
        (&line, &["--ranks", "9"], "--size W=9: expected 1..=8, found 9"),
        (&line.replacen("size W", "size 2", 1), &[], "expected 2 ranks along \"tp\", found W"),
    ] {
        let ran = given(text.as_bytes(), flags);
        assert!(ran.code == 2 && ran.stderr.contains(message), "{message}: {}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn a_slip_between_ranks_is_seen_with_its_rank() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mesh.graph");
    fs::write(&path, OF_MESH).expect("it can be written");
    let path = path.to_str().expect("a plain path");
    let ran = own(OWN, "loses a sign", &["graph", path, "--size", "W=2", "--level", "2"]);
    assert_eq!(ran.code, 0, "no sign is lost in it: {}{}", ran.stdout, ran.stderr);
    fs::write(path, OF_MESH.replace("%3 = exp", "%3 = neg")).expect("it can be written");
    let ran = own(OWN, "loses a sign", &["graph", path, "--size", "W=2", "--level", "2"]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    for words in
        ["rank 0: output `y`: element", "the first node that differs is on line 5", "--size W=2 --ranks 4"]
    {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
}

/// The texts below a folder that are graphs.
fn kept(folder: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the tests") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            all.extend(kept(&path));
        } else if let Ok(text) = fs::read_to_string(&path)
            && trial::read(&text).is_ok()
        {
            all.push((path.display().to_string(), text));
        }
    }
    all
}

#[test]
fn every_graph_that_the_tests_keep_passes() {
    let folders = ["look", "fuzz/corpus/graph_text"].map(|folder| place::tests().join(folder));
    let is_bound = |text: &str| {
        trial::read(text).and_then(|graph| trial::sizes(&graph, &BTreeMap::new(), None, 0)).is_ok()
    };
    let mut all: Vec<_> = folders.iter().flat_map(|folder| kept(folder)).collect();
    all.retain(|(_, text)| is_bound(text)); // one of a reader's tests has a size that no input tells
    assert!(all.len() >= 8, "{} graphs are kept", all.len());
    for (seed, (name, text)) in all.iter().enumerate() {
        passes(name, text, seed as u64);
    }
}

#[test]
fn every_cure_of_the_zoo_passes() {
    let record = |name: &str, program: &dyn Fn(&Tape), values: &Values<f32>| {
        let captured = Solution.capture("case", program, values).expect("shapes and types fit");
        passes(name, &captured.graph.to_string(), 1);
    };
    for case in &zoo() {
        match &case.shows {
            Shows::Breaks { cured, examples, .. } => record(case.name, cured, &examples()),
            Shows::Recompiles { numbers, cured, examples, .. } => {
                record(case.name, &|tape: &Tape| cured(tape, numbers[0]), &examples(numbers[0]));
            }
        }
    }
}

#[test]
fn a_training_step_passes() {
    let Some(tiny) = TinyLlama::find() else { return };
    let llama = tiny.open("nf4");
    let mut spec = llama.spec();
    spec.adapter = Some(tiny.adapter("adapter-start").config);
    let graph = step_graph(&spec, &recipe(&tiny.run())).expect("a graph");
    let answers = passes("step", &graph.to_string(), 3);
    assert!(answers[2].launches < answers[1].launches && answers[2].refused.is_none());
}

fn norm() -> String {
    place::tests().join("look/graph_file/norm.graph").display().to_string()
}

/// `graph FILE` with an attempt, a seed and a size.
fn norm_by(attempt: &str, more: &[&str]) -> Ran {
    let norm = norm();
    let mut arguments = vec!["graph", norm.as_str(), "--seed", "0x7", "--size", "T=5"];
    arguments.extend(more);
    own(OWN, attempt, &arguments)
}

/// What was printed, wherever the tests lie: a path with a blank is in quotes.
fn screen(ran: &Ran) -> String {
    let (folder, norm) = (place::tests().display().to_string(), norm());
    ran.stdout.replace(&format!("'{norm}'"), &norm).replace(&folder, "tests").replace('\\', "/")
}

#[test]
fn the_screen_and_the_plan_look_as_kept() {
    let ran = norm_by(HONEST, &["--plan", "--attempt", "solution"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    looks_like("graph_file/passed.txt", &screen(&ran));
}

#[test]
fn the_drawing_looks_as_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("norm.svg");
    let ran = norm_by(HONEST, &["--svg", path.to_str().expect("a plain path"), "--level", "2"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let svg = fs::read_to_string(&path).expect("it was drawn");
    Svg::read(&svg).unwrap_or_else(|fault| panic!("{fault}\n{svg}"));
    assert!(svg.contains("<desc>") && svg.contains("buffers") | svg.contains("Buffers"), "{svg}");
    looks_like("graph_file/plan.svg", &svg);
}

#[test]
fn a_wrong_operation_is_the_first_node_that_differs() {
    let ran = norm_by("loses a sign", &[]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.stdout.matches("  %10 = neg %9").count(), 1, "{}", ran.stdout);
    looks_like("graph_file/loses_a_sign.txt", &screen(&ran));
}

#[test]
fn a_slip_that_needs_neighbours_is_found_by_cutting() {
    let ran = norm_by("folds two signs into one", &[]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("O0     passed") && ran.stdout.contains("  %11 = neg %10"), "{}", ran.stdout);
    looks_like("graph_file/folds_two_signs.txt", &screen(&ran));
}

#[test]
fn a_panic_and_a_hole_are_outcomes() {
    for (attempt, outcome) in [("panics at a root", "wrong"), ("has a hole at a root", "not attempted")] {
        let ran = norm_by(attempt, &["--json"]);
        let json: Value = serde_json::from_str(&ran.stdout).expect("JSON and nothing else");
        assert_eq!((ran.code, &json["outcome"]), (1, &outcome.into()), "{}{}", ran.stdout, ran.stderr);
        let levels = json["levels"].as_array().expect("a list");
        assert!(
            levels.len() == 4 && levels.iter().all(|level| level["outcome"] == outcome),
            "{}",
            ran.stdout
        );
    }
}

#[test]
fn json_holds_the_errors_of_every_output() {
    let ran = norm_by(HONEST, &["--json", "--level", "1", "--plan"]);
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON and nothing else");
    let [level] = json["levels"].as_array().expect("a list").as_slice() else { panic!("{}", ran.stdout) };
    assert_eq!((&json["sizes"]["T"], &level["level"]), (&5.into(), &"O1".into()));
    assert!(level["plan"].as_str().is_some_and(|plan| plan.starts_with("plan norm (")), "{}", ran.stdout);
    let outputs = level["outputs"].as_array().expect("a list");
    assert_eq!(outputs.len(), 2);
    assert!(outputs.iter().all(|output| output["relative"].as_f64().is_some_and(|off| off < 1e-5)));
    assert!(level["arena_bytes"].as_u64() > Some(0) && level["launches"].as_u64() > Some(0));
}

#[test]
fn the_solution_is_tried_where_it_is_asked_for() {
    let ran = norm_by("loses a sign", &["--attempt", "solution", "--level", "3"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("the solution, on one rank of the cpu"), "{}", ran.stdout);
}

/// A text on standard input.
fn given(text: &[u8], more: &[&str]) -> Ran {
    let program = place::program(Path::new(OWN));
    let mut command = Command::new(program);
    command.args(["graph", "-", "--attempt", "solution", "--level", "2"]).args(more);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.env_remove(tests::attempts::VARIABLE).spawn().expect("it starts");
    _ = child.stdin.take().expect("a pipe").write_all(text); // what is too long is not read to its end
    let output = child.wait_with_output().expect("it ends");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    Ran { code: output.status.code().unwrap_or(-1), stdout, stderr }
}

#[test]
fn what_cannot_be_tried_is_refused_with_its_reason() {
    let node = |line: &str| {
        format!(
            "graph \"g\" (T in 1..=9) {{\n  %0 = input \"x\" : f32[4, T]\n  {line}\n  return \"y\" %1\n}}"
        )
    };
    let wide = node("%1 = broadcast %0 : f32[4, T]")
        .replace("f32[4, T]\n  return", "f32[1099511627776, T]\n  return");
    let wide = wide.replace("f32[4, T]", "f32[1, T]");
    let cases = [
        (node("%1 = neg %0 : f64[4, T]"), "  3:17 |   %1 = neg %0 : f64[4, T]"),
        (node("%1 = neg %0 : f32[4, 2]"), "line 3: %1 neg: expected f32[4, T], found f32[4, 2]"),
        (node("%1 = iota dim 0 : i32[S]"), "%1 iota: expected an input with the dimension S, found none"),
        (node("%1 = neg %0 : f32[4, T]").replace("return \"y\" %1", ""), "expected an output"),
        (wide, "expected values of at most 1073741824 bytes, found"),
        (String::new(), "line 1: expected `graph`, found the end of the text"),
        ("x".repeat(trial::MOST_TEXT_BYTES + 1), "expected at most 4194304 bytes of text, found more"),
    ];
    for (text, message) in &cases {
        let ran = given(text.as_bytes(), &[]);
        assert!(ran.code == 2 && ran.stderr.contains(message), "{message}: {}{}", ran.stdout, ran.stderr);
    }
    let ran = given(b"graph \"\xff\" {}", &[]);
    assert!(ran.code == 2 && ran.stderr.contains("expected UTF-8"), "{}", ran.stderr);
}

#[test]
fn what_is_no_regular_file_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let (here, gone) = (folder.path().join("a folder"), folder.path().join("gone.graph"));
    fs::create_dir(&here).expect("a folder in it");
    let mut cases = vec![(here, "found a directory"), (gone, "cannot be read: ")];
    if cfg!(unix) {
        let pipe = folder.path().join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success());
        assert!(made, "there is a program called mkfifo");
        cases.extend([(pipe, "found a device, a pipe"), ("/dev/zero".into(), "found a device, a pipe")]);
    }
    for (path, message) in cases {
        let path = path.to_str().expect("a plain path");
        let ran = own(OWN, HONEST, &["graph", path]);
        assert!(ran.code == 2 && ran.stderr.contains(message), "{path}: {}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn a_file_with_blanks_in_its_name_is_tried_again_by_the_command_that_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("it's mine.graph");
    fs::copy(norm(), &path).expect("a copy");
    let ran = own(OWN, "loses a sign", &["graph", path.to_str().expect("a plain path"), "--level", "0"]);
    assert!(ran.code == 1 && ran.stdout.contains(r"it'\''s mine.graph' --level 0"), "{}", ran.stdout);
}

#[test]
fn flags_that_do_not_fit_are_refused() {
    let norm = norm();
    for (flags, code, message) in [
        ("--size T=65", 2, "--size T=65: expected 1..=64, found 65"),
        ("--size S=5", 2, "--size S: expected a symbol of the graph (T)"),
        ("--size T", 2, "expected T=37"),
        ("--size T=4 --size T=5", 2, "--size T: expected one size, found two"),
        ("--level 4", 2, "0..=3"),
        ("--ranks 0", 2, "0 is not in 1.."),
        ("--ranks 65", 2, "expected at most 64 ranks, found 65"),
        ("--device sim", 3, "sim: a graph of a file has no back end for it yet"),
        ("--device cuda:0", 3, "cuda:0: a graph of a file has no back end for it yet"),
        ("--html x.html", 2, "--html has no meaning for graph FILE"),
    ] {
        let arguments: Vec<&str> = ["graph", &norm].into_iter().chain(flags.split(' ')).collect();
        let ran = own(OWN, HONEST, &arguments);
        assert!(ran.code == code && ran.stderr.contains(message), "{flags}: {}{}", ran.stdout, ran.stderr);
    }
    let ran = norm_by(HONEST, &["--svg", &norm]);
    assert!(
        ran.code == 2 && ran.stderr.contains("found one that is read or written already"),
        "{}",
        ran.stderr
    );
    assert_eq!(norm_by(HONEST, &["--ranks", "1", "--level", "0"]).code, 0);
    let ran = norm_by(HONEST, &["--ranks", "3", "--level", "2"]); // each for itself
    assert!(ran.code == 0 && ran.stdout.contains("on 3 ranks of the cpu"), "{}{}", ran.stdout, ran.stderr);
}

/// What may stand in the place of something else.
fn spoil() -> impl Strategy<Value = String> {
    let words = "%0 %1 %2 %3 0 1 2 7 64 -1 T B T*T - + f32 f16 bf16 u8 i32 [ ] , dim add mul div sqrt exp log cast less \
                 select reshape broadcast slice concat gather scatter_add matmul sum reduce_max transpose order attention \
                 attention_grad wrt scale nan inf 1e300 from to block nested";
    prop::sample::select(words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
}

/// A text with some of its words exchanged.
fn spoilt() -> impl Strategy<Value = String> {
    let cuts = prop::collection::vec((any::<prop::sample::Index>(), spoil()), 1..3);
    (graphs::any(), cuts).prop_map(|(case, cuts)| {
        let text = case.graph.to_string();
        let in_word = |c: char| c.is_ascii_alphanumeric() || c == '%';
        let mut words: Vec<String> = text.split_inclusive(|c| !in_word(c)).map(str::to_owned).collect();
        for (at, new) in &cuts {
            let at = at.index(words.len());
            let after = words[at].trim_start_matches(in_word).to_owned();
            words[at] = format!("{new}{after}");
        }
        words.concat()
    })
}

#[test]
fn thousands_of_spoilt_texts_are_refused_or_tried() {
    let mut runner = TestRunner::deterministic();
    let (texts, mut read) = (spoilt(), 0);
    for seed in 0..3000 {
        let text = texts.new_tree(&mut runner).expect("a text").current();
        let Ok(graph) = trial::read(&text) else { continue };
        let Ok((sizes, mesh)) = trial::sizes(&graph, &BTreeMap::new(), None, seed) else { continue };
        if trial::is_cheap(&graph, &sizes) {
            read += 1;
            let trial = Trial::new(&text, &sizes, Some(mesh.ranks()), seed).expect("sizes that fit");
            match trial.at(&Solution, &nf4::Solution, Level::O2, false) {
                Err(message) if message.starts_with("expected a refusal: ") => {} // an index into no rows, of which none is read
                Err(message) => panic!("sizes {sizes:?}: {message}\n{text}"),
                Ok(_) => {}
            }
        }
    }
    assert!(read > 50, "{read} of 3000 are graphs");
}
