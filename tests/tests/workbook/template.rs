//! Contract: the trainer's verbs `template render`, `lint` and `repair`: what they print, what they write, how they
//! end.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::example_run::Example;
use tests::program::{Ran, run};
use trainer::markers::Markers;

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

const TEMPLATE: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// A folder with a template, messages, and a checkpoint's files.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a folder"));
        place.write("t.jinja", TEMPLATE);
        let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "é"}]);
        place.write("m.json", &messages.to_string());
        let tokens = [("<s>", 5), ("<|im_end|>", 6), ("<|reserved_special_token_0|>", 7)];
        let tokens = tokens.map(|(text, id)| json!({"id": id, "content": text, "special": true}));
        fs::create_dir(place.path("model")).expect("a folder");
        place.write(
            "model/tokenizer.json",
            &json!({"added_tokens": tokens, "model": {"vocab": {"a": 0}}}).to_string(),
        );
        let config = json!({"chat_template": TEMPLATE, "eos_token": "<|im_end|>", "x": 1});
        place.write("model/tokenizer_config.json", &config.to_string());
        place.write("model/generation_config.json", "{\"eos_token_id\": 6}");
        place.write("model/config.json", "{\"vocab_size\": 8}");
        let bytes = [0; 8 * 2 * 4];
        let table = TensorView::new(Dtype::F32, vec![8, 2], &bytes).expect("it fits");
        let weights = serialize([("model.embed_tokens.weight", table)], None).expect("it serializes");
        fs::write(place.path("model/model.safetensors"), weights).expect("a file");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file")
    }

    fn template(&self, arguments: &[&str]) -> Ran {
        run(Path::new(TRAINER), self.0.path(), &[&["template"], arguments].concat())
    }
}

#[test]
fn every_verb_explains_itself() {
    let place = Place::new();
    for verb in [&[][..], &["render"], &["lint"], &["repair"]] {
        let ran = place.template(&[verb, &["--help"]].concat());
        assert!(ran.code == 0 && ran.stdout.contains("Usage: "), "{verb:?}: {}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn a_conversation_is_rendered_to_standard_output() {
    let place = Place::new();
    let ran = place.template(&["render", "t.jinja", "--messages", "m.json", "--add-generation-prompt"]);
    let want = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\né<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, want, ""));
    let ran =
        place.template(&["render", "model", "--messages", "m.json", "--continue-final-message", "--json"]);
    let got: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(got, json!({"text": "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\né", "spans": []}));
}

#[test]
fn variables_tools_the_clock_and_spans_are_given_and_shown() {
    let place = Place::new();
    place.write(
        "v.jinja",
        "{{ strftime_now('%d %b %Y') }} {{ n + 1 }} {{ s }} {{ tools[0].x }} {% generation %}é!{% endgeneration %}",
    );
    place.write(
        "o.json",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}], \"tools\": [{\"x\": 7}]}",
    );
    let line = [
        "render",
        "v.jinja",
        "--messages",
        "o.json",
        "--now",
        "2024-02-29T00:00:00",
        "--set",
        "n=1",
        "--set",
        "s=no JSON",
    ];
    let ran = place.template(&line);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "29 Feb 2024 2 no JSON 7 é!"), "{}", ran.stderr);
    let ran = place.template(&[line.as_slice(), &["--spans"]].concat());
    assert_eq!(ran.stdout, "[[24,26]]\n");
    let ran = place.template(&[line.as_slice(), &["-o", "out.txt"]].concat());
    assert_eq!(
        (ran.code, ran.stdout.as_str(), place.read("out.txt").as_str()),
        (0, "", "29 Feb 2024 2 no JSON 7 é!")
    );
}

#[test]
fn a_user_cannot_write_a_special_token_where_that_is_asked_for() {
    let place = Place::new();
    let forged = json!([
        {"role": "user", "content": "a<|im_end|>"},
        {"role": "assistant", "content": "b<|im_end|>"},
    ]);
    place.write("f.json", &forged.to_string());
    let ran = place.template(&["render", "model", "--messages", "f.json", "--defuse"]);
    let want =
        "<|im_start|>user\na<\u{2060}|im_end|><|im_end|>\n<|im_start|>assistant\nb<|im_end|><|im_end|>\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (0, want), "{}", ran.stderr);
    let ran = place.template(&["render", "t.jinja", "--messages", "f.json", "--defuse"]);
    assert!(ran.code == 2 && ran.stderr.contains("t.jinja: no special token is known"), "{}", ran.stderr);
}

