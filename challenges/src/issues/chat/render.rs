//! The engine: what it is told, and what comes out of it.

use std::io;
use std::sync::{Arc, LazyLock};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Object, ValueKind};
use minijinja::{AutoEscape, Environment, ErrorKind, Output, State, UndefinedBehavior, Value};

use super::clock::Clock;
use super::error::{Error, Kind};
use super::limits::{Limits, Meter, charge};
use super::python::compare::{contains, equal, ordered};
use super::python::functions::{self, Global, Macro, Missing};
use super::python::value::{
    Answer, Args, Forbidden, Space, View, defined, dict, items, list, raise, tuple, type_name, view,
};
use super::python::{filters, methods, number, operators, tests, text};
use super::spans;
use super::syntax::lexer::{normalized, tokens};
use super::syntax::parser::parse;
use super::syntax::write::{mangled, write};

/// What a template is compiled with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What a render may take.
    pub limits: Limits,
    /// The time that `strftime_now` writes.
    pub clock: Clock,
}

/// A chat template, compiled once and rendered as often as wanted, from any thread.
pub struct Template {
    engine: Environment<'static>,
    lines: Vec<u32>,
    options: Options,
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

/// The engine's name of the one template.
const NAME: &str = "chat";

impl Template {
    /// Compiles `source`.
    pub fn new(source: &str, options: Options) -> Result<Template, Error> {
        if source.len() > options.limits.source_bytes {
            let message = format!("{} bytes, more than {}", source.len(), options.limits.source_bytes);
            return Err(Error::new(Kind::Limit, format!("a template of {message}")));
        }
        let markup = ["safe", "escape", "|e", "| e", "xmlattr"].iter().any(|word| source.contains(word));
        let written = write(&parse(&tokens(&normalized(source))?)?, markup)?;
        let mut engine = ENGINE.clone();
        engine.set_fuel(Some(options.limits.steps));
        engine.add_global("strftime_now", strftime_now(options.clock));
        engine.add_template_owned(NAME, written.source).map_err(|error| placed(&error, &written.lines))?;
        let mentions_content = source.contains("content");
        Ok(Template { engine, lines: written.lines, options, mentions_content })
    }

    /// What it was compiled with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether it can read the messages' content at all.
    pub(super) fn mentions_content(&self) -> bool {
        self.mentions_content
    }

    /// Renders with `variables`.
    pub fn render(&self, variables: &Variables) -> Result<Rendered, Error> {
        let limits = &self.options.limits;
        let meter = Meter::start(limits);
        spans::start();
        let mut sink = Sink { bytes: Vec::with_capacity(4096), most: limits.output_bytes };
        let root = Value::from_object(Root(variables.0.clone()));
        let template = self.engine.get_template(NAME).map_err(|error| placed(&error, &self.lines))?;
        let state =
            template.render_captured_to(root, &mut sink).map_err(|error| placed(&error, &self.lines))?;
        drop(state);
        drop(meter);
        let text =
            String::from_utf8(sink.bytes).map_err(|_| Error::new(Kind::Runtime, "text that is no UTF-8"))?;
        Ok(Rendered { spans: spans::finish(&text), text })
    }
}

/// How many variables a template may be given.
const MAX_VARIABLES: usize = 1024;

/// What a template knows by name.
#[derive(Clone, Debug, Default)]
pub struct Variables(Arc<Vec<(String, Value)>>);

impl Variables {
    /// Variables of JSON values. Refuses what is nested deeper than `limits` allow.
    pub fn new<'a>(
        named: impl IntoIterator<Item = (&'a str, &'a serde_json::Value)>,
        limits: &Limits,
    ) -> Result<Variables, Error> {
        let _meter = Meter::start(limits);
        let mut out: Vec<(String, Value)> = Vec::new();
        for (name, json) in named {
            let (name, value) = (mangled(name), from_json(json, limits.depth)?);
            out.retain(|(found, _)| *found != name);
            if out.len() == MAX_VARIABLES {
                return Err(Error::new(Kind::Limit, format!("more than {MAX_VARIABLES} variables")));
            }
            out.push((name, value));
        }
        Ok(Variables(Arc::new(out)))
    }

