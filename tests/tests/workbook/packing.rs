//! Packed and padded rows: a document has the numbers that it has alone, whatever shares its row and its batch.

use std::collections::BTreeMap;

use challenges::graph::Solution;
use compiler::compile::{Level, compile};
use compiler::rewrite::pad::pad;
use compiler::session::Settings;
use kernels::Device;
use kernels::plan::Step;
use proptest::prelude::*;
use reference::grad::differentiate;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, Graph, Real, interpret};
use reference::llama::train::{Recipe, Trainer, moments};
use reference::llama::{Llama, Rows, Spec, rope};
use reference::lora::{self, Adapter, Targets};
use reference::loss;
use reference::optim::AdamW;
use tests::one_graph::{OneGraph, devices};
use tests::small_llama::SmallLlama;

use crate::compiled::{Runner, sizes};
use crate::pad::{Sizes, check_all};

/// What stands in a row.
#[derive(Clone, Debug)]
enum Piece {
    Document(Vec<i32>),
    Padding(usize),
}

use Piece::{Document, Padding};

type Row = Vec<Piece>;

/// The token in padding, which no document has.
const PAD: i32 = 16;

impl Piece {
    fn len(&self) -> usize {
        match self {
            Document(tokens) => tokens.len(),
            Padding(count) => *count,
        }
    }
}

/// A document of so many tokens, another one for every seed.
fn document(length: usize, seed: usize) -> Piece {
    Document((0..length).map(|i| ((i * i + 5 * i + 7 * seed) % 16) as i32).collect())
}

/// Rows that break things.
fn cases() -> Vec<Vec<Row>> {
    let [a, b] = [1, 2].map(|seed| document(3, seed));
    vec![
        vec![vec![document(6, 0)]],
        vec![vec![a.clone(), b.clone()], vec![b, a]],
        vec![vec![document(1, 3), document(4, 4), document(1, 5)]],
        vec![vec![Padding(3), document(4, 6)], vec![document(7, 7)], vec![Padding(6), document(1, 8)]],
        vec![vec![Padding(5)], vec![document(2, 9), Padding(2), document(1, 10)]],
        vec![vec![Padding(4)]],
    ]
}

/// The tokens of a row.
fn length(rows: &[Row]) -> usize {
    rows.iter().map(|row| row.iter().map(Piece::len).sum()).max().unwrap_or(0).max(1)
}

/// Every document with the place of its first token among all tokens.
fn documents(rows: &[Row]) -> Vec<(usize, &[i32])> {
    let mut found = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let mut place = number * length(rows);
        for piece in row {
            if let Document(tokens) = piece {
                found.push((place, tokens.as_slice()));
            }
            place += piece.len();
        }
    }
    found
}

