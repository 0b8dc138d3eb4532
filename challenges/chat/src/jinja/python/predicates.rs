//! Jinja's tests.

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::compare::{contains, equal, ordered, same};
use super::operators;
use super::text::str_of;
use super::value::{Args, Value, View, view};

/// A test of a value and its arguments.
pub(crate) type Test = fn(&Context, &Value, &Args) -> Result<bool, Error>;

fn other<'a>(args: &'a Args) -> Result<&'a Value, Error> {
    args.need(0, "other")
}

fn order(cx: &Context, op: &'static str, value: &Value, args: &Args) -> Result<bool, Error> {
    ordered(cx, op, value, other(args)?)
}

fn remainder(cx: &Context, value: &Value, by: &Value, want: i64) -> Result<bool, Error> {
    let rest = operators::modulo(cx, value, by)?;
    Ok(equal(cx, &rest, &Value::from(want)))
}

fn of_str(cx: &Context, value: &Value, test: fn(char) -> bool, not: fn(char) -> bool) -> Result<bool, Error> {
    let text = str_of(cx, value)?;
    Ok(text.chars().any(test) && !text.chars().any(not))
}

pub(crate) fn is_undefined(value: &Value) -> bool {
    matches!(view(value), View::Undefined | View::Forbidden(_))
}

pub(crate) fn is_sequence(value: &Value) -> bool {
    use super::value::SeqKind;
    match view(value) {
        View::Undefined | View::Forbidden(_) | View::Str(_) | View::Bytes(_) | View::Dict(_) => true,
        View::Seq(seq) => matches!(seq.kind, SeqKind::List | SeqKind::Tuple | SeqKind::Range(..)),
        _ => false,
    }
}

pub(crate) fn is_iterable(value: &Value) -> bool {
    let holds = !matches!(
        view(value),
        View::None | View::Bool(_) | View::Int(_) | View::Huge(_) | View::Float(_) | View::Space(_)
    );
    holds && (!matches!(view(value), View::Other) || matches!(value, Value::Template(_)))
}

fn named(value: &Value, find: fn(&str) -> bool) -> Result<bool, Error> {
    match view(value) {
        View::Str(name) => Ok(find(name)),
        View::Dict(_) => Err(Error::new(Kind::Type, "unhashable type: 'dict'")),
        View::Seq(seq) if !seq.is_tuple() => Err(Error::new(Kind::Type, "unhashable type: 'list'")),
        _ => Ok(false),
    }
}

/// The test `name`.
pub(crate) fn find(name: &str) -> Option<Test> {
    Some(match name {
        "defined" => |_, value, _| Ok(!is_undefined(value)),
        "undefined" => |_, value, _| Ok(is_undefined(value)),
        "none" => |_, value, _| Ok(value.is_none()),
        "boolean" => |_, value, _| Ok(matches!(view(value), View::Bool(_))),
        "true" => |_, value, _| Ok(matches!(view(value), View::Bool(true))),
        "false" => |_, value, _| Ok(matches!(view(value), View::Bool(false))),
        "integer" => |_, value, _| Ok(matches!(view(value), View::Int(_) | View::Huge(_))),
        "float" => |_, value, _| Ok(matches!(view(value), View::Float(_))),
        "number" => |_, value, _| {
            Ok(matches!(view(value), View::Bool(_) | View::Int(_) | View::Huge(_) | View::Float(_)))
        },
        "string" => |_, value, _| Ok(matches!(view(value), View::Str(_))),
        "mapping" => |_, value, _| Ok(matches!(view(value), View::Dict(_))),
        "sequence" => |_, value, _| Ok(is_sequence(value)),
        "iterable" => |_, value, _| Ok(is_iterable(value)),
        "callable" => |_, value, _| Ok(super::methods::callable(value)),
        "escaped" => |_, value, _| Ok(value.is_safe()),
        "lower" => |cx, value, _| of_str(cx, value, char::is_lowercase, char::is_uppercase),
        "upper" => |cx, value, _| of_str(cx, value, char::is_uppercase, char::is_lowercase),
        "odd" => |cx, value, _| remainder(cx, value, &Value::Int(2), 1),
        "even" => |cx, value, _| remainder(cx, value, &Value::Int(2), 0),
        "divisibleby" => |cx, value, args| remainder(cx, value, args.need(0, "num")?, 0),
        "sameas" => |_, value, args| Ok(same(value, other(args)?)),
        "in" => |cx, value, args| contains(cx, args.need(0, "seq")?, value),
        "eq" | "equalto" | "==" => |cx, value, args| Ok(equal(cx, value, other(args)?)),
        "ne" | "!=" => |cx, value, args| Ok(!equal(cx, value, other(args)?)),
        "lt" | "lessthan" | "<" => |cx, value, args| order(cx, "<", value, args),
        "le" | "<=" => |cx, value, args| order(cx, "<=", value, args),
        "gt" | "greaterthan" | ">" => |cx, value, args| order(cx, ">", value, args),
        "ge" | ">=" => |cx, value, args| order(cx, ">=", value, args),
        "filter" => |_, value, _| named(value, |name| super::filters::find(name).is_some()),
        "test" => |_, value, _| named(value, |name| find(name).is_some()),
        _ => return None,
    })
}
