//! The rubric's rows against the published scheme, transcribed line by line, on every input.
//!
//! The functions below follow the published text's own control flow, one statement a line; the rows are data
//! that an engine interprets. Both are asked for every combination of facts.

use std::collections::BTreeMap;

use grader::rubric::{Fact, Facts, RUBRICS, Rubric, possible};
use scorecard::Truth;

type Answers<'a> = BTreeMap<&'a str, bool>;

fn nf4(is: &Answers<'_>) -> i32 {
    let mut score = 0;
    if is["single_triton_kernel"] {
        score += 3;
    }
    if is["speedup <= 1.00"] {
        score -= 3;
    }
    if is["speedup >= 1.05"] {
        score += 1;
    }
    if is["speedup >= 1.10"] {
        score += 2;
    }
    if is["speedup >= 1.15"] {
        score += 2;
    }
    if is["kernel_works_in_torch_compile"] {
        score += 1;
    } else {
        score -= 1;
    }
    if is["custom_asm_works"] {
        score += 3;
    }
    if is["uses_cache_eviction"] {
        score += 1;
    }
    if is["tested_in_f16_and_bf16"] {
        score += 1;
    } else {
        score -= 1;
    }
    score
}

fn fsdp(is: &Answers<'_>) -> i32 {
    let mut score = 0;
    if is["FSDP2_works_with_QLoRA"] {
        if is["torch_compile_works"] {
            score += 5;
        } else {
            score += 3;
        }
        if is["uses_part_A_and_single_kernel_and_faster"] {
            score += 3;
        } else if is["uses_torchAO"] && is["torchAO_slower_than_BnB"] {
            score -= 3;
        }
    } else if is["TP_or_PP_with_QLoRA"] {
        if is["zero_bubble"] {
            score += 3;
        } else {
            score += 2;
        }
    } else if is["FSDP1_works_with_QLoRA"] {
        score += 1;
    }
    if is["kaggle_notebook_2_tesla_t4_example"] {
        score += 2;
    } else {
        score = 0;
    }
    score
}

fn graph(is: &Answers<'_>) -> i32 {
    let mut score = 0;
    if is["uses_flex_attention"] {
        if is["dynamic_sequence_length_works"] {
            score += 3;
        } else {
            score += 1;
        }
    }
    if is["no_torch_compile_BnB"] {
        score -= 2;
    } else if is["use_part_A"] || is["torch_compile_BnB"] {
        score += 1;
    }
    if is["attention_compiled"] {
        if is["excessive_recompilation"] {
            score -= 3;
        } else {
            score += 2;
        }
    }
    if is["mlp_compiled"] {
        if is["excessive_recompilation"] {
            score -= 3;
        }
        score += 1;
    }
    if !is["loss_compiled"] {
        score -= 1;
    }
    if !is["layernorms_compiled"] {
        score -= 3;
    }
    if is["max_autotune_triton_matmul"] {
        if is["excessive_recompilation"] {
            score -= 2;
        } else {
            score += 2;
        }
    }
    score
}

fn issues(is: &Answers<'_>) -> i32 {
    let worth = [
        ("Tool calling", 1),
        ("GGUF vision support", 1),
        ("Refactor attention", 2),
        ("Windows support", 2),
        ("Sequence classification", 1),
        ("VLM data collator", 1),
        ("VLM image resizing", 1),
        ("Flex attention", 2),
        ("VLM train on completions only", 1),
    ];
    worth.iter().filter(|(subtask, _)| is[subtask]).map(|(_, points)| points).sum()
}

fn loss(is: &Answers<'_>) -> i32 {
    let mut score = 0;
    if is["VRAM_50_percent_reduction"] {
        score += 2;
    }
    if is["remove_float32_upcast"] {
        score = 0;
    }
    if is["show_ce_loss_works"] {
        score += 1;
    }
    if is["show_other_functions_work"] {
        score += 1;
    }
    if is["hardcoded_gradients"] {
        score = 0;
    }
    if is["allows_dynamic_chunk_sizes"] {
        score += 1;
    }
    if is["llama_1B_training_loss_matches"] {
        score += 1;
    } else {
        score = 0;
    }
    if is["GRPO_memory_efficient_linear_works"] {
        score += 4;
    }
    score
}

