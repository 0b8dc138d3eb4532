//! Attributes, items and methods, as the sandbox shows them.

use std::rc::Rc;

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::number::float_text;
use super::strings;
use super::value::{
    Answer, Args, Blocks, Dict, Seq, SeqKind, Value, View, defined, dict, index, int, list, raise, text_like,
    tuple, type_name, view,
};

const LIST: [&str; 11] =
    ["append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"];
const DICT: [&str; 11] =
    ["clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"];
const NUMBER: [&str; 5] = ["as_integer_ratio", "bit_length", "conjugate", "hex", "is_integer"];
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
        || strings::MARKUP_NAMES.contains(&name)
        || LIST.contains(&name)
        || DICT.contains(&name)
        || NUMBER.contains(&name)
        || matches!(
            name,
            "real"
                | "imag"
                | "numerator"
                | "denominator"
                | "start"
                | "stop"
                | "step"
                | "next"
                | "current"
                | "reset"
        )
}

/// The names of `value`'s own methods.
fn methods_of(value: &Value, name: &str) -> &'static [&'static str] {
    match view(value) {
        View::Str(_) if value.is_safe() && strings::MARKUP_NAMES.contains(&name) => &strings::MARKUP_NAMES,
        View::Str(_) => &strings::NAMES,
        View::Seq(seq) => match seq.kind {
            SeqKind::List => &LIST,
            SeqKind::Tuple | SeqKind::Range(..) => &["count", "index"],
            _ => &[],
        },
        View::Dict(_) => &DICT,
        View::Int(_) | View::Huge(_) | View::Bool(_) | View::Float(_) => &NUMBER,
        View::Other if matches!(value, Value::Cycler(_)) => &["next", "reset"],
        _ => &[],
    }
}

fn hidden(value: &Value, name: &str) -> Value {
    let of = type_name(value);
    Value::Forbidden(format!("access to attribute '{name}' of '{of}' object is unsafe.").into())
}

/// An attribute that is no item: a method, or what the sandbox hides.
fn own(cx: &Context, value: &Value, name: &str) -> Result<Option<Value>, Error> {
    if PRIVATE.contains(&name) {
        return Ok(Some(hidden(value, name)));
    }
    if methods_of(value, name).contains(&name) {
        let changes = CHANGING.contains(&name) && matches!(view(value), View::Seq(_) | View::Dict(_));
        return Ok(Some(if changes {
            hidden(value, name)
        } else {
            Value::Method(Rc::new((value.clone(), name.into())))
        }));
    }
    Ok(match (value, name) {
        (Value::Int(_) | Value::Big(_) | Value::Huge(_) | Value::Bool(_), "real" | "numerator")
        | (Value::Float(_), "real") => Some(value.clone()),
        (Value::Int(_) | Value::Big(_) | Value::Huge(_) | Value::Bool(_), "imag") => Some(Value::Int(0)),
        (Value::Float(_), "imag") => Some(Value::Float(0.0)),
        (Value::Int(_) | Value::Big(_) | Value::Huge(_) | Value::Bool(_), "denominator") => {
            Some(Value::Int(1))
        }
        (Value::Seq(seq), "start" | "stop" | "step") => match seq.kind {
            SeqKind::Range(start, stop, step) => Some(int(match name {
                "start" => start,
                "stop" => stop,
                _ => step,
            })),
            _ => None,
        },
        (Value::Space(space), _) => space.get(name),
        (Value::Cycler(cycler), "current") => Some(cycler.current()),
        (Value::Macro(of), _) => of.attribute(cx, name),
        (Value::Loop(of), _) => of.attribute(cx, name)?,
        (Value::Template(blocks), _) => Some(block(blocks, name)?).filter(|found| !found.is_undefined()),
        _ => None,
    })
}

/// `value.name`: an attribute, else an item, else undefined.
pub(crate) fn attribute(cx: &Context, value: &Value, name: &str) -> Answer {
    if let Some(found) = own(cx, value, name)? {
        return Ok(found);
    }
    item_of_name(cx, value, name)
}

