//! The whole compiler at work: a QLoRA step, captured once and run at a hundred lengths.
//!
//! Every result is compared with the same step run operation by operation on a CPU, compiled for its own length without
//! padding, fusion or attention of its own; at short lengths also with the interpreter.

use std::collections::{BTreeMap, BTreeSet};

use challenges::graph::{Compile, Solution};
use challenges::nf4::{self, Nf4};
use compiler::calls::compilations;
use compiler::compile::{Compiled, Level, Options};
use compiler::session::{DeviceTensor, Io, Outputs, Program, Session, Settings};
use kernels::Cpu;
use kernels::plan::Step;
use reference::graph::interpret::Values;
use reference::graph::{Data, Graph, Id, interpret};

use super::begun::Begun;
use super::counting::{Calls, Counting, CountingCallee};
use super::model::{Model, TINY};
use crate::compare::{describe, upload};
use crate::device::Processor;
use crate::gather::{Child, Effort, Source};
use crate::random::Random;
use crate::scorecard::Measurement;

/// How many lengths there are.
const LENGTHS: usize = 100;

/// The longest of them; the second with `--quick`, and with a reader's own checkpoint.
const LONGEST: [usize; 2] = [768, 160];

/// How far a loss may be from that of the run operation by operation, as a share of it; other outputs of their largest
/// element. Sums over hundreds of terms in another order differ by some 1e-6.
const NEAR: f64 = 2e-5;

/// How many times as far as an adapter that is one ulp away moves an output it may be, too, if the model is a reader's
/// own: many layers amplify each rounding. E's training of such a model is held to the same.
const ULPS: f64 = 20.0;

/// Runs it and reports what was seen.
pub(super) fn run(child: &mut Child, processor: Processor, attempt: &dyn Compile, own: Option<&dyn Nf4>) {
    let seed = child.request.effort.seed;
    let is_called = |own: &&dyn Nf4| match child.request.source {
        Source::Own if processor.is_card() => false, // there the kernel is called, which is the solution's
        Source::Own | Source::Solution => crate::nf4::is_right(*own, seed),
    };
    let own = own.filter(is_called);
    let own = own.map(crate::nf4::answer);
    let dequantizer = own.as_ref().map_or(&nf4::Solution as &dyn Nf4, |own| own as &dyn Nf4);
    let begun = Begun::of(attempt);
    if let Some(step) = begun.lacks() {
        return child.unmeasured("graph.lengths", &format!("{step} is not written yet"));
    }
    let effort = child.request.effort.clone();
    let longest = LONGEST[usize::from(effort.quick || effort.model.is_some())];
    let run = || Run::new(processor, attempt, &begun, &effort)?.all(dequantizer, longest);
    let seen = match crate::gather::caught(run) {
        Ok(Ok(seen)) => seen,
        Ok(Err(reason)) => return child.unmeasured("graph.lengths", &reason),
        Err(crate::gather::Unwound::Hole(hole)) => {
            return child.unmeasured("graph.lengths", &format!("not written yet: {hole}"));
        }
        Err(crate::gather::Unwound::Panic(message)) => return child.unmeasured("graph.lengths", &message),
    };
    let part_a = ("part_a", usize::from(own.is_some()));
    for (name, value) in seen.numbers.into_iter().chain([part_a]) {
        let (value, unit) = (value as f64, "count".into());
        child
            .measured(&format!("graph.{name}"), Measurement { value, unit, interval: None, samples: vec![] });
    }
    if let Some(wrong) = seen.wrong {
        child.unmeasured("graph.wrong", &wrong);
    }
}

/// What was seen.
struct Seen {
    numbers: BTreeMap<&'static str, usize>,
    wrong: Option<String>,
}

/// A step and everything that it is run with.
struct Run<'a> {
    processor: Processor,
    attempt: &'a dyn Compile,
    begun: &'a Begun,
    model: Model,
    breaks: usize,
    step: Graph,
    fixed: Values<f32>,
    is_own_model: bool,
    seed: u64,
}

impl<'a> Run<'a> {
    fn new(
        processor: Processor,
        attempt: &'a dyn Compile,
        begun: &'a Begun,
        effort: &Effort,
    ) -> Result<Self, String> {
        let (seed, model) = (effort.seed, effort.model.as_deref());
        let is_own_model = model.is_some();
        let model = model.map_or_else(|| Model::drawn(TINY, seed), |model| Model::open(model, seed))?;
        let captured = attempt.capture("llama_loss", &model.program(), &Values::new()).map_err(describe)?;
        let step = Model::step(captured.graph)?;
        let fixed = model.fixed(&step);
        let breaks = captured.breaks.len();
        Ok(Self { processor, attempt, begun, model, breaks, step, fixed, is_own_model, seed })
    }

