//! What a `config.json` says about a Llama, as far as it decides what is computed.
//!
//! Source of the fields and of their defaults: `LlamaConfig` and `modeling_rope_utils` of the `transformers` library.
//! Rotary parameters have two forms: `rope_theta` beside a `rope_scaling` object (or null), and since version 5 one
//! `rope_parameters` object. A file that has both objects must mean the same by them.

use std::path::Path;

use serde_json::Value;

use super::fields::Fields;
use super::{Classifier, Error, Images};

/// The sizes and settings of a Llama.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Rows of the embedding.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width inside the MLP.
    pub intermediate: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; it divides `heads`.
    pub key_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// The longest sequence that the model is made for, in tokens.
    pub positions: usize,
    /// What a norm adds to the mean square.
    pub norm_eps: f64,
    /// The rotary embedding.
    pub rope: Rope,
    /// Whether the output layer is the embedding.
    pub tied: bool,
    /// Whether the checkpoint says that bitsandbytes quantised it to NF4.
    pub quantized: bool,
    /// What it has in the place of its output layer; `None` if it predicts the next token.
    pub classifier: Option<Classifier>,
    /// What it has that reads images; `None` of a model of texts alone.
    pub images: Option<Images>,
}

/// The rotary embedding: its base, and what stretches it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// The base of the geometric series of frequencies.
    pub theta: f64,
    /// What happens to the frequencies.
    pub scaling: Scaling,
}

/// How the frequencies are changed for sequences longer than those of the first training.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    /// Not at all (`default`).
    None,
    /// Each is divided by the factor (`linear`).
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Long waves are divided by the factor, short ones stay, those between are interpolated (`llama3`).
    Llama3 {
        /// The factor.
        factor: f64,
        /// Waves longer than `original / low` are long.
        low: f64,
        /// Waves shorter than `original / high` are short.
        high: f64,
        /// Sequence length of the first training, in tokens.
        original: usize,
    },
    /// Each is divided by a factor of its own, as a GGUF file gives them.
    Factors(Vec<f32>),
}

/// No model comes near: what is larger is a damaged file.
pub(super) const LARGEST: usize = 1 << 24;

impl Config {
    /// Reads a `config.json`.
    ///
    /// Fails where the file is missing or no JSON, where a field is missing or makes no sense, and where it asks for
    /// what this model is not: another architecture, activation, rotary embedding or quantisation, or biases.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Fields::read(path).and_then(|fields| Self::of(&fields)).map_err(|fault| fault.at(path))
    }

    /// Reads a `config.json` as that of a classifier, with these labels if some are given. The model may be made into
    /// one: then its head is new, and the second answer is true.
    ///
    /// Fails as [`Self::read`] does, and where a field about the labels makes no sense.
    pub fn read_as_classifier(path: &Path, labels: Option<&[String]>) -> Result<(Self, bool), Error> {
        let read = |fields: &Fields| {
            let config = Self::of(fields)?;
            let is_new = config.classifier.is_none();
            let own = Classifier::of(fields)?;
            let labels = labels.map_or(own.labels, <[String]>::to_vec);
            Ok((Self { classifier: Some(Classifier { labels, ..own }), ..config }, is_new))
        };
        Fields::read(path).and_then(|fields| read(&fields)).map_err(|fault: Error| fault.at(path))
    }

    fn of(fields: &Fields) -> Result<Self, Error> {
        match Images::model(fields)? {
            None => Self::of_texts(fields),
            Some(model) => {
                let config = Self::of_texts(&model)?;
                let images = Some(Images::of(fields, &model, config.head_dim / 2)?);
                let tied = config.tied || fields.flag("tie_word_embeddings")?;
                let quantized = config.quantized || quantized(fields)?;
                Ok(Self { tied, quantized, images, ..config })
            }
        }
    }

    fn of_texts(fields: &Fields) -> Result<Self, Error> {
        supported(fields)?;
        let is_classifier = is_classifier(fields)?;
        let size = |field: &str| {
            let missing = || fields.wrong(field, "an integer");
            fields.size(field, LARGEST)?.ok_or_else(missing)
        };
        let (hidden, heads) = (size("hidden_size")?, size("num_attention_heads")?);
        let positions = fields.size("max_position_embeddings", LARGEST)?.unwrap_or(2048);
        Ok(Self {
            vocab: size("vocab_size")?,
            intermediate: size("intermediate_size")?,
            layers: size("num_hidden_layers")?,
            key_heads: key_heads(fields, heads)?,
            head_dim: head_dim(fields, hidden, heads)?,
            norm_eps: fields.positive("rms_norm_eps")?.unwrap_or(1e-6),
            rope: rope(fields, positions)?,
            tied: fields.flag("tie_word_embeddings")?,
            quantized: quantized(fields)?,
            classifier: is_classifier.then(|| Classifier::of(fields)).transpose()?,
            hidden,
            heads,
            positions,
            images: None,
        })
    }

    /// The projections of a layer, in their order: name, output size, input size.
    pub fn projections(&self) -> [(&'static str, usize, usize); 7] {
        let (queries, keys) = (self.heads * self.head_dim, self.key_heads * self.head_dim);
        [
            ("self_attn.q_proj", queries, self.hidden),
            ("self_attn.k_proj", keys, self.hidden),
            ("self_attn.v_proj", keys, self.hidden),
            ("self_attn.o_proj", self.hidden, queries),
            ("mlp.gate_proj", self.intermediate, self.hidden),
            ("mlp.up_proj", self.intermediate, self.hidden),
            ("mlp.down_proj", self.hidden, self.intermediate),
        ]
    }
}

