//! Agreement: what a compiled graph computes is what the interpreter says that it means.

use std::collections::BTreeMap;
use std::ops::Div;
use std::sync::Arc;

use challenges::graph::Solution;
use compiler::compile::{Compiled, Level, compile};
use compiler::rewrite::pad::{length_name, pad};
use compiler::session::{Error, Settings};
use compiler::tune::Tuned;
use grader::fair::ties::{Sides, Ties};
use grader::fair::{difference, rounding};
use kernels::Device;
use kernels::plan::Step;
use kernels::tile::{Element, Op, Program};
use proptest::prelude::*;
use reference::graph::interpret::Values;
use reference::graph::programs::{self, ScoreEntry};
use reference::graph::{Array, Attention, Builder, Dim, Dtype, Facts, Graph, Symbol, interpret};
use reference::llama::rope;
use reference::llama::train::{Report, step_graph};
use tests::graphs::{self, Case};
use tests::one_graph::{CPU, OneGraph, card, devices};
use tests::tiny_llama::TinyLlama;

use crate::llama::{check_run, recipe};

/// The sizes of a graph's symbols, read off the values.
pub(crate) fn sizes(graph: &Graph, values: &Values<f32>) -> BTreeMap<Symbol, i64> {
    let mut sizes = BTreeMap::new();
    for (name, id) in graph.inputs() {
        let Some(value) = values.get(name) else { continue };
        for (dim, size) in graph.ty(id).shape.iter().zip(&value.shape) {
            if let Some(symbol) = dim.as_symbol() {
                sizes.insert(symbol.clone(), *size as i64);
            }
        }
    }
    sizes
}

/// A compiled graph in a session of its own.
pub(crate) struct Runner {
    graph: OneGraph<'static>,
    pub(crate) compiled: Arc<Compiled>,
}

impl Runner {
    /// Compiles a graph for the sizes of some values.
    pub(crate) fn new(
        device: &'static dyn Device,
        graph: &Graph,
        values: &Values<f32>,
        level: Level,
    ) -> Result<Self, Error> {
        let mut compiled = compile(&Solution, graph, &sizes(graph, values), level.options())?;
        if level.tunes() {
            compiled.tune(&Solution, device, &mut Tuned::default()).map_err(Error::Device)?;
        }
        Self::of(device, compiled)
    }

    /// With memory of its own, full of junk.
    pub(crate) fn of(device: &'static dyn Device, compiled: Compiled) -> Result<Self, Error> {
        let graph = OneGraph::of(&Solution, device, compiled)?;
        let compiled = graph.first().expect("it is compiled");
        Ok(Self { graph, compiled })
    }

    pub(crate) fn run(&mut self, values: &Values<f32>) -> Result<Vec<Array<f32>>, Error> {
        self.graph.arrays(values)
    }
}

fn run(
    device: &'static dyn Device,
    graph: &Graph,
    values: &Values<f32>,
    level: Level,
) -> Result<Vec<Array<f32>>, String> {
    let results = Runner::new(device, graph, values, level).and_then(|mut runner| runner.run(values));
    results.map_err(|error| error.to_string())
}

#[test]
fn a_compiled_training_run_is_as_near_the_truth_as_the_original_is() {
    let Some(tiny) = TinyLlama::find() else { return };
    for device in devices() {
        trains(&tiny, |graph, values| Runner::new(device, graph, values, Level::O2));
    }
}

/// Adds what a step's optimiser starts with.
pub(crate) fn started(graph: &Graph, values: &mut Values<f32>) {
    for (name, id) in graph.inputs().filter(|(name, _)| name.starts_with("optim.exp_avg")) {
        let shape: Vec<usize> = graph
            .ty(id)
            .shape
            .iter()
            .filter_map(reference::graph::Dim::as_fixed)
            .map(|n| n as usize)
            .collect();
        values.insert(name.into(), Array::floats(Dtype::F32, &shape, vec![0.0; shape.iter().product()]));
    }
}

