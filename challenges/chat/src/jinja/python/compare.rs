//! Equality, order and membership.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::big;
use super::value::{SeqKind, Value, View, address, defined, iterable, type_name, view};

/// `left == right`.
pub(crate) fn equal(cx: &Context, left: &Value, right: &Value) -> bool {
    match (view(left), view(right)) {
        (View::Undefined | View::Forbidden(_), View::Undefined | View::Forbidden(_))
        | (View::None, View::None) => true,
        (View::Str(left), View::Str(right)) => {
            left.len() == right.len() && cx.charge(left.len()).is_ok() && left == right
        }
        (View::Bytes(left), View::Bytes(right)) => cx.charge(left.len()).is_ok() && left == right,
        (View::Seq(left), View::Seq(right)) => {
            let paid = cx.charge(left.items.len()).is_ok();
            let alike = |kind: SeqKind| match kind {
                SeqKind::Range(..) => SeqKind::Range(0, 0, 0),
                kind => kind,
            };
            paid && alike(left.kind) == alike(right.kind)
                && left.items.len() == right.items.len()
                && left.items.iter().zip(&right.items).all(|(left, right)| equal(cx, left, right))
        }
        (View::Dict(left), View::Dict(right)) => {
            cx.charge(left.entries.len()).is_ok()
                && left.entries.len() == right.entries.len()
                && left
                    .entries
                    .iter()
                    .all(|(key, value)| right.get(cx, key).is_some_and(|other| equal(cx, value, other)))
        }
        (left_view, right_view) => match (numeric(&left_view), numeric(&right_view)) {
            (Some(left), Some(right)) => compare_numbers(left, right) == Some(Ordering::Equal),
            _ => same_object(left, right),
        },
    }
}

fn same_object(left: &Value, right: &Value) -> bool {
    address(left).is_some() && address(left) == address(right)
}

/// Whether both are one and the same thing, as `is` asks.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (view(left), view(right)) {
        (View::None, View::None) => true,
        (View::Bool(left), View::Bool(right)) => left == right,
        (View::Int(left), View::Int(right)) => left == right && (-5..=256).contains(&left),
        (View::Str(left), View::Str(right)) => left == right && left.len() <= 1,
        _ => same_object(left, right),
    }
}

#[derive(Clone, Copy)]
enum Number<'a> {
    Int(i128),
    /// A whole number that needs more than 128 bits.
    Huge(&'a BigInt),
    Float(f64),
}

fn numeric<'a>(view: &View<'a>) -> Option<Number<'a>> {
    match view {
        View::Bool(bool) => Some(Number::Int((*bool).into())),
        View::Int(int) => Some(Number::Int(*int)),
        View::Huge(huge) => Some(Number::Huge(huge)),
        View::Float(float) => Some(Number::Float(*float)),
        _ => None,
    }
}

fn compare_numbers(left: Number, right: Number) -> Option<Ordering> {
    match (left, right) {
        (Number::Int(left), Number::Int(right)) => Some(left.cmp(&right)),
        (Number::Float(left), Number::Float(right)) => left.partial_cmp(&right),
        (Number::Int(left), Number::Float(right)) => int_and_float(left, right),
        (Number::Float(left), Number::Int(right)) => int_and_float(right, left).map(Ordering::reverse),
        (Number::Huge(left), Number::Huge(right)) => Some(left.cmp(right)),
        (Number::Huge(left), Number::Float(right)) => big::compare_float(left, right),
        (Number::Float(left), Number::Huge(right)) => big::compare_float(right, left).map(Ordering::reverse),
        (Number::Huge(left), Number::Int(_)) => Some(sign_order(left)),
        (Number::Int(_), Number::Huge(right)) => Some(sign_order(right).reverse()),
    }
}

/// How a number of more than 128 bits compares with every shorter one.
fn sign_order(huge: &BigInt) -> Ordering {
    if huge.sign() == Sign::Minus { Ordering::Less } else { Ordering::Greater }
}

/// Compares exactly: a float beside a whole number is not rounded to it.
fn int_and_float(int: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float >= i128::MAX as f64 {
        return Some(Ordering::Less);
    }
    if float < i128::MIN as f64 {
        return Some(Ordering::Greater);
    }
    let whole = float.floor();
    Some(int.cmp(&(whole as i128)).then(if float > whole { Ordering::Less } else { Ordering::Equal }))
}

