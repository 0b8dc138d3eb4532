//! The project's own templates: each text as transformers writes it, and each call read back from what was written.

use std::ops::Range;

use challenges::issues::chat::own::{Case, Expected, Own, all, conversations, expected, find, options};
use challenges::issues::chat::parse::{self, Message, Parser, ResponseTemplate as Reader, Tools};
use challenges::issues::chat::{ChatTemplate, Conversation, Error, Rendered};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

fn case(name: &str) -> &'static Case {
    let found = conversations().iter().find(|case| case.name == name);
    found.unwrap_or_else(|| panic!("there is no conversation {name}"))
}

fn own(name: &str) -> &'static Own {
    find(name).unwrap_or_else(|| panic!("there is no template {name}"))
}

fn compiled(own: &Own) -> ChatTemplate {
    ChatTemplate::new(own.template, options()).unwrap_or_else(|error| panic!("{}: {error}", own.name))
}

/// What differs from what transformers writes.
fn difference(row: &Expected, got: &Result<Rendered, Error>) -> Option<String> {
    match (got, &row.text) {
        (Ok(rendered), Ok(text)) if rendered.text != *text => {
            Some(format!("{:?}, not {text:?}", rendered.text))
        }
        (Ok(rendered), Ok(_)) => {
            let spans = row.spans.as_ref().filter(|spans| **spans != rendered.spans)?;
            Some(format!("spans {:?}, not {spans:?}", rendered.spans))
        }
        (Err(error), Err(kind)) => (error.kind.name() != kind).then(|| format!("{error}, not {kind}")),
        (got, want) => Some(format!("{got:?}, not {want:?}")),
    }
}

#[test]
fn every_own_template_writes_what_transformers_writes() {
    let templates: Vec<(&Own, ChatTemplate)> = all().iter().map(|own| (own, compiled(own))).collect();
    for row in expected() {
        let (own, template) = templates.iter().find(|(own, _)| own.name == row.template).expect("a template");
        let got = template.chat(&own.conversation(case(&row.conversation)));
        let how = difference(row, &got).unwrap_or_default();
        assert!(how.is_empty(), "{} {}: {how}", row.template, row.conversation);
    }
}

#[test]
fn every_own_template_is_tried_with_texts_spans_and_refusals() {
    for own in all() {
        let rows: Vec<&Expected> = expected().iter().filter(|row| row.template == own.name).collect();
        assert!(rows.iter().any(|row| row.text.is_err()), "{} refuses nothing", own.name);
        assert!(
            rows.iter().any(|row| row.text.is_ok() && row.spans.is_none()),
            "{} continues nothing",
            own.name
        );
        assert!(
            rows.iter().any(|row| row.spans.as_ref().is_some_and(|spans| spans.len() > 1)),
            "{}",
            own.name
        );
    }
    for case in conversations() {
        assert!(
            expected().iter().any(|row| row.conversation == case.name),
            "{} is never rendered",
            case.name
        );
    }
    assert_eq!(own("chatml").template.matches('\n').count(), own("chatml").template.matches("\r\n").count());
}

/// What a response template is compiled to, where the format has calls.
fn readers() -> Vec<(&'static Own, Reader)> {
    let with_calls = all().iter().filter(|own| own.response["fields"].get("tool_calls").is_some());
    let compiled =
        |own: &Own| Reader::new(&own.response).unwrap_or_else(|error| panic!("{}: {error}", own.name));
    with_calls.map(|own| (own, compiled(own))).collect()
}

/// Feeds a text in pieces that end at the given places.
fn read(
    reader: &Reader,
    tools: &Tools,
    prefix: &str,
    text: &[u8],
    cuts: &[usize],
) -> Result<Message, parse::Error> {
    let mut events = Vec::new();
    let mut parser = Parser::with_tools(reader, prefix, tools.clone(), &mut events)?;
    let mut from = 0;
    for &cut in cuts.iter().chain([&text.len()]) {
        parser.feed(&text[from..cut], &mut events)?;
        from = cut;
    }
    parser.finish(&mut events)
}

fn declared(conversation: &Conversation) -> Tools {
    Tools::new(conversation.tools.iter().filter_map(Value::as_array).flatten())
}

