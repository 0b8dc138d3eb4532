//! Data files: what ends a row, which columns are read, which files are refused and how an error names a place.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::program::{Ran, run};
use trainer::train::data::{Dataset, Encoder};

use crate::sft::Sft;

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

/// The end of the sequence in the golden tokenizer.
const END: i32 = 2;

/// A folder with the golden model, its tokenizer, a config and a data file.
struct Place {
    folder: TempDir,
}

impl Place {
    fn find() -> Option<Self> {
        let sft = Sft::find()?;
        let place = Self { folder: TempDir::new().expect("a folder") };
        fs::create_dir(place.path("model")).expect("a folder");
        for from in [sft.base.path("dense"), sft.path("tokenizer")] {
            for entry in fs::read_dir(from).expect("a folder").flatten() {
                fs::copy(entry.path(), place.path("model").join(entry.file_name()))
                    .expect("it can be copied");
            }
        }
        place.write(
            "config.toml",
            "model_name_or_path = \"model\"\ndataset_name = \"data.jsonl\"\noutput_dir = \"out\"\ndevice = \"cpu\"\n\
             max_steps = 1\nper_device_train_batch_size = 2\nlearning_rate = 0.0\nlora_dropout = 0.0\n\
             max_length = 128\ntrain_sampling_strategy = \"sequential\"\nlogging_steps = 1\n",
        );
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).expect("it can be written");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file")
    }

    /// Changes a JSON file.
    fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut json = serde_json::from_str(&self.read(name)).expect("JSON");
        change(&mut json);
        self.write(name, json.to_string());
    }

    /// Removes the token that ends a sequence from the tokenizer's configuration.
    fn without_end(&self) {
        let name = "model/tokenizer_config.json";
        self.change(name, |json| drop(json.as_object_mut().expect("an object").remove("eos_token")));
    }

    fn encoder(&self, assistant_only: bool) -> Encoder<'static> {
        Encoder::open(&self.path("model"), 512, assistant_only).expect("a tokenizer")
    }

    fn data_as(&self, bytes: impl AsRef<[u8]>, assistant_only: bool) -> Result<Dataset, String> {
        self.write("data.jsonl", bytes);
        let data = self.encoder(assistant_only).rows(&self.path("data.jsonl"), None);
        data.map_err(|failure| failure.to_string())
    }

    fn data(&self, bytes: impl AsRef<[u8]>) -> Result<Dataset, String> {
        self.data_as(bytes, false)
    }

    fn error(&self, bytes: impl AsRef<[u8]>) -> String {
        self.data(bytes).expect_err("it is refused")
    }

    /// The tokens of the only row of a line.
    fn ids(&self, line: &Value) -> Vec<i32> {
        self.data(line.to_string()).unwrap_or_else(|error| panic!("{line}: {error}")).rows.remove(0).ids
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        _ = fs::remove_dir_all(self.path("out"));
        run(Path::new(TRAINER), self.folder.path(), arguments)
    }

    fn train(&self, settings: &[&str]) -> Ran {
        let settings = settings.iter().flat_map(|setting| ["--set", setting]);
        self.run(&["train", "config.toml"].into_iter().chain(settings).collect::<Vec<_>>())
    }
}

#[test]
fn texts_end_without_a_chat_template() {
    let Some(place) = Place::find() else { return };
    let lines = [
        json!({"text": "Ember river"}),
        json!({"prompt": "Ember river?", "completion": " Paper bridge."}),
        json!({"text": "Ember river<|end|>"}),
    ];
    let with = lines.each_ref().map(|line| place.ids(line));
    fs::remove_file(place.path("model/chat_template.jinja")).expect("a template");
    let without = lines.each_ref().map(|line| place.ids(line));
    assert_eq!(with, without);
    assert_eq!([without[0].len(), without[1].len(), without[2].len()], [3, 8, 3]);
    assert!(without.iter().all(|ids| ids.last() == Some(&END)));

    place.write("data.jsonl", lines[0].to_string());
    let ran = place.train(&[]);
    assert!(ran.stdout.contains("the longest of 3 tokens"), "{}{}", ran.stdout, ran.stderr);
    let metrics = place.read("out/metrics.jsonl");
    let line: Value = serde_json::from_str(metrics.lines().next().expect("a line")).expect("JSON");
    let loss = line["loss"].as_f64().expect("a loss"); // 6.437905 in f64 by the oracle
    assert!((loss - 6.437_905).abs() < 2e-5, "{loss}");
}

