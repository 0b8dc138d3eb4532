//! The config of a run: flat TOML with the keys of TRL's command line.
//!
//! A key means what it means there and has the same default, unless its line below says otherwise. A key that is not
//! known is an error, and so is a value that this trainer cannot do; one message has all of them. For a key of another
//! trainer it says what there is instead ([`foreign`]); such a key is accepted only with a value that asks for what
//! this trainer does anyway. Relative paths are relative to the config's folder ([`paths`](super::paths)).
//!
//! Source of names and defaults: `ModelConfig`, `ScriptArguments` and `SFTConfig` of the `trl` library, 1.16, and
//! `TrainingArguments` of `transformers`, 5.23.

mod check;
mod foreign;
mod parts;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kernels::Which;
use reference::graph::Dtype;
use reference::lora::Targets;
use toml::{Table, Value};

use super::paths::Lookup;
use super::yaml;
use crate::output::Failure;
use value::Read;
pub use value::{
    Axes, Compute, Evaluation, Length, Names, Objective, PipelineSchedule, ProblemType, QuantType,
    RewardScale, Sampling, Scheduler, Task, ToSave, Tokens,
};

/// Declares [`Config`], its defaults, and a line of documentation for each key.
macro_rules! keys {
    ($($(#[doc = $doc:literal])+ $key:ident: $type:ty = $default:expr,)+) => {
        /// The settings of a run.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $($(#[doc = $doc])+ pub $key: $type,)+
            /// The keys that the file or the command line sets; all others have their defaults.
            pub stated: BTreeSet<&'static str>,
            /// Where its relative paths lead.
            pub lookup: Lookup,
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($key: $default,)+ stated: BTreeSet::new(), lookup: Lookup::default() }
            }
        }

        /// Every key with what it means.
        pub const KEYS: &[(&str, &str)] = &[$((stringify!($key), concat!($($doc),+)),)+];

        impl Config {
            /// Sets a key that is known.
            fn set(&mut self, key: &str, value: &Value) -> Result<(), String> {
                match key {
                    $(stringify!($key) => {
                        self.$key = <$type>::read(value).ok_or_else(|| wrong::<$type>(key, value))?;
                        self.stated.insert(stringify!($key));
                    })+
                    _ if foreign::is_obeyed(key, value) => {}
                    _ => return Err(unknown(key, value)),
                }
                Ok(())
            }

            /// Each key with its value as TOML.
            pub(super) fn entries(&self) -> Vec<(&'static str, Option<String>)> {
                vec![$((stringify!($key), self.$key.shown()),)+]
            }
        }
    };
}

