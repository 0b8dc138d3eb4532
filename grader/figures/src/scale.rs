//! From values to positions, and where the ticks go.
//!
//! A speed-up of 1.15 and one of 6 must both read well on one axis, so a [`Scale`] is a chain of pieces,
//! each linear or logarithmic, that share their ends: the order is kept and only the density changes.
//! Values outside the domain are drawn at its end; a scale is total over every `f64` that is a number.

/// How a piece spreads its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// Equal differences take equal room.
    Linear,
    /// Equal ratios take equal room; the domain is positive.
    Log,
}

/// One stretch of an axis.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// How values are spread.
    pub law: Law,
    /// The values at its two ends, ascending.
    pub domain: [f64; 2],
    /// The positions of those ends.
    pub range: [f64; 2],
}

/// A monotone map from values to positions.
#[derive(Clone, Debug)]
pub struct Scale {
    pieces: Vec<Piece>,
}

impl Scale {
    /// One piece from `domain` to `range`; a domain without extent is widened by 5 % either way.
    pub fn new(law: Law, domain: [f64; 2], range: [f64; 2]) -> Self {
        Self { pieces: vec![Piece { law, domain: widened(domain), range }] }
    }

    /// Pieces that follow one another, each beginning where the one before ends.
    pub fn joined(pieces: Vec<Piece>) -> Self {
        assert!(!pieces.is_empty(), "a scale has at least one piece");
        Self { pieces }
    }

    /// Where a value is drawn.
    pub fn at(&self, value: f64) -> f64 {
        let piece = self.pieces.iter().find(|piece| value <= piece.domain[1]);
        piece.unwrap_or(&self.pieces[self.pieces.len() - 1]).at(value)
    }

    /// The smallest and the largest value.
    pub fn domain(&self) -> [f64; 2] {
        [self.pieces[0].domain[0], self.pieces[self.pieces.len() - 1].domain[1]]
    }

    /// Round values at least `gap` apart on paper.
    pub fn ticks(&self, gap: f64) -> Vec<f64> {
        let mut ticks: Vec<f64> = Vec::new();
        for tick in self.pieces.iter().flat_map(|piece| piece.ticks(gap)) {
            if ticks.last().is_none_or(|last| self.at(tick) - self.at(*last) >= gap) {
                ticks.push(tick);
            }
        }
        ticks
    }
}

impl Piece {
    fn at(&self, value: f64) -> f64 {
        let [lo, hi] = self.domain;
        let value = value.clamp(lo, hi);
        let part = match self.law {
            Law::Linear => (value - lo) / (hi - lo),
            Law::Log => (value.ln() - lo.ln()) / (hi.ln() - lo.ln()),
        };
        self.range[0] + part * (self.range[1] - self.range[0])
    }

    fn ticks(&self, gap: f64) -> Vec<f64> {
        let [lo, hi] = self.domain;
        match self.law {
            Law::Log if hi / lo > 2.5 => self.log_ticks(gap),
            _ => linear_ticks(lo, hi, gap / (self.range[1] - self.range[0])),
        }
    }

    /// The finest of the usual digit sets that leaves room between all its ticks.
    fn log_ticks(&self, gap: f64) -> Vec<f64> {
        const DIGITS: [&[f64]; 5] = [
            &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
            &[1.0, 2.0, 3.0, 5.0],
            &[1.0, 2.0, 5.0],
            &[1.0, 3.0],
            &[1.0],
        ];
        let roomy = |ticks: &Vec<f64>| ticks.windows(2).all(|w| self.at(w[1]) - self.at(w[0]) >= gap);
        let mut sets = DIGITS.iter().map(|digits| log_ticks(self.domain, digits));
        sets.clone().find(roomy).or_else(|| sets.next_back()).unwrap_or_default()
    }
}

fn log_ticks([lo, hi]: [f64; 2], digits: &[f64]) -> Vec<f64> {
    let decades = lo.log10().floor() as i32..=hi.log10().floor() as i32;
    let ticks = decades.flat_map(|decade| digits.iter().map(move |digit| digit * 10f64.powi(decade)));
    ticks.filter(|tick| (lo..=hi).contains(tick)).collect()
}

/// Multiples of 1, 2 or 5 times a power of ten; `part` is the share of the range that two ticks keep free.
fn linear_ticks(lo: f64, hi: f64, part: f64) -> Vec<f64> {
    let least = (hi - lo) * part.clamp(0.01, 1.0);
    let decade = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * decade).into_iter().find(|step| *step >= least);
    let step = step.unwrap_or(10.0 * decade);
    let first = (lo / step).ceil();
    (0..100).map(|i| (first + f64::from(i)) * step).take_while(|tick| *tick <= hi).collect()
}

fn widened([lo, hi]: [f64; 2]) -> [f64; 2] {
    if hi > lo {
        [lo, hi]
    } else {
        [lo * 0.95, lo.abs().mul_add(0.05, lo).max(lo * 0.95 + f64::MIN_POSITIVE)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_scale_is_continuous_and_ascending() {
        let scale = Scale::joined(vec![
            Piece { law: Law::Linear, domain: [0.95, 1.2], range: [0.0, 100.0] },
            Piece { law: Law::Log, domain: [1.2, 8.0], range: [100.0, 300.0] },
        ]);
        let at: Vec<f64> = [0.5, 0.95, 1.0, 1.15, 1.2, 1.21, 3.0, 8.0, 1e300].map(|v| scale.at(v)).to_vec();
        assert!(at.windows(2).all(|w| w[0] <= w[1]), "{at:?}");
        assert_eq!((at[0], at[4], at[8]), (0.0, 100.0, 300.0));
    }

    #[test]
    fn ticks_are_round_and_keep_their_distance() {
        let scale = Scale::new(Law::Log, [300.0, 40000.0], [0.0, 440.0]);
        let ticks = scale.ticks(40.0);
        assert!(ticks.contains(&1000.0) && ticks.contains(&10000.0), "{ticks:?}");
        assert!(ticks.windows(2).all(|w| scale.at(w[1]) - scale.at(w[0]) >= 40.0), "{ticks:?}");
        let narrow = Scale::new(Law::Linear, [10.3, 11.9], [0.0, 440.0]).ticks(60.0);
        assert!(narrow.len() >= 3 && narrow.len() <= 8, "{narrow:?}");
    }

    #[test]
    fn absurd_domains_neither_hang_nor_flood() {
        for domain in [[1e-300, 1e300], [5.0, 5.0], [1.0, 1.0 + 1e-12]] {
            for law in [Law::Linear, Law::Log] {
                let scale = Scale::new(law, domain, [0.0, 440.0]);
                assert!(scale.ticks(40.0).len() < 100);
                assert!(scale.at(domain[0]).is_finite() && scale.at(domain[1]).is_finite());
            }
        }
    }
}