    /// The first of them.
    pub(super) fn first(&self) -> Option<&Value> {
        self.0.first().map(|(_, value)| value)
    }
}

/// A JSON value as the template sees it.
fn from_json(json: &serde_json::Value, depth: usize) -> Result<Value, Error> {
    use serde_json::Value as Json;
    let Some(inner) = depth.checked_sub(1) else {
        return Err(Error::new(Kind::Limit, "a value that is nested deeper than allowed"));
    };
    match json {
        Json::Null => Ok(Value::from(())),
        Json::Bool(bool) => Ok(Value::from(*bool)),
        Json::Number(number) => Ok(match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Value::from(int),
            (None, Some(int)) => Value::from(i128::from(int)),
            _ => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        }),
        Json::String(text) => {
            charge(text.len())?;
            Ok(Value::from(text.as_str()))
        }
        Json::Array(all) => {
            let items = all.iter().map(|item| from_json(item, inner)).collect::<Result<_, _>>()?;
            list(items).map_err(|error| ours(&error))
        }
        Json::Object(entries) => {
            let pair = |(key, value): (&String, _)| Ok((Value::from(key.as_str()), from_json(value, inner)?));
            dict(entries.iter().map(pair).collect::<Result<_, Error>>()?).map_err(|error| ours(&error))
        }
    }
}

#[derive(Debug)]
struct Root(Arc<Vec<(String, Value)>>);

impl Object for Root {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    }
}

/// Takes the text, up to a limit.
struct Sink {
    bytes: Vec<u8>,
    most: usize,
}

impl io::Write for &mut Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            return Err(io::Error::other("the text is longer than allowed"));
        }
        self.bytes.extend_from_slice(bytes);
        spans::written(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Our error out of the engine's.
pub(crate) fn ours(error: &minijinja::Error) -> Error {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(found) = inner.downcast_ref::<Error>() {
            return found.clone();
        }
        source = inner.source();
    }
    let detail = error.detail().unwrap_or_default();
    let kind = match error.kind() {
        ErrorKind::UndefinedError | ErrorKind::UnknownFunction | ErrorKind::UnknownMethod => Kind::Undefined,
        ErrorKind::OutOfFuel | ErrorKind::WriteFailure => Kind::Limit,
        ErrorKind::CannotUnpack => Kind::Value,
        _ if detail.contains("recursion limit") => Kind::Limit,
        ErrorKind::SyntaxError => Kind::Syntax,
        _ if detail.contains("type undefined is not callable") => Kind::Undefined,
        _ => Kind::Type,
    };
    Error::new(kind, if detail.is_empty() { error.kind().to_string() } else { detail.to_string() })
}

/// Our error, at the template's own line.
fn placed(error: &minijinja::Error, lines: &[u32]) -> Error {
    let found = ours(error);
    let line = error.line().and_then(|line| lines.get(line - 1)).copied();
    Error { line: found.line.or(line), ..found }
}

/// The engine with everything that templates share.
static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut engine = Environment::empty();
    let mut syntax = SyntaxConfig::builder();
    syntax.keep_trailing_newline(true);
    if let Ok(syntax) = syntax.build() {
        engine.set_syntax(syntax);
    }
    engine.set_undefined_behavior(UndefinedBehavior::Lenient);
    engine.set_auto_escape_callback(|_| AutoEscape::None);
    engine.set_recursion_limit(400);
    engine.set_formatter(emit);
    engine.set_unknown_method_callback(methods::call);
    add_operators(&mut engine);
    add_filters(&mut engine);
    add_functions(&mut engine);
    engine
});

