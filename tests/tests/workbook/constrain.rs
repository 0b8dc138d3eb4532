//! Masks from a schema: valid texts are accepted however they are cut into tokens, and the first wrong byte is refused.
//!
//! What the first wrong byte is, is known from an oracle: a recogniser of the few shapes that are drawn, which tries
//! all ways of reading a text and says where it ends and whether something can follow.

use std::collections::BTreeSet;

use challenges::issues::chat::own::conversations;
use challenges::issues::chat::toy::Toy;
use challenges::issues::chat::{Layout, Steps, json_text};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};
use trainer::constrain::{Constraint, Error, Token, Vocabulary, call_schema};

/// Tokens of more than a byte: what models merge, and what crosses the borders of JSON's parts.
const MERGED: [&str; 20] = [
    "{\"",
    "\": ",
    "\", \"",
    "\"}",
    "}}",
    ", ",
    "true",
    "false",
    "null",
    "name",
    "city",
    "Os",
    "lo",
    "\\u00",
    "00",
    "12",
    "[[",
    "]]",
    "\u{e9}",
    "\u{1f9a5}",
];

const SPECIAL: [&str; 3] = ["<|end|>", "<tool_call>", "</tool_call>"];

/// All bytes, then the merged tokens, then the special ones.
fn vocabulary() -> Vocabulary {
    let bytes = (0..=255u8).map(|byte| Token::Text(vec![byte]));
    let merged = MERGED.iter().map(|text| Token::Text(text.as_bytes().to_vec()));
    let special = SPECIAL.iter().map(|name| Token::Special((*name).to_owned()));
    Vocabulary::new(bytes.chain(merged).chain(special).collect(), END).expect("the vocabulary is sound")
}

const END: u32 = 256 + MERGED.len() as u32;

fn constraint(schema: &Value) -> Constraint {
    Constraint::new(schema, &vocabulary()).unwrap_or_else(|error| panic!("{schema}: {error}"))
}

/// A schema with a whole number of 65 bits at each `#`.
fn large(schema: &str) -> Value {
    reference::exact::from_str(&schema.replace('#', "18446744073709551616")).expect("JSON")
}

/// The place of the first byte that is refused, if one is.
fn refused_at(constraint: &mut Constraint, text: &[u8]) -> Option<usize> {
    let wrong = |error: Error| assert!(matches!(error, Error::Refused { .. }), "{error}");
    text.iter().position(|&byte| constraint.take(u32::from(byte)).map_err(wrong).is_err())
}

/// Texts as Python writes them.
fn written(value: &Value) -> String {
    json_text(value, &Layout::default(), &Steps::default()).expect("it is not deep")
}

/// What is drawn: a shape of values.
#[derive(Clone, Debug)]
enum Shape {
    Null,
    Bool,
    Int,
    Number,
    Text,
    Words(Vec<String>),
    List(Box<Shape>),
    Object(Vec<(String, Shape, bool)>),
    Either(Vec<Shape>),
}

impl Shape {
    fn schema(&self) -> Value {
        match self {
            Self::Null => json!({"type": "null"}),
            Self::Bool => json!({"type": "boolean"}),
            Self::Int => json!({"type": "integer"}),
            Self::Number => json!({"type": "number"}),
            Self::Text => json!({"type": "string"}),
            Self::Words(words) => json!({"type": "string", "enum": words}),
            Self::List(item) => json!({"type": "array", "items": item.schema()}),
            Self::Object(entries) => {
                let properties: Map<String, Value> =
                    entries.iter().map(|(key, shape, _)| (key.clone(), shape.schema())).collect();
                let required: Vec<&String> =
                    entries.iter().filter(|entry| entry.2).map(|entry| &entry.0).collect();
                json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
            }
            Self::Either(shapes) => json!({"anyOf": shapes.iter().map(Shape::schema).collect::<Vec<_>>()}),
        }
    }
}

/// Where a shape can end in a text, and whether the text ends while it can go on.
#[derive(Default)]
struct Ends {
    at: BTreeSet<usize>,
    open: bool,
}

impl Ends {
    fn of(at: usize) -> Self {
        Self { at: [at].into(), open: false }
    }

