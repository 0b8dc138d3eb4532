//! Gather: run an attempt where it can do no harm, and write down what happened.
//!
//! One child process a course works through a list of *items* - checks, guards, measurements - and sends
//! a line of JSON for each thing it sees. Whatever ends the child early (a crash, an `exit(0)`, a time or
//! memory limit) is the outcome of the item that it was working on; a new child goes on with the next one.
//! So one step's fault never hides another step's answer. An item that is *fresh* has a child of its own.
//!
//! What is asked and what is answered travels over a private connection (`link`), in neither the arguments nor
//! the environment. The grader orders one item at a time, each with a nonce drawn for it; a result counts only
//! with the nonce of the item in progress, and the next item is ordered only when this one has all the results
//! that it must have (`ledger`). Lines, messages, time, memory and processes are bounded (`parent`, `tree`).
//! Code in the child's own address space can still read a nonce out of its memory: a child is a fence against
//! mistakes and against plain cheats, not against machine code written to deceive.
//!
//! A course of several ranks has a team of children instead of one (`team`): all of them get each item, rank 0
//! reports, and the item is done when all are.

mod child;
mod gathered;
mod held;
#[cfg(windows)]
mod job;
mod ledger;
mod link;
mod parent;
mod team;
mod tree;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::scorecard::{Check, Guard, Measurement};

pub(crate) use child::{Asked, Child, as_the_reader_knows_it, run as run_child};
pub use gathered::Gathered;
pub(crate) use parent::gather;
pub(crate) use team::Launch;

pub(crate) use crate::unwound::{Unwound, caught};

/// The hidden first argument that makes a program work as a child.
pub(crate) const CHILD_FLAG: &str = "--gather";

/// The attempt that a child works on: the one compiled into its program, or the workbook's solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// What the program's own `main` handed in.
    Own,
    /// The workbook's solution.
    Solution,
}

impl Source {
    /// Whether a step that asked the workbook's solution so often did its own work: the solution itself may.
    pub fn own_work(self, asked: u64) -> Result<(), String> {
        match (self, asked) {
            (Self::Solution, _) | (_, 0) => Ok(()),
            (Self::Own, n) => {
                Err(format!("expected the step's own work, found {n} calls of the workbook's solution"))
            }
        }
    }
}

/// How much is measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Effort {
    /// Seed of every generated input.
    pub seed: u64,
    /// Fewer samples, smaller budgets.
    pub quick: bool,
    /// Paired samples a timed case (none: as many as the protocol needs).
    pub samples: Option<usize>,
    /// The reader's own checkpoint: a folder or a repository's name.
    pub model: Option<String>,
    /// Whether the calls of a step are shown, as `replay` does.
    #[serde(default)]
    pub shows_calls: bool,
}

/// What an item is: its name says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// `A.5/ragged-tail-bf16`: a correctness check of a step.
    Check,
    /// `guard/...`: a guard, by its own name.
    Guard(&'a str),
    /// `watch/...` and `bench/...`: something measured.
    Number,
}

impl<'a> Kind<'a> {
    /// What the item of a name is.
    pub fn of(name: &'a str) -> Self {
        match name.split_once('/') {
            Some(("guard", guard)) => Self::Guard(guard),
            Some(("watch" | "bench", _)) => Self::Number,
            _ => Self::Check,
        }
    }
}

/// One thing to do, how long it may take, and what it may report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    /// `A.5/ragged-tail-bf16` for a check; `guard/...`, `bench/...`, `watch/...` for the rest.
    pub name: String,
    /// Time limit.
    pub limit: Duration,
    /// Whether it needs a process that has run nothing before.
    pub fresh: bool,
    /// The numbers that it may report; `*` stands for any text.
    pub numbers: Vec<String>,
    /// The guards that look on while it is measured.
    pub guards: Vec<&'static str>,
    /// Bytes of text that it may report.
    pub text_bytes: usize,
}

