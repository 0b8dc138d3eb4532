//! Keys of other trainers that this one does not have, each with what to use instead, or why none is needed.
//!
//! Sources: `TrainingArguments` of `transformers`, 5.24, and its earlier versions; `SFTConfig`, `DPOConfig`,
//! `KTOConfig`, `GRPOConfig`, `ORPOConfig`, `CPOConfig`, `ModelConfig` and `ScriptArguments` of `trl`, 1.16;
//! `LoraConfig` of `peft`, 0.21; `BitsAndBytesConfig` of `transformers`. A few common names come from Axolotl and
//! LLaMA-Factory.

use toml::Value;

/// Keys that share an explanation.
struct Foreign {
    /// Their names. A name that ends in `*` stands for every key that begins so.
    names: &'static [&'static str],
    /// Values, as TOML, that ask for what this trainer does anyway: a key with one of them is accepted.
    obeyed: &'static [&'static str],
    /// The replacement, or why none is needed.
    instead: &'static str,
}

const fn refused(names: &'static [&'static str], instead: &'static str) -> Foreign {
    Foreign { names, obeyed: &[], instead }
}

const fn obeyed(
    names: &'static [&'static str],
    obeyed: &'static [&'static str],
    instead: &'static str,
) -> Foreign {
    Foreign { names, obeyed, instead }
}

/// The model and its types.
const MODEL: &[Foreign] = &[
    refused(&["model", "base_model", "model_name", "model_path", "model_id"], "use model_name_or_path"),
    refused(&["tokenizer", "tokenizer_name", "tokenizer_path"], "use tokenizer_name_or_path"),
    refused(&["adapter", "adapter_path", "peft_model_id", "lora_model_dir"], "use adapter_name_or_path"),
    obeyed(
        &["model_revision", "revision"],
        &["\"main\""],
        "the revision is the one that refs/main of the local cache names",
    ),
    obeyed(&["trust_remote_code"], &["false"], "not needed: no code of a model's folder is run"),
    refused(
        &["attn_implementation", "flash_attention", "flash_attn", "sdp_attention", "xformers_attention"],
        "not needed: attention always runs in this trainer's own kernels",
    ),
    refused(&["model_init_kwargs"], "write dtype and load_in_4bit outside of it"),
    refused(&["torch_dtype", "bnb_4bit_compute_dtype", "compute_dtype", "model_dtype"], "use dtype"),
    refused(&["bf16"], "dtype = \"bfloat16\" computes in it"),
    refused(&["fp16"], "dtype = \"float16\" computes in it"),
    refused(&["tf32", "half_precision_backend", "fp16_opt_level"], "dtype is the type of every product"),
    refused(&["bf16_full_eval", "fp16_full_eval"], "evaluations compute in dtype, as training does"),
    obeyed(&["load_in_8bit"], &["false"], "load_in_4bit is what there is"),
    refused(&["bnb_4bit_use_double_quant"], "use use_bnb_nested_quant"),
    refused(
        &["bnb_4bit_quant_storage", "quantization_config", "bits", "load_in_fp8", "bnb_config_kwargs"],
        "load_in_4bit, bnb_4bit_quant_type and use_bnb_nested_quant are what there is",
    ),
    refused(&["router_aux_loss_coef"], "not needed: a Llama has no experts"),
    refused(&["use_cache"], "not needed: training keeps no cache of keys and values"),
    refused(&["cast_lm_head_to_fp32"], "logits are rounded to dtype; the loss is computed in float32"),
    refused(&["ignore_bias_buffers"], "not needed: a Llama has no such buffers"),
];

