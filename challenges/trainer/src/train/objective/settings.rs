//! The keys of objectives: which belong to which, what they are where nothing is stated, and what they have to be.
//!
//! Source of names and defaults: `DPOConfig`, `KTOConfig` and `GRPOConfig` of the library TRL 1.16, and its
//! experimental `ORPOConfig` and `CPOConfig`.

use reference::loss::{Clip, Kto, Level, Orpo, PairKind, PairLoss, Policy, SimPo};

use super::super::config::{Config, Evaluation, Length, Objective, RewardScale, Sampling, Task};
use super::{Goal, Grpo, GrpoKind};

const GRPO_KINDS: [(&str, GrpoKind); 4] = [
    ("dapo", GrpoKind::Dapo),
    ("grpo", GrpoKind::Grpo),
    ("bnpo", GrpoKind::Bnpo),
    ("dr_grpo", GrpoKind::DrGrpo),
];
const LEVELS: [(&str, Level); 2] = [("token", Level::Token), ("sequence", Level::Sequence)];

/// Keys that only some objectives have.
const OF_SOME: [(&str, &[Objective]); 22] = {
    use Objective::{Dpo, Grpo, Kto, Orpo, Sft, Simpo};
    [
        ("packing", &[Sft]),
        ("assistant_only_loss", &[Sft]),
        ("max_length", &[Sft, Dpo, Orpo, Kto, Simpo]),
        ("beta", &[Dpo, Orpo, Kto, Simpo, Grpo]),
        ("loss_type", &[Dpo, Kto, Simpo, Grpo]),
        ("label_smoothing", &[Dpo, Simpo]),
        ("simpo_gamma", &[Simpo]),
        ("cpo_alpha", &[Simpo]),
        ("desirable_weight", &[Kto]),
        ("undesirable_weight", &[Kto]),
        ("num_generations", &[Grpo]),
        ("max_completion_length", &[Grpo]),
        ("temperature", &[Grpo]),
        ("epsilon", &[Grpo]),
        ("epsilon_high", &[Grpo]),
        ("delta", &[Grpo]),
        ("importance_sampling_level", &[Grpo]),
        ("scale_rewards", &[Grpo]),
        ("use_bias_correction_kl", &[Grpo]),
        ("mask_truncated_completions", &[Grpo]),
        ("reward_program", &[Grpo]),
        ("reward_timeout", &[Grpo]),
    ]
};

/// A word of a key, or the first of those that there are.
fn word<T: Copy>(key: &str, given: Option<&String>, words: &[(&str, T)]) -> Result<T, String> {
    let Some(given) = given else { return Ok(words[0].1) };
    let found = words.iter().find(|(word, _)| word == given).map(|(_, value)| *value);
    let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    found.ok_or_else(|| format!("{key}: expected {}, found {given:?}", any_of(&all)))
}

/// Words as a sentence has them.
fn any_of(words: &[&str]) -> String {
    match words {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        words => words.concat(),
    }
}

impl Config {
    /// Gives the keys that are not stated the defaults of the objective.
    pub(in crate::train) fn settle(&mut self) {
        let own = self.objective;
        let is_open = |key: &str| own != Objective::Sft && !self.stated.contains(key);
        let keys = ["learning_rate", "lora_dropout", "train_sampling_strategy", "max_length"];
        let [rate, dropout, order, length] = keys.map(is_open);
        if rate {
            self.learning_rate = 1e-6;
        }
        if dropout {
            self.lora_dropout = Some(0.0);
        }
        if order && own == Objective::Kto {
            self.train_sampling_strategy = Sampling::Sequential;
        }
        if length && own == Objective::Grpo {
            self.max_length = Length(None);
        }
    }

