//! Contract on CUDA: what a GPU answers where there is one, and what can be held without.
//!
//! Without a GPU the tests that need one print "not measured"; without NVRTC so do those that compile.

use challenges::nf4::cuda::{Attempt, Build};
use grader::ptx::{ARCHITECTURES, every_text, texts};
use grader::stub::{self, Language};
use kernels::cuda::{CompileError, Gpu, KEPT, PRELUDE, Source, Target, compile};
use reference::nf4::OutputDtype;
use scorecard::{Outcome, Scorecard, Truth};
use tests::attempts::cuda::{CUDA_CHEATS, CUDA_FAULTS, CUDA_IDLE, CUDA_MISTAKES, CUDA_TWINS, Kernels};
use tests::program::{Ran, checks, own, tripped, unpassed};

const OWN: &str = env!("CARGO_BIN_EXE_own");

const DTYPES: [OutputDtype; 3] = [OutputDtype::F16, OutputDtype::Bf16, OutputDtype::F32];

/// Whether a GPU answers.
fn gpu() -> bool {
    match Gpu::look(0) {
        Ok(_) => {
            tests::gpu::note();
            true
        }
        Err(reason) => {
            println!("not measured: {reason}");
            false
        }
    }
}

/// Compiles, unless there is no compiler.
fn compiled(attempt: &Attempt, build: Build, target: Target) -> Option<Result<String, String>> {
    let defines = build.defines();
    let source = Source { name: &attempt.name, text: &attempt.text, headers: &[PRELUDE], defines: &defines };
    match compile(&source, target) {
        Ok(compiled) => Some(Ok(compiled.ptx)),
        Err(CompileError::NoCompiler(reason)) => {
            println!("not measured: {reason}");
            None
        }
        Err(error @ CompileError::UnknownTarget(_)) => {
            println!("not measured: {error}");
            None
        }
        Err(error) => Some(Err(error.to_string())),
    }
}

#[test]
fn every_kept_ptx_is_of_todays_text() {
    let texts = texts();
    for text in &texts {
        assert!(text.kept().is_some(), "kernels/ptx/{}.ptx is stale: `cargo dev ptx` writes it", text.name);
    }
    for kept in KEPT {
        assert!(texts.iter().any(|text| text.name == kept.name), "{} is the PTX of no text", kept.name);
        let version = kept.ptx.lines().find_map(|line| line.strip_prefix(".version 8."));
        let minor: u32 = version.expect("PTX ISA 8").trim().parse().expect("a number");
        assert!(minor == 0, "{}: drivers for CUDA 12.0 read PTX ISA 8.0 at most", kept.name);
    }
}

#[test]
fn every_kernel_text_compiles_for_every_architecture() {
    let compile_all = |capability| {
        for (name, text) in every_text() {
            let attempt = Attempt { name: name.into(), text: text.into() };
            for build in DTYPES.map(Build::of).into_iter().flat_map(|build| [build, build.plain()]) {
                let Some(done) = compiled(&attempt, build, Target::Ptx(capability)) else { return };
                done.unwrap_or_else(|error| panic!("{name} for {capability:?}, {build:?}:\n{error}"));
            }
        }
    };
    std::thread::scope(|scope| {
        for capability in ARCHITECTURES {
            scope.spawn(move || compile_all(capability));
        }
    });
}

#[test]
fn the_solution_without_inline_ptx_has_none() {
    for build in DTYPES.map(Build::of) {
        let target = Target::Ptx((9, 0));
        let Some(done) = compiled(&Attempt::solution(), build.plain(), target) else { return };
        assert!(!done.expect("compiles").contains("inline asm"), "{build:?}");
        let with =
            compiled(&Attempt::solution(), build, target).expect("there is a compiler").expect("compiles");
        assert!(with.contains("inline asm"), "{build:?}");
    }
}

/// The sum that rounds to bf16 would carry the card's NaN, 0x7fffffff, into -0.
#[test]
fn rounding_on_the_bits_looks_for_nan_first() {
    for kept in KEPT.iter().filter(|kept| kept.name.ends_with("bf16-75") && kept.name.starts_with("nf4")) {
        let count =
            |of: &[&str]| kept.ptx.lines().filter(|line| of.iter().all(|part| line.contains(part))).count();
        let (sums, questions) = (count(&["add.s32", ", 32767;"]), count(&["setp.nan.f32"]));
        assert!(sums > 0 && questions == sums, "{}: {questions} of {sums} roundings ask", kept.name);
    }
}

