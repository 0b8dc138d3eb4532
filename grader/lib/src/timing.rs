//! Timing that can be trusted: rounds, a median, an interval, a verdict.
//!
//! Machines speed up, slow down and are shared. A baseline and an attempt are therefore timed side by side,
//! in the order A B B A, a *round*, so that a drift hits both. Each round gives two pairs, each pair one log-ratio;
//! the median of the log-ratios is the speed-up. What disturbs a round disturbs both of its pairs, so they are no two
//! independent samples: the unit that the bootstrap draws is the round. A verdict on a threshold is met when the whole
//! 95 % interval clears it, unmet when the whole interval misses it, and otherwise inconclusive, which is scored as
//! unmet with the reason.
//!
//! The number of rounds is set before the first one ([`Plan`]), and no look at a ratio ends them. A round in which a
//! thread waited for a processor says less, so one more is taken for it. Rounds until the
//! interval is clear of a threshold would be optional stopping: each look is another chance to be clear by accident.
//! With a fixed number, a ratio that lies on the threshold is called met in at most 2.5 % of runs, the share that a
//! two-sided 95 % interval leaves on one side; the tests hold that by simulation. Few rounds make a plain percentile
//! interval too narrow, so it is expanded ([`tail`]); from fewer than [`FEWEST_ROUNDS`] there is none.
//!
//! The bootstrap's random numbers are fixed, so that a report's interval can be recomputed from its samples.
//!
//! Whether an attempt is faster than the machine can be is a sign test over rounds, see [`Rounds`]: a machine
//! that is busy slows bound and attempt alike, and no single disturbed sample condemns anybody.
//!
//! Sources: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13 (percentile interval);
//! Hesterberg, What Teachers Should Know About the Bootstrap, The American Statistician 69 (2015) (expanded percentile
//! interval); Armitage and others, Repeated Significance Tests on Accumulating Data, Journal of the Royal
//! Statistical Society A 132 (1969) (optional stopping); Conover, Practical Nonparametric Statistics (1999), section
//! 3.4 (sign test).

use std::time::Duration;

use crate::random::Random;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// Rounds that an interval needs at least.
pub const FEWEST_ROUNDS: usize = 8;

/// Rounds of a case at most, without `--quick`.
pub(crate) const MOST_ROUNDS: usize = 24;

/// How many rounds a case is timed for, set before the first of them: `most`, or fewer where the machine is so slow
/// that `budget` is spent before, and never fewer than `fewest`. Nothing here knows a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    fewest: usize,
    most: usize,
    /// How long more than the fewest rounds may take.
    pub budget: Duration,
    /// Whether more rounds make up for those in which a thread waited for a processor.
    makes_up: bool,
}

impl Plan {
    /// `budget` is that of a run without `--quick`, which takes [`FEWEST_ROUNDS`]; `pairs` are those that the reader
    /// asked for, two a round.
    pub fn new(quick: bool, pairs: Option<usize>, budget: Duration) -> Self {
        if let Some(rounds) = pairs.map(|pairs| pairs.div_ceil(2).max(1)) {
            return Self { fewest: rounds, most: rounds, budget: Duration::ZERO, makes_up: false };
        }
        let (most, budget) = if quick { (FEWEST_ROUNDS, Duration::ZERO) } else { (MOST_ROUNDS, budget) };
        Self { fewest: FEWEST_ROUNDS, most, budget, makes_up: true }
    }

    /// Whether so many rounds, which took so long, are all.
    pub fn is_over(&self, rounds: usize, spent: Duration) -> bool {
        rounds >= self.most || (rounds >= self.fewest && spent >= self.budget)
    }

    /// Returns whether there are enough rounds for the disturbed ones: one more for each of them, up to twice as many as
    /// were `planned`. A wait for a processor says nothing about a ratio, so this never stops at a good one.
    pub fn is_made_up(&self, planned: usize, rounds: usize, disturbed: usize) -> bool {
        !self.makes_up || rounds >= planned + disturbed.min(2 * planned)
    }
}

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

/// One case's paired times: `baseline[i]` and `attempt[i]` were taken next to each other, and pairs `2i` and `2i + 1`
/// are round `i`.
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