    fn all(&self, dequantizer: &dyn Nf4, longest: usize) -> Result<Seen, String> {
        let (device, host) = (self.processor.timed(), Cpu::new());
        let settings = self.begun.settings();
        let exact = settings.exact;
        let counting = Counting { inner: dequantizer, calls: Calls::default() };
        let dequantizer = CountingCallee::of(&counting);
        let mut session = Session::new(self.attempt, &*device, &dequantizer, settings);
        let program = session.load(&self.step).map_err(describe)?;
        let options = Options { flex: false, ..Level::O1.options() };
        let plain = Settings { options: Some(options), exact: true, ..Settings::default() };
        let mut plain = Session::new(&Solution, &host, &nf4::DEQUANTIZER, plain);
        let plain_step = plain.load(&self.step).map_err(describe)?;
        let mut random = Random::named(self.seed, "lengths");
        let (mut right, mut wrong) = (0, None);
        for session in [&mut session, &mut plain] {
            for (name, tensor) in self.model.upload_fixed(session.device(), &self.fixed)? {
                session.keep(&name, tensor);
            }
        }
        let mut near = Near::default();
        let (mut calls, mut called) = (0, 0);
        let lengths = if exact { 1 } else { LENGTHS };
        let mut hidden = 0;
        let mut last = None;
        for number in 0..lengths {
            let length =
                if number == 0 { 7 } else { 1 + random.below(longest.min(self.model.spec.config.positions)) };
            let tokens = self.model.tokens(length, &mut random);
            let inputs = upload(&*device, &tokens).map_err(describe)?;
            let before = (compilations(), session.counters().compilations, counting.calls.count());
            let got = self.arrays(&session.run(program, &inputs).map_err(describe)?)?;
            let after = (compilations(), session.counters().compilations, counting.calls.count());
            hidden += (after.0 - before.0) as usize - (after.1 - before.1);
            if !self.processor.is_card() || after.1 > before.1 {
                (calls, called) = (calls + after.2 - before.2, called + 1); // a card may replay what it has captured
            }
            let on_the_host = upload(&host, &tokens).map_err(describe)?;
            let want = self.arrays(&plain.run(plain_step, &on_the_host).map_err(describe)?)?;
            let mut fault = near.difference(&got, &want);
            if fault.is_some() && self.is_own_model {
                near.include(&want, &self.one_ulp_away(&mut plain, plain_step, &on_the_host)?);
                fault = near.difference(&got, &want);
            }
            if fault.is_none() && length < 16 {
                fault = self.meaning(&tokens, &got)?;
            }
            match fault {
                None => right += 1,
                Some(fault) => _ = wrong.get_or_insert(format!("at length {length}: {fault}")),
            }
            last = Some(session.compiled(program, &Io::from(&inputs)).map_err(describe)?);
        }
        let Some(last) = last else { return Err("no length was run".into()) };
        let counters = session.counters();
        let layers = self.model.spec.config.layers;
        let mut numbers = scopes(&last, layers);
        numbers.extend([
            ("lengths", lengths),
            ("lengths_right", right),
            ("captures", 1), // of the step, for all lengths
            ("breaks", self.breaks),
            ("compilations", counters.compilations),
            ("hits", counters.hits - lengths), // one more each, to look at the plan
            ("hidden_compilations", hidden),
            ("launches", counters.launches),
            ("programs", counters.programs),
            ("nodes", last.graph.nodes().len()),
            ("layers", layers),
            ("dequantized", counters.dequantized),
            ("dequantizer_calls", calls / called.max(1)),
            ("trials", counters.trials),
            ("questions", session.tuned().asked),
            ("answers", session.tuned().answers().len()),
            ("tuning_us", counters.tuning.as_micros() as usize),
        ]);
        if self.is_own_model {
            numbers.insert("parameters", self.model.parameters());
        }
        if !exact {
            numbers.insert("buckets", session.buckets(program, "T").len());
        }
        Ok(Seen { numbers, wrong })
    }

    /// All outputs of the step.
    fn arrays(&self, outputs: &Outputs<'_>) -> Result<Values<f32>, String> {
        let array = |(name, _): &(String, Id)| Ok((name.clone(), outputs.array(name).map_err(describe)?));
        self.step.outputs().iter().map(array).collect()
    }

