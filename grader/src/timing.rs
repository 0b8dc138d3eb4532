//! Timing that can be trusted: pairs, a median, an interval, a verdict.
//!
//! Machines speed up, slow down and are shared. A baseline and an attempt are therefore timed side by side,
//! in the order A B B A, so that a drift hits both; each pair gives one log-ratio; the median of the
//! log-ratios is the speed-up, and a bootstrap over the pairs its 95 % interval. A verdict on a threshold is
//! met when the whole interval clears it, unmet when the whole interval misses it, and otherwise
//! inconclusive, which is scored as unmet with the reason.
//!
//! The bootstrap's random numbers are fixed, so that a report's interval can be recomputed from its samples.
//!
//! Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13 (percentile interval).

use crate::random::Random;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// Where an interval lies with respect to a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The lower end clears it.
    Met,
    /// The upper end misses it.
    Unmet,
    /// It lies inside.
    Inconclusive,
}

/// Whether a quantity is at least `threshold`.
pub fn at_least(interval: [f64; 2], threshold: f64) -> Verdict {
    if interval[0] >= threshold {
        Verdict::Met
    } else if interval[1] < threshold {
        Verdict::Unmet
    } else {
        Verdict::Inconclusive
    }
}

/// The middle value (mean of the two middle ones for an even count); NaN for none.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// One case's paired times: `baseline[i]` and `attempt[i]` were taken next to each other.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    /// Times of the baseline, any unit.
    pub baseline: &'a [f64],
    /// Times of the attempt, the same unit.
    pub attempt: &'a [f64],
}

impl Pairs<'_> {
    fn len(&self) -> usize {
        self.baseline.len().min(self.attempt.len())
    }

    /// baseline / attempt of each pair.
    pub fn ratios(&self) -> Vec<f64> {
        self.baseline.iter().zip(self.attempt).map(|(baseline, attempt)| baseline / attempt).collect()
    }
}

/// A case's speed-up: exp of the median log-ratio, with its 95 % interval.
pub fn speedup(pairs: Pairs<'_>) -> (f64, [f64; 2]) {
    let logs: Vec<f64> = pairs.ratios().iter().map(|ratio| ratio.ln()).collect();
    let value = median(&logs).exp();
    let interval = bootstrap(|random| {
        let drawn: Vec<f64> = (0..logs.len()).map(|_| logs[random.below(logs.len())]).collect();
        median(&drawn).exp()
    });
    (value, interval)
}

/// Total baseline time over total attempt time of several cases, with its 95 % interval. A case's time is
/// the median of its samples.
pub fn total_speedup(cases: &[Pairs<'_>]) -> (f64, [f64; 2]) {
    let total = |draw: &mut dyn FnMut(usize) -> Vec<usize>| {
        let (mut baseline, mut attempt) = (0.0, 0.0);
        for pairs in cases {
            let drawn = draw(pairs.len());
            baseline += median(&drawn.iter().map(|i| pairs.baseline[*i]).collect::<Vec<_>>());
            attempt += median(&drawn.iter().map(|i| pairs.attempt[*i]).collect::<Vec<_>>());
        }
        baseline / attempt
    };
    let value = total(&mut |n| (0..n).collect());
    let interval = bootstrap(|random| total(&mut |n| (0..n).map(|_| random.below(n)).collect()));
    (value, interval)
}

/// The 2.5th and 97.5th percentile of a resampled statistic.
fn bootstrap(mut statistic: impl FnMut(&mut Random) -> f64) -> [f64; 2] {
    let mut random = Random::new(0x5eed);
    let mut values: Vec<f64> = (0..RESAMPLES).map(|_| statistic(&mut random)).collect();
    values.sort_by(f64::total_cmp);
    [values[RESAMPLES / 40], values[RESAMPLES - 1 - RESAMPLES / 40]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_ratio_has_a_point_for_an_interval() {
        let pairs = Pairs { baseline: &[2.0; 10], attempt: &[1.0; 10] };
        let (value, [low, high]) = speedup(pairs);
        assert!((value - 2.0).abs() < 1e-12 && (low - 2.0).abs() < 1e-12 && (high - 2.0).abs() < 1e-12);
    }

    #[test]
    fn the_total_weighs_cases_by_their_time() {
        let long = Pairs { baseline: &[100.0; 4], attempt: &[50.0; 4] };
        let short = Pairs { baseline: &[1.0; 4], attempt: &[2.0; 4] };
        assert!((total_speedup(&[long, short]).0 - 101.0 / 52.0).abs() < 1e-12);
    }

    #[test]
    fn an_interval_across_the_threshold_decides_nothing() {
        assert_eq!(at_least([1.10, 1.20], 1.15), Verdict::Inconclusive);
        assert_eq!(at_least([1.15, 1.20], 1.15), Verdict::Met);
        assert_eq!(at_least([1.10, 1.14], 1.15), Verdict::Unmet);
    }

    #[test]
    fn one_outlier_moves_no_median() {
        assert!((median(&[1.0, 1.0, 1.0, 900.0]) - 1.0).abs() < 1e-12);
        assert!(median(&[]).is_nan());
    }
}
