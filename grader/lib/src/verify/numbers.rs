//! The numbers of a report against its raw samples.

use std::collections::BTreeMap;

use challenges::nf4::Bench;

use super::{About, Findings, Subject};
use crate::course::Backend;
use crate::nf4;
use crate::scorecard::{Guard, MOST_SAMPLES, Measurement};
use crate::table;
use crate::timing::{FEWEST_ROUNDS, Pairs, Resample, median, speedup};

/// Timed pairs of a case of A that the protocol takes at least.
const FEWEST_PAIRS: usize = 2 * FEWEST_ROUNDS;

type Numbers = BTreeMap<String, Measurement>;

/// How a number follows from its own samples.
#[derive(Clone, Copy)]
enum Rule {
    Median,
    Sum,
    Largest,
    Last,
    Count,
}

/// The rule of a number, and how many samples it has at least. Of the rest the samples are what was counted or timed
/// once for a picture.
fn rule(name: &str) -> Option<(Rule, usize)> {
    let starts = |prefix: &str| name.starts_with(prefix);
    match name {
        "graph.step" | "graph.op_by_op.step" => Some((Rule::Median, 3)),
        "loss.timed.whole" | "loss.timed.chunked" => Some((Rule::Median, 2)),
        "fsdp.timed.attempt" | "fsdp.timed.baseline" => Some((Rule::Median, 1)),
        "fsdp.training.one" => Some((Rule::Last, 60)),
        _ if starts("fsdp.training.rank_") => Some((Rule::Last, 60)),
        "issues.prompts.time" | "issues.calls.rate" | "nf4.host_share" => Some((Rule::Median, 5)),
        _ if starts("issues.classifier.losses.") => Some((Rule::Last, 120)),
        _ if starts("issues.classifier.confusion.") => Some((Rule::Sum, 9)),
        _ if starts("nf4.version.") || starts("nf4.small_version.") => Some((Rule::Median, 5)),
        _ if starts("nf4.baseline.") || starts("nf4.attempt.") || starts("nf4.bound.") => {
            Some((Rule::Median, 1))
        }
        _ if name == "graph.plan.bytes" || starts("graph.timeline.") => Some((Rule::Sum, 1)),
        _ if starts("graph.losses.") => Some((Rule::Last, 40)),
        "loss.training.whole" | "loss.training.chunked" | "loss.training.ulp" => Some((Rule::Last, 25)),
        _ if starts("loss.stairs.") && name.ends_with("_ms") => Some((Rule::Sum, 1)),
        "loss.stairs.op_by_op" | "loss.stairs.whole" | "loss.stairs.chunked" => Some((Rule::Largest, 1)),
        "loss.stairs.parts" => Some((Rule::Count, 1)),
        _ => None,
    }
}

impl Rule {
    fn of(self, samples: &[f64]) -> f64 {
        match self {
            Self::Median => median(samples),
            Self::Sum => samples.iter().sum(),
            Self::Largest => samples.iter().copied().fold(0.0, f64::max),
            Self::Last => samples.last().copied().unwrap_or(f64::NAN),
            Self::Count => samples.len() as f64,
        }
    }
}

/// A number that follows from others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Derived {
    value: f64,
    interval: Option<[f64; 2]>,
    /// The interval as the version before computed it.
    former: Option<[f64; 2]>,
}

impl Derived {
    fn plain(value: f64) -> Self {
        Self { value, interval: None, former: None }
    }

    fn speedup(pairs: Pairs<'_>) -> Self {
        let (value, interval) = speedup(pairs);
        Self { value, interval, former: Resample::FORMER.speedup(pairs).1 }
    }

    /// Whether an interval follows by the rule of the version before, and not by this one's.
    fn is_former(&self, says: [f64; 2]) -> bool {
        let follows = |interval: Option<[f64; 2]>| interval.is_some_and(|interval| alike(says, interval));
        follows(self.former) && !follows(self.interval)
    }
}

/// Numbers by their names, as they follow from others.
type All = BTreeMap<String, Derived>;

