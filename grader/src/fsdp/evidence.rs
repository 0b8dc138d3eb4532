//! What the checks, guards and numbers say about each published wording of B.
//!
//! A pure function of what a report holds, so that `verify-report` can compute it again.

use super::bench::NARROWER;
use super::train::{RANKS, STEPS};
use super::{checks, guards};
use crate::evidence::{Seen, met, unmeasured, unmet};
use crate::rubric::{Fact, Facts, LOSSES_APART};
use crate::scorecard::{Outcome, Truth};
use crate::timing::{Verdict as Timed, at_least};
use crate::verdict::{outcomes, verdict};

/// The bubble that is asked for with 4 ranks and 8 micro-batches whose layers are computed again.
const BUBBLE: f64 = 0.177;

/// The facts of B.
pub(super) fn facts(seen: &Seen<'_>) -> Facts {
    let names = crate::rubric::find("fsdp").map(crate::rubric::Rubric::facts).unwrap_or_default();
    if seen.checks.iter().any(|check| check.outcome == Outcome::DoesNotCompile) {
        return names.into_iter().map(|name| (name, unmeasured("the exercise does not compile"))).collect();
    }
    let answer = Answer { seen };
    let no_library = unmet("there is no second 4-bit library here");
    Facts::from([
        ("FSDP2_works_with_QLoRA", answer.shards()),
        ("torch_compile_works", answer.compiled()),
        ("uses_part_A_and_single_kernel_and_faster", answer.dequantizer()),
        ("uses_torchAO", no_library.clone()),
        ("torchAO_slower_than_BnB", no_library),
        ("TP_or_PP_with_QLoRA", answer.parts()),
        ("zero_bubble", answer.bubble()),
        ("FSDP1_works_with_QLoRA", answer.flat()),
        ("kaggle_notebook_2_tesla_t4_example", answer.demonstration()),
    ])
}

struct Answer<'a> {
    seen: &'a Seen<'a>,
}

