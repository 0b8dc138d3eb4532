//! Filters of texts, and values written as texts.

use std::fmt::Write;

use super::super::super::context::Context;
use super::super::super::error::{Error, Kind};
use super::super::big::Whole;
use super::super::json::{Layout, dumps};
use super::super::methods::pairs;
use super::super::text::{escaped, is_space, str_of, write_repr};
use super::super::value::{
    Answer, Args, SeqKind, Value, View, defined, dict, index, int, items, iterable, part_of, raise, text,
    text_like, tuple, type_name, view,
};
use super::super::{operators, strings};
use super::number::to_float;
use super::sequence::{path, sorted};
use super::{fail, flag, length, unpack_error, unpacked};

/// `value|trim`.
pub(crate) fn trim(cx: &Context, value: &Value, args: &Args) -> Answer {
    let chars =
        args.get(0, "chars").filter(|chars| !chars.is_none()).map(|value| str_of(cx, value)).transpose()?;
    match value.as_str() {
        Some(text) => part_of(cx, value, strings::trimmed(text, chars.as_deref(), true, true)),
        None => text(cx, strings::trimmed(&str_of(cx, value)?, chars.as_deref(), true, true).to_string()),
    }
}

/// The result of `work` on the value's text; markup stays markup.
pub(super) fn on_text(
    cx: &Context,
    value: &Value,
    work: impl FnOnce(&str) -> Result<String, Error>,
) -> Answer {
    if let View::Str(text) = view(value) {
        return text_like(cx, value, work(text)?);
    }
    text(cx, work(&str_of(cx, value)?)?)
}

pub(super) fn filesizeformat(cx: &Context, value: &Value, args: &Args) -> Answer {
    let bytes = to_float(cx, value)?;
    let binary = flag(args, 0, "binary");
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    if matches!(bytes, 1.0) {
        return Ok(Value::from("1 Byte"));
    }
    if bytes < base {
        let count = Whole::from_float(bytes);
        let sign = if count.is_negative() { "-" } else { "" };
        return text(cx, format!("{sign}{} Bytes", count.digits(10)?));
    }
    let names = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
    let mut unit = base;
    for (at, name) in names.iter().enumerate() {
        unit *= base;
        if bytes < unit || at + 1 == names.len() {
            let name = if binary { format!("{}iB", name.to_uppercase()) } else { format!("{name}B") };
            return text(cx, format!("{:.1} {name}", base * bytes / unit));
        }
    }
    Ok(Value::Undefined)
}

pub(super) fn format(cx: &Context, value: &Value, args: &Args) -> Answer {
    if !args.positional.is_empty() && !args.named.is_empty() {
        return Err(raise(
            Kind::FilterArgument,
            "can't handle positional and keyword arguments at the same time",
        ));
    }
    let pattern = if value.is_safe() { value.clone() } else { Value::from(str_of(cx, value)?) };
    let filled = if args.named.is_empty() {
        tuple(cx, args.positional.to_vec())?
    } else {
        dict(
            cx,
            args.named.iter().map(|(name, value)| (Value::from(name.as_str()), value.clone())).collect(),
        )?
    };
    operators::modulo(cx, &pattern, &filled)
}

pub(super) fn indent(cx: &Context, value: &Value, args: &Args) -> Answer {
    let width = match args.get(0, "width").map(|width| (view(width), width)) {
        None => " ".repeat(4),
        Some((View::Str(text), _)) => text.to_string(),
        Some((_, width)) => {
            let width = usize::try_from(index(width)?.max(0)).unwrap_or(usize::MAX);
            cx.charge(width)?;
            " ".repeat(width)
        }
    };
    let source = match view(value) {
        View::Str(text) => text,
        View::Seq(seq) if seq.kind == SeqKind::List => {
            return Err(raise(Kind::Attribute, "'list' object has no attribute 'splitlines'"));
        }
        _ => {
            defined(value)?;
            let name = type_name(value);
            return Err(raise(Kind::Type, format!("unsupported operand type(s) for +=: '{name}' and 'str'")));
        }
    };
    let count = source.matches(strings::ends_line).count() + 1;
    cx.charge(source.len() + count.saturating_mul(width.len() + size_of::<&str>()))?;
    let source = format!("{source}\n");
    let lines = strings::lines(&source, false);
    let blank = flag(args, 2, "blank");
    let mut out = if flag(args, 1, "first") { width.clone() } else { String::new() };
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            out.push('\n');
            if blank || !line.is_empty() {
                out.push_str(&width);
            }
        }
        out.push_str(line);
    }
    text_like(cx, value, out)
}