/// What follows in a challenge.
type Follow = fn(&mut Findings, &Subject<'_>, &mut All);

/// The challenges of which numbers follow from others.
const FOLLOWING: [(&str, Follow); 5] = [
    ("nf4", |findings, subject, derived| findings.cases(subject, derived)),
    ("fsdp", |_, subject, derived| of_ranks(&subject.challenge.measurements, derived)),
    ("graph", |_, subject, derived| of_a_step(&subject.challenge.measurements, derived)),
    ("issues", |_, subject, derived| of_a_classifier(&subject.challenge.measurements, derived)),
    ("loss", |_, subject, derived| of_chunks(&subject.challenge.measurements, derived)),
];

impl Findings {
    pub(super) fn numbers(&mut self, subject: &Subject<'_>) {
        let numbers = &subject.challenge.measurements;
        if !numbers.values().all(|number| number.samples.len() <= MOST_SAMPLES) {
            let most = format!("at most {MOST_SAMPLES} samples a number");
            return self.add(About::Numbers, &subject.what("numbers"), "more samples", &most);
        }
        for (name, number) in numbers {
            self.sound(subject, name, number);
            self.own_samples(subject, name, number);
        }
        let mut derived = BTreeMap::new();
        if let Ok(rule) = table::find(&FOLLOWING, &subject.challenge.name) {
            rule(self, subject, &mut derived);
        }
        for (name, number) in numbers {
            match derived.get(name) {
                Some(follows) => self.derived(&subject.what(&format!("number {name}")), number, *follows),
                None if number.interval.is_some() || is_derived(name, number) => {
                    let what = subject.what(&format!("number {name}"));
                    self.add(
                        About::Numbers,
                        &what,
                        &number.value.to_string(),
                        "the samples that it rests on",
                    );
                }
                None => {}
            }
        }
        for name in derived.keys().filter(|name| !numbers.contains_key(*name)) {
            self.add(
                About::Version,
                &subject.what("numbers"),
                &format!("no {name}"),
                "it beside its samples",
            );
        }
    }

    /// Finite, and a time is positive.
    fn sound(&mut self, subject: &Subject<'_>, name: &str, number: &Measurement) {
        let is_time = matches!(number.unit.as_str(), "us" | "MB/s" | "GB/s" | "x");
        let is_amount = matches!(number.unit.as_str(), "count" | "B" | "B/thread" | "ms" | "s" | "steps");
        let ends = number.interval.unwrap_or_default();
        let sound = |value: &f64| value.is_finite() && (!is_amount || *value >= 0.0);
        let all = number.samples.iter().chain([&number.value]);
        let positive = |value: &f64| sound(value) && (!is_time || *value > 0.0);
        if !all.clone().all(positive) || !ends.iter().all(|end| end.is_finite()) {
            let what = subject.what(&format!("number {name}"));
            self.add(About::Numbers, &what, "one that cannot be", "finite numbers, and times above 0");
        }
    }

    fn own_samples(&mut self, subject: &Subject<'_>, name: &str, number: &Measurement) {
        let Some((rule, fewest)) = rule(name) else { return };
        let what = subject.what(&format!("number {name}"));
        if number.samples.len() < fewest {
            let says = format!("{} samples", number.samples.len());
            return self.add(About::Version, &what, &says, &format!("{fewest} at least"));
        }
        self.near(&what, number.value, rule.of(&number.samples));
    }

    fn derived(&mut self, what: &str, number: &Measurement, follows: Derived) {
        self.near(what, number.value, follows.value);
        match (number.interval, follows.interval) {
            (Some(says), _) if follows.is_former(says) => {
                self.add(About::Version, what, "the interval over pairs", "the interval over rounds");
            }
            (Some([low, high]), Some(interval)) => {
                self.near(&format!("{what} (lower end)"), low, interval[0]);
                self.near(&format!("{what} (upper end)"), high, interval[1]);
            }
            (None, None) => {}
            (says, _) => {
                let word = |there: bool| if there { "an interval" } else { "no interval" };
                self.compare(About::Numbers, what, &word(says.is_some()), &word(says.is_none()));
            }
        }
    }

    /// The timed cases of A: what their samples say, and whether there are enough of them.
    fn cases(&mut self, subject: &Subject<'_>, derived: &mut BTreeMap<String, Derived>) {
        let numbers = &subject.challenge.measurements;
        for bench in cases(subject.backend()) {
            let case = nf4::bench_name(bench);
            let kinds = ["baseline", "attempt", "bound"];
            let times = kinds.map(|kind| numbers.get(&format!("nf4.{kind}.{case}")));
            let [Some(baseline), Some(attempt), Some(bound)] = times else { continue };
            let pairs = Pairs { baseline: &baseline.samples, attempt: &attempt.samples };
            self.counts(subject, &case, pairs, &bound.samples);
            if pairs.baseline.is_empty() || pairs.attempt.is_empty() {
                continue;
            }
            let name = format!("nf4.speedup.{case}");
            if let Some(says) = numbers.get(&name) {
                self.ratios(&subject.what(&format!("number {name}")), &says.samples, &pairs.ratios());
            }
            derived.insert(name, Derived::speedup(pairs));
            let plain = Derived::plain;
            let (bytes, time) = (nf4::total_bytes(bench.rows * bench.columns), median(pairs.attempt));
            derived.insert(format!("nf4.share_of_bound.{case}"), plain(median(&bound.samples) / time));
            derived.insert(format!("nf4.rate.{case}"), plain(bytes / time / 1e3));
            if subject.backend() == Backend::Cuda {
                let fastest = bound.samples.iter().copied().fold(f64::INFINITY, f64::min);
                derived.insert(format!("nf4.copy_rate.{case}"), plain(bytes / fastest / 1e3));
                if let Some(l2_bytes) = l2_bytes(subject) {
                    let credit = nf4::cuda::credit(bench, l2_bytes);
                    derived.insert(format!("nf4.bound_credit.{case}"), plain(credit));
                }
            }
        }
        if let Some((value, interval)) = nf4::total_speedup(numbers) {
            let former = nf4::former_interval(numbers);
            derived.insert("nf4.speedup".into(), Derived { value, interval, former });
        }
        if subject.backend() == Backend::Cuda {
            of_versions(numbers, derived);
        }
        self.bound(subject);
    }

    /// Pairs are pairs, and as many as the protocol takes.
    fn counts(&mut self, subject: &Subject<'_>, case: &str, pairs: Pairs<'_>, bound: &[f64]) {
        let what = subject.what(&format!("number nf4.attempt.{case}"));
        let (baseline, attempt) = (pairs.baseline.len(), pairs.attempt.len());
        self.compare(About::Numbers, &format!("{what} (samples)"), &attempt, &baseline);
        if attempt < FEWEST_PAIRS {
            let least = format!("{FEWEST_PAIRS} at least");
            self.add(About::Version, &what, &format!("{attempt} samples"), &least);
        }
        self.compare(About::Version, &format!("{what} (samples of the bound)"), &bound.len(), &attempt);
    }

    /// The ratios that a report shows are those of its times, pair by pair.
    fn ratios(&mut self, what: &str, says: &[f64], follows: &[f64]) {
        self.compare(About::Numbers, &format!("{what} (samples)"), &says.len(), &follows.len());
        for (i, (says, follows)) in says.iter().zip(follows).enumerate() {
            self.near(&format!("{what} (sample {i})"), *says, *follows);
        }
    }

    /// What the guard on the physical bound says of these samples.
    fn bound(&mut self, subject: &Subject<'_>) {
        let is_it = |guard: &&Guard| guard.name == nf4::PAST_THE_BOUND;
        let Some(guard) = subject.guards.iter().find(is_it) else { return };
        if subject.backend() == Backend::Cuda && l2_bytes(subject).is_none() {
            self.add(About::Numbers, "machine", "none", "the size of the GPU's L2");
        }
        let refusals = refusals(subject);
        let what = subject.what(&format!("guard {}", guard.name));
        match refusals.first() {
            None if guard.tripped => {
                self.add(About::Numbers, &what, &guard.detail, "not tripped by these samples");
            }
            Some(refusal) if !guard.tripped => self.add(About::Numbers, &what, "not tripped", refusal),
            Some(_) if !refusals.contains(&guard.detail) => {
                self.add(About::Version, &what, &guard.detail, &refusals.join(" or "));
            }
            _ => {}
        }
    }

    /// Equal but for the last digits of a decimal number that was written and read.
    fn near(&mut self, what: &str, says: f64, follows: f64) {
        if !is_near(says, follows) {
            self.add(About::Numbers, what, &says.to_string(), &follows.to_string());
        }
    }
}

fn is_near(says: f64, follows: f64) -> bool {
    (says - follows).abs() <= 1e-9 * follows.abs()
}

fn alike(says: [f64; 2], follows: [f64; 2]) -> bool {
    is_near(says[0], follows[0]) && is_near(says[1], follows[1])
}

/// Whether a number is of a kind that follows from others. Trainings with a loss that is no number are the largest
/// number apart, and have no samples.
fn is_derived(name: &str, number: &Measurement) -> bool {
    let kinds = [
        "nf4.speedup",
        "nf4.share_of_bound.",
        "nf4.rate.",
        "nf4.copy_rate.",
        "nf4.bound_credit.",
        "nf4.version_rate.",
    ];
    kinds.iter().any(|kind| name.starts_with(kind))
        || matches!(name, "graph.over_op_by_op" | "loss.over_whole" | "fsdp.over_baseline")
        || (matches!(name, "loss.training" | "fsdp.training") && number.value < f64::MAX)
}

/// The timed cases of A on a back end.
fn cases(back: Backend) -> &'static [Bench] {
    match back {
        Backend::Cpu => &challenges::nf4::BENCHES,
        Backend::Cuda => &challenges::nf4::cuda::BENCHES,
    }
}

