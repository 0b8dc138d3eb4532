//! Agreement: what is computed again is what was there, in less memory, and the memory is known beforehand.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use challenges::graph::Solution;
use compiler::compile::{Compiled, Error, Level, Options, compile, compile_with_policy};
use compiler::ir::arena::{LINE, floor};
use compiler::rewrite::remat::RematPolicy;
use compiler::rewrite::split::{Halves, split};
use compiler::session::{DeviceTensor, Settings};
use kernels::bytes::Peak;
use kernels::cuda::Form;
use kernels::plan::Step;
use kernels::{Cpu, Device};
use proptest::prelude::*;
use reference::graph::interpret::{Values, interpret};
use reference::graph::{Array, Builder, Dtype, Facts, Graph, Symbol, Type};
use reference::llama::{self, Config, Rope, Rows, Scaling, Spec, Storage, rope, train};
use reference::{grad, lora};
use tests::one_graph::{OneGraph, array, devices, upload};
use tests::tiny_llama::TinyLlama;

use crate::compiled::{Runner, sizes, trains};

/// A model to be drawn.
#[derive(Clone, Debug)]
struct Model {
    layers: usize,
    hidden: usize,
    quantized: bool,
    compute: Dtype,
}

const SMALL: Model = Model { layers: 2, hidden: 32, quantized: true, compute: Dtype::F32 };

/// Numbers between -1 and 1, others for each seed.
fn numbers(count: usize, seed: usize) -> impl Iterator<Item = f64> {
    (0..count).map(move |i| ((i * 7919 + seed * 104729 + 13) % 2003) as f64 / 1001.0 - 1.0)
}

impl Model {
    fn config(&self) -> Config {
        Config {
            vocab: 40,
            hidden: self.hidden,
            intermediate: self.hidden * 11 / 4,
            layers: self.layers,
            heads: 4,
            key_heads: 2,
            head_dim: self.hidden / 4,
            positions: 256,
            norm_eps: 1e-5,
            rope: Rope { theta: 10_000.0, scaling: Scaling::None },
            tied: false,
            quantized: self.quantized,
            classifier: None,
            images: None,
        }
    }

    /// Its training step, and values for everything but the tokens.
    fn step(&self) -> (Graph, Values<f32>) {
        let config = self.config();
        let (mut storages, mut values) = (BTreeMap::new(), Values::new());
        for (seed, spec) in config.tensor_specs().into_iter().enumerate() {
            let count = spec.shape.iter().product();
            let offset = if spec.name.ends_with("norm.weight") { 1.0 } else { 0.0 };
            let weights: Vec<f64> = numbers(count, seed).map(|x| offset + 0.2 * x).collect();
            if spec.quantizable && self.quantized {
                let weights: Vec<f32> = weights.iter().map(|x| *x as f32).collect();
                let dtype = reference::nf4::OutputDtype::F32;
                let weight = reference::nf4::Quantized::double(&weights, &spec.shape, dtype, 64);
                values.append(&mut llama::parts(&spec.name, &weight.expect("a sound weight")));
                let nested = Some(reference::nf4::NESTED_BLOCK);
                storages.insert(spec.name, Storage::Nf4 { dtype: Dtype::F32, block_size: 64, nested });
            } else {
                values.insert(spec.name.clone(), Array::floats(Dtype::F32, &spec.shape, weights));
                storages.insert(spec.name, Storage::Dense(Dtype::F32));
            }
        }
        let targets = lora::Targets::AllLinear;
        let adapter = lora::Config::new(4, 8.0, targets);
        for (seed, (name, shape)) in adapter.needs(&config).expect("targets").into_iter().enumerate() {
            let pair = numbers(shape[0] * shape[1], seed + 99).map(|x| 0.1 * x);
            values.insert(name, Array::floats(Dtype::F32, &shape, pair));
        }
        let spec = Spec {
            config,
            storages,
            compute: self.compute,
            adapter: Some(adapter),
            rows: Rows::default(),
            dropout: false,
        };
        let optimizer = reference::optim::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
        let step = train::step_graph(&spec, &train::Recipe { optimizer, max_norm: 1.0 }).expect("a step");
        values.append(&mut optimizer.rates(3, 1e-3));
        for (name, id) in step.inputs().filter(|(name, _)| name.starts_with("optim.exp_avg")) {
            let shape: Vec<usize> =
                step.ty(id).shape.iter().filter_map(|dim| Some(dim.as_fixed()? as usize)).collect();
            let moment = if name.contains("exp_avg_sq") { 1e-6 } else { 1e-4 };
            let count = shape.iter().product();
            values.insert(name.into(), Array::floats(Dtype::F32, &shape, std::iter::repeat_n(moment, count)));
        }
        (step, values)
    }