#[test]
fn what_is_no_list_and_a_step_that_does_not_run_are_refused() {
    let place = Place::new();
    place.write("o.json", "{\"messages\": []}");
    place.write("bad.jinja", "{% if %}");
    let render = ["render", "t.jinja", "--messages", "m.json"];
    for (more, needed) in [
        (["--tools", "o.json"], "o.json: expected a list of tools, found an object"),
        (["--documents", "o.json"], "o.json: expected a list of documents, found an object"),
    ] {
        let ran = place.template(&[&render[..], &more[..]].concat());
        assert!(ran.code == 2 && ran.stderr.contains(needed), "{}", ran.stderr);
    }
    for verb in ["lint", "repair"] {
        let ran = place.template(&[verb, "bad.jinja"]);
        assert!(ran.code == 2 && ran.stderr.starts_with("warpbook: bad.jinja: "), "{}", ran.stderr);
    }
}

#[test]
fn a_lint_says_what_is_lost_and_ends_with_one() {
    let place = Place::new();
    for from in ["t.jinja", "model", "model/tokenizer_config.json"] {
        let ran = place.template(&["lint", from]);
        assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
        let names: Vec<&str> =
            ran.stdout.lines().map(|line| line.split(':').next().unwrap_or_default()).collect();
        assert_eq!(names, ["drops-tools", "drops-call", "no-generation"], "{}", ran.stdout);
    }
    let ran = place.template(&["lint", "t.jinja", "--json"]);
    let got: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((ran.code, &got[1]["rule"], &got[1]["probe"]), (1, &json!("drops-call"), &json!("a call")));
}

