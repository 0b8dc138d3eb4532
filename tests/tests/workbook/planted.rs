//! Contract: a planted bug is called by its name, and a report reads like a good compiler error.

use scorecard::{Check, Outcome, Scorecard};
use tests::attempts::PLANTED;
use tests::program::{checks, own};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// What a bug is called, and the checks that have to say so.
struct Named {
    bug: &'static str,
    cause: &'static str,
    checks: &'static [&'static str],
}

const fn named(bug: &'static str, cause: &'static str, checks: &'static [&'static str]) -> Named {
    Named { bug, cause, checks }
}

const NAMED: [Named; 14] = [
    named(
        "swap nibbles",
        "swapped nibbles",
        &["A.1/one-block", "A.3/plain", "A.5/prime-f16", "A.5/prime-bf16", "A.6/prime-f32"],
    ),
    named("shift a block", "block off by one", &["A.5/prime-f16", "A.5/block-32-bf16", "A.6/block-512-f32"]),
    named(
        "forget the second level",
        "second level forgotten",
        &["A.4/every-code", "A.4/offset", "A.5/prime-f16", "A.6/prime-f32"],
    ),
    named(
        "forget the second scale",
        "second-level scale forgotten",
        &["A.4/every-code", "A.4/own-table", "A.5/prime-bf16", "A.6/prime-f32"],
    ),
    named("forget the offset", "offset forgotten", &["A.4/every-code", "A.5/prime-f16", "A.6/prime-bf16"]),
    named(
        "fuse multiply and add",
        "fused multiply-add",
        &["A.4/fused-multiply-add", "A.4/every-code", "A.5/more-blocks-than-threads-f32"],
    ),
    named(
        "round the scale to f16",
        "scale rounded to f16",
        &["A.4/single-level", "A.4/every-code", "A.5/prime-f32", "A.5/prime-f16", "A.6/prime-bf16"],
    ),
    named(
        "drop the last odd element",
        "tail dropped",
        &["A.1/odd-length", "A.3/odd-length", "A.5/prime-f16"],
    ),
    named(
        "drop the short block",
        "tail dropped",
        &["A.5/ragged-tail-f16", "A.5/prime-bf16", "A.6/prime-f32"],
    ),
    named(
        "write past the tail",
        "tail not masked",
        &["A.5/odd-length-f16", "A.5/prime-bf16", "A.6/prime-f32"],
    ),
    named("take 32 values a block", "block of half the size", &["A.5/prime-f16", "A.5/prime-f32"]),
    named("cut to bf16", "cut instead of rounded", &["A.5/prime-bf16", "A.6/block-4096-bf16"]),
    named("clamp at the largest f16", "f16 overflow", &["A.5/prime-f16", "A.6/more-blocks-than-threads-f16"]),
    named("flush subnormals", "subnormals flushed", &["A.5/prime-f16", "A.6/more-blocks-than-threads-f16"]),
];

fn check<'a>(card: &'a Scorecard, name: &str) -> &'a Check {
    let found = checks(card).iter().find(|check| check.name == name);
    found.unwrap_or_else(|| panic!("no check is called {name}"))
}

/// The parts that a report of a wrong number has: where, got, want, how far, the rule.
fn has_its_parts(what: &str, detail: &str) {
    let outside = detail.contains("outside its output");
    let codes = detail.contains("codes differ");
    let parts: &[&str] = match (outside, codes) {
        (true, _) => &["the element 1 past the last", "  rule "],
        (_, true) => &["the first is code", "  got  ", "  want ", "  rule "], // a code is no number: no ulps
        _ => &["the first is ", "  got  ", "  want ", "  off  ", "  rule "],
    };
    for part in parts {
        assert!(detail.contains(part), "{what} does not tell {part:?}:\n{detail}");
    }
}

#[test]
fn a_planted_bug_is_called_by_its_name() {
    for Named { bug, cause, checks } in NAMED {
        let card = own(OWN, bug, &["test", "nf4", "--case", "A.", "--json", "--seed", "0x1"]).card();
        for name in checks {
            let check = check(&card, name);
            let what = format!("{bug}, {name}");
            assert_eq!(check.outcome, Outcome::Wrong, "{what}");
            let likely = format!("likely cause: {cause}");
            assert!(check.detail.contains(&likely), "{what} is not called {cause:?}:\n{}", check.detail);
            has_its_parts(&what, &check.detail);
        }
    }
}

#[test]
fn a_planted_bug_is_called_by_its_name_whatever_the_seed() {
    for seed in ["2", "0xfeed", "18446744073709551615"] {
        for Named { bug, cause, checks } in NAMED {
            let name = *checks.last().expect("each bug has its checks");
            let card = own(OWN, bug, &["test", "nf4", "--case", name, "--json", "--seed", seed]).card();
            let detail = &check(&card, name).detail;
            assert!(detail.contains(&format!("likely cause: {cause}")), "{bug}, {name}, {seed}:\n{detail}");
        }
    }
}

#[test]
fn a_replayed_check_fails_again_with_the_same_words() {
    for Named { bug, checks, .. } in NAMED {
        let card = own(OWN, bug, &["test", "nf4", "--case", checks[0], "--json"]).card();
        let check = check(&card, checks[0]);
        let command: Vec<&str> = check.replay.split(' ').collect();
        let case = format!("nf4:{}", check.name);
        assert_eq!(command, ["cargo", "grader", "replay", &case, "--seed", &card.seed]);
        let again = own(OWN, bug, &command[2..]);
        assert_eq!(again.code, 1, "{bug}");
        let words = again.stdout.split("\n\ncalls (>)").next().unwrap_or_default(); // what was called comes after
        assert_eq!(words.trim_end(), format!("{}: wrong\n{}", check.name, check.detail), "{bug}");
    }
}

#[test]
fn every_planted_bug_is_tried() {
    for bug in &PLANTED {
        assert!(NAMED.iter().any(|named| named.bug == bug.name), "{:?}", bug.name);
    }
}
