//! Attention: every variant of the golden file as an operation with programs, forward and backward.

#![allow(clippy::float_cmp)] // a mask gives 0 or 1

use compiler::compile::Level;
use kernels::plan::Step;
use reference::grad::pull_back;
use reference::graph::interpret::Values;
use reference::graph::programs::{
    ScoreEntry, alibi, and, causal, distance_bias, document, mask, or, prefix_lm, relative_bias, score,
    sliding_window, softcap,
};
use reference::graph::{Array, Attention, Dim, Dtype, Graph, Id, Op, Real, Tensor, Type, interpret};
use safetensors::SafeTensors;
use serde::Deserialize;
use tests::golden;

use crate::compiled::Runner;
use tests::one_graph::devices;

/// One attention that the original library computed.
#[derive(Deserialize)]
struct Case {
    #[serde(rename = "case")]
    name: String,
    kind: String,
    q_offset: usize,
    scale: f64,
    softcap: Option<f64>,
    window: Option<u32>,
    prefix: Option<u32>,
}

/// What a case computes with, and what has to come out.
struct Stored {
    shapes: [[usize; 4]; 3], // of q, k and v
    ids: Option<Vec<i32>>,
    given: [Vec<f64>; 4], // q, k, v and the gradient of the output
    want: [Vec<f64>; 4],  // the output and the gradients of q, k and v
}

const NAMES: [&str; 4] = ["out", "grad_q", "grad_k", "grad_v"];

/// What `rel_bias` subtracts from a score for each step between query and key.
const BIAS: f64 = 0.05;

/// Runs `check` on every case of the golden file.
fn each_case(check: impl Fn(&Case, &Stored)) {
    let file = "open-attention.safetensors";
    golden::each_case(file, |case: &Case, tensors| check(case, &Stored::read(case, tensors)));
}

impl Stored {
    fn read(case: &Case, tensors: &SafeTensors) -> Self {
        let bytes = |part: &str| tensors.tensor(&format!("{}.{part}", case.name));
        let tensor = |part: &str| bytes(part).unwrap_or_else(|error| panic!("{}.{part}: {error}", case.name));
        let floats = |part: &str| -> Vec<f64> {
            let (chunks, rest) = tensor(part).data().as_chunks();
            assert!(rest.is_empty());
            chunks.iter().map(|four| f64::from(f32::from_le_bytes(*four))).collect()
        };
        let ids = bytes("document_ids").ok().map(|ids| {
            ids.data().as_chunks().0.iter().map(|eight| i64::from_le_bytes(*eight) as i32).collect()
        });
        Self {
            shapes: ["q", "k", "v"].map(|part| tensor(part).shape().try_into().expect("four dimensions")),
            ids,
            given: ["q", "k", "v", "grad_out"].map(floats),
            want: NAMES.map(floats),
        }
    }

    /// The types of q, k, v and the gradient of the output.
    fn types(&self, dtype: Dtype) -> [Type; 4] {
        let [q, k, v] = self.shapes;
        [q, k, v, [q[0], q[1], q[2], v[3]]].map(|shape| Type::new(dtype, shape))
    }

    /// The type of what else the attention is given.
    fn extras(&self) -> Vec<Type> {
        self.ids.iter().map(|ids| Type::new(Dtype::I32, [ids.len()])).collect()
    }
}

impl Case {
    fn is(&self, what: &str) -> bool {
        self.kind.contains(what)
    }

    fn is_causal(&self) -> bool {
        ["causal", "window", "alibi", "document"].into_iter().any(|kind| self.is(kind))
    }

    /// The programs, of the parts that the kind names.
    fn attention(&self, heads: usize, extras: &[Type]) -> Attention {
        let body = |at: &ScoreEntry| {
            let capped = self.softcap.map_or(at.score.clone(), |cap| softcap(&at.score, cap));
            let sloped = if self.is("alibi") { alibi(at, &capped, heads as u32) } else { capped };
            if self.is("rel_bias") { distance_bias(at, &sloped, BIAS) } else { sloped }
        };
        let scored = self.softcap.is_some() || self.is("alibi") || self.is("rel_bias");
        let offset = self.q_offset as i32;
        Attention {
            scale: self.scale,
            score: scored
                .then(|| score(&self.kind, extras, |at| body(&at.with_offset(offset))).expect("sound")),
            mask: self.mask(extras),
        }
    }

