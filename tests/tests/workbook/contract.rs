//! Contract: stubs fail, solutions pass, and a half-typed exercise stops nothing but itself.
//!
//! Everything here happens in a copy of the workbook, `target/contract/workbook`, on exercises derived there:
//! never on the reader's own file, so that half-done work never turns the tests red. The copy is kept and
//! only brought up to date, and its build folder with it, so that a second run compiles next to nothing; the first one
//! begins with the libraries that the tests themselves were built with (`tests::compiled`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use grader::stub;
use scorecard::{Challenge, Check, Outcome, Row, Scorecard, Truth};
use serde_json::Value;
use tests::compiled;
use tests::place::{self, workbook};
use tests::program::{Ran, checks, finish, unwrapped};

/// What makes the workbook; the rest of a checkout is the reader's or can be made again.
const PARTS: [&str; 11] = [
    "reference",
    "kernels",
    "challenges",
    "grader",
    "tests",
    "book",
    ".cargo",
    "Cargo.toml",
    "Cargo.lock",
    "rustfmt.toml",
    "clippy.toml",
];

const EXERCISE: &str = "challenges/src/nf4/exercise.rs";

const COMPILER: &str = "challenges/src/graph/exercise.rs";

/// The exercise of challenge E.
const CHUNKER: &str = "challenges/src/loss/exercise.rs";

/// The exercise of tool calling, a part of challenge D.
const CHATTER: &str = "challenges/src/issues/chat/exercise.rs";

/// The exercise of sequence classification, another part.
const CLASSIFIER: &str = "challenges/src/issues/classify/exercise.rs";

/// The exercise of GGUF files, another part.
const EXPORTER: &str = "challenges/src/issues/gguf/exercise.rs";
/// The exercise of vision, another part.
const SEER: &str = "challenges/src/issues/vision/exercise.rs";

/// A copy of the workbook, used by one test at a time.
struct Copy {
    root: PathBuf,
    grader: PathBuf,
    _lock: File, // two runs of the tests must not share the copy
}

static COPY: LazyLock<Mutex<Copy>> = LazyLock::new(|| Mutex::new(Copy::make()));

fn copy() -> MutexGuard<'static, Copy> {
    COPY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Copy {
    fn make() -> Self {
        let target = workbook().join("target/contract");
        let root = target.join("workbook");
        fs::create_dir_all(&root).expect("the copy's folder");
        let lock = File::create(target.join("lock")).expect("the copy's lock");
        lock.lock().expect("the copy is free at some time");
        let release = target.join(place::profile());
        let built = compiled::release().filter(|_| !release.exists());
        if built.is_some() {
            let _ = fs::remove_dir_all(&root); // all of it is written with its times
        }
        for part in PARTS {
            mirror(&workbook().join(part), &root.join(part), built.is_some());
        }
        if let Some(built) = built {
            compiled::carry(&built, &release).expect("what is compiled can be copied");
        }
        let copy = Self { grader: program(&release, "grader"), root, _lock: lock };
        let ran = copy.cargo(&["build", "--release", "--quiet", "-p", "grader", "--bin", "grader"]);
        assert_eq!(ran.code, 0, "the grader does not compile:\n{}", ran.stderr);
        copy
    }

    /// An untouched workbook.
    fn fresh(&self) -> &Self {
        let _ = fs::remove_dir_all(self.root.join(".warpbook"));
        self.write("");
        for challenge in ["nf4", "graph", "issues", "loss"] {
            assert_eq!(self.grader(&["reset", challenge, "--yes"]).code, 0);
        }
        let _ = fs::remove_dir_all(self.root.join(".warpbook"));
        self
    }

    fn cargo(&self, arguments: &[&str]) -> Ran {
        finish(self.command(&place::cargo()).args(arguments))
    }

    fn grader(&self, arguments: &[&str]) -> Ran {
        finish(self.command(&self.grader).args(arguments))
    }

    /// Without the variables by which cargo tells a test what it was built from.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let message = std::env::vars_os().map(|(name, _)| name);
        for name in message.filter(|name| name.to_string_lossy().starts_with("CARGO_PKG")) {
            command.env_remove(name);
        }
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", workbook().join("target/contract"));
        command
    }

    fn read(&self) -> String {
        fs::read_to_string(self.root.join(EXERCISE)).expect("the exercise can be read")
    }

    fn write(&self, exercise: &str) {
        fs::write(self.root.join(EXERCISE), exercise).expect("the exercise can be written");
    }
}

