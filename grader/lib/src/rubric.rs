//! The published marking scheme as data, and the pure function that applies it.
//!
//! Every line is one [`Line`]: the published wording, one sentence on how it is measured here, and an
//! ordered list of branches of which the first that holds decides. An effect adds points or resets all
//! that came before it in the challenge. Conditions are over named facts; a fact is met, unmet or
//! unmeasured, and the logic is Kleene's: what does not depend on an unmeasured fact is decided without
//! it. A line whose decision does depend on one has **no effect** - no bonus, no penalty, no reset.
//!
//! Source: the scheme published with the five puzzles in February 2025. The tests of
//! `transcription` (`tests/tests/workbook/`) hold this table equal to a line-by-line transcription of the published
//! text on every input.

use std::collections::BTreeMap;
use std::fmt;

use crate::scorecard::{Basis, Row, Truth};

/// A challenge's part of the marking scheme.
#[derive(Debug)]
pub struct Rubric {
    /// `nf4`, `fsdp`, `graph`, `issues` or `loss`.
    pub name: &'static str,
    /// The published letter.
    pub letter: &'static str,
    /// What the challenge asks, in a few words.
    pub title: &'static str,
    /// The most that can be reached.
    pub possible: i32,
    /// The effect of handing in nothing.
    pub not_attempted: i32,
    /// The published lines, in order.
    pub lines: &'static [Line],
}

/// One published line.
#[derive(Debug)]
pub struct Line {
    /// The published wording.
    pub wording: &'static str,
    /// How it is measured on the CPU.
    pub cpu: &'static str,
    /// How it is measured on CUDA (empty: the same way).
    pub cuda: &'static str,
    /// What it is measured on as it was published.
    pub asks: Asks,
    /// When the wording is true.
    pub fact: When,
    /// The first branch that holds decides; none: no effect.
    pub branches: &'static [(When, Effect)],
}

/// What a published line is measured on; where that is not there, something stands in for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// A GPU, for which a CPU stands in.
    Gpu,
    /// Any processor: the line asks for a program that runs on one.
    Processor,
}

impl Line {
    /// What its measurement on a device is.
    fn basis(&self, facts: &Facts, device: &str) -> Basis {
        let mut names = Vec::new();
        self.fact.names(&mut names);
        let own = || names.iter().filter_map(|name| facts.get(name)?.basis);
        let stand_in = own().find(|basis| *basis == Basis::StandIn);
        stand_in.or(own().next()).unwrap_or_else(|| self.asks.basis(device))
    }
}

impl Asks {
    /// What a measurement on a device of a report is: `cpu`, `cuda:0`.
    pub fn basis(self, device: &str) -> Basis {
        match self {
            Self::Gpu if !device.starts_with("cuda") => Basis::StandIn,
            Self::Gpu | Self::Processor => Basis::AsPublished,
        }
    }
}

/// A condition over named facts.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// Always true; the last branch of an if-else.
    Otherwise,
    /// The fact is met.
    Is(&'static str),
    /// The fact is unmet.
    Not(&'static str),
    /// All of these hold.
    All(&'static [When]),
}

/// What a decided branch does to the score so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Adds (or takes) points.
    Add(i32),
    /// Sets the score so far to zero.
    Reset,
}

/// A measured fact with the sentence that proves it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Whether it holds.
    pub truth: Truth,
    /// One sentence with its number, or the reason why it could not be measured.
    pub evidence: String,
    /// Whether it was measured on what the line asks for, where that is not what the device says: a checkpoint of the
    /// published size on a CPU, a small model on a card.
    pub basis: Option<Basis>,
}

/// Facts by the name that the published text gives them.
pub type Facts = BTreeMap<&'static str, Fact>;

/// A challenge's score.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The sum of the effects.
    pub points: i32,
    /// Best sum over every value that the unmeasured facts could take, minus `points`.
    pub unmeasured: i32,
    /// The lines in order.
    pub rows: Vec<Row>,
}

use Effect::{Add, Reset};
use When::{All, Is, Not, Otherwise};

