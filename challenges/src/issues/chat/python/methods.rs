//! Attributes, items and methods, as the sandbox shows them.

use minijinja::{State, Value};

use super::super::error::{Error, Kind};
use super::super::limits::charge;
use super::functions::{Cycler, Macro};
use super::number::float_text;
use super::strings;
use super::value::{
    Answer, Args, Dict, Forbidden, Method, Seq, SeqKind, View, defined, dict, index, list, raise, type_name,
    view,
};

const LIST: [&str; 11] =
    ["append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"];
const DICT: [&str; 11] =
    ["clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"];
const NUMBER: [&str; 6] = ["as_integer_ratio", "bit_length", "conjugate", "hex", "imag", "is_integer"];
/// Methods that would change their list or dict.
const CHANGING: [&str; 12] = [
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
    "add",
];
/// What every Python object has and the sandbox hides.
const PRIVATE: [&str; 26] = [
    "__class__",
    "__contains__",
    "__delattr__",
    "__dir__",
    "__doc__",
    "__eq__",
    "__format__",
    "__ge__",
    "__getattribute__",
    "__getitem__",
    "__gt__",
    "__hash__",
    "__init__",
    "__init_subclass__",
    "__iter__",
    "__le__",
    "__len__",
    "__lt__",
    "__ne__",
    "__new__",
    "__reduce__",
    "__reduce_ex__",
    "__repr__",
    "__setattr__",
    "__sizeof__",
    "__str__",
];

/// Whether some value has an attribute of this name beside its items.
pub(crate) fn is_attribute(name: &str) -> bool {
    name.starts_with('_')
        || strings::NAMES.contains(&name)
        || LIST.contains(&name)
        || DICT.contains(&name)
        || NUMBER.contains(&name)
        || matches!(name, "real" | "numerator" | "denominator" | "next" | "current" | "reset")
}

/// The names of `value`'s own methods.
fn methods_of(value: &Value) -> &'static [&'static str] {
    match view(value) {
        View::Str(_) => &strings::NAMES,
        View::Seq(seq) => match seq.kind {
            SeqKind::List => &LIST,
            SeqKind::Tuple | SeqKind::Range(..) => &["count", "index"],
            _ => &[],
        },
        View::Dict(_) => &DICT,
        View::Int(_) | View::Bool(_) | View::Float(_) => &NUMBER,
        View::Other if value.downcast_object_ref::<Cycler>().is_some() => &["next", "reset"],
        _ => &[],
    }
}

fn hidden(value: &Value, name: &str) -> Forbidden {
    let of = type_name(value);
    Forbidden(format!("access to attribute '{name}' of '{of}' object is unsafe."))
}

/// An attribute that is no item: a method, or what the sandbox hides.
fn own(value: &Value, name: &str) -> Option<Value> {
    if PRIVATE.contains(&name) {
        return Some(Value::from_object(hidden(value, name)));
    }
    if methods_of(value).contains(&name) {
        let changes = CHANGING.contains(&name) && matches!(view(value), View::Seq(_) | View::Dict(_));
        return Some(if changes {
            Value::from_object(hidden(value, name))
        } else {
            Value::from_object(Method { of: value.clone(), name: name.into() })
        });
    }
    match (view(value), name) {
        (View::Int(_) | View::Bool(_), "real" | "numerator") | (View::Float(_), "real") => {
            Some(value.clone())
        }
        (View::Int(_) | View::Bool(_), "imag") => Some(Value::from(0)),
        (View::Float(_), "imag") => Some(Value::from(0.0)),
        (View::Int(_) | View::Bool(_), "denominator") => Some(Value::from(1)),
        (View::Space(space), _) => space.get(name),
        (View::Other, _) => match value.downcast_object_ref::<Cycler>() {
            Some(cycler) if name == "current" => Some(cycler.current()),
            _ => value.get_attr(name).ok().filter(|value| !value.is_undefined()),
        },
        _ => None,
    }
}

/// `value.name`: an attribute, else an item, else undefined.
pub(crate) fn attribute(value: &Value, name: &str) -> Result<Value, Error> {
    if let Some(found) = own(value, name) {
        return Ok(found);
    }
    defined(value)?;
    Ok(match view(value) {
        View::Dict(dict) => dict.get_str(name).cloned().unwrap_or_default(),
        View::Seq(_) => value.get_attr(name).unwrap_or_default(),
        _ => Value::UNDEFINED,
    })
}

/// `value[key]`: an item, else an attribute, else undefined.
pub(crate) fn item(value: &Value, key: &Value) -> Result<Value, Error> {
    defined(value)?;
    charge(8 + key.as_bytes().map_or(0, <[u8]>::len) + value.as_bytes().map_or(0, <[u8]>::len))?;
    let found = match view(value) {
        View::Dict(dict) => dict.get(key).cloned(),
        View::Seq(seq) => place(seq.items.len(), key).and_then(|at| seq.items.get(at).cloned()),
        View::Str(text) => {
            let length = text.chars().count();
            place(length, key).and_then(|at| text.chars().nth(at)).map(|c| Value::from(c.to_string()))
        }
        View::Bytes(bytes) => {
            place(bytes.len(), key).and_then(|at| bytes.get(at)).map(|byte| Value::from(*byte))
        }
        _ => None,
    };
    match (found, view(key)) {
        (Some(found), _) => Ok(found),
        (None, View::Str(name)) => Ok(own(value, name).unwrap_or_default()),
        _ => Ok(Value::UNDEFINED),
    }
}

fn place(length: usize, key: &Value) -> Option<usize> {
    let at = match view(key) {
        View::Int(at) => at,
        View::Bool(at) => at.into(),
        _ => return None,
    };
    usize::try_from(if at < 0 { at + length as i128 } else { at }).ok()
}

