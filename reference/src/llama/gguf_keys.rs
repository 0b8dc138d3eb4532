//! The keys of a GGUF file that describe a Llama.
//!
//! Every key under `llama.` is either read, or known to change nothing, or has the one value that changes nothing. A
//! file with any other key is refused: without it, the same weights would be another model.
//!
//! ```text
//! rope.scaling.type     none: frequencies stay            linear, or no such key: they are divided by the factor
//! rope.scaling.factor   rope.scale_linear in old files    1 if there is neither
//! rope_freqs.weight     a tensor: what divides each frequency, besides the factor
//! ```
//!
//! Source: `src/llama-model.cpp` and `src/llama-arch.cpp` of llama.cpp.

use super::config::LARGEST;
use super::{Config, Error, Rope, Scaling};
use crate::checkpoint::gguf::{Gguf, Value, dequantize};

/// The one architecture that is read.
const ARCHITECTURE: &str = "llama";

/// The tensor of what divides each frequency.
pub(super) const FACTORS: &str = "rope_freqs.weight";

/// The keys of a file.
pub(super) struct Keys<'f>(pub &'f Gguf);

/// Keys that are read.
const READ: [&str; 15] = [
    "vocab_size",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "block_count",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scale_linear",
];

/// Keys that change nothing here: of the first training, of the scaling "yarn", and of norms with means, which the
/// architecture does not have.
const HARMLESS: [&str; 5] = [
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "attention.layer_norm_epsilon",
];

/// Keys with the one number that changes nothing; a Boolean is 0 or 1.
const NEUTRAL: [(&str, f64); 17] = [
    ("expert_count", 0.0),
    ("expert_used_count", 0.0),
    ("expert_shared_count", 0.0),
    ("rope.scaling.attn_factor", 1.0),
    ("rope.scaling.yarn_ext_factor", 0.0),
    ("rope.scaling.yarn_attn_factor", 1.0),
    ("rope.scaling.yarn_log_multiplier", 0.0),
    ("attention.causal", 1.0),
    ("attention.max_alibi_bias", 0.0),
    ("attention.clamp_kqv", 0.0),
    ("attn_logit_softcapping", 0.0),
    ("final_logit_softcapping", 0.0),
    ("logit_scale", 1.0),
    ("embedding_scale", 1.0),
    ("residual_scale", 1.0),
    ("pooling_type", 0.0),
    ("use_parallel_residual", 0.0),
];

