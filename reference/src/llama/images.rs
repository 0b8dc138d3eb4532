//! What a `config.json` says about a language model that reads images: the model inside it, and how it differs from
//! one of texts alone.
//!
//! ```text
//! model_type        qwen2_vl                       llava
//! the model         text_config, or the file       text_config
//! its tensors       model.layers.0..               language_model.model.layers.0..
//! its positions     three axes, `mrope_section`    one
//! its biases        of q, k and v                  none
//! ```
//!
//! The names of tensors are those of the files that the library writes by default. In memory its newer versions, from
//! 4.52 on, have others, and so have files of programs that write what is in memory. They are read, too:
//!
//! ```text
//! newer                          qwen2_vl          llava
//! model.language_model.layers..  model.layers..    language_model.model.layers..
//! lm_head..                      lm_head..         language_model.lm_head..
//! model.visual..                 visual..
//! model.vision_tower..                             vision_tower..
//! ```
//!
//! The tower of images beside it is [`crate::vision`]'s.
//!
//! Sources: `Qwen2VLConfig` and `LlavaConfig` of the `transformers` library, 5.23; Wang et al., "Qwen2-VL" (2024),
//! section 2.1, for rotary embeddings of three axes.

use std::path::Path;

use super::config::{SECTIONS, rotary_object};
use super::fields::Fields;
use super::{Config, Error};
use crate::checkpoint::Checkpoint;

/// Opens the weights of a model. Those of one that reads images have their usual names, whichever the files have.
///
/// Fails as [`Checkpoint::open`] does.
pub fn open_checkpoint(folder: &Path, config: &Config) -> Result<Checkpoint, Error> {
    let checkpoint = Checkpoint::open(folder)?;
    Ok(match &config.images {
        Some(images) => checkpoint.renamed(|name| images.usual_name(name)),
        None => checkpoint,
    })
}

/// What a language model has that reads images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Images {
    /// What stands before the names of its tensors in a checkpoint.
    pub prefix: &'static str,
    /// Whether the projections of queries, keys and values have biases.
    pub has_biases: bool,
    /// How many of a head's frequencies turn with the frame, the row and the column of a token; `None` if all turn with
    /// its position.
    pub sections: Option<[usize; 3]>,
}

/// The kinds of models that read images, with the architecture that each names.
const KINDS: [(&str, &str); 2] =
    [("qwen2_vl", "Qwen2VLForConditionalGeneration"), ("llava", "LlavaForConditionalGeneration")];

impl Images {
    /// The fields of the language model, if the file is of one that reads images.
    ///
    /// Fails where the architecture is another.
    pub(super) fn model(fields: &Fields) -> Result<Option<Fields>, Error> {
        let kind = KINDS.iter().find(|(kind, _)| fields.get("model_type").is_some_and(|got| got == kind));
        let Some((kind, architecture)) = kind else { return Ok(None) };
        let named = |names: &serde_json::Value| {
            names.as_array().is_some_and(|all| all.contains(&(*architecture).into()))
        };
        if fields.get("architectures").is_some_and(|names| !named(names)) {
            return Err(fields.wrong("architectures", &format!("[{architecture:?}]")));
        }
        match fields.object("text_config")? {
            Some(text) => Ok(Some(text)),
            None if *kind == "qwen2_vl" => Ok(Some(fields.clone())),
            None => Err(fields.wrong("text_config", "an object")),
        }
    }

    /// How the language model differs.
    ///
    /// Fails where a field asks for what it is not, and where the sections do not share out `half` frequencies.
    pub(super) fn of(fields: &Fields, model: &Fields, half: usize) -> Result<Self, Error> {
        if fields.get("model_type").is_some_and(|kind| kind == "llava") {
            return Ok(Self { prefix: "language_model.", has_biases: false, sections: None });
        }
        model.only("use_sliding_window", false)?;
        let inner = rotary_object(model)?;
        let need = format!("three sizes whose sum is {half}, half of a head");
        let inner = inner.ok_or_else(|| model.wrong("rope_parameters", &format!("mrope_section, {need}")))?;
        let given = inner.get(SECTIONS).and_then(serde_json::Value::as_array);
        let sizes =
            given.map(|all| all.iter().map(|size| size.as_u64().and_then(|size| size.try_into().ok())));
        let sizes: Option<Vec<usize>> = sizes.and_then(Iterator::collect);
        let sections = sizes.and_then(|sizes| <[usize; 3]>::try_from(sizes).ok());
        let is_half = |sizes: &[usize; 3]| {
            sizes.iter().try_fold(0_usize, |sum, size| sum.checked_add(*size)) == Some(half)
        };
        let sections = sections.filter(is_half).ok_or_else(|| inner.wrong(SECTIONS, &need))?;
        Ok(Self { prefix: "", has_biases: true, sections: Some(sections) })
    }

    /// The usual name of a tensor that has a newer one.
    fn usual_name(&self, name: &str) -> Option<String> {
        let Some(rest) = name.strip_prefix("model.") else {
            let is_head = !self.prefix.is_empty() && name.starts_with("lm_head.");
            return is_head.then(|| format!("{}{name}", self.prefix));
        };
        match rest.strip_prefix("language_model.") {
            Some(rest) => Some(format!("{}model.{rest}", self.prefix)),
            None => is_beside(rest).then(|| rest.to_owned()),
        }
    }
}

/// Whether a tensor belongs to what stands beside the language model.
pub(super) fn is_beside(name: &str) -> bool {
    ["visual.", "vision_tower.", "multi_modal_projector."].iter().any(|module| name.starts_with(module))
}
