//! The config of a run: flat TOML with the keys of TRL's command line.
//!
//! A key means what it means there and has the same default, unless its line below says otherwise. A key that is not
//! known is an error with the nearest name that is; so is a value that this trainer cannot do. Relative paths are
//! relative to the config's folder ([`paths`](super::paths)).
//!
//! Source of names and defaults: `ModelConfig`, `ScriptArguments` and `SFTConfig` of the `trl` library, 1.16, and
//! `TrainingArguments` of `transformers`, 5.23.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use challenges::fsdp::{self, FSDP, Fsdp as _, PP, Pipeline, Room, TP};
use challenges::loss::Solution;
use challenges::loss::run::Size;
use challenges::train::Activations;
use challenges::train::chunked::{Causal, InChunks, Total, causal, of_loss};
use kernels::Which;
use reference::graph::Dtype;
use reference::graph::ranks::Mesh;
use reference::issues::classify::Problem;
use reference::llama::{self, Spec};
use reference::lora::{self, Module, Modules, Targets};
use reference::optim::{AdamW, Schedule, Shape};
use reference::schedule::{Generator, Placement, gpipe, one_f_one_b, zero_bubble};
use toml::{Table, Value};

use super::objective::Goal;
use super::paths::Lookup;
use super::yaml;
use crate::gguf_tokenizer;
use crate::output::Failure;

/// The largest rank that an adapter's file may have.
const LARGEST_RANK: u64 = 1 << 16;

/// The most outputs that a classifier may have.
const MOST_LABELS: u64 = 1 << 16;

/// The most ranks that a run may have: they are threads of one process.
const MOST_RANKS: usize = 1024;

/// A value as TOML has it.
trait Read: Sized {
    /// What is expected, in a sentence.
    const NEED: &'static str;

    /// `None` if the value is none.
    fn read(value: &Value) -> Option<Self>;

    /// The same as TOML; `None` if the key has to be left out.
    fn shown(&self) -> Option<String>;
}

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
                    _ => return Err(unknown(key)),
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

/// What is trained for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// The likelihood of the data.
    Sft,
    /// Pairs of answers, held against the reference model.
    Dpo,
    /// Pairs of answers by their odds, and the likelihood of the chosen ones.
    Orpo,
    /// Answers that are good or bad by themselves.
    Kto,
    /// Pairs of answers by their means, without a reference model.
    Simpo,
    /// Groups of completions with rewards.
    Grpo,
}

/// What is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// The next token.
    CausalLm,
    /// Which class a text belongs to.
    SeqCls,
}

/// What a classifier answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemType(pub Problem);

/// The names of outputs, in their order; none if they are not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

/// What rewards are divided by, once their mean is taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewardScale {
    /// Their deviation in the group.
    Group,
    /// That in the step.
    Batch,
    /// Nothing.
    None,
}

/// What the learning rate does after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Falls to 0 along a line.
    Linear,
    /// Falls to 0 along half a cosine.
    Cosine,
    /// Is the same from the first step on; no warm-up.
    Constant,
    /// Stays after the warm-up.
    ConstantWithWarmup,
}

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Drawn anew each epoch.
    Random,
    /// The file's.
    Sequential,
}

/// The schedule of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineSchedule {
    /// One forward, one backward (Narayanan et al., 2021).
    OneFOneB,
    /// All forwards, then all backwards (Huang et al., 2019).
    GPipe,
    /// The gradients of weights fill the bubble (Qi et al., 2023).
    ZeroBubble,
    /// Recomputation fills the bubble: that of challenge B.
    Fill,
}

/// When a run is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluation {
    /// Never.
    No,
    /// Every so many steps, and at the end.
    Steps,
    /// After each epoch, and at the end.
    Epoch,
}

/// A 4-bit type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantType {
    /// 4-bit normal floats.
    Nf4,
}

/// Modules that are trained as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToSave(pub Vec<Module>);

/// Tokens whose rows are trained, by module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens(pub BTreeMap<Module, Vec<usize>>);