    /// What can follow each of the ends.
    fn then(self, mut next: impl FnMut(usize) -> Ends) -> Self {
        let mut all = Self { at: BTreeSet::new(), open: self.open };
        for at in self.at {
            all.or(next(at));
        }
        all
    }

    fn or(&mut self, other: Ends) {
        self.at.extend(other.at);
        self.open |= other.open;
    }
}

fn word(word: &[u8], text: &[u8], at: usize) -> Ends {
    let rest = &text[at..];
    if rest.starts_with(word) {
        return Ends::of(at + word.len());
    }
    Ends { at: BTreeSet::new(), open: word.starts_with(rest) }
}

/// One byte or more of a kind, or none.
fn many(text: &[u8], at: usize, least: usize, kind: impl Fn(u8) -> bool) -> Ends {
    let run = text[at..].iter().take_while(|&&byte| kind(byte)).count();
    Ends { at: (at + least..=at + run).collect(), open: at + run == text.len() }
}

fn integer(text: &[u8], at: usize) -> Ends {
    let digits = |at| {
        let mut all = word(b"0", text, at);
        if text.get(at).is_none_or(|byte| (b'1'..=b'9').contains(byte)) {
            all.or(many(text, at, 1, |byte| byte.is_ascii_digit()));
        }
        all
    };
    let mut all = digits(at);
    all.or(word(b"-", text, at).then(digits));
    all
}

fn number(text: &[u8], at: usize) -> Ends {
    let digits = |at| many(text, at, 1, |byte| byte.is_ascii_digit());
    let maybe = |at: usize, part: Ends| {
        let mut all = Ends::of(at);
        all.or(part);
        all
    };
    let exponent = |at: usize| {
        let mut sign = Ends::of(at);
        sign.or(word(b"+", text, at));
        sign.or(word(b"-", text, at));
        sign.then(digits)
    };
    let fraction = |at| maybe(at, word(b".", text, at).then(digits));
    integer(text, at).then(fraction).then(|at| {
        let mut letter = word(b"e", text, at);
        letter.or(word(b"E", text, at));
        maybe(at, letter.then(exponent))
    })
}

/// One character of a string, bare or escaped.
fn character(text: &[u8], at: usize) -> Ends {
    let rest = &text[at..];
    let hex = |at: usize, kind: &dyn Fn(u8) -> bool| match text.get(at) {
        None => Ends { at: BTreeSet::new(), open: true },
        Some(byte) if kind(*byte) => Ends::of(at + 1),
        Some(_) => Ends::default(),
    };
    let any = |byte: u8| byte.is_ascii_hexdigit();
    match rest.first() {
        None => Ends { at: BTreeSet::new(), open: true },
        Some(b'"' | 0..=0x1f | 0x7f) => Ends::default(),
        Some(b'\\') => match rest.get(1) {
            None => Ends { at: BTreeSet::new(), open: true },
            Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') => Ends::of(at + 2),
            Some(b'u') => {
                let two = |at| hex(at, &any).then(|at| hex(at, &any));
                let mut plain =
                    hex(at + 2, &|byte| any(byte) && !b"dD".contains(&byte)).then(|at| hex(at, &any));
                plain.or(hex(at + 2, &|byte| b"dD".contains(&byte))
                    .then(|at| hex(at, &|byte| (b'0'..=b'7').contains(&byte))));
                let high = hex(at + 2, &|byte| b"dD".contains(&byte))
                    .then(|at| hex(at, &|byte| b"89abAB".contains(&byte)));
                let low = high.then(two).then(|at| word(b"\\u", text, at));
                let low = low.then(|at| hex(at, &|byte| b"dD".contains(&byte)));
                let pair = low.then(|at| hex(at, &|byte| b"cdefCDEF".contains(&byte)));
                plain.or(pair);
                plain.then(two)
            }
            Some(_) => Ends::default(),
        },
        Some(_) => match std::str::from_utf8(&rest[..rest.len().min(4)]) {
            Ok(sound) => Ends::of(at + sound.chars().next().map_or(1, char::len_utf8)),
            Err(error) if error.valid_up_to() > 0 => {
                let sound = std::str::from_utf8(&rest[..error.valid_up_to()]).expect("sound so far");
                Ends::of(at + sound.chars().next().map_or(1, char::len_utf8))
            }
            Err(error) => Ends { at: BTreeSet::new(), open: error.error_len().is_none() },
        },
    }
}