/// The five challenges in the order of the published text.
pub static RUBRICS: [Rubric; 5] = [
    Rubric {
        name: "nf4",
        letter: "A",
        title: "dequantise NF4 in one fused kernel",
        possible: 14,
        not_attempted: 0,
        lines: &[
            Line {
                wording: "single_triton_kernel",
                cpu: "one pass: the attempt's peak of live bytes stays below 64 KiB a thread and holds no full-size intermediate, counted by the allocator",
                cuda: "exactly one kernel launch per weight, counted by the device layer; no allocation besides the output",
                asks: Asks::Gpu,
                fact: Is("single_triton_kernel"),
                branches: &[(Is("single_triton_kernel"), Add(3))],
            },
            Line {
                wording: "speedup <= 1.00",
                cpu: "total time of the in-repo three-pass baseline over the attempt's, interleaved, judged by its 95 % interval",
                cuda: "the same, kernel time by events over rotating inputs",
                asks: Asks::Gpu,
                fact: Is("speedup <= 1.00"),
                branches: &[(Is("speedup <= 1.00"), Add(-3))],
            },
            Line {
                wording: "speedup >= 1.05",
                cpu: "the same ratio; the interval's lower end clears the threshold",
                cuda: "",
                asks: Asks::Gpu,
                fact: Is("speedup >= 1.05"),
                branches: &[(Is("speedup >= 1.05"), Add(1))],
            },
            Line {
                wording: "speedup >= 1.10",
                cpu: "the same ratio; adds to the line above",
                cuda: "",
                asks: Asks::Gpu,
                fact: Is("speedup >= 1.10"),
                branches: &[(Is("speedup >= 1.10"), Add(2))],
            },
            Line {
                wording: "speedup >= 1.15",
                cpu: "the same ratio; adds to the two lines above",
                cuda: "",
                asks: Asks::Gpu,
                fact: Is("speedup >= 1.15"),
                branches: &[(Is("speedup >= 1.15"), Add(2))],
            },
            Line {
                wording: "kernel_works_in_torch_compile",
                cpu: "runs as an op inside the compiled graph of challenge C, bit-equal, without a break",
                cuda: "the same, and replayed from a captured CUDA graph",
                asks: Asks::Gpu,
                fact: Is("kernel_works_in_torch_compile"),
                branches: &[(Is("kernel_works_in_torch_compile"), Add(1)), (Otherwise, Add(-1))],
            },
            Line {
                wording: "custom_asm_works",
                cpu: "vector instructions are what runs, seen by single-stepping the attempt, and every vector path is bit-equal to the portable one",
                cuda: "inline PTX on the executed path, found in the compiled PTX, bit-equal with and without",
                asks: Asks::Gpu,
                fact: Is("custom_asm_works"),
                branches: &[(Is("custom_asm_works"), Add(3))],
            },
            Line {
                wording: "uses_cache_eviction",
                cpu: "streaming (non-temporal) stores write the output, seen by single-stepping the attempt",
                cuda: "an eviction or streaming hint on the loads or stores of the executed PTX",
                asks: Asks::Gpu,
                fact: Is("uses_cache_eviction"),
                branches: &[(Is("uses_cache_eviction"), Add(1))],
            },
            Line {
                wording: "tested_in_f16_and_bf16",
                cpu: "both types pass every correctness case, bit for bit",
                cuda: "",
                asks: Asks::Gpu,
                fact: Is("tested_in_f16_and_bf16"),
                branches: &[(Is("tested_in_f16_and_bf16"), Add(1)), (Otherwise, Add(-1))],
            },
        ],
    },
    Rubric {
        name: "fsdp",
        letter: "B",
        title: "QLoRA under fully sharded data parallelism",
        possible: 10,
        not_attempted: -2,
        lines: &[
            Line {
                wording: "FSDP2_works_with_QLoRA and torch_compile_works",
                cpu: "per-parameter sharding over two or more ranks, each holding at most 1/n of every frozen weight's bytes; 60 steps' losses equal one rank's; each layer's step is a compiled graph without a break",
                cuda: "",
                asks: Asks::Gpu,
                fact: All(&[Is("FSDP2_works_with_QLoRA"), Is("torch_compile_works")]),
                branches: &[(All(&[Is("FSDP2_works_with_QLoRA"), Is("torch_compile_works")]), Add(5))],
            },
            Line {
                wording: "FSDP2_works_with_QLoRA, not compiled",
                cpu: "the same without the compiled graph",
                cuda: "",
                asks: Asks::Gpu,
                fact: All(&[Is("FSDP2_works_with_QLoRA"), Not("torch_compile_works")]),
                branches: &[(All(&[Is("FSDP2_works_with_QLoRA"), Not("torch_compile_works")]), Add(3))],
            },
            Line {
                wording: "then: uses_part_A_and_single_kernel_and_faster",
                cpu: "A's attempt is the dequantiser called (counted), one launch a weight, and the step is faster than with the baseline",
                cuda: "",
                asks: Asks::Gpu,
                fact: All(&[Is("FSDP2_works_with_QLoRA"), Is("uses_part_A_and_single_kernel_and_faster")]),
                branches: &[(
                    All(&[Is("FSDP2_works_with_QLoRA"), Is("uses_part_A_and_single_kernel_and_faster")]),
                    Add(3),
                )],
            },
            Line {
                wording: "then, else: uses_torchAO, slower than BnB",
                cpu: "never met: there is no second 4-bit library here",
                cuda: "",
                asks: Asks::Gpu,
                fact: All(&[
                    Is("FSDP2_works_with_QLoRA"),
                    Not("uses_part_A_and_single_kernel_and_faster"),
                    Is("uses_torchAO"),
                    Is("torchAO_slower_than_BnB"),
                ]),
                branches: &[(
                    All(&[
                        Is("FSDP2_works_with_QLoRA"),
                        Not("uses_part_A_and_single_kernel_and_faster"),
                        Is("uses_torchAO"),
                        Is("torchAO_slower_than_BnB"),
                    ]),
                    Add(-3),
                )],
            },
            Line {
                wording: "else: TP_or_PP_with_QLoRA with zero_bubble",
                cpu: "a tensor or pipeline parallel run equals one rank's; the bubble is measured against the schedule's bound",
                cuda: "",
                asks: Asks::Gpu,
                fact: All(&[Not("FSDP2_works_with_QLoRA"), Is("TP_or_PP_with_QLoRA"), Is("zero_bubble")]),
                branches: &[(
                    All(&[Not("FSDP2_works_with_QLoRA"), Is("TP_or_PP_with_QLoRA"), Is("zero_bubble")]),
                    Add(3),
                )],
            },
            Line {
                wording: "else: TP_or_PP_with_QLoRA",
                cpu: "the same without the bubble",
                cuda: "",
                asks: Asks::Gpu,
                fact: All(&[Not("FSDP2_works_with_QLoRA"), Is("TP_or_PP_with_QLoRA"), Not("zero_bubble")]),
                branches: &[(
                    All(&[Not("FSDP2_works_with_QLoRA"), Is("TP_or_PP_with_QLoRA"), Not("zero_bubble")]),
                    Add(2),
                )],
            },
            Line {
                wording: "else: FSDP1_works_with_QLoRA",
                cpu: "flat sharding equals one rank",
                cuda: "",
                asks: Asks::Gpu,
                fact: All(&[
                    Not("FSDP2_works_with_QLoRA"),
                    Not("TP_or_PP_with_QLoRA"),
                    Is("FSDP1_works_with_QLoRA"),
                ]),
                branches: &[(
                    All(&[
                        Not("FSDP2_works_with_QLoRA"),
                        Not("TP_or_PP_with_QLoRA"),
                        Is("FSDP1_works_with_QLoRA"),
                    ]),
                    Add(1),
                )],
            },
            Line {
                wording: "kaggle_notebook_2_tesla_t4_example",
                cpu: "a two-worker demonstration that one command reproduces, with its report bundle",
                cuda: "the same on two GPUs",
                asks: Asks::Gpu,
                fact: Is("kaggle_notebook_2_tesla_t4_example"),
                branches: &[(Is("kaggle_notebook_2_tesla_t4_example"), Add(2)), (Otherwise, Reset)],
            },
        ],
    },
    Rubric {
        name: "graph",
        letter: "C",
        title: "a graph executor that compiles QLoRA without a break",
        possible: 9,
        not_attempted: -1,
        lines: &[
            Line {
                wording: "uses_flex_attention, dynamic_sequence_length_works",
                cpu: "attention is one op with user-given score and mask programs; 100 random lengths, right answers, compilations at most the number of buckets",
                cuda: "",
                asks: Asks::Gpu,
                fact: All(&[Is("uses_flex_attention"), Is("dynamic_sequence_length_works")]),
                branches: &[(All(&[Is("uses_flex_attention"), Is("dynamic_sequence_length_works")]), Add(3))],
            },
            Line {
                wording: "uses_flex_attention, not dynamic",
                cpu: "the same at one length only",
                cuda: "",
                asks: Asks::Gpu,
                fact: All(&[Is("uses_flex_attention"), Not("dynamic_sequence_length_works")]),
                branches: &[(
                    All(&[Is("uses_flex_attention"), Not("dynamic_sequence_length_works")]),
                    Add(1),
                )],
            },
            Line {
                wording: "no_torch_compile_BnB",
                cpu: "the dequantiser is outside the graph",
                cuda: "",
                asks: Asks::Gpu,
                fact: Is("no_torch_compile_BnB"),
                branches: &[(Is("no_torch_compile_BnB"), Add(-2))],
            },
            Line {
                wording: "else use_part_A",
                cpu: "A's attempt is the graph's dequantise op",
                cuda: "",
                asks: Asks::Gpu,
                fact: All(&[Not("no_torch_compile_BnB"), Is("use_part_A")]),
                branches: &[(All(&[Not("no_torch_compile_BnB"), Is("use_part_A")]), Add(1))],
            },
            Line {
                wording: "else torch_compile_BnB",
                cpu: "another dequantise op is inside the graph",
                cuda: "",
                asks: Asks::Gpu,
                fact: All(&[Not("no_torch_compile_BnB"), Not("use_part_A"), Is("torch_compile_BnB")]),
                branches: &[(
                    All(&[Not("no_torch_compile_BnB"), Not("use_part_A"), Is("torch_compile_BnB")]),
                    Add(1),
                )],
            },
            Line {
                wording: "attention_compiled",
                cpu: "attention runs from compiled code: no fallback; more than 30 compilations over 100 lengths are excessive",
                cuda: "",
                asks: Asks::Gpu,
                fact: Is("attention_compiled"),
                branches: &[
                    (All(&[Is("attention_compiled"), Is("excessive_recompilation")]), Add(-3)),
                    (Is("attention_compiled"), Add(2)),
                ],
            },
            Line {
                wording: "mlp_compiled",
                cpu: "the MLP runs from compiled code; excessive recompilation takes 3 off this point",
                cuda: "",
                asks: Asks::Gpu,
                fact: Is("mlp_compiled"),
                branches: &[
                    (All(&[Is("mlp_compiled"), Is("excessive_recompilation")]), Add(-2)),
                    (Is("mlp_compiled"), Add(1)),
                ],
            },
            Line {
                wording: "not loss_compiled",
                cpu: "the loss runs outside the compiled graph",
                cuda: "",
                asks: Asks::Gpu,
                fact: Not("loss_compiled"),
                branches: &[(Not("loss_compiled"), Add(-1))],
            },
            Line {
                wording: "not layernorms_compiled",
                cpu: "a norm runs outside the compiled graph",
                cuda: "",
                asks: Asks::Gpu,
                fact: Not("layernorms_compiled"),
                branches: &[(Not("layernorms_compiled"), Add(-3))],
            },
            Line {
                wording: "max_autotune_triton_matmul",
                cpu: "candidates of each matmul were timed and the winner kept, counted",
                cuda: "",
                asks: Asks::Gpu,
                fact: Is("max_autotune_triton_matmul"),
                branches: &[
                    (All(&[Is("max_autotune_triton_matmul"), Is("excessive_recompilation")]), Add(-2)),
                    (Is("max_autotune_triton_matmul"), Add(2)),
                ],
            },
        ],
    },
    Rubric {
        name: "issues",
        letter: "D",
        title: "tool-calling templates and the other open issues",
        possible: 12,
        not_attempted: 0,
        lines: &[
            Line {
                wording: "Tool calling",
                cpu: "chat templates with tools render byte-equal to the reference renderer; calls parse back, streamed or whole",
                cuda: "",
                asks: Asks::Processor,
                fact: Is("Tool calling"),
                branches: &[(Is("Tool calling"), Add(1))],
            },
            Line {
                wording: "GGUF vision support",
                cpu: "a vision-language checkpoint exports to a text and a projector GGUF which the format's own reader accepts, tensors equal",
                cuda: "",
                asks: Asks::Processor,
                fact: Is("GGUF vision support"),
                branches: &[(Is("GGUF vision support"), Add(1))],
            },
            Line {
                wording: "Refactor attention",
                cpu: "one interface over the attention back ends, each equal to the oracle on the whole feature matrix",
                cuda: "",
                asks: Asks::Processor,
                fact: Is("Refactor attention"),
                branches: &[(Is("Refactor attention"), Add(2))],
            },
            Line {
                wording: "Windows support",
                cpu: "the graded program runs on Windows",
                cuda: "",
                asks: Asks::Processor,
                fact: Is("Windows support"),
                branches: &[(Is("Windows support"), Add(2))],
            },
            Line {
                wording: "Sequence classification",
                cpu: "a classification head trains with LoRA; loss and gradient equal the oracle",
                cuda: "",
                asks: Asks::Processor,
                fact: Is("Sequence classification"),
                branches: &[(Is("Sequence classification"), Add(1))],
            },
            Line {
                wording: "VLM data collator",
                cpu: "batches that mix text-only and text+image samples; masks and positions equal the oracle, no wasted image slots",
                cuda: "",
                asks: Asks::Processor,
                fact: Is("VLM data collator"),
                branches: &[(Is("VLM data collator"), Add(1))],
            },
            Line {
                wording: "VLM image resizing",
                cpu: "maximum size given or read from the model's config; aspect kept; sizes are patch multiples",
                cuda: "",
                asks: Asks::Processor,
                fact: Is("VLM image resizing"),
                branches: &[(Is("VLM image resizing"), Add(1))],
            },
            Line {
                wording: "Flex attention",
                cpu: "causal, sliding-window and packed-document masks, dynamic length without excessive recompilation",
                cuda: "",
                asks: Asks::Processor,
                fact: Is("Flex attention"),
                branches: &[(Is("Flex attention"), Add(2))],
            },
            Line {
                wording: "VLM train on completions only",
                cpu: "labels cover the assistant's tokens only, images included",
                cuda: "",
                asks: Asks::Processor,
                fact: Is("VLM train on completions only"),
                branches: &[(Is("VLM train on completions only"), Add(1))],
            },
        ],
    },
    Rubric {
        name: "loss",
        letter: "E",
        title: "chunked backprop that never holds the logits",
        possible: 10,
        not_attempted: 0,
        lines: &[
            Line {
                wording: "VRAM_50_percent_reduction",
                cpu: "peak bytes above the inputs and the returned gradients, counted, against the unchunked run of the same problem",
                cuda: "the same, counted by the device's pool and confirmed by the driver's free memory, and at the published size",
                asks: Asks::Gpu,
                fact: Is("VRAM_50_percent_reduction"),
                branches: &[(Is("VRAM_50_percent_reduction"), Add(2))],
            },
            Line {
                wording: "remove_float32_upcast",
                cpu: "whether the logits are upcast to f32 inside the chunk, on inputs where it shows",
                cuda: "",
                asks: Asks::Gpu,
                fact: Is("remove_float32_upcast"),
                branches: &[(Is("remove_float32_upcast"), Reset)],
            },
            Line {
                wording: "show_ce_loss_works",
                cpu: "loss and gradients against the f64 oracle",
                cuda: "",
                asks: Asks::Gpu,
                fact: Is("show_ce_loss_works"),
                branches: &[(Is("show_ce_loss_works"), Add(1))],
            },
            Line {
                wording: "show_other_functions_work",
                cpu: "every other loss of the list",
                cuda: "",
                asks: Asks::Gpu,
                fact: Is("show_other_functions_work"),
                branches: &[(Is("show_other_functions_work"), Add(1))],
            },
            Line {
                wording: "hardcoded_gradients",
                cpu: "a loss made up at run time, given as a graph, must come back with its derivative",
                cuda: "",
                asks: Asks::Gpu,
                fact: Is("hardcoded_gradients"),
                branches: &[(Is("hardcoded_gradients"), Reset)],
            },
            Line {
                wording: "allows_dynamic_chunk_sizes",
                cpu: "results agree for chunk sizes 1, odd, tail, whole",
                cuda: "",
                asks: Asks::Gpu,
                fact: Is("allows_dynamic_chunk_sizes"),
                branches: &[(Is("allows_dynamic_chunk_sizes"), Add(1))],
            },
            Line {
                wording: "llama_1B_training_loss_matches",
                cpu: "the tiny Llama, 40 steps: chunked and whole losses agree",
                cuda: "a drawn Llama of the shape of Llama 3.2 1B, 25 steps: the same",
                asks: Asks::Gpu,
                fact: Is("llama_1B_training_loss_matches"),
                branches: &[(Is("llama_1B_training_loss_matches"), Add(1)), (Otherwise, Reset)],
            },
            Line {
                wording: "GRPO_memory_efficient_linear_works",
                cpu: "the GRPO family against the f64 oracle, with the memory cut",
                cuda: "",
                asks: Asks::Gpu,
                fact: Is("GRPO_memory_efficient_linear_works"),
                branches: &[(Is("GRPO_memory_efficient_linear_works"), Add(4))],
            },
        ],
    },
];