/// A number above 0, or false for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length(pub Option<u64>);

/// The axes of a mesh with their ranks; none if it is not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes(pub Vec<(String, usize)>);

/// A type to compute in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute(pub Dtype);

/// Words and what they name.
const OBJECTIVES: [(&str, Objective); 6] = [
    ("sft", Objective::Sft),
    ("dpo", Objective::Dpo),
    ("orpo", Objective::Orpo),
    ("kto", Objective::Kto),
    ("simpo", Objective::Simpo),
    ("grpo", Objective::Grpo),
];
const SCHEDULERS: [(&str, Scheduler); 4] = [
    ("linear", Scheduler::Linear),
    ("cosine", Scheduler::Cosine),
    ("constant", Scheduler::Constant),
    ("constant_with_warmup", Scheduler::ConstantWithWarmup),
];
const TASKS: [(&str, Task); 2] = [("CAUSAL_LM", Task::CausalLm), ("SEQ_CLS", Task::SeqCls)];
const SAMPLINGS: [(&str, Sampling); 2] = [("random", Sampling::Random), ("sequential", Sampling::Sequential)];
const PIPELINE_SCHEDULES: [(&str, PipelineSchedule); 4] = [
    ("1F1B", PipelineSchedule::OneFOneB),
    ("GPipe", PipelineSchedule::GPipe),
    ("ZB-H1", PipelineSchedule::ZeroBubble),
    ("Fill", PipelineSchedule::Fill),
];
const EVALUATIONS: [(&str, Evaluation); 3] =
    [("no", Evaluation::No), ("steps", Evaluation::Steps), ("epoch", Evaluation::Epoch)];
const QUANT_TYPES: [(&str, QuantType); 1] = [("nf4", QuantType::Nf4)];
const COMPUTES: [(&str, Compute); 3] =
    [("float32", Compute(Dtype::F32)), ("bfloat16", Compute(Dtype::Bf16)), ("float16", Compute(Dtype::F16))];

impl Task {
    /// That of a name.
    pub fn called(name: &str) -> Option<Self> {
        TASKS.iter().find(|(known, _)| *known == name).map(|(_, task)| *task)
    }
}

const REWARD_SCALES: [(&str, RewardScale); 3] =
    [("group", RewardScale::Group), ("batch", RewardScale::Batch), ("none", RewardScale::None)];

/// The value of a word.
fn word<T: Copy>(words: &[(&str, T)], value: &Value) -> Option<T> {
    let given = value.as_str()?;
    words.iter().find(|(word, _)| *word == given).map(|(_, value)| *value)
}

/// The word of a value.
fn spelled<T: PartialEq>(words: &[(&str, T)], value: &T) -> Option<String> {
    words.iter().find(|(_, known)| known == value).map(|(word, _)| format!("{word:?}"))
}

impl Read for String {
    const NEED: &'static str = "a text";

    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }

    fn shown(&self) -> Option<String> {
        Some(Value::from(self.as_str()).to_string())
    }
}

impl Read for Option<String> {
    const NEED: &'static str = "a text";

    fn read(value: &Value) -> Option<Self> {
        String::read(value).map(Some)
    }

    fn shown(&self) -> Option<String> {
        self.as_ref().and_then(String::shown)
    }
}

impl Read for Option<f64> {
    const NEED: &'static str = f64::NEED;

    fn read(value: &Value) -> Option<Self> {
        f64::read(value).map(Some)
    }

    fn shown(&self) -> Option<String> {
        self.as_ref().and_then(f64::shown)
    }
}

impl Read for Option<u64> {
    const NEED: &'static str = u64::NEED;

    fn read(value: &Value) -> Option<Self> {
        u64::read(value).map(Some)
    }

    fn shown(&self) -> Option<String> {
        self.as_ref().and_then(u64::shown)
    }
}

impl Read for Task {
    const NEED: &'static str = "CAUSAL_LM or SEQ_CLS";

    fn read(value: &Value) -> Option<Self> {
        word(&TASKS, value)
    }

