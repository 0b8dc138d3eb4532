//! Calls: of macros, which run in a frame of their own, and of everything else.

use std::rc::Rc;

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::super::python::functions::Macro;
use super::super::python::methods;
use super::super::python::value::{
    Answer, Args, Value, View, defined, dict, items, raise, tuple, type_name, view,
};
use super::names::Frame;
use super::program::CallArgs;
use super::run::Run;

/// Arguments by name.
type Named = Vec<(String, Value)>;

/// How deep statements and expressions of macros that call each other may be nested together.
const MAX_LEVELS: usize = 1000;
/// What a call adds to that by itself.
const CALL_LEVELS: usize = 4;

impl<'t> Run<'t> {
    pub(super) fn macro_value(&self, at: usize) -> Value {
        let Some(code) = self.program.macros.get(at) else { return Value::Undefined };
        let frame = (self.names.stack.len(), self.names.frame.number);
        Value::Macro(Rc::new(Macro { head: code.head.clone(), at, frame }))
    }

    /// `value(args)`.
    pub(super) fn call(&mut self, value: &Value, args: &Args) -> Answer {
        match value {
            Value::Macro(of) => {
                let part = self.out.begin();
                self.call_macro(of, args)?;
                let text = self.out.take(&part)?;
                Ok(self.captive(text))
            }
            Value::Builtin(builtin) => builtin.call(self.cx, args),
            Value::Joiner(joiner) => Ok(joiner.call()),
            Value::Method(method) => methods::call_method(self.cx, method, args),
            _ => {
                defined(value)?;
                Err(raise(Kind::Type, format!("'{}' object is not callable", type_name(value))))
            }
        }
    }

    /// `value.name(args)`.
    pub(super) fn method(&mut self, value: &Value, name: &str, args: &Args) -> Answer {
        if let Some(done) = methods::call(self.cx, value, name, args) {
            return done;
        }
        let found = methods::attribute(self.cx, value, name)?;
        if found.is_undefined() {
            let of = type_name(value);
            return Err(raise(Kind::Undefined, format!("'{of} object' has no attribute '{name}'")));
        }
        self.call(&found, args)
    }

    /// Writes what a macro writes.
    #[inline(never)]
    pub(super) fn call_macro(&mut self, of: &Macro, args: &Args) -> Result<(), Error> {
        let Some(code) = self.program.macros.get(of.at) else { return Ok(()) };
        let (up, number) = of.frame;
        let alive = match self.names.stack.get(up) {
            Some(frame) => frame.number == number,
            None => up == self.names.stack.len() && self.names.frame.number == number,
        };
        if !alive {
            return Err(raise(Kind::Unsupported, "a macro is called where its definition has ended"));
        }
        self.cx.charge(256 + code.slots * size_of::<Value>())?;
        let mut slots = self.spare.pop().unwrap_or_default();
        slots.resize(code.slots, Value::Unset);
        bound(self.cx, of, code.defaults.len(), args, &mut slots)?;
        self.frames += 1;
        let frame = Frame { slots, up, number: self.frames };
        self.names.stack.push(std::mem::replace(&mut self.names.frame, frame));
        let done = self.deeper(code.height, |run| {
            let first = code.head.names.len().saturating_sub(code.defaults.len());
            for (slot, default) in (first..).zip(&code.defaults) {
                if matches!(run.names.frame.slots.get(slot), Some(Value::Unset)) {
                    let value = run.eval(default)?;
                    run.put(slot, value);
                }
            }
            run.block(&code.body)
        });
        let before = self.names.stack.pop().unwrap_or_default();
        let mut slots = std::mem::replace(&mut self.names.frame, before).slots;
        slots.clear();
        self.spare.push(slots);
        done.map(|_| ())
    }

    /// Computes arguments and does `work` with them.
    pub(super) fn with_args<T>(
        &mut self,
        given: &'t CallArgs,
        caller: Option<Value>,
        work: impl FnOnce(&mut Self, &Args) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if given.is_plain() && caller.is_none() {
            return match given.positional.as_slice() {
                [] => work(self, &Args::places(&[])),
                [one] => {
                    let all = [self.eval(one)?];
                    work(self, &Args::places(&all))
                }
                [one, two] => {
                    let all = [self.eval(one)?, self.eval(two)?];
                    work(self, &Args::places(&all))
                }
                many => {
                    let all = many.iter().map(|code| self.eval(code)).collect::<Result<Vec<_>, _>>()?;
                    work(self, &Args::places(&all))
                }
            };
        }
        let (all, named) = self.args(given, caller)?;
        work(self, &Args { positional: &all, named })
    }

