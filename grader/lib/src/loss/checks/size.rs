//! E.6: how many rows a chunk has.

use challenges::loss::{Chunked, Cost};

use super::{Check, Rows};

pub(super) const CHECKS: &Rows<Check> = &[
    ("the-most-that-fits", |on, _| {
        let costs = [cost(1_000, 100), cost(0, 90), cost(50, 0)];
        [1_100, 5_050, 99_999]
            .into_iter()
            .try_for_each(|budget| fitting(on.attempt, &costs, 1_000_000, budget))
    }),
    ("evenly", |on, _| {
        [10, 11, 100, 1001].into_iter().try_for_each(|rows| fitting(on.attempt, &[cost(0, 100)], rows, 1_000))
    }),
    ("too-little", |on, _| too_little(on.attempt)),
    ("more-than-enough", |on, _| fitting(on.attempt, &[cost(64, 8), cost(4_096, 0)], 77, usize::MAX)),
    ("any-costs", |on, random| {
        (0..200).try_for_each(|_| {
            let costs: Vec<Cost> =
                (0..=random.below(4)).map(|_| cost(random.below(5_000), random.below(300))).collect();
            let rows = 1 + random.below(3_000);
            fitting(on.attempt, &costs, rows, 5_300 + random.below(100_000))
        })
    }),
];

fn cost(fixed: usize, row: usize) -> Cost {
    Cost { fixed, row }
}

fn too_little(attempt: &dyn Chunked) -> Result<(), String> {
    for costs in [vec![cost(1_000, 100)], vec![cost(0, 100), cost(1_050, 0)]] {
        if let Some(n) = attempt.size(&costs, 50, 1_040) {
            return Err(format!("of {costs:?}, {n} rows do not fit in 1040 bytes, and neither does one"));
        }
    }
    Ok(())
}

/// That a size fits, needs no more chunks than the budget asks for, and makes them nearly equal.
fn fitting(attempt: &dyn Chunked, costs: &[Cost], rows: usize, budget: usize) -> Result<(), String> {
    let fits = |n: usize| costs.iter().all(|cost| cost.of(n) <= budget);
    let about = format!("{rows} rows, {budget} bytes, {costs:?}");
    let Some(n) = attempt.size(costs, rows, budget) else {
        return if fits(1) { Err(format!("{about}: nothing, and one row fits")) } else { Ok(()) };
    };
    if n == 0 || !fits(n) {
        return Err(format!("{about}: {n} rows do not fit"));
    }
    let most = (1..=rows).rev().find(|n| fits(*n)).unwrap_or(1);
    let need = rows.div_ceil(most);
    let got = rows.div_ceil(n);
    if got > need {
        return Err(format!(
            "{about}: expected at most {need} chunks, of up to {most} rows each, found {got} of {n}"
        ));
    }
    let last = rows - (got - 1) * n.min(rows);
    if n.min(rows) - last >= got.max(2) {
        return Err(format!("{about}: {got} chunks of {n} rows leave {last} for the last one"));
    }
    Ok(())
}