    fn shown(&self) -> Option<String> {
        spelled(&TASKS, self)
    }
}

impl Read for Option<ProblemType> {
    const NEED: &'static str = "single_label_classification, multi_label_classification or regression";

    fn read(value: &Value) -> Option<Self> {
        Problem::called(value.as_str()?).map(|problem| Some(ProblemType(problem)))
    }

    fn shown(&self) -> Option<String> {
        self.map(|ProblemType(problem)| format!("{:?}", problem.name()))
    }
}

impl Read for Names {
    const NEED: &'static str = "a list of names, or a table of them by the numbers from 0 on, each once";

    fn read(value: &Value) -> Option<Self> {
        let names: Vec<String> = match value {
            Value::Array(names) => names.iter().map(String::read).collect::<Option<_>>()?,
            Value::Table(table) => {
                let name = |number: usize| String::read(table.get(&number.to_string())?);
                (0..table.len()).map(name).collect::<Option<_>>()?
            }
            _ => return None,
        };
        let different: BTreeSet<&String> = names.iter().collect();
        (!names.is_empty() && different.len() == names.len()).then_some(Self(names))
    }

    fn shown(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| Value::from(self.0.clone()).to_string())
    }
}

impl Read for ToSave {
    const NEED: &'static str =
        "a list of embed_tokens and lm_head, or score of a classifier, each at most once";

    fn read(value: &Value) -> Option<Self> {
        Modules::read(Some(&as_json(value)), None).ok().map(|modules| Self(modules.to_save))
    }

    fn shown(&self) -> Option<String> {
        let names: Vec<Value> = self.0.iter().map(|module| Value::from(module.name())).collect();
        (!names.is_empty()).then(|| Value::from(names).to_string())
    }
}

impl Read for Tokens {
    const NEED: &'static str = "a list of tokens, each once, or such lists by embed_tokens and lm_head";

    fn read(value: &Value) -> Option<Self> {
        Modules::read(None, Some(&as_json(value))).ok().map(|modules| Self(modules.tokens))
    }

    fn shown(&self) -> Option<String> {
        let list =
            |tokens: &Vec<usize>| Value::from(tokens.iter().map(|token| *token as i64).collect::<Vec<_>>());
        let tables = self.0.iter().map(|(module, tokens)| (module.name().to_owned(), list(tokens)));
        (!self.0.is_empty()).then(|| Value::Table(tables.collect()).to_string())
    }
}

/// A value of a config as one of an `adapter_config.json`.
fn as_json(value: &Value) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

impl Read for bool {
    const NEED: &'static str = "true or false";

