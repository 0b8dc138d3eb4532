//! A run, on each of its ranks: the same steps, evaluations and checkpoints in the same order.
//!
//! ```text
//! each rank     micro-batches -> Engine::accumulate -> Engine::update -> evaluations -> its part of a checkpoint
//! the first     metrics.jsonl, loss.svg, lines on the screen, the adapter
//! ```
//!
//! Ranks decide by what all of them know: the config, the data, the number of the step, and numbers that are the same
//! on all ranks. A signal is asked about once a step, and the answers are exchanged, so all ranks stop after the same
//! step.

mod evaluate;
mod report;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use challenges::train::chunks::Causal;
use challenges::train::{Engine, Keyed, Microbatch};
use kernels::Watermark;
use kernels::bytes::Peak;
use reference::graph::interpret::Values;
use reference::llama::{Llama, Spec, Storage};
use reference::lora::{self, Adapter};
use reference::optim::Schedule;
use report::{GIB, describe, skipped};
use serde_json::{Map, Value as Json, json};

use super::batches::Batches;
use super::curves::Curves;
use super::dataset::Dataset;
use super::images::{Images, Seer};
use super::layout::Layout;
use super::objective::{Generator, Goal, Step, from_text, to_text};
use super::pace::Pace;
use super::peers::Peers;
use super::progress::Progress;
use super::row::Row;
use super::save::{Output, Saved};
use super::{Config, Watch};
use crate::output::Failure;

/// The inputs that all ranks of a run share.
pub struct Job<'a> {
    /// The settings.
    pub config: &'a Config,
    /// The checkpoint.
    pub model: &'a Llama,
    /// How it reads images, if it does.
    pub images: Option<&'a Images>,
    /// The adapter's settings.
    pub adapter: lora::Config,
    /// The model that is trained.
    pub spec: Spec,
    /// The loss, if it is chunked, or that of an objective.
    pub loss: Option<Causal>,
    /// The objective, if it is more than the likelihood of the rows.
    pub goal: Option<Goal>,
    /// The adapter as it was at the start, which is the reference model's; `None` without an objective.
    pub start_adapter: Option<Adapter>,
    /// The rows of each step.
    pub batches: Batches,
    /// How they lie in micro-batches.
    pub layout: Layout,
    /// The learning rates.
    pub schedule: Schedule,
    /// The rows of training and of evaluations.
    pub data: [Dataset; 2],
    /// Where the run begins.
    pub start: Saved,
    /// Where everything that is written goes.
    pub output: Output,
    /// The time that reading the data took: templates and tokens.
    pub reading: Duration,
}

/// The inputs that only the first rank has.
pub struct Seat<'s, 'w> {
    /// The peak of the process.
    pub peak: Option<Peak>,
    /// The callback for checkpoints.
    pub watch: &'s mut Watch<'w>,
}

/// A rank's run.
pub struct Run<'a, 's, 'w> {
    job: &'a Job<'a>,
    peers: Peers,
    engine: Engine<'a>,
    at: Saved,
    is_evaluated: bool, // the step that was made last
    stop: Arc<AtomicBool>,
    first: Option<First<'s, 'w>>,
    stepping: [Duration; 3], // steps from their rows to their line; compiled and ran of it
    pace: Pace,
    device_peak: Option<Box<dyn Watermark + 'a>>,
    generator: Option<Generator<'a>>, // of completions that are not logged
    seer: Option<Seer<'a>>,           // of images
}

/// The files and the screen of the first rank.
struct First<'s, 'w> {
    seat: Seat<'s, 'w>,
    metrics: File,
    curves: Curves,
    progress: Progress,
    has_evaluated: bool, // in the last line of the metrics that were there
}

impl<'s, 'w> First<'s, 'w> {
    fn new(job: &Job<'_>, seat: Seat<'s, 'w>) -> Result<Self, Failure> {
        describe(job);
        let (metrics, lines) = job.output.metrics(job.start.step)?;
        let has_evaluated = lines.last().is_some_and(|line| line.get("eval_loss").is_some());
        let progress = Progress::new(job.batches.steps, job.start.step, job.config.logging_steps);
        Ok(Self { seat, metrics, curves: Curves::of(&lines), progress, has_evaluated })
    }
}

