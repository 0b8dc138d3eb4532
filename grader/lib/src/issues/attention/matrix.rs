//! Every back end on every feature that it claims, alone and in pairs, against the definition.

use std::sync::Arc;

use challenges::graph;
use challenges::issues::attention::backends::{Shape, graph as write};
use challenges::issues::attention::{
    Attend, BACK_ENDS, BackEnd, Feature, Problem, Request, Rules, Sizes, Way,
};
use challenges::nf4::DEQUANTIZER;
use compiler::session::{Session, Settings};
use kernels::Cpu;
use reference::graph::interpret::Values;
use reference::graph::programs::{ScoreEntry, or};
use reference::graph::{Array, Dim, Dtype, Tensor};
use reference::issues::attention::{Attended, Entry};
use reference::philox::happens;

use super::merged::near_all;
use crate::compare::{describe, upload};
use crate::gather::{Child, Unwound, caught};
use crate::random::Random;
use crate::scorecard::Measurement;

/// How many features there are.
pub(crate) const FEATURES: usize = Feature::ALL.len();

/// How far a result in f32 may be from the truth, of numbers as large as 1; more, as they are larger.
const NEAR: f64 = 2e-5;

/// The bits of dropout.
const KEY: [i32; 2] = [7, 11];

/// Runs every case on each back end that claims it, and on the one that the attempt chooses.
pub(super) fn watch(child: &mut Child, attempt: &dyn Attend) {
    let seed = child.request.effort.seed;
    match caught(|| all(attempt, seed)) {
        Ok(counts) => {
            let number = |value: usize| Measurement {
                value: value as f64,
                unit: "count".into(),
                interval: None,
                samples: Vec::new(),
            };
            for (back_end, count) in BACK_ENDS.iter().zip(&counts.each) {
                child.measured(&format!("issues.attention.features.{}", back_end.name), number(*count));
            }
            child.measured("issues.attention.same", number(counts.same));
            child.measured("issues.attention.all", number(counts.all));
            first_wrong(child, "issues.attention.wrong_feature", counts.wrong);
        }
        Err(Unwound::Panic(reason)) => child.unmeasured("issues.attention.same", &reason),
        Err(Unwound::Hole(hole)) => {
            child.unmeasured("issues.attention.same", &format!("not written yet: {hole}"));
        }
    }
}

/// Reports the first result that is wrong, by a name of the number 1: a report holds no other words.
pub(super) fn first_wrong(child: &mut Child, name: &str, wrong: Option<String>) {
    if let Some(wrong) = wrong {
        let words: String =
            wrong.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(WORDS).collect();
        let one = Measurement { value: 1.0, unit: "count".into(), interval: None, samples: Vec::new() };
        child.measured(&format!("{name}.{words}"), one);
    }
}

/// The most characters of a wrong result's words.
const WORDS: usize = 300;

/// What was counted: results of each back end that are right, and the first that is not.
struct Counts {
    each: [usize; BACK_ENDS.len()],
    same: usize,
    all: usize,
    wrong: Option<String>,
}

fn all(attempt: &dyn Attend, seed: u64) -> Counts {
    let mut random = Random::named(seed, "features");
    let mut counts = Counts { each: [0; BACK_ENDS.len()], same: 0, all: 0, wrong: None };
    for features in combinations() {
        let case = Case::drawn(&features, &mut random);
        let truth = case.truth();
        let wanted = case.request.features();
        let chosen = case.request.choose(attempt, &BACK_ENDS).map(|(back_end, _)| back_end.name);
        let should =
            BACK_ENDS.iter().find(|back_end| claims(back_end, &wanted)).map(|back_end| back_end.name);
        counts.all += 1;
        if chosen.as_ref().ok().copied() == should {
            counts.same += 1;
        } else {
            counts.wrong.get_or_insert(format!("{wanted:?}: expected {should:?}, found {chosen:?}"));
        }
        for (at, back_end) in BACK_ENDS.iter().enumerate().filter(|(_, one)| claims(one, &wanted)) {
            counts.all += 1;
            match case.right(attempt, back_end.way, &truth) {
                Ok(()) => (counts.each[at], counts.same) = (counts.each[at] + 1, counts.same + 1),
                Err(wrong) => {
                    _ = counts.wrong.get_or_insert(format!("{}, {wanted:?}: {wrong}", back_end.name));
                }
            }
        }
    }
    counts
}

/// How many results there are: of each case the choice of a back end, and the results of those that claim it.
pub(crate) fn results() -> usize {
    let of = |features: &Vec<Feature>| 1 + BACK_ENDS.iter().filter(|one| claims(one, features)).count();
    combinations().iter().map(of).sum()
}

