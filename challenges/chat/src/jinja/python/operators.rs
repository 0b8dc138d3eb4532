//! Python's operators.

use std::rc::Rc;

use num_bigint::{BigInt, Sign};
use num_traits::{ToPrimitive, Zero};

use super::super::context::{Context, Meter};
use super::super::error::{Error, Kind};
use super::big;
use super::format;
use super::text::{escaped, str_of, write_str};
use super::value::{
    Answer, Seq, SeqKind, Value, View, defined, index, int, list, text, text_like, tuple, type_name, view,
};

/// An operator of two values.
pub(crate) type Operator = fn(&Context, &Value, &Value) -> Answer;

fn unsupported(op: &str, left: &Value, right: &Value) -> Error {
    if let Err(error) = defined(left).and_then(|()| defined(right)) {
        return error;
    }
    let (left, right) = (type_name(left), type_name(right));
    Error::new(Kind::Type, format!("unsupported operand type(s) for {op}: '{left}' and '{right}'"))
}

fn by_zero(what: &str) -> Error {
    Error::new(Kind::ZeroDivision, format!("{what} by zero"))
}

/// Two numbers, as whole ones or as floats.
enum Pair {
    Ints(i128, i128),
    /// At least one needs more than 128 bits.
    Huge(BigInt, BigInt),
    Floats(f64, f64),
}

/// Both values as numbers; `None` if one is not a number.
///
/// Fails if one is a float and the other a whole number too large for a float.
fn numbers(left: &Value, right: &Value) -> Result<Option<Pair>, Error> {
    let float = |view: &View| match view {
        View::Bool(bool) => Ok(Some(f64::from(u8::from(*bool)))),
        View::Int(int) => Ok(Some(*int as f64)),
        View::Huge(huge) => big::to_float(huge).map(Some),
        View::Float(float) => Ok(Some(*float)),
        _ => Ok(None),
    };
    let whole = |view: &View| match view {
        View::Bool(bool) => Some(i128::from(*bool)),
        View::Int(int) => Some(*int),
        _ => None,
    };
    let huge = |view: &View| match view {
        View::Huge(huge) => Some((*huge).clone()),
        other => whole(other).map(BigInt::from),
    };
    let (left, right) = (view(left), view(right));
    if let (Some(left), Some(right)) = (whole(&left), whole(&right)) {
        return Ok(Some(Pair::Ints(left, right)));
    }
    if let (Some(left), Some(right)) = (huge(&left), huge(&right)) {
        return Ok(Some(Pair::Huge(left, right)));
    }
    let is_number =
        |view: &View| matches!(view, View::Bool(_) | View::Int(_) | View::Huge(_) | View::Float(_));
    if !is_number(&left) || !is_number(&right) {
        return Ok(None);
    }
    Ok(float(&left)?.zip(float(&right)?).map(|(left, right)| Pair::Floats(left, right)))
}

/// The result of an operation of 128 bits, or of the same operation without that limit.
fn exactly(
    cx: &Context,
    small: Option<i128>,
    a: i128,
    b: i128,
    large: fn(&Meter, &BigInt, &BigInt) -> Answer,
) -> Answer {
    small.map_or_else(|| large(cx, &a.into(), &b.into()), |small| Ok(int(small)))
}

/// `first + second + ...`, from the left.
pub(crate) fn add(cx: &Context, args: &[Value]) -> Answer {
    if let Some(joined) = add_texts(cx, args)? {
        return text(cx, joined);
    }
    let [first, rest @ ..] = args else { return Ok(Value::Undefined) };
    rest.iter().try_fold(first.clone(), |sum, next| add_two(cx, &sum, next))
}

/// The usual case: plain texts only.
fn add_texts(cx: &Context, args: &[Value]) -> Result<Option<String>, Error> {
    let mut bytes = 0;
    for arg in args {
        match view(arg) {
            View::Str(text) if !arg.is_safe() => bytes += text.len(),
            _ => return Ok(None),
        }
    }
    cx.charge(bytes)?;
    let mut out = String::with_capacity(bytes);
    args.iter().filter_map(Value::as_str).for_each(|text| out.push_str(text));
    Ok(Some(out))
}

