//! `cargo dev figures` draws what is computed: figures of challenges B, C, D and E; `cargo dev check` holds the files
//! to it.
//!
//! Each is the same on every machine: graphs and plans are, losses come from a file of `book/src/results`, and what was
//! measured of challenge E from a scorecard there. A figure that the scorecard lacks the numbers of is not drawn, and
//! `check` says so. What else was timed is no file; a page takes it from a scorecard (`{{#plot}}`).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use challenges::graph::Solution;
use compiler::compile::{Compiled, Level, Options, compile};
use figures::curves::{Held, Runs, Truth, losses};
use figures::graph::{Side, draw, shown};
use figures::lives::lives;
use figures::memory::{Buffer, Memory, staircase};
use reference::graph::{Builder, Dtype, Graph, Op, Symbol, Tape, Tensor};
use reference::llama::train::{Recipe, step_graph};
use reference::llama::{Config, Rope, Rows, Scaling, Spec, Storage};
use reference::optim::AdamW;
use reference::{lora, nf4};

use crate::figure::Drawn;
use crate::{Error, Fault, attention, chat, classify, gguf, ranks, results, vision};

/// The losses that are kept.
const LOSSES: &str = "results/qlora-losses.csv";
const TRAINER_LOSSES: &str = "results/trainer-losses.csv";

/// Where the time of attention's back ends goes.
const ATTENTION_TIMES: &str = "results/attention-cpu-parts.csv";

/// What the classifier of challenge D answers as it learns.
const CONFUSIONS: &str = "results/classifier-confusions.csv";

/// The scorecard whose numbers are drawn.
const CARD: &str = "xeon-2-cores";

/// The figures of challenge E, and what the grader calls them.
const OF_LOSS: [(&str, &str); 3] =
    [("loss-staircase", "chunks"), ("loss-sizes", "sizes"), ("loss-training", "training")];