fn string(text: &[u8], at: usize) -> Ends {
    word(b"\"", text, at).then(|mut at| {
        loop {
            let mut next = character(text, at);
            match next.at.pop_first() {
                Some(end) => at = end,
                None if next.open => return Ends { at: BTreeSet::new(), open: true },
                None => return word(b"\"", text, at),
            }
        }
    })
}

fn list(item: &Shape, text: &[u8], at: usize) -> Ends {
    let close = |at| word(b"]", text, at);
    word(b"[", text, at).then(|at| {
        let mut all = close(at);
        let mut items = ends(item, text, at);
        while !items.at.is_empty() || items.open {
            all.open |= items.open;
            let after: Vec<usize> = std::mem::take(&mut items.at).into_iter().collect();
            items.open = false;
            for at in after {
                all.or(close(at));
                items.or(word(b", ", text, at).then(|at| ends(item, text, at)));
            }
        }
        all
    })
}

/// The entries that are left, in their order.
fn object(entries: &[(String, Shape, bool)], first: bool, text: &[u8], at: usize) -> Ends {
    let Some(((key, shape, required), rest)) = entries.split_first() else { return word(b"}", text, at) };
    let comma = if first { Ends::of(at) } else { word(b", ", text, at) };
    let key = format!("{}: ", written(&json!(key)));
    let with = comma.then(|at| word(key.as_bytes(), text, at)).then(|at| ends(shape, text, at));
    let mut all = with.then(|at| object(rest, false, text, at));
    if !required {
        all.or(object(rest, first, text, at));
    }
    all
}

fn ends(shape: &Shape, text: &[u8], at: usize) -> Ends {
    match shape {
        Shape::Null => word(b"null", text, at),
        Shape::Bool => {
            let mut all = word(b"true", text, at);
            all.or(word(b"false", text, at));
            all
        }
        Shape::Int => integer(text, at),
        Shape::Number => number(text, at),
        Shape::Text => string(text, at),
        Shape::Words(words) => words.iter().fold(Ends::default(), |mut all, choice| {
            all.or(word(written(&json!(choice)).as_bytes(), text, at));
            all
        }),
        Shape::List(item) => list(item, text, at),
        Shape::Object(entries) => word(b"{", text, at).then(|at| object(entries, true, text, at)),
        Shape::Either(shapes) => shapes.iter().fold(Ends::default(), |mut all, shape| {
            all.or(ends(shape, text, at));
            all
        }),
    }
}

/// The place of the first byte after which no valid text is within reach.
fn first_wrong(shape: &Shape, text: &[u8]) -> Option<usize> {
    let sound = |length: usize| {
        let all = ends(shape, &text[..length], 0);
        all.open || all.at.contains(&length)
    };
    (1..=text.len()).find(|&length| !sound(length)).map(|length| length - 1)
}

fn shape() -> impl Strategy<Value = Shape> {
    let words =
        vec(select(vec!["one", "on", "only", "\u{e9}t\u{e9}", "a b", ""]).prop_map(str::to_owned), 1..4);
    let leaf = prop_oneof![
        1 => Just(Shape::Null),
        1 => Just(Shape::Bool),
        1 => Just(Shape::Int),
        1 => Just(Shape::Number),
        2 => Just(Shape::Text),
        1 => words.prop_map(|words| Shape::Words(BTreeSet::from_iter(words).into_iter().collect())),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let entry = ("[a-z]{1,3}", inner.clone(), any::<bool>());
        prop_oneof![
            1 => inner.clone().prop_map(|item| Shape::List(Box::new(item))),
            2 => vec(entry, 0..4).prop_map(distinct),
            1 => vec(inner, 1..3).prop_map(Shape::Either),
        ]
    })
}

/// An object without two entries of one name.
fn distinct(entries: Vec<(String, Shape, bool)>) -> Shape {
    let mut seen = BTreeSet::new();
    Shape::Object(entries.into_iter().filter(|entry| seen.insert(entry.0.clone())).collect())
}

