//! What the chapters on graphs and on losses show is what they print: graphs, plans and counts are kept files that they
//! include.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use challenges::graph::zoo::{Shows, zoo};
use challenges::graph::{Compile, Solution};
use challenges::loss::problem::ROWS;
use challenges::loss::{self, Chunked, Problem, Sampled, Trains, losses};
use compiler::compile::{Compiled, Level, Options, compile};
use compiler::front::capture::Capture;
use compiler::ir::arena::{Life, aligned_bytes, floor, without_reuse};
use kernels::plan::{Product, Step};
use reference::grad;
use reference::graph::interpret::Values;
use reference::graph::{
    Array, Attention, Builder, Dtype, Facts, Graph, Host, Id, Known, Op, Symbol, Tape, Tensor, Type, programs,
};
use reference::llama::train::{Recipe, step_graph};
use reference::llama::{Config, Rope, Rows, Scaling, Spec, Storage};
use reference::loss::{Clip, CrossEntropy, Head, Policy, Reduction};
use reference::optim::AdamW;
use reference::{lora, nf4};

use crate::look::looks_like;

fn shows(name: &str, text: &str) {
    looks_like(&format!("graph/{name}.txt"), text);
}

fn graph(name: &str, write: impl FnOnce(&Tape)) -> Graph {
    let builder = Builder::new(name);
    write(builder.tape());
    builder.finish().expect("shapes fit")
}

fn floats(tape: &Tape, name: &str, shape: &[usize]) -> Tensor {
    tape.input(name, Dtype::F32, shape.iter().copied())
}

fn compiled(graph: &Graph, sizes: &BTreeMap<Symbol, i64>, level: Level) -> Compiled {
    with(graph, sizes, level.options())
}

fn with(graph: &Graph, sizes: &BTreeMap<Symbol, i64>, options: Options) -> Compiled {
    compile(&Solution, graph, sizes, options).expect("it compiles")
}

/// Launches of a small graph as an eager framework makes them, and compiled.
fn launches(graph: &Graph) -> [usize; 2] {
    [Level::O1, Level::O2].map(|level| compiled(graph, &BTreeMap::new(), level).plan().steps.len())
}

/// The plan of a small graph, with its programs.
fn plan(graph: &Graph) -> String {
    plan_of(&compiled(graph, &BTreeMap::new(), Level::O2))
}

fn plan_of(compiled: &Compiled) -> String {
    let mut text = compiled.plan().to_string();
    for step in &compiled.plan().steps {
        if let Step::Pass { program, .. } = step {
            _ = write!(text, "\n{program}");
        }
    }
    text
}

fn softmax() -> Graph {
    graph("softmax", |tape| tape.output("y", &(&floats(tape, "x", &[24, 40]) * 0.5).softmax(1)))
}

fn norm() -> Graph {
    graph("norm", |tape| {
        let (x, w) = (floats(tape, "x", &[24, 40]), floats(tape, "w", &[40]));
        let root = (&(&x * &x).mean(1) + 1e-5).sqrt();
        tape.output("y", &(&(&x / &root) * &w));
    })
}

fn pair() -> Graph {
    graph("pair", |tape| {
        let (x, w) = (floats(tape, "x", &[24, 40]), floats(tape, "w", &[32, 40]));
        let (a, b) = (floats(tape, "a", &[4, 40]), floats(tape, "b", &[32, 4]));
        let low = &x.matmul(&a.t()).matmul(&b.t()) * 2.0;
        tape.output("y", &(&x.matmul(&w.t()) + &low));
    })
}

#[test]
fn a_graph_reads_as_the_chapter_shows_it() {
    let made = graph("norm", |tape| {
        let length = tape.symbol("T", Facts::range(1, 4096));
        let x = tape.input("x", Dtype::F32, [length, 64.into()]);
        let w = floats(tape, "w", &[64]);
        tape.within("norm", || {
            let root = (&(&x * &x).mean(1) + 1e-5).sqrt();
            tape.output("y", &(&(&x / &root) * &w));
        });
    });
    shows("text", &format!("{made}\n"));
}

