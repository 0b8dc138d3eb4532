//! `train`: a checkpoint and a data set in, an adapter out.
//!
//! ```text
//! config -> rows -> batches -> Engine -> metrics.jsonl, loss.svg, checkpoints, adapter
//! ```

mod adapter;
pub mod batches;
pub mod config;
mod curves;
pub mod data;
mod digest;
mod example;
mod identity;
mod layout;
pub mod paths;
mod plan;
mod progress;
mod save;
mod team;
mod worker;
mod yaml;

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use challenges::nf4::DEQUANTIZER;
use challenges::train::{Engine, Logged, Machine, Microbatch, chunked};
use challenges::weights;
use clap::Args;
use kernels::bytes::Peak;
use kernels::{Cpu, Device};
use reference::graph::interpret::Values;
use reference::llama::{Llama, Spec};
use reference::lora::{self, Adapter};
use reference::optim::Schedule;
use serde_json::{Value as Json, json};

use crate::output::{Failure, print, warn};
use batches::Batches;
use config::Evaluation;
use curves::Curves;
use data::{Dataset, Row};
use layout::Layout;
use progress::Progress;
use save::{Output, Saved};
use worker::Worker;

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
    config.lookup.notes().iter().for_each(|note| warn(note));
    if train.plan {
        return plan::run(&config, (train.memory.max(0.0) * (1_u64 << 30) as f64) as usize);
    }
    fit(&config, peak, &mut |_, _| Ok(String::new()))
}

/// What is called with the step and the folder of each checkpoint that was written; what it answers is printed.
pub(crate) type Watch<'a> = dyn FnMut(u64, &Path) -> Result<String, Failure> + 'a;

/// A run from its config to its adapter; the exit code.
pub(crate) fn fit<'w>(config: &Config, peak: Option<Peak>, watch: &'w mut Watch<'w>) -> Result<u8, Failure> {
    config.model_folder()?;
    let mesh = config.mesh()?;
    let model = Llama::open(&config.model_name_or_path).map_err(Failure::usage)?;
    let begin = Instant::now();
    let [data, evaluated] = config.rows(model.config.vocab, model.config.positions)?;
    let reading = begin.elapsed();
    let adapter = adapter::first(config, &model)?;
    let cpu = Cpu::new();
    let spec = Spec {
        compute: config.dtype.0,
        adapter: Some(adapter.config.clone()),
        dropout: true,
        ..model.spec()
    };
    let layout = Layout::of(config, &data);
    let spec = layout.spec(spec, &evaluated);
    let loss = config.loss(&spec)?;
    let loss = config.in_chunks(loss.as_ref());
    if let Some(loss) = &loss {
        let named = |error| Failure::Usage(format!("loss_chunk_bytes: {error}"));
        chunked::check(&challenges::graph::Solution, &cpu, loss).map_err(named)?;
    }
    let trained_on = identity::of(config, &model, &adapter.config, &data)?;
    let output = Output::open(&config.output())?;
    let mut start = start(config, &model, &adapter, trained_on, &output)?;
    let batches = Batches::new(config, data.rows.len());
    describe(config, [&data, &evaluated], &batches, &start);
    let (file, lines) = output.metrics(start.step)?;
    let state = std::mem::take(&mut start.state);
    let metrics = Metrics { file, curves: Curves::of(&lines), last: lines.into_iter().next_back() };
    let desk = Desk {
        progress: Progress::new(batches.steps, start.step, config.logging_steps),
        output,
        metrics,
        peak,
        reading,
        stepping: [Duration::ZERO; 3],
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Failure::bug)?;
    }
    let plan = Plan {
        config,
        model: &model,
        adapter: adapter.config,
        rows: &data.rows,
        evaluated: &evaluated.rows,
        batches,
        layout,
        schedule: config.schedule(batches.steps),
        stop: &stop,
    };
    if mesh.ranks() > 1 {
        return team::run(&plan, &mesh, &spec, &state, &start, desk);
    }
    let (storages, weights) = if config.load_in_4bit {
        weights::load_quantized(&cpu, &model, config.use_bnb_nested_quant, cpu.threads())
            .map_err(Failure::usage)?
    } else {
        (model.storages().clone(), weights::load(&cpu, &model).map_err(Failure::usage)?)
    };
    let spec = Spec { storages, ..spec };
    let engine = Engine::new(machine(&cpu), weights, spec, &config.recipe(), &state, loss.as_ref());
    drop(state); // the engine has it
    let worker = Worker::Alone(Box::new(engine.map_err(Failure::usage)?));
    Run { watch: Some(watch), ..Run::new(&plan, worker, start, Some(desk)) }.all()
}