    fn mask(&self, extras: &[Type]) -> Option<Graph> {
        type Part<'a> = Box<dyn Fn(&ScoreEntry) -> Tensor + 'a>;
        let mut parts: Vec<Part> = Vec::new();
        if self.is_causal() {
            parts.push(Box::new(causal));
        }
        if let Some(window) = self.window {
            parts.push(Box::new(move |at| sliding_window(at, window)));
        }
        if self.is("document") {
            parts.push(Box::new(|at| document(at, &at.extras[0])));
        }
        if let Some(prefix) = self.prefix {
            parts.push(Box::new(move |at| prefix_lm(at, prefix)));
        }
        let whole = |at: &ScoreEntry| parts.iter().map(|part| part(at)).reduce(|all, part| and(&all, &part));
        let body = |at: &ScoreEntry| whole(&at.with_offset(self.q_offset as i32)).expect("a part");
        (!parts.is_empty()).then(|| mask(&self.kind, extras, body).expect("sound"))
    }

    /// The output and the gradients of q, k and v as the operation has them.
    fn run<R: Real>(&self, stored: &Stored, dtype: Dtype) -> [Vec<f64>; 4] {
        let (graph, values) = (self.graph(stored, dtype), Self::values::<R>(stored, dtype));
        let found = interpret(&graph, &values).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let wide: Vec<Vec<f64>> = found.iter().map(Array::wide).collect();
        wide.try_into().expect("four outputs")
    }

    fn values<R: Real>(stored: &Stored, dtype: Dtype) -> Values<R> {
        let mut values: Values<R> = Values::new();
        let given = ["q", "k", "v", "grad_out"].into_iter().zip(stored.types(dtype)).zip(&stored.given);
        for ((name, ty), numbers) in given {
            let sizes: Vec<usize> = ty.shape.iter().filter_map(Dim::as_fixed).map(|n| n as usize).collect();
            values.insert(name.into(), Array::floats(dtype, &sizes, numbers.iter().copied()));
        }
        if let Some(ids) = &stored.ids {
            values.insert("ids".into(), Array::integers(&[ids.len()], ids.clone()));
        }
        values
    }

    fn graph(&self, stored: &Stored, dtype: Dtype) -> Graph {
        let mut graph = Graph::new(self.kind.clone());
        let extras = stored.extras();
        let attention = self.attention(stored.shapes[0][1], &extras);
        let names = ["q", "k", "v", "grad_out", "ids"].into_iter();
        let inputs = names
            .zip(stored.types(dtype).into_iter().chain(extras))
            .map(|(name, ty)| graph.push_as(Op::Input { name: name.into() }, &[], ty).expect("an input"));
        let inputs: Vec<Id> = inputs.collect();
        let (qkv, seed, rest) = (&inputs[..3], inputs[3], &inputs[4..]);
        let out = graph.push(Op::Attention(Box::new(attention)), &[qkv, rest].concat());
        let out = out.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let gradients = pull_back(&mut graph, out, seed, qkv).expect("floats");
        for (name, id) in NAMES.into_iter().zip([out].into_iter().chain(gradients)) {
            graph.output(name, id);
        }
        graph.check().unwrap_or_else(|error| panic!("{}: {error}", self.name));
        graph
    }

