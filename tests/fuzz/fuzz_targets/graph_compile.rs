//! Fuzz: any text, read as a graph and compiled with all passes at odd sizes.
//!
//! Nothing may panic, overflow or run out of memory: a text is refused, or a plan comes out that is checked before it
//! could run. How sizes are chosen, and what is too large, is the grader's own (`graph FILE`).

#![no_main]

extern crate solutions as _; // what `Solution` calls

use std::collections::BTreeMap;

use challenges::graph::Solution;
use compiler::compile::{Level, compile};
use libfuzzer_sys::fuzz_target;
use reference::graph::Graph;

#[allow(dead_code)]
#[path = "../../../grader/lib/src/graph/trial/cost.rs"]
mod cost;
#[allow(dead_code)]
#[path = "../../../grader/lib/src/random.rs"]
mod random;
#[path = "../../../grader/lib/src/graph/trial/sizes.rs"]
mod sizes;

fuzz_target!(|text: &str| {
    let Ok(graph) = Graph::parse(text) else { return };
    for seed in 0..3 {
        let Ok(sizes) = sizes::sizes(&graph, &BTreeMap::new(), seed) else { return };
        if cost::Cost::of(&graph, &sizes).is_ok_and(|cost| cost.is_cheap()) {
            _ = compile(&Solution, &graph, &sizes, Level::O2.options());
        }
    }
});