impl Keys<'_> {
    pub fn config(&self) -> Result<Config, Error> {
        self.is_model()?;
        let (hidden, heads) = (self.size("embedding_length")?, self.size("attention.head_count")?);
        let key_heads = self.size_or("attention.head_count_kv", heads)?;
        if heads % key_heads != 0 {
            let key = of_model("attention.head_count_kv");
            return Err(wrong(&key, self.0.value(&key), &format!("a divisor of {heads} heads")));
        }
        let head_dim = self.head_dim(hidden, heads)?;
        let positions = self.size("context_length")?;
        self.check_others(head_dim, positions)?;
        Ok(Config {
            vocab: self.vocab()?,
            intermediate: self.size("feed_forward_length")?,
            layers: self.layers()?,
            positions,
            norm_eps: self.required("attention.layer_norm_rms_epsilon")?,
            rope: self.rope(head_dim)?,
            tied: self.0.tensor("output.weight").is_err(),
            quantized: false,
            classifier: None,
            images: None,
            hidden,
            heads,
            key_heads,
            head_dim,
        })
    }

    /// Checks that the file is a model of the architecture, and no adapter or tower of images.
    fn is_model(&self) -> Result<(), Error> {
        for (key, need, is_required) in [("architecture", ARCHITECTURE, true), ("type", "model", false)] {
            let key = format!("general.{key}");
            match self.0.value(&key) {
                None if !is_required => {}
                Some(Value::String(name)) if name == need => {}
                got => return Err(wrong(&key, got, &format!("{need:?}"))),
            }
        }
        Ok(())
    }

    /// Checks that every key that is not read changes nothing.
    fn check_others(&self, head_dim: usize, positions: usize) -> Result<(), Error> {
        for (name, value) in self.0.keys() {
            let Some(key) = name.strip_prefix(ARCHITECTURE).and_then(|rest| rest.strip_prefix('.')) else {
                continue;
            };
            if READ.contains(&key) || HARMLESS.contains(&key) {
                continue;
            }
            check_neutral(key, value, head_dim, positions).map_err(|need| wrong(name, Some(value), &need))?;
        }
        Ok(())
    }

    /// The rows of the embedding.
    fn vocab(&self) -> Result<usize, Error> {
        let rows = self.0.tensor("token_embd.weight")?.sizes.get(1).copied().unwrap_or(1);
        if self.size_or("vocab_size", rows)? == rows {
            return Ok(rows);
        }
        let key = of_model("vocab_size");
        Err(wrong(&key, self.0.value(&key), &format!("{rows}, the rows of `token_embd.weight`")))
    }

    /// Returns the number of layers, at most the number of tensors: the list of weights is as long as it says.
    fn layers(&self) -> Result<usize, Error> {
        let (layers, most) = (self.size("block_count")?, self.0.tensors().len());
        let key = of_model("block_count");
        let need = format!("at most the {most} tensors of the file");
        if layers <= most { Ok(layers) } else { Err(wrong(&key, self.0.value(&key), &need)) }
    }

    /// The width of a head, of keys and of values alike, all of it turned.
    fn head_dim(&self, hidden: usize, heads: usize) -> Result<usize, Error> {
        let head_dim = self.size_or("attention.key_length", hidden / heads)?;
        for key in ["attention.value_length", "rope.dimension_count"] {
            if self.size_or(key, head_dim)? != head_dim {
                let key = of_model(key);
                return Err(wrong(&key, self.0.value(&key), &format!("{head_dim}, the width of a key")));
            }
        }
        let is_sound = head_dim > 0 && head_dim % 2 == 0 && heads.saturating_mul(head_dim) <= LARGEST;
        let key = of_model("attention.key_length");
        let need = format!("an even width of a head, at most {LARGEST} over {heads} heads");
        if is_sound { Ok(head_dim) } else { Err(wrong(&key, self.0.value(&key), &need)) }
    }

    fn rope(&self, head_dim: usize) -> Result<Rope, Error> {
        let theta = self.positive("rope.freq_base")?.unwrap_or(10_000.0);
        let key = of_model("rope.scaling.type");
        let factor = self.factor()?;
        let factor = match self.0.value(&key).map(|value| (value, value.text())) {
            None => factor,
            Some((_, Some("none"))) => None,
            Some((_, Some("linear"))) => {
                let key = of_model("rope.scaling.factor");
                Some(factor.ok_or_else(|| wrong(&key, None, "a number above 0"))?)
            }
            Some((got, _)) => return Err(wrong(&key, Some(got), "\"none\" or \"linear\"")),
        };
        let scaling = match (self.factors(head_dim)?, factor) {
            (None, None) => Scaling::None,
            (None, Some(factor)) => Scaling::Linear { factor },
            (Some(own), None) => Scaling::Factors(own),
            (Some(own), Some(factor)) => {
                Scaling::Factors(own.into_iter().map(|own| own * factor as f32).collect())
            }
        };
        Ok(Rope { theta, scaling })
    }

    /// Returns what divides every frequency, under its newer or its older key.
    fn factor(&self) -> Result<Option<f64>, Error> {
        let (new, old) = (self.positive("rope.scaling.factor")?, self.positive("rope.scale_linear")?);
        match (new, old) {
            (Some(new), Some(old)) if new.total_cmp(&old).is_ne() => {
                let key = of_model("rope.scale_linear");
                let need = format!("{new}, the `{}`", of_model("rope.scaling.factor"));
                Err(wrong(&key, self.0.value(&key), &need))
            }
            _ => Ok(new.or(old)),
        }
    }

    /// Returns what divides each frequency, if the file has it.
    fn factors(&self, head_dim: usize) -> Result<Option<Vec<f32>>, Error> {
        let Ok(tensor) = self.0.tensor(FACTORS) else { return Ok(None) };
        let need = vec![head_dim / 2];
        if tensor.sizes != need {
            return Err(Error::Shape { got: tensor.sizes.to_vec(), need }.of(FACTORS));
        }
        let factors = dequantize(&tensor).map_err(|fault| Error::from(fault).of(FACTORS))?;
        match factors.iter().find(|factor| !(factor.is_finite() && **factor > 0.0)) {
            None => Ok(Some(factors)),
            Some(factor) => Err(Error::Field {
                field: FACTORS.into(),
                got: factor.to_string(),
                need: "numbers above 0".into(),
            }),
        }
    }

    fn size(&self, key: &str) -> Result<usize, Error> {
        let (key, need) = (of_model(key), format!("an integer from 1 to {LARGEST}"));
        let value = self.0.value(&key);
        let size = value.and_then(Value::whole).filter(|size| (1..=LARGEST as u64).contains(size));
        size.map(|size| size as usize).ok_or_else(|| wrong(&key, value, &need))
    }

    fn size_or(&self, key: &str, usual: usize) -> Result<usize, Error> {
        if self.0.value(&of_model(key)).is_some() { self.size(key) } else { Ok(usual) }
    }

    fn positive(&self, key: &str) -> Result<Option<f64>, Error> {
        let key = of_model(key);
        let Some(value) = self.0.value(&key) else { return Ok(None) };
        let sound = value.float().filter(|number| number.is_finite() && *number > 0.0);
        let need =
            if value.whole().is_some() { "a number above 0, stored as a float" } else { "a number above 0" };
        sound.map(Some).ok_or_else(|| wrong(&key, Some(value), need))
    }

    fn required(&self, key: &str) -> Result<f64, Error> {
        self.positive(key)?.ok_or_else(|| wrong(&of_model(key), None, "a number above 0"))
    }
}