impl<'a, 's, 'w> Run<'a, 's, 'w> {
    /// A run at its beginning. Every rank calls this; the first has a seat.
    pub fn new(
        job: &'a Job<'a>,
        peers: Peers,
        mut engine: Engine<'a>,
        seat: Option<Seat<'s, 'w>>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        job.start.scale.into_iter().for_each(|scale| engine.resume_scale(scale));
        let first = seat.map(|seat| First::new(job, seat)).transpose();
        let has_evaluated = |first: &Option<First<'_, '_>>| first.as_ref().is_some_and(|it| it.has_evaluated);
        let (told, first) = match first {
            Ok(first) => (Ok(if has_evaluated(&first) { YES } else { NO }.to_owned()), first),
            Err(failure) => (Err(failure), None),
        };
        let is_evaluated = peers.agree(told)?.iter().any(|text| text == YES);
        let at = job.start.clone();
        let (stepping, pace) = ([Duration::ZERO; 3], Pace::default());
        Ok(Self {
            job,
            peers,
            engine,
            at,
            is_evaluated,
            stop,
            first,
            stepping,
            pace,
            device_peak: None,
            generator: None,
            seer: None,
        })
    }

    /// Reports the most bytes that were taken of a device whose memory is not the host's.
    pub fn on_device(self, device_peak: Option<Box<dyn Watermark + 'a>>) -> Self {
        Self { device_peak, ..self }
    }

    /// Draws completions with `generator`.
    pub fn generating(self, generator: Option<Generator<'a>>) -> Self {
        Self { generator, ..self }
    }

    /// Reads images with `seer`.
    pub fn seeing(self, seer: Option<Seer<'a>>) -> Self {
        Self { seer, ..self }
    }

    /// Every step that is left; the exit code.
    pub fn all(mut self) -> Result<u8, Failure> {
        self.evaluate_if_due()?; // of the step of the checkpoint, if the run ended before it was
        let steps = self.job.batches.steps;
        let mut is_stopped = false;
        while self.at.step < steps && !is_stopped {
            self.step()?;
            is_stopped = self.is_stopped()?; // asked once a step: a run that stops has saved
            let is_last = self.at.step == steps;
            let is_saved = is_stopped || is_last || self.at.step.is_multiple_of(self.job.config.save_steps);
            if is_saved {
                self.save()?;
            }
            if is_last || !is_stopped {
                self.evaluate_if_due()?;
            }
            if is_saved {
                self.draw()?;
            }
        }
        if self.at.step < steps {
            let step = self.at.step;
            self.say(&format!(
                "stopped by a signal after step {step}; resume_from_checkpoint = true goes on\n{}",
                skipped(&self.at)
            ));
            return Ok(1);
        }
        self.draw()?;
        let trained = self.engine.adapter()?;
        let written = match &self.first {
            Some(_) => {
                self.job.output.finish(&self.adapter(&trained)?).map(|folder| folder.display().to_string())
            }
            None => Ok(String::new()),
        };
        let folder = self.peers.agree(written)?.swap_remove(0);
        self.say(&format!("the adapter is in {folder}\n"));
        self.say(&skipped(&self.at));
        let spent = self.spent();
        self.say(&spent);
        let pace = self.pace.describe();
        self.say(&pace);
        if let Some(peak) = &self.device_peak {
            let bytes = peak.bytes();
            self.say(&format!("at most {bytes} bytes ({:.3} GiB) of the device\n", bytes as f64 / GIB));
        }
        Ok(0)
    }

    /// Whether a signal has asked any rank to stop.
    fn is_stopped(&self) -> Result<bool, Failure> {
        let own = if self.stop.load(Ordering::Relaxed) { YES } else { NO };
        Ok(self.peers.exchange(own)?.iter().any(|text| text == YES))
    }

