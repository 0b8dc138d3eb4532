//! D.16: what each row's answer costs, and its gradient, against the plain functions in f64.

use challenges::issues::classify::{Classify, Problem};
use reference::grad;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, Graph, interpret};
use reference::issues::classify::{Targets, exact};

use super::{Check, Rows};
use crate::compare::{describe, narrowed};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("one-of-classes", |steps, random| Case::drawn(Problem::SingleLabel, NEAR, random).right(steps)),
    ("any-of-labels", |steps, random| Case::drawn(Problem::MultiLabel, NEAR, random).right(steps)),
    ("numbers", |steps, random| Case::drawn(Problem::Regression, NEAR, random).right(steps)),
    ("one-output", |steps, random| {
        let one = Sizes { classes: 1, ..NEAR };
        PROBLEMS.iter().try_for_each(|problem| Case::drawn(*problem, one, random).right(steps))
    }),
    ("one-row", |steps, random| {
        let one = Sizes { rows: 1, ..NEAR };
        PROBLEMS.iter().try_for_each(|problem| Case::drawn(*problem, one, random).right(steps))
    }),
    ("as-many-rows-as-classes", |steps, random| {
        let square = Sizes { rows: 5, classes: 5, ..NEAR };
        PROBLEMS.iter().try_for_each(|problem| Case::drawn(*problem, square, random).right(steps))
    }),
    ("far-from-zero", |steps, random| {
        let far = Sizes { reach: 1e4, ..NEAR };
        [Problem::SingleLabel, Problem::MultiLabel]
            .into_iter()
            .try_for_each(|problem| Case::drawn(problem, far, random).right(steps))
    }),
    ("logits-of-zero", |steps, random| {
        let zero = Sizes { reach: 0.0, ..NEAR };
        PROBLEMS.iter().try_for_each(|problem| Case::drawn(*problem, zero, random).right(steps))
    }),
    ("between-yes-and-no", |steps, random| {
        let mut case = Case::drawn(Problem::MultiLabel, NEAR, random);
        case.targets = case.targets.iter().map(|_| random.unit()).collect();
        case.right(steps)
    }),
    ("half-precision", |steps, random| {
        let half = Sizes { dtype: Dtype::Bf16, ..NEAR };
        PROBLEMS.iter().try_for_each(|problem| Case::drawn(*problem, half, random).right(steps))
    }),
    ("constant-targets", |steps, random| {
        [Problem::MultiLabel, Problem::Regression].into_iter().try_for_each(|problem| {
            let case = Case::drawn(problem, NEAR, random);
            let wrong = "expected no gradient of the targets, found one that is not 0";
            let found = case.run(steps)?.targets_gradient.iter().any(|x| *x != 0.0);
            if found { Err(format!("{problem}: {wrong}")) } else { Ok(()) }
        })
    }),
];

pub(super) const PROBLEMS: [Problem; 3] = [Problem::SingleLabel, Problem::MultiLabel, Problem::Regression];

/// Logits around 0.
const NEAR: Sizes = Sizes { rows: 6, classes: 4, reach: 3.0, dtype: Dtype::F32 };

/// Sizes of a batch.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub rows: usize,
    pub classes: usize,
    /// How far logits are from 0.
    pub reach: f64,
    /// Their type.
    pub dtype: Dtype,
}

/// Logits and what they are held against.
pub(super) struct Case {
    problem: Problem,
    sizes: Sizes,
    logits: Array<f64>,
    targets: Vec<f64>, // classes, too
}

/// What a graph gives.
struct Costs {
    losses: Vec<f64>,
    gradient: Vec<f64>,
    targets_gradient: Vec<f64>,
}

impl Case {
    /// Drawn logits and targets.
    pub fn drawn(problem: Problem, sizes: Sizes, random: &mut Random) -> Self {
        let Sizes { rows, classes, reach, dtype } = sizes;
        let numbers = (0..rows * classes).map(|_| reach * (2.0 * random.unit() - 1.0));
        let logits = Array::<f32>::floats(dtype, &[rows, classes], numbers.collect::<Vec<_>>()).widened();
        let targets = match problem {
            Problem::SingleLabel => (0..rows).map(|_| random.below(classes) as f64).collect(),
            Problem::MultiLabel => (0..rows * classes).map(|_| random.below(2) as f64).collect(),
            Problem::Regression => {
                (0..rows * classes).map(|_| f64::from(2.0 * random.unit() as f32)).collect()
            }
        };
        Self { problem, sizes, logits, targets }
    }

