//! What a template may call: its macros, and the functions that every template has.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::super::strftime;
use super::text::str_of;
use super::value::{
    Answer, Args, Dict, Seq, SeqKind, Space, Value, View, deepest, defined, dict, forbidden, index, int,
    items, iterable, raise, tuple, type_name, view,
};

/// What a template may ask a macro for.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) name: String,
    pub(crate) names: Vec<String>,
    /// Where `varargs`, `kwargs` and `caller` are kept, of those that the body uses.
    pub(crate) extras: [Option<usize>; 3],
}

/// A macro, and the frame that it was defined in.
#[derive(Debug)]
pub(crate) struct Macro {
    pub(crate) head: Arc<Head>,
    /// Which macro of the program.
    pub(crate) at: usize,
    /// The place of the frame on the stack, and its number.
    pub(crate) frame: (usize, u64),
}

impl Macro {
    pub(crate) fn attribute(&self, cx: &Context, name: &str) -> Option<Value> {
        let [varargs, kwargs, caller] = self.head.extras;
        match name {
            "name" => Some(Value::from(self.head.name.as_str())),
            "arguments" => {
                tuple(cx, self.head.names.iter().map(|name| Value::from(name.as_str())).collect()).ok()
            }
            "caller" => Some(Value::Bool(caller.is_some())),
            "catch_kwargs" => Some(Value::Bool(kwargs.is_some())),
            "catch_varargs" => Some(Value::Bool(varargs.is_some())),
            _ => None,
        }
    }
}

/// `cycler(a, b)`.
#[derive(Debug)]
pub(crate) struct Cycler {
    items: Vec<Value>,
    at: Cell<usize>,
    pub(crate) depth: usize,
}

impl Cycler {
    pub(crate) fn current(&self) -> Value {
        self.items.get(self.at.get() % self.items.len().max(1)).cloned().unwrap_or_default()
    }

    /// The item it stands at, stepping on; or back to the first.
    pub(crate) fn step(&self, next: bool) -> Value {
        if !next {
            self.at.set(0);
            return Value::None;
        }
        let item = self.current();
        self.at.set(self.at.get().wrapping_add(1));
        item
    }
}

/// `joiner(sep)`: nothing when first called, then the separator.
#[derive(Debug)]
pub(crate) struct Joiner {
    sep: Value,
    used: Cell<bool>,
}

impl Joiner {
    pub(crate) fn call(&self) -> Value {
        if self.used.replace(true) { self.sep.clone() } else { Value::from("") }
    }
}

/// A function that every template has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Builtin {
    Range,
    Dict,
    Namespace,
    Cycler,
    Joiner,
    Lipsum,
    RaiseException,
    StrftimeNow,
}

impl Builtin {
    pub(crate) fn named(name: &str) -> Option<Builtin> {
        Some(match name {
            "range" => Builtin::Range,
            "dict" => Builtin::Dict,
            "namespace" => Builtin::Namespace,
            "cycler" => Builtin::Cycler,
            "joiner" => Builtin::Joiner,
            "lipsum" => Builtin::Lipsum,
            "raise_exception" => Builtin::RaiseException,
            "strftime_now" => Builtin::StrftimeNow,
            _ => return None,
        })
    }

    pub(crate) fn call(self, cx: &Context, args: &Args) -> Answer {
        match self {
            Builtin::Range => range(cx, args),
            Builtin::Dict => dict(cx, entries(cx, args)?),
            Builtin::Namespace => namespace(cx, args),
            Builtin::Cycler => cycler(cx, args),
            Builtin::Joiner => joiner(cx, args),
            // Its words are random, so there are none.
            Builtin::Lipsum => Err(raise(Kind::Unsupported, "lipsum()")),
            Builtin::RaiseException => {
                Err(raise(Kind::RaiseException, str_of(cx, args.need(0, "message")?)?))
            }
            Builtin::StrftimeNow => {
                Ok(Value::from(strftime::format(cx.clock.now(), cx, &strftime_format(args)?)?))
            }
        }
    }
}

/// The longest range that the sandbox gives.
const MAX_RANGE: i128 = 100_000;

