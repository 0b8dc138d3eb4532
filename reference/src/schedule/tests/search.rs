//! The search, and how near the generators come to what it finds.

use std::collections::BTreeMap;

use super::*;

const SAME: f64 = 1e-9;
const MOST: usize = 300_000;

/// Every order of one rank in which each part follows what it needs there, micro-batches in any order.
fn orders(chains: &[Vec<Operation>]) -> Vec<Vec<Operation>> {
    if chains.iter().all(Vec::is_empty) {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (i, chain) in chains.iter().enumerate().filter(|(_, chain)| !chain.is_empty()) {
        let mut left = chains.to_vec();
        left[i].remove(0);
        for mut order in orders(&left) {
            order.insert(0, chain[0]);
            all.push(order);
        }
    }
    all
}

/// The least makespan of all combinations of all orders, without any thought; `None` if none can be run.
fn least_of_all(shape: Shape, workload: &Workload) -> Option<f64> {
    let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Dequantize && workload.asks(*kind, 0));
    let kinds: Vec<Kind> = kinds.collect();
    let chain = |i| kinds.iter().map(|kind| Operation::one(*kind, i, 0)).collect();
    let chains: Vec<Vec<Operation>> = (0..shape.micro_batches()).map(chain).collect();
    let orders = orders(&chains);
    let mut least: Option<f64> = None;
    for number in 0..orders.len().pow(shape.ranks() as u32) {
        let digit = |rank| number / orders.len().pow(rank as u32) % orders.len();
        let lines = (0..shape.ranks()).map(|rank| orders[digit(rank)].clone()).collect();
        let schedule = Schedule::new(shape, lines).unwrap();
        if let Ok(checked) = check(&schedule, workload) {
            let makespan = checked.simulate().makespan();
            least = Some(least.map_or(makespan, |least| least.min(makespan)));
        }
    }
    least
}

fn drawn(draw: &mut Draw, ranks: usize, recomputed: bool, trained: bool) -> Workload {
    let stages: Vec<Stage> = (0..ranks).map(|_| draw.stage(recomputed, trained)).collect();
    let needed = stages.iter().map(Stage::held_by_backward).max().unwrap();
    let cap = Some(needed + draw.below(8) as u64).filter(|_| draw.coin());
    let latency = draw.one_of(&[0.0, 0.0, 0.5]);
    Workload { stages, latency, cap, ..Workload::uniform(PLAIN) }
}

#[test]
fn the_search_finds_what_trying_everything_finds() {
    let mut draw = Draw(21);
    for (ranks, micro_batches, recomputed, trained, times) in [
        (2, 2, false, true, 12),
        (2, 2, true, true, 3),
        (3, 2, false, true, 2),
        (2, 3, false, false, 4),
        (3, 2, false, false, 6),
    ] {
        for _ in 0..times {
            let shape = line(ranks, micro_batches);
            let workload = drawn(&mut draw, ranks, recomputed, trained);
            let least = least_of_all(shape, &workload);
            let found = shortest(shape, &workload, MOST).unwrap();
            assert_eq!(found.map(|found| found.makespan), least, "{workload:?}");
        }
    }
}

