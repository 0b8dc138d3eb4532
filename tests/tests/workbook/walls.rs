//! The architecture, held: which room may use what, where `unsafe` may stand, what no file may say.

mod circles;
mod imports;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    tests::place::workbook().to_path_buf()
}

#[test]
fn no_place_of_a_checkout_is_compiled_in() {
    let variable = concat!("env!(\"CARGO_MANIFEST", "_DIR\")");
    let with: Vec<String> =
        texts().into_iter().filter(|(_, text)| text.contains(variable)).map(|(path, _)| path).collect();
    assert!(with.is_empty(), "a checkout that moved would still use its old place: {with:?}");
}

fn metadata() -> Value {
    let output = Command::new(tests::place::cargo())
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    serde_json::from_slice(&output.stdout).expect("cargo metadata speaks JSON")
}

/// Names that a room depends on, without those of its tests.
fn dependencies(room: &str) -> BTreeSet<String> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == room).expect("the room is a package");
    let all = package["dependencies"].as_array().expect("dependencies").iter();
    let used = all.filter(|dependency| dependency["kind"] != "dev");
    used.map(|dependency| dependency["name"].as_str().expect("a name").to_owned()).collect()
}

const ROOMS: [&str; 15] = [
    "reference",
    "kernels",
    "linked",
    "chat",
    "compiler",
    "runtime",
    "challenges",
    "solutions",
    "trainer",
    "scorecard",
    "figures",
    "grading",
    "grader",
    "tests",
    "book",
];

/// Libraries that nothing calls: see the workspace's `Cargo.toml`.
const FOR_THEIR_FEATURES: [&str; 7] =
    ["bytemuck", "either", "num-traits", "once_cell", "rand", "regex", "syn"];

/// Holds a room to the rooms and the libraries that it may use.
fn may_use(room: &str, rooms: &[&str], libraries: &[&str]) {
    for name in dependencies(room) {
        let allowed = if ROOMS.contains(&name.as_str()) { rooms } else { libraries };
        assert!(
            allowed.contains(&name.as_str()),
            "{room} uses {name}; it may use {rooms:?} and {libraries:?}"
        );
    }
}

#[test]
fn the_oracles_and_the_machine_do_not_know_each_other() {
    let libraries = ["half", "safetensors", "memmap2", "serde", "serde_json"];
    may_use("reference", &[], &libraries);
    let libraries = [
        "cudarc",
        "libloading",
        "nvml-wrapper",
        "rayon",
        "gemm-common",
        "gemm-f32",
        "half",
        "sha2",
        "tempfile",
        "windows-sys",
    ];
    may_use("kernels", &[], &libraries);
}

#[test]
fn a_challenge_does_not_see_the_grader() {
    let libraries = ["memchr", "num-bigint", "num-traits", "regex-automata", "regex-syntax", "serde_json"];
    may_use("linked", &[], &[]);
    may_use("chat", &["linked", "reference"], &libraries);
    may_use("compiler", &["reference", "kernels"], &["half"]);
    may_use("runtime", &["reference", "kernels", "compiler"], &["half"]);
    may_use("challenges", &["reference", "kernels", "linked", "chat", "compiler", "runtime"], &["half"]);
}

/// What only the trainer needs is not compiled before a scorecard.
#[test]
fn the_trainer_and_the_grader_do_not_know_each_other() {
    let libraries = [
        "clap",
        "half",
        "image",
        "indicatif",
        "jiff",
        "llguidance",
        "serde_json",
        "sha2",
        "signal-hook",
        "similar",
        "strsim",
        "tokenizers",
        "toml",
    ];
    let all = [&libraries[..], &FOR_THEIR_FEATURES, &["getrandom", "libc"]].concat();
    may_use("trainer", &["reference", "kernels", "challenges", "solutions"], &all);
    calls_no_library_of_features("challenges/trainer/src/");
    let compiled = packages(&["--package", "grader", "--edges", "normal,build"]);
    for name in ["trainer", "image", "jiff", "llguidance", "similar", "tokenizers"] {
        let with = compiled.iter().find(|package| package.split(' ').next() == Some(name));
        assert_eq!(with, None, "the grader waits for {name}");
    }
}

