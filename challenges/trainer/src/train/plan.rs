//! `train --plan`: the bytes that a run will take, and the longest context that fits, before anything runs.
//!
//! A model's `config.json` is enough. Where the weights are there, they are counted as they are stored; where they are
//! not, as NF4, if the config says so or `load_in_4bit` asks for it, else in the type to compute in. Where the data can
//! be read, its longest row is the length.
//!
//! Beside the device's bytes there are the program's own, and here they are counted: planning makes the same graphs and
//! programs, and holds the same rows.

mod ranks;

use std::fmt::Write as _;

use challenges::train::{Forecast, Forecaster};
use kernels::{Cpu, bytes};
use reference::clean::clean;
use reference::graph::Dtype;
use reference::llama::{self, Spec, Storage, Storages};

use super::Config;
use super::config::{Evaluation, Objective};
use super::dataset::Dataset;
use super::layout::Layout;
use super::save::COPIES;
use crate::output::{Failure, print};
use ranks::Step;

/// Prints the plan of a run; `memory` are the bytes that there are.
pub fn run(config: &Config, memory: usize) -> Result<u8, Failure> {
    if config.objective != Objective::Sft {
        let found = config.objective.name();
        return Err(Failure::Usage(format!("--plan: expected objective = \"sft\", found {found}")));
    }
    let before = bytes::live();
    let mut spec = spec(config)?;
    if spec.config.images.is_some() {
        return Err(Failure::usage("--plan: expected a model of texts alone, found one that reads images"));
    }
    let most = spec.config.positions;
    let mut text = String::new();
    let data = config.rows(&spec.config, None).unwrap_or_else(|failure| {
        let reason = clean(&failure.to_string());
        let _ = writeln!(text, "the data cannot be read, so rows of max_length tokens are taken: {reason}");
        <[Dataset; 2]>::default()
    });
    if let Some(classifier) = &mut spec.config.classifier {
        classifier.problem = data[0].problem.or(classifier.problem);
    }
    let layout = Layout::of(config, &data[0]);
    let ([rows, length], evaluation) = shapes(config, &layout, &data, most);
    if let Some(mesh) = config.several() {
        let whole = match layout {
            Layout::Joined(_) => Layout::Packed.spec(spec.clone(), &data[1]), // rows of the whole context
            _ => layout.spec(spec.clone(), &data[1]),
        };
        let specs = [&layout.spec(spec, &data[1]), &whole];
        let step = Step { shape: [rows, length], micro_batches: config.gradient_accumulation_steps as usize };
        text.push_str(&ranks::plan(config, &mesh, specs, &step, memory)?);
        print(&text);
        return Ok(0);
    }
    let cpu = Cpu::new();
    let loss = config.loss(&spec, None)?;
    let loss = config.in_chunks(loss.as_ref());
    let of = |layout: &Layout| {
        let spec = layout.spec(spec.clone(), &data[1]);
        Forecaster::new(super::machine(&cpu), spec, &config.recipe(), loss.as_ref(), config.activations())
            .map_err(Failure::usage)
    };
    let mut forecaster = of(&layout)?;
    let mut forecast = forecaster.at(rows, length).map_err(Failure::usage)?;
    if let Some([rows, length]) = evaluation {
        let arena = forecaster.evaluation(rows, length).map_err(Failure::usage)?;
        forecast.arena = forecast.arena.max(arena);
    }
    let planned = bytes::live().saturating_sub(before + forecast.scratch); // graphs, programs, rows
    let beside = [("saving", forecast.trained / 4 * COPIES), ("program", planned + cpu.product_bytes())];
    let bytes_beside: usize = beside.iter().map(|(_, bytes)| bytes).sum();
    let all = ("all", forecast.total() + bytes_beside);
    let batch = batch(config, &data[0]);
    let _ = match layout {
        Layout::Joined(_) => {
            writeln!(
                text,
                "micro-batches of {batch} rows, laid in at most {rows} of {length} tokens, in bytes:"
            )
        }
        Layout::SideBySide | Layout::Packed | Layout::WithImages(_) => {
            writeln!(text, "micro-batches of {rows} rows of {length} tokens, in bytes:")
        }
    };
    for (name, bytes) in parts(&forecast).into_iter().chain(beside).chain([all]) {
        let _ = writeln!(text, "  {name:<8} {bytes:>16}  {:>9.3} GiB", bytes as f64 / GIB);
    }
    if let Layout::Joined(_) = layout {
        forecaster = of(&Layout::Packed)?; // rows that are all so long, in the whole context
    }
    let longest = forecaster.longest(batch, memory.saturating_sub(bytes_beside)).map_err(Failure::usage)?;
    let given = memory as f64 / GIB;
    let _ = match longest {
        Some((length, forecast)) => {
            let bytes = forecast.total() + bytes_beside;
            let which =
                if length >= most { "the whole context fits" } else { "the longest context that fits" };
            writeln!(text, "{which} into {given:.1} GiB: {length} tokens, {bytes} bytes")
        }
        None => writeln!(text, "no context fits into {given:.1} GiB"),
    };
    print(&text);
    Ok(0)
}

