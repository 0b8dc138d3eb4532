//! What the checks, guards and numbers say about each published wording of E.
//!
//! A pure function of what a report holds, so that `verify-report` can compute it again.

use super::train::STEPS;
use crate::course::Backend;
use crate::evidence::{OF_1B, Seen, met, unmeasured, unmet};
use crate::rubric::{Fact, Facts};
use crate::scorecard::{Basis, Check, LOSSES_APART, Outcome, Truth};
use crate::verdict::{Verdict, outcomes, verdict};

/// Of the whole run's bytes, what a chunked one may take.
const HALF: f64 = 0.5;

/// What is between two runs of a reader's own model may be so many times what a rounding makes of one: a chunked run
/// rounds in another way at every step, not only at the first.
const TIMES_A_ROUNDING: f64 = 20.0;

/// The facts of E on a back end.
pub(crate) fn facts(seen: &Seen<'_>, on: Backend) -> Facts {
    let names = crate::rubric::find("loss").map(crate::rubric::Rubric::facts).unwrap_or_default();
    if seen.checks.iter().any(|check| check.outcome == Outcome::DoesNotCompile) {
        return names.into_iter().map(|name| (name, unmeasured("the exercise does not compile"))).collect();
    }
    let answer = Answer { seen, on };
    Facts::from([
        ("VRAM_50_percent_reduction", answer.bytes()),
        ("remove_float32_upcast", answer.upcast()),
        ("show_ce_loss_works", answer.cross_entropy()),
        ("show_other_functions_work", answer.others()),
        ("hardcoded_gradients", answer.hard_coded()),
        ("allows_dynamic_chunk_sizes", answer.sizes()),
        ("llama_1B_training_loss_matches", answer.training()),
        ("GRPO_memory_efficient_linear_works", answer.policies()),
    ])
}

/// Checks of cross entropy.
const CROSS_ENTROPY: [&str; 12] = [
    "E.2/cross-entropy",
    "E.2/bias",
    "E.3/cross-entropy",
    "E.3/smoothing-and-class-weights",
    "E.3/bias",
    "E.4/mean",
    "E.4/sum",
    "E.4/none",
    "E.4/items",
    "E.4/upstream",
    "E.4/all-ignored",
    "E.4/a-label-outside",
];

/// Checks of every other loss.
const OTHERS: [&str; 9] = [
    "E.2/every-loss",
    "E.3/softcap-and-scale",
    "E.3/z-loss",
    "E.3/probability-targets",
    "E.3/distillation",
    "E.3/squares-and-likelihood",
    "E.3/made-up",
    "E.4/preferences",
    "E.4/infinity-and-nan",
];

/// Checks of chunks of any size.
const SIZES: [&str; 7] = [
    "E.2/every-row-once",
    "E.2/ignored-rows-cost-nothing",
    "E.2/nothing-counts",
    "E.3/adds-to-what-is-there",
    "E.4/unequal-chunks",
    "E.4/every-chunk-size",
    "E.4/accumulation",
];

/// Checks of the GRPO family.
const POLICIES: [&str; 10] = [
    "E.5/grpo",
    "E.5/two-sided-clip",
    "E.5/bnpo",
    "E.5/dr-grpo",
    "E.5/gspo",
    "E.5/reference",
    "E.5/without-old",
    "E.5/temperature",
    "E.5/delta",
    "E.5/masks",
];

struct Answer<'a> {
    seen: &'a Seen<'a>,
    on: Backend,
}

