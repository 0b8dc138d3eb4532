//! D.22: the file of the projector.

use challenges::issues::gguf::{Activation, Gguf, Projector, Tower};
use reference::issues::gguf::{projector_keys, projector_tensors};

use super::super::part::same;
use super::drawn::{STORED, projector, text_model, text_tensors, vision_tensors};
use super::text::same_keys;
use super::{Check, Rows};

pub(super) const CHECKS: &Rows<Check> = &[
    ("names-of-llava", |steps, random| names(steps, &projector(false, 2, 48, random), false)),
    ("names-of-qwen2-vl", |steps, random| names(steps, &projector(true, 2, 48, random), false)),
    ("newer-names", |steps, random| {
        names(steps, &projector(false, 2, 48, random), true)?;
        names(steps, &projector(true, 2, 48, random), true)
    }),
    ("many-blocks", |steps, random| {
        names(steps, &projector(false, 11, 48, random), false)?;
        names(steps, &projector(true, 11, 48, random), true)
    }),
    ("one-image-or-several-times", |steps, random| {
        let tower = projector(true, 1, 48, random);
        (1..4).try_for_each(|times| {
            one(steps, &tower, "visual.patch_embed.proj.weight", &[tower.hidden, 3, times, 4, 4])
        })
    }),
    ("what-is-no-projector", |steps, random| {
        for is_qwen in [false, true] {
            let tower = projector(is_qwen, 2, 48, random);
            let texts = text_tensors(&text_model(is_qwen, 2, random), "");
            texts.iter().try_for_each(|(name, shape)| one(steps, &tower, name, shape))?;
            STRANGERS.iter().try_for_each(|name| one(steps, &tower, name, &[12, 4]))?;
        }
        Ok(())
    }),
    ("keys-of-llava", |steps, random| {
        (0..4).try_for_each(|feature_layer| {
            let tower = Tower::Llava { feature_layer };
            keys(steps, &Projector { tower, ..projector(false, 3, 48, random) })
        })
    }),
    ("keys-of-qwen2-vl", |steps, random| keys(steps, &projector(true, 3, 48, random))),
    ("keys-of-every-type", |steps, random| {
        let tower = projector(true, 1, 48, random);
        STORED.iter().try_for_each(|ty| keys(steps, &Projector { stored: *ty, ..tower.clone() }))?;
        [Activation::QuickGelu, Activation::Gelu, Activation::Silu]
            .into_iter()
            .try_for_each(|activation| keys(steps, &Projector { activation, ..tower.clone() }))
    }),
];

/// Names that are no tensor of the towers that are drawn.
const STRANGERS: [&str; 9] = [
    "visual.blocks.2.norm1.weight", // one block too many
    "visual.blocks.0.norm3.weight",
    "visual.merger.mlp.1.weight",
    "visual.rotary_pos_emb.inv_freq",
    "vision_tower.vision_model.encoder.layers.2.layer_norm1.weight",
    "vision_tower.vision_model.embeddings.position_ids",
    "vision_tower.vision_model.post_layernorm.weight",
    "multi_modal_projector.linear_3.weight",
    "image_newline",
];

fn names(steps: &dyn Gguf, projector: &Projector, is_new: bool) -> Result<(), String> {
    let tensors = vision_tensors(projector, is_new);
    tensors.iter().try_for_each(|(name, shape)| one(steps, projector, name, shape))
}

fn one(steps: &dyn Gguf, projector: &Projector, name: &str, shape: &[usize]) -> Result<(), String> {
    let what = format!("{:?} of {} blocks: {name:?} {shape:?}", projector.tower, projector.layers);
    let want = projector_tensors(projector, name, shape);
    same(&what, &steps.projector_tensors(projector, name, shape), &want)
}

fn keys(steps: &dyn Gguf, projector: &Projector) -> Result<(), String> {
    let compared = same_keys(&steps.projector_keys(projector), &projector_keys(projector));
    compared.map_err(|why| format!("{why}, of {projector:?}"))
}
