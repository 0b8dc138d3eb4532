//! What is trained beside low-rank pairs: the embedding and the output layer, as a whole or some of their rows, and the
//! head of a classifier.
//!
//! ```text
//! modules_to_save          base_model.model.MODULE.weight                                  (V, H), of a head (C, H)
//! trainable_token_indices  base_model.model.MODULE.token_adapter.trainable_tokens_delta    (n, H), a row a token
//! ```
//!
//! Both begin as the checkpoint's weights, and are f32 here whatever type those have; `peft` trains a whole module in
//! the type of the checkpoint and rows in f32. Where the output layer is the embedding (`tie_word_embeddings`), what is
//! trained is as in `peft` 0.21: whole modules are copies, so that a trained embedding leaves the output layer as it
//! was; trained rows of the embedding are those of both, unless the output layer has other rows of its own.
//!
//! An adapter of a classifier trains its head always, and says so by two names, `classifier` and `score`, of which a
//! model has one: a Llama `score`. A head that the checkpoint lacks begins as transformers draws it, normal around 0.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::graph::Array;
use crate::graph::interpret::Values;
use crate::llama::{self, Error, Fields, Llama, SCORE};
use crate::oracles::ADAPTERS;

use super::fresh::Uniform;

/// A module that can be trained as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Module {
    /// The embedding.
    EmbedTokens,
    /// The output layer.
    LmHead,
    /// The head of a classifier.
    Score,
}

/// What is trained beside low-rank pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    /// Modules that are trained as a whole: `modules_to_save`.
    pub to_save: Vec<Module>,
    /// Tokens whose rows are trained: `trainable_token_indices`.
    pub tokens: BTreeMap<Module, Vec<usize>>,
}

/// A tensor that is trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainedTensor {
    /// Its name in files and in graphs.
    pub name: String,
    /// (V, H), (C, H) of a head, or a row for each token.
    pub shape: [usize; 2],
    module: Module,
}

const MODULES: [Module; 3] = [Module::EmbedTokens, Module::LmHead, Module::Score];

/// What `peft` calls the head of a classifier beside its name in a Llama.
const OTHER_HEAD: &str = "classifier";

impl Module {
    /// Its name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Module::EmbedTokens => "embed_tokens",
            Module::LmHead => "lm_head",
            Module::Score => "score",
        }
    }

    /// Its name in a model.
    pub fn path(self) -> &'static str {
        match self {
            Module::EmbedTokens => "model.embed_tokens",
            Module::LmHead => "lm_head",
            Module::Score => "score",
        }
    }

    /// That of a name in a list: `lm_head`, `model.embed_tokens`.
    pub fn called(name: &str) -> Option<Self> {
        MODULES.into_iter().find(|module| [module.name(), module.path()].contains(&name))
    }

    /// The name of its weight, trained as a whole.
    pub fn whole(self) -> String {
        format!("base_model.model.{}.weight", self.path())
    }

    /// The name of its trained rows.
    pub fn rows(self) -> String {
        format!("base_model.model.{}.token_adapter.trainable_tokens_delta", self.path())
    }

    /// The name of the input i32 (V) that says which trained row a token has; `n`, the number of rows, for none.
    pub fn slots(self) -> String {
        format!("trainable_tokens.{}", self.path())
    }

    /// The name of the weight that it begins as.
    pub(crate) fn stored(self, model: &llama::Config) -> &'static str {
        match self {
            Module::Score => SCORE,
            Module::LmHead if !model.tied => "lm_head.weight",
            Module::LmHead | Module::EmbedTokens => "model.embed_tokens.weight",
        }
    }
}

impl Modules {
    /// Nothing but the low-rank pairs.
    pub fn none() -> Self {
        Self::default()
    }

    /// What the fields of an `adapter_config.json` say.
    pub(super) fn of(fields: &Fields) -> Result<Self, Error> {
        let to_save =
            fields.get(TO_SAVE).map(|value| to_save(value).map_err(|need| fields.wrong(TO_SAVE, &need)));
        let tokens =
            fields.get(TOKENS).map(|value| tokens(value).map_err(|need| fields.wrong(TOKENS, &need)));
        let all = Self {
            to_save: to_save.transpose()?.unwrap_or_default(),
            tokens: tokens.transpose()?.unwrap_or_default(),
        };
        all.check().map_err(|need| fields.wrong(TOKENS, &need))?;
        Ok(all)
    }

    /// What two values of a config say, as `peft` understands them: a list of names, and a list of tokens or lists by
    /// module.
    ///
    /// Fails with what was expected.
    pub fn read(saved: Option<&Value>, rows: Option<&Value>) -> Result<Self, String> {
        let to_save = saved.map(to_save).transpose().map_err(|need| format!("{TO_SAVE}: expected {need}"))?;
        let tokens = rows.map(tokens).transpose().map_err(|need| format!("{TOKENS}: expected {need}"))?;
        let all = Self { to_save: to_save.unwrap_or_default(), tokens: tokens.unwrap_or_default() };
        Ok(all)
    }

