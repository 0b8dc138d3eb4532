//! A checkpoint that continues texts: its decoder on a device, and the tokens that end what it writes.

use std::path::Path;

use challenges::decode::Decoder;
use challenges::nf4::DEQUANTIZER;
use challenges::weights;
use kernels::Device;
use reference::graph::Dtype;
use reference::llama::{Llama, Spec};
use reference::lora::Adapter;

use crate::files::read_json;
use crate::markers;
use crate::output::Failure;

/// How a checkpoint's weights are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// As the file stores them.
    AsStored,
    /// The layers' dense projections as NF4.
    Nf4 {
        /// Whether the scales are quantised, too.
        nested: bool,
    },
}

/// A model with its adapter on a device, for a context of so many tokens, in f32.
///
/// # Errors
/// If a weight cannot be read or there is not enough memory.
pub fn decoder<'a>(
    device: &'a dyn Device,
    model: &Llama,
    weights: Weights,
    adapter: Option<&Adapter>,
    slots: usize,
) -> Result<Decoder<'a>, Failure> {
    let loaded = match weights {
        Weights::AsStored => weights::load(device, model).map(|loaded| (model.storages().clone(), loaded)),
        Weights::Nf4 { nested } => weights::load_quantized(device, model, nested, threads()),
    };
    let (storages, loaded) = loaded.map_err(Failure::usage)?;
    let config = adapter.map(|adapter| adapter.config.clone());
    let spec = Spec { storages, compute: Dtype::F32, adapter: config, ..model.spec() }.with_context(slots);
    let values = adapter.map(Adapter::values).unwrap_or_default();
    let passes = &challenges::graph::Solution;
    Decoder::new(passes, device, &DEQUANTIZER, loaded, &spec, &values).map_err(Failure::usage)
}

/// Threads that quantise.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The tokens that end a sequence: those of the model's `generation_config.json`, else of its `config.json`, and that of
/// the tokenizer.
pub fn stops(model: &Path, end: Option<i32>) -> Result<Vec<i32>, Failure> {
    let mut stops: Vec<i32> = end.into_iter().collect();
    for name in ["generation_config.json", "config.json"] {
        let path = model.join(name);
        let Some(json) = read_json(&path).map_err(Failure::usage)? else { continue };
        let found = markers::stops(&json).map_err(|problem| Failure::usage(problem.of(&path)))?;
        stops.extend(found.iter().map(|id| *id as i32));
        if !found.is_empty() {
            break;
        }
    }
    Ok(stops)
}
