//! The timed cases of a challenge, read out of its measurements.
//!
//! Measurements are a flat map of names. The timed ones follow one pattern, `CHALLENGE.FAMILY.CASE`, with
//! the families of [`Timing`]'s fields; `CHALLENGE.speedup` without a case is the total that the rubric
//! judges. What fits no family is a count. Figures and reports read the map through this file only.

use scorecard::{Challenge, Measurement};

/// What was measured for one case; times in microseconds.
#[derive(Clone, Debug)]
pub struct Timing<'a> {
    /// The case's name, as in `4096x14336.bf16`.
    pub case: &'a str,
    /// Baseline time over attempt time.
    pub speedup: Option<&'a Measurement>,
    /// Time of the in-repo baseline.
    pub baseline: Option<&'a Measurement>,
    /// Time of the attempt.
    pub attempt: Option<&'a Measurement>,
    /// Time that the machine's own rate allows.
    pub bound: Option<&'a Measurement>,
    /// Bound over attempt, 0 to 1.
    pub share: Option<&'a Measurement>,
    /// Bytes read and written over the attempt's time, GB/s.
    pub rate: Option<&'a Measurement>,
}

const FAMILIES: [&str; 8] =
    ["speedup", "baseline", "attempt", "bound", "bound_credit", "share_of_bound", "rate", "copy_rate"];

/// The timed cases in natural order: numbers inside names count by value.
pub fn timings(challenge: &Challenge) -> Vec<Timing<'_>> {
    let mut cases: Vec<&str> =
        challenge.measurements.keys().filter_map(|name| case(challenge, name)).collect();
    cases.sort_by_key(|case| natural(case));
    cases.dedup();
    let of =
        |family: &str, case: &str| challenge.measurements.get(&format!("{}.{family}.{case}", challenge.name));
    let timing = |case| Timing {
        case,
        speedup: of("speedup", case),
        baseline: of("baseline", case),
        attempt: of("attempt", case),
        bound: of("bound", case),
        share: of("share_of_bound", case),
        rate: of("rate", case),
    };
    cases.into_iter().map(timing).collect()
}

/// The speed-up that the rubric judges, over all of the published timed cases.
pub fn total(challenge: &Challenge) -> Option<&Measurement> {
    challenge.measurements.get(&format!("{}.speedup", challenge.name))
}

/// The versions of one pass in their order, as `(label, time)`: `CHALLENGE.version.N-NAME` in microseconds.
pub fn versions(challenge: &Challenge) -> Vec<(String, &Measurement)> {
    let of =
        |name| Some(own(challenge, name)?.strip_prefix("version.")?.split_once('-')?.1.replace('-', " "));
    let all = challenge.measurements.iter();
    all.filter_map(|(name, measurement)| Some((of(name)?, measurement))).collect()
}

/// Something that the attempt takes, beside what another way of doing it takes.
#[derive(Clone, Debug)]
pub struct Versus<'a> {
    /// The other way: `op by op`.
    pub way: String,
    /// What is taken: `step`, `arena`.
    pub what: String,
    /// What the other way takes; nothing, if it does without.
    pub baseline: Option<&'a Measurement>,
    /// What the attempt takes.
    pub attempt: &'a Measurement,
    /// The one over the other, with an interval where there is one.
    pub ratio: Option<Measurement>,
    /// The measurements that it is made of.
    names: Vec<&'a str>,
}

/// The attempt against other ways, times first, then bytes, then counts, then what the attempt takes beforehand.
///
/// `CHALLENGE.over_WAY` is the ratio of times, `CHALLENGE.WAY.WHAT` stands beside `CHALLENGE.step_WHAT` or
/// `CHALLENGE.WHAT`, and what has a unit of time, or is counted in steps, and stands beside nothing comes beforehand.
pub fn versus(challenge: &Challenge) -> Vec<Versus<'_>> {
    let ways = challenge.measurements.keys().filter_map(|name| own(challenge, name)?.strip_prefix("over_"));
    let mut rows: Vec<Versus> = ways.flat_map(|way| against(challenge, way)).collect();
    if let Some(way) = rows.first().map(|row| row.way.clone()) {
        rows.extend(beforehand(challenge, &way, &named(&rows)));
    }
    let units = ["ms", "B", "count"];
    let unit = |row: &Versus| units.iter().position(|unit| *unit == row.attempt.unit).unwrap_or(units.len());
    rows.sort_by_key(|row| (row.baseline.is_none(), unit(row)));
    rows
}

fn named<'a>(rows: &[Versus<'a>]) -> Vec<&'a str> {
    rows.iter().flat_map(|row| row.names.iter().copied()).collect()
}

/// What stands beside something of the other way.
fn against<'a>(challenge: &'a Challenge, way: &'a str) -> impl Iterator<Item = Versus<'a>> {
    let get = |name: &str| challenge.measurements.get_key_value(&format!("{}.{name}", challenge.name));
    let over = get(&format!("over_{way}")).map(|(_, ratio)| ratio);
    challenge.measurements.iter().filter_map(move |(name, baseline)| {
        let what = own(challenge, name)?.strip_prefix(way)?.strip_prefix('.')?;
        let (beside, attempt) = get(&format!("step_{what}")).or_else(|| get(what))?;
        let timed = !baseline.samples.is_empty() && !attempt.samples.is_empty();
        let ratio = over.filter(|_| timed).cloned().or_else(|| quotient(baseline, attempt));
        let what =
            what.strip_prefix("attempt.").map_or_else(|| what.replace('_', " "), |case| label(case, "x"));
        let (way, names) = (way.replace('_', " "), vec![name.as_str(), beside]);
        Some(Versus { way, what, baseline: Some(baseline), attempt, ratio, names })
    })
}

