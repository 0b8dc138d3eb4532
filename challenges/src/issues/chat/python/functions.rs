//! What a template may call: macros, and the functions that every template has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use minijinja::value::{Object, ObjectRepr};
use minijinja::{State, Value};

use super::super::error::{Error, Kind};
use super::super::limits::{charge, remember};
use super::text::str_of;
use super::value::{
    Answer, Args, Dict, Seq, SeqKind, Space, View, deepest, dict, index, int, items, raise, tuple, type_name,
    view,
};

/// A macro that binds its arguments as Python does and then calls the engine's.
#[derive(Debug)]
pub(crate) struct Macro {
    name: String,
    inner: Value,
    names: Vec<String>,
    defaults: usize,
    /// Which of `varargs`, `kwargs` and `caller` the body uses, by their first letters and in this order.
    extras: String,
}

/// Stands for an argument that was not given and has a default.
#[derive(Debug)]
pub(crate) struct Missing;

impl Object for Missing {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

impl Macro {
    /// Of the engine's macro and, after it, the name, the extras, the count of defaults and the arguments' names.
    pub(crate) fn of(args: &[Value]) -> Value {
        let [inner, name, extras, defaults, names @ ..] = args else { return Value::UNDEFINED };
        Value::from_object(Macro {
            name: name.as_str().unwrap_or_default().to_string(),
            inner: inner.clone(),
            names: names.iter().filter_map(|name| name.as_str().map(str::to_string)).collect(),
            defaults: defaults.as_usize().unwrap_or(0),
            extras: extras.as_str().unwrap_or_default().to_string(),
        })
    }

    fn bound(&self, args: &[Value]) -> Result<Vec<Value>, minijinja::Error> {
        let mut args = Args::new(args);
        let first_default = self.names.len() - self.defaults.min(self.names.len());
        let mut bound = Vec::with_capacity(self.names.len() + self.extras.len());
        for (at, name) in self.names.iter().enumerate() {
            let named = args.named.iter().position(|(found, _)| found == name);
            let named = named.filter(|_| at >= args.positional.len()).map(|found| args.named.remove(found).1);
            bound.push(match args.positional.get(at).cloned().or(named) {
                Some(value) => value,
                None if at >= first_default => Value::from_object(Missing),
                None => Value::UNDEFINED,
            });
        }
        self.extra(args, &mut bound)?;
        Ok(bound)
    }

    fn extra(&self, mut args: Args, bound: &mut Vec<Value>) -> Result<(), minijinja::Error> {
        let rest = args.positional.get(self.names.len()..).unwrap_or_default();
        if self.extras.contains('v') {
            bound.push(tuple(rest.to_vec())?);
        } else if !rest.is_empty() {
            let message =
                format!("macro '{}' takes not more than {} argument(s)", self.name, self.names.len());
            return Err(raise(Kind::Type, message));
        }
        let caller = args.named.iter().position(|(name, _)| name == "caller");
        let caller = caller.filter(|_| self.extras.contains('c')).map(|at| args.named.remove(at).1);
        if self.extras.contains('k') {
            bound.push(dict(
                args.named.into_iter().map(|(name, value)| (Value::from(name), value)).collect(),
            )?);
        } else if let Some((name, _)) = args.named.first() {
            return Err(raise(
                Kind::Type,
                format!("macro '{}' takes no keyword argument '{name}'", self.name),
            ));
        }
        if self.extras.contains('c') {
            bound.push(caller.unwrap_or_default());
        }
        Ok(())
    }
}

impl Object for Macro {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str()? {
            "name" => Some(Value::from(self.name.as_str())),
            "arguments" => tuple(self.names.iter().map(|name| Value::from(name.as_str())).collect()).ok(),
            "caller" => Some(Value::from(self.extras.contains('c'))),
            "catch_kwargs" => Some(Value::from(self.extras.contains('k'))),
            "catch_varargs" => Some(Value::from(self.extras.contains('v'))),
            _ => None,
        }
    }

    fn call(self: &Arc<Self>, state: &mut State, args: &[Value]) -> Answer {
        charge(256)?;
        self.inner.call(state, &self.bound(args)?)
    }
}

/// `cycler(a, b)`.
#[derive(Debug)]
pub(crate) struct Cycler {
    items: Vec<Value>,
    at: AtomicUsize,
    pub(crate) depth: usize,
}

impl Cycler {
    pub(crate) fn current(&self) -> Value {
        self.items[self.at.load(Ordering::Relaxed) % self.items.len()].clone()
    }

    /// The item it stands at, stepping on; or back to the first.
    pub(crate) fn step(&self, next: bool) -> Value {
        if !next {
            self.at.store(0, Ordering::Relaxed);
            return Value::from(());
        }
        let item = self.current();
        self.at.fetch_add(1, Ordering::Relaxed);
        item
    }
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// `joiner(sep)`: nothing when first called, then the separator.
#[derive(Debug)]
pub(crate) struct Joiner {
    sep: String,
    used: AtomicBool,
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _state: &mut State, _args: &[Value]) -> Answer {
        let used = self.used.swap(true, Ordering::Relaxed);
        Ok(if used { Value::from(self.sep.as_str()) } else { Value::from("") })
    }
}