fn text() -> impl Strategy<Value = String> {
    let odd = select(vec!['"', '\\', '\n', '\u{1}', '/', '<', '\u{e9}', '\u{2028}', '\u{1f9a5}', 'a']);
    let character = prop_oneof![odd, any::<char>()].prop_map(|c| if c == '\u{7f}' { ' ' } else { c });
    vec(character, 0..8).prop_map(String::from_iter)
}

/// A value of a shape.
fn value(shape: &Shape) -> BoxedStrategy<Value> {
    match shape {
        Shape::Null => Just(Value::Null).boxed(),
        Shape::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Shape::Int => any::<i64>().prop_map(Value::from).boxed(),
        Shape::Number => {
            let float = any::<f64>().prop_filter("finite", |value| value.is_finite());
            prop_oneof![float.prop_map(Value::from), any::<i16>().prop_map(Value::from)].boxed()
        }
        Shape::Text => text().prop_map(Value::from).boxed(),
        Shape::Words(words) => select(words.clone()).prop_map(Value::from).boxed(),
        Shape::List(item) => vec(value(item), 0..3).prop_map(Value::from).boxed(),
        Shape::Either(shapes) => proptest::strategy::Union::new(shapes.iter().map(value)).boxed(),
        Shape::Object(entries) => {
            let entry = |(key, shape, required): &(String, Shape, bool)| {
                let (key, required) = (key.clone(), *required);
                (any::<bool>(), value(shape))
                    .prop_map(move |(there, value)| (there || required).then(|| (key.clone(), value)))
            };
            let entries: Vec<_> = entries.iter().map(entry).collect();
            entries.prop_map(|entries| Value::Object(entries.into_iter().flatten().collect())).boxed()
        }
    }
}

fn shape_and_value() -> impl Strategy<Value = (Shape, Value)> {
    shape().prop_flat_map(|shape| (Just(shape.clone()), value(&shape)))
}

/// A text cut into tokens: at each place, one of those that fit, chosen by `choices`.
fn tokenised(text: &[u8], choices: &[Index]) -> Vec<u32> {
    let (mut at, mut tokens) = (0, Vec::new());
    while at < text.len() {
        let merged = (0..MERGED.len()).filter(|&token| text[at..].starts_with(MERGED[token].as_bytes()));
        let fit: Vec<(u32, usize)> = std::iter::once((u32::from(text[at]), 1))
            .chain(merged.map(|token| (256 + token as u32, MERGED[token].len())))
            .collect();
        let (token, length) = fit[choices[tokens.len() % choices.len()].index(fit.len())];
        tokens.push(token);
        at += length;
    }
    tokens
}

proptest! {
    #[test]
    fn a_valid_text_is_accepted_however_it_is_cut((shape, value) in shape_and_value(), ascii in any::<bool>(), choices in vec(any::<Index>(), 1..20)) {
        let plain = written(&value);
        prop_assert_eq!(first_wrong(&shape, plain.as_bytes()), None, "the oracle takes {}", plain);
        // words of an enumeration are taken bare only
        let escaped = json_text(&value, &Layout { ensure_ascii: ascii, ..Layout::default() }, &Steps::default()).expect("it is not deep");
        let text = if first_wrong(&shape, escaped.as_bytes()).is_none() { escaped } else { plain };
        let mut constraint = constraint(&shape.schema());
        for token in tokenised(text.as_bytes(), &choices) {
            let mask = constraint.mask().map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert!(mask[token as usize], "token {} of {}", token, text);
            prop_assert!(!mask[END as usize + 1] && !mask[END as usize + 2], "a special token is no text");
            constraint.take(token).map_err(|error| TestCaseError::fail(format!("{error} of {text}")))?;
        }
        prop_assert!(constraint.is_complete(), "{}", text);
        prop_assert!(constraint.mask().expect("a mask")[END as usize]);
        prop_assert_eq!(constraint.take(END), Ok(()));
        prop_assert_eq!(constraint.take(END), Err(Error::Ended));
    }

    #[test]
    fn the_first_wrong_byte_is_refused((shape, value) in shape_and_value(), place in any::<Index>(), byte in any::<u8>(), likely in select(&b"\"\\{}[], :0-9.eEtfnudDa\xc3\xa9"[..]), kind in 0..4) {
        let mut text = written(&value).into_bytes();
        let at = place.index(text.len());
        match kind {
            0 => text[at] = byte,
            1 => text[at] = likely,
            2 => text.insert(at, likely),
            _ => drop(text.remove(at)),
        }
        text.push(b'!');
        let mut constraint = constraint(&shape.schema());
        prop_assert_eq!(refused_at(&mut constraint, &text), first_wrong(&shape, &text), "{:?}", String::from_utf8_lossy(&text));
    }

    #[test]
    fn a_mask_holds_what_is_taken((shape, value) in shape_and_value(), place in any::<Index>()) {
        let text = written(&value);
        let mut constraint = constraint(&shape.schema());
        for &byte in &text.as_bytes()[..place.index(text.len() + 1)] {
            prop_assert_eq!(constraint.take(u32::from(byte)), Ok(()));
        }
        let mask = constraint.mask().expect("a mask");
        for (token, allowed) in mask.into_iter().enumerate() {
            let taken = constraint.clone().take(token as u32);
            prop_assert_eq!(taken.is_ok(), allowed, "token {} after {}: {:?}", token, text, taken);
        }
    }
}