keys! {
    /// The model: a folder, or a repository in the local cache of the Hugging Face hub.
    model_name_or_path: String = String::new(),
    /// The folder of the tokenizer, if it is not the model's.
    tokenizer_name_or_path: Option<String> = None,
    /// The folder of an adapter to start from, whose rank, scale, targets and modules the run has; without one, A is
    /// drawn from `seed` and B is 0.
    adapter_name_or_path: Option<String> = None,
    /// What is trained for: `sft`, `dpo`, `orpo`, `kto`, `simpo` or `grpo`. This trainer's own key: TRL has a trainer
    /// for each.
    objective: Objective = Objective::Sft,
    /// The data: a file with a JSON object a line, with `messages` (and `tools`), or `prompt` and `completion` (both
    /// texts or both messages), or `text`; pairs have `prompt`, `chosen` and `rejected`, answers for kto `prompt`,
    /// `completion` and `label`, and for grpo `prompt`, with `completions` and `rewards` where they are logged.
    dataset_name: String = String::new(),
    /// What is trained: `CAUSAL_LM`, the next token; or `SEQ_CLS`, which class a text belongs to, from lines with a
    /// `text`, or `messages`, and a `label`. peft's name for the task of an adapter.
    task_type: Task = Task::CausalLm,
    /// The outputs of a classifier: by default those of the model, or 2.
    num_labels: Option<u64> = None,
    /// The names of a classifier's outputs: a list, or a table by their numbers.
    id2label: Names = Names(Vec::new()),
    /// What a classifier answers: `single_label_classification`, `multi_label_classification` or `regression`; by default
    /// what the model says, a regression with one output, and else what the labels of the data are.
    problem_type: Option<ProblemType> = None,
    /// Where everything that is written goes.
    output_dir: String = "trainer_output".to_owned(),
    /// Whether the layers' dense projections are quantised to 4 bits while the model is loaded.
    load_in_4bit: bool = false,
    /// The 4-bit type: `nf4`.
    bnb_4bit_quant_type: QuantType = QuantType::Nf4,
    /// Whether the scales are quantised, too, to 8 bits.
    use_bnb_nested_quant: bool = false,
    /// r: the rank of the adapter.
    lora_r: u64 = 16,
    /// The scale of the adapter is `lora_alpha / lora_r`.
    lora_alpha: f64 = 32.0,
    /// The share of a module's inputs that the adapter does not see, drawn anew for each micro-batch; by default that
    /// of the adapter to start from, or 0.05, and 0 for every objective but sft.
    lora_dropout: Option<f64> = None,
    /// The modules beside which the adapter stands: a list of names or "all-linear".
    lora_target_modules: Targets = Targets::Named(vec!["q_proj".to_owned(), "v_proj".to_owned()]),
    /// Whether the scale is `lora_alpha / sqrt(lora_r)`.
    use_rslora: bool = false,
    /// Modules that are trained as a whole, in float32, beside the low-rank pairs: `embed_tokens`, `lm_head`. The head of a
    /// classifier, `score`, always is.
    lora_modules_to_save: ToSave = ToSave(Vec::new()),
    /// Tokens whose rows of the embedding are trained, as in peft's `LoraConfig`: a list, or a table of lists by
    /// `embed_tokens` and `lm_head`.
    trainable_token_indices: Tokens = Tokens(BTreeMap::new()),
    /// Steps of the run; 0 or less: what `num_train_epochs` makes.
    max_steps: i64 = -1,
    /// Times that the data is gone through.
    num_train_epochs: f64 = 3.0,
    /// Rows of a micro-batch.
    per_device_train_batch_size: u64 = 8,
    /// Micro-batches of a step.
    gradient_accumulation_steps: u64 = 1,
    /// The largest learning rate; by default 2e-5, and 1e-6 for every objective but sft.
    learning_rate: f64 = 2e-5,
    /// What the rate does after the warm-up: `linear`, `cosine`, `constant` or `constant_with_warmup`.
    lr_scheduler_type: Scheduler = Scheduler::Linear,
    /// Steps in which the rate rises from 0.
    warmup_steps: u64 = 0,
    /// What a parameter loses each step, as a share of the learning rate.
    weight_decay: f64 = 0.0,
    /// What AdamW keeps of the mean of the gradients.
    adam_beta1: f64 = 0.9,
    /// What AdamW keeps of the mean of their squares.
    adam_beta2: f64 = 0.999,
    /// What AdamW adds to the root; above 0 in float32.
    adam_epsilon: f64 = 1e-8,
    /// The largest norm of a step's gradient; 0: any.
    max_grad_norm: f64 = 1.0,
    /// Tokens that a row is cut to; false: none is cut.
    max_length: Length = Length(Some(1024)),
    /// The largest area of an image, in pixels, to which a larger one is resized; by default the model's own. A name of
    /// Qwen2-VL's processor, not of TRL.
    max_pixels: Option<u64> = None,
    /// Whether rows are packed into rows of at most `max_length` tokens; each attends to itself only, from position 0
    /// on.
    packing: bool = false,
    /// Whether only the assistant's tokens are trained; the chat template has to mark them.
    assistant_only_loss: bool = false,
    /// Whether rows are drawn in a random order, anew each epoch, or taken in the file's: random or sequential, which is
    /// kto's default.
    train_sampling_strategy: Sampling = Sampling::Random,
    /// What the order of rows and a new adapter are drawn from. Draws are this trainer's own, not torch's.
    seed: u64 = 42,
    /// The type of the residual stream and of the products: float32, bfloat16, or float16, whose loss is scaled as with
    /// `fp16` of transformers. The adapter stays in float32.
    dtype: Compute = Compute(Dtype::F32),
    /// Bytes that the loss may take at a time: logits are then computed in chunks, of the trained tokens only; false:
    /// those of a micro-batch at once. This trainer's own key.
    loss_chunk_bytes: Length = Length(None),
    /// Where the run is computed: `cpu`, `cuda` or `cuda:1`; by default on the first card, if one answers and NVRTC and
    /// cuBLASLt are there, else on the CPU. Ranks are on the CPU. This trainer's own key.
    device: Which = Which::Auto,
    /// Ranks that share the run, each a thread with a device of its own and its share of the cores. A step stays what
    /// it is: its `gradient_accumulation_steps` micro-batches are dealt out to the ranks, so a run has the losses that
    /// it has on one. As many processes under torchrun make a step as many times as large. By default those of
    /// `mesh`, or 1. This trainer's own key.
    ranks: Option<u64> = None,
    /// How the ranks lie, from the slowest axis to the fastest: `fsdp` (shards, by default all ranks), `tp` (they share
    /// each layer), `pp` (stages of layers), such as "fsdp=2,tp=2". This trainer's own key.
    mesh: Axes = Axes(Vec::new()),
    /// In which order the stages of a pipeline work (torchtitan's key): 1F1B; GPipe; ZB-H1, which splits gradients of
    /// inputs from those of weights; or Fill, challenge B's, which computes layers again while a rank waits.
    pipeline_parallel_schedule: PipelineSchedule = PipelineSchedule::OneFOneB,
    /// Whether of a layer its input alone is kept, and the rest computed again for the backward; without it what costs
    /// next to nothing is.
    gradient_checkpointing: bool = false,
    /// How dear it is to leave the reference model, the adapter as it was at the start; of orpo what the odds count, of
    /// simpo what the difference of the means is multiplied with. By default 0.1, for grpo 0.
    beta: Option<f64> = None,
    /// The loss of dpo: sigmoid, ipo, hinge or robust; of grpo: dapo, grpo, bnpo or `dr_grpo`. By default the first.
    loss_type: Option<String> = None,
    /// The share of pairs that are the wrong way round, of dpo's robust loss and of simpo; by default 0. As in TRL, the
    /// other losses of dpo leave it out.
    label_smoothing: Option<f64> = None,
    /// The margin by which the chosen answer of simpo has to win; by default 0.5.
    simpo_gamma: Option<f64> = None,
    /// What the likelihood of the chosen answers counts beside simpo; by default 0, where TRL's `CPOConfig` has 1.
    cpo_alpha: Option<f64> = None,
    /// What a desirable answer of kto counts; by default 1.
    desirable_weight: Option<f64> = None,
    /// What another answer of kto counts; by default 1.
    undesirable_weight: Option<f64> = None,
    /// Completions of a prompt of grpo; by default those of a line where they are logged, else 8.
    num_generations: Option<u64> = None,
    /// Tokens of a completion of grpo: logged ones are cut to it, generated ones end there, and `dr_grpo` divides by it;
    /// by default 512.
    max_completion_length: Option<u64> = None,
    /// What logits of grpo are divided by, where completions are drawn and trained; by default 1.
    temperature: Option<f64> = None,
    /// How far a ratio of grpo may go below 1; by default 0.2.
    epsilon: Option<f64> = None,
    /// How far a ratio of grpo may go above 1; by default `epsilon`.
    epsilon_high: Option<f64> = None,
    /// The most that a ratio of grpo which is not clipped may be; by default any.
    delta: Option<f64> = None,
    /// What a ratio of grpo is of: token or sequence (GSPO); by default token.
    importance_sampling_level: Option<String> = None,
    /// What rewards of grpo are divided by: their deviation in the group (or true), in the batch, or none (or false);
    /// by default group.
    scale_rewards: Option<RewardScale> = None,
    /// Whether grpo's distance from the reference is weighed by the ratio; by default true.
    use_bias_correction_kl: Option<bool> = None,
    /// Whether completions of grpo that were cut have no loss; by default false.
    mask_truncated_completions: Option<bool> = None,
    /// The command line that judges what grpo generates: it is given a JSON object a line, with `prompt`, `completion`
    /// and whatever the data's line has, and answers a number a line. This trainer's own key: TRL takes a function.
    reward_program: Option<String> = None,
    /// Seconds that `reward_program` may take for a step; by default 60. This trainer's own key.
    reward_timeout: Option<f64> = None,
    /// Steps between two lines on the screen; `metrics.jsonl` has every step.
    logging_steps: u64 = 10,
    /// The data of evaluations, a file as `dataset_name`. This trainer's own key: TRL names a split of its data set.
    eval_dataset_name: Option<String> = None,
    /// When it is evaluated, beside the end: `no`, every `eval_steps` (`steps`), or after each `epoch`.
    eval_strategy: Evaluation = Evaluation::No,
    /// Steps between two evaluations; by default `logging_steps`.
    eval_steps: Option<u64> = None,
    /// Rows of a batch of an evaluation.
    per_device_eval_batch_size: u64 = 8,
    /// Steps between two checkpoints; the last step makes one, too.
    save_steps: u64 = 500,
    /// Checkpoints that are kept, the newest ones; false: all.
    save_total_limit: Length = Length(None),
    /// Whether the run goes on from the newest whole checkpoint in `output_dir`, if there is one; it has to have been
    /// trained on the same.
    resume_from_checkpoint: bool = false,
}

