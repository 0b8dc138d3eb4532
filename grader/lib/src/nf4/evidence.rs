//! What the checks, guards and numbers say about each published wording of A.
//!
//! A pure function of what a report holds, so that `verify-report` can compute it again.

use std::collections::BTreeMap;

use challenges::nf4::BENCHES;
use figures::number::bytes;

use super::bench::{DISTURBED, Samples};
use super::footprint::BYTES_PER_THREAD;
use super::{bench_name, watched};
use crate::evidence::{Seen, met, unmeasured, unmet};
use crate::rubric::{Fact, Facts};
use crate::scorecard::{Check, Measurement, Outcome};
use crate::timing::{Bounded, FEWEST_ROUNDS, Pairs, Resample, Rounds, Verdict, at_least, total_speedup};
use crate::verdict::{self, verdict};

/// The facts of A on the CPU, from what was seen.
pub(crate) fn facts(seen: &Seen<'_>) -> Facts {
    let answer = Answer {
        seen,
        steps: &["A.5", "A.6"],
        required: super::checks::names().into_iter().filter(|name| !is_of_one_machine(name)).collect(),
        guards: &super::guards::NAMES,
        timed: &super::bench::GUARDS,
    };
    judged(&answer, [single_kernel, vector_code, streaming, in_a_graph])
}

/// Whether a check is there only where the processor has a unit of its kind.
fn is_of_one_machine(check: &str) -> bool {
    check.starts_with(EVERY_PATH) && !check.ends_with("-portable")
}

/// The checks of each path through the fast step.
const EVERY_PATH: &str = "A.6/every-path-";

/// What was seen, and what that must hold.
pub(super) struct Answer<'a> {
    pub seen: &'a Seen<'a>,
    /// The steps that answer the challenge: each dequantises a whole weight.
    pub steps: &'static [&'static str],
    /// The checks that every run has.
    pub required: Vec<String>,
    /// The guards that run by themselves.
    pub guards: &'static [&'static str],
    /// The guards that look on while cases are timed.
    pub timed: &'static [&'static str],
}

