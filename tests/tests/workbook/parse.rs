//! Messages out of a model's text: against the original parser, and laws that hold for every text.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use challenges::issues::chat::parse::{Error, Event, Message, Parser, ResponseTemplate, Tools, parse};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use reference::exact;
use serde_json::{Value, json};
use tests::golden;

/// What a text comes to: the message or the error, and what happened, with text that was added in pieces in one.
type Answer = (Result<Message, Error>, Vec<String>);

/// Feeds a text in pieces that end at the given places.
fn answer(template: &ResponseTemplate, tools: &Tools, prefix: &str, text: &[u8], cuts: &[usize]) -> Answer {
    let mut events = Vec::new();
    let message = (|| {
        let mut parser = Parser::with_tools(template, prefix, tools.clone(), &mut events)?;
        let mut from = 0;
        for &cut in cuts.iter().chain([&text.len()]) {
            parser.feed(&text[from..cut], &mut events)?;
            from = cut;
        }
        parser.finish(&mut events)
    })();
    (message, joined(&events))
}

fn joined(events: &[Event]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut appended = false;
    for event in events {
        match event {
            Event::Open { field } => lines.push(format!("open {field}")),
            Event::Append { text, .. } if appended => lines.last_mut().expect("one before").push_str(text),
            Event::Append { field, text } => lines.push(format!("append {field} {text}")),
            Event::Close { field, value } => lines.push(format!("close {field} {value}")),
        }
        appended = matches!(event, Event::Append { .. });
    }
    lines
}

/// Cuts at places that depend on `seed` alone.
fn cuts(seed: u64, length: usize) -> Vec<usize> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound as u64) as usize
    };
    let mut cuts: Vec<usize> = (0..below(12)).map(|_| below(length + 1)).collect();
    cuts.sort_unstable();
    cuts
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).expect("a golden file is utf-8");
    text.lines().map(|line| serde_json::from_str(line).expect("a row parses")).collect()
}

/// The declarations of the tools that the original parser was given: those of the golden conversations.
fn declared() -> Option<Tools> {
    let rows = lines(&golden::find_chat("render-trl.jsonl")?);
    Some(Tools::new(rows.iter().filter_map(|row| row["tools"].as_array()).flatten()))
}

#[test]
fn the_original_parsers_answers_hold_however_a_text_is_cut() {
    let (Some(rows), Some(templates), Some(tools)) =
        (golden::find_chat("parse-open.jsonl"), golden::find_chat("response_templates.json"), declared())
    else {
        return;
    };
    let templates: BTreeMap<String, Value> = serde_json::from_slice(&templates).expect("templates parse");
    let compile = |template| ResponseTemplate::new(template).unwrap_or_else(|error| panic!("{error}"));
    let templates: BTreeMap<&str, ResponseTemplate> =
        templates.iter().map(|(name, template)| (name.as_str(), compile(template))).collect();
    let rows = lines(&rows);
    assert!(!rows.is_empty(), "a golden file without a case proves nothing");
    for (seed, row) in rows.iter().enumerate() {
        let template = &templates[row["family"].as_str().expect("a row names its family")];
        check(row, template, &tools, seed as u64);
    }
}

fn check(row: &Value, template: &ResponseTemplate, tools: &Tools, seed: u64) {
    let text = |name: &str| row[name].as_str().unwrap_or_else(|| panic!("{} has no {name}", row["id"]));
    let own = row["tools"].as_array().map(Tools::new);
    let tools = own.as_ref().unwrap_or(tools);
    let (prefix, bytes) = (text("prefix"), text("text").as_bytes());
    let whole = answer(template, tools, prefix, bytes, &[]);
    if row.get("error").is_some() {
        assert!(whole.0.is_err(), "{} is refused, not {:?}", row["id"], whole.0);
    } else if row["chunk_consistent"] == true {
        let message = whole.0.clone().map(Value::Object);
        let is_same = message.as_ref().is_ok_and(|message| exact::is_equal(message, &row["expected"]));
        assert!(is_same, "{}: expected {}, found {message:?}", row["id"], row["expected"]);
    }
    let each: Vec<usize> = (1..bytes.len()).collect();
    let random = (0..20).map(|k| cuts(seed * 20 + k, bytes.len()));
    for cuts in random.chain([each]) {
        assert_eq!(answer(template, tools, prefix, bytes, &cuts), whole, "{} cut at {cuts:?}", row["id"]);
    }
}