/// What comes before each of the assistant's spans, and the span.
fn said<'t>(text: &'t str, spans: &[Range<usize>]) -> Vec<(&'t str, &'t str)> {
    let byte = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
    spans.iter().map(|span| (&text[..byte(span.start)], &text[byte(span.start)..byte(span.end)])).collect()
}

/// The calls of a message as a parser answers them: without an id where the format writes none, arguments as an object.
fn calls(message: &Value, with_ids: bool) -> Value {
    let mut calls = message.get("tool_calls").cloned().unwrap_or(Value::Null);
    for call in calls.as_array_mut().into_iter().flatten() {
        if !with_ids {
            call.as_object_mut().expect("a call").shift_remove("id");
        }
        let arguments = &mut call["function"]["arguments"];
        if let Some(text) = arguments.as_str() {
            *arguments = serde_json::from_str(text).expect("arguments are JSON");
        }
    }
    calls
}

/// Whether two values are the same to a reader who does not tell 1.0 from 1.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(a, b)| same(a, b)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, a)| y.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

/// Whether the text of a message comes back as its content: not with thoughts in it, and Cohere's format gives what
/// stands before calls as a thought.
fn keeps_content(own: &Own, message: &Value) -> bool {
    let text = message["content"].as_str().unwrap_or_default();
    !text.contains("<think>") && (own.name != "cohere" || message.get("tool_calls").is_none())
}

#[test]
fn every_own_call_is_read_back_wherever_the_text_is_cut() {
    for (own, reader) in readers() {
        for row in expected().iter().filter(|row| row.template == own.name) {
            let (Ok(text), Some(spans)) = (&row.text, &row.spans) else { continue };
            let conversation = &case(&row.conversation).conversation;
            let assistant = conversation.messages.iter().filter(|message| message["role"] == "assistant");
            let tools = declared(conversation);
            let messages: Vec<&Value> = assistant.collect();
            let at = format!("{} {}", row.template, row.conversation);
            assert_eq!(spans.len(), messages.len(), "{at}: a span a message");
            for ((prefix, text), message) in said(text, spans).into_iter().zip(messages) {
                let whole = read(&reader, &tools, prefix, text.as_bytes(), &[]);
                for cut in 0..=text.len() {
                    let answer = read(&reader, &tools, prefix, text.as_bytes(), &[cut]);
                    assert_eq!(answer, whole, "{at} cut at {cut}");
                }
                let answer = whole.unwrap_or_else(|error| panic!("{at}: {error}"));
                let wanted = calls(message, own.name == "mistral");
                let got = answer.get("tool_calls").unwrap_or(&Value::Null);
                assert!(same(got, &wanted), "{at}: {got}, not {wanted}");
                let content = |value: Option<&Value>| {
                    value.and_then(Value::as_str).unwrap_or_default().trim().to_owned()
                };
                if keeps_content(own, message) {
                    assert_eq!(content(answer.get("content")), content(message.get("content")), "{at}");
                }
            }
        }
    }
}

/// Calls as the documents of those who trained a model write them, and what transformers or Python reads of them:
/// `tests/peers/chat_python.py`.
const SPOKEN: &str = include_str!("chat/spoken.jsonl");

#[test]
fn calls_as_models_documents_write_them_are_read_too() {
    for line in SPOKEN.lines() {
        let row: Value = serde_json::from_str(line).expect("a line of JSON");
        let (name, text) = (row["format"].as_str().expect("a name"), row["text"].as_str().expect("a text"));
        let reader = Reader::new(&own(name).response).unwrap_or_else(|error| panic!("{name}: {error}"));
        for cuts in (0..=text.len()).map(|cut| vec![cut]).chain([(0..text.len()).collect()]) {
            let message = read(&reader, &Tools::default(), "", text.as_bytes(), &cuts);
            match message {
                Ok(message) => assert_eq!(Value::Object(message), row["message"], "{text:?} cut at {cuts:?}"),
                Err(error) => assert!(row["message"].is_null(), "{text:?} cut at {cuts:?}: {error}"),
            }
        }
    }
}