pub(super) fn join(cx: &Context, value: &Value, args: &Args) -> Answer {
    let sep = args.get(0, "d").map_or_else(|| Ok(String::new()), |sep| str_of(cx, sep))?;
    let path = path(args, 1);
    let mut out = String::new();
    for (at, item) in items(cx, value)?.iter().enumerate() {
        let part = str_of(cx, &path.of(cx, item, None)?)?;
        cx.grow(&out, sep.len() + part.len())?;
        out.push_str(if at == 0 { "" } else { &sep });
        out.push_str(&part);
    }
    Ok(Value::from(out))
}

/// The number of characters in a line of `pprint`.
const PPRINT_WIDTH: usize = 80;

/// `pprint.pformat`: as `repr` with keys sorted, where that fits on a line.
///
/// It stops as soon as the line is full, so a value that holds one list many times takes no time or memory.
pub(super) fn pprint(cx: &Context, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    pprint_into(cx, value, &mut out)?;
    Ok(out)
}

fn pprint_into(cx: &Context, value: &Value, out: &mut String) -> Result<(), Error> {
    match view(value) {
        View::Dict(of) => {
            cx.charge(of.entries.len().saturating_mul(4 * size_of::<Value>()))?;
            let keyed: Vec<_> = of.entries.clone();
            let entries = sorted(cx, keyed.clone(), false).unwrap_or(keyed);
            out.push('{');
            for (at, (key, value)) in entries.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                pprint_into(cx, key, out)?;
                out.push_str(": ");
                pprint_into(cx, value, out)?;
            }
            out.push('}');
        }
        View::Seq(seq) if matches!(seq.kind, SeqKind::List | SeqKind::Tuple) => {
            let [open, close] = match seq.kind {
                SeqKind::List => ["[", "]"],
                _ if seq.items.len() == 1 => ["(", ",)"],
                _ => ["(", ")"],
            };
            out.push_str(open);
            for (at, item) in seq.items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                pprint_into(cx, item, out)?;
            }
            out.push_str(close);
        }
        _ => write_repr(cx, value, out)?,
    }
    // a character has at most four bytes, so a short text need not be counted
    if out.len() > PPRINT_WIDTH && out.chars().count() > PPRINT_WIDTH {
        return fail(Kind::Unsupported, "pprint of more than one line");
    }
    Ok(())
}

pub(super) fn replace(cx: &Context, value: &Value, args: &Args) -> Answer {
    let (old, new) = (str_of(cx, args.need(0, "old")?)?, str_of(cx, args.need(1, "new")?)?);
    let count = args.get(2, "count").filter(|count| !count.is_none()).map_or(Ok(-1), index)?;
    text(cx, strings::replaced(cx, &str_of(cx, value)?, &old, &new, count)?)
}

/// markupsafe's `striptags`: no comments, no tags, single spaces, no entities.
pub(crate) fn striptags(source: &str) -> String {
    let (mut plain, mut rest) = (String::new(), source);
    while let Some(at) = rest.find('<') {
        let comment = rest[at..].starts_with("<!--");
        let (skipped, close) = if comment { (at + 4, "-->") } else { (at, ">") };
        let Some(end) = rest[skipped..].find(close) else { break };
        plain.push_str(&rest[..at]);
        rest = &rest[skipped + end + close.len()..];
    }
    plain.push_str(rest);
    let words: Vec<&str> = plain.split(is_space).filter(|word| !word.is_empty()).collect();
    unescaped(&words.join(" "))
}

/// The text with the entities of markupsafe as characters.
pub(crate) fn unescaped(text: &str) -> String {
    let known =
        [("&lt;", "<"), ("&gt;", ">"), ("&#39;", "'"), ("&#34;", "\""), ("&quot;", "\""), ("&amp;", "&")];
    known.iter().fold(text.to_owned(), |text, (entity, plain)| text.replace(entity, plain))
}

/// Jinja's own title case: words begin after white space, `-` and opening brackets.
pub(super) fn titled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut begins = true;
    for c in text.chars() {
        if begins {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        begins = is_space(c) || "-({[<".contains(c);
    }
    out
}

pub(super) fn tojson(cx: &Context, value: &Value, args: &Args) -> Answer {
    Ok(Value::from(dumps(cx, value, &layout(cx, args)?)?))
}