    /// All outputs of the step run operation by operation, with an adapter whose numbers are each the next one.
    fn one_ulp_away(
        &self,
        plain: &mut Session<'_>,
        step: Program,
        tokens: &BTreeMap<String, DeviceTensor>,
    ) -> Result<Values<f32>, String> {
        let keep = |plain: &mut Session<'_>, adapter: Values<f32>| {
            let tensors = upload(plain.device(), &adapter).map_err(describe)?;
            for (name, tensor) in tensors {
                plain.keep(&name, tensor);
            }
            Ok::<(), String>(())
        };
        keep(plain, self.model.adapter_one_ulp_away())?;
        let outputs = self.arrays(&plain.run(step, tokens).map_err(describe)?)?;
        keep(plain, self.model.adapter())?;
        Ok(outputs)
    }

    /// Where a result is not what the interpreter says.
    fn meaning(&self, tokens: &Values<f32>, got: &Values<f32>) -> Result<Option<String>, String> {
        let mut values: Values<f64> = Values::new();
        for (name, value) in self.fixed.iter().chain(tokens) {
            values.insert(name.clone(), value.widened());
        }
        let want = interpret(&self.step, &values).map_err(describe)?;
        let loss = self.step.outputs().iter().position(|(name, _)| name == "loss").unwrap_or(0);
        let (got, want) = (got["loss"].wide()[0], want[loss].wide()[0]);
        let near = (got - want).abs() <= NEAR * want.abs();
        Ok((!near).then(|| format!("the loss is {got}, the interpreter says {want}")))
    }
}

/// How far each output may be from the run operation by operation, as a share of its largest element: as far as all, or
/// as what was seen of it says.
#[derive(Default)]
struct Near(BTreeMap<String, f64>);

impl Near {
    /// Takes in what an adapter that is one ulp away makes of each output.
    fn include(&mut self, want: &Values<f32>, one_ulp_away: &Values<f32>) {
        for (name, value) in want {
            let (Data::Float(want), Data::Float(moved)) = (&value.data, &one_ulp_away[name].data) else {
                continue;
            };
            let apart = want.iter().zip(moved).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            let share = ULPS * f64::from(apart) / f64::from(largest(want));
            let near = self.0.entry(name.clone()).or_insert(NEAR);
            *near = near.max(share); // NaN, of zeros alone, leaves it
        }
    }

    /// Where an output is further away than it may be.
    fn difference(&self, got: &Values<f32>, want: &Values<f32>) -> Option<String> {
        want.iter().find_map(|(name, want)| {
            let (Data::Float(got), Data::Float(want)) = (&got.get(name)?.data, &want.data) else { return None };
            let near = self.0.get(name).map_or(NEAR, |near| *near);
            let allowed = near * f64::from(largest(want));
            let far = |i: &usize| {
                let apart = f64::from((got[*i] - want[*i]).abs());
                apart.is_nan() || apart > allowed
            };
            let i = (0..got.len().max(want.len())).find(|i| *i >= got.len() || *i >= want.len() || far(i))?;
            let of = |values: &[f32]| values.get(i).map_or("nothing".into(), f32::to_string);
            Some(format!(
                "element {i} of `{name}` is {}, operation by operation it is {}, further apart than {near:.1e} of the largest",
                of(got),
                of(want)
            ))
        })
    }
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |max, x| max.max(x.abs()))
}

/// In how many layers each part of the model has steps of the plan.
fn scopes(compiled: &Compiled, layers: usize) -> BTreeMap<&'static str, usize> {
    let count = compiled.plan().steps.len();
    let all: BTreeSet<&str> = (0..count).flat_map(|step| compiled.scopes(step)).collect();
    let has = |scope: &str| all.iter().any(|one| one.contains(scope));
    let layered = |part: &str| (0..layers).filter(|layer| has(&format!("layers.{layer}.{part}"))).count();
    let steps = &compiled.plan().steps;
    let flex = |step: &&Step| matches!(step, Step::Attention { attention, .. } if attention.mask.is_some());
    let products = steps.iter().filter(|step| matches!(step, Step::Product(_))).count();
    let norms = layered("input_layernorm").min(layered("post_attention_layernorm"));
    let whole: BTreeSet<&str> = ["loss", "norm"].into_iter().filter(|scope| has(scope)).collect();
    BTreeMap::from([
        ("attention_layers", layered("self_attn")),
        ("mlp_layers", layered("mlp")),
        ("norm_layers", norms),
        ("loss_parts", usize::from(whole.contains("loss"))),
        ("flex_launches", steps.iter().filter(flex).count()),
        ("products", products),
    ])
}