impl Item {
    /// A check, a guard, or what reports no numbers.
    pub fn new(name: impl Into<String>, seconds: u64) -> Self {
        let limit = Duration::from_secs(seconds);
        Self { name: name.into(), limit, fresh: false, numbers: vec![], guards: vec![], text_bytes: 0 }
    }

    /// With another time limit.
    pub fn within(self, seconds: u64) -> Self {
        Self { limit: Duration::from_secs(seconds), ..self }
    }

    /// In a process that has run nothing before.
    pub fn fresh(self) -> Self {
        Self { fresh: true, ..self }
    }

    /// Reports these numbers; `*` stands for any text, at most once in a name.
    pub fn measuring(self, numbers: &[&str]) -> Self {
        Self { numbers: numbers.iter().map(ToString::to_string).collect(), ..self }
    }

    /// With these guards looking on.
    pub fn guarded(self, guards: &[&'static str]) -> Self {
        Self { guards: guards.to_vec(), ..self }
    }

    /// May report a text of so many bytes.
    pub fn texting(self, bytes: usize) -> Self {
        Self { text_bytes: bytes, ..self }
    }

    /// The step of a check, or the kind of another item.
    pub fn group(&self) -> &str {
        self.name.split('/').next().unwrap_or(&self.name)
    }

    /// Whether it is a correctness check.
    pub fn is_check(&self) -> bool {
        Kind::of(&self.name) == Kind::Check
    }

    /// Whether it gives numbers.
    pub fn is_measured(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// The guard that it is, if it is one.
    pub fn guard(&self) -> Option<&str> {
        if let Kind::Guard(name) = Kind::of(&self.name) { Some(name) } else { None }
    }

    /// Whether a number of that name is one of its own.
    pub fn may_measure(&self, name: &str) -> bool {
        self.numbers.iter().any(|pattern| match pattern.split_once('*') {
            None => pattern == name,
            Some((begin, end)) => {
                name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end)
            }
        })
    }
}

/// A graph to try, for `graph FILE`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct GraphRequest {
    /// The graph's text.
    pub text: String,
    /// A size for every symbol.
    pub sizes: BTreeMap<String, i64>,
    /// How many ranks, if not as many as its groups have.
    pub ranks: Option<usize>,
    /// Whether the answer holds what a drawing is made of.
    pub drawn: bool,
}

/// What all items of a run have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The challenge's name, which its guards and replays bear.
    pub challenge: String,
    /// The course's key.
    pub course: String,
    pub source: Source,
    pub effort: Effort,
    /// Processes that do an item together, one a rank; rank 0 reports.
    pub ranks: usize,
    /// Bytes that all of them may hold together.
    pub memory_limit: usize,
    /// The GPU.
    pub ordinal: usize,
    /// A copy of the reader's kernel text, for an attempt that no program holds.
    pub text: Option<PathBuf>,
    /// A graph of the reader's own.
    #[serde(default)]
    pub graph: Option<GraphRequest>,
}

/// The first line to a child.
#[derive(Debug, Serialize, Deserialize)]
struct Opening {
    request: Request,
    /// Which of the request's ranks this child is.
    rank: usize,
    /// The names of the items that this child may be asked for, in order.
    items: Vec<String>,
    /// What [`Message::Ready`] must carry.
    nonce: String,
}

/// Every other line to a child: the next item.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    /// Its place in [`Opening::items`].
    item: usize,
    /// What everything that is said of it must carry.
    nonce: String,
}

/// A line from a child.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    item: usize,
    nonce: String,
    message: Message,
}

/// What a child says.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// The program has started.
    Ready,
    /// A check has its outcome.
    Check(Check),
    /// A guard has looked.
    Guard(Guard),
    /// A number was measured.
    Measured(String, Measurement),
    /// Something could not be measured, and why.
    Unmeasured(String, String),
    /// What went wrong on a rank that reports nothing else.
    Failed(String),
    /// A piece of the item's text.
    Text(String),
    /// The item has all its results.
    Done,
    /// The item has all its results, and this process can do no more: another is to go on.
    Recycle,
}