/// Tags of our own: thoughts, calls in JSON, notes that are joined, a number, and the rest.
fn tags() -> ResponseTemplate {
    let template = json!({
        "defaults": {"role": "assistant"},
        "start_anchor": "<start>",
        "fields": {
            "thoughts": {"open_pattern": "(?=[\\s\\S]*?</think>)", "close_pattern": "</think>\\s*"},
            "calls": {
                "open_pattern": "<call (?P<name>\\w+)>", "close": ["</call>", "</call>!"], "repeats": true,
                "content": "json", "transform": {"name": "{name}", "arguments": "{content}"},
            },
            "notes": {"open": "<note>", "close_pattern": "(?=<call )|</note>", "repeats": true, "join": "\n"},
            "score": {"open": "<score>", "close": "</score>", "content": "int"},
            "content": {"close_pattern": "<end>\\s*|$"},
        },
    });
    ResponseTemplate::new(&template).expect("the template is sound")
}

/// Calls as arguments with `key=value`, strings between marks of their own.
fn functions() -> ResponseTemplate {
    let template = json!({
        "start_anchor_pattern": "(?i)<START>(?:\\n|!)?",
        "fields": {
            "calls": {
                "open_pattern": "(?P<name>\\w+)\\(", "close_pattern": "\\)\\s*", "repeats": true, "content": "xml-inline",
                "content_args": {
                    "tag_pattern": "(?P<key>\\w+)=(?P<value>'[^']*'|[^,)]*)", "merge_duplicates": true,
                    "value_parser": {"name": "json", "args": {"string_delims": [["'", "'"]], "allow_non_json": true}},
                },
                "transform": {"name": "{name}", "arguments": "{content}"},
            },
            "settings": {"open": "[", "close": "]", "content": "kv-lines"},
        },
    });
    ResponseTemplate::new(&template).expect("the template is sound")
}

#[test]
fn every_kind_of_region_comes_out() {
    let text = "a </think> b<call add>{\"x\": [1, -0]}</call>c<note>one<call f>{}</call>!<note>two</note><score> 1_0 </score>";
    let expected = json!({
        "role": "assistant", "thoughts": "a", "content": "c", "notes": "one\ntwo", "score": 10,
        "calls": [{"name": "add", "arguments": {"x": [1, 0]}}, {"name": "f", "arguments": {}}],
    });
    let message = parse(&tags(), "<start>old<start>", text).map(Value::Object);
    assert_eq!(message.as_ref().ok(), Some(&expected), "{message:?}");
}

#[test]
fn arguments_in_a_dialect_come_out() {
    let text = "x add(a='it', b=2, a=[1, 'u'], c=d)[k: v\nno\nl:m:n]";
    let arguments = json!({"a": ["it", "[1"], "b": 2, "c": "d"});
    let message = parse(&functions(), "", text).expect("the text is sound");
    assert_eq!(message["calls"], json!([{"name": "add", "arguments": arguments}]));
    assert_eq!(message["settings"], json!({"k": "v", "l": "m:n"}));
}