/// Makes `to` equal to `from`; files that are equal keep their times, so that nothing is compiled for them. Others have
/// the time at which they are written, or that of the original.
fn mirror(from: &Path, to: &Path, has_its_time: bool) {
    if !from.is_dir() {
        let text = fs::read(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        if fs::read(to).is_ok_and(|old| old == text) {
            return;
        }
        if has_its_time {
            return compiled::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
        }
        return fs::write(to, text).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    }
    fs::create_dir_all(to).expect("a folder of the copy");
    let names = |folder: &Path| -> Vec<_> {
        let entries = fs::read_dir(folder).expect("a folder of the workbook");
        entries.map(|entry| entry.expect("an entry").file_name()).filter(|name| name != "target").collect()
    };
    let wanted = names(from);
    for name in names(to).iter().filter(|name| !wanted.contains(name)) {
        let gone = to.join(name);
        let _ = if gone.is_dir() { fs::remove_dir_all(gone) } else { fs::remove_file(gone) };
    }
    for name in wanted {
        mirror(&from.join(&name), &to.join(&name), has_its_time);
    }
}

fn program(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

/// What stands between a step's anchors.
fn region(text: &str, step: usize) -> std::ops::Range<usize> {
    let (open, close) =
        (format!("// ANCHOR: nf4-step-{step}\n"), format!("// ANCHOR_END: nf4-step-{step}\n"));
    let begin = text.find(&open).expect("the step begins") + open.len();
    begin..begin + text[begin..].find(&close).expect("the step ends")
}

/// The solution as a reader would have typed it.
fn solved() -> String {
    challenges::nf4::solution_text().replace("Solution", "Exercise")
}

fn outcomes(card: &Scorecard, step: &str) -> Vec<Outcome> {
    checks(card).iter().filter(|check| check.step() == step).map(|check| check.outcome).collect()
}

fn all(card: &Scorecard, step: &str, outcome: Outcome) {
    let got = outcomes(card, step);
    assert!(!got.is_empty() && got.iter().all(|got| *got == outcome), "{step} is not {outcome:?}: {got:?}");
}

#[test]
fn an_untouched_workbook_is_worth_nothing_and_costs_nothing() {
    let copy = copy();
    copy.fresh();
    let first = copy.grader(&[]);
    assert!(first.stdout.starts_with("0 of 55. Start: A.1 "), "{}", first.stdout);
    assert_eq!(first.code, 0);
    let ran = copy.grader(&["score", "--quick", "--json"]);
    let card = ran.card();
    for step in stub::steps(challenges::nf4::solution_text()) {
        all(&card, step.name, Outcome::NotAttempted);
    }
    for (challenge, points) in [(0, 0), (1, -2), (2, -1)] {
        let Challenge { points: got, attempted, built, .. } = card.challenges[challenge];
        assert_eq!((got, attempted, built), (points, false, true), "as published for what is not attempted");
    }
    assert_eq!((card.points, card.possible, ran.code), (-3, 55, 1));
    assert!(!card.guards.iter().any(|guard| guard.tripped), "a hole is no cheat");
}

#[test]
fn a_typed_in_solution_gets_every_point_of_the_cpu() {
    let copy = copy();
    copy.fresh().write(&solved());
    let ran = copy.grader(&["score", "nf4", "--quick", "--json"]);
    let card = ran.card();
    let open: Vec<&Check> = checks(&card).iter().filter(|check| check.outcome != Outcome::Passed).collect();
    assert!(open.is_empty(), "{open:#?}");
    // Two rows, four points, need a system that lets a process be stepped.
    let stepped = copy.grader(&["doctor"]).stdout.contains("instructions of the solution");
    let points = if stepped { 14 } else { 10 };
    let rows = &card.challenges[0].rows;
    let undecided = |row: &&Row| row.worth > 0 && row.evidence.starts_with("inconclusive"); // by a busy machine
    let (lost, whys): (Vec<i32>, Vec<&str>) =
        rows.iter().filter(undecided).map(|row| (row.worth, row.evidence.as_str())).unzip();
    assert_eq!(card.challenges[0].points + lost.iter().sum::<i32>(), points, "{rows:#?}");
    assert!(whys.iter().all(|why| why.contains("waited for a processor")), "{rows:#?}");
    assert_eq!(card.challenges[0].unmeasured, 14 - points);
    assert_eq!(ran.code, 0);
    let screen = copy.grader(&["list"]).stdout;
    assert!(screen.starts_with(&format!("{} of 55. ", card.points)), "{screen}");
}

#[test]
fn a_typed_in_compiler_gets_every_point() {
    let copy = copy();
    copy.fresh();
    let solution = challenges::graph::solution_text().replace("Solution", "Exercise");
    fs::write(copy.root.join(COMPILER), solution).expect("the exercise can be written");
    let ran = copy.grader(&["score", "C", "--quick", "--json"]);
    let card = ran.card();
    let Challenge { points, checks, rows, .. } = &card.challenges[2];
    assert!(checks.iter().all(|check| check.outcome == Outcome::Passed), "{checks:#?}");
    assert_eq!((*points, ran.code), (9, 0), "{rows:#?}");
    let part_a = |card: &Scorecard| card.challenges[2].measurements["graph.part_a"].value > 0.0;
    assert_eq!(card.challenges[2].rows[3].fact, Truth::Unmet, "there is no attempt at A");
    assert!(!part_a(&card));
    copy.write(&solved());
    let arguments = ["bench", "C", "--quick", "--case", "lengths", "--json"];
    let own = copy.grader(&arguments).card();
    assert!(part_a(&own), "the reader's own dequantiser is the graph's");
    assert_eq!(own.challenges[2].rows[3].fact, Truth::Unmeasured, "no guard looked");
    copy.write(&solved().replace("fn unpack(", "fn unpack(;"));
    assert!(!part_a(&copy.grader(&arguments).card()), "and stops nothing where it is half typed");
}

#[test]
fn a_graph_of_ones_own_is_tried_by_the_exercise_as_it_stands() {
    let copy = copy();
    copy.fresh();
    let file = copy.root.join(".warpbook").join("product.graph");
    fs::create_dir_all(file.parent().expect("a folder")).expect("a folder for the graph");
    fs::write(&file, PRODUCT).expect("the graph can be written");
    let file = file.to_str().expect("a plain path");
    let solution = challenges::graph::solution_text().replace("Solution", "Exercise");
    let hole = stub::derive(challenges::graph::solution_text(), stub::Language::Rust).expect("sound markers");
    let tune = anchored(&solution, "graph-step-7");
    let half = solution.replace(tune, anchored(&hole, "graph-step-7"));
    let negates = "Op::Unary(unary) => ";
    let wrong =
        solution.replacen(negates, &format!("Op::Unary(Unary::Neg) => return input(0),\n{negates}"), 1);
    let broken = solution.replacen("fn lower(", "fn lower(;", 1);
    let leaves = solution.replacen("fn lower(", "fn leave() { std::process::exit(0) }\nfn lower(", 1);
    let (passed, open, refused) = ("passed", "not attempted", "does not compile");
    for (text, outcomes, message) in [
        (&hole, [open; 4], "C."),
        (&half, [passed, passed, passed, open], "C.7: autotune a product"),
        (&wrong, ["wrong"; 4], "the first node that differs is on line 5:"),
        (&broken, [refused; 4], "challenges/src/graph/exercise.rs:"),
        (&leaves, [refused; 4], "`std::process` is refused: "),
    ] {
        assert!(*text != solution, "nothing was replaced");
        fs::write(copy.root.join(COMPILER), text).expect("the exercise can be written");
        let ran = copy.grader(&["graph", file, "--seed", "0x7", "--json"]);
        let json: Value = serde_json::from_str(&ran.stdout).expect("JSON and nothing else");
        let levels = json["levels"].as_array().expect("a list");
        let got: Vec<&str> = levels.iter().filter_map(|level| level["outcome"].as_str()).collect();
        let details: Vec<&str> = levels.iter().filter_map(|level| level["detail"].as_str()).collect();
        assert_eq!((ran.code, &got[..]), (1, &outcomes[..]), "{message}: {details:#?}\n{}", ran.stderr);
        assert!(details[3].contains(message), "{message}: {}", details[3]);
    }
    fs::write(copy.root.join(COMPILER), &broken).expect("the exercise can be written");
    let screen = copy.grader(&["graph", file, "--size", "T=5"]);
    assert_eq!(screen.stdout.matches("error: expected").count(), 1, "told once: {}", screen.stdout);
    let solved = copy.grader(&["graph", file, "--attempt", "solution"]);
    assert_eq!(solved.code, 0, "{}{}", solved.stdout, solved.stderr);
    fs::remove_file(copy.root.join(COMPILER)).expect("the exercise was there");
    let missing = copy.grader(&["graph", file]);
    assert!(missing.code == 2 && missing.stderr.contains("grader reset graph"), "{}", missing.stderr);
}

/// A graph with a product, which only O3 tunes, and a sign.
const PRODUCT: &str = "graph \"product\" (T in 1..=64) {
  %0 = input \"a\" : f32[T, 48]
  %1 = input \"b\" : f32[48, 41]
  %2 = matmul %0 %1 : f32[T, 41]
  %3 = neg %2 : f32[T, 41]
  return \"y\" %3
}
";

/// What stands between two anchors.
fn anchored<'a>(text: &'a str, anchor: &str) -> &'a str {
    let (open, close) = (format!("// ANCHOR: {anchor}\n"), format!("// ANCHOR_END: {anchor}\n"));
    let begin = text.find(&open).expect("the anchor begins") + open.len();
    &text[begin..begin + text[begin..].find(&close).expect("the anchor ends")]
}

