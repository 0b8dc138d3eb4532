//! When operations run, and what is known of that.

use std::collections::BTreeMap;

use super::*;

const SAME: f64 = 1e-9;

fn timeline(schedule: &Schedule, workload: &Workload) -> Timeline {
    check(schedule, workload).unwrap_or_else(|error| panic!("{error}\n{schedule}")).simulate()
}

fn makespan(generator: Generator, shape: Shape, workload: &Workload) -> f64 {
    timeline(&generator(shape, workload).unwrap(), workload).makespan()
}

#[track_caller]
fn assert_same(found: f64, expected: f64) {
    assert!((found - expected).abs() <= SAME * expected.abs().max(1.0), "expected {expected}, found {found}");
}

/// The same costs on every stage; what a forward keeps is all that W reads.
fn with_times(forward: f64, backward: f64, weight: f64, recompute: f64) -> Workload {
    let times = Times { forward, backward, weight, recompute, dequantize: 0.0 };
    Workload::uniform(Stage { times, ..ADAPTER })
}

/// The same without recomputation: F keeps what R would have made.
fn kept(workload: &Workload) -> Workload {
    let held = Held { forward: 12, recompute: 0, weight: 12 };
    let stages = workload.stages.iter().map(|stage| Stage { recomputed: false, held, ..*stage }).collect();
    Workload { stages, ..workload.clone() }
}

/// Makespan, bubble in per cent and the largest peak, for F = R = B = 1 and W = 0.1.
#[test]
fn bubbles_are_those_of_the_definition() {
    let (adapter, kept) = (Workload::uniform(ADAPTER), kept(&Workload::uniform(ADAPTER)));
    let within = |cap| Workload { cap: Some(cap), ..adapter.clone() };
    let (as_1f1b, as_kept, as_1f1b_of_8) = (within(16), within(48), within(20));
    let rows: [(usize, usize, Generator, &Workload, f64, f64, u64); 16] = [
        (4, 8, gpipe, &adapter, 34.1, 27.27, 20),
        (4, 8, one_f_one_b, &adapter, 34.1, 27.27, 16),
        (4, 8, zero_bubble, &adapter, 33.5, 25.97, 49),
        (4, 8, filled, &as_1f1b, 30.8, 19.48, 16),
        (4, 8, filled, &as_kept, 30.6, 18.95, 40),
        (4, 8, filled, &adapter, 30.1, 17.61, 100),
        (4, 8, one_f_one_b, &kept, 23.1, 27.27, 48),
        (4, 8, zero_bubble, &kept, 22.5, 25.33, 48),
        (4, 8, filled, &kept, 22.1, 23.98, 96),
        (8, 32, gpipe, &adapter, 120.9, 17.95, 44),
        (8, 32, one_f_one_b, &adapter, 120.9, 17.95, 20),
        (8, 32, zero_bubble, &adapter, 119.5, 16.99, 97),
        (8, 32, filled, &as_1f1b_of_8, 113.2, 12.37, 20),
        (8, 32, filled, &adapter, 110.1, 9.90, 392),
        (8, 32, one_f_one_b, &kept, 81.9, 17.95, 96),
        (8, 32, filled, &kept, 78.1, 13.96, 384),
    ];
    for (ranks, micro_batches, generator, workload, makespan, bubble, peak) in rows {
        let schedule = generator(line(ranks, micro_batches), workload).unwrap();
        let checked = check(&schedule, workload).unwrap();
        let timeline = checked.simulate();
        assert_same(timeline.makespan(), makespan);
        assert_same((10_000.0 * timeline.bubble()).round() / 100.0, bubble);
        assert_eq!(checked.peaks().iter().max(), Some(&peak));
    }
}