    /// With tokens.
    fn at(&self, values: &Values<f32>, [batch, length]: [usize; 2]) -> Values<f32> {
        let mut values = values.clone();
        let tokens =
            |seed: usize| (0..batch * length).map(move |i| ((i * 31 + seed) * 17 % 40) as i32).collect();
        values.append(&mut rope::values(&self.config(), length));
        values.insert("ids".into(), Array::integers(&[batch, length], tokens(1)));
        values.insert("labels".into(), Array::integers(&[batch, length], tokens(5)));
        values
    }
}

fn compiled(graph: &Graph, values: &Values<f32>, policy: &RematPolicy) -> Result<Compiled, Error> {
    compile_with_policy(&Solution, graph, &sizes(graph, values), Level::O2.options(), policy)
}

fn results(
    device: &dyn Device,
    graph: &Graph,
    values: &Values<f32>,
    policy: &RematPolicy,
) -> Vec<Array<f32>> {
    let compiled = compiled(graph, values, policy).unwrap_or_else(|error| panic!("{error}"));
    let runner = OneGraph::of(&Solution, device, compiled);
    runner.and_then(|mut runner| runner.arrays(values)).unwrap_or_else(|error| panic!("{error}"))
}

/// That losses, gradients and updates have the same bits with a choice and without.
fn changes_nothing(device: &dyn Device, graph: &Graph, values: &Values<f32>, policies: &[RematPolicy]) {
    let want = results(device, graph, values, &RematPolicy::none());
    for policy in policies {
        let got = results(device, graph, values, policy);
        for (((name, _), got), want) in graph.outputs().iter().zip(&got).zip(&want) {
            let is_same = got.to_memory() == want.to_memory();
            let on = device.name();
            assert!(is_same, "{policy:?} on {on}: {name}: expected {want:?}, found {got:?}");
        }
    }
}

fn subsets(layers: usize) -> impl Iterator<Item = RematPolicy> {
    let subset = move |bits: usize| (0..layers).filter(move |layer| bits >> layer & 1 == 1).collect();
    (0..1 << layers)
        .flat_map(move |bits| [false, true].map(|cheap| RematPolicy { cheap, layers: subset(bits) }))
}

#[test]
fn not_a_bit_changes_whatever_is_computed_again() {
    for model in [SMALL, Model { compute: Dtype::Bf16, ..SMALL }, Model { quantized: false, ..SMALL }] {
        let (graph, values) = model.step();
        let values = model.at(&values, [2, 13]);
        let policies: Vec<RematPolicy> = subsets(model.layers).collect();
        for device in devices() {
            changes_nothing(device, &graph, &values, &policies);
        }
    }
}

/// Returns what decides by which algorithm a GPU computes each product of a plan.
fn forms(compiled: &Compiled) -> BTreeSet<Form> {
    let products = compiled.plan().steps.iter().filter_map(|step| match step {
        Step::Product(product) => Some(product),
        _ => None,
    });
    products.filter_map(Form::of).collect()
}

