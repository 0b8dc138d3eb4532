//! Masks given as programs, each compiled for lengths that come as they come.

use challenges::graph;
use challenges::issues::attention::backends::{Shape, graph as write};
use challenges::issues::attention::{Attend, Feature, Request, Rules, Sizes, Way};
use challenges::nf4::DEQUANTIZER;
use compiler::session::{Session, Settings};
use kernels::Cpu;
use reference::graph::{Dim, Dtype};

use super::matrix::{Case, first_wrong, near};
use crate::compare::{describe, upload};
use crate::gather::{Child, Unwound, caught};
use crate::random::Random;
use crate::scorecard::Measurement;

/// Lengths of all masks, and the longest of them.
pub(crate) const LENGTHS: usize = 3 * OF_A_MASK;
const OF_A_MASK: usize = 34;
const LONGEST: usize = 320;

/// Runs each mask at all its lengths.
pub(super) fn watch(child: &mut Child, attempt: &dyn Attend) {
    let seed = child.request.effort.seed;
    match caught(|| all(attempt, seed)) {
        Ok(Ok(seen)) => {
            let numbers = [
                ("lengths", seen.lengths),
                ("lengths_right", seen.right),
                ("compilations", seen.compilations),
                ("buckets", seen.buckets),
            ];
            for (name, value) in numbers {
                let (value, unit) = (value as f64, "count".into());
                let number = Measurement { value, unit, interval: None, samples: Vec::new() };
                child.measured(&format!("issues.attention.{name}"), number);
            }
            first_wrong(child, "issues.attention.wrong_length", seen.wrong);
        }
        Ok(Err(reason)) | Err(Unwound::Panic(reason)) => {
            child.unmeasured("issues.attention.lengths", &reason);
        }
        Err(Unwound::Hole(hole)) => {
            child.unmeasured("issues.attention.lengths", &format!("not written yet: {hole}"));
        }
    }
}

#[derive(Default)]
struct Seen {
    lengths: usize,
    right: usize,
    compilations: usize,
    buckets: usize,
    wrong: Option<String>,
}

fn all(attempt: &dyn Attend, seed: u64) -> Result<Seen, String> {
    let causal = Rules { causal: true, ..Rules::default() };
    let masks = [causal, Rules { window: Some(20), ..causal }, Rules { documents: true, ..causal }];
    let mut random = Random::named(seed, "attention at lengths");
    let mut seen = Seen::default();
    for rules in masks {
        one(attempt, rules, &mut random, &mut seen)?;
    }
    Ok(seen)
}

fn one(attempt: &dyn Attend, rules: Rules, random: &mut Random, seen: &mut Seen) -> Result<(), String> {
    let device = Cpu::new();
    let mut session = Session::new(&graph::Solution, &device, &DEQUANTIZER, Settings::default());
    let more = vec![Feature::Lse, Feature::Gradients, Feature::DynamicLengths];
    let request = Request { scale: 0.35, rules, more, ..Request::default() };
    let sizes =
        |length| Sizes { batch: 1, heads: 2, groups: 1, queries: length, keys: length, depth: 8, width: 8 };
    let lengths = ["T", "T", "P"].map(Dim::symbol);
    let shape = Shape { lengths, longest: LONGEST, ..Shape::of(sizes(1), 1, Dtype::F32) };
    let graph = write(Way::Tiled, &request, attempt, &shape).map_err(describe)?;
    let program = session.load(&graph).map_err(describe)?;
    for _ in 0..OF_A_MASK {
        let length = 1 + random.below(LONGEST);
        let mut document = 1;
        let documents = (0..length).map(|_| {
            document += i32::from(random.below(40) == 0);
            document
        });
        let documents = documents.collect();
        let case = Case::of(request.clone(), sizes(length), documents, random);
        let truth = case.truth();
        let given = upload(&device, &case.values(attempt, Way::Tiled)).map_err(describe)?;
        let outputs = session.run(program, &given).map_err(describe)?;
        let right = graph
            .outputs()
            .iter()
            .try_for_each(|(name, _)| near(name, &outputs.array(name).map_err(describe)?.wide(), &truth));
        seen.lengths += 1;
        match right {
            Ok(()) => seen.right += 1,
            Err(wrong) => {
                _ = seen.wrong.get_or_insert(format!("{} at length {length}: {wrong}", named(rules)));
            }
        }
    }
    seen.compilations += session.counters().compilations;
    seen.buckets += session.buckets(program, "T").len();
    Ok(())
}

fn named(rules: Rules) -> &'static str {
    match rules {
        Rules { window: Some(_), .. } => "sliding window",
        Rules { documents: true, .. } => "packed documents",
        _ => "causal",
    }
}
