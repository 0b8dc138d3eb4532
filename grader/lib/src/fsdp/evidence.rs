//! What the checks, guards and numbers say about each published wording of B.
//!
//! A pure function of what a report holds, so that `verify-report` can compute it again.
//!
//! A row rests on its steps' checks, on the run in which these steps train, and on guards; each of them can take it
//! away. What is not written yet is not there: the lines that the published scheme gives for less are judged without
//! it.

use super::job::HOLE;
use super::trial::{FLAT, IN_SHARDS, NARROWER, PIPELINE, RANKS, SHARED, STEPS, STEPS_WITH_ROOM, TIMED};
use super::{checks, guards};
use crate::evidence::{Seen, met, unmeasured, unmet};
use crate::nf4::BYTES_PER_THREAD;
use crate::rubric::{Fact, Facts};
use crate::scorecard::{Check, LOSSES_APART, Outcome, Truth};
use crate::timing::{Verdict as Timed, at_least};
use crate::verdict::{Verdict, outcomes, verdict};

/// The bubble that is asked for with 4 ranks and 8 micro-batches whose layers are computed again.
const BUBBLE: f64 = 0.177;

/// How far the norms of gradients may be from one rank's, relative; and how far a number of the trained adapter, as a
/// part of the largest. Ranks add micro-batches in another order than one rank does, which over 60 steps makes up to
/// 3.5e-7 and 1.2e-6 (largest of 8 seeds); gradients that are added in bf16 make 1.8e-4 and 1.3e-2.
const NORMS_APART: f64 = 3e-6;
const ADAPTER_APART: f64 = 2e-5;

/// What a gather may take beyond the shards as they are stored: norms are gathered by some.
const SLACK: f64 = 1.01;

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

/// A number by its name.
pub(super) type Numbers<'a> = &'a dyn Fn(&str) -> Option<f64>;

/// Whether ranks that train in shards do what is asked of them, and the sentence with the numbers; `None` if one is
/// missing.
pub(super) fn training(of: Numbers<'_>) -> Option<(bool, String)> {
    let own = |name: &str| of(&format!("fsdp.training.{name}"));
    let [apart, norms, adapter] = [of("fsdp.training")?, own("norms")?, own("adapter")?];
    let [ranks, bytes, share, all] = [own("ranks")?, own("bytes")?, own("share")?, own("all_bytes")?];
    let [weights, beyond] = [own("weights")?, own("beyond_share")?];
    let [gathered, gathered_most] = [own("gathered")?, own("gathered_most")?];
    let [reduced, reduced_most] = [own("reduced")?, own("reduced_most")?];
    let room = own("room")?;
    let evidence = format!(
        "{STEPS} steps of a small Llama on {ranks:.0} ranks: largest relative difference from one rank's of the losses \
         {apart:.1e} (limit {LOSSES_APART:.0e}), of the norms {norms:.1e} (limit {NORMS_APART:.0e}), of the adapter \
         {adapter:.1e} (limit {ADAPTER_APART:.0e}); frozen weights on a rank: {bytes:.0} B (limit {share:.0}: \
         1/{ranks:.0} of each, in whole blocks, and tables) of {all:.0}, {beyond:.0} of {weights:.0} beyond their \
         share; put on the wire by a rank: {gathered:.0} B in gathers (limit {gathered_most:.0}: its shards as they \
         are stored, and 1 %), {reduced:.0} B in sums (limit {reduced_most:.0}: an f32 for each trained element and \
         micro-batch, and 1 %); of {STEPS_WITH_ROOM} steps with room to keep and to prefetch {room:.0} losses and \
         norms have other bits"
    );
    let is_near = apart <= LOSSES_APART && norms <= NORMS_APART && adapter <= ADAPTER_APART;
    let is_in_shards = ranks >= RANKS as f64 && bytes <= share && share < all && beyond == 0.0;
    let is_narrow = gathered <= SLACK * gathered_most && reduced <= SLACK * reduced_most;
    Some((is_near && is_in_shards && is_narrow && room == 0.0, evidence))
}