/// And the schedule that it finds can be run, in that time. How often each generator is as short is what was counted,
/// for workloads with recomputation and trained weights, whose stages differ.
#[test]
fn no_generator_undercuts_the_search() {
    let mut draw = Draw(22);
    let generators = super::generators().filter(|(name, _)| *name != "interleaved");
    let (mut shortest_of_all, mut at_the_bound, mut worst) = (BTreeMap::new(), 0, 1.0_f64);
    for (ranks, micro_batches) in [(1, 3), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3)] {
        for _ in 0..12 {
            let shape = line(ranks, micro_batches);
            let workload = Workload { cap: None, ..drawn(&mut draw, ranks, true, true) };
            let found = shortest(shape, &workload, MOST).unwrap().unwrap();
            let makespan = |schedule: &Schedule| check(schedule, &workload).unwrap().simulate().makespan();
            assert!((makespan(&found.schedule) - found.makespan).abs() < SAME);
            let least = bound(shape, &workload).unwrap();
            assert!(found.makespan >= least - SAME);
            at_the_bound += usize::from(found.makespan <= least + SAME);
            for (name, generator) in generators.clone() {
                let time = makespan(&generator(shape, &workload).unwrap());
                assert!(time >= found.makespan - SAME, "{name}: {time} < {}", found.makespan);
                *shortest_of_all.entry(name).or_insert(0) += usize::from(time <= found.makespan + SAME);
                worst = if name == "filled" { worst.max(time / found.makespan) } else { worst };
            }
        }
    }
    let counted = [("1f1b", 13), ("filled", 77), ("gpipe", 12), ("zb-h1", 28)];
    assert_eq!(
        shortest_of_all,
        BTreeMap::from(counted),
        "of 84; {at_the_bound} at the bound, filled within {worst}"
    );
    assert_eq!((at_the_bound, worst), (76, 1.09375));
}

/// Where F, R and B take equally long no order is shorter than ours, under any cap.
#[test]
fn filled_is_shortest_where_times_are_equal() {
    for (weight, cap) in [(0.125, None), (0.125, Some(16)), (0.125, Some(30)), (1.0, None), (1.0, Some(30))] {
        let times = Times { weight, ..PLAIN.times };
        let workload = Workload { cap, ..Workload::uniform(Stage { times, ..ADAPTER }) };
        for (ranks, micro_batches) in [(1, 3), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (4, 2)] {
            let shape = line(ranks, micro_batches);
            let found = shortest(shape, &workload, MOST).unwrap().unwrap();
            let ours = check(&filled(shape, &workload).unwrap(), &workload).unwrap().simulate().makespan();
            assert!(
                (ours - found.makespan).abs() < SAME,
                "{shape}: expected {}, found {ours}",
                found.makespan
            );
        }
    }
}

/// Several stages a rank, in both placements.
#[test]
fn chunks_are_searched_too() {
    let workload = Workload::uniform(Stage { trained: false, ..PLAIN });
    for placement in [Placement::Looped, Placement::V] {
        let shape = Shape::new(2, 2, 2, placement).unwrap();
        let found = shortest(shape, &workload, MOST).unwrap().unwrap();
        let makespan = |schedule: &Schedule| check(schedule, &workload).unwrap().simulate().makespan();
        assert!((makespan(&found.schedule) - found.makespan).abs() < SAME);
        assert!(found.makespan >= bound(shape, &workload).unwrap() - SAME);
        assert!(makespan(&gpipe(shape, &workload).unwrap()) >= found.makespan);
        if placement == Placement::Looped {
            assert!(makespan(&interleaved(shape, &workload).unwrap()) >= found.makespan);
        }
    }
}

#[test]
fn a_search_that_is_too_long_says_so() {
    let plain = Workload::uniform(PLAIN);
    let refused = |shape, workload: &Workload, most| shortest(shape, workload, most).unwrap_err().to_string();
    assert_eq!(refused(line(3, 8), &plain, MOST), "operations: expected at most 64, for a search, found 72");
    let huge = Shape::new(10_000, 10_000, 1_000_000, Placement::V).unwrap();
    assert!(refused(huge, &plain, MOST).starts_with("operations: expected at most 64"));
    assert_eq!(refused(line(3, 3), &plain, 5), "the search did not end within 5 states");
    let buffer = Some(Buffer { chunks: 1, reads: None });
    let loads = Workload { buffer, ..plain.clone() };
    assert_eq!(refused(line(2, 2), &loads, MOST), "buffer: expected none, for a search, found one");
    let tight = Workload { cap: Some(0), ..plain };
    assert!(shortest(line(2, 2), &tight, MOST).unwrap().is_none());
}