/// The adapter.
const ADAPTER: &[Foreign] = &[
    obeyed(&["use_peft"], &["true"], "an adapter is trained always"),
    refused(&["r", "lora_rank"], "use lora_r"),
    refused(&["target_modules", "lora_target", "lora_target_linear"], "use lora_target_modules"),
    refused(&["modules_to_save"], "use lora_modules_to_save"),
    refused(&["lora_task_type"], "use task_type"),
    obeyed(
        &["use_dora", "use_qalora", "lora_bias", "fan_in_fan_out"],
        &["false"],
        "an adapter is LoRA, or rsLoRA with use_rslora = true",
    ),
    obeyed(&["bias"], &["\"none\""], "an adapter trains no biases"),
    obeyed(
        &["init_lora_weights"],
        &["true"],
        "A is random and B is 0; adapter_name_or_path starts elsewhere",
    ),
    refused(
        &["rank_pattern", "alpha_pattern", "layers_to_transform", "layers_pattern", "exclude_modules"],
        "every layer has the same lora_target_modules, lora_r and lora_alpha",
    ),
    refused(
        &[
            "lora_target_parameters",
            "target_parameters",
            "loftq_config",
            "eva_config",
            "corda_config",
            "lora_ga_config",
            "velora_config",
            "monteclora_config",
            "kasa_config",
            "arrow_config",
            "use_bdlora",
            "qalora_group_size",
            "layer_replication",
            "runtime_config",
            "megatron_config",
            "megatron_core",
            "alora_invocation_tokens",
            "ensure_weight_tying",
            "peft_type",
            "peft_config",
        ],
        "an adapter is LoRA, or rsLoRA with use_rslora = true",
    ),
];

/// Data, and how rows are made from it.
const DATA: &[Foreign] = &[
    refused(
        &["dataset", "datasets", "dataset_path", "data_path", "train_file", "data_files"],
        "use dataset_name",
    ),
    refused(
        &[
            "dataset_test_split",
            "eval_dataset",
            "eval_file",
            "validation_file",
            "test_datasets",
            "val_set_size",
        ],
        "eval_dataset_name is the file of evaluations",
    ),
    obeyed(
        &["dataset_train_split"],
        &["\"train\""],
        "dataset_name is one file, all of whose rows are trained",
    ),
    obeyed(
        &["dataset_streaming"],
        &["false"],
        "dataset_name is one local file, which is read before the run",
    ),
    refused(
        &[
            "dataset_config",
            "dataset_kwargs",
            "dataset_num_proc",
            "dataset_batch_size",
            "dataset_prepared_path",
        ],
        "not needed: dataset_name is one local file, which is read before the run",
    ),
    obeyed(&["dataset_text_field"], &["\"text\""], "the key of a text is text"),
    refused(&["chat_template", "chat_template_path"], "the template is that of tokenizer_name_or_path"),
    refused(&["chat_template_kwargs"], "write chat_template_kwargs into the rows"),
    refused(
        &["eos_token", "pad_token", "special_tokens"],
        "the tokenizer's own files name its special tokens",
    ),
    refused(
        &[
            "max_seq_length",
            "sequence_len",
            "cutoff_len",
            "model_max_length",
            "block_size",
            "max_target_length",
        ],
        "use max_length",
    ),
    refused(&["max_prompt_length"], "max_length cuts prompt and answer"),
    obeyed(&["truncation_mode"], &["\"keep_start\""], "rows are cut at their end"),
    obeyed(
        &["completion_only_loss"],
        &["true"],
        "rows of prompt and completion always train the completion only; rows of messages have assistant_only_loss",
    ),
    refused(&["train_on_inputs", "train_on_responses_only"], "use assistant_only_loss"),
    refused(&["sample_packing", "pack_to_max_length"], "use packing"),
    obeyed(&["packing_strategy"], &["\"bfd\""], "rows are packed as by \"bfd\""),
    refused(&["eval_packing", "eval_sample_packing"], "packing decides for training and evaluations"),
    obeyed(
        &["padding_free"],
        &["false"],
        "packing = true makes rows without padding, each text attending to itself only",
    ),
    refused(
        &["pad_to_multiple_of", "padding_value", "label_pad_token_id", "pad_to_sequence_len"],
        "not needed: padding has no loss and is not attended to",
    ),
    refused(&["shuffle_dataset"], "train_sampling_strategy is random or sequential"),
    obeyed(&["group_by_length"], &["false"], "train_sampling_strategy is random or sequential"),
    refused(
        &["length_column_name", "remove_unused_columns", "label_names"],
        "not needed: other keys of a row are not read",
    ),
    obeyed(&["dataloader_drop_last"], &["false"], "the last rows of an epoch are trained, too"),
    refused(&["dataloader_*"], "not needed: all rows are tokenised before the first step"),
    refused(&["formatting_func", "num_of_sequences", "chars_per_token"], "rows are packed by their tokens"),
    refused(&["is_encoder_decoder"], "not needed: a Llama is a decoder"),
];