    /// The config with the defaults of its objective for all settings that it does not state.
    pub(in crate::train) fn acting(&self) -> Self {
        let mut acting = self.clone();
        let loss_type = |first: &str| Some(self.loss_type.clone().unwrap_or_else(|| first.to_owned()));
        match self.goal() {
            Ok(Some(Goal::Dpo(PairLoss { kind, beta }))) => {
                let e = if let PairKind::Robust(e) = kind { Some(e) } else { None };
                acting =
                    Self { beta: Some(beta), label_smoothing: e, loss_type: loss_type("sigmoid"), ..acting };
            }
            Ok(Some(Goal::Orpo(Orpo { beta }))) => acting.beta = Some(beta),
            Ok(Some(Goal::Simpo(SimPo { beta, gamma, label_smoothing }, alpha))) => {
                acting.loss_type = None; // there is one
                (acting.beta, acting.simpo_gamma) = (Some(beta), Some(gamma));
                (acting.label_smoothing, acting.cpo_alpha) = (Some(label_smoothing), Some(alpha));
            }
            Ok(Some(Goal::Kto(Kto { beta, desirable_weight, undesirable_weight }))) => {
                acting.loss_type = None; // there is one
                acting.beta = Some(beta);
                acting.desirable_weight = Some(desirable_weight);
                acting.undesirable_weight = Some(undesirable_weight);
            }
            Ok(Some(Goal::Grpo(grpo))) => {
                let Clip { low, high, .. } = grpo.policy.clip;
                (acting.epsilon, acting.epsilon_high) = (Some(low), Some(high));
                (acting.beta, acting.temperature) = (Some(grpo.policy.beta), Some(grpo.temperature));
                acting.loss_type = loss_type("dapo");
                acting.max_completion_length = Some(grpo.most as u64);
                acting.use_bias_correction_kl = Some(grpo.is_distance_corrected);
                acting.mask_truncated_completions = Some(grpo.masks_truncated);
                acting.num_generations = self.reward_program.is_some().then_some(grpo.generations as u64);
                acting.importance_sampling_level.get_or_insert_with(|| "token".to_owned());
                acting.scale_rewards = Some(grpo.scale);
            }
            Ok(None) | Err(_) => {}
        }
        acting
    }

    /// Returns a message for each stated key that has no effect.
    pub(in crate::train) fn idle_keys(&self) -> Vec<String> {
        let is_idle = self.label_smoothing.is_some_and(|e| e > 0.0)
            && matches!(self.goal(), Ok(Some(Goal::Dpo(pair))) if !matches!(pair.kind, PairKind::Robust(_)));
        let loss = self.loss_type.as_deref().unwrap_or("sigmoid");
        let smoothing =
            format!("label_smoothing: loss_type = \"{loss}\" leaves it out, as in TRL; robust has it");
        let never = self.eval_strategy == Evaluation::No && self.eval_dataset_name.is_some();
        let evaluation = "eval_dataset_name: eval_strategy is \"no\", so the run is not evaluated; set it to \"steps\" or \"epoch\"";
        let all = [(is_idle, smoothing), (never, evaluation.to_owned())];
        all.into_iter().filter(|(is_idle, _)| *is_idle).map(|(_, message)| message).collect()
    }

    /// Checks the settings of the objective.
    pub(in crate::train) fn check_objective(&self) -> Result<(), String> {
        let own = self.objective;
        let is_off = |key: &str| match key {
            "packing" => !self.packing,
            "assistant_only_loss" => !self.assistant_only_loss,
            "max_length" => self.max_length.0.is_none(),
            _ => false,
        };
        let is_foreign = |(key, of): &&(&str, &[Objective])| {
            self.stated.contains(key) && !is_off(key) && !of.contains(&own)
        };
        let foreign = OF_SOME.iter().find(is_foreign);
        if let Some((key, of)) = foreign {
            let all: Vec<&str> = of.iter().map(|objective| objective.name()).collect();
            return Err(format!(
                "{key} is of objective {}, found objective = \"{}\"",
                any_of(&all),
                own.name()
            ));
        }
        if own != Objective::Sft && self.task_type != Task::CausalLm {
            return Err(format!(
                "task_type: expected \"CAUSAL_LM\" with objective = \"{}\", found \"SEQ_CLS\"",
                own.name()
            ));
        }
        if let (true, Some(share)) = (own != Objective::Sft, self.lora_dropout.filter(|share| *share > 0.0)) {
            return Err(format!(
                "lora_dropout: expected 0 with objective = \"{}\", which compares log-probabilities, found {share}",
                own.name()
            ));
        }
        self.goal().map(|_| ())
    }