impl Answer<'_> {
    /// That some checks hold, and nothing was caught.
    fn hold(&self, names: &[&str], guards: &[&str], evidence: &str) -> Fact {
        let verdict = verdict(self.seen, names.iter().copied(), guards);
        let of = |name: &&str| self.seen.checks.iter().find(|check| check.name == **name);
        let Some(checks) = names.iter().map(of).collect::<Option<Vec<&Check>>>() else {
            return unmeasured("not all of its checks were run");
        };
        match outcomes(checks.iter().copied()) {
            Verdict::Unmet(reason) => return unmet(&reason),
            Verdict::Unmeasured(reason) => return unmeasured(&reason),
            Verdict::Sound => {}
        }
        let count = if checks.len() == 1 { "a check".into() } else { format!("{} checks", checks.len()) };
        verdict.judge(met(&format!("{count} against the truth in f64: {evidence}")))
    }

    /// The chunked bytes of a problem against the whole ones.
    fn reduced(&self, name: &str) -> Result<(bool, String), Fact> {
        let value = |part: &str| self.seen.value(&format!("loss.{name}.{part}"));
        let (Some(whole), Some(chunked)) = (value("whole"), value("chunked")) else {
            return Err(self.seen.why_not(&format!("loss.{name}.chunked")));
        };
        let rows = value("rows").unwrap_or(0.0);
        let drivers = [value("driver.whole"), value("driver.chunked")];
        let evidence = format!(
            "memory beyond inputs and returned gradients: {:.1} of {:.1} MiB, {:.0} % less (at least 50 %), \
             {rows:.0} rows per chunk{}",
            mib(chunked),
            mib(whole),
            100.0 * (1.0 - chunked / whole),
            by_the_driver(drivers[0], drivers[1])
        );
        let confirmed = drivers[0].zip(drivers[1]).is_none_or(|(whole, chunked)| chunked <= HALF * whole);
        Ok((chunked <= HALF * whole && confirmed, evidence))
    }

    fn bytes(&self) -> Fact {
        let verdict = verdict(self.seen, [], &["logits kept", "chunk size ignored"]);
        match self.reduced("bytes") {
            Err(fact) => fact,
            Ok((holds, evidence)) => {
                let (as_published, evidence) = (self.published(), evidence);
                let holds = holds && as_published.as_ref().is_none_or(|(holds, _)| *holds);
                let beside = as_published.as_ref().map_or(String::new(), |(_, beside)| format!("; {beside}"));
                let evidence = format!("{evidence}{beside}");
                let fact = verdict.judge(if holds { met(&evidence) } else { unmet(&evidence) });
                Fact { basis: self.stand_in_unless(as_published.is_some()), ..fact }
            }
        }
    }

    /// Where all tokens of the published size were run, whole and chunked: whether half of the bytes is saved there.
    fn published(&self) -> Option<(bool, String)> {
        let value = |name: &str| self.seen.value(&format!("loss.published.{name}"));
        let (whole, chunked, rows) = (value("whole")?, value("chunked")?, value("rows")?);
        let evidence = format!(
            "batch 4 of 4,096 tokens, hidden 4,096, vocabulary 128,256, bf16: {:.0} of {:.0} MiB, {rows:.0} rows per \
             chunk{}",
            mib(chunked),
            mib(whole),
            by_the_driver(value("driver.whole"), value("driver.chunked"))
        );
        Some((chunked <= HALF * whole, evidence))
    }

    /// What a row on a card rests on that is measured on something smaller than was published.
    fn stand_in_unless(&self, as_published: bool) -> Option<Basis> {
        (self.on == Backend::Cuda && !as_published).then_some(Basis::StandIn)
    }

    /// Steps of a training run.
    fn steps(&self) -> usize {
        STEPS[usize::from(self.on == Backend::Cuda)]
    }

    /// Whether the upcast is missing.
    fn upcast(&self) -> Fact {
        let there = self.hold(
            &["E.2/upcast", "E.3/upcast"],
            &["no upcast"],
            "logits are in f32 where products are in bf16",
        );
        opposite(there)
    }

    /// Whether the derivative is somebody's own.
    fn hard_coded(&self) -> Fact {
        let there = self.hold(
            &["E.3/made-up"],
            &["a hard-coded derivative"],
            "randomly generated losses get their own gradient",
        );
        opposite(there)
    }

    fn cross_entropy(&self) -> Fact {
        self.hold(&CROSS_ENTROPY, &["mean of chunk means"], "loss and gradients of cross entropy")
    }

    fn others(&self) -> Fact {
        self.hold(
            &OTHERS,
            &[],
            "targets, distillation, squares, likelihood, preferences, and randomly generated losses",
        )
    }

    fn sizes(&self) -> Fact {
        let guards = ["chunk size ignored", "mean of chunk means"];
        self.hold(&SIZES, &guards, "1, 3, 5, 8, 13 rows at a time and all of them agree")
    }

    fn training(&self) -> Fact {
        let Some(apart) = self.seen.value("loss.training") else { return self.seen.why_not("loss.training") };
        let (most, compiled) = match self.seen.value("loss.training.own") {
            Some(own) => (
                apart.max(own),
                format!("; {own:.1e} with chunks compiled by the attempt at C, which is right"),
            ),
            None => (apart, "; chunks are compiled by the solution of C".to_owned()),
        };
        if let Some(parameters) = self.seen.value("loss.training.parameters") {
            return self.own_training(parameters, apart);
        }
        let evidence = format!(
            "{} steps of a small Llama with LoRA: largest relative difference of the losses {apart:.1e} (limit \
             {LOSSES_APART:.0e}){compiled}",
            self.steps()
        );
        let fact = if most <= LOSSES_APART { met(&evidence) } else { unmet(&evidence) };
        Fact { basis: self.stand_in_unless(false), ..fact }
    }

    /// The training of a large model, as far apart as roundings let it be.
    fn own_training(&self, parameters: f64, apart: f64) -> Fact {
        let losses = |name: &str| {
            let measured = self.seen.measurements.get(&format!("loss.training.{name}"));
            measured.map(|measured| measured.samples.as_slice()).unwrap_or_default()
        };
        let [whole, chunked, ulp] = ["whole", "chunked", "ulp"].map(losses);
        let as_many = [whole, chunked, ulp].iter().all(|losses| losses.len() == self.steps());
        let times = if as_many { times_a_rounding(whole, chunked, ulp) } else { f64::INFINITY };
        let evidence = format!(
            "{} steps of a Llama of {:.1} million parameters with LoRA: the losses are at most {apart:.1e} apart, \
             relative, and at each step at most {times:.1} times as far as one ulp in the adapter at the beginning \
             makes them (limit {TIMES_A_ROUNDING:.0}, or {LOSSES_APART:.0e})",
            self.steps(),
            parameters / 1e6
        );
        let fact = if times <= TIMES_A_ROUNDING { met(&evidence) } else { unmet(&evidence) };
        let is_of_1b = OF_1B.contains(&parameters);
        Fact { basis: is_of_1b.then_some(Basis::AsPublished).or(self.stand_in_unless(false)), ..fact }
    }

    fn policies(&self) -> Fact {
        let evidence = "GRPO, BNPO, Dr. GRPO, DAPO's clip, GSPO";
        let right =
            self.hold(&POLICIES, &["a hard-coded derivative", "an oracle called inside a step"], evidence);
        if right.truth != Truth::Met {
            return right;
        }
        match self.reduced("policy.bytes") {
            Err(fact) => fact,
            Ok((true, evidence)) => met(&format!("{}; {evidence}", right.evidence)),
            Ok((false, evidence)) => unmet(&evidence),
        }
    }
}

