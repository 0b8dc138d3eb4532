//! Contract of the oracles: a step that calls one is caught wherever it does so, and every oracle counts its calls.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use scorecard::{Check, Outcome, Scorecard};
use tests::place::workbook;
use tests::program::{own, tripped};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// An attempt that calls an oracle: its name, what is tested, the guard, and a step that is wrong.
type Caller = (&'static str, &'static str, Option<&'static str>, &'static str);

const A: Option<&str> = Some("an oracle called inside a step");
const ATTENTION: Option<&str> = Some("a definition that answers");
const CLASSIFIER: Option<&str> = Some("an oracle that answers");
const GGUF: Option<&str> = Some("a reference that is asked");
const VISION: Option<&str> = Some("a reference that answers");

const CALLERS: [Caller; 16] = [
    ("asks the oracle for small weights", "nf4", A, "A.6"),
    ("asks the oracle from a thread", "nf4", A, "A.6"),
    ("runs the baseline", "nf4", A, "A.6"),
    ("runs the given tile program", "nf4", A, "A.6"),
    ("sees by the given masks", "attention", ATTENTION, "D.9"),
    ("sees by the given masks where there is a window", "attention", ATTENTION, "D.9"),
    ("takes its costs from the losses", "classify", CLASSIFIER, "D.16"),
    ("takes the costs of many rows from the oracle", "classify", CLASSIFIER, "D.16"),
    ("finds last tokens on a thread", "classify", CLASSIFIER, "D.15"),
    ("divides the given frequencies", "gguf", GGUF, "D.19"),
    ("quantises on a thread", "gguf", GGUF, "D.20"),
    ("asks for the rows of many heads", "gguf", GGUF, "D.19"),
    ("asks for an image's tokens", "vision", VISION, "D.25"),
    ("asks for the tokens of large grids", "vision", VISION, "D.25"),
    ("resizes on a thread", "vision", VISION, "D.24"),
    ("breaks what the given code marks", "chat", None, "D.3"),
];

fn checks(card: &Scorecard) -> impl Iterator<Item = &Check> {
    card.challenges.iter().flat_map(|challenge| &challenge.checks)
}

#[test]
fn callers_of_oracles_are_caught() {
    for (caller, part, guard, step) in CALLERS {
        let ran = own(OWN, caller, &["test", part, "--json", "--seed", "0x1"]);
        let card = ran.card();
        assert_eq!(tripped(&card), Vec::from_iter(guard), "{caller}: {:#?}", card.guards);
        let wrong: Vec<&Check> = checks(&card).filter(|check| check.outcome != Outcome::Passed).collect();
        assert!(wrong.iter().any(|check| check.step() == step), "{caller}: {wrong:#?}");
        for check in wrong {
            let is_told = check.detail.starts_with("expected the step's own work, found ");
            assert!(is_told && check.outcome == Outcome::Wrong, "{caller}: {check:#?}");
        }
        assert!(ran.code == 1 && card.points <= 0, "{caller}: {} points", card.points);
    }
}

/// A guard of one size let an attempt call the oracle for every other size.
#[test]
fn guards_draw_sizes_and_report_them() {
    let detail = |seed: &str| {
        let caller = "asks the oracle for small weights";
        let card =
            own(OWN, caller, &["test", "nf4", "--case", "an oracle called", "--json", "--seed", seed]).card();
        card.guards.iter().find(|guard| guard.tripped).expect("it trips").detail.clone()
    };
    let [first, again, other] = ["0x7", "0x7", "0x8"].map(detail);
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert!(first.contains("--seed 0x7") && first.contains("elements in blocks of"), "{first}");
}

#[test]
fn timed_runs_are_watched_too() {
    let caller = "runs the baseline";
    let case = ["bench", "nf4", "--quick", "--case", "bench/2048x8192.f16", "--samples", "2", "--json"];
    let card = own(OWN, caller, &case).card();
    assert_eq!(tripped(&card), Vec::from_iter(A), "{:#?}", card.guards);
}

#[test]
fn own_work_with_vocabulary_trips_nothing() {
    let twins = [
        ("joins its masks with the vocabulary", "attention"),
        ("computes frequencies itself", "gguf"),
        ("works on a new thread", "vision"),
    ];
    for (twin, part) in twins {
        let ran = own(OWN, twin, &["test", part, "--json", "--seed", "0x1"]);
        let card = ran.card();
        assert!(tripped(&card).is_empty(), "{twin}: {:#?}", card.guards);
        let open: Vec<&Check> = checks(&card).filter(|check| check.outcome != Outcome::Passed).collect();
        assert!(open.is_empty() && ran.code == 0, "{twin}: {open:#?}");
    }
}

/// Folders of `reference` that hold oracles.
const FOLDERS: [&str; 8] = ["nf4", "loss", "vision", "schedule", "issues", "fsdp", "optim", "lora"];
const FILES: [&str; 3] = ["graph/programs.rs", "llama/rope.rs", "checkpoint/gguf/quantize.rs"];