#[test]
fn a_stub_compiles_and_every_step_is_a_hole() {
    let stub =
        stub::derive(challenges::nf4::cuda::solution_text(), Language::Cuda).expect("the markers are sound");
    for step in stub::steps(challenges::nf4::cuda::solution_text()) {
        assert!(stub.contains(&format!("TODO(\"{}: ", step.name)), "{} is no hole", step.name);
    }
    let attempt = Attempt { name: "exercise.cu".into(), text: stub };
    for build in DTYPES.map(Build::of) {
        let Some(done) = compiled(&attempt, build, Target::Ptx((7, 5))) else { return };
        done.unwrap_or_else(|error| panic!("{build:?}: {error}"));
    }
}

#[test]
fn every_attempt_of_the_tests_compiles_but_the_one_that_does_not() {
    let all = CUDA_CHEATS.iter().chain(&CUDA_TWINS).chain(&CUDA_FAULTS).chain(&CUDA_IDLE);
    let mistakes: Vec<&Kernels> = CUDA_MISTAKES.iter().map(|(kernels, _)| kernels).collect();
    for kernels in all.chain(mistakes) {
        let target = Target::Ptx((8, 0));
        let Some(done) = compiled(&kernels.attempt(), Build::of(OutputDtype::Bf16), target) else { return };
        let should = !kernels.name.contains("does not compile");
        assert_eq!(done.is_ok(), should, "{}: {done:?}", kernels.name);
        if let Err(words) = done {
            assert!(words.contains("exercise.cu(") && words.contains("right_anser"), "{words}");
        }
    }
}

const TEST: [&str; 7] = ["test", "nf4", "--device", "cuda", "--json", "--seed", "0x1"];

fn tested(kernels: &Kernels) -> (Ran, Scorecard) {
    let ran = own(OWN, kernels.name, &TEST);
    let card = ran.card();
    (ran, card)
}

/// Any other guard may trip, too: freed memory is handed out again, so who remembers an address remembers it
/// from every check and guard before.
const ANY: &str = "any other";

/// The guard that a cheat trips, and others that may.
const CAUGHT: [&[&str]; 15] = [
    &["answers cached by pointer", ANY],
    &["answers cached by content", ANY],
    &["answers cached by call count"],
    &["unwritten outputs"],
    &["inputs modified", "answers cached by content"],
    &["constants and zeros"],
    &["NaN as a wildcard", "constants and zeros"],
    &["work finished after the clock stops", "unwritten outputs", "writes outside the buffer"],
    &["right on the checked shapes only"],
    &["lower precision"],
    &["writes outside the buffer"],
    &["writes outside the buffer"],
    &["overlap without a wait"],
    &["overlap without a wait"],
    &["wrong answers in timed calls"],
];

#[test]
fn a_kernel_that_cheats_trips_the_guard_of_its_kind() {
    if !gpu() {
        return;
    }
    let hopper = Gpu::look(0).is_ok_and(|card| card.capability >= (9, 0));
    for (cheat, guards) in CUDA_CHEATS.iter().zip(CAUGHT) {
        if guards[0].starts_with("overlap") && !hopper {
            continue; // no launch overlaps on this card
        }
        let card = if guards[0] == "wrong answers in timed calls" {
            let case =
                ["bench", "nf4", "--device", "cuda", "--quick", "--case", "bench/2048x8192.f16", "--json"];
            own(OWN, cheat.name, &case).card()
        } else {
            tested(cheat).1
        };
        let tripped = tripped(&card);
        assert!(tripped.contains(&guards[0]), "{} is not seen: {:#?}", cheat.name, card.guards);
        let expected = |guard: &&str| guards.contains(guard) || guards.contains(&ANY);
        assert!(tripped.iter().all(expected), "{}: {tripped:?}", cheat.name);
        assert!(card.challenges[0].points <= 0, "{}: {} points", cheat.name, card.challenges[0].points);
    }
}