/// The facts of A: those that are judged alike everywhere, and those of a device on its launches, its own
/// instructions, its hints to the caches and its compiled graphs.
pub(super) fn judged(
    answer: &Answer<'_>,
    [kernel, asm, eviction, compiled]: [fn(&Answer<'_>) -> Fact; 4],
) -> Facts {
    if let Some(reason) = answer.nothing_to_judge() {
        let facts = crate::rubric::RUBRICS[0].facts();
        return facts.into_iter().map(|name| (name, unmeasured(&reason))).collect();
    }
    let mut facts = Facts::new();
    facts.insert("single_triton_kernel", kernel(answer));
    facts.extend(speed(answer).into_iter().map(|(name, fact)| (name, answer.verdict_on_speed().judge(fact))));
    facts.insert("kernel_works_in_torch_compile", compiled(answer));
    facts.insert("custom_asm_works", asm(answer));
    facts.insert("uses_cache_eviction", eviction(answer));
    facts.insert("tested_in_f16_and_bf16", both_types(answer));
    let verdict = answer.verdict_on_all();
    facts.into_iter().map(|(name, fact)| (name, verdict.judge(fact))).collect()
}

impl Answer<'_> {
    /// Every row rests on every guard that looked, and on all checks of the answer, holes or not.
    fn verdict_on_all(&self) -> verdict::Verdict {
        let looked = |name: &&str| self.seen.guards.iter().any(|guard| guard.name == **name);
        let timed = self.timed.iter().copied().filter(looked);
        self.rests_on(&self.guards.iter().copied().chain(timed).collect::<Vec<_>>())
    }

    /// Speed rests on those that look on while it is timed, too.
    fn verdict_on_speed(&self) -> verdict::Verdict {
        self.rests_on(&[self.guards, self.timed].concat())
    }

    fn rests_on(&self, guards: &[&str]) -> verdict::Verdict {
        let of_answer = |name: &&str| self.steps.iter().any(|step| name.split('/').next() == Some(step));
        verdict(self.seen, self.required.iter().map(String::as_str).filter(of_answer), guards)
    }

    /// Why no line of A can be judged, if so.
    fn nothing_to_judge(&self) -> Option<String> {
        let checks = || self.seen.checks.iter();
        if checks().any(|check| check.outcome == Outcome::DoesNotCompile) {
            return Some("the exercise does not compile".into());
        }
        let first = self.steps[0];
        let of_first: Vec<&Check> = checks().filter(|check| check.step() == first).collect();
        if of_first.is_empty() {
            return Some(format!("the checks of {first} were not run"));
        }
        if of_first.iter().all(|check| check.outcome == Outcome::NotMeasured) {
            return Some(of_first[0].detail.clone());
        }
        let mut answers = checks().filter(|check| self.steps.contains(&check.step()));
        answers
            .all(|check| check.outcome == Outcome::NotAttempted)
            .then(|| format!("{first}, the first step that answers the challenge, is not written yet"))
    }

    /// The steps of the answer that are not holes.
    fn begun(&self) -> Vec<&'static str> {
        let tried = |check: &&Check| check.outcome != Outcome::NotAttempted;
        let begun: Vec<&str> = self.seen.checks.iter().filter(tried).map(Check::step).collect();
        self.steps.iter().filter(|step| begun.contains(step)).copied().collect()
    }

    /// The checks that the answer is judged by: those of every step that is not a hole.
    fn checks(&self) -> Vec<&Check> {
        let begun = self.begun();
        self.seen.checks.iter().filter(|check| begun.contains(&check.step())).collect()
    }

    pub fn all_pass(&self) -> bool {
        self.checks().iter().all(|check| matches!(check.outcome, Outcome::Passed | Outcome::NotMeasured))
    }

    /// The fact of something that holds only of right answers.
    pub fn verdict(&self, holds: bool, evidence: String) -> Fact {
        if holds && self.all_pass() { met(&evidence) } else { unmet(&self.with_wrong_answers(evidence)) }
    }

    /// What keeps a good number from counting.
    fn with_wrong_answers(&self, evidence: String) -> String {
        match self.flaw() {
            None => evidence,
            Some(flaw) => format!("{evidence}; but {flaw}"),
        }
    }

    /// The first check of the answer that has not passed.
    fn flaw(&self) -> Option<String> {
        let checks = self.checks();
        let wrong = checks.iter().find(|check| check.outcome == Outcome::Wrong);
        let open =
            checks.iter().find(|check| !matches!(check.outcome, Outcome::Passed | Outcome::NotMeasured));
        match (wrong, open) {
            (Some(check), _) => Some(format!("answers are wrong, as in {}", check.name)),
            (None, Some(check)) => {
                Some(format!("the step is not finished: {} is {}", check.name, check.outcome.word()))
            }
            (None, None) => None,
        }
    }
}

/// One launch, and no memory that could hold an intermediate.
fn single_kernel(answer: &Answer<'_>) -> Fact {
    let seen = answer.seen;
    let Some(per_thread) = seen.value("nf4.working_bytes") else { return seen.why_not("nf4.working_bytes") };
    let (peak, launches) = (seen.value("nf4.peak_bytes"), seen.value("nf4.launches"));
    let (peak, launches) = (peak.unwrap_or(f64::MAX), launches.unwrap_or(f64::MAX));
    let scales = 4096.0 * 4096.0 / 64.0 * 4.0; // bytes of the smallest full-size intermediate, the f32 scales
    let evidence = format!(
        "peak heap {} per thread (limit {}), {} total (limit {}, half of an f32 buffer for the scales); kernel launches: {launches:.0} of exactly 1",
        bytes(per_thread),
        bytes(BYTES_PER_THREAD),
        bytes(peak),
        bytes(scales / 2.0)
    );
    let fused = per_thread <= BYTES_PER_THREAD && peak < scales / 2.0 && launches as u64 == 1;
    answer.verdict(fused, evidence)
}

/// Every weight of a compiled graph is dequantised by the attempt, to the bit.
pub(super) fn in_a_graph(answer: &Answer<'_>) -> Fact {
    let seen = answer.seen;
    let Some(weights) = seen.value("nf4.graph_weights") else { return seen.why_not("nf4.graph_weights") };
    let [equal, breaks, launches] = ["weights_equal", "breaks", "launches"]
        .map(|name| seen.value(&format!("nf4.graph_{name}")).unwrap_or(0.0));
    let evidence = format!(
        "inside a compiled graph: {equal:.0} of {weights:.0} weights bit-equal, graph breaks: {breaks:.0} of exactly 0, launches that call it: {launches:.0} (at least {weights:.0})"
    );
    answer.verdict(equal >= weights && breaks == 0.0 && launches >= weights, evidence)
}

