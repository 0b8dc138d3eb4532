//! D.1: strings and floats as Python writes them in JSON.

use challenges::issues::chat::{Layout, Steps, json_text};

use super::super::part::same;
use super::{Check, Rows, prompts, python, same_text};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("plain", |steps, _| strings(steps, "plain")),
    ("short-escapes", |steps, _| strings(steps, "short-escapes")),
    ("control-characters", |steps, _| strings(steps, "control-characters")),
    ("not-ascii", |steps, _| strings(steps, "not-ascii")),
    ("ensure-ascii", |steps, _| strings(steps, "ensure-ascii")),
    ("strings-drawn", |steps, random| (0..300).try_for_each(|_| drawn_string(steps, random))),
    ("exponents", |steps, _| floats(steps, "exponents")),
    ("whole-and-minus-zero", |steps, _| floats(steps, "whole-and-minus-zero")),
    ("floats-drawn", |steps, random| {
        floats(steps, "floats-drawn").and_then(|()| (0..2000).try_for_each(|_| drawn_float(steps, random)))
    }),
    ("in-a-document", |steps, _| document(steps)),
    ("own-templates", |steps, _| prompts::all(steps)),
];

/// Texts, whether only ASCII is wanted, and what Python's `json.dumps` writes.
fn strings(steps: &Steps, check: &str) -> Result<(), String> {
    for row in python::rows("strings", check) {
        let (text, ascii, want) = (python::text(&row[0]), row[1] == true, python::text(&row[2]));
        let mut out = String::from("before ");
        steps.chat().json_string(text, ascii, &mut out);
        let what = format!("{text:?} added to \"before \", ensure_ascii {ascii}");
        same_text(&what, &out, &format!("before {want}"))?;
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

/// Floats, and what Python's `repr` writes.
fn floats(steps: &Steps, check: &str) -> Result<(), String> {
    python::rows("floats", check).iter().try_for_each(|row| {
        let value = row[0].as_f64().expect("a float in python.json");
        same_text(&format!("the float {value:e}"), &steps.chat().float(value), python::text(&row[1]))
    })
}

/// By what the trait says: it reads back, nothing shorter does and nothing as short is nearer, the exponent is where it
/// belongs. Every third is a fraction of a power of two, which may lie half-way between two that are as short.
fn drawn_float(steps: &Steps, random: &mut Random) -> Result<(), String> {
    let value = f64::from_bits(random.next_u64());
    let near = (random.unit() - 0.5) * 10f64.powi(random.below(40) as i32 - 20);
    let halves = random.below(1 << 30) as f64 / 2f64.powi(random.below(60) as i32);
    let value = match random.below(3) {
        0 if value.is_finite() => value,
        1 => halves,
        _ => near,
    };
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
    let significant = digits_of(&got).len();
    let fewer = significant.saturating_sub(2); // of the digits after the first: one less
    if significant > 1 && format!("{value:.fewer$e}").parse::<f64>() == Ok(value) {
        return wrong("though fewer digits read back as the same number");
    }
    let nearest = format!("{value:.*e}", significant.saturating_sub(1)); // of two as near the even one
    if nearest.parse::<f64>() == Ok(value) && digits_of(&nearest) != digits_of(&got) {
        return wrong(&format!("though {nearest} is as short, and nearer or as near and even"));
    }
    Ok(())
}

/// The digits of a number without the zeros around them.
fn digits_of(number: &str) -> String {
    let digits = number.chars().take_while(|c| *c != 'e').filter(char::is_ascii_digit);
    digits.collect::<String>().trim_matches('0').to_owned()
}

/// Within the layouts that templates ask for, against Python's `json.dumps`.
fn document(steps: &Steps) -> Result<(), String> {
    for row in python::documents() {
        let (given, plain) = (&row[1], Layout::default());
        let separators = given["separators"].as_array();
        let separators =
            separators.map(|both| (python::text(&both[0]).into(), python::text(&both[1]).into()));
        let layout = Layout {
            ensure_ascii: given["ensure_ascii"] == true,
            sort_keys: given["sort_keys"] == true,
            separators: separators.unwrap_or(plain.separators),
            indent: None,
        };
        let got = json_text(&row[0], &layout, steps).map_err(|error| error.to_string())?;
        same_text("a document", &got, python::text(&row[2]))?;
    }
    Ok(())
}