/// The golden run with a compiler of one's own; its losses.
pub(crate) fn trains(
    tiny: &TinyLlama,
    compiled: impl Fn(&Graph, &Values<f32>) -> Result<Runner, Error>,
) -> Vec<f64> {
    let (run, llama, start) = (tiny.run(), tiny.open("nf4"), tiny.adapter("adapter-start"));
    let recipe = recipe(&run);
    let mut values = llama.values::<f32>().expect("weights");
    values.append(&mut start.values());
    let mut spec = llama.spec();
    spec.adapter = Some(start.config);
    let graph = step_graph(&spec, &recipe).expect("a graph");
    started(&graph, &mut values);
    let mut runner: Option<Runner> = None;
    let step = |step: usize| {
        let ids = tiny.ids::<f32>(run.batch * step..run.batch * (step + 1));
        values.append(&mut rope::values(&llama.config, ids.shape[1]));
        values.append(&mut recipe.optimizer.rates(step as u64 + 1, run.lr));
        values.extend([("ids".to_owned(), ids.clone()), ("labels".to_owned(), ids)]);
        let runner =
            runner.get_or_insert_with(|| compiled(&graph, &values).unwrap_or_else(|error| panic!("{error}")));
        let results = runner.run(&values).unwrap_or_else(|error| panic!("{error}"));
        values.extend(graph.outputs().iter().map(|(name, _)| name.clone()).zip(results));
        let number = |name: &str| values[name].wide()[0];
        Report { loss: number("loss"), grad_norm: number("grad_norm") }
    };
    let reports: Vec<Report> = (0..run.steps).map(step).collect();
    check_run(tiny, &reports, &values);
    reports.iter().map(|report| report.loss).collect()
}

/// Whether a comparison in a graph has two answers that are fair.
fn decided_by_rounding(case: &Case) -> bool {
    let Some(ties) = Ties::of(&case.graph) else { return false };
    let truth = interpret::<f64>(ties.probe(), &case.values).expect("it ran");
    let naive = interpret(ties.probe(), &case.values::<f32>()).expect("it ran");
    ties.first(&Sides { truth: &truth, naive: &naive }).is_some()
}

fn agrees(device: &'static dyn Device, case: &Case, level: Level) -> Result<(), TestCaseError> {
    let values = case.values::<f32>();
    let (naive, truth) = (interpret(&case.graph, &values), interpret::<f64>(&case.graph, &case.values));
    let got = run(device, &case.graph, &values, level);
    let (naive, truth, got) = match (naive, truth, got) {
        (Ok(naive), Ok(truth), Ok(got)) => (naive, truth, got),
        (Err(_), _, Err(_)) => return Ok(()),
        (naive, _, got) => {
            return Err(TestCaseError::fail(format!(
                "the interpreter: {:?}; compiled: {:?}",
                naive.err(),
                got.err()
            )));
        }
    };
    for (((name, id), got), (naive, truth)) in
        case.graph.outputs().iter().zip(&got).zip(naive.iter().zip(&truth))
    {
        if let Some(difference) = difference(got, naive, truth, rounding(&case.graph, *id)) {
            prop_assume!(!decided_by_rounding(case)); // a sum in another order may turn it
            return Err(TestCaseError::fail(format!("{name} on {}: {difference}", device.name())));
        }
    }
    Ok(())
}

/// The same on every device.
pub(crate) fn agrees_everywhere(case: &Case, level: Level) -> Result<(), TestCaseError> {
    devices().into_iter().try_for_each(|device| agrees(device, case, level))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_compiled_graph_computes_what_it_means(case in graphs::any()) {
        agrees(&*CPU, &case, Level::O2)?;
    }

    #[test]
    fn every_level_computes_the_same(case in graphs::any()) {
        [Level::O0, Level::O1, Level::O3].into_iter().try_for_each(|level| agrees(&*CPU, &case, level))?;
    }
}

// Fewer on a card, where each plan is compiled once more.
proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_graph_compiled_for_a_card_computes_what_it_means(case in graphs::any()) {
        card().map_or(Ok(()), |card| agrees(card, &case, Level::O2))?;
    }

    #[test]
    fn every_level_computes_the_same_on_a_card(case in graphs::any()) {
        let levels = [Level::O0, Level::O1, Level::O3];
        card().map_or(Ok(()), |card| levels.into_iter().try_for_each(|level| agrees(card, &case, level)))?;
    }

    #[test]
    fn repeated_structures_are_told_apart_on_a_card(case in graphs::repeated()) {
        card().map_or(Ok(()), |card| agrees(card, &case, Level::O2))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn repeated_structures_are_told_apart(case in graphs::repeated()) {
        Level::ALL.into_iter().try_for_each(|level| agrees(&*CPU, &case, level))?;
    }
}

