//! D.21: the file of the language model.

use challenges::issues::gguf::{Gguf, TextModel};
use reference::checkpoint::gguf::Value;
use reference::issues::gguf::{text_keys, text_tensor};

use super::super::part::same;
use super::drawn::{STORED, llama3, projector, text_model, text_tensors, vision_tensors};
use super::{Check, Rows};

pub(super) const CHECKS: &Rows<Check> = &[
    ("names", |steps, random| names(steps, &text_model(false, 2, random), "")),
    ("names-of-qwen2-vl", |steps, random| names(steps, &text_model(true, 2, random), "")),
    ("many-layers", |steps, random| names(steps, &text_model(false, 12, random), "")),
    ("names-behind-others", |steps, random| {
        names(steps, &text_model(false, 2, random), "language_model.")?;
        names(steps, &text_model(false, 2, random), "model.language_model.")?;
        names(steps, &text_model(true, 3, random), "model.language_model.")
    }),
    ("what-is-no-text", |steps, random| {
        let model = text_model(false, 2, random);
        let mut others: Vec<String> = STRANGERS.map(str::to_owned).into();
        for is_qwen in [false, true] {
            let projector = projector(is_qwen, 2, 16, random);
            others.extend(vision_tensors(&projector, false).into_iter().map(|(name, _)| name));
            others.extend(vision_tensors(&projector, true).into_iter().map(|(name, _)| name));
        }
        others.iter().try_for_each(|name| one(steps, &model, name))
    }),
    ("keys", |steps, random| {
        let mut model = text_model(false, 3, random);
        model.config.rope.scaling = reference::llama::Scaling::None;
        keys(steps, &model)
    }),
    ("keys-of-a-scaled-model", |steps, random| {
        let mut model = text_model(false, 3, random);
        model.config.rope.scaling = llama3(random);
        keys(steps, &model)?;
        model.config.rope.scaling = reference::llama::Scaling::Linear { factor: 4.0 };
        keys(steps, &model)
    }),
    ("keys-of-qwen2-vl", |steps, random| keys(steps, &text_model(true, 3, random))),
    ("keys-of-every-type", |steps, random| {
        let model = text_model(false, 1, random);
        STORED.iter().try_for_each(|ty| keys(steps, &TextModel { stored: *ty, ..model.clone() }))
    }),
];

/// Names that are no weight or bias of the models that are drawn.
const STRANGERS: [&str; 9] = [
    "model.layers.2.self_attn.q_proj.weight", // one layer too many
    "model.layers.-1.mlp.up_proj.weight",
    "model.layers.x.mlp.up_proj.weight",
    "model.layers.0.self_attn.rotary_emb.inv_freq",
    "model.layers.0.mlp.up_proj",
    "model.layers.0.mlp.up_proj.weight.absmax",
    "embed_tokens.weight",
    "score.weight",
    "",
];

fn names(steps: &dyn Gguf, model: &TextModel, front: &str) -> Result<(), String> {
    text_tensors(model, front).iter().try_for_each(|(name, _)| one(steps, model, name))
}

fn one(steps: &dyn Gguf, model: &TextModel, name: &str) -> Result<(), String> {
    let what = format!("{} of {} layers: {name:?}", model.architecture.name(), model.config.layers);
    same(&what, &steps.text_tensor(model, name), &text_tensor(model, name))
}

fn keys(steps: &dyn Gguf, model: &TextModel) -> Result<(), String> {
    same_keys(&steps.text_keys(model), &text_keys(model)).map_err(|why| format!("{why}, of {model:?}"))
}

/// That two lists are the same keys, in any order.
pub(super) fn same_keys(got: &[(String, Value)], want: &[(String, Value)]) -> Result<(), String> {
    for (name, want) in want {
        match got.iter().filter(|(own, _)| own == name).map(|(_, value)| value).collect::<Vec<_>>().as_slice()
        {
            [] => return Err(format!("{name}: got no such key, want {want:?}")),
            [got] if *got == want => {}
            [got] => return Err(format!("{name}: got {got:?}, want {want:?}")),
            several => return Err(format!("{name}: got it {} times, want it once", several.len())),
        }
    }
    match got.iter().find(|(name, _)| !want.iter().any(|(own, _)| own == name)) {
        None => Ok(()),
        Some((name, value)) => Err(format!("{name}: got {value:?}, want no such key")),
    }
}
