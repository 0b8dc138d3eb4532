//! Times a stack of QLoRA Llama layers, forward and backward, on a device: what `c_layer.py`, the peers' script, times
//! with torch.
//!
//!     layers DEVICE 1b|8b LENGTH[,LENGTH..] [f32] [tuned] [steps]
//!
//! The stack is 4 layers of a Llama-3.2-1B's shape, or 2 of a Llama-3.1-8B's: NF4 with quantised scales, an adapter of
//! rank 16 beside all seven projections, batch 1, bf16 unless `f32` is asked for. The loss is the mean square of what
//! comes out; gradients are those of the input and of the adapter. `tuned` tries the library's algorithms of each
//! product first; `steps` lists what each kind of step takes, one at a time, with the wait after each (about 10 us on
//! a card).

extern crate solutions as _; // what `Solution` calls

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use challenges::graph::Solution;
use challenges::nf4::DEQUANTIZER;
use compiler::compile::Level;
use compiler::session::{DeviceTensor, Io, Program, Session, Settings};
use kernels::plan::Step;
use kernels::{Device, Which};
use reference::grad;
use reference::graph::{Builder, Dtype, Graph, Id, Type};
use reference::llama::{Config, Model, Rope, Rows, Scaling, Spec, Storage, rope};
use reference::lora::{self, Modules, Targets};
use reference::nf4::{CODE2, NESTED_BLOCK, NF4};

type Failure = Box<dyn std::error::Error>;
type Tensors = BTreeMap<String, DeviceTensor>;

/// Runs that are timed.
const RUNS: usize = 20;

/// Lines of the list of steps.
const LINES: usize = 40;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, shape, lengths, flags @ ..] = &arguments[..] else {
        return Err("layers: expected a device, 1b or 8b, and lengths".into());
    };
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    let device = device.parse::<Which>()?.open(|reason| eprintln!("on the CPU: {reason}"))?;
    let compute = if has("f32") { Dtype::F32 } else { Dtype::Bf16 };
    let config = config(shape).ok_or("layers: expected 1b or 8b")?;
    let graph = stack(&config, compute)?;
    let level = if has("tuned") { Level::O3 } else { Level::O2 };
    let settings = Settings { level, exact: true, ..Settings::default() };
    let mut session = Session::new(&Solution, &*device, &DEQUANTIZER, settings);
    let program = session.load(&graph)?;
    println!("{shape} on {}, {compute:?}", device.identity());
    for length in lengths.split(',') {
        let given = given(&*device, &graph, &config, length.parse()?)?;
        time(&mut session, program, &given, length)?;
        if has("steps") {
            list(&mut session, program, &given)?;
        }
    }
    Ok(())
}

/// The sizes of a stack.
fn config(shape: &str) -> Option<Config> {
    let (layers, hidden, head_dim, intermediate) = match shape {
        "1b" => (4, 2048, 64, 8192),
        "8b" => (2, 4096, 128, 14336),
        _ => return None,
    };
    let rope = Rope { theta: 5e5, scaling: Scaling::None };
    Some(Config {
        vocab: 256, // not used
        hidden,
        intermediate,
        layers,
        heads: 32,
        key_heads: 8,
        head_dim,
        positions: 1 << 16,
        norm_eps: 1e-5,
        rope,
        tied: true,
        quantized: true,
        classifier: None,
        images: None,
    })
}

/// The layers, their loss, and the gradients of their input and of the adapter.
fn stack(config: &Config, compute: Dtype) -> Result<Graph, Failure> {
    let storage = Storage::Nf4 { dtype: compute, block_size: 64, nested: Some(NESTED_BLOCK) };
    let quantised = config.tensor_specs().into_iter().filter(|spec| spec.quantizable);
    let adapter = lora::Config {
        rank: 16,
        alpha: 32.0,
        rank_stabilized: false,
        dropout: 0.0,
        targets: Targets::AllLinear,
        modules: Modules::default(),
        base: None,
    };
    let spec = Spec {
        config: config.clone(),
        storages: quantised.map(|spec| (spec.name, storage)).collect(),
        compute,
        adapter: Some(adapter),
        rows: Rows::default(),
        dropout: false,
    };
    let builder = Builder::new("stack");
    let tape = builder.tape();
    let model = Model::new(&spec, tape);
    let x = tape.input("x", compute, [1.into(), model.batch()[1].clone(), config.hidden.into()]);
    let y = (0..config.layers).fold(x, |x, layer| model.layer(layer, &x)).cast(Dtype::F32);
    tape.output("loss", &(&y * &y).mean(2).mean(1).reshape([] as [i64; 0]));
    drop(model);
    let mut graph = builder.finish()?;
    let loss = graph.outputs()[0].1;
    let trained = |name: &str| name == "x" || name.contains("lora");
    let inputs = graph.inputs().filter(|(name, _)| trained(name));
    let wrt: Vec<(String, Id)> = inputs.map(|(name, id)| (name.to_owned(), id)).collect();
    let ids: Vec<Id> = wrt.iter().map(|(_, id)| *id).collect();
    let gradients = grad::differentiate(&mut graph, loss, &ids)?;
    for ((name, _), id) in wrt.iter().zip(gradients) {
        graph.output(format!("grad.{name}"), id);
    }
    Ok(graph)
}

