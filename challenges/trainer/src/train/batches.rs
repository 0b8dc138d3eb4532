//! Which rows make which step.
//!
//! ```text
//! epoch                 every row once, in the file's order or in an order of its own
//! micro-batch           `per_device_train_batch_size` rows that follow each other; the last of an epoch may have fewer
//! step                  `gradient_accumulation_steps` micro-batches; the last of an epoch may have fewer
//! ```
//!
//! What a step holds depends on the seed and the number of the step alone, so a run that goes on from a checkpoint sees
//! the rows that it would have seen.
//!
//! Source: the `Trainer` of the `transformers` library, `set_initial_training_values` and `get_batch_samples`.

use reference::philox::philox4x32_10;

use super::config::{Config, Sampling};

/// The steps of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batches {
    rows: u64,
    batch: u64,
    accumulation: u64,
    seed: Option<u64>, // of the orders; `None`: the file's order
    /// Steps of the run.
    pub steps: u64,
}

impl Batches {
    /// Those of a config over so many rows.
    pub fn new(config: &Config, rows: usize) -> Self {
        let random = config.train_sampling_strategy == Sampling::Random;
        let mut batches = Self {
            rows: rows as u64,
            batch: config.per_device_train_batch_size,
            accumulation: config.gradient_accumulation_steps,
            seed: random.then_some(config.seed),
            steps: 0,
        };
        let by_epochs = (config.num_train_epochs * batches.steps_of_epoch() as f64).ceil() as u64;
        batches.steps = u64::try_from(config.max_steps).ok().filter(|steps| *steps > 0).unwrap_or(by_epochs);
        batches
    }

    /// Those of groups of so many completions, of which a step has as many as fill its micro-batches.
    pub fn of_groups(config: &Config, groups: usize, completions: u64) -> Self {
        let all = config.per_device_train_batch_size * config.gradient_accumulation_steps;
        let batch = (all / completions.max(1)).max(1);
        let own =
            Config { per_device_train_batch_size: batch, gradient_accumulation_steps: 1, ..config.clone() };
        Self::new(&own, groups)
    }

    /// Whether each epoch has an order of its own.
    pub fn is_drawn(&self) -> bool {
        self.seed.is_some()
    }

    /// Steps of one epoch.
    pub fn steps_of_epoch(&self) -> u64 {
        self.rows.div_ceil(self.batch).div_ceil(self.accumulation)
    }

    /// The epochs that are over after so many steps, by their micro-batches.
    pub fn epochs(&self, steps: u64) -> f64 {
        let (epochs, within) = (steps / self.steps_of_epoch(), steps % self.steps_of_epoch());
        epochs as f64 + (within * self.accumulation) as f64 / self.rows.div_ceil(self.batch) as f64
    }

    /// The rows of each micro-batch of a step, counted from 0.
    pub fn step(&self, step: u64) -> Vec<Vec<usize>> {
        let (epoch, within) = (step / self.steps_of_epoch(), step % self.steps_of_epoch());
        let order = self.order(epoch);
        let of_step = self.batch * self.accumulation;
        let from = (within * of_step) as usize;
        let rows = &order[from..order.len().min(from + of_step as usize)];
        rows.chunks(self.batch as usize).map(<[usize]>::to_vec).collect()
    }

    /// The order of the rows in an epoch: Fisher and Yates' shuffle.
    fn order(&self, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rows as usize).collect();
        let Some(seed) = self.seed else { return order };
        let key = [seed as u32, (seed >> 32) as u32];
        for last in (1..order.len()).rev() {
            let [low, high, ..] =
                philox4x32_10([last as u32, epoch as u32, (epoch >> 32) as u32, ORDER], key);
            let drawn = u64::from(low) | u64::from(high) << 32;
            order.swap(last, ((u128::from(drawn) * (last as u128 + 1)) >> 64) as usize);
        }
        order
    }
}

/// Tells draws of orders from other draws of the same seed.
const ORDER: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(rows: usize, change: impl FnOnce(&mut Config)) -> Batches {
        let mut config =
            Config { per_device_train_batch_size: 3, gradient_accumulation_steps: 2, ..Config::default() };
        change(&mut config);
        Batches::new(&config, rows)
    }

    #[test]
    fn an_epoch_holds_every_row_once() {
        for rows in 1..40 {
            let batches = batches(rows, |_| ());
            for epoch in 0..3 {
                let steps = (0..batches.steps_of_epoch()).map(|step| epoch * batches.steps_of_epoch() + step);
                let mut all: Vec<usize> = steps.flat_map(|step| batches.step(step).concat()).collect();
                all.sort_unstable();
                assert_eq!(all, (0..rows).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_last_step_of_an_epoch_may_be_smaller() {
        let batches = batches(11, |config| config.train_sampling_strategy = Sampling::Sequential);
        let of_step = [batches.step(0), batches.step(1), batches.step(2)];
        assert_eq!(of_step[0], [vec![0, 1, 2], vec![3, 4, 5]]);
        assert_eq!(of_step[1], [vec![6, 7, 8], vec![9, 10]]);
        assert_eq!(of_step[2], of_step[0]);
        assert_eq!(batches.steps, 6);
    }

    #[test]
    fn epochs_are_counted_by_micro_batches() {
        // as transformers 5.23 logs 60 rows by 4, two to a step
        let batches = batches(60, |config| config.per_device_train_batch_size = 4);
        let epochs: Vec<f64> = [1, 2, 7, 8, 9].map(|steps| batches.epochs(steps)).into();
        let want = [2.0 / 15.0, 4.0 / 15.0, 14.0 / 15.0, 1.0, 1.0 + 2.0 / 15.0];
        assert!(epochs.iter().zip(want).all(|(own, want)| (own - want).abs() < 1e-15), "{epochs:?}");
    }

    #[test]
    fn epochs_may_be_parts_and_steps_may_be_given() {
        assert_eq!(batches(11, |config| config.num_train_epochs = 1.2).steps, 3);
        assert_eq!(batches(11, |config| config.max_steps = 7).steps, 7);
    }

    #[test]
    fn epochs_and_seeds_have_orders_of_their_own() {
        let order = |seed: u64, epoch: u64| batches(32, |config| config.seed = seed).order(epoch);
        assert_eq!(order(1, 0), order(1, 0));
        assert_ne!(order(1, 0), order(1, 1));
        assert_ne!(order(1, 0), order(2, 0));
    }
}