/// Whether a back end is for requests with these features, and has them.
fn claims(back_end: &BackEnd, wanted: &[Feature]) -> bool {
    let is_meant = back_end.of.is_empty() || back_end.of.iter().any(|feature| wanted.contains(feature));
    is_meant && wanted.iter().all(|feature| back_end.has.contains(feature))
}

/// No feature, each, and every two.
fn combinations() -> Vec<Vec<Feature>> {
    let mut all = vec![Vec::new()];
    for (i, first) in Feature::ALL.into_iter().enumerate() {
        all.push(vec![first]);
        all.extend(Feature::ALL[i + 1..].iter().map(|second| vec![first, *second]));
    }
    all
}

/// A request with its tensors.
pub(super) struct Case {
    pub request: Request,
    problem: Problem,
    given: [Vec<f64>; 4], // q, k, v, the gradient of the output
    is_dynamic: bool,
}

fn halved(at: &ScoreEntry) -> Tensor {
    &(&at.score * 0.5) - &(&at.head.cast(Dtype::F32) * 0.25)
}

fn halved_by_formula(s: f64, [_, head, _, _]: Entry) -> [f64; 2] {
    [0.5 * s - 0.25 * head as f64, 0.5]
}

/// All keys but the second one before the query.
fn holed(at: &ScoreEntry) -> Tensor {
    let hole = &at.query - 2.0;
    or(&at.key.less(&hole), &hole.less(&at.key))
}

fn holed_by_formula([_, _, query, key]: Entry) -> bool {
    key + 2 != query
}

/// The documents of two rows.
fn documents(keys: usize, features: &[Feature]) -> Vec<i32> {
    let has = |feature| features.contains(&feature);
    let of = |row: usize, at: usize| {
        let padding = keys / 4 + row;
        let is_left = has(Feature::LeftPadding) && (row == 1 || !has(Feature::RightPadding)) && at < padding;
        let is_right =
            has(Feature::RightPadding) && (row == 0 || !has(Feature::LeftPadding)) && at >= keys - padding;
        let number = if has(Feature::Documents) { 1 + 3 * at / keys } else { 1 };
        if is_left || is_right { 0 } else { number as i32 }
    };
    (0..2).flat_map(|row| (0..keys).map(move |at| (row, at))).map(|(row, at)| of(row, at)).collect()
}

impl Case {
    pub fn drawn(features: &[Feature], random: &mut Random) -> Self {
        let has = |feature| features.contains(&feature);
        let (keys, queries) = match (has(Feature::Decoding), has(Feature::ShortQueries)) {
            (true, _) => (600, 1),
            (false, true) => (17, 5),
            (false, false) => (13, 13),
        };
        let groups = if has(Feature::GroupedHeads) { 2 } else { 4 };
        let sizes = Sizes { batch: 2, heads: 4, groups, queries, keys, depth: 8, width: 6 };
        let rules = Rules {
            causal: has(Feature::Causal),
            window: has(Feature::Window).then_some(if keys > 100 { 400 } else { 6 }),
            prefix: has(Feature::Prefix).then_some(4),
            documents: [Feature::Documents, Feature::LeftPadding, Feature::RightPadding].into_iter().any(has),
        };
        let own = |feature: &Feature| {
            matches!(
                feature,
                Feature::Documents
                    | Feature::LeftPadding
                    | Feature::RightPadding
                    | Feature::GroupedHeads
                    | Feature::ShortQueries
                    | Feature::Decoding
                    | Feature::Lse
                    | Feature::Gradients
                    | Feature::DynamicLengths
            )
        };
        let request = Request {
            scale: 0.35,
            offset: keys - queries,
            rules,
            softcap: has(Feature::SoftCap).then_some(1.5),
            alibi: has(Feature::Alibi),
            score: has(Feature::ScoreProgram)
                .then(|| Arc::new(halved) as challenges::issues::attention::Body),
            mask: has(Feature::MaskProgram).then(|| Arc::new(holed) as challenges::issues::attention::Body),
            sinks: has(Feature::Sinks),
            keep: has(Feature::Dropout).then_some(0.75),
            more: features.iter().copied().filter(own).collect(),
        };
        Self::of(request, sizes, documents(keys, features), random)
    }

