//! What the checks, guards and numbers say about each published wording of C.
//!
//! A pure function of what a report holds, so that `verify-report` can compute it again.

use crate::course::Backend;
use crate::evidence::{OF_1B, Seen, met, unmeasured, unmet};
use crate::rubric::{Fact, Facts};
use crate::scorecard::{Basis, Check, Outcome};
use crate::verdict::{Verdict, outcomes, verdict};

/// Compilations over the lengths that are too many: the published statement calls about 30 the limit.
const EXCESSIVE: f64 = 30.0;

/// The facts of C on a back end.
pub(crate) fn facts(seen: &Seen<'_>, on: Backend) -> Facts {
    let names = crate::rubric::find("graph").map(crate::rubric::Rubric::facts).unwrap_or_default();
    if let Some(reason) = nothing_to_judge(seen) {
        return names.into_iter().map(|name| (name, unmeasured(&reason))).collect();
    }
    let answer = Answer { seen, on };
    let facts = Facts::from([
        ("uses_flex_attention", answer.flex()),
        ("dynamic_sequence_length_works", answer.dynamic()),
        ("no_torch_compile_BnB", answer.outside()),
        ("use_part_A", answer.part_a()),
        ("torch_compile_BnB", answer.dequantizes()),
        ("excessive_recompilation", answer.excessive()),
        ("attention_compiled", answer.layers("attention")),
        ("mlp_compiled", answer.layers("mlp")),
        ("layernorms_compiled", answer.layers("norm")),
        ("loss_compiled", answer.loss()),
        ("max_autotune_triton_matmul", answer.tuned()),
    ]);
    // what is worth points rests on every guard; what costs some stays as it is
    let verdict = verdict(seen, [], &super::guards::NAMES);
    let costs = ["no_torch_compile_BnB", "excessive_recompilation"];
    let basis = answer.basis();
    let judged = |(name, fact)| {
        let fact = if costs.contains(&name) { fact } else { verdict.judge(fact) };
        (name, Fact { basis, ..fact })
    };
    facts.into_iter().map(judged).collect()
}

/// Why no line can be judged, if so.
fn nothing_to_judge(seen: &Seen<'_>) -> Option<String> {
    if seen.checks.iter().any(|check| check.outcome == Outcome::DoesNotCompile) {
        return Some("the exercise does not compile".into());
    }
    if seen.value("graph.lengths").is_none() {
        let reason = seen.why_not("graph.lengths").evidence;
        return Some(reason.trim_start_matches("not measured: ").to_owned());
    }
    None
}

struct Answer<'a> {
    seen: &'a Seen<'a>,
    on: Backend,
}

