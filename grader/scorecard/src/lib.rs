//! The scorecard: what `--json` prints, what the reports show, what `verify-report` recomputes.
//!
//! Programs outside read this; names, order and nesting are a contract. The JSON schema kept in
//! `grader/scorecard/schema.json` is generated from these types (a test compares the two).

pub mod file;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// How far the losses of two trainings may be apart, relative: the first line of challenge B, and the last of E.
pub const LOSSES_APART: f64 = 1e-6;

/// Returns the JSON schema of a scorecard: what `--json` prints.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Scorecard).to_value()
}

/// One run of the grader over the workbook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scorecard {
    /// Version of warpbook that measured.
    pub warpbook: String,
    /// `exercise`, `solution`, or `own` for a user's own crate.
    pub attempt: String,
    /// Seed of every generated input, as `0x` and hexadecimal digits.
    pub seed: String,
    /// Where it was measured.
    pub machine: Machine,
    /// Sum of the challenges' points.
    pub points: i32,
    /// What can be reached in all: 55.
    pub possible: i32,
    /// Best total still reachable once everything could be measured, minus `points`.
    pub unmeasured: i32,
    /// How many of `points` rest on stand-ins (a CPU for the GPU, threads for cards).
    pub stand_in: i32,
    /// All five, in the order nf4, fsdp, graph, issues, loss.
    pub challenges: Vec<Challenge>,
    /// Every guard against cheating that this run knows of.
    pub guards: Vec<Guard>,
}

/// The machine that a scorecard was measured on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// The processor's own name.
    pub cpu: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// Widest vector unit used: `AVX-512`, `AVX2`, `NEON` or `portable`.
    pub vector: String,
    /// The processor's own widest unit, where the variable `WARPBOOK_VECTOR` held the run to `vector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub widest: Option<String>,
    /// Last-level cache in bytes, as the system reports it (0: unknown).
    pub cache_bytes: u64,
    /// Main memory in bytes (0: unknown).
    pub memory_bytes: u64,
    /// The GPU that was used, if one was: its name, size, architecture and driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// `linux`, `macos` or `windows`.
    pub os: String,
    /// The version of Wine, where it stands in for Windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wine: Option<String>,
    /// `x86_64` or `aarch64`.
    pub arch: String,
    /// Day of the run, UTC, `YYYY-MM-DD`.
    pub date: String,
}

/// One challenge's part of the scorecard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Challenge {
    /// `nf4`, `fsdp`, `graph`, `issues` or `loss`.
    pub name: String,
    /// The published letter.
    pub letter: String,
    /// Whether this version of the workbook contains the challenge.
    pub built: bool,
    /// Whether any step of the attempt was more than a hole.
    pub attempted: bool,
    /// What it ran on: `cpu`, `sim`, `cuda:0`.
    pub device: String,
    /// SHA-256 of the attempt's code without comments and white space (empty: not known here).
    pub code: String,
    /// Points by the published rubric.
    pub points: i32,
    /// What the published rubric gives at most.
    pub possible: i32,
    /// Best total still reachable minus `points`.
    pub unmeasured: i32,
    /// The published lines in their order.
    pub rows: Vec<Row>,
    /// Every correctness check.
    pub checks: Vec<Check>,
    /// Every number, by name.
    #[serde(deserialize_with = "each_once")]
    pub measurements: BTreeMap<String, Measurement>,
}

/// The truth of one published wording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Truth {
    /// The wording holds.
    Met,
    /// The wording does not hold (for `remove_float32_upcast` that is good).
    Unmet,
    /// This machine or this version cannot say; the row has no effect.
    Unmeasured,
}

/// What a row's evidence rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Basis {
    /// The hardware and the sizes of the published text.
    #[serde(rename = "as published")]
    AsPublished,
    /// A CPU for the GPU, a tiny model for the 1B one, threads for cards.
    #[serde(rename = "stand-in")]
    StandIn,
}

/// One line of the published rubric, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The published wording.
    pub wording: String,
    /// Whether it holds.
    pub fact: Truth,
    /// What the evidence rests on.
    pub basis: Basis,
    /// The effect applied (a reset: minus what it wiped).
    pub points: i32,
    /// The most that the row can add.
    pub worth: i32,
    /// One sentence with its number.
    pub evidence: String,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Outcome {
    /// The answer is right.
    #[serde(rename = "passed")]
    Passed,
    /// The answer is wrong, or the attempt crashed, left, hung or took too much memory.
    #[serde(rename = "wrong")]
    Wrong,
    /// A `todo!` was reached.
    #[serde(rename = "not attempted")]
    NotAttempted,
    /// This machine cannot say.
    #[serde(rename = "not measured")]
    NotMeasured,
    /// The compiler refused the attempt; the detail holds its words.
    #[serde(rename = "does not compile")]
    DoesNotCompile,
    /// The grader itself failed.
    #[serde(rename = "fault of the grader")]
    GraderFault,
}

impl Outcome {
    /// As the JSON and every report spell it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Wrong => "wrong",
            Self::NotAttempted => "not attempted",
            Self::NotMeasured => "not measured",
            Self::DoesNotCompile => "does not compile",
            Self::GraderFault => "fault of the grader",
        }
    }
}

/// What a check says that does not compile because of another step, before the name of that step.
pub const ELSEWHERE: &str = "the exercise does not compile, because of ";

/// One correctness check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// `STEP/case`, as in `A.5/ragged-tail-bf16`.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Where, got, want, how far, the rule, the likely cause (empty when passed).
    pub detail: String,
    /// The command that runs this check alone.
    pub replay: String,
}

/// One measured number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// The number that stands for the samples.
    pub value: f64,
    /// `us`, `x`, `B`, `B/thread`, `GB/s`, `count`.
    pub unit: String,
    /// 95 % interval, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interval: Option<[f64; 2]>,
    /// The raw samples behind it, in the order in which they were taken.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub samples: Vec<f64>,
}

/// Samples of one number at most, as many as `--samples` takes.
pub const MOST_SAMPLES: usize = 10_000;

/// One guard against an attempt that only looks right or fast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Guard {
    /// The challenge that it watched.
    pub challenge: String,
    /// What it guards against.
    pub name: String,
    /// Whether it could run.
    pub ran: bool,
    /// Whether it caught something.
    pub tripped: bool,
    /// What it saw (empty when nothing).
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub detail: String,
}

/// Numbers by name; a name that stands twice would say one thing to one program and another to the next.
fn each_once<'a, D: Deserializer<'a>>(from: D) -> Result<BTreeMap<String, Measurement>, D::Error> {
    struct EachOnce;
    impl<'a> Visitor<'a> for EachOnce {
        type Value = BTreeMap<String, Measurement>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of measurements")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut all = BTreeMap::new();
            while let Some((name, number)) = entries.next_entry::<String, Measurement>()? {
                if all.contains_key(&name) {
                    return Err(A::Error::custom(format!(
                        "expected each measurement once, found {name:?} twice"
                    )));
                }
                all.insert(name, number);
            }
            Ok(all)
        }
    }
    from.deserialize_map(EachOnce)
}

impl Check {
    /// The step in front of the slash: `A.5` of `A.5/ragged-tail-bf16`.
    pub fn step(&self) -> &str {
        self.name.split('/').next().unwrap_or(&self.name)
    }
}
