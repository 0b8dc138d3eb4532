//! What the checks, guards and numbers say about each published wording of A.
//!
//! A pure function of what a report holds, so that `verify-report` can compute it again.

use std::collections::BTreeMap;

use challenges::nf4::BENCHES;

use super::{bench_name, watched};
use crate::evidence::{Seen, met, unmeasured, unmet};
use crate::rubric::{Fact, Facts};
use crate::scorecard::{Check, Guard, Measurement, Outcome, Truth};
use crate::timing::{Pairs, Verdict, at_least, total_speedup};

/// Working memory of a fused pass: what a thread may hold at most.
const BYTES_PER_THREAD: f64 = 64.0 * 1024.0;

/// The facts of A, from what was seen.
pub(crate) fn facts(seen: &Seen<'_>) -> Facts {
    if let Some(reason) = nothing_to_judge(seen) {
        let facts = crate::rubric::RUBRICS[0].facts();
        return facts.into_iter().map(|name| (name, unmeasured(&reason))).collect();
    }
    let mut facts = Facts::new();
    facts.insert("single_triton_kernel", single_kernel(seen));
    facts.extend(speed(seen));
    facts.insert(
        "kernel_works_in_torch_compile",
        unmeasured("challenge C, whose compiled graph would run it, is not part of this version"),
    );
    facts.insert("custom_asm_works", vector_code(seen));
    facts.insert("uses_cache_eviction", streaming(seen));
    facts.insert("tested_in_f16_and_bf16", both_types(seen));
    if let Some(reason) = caught(seen) {
        let judged = facts.values_mut().filter(|fact| fact.truth != Truth::Unmeasured);
        judged.for_each(|fact| *fact = unmet(&reason));
    }
    facts
}

/// Why an attempt that looks right gets nothing: a guard tripped, or one that the attempt kept from looking.
fn caught(seen: &Seen<'_>) -> Option<String> {
    let told = |kind: &str, guard: &Guard| format!("guard {kind}: {} - {}", guard.name, guard.detail);
    let tripped = seen.guards.iter().find(|guard| guard.tripped);
    let blind = seen.guards.iter().find(|guard| !guard.ran && all_pass(seen));
    tripped.map(|guard| told("tripped", guard)).or_else(|| blind.map(|guard| told("could not look", guard)))
}

/// Why no line of A can be judged, if so.
fn nothing_to_judge(seen: &Seen<'_>) -> Option<String> {
    if seen.checks.iter().any(|check| check.outcome == Outcome::DoesNotCompile) {
        return Some("the exercise does not compile".into());
    }
    let answer: Vec<&Check> = seen.checks.iter().filter(|check| check.step() == "A.5").collect();
    if answer.is_empty() {
        return Some("the checks of A.5 were not run".into());
    }
    if answer.iter().all(|check| check.outcome == Outcome::NotMeasured) {
        return Some(answer[0].detail.clone());
    }
    let fast_is_a_hole =
        seen.checks.iter().all(|check| check.step() != "A.6" || check.outcome == Outcome::NotAttempted);
    let whole_is_a_hole = answer.iter().all(|check| check.outcome == Outcome::NotAttempted);
    (whole_is_a_hole && fast_is_a_hole)
        .then(|| "A.5, the first step that answers the challenge, is not written yet".into())
}

/// One launch, and no memory that could hold an intermediate.
fn single_kernel(seen: &Seen<'_>) -> Fact {
    let Some(per_thread) = seen.value("nf4.working_bytes") else { return seen.why_not("nf4.working_bytes") };
    let (peak, launches) = (seen.value("nf4.peak_bytes"), seen.value("nf4.launches"));
    let (peak, launches) = (peak.unwrap_or(f64::MAX), launches.unwrap_or(f64::MAX));
    let scales = 4096.0 * 4096.0 / 64.0 * 4.0; // bytes of the smallest full-size intermediate, the f32 scales
    let evidence = format!(
        "{per_thread:.0} bytes a thread at the peak (limit 65536), {peak:.0} in all (an f32 buffer for the scales would take {scales:.0}), launches through the given device: {launches:.0}, one is needed"
    );
    let fused = per_thread <= BYTES_PER_THREAD && peak < scales / 2.0 && launches as u64 == 1;
    if fused && all_pass(seen) { met(&evidence) } else { unmet(&with_wrong_answers(seen, evidence)) }
}

