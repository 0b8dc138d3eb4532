//! Laws of a chunked run, on drawn problems.

use challenges::graph;
use challenges::loss::plan::{ChunkPlan, Passes};
use challenges::loss::problem::{LARGEST, row_dim};
use challenges::loss::run::{Hidden, Job, Results, Runner, Size, bucket, buckets};
use challenges::loss::{Chunked, Loss, Solution, Trains};
use kernels::{Buffer, Cpu, Device};
use proptest::prelude::*;
use reference::graph::{Array, Dtype, Tape, Tensor};
use reference::loss::Reduction;
use tests::one_graph::{CPU, bytes, card, devices, floats};

use super::case::{Case, bits};
use super::drawn::{self, Sizes};
use crate::loss::problem::Random;

const SIZES: Sizes = Sizes { sequences: 3, length: 4, width: 7, vocab: 19 };

/// Nothing but the hidden states is trained, as behind a frozen head.
const FROZEN: [bool; 3] = [true, false, false];

/// Extras whose elements belong to rows.
const OF_ROWS: [&str; 4] = ["hidden", "teacher_hidden", "old", "advantages"];

/// One at a time, an odd number, all but one (the last chunk has one row), all, and more than there are.
fn chunk_sizes(case: &Case) -> [usize; 5] {
    let rows = case.counted();
    [1, 3, rows.saturating_sub(1).max(1), rows.max(1), rows + 5]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_chunk_size_gives_the_same_result(seed: u64) {
        every_size_gives_the_same(&*CPU, seed)?;
    }

    #[test]
    fn a_loss_of_sequences_computes_logits_once_behind_a_frozen_head(seed: u64) {
        let mut case = drawn::of_sequences(&mut Random(seed));
        for (weight, products) in [(false, 1), (true, 2)] {
            case.problem.trains = Trains { hidden: true, weight, bias: false };
            for size in chunk_sizes(&case) {
                let plan = ChunkPlan::new(&Solution, &case.problem, &case.counts, size).expect("a plan");
                prop_assert_eq!(plan.graphs.passes.products(), products);
                let far = case.far(&case.run(&*CPU, size));
                prop_assert!(far.is_none(), "{} rows at a time, {}: {:?}", size, case.problem.loss.whole.name, far);
            }
        }
    }

    #[test]
    fn narrow_hidden_states_and_weights_lose_a_rounding_and_sums_in_their_type_one_a_chunk(seed: u64) {
        narrow_ones_lose_roundings(&*CPU, seed)?;
    }

    #[test]
    fn a_row_that_does_not_count_has_no_gradient_and_is_not_read(seed: u64) {
        rows_that_do_not_count_are_not_read(&*CPU, seed)?;
    }

    #[test]
    fn states_that_are_handed_over_give_the_same_bits(seed: u64) {
        states_handed_over_give_the_same(&*CPU, seed)?;
    }

    #[test]
    fn a_plan_takes_each_row_that_counts_once_and_no_other(seed: u64) {
        let case = drawn::any(&mut Random(seed));
        for size in chunk_sizes(&case) {
            let plan = ChunkPlan::new(&Solution, &case.problem, &case.counts, size).expect("a plan");
            let rows: Vec<usize> = plan.chunks.iter().flatten().copied().collect();
            let count: Vec<usize> = (0..case.counts.len()).filter(|row| case.counts[*row]).collect();
            prop_assert_eq!(rows, count);
            prop_assert_eq!(plan.chunks.len(), case.counted().div_ceil(size));
            prop_assert!(plan.largest() <= size);
        }
    }
}

// Fewer on a card, where each graph is compiled once more.
proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_chunk_size_gives_the_same_result_on_a_card(seed: u64) {
        card().map_or(Ok(()), |card| every_size_gives_the_same(card, seed))?;
    }

    #[test]
    fn narrow_hidden_states_and_weights_lose_a_rounding_on_a_card(seed: u64) {
        card().map_or(Ok(()), |card| narrow_ones_lose_roundings(card, seed))?;
    }

    #[test]
    fn a_row_that_does_not_count_is_not_read_on_a_card(seed: u64) {
        card().map_or(Ok(()), |card| rows_that_do_not_count_are_not_read(card, seed))?;
    }

    #[test]
    fn states_that_are_handed_over_give_the_same_bits_on_a_card(seed: u64) {
        card().map_or(Ok(()), |card| states_handed_over_give_the_same(card, seed))?;
    }
}

