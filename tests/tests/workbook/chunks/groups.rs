//! Chunks that split no group of rows take one pass, and what belongs together is read from the graph of the seeds.

use challenges::graph;
use challenges::loss::groups::{Groups, ROWS_OF_CHUNK};
use challenges::loss::losses::Answers;
use challenges::loss::plan::{ChunkPlan, Passes};
use challenges::loss::problem::row_dim;
use challenges::loss::run::{Runner, Size, bucket};
use challenges::loss::{Chunked, Loss, Problem, Sampled, Solution, Trains};
use proptest::prelude::*;
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, Op, Tape, Tensor, interpret};
use reference::loss::{Clip, Dpo, IGNORED, Kto, LogProbabilities, Policy, Reduction};
use tests::one_graph::{CPU, card};

use super::case::{Case, bits};
use super::drawn::{self, Sizes};
use crate::loss::problem::Random;

const TRAINED: [bool; 3] = [true, true, false];
const SIZES: Sizes = Sizes { sequences: 4, length: 3, width: 7, vocab: 19 };

fn dpo(sizes: Sizes) -> Loss {
    let answers = Answers { count: sizes.sequences, length: sizes.length, vocab: sizes.vocab };
    answers.dpo(Dpo { beta: 0.3, label_smoothing: 0.1 }, Reduction::Mean).expect("a loss")
}

/// The first row of each row's group, by the solution's seeds.
fn first_rows(problem: &Problem) -> Option<Vec<usize>> {
    let groups = Groups::of(problem, &Solution.seeds(problem).expect("seeds"))?;
    Some((0..groups.rows()).map(|row| groups.first(row)).collect())
}

fn plan_of(case: &Case, size: usize) -> ChunkPlan {
    let mut runner = Runner::new(&*CPU, &graph::Solution, &Solution, &case.problem);
    runner.plan(&case.counts, Size::Rows(size)).expect("a plan")
}

/// The product of the sums of some rows, one piece after the other: so pieces are groups.
fn of_pieces(pieces: &'static [&'static [usize]], vocab: usize) -> Loss {
    let rows: usize = pieces.iter().map(|piece| piece.len()).sum();
    let of_rows = |tape: &Tape, logits: &Tensor| {
        let labels = tape.input("labels", Dtype::I32, [row_dim(tape)]);
        vec![("log_p", LogProbabilities::default().rows(logits, &labels).values)]
    };
    let whole = |tape: &Tape| {
        let log_p = tape.input("log_p", Dtype::F32, [rows]);
        let sum = |piece: &&[usize]| {
            let mut rows = piece.iter().map(|row| log_p.slice(0, *row as i64, *row as i64 + 1));
            let first = rows.next().expect("a row");
            (&rows.fold(first, |sum, row| &sum + &row) * 0.1).exp()
        };
        let sums: Vec<Tensor> = pieces.iter().map(sum).collect();
        tape.concat(&sums.iter().collect::<Vec<_>>(), 0).total()
    };
    Loss::new("pieces", vocab, of_rows, whole).expect("a loss")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_seed_asks_for_no_value_outside_its_group(seed: u64) {
        let random = &mut Random(seed);
        let case = drawn::of_sequences(random);
        let seeds = Solution.seeds(&case.problem).expect("seeds");
        let rows = case.counts.len();
        let first = first_rows(&case.problem).expect("sizes are numbers");
        let log_p = random.all(rows, -4.0, -0.5);
        let group = first[random.below(rows)];
        let others = random.all(rows, -4.0, -0.5);
        let mixed = (0..rows).map(|row| if first[row] == group { log_p[row] } else { others[row] });
        let with = |log_p: Vec<f64>| {
            let mut values: Values<f64> = case.values.clone();
            values.insert("log_p".into(), Array::floats(Dtype::F32, &[rows], log_p));
            values.insert("upstream".into(), Array::floats(Dtype::F32, &[], [0.7]));
            values.retain(|name, _| seeds.find_input(name).is_some());
            interpret(&seeds, &values).expect("seeds").swap_remove(0).wide()
        };
        let (mixed, clean) = (with(mixed.collect()), with(log_p));
        for row in (0..rows).filter(|row| first[*row] == group) {
            prop_assert_eq!(mixed[row].to_bits(), clean[row].to_bits(), "row {} of {:?}", row, &first);
        }
    }

    #[test]
    fn chunks_of_whole_groups_give_the_same_result_in_one_pass(seed: u64) {
        let random = &mut Random(seed);
        let mut case = drawn::of_sequences(random);
        case.problem.trains = Trains { hidden: random.below(2) == 0, weight: true, bias: case.problem.bias };
        let first = first_rows(&case.problem).expect("sizes are numbers");
        let longest = first.iter().map(|group| first.iter().filter(|other| *other == group).count()).max();
        let longest = longest.expect("rows");
        for size in [longest, longest + 1, 2 * longest, first.len()] {
            let plan = plan_of(&case, size);
            prop_assert!(matches!(plan.graphs.passes, Passes::OneByGroups(_)), "{} rows: {:?}", size, plan.graphs.passes);
            prop_assert!(plan.largest() <= size);
            for group in &first {
                let has = |chunk: &&Vec<usize>| chunk.iter().any(|row| first[*row] == *group);
                prop_assert!(plan.chunks.iter().filter(has).count() <= 1, "{:?} of {:?}", plan.chunks, &first);
            }
            let [once, again] = [(); 2].map(|()| case.run(&*CPU, size));
            let far = case.far(&once);
            prop_assert!(far.is_none(), "{} rows at a time, {}: {:?}", size, case.problem.loss.whole.name, far);
            for (name, once) in &once {
                prop_assert_eq!(bits(once), bits(&again[name]), "{} rows at a time, {}", size, name);
            }
        }
        let plan = plan_of(&case, longest - 1);
        prop_assert!(longest == 1 || matches!(plan.graphs.passes, Passes::Two(_)), "{:?}", plan.graphs.passes);
    }
}