/// Whether a text in the tokens of the toy tokenizer is valid, each token before the next.
fn is_valid_in_tokens(schema: &Value, text: &str) -> bool {
    let toy = Toy::new(&SPECIAL);
    let number = |id: usize| u32::try_from(id).expect("there are few");
    let end = number(toy.encode(SPECIAL[0], false)[0].id);
    let vocabulary =
        Vocabulary::new(Token::all(toy.texts(), toy.special()), end).expect("the vocabulary is sound");
    let mut constraint = Constraint::new(schema, &vocabulary).expect("the schema is sound");
    let tokens = toy.encode(text, true);
    let fits = tokens.iter().all(|token| {
        let mask = constraint.mask().expect("there is a mask");
        mask[token.id] && constraint.take(number(token.id)).is_ok()
    });
    fits && constraint.is_complete()
}

#[test]
fn every_own_call_is_valid_by_its_tools() {
    let mut calls = 0;
    for case in conversations() {
        let Some(tools) = case.conversation.tools.as_ref().and_then(Value::as_array) else { continue };
        let schema = call_schema(tools);
        let messages = case.conversation.messages.iter();
        for call in messages.filter_map(|message| message["tool_calls"].as_array()).flatten() {
            let function = &call["function"];
            let Value::Object(given) = &function["arguments"] else { continue };
            let tool =
                tools.iter().find(|tool| tool["function"]["name"] == function["name"]).expect("a tool");
            let declared = tool["function"]["parameters"]["properties"].as_object().expect("properties");
            let ordered: Map<String, Value> =
                declared.keys().filter_map(|key| Some((key.clone(), given.get(key)?.clone()))).collect();
            let text = written(&json!({"name": function["name"], "arguments": ordered}))
                .replace('\u{7f}', "\\u007f");
            let mut constraint = constraint(&schema);
            assert_eq!(refused_at(&mut constraint, text.as_bytes()), None, "{}: {text}", case.name);
            assert!(constraint.is_complete(), "{}: {text}", case.name);
            assert!(is_valid_in_tokens(&schema, &text), "{}: {text}", case.name);
            calls += 1;
        }
    }
    assert!(calls > 0, "no call proves nothing");
}

