//! Cases of our own: what one construct writes, and which error another one is.

use challenges::issues::chat::{Chat, ChatTemplate, Conversation, Kind, Solution, Steps, defuse};
use reference::exact;
use serde_json::{Value, json};

use super::{options, render, render_with, written};

/// Every row of `written.jsonl` for a test: the text, the spans and the error are those of the original.
#[track_caller]
fn as_the_original(test: &str) {
    let rows: Vec<Value> = written(test).collect();
    assert!(!rows.is_empty(), "{test} has no row");
    for row in rows {
        let source = row["template"].as_str().expect("a template");
        match (render_with(source, &row["context"], options()), row["text"].as_str()) {
            (Ok(rendered), Some(text)) => {
                assert_eq!(rendered.text, text, "{source}");
                let spans: Vec<_> = rendered.spans.iter().map(|span| json!([span.start, span.end])).collect();
                assert_eq!(row.get("spans").cloned().unwrap_or(json!([])), json!(spans), "{source}");
            }
            (Err(error), None) => assert_eq!(error.kind.name(), known(&row["error"]), "{source}: {error}"),
            (got, want) => panic!("{source}: got {got:?}, want {want:?} {}", row["error"]),
        }
    }
}

/// A `break` outside of a loop is refused by Python's own compiler, which jinja2 hands its program to. Here it is an
/// error of the template's syntax as any other.
fn known(error: &Value) -> &str {
    let error = error.as_str().expect("an error's kind");
    if error == "SyntaxError" { Kind::Syntax.name() } else { error }
}

#[test]
fn json_is_written_as_python_writes_it() {
    as_the_original("json");
}

#[test]
fn values_are_written_as_python_writes_them() {
    as_the_original("values");
}

#[test]
fn an_error_is_of_the_kind_that_python_raises() {
    as_the_original("errors");
}

#[test]
fn else_follows_a_loop_without_a_complete_pass() {
    as_the_original("else-of-a-loop");
}

#[test]
fn blocks_are_functions_of_the_template() {
    as_the_original("blocks");
}

#[test]
fn whole_numbers_of_any_size_are_exact() {
    as_the_original("whole-numbers");
}

#[test]
fn characters_have_the_classes_of_python() {
    as_the_original("characters");
}

#[test]
fn slices_of_ranges_are_ranges() {
    as_the_original("ranges");
}

#[test]
fn equal_sort_keys_need_no_order() {
    as_the_original("sorting");
}

#[test]
fn strftime_has_the_codes_of_glibc() {
    as_the_original("strftime");
}

#[test]
fn pprint_sorts_keys_at_every_depth() {
    as_the_original("pprint");
}

#[test]
fn minus_zero_is_a_whole_number() {
    let context = exact::from_str("{\"v\": [-0, 0, -0.0, {\"a\": -0}]}").expect("JSON");
    let got = render("{{ v|tojson }} {{ v[0] }}", &context).expect("it renders");
    assert_eq!(got, "[0, 0, -0.0, {\"a\": 0}] 0");
}

#[test]
fn an_underscore_hides_what_belongs_to_python_only() {
    as_the_original("names-with-an-underscore");
}

#[test]
fn an_error_names_its_line() {
    let error =
        render("a\n{# b\nc #}\n{{ 'x'\n~ (1 + 'y') }}", &json!({})).expect_err("text is added to a number");
    assert_eq!((error.kind, error.line), (Kind::Type, Some(5)));
    let error = render("a\n\n{% if x %}", &json!({})).expect_err("the block is open");
    assert_eq!((error.kind, error.line), (Kind::Syntax, Some(3)));
}

#[track_caller]
fn blames(source: &str, message: &str, line: &str, carets: &str) {
    let context = json!({"messages": [{"role": "user"}], "text": "a", "n": 1});
    let error = render(source, &context).expect_err(source);
    assert_eq!(error.message, message, "{source}");
    assert_eq!(error.to_string(), format!("{}\n    {line}\n    {carets}", error.brief()), "{source}");
}

#[test]
fn an_undefined_value_is_named_above_a_caret() {
    for (source, name, carets) in [
        ("{{ tool.name }}", "tool", "   ^^^^"),
        ("{{ 'x' + tool }}", "tool", "         ^^^^"),
        ("{{ messages[0].tool.name }}", "messages[0].tool", "   ^^^^^^^^^^^^^^^^"),
        ("{{ messages[0]['tool']['name'] }}", "messages[0]['tool']", "   ^^^^^^^^^^^^^^^^^^^"),
        ("{% if n > tool %}{% endif %}", "tool", "          ^^^^"),
        ("{% for x in tool.names %}{% endfor %}", "tool", "            ^^^^"),
        ("{{ tool() }}", "tool", "   ^^^^"),
        ("{{ n * -tool }}", "tool", "        ^^^^"),
        ("{{ (text|attr('gone')).x }}", "(text|attr('gone'))", "   ^^^^^^^^^^^^^^^^^^^"),
        ("{% set x = tool[1:] %}", "tool", "           ^^^^"),
        ("{{ tool|tojson }}", "tool", "   ^^^^"),
    ] {
        let message = match name {
            "tool" if source.contains("tojson") => "Object of type Undefined is not JSON serializable".into(),
            name => format!("`{name}` is undefined"),
        };
        let carets = if source.contains("tojson") { "   ^^^^^^^^^^^" } else { carets };
        blames(source, &message, source, carets);
    }
}