/// The role thresholds published with the scheme, lowest first.
pub const THRESHOLDS: [i32; 3] = [18, 32, 47];

/// The points of all five challenges together: 55.
pub fn possible() -> i32 {
    RUBRICS.iter().map(|rubric| rubric.possible).sum()
}

/// The rubric of a challenge, by name.
pub fn find(name: &str) -> Option<&'static Rubric> {
    RUBRICS.iter().find(|rubric| rubric.name == name)
}

impl Line {
    /// The most that the line can add.
    pub fn worth(&self) -> i32 {
        let adds = self.branches.iter().map(|(_, effect)| if let Add(n) = effect { *n } else { 0 });
        adds.max().unwrap_or(0).max(0)
    }

    /// Whether the two wordings can never both be true: one asks for a fact whose opposite the other asks for.
    pub fn excludes(&self, other: &Self) -> bool {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        self.fact.literals(&mut own);
        other.fact.literals(&mut others);
        own.iter().any(|(name, truth)| others.contains(&(*name, !truth)))
    }

    /// The branch that decides: `Ok(None)` where none holds, `Err(())` where an unmeasured fact decides.
    fn decide(&self, facts: &impl Fn(&str) -> Truth) -> Result<Option<Effect>, ()> {
        if self.fact.truth(facts) == Truth::Unmeasured {
            return Err(());
        }
        for (when, effect) in self.branches {
            match when.truth(facts) {
                Truth::Met => return Ok(Some(*effect)),
                Truth::Unmet => {}
                Truth::Unmeasured => return Err(()),
            }
        }
        Ok(None)
    }
}

