//! The whole numbers that need more than 128 bits.
//!
//! Python's integers have no limit. Here a number may have [`MOST_BITS`] bits, and text of a number [`MOST_DIGITS`]
//! decimal digits, as in Python. A larger one is an error, never a float.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;

use num_bigint::{BigInt, Sign};
use num_traits::{FromPrimitive, One, Signed, ToPrimitive, Zero};

use super::super::context::Meter;
use super::super::error::{Error, Kind};
use super::value::{Answer, Value, int};

/// The largest number of bits of a whole number.
const MOST_BITS: u64 = 1 << 17;

/// The largest number of decimal digits that are read or written, as in Python.
pub(crate) const MOST_DIGITS: usize = 4300;

/// The value of a whole number.
pub(crate) fn whole(value: BigInt) -> Value {
    value.to_i128().map_or_else(|| Value::Huge(Rc::new(value)), int)
}

/// The value of a whole number that was computed.
fn limited(value: BigInt) -> Answer {
    if value.bits() > MOST_BITS { Err(too_large()) } else { Ok(whole(value)) }
}

#[cold]
fn too_large() -> Error {
    Error::new(Kind::Limit, format!("a whole number exceeds {MOST_BITS} bits"))
}

/// Pays for an operation on two numbers whose cost is at most the product of their lengths.
fn pay(cx: &Meter, left: u64, right: u64) -> Result<(), Error> {
    let words = |bits: u64| (bits / 64 + 1) as usize;
    cx.charge(words(left).saturating_mul(words(right)))
}

pub(crate) fn add(cx: &Meter, left: &BigInt, right: &BigInt) -> Answer {
    pay(cx, left.bits().max(right.bits()), 1)?;
    limited(left + right)
}

pub(crate) fn sub(cx: &Meter, left: &BigInt, right: &BigInt) -> Answer {
    pay(cx, left.bits().max(right.bits()), 1)?;
    limited(left - right)
}

pub(crate) fn mul(cx: &Meter, left: &BigInt, right: &BigInt) -> Answer {
    pay(cx, left.bits(), right.bits())?;
    limited(left * right)
}

/// Quotient and remainder, rounded down; `right` is not zero.
pub(crate) fn floor(cx: &Meter, left: &BigInt, right: &BigInt) -> Result<[Value; 2], Error> {
    pay(cx, left.bits(), right.bits())?;
    let (mut quotient, mut rest) = (left / right, left % right);
    if !rest.is_zero() && (rest.sign() == Sign::Minus) != (right.sign() == Sign::Minus) {
        quotient -= 1;
        rest += right;
    }
    Ok([whole(quotient), whole(rest)])
}

/// `base ** power`.
pub(crate) fn power(cx: &Meter, base: &BigInt, power: u32) -> Answer {
    let bits = base.bits().saturating_sub(1).saturating_mul(power.into());
    if bits > MOST_BITS {
        return Err(too_large());
    }
    pay(cx, bits, bits)?;
    limited(base.pow(power))
}

/// `left / right` as the nearest float; `right` is not zero.
pub(crate) fn divided(cx: &Meter, left: &BigInt, right: &BigInt) -> Result<f64, Error> {
    /// The least exponent of the quotient, so that it is rounded once even where floats have fewer bits.
    const LEAST: i64 = 1076;
    pay(cx, left.bits() + 128, right.bits())?;
    let sign = left.sign() * right.sign();
    if left.is_zero() {
        return Ok(if right.sign() == Sign::Minus { -0.0 } else { 0.0 });
    }
    let (a, b) = (left.abs(), right.abs());
    let shift = (66 + b.bits() as i64 - a.bits() as i64).min(LEAST);
    let (a, b) = if shift >= 0 { (a << shift, b) } else { (a, b << -shift) };
    let (quotient, rest) = (&a / &b, &a % &b);
    let quotient = quotient.to_u128().unwrap_or(u128::MAX) | u128::from(!rest.is_zero());
    let size = scaled(quotient as f64, -shift);
    if size.is_infinite() {
        return Err(Error::new(Kind::Overflow, "integer division result too large for a float"));
    }
    Ok(if sign == Sign::Minus { -size } else { size })
}

/// `value * 2 ** exponent`.
fn scaled(mut value: f64, mut exponent: i64) -> f64 {
    while exponent != 0 && value != 0.0 && value.is_finite() {
        let step = exponent.clamp(-538, 538);
        value *= 2f64.powi(step as i32);
        exponent -= step;
    }
    value
}

