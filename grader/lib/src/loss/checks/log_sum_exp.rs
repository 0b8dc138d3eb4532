//! E.1: ln of a sum of e^z, a stretch of the vocabulary at a time.

use std::ops::Range;

use challenges::loss::Chunked;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dim, Dtype, Graph, Id, Op, interpret};

use super::{Check, Rows};
use crate::compare::{describe, narrowed};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("one-stretch", |on, random| near(23, random).right(on.attempt)),
    ("by-seven", |on, random| near(7, random).right(on.attempt)),
    ("one-at-a-time", |on, random| near(1, random).right(on.attempt)),
    ("longer-than-the-vocabulary", |on, random| near(1000, random).right(on.attempt)),
    ("far-from-zero", |on, random| Stretched::drawn(Dtype::F32, 4, 3e4, random).right(on.attempt)),
    ("half-precision", |on, random| Stretched::drawn(Dtype::Bf16, 6, 2.0, random).right(on.attempt)),
    ("minus-infinity", |on, random| minus_infinity(on.attempt, random)),
    ("infinity-and-nan", |on, random| infinity_and_nan(on.attempt, random)),
    ("never-more-than-a-stretch", |on, random| narrow(on.attempt, &near(3, random))),
];

/// Operands around 0.
fn near(stretch: usize, random: &mut Random) -> Stretched {
    Stretched::drawn(Dtype::F32, stretch, 2.0, random)
}

/// The same with hidden states above 0, so that an infinite weight has an infinite logit of its sign.
fn above_zero(random: &mut Random) -> Stretched {
    let all = near(5, random);
    let hidden = all.hidden.wide().into_iter().map(|x| x.abs() + 0.1);
    Stretched { hidden: Array::floats(Dtype::F32, &[5, 6], hidden), ..all }
}

/// With rows of a tensor overwritten.
fn set(array: &mut Array<f64>, rows: Range<usize>, x: f64) {
    let mut numbers = array.wide();
    numbers[rows.start * 6..rows.end * 6].fill(x);
    *array = Array::floats(Dtype::F32, &array.shape.clone(), numbers);
}

fn minus_infinity(attempt: &dyn Chunked, random: &mut Random) -> Result<(), String> {
    let mut all = above_zero(random);
    set(&mut all.weight, 0..6, f64::NEG_INFINITY); // all of the first stretch, and more
    set(&mut all.weight, 20..23, f64::NEG_INFINITY);
    all.right(attempt)?;
    let mut none = near(5, random);
    none.hidden = all.hidden.clone();
    none.weight = Array::floats(Dtype::F32, &[23, 6], vec![f64::NEG_INFINITY; 23 * 6]);
    none.right(attempt)
}

fn infinity_and_nan(attempt: &dyn Chunked, random: &mut Random) -> Result<(), String> {
    let mut all = above_zero(random);
    set(&mut all.hidden, 1..2, f64::NAN);
    set(&mut all.hidden, 2..3, f64::INFINITY);
    all.right(attempt)
}

/// A product's operands, and a stretch.
struct Stretched {
    hidden: Array<f64>, // (N, H)
    weight: Array<f64>, // (V, H)
    stretch: usize,
}

impl Stretched {
    fn drawn(dtype: Dtype, stretch: usize, reach: f64, random: &mut Random) -> Self {
        let mut draw = |shape: [usize; 2], reach: f64| {
            let numbers = (0..shape[0] * shape[1]).map(|_| reach * (2.0 * random.unit() - 1.0));
            Array::<f32>::floats(dtype, &shape, numbers).widened()
        };
        Self { hidden: draw([5, 6], reach), weight: draw([23, 6], 1.0), stretch }
    }

    fn graph(&self, attempt: &dyn Chunked) -> Result<Graph, String> {
        let builder = Builder::new("log_sum_exp");
        let input = |name: &str, value: &Array<f64>| {
            builder.tape().input(name, value.dtype, value.shape.iter().copied())
        };
        let (hidden, weight) = (input("hidden", &self.hidden), input("weight", &self.weight));
        builder.tape().output("lse", &attempt.log_sum_exp(&hidden, &weight, self.stretch));
        builder.finish().map_err(describe)
    }