#[test]
fn few_launches_are_left_of_what_belongs_together() {
    let mut text = String::from("                 one by one   fused\n");
    for (name, graph) in [("softmax", softmax()), ("RMSNorm", norm()), ("LoRA pair", pair())] {
        let [apart, fused] = launches(&graph);
        _ = writeln!(text, "{name:<12}{apart:>15}{fused:>8}");
    }
    shows("launches", &text);
    shows("softmax", &format!("{}\n", softmax()));
    shows("softmax-plan", &plan(&softmax()));
    shows("pair-plan", &plan(&pair()));
}

/// A frozen layer beneath a trained one, with the gradients that differentiation writes for both.
fn trained() -> Graph {
    let mut made = graph("trained", |tape| {
        let (x, w, a) =
            (floats(tape, "x", &[2, 4]), floats(tape, "frozen", &[4, 4]), floats(tape, "a", &[4, 4]));
        let y = tape.within("model", || &x.matmul(&w) + &x.matmul(&a));
        tape.output("loss", &tape.within("loss", || (&y * &y).total()));
    });
    let loss = made.outputs()[0].1;
    let inputs: Vec<Id> = made.inputs().map(|(_, id)| id).collect();
    let gradients = grad::differentiate(&mut made, loss, &inputs).expect("it has gradients");
    made.output("grad.a", gradients[2]);
    made
}

#[test]
fn the_gradient_of_a_frozen_weight_is_taken_out() {
    shows("dead", &format!("{}\n", trained()));
    shows("alive", &format!("{}\n", Solution.prune(&trained()).expect("a sound graph")));
}

/// The golden Llama's sizes: three layers, hidden 128, adapters of rank 8 at all seven projections.
fn llama() -> Spec {
    let config = Config {
        vocab: 512,
        hidden: 128,
        intermediate: 352,
        layers: 3,
        heads: 4,
        key_heads: 2,
        head_dim: 32,
        positions: 4096,
        norm_eps: 1e-5,
        rope: Rope { theta: 10_000.0, scaling: Scaling::None },
        tied: false,
        quantized: true,
        classifier: None,
        images: None,
    };
    let nf4 = Storage::Nf4 { dtype: Dtype::F32, block_size: 64, nested: Some(nf4::NESTED_BLOCK) };
    let storage = |quantizable: bool| if quantizable { nf4 } else { Storage::Dense(Dtype::F32) };
    let storages =
        config.tensor_specs().into_iter().map(|spec| (spec.name, storage(spec.quantizable))).collect();
    let targets = lora::Targets::AllLinear;
    let adapter = lora::Config::new(8, 16.0, targets);
    Spec {
        config,
        storages,
        compute: Dtype::F32,
        adapter: Some(adapter),
        rows: Rows::default(),
        dropout: false,
    }
}

fn step() -> Graph {
    let optimizer = AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
    step_graph(&llama(), &Recipe { optimizer, max_norm: 1.0 }).expect("a sound model")
}

#[test]
fn what_each_level_makes_of_a_whole_step_is_counted() {
    let step = step();
    let needed = step.ancestors(step.outputs().iter().map(|(_, id)| *id));
    let inputs: BTreeSet<Id> = step.inputs().map(|(_, id)| id).collect();
    let is_dead = |id: &Id| !needed.contains(id) && !inputs.contains(id);
    let dead: Vec<Id> = step.ids().filter(is_dead).collect();
    let pruned = Solution.prune(&step).expect("a sound graph");
    let mut text = String::new();
    _ = writeln!(text, "nodes                  {:>6}", step.nodes().len());
    _ = writeln!(text, "needed by no output    {:>6}", dead.len());
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for id in &dead {
        *kinds.entry(step.node(*id).op.name()).or_default() += 1;
    }
    for (kind, count) in kinds {
        _ = writeln!(text, "  {kind:<20} {count:>6}");
    }
    _ = writeln!(text, "left by C.3            {:>6}", pruned.nodes().len());
    shows("step-nodes", &text);
    let mut text = String::new();
    let sizes = BTreeMap::from([("B".into(), 2), ("T".into(), 256)]);
    let plain = Options { flex: false, ..Level::O1.options() };
    let levels = [
        ("-O0", Level::O0.options()),
        ("-O1", Level::O1.options()),
        ("-O1, no flex", plain),
        ("-O2", Level::O2.options()),
    ];
    _ = writeln!(text, "batch 2, length 256    launches   buffers apart   floor      arena (bytes)");
    for (name, options) in levels {
        let compiled = with(&step, &sizes, options);
        let (lives, steps) = (&compiled.lives, compiled.plan().steps.len());
        let (sum, floor) = (without_reuse(lives).bytes, floor(lives));
        _ = writeln!(text, "{name:<20}{steps:>11}{sum:>16}{floor:>12}{:>12}", compiled.arena.bytes);
    }
    shows("step", &text);
    shows("products", &products(&with(&step, &sizes, Level::O2.options())));
}