#[test]
fn a_text_that_reaches_past_its_steps_is_refused_with_its_line() {
    let copy = copy();
    copy.fresh();
    let forged = "#[unsafe(link_section = \".init_array\")]\nstatic BEFORE: fn() = || ();\n";
    let exits = "fn leave() {\n    std::process::exit(0)\n}\n";
    let cases = [
        ("A", EXERCISE, forged, 1, "link_section"),
        ("C", COMPILER, exits, 2, "std::process"),
        ("D", CHATTER, "use std::{fs, fmt};\n", 1, "std::fs"),
        ("E", CHUNKER, "fn write() {\n    challenges::loss::Solution;\n}\n", 2, "Solution"),
    ];
    for (letter, path, text, line, what) in cases {
        let file = copy.root.join(path);
        let stub = fs::read_to_string(&file).expect("the exercise can be read");
        fs::write(&file, format!("{stub}{text}")).expect("the exercise can be written");
        let name = if path == CHATTER { "chat" } else { letter }; // D has parts whose texts are others
        let ran = copy.grader(&["test", name, "--json"]);
        let message = format!("{path}:{}: `{what}` is refused: ", stub.lines().count() + line);
        let challenge = ran.card().challenges.into_iter().find(|challenge| challenge.letter == letter);
        let checks = challenge.expect("all five are there").checks;
        assert!(!checks.is_empty() && ran.code == 1, "{letter}: {}", ran.stderr);
        assert!(checks.iter().all(|check| check.outcome == Outcome::DoesNotCompile), "{checks:#?}");
        assert!(
            checks.iter().any(|check| check.detail.contains(&message)),
            "{letter}: {message}\n{}",
            checks[0].detail
        );
    }
}