/// The sum of each row of `x`, and of `y` spread over the row: one motif, stored in two ways.
fn row_sums(order: [usize; 2]) -> Case {
    let builder = Builder::new("sums");
    let tape = builder.tape();
    let [x, y] = ["x", "y"].map(|name| tape.input(name, Dtype::F32, [4, 8]));
    for output in order {
        match output {
            0 => tape.output("a", &x.sum(1)),
            _ => tape.output("b", &y.sum(1).reshape([4, 1]).spread(y.shape())),
        }
    }
    let numbers = |first: u8| Array::floats(Dtype::F32, &[4, 8], (first..first + 32).map(f64::from));
    let values = [("x".to_owned(), numbers(0)), ("y".to_owned(), numbers(32))].into();
    Case { graph: builder.finish().expect("shapes fit"), values }
}

#[test]
fn a_row_stored_once_differs_from_a_row_spread() {
    for order in [[0, 1], [1, 0]] {
        for level in Level::ALL {
            agrees_everywhere(&row_sums(order), level)
                .unwrap_or_else(|error| panic!("{order:?} {level:?}: {error}"));
        }
    }
}

#[test]
fn programs_that_differ_have_different_texts() {
    let quiet = f32::from_bits(0x7fc0_0001);
    let flat = |value: f32| Program::flat("a", vec![Op::Float(value)], 0, Element::F32);
    let mut once = flat(1.0);
    once.stores[0].per_row = true;
    let mut named = flat(1.0);
    named.name = "a\n  %0 = 1.0".into();
    let all = [flat(1.0), once, named, flat(0.0), flat(-0.0), flat(f32::NAN), flat(quiet)];
    for (i, a) in all.iter().enumerate() {
        for (j, b) in all.iter().enumerate() {
            assert_eq!(a.is(b), i == j, "{a}{b}");
            assert_eq!(a.to_string() == b.to_string(), i == j, "{a}{b}");
        }
    }
}

/// Logits in a narrow type, handed out in f32: a weight (vocabulary, width) that many rows do not meet.
fn narrow_logits(dtype: Dtype, rows: i64, width: i64, vocabulary: i64) -> Graph {
    let builder = Builder::new("logits");
    let tape = builder.tape();
    let hidden = tape.input("hidden", dtype, [rows, width]);
    let weight = tape.input("weight", dtype, [vocabulary, width]);
    tape.output("logits", &hidden.matmul(&weight.t()).cast(Dtype::F32));
    builder.finish().expect("shapes fit")
}

#[test]
fn a_product_reads_a_narrow_weight_where_it_is() {
    for (dtype, element) in [(Dtype::F16, Element::F16), (Dtype::Bf16, Element::Bf16)] {
        let graph = narrow_logits(dtype, 33, 40, 700);
        let number = |i: usize| ((i * 7919 + 13) % 251) as f64 / 128.0 - 1.0; // exact in both types
        let rows = |rows: usize| Array::floats(dtype, &[rows, 40], (0..rows * 40).map(number));
        let values: Values<f64> = [("hidden".to_owned(), rows(33)), ("weight".to_owned(), rows(700))].into();
        let compiled = compile(&Solution, &graph, &BTreeMap::new(), Level::O2.options());
        let elements = compiled.expect("compiles").plan().steps.iter().find_map(|step| match step {
            Step::Product(product) => Some(product.elements),
            _ => None,
        });
        assert_eq!(elements, Some([element; 3]));
        let case = Case { values, graph };
        agrees_everywhere(&case, Level::O2).unwrap_or_else(|error| panic!("{dtype:?}: {error}"));
    }
}

#[test]
fn logits_in_bf16_need_no_memory_for_a_wide_weight() {
    let (rows, width, vocabulary) = (192, 4096, 128_256);
    let graph = narrow_logits(Dtype::Bf16, rows, width, vocabulary);
    let compiled = compile(&Solution, &graph, &BTreeMap::new(), Level::O2.options()).expect("compiles");
    let logits = (rows * vocabulary) as usize;
    assert!(
        compiled.arena.bytes <= logits * 8,
        "{} bytes, {} of a wide weight",
        compiled.arena.bytes,
        width * vocabulary * 4
    );
}

/// The exponentials of x: f32[T, 4], where T is a multiple of 4 from 4 to 64.
fn stretchable() -> Graph {
    let builder = Builder::new("stretchable");
    let length = builder.tape().symbol("T", Facts::range(4, 64).multiple_of(4));
    builder.tape().output("y", &builder.tape().input("x", Dtype::F32, [length, 4.into()]).exp());
    builder.finish().expect("shapes fit")
}