/// The idle time of GPipe and of 1F1B is that of one micro-batch on its way through the other ranks.
#[test]
fn gpipe_and_one_f_one_b_have_their_closed_form() {
    let mut draw = Draw(11);
    for _ in 0..200 {
        let (p, m) = (1 + draw.below(8), 1 + draw.below(20));
        let [f, b, w, r] = [(); 4].map(|()| 0.25 + draw.time());
        let workload = with_times(f, b, w, r);
        let pass = f + r + b + w;
        assert_same(makespan(gpipe, line(p, m), &workload), (m + p - 1) as f64 * pass);
        assert_same(makespan(one_f_one_b, line(p, m), &workload), (m + p - 1) as f64 * pass);
        let bubble = timeline(&gpipe(line(p, m), &workload).unwrap(), &workload).bubble();
        assert_same(bubble, (p - 1) as f64 / (m + p - 1) as f64);
        assert_same(makespan(one_f_one_b, line(p, m), &kept(&workload)), (m + p - 1) as f64 * (f + b + w));
    }
}

/// Of v chunks each has a v-th of the work, so idle time is a v-th, too.
#[test]
fn interleaved_divides_the_idle_time_by_its_chunks() {
    let mut draw = Draw(12);
    for _ in 0..200 {
        let (p, v, groups) = (1 + draw.below(6), 2 + draw.below(3), 1 + draw.below(4));
        let [f, b, w, r] = [(); 4].map(|()| 0.25 + draw.time());
        let shape = Shape::new(p, v, p * groups, Placement::Looped).unwrap();
        let pass = f + r + b + w;
        let expected = (p * groups * v + p - 1) as f64 * pass;
        assert_same(makespan(interleaved, shape, &with_times(f, b, w, r)), expected);
    }
}

/// ZB-H1 with equal times of F, B, W has a third of 1F1B's idle time, `(p - 1)(F + B - W)` (arXiv 2401.10241).
#[test]
fn zero_bubble_has_its_closed_form() {
    for p in 1..9 {
        for m in p..3 * p {
            let found = makespan(zero_bubble, line(p, m), &Workload::uniform(PLAIN));
            assert_same(found, (3 * m + p - 1) as f64);
        }
    }
}

/// With equal F, R and B, and without a cap, the rule of challenge B gives the shortest schedule.
#[test]
fn equal_times_reach_the_bound() {
    for p in 1..9 {
        for m in 1..33 {
            for w in [0.0, 0.125, 0.5, 1.0, 2.0] {
                let workload = with_times(1.0, 1.0, w, 1.0);
                let least = bound(line(p, m), &workload).unwrap();
                assert_same(makespan(filled, line(p, m), &workload), least);
            }
            let workload = with_times(1.0, 1.0, 0.125, 1.0);
            let put_off = (p - 1) as f64 * 2.0 + 3.0 * m as f64 + 0.125;
            let fits = (m - 1) as f64 * 0.125 <= (p - 1) as f64;
            assert!(!fits || (bound(line(p, m), &workload).unwrap() - put_off).abs() < SAME);
        }
    }
}

/// With equal F, R and B, and whatever the cap, the rule gives the shortest schedule; each further micro-batch that the
/// cap lets wait for its W saves one W.
#[test]
fn a_cap_costs_the_weights_that_it_does_not_let_wait() {
    for p in 1..9 {
        for m in [1, 2, 3, 4, 7, 8, 12, 16, 32] {
            for late in 1..=m {
                for w in [0.125, 0.5, 1.0] {
                    let cap = Some((12 * late + p.min(m)) as u64);
                    let workload = Workload { cap, ..with_times(1.0, 1.0, w, 1.0) };
                    assert_same(
                        makespan(filled, line(p, m), &workload),
                        bound(line(p, m), &workload).unwrap(),
                    );
                }
            }
        }
    }
    for late in 1..9 {
        let cap = Some(12 * late + 4);
        let workload = Workload { cap, ..with_times(1.0, 1.0, 0.125, 1.0) };
        assert_same(bound(line(4, 8), &workload).unwrap(), 30.125 + 0.125 * (8 - late) as f64);
    }
}

