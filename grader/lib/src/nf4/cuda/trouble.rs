//! Why an item on a card came to no good end, as the outcome it is.

use kernels::cuda::{CompileError, CudaError};

use crate::scorecard::Outcome;

/// What kept an item from passing.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Trouble {
    /// The answer is wrong, and how.
    Wrong(String),
    /// A `TODO` was reached.
    Hole,
    /// The text does not compile: the compiler's words, and the line of the first error.
    Uncompiled { words: String, line: Option<usize> },
    /// This machine cannot tell.
    Unmeasured(String),
    /// The card refuses everything from now on; a new process may go on.
    Broken(String),
}

pub(super) type Tried<T = ()> = Result<T, Trouble>;

impl Trouble {
    /// The outcome and its words.
    pub fn outcome(self) -> (Outcome, String) {
        match self {
            Self::Wrong(detail) | Self::Broken(detail) => (Outcome::Wrong, detail),
            Self::Hole => (Outcome::NotAttempted, String::new()),
            Self::Uncompiled { words, .. } => (Outcome::DoesNotCompile, words),
            Self::Unmeasured(reason) => (Outcome::NotMeasured, reason),
        }
    }

    /// The same with the place where it was seen in front.
    pub fn at(self, place: &str) -> Self {
        match self {
            Self::Wrong(text) => Self::Wrong(format!("{place}{text}")),
            Self::Broken(text) => Self::Broken(format!("{place}{text}")),
            other => other,
        }
    }

    /// In one sentence, for what is no check.
    pub fn reason(&self) -> String {
        match self {
            Self::Hole => "the step is not written yet".into(),
            Self::Uncompiled { .. } => "the exercise does not compile".into(),
            Self::Wrong(text) | Self::Unmeasured(text) | Self::Broken(text) => text.clone(),
        }
    }

    /// Whether the process must end.
    pub fn is_broken(&self) -> bool {
        matches!(self, Self::Broken(_))
    }
}

impl From<CudaError> for Trouble {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::Compile(CompileError::Refused { log, line }) => Self::Uncompiled { words: log, line },
            CudaError::Compile(other) => Self::Unmeasured(other.to_string()),
            CudaError::Memory { .. } => Self::Unmeasured(error.to_string()),
            error if error.is_sticky() => Self::Broken(error.to_string()),
            error => Self::Wrong(error.to_string()),
        }
    }
}
