//! `train`: a checkpoint and a data set in, an adapter out.
//!
//! ```text
//! config -> rows -> batches -> Engine -> metrics.jsonl, loss.svg, checkpoints, adapter
//! ```

mod adapter;
mod answers;
pub mod batches;
mod columns;
pub mod config;
mod curves;
pub mod data;
mod dataset;
mod digest;
mod end;
mod example;
mod identity;
pub(crate) mod image_files;
mod images;
mod labels;
mod layout;
mod lines;
mod moments;
mod notices;
mod objective;
mod pace;
mod pack;
mod parallelize;
pub mod paths;
mod peers;
mod plan;
mod progress;
mod ranks;
mod row;
mod run;
mod save;
mod yaml;

use std::path::{Path, PathBuf};
use std::time::Instant;

use challenges::nf4::DEQUANTIZER;
use challenges::train::{Machine, chunks};
use clap::Args;
use kernels::bytes::Peak;
use kernels::{Cpu, Device};
use reference::graph::interpret::Values;
use reference::llama::{self, Llama, Spec};
use reference::lora::Adapter;
use serde_json::Value as Json;

use crate::gguf_tokenizer;
use crate::model_files;
use crate::output::{Failure, print, warn};
use batches::Batches;
use dataset::Dataset;
use images::Images;
use layout::Layout;
use objective::Goal;
use run::Job;
use save::{Output, Saved};

pub use config::Config;
use config::Task;

/// The flags of `train`.
#[derive(Debug, Args)]
pub(crate) struct Train {
    /// The config, a TOML file
    #[arg(required_unless_present = "example")]
    config: Option<PathBuf>,
    /// Sets a key of the config
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// How many ranks share the run, each a thread with a device of its own
    #[arg(long, value_name = "N")]
    ranks: Option<u64>,
    /// Writes a small model, data and a config with every key and what it means into a new folder
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    example: Option<PathBuf>,
    /// The task that the example is for, as the key of its name
    #[arg(long, value_name = "TASK", requires = "example", default_value = "CAUSAL_LM", value_parser = Task::called)]
    task_type: Task,
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
        return example::write(folder, train.task_type);
    }
    let path = train.config.as_ref().ok_or_else(|| Failure::usage("expected a config"))?;
    let peak = Peak::begin();
    let ranks = train.ranks.map(|ranks| ("ranks".to_owned(), ranks.to_string()));
    let settings: Vec<(String, String)> = train.set.iter().cloned().chain(ranks).collect();
    let config = Config::read(path, &settings)?;
    config.lookup.notes().iter().chain(&config.idle_keys()).for_each(|note| warn(note));
    if train.plan {
        return plan::run(&config, (train.memory.max(0.0) * (1_u64 << 30) as f64) as usize);
    }
    let ran = fit(&config, peak, &mut |_, _| Ok(String::new()));
    ran.map_err(|failure| gguf_tokenizer::name_file(&config.model_name_or_path, failure))
}

/// What is called with the step and the folder of each checkpoint that was written; what it answers is printed.
pub(crate) type Watch<'a> = dyn FnMut(u64, &Path) -> Result<String, Failure> + Send + 'a;

/// A run from its config to its adapter; the exit code.
pub(crate) fn fit(config: &Config, peak: Option<Peak>, watch: &mut Watch<'_>) -> Result<u8, Failure> {
    config.model_folder()?;
    let mut model = open(config)?;
    let begin = Instant::now();
    let images = Images::of(config, &model)?;
    let data = config.rows(&model.config, images.as_ref())?;
    let reading = begin.elapsed();
    model.config.classifier.iter_mut().for_each(|classifier| classifier.problem = data[0].problem);
    let adapter = adapter::first(config, &model)?;
    images.iter().try_for_each(|images| images.check_targets(&adapter.config))?;
    let spec = Spec {
        compute: config.dtype.0,
        adapter: Some(adapter.config.clone()),
        dropout: true,
        ..model.spec()
    };
    let layout = match &images {
        Some(images) => Layout::WithImages(images.placeholders()),
        None => Layout::of(config, &data[0]),
    };
    let spec = layout.spec(spec, &data[1]);
    let goal = config.goal().map_err(Failure::Usage)?.map(|goal| goal.over(&data[0]));
    let loss = config.loss(&spec, goal.as_ref())?;
    if let Some(loss) = config.in_chunks(loss.as_ref()) {
        let named = |error| Failure::Usage(format!("loss_chunk_bytes: {error}"));
        let cpu = Cpu::with_threads(1);
        chunks::check(&challenges::graph::Solution, &cpu, &loss).map_err(named)?;
    }
    let trained_on = identity::of(config, &model, images.as_ref(), &adapter, &data[0])?;
    let output = Output::open(&config.output())?;
    let (start, state) = start(config, &model, &adapter, trained_on, &output)?;
    let batches = batches(config, goal.as_ref(), &data[0])?;
    let job = Job {
        start_adapter: goal.map(|_| adapter.clone()),
        goal,
        config,
        model: &model,
        images: images.as_ref(),
        adapter: adapter.config,
        spec,
        loss,
        batches,
        layout,
        schedule: config.schedule(batches.steps),
        data,
        start,
        output,
        reading,
    };
    ranks::run(&job, state, peak, watch)
}

