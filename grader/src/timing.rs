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
//! Whether an attempt is faster than the machine can be is a sign test over rounds, see [`Rounds`]: a machine
//! that is busy slows bound and attempt alike, and no single disturbed sample condemns anybody.
//!
//! Sources: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13 (percentile interval);
//! Conover, Practical Nonparametric Statistics (1999), section 3.4 (sign test).

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

/// How much faster than the bound an attempt must be before a round speaks against it.
pub const MARGIN: f64 = 1.1;

/// How often an attempt that is exactly as fast as the bound has the two smallest of a round's four times:
/// one of the six ways to choose two of four.
const CHANCE: f64 = 1.0 / 6.0;

/// What chance may at most account for before an attempt is refused, and before more rounds are asked for.
const REFUSED_BELOW: f64 = 1e-5;
const ASKED_BELOW: f64 = 0.2;

/// What the rounds say about an attempt and the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounded {
    /// No more rounds speak against the attempt than chance accounts for.
    Within,
    /// More than half do, or more than chance is likely to make, and yet it could be the reason: more rounds are
    /// needed.
    Open,
    /// Chance is not the reason: the attempt leaves out work.
    Past,
}

/// The sign test on speed itself.
///
/// A round times the bound twice and the attempt twice, in an order drawn anew each time. It speaks against
/// the attempt when the slower attempt is [`MARGIN`] times faster than the faster bound. Whatever else the
/// machine does, it does it without knowing the order: an attempt no faster than the bound has both smallest
/// times in at most one round of six, and the number of such rounds is binomial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// Rounds in all.
    pub count: usize,
    /// Rounds that speak against the attempt.
    pub against: usize,
}

impl Rounds {
    /// The rounds of samples in the order in which they were taken: samples `2i` and `2i + 1` of both are round
    /// `i`; what has no partner counts for nothing. Any unit, the same for both.
    pub fn of(bound: &[f64], attempt: &[f64]) -> Self {
        let rounds = || bound.as_chunks::<2>().0.iter().zip(attempt.as_chunks::<2>().0);
        let against = rounds().filter(|(bound, attempt)| speaks_against(**bound, **attempt)).count();
        Self { count: rounds().count(), against }
    }

    /// How likely at least so many rounds speak against an attempt that is exactly as fast as the bound.
    pub fn chance(&self) -> f64 {
        let n = self.count as f64;
        let mut log = n * (1.0 - CHANCE).ln(); // of the probability of exactly k rounds, here k = 0
        let mut tail = 0.0;
        for k in 0..=self.count {
            if k >= self.against {
                tail += log.exp();
            }
            log += ((n - k as f64) / (k as f64 + 1.0) * (CHANCE / (1.0 - CHANCE))).ln();
        }
        tail.min(1.0)
    }

    /// What they say.
    pub fn verdict(&self) -> Bounded {
        match self.chance() {
            chance if chance < REFUSED_BELOW => Bounded::Past,
            chance if chance < ASKED_BELOW || 2 * self.against > self.count => Bounded::Open,
            _ => Bounded::Within,
        }
    }
}

/// Which two places of a round's four are the attempt's: each of the six choices is as likely.
pub fn order(random: &mut Random) -> [bool; 4] {
    let (first, second) = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)][random.below(6)];
    std::array::from_fn(|place| place == first || place == second)
}

fn speaks_against(bound: [f64; 2], attempt: [f64; 2]) -> bool {
    attempt[0].max(attempt[1]) * MARGIN < bound[0].min(bound[1])
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

    /// Rounds as a machine times them whose disturbances multiply a call's time by 1 to 20.
    fn timed(bound: f64, attempt: f64, busy: f64, rounds: usize, seed: u64) -> Rounds {
        let mut random = Random::new(seed);
        let mut call = |time: f64| {
            let held_up = if random.unit() < busy { 1.0 + 19.0 * random.unit().powi(3) } else { 1.0 };
            time * held_up * (1.0 + 0.03 * random.unit())
        };
        let [mut bounds, mut attempts] = [vec![], vec![]];
        for _ in 0..rounds {
            bounds.extend([call(bound), call(bound)]);
            attempts.extend([call(attempt), call(attempt)]);
        }
        Rounds::of(&bounds, &attempts)
    }

    #[test]
    fn the_chance_of_rounds_is_the_binomial_tail() {
        let chance = |count, against| Rounds { count, against }.chance();
        assert!((chance(6, 0) - 1.0).abs() < 1e-12);
        assert!((chance(1, 1) - 1.0 / 6.0).abs() < 1e-12);
        assert!((chance(2, 1) - 11.0 / 36.0).abs() < 1e-12);
        assert!((chance(7, 7) - 6f64.powi(-7)).abs() < 1e-18);
        assert!((chance(10_000, 0) - 1.0).abs() < 1e-9 && chance(10_000, 10_000) < 1e-300);
    }

    #[test]
    fn every_order_of_a_round_is_as_likely() {
        let (mut random, mut seen) = (Random::new(1), std::collections::BTreeMap::new());
        (0..6000).for_each(|_| *seen.entry(order(&mut random)).or_insert(0) += 1);
        assert_eq!(seen.len(), 6);
        let fair = |(order, times): (&[bool; 4], &i32)| {
            order.iter().filter(|attempt| **attempt).count() == 2 && (850..1150).contains(times)
        };
        assert!(seen.iter().all(fair), "{seen:?}");
    }

    #[test]
    fn one_disturbed_round_decides_nothing() {
        let told = Rounds::of(&[9.0, 9.0], &[1.0, 1.0]);
        assert_eq!((told, told.verdict()), (Rounds { count: 1, against: 1 }, Bounded::Open));
        let told = Rounds::of(&[9.0, 9.0, 1.0, 1.0], &[1.0, 1.0, 1.0, 1.0]);
        assert_eq!(told.verdict(), Bounded::Within);
        assert_eq!(Rounds::of(&[], &[1.0]).verdict(), Bounded::Within);
    }

    #[test]
    fn a_round_wants_both_attempts_past_both_bounds_by_a_tenth() {
        let against = |bound, attempt| Rounds::of(bound, attempt).against;
        assert_eq!(against(&[11.1, 12.0], &[10.0, 9.0]), 1);
        assert_eq!(against(&[10.9, 12.0], &[10.0, 9.0]), 0);
        assert_eq!(against(&[11.1, 12.0], &[10.0, 10.2]), 0);
    }

    #[test]
    fn an_attempt_at_the_bound_is_never_refused() {
        for (i, busy) in [0.0, 0.1, 0.3, 0.5, 0.8, 1.0].into_iter().enumerate() {
            for seed in 0..2000 {
                let rounds = timed(100.0, 100.0, busy, 5 + seed % 60, (seed * 6 + i) as u64);
                assert_ne!(rounds.verdict(), Bounded::Past, "busy {busy}, seed {seed}: {rounds:?}");
            }
        }
    }

    #[test]
    fn an_attempt_past_the_bound_is_refused_on_a_busy_machine() {
        for busy in [0.0, 0.2, 0.4] {
            for seed in 0..200 {
                let rounds = timed(100.0, 40.0, busy, 60, seed);
                assert_eq!(rounds.verdict(), Bounded::Past, "busy {busy}, seed {seed}: {rounds:?}");
            }
        }
    }
}
