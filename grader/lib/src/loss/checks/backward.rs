//! E.3: the graph of a chunk's gradients.

use std::collections::BTreeMap;

use challenges::loss::{Chunked, Problem, Trains};
use reference::graph::{Array, Dtype, Graph, Real, interpret};

use super::forward::{HALF, exact_in_half, values_near};
use super::losses::{
    Make, cross_entropy, distillation, jensen_shannon, likelihood, made_up, probability_targets,
    smoothing_and_class_weights, softcap_and_scale, squares, z_loss,
};
use super::{Check, Rows};
use crate::compare::{describe, difference};
use crate::loss::case::{ALL, Case, Found, SMALL, Trial};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("cross-entropy", |on, random| of(on.attempt, cross_entropy, random)),
    ("smoothing-and-class-weights", |on, random| of(on.attempt, smoothing_and_class_weights, random)),
    ("softcap-and-scale", |on, random| of(on.attempt, softcap_and_scale, random)),
    ("z-loss", |on, random| of(on.attempt, z_loss, random)),
    ("bias", |on, random| differentiated(on.attempt, &biased(random)?, random)),
    ("probability-targets", |on, random| of(on.attempt, probability_targets, random)),
    ("distillation", |on, random| {
        of(on.attempt, distillation, random).and_then(|()| of(on.attempt, jensen_shannon, random))
    }),
    ("squares-and-likelihood", |on, random| {
        of(on.attempt, squares, random).and_then(|()| of(on.attempt, likelihood, random))
    }),
    ("made-up", |on, random| (0..6).try_for_each(|_| of(on.attempt, made_up, random))),
    ("adds-to-what-is-there", |on, random| adds(on.attempt, &biased(random)?, random)),
    ("sums-in-their-own-type", |on, random| typed_sums(on.attempt, &biased(random)?, random)),
    ("frozen-head", |on, random| frozen(on, &mut biased(random)?)),
    ("upcast", |on, random| upcast(on.attempt, random)),
];

fn drawn(make: Make, random: &mut Random) -> Result<Case, String> {
    Ok(Case::drawn(make(SMALL.vocab, random)?, SMALL, random))
}

/// Cross entropy with a bias.
fn biased(random: &mut Random) -> Result<Case, String> {
    Ok(drawn(cross_entropy, random)?.biased(random))
}

/// The gradients of a loss.
fn of(attempt: &dyn Chunked, make: Make, random: &mut Random) -> Result<(), String> {
    differentiated(attempt, &drawn(make, random)?, random)
}

fn upcast(attempt: &dyn Chunked, random: &mut Random) -> Result<(), String> {
    let case = exact_in_half(HALF, random)?;
    let graph = attempt.backward(&case.problem).map_err(describe)?;
    let truth = challenges::loss::Solution.forward(&case.problem).map_err(describe)?;
    let seeded = case.seeded(vec![1.0; case.counts.len()]);
    values_near(&graph, &truth, &seeded, 1e-5)
        .map_err(|message| format!("{message}: logits have to be in f32 from the product on"))
}

/// A chunk's gradients by a graph in f32, against the rules' in f64.
fn differentiated(attempt: &dyn Chunked, case: &Case, random: &mut Random) -> Result<(), String> {
    let seeds =
        case.counts.iter().map(|counts| if *counts { 2.0 * random.unit() - 0.5 } else { 0.0 }).collect();
    let case = case.seeded(seeds);
    let graph = attempt.backward(&case.problem).map_err(describe)?;
    let truth = challenges::loss::Solution.backward(&case.problem).map_err(describe)?;
    let got = interpret(&graph, &case.narrow()).map_err(describe)?;
    let plain = interpret(&truth, &case.narrow()).map_err(describe)?;
    let want = interpret(&truth, &case.wide()).map_err(describe)?;
    for (i, (name, id)) in truth.outputs().iter().enumerate() {
        let place = graph.outputs().iter().position(|(other, _)| other == name);
        let place = place.ok_or_else(|| format!("there is no output `{name}`: {}", truth.line(*id)))?;
        if let Some(message) = difference(&got[place], &plain[i], &want[i]) {
            return Err(format!("`{name}`: {message}"));
        }
    }
    Ok(())
}

/// That gradients of what all chunks share are added to what is given.
fn adds(attempt: &dyn Chunked, case: &Case, random: &mut Random) -> Result<(), String> {
    let mut case = case.seeded(vec![0.25; case.counts.len()]);
    let Problem { width, vocab, .. } = case.problem;
    case.floats("weight.grad", &[vocab, width], 3.0, random);
    case.floats("bias.grad", &[vocab], 3.0, random);
    differentiated_as_it_is(attempt, &case)
}

