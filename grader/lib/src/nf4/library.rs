//! The usual library's own CPU code, where somebody timed it on this machine.
//!
//! `tests/peers/nf4_cpu.py --keep` times the library's entry points on the timed cases and writes
//! `.warpbook/nf4-library.json`. The report shows them next to the attempt. No row of the rubric rests on them: the
//! library has vector code for AVX-512 only, so on other processors a ratio to it measures vector instructions.

use std::collections::BTreeMap;
use std::path::Path;

use challenges::nf4::BENCHES;
use scorecard::file::read_text;
use serde::Deserialize;

use super::bench_name;
use crate::scorecard::{Machine, Measurement};
use crate::terminal::warn;

/// The file's name in the folder `.warpbook`.
const FILE: &str = "nf4-library.json";
const MOST_BYTES: u64 = 64 << 10;

#[derive(Debug, Deserialize)]
struct Kept {
    processor: String,
    threads: usize,
    avx512: bool,
    microseconds: BTreeMap<String, f64>,
}

/// Returns the library's times, and its total time over the attempt's, if they are of this machine with the vector unit
/// of this run. `folder` is the workbook's `.warpbook`. A file that cannot be read, or is of another machine, is reported.
pub(super) fn times(
    numbers: &BTreeMap<String, Measurement>,
    machine: &Machine,
    folder: Option<&Path>,
) -> Vec<(String, Measurement)> {
    if machine.gpu.is_some() {
        return Vec::new();
    }
    let Some(folder) = folder else { return Vec::new() };
    let path = folder.join(FILE);
    if !path.exists() {
        return Vec::new();
    }
    match read(&path).and_then(|kept| kept.of(machine)) {
        Ok(times) => next_to(&times, numbers),
        Err(reason) => {
            warn(&format!("{}: the library's times are not shown: {reason}", path.display()));
            Vec::new()
        }
    }
}

fn read(path: &Path) -> Result<Kept, String> {
    let text = read_text(path, MOST_BYTES)?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

impl Kept {
    /// Microseconds by case, if they are of this machine.
    fn of(self, machine: &Machine) -> Result<BTreeMap<String, f64>, String> {
        let (found, expected) = (
            (self.processor.as_str(), self.threads, self.avx512),
            (machine.cpu.as_str(), machine.cores, machine.vector == "AVX-512"),
        );
        if found != expected {
            let describe = |(cpu, threads, avx512): (&str, usize, bool)| {
                format!("{cpu}, {threads} threads, {} AVX-512", if avx512 { "with" } else { "without" })
            };
            return Err(format!("expected those of {}, found {}", describe(expected), describe(found)));
        }
        let cases: Vec<String> = BENCHES.iter().map(bench_name).collect();
        for (case, time) in &self.microseconds {
            if !cases.contains(case) {
                return Err(format!("expected the cases {}, found {case}", cases.join(", ")));
            }
            if !(time.is_finite() && *time > 0.0) {
                return Err(format!("{case}: expected microseconds above 0, found {time}"));
            }
        }
        match cases.iter().find(|case| !self.microseconds.contains_key(*case)) {
            Some(case) => Err(format!("expected the case {case}, found none")),
            None => Ok(self.microseconds),
        }
    }
}

/// Each time under the name that the report compares with the attempt's; nothing where a part of the published cases was
/// timed, since there is no total.
fn next_to(
    times: &BTreeMap<String, f64>,
    numbers: &BTreeMap<String, Measurement>,
) -> Vec<(String, Measurement)> {
    let plain = |value, unit: &str| Measurement { value, unit: unit.into(), interval: None, samples: vec![] };
    let timed = |case: &String| Some((*times.get(case)?, numbers.get(&format!("nf4.attempt.{case}"))?.value));
    let published = BENCHES.iter().filter(|bench| bench.published).map(bench_name);
    let Some(all) = published.map(|case| timed(&case)).collect::<Option<Vec<_>>>() else { return Vec::new() };
    let total = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).sum::<f64>();
    let ratio = plain(total(|(library, _)| *library) / total(|(_, attempt)| *attempt), "x");
    let cases = times.iter().filter(|(case, _)| timed(case).is_some());
    let cases = cases.map(|(case, time)| (format!("nf4.library.attempt.{case}"), plain(*time, "us")));
    cases.chain([("nf4.over_library".to_owned(), ratio)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(case: &str, us: f64) -> (String, Measurement) {
        let unit = "us".into();
        (format!("nf4.attempt.{case}"), Measurement { value: us, unit, interval: None, samples: vec![us] })
    }

    #[test]
    fn library_times_need_every_published_case() {
        let cases: Vec<String> = BENCHES.iter().map(bench_name).collect();
        let times: BTreeMap<String, f64> = cases.iter().map(|case| (case.clone(), 30.0)).collect();
        let all: BTreeMap<_, _> = cases.iter().map(|case| numbers(case, 10.0)).collect();
        let shown: BTreeMap<_, _> = next_to(&times, &all).into_iter().collect();
        assert_eq!(shown.len(), cases.len() + 1);
        assert!((shown["nf4.over_library"].value - 3.0).abs() < 1e-12);
        assert!((shown["nf4.library.attempt.2048x8192.f16"].value - 30.0).abs() < 1e-12);
        let few: BTreeMap<_, _> = all.into_iter().take(1).collect();
        assert!(next_to(&times, &few).is_empty());
    }

    #[test]
    fn foreign_and_damaged_times_are_refused() {
        let machine = Machine { cpu: "Chip".into(), cores: 2, vector: "AVX2".into(), ..Machine::default() };
        let times: BTreeMap<String, f64> = BENCHES.iter().map(|bench| (bench_name(bench), 30.0)).collect();
        let first = bench_name(&BENCHES[0]);
        let with = |case: &str, time| times.clone().into_iter().chain([(case.to_owned(), time)]).collect();
        let mut few = times.clone();
        few.remove(&first);
        for (threads, avx512, microseconds, reason) in [
            (2, false, times.clone(), None),
            (4, false, times.clone(), Some("expected those of Chip, 2 threads, without AVX-512")),
            (2, true, times.clone(), Some("found Chip, 2 threads, with AVX-512")),
            (2, false, with("1x1.bf16", 1.0), Some("found 1x1.bf16")),
            (2, false, with(&first, 0.0), Some("expected microseconds above 0, found 0")),
            (2, false, few, Some("found none")),
        ] {
            let kept = Kept { processor: "Chip".into(), threads, avx512, microseconds };
            match (kept.of(&machine), reason) {
                (Ok(found), None) => assert_eq!(found, times),
                (Err(message), Some(reason)) => assert!(message.contains(reason), "{message}"),
                (found, _) => panic!("{found:?}, expected {reason:?}"),
            }
        }
    }
}