    fn read(value: &Value) -> Option<Self> {
        value.as_bool()
    }

    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Read for i64 {
    const NEED: &'static str = "a whole number";

    fn read(value: &Value) -> Option<Self> {
        value.as_integer()
    }

    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Read for u64 {
    const NEED: &'static str = "a whole number of at least 0";

    fn read(value: &Value) -> Option<Self> {
        value.as_integer().and_then(|number| number.try_into().ok())
    }

    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Read for f64 {
    const NEED: &'static str = "a finite number of at least 0";

    fn read(value: &Value) -> Option<Self> {
        let number = value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
        number.filter(|number| number.is_finite() && *number >= 0.0)
    }

    fn shown(&self) -> Option<String> {
        Some(Value::from(*self).to_string())
    }
}

impl Read for Option<bool> {
    const NEED: &'static str = bool::NEED;

    fn read(value: &Value) -> Option<Self> {
        bool::read(value).map(Some)
    }

    fn shown(&self) -> Option<String> {
        self.as_ref().and_then(bool::shown)
    }
}

impl Read for Objective {
    const NEED: &'static str = "sft, dpo, orpo, kto, simpo or grpo";

    fn read(value: &Value) -> Option<Self> {
        word(&OBJECTIVES, value)
    }

    fn shown(&self) -> Option<String> {
        spelled(&OBJECTIVES, self)
    }
}

impl Read for Option<RewardScale> {
    const NEED: &'static str = "group, batch, none, true or false";

    fn read(value: &Value) -> Option<Self> {
        match value.as_bool() {
            Some(true) => Some(Some(RewardScale::Group)),
            Some(false) => Some(Some(RewardScale::None)),
            None => word(&REWARD_SCALES, value).map(Some),
        }
    }

    fn shown(&self) -> Option<String> {
        self.as_ref().and_then(|scale| spelled(&REWARD_SCALES, scale))
    }
}

impl Objective {
    /// Its word.
    pub fn name(self) -> &'static str {
        OBJECTIVES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}

impl Read for Scheduler {
    const NEED: &'static str = "linear, cosine, constant or constant_with_warmup";

    fn read(value: &Value) -> Option<Self> {
        word(&SCHEDULERS, value)
    }

    fn shown(&self) -> Option<String> {
        spelled(&SCHEDULERS, self)
    }
}

impl Read for Sampling {
    const NEED: &'static str = "random or sequential";

    fn read(value: &Value) -> Option<Self> {
        word(&SAMPLINGS, value)
    }

    fn shown(&self) -> Option<String> {
        spelled(&SAMPLINGS, self)
    }
}

impl Read for PipelineSchedule {
    const NEED: &'static str = "1F1B, GPipe, ZB-H1 or Fill";

    fn read(value: &Value) -> Option<Self> {
        word(&PIPELINE_SCHEDULES, value)
    }

    fn shown(&self) -> Option<String> {
        spelled(&PIPELINE_SCHEDULES, self)
    }
}

impl PipelineSchedule {
    /// Its name.
    pub fn name(self) -> &'static str {
        PIPELINE_SCHEDULES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// What stages do by it, where layers are computed again and adapters are trained.
    pub fn pipeline(self) -> Pipeline<'static> {
        let schedule: &'static Generator = match self {
            Self::OneFOneB => &(one_f_one_b as Generator),
            Self::GPipe => &(gpipe as Generator),
            Self::ZeroBubble => &(zero_bubble as Generator),
            Self::Fill => &((|shape, workload| fsdp::Solution.schedule(shape, workload)) as Generator),
        };
        let placement = Placement::Looped;
        Pipeline { chunks: 1, placement, workload: fsdp::recomputed(), schedule, slots: None }
    }
}

impl Read for Evaluation {
    const NEED: &'static str = "no, steps or epoch";

    fn read(value: &Value) -> Option<Self> {
        word(&EVALUATIONS, value)
    }

    fn shown(&self) -> Option<String> {
        spelled(&EVALUATIONS, self)
    }
}

impl Read for QuantType {
    const NEED: &'static str = "nf4";

    fn read(value: &Value) -> Option<Self> {
        word(&QUANT_TYPES, value)
    }

    fn shown(&self) -> Option<String> {
        spelled(&QUANT_TYPES, self)
    }
}

impl Read for Which {
    const NEED: &'static str = "auto, cpu, cuda or cuda:1";

    fn read(value: &Value) -> Option<Self> {
        value.as_str()?.parse().ok()
    }

    fn shown(&self) -> Option<String> {
        Some(format!("\"{self}\""))
    }
}

impl Read for Compute {
    const NEED: &'static str = "float32, bfloat16 or float16";

    fn read(value: &Value) -> Option<Self> {
        word(&COMPUTES, value)
    }

    fn shown(&self) -> Option<String> {
        spelled(&COMPUTES, self)
    }
}

impl Read for Length {
    const NEED: &'static str = "a whole number above 0, or false";

    fn read(value: &Value) -> Option<Self> {
        if value.as_bool() == Some(false) {
            return Some(Self(None));
        }
        u64::read(value).filter(|number| *number > 0).map(|number| Self(Some(number)))
    }

    fn shown(&self) -> Option<String> {
        Some(self.0.map_or_else(|| "false".to_owned(), |number| number.to_string()))
    }
}

impl Read for Axes {
    const NEED: &'static str =
        "axes of fsdp, tp and pp, each at most once with its ranks, such as \"fsdp=2,tp=2\"";