    /// One step, and its line of the metrics.
    fn step(&mut self) -> Result<(), Failure> {
        let (begin, before) = (Instant::now(), self.engine.spent());
        let number = self.at.step + 1;
        let made = self.at.step - self.at.skipped; // a step that is left out is none for the schedule and the moments
        let rate = self.job.schedule.rate(made);
        let scale = self.engine.loss_scale();
        let Accumulated { loss, tokens, logged, parts } = self.accumulate()?;
        let norm = self.engine.update(made + 1, rate)?;
        self.at.step = number;
        self.at.tokens += tokens as u64;
        self.is_evaluated = false;
        let time = begin.elapsed(); // the norm is on the host, so a device has done the step
        self.pace.add(tokens, time);
        let peak = self.first.as_ref().and_then(|first| first.seat.peak.as_ref());
        let mut line = json!({
            "step": number,
            "loss": loss,
            "grad_norm": norm,
            "learning_rate": rate,
            "epoch": self.job.batches.epochs(number),
            "num_tokens": self.at.tokens,
        });
        let of_process = [
            ("peak_bytes", peak.map(Peak::bytes).filter(|bytes| *bytes > 0).into()),
            ("tokens_per_second", (tokens as f64 / time.as_secs_f64()).round().into()),
        ];
        let of_process = of_process.into_iter().map(|(name, value): (&str, Json)| (name.to_owned(), value));
        add_to(&mut line, logged.into_iter().chain(of_process));
        if let Some(peak) = &self.device_peak {
            line["device_peak_bytes"] = peak.bytes().into();
        }
        if let Some(scale) = scale {
            self.at.skipped += u64::from(!norm.is_finite());
            line["loss_scale"] = scale.factor.into();
            line["skipped_steps"] = self.at.skipped.into();
        }
        self.first.iter().for_each(|first| first.progress.step(number, &line));
        self.log(&line)?;
        let [compiled, ran] = self.engine.spent();
        let spent = [begin.elapsed(), compiled.saturating_sub(before[0]), ran.saturating_sub(before[1])];
        self.stepping.iter_mut().zip(spent).for_each(|(all, more)| *all += more);
        if norm.is_finite() && loss.is_finite()
            || self.engine.loss_scale().is_some_and(|scale| !scale.is_exhausted())
        {
            return Ok(());
        }
        let cause = match parts {
            Some((parts, items)) => self.engine.not_finite(&parts, items),
            None => "where it comes from is looked for with objective = \"sft\" alone".to_owned(),
        };
        let divided = if self.job.config.adam_epsilon as f32 == 0.0 {
            "; adam_epsilon is 0, so an update divides 0 by 0 wherever every gradient was 0"
        } else {
            ""
        };
        Err(Failure::Usage(format!(
            "step {number}: the loss is {loss}, the norm of its gradient {norm}; {cause}{divided}"
        )))
    }

    /// Adds the gradients of the next step's rows or examples.
    fn accumulate(&mut self) -> Result<Accumulated, Failure> {
        let numbers = self.job.batches.step(self.at.step);
        let job = self.job;
        let data = &job.data[0];
        if let Some(goal) = &self.job.goal {
            let Step { loss, tokens, metrics } = match self.drawn(&numbers)? {
                Some(drawn) => {
                    let groups = [(0..drawn.examples()).collect()];
                    goal.step(job.config, &mut self.engine, &self.peers, &drawn, &groups)?
                }
                None => goal.step(job.config, &mut self.engine, &self.peers, data, &numbers)?,
            };
            return Ok(Accumulated { loss, tokens, logged: metrics, parts: None });
        }
        let of_rows = |numbers: &Vec<usize>| numbers.iter().map(|row| &data.rows[*row]).collect();
        let parts: Vec<Vec<&'a Row>> = numbers.iter().map(of_rows).collect();
        let items = parts.iter().flatten().map(|row| row.counted()).sum::<usize>() as u64;
        let tokens: usize = parts.iter().flatten().map(|row| row.ids.len()).sum();
        let of_run = (self.at.step * self.job.config.gradient_accumulation_steps)..;
        let key = |number: u64| [self.job.config.seed, number].map(|word| word as i32); // of the dropout: new for each
        let layout = &self.job.layout;
        let keyed = |(part, number): (&Vec<&Row>, u64)| (layout.microbatch(part), key(number));
        let mut keyed: Vec<Keyed> = parts.iter().zip(of_run).map(keyed).collect();
        self.see(&parts, &mut keyed)?;
        let parts = keyed;
        let logged = self.engine.accumulate(&parts, items)?;
        let loss: f64 = logged.iter().map(|part| part.loss).sum();
        let logged = self.predicted(&logged, "");
        Ok(Accumulated { loss, tokens, logged, parts: Some((parts, items)) })
    }