    fn of_classes(&self) -> Vec<i32> {
        self.targets.iter().map(|class| *class as i32).collect()
    }

    fn values(&self) -> Values<f64> {
        let Sizes { rows, classes, .. } = self.sizes;
        let targets = match self.problem {
            Problem::SingleLabel => Array::integers(&[rows], self.of_classes()),
            _ => Array::floats(Dtype::F32, &[rows, classes], self.targets.iter().copied()),
        };
        [("logits".to_owned(), self.logits.clone()), ("targets".to_owned(), targets)].into()
    }

    /// The attempt's graph, with the gradients of the sum of all costs.
    pub fn graph(&self, steps: &dyn Classify) -> Result<Graph, String> {
        let builder = Builder::new("costs");
        let values = self.values();
        let input =
            |name: &str| builder.tape().input(name, values[name].dtype, values[name].shape.iter().copied());
        let (logits, targets) = (input("logits"), input("targets"));
        let losses = steps.losses(self.problem, &logits, &targets);
        let (got, want) = (losses.ty().to_string(), format!("f32 ({})", self.sizes.rows));
        if losses.ty().dtype != Dtype::F32 || losses.shape() != [self.sizes.rows.into()] {
            return Err(format!("{}: expected {want}, found {got}", self.problem));
        }
        builder.tape().output("losses", &losses);
        let total = losses.total();
        let ids = [builder.id(&total), builder.id(&logits), builder.id(&targets)];
        let [total, logits, targets] = ids.map(|id| id.map_err(describe));
        let (total, mut inputs) = (total?, vec![logits?]);
        if self.problem != Problem::SingleLabel {
            inputs.push(targets?);
        }
        let mut graph = builder.finish().map_err(describe)?;
        let gradients = grad::differentiate(&mut graph, total, &inputs).map_err(describe)?;
        ["logits.grad", "targets.grad"].iter().zip(gradients).for_each(|(name, id)| graph.output(*name, id));
        Ok(graph)
    }

    fn run(&self, steps: &dyn Classify) -> Result<Costs, String> {
        let results = interpret(&self.graph(steps)?, &self.values()).map_err(describe)?;
        Ok(costs(results.iter().map(Array::wide)))
    }

    /// Held against the plain functions, in f64 and as it is computed in f32.
    pub fn right(&self, steps: &dyn Classify) -> Result<(), String> {
        let Self { problem, sizes, .. } = self;
        let classes = self.of_classes();
        let targets = match problem {
            Problem::SingleLabel => Targets::Classes(&classes),
            _ => Targets::Numbers(&self.targets),
        };
        let want = exact(*problem, &self.logits.wide(), sizes.classes, targets).map_err(describe)?;
        let graph = self.graph(steps)?;
        let wide = interpret(&graph, &self.values()).map_err(describe)?;
        let short = interpret(&graph, &narrowed(&self.values())).map_err(describe)?;
        let roundings = if sizes.dtype == Dtype::F32 { 1e-6 } else { 4e-3 }; // of the gradient's own type
        for (got, slack) in
            [(costs(wide.iter().map(Array::wide)), 1e-10), (costs(short.iter().map(Array::wide)), roundings)]
        {
            near(*problem, "losses", &got.losses, &want.values, slack)?;
            near(*problem, "gradient", &got.gradient, &want.gradient, slack)?;
        }
        Ok(())
    }
}

fn costs(mut results: impl Iterator<Item = Vec<f64>>) -> Costs {
    let mut next = || results.next().unwrap_or_default();
    Costs { losses: next(), gradient: next(), targets_gradient: next() }
}

/// Elements within a part of the largest, or of 1.
fn near(problem: Problem, what: &str, got: &[f64], want: &[f64], slack: f64) -> Result<(), String> {
    let largest = want.iter().fold(1.0_f64, |largest, x| largest.max(x.abs()));
    let off = |(got, want): (&f64, &f64)| {
        let apart = (got - want).abs();
        apart.is_nan() || apart > slack * largest
    };
    let first = got.iter().zip(want).position(off);
    match first {
        _ if got.len() != want.len() => {
            Err(format!("{problem}: {} numbers of {what}, want {}", got.len(), want.len()))
        }
        Some(at) => Err(format!("{problem}, {what}[{at}]: got {}, want {}", got[at], want[at])),
        None => Ok(()),
    }
}
