//! Bytes above inputs and returned gradients, counted in the grader's own process.

use grader::scorecard::Scorecard;
use tests::program::{Ran, own};

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

fn number(card: &Scorecard, name: &str) -> f64 {
    let measured = card.challenges.iter().find_map(|challenge| challenge.measurements.get(name));
    measured.unwrap_or_else(|| panic!("there is no `{name}`")).value
}