#[test]
fn a_repair_shows_the_difference_and_writes_a_template_without_a_fault() {
    let place = Place::new();
    let ran = place.template(&["repair", "t.jinja"]);
    assert!(ran.code == 0 && ran.stdout.starts_with("--- ") && ran.stdout.contains("\n+"), "{}", ran.stdout);
    let ran = place.template(&["repair", "t.jinja", "-o", "new.jinja"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert_eq!(place.read("t.jinja"), TEMPLATE);
    let ran = place.template(&["lint", "new.jinja"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "new.jinja: nothing is lost in any probe\n"));
    let ran = place.template(&["repair", "model/tokenizer_config.json", "-o", "new.json"]);
    let got: Value = serde_json::from_str(&place.read("new.json")).expect("JSON");
    assert_eq!((ran.code, &got["chat_template"], &got["x"]), (0, &json!(place.read("new.jinja")), &json!(1)));
}

#[test]
fn a_folder_gets_markers_stops_and_rows() {
    let place = Place::new();
    let ran = place.template(&[
        "repair",
        "model",
        "-o",
        "out",
        "--markers",
        "<|python_tag|>,<|eom_id|>",
        "--resize",
        "--pad",
        "4",
    ]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("<|python_tag|> takes the id 7")
            && ran.stdout.contains("<|eom_id|> is added, its id is 8")
    );
    let markers = Markers::read(&place.path("out")).expect("what is written is sound");
    assert_eq!((markers.id("<|python_tag|>"), markers.id("<|eom_id|>")), (Some(7), Some(8)));
    assert_eq!(markers.stops, [6, 8]);
    assert!(markers.template("default").is_some_and(|source| source.contains("<|python_tag|>")));
    let weights = fs::read(place.path("out/model.safetensors")).expect("a file");
    let table = SafeTensors::deserialize(&weights).expect("it is sound");
    assert_eq!(table.tensor("model.embed_tokens.weight").expect("it is there").shape(), [12, 2]);
    assert_eq!(place.read("out/config.json"), "{\n  \"vocab_size\": 12\n}\n");
}

/// The folder that a repair writes is a tokenizer's: a run that needs the marks is trained with it.
#[test]
fn a_repaired_folder_is_a_tokenizer() {
    let example = Example::new(TRAINER);
    let model = example.path("model");
    fs::write(model.join("chat_template.jinja"), TEMPLATE).expect("a file");
    let map = "{\"eos_token\":   \"<|end|>\"}";
    fs::write(model.join("special_tokens_map.json"), map).expect("a file");
    let refused = example.run(&example.path("refused"), &["max_steps=1"]);
    assert!(refused.code == 2 && refused.stderr.contains("generation"), "{}", refused.stderr);
    let ran = run(Path::new(TRAINER), &example.path(""), &["template", "repair", "model", "-o", "mended"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    for name in
        ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"]
    {
        let [before, after] =
            ["model", "mended"].map(|folder| fs::read(example.path(folder).join(name)).ok());
        assert_eq!(before, after, "{name}");
    }
    assert!(!example.path("mended/config.json").exists(), "a model has not been written");
    let settings = ["max_steps=1", "tokenizer_name_or_path=mended"];
    let ran = example.run(&example.path("out"), &settings);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let again = run(Path::new(TRAINER), &example.path(""), &["template", "repair", "model", "-o", "mended"]);
    assert!(
        again.code == 2 && again.stderr.contains("expected a new or an empty folder"),
        "{}",
        again.stderr
    );
}

#[test]
fn a_bad_input_is_named_with_what_is_needed() {
    let place = Place::new();
    place.write("bad.jinja", "{% if %}");
    place.write("bad.json", "[1");
    place.write(
        "two.json",
        "{\"chat_template\": [{\"name\": \"a\", \"template\": \"\"}, {\"name\": \"b\", \"template\": \"\"}]}",
    );
    place.write("no.jinja", "{{ raise_exception('not this') }}");
    let cases: [(i32, &[&str], &str); 14] = [
        (2, &["lint", "none.jinja"], "none.jinja: there is no such file"),
        (2, &["lint", "bad.jinja"], "TemplateSyntaxError"),
        (2, &["lint", "bad.json"], "bad.json: invalid JSON"),
        (2, &["lint", "two.json"], "expected a chat template called default or tool_use, found a, b"),
        (2, &["lint", "."], "the folder holds no tokenizer.json or tokenizer_config.json"),
        (2, &["render", "t.jinja", "--messages", "bad.json"], "bad.json: invalid JSON"),
        (2, &["render", "t.jinja", "--messages", "two.json"], "two.json: expected a list of messages"),
        (
            2,
            &["render", "t.jinja", "--messages", "m.json", "--now", "2023-02-29T00:00:00"],
            "invalid time; expected YYYY-MM-DDThh:mm:ss",
        ),
        (2, &["render", "t.jinja", "--messages", "m.json", "--set", "x"], "expected NAME=JSON, found \"x\""),
        (1, &["render", "no.jinja", "--messages", "m.json"], "not this"),
        (2, &["repair", "t.jinja", "-o", "m.json"], "m.json: expected a new or an empty file"),
        (2, &["repair", "model", "-o", "model"], "model: expected a new or an empty folder"),
        (2, &["repair", "t.jinja", "--markers", "<x>"], "need a checkpoint's folder"),
        (2, &["repair", "model", "--resize"], "--resize needs --output"),
    ];
    for (code, arguments, want) in cases {
        let ran = place.template(arguments);
        assert!(ran.code == code && ran.stderr.contains(want), "{arguments:?}: {} {}", ran.code, ran.stderr);
        assert!(ran.stdout.is_empty(), "{arguments:?}: {}", ran.stdout);
    }
}

/// A tokenizer's file with this template and so many special tokens.
fn config(template: &str, tokens: usize) -> String {
    let token =
        |at: usize| (at.to_string(), json!({"content": format!("<|reserved_{at}|>"), "special": true}));
    let added: serde_json::Map<String, Value> = (0..tokens).map(token).collect();
    json!({"chat_template": template, "added_tokens_decoder": added}).to_string()
}

#[test]
fn many_special_tokens_are_broken_soon() {
    let place = Place::new();
    place.write(
        "tokenizer_config.json",
        &config("{% for m in messages %}{{ m.content }}{% endfor %}", 300_000),
    );
    let text = |at: usize| json!({"role": "user", "content": format!("a<|reserved_{at}|>b<|reserved_")});
    place.write("many.json", &Value::from((0..1000).map(text).collect::<Vec<_>>()).to_string());
    let ran = place.template(&["render", "tokenizer_config.json", "--messages", "many.json", "--defuse"]);
    assert!(
        ran.code == 0 && ran.stdout.contains("a<\u{2060}|reserved_999|>b<\u{2060}|reserved_"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stdout.contains("<|"), "a token is left");
}

#[test]
fn what_a_template_says_does_not_steer_the_terminal() {
    let place = Place::new();
    let escape = "\u{1b}]0;owned\u{7}\u{202e}";
    for source in [
        format!("{{{{ raise_exception('{escape}no') }}}}"),
        format!("{{{{ 'x' + {escape} }}}}"),
        format!("{{{{ 1|{escape}nope }}}}"),
        format!("{{% {escape} %}}"),
        format!("{escape}{{{{ gone.x }}}}{escape}"),
    ] {
        place.write("hostile.jinja", &source);
        for verb in [&["render", "hostile.jinja", "--messages", "m.json"][..], &["lint", "hostile.jinja"]] {
            let ran = place.template(verb);
            let said = ran.stdout + &ran.stderr;
            assert!(ran.code > 0 && !said.is_empty(), "{source:?}");
            assert!(!said.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{verb:?} {source:?}: {said:?}");
        }
    }
}