#[test]
fn assembly_that_calls_the_solution_is_refused() {
    let copy = copy();
    copy.fresh();
    let call = "fn call() {\n    unsafe{ core::arch::asm!(\"nop; 1: call warpbook_KEY\") }\n}\n";
    let look = "fn look() {\n    std::backtrace::Backtrace::force_capture();\n}\n";
    for (name, path, key) in [("A", EXERCISE, "nf4"), ("chat", CHATTER, "chat"), ("E", CHUNKER, "loss")] {
        let file = copy.root.join(path);
        let stub = fs::read_to_string(&file).expect("the exercise can be read");
        for (text, what) in [(call, "asm!: call"), (look, "std::backtrace")] {
            let text = format!("{stub}{}", text.replace("KEY", key));
            fs::write(&file, text).expect("the exercise can be written");
            let ran = copy.grader(&["test", name, "--json"]);
            let message = format!("{path}:{}: `{what}` is refused: ", stub.lines().count() + 2);
            let all: Vec<Check> = ran.card().challenges.into_iter().flat_map(|of| of.checks).collect();
            assert!(all.iter().any(|check| check.detail.contains(&message)), "{name}: {message}");
            assert!(!all.iter().any(|check| check.outcome == Outcome::Passed), "{name}: {what}");
        }
    }
}

#[test]
fn a_typed_in_chunker_is_compiled_by_the_readers_own_compiler_where_that_is_right() {
    let copy = copy();
    copy.fresh();
    let typed = |path: &str, text: &str| {
        let text = text.replace("Solution", "Exercise");
        fs::write(copy.root.join(path), text).expect("the exercise can be written");
    };
    typed(CHUNKER, challenges::loss::solution_text());
    let tested = copy.grader(&["test", "E", "--json"]).card();
    let checks = &tested.challenges[4].checks;
    assert!(!checks.is_empty() && checks.iter().all(|check| check.outcome == Outcome::Passed), "{checks:#?}");
    let own = || {
        let ran = copy.grader(&["bench", "E", "--quick", "--case", "compiler", "--json"]);
        ran.card().challenges[4].measurements.get("loss.training.own").map(|apart| apart.value)
    };
    assert_eq!(own(), None, "there is no attempt at C");
    typed(COMPILER, challenges::graph::solution_text());
    assert!(own().is_some_and(|apart| apart <= 1e-6), "the reader's own compiler is the chunks'");
    let hole = "fn other_machine() { todo!(\"C.9: a path that this machine does not take\") }";
    typed(COMPILER, &format!("{}\n{hole}\n", challenges::graph::solution_text()));
    assert!(own().is_some_and(|apart| apart <= 1e-6), "a hole that no check reaches stops nothing");
    typed(COMPILER, &challenges::graph::solution_text().replacen("fn prune(", "fn prune(;", 1));
    assert_eq!(own(), None, "and stops nothing where it is half typed");
}