impl When {
    /// Kleene's three-valued truth.
    fn truth(&self, facts: &impl Fn(&str) -> Truth) -> Truth {
        match self {
            Otherwise => Truth::Met,
            Is(name) => facts(name),
            Not(name) => match facts(name) {
                Truth::Met => Truth::Unmet,
                Truth::Unmet => Truth::Met,
                Truth::Unmeasured => Truth::Unmeasured,
            },
            All(parts) => parts.iter().map(|part| part.truth(facts)).fold(Truth::Met, and),
        }
    }

    /// Every fact that the condition asks for, and whether as met.
    fn literals(&self, into: &mut Vec<(&'static str, bool)>) {
        match self {
            Otherwise => {}
            Is(name) => into.push((name, true)),
            Not(name) => into.push((name, false)),
            All(parts) => parts.iter().for_each(|part| part.literals(into)),
        }
    }

    /// Every fact that the condition names.
    fn names(&self, into: &mut Vec<&'static str>) {
        match self {
            Otherwise => {}
            Is(name) | Not(name) => into.push(name),
            All(parts) => parts.iter().for_each(|part| part.names(into)),
        }
    }
}

fn and(a: Truth, b: Truth) -> Truth {
    match (a, b) {
        (Truth::Unmet, _) | (_, Truth::Unmet) => Truth::Unmet,
        (Truth::Met, Truth::Met) => Truth::Met,
        _ => Truth::Unmeasured,
    }
}

impl Rubric {
    /// The facts that a line rests on.
    pub fn facts_of(&self, wording: &str) -> Vec<&'static str> {
        let mut names = Vec::new();
        for line in self.lines.iter().filter(|line| line.wording == wording) {
            line.fact.names(&mut names);
            line.branches.iter().for_each(|(when, _)| when.names(&mut names));
        }
        names
    }