    /// That no module is trained in both ways.
    ///
    /// Fails with what was expected.
    pub fn check(&self) -> Result<(), String> {
        match self.to_save.iter().find(|module| self.tokens.contains_key(module)) {
            Some(module) => Err(format!("no tokens of {}, which is trained as a whole", module.name())),
            None => Ok(()),
        }
    }

    /// Whether the head of a classifier is trained.
    pub fn has_head(&self) -> bool {
        self.to_save.contains(&Module::Score)
    }

    /// The same with the head of a classifier.
    #[must_use]
    pub fn with_head(mut self) -> Self {
        self.to_save.push(Module::Score);
        self.to_save.sort_unstable();
        self.to_save.dedup();
        self
    }

    /// `modules_to_save`, as `peft` reads it.
    pub fn to_save_as_json(&self) -> Value {
        let other = self.has_head().then_some(OTHER_HEAD);
        let names: Vec<&str> =
            other.into_iter().chain(self.to_save.iter().map(|module| module.name())).collect();
        if names.is_empty() { Value::Null } else { json!(names) }
    }

    /// `trainable_token_indices`, as `peft` reads it.
    pub fn tokens_as_json(&self) -> Value {
        let by_name: BTreeMap<&str, &Vec<usize>> =
            self.tokens.iter().map(|(module, tokens)| (module.name(), tokens)).collect();
        if by_name.is_empty() { Value::Null } else { json!(by_name) }
    }

    /// The tokens whose rows are trained, by the module that holds them: equal lists of an embedding that is the output
    /// layer, too, are one.
    fn held(&self, is_tied: bool) -> impl Iterator<Item = (Module, &[usize])> {
        let of = |module: Module| self.tokens.get(&module);
        let is_one = is_tied && of(Module::EmbedTokens) == of(Module::LmHead);
        let held = self.tokens.iter().filter(move |(module, _)| !is_one || **module == Module::EmbedTokens);
        held.map(|(module, tokens)| (*module, tokens.as_slice()))
    }

    /// The tokens whose rows of a module are trained: where the output layer is the embedding, its tokens are those of
    /// the embedding if it has none of its own. With them the module that holds the rows.
    pub fn rows_of(&self, module: Module, is_tied: bool) -> Option<(Module, &[usize])> {
        let of = |module: Module| self.held(is_tied).find(|(holder, _)| *holder == module);
        of(module).or_else(|| (is_tied && module == Module::LmHead).then(|| of(Module::EmbedTokens))?)
    }

    /// Every tensor that is trained.
    ///
    /// Fails where a token is none of the model's, and where the embedding has trained rows and the output layer, which
    /// is the same weight, is trained as a whole: `peft` trains no such pair.
    pub fn tensors(&self, model: &llama::Config) -> Result<Vec<TrainedTensor>, Error> {
        ADAPTERS.count();
        self.fits(model)?;
        let rows = |module: Module| match (&model.classifier, module) {
            (Some(classifier), Module::Score) => classifier.labels.len(),
            _ => model.vocab,
        };
        let whole = |module: &Module| TrainedTensor {
            name: module.whole(),
            shape: [rows(*module), model.hidden],
            module: *module,
        };
        let mut all: Vec<TrainedTensor> = self.to_save.iter().map(whole).collect();
        let wrong = |got: String, need: String| Err(Error::Field { field: TOKENS.into(), got, need });
        let has_rows = self.tokens.contains_key(&Module::EmbedTokens);
        if model.tied && has_rows && self.to_save.contains(&Module::LmHead) {
            let need =
                "no rows of embed_tokens beside lm_head as a whole, for both are one weight of the model";
            return wrong(self.tokens_as_json().to_string(), need.to_owned());
        }
        for (module, tokens) in self.held(model.tied) {
            if let Some(token) = tokens.iter().find(|token| **token >= model.vocab) {
                return wrong(
                    token.to_string(),
                    format!("tokens below {}, the size of the vocabulary", model.vocab),
                );
            }
            all.push(TrainedTensor { name: module.rows(), shape: [tokens.len(), model.hidden], module });
        }
        Ok(all)
    }

    /// That the model has the modules, and, if it is a classifier, that its head is trained.
    fn fits(&self, model: &llama::Config) -> Result<(), Error> {
        let has_output_layer = model.classifier.is_none();
        let outer = if has_output_layer { Module::Score } else { Module::LmHead };
        let wrong = |need: &str| {
            let got = self.to_save_as_json().to_string();
            Err(Error::Field { field: TO_SAVE.into(), got, need: need.to_owned() })
        };
        if self.to_save.contains(&outer) || self.tokens.contains_key(&outer) {
            return wrong(if has_output_layer {
                "no score beside a model that predicts the next token"
            } else {
                "no lm_head beside a classifier, which has none"
            });
        }
        if !has_output_layer && !self.has_head() {
            return wrong("score, the head of a classifier, among them");
        }
        Ok(())
    }

