//! What a run says while it works: a line every `logging_steps` steps on standard output, and, where standard error is
//! a terminal, a bar below it with the steps, the last loss, the speed and the time that is left.

use std::fmt::Write as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value as Json;

use crate::output::print;

/// The screen of a run. The bar is gone when the run is, however it ends.
pub struct Progress {
    bar: ProgressBar,
    steps: u64,
    every: u64,
}

impl Progress {
    /// A run of so many steps, of which some are made; a line every `every` steps.
    pub fn new(steps: u64, made: u64, every: u64) -> Self {
        let bar = ProgressBar::new(steps).with_position(made); // draws nothing where there is no terminal
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}  {msg}  {eta} left");
        bar.set_style(style.expect("a template of known keys").progress_chars("=> "));
        bar.reset_eta(); // steps that another process made say nothing about this one's speed
        bar.enable_steady_tick(Duration::from_secs(1));
        Self { bar, steps, every }
    }

    /// A step was made; `line` is its line of the metrics.
    pub fn step(&self, step: u64, line: &Json) {
        let number = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
        let (loss, speed) = (number("loss"), number("tokens_per_second"));
        self.bar.set_position(step);
        self.bar.set_message(format!("loss {loss:.4}  {speed:.0} tokens/s"));
        if step.is_multiple_of(self.every) || step == 1 || step == self.steps {
            self.say(&format!(
                "step {step:>6} of {}  loss {loss:.4}  norm {:.3}  rate {:.2e}  {speed:.0} tokens/s\n",
                self.steps,
                number("grad_norm"),
                number("learning_rate"),
            ));
        }
    }

    /// An evaluation was made; `line` is its line of the metrics.
    pub fn evaluation(&self, step: u64, line: &Json) {
        let number = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
        let loss = number("eval_loss");
        let keys = [
            ("accuracy", "eval_mean_token_accuracy"),
            ("accuracy", "eval_accuracy"),
            ("F1", "eval_f1"),
            ("margins", "eval_rewards/margins"),
            ("reward", "eval_reward"),
        ];
        let mut text = format!("step {step:>6} of {}  eval loss {loss:.4}", self.steps);
        for (name, number) in
            keys.map(|(name, key)| (name, number(key))).iter().filter(|(_, number)| !number.is_nan())
        {
            let _ = write!(text, "  {name} {number:.3}");
        }
        self.say(&format!("{text}\n"));
    }

    /// Prints above the bar.
    pub fn say(&self, text: &str) {
        self.bar.suspend(|| print(text));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
