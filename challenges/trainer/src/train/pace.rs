//! How fast the steps of a run are, once what is done the first time is done.
//!
//! A card's first step compiles its kernels, and the second run over the same memories is captured to be repeated; a
//! CPU's first steps compile, too. So the first steps are left out where there are others. A step ends when the norm of
//! its gradient is on the host, which waits for everything that the step has queued on a card.

use std::time::Duration;

/// Steps that are left out.
const FIRST: usize = 3;

/// The tokens and the time of every step.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    steps: Vec<(usize, Duration)>,
}

impl Pace {
    /// A step was made.
    pub fn add(&mut self, tokens: usize, time: Duration) {
        self.steps.push((tokens, time));
    }

    /// The median time of a step, and tokens a second over all that count; nothing of a run without steps.
    pub fn describe(&self) -> String {
        let counted = if self.steps.len() > FIRST { &self.steps[FIRST..] } else { &self.steps };
        if counted.is_empty() {
            return String::new();
        }
        let mut times: Vec<Duration> = counted.iter().map(|(_, time)| *time).collect();
        times.sort_unstable();
        let tokens: usize = counted.iter().map(|(tokens, _)| tokens).sum();
        let speed = tokens as f64 / times.iter().sum::<Duration>().as_secs_f64();
        let median = (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2;
        let which = match self.steps.len() - counted.len() {
            0 => String::new(),
            first => format!(" after the first {first}"),
        };
        format!("median step{which}: {:.1} ms; {speed:.0} tokens/s\n", 1e3 * median.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(milliseconds: &[u64]) -> String {
        let mut pace = Pace::default();
        for time in milliseconds {
            pace.add(100, Duration::from_millis(*time));
        }
        pace.describe()
    }

    #[test]
    fn the_first_steps_count_where_there_are_no_others() {
        assert_eq!(pace(&[]), "");
        assert_eq!(pace(&[900, 100]), "median step: 500.0 ms; 200 tokens/s\n");
        assert_eq!(pace(&[900, 500, 500, 10]), "median step after the first 3: 10.0 ms; 10000 tokens/s\n");
    }

    #[test]
    fn one_slow_step_moves_the_speed_and_not_the_median() {
        let slow = pace(&[1, 1, 1, 10, 70, 10, 10]);
        assert_eq!(slow, "median step after the first 3: 10.0 ms; 4000 tokens/s\n");
    }
}