/// The inputs of a batch; `pad` is what stands in padding: a token, a position and a document.
fn batch<R: Real>(rows: &[Row], pad: [i32; 3]) -> Values<R> {
    let length = length(rows);
    let mut columns = [const { Vec::new() }; 3]; // tokens, positions, documents
    for row in rows {
        let rest = length - row.iter().map(Piece::len).sum::<usize>();
        for (number, piece) in (1..).zip(row.iter().chain([&Padding(rest)])) {
            for place in 0..piece.len() {
                let here = match piece {
                    Document(tokens) => [tokens[place], place as i32, number],
                    Padding(_) => pad,
                };
                columns.iter_mut().zip(here).for_each(|(column, x)| column.push(x));
            }
        }
    }
    let [ids, positions, documents] = columns.map(|column| Array::integers(&[rows.len(), length], column));
    let labels = ids.clone();
    [("ids", ids), ("labels", labels), ("positions", positions), ("documents", documents)]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// A small model, and its graphs.
struct Model {
    llama: Llama,
}

impl Model {
    fn new() -> Self {
        Self { llama: SmallLlama::sound().open().expect("it is sound") }
    }

    fn spec(&self, rows: Rows) -> Spec {
        Spec { rows, ..self.llama.spec() }
    }

    /// To logits.
    fn forward(&self, rows: Rows) -> Graph {
        self.spec(rows).forward().expect("a graph")
    }

    /// To the loss and its gradient with respect to every weight.
    fn backward(&self, rows: Rows) -> Graph {
        let mut graph = self.spec(rows).training_loss().expect("a graph");
        let weights: Vec<_> = graph
            .inputs()
            .filter(|(name, _)| name.ends_with(".weight"))
            .map(|(name, id)| (name.to_owned(), id))
            .collect();
        let ids: Vec<_> = weights.iter().map(|(_, id)| *id).collect();
        let loss = graph.outputs()[0].1;
        let gradients = differentiate(&mut graph, loss, &ids).expect("floats");
        for ((name, _), gradient) in weights.iter().zip(gradients) {
            graph.output(format!("{name}.grad"), gradient);
        }
        graph
    }

    /// All inputs of a graph on packed rows.
    fn values<R: Real>(&self, rows: &[Row]) -> Values<R> {
        self.values_with(batch(rows, [PAD, 31, 0]))
    }

    fn values_with<R: Real>(&self, batch: Values<R>) -> Values<R> {
        let mut values = self.llama.values().expect("weights");
        values.append(&mut rope::values(&self.llama.config, self.llama.config.positions));
        values.extend(batch);
        values
    }

    /// What a document gives alone: logits, then its loss and gradients, summed over what it predicts.
    fn alone(&self, tokens: &[i32]) -> (Vec<f64>, Vec<Vec<f64>>) {
        let ids = Array::integers(&[1, tokens.len()], tokens.to_vec());
        let mut values = self.llama.values::<f64>().expect("weights");
        values.append(&mut rope::values(&self.llama.config, tokens.len()));
        values.extend([("ids".to_owned(), ids.clone()), ("labels".to_owned(), ids)]);
        let run = |graph: &Graph| wide(&interpret(graph, &values).expect("it runs"));
        let predicted = (tokens.len() - 1) as f64;
        let sum = |mean: Vec<f64>| mean.into_iter().map(|x| x * predicted).collect();
        let means = run(&self.backward(Rows::default()));
        (run(&self.forward(Rows::default())).remove(0), means.into_iter().map(sum).collect())
    }

    /// Holds rows to the law: each document's logits, and the mean of what all documents predict.
    fn check(
        &self,
        rows: &[Row],
        slack: f64,
        forward: &mut dyn FnMut(&[Row]) -> Vec<Vec<f64>>,
        backward: &mut dyn FnMut(&[Row]) -> Vec<Vec<f64>>,
    ) {
        let vocab = self.llama.config.vocab;
        let (logits, got) = (forward(rows).remove(0), backward(rows));
        let mut want: Vec<Vec<f64>> = got.iter().map(|x| vec![0.0; x.len()]).collect();
        let mut predicted = 0.0;
        for (place, tokens) in documents(rows) {
            let (alone, sums) = self.alone(tokens);
            near("logits", &logits[place * vocab..][..alone.len()], &alone, slack);
            want.iter_mut().zip(sums).for_each(|(all, one)| add(all, &one));
            predicted += (tokens.len() - 1) as f64;
        }
        want.iter_mut().flatten().for_each(|sum| *sum /= f64::max(predicted, 1.0));
        got.iter().zip(&want).for_each(|(got, want)| near("loss or gradient", got, want, slack));
    }
}

fn wide<R: Real>(arrays: &[Array<R>]) -> Vec<Vec<f64>> {
    arrays.iter().map(Array::wide).collect()
}

fn add(all: &mut [f64], one: &[f64]) {
    all.iter_mut().zip(one).for_each(|(all, one)| *all += one);
}

/// No further apart than `slack`, times the largest if that is above 1.
fn near(what: &str, got: &[f64], want: &[f64], slack: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1.0_f64, |most, x| most.max(x.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= slack * scale, "{what}: element {i}: expected {want}, found {got}");
    }
}