/// A case's speed-up: exp of the median log-ratio, with its 95 % interval; `None` from too few rounds.
pub fn speedup(pairs: Pairs<'_>) -> (f64, Option<[f64; 2]>) {
    Resample::ROUNDS.speedup(pairs)
}

/// Total baseline time over total attempt time of several cases, with its 95 % interval; `None` if a case has too few
/// rounds. A case's time is the median of its samples.
pub fn total_speedup(cases: &[Pairs<'_>]) -> (f64, Option<[f64; 2]>) {
    Resample::ROUNDS.total_speedup(cases)
}

/// How a bootstrap draws.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resample {
    /// Pairs that are drawn together.
    pairs: usize,
    /// Units that an interval needs at least.
    fewest: usize,
    expanded: bool,
    resamples: usize,
}

impl Resample {
    /// By rounds.
    const ROUNDS: Self = Self { pairs: 2, fewest: FEWEST_ROUNDS, expanded: true, resamples: RESAMPLES };

    /// As the version before drew: reports that it wrote follow from their own samples by this.
    pub const FORMER: Self = Self { pairs: 1, fewest: 1, expanded: false, resamples: RESAMPLES };

    /// As the function of that name.
    pub fn speedup(self, pairs: Pairs<'_>) -> (f64, Option<[f64; 2]>) {
        let logs: Vec<f64> = pairs.ratios().iter().map(|ratio| ratio.ln()).collect();
        let value = median(&logs).exp();
        let mut drawn = Vec::new();
        let interval = self.interval(logs.len(), |random| {
            self.draw(logs.len(), random, &mut drawn);
            median(&drawn.iter().map(|i| logs[*i]).collect::<Vec<_>>()).exp()
        });
        (value, interval)
    }

    /// As the function of that name.
    pub fn total_speedup(self, cases: &[Pairs<'_>]) -> (f64, Option<[f64; 2]>) {
        let mut drawn = Vec::new();
        let mut total = |draw: &mut dyn FnMut(usize, &mut Vec<usize>)| {
            let (mut baseline, mut attempt) = (0.0, 0.0);
            for pairs in cases {
                draw(pairs.len(), &mut drawn);
                baseline += median(&drawn.iter().map(|i| pairs.baseline[*i]).collect::<Vec<_>>());
                attempt += median(&drawn.iter().map(|i| pairs.attempt[*i]).collect::<Vec<_>>());
            }
            baseline / attempt
        };
        let value = total(&mut |count, drawn| {
            drawn.clear();
            drawn.extend(0..count);
        });
        let fewest = cases.iter().map(Pairs::len).min().unwrap_or(0);
        let interval =
            self.interval(fewest, |random| total(&mut |count, drawn| self.draw(count, random, drawn)));
        (value, interval)
    }

    /// Draws as many of `count` pairs as there are, by units with replacement; a pair without its unit's other half is
    /// never drawn.
    fn draw(self, count: usize, random: &mut Random, drawn: &mut Vec<usize>) {
        let units = count / self.pairs;
        drawn.clear();
        for _ in 0..units {
            let first = random.below(units) * self.pairs;
            drawn.extend(first..first + self.pairs);
        }
    }

    /// The ends of the middle 95 % of a resampled statistic of `count` pairs.
    fn interval(self, count: usize, mut statistic: impl FnMut(&mut Random) -> f64) -> Option<[f64; 2]> {
        let units = count / self.pairs;
        if units < self.fewest {
            return None;
        }
        let mut random = Random::new(0x5eed);
        let mut values: Vec<f64> = (0..self.resamples).map(|_| statistic(&mut random)).collect();
        values.sort_by(f64::total_cmp);
        let tail = if self.expanded { tail(units) } else { 0.025 };
        let outside = (tail * self.resamples as f64) as usize; // on each side
        Some([values[outside], values[self.resamples - 1 - outside]])
    }
}

/// The share of a bootstrap's values on each side of a 95 % interval from `n` units: normal(-t sqrt(n / (n - 1))), with
/// t the 97.5th percentile of Student's distribution with n - 1 degrees of freedom. It tends to 2.5 %; from few units
/// it is less, because resampling sees the spread of the sample, which is smaller than that of what was sampled.
fn tail(n: usize) -> f64 {
    let (n, z) = (n as f64, 1.959_963_985_f64);
    let v = n - 1.0;
    // Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5: t by the normal percentile z.
    let t = z
        + (z.powi(3) + z) / (4.0 * v)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * v * v)
        + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / (384.0 * v.powi(3));
    upper_tail(t * (n / v).sqrt())
}

