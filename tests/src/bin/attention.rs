//! Times attention alone on a device, forward and with its gradients: what `c_attention.py`, the peers' script, times
//! with torch.
//!
//!     attention DEVICE LENGTH[,LENGTH..]
//!
//! bf16, batch 1, 32 query heads over 8 key heads of 128. The masks are causal, a sliding window of 1024, and packed
//! documents of 64 to 1023 tokens.

extern crate solutions as _; // what `Solution` calls

use std::collections::BTreeMap;
use std::time::Instant;

use challenges::graph::Solution;
use challenges::nf4::DEQUANTIZER;
use compiler::session::{DeviceTensor, Session, Settings};
use kernels::{Device, Which};
use reference::grad;
use reference::graph::programs::{ScoreEntry, and, causal, document, mask, sliding_window};
use reference::graph::{Attention, Builder, Dim, Dtype, Graph, Id, Tensor, Type};

type Failure = Box<dyn std::error::Error>;

const HEADS: usize = 32;
const KEY_HEADS: usize = 8;
const DEPTH: usize = 128;

/// Runs that are timed.
const RUNS: usize = 20;

/// What a query may see.
#[derive(Clone, Copy, Debug)]
enum Mask {
    Causal,
    Window,
    Documents,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, lengths] = &arguments[..] else {
        return Err("attention: expected a device and lengths".into());
    };
    let device = device.parse::<Which>()?.open(|reason| eprintln!("on the CPU: {reason}"))?;
    println!("{}", device.identity());
    for length in lengths.split(',') {
        let length: usize = length.parse()?;
        for mask in [Mask::Causal, Mask::Window, Mask::Documents] {
            let documents = documents(length);
            let forward = time(&*device, &graph(mask, length, false)?, &documents)?;
            let both = time(&*device, &graph(mask, length, true)?, &documents)?;
            let products = 4.0 * (HEADS * DEPTH) as f64 * pairs(mask, &documents) as f64 / 1e9;
            println!(
                "T={length} {mask:?}: forward {forward:.3} ms, {:.0} TFLOP/s; \
                 with gradients {both:.3} ms, {:.0} TFLOP/s",
                products / forward,
                3.5 * products / both
            );
        }
    }
    Ok(())
}

/// The document of each token.
fn documents(length: usize) -> Vec<i32> {
    let (mut all, mut state) = (Vec::new(), 1_u64);
    for document in 0.. {
        if all.len() >= length {
            break;
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let tokens = 64 + (state >> 33) as usize % 960;
        all.extend(std::iter::repeat_n(document, tokens.min(length - all.len())));
    }
    all
}

/// How many keys all queries of a head see.
fn pairs(mask: Mask, documents: &[i32]) -> usize {
    let of = |query: usize| match mask {
        Mask::Causal => query + 1,
        Mask::Window => (query + 1).min(1024),
        Mask::Documents => {
            documents[..=query].iter().rev().take_while(|other| **other == documents[query]).count()
        }
    };
    (0..documents.len()).map(of).sum()
}

/// An attention, or one with its gradients.
fn graph(of: Mask, length: usize, is_grad: bool) -> Result<Graph, Failure> {
    let extras = [Type::new(Dtype::I32, [length])];
    let (extra_types, has_documents) = match of {
        Mask::Documents => (&extras[..], true),
        Mask::Causal | Mask::Window => (&[][..], false),
    };
    let body = |at: &ScoreEntry| match of {
        Mask::Causal => causal(at),
        Mask::Window => and(&causal(at), &sliding_window(at, 1024)),
        Mask::Documents => and(&causal(at), &document(at, &at.extras[0])),
    };
    let allowed = mask("mask", extra_types, body)?;
    let attention = Attention { mask: Some(allowed), ..Attention::plain((DEPTH as f64).sqrt().recip()) };
    let builder = Builder::new("attention");
    let tape = builder.tape();
    let input = |name: &str, heads: usize| tape.input(name, Dtype::Bf16, [1, heads, length, DEPTH]);
    let (q, k, v) = (input("q", HEADS), input("k", KEY_HEADS), input("v", KEY_HEADS));
    _ = input("g", HEADS); // the gradient of the output
    let documents = has_documents.then(|| tape.input("documents", Dtype::I32, [length]));
    let extras: Vec<&Tensor> = documents.iter().collect();
    tape.output("o", &q.attend(attention, &k, &v, &extras));
    let mut graph = builder.finish()?;
    if is_grad {
        let output = graph.outputs()[0].1;
        let ids: BTreeMap<String, Id> = graph.inputs().map(|(name, id)| (name.to_owned(), id)).collect();
        let wrt = ["q", "k", "v"].map(|name| ids[name]);
        let gradients = grad::pull_back(&mut graph, output, ids["g"], &wrt)?;
        for (name, id) in ["q", "k", "v"].into_iter().zip(gradients) {
            graph.output(format!("grad.{name}"), id);
        }
    }
    Ok(graph)
}

/// Milliseconds of a run, over runs that are queued one after the other.
fn time(device: &dyn Device, graph: &Graph, documents: &[i32]) -> Result<f64, Failure> {
    let mut session = Session::new(&Solution, device, &DEQUANTIZER, Settings::default());
    let program = session.load(graph)?;
    let mut tensors = BTreeMap::new();
    let mut state = 1_u32;
    for (name, id) in graph.inputs() {
        let shape: Vec<usize> =
            graph.ty(id).shape.iter().filter_map(Dim::as_fixed).map(|size| size as usize).collect();
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            half::bf16::from_f32((state >> 8) as f32 / (1 << 22) as f32 - 2.0).to_ne_bytes()
        };
        let bytes: Vec<u8> = if name == "documents" {
            documents.iter().flat_map(|document| document.to_ne_bytes()).collect()
        } else {
            (0..shape.iter().product::<usize>()).flat_map(|_| next()).collect()
        };
        tensors.insert(name.to_owned(), DeviceTensor::new(device, &shape, &bytes)?);
    }
    for _ in 0..3 {
        session.run(program, &tensors)?;
    }
    device.sync()?;
    let begin = Instant::now();
    for _ in 0..RUNS {
        session.run(program, &tensors)?;
    }
    device.sync()?;
    Ok(begin.elapsed().as_secs_f64() * 1e3 / RUNS as f64)
}
