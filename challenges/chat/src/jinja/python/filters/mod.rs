//! Jinja's filters, and `tojson` as transformers has it.

mod number;
mod sequence;
mod text;

use std::cmp::Ordering;

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::compare::equal;
use super::containers::failing;
use super::methods::{attribute, item, pairs};
use super::strings;
use super::text::{escaped, str_of};
use super::unicode::is_alnum;
use super::value::{
    Answer, Args, Value, View, defined, index, items, iterable, list, raise, stream, text, type_name, view,
};
use number::{abs, float, round, sum, whole};
use sequence::{batch, dictsort, extreme, groupby, map, reverse, reversed, select, slice, sort, unique};
use text::{
    filesizeformat, format, indent, join, on_text, pprint, replace, titled, tojson, truncate, urlencode,
    xmlattr,
};
pub(crate) use text::{layout, striptags, trim, unescaped};

/// A filter of a value and its arguments.
pub(crate) type Filter = fn(&Context, &Value, &Args) -> Answer;

/// The filter `name`.
pub(crate) fn find(name: &str) -> Option<Filter> {
    Some(match name {
        "abs" => |_, value, _| abs(value),
        "attr" => |cx, value, args| attr(cx, value, args.need(0, "name")?),
        "batch" => batch,
        "capitalize" => |cx, value, _| on_text(cx, value, |text| Ok(strings::capitalized(text))),
        "center" => |cx, value, args| {
            let width = args.get(0, "width").cloned().unwrap_or(Value::Int(80));
            on_text(cx, value, |text| strings::centered(cx, text, &width))
        },
        "count" | "length" => |_, value, _| Ok(Value::from(length(value)?)),
        "d" | "default" => |_, value, args| Ok(default(value, args)),
        "dictsort" => dictsort,
        "e" | "escape" => |cx, value, _| {
            if value.is_safe() {
                Ok(value.clone())
            } else {
                Ok(Value::markup(escaped(cx, &str_of(cx, value)?)?))
            }
        },
        "forceescape" => |cx, value, _| Ok(Value::markup(escaped(cx, &str_of(cx, value)?)?)),
        "filesizeformat" => filesizeformat,
        "first" => |cx, value, _| Ok(items(cx, value)?.into_iter().next().unwrap_or_default()),
        "last" => |cx, value, _| Ok(reversed(cx, value)?.into_iter().next().unwrap_or_default()),
        "float" => float,
        "format" => format,
        "groupby" => groupby,
        "indent" => indent,
        "int" => whole,
        "items" => |cx, value, _| item_pairs(cx, value),
        "join" => join,
        "list" => |cx, value, _| list(cx, items(cx, value)?),
        "lower" => |cx, value, _| on_text(cx, value, |text| Ok(text.to_lowercase())),
        "upper" => |cx, value, _| on_text(cx, value, |text| Ok(text.to_uppercase())),
        "map" => map,
        "max" => |cx, value, args| extreme(cx, value, args, Ordering::Greater),
        "min" => |cx, value, args| extreme(cx, value, args, Ordering::Less),
        "pprint" => |cx, value, _| text(cx, pprint(cx, value)?),
        "random" => |cx, value, _| random(cx, value),
        "reject" => |cx, value, args| select(cx, value, args, false, false),
        "rejectattr" => |cx, value, args| select(cx, value, args, false, true),
        "select" => |cx, value, args| select(cx, value, args, true, false),
        "selectattr" => |cx, value, args| select(cx, value, args, true, true),
        "replace" => replace,
        "reverse" => |cx, value, _| reverse(cx, value),
        "round" => round,
        "safe" => |cx, value, _| match value {
            Value::Str(text) => Ok(Value::Markup(text.clone())),
            _ => Ok(Value::markup(str_of(cx, value)?)),
        },
        "slice" => slice,
        "sort" => sort,
        "string" => |cx, value, _| {
            if value.as_str().is_some() { Ok(value.clone()) } else { text(cx, str_of(cx, value)?) }
        },
        "striptags" => |cx, value, _| text(cx, striptags(&str_of(cx, value)?)),
        "sum" => sum,
        "title" => |cx, value, _| text(cx, titled(&str_of(cx, value)?)),
        "tojson" => tojson,
        "trim" => trim,
        "truncate" => truncate,
        "unique" => unique,
        "urlencode" => |cx, value, _| urlencode(cx, value),
        "urlize" => |_, _, _| Err(raise(Kind::Unsupported, "the filter urlize")),
        "wordcount" => |cx, value, _| {
            let text = str_of(cx, value)?;
            let words = text.split(|c: char| c != '_' && !is_alnum(c)).filter(|word| !word.is_empty());
            Ok(Value::from(words.count()))
        },
        "wordwrap" => |_, _, _| Err(raise(Kind::Unsupported, "the filter wordwrap")),
        "xmlattr" => {
            |cx, value, args| xmlattr(cx, value, args.get(0, "autospace").is_none_or(Value::is_true))
        }
        _ => return None,
    })
}