/// Which examples make which step.
fn batches(config: &Config, goal: Option<&Goal>, data: &Dataset) -> Result<Batches, Failure> {
    let Some(Goal::Grpo(grpo)) = goal else { return Ok(Batches::new(config, data.examples())) };
    let (completions, batch) = (grpo.generations as u64, config.per_device_train_batch_size);
    let all = batch * config.gradient_accumulation_steps;
    if !all.is_multiple_of(completions) {
        return Err(Failure::Usage(format!(
            "per_device_train_batch_size: expected a step of whole groups of {completions} completions, found {batch} x \
             {} (gradient_accumulation_steps)",
            config.gradient_accumulation_steps
        )));
    }
    Ok(Batches::of_groups(config, data.examples(), completions))
}

/// The model: as its checkpoint has it, or as a classifier.
fn open(config: &Config) -> Result<Llama, Failure> {
    let name = &config.model_name_or_path;
    if config.task_type == Task::CausalLm {
        let model = model_files::open(name)?;
        return match model.config.classifier {
            None => Ok(model),
            Some(_) => Err(Failure::Usage(format!(
                "task_type: expected \"SEQ_CLS\" for {name}, a classifier, found \"CAUSAL_LM\""
            ))),
        };
    }
    let mut model = Llama::open_classifier(name, config.labels().as_deref()).map_err(Failure::usage)?;
    model_files::warn_of_unused(name, &model);
    state_problem(config, &mut model.config)?;
    Ok(model)
}

/// The same of a model whose weights are not there: its sizes.
fn sizes(config: &Config, file: &Path) -> Result<llama::Config, Failure> {
    if config.task_type == Task::CausalLm {
        return llama::Config::read(file).map_err(Failure::usage);
    }
    let (mut model, _) =
        llama::Config::read_as_classifier(file, config.labels().as_deref()).map_err(Failure::usage)?;
    state_problem(config, &mut model)?;
    Ok(model)
}

/// Takes the problem that a config states.
fn state_problem(config: &Config, model: &mut llama::Config) -> Result<(), Failure> {
    let Some(classifier) = &mut model.classifier else { return Ok(()) };
    classifier.problem = config.problem_type.map(|given| given.0).or(classifier.problem);
    let wrong = |need| Failure::Usage(format!("problem_type: expected {need}"));
    classifier.check().map_err(wrong)
}

/// The solutions, on a device.
fn machine(device: &dyn Device) -> Machine<'_> {
    Machine { passes: &challenges::graph::Solution, device, dequantizer: &DEQUANTIZER }
}

/// Where the run begins, with which A, B and moments: at its newest checkpoint, if it is to go on, else with the
/// adapter.
fn start(
    config: &Config,
    model: &Llama,
    adapter: &Adapter,
    trained_on: Json,
    output: &Output,
) -> Result<(Saved, Values<f32>), Failure> {
    if config.resume_from_checkpoint {
        if let Some((saved, state)) = output.newest(&adapter.config, &model.config)? {
            return Ok((go_on(&saved, trained_on, output)?, state));
        }
        print(&format!("{}\n", output.begin()?));
    } else if output.is_used()? {
        return Err(Failure::Usage(format!(
            "{}: a run is here already; resume_from_checkpoint = true goes on with it, another output_dir begins anew",
            output.join("").display()
        )));
    }
    Ok((Saved { step: 0, tokens: 0, skipped: 0, scale: None, trained_on }, adapter.values()))
}

/// A checkpoint, if it was trained on the same.
fn go_on(saved: &Saved, trained_on: Json, output: &Output) -> Result<Saved, Failure> {
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
    Ok(Saved { trained_on, ..*saved })
}