    /// Every fact that the lines speak of, in their order, once each.
    pub fn facts(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for line in self.lines {
            line.fact.names(&mut names);
            line.branches.iter().for_each(|(when, _)| when.names(&mut names));
        }
        let mut seen = Vec::new();
        names.retain(|name| {
            !seen.contains(name) && {
                seen.push(*name);
                true
            }
        });
        names
    }

    /// Applies the lines to the facts of a device; an absent fact is unmeasured.
    pub fn score(&self, facts: &Facts, device: &str) -> Score {
        let truth = |name: &str| facts.get(name).map_or(Truth::Unmeasured, |fact| fact.truth);
        let mut points = 0;
        let rows = self
            .lines
            .iter()
            .map(|line| {
                let decision = line.decide(&truth);
                let effect = apply(decision.ok().flatten(), points);
                points += effect;
                Row {
                    wording: line.wording.into(),
                    fact: if decision.is_err() { Truth::Unmeasured } else { line.fact.truth(&truth) },
                    basis: line.basis(facts, device),
                    points: effect,
                    worth: line.worth(),
                    evidence: evidence(line, facts),
                }
            })
            .collect();
        Score { points, unmeasured: self.best(facts) - points, rows }
    }

    /// The best total over every value that the unmeasured facts could take.
    fn best(&self, facts: &Facts) -> i32 {
        let open: Vec<_> = self
            .facts()
            .into_iter()
            .filter(|name| facts.get(name).is_none_or(|fact| fact.truth == Truth::Unmeasured))
            .collect();
        let total = |bits: u32| {
            self.total(|name| match open.iter().position(|open| *open == name) {
                Some(i) if bits >> i & 1 == 1 => Truth::Met,
                Some(_) => Truth::Unmet,
                None => facts[name].truth,
            })
        };
        (0..1u32 << open.len()).map(total).max().unwrap_or(0)
    }

