//! Numbers as Python writes them.

use super::super::context::Context;

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
    let text = text.trim_matches(super::text::is_space);
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

/// A whole number that the text stands for in `base`, by Python's `int()`.
pub(crate) fn parse_int(text: &str, base: u32) -> Option<i128> {
    let text = text.trim_matches(super::text::is_space);
    let (negative, body) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let prefix = match base {
        16 => ["0x", "0X"],
        8 => ["0o", "0O"],
        2 => ["0b", "0B"],
        _ => ["_", "_"],
    };
    let stripped = prefix.iter().find_map(|prefix| body.strip_prefix(prefix));
    let body =
        if base == 10 { body } else { stripped.map_or(body, |rest| rest.strip_prefix('_').unwrap_or(rest)) };
    let under = body.starts_with('_') || body.ends_with('_') || body.contains("__");
    if under || body.is_empty() || body.starts_with(['+', '-']) {
        return None;
    }
    let value = i128::from_str_radix(&body.replace('_', ""), base).ok()?;
    Some(if negative { -value } else { value })
}
