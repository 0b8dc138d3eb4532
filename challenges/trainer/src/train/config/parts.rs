//! What the settings of a config ask for: the parts of a run.

use std::path::PathBuf;

use challenges::fsdp::{self, FSDP, Fsdp as _, Pipeline, Room};
use challenges::loss::Solution;
use challenges::loss::run::Size;
use challenges::train::Activations;
use challenges::train::chunks::{Causal, InChunks, Total, causal, of_loss};
use reference::graph::ranks::Mesh;
use reference::llama::{self, Spec};
use reference::lora::{self, Modules};
use reference::optim::{AdamW, Schedule, Shape};
use reference::schedule::{Generator, Placement, gpipe, one_f_one_b, zero_bubble};

use super::Config;
use super::value::{PipelineSchedule, Scheduler, Task};
use crate::gguf_tokenizer;
use crate::output::Failure;
use crate::train::objective::Goal;

impl Config {
    /// The labels of a classifier, if the config states them.
    pub fn labels(&self) -> Option<Vec<String>> {
        let names = &self.id2label.0;
        let unnamed = || self.num_labels.map(|outputs| llama::unnamed(outputs as usize));
        if names.is_empty() { unnamed() } else { Some(names.clone()) }
    }

    /// How the ranks of the run lie; `None` if there is one.
    pub fn several(&self) -> Option<Mesh> {
        let line = [(FSDP.to_owned(), usize::try_from(self.ranks.unwrap_or(1)).unwrap_or(usize::MAX))];
        let axes = if self.mesh.0.is_empty() { &line[..] } else { &self.mesh.0 };
        Mesh::new(axes.iter().cloned()).ok().filter(|mesh| mesh.ranks() > 1)
    }

    /// What layers leave for their backward on one rank.
    pub fn activations(&self) -> Activations {
        if self.gradient_checkpointing { Activations::Recomputed } else { Activations::Kept }
    }

    /// What there is room for on each of several ranks.
    pub fn room(&self) -> Room {
        let activation_bytes = if self.gradient_checkpointing { 0 } else { usize::MAX };
        Room { activation_bytes, prefetch_bytes: usize::MAX, ..Room::default() }
    }

    /// The adapter that it asks for.
    pub fn adapter(&self) -> lora::Config {
        lora::Config {
            rank: self.lora_r as usize,
            alpha: self.lora_alpha,
            rank_stabilized: self.use_rslora,
            dropout: self.lora_dropout.unwrap_or(0.05),
            targets: self.lora_target_modules.clone(),
            modules: self.modules(),
            base: Some(self.model_name_or_path.clone()),
        }
    }

    /// What is trained beside its pairs: of a classifier, its head.
    fn modules(&self) -> Modules {
        let modules = Modules {
            to_save: self.lora_modules_to_save.0.clone(),
            tokens: self.trainable_token_indices.0.clone(),
        };
        if self.task_type == Task::SeqCls { modules.with_head() } else { modules }
    }

    /// The optimiser and the bound on its gradient.
    pub fn recipe(&self) -> llama::train::Recipe {
        let optimizer = AdamW {
            beta1: self.adam_beta1,
            beta2: self.adam_beta2,
            eps: self.adam_epsilon,
            weight_decay: self.weight_decay,
        };
        // as in transformers, 0 is no bound
        let max_norm = if self.max_grad_norm > 0.0 { self.max_grad_norm } else { f64::from(f32::MAX) };
        llama::train::Recipe { optimizer, max_norm }
    }

    /// The learning rates of a run of so many steps.
    pub fn schedule(&self, steps: u64) -> Schedule {
        let shape = match self.lr_scheduler_type {
            Scheduler::Linear => Shape::Linear { steps },
            Scheduler::Cosine => Shape::Cosine { steps, cycles: 0.5 },
            Scheduler::Constant | Scheduler::ConstantWithWarmup => Shape::Constant,
        };
        let warmup = if self.lr_scheduler_type == Scheduler::Constant { 0 } else { self.warmup_steps };
        Schedule { peak: self.learning_rate, warmup, shape }
    }

    /// The loss of a model, if it is chunked, or asks for more than labels.
    pub fn loss(&self, spec: &Spec, goal: Option<&Goal>) -> Result<Option<Causal>, Failure> {
        if let Some(goal) = goal {
            let loss = goal.loss(self, spec.config.vocab).map_err(Failure::bug)?;
            return Ok(Some(of_loss(spec, loss)));
        }
        let chunked = self.loss_chunk_bytes.0.map(|_| causal(spec, Total::Sum));
        chunked.transpose().map_err(Failure::usage)
    }

    /// The same with its steps and the size of its chunks.
    pub fn in_chunks<'a>(&self, causal: Option<&'a Causal>) -> Option<InChunks<'a>> {
        let size = match self.loss_chunk_bytes.0 {
            Some(bytes) => Size::Bytes(bytes as usize),
            None => Size::Rows(usize::MAX), // all of them at once
        };
        Some(InChunks { attempt: &Solution, causal: causal?, size })
    }

    /// Steps between two evaluations.
    pub fn eval_steps(&self) -> u64 {
        self.eval_steps.unwrap_or(self.logging_steps)
    }

    /// Where everything that is written goes.
    pub fn output(&self) -> PathBuf {
        self.output_dir.clone().into()
    }

    /// The folder of the model, or its GGUF file.
    ///
    /// Fails where there is none, with the places where it was looked for.
    pub fn model_folder(&self) -> Result<PathBuf, Failure> {
        if let Some(file) = llama::hub::gguf(&self.model_name_or_path) {
            return Ok(file.into());
        }
        let found = llama::hub::find(&self.model_name_or_path);
        found.map_err(|error| self.lookup.explain("model_name_or_path", error))
    }

    /// The folder of the tokenizer.
    ///
    /// Fails as [`Self::model_folder`] does.
    pub fn tokenizer_folder(&self) -> Result<PathBuf, Failure> {
        let Some(name) = &self.tokenizer_name_or_path else {
            return match llama::hub::gguf(&self.model_name_or_path) {
                Some(_) => gguf_tokenizer::folder(&self.model_name_or_path),
                None => self.model_folder(),
            };
        };
        llama::hub::find(name).map_err(|error| self.lookup.explain("tokenizer_name_or_path", error))
    }
}

impl PipelineSchedule {
    /// What stages do by it, where layers are computed again and adapters are trained.
    pub fn pipeline(self) -> Pipeline<'static> {
        let schedule: &'static Generator = match self {
            Self::OneFOneB => &(one_f_one_b as Generator),
            Self::GPipe => &(gpipe as Generator),
            Self::ZeroBubble => &(zero_bubble as Generator),
            Self::Fill => &((|shape, workload| fsdp::Solution.schedule(shape, workload)) as Generator),
        };
        let placement = Placement::Looped;
        Pipeline { chunks: 1, placement, workload: fsdp::recomputed(), schedule, slots: None }
    }
}