    #[inline(never)]
    pub(super) fn args(
        &mut self,
        given: &'t CallArgs,
        caller: Option<Value>,
    ) -> Result<(Vec<Value>, Named), Error> {
        let mut all = given.positional.iter().map(|code| self.eval(code)).collect::<Result<Vec<_>, _>>()?;
        if let Some(args_splat) = &given.args_splat {
            all.extend(items(self.cx, &self.eval(args_splat)?)?);
        }
        let mut named = Vec::new();
        for (name, code) in &given.named {
            let (known, value) = (named.len(), self.eval(code)?);
            put_named(&mut named, known, name, value);
        }
        if let Some(kwargs_splat) = &given.kwargs_splat {
            let value = self.eval(kwargs_splat)?;
            let known = named.len();
            for (name, value) in mapping(self.cx, &value, known)? {
                put_named(&mut named, known, name, value.clone());
            }
        }
        if let Some(caller) = caller {
            let known = named.len();
            put_named(&mut named, known, "caller", caller);
        }
        Ok((all, named))
    }

    pub(super) fn deeper<T>(
        &mut self,
        height: usize,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let before = self.levels;
        self.levels += height + CALL_LEVELS;
        if self.levels > MAX_LEVELS {
            return Err(Error::new(Kind::Limit, format!("calls nest deeper than {MAX_LEVELS}")));
        }
        let done = work(self);
        self.levels = before;
        done
    }
}

/// Puts a macro's arguments where they belong.
fn bound(cx: &Context, of: &Macro, defaults: usize, args: &Args, slots: &mut [Value]) -> Result<(), Error> {
    let head = &of.head;
    let mut named = args.named.clone();
    let first_default = head.names.len().saturating_sub(defaults);
    for (at, (name, slot)) in head.names.iter().zip(slots.iter_mut()).enumerate() {
        *slot = match args.positional.get(at) {
            Some(value) => value.clone(),
            None => match named.iter().position(|(found, _)| found == name) {
                Some(found) => named.remove(found).1,
                None if at >= first_default => Value::Unset,
                None => Value::Undefined,
            },
        };
    }
    let [varargs, kwargs, caller] = head.extras;
    let mut put = |slot: Option<usize>, value: Value| {
        if let Some(slot) = slot.and_then(|slot| slots.get_mut(slot)) {
            *slot = value;
        }
    };
    let rest = args.positional.get(head.names.len()..).unwrap_or_default();
    if varargs.is_some() {
        put(varargs, tuple(cx, rest.to_vec())?);
    } else if !rest.is_empty() {
        let message = format!("macro '{}' takes not more than {} argument(s)", head.name, head.names.len());
        return Err(raise(Kind::Type, message));
    }
    if caller.is_some() {
        let at = named.iter().position(|(name, _)| name == "caller");
        put(caller, at.map(|at| named.remove(at).1).unwrap_or_default());
    }
    if kwargs.is_some() {
        put(kwargs, dict(cx, named.into_iter().map(|(name, value)| (Value::from(name), value)).collect())?);
    } else if let Some((name, _)) = named.first() {
        return Err(raise(Kind::Type, format!("macro '{}' takes no keyword argument '{name}'", head.name)));
    }
    Ok(())
}

/// A later argument wins over one of the same name among the first `known`.
fn put_named(named: &mut Vec<(String, Value)>, known: usize, name: &str, value: Value) {
    match named.iter_mut().take(known).find(|(found, _)| found == name) {
        Some((_, old)) => *old = value,
        None => named.push((name.to_string(), value)),
    }
}

/// What follows `**`, after so many arguments by name.
fn mapping<'v>(cx: &Context, value: &'v Value, known: usize) -> Result<Vec<(&'v str, &'v Value)>, Error> {
    defined(value)?;
    let View::Dict(of) = view(value) else {
        let name = type_name(value);
        return Err(raise(Kind::Type, format!("argument after ** must be a mapping, not {name}")));
    };
    cx.charge(of.entries.len().saturating_mul(size_of::<Value>() + known))?;
    let mut out = Vec::with_capacity(of.entries.len());
    for (key, value) in &of.entries {
        let Some(key) = key.as_str() else { return Err(raise(Kind::Type, "keywords must be strings")) };
        out.push((key, value));
    }
    Ok(out)
}