/// That gradients are added up in the type that the problem says.
fn typed_sums(attempt: &dyn Chunked, case: &Case, random: &mut Random) -> Result<(), String> {
    let mut case = case.seeded(vec![0.25; case.counts.len()]);
    let Problem { width, vocab, .. } = case.problem;
    case.floats("weight.grad", &[vocab, width], 3.0, random);
    case.floats("bias.grad", &[vocab], 3.0, random);
    let truth = challenges::loss::Solution.backward(&case.problem).map_err(describe)?;
    let truth = by_name(&truth, interpret(&truth, &case.wide()).map_err(describe)?);
    for (dtype, sums) in [(Dtype::Bf16, Dtype::F32), (Dtype::Bf16, Dtype::Bf16), (Dtype::F16, Dtype::F16)] {
        (case.problem.dtype, case.problem.accumulate_dtype) = (dtype, sums);
        let graph = attempt.backward(&case.problem).map_err(describe)?;
        let of_hidden = graph.find_output("hidden.grad").map(|id| graph.ty(id).dtype);
        if of_hidden != Some(dtype) {
            let (got, need) = (of_hidden.map_or("not there", Dtype::name), dtype.name());
            return Err(format!("`hidden.grad` is {got}, and the problem's type is {need}"));
        }
        for name in SUMS {
            for id in [graph.find_input(name), graph.find_output(name)] {
                let got = id.map(|id| graph.ty(id).dtype);
                if got != Some(sums) {
                    let (got, need) = (got.map_or("not there", Dtype::name), sums.name());
                    return Err(format!("`{name}` is {got}, and the problem's sums are {need}"));
                }
            }
        }
        let values =
            case.narrow().into_iter().map(|(name, value)| (name.clone(), of_sums(&name, value, sums)));
        let got = interpret(&graph, &values.collect()).map_err(describe)?;
        sums_near(&by_name(&graph, got), &truth)?;
    }
    Ok(())
}

/// What chunks add up.
const SUMS: [&str; 2] = ["weight.grad", "bias.grad"];

/// A value in the type of the sums, if it is one.
fn of_sums(name: &str, value: Array<f32>, sums: Dtype) -> Array<f32> {
    if SUMS.contains(&name) { Array::floats(sums, &value.shape, value.wide()) } else { value }
}

fn by_name<R: Real>(graph: &Graph, results: Vec<Array<R>>) -> BTreeMap<String, Array<R>> {
    graph.outputs().iter().map(|(name, _)| name.clone()).zip(results).collect()
}

/// That sums in narrow types are near the truth, by a few roundings of the largest element.
fn sums_near(got: &Found, truth: &BTreeMap<String, Array<f64>>) -> Result<(), String> {
    for name in SUMS {
        let (Some(got), Some(truth)) = (got.get(name), truth.get(name)) else {
            return Err(format!("there is no output `{name}`"));
        };
        let (got, truth) = (got.wide(), truth.wide());
        let largest = truth.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
        let far = got.iter().zip(&truth).position(|(got, truth)| {
            let near = (got - truth).abs() <= 0.03 * largest; // NaN is not near
            !near
        });
        if let Some(i) = far {
            return Err(format!("`{name}`, element {i}: got {:.4e}, the truth is {:.4e}", got[i], truth[i]));
        }
    }
    Ok(())
}

fn differentiated_as_it_is(attempt: &dyn Chunked, case: &Case) -> Result<(), String> {
    let graph = attempt.backward(&case.problem).map_err(describe)?;
    let truth = challenges::loss::Solution.backward(&case.problem).map_err(describe)?;
    let results = |graph: &Graph| -> Result<Found, String> {
        let names = graph.outputs().iter().map(|(name, _)| name.clone());
        Ok(names.zip(interpret(graph, &case.narrow()).map_err(describe)?).collect())
    };
    let (got, plain) = (results(&graph)?, results(&truth)?);
    let exact = interpret(&truth, &case.wide()).map_err(describe)?;
    let exact = |name: &str| truth.outputs().iter().position(|(other, _)| other == name).map(|i| &exact[i]);
    for name in ["weight.grad", "bias.grad"] {
        let (Some(got), Some(plain), Some(exact)) = (got.get(name), plain.get(name), exact(name)) else {
            return Err(format!("there is no output `{name}`"));
        };
        if let Some(message) = difference(got, plain, exact) {
            let cause = if lacks(got, plain, &case.values[name]) { MISSING } else { "" };
            return Err(format!("`{name}`, with something there before: {message}{cause}"));
        }
    }
    Ok(())
}

/// What is said of a sum that is started afresh.
const MISSING: &str = "\nlikely cause: what was there before is missing";

/// Whether a sum is right but for what was there before.
fn lacks(got: &Array<f32>, want: &Array<f32>, before: &Array<f64>) -> bool {
    let all = got.wide().into_iter().zip(want.wide()).zip(before.wide());
    got.shape == want.shape && all.into_iter().all(|((got, want), before)| (got + before - want).abs() < 1e-4)
}

/// That what is frozen has no gradient, and that nothing is computed for one.
fn frozen(on: Trial<'_>, case: &mut Case) -> Result<(), String> {
    let each = [
        ("bias", Trains { bias: false, ..ALL }),
        ("weight", Trains { weight: false, bias: false, ..ALL }),
        ("hidden", Trains { hidden: false, ..ALL }),
    ];
    for (what, trains) in each {
        case.problem.trains = trains;
        let graph = on.attempt.backward(&case.problem).map_err(describe)?;
        let name = format!("{what}.grad");
        if graph.find_output(&name).is_some() {
            return Err(format!("`{what}` is frozen, and there is an output `{name}`"));
        }
        if graph.find_input(&name).is_some() {
            return Err(format!("`{what}` is frozen, and its gradient is asked for as an input"));
        }
        case.right(on, 5)?;
    }
    Ok(())
}