/// The slack of f32: what the golden model is given, too.
const ROUNDING: f64 = 2e-5;

fn pieces() -> impl Strategy<Value = Row> {
    let document = prop::collection::vec(0..PAD, 1..=5).prop_map(Document);
    prop::collection::vec(prop_oneof![3 => document, 1 => (1..=3_usize).prop_map(Padding)], 0..=3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn packed_documents_are_the_documents_alone(rows in prop::collection::vec(pieces(), 1..=3)) {
        let model = Model::new();
        let [forward, backward] = [model.forward(Rows::PACKED), model.backward(Rows::PACKED)];
        let run = |graph: &Graph, rows: &[Row]| {
            wide(&interpret(graph, &model.values::<f64>(rows)).expect("it runs"))
        };
        model.check(&rows, 1e-12, &mut |rows| run(&forward, rows), &mut |rows| run(&backward, rows));
    }
}

#[test]
fn packed_rows_compile_to_the_documents_alone() {
    let model = &Model::new();
    let graphs = [model.forward(Rows::PACKED), model.backward(Rows::PACKED)];
    let levels = [Level::O0, Level::O1, Level::O2];
    for (device, level) in devices().into_iter().flat_map(|device| levels.map(|level| (device, level))) {
        for rows in cases() {
            let values = model.values::<f32>(&rows);
            let [mut forward, mut backward] = graphs.each_ref().map(|graph| {
                let runner = Runner::new(device, graph, &values, level);
                let mut runner = runner.unwrap_or_else(|error| panic!("{level:?}: {error}"));
                let meaning =
                    wide(&interpret(graph, &model.values::<f64>(&rows)).expect("it means something"));
                move |rows: &[Row]| {
                    let got = wide(&runner.run(&model.values(rows)).expect("it runs"));
                    got.iter().zip(&meaning).for_each(|(got, want)| near("meaning", got, want, ROUNDING));
                    got
                }
            });
            model.check(&rows, ROUNDING, &mut forward, &mut backward);
        }
    }
}

/// Every length is padded to a bucket on top of the padding that its rows have.
#[test]
fn packed_rows_in_a_session_are_the_documents_alone() {
    devices().into_iter().for_each(session_has_documents_alone);
}

fn session_has_documents_alone(device: &dyn Device) {
    let model = Model::new();
    let session = |graph: &Graph| {
        OneGraph::new(&Solution, device, graph, Settings::default()).expect("it can be padded")
    };
    let [mut forward, mut backward] =
        [model.forward(Rows::PACKED), model.backward(Rows::PACKED)].map(|graph| session(&graph));
    let more = [1, 9, 17, 30].map(|length| {
        vec![vec![document(length, 1), document(2, 2)], vec![Padding(length), document(1, 3)], vec![]]
    });
    for rows in cases().into_iter().chain(more) {
        let run = |graph: &mut OneGraph<'_>, rows: &[Row]| {
            wide(&graph.arrays(&model.values(rows)).expect("it runs"))
        };
        model.check(&rows, ROUNDING, &mut |rows| run(&mut forward, rows), &mut |rows| {
            run(&mut backward, rows)
        });
    }
    assert!(forward.counters().hits > 0, "{:?}", forward.counters());
}

/// Whatever stands beyond the real tokens and rows, positions and documents of their own among it.
#[test]
fn packed_rows_are_the_same_in_every_bucket() {
    let model = Model::new();
    for graph in [model.forward(Rows::PACKED), model.backward(Rows::PACKED)] {
        for bucket in [vec![("T", 8)], vec![("B", 3)], vec![("B", 3), ("T", 8)]] {
            let to: Sizes = bucket.into_iter().map(|(symbol, size)| (symbol.into(), size)).collect();
            let padded = pad(&graph, &to.keys().cloned().collect::<Vec<_>>()).expect("it can be padded");
            for rows in cases() {
                let same = check_all(&graph, &padded, &model.values(&rows), &to);
                same.unwrap_or_else(|error| panic!("{rows:?} in {to:?}: {error:.500}"));
            }
        }
    }
}