/// What the guard on the physical bound says of each case that it refuses.
fn refusals(subject: &Subject<'_>) -> Vec<String> {
    let numbers = &subject.challenge.measurements;
    let refusal = |bench: &Bench| {
        let case = nf4::bench_name(bench);
        let samples = ["bound", "attempt"]
            .map(|kind| numbers.get(&format!("nf4.{kind}.{case}")).map(|n| &n.samples[..]));
        let [Some(bound), Some(attempt)] = samples else { return None };
        match subject.backend() {
            Backend::Cpu => nf4::past_the_bound(&case, [bound, attempt]),
            Backend::Cuda => nf4::cuda::past_the_bound(&case, [bound, attempt], l2_bytes(subject)?),
        }
    };
    cases(subject.backend()).iter().filter_map(refusal).collect()
}

/// The L2 cache of the GPU, as the machine's line names it.
fn l2_bytes(subject: &Subject<'_>) -> Option<usize> {
    let gpu = subject.card.machine.gpu.as_ref()?;
    let words = gpu.split(", ").find_map(|part| part.strip_suffix(" L2"))?;
    let (number, unit) = words.split_once(' ')?;
    let unit: f64 = match unit {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1048576.0,
        "GiB" => 1073741824.0,
        _ => return None,
    };
    Some((number.parse::<f64>().ok()? * unit) as usize)
}

