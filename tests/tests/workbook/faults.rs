//! Contract: whatever one step does to its process, the others are judged.

use std::time::{Duration, Instant};

use scorecard::{Check, Outcome};
use tests::attempts::{FAULTS, VARIABLE};
use tests::program::{checks, finish, own, unpassed};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// The one check whose input brings a fault about.
const FAULTY: &str = "A.3/zero-scale";

/// A fault, and what its check is to say.
const CAUSES: [(&str, &str); 7] = [
    ("panics", "no block has a scale of zero"),
    ("overflows its stack", "a stack overflow"),
    ("segfaults", "a segmentation fault"),
    ("exits", "left the process with exit(0) instead of returning"),
    ("aborts", "an abort"),
    ("allocates without bound", "memory limit"),
    ("spoils the result pipe", "the pipe of the grader's results"),
];

const TEST: [&str; 5] = ["test", "nf4", "--case", "A.", "--json"];

fn only_the_faulty_check<'a>(fault: &str, unpassed: &[&'a Check]) -> &'a Check {
    let [check] = unpassed else { panic!("{fault}: one check is wrong, not {unpassed:#?}") };
    assert_eq!((check.name.as_str(), check.outcome), (FAULTY, Outcome::Wrong), "{fault}");
    check
}

#[test]
fn a_fault_is_its_own_check_s_and_says_its_cause() {
    for (fault, cause) in CAUSES {
        let ran = own(OWN, fault, &TEST);
        let card = ran.card();
        let check = only_the_faulty_check(fault, &unpassed(&card));
        let cause = on_this_system(fault, cause);
        assert!(check.detail.contains(cause), "{fault}: {cause:?} is not said:\n{}", check.detail);
        assert!(checks(&card).len() > 100 && ran.code == 1, "{fault}: exit code {}", ran.code);
    }
}

/// What a fault is called where it is not a signal. Wine ends a process that has no room left for its handler.
fn on_this_system(fault: &str, cause: &'static str) -> &'static str {
    match fault {
        "segfaults" if cfg!(windows) => "an access violation",
        "overflows its stack" if kernels::cpu::host().wine.is_some() => "left the process with exit(",
        _ => cause,
    }
}

/// As in some containers: endless recursion is to overflow, not to fill the memory.
#[test]
fn a_stack_overflows_also_where_the_system_sets_it_no_bound() {
    if cfg!(windows) {
        return; // where a program's own file bounds its stack
    }
    let unbounded = "ulimit -s unlimited 2>/dev/null; exec \"$0\" \"$@\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", unbounded, OWN]).args(TEST).env(VARIABLE, "overflows its stack");
    let card = finish(&mut command).card();
    let check = only_the_faulty_check("overflows its stack", &unpassed(&card));
    assert!(check.detail.contains("a stack overflow"), "{}", check.detail);
}

#[test]
fn an_endless_loop_ends_at_its_limit() {
    let begin = Instant::now();
    let ran = own(OWN, "loops", &["test", "nf4", "--case", FAULTY, "--json"]);
    let card = ran.card();
    let check = only_the_faulty_check("loops", &unpassed(&card));
    assert!(check.detail.contains("ran past its time limit of 10 s"), "{}", check.detail);
    assert!(begin.elapsed() < Duration::from_mins(1), "{:?}", begin.elapsed());
}

#[test]
fn what_an_attempt_prints_is_no_result() {
    let ran = own(OWN, "prints results", &TEST);
    let card = ran.card(); // standard output is one scorecard, with nothing before or after
    assert!(unpassed(&card).is_empty(), "{:#?}", unpassed(&card));
    assert!(!ran.stderr.contains("points"), "what it printed stays with it:\n{}", ran.stderr);
    assert_eq!(ran.code, 0);
}

#[test]
fn an_exit_that_hangs_keeps_nobody_waiting() {
    let took = |attempt| {
        let begin = Instant::now();
        let ran = own(OWN, attempt, &TEST);
        assert!(unpassed(&ran.card()).is_empty() && ran.code == 0, "the answers of {attempt:?} are right");
        begin.elapsed()
    };
    let (usual, hanging) = (took("honest"), took("hangs at its exit"));
    assert!(hanging < 3 * usual + Duration::from_secs(8), "{hanging:?}, an honest attempt {usual:?}");
}

#[test]
fn a_process_that_an_attempt_leaves_ends_with_it() {
    let folder = tempfile::tempdir().expect("a folder for the heartbeat");
    let file = folder.path().join("heartbeat");
    let ran = tests::program::finish(beating(&file, "leaves a child process").arg("--json"));
    assert!(unpassed(&ran.card()).is_empty(), "the answer is right");
    falls_silent(&file);
}

#[test]
fn what_an_attempt_started_ends_with_a_grader_that_is_killed() {
    let folder = tempfile::tempdir().expect("a folder for the heartbeat");
    let file = folder.path().join("heartbeat");
    let mut command = beating(&file, "leaves a child process and loops");
    let silent = || std::process::Stdio::null();
    let mut grader = command.stdout(silent()).stderr(silent()).spawn().expect("the grader starts");
    let patience = Instant::now() + Duration::from_mins(1);
    while beats(&file) == 0 {
        assert!(Instant::now() < patience, "the attempt started no process");
        std::thread::sleep(Duration::from_millis(20));
    }
    grader.kill().and_then(|()| grader.wait()).expect("it is killed");
    falls_silent(&file);
}

/// A run of the check at which the process begins to write.
fn beating(file: &std::path::Path, attempt: &str) -> std::process::Command {
    let mut command = std::process::Command::new(tests::place::program(std::path::Path::new(OWN)));
    command.args(["test", "nf4", "--case", FAULTY]);
    command.env(tests::attempts::VARIABLE, attempt).env(tests::attempts::HEARTBEAT, file);
    command
}

fn beats(file: &std::path::Path) -> u64 {
    std::fs::metadata(file).map_or(0, |file| file.len())
}

/// That nobody writes to the file any more: for two seconds, forty times what a living process takes for a byte.
fn falls_silent(file: &std::path::Path) {
    assert!(beats(file) > 0, "the attempt started no process");
    let patience = Instant::now() + Duration::from_mins(1);
    let (mut seen, mut since) = (beats(file), Instant::now());
    while since.elapsed() < Duration::from_secs(2) {
        assert!(Instant::now() < patience, "the process outlives the grader");
        std::thread::sleep(Duration::from_millis(20));
        if beats(file) != seen {
            (seen, since) = (beats(file), Instant::now());
        }
    }
}

#[test]
fn every_fault_is_tried() {
    let apart = [
        "loops",
        "prints results",
        "hangs at its exit",
        "leaves a child process",
        "leaves a child process and loops",
    ];
    for fault in &FAULTS {
        let named = CAUSES.iter().any(|(name, _)| *name == fault.name) || apart.contains(&fault.name);
        assert!(named, "{:?}", fault.name);
    }
}
