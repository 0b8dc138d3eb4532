//! A template, what it is told, and what comes out of it.

use std::rc::Rc;

use super::Host;
use super::clock::Clock;
use super::context::{Context, Meter};
use super::engine::compile::compile;
use super::engine::program::Program;
use super::engine::run::Run;
use super::error::{Error, Kind};
use super::limits::{Limit, Limits};
use super::python::big;
use super::python::value::{Value, dict, int, list};
use super::syntax::lexer::{normalized, tokens};
use super::syntax::parser::parse;
use reference::exact;

/// What a render may take, what its clock shows, and whose steps it takes.
#[derive(Clone, Copy)]
pub struct Environment<'h> {
    /// What a render may take.
    pub limits: &'h Limits,
    /// The time that `strftime_now` writes.
    pub clock: Clock,
    /// Who writes texts as JSON, and numbers.
    pub host: &'h dyn Host,
}

/// A chat template, compiled once and rendered as often as wanted, from any thread.
pub struct Template {
    program: Program,
    mentions_content: bool,
}

/// What a template wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The text.
    pub text: String,
    /// Where the assistant's text is, in characters from the start: what stands between `{% generation %}` and
    /// `{% endgeneration %}`, in the order in which it was written.
    pub spans: Vec<std::ops::Range<usize>>,
}

impl Template {
    /// Compiles `source`.
    pub fn new(source: &str, limits: &Limits) -> Result<Template, Error> {
        if source.len() > limits.source_bytes {
            return Err(limits.exceeded(Limit::Source));
        }
        let text = normalized(source);
        let program = tokens(&text).and_then(|tokens| compile(&parse(&tokens)?, &text));
        let program = program.map_err(|error| error.shown(&text))?;
        Ok(Template { program, mentions_content: source.contains("content") })
    }

    /// Whether it can read the messages' content at all.
    pub(super) fn mentions_content(&self) -> bool {
        self.mentions_content
    }

    /// Renders with `variables`.
    pub fn render(&self, variables: &Variables, environment: Environment) -> Result<Rendered, Error> {
        let Environment { limits, clock, host } = environment;
        let cx = Context::new(limits, host, clock);
        let mut run = Run::new(&self.program, limits, &cx, variables);
        run.all().map_err(|error| error.shown(&self.program.source))?;
        let (text, spans) = run.out.finish();
        Ok(Rendered { text, spans })
    }
}

/// How many variables a template may be given.
const MAX_VARIABLES: usize = 1024;

/// What a template knows by name.
#[derive(Clone, Debug, Default)]
pub struct Variables(Rc<Vec<(String, Value)>>);

impl Variables {
    /// Variables of JSON values. Refuses what is nested deeper than `limits` allow.
    pub fn new<'a>(
        named: impl IntoIterator<Item = (&'a str, &'a serde_json::Value)>,
        limits: &Limits,
    ) -> Result<Variables, Error> {
        let cx = &Meter::variables(limits);
        let mut out: Vec<(String, Value)> = Vec::new();
        for (name, json) in named {
            let value = from_json(cx, json, limits.depth)?;
            out.retain(|(found, _)| found != name);
            if out.len() == MAX_VARIABLES {
                return Err(Error::new(Kind::Limit, format!("more than {MAX_VARIABLES} variables")));
            }
            out.push((name.to_string(), value));
        }
        Ok(Variables(Rc::new(out)))
    }

    pub(super) fn get(&self, name: &str) -> Option<Value> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone())
    }

    /// The first of them.
    pub(super) fn first(&self) -> Option<&Value> {
        self.0.first().map(|(_, value)| value)
    }
}

/// What a text takes besides its characters: what the allocator and the count of its holders add.
const TEXT_BYTES: usize = 32;
/// What a dict takes besides its entries, and what it may keep of a key to find it soon.
const DICT_BYTES: usize = 128;
const KEY_BYTES: usize = 40;

/// Refuses at once what would not fit; what does is paid for where it is built.
fn room(cx: &Meter, count: usize, bytes: usize) -> Result<(), Error> {
    if cx.left() < count.saturating_mul(bytes) { Err(cx.exceeded(Limit::Variables)) } else { Ok(()) }
}

/// A JSON value as the template sees it.
fn from_json(cx: &Meter, json: &serde_json::Value, depth: usize) -> Result<Value, Error> {
    use serde_json::Value as Json;
    let Some(inner) = depth.checked_sub(1) else {
        return Err(cx.exceeded(Limit::Depth));
    };
    match json {
        Json::Null => Ok(Value::None),
        Json::Bool(bool) => Ok(Value::from(*bool)),
        Json::Number(number) => Ok(match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Value::Int(whole),
            (None, Some(whole)) => int(whole.into()),
            _ => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        }),
        Json::String(text) => {
            cx.charge(TEXT_BYTES + text.len())?;
            Ok(Value::from(text.as_str()))
        }
        Json::Array(all) => {
            room(cx, all.len(), size_of::<Value>())?;
            let items = all.iter().map(|item| from_json(cx, item, inner)).collect::<Result<_, _>>()?;
            list(cx, items)
        }
        Json::Object(_) if let Some(digits) = exact::digits(json) => {
            cx.charge(digits.len())?;
            big::parse(digits, 10).map(big::whole)
        }
        Json::Object(entries) => {
            room(cx, entries.len(), 2 * size_of::<Value>())?;
            cx.charge(DICT_BYTES)?;
            let pair = |(key, value): (&String, _)| {
                cx.charge(TEXT_BYTES + KEY_BYTES + key.len())?;
                Ok((Value::from(key.as_str()), from_json(cx, value, inner)?))
            };
            dict(cx, entries.iter().map(pair).collect::<Result<_, Error>>()?)
        }
    }
}
