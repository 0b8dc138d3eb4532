//! Gather: run an attempt where it can do no harm, and write down what happened.
//!
//! One child process a challenge works through a list of *items* - checks, guards, measurements - and sends
//! a line of JSON for each thing it sees. Whatever ends the child early (a crash, an `exit(0)`, a time or
//! memory limit) is the outcome of the item that it was working on; a new child goes on with the next one.
//! So one step's fault never hides another step's answer.
//!
//! The child's results travel over a pipe of their own, handed over as its standard input (which it only
//! writes to): nothing that an attempt prints can be taken for a result, and a portable safe `std` is all it
//! takes. What it prints is kept and shown where a check fails.

mod child;
mod parent;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::scorecard::{Check, Guard, Measurement};

pub(crate) use child::{Asked, Child, Unwound, caught, replay_command, run as run_child};
pub use parent::Gathered;
pub(crate) use parent::{Launch, gather};

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

/// How much is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

/// One thing to do, and how long it may take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Item {
    /// `A.4/ragged-tail-bf16` for a check; `guard/...`, `bench/...`, `watch/...` for the rest.
    pub name: String,
    /// Time limit.
    pub limit: Duration,
    /// Whether it needs a process that has run nothing before.
    pub fresh: bool,
}

impl Item {
    /// The step of a check, or the kind of another item.
    pub fn group(&self) -> &str {
        self.name.split('/').next().unwrap_or(&self.name)
    }

    /// Whether it is a correctness check.
    pub fn is_check(&self) -> bool {
        !matches!(self.group(), "guard" | "bench" | "watch")
    }
}

/// What a child is asked to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub challenge: String,
    pub source: Source,
    pub effort: Effort,
    pub items: Vec<Item>,
    pub memory_limit: usize,
    /// Whether kernels are graded, on a GPU.
    pub on_card: bool,
    /// The GPU.
    pub ordinal: usize,
    /// A copy of the reader's kernel text, for an attempt that no program holds.
    pub text: Option<PathBuf>,
}

/// What a child says, one line each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Work on the item with this number begins.
    Begin(usize),
    /// A check has its outcome.
    Check(Check),
    /// A guard has looked.
    Guard(Guard),
    /// A number was measured.
    Measured(String, Measurement),
    /// Something could not be measured, and why.
    Unmeasured(String, String),
    /// The item that was begun last is done, and this process can do no more: another is to go on.
    GiveWay,
    /// All items are done.
    End,
}