#[test]
fn the_place_of_what_is_wrong_is_told() {
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"], "additionalProperties": false}}});
    let wrong = [
        ("{\"name\": \"wether\"", "{\"name\": \"we"),
        ("{\"name\": \"weather\", \"arguments\": {\"town\"", "{\"name\": \"weather\", \"arguments\": {\""),
        ("{\"name\": \"weather\", \"arguments\": {}", "{\"name\": \"weather\", \"arguments\": {"),
        ("{\"name\":\"weather\"", "{\"name\":"),
        (
            "{\"name\": \"weather\", \"arguments\": {\"city\": \"O\", \"days\": 1.5",
            "{\"name\": \"weather\", \"arguments\": {\"city\": \"O\", \"days\": 1",
        ),
        (
            "{\"name\": \"weather\", \"arguments\": {\"city\": \"a\nb",
            "{\"name\": \"weather\", \"arguments\": {\"city\": \"a",
        ),
        (
            "{\"name\": \"weather\", \"arguments\": {\"city\": \"\"}}}",
            "{\"name\": \"weather\", \"arguments\": {\"city\": \"\"}}",
        ),
    ];
    for (text, sound) in wrong {
        let mut constraint = constraint(&call_schema([&tool]));
        assert_eq!(refused_at(&mut constraint, text.as_bytes()), Some(sound.len()), "{text}");
    }
    let mut constraint = constraint(&call_schema([&tool]));
    let refused = constraint.take(u32::from(b'[')).expect_err("a call is an object").to_string();
    assert_eq!(refused, "token 91, \"[\": no valid text goes on so");
    assert_eq!(
        constraint.take(END).expect_err("nothing is written").to_string(),
        "token 276, \"<|end|>\": no valid text goes on so"
    );
    assert!(constraint.take(9999).is_err());
    assert_eq!(constraint.take(u32::from(b'{')), Ok(()), "what was refused changed nothing");
}

#[test]
fn references_within_a_tool_lead_where_they_led() {
    let tool = |name: &str, kind: &str| {
        json!({"name": name, "parameters": {
            "type": "object", "$defs": {"Place": {"type": kind}},
            "properties": {"to": {"$ref": "#/$defs/Place"}}, "required": ["to"], "additionalProperties": false,
        }})
    };
    let tools = [tool("go", "string"), tool("count", "integer")];
    for (text, refused) in [
        ("{\"name\": \"go\", \"arguments\": {\"to\": \"Oslo\"}}", None),
        ("{\"name\": \"count\", \"arguments\": {\"to\": 7}}", None),
        ("{\"name\": \"go\", \"arguments\": {\"to\": 7}}", Some(35)),
    ] {
        assert_eq!(refused_at(&mut constraint(&call_schema(&tools)), text.as_bytes()), refused, "{text}");
    }
}

#[test]
fn nullable_allows_null() {
    let schema = json!({"type": "array", "items": {"type": "string", "nullable": true}});
    assert_eq!(refused_at(&mut constraint(&schema), b"[null, \"a\", null]"), None);
    let schema =
        json!({"type": "object", "properties": {"nullable": {"type": "boolean"}}, "required": ["nullable"]});
    assert_eq!(refused_at(&mut constraint(&schema), b"{\"nullable\": true}"), None);
}