/// The nearest float.
pub(crate) fn to_float(value: &BigInt) -> Result<f64, Error> {
    let float = value.to_f64().filter(|float| float.is_finite());
    float.ok_or_else(|| Error::new(Kind::Overflow, "int too large to convert to float"))
}

/// A finite float without its fraction.
pub(crate) fn from_float(value: f64) -> BigInt {
    BigInt::from_f64(value.trunc()).unwrap_or_default()
}

/// Compares exactly; `None` if the float is not a number.
pub(crate) fn compare_float(whole: &BigInt, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float.is_infinite() {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    Some(whole.cmp(&from_float(float))) // a number of this size has no fraction, and smaller ones decide without it
}

/// Rounds to `digits` digits before the point, half to even.
pub(crate) fn rounded(value: &BigInt, digits: u32) -> BigInt {
    if 3 * u64::from(digits) > value.bits() + 1 {
        return BigInt::zero(); // it is less than half of the unit, whose bits are more than 3 per digit
    }
    let unit = BigInt::from(10).pow(digits);
    let (mut quotient, mut rest) = (value / &unit, value % &unit);
    if rest.is_negative() {
        quotient -= 1;
        rest += &unit;
    }
    let up = match (rest * 2u8).cmp(&unit) {
        Ordering::Less => false,
        Ordering::Equal => (&quotient % 2u8) != BigInt::zero(),
        Ordering::Greater => true,
    };
    if up {
        quotient += BigInt::one();
    }
    quotient * unit
}

/// Digits of a radix as a number.
///
/// Fails if there are more than [`MOST_DIGITS`] digits and the radix is not a power of two, as Python does.
pub(crate) fn parse(digits: &str, radix: u32) -> Result<BigInt, Error> {
    if !radix.is_power_of_two() && digits.trim_start_matches('-').len() > MOST_DIGITS {
        return Err(too_long());
    }
    if digits.len() as u64 > MOST_BITS {
        return Err(too_large());
    }
    let number = BigInt::parse_bytes(digits.as_bytes(), radix);
    let number = number.ok_or_else(|| Error::new(Kind::Value, "invalid literal for int()"))?;
    if number.bits() > MOST_BITS { Err(too_large()) } else { Ok(number) }
}

#[cold]
fn too_long() -> Error {
    Error::new(Kind::Value, format!("Exceeds the limit ({MOST_DIGITS} digits) for integer string conversion"))
}

/// A whole number in decimal.
pub(crate) fn decimal(value: &BigInt) -> Result<String, Error> {
    Whole::Big(Cow::Borrowed(value)).text()
}

/// A whole number of any size, for what writes its digits.
#[derive(Clone)]
pub(crate) enum Whole<'a> {
    Small(i128),
    Big(Cow<'a, BigInt>),
}

impl Whole<'_> {
    /// A finite float without its fraction.
    pub(crate) fn from_float(value: f64) -> Whole<'static> {
        let number = from_float(value);
        number.to_i128().map_or_else(|| Whole::Big(Cow::Owned(number)), Whole::Small)
    }

    pub(crate) fn is_negative(&self) -> bool {
        match self {
            Whole::Small(value) => *value < 0,
            Whole::Big(value) => value.is_negative(),
        }
    }

    /// The digits without a sign.
    pub(crate) fn digits(&self, radix: u32) -> Result<String, Error> {
        let size = match self {
            Whole::Small(value) if radix == 10 => return Ok(value.unsigned_abs().to_string()),
            Whole::Small(value) => BigInt::from(value.unsigned_abs()),
            Whole::Big(value) => value.abs(),
        };
        // a decimal digit has fewer than 4 bits
        if radix == 10 && size.bits() > 4 * MOST_DIGITS as u64 {
            return Err(too_long());
        }
        let text = size.to_str_radix(radix);
        if radix == 10 && text.len() > MOST_DIGITS { Err(too_long()) } else { Ok(text) }
    }

    /// The digits with a minus sign if it is negative.
    fn text(&self) -> Result<String, Error> {
        let digits = self.digits(10)?;
        Ok(if self.is_negative() { format!("-{digits}") } else { digits })
    }

    /// The Unicode character of this number.
    pub(crate) fn character(&self) -> Option<char> {
        match self {
            Whole::Small(value) => u32::try_from(*value).ok().and_then(char::from_u32),
            Whole::Big(_) => None,
        }
    }

    pub(crate) fn to_float(&self) -> Result<f64, Error> {
        match self {
            Whole::Small(value) => Ok(*value as f64),
            Whole::Big(value) => to_float(value),
        }
    }
}
