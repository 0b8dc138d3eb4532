//! Numbers as Python writes them.

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::big;
use super::unicode::ascii_digits;
use super::value::{Value, int};

/// `repr` of a float.
pub(crate) fn float_text(cx: &Context, value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    cx.host.float(value)
}

/// `round(value, digits)`: half to even on the exact value.
pub(crate) fn rounded(value: f64, digits: i32) -> f64 {
    if !value.is_finite() || digits > 300 {
        return value;
    }
    if digits >= 0 {
        return format!("{value:.*}", digits as usize).parse().unwrap_or(value);
    }
    let unit = 10f64.powi(-digits);
    if unit.is_infinite() { 0.0 * value } else { (value / unit).round_ties_even() * unit }
}

/// A float that the text stands for, by Python's `float()`.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let text = &*ascii_digits(text);
    let bytes = text.as_bytes();
    let under = |at: usize| {
        bytes[at] == b'_'
            && (at == 0
                || !bytes[at - 1].is_ascii_digit()
                || !bytes.get(at + 1).is_some_and(u8::is_ascii_digit))
    };
    if (0..bytes.len()).any(under) {
        return None;
    }
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let word = matches!(body.to_ascii_lowercase().as_str(), "inf" | "infinity" | "nan");
    if !word && !body.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-_".contains(&byte)) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// A whole number that the text stands for in `base`, by Python's `int()`; base 0 is that of the prefix.
///
/// `None` if Python raises a `ValueError`. Fails if the number has too many bits.
pub(crate) fn parse_int(text: &str, base: u32) -> Result<Option<Value>, Error> {
    let text = ascii_digits(text);
    let (negative, body) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, &*text),
    };
    let prefixes = [(16, ["0x", "0X"]), (8, ["0o", "0O"]), (2, ["0b", "0B"])];
    let matching = prefixes.iter().filter(|(radix, _)| base == 0 || base == *radix);
    let mut all = matching.flat_map(|(radix, all)| all.iter().map(move |prefix| (*radix, *prefix)));
    let stripped = all.find_map(|(radix, prefix)| Some((radix, body.strip_prefix(prefix)?)));
    let (radix, body) = match stripped {
        Some((radix, rest)) => (radix, rest.strip_prefix('_').unwrap_or(rest)),
        None if base == 0 && body.starts_with('0') && !body.bytes().all(|byte| b"0_".contains(&byte)) => {
            return Ok(None);
        }
        None => (if base == 0 { 10 } else { base }, body),
    };
    let under = body.starts_with('_') || body.ends_with('_') || body.contains("__");
    let digits = body.replace('_', "");
    if under || digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Ok(None);
    }
    if let Ok(small) = i128::from_str_radix(&digits, radix) {
        return Ok(Some(int(if negative { -small } else { small })));
    }
    match big::parse(&digits, radix) {
        Ok(number) => Ok(Some(big::whole(if negative { -number } else { number }))),
        Err(error) if error.kind == Kind::Value => Ok(None),
        Err(error) => Err(error),
    }
}