pub(crate) fn add_two(cx: &Context, left: &Value, right: &Value) -> Answer {
    match (view(left), view(right)) {
        (View::Str(a), View::Str(b)) => {
            if left.is_safe() || right.is_safe() {
                let (a, b) = (markup(cx, left, a)?, markup(cx, right, b)?);
                cx.charge(a.len() + b.len())?;
                return Ok(Value::markup(a + &b));
            }
            cx.charge(a.len() + b.len())?;
            Ok(Value::from([a, b].concat()))
        }
        (View::Str(_), _) => {
            defined(right)?;
            let name = type_name(right);
            Err(Error::new(Kind::Type, format!("can only concatenate str (not \"{name}\") to str")))
        }
        (View::Seq(a), View::Seq(b))
            if a.kind == b.kind && matches!(a.kind, SeqKind::List | SeqKind::Tuple) =>
        {
            cx.charge_each(a.items.len() + b.items.len(), size_of::<Value>())?;
            let items = a.items.iter().chain(&b.items).cloned().collect();
            if a.is_tuple() { tuple(cx, items) } else { list(cx, items) }
        }
        (View::Seq(a), _) if matches!(a.kind, SeqKind::List | SeqKind::Tuple) => {
            defined(right)?;
            let (kind, name) = (type_name(left), type_name(right));
            Err(Error::new(Kind::Type, format!("can only concatenate {kind} (not \"{name}\") to {kind}")))
        }
        (View::Bytes(a), View::Bytes(b)) => {
            cx.charge(a.len() + b.len())?;
            Ok(Value::Bytes([a, b].concat().into()))
        }
        _ => match numbers(left, right)? {
            Some(Pair::Ints(a, b)) => exactly(cx, a.checked_add(b), a, b, big::add),
            Some(Pair::Huge(a, b)) => big::add(cx, &a, &b),
            Some(Pair::Floats(a, b)) => Ok(Value::from(a + b)),
            None => Err(unsupported("+", left, right)),
        },
    }
}

fn markup(cx: &Context, value: &Value, text: &str) -> Result<String, Error> {
    if value.is_safe() {
        cx.charge(text.len())?;
        return Ok(text.to_string());
    }
    escaped(cx, text)
}

/// `left - right`.
pub(crate) fn sub(cx: &Context, left: &Value, right: &Value) -> Answer {
    match numbers(left, right)? {
        Some(Pair::Ints(a, b)) => exactly(cx, a.checked_sub(b), a, b, big::sub),
        Some(Pair::Huge(a, b)) => big::sub(cx, &a, &b),
        Some(Pair::Floats(a, b)) => Ok(Value::from(a - b)),
        None => Err(unsupported("-", left, right)),
    }
}

/// `left * right`: numbers, or a sequence repeated.
pub(crate) fn mul(cx: &Context, left: &Value, right: &Value) -> Answer {
    match numbers(left, right)? {
        Some(Pair::Ints(a, b)) => return exactly(cx, a.checked_mul(b), a, b, big::mul),
        Some(Pair::Huge(a, b)) => return big::mul(cx, &a, &b),
        Some(Pair::Floats(a, b)) => return Ok(Value::from(a * b)),
        None => (),
    }
    let repeats = |value: &Value| match view(value) {
        View::Str(_) => true,
        View::Seq(seq) => matches!(seq.kind, SeqKind::List | SeqKind::Tuple),
        _ => false,
    };
    let (of, count) = if repeats(left) { (left, right) } else { (right, left) };
    if !repeats(of) {
        return Err(unsupported("*", left, right));
    }
    if !matches!(view(count), View::Int(_) | View::Huge(_) | View::Bool(_)) {
        defined(count)?;
        let name = type_name(count);
        return Err(Error::new(Kind::Type, format!("can't multiply sequence by non-int of type '{name}'")));
    }
    repeated(cx, of, usize::try_from(index(count)?.max(0)).unwrap_or(usize::MAX))
}

