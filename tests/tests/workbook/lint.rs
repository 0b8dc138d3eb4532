//! What a template loses is found, one fault at a time; what can be mended is, and all else stays as it was.

use std::collections::BTreeSet;
use std::fs;

use challenges::issues::chat::lint::{Finding, Rule, limits, lint, probes};
use challenges::issues::chat::parse::{ResponseTemplate as Response, parse};
use challenges::issues::chat::{ChatTemplate, Clock, Conversation, Moment, Options};
use proptest::prelude::*;
use serde_json::{Value, json};
use tests::golden;
use trainer::repair::{HERMES, LLAMA, Options as RepairOptions, Style, repair, repair_by, unified};

/// A template without a fault.
const HONEST: &str = r#"{%- if tools %}{{ '<|tools|>' ~ tools | tojson ~ '<|end|>\n' }}{% endif %}
{%- for message in messages %}
    {{- '<|' ~ message.role ~ '|>' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}
        {{- message.content if message.content is string else '' }}
        {%- for call in message.tool_calls or [] %}
            {%- set arguments = call.function.arguments %}
            {{- '<call>{"name": ' ~ call.function.name | tojson ~ ', "arguments": ' ~ (arguments if arguments is string else arguments | tojson) ~ '}</call>' }}
        {%- endfor %}
        {{- '<|end|>' }}
        {%- endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- message.content ~ '<|end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"#;

const CONTENT: &str = "message.content if message.content is string else ''";
const HEAD: &str = "{{- '<|' ~ message.role ~ '|>' }}";
const OTHERS: &str = "{{- message.content ~ '<|end|>\\n' }}";
const ARGUMENTS: &str = "(arguments if arguments is string else arguments | tojson)";

/// For each rule a change of the honest template that breaks it, and whether that can be mended.
fn broken() -> Vec<(Rule, String, bool)> {
    let one = |rule, from: &str, to: &str, mends| {
        assert!(HONEST.contains(from), "{rule:?}: {from}");
        (rule, HONEST.replace(from, to), mends)
    };
    let refusing = |role: &str| {
        format!(
            "{{%- if message.role == '{role}' %}}{{{{ raise_exception('no {role}') }}}}{{% endif %}}\n{HEAD}"
        )
    };
    let end = "{{- '<|end|>' }}\n        {%- endgeneration %}";
    let begin = format!("{{%- generation %}}\n        {{{{- {CONTENT} }}}}");
    vec![
        one(Rule::Unusable, CONTENT, "''", false),
        one(Rule::NoSystem, HEAD, &refusing("system"), true),
        one(Rule::LosesSpace, OTHERS, "{{- message.content.split() | join(' ') ~ '<|end|>\\n' }}", false),
        one(Rule::PromptDiffers, "'<|assistant|>'", "'<|assistant|><think>'", false),
        one(Rule::TellsTime, "{%- if tools %}", "{{ strftime_now('%Y') }}{%- if tools %}", false),
        one(Rule::DropsTools, "{%- if tools %}", "{%- if false %}", true),
        one(
            Rule::CutsTools,
            "tools | tojson",
            "tools | map(attribute='function') | map(attribute='name') | join",
            false,
        ),
        one(Rule::DropsCall, "message.tool_calls or []", "[]", true),
        one(Rule::DropsContent, CONTENT, &format!("({CONTENT}) if not message.tool_calls else ''"), false),
        one(
            Rule::NeedsObject,
            ARGUMENTS,
            "(raise_exception('no text') if arguments is string else arguments | tojson)",
            false,
        ),
        one(Rule::NeedsText, ARGUMENTS, "('' + arguments)", true),
        one(Rule::EncodesTwice, ARGUMENTS, "arguments | tojson", true),
        one(Rule::PythonArguments, ARGUMENTS, "arguments", true),
        one(Rule::NoToolRole, HEAD, &refusing("tool"), true),
        one(
            Rule::DropsResult,
            OTHERS,
            "{{- (message.content if message.role != 'tool' else '') ~ '<|end|>\\n' }}",
            true,
        ),
        one(
            Rule::QuotesResult,
            OTHERS,
            "{{- (message.content | tojson if message.role == 'tool' else message.content) ~ '<|end|>\\n' }}",
            true,
        ),
        (
            Rule::NoGeneration,
            HONEST.replace("endgeneration", "endif").replace("generation %", "if true %"),
            true,
        ),
        one(Rule::LeavesText, &begin, &format!("{{{{- {CONTENT} }}}}{{%- generation %}}"), true),
        one(Rule::LeavesEnd, end, "{%- endgeneration %}\n        {{- '<|end|>' }}", true),
        one(Rule::TrainsInput, OTHERS, &format!("{{%- generation %}}{OTHERS}{{%- endgeneration %}}"), true),
    ]
}

fn compiled(source: &str) -> ChatTemplate {
    let options = Options { limits: limits(), ..Options::default() };
    ChatTemplate::new(source, options).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

fn found(source: &str) -> Vec<Finding> {
    lint(&compiled(source))
}

fn rules(findings: &[Finding]) -> Vec<Rule> {
    findings.iter().map(|finding| finding.rule).collect()
}

fn says(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

#[test]
fn an_honest_template_has_no_fault() {
    assert_eq!(found(HONEST).iter().map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn a_template_that_breaks_one_rule_is_found_to_break_that_one() {
    for (rule, source, _) in broken() {
        let findings = found(&source);
        assert_eq!(rules(&findings), [rule], "{findings:?}\n{source}");
        assert!(findings[0].to_string().starts_with(rule.name()), "{}", findings[0]);
    }
}

#[test]
fn every_rule_is_broken_by_a_template_and_sought_by_a_probe() {
    let all: BTreeSet<Rule> = Rule::ALL.into_iter().collect();
    assert_eq!(broken().into_iter().map(|(rule, ..)| rule).collect::<BTreeSet<_>>(), all);
    let names: BTreeSet<&str> = all.iter().map(|rule| rule.name()).collect();
    assert_eq!(names.len(), all.len());
    let expectations = probes().into_iter().flat_map(|probe| {
        probe.expectations.into_iter().map(|expectation| expectation.rule).chain(probe.refused)
    });
    assert_eq!(expectations.collect::<BTreeSet<_>>(), all);
}

#[test]
fn the_second_of_two_calls_is_missed() {
    let findings = found(&HONEST.replace("message.tool_calls or []", "(message.tool_calls or [])[:1]"));
    assert_eq!(rules(&findings), [Rule::DropsCall]);
    assert!(findings[0].to_string().contains("the second call's argument"), "{}", findings[0]);
}

#[test]
fn what_is_mended_is_found_no_more_and_what_is_left_says_why() {
    for (rule, source, mends) in broken() {
        let repaired = repair(&source, &found(&source));
        let after = found(&repaired.source);
        assert_eq!(rules(&repaired.fixed), if mends { vec![rule] } else { vec![] }, "{}", repaired.diff);
        assert_eq!(rules(&after), if mends { vec![] } else { vec![rule] }, "{after:?}\n{}", repaired.source);
        assert_eq!(repaired.unfixed.len(), usize::from(!mends));
        assert!(repaired.unfixed.iter().all(|unfixed| !unfixed.why.is_empty()));
        assert_eq!(repaired.source != source, mends);
    }
}

#[test]
fn a_model_is_told_of_no_way_of_calling_that_is_not_written() {
    let without_tools = HONEST.replace("{%- if tools %}", "{%- if false %}");
    let with_none = without_tools.replace("message.tool_calls or []", "[]");
    for (source, message) in [(without_tools, false), (with_none, true)] {
        let repaired = repair(&source, &found(&source));
        assert!(repaired.unfixed.is_empty(), "{:?}", repaired.unfixed);
        assert!(repaired.source.contains("each line declares one"), "{}", repaired.source);
        assert_eq!(repaired.source.contains("<tool_call>"), message, "{}", repaired.source);
        assert!(!repaired.source.contains("<tool_response>"), "{}", repaired.source);
    }
}

#[test]
fn what_is_missing_of_a_tool_is_shown_beside_its_name() {
    let (_, source, _) = broken().into_iter().find(|(rule, ..)| *rule == Rule::CutsTools).expect("a rule");
    let said = found(&source)[0].to_string();
    assert!(said.contains("<|tools|>count_barges<|end|>"), "{said}");
}

#[test]
fn repair_is_idempotent() {
    for (_, source, _) in broken() {
        let once = repair(&source, &found(&source)).source;
        let twice = repair(&once, &found(&once));
        assert_eq!((twice.source.as_str(), twice.diff.as_str()), (once.as_str(), ""));
    }
}

#[test]
fn texts_alone_are_rendered_as_before() {
    let conversations = [
        vec![says("user", "a\n\n  b")],
        vec![says("user", "a"), says("assistant", "b"), says("user", "c")],
        vec![says("user", ""), says("assistant", "<|assistant|>")],
    ];
    for (rule, source, _) in broken() {
        let [before, after] =
            [source.clone(), repair(&source, &found(&source)).source].map(|source| compiled(&source));
        for (messages, add_generation_prompt) in
            conversations.iter().flat_map(|all| [(all, false), (all, true)])
        {
            let conversation =
                Conversation { messages: messages.clone(), add_generation_prompt, ..Conversation::default() };
            let text = |template: &ChatTemplate| template.chat(&conversation).map(|rendered| rendered.text);
            assert_eq!(text(&before), text(&after), "{rule:?}");
        }
    }
}

/// A template of texts alone, of the form that many models came with.
const PLAIN: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

fn styled(style: Style) -> ChatTemplate {
    let options = RepairOptions { style, ..RepairOptions::default() };
    let repaired = repair_by(PLAIN, &found(PLAIN), &options);
    assert!(repaired.unfixed.is_empty(), "{:?}", repaired.unfixed);
    compiled(&repaired.source)
}

/// A value of JSON whose texts hold no marker.
fn argument() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z\"\\\\\n{}:é ]{0,10}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{1,5}", inner, 0..3)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn calls_that_a_mended_template_writes_are_read_back(
        calls in proptest::collection::vec(("[a-z_]{1,9}", proptest::collection::btree_map("[a-z]{1,5}", argument(), 0..3)), 1..4),
        llama in any::<bool>(),
    ) {
        let style = if llama { LLAMA } else { HERMES };
        thread_local! {
            static MENDED: [ChatTemplate; 2] = [styled(HERMES), styled(LLAMA)];
        }
        let want: Vec<Value> = calls.iter().map(|(name, arguments)| json!({"type": "function", "function": {"name": name, "arguments": arguments}})).collect();
        let messages = vec![says("user", "a"), json!({"role": "assistant", "content": "", "tool_calls": want})];
        let conversation = Conversation { messages, ..Conversation::default() };
        let rendered = MENDED.with(|mended| mended[usize::from(llama)].chat(&conversation)).expect("it renders");
        let span = rendered.spans.first().expect("a mark").clone();
        let text: String = rendered.text.chars().skip(span.start).take(span.len()).collect();
        let response = Response::new(&style.response("<|im_start|>assistant\n", "<|im_end|>")).expect("a sound template");
        let message = parse(&response, "", &text).expect("it parses");
        prop_assert_eq!(message.get("tool_calls"), Some(&Value::from(want)), "{}", text);
    }

    #[test]
    fn a_diff_makes_the_new_text_of_the_old(old in "([ab]\n?){0,12}", new in "([ab]\n?){0,12}") {
        prop_assert_eq!(patched(&old, &unified(&old, &new, "it")), new);
    }

    #[test]
    fn nothing_panics_on_templates_of_any_pieces(pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..16)) {
        let source = pieces.concat();
        if let Ok(template) = ChatTemplate::new(&source, Options { limits: limits(), ..Options::default() }) {
            let _ = repair(&source, &lint(&template));
        }
    }

    #[test]
    fn a_repair_of_any_text_gives_a_template_or_the_text(source in "[{}%#-]{0,3}[a-z {}%'|\n]{0,24}") {
        let nothing = Finding { rule: Rule::NoGeneration, probe: "", expectation: None, observed: challenges::issues::chat::lint::Observed::Text(String::new()) };
        let _ = repair(&source, &[nothing]);
    }
}

/// Pieces of templates that write messages.
const PIECES: [&str; 18] = [
    "{% for message in messages %}",
    "{%- for m in messages -%}",
    "{% endfor %}",
    "{%- endfor +%}",
    "{{ message.role }}",
    "{{ message['content'] }}",
    "{{- m.content | tojson -}}",
    "{% if message.role == 'assistant' %}",
    "{% else %}",
    "{% endif %}",
    "{% generation %}",
    "{% endgeneration %}",
    "{% set turn %}",
    "{% endset %}",
    "{% raw %}{{ x",
    "{% endraw %}",
    "{# turn #}",
    "<role>\n",
];

/// `old` after a unified diff.
fn patched(old: &str, diff: &str) -> String {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let (mut at, mut out) = (0, String::new());
    let mut lines = diff.split_inclusive('\n').skip(2).peekable();
    while let Some(line) = lines.next() {
        let bare = matches!(lines.peek(), Some(next) if next.starts_with('\\'));
        let text = if bare { line[1..].trim_end_matches('\n') } else { &line[1..] };
        match line.as_bytes()[0] {
            b'@' => {
                let place = line[4..].split(' ').next().expect("a place");
                let (begin, count) = place.split_once(',').unwrap_or((place, "1"));
                let begin = begin.parse::<usize>().expect("a number") - usize::from(count != "0");
                out.extend(old[at..begin].iter().copied());
                at = begin;
            }
            b' ' | b'-' => {
                assert_eq!(old[at], text);
                at += 1;
                out.push_str(if line.starts_with(' ') { text } else { "" });
            }
            b'+' => out.push_str(text),
            _ => (),
        }
    }
    out.extend(old[at..].iter().copied());
    out
}

#[test]
fn a_template_that_takes_too_long_is_found_to() {
    let source = "{% for m in messages %}{{ m.content }}{% endfor %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    let findings = found(source);
    assert_eq!(rules(&findings), [Rule::Unusable]);
    assert!(findings[0].to_string().contains("limit"), "{}", findings[0]);
}

fn conversation(row: &Value) -> Conversation {
    let named = |name: &str| row[name].as_object().cloned().unwrap_or_default();
    Conversation {
        messages: row["messages"].as_array().cloned().unwrap_or_default(),
        documents: Some(row["documents"].clone()).filter(|value| !value.is_null()),
        add_generation_prompt: row["add_generation_prompt"] == true,
        continue_final_message: row["continue_final_message"] == true,
        variables: named("special_tokens").into_iter().chain(named("kwargs")).collect(),
        ..Conversation::default()
    }
}

/// Whether a row has neither tools nor calls nor answers.
fn is_of_texts(row: &Value) -> bool {
    let messages = row["messages"].as_array().into_iter().flatten();
    let uses = |message: &Value| message.get("tool_calls").is_some() || message["role"] == "tool";
    row["tools"].is_null() && !messages.into_iter().any(uses)
}

#[test]
fn a_mended_template_renders_what_has_no_tools_as_transformers_renders_it_unmended() {
    let (Some(folder), Some(rows)) = (golden::chat_folder(), golden::chat_rows("render-trl")) else { return };
    let names: BTreeSet<&str> = rows.iter().filter_map(|row| row["template_file"].as_str()).collect();
    let moment = Moment { year: 2026, month: 1, day: 5, hour: 9, minute: 7, second: 3 };
    let options = Options { clock: Clock::Fixed(moment), ..Options::default() };
    let (mut fixed, mut left, mut compared) = (0, 0, 0);
    for name in names {
        let source =
            fs::read_to_string(folder.join("templates").join(name)).expect("a golden template can be read");
        let findings = found(&source);
        let repaired = repair(&source, &findings);
        assert_eq!(
            rules(&found(&repaired.source)),
            repaired.unfixed.iter().map(|unfixed| unfixed.finding.rule).collect::<Vec<_>>()
        );
        (fixed, left) = (fixed + repaired.fixed.len(), left + repaired.unfixed.len());
        let mended = ChatTemplate::new(&repaired.source, options.clone())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        for row in rows
            .iter()
            .filter(|row| row["template_file"] == name && row["expected"].is_string() && is_of_texts(row))
        {
            let got = mended
                .chat(&conversation(row))
                .unwrap_or_else(|error| panic!("{name} {}: {error}", row["case_id"]));
            assert_eq!(row["expected"], got.text, "{name} {}", row["case_id"]);
            compared += 1;
        }
    }
    println!(
        "{fixed} findings are mended, {left} are left; {compared} conversations of texts are what they were"
    );
}