/// The architectures that are known here: with an output layer, and with a classifier in its place.
const ARCHITECTURES: [&str; 2] = ["LlamaForCausalLM", "LlamaForSequenceClassification"];

/// The kinds of models whose layers are a Llama's: the second and the third inside one that reads images.
const KINDS: [&str; 3] = ["llama", "qwen2_vl", "qwen2_vl_text"];

/// Which of the two it is; with an output layer, if it does not say.
fn is_classifier(fields: &Fields) -> Result<bool, Error> {
    if fields.get("model_type").is_some_and(|kind| kind != "llama") {
        return Ok(false); // its file has been asked
    }
    let Some(names) = fields.get("architectures") else { return Ok(false) };
    let named = |name: &str| names.as_array().is_some_and(|names| names.contains(&name.into()));
    match ARCHITECTURES.map(named) {
        [true, _] => Ok(false),
        [false, true] => Ok(true),
        [false, false] => {
            Err(fields
                .wrong("architectures", "[\"LlamaForCausalLM\"] or [\"LlamaForSequenceClassification\"]"))
        }
    }
}

/// That it is a Llama with the one activation and without biases.
fn supported(fields: &Fields) -> Result<(), Error> {
    let kind = fields.get("model_type").and_then(Value::as_str);
    if !kind.is_some_and(|kind| KINDS.contains(&kind)) {
        return Err(fields.wrong("model_type", "\"llama\""));
    }
    fields.only("hidden_act", "silu")?;
    fields.only("attention_bias", false)?;
    fields.only("mlp_bias", false)?;
    fields.only_number("attention_dropout", 0.0)?;
    fields.only_number("partial_rotary_factor", 1.0)
}

fn key_heads(fields: &Fields, heads: usize) -> Result<usize, Error> {
    match fields.size("num_key_value_heads", LARGEST)? {
        None => Ok(heads),
        Some(groups) if heads % groups == 0 => Ok(groups),
        Some(_) => Err(fields.wrong("num_key_value_heads", &format!("a divisor of {heads} heads"))),
    }
}

fn head_dim(fields: &Fields, hidden: usize, heads: usize) -> Result<usize, Error> {
    match fields.size("head_dim", LARGEST)? {
        Some(size) if heads.saturating_mul(size) > LARGEST => {
            Err(fields.wrong("head_dim", &format!("at most {LARGEST} over {heads} heads")))
        }
        Some(size) if size % 2 == 0 => Ok(size),
        Some(_) => Err(fields.wrong("head_dim", "an even size")),
        None if hidden % (2 * heads) == 0 => Ok(hidden / heads),
        None => Err(fields.wrong("hidden_size", &format!("an even size for each of {heads} heads"))),
    }
}