/// Draws all of them, over whatever is there.
///
/// # Errors
/// Where a figure cannot be drawn, or its file not be written.
pub fn write(root: &Path) -> Result<(), Error> {
    for (name, svg) in figures(root)? {
        let path = root.join("src/figures").join(format!("{name}.svg"));
        fs::write(&path, svg).map_err(|source| Error::File { path: path.clone(), source })?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Refuses a figure that is not what is computed.
///
/// # Errors
/// The figures that are stale, or what keeps one from being drawn.
pub fn check(root: &Path) -> Result<(), Error> {
    let drawn = figures(root)?;
    let mut stale: Vec<Fault> = OF_LOSS.into_iter().filter_map(|figure| lacking(&drawn, figure)).collect();
    for (name, svg) in drawn {
        let at = format!("book/src/figures/{name}.svg");
        let path = root.join("src/figures").join(format!("{name}.svg"));
        let kept = fs::read_to_string(path).unwrap_or_default();
        if kept.replace("\r\n", "\n") == svg {
            println!("{name}: the figure is what is computed");
        } else {
            stale.push(Fault { at, what: "is not what is computed: `cargo dev figures` draws it".into() });
        }
    }
    if stale.is_empty() { Ok(()) } else { Err(Error::Faults(stale)) }
}

/// Every computed figure: its name and its text.
///
/// # Errors
/// What keeps one from being drawn.
pub fn figures(root: &Path) -> Result<Vec<(&'static str, String)>, Error> {
    let failed = |what: String| Error::Faults(vec![Fault { at: "book/dev/drawn.rs".into(), what }]);
    let losses = crate::read(&root.join("src").join(LOSSES))?;
    let trainer = crate::read(&root.join("src").join(TRAINER_LOSSES))?;
    let times = crate::read(&root.join("src").join(ATTENTION_TIMES))?;
    let confusions = crate::read(&root.join("src").join(CONFUSIONS))?;
    let all = [
        fusion(),
        lives_of_a_layer(),
        arena(),
        runs(&losses),
        trainer_runs(&trainer),
        chat::prompt(),
        chat::difference(),
        chat::stream(),
        Ok(attention::features()),
        Ok(attention::masks()),
        attention::times(&times),
        classify::learning(&confusions),
        gguf::file(),
        vision::patches(),
        vision::batch(),
        ranks::schedules(),
        ranks::bytes(),
    ];
    let measured = of_loss(root).map_err(failed)?.into_iter().map(Ok);
    all.into_iter().chain(measured).map(|drawn| drawn.map(captioned).map_err(failed)).collect()
}

/// Those of challenge E that the kept scorecard has the numbers of.
fn of_loss(root: &Path) -> Result<Vec<Drawn>, String> {
    let reports = results::read(&root.join("src/results"))?;
    let card = reports.iter().find(|report| report.name == CARD);
    let known = card.and_then(|report| results::challenge(report, "loss")).map(figures::all);
    let known = known.unwrap_or_default();
    let one = |(name, called)| {
        let figure = known.iter().find(|figure| figure.name == called)?;
        Some((name, figure.caption, figure.svg.clone()))
    };
    Ok(OF_LOSS.into_iter().filter_map(one).collect())
}

/// That a figure was not drawn.
fn lacking(drawn: &[(&'static str, String)], (name, called): (&str, &str)) -> Option<Fault> {
    let at = format!("book/src/results/{CARD}.json");
    let what = format!(
        "lacks what `{name}` is drawn from: `cargo grader score loss` measures it (figure `{called}`)"
    );
    drawn.iter().all(|(known, _)| *known != name).then_some(Fault { at, what })
}

/// The figure with its caption for a title: the heading is drawn.
fn captioned((name, caption, svg): Drawn) -> (&'static str, String) {
    let (begin, rest) = svg.split_once("<title>").unwrap_or((&svg, ""));
    let (_, end) = rest.split_once("</title>").unwrap_or(("", rest));
    (name, format!("{begin}<title>{caption}</title>{end}"))
}

// ---- a part of a layer

/// A norm and the MLP behind it, over weights in f32.
fn part() -> Result<Graph, String> {
    let builder = Builder::new("norm and MLP");
    let tape = builder.tape();
    let x = floats(tape, "x", &[256, 128]);
    let root = (&(&x * &x).mean(1) + 1e-5).sqrt();
    let normed = &(&x / &root) * &floats(tape, "norm", &[128]);
    let project =
        |x: &Tensor, name: &str, out: usize, inner: usize| x.matmul(&floats(tape, name, &[out, inner]).t());
    let (gate, up) = (project(&normed, "gate", 352, 128), project(&normed, "up", 352, 128));
    let inner = &(&gate * &gate.sigmoid()) * &up;
    tape.output("y", &(&x + &project(&inner, "down", 128, 352)));
    builder.finish().map_err(|error| error.to_string())
}

fn floats(tape: &Tape, name: &str, shape: &[usize]) -> Tensor {
    tape.input(name, Dtype::F32, shape.iter().copied())
}

fn compiled(graph: &Graph, sizes: &BTreeMap<Symbol, i64>, options: Options) -> Result<Compiled, String> {
    compile(&Solution, graph, sizes, options).map_err(|error| error.to_string())
}

/// One by one and fused, each drawn from the text of the graph that was compiled.
fn fusion() -> Result<Drawn, String> {
    let [apart, fused] =
        [Level::O1, Level::O2].map(|level| compiled(&part()?, &BTreeMap::new(), level.options()));
    let (apart, fused) = (apart?, fused?);
    let count = |compiled: &Compiled| compiled.plan().steps.len();
    let texts = [&apart, &fused].map(|compiled| compiled.graph.to_string());
    let heads =
        [format!("one by one: {} launches", count(&apart)), format!("fused: {} launches", count(&fused))];
    let nodes = [&apart.nodes, &fused.nodes];
    let sides = [0, 1].map(|i| Side { heading: &heads[i], text: &texts[i], launches: nodes[i] });
    let svg = draw("A norm and the MLP behind it", &sides);
    let caption = "A frame is a launch. A line within a frame is a register, one between frames a buffer that is written \
                   and read again; views and constants are no work and are left out. The products stay.";
    Ok(("graph-fusion", caption, svg.map_err(|error| error.to_string())?))
}

fn lives_of_a_layer() -> Result<Drawn, String> {
    let compiled = compiled(&part()?, &BTreeMap::new(), Level::O2.options())?;
    let svg = lives("The fused launches and their buffers", &launches(&compiled), &buffers(&compiled));
    let caption = "When each buffer lives. Two that share no row may share bytes; the last row is what the caller gets.";
    Ok(("graph-lives", caption, svg))
}

/// What each launch does, in the graph's words.
fn launches(compiled: &Compiled) -> Vec<String> {
    let graph = &compiled.graph;
    let words = |nodes: &std::collections::BTreeSet<_>| {
        let nodes = nodes.iter().filter(|id| shown(graph, **id));
        let words: Vec<&str> = nodes.map(|id| word(&graph.node(*id).op)).collect();
        words.join(" ")
    };
    compiled.nodes.iter().map(words).collect()
}

fn word(op: &Op) -> &'static str {
    if matches!(op, Op::Matmul) { "product" } else { op.name() }
}

/// The buffers of a plan, as they are drawn.
pub fn buffers(compiled: &Compiled) -> Vec<Buffer> {
    let placed = compiled.lives.iter().zip(&compiled.arena.places);
    let buffer = |(life, place): (&Option<compiler::ir::arena::Life>, &Option<usize>)| {
        let life = life.as_ref()?;
        let (first, last) = (*life.parts.start(), *life.parts.end());
        Some(Buffer { place: (*place)? as f64, bytes: life.bytes as f64, first, last })
    };
    placed.filter_map(buffer).collect()
}

// ---- a whole step

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

fn arena() -> Result<Drawn, String> {
    let optimizer = AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
    let step =
        step_graph(&llama(), &Recipe { optimizer, max_norm: 1.0 }).map_err(|error| error.to_string())?;
    let sizes = BTreeMap::from([("B".into(), 2), ("T".into(), 256)]);
    let fused = compiled(&step, &sizes, Level::O2.options())?;
    let plain = compiled(&step, &sizes, Options { flex: false, ..Level::O1.options() })?;
    let memory = Memory {
        buffers: buffers(&fused),
        launches: fused.plan().steps.len(),
        arena: fused.arena.bytes as f64,
        without: Some((plain.arena.bytes as f64, "op by op".into())),
    };
    let caption = "The arena of the step of question 8, fused. Above, each buffer where it lies and while it lives: \
                   what the forward pass keeps for the backward pass is the mountain. Below, the bytes alive at once.";
    Ok(("graph-memory", caption, staircase(&memory, "The arena over one step")))
}

/// A column of kept losses: a line a step, after lines that begin with `#` and one of names.
fn column(file: &str, text: &str, name: &str) -> Result<Vec<f64>, String> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let at = names.iter().position(|known| *known == name);
    let at = at.ok_or_else(|| format!("{file} has no column `{name}`"))?;
    let cell = |line: &str| {
        let cell = line.split(',').nth(at).ok_or_else(|| format!("{file}: a row is too short"))?;
        cell.parse().map_err(|error| format!("{file}: {error}"))
    };
    lines.map(cell).collect()
}

/// The runs of the trainer and of TRL.
fn trainer_runs(text: &str) -> Result<Drawn, String> {
    let column = |name: &str| column(TRAINER_LOSSES, text, name);
    let truth = Truth { losses: column("truth")?, third: column("trl")?, name: "TRL, f32".into() };
    let (own, other) = (column("trainer")?, column("trl")?);
    let runs = Runs { own, called: "trainer".into(), other, name: "TRL".into(), held: Held::Truth(truth) };
    let caption = "60 steps of the published recipe on the tiny Llama, by `cargo trainer train` and by TRL's SFTTrainer. \
                   Beneath, how far each run in f32 departs from TRL's in f64.";
    Ok(("trainer-losses", caption, losses(&runs, "The loss, by this trainer and by TRL")))
}

/// The kept losses of challenge C's run.
fn runs(text: &str) -> Result<Drawn, String> {
    let column = |name: &str| column(LOSSES, text, name);
    let truth = Truth {
        losses: column("truth")?,
        third: column("libraries")?,
        name: "the original libraries".into(),
    };
    let (own, other) = (column("compiled")?, column("interpreted")?);
    let (called, name) = ("compiled".into(), "interpreted".into());
    let runs = Runs { own, called, other, name, held: Held::Truth(truth) };
    let caption = "The golden QLoRA run of 40 steps. The compiled losses lie on those of the interpreter; beneath, how far \
                   each run in f32 departs from the same run in f64, that of the original libraries too.";
    Ok(("graph-losses", caption, losses(&runs, "The loss, compiled and interpreted")))
}