fn every_size_gives_the_same(device: &dyn Device, seed: u64) -> Result<(), TestCaseError> {
    let case = drawn::any(&mut Random(seed));
    for size in chunk_sizes(&case) {
        let far = case.far(&case.run(device, size));
        prop_assert!(far.is_none(), "{} rows at a time, {}: {:?}", size, case.problem.loss.whole.name, far);
    }
    Ok(())
}

fn narrow_ones_lose_roundings(device: &dyn Device, seed: u64) -> Result<(), TestCaseError> {
    let random = &mut Random(seed);
    let (dtype, unit) = random.one(&[(Dtype::F16, 2.0_f64.powi(-11)), (Dtype::Bf16, 2.0_f64.powi(-8))]);
    let sums = random.one(&[Dtype::F32, dtype]);
    let case = drawn::any(random).typed(dtype, sums);
    for size in chunk_sizes(&case) {
        let chunks = if sums == dtype { case.counted().div_ceil(size) } else { 0 };
        let far = case.further(&case.run(device, size), unit * (2 + chunks) as f64);
        prop_assert!(far.is_none(), "{} rows at a time, {:?} in {:?}: {:?}", size, dtype, sums, far);
    }
    Ok(())
}

fn rows_that_do_not_count_are_not_read(device: &dyn Device, seed: u64) -> Result<(), TestCaseError> {
    let mut case = drawn::any(&mut Random(seed));
    case.problem.trains.hidden = true;
    let width = case.problem.width;
    for size in [1, 3, case.counts.len()] {
        let (clean, spoilt) = (case.run(device, size), spoilt(&case).run(device, size));
        for (row, gradient) in spoilt["hidden.grad"].as_floats().chunks(width).enumerate() {
            let is_zero = gradient.iter().all(|g| *g == 0.0);
            prop_assert!(case.counts[row] || is_zero, "row {}: {:?}", row, gradient);
        }
        for (name, clean) in &clean {
            prop_assert_eq!(bits(clean), bits(&spoilt[name]), "{} rows at a time, {}", size, name);
        }
    }
    Ok(())
}

fn states_handed_over_give_the_same(device: &dyn Device, seed: u64) -> Result<(), TestCaseError> {
    let mut case = drawn::any(&mut Random(seed));
    case.problem.trains.hidden = true;
    for size in [1, 3, case.counts.len()] {
        let (lent, handed) = (case.run(device, size), handed(device, &case, size));
        prop_assert!(lent.keys().eq(handed.keys()));
        for (name, lent) in &lent {
            prop_assert_eq!(bits(lent), bits(&handed[name]), "{} rows at a time, {}", size, name);
        }
    }
    Ok(())
}

/// NaN in every row that does not count.
fn spoilt(case: &Case) -> Case {
    let mut case = case.clone();
    let rows = case.counts.len();
    for name in OF_ROWS {
        let Some(value) = case.values.get_mut(name) else { continue };
        let mut numbers = value.wide();
        let width = numbers.len() / rows;
        for (_, row) in case.counts.iter().zip(numbers.chunks_mut(width)).filter(|(counts, _)| !**counts) {
            row.fill(f64::NAN);
        }
        *value = Array::floats(value.dtype, &value.shape, numbers);
    }
    case
}