    /// What becomes of a score, and the derivative of that; nothing where the mask forbids it.
    fn scored<R: Real>(
        &self,
        s: R,
        [head, heads, query, key]: [usize; 4],
        ids: Option<&[i32]>,
    ) -> Option<[R; 2]> {
        let within = |window: u32| key + window as usize > query;
        let allowed = !self.is_causal() || key <= query;
        let allowed = allowed && self.window.is_none_or(within);
        let allowed = allowed && ids.is_none_or(|ids| ids[query] == ids[key]);
        let allowed = allowed && self.prefix.is_none_or(|prefix| key <= query || key < prefix as usize);
        let [s, slope] = match self.softcap.map(R::of) {
            Some(cap) => [cap * (s / cap).tanh(), R::of(1.0) - (s / cap).tanh() * (s / cap).tanh()],
            None => [s, R::of(1.0)],
        };
        let distance = key as f64 - query as f64;
        let steepness = (-8.0 * (head + 1) as f64 / heads as f64).exp2();
        let bias = if self.is("alibi") { steepness * distance } else { 0.0 };
        let bias = if self.is("rel_bias") { bias - BIAS * distance.abs() } else { bias };
        allowed.then(|| [s + R::of(bias), slope])
    }

    /// The same as [`run`](Self::run) by the formulas, one query after the other.
    fn plain<R: Real>(&self, stored: &Stored) -> [Vec<f64>; 4] {
        let [[batch, heads, queries, depth], [_, groups, keys, _], [.., width]] = stored.shapes;
        let [q, k, v, g] = stored.given.each_ref().map(|x| x.iter().map(|x| R::of(*x)).collect::<Vec<R>>());
        let mut found = [&g, &q, &k, &v].map(|like| vec![R::default(); like.len()]);
        let dot = |a: &[R], b: &[R]| a.iter().zip(b).fold(R::default(), |sum, (a, b)| sum + *a * *b);
        let add = |to: &mut [R], factor: R, x: &[R]| {
            to.iter_mut().zip(x).for_each(|(to, x)| *to = *to + factor * *x);
        };
        for (row, i) in (0..batch * heads).flat_map(|row| (0..queries).map(move |i| (row, i))) {
            let (b, h) = (row / heads, row % heads);
            let at = |j: usize| ((b * groups + h / (heads / groups)) * keys + j) * depth;
            let at_v = |j: usize| at(j) / depth * width;
            let (here, out) = ((row * queries + i) * depth, (row * queries + i) * width);
            let (qi, gi) = (&q[here..here + depth], &g[out..out + width]);
            let scored = |j: usize| {
                let s = R::of(self.scale) * dot(qi, &k[at(j)..at(j) + depth]);
                self.scored(s, [h, heads, i + self.q_offset, j], stored.ids.as_deref())
            };
            let scores: Vec<Option<[R; 2]>> = (0..keys).map(scored).collect();
            let top = scores.iter().flatten().fold(f64::NEG_INFINITY, |top, [s, _]| top.max(s.wide()));
            let e = scores.iter().map(|s| s.map_or(R::default(), |[s, _]| (s - R::of(top)).exp()));
            let e: Vec<R> = e.collect();
            let sum = e.iter().fold(R::default(), |sum, e| sum + *e);
            let p: Vec<R> = e.iter().map(|e| if sum > R::default() { *e / sum } else { *e }).collect();
            let dp: Vec<R> = (0..keys).map(|j| dot(gi, &v[at_v(j)..at_v(j) + width])).collect();
            let mean = dot(&p, &dp);
            for j in (0..keys).filter(|j| scores[*j].is_some()) {
                let slope = scores[j].map_or(R::default(), |[_, slope]| slope);
                let ds = R::of(self.scale) * slope * p[j] * (dp[j] - mean);
                add(&mut found[0][out..out + width], p[j], &v[at_v(j)..at_v(j) + width]);
                add(&mut found[1][here..here + depth], ds, &k[at(j)..at(j) + depth]);
                add(&mut found[2][at(j)..at(j) + depth], ds, qi);
                add(&mut found[3][at_v(j)..at_v(j) + width], p[j], gi);
            }
        }
        found.map(|x| x.into_iter().map(R::wide).collect())
    }
}

/// The largest difference.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| if a.is_nan() || b.is_nan() { f64::INFINITY } else { (a - b).abs() })
        .fold(0.0, f64::max)
}

fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |most: f64, x| most.max(x.abs()))
}

