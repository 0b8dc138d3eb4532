//! What a run is asked for: settings that contradict an adapter or a checkpoint, paths that lead nowhere, a config in
//! YAML.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::example_run::{Example, files};
use tests::program::{self, Ran};

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

/// `train` with a config of its own, in a working directory.
fn train(folder: &Path, arguments: &[&str]) -> Ran {
    program::run(Path::new(TRAINER), folder, &[&["train"], arguments].concat())
}

#[track_caller]
fn refused(ran: &Ran, want: &str) {
    assert!(
        ran.code == 2 && ran.stderr.contains(want),
        "expected {want:?}, found {}: {}",
        ran.code,
        ran.stderr
    );
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

/// A run of one step, for its adapter: rank 16, alpha 32, beside every projection.
fn adapter(example: &Example) -> PathBuf {
    let output = example.path("first");
    assert_eq!(example.run(&output, &["max_steps=1"]).code, 0);
    output.join("adapter")
}

#[test]
fn what_is_stated_of_an_adapter_has_to_be_what_it_is() {
    let example = Example::new(TRAINER);
    let adapter = adapter(&example);
    let from = format!("adapter_name_or_path={}", adapter.display());
    let output = example.path("out");
    for (setting, want) in [
        ("lora_r=8", "lora_r: expected 16, found 8"),
        ("lora_alpha=16", "lora_alpha: expected 32.0, found 16.0"),
        ("use_rslora=true", "use_rslora: expected false, found true"),
        (
            "lora_target_modules=[\"q_proj\"]",
            "lora_target_modules: expected \"all-linear\", found [\"q_proj\"]",
        ),
        ("lora_modules_to_save=[\"lm_head\"]", "lora_modules_to_save: expected [], found [\"lm_head\"]"),
        ("trainable_token_indices=[1]", "trainable_token_indices: expected [], found { embed_tokens = [1] }"),
    ] {
        let key = setting.split('=').next().expect("a key");
        let want = format!(
            "adapter_config.json: {want}; leave out {key} to go on with this adapter, or adapter_name_or_path to \
             begin a new one\n"
        );
        refused(&example.run(&output, &[&from, setting, "max_steps=1"]), &want);
        refused(&example.plan(&[&from, setting]), &want);
    }
    let both = example.run(&output, &[&from, "lora_r=8", "lora_alpha=4"]);
    refused(
        &both,
        "lora_r: expected 16, found 8; lora_alpha: expected 32.0, found 4.0; leave out lora_r, lora_alpha ",
    );
    assert!(!output.exists(), "nothing is written");
    // the same projections by their names, the same scale by its root
    let same = ["use_rslora=true", "lora_alpha=8", "max_steps=1", &from];
    let all = "lora_target_modules=[\"q_proj\",\"k_proj\",\"v_proj\",\"o_proj\",\"up_proj\",\"gate_proj\",\
               \"down_proj\"]";
    let ran = example.run(&output, &[&same[..], &[all]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn what_is_not_stated_is_the_adapters() {
    let example = Example::new(TRAINER);
    let adapter = adapter(&example);
    let path = adapter.join("adapter_config.json");
    let mut settings: Value = serde_json::from_slice(&fs::read(&path).expect("a file")).expect("JSON");
    settings["lora_alpha"] = 7.into();
    fs::write(&path, settings.to_string()).expect("it can be written");
    let config = "model_name_or_path = \"model\"\ndataset_name = \"data.jsonl\"\noutput_dir = \"out\"\n\
                  adapter_name_or_path = \"first/adapter\"\nmax_steps = 1\n";
    fs::write(example.path("small.toml"), config).expect("it can be written");
    let trained = |ran: Ran| ran.stdout.lines().find(|line| line.contains("trained ")).map(str::to_owned);
    let plan = trained(train(&example.path(""), &["small.toml", "--plan"]));
    assert!(plan.is_some() && plan == trained(example.plan(&[])), "a plan counts the adapter that is there");
    let ran = train(&example.path(""), &["small.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let written = fs::read(example.path("out/adapter/adapter_config.json")).expect("a file");
    let written: Value = serde_json::from_slice(&written).expect("JSON");
    for key in ["r", "lora_alpha", "target_modules", "use_rslora", "lora_dropout"] {
        assert_eq!(written[key], settings[key], "{key}");
    }
}

/// A run of three steps, with a checkpoint of each.
fn begun(example: &Example) -> PathBuf {
    let output = example.path("out");
    assert_eq!(example.run(&output, &["max_steps=3", "save_steps=1"]).code, 0);
    output
}

const RESUMED: [&str; 2] = ["max_steps=4", "resume_from_checkpoint=true"];

#[test]
fn a_run_does_not_go_on_with_something_else() {
    let example = Example::new(TRAINER);
    let output = begun(&example);
    let before = files(&output);
    example.write_rows("fewer.jsonl", 0..99);
    let data = fs::read_to_string(example.path("data.jsonl")).expect("data");
    let turned: Vec<&str> = data.lines().rev().collect();
    fs::write(example.path("turned.jsonl"), turned.join("\n")).expect("it can be written");
    for (setting, want) in [
        (
            "dataset_name=fewer.jsonl",
            "dataset_name: expected the 100 rows that it was trained on, found 99 that differ",
        ),
        (
            "dataset_name=turned.jsonl",
            "dataset_name: expected the 100 rows that it was trained on, found 100 that differ",
        ),
        ("max_length=50", "max_length: expected 128, as it was trained, found 50"),
        ("packing=true", "packing: expected false, as it was trained, found true"),
        ("assistant_only_loss=false", "assistant_only_loss: expected true, as it was trained, found false"),
        (
            "per_device_train_batch_size=4",
            "per_device_train_batch_size: expected 8, as it was trained, found 4",
        ),
        ("gradient_accumulation_steps=2", "gradient_accumulation_steps: expected 1"),
        (
            "train_sampling_strategy=sequential",
            "train_sampling_strategy: expected \"random\", as it was trained, found \"seq",
        ),
        ("seed=7", "seed: expected 42"),
        ("lora_dropout=0.25", "lora_dropout: expected 0.05, as it was trained, found 0.25"),
        ("load_in_4bit=true", "load_in_4bit: expected false"),
        ("weight_decay=0.5", "weight_decay: expected 0.0, as it was trained, found 0.5"),
        ("adam_beta1=0.8", "adam_beta1: expected 0.9"),
        ("adam_beta2=0.8", "adam_beta2: expected 0.999"),
        ("adam_epsilon=1e-6", "adam_epsilon: expected 0.00000001"),
        ("max_grad_norm=2", "max_grad_norm: expected 1.0"),
    ] {
        let ran = example.run(&output, &[&RESUMED[..], &[setting]].concat());
        refused(&ran, want);
        refused(&ran, "checkpoint-3: ");
        refused(&ran, "begin a run in another output_dir with adapter_name_or_path = ");
    }
    let model = fs::read(example.path("model/chat_template.jinja")).expect("a template");
    fs::write(example.path("model/chat_template.jinja"), [&model[..], b"."].concat())
        .expect("it can be written");
    let ran = example.run(&output, &RESUMED);
    refused(&ran, "tokenizer_name_or_path: its chat_template.jinja is another one");
    fs::write(example.path("model/chat_template.jinja"), model).expect("it can be written");
    let weights = example.path("model/model.safetensors");
    let bytes = fs::read(&weights).expect("weights");
    let begin = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("eight")) as usize;
    let mut other = bytes.clone();
    other[begin] ^= 1;
    fs::write(&weights, other).expect("it can be written");
    refused(
        &example.run(&output, &RESUMED),
        "model_name_or_path: expected the model beside which it was trained",
    );
    fs::write(&weights, bytes).expect("it can be written");
    assert_eq!(files(&output), before, "a refused run changes nothing");
    let from = format!("adapter_name_or_path={}", output.join("checkpoint-3").display());
    let ran = example.run(&example.path("new"), &[&from, "seed=7", "max_steps=1"]);
    assert_eq!(ran.code, 0, "the way that the error names: {}", ran.stderr);
}

#[test]
fn what_does_not_change_the_rows_may_change() {
    let example = Example::new(TRAINER);
    let output = begun(&example);
    fs::rename(example.path("data.jsonl"), example.path("moved.jsonl")).expect("it can be moved");
    let settings = [
        "dataset_name=moved.jsonl",
        "max_length=127",            // every row is shorter
        "use_bnb_nested_quant=true", // nothing is quantised
        "save_steps=2",
        "logging_steps=1",
        "loss_chunk_bytes=40000",
        "eval_strategy=steps",
        "eval_dataset_name=eval.jsonl",
        "learning_rate=1e-4",
    ];
    let ran = example.run(&output, &[&RESUMED[..], &settings].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    let said = "checkpoint-3: learning_rate was 0.01 and is 0.0001 from here on\n";
    assert!(ran.stdout.contains(said) && !ran.stdout.contains(" was 1 and is"), "{}", ran.stdout);
    let state = output.join("checkpoint-4/trainer_state.json");
    let mut state: Value = serde_json::from_slice(&fs::read(state).expect("a file")).expect("JSON");
    assert_eq!(state["trained_on"]["settings"]["learning_rate"], "0.0001");
    // as an earlier version wrote it
    state.as_object_mut().expect("an object").shift_remove("trained_on");
    fs::write(output.join("checkpoint-4/trainer_state.json"), state.to_string()).expect("it can be written");
    let settings = ["dataset_name=moved.jsonl", "max_steps=5", "resume_from_checkpoint=true", "seed=7"];
    let ran = example.run(&output, &settings);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let said = "checkpoint-4: the checkpoint does not say what it was trained on";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
}

#[test]
fn a_config_in_yaml_is_told_what_it_would_be() {
    let example = Example::new(TRAINER);
    let yaml = "# a run\n\nmodel_name_or_path: Qwen/Qwen2.5-0.5B  # small\nlearning_rate: 2e-4\n";
    let want = "expected a config in TOML, found YAML; in TOML line 3 would be: \
                model_name_or_path = \"Qwen/Qwen2.5-0.5B\"";
    for name in ["run.yaml", "run.toml"] {
        fs::write(example.path(name), yaml).expect("it can be written");
        refused(&train(&example.path(""), &[name]), want);
    }
    fs::write(example.path("run.yml"), "- a\n").expect("it can be written");
    refused(&train(&example.path(""), &["run.yml"]), "run.yml: expected a config in TOML, found YAML\n");
    fs::write(example.path("run.toml"), "seed = 1\nlearning_rate: 2e-4\n").expect("it can be written");
    refused(&train(&example.path(""), &["run.toml"]), "line 2");
}

/// A path of a config is looked for in its folder, then in the working directory.
#[test]
fn a_path_names_the_places_where_it_was_looked_for() {
    let example = Example::new(TRAINER);
    let other = tempfile::tempdir().expect("a folder");
    let config = example.path("config.toml");
    let run = |folder: &Path, settings: &[&str]| {
        let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        train(folder, &[&[text(&config), "--set", "max_steps=1"], &settings[..]].concat())
    };
    fs::rename(example.path("data.jsonl"), other.path().join("data.jsonl")).expect("it can be moved");
    let folders = [&example.path(""), other.path()].map(|folder| folder.canonicalize().expect("a folder"));
    let [own, working] = folders.each_ref().map(|folder| folder.display());
    let ran = run(other.path(), &[]);
    let said = format!(
        "dataset_name: data.jsonl is taken from the working directory, {working}; the config's folder, {own}, has \
         none\n"
    );
    assert!(ran.code == 0 && ran.stderr.contains(&said), "expected {said:?}, found {}", ran.stderr);
    let nowhere = tempfile::tempdir().expect("a folder");
    let third = nowhere.path().canonicalize().expect("a folder");
    let looked = format!(
        "it was looked for in the config's folder, {own}, and in the working directory, {}",
        third.display()
    );
    refused(&run(nowhere.path(), &["output_dir=new"]), "dataset_name: data.jsonl: ");
    refused(&run(nowhere.path(), &["output_dir=new"]), &looked);
    let ran = run(&example.path(""), &["output_dir=new"]);
    refused(&ran, &format!("it was looked for in the config's folder, {own}\n"));
    // what the command line sets is not the config's
    let ran = run(nowhere.path(), &["output_dir=new", "dataset_name=data.jsonl"]);
    assert!(ran.code == 2 && !ran.stderr.contains("looked for"), "{}", ran.stderr);
    fs::rename(example.path("model"), example.path("elsewhere")).expect("it can be moved");
    refused(&run(nowhere.path(), &["output_dir=new"]), "model_name_or_path: `model` is neither a folder");
    refused(&run(nowhere.path(), &["output_dir=new"]), &looked);
}

/// 0 / 0: B is 0 at first, and so is the gradient of A.
#[test]
fn an_epsilon_of_0_is_named() {
    let example = Example::new(TRAINER);
    for epsilon in ["0", "0.0", "1e-60"] {
        let ran = example.run(&example.path("out"), &[&format!("adam_epsilon={epsilon}")]);
        refused(&ran, "adam_epsilon: expected a number above 0 in float32, found ");
    }
    let first = example.path("fresh");
    assert_eq!(example.run(&first, &["max_steps=1", "learning_rate=0"]).code, 0);
    let from = format!("adapter_name_or_path={}", first.join("adapter").display());
    let ran = example.run(&example.path("out"), &["adam_epsilon=0", "max_steps=4", &from]);
    refused(&ran, "adam_epsilon is 0, so an update divides 0 by 0");
    let trained = example.path("trained");
    assert_eq!(example.run(&trained, &["max_steps=2"]).code, 0);
    let from = format!("adapter_name_or_path={}", trained.join("adapter").display());
    let ran = example.run(&example.path("works"), &["adam_epsilon=0", "max_steps=2", &from]);
    assert_eq!(ran.code, 0, "no gradient is 0: {}", ran.stderr);
}
