//! What can be run, and what is refused with its name.

use super::*;

#[test]
fn every_generator_makes_what_can_be_run() {
    for (name, schedule, workload) in Draw(3).schedules(300) {
        let checked = check(&schedule, &workload);
        assert!(checked.is_ok(), "{name}: {:?}\n{schedule}{workload:?}", checked.err());
    }
}

#[test]
fn a_dropped_operation_is_missed() {
    let mut draw = Draw(4);
    for (_, schedule, workload) in draw.schedules(60) {
        let mut lines = lines(&schedule);
        let rank = draw.below(lines.len());
        let at = draw.below(lines[rank].len());
        let dropped = lines[rank].remove(at);
        let spoilt = Schedule::new(schedule.shape(), lines).unwrap();
        let error = check(&spoilt, &workload).map(|_| ()).expect_err("it is missing");
        if dropped.has_micro_batch() {
            let Error::Missing { rank: found, operation } = error else { panic!("{error}") };
            assert_eq!(
                (found, operation.micro_batch, operation.chunk),
                (rank, dropped.micro_batch, dropped.chunk)
            );
            assert!(dropped.kinds.contains(operation.kinds.iter().next().unwrap()));
        } else {
            assert!(matches!(error, Error::NotDequantized { .. }), "{error}");
        }
    }
}

#[test]
fn a_doubled_operation_is_found() {
    let mut draw = Draw(5);
    for (_, schedule, workload) in draw.schedules(60) {
        let mut lines = lines(&schedule);
        let rank = draw.below(lines.len());
        let operations: Vec<Operation> =
            lines[rank].iter().copied().filter(|o| o.has_micro_batch()).collect();
        let doubled = draw.one_of(&operations);
        let to = draw.below(lines[rank].len() + 1);
        lines[rank].insert(to, doubled);
        let spoilt = Schedule::new(schedule.shape(), lines).unwrap();
        let error = check(&spoilt, &workload).map(|_| ()).expect_err("it is there twice");
        let Error::Twice { at, first, .. } = error else { panic!("{error}") };
        assert_eq!((at.operation, first.operation, at.rank), (doubled, doubled, rank));
    }
}

/// Where an operation stands in the chain that its micro-batch goes through; `None` if it is off it: an R or a W alone.
fn on_the_chain(shape: Shape, rank: usize, operation: Operation) -> Option<usize> {
    let stage = shape.stage(rank, operation.chunk);
    if operation.kinds.contains(Kind::Forward) {
        return Some(stage);
    }
    operation.kinds.contains(Kind::Backward).then(|| 2 * shape.stages() - stage)
}

/// Whether one operation of a rank has to come before another, of the same micro-batch.
fn has_to_precede(shape: Shape, rank: usize, a: Operation, b: Operation) -> bool {
    let chain = |operation| on_the_chain(shape, rank, operation);
    let same = a.chunk == b.chunk;
    match (chain(a), chain(b)) {
        _ if a.micro_batch != b.micro_batch || !a.has_micro_batch() || !b.has_micro_batch() => false,
        (Some(a), Some(b)) => a < b,
        (Some(_), None) => same && (b.kinds.contains(Kind::Weight) || a.kinds.contains(Kind::Forward)),
        (None, Some(_)) => same && a.kinds.contains(Kind::Recompute),
        (None, None) => same && a.kinds.contains(Kind::Recompute) && b.kinds.contains(Kind::Weight),
    }
}

#[test]
fn two_dependent_operations_swapped_are_found() {
    let mut draw = Draw(6);
    let (mut early, mut circles) = (0, 0);
    for (name, schedule, workload) in draw.schedules(150) {
        let workload = Workload { buffer: None, ..workload };
        let generator = generators().find(|(other, _)| *other == name).unwrap().1;
        let schedule = generator(schedule.shape(), &workload).unwrap();
        let shape = schedule.shape();
        let mut lines = lines(&schedule);
        let rank = draw.below(lines.len());
        let (a, b) = (draw.below(lines[rank].len()), draw.below(lines[rank].len()));
        if !has_to_precede(shape, rank, lines[rank][a], lines[rank][b]) {
            continue;
        }
        lines[rank].swap(a, b);
        let spoilt = Schedule::new(shape, lines).unwrap();
        match check(&spoilt, &workload).map(|_| ()).expect_err("the order is wrong") {
            Error::TooEarly { at, needs } => {
                early += 1;
                assert!(at.rank == rank && needs.rank == rank && at.position < needs.position);
            }
            Error::Deadlock { cycle, .. } => {
                circles += 1;
                assert!(cycle.len() > 1 && cycle.iter().any(|site| site.rank == rank));
            }
            other => panic!("{other}"),
        }
    }
    assert!(early > 20 && circles > 2, "{early} too early, {circles} circles");
}