    /// A request on drawn tensors.
    pub fn of(request: Request, sizes: Sizes, documents: Vec<i32>, random: &mut Random) -> Self {
        let mut drawn = |count: usize| -> Vec<f64> {
            (0..count).map(|_| f64::from((2.0 * random.unit() - 1.0) as f32)).collect()
        };
        let given = sizes.shapes().map(|shape| drawn(shape.iter().product()));
        let sinks = drawn(sizes.heads);
        let scores = sizes.batch * sizes.heads * sizes.queries * sizes.keys;
        let key = KEY.map(|word| word as u32);
        let dropped = |keep: f64| {
            (0..scores as u32).map(|i| if happens(key, i, 0, keep) { 1.0 / keep } else { 0.0 }).collect()
        };
        let problem = Problem {
            sizes,
            scale: request.scale,
            offset: request.offset,
            rules: request.rules,
            documents,
            softcap: request.softcap,
            alibi: request.alibi,
            score: request.score.is_some().then_some(halved_by_formula as fn(f64, Entry) -> [f64; 2]),
            mask: request.mask.is_some().then_some(holed_by_formula as fn(Entry) -> bool),
            sinks: request.sinks.then_some(sinks),
            dropout: request.keep.map(dropped),
        };
        let is_dynamic = request.more.contains(&Feature::DynamicLengths);
        Self { request, problem, given, is_dynamic }
    }

    pub fn truth(&self) -> Attended {
        self.problem.attend(self.given.each_ref().map(Vec::as_slice))
    }

    /// Whether a back end says the same, compiled for this machine's CPU.
    pub fn right(&self, attempt: &dyn Attend, way: Way, truth: &Attended) -> Result<(), String> {
        let device = Cpu::new();
        let settings = Settings { exact: !self.is_dynamic, poison: true, ..Settings::default() };
        let mut session = Session::new(&graph::Solution, &device, &DEQUANTIZER, settings);
        let values = self.values(attempt, way);
        let graph = write(way, &self.request, attempt, &self.shape(&values)).map_err(describe)?;
        let program = session.load(&graph).map_err(describe)?;
        let given = upload(&device, &values).map_err(describe)?;
        let outputs = session.run(program, &given).map_err(describe)?;
        for (name, _) in graph.outputs() {
            let got = outputs.array(name).map_err(describe)?;
            near(name, &got.wide(), truth)?;
        }
        Ok(())
    }

    /// The inputs of the graph in a back end's way.
    pub fn values(&self, attempt: &dyn Attend, way: Way) -> Values<f32> {
        let Problem { sizes, documents, rules, sinks, .. } = &self.problem;
        let mut values: Values<f32> = Values::new();
        let shapes = sizes.shapes();
        let names = ["q", "k", "v", "grad"].into_iter().zip(&shapes).zip(&self.given);
        let has_gradients = self.request.more.contains(&Feature::Gradients);
        for ((name, shape), numbers) in names.filter(|((name, _), _)| has_gradients || *name != "grad") {
            values.insert(name.into(), Array::floats(Dtype::F32, shape, numbers.iter().copied()));
        }
        let mut whole = |name: &str, numbers: Vec<i32>| {
            values.insert(name.into(), Array::integers(&[numbers.len()], numbers));
        };
        if rules.documents {
            whole("documents", documents.clone());
        }
        if way == Way::Packed {
            let packing = attempt.pack(documents, sizes.keys); // drawn so that their tokens follow each other
            whole("tokens", packing.tokens);
            whole("packed", packing.documents);
        }
        if self.request.keep.is_some() {
            whole("key", KEY.to_vec());
        }
        if let Some(sinks) = sinks {
            values.insert("sinks".into(), Array::floats(Dtype::F32, &[sinks.len()], sinks.iter().copied()));
        }
        values
    }

    /// The shapes of the tensors; lengths that are not known have symbols.
    fn shape(&self, values: &Values<f32>) -> Shape {
        let sizes = self.problem.sizes;
        let tokens = values.get("tokens").map_or(0, |tokens| tokens.shape[0]);
        let fixed = Shape::of(sizes, tokens, Dtype::F32);
        if !self.is_dynamic {
            return fixed;
        }
        let queries = if sizes.queries == sizes.keys { "T" } else { "Q" };
        let lengths = [queries, "T", "P"].map(Dim::symbol);
        Shape { lengths, longest: 1024, ..fixed }
    }
}

/// Whether an output is what it should be.
pub(super) fn near(name: &str, got: &[f64], truth: &Attended) -> Result<(), String> {
    let want = match name {
        "output" => &truth.output,
        "lse" => &truth.lse,
        "grad_q" => &truth.gradients[0],
        "grad_k" => &truth.gradients[1],
        _ => &truth.gradients[2],
    };
    let finite = want.iter().filter(|x| x.is_finite());
    let largest = finite.fold(0.0_f64, |largest, x| largest.max(x.abs()));
    near_all(name, got, want, NEAR * (1.0 + largest))
}