/// Every input, drawn.
fn given(device: &dyn Device, graph: &Graph, config: &Config, length: usize) -> Result<Tensors, Failure> {
    let mut state = 88_172_645_463_325_252_u64;
    let tables = rope::values::<f32>(config, length);
    let mut tensors = Tensors::new();
    for (name, id) in graph.inputs() {
        let ty = graph.ty(id);
        let size = |dim: &reference::graph::Dim| dim.as_fixed().map_or(length, |size| size as usize);
        let shape: Vec<usize> = ty.shape.iter().map(size).collect();
        let bytes = match tables.get(name) {
            Some(table) => table.to_memory(),
            None => drawn(name, ty, shape.iter().product(), &mut state),
        };
        tensors.insert(name.to_owned(), DeviceTensor::new(device, &shape, &bytes)?);
    }
    Ok(tensors)
}

fn drawn(name: &str, ty: &Type, count: usize, state: &mut u64) -> Vec<u8> {
    let mut next = || {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    };
    if ty.dtype == Dtype::U8 {
        return (0..count).map(|_| next() as u8).collect();
    }
    let numbers = match name.rsplit('.').next() {
        Some("nested_quant_map") => CODE2.to_vec(),
        Some("quant_map") => NF4.to_vec(),
        Some("nested_absmax") => vec![0.02; count],
        Some("nested_offset") => vec![0.03; count],
        _ if name.ends_with("norm.weight") => vec![1.0; count],
        _ => {
            let most = if name == "x" { 1.7 } else { 0.017 };
            (0..count).map(|_| ((next() >> 40) as f32 / (1 << 23) as f32 - 1.0) * most).collect()
        }
    };
    match ty.dtype {
        Dtype::Bf16 => numbers.iter().flat_map(|x| half::bf16::from_f32(*x).to_ne_bytes()).collect(),
        _ => numbers.iter().flat_map(|x| x.to_ne_bytes()).collect(),
    }
}

/// Runs and times a stack: the median of runs that are waited for.
fn time(session: &mut Session<'_>, program: Program, given: &Tensors, length: &str) -> Result<(), Failure> {
    let device = session.device();
    let begin = Instant::now();
    let loss = session.run(program, given)?.array("loss")?.wide()[0];
    let first = begin.elapsed();
    session.run(program, given)?; // what a card captures
    let mut times = Vec::new();
    for _ in 0..RUNS {
        device.sync()?;
        let begin = Instant::now();
        session.run(program, given)?;
        device.sync()?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    let before = device.counts().launches;
    session.run(program, given)?;
    let launches = device.counts().launches - before;
    times.sort_by(f64::total_cmp);
    let arena = session.counters().arena_bytes >> 20;
    println!(
        "T={length}: median {:.3} ms, least {:.3}; {launches} launches, first run {:.2} s, \
         arena {arena} MiB, loss {loss:.6}",
        times[RUNS / 2],
        times[0],
        first.as_secs_f64()
    );
    Ok(())
}

/// What each kind of step takes, the longest first.
fn list(session: &mut Session<'_>, program: Program, given: &Tensors) -> Result<(), Failure> {
    let plan = session.compiled(program, &Io::from(given))?.plan().clone();
    let mut all: BTreeMap<String, (usize, Duration)> = BTreeMap::new();
    let mut last = None;
    let mut watch = |step: usize, clock: Duration| {
        if let Some(last) = last {
            let (count, time) = all.entry(kind(&plan.steps[step])).or_default();
            (*count, *time) = (*count + 1, *time + clock.saturating_sub(last));
        }
        last = Some(clock);
    };
    session.watched(program, given, Some(&mut watch))?;
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(_, (_, time))| std::cmp::Reverse(*time));
    for (kind, (count, time)) in all.iter().take(LINES) {
        println!("  {:9.1} us  {count:4} x {kind}", time.as_secs_f64() * 1e6);
    }
    Ok(())
}

/// A step without the layer that it belongs to.
fn kind(step: &Step) -> String {
    match step {
        Step::Pass { program, space, .. } => format!("{} over {space:?}", program.name),
        Step::Product(product) => format!("product {}x{}x{}", product.m, product.n, product.k),
        other => other.name().rsplit(": ").next().unwrap_or_default().to_owned(),
    }
}