/// By the same algorithm a product has the same bits.
#[test]
fn products_keep_their_forms() {
    for compute in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let model = Model { layers: 2, hidden: 48, quantized: false, compute };
        let (graph, values) = model.step();
        for size in [[2, 7], [1, 65]] {
            let values = model.at(&values, size);
            let of = |policy: &RematPolicy| forms(&compiled(&graph, &values, policy).expect("it compiles"));
            let want = of(&RematPolicy::none());
            for policy in subsets(model.layers) {
                assert_eq!(of(&policy), want, "{model:?}, {size:?}, {policy:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_layers_of_any_model_can_be_computed_again(
        layers in 1..5_usize,
        hidden in prop::sample::select(vec![16_usize, 48]),
        quantized: bool,
        compute in prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::Bf16]),
        size in (1..3_usize, prop::sample::select(vec![1_usize, 2, 7, 31, 64, 65])),
        cheap: bool,
        chosen in prop::collection::btree_set(0..5_usize, 0..5),
    ) {
        let model = Model { layers, hidden, quantized, compute };
        let (graph, values) = model.step();
        let values = model.at(&values, [size.0, size.1]);
        let policies = [RematPolicy { cheap, layers: chosen }];
        for device in devices() {
            changes_nothing(device, &graph, &values, &policies);
        }
    }
}

/// That both parts of a graph, one after the other, have the bits of the whole, by its meaning.
fn halves_are_the_whole(graph: &Graph, values: &Values<f32>, policy: &RematPolicy) {
    let want = interpret(graph, values).expect("it runs");
    let Halves { forward, backward, saved } =
        split(graph, &sizes(graph, values), policy).expect("two graphs");
    for part in [&forward, &backward] {
        part.check().unwrap_or_else(|error| panic!("{policy:?}: {error}"));
    }
    let read = |part: &Graph, name: &str| {
        part.ids().any(|id| part.find_input(name).is_some_and(|input| part.node(id).inputs.contains(&input)))
    };
    let mut given = values.clone();
    for (name, ty) in &saved {
        assert!(!read(&forward, name) && read(&backward, name), "{policy:?}: {name}");
        assert_eq!(forward.find_output(name).map(|id| forward.ty(id)), Some(ty));
        let shape: Vec<usize> =
            ty.shape.iter().map(|dim| dim.value(&sizes(graph, values)).expect("a size") as usize).collect();
        let none = std::iter::repeat_n(f64::NAN, shape.iter().product());
        given.insert(name.clone(), Array::floats(ty.dtype, &shape, none));
    }
    let first = interpret(&forward, &given).expect("it runs");
    given.extend(forward.outputs().iter().map(|(name, _)| name.clone()).zip(first.clone()));
    let rest = interpret(&backward, &given).expect("it runs");
    let got = first.iter().take(1).chain(&rest);
    for (((name, _), got), want) in graph.outputs().iter().zip(got).zip(&want) {
        assert!(got.to_memory() == want.to_memory(), "{policy:?}: {name}: expected {want:?}, found {got:?}");
    }
    assert_eq!(rest.len() + 1, want.len());
}

#[test]
fn a_graph_in_two_parts_is_the_whole() {
    for model in [SMALL, Model { compute: Dtype::Bf16, quantized: false, ..SMALL }] {
        let (graph, values) = model.step();
        let values = model.at(&values, [2, 5]);
        subsets(model.layers).for_each(|policy| halves_are_the_whole(&graph, &values, &policy));
    }
}

#[test]
fn less_is_saved_where_more_is_computed_again() {
    let (graph, values) = SMALL.step();
    let sizes = sizes(&graph, &SMALL.at(&values, [2, 64]));
    let bytes = |policy: &RematPolicy| {
        let saved = split(&graph, &sizes, policy).expect("two graphs").saved;
        let count =
            |ty: &Type| ty.shape.iter().map(|dim| dim.value(&sizes).expect("a size")).product::<i64>();
        saved.iter().map(|(_, ty)| count(ty) as usize * ty.dtype.bytes()).sum::<usize>()
    };
    let [none, cheap] = [RematPolicy::none(), RematPolicy::cheap()].map(|policy| bytes(&policy));
    let layers = bytes(&RematPolicy { cheap: true, ..RematPolicy::layers([0, 1]) });
    assert!(cheap * 10 <= none * 8 && layers * 10 <= cheap * 8, "{none}, {cheap}, {layers}");
}

