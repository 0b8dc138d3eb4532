//! Jinja's tests.

use super::super::error::{Error, Kind};
use super::compare::{contains, equal, ordered, same};
use super::operators;
use super::text::str_of;
use super::value::{Args, Value, View, view};

/// A test of a value and its arguments.
pub(crate) type Test = fn(&Value, &Args) -> Result<bool, Error>;

fn other<'a>(args: &'a Args) -> Result<&'a Value, Error> {
    args.need(0, "other")
}

fn order(op: &'static str, value: &Value, args: &Args) -> Result<bool, Error> {
    ordered(op, value, other(args)?)
}

fn remainder(value: &Value, by: &Value, want: i64) -> Result<bool, Error> {
    let rest = operators::modulo(value, by)?;
    Ok(equal(&rest, &Value::from(want)))
}

fn of_str(value: &Value, test: fn(char) -> bool, not: fn(char) -> bool) -> Result<bool, Error> {
    let text = str_of(value)?;
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
    let holds =
        !matches!(view(value), View::None | View::Bool(_) | View::Int(_) | View::Float(_) | View::Space(_));
    holds && !matches!(view(value), View::Other)
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
        "defined" => |value, _| Ok(!is_undefined(value)),
        "undefined" => |value, _| Ok(is_undefined(value)),
        "none" => |value, _| Ok(value.is_none()),
        "boolean" => |value, _| Ok(matches!(view(value), View::Bool(_))),
        "true" => |value, _| Ok(matches!(view(value), View::Bool(true))),
        "false" => |value, _| Ok(matches!(view(value), View::Bool(false))),
        "integer" => |value, _| Ok(matches!(view(value), View::Int(_))),
        "float" => |value, _| Ok(matches!(view(value), View::Float(_))),
        "number" => |value, _| Ok(matches!(view(value), View::Bool(_) | View::Int(_) | View::Float(_))),
        "string" => |value, _| Ok(matches!(view(value), View::Str(_))),
        "mapping" => |value, _| Ok(matches!(view(value), View::Dict(_))),
        "sequence" => |value, _| Ok(is_sequence(value)),
        "iterable" => |value, _| Ok(is_iterable(value)),
        "callable" => |value, _| Ok(super::methods::callable(value)),
        "escaped" => |value, _| Ok(value.is_safe()),
        "lower" => |value, _| of_str(value, char::is_lowercase, char::is_uppercase),
        "upper" => |value, _| of_str(value, char::is_uppercase, char::is_lowercase),
        "odd" => |value, _| remainder(value, &Value::Int(2), 1),
        "even" => |value, _| remainder(value, &Value::Int(2), 0),
        "divisibleby" => |value, args| remainder(value, args.need(0, "num")?, 0),
        "sameas" => |value, args| Ok(same(value, other(args)?)),
        "in" => |value, args| contains(args.need(0, "seq")?, value),
        "eq" | "equalto" | "==" => |value, args| Ok(equal(value, other(args)?)),
        "ne" | "!=" => |value, args| Ok(!equal(value, other(args)?)),
        "lt" | "lessthan" | "<" => |value, args| order("<", value, args),
        "le" | "<=" => |value, args| order("<=", value, args),
        "gt" | "greaterthan" | ">" => |value, args| order(">", value, args),
        "ge" | ">=" => |value, args| order(">=", value, args),
        "filter" => |value, _| named(value, |name| super::filters::find(name).is_some()),
        "test" => |value, _| named(value, |name| find(name).is_some()),
        _ => return None,
    })
}
