//! `train --plan`: the bytes that a run will take, and the longest context that fits, before anything runs.
//!
//! A model's `config.json` is enough. Where the weights are there, they are counted as they are stored; where they are
//! not, as NF4, if the config says so or `load_in_4bit` asks for it, else in the type to compute in.

use std::fmt::Write as _;

use challenges::train::{Forecast, Forecaster};
use kernels::Cpu;
use reference::graph::Dtype;
use reference::llama::{self, Llama, Spec, Storage, Storages, hub};

use super::Config;
use crate::cli::{Failure, print};

/// Prints the plan of a run; `memory` are the bytes that there are.
pub fn run(config: &Config, memory: usize) -> Result<u8, Failure> {
    let spec = spec(config)?;
    let rows = config.per_device_train_batch_size as usize;
    let most = spec.config.positions;
    let length = config.max_length.0.map_or(most, |length| most.min(length as usize));
    let cpu = Cpu::new();
    let loss = config.loss(&spec.config)?;
    let loss = config.in_chunks(loss.as_ref());
    let forecaster = Forecaster::new(super::machine(&cpu), spec, &config.recipe(), loss.as_ref());
    let mut forecaster = forecaster.map_err(Failure::usage)?;
    let forecast = forecaster.at(rows, length).map_err(Failure::usage)?;
    let mut text = format!("micro-batches of {rows} rows of {length} tokens, in bytes:\n");
    for (name, bytes) in parts(&forecast) {
        let _ = writeln!(text, "  {name:<8} {bytes:>16}  {:>9.3} GiB", bytes as f64 / GIB);
    }
    let longest = forecaster.longest(rows, memory).map_err(Failure::usage)?;
    let given = memory as f64 / GIB;
    let _ = match longest {
        Some((length, forecast)) if length >= most => {
            writeln!(
                text,
                "the whole context of {length} tokens fits into {given:.1} GiB: {} bytes",
                forecast.total()
            )
        }
        Some((length, forecast)) => {
            writeln!(
                text,
                "the longest context that fits into {given:.1} GiB: {length} tokens, {} bytes",
                forecast.total()
            )
        }
        None => writeln!(text, "no context fits into {given:.1} GiB"),
    };
    print(&text);
    Ok(0)
}

const GIB: f64 = (1_u64 << 30) as f64;

fn parts(forecast: &Forecast) -> [(&'static str, usize); 8] {
    let Forecast { weights, trained, inputs, arena, saved, loss, scratch } = *forecast;
    let all = forecast.total();
    [
        ("weights", weights),
        ("trained", trained),
        ("inputs", inputs),
        ("arena", arena),
        ("saved", saved),
        ("loss", loss),
        ("scratch", scratch),
        ("all", all),
    ]
}

/// The model with its adapter, from its weights or from its sizes alone.
fn spec(config: &Config) -> Result<Spec, Failure> {
    let spec = match Llama::open(&config.model_name_or_path) {
        Ok(model) => model.spec(),
        Err(error) => {
            let folder = hub::find(&config.model_name_or_path).map_err(Failure::usage)?;
            let has_weights = folder
                .read_dir()
                .into_iter()
                .flatten()
                .flatten()
                .any(|entry| entry.path().extension().is_some_and(|end| end == "safetensors"));
            if has_weights {
                return Err(Failure::usage(error));
            }
            let model = llama::Config::read(&folder.join("config.json")).map_err(Failure::usage)?;
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
        adapter: Some(config.adapter()),
        rows: if config.packing { llama::Rows::PACKED } else { llama::Rows::default() },
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
