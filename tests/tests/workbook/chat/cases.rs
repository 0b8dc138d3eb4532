//! Cases of our own: what one construct writes, and which error another one is.

use challenges::issues::chat::{
    Chat, Conversation, Kind, Layout, Solution, Steps, Template, defuse, json_text,
};
use serde_json::{Value, json};

use super::{options, render, render_with};

#[track_caller]
fn writes(source: &str, context: &Value, want: &str) {
    assert_eq!(render(source, context).as_deref(), Ok(want), "{source}");
}

#[track_caller]
fn fails(source: &str, context: &Value, want: Kind) {
    let got = render(source, context).expect_err(source);
    assert_eq!(got.kind, want, "{source}: {got}");
}

#[test]
fn json_is_written_as_python_writes_it() {
    let value = json!({"b": [1, 2.0, 1e22, 1e-7, null, true], "a": "é\"\\\n\u{1f}\u{7f}🦥"});
    let plain = "{\"b\": [1, 2.0, 1e+22, 1e-07, null, true], \"a\": \"é\\\"\\\\\\n\\u001f\u{7f}🦥\"}";
    writes("{{ v|tojson }}", &json!({"v": value}), plain);
    writes(
        "{{ v|tojson(ensure_ascii=true) }}",
        &json!({"v": "é🦥\u{7f}"}),
        "\"\\u00e9\\ud83e\\udda5\\u007f\"",
    );
    writes(
        "{{ v|tojson(indent=2) }}",
        &json!({"v": {"a": [], "b": [1]}}),
        "{\n  \"a\": [],\n  \"b\": [\n    1\n  ]\n}",
    );
    writes(
        "{{ v|tojson(separators=(',', ':'), sort_keys=true) }}",
        &json!({"v": {"b": 1, "a": 2}}),
        "{\"a\":2,\"b\":1}",
    );
    let layout = Layout { sort_keys: true, ..Layout::default() };
    assert_eq!(
        json_text(&json!({"z": 1, "a": -0.0}), &layout, &Steps::default()).as_deref(),
        Ok("{\"a\": -0.0, \"z\": 1}")
    );
}

#[test]
fn values_are_written_as_python_writes_them() {
    let context = json!({"v": [1, 2.50, null, true, "it's", {"k": "q\"'"}]});
    writes("{{ v }}", &context, "[1, 2.5, None, True, \"it's\", {'k': 'q\"\\''}]");
    writes("{{ (1,) }}{{ () }}{{ {1: 'a'} }}{{ range(3) }}", &json!({}), "(1,)(){1: 'a'}range(0, 3)");
    writes(
        "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 70 }}",
        &json!({}),
        "3 -4 2 3.5 1180591620717411303424",
    );
    writes(
        "{{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 1.5e300 * 10 }}",
        &json!({}),
        "0.30000000000000004 1e+16 1000000000000000.0 1.5e+301",
    );
}

#[test]
fn an_error_is_of_the_kind_that_python_raises() {
    fails("{{ raise_exception('no') }}", &json!({}), Kind::RaiseException);
    fails("{% for x in none %}{% endfor %}", &json!({}), Kind::Type);
    fails("{{ v|map('upper')|tojson }}", &json!({"v": ["a"]}), Kind::Type);
    fails("{{ v.a.b }}", &json!({"v": {}}), Kind::Undefined);
    fails("{{ 'a' + 1 }}", &json!({}), Kind::Type);
    fails("{{ 'a' + v }}", &json!({}), Kind::Undefined);
    fails("{{ [1].append(2) }}", &json!({}), Kind::Security);
    fails("{{ ''.__class__.__mro__ }}", &json!({}), Kind::Security);
    fails("{{ namespace(_x=1) }}", &json!({}), Kind::Security);
    fails("{{ 1 // 0 }}", &json!({}), Kind::ZeroDivision);
    fails("{{ range(1000000) }}", &json!({}), Kind::Overflow);
    fails("{{ x|nosuch }}", &json!({}), Kind::Assertion);
    fails("{% if %}", &json!({}), Kind::Syntax);
    fails("{% break %}", &json!({}), Kind::Syntax);
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
    writes("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", &json!({}), "a\n  b\nc");
    writes("a {%- if true -%} b {%- endif +%}\n c", &json!({}), "ab\n c");
    writes("a\r\nb\rc\r\n", &json!({}), "a\nb\nc");
    writes("{% raw %}{{ x }}{% endraw %}{# {{ #}{{ '}}' }}", &json!({}), "{{ x }}}}");
    writes("  {{ 1 }}\n  {%+ if true %}\nx{% endif %}", &json!({}), "  1\n  x");
}

#[test]
fn names_live_as_long_as_in_jinja() {
    writes("{% set x = 1 %}{% for i in [1, 2] %}{% set x = i %}{% endfor %}{{ x }}", &json!({}), "1");
    let counter =
        "{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}";
    writes(counter, &json!({}), "3");
    writes(
        "{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
        &json!({}),
        "13",
    );
    let called = "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ caller() }}{% endmacro %}{% call m(1, 2, 3) %}!{% endcall %}";
    writes(called, &json!({}), "12(3,)!");
    let walk = "{% for x in v recursive %}{{ loop.depth }}{% if x is sequence %}({{ loop(x) }}){% endif %}{% endfor %}";
    writes(walk, &json!({"v": [1, [2]]}), "11(2)");
}

#[test]
fn markup_escapes_what_it_is_joined_with() {
    writes("{{ ('<b>'|safe) + '<' }}{{ '<'|e }}{{ '<' }}", &json!({}), "<b>&lt;&lt;<");
    writes("{% autoescape true %}{{ '<' }}{{ v }}{% endautoescape %}", &json!({"v": "&"}), "&lt;&amp;");
}

#[test]
fn the_clock_is_the_one_that_is_given() {
    writes("{{ strftime_now('%d %B %Y %H:%M %a %j %-d') }}", &json!({}), "05 January 2026 09:07 Mon 005 5");
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
    let says = "{% macro m() %}{% generation %}GEN{% endgeneration %}{% endmacro %}";
    let source = says.to_owned() + "{{ 'ab' ~ m() }}|{{ 'cd' + m() }}|{{ m() }}|{{ 'x' ~ ('y' ~ m()) }}";
    let rendered = render_with(&source, &json!({}), options()).expect("the template is sound");
    assert_eq!(rendered.text, "abGEN|cdGEN|GEN|xyGEN");
    assert_eq!(rendered.spans, [0..3, 6..9, 12..15, 16..19]);
}

fn continued(content: &Value) -> Result<String, Kind> {
    let template = Template::new("{% for m in messages %}<{{ m.content|trim }}>\n{% endfor %}", options())
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
