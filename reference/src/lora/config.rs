//! What an `adapter_config.json` says.

use std::path::Path;

use serde_json::{Value, json};

use super::{Modules, keys};
use crate::llama::{self, Error, Fields};
use crate::oracles::ADAPTERS;

/// The settings of an adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// r: rows of A, columns of B.
    pub rank: usize,
    /// The numerator of the scale.
    pub alpha: f64,
    /// Whether the scale is alpha / sqrt r, and not alpha / r.
    pub rank_stabilized: bool,
    /// The probability with which an element of a module's input is left out of the low-rank product, in training.
    pub dropout: f64,
    /// The modules beside which it stands.
    pub targets: Targets,
    /// What is trained beside it, and kept in its file.
    pub modules: Modules,
    /// The model that it was made for, as the file names it.
    pub base: Option<String>,
}

/// The modules beside which an adapter stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Every projection of every layer: `all-linear`.
    AllLinear,
    /// Those of these names, or whose name ends in a dot and one of these.
    Named(Vec<String>),
}

/// The task of an adapter beside a classifier.
const CLASSIFICATION: &str = "SEQ_CLS";

/// The largest rank that makes sense.
const LARGEST_RANK: usize = 1 << 16;

/// Fields that say nothing about the result, or are looked at one by one.
const KNOWN: [&str; 22] = [
    "peft_type",
    "task_type",
    "r",
    "lora_alpha",
    "lora_dropout",
    "target_modules",
    "modules_to_save",
    "trainable_token_indices",
    "use_rslora",
    "bias",
    "init_lora_weights",
    "base_model_name_or_path",
    "inference_mode",
    "revision",
    "auto_mapping",
    "peft_version",
    "megatron_core",
    "megatron_config",
    "loftq_config",
    "eva_config",
    "qalora_group_size",
    "lora_ga_config",
];

impl Config {
    /// Low-rank pairs beside some modules and nothing else, without dropout and with the scale alpha / r.
    pub fn new(rank: usize, alpha: f64, targets: Targets) -> Self {
        let modules = Modules::none();
        Self { rank, alpha, rank_stabilized: false, dropout: 0.0, targets, modules, base: None }
    }

    /// Reads an `adapter_config.json`.
    ///
    /// Fails where the file is missing or no JSON, where a field is missing or makes no sense, and where a field asks
    /// for something that would change the result and is not known here: any field that is not one of the settings
    /// above and is neither null, false, 0 nor empty.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Fields::read(path).and_then(|fields| Self::of(&fields)).map_err(|fault| fault.at(path))
    }

    fn of(fields: &Fields) -> Result<Self, Error> {
        supported(fields)?;
        let missing = |field: &str, need: &str| fields.wrong(field, need);
        Ok(Self {
            rank: fields.size("r", LARGEST_RANK)?.ok_or_else(|| missing("r", "an integer above 0"))?,
            alpha: fields.positive("lora_alpha")?.ok_or_else(|| missing("lora_alpha", "a number above 0"))?,
            rank_stabilized: fields.flag("use_rslora")?,
            dropout: dropout(fields)?,
            targets: targets(fields)?,
            modules: modules_of(fields)?,
            base: fields.text("base_model_name_or_path")?,
        })
    }

    /// The same as JSON, as `peft` reads it.
    pub fn to_json(&self) -> Value {
        let targets = match &self.targets {
            Targets::AllLinear => json!("all-linear"),
            Targets::Named(names) => json!(names),
        };
        let whole = self.alpha.fract() == 0.0 && self.alpha < 1e9;
        json!({
            "peft_type": "LORA",
            "task_type": if self.modules.has_head() { CLASSIFICATION } else { "CAUSAL_LM" },
            "base_model_name_or_path": self.base,
            "r": self.rank,
            "lora_alpha": if whole { json!(self.alpha as u64) } else { json!(self.alpha) },
            "lora_dropout": self.dropout,
            "target_modules": targets,
            "use_rslora": self.rank_stabilized,
            "use_dora": false,
            "bias": "none",
            "fan_in_fan_out": false,
            "init_lora_weights": true,
            "modules_to_save": self.modules.to_save_as_json(),
            "trainable_token_indices": self.modules.tokens_as_json(),
            "layers_to_transform": null,
            "rank_pattern": {},
            "alpha_pattern": {},
            "inference_mode": true,
        })
    }

    /// What the low-rank product is multiplied with.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.rank_stabilized { rank.sqrt() } else { rank }
    }

    /// Whether it stands beside a projection, such as `model.layers.0.mlp.up_proj`.
    pub fn covers(&self, module: &str) -> bool {
        ADAPTERS.count();
        match &self.targets {
            Targets::AllLinear => true,
            Targets::Named(names) => names.iter().any(|name| is_called(module, name)),
        }
    }

    /// Name and shape of A and of B beside a projection (out, in).
    pub fn pair(&self, module: &str, outputs: usize, inputs: usize) -> [(String, [usize; 2]); 2] {
        ADAPTERS.count();
        let [a, b] = keys(module);
        [(a, [self.rank, inputs]), (b, [outputs, self.rank])]
    }

    /// Name and shape of every tensor of an adapter of a model: A, B, A, B, ..
    ///
    /// Fails where a target names no projection of the model.
    pub fn needs(&self, model: &llama::Config) -> Result<Vec<(String, [usize; 2])>, Error> {
        ADAPTERS.count();
        let modules: Vec<(String, usize, usize)> = modules(model).collect();
        if let Targets::Named(names) = &self.targets {
            let nothing = |name: &&String| !modules.iter().any(|(module, ..)| is_called(module, name));
            if let Some(name) = names.iter().find(nothing) {
                return Err(no_such_target(name));
            }
        }
        let covered = modules.into_iter().filter(|(module, ..)| self.covers(module));
        Ok(covered.flat_map(|(module, outputs, inputs)| self.pair(&module, outputs, inputs)).collect())
    }
}

