//! Adapters that were trained next to weights in NF4, and are used with weights that are not: `export` merges them,
//! `generate` runs them.
//!
//! ```text
//! trained     decode(encode(W)) + scale * B A
//! merged      W                 + scale * B A
//! ```
//!
//! The two differ by the error of NF4, which the adapter has learnt to make up for. A merge into the decoded weights is
//! what was trained.

use std::path::Path;

use reference::llama::{self, Llama, Storage, hub};
use reference::lora::Adapter;

use crate::files::read_json;
use crate::output::warn;

/// Returns true if a weight of the model is in NF4.
pub(crate) fn has_nf4(model: &Llama) -> bool {
    model.storages().values().any(|storage| matches!(storage, Storage::Nf4 { .. }))
}

/// Warns if the adapter was trained next to weights in NF4, and the merge is into weights that are not.
pub(crate) fn warn_of_merge(folder: &Path, adapter: &Adapter, model: &Llama) {
    let what_to_do = "`generate --load-in-4bit --adapter` runs what was trained";
    warn_of_error(folder, adapter, model, what_to_do);
}

/// Warns if the adapter was trained next to weights in NF4, and it runs next to weights that are not.
pub(crate) fn warn_of_run(folder: &Path, adapter: &Adapter, model: &Llama) {
    warn_of_error(folder, adapter, model, "with `--load-in-4bit` it runs what was trained");
}

fn warn_of_error(folder: &Path, adapter: &Adapter, model: &Llama, what_to_do: &str) {
    if has_nf4(model) || !was_trained_on_nf4(folder, adapter) {
        return;
    }
    warn(&format!(
        "{}: the adapter was trained next to weights in 4 bits, and the model's weights are not in 4 bits: the result \
         differs from what was trained by the error of NF4; {what_to_do}",
        folder.display()
    ));
}

/// Returns true if the adapter's file, the state of its checkpoint, or the model that it names says so.
fn was_trained_on_nf4(folder: &Path, adapter: &Adapter) -> bool {
    let state = read_json(&folder.join("trainer_state.json")).ok().flatten().unwrap_or_default();
    let is_set = state["trained_on"]["settings"]["load_in_4bit"] == "true";
    adapter.is_on_nf4() || is_set || adapter.config.base.as_deref().is_some_and(is_nf4)
}

/// Returns true if a model's `config.json` says that it is in NF4, or, where it is not on this machine, its name does.
fn is_nf4(base: &str) -> bool {
    let Ok(folder) = hub::find(base) else { return base.to_lowercase().contains("bnb-4bit") };
    llama::Config::read(&folder.join("config.json")).is_ok_and(|config| config.quantized)
}
