//! Fuzz: any bytes as what a model wrote, in each of the project's formats, or by the response template before a zero
//! byte.
//!
//! Nothing may panic or hang, and the answer is the same for every way of cutting the text.

#![no_main]

extern crate solutions as _; // what `Solution` calls

use std::sync::LazyLock;

use challenges::issues::chat::own;
use challenges::issues::chat::parse::{Error, Event, Message, Parser, ResponseTemplate};
use libfuzzer_sys::fuzz_target;

static FORMATS: LazyLock<Vec<ResponseTemplate>> = LazyLock::new(|| {
    own::all().iter().map(|own| ResponseTemplate::new(&own.response).expect("the project's own are sound")).collect()
});

fuzz_target!(|bytes: &[u8]| run(bytes));

fn run(bytes: &[u8]) {
    let parts: Vec<&[u8]> = bytes.splitn(2, |byte| *byte == 0).collect();
    let [first, rest @ ..] = &parts[..] else { return };
    let given = rest.first().and_then(|_| serde_json::from_slice(first).ok());
    if let (Some(Ok(template)), Some(text)) = (given.map(|given| ResponseTemplate::new(&given)), rest.first()) {
        return same(&template, text);
    }
    let Some((which, text)) = bytes.split_first() else { return };
    same(&FORMATS[usize::from(*which) % FORMATS.len()], text);
}

/// Whole, byte by byte, and in pieces whose lengths the text itself says.
fn same(template: &ResponseTemplate, text: &[u8]) {
    let whole = parsed(template, text, |_| usize::MAX);
    assert_eq!(parsed(template, text, |_| 1), whole);
    assert_eq!(parsed(template, text, |byte| 1 + usize::from(byte % 7)), whole);
}

type Told = (Result<Message, Error>, String);

fn parsed(template: &ResponseTemplate, mut text: &[u8], length: impl Fn(u8) -> usize) -> Told {
    let mut events = Vec::new();
    let message = (|| {
        let mut parser = Parser::new(template, "", &mut events)?;
        while let Some(first) = text.first() {
            let (piece, rest) = text.split_at(length(*first).min(text.len()));
            parser.feed(piece, &mut events)?;
            text = rest;
        }
        parser.finish(&mut events)
    })();
    let handed = if message.is_ok() { appended(&events) } else { String::new() };
    (message, handed)
}

/// All text that was handed out.
fn appended(events: &[Event]) -> String {
    let text = |event: &Event| if let Event::Append { text, .. } = event { text.clone() } else { String::new() };
    events.iter().map(text).collect()
}