fn handed(device: &dyn Device, case: &Case, size: usize) -> super::case::Found {
    let mut uploaded = case.uploaded(device);
    let empty = device.alloc("hidden", 0).expect("room");
    let hidden = Hidden::Donated(std::mem::replace(&mut uploaded.hidden, empty));
    let job = Job { hidden, ..case.job(&uploaded, Size::Rows(size)) };
    let results = Runner::new(device, &graph::Solution, &Solution, &case.problem).run(job);
    case.found(device, &results.unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn a_row_behind_a_frozen_head_has_the_same_gradient_in_every_chunk() {
    for seed in 0..40 {
        let case = drawn::plain(SIZES, Reduction::Mean, FROZEN, seed);
        let [alone, others @ ..] = chunk_sizes(&case).map(|size| case.run(&*CPU, size));
        for other in others {
            assert_eq!(bits(&alone["hidden.grad"]), bits(&other["hidden.grad"]), "seed {seed}");
        }
    }
}

/// The graph that scales gradients has an input of its own by that name.
#[test]
fn a_loss_may_call_an_input_of_its_rows_unscaled() {
    let loss = Loss::new(
        "square",
        SIZES.vocab,
        |tape, logits| {
            let scale = tape.input("unscaled", Dtype::F32, [row_dim(tape)]);
            vec![("value", &logits.reduce_max(1).reshape([row_dim(tape)]) * &scale)]
        },
        |tape| {
            let sum = tape.input("value", Dtype::F32, [row_dim(tape)]).total();
            &sum * &sum
        },
    );
    let case = drawn::with(loss.expect("a loss"), SIZES, FROZEN, &mut Random(7));
    for size in chunk_sizes(&case) {
        let plan = ChunkPlan::new(&Solution, &case.problem, &case.counts, size).expect("a plan");
        assert!(matches!(plan.graphs.passes, Passes::OneThenScale { .. }), "{:?}", plan.graphs.passes);
        case.hold(size, "square");
    }
}

#[test]
fn launches_grow_with_the_rows_that_count() {
    for trains in [FROZEN, [true; 3]] {
        let launches = [0, 1, 2, 3, 7].map(|count| {
            let mut case = drawn::plain(SIZES, Reduction::Mean, trains, 5);
            let mut labels = vec![reference::loss::IGNORED; case.counts.len()];
            labels[..count].fill(1);
            case.counts = labels.iter().map(|label| *label == 1).collect();
            case.values.insert("labels".into(), Array::integers(&[labels.len()], labels));
            let device = Cpu::with_threads(2);
            let uploaded = case.uploaded(&device);
            let mut runner = Runner::new(&device, &graph::Solution, &Solution, &case.problem);
            runner.run(case.job(&uploaded, Size::Rows(1))).unwrap_or_else(|error| panic!("{error}"));
            device.counts().launches
        });
        let [none, one, two, three, seven] = launches;
        let each = one - none; // `none` are those of the seeds and of the loss
        assert!(none > 0 && each > 0, "{launches:?}");
        assert_eq!([two, three, seven], [2, 3, 7].map(|count| none + count * each));
    }
}

/// A run over some of the rows, which adds to what there is.
fn added(device: &dyn Device, case: &Case, rows: std::ops::Range<usize>, so_far: Option<Results>) -> Results {
    let mut case = case.clone();
    for (row, counts) in case.counts.iter_mut().enumerate() {
        *counts &= rows.contains(&row);
    }
    let uploaded = case.uploaded(device);
    let mut so_far = so_far.map_or_else(Default::default, |results| results.gradients);
    so_far.remove("hidden.grad");
    let job = Job { so_far, ..case.job(&uploaded, Size::Rows(2)) };
    let results = Runner::new(device, &graph::Solution, &Solution, &case.problem).run(job);
    results.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn gradients_so_far_are_added_to() {
    for seed in 0..20 {
        let mut case = drawn::plain(SIZES, Reduction::Sum, [true; 3], seed);
        let rows = case.counts.len();
        let labels: Vec<i32> = (0..rows as i32).collect();
        case.values.insert("labels".into(), Array::integers(&[rows], labels));
        case.counts.fill(true);
        for device in devices() {
            let whole = added(device, &case, 0..rows, None);
            let half = rows / 2; // chunks of two rows end here
            let parts = added(device, &case, half..rows, Some(added(device, &case, 0..half, None)));
            for name in ["weight.grad", "bias.grad"] {
                let [whole, parts] = [&whole, &parts].map(|results| bytes(device, &results.gradients[name]));
                assert_eq!(whole, parts, "seed {seed} on {}: {name}", device.name());
            }
        }
    }
}

#[test]
fn the_loss_counts_what_is_in_the_labels_and_not_what_was_there_before() {
    let case = drawn::plain(SIZES, Reduction::Sum, [true; 3], 3);
    let rows = case.counts.len();
    for device in devices() {
        let first = added(device, &case, 0..rows, None);
        let [loss, weight] = [first.loss.clone(), floats(device, &first.gradients["weight.grad"])];
        let second = added(device, &case, 0..rows, Some(first));
        assert_eq!(second.loss, loss);
        let largest = weight.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        for (twice, once) in floats(device, &second.gradients["weight.grad"]).iter().zip(&weight) {
            assert!((twice - 2.0 * once).abs() <= 1e-6 * largest, "{twice}, twice is {}", 2.0 * once);
        }
    }
}

#[test]
fn nothing_that_counts_is_a_loss_of_nothing() {
    let mut case = drawn::plain(SIZES, Reduction::Mean, [true; 3], 1);
    let rows = case.counts.len();
    case.values.insert("labels".into(), Array::integers(&[rows], vec![reference::loss::IGNORED; rows]));
    case.counts.fill(false);
    for device in devices() {
        let found = spoilt(&case).run(device, 3);
        assert!(found.values().all(|values| values.as_floats().iter().all(|x| *x == 0.0)), "{found:?}");
    }
}

/// A head whose gradient is far larger than all else that a chunk has.
const WIDE: Sizes = Sizes { sequences: 4, length: 4, width: 384, vocab: 1024 };

#[test]
fn a_frozen_head_has_no_gradient_and_no_memory_for_one() {
    let head = WIDE.width * WIDE.vocab * Dtype::F32.bytes();
    let bytes = |trains: [bool; 3]| {
        let case = drawn::plain(WIDE, Reduction::Mean, trains, 2);
        let device = Cpu::with_threads(2);
        let uploaded = case.uploaded(&device);
        let before = device.counts().allocated_bytes;
        let mut runner = Runner::new(&device, &graph::Solution, &Solution, &case.problem);
        let results =
            runner.run(case.job(&uploaded, Size::Rows(2))).unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<String> = results.gradients.keys().cloned().collect();
        let of = |gradients: &Buffer| gradients.bytes();
        let returned: usize = results.gradients.values().map(of).sum();
        (names, returned, (device.counts().allocated_bytes - before) as usize)
    };
    let (names, returned, allocated) = bytes(FROZEN);
    assert_eq!(names, ["hidden.grad"]);
    assert!(allocated - returned < head / 2, "{allocated} bytes, {returned} of them returned");
    let (names, returned, allocated) = bytes([true; 3]);
    assert_eq!(names, ["bias.grad", "hidden.grad", "weight.grad"]);
    assert!(returned > head && allocated - returned < head / 2, "{allocated} bytes, {returned} returned");
}

#[test]
fn a_plan_for_a_frozen_head_carries_nothing() {
    let carried = |trains: [bool; 3]| {
        let case = drawn::plain(WIDE, Reduction::Mean, trains, 2);
        let plan = ChunkPlan::new(&Solution, &case.problem, &case.counts, 2).expect("a plan");
        let names = ["weight.grad", "bias.grad"].into_iter();
        let both = |name: &&str| {
            [plan.graphs.each.find_input(name), plan.graphs.each.find_output(name)]
                .iter()
                .all(Option::is_some)
        };
        let none = |name: &&str| {
            [plan.graphs.each.find_input(name), plan.graphs.each.find_output(name)]
                .iter()
                .all(Option::is_none)
        };
        (names.clone().filter(both).count(), names.filter(none).count())
    };
    assert_eq!(carried(FROZEN), (0, 2));
    assert_eq!(carried([true, true, false]), (1, 1));
    assert_eq!(carried([true; 3]), (2, 0));
}

#[test]
fn the_stated_bytes_of_a_frozen_head_have_no_copy_of_it() {
    let head = WIDE.width * WIDE.vocab * Dtype::F32.bytes();
    for trains in [FROZEN, [true; 3]] {
        let case = drawn::plain(WIDE, Reduction::Mean, trains, 2);
        let device = Cpu::with_threads(2);
        let mut runner = Runner::new(&device, &graph::Solution, &Solution, &case.problem);
        let costs = runner.costs(Size::Rows(2), case.counts.len()).unwrap_or_else(|error| panic!("{error}"));
        let fixed = costs.iter().map(|cost| cost.fixed).max().expect("costs");
        let row = costs.iter().map(|cost| cost.row).max().expect("costs");
        println!("{trains:?}: {fixed} + {row} n bytes, the head {head}");
        assert!(
            fixed < head / 2,
            "{fixed} bytes whatever the chunk's size, {head} are the weight's gradient"
        );
        assert!(row >= WIDE.vocab * Dtype::F32.bytes(), "{row} bytes a row are less than its logits");
    }
}

#[test]
fn a_budget_is_kept_by_what_is_stated() {
    let case = drawn::plain(WIDE, Reduction::Mean, FROZEN, 2);
    let device = Cpu::with_threads(2);
    let mut runner = Runner::new(&device, &graph::Solution, &Solution, &case.problem);
    let rows = case.counted();
    let costs = runner.costs(Size::Rows(rows), rows).unwrap_or_else(|error| panic!("{error}"));
    let of = |n: usize| costs.iter().map(|cost| cost.of(n)).max().expect("costs");
    for most in 1..=rows {
        for budget in [of(most), of(most + 1) - 1] {
            let size = runner.size(Size::Bytes(budget), rows).unwrap_or_else(|error| panic!("{error}"));
            assert!(of(size) <= budget, "{size} rows take {} of {budget} bytes", of(size));
            assert_eq!(rows.div_ceil(size), rows.div_ceil(most), "{size} rows, {most} fit");
        }
    }
    assert!(Solution.size(&costs, rows, of(1) - 1).is_none());
}

#[test]
fn a_bucket_is_at_most_a_thirty_second_longer_than_its_chunk() {
    let buckets = buckets();
    assert!(buckets.is_sorted() && buckets.last() == Some(&LARGEST), "{buckets:?}");
    for rows in (0..5000).chain([65_535, 65_537, 1_000_003]) {
        let padded = bucket(rows);
        assert!(rows <= padded && padded - rows <= rows / 32, "{rows} rows in {padded}");
        assert!(rows == 0 || buckets.contains(&(padded as i64)), "{rows} rows in {padded}");
    }
}

/// Labels of which the first `count` count.
fn first_count(case: &Case, count: usize) -> Case {
    let mut case = case.clone();
    let rows = case.counts.len();
    let labels = (0..rows).map(|row| if row < count { (row % 11) as i32 } else { reference::loss::IGNORED });
    case.counts = (0..rows).map(|row| row < count).collect();
    case.values.insert("labels".into(), Array::integers(&[rows], labels.collect()));
    case
}

#[test]
fn what_is_sealed_compiles_nothing_however_many_rows_count() {
    devices().into_iter().for_each(sealed_compiles_nothing);
}

fn sealed_compiles_nothing(device: &dyn Device) {
    let sizes = Sizes { sequences: 2, length: 60, ..SIZES };
    let case = drawn::plain(sizes, Reduction::Mean, [true; 3], 4);
    let mut runner = Runner::new(device, &graph::Solution, &Solution, &case.problem);
    let warm = first_count(&case, 120);
    let uploaded = warm.uploaded(device);
    let budget = {
        let costs = runner.costs(Size::Rows(50), 120).expect("costs");
        Size::Bytes(costs.iter().map(|cost| cost.of(50)).max().expect("costs"))
    };
    runner.run(warm.job(&uploaded, budget)).expect("it runs");
    runner.session().seal();
    let compiled = runner.session().counters().compilations;
    for count in [120, 119, 77, 41, 33, 3, 1, 0] {
        let case = first_count(&case, count);
        let uploaded = case.uploaded(device);
        for size in [budget, Size::Rows(40)] {
            let results = runner.run(case.job(&uploaded, size)).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(case.far(&case.found(device, &results)), None, "{count} rows, {size:?}");
        }
    }
    assert_eq!(runner.session().counters().compilations, compiled);
    let message = runner.run(warm.job(&uploaded, Size::Rows(120))).expect_err("too many rows").to_string();
    assert!(message.contains("N = 120 would have to be compiled"), "{message}");
}

#[test]
fn a_budget_is_answered_by_what_is_compiled_for_the_run() {
    let sizes = Sizes { sequences: 4, length: 64, width: 16, vocab: 512 };
    let case = drawn::plain(sizes, Reduction::Mean, FROZEN, 4);
    let device = Cpu::with_threads(2);
    let uploaded = case.uploaded(&device);
    let mut runner = Runner::new(&device, &graph::Solution, &Solution, &case.problem);
    let rows = case.counted();
    let budget = Size::Bytes(sizes.vocab * 4 * rows / 4 + (1 << 14));
    let chunks = runner.run(case.job(&uploaded, budget)).expect("it runs").chunks;
    let mut programs: Vec<usize> = chunks.iter().map(|rows| bucket(*rows)).collect();
    programs.dedup();
    let compiled = runner.session().counters().compilations;
    assert_eq!(compiled, programs.len() + 2, "{chunks:?}"); // and the seeds and the loss
    runner.run(case.job(&uploaded, budget)).expect("it runs");
    assert_eq!(runner.session().counters().compilations, compiled);
}

/// A value called like a seed has a seed of its own, and a chunk of more rows than there are is one of all.
#[test]
fn a_value_may_be_called_like_a_seed_and_a_chunk_be_larger_than_there_are_rows() {
    let rows =
        |_: &Tape, logits: &Tensor| vec![("seed.sum", logits.sum(1).reshape([row_dim(logits.tape())]))];
    let whole = |tape: &Tape| tape.input("seed.sum", Dtype::F32, [row_dim(tape)]).total();
    let loss = Loss::new("named", SIZES.vocab, rows, whole).expect("a loss");
    let case = drawn::with(loss, SIZES, [true; 3], &mut Random(7));
    for size in [1, 5, usize::MAX] {
        case.hold(size, "named");
    }
}
