//! Contract: what programs outside rely on: verbs, flags, exit codes, what is printed where.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use grader::courses::{Origin, solutions};
use grader::stub;
use kernels::Vector;
use kernels::cpu::VECTOR_VARIABLE;
use scorecard::{Outcome, Scorecard};
use serde_json::Value;
use tempfile::TempDir;
use tests::place::{program, workbook};
use tests::program::{Ran, checks, finish, run};

const GRADER: &str = env!("CARGO_BIN_EXE_own"); // with nothing to hand in, it is the grader

/// Runs the grader in the workbook.
fn grader(arguments: &[&str]) -> Ran {
    run(Path::new(GRADER), workbook(), arguments)
}

/// `--json` has no value: a file after it is taken for a challenge.
#[test]
fn a_file_after_json_is_an_error() {
    for verb in ["score", "test", "bench", "list", "hint", "watch", "rubric"] {
        for name in ["/tmp/x/score.json", "score.json", "D:\\x\\score.v2.json", "./out"] {
            let ran = grader(&[verb, "--json", name]);
            let found =
                format!("found {name:?}; a file for the output is given as `-o FILE`: `--json -o FILE`");
            assert!(ran.code == 2 && ran.stderr.contains(&found), "{verb} {name}: {}", ran.stderr);
        }
    }
    let ran = grader(&["list", "nf5.7"]);
    assert!(ran.stderr.contains("found \"nf5.7\"\n"), "{}", ran.stderr);
    let ran = grader(&["rubric", "nf4", "zzz"]);
    assert!(ran.code == 2 && ran.stderr.contains("found \"zzz\"\n"), "{}", ran.stderr);
}

#[test]
fn exit_codes_tell_what_happened() {
    let file = workbook().join("Cargo.toml");
    let below_a_file = file.join("report.json").display().to_string();
    let solution = ["--attempt", "solution"];
    let cases: [(i32, &[&str]); 23] = [
        (0, &["test", "nf4", "--case", "A.1"]),
        (0, &["test", "A", "--case", "A.1", "--device", "cpu"]),
        (2, &["grade"]),
        (2, &["score", "--fast"]),
        (2, &["score", "nf5"]),
        (2, &["score", "ddp"]),
        (2, &["test", "nf4", "--case", "no such check"]),
        (2, &["replay", "nf4:A.1/no-such-check"]),
        (2, &["replay", "A.1/prime"]),
        (2, &["score", "--device", "tpu"]),
        (2, &["score", "--seed", "twelve"]),
        (2, &["score", "--samples", "0"]),
        (2, &["score", "--timeout", "0"]),
        (2, &["score", "--ranks", "2"]),
        (2, &["verify-report", "no-such-file.json"]),
        (2, &["verify-report", "Cargo.toml"]),
        (2, &["rubric", "nf5"]),
        (3, &["score", "--device", "cuda"]),
        (3, &["score", "graph", "loss", "--device", "cuda"]),
        (3, &["test", "nf4", "--device", "cuda:1"]),
        (3, &["test", "C.4", "--device", "cuda"]),
        (4, &["test", "nf4", "--strict"]),
        (6, &["test", "nf4", "--case", "A.1", "-o", &below_a_file]),
    ];
    for (code, arguments) in cases {
        let ran = grader(&[arguments, &solution].concat());
        assert_eq!(ran.code, code, "{arguments:?}\n{}\n{}", ran.stdout, ran.stderr);
        let silent = ran.stderr.is_empty();
        assert_eq!(
            silent,
            matches!(code, 0 | 4),
            "{arguments:?} says why, on standard error:\n{}",
            ran.stderr
        );
    }
}

#[test]
fn away_from_the_workbook_only_the_solution_can_be_graded() {
    let nowhere = tempfile::tempdir().expect("an empty folder");
    let grader = |arguments: &[&str]| run(Path::new(GRADER), nowhere.path(), arguments);
    for verb in [["list"].as_slice(), &["test", "nf4"], &["hint"], &["reset", "nf4"], &["report"]] {
        let ran = grader(verb);
        assert!(ran.code == 2 && ran.stderr.contains("no workbook"), "{verb:?}: {} {}", ran.code, ran.stderr);
    }
    assert_eq!(grader(&["test", "nf4", "--case", "A.1", "--attempt", "solution"]).code, 0);
}

#[test]
fn a_timeout_ends_the_whole_command() {
    let begin = Instant::now();
    let long = ["score", "nf4", "--attempt", "solution", "--samples", "10000", "--timeout", "1", "--json"];
    let ran = grader(&long);
    assert_eq!(ran.code, 124, "{}", ran.stderr);
    assert!(ran.stdout.is_empty() && ran.stderr.contains("--timeout"), "{}", ran.stderr);
    assert!(begin.elapsed() < Duration::from_mins(1), "10,000 samples take hours: {:?}", begin.elapsed());
}

