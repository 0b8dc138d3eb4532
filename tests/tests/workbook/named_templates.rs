//! Contract: which of several chat templates a conversation is rendered with, and which special tokens it knows by name,
//! as transformers has it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::program::{Ran, run};
use trainer::chat_templates::{self, Place};
use trainer::markers::Markers;

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

/// A folder `model` of these files, messages without tools and with.
fn place(files: &[(&str, &str)]) -> TempDir {
    let place = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = place.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    write("m.json", "[{\"role\": \"user\", \"content\": \"hi\"}]");
    write("t.json", &json!([tool]).to_string());
    write("none.json", "[]");
    write("model/tokenizer.json", "{\"model\": {\"vocab\": {\"a\": 0}}}");
    for (name, text) in files {
        write(&format!("model/{name}"), text);
    }
    place
}

fn render(place: &TempDir, more: &[&str]) -> Ran {
    let line = [&["template", "render", "model", "--messages", "m.json"], more].concat();
    run(Path::new(TRAINER), place.path(), &line)
}

#[track_caller]
fn writes(place: &TempDir, more: &[&str], want: &str) {
    let ran = render(place, more);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, want), "{more:?}: {}", ran.stderr);
}

#[track_caller]
fn refuses(place: &TempDir, more: &[&str], want: &str) {
    let ran = render(place, more);
    assert!(ran.code == 2 && ran.stderr.contains(want), "{more:?}: {}{}", ran.stdout, ran.stderr);
}

fn config(templates: &Value) -> String {
    json!({"eos_token": "</s>", "chat_template": templates}).to_string()
}

/// A list of templates that write their own names.
fn named(names: &[&str]) -> String {
    let one = |name: &&str| json!({"name": name, "template": format!("{name} {{{{ tools is none }}}}")});
    config(&names.iter().map(one).collect())
}

/// A template that says nothing of tools.
const CHATML: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

const TOOLS: [&str; 2] = ["--tools", "t.json"];

#[test]
fn tools_choose_the_template_tool_use() {
    for names in [["default", "tool_use", "rag"], ["rag", "tool_use", "default"]] {
        let place = place(&[("tokenizer_config.json", &named(&names))]);
        writes(&place, &[], "default True");
        writes(&place, &TOOLS, "tool_use False");
        writes(&place, &["--tools", "none.json"], "tool_use False");
    }
    let place = place(&[("tokenizer_config.json", &named(&["default", "rag"]))]);
    writes(&place, &TOOLS, "default False");
}

#[test]
fn tools_inside_the_messages_file_choose_too() {
    let place = place(&[("tokenizer_config.json", &named(&["default", "tool_use"]))]);
    let message = json!({"role": "user", "content": "hi"});
    for (tools, want) in [(json!(null), "default True"), (json!([{"name": "f"}]), "tool_use False")] {
        let text = json!({"messages": [message], "tools": tools}).to_string();
        fs::write(place.path().join("m.json"), text).expect("a file");
        writes(&place, &[], want);
    }
}

#[test]
fn missing_default_is_an_error_without_tools() {
    let place = place(&[("tokenizer_config.json", &named(&["rag", "tool_use"]))]);
    writes(&place, &TOOLS, "tool_use False");
    refuses(&place, &[], "expected a chat template called default, or tools for tool_use");
    refuses(&place, &[], "rag, tool_use");
    for names in [&["rag"][..], &["rag", "a"]] {
        let place = self::place(&[("tokenizer_config.json", &named(names))]);
        refuses(&place, &TOOLS, "expected a chat template called default or tool_use, found rag");
    }
}

#[test]
fn template_files_replace_the_configuration() {
    let config = named(&["default", "tool_use"]);
    let config = ("tokenizer_config.json", config.as_str());
    let default = ("chat_template.jinja", "file {{ tools is none }}");
    let tool_use = ("additional_chat_templates/tool_use.jinja", "file tool_use");
    let only_default = place(&[config, default]);
    writes(&only_default, &TOOLS, "file False");
    let both = place(&[config, default, tool_use]);
    writes(&both, &[], "file True");
    writes(&both, &TOOLS, "file tool_use");
    let only_tools = place(&[config, tool_use]);
    writes(&only_tools, &TOOLS, "file tool_use");
    refuses(&only_tools, &[], "expected a chat template called default");
}

#[test]
fn processors_have_their_own_template() {
    let config = named(&["default", "tool_use"]);
    let config = ("tokenizer_config.json", config.as_str());
    let legacy = ("chat_template.json", "{\"chat_template\": \"legacy\"}");
    let images = ("preprocessor_config.json", "{}");
    writes(&place(&[config, legacy]), &[], "default True");
    writes(&place(&[config, legacy, images]), &[], "legacy");
    writes(&place(&[config, legacy, images, ("chat_template.jinja", "file")]), &[], "legacy");
    writes(&place(&[config, images]), &TOOLS, "default False");
    let processor = ("processor_config.json", "{\"chat_template\": \"own\"}");
    writes(&place(&[config, legacy, processor]), &[], "own");
    let both = place(&[config, legacy, images, ("additional_chat_templates/rag.jinja", "rag")]);
    refuses(&both, &[], "expected no folder additional_chat_templates next to a chat_template.json");
}