#[test]
fn tool_calling_typed_in_wins_its_point_and_untouched_nothing() {
    let copy = copy();
    copy.fresh();
    let graded = || copy.grader(&["score", "D", "--quick", "--json"]).card().challenges[3].clone();
    let untouched = graded();
    assert!(!untouched.attempted && untouched.built && untouched.points == 0, "{:#?}", untouched.rows);
    let open = |check: &Check| check.outcome != Outcome::NotAttempted;
    assert!(!untouched.checks.iter().any(open), "{:#?}", untouched.checks);
    let text = challenges::issues::chat::solution_text().replace("Solution", "Exercise");
    fs::write(copy.root.join(CHATTER), &text).expect("the exercise can be written");
    let typed = graded();
    assert_eq!((typed.rows[0].points, typed.rows[0].fact), (1, Truth::Met), "{:#?}", typed.checks);
    let of_the_system = if cfg!(windows) { 2 } else { 0 }; // one part is whole there
    assert_eq!(typed.points, 1 + of_the_system, "{:#?}", typed.rows);
    let broken = text.replacen("let mut from = 0;", "let mut from = ;", 1);
    fs::write(copy.root.join(CHATTER), broken).expect("the exercise can be written");
    let message = copy.grader(&["test", "D.1"]);
    assert!(message.code == 1 && message.stdout.contains("does not compile"), "{}", message.stdout);
    assert!(message.stdout.contains("challenges/src/issues/chat/exercise.rs"), "{}", message.stdout);
}

#[test]
fn a_classifier_typed_in_wins_its_point_step_by_step() {
    let copy = copy();
    copy.fresh();
    let text = challenges::issues::classify::solution_text().replace("Solution", "Exercise");
    let row = |wording: &str| {
        let card = copy.grader(&["score", "classify", "--quick", "--json"]).card();
        let row = card.challenges[3].rows.iter().find(|row| row.wording == wording).expect("a row").clone();
        (row.points, row.fact)
    };
    assert_eq!(row("Sequence classification"), (0, Truth::Unmeasured));
    fs::write(copy.root.join(CLASSIFIER), &text).expect("the exercise can be written");
    assert_eq!(row("Sequence classification"), (1, Truth::Met));
    let last = text.replacen("rposition(|id| Some(*id) != pad).unwrap_or(0)", "len() - 1", 1);
    fs::write(copy.root.join(CLASSIFIER), last).expect("the exercise can be written");
    assert_eq!(row("Sequence classification"), (0, Truth::Unmet));
    assert_eq!(copy.grader(&["test", "D.16"]).code, 0, "the other steps pass");
}

#[test]
fn an_exporter_typed_in_wins_its_point_step_by_step() {
    let copy = copy();
    copy.fresh();
    let text = challenges::issues::gguf::solution_text().replace("Solution", "Exercise");
    let row = || {
        let card = copy.grader(&["score", "gguf", "--quick", "--json"]).card();
        let rows = &card.challenges[3].rows;
        let row = rows.iter().find(|row| row.wording == "GGUF vision support").expect("a row");
        (row.points, row.fact)
    };
    assert_eq!(row(), (0, Truth::Unmeasured));
    fs::write(copy.root.join(EXPORTER), &text).expect("the exercise can be written");
    assert_eq!(row(), (1, Truth::Met));
    let codes = text.replacen("codes[i + 16] << 4", "codes[i ^ 1] << 4", 1);
    fs::write(copy.root.join(EXPORTER), codes).expect("the exercise can be written");
    assert_eq!(row(), (0, Truth::Unmet));
    assert_eq!(copy.grader(&["test", "D.19"]).code, 0, "the other steps pass");
}

#[test]
fn a_seer_typed_in_wins_its_points_row_by_row() {
    const ROWS: [&str; 3] = ["VLM data collator", "VLM image resizing", "VLM train on completions only"];
    let copy = copy();
    copy.fresh();
    let text = challenges::issues::vision::solution_text().replace("Solution", "Exercise");
    let rows = || {
        let card = copy.grader(&["score", "vision", "--quick", "--json"]).card();
        let row = |wording: &str| {
            card.challenges[3].rows.iter().find(|row| row.wording == wording).expect("a row").clone()
        };
        ROWS.map(row).map(|row| (row.points, row.fact))
    };
    assert_eq!(rows(), [(0, Truth::Unmeasured); 3]);
    fs::write(copy.root.join(SEER), &text).expect("the exercise can be written");
    assert_eq!(rows(), [(1, Truth::Met); 3]);
    let away = text.replacen("round_ties_even()", "round()", 1);
    fs::write(copy.root.join(SEER), away).expect("the exercise can be written");
    assert_eq!(rows(), [(1, Truth::Met), (0, Truth::Unmet), (1, Truth::Met)]);
}

#[test]
fn a_step_that_does_not_compile_stops_nothing_but_itself() {
    let copy = copy();
    copy.fresh();
    let mut text = copy.read();
    for step in 1..=3 {
        let body = &solved()[region(&solved(), step)];
        text.replace_range(region(&text, step), body);
    }
    copy.write(&text);
    the_first_three_steps_pass(&copy);

    let broken = text.replace("todo!(\"A.4", "let scale = ; todo!(\"A.4");
    copy.write(&broken);
    its_step_says_what_the_compiler_said(&copy);
    the_other_verbs_go_on(&copy, &broken);
}