/// Steps and the optimiser.
const STEPS: &[Foreign] = &[
    refused(&["num_epochs", "epochs", "n_epochs"], "use num_train_epochs"),
    refused(
        &["batch_size", "micro_batch_size", "train_batch_size", "per_gpu_train_batch_size"],
        "use per_device_train_batch_size",
    ),
    refused(&["eval_batch_size", "per_gpu_eval_batch_size"], "use per_device_eval_batch_size"),
    refused(&["auto_find_batch_size"], "`trainer train --plan` says what memory a batch takes"),
    refused(&["lr"], "use learning_rate"),
    refused(&["lr_scheduler", "scheduler"], "use lr_scheduler_type"),
    refused(&["lr_scheduler_kwargs"], "lr_scheduler_type has no settings here"),
    refused(&["warmup_ratio"], "warmup_steps is a number of steps"),
    obeyed(&["optim", "optimizer"], &["\"adamw_torch\"", "\"adamw_torch_fused\""], "the optimiser is AdamW"),
    refused(
        &["optim_args", "optim_target_modules"],
        "the optimiser is AdamW, for every tensor that is trained",
    ),
    refused(&["gradient_clipping"], "use max_grad_norm"),
    obeyed(&["label_smoothing_factor"], &["0", "0.0"], "label_smoothing is of dpo and simpo"),
    obeyed(
        &["average_tokens_across_devices"],
        &["true"],
        "a step's loss is the mean over all of its tokens, on every rank",
    ),
    refused(&["neftune_noise_alpha"], "embeddings get no noise here"),
    obeyed(
        &["activation_offloading"],
        &["false"],
        "gradient_checkpointing = true keeps the input of a layer only",
    ),
    refused(
        &["gradient_checkpointing_kwargs", "activation_checkpointing*"],
        "gradient_checkpointing = true computes layers again; it has no variants",
    ),
    refused(&["use_liger*", "liger_kernel_config"], "loss_chunk_bytes computes the loss in chunks"),
    obeyed(&["torch_compile"], &["false"], "not needed: each step is compiled before it first runs"),
    refused(&["torch_compile_*", "torchdynamo"], "not needed: each step is compiled before it first runs"),
    refused(&["torch_empty_cache_steps"], "not needed: memory is planned before a step runs"),
    refused(&["data_seed"], "seed decides the order of rows, too"),
    refused(&["full_determinism"], "not needed: equal settings give equal runs"),
    refused(&["objective_type", "trainer", "trainer_type", "rlhf", "rl", "stage"], "use objective"),
];

