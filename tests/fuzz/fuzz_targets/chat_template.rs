//! Fuzz: any text as a chat template, and any JSON as the conversation after a zero byte.
//!
//! Nothing may panic, hang or grow past its limits; what is rendered twice is the same text, and the assistant's spans
//! lie in it.

#![no_main]

extern crate solutions as _; // what `Solution` calls

use std::time::Duration;

use challenges::issues::chat::{Conversation, Limits, Options, ChatTemplate, own};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| run(text));

fn run(text: &str) {
    let (source, given) = text.split_once('\0').unwrap_or((text, ""));
    let limits = Limits {
        steps: 20_000,
        work_bytes: 1 << 20,
        output_bytes: 1 << 16,
        time: Duration::from_secs(3600), // the other limits are reached first, on a loaded machine too
        ..Limits::default()
    };
    let Ok(template) = ChatTemplate::new(source, Options { limits, ..own::options() }) else { return };
    for conversation in conversations(given) {
        let once = template.chat(&conversation);
        if let Ok(rendered) = &once {
            let length = rendered.text.chars().count();
            assert!(rendered.text.len() <= 1 << 16, "{} bytes come out", rendered.text.len());
            assert!(rendered.spans.iter().all(|span| span.start <= span.end && span.end <= length));
            assert_eq!(template.chat(&conversation).as_ref().map(|again| &again.text), Ok(&rendered.text));
        }
    }
}

/// What is given, or three of the project's own.
fn conversations(given: &str) -> Vec<Conversation> {
    match serde_json::from_str(given) {
        Ok(Value::Array(messages)) => vec![Conversation { messages, ..Conversation::default() }],
        Ok(Value::Object(_)) | Err(_) => {
            own::conversations().iter().step_by(9).map(|case| case.conversation.clone()).collect()
        }
        Ok(_) => vec![],
    }
}