/// The solutions, on a device.
fn machine(device: &dyn Device) -> Machine<'_> {
    Machine { passes: &challenges::graph::Solution, device, dequantizer: &DEQUANTIZER }
}

/// Where the run begins: at its newest checkpoint, if it is to go on, else with the adapter.
fn start(
    config: &Config,
    model: &Llama,
    adapter: &Adapter,
    trained_on: Json,
    output: &Output,
) -> Result<Saved, Failure> {
    if config.resume_from_checkpoint {
        if let Some(saved) = output.newest(&adapter.config, &model.config)? {
            return go_on(saved, trained_on, output);
        }
    } else if output.is_used()? {
        return Err(Failure::Usage(format!(
            "{}: a run is here already; resume_from_checkpoint = true goes on with it, another output_dir begins anew",
            output.join("").display()
        )));
    }
    Ok(Saved { step: 0, tokens: 0, skipped: 0, scale: None, state: adapter.values(), trained_on })
}

/// A checkpoint, if it was trained on the same.
fn go_on(saved: Saved, trained_on: Json, output: &Output) -> Result<Saved, Failure> {
    let path = output.join(&format!("checkpoint-{}", saved.step));
    let path = path.display();
    let notes = identity::compare(&saved.trained_on, &trained_on).map_err(|reason| {
        Failure::Usage(format!(
            "{path}: {reason}; to train its adapter otherwise, begin a run in another output_dir with \
             adapter_name_or_path = \"{path}\""
        ))
    })?;
    for note in notes {
        print(&format!("{path}: {note}\n"));
    }
    Ok(Saved { trained_on, ..saved })
}

/// What will be done, on the screen.
fn describe(config: &Config, data: [&Dataset; 2], batches: &Batches, start: &Saved) {
    let evaluated = config.eval_dataset_name.as_deref().unwrap_or_default();
    let mut text = String::new();
    for (name, data) in [config.dataset_name.as_str(), evaluated].iter().zip(data) {
        let Dataset { rows, left_out, cut, merged } = data;
        if rows.is_empty() {
            continue; // there are no evaluations
        }
        let _ = write!(text, "{name}: {} rows, the longest of {} tokens", rows.len(), data.longest());
        if *cut > 0 {
            let _ = write!(text, "; {cut} cut to max_length");
        }
        if *left_out > 0 {
            let _ = write!(text, "; {left_out} left out, for they have no trained token");
        }
        if *merged > 0 {
            let _ = write!(
                text,
                "; {merged} prompts part from their rows before their end, and are trained from there"
            );
        }
        text.push('\n');
    }
    let _ = write!(text, "{} steps in {:.2} epochs", batches.steps, batches.epochs(batches.steps));
    if start.step > 0 {
        let _ = write!(text, "; {} are made", start.step);
    }
    print(&format!("{text}\n"));
}

/// What all workers of a run go by.
struct Plan<'a> {
    config: &'a Config,
    model: &'a Llama,
    adapter: lora::Config,
    rows: &'a [Row],
    evaluated: &'a [Row],
    batches: Batches,
    layout: Layout,
    schedule: Schedule,
    stop: &'a AtomicBool,
}