#[test]
fn every_case_and_its_gradients_are_the_stored_ones_in_f64() {
    each_case(|case, stored| {
        for ((name, got), want) in NAMES.iter().zip(case.run::<f64>(stored, Dtype::F32)).zip(&stored.want) {
            let (error, slack) = (apart(&got, want), 1e-6 * largest(want).max(1.0)); // the stored inputs are rounded
            assert!(error <= slack, "{} ({}) {name}: off by {error:e}", case.name, case.kind);
        }
    });
}

#[test]
fn every_case_compiles_to_two_launches_of_attention_and_keeps_its_values() {
    each_case(|case, stored| {
        let (graph, values) = (case.graph(stored, Dtype::F32), Case::values::<f32>(stored, Dtype::F32));
        let truth = case.run::<f64>(stored, Dtype::F32);
        let naive = case.run::<f32>(stored, Dtype::F32);
        for device in devices() {
            let compiled = Runner::new(device, &graph, &values, Level::O2);
            let mut runner = compiled.unwrap_or_else(|error| panic!("{}: {error}", case.name));
            let steps = &runner.compiled.plan().steps;
            let of = |is: fn(&Step) -> bool| steps.iter().filter(|step| is(step)).count();
            let launches = [
                of(|step| matches!(step, Step::Attention { .. })),
                of(|step| matches!(step, Step::AttentionGrad(_))),
            ];
            assert_eq!(launches, [1, 1], "{} ({})", case.name, case.kind);
            let got = runner.run(&values).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            for (i, name) in NAMES.iter().enumerate() {
                let (clever, plain) = (apart(&got[i].wide(), &truth[i]), apart(&naive[i], &truth[i]));
                let slack = 1e-6 * largest(&truth[i]).max(1.0);
                let what = format!("{} ({}) {name} on {}", case.name, case.kind, device.name());
                assert!(clever <= plain + slack, "{what}: {clever:e}, plain {plain:e}");
            }
        }
    });
}

#[test]
fn every_case_is_what_the_formulas_say_in_f64() {
    each_case(|case, stored| {
        for ((name, got), want) in
            NAMES.iter().zip(case.run::<f64>(stored, Dtype::F32)).zip(case.plain::<f64>(stored))
        {
            let error = apart(&got, &want);
            assert!(
                error <= 1e-13 * largest(&want).max(1.0),
                "{} ({}) {name}: {error:e}",
                case.name,
                case.kind
            );
        }
    });
}

/// How much further from the truth than the formulas in f32 an f32 run may be: some roundings.
const ROUNDINGS: f64 = 4.0 * f32::EPSILON as f64;

#[test]
fn every_case_in_f32_is_as_near_to_the_truth_as_the_formulas_in_f32() {
    each_case(|case, stored| {
        let (truth, naive) = (case.plain::<f64>(stored), case.plain::<f32>(stored));
        for (i, got) in case.run::<f32>(stored, Dtype::F32).iter().enumerate() {
            let slack = apart(&truth[i], &naive[i]) + ROUNDINGS * largest(&truth[i]);
            let error = apart(&truth[i], got);
            assert!(
                error <= slack,
                "{} ({}) {}: {error:e}, fair is {slack:e}",
                case.name,
                case.kind,
                NAMES[i]
            );
            let f16 = truth[i].iter().map(|x| f32::nearest(*x, Dtype::F16).wide()).collect::<Vec<_>>();
            assert!(apart(&truth[i], &f16) > slack, "{}: f16 would do, too", case.name);
        }
    });
}

#[test]
fn every_case_in_bf16_is_the_one_in_f32_rounded_once() {
    each_case(|case, stored| {
        let narrow = |x: &Vec<f64>| x.iter().map(|x| f32::nearest(*x, Dtype::Bf16).wide()).collect();
        let rounded = Stored {
            given: stored.given.each_ref().map(narrow),
            want: stored.want.clone(),
            ids: stored.ids.clone(),
            ..*stored
        };
        let wide = case.run::<f32>(&rounded, Dtype::F32);
        assert_eq!(case.run::<f32>(&rounded, Dtype::Bf16), wide.each_ref().map(narrow), "{}", case.name);
    });
}