/// `value.name(args)`.
pub(crate) fn call(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Answer {
    if let Some(done) = strings_or_dict(value, name, args) {
        return done;
    }
    let found = attribute(value, name)?;
    if let Some(method) = found.downcast_object_ref::<Method>() {
        return numbers_and_lists(&method.of, name, &Args::new(args));
    }
    if found.is_undefined() {
        let of = type_name(value);
        return Err(raise(Kind::Undefined, format!("'{of} object' has no attribute '{name}'")));
    }
    call_value(state, &found, args)
}

/// `value(args)`.
pub(crate) fn call_value(state: &mut State, value: &Value, args: &[Value]) -> Answer {
    defined(value)?;
    let callable = value.as_object().is_some()
        && !matches!(view(value), View::Seq(_) | View::Dict(_) | View::Stream(_) | View::Space(_));
    if !callable {
        return Err(raise(Kind::Type, format!("'{}' object is not callable", type_name(value))));
    }
    value.call(state, args)
}

/// The usual methods, without looking them up first.
fn strings_or_dict(value: &Value, name: &str, args: &[Value]) -> Option<Answer> {
    match view(value) {
        View::Str(_) => strings::call(value, name, args),
        View::Dict(of) => dict_method(value, of, name, args),
        _ => None,
    }
}

fn dict_method(value: &Value, of: &Dict, name: &str, args: &[Value]) -> Option<Answer> {
    let args = Args::new(args);
    Some(match name {
        "get" => get(of, &args),
        "items" => pairs(of),
        "keys" => view_of(SeqKind::Keys, of.entries.iter().map(|(key, _)| key.clone()).collect()),
        "values" => view_of(SeqKind::Values, of.entries.iter().map(|(_, value)| value.clone()).collect()),
        "copy" => Ok(value.clone()),
        "fromkeys" => Err(raise(Kind::Unsupported, "dict.fromkeys")),
        _ => return None,
    })
}

fn get(of: &Dict, args: &Args) -> Answer {
    let key = args.need(0, "key")?;
    charge(8 + key.as_bytes().map_or(0, <[u8]>::len))?;
    let default = || args.get(1, "default").cloned().unwrap_or_else(|| Value::from(()));
    match view(key) {
        View::Str(key) => Ok(of.get_str(key).cloned().unwrap_or_else(default)),
        View::Dict(_) => Err(raise(Kind::Type, "unhashable type: 'dict'")),
        View::Seq(seq) if seq.kind == SeqKind::List => Err(raise(Kind::Type, "unhashable type: 'list'")),
        _ => Ok(of.get(key).cloned().unwrap_or_else(default)),
    }
}

/// `dict.items()`.
pub(crate) fn pairs(of: &Dict) -> Answer {
    let pair = |(key, value): &(Value, Value)| super::value::tuple(vec![key.clone(), value.clone()]);
    view_of(SeqKind::Items, of.entries.iter().map(pair).collect::<Result<_, _>>()?)
}

fn view_of(kind: SeqKind, items: Vec<Value>) -> Answer {
    Ok(Value::from_object(Seq::new(kind, items)?))
}

fn numbers_and_lists(value: &Value, name: &str, args: &Args) -> Answer {
    match (view(value), name) {
        (View::Seq(seq), "count") => {
            let wanted = args.need(0, "value")?;
            charge(seq.items.len())?;
            Ok(Value::from(seq.items.iter().filter(|item| super::compare::equal(item, wanted)).count()))
        }
        (View::Seq(seq), "index") => place_of(seq, args),
        (View::Seq(seq), "copy") => list(seq.items.clone()),
        (View::Dict(of), _) => dict(of.entries.clone()),
        (View::Int(int), "bit_length") => Ok(Value::from(128 - int.unsigned_abs().leading_zeros())),
        (View::Float(float), "is_integer") => Ok(Value::from(float.is_finite() && float.fract() == 0.0)),
        (View::Int(_), "is_integer") => Ok(Value::from(true)),
        (View::Int(_) | View::Float(_), "conjugate") => Ok(value.clone()),
        (View::Float(float), _) => Err(raise(Kind::Unsupported, format!("{name} of {}", float_text(float)))),
        (View::Other, _) => match value.downcast_object_ref::<Cycler>() {
            Some(cycler) => Ok(cycler.step(name == "next")),
            None => Ok(Value::UNDEFINED),
        },
        _ => Err(raise(Kind::Unsupported, format!("the method {name}"))),
    }
}

fn place_of(seq: &Seq, args: &Args) -> Answer {
    let wanted = args.need(0, "value")?;
    charge(seq.items.len())?;
    let start = args.positional.get(1).map(index).transpose()?.unwrap_or(0);
    let start = usize::try_from(if start < 0 { (start + seq.items.len() as i128).max(0) } else { start });
    let from = seq.items.iter().enumerate().skip(start.unwrap_or(usize::MAX));
    let found = from.into_iter().find(|(_, item)| super::compare::equal(item, wanted));
    match found {
        Some((at, _)) => Ok(Value::from(at)),
        None => Err(raise(Kind::Value, format!("{} is not in list", super::text::repr_of(wanted)?))),
    }
}

/// Whether `callable(value)`.
pub(crate) fn callable(value: &Value) -> bool {
    match view(value) {
        View::Undefined | View::Forbidden(_) => true,
        View::Other => {
            value.downcast_object_ref::<Macro>().is_some()
                || value.downcast_object_ref::<Method>().is_some()
                || value.downcast_object_ref::<super::functions::Global>().is_some()
                || value.downcast_object_ref::<super::functions::Joiner>().is_some()
                || value.downcast_object_ref::<Cycler>().is_none()
        }
        _ => false,
    }
}