/// A wording that costs the score where it is true.
fn opposite(fact: Fact) -> Fact {
    match fact.truth {
        Truth::Met => unmet(&fact.evidence),
        Truth::Unmet => met(&fact.evidence),
        Truth::Unmeasured => fact,
    }
}

/// What the driver lacked after each run, where it tells.
fn by_the_driver(whole: Option<f64>, chunked: Option<f64>) -> String {
    let said = |(whole, chunked)| {
        format!(" (by the driver's free memory {:.1} of {:.1} MiB)", mib(chunked), mib(whole))
    };
    whole.zip(chunked).map_or(String::new(), said)
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// The largest ratio of what is between two runs at a step to what a rounding at the beginning has made of the first
/// one so far. Differences within [`LOSSES_APART`] are none.
fn times_a_rounding(whole: &[f64], chunked: &[f64], ulp: &[f64]) -> f64 {
    let (mut so_far, mut most) = (0.0_f64, 0.0_f64);
    for ((whole, chunked), ulp) in whole.iter().zip(chunked).zip(ulp) {
        let apart = |other: &f64| ((other - whole) / whole).abs();
        so_far = so_far.max(apart(ulp));
        let own = apart(chunked);
        let times = if own <= LOSSES_APART { 0.0 } else { own / so_far.max(LOSSES_APART / TIMES_A_ROUNDING) };
        most = if times.is_nan() { f64::INFINITY } else { most.max(times) };
    }
    most
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::scorecard::Measurement;

    const CPU_STEPS: usize = STEPS[0];

    fn number(samples: Vec<f64>, value: f64) -> Measurement {
        Measurement { value, unit: String::new(), interval: None, samples }
    }

    /// What the row on the training says of a model of so many parameters, given the losses of all three runs.
    fn said(parameters: f64, series: [Vec<f64>; 3]) -> Fact {
        let mut measurements = BTreeMap::from([
            ("loss.training".to_owned(), number(vec![], 1e-4)),
            ("loss.training.parameters".to_owned(), number(vec![], parameters)),
        ]);
        for (name, samples) in ["whole", "chunked", "ulp"].into_iter().zip(series) {
            measurements.insert(format!("loss.training.{name}"), number(samples, 0.0));
        }
        let unmeasured = BTreeMap::new();
        let seen = Seen { checks: &[], guards: &[], measurements: &measurements, unmeasured: &unmeasured };
        Answer { seen: &seen, on: Backend::Cpu }.training()
    }

    /// Losses of which each step is farther from the first run's, relative.
    fn apart_by(rate: f64) -> Vec<f64> {
        (0..CPU_STEPS).map(|step| 4.0 * (1.0 + rate * step as f64)).collect()
    }

    #[test]
    fn an_own_model_is_allowed_twenty_times_a_rounding() {
        let of = |chunked: f64| said(1.2e9, [apart_by(0.0), apart_by(chunked), apart_by(1e-5)]).truth;
        assert_eq!(of(1.9e-4), Truth::Met);
        assert_eq!(of(2.1e-4), Truth::Unmet);
    }

    #[test]
    fn losses_that_hardly_differ_are_right_whatever_a_rounding_does() {
        let of = |chunked: f64| said(1.2e9, [apart_by(0.0), apart_by(chunked), apart_by(0.0)]).truth;
        assert_eq!(of(0.9 * LOSSES_APART / CPU_STEPS as f64), Truth::Met);
        assert_eq!(of(1.5 * LOSSES_APART / (CPU_STEPS - 1) as f64), Truth::Unmet);
    }

    /// What a rounding makes of the losses at the end says nothing about the first steps.
    #[test]
    fn a_difference_is_held_against_roundings_up_to_its_step() {
        let (whole, ulp) = (apart_by(0.0), apart_by(1e-5));
        let mut chunked = ulp.clone();
        chunked[0] *= 1.0 + 1e-4;
        assert_eq!(said(1.2e9, [whole, chunked, ulp]).truth, Truth::Unmet);
    }

    #[test]
    fn losses_that_are_no_numbers_or_missing_are_not_right() {
        let whole = apart_by(0.0);
        let mut bad = whole.clone();
        bad[CPU_STEPS - 1] = f64::NAN;
        for series in [
            [bad.clone(), whole.clone(), whole.clone()],
            [whole.clone(), bad.clone(), whole.clone()],
            [whole.clone(), whole.clone(), vec![]],
            [whole.clone(), whole[1..].to_vec(), whole.clone()],
        ] {
            assert_eq!(said(1.2e9, series).truth, Truth::Unmet);
        }
    }

    #[test]
    fn a_llama_of_about_a_billion_parameters_is_as_published() {
        for (parameters, is_as_published) in
            [(1.236e9, true), (1.10e9, true), (0.9e9, false), (3.2e9, false), (1e5, false)]
        {
            let fact = said(parameters, [apart_by(0.0), apart_by(0.0), apart_by(0.0)]);
            assert_eq!(
                (fact.truth, fact.basis == Some(Basis::AsPublished)),
                (Truth::Met, is_as_published),
                "{parameters}"
            );
        }
    }

    /// What the row on bytes says on a card, with bytes of the drawn problem and of the published one.
    fn bytes_on_a_card(numbers: &[(&str, f64)]) -> Fact {
        let of = |(name, value): &(&str, f64)| (format!("loss.{name}"), number(vec![], *value));
        let measurements = numbers.iter().map(of).collect();
        let guards = ["logits kept", "chunk size ignored"].map(|name| crate::scorecard::Guard {
            challenge: "loss".into(),
            name: name.into(),
            ran: true,
            tripped: false,
            detail: String::new(),
        });
        let unmeasured = BTreeMap::new();
        let seen =
            Seen { checks: &[], guards: &guards, measurements: &measurements, unmeasured: &unmeasured };
        Answer { seen: &seen, on: Backend::Cuda }.bytes()
    }

    const COUNTED: [(&str, f64); 3] = [("bytes.whole", 4e8), ("bytes.chunked", 1e8), ("bytes.rows", 164.0)];

    #[test]
    fn a_cards_bytes_are_as_published_where_the_published_size_was_run() {
        let small = bytes_on_a_card(&COUNTED);
        assert_eq!((small.truth, small.basis), (Truth::Met, Some(Basis::StandIn)));
        let run = [("published.whole", 4e9), ("published.chunked", 2e8), ("published.rows", 496.0)];
        let all: Vec<_> = COUNTED.into_iter().chain(run).collect();
        let whole = bytes_on_a_card(&all);
        assert_eq!((whole.truth, whole.basis), (Truth::Met, None));
        let kept: Vec<_> = all
            .iter()
            .map(|(name, x)| (*name, if *name == "published.chunked" { 3e9 } else { *x }))
            .collect();
        assert_eq!(bytes_on_a_card(&kept).truth, Truth::Unmet);
    }

    #[test]
    fn bytes_that_the_driver_does_not_confirm_are_not_saved() {
        let said = |chunked: f64| {
            let driver = [("bytes.driver.whole", 4.2e8), ("bytes.driver.chunked", chunked)];
            let all: Vec<_> = COUNTED.into_iter().chain(driver).collect();
            bytes_on_a_card(&all)
        };
        assert_eq!(said(1.2e8).truth, Truth::Met);
        assert_eq!(said(3e8).truth, Truth::Unmet);
        assert!(said(1.2e8).evidence.contains("by the driver's free memory 114.4 of 400.5 MiB"));
    }
}
