//! `train --example DIR`: a small model, data and a config with every key, ready to be trained.
//!
//! ```text
//! DIR/config.toml      every key with its value here and what it means
//! DIR/data.jsonl       sums, as conversations
//! DIR/model/           a Llama of random weights, a tokenizer of bytes, a chat template with generation marks
//! ```
//!
//! With `--task-type SEQ_CLS` the data are sentences that somebody says, and the class of each is whether they ask, exclaim
//! or state; `held-out.jsonl` has others, for the evaluations.
//!
//! The same files each time. What such a model learns is the form of an answer, in a few seconds; the point is to see
//! everything work before a larger model is put in its place.

use std::path::Path;

use reference::lora::Targets;
use serde_json::json;

use super::Config;
use super::config::{Evaluation, Length, Names, Task};
use crate::byte_model::{ByteModel, Weights, write as write_file};
use crate::output::{Failure, print};

const TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}<|role|>{{ message.role }}\n\
    {% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|end|>{% endgeneration %}\
    {% else %}{{ message.content }}<|end|>{% endif %}{% endfor %}\
    {% if add_generation_prompt %}<|role|>assistant\n{% endif %}";

const MODEL: ByteModel = ByteModel {
    hidden: 64,
    intermediate: 192,
    layers: 2,
    heads: 4,
    positions: 256,
    markers: &["<|begin|>", "<|end|>", "<|role|>"],
    template: TEMPLATE,
    weights: Weights::Drawn { embedding: 0.05 },
};

/// Writes the example of a task into a folder that is not there yet.
pub fn write(folder: &Path, task: Task) -> Result<u8, Failure> {
    if folder.exists() {
        return Err(Failure::Usage(format!("{}: expected no such folder, found one", folder.display())));
    }
    MODEL.write(&folder.join("model"))?;
    let config = match task {
        Task::CausalLm => {
            write_file(folder, "data.jsonl", data().as_bytes())?;
            config()
        }
        Task::SeqCls => {
            let [data, held_out] = sayings();
            write_file(folder, "data.jsonl", data.as_bytes())?;
            write_file(folder, "held-out.jsonl", held_out.as_bytes())?;
            of_classes()
        }
    };
    write_file(folder, "config.toml", config.to_toml().as_bytes())?;
    let path = folder.join("config.toml");
    print(&format!("cargo trainer train {} trains the example\n", path.display()));
    Ok(0)
}

/// The config, with every key.
fn config() -> Config {
    Config {
        model_name_or_path: "model".to_owned(),
        dataset_name: "data.jsonl".to_owned(),
        output_dir: "out".to_owned(),
        lora_target_modules: Targets::AllLinear,
        assistant_only_loss: true,
        max_steps: 60,
        learning_rate: 1e-2,
        warmup_steps: 5,
        max_length: Length(Some(128)),
        ..Config::default()
    }
}

/// That of the classifier.
fn of_classes() -> Config {
    Config {
        task_type: Task::SeqCls,
        id2label: Names(CLASSES.map(|(name, _)| name.to_owned()).to_vec()),
        lora_dropout: Some(0.0),
        assistant_only_loss: false,
        per_device_train_batch_size: 16,
        learning_rate: 5e-3,
        warmup_steps: 10,
        eval_dataset_name: Some("held-out.jsonl".to_owned()),
        eval_strategy: Evaluation::Steps,
        eval_steps: Some(20),
        per_device_eval_batch_size: 30,
        ..config()
    }
}

/// The classes of the sayings, and the sign that tells each.
const CLASSES: [(&str, char); 3] = [("question", '?'), ("exclamation", '!'), ("statement", '.')];

/// What is said, and who says it: every combination is a saying of each class. The last two are held out.
const SAID: [&str; 10] = [
    "the tea is cold",
    "it rains",
    "you sold the boat",
    "nobody came",
    "the door is open",
    "we are late",
    "that was all",
    "she knows him",
    "they won again",
    "the lamp is broken",
];
const HELD_OUT: usize = 2;
const WHO: [&str; 6] = ["Ada", "Grace", "Kurt", "Emmy", "Alan", "Mary"];

/// The sayings that are trained on, and those that are held out.
fn sayings() -> [String; 2] {
    let mut lines = [String::new(), String::new()];
    let all = (0..SAID.len() * WHO.len() * CLASSES.len()).map(|number| {
        let (class, rest) = (number % CLASSES.len(), number / CLASSES.len());
        (class, rest % WHO.len(), rest / WHO.len())
    });
    for (class, who, said) in all {
        let (name, sign) = CLASSES[class];
        let text = format!("\"{}{sign}\" says {}", SAID[said], WHO[who]);
        let is_held_out = said + HELD_OUT >= SAID.len();
        let line = json!({"text": text, "label": name}).to_string();
        lines[usize::from(is_held_out)].extend([&line, "\n"]);
    }
    lines
}

/// Every sum of two digits.
fn data() -> String {
    let pairs = (0..100).map(|number| (number / 10, number % 10));
    let line = |(a, b): (u32, u32)| {
        let messages = json!([
            {"role": "user", "content": format!("How much is {a} and {b}?")},
            {"role": "assistant", "content": format!("{a} and {b} make {}.", a + b)},
        ]);
        format!("{}\n", json!({ "messages": messages }))
    };
    pairs.map(line).collect()
}