/// The four thresholds of the published total.
fn speed(seen: &Seen<'_>) -> BTreeMap<&'static str, Fact> {
    const NAMES: [(&str, f64); 3] =
        [("speedup >= 1.05", 1.05), ("speedup >= 1.10", 1.10), ("speedup >= 1.15", 1.15)];
    let every = |fact: Fact| {
        let names = NAMES.iter().map(|(name, _)| *name).chain(["speedup <= 1.00"]);
        names.map(|name| (name, fact.clone())).collect()
    };
    let Some((value, interval)) = total(seen.measurements) else {
        return every(seen.why_not("nf4.speedup"));
    };
    if !all_pass(seen) {
        let flaw = flaw(seen).unwrap_or_default();
        return every(unmet(&format!("not judged by its speed, because {flaw}")));
    }
    let told = format!("{value:.3}x the baseline (95 % interval {:.3} to {:.3})", interval[0], interval[1]);
    let judge = |verdict| match verdict {
        Verdict::Met => met(&told),
        Verdict::Unmet => unmet(&told),
        Verdict::Inconclusive => {
            unmet(&format!("inconclusive, the threshold lies inside the interval: {told}"))
        }
    };
    let mut facts: BTreeMap<_, _> =
        NAMES.iter().map(|(name, threshold)| (*name, judge(at_least(interval, *threshold)))).collect();
    let slower = match interval {
        [_, high] if high <= 1.0 => Verdict::Met,
        [low, _] if low > 1.0 => Verdict::Unmet,
        _ => Verdict::Inconclusive,
    };
    facts.insert("speedup <= 1.00", judge(slower));
    facts
}

/// Total baseline time over total attempt time of the published cases, if all were timed.
pub(crate) fn total(measurements: &BTreeMap<String, Measurement>) -> Option<(f64, [f64; 2])> {
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
    Some(total_speedup(&cases))
}

/// Vector instructions ran, one for each block at least, and every path has the same bits.
fn vector_code(seen: &Seen<'_>) -> Fact {
    let Some(vector) = seen.value("nf4.vector_instructions") else {
        return seen.why_not("nf4.vector_instructions");
    };
    let all = seen.value("nf4.instructions").unwrap_or(0.0);
    let mut evidence = format!(
        "{vector:.0} of {all:.0} instructions stepped through for {} elements were vector instructions",
        watched::STEPPED_LEN
    );
    let enough = vector >= watched::STEPPED_LEN as f64 / 64.0;
    let paths: Vec<&Check> =
        seen.checks.iter().filter(|check| check.name.starts_with("A.6/every-path-")).collect();
    let wrong = paths.iter().find(|check| check.outcome != Outcome::Passed);
    if let Some(check) = wrong {
        evidence = format!("{evidence}; {} is {}", check.name, check.outcome.word());
    } else if enough {
        let names: Vec<&str> =
            paths.iter().filter_map(|check| check.name.split("every-path-").nth(1)).collect();
        evidence = format!("{evidence}; {} bit-equal", names.join(", "));
    }
    if enough && wrong.is_none() && all_pass(seen) {
        met(&evidence)
    } else {
        unmet(&with_wrong_answers(seen, evidence))
    }
}

/// At least half of the output went past the caches.
fn streaming(seen: &Seen<'_>) -> Fact {
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
    let evidence =
        format!("{stores:.0} streaming stores wrote {bytes:.0} of {output:.0} output bytes{fence}");
    if bytes >= output / 2.0 && unfenced == 0.0 && all_pass(seen) {
        met(&evidence)
    } else {
        unmet(&with_wrong_answers(seen, evidence))
    }
}

/// Every case of both 16-bit types.
fn both_types(seen: &Seen<'_>) -> Fact {
    let of_type = |check: &&Check| check.name.ends_with("-f16") || check.name.ends_with("-bf16");
    let judged: Vec<&Check> = answers(seen).into_iter().filter(of_type).collect();
    let passed = judged.iter().filter(|check| check.outcome == Outcome::Passed).count();
    let evidence = format!("{passed} of {} cases in f16 and bf16 are equal to the bit", judged.len());
    if passed == judged.len() && passed > 0 { met(&evidence) } else { unmet(&evidence) }
}

/// The checks that the answer is judged by: A.5's, and A.6's unless it is still a hole.
fn answers<'a>(seen: &Seen<'a>) -> Vec<&'a Check> {
    let steps = ["A.5", "A.6"].into_iter().filter(|step| {
        seen.checks.iter().any(|check| check.step() == *step && check.outcome != Outcome::NotAttempted)
    });
    let steps: Vec<&str> = steps.collect();
    seen.checks.iter().filter(|check| steps.contains(&check.step())).collect()
}

fn all_pass(seen: &Seen<'_>) -> bool {
    answers(seen).iter().all(|check| check.outcome == Outcome::Passed)
}

/// What keeps a good number from counting.
fn with_wrong_answers(seen: &Seen<'_>, evidence: String) -> String {
    match flaw(seen) {
        None => evidence,
        Some(flaw) => format!("{evidence}; but {flaw}"),
    }
}

/// The first check of the answer that has not passed.
fn flaw(seen: &Seen<'_>) -> Option<String> {
    let answers = answers(seen);
    let wrong = answers.iter().find(|check| check.outcome == Outcome::Wrong);
    let open = answers.iter().find(|check| check.outcome != Outcome::Passed);
    match (wrong, open) {
        (Some(check), _) => Some(format!("answers are wrong, as in {}", check.name)),
        (None, Some(check)) => {
            Some(format!("the step is not finished: {} is {}", check.name, check.outcome.word()))
        }
        (None, None) => None,
    }
}