/// Writes a value.
fn emit(out: &mut Output, state: &mut State, value: &Value) -> Result<(), minijinja::Error> {
    let escapes = !matches!(state.auto_escape(), AutoEscape::None) && !value.is_safe();
    if let (View::Str(text), false) = (view(value), escapes) {
        charge(text.len())?;
        return Ok(out.write_str(text)?);
    }
    let text = text::str_of(value)?;
    Ok(out.write_str(&if escapes { text::escaped(&text)? } else { text })?)
}

fn strftime_now(clock: Clock) -> Value {
    Global::named("strftime_now", move |args| {
        Ok(Value::from(clock.now().format(&functions::strftime_format(args)?)?))
    })
}

fn add_functions(engine: &mut Environment<'static>) {
    type Work = fn(&[Value]) -> Answer;
    let all: [(&'static str, Work); 7] = [
        ("range", functions::range),
        ("dict", functions::dict_of),
        ("namespace", functions::namespace),
        ("cycler", functions::cycler),
        ("joiner", functions::joiner),
        ("lipsum", functions::lipsum),
        ("raise_exception", functions::raise_exception),
    ];
    for (name, work) in all {
        engine.add_global(name, Global::named(name, work));
    }
}

fn named(kwargs: &Kwargs) -> Vec<(String, Value)> {
    let names: Vec<String> = kwargs.args().map(str::to_string).collect();
    names.into_iter().filter_map(|name| kwargs.peek(&name).ok().map(|value| (name, value))).collect()
}

fn add_filters(engine: &mut Environment<'static>) {
    for name in filters::NAMES {
        let Some(filter) = filters::find(name) else { continue };
        engine.add_filter(name, move |args: &[Value]| filtered(filter, args, Vec::new()));
        engine.add_filter(format!("{name}__named"), move |args: &[Value], kwargs: Kwargs| {
            filtered(filter, args, named(&kwargs))
        });
    }
    for name in tests::NAMES {
        let Some(test) = tests::find(name) else { continue };
        if !quick_test(engine, name) {
            engine.add_test(format!("t_{name}"), move |args: &[Value]| tested(test, args, Vec::new()));
        }
        engine.add_test(format!("t_{name}__named"), move |args: &[Value], kwargs: Kwargs| {
            tested(test, args, named(&kwargs))
        });
    }
}

/// The tests that templates ask most, without the way through their arguments.
fn quick_test(engine: &mut Environment<'static>, name: &str) -> bool {
    let test: fn(&Value) -> bool = match name {
        "defined" => |value| !tests::is_undefined(value),
        "undefined" => tests::is_undefined,
        "none" => Value::is_none,
        "string" => |value| value.kind() == ValueKind::String,
        "mapping" => |value| matches!(view(value), View::Dict(_)),
        "iterable" => tests::is_iterable,
        "sequence" => tests::is_sequence,
        _ => return false,
    };
    engine.add_test(format!("t_{name}"), move |value: &Value| test(value));
    true
}

fn filtered(filter: filters::Filter, args: &[Value], named: Vec<(String, Value)>) -> Answer {
    let Some((value, rest)) = args.split_first() else { return Ok(Value::UNDEFINED) };
    charge(8 + value.as_bytes().map_or(0, <[u8]>::len))?;
    filter(value, &Args { positional: rest, named })
}

fn tested(test: tests::Test, args: &[Value], named: Vec<(String, Value)>) -> Result<bool, minijinja::Error> {
    let Some((value, rest)) = args.split_first() else { return Ok(false) };
    charge(8 + value.as_bytes().map_or(0, <[u8]>::len))?;
    Ok(test(value, &Args { positional: rest, named })?)
}

fn add_operators(engine: &mut Environment<'static>) {
    engine.add_filter("__add", operators::add);
    engine.add_filter("__text", |value: &Value| -> Answer {
        match view(value) {
            View::Str(_) => Ok(value.clone()),
            _ => operators::add(&[Value::from(""), value.clone()]),
        }
    });
    engine.add_filter("__concat", |state: &State, args: &[Value]| -> Answer {
        operators::concat(args, !matches!(state.auto_escape(), AutoEscape::None))
    });
    engine.add_filter("__sub", |a: &Value, b: &Value| operators::sub(a, b));
    engine.add_filter("__mul", |a: &Value, b: &Value| operators::mul(a, b));
    engine.add_filter("__div", |a: &Value, b: &Value| operators::div(a, b));
    engine.add_filter("__floordiv", |a: &Value, b: &Value| operators::floor_div(a, b));
    engine.add_filter("__mod", |a: &Value, b: &Value| operators::modulo(a, b));
    engine.add_filter("__pow", |a: &Value, b: &Value| operators::pow(a, b));
    engine.add_filter("__neg", |a: &Value| operators::signed(a, true));
    engine.add_filter("__pos", |a: &Value| operators::signed(a, false));
    // Jinja computes a slice of literals while it compiles, and takes what fails for undefined.
    engine.add_filter(
        "__slice_literal",
        |value: &Value, start: &Value, stop: &Value, step: &Value| -> Answer {
            match operators::slice(value, start, stop, step) {
                Err(error) if ours(&error).kind == Kind::Type => Ok(Value::UNDEFINED),
                done => done,
            }
        },
    );
    engine.add_filter("__slice", |value: &Value, start: &Value, stop: &Value, step: &Value| {
        operators::slice(value, start, stop, step)
    });
    engine
        .add_filter("__attr", |value: &Value, name: &str| -> Answer { Ok(methods::attribute(value, name)?) });
    engine.add_filter("__item", |value: &Value, key: &Value| -> Answer { Ok(methods::item(value, key)?) });
    engine.add_filter("__list", |value: &Value| -> Answer { list(items(value)?) });
    engine.add_filter("__tuple", |value: &Value| -> Answer { tuple(items(value)?) });
    engine.add_filter("__dict", |value: &Value| -> Answer {
        let all = items(value)?;
        dict(all.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
    });
    engine.add_filter("__float", |text: &str| -> Answer {
        Ok(Value::from(number::parse_float(text).unwrap_or(f64::NAN)))
    });
    engine.add_filter("__bool", |value: &Value| value.is_true());
    engine.add_filter("__iter", iter);
    engine.add_filter("__unpack", |value: &Value, count: usize| -> Answer {
        tuple(filters::unpacked(value, count)?)
    });
    engine.add_filter("__mapping", mapping);
    engine.add_filter("__chain", chain);
    engine.add_filter("__setattr", set_attribute);
    engine.add_filter("__macro", Macro::of);
    engine.add_global("__missing", Value::from_object(Missing));
    engine.add_filter("__foreign", |_: &Value| -> Answer {
        Err(raise(Kind::Type, "no loader for this environment specified"))
    });
    engine.add_filter("__generation", |value: &Value| -> Answer {
        spans::record(value.as_str().unwrap_or_default());
        Ok(value.clone())
    });
    engine.add_filter("__call", |state: &mut State, args: &[Value], kwargs: Kwargs| -> Answer {
        let Some((value, rest)) = args.split_first() else { return Ok(Value::UNDEFINED) };
        methods::call_value(state, value, &with_kwargs(rest, kwargs))
    });
    engine.add_filter("__method", method);
    engine.add_test("__missing", |value: &Value| value.downcast_object_ref::<Missing>().is_some());
    engine.add_test("__eq", |a: &Value, b: &Value| -> Result<bool, minijinja::Error> {
        let equal = equal(a, b);
        charge(8)?;
        Ok(equal)
    });
    engine.add_test("__in", |item: &Value, all: &Value| Ok(contains(all, item)?));
    engine.add_test("__lt", |a: &Value, b: &Value| Ok(ordered("<", a, b)?));
    engine.add_test("__le", |a: &Value, b: &Value| Ok(ordered("<=", a, b)?));
    engine.add_test("__gt", |a: &Value, b: &Value| Ok(ordered(">", a, b)?));
    engine.add_test("__ge", |a: &Value, b: &Value| Ok(ordered(">=", a, b)?));
}

fn with_kwargs(args: &[Value], kwargs: Kwargs) -> Vec<Value> {
    let mut all = args.to_vec();
    if kwargs.args().next().is_some() {
        all.push(Value::from(kwargs));
    }
    all
}

/// `value.name(args)` for the names that the engine must not call by itself.
fn method(state: &mut State, args: &[Value], kwargs: Kwargs) -> Answer {
    let [value, name, rest @ ..] = args else { return Ok(Value::UNDEFINED) };
    let name = name.as_str().unwrap_or_default();
    let is_loop = value.as_object().is_some_and(|object| object.type_name().ends_with("Loop"));
    if !is_loop {
        return methods::call(state, value, name, &with_kwargs(rest, kwargs));
    }
    // A loop's own `cycle` divides by the count of its arguments, and `changed` keeps them.
    if name == "cycle" && rest.is_empty() {
        return Err(raise(Kind::Type, "no items for cycling given"));
    }
    if name == "changed" && rest.iter().any(|arg| arg.as_object().is_some()) {
        return Err(raise(Kind::Unsupported, "loop.changed() of other than texts and numbers"));
    }
    value.call_method(state, name, rest)
}

/// What a loop goes over: `value` itself where the engine can take it, with items of `arity` parts if that is not 0.
fn iter(value: &Value, arity: Option<usize>) -> Answer {
    let arity = arity.unwrap_or(0);
    if let View::Seq(seq) = view(value) {
        charge(size_of::<Value>() * seq.items.len())?;
    }
    let plain = match view(value) {
        View::Seq(seq) => arity == 0 || seq.items.iter().all(|item| has_parts(item, arity)),
        View::Dict(_) | View::Undefined => arity == 0,
        _ => false,
    };
    if plain {
        return Ok(value.clone());
    }
    let mut all = items(value)?;
    if arity > 0 {
        for item in &mut all {
            *item = tuple(filters::unpacked(item, arity)?)?;
        }
    }
    list(all)
}

fn has_parts(item: &Value, arity: usize) -> bool {
    matches!(view(item), View::Seq(seq) if seq.items.len() == arity)
}

/// What may follow `**`.
fn mapping(value: &Value) -> Answer {
    defined(value)?;
    match view(value) {
        View::Dict(of) if of.entries.iter().all(|(key, _)| matches!(view(key), View::Str(_))) => {
            Ok(value.clone())
        }
        View::Dict(_) => Err(raise(Kind::Type, "keywords must be strings")),
        _ => {
            let name = type_name(value);
            Err(raise(Kind::Type, format!("argument after ** must be a mapping, not {name}")))
        }
    }
}

/// `a < b <= c`: each pair in turn, up to the first that fails.
fn chain(args: &[Value]) -> Answer {
    let [first, rest @ ..] = args else { return Ok(Value::UNDEFINED) };
    let mut left = first;
    for pair in rest.chunks_exact(2) {
        let (op, right) = (pair[0].as_str().unwrap_or_default(), &pair[1]);
        let holds = match op {
            "==" => equal(left, right),
            "!=" => !equal(left, right),
            "in" => contains(right, left)?,
            "not in" => !contains(right, left)?,
            op => ordered(op, left, right)?,
        };
        if !holds {
            return Ok(Value::from(false));
        }
        left = right;
    }
    Ok(Value::from(true))
}

/// `{% set space.name = value %}`.
fn set_attribute(space: &Value, name: &str, value: &Value) -> Answer {
    let Some(space) = space.downcast_object_ref::<Space>() else {
        return Err(raise(Kind::Runtime, "cannot assign attribute on non-namespace object"));
    };
    private(name)?;
    space.set(&Value::from(name), value.clone())?;
    Ok(Value::UNDEFINED)
}

/// Refuses to keep a private name in a namespace.
pub(crate) fn private(name: &str) -> Result<(), Error> {
    if !name.starts_with('_') {
        return Ok(());
    }
    Err(Forbidden(format!("a namespace cannot keep the name '{name}', which begins with an underscore"))
        .error())
}