fn the_first_three_steps_pass(copy: &Copy) {
    let ran = copy.grader(&["test", "nf4", "--json"]);
    let card = ran.card();
    for (written, hole) in [("A.1", "A.4"), ("A.2", "A.5"), ("A.3", "A.6")] {
        all(&card, written, Outcome::Passed);
        all(&card, hole, Outcome::NotAttempted);
    }
    assert_eq!((ran.code, card.challenges[0].attempted), (1, true));
    let screen = copy.grader(&[]).stdout;
    assert!(screen.starts_with("0 of 55. Next: A.4 "), "{screen}");
}

fn its_step_says_what_the_compiler_said(copy: &Copy) {
    let ran = copy.grader(&["score", "nf4", "--json"]);
    let card = ran.card();
    for step in stub::steps(challenges::nf4::solution_text()) {
        all(&card, step.name, Outcome::DoesNotCompile);
    }
    for check in checks(&card) {
        let message = match check.step() {
            "A.4" => "error: expected expression, found `;`",
            _ => "does not compile, because of A.4",
        };
        assert!(check.detail.contains(message), "{}: {}", check.name, check.detail);
    }
    assert!(checks(&card).iter().any(|check| check.detail.contains("exercise.rs:")), "rustc says where");
    assert_eq!((ran.code, card.points), (1, 0));
}

fn the_other_verbs_go_on(copy: &Copy, broken: &str) {
    let list = copy.grader(&["list"]);
    assert!(list.code == 0 && list.stdout.contains("does not compile"), "{}", list.stdout);
    let hint = copy.grader(&["hint"]);
    assert!(hint.code == 0 && hint.stdout.contains("hint: "), "{}{}", hint.stdout, hint.stderr);
    let named = copy.grader(&["hint", "A.4"]);
    assert!(named.code == 0 && named.stdout.contains("A.4, "), "{}", named.stdout);
    let solution = copy.grader(&["test", "nf4", "--attempt", "solution"]);
    assert_eq!(solution.code, 0, "{}", solution.stdout);
    let rooms = ["-p", "grader", "-p", "challenges", "-p", "kernels", "-p", "reference"];
    let built = copy.cargo(&[["build", "--release", "--quiet"].as_slice(), &rooms].concat());
    assert_eq!(built.code, 0, "a room includes the exercise:\n{}", built.stderr);
    assert_eq!(copy.grader(&["reset", "nf4"]).code, 2, "nobody agreed");
    assert_eq!(copy.read(), broken);
    let reset = copy.grader(&["reset", "nf4", "--yes"]);
    assert_eq!(reset.code, 0, "{}", reset.stderr);
    let derived = stub::derive(challenges::nf4::solution_text(), stub::Language::Rust)
        .expect("the solution's markers are sound");
    assert_eq!(copy.read(), derived, "`reset` writes the exercise afresh");
    assert_eq!(backups(copy), [broken], "the reader's text is kept");
}

/// The texts of the backups; each is called by its challenge and its date.
fn backups(copy: &Copy) -> Vec<String> {
    let folder = fs::read_dir(copy.root.join(".warpbook/backups")).expect("there are backups");
    let text = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().expect("a plain name");
        let date = name.strip_prefix("nf4-exercise-").and_then(|name| name.strip_suffix(".rs"));
        let year = date.and_then(|date| date.get(..4)?.parse::<u32>().ok());
        assert!(year.is_some_and(|year| year > 2024), "{name} has no date");
        fs::read_to_string(entry.path()).expect("a backup can be read")
    };
    folder.map(|entry| text(entry.expect("an entry"))).collect()
}

#[test]
fn an_exercise_that_is_gone_is_an_answer_too() {
    let copy = copy();
    copy.fresh();
    fs::remove_file(copy.root.join(EXERCISE)).expect("the exercise was there");
    let list = copy.grader(&["list"]);
    assert!(list.code == 0 && list.stdout.contains("grader reset nf4"), "{}", list.stdout);
    let score = copy.grader(&["score"]);
    assert!(score.code == 2 && score.stderr.contains("grader reset nf4"), "{}", score.stderr);
    assert_eq!(copy.grader(&["reset", "nf4"]).code, 0);
    assert_eq!(
        copy.read(),
        stub::derive(challenges::nf4::solution_text(), stub::Language::Rust).expect("sound markers")
    );
}

#[test]
fn hints_grow_and_end_with_the_largest() {
    let copy = copy();
    copy.fresh();
    let asked: Vec<String> = (0..4).map(|_| copy.grader(&["hint", "a.4"]).stdout).collect();
    for (text, size) in asked.iter().zip(["small", "medium", "large", "large"]) {
        assert!(text.starts_with(&format!("A.4, {size} hint:")), "{text}");
    }
    assert_eq!(copy.grader(&["hint", "A.99"]).code, 2);
}