#[test]
fn the_grader_uses_what_it_grades_and_nothing_of_the_book() {
    let libraries = [
        "clap",
        "console",
        "getrandom",
        "half",
        "indicatif",
        "minijinja",
        "nix",
        "notify",
        "process-wrap",
        "serde",
        "serde_json",
        "sha2",
        "tempfile",
        "toml",
        "windows-sys",
    ];
    let all = [&libraries[..], &FOR_THEIR_FEATURES].concat();
    let rooms = ["challenges", "compiler", "reference", "kernels", "scorecard", "figures"];
    may_use("grading", &rooms, &all);
    calls_no_library_of_features("grader/lib/src/");
}

/// A picture needs a scorecard and no grader.
#[test]
fn figures_know_scorecards_and_no_grader() {
    may_use("scorecard", &[], &["schemars", "serde", "serde_json"]);
    may_use("figures", &["scorecard", "reference"], &[]);
}

/// What is made up for tests is no part of a product.
#[test]
fn fixtures_stay_out_of_the_grader() {
    for (path, text) in sources().filter(|(path, _)| path.starts_with("grader/")) {
        for (before, _) in text.match_indices("tests/src/") {
            let above = text[..before].lines().rev().nth(1).unwrap_or_default();
            assert_eq!(above, "#[cfg(test)]", "{path} compiles a file of the tests into a release");
        }
    }
    for room in ROOMS {
        assert!(!dependencies(room).contains("tests"), "{room} uses the tests");
    }
}

fn calls_no_library_of_features(folder: &str) {
    for (path, text) in sources().filter(|(path, _)| path.starts_with(folder)) {
        let called =
            FOR_THEIR_FEATURES.iter().find(|name| text.contains(&format!("{}::", name.replace('-', "_"))));
        assert_eq!(called, None, "{path} calls a library that is there for its features");
    }
}

/// The packages that a build of one room or of all needs, each with its features.
fn packages(of: &[&str]) -> BTreeSet<String> {
    let output = Command::new(tests::place::cargo())
        .args(["tree", "--offline", "--edges", "normal,build,dev", "--prefix", "none", "--format", "{p} {f}"])
        .args(of)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let text = String::from_utf8(output.stdout).expect("cargo tree speaks UTF-8");
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// A package with other features is another one: what the first command has compiled, the second would compile again.
#[test]
fn each_library_is_compiled_once_whichever_command_comes_first() {
    let all = packages(&["--workspace"]);
    for room in ["grader", "attempts", "trainer", "book", "tests"] {
        let needed = packages(&["--package", room]);
        let again: Vec<&String> = needed.difference(&all).collect();
        assert!(!needed.is_empty() && again.is_empty(), "-p {room} needs other features: {again:?}");
    }
}

/// A changed line of a solution compiles the solutions and links: nothing that takes long is built on them.
#[test]
fn only_programs_are_linked_with_the_solutions() {
    let libraries = ["half", "serde_json"];
    may_use("solutions", &["challenges", "compiler", "linked", "reference", "kernels"], &libraries);
    may_use("grader", &["challenges", "grading", "kernels", "solutions"], &[]);
    let lines: usize = sources()
        .filter(|(path, _)| path.starts_with("grader/bin/src/"))
        .map(|(_, text)| text.lines().filter(|line| !line.starts_with("//")).count())
        .sum();
    assert!(lines < 20, "the package `grader` has {lines} lines beside comments; they belong to `grading`");
    for room in ROOMS {
        let may = ["grader", "trainer", "tests"].contains(&room);
        assert!(may || !dependencies(room).contains("solutions"), "{room} waits for the solutions");
    }
}

#[test]
fn nothing_uses_the_book() {
    for room in ROOMS.into_iter().filter(|room| !["book", "tests"].contains(room)).chain(["attempts"]) {
        assert!(!dependencies(room).contains("book"), "{room} uses the book");
    }
}

/// The plain build and the plain tests never touch the reader's text: its programs want a feature.
#[test]
fn an_exercise_is_built_on_demand_only() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    for package in packages {
        for target in package["targets"].as_array().expect("targets") {
            let source =
                std::fs::read_to_string(target["src_path"].as_str().expect("a path")).expect("a source");
            if source.contains("exercise.rs\"]") {
                assert_eq!(package["name"], "attempts");
                assert_eq!(target["test"], false, "{target}");
                assert_eq!(target["required-features"][0], "reader", "{target}");
            }
        }
    }
    for (path, text) in sources().filter(|(path, _)| path.starts_with("challenges/src/")) {
        assert!(!text.lines().any(|line| line.ends_with("mod exercise;")), "{path}: an exercise is no part");
    }
}