/// Every projection of a model, with its output and input sizes.
fn modules(model: &llama::Config) -> impl Iterator<Item = (String, usize, usize)> {
    let of_layer = |layer: usize| {
        let named = move |(name, outputs, inputs)| (format!("model.layers.{layer}.{name}"), outputs, inputs);
        model.projections().into_iter().map(named)
    };
    (0..model.layers).flat_map(of_layer)
}

fn is_called(module: &str, name: &str) -> bool {
    module.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn no_such_target(name: &str) -> Error {
    Error::Field {
        field: "target_modules".to_owned(),
        got: format!("\"{name}\""),
        need: "the name of a projection of a layer, such as q_proj".to_owned(),
    }
}

/// That it is a plain adapter.
fn supported(fields: &Fields) -> Result<(), Error> {
    if fields.get("peft_type").is_none_or(|got| got != "LORA") {
        return Err(fields.wrong("peft_type", "\"LORA\""));
    }
    fields.only("bias", "none")?;
    let own = |value: &Value| {
        value.is_boolean() || ["gaussian", "orthogonal", "eva"].iter().any(|own| value == own)
    };
    if fields.get("init_lora_weights").is_some_and(|value| !own(value)) {
        return Err(fields
            .wrong("init_lora_weights", "an initialisation that leaves the model's weights as they are"));
    }
    let asks = |field: &&str| !KNOWN.contains(field) && !fields.get(field).is_none_or(is_nothing);
    match fields.names().find(asks) {
        Some(field) => Err(fields.wrong(field, "no value (unsupported field)")),
        None => Ok(()),
    }
}

/// What is trained beside the pairs: of a classifier, its head always.
fn modules_of(fields: &Fields) -> Result<Modules, Error> {
    let modules = Modules::of(fields)?;
    let is_classifier = fields.get("task_type").is_some_and(|task| task == CLASSIFICATION);
    Ok(if is_classifier { modules.with_head() } else { modules })
}

/// Whether a field's value asks for nothing.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

fn dropout(fields: &Fields) -> Result<f64, Error> {
    match fields.get("lora_dropout") {
        None | Some(Value::Null) => Ok(0.0),
        Some(value) => match value.as_f64().filter(|share| (0.0..1.0).contains(share)) {
            Some(share) => Ok(share),
            None => Err(fields.wrong("lora_dropout", "a number of at least 0 and below 1")),
        },
    }
}

fn targets(fields: &Fields) -> Result<Targets, Error> {
    let wrong = || fields.wrong("target_modules", "\"all-linear\" or a list of names");
    match fields.get("target_modules") {
        Some(Value::String(all)) if all == "all-linear" => Ok(Targets::AllLinear),
        Some(Value::Array(names)) if !names.is_empty() => {
            let names = names.iter().map(|name| name.as_str().map(str::to_owned));
            names.collect::<Option<_>>().map(Targets::Named).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}
