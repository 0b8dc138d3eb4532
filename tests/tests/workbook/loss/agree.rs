//! Every loss against its own derivative, and its graph against the oracle, on drawn settings and numbers.

use std::cell::Cell;

use super::problem::{Problem, Random, problems};

/// The step of a difference. The error of the formula of four points is its fourth power.
const STEP: f64 = 3e-4;

/// How far a derivative may be from the difference, relative to the size of what is added up.
const SLACK: f64 = 1e-8;

/// How far a graph may be from the oracle in f64, relative to the largest number.
const CLOSE: f64 = 1e-12;

/// The same in f32: roundings of a short chain of operations and a sum.
const CLOSE_F32: f64 = 3e-5;

/// Problems of many sizes, always the same ones.
fn each_problem(check: impl Fn(u64, &Problem)) {
    let sizes = [(1, 1), (1, 5), (2, 3), (3, 1), (3, 4), (5, 7)];
    for (round, (rows, width)) in (0..20).flat_map(|round| sizes.map(|size| (round, size))) {
        let seed = round * 1000 + (rows * 10 + width) as u64;
        for problem in &problems(seed, rows, width) {
            check(seed, problem);
        }
    }
}

#[test]
fn the_derivative_of_every_loss_is_what_its_differences_say() {
    let [seen, skipped] = [Cell::new(0), Cell::new(0)];
    each_problem(|seed, problem| {
        if problem.also_constant {
            return;
        }
        let (loss, gradient) = problem.exact(&problem.x);
        let mut random = Random(seed);
        for _ in 0..2 {
            let direction = random.all(problem.x.len(), -1.0, 1.0);
            let at = |step: f64| {
                let moved: Vec<f64> =
                    problem.x.iter().zip(&direction).map(|(x, d)| x + step * STEP * d).collect();
                problem.exact(&moved).0
            };
            seen.set(seen.get() + 1);
            if across_a_tie(&at) {
                skipped.set(skipped.get() + 1);
                continue;
            }
            let want = (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * STEP);
            let got: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
            let fine = (got - want).abs() <= SLACK * (1.0 + want.abs() + loss.abs());
            assert!(fine, "{}, seed {seed}: derivative {got}, difference {want}", problem.name);
        }
    });
    assert!(skipped.get() * 100 < seen.get(), "{} of {} are at a tie", skipped.get(), seen.get());
}

/// Whether slopes on both sides differ by more than a smooth function's would: a clip begins to hold here.
fn across_a_tie(at: &impl Fn(f64) -> f64) -> bool {
    let slopes = [-2.0, -1.0, 0.0, 1.0].map(|step| (at(step + 1.0) - at(step)) / STEP);
    let bends = [0, 1, 2].map(|i| slopes[i + 1] - slopes[i]);
    bends.iter().any(|bend| (bend - bends[1]).abs() > 1e-4 * (1.0 + slopes[0].abs()))
}

#[test]
fn the_graph_of_every_loss_and_its_gradient_are_the_oracle() {
    each_problem(|seed, problem| near(seed, problem, &problem.run::<f64>(&problem.x), CLOSE));
}

#[test]
fn the_graph_of_every_loss_and_its_gradient_are_the_oracle_in_f32() {
    each_problem(|seed, problem| near(seed, problem, &problem.run::<f32>(&problem.x), CLOSE_F32));
}

fn near(seed: u64, problem: &Problem, (loss, gradient): &(f64, Vec<f64>), slack: f64) {
    let (want, wanted) = problem.exact(&problem.x);
    let largest = wanted.iter().fold(want.abs(), |largest, g| largest.max(g.abs())).max(1.0);
    let fine = |got: f64, want: f64| (got - want).abs() <= slack * largest;
    assert!(fine(*loss, want), "{}, seed {seed}: {loss}, not {want}", problem.name);
    assert_eq!(gradient.len(), wanted.len());
    for (i, (got, want)) in gradient.iter().zip(&wanted).enumerate() {
        assert!(fine(*got, *want), "{}, seed {seed}, element {i}: {got}, not {want}", problem.name);
    }
}