impl Answer<'_> {
    /// On a card a small model stands in for the published one of 1B.
    fn basis(&self) -> Option<Basis> {
        let is_of_1b = OF_1B.contains(&self.count("parameters"));
        (self.on == Backend::Cuda && !is_of_1b).then_some(Basis::StandIn)
    }

    fn count(&self, name: &str) -> f64 {
        self.seen.value(&format!("graph.{name}")).unwrap_or(0.0)
    }

    /// What keeps the run from counting.
    fn flaw(&self) -> Option<String> {
        let [breaks, right, all] = ["breaks", "lengths_right", "lengths"].map(|name| self.count(name));
        if breaks > 0.0 {
            return Some(format!("the program is captured with {breaks:.0} breaks"));
        }
        (right < all).then(|| {
            let detail = self
                .seen
                .unmeasured
                .get("graph.wrong")
                .map_or(String::new(), |message| format!(": {message}"));
            format!("results are right at {right:.0} of {all:.0} lengths{detail}")
        })
    }

    /// What is wrong with a step, if anything is.
    fn wrong(&self, step: &str) -> Option<&Check> {
        let of_step = |check: &&Check| check.step() == step;
        let good = |check: &Check| matches!(check.outcome, Outcome::Passed | Outcome::NotMeasured);
        self.seen.checks.iter().filter(of_step).find(|check| !good(check))
    }

    fn verdict(&self, holds: bool, evidence: &str, steps: &[&str]) -> Fact {
        if let Some(flaw) = self.flaw() {
            return unmet(&format!("{evidence}; but {flaw}"));
        }
        match outcomes(
            self.seen
                .checks
                .iter()
                .filter(|check| steps.contains(&check.step()) && check.outcome != Outcome::NotMeasured),
        ) {
            Verdict::Unmet(reason) => return unmet(&format!("{evidence}; but {reason}")),
            Verdict::Unmeasured(reason) => return unmeasured(&reason),
            Verdict::Sound => {}
        }
        let fact = if holds { met(evidence) } else { unmet(evidence) };
        let names = super::checks::names();
        let rests_on = |name: &&str| steps.iter().any(|step| name.split('/').next() == Some(step));
        verdict(self.seen, names.iter().map(String::as_str).filter(rests_on), &[]).judge(fact)
    }

    /// Attention is one launch with the user's programs.
    fn flex(&self) -> Fact {
        let [launches, layers] = ["flex_launches", "layers"].map(|name| self.count(name));
        let evidence =
            format!("{launches:.0} launches of attention with the user's mask for {layers:.0} layers");
        self.verdict(launches >= layers, &evidence, &["C.8"])
    }

    fn dynamic(&self) -> Fact {
        if self.seen.value("graph.buckets").is_none() {
            let reason = "C.2 is not written yet: the step was run at one length";
            return self.wrong("C.2").map_or(unmet(reason), |check| match check.outcome {
                Outcome::NotAttempted => unmet(reason),
                outcome => unmet(&format!("{} is {}", check.name, outcome.word())),
            });
        }
        let [lengths, compilations, buckets] =
            ["lengths", "compilations", "buckets"].map(|name| self.count(name));
        let evidence =
            format!("{lengths:.0} random lengths, {compilations:.0} compilations for {buckets:.0} buckets");
        self.verdict(compilations <= buckets, &evidence, &["C.2"])
    }

    /// The dequantiser runs outside of the graph.
    fn outside(&self) -> Fact {
        let [steps, calls] = ["dequantized", "dequantizer_calls"].map(|name| self.count(name));
        let evidence =
            format!("per step: {steps:.0} dequantise launches in the graph, {calls:.0} dequantiser calls");
        if steps == 0.0 || (calls - steps).abs() > 0.5 { met(&evidence) } else { unmet(&evidence) }
    }

    fn part_a(&self) -> Fact {
        match self.seen.value("graph.part_a") {
            Some(whose) if whose > 0.0 => {
                self.verdict(true, "the dequantiser is that of the attempt at A, which is right", &[])
            }
            _ if self.on == Backend::Cuda => unmet(
                "the dequantiser is the kernel of the solution of A: that of an attempt is not taken along",
            ),
            _ => unmet(
                "the dequantiser is that of the solution of A: no attempt at A was handed in that is right",
            ),
        }
    }

    fn dequantizes(&self) -> Fact {
        let calls = self.count("dequantizer_calls");
        self.verdict(
            calls > 0.0,
            &format!("per step: {calls:.0} dequantiser calls, all of them launches in the graph"),
            &[],
        )
    }

    fn excessive(&self) -> Fact {
        let [lengths, compilations, hidden] =
            ["lengths", "compilations", "hidden_compilations"].map(|name| self.count(name));
        let evidence = format!(
            "{compilations:.0} compilations for {lengths:.0} lengths, {hidden:.0} more that no counter of the session saw"
        );
        if compilations + hidden > EXCESSIVE { met(&evidence) } else { unmet(&evidence) }
    }

    /// Every layer's part has steps of the plan.
    fn layers(&self, part: &str) -> Fact {
        let [layers, launches] = ["layers", "launches"].map(|name| self.count(name));
        let compiled = self.count(&format!("{part}_layers"));
        let evidence = format!(
            "{compiled:.0} of {layers:.0} layers run it as steps of a plan of {launches:.0} launches; breaks: {:.0}",
            self.count("breaks")
        );
        self.verdict(compiled >= layers, &evidence, &["C.1", "C.6"])
    }

    fn loss(&self) -> Fact {
        let parts = self.count("loss_parts");
        let evidence = if parts > 0.0 {
            "the loss and its gradient are steps of the plan".to_owned()
        } else {
            "no step of the plan belongs to the loss".to_owned()
        };
        self.verdict(parts > 0.0, &evidence, &["C.1", "C.6"])
    }

    fn tuned(&self) -> Fact {
        let [questions, trials, products] = ["questions", "trials", "products"].map(|name| self.count(name));
        let evidence = format!(
            "{questions:.0} different products, {trials:.0} runs to find the fastest way of cutting each; the last plan has {products:.0}"
        );
        self.verdict(questions > 0.0 && trials > questions, &evidence, &["C.7"])
    }
}