    /// What they begin as; a head that the checkpoint lacks is drawn from `seed`.
    ///
    /// Fails as [`Self::tensors`] does, and where a weight is stored in NF4.
    pub fn start(&self, model: &Llama, seed: u64) -> Result<Values<f32>, Error> {
        let mut values = Values::new();
        for TrainedTensor { name, shape, module } in self.tensors(&model.config)? {
            if module == Module::Score && model.has_new_head() {
                values.insert(name, new_head(&model.config, shape, seed));
                continue;
            }
            let stored = module.stored(&model.config);
            let Some(weight) = model.dense::<f32>(stored)? else {
                let got = format!("{}, which is stored in NF4", module.name());
                let need = "modules that are stored as numbers".to_owned();
                let field = if self.to_save.contains(&module) { TO_SAVE } else { TOKENS };
                return Err(Error::Field { field: field.into(), got, need });
            };
            let numbers: Vec<f64> = match self.tokens.get(&module) {
                None => weight.wide(),
                Some(tokens) => {
                    let row = |token: &usize| &weight.as_floats()[token * shape[1]..][..shape[1]];
                    tokens.iter().flat_map(row).copied().map(f64::from).collect()
                }
            };
            values.insert(name, Array::floats(crate::graph::Dtype::F32, &shape, numbers));
        }
        Ok(values)
    }

    /// The inputs that say which trained row each token has.
    pub fn slots<R: crate::graph::Real>(&self, vocab: usize, is_tied: bool) -> Values<R> {
        let slots = |(module, tokens): (Module, &[usize])| {
            let mut slots = vec![tokens.len() as i32; vocab];
            tokens.iter().enumerate().for_each(|(slot, token)| slots[*token] = slot as i32);
            (module.slots(), Array::integers(&[vocab], slots))
        };
        self.held(is_tied).map(slots).collect()
    }
}

/// A head that was never trained: normal around 0, as wide as the model's `initializer_range`.
fn new_head(model: &llama::Config, shape: [usize; 2], seed: u64) -> Array<f32> {
    let spread = model.classifier.as_ref().map_or(0.0, |classifier| classifier.initializer_range);
    let mut numbers = Uniform::new(!seed); // not those of the pairs
    let drawn = (0..shape[0] * shape[1]).map(|_| spread * numbers.normal());
    Array::floats(crate::graph::Dtype::F32, &shape, drawn)
}

const TO_SAVE: &str = "modules_to_save";
const TOKENS: &str = "trainable_token_indices";

/// A list of modules, each once. `classifier` names the head of other models.
fn to_save(value: &Value) -> Result<Vec<Module>, String> {
    let need =
        || "a list of embed_tokens and lm_head, or score of a classifier, each at most once".to_owned();
    let names = value.as_array().ok_or_else(need)?.iter().filter(|name| *name != OTHER_HEAD);
    let modules = names.map(|name| Module::called(name.as_str()?)).collect::<Option<Vec<Module>>>();
    let mut modules = modules.ok_or_else(need)?;
    modules.sort_unstable();
    if modules.windows(2).any(|two| two[0] == two[1]) { Err(need()) } else { Ok(modules) }
}

/// A module that has a row a token.
fn with_rows(name: &str) -> Option<Module> {
    Module::called(name).filter(|module| *module != Module::Score)
}

/// The tokens of the embedding, or of each module, each at most once.
fn tokens(value: &Value) -> Result<BTreeMap<Module, Vec<usize>>, String> {
    let need = || "a list of tokens, each once, or such lists by embed_tokens and lm_head".to_owned();
    let list = |value: &Value| {
        let tokens = value.as_array()?.iter().map(|token| Some(token.as_u64()? as usize));
        let tokens = tokens.collect::<Option<Vec<usize>>>()?;
        let mut sorted = tokens.clone();
        sorted.sort_unstable();
        let is_doubled = sorted.windows(2).any(|two| two[0] == two[1]);
        (!is_doubled).then_some(tokens)
    };
    let by_module = match value {
        Value::Object(map) => {
            map.iter().map(|(name, value)| Some((with_rows(name)?, list(value)?))).collect()
        }
        other => list(other).map(|tokens| BTreeMap::from([(Module::EmbedTokens, tokens)])),
    };
    let mut by_module: BTreeMap<Module, Vec<usize>> = by_module.ok_or_else(need)?;
    by_module.retain(|_, tokens| !tokens.is_empty());
    Ok(by_module)
}
