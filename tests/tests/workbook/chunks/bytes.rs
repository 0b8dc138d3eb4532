//! Bytes above inputs and returned gradients, counted in the grader's own process.

use challenges::loss::run::{Runner, Size};
use challenges::loss::{Solution, Trains};
use kernels::Cpu;
use reference::graph::Dtype;
use reference::loss::Reduction;
use scorecard::Scorecard;
use tests::program::{Ran, own};

use super::drawn::{self, Sizes};

const OWN: &str = env!("CARGO_BIN_EXE_own");

/// How far what is stated may be from what is counted.
const NEAR: f64 = 0.02;

#[test]
fn stated_bytes_are_those_that_are_counted_and_at_most_half_of_all_logits() {
    let ran: Ran = own(OWN, "an honest chunker", &["bench", "loss", "--quick", "--json"]);
    let card = ran.card();
    for of in ["loss.bytes", "loss.policy.bytes"] {
        let [whole, chunked, formula, rows] =
            ["whole", "chunked", "formula", "rows"].map(|part| number(&card, &format!("{of}.{part}")));
        println!("{of}: {chunked} B in chunks of {rows}, stated {formula} B, whole {whole} B");
        assert!((formula / chunked - 1.0).abs() <= NEAR, "{of}: stated {formula}, counted {chunked}");
        assert!(chunked <= 0.5 * whole, "{of}: {chunked} B in chunks, {whole} B whole");
    }
}

#[test]
fn a_row_takes_its_logits_once_in_their_own_type_and_sums_nothing_beside_themselves() {
    let sizes = Sizes { sequences: 3, length: 4, width: 64, vocab: 4096 };
    let (width, vocab) = (sizes.width, sizes.vocab);
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        for sums in [Dtype::F32, dtype] {
            let mut case = drawn::plain(sizes, Reduction::Mean, [true; 3], 3).typed(dtype, sums);
            case.problem.trains = Trains { bias: false, ..case.problem.trains };
            case.problem.bias = false;
            let device = Cpu::with_threads(2);
            let mut runner = Runner::new(&device, &challenges::graph::Solution, &Solution, &case.problem);
            let costs = runner.costs(Size::Rows(12), 12).expect("costs");
            let row = costs.iter().map(|cost| cost.row).max().expect("a step");
            let fixed = costs.iter().map(|cost| cost.fixed).max().expect("a step");
            let logits = vocab * dtype.bytes();
            assert!((logits..logits + 16 * width).contains(&row), "{dtype:?} in {sums:?}: {row} bytes a row");
            assert!(fixed < 2 * width * vocab / 4, "{dtype:?} in {sums:?}: {fixed} bytes for all rows");
        }
    }
}

fn number(card: &Scorecard, name: &str) -> f64 {
    let measured = card.challenges.iter().find_map(|challenge| challenge.measurements.get(name));
    measured.unwrap_or_else(|| panic!("there is no `{name}`")).value
}