fn wrong<T: Read>(key: &str, value: &Value) -> String {
    let hint = match key {
        "resume_from_checkpoint" if value.is_str() => {
            "; true resumes from the newest checkpoint of output_dir; to start from another one, make it the \
             adapter_name_or_path of a run in a new output_dir"
        }
        _ => "",
    };
    format!("{key}: expected {}, found {}{hint}", T::need_of(value), shown(value))
}

/// The most characters of a value that an error shows.
const MOST_SHOWN: usize = 100;

/// A value as an error shows it: short.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Float(number) if number.is_finite() && number.abs() >= 1e16 => format!("{number:e}"),
        value => value.to_string(),
    };
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}

/// The most edits between a misspelt key and the key that an error suggests for it.
const MOST_EDITS: usize = 2;

fn unknown(key: &str, value: &Value) -> String {
    let reason = match foreign::instead(key) {
        Some(instead) => instead.to_owned(),
        None if value.is_table() => "the keys of a config stand outside of tables".to_owned(),
        None => match nearest(key).as_slice() {
            [] => "`trainer train --example DIR` writes every key".to_owned(),
            names => format!("did you mean {}?", names.join(" or ")),
        },
    };
    format!("unknown key {key:?}; {reason}")
}

/// The keys with the fewest edits from a misspelt one, if these are few for its length.
fn nearest(key: &str) -> Vec<&'static str> {
    let edits = |name: &str| strsim::osa_distance(key, name);
    let least = KEYS.iter().map(|(name, _)| edits(name)).min().unwrap_or(usize::MAX);
    let is_near = least <= MOST_EDITS && 3 * least <= key.len();
    let names = KEYS.iter().map(|(name, _)| *name).filter(|name| is_near && edits(name) == least);
    names.collect()
}

