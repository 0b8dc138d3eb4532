//! The lines that a run prints: about its start, its progress and its end.

use std::fmt::Write as _;

use challenges::fsdp::FSDP;

use super::{Job, Run};
use crate::output::{Failure, print};
use crate::train::dataset::Dataset;
use crate::train::save::Saved;

impl Run<'_, '_, '_> {
    /// Prints above the bar, on the first rank.
    pub(super) fn say(&self, text: &str) {
        self.first.iter().for_each(|first| first.progress.say(text));
    }

    pub(super) fn draw(&self) -> Result<(), Failure> {
        self.first.iter().try_for_each(|first| self.job.output.draw(&first.curves.svg()))
    }

    /// Where the time of the steps went, and what reading the data took before them.
    pub(super) fn spent(&self) -> String {
        let [all, compiling, running] = self.stepping.map(|time| time.as_secs_f64());
        let beside = (all - compiling - running).max(0.0);
        format!(
            "{all:.2} s of steps: {compiling:.2} s compiled, {running:.2} s ran what was compiled, {beside:.3} s were \
             beside it; the data was read in {:.3} s\n",
            self.job.reading.as_secs_f64()
        )
    }
}

pub(super) const GIB: f64 = (1_u64 << 30) as f64;

/// A line about the steps that were skipped; empty if there were none.
pub(super) fn skipped(at: &Saved) -> String {
    let Saved { step, skipped, .. } = at;
    let hint = match 2 * skipped {
        0 => return String::new(),
        _ if skipped == step => "; nothing was trained, and the adapter is what it was at the start",
        twice if twice >= *step => "; a smaller learning_rate or dtype = \"bfloat16\" may help",
        _ => "",
    };
    format!("{skipped} of {step} steps were skipped, as their gradient was not finite{hint}\n")
}

/// Prints what the run will do.
pub(super) fn describe(job: &Job<'_>) {
    let Job { config, data, batches, start, .. } = job;
    let evaluated = config.eval_dataset_name.as_deref().unwrap_or_default();
    let mut text = String::new();
    for (name, data) in [config.dataset_name.as_str(), evaluated].iter().zip(data) {
        let Dataset { rows, left_out, cut, merged, group, .. } = data;
        if rows.is_empty() {
            continue; // there are no evaluations
        }
        let of = if *group > 1 { format!("{} examples of ", data.examples()) } else { String::new() };
        let rows = if *group > 1 { *group } else { rows.len() };
        let _ = write!(text, "{name}: {of}{rows} rows, the longest of {} tokens", data.longest());
        if *cut > 0 {
            let _ = write!(text, "; {cut} cut to max_length");
        }
        if *left_out > 0 {
            let _ = write!(text, "; {left_out} left out, for they have no trained token");
        }
        if *merged > 0 {
            let _ = write!(
                text,
                "; {merged} prompts part from their rows before their end, and are trained from there"
            );
        }
        text.push('\n');
    }
    let _ = write!(text, "{} steps in {:.2} epochs", batches.steps, batches.epochs(batches.steps));
    if start.step > 0 {
        let _ = write!(text, "; {} are made", start.step);
    }
    if let Some(mesh) = config.several() {
        let _ = write!(text, "\n{} ranks", mesh.ranks());
        let (shares, parts) = (mesh.size(FSDP).unwrap_or(1) as u64, config.gradient_accumulation_steps);
        if shares > parts {
            let idle = shares - parts;
            let batches = if parts == 1 { "micro-batch" } else { "micro-batches" };
            let _ =
                write!(text, "; a step has {parts} {batches}, so {idle} of {shares} compute padding alone");
        }
    }
    print(&format!("{text}\n"));
}