#[test]
fn a_device_that_a_challenge_has_no_back_end_for_is_not_measured() {
    let ran = grader(&["score", "nf4", "--attempt", "solution", "--device", "sim", "--json"]);
    let card = ran.card();
    assert!(checks(&card).iter().all(|check| check.outcome == Outcome::NotMeasured));
    assert!(checks(&card).iter().all(|check| check.detail.contains("no back end for sim")));
    assert_eq!((card.points, ran.code), (0, 0));
}

#[test]
fn every_form_of_a_report_is_written_where_it_was_asked_for() {
    let folder = tempfile::tempdir().expect("a folder for reports");
    let [json, html, md] = ["card.json", "card.html", "card.md"].map(|name| folder.path().join(name));
    let [json, html, md] = [&json, &html, &md].map(|path| path.to_str().expect("a plain path"));
    let ran = grader(&[
        "test",
        "nf4",
        "--attempt",
        "solution",
        "--case",
        "A.1",
        "--json",
        "-o",
        json,
        "--html",
        html,
        "--md",
        md,
    ]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    let read = |path: &str| fs::read_to_string(path).expect("the report was written");
    let card: Scorecard = serde_json::from_str(&read(json)).expect("a scorecard");
    assert!(checks(&card).iter().all(|check| check.step() == "A.1"));
    assert!(read(html).to_lowercase().starts_with("<!doctype html>"));
    assert!(read(md).contains("single_triton_kernel"));
    let again = grader(&["report", json]);
    assert!(again.code == 0 && again.stdout.contains("nf4"), "{}{}", again.stdout, again.stderr);
}

/// A folder with the exercises as they are derived, and nothing else of the workbook.
fn exercises() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder for a workbook");
    for Origin { exercise, language, solution } in solutions() {
        let path = folder.path().join(exercise);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
        fs::write(path, stub::derive(solution, language).expect("sound markers"))
            .expect("a stub can be written");
    }
    folder
}

const NF4: &str = "challenges/src/nf4/exercise.rs";

fn backups(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder.join(".warpbook/backups")).into_iter().flatten();
    entries.map(|entry| fs::read(entry.expect("an entry").path()).expect("a backup can be read")).collect()
}

#[test]
fn report_names_the_command_that_makes_scorecards() {
    let folder = exercises();
    let ran = run(Path::new(GRADER), folder.path(), &["report"]);
    assert!(ran.code == 2 && ran.stderr.contains("no scorecard is kept yet: `score`"), "{}", ran.stderr);
}