/// A message that is under way delays the first forward and the last gradient, and nothing in between.
#[test]
fn latency_is_paid_once_down_and_once_up() {
    for latency in [0.0625, 0.25, 0.5] {
        let workload = Workload { latency, ..with_times(1.0, 1.0, 0.125, 1.0) };
        assert_same(makespan(filled, line(4, 8), &workload), 30.125 + 6.0 * latency);
        assert_same(makespan(gpipe, line(4, 8), &workload), 11.0 * 3.125 + 6.0 * latency);
        assert!(makespan(one_f_one_b, line(4, 8), &workload) > 11.0 * 3.125 + 12.0 * latency);
    }
}

/// A D of its own runs while a rank waits, one within an operation does not.
#[test]
fn dequantisation_runs_while_a_rank_waits() {
    let with = |reads| {
        let times = Times { dequantize: 0.5, ..PLAIN.times };
        let times = Times { weight: 0.125, ..times };
        let buffer = Some(Buffer { chunks: 1, reads });
        Workload { buffer, ..Workload::uniform(Stage { times, ..ADAPTER }) }
    };
    let kept = with(None);
    assert_same(makespan(one_f_one_b, line(4, 8), &kept), 11.0 * 3.125 + 4.0 * 0.5);
    assert_same(makespan(filled, line(4, 8), &kept), 30.125 + 0.5);
    assert_same(bound(line(4, 8), &kept).unwrap(), 30.125 + 0.5);
    let read_once = with(Some(1));
    let filled = makespan(filled, line(4, 8), &read_once);
    assert_same(makespan(one_f_one_b, line(4, 8), &read_once), 11.0 * 4.125);
    assert!(filled < 41.0 && filled >= bound(line(4, 8), &read_once).unwrap(), "{filled}");
}

/// What a part of the work needs, written down a second time.
fn before(kind: Kind, stage: usize) -> Vec<(Kind, usize)> {
    match kind {
        Kind::Dequantize => vec![],
        Kind::Forward => vec![(Kind::Forward, stage.wrapping_sub(1))],
        Kind::Recompute => vec![(Kind::Forward, stage)],
        Kind::Backward => vec![(Kind::Forward, stage), (Kind::Recompute, stage), (Kind::Backward, stage + 1)],
        Kind::Weight => vec![(Kind::Backward, stage)],
    }
}

/// Every part begins when all that it needs is there, and no operation waits without a cause.
#[test]
fn simulated_times_respect_every_dependency() {
    for (name, schedule, workload) in Draw(13).schedules(100) {
        let (timeline, shape) = (timeline(&schedule, &workload), schedule.shape());
        let parts: BTreeMap<_, _> = schedule
            .sites()
            .flat_map(|at| {
                let stage = shape.stage(at.rank, at.operation.chunk);
                at.operation.kinds.iter().map(move |kind| ((kind, stage, at.operation.micro_batch), at))
            })
            .collect();
        let span = |at: &Site| timeline.spans()[at.rank][at.position];
        let mut earliest: BTreeMap<Site, f64> = BTreeMap::new();
        for ((kind, stage, i), at) in &parts {
            for (kind, other) in before(*kind, *stage) {
                let Some(source) = parts.get(&(kind, other, *i)).filter(|source| *source != at) else {
                    continue;
                };
                let arrival = span(source).end + if source.rank == at.rank { 0.0 } else { workload.latency };
                let known = earliest.entry(*at).or_default();
                *known = known.max(arrival);
            }
        }
        for at in schedule.sites() {
            let free = at.position.checked_sub(1).map_or(0.0, |before| timeline.spans()[at.rank][before].end);
            let expected = free.max(earliest.get(&at).copied().unwrap_or(0.0));
            assert!((span(&at).start - expected).abs() < SAME, "{name}: {at}: {:?}, {expected}", span(&at));
        }
        for (rank, (line, busy)) in schedule.ranks().iter().zip(timeline.busy()).enumerate() {
            let stage = |operation: &Operation| shape.stage(rank, operation.chunk);
            let takes = |operation: &Operation| -> f64 {
                operation.kinds.iter().map(|kind| workload.time(kind, stage(operation))).sum()
            };
            assert_same(line.iter().map(takes).sum(), busy);
        }
    }
}