    fn read(value: &Value) -> Option<Self> {
        let axis = |text: &str| {
            let (name, ranks) = text.split_once('=')?;
            let (name, ranks) = (name.trim(), ranks.trim().parse().ok()?);
            [FSDP, TP, PP].contains(&name).then(|| (name.to_owned(), ranks))
        };
        let axes: Option<Vec<(String, usize)>> = value.as_str()?.split(',').map(axis).collect();
        axes.filter(|axes| Mesh::new(axes.iter().cloned()).is_ok()).map(Self)
    }

    fn shown(&self) -> Option<String> {
        let axes: Vec<String> = self.0.iter().map(|(name, ranks)| format!("{name}={ranks}")).collect();
        (!axes.is_empty()).then(|| Value::from(axes.join(",")).to_string())
    }
}

impl Read for Targets {
    const NEED: &'static str = "\"all-linear\" or a list of names";

    fn read(value: &Value) -> Option<Self> {
        if let Some(one) = value.as_str() {
            let all = one == "all-linear";
            return Some(if all { Self::AllLinear } else { Self::Named(vec![one.to_owned()]) });
        }
        let names: Option<Vec<String>> = value.as_array()?.iter().map(String::read).collect();
        names.filter(|names| !names.is_empty()).map(Self::Named)
    }

