//! Times candle on the CPU on the step that challenge C is timed on, and the compiled step beside it, in turns.
//!
//! ```sh
//! cargo run --release --manifest-path tests/peers/graph_candle/Cargo.toml [LENGTH [ROUNDS]]
//! ```
//!
//! Forward and backward of a Llama with adapters of rank 8 on all seven projections: 4 layers, hidden 512, 8 heads over 4
//! key heads, 1408 inside the MLP, 512 tokens in the vocabulary, f32, batch 1. candle has no NF4: its weights are dense
//! and there from the beginning, so that it dequantises nothing. The compiled step is timed twice, on those same dense
//! weights and on NF4 ones, which it dequantises in every pass. On the dense ones both losses and all gradients have to
//! agree before anything is timed.

mod drawn;
mod eager;
mod ours;

use std::error::Error;
use std::time::Instant;

use drawn::Drawn;

/// What may go wrong: printed, and the end.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (length, rounds) = (number(512)?, number(9)?);
    let drawn = Drawn::new(length)?;
    let eager = eager::Step::new(&drawn)?;
    let mut dense = ours::Step::new(&drawn, false)?;
    let mut nf4 = ours::Step::new(&drawn, true)?;
    agree(&drawn, &eager, &mut dense)?;
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        times[0].push(timed(|| eager.run().map(|_| ()))?);
        times[1].push(timed(|| dense.run())?);
        times[2].push(timed(|| nf4.run())?);
    }
    println!("4 layers, hidden 512, T = {length}, forward and backward, {rounds} rounds");
    let candle = median(&mut times[0]);
    for (name, times) in ["candle 0.11, dense", "compiled, dense", "compiled, NF4"].iter().zip(&mut times) {
        let median = median(times);
        println!("{name:20} median {median:7.1} ms, best {:7.1} ms, {:.2}x", times[0], candle / median);
    }
    Ok(())
}

/// Refuses where the two do not compute the same.
fn agree(drawn: &Drawn, eager: &eager::Step, dense: &mut ours::Step) -> Result<()> {
    let (loss, gradients) = eager.run()?;
    dense.run()?;
    let near = |a: f32, b: f32, scale: f32| (a - b).abs() <= 1e-4 * scale;
    let got = dense.output("loss")?[0];
    if !near(loss, got, loss.abs()) {
        return Err(format!("the losses differ: candle {loss}, compiled {got}").into());
    }
    for (name, want) in &gradients {
        let got = dense.output(&format!("grad.{name}"))?;
        let largest = want.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        if let Some(i) = (0..want.len()).find(|i| !near(want[*i], got[*i], largest)) {
            return Err(format!("{name}[{i}] differs: candle {}, compiled {}", want[i], got[i]).into());
        }
    }
    println!("one loss, {loss}, and {} gradients of {} agree", gradients.len(), drawn.adapter.len());
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
