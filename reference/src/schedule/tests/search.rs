//! The search, and how near the generators come to what it finds.

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
    Workload { stages, cap, latency, ..Workload::uniform(PLAIN) }
}

#[test]
fn the_search_finds_what_trying_everything_finds() {
    let mut draw = Draw(21);
    for (ranks, micro_batches, recomputed, trained, times) in
        [(2, 2, false, true, 12), (2, 2, true, true, 3), (3, 2, false, true, 2), (2, 3, false, false, 4), (3, 2, false, false, 6)]
    {
        for _ in 0..times {
            let shape = line(ranks, micro_batches);
            let workload = drawn(&mut draw, ranks, recomputed, trained);
            let least = least_of_all(shape, &workload);
            let found = shortest(shape, &workload, MOST).unwrap();
            assert_eq!(found.map(|found| found.makespan), least, "{workload:?}");
        }
    }
}

#[test]
fn no_generator_undercuts_the_search() {
    let mut draw = Draw(22);
    let mut reached = [0; GENERATORS.len()];
    let (mut tried, mut bounds, mut gave_up, mut most) = (0, 0, 0, 0);
    let mut worst: f64 = 1.0;
    for (ranks, micro_batches) in [(1, 3), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3)] {
        for _ in 0..12 {
            let shape = line(ranks, micro_batches);
            let workload = Workload { cap: None, ..drawn(&mut draw, ranks, true, true) };
            let start = std::time::Instant::now();
            let Ok(found) = shortest(shape, &workload, MOST) else { gave_up += 1; println!("gave up {ranks} {micro_batches} {:?}", start.elapsed()); continue };
            let found = found.unwrap();
            most = most.max(found.states);
            let simulated = check(&found.schedule, &workload).unwrap().simulate().makespan();
            assert!((simulated - found.makespan).abs() < SAME);
            let least = bound(shape, &workload).unwrap();
            assert!(found.makespan >= least - SAME);
            tried += 1;
            bounds += usize::from(found.makespan <= least + SAME);
            for (i, (name, generator)) in GENERATORS.iter().enumerate().filter(|(_, g)| g.0 != "interleaved") {
                let schedule = generator(shape, &workload).unwrap();
                let makespan = check(&schedule, &workload).unwrap().simulate().makespan();
                assert!(makespan >= found.makespan - SAME, "{name} {makespan} < {}", found.makespan);
                reached[i] += usize::from(makespan <= found.makespan + SAME);
                if *name == "filled" { worst = worst.max(makespan / found.makespan); }
            }
        }
    }
    println!("{tried} tried, {bounds} reach bound, {gave_up} gave up, most states {most}; reached {reached:?}, worst filled {worst}");
}

#[test]
fn uniform_stats() {
    for (w, cap) in [(0.1, None), (0.1, Some(16)), (0.1, Some(30)), (1.0, None), (1.0, Some(30))] {
    for (ranks, micro_batches) in [(2, 1), (2, 2), (2, 3), (2,4), (3, 1), (3, 2), (3, 3), (3,4),(4,2),(4,3)] {
        let shape = line(ranks, micro_batches);
        let mut stage = ADAPTER; stage.times.weight = w;
        let workload = Workload { cap, ..Workload::uniform(stage) };
        let start = std::time::Instant::now();
        let found = shortest(shape, &workload, 3_000_000);
        print!("w {w} cap {cap:?} p {ranks} m {micro_batches}: ");
        match found { Ok(Some(f)) => print!("least {:.2} states {} {:?} ", f.makespan, f.states, start.elapsed()), Ok(None) => print!("none "), Err(e) => print!("{e} {:?}", start.elapsed()) }
        for (name, generator) in GENERATORS.iter().filter(|g| g.0 != "interleaved") {
            let schedule = generator(shape, &workload).unwrap();
            match check(&schedule, &workload) { Ok(c) => print!("{name} {:.2} ", c.simulate().makespan()), Err(_) => print!("{name} over ") }
        }
        println!("bound {:.2}", bound(shape, &workload).unwrap());
    }}
}