#[test]
fn answers_of_every_objective_end_without_a_template() {
    let Some(place) = Place::find() else { return };
    fs::remove_file(place.path("model/chat_template.jinja")).expect("a template");
    for (objective, line, longest) in [
        ("dpo", json!({"prompt": "Ember river?", "chosen": " Paper bridge.", "rejected": " Light."}), 8),
        ("orpo", json!({"prompt": "Ember river?", "chosen": " Paper bridge.", "rejected": " Light."}), 8),
        ("simpo", json!({"prompt": "Ember river?", "chosen": " Paper bridge.", "rejected": " Light."}), 8),
        ("kto", json!({"prompt": "Ember river?", "completion": " Paper bridge.", "label": true}), 8),
        (
            "grpo",
            json!({"prompt": "Ember river?", "completions": [" Paper bridge.", " Light."], "rewards": [1, 0]}),
            8,
        ),
        (
            "grpo",
            json!({"prompt": "Ember river?", "completions": [" Paper<|end|>bridge.", " a"], "rewards": [1, 0]}),
            6,
        ),
    ] {
        place.write("data.jsonl", format!("{line}\n{line}\n"));
        let more = if objective == "grpo" { "max_completion_length=64" } else { "max_length=128" };
        let kept = place.read("config.toml").replace("max_length = 128\n", "");
        place.write("config.toml", kept);
        let ran = place.train(&[&format!("objective={objective}"), more]);
        let want = format!("the longest of {longest} tokens");
        assert!(ran.code == 0 && ran.stdout.contains(&want), "{objective}: {}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn missing_end_token_is_an_error() {
    let Some(place) = Place::find() else { return };
    place.without_end();
    let config = "tokenizer_config.json names no eos_token, which ends every row of texts; add \"eos_token\": \"<|end|>\", \
                  the token 2 that generation_config.json names";
    for line in [
        json!({"text": "Ember river"}),
        json!({"prompt": "Ember", "completion": " river"}),
        json!({"text": "Ember river<|end|>"}),
    ] {
        let error = place.error(line.to_string());
        assert!(error.contains("data.jsonl: line 1: ") && error.contains(config), "{error}");
    }
    let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
    place.data(json!({ "messages": messages }).to_string()).expect("a template writes its own end");
    for (objective, line) in [
        ("dpo", json!({"prompt": "a", "chosen": " b", "rejected": " c"})),
        ("kto", json!({"prompt": "a", "completion": " b", "label": true})),
        ("grpo", json!({"prompt": "a", "completions": [" b", " c"], "rewards": [1, 0]})),
    ] {
        place.write("data.jsonl", line.to_string());
        let kept = place.read("config.toml").replace("max_length = 128\n", "");
        place.write("config.toml", kept);
        let ran = place.train(&[&format!("objective={objective}")]);
        assert!(ran.code == 2 && ran.stderr.contains(config), "{objective}: {}{}", ran.stdout, ran.stderr);
    }
    for name in ["config.json", "generation_config.json"] {
        place.change(&format!("model/{name}"), |json| json["eos_token_id"] = Value::Null);
    }
    place.write(
        "data.jsonl",
        json!({"prompt": messages, "completions": [messages, messages], "rewards": [1, 0]}).to_string(),
    );
    let ran = place.train(&["objective=grpo"]);
    assert!(ran.code == 2 && ran.stderr.contains("no token ends a completion of grpo"), "{}", ran.stderr);

    place.change("model/tokenizer_config.json", |json| json["eos_token"] = json!("</s>"));
    let error = place.error(r#"{"text": "a"}"#);
    assert!(error.contains("eos_token: expected a token of tokenizer.json, found \"</s>\""), "{error}");
    place.change("model/tokenizer_config.json", |json| json["eos_token"] = json!({"content": ""}));
    assert!(place.error(r#"{"text": "a"}"#).contains("names no eos_token"));
}

/// As in transformers 5.24, which reads the older file where the newer one lists no added tokens.
#[test]
fn special_tokens_map_names_the_end_token() {
    let Some(place) = Place::find() else { return };
    let line = json!({"text": "Ember river"});
    let want = place.ids(&line);
    place.without_end();
    place.write("model/special_tokens_map.json", r#"{"eos_token": {"content": "<|end|>"}}"#);
    assert_eq!(place.ids(&line), want);
    place.change("model/tokenizer_config.json", |json| json["added_tokens_decoder"] = json!({}));
    assert!(place.error(line.to_string()).contains("names no eos_token"));
}

#[test]
fn templates_without_a_default_are_reported() {
    let Some(place) = Place::find() else { return };
    fs::remove_file(place.path("model/chat_template.jinja")).expect("a template");
    let line = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#;
    assert!(place.error(line).contains("line 1: `messages` need a chat template"), "{}", place.error(line));
    place.change("model/tokenizer_config.json", |json| {
        json["chat_template"] = json!([{"name": "rag", "template": "R"}, {"name": "other", "template": "O"}]);
    });
    let want = "expected a chat template called default or tool_use, found rag, other";
    let error = place.error(line);
    assert!(error.contains(want), "{error}");
    assert_eq!(place.ids(&json!({"text": "Ember river"})).len(), 3, "texts need no template");
    place.write("m.json", r#"[{"role": "user", "content": "a"}]"#);
    let ran = place.run(&["generate", "model", "--messages", "m.json", "--device", "cpu"]);
    assert!(ran.code == 2 && ran.stderr.contains(want), "{}", ran.stderr);
    place.write("data.jsonl", line);
    let ran = place.train(&["assistant_only_loss=true"]);
    assert!(ran.code == 2 && ran.stderr.contains(want), "{}", ran.stderr);
}

#[test]
fn messages_without_their_keys_are_refused_everywhere() {
    let Some(place) = Place::find() else { return };
    let good = json!([{"role": "user", "content": "a"}]);
    let from = json!([{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]);
    let misspelt = json!([{"role": "user", "contents": "a"}]);
    for (line, want) in [
        (
            json!({"messages": from}),
            "line 2: messages[0]: expected the key \"role\", found the keys \"from\", \"value\"",
        ),
        (json!({"messages": misspelt}), "line 2: messages[0]: expected the key \"content\""),
        (json!({"prompt": misspelt, "completion": good}), "line 2: prompt[0]: expected the key \"content\""),
        (json!({"prompt": good, "completion": from}), "line 2: completion[0]: expected the key \"role\""),
        (json!({"prompt": [], "completion": good}), "line 2: prompt: expected at least one message"),
        (json!({"messages": []}), "line 2: messages: expected at least one message"),
        (json!({"messages": "a"}), "line 2: messages: expected a list of messages, found a text"),
        (
            json!({"conversations": [{"from": "human"}]}),
            "line 2: conversations[0]: expected the key \"content\"",
        ),
    ] {
        let error = place.error(format!("{}\n{line}\n", r#"{"text": "a"}"#));
        assert!(error.contains(want), "{line}: {error}");
    }
    let kept = place.read("config.toml").replace("max_length = 128\n", "");
    place.write("config.toml", kept);
    for (objective, line, want) in [
        ("dpo", json!({"prompt": good, "chosen": misspelt, "rejected": good}), "chosen[0]: expected the key"),
        ("orpo", json!({"chosen": good, "rejected": from}), "rejected[0]: expected the key"),
        ("kto", json!({"prompt": from, "completion": good, "label": true}), "prompt[0]: expected the key"),
        (
            "grpo",
            json!({"prompt": good, "completions": [good, misspelt], "rewards": [1, 0]}),
            "completions[1][0]: expected the key",
        ),
        (
            "dpo",
            json!({"conversations": from, "chosen": "a", "rejected": "b"}),
            "conversations: expected the key",
        ),
    ] {
        place.write("data.jsonl", line.to_string());
        let ran = place.train(&[&format!("objective={objective}")]);
        assert!(ran.code == 2 && ran.stderr.contains(&format!("line 1: {want}")), "{line}: {}", ran.stderr);
    }
    place.write("m.json", json!({"messages": from}).to_string());
    for verb in [
        &["template", "render", "model", "--messages", "m.json"][..],
        &["generate", "model", "--messages", "m.json", "--device", "cpu"],
    ] {
        let ran = place.run(verb);
        let want = "m.json: messages[0]: expected the key \"role\"";
        assert!(ran.code == 2 && ran.stderr.contains(want), "{verb:?}: {}", ran.stderr);
    }
}

#[test]
fn messages_win_over_columns_of_text() {
    let Some(place) = Place::find() else { return };
    let messages = json!([{"role": "user", "content": "Ember?"}, {"role": "assistant", "content": "Paper."}]);
    let want = place.ids(&json!({ "messages": messages }));
    for (more, columns) in [
        (json!({"prompt": "Ember?", "prompt_id": "a1"}), &["prompt"][..]),
        (json!({"text": "Ember?"}), &["text"]),
        (json!({"prompt": "Ember?", "completion": " Paper."}), &["prompt", "completion"]),
        (json!({"prompt": [{"role": "user", "content": "a"}]}), &["prompt"]),
        (json!({"completion": " Paper.", "prompt": null}), &["completion"]),
        (json!({"conversations": messages}), &["conversations"]),
    ] {
        let mut line = more.clone();
        line["messages"] = messages.clone();
        let data = place.data_as(line.to_string(), true).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(data.rows[0].ids, want, "{line}");
        let notices: Vec<String> = columns
            .iter()
            .map(|column| format!("1 row has {column} next to messages; {column} is not read"))
            .collect();
        assert!(notices.iter().all(|notice| data.notices.contains(notice)), "{line}: {:?}", data.notices);
    }
    let error = place.error(r#"{"chosen": "a", "rejected": "b"}"#);
    assert!(error.contains("found \"chosen\", \"rejected\"; pairs need objective = \"dpo\""), "{error}");
}

/// As in TRL: the prompt of `HuggingFaceH4/ultrafeedback_binarized` is a text, its answers are conversations.
#[test]
fn prompt_text_is_found_in_conversations_of_pairs() {
    let Some(place) = Place::find() else { return };
    let turns = |answer: &str| json!([{"role": "user", "content": "Ember?"}, {"role": "assistant", "content": answer}]);
    let pair = json!({"chosen": turns("Paper."), "rejected": turns("Light bridge.")});
    let kept = place.read("config.toml").replace("max_length = 128\n", "");
    place.write("config.toml", kept);
    let first = |line: &Value| {
        place.write("data.jsonl", line.to_string());
        let ran = place.train(&["objective=dpo"]);
        assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
        ran.stdout.lines().next().expect("a line").to_owned()
    };
    let want = first(&pair);
    let mut line = pair;
    line["prompt"] = json!("Ember?");
    line["messages"] = line["chosen"].clone();
    assert_eq!(first(&line), want);
}

#[test]
fn sharegpt_is_converted_and_strange_roles_are_named() {
    let Some(place) = Place::find() else { return };
    let turns = |human: &str, gpt: &str| {
        let (shared, own) = (
            json!([{"from": human, "value": "Ember?"}, {"from": gpt, "value": "Paper."}]),
            json!([{"role": human, "content": "Ember?"}, {"role": gpt, "content": "Paper."}]),
        );
        (json!({ "conversations": shared }), json!({ "messages": own }))
    };
    let (shared, own) = turns("user", "assistant");
    assert_eq!(place.ids(&shared), place.ids(&own));
    assert!(place.data(shared.to_string()).expect("rows").notices.is_empty());
    let (shared, own) = turns("human", "gpt");
    assert_eq!(place.ids(&shared), place.ids(&own));
    let notices = place.data(format!("{shared}\n{own}\n")).expect("rows").notices;
    let human =
        "the chat template does not name the role \"human\" of 2 messages; the usual name is \"user\"";
    assert!(notices.iter().any(|notice| notice == human), "{notices:?}");
    for line in [&shared, &own] {
        let error = place.data_as(line.to_string(), true).expect_err("nothing is trained");
        assert!(
            error.contains("no line has a trained token: ") && error.contains("\"gpt\", \"human\""),
            "{error}"
        );
    }

    // a template that only handles two roles, and one that loses a third that it names
    let of = |names: &str| {
        format!(
            "{{% for m in messages %}}{{% if m.role == 'user' %}}U {{{{ m.content }}}}{{% elif m.role == 'assistant' %}}\
             A {{{{ m.content }}}}{{% endif %}}{{% endfor %}}{names}"
        )
    };
    place.write("model/chat_template.jinja", of(""));
    let error = place.error(format!("{}\n{shared}\n", json!({"text": "a"})));
    let want = "line 2: the chat template writes nothing for the role";
    assert!(error.contains(want) && error.contains("the usual name is"), "{error}");
    let ruled = json!({"messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
    ]});
    let error = place.error(ruled.to_string());
    assert!(error.contains("writes nothing for the role \"system\""), "{error}");
    place.write("model/chat_template.jinja", of("{% if messages[0].role == 'system' %}{% endif %}"));
    let notices = place.data(format!("{ruled}\n{ruled}\n")).expect("rows").notices;
    assert_eq!(notices, ["the chat template writes nothing for 2 messages of the role \"system\""]);
}

#[test]
fn json_lines_and_arrays_are_read() {
    let Some(place) = Place::find() else { return };
    let rows = |bytes: &[u8]| place.data(bytes).map(|data| data.rows);
    let want = rows(b"{\"text\": \"Ember river\"}\n{\"text\": \"a\"}\n").expect("rows");
    for bytes in [
        &b"\xef\xbb\xbf{\"text\": \"Ember river\"}\n{\"text\": \"a\"}"[..],
        b"{\"text\": \"Ember river\"}\r\n{\"text\": \"a\"}\r\n",
        b"{\"text\": \"Ember river\"}\n{\"text\": \"a\"}\n\n \r\n\t\n",
        b"{\"text\": \"Ember river\"}\n\xef\xbb\xbf{\"text\": \"a\"}\n",
        b"[\n  {\"text\": \"Ember river\"},\n  {\"text\": \"a\"}\n]\n",
        b"\xef\xbb\xbf\r\n [{\"text\": \"Ember river\"}, {\"text\": \"a\"}]",
        b"[\n  {\n    \"text\": \"Ember river\"\n  },\n  {\n    \"text\": \"a\"\n  }\n]\n\n",
    ] {
        assert_eq!(rows(bytes).as_ref(), Ok(&want), "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn errors_in_data_have_one_position() {
    let Some(place) = Place::find() else { return };
    for (text, want) in [
        (
            "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"\n{\"text\": \"d\"}\n",
            "line 3, column 12: invalid JSON: EOF",
        ),
        ("{\"text\": \"a\"}\r\n{\"text\": \"b\"", "line 2, column 12: invalid JSON: EOF"),
        (
            "{\n  \"text\": \"a\"\n}\n",
            "line 1, column 1: invalid JSON: EOF while parsing an object; each line must hold one",
        ),
        ("text\na\n", "line 1, column 2: invalid JSON: expected ident; each line must hold one"),
        (
            "prompt,completion\na,b\n",
            "line 1, column 1: invalid JSON: expected value; each line must hold one",
        ),
        ("{\"text\": \"a\"}\n\n{\"text\": \"b\"}\n", "line 2: expected a JSON object, found an empty line"),
        ("{\"text\": \"\\ud83d\"}\n", "invalid JSON: a lone surrogate"),
        ("[\n{\"text\": \"a\"},\n3]", "line 3: expected a JSON object, found a number"),
        (
            "[\n{\"text\": \"a\"},\n{\"txt\": \"a\"}]",
            "line 3: expected the key messages, or prompt and completion, or",
        ),
        ("[\n{\"text\": \"a\"}\n{\"text\": \"a\"}]", "invalid JSON: expected `,` or `]`"),
        ("[\n{\"text\": \"a\"},\n", "line 3, column 0: invalid JSON: EOF while parsing"),
        ("[{\"text\": \"a\"}]\n{}", "invalid JSON: trailing characters"),
        ("\n\n", "found an empty file"),
        ("[]", "found an empty file"),
    ] {
        let error = place.error(text);
        assert!(error.contains(want), "{text:?}: {error}");
        assert!(
            error.matches("line ").count() <= 1 + usize::from(error.contains("each line")),
            "{text:?}: {error}"
        );
    }
}

const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2\
                       ca24d17e2393\nsize 2471645608\n";
const PAGE: &str = "<!doctype html><html><body>Access is restricted</body></html>";

/// Files of other kinds, and the words that name them.
fn foreign() -> Vec<(Vec<u8>, &'static str)> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"{\"text\": \"a\"}\n").expect("it is in memory");
    let utf16 = "\u{feff}{\"text\": \"a\"}\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    vec![
        (POINTER.into(), "found a Git LFS pointer instead of the file's content; `git lfs pull`"),
        (PAGE.into(), "found a web page (HTML); download the file itself"),
        (gzip.finish().expect("it is in memory"), "found a gzip file; `gunzip` unpacks it"),
        (utf16, "found text in UTF-16; `iconv"),
        (b"PAR1\x15\x04\x15".to_vec(), "found a Parquet table; `pandas.read_parquet(FILE).to_json("),
        (b"\xff\xff\xff\xff\x10\x01\0\0".to_vec(), "found an Arrow table; `Dataset.from_file(FILE)"),
        (b"PK\x03\x04\x14\0\0\0".to_vec(), "found a zip archive; `unzip`"),
        (b"\x28\xb5\x2f\xfd\x04\0\0\0\0".to_vec(), "found a Zstandard file; `zstd -d`"),
    ]
}

#[test]
fn data_of_other_formats_are_named() {
    let Some(place) = Place::find() else { return };
    for (bytes, want) in foreign() {
        let error = place.error(bytes);
        assert!(error.contains(&format!("data.jsonl: expected JSON lines, {want}")), "{error}");
    }
}

#[test]
fn checkpoint_files_of_other_formats_are_named() {
    let Some(place) = Place::find() else { return };
    place.write(
        "data.jsonl",
        r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#,
    );
    fs::create_dir(place.path("adapter")).expect("a folder");
    let adapter = r#"{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}"#;
    place.write("adapter/adapter_config.json", adapter);
    let files = [
        "model/config.json",
        "model/tokenizer.json",
        "model/tokenizer_config.json",
        "model/model.safetensors",
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
    ];
    for name in files {
        let kept = fs::read(place.path(name)).ok();
        for (bytes, want) in foreign() {
            place.write(name, bytes);
            let from = if name.starts_with("adapter") { &["adapter_name_or_path=adapter"][..] } else { &[] };
            let ran = place.train(from);
            let file = name.rsplit('/').next().expect("a name");
            assert!(
                ran.code == 2 && ran.stderr.contains(want) && ran.stderr.contains(file),
                "{name}, {want}: {}",
                ran.stderr
            );
        }
        if let Some(kept) = kept {
            place.write(name, kept);
        }
    }
    for (bytes, want) in foreign() {
        place.write("x.gguf", bytes);
        let ran = place.run(&["generate", "x.gguf", "--ids", "1"]);
        assert!(
            ran.code == 2 && ran.stderr.contains(want) && ran.stderr.contains("x.gguf"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn byte_order_marks_in_json_are_skipped() {
    let Some(place) = Place::find() else { return };
    let line = json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]});
    let want = place.ids(&line);
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        let name = format!("model/{name}");
        let text = place.read(&name);
        place.write(&name, format!("\u{feff}{text}"));
    }
    assert_eq!(place.ids(&line), want);
    place.write("m.json", format!("\u{feff}{}", line["messages"]));
    place.write("t.json", "\u{feff}[]");
    let render = ["template", "render", "model", "--messages", "m.json", "--tools", "t.json"];
    let ran = place.run(&render);
    assert!(ran.code == 0 && ran.stdout.contains("user\na"), "{}{}", ran.stdout, ran.stderr);
    let ran = place.train(&[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for (text, want) in [
        (r#"[{"role": "user", "content": "\ud800"}]"#, "invalid JSON: a lone surrogate"),
        (POINTER, "m.json: expected JSON, found a Git LFS pointer"),
    ] {
        place.write("m.json", text);
        let ran = place.run(&render);
        assert!(ran.code == 2 && ran.stderr.contains(want), "{}", ran.stderr);
    }
}

#[test]
fn doubled_special_tokens_are_counted() {
    let Some(place) = Place::find() else { return };
    let begun = json!({"text": "<|begin|>Ember river"});
    assert!(place.data(begun.to_string()).expect("rows").notices.is_empty(), "the tokenizer adds none");
    place.change("model/tokenizer.json", |json| {
        let one = |text: &str| json!({"SpecialToken": {"id": text, "type_id": 0}});
        let part = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
        let tokens = [("<|begin|>", 1), ("<|end|>", 2)];
        let tokens =
            tokens.map(|(text, id)| (text.to_owned(), json!({"id": text, "ids": [id], "tokens": [text]})));
        json["post_processor"] = json!({
            "type": "TemplateProcessing",
            "single": [one("<|begin|>"), part("A"), one("<|end|>")],
            "pair": [part("A"), part("B")],
            "special_tokens": serde_json::Map::from_iter(tokens),
        });
    });
    let plain = json!({"text": "Ember river"});
    let data = place.data(format!("{begun}\n{begun}\n{plain}\n")).expect("rows");
    assert_eq!(data.rows[0].ids.len(), 6);
    let once = "the tokenizer or the template adds one, so the data need not have it";
    let want = [
        format!("2 rows begin with <|begin|> twice; {once}"),
        format!("3 rows end with <|end|> twice; {once}"),
    ];
    assert_eq!(data.notices, want);
    place.write("data.jsonl", begun.to_string());
    let ran = place.train(&[]);
    let want = format!("data.jsonl: 1 row begins with <|begin|> twice; {once}");
    assert!(ran.code == 0 && ran.stderr.contains(&want), "{}", ran.stderr);
    // a template that writes one in front of a content that has one
    place.write(
        "model/chat_template.jinja",
        "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}",
    );
    let messages = json!([{"role": "user", "content": "<|begin|>a"}]);
    let notices = place.data(json!({ "messages": messages }).to_string()).expect("rows").notices;
    assert_eq!(notices, [format!("1 row begins with <|begin|> twice; {once}")]);
}
