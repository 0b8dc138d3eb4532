//! Where the reader stands: `.warpbook/` in the workbook, ignored by git.
//!
//! `progress.json` holds the outcomes of the last run of each exercise with the hash of its code, and how many
//! hints were asked for; `last.json` the last scorecard; `backups/` what `reset` replaced. All of it may be
//! deleted at any time.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::course::{back_of, key};
use crate::score::Scope;
use crate::scorecard::{Check, Outcome, Scorecard};
use crate::stub::Step;
use crate::workbook::Workbook;

/// The reader's progress.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// By course: `nf4`, `nf4.cuda`.
    pub challenges: BTreeMap<String, Standing>,
    /// Hints shown, by step.
    pub hints: BTreeMap<String, usize>,
}

/// The last run of one exercise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// Hash of the code that was graded.
    pub code: String,
    /// Points it got, if this text was scored.
    pub points: Option<i32>,
    /// Its checks.
    pub checks: Vec<Check>,
}

impl Standing {
    /// Takes over the outcomes of some checks; the others keep those of an earlier text.
    fn merge(&mut self, checks: &[Check]) {
        for check in checks {
            match self.checks.iter_mut().find(|known| known.name == check.name) {
                Some(known) => known.clone_from(check),
                None => self.checks.push(check.clone()),
            }
        }
    }

    /// The first step, in their order, that has not passed: with a check that failed, or never tried.
    pub fn next_step<'a>(&self, steps: &'a [Step<'a>]) -> Option<&'a Step<'a>> {
        let done = |check: &&Check| matches!(check.outcome, Outcome::Passed | Outcome::NotMeasured);
        steps.iter().find(|step| {
            let of_step: Vec<&Check> = self.checks.iter().filter(|check| check.step() == step.name).collect();
            of_step.is_empty() || !of_step.iter().all(done)
        })
    }
}

/// The folder that holds it.
pub(crate) fn folder(workbook: &Workbook) -> PathBuf {
    workbook.root().join(".warpbook")
}

impl Progress {
    /// What was written last; nothing if it was never written or cannot be read.
    pub fn load(workbook: &Workbook) -> Self {
        let text = std::fs::read_to_string(folder(workbook).join("progress.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Writes it.
    pub fn save(&self, workbook: &Workbook) -> std::io::Result<()> {
        write_atomically(&folder(workbook).join("progress.json"), &serde_json::to_string_pretty(self)?)
    }

    /// Takes over the outcomes of a run; checks that were not part of it keep theirs.
    pub fn record(&mut self, card: &Scorecard, scope: Scope) {
        for challenge in card.challenges.iter().filter(|challenge| !challenge.checks.is_empty()) {
            let standing =
                self.challenges.entry(key(&challenge.name, back_of(&challenge.device))).or_default();
            let whole = scope == Scope::Score || standing.checks.len() <= challenge.checks.len();
            if whole {
                standing.checks.clone_from(&challenge.checks);
            } else {
                standing.merge(&challenge.checks);
            }
            if scope == Scope::Score {
                standing.points = Some(challenge.points);
            } else if standing.code != challenge.code {
                standing.points = None;
            }
            standing.code.clone_from(&challenge.code);
            let passed = |step: &str| {
                let mut of_step = standing.checks.iter().filter(|check| check.step() == step);
                of_step.all(|check| matches!(check.outcome, Outcome::Passed | Outcome::NotMeasured))
            };
            self.hints.retain(|step, _| !passed(step));
        }
    }
}

/// Writes a file so that nobody ever sees half of it.
pub(crate) fn write_atomically(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
