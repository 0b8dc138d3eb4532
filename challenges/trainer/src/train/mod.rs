//! `train`: a checkpoint and a data set in, an adapter out.
//!
//! ```text
//! config -> rows -> batches -> Engine -> metrics.jsonl, checkpoints, adapter
//! ```

pub mod batches;
pub mod config;
pub mod data;
mod example;
mod plan;
mod save;

use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use challenges::nf4::DEQUANTIZER;
use challenges::train::{Engine, Logged, Machine, chunked};
use challenges::weights;
use clap::Args;
use kernels::Cpu;
use kernels::bytes::Peak;
use reference::graph::interpret::Values;
use reference::llama::{self, Llama, Spec};
use reference::lora::{self, Adapter};
use reference::optim::Schedule;
use serde_json::{Value as Json, json};

use crate::cli::{Failure, print};
use batches::{Batches, microbatch};
use data::{Dataset, Row};
use save::{Output, Saved};

pub use config::Config;

/// The flags of `train`.
#[derive(Debug, Args)]
pub(crate) struct Train {
    /// The config, a TOML file
    #[arg(required_unless_present = "example")]
    config: Option<PathBuf>,
    /// Sets a key of the config
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Writes a small model, data and a config with every key and what it means into a new folder
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    example: Option<PathBuf>,
    /// Says what memory the run will take and the longest context that fits, and runs nothing
    #[arg(long)]
    plan: bool,
    /// The memory that --plan has, in GiB
    #[arg(long, value_name = "GIB", default_value_t = 24.0, requires = "plan")]
    memory: f64,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("expected KEY=VALUE, found {text:?}"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// Runs `train`.
pub(crate) fn run(train: &Train) -> Result<u8, Failure> {
    if let Some(folder) = &train.example {
        return example::write(folder);
    }
    let path = train.config.as_ref().ok_or_else(|| Failure::usage("expected a config"))?;
    let peak = Peak::begin();
    let config = Config::read(path, &train.set)?;
    if train.plan {
        return plan::run(&config, (train.memory.max(0.0) * (1_u64 << 30) as f64) as usize);
    }
    let model = Llama::open(&config.model_name_or_path).map_err(Failure::usage)?;
    let data = config.rows(model.config.vocab, model.config.positions)?;
    let adapter = adapter(&config, &model)?;
    let cpu = Cpu::new();
    let loss = config.loss(&model.config)?;
    let loss = config.in_chunks(loss.as_ref());
    if let Some(loss) = &loss {
        let named = |error| Failure::Usage(format!("loss_chunk_bytes: {error}"));
        chunked::check(&challenges::graph::Solution, &cpu, loss).map_err(named)?;
    }
    let output = Output::open(&config.output())?;
    let start = start(&config, &model, &adapter, &output)?;
    let (storages, weights) = if config.load_in_4bit {
        weights::load_quantized(&cpu, &cpu, &model, config.use_bnb_nested_quant).map_err(Failure::usage)?
    } else {
        (model.storages().clone(), weights::load(&cpu, &model).map_err(Failure::usage)?)
    };
    let spec = Spec {
        storages,
        compute: config.dtype.0,
        adapter: Some(adapter.config.clone()),
        rows: if config.packing { llama::Rows::PACKED } else { llama::Rows::default() },
        dropout: true,
        ..model.spec()
    };
    let engine = Engine::new(machine(&cpu), weights, spec, &config.recipe(), &start.state, loss.as_ref());
    let engine = engine.map_err(Failure::usage)?;
    let batches = Batches::new(&config, data.rows.len());
    describe(&config, &data, &batches, &start);
    let schedule = config.schedule(batches.steps);
    Run {
        config: &config,
        model: &model,
        adapter: adapter.config,
        rows: data.rows,
        batches,
        schedule,
        output,
        engine,
        at: start,
        peak,
    }
    .all()
}

/// The solutions, on a processor.
fn machine(cpu: &Cpu) -> Machine<'_> {
    Machine { passes: &challenges::graph::Solution, device: cpu, dequantizer: &DEQUANTIZER }
}

/// The adapter at the beginning.
fn adapter(config: &Config, model: &Llama) -> Result<Adapter, Failure> {
    let Some(folder) = &config.adapter_name_or_path else {
        return Adapter::fresh(config.adapter(), &model.config, config.seed).map_err(Failure::usage);
    };
    let mut adapter = Adapter::open(folder, &model.config).map_err(Failure::usage)?;
    adapter.config.dropout = config.lora_dropout.unwrap_or(adapter.config.dropout);
    Ok(adapter)
}

/// Where the run begins: at its newest checkpoint, if it is to go on, else with the adapter.
fn start(config: &Config, model: &Llama, adapter: &Adapter, output: &Output) -> Result<Saved, Failure> {
    if config.resume_from_checkpoint {
        if let Some(saved) = output.newest(&adapter.config, &model.config)? {
            return Ok(saved);
        }
    } else if output.is_used()? {
        return Err(Failure::Usage(format!(
            "{}: a run is here already; resume_from_checkpoint = true goes on with it, another output_dir begins anew",
            output.join("").display()
        )));
    }
    Ok(Saved { step: 0, tokens: 0, state: adapter.values() })
}

/// What will be done, on the screen.
fn describe(config: &Config, data: &Dataset, batches: &Batches, start: &Saved) {
    let Dataset { rows, left_out, cut } = data;
    let longest = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0);
    let mut text = format!("{}: {} rows, the longest of {longest} tokens", config.dataset_name, rows.len());
    if *cut > 0 {
        let _ = write!(text, "; {cut} cut to max_length");
    }
    if *left_out > 0 {
        let _ = write!(text, "; {left_out} left out, for they have no trained token");
    }
    let _ = write!(text, "\n{} steps in {:.2} epochs", batches.steps, batches.epochs(batches.steps));
    if start.step > 0 {
        let _ = write!(text, "; {} are made", start.step);
    }
    print(&format!("{text}\n"));
}