#[test]
fn no_feature_decides_what_the_machine_has() {
    for package in metadata()["packages"].as_array().expect("packages") {
        let features: Vec<&String> = package["features"].as_object().expect("features").keys().collect();
        // A feature each: that a text of the reader's is there.
        let exercises =
            ["reader", "nf4", "fsdp", "graph", "chat", "attention", "classify", "gguf", "vision", "loss"];
        let allowed: &[&str] = if package["name"] == "attempts" { &exercises } else { &[] };
        assert!(
            features.iter().all(|feature| allowed.contains(&feature.as_str())),
            "{package}: {features:?}"
        );
    }
}

/// Every text file of the project with its path from the root.
fn texts() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            let skipped = ["target", ".git", ".warpbook", "golden", "corpus", "artifacts", "coverage"];
            if skipped.contains(&name.as_str()) || path.ends_with("book/book") {
                continue; // in a second working tree .git is a file, which names the first
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let path =
                    path.strip_prefix(root()).expect("below the root").to_string_lossy().replace('\\', "/");
                found.push((path, text));
            }
        }
    }
    found
}

fn sources() -> impl Iterator<Item = (String, String)> {
    texts().into_iter().filter(|(path, _)| Path::new(path).extension().is_some_and(|end| end == "rs"))
}

/// The features in quotes of a text, each once.
fn features(quoted: &str) -> BTreeSet<&str> {
    quoted.split(['"', ',']).map(str::trim).filter(|name| !name.is_empty()).collect()
}

/// Code for a feature that the machine was not asked for is no code of the machine's.
#[test]
fn every_feature_that_code_is_compiled_for_is_probed() {
    let probe = std::fs::read_to_string(root().join("kernels/src/cpu/vector.rs")).expect("a source");
    let lists = probe.split("if has!(").skip(1);
    let asked: Vec<BTreeSet<&str>> =
        lists.map(|list| features(list.split(')').next().unwrap_or_default())).collect();
    let [avx2, avx512] = &asked[..] else { panic!("each unit is probed by one list: {asked:?}") };
    let neon = BTreeSet::from(["neon"]);
    assert!(probe.contains("is_aarch64_feature_detected!(\"neon\")"));
    let mut lists = 0;
    for (path, text) in sources().filter(|(path, _)| !path.starts_with("tests/")) {
        for list in text.split("#[target_feature(enable = \"").skip(1) {
            let enabled = features(list.split('"').next().unwrap_or_default());
            let wide = enabled.iter().any(|name| name.starts_with("avx512"));
            let unit = [avx2, avx512, &neon][if enabled.contains("neon") { 2 } else { usize::from(wide) }];
            assert!(enabled.is_subset(unit), "{path} enables {enabled:?}; the machine is asked for {unit:?}");
            lists += 1;
        }
    }
    assert!(lists > 10, "{lists} lists of features are no longer all of them");
}

/// A file that holds `unsafe` has asked for it and said why.
#[test]
fn unsafe_stands_only_where_the_machine_is_touched() {
    let allowed = [
        "reference/src/checkpoint/bytes.rs", // the one call that maps a file
        "reference/src/rounding.rs",         // names that the linker knows
        "kernels/src/buffer.rs",             // bytes viewed as numbers
        "kernels/src/bytes.rs",              // GlobalAlloc
        "kernels/src/cpu/amx.rs",            // instructions of the matrix unit
        "kernels/src/cpu/attention/",        // threads that write disjoint rows of one result
        "kernels/src/cpu/engine.rs",         // threads that write disjoint lanes of one memory
        "kernels/src/cpu/engine/",           // the same
        "kernels/src/cpu/lanes.rs",          // functions compiled for a vector unit
        "kernels/src/cpu/executable.rs",     // an arena handed to the engine and to products
        "kernels/src/cpu/product.rs",        // threads that write disjoint parts of one product
        "kernels/src/cpu/stream.rs",         // streaming stores
        "kernels/src/cpu/packed_gemm.rs",    // copies of matrices by their strides
        "kernels/src/cpu/tick.rs",           // the processor's counter
        "kernels/src/cpu/transpose.rs",      // vector code
        "kernels/src/cpu/windows.rs",        // functions of the system
        "kernels/src/cuda/",
        "kernels/tests/allocation.rs",     // a global allocator that counts
        "challenges/src/nf4/",             // vector code
        "challenges/linked/src/lib.rs",    // functions that the linker finds
        "challenges/solutions/src/lib.rs", // and what it finds
        "grader/attempts/",                // the reader's own
        "grader/lib/src/gather/job.rs",    // functions of Windows
        "grader/lib/src/gather/link.rs",   // the same
        "tests/",                          // attempts that crash on purpose
    ];
    for (path, text) in sources() {
        let asks = text.contains("allow(unsafe_code)") || text.contains("unsafe_code,");
        assert!(!asks || allowed.iter().any(|prefix| path.starts_with(prefix)), "{path} allows unsafe code");
    }
    let calls = sources().filter(|(path, text)| path.starts_with("reference/") && text.contains("unsafe {"));
    assert!(calls.count() <= 1, "the reference has one unsafe call");
}