#[test]
fn an_honest_kernel_trips_no_guard() {
    if !gpu() {
        return;
    }
    for twin in &CUDA_TWINS {
        let (ran, card) = tested(twin);
        assert!(tripped(&card).is_empty(), "{}: {:#?}", twin.name, card.guards);
        assert!(card.guards.iter().all(|guard| guard.ran), "{}: {:#?}", twin.name, card.guards);
        assert!(unpassed(&card).is_empty(), "{}: {:?}", twin.name, unpassed(&card).first());
        assert_eq!(ran.code, 0, "{}", twin.name);
    }
}

#[test]
fn hints_and_inline_ptx_that_nobody_reaches_win_nothing() {
    if !gpu() {
        return;
    }
    for (kernels, row) in CUDA_IDLE.iter().zip(["custom_asm_works", "uses_cache_eviction"]) {
        let card = own(OWN, kernels.name, &["score", "nf4", "--device", "cuda", "--quick", "--json"]).card();
        let rows = &card.challenges[0].rows;
        let found = rows.iter().find(|found| found.wording == row).expect("a published row");
        assert_eq!((found.fact, found.points), (Truth::Unmet, 0), "{}: {}", kernels.name, found.evidence);
    }
}

#[test]
fn a_kernels_mistake_is_named() {
    if !gpu() {
        return;
    }
    for (kernels, cause) in &CUDA_MISTAKES {
        let (_, card) = tested(kernels);
        let message = unpassed(&card).iter().any(|check| check.detail.contains(cause));
        assert!(message, "{}: {:?}", kernels.name, unpassed(&card).first());
    }
}

/// What a fault's checks say, and whether the steps before are still right.
const FAULTS: [(&str, &str); 6] = [
    ("kernel: leaves its buffers", "an address that belongs to no buffer"),
    ("kernel: stores out of line", "not a multiple of the access's size"),
    ("kernel: traps", "a kernel failed"),
    ("kernel: wants too many threads", "2048 threads (1 to 1024)"),
    ("kernel: wants too much shared memory", "error 1"),
    ("kernel: declares no launch", "has no `dequantize_launch`"),
];

#[test]
fn a_kernel_that_fails_is_its_own_outcome() {
    if !gpu() {
        return;
    }
    for (name, words) in FAULTS {
        let arguments = [&TEST[..], &["--case", "A.12/two-scale-blocks"]].concat();
        let card = own(OWN, name, &arguments).card();
        let wrong: Vec<_> = checks(&card).iter().filter(|check| check.outcome == Outcome::Wrong).collect();
        assert_eq!(wrong.len(), 3, "{name}: {:?}", checks(&card));
        assert!(wrong.iter().all(|check| check.detail.contains(words)), "{name}: {}", wrong[0].detail);
        let before = own(OWN, name, &[&TEST[..], &["--case", "A.10/prime"]].concat()).card();
        assert!(unpassed(&before).is_empty(), "{name} spoils other steps: {:?}", unpassed(&before).first());
    }
}

#[test]
fn a_kernel_that_never_ends_is_ended() {
    if !gpu() {
        return;
    }
    let arguments = [&TEST[..], &["--case", "A.12/prime-bf16"]].concat();
    let card = own(OWN, "kernel: never ends", &arguments).card();
    assert!(checks(&card)[0].detail.contains("time limit"), "{:?}", checks(&card));
}

#[test]
fn a_text_that_does_not_compile_says_where() {
    if !gpu() {
        return;
    }
    let (ran, card) =
        tested(CUDA_FAULTS.iter().find(|kernels| kernels.name.contains("compile")).expect("one"));
    assert!(checks(&card).iter().all(|check| check.outcome == Outcome::DoesNotCompile));
    let words = &checks(&card).iter().find(|check| check.name.starts_with("A.12/")).expect("A.12").detail;
    assert!(words.contains("exercise.cu(") && words.contains("right_anser"), "{words}");
    assert_eq!(ran.code, 1);
}

#[test]
fn an_intermediate_in_a_global_is_no_single_pass() {
    if !gpu() {
        return;
    }
    let arguments = ["score", "nf4", "--device", "cuda", "--quick", "--json"];
    let card = own(OWN, "kernel: keeps an intermediate", &arguments).card();
    assert_eq!(card.challenges[0].rows[0].fact, Truth::Unmet, "{}", card.challenges[0].rows[0].evidence);
}