/// What the first worker has: what is printed, logged and saved.
struct Desk {
    output: Output,
    metrics: Metrics,
    progress: Progress,
    peak: Option<Peak>,
    reading: Duration,       // of the data: templates and tokens
    stepping: [Duration; 3], // steps from their rows to their line; compiled and ran of it
}

/// A run, as one of its workers makes it.
struct Run<'a> {
    plan: &'a Plan<'a>,
    worker: Worker<'a>,
    at: Saved,
    evaluated_at: Option<u64>, // the last step after which there was an evaluation
    desk: Option<Desk>,
    watch: Option<&'a mut Watch<'a>>, // of a run alone
}

/// What was logged so far.
struct Metrics {
    file: File,
    curves: Curves,
    last: Option<Json>,
}

impl Metrics {
    /// The step of its last line, if that is an evaluation.
    fn evaluated_at(&self) -> Option<u64> {
        let line = self.last.as_ref().filter(|line| line.get("eval_loss").is_some())?;
        line["step"].as_u64()
    }
}

impl<'a> Run<'a> {
    /// One that begins where a checkpoint ended, or with the first step.
    fn new(plan: &'a Plan<'a>, mut worker: Worker<'a>, at: Saved, desk: Option<Desk>) -> Self {
        at.scale.into_iter().for_each(|scale| worker.go_on_with(scale));
        let evaluated_at = desk.as_ref().and_then(|desk| desk.metrics.evaluated_at());
        Self { plan, worker, at, evaluated_at, desk, watch: None }
    }

    /// Every step that is left; the exit code.
    fn all(mut self) -> Result<u8, Failure> {
        self.evaluate_if_due()?; // of the step of the checkpoint, if the run ended before it was
        let (steps, config) = (self.plan.batches.steps, self.plan.config);
        let mut is_stopped = false;
        while self.at.step < steps && !is_stopped {
            self.step()?;
            let stop = self.plan.stop.load(Ordering::Relaxed); // asked once a step: a run that stops has saved
            is_stopped = self.worker.agree(if stop { "stop" } else { "" })?.iter().any(|said| said == "stop");
            let is_last = self.at.step == steps;
            let is_saved = is_stopped || is_last || self.at.step.is_multiple_of(config.save_steps);
            if is_saved {
                self.save()?;
            }
            if is_last || !is_stopped {
                self.evaluate_if_due()?;
            }
            if let Some(desk) = self.desk.as_ref().filter(|_| is_saved) {
                desk.output.draw(&desk.metrics.curves.svg())?;
            }
        }
        if self.at.step < steps {
            let step = self.at.step;
            self.say(&format!(
                "stopped by a signal after step {step}; resume_from_checkpoint = true goes on\n"
            ));
            return Ok(1);
        }
        let state = self.worker.trained()?;
        let Some(desk) = &self.desk else { return Ok(0) };
        desk.output.draw(&desk.metrics.curves.svg())?;
        let folder = desk.output.finish(&self.adapter(&state)?)?;
        self.say(&format!("the adapter is in {}\n", folder.display()));
        self.say(&desk.spent());
        Ok(0)
    }

    /// Prints, on the first worker.
    fn say(&self, text: &str) {
        if let Some(desk) = &self.desk {
            desk.progress.say(text);
        }
    }

