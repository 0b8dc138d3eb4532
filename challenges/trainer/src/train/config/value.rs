//! What a value of a config may be: read from TOML, and written as TOML again.

use std::collections::{BTreeMap, BTreeSet};

use challenges::fsdp::{FSDP, PP, TP};
use kernels::Which;
use reference::graph::Dtype;
use reference::graph::ranks::Mesh;
use reference::issues::classify::Problem;
use reference::lora::{Module, Modules, Targets};
use toml::Value;

/// A value as TOML has it.
pub(super) trait Read: Sized {
    /// What is expected, in a sentence.
    fn need() -> String;

    /// The expectation that this value does not meet, in a sentence.
    fn need_of(_value: &Value) -> String {
        Self::need()
    }

    /// `None` if the value is none.
    fn read(value: &Value) -> Option<Self>;

    /// The same as TOML; `None` if the key has to be left out.
    fn shown(&self) -> Option<String>;
}

/// Declares a choice among words.
macro_rules! words {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $what:literal])+ $variant:ident = $word:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $what])+ $variant,)+
        }

        impl $name {
            const WORDS: &[(&str, Self)] = &[$(($word, Self::$variant),)+];

            /// Its word.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

/// Words that are read as they stand.
macro_rules! read_as_words {
    ($($name:ident),+) => {
        $(impl Read for $name {
            fn need() -> String {
                one_of(Self::WORDS)
            }

            fn read(value: &Value) -> Option<Self> {
                word(Self::WORDS, value)
            }

            fn shown(&self) -> Option<String> {
                Some(format!("{:?}", self.name()))
            }
        })+
    };
}

read_as_words!(Objective, Task, Scheduler, Sampling, PipelineSchedule, Evaluation, QuantType);

/// Words as a sentence has them: "a, b or c".
fn one_of<T>(words: &[(&str, T)]) -> String {
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// The value of a word.
fn word<T: Copy>(words: &[(&str, T)], value: &Value) -> Option<T> {
    let given = value.as_str()?;
    words.iter().find(|(word, _)| *word == given).map(|(_, value)| *value)
}

words! {
    /// What is trained for.
    Objective {
        /// The likelihood of the data.
        Sft = "sft",
        /// Pairs of answers, held against the reference model.
        Dpo = "dpo",
        /// Pairs of answers by their odds, and the likelihood of the chosen ones.
        Orpo = "orpo",
        /// Answers that are good or bad by themselves.
        Kto = "kto",
        /// Pairs of answers by their means, without a reference model.
        Simpo = "simpo",
        /// Groups of completions with rewards.
        Grpo = "grpo",
    }
}

words! {
    /// What is trained.
    Task {
        /// The next token.
        CausalLm = "CAUSAL_LM",
        /// Which class a text belongs to.
        SeqCls = "SEQ_CLS",
    }
}

/// What a classifier answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemType(pub Problem);

/// The names of outputs, in their order; none if they are not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

words! {
    /// What rewards are divided by, once their mean is taken off.
    RewardScale {
        /// Their deviation in the group.
        Group = "group",
        /// That in the step.
        Batch = "batch",
        /// Nothing.
        None = "none",
    }
}

words! {
    /// What the learning rate does after the warm-up.
    Scheduler {
        /// Falls to 0 along a line.
        Linear = "linear",
        /// Falls to 0 along half a cosine.
        Cosine = "cosine",
        /// Is the same from the first step on; no warm-up.
        Constant = "constant",
        /// Stays after the warm-up.
        ConstantWithWarmup = "constant_with_warmup",
    }
}

words! {
    /// The order of rows.
    Sampling {
        /// Drawn anew each epoch.
        Random = "random",
        /// The file's.
        Sequential = "sequential",
    }
}

words! {
    /// The schedule of a pipeline.
    PipelineSchedule {
        /// One forward, one backward (Narayanan et al., 2021).
        OneFOneB = "1F1B",
        /// All forwards, then all backwards (Huang et al., 2019).
        GPipe = "GPipe",
        /// The gradients of weights fill the bubble (Qi et al., 2023).
        ZeroBubble = "ZB-H1",
        /// Recomputation fills the bubble: that of challenge B.
        Fill = "Fill",
    }
}

words! {
    /// When a run is evaluated.
    Evaluation {
        /// Never.
        No = "no",
        /// Every so many steps, and at the end.
        Steps = "steps",
        /// After each epoch, and at the end.
        Epoch = "epoch",
    }
}

words! {
    /// A 4-bit type.
    QuantType {
        /// 4-bit normal floats.
        Nf4 = "nf4",
    }
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

impl<T: Read> Read for Option<T> {
    fn need() -> String {
        T::need()
    }

    fn need_of(value: &Value) -> String {
        T::need_of(value)
    }

    fn read(value: &Value) -> Option<Self> {
        T::read(value).map(Some)
    }

    fn shown(&self) -> Option<String> {
        self.as_ref().and_then(T::shown)
    }
}

impl Read for String {
    fn need() -> String {
        "a text".to_owned()
    }

    fn need_of(value: &Value) -> String {
        let is_empty = value.as_str().is_some_and(|text| text.trim().is_empty());
        if is_empty { "a text that is not empty".to_owned() } else { Self::need() }
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned)
    }

    fn shown(&self) -> Option<String> {
        Some(Value::from(self.as_str()).to_string())
    }
}

impl Read for ProblemType {
    fn need() -> String {
        "single_label_classification, multi_label_classification or regression".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        Problem::called(value.as_str()?).map(Self)
    }

    fn shown(&self) -> Option<String> {
        Some(format!("{:?}", self.0.name()))
    }
}

impl Read for Names {
    fn need() -> String {
        "a list of names, or a table of them by the numbers from 0 on, each once".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let names: Vec<String> = match value {
            Value::Array(names) => names.iter().map(text).collect::<Option<_>>()?,
            Value::Table(table) => {
                let name = |number: usize| text(table.get(&number.to_string())?);
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
    fn need() -> String {
        "a list of embed_tokens and lm_head, or score of a classifier, each at most once".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        Modules::read(Some(&as_json(value)), None).ok().map(|modules| Self(modules.to_save))
    }

    fn shown(&self) -> Option<String> {
        let names: Vec<Value> = self.0.iter().map(|module| Value::from(module.name())).collect();
        (!names.is_empty()).then(|| Value::from(names).to_string())
    }
}

impl Read for Tokens {
    fn need() -> String {
        "a list of tokens, each once, or such lists by embed_tokens and lm_head".to_owned()
    }

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
    fn need() -> String {
        "true or false".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_bool()
    }

    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Read for i64 {
    fn need() -> String {
        "a whole number".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_integer()
    }

    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Read for u64 {
    fn need() -> String {
        "a whole number of at least 0".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_integer().and_then(|number| number.try_into().ok())
    }

    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }
}

/// The largest whole number up to which every one is an f64.
const MOST_EXACT: i64 = 1 << 53;

impl Read for f64 {
    fn need() -> String {
        "a finite number of at least 0".to_owned()
    }

    fn need_of(value: &Value) -> String {
        match value {
            Value::Integer(number) if *number > MOST_EXACT => {
                format!("a whole number of at most {MOST_EXACT}")
            }
            Value::Float(number) if number.is_finite() && *number > 0.0 => {
                format!("a number of at most {:e}, the largest in float32", f32::MAX)
            }
            _ => Self::need(),
        }
    }

    fn read(value: &Value) -> Option<Self> {
        let whole = || value.as_integer().filter(|number| *number <= MOST_EXACT);
        let number = value.as_float().or_else(|| whole().map(|number| number as f64));
        number.filter(|number| (*number as f32).is_finite() && *number >= 0.0)
    }

    fn shown(&self) -> Option<String> {
        Some(Value::from(*self).to_string())
    }
}

impl Read for RewardScale {
    fn need() -> String {
        "group, batch, none, true or false".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        match value.as_bool() {
            Some(true) => Some(Self::Group),
            Some(false) => Some(Self::None),
            None => word(Self::WORDS, value),
        }
    }

    fn shown(&self) -> Option<String> {
        Some(format!("{:?}", self.name()))
    }
}

impl Read for Which {
    fn need() -> String {
        "auto, cpu, cuda or cuda:1".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_str()?.parse().ok()
    }

    fn shown(&self) -> Option<String> {
        Some(format!("\"{self}\""))
    }
}

impl Compute {
    const WORDS: [(&str, Self); 3] =
        [("float32", Self(Dtype::F32)), ("bfloat16", Self(Dtype::Bf16)), ("float16", Self(Dtype::F16))];
}

impl Read for Compute {
    fn need() -> String {
        one_of(&Self::WORDS)
    }

    fn read(value: &Value) -> Option<Self> {
        word(&Self::WORDS, value)
    }

    fn shown(&self) -> Option<String> {
        Self::WORDS.iter().find(|(_, known)| known == self).map(|(word, _)| format!("{word:?}"))
    }
}

impl Read for Length {
    fn need() -> String {
        "a whole number above 0, or false".to_owned()
    }

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
    fn need() -> String {
        "axes of fsdp, tp and pp, each at most once with its ranks, such as \"fsdp=2,tp=2\"".to_owned()
    }

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
    fn need() -> String {
        "\"all-linear\" or a list of names".to_owned()
    }

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

impl Task {
    /// That of a name; what names there are, where it is none.
    pub fn called(name: &str) -> Result<Self, String> {
        let named = word(Self::WORDS, &Value::from(name));
        named.ok_or_else(|| format!("expected {}, found {name:?}", Self::need()))
    }
}