/// A run.
struct Run<'a> {
    config: &'a Config,
    model: &'a Llama,
    adapter: lora::Config,
    rows: Vec<Row>,
    batches: Batches,
    schedule: Schedule,
    output: Output,
    engine: Engine<'a>,
    at: Saved,
    peak: Option<Peak>,
}

impl Run<'_> {
    /// Every step that is left; the exit code.
    fn all(mut self) -> Result<u8, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            signal_hook::flag::register(signal, stop.clone()).map_err(Failure::bug)?;
        }
        let mut metrics = self.output.metrics(self.at.step)?;
        let mut saved = self.at.step;
        while self.at.step < self.batches.steps && !stop.load(Ordering::Relaxed) {
            self.step(&mut metrics)?;
            let is_due = self.at.step % self.config.save_steps == 0 || self.at.step == self.batches.steps;
            if is_due || stop.load(Ordering::Relaxed) {
                self.save()?;
                saved = self.at.step;
            }
        }
        if self.at.step < self.batches.steps {
            print(&format!(
                "stopped by a signal after step {saved}; resume_from_checkpoint = true goes on\n"
            ));
            return Ok(1);
        }
        let folder = self.output.join("adapter");
        let adapter = self.trained()?;
        adapter.save(&folder).map_err(|error| Failure::fault(&folder, error))?;
        print(&format!("the adapter is in {}\n", folder.display()));
        Ok(0)
    }

    /// One step, and its line of the metrics.
    fn step(&mut self, metrics: &mut File) -> Result<(), Failure> {
        let begin = Instant::now();
        let (number, rate) = (self.at.step + 1, self.schedule.rate(self.at.step));
        let of_rows = |numbers: &Vec<usize>| numbers.iter().map(|row| &self.rows[*row]).collect();
        let parts: Vec<Vec<&Row>> = self.batches.step(self.at.step).iter().map(of_rows).collect();
        let items: usize = parts.iter().flatten().map(|row| row.counted()).sum();
        let tokens: usize = parts.iter().flatten().map(|row| row.ids.len()).sum();
        let mut logged = Vec::new();
        for (part, number) in parts.iter().zip(self.at.step * self.config.gradient_accumulation_steps..) {
            let key = [self.config.seed, number].map(|word| word as i32); // of the dropout: new for each micro-batch
            logged.push(self.engine.microbatch(&microbatch(part), items as u64, key).map_err(Failure::bug)?);
        }
        let norm = self.engine.update(number, rate).map_err(Failure::bug)?;
        let loss: f64 = logged.iter().map(|part| part.loss).sum();
        self.at.step = number;
        self.at.tokens += tokens as u64;
        let seconds = begin.elapsed().as_secs_f64();
        let mean = |of: fn(&Logged) -> f64| logged.iter().map(of).sum::<f64>() / logged.len() as f64;
        let line = json!({
            "step": number,
            "loss": loss,
            "grad_norm": norm,
            "learning_rate": rate,
            "epoch": self.batches.epochs(number),
            "num_tokens": self.at.tokens,
            "mean_token_accuracy": mean(|part| part.correct / part.counted),
            "entropy": mean(|part| part.entropy / part.counted),
            "peak_bytes": self.peak.as_ref().map(Peak::bytes).filter(|bytes| *bytes > 0),
            "tokens_per_second": (tokens as f64 / seconds).round(),
        });
        self.output.log(metrics, &line)?;
        self.show(&line);
        if !(loss.is_finite() && norm.is_finite()) {
            return Err(Failure::Usage(format!(
                "step {number}: the loss is {loss}, the norm of its gradient {norm}"
            )));
        }
        Ok(())
    }

    /// A line on the screen, every `logging_steps` steps.
    fn show(&self, line: &Json) {
        let step = self.at.step;
        if step % self.config.logging_steps == 0 || step == 1 || step == self.batches.steps {
            let number = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
            print(&format!(
                "step {step:>6} of {}  loss {:.4}  norm {:.3}  rate {:.2e}  {:.0} tokens/s\n",
                self.batches.steps,
                number("loss"),
                number("grad_norm"),
                number("learning_rate"),
                number("tokens_per_second")
            ));
        }
    }

    /// The adapter as it is now.
    fn trained(&self) -> Result<Adapter, Failure> {
        let state: Values<f32> = self.engine.state().map_err(Failure::bug)?;
        Adapter::of(self.adapter.clone(), &self.model.config, &state).map_err(Failure::bug)
    }

    fn save(&mut self) -> Result<(), Failure> {
        self.at.state = self.engine.state().map_err(Failure::bug)?;
        let adapter = self.trained()?;
        self.output.save(&self.at, &adapter, self.config.save_total_limit.0)
    }
}