/// The share of the normal distribution above `x`, which is not negative; to 1e-7 (Abramowitz and Stegun, 26.2.17).
fn upper_tail(x: f64) -> f64 {
    let k = 1.0 / (1.0 + 0.231_641_9 * x);
    let polynomial = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530];
    let sum = polynomial.into_iter().fold(0.0, |sum, coefficient| (sum + coefficient) * k);
    sum * (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt()
}

/// How much faster than the bound an attempt must be before a round speaks against it.
pub const MARGIN: f64 = 1.1;

/// How often an attempt that is exactly as fast as the bound has the two smallest of a round's four times:
/// one of the six ways to choose two of four.
const CHANCE: f64 = 1.0 / 6.0;

/// What chance may at most account for before an attempt is refused, and before more rounds are asked for. Rounds that
/// leave it open are looked at again after each further one, and each look is another chance to be refused: so the
/// limit of one look is a twentieth of what all looks together stay below, 2e-5 (held by a test).
const REFUSED_BELOW: f64 = 1e-6;
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
/// times in at most one round of six, and the number of such rounds is at most binomial.
///
/// What is not drawn is the call before: an attempt's first always follows one of the baseline, a bound's may follow
/// any. Whoever times has to see to it that all calls find the machine alike.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_ratio_has_a_point_for_an_interval() {
        let pairs = Pairs { baseline: &[2.0; 16], attempt: &[1.0; 16] };
        let (value, interval) = speedup(pairs);
        let [low, high] = interval.expect("eight rounds");
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
        let message = Rounds::of(&[9.0, 9.0], &[1.0, 1.0]);
        assert_eq!((message, message.verdict()), (Rounds { count: 1, against: 1 }, Bounded::Open));
        let message = Rounds::of(&[9.0, 9.0, 1.0, 1.0], &[1.0, 1.0, 1.0, 1.0]);
        assert_eq!(message.verdict(), Bounded::Within);
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
    fn looking_after_every_round_refuses_two_in_a_hundred_thousand_at_most() {
        for planned in [1, FEWEST_ROUNDS, MOST_ROUNDS] {
            let mut open = vec![1.0]; // the probability of so many rounds against, where none has decided
            let mut refused = 0.0;
            for count in 1..=400 {
                let of = |k: usize| open.get(k).copied().unwrap_or(0.0);
                let after = |k: usize| of(k) * (1.0 - CHANCE) + if k > 0 { of(k - 1) * CHANCE } else { 0.0 };
                let mut all: Vec<f64> = (0..=count).map(after).collect();
                for (against, share) in all.iter_mut().enumerate().filter(|_| count >= planned) {
                    match (Rounds { count, against }).verdict() {
                        Bounded::Open => continue,
                        Bounded::Past => refused += *share,
                        Bounded::Within => {}
                    }
                    *share = 0.0;
                }
                open = all;
            }
            assert!(refused < 2e-5 && refused > 1e-6, "{planned} planned: {refused:e}");
        }
    }

    #[test]
    fn an_attempt_past_the_bound_is_refused_on_a_busy_machine() {
        for busy in [0.0, 0.2, 0.4] {
            for seed in 0..200 {
                let rounds = timed(100.0, 40.0, busy, 120, seed);
                assert_eq!(rounds.verdict(), Bounded::Past, "busy {busy}, seed {seed}: {rounds:?}");
            }
        }
    }

    #[test]
    fn the_tail_is_that_of_student() {
        // -t sqrt(n / (n - 1)) with t from tables of Student's distribution: 2.365 (7), 2.069 (23), 1.984 (99)
        for (n, x, share) in [(8, 2.528, 0.00573), (24, 2.113, 0.01729), (100, 1.994, 0.02307)] {
            assert!((upper_tail(x) - share).abs() < 1e-4, "{n}: {}", upper_tail(x));
            assert!((tail(n) - share).abs() < 1e-4, "{n}: {}", tail(n));
        }
        assert!((tail(100_000) - 0.025).abs() < 1e-5);
    }

    #[test]
    fn few_rounds_have_no_interval() {
        let of = |pairs: usize| {
            let (baseline, attempt) = (vec![2.0; pairs], vec![1.0; pairs]);
            let pairs = Pairs { baseline: &baseline, attempt: &attempt };
            (speedup(pairs).1.is_some(), total_speedup(&[pairs]).1.is_some())
        };
        assert_eq!([4, 15, 16].map(of), [(false, false), (false, false), (true, true)]);
        assert!(total_speedup(&[]).1.is_none());
    }

    #[test]
    fn rounds_are_drawn_whole() {
        // within each round one pair doubles and one halves: rounds are alike, pairs are not
        let attempt: Vec<f64> = [0.5, 2.0].repeat(8);
        let pairs = Pairs { baseline: &[1.0; 16], attempt: &attempt };
        let [low, high] = speedup(pairs).1.expect("eight rounds");
        assert!((low - 1.0).abs() < 1e-12 && (high - 1.0).abs() < 1e-12);
        let [low, high] = Resample::FORMER.speedup(pairs).1.expect("pairs");
        assert!(low < 0.6 && high > 1.9);
    }

    #[test]
    fn a_plan_ends_by_rounds_or_by_time() {
        let (second, plan) =
            (Duration::from_secs(1), |quick, pairs| Plan::new(quick, pairs, 8 * Duration::from_secs(1)));
        let full = plan(false, None);
        assert!(!full.is_over(7, 99 * second) && full.is_over(8, 8 * second));
        assert!(!full.is_over(23, 7 * second) && full.is_over(24, second));
        assert!(!plan(true, None).is_over(7, 99 * second) && plan(true, None).is_over(8, Duration::ZERO));
        assert!(full.is_made_up(24, 24, 0) && !full.is_made_up(24, 24, 1) && full.is_made_up(24, 72, 72));
        assert!(full.is_made_up(10, 10, 0) && !full.is_made_up(10, 12, 3) && full.is_made_up(10, 13, 3));
        assert!(plan(true, None).is_made_up(8, 24, 24) && plan(true, Some(5)).is_made_up(3, 3, 3));
        assert!(
            !plan(false, Some(5)).is_over(2, 99 * second) && plan(true, Some(5)).is_over(3, Duration::ZERO)
        );
    }

    /// A made-up machine: what holds up a call, as a factor of its time. Log-normal; a part is common to a round, a
    /// part favours one side for a whole round, so that its pairs depend on each other; clocks drift; one call in
    /// twenty is disturbed.
    struct Machine {
        random: Random,
        drift: f64,
    }

    impl Machine {
        fn new(seed: u64) -> Self {
            Self { random: Random::named(seed, "machine"), drift: 0.0 }
        }

        fn normal(&mut self) -> f64 {
            let (radius, angle) = (1.0 - self.random.unit(), self.random.unit() * std::f64::consts::TAU);
            (-2.0 * radius.ln()).sqrt() * angle.cos()
        }

        /// Two calls of the baseline, two of the attempt and two of the bound, at these times undisturbed.
        fn round(&mut self, times: [f64; 3]) -> [[f64; 2]; 3] {
            self.drift += 0.01 * self.normal();
            let (common, side) = (self.drift + 0.03 * self.normal(), 0.04 * self.normal());
            [(times[0], side), (times[1], -side), (times[2], -side)].map(|(time, side)| {
                [(); 2].map(|()| {
                    let disturbed = self.random.unit() < 0.05;
                    let held_up = if disturbed { -0.7 * (1.0 - self.random.unit()).ln() } else { 0.0 };
                    time * (common + side + 0.02 * self.normal() + held_up).exp()
                })
            })
        }

        /// Rounds of a case until `enough` of them, given the times so far and what they took in all.
        fn case(&mut self, times: [f64; 3], enough: impl Fn(&[Vec<f64>; 3], f64) -> bool) -> [Vec<f64>; 3] {
            let (mut all, mut spent) = ([(); 3].map(|()| Vec::new()), 0.0);
            while !enough(&all, spent) {
                let round = self.round(times);
                spent += round.iter().flatten().sum::<f64>();
                all.iter_mut().zip(round).for_each(|(all, times)| all.extend(times));
            }
            all
        }
    }

    /// What a run says of the threshold 1.15, with the total of three cases of this ratio, as the protocol takes them:
    /// in planned rounds, and more while the bound is open, as it may be here, where the attempt is as fast as it.
    fn judged(ratio: f64, quick: bool, seed: u64) -> Verdict {
        let mut machine = Machine::new(seed);
        let plan = Plan::new(quick, None, Duration::from_millis(400));
        let cases: Vec<[Vec<f64>; 3]> = [1.0, 0.3, 3.6] // milliseconds; the last case's plan ends by its time
            .into_iter()
            .map(|time| {
                machine.case([ratio * time, time, time], |[_, attempt, bound], spent| {
                    let rounds = Rounds::of(bound, attempt);
                    let spent = Duration::from_secs_f64(spent / 1e3);
                    let open = rounds.verdict() == Bounded::Open && rounds.count < 60;
                    plan.is_over(rounds.count, spent) && !open
                })
            })
            .collect();
        let pairs: Vec<Pairs<'_>> =
            cases.iter().map(|[baseline, attempt, _]| Pairs { baseline, attempt }).collect();
        let by_rounds = Resample { resamples: 1000, ..Resample::ROUNDS };
        at_least(by_rounds.total_speedup(&pairs).1.expect("enough rounds"), 1.15)
    }

    /// Of so many seeded runs, those that are met and those that are unmet.
    fn count(runs: u64, run: impl Fn(u64) -> Verdict) -> [f64; 2] {
        let verdicts: Vec<Verdict> = (0..runs).map(run).collect();
        [Verdict::Met, Verdict::Unmet].map(|of| verdicts.iter().filter(|is| **is == of).count() as f64)
    }

    /// The most events of so many runs that a share of 2.5 % makes likely: three standard deviations above its mean.
    fn at_the_level(runs: u64) -> f64 {
        let mean = 0.025 * runs as f64;
        mean + 3.0 * (mean * 0.975).sqrt()
    }

    #[test]
    fn a_ratio_on_the_threshold_is_met_in_few_runs() {
        for (quick, runs) in [(true, 400), (false, 160)] {
            let [met, unmet] = count(runs, |seed| judged(1.15, quick, seed));
            let level = at_the_level(runs);
            assert!(met <= level && unmet <= level, "{met} met, {unmet} unmet of {runs}, quick: {quick}");
        }
    }

    #[test]
    fn a_ratio_a_tenth_above_the_threshold_is_met_in_most_runs() {
        for (quick, most) in [(true, 70.0), (false, 95.0)] {
            let [met, _] = count(100, |seed| judged(1.1 * 1.15, quick, seed));
            assert!(met >= most, "met in {met} of 100 runs, quick: {quick}");
        }
    }

    /// The protocol that this one replaces. It shows what the simulation can see.
    #[test]
    fn sampling_on_until_an_interval_over_pairs_is_clear_does_not_keep_the_level() {
        let over_pairs = Resample { resamples: 200, ..Resample::FORMER };
        let interval = |[baseline, attempt, _]: &[Vec<f64>; 3]| {
            over_pairs.speedup(Pairs { baseline, attempt }).1.unwrap_or([0.0, f64::INFINITY])
        };
        let run = |seed| {
            let clear = |interval| {
                [1.0, 1.05, 1.1, 1.15]
                    .iter()
                    .all(|threshold| at_least(interval, *threshold) != Verdict::Inconclusive)
            };
            let enough =
                |all: &[Vec<f64>; 3], _| all[0].len() >= 10 && (all[0].len() >= 60 || clear(interval(all)));
            at_least(interval(&Machine::new(seed).case([1.15, 1.0, 0.5], enough)), 1.15)
        };
        let [met, _] = count(200, run);
        assert!(met > 2.0 * at_the_level(200), "met in {met} of 200 runs");
    }
}