/// Pieces of which arguments are made: markers of all formats, and what has to be escaped.
const PIECES: [&str; 46] = [
    "<|python_tag|>",
    "<|eot_id|>",
    "}<|eom_id|>",
    "<tool_call>",
    "</tool_call>",
    "\n</tool_call>",
    "<|im_end|>",
    "<function=f>",
    "</function>",
    "\n</parameter>",
    "[TOOL_CALLS]",
    "</s>",
    "<\u{ff5c}tool\u{2581}call\u{2581}end\u{ff5c}>",
    "\n```",
    "<arg_key>",
    "</arg_value>",
    "<|END_ACTION|>",
    "<|tool_call_end|>",
    "<tool_call|>",
    "<|\"|>",
    "</TOOLCALL>",
    "<SPECIAL_12>",
    "<|call|>",
    "<|end|>",
    "{\"name\": \"f\", \"parameters\": ",
    "{content}",
    "\"",
    "'",
    "\\",
    "\\n",
    "\n",
    "\r\n",
    "\t",
    " ",
    "<",
    "|",
    "/",
    ">",
    "{",
    "}",
    "]",
    ",",
    ":",
    "=",
    "\u{e9}",
    "\u{1f9a5}",
];

fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![6 => select(&PIECES[..]).prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)];
    vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let float = any::<f64>().prop_filter("finite", |value| value.is_finite());
    let leaf = prop_oneof![
        4 => text().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => float.prop_map(Value::from),
        1 => select(vec![1e22, 0.1, -0.0, 1e-7, 1e16, 123456789.0]).prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![vec(inner.clone(), 0..3).prop_map(Value::from), arguments_of(text().boxed(), inner)]
    })
}

fn arguments_of(
    name: BoxedStrategy<String>,
    value: impl Strategy<Value = Value>,
) -> impl Strategy<Value = Value> {
    vec((name, value), 0..3).prop_map(|entries| Value::Object(entries.into_iter().collect()))
}

/// Calls of a name and arguments each; the names of arguments are words.
fn drawn() -> impl Strategy<Value = Vec<(String, Value)>> {
    vec(("[a-z][a-z0-9_]{0,7}", arguments_of("[a-z_][a-z0-9_]{0,5}".boxed(), value())), 1..4)
}

/// Whether a format can carry this text in an argument. Formats that write JSON or Python carry any text, since their
/// templates escape what markers begin with. The others have no escapes: a text that ends a value or a call cannot be
/// told from the end itself.
fn carries(own: &Own, text: &str) -> bool {
    let without = |parts: &[&str]| !parts.iter().any(|part| text.contains(part));
    match own.name {
        "coder" => without(&["</parameter>", "</function>", "<parameter="]),
        "glm" => without(&["</arg_value>", "</tool_call>", "<arg_key>"]),
        "gemma" => without(&["<|\"|>", "<tool_call|>"]),
        _ => true,
    }
}