/// The last line of a run, after challenge E was written with some words replaced.
fn last_line(copy: &Copy, [from, to]: [&str; 2], arguments: &[&str]) -> String {
    let solution = challenges::loss::solution_text();
    assert!(solution.contains(from), "the solution has no {from}");
    let text = solution.replace(from, to).replace("Solution", "Exercise");
    fs::write(copy.root.join(CHUNKER), text).expect("the exercise can be written");
    let ran = copy.grader(arguments);
    assert!(!ran.stdout.contains("src/../"), "a path with detours:\n{}", ran.stdout);
    unwrapped(&ran.stdout).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn list_tells_what_has_not_run_since_the_file_changed() {
    let copy = copy();
    copy.fresh();
    let (right, uneven, of_all) =
        (["", ""], ["rows.div_ceil(chunks.max(1)).max(1)", "most"], ["|row| counts[*row]", "|_| true"]);
    let message = last_line(&copy, uneven, &["test", "E.6"]);
    assert!(message.starts_with("Next: E.6 "), "{message}");
    let message = last_line(&copy, right, &["test", "E.2"]);
    assert!(
        message.starts_with("Next: E.1 ") && message.contains("hint E.1"),
        "E.1 was never tried: {message}"
    );
    let list = copy.grader(&["list"]).stdout;
    let of_step = list.split_once("  E.6   wrong ").map_or("", |(_, after)| after);
    let of_step = of_step.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(of_step.ends_with("spread them evenly (file changed since)"), "{list}");
    assert!(list.starts_with("0 of 55. Next: E.1 "), "{list}");
    assert!(copy.grader(&["hint"]).stdout.starts_with("E.1, small hint"), "E was graded last");
    let message = last_line(&copy, of_all, &["test", "E.2"]);
    assert!(message.starts_with("Next: E.2 "), "it failed just now: {message}");
    let message = last_line(&copy, right, &["test", "loss"]);
    assert_eq!(message, "Every step of E is done: `cargo grader score loss` measures the points.");
    let message = last_line(&copy, right, &["score", "loss", "--quick", "--case", "E.6"]);
    assert!(message.starts_with("Every step of E is done"), "the rest is forgotten: {message}");
    let message = last_line(&copy, ["end).t()", "end)"], &["test", "E.1"]);
    assert!(message.starts_with("Next: E.1 "), "{message}");
    let message = copy.grader(&["replay", "loss:E.1/by-seven"]).stdout;
    assert!(message.contains("(challenges/src/loss/exercise.rs:"), "{message}");
}

#[test]
fn what_was_earned_stays_on_the_screen() {
    let copy = copy();
    copy.fresh().write(&solved());
    let ran = copy.grader(&["score", "nf4", "--quick"]);
    let page = copy.root.join(".warpbook/report.html");
    let said = ran.stdout.lines().find_map(|line| line.strip_prefix("report   ")).map(Path::new);
    assert!(said.is_some_and(|said| fs::canonicalize(said).ok() == fs::canonicalize(&page).ok()), "{said:?}");
    assert!(fs::read_to_string(&page).is_ok_and(|page| page.contains("single_triton_kernel")));
    assert!(ran.stdout.contains("\nC graph   not run, 9 points\n"), "{}", ran.stdout);
    let earned =
        ran.stdout.split("\npoints   ").nth(1).and_then(|rest| rest.split(' ').next()).expect("points");

    copy.write(&solved().replacen("impl Exercise {", "fn extra() {}\n\nimpl Exercise {", 1));
    let list = copy.grader(&["list"]).stdout;
    assert!(list.starts_with(&format!("{earned} of 55. ")), "{list}");
    assert!(list.contains(&format!("A nf4     {earned} of 14 points at ")), "{list}");
    assert!(list.contains(" UTC, file changed since"), "{list}");
    let joined = list.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        joined.contains("high nibble first (passed ") && joined.contains(" UTC, file changed since)"),
        "{list}"
    );

    copy.write(&solved().replacen("fn unpack(", "fn unpack(;", 1));
    assert_eq!(copy.grader(&["test", "nf4"]).code, 1);
    let list = copy.grader(&["list"]).stdout;
    assert!(list.starts_with(&format!("{earned} of 55. ")), "{list}");
    assert!(list.contains("A.4   does not compile ") && list.contains("(passed "), "{list}");
    let other = copy.grader(&["score", "D", "--quick"]).stdout;
    assert!(other.contains("not run now") && other.contains(&format!("so far   {earned} of 55")), "{other}");
}

