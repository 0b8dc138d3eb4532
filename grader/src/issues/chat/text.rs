//! D.1: strings and floats as Python writes them in JSON.

use challenges::issues::chat::{Layout, Steps, json_text};
use serde_json::json;

use super::{Check, Rows, prompts, same, same_text};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("plain", |steps, _| strings(steps, &PLAIN)),
    ("short-escapes", |steps, _| strings(steps, &SHORT)),
    ("control-characters", |steps, _| controls(steps)),
    ("not-ascii", |steps, _| strings(steps, &WIDE)),
    ("ensure-ascii", |steps, _| strings(steps, &ESCAPED)),
    ("strings-drawn", |steps, random| (0..300).try_for_each(|_| drawn_string(steps, random))),
    ("exponents", |steps, _| floats(steps, &EXPONENTS)),
    ("whole-and-minus-zero", |steps, _| floats(steps, &WHOLE)),
    ("floats-drawn", |steps, random| (0..2000).try_for_each(|_| drawn_float(steps, random))),
    ("in-a-document", |steps, _| document(steps)),
    ("own-templates", |steps, _| prompts::all(steps)),
];

/// A text, whether only ASCII is wanted, and its JSON.
type Written = (&'static str, bool, &'static str);

// What Python 3's json.dumps wrote, checked by hand against RFC 8259.
const PLAIN: [Written; 3] = [("", false, r#""""#), ("a b", true, r#""a b""#), ("/'&<>", true, r#""/'&<>""#)];
const SHORT: [Written; 2] =
    [("\"\\\n\r\t\u{8}\u{c}", false, r#""\"\\\n\r\t\b\f""#), ("a\\nb", true, r#""a\\nb""#)];
const WIDE: [Written; 3] = [
    ("é", false, "\"é\""),
    ("日本\u{2028}", false, "\"日本\u{2028}\""),
    ("\u{7f}\u{80}😀", false, "\"\u{7f}\u{80}😀\""),
];
const ESCAPED: [Written; 4] = [
    ("é", true, r#""\u00e9""#),
    ("日a", true, r#""\u65e5a""#),
    ("😀", true, r#""\ud83d\ude00""#),
    ("~\u{7f}\u{80}", true, r#""~\u007f\u0080""#),
];

fn strings(steps: &Steps, cases: &[Written]) -> Result<(), String> {
    for &(text, ascii, want) in cases {
        let mut out = String::from("before ");
        steps.chat().json_string(text, ascii, &mut out);
        let what = format!("{text:?} added to \"before \", ensure_ascii {ascii}");
        same_text(&what, &out, &format!("before {want}"))?;
    }
    Ok(())
}

/// All below U+0020 that have no escape of their own.
fn controls(steps: &Steps) -> Result<(), String> {
    for code in (0..0x20_u8).filter(|code| ![8, 9, 10, 12, 13].contains(code)) {
        let text = char::from(code).to_string();
        same_text(&format!("{text:?}"), &string(steps, &text, false), &format!("\"\\u{code:04x}\""))?;
    }
    Ok(())
}

fn string(steps: &Steps, text: &str, ascii: bool) -> String {
    let mut out = String::new();
    steps.chat().json_string(text, ascii, &mut out);
    out
}

/// Any reader of JSON gets the text back, and nothing is escaped that need not be.
fn drawn_string(steps: &Steps, random: &mut Random) -> Result<(), String> {
    let kinds: [&[char]; 4] = [
        &['a', 'Z', ' ', '~', '/'],
        &['"', '\\', '\n', '\t', '\u{1}', '\u{1f}'],
        &['é', 'ß', '日', '\u{ffff}', '\u{7f}'],
        &['😀', '\u{10ffff}', '\u{10000}'],
    ];
    let mut pick = || {
        let kind = kinds[random.below(4)];
        kind[random.below(kind.len())]
    };
    let text: String = (0..12).map(|_| pick()).collect();
    for ascii in [false, true] {
        let got = string(steps, &text, ascii);
        let back: Result<String, _> = serde_json::from_str(&got);
        if back.as_deref().ok() != Some(&text) {
            return Err(format!("{text:?} became {got}, which a reader of JSON does not take for it"));
        }
        if ascii && !got.is_ascii() {
            return Err(format!("{text:?} became {got}, which is not ASCII"));
        }
        let escapes = got.matches("\\u").count();
        let needed = |c: char| match c {
            '\u{1}' | '\u{1f}' => 1,
            c if ascii && c > '~' => c.len_utf16(),
            _ => 0,
        };
        same(&format!("escapes \\u in {got}"), &escapes, &text.chars().map(needed).sum())?;
    }
    Ok(())
}

// What Python 3's repr wrote.
const EXPONENTS: [(f64, &str); 11] = [
    (1e22, "1e+22"),
    (1.5e300, "1.5e+300"),
    (1e16, "1e+16"),
    (9_999_999_999_999_998.0, "9999999999999998.0"),
    (123_456_789_012_345.67, "123456789012345.67"),
    (0.0001, "0.0001"),
    (0.000_01, "1e-05"),
    (1.234e-7, "1.234e-07"),
    (5e-324, "5e-324"),
    (f64::MAX, "1.7976931348623157e+308"),
    (-2.5e-10, "-2.5e-10"),
];
const WHOLE: [(f64, &str); 6] =
    [(0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (-3.0, "-3.0"), (0.1, "0.1"), (1e15, "1000000000000000.0")];

fn floats(steps: &Steps, cases: &[(f64, &str)]) -> Result<(), String> {
    cases.iter().try_for_each(|(value, want)| {
        same_text(&format!("the float {value:e}"), &steps.chat().float(*value), want)
    })
}

/// By what Python's documentation says of `repr`: it reads back, nothing shorter does, the exponent is where it
/// belongs.
fn drawn_float(steps: &Steps, random: &mut Random) -> Result<(), String> {
    let value = f64::from_bits(random.next_u64());
    let near = (random.unit() - 0.5) * 10f64.powi(random.below(40) as i32 - 20);
    let value = if value.is_finite() && random.below(2) == 0 { value } else { near };
    let got = steps.chat().float(value);
    let wrong = |why: &str| Err(format!("the float {value:e} became {got}, {why}"));
    if got.parse::<f64>().map(f64::to_bits) != Ok(value.to_bits()) {
        return wrong("which reads back as another number");
    }
    let (digits, exponent) = got.split_once('e').unwrap_or((&got, ""));
    let place = value.abs().log10();
    let needs = value != 0.0 && !(-4.0 - 1e-9..16.0 + 1e-9).contains(&place);
    if needs == exponent.is_empty() && (place - 16.0).abs() > 1e-9 && (place + 4.0).abs() > 1e-9 {
        return wrong(if needs { "without an exponent" } else { "with an exponent" });
    }
    if !exponent.is_empty() && (!exponent.starts_with(['+', '-']) || exponent.len() < 3) {
        return wrong("whose exponent has no sign or less than two digits");
    }
    if exponent.is_empty() && !digits.contains('.') {
        return wrong("without a fraction: a reader takes it for a whole number");
    }
    let significant = digits.chars().filter(char::is_ascii_digit).collect::<String>();
    let significant = significant.trim_start_matches('0').trim_end_matches('0').len();
    let fewer = significant.saturating_sub(2); // of the digits behind the first: one less
    if significant > 1 && format!("{value:.fewer$e}").parse::<f64>() == Ok(value) {
        return wrong("though fewer digits read back as the same number");
    }
    Ok(())
}

/// Within the layouts that templates ask for.
fn document(steps: &Steps) -> Result<(), String> {
    let value = json!({"b": [1, 2.0, 1e16, null, true], "a": {"é\n": "<b>'", "none": {}, "empty": []}});
    let separators = (",".to_owned(), ":".to_owned());
    let cases = [
        (
            Layout::default(),
            r#"{"b": [1, 2.0, 1e+16, null, true], "a": {"é\n": "<b>'", "none": {}, "empty": []}}"#,
        ),
        (
            Layout { ensure_ascii: true, sort_keys: true, separators, ..Layout::default() },
            r#"{"a":{"empty":[],"none":{},"\u00e9\n":"<b>'"},"b":[1,2.0,1e+16,null,true]}"#,
        ),
    ];
    for (layout, want) in cases {
        let got = json_text(&value, &layout, steps).map_err(|error| error.to_string())?;
        same_text("a document", &got, want)?;
    }
    Ok(())
}