#[test]
fn a_declared_type_casts_an_argument() {
    let properties = json!({"n": {"type": "integer"}, "b": {"type": "boolean"}, "s": {"type": "string"},
        "o": {"anyOf": [{"type": "object"}, {"type": "null"}]}});
    let tool =
        json!({"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}});
    let template = json!({"start_anchor": "<s>", "fields": {"calls": {
        "open": "{", "close": "}", "content": "kv-lines", "content_args": {"line_sep": ";"},
        "transform": {"function": {"name": "f", "arguments": "{content}"}}}}});
    let template = ResponseTemplate::new(&template).expect("the template is sound");
    let (message, _) = answer(&template, &Tools::new([&tool]), "", b"{n:3.0;b:False;s:7;o:None}", &[]);
    let arguments = &message.expect("the text is sound")["calls"]["function"]["arguments"];
    assert_eq!(arguments, &json!({"n": 3, "b": false, "s": "7", "o": null}));
}

#[test]
fn whole_numbers_of_any_size_stay_exact() {
    use challenges::issues::chat::parse::json::read;
    for (text, want) in [
        ("[18446744073709551616, -9223372036854775809]", "[18446744073709551616,-9223372036854775809]"),
        ("{\"a\": -0, \"b\": 1e20}", "{\"a\":0,\"b\":1e+20}"),
        ("100000000000000000000000000000000000000001", "100000000000000000000000000000000000000001"),
    ] {
        assert_eq!(exact::to_string(&read(text).expect("JSON")), want);
    }
    let digits = |count: usize| "9".repeat(count);
    assert!(read(&digits(4300)).is_ok() && read(&digits(4301)).is_err());
    let text = "a </think><call f>{\"x\": [18446744073709551616, -0]}</call>b<score>1_000_000_000_000_000_000_000</score>";
    let each: Vec<usize> = (1..text.len()).collect();
    for cuts in [&[][..], each.as_slice()] {
        let (message, _) = answer(&tags(), &Tools::default(), "<start>", text.as_bytes(), cuts);
        let message = exact::to_string(&Value::Object(message.expect("the text is sound")));
        assert!(message.contains("\"x\":[18446744073709551616,0]"), "{message}");
        assert!(message.contains("\"score\":1000000000000000000000"), "{message}");
    }
    let properties = json!({"n": {"type": "integer"}, "m": {"type": "number"}});
    let tool = json!({"name": "f", "parameters": {"properties": properties}});
    let template = json!({"start_anchor": "<s>", "fields": {"calls": {
        "open": "{", "close": "}", "content": "kv-lines", "content_args": {"line_sep": ";"},
        "transform": {"function": {"name": "f", "arguments": "{content}"}}}}});
    let template = ResponseTemplate::new(&template).expect("the template is sound");
    let (message, _) = answer(
        &template,
        &Tools::new([&tool]),
        "",
        b"{n:18446744073709551616;m:10000000000000000000000;n2:-0}",
        &[],
    );
    let message = exact::to_string(&Value::Object(message.expect("the text is sound")));
    assert!(message.contains("\"n\":18446744073709551616,\"m\":10000000000000000000000"), "{message}");
}

#[test]
fn a_marker_that_cannot_grow_is_known_at_once() {
    let template = tags();
    let mut events = Vec::new();
    let mut parser = Parser::new(&template, "<start>", &mut events).expect("the prefix is sound");
    parser.feed(b"t</think>x<note>abc</no", &mut events).expect("the text is sound");
    assert_eq!(
        joined(&events),
        ["open thoughts", "append thoughts t", "close thoughts \"t\"",],
        "whether </think> comes again is open"
    );
    parser.finish(&mut events).expect("the text is sound");
    assert_eq!(joined(&events).last().map(String::as_str), Some("close notes \"abc</no\""));
}

#[test]
fn a_word_boundary_waits_for_the_next_character() {
    let template = json!({"start_anchor": "<s>", "fields": {
        "f": {"open_pattern": "call\\b", "close_pattern": "end\\B|;"}, "g": {}}});
    let template = ResponseTemplate::new(&template).expect("the template is sound");
    for (text, f, g) in [
        ("calls", None, Some("calls")),
        ("é call: end", Some(": end"), Some("é")),
        ("callé", None, Some("callé")),
    ] {
        let (message, _) = answer(&template, &Tools::default(), "", text.as_bytes(), &[2, 4]);
        let message = message.expect("the text is sound");
        let field = |name: &str| message.get(name).and_then(Value::as_str);
        assert_eq!((field("f"), field("g")), (f, g), "{text}");
    }
}

#[test]
fn what_patterns_may_not_hold_is_refused_by_name() {
    let refused = [
        ("(?<=a)b", "(?<="),
        ("(a)\\1", "\\1"),
        ("a*+", "possessive"),
        ("(?>a+)b", "(?>a+)"),
        ("(a(?R)?b)", "(?R)"),
        ("\\p{L}", "\\p"),
        ("a{e<=1}", "fuzzy"),
        ("a{2<=s<3}", "fuzzy"),
        ("a{1i+2d<=4}", "fuzzy"),
        ("(?=a+)b+", "look-ahead"),
        ("[a", "]"),
    ];
    for (pattern, what) in refused {
        let template = json!({"start_anchor": "a", "fields": {"f": {"open_pattern": pattern}}});
        let error = ResponseTemplate::new(&template).expect_err(pattern).to_string();
        assert!(error.contains(what) && error.contains("fields.f.open_pattern"), "{pattern}: {error}");
    }
}

#[test]
fn a_template_names_the_entry_that_is_wrong() {
    let wrong = [
        (json!([]), "object"),
        (json!({"start_anchor": "a", "fields": {}}), "fields"),
        (json!({"start_anchor": "a", "fields": {"f": {"opens": "x"}}}), "fields.f.opens"),
        (json!({"start_anchor": "a", "fields": {"f": {"content": "yaml"}}}), "yaml"),
        (json!({"start_anchor": "a", "fields": {"f": {}, "g": {}}}), "fields.g"),
        (json!({"start_anchor": "a", "fields": {"f": {"join": ","}}}), "fields.f.join"),
        (json!({"start_anchor": "a", "fields": {"f": {"transform": "a {content}"}}}), "fields.f.transform"),
        (json!({"fields": {"f": {}}}), "start_anchor"),
    ];
    for (template, what) in wrong {
        let error = ResponseTemplate::new(&template).expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn json_is_bounded_in_depth_and_bytes_in_form() {
    let template = tags();
    let deep = format!("<call f>{}</call>", "[".repeat(100_000));
    assert!(matches!(parse(&template, "", &deep), Err(Error::Content { .. })));
    let (broken, _) = answer(&template, &Tools::default(), "", b"ab\xffc", &[]);
    assert_eq!(broken, Err(Error::Utf8 { at: 2 }));
}

/// A template of assertions, whose searches remember what other texts taught them.
static WARM: LazyLock<ResponseTemplate> = LazyLock::new(|| {
    let fields = json!({
        "content": {},
        "r": {"open_pattern": "<x>$", "close": "!", "repeats": true},
        "w": {"open_pattern": "\\bc+\\b", "close_pattern": "b\\Z|\\n", "repeats": true},
    });
    ResponseTemplate::new(&json!({"start_anchor": "<start>", "fields": fields})).expect("it is sound")
});

#[test]
fn what_a_search_remembers_changes_no_answer() {
    for text in ["<x>a<x>\nb", "<x>a<x>\n", "cc c\nb", "<x><x>", "a cc\nb\n"] {
        let whole = answer(&WARM, &Tools::default(), "", text.as_bytes(), &[]);
        for size in 1..text.len() {
            let cuts: Vec<usize> = (0..text.len()).step_by(size).collect();
            let cut = answer(&WARM, &Tools::default(), "", text.as_bytes(), &cuts);
            assert_eq!(cut, whole, "{text:?} in pieces of {size}");
        }
    }
}

#[test]
fn nothing_opens_where_the_text_has_ended() {
    let template = json!({"start_anchor": "a", "fields": {
        "content": {}, "r": {"open_pattern": "\\Z", "close": "q", "transform": {"v": "{content}"}},
    }});
    let template = ResponseTemplate::new(&template).expect("it is sound");
    let message = parse(&template, "", "ab").expect("it parses");
    assert_eq!(Value::Object(message), json!({"content": "ab"}));
}

#[test]
fn a_pattern_of_many_ways_takes_the_time_of_its_length() {
    let field = json!({"open_pattern": "a(?:[ab]{1000}){10}c", "close": "d"});
    let template =
        ResponseTemplate::new(&json!({"start_anchor": "s", "fields": {"f": field}})).expect("it is sound");
    let text: String =
        (0..3000_u32).map(|at| if at.wrapping_mul(2_654_435_761) >> 31 == 0 { 'a' } else { 'b' }).collect();
    let start = Instant::now();
    let _ = parse(&template, "", &text);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// Pieces that markers are made of.
const FRAGMENTS: [&str; 27] = [
    "<start>", "<", "</", "think>", "</think>", "<call ", "<call f>", "{\"x\": ", "1}", "</call>", "!",
    "<note>", "</note>", "<score>", "12", "</score>", "<end>", "\n", " ", "f(", "a='é', ", ")", "[k: v]",
    "日本", "<x>", "cc", "b",
];

fn text() -> impl Strategy<Value = String> {
    vec(select(&FRAGMENTS[..]), 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn the_answer_does_not_depend_on_the_cuts(text in text(), prefix in text(), places in vec(any::<Index>(), 0..12)) {
        let mut cuts: Vec<usize> = places.iter().map(|place| place.index(text.len() + 1)).collect();
        cuts.sort_unstable();
        for template in [&tags(), &functions(), &*WARM] {
            let whole = answer(template, &Tools::default(), &prefix, text.as_bytes(), &[]);
            let each: Vec<usize> = (1..text.len()).collect();
            prop_assert_eq!(&answer(template, &Tools::default(), &prefix, text.as_bytes(), &cuts), &whole);
            prop_assert_eq!(&answer(template, &Tools::default(), &prefix, text.as_bytes(), &each), &whole);
        }
    }

    #[test]
    fn no_bytes_make_a_parser_panic(bytes in vec(any::<u8>(), 0..200), places in vec(any::<Index>(), 0..4)) {
        let mut cuts: Vec<usize> = places.iter().map(|place| place.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let template = tags();
        let whole = answer(&template, &Tools::default(), "", &bytes, &[]);
        prop_assert_eq!(answer(&template, &Tools::default(), "", &bytes, &cuts), whole);
    }

    #[test]
    fn no_pattern_makes_a_template_panic(open in "[\\[\\](){}?*+|^$.\\\\a-c=!<>:PsSdw0-9,-]{0,16}", text in "[a-c \n]{0,20}") {
        let template = json!({"start_anchor": "a", "fields": {"f": {"open_pattern": open, "close": "b", "transform": "{content}"}, "g": {}}});
        if let Ok(template) = ResponseTemplate::new(&template) {
            let whole = answer(&template, &Tools::default(), "", text.as_bytes(), &[]);
            let each: Vec<usize> = (1..text.len()).collect();
            prop_assert_eq!(answer(&template, &Tools::default(), "", text.as_bytes(), &each), whole);
        }
    }

    #[test]
    fn what_is_rendered_is_parsed(calls in vec(("[a-z]{1,8}", "[a-zé \"\\\\<]{0,12}", any::<i64>()), 0..4)) {
        let calls: Vec<Value> = calls.iter().map(|(name, text, number)| {
            json!({"name": name, "arguments": {"text": text, "number": number}})
        }).collect();
        let render = |call: &Value| format!("<call {}>{}</call>", call["name"].as_str().unwrap(), call["arguments"]);
        let text: String = calls.iter().map(render).collect();
        let message = parse(&tags(), "<start>", &text).expect("what is rendered is sound");
        let parsed = message.get("calls").cloned().unwrap_or_else(|| json!([]));
        prop_assert_eq!(parsed, Value::Array(calls));
    }
}