/// Logs, evaluations and checkpoints.
const OUTPUT: &[Foreign] = &[
    refused(&["output", "save_dir", "output_path"], "use output_dir"),
    obeyed(
        &["overwrite_output_dir"],
        &["false"],
        "resume_from_checkpoint = true resumes a run; a new run needs a new output_dir",
    ),
    obeyed(
        &["save_strategy"],
        &["\"steps\""],
        "save_steps is the interval; the last step always makes a checkpoint",
    ),
    obeyed(&["save_only_model"], &["false"], "a checkpoint always has the optimiser's state"),
    obeyed(&["save_safetensors"], &["true"], "files are safetensors"),
    refused(
        &["save_on_each_node", "enable_jit_checkpoint"],
        "not needed: a signal makes a run save and stop",
    ),
    obeyed(
        &["load_best_model_at_end"],
        &["false"],
        "metrics.jsonl has every eval_loss; save_total_limit = false keeps every checkpoint to choose from",
    ),
    refused(
        &["metric_for_best_model", "greater_is_better", "early_stopping*"],
        "metrics.jsonl has every eval_loss; no checkpoint is chosen by it",
    ),
    obeyed(&["ignore_data_skip"], &["false"], "a run that resumes reads the rows that follow"),
    refused(&["restore_callback_states_from_checkpoint"], "not needed: this trainer has none"),
    obeyed(
        &["logging_strategy"],
        &["\"steps\""],
        "logging_steps is the interval; metrics.jsonl has every step",
    ),
    obeyed(
        &["logging_first_step"],
        &["true"],
        "the first step is always printed; metrics.jsonl has every step",
    ),
    obeyed(&["report_to"], &["\"none\"", "[]"], "metrics.jsonl in output_dir has every step"),
    refused(
        &["logging_*", "log_*", "run_name", "project", "wandb*", "trackio_*", "disable_tqdm"],
        "metrics.jsonl in output_dir has every step",
    ),
    refused(&["include_num_input_tokens_seen"], "not needed: num_tokens of metrics.jsonl has them"),
    refused(&["evaluation_strategy", "do_eval"], "use eval_strategy"),
    obeyed(&["do_train"], &["true"], "not needed: `train` trains"),
    refused(&["do_predict"], "`trainer generate` continues a prompt"),
    refused(&["eval_delay", "eval_on_start"], "eval_strategy and eval_steps say when a run is evaluated"),
    refused(
        &["prediction_loss_only", "eval_*", "include_for_metrics", "batch_eval_metrics"],
        "an evaluation logs its loss and its accuracy, whatever the batch",
    ),
    obeyed(&["push_to_hub"], &["false"], "nothing is uploaded; output_dir/adapter is what peft reads"),
    refused(&["hub_*", "push_to_hub_*"], "nothing is uploaded; output_dir/adapter is what peft reads"),
    obeyed(&["generate_during_eval"], &["false"], "`trainer generate` continues a prompt"),
];

/// Devices and ranks.
const DEVICES: &[Foreign] = &[
    refused(&["use_cpu", "no_cuda"], "device = \"cpu\" runs on the CPU"),
    refused(
        &["fsdp", "fsdp_*", "deepspeed", "deepspeed_*", "parallelism_config", "accelerator_config", "ddp_*"],
        "ranks and mesh share a run among ranks",
    ),
    refused(&["local_rank", "ray_scope", "tpu_*"], "not needed: ranks are threads of this process"),
    refused(&["debug", "skip_memory_metrics", "past_index"], "metrics.jsonl has peak_bytes of every step"),
    refused(&["jit_mode_eval", "use_ipex", "use_mps_device", "xpu_backend"], "device is cpu or cuda"),
];

/// Objectives: preferences and rewards.
const OBJECTIVES: &[Foreign] = &[
    refused(&["disable_dropout"], "lora_dropout is 0 for every objective but sft"),
    refused(&["precompute_ref_*"], "the reference model reads each micro-batch when it is trained"),
    refused(&["reference_free"], "objective = \"simpo\" has no reference model"),
    obeyed(&["sync_ref_model"], &["false"], "the reference model is the adapter at the start"),
    refused(
        &["ref_model_*", "model_adapter_name", "ref_adapter_name", "force_use_ref_model", "ref_model"],
        "the reference model is the adapter at the start",
    ),
    obeyed(&["f_divergence_type"], &["\"reverse_kl\""], "dpo measures the reverse KL divergence"),
    refused(
        &[
            "f_alpha_divergence_coef",
            "loss_weights",
            "ld_alpha",
            "use_weighting",
            "discopop_tau",
            "rpo_alpha",
        ],
        "dpo has loss_type, beta and label_smoothing",
    ),
    refused(&["alpha"], "lora_alpha is the scale of the adapter, cpo_alpha of simpo's likelihood"),
    refused(
        &["center_rewards_coefficient"],
        "no reward model is trained here; task_type = \"SEQ_CLS\" trains classes",
    ),
    obeyed(&["num_iterations"], &["1"], "a step's completions are trained once"),
    refused(
        &["steps_per_generation", "generation_batch_size"],
        "a step generates per_device_train_batch_size x gradient_accumulation_steps completions",
    ),
    obeyed(
        &["top_p", "repetition_penalty"],
        &["1", "1.0"],
        "completions are drawn from all tokens at temperature",
    ),
    obeyed(&["top_k"], &["0"], "completions are drawn from all tokens at temperature"),
    refused(
        &["min_p", "generation_kwargs", "cache_implementation", "num_generations_eval"],
        "completions are drawn from all tokens at temperature",
    ),
    obeyed(&["use_vllm"], &["false"], "completions are generated by this trainer"),
    refused(
        &["vllm_*", "use_transformers_*", "transformers_continuous_*", "ds3_gather_for_generation"],
        "completions are generated by this trainer",
    ),
    refused(
        &["reward_funcs", "reward_model_name_or_path", "reward_weights", "multi_objective_aggregation"],
        "reward_program judges completions, or `rewards` of the data",
    ),
    obeyed(&["top_entropy_quantile"], &["1", "1.0"], "every token of a completion counts"),
    refused(
        &["sapo_*", "vespo_*", "entropy_*", "use_adaptive_entropy", "off_policy_mask_threshold"],
        "grpo has loss_type, epsilon, delta and importance_sampling_level",
    ),
    refused(&["max_tool_calling_iterations"], "completions call no tools while they are generated"),
    refused(
        &["num_completions_to_print", "log_multimodal"],
        "completions are not printed; metrics.jsonl in output_dir has the rewards of every step",
    ),
];

