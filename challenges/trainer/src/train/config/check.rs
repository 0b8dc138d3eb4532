//! That the settings of a config fit one another.

use challenges::fsdp::PP;
use kernels::Which;

use super::Config;
use super::value::{Evaluation, PipelineSchedule, Read as _, Task};

/// The largest rank that an adapter's file may have.
const LARGEST_RANK: u64 = 1 << 16;

/// The most outputs that a classifier may have.
const MOST_LABELS: u64 = 1 << 16;

/// The most ranks that a run may have: they are threads of one process.
const MOST_RANKS: usize = 1024;

/// The largest values of some keys. They are far beyond every run, and keep products of sizes within 64 bits.
const MOST: [(&str, u64); 9] = [
    ("per_device_train_batch_size", 1 << 16),
    ("per_device_eval_batch_size", 1 << 16),
    ("gradient_accumulation_steps", 1 << 20),
    ("max_steps", 1 << 40),
    ("num_train_epochs", 1_000_000),
    ("warmup_steps", 1 << 40),
    ("num_generations", 1 << 16),
    ("max_completion_length", 1 << 24),
    ("reward_timeout", 1_000_000_000),
];

impl Config {
    /// That there is a run that it describes.
    pub(super) fn check(&self) -> Result<(), String> {
        for (key, value) in
            [("model_name_or_path", &self.model_name_or_path), ("dataset_name", &self.dataset_name)]
        {
            if value.is_empty() {
                return Err(format!("{key} is missing"));
            }
        }
        let above = [
            ("lora_r", self.lora_r),
            ("per_device_train_batch_size", self.per_device_train_batch_size),
            ("gradient_accumulation_steps", self.gradient_accumulation_steps),
            ("ranks", self.ranks.unwrap_or(1)),
            ("logging_steps", self.logging_steps),
            ("save_steps", self.save_steps),
            ("eval_steps", self.eval_steps()),
            ("per_device_eval_batch_size", self.per_device_eval_batch_size),
        ];
        self.check_sizes()?;
        if self.eval_strategy != Evaluation::No && self.eval_dataset_name.is_none() {
            return Err("eval_strategy: expected eval_dataset_name beside it, found none".to_owned());
        }
        let both = |need| format!("trainable_token_indices: expected {need}");
        self.adapter().modules.check().map_err(both)?;
        if let Some(share) = self.lora_dropout.filter(|share| *share >= 1.0) {
            return Err(format!("lora_dropout: expected a number below 1, found {share}"));
        }
        if self.lora_r > LARGEST_RANK {
            return Err(format!(
                "lora_r: expected a whole number up to {LARGEST_RANK}, found {}",
                self.lora_r
            ));
        }
        for (key, share) in [("adam_beta1", self.adam_beta1), ("adam_beta2", self.adam_beta2)] {
            if share >= 1.0 {
                return Err(format!("{key}: expected a number below 1, found {share}"));
            }
        }
        if self.adam_epsilon as f32 == 0.0 && self.adapter_name_or_path.is_none() {
            return Err(format!(
                "adam_epsilon: expected a number above 0 in float32, found {}: the first gradient of a new adapter's A \
                 is 0, which would be divided by 0",
                self.adam_epsilon
            ));
        }
        self.check_task()?;
        self.check_ranks()?;
        self.check_objective()?;
        match above.iter().find(|(_, number)| *number == 0) {
            Some((key, _)) => Err(format!("{key}: expected a whole number above 0, found 0")),
            None => Ok(()),
        }
    }

    /// Checks that no size is absurd, and that there is a step to make.
    fn check_sizes(&self) -> Result<(), String> {
        let entries = self.entries();
        let shown =
            |key: &str| entries.iter().find(|(name, _)| *name == key).and_then(|(_, value)| value.as_ref());
        for (key, most) in MOST {
            let Some(found) = shown(key) else { continue };
            if found.parse::<f64>().is_ok_and(|number| number > most as f64) {
                return Err(format!("{key}: expected a number of at most {most}, found {found}"));
            }
        }
        if self.max_steps <= 0 && self.num_train_epochs == 0.0 {
            return Err(
                "num_train_epochs: expected a number above 0, or max_steps above 0, found 0".to_owned()
            );
        }
        Ok(())
    }

    /// That the settings are of one task.
    fn check_task(&self) -> Result<(), String> {
        let of_classifiers = ["num_labels", "id2label", "problem_type"];
        let stated = of_classifiers.iter().find(|key| self.stated.contains(*key));
        match (self.task_type, stated) {
            (Task::CausalLm, None) => return Ok(()),
            (Task::CausalLm, Some(key)) => {
                return Err(format!(
                    "{key}: expected task_type = \"SEQ_CLS\" beside it, found \"CAUSAL_LM\""
                ));
            }
            (Task::SeqCls, _) => {}
        }
        let (names, outputs) = (self.id2label.0.len(), self.num_labels);
        if let Some(outputs) = outputs.filter(|outputs| names > 0 && *outputs != names as u64) {
            return Err(format!("num_labels: expected {names}, the names of id2label, found {outputs}"));
        }
        if outputs.is_some_and(|outputs| !(1..=MOST_LABELS).contains(&outputs)) {
            let found = outputs.unwrap_or_default();
            return Err(format!(
                "num_labels: expected a whole number from 1 to {MOST_LABELS}, found {found}"
            ));
        }
        let beside = |key: &str, need: &str, found: &str| {
            Err(format!("{key}: expected {need} with task_type = \"SEQ_CLS\", found {found}"))
        };
        if self.assistant_only_loss {
            return beside("assistant_only_loss", "false", "true");
        }
        if let Some(bytes) = self.loss_chunk_bytes.0 {
            return beside("loss_chunk_bytes", "false", &bytes.to_string());
        }
        Ok(())
    }

    /// That ranks can share the run.
    fn check_ranks(&self) -> Result<(), String> {
        let of_mesh = self.mesh.0.iter().try_fold(1_usize, |all, (_, ranks)| all.checked_mul(*ranks));
        let of_mesh =
            of_mesh.ok_or_else(|| format!("mesh: expected at most {MOST_RANKS} ranks, found more"))?;
        if let Some(given) = self.ranks.filter(|given| !self.mesh.0.is_empty() && *given != of_mesh as u64) {
            let mesh = self.mesh.shown().unwrap_or_default();
            return Err(format!("ranks: expected the {of_mesh} of mesh = {mesh}, found {given}"));
        }
        let (schedule, has_stages) =
            (self.pipeline_parallel_schedule, self.mesh.0.iter().any(|(axis, _)| axis == PP));
        if schedule != PipelineSchedule::OneFOneB && !has_stages {
            let found = schedule.name();
            return Err(format!(
                "pipeline_parallel_schedule: expected a mesh with pp for {found}, found none"
            ));
        }
        let Some(mesh) = self.several() else { return Ok(()) };
        let ranks = mesh.ranks();
        if let Which::Cuda(_) = self.device {
            let found = self.device;
            return Err(format!(
                "device: expected auto or cpu with {ranks} ranks, which are on the CPU, found {found}"
            ));
        }
        if ranks > MOST_RANKS {
            return Err(format!(
                "ranks: expected at most {MOST_RANKS}, threads of one process, found {ranks}"
            ));
        }
        Ok(())
    }
}
