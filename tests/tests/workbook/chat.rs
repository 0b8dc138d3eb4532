//! Chat templates: what is written is what transformers writes, and no template or conversation does harm.

mod cases;
mod golden;
mod hostile;
mod laws;
mod tools;

use challenges::issues::chat::{ChatTemplate, Clock, Error, Limits, Moment, Options, Rendered, Variables};
use reference::exact;
use serde_json::Value;

/// Templates of a line or two by the test that reads them, and what jinja2 makes of them: `tests/peers/chat_python.py`.
const WRITTEN: &str = include_str!("chat/written.jsonl");

/// The rows of a test.
pub(super) fn written(test: &str) -> impl Iterator<Item = Value> {
    let rows = WRITTEN.lines().map(|line| exact::from_str(line).expect("a line of JSON"));
    rows.filter(move |row: &Value| row["test"] == test)
}

/// A moment to write, the one of the golden files.
const NOON: Moment = Moment { year: 2026, month: 1, day: 5, hour: 9, minute: 7, second: 3 };

fn options() -> Options {
    Options { clock: Clock::Fixed(NOON), ..Options::default() }
}

/// What `source` writes of the variables in a JSON object.
fn render_with(source: &str, context: &Value, options: Options) -> Result<Rendered, Error> {
    let named = context.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value));
    ChatTemplate::new(source, options)?.render(&Variables::new(named, &Limits::default())?)
}

fn render(source: &str, context: &Value) -> Result<String, Error> {
    render_with(source, context, options()).map(|rendered| rendered.text)
}