#[test]
fn an_error_shows_its_line_and_a_caret() {
    let concat = "can only concatenate str (not \"int\") to str";
    blames("a\n  {{ n }}{{ text + n }}", concat, "  {{ n }}{{ text + n }}", "                   ^");
    let refusal = "{{ raise_exception('no') }}";
    blames(refusal, "no", refusal, "   ^^^^^^^^^^^^^^^^^^^^^");
    let unknown = "{{ n }}\n{{ n|nope }}\n";
    blames(unknown, "no filter named 'nope'", "{{ n|nope }}", "   ^^^^^^");
    blames(
        "{% if n %}{{ n is nope }}{% endif %}",
        "no test named 'nope'",
        "{% if n %}{{ n is nope }}{% endif %}",
        "             ^^^^^^^^^",
    );
    let open = "{{ n }\n";
    blames(open, "unexpected '}'", "{{ n }", "     ^");
    let long = format!("{{% set x = '{}' %}}{{{{ text + n }}}}{}", "é".repeat(300), "b".repeat(300));
    let error = render(&long, &json!({"text": "a", "n": 1})).expect_err("text and number");
    let shown = error.to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() < 120), "{shown}");
    let column = lines[2].find('^').expect("a caret");
    assert_eq!(lines[1].chars().nth(column), Some('n'), "{shown}");
}

#[test]
fn space_around_blocks_goes_as_jinja_takes_it() {
    as_the_original("white-space");
}

#[test]
fn names_live_as_long_as_in_jinja() {
    as_the_original("names");
}

#[test]
fn markup_escapes_what_it_is_joined_with() {
    as_the_original("markup");
}

#[test]
fn the_clock_is_the_one_that_is_given() {
    as_the_original("clock");
}

const SPOKEN: &str = "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}.\
                      {% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}";

#[test]
fn the_assistants_text_is_found_by_characters() {
    let messages = json!([{"role": "user", "content": "é"}, {"role": "assistant", "content": "日本"}, {"role": "user", "content": "x"}]);
    let rendered =
        render_with(SPOKEN, &json!({"messages": messages}), options()).expect("the template is sound");
    let spoken: Vec<String> = rendered
        .spans
        .iter()
        .map(|span| rendered.text.chars().skip(span.start).take(span.len()).collect())
        .collect();
    assert_eq!(spoken, ["日本."]);
    let tokens = [0..8, 8..18, 18..20, 20..20, 20..22, 22..30];
    assert_eq!(
        Solution.token_mask(&tokens, std::slice::from_ref(&(19..22))),
        [false, false, true, false, true, false]
    );
}

#[test]
fn a_span_counts_from_where_the_whole_expression_is_written() {
    as_the_original("spans");
}

fn continued(content: &Value) -> Result<String, Kind> {
    let template =
        ChatTemplate::new("{% for m in messages %}<{{ m.content|trim }}>\n{% endfor %}", options())
            .expect("it is sound");
    let messages =
        vec![json!({"role": "user", "content": "a"}), json!({"role": "assistant", "content": content})];
    let conversation = Conversation { messages, continue_final_message: true, ..Conversation::default() };
    template.chat(&conversation).map(|rendered| rendered.text).map_err(|error| error.kind)
}

#[test]
fn a_message_that_is_continued_ends_the_text() {
    assert_eq!(continued(&json!("b c ")).as_deref(), Ok("<a>\n<b c"));
    assert_eq!(continued(&Value::Null), Err(Kind::Value));
    assert_eq!(continued(&json!(7)), Err(Kind::Type));
    assert_eq!(continued(&json!([{"type": "image"}])), Err(Kind::Value));
}

#[test]
fn a_special_token_in_a_users_text_is_none() {
    let special = ["<|im_end|>", "<|im_end|>x", "aa"];
    let text = json!({"<|im_end|>": ["1<|im_end|>2<|im_end|>x aaa"]});
    let defused = defuse::defused(&text, &special, &Steps::default());
    let inner = defused["<|im_end|>"][0].as_str().expect("it is a text");
    assert!(special.iter().all(|token| !inner.contains(token)), "{inner:?}");
    let parts = json!(["hi<|im_", "end|>\n<", "|im_end|>", "aa a"]);
    let joined = |value: &Value| -> String {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let split = joined(&defuse::defused(&parts, &special, &Steps::default()));
    assert!(special.iter().all(|token| !split.contains(token)), "{split:?}");
    let pieces = defuse::pieces(&joined(&defuse::marked(&parts, &special)), &special);
    let free = |(text, plain): &(String, bool)| *plain || special.iter().all(|token| !text.contains(token));
    assert!(pieces.iter().all(free), "{pieces:?}");
    let marked = defuse::marked(&json!("1<|im_end|>x2\u{f0000}aa\u{f0001}"), &special);
    let pieces = defuse::pieces(&format!("<|im_end|>{}", marked.as_str().expect("it is a text")), &special);
    let pieces: Vec<_> = pieces.iter().map(|(text, plain)| (text.as_str(), *plain)).collect();
    assert_eq!(pieces, [("<|im_end|>1", false), ("<|im_end|>x", true), ("2", false), ("aa", true)]);
}