    fn shown(&self) -> Option<String> {
        Some(match self {
            Self::AllLinear => "\"all-linear\"".to_owned(),
            Self::Named(names) => Value::from(names.clone()).to_string(),
        })
    }
}

fn wrong<T: Read>(key: &str, value: &Value) -> String {
    format!("{key}: expected {}, found {value}", T::NEED)
}

/// Keys of TRL's that say something which has another name here, or none.
const ELSEWHERE: [(&str, &str); 13] = [
    ("bf16", "dtype = \"bfloat16\" computes in it"),
    ("disable_dropout", "lora_dropout is 0 for every objective but sft"),
    ("fp16", "dtype = \"float16\" computes in it"),
    ("load_in_8bit", "load_in_4bit is what there is"),
    ("max_prompt_length", "max_length cuts prompt and answer"),
    ("num_iterations", "a step's completions are trained once"),
    ("optim", "the optimiser is AdamW"),
    ("packing_strategy", "rows are packed as by \"bfd\""),
    ("precompute_ref_log_probs", "the reference model reads each micro-batch when it is trained"),
    ("reference_free", "objective = \"simpo\" has no reference model"),
    ("report_to", "metrics.jsonl in output_dir has every step"),
    ("use_peft", "an adapter is trained always"),
    ("warmup_ratio", "warmup_steps is a number of steps"),
];

fn unknown(key: &str) -> String {
    if let Some((_, instead)) = ELSEWHERE.iter().find(|(name, _)| *name == key) {
        return format!("unknown key {key:?}; {instead}");
    }
    let names: Vec<&str> = KEYS.iter().map(|(name, _)| *name).collect();
    let nearest = similar::get_close_matches(key, &names, 1, 0.5);
    match nearest.first() {
        Some(name) => format!("unknown key {key:?}; the nearest name is {name}"),
        None => format!("unknown key {key:?}; `trainer train --example DIR` writes every key"),
    }
}

impl Config {
    /// Reads a config, and then the settings `key=value` of the command line, where a value that is no TOML is a text.
    pub fn read(path: &Path, settings: &[(String, String)]) -> Result<Self, Failure> {
        let named = |error: String| Failure::Usage(format!("{}: {error}", path.display()));
        let text = crate::files::read_text(path).map_err(Failure::usage)?;
        let text = text.ok_or_else(|| named("there is no such file".to_owned()))?;
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            named(yaml::expected(path, &text).unwrap_or_else(|| error.to_string().trim_end().to_owned()))
        })?;
        let mut config = Self::default();
        for (key, value) in &table {
            config.set(key, value).map_err(named)?;
        }
        let is_set = |key: &str| settings.iter().any(|(set, _)| set == key);
        config.relative_to(path.parent().unwrap_or(Path::new("")), is_set);
        for (key, text) in settings {
            let value = format!("v = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("v"));
            let value = value.unwrap_or_else(|| Value::from(text.as_str()));
            config.set(key, &value).map_err(|error| Failure::Usage(format!("--set {error}")))?;
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

    /// That there is a run that it describes.
    fn check(&self) -> Result<(), String> {
        for (key, value) in
            [("model_name_or_path", &self.model_name_or_path), ("dataset_name", &self.dataset_name)]
        {
            if value.is_empty() {
                return Err(format!("{key} is missing"));
            }
        }
        let above = [
            ("lora_r", self.lora_r),
            ("per_device_train_batch_size", self.per_device_train_batch_size),
            ("gradient_accumulation_steps", self.gradient_accumulation_steps),
            ("ranks", self.ranks.unwrap_or(1)),
            ("logging_steps", self.logging_steps),
            ("save_steps", self.save_steps),
            ("eval_steps", self.eval_steps()),
            ("per_device_eval_batch_size", self.per_device_eval_batch_size),
        ];
        if self.eval_strategy != Evaluation::No && self.eval_dataset_name.is_none() {
            return Err("eval_strategy: expected eval_dataset_name beside it, found none".to_owned());
        }
        let both = |need| format!("trainable_token_indices: expected {need}");
        self.adapter().modules.check().map_err(both)?;
        if let Some(share) = self.lora_dropout.filter(|share| *share >= 1.0) {
            return Err(format!("lora_dropout: expected a number below 1, found {share}"));
        }
        if self.lora_r > LARGEST_RANK {
            return Err(format!(
                "lora_r: expected a whole number up to {LARGEST_RANK}, found {}",
                self.lora_r
            ));
        }
        for (key, share) in [("adam_beta1", self.adam_beta1), ("adam_beta2", self.adam_beta2)] {
            if share >= 1.0 {
                return Err(format!("{key}: expected a number below 1, found {share}"));
            }
        }
        if self.adam_epsilon as f32 == 0.0 && self.adapter_name_or_path.is_none() {
            return Err(format!(
                "adam_epsilon: expected a number above 0 in float32, found {}: the first gradient of a new adapter's A \
                 is 0, which would be divided by 0",
                self.adam_epsilon
            ));
        }
        self.check_task()?;
        self.check_ranks()?;
        self.check_objective()?;
        match above.iter().find(|(_, number)| *number == 0) {
            Some((key, _)) => Err(format!("{key}: expected a whole number above 0, found 0")),
            None => Ok(()),
        }
    }

    /// That the settings are of one task.
    fn check_task(&self) -> Result<(), String> {
        let of_classifiers = ["num_labels", "id2label", "problem_type"];
        let stated = of_classifiers.iter().find(|key| self.stated.contains(*key));
        match (self.task_type, stated) {
            (Task::CausalLm, None) => return Ok(()),
            (Task::CausalLm, Some(key)) => {
                return Err(format!(
                    "{key}: expected task_type = \"SEQ_CLS\" beside it, found \"CAUSAL_LM\""
                ));
            }
            (Task::SeqCls, _) => {}
        }
        let (names, outputs) = (self.id2label.0.len(), self.num_labels);
        if let Some(outputs) = outputs.filter(|outputs| names > 0 && *outputs != names as u64) {
            return Err(format!("num_labels: expected {names}, the names of id2label, found {outputs}"));
        }
        if outputs.is_some_and(|outputs| !(1..=MOST_LABELS).contains(&outputs)) {
            let found = outputs.unwrap_or_default();
            return Err(format!(
                "num_labels: expected a whole number from 1 to {MOST_LABELS}, found {found}"
            ));
        }
        let beside = |key: &str, need: &str, found: &str| {
            Err(format!("{key}: expected {need} with task_type = \"SEQ_CLS\", found {found}"))
        };
        if self.assistant_only_loss {
            return beside("assistant_only_loss", "false", "true");
        }
        if let Some(bytes) = self.loss_chunk_bytes.0 {
            return beside("loss_chunk_bytes", "false", &bytes.to_string());
        }
        match self.several() {
            Some(mesh) => beside("ranks", "1", &mesh.ranks().to_string()),
            None => Ok(()),
        }
    }

    /// The labels of a classifier, if the config states them.
    pub fn labels(&self) -> Option<Vec<String>> {
        let names = &self.id2label.0;
        let unnamed = || self.num_labels.map(|outputs| llama::unnamed(outputs as usize));
        if names.is_empty() { unnamed() } else { Some(names.clone()) }
    }

    /// That ranks can share the run.
    fn check_ranks(&self) -> Result<(), String> {
        let of_mesh: usize = self.mesh.0.iter().map(|(_, ranks)| ranks).product();
        if let Some(given) = self.ranks.filter(|given| !self.mesh.0.is_empty() && *given != of_mesh as u64) {
            let mesh = self.mesh.shown().unwrap_or_default();
            return Err(format!("ranks: expected the {of_mesh} of mesh = {mesh}, found {given}"));
        }
        let (schedule, has_stages) =
            (self.pipeline_parallel_schedule, self.mesh.0.iter().any(|(axis, _)| axis == PP));
        if schedule != PipelineSchedule::OneFOneB && !has_stages {
            let found = schedule.name();
            return Err(format!(
                "pipeline_parallel_schedule: expected a mesh with pp for {found}, found none"
            ));
        }
        let Some(mesh) = self.several() else { return Ok(()) };
        let ranks = mesh.ranks();
        if let Which::Cuda(_) = self.device {
            let found = self.device;
            return Err(format!(
                "device: expected auto or cpu with {ranks} ranks, which are on the CPU, found {found}"
            ));
        }
        if ranks > MOST_RANKS {
            return Err(format!(
                "ranks: expected at most {MOST_RANKS}, threads of one process, found {ranks}"
            ));
        }
        if let Some(bytes) = self.loss_chunk_bytes.0 {
            return Err(format!("loss_chunk_bytes: expected false on {ranks} ranks, found {bytes}"));
        }
        match self.objective {
            Objective::Sft => Ok(()),
            other => Err(format!("objective: expected sft on {ranks} ranks, found {}", other.name())),
        }
    }

    /// How the ranks of the run lie; `None` if there is one.
    pub fn several(&self) -> Option<Mesh> {
        let line = [(FSDP.to_owned(), usize::try_from(self.ranks.unwrap_or(1)).unwrap_or(usize::MAX))];
        let axes = if self.mesh.0.is_empty() { &line[..] } else { &self.mesh.0 };
        Mesh::new(axes.iter().cloned()).ok().filter(|mesh| mesh.ranks() > 1)
    }

    /// What layers leave for their backward on one rank.
    pub fn activations(&self) -> Activations {
        if self.gradient_checkpointing { Activations::Recomputed } else { Activations::Kept }
    }

    /// What there is room for on each of several ranks.
    pub fn room(&self) -> Room {
        let activation_bytes = if self.gradient_checkpointing { 0 } else { usize::MAX };
        Room { activation_bytes, prefetch_bytes: usize::MAX, ..Room::default() }
    }

    /// The same as TOML, each key with its line of documentation; keys without a value are comments.
    pub fn to_toml(&self) -> String {
        let entry = |((key, value), (_, doc)): ((&str, Option<String>), &(&str, &str))| match value {
            Some(value) => format!("#{doc}\n{key} = {value}\n"),
            None => format!("#{doc}\n# {key} = \n"),
        };
        self.entries().into_iter().zip(KEYS).map(entry).collect::<Vec<_>>().join("\n")
    }

    /// The adapter that it asks for.
    pub fn adapter(&self) -> lora::Config {
        lora::Config {
            rank: self.lora_r as usize,
            alpha: self.lora_alpha,
            rank_stabilized: self.use_rslora,
            dropout: self.lora_dropout.unwrap_or(0.05),
            targets: self.lora_target_modules.clone(),
            modules: self.modules(),
            base: Some(self.model_name_or_path.clone()),
        }
    }

    /// What is trained beside its pairs: of a classifier, its head.
    fn modules(&self) -> Modules {
        let modules = Modules {
            to_save: self.lora_modules_to_save.0.clone(),
            tokens: self.trainable_token_indices.0.clone(),
        };
        if self.task_type == Task::SeqCls { modules.with_head() } else { modules }
    }

    /// The optimiser and the bound on its gradient.
    pub fn recipe(&self) -> llama::train::Recipe {
        let optimizer = AdamW {
            beta1: self.adam_beta1,
            beta2: self.adam_beta2,
            eps: self.adam_epsilon,
            weight_decay: self.weight_decay,
        };
        // as in transformers, 0 is no bound
        let max_norm = if self.max_grad_norm > 0.0 { self.max_grad_norm } else { f64::from(f32::MAX) };
        llama::train::Recipe { optimizer, max_norm }
    }

    /// The learning rates of a run of so many steps.
    pub fn schedule(&self, steps: u64) -> Schedule {
        let shape = match self.lr_scheduler_type {
            Scheduler::Linear => Shape::Linear { steps },
            Scheduler::Cosine => Shape::Cosine { steps, cycles: 0.5 },
            Scheduler::Constant | Scheduler::ConstantWithWarmup => Shape::Constant,
        };
        let warmup = if self.lr_scheduler_type == Scheduler::Constant { 0 } else { self.warmup_steps };
        Schedule { peak: self.learning_rate, warmup, shape }
    }

    /// The loss of a model, if it is chunked, or asks for more than labels.
    pub fn loss(&self, spec: &Spec, goal: Option<&Goal>) -> Result<Option<Causal>, Failure> {
        if let Some(goal) = goal {
            let loss = goal.loss(self, spec.config.vocab).map_err(Failure::bug)?;
            return Ok(Some(of_loss(spec, loss)));
        }
        let chunked = self.loss_chunk_bytes.0.map(|_| causal(spec, Total::Sum));
        chunked.transpose().map_err(Failure::usage)
    }

    /// The same with its steps and the size of its chunks.
    pub fn in_chunks<'a>(&self, causal: Option<&'a Causal>) -> Option<InChunks<'a>> {
        let size = match self.loss_chunk_bytes.0 {
            Some(bytes) => Size::Bytes(bytes as usize),
            None => Size::Rows(usize::MAX), // all of them at once
        };
        Some(InChunks { attempt: &Solution, causal: causal?, size })
    }