const TWO: &str = "schedule ranks 2 chunks 1 micro_batches 2 placement looped\n";

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let plain = Workload::uniform(PLAIN);
    let adapter = Workload::uniform(ADAPTER);
    let frozen = Workload::uniform(Stage { trained: false, ..PLAIN });
    let cases = [
        ("0: F0 F1 BW0 BW1\n1: F0 BW0 BW1", &plain, "rank 1: missing `F1`"),
        ("0: F0 F1 B0 BW1\n1: F0 BW0 F1 BW1", &plain, "rank 0: missing `W0`"),
        ("0: F0 F1 BW0 RBW1\n1: F0 RBW0 F1 RBW1", &adapter, "rank 0: missing `R0`"),
        (
            "0: F0 F1 BW0 BW1\n1: F0 BW0 F1 BW1",
            &frozen,
            "rank 0, operation 2 (`BW0`): expected no W, because no weight of its stage is trained",
        ),
        (
            "0: F0 F1 RBW0 BW1\n1: F0 BW0 F1 BW1",
            &plain,
            "rank 0, operation 2 (`RBW0`): expected no R, because nothing of its stage is recomputed",
        ),
        (
            "0: D F0 F1 BW0 BW1\n1: F0 BW0 F1 BW1",
            &plain,
            "rank 0, operation 0 (`D`): expected no D, because the workload has no buffer for dequantised weights",
        ),
        (
            "0: F0 F1 BW0 B0 BW1\n1: F0 BW0 F1 BW1",
            &plain,
            "rank 0, operation 3 (`B0`): expected each B once, found it before at rank 0, operation 2 (`BW0`)",
        ),
        (
            "0: F0 F1 BW0 BW1\n1: F0 BW0 BW1 F1",
            &plain,
            "rank 1, operation 2 (`BW1`): expected after rank 1, operation 3 (`F1`), found before it",
        ),
        (
            "0: F0 BW0 F1 BW1\n1: F0 F1 BW0 BW1",
            &plain,
            "deadlock with asynchronous sends: rank 0, operation 1 (`BW0`) waits for rank 1, operation 2 (`BW0`) waits \
             for rank 1, operation 1 (`F1`) waits for rank 0, operation 2 (`F1`) waits for the first",
        ),
    ];
    for (grid, workload, message) in cases {
        assert_eq!(refusal(&format!("{TWO}{grid}\n"), workload), message);
    }
}

#[test]
fn a_cap_names_rank_operation_and_units() {
    let grid = format!("{TWO}0: F0 F1 RBW0 RBW1\n1: F0 RBW0 F1 RBW1\n");
    let schedule = Schedule::parse(&grid).unwrap();
    let adapter = Workload::uniform(ADAPTER);
    assert_eq!(check(&schedule, &adapter).unwrap().peaks(), [14, 13]);
    assert!(check(&schedule, &Workload { cap: Some(14), ..adapter.clone() }).is_ok());
    let refused = refusal(&grid, &Workload { cap: Some(13), ..adapter });
    assert_eq!(refused, "rank 0, operation 2 (`RBW0`): expected at most 13 units held, found 14");
}

/// Rank r holds ranks - r inputs, and what one backward computes again.
#[test]
fn one_f_one_b_holds_as_many_as_there_are_ranks_to_come() {
    for ranks in 1..9 {
        for micro_batches in 1..20 {
            let workload = Workload::uniform(ADAPTER);
            let schedule = one_f_one_b(line(ranks, micro_batches), &workload).unwrap();
            let peaks: Vec<u64> =
                (0..ranks).map(|rank| 12 + (ranks - rank).min(micro_batches) as u64).collect();
            assert_eq!(check(&schedule, &workload).unwrap().peaks(), peaks);
            let gpipe = gpipe(line(ranks, micro_batches), &workload).unwrap();
            assert_eq!(check(&gpipe, &workload).unwrap().peaks(), vec![12 + micro_batches as u64; ranks]);
        }
    }
}

/// Written out by hand: on rank 0 four forwards ahead, on rank 1 two.
#[test]
fn interleaved_goes_through_groups_of_micro_batches() {
    let workload = Workload::uniform(Stage { trained: false, ..PLAIN });
    let shape = Shape::new(2, 2, 4, Placement::Looped).unwrap();
    assert_eq!(
        interleaved(shape, &workload).unwrap().to_string(),
        "schedule ranks 2 chunks 2 micro_batches 4 placement looped\n\
         0: F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3\n\
         1: F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3\n"
    );
}

