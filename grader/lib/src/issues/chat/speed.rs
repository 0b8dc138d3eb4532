//! How long a prompt takes, and how much text a parser reads a second. Nothing rests on it; the book tells it.

use std::time::Instant;

use challenges::issues::chat::own::{self, Own};
use challenges::issues::chat::parse::{Parser, ResponseTemplate};
use challenges::issues::chat::{Conversation, Kind, Rendered, Steps};
use serde_json::json;

use super::prompts::template;
use crate::gather::{Child, Effort, Unwound, caught};
use crate::scorecard::Measurement;
use crate::timing::median;

/// Renders every conversation with every template that takes it, again and again.
pub(super) fn prompts(child: &mut Child, steps: &Steps) {
    let rounds = rounds(&child.request.effort);
    let timed = caught(|| {
        let renders = renders(steps)?;
        let round = || {
            let start = Instant::now();
            let bytes: usize = renders.iter().map(|render| render()).sum();
            (start.elapsed().as_secs_f64() * 1e6 / renders.len() as f64, bytes)
        };
        Ok((0..rounds).map(|_| round().0).collect::<Vec<f64>>())
    });
    report(child, "issues.prompts.time", "us", timed);
}

fn rounds(effort: &Effort) -> usize {
    effort.samples.unwrap_or(if effort.quick { 5 } else { 25 })
}

type Render = Box<dyn Fn() -> usize>;

/// A render each; the answer is the text's length.
fn renders(steps: &Steps) -> Result<Vec<Render>, String> {
    let mut out: Vec<Render> = Vec::new();
    for own in own::all() {
        let template = std::rc::Rc::new(template(own, steps).map_err(|error| error.to_string())?);
        let taken = own::expected().iter().filter(|row| row.template == own.name && row.text.is_ok());
        for row in taken {
            let Some((own, case)) = super::prompts::found(row) else { continue };
            let (template, conversation): (_, Conversation) = (template.clone(), own.conversation(case));
            out.push(Box::new(move || {
                template.chat(&conversation).map_or(0, |rendered| rendered.text.len())
            }));
        }
    }
    Ok(out)
}

/// The text that a call keeps, in bytes: a file, as models write them.
const KEPT: usize = 64 << 10;

/// Parses a call with a long argument in each format, in pieces of 4 KiB.
pub(super) fn calls(child: &mut Child, steps: &Steps) {
    let rounds = rounds(&child.request.effort);
    let timed = caught(|| {
        let formats = own::all().iter().filter_map(|own| Format::new(own, steps).transpose());
        let formats = formats.collect::<Result<Vec<Format>, String>>()?;
        let round = || -> Result<f64, String> {
            let start = Instant::now();
            formats.iter().try_for_each(Format::parse)?;
            let bytes: usize = formats.iter().map(|format| format.text.len()).sum();
            Ok(bytes as f64 / start.elapsed().as_secs_f64() / 1e6)
        };
        (0..rounds).map(|_| round()).collect()
    });
    report(child, "issues.calls.rate", "MB/s", timed);
}

/// A format, and what an assistant says in it.
struct Format {
    template: ResponseTemplate,
    prefix: String,
    text: String,
}

impl Format {
    /// None where a format has no calls and its template says so.
    fn new(own: &Own, steps: &Steps) -> Result<Option<Self>, String> {
        let case = own::conversations().iter().find(|case| case.name == "quotes").ok_or("no conversation")?;
        let line = "the quick brown fox jumps over 13 lazy dogs, and says so;\n";
        let call = json!({ "name": "save", "arguments": { "text": line.repeat(KEPT / line.len()) } });
        let call = json!({ "id": "call00001", "type": "function", "function": call });
        let messages = [
            json!({ "role": "user", "content": "Keep it." }),
            json!({ "role": "assistant", "content": "", "tool_calls": [call] }),
        ];
        let conversation = Conversation { messages: messages.into(), ..own.conversation(case) };
        let describe = |error: &dyn std::fmt::Display| format!("the format {}: {error}", own.name);
        let rendered = template(own, steps).and_then(|template| template.chat(&conversation));
        let Rendered { text, spans } = match rendered {
            Err(error) if error.kind == Kind::RaiseException => return Ok(None),
            rendered => rendered.map_err(|error| describe(&error))?,
        };
        let start = spans.first().map_or(0, |span| span.start);
        let (prefix, text) = text.split_at(text.char_indices().nth(start).map_or(0, |(byte, _)| byte));
        let template =
            ResponseTemplate::with(&own.response, steps.clone()).map_err(|error| describe(&error))?;
        Ok(Some(Self { template, prefix: prefix.to_owned(), text: text.to_owned() }))
    }

    fn parse(&self) -> Result<(), String> {
        let mut events = Vec::new();
        let describe = |error: challenges::issues::chat::parse::Error| error.to_string();
        let mut parser = Parser::new(&self.template, &self.prefix, &mut events).map_err(describe)?;
        for piece in self.text.as_bytes().chunks(4096) {
            parser.feed(piece, &mut events).map_err(describe)?;
        }
        parser.finish(&mut events).map(drop).map_err(describe)
    }
}

fn report(child: &mut Child, name: &str, unit: &str, timed: Result<Result<Vec<f64>, String>, Unwound>) {
    match timed {
        Ok(Ok(samples)) => {
            let (value, unit) = (median(&samples), unit.into());
            child.measured(name, Measurement { value, unit, interval: None, samples });
        }
        Ok(Err(reason)) | Err(Unwound::Panic(reason)) => child.unmeasured(name, &reason),
        Err(Unwound::Hole(hole)) => child.unmeasured(name, &format!("not written yet: {hole}")),
    }
}