    /// Steps between two evaluations.
    pub fn eval_steps(&self) -> u64 {
        self.eval_steps.unwrap_or(self.logging_steps)
    }

    /// Where everything that is written goes.
    pub fn output(&self) -> PathBuf {
        self.output_dir.clone().into()
    }

    /// The folder of the model, or its GGUF file.
    ///
    /// Fails where there is none, with the places where it was looked for.
    pub fn model_folder(&self) -> Result<PathBuf, Failure> {
        if let Some(file) = llama::hub::gguf(&self.model_name_or_path) {
            return Ok(file.into());
        }
        let found = llama::hub::find(&self.model_name_or_path);
        found.map_err(|error| self.lookup.explain("model_name_or_path", error))
    }

    /// The folder of the tokenizer.
    ///
    /// Fails as [`Self::model_folder`] does.
    pub fn tokenizer_folder(&self) -> Result<PathBuf, Failure> {
        let Some(name) = &self.tokenizer_name_or_path else {
            return match llama::hub::gguf(&self.model_name_or_path) {
                Some(_) => gguf_tokenizer::folder(&self.model_name_or_path),
                None => self.model_folder(),
            };
        };
        llama::hub::find(name).map_err(|error| self.lookup.explain("tokenizer_name_or_path", error))
    }
}
