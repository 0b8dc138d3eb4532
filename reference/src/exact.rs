//! JSON whose whole numbers are exact, however large they are.
//!
//! A [`Value`] holds whole numbers of 64 bits and makes floats of larger ones: `18446744073709551616` becomes
//! `1.8446744073709552e19`. Python's reader keeps them. Here such a number is an object with the one key [`KEY`], whose
//! value is a string of its digits. [`from_str`] makes these objects, and [`written`] turns them back into numbers:
//!
//! ```text
//! [1, 18446744073709551616]  ->  [1, {"$whole-number": "18446744073709551616"}]  ->  [1,18446744073709551616]
//! ```
//!
//! `-0` is the whole number 0, as in Python; `-0.0` is a float.

use std::borrow::Cow;

use serde::de::Error as _;
use serde_json::{Error, Number, Value, json};

/// The only key of the object that stands for a whole number of more than 64 bits. No input may have this key.
pub const KEY: &str = "$whole-number";

/// The largest number of digits of a whole number, as in Python.
pub const MOST_DIGITS: usize = 4300;

/// Reads JSON.
///
/// Fails where `serde_json` does, at a whole number of more than [`MOST_DIGITS`] digits, and at the key [`KEY`].
pub fn from_str(text: &str) -> Result<Value, Error> {
    let numbers = special(text)?;
    let plain: Value = match numbers.as_slice() {
        [] => serde_json::from_str(text)?,
        // numbers of the same length keep the position that an error names
        all => serde_json::from_str(&replaced(text, all, |number| format!("{:<1$}", "0", number.len())))?,
    };
    if (text.contains(KEY) || text.contains("\\u")) && has_key(&plain) {
        return Err(Error::custom(format!("expected no object with the key {KEY:?}, which is reserved")));
    }
    if numbers.is_empty() {
        return Ok(plain);
    }
    serde_json::from_str(&replaced(text, &numbers, |number| whole(number).to_string()))
}

/// Reads JSON in UTF-8, as [`from_str`].
pub fn from_slice(text: &[u8]) -> Result<Value, Error> {
    match std::str::from_utf8(text) {
        Ok(text) => from_str(text),
        Err(_) => serde_json::from_slice(text), // which names the place
    }
}

/// The value of a whole number in decimal, with a minus sign or without a sign.
pub fn whole(digits: &str) -> Value {
    let (sign, size) = digits.strip_prefix('-').map_or(("", digits), |size| ("-", size));
    let size = size.trim_start_matches('0');
    let digits = if size.is_empty() { "0".to_owned() } else { format!("{sign}{size}") };
    let small = digits.parse::<i64>().map(Number::from).or_else(|_| digits.parse::<u64>().map(Number::from));
    small.map_or_else(|_| json!({ KEY: digits }), Value::Number)
}

/// The digits of a whole number of more than 64 bits; `None` for every other value.
pub fn digits(value: &Value) -> Option<&str> {
    let map = value.as_object().filter(|map| map.len() == 1)?;
    map.get(KEY)?.as_str()
}

/// JSON text that `serde_json` wrote without white space, with whole numbers as numbers.
pub fn written(text: &str) -> Cow<'_, str> {
    let begin = format!("{{\"{KEY}\":\""); // no string holds this: its quotes would be escaped
    let mut parts = text.split(&begin);
    let (Some(first), mut rest) = (parts.next(), parts.peekable()) else { return text.into() };
    if rest.peek().is_none() {
        return text.into();
    }
    let mut out = first.to_owned();
    for part in rest {
        let (digits, after) = part.split_once("\"}").unwrap_or((part, ""));
        out.push_str(digits);
        out.push_str(after);
    }
    out.into()
}

/// The value as JSON text without white space.
pub fn to_string(value: &Value) -> String {
    written(&value.to_string()).into_owned()
}

/// Returns true if the values are equal in Python, where `1e22` is equal to the whole number of the same size.
pub fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        _ if digits(one).is_some() || digits(other).is_some() => match (size(one), size(other)) {
            (Some(one), Some(other)) => one == other,
            _ => false,
        },
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has_equal =
                |(key, one): (&String, &Value)| other.get(key).is_some_and(|other| is_equal(one, other));
            one.len() == other.len() && one.iter().all(has_equal)
        }
        _ => one == other,
    }
}