/// One of `<`, `<=`, `>`, `>=`.
pub(crate) fn ordered(cx: &Context, op: &str, left: &Value, right: &Value) -> Result<bool, Error> {
    let found = partial(cx, op, left, right)?;
    Ok(match op {
        "<" => found == Some(Ordering::Less),
        "<=" => matches!(found, Some(Ordering::Less | Ordering::Equal)),
        ">" => found == Some(Ordering::Greater),
        _ => matches!(found, Some(Ordering::Greater | Ordering::Equal)),
    })
}

/// The order that sorting needs: by `<` alone.
pub(crate) fn order(cx: &Context, left: &Value, right: &Value) -> Result<Ordering, Error> {
    Ok(partial(cx, "<", left, right)?.unwrap_or(Ordering::Equal))
}

/// Stably sorted by what `order` says, whatever that is: Python's order of values need not be a total one.
pub(crate) fn sorted<T>(
    mut all: Vec<T>,
    order: &mut dyn FnMut(&T, &T) -> Result<Ordering, Error>,
) -> Result<Vec<T>, Error> {
    if all.len() < 2 {
        return Ok(all);
    }
    let right = all.split_off(all.len() / 2);
    let mut right = sorted(right, order)?.into_iter().peekable();
    let mut out = Vec::with_capacity(all.len() + right.len());
    for left in sorted(all, order)? {
        while let Some(first) = right.peek() {
            if order(first, &left)? != Ordering::Less {
                break;
            }
            out.extend(right.next());
        }
        out.push(left);
    }
    out.extend(right);
    Ok(out)
}

fn partial(cx: &Context, op: &str, left: &Value, right: &Value) -> Result<Option<Ordering>, Error> {
    match (view(left), view(right)) {
        (View::Str(left), View::Str(right)) => {
            cx.charge(left.len().min(right.len()))?;
            Ok(Some(left.cmp(right)))
        }
        (View::Bytes(left), View::Bytes(right)) => {
            cx.charge(left.len().min(right.len()))?;
            Ok(Some(left.cmp(right)))
        }
        (View::Seq(left), View::Seq(right))
            if left.kind == right.kind && matches!(left.kind, SeqKind::List | SeqKind::Tuple) =>
        {
            cx.charge(left.items.len())?;
            for (left, right) in left.items.iter().zip(&right.items) {
                if !equal(cx, left, right) {
                    return partial(cx, op, left, right);
                }
            }
            Ok(Some(left.items.len().cmp(&right.items.len())))
        }
        (left_view, right_view) => {
            if let (Some(left), Some(right)) = (numeric(&left_view), numeric(&right_view)) {
                Ok(compare_numbers(left, right))
            } else {
                defined(left)?;
                defined(right)?;
                let (left, right) = (type_name(left), type_name(right));
                let message = format!("'{op}' not supported between instances of '{left}' and '{right}'");
                Err(Error::new(Kind::Type, message))
            }
        }
    }
}

/// `item in container`.
pub(crate) fn contains(cx: &Context, container: &Value, item: &Value) -> Result<bool, Error> {
    match view(container) {
        View::Str(text) => {
            cx.charge(text.len())?;
            match view(item) {
                View::Str(part) => Ok(text.contains(part)),
                View::Forbidden(forbidden) => Err(super::value::forbidden(forbidden)),
                _ => {
                    let name = type_name(item);
                    let message = format!("'in <string>' requires string as left operand, not {name}");
                    Err(Error::new(Kind::Type, message))
                }
            }
        }
        View::Seq(seq) => {
            if let View::Str(text) = view(item) {
                cx.charge(seq.items.len().saturating_mul(1 + text.len() / 16))?;
                return Ok(seq
                    .items
                    .iter()
                    .any(|found| matches!(view(found), View::Str(found) if found == text)));
            }
            cx.charge(seq.items.len())?;
            Ok(seq.items.iter().any(|found| equal(cx, found, item)))
        }
        View::Dict(dict) => match view(item) {
            View::Dict(_) => Err(Error::new(Kind::Type, "unhashable type: 'dict'")),
            View::Seq(seq) if seq.kind == SeqKind::List => {
                Err(Error::new(Kind::Type, "unhashable type: 'list'"))
            }
            View::Str(key) => {
                cx.charge(8 + key.len())?;
                Ok(dict.get_str(key).is_some())
            }
            _ => Ok(dict.get(cx, item).is_some()),
        },
        _ => {
            let Some(items) = iterable(cx, container)? else {
                let name = type_name(container);
                return Err(Error::new(Kind::Type, format!("argument of type '{name}' is not iterable")));
            };
            Ok(items.iter().any(|found| equal(cx, found, item)))
        }
    }
}
