//! C.2: the sizes that a symbol is padded to.

use challenges::graph::Compile;
use reference::graph::Facts;

use super::{Check, Rows};

pub(super) const CHECKS: &Rows<Check> = &[
    ("a-length", |trial| buckets(trial.passes, Facts::range(1, 4096))),
    ("a-batch", |trial| buckets(trial.passes, Facts::range(1, 1 << 16))),
    ("by-eight", |trial| buckets(trial.passes, Facts::range(8, 4100).multiple_of(8))),
    ("one-size", |trial| buckets(trial.passes, Facts::range(77, 77))),
    ("from-the-middle", |trial| buckets(trial.passes, Facts::range(1000, 3001))),
    ("huge", |trial| buckets(trial.passes, Facts::range(0, 1 << 40))),
];

fn buckets(attempt: &dyn Compile, facts: Facts) -> Result<(), String> {
    let buckets = attempt.buckets(facts);
    let first = |wrong: &dyn Fn(i64, i64) -> bool| buckets.windows(2).find(|pair| wrong(pair[0], pair[1]));
    let about = format!("of a symbol {facts}, the buckets {buckets:?}");
    if let Some(size) = buckets.iter().find(|size| !facts.hold(**size)) {
        return Err(format!("{about}: {size} is no value of the symbol"));
    }
    if let Some([a, b]) = first(&|a, b| a >= b) {
        return Err(format!("{about}: {b} does not come after {a}"));
    }
    let largest = facts.max / facts.multiple * facts.multiple;
    if buckets.last() != Some(&largest) {
        return Err(format!("{about}: the last one has to be {largest}, or the largest sizes have none"));
    }
    if let Some([a, b]) = first(&|a, b| a >= 8 * facts.multiple && b > 2 * (a + 1)) {
        return Err(format!("{about}: {} is padded to {b}, more than twice its size", a + 1));
    }
    let octaves = (facts.max as f64 / facts.min.max(1) as f64).log2();
    let most = 3.0 * octaves + 4.0;
    if buckets.len() as f64 > most {
        return Err(format!(
            "{about}: {} compilations for {octaves:.1} octaves, three each are plenty",
            buckets.len()
        ));
    }
    Ok(())
}
