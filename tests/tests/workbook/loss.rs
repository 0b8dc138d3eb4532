//! Losses. Here the cross entropy in its simplest form: its value, its gradient, and labels that do not count or do not
//! exist. Below: every loss against the golden ones, against its own derivative, by its laws, and given nonsense.

mod agree;
mod errors;
pub(crate) mod golden;
mod laws;
pub(crate) mod problem;

use reference::grad::differentiate;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dim, Dtype, Error, Facts, Graph, interpret};
use reference::loss::{causal, cross_entropy};

const LOGITS: [f64; 12] = [1.0, -2.0, 0.5, 700.0, 699.0, -700.0, 0.0, 0.0, 0.0, 3.0, 1.0, 2.0];

#[test]
fn it_is_the_mean_over_the_labels_that_count() {
    let labels = [2, 1, -100, 0];
    let rows = [(0, 2), (1, 1), (3, 0)];
    let want = rows.map(|(row, label)| nll(row, label)).iter().sum::<f64>() / 3.0;
    let [loss, gradient] = run(&labels).expect("a loss");
    assert!((loss[0] - want).abs() < 1e-12, "{loss:?}, not {want}");
    for (i, got) in gradient.iter().enumerate() {
        let (row, column) = (i / 3, i % 3);
        let hit = if labels[row] == column as i32 { 1.0 } else { 0.0 };
        let want = if labels[row] == -100 { 0.0 } else { ((-nll(row, column)).exp() - hit) / 3.0 };
        assert!((got - want).abs() < 1e-12, "row {row}, column {column}: {got}, not {want}");
    }
}

#[test]
fn the_loss_of_nothing_is_nothing() {
    let [loss, gradient] = run(&[-100; 4]).expect("a loss");
    assert_eq!(loss, [0.0]);
    assert!(gradient.iter().all(|g| *g == 0.0));
}

#[test]
fn a_label_outside_the_vocabulary_is_an_error_that_names_its_row() {
    for (label, row) in [(3, 2), (-1, 1), (-99, 0), (i32::MAX, 3)] {
        let mut labels = [0; 4];
        labels[row] = label;
        let error = run(&labels).expect_err("no such label").to_string();
        assert!(error.contains(&format!("index[{row}]: expected 0 to 2, found {label}")), "{error}");
    }
}

#[test]
fn each_position_is_held_against_the_next_label() {
    let builder = Builder::new("causal");
    let [batch, length] = ["B", "T"].map(|name| builder.tape().symbol(name, Facts::range(1, 9)));
    let logits = builder.tape().input("logits", Dtype::F32, [batch.clone(), length.clone(), Dim::fixed(3)]);
    let labels = builder.tape().input("labels", Dtype::I32, [batch, length]);
    builder.tape().output("loss", &causal(&logits, &labels));
    let graph = builder.finish().expect("a graph");
    let loss = |batch: usize, length: usize, labels: Vec<i32>| {
        let logits = Array::floats(Dtype::F32, &[batch, length, 3], LOGITS);
        let labels = Array::integers(&[batch, length], labels);
        let values: Values<f64> = [("logits".into(), logits), ("labels".into(), labels)].into();
        interpret(&graph, &values).expect("a loss")[0].wide()[0]
    };
    let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-12, "{got}, not {want}");
    near(loss(1, 4, vec![9, 1, -100, 2]), f64::midpoint(nll(0, 1), nll(2, 2)));
    near(loss(2, 2, vec![9, 1, -100, 2]), f64::midpoint(nll(0, 1), nll(2, 2)));
    near(loss(4, 1, vec![0; 4]), 0.0);
}

/// -ln softmax(row)[label]
fn nll(row: usize, label: usize) -> f64 {
    let row = &LOGITS[3 * row..][..3];
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.iter().map(|x| (x - largest).exp()).sum::<f64>().ln() + largest - row[label]
}

/// Loss and gradient.
fn run(labels: &[i32; 4]) -> Result<[Vec<f64>; 2], Error> {
    let values: Values<f64> = [
        ("logits".into(), Array::floats(Dtype::F32, &[4, 3], LOGITS)),
        ("labels".into(), Array::integers(&[4], labels.to_vec())),
    ]
    .into();
    let results = interpret(&graph(), &values)?;
    Ok([results[0].wide(), results[1].wide()])
}

fn graph() -> Graph {
    let builder = Builder::new("cross_entropy");
    let logits = builder.tape().input("logits", Dtype::F32, [4_usize, 3]);
    let labels = builder.tape().input("labels", Dtype::I32, [4_usize]);
    builder.tape().output("loss", &cross_entropy(&logits, &labels));
    let wrt = builder.id(&logits).expect("no mistake");
    let mut graph = builder.finish().expect("a graph");
    let loss = graph.outputs()[0].1;
    let gradient = differentiate(&mut graph, loss, &[wrt]).expect("a gradient")[0];
    graph.output("gradient", gradient);
    graph
}