/// The digits of a number without a fraction.
fn size(value: &Value) -> Option<String> {
    let float = || value.as_f64().filter(|float| float.fract() == 0.0).map(|float| format!("{float:.0}"));
    digits(value).map(str::to_owned).or_else(float)
}

/// Makes the nearest float of every whole number of more than 64 bits, as `serde_json` does.
pub fn round(value: &mut Value) {
    if let Some(float) = digits(value).and_then(|digits| digits.parse::<f64>().ok()) {
        *value = json!(float);
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Object(map) => map.values_mut().for_each(round),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}

fn has_key(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_key),
        Value::Object(map) => map.iter().any(|(key, value)| key == KEY || has_key(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Where in `text` the whole numbers are that `serde_json` would make floats of.
fn special(text: &str) -> Result<Vec<&str>, Error> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = after_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                let length = bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                let number = &text[at..at + length];
                if is_special(number) {
                    if number.trim_start_matches('-').len() > MOST_DIGITS {
                        return Err(Error::custom(format!(
                            "expected a whole number of at most {MOST_DIGITS} digits, found {}",
                            number.trim_start_matches('-').len()
                        )));
                    }
                    found.push(number);
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    Ok(found)
}

/// The place after a string that begins at `at`.
fn after_string(bytes: &[u8], mut at: usize) -> usize {
    at += 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Whether a number is a whole one in JSON's grammar that `serde_json` would make a float of.
fn is_special(number: &str) -> bool {
    let size = number.strip_prefix('-').unwrap_or(number);
    let is_whole = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_whole && (size == "0" || !size.starts_with('0'));
    let is_small = || number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
    number == "-0" || is_plain && size.len() > 18 && !is_small()
}

/// `text` with each of its parts `numbers` replaced.
fn replaced(text: &str, numbers: &[&str], with: impl Fn(&str) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for number in numbers {
        let start = number.as_ptr() as usize - text.as_ptr() as usize;
        out.push_str(&text[end..start]);
        out.push_str(&with(number));
        end = start + number.len();
    }
    out.push_str(&text[end..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_whole_numbers_survive_reading_and_writing() {
        for text in [
            "[1,18446744073709551616,-9223372036854775809]",
            "{\"a\":{\"b\":[100000000000000000001]},\"c\":\"123456789012345678901234567890\"}",
            "[18446744073709551615,-9223372036854775808,1e+20,-0.0]",
            "\"{\\\"$whole\\\":\\\"1\\\"}\"",
        ] {
            assert_eq!(to_string(&from_str(text).expect("JSON")), text);
        }
        assert_eq!(to_string(&from_str("[-0, {\"a\":-0}]").expect("JSON")), "[0,{\"a\":0}]");
    }

    #[test]
    fn errors_keep_their_position() {
        let text = "{\"a\": 100000000000000000000, \"b\": -0, }";
        let error = from_str(text).expect_err("a comma too many");
        assert_eq!((error.line(), error.column()), (1, text.len()));
        for bad in
            ["[0100000000000000000000]", "[1000000000000000000000-]", "[-]", "{100000000000000000000: 1}"]
        {
            assert!(from_str(bad).is_err(), "{bad}");
        }
        assert!(from_str("{\"\\u0024whole-number\": \"1\"}").is_err());
        assert!(from_str(&"9".repeat(MOST_DIGITS + 1)).is_err());
        assert!(from_str(&"9".repeat(MOST_DIGITS)).is_ok());
        assert!(from_str(&format!("-{}", "9".repeat(MOST_DIGITS + 1))).is_err());
    }

    #[test]
    fn floats_equal_whole_numbers_of_their_size() {
        let equal =
            |one: &str, other: &str| is_equal(&from_str(one).expect("JSON"), &from_str(other).expect("JSON"));
        assert!(equal("{\"a\": [1e22, 2]}", "{\"a\": [10000000000000000000000, 2]}"));
        assert!(equal("10000000000000000000000", "10000000000000000000000"));
        assert!(!equal("1e22", "10000000000000000000001"));
        assert!(!equal("[1e22]", "[10000000000000000000000, 1]"));
        assert!(!equal("\"a\"", "10000000000000000000000"));
        assert!(!equal("{\"a\": 1}", "{\"b\": 1}"));
    }

    #[test]
    fn rounding_makes_floats() {
        let mut value = from_str("[{\"a\": 18446744073709551616}, 5]").expect("JSON");
        round(&mut value);
        assert_eq!(value, json!([{"a": 18_446_744_073_709_551_616.0}, 5]));
    }
}