struct Answer<'a> {
    seen: &'a Seen<'a>,
}

/// What a row rests on.
struct Rests<'a> {
    steps: &'a [&'a str],
    run: &'a str,
    guards: &'a [&'a str],
}

const SHARDS: Rests<'_> =
    Rests { steps: &["B.1", "B.2", "B.3", "B.4", "B.5", "B.6"], run: IN_SHARDS, guards: &guards::NAMES };
const SHARED_LAYERS: Rests<'_> = Rests { steps: &["B.7"], run: SHARED, guards: &[guards::LEFT_OUT] };
const STAGES: Rests<'_> = Rests { steps: &["B.8"], run: PIPELINE, guards: &[guards::ORACLE] };
const ROWS: Rests<'_> = Rests { steps: &["B.1", "B.2", "B.4"], run: FLAT, guards: &guards::NAMES };

impl Answer<'_> {
    fn value(&self, name: &str) -> Result<f64, Fact> {
        self.seen.value(name).ok_or_else(|| self.seen.why_not(name))
    }

    /// A fact under what it rests on. What does not hold anyway keeps its own words.
    fn under(&self, rests: &Rests<'_>, fact: Result<Fact, Fact>) -> Fact {
        let fact = fact.unwrap_or_else(|fact| fact);
        match self.verdict(rests) {
            Verdict::Unmet(_) if fact.truth == Truth::Unmet => fact,
            Verdict::Unmet(reason) => unmet(&self.with_cause(rests, &reason)),
            Verdict::Unmeasured(reason) => self.hole(rests).unwrap_or_else(|| unmeasured(&reason)),
            Verdict::Sound => fact,
        }
    }

    /// A reason that names the run, with what went wrong in it.
    fn with_cause(&self, rests: &Rests<'_>, reason: &str) -> String {
        let run = self.seen.checks.iter().find(|check| check.name == rests.run);
        let cause =
            run.and_then(|check| check.detail.lines().next()).filter(|_| reason.starts_with(rests.run));
        cause.map_or(reason.to_owned(), |cause| format!("{reason}: {cause}"))
    }

    /// Guards first; of the checks one that is wrong before one that is not there.
    fn verdict(&self, rests: &Rests<'_>) -> Verdict {
        let is_own = |name: &str| {
            name == rests.run || rests.steps.iter().any(|step| name.starts_with(&format!("{step}/")))
        };
        let names: Vec<String> =
            checks::names().into_iter().filter(|name| is_own(name)).chain([rests.run.to_owned()]).collect();
        let own = outcomes(self.seen.checks.iter().filter(|check| is_own(&check.name)));
        let guards: Vec<&str> =
            rests.guards.iter().copied().filter(|name| !self.is_of_other_holes(name, rests)).collect();
        match (verdict(self.seen, names.iter().map(String::as_str), &guards), own) {
            (Verdict::Unmet(reason), _) | (_, Verdict::Unmet(reason)) => Verdict::Unmet(reason),
            (Verdict::Unmeasured(reason), _) | (_, Verdict::Unmeasured(reason)) => {
                Verdict::Unmeasured(reason)
            }
            (Verdict::Sound, Verdict::Sound) => Verdict::Sound,
        }
    }

    /// Whether a guard could not look because of a step that the row does not rest on, and that is not written: the
    /// solution's stood in its place.
    fn is_of_other_holes(&self, guard: &str, rests: &Rests<'_>) -> bool {
        let Some(guard) = self.seen.guards.iter().find(|known| known.name == guard) else { return false };
        let is_other =
            |step: &str| !rests.steps.contains(&step) && guard.detail.contains(&format!("{step}: "));
        let holes = self.seen.checks.iter().filter(|check| check.outcome == Outcome::NotAttempted);
        !guard.ran && guard.detail.starts_with(HOLE) && holes.map(Check::step).any(is_other)
    }

    /// Where something else is written, a step that is not is no way to win: the lines for less follow.
    fn hole(&self, rests: &Rests<'_>) -> Option<Fact> {
        let is_begun =
            self.seen.checks.iter().any(|check| matches!(check.outcome, Outcome::Passed | Outcome::Wrong));
        let is_hole = |step: &&&str| {
            let mut of_step = self.seen.checks.iter().filter(|check| check.step() == **step);
            of_step.any(|check| check.outcome == Outcome::NotAttempted)
        };
        let is_run = |check: &&Check| check.name == rests.run && check.outcome == Outcome::NotAttempted;
        let of_run = self.seen.checks.iter().find(is_run).and_then(|check| check.detail.split(':').next());
        let step = rests.steps.iter().find(is_hole).copied().or(of_run).filter(|_| is_begun)?;
        Some(unmet(&format!("not attempted: {step} is not written yet")))
    }

    /// Shards on two ranks: no more bytes than a share, the losses of one.
    fn shards(&self) -> Fact {
        self.under(&SHARDS, self.in_shards())
    }

    fn in_shards(&self) -> Result<Fact, Fact> {
        let (holds, evidence) =
            training(&|name| self.seen.value(name)).ok_or_else(|| self.seen.why_not("fsdp.training"))?;
        Ok(if holds { met(&evidence) } else { unmet(&evidence) })
    }

    /// Whether every piece ran from programs that were compiled once.
    fn compiled(&self) -> Fact {
        let judge = || -> Result<Fact, Fact> {
            let of = |name: &str| self.value(&format!("fsdp.training.{name}"));
            let [programs, again, runs] = [of("compilations")?, of("recompilations")?, of("runs")?];
            let evidence = format!(
                "counted on a rank: {programs:.0} compilations in the first step, {again:.0} in the {} after it, \
                 {runs:.0} runs of compiled graphs, collectives among their operations; the session that a rank runs \
                 in has no other way to run a graph, so there are no breaks and fallbacks to count",
                STEPS - 1
            );
            let holds = programs > 0.0 && again == 0.0 && runs >= programs;
            Ok(if holds { met(&evidence) } else { unmet(&evidence) })
        };
        self.under(&Rests { steps: &[], run: IN_SHARDS, guards: &[] }, judge())
    }

    /// Whether A's dequantiser is the one that is called, in a single pass, and worth it.
    fn dequantizer(&self) -> Fact {
        self.under(&Rests { steps: &[], run: TIMED, guards: &[] }, self.dequantized())
    }

    fn dequantized(&self) -> Result<Fact, Fact> {
        let ratio = self.value("fsdp.over_baseline")?;
        let of = |name: &str| self.value(&format!("fsdp.dequantizer.{name}"));
        let [own, sizes, wrong] = [of("own")?, of("sizes")?, of("wrong_sizes")?];
        if wrong > 0.0 {
            let evidence =
                format!("the attempt at A is wrong at {wrong:.0} of {sizes:.0} sizes of the timed model");
            return Ok(unmet(&evidence));
        }
        if own == 0.0 {
            return Ok(unmet(
                "the dequantiser is that of the solution of A: no attempt at A was handed in that is right",
            ));
        }
        let [calls, planned, parts] = [of("calls")?, of("planned")?, of("parts")?];
        let [weights, called, fewest, most] = [of("weights")?, of("called")?, of("fewest")?, of("most")?];
        let [bytes, apart] = [of("working_bytes")?, of("apart")?];
        let uses = format!(
            "the attempt at A is called {calls:.0} times a step on a rank ({planned:.0} in the programs): \
             {called:.0} of {weights:.0} weights, each {fewest:.0} to {most:.0} times, forward, backward and where \
             it is computed again, {parts:.0} calls for a part; it takes {bytes:.0} B beside its output at these \
             sizes (limit {BYTES_PER_THREAD:.0}: a single pass); losses and norms are {apart:.1e} from those with \
             three passes (limit {LOSSES_APART:.0e})"
        );
        let counts = |of: f64| of as u64;
        let is_as_planned = [called, calls].map(counts) == [weights, planned].map(counts);
        let is_one_call = is_as_planned && parts == 0.0 && fewest > 0.0;
        if !is_one_call || bytes > BYTES_PER_THREAD || apart > LOSSES_APART {
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
            Timed::Inconclusive => {
                unmet(&format!("inconclusive, the threshold lies inside the interval: {evidence}"))
            }
        })
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
        let judge = |name: &str, what: &str, rests: &Rests<'_>| -> Fact {
            let fact = self.value(name).map(|apart| {
                let evidence = format!(
                    "{what}, all other steps the solution's: losses {apart:.1e} from one rank's (limit \
                     {LOSSES_APART:.0e})"
                );
                if apart <= LOSSES_APART { met(&evidence) } else { unmet(&evidence) }
            });
            self.under(rests, fact)
        };
        let tensor = judge("fsdp.tensor", "two ranks that share every layer by B.7", &SHARED_LAYERS);
        let pipeline = judge("fsdp.pipeline", "two stages of a pipeline by B.8", &STAGES);
        match (tensor.truth, pipeline.truth) {
            (Truth::Met, Truth::Met) => met(&format!("{}; {}", tensor.evidence, pipeline.evidence)),
            (Truth::Met, _) => tensor,
            (_, Truth::Met) => pipeline,
            (Truth::Unmet, Truth::Unmet) => unmet(&format!("{}; {}", tensor.evidence, pipeline.evidence)),
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
                "flat rows on {RANKS} ranks by B.1, B.2 and B.4, all other steps the solution's: losses {apart:.1e} \
                 from one rank's (limit {LOSSES_APART:.0e}); frozen weights on a rank: {bytes:.0} B (limit \
                 {share:.0}: what shards of each parameter take)"
            );
            let holds = apart <= LOSSES_APART && bytes <= share;
            Ok(if holds { met(&evidence) } else { unmet(&evidence) })
        };
        self.under(&ROWS, judge())
    }

    /// The bubble of a schedule, for a pipeline that has run.
    fn bubble(&self) -> Fact {
        let judge = || -> Result<Fact, Fact> {
            let apart = self.value("fsdp.pipeline")?;
            let [bubble, least] = [self.value("fsdp.bubble")?, self.value("fsdp.bubble.least")?];
            let evidence = format!(
                "simulated, 4 ranks, 8 micro-batches, layers computed again: a bubble of {:.2} % (limit {:.1} %; no \
                 schedule has less than {:.2} %); run, two stages: losses {apart:.1e} from one rank's (limit \
                 {LOSSES_APART:.0e})",
                100.0 * bubble,
                100.0 * BUBBLE,
                100.0 * least
            );
            let holds = bubble <= BUBBLE && apart <= LOSSES_APART;
            Ok(if holds { met(&evidence) } else { unmet(&evidence) })
        };
        self.under(&STAGES, judge())
    }

    /// The demonstration: a run on two ranks that a score makes, with its report. Which one, the lines before it say:
    /// that in shards, else one that the scheme gives less for. Whoever trips a guard has none.
    fn demonstration(&self) -> Fact {
        let shown = |what: &str| {
            met(&format!(
                "{what} on {RANKS} ranks by `cargo grader score fsdp`, kept with their losses in its report (`--json`, \
                 `report`); ranks are threads here"
            ))
        };
        let shards = self.shards();
        if shards.truth == Truth::Met {
            return shown(&format!("{STEPS} steps in shards"));
        }
        if let Verdict::Unmet(reason) = verdict(self.seen, [], &guards::NAMES) {
            return unmet(&reason);
        }
        let others =
            [("steps in shared layers or stages", self.parts()), ("steps in flat rows", self.flat())];
        match others.iter().find(|(_, fact)| fact.truth == Truth::Met) {
            Some((what, _)) => shown(what),
            None => shards,
        }
    }
}