    /// ln of the sum of e^z of each row, by the definition.
    fn truth(&self) -> Vec<f64> {
        let width = self.hidden.shape[1];
        let (hidden, weight) = (self.hidden.wide(), self.weight.wide());
        let row = |h: &[f64]| {
            let dot = |w: &[f64]| h.iter().zip(w).map(|(h, w)| h * w).sum::<f64>();
            let z: Vec<f64> = weight.chunks(width).map(dot).collect();
            let largest = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let shift = if largest == f64::NEG_INFINITY { 0.0 } else { largest };
            z.iter().map(|z| (z - shift).exp()).sum::<f64>().ln() + shift
        };
        hidden.chunks(width).map(row).collect()
    }

    fn right(&self, attempt: &dyn Chunked) -> Result<(), String> {
        let graph = self.graph(attempt)?;
        let values: Values<f64> = [("hidden", &self.hidden), ("weight", &self.weight)]
            .map(|(name, x)| (name.to_owned(), x.clone()))
            .into();
        let wide = interpret(&graph, &values).map_err(describe)?;
        let short = interpret(&graph, &narrowed(&values)).map_err(describe)?;
        let rows = self.hidden.shape[0];
        let (wide, short) = (wide.first().ok_or("no output")?, short.first().ok_or("no output")?);
        if wide.shape != [rows, 1] || wide.dtype != Dtype::F32 {
            return Err(format!("expected f32 ({rows}, 1), found {:?} of {:?}", wide.shape, wide.dtype));
        }
        for (row, want) in self.truth().into_iter().enumerate() {
            for (got, slack) in [(wide.wide()[row], 1e-12), (short.wide()[row], self.slack())] {
                let alike = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
                let near = want.is_finite() && (got - want).abs() <= slack * want.abs().max(1.0);
                if !alike && !near {
                    return Err(format!("row {row}: got {got}, want {want}"));
                }
            }
        }
        Ok(())
    }

    /// The product may be rounded to its type.
    fn slack(&self) -> f64 {
        if self.hidden.dtype == Dtype::F32 { 3e-6 } else { 2e-2 }
    }
}

/// That no more entries of the vocabulary are there at a time than a stretch, in whatever order the graph is run.
fn narrow(attempt: &dyn Chunked, of: &Stretched) -> Result<(), String> {
    let graph = of.graph(attempt)?;
    let rows = of.hidden.shape[0];
    let most = of.stretch * rows;
    let stretches = products(&graph, rows);
    if let Some(id) = stretches.iter().find(|id| elements(&graph, **id) > most) {
        let (stretch, line) = (of.stretch, graph.line(*id));
        return Err(format!("with a stretch of {stretch}, this has more entries than that:\n{line}"));
    }
    let mut pairs =
        stretches.iter().flat_map(|a| stretches.iter().map(move |b| [*a, *b])).filter(|[a, b]| a < b);
    match pairs.find(|pair| kept_for_each_other(&graph, *pair, rows)) {
        Some([a, b]) => Err(format!(
            "the logits of two stretches are there at a time: what is made of each needs the other\n{}\n{}",
            graph.line(a),
            graph.line(b)
        )),
        None => Ok(()),
    }
}

/// Products that have more than one number for a row.
fn products(graph: &Graph, rows: usize) -> Vec<Id> {
    let results = graph.ancestors(graph.outputs().iter().map(|(_, id)| *id));
    let is_stretch = |id: &Id| graph.node(*id).op == Op::Matmul && elements(graph, *id) > rows;
    results.into_iter().filter(is_stretch).collect()
}

fn elements(graph: &Graph, id: Id) -> usize {
    graph.ty(id).shape.iter().filter_map(Dim::as_fixed).product::<i64>() as usize
}

/// Whether what is made of each one needs the other one: then no order lets go of either before the other is there.
fn kept_for_each_other(graph: &Graph, [a, b]: [Id; 2], rows: usize) -> bool {
    let waits = |of: Id, other: Id| graph.ancestors(made_of(graph, of, rows)).contains(&other);
    waits(a, b) && waits(b, a)
}

/// What is computed of a stretch's logits element by element, and what reads that: up to where a row has one number.
fn made_of(graph: &Graph, logits: Id, rows: usize) -> Vec<Id> {
    let mut made = vec![logits];
    for id in graph.ids().filter(|id| *id > logits) {
        let reads = |from: &Id| made.contains(from) && elements(graph, *from) > rows;
        if graph.node(id).inputs.iter().any(reads) {
            made.push(id);
        }
    }
    made
}