/// The published thresholds that are good to pass.
const THRESHOLDS: [(&str, f64); 3] =
    [("speedup >= 1.05", 1.05), ("speedup >= 1.10", 1.10), ("speedup >= 1.15", 1.15)];

/// The four thresholds of the published total.
fn speed(answer: &Answer<'_>) -> BTreeMap<&'static str, Fact> {
    let seen = answer.seen;
    let every = |fact: Fact| {
        let names = THRESHOLDS.iter().map(|(name, _)| *name).chain(["speedup <= 1.00"]);
        names.map(|name| (name, fact.clone())).collect()
    };
    let Some((value, interval)) = total(seen.measurements) else {
        return every(seen.why_not("nf4.speedup"));
    };
    if !answer.all_pass() {
        let flaw = answer.flaw().unwrap_or_default();
        return every(unmet(&format!("not judged by its speed, because {flaw}")));
    }
    if let Some(case) = faster_than_the_bound(seen.measurements) {
        return every(unmet(&format!(
            "inconclusive: the machine is busy; {case} is often faster than the bound beside it, not often enough to be \
             sure{}",
            disturbed(seen.measurements)
        )));
    }
    let Some(interval) = interval else {
        return every(unmet(&format!(
            "inconclusive: {value:.3}x the baseline, without an interval, which takes {FEWEST_ROUNDS} rounds a case"
        )));
    };
    let message =
        format!("{value:.3}x the baseline (95 % interval {:.3} to {:.3})", interval[0], interval[1]);
    let judge = |verdict| match verdict {
        Verdict::Met => met(&message),
        Verdict::Unmet => unmet(&message),
        Verdict::Inconclusive => {
            let disturbed = disturbed(seen.measurements);
            unmet(&format!("inconclusive, the threshold lies inside the interval: {message}{disturbed}"))
        }
    };
    let mut facts: BTreeMap<_, _> =
        THRESHOLDS.iter().map(|(name, threshold)| (*name, judge(at_least(interval, *threshold)))).collect();
    let slower = match interval {
        [_, high] if high <= 1.0 => Verdict::Met,
        [low, _] if low > 1.0 => Verdict::Unmet,
        _ => Verdict::Inconclusive,
    };
    facts.insert("speedup <= 1.00", judge(slower));
    facts
}

/// Counts the disturbed rounds of the published cases; empty if there are none.
fn disturbed(measurements: &BTreeMap<String, Measurement>) -> String {
    let published = || BENCHES.iter().filter(|bench| bench.published).map(bench_name);
    let number = |case: &String| measurements.get(&format!("nf4.{DISTURBED}.{case}"));
    let disturbed: f64 = published().filter_map(|case| Some(number(&case)?.value)).sum();
    let all: usize = published().map(|case| rounds(measurements, &case).count).sum();
    if disturbed > 0.0 {
        format!(
            "; in {disturbed:.0} of {all} rounds a thread waited for a processor that another program had"
        )
    } else {
        String::new()
    }
}

/// The case whose rounds neither clear nor refuse the attempt, if any.
fn faster_than_the_bound(measurements: &BTreeMap<String, Measurement>) -> Option<String> {
    let open = |name: &String| rounds(measurements, name).verdict() == Bounded::Open;
    BENCHES.iter().filter(|bench| bench.published).map(bench_name).find(open)
}

/// What a report's samples of a case, such as `4096x14336.bf16`, say about the attempt and the bound: what the guard
/// "past the physical bound" rests on.
pub(crate) fn rounds(measurements: &BTreeMap<String, Measurement>, case: &str) -> Rounds {
    let samples = |kind: &str| {
        let number = measurements.get(&format!("nf4.{kind}.{case}"));
        number.map_or(vec![], |number| number.samples.clone())
    };
    let credit = measurements.get(&format!("nf4.bound_credit.{case}")).map_or(0.0, |credit| credit.value);
    let samples = Samples { bound: samples("bound"), attempt: samples("attempt"), ..Samples::default() };
    samples.rounds(credit)
}

/// Total baseline time over total attempt time of the published cases, if all were timed.
pub fn total(measurements: &BTreeMap<String, Measurement>) -> Option<(f64, Option<[f64; 2]>)> {
    Some(total_speedup(&published(measurements)?))
}

/// The interval of the total as the version before computed it.
pub(crate) fn former_interval(measurements: &BTreeMap<String, Measurement>) -> Option<[f64; 2]> {
    Resample::FORMER.total_speedup(&published(measurements)?).1
}

/// The times of the published cases, if all were timed.
fn published(measurements: &BTreeMap<String, Measurement>) -> Option<Vec<Pairs<'_>>> {
    let mut cases = Vec::new();
    for bench in BENCHES.iter().filter(|bench| bench.published) {
        let name = bench_name(bench);
        let baseline = &measurements.get(&format!("nf4.baseline.{name}"))?.samples;
        let attempt = &measurements.get(&format!("nf4.attempt.{name}"))?.samples;
        if baseline.is_empty() || attempt.is_empty() {
            return None;
        }
        cases.push(Pairs { baseline, attempt });
    }
    Some(cases)
}