/// How many products a plan has, and how many questions to a tuner they are.
fn products(compiled: &Compiled) -> String {
    let question = |step: &Step| match step {
        Step::Product(Product { batch, m, n, k, a, b, to, add, .. }) => {
            Some(format!("{batch:?} {m} {n} {k} {:?} {:?} {:?} {add}", a.strides, b.strides, to.strides))
        }
        _ => None,
    };
    let all: Vec<String> = compiled.plan().steps.iter().filter_map(question).collect();
    format!("{} products, {} of them different\n", all.len(), all.iter().collect::<BTreeSet<_>>().len())
}

#[test]
fn buffers_share_bytes_where_their_lives_allow_it() {
    let life = |bytes: usize, from: usize, to: usize| Some(Life { bytes, parts: from..=to });
    let lives = [life(4096, 0, 3), life(1024, 1, 2), life(2048, 2, 3), life(1024, 3, 5), life(4096, 4, 6)];
    let arena = Solution.place(&lives);
    let mut text = String::from("buffer  bytes   parts   place\n");
    for (i, (life, place)) in lives.iter().flatten().zip(&arena.places).enumerate() {
        let (from, to, at) = (life.parts.start(), life.parts.end(), place.expect("it lives"));
        _ = writeln!(text, "{i:>6}{:>7}   {from}..={to}{at:>8}", aligned_bytes(life));
    }
    let (sum, floor) = (without_reuse(&lives).bytes, floor(&lives));
    _ = writeln!(text, "apart {sum}, alive at once {floor}, arena {}", arena.bytes);
    shows("arena", &text);
}

#[test]
fn what_padding_adds_is_counted() {
    let facts = Facts::range(1, 4096);
    let buckets = Solution.buckets(facts);
    let padded =
        |size: i64| *buckets.iter().find(|bucket| **bucket >= size).expect("the last is the largest");
    let real: i64 = (1..=4096).sum();
    let (sum, square): (i64, i64) =
        (1..=4096).map(padded).fold((0, 0), |(sum, square), size| (sum + size, square + size * size));
    let real_square: i64 = (1..=4096).map(|size: i64| size * size).sum();
    let worst = (64..=4096).max_by_key(|size| (padded(*size) - size) * 1_000_000 / size).expect("some");
    let mut text = format!("T in {facts}: {} buckets\n  {buckets:?}\n", buckets.len());
    let share = |real: i64, padded: i64| 100.0 * (1.0 - real as f64 / padded as f64);
    _ = writeln!(
        text,
        "worst from 64 on: {worst} becomes {}, {:.1} % is padding",
        padded(worst),
        share(worst, padded(worst))
    );
    _ = writeln!(text, "all lengths alike: {:.1} % of the rows are padding", share(real, sum));
    _ = writeln!(text, "of the pairs of rows {:.1} %", share(real_square, square));
    shows("padding", &text);
}

