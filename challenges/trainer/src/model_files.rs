//! A model's files, opened: a warning names the tensors that the model does not use.

use reference::llama::Llama;

use crate::output::{Failure, warn};

/// Opens a model that predicts the next token, and warns of tensors that it does not use.
pub(crate) fn open(name: &str) -> Result<Llama, Failure> {
    let model = Llama::open(name).map_err(Failure::usage)?;
    warn_of_unused(name, &model);
    Ok(model)
}

/// The most names that a warning lists.
const MOST_NAMES: usize = 8;

/// Warns of tensors of a checkpoint that the model does not use.
pub(crate) fn warn_of_unused(name: &str, model: &Llama) {
    let unused = model.unused_tensors();
    if unused.is_empty() {
        return;
    }
    let shown = unused.len().min(MOST_NAMES);
    let more =
        if unused.len() > shown { format!(" and {} more", unused.len() - shown) } else { String::new() };
    let biases = if unused.iter().any(|name| name.rsplit('.').next() == Some("bias")) {
        ", which has no biases,"
    } else {
        ""
    };
    let names = unused[..shown].join(", ");
    warn(&format!(
        "{name}: left out, since the model of its config.json{biases} has no such tensor: {names}{more}"
    ));
}