    /// One step, and its line of the metrics.
    fn step(&mut self) -> Result<(), Failure> {
        let plan = self.plan;
        let (begin, before) = (Instant::now(), self.worker.spent());
        let number = self.at.step + 1;
        let made = self.at.step - self.at.skipped; // a step that is left out is none for the schedule and the moments
        let rate = plan.schedule.rate(made);
        let of_rows = |numbers: &Vec<usize>| numbers.iter().map(|row| &plan.rows[*row]).collect();
        let parts: Vec<Vec<&Row>> = plan.batches.step(self.at.step).iter().map(of_rows).collect();
        let items: usize = parts.iter().flatten().map(|row| row.counted()).sum();
        let tokens: usize = parts.iter().flatten().map(|row| row.ids.len()).sum();
        let scale = self.worker.loss_scale();
        let of_run = (self.at.step * plan.config.gradient_accumulation_steps)..;
        let key = |number: u64| [plan.config.seed, number].map(|word| word as i32); // of the dropout: new for each
        let parts: Vec<(Microbatch, [i32; 2])> = parts
            .iter()
            .zip(of_run)
            .map(|(part, number)| (plan.layout.microbatch(part), key(number)))
            .collect();
        let logged = self.worker.accumulate(&parts, items as u64)?;
        let norm = self.worker.update(made + 1, rate)?;
        let loss: f64 = logged.iter().map(|part| part.loss).sum();
        self.at.step = number;
        self.at.tokens += tokens as u64;
        if scale.is_some() {
            self.at.skipped += u64::from(!norm.is_finite());
        }
        if let Some(desk) = &mut self.desk {
            let seconds = begin.elapsed().as_secs_f64();
            let mut line = json!({
                "step": number,
                "loss": loss,
                "grad_norm": norm,
                "learning_rate": rate,
                "epoch": plan.batches.epochs(number),
                "num_tokens": self.at.tokens,
                "mean_token_accuracy": mean(&logged, |part| part.correct / part.counted),
                "entropy": mean(&logged, |part| part.entropy / part.counted),
                "peak_bytes": desk.peak.as_ref().map(Peak::bytes).filter(|bytes| *bytes > 0),
                "tokens_per_second": (tokens as f64 / seconds).round(),
            });
            if let Some(scale) = scale {
                line["loss_scale"] = scale.factor.into();
                line["skipped_steps"] = self.at.skipped.into();
            }
            desk.progress.step(number, &line);
            desk.log(line)?;
            let [compiled, ran] = self.worker.spent();
            let spent = [begin.elapsed(), compiled.saturating_sub(before[0]), ran.saturating_sub(before[1])];
            desk.stepping.iter_mut().zip(spent).for_each(|(all, more)| *all += more);
        }
        if norm.is_finite() && loss.is_finite()
            || self.worker.loss_scale().is_some_and(|scale| !scale.is_exhausted())
        {
            return Ok(());
        }
        let cause = self.not_finite(&parts, items as u64);
        let divided = if plan.config.adam_epsilon as f32 == 0.0 {
            "; adam_epsilon is 0, so an update divides 0 by 0 wherever every gradient was 0"
        } else {
            ""
        };
        Err(Failure::Usage(format!(
            "step {number}: the loss is {loss}, the norm of its gradient {norm}; {cause}{divided}"
        )))
    }

    /// Where the first number of a step's micro-batches that is not finite comes from, in words.
    fn not_finite(&mut self, parts: &[(Microbatch, [i32; 2])], items: u64) -> String {
        for (micro_batch, (part, key)) in (1..).zip(parts) {
            match self.worker.first_not_finite(part, items, *key) {
                Ok(None) => {}
                Ok(Some(found)) => {
                    return format!(
                        "the first number that is not finite comes, in micro-batch {micro_batch}, {found}"
                    );
                }
                Err(error) => return format!("where it comes from could not be found: {error}"),
            }
        }
        "each micro-batch by itself is finite: their sum is not".into()
    }

    /// An evaluation, and its line of the metrics, if the step is one after which there is one and it was not made yet.
    fn evaluate_if_due(&mut self) -> Result<(), Failure> {
        let (plan, step) = (self.plan, self.at.step);
        let is_last = step == plan.batches.steps;
        let is_due = match plan.config.eval_strategy {
            Evaluation::No => false,
            Evaluation::Steps => is_last || step.is_multiple_of(plan.config.eval_steps()),
            Evaluation::Epoch => is_last || step.is_multiple_of(plan.batches.steps_of_epoch()),
        };
        if step == 0 || !is_due || self.evaluated_at == Some(step) {
            return Ok(());
        }
        let line = self.evaluation()?;
        self.evaluated_at = Some(step);
        let Some(desk) = &mut self.desk else { return Ok(()) };
        desk.progress.evaluation(step, &line);
        desk.log(line)
    }