/// A projection of a frozen weight with its adapter, as the published notebook's libraries run it.
fn projection(tape: &Tape, name: &str, x: &Tensor) -> Tensor {
    let part = |part: &str| format!("{name}.{part}");
    tape.host(Host::State, "self.compute_dtype = x.dtype", || 0.0);
    let codes = tape.input(&part("codes"), Dtype::U8, [128, 1]);
    let table = tape.input(&part("table"), Dtype::F32, [16]);
    let absmax = tape.input(&part("absmax"), Dtype::F32, [4]);
    let row = Type::new(Dtype::U8, [1, 128]);
    let codes = tape.foreign("Params4bit.t", &[&codes], &row, |values| values[0].clone());
    tape.host(Host::Device, "torch.cuda.set_device(x.device)", || 0.0);
    _ = (codes.pointer(), absmax.pointer());
    tape.host(Host::Object, "ctypes.c_int32(64)", || 64.0);
    let ty = Type::new(Dtype::F32, [16, 16]);
    let zeros = |_: &[Array<f32>]| Array::floats(Dtype::F32, &[16, 16], [0.0; 256]);
    let weight = tape.foreign("cdequantize_blockwise_fp32_nf4", &[&codes, &table, &absmax], &ty, zeros);
    tape.host(Host::Device, "torch.cuda.set_device(before)", || 0.0);
    let [a, b] = [("a", [8, 16]), ("b", [16, 8])].map(|(half, shape)| floats(tape, &part(half), &shape));
    &x.matmul(&weight.t()) + &(&x.matmul(&a.t()).matmul(&b.t()) * 2.0)
}

fn record(program: &dyn Fn(&Tape), examples: &Values<f32>) -> Capture {
    Solution.capture("mlp", program, examples).expect("shapes fit")
}

#[test]
fn the_mlp_of_the_published_notebook_breaks_in_every_projection() {
    let mlp = |tape: &Tape| {
        let x = tape.input("x", Dtype::F32, [tape.symbol("T", Facts::range(1, 4096)), 16.into()]);
        let [gate, up] = ["gate", "up"].map(|name| projection(tape, name, &x));
        let inner = &(&gate * &gate.sigmoid()) * &up;
        tape.output("y", &projection(tape, "down", &inner));
    };
    let breaks = record(&mlp, &Values::new()).breaks;
    let mut text = format!("{} breaks, in each of the three projections:\n", breaks.len());
    for one in &breaks[..breaks.len() / 3] {
        _ = writeln!(text, "  {}", one.what);
    }
    shows("mlp", &text);
}

#[test]
fn a_break_reads_like_an_error_of_a_compiler() {
    let clipped = |name: &str| name.starts_with("gradients are clipped");
    let case = zoo().into_iter().find(|case| clipped(case.name)).expect("the zoo has clipping");
    let Shows::Breaks { program, examples, .. } = case.shows else { panic!("a break") };
    shows("break", &format!("{}\n", record(&program, &examples()).breaks[0]));
}

#[test]
fn each_question_to_a_value_doubles_the_graphs() {
    let mut text = String::from("questions   graphs   breaks each time\n");
    for questions in 1..=5_u32 {
        let program = |tape: &Tape| {
            let mut x = floats(tape, "x", &[questions as usize]);
            for number in 0..questions as usize {
                let asked = x.slice(0, number, number + 1).read().is_some_and(|value| value[0] > 0.0);
                x = if asked { &x * 2.0 } else { &x + &x };
            }
            tape.output("y", &x);
        };
        let sign = |batch: u32, number: u32| if batch >> number & 1 == 1 { 1.0 } else { -1.0 };
        let captured: Vec<Capture> = (0..1 << questions)
            .map(|batch| {
                let x =
                    Array::floats(Dtype::F32, &[questions as usize], (0..questions).map(|n| sign(batch, n)));
                record(&program, &Values::from([("x".to_owned(), x)]))
            })
            .collect();
        let graphs: BTreeSet<String> = captured.iter().map(|one| one.graph.to_string()).collect();
        _ = writeln!(text, "{questions:>9}{:>9}{:>19}", graphs.len(), captured[0].breaks.len());
    }
    shows("guards", &text);
}

#[test]
fn a_mask_becomes_a_program_over_all_scores() {
    let mask = programs::mask("causal", &[], programs::causal).expect("a mask");
    let sized = |heads: usize| Type::new(Dtype::F32, [1, heads, 256, 32]);
    let all = Solution.flex(&mask, &[sized(4), sized(2), sized(2)], &Known::new(), false).expect("a mask");
    shows("mask-one", &format!("{mask}\n"));
    shows("mask-all", &format!("{all}\n"));
    let attended = graph("attended", |tape| {
        let [q, k, v] =
            [("q", 4), ("k", 2), ("v", 2)].map(|(name, heads)| floats(tape, name, &[1, heads, 256, 32]));
        let attention = Attention { scale: 0.125, score: None, mask: Some(mask) };
        tape.output("y", &q.attend(attention, &k, &v, &[]));
    });
    let compiled = compiled(&attended, &BTreeMap::new(), Level::O2);
    assert!(matches!(compiled.plan().steps[..], [Step::Attention { .. }]), "{}", compiled.plan());
}