#[test]
fn a_replay_shows_inputs_and_what_the_code_prints() {
    let copy = copy();
    let print = "codes: &mut [u8]) {\n        println!(\"seen: {} bytes\", packed.len());\n        dbg!(codes.len());";
    let printing = solved().replacen("codes: &mut [u8]) {", print, 1);
    copy.fresh().write(&printing);
    let message = copy.grader(&["replay", "nf4:A.1/one-byte", "--seed", "0x5"]).stdout;
    let places = ["A.1/one-byte: passed", "> unpack: packed [", "seen: 1 bytes", "codes.len() = 2"]
        .map(|part| message.find(part).unwrap_or_else(|| panic!("no {part:?} in {message}")));
    assert!(places.is_sorted(), "in the order in which it happened: {message}");
    let endless =
        printing.replacen("dbg!(codes.len());", "for i in 0..100_000 { println!(\"line {i}\"); }", 1);
    copy.write(&endless);
    let message = copy.grader(&["replay", "nf4:A.1/one-byte", "--seed", "0x5"]).stdout;
    assert!(message.lines().count() < 140 && message.contains("line 99999"), "{}", message.lines().count());
}

#[test]
fn watch_tells_the_first_error_the_next_step_and_what_was_finished() {
    let copy = copy();
    let unpack = &solved()[region(&solved(), 1)];
    copy.fresh();
    let mut text = copy.read();
    text.replace_range(region(&text, 1), unpack);
    copy.write(&text);
    let message = watched(&copy, "n");
    assert!(message.contains("\u{2713} A.1 is finished: split each byte"), "{message}");
    let place = message.replace('\\', "/").contains("challenges/src/nf4/exercise.rs:");
    assert!(message.contains("Next: A.2 ") && place, "{message}");
    assert_eq!(message.matches(" of 55. ").count(), 1, "`n` is one step, not the list: {message}");
    copy.write(&text.replacen("fn unpack(", "fn unpack(;", 1).replacen("fn block(", "fn block(;", 1));
    let message = watched(&copy, "");
    assert!(message.contains("does not compile") && message.contains("exercise.rs:"), "{message}");
    assert_eq!(message.matches("\n    error").count(), 1, "the first error: {message}");
    assert!(!message.contains("is finished"), "{message}");
}

/// What `watch` prints while some keys come in.
fn watched(copy: &Copy, keys: &str) -> String {
    use std::io::Write;
    let mut command = copy.command(&copy.grader);
    command.args(["watch", "nf4"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.env_remove("CARGO_MANIFEST_DIR").spawn().expect("watch starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(keys.as_bytes()).expect("watch reads");
    drop(input); // the end of the keys is a `q`
    let output = child.wait_with_output().expect("watch ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn no_target_of_the_workspace_includes_an_exercise() {
    let mut cargo = Command::new(place::cargo());
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let ran = finish(cargo.current_dir(workbook()).args(arguments));
    let metadata: Value = serde_json::from_str(&ran.stdout).expect("cargo prints JSON");
    let targets = metadata["packages"].as_array().expect("packages").iter().flat_map(|package| {
        let targets = package["targets"].as_array().expect("targets").iter();
        targets.map(|target| (package["name"].as_str().unwrap_or_default(), target))
    });
    let mut readers = 0;
    for (package, target) in targets {
        if package == "attempts" && target["kind"][0] == "bin" {
            assert_eq!(target["required-features"][0], "reader", "{target}");
            assert_eq!((&target["test"], &target["doc"]), (&Value::Bool(false), &Value::Bool(false)));
            readers += 1;
        } else {
            let path = PathBuf::from(target["src_path"].as_str().expect("a path"));
            for file in sources(path.parent().expect("a folder")) {
                includes_no_exercise(&file);
            }
        }
    }
    assert!(readers > 0, "the attempts package has its programs");
}

/// The Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).expect("a folder of sources").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let here = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    here.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

fn includes_no_exercise(file: &Path) {
    let text = fs::read_to_string(file).expect("a source");
    let includes = |line: &str| {
        line == "mod exercise;"
            || line == "pub mod exercise;"
            || (line.starts_with("#[path") && line.contains("exercise"))
    };
    assert!(!text.lines().any(|line| includes(line.trim())), "{} includes an exercise", file.display());
}

#[test]
fn a_stub_has_the_solution_s_items_in_their_order() {
    let (solution, stub) = (
        solved(),
        stub::derive(challenges::nf4::solution_text(), stub::Language::Rust).expect("sound markers"),
    );
    let item = |line: &&str| {
        let heads =
            ["fn ", "unsafe fn ", "pub ", "struct ", "enum ", "impl ", "trait ", "const ", "use ", "#["];
        let method = line.strip_prefix("    ").is_some_and(|line| line.starts_with("fn "));
        method || heads.iter().any(|head| line.starts_with(head))
    };
    let [kept, items] = [&stub, &solution].map(|text| text.lines().filter(item).collect::<Vec<_>>());
    assert_eq!(kept, items);
    let mut rest = solution.lines();
    for line in stub.lines().filter(|line| !line.trim_start().starts_with("todo!(")) {
        let line_of_both = rest.any(|of_solution| of_solution == line);
        assert!(line_of_both, "this line of the stub is not in the solution, or not in its place: {line}");
    }
}