#[test]
fn sizes_are_held_against_what_is_known() {
    let describe = |sizes: &[(&str, i64)]| {
        let sizes = sizes.iter().map(|(symbol, size)| (Symbol::from(*symbol), *size)).collect();
        let compiled = compile(&Solution, &stretchable(), &sizes, Level::O2.options());
        compiled.err().map(|error| error.to_string())
    };
    let need = "expected 4..=64 by 4";
    for size in [-1, 0, 3, 6, 65, i64::MIN, i64::MAX] {
        assert_eq!(describe(&[("T", size)]), Some(format!("`stretchable`: T: {need}, found {size}")));
    }
    assert_eq!(describe(&[("T", 8)]), None);
    assert_eq!(describe(&[]), Some("%0 input \"x\": no input says how large T is".into()));
    let unknown = "a size is given for S, which is no symbol of the graph";
    assert_eq!(describe(&[("T", 8), ("S", 8)]), Some(unknown.into()));
}

#[test]
fn sizes_that_nothing_is_known_of_are_held_against_the_memory() {
    let length = Dim::symbol("T");
    let builder = Builder::new("free");
    let x = builder.tape().input("x", Dtype::F32, [&length, &length]);
    builder.tape().output("y", &x.exp());
    let graph = builder.finish().expect("shapes fit");
    for (size, shape) in [(-3, "[-3, -3]"), (1 << 40, "[1099511627776, 1099511627776]")] {
        let compiled = compile(&Solution, &graph, &[("T".into(), size)].into(), Level::O2.options());
        let message = compiled.err().expect("no memory has that").to_string();
        assert_eq!(message, format!("%0 input \"x\": {shape} has more elements than fit in memory"));
    }
}

/// A row of a table (rows, width).
fn picked(rows: usize, width: usize) -> Graph {
    let builder = Builder::new("picked");
    let tape = builder.tape();
    let table = tape.input("table", Dtype::F32, [rows, width]);
    let index = tape.input("index", Dtype::I32, [1]);
    tape.output("y", &table.gather(&index));
    builder.finish().expect("shapes fit")
}

#[test]
fn an_index_far_outside_does_not_wrap_around() {
    for index in [1 << 30, -1 << 30, 1 << 29, i32::MAX, i32::MIN, 3, -1] {
        let values: Values<f32> = [
            ("table".to_owned(), Array::floats(Dtype::F32, &[3, 4], (0..12).map(f64::from))),
            ("index".to_owned(), Array::integers(&[1], vec![index])),
        ]
        .into();
        let graph = picked(3, 4);
        assert!(interpret(&graph, &values).is_err());
        for (device, level) in
            devices().into_iter().flat_map(|device| Level::ALL.map(|level| (device, level)))
        {
            let on = device.name();
            assert!(run(device, &graph, &values, level).is_err(), "row {index} of 3 at {level:?} on {on}");
        }
    }
}

#[test]
fn a_table_beyond_an_i32_is_refused() {
    for (rows, width) in [(1 << 20, 1 << 11), (1 << 31, 1), (1, 1 << 31)] {
        let graph = picked(rows, width);
        let compiled = compile(&Solution, &graph, &BTreeMap::new(), Level::O2.options());
        let message = compiled.err().expect("places do not fit").to_string();
        assert!(message.contains("expected places of at most 2147483647"), "{message}");
    }
}

#[test]
fn a_coordinate_beyond_an_i32_is_refused() {
    let builder = Builder::new("counted");
    let tape = builder.tape();
    tape.output("y", &tape.iota(&[Dim::fixed(3 << 30)], 0).cast(Dtype::F32).reduce_max(0));
    let graph = builder.finish().expect("shapes fit");
    let compiled = compile(&Solution, &graph, &BTreeMap::new(), Level::O2.options());
    let message = compiled.err().expect("places do not fit").to_string();
    assert_eq!(message, "%2 reduce_max: expected places of at most 2147483647, found 3221225471");
}