#[test]
fn every_case_reads_back_from_its_text() {
    each_case(|case, stored| {
        let graph = case.graph(stored, Dtype::F32);
        assert_eq!(Graph::parse(&graph.to_string()).expect("sound"), graph, "{}", case.name);
    });
}

/// What a program gives at a place, by running it on numbers.
fn at_place(program: &Graph, score: f64, [head, query, key]: [i32; 3], extras: Vec<Array<f64>>) -> f64 {
    let whole = |number| Array::integers(&[], vec![number]);
    let place = [Array::scalar(score), whole(0), whole(head), whole(query), whole(key)];
    let names = program.inputs().map(|(name, _)| name.to_owned());
    let values = names.zip(place.into_iter().chain(extras)).collect();
    interpret(program, &values).expect("a program runs on numbers")[0].wide()[0]
}

#[test]
fn every_mask_allows_what_its_formula_allows() {
    type Formula = fn(i32, i32) -> bool;
    type Part = fn(&ScoreEntry) -> Tensor;
    const IDS: [i32; 7] = [0, 0, 1, 1, 1, 0, 2];
    let masks: [(Part, Formula); 7] = [
        (causal, |query, key| key <= query),
        (|at| sliding_window(at, 3), |query, key| key > query - 3),
        (|at| document(at, &at.extras[0]), |query, key| IDS[query as usize] == IDS[key as usize]),
        (|at| prefix_lm(at, 2), |query, key| key <= query || key < 2),
        (|at| and(&causal(at), &sliding_window(at, 1)), |query, key| key == query),
        (|at| or(&causal(at), &sliding_window(at, 3)), |_, _| true),
        (|at| causal(&at.with_offset(2)), |query, key| key <= query + 2),
    ];
    for (i, (part, formula)) in masks.into_iter().enumerate() {
        let program = mask("mask", &[Type::new(Dtype::I32, [7])], part).expect("sound");
        for (query, key) in (0..7).flat_map(|query| (0..7).map(move |key| (query, key))) {
            let got = at_place(&program, 0.0, [0, query, key], vec![Array::integers(&[7], IDS.to_vec())]);
            assert_eq!(got, f64::from(u8::from(formula(query, key))), "mask {i}, query {query}, key {key}");
        }
    }
}

#[test]
fn every_score_program_gives_what_its_formula_gives() {
    type Formula = fn(f64, [f64; 3]) -> f64;
    type Part = fn(&ScoreEntry) -> Tensor;
    let scores: [(Part, Formula); 5] = [
        (|at| softcap(&at.score, 2.0), |s, _| 2.0 * (s / 2.0).tanh()),
        (
            |at| alibi(at, &at.score, 4),
            |s, [head, query, key]| s + (-2.0 * (head + 1.0)).exp2() * (key - query),
        ),
        (|at| distance_bias(at, &at.score, 0.5), |s, [_, query, key]| s - 0.5 * (key - query).abs()),
        (
            |at| relative_bias(at, &at.score, &at.extras[0], 2),
            |s, [_, query, key]| s + 10.0 * ((key - query).clamp(-2.0, 2.0) + 2.0),
        ),
        (
            |at| alibi(&at.with_offset(3), &softcap(&at.score, 2.0), 8),
            |s, [head, query, key]| 2.0 * (s / 2.0).tanh() + (-(head + 1.0)).exp2() * (key - query - 3.0),
        ),
    ];
    for (i, (part, formula)) in scores.into_iter().enumerate() {
        let program = score("score", &[Type::new(Dtype::F32, [5])], part).expect("sound");
        for (query, key) in (0..7).flat_map(|query| (0..7).map(move |key| (query, key))) {
            let place = [query % 4, query, key];
            let table = Array::floats(Dtype::F32, &[5], (0..5).map(|i| 10.0 * f64::from(i)));
            let got = at_place(&program, 0.7, place, vec![table]);
            let want = formula(0.7, place.map(f64::from));
            assert!((got - want).abs() < 1e-12, "score {i}, {place:?}: {got}, by formula {want}");
        }
    }
}