#[test]
fn no_schedule_is_shorter_than_the_bound() {
    for (name, schedule, workload) in Draw(14).schedules(300) {
        let (timeline, shape) = (timeline(&schedule, &workload), schedule.shape());
        let (makespan, least) = (timeline.makespan(), bound(shape, &workload).unwrap());
        assert!(makespan >= least - SAME, "{name}: {makespan} < {least}\n{schedule}{workload:?}");
        assert!(timeline.busy().iter().all(|busy| *busy <= makespan + SAME));
        let of_stage = |stage| workload.time(Kind::Forward, stage) + workload.time(Kind::Backward, stage);
        assert!(least >= (0..shape.stages()).map(of_stage).sum::<f64>() - SAME, "{name}: the critical path");
        assert!((0.0..1.0).contains(&timeline.bubble()));
    }
}

/// The measured spans of a run are judged as simulated ones are.
#[test]
fn measured_spans_have_a_bubble_too() {
    let span = |start, end| Span { start, end };
    let measured = Timeline::new(vec![vec![span(0.0, 1.0), span(2.0, 4.0)], vec![span(1.5, 3.5)]]);
    assert_eq!(measured.busy(), [3.0, 2.0]);
    assert_same(measured.makespan(), 4.0);
    assert_same(measured.bubble(), 0.375);
    let adapter = Workload::uniform(ADAPTER);
    let simulated = timeline(&filled(line(4, 8), &adapter).unwrap(), &adapter);
    assert_eq!(Timeline::new(simulated.spans().to_vec()), simulated);
    assert_same(Timeline::new(vec![vec![]; 3]).bubble(), 0.0);
}

/// The picture at the top of `schedule/picture.rs`.
#[test]
fn a_timeline_prints_as_a_picture() {
    let plain = Workload::uniform(PLAIN);
    let schedule = one_f_one_b(line(2, 2), &plain).unwrap();
    let picture = timeline(&schedule, &plain).picture(&schedule, 36);
    let documented = include_str!("../picture.rs").lines().map(|line| line.trim_start_matches("//! "));
    let expected: Vec<&str> = documented.skip_while(|line| !line.starts_with("0: ")).take(2).collect();
    assert_eq!(picture.lines().collect::<Vec<_>>(), expected);
    let nothing = Workload::uniform(Stage { times: Times::default(), ..PLAIN });
    assert_eq!(timeline(&schedule, &nothing).picture(&schedule, 3), "0: ...\n1: ...\n");
}

/// Durations that are the workload's give its simulation; one operation that takes longer moves what waits for it.
#[test]
fn durations_that_were_measured_are_replayed() {
    for (name, schedule, workload) in Draw(15).schedules(60) {
        let checked = check(&schedule, &workload).unwrap();
        let simulated = checked.simulate();
        let takes = |line: &Vec<Span>| line.iter().map(|span| span.end - span.start).collect::<Vec<f64>>();
        let mut durations: Vec<Vec<f64>> = simulated.spans().iter().map(takes).collect();
        assert_same(checked.replay(&durations).makespan(), simulated.makespan());
        durations[0][0] += 5.0;
        let late = checked.replay(&durations);
        let moved = late.spans().iter().flatten().zip(simulated.spans().iter().flatten());
        for (late, on_time) in moved {
            assert!((on_time.start - SAME..=on_time.start + 5.0 + SAME).contains(&late.start), "{name}");
        }
    }
}