    /// The losses of batches, each the mean over its tokens, in the mean over rows; accuracy and entropy in the mean
    /// over batches.
    ///
    /// Source: `evaluation_loop` of `transformers.Trainer`, 5.23, which repeats a batch's loss once for each of its
    /// rows; `SFTTrainer.log` of `trl`, 1.16.
    fn evaluation(&mut self) -> Result<Json, Failure> {
        let begin = Instant::now();
        let plan = self.plan;
        let parts: Vec<Vec<&Row>> = plan
            .evaluated
            .chunks(plan.config.per_device_eval_batch_size as usize)
            .map(|rows| rows.iter().collect())
            .collect();
        let counted = |rows: &Vec<&Row>| rows.iter().map(|row| row.counted() as u64).sum();
        let batches: Vec<(Microbatch, u64)> =
            parts.iter().map(|rows| (plan.layout.microbatch(rows), counted(rows))).collect();
        let logged = self.worker.evaluate(&batches)?;
        let loss: f64 = logged.iter().zip(&parts).map(|(part, rows)| part.loss * rows.len() as f64).sum();
        Ok(json!({
            "step": self.at.step,
            "epoch": plan.batches.epochs(self.at.step),
            "eval_loss": loss / plan.evaluated.len() as f64,
            "eval_num_tokens": self.at.tokens,
            "eval_mean_token_accuracy": mean(&logged, |part| part.correct / part.counted),
            "eval_entropy": mean(&logged, |part| part.entropy / part.counted),
            "eval_runtime": begin.elapsed().as_secs_f64(),
        }))
    }

    /// The adapter of a state.
    fn adapter(&self, state: &Values<f32>) -> Result<Adapter, Failure> {
        Adapter::of(self.plan.adapter.clone(), &self.plan.model.config, state).map_err(Failure::bug)
    }

    /// A checkpoint: each worker writes its part of it.
    fn save(&mut self) -> Result<(), Failure> {
        let state = self.worker.state()?;
        let scale = self.worker.loss_scale();
        if self.desk.is_none() {
            let folder = self.plan.config.output();
            return save::write_part(&folder, self.at.step, &self.worker, state);
        }
        let adapter = self.adapter(&state)?;
        let trained_on = self.at.trained_on.clone();
        let saved = Saved { scale, state, trained_on, ..self.at };
        let Some(desk) = &mut self.desk else { return Ok(()) };
        let kept = self.plan.config.save_total_limit.0;
        let folder = desk.output.save(saved, &adapter, &desk.metrics.file, kept, &self.worker)?;
        if let Some(watch) = &mut self.watch {
            desk.progress.say(&watch(self.at.step, &folder)?);
        }
        Ok(())
    }
}

impl Desk {
    fn log(&mut self, line: Json) -> Result<(), Failure> {
        self.output.log(&mut self.metrics.file, &line)?;
        self.metrics.curves.add(&line);
        self.metrics.last = Some(line);
        Ok(())
    }

    /// Where the time of the steps went, and what reading the data took before them.
    fn spent(&self) -> String {
        let [all, compiling, running] = self.stepping.map(|time| time.as_secs_f64());
        let beside = (all - compiling - running).max(0.0);
        format!(
            "{all:.2} s of steps: {compiling:.2} s compiled, {running:.2} s ran what was compiled, {beside:.3} s were \
             beside it; the data was read in {:.3} s\n",
            self.reading.as_secs_f64()
        )
    }
}

/// The mean over micro-batches.
fn mean(logged: &[Logged], of: fn(&Logged) -> f64) -> f64 {
    logged.iter().map(of).sum::<f64>() / logged.len() as f64
}