type Work = dyn Fn(&[Value]) -> Answer + Send + Sync;

/// A function that every template has.
pub(crate) struct Global {
    name: &'static str,
    work: Box<Work>,
}

impl Global {
    /// A function `name` that does `work`.
    pub(crate) fn named(
        name: &'static str,
        work: impl Fn(&[Value]) -> Answer + Send + Sync + 'static,
    ) -> Value {
        Value::from_object(Global { name, work: Box::new(work) })
    }
}

impl std::fmt::Debug for Global {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<function {}>", self.name)
    }
}

impl Object for Global {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _state: &mut State, args: &[Value]) -> Answer {
        (self.work)(args)
    }
}

/// The longest range that the sandbox gives.
const MAX_RANGE: i128 = 100_000;

/// `range(stop)`, `range(start, stop)`, `range(start, stop, step)`.
pub(crate) fn range(args: &[Value]) -> Answer {
    let numbers = args.iter().map(index).collect::<Result<Vec<_>, _>>()?;
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
    let narrow = |number: i128| i64::try_from(number).map_err(|_| too_big());
    let kind = SeqKind::Range(narrow(start)?, narrow(stop)?, narrow(step)?);
    Ok(Value::from_object(Seq::new(kind, (0..count).map(|at| int(start + at * step)).collect())?))
}

/// The entries of `dict(*args)`.
fn entries(args: &[Value]) -> Result<Vec<(Value, Value)>, minijinja::Error> {
    let args = Args::new(args);
    args.positional.iter().try_for_each(super::value::defined)?;
    let mut entries = match args.positional {
        [] => Vec::new(),
        [of] => entries_of(of)?,
        many => {
            return Err(raise(Kind::Type, format!("dict expected at most 1 argument, got {}", many.len())));
        }
    };
    entries.extend(args.named.into_iter().map(|(name, value)| (Value::from(name), value)));
    Ok(entries)
}

fn entries_of(of: &Value) -> Result<Vec<(Value, Value)>, minijinja::Error> {
    if let View::Dict(dict) = view(of) {
        return Ok(dict.entries.clone());
    }
    let mut entries = Vec::new();
    for (at, pair) in items(of)?.iter().enumerate() {
        let Some(parts) = super::value::iterable(pair)? else {
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

/// `dict(...)`.
pub(crate) fn dict_of(args: &[Value]) -> Answer {
    dict(entries(args)?)
}

/// `namespace(...)`.
pub(crate) fn namespace(args: &[Value]) -> Answer {
    let Dict { entries, .. } = Dict::new(entries(args)?)?;
    charge(256)?;
    let space = Arc::new(Space { fields: std::sync::Mutex::default() });
    for (name, value) in entries {
        super::super::render::private(name.as_str().unwrap_or_default())?;
        space.set(&name, value)?;
    }
    remember(&space);
    Ok(Value::from_dyn_object(space))
}

/// `cycler(...)`.
pub(crate) fn cycler(args: &[Value]) -> Answer {
    let args = Args::new(args);
    if args.positional.is_empty() {
        return Err(Error::new(Kind::Runtime, "at least one item has to be provided").into());
    }
    charge(size_of_val(args.positional))?;
    let depth = deepest(args.positional)?;
    let at = AtomicUsize::new(0);
    Ok(Value::from_object(Cycler { items: args.positional.to_vec(), at, depth }))
}

/// `joiner(sep)`.
pub(crate) fn joiner(args: &[Value]) -> Answer {
    let args = Args::new(args);
    let sep = args.get(0, "sep").map_or_else(|| Ok(", ".to_string()), str_of)?;
    Ok(Value::from_object(Joiner { sep, used: AtomicBool::new(false) }))
}

/// `raise_exception(message)`.
pub(crate) fn raise_exception(args: &[Value]) -> Answer {
    Err(raise(Kind::RaiseException, str_of(Args::new(args).need(0, "message")?)?))
}

/// `lipsum()`: its words are random, so there are none.
pub(crate) fn lipsum(_args: &[Value]) -> Answer {
    Err(raise(Kind::Unsupported, "lipsum()"))
}

/// The format that `strftime_now` was called with.
pub(crate) fn strftime_format(args: &[Value]) -> Result<String, Error> {
    let args = Args::new(args);
    let format = args.need(0, "format")?;
    match view(format) {
        View::Str(text) => Ok(text.to_string()),
        _ => Err(Error::new(
            Kind::Type,
            format!("strftime() argument 1 must be str, not {}", type_name(format)),
        )),
    }
}