#[test]
fn chunks_of_whole_groups_give_the_same_result_on_a_card() {
    let Some(card) = card() else { return };
    for seed in 0..8 {
        let mut case = drawn::of_sequences(&mut Random(seed));
        case.problem.trains = Trains { hidden: true, weight: true, bias: case.problem.bias };
        let first = first_rows(&case.problem).expect("sizes are numbers");
        let of = |group: usize| first.iter().filter(|other| **other == group).count();
        let longest = first.iter().map(|group| of(*group)).max().expect("rows");
        for size in [longest, first.len()] {
            let [once, again] = [(); 2].map(|()| case.run(card, size));
            let name = &case.problem.loss.whole.name;
            assert_eq!(case.far(&once), None, "{size} rows at a time, {name}, seed {seed}");
            for (part, once) in &once {
                assert_eq!(bits(once), bits(&again[part]), "{size} rows at a time, {name}, {part}");
            }
        }
    }
}

#[test]
fn a_pair_is_a_group_and_so_is_a_sequence() {
    let of = |loss: Loss| first_rows(&drawn::with(loss, SIZES, TRAINED, &mut Random(1)).problem);
    let pairs = [0, 0, 0, 3, 3, 3, 0, 0, 0, 3, 3, 3].to_vec();
    let sequences = [0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 9, 9].to_vec();
    assert_eq!(of(dpo(SIZES)), Some(pairs));
    let answers = Answers { count: 4, length: 3, vocab: SIZES.vocab };
    let kto = Kto { beta: 0.2, desirable_weight: 1.0, undesirable_weight: 1.3 };
    assert_eq!(of(answers.kto(kto, Reduction::Mean).expect("a loss")), Some(sequences.clone()));
    let sampled =
        Sampled { sequences: 4, length: 3, vocab: SIZES.vocab, temperature: 1.0, old: true, reference: true };
    let gspo = Policy::gspo(0.04, Clip::both(0.2));
    assert_eq!(of(Solution.policy(&gspo, &sampled).expect("a loss")), Some(sequences));
}

#[test]
fn groups_may_have_any_lengths_and_lie_in_any_order() {
    const PIECES: [&[&[usize]]; 4] = [
        &[&[0, 1, 2], &[3], &[4, 5, 6, 7, 8], &[9, 10]], // unequal
        &[&[0, 2, 4, 6, 8, 10], &[1, 3, 5, 7, 9]],       // interleaved
        &[&[10, 9, 8], &[7, 6, 5, 4], &[3, 2, 1, 0]],    // the last one first
        &[&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]],          // one
    ];
    let sizes = Sizes { sequences: 11, length: 1, ..SIZES };
    for (pieces, longest) in PIECES.into_iter().zip([5, 6, 4, 11]) {
        let mut case = drawn::with(of_pieces(pieces, sizes.vocab), sizes, TRAINED, &mut Random(3));
        let rows = case.counts.len();
        for ignored in [vec![], vec![1, 7], vec![0, 1, 2, 3], (0..rows).collect::<Vec<_>>()] {
            let label = |row: usize| if ignored.contains(&row) { IGNORED } else { row as i32 };
            case.counts = (0..rows).map(|row| !ignored.contains(&row)).collect();
            case.values.insert("labels".into(), Array::integers(&[rows], (0..rows).map(label).collect()));
            for (size, products) in [(longest - 1, 2), (longest, 1), (longest + 2, 1), (rows, 1)] {
                let plan = plan_of(&case, size);
                assert_eq!(plan.graphs.passes.products(), products, "{pieces:?}, {size} rows at a time");
                let mut taken: Vec<usize> = plan.chunks.concat();
                taken.sort_unstable();
                assert!(taken.into_iter().eq((0..rows).filter(|row| case.counts[*row])), "{:?}", plan.chunks);
                case.hold(size, &format!("{pieces:?}, {ignored:?}"));
            }
        }
    }
}