const ALL: [&[Foreign]; 7] = [MODEL, ADAPTER, DATA, STEPS, OUTPUT, DEVICES, OBJECTIVES];

impl Foreign {
    /// Returns true if one of the names is the key, or is a beginning of it.
    fn covers(&self, key: &str, by_beginning: bool) -> bool {
        self.names.iter().any(|name| match name.strip_suffix('*') {
            Some(begin) => by_beginning && key.starts_with(begin),
            None => !by_beginning && *name == key,
        })
    }
}

/// Finds the entry of a key: by its name, else by its beginning.
fn find(key: &str) -> Option<&'static Foreign> {
    let all = || ALL.into_iter().flatten();
    let by = |by_beginning| all().find(move |foreign| foreign.covers(key, by_beginning));
    by(false).or_else(|| by(true))
}

/// Returns true if a key asks for what this trainer does anyway, so that it can be left as it is.
pub fn is_obeyed(key: &str, value: &Value) -> bool {
    find(key).is_some_and(|foreign| foreign.obeyed.contains(&value.to_string().as_str()))
}

/// The replacement for a key of another trainer, or why none is needed. `None` if the key is not known.
pub fn instead(key: &str) -> Option<&'static str> {
    find(key).map(|foreign| foreign.instead)
}

#[cfg(test)]
mod tests {
    use super::super::KEYS;
    use super::*;

    /// Every field of the configurations that the table is made from.
    const FIELDS: &str = include_str!("foreign.txt");

    #[test]
    fn every_field_of_other_trainers_is_explained() {
        let is_own = |key: &str| KEYS.iter().any(|(name, _)| *name == key);
        let open: Vec<&str> =
            FIELDS.split_whitespace().filter(|key| !is_own(key) && instead(key).is_none()).collect();
        assert_eq!(open, [] as [&str; 0]);
        assert!(FIELDS.split_whitespace().count() > 250);
    }

    #[test]
    fn no_own_key_is_explained_as_foreign() {
        let exact = |key: &str| ALL.into_iter().flatten().any(|foreign| foreign.covers(key, false));
        let both: Vec<&str> = KEYS.iter().map(|(name, _)| *name).filter(|key| exact(key)).collect();
        assert_eq!(both, [] as [&str; 0]);
    }

    #[test]
    fn every_explanation_names_real_keys() {
        let uses = ALL.into_iter().flatten().filter_map(|foreign| foreign.instead.strip_prefix("use "));
        for key in uses {
            assert!(KEYS.iter().any(|(name, _)| *name == key), "{key}");
        }
    }

    #[test]
    fn names_are_listed_once() {
        let mut names: Vec<&str> =
            ALL.into_iter().flatten().flat_map(|foreign| foreign.names).copied().collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
    }

    #[test]
    fn only_values_that_change_nothing_are_obeyed() {
        assert!(is_obeyed("report_to", &"none".into()) && is_obeyed("top_p", &1.0.into()));
        assert!(!is_obeyed("report_to", &"wandb".into()) && !is_obeyed("use_dora", &true.into()));
        assert!(!is_obeyed("seed", &1.into()) && !is_obeyed("bf16", &false.into()));
    }
}