#[test]
fn attention_within_documents_is_a_launch_a_layer() {
    let model = Model::new();
    let (graph, rows) = (model.backward(Rows::PACKED), cases().swap_remove(1));
    let compiled = compile(&Solution, &graph, &sizes(&graph, &model.values(&rows)), Level::O2.options());
    let compiled = compiled.expect("it compiles");
    let count = |is: fn(&Step) -> bool| compiled.plan().steps.iter().filter(|step| is(step)).count();
    let layers = model.llama.config.layers;
    assert_eq!(count(|step| matches!(step, Step::Attention { .. })), layers);
    assert_eq!(count(|step| matches!(step, Step::AttentionGrad(_))), layers);
}

#[test]
fn counted_positions_and_one_document_change_nothing() {
    let model = Model::new();
    let rows = [vec![document(5, 1)], vec![document(5, 2)]];
    let values = model.values::<f64>(&rows);
    let mut plain = values.clone();
    plain.append(&mut rope::values(&model.llama.config, 5));
    let want = wide(&interpret(&model.backward(Rows::default()), &plain).expect("it runs"));
    for (positions, documents) in [(true, false), (false, true), (true, true)] {
        let values = if positions { &values } else { &plain };
        let graph = model.backward(Rows { positions, documents, ..Rows::default() });
        let got = wide(&interpret(&graph, values).expect("it runs"));
        got.iter().zip(&want).for_each(|(got, want)| near("loss or gradient", got, want, 1e-14));
    }
}

/// To the bit, and the token that stands there alone has no gradient.
#[test]
fn what_stands_in_padding_reaches_nothing() {
    let model = Model::new();
    let rows = cases().swap_remove(3);
    let [forward, backward] = [model.forward(Rows::PACKED), model.backward(Rows::PACKED)];
    let run = |graph: &Graph, pad| {
        wide(&interpret(graph, &model.values_with(batch::<f32>(&rows, pad))).expect("it runs"))
    };
    let (one, other) = ([PAD, 0, 0], [3, 31, -7]);
    let (logits, others) = (run(&forward, one).remove(0), run(&forward, other).remove(0));
    for (place, tokens) in documents(&rows) {
        let of = |logits: &[f64]| logits[place * 17..][..tokens.len() * 17].to_vec();
        assert_eq!(of(&logits), of(&others));
    }
    let gradients = run(&backward, one);
    assert_eq!(gradients, run(&backward, other));
    let embedding = backward.outputs().iter().position(|(name, _)| name == "model.embed_tokens.weight.grad");
    let embedding = &gradients[embedding.expect("an output")];
    assert!(embedding[PAD as usize * 12..].iter().all(|x| *x == 0.0) && embedding.iter().any(|x| *x != 0.0));
}