/// The rates of the versions on a card, from their times.
fn of_versions(numbers: &Numbers, derived: &mut BTreeMap<String, Derived>) {
    for (family, bytes) in nf4::cuda::version_bytes() {
        for (name, number) in numbers {
            if let Some(version) = name.strip_prefix(&format!("nf4.{family}.")) {
                let value = bytes / median(&number.samples) / 1e3;
                derived.insert(format!("nf4.{family}_rate.{version}"), Derived::plain(value));
            }
        }
    }
}

/// The timed step of C.
fn of_a_step(numbers: &Numbers, derived: &mut BTreeMap<String, Derived>) {
    let (Some(baseline), Some(attempt)) = (numbers.get("graph.op_by_op.step"), numbers.get("graph.step"))
    else {
        return;
    };
    ratio("graph.over_op_by_op", [baseline, attempt], derived);
    let saved = median(&baseline.samples) - median(&attempt.samples);
    let spent = ["graph.compile", "graph.tuning"].map(|name| numbers.get(name).map(|number| number.value));
    if let ([Some(compile), Some(tuning)], true) = (spent, saved > 0.0) {
        let value = ((compile + tuning) / saved).ceil();
        derived.insert("graph.pays_after".into(), Derived::plain(value));
    }
}

/// The losses of D's classifier against the oracle's, and its answers after the last step.
fn of_a_classifier(numbers: &Numbers, derived: &mut BTreeMap<String, Derived>) {
    let losses = ["attempt", "oracle"].map(|run| numbers.get(&format!("issues.classifier.losses.{run}")));
    if let [Some(attempt), Some(oracle)] = losses {
        let value = crate::loss::series_apart(&[oracle.samples.clone(), attempt.samples.clone()]);
        derived.insert("issues.classifier.training".into(), Derived::plain(value));
    }
    let last = numbers.get(crate::issues::LAST_CONFUSION);
    let accuracy = last.map(|last| Derived::plain(figures::confusion::accuracy(&last.samples)));
    derived.extend(accuracy.map(|accuracy| ("issues.classifier.accuracy".to_owned(), accuracy)));
}