#[test]
fn a_schema_that_cannot_be_held_to_is_refused() {
    let deep = (0..40).fold(json!({"type": "null"}), |inner, _| json!({"type": "array", "items": inner}));
    let deep_value = (0..40).fold(json!(1), |inner, _| json!([inner]));
    let many: Map<String, Value> = (0..3000).map(|n| (format!("p{n}"), json!({}))).collect();
    let wrong = [
        (json!(3), "an object, true or false"),
        (json!(false), "nothing is valid"),
        (json!({"properties": {"a": 3}}), "found 3"),
        (json!({"type": "thing"}), "thing"),
        (json!({"type": "string", "minLength": 5, "maxLength": 3}), "minLength"),
        (json!({"not": {}}), "not"),
        (json!({"type": "array", "uniqueItems": true}), "uniqueItems"),
        (json!({"oneOf": [{"type": "null"}, {"enum": [null]}]}), "oneOf"),
        (json!({"$ref": "elsewhere.json"}), "elsewhere.json"),
        (json!({"x-guidance": {}}), "x-guidance"),
        (json!({"type": "array", "minItems": 1_000_000_000_u64}), "at most 4096"),
        (json!({"type": "string", "pattern": "a".repeat(300)}), "at most 256 bytes"),
        (json!({"type": "string", "pattern": "("}), "no mask"),
        (json!({"type": "integer", "multipleOf": 99_999_989}), "1 to 4096"),
        (json!({"type": "number", "multipleOf": 0}), "1 to 4096"),
        (json!({"type": "number", "multipleOf": 1e-300}), "1 to 4096"),
        (deep, "at most 32 levels"),
        (json!({"const": deep_value}), "at most 32 levels"),
        (json!({"properties": many}), "at most 2000 values"),
        (json!({"minimum": "\u{e9}".repeat(200), "type": "number"}), "no mask"),
        (large("{\"enum\": [1, #]}"), "schema, enum: expected whole numbers of at most 64 bits, found 184"),
        (large("{\"const\": #}"), "schema, const: expected whole numbers of at most 64 bits"),
        (
            large("{\"type\": \"integer\", \"maximum\": #}"),
            "maximum: expected whole numbers of at most 64 bits",
        ),
    ];
    constraint(&large("{\"type\": \"integer\", \"default\": #, \"examples\": [#]}"));
    for (schema, what) in wrong {
        let error = Constraint::new(&schema, &vocabulary()).map(drop).expect_err(what).to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
}

#[test]
fn a_vocabulary_that_is_none_is_refused() {
    let text = |text: &str| Token::Text(text.as_bytes().to_vec());
    let end = || Token::Special("<|end|>".to_owned());
    let wrong = [
        (vec![text("a"), end()], 0, "a special token"),
        (vec![end()], 7, "found nothing"),
        (vec![text("a"), text("a"), end()], 2, "what token 0 is"),
        (vec![text(&"a".repeat(2000)), end()], 1, "2000 bytes"),
        (vec![Token::Text(b"\xff<|end|>".to_vec()), end()], 1, "0xff"),
    ];
    for (tokens, end, what) in wrong {
        let error = Vocabulary::new(tokens, end).map(drop).expect_err(what).to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
    let unused = vec![text(""), text(""), text("1"), end()];
    assert!(Vocabulary::new(unused, 3).is_ok(), "places that are not used");
}

#[test]
fn a_hostile_schema_is_refused_or_soon_compiled() {
    let either = |n: usize| {
        let one =
            |k: usize| json!({"type": "object", "properties": {format!("p{n}_{k}"): {"type": "string"}}});
        json!({"anyOf": [one(0), one(1)]})
    };
    let many = |count: usize, required: bool| {
        let names: Vec<String> = (0..count).map(|n| format!("p{n}")).collect();
        let properties: Map<String, Value> =
            names.iter().map(|name| (name.clone(), json!({"type": "null"}))).collect();
        json!({"type": "object", "properties": properties, "required": if required { names } else { vec![] }})
    };
    let hostile = [
        ("all of either", json!({"allOf": (0..24).map(either).collect::<Vec<_>>()})),
        ("optional", many(490, false)),
        ("required", many(390, true)),
        (
            "items",
            json!({"type": "array", "minItems": 4096, "items": {"type": "array", "minItems": 4096, "items": {"type": "string", "minLength": 4096}}}),
        ),
        ("length", json!({"type": "string", "minLength": 4000, "maxLength": 4096})),
        ("pattern", json!({"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"})),
        ("states", json!({"type": "string", "pattern": "(a|b)*a(a|b){30}c"})),
        (
            "both",
            json!({"allOf": [{"type": "string", "pattern": "(.*a){20}"}, {"type": "string", "pattern": "(.*b){20}"}, {"type": "string", "pattern": "(.*c){20}"}]}),
        ),
        ("itself", json!({"$ref": "#"})),
        ("itself and more", json!({"allOf": [{"$ref": "#"}, {"type": "object"}]})),
        (
            "a tree of itself",
            json!({"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}, "required": ["a"]}),
        ),
        ("words", json!({"enum": (0..1900).map(|n| format!("w{n}")).collect::<Vec<_>>()})),
        ("multiple", json!({"type": "integer", "multipleOf": 4093})),
        ("range", json!({"type": "number", "minimum": -1e300, "maximum": 1.234567890123e300})),
    ];
    for (name, schema) in hostile {
        let start = std::time::Instant::now();
        let made = Constraint::new(&schema, &vocabulary());
        let made = made.and_then(|mut constraint| {
            for &byte in b"{\"[[\"aaaabababababbbbabcabc" {
                let _ = constraint.mask()?;
                let _ = constraint.take(u32::from(byte));
            }
            Ok(())
        });
        println!(
            "{name}: {:.2?} {}",
            start.elapsed(),
            made.map_or_else(|error| error.to_string(), |()| "made".to_owned())
        );
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{name}");
    }
}
