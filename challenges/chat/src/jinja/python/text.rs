//! Values as Python writes them: `str` and `repr`.

use std::fmt::Write;

use num_bigint::BigInt;

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::big;
use super::number::float_text;
use super::value::{Seq, SeqKind, Value, View, view};

/// Python's white space: Unicode's and the four separators.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\x1c'..='\x1f')
}

/// `str(value)`.
pub(crate) fn str_of(cx: &Context, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write_str(cx, value, &mut out)?;
    Ok(out)
}

/// Appends `str(value)`.
pub(crate) fn write_str(cx: &Context, value: &Value, out: &mut String) -> Result<(), Error> {
    match view(value) {
        View::Str(text) => {
            cx.grow(out, text.len())?;
            out.push_str(text);
            Ok(())
        }
        View::Undefined | View::Forbidden(_) => Ok(()),
        _ => write_repr(cx, value, out),
    }
}

/// `repr(value)`.
pub(crate) fn repr_of(cx: &Context, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write_repr(cx, value, &mut out)?;
    Ok(out)
}

/// `ascii(value)`: as `repr`, with an escape for every character outside ASCII.
pub(crate) fn ascii_of(cx: &Context, value: &Value) -> Result<String, Error> {
    let text = repr_of(cx, value)?;
    if text.is_ascii() {
        return Ok(text);
    }
    let escapes = text.chars().filter(|c| !c.is_ascii()).count();
    cx.charge(text.len() + escapes.saturating_mul(LONGEST_ESCAPE))?;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() { out.push(c) } else { escape(c, &mut out) }
    }
    Ok(out)
}

/// The bytes of `\U0001f600`.
const LONGEST_ESCAPE: usize = 10;

/// Appends the shortest of Python's numeric escapes for a character.
fn escape(c: char, out: &mut String) {
    let code = c as u32;
    let _ = match code {
        0..=0xff => write!(out, "\\x{code:02x}"),
        0x100..=0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// Appends `repr(value)`.
pub(crate) fn write_repr(cx: &Context, value: &Value, out: &mut String) -> Result<(), Error> {
    cx.grow(out, 16)?;
    match view(value) {
        View::Undefined | View::Forbidden(_) => out.push_str("Undefined"),
        View::None => out.push_str("None"),
        View::Bool(true) => out.push_str("True"),
        View::Bool(false) => out.push_str("False"),
        View::Int(int) => {
            let _ = write!(out, "{int}");
        }
        View::Huge(huge) => push_huge(cx, huge, out)?,
        View::Float(float) => out.push_str(&float_text(cx, float)),
        View::Str(text) => {
            if value.is_safe() {
                out.push_str("Markup(");
            }
            quote(cx, text, out)?;
            if value.is_safe() {
                out.push(')');
            }
        }
        View::Bytes(bytes) => quote_bytes(cx, bytes, out)?,
        View::Seq(seq) => write_seq(cx, seq, out)?,
        View::Dict(dict) => {
            out.push('{');
            for (at, (key, value)) in dict.entries.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                write_repr(cx, key, out)?;
                out.push_str(": ");
                write_repr(cx, value, out)?;
            }
            out.push('}');
        }
        View::Stream(_) => out.push_str("<generator object>"),
        View::Space(space) => {
            let fields = space.fields.borrow().clone();
            if any_holds_space(cx, fields.iter().flat_map(|(name, value)| [name, value]))? {
                return Err(Error::new(Kind::Unsupported, "a namespace in a namespace is not written"));
            }
            out.push_str("<Namespace {");
            for (at, (name, value)) in fields.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                write_repr(cx, name, out)?;
                out.push_str(": ");
                write_repr(cx, value, out)?;
            }
            out.push_str("}>");
        }
        View::Other => {
            let text = named(cx, value);
            cx.charge(text.len())?;
            out.push_str(&text);
        }
    }
    Ok(())
}

/// Appends a whole number of more than 128 bits in decimal.
pub(crate) fn push_huge(cx: &Context, huge: &BigInt, out: &mut String) -> Result<(), Error> {
    let digits = big::decimal(huge)?;
    cx.grow(out, digits.len())?;
    out.push_str(&digits);
    Ok(())
}