/// The timed chunks of E, and its two trainings.
fn of_chunks(numbers: &Numbers, derived: &mut BTreeMap<String, Derived>) {
    let both = |names: [&str; 2]| {
        let [one, other] = names.map(|name| numbers.get(name));
        one.zip(other)
    };
    if let Some((whole, chunked)) = both(["loss.timed.whole", "loss.timed.chunked"]) {
        ratio("loss.over_whole", [whole, chunked], derived);
    }
    if let Some((whole, chunked)) = both(["loss.training.whole", "loss.training.chunked"]) {
        let value = crate::loss::series_apart(&[whole.samples.clone(), chunked.samples.clone()]);
        derived.insert("loss.training".into(), Derived::plain(value));
    }
}

/// The timed step of B, and its training on several ranks against that on one.
fn of_ranks(numbers: &Numbers, derived: &mut BTreeMap<String, Derived>) {
    let timed = ["fsdp.timed.baseline", "fsdp.timed.attempt"].map(|name| numbers.get(name));
    if let [Some(baseline), Some(attempt)] = timed {
        ratio("fsdp.over_baseline", [baseline, attempt], derived);
    }
    let Some(one) = numbers.get("fsdp.training.one") else { return };
    let ranks = numbers.iter().filter(|(name, _)| name.starts_with("fsdp.training.rank_"));
    let apart = ranks
        .map(|(_, rank)| crate::loss::series_apart(&[one.samples.clone(), rank.samples.clone()]))
        .reduce(f64::max);
    derived.extend(apart.map(|value| ("fsdp.training".to_owned(), Derived::plain(value))));
}

fn ratio(name: &str, [baseline, attempt]: [&Measurement; 2], derived: &mut BTreeMap<String, Derived>) {
    if baseline.samples.is_empty() || baseline.samples.len() != attempt.samples.len() {
        return; // then nothing follows, and the number is reported
    }
    let pairs = Pairs { baseline: &baseline.samples, attempt: &attempt.samples };
    derived.insert(name.into(), Derived::speedup(pairs));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_over_pairs_is_of_an_earlier_version() {
        let attempt = [0.5, 2.0].repeat(12); // pairs differ, rounds do not
        let pairs = Pairs { baseline: &[1.0; 24], attempt: &attempt };
        let (follows, former) = (Derived::speedup(pairs), Resample::FORMER.speedup(pairs).1);
        let [now, former] = [follows.interval, former].map(|interval| interval.expect("12 rounds"));
        assert!(follows.is_former(former) && !follows.is_former(now));
        assert!(!follows.is_former(former.map(|end| 1.01 * end)));
    }
}