    /// The completions of a step's prompts with their rewards, if they are drawn: by the first rank, for all.
    fn drawn(&mut self, numbers: &[Vec<usize>]) -> Result<Option<Dataset>, Failure> {
        let prompts = &self.job.data[0];
        if !self.job.config.draws_completions() {
            return Ok(None);
        }
        let policy = self.engine.adapter()?;
        let (chosen, step) = (numbers.concat(), self.at.step);
        let own = self.generator.as_mut().map(|generator| generator.groups(&policy, prompts, &chosen, step));
        if self.peers.count() == 1 {
            return own.transpose();
        }
        let text = own.map_or(Ok(String::new()), |drawn| drawn.map(|drawn| to_text(&drawn)));
        let all = self.peers.agree(text)?;
        from_text(&all[0], prompts, &chosen)
            .map(Some)
            .ok_or_else(|| Failure::bug("completions that cannot be read"))
    }

    /// Fills in the features of images, in the micro-batches that this rank computes.
    fn see<T>(
        &mut self,
        rows: &[impl AsRef<[&'a Row]>],
        batches: &mut [(Microbatch, T)],
    ) -> Result<(), Failure> {
        let Some(seer) = &mut self.seer else { return Ok(()) };
        let shapes: Vec<&Microbatch> = batches.iter().map(|(batch, _)| batch).collect();
        let is_own = self.engine.own_batches(&shapes)?;
        for ((rows, (batch, _)), _) in rows.iter().zip(batches).zip(is_own).filter(|(_, is_own)| *is_own) {
            batch.images.iter_mut().try_for_each(|images| seer.see(rows.as_ref(), images))?;
        }
        Ok(())
    }

    fn log(&mut self, line: &Json) -> Result<(), Failure> {
        let Some(first) = &mut self.first else { return Ok(()) };
        self.job.output.log(&mut first.metrics, line)?;
        first.curves.add(line);
        Ok(())
    }

    /// The adapter of A and B.
    fn adapter(&self, trained: &Values<f32>) -> Result<Adapter, Failure> {
        let Job { config, model, adapter, .. } = self.job;
        let is_nf4 = |storage: &Storage| matches!(storage, Storage::Nf4 { .. });
        let is_on_nf4 = config.load_in_4bit || model.storages().values().any(is_nf4);
        let adapter = Adapter::of(adapter.clone(), &model.config, trained).map_err(Failure::bug)?;
        Ok(adapter.on_nf4(is_on_nf4))
    }

    /// A checkpoint; the first rank tells who watches.
    fn save(&mut self) -> Result<(), Failure> {
        let (adapter, moments) = (self.engine.adapter()?, self.engine.moments()?);
        let adapter = self.first.as_ref().map(|_| self.adapter(&adapter)).transpose()?;
        self.at.scale = self.engine.loss_scale();
        let first = adapter.as_ref().zip(self.first.as_ref().map(|first| &first.metrics));
        let kept = self.job.config.save_total_limit.0;
        let folder = self.job.output.save(&self.peers, &self.at, moments, first, kept)?;
        if let Some(First { seat, progress, .. }) = &mut self.first {
            let said = (seat.watch)(self.at.step, &folder)?;
            progress.say(&said);
        }
        Ok(())
    }
}

/// The result of a step's micro-batches.
struct Accumulated {
    loss: f64,
    tokens: usize,
    logged: Map<String, Json>,
    parts: Option<(Vec<Keyed>, u64)>, // of rows by themselves
}

const YES: &str = "yes";

const NO: &str = "no";

/// Adds entries to a line of the metrics.
fn add_to(line: &mut Json, entries: impl Iterator<Item = (String, Json)>) {
    entries.for_each(|(name, value)| line[name] = value);
}
