//! Times candle and burn on the CPU on the step that challenge C is timed on, and the compiled step beside them, in
//! turns.
//!
//! ```sh
//! cargo run --release --manifest-path tests/peers/graph_rust/Cargo.toml [LENGTH [ROUNDS]]
//! ```
//!
//! Forward and backward of a Llama with adapters of rank 8 on all seven projections: 4 layers, hidden 512, 8 heads over
//! 4 key heads, 1408 inside the MLP, 512 tokens in the vocabulary, f32, batch 1. Neither has NF4: their weights are
//! dense and there from the beginning, so that they dequantise nothing. The compiled step is timed twice, on those same
//! dense weights and on NF4 ones, which it dequantises in every pass. On the dense ones all losses and gradients have
//! to agree before anything is timed.

mod burn;
mod candle;
mod drawn;
mod ours;

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use drawn::Drawn;
use kernels::Cpu;

/// What may go wrong: printed, and the end.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (length, rounds) = (number(512)?, number(9)?);
    let drawn = Drawn::new(length)?;
    let (candle, burn) = (candle::Step::new(&drawn)?, burn::Step::new(&drawn)?);
    let device = Cpu::new();
    let mut dense = ours::Step::new(&device, &drawn, false)?;
    let mut nf4 = ours::Step::new(&device, &drawn, true)?;
    nf4.run()?; // compiles
    let outcome = dense.outcome()?;
    agree("candle", &candle.run()?, &outcome)?;
    agree("burn", &burn.run()?, &outcome)?;
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        times[0].push(timed(|| candle.run().map(|_| ()))?);
        times[1].push(timed(|| burn.run().map(|_| ()))?);
        times[2].push(timed(|| dense.run())?);
        times[3].push(timed(|| nf4.run())?);
    }
    println!("4 layers, hidden 512, T = {length}, forward and backward, {rounds} rounds");
    for (name, times) in
        ["candle 0.11, dense", "burn 0.22, dense", "compiled, dense", "compiled, NF4"].iter().zip(&mut times)
    {
        let median = median(times);
        println!("{name:20} median {median:7.1} ms, best {:7.1} ms", times[0]);
    }
    Ok(())
}

/// A loss, and gradients by name.
type Outcome = (f32, BTreeMap<String, Vec<f32>>);

/// Refuses where a library does not compute what the compiled step does.
fn agree(library: &str, (loss, gradients): &Outcome, (got, dense): &Outcome) -> Result<()> {
    let near = |a: f32, b: f32, scale: f32| (a - b).abs() <= 1e-4 * scale;
    if !near(*loss, *got, loss.abs()) {
        return Err(format!("the losses differ: {library} {loss}, compiled {got}").into());
    }
    for (name, want) in gradients {
        let got = dense.get(name).ok_or_else(|| format!("missing gradient of {name}"))?;
        let largest = want.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        if let Some(i) = (0..want.len()).find(|i| !near(want[*i], got[*i], largest)) {
            return Err(format!("{name}[{i}] differs: {library} {}, compiled {}", want[i], got[i]).into());
        }
    }
    println!("{library}: the loss, {loss}, and {} gradients agree", gradients.len());
    Ok(())
}

/// Milliseconds.
fn timed(body: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    body()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
