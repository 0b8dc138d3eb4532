//! Graphs that repeat a structure: one motif over several inputs, each result used in another way.
//!
//! A compiler that recognises what it has seen before has to tell apart what is alike but for its use: a row's sum that
//! is stored once a row from one that is spread over the row, an input read along its rows from one read across them.

use proptest::collection::vec;
use proptest::prelude::*;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dim, Dtype, Tensor};

use super::Case;

/// A graph that repeats a motif under several outputs, in any order.
pub fn repeated() -> impl Strategy<Value = Case> {
    let size = || prop::sample::select(vec![1_usize, 2, 3, 4, 8, 17]);
    let motif = (vec(0..MOTIFS, 1..4), any::<bool>(), 0..3_usize);
    let motif = motif.prop_map(|(ops, across, dtype)| Motif { ops, across, dtype });
    let site = (0..2_usize, 0..4_usize, 0..4_usize, vec(0..USES, 1..4));
    let site = site.prop_map(|(motif, input, other, uses)| Site { motif, input, other, uses });
    (size(), size(), 2..4_usize, vec(motif, 1..3), vec(site, 2..6), any::<u32>()).prop_map(
        |(rows, columns, inputs, motifs, sites, seed)| {
            Repeated { rows, columns, inputs, motifs, sites, seed }.follow()
        },
    )
}

#[derive(Clone, Debug)]
struct Repeated {
    rows: usize,
    columns: usize,
    inputs: usize,
    motifs: Vec<Motif>,
    sites: Vec<Site>,
    seed: u32,
}

/// A chain of operations on a matrix, which may end in one number a row or a column.
#[derive(Clone, Debug)]
struct Motif {
    ops: Vec<usize>,
    across: bool, // whether it reduces along columns
    dtype: usize,
}

/// One motif over one input, and how its result is used: an output for each use.
#[derive(Clone, Debug)]
struct Site {
    motif: usize,
    input: usize,
    other: usize,
    uses: Vec<usize>,
}

const MOTIFS: usize = 9;
const USES: usize = 10;

impl Repeated {
    fn follow(&self) -> Case {
        let builder = Builder::new("repeated");
        let shape = [self.rows, self.columns];
        let mut values = Values::new();
        let mut inputs = Vec::new();
        for input in 0..self.inputs {
            let name = format!("x{input}");
            let number =
                |i: usize| f64::from((i as u32 + 1).wrapping_mul(self.seed | 1) >> 20) / 2048.0 - 1.0;
            let numbers = (0..self.rows * self.columns).map(|i| number(i * 7 + input));
            values.insert(name.clone(), Array::floats(Dtype::F32, &shape, numbers));
            inputs.push(builder.tape().input(&name, Dtype::F32, shape));
        }
        let mut count = 0;
        for site in &self.sites {
            let motif = &self.motifs[site.motif % self.motifs.len()];
            let [x, y] = [site.input, site.other].map(|i| &inputs[i % inputs.len()]);
            let made = motif.of(x);
            for way in &site.uses {
                builder.tape().output(&format!("out{count}"), &used(*way, &made, y));
                count += 1;
            }
        }
        Case { graph: builder.finish().expect("steps that fit"), values }
    }
}

impl Motif {
    /// Over (rows, columns): again a matrix, or one with a row or a column.
    fn of(&self, x: &Tensor) -> Tensor {
        let dim = usize::from(!self.across);
        let narrow = [Dtype::F32, Dtype::F16, Dtype::Bf16][self.dtype];
        let mut made = x.clone();
        for op in &self.ops {
            made = match op {
                0 => kept(&made, dim, Tensor::sum),
                1 => kept(&made, dim, Tensor::reduce_max),
                2 => &made - &kept(&made, dim, Tensor::sum).spread(made.shape()),
                3 => made.sin(),
                4 => &made * 0.5,
                5 => &made * &made,
                6 => made.cast(narrow).cast(Dtype::F32),
                7 => made.tanh(),
                _ => made.softmax(dim),
            };
        }
        made
    }
}

/// A reduction that keeps its dimension as one of size 1.
fn kept(x: &Tensor, dim: usize, reduce: fn(&Tensor, usize) -> Tensor) -> Tensor {
    let mut shape = x.shape().to_vec();
    shape[dim] = Dim::fixed(1);
    reduce(x, dim).reshape(shape)
}

/// A result read as it is, spread, transposed, taken away from an input, and so on.
fn used(way: usize, made: &Tensor, y: &Tensor) -> Tensor {
    let spread = || made.spread(y.shape());
    match way {
        0 => made.clone(),
        1 => spread(),
        2 => made.t(),
        3 => y - &spread(),
        4 => spread().t(),
        5 => &spread().t() - &y.t(),
        6 => made.sum(0),
        7 => made.tape().concat(&[&spread(), y], 0),
        8 => made.reshape([made.shape().iter().fold(Dim::fixed(1), |all, dim| &all * dim)]),
        _ => spread().slice(0, 0, 1),
    }
}