#[test]
fn packed_rows_have_the_gradient_that_differences_say() {
    let model = Model::new();
    let graph = model.spec(Rows::PACKED).training_loss().expect("a graph");
    for rows in &cases()[1..5] {
        crate::grad::agree(&graph, &model.values(rows), 1e-7).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Three steps on one packed row, and on a row for each document.
#[test]
fn packed_and_padded_batches_train_alike() {
    let model = Model::new();
    let targets = Targets::AllLinear;
    let config = lora::Config::new(3, 6.0, targets);
    let spec = Spec { adapter: Some(config.clone()), ..model.spec(Rows::PACKED) };
    let train = |rows: &[Row]| {
        let adapter =
            Adapter::fresh(config.clone(), &model.llama.config, 7).expect("targets are projections");
        let mut values = model.llama.values::<f64>().expect("weights");
        values.append(&mut adapter.values());
        let recipe = Recipe { optimizer: AdamW::default(), max_norm: 1.0 };
        let mut trainer = Trainer::new(spec.clone(), recipe, values).expect("a step");
        let reports = (0..3).map(|_| trainer.step_on(batch(rows, [PAD, 0, 0]), 1e-2).expect("it runs"));
        let reports: Vec<[f64; 2]> = reports.map(|report| [report.loss, report.grad_norm]).collect();
        (reports.concat(), trainer.values().clone())
    };
    let [a, b] = [document(4, 1), document(2, 2)];
    let (packed, end) = train(&[vec![a.clone(), b.clone()]]);
    let (padded, other) = train(&[vec![a], vec![Padding(2), b]]);
    near("losses and norms", &packed, &padded, 1e-12);
    for name in end.keys().filter(|name| name.starts_with("base_model.")) {
        near(name, &end[name].wide(), &other[name].wide(), 1e-9);
        near(name, &end[&moments(name)[0]].wide(), &other[&moments(name)[0]].wide(), 1e-12);
    }
}

#[test]
fn the_first_label_of_a_document_is_ignored() {
    let builder = Builder::new("labels");
    let [labels, documents] =
        ["labels", "documents"].map(|name| builder.tape().input(name, Dtype::I32, [2, 5]));
    builder.tape().output("kept", &loss::within_documents(&labels, &documents));
    let graph = builder.finish().expect("shapes fit");
    let values = [
        ("labels".to_owned(), Array::integers(&[2, 5], (10..20).collect())),
        ("documents".to_owned(), Array::integers(&[2, 5], vec![1, 1, 2, 3, 3, -1, -1, 0, 1, 1])),
    ];
    let kept = interpret::<f32>(&graph, &values.into()).expect("it runs").remove(0);
    let none = loss::IGNORED;
    assert_eq!(kept.as_integers(), [none, 11, none, none, 14, none, none, none, none, 19]);
}

#[test]
fn a_position_outside_the_tables_and_a_missing_input_are_named() {
    let model = Model::new();
    let graph = model.forward(Rows::PACKED);
    let refused = |spoil: &dyn Fn(&mut Values<f32>)| {
        let mut values = model.values(&[vec![document(3, 0)]]);
        spoil(&mut values);
        for device in devices() {
            let compiled = Runner::new(device, &graph, &values, Level::O2);
            let ran = compiled.and_then(|mut runner| runner.run(&values));
            assert!(ran.is_err(), "it runs where it is compiled, on {}", device.name());
        }
        interpret(&graph, &values).expect_err("it does not fit").to_string()
    };
    for (position, row) in [(32, 2), (-1, 0)] {
        let message = refused(&|values| {
            let mut positions = vec![0; 3];
            positions[row] = position;
            values.insert("positions".into(), Array::integers(&[1, 3], positions));
        });
        assert!(message.contains(&format!("index[{row}]: expected 0 to 31, found {position}")), "{message}");
    }
    for name in ["positions", "documents"] {
        let message = refused(&|values| drop(values.remove(name)));
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn plain_rows_take_no_further_inputs() {
    let model = Model::new();
    let names = |rows| {
        let graph = model.forward(rows);
        let symbols: BTreeMap<_, _> = graph.known().clone();
        assert_eq!(symbols.len(), 2, "B and T");
        let names = graph.inputs().map(|(name, _)| name.to_owned());
        names.filter(|name| !name.ends_with(".weight")).collect::<Vec<_>>()
    };
    assert_eq!(names(Rows::default()), ["ids", "rope.cos", "rope.sin"]);
    let mut packed = names(Rows::PACKED);
    packed.sort();
    assert_eq!(packed, ["documents", "ids", "positions", "rope.cos", "rope.sin"]);
}
