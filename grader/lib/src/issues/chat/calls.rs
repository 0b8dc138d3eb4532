//! What the project's templates wrote as the assistant's text, parsed back into the messages that it was written from,
//! by all steps of the attempt together: whole, and cut.

use challenges::issues::chat::Steps;
use challenges::issues::chat::own;
use challenges::issues::chat::parse::{Event, Message, Parser, ResponseTemplate, Tools};
use reference::exact;
use serde_json::Value;

use super::prompts::{counted, found};
use crate::gather::{Child, Unwound, caught};
use crate::random::Random;

/// What an assistant said in a format.
struct Spoken {
    /// The format's name.
    format: &'static str,
    /// The conversation's name.
    conversation: String,
    /// The prompt before it.
    prefix: String,
    /// The assistant's own text.
    text: String,
    /// The tools that there are.
    tools: Tools,
    /// The calls that it was written from: names, and arguments as an object.
    calls: Vec<(String, Value)>,
}

/// Every message with calls, in each format that wrote it.
fn spoken() -> Vec<Spoken> {
    own::expected().iter().flat_map(|row| spoken_in(row).unwrap_or_default()).collect()
}

fn spoken_in(row: &own::Expected) -> Option<Vec<Spoken>> {
    let (own, case) = found(row)?;
    let (text, spans) = (row.text.as_ref().ok()?, row.spans.as_ref()?);
    let messages: Vec<&Value> =
        case.conversation.messages.iter().filter(|message| message["role"] == "assistant").collect();
    if messages.len() != spans.len() {
        return None;
    }
    let characters = |from, to| text.chars().skip(from).take(to - from).collect::<String>();
    let tools = case.conversation.tools.as_ref().and_then(Value::as_array);
    let each = spans.iter().zip(messages).map(|(span, message)| Spoken {
        format: own.name,
        conversation: case.name.clone(),
        prefix: characters(0, span.start),
        text: characters(span.start, span.end),
        tools: Tools::new(tools.into_iter().flatten()),
        calls: calls(message),
    });
    Some(each.filter(|spoken| !spoken.calls.is_empty()).collect())
}

/// The calls of a message: names, and arguments read if they are a text.
fn calls(message: &Value) -> Vec<(String, Value)> {
    let call = |call: &Value| {
        let function = &call["function"];
        let arguments = function["arguments"].as_str().and_then(|text| serde_json::from_str(text).ok());
        let arguments = arguments.unwrap_or_else(|| function["arguments"].clone());
        (function["name"].as_str().unwrap_or_default().to_owned(), arguments)
    };
    message["tool_calls"].as_array().into_iter().flatten().map(call).collect()
}

/// Parses everything back and reports how much of it is as it was.
pub(super) fn watch(child: &mut Child, steps: &Steps) {
    let random = &mut Random::named(child.request.effort.seed, "calls");
    let spoken = spoken();
    match caught(|| spoken.iter().filter(|spoken| spoken.comes_back(steps, random).is_ok()).count()) {
        Ok(same) => {
            for (name, count) in [("same", same), ("all", spoken.len())] {
                child.measured(&format!("issues.calls.{name}"), counted(count));
            }
        }
        Err(Unwound::Hole(hole)) => {
            child.unmeasured("issues.calls.same", &format!("not written yet: {hole}"));
        }
        Err(Unwound::Panic(appended)) => child.unmeasured("issues.calls.same", &appended),
    }
}

/// All of them, by one step of the attempt; the first that does not come back is reported.
pub(super) fn all(steps: &Steps, random: &mut Random) -> Result<(), String> {
    spoken().iter().try_for_each(|spoken| spoken.comes_back(steps, random))
}

impl Spoken {
    /// Whole, character by character, and at drawn cuts, also inside characters.
    fn comes_back(&self, steps: &Steps, random: &mut Random) -> Result<(), String> {
        let what =
            format!("what {} wrote in the conversation {}, {:?}", self.format, self.conversation, self.text);
        let own = own::find(self.format).ok_or("the format is not known")?;
        let template =
            ResponseTemplate::with(&own.response, steps.clone()).map_err(|error| error.to_string())?;
        let length = self.text.len();
        let whole = self.parsed(&template, &[]).map_err(|error| format!("{what}: {error}"))?;
        let got = calls(&Value::Object(whole.message.clone()));
        let is_same = |(got, want): (&(String, Value), &(String, Value))| {
            got.0 == want.0 && exact::is_equal(&got.1, &want.1)
        };
        if got.len() != self.calls.len() || !got.iter().zip(&self.calls).all(is_same) {
            return Err(format!("{what}\n  got  the calls {got:?}\n  want the calls {:?}", self.calls));
        }
        let each: Vec<usize> = (1..length).collect();
        let drawn = |random: &mut Random| -> Vec<usize> {
            each.iter().copied().filter(|_| random.below(5) == 0).collect()
        };
        for cuts in [each.clone(), drawn(random), drawn(random)] {
            let cut =
                self.parsed(&template, &cuts).map_err(|error| format!("{what}, cut at {cuts:?}: {error}"))?;
            if cut != whole {
                return Err(format!("{what}, cut at {cuts:?}: got {cut:?}, whole it is {whole:?}"));
            }
        }
        Ok(())
    }

    fn parsed(&self, template: &ResponseTemplate, cuts: &[usize]) -> Result<Parsed, String> {
        let describe = |error: challenges::issues::chat::parse::Error| error.to_string();
        let mut events = Vec::new();
        let mut parser =
            Parser::with_tools(template, &self.prefix, self.tools.clone(), &mut events).map_err(describe)?;
        let ends = cuts.iter().copied().chain([self.text.len()]);
        let mut from = 0;
        for end in ends {
            parser.feed(&self.text.as_bytes()[from..end], &mut events).map_err(describe)?;
            from = end;
        }
        let message = parser.finish(&mut events).map_err(describe)?;
        Ok(Parsed { message, appended: joined(&events) })
    }
}

/// A message, and what was reported of it on the way.
#[derive(Debug, PartialEq)]
struct Parsed {
    message: Message,
    appended: Vec<String>,
}

/// Events, those that add to one region taken together.
fn joined(events: &[Event]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut adds = false;
    for event in events {
        match (event, adds, out.last_mut()) {
            (Event::Append { text, .. }, true, Some(last)) => last.push_str(text),
            (Event::Append { field, text }, ..) => out.push(format!("{field}: {text}")),
            (Event::Open { field }, ..) => out.push(format!("{field} opens")),
            (Event::Close { field, value }, ..) => out.push(format!("{field} closes: {value}")),
        }
        adds = matches!(event, Event::Append { .. });
    }
    out
}