/// The parser's message, with the bounds of whole numbers where one is beyond them.
fn unparsed(error: &toml::de::Error) -> String {
    let message = error.to_string().trim_end().to_owned();
    let is_beyond =
        ["u64 value was too large", "integer"].iter().any(|words| error.message().contains(words));
    if is_beyond {
        format!("{message}; expected a whole number from {} to {}", i64::MIN, i64::MAX)
    } else {
        message
    }
}

/// The value of a setting of the command line: TOML, or else a text.
fn setting(text: &str) -> Result<Value, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text).replace('_', "");
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match format!("v = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("v")) {
        Some(value) => Ok(value),
        None if is_whole && digits.parse::<i64>().is_err() => {
            Err(format!("expected a whole number from {} to {}, found {text}", i64::MIN, i64::MAX))
        }
        None => Ok(Value::from(text)),
    }
}

impl Config {
    /// Reads a config, and then the settings `key=value` of the command line, where a value that is no TOML is a text.
    pub fn read(path: &Path, settings: &[(String, String)]) -> Result<Self, Failure> {
        let named = |error: String| Failure::Usage(format!("{}: {error}", path.display()));
        let text = crate::files::read_text(path).map_err(Failure::usage)?;
        let text = text.ok_or_else(|| named("there is no such file".to_owned()))?;
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            named(yaml::expected(path, &text).unwrap_or_else(|| unparsed(&error)))
        })?;
        let mut config = Self::default();
        let mut faults: Vec<String> =
            table.iter().filter_map(|(key, value)| config.set(key, value).err()).collect();
        let is_set = |key: &str| settings.iter().any(|(set, _)| set == key);
        config.relative_to(path.parent().unwrap_or(Path::new("")), is_set);
        for (key, text) in settings {
            let set = setting(text).map_err(|error| format!("{key}: {error}"));
            let set = set.and_then(|value| config.set(key, &value));
            faults.extend(set.err().map(|error| format!("--set {error}")));
        }
        match faults.as_slice() {
            [] => {}
            [fault] => return Err(named(fault.clone())),
            faults => {
                let count = faults.len();
                return Err(named(format!("{count} settings cannot be used:\n  {}", faults.join("\n  "))));
            }
        }
        config.settle();
        config.check().map_err(named)?;
        Ok(config)
    }

    /// Makes its paths lead from its folder, but for those that the command line sets.
    fn relative_to(&mut self, folder: &Path, is_set: impl Fn(&str) -> bool) {
        let paths = [
            ("model_name_or_path", Some(&mut self.model_name_or_path)),
            ("tokenizer_name_or_path", self.tokenizer_name_or_path.as_mut()),
            ("adapter_name_or_path", self.adapter_name_or_path.as_mut()),
            ("dataset_name", Some(&mut self.dataset_name)),
            ("eval_dataset_name", self.eval_dataset_name.as_mut()),
        ];
        for (key, path) in paths {
            if let Some(path) = path.filter(|_| !is_set(key)) {
                self.lookup.resolve(key, path, folder);
            }
        }
        if Path::new(&self.output_dir).is_relative() {
            self.output_dir = folder.join(&self.output_dir).display().to_string();
        }
    }

    /// The same as TOML, each key with its line of documentation; keys without a value are comments.
    pub fn to_toml(&self) -> String {
        let entry = |((key, value), (_, doc)): ((&str, Option<String>), &(&str, &str))| match value {
            Some(value) => format!("#{doc}\n{key} = {value}\n"),
            None => format!("#{doc}\n# {key} = \n"),
        };
        self.entries().into_iter().zip(KEYS).map(entry).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests;