/// Whoever links a function of the same name into the program sets the system's clocks.
#[test]
fn what_is_timed_is_timed_by_the_processors_counter() {
    let timed = ["bench.rs", "staircase.rs", "published.rs"];
    let mut seen = 0;
    for (path, text) in sources().filter(|(path, _)| path.starts_with("grader/lib/src/")) {
        if timed.iter().any(|name| path.ends_with(name)) {
            seen += usize::from(text.contains("Tick::now()"));
            assert!(!text.contains("Instant"), "{path} reads the system's clock");
        }
    }
    assert!(seen >= 5, "{seen} files time something");
}

#[test]
fn every_unsafe_block_gives_its_reason() {
    for (path, text) in sources().filter(|(path, _)| !path.ends_with("walls.rs")) {
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let declared = code.trim_start().starts_with("safe fn ");
            if declared || code.contains("unsafe {") || code.contains("unsafe impl") {
                let above = lines[i.saturating_sub(6)..=i].iter().any(|line| line.contains("SAFETY:"));
                assert!(above, "{path}:{}: an unsafe block without its reason", i + 1);
            }
        }
    }
}

/// Challenge A's steps on the host are given the CPU; whatever else a challenge does, any device does.
#[test]
fn only_challenge_a_is_written_for_the_cpu() {
    for (path, text) in sources().filter(|(path, _)| path.starts_with("challenges/")) {
        assert!(!text.contains("&Cpu") || path.starts_with("challenges/src/nf4/"), "{path}");
    }
}

#[test]
fn only_the_cuda_device_names_cudarc() {
    for (path, text) in sources() {
        let exempt = path.starts_with("kernels/src/cuda/") || path.ends_with("walls.rs");
        assert!(exempt || !text.contains("cudarc::"), "{path} names cudarc");
    }
}

/// A wall is worth as much as its test, so what is named has to be there. A screen is 50 lines of 120 columns.
#[test]
fn the_architecture_names_what_is_there_in_two_screens_a_room() {
    let architecture = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("a text");
    let prose: String = architecture.split("```").step_by(2).collect();
    let quoted: BTreeSet<&str> = prose.split('`').skip(1).step_by(2).collect();
    let sources: Vec<(String, String)> = sources().collect();
    let is_there = |name: &str| {
        let (function, module) = (format!("fn {name}("), format!("/{name}.rs"));
        sources.iter().any(|(path, text)| path.ends_with(&module) || text.contains(&function))
    };
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let names: Vec<&str> =
        quoted.iter().copied().filter(|name| name.contains('_') && name.chars().all(is_word)).collect();
    let missing: Vec<&str> = names.iter().copied().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty() && names.len() > 100, "of {} names no test has {missing:?}", names.len());
    let rooms = ["reference/", "kernels/", "challenges/", "grader/", "tests/", "book/"];
    for path in quoted.iter().filter(|path| rooms.iter().any(|room| path.starts_with(room))) {
        let is_pattern = path.contains('{') || path.contains("NAME");
        assert!(is_pattern || root().join(path).exists(), "there is no {path}");
    }
    for (number, line) in architecture.lines().enumerate() {
        assert!(line.chars().count() <= 120, "line {} is too long", number + 1);
    }
    for section in architecture.split("\n## ") {
        assert!(
            section.lines().count() <= 100,
            "longer than two screens: {}",
            section.lines().next().unwrap_or("")
        );
    }
}