    /// The objective with its settings; `None` if it is the likelihood of the rows.
    pub(in crate::train) fn goal(&self) -> Result<Option<Goal>, String> {
        Ok(Some(match self.objective {
            Objective::Sft => return Ok(None),
            Objective::Dpo => Goal::Dpo(self.dpo()?),
            Objective::Orpo => Goal::Orpo(Orpo { beta: self.beta.unwrap_or(0.1) }),
            Objective::Simpo => {
                word("loss_type", self.loss_type.as_ref(), &[("simpo", ())])?;
                let label_smoothing = below("label_smoothing", self.label_smoothing.unwrap_or(0.0), 1.0)?;
                let gamma = self.simpo_gamma.unwrap_or(0.5);
                let simpo = SimPo { beta: self.positive_beta(0.1)?, gamma, label_smoothing };
                Goal::Simpo(simpo, self.cpo_alpha.unwrap_or(0.0))
            }
            Objective::Kto => {
                word("loss_type", self.loss_type.as_ref(), &[("kto", ())])?;
                Goal::Kto(Kto {
                    beta: self.positive_beta(0.1)?,
                    desirable_weight: self.desirable_weight.unwrap_or(1.0),
                    undesirable_weight: self.undesirable_weight.unwrap_or(1.0),
                })
            }
            Objective::Grpo => Goal::Grpo(self.grpo()?),
        }))
    }

    fn dpo(&self) -> Result<PairLoss, String> {
        let e = below("label_smoothing", self.label_smoothing.unwrap_or(0.0), 0.5)?;
        let kinds = [
            ("sigmoid", PairKind::Sigmoid),
            ("ipo", PairKind::Ipo),
            ("hinge", PairKind::Hinge),
            ("robust", PairKind::Robust(e)),
        ];
        let kind = word("loss_type", self.loss_type.as_ref(), &kinds)?;
        Ok(PairLoss { kind, beta: self.positive_beta(0.1)? })
    }

    fn grpo(&self) -> Result<Grpo, String> {
        let low = self.epsilon.unwrap_or(0.2);
        if low > 1.0 {
            return Err(format!("epsilon: expected a number from 0 to 1, found {low}"));
        }
        let clip = Clip { low, high: self.epsilon_high.unwrap_or(low), delta: self.delta };
        let level = word("importance_sampling_level", self.importance_sampling_level.as_ref(), &LEVELS)?;
        let beta = self.beta.unwrap_or(0.0);
        for (key, value) in [("delta", self.delta), ("temperature", self.temperature)] {
            if value == Some(0.0) {
                return Err(format!("{key}: expected a number above 0, found 0"));
            }
        }
        if let Some(few) = self.num_generations.filter(|count| *count < 2) {
            return Err(format!("num_generations: expected at least 2, found {few}"));
        }
        if self.reward_timeout.is_some() && self.reward_program.is_none() {
            return Err("reward_timeout: expected reward_program beside it, found none".to_owned());
        }
        if self.reward_program.is_some() && self.eval_dataset_name.is_some() {
            return Err("eval_dataset_name: expected logged completions, found reward_program".to_owned());
        }
        self.reward_program()?;
        if self.max_completion_length == Some(0) {
            return Err("max_completion_length: expected a whole number above 0, found 0".to_owned());
        }
        Ok(Grpo {
            policy: Policy { level, ..Policy::grpo(beta, clip) },
            kind: word("loss_type", self.loss_type.as_ref(), &GRPO_KINDS)?,
            scale: self.scale_rewards.unwrap_or(RewardScale::Group),
            temperature: self.temperature.unwrap_or(1.0),
            is_distance_corrected: self.use_bias_correction_kl.unwrap_or(true),
            generations: self.num_generations.unwrap_or(8) as usize,
            most: self.max_completion_length.unwrap_or(512) as usize,
            masks_truncated: self.mask_truncated_completions.unwrap_or(false),
            old: false,
        })
    }

    fn positive_beta(&self, default: f64) -> Result<f64, String> {
        match self.beta.unwrap_or(default) {
            beta if beta > 0.0 => Ok(beta),
            beta => Err(format!("beta: expected a number above 0, found {beta}")),
        }
    }
}

/// A share below a bound.
fn below(key: &str, share: f64, bound: f64) -> Result<f64, String> {
    if share < bound {
        Ok(share)
    } else {
        Err(format!("{key}: expected a number from 0 on and below {bound}, found {share}"))
    }
}