#[test]
fn an_operation_in_bf16_is_one_in_f32_and_a_rounding() {
    let made = graph("halves", |tape| {
        let [x, y] = ["x", "y"].map(|name| tape.input(name, Dtype::Bf16, [256_usize]));
        tape.output("z", &(&(&x * &y).sigmoid() + &x.like(0.1)));
    });
    assert!(made.nodes().iter().all(|node| !matches!(node.op, Op::Cast)));
    shows("halves", &format!("{made}\n\n{}", plan(&made)));
}

/// Cross entropy of 16,000 entries over hidden states of 512, everything trained.
fn entropy() -> Problem {
    let plain =
        losses::cross_entropy(CrossEntropy::default(), Head::default(), 16_000, false, Reduction::Mean);
    let trains = Trains { hidden: true, weight: true, bias: false };
    let loss = plain.expect("shapes fit");
    Problem {
        loss,
        width: 512,
        vocab: 16_000,
        dtype: Dtype::F32,
        accumulate_dtype: Dtype::F32,
        bias: false,
        trains,
    }
}

/// A chunk's graph as the machine of challenge E compiles it.
fn of_a_chunk(graph: &Graph, sizes: &BTreeMap<Symbol, i64>) -> Compiled {
    compile(&Solution, graph, sizes, loss::run::options()).expect("compiles")
}

#[test]
fn a_chunked_loss_is_four_graphs() {
    let (problem, shows) =
        (entropy(), |name: &str, text: &str| looks_like(&format!("loss/{name}.txt"), text));
    shows("rows", &format!("{}\n", problem.loss.rows));
    shows("whole", &format!("{}\n", problem.loss.whole));
    let seeds = loss::Solution.seeds(&problem).expect("shapes fit");
    shows("seeds", &format!("{}\n", Solution.prune(&seeds).expect("a sound graph")));
    let backward = loss::Solution.backward(&problem).expect("shapes fit");
    let sizes = BTreeMap::from([(ROWS.into(), 256)]);
    shows("plan", &of_a_chunk(&backward, &sizes).plan().to_string());
    let frozen = Problem { trains: Trains { weight: false, ..problem.trains }, ..problem };
    let backward = loss::Solution.backward(&frozen).expect("shapes fit");
    shows("backward", &format!("{}\n", Solution.prune(&backward).expect("a sound graph")));
    shows("frozen-plan", &plan_of(&of_a_chunk(&backward, &sizes)));
}

#[test]
fn a_ratio_of_a_sequence_takes_two_passes_where_the_head_is_trained() {
    let sampled =
        Sampled { sequences: 2, length: 3, vocab: 5, temperature: 1.0, old: true, reference: false };
    let products = |policy: &Policy, weight: bool| {
        let loss = loss::Solution.policy(policy, &sampled).expect("shapes fit");
        let trains = Trains { hidden: true, weight, bias: false };
        let problem = Problem {
            loss,
            width: 4,
            vocab: 5,
            dtype: Dtype::F32,
            accumulate_dtype: Dtype::F32,
            bias: false,
            trains,
        };
        let plan = loss::plan::ChunkPlan::new(&loss::Solution, &problem, &[true; 6], 2).expect("shapes fit");
        plan.graphs.passes.products()
    };
    let clip = Clip::both(0.2);
    let all = [
        ("GRPO", Policy::grpo(0.0, clip)),
        ("BNPO", Policy::bnpo(0.0, clip)),
        ("DAPO", Policy::dapo(0.0, Clip { high: 0.28, ..clip }, 6.0)),
        ("Dr. GRPO", Policy::dr_grpo(0.0, clip, 3.0)),
        ("GSPO", Policy::gspo(0.0, clip)),
    ];
    let line =
        |(name, policy)| format!("{name:<9}{:<13}{}\n", products(&policy, false), products(&policy, true));
    let lines: String = all.map(line).concat();
    looks_like(
        "loss/passes.txt",
        &format!("how often a row's logits are computed\n         frozen head  trained head\n{lines}"),
    );
}