#[test]
fn the_golden_run_has_the_same_losses_with_every_layer_computed_again() {
    let Some(tiny) = TinyLlama::find() else { return };
    for device in devices() {
        let with = |policy: RematPolicy| {
            trains(&tiny, |graph, values| Runner::of(device, compiled(graph, values, &policy)?))
        };
        let (plain, again) = (with(RematPolicy::none()), with(RematPolicy::layers(0..64)));
        for (step, (plain, again)) in plain.iter().zip(&again).enumerate() {
            let on = device.name();
            assert!((plain - again).abs() <= 1e-6, "step {step} on {on}: {again}, without it {plain}");
        }
    }
}

#[test]
fn more_is_computed_again_in_less_memory() {
    let model = Model { layers: 4, ..SMALL };
    let (graph, values) = model.step();
    let values = model.at(&values, [2, 64]);
    let arena = |policy: &RematPolicy| compiled(&graph, &values, policy).expect("a plan").arena.bytes;
    let (none, cheap) = (arena(&RematPolicy::none()), arena(&RematPolicy::cheap()));
    let layers = arena(&RematPolicy { cheap: true, ..RematPolicy::layers(0..3) });
    assert!(cheap * 10 <= none * 8, "{cheap} bytes instead of {none}");
    assert!(layers * 10 <= cheap * 8, "{layers} bytes instead of {cheap}");
}

#[test]
fn what_is_computed_again_is_reported() {
    let (graph, values) = SMALL.step();
    let values = SMALL.at(&values, [1, 16]);
    let policy = RematPolicy { cheap: true, ..RematPolicy::layers([1]) };
    let seen = compiled(&graph, &values, &policy).expect("a plan").rematerialised;
    assert_eq!(seen.policy, policy);
    assert!(seen.nodes > 0 && seen.kept < seen.needed, "{seen:?}");
    assert_eq!(compiled(&graph, &values, &RematPolicy::none()).expect("a plan").rematerialised.nodes, 0);
}

#[test]
fn a_cap_is_kept_by_the_least_that_fits() {
    let (graph, values) = SMALL.step();
    let values = SMALL.at(&values, [2, 64]);
    let capped = |cap: usize| {
        let options = Options { cap: Some(cap), ..Level::O2.options() };
        compile(&Solution, &graph, &sizes(&graph, &values), options)
    };
    let mut price: Vec<(RematPolicy, usize)> = Vec::new();
    for layers in [vec![], vec![0], vec![0, 1]] {
        let policy = RematPolicy { cheap: true, ..RematPolicy::layers(layers) };
        price.push((policy.clone(), compiled(&graph, &values, &policy).expect("a plan").arena.bytes));
    }
    let none = compiled(&graph, &values, &RematPolicy::none()).expect("a plan").arena.bytes;
    assert_eq!(capped(none).expect("it fits").rematerialised.policy, RematPolicy::none());
    for cap in price.iter().map(|(_, bytes)| *bytes) {
        let seen = capped(cap).unwrap_or_else(|error| panic!("{error}"));
        assert!(seen.arena.bytes <= cap, "{} bytes under a cap of {cap}", seen.arena.bytes);
        let least = price.iter().find(|(_, bytes)| *bytes <= cap).map(|(policy, _)| policy);
        assert_eq!(Some(&seen.rematerialised.policy), least);
    }
    let best = price.iter().map(|(_, bytes)| *bytes).min().unwrap_or(0);
    for cap in [0, best - 1] {
        let Err(error) = capped(cap) else { panic!("{cap} bytes are enough") };
        let Error::Cap { cap: named, least, alive, .. } = &error else { panic!("{error}") };
        assert_eq!((*named, *least), (cap, best));
        assert!(!alive.is_empty());
        let text = error.to_string();
        assert!(text.contains(&cap.to_string()) && text.contains(&best.to_string()), "{text}");
    }
}