/// What is written of a value that has no text of its own.
fn named(cx: &Context, value: &Value) -> String {
    match value {
        Value::Macro(of) => format!("<Macro {}>", quoted(cx, &of.head.name)),
        Value::Builtin(of) => format!("<function {of:?}>"),
        Value::Method(of) => format!("<built-in method {}>", of.1),
        Value::Loop(of) => format!("{of:?}"),
        Value::Cycler(_) => "<Cycler>".into(),
        Value::Template(_) => "<TemplateReference None>".into(),
        _ => "<Joiner>".into(),
    }
}

/// `text` in quotes.
fn quoted(cx: &Context, text: &str) -> String {
    let mut out = String::new();
    let _ = quote(cx, text, &mut out);
    out
}

fn any_holds_space<'v>(cx: &Context, values: impl IntoIterator<Item = &'v Value>) -> Result<bool, Error> {
    for value in values {
        if holds_space(cx, value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn holds_space(cx: &Context, value: &Value) -> Result<bool, Error> {
    cx.charge(1)?;
    match view(value) {
        View::Space(_) => Ok(true),
        View::Seq(seq) => any_holds_space(cx, &seq.items),
        View::Dict(dict) => any_holds_space(cx, dict.entries.iter().flat_map(|(key, value)| [key, value])),
        _ => Ok(false),
    }
}

fn write_seq(cx: &Context, seq: &Seq, out: &mut String) -> Result<(), Error> {
    let (before, after) = match seq.kind {
        SeqKind::List => ("[", "]"),
        SeqKind::Tuple if seq.items.len() == 1 => ("(", ",)"),
        SeqKind::Tuple => ("(", ")"),
        SeqKind::Range(start, stop, step) => {
            let _ = match step {
                1 => write!(out, "range({start}, {stop})"),
                _ => write!(out, "range({start}, {stop}, {step})"),
            };
            return Ok(());
        }
        SeqKind::Keys => ("dict_keys([", "])"),
        SeqKind::Values => ("dict_values([", "])"),
        SeqKind::Items => ("dict_items([", "])"),
    };
    out.push_str(before);
    for (at, item) in seq.items.iter().enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        write_repr(cx, item, out)?;
    }
    out.push_str(after);
    Ok(())
}

/// How often the growth of a text in quotes is paid for: once in so many characters, each ten bytes at most.
const CHARACTERS_A_LOOK: usize = 4096;

/// A string in quotes: single ones, unless it holds single ones and no double ones.
fn quote(cx: &Context, text: &str, out: &mut String) -> Result<(), Error> {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(mark);
    for (at, c) in text.chars().enumerate() {
        if at % CHARACTERS_A_LOOK == 0 {
            cx.grow(out, (text.len() - at.min(text.len())).min(10 * CHARACTERS_A_LOOK))?;
        }
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == mark => {
                out.push('\\');
                out.push(c);
            }
            c if printable(c) => out.push(c),
            c => escape(c, out),
        }
    }
    out.push(mark);
    Ok(())
}

/// `str.isprintable` of one character, by the blocks that hold no letters, marks, numbers or signs.
fn printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let separator = c.is_whitespace();
    let format = matches!(c as u32,
        0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x890 | 0x891 | 0x8e2 | 0x180e | 0x200b..=0x200f
        | 0x202a..=0x202e | 0x2060..=0x206f | 0xfeff | 0xfff0..=0xfffb | 0xe000..=0xf8ff | 0xfffe | 0xffff
        | 0x110bd | 0x110cd | 0x13430..=0x1343f | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a | 0xe0000..=0xe00ff
        | 0xe01f0..=0x10_ffff);
    !c.is_control() && !separator && !format
}

fn quote_bytes(cx: &Context, bytes: &[u8], out: &mut String) -> Result<(), Error> {
    cx.grow(out, bytes.len().saturating_mul(4))?;
    let mark = if bytes.contains(&b'\'') && !bytes.contains(&b'"') { '"' } else { '\'' };
    out.push('b');
    out.push(mark);
    for &byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            byte if byte as char == mark => {
                out.push('\\');
                out.push(mark);
            }
            0x20..=0x7e => out.push(byte as char),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push(mark);
    Ok(())
}

/// HTML's five characters as entities, by markupsafe.
pub(crate) fn escaped(cx: &Context, text: &str) -> Result<String, Error> {
    let bytes = |byte: u8| match byte {
        b'&' | b'\'' | b'"' => 5,
        b'<' | b'>' => 4,
        _ => 1,
    };
    let bytes = text.bytes().map(bytes).sum();
    cx.charge(bytes)?;
    let mut out = String::with_capacity(bytes);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    Ok(out)
}