/// `value.name` where no value has such an attribute beside its items.
pub(crate) fn item_of_name(cx: &Context, value: &Value, name: &str) -> Answer {
    defined(value)?;
    Ok(match value {
        Value::Dict(dict) => dict.get_str(name).cloned().unwrap_or_default(),
        Value::Seq(seq) => part_of_group(seq, name).cloned().unwrap_or_default(),
        Value::Space(space) => space.get(name).unwrap_or_default(),
        Value::Loop(of) => of.attribute(cx, name)?.unwrap_or_default(),
        Value::Macro(of) => of.attribute(cx, name).unwrap_or_default(),
        Value::Template(blocks) => block(blocks, name)?,
        _ => Value::Undefined,
    })
}

/// A block of the template.
fn block(blocks: &Blocks, name: &str) -> Answer {
    match blocks.iter().find(|(known, _)| known == name) {
        Some((_, Some(block))) => Ok(Value::Macro(block.clone())),
        Some((_, None)) => Err(raise(Kind::Unsupported, format!("self.{name}() of a scoped block"))),
        None => Ok(Value::Undefined),
    }
}

/// The groups of `groupby` are pairs with names.
fn part_of_group<'a>(seq: &'a Seq, name: &str) -> Option<&'a Value> {
    match (seq.items.as_slice(), name) {
        ([key, _], "grouper") if seq.is_tuple() => Some(key),
        ([_, items], "list") if seq.is_tuple() => Some(items),
        _ => None,
    }
}