#[test]
fn a_graph_without_layers_keeps_to_a_cap() {
    let builder = Builder::new("chain");
    let length = builder.tape().symbol("T", Facts::range(1, 512));
    let mut x = builder.tape().input("x", Dtype::F32, &[length, 24.into()]);
    let weights: Vec<_> =
        (0..6).map(|i| builder.tape().input(&format!("w{i}"), Dtype::F32, &[24.into(), 24.into()])).collect();
    for weight in &weights {
        let z = x.matmul(weight);
        x = &z * &z.sigmoid();
    }
    let loss = (&x * &x).mean(1).mean(0);
    builder.tape().output("loss", &loss);
    let ids: Vec<_> = weights.iter().map(|weight| builder.id(weight)).collect();
    let loss = builder.id(&loss);
    let mut graph = builder.finish().expect("a graph");
    let ids: Vec<_> = ids.into_iter().flatten().collect();
    let gradients = grad::differentiate(&mut graph, loss.expect("a node"), &ids).expect("gradients");
    gradients.iter().enumerate().for_each(|(i, id)| graph.output(format!("grad{i}"), *id));
    let mut values =
        Values::from([("x".to_owned(), Array::floats(Dtype::F32, &[200, 24], numbers(4800, 0)))]);
    values
        .extend((0..6).map(|i| (format!("w{i}"), Array::floats(Dtype::F32, &[24, 24], numbers(576, i + 1)))));
    let none = compiled(&graph, &values, &RematPolicy::none()).expect("a plan").arena.bytes;
    let options = Options { cap: Some(none - 1), ..Level::O2.options() };
    let seen = compile(&Solution, &graph, &sizes(&graph, &values), options);
    let seen = seen.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(seen.rematerialised.policy, RematPolicy::cheap());
    assert!(seen.arena.bytes < none);
    let policies = [RematPolicy::cheap(), RematPolicy::layers(0..3)];
    for device in devices() {
        changes_nothing(device, &graph, &values, &policies);
    }
}

const LENGTHS: [usize; 4] = [1, 7, 64, 96];

/// Bytes that places in an arena may be larger than what lies there: a line a buffer, and gaps of a twentieth.
fn slack(compiled: &Compiled) -> usize {
    compiled.lives.iter().flatten().count() * LINE + floor(&compiled.lives) / 20
}

#[test]
fn the_forecast_is_what_the_arena_takes_at_every_length() {
    let (graph, values) = SMALL.step();
    for policy in
        [RematPolicy::none(), RematPolicy::cheap(), RematPolicy { cheap: true, ..RematPolicy::layers([1]) }]
    {
        let plan =
            |length: usize| compiled(&graph, &SMALL.at(&values, [2, length]), &policy).expect("a plan");
        let forecast = plan(64).memory_profile();
        for length in LENGTHS {
            let (compiled, bound) = (plan(length), BTreeMap::from([size("B", 2), size("T", length)]));
            for (life, bytes) in compiled.lives.iter().zip(&compiled.bytes) {
                let Some(life) = life else { continue };
                assert_eq!(bytes.value(&bound), Ok(life.bytes as i64), "{bytes} at {length}");
            }
            let (_, own) = compiled.memory_profile().peak(&bound).expect("sizes");
            let (_, other) = forecast.peak(&bound).expect("sizes");
            let arena = compiled.arena.bytes;
            assert!(
                own <= arena && arena <= own + slack(&compiled),
                "{length}: {own} forecast, {arena} taken"
            );
            assert!(
                length == 1 || own == other,
                "{length}: {own} forecast by its plan, {other} by another one"
            );
        }
    }
}

fn size(symbol: &str, size: usize) -> (Symbol, i64) {
    (symbol.into(), size as i64)
}

#[test]
fn the_staircase_can_be_read() {
    let (graph, values) = SMALL.step();
    let forecast = compiled(&graph, &SMALL.at(&values, [1, 16]), &RematPolicy::cheap())
        .expect("a plan")
        .memory_profile();
    let text = forecast.to_string();
    assert_eq!(text.lines().count(), forecast.steps.len());
    let attention =
        text.lines().find(|line| line.contains("layers.0.self_attn") && line.contains("attention"));
    assert!(attention.is_some_and(|line| line.contains("*B*T")), "{text}");
    assert!(text.lines().any(|line| line.contains("remat.layers.0")), "{text}");
}

