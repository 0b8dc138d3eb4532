//! Laws: JSON text, and that nothing panics whatever is rendered.

use challenges::issues::chat::{
    Chat, ChatTemplate, Conversation, Layout, Limits, Options, Solution, Steps, defuse, json_text,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{options, render_with};

/// JSON without floats, which Python writes in its own way, and in plain characters.
fn plain_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[ -~]{0,6}", inner, 0..4)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Pieces of which templates are made, sound and broken.
const PIECES: [&str; 64] = [
    "{{ ",
    " }}",
    "{% ",
    " %}",
    "{%- ",
    " -%}",
    "{# ",
    " #}",
    "v",
    "w",
    "loop",
    "ns",
    "m",
    "1",
    "-3",
    "0",
    "2.5",
    "'a\u{e9}'",
    "none",
    "true",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    ":",
    ",",
    ".",
    "|",
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "~",
    "==",
    "<",
    " in ",
    " not ",
    " is ",
    " and ",
    " or ",
    " if ",
    " else ",
    "for x in v",
    "endfor",
    "endif",
    "set x = v",
    "endset",
    "macro m(a, b=1)",
    "endmacro",
    "tojson",
    "join",
    "map('upper')",
    "sort",
    "slice(2)",
    "x.items()",
    "x.split('a')",
    "format(1)",
    "::-1",
    "break",
];

/// Whole tags, so that more of what is tried compiles.
const TAGS: [&str; 30] = [
    "{% for x in v %}",
    "{% endfor %}",
    "{% if v %}",
    "{% elif w %}",
    "{% else %}",
    "{% endif %}",
    "{% set x = v %}",
    "{{ x }}",
    "{{ v|tojson(indent=1) }}",
    "{{ v[::-1] }}",
    "{{ w[1:] ~ v }}",
    "{% macro m(a, b=w) %}",
    "{% endmacro %}",
    "{{ m(v) }}",
    "{% set ns = namespace(a=v) %}",
    "{% set ns.a = [ns.a] %}",
    "{{ ns.a }}",
    "{% generation %}",
    "{% endgeneration %}",
    "{{ loop.index }}",
    "{% continue %}",
    "{% break %}",
    "{{ v|groupby(0)|list }}",
    "{{ v|batch(2)|list }}",
    "{{ '%s' % v }}",
    "{{ '{}{:>5}'.format(v, w) }}",
    "{{ v|sort|join(',') }}",
    "{{ w|upper|trim|title }}",
    "text\n",
    "{{ v * 3 }}",
];

fn tiny() -> Options {
    let limits = Limits { steps: 20_000, work_bytes: 4 << 20, output_bytes: 1 << 20, ..Limits::default() };
    Options { limits, ..options() }
}

fn pieces(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(of), 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn json_text_is_what_any_reader_reads_back(value in plain_json()) {
        let compact = Layout { separators: (",".into(), ":".into()), ..Layout::default() };
        prop_assert_eq!(json_text(&value, &compact, &Steps::default()).expect("it is not deep"), value.to_string());
        for layout in [Layout::default(), Layout { indent: Some("  ".into()), ensure_ascii: true, ..Layout::default() }] {
            let text = json_text(&value, &layout, &Steps::default()).expect("it is not deep");
            prop_assert_eq!(&serde_json::from_str::<Value>(&text).expect("JSON"), &value);
        }
    }

    #[test]
    fn floats_are_read_back_as_they_were(value in any::<f64>().prop_filter("finite", |value| value.is_finite())) {
        let text = json_text(&json!(value), &Layout::default(), &Steps::default()).expect("it is not deep");
        prop_assert_eq!(text.parse::<f64>().expect("a float").to_bits(), value.to_bits());
    }

    #[test]
    fn nothing_panics_on_pieces_of_templates(source in pieces(&PIECES), v in plain_json(), w in plain_json()) {
        let _ = render_with(&source, &json!({"v": v, "w": w}), tiny());
    }

    #[test]
    fn nothing_panics_on_tags_in_any_order(source in pieces(&TAGS), v in plain_json(), w in plain_json()) {
        let _ = render_with(&source, &json!({"v": v, "w": w}), tiny());
    }

    #[test]
    fn nothing_panics_on_any_text(source in "\\PC{0,60}") {
        let _ = render_with(&source, &json!({}), tiny());
    }

    #[test]
    fn nothing_panics_on_any_conversation(messages in proptest::collection::vec(plain_json(), 0..3), continued in any::<bool>()) {
        let template = ChatTemplate::new("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", tiny()).expect("it is sound");
        let _ = template.chat(&Conversation { messages, continue_final_message: continued, ..Conversation::default() });
    }

    #[test]
    fn no_special_token_is_left_in_a_defused_text(text in "[ab<>]{0,20}", special in proptest::collection::vec("[ab<>]{1,3}", 0..4)) {
        let special: Vec<&str> = special.iter().map(String::as_str).collect();
        let defused = defuse::defused(&json!(text), &special, &Steps::default());
        let defused = defused.as_str().expect("it is a text");
        prop_assert!(special.iter().all(|token| !defused.contains(token)), "{:?} of {:?}", defused, text);
        let marked = defuse::marked(&json!(text), &special);
        let pieces = defuse::pieces(marked.as_str().expect("it is a text"), &special);
        prop_assert_eq!(pieces.iter().map(|(text, _)| text.as_str()).collect::<String>(), text);
    }

    #[test]
    fn a_mask_is_true_where_a_token_shares_a_character(cuts in proptest::collection::vec(0usize..30, 1..12), marks in proptest::collection::vec(0usize..30, 0..8)) {
        let pairs = |mut ends: Vec<usize>| { ends.sort_unstable(); ends.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect::<Vec<_>>() };
        let spans = pairs(marks);
        let mut cuts = cuts;
        cuts.sort_unstable();
        let tokens: Vec<_> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let want: Vec<bool> = tokens.iter().map(|token| token.clone().any(|at| spans.iter().any(|span| span.contains(&at)))).collect();
        prop_assert_eq!(Solution.token_mask(&tokens, &spans), want);
    }
}

#[test]
fn a_compiled_template_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<ChatTemplate>();
    shared::<challenges::issues::chat::parse::ResponseTemplate>();
}