/// How `tojson` writes with these arguments.
pub(crate) fn layout(cx: &Context, args: &Args) -> Result<Layout, Error> {
    args.only(4, &["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = match args.get(1, "indent").map(|indent| (view(indent), indent)) {
        None | Some((View::None, _)) => None,
        Some((View::Str(text), _)) => Some(text.to_string()),
        Some((_, indent)) => {
            let width = usize::try_from(index(indent)?.max(0)).unwrap_or(usize::MAX);
            cx.charge(width)?;
            Some(" ".repeat(width))
        }
    };
    let separators = match args.get(2, "separators").filter(|separators| !separators.is_none()) {
        None => (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string()),
        Some(pair) => match items(cx, pair)?.as_slice() {
            [item, key] => match (view(item), view(key)) {
                (View::Str(item), View::Str(key)) => (item.to_string(), key.to_string()),
                _ => return Err(raise(Kind::Type, "separators must be strings")),
            },
            parts => return Err(unpack_error(2, parts.len())),
        },
    };
    Ok(Layout {
        ensure_ascii: flag(args, 0, "ensure_ascii"),
        indent,
        separators,
        sort_keys: flag(args, 3, "sort_keys"),
    })
}

pub(super) fn truncate(cx: &Context, value: &Value, args: &Args) -> Answer {
    let limit = args.get(0, "length").map_or(Ok(255), index)?;
    let leeway = args.get(3, "leeway").filter(|leeway| !leeway.is_none()).map_or(Ok(5), index)?;
    let given = args.get(2, "end");
    let end = given.map_or_else(|| Ok("...".to_string()), |end| str_of(cx, end))?;
    let room = limit.saturating_sub(end.chars().count() as i128);
    if room < 0 || leeway < 0 {
        return Err(raise(Kind::Value, format!("expected length >= {}, got {limit}", end.chars().count())));
    }
    if length(value)? as i128 <= limit.saturating_add(leeway) {
        return Ok(value.clone());
    }
    let View::Str(all) = view(value) else {
        let cut = operators::slice(cx, value, &Value::None, &int(room), &Value::None)?;
        if flag(args, 1, "killwords") {
            return operators::add(cx, &[cut, Value::from(end)]);
        }
        let name = type_name(value);
        return Err(raise(Kind::Attribute, format!("'{name}' object has no attribute 'rsplit'")));
    };
    let cut: String = all.chars().take(usize::try_from(room).unwrap_or(usize::MAX)).collect();
    let cut = if flag(args, 1, "killwords") {
        cut.as_str()
    } else {
        cut.rsplit_once(' ').map_or(cut.as_str(), |(words, _)| words)
    };
    let bare = value.is_safe() && !given.is_some_and(Value::is_safe);
    text_like(cx, value, format!("{cut}{}", if bare { escaped(cx, &end)? } else { end }))
}

pub(super) fn quoted(cx: &Context, value: &Value, in_query: bool, out: &mut String) -> Result<(), Error> {
    let text = str_of(cx, value)?;
    cx.charge(text.len().saturating_mul(3))?;
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => out.push(byte as char),
            b'/' if !in_query => out.push('/'),
            b' ' if in_query => out.push('+'),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    Ok(())
}

pub(super) fn urlencode(cx: &Context, value: &Value) -> Answer {
    let mut out = String::new();
    let pairs = match view(value) {
        View::Str(_) => None,
        View::Dict(of) => Some(items(cx, &pairs(cx, of)?)?),
        _ => iterable(cx, value)?,
    };
    let Some(pairs) = pairs else {
        quoted(cx, value, false, &mut out)?;
        return Ok(Value::from(out));
    };
    for (at, pair) in pairs.iter().enumerate() {
        let parts = unpacked(cx, pair, 2)?;
        out.push_str(if at == 0 { "" } else { "&" });
        quoted(cx, &parts[0], true, &mut out)?;
        out.push('=');
        quoted(cx, &parts[1], true, &mut out)?;
    }
    Ok(Value::from(out))
}

pub(super) fn xmlattr(cx: &Context, value: &Value, autospace: bool) -> Answer {
    let View::Dict(of) = view(value) else {
        defined(value)?;
        let name = type_name(value);
        return Err(raise(Kind::Attribute, format!("'{name}' object has no attribute 'items'")));
    };
    let mut out = String::new();
    for (key, value) in &of.entries {
        if value.is_none() || value.is_undefined() {
            continue;
        }
        let key = str_of(cx, key)?;
        if key.contains(|c: char| is_space(c) || "/>=".contains(c)) {
            return Err(raise(Kind::Value, format!("Invalid character in attribute name: '{key}'")));
        }
        let value = if value.is_safe() { str_of(cx, value)? } else { escaped(cx, &str_of(cx, value)?)? };
        let space = if out.is_empty() && !autospace { "" } else { " " };
        let _ = write!(out, "{space}{}=\"{value}\"", escaped(cx, &key)?);
    }
    text(cx, out)
}