fn quotient(baseline: &Measurement, attempt: &Measurement) -> Option<Measurement> {
    let value = baseline.value / attempt.value;
    value.is_finite().then(|| Measurement { value, unit: "x".into(), interval: None, samples: Vec::new() })
}

/// Times, and numbers of steps, that stand beside nothing.
fn beforehand<'a>(challenge: &'a Challenge, way: &str, message: &[&str]) -> Vec<Versus<'a>> {
    let alone = challenge.measurements.iter().filter_map(|(name, attempt)| {
        let what =
            own(challenge, name).filter(|what| !what.contains('.') && !message.contains(&name.as_str()))?;
        let names = vec![name.as_str()];
        let row = Versus {
            way: way.into(),
            what: what.replace('_', " "),
            baseline: None,
            attempt,
            ratio: None,
            names,
        };
        ["ms", "s", "steps"].contains(&attempt.unit.as_str()).then_some(row)
    });
    alone.collect()
}

/// What a compiler counts, in the order in which it happens: names without the challenge's, and what they say.
const COUNTERS: [(&str, &str); 9] = [
    ("captures", "captures"),
    ("breaks", "graph breaks"),
    ("compilations", "compilations"),
    ("hidden_compilations", "hidden compilations"),
    ("hits", "cache hits"),
    ("launches", "launches a step"),
    ("programs", "different programs"),
    ("trials", "products tried"),
    ("tuning_us", "tuning"),
];

/// The counters of a challenge that compiles; nothing for one that does not. One whose name ends so is in microseconds.
pub fn counters(challenge: &Challenge) -> Vec<(&'static str, Measurement)> {
    let get = |name: &str| challenge.measurements.get(&format!("{}.{name}", challenge.name));
    if get("compilations").is_none() {
        return Vec::new();
    }
    let one = |(name, says): (&str, &'static str)| {
        let mut counter = get(name)?.clone();
        if name.ends_with("_us") {
            counter.unit = "us".into();
        }
        Some((says, counter))
    };
    COUNTERS.into_iter().filter_map(one).collect()
}

/// Every measurement that stands in no table and no picture, by its name without the challenge's.
pub fn counts(challenge: &Challenge) -> Vec<(&str, &Measurement)> {
    let versus = versus(challenge);
    let message = named(&versus);
    let counters = counters(challenge);
    let beside = super::beside::rows(challenge);
    let is_counter = |short: &str| COUNTERS.iter().any(|(name, _)| *name == short) && !counters.is_empty();
    let rest = challenge.measurements.iter().filter_map(|(name, measurement)| {
        let short = own(challenge, name).unwrap_or(name);
        let counts = short != "speedup"
            && !is_version(short)
            && !is_drawn(short)
            && case(challenge, name).is_none()
            && !message.contains(&name.as_str())
            && !beside.iter().any(|row| row.holds(short))
            && !is_counter(short);
        counts.then_some((short, measurement))
    });
    rest.collect()
}

/// Whether a name is that of a picture's numbers, or of a ratio that stands in a table.
fn is_drawn(short: &str) -> bool {
    let families = ["plan", "timeline", "longest", "losses", "stairs", "sizes"];
    short.starts_with("over_")
        || short.starts_with("training.")
        || families.contains(&short.split('.').next().unwrap_or_default())
}

/// Whether a name is that of a version's time or rate, at the usual size or a small one.
fn is_version(short: &str) -> bool {
    short
        .split('.')
        .next()
        .is_some_and(|family| family.trim_start_matches("small_").trim_end_matches("_rate") == "version")
}

/// `4096x14336.bf16` as people write it: `4096 x 14336 bf16`.
pub fn label(case: &str, times: &str) -> String {
    let chars: Vec<char> = case.chars().collect();
    let digit = |i: usize| chars.get(i).is_some_and(char::is_ascii_digit);
    let spell = |(i, c): (usize, &char)| match c {
        '.' if !(i > 0 && digit(i - 1) && digit(i + 1)) => " ".to_owned(),
        'x' if i > 0 && digit(i - 1) && digit(i + 1) => format!(" {times} "),
        c => c.to_string(),
    };
    chars.iter().enumerate().map(spell).collect()
}

fn own<'a>(challenge: &Challenge, name: &'a str) -> Option<&'a str> {
    name.strip_prefix(challenge.name.as_str())?.strip_prefix('.')
}

fn case<'a>(challenge: &Challenge, name: &'a str) -> Option<&'a str> {
    let (family, case) = own(challenge, name)?.split_once('.')?;
    FAMILIES.contains(&family).then_some(case)
}

/// A sort key in which runs of digits compare as numbers.
fn natural(text: &str) -> Vec<(u128, String)> {
    let mut key: Vec<(u128, String)> = Vec::new();
    for c in text.chars() {
        match (c.to_digit(10), key.last_mut()) {
            (Some(d), Some((n, word))) if word.is_empty() => {
                *n = n.saturating_mul(10).saturating_add(d.into());
            }
            (Some(d), _) => key.push((d.into(), String::new())),
            (None, Some((_, word))) if !word.is_empty() => word.push(c),
            (None, _) => key.push((u128::MAX, c.into())),
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_sort_by_their_numbers() {
        let mut cases = ["4096x14336.f16", "2048x8192.f16", "1024x4096.bf16", "512x64", "4096x14336.bf16"];
        cases.sort_by_key(|case| natural(case));
        assert_eq!(cases, ["512x64", "1024x4096.bf16", "2048x8192.f16", "4096x14336.bf16", "4096x14336.f16"]);
    }

    #[test]
    fn a_label_reads_like_a_shape() {
        assert_eq!(label("4096x14336.bf16", "x"), "4096 x 14336 bf16");
        assert_eq!(label("xs.8x8.v1.5", "by"), "xs 8 by 8 v1.5");
    }
}