#[test]
fn special_tokens_are_variables_by_name() {
    let template = "{{ image_token }}|{{ eos_token }}|{{ boi_token }}|{{ tool_token }}|{{ add_bos_token }}";
    let cases = [
        json!({"image_token": "<i>", "boi_token": {"content": "<b>"}, "add_bos_token": true}),
        json!({"extra_special_tokens": {"image_token": "<i>", "boi_token": {"content": "<b>"}}}),
        json!({"additional_special_tokens": {"image_token": "<i>", "boi_token": "<b>"}}),
        json!({"extra_special_tokens": [], "additional_special_tokens": {"image_token": "<i>", "boi_token": "<b>"}}),
        json!({"model_specific_special_tokens": {"image_token": "<i>", "boi_token": "<b>"}}),
        json!({"image_token": "<other>", "extra_special_tokens": {"image_token": "<i>", "boi_token": "<b>"}}),
    ];
    for mut case in cases {
        case["chat_template"] = json!(template);
        case["eos_token"] = json!({"content": "</s>", "lstrip": false});
        let place = place(&[("tokenizer_config.json", &case.to_string())]);
        writes(&place, &[], "<i>|</s>|<b>||");
        writes(&place, &["--set", "image_token=<set>"], "<set>|</s>|<b>||");
    }
    let bad = json!({"chat_template": "", "extra_special_tokens": {"image_token": 5}}).to_string();
    refuses(
        &place(&[("tokenizer_config.json", &bad)]),
        &[],
        "extra_special_tokens.image_token: expected a token's text, found 5",
    );
}

#[test]
fn an_older_map_of_special_tokens_counts() {
    let template = json!({"chat_template": "{{ eos_token }}{{ image_token }}", "eos_token": "a"});
    let map = ("special_tokens_map.json", "{\"eos_token\": {\"content\": \"b\"}, \"image_token\": \"c\"}");
    let older = template.to_string();
    writes(&place(&[("tokenizer_config.json", &older), map]), &[], "bc");
    let mut newer = template;
    newer["added_tokens_decoder"] = json!({"0": {"content": "a"}});
    writes(&place(&[("tokenizer_config.json", &newer.to_string()), map]), &[], "a");
}

#[test]
fn lint_and_repair_take_every_template() {
    let config = config(&json!([
        {"name": "default", "template": CHATML},
        {"name": "rag", "template": "R"},
        {"name": "tool_use", "template": CHATML},
    ]));
    let place = place(&[("tokenizer_config.json", &config)]);
    let lint = |from: &str, more: &[&str]| {
        run(Path::new(TRAINER), place.path(), &[&["template", "lint", from], more].concat())
    };
    let ran = lint("model", &[]);
    assert!(ran.code == 1 && ran.stdout.contains("tool_use: drops-tools"), "{}{}", ran.stdout, ran.stderr);
    assert!(!ran.stdout.contains("default: drops-tools"), "{}", ran.stdout);
    let ran = lint("model", &["--json"]);
    let found: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let of = |name: &str| found.as_array().expect("a list").iter().any(|one| one["template"] == name);
    assert!(of("default") && of("tool_use") && !of("rag"), "{found}");
    let ran = run(Path::new(TRAINER), place.path(), &["template", "repair", "model", "-o", "out"]);
    assert_eq!(ran.stderr, "", "{}", ran.stdout);
    let markers = Markers::read(&place.path().join("out")).expect("it is sound");
    assert_eq!((markers.place, markers.template("rag")), (Place::TokenizerConfig, Some("R")));
    for name in [chat_templates::DEFAULT, chat_templates::TOOL_USE] {
        assert!(markers.template(name).is_some_and(|mended| mended != CHATML), "{name}");
    }
}

#[test]
fn repair_keeps_template_files_where_they_are() {
    let place = place(&[
        ("tokenizer_config.json", "{}"),
        ("chat_template.jinja", CHATML),
        ("additional_chat_templates/tool_use.jinja", CHATML),
        ("additional_chat_templates/rag.jinja", "R"),
    ]);
    let ran = run(Path::new(TRAINER), place.path(), &["template", "repair", "model", "-o", "out"]);
    assert_eq!(ran.stderr, "", "{}", ran.stdout);
    let file = Path::new("additional_chat_templates").join("tool_use.jinja");
    assert!(ran.stdout.contains(&format!("+++ {}", file.display())), "{}", ran.stdout);
    let read = |name: &str| fs::read_to_string(place.path().join("out").join(name)).expect("a file");
    assert_eq!(read("additional_chat_templates/rag.jinja"), "R");
    for name in ["chat_template.jinja", "additional_chat_templates/tool_use.jinja"] {
        assert_ne!(read(name), CHATML, "{name}");
    }
}

#[test]
fn large_whole_numbers_stay_exact_in_a_conversation() {
    let text =
        "{% for m in messages %}{{ m.content }} {{ m.x|tojson }}{% endfor %} {{ tools[0].max + 1 }} {{ n }}";
    let place = place(&[("tokenizer_config.json", &config(&json!(text)))]);
    let write = |name: &str, text: &str| fs::write(place.path().join(name), text).expect("a file");
    write(
        "m.json",
        "[{\"role\": \"user\", \"content\": 18446744073709551616, \"x\": {\"wei\": 100000000000000000001}}]",
    );
    write("t.json", "[{\"max\": -170141183460469231731687303715884105729}]");
    let set = [&TOOLS[..], &["--set", "n=-0"]].concat();
    let want =
        "18446744073709551616 {\"wei\": 100000000000000000001} -170141183460469231731687303715884105728 0";
    writes(&place, &set, want);
    write("m.json", "[{\"role\": \"user\", \"content\": {\"$whole-number\": \"5\"}}]");
    refuses(&place, &TOOLS, "expected no object with the key \"$whole-number\"");
    write("m.json", &format!("[{{\"role\": \"user\", \"content\": {}}}]", "9".repeat(4301)));
    refuses(&place, &TOOLS, "expected a whole number of at most 4300 digits, found 4301");
    write("m.json", "[{\"role\": \"user\",\n \"content\": 100000000000000000000, \"x\": }]");
    refuses(&place, &TOOLS, "line 2 column 41");
}