/// Checks that a key has the value that changes nothing; fails with what is expected.
fn check_neutral(key: &str, value: &Value, head_dim: usize, positions: usize) -> Result<(), String> {
    let number = number(value);
    let only = |is_neutral: bool, need: String| {
        if is_neutral {
            Ok(())
        } else {
            Err(format!("{need} or no such key, as no other value is supported"))
        }
    };
    match key {
        "attention.sliding_window" => {
            let is_neutral = number.is_some_and(|window| window == 0.0 || window >= positions as f64);
            only(is_neutral, format!("0, at least the context length {positions},"))
        }
        "attention.scale" => {
            let usual = 1.0 / (head_dim as f64).sqrt();
            let is_neutral = number.is_some_and(|scale| (scale - usual).abs() <= 1e-6 * usual);
            only(is_neutral, format!("1 / sqrt({head_dim})"))
        }
        _ => match NEUTRAL.iter().find(|(neutral, _)| *neutral == key) {
            Some((_, neutral)) => {
                let is_flag = matches!(value, Value::Bool(_));
                let need = if is_flag { (*neutral != 0.0).to_string() } else { neutral.to_string() };
                only(number == Some(*neutral), need)
            }
            None => Err("no such key, as it may change what the model computes and is not supported".into()),
        },
    }
}

/// A number or a Boolean.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(flag) => Some(u8::from(*flag).into()),
        _ => value.whole().map(|number| number as f64).or_else(|| value.float()),
    }
}

fn of_model(key: &str) -> String {
    format!("{ARCHITECTURE}.{key}")
}

fn wrong(key: &str, got: Option<&Value>, need: &str) -> Error {
    let (field, need) = (key.to_owned(), need.to_owned());
    match got {
        None => Error::MissingField { field, need },
        Some(got) => Error::Field { field, got: got.to_string(), need },
    }
}