type Published = fn(&Answers<'_>) -> i32;

const PUBLISHED: [(&str, &str, i32, i32, Published); 5] = [
    ("nf4", "A", 14, 0, nf4),
    ("fsdp", "B", 10, -2, fsdp),
    ("graph", "C", 9, -1, graph),
    ("issues", "D", 12, 0, issues),
    ("loss", "E", 10, 0, loss),
];

/// Every assignment of true and false to the rubric's facts.
fn every_answer(rubric: &Rubric) -> impl Iterator<Item = Answers<'static>> {
    let names = rubric.facts();
    (0..1u32 << names.len())
        .map(move |bits| names.iter().enumerate().map(|(i, name)| (*name, bits >> i & 1 == 1)).collect())
}

fn facts(is: &Answers<'static>) -> Facts {
    let fact = |is: bool| Fact {
        truth: if is { Truth::Met } else { Truth::Unmet },
        evidence: String::new(),
        basis: None,
    };
    is.iter().map(|(name, is)| (*name, fact(*is))).collect()
}

#[test]
fn every_row_follows_the_published_text_on_every_input() {
    for (rubric, (.., published)) in RUBRICS.iter().zip(PUBLISHED) {
        for is in every_answer(rubric) {
            let score = rubric.score(&facts(&is), "cuda:0");
            assert_eq!(score.points, published(&is), "{} on {is:?}", rubric.name);
            assert_eq!(score.points, score.rows.iter().map(|row| row.points).sum::<i32>(), "{is:?}");
            assert_eq!(score.unmeasured, 0, "{is:?}");
        }
    }
}

#[test]
fn the_best_input_reaches_what_the_text_says() {
    for (rubric, (name, letter, best, not_attempted, published)) in RUBRICS.iter().zip(PUBLISHED) {
        assert_eq!((rubric.name, rubric.letter), (name, letter));
        assert_eq!((rubric.possible, rubric.not_attempted), (best, not_attempted), "{name}");
        assert_eq!(every_answer(rubric).map(|is| published(&is)).max(), Some(best), "{name}");
    }
    assert_eq!(possible(), 55);
}

#[test]
fn an_unmeasured_fact_neither_adds_nor_takes_nor_resets() {
    for rubric in &RUBRICS {
        for is in every_answer(rubric).step_by(7) {
            for name in rubric.facts() {
                let mut some = facts(&is);
                some.get_mut(name).expect("the rubric's own name").truth = Truth::Unmeasured;
                let score = rubric.score(&some, "cpu");
                let open = score.rows.iter().filter(|row| row.fact == Truth::Unmeasured);
                assert!(open.clone().all(|row| row.points == 0), "{name}: {:?}", score.rows);
                let best = [true, false].map(|value| {
                    let mut is = is.clone();
                    is.insert(name, value);
                    rubric.score(&facts(&is), "cpu").points
                });
                assert_eq!(score.points + score.unmeasured, best[0].max(best[1]), "{name} in {is:?}");
            }
        }
    }
}

#[test]
fn a_rubric_of_which_nothing_is_measured_is_worth_all_of_it() {
    for rubric in &RUBRICS {
        let score = rubric.score(&Facts::new(), "cpu");
        assert_eq!((score.points, score.unmeasured), (0, rubric.possible), "{}", rubric.name);
    }
}

#[test]
fn the_wordings_are_those_of_the_published_text_in_its_order() {
    let wordings = |name: &str| -> Vec<&str> {
        let rubric = grader::rubric::find(name).expect("a published name");
        rubric.lines.iter().map(|line| line.wording).collect()
    };
    assert_eq!(
        wordings("nf4"),
        [
            "single_triton_kernel",
            "speedup <= 1.00",
            "speedup >= 1.05",
            "speedup >= 1.10",
            "speedup >= 1.15",
            "kernel_works_in_torch_compile",
            "custom_asm_works",
            "uses_cache_eviction",
            "tested_in_f16_and_bf16"
        ]
    );
    assert_eq!(
        wordings("loss"),
        [
            "VRAM_50_percent_reduction",
            "remove_float32_upcast",
            "show_ce_loss_works",
            "show_other_functions_work",
            "hardcoded_gradients",
            "allows_dynamic_chunk_sizes",
            "llama_1B_training_loss_matches",
            "GRPO_memory_efficient_linear_works"
        ]
    );
    assert_eq!([wordings("fsdp").len(), wordings("graph").len(), wordings("issues").len()], [8, 10, 9]);
}