#[test]
fn one_step_is_reset_and_the_others_stay() {
    let folder = exercises();
    let [derived, solved] = [true, false].map(|derived| {
        let solution = challenges::nf4::solution_text();
        let derive = || stub::derive(solution, stub::Language::Rust).expect("sound markers");
        if derived { derive() } else { solution.replace("Solution", "Exercise") }
    });
    let path = folder.path().join(NF4);
    fs::write(&path, &solved).expect("the exercise can be written");
    let ran = run(Path::new(GRADER), folder.path(), &["reset", "a.6"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let text = fs::read_to_string(&path).expect("the exercise");
    assert!(text.contains("todo!(\"A.6: the same bits") && !text.contains("todo!(\"A.5"), "{text}");
    assert_eq!(backups(folder.path()), [solved.as_bytes()]);
    for step in stub::steps(challenges::nf4::solution_text()) {
        assert_eq!(run(Path::new(GRADER), folder.path(), &["reset", step.name]).code, 0);
    }
    let text = fs::read_to_string(&path).expect("the exercise");
    assert_eq!(stub::code_hash(&text), stub::code_hash(&derived), "all steps one by one are the whole file");
    let missing = text.replace("// step A.2", "// stop A.2");
    fs::write(&path, &missing).expect("the exercise can be written");
    let ran = run(Path::new(GRADER), folder.path(), &["reset", "A.2"]);
    assert!(ran.code == 2 && ran.stderr.contains("expected the line `// step A.2: "), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(&path).expect("the exercise"), missing, "nothing was changed");
}

#[test]
fn a_file_is_reset_only_with_consent_and_never_lost() {
    let folder = exercises();
    let path = folder.path().join(NF4);
    let reset = |more: &[&str]| run(Path::new(GRADER), folder.path(), &[&["reset", "nf4"], more].concat());
    let untouched = reset(&[]);
    assert!(
        untouched.code == 0 && untouched.stdout.contains("as it was in the beginning"),
        "{}",
        untouched.stderr
    );
    let works: [&[u8]; 3] = [b"fn mine() {}\n", b"", b"\xff\xfe no text at all"];
    for work in works {
        fs::write(&path, work).expect("the exercise can be written");
        let ran = reset(&[]);
        assert!(ran.code == 2 && ran.stderr.contains("--yes"), "{}{}", ran.stdout, ran.stderr);
        assert_eq!(fs::read(&path).expect("the exercise"), work, "nothing was changed");
        assert_eq!(reset(&["--yes"]).code, 0);
    }
    let (mut kept, mut works) = (backups(folder.path()), works.map(<[u8]>::to_vec));
    kept.sort();
    works.sort();
    assert_eq!(kept, works, "each is kept, within one second too");
}

#[test]
fn lines_of_list_and_doctor_end_at_words_before_the_width() {
    let folder = exercises();
    fs::write(folder.path().join(NF4), "fn changed() {}\n").expect("the exercise can be written");
    let list = run(Path::new(GRADER), folder.path(), &["list"]);
    assert!(list.code == 0 && list.stdout.contains("  A.1   not run        "), "{}", list.stdout);
    let fits = |line: &str| line.chars().count() <= 80;
    assert!(list.stdout.lines().all(fits), "{}", list.stdout);
    let one_word = |line: &str| !line.chars().skip(14).collect::<String>().trim().contains(' ');
    let doctor = grader(&["doctor"]).stdout;
    assert!(doctor.lines().all(|line| fits(line) || one_word(line) || line.contains('`')), "{doctor}");
}

#[test]
fn json_is_all_that_json_prints() {
    for arguments in [["test", "nf4", "--case", "A.2"], ["bench", "nf4", "--quick", "--samples=1"]] {
        let ran = grader(&[arguments.as_slice(), &["--attempt", "solution", "--json"]].concat());
        let card: Value = serde_json::from_str(&ran.stdout).expect("one JSON value");
        let names: Vec<&str> = card["challenges"]
            .as_array()
            .expect("challenges")
            .iter()
            .filter_map(|challenge| challenge["name"].as_str())
            .collect();
        assert_eq!(names, ["nf4", "fsdp", "graph", "issues", "loss"]);
        assert!(ran.stderr.is_empty(), "{}", ran.stderr);
    }
}

/// Runs the grader with a narrower vector unit.
fn held_to(unit: &str, arguments: &[&str]) -> Ran {
    let mut command = Command::new(program(Path::new(GRADER)));
    finish(command.current_dir(workbook()).env(VECTOR_VARIABLE, unit).args(arguments))
}

#[test]
fn a_report_names_a_narrower_vector_unit() {
    let arguments = ["test", "nf4", "--attempt", "solution", "--case", "every-path", "--json"];
    let ran = held_to("Portable", &arguments);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let card: Scorecard = serde_json::from_str(&ran.stdout).expect("a scorecard");
    let own = Vector::widest(); // of this process, which nothing holds
    let widest = (own != Vector::Portable).then(|| own.to_string());
    assert_eq!((card.machine.vector.as_str(), card.machine.widest), ("portable", widest));
    let names: Vec<&str> = card.challenges[0].checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, ["A.6/every-path-portable"]);
    let doctor = held_to("portable", &["doctor"]).stdout;
    assert!(own == Vector::Portable || doctor.contains(VECTOR_VARIABLE), "{doctor}");
}

#[test]
fn an_unknown_vector_unit_is_refused() {
    let trainer = program(Path::new(env!("CARGO_BIN_EXE_own-trainer")));
    for unit in ["", "avx-1024", "neon and more"] {
        let ran = held_to(unit, &["list"]);
        assert_eq!(ran.code, 2, "{unit:?}: {}", ran.stdout);
        let mut command = Command::new(&trainer);
        let trainer = finish(command.env(VECTOR_VARIABLE, unit).args(["template", "lint", "no-such-file"]));
        assert_eq!(trainer.code, 2, "{unit:?}: {}", trainer.stdout);
        for stderr in [ran.stderr, trainer.stderr] {
            let expected = format!("{VECTOR_VARIABLE}: expected a vector unit of this machine (portable");
            assert!(stderr.contains(&expected) && stderr.contains(&format!("found {unit:?}")), "{stderr}");
        }
    }
}

#[test]
fn every_verb_explains_itself() {
    let verbs: [&[&str]; 14] = [
        &[],
        &["score"],
        &["test"],
        &["bench"],
        &["watch"],
        &["list"],
        &["hint"],
        &["reset"],
        &["rubric"],
        &["doctor"],
        &["replay"],
        &["report"],
        &["verify-report"],
        &["help"],
    ];
    for verb in verbs {
        let help: &[&str] = if verb == ["help"] { &[] } else { &["--help"] };
        let ran = grader(&[verb, help].concat());
        assert!(ran.code == 0 && ran.stdout.contains("Usage: "), "{verb:?}: {}{}", ran.stdout, ran.stderr);
    }
    let doctor = grader(&["doctor"]);
    assert!(doctor.code == 0 && doctor.stdout.contains("vector units"), "{}", doctor.stdout);
    let rubric = grader(&["rubric"]);
    assert!(rubric.code == 0 && rubric.stdout.contains("hardcoded_gradients"), "{}", rubric.stdout);
}