/// `value[key]`: an item, else an attribute, else undefined.
pub(crate) fn item(cx: &Context, value: &Value, key: &Value) -> Answer {
    defined(value)?;
    cx.charge(8 + key.text_bytes() + value.text_bytes())?;
    let found = match view(value) {
        View::Dict(dict) => dict.get(cx, key).cloned(),
        View::Seq(seq) => place(seq.items.len(), key).and_then(|at| seq.items.get(at).cloned()),
        View::Str(text) => {
            let length = text.chars().count();
            let c = place(length, key).and_then(|at| text.chars().nth(at));
            c.map(|c| text_like(cx, value, c.to_string())).transpose()?
        }
        View::Bytes(bytes) => {
            place(bytes.len(), key).and_then(|at| bytes.get(at)).map(|byte| Value::Int((*byte).into()))
        }
        _ => None,
    };
    match (found, view(key)) {
        (Some(found), _) => Ok(found),
        (None, View::Str(name)) => Ok(own(cx, value, name)?.unwrap_or_default()),
        _ => Ok(Value::Undefined),
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

/// `value.name(args)` for the methods of texts, dicts and loops; `None` if there is no such method.
pub(crate) fn call(cx: &Context, value: &Value, name: &str, args: &Args) -> Option<Answer> {
    match value {
        Value::Str(_) | Value::Lit(_) | Value::Markup(_) => strings::call(cx, value, name, args),
        Value::Dict(of) => dict_method(cx, value, of, name, args),
        Value::Loop(of) => of.call(cx, name, args),
        _ => None,
    }
}

/// Calls a method that was looked up.
pub(crate) fn call_method(cx: &Context, method: &(Value, String), args: &Args) -> Answer {
    let (value, name) = method;
    call(cx, value, name, args).unwrap_or_else(|| numbers_and_lists(cx, value, name, args))
}

fn dict_method(cx: &Context, value: &Value, of: &Dict, name: &str, args: &Args) -> Option<Answer> {
    Some(match name {
        "get" => get(cx, of, args),
        "items" => pairs(cx, of),
        "keys" => view_of(cx, SeqKind::Keys, of.entries.iter().map(|(key, _)| key.clone()).collect()),
        "values" => view_of(cx, SeqKind::Values, of.entries.iter().map(|(_, value)| value.clone()).collect()),
        "copy" => Ok(value.clone()),
        "fromkeys" => Err(raise(Kind::Unsupported, "dict.fromkeys")),
        _ => return None,
    })
}

fn get(cx: &Context, of: &Dict, args: &Args) -> Answer {
    let key = args.need(0, "key")?;
    cx.charge(8 + key.text_bytes())?;
    let default = || args.get(1, "default").cloned().unwrap_or(Value::None);
    match view(key) {
        View::Str(key) => Ok(of.get_str(key).cloned().unwrap_or_else(default)),
        View::Dict(_) => Err(raise(Kind::Type, "unhashable type: 'dict'")),
        View::Seq(seq) if seq.kind == SeqKind::List => Err(raise(Kind::Type, "unhashable type: 'list'")),
        _ => Ok(of.get(cx, key).cloned().unwrap_or_else(default)),
    }
}

/// `dict.items()`.
pub(crate) fn pairs(cx: &Context, of: &Dict) -> Answer {
    let pair = |(key, value): &(Value, Value)| tuple(cx, vec![key.clone(), value.clone()]);
    view_of(cx, SeqKind::Items, of.entries.iter().map(pair).collect::<Result<_, _>>()?)
}

fn view_of(cx: &Context, kind: SeqKind, items: Vec<Value>) -> Answer {
    Ok(Value::Seq(Rc::new(Seq::new(cx, kind, items)?)))
}

fn numbers_and_lists(cx: &Context, value: &Value, name: &str, args: &Args) -> Answer {
    match (view(value), name) {
        (View::Seq(seq), "count") => {
            let wanted = args.need(0, "value")?;
            cx.charge(seq.items.len())?;
            Ok(Value::from(seq.items.iter().filter(|item| super::compare::equal(cx, item, wanted)).count()))
        }
        (View::Seq(seq), "index") => place_of(cx, seq, args),
        (View::Seq(seq), "copy") => list(cx, seq.items.clone()),
        (View::Dict(of), _) => dict(cx, of.entries.clone()),
        (View::Int(int), "bit_length") => Ok(Value::from(128 - int.unsigned_abs().leading_zeros())),
        (View::Float(float), "is_integer") => Ok(Value::from(float.is_finite() && float.fract() == 0.0)),
        (View::Huge(huge), "bit_length") => Ok(int(huge.bits().into())),
        (View::Int(_) | View::Huge(_), "is_integer") => Ok(Value::from(true)),
        (View::Int(_) | View::Huge(_) | View::Float(_), "conjugate") => Ok(value.clone()),
        (View::Float(float), _) => {
            Err(raise(Kind::Unsupported, format!("{name} of {}", float_text(cx, float))))
        }
        (View::Other, _) => match value {
            Value::Cycler(cycler) => Ok(cycler.step(name == "next")),
            _ => Ok(Value::Undefined),
        },
        _ => Err(raise(Kind::Unsupported, format!("the method {name}"))),
    }
}

fn place_of(cx: &Context, seq: &Seq, args: &Args) -> Answer {
    let wanted = args.need(0, "value")?;
    cx.charge(seq.items.len())?;
    let start = args.positional.get(1).map(index).transpose()?.unwrap_or(0);
    let start = usize::try_from(if start < 0 { (start + seq.items.len() as i128).max(0) } else { start });
    let from = seq.items.iter().enumerate().skip(start.unwrap_or(usize::MAX));
    let found = from.into_iter().find(|(_, item)| super::compare::equal(cx, item, wanted));
    match found {
        Some((at, _)) => Ok(Value::from(at)),
        None => Err(raise(Kind::Value, format!("{} is not in list", super::text::repr_of(cx, wanted)?))),
    }
}

/// Whether `callable(value)`.
pub(crate) fn callable(value: &Value) -> bool {
    match view(value) {
        View::Undefined | View::Forbidden(_) => true,
        View::Other => !matches!(value, Value::Cycler(_) | Value::Template(_)),
        _ => false,
    }
}
