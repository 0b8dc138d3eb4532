//! Filters of numbers.

use num_bigint::{BigInt, Sign};

use super::super::super::context::Context;
use super::super::super::error::{Error, Kind};
use super::super::big;
use super::super::number::{parse_float, parse_int, rounded};
use super::super::operators;
use super::super::text::{repr_of, str_of};
use super::super::value::{Answer, Args, Value, View, defined, index, items, raise, type_name, view};
use super::fail;
use super::sequence::path;

pub(super) fn abs(value: &Value) -> Answer {
    match view(value) {
        View::Bool(bool) => Ok(Value::from(i64::from(bool))),
        View::Int(whole) if whole >= 0 => Ok(value.clone()),
        View::Huge(huge) if huge.sign() == Sign::Plus => Ok(value.clone()),
        View::Int(_) | View::Huge(_) => operators::signed(value, true),
        View::Float(float) => Ok(Value::from(float.abs())),
        _ => Err(raise(Kind::Type, format!("bad operand type for abs(): '{}'", type_name(value)))),
    }
}

/// `float(value)`.
pub(super) fn to_float(cx: &Context, value: &Value) -> Result<f64, Error> {
    match view(value) {
        View::Bool(bool) => Ok(f64::from(u8::from(bool))),
        View::Int(int) => Ok(int as f64),
        View::Huge(huge) => big::to_float(huge),
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
        Err(error) if matches!(error.kind, Kind::Type | Kind::Value) => {
            Ok(args.get(0, "default").cloned().unwrap_or(Value::Float(0.0)))
        }
        Err(error) => Err(error),
    }
}

pub(super) fn whole(cx: &Context, value: &Value, args: &Args) -> Answer {
    defined(value)?;
    let base = args.get(1, "base").map_or(Ok(10), index)?;
    let default = || Ok(args.get(0, "default").cloned().unwrap_or(Value::Int(0)));
    match view(value) {
        View::Int(_) | View::Huge(_) => return Ok(value.clone()),
        View::Bool(bool) => return Ok(Value::from(i64::from(bool))),
        View::Float(float) if float.is_infinite() => {
            return Err(raise(Kind::Overflow, "cannot convert float infinity to integer"));
        }
        View::Str(text) => {
            let base = u32::try_from(base).ok().filter(|base| *base == 0 || (2..=36).contains(base));
            if let Some(found) = base.map_or(Ok(None), |base| parse_int(text, base))? {
                return Ok(found);
            }
        }
        _ => (),
    }
    match to_float(cx, value) {
        Ok(float) if float.is_finite() => Ok(big::whole(big::from_float(float))),
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
    let skipped =
        u32::try_from(precision.saturating_neg()).unwrap_or(if precision < 0 { u32::MAX } else { 0 });
    if method == "common" {
        return match view(value) {
            View::Bool(bool) => Ok(rounded_int(&BigInt::from(u8::from(bool)), skipped)),
            View::Int(_) | View::Huge(_) if skipped == 0 => Ok(value.clone()),
            View::Int(whole) => Ok(rounded_int(&whole.into(), skipped)),
            View::Huge(huge) => Ok(rounded_int(huge, skipped)),
            View::Float(float) => Ok(Value::from(rounded(float, digits))),
            _ => Err(raise(Kind::Type, format!("type {} doesn't define __round__ method", type_name(value)))),
        };
    }
    let float = match view(value) {
        View::Bool(_) | View::Int(_) | View::Huge(_) | View::Float(_) => to_float(cx, value)?,
        _ => {
            defined(value)?;
            return Err(raise(Kind::Type, format!("must be real number, not {}", type_name(value))));
        }
    };
    let unit = 10f64.powi(digits);
    let scaled = float * unit;
    Ok(Value::from(if method == "ceil" { scaled.ceil() } else { scaled.floor() } / unit + 0.0))
}

/// A whole number to so many digits before the point, half to even.
fn rounded_int(value: &BigInt, skipped: u32) -> Value {
    big::whole(big::rounded(value, skipped))
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