    /// The sum of the effects under given truths.
    pub fn total(&self, truth: impl Fn(&str) -> Truth) -> i32 {
        self.lines.iter().fold(0, |sum, line| sum + apply(line.decide(&truth).ok().flatten(), sum))
    }
}

fn apply(effect: Option<Effect>, so_far: i32) -> i32 {
    match effect {
        Some(Add(n)) => n,
        Some(Reset) => -so_far,
        None => 0,
    }
}

impl fmt::Display for Rubric {
    /// The published lines with their effects, as `grader rubric` prints them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} {}: {} ({} points; not attempted: {})",
            self.letter, self.name, self.title, self.possible, self.not_attempted
        )?;
        for line in self.lines {
            writeln!(f, "  {}", line.wording)?;
            for (when, effect) in line.branches {
                writeln!(f, "    {effect:<6} {when}")?;
            }
            writeln!(f, "    on the CPU: {}", line.cpu)?;
            if !line.cuda.is_empty() {
                writeln!(f, "    on CUDA: {}", line.cuda)?;
            }
        }
        writeln!(f)
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Add(n) => format!("{n:+}"),
            Reset => "reset".into(),
        })
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Otherwise => f.write_str("otherwise"),
            Is(name) => write!(f, "if {name}"),
            Not(name) => write!(f, "if not {name}"),
            All(parts) => {
                let parts: Vec<String> =
                    parts.iter().map(|part| part.to_string().replacen("if ", "", 1)).collect();
                write!(f, "if {}", parts.join(" and "))
            }
        }
    }
}

/// The sentences of the facts that a line rests on.
fn evidence(line: &Line, facts: &Facts) -> String {
    let mut names = Vec::new();
    line.fact.names(&mut names);
    let mut sentences: Vec<&str> =
        names.iter().filter_map(|name| facts.get(name)).map(|fact| fact.evidence.as_str()).collect();
    sentences.dedup();
    sentences.join("; ")
}