fn repeated(cx: &Context, of: &Value, count: usize) -> Answer {
    match view(of) {
        View::Str(part) => {
            cx.charge(part.len().saturating_mul(count))?;
            text_like(cx, of, part.repeat(if part.is_empty() { 0 } else { count }))
        }
        View::Seq(seq) => {
            cx.charge(size_of::<Value>().saturating_mul(seq.items.len()).saturating_mul(count))?;
            let count = if seq.items.is_empty() { 0 } else { count };
            let items = (0..count).flat_map(|_| seq.items.iter().cloned()).collect();
            if seq.is_tuple() { tuple(cx, items) } else { list(cx, items) }
        }
        _ => Ok(Value::Undefined),
    }
}

/// `left / right`.
pub(crate) fn div(cx: &Context, left: &Value, right: &Value) -> Answer {
    /// The largest size up to which every whole number is a float.
    const EXACT: u128 = 1 << 53;
    match numbers(left, right)? {
        Some(Pair::Ints(_, 0)) => Err(by_zero("division")),
        Some(Pair::Ints(a, b)) if a.unsigned_abs() <= EXACT && b.unsigned_abs() <= EXACT => {
            Ok(Value::from(a as f64 / b as f64))
        }
        Some(Pair::Ints(a, b)) => big::divided(cx, &a.into(), &b.into()).map(Value::from),
        Some(Pair::Huge(_, b)) if b.is_zero() => Err(by_zero("division")),
        Some(Pair::Huge(a, b)) => big::divided(cx, &a, &b).map(Value::from),
        Some(Pair::Floats(_, 0.0)) => Err(by_zero("float division")),
        Some(Pair::Floats(a, b)) => Ok(Value::from(a / b)),
        None => Err(unsupported("/", left, right)),
    }
}

/// Quotient and remainder of floats as Python rounds them: down, the remainder with the divisor's sign.
fn divmod(a: f64, b: f64) -> (f64, f64) {
    let mut rest = a % b;
    let mut quotient = (a - rest) / b;
    if rest == 0.0 {
        rest = 0.0_f64.copysign(b);
    } else if (b < 0.0) != (rest < 0.0) {
        rest += b;
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return (0.0_f64.copysign(a / b), rest);
    }
    let floor = quotient.floor();
    (if quotient - floor > 0.5 { floor + 1.0 } else { floor }, rest)
}

/// `left // right`.
pub(crate) fn floor_div(cx: &Context, left: &Value, right: &Value) -> Answer {
    match numbers(left, right)? {
        Some(Pair::Ints(_, 0)) => Err(by_zero("integer division or modulo")),
        Some(Pair::Ints(a, b)) => floor(cx, a, b).map(|[quotient, _]| quotient),
        Some(Pair::Huge(_, b)) if b.is_zero() => Err(by_zero("integer division or modulo")),
        Some(Pair::Huge(a, b)) => big::floor(cx, &a, &b).map(|[quotient, _]| quotient),
        Some(Pair::Floats(_, 0.0)) => Err(by_zero("float floor division")),
        Some(Pair::Floats(a, b)) => Ok(Value::from(divmod(a, b).0)),
        None => Err(unsupported("//", left, right)),
    }
}

fn floor(cx: &Context, a: i128, b: i128) -> Result<[Value; 2], Error> {
    let (Some(quotient), Some(rest)) = (a.checked_div(b), a.checked_rem(b)) else {
        return big::floor(cx, &a.into(), &b.into());
    };
    let (quotient, rest) =
        if rest != 0 && (rest < 0) != (b < 0) { (quotient - 1, rest + b) } else { (quotient, rest) };
    Ok([int(quotient), int(rest)])
}

