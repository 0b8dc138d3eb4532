//! Errors of configs: every fault in one message, and no value that is not what it says.

use std::fs;

use tempfile::TempDir;

use super::Config;

/// The error of reading a config; empty if it can be read.
fn error_of(lines: &str, settings: &[(&str, &str)]) -> String {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("c.toml");
    let needed = "model_name_or_path = \"model\"\ndataset_name = \"data.jsonl\"\n";
    fs::write(&path, format!("{needed}{lines}\n")).expect("it can be written");
    let settings: Vec<(String, String)> =
        settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let read = Config::read(&path, &settings);
    read.map_or_else(|failure| failure.to_string(), |_| String::new())
}

#[track_caller]
fn expect_error(lines: &str, settings: &[(&str, &str)], want: &str) {
    let error = error_of(lines, settings);
    assert!(error.contains(want), "{lines}: expected {want:?} in {error:?}");
}

#[test]
fn all_faults_are_in_one_message() {
    let lines = "attn_implementation = \"sdpa\"\nlearning_rate = \"1e-4\"\nsave_strategy = \"epoch\"\n\
                 completion_only_loss = false\neos_token = \"</s>\"\nlearning_rat = 1\n[lora]\nr = 8";
    let settings = [("trust_remote_code", "true"), ("max_length", "0"), ("seed", "1")];
    let error = error_of(lines, &settings);
    for want in [
        "c.toml: 9 settings cannot be used:\n  unknown key \"attn_implementation\"; not needed: attention always runs ",
        "\n  learning_rate: expected a finite number of at least 0, found \"1e-4\"",
        "\n  unknown key \"save_strategy\"; save_steps is the interval; the last step always makes a checkpoint",
        "\n  unknown key \"completion_only_loss\"; rows of prompt and completion always train the completion only; ",
        "\n  unknown key \"eos_token\"; the tokenizer's own files name its special tokens",
        "\n  unknown key \"learning_rat\"; did you mean learning_rate?",
        "\n  unknown key \"lora\"; the keys of a config stand outside of tables",
        "\n  --set unknown key \"trust_remote_code\"; not needed: no code of a model's folder is run",
        "\n  --set max_length: expected a whole number above 0, or false, found 0",
    ] {
        assert!(error.contains(want), "expected {want:?} in {error}");
    }
}

#[test]
fn a_name_is_suggested_within_two_edits_only() {
    for (key, want) in [
        ("learning_rates", "did you mean learning_rate?"),
        ("sede", "did you mean seed?"),
        ("lora_alhpa", "did you mean lora_alpha?"),
        ("adam_beta3", "did you mean adam_beta1 or adam_beta2?"),
        ("data", "`trainer train --example DIR` writes every key"),
        ("x", "`trainer train --example DIR` writes every key"),
        ("completion_only_losses", "`trainer train --example DIR` writes every key"),
    ] {
        expect_error(&format!("{key} = 1"), &[], &format!("c.toml: unknown key {key:?}; {want}"));
    }
}

#[test]
fn obeyed_foreign_keys_are_accepted() {
    let lines = "report_to = \"none\"\nuse_peft = true\npacking_strategy = \"bfd\"\noptim = \"adamw_torch\"\n\
                 push_to_hub = false\nbias = \"none\"\nsave_strategy = \"steps\"\ndataset_text_field = \"text\"\n\
                 completion_only_loss = true\ntop_p = 1";
    assert_eq!(error_of(lines, &[("num_iterations", "1")]), "");
    for (line, want) in [
        ("report_to = \"wandb\"", "metrics.jsonl in output_dir has every step"),
        ("optim = \"paged_adamw_8bit\"", "the optimiser is AdamW"),
        ("bias = \"all\"", "an adapter trains no biases"),
        ("bf16 = false", "dtype = \"bfloat16\" computes in it"),
        ("top_p = 0.9", "completions are drawn from all tokens at temperature"),
    ] {
        expect_error(line, &[], want);
    }
}

#[test]
fn numbers_that_do_not_fit_are_named() {
    for (key, value, want) in [
        (
            "seed",
            "9223372036854775808",
            "expected a whole number from -9223372036854775808 to 9223372036854775807",
        ),
        ("seed", "-1", "expected a whole number of at least 0, found -1"),
        ("learning_rate", "9007199254740993", "expected a whole number of at most 9007199254740992"),
        ("learning_rate", "1e300", "expected a number of at most 3.4028235e38, the largest in float32"),
        ("learning_rate", "nan", "expected a finite number of at least 0, found nan"),
        ("num_train_epochs", "1e300", "expected a number of at most 3.4028235e38"),
        ("num_train_epochs", "1e30", "expected a number of at most 1000000"),
        ("num_train_epochs", "nan", "expected a finite number of at least 0, found nan"),
        ("num_train_epochs", "inf", "expected a finite number of at least 0, found inf"),
        ("num_train_epochs", "-1", "expected a finite number of at least 0, found -1"),
        ("num_train_epochs", "0", "expected a number above 0, or max_steps above 0, found 0"),
        ("num_train_epochs", "-0.0", "expected a number above 0, or max_steps above 0, found 0"),
        ("max_steps", "9223372036854775807", "expected a number of at most 1099511627776"),
        ("max_steps", "1e3", "expected a whole number, found 1000.0"),
        ("per_device_train_batch_size", "1000000000000", "expected a number of at most 65536"),
        ("per_device_eval_batch_size", "65537", "expected a number of at most 65536, found 65537"),
        ("gradient_accumulation_steps", "9223372036854775807", "expected a number of at most 1048576"),
        ("warmup_steps", "0.1", "expected a whole number of at least 0, found 0.1"),
    ] {
        expect_error("", &[(key, value)], &format!("{key}: {want}"));
        if value.len() < 19 {
            expect_error(&format!("{key} = {value}"), &[], &format!("{key}: {want}"));
        }
    }
    for seed in ["9223372036854775808", "99999999999999999999999", "-99999999999999999999999"] {
        let want = "; expected a whole number from -9223372036854775808 to 9223372036854775807";
        expect_error(&format!("seed = {seed}"), &[], want);
    }
    expect_error("mesh = \"fsdp=9999999999,tp=9999999999\"", &[], "mesh: expected ");
    assert_eq!(error_of("num_train_epochs = 0.5\nmax_steps = -1\nlearning_rate = 1e5", &[]), "");
    assert_eq!(error_of("num_train_epochs = 0\nmax_steps = 1", &[]), "");
}

#[test]
fn empty_texts_are_an_error() {
    for key in ["output_dir", "tokenizer_name_or_path", "adapter_name_or_path", "eval_dataset_name"] {
        for value in ["\"\"", "\"  \""] {
            let want = format!("{key}: expected a text that is not empty, found {value}");
            expect_error(&format!("{key} = {value}"), &[], &want);
            expect_error("", &[(key, value)], &want);
        }
        expect_error("", &[(key, "")], &format!("{key}: expected a text that is not empty, found \"\""));
    }
    expect_error("", &[("model_name_or_path", "")], "model_name_or_path: expected a text that is not empty");
}