/// Public functions that steps may call: vocabulary, the machinery around steps, and what a stub imports. `*` stands
/// for every function of a file.
const MAY_BE_CALLED: &[(&str, &[&str])] = &[
    ("fsdp/check.rs", &["*"]),
    ("fsdp/placement.rs", &["*"]),
    ("fsdp/tensor.rs", &["*"]),
    (
        "graph/programs.rs",
        &[
            "with_offset",
            "distance",
            "score",
            "mask",
            "and",
            "or",
            "softcap",
            "alibi",
            "distance_bias",
            "relative_bias",
        ],
    ),
    ("issues/attention.rs", &["shapes"]),
    ("issues/chat.rs", &["*"]),
    ("issues/classify.rs", &["name", "called"]),
    ("issues/gguf/mod.rs", &["shape", "of", "stored_as", "file_type"]),
    ("issues/gguf/text.rs", &["name"]),
    ("lora/adapter.rs", &["*"]),
    ("lora/config.rs", &["new", "read", "to_json", "scale"]),
    ("lora/fresh.rs", &["*"]),
    (
        "lora/modules.rs",
        &[
            "name",
            "path",
            "called",
            "whole",
            "rows",
            "slots",
            "none",
            "read",
            "check",
            "has_head",
            "with_head",
            "to_save_as_json",
            "tokens_as_json",
            "rows_of",
            "start",
        ],
    ),
    ("lora/write.rs", &["*"]),
    ("loss/cross_entropy.rs", &["check"]),
    ("loss/distillation.rs", &["check"]),
    ("loss/linear.rs", &["temperature", "check", "exact", "pull_back", "graph"]), // those of `Head`, which E imports
    ("loss/log_probabilities.rs", &["kept"]),
    ("loss/next_token.rs", &["within_documents"]),
    ("loss/policy.rs", &["both", "grpo", "bnpo", "dapo", "dr_grpo", "gspo", "check"]),
    ("loss/preference.rs", &["halves", "halves_of", "as_halves"]),
    ("loss/reduction.rs", &["*"]),
    ("nf4/check.rs", &["*"]),
    ("nf4/checkpoint.rs", &["*"]),
    ("nf4/codec.rs", &["dequantize_bits"]), // counted by the function that it calls
    ("nf4/dtype.rs", &["*"]),
    ("nf4/error.rs", &["*"]),
    ("nf4/parts.rs", &["*"]),
    ("nf4/weight.rs", &["*"]),
    ("optim/adamw.rs", &["*"]),
    ("optim/clip.rs", &["clip_factor", "clip"]),
    ("optim/schedule.rs", &["*"]),
    ("schedule/bound.rs", &["*"]),
    ("schedule/check.rs", &["*"]),
    ("schedule/grid.rs", &["*"]),
    ("schedule/list.rs", &["listed"]),
    ("schedule/operation.rs", &["*"]),
    ("schedule/parse.rs", &["*"]),
    ("schedule/picture.rs", &["*"]),
    ("schedule/simulate.rs", &["*"]),
    ("schedule/workload.rs", &["*"]),
    ("vision/collate.rs", &["image"]),
    ("vision/model.rs", &["*"]),
    ("vision/patches.rs", &["of_image", "patches", "merged_order"]),
    ("vision/resample.rs", &["new"]),
    ("vision/size.rs", &["new", "area", "checked"]),
    ("vision/tower/clip.rs", &["*"]),
    ("vision/tower/functions.rs", &["*"]),
    ("vision/tower/mod.rs", &["weights"]),
    ("vision/tower/qwen.rs", &["*"]),
];

#[test]
fn every_oracle_counts_its_calls() {
    let room = workbook().join("reference/src");
    let mut files: Vec<PathBuf> = FILES.iter().map(|file| room.join(file)).collect();
    for folder in FOLDERS {
        collect(&room.join(folder), &mut files);
    }
    let allowed: BTreeMap<&str, &[&str]> = MAY_BE_CALLED.iter().copied().collect();
    let mut missing = Vec::new();
    for path in files {
        let name = path.strip_prefix(&room).expect("a file below it").to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&path).expect("a source file");
        let may_be_called = allowed.get(name.as_str()).copied().unwrap_or_default();
        let is_allowed =
            |function: &String| may_be_called.iter().any(|known| *known == "*" || known == function);
        let functions = uncounted(&text).into_iter().filter(|function| !is_allowed(function));
        missing.extend(functions.map(|function| format!("{name}: {function}")));
    }
    assert!(
        missing.is_empty(),
        "public functions of the reference that count no call (see `reference/src/oracles.rs`): {missing:#?}\n\
         count their calls and name the counter in `grader/lib/src/oracles.rs`, or list them here as vocabulary"
    );
}

#[test]
fn every_counter_belongs_to_a_step() {
    let read = |path: &str| fs::read_to_string(workbook().join(path)).expect("a source file");
    let table = read("grader/lib/src/oracles.rs");
    let names = |path: &str, before: &str| -> Vec<String> {
        let named = |line: &str| Some(line.strip_prefix(before)?.split([':', '(']).next()?.to_owned());
        read(path).lines().filter_map(named).collect()
    };
    let oracles = names("reference/src/oracles.rs", "pub static ");
    let files = ["challenges/src/given.rs", "challenges/chat/src/given.rs"];
    let given: Vec<String> = files.iter().flat_map(|file| names(file, "pub fn ")).collect();
    assert!(oracles.len() >= 15 && given.len() >= 2, "{oracles:?}, {given:?}");
    let oracles = oracles.into_iter().map(|name| format!("oracles::{name}.so_far()"));
    let given = given.into_iter().map(|name| format!("given::{name}"));
    for counter in oracles.chain(given) {
        assert!(table.contains(&counter), "no step of `grader/lib/src/oracles.rs` names {counter}");
    }
}

/// Every source file below a folder but its tests.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The public functions of a text whose bodies count no call.
fn uncounted(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let name = |line: &str| {
        let line = line.trim_start().strip_prefix("pub ")?;
        let line = line.strip_prefix("const ").unwrap_or(line).strip_prefix("fn ")?;
        Some(line.split(|c: char| !c.is_alphanumeric() && c != '_').next()?.to_owned())
    };
    let is_uncounted = |(at, line): (usize, &&str)| {
        let name = name(line)?;
        let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        let mut body = lines[at..].iter().take_while(|line| **line != end);
        (!body.any(|line| line.contains(".count();"))).then_some(name)
    };
    lines.iter().enumerate().filter_map(is_uncounted).collect()
}