/// `left % right`: a remainder, or a text with values filled in.
pub(crate) fn modulo(cx: &Context, left: &Value, right: &Value) -> Answer {
    if let View::Str(pattern) = view(left) {
        let args = match view(right) {
            View::Seq(seq) if seq.is_tuple() => seq.items.clone(),
            _ => vec![right.clone()],
        };
        return text_like(cx, left, format::percent(cx, pattern, &args, right, left.is_safe())?);
    }
    match numbers(left, right)? {
        Some(Pair::Ints(_, 0)) => Err(by_zero("integer modulo")),
        Some(Pair::Ints(a, b)) => floor(cx, a, b).map(|[_, rest]| rest),
        Some(Pair::Huge(_, b)) if b.is_zero() => Err(by_zero("integer modulo")),
        Some(Pair::Huge(a, b)) => big::floor(cx, &a, &b).map(|[_, rest]| rest),
        Some(Pair::Floats(_, 0.0)) => Err(by_zero("float modulo")),
        Some(Pair::Floats(a, b)) => Ok(Value::from(divmod(a, b).1)),
        None => Err(unsupported("%", left, right)),
    }
}

/// `left ** right`.
pub(crate) fn pow(cx: &Context, left: &Value, right: &Value) -> Answer {
    match numbers(left, right)? {
        Some(Pair::Ints(a, b)) if b >= 0 => whole_power(cx, &a.into(), u32::try_from(b).ok(), b % 2 == 0),
        Some(Pair::Huge(a, b)) if b.sign() != Sign::Minus => {
            whole_power(cx, &a, b.to_u32(), (b % 2u8).is_zero())
        }
        Some(Pair::Ints(0, _)) => Err(by_zero("0.0 cannot be raised to a negative power: division")),
        Some(Pair::Ints(a, b)) => Ok(Value::from((a as f64).powf(b as f64))),
        Some(Pair::Huge(a, b)) => Ok(Value::from(big::to_float(&a)?.powf(big::to_float(&b)?))),
        Some(Pair::Floats(a, b)) if a == 0.0 && b < 0.0 => Err(by_zero("division")),
        Some(Pair::Floats(a, b)) if a < 0.0 && b.fract() != 0.0 => {
            Err(Error::new(Kind::Unsupported, "a complex number"))
        }
        Some(Pair::Floats(a, b)) => {
            let power = a.powf(b);
            if power.is_infinite() && a.is_finite() && b.is_finite() {
                return Err(Error::new(Kind::Overflow, "Numerical result out of range"));
            }
            Ok(Value::from(power))
        }
        None => Err(unsupported("** or pow()", left, right)),
    }
}

/// A power of a whole number; `power` is `None` if it needs more than 32 bits.
fn whole_power(cx: &Context, base: &BigInt, power: Option<u32>, is_even: bool) -> Answer {
    match (base.to_i128(), power) {
        (Some(whole @ (0 | 1)), power) => Ok(int(if power == Some(0) { 1 } else { whole })),
        (Some(-1), _) => Ok(int(if is_even { 1 } else { -1 })),
        (_, Some(power)) => big::power(cx, base, power),
        (_, None) => big::power(cx, base, u32::MAX),
    }
}

/// `-value` or `+value`.
pub(crate) fn signed(value: &Value, minus: bool) -> Answer {
    match view(value) {
        View::Bool(bool) => Ok(Value::from(if minus { -i64::from(bool) } else { i64::from(bool) })),
        View::Int(whole) if minus => {
            Ok(whole.checked_neg().map_or_else(|| big::whole(-BigInt::from(whole)), int))
        }
        View::Huge(huge) if minus => Ok(big::whole(-huge)),
        View::Float(float) if minus => Ok(Value::from(-float)),
        View::Int(_) | View::Huge(_) | View::Float(_) => Ok(value.clone()),
        _ => {
            defined(value)?;
            let (sign, name) = (if minus { '-' } else { '+' }, type_name(value));
            Err(Error::new(Kind::Type, format!("bad operand type for unary {sign}: '{name}'")))
        }
    }
}