/// The project speaks of itself alone.
#[test]
fn no_file_names_a_machine_or_a_package_host() {
    let forbidden =
        ["/work/", "/root/", "static.crates", "files.pythonhosted", "deb.debian", "registry.npmjs"];
    for (path, text) in texts().iter().filter(|(path, _)| !path.ends_with("walls.rs")) {
        for word in forbidden {
            assert!(!text.contains(word), "{path} says {word:?}");
        }
    }
}

#[test]
fn every_challenge_has_the_same_name_in_every_room() {
    let names: Vec<&str> = grader::rubric::RUBRICS.iter().map(|rubric| rubric.name).collect();
    assert_eq!(names, ["nf4", "fsdp", "graph", "issues", "loss"]);
    for name in names {
        let challenge = root().join("challenges/src").join(name);
        if challenge.is_dir() {
            assert!(
                root().join("reference/src").join(name).is_dir()
                    || root().join(format!("reference/src/{name}.rs")).is_file()
            );
            let contract = std::fs::read_to_string(challenge.join("mod.rs")).expect("a contract");
            let letter = grader::rubric::find(name).expect("a rubric").letter;
            assert!(
                contract.starts_with(&format!("//! ({letter}) ")),
                "{name}: the letter opens the contract"
            );
        }
    }
}

/// Texts whose `Op` is another one than a graph's: the machine's, or a template's.
const OTHER_OPERATIONS: [&str; 4] =
    ["kernels/", "challenges/chat/", "challenges/src/nf4/", "tests/src/plans.rs"];

/// An operation that is added must not compile where nobody has thought of it: what an arm for all others would take
/// would be a wrong answer, not an error.
#[test]
fn no_arm_stands_for_operations_that_it_does_not_name() {
    let mut matches = 0;
    for (path, text) in sources().filter(|(path, _)| !path.ends_with("walls.rs")) {
        if OTHER_OPERATIONS.iter().any(|other| path.starts_with(other)) {
            continue;
        }
        for (start, _) in text.match_indices("match ") {
            let arms = arms(&text[start..]);
            matches += usize::from(arms.iter().any(|arm| arm.contains("Op::")));
            assert!(!stands_for_others(&arms), "{path}: {}", arms.join(" | "));
        }
    }
    assert!(matches > 30, "{matches} matches over operations are no longer all of them");
    for (text, wild) in [
        ("match op { Op::Cast => 1, Op::Select => { f(_ => 2) } _ => 3 }", true),
        ("match (a, op) { (_, Op::Cast) => 1, _ => 3 }", true),
        ("match op { Op::Cast | Op::Select => f(|_| 2), Op::Matmul if x => 2, Op::Matmul => 3 }", false),
        ("match op { _ if x => 1, Op::Cast => 2 }", false),
        ("match op { Op::Cast => 1, op => f(op) }", true),
    ] {
        assert_eq!(stands_for_others(&arms(text)), wild, "{text}");
    }
}

/// Whether one arm is for whatever the others do not name, and one of these is an operation.
fn stands_for_others(arms: &[String]) -> bool {
    let is_any = |pattern: &str| pattern.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let takes_all = |arm: &String| arm.lines().last().map(str::trim).is_some_and(is_any);
    arms.iter().any(|arm| arm.contains("Op::")) && arms.iter().any(takes_all)
}

/// The beginnings of a match's arms, up to their arrows; the text starts with the match.
fn arms(text: &str) -> Vec<String> {
    let (mut depth, mut arm, mut arms, mut is_pattern) = (0, String::new(), Vec::new(), true);
    let body = text.find('{').map_or("", |at| &text[at..]);
    for (at, letter) in body.char_indices() {
        match letter {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            _ => {}
        }
        let ends_arm = letter == ',' || letter == '}';
        if depth == 0 {
            break;
        }
        if depth == 1 && !is_pattern && ends_arm {
            (is_pattern, arm) = (true, String::new());
        } else if depth == 1 && is_pattern && body[at..].starts_with("=>") {
            arms.push(arm.trim().to_owned() + " ");
            is_pattern = false;
        } else if is_pattern && at > 0 {
            arm.push(letter);
        }
    }
    arms
}