/// Without recomputation, and with a W that keeps all that B held.
#[test]
fn zero_bubble_holds_no_more_than_one_f_one_b_does() {
    for ranks in 1..9 {
        for micro_batches in 1..20 {
            let workload =
                Workload { cap: Some(ranks.min(micro_batches) as u64), ..Workload::uniform(PLAIN) };
            let schedule = zero_bubble(line(ranks, micro_batches), &workload).unwrap();
            assert!(check(&schedule, &workload).is_ok(), "{ranks} ranks, {micro_batches} micro-batches");
        }
    }
}

/// A cap that has room for one micro-batch is enough.
#[test]
fn filled_keeps_to_any_cap() {
    let mut draw = Draw(7);
    for _ in 0..400 {
        let shape = draw.shape("filled");
        let mut workload = draw.workload(shape);
        let needed = workload.stages.iter().map(Stage::held_by_backward).max().unwrap();
        workload.cap = Some(needed + draw.below(6) as u64);
        let schedule = filled(shape, &workload).unwrap();
        let checked = check(&schedule, &workload);
        assert!(checked.is_ok(), "{:?}\n{schedule}{workload:?}", checked.err());
        if needed > 0 {
            let small = filled(shape, &Workload { cap: Some(needed - 1), ..workload });
            assert!(small.unwrap_err().to_string().starts_with("cap: expected at least"));
        }
    }
}

#[test]
fn dequantised_weights_last_as_long_as_the_buffer_says() {
    let with = |chunks, reads| Workload {
        buffer: Some(Buffer { chunks, reads }),
        ..Workload::uniform(Stage { trained: false, ..PLAIN })
    };
    let in_chunks = |chunks: usize, line: &str, workload: &Workload| {
        let header = format!("schedule ranks 1 chunks {chunks} micro_batches 1 placement looped");
        let schedule = Schedule::parse(&format!("{header}\n0: {line}\n")).unwrap();
        check(&schedule, workload).map(|_| ()).map_err(|error| error.to_string())
    };
    let fits = |line: &str, workload: &Workload| in_chunks(2, line, workload);
    let missing = |position, operation, load| {
        Err(format!(
            "rank 0, operation {position} (`{operation}`): missing `{load}` before it: the weights of its chunk are \
             not in the buffer"
        ))
    };
    assert_eq!(fits("D F0 D.1 F0.1 B0.1 B0", &with(2, None)), Ok(()));
    assert_eq!(fits("D F0 D.1 F0.1 B0.1 B0", &with(1, None)), missing(5, "B0", "D"));
    assert_eq!(fits("DF0 DFB0.1 DB0", &with(1, None)), Ok(()));
    assert_eq!(fits("F0 D.1 F0.1 B0.1 B0", &with(2, None)), missing(0, "F0", "D"));
    assert_eq!(fits("D F0 D.1 F0.1 B0.1 D B0", &with(2, Some(1))), missing(4, "B0.1", "D.1"));
    assert_eq!(fits("D D.1 F0 F0.1 D.1 D B0.1 B0", &with(2, Some(1))), Ok(()));
    assert_eq!(fits("D D.1 F0 F0.1 B0.1 B0", &with(2, Some(2))), Ok(()));
    assert_eq!(fits("D.1 D D F0 F0.1 B0.1 B0", &with(2, None)), Ok(()));
    let oldest_goes = in_chunks(3, "D F0 D.1 F0.1 D.2 F0.2 B0.2 B0.1 B0", &with(2, None));
    assert_eq!(oldest_goes, missing(8, "B0", "D"));
    assert_eq!(in_chunks(3, "D F0 D.1 F0.1 D.2 F0.2 B0.2 B0.1 D B0", &with(2, None)), Ok(()));
}

/// With sends that wait for their receive, 1F1B stands still where it sends both ways at once.
#[test]
fn sends_that_wait_make_circles() {
    let shape = line(2, 3);
    let plain = Workload::uniform(PLAIN);
    let schedule = one_f_one_b(shape, &plain).unwrap();
    let checked = check(&schedule, &plain).unwrap();
    assert_eq!(checked.check_sends(Sends::Paired), Ok(()));
    assert_eq!(
        checked.check_sends(Sends::Blocking).unwrap_err().to_string(),
        "deadlock with blocking sends: rank 0, operation 1 (`F1`) waits for rank 1, operation 1 (`BW0`) waits for the \
         first"
    );
    let blocking = Workload { sends: Sends::Blocking, ..plain.clone() };
    assert!(matches!(check(&schedule, &blocking), Err(Error::Deadlock { .. })));
    let gpipe = gpipe(shape, &plain).unwrap();
    assert!(check(&gpipe, &blocking).is_ok());
}

