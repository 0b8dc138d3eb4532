//! Filters of numbers.

use super::super::super::context::Context;
use super::super::super::error::{Error, Kind};
use super::super::number::{parse_float, parse_int, rounded};
use super::super::operators;
use super::super::text::{repr_of, str_of};
use super::super::value::{Answer, Args, Value, View, defined, index, int, items, raise, type_name, view};
use super::fail;
use super::sequence::path;

pub(super) fn abs(value: &Value) -> Answer {
    match view(value) {
        View::Bool(bool) => Ok(Value::from(i64::from(bool))),
        View::Int(whole) => whole.checked_abs().map(int).ok_or_else(operators::overflow),
        View::Float(float) => Ok(Value::from(float.abs())),
        _ => Err(raise(Kind::Type, format!("bad operand type for abs(): '{}'", type_name(value)))),
    }
}

/// `float(value)`.
pub(super) fn to_float(cx: &Context, value: &Value) -> Result<f64, Error> {
    match view(value) {
        View::Bool(bool) => Ok(f64::from(u8::from(bool))),
        View::Int(int) => Ok(int as f64),
        View::Float(float) => Ok(float),
        View::Str(text) => match parse_float(text) {
            Some(float) => Ok(float),
            None => fail(Kind::Value, format!("could not convert string to float: {}", repr_of(cx, value)?)),
        },
        _ => {
            defined(value)?;
            let name = type_name(value);
            fail(Kind::Type, format!("float() argument must be a string or a real number, not '{name}'"))
        }
    }
}

pub(super) fn float(cx: &Context, value: &Value, args: &Args) -> Answer {
    defined(value)?;
    match to_float(cx, value) {
        Ok(float) => Ok(Value::from(float)),
        Err(_) => Ok(args.get(0, "default").cloned().unwrap_or(Value::Float(0.0))),
    }
}

pub(super) fn whole(cx: &Context, value: &Value, args: &Args) -> Answer {
    defined(value)?;
    let base = args.get(1, "base").map_or(Ok(10), index)?;
    let default = || Ok(args.get(0, "default").cloned().unwrap_or(Value::Int(0)));
    match view(value) {
        View::Int(_) => return Ok(value.clone()),
        View::Bool(bool) => return Ok(Value::from(i64::from(bool))),
        View::Str(text) => {
            let base = u32::try_from(base).ok().filter(|base| (2..=36).contains(base));
            if let Some(int_value) = base.and_then(|base| parse_int(text, base)) {
                return Ok(int(int_value));
            }
        }
        _ => (),
    }
    match to_float(cx, value) {
        Ok(float) if float.is_finite() && float.abs() < 1e38 => Ok(int(float.trunc() as i128)),
        Ok(float) if float.is_finite() => Err(raise(Kind::Overflow, "a whole number of more than 127 bits")),
        _ => default(),
    }
}

pub(super) fn round(cx: &Context, value: &Value, args: &Args) -> Answer {
    let precision = args.get(0, "precision").map_or(Ok(0), index)?;
    let method = args.get(1, "method").map_or_else(|| Ok("common".to_string()), |name| str_of(cx, name))?;
    if !matches!(method.as_str(), "common" | "ceil" | "floor") {
        return Err(raise(Kind::FilterArgument, "method must be common, ceil or floor"));
    }
    let digits = i32::try_from(precision.clamp(-400, 400)).unwrap_or(0);
    if method == "common" {
        return match view(value) {
            View::Bool(bool) => Ok(int(rounded_int(bool.into(), digits))),
            View::Int(whole) => Ok(int(rounded_int(whole, digits))),
            View::Float(float) => Ok(Value::from(rounded(float, digits))),
            _ => Err(raise(Kind::Type, format!("type {} doesn't define __round__ method", type_name(value)))),
        };
    }
    let float = match view(value) {
        View::Bool(_) | View::Int(_) | View::Float(_) => to_float(cx, value)?,
        _ => {
            defined(value)?;
            return Err(raise(Kind::Type, format!("must be real number, not {}", type_name(value))));
        }
    };
    let unit = 10f64.powi(digits);
    let scaled = float * unit;
    Ok(Value::from(if method == "ceil" { scaled.ceil() } else { scaled.floor() } / unit))
}

/// A whole number to so many digits before the point, half to even.
pub(super) fn rounded_int(value: i128, digits: i32) -> i128 {
    if digits >= 0 {
        return value;
    }
    let Some(unit) = 10i128.checked_pow(digits.unsigned_abs()) else { return 0 };
    let (quotient, rest) = (value.div_euclid(unit), value.rem_euclid(unit));
    let up = rest * 2 > unit || (rest * 2 == unit && quotient % 2 != 0);
    (quotient + i128::from(up)).saturating_mul(unit)
}

pub(super) fn sum(cx: &Context, value: &Value, args: &Args) -> Answer {
    let path = path(args, 0);
    let start = args.get(1, "start").cloned().unwrap_or(Value::Int(0));
    if matches!(view(&start), View::Str(_)) {
        return Err(raise(Kind::Type, "sum() can't sum strings [use ''.join(seq) instead]"));
    }
    let mut total = start;
    for item in items(cx, value)? {
        total = operators::add(cx, &[total, path.of(cx, &item, None)?])?;
    }
    Ok(total)
}
