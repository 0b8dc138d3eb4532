//! The adapter that a run begins with: one that changes nothing yet, or that of `adapter_name_or_path`.
//!
//! An adapter that is there has its own rank, scale, targets and modules, and the run goes on with those. What the
//! config states of them has to be the same: a setting that is stated is never overridden in silence.

use std::fmt;
use std::path::{Path, PathBuf};

use reference::llama::{self, Llama};
use reference::lora::{self, Adapter};

use super::config::{Config, ToSave, Tokens};
use crate::output::Failure;

/// The adapter before the first step.
pub fn first(config: &Config, model: &Llama) -> Result<Adapter, Failure> {
    let settings = self::config(config, &model.config)?;
    let Some(folder) = &config.adapter_name_or_path else {
        return Adapter::beside(settings, model, config.seed).map_err(Failure::usage);
    };
    let mut adapter = Adapter::open(folder, &model.config).map_err(Failure::usage)?;
    adapter.config = settings;
    Ok(adapter)
}

/// Its settings.
///
/// Fails where the adapter that is there cannot be read, and with all that the config states otherwise than it has it.
pub fn config(config: &Config, model: &llama::Config) -> Result<lora::Config, Failure> {
    let Some(folder) = &config.adapter_name_or_path else { return Ok(config.adapter()) };
    let path = settings_of(Path::new(folder));
    let named = |error| config.lookup.explain("adapter_name_or_path", error);
    let own = lora::Config::read(&path).map_err(named)?;
    let mut all = differences(&own, &config.adapter(), model);
    all.retain(|one| config.stated.contains(one.key));
    if !all.is_empty() {
        let keys: Vec<&str> = all.iter().map(|one| one.key).collect();
        let all: Vec<String> = all.iter().map(Difference::to_string).collect();
        return Err(Failure::Usage(format!(
            "{}: {}; leave out {} to go on with this adapter, or adapter_name_or_path to begin a new one",
            path.display(),
            all.join("; "),
            keys.join(", ")
        )));
    }
    Ok(lora::Config { dropout: config.lora_dropout.unwrap_or(own.dropout), ..own })
}

fn settings_of(adapter: &Path) -> PathBuf {
    adapter.join("adapter_config.json")
}

/// A key that two adapters have different values of, as TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key of a config.
    pub key: &'static str,
    /// The value of the adapter that is there.
    pub there: String,
    /// The value that is asked for.
    pub here: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found {}", self.key, self.there, self.here)
    }
}

/// What two adapters beside a model have otherwise. Targets are the same if they are the same projections, however they
/// are named, and equal ranks with equal scales are the same pair, however it is written.
pub fn differences(there: &lora::Config, here: &lora::Config, model: &llama::Config) -> Vec<Difference> {
    let [was, is] = [there, here].map(|one| (one.rank, one.scale().to_bits()));
    let is_same_targets = match (there.needs(model), here.needs(model)) {
        (Ok(there), Ok(here)) => names(&there).eq(names(&here)),
        _ => there.targets == here.targets,
    };
    let counts = |key: &str| match key {
        "lora_alpha" | "use_rslora" => was != is,
        "lora_target_modules" => !is_same_targets,
        _ => true,
    };
    let pairs = keys(there).into_iter().zip(keys(here));
    let differing = pairs.filter(|(there, here)| there != here && counts(there.0));
    differing.map(|((key, there), (_, here))| Difference { key, there, here }).collect()
}

fn names(needs: &[(String, [usize; 2])]) -> impl Iterator<Item = &str> {
    needs.iter().map(|(name, _)| name.as_str())
}

/// The keys of a config that an adapter has, and their values.
fn keys(adapter: &lora::Config) -> Vec<(&'static str, String)> {
    let modules = &adapter.modules;
    let config = Config {
        lora_r: adapter.rank as u64,
        lora_alpha: adapter.alpha,
        use_rslora: adapter.rank_stabilized,
        lora_target_modules: adapter.targets.clone(),
        lora_modules_to_save: ToSave(modules.to_save.clone()),
        trainable_token_indices: Tokens(modules.tokens.clone()),
        ..Config::default()
    };
    let own = |key: &str| OWN.contains(&key);
    let shown = |(key, value): (_, Option<String>)| (key, value.unwrap_or_else(|| "[]".to_owned()));
    config.entries().into_iter().filter(|(key, _)| own(key)).map(shown).collect()
}

/// The keys that an `adapter_config.json` decides; its dropout is a config's to change.
const OWN: [&str; 6] = [
    "lora_r",
    "lora_alpha",
    "lora_target_modules",
    "use_rslora",
    "lora_modules_to_save",
    "trainable_token_indices",
];
