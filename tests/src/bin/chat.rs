//! Renders and parses for a peer that times it in turns with its own: `tests/peers/chat.py` starts it.
//!
//!     chat render FILE
//!     chat parse FILE
//!     chat rows FILE
//!
//! The file of `render` has a JSON line for each template: `source`, and for each conversation the variables. For each
//! line `N REPEATS` on standard input all conversations of template N are rendered so often, and a JSON line tells the
//! seconds and, for the last round, each text; null where the template refuses. A conversation's variables are made the
//! engine's before, as Python's are its own.
//!
//! The file of `parse` has a JSON line for each family: `template`, `text` and, if something stands before it,
//! `prefix`. For each line `N BYTES REPEATS` the text is fed in pieces of so many bytes, and a JSON line tells the
//! seconds and the message; null where it is refused.
//!
//! The file of `rows` has a JSON line for each row: `template` and `context`; with `messages` that many short ones are
//! added. A JSON line tells the text or the error's kind and what it says, and how many bytes the render took at its
//! peak.

extern crate solutions as _; // what `Solution` calls

use std::hint::black_box;
use std::time::Instant;

use challenges::issues::chat::{ChatTemplate, Clock, Limits, Moment, Options, Variables, parse};
use grader as _; // its allocator counts
use kernels::bytes;
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, file] = &arguments[..] else {
        return Err("chat: expected render, parse or rows, and a file".into());
    };
    let text = std::fs::read_to_string(file)?;
    let jobs: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    match what.as_str() {
        "render" => render(&jobs),
        "parse" => parse(&jobs),
        "rows" => rows(&jobs),
        _ => Err(format!("chat: expected render, parse or rows, found {what:?}").into()),
    }
}

/// The numbers of each line on standard input.
fn orders() -> impl Iterator<Item = Result<Vec<usize>, Failure>> {
    std::io::stdin().lines().map(|line| {
        let numbers = line?.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        Ok(numbers)
    })
}

/// A template with its conversations.
type Job = (ChatTemplate, Vec<Variables>);

fn job(job: &Value) -> Result<Job, Failure> {
    let source = job["source"].as_str().ok_or("chat: a job without a source")?;
    let template = ChatTemplate::new(source, Options::default())?;
    let rows = job["conversations"].as_array().into_iter().flatten().filter_map(Value::as_object);
    let limits = Limits::default();
    let variables =
        rows.map(|row| Variables::new(row.iter().map(|(name, value)| (name.as_str(), value)), &limits));
    Ok((template, variables.collect::<Result<_, _>>()?))
}

fn render(jobs: &[Value]) -> Result<(), Failure> {
    let jobs: Vec<Job> = jobs.iter().map(job).collect::<Result<_, _>>()?;
    for order in orders() {
        let [at, repeats] = order?[..] else { return Err("chat: expected a template and a count".into()) };
        let (template, conversations) = jobs.get(at).ok_or("chat: no such template")?;
        let start = Instant::now();
        for _ in 0..repeats {
            for variables in conversations {
                let _ = black_box(template.render(variables));
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let text = |variables| template.render(variables).ok().map(|rendered| rendered.text);
        let texts: Vec<Option<String>> = conversations.iter().map(text).collect();
        println!("{}", json!({ "seconds": seconds, "texts": texts }));
    }
    Ok(())
}

fn rows(jobs: &[Value]) -> Result<(), Failure> {
    for job in jobs {
        let clock = Clock::Fixed(Moment { year: 2026, month: 1, day: 5, hour: 9, minute: 7, second: 3 });
        let source = job["template"].as_str().ok_or("a row without a template")?;
        let mut context = job["context"].as_object().cloned().unwrap_or_default();
        if let Some(count) = job["messages"].as_u64() {
            let message = json!({"role": "user", "content": "hi"});
            context.insert("messages".into(), Value::Array(vec![message; count as usize]));
        }
        let peak = bytes::Peak::begin().ok_or("too many peaks are counted already")?;
        let named = context.iter().map(|(name, value)| (name.as_str(), value));
        let done = ChatTemplate::new(source, Options { clock, ..Options::default() })
            .and_then(|template| template.render(&Variables::new(named, &Limits::default())?));
        let mut line = match done {
            Ok(rendered) => json!({ "text": rendered.text }),
            Err(error) => json!({ "error": error.kind.name(), "shown": error.to_string() }),
        };
        line["peak"] = json!(peak.bytes());
        println!("{line}");
    }
    Ok(())
}

fn parse(jobs: &[Value]) -> Result<(), Failure> {
    let template = |job: &Value| parse::ResponseTemplate::new(&job["template"]);
    let templates = jobs.iter().map(template).collect::<Result<Vec<_>, _>>()?;
    for order in orders() {
        let [at, bytes, repeats] = order?[..] else {
            return Err("chat: expected a family, the bytes of a piece and a count".into());
        };
        let (Some(template), Some(job)) = (templates.get(at), jobs.get(at)) else {
            return Err("chat: no such family".into());
        };
        let [prefix, text] = ["prefix", "text"].map(|name| job[name].as_str().unwrap_or_default());
        let start = Instant::now();
        let mut message = None;
        for _ in 0..repeats {
            message = black_box(streamed(template, prefix, text.as_bytes(), bytes.max(1))).ok();
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("{}", json!({ "seconds": seconds, "message": message }));
    }
    Ok(())
}

/// The message of a text that comes in pieces.
fn streamed(
    template: &parse::ResponseTemplate,
    prefix: &str,
    text: &[u8],
    bytes: usize,
) -> Result<parse::Message, parse::Error> {
    let mut events = Vec::new();
    let mut parser = parse::Parser::new(template, prefix, &mut events)?;
    for piece in text.chunks(bytes) {
        parser.feed(piece, &mut events)?;
        events.clear();
    }
    parser.finish(&mut events)
}