/// The object with the rotary parameters: `rope_scaling`, or `rope_parameters` of newer files. `None` if there is
/// neither, or if both are empty.
pub(super) fn rotary_object(fields: &Fields) -> Result<Option<Fields>, Error> {
    let scaling = fields.object("rope_scaling")?.filter(|object| !object.is_empty());
    let parameters = fields.object("rope_parameters")?.filter(|object| !object.is_empty());
    Ok(scaling.or(parameters))
}

/// The rotary embedding of either form.
///
/// Fails where a file has both forms and they differ. transformers 5 lets `rope_scaling` win then, and loses the
/// `rope_theta` of `rope_parameters`: `convert_rope_params_to_dict` of its `modeling_rope_utils`.
fn rope(fields: &Fields, positions: usize) -> Result<Rope, Error> {
    let Some(deciding) = rotary_object(fields)? else {
        let theta = fields.positive("rope_theta")?.unwrap_or(THETA);
        return Ok(Rope { theta, scaling: Scaling::None });
    };
    let rope = rope_of(&deciding, fields, positions)?;
    if let Some(other) = fields.object("rope_parameters")?.filter(|other| !other.is_empty()) {
        let is_same = rope_of(&other, fields, positions).is_ok_and(|other| other == rope)
            && other.get(SECTIONS) == deciding.get(SECTIONS);
        if !is_same {
            return Err(fields.wrong(
                "rope_scaling",
                &format!(
                    "the rotary embedding of `rope_parameters`, or only one of the two (transformers 5 would take \
                     `rope_scaling`, with a rope_theta of {})",
                    rope.theta
                ),
            ));
        }
    }
    Ok(rope)
}

/// The sizes of the parts of a head that turn with the frame, the row and the column of a token.
pub(super) const SECTIONS: &str = "mrope_section";

/// The rotary embedding that one of the two objects and the fields around it describe.
fn rope_of(object: &Fields, fields: &Fields, positions: usize) -> Result<Rope, Error> {
    let theta = object.positive("rope_theta")?.or(fields.positive("rope_theta")?).unwrap_or(THETA);
    object.only_number("partial_rotary_factor", 1.0)?;
    let original = fields.size(ORIGINAL, LARGEST)?;
    if let (Some(outer), Some(inner)) = (original, object.size(ORIGINAL, LARGEST)?)
        && outer != inner
    {
        return Err(object.wrong(ORIGINAL, &format!("{outer}, as outside of it")));
    }
    Ok(Rope { theta, scaling: scaling(object, original.unwrap_or(positions))? })
}

/// The base, where no field gives one.
const THETA: f64 = 10000.0;

/// The field with the sequence length of the first training.
const ORIGINAL: &str = "original_max_position_embeddings";

/// `original` is the sequence length of the first training, where the object does not say.
fn scaling(rope: &Fields, original: usize) -> Result<Scaling, Error> {
    let name = if rope.get("rope_type").is_some() { "rope_type" } else { "type" };
    let number = |field: &str| rope.positive(field)?.ok_or_else(|| rope.wrong(field, "a number above 0"));
    match rope.text(name)?.as_deref() {
        None | Some("default") => Ok(Scaling::None),
        Some("mrope") if rope.get(SECTIONS).is_some() => Ok(Scaling::None),
        Some("linear") => Ok(Scaling::Linear { factor: number("factor")? }),
        Some("llama3") => {
            let (factor, low, high) =
                (number("factor")?, number("low_freq_factor")?, number("high_freq_factor")?);
            let original = rope.size(ORIGINAL, LARGEST)?.unwrap_or(original);
            if high <= low {
                return Err(rope.wrong("high_freq_factor", &format!("more than the low_freq_factor, {low}")));
            }
            Ok(Scaling::Llama3 { factor, low, high, original })
        }
        Some(_) => Err(rope.wrong(name, "\"default\", \"linear\" or \"llama3\"")),
    }
}

/// Whether bitsandbytes quantised it; any other way is refused.
fn quantized(fields: &Fields) -> Result<bool, Error> {
    let Some(how) = fields.object("quantization_config")? else { return Ok(false) };
    if how.get("quant_method").is_none_or(|method| method != "bitsandbytes") {
        return Err(how.wrong("quant_method", "\"bitsandbytes\""));
    }
    how.only("load_in_8bit", false)?;
    how.only("load_in_4bit", true)?;
    how.only("bnb_4bit_quant_type", "nf4")?;
    Ok(true)
}
