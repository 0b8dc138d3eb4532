//! Whose steps a child runs, and what counts as their own work.

use serde::{Deserialize, Serialize};

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