impl Answer<'_> {
    fn value(&self, name: &str) -> Result<f64, Fact> {
        self.seen.value(name).ok_or_else(|| self.seen.why_not(name))
    }

    /// A fact under its checks, those of some steps, and guards.
    fn under(&self, steps: &[&str], guards: &[&str], fact: Fact) -> Fact {
        let of_steps = |name: &String| steps.iter().any(|step| name.starts_with(&format!("{step}/")));
        let names: Vec<String> = checks::names().into_iter().filter(of_steps).collect();
        let own = self.seen.checks.iter().filter(|check| names.contains(&check.name));
        let fact = verdict(self.seen, names.iter().map(String::as_str), guards).judge(fact);
        outcomes(own).judge(fact)
    }

    /// Shards on two ranks: no more bytes than a share, the losses of one.
    fn shards(&self) -> Fact {
        let steps = ["B.1", "B.2", "B.3", "B.4", "B.5", "B.6"];
        let fact = self.in_shards().unwrap_or_else(|fact| fact);
        self.under(&steps, &guards::NAMES, fact)
    }

    fn in_shards(&self) -> Result<Fact, Fact> {
        let of = |name: &str| self.value(&format!("fsdp.training.{name}"));
        let apart = self.value("fsdp.training")?;
        let [ranks, bytes, share, all] = [of("ranks")?, of("bytes")?, of("share")?, of("all_bytes")?];
        let evidence = format!(
            "{STEPS} steps of a small Llama on {ranks:.0} ranks: largest relative difference of the losses from one \
             rank's {apart:.1e} (limit {LOSSES_APART:.0e}); frozen weights on a rank: {bytes:.0} B (limit {share:.0}: \
             1/{ranks:.0} of each, in whole blocks, and tables) of {all:.0}"
        );
        let holds = apart <= LOSSES_APART && ranks >= RANKS as f64 && bytes <= share && share < all;
        Ok(if holds { met(&evidence) } else { unmet(&evidence) })
    }

    /// Whether every piece ran from programs that were compiled once.
    fn compiled(&self) -> Fact {
        let judge = || -> Result<Fact, Fact> {
            let of = |name: &str| self.value(&format!("fsdp.training.{name}"));
            let [programs, again, runs] = [of("compilations")?, of("recompilations")?, of("runs")?];
            let evidence = format!(
                "a rank runs nothing but compiled graphs, collectives among their operations: {programs:.0} \
                 compilations in the first step, {again:.0} in the {} after it, {runs:.0} runs",
                STEPS - 1
            );
            let holds = programs > 0.0 && again == 0.0 && runs >= programs;
            Ok(if holds { met(&evidence) } else { unmet(&evidence) })
        };
        judge().unwrap_or_else(|fact| fact)
    }

    /// Whether A's dequantiser is the one that is called, and worth it.
    fn dequantizer(&self) -> Fact {
        let judge = || -> Result<Fact, Fact> {
            let ratio = self.value("fsdp.over_baseline")?;
            let of = |name: &str| self.value(&format!("fsdp.dequantizer.{name}"));
            let [calls, parts, weights, own] = [of("calls")?, of("parts")?, of("weights")?, of("own")?];
            if own == 0.0 {
                return Ok(unmet(
                    "the dequantiser is that of the solution of A: no attempt at A was handed in that is right",
                ));
            }
            let uses = format!(
                "the attempt at A is called {calls:.0} times a step on a rank for {weights:.0} weights, once for a \
                 whole weight ({parts:.0} calls for a part)"
            );
            if calls < weights || parts > 0.0 {
                return Ok(unmet(&uses));
            }
            let measured = self.seen.measurements.get("fsdp.over_baseline");
            let Some([low, high]) = measured.and_then(|measured| measured.interval) else {
                return Err(unmeasured("too few rounds for an interval"));
            };
            let evidence = format!(
                "{uses}; at the width of a 1B Llama the step of the slowest rank is {ratio:.2} [{low:.2}, {high:.2}] \
                 times as fast as with three passes{}",
                self.narrower()
            );
            Ok(match at_least([low, high], 1.0) {
                Timed::Met => met(&evidence),
                Timed::Unmet => unmet(&evidence),
                Timed::Inconclusive => unmeasured(&evidence),
            })
        };
        judge().unwrap_or_else(|fact| fact)
    }

    /// What the same is in narrower layers, for which nothing is asked.
    fn narrower(&self) -> String {
        let of = |width: &usize| Some((*width, self.seen.value(&format!("fsdp.narrower.{width}"))?));
        let all = NARROWER.iter().filter_map(of).map(|(width, ratio)| format!("{ratio:.2} at width {width}"));
        let all: Vec<String> = all.collect();
        if all.is_empty() { String::new() } else { format!(" ({})", all.join(", ")) }
    }

    /// Ranks that share layers, or stages of a pipeline.
    fn parts(&self) -> Fact {
        let judge = |name: &str, what: &str, step: &str| -> Fact {
            let Some(apart) = self.seen.value(name) else { return self.seen.why_not(name) };
            let evidence = format!("{what}: losses {apart:.1e} from one rank's (limit {LOSSES_APART:.0e})");
            let fact = if apart <= LOSSES_APART { met(&evidence) } else { unmet(&evidence) };
            self.under(&[step], &[], fact)
        };
        let tensor = judge("fsdp.tensor", "two ranks that share every layer", "B.7");
        let pipeline = judge("fsdp.pipeline", "two stages of a pipeline", "B.8");
        match (tensor.truth, pipeline.truth) {
            (Truth::Met, Truth::Met) => met(&format!("{}; {}", tensor.evidence, pipeline.evidence)),
            (Truth::Met, _) | (Truth::Unmet, Truth::Unmet) => tensor,
            (_, Truth::Met) => pipeline,
            (Truth::Unmeasured, _) => tensor,
            (Truth::Unmet, Truth::Unmeasured) => pipeline,
        }
    }

    /// Flat rows of everything frozen that a piece reads.
    fn flat(&self) -> Fact {
        let judge = || -> Result<Fact, Fact> {
            let [apart, bytes, share] =
                [self.value("fsdp.flat")?, self.value("fsdp.flat.bytes")?, self.value("fsdp.flat.share")?];
            let evidence = format!(
                "flat rows on {RANKS} ranks: losses {apart:.1e} from one rank's (limit {LOSSES_APART:.0e}); frozen \
                 weights on a rank: {bytes:.0} B (limit {share:.0}: what shards of each parameter take)"
            );
            let holds = apart <= LOSSES_APART && bytes <= share;
            Ok(if holds { met(&evidence) } else { unmet(&evidence) })
        };
        self.under(&["B.1", "B.2"], &guards::NAMES, judge().unwrap_or_else(|fact| fact))
    }

    fn bubble(&self) -> Fact {
        let judge = || -> Result<Fact, Fact> {
            let [bubble, least] = [self.value("fsdp.bubble")?, self.value("fsdp.bubble.least")?];
            let evidence = format!(
                "4 ranks, 8 micro-batches, layers computed again: a bubble of {:.2} % (limit {:.1} %; no schedule has \
                 less than {:.2} %)",
                100.0 * bubble,
                100.0 * BUBBLE,
                100.0 * least
            );
            Ok(if bubble <= BUBBLE { met(&evidence) } else { unmet(&evidence) })
        };
        self.under(&["B.8"], &[], judge().unwrap_or_else(|fact| fact))
    }

    /// The demonstration: the run on two ranks that a score makes, with its report.
    fn demonstration(&self) -> Fact {
        let fact = self.in_shards().unwrap_or_else(|fact| fact);
        if fact.truth != Truth::Met {
            return fact;
        }
        met(&format!(
            "{STEPS} steps on {RANKS} ranks by `cargo grader score fsdp`, kept with their losses in its report \
             (`--json`, `report`); ranks are threads here"
        ))
    }
}