/// `dict|items`.
pub(crate) fn item_pairs(cx: &Context, value: &Value) -> Answer {
    match view(value) {
        View::Undefined | View::Forbidden(_) => stream(cx, Vec::new()),
        View::Dict(of) => stream(cx, items(cx, &pairs(cx, of)?)?),
        _ => Ok(failing(raise(Kind::Type, "Can only get item pairs from a mapping."))),
    }
}

fn fail<T>(kind: Kind, message: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(kind, message))
}

fn flag(args: &Args, place: usize, name: &str) -> bool {
    args.get(place, name).is_some_and(Value::is_true)
}

/// `len(value)`.
pub(crate) fn length(value: &Value) -> Result<usize, Error> {
    Ok(match view(value) {
        View::Undefined | View::Forbidden(_) => 0,
        View::Str(text) => text.chars().count(),
        View::Bytes(bytes) => bytes.len(),
        View::Seq(seq) => seq.items.len(),
        View::Dict(dict) => dict.entries.len(),
        _ => return fail(Kind::Type, format!("object of type '{}' has no len()", type_name(value))),
    })
}

/// An attribute that is no item.
fn attr(cx: &Context, value: &Value, name: &Value) -> Answer {
    defined(value)?;
    let name = str_of(cx, name)?;
    let found = attribute(cx, value, &name)?;
    let is_item = matches!(view(value), View::Dict(of) if of.get_str(&name).is_some_and(|item| equal(cx, item, &found)));
    Ok(if is_item { Value::Undefined } else { found })
}

fn count_arg(args: &Args, name: &str) -> Result<usize, Error> {
    let count = index(args.need(0, name)?)?;
    Ok(usize::try_from(count.max(0)).unwrap_or(usize::MAX))
}

fn default(value: &Value, args: &Args) -> Value {
    let missing = matches!(view(value), View::Undefined | View::Forbidden(_));
    if missing || (flag(args, 1, "boolean") && !value.is_true()) {
        return args.get(0, "default_value").cloned().unwrap_or_else(|| Value::from(""));
    }
    value.clone()
}

/// One item, always the same: nothing here is random.
fn random(cx: &Context, value: &Value) -> Answer {
    let count = length(value)?;
    if count == 0 {
        return Ok(Value::Undefined);
    }
    if let View::Dict(of) = view(value) {
        return of.get(cx, &Value::Int(0)).cloned().ok_or_else(|| raise(Kind::Key, "0"));
    }
    item(cx, value, &Value::Int(0))
}

fn unpack_error(wanted: usize, got: usize) -> Error {
    if got > wanted {
        return Error::new(Kind::Value, format!("too many values to unpack (expected {wanted})"));
    }
    Error::new(Kind::Value, format!("not enough values to unpack (expected {wanted}, got {got})"))
}

/// The `count` items of a value that is assigned to as many names.
pub(crate) fn unpacked(cx: &Context, value: &Value, count: usize) -> Result<Vec<Value>, Error> {
    let Some(parts) = iterable(cx, value)? else {
        return fail(Kind::Type, format!("cannot unpack non-iterable {} object", type_name(value)));
    };
    if parts.len() == count { Ok(parts) } else { Err(unpack_error(count, parts.len())) }
}