fn loss(device: &dyn Device, results: &BTreeMap<String, DeviceTensor>) -> f32 {
    array(device, Dtype::F32, &results["loss"]).as_floats()[0]
}

#[test]
fn a_cap_holds_for_every_bucket() {
    devices().into_iter().for_each(cap_holds);
}

fn cap_holds(device: &dyn Device) {
    let model = Model { layers: 3, ..SMALL };
    let (graph, values) = model.step();
    let session = |cap: Option<usize>| {
        let settings = Settings { cap, ..Settings::default() };
        OneGraph::new(&Solution, device, &graph, settings).unwrap_or_else(|error| panic!("{error}"))
    };
    let at = |length: usize| upload(device, &model.at(&values, [2, length]));
    let mut free = session(None);
    let mut cap = free.compiled(&at(90)).expect("a plan").arena.bytes;
    // One byte less than the last plan needs, until whole layers are recomputed: on a GPU cheap operations come first.
    loop {
        let mut capped = session(Some(cap - 1));
        for length in [90, 5, 64] {
            let [got, want] = [&mut capped, &mut free].map(|session| {
                loss(device, &session.run(&at(length)).unwrap_or_else(|error| panic!("{error}")))
            });
            assert_eq!(got.to_bits(), want.to_bits(), "at {length}");
            assert!(capped.counters().arena_bytes < cap);
        }
        let compiled = capped.compiled(&at(90)).expect("a plan");
        assert_ne!(compiled.rematerialised.policy, RematPolicy::none());
        if !compiled.rematerialised.policy.layers.is_empty() {
            break;
        }
        cap = compiled.arena.bytes;
    }
    let error = session(Some(1000)).run(&at(5)).map(|_| ()).expect_err("too little");
    assert!(error.to_string().contains("1000"), "{error}");
}

/// What kernels may allocate for themselves, at most 2.1 MB seen: panels of products, rows of scores, by each thread
/// once.
const SCRATCH: usize = 3 << 20;

#[test]
#[ignore = "counts the bytes of the whole process: run alone by the test below"]
fn counted_alone() {
    let model = Model { hidden: 128, layers: 3, ..SMALL };
    let (graph, values) = model.step();
    let device = Cpu::with_threads(2);
    for length in LENGTHS {
        let inputs = upload(&device, &model.at(&values, [4, length]));
        let settings = Settings { exact: true, ..Settings::default() };
        let new = || OneGraph::new(&Solution, &device, &graph, settings.clone()).expect("a session");
        new().run(&inputs).expect("results"); // what threads allocate once, they have now
        let mut session = new();
        let compiled = session.compiled(&inputs).expect("a plan");
        let bound = BTreeMap::from([size("B", 4), size("T", length)]);
        let (_, forecast) = compiled.memory_profile().peak(&bound).expect("sizes");
        let peak = Peak::begin().expect("room for another peak");
        let results = session.run(&inputs).expect("results");
        let counted = peak.bytes();
        let copied: usize = results.values().map(|result| result.buffer.bytes()).sum();
        println!("T = {length}: forecast {forecast}, counted {counted}, results {copied}");
        assert!(counted >= forecast + copied, "{length}: {counted} counted, {forecast} forecast");
        let most = forecast + slack(&compiled) + 2 * copied + SCRATCH;
        assert!(counted <= most, "{length}: {counted} counted, at most {most} forecast");
    }
}

#[test]
fn the_forecast_is_what_the_allocator_counts() {
    let own = std::env::current_exe().expect("this binary");
    let arguments = ["remat::counted_alone", "--exact", "--ignored", "--nocapture", "--test-threads=1"];
    let output = Command::new(own).args(arguments).output().expect("it runs");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    println!("{text}");
}