/// What runs with sends that wait runs with those that wait less. GPipe of one chunk sends one way at a time; 1F1B and
/// ZB-H1 need sends that are paired; ours relies on sends that do not wait.
#[test]
fn sends_that_wait_less_run_more() {
    let mut filled = [0; 2];
    for (name, schedule, workload) in Draw(8).schedules(100) {
        let checked = check(&schedule, &workload).unwrap();
        let [paired, blocking] =
            [Sends::Paired, Sends::Blocking].map(|sends| checked.check_sends(sends).is_ok());
        assert!(checked.check_sends(Sends::Asynchronous).is_ok() && (paired || !blocking), "{name}");
        assert!(blocking || name != "gpipe" || schedule.shape().chunks() > 1, "{schedule}");
        assert!(paired || !["1f1b", "zb-h1"].contains(&name), "{schedule}");
        filled[usize::from(paired)] += usize::from(name == "filled");
    }
    assert!(filled.iter().all(|count| *count > 0), "{filled:?}");
}

/// Through hundreds of thousands of operations: rank 1 begins with the micro-batch that rank 0 ends with.
#[test]
fn a_long_circle_is_found_and_told_in_short() {
    let micro_batches = 100_000;
    let plain = Workload::uniform(Stage { trained: false, ..PLAIN });
    let mut lines = lines(&one_f_one_b(line(2, micro_batches), &plain).unwrap());
    lines[1] = gpipe(line(2, micro_batches), &plain).unwrap().ranks()[1].clone();
    lines[1][..micro_batches].reverse();
    let spoilt = Schedule::new(line(2, micro_batches), lines).unwrap();
    let error = check(&spoilt, &plain).map(|_| ()).expect_err("it is a circle");
    assert!(matches!(&error, Error::Deadlock { cycle, .. } if cycle.len() > 1), "{error}");
    assert!(error.to_string().len() < 1000, "{error}");
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let shape = line(2, 2);
    let schedule = gpipe(shape, &Workload::uniform(PLAIN)).unwrap();
    let refused = |workload: &Workload| check(&schedule, workload).map(|_| ()).unwrap_err().to_string();
    let with = |times| Workload::uniform(Stage { times, ..PLAIN });
    let cases = [
        (
            with(Times { forward: f64::NAN, ..PLAIN.times }),
            "time of F: expected a finite number of at least 0, found NaN",
        ),
        (
            with(Times { weight: -1.0, ..PLAIN.times }),
            "time of W: expected a finite number of at least 0, found -1",
        ),
        (
            Workload { latency: f64::INFINITY, ..with(PLAIN.times) },
            "latency: expected a finite number of at least 0, found inf",
        ),
        (
            Workload { stages: vec![PLAIN; 3], ..with(PLAIN.times) },
            "stages: expected one, or one for each of 2 stages, found 3",
        ),
        (
            Workload { stages: vec![], ..with(PLAIN.times) },
            "stages: expected one, or one for each of 2 stages, found 0",
        ),
        (
            Workload::uniform(Stage { held: Held { forward: 1, recompute: 5, weight: 2 }, ..PLAIN }),
            "units of W: expected at most 1, found 2",
        ),
        (
            Workload { buffer: Some(Buffer { chunks: 0, reads: None }), ..with(PLAIN.times) },
            "buffer: expected at least one chunk and one read, found 0",
        ),
    ];
    for (workload, message) in cases {
        assert_eq!(refused(&workload), message);
    }
    assert_eq!(
        Shape::line(0, 1).unwrap_err().to_string(),
        "ranks: expected a number from 1 to 10000, found 0"
    );
    let two = Shape::new(2, 2, 3, Placement::Looped).unwrap();
    let plain = Workload::uniform(PLAIN);
    assert_eq!(
        interleaved(two, &plain).unwrap_err().to_string(),
        "micro_batches: expected a multiple of 2 ranks, found 3"
    );
    for one in [one_f_one_b, zero_bubble, filled] {
        assert_eq!(one(two, &plain).unwrap_err().to_string(), "chunks: expected 1, found 2");
    }
    let v = Shape::new(2, 2, 4, Placement::V).unwrap();
    let expected = "chunks: expected at least 2 with placement looped, found 2 with placement v";
    assert_eq!(interleaved(v, &plain).unwrap_err().to_string(), expected);
}

#[test]
fn every_stage_has_one_home() {
    for placement in [Placement::Looped, Placement::V] {
        let shape = Shape::new(3, 4, 1, placement).unwrap();
        for stage in 0..12 {
            let (rank, chunk) = shape.home(stage);
            assert_eq!(shape.stage(rank, chunk), stage);
        }
    }
    let v = Shape::new(4, 2, 1, Placement::V).unwrap();
    let of_rank = |rank| [v.stage(rank, 0), v.stage(rank, 1)];
    assert_eq!([0, 1, 2, 3].map(of_rank), [[0, 7], [1, 6], [2, 5], [3, 4]]);
}