/// Rows of a micro-batch.
fn batch(config: &Config, data: &Dataset) -> usize {
    let given = config.per_device_train_batch_size as usize;
    if data.rows.is_empty() { given } else { given.min(data.rows.len()) }
}

/// Rows and tokens of the largest micro-batch of training, and of evaluations, if there are any: as the data has them,
/// or as many as there may be, if it is not there.
fn shapes(
    config: &Config,
    layout: &Layout,
    [training, evaluated]: &[Dataset; 2],
    most: usize,
) -> ([usize; 2], Option<[usize; 2]>) {
    let length = config.max_length.0.map_or(most, |length| most.min(length as usize));
    let any = |batch: u64| [batch as usize, length];
    let batch = config.per_device_train_batch_size;
    let shape = if training.rows.is_empty() { any(batch) } else { layout.largest(config, training) };
    let batch = config.per_device_eval_batch_size;
    let evaluation = || match evaluated.rows.len() {
        0 => any(batch),
        rows => [rows.min(batch as usize), evaluated.longest()],
    };
    (shape, (config.eval_strategy != Evaluation::No).then(evaluation))
}

const GIB: f64 = (1_u64 << 30) as f64;

fn parts(forecast: &Forecast) -> [(&'static str, usize); 7] {
    let Forecast { weights, trained, inputs, arena, saved, loss, scratch } = *forecast;
    [
        ("weights", weights),
        ("trained", trained),
        ("inputs", inputs),
        ("arena", arena),
        ("saved", saved),
        ("loss", loss),
        ("scratch", scratch),
    ]
}

/// The model with its adapter, from its weights or from its sizes alone.
fn spec(config: &Config) -> Result<Spec, Failure> {
    let spec = match super::open(config) {
        Ok(model) => model.spec(),
        Err(error) => {
            let folder = config.model_folder()?;
            let has_weights = folder
                .read_dir()
                .into_iter()
                .flatten()
                .flatten()
                .any(|entry| entry.path().extension().is_some_and(|end| end == "safetensors"));
            if has_weights || folder.is_file() {
                return Err(error);
            }
            let model = super::sizes(config, &folder.join("config.json"))?;
            let storages = storages(config, &model);
            Spec {
                config: model,
                storages,
                compute: Dtype::F32,
                adapter: None,
                rows: llama::Rows::default(),
                dropout: false,
            }
        }
    };
    let quantized = storages_in_4bit(config, &spec);
    Ok(Spec {
        storages: quantized,
        compute: config.dtype.0,
        adapter: Some(super::adapter::config(config, &spec.config)?),
        dropout: true,
        ..spec
    })
}

/// How weights that are not there would be stored.
fn storages(config: &Config, model: &llama::Config) -> Storages {
    let four_bit = Storage::Nf4 { dtype: config.dtype.0, block_size: 64, nested: Some(256) };
    let storage = |spec: &llama::TensorSpec| {
        let is_quantized = model.quantized && spec.name.ends_with("_proj.weight");
        if is_quantized { four_bit } else { Storage::Dense(config.dtype.0) }
    };
    model.tensor_specs().iter().map(|spec| (spec.name.clone(), storage(spec))).collect()
}

/// The storages after `load_in_4bit`.
fn storages_in_4bit(config: &Config, spec: &Spec) -> Storages {
    let nested = config.use_bnb_nested_quant.then_some(256);
    let quantized = |(name, storage): (&String, &Storage)| {
        let storage = match *storage {
            Storage::Dense(dtype) if config.load_in_4bit && name.ends_with("_proj.weight") => {
                Storage::Nf4 { dtype, block_size: 64, nested }
            }
            other => other,
        };
        (name.clone(), storage)
    };
    spec.storages.iter().map(quantized).collect()
}