/// The result of one attention and the gradient of another, which differ in a constant of their score alone.
fn two_attentions(constants: [f64; 2]) -> Case {
    let [first, second] = constants.map(|constant| {
        let body = |at: &ScoreEntry| {
            let slope = at.score.like(1.0).div(&at.score.like(constant)); // of 0: infinite, with its sign
            let slope = slope.min(&slope.like(2.0)).max(&slope.like(-2.0));
            &slope * &at.score
        };
        let score = programs::score("score", &[], body).expect("a sound program");
        Attention { scale: 0.5, score: Some(score), mask: None }
    });
    let builder = Builder::new("two");
    let tape = builder.tape();
    let shape = [1, 1, 3, 2];
    let [q, k, v, g] = ["q", "k", "v", "g"].map(|name| tape.input(name, Dtype::F32, shape));
    tape.output("result", &q.attend(first, &k, &v, &[]));
    let gradient = reference::graph::Op::AttentionGrad { attention: Box::new(second), wrt: 0 };
    tape.output("gradient", &tape.apply(gradient, &[&q, &k, &v, &g], None));
    let numbers = |salt: usize| (0..6).map(move |i| ((i * 5 + salt * 3) % 7) as f64 / 4.0 - 0.7);
    let values = ["q", "k", "v", "g"].into_iter().enumerate().map(|(salt, name)| {
        (name.to_owned(), Array::floats(Dtype::F32, &shape.map(|n| n as usize), numbers(salt)))
    });
    let values = values.map(|(name, value): (_, Array<f32>)| {
        let wide = Array::floats(Dtype::F32, &value.shape, value.wide());
        (name, wide)
    });
    Case { values: values.collect(), graph: builder.finish().expect("shapes fit") }
}

#[test]
fn attentions_that_differ_in_a_sign_of_zero_are_two() {
    for constants in [[0.0, -0.0], [-0.0, 0.0], [0.0, 0.0], [f64::NAN, f64::NAN]] {
        let case = two_attentions(constants);
        agrees_everywhere(&case, Level::O2).unwrap_or_else(|error| panic!("{constants:?}: {error}"));
    }
}

/// Rows to add, and rows and numbers a row of the table: no index is looked at where there is nothing to add to. What
/// is padded has indices of 0, whether the table has rows or not.
#[test]
fn a_scatter_into_an_empty_table_is_the_empty_table() {
    for (count, rows, width) in [(0, 0, 3), (0, 0, 0), (0, 2, 3), (0, 2, 0), (2, 3, 0), (2, 0, 0), (2, 0, 3)]
    {
        let builder = Builder::new("scatter");
        let x = builder.tape().input("x", Dtype::F32, [count, width]);
        let index = builder.tape().input("index", Dtype::I32, [count]);
        let table = x.scatter_add(&index, rows);
        builder.tape().output("table", &table);
        builder.tape().output("nothing", &x.slice(1, 0, 0).scatter_add(&index, rows));
        builder.tape().output("none", &x.slice(1, 0, 0).gather(&index.slice(0, 0, 0)));
        let graph = builder.finish().expect("a graph");
        let ones = Array::floats(Dtype::F32, &[count, width], vec![1.0; count * width]);
        let index = Array::integers(&[count], vec![0; count]);
        let values = Values::from([("x".to_owned(), ones), ("index".to_owned(), index)]);
        let want = interpret(&graph, &values).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(want[0].shape, [rows, width]);
        assert!(want[0].wide().iter().all(|x| *x == 0.0));
        for device in devices() {
            for level in [Level::O0, Level::O1, Level::O2] {
                let got = run(device, &graph, &values, level);
                assert_eq!(got.as_ref(), Ok(&want), "{count} into {rows} of {width}, {}", device.name());
            }
        }
    }
}

/// No row in truth, and a bucket of rows.
#[test]
fn a_scatter_of_no_rows_is_padded() {
    let builder = Builder::new("scatter");
    let count = builder.tape().symbol("N", Facts::range(0, 16));
    let x = builder.tape().input("x", Dtype::F32, [count.clone(), 3.into()]);
    let index = builder.tape().input("index", Dtype::I32, [count]);
    builder.tape().output("table", &x.scatter_add(&index, 0));
    let graph = builder.finish().expect("a graph");
    let values = Values::from([
        ("x".to_owned(), Array::floats(Dtype::F32, &[0, 3], [])),
        ("index".to_owned(), Array::integers(&[0], vec![])),
    ]);
    let want = interpret(&graph, &values).expect("it means something");
    for device in devices() {
        let session = OneGraph::new(&Solution, device, &graph, Settings::default());
        let got = session.expect("it can be padded").arrays(&values);
        assert_eq!(got.expect("it runs"), want, "{}", device.name());
    }
    let padded = pad(&graph, &["N".into()]).expect("it can be padded").graph;
    let wide = Values::<f32>::from([
        ("x".to_owned(), Array::floats(Dtype::F32, &[4, 3], [f64::NAN; 12])),
        ("index".to_owned(), Array::integers(&[4], vec![9; 4])),
        (length_name("N"), Array::integers(&[], vec![0])),
    ]);
    assert_eq!(interpret(&padded, &wide).expect("it means the same"), want);
}