fn carries_all(own: &Own, value: &Value) -> bool {
    match value {
        Value::String(text) => carries(own, text),
        Value::Array(items) => items.iter().all(|item| carries_all(own, item)),
        Value::Object(entries) => {
            entries.iter().all(|(key, item)| carries(own, key) && carries_all(own, item))
        }
        _ => true,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A declaration that the call fits.
fn tool(name: &str, arguments: &Value) -> Value {
    let entries = arguments.as_object().into_iter().flatten();
    let properties: Value =
        entries.map(|(key, value)| (key.clone(), json!({"type": type_of(value)}))).collect();
    let parameters = json!({"type": "object", "properties": properties});
    json!({"type": "function", "function": {"name": name, "description": "", "parameters": parameters}})
}

/// A question, and an answer that calls; each call has a name of its own, so that each has its declaration.
fn asked(drawn: &[(String, Value)]) -> Conversation {
    let name = |at: usize, name: &str| format!("{name}_{at}");
    let named = || drawn.iter().enumerate().map(|(at, (word, arguments))| (at, name(at, word), arguments));
    let call = |(at, name, arguments): (usize, String, &Value)| json!({"id": format!("call{at:05}"), "type": "function", "function": {"name": name, "arguments": arguments}});
    let calls: Vec<Value> = named().map(call).collect();
    let messages = vec![
        json!({"role": "user", "content": "Go."}),
        json!({"role": "assistant", "content": "", "tool_calls": calls}),
    ];
    let tools = named().map(|(_, name, arguments)| tool(&name, arguments)).collect();
    Conversation { messages, tools: Some(tools), ..Conversation::default() }
}

proptest! {
    #[test]
    fn drawn_calls_are_read_back_at_random_cuts(drawn in drawn(), places in vec(any::<Index>(), 0..12)) {
        for (own, reader) in readers() {
            let mut drawn = drawn.clone();
            drawn.retain(|(_, arguments)| carries_all(own, arguments));
            drawn.truncate(if own.name == "llama" { 1 } else { drawn.len() });
            if drawn.is_empty() {
                continue;
            }
            let mut conversation = asked(&drawn);
            let tokens = own.tokens.iter().map(|(name, token)| (name.clone(), token.clone()));
            conversation.variables = tokens.collect();
            let rendered = compiled(own).chat(&conversation).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let pairs = said(&rendered.text, &rendered.spans);
            let (prefix, text) = pairs[0];
            let mut cuts: Vec<usize> = places.iter().map(|place| place.index(text.len() + 1)).collect();
            cuts.sort_unstable();
            let tools = declared(&conversation);
            let whole = read(&reader, &tools, prefix, text.as_bytes(), &[]);
            prop_assert_eq!(&read(&reader, &tools, prefix, text.as_bytes(), &cuts), &whole);
            let answer = whole.map_err(|error| TestCaseError::fail(format!("{}: {error} in {text:?}", own.name)))?;
            let wanted = calls(&conversation.messages[1], own.name == "mistral");
            let got = answer.get("tool_calls").unwrap_or(&Value::Null);
            prop_assert!(same(got, &wanted), "{}: {got}, not {wanted}, of {text:?}", own.name);
        }
    }

    #[test]
    fn no_text_makes_a_reader_of_python_panic(text in "[\\[\\](){}a-c0-9=,.'\"\\\\xuU \n+-]{0,40}", places in vec(any::<Index>(), 0..4)) {
        let own = own("lfm");
        let reader = Reader::new(&own.response).expect("the template is sound");
        let text = format!("<|tool_call_start|>[{text}]<|tool_call_end|>");
        let mut cuts: Vec<usize> = places.iter().map(|place| place.index(text.len() + 1)).collect();
        cuts.sort_unstable();
        let whole = read(&reader, &Tools::default(), "", text.as_bytes(), &[]);
        prop_assert_eq!(read(&reader, &Tools::default(), "", text.as_bytes(), &cuts), whole);
    }
}

#[test]
fn calls_in_python_mean_what_they_mean_in_python() {
    let own = own("lfm");
    let reader = Reader::new(&own.response).expect("the template is sound");
    let read = |calls: &str| {
        let text = format!("<|tool_call_start|>{calls}<|tool_call_end|>Done.<|im_end|>");
        read(&reader, &Tools::default(), "", text.as_bytes(), &[])
    };
    let text = r#" [ f( a = 'it\'s\t\x41\u00e9\U0001f9a5\101\q', b=["x", 1_0, -0.5e3, None,], c={'k': {}, "l": True} ), my.g-2() , ] "#;
    let arguments =
        json!({"a": "it's\tA\u{e9}\u{1f9a5}A\\q", "b": ["x", 10, -500.0, null], "c": {"k": {}, "l": true}});
    let call = |name: &str, arguments: Value| json!({"type": "function", "function": {"name": name, "arguments": arguments}});
    let answer = read(text).expect("the text is sound");
    assert_eq!(answer["tool_calls"], json!([call("f", arguments), call("my.g-2", json!({}))]));
    assert_eq!(answer["content"], "Done.");
    let wrong = [
        ("f()", "["),
        ("[f]", "("),
        ("[()]", "name of a function"),
        ("[f(1)]", "="),
        ("[f(a=)]", "value"),
        ("[f(a='b)]", "end of a string"),
        ("[f(a='\\xg0')]", "digits"),
        ("[f(a={1: 2})]", "key"),
        ("[f(a=inf)]", "value"),
        ("[f() g()]", "comma"),
        ("[f()] g", "end"),
    ];
    for (text, what) in wrong {
        let error = read(text).expect_err(text).to_string();
        assert!(error.contains("invalid Python call") && error.contains(what), "{text}: {error}");
    }
    let deep = read(&format!("[f(a={})]", "[".repeat(100_000))).expect_err("deep").to_string();
    assert!(deep.contains("levels"), "{deep}");
}