/// `first ~ second ~ ...`: all as text; markup stays markup where `escapes`.
pub(crate) fn concat(cx: &Context, args: &[Value], escapes: bool) -> Answer {
    if escapes && args.iter().any(Value::is_safe) {
        let mut out = String::new();
        for arg in args {
            let part = str_of(cx, arg)?;
            out.push_str(&if arg.is_safe() { part } else { escaped(cx, &part)? });
        }
        return Ok(Value::markup(out));
    }
    let mut out = String::new();
    for arg in args {
        write_str(cx, arg, &mut out)?;
    }
    Ok(Value::from(out))
}

/// `value[start:stop:step]`.
pub(crate) fn slice(cx: &Context, value: &Value, start: &Value, stop: &Value, step: &Value) -> Answer {
    let chars;
    let length = match view(value) {
        View::Str(part) => {
            cx.charge(part.len() * 4)?;
            chars = part.chars().collect::<Vec<_>>();
            let picked = picked(chars.len(), start, stop, step)?;
            return text_like(cx, value, picked.map(|at| chars[at]).collect::<String>());
        }
        View::Bytes(bytes) => {
            let picked = picked(bytes.len(), start, stop, step)?;
            return Ok(Value::Bytes(picked.map(|at| bytes[at]).collect()));
        }
        View::Seq(seq) if matches!(seq.kind, SeqKind::List | SeqKind::Tuple | SeqKind::Range(..)) => {
            seq.items.len()
        }
        View::Dict(_) => return Err(Error::new(Kind::Type, "unhashable type: 'slice'")),
        _ => {
            defined(value)?;
            let name = type_name(value);
            return Err(Error::new(Kind::Type, format!("'{name}' object is not subscriptable")));
        }
    };
    let View::Seq(seq) = view(value) else { return Ok(Value::Undefined) };
    let items = picked(length, start, stop, step)?.map(|at| seq.items[at].clone()).collect();
    match seq.kind {
        SeqKind::Tuple => tuple(cx, items),
        SeqKind::Range(first, _, by) => {
            let [start, stop, step] = bounds(length, start, stop, step)?;
            let place = |at: i128| first.saturating_add(at.saturating_mul(by));
            let kind = SeqKind::Range(place(start), place(stop), step.saturating_mul(by));
            Ok(Value::Seq(Rc::new(Seq::new(cx, kind, items)?)))
        }
        _ => list(cx, items),
    }
}

/// The places that a slice picks, each below `length`.
fn picked(
    length: usize,
    start: &Value,
    stop: &Value,
    step: &Value,
) -> Result<impl Iterator<Item = usize> + use<>, Error> {
    let [start, stop, step] = bounds(length, start, stop, step)?;
    let more = move |at: &i128| if step > 0 { *at < stop } else { *at > stop };
    let next = move |at: &i128| at.checked_add(step);
    Ok(std::iter::successors(Some(start), next).take_while(more).map(|at| at as usize))
}

/// `slice(start, stop, step).indices(length)`.
fn bounds(length: usize, start: &Value, stop: &Value, step: &Value) -> Result<[i128; 3], Error> {
    let bound = |value: &Value| match view(value) {
        View::None => Ok(None),
        View::Int(_) | View::Huge(_) | View::Bool(_) => index(value).map(Some),
        _ => {
            defined(value)?;
            Err(Error::new(Kind::Type, "slice indices must be integers or None or have an __index__ method"))
        }
    };
    let length = length as i128;
    let step = bound(step)?.unwrap_or(1);
    if step == 0 {
        return Err(Error::new(Kind::Value, "slice step cannot be zero"));
    }
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let place = |value: Option<i128>, default: i128| match value {
        None => default,
        Some(at) if at < 0 => at.saturating_add(length).max(low),
        Some(at) => at.min(high),
    };
    let start = place(bound(start)?, if step > 0 { low } else { high });
    let stop = place(bound(stop)?, if step > 0 { high } else { low });
    Ok([start, stop, step])
}