/// `range(stop)`, `range(start, stop)`, `range(start, stop, step)`.
fn range(cx: &Context, args: &Args) -> Answer {
    if args.positional.iter().any(|arg| matches!(view(arg), View::Huge(_))) {
        return Err(raise(Kind::Unsupported, "range() of numbers of more than 128 bits"));
    }
    let numbers = args.positional.iter().map(index).collect::<Result<Vec<_>, _>>()?;
    let (start, stop, step) = match numbers.as_slice() {
        [stop] => (0, *stop, 1),
        [start, stop] => (*start, *stop, 1),
        [start, stop, step] => (*start, *stop, *step),
        _ => return Err(raise(Kind::Type, "range expected 1 to 3 arguments")),
    };
    if step == 0 {
        return Err(raise(Kind::Value, "range() arg 3 must not be zero"));
    }
    let too_big =
        || raise(Kind::Overflow, format!("Range too big. The sandbox blocks ranges larger than {MAX_RANGE}"));
    let span =
        if step > 0 { stop.checked_sub(start) } else { start.checked_sub(stop) }.ok_or_else(too_big)?;
    let count = if span <= 0 { 0 } else { (span - 1) / step.checked_abs().ok_or_else(too_big)? + 1 };
    if count > MAX_RANGE {
        return Err(too_big());
    }
    let kind = SeqKind::Range(start, stop, step);
    Ok(Value::Seq(Rc::new(Seq::new(cx, kind, (0..count).map(|at| int(start + at * step)).collect())?)))
}

/// The entries of `dict(*args)`.
fn entries(cx: &Context, args: &Args) -> Result<Vec<(Value, Value)>, Error> {
    args.positional.iter().try_for_each(defined)?;
    let mut entries = match args.positional {
        [] => Vec::new(),
        [of] => entries_of(cx, of)?,
        many => {
            return Err(raise(Kind::Type, format!("dict expected at most 1 argument, got {}", many.len())));
        }
    };
    entries.extend(args.named.iter().map(|(name, value)| (Value::from(name.as_str()), value.clone())));
    Ok(entries)
}

fn entries_of(cx: &Context, of: &Value) -> Result<Vec<(Value, Value)>, Error> {
    if let View::Dict(dict) = view(of) {
        return Ok(dict.entries.clone());
    }
    let mut entries = Vec::new();
    for (at, pair) in items(cx, of)?.iter().enumerate() {
        let Some(parts) = iterable(cx, pair)? else {
            let message = format!("cannot convert dictionary update sequence element #{at} to a sequence");
            return Err(raise(Kind::Type, message));
        };
        let [key, value] = parts.as_slice() else {
            let length = parts.len();
            let message =
                format!("dictionary update sequence element #{at} has length {length}; 2 is required");
            return Err(raise(Kind::Value, message));
        };
        entries.push((key.clone(), value.clone()));
    }
    Ok(entries)
}

/// `namespace(...)`.
fn namespace(cx: &Context, args: &Args) -> Answer {
    let Dict { entries, .. } = Dict::new(cx, entries(cx, args)?)?;
    cx.charge(256)?;
    let space = Rc::new(Space::default());
    entries.iter().filter_map(|(name, _)| name.as_str()).try_for_each(private)?;
    for (name, value) in entries {
        space.add(cx, name, value)?;
    }
    cx.remember(&space);
    Ok(Value::Space(space))
}

/// Refuses to keep a private name in a namespace.
pub(crate) fn private(name: &str) -> Result<(), Error> {
    if !name.starts_with('_') {
        return Ok(());
    }
    Err(forbidden(&format!("a namespace cannot keep the name '{name}', which begins with an underscore")))
}

/// `cycler(...)`.
fn cycler(cx: &Context, args: &Args) -> Answer {
    if args.positional.is_empty() {
        return Err(Error::new(Kind::Runtime, "at least one item has to be provided"));
    }
    cx.charge(size_of_val(args.positional))?;
    let depth = deepest(cx, args.positional)?;
    Ok(Value::Cycler(Rc::new(Cycler { items: args.positional.to_vec(), at: Cell::new(0), depth })))
}

/// `joiner(sep)`.
fn joiner(cx: &Context, args: &Args) -> Answer {
    let sep = args.get(0, "sep").map_or_else(|| Ok(", ".to_string()), |sep| str_of(cx, sep))?;
    Ok(Value::Joiner(Rc::new(Joiner { sep: Value::from(sep), used: Cell::new(false) })))
}

/// The format that `strftime_now` was called with.
fn strftime_format(args: &Args) -> Result<String, Error> {
    let format = args.need(0, "format")?;
    match view(format) {
        View::Str(text) => Ok(text.to_string()),
        _ => Err(Error::new(
            Kind::Type,
            format!("strftime() argument 1 must be str, not {}", type_name(format)),
        )),
    }
}