/// Vector instructions ran, one for each block at least, and every path has the same bits.
fn vector_code(answer: &Answer<'_>) -> Fact {
    let seen = answer.seen;
    let Some(vector) = seen.value("nf4.vector_instructions") else {
        return seen.why_not("nf4.vector_instructions");
    };
    let all = seen.value("nf4.instructions").unwrap_or(0.0);
    let mut evidence = format!(
        "{vector:.0} of {all:.0} instructions stepped through for {} elements were vector instructions",
        watched::STEPPED_LEN
    );
    let (timed, elements) = match as_timed(seen, "timed_vector_instructions") {
        Ok(numbers) => numbers,
        Err(fact) => return fact,
    };
    let enough = vector >= watched::STEPPED_LEN as f64 / 64.0 && timed >= elements / 64.0;
    evidence = format!("{evidence}; {timed:.0} in samples of timed calls that wrote {elements:.0} elements");
    let paths: Vec<&Check> = seen.checks.iter().filter(|check| check.name.starts_with(EVERY_PATH)).collect();
    let wrong = paths.iter().find(|check| check.outcome != Outcome::Passed);
    if let Some(check) = wrong {
        evidence = format!("{evidence}; {} is {}", check.name, check.outcome.word());
    } else if enough {
        let names: Vec<&str> =
            paths.iter().filter_map(|check| check.name.split("every-path-").nth(1)).collect();
        evidence = format!("{evidence}; {} bit-equal", names.join(", "));
    }
    answer.verdict(enough && wrong.is_none(), evidence)
}

/// The number `name` of samples of calls as they are timed, and the elements that were written meanwhile; or why there
/// is none.
fn as_timed(seen: &Seen<'_>, name: &str) -> Result<(f64, f64), Fact> {
    let elements = watched::AS_TIMED_NUMBER;
    let numbers = seen.value(&format!("nf4.{name}")).zip(seen.value(elements));
    numbers.ok_or_else(|| {
        let whole = "watch/instructions";
        seen.why_not(if seen.unmeasured.contains_key(whole) { whole } else { elements })
    })
}

/// At least half of the output went past the caches.
fn streaming(answer: &Answer<'_>) -> Fact {
    let seen = answer.seen;
    let Some(bytes) = seen.value("nf4.streamed_bytes") else {
        return seen.why_not("nf4.vector_instructions");
    };
    let output = watched::STEPPED_LEN as f64 * 2.0;
    let stores = seen.value("nf4.streaming_stores").unwrap_or(0.0);
    let unfenced = seen.value("nf4.unfenced_stores").unwrap_or(0.0);
    let fence = match unfenced {
        0.0 => String::new(),
        n => format!(
            "; no fence (SFENCE) follows the last {n:.0} of them, so they may still be on their way when the step returns"
        ),
    };
    let (timed, elements) = match as_timed(seen, "timed_streamed_bytes") {
        Ok(numbers) => numbers,
        Err(fact) => return fact,
    };
    let evidence = format!(
        "{stores:.0} streaming stores wrote {bytes:.0} of {output:.0} output bytes; {timed:.0} of {:.0} bytes in \
         samples of timed calls{fence}",
        2.0 * elements
    );
    answer.verdict(bytes >= output / 2.0 && unfenced == 0.0 && timed >= elements, evidence)
}

/// Every case of both 16-bit types.
fn both_types(answer: &Answer<'_>) -> Fact {
    let of_type = |check: &&Check| check.name.ends_with("-f16") || check.name.ends_with("-bf16");
    let judged: Vec<&Check> = answer.checks().into_iter().filter(of_type).collect();
    let passed = judged.iter().filter(|check| check.outcome == Outcome::Passed).count();
    let evidence = format!("{passed} of {} cases in f16 and bf16 are equal to the bit", judged.len());
    if passed == judged.len() && passed > 0 { met(&evidence) } else { unmet(&evidence) }
}