/// A chunk that is shorter than its bucket comes after one that fills it, so that its padding holds rows of that one.
#[test]
fn padding_of_a_chunk_of_groups_adds_to_no_row() {
    let sizes = Sizes { sequences: 3, length: 70, ..SIZES };
    let answers = Answers { count: 3, length: 70, vocab: sizes.vocab };
    let kto = Kto { beta: 0.2, desirable_weight: 1.0, undesirable_weight: 1.3 };
    let loss = answers.kto(kto, Reduction::Mean).expect("a loss");
    let mut case = drawn::with(loss, sizes, TRAINED, &mut Random(8));
    let mut labels = case.values["labels"].as_integers().to_vec();
    for row in [0, 100, 139, 150, 151, 152] {
        labels[row] = IGNORED;
    }
    case.counts = labels.iter().map(|label| *label != IGNORED).collect();
    case.values.insert("labels".into(), Array::integers(&[labels.len()], labels));
    assert!(bucket(65) > 65, "some lengths are padded");
    for size in [70, 75, 140, 150] {
        assert_eq!(plan_of(&case, size).graphs.passes.products(), 1);
        case.hold(size, "groups");
    }
}

/// What couples all rows, such as the square of their sum, leaves two passes.
#[test]
fn a_loss_that_couples_all_rows_takes_two_passes_in_more_than_one_chunk() {
    let rows = |_: &Tape, logits: &Tensor| vec![("sum", logits.sum(1).reshape([row_dim(logits.tape())]))];
    let whole = |tape: &Tape| {
        let sum = tape.input("sum", Dtype::F32, [12]).total();
        &sum * &sum
    };
    let case =
        drawn::with(Loss::new("square", 19, rows, whole).expect("a loss"), SIZES, TRAINED, &mut Random(5));
    for (size, products) in [(3, 2), (11, 2), (12, 1)] {
        assert_eq!(plan_of(&case, size).graphs.passes.products(), products);
        case.hold(size, "groups");
    }
}

#[test]
fn logits_are_multiplied_once_for_each_chunk_of_whole_groups() {
    let case = drawn::with(dpo(SIZES), SIZES, TRAINED, &mut Random(2));
    let plan = plan_of(&case, 6);
    let Passes::OneByGroups(graph) = &plan.graphs.passes else { panic!("{:?}", plan.graphs.passes) };
    assert!(graph.find_input(ROWS_OF_CHUNK).is_some());
    let products = graph.nodes().iter().filter(|node| matches!(node.op, Op::Matmul)).count();
    assert_eq!(products, 3); // the logits, and the gradients of hidden states and weight
    assert_eq!(plan.graphs.of_chunks().count(), 1);
    let results = case.results_of(&*CPU, &Solution, Size::Rows(6)).expect("it runs");
    assert!(results.chunks.len() <= 2, "{:?}", results.chunks);
}

#[test]
fn the_bytes_of_a_chunk_of_groups_are_those_of_one_buffer_of_logits() {
    let sizes = Sizes { sequences: 8, length: 4, width: 64, vocab: 4096 };
    let case = drawn::with(dpo(sizes), sizes, TRAINED, &mut Random(4));
    let mut runner = Runner::new(&*CPU, &graph::Solution, &Solution, &case.problem);
    let counted = case.counts.iter().filter(|counts| **counts).count();
    let of = |size: Size, runner: &mut Runner<'_>| {
        let costs = runner.costs(size, counted).expect("costs");
        move |rows: usize| costs.iter().map(|cost| cost.of(rows)).max().expect("a step")
    };
    let by_groups = of(Size::Rows(8), &mut runner);
    let row = by_groups(9) - by_groups(8);
    let logits = sizes.vocab * Dtype::F32.bytes();
    let labels = sizes.vocab; // a byte for each logit, which says where the label is
    assert!((logits..logits + labels + 16 * sizes.width).contains(&row), "{row} bytes a row");
    for budget in [by_groups(8), by_groups(16)] {
        let plan = runner.plan(&case.counts, Size::Bytes(budget)).expect("a plan");
        assert!(
            matches!(plan.graphs.passes, Passes::OneByGroups(_)),
            "{budget} bytes: {:?}",
            plan.graphs.passes
        );
        assert!(by_groups(bucket(plan.largest())) <= budget);
    }
    let plan = runner.plan(&case.counts, Size::Bytes(by_groups(8) - 1)).expect("a plan");
    assert!(matches!(plan.graphs.passes, Passes::Two(_)), "{:?}", plan.graphs.passes);
}
