//! The methods of `str`, and of markup.

use std::borrow::Cow;

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::filters;
use super::format::braces;
use super::text::{escaped, is_space, str_of};
use super::unicode::{is_alnum, is_alpha, is_decimal, is_digit, is_numeric};
use super::value::{
    Answer, Args, Value, View, index, items, list, part_of, text_like, tuple, type_name, view,
};

/// The names of the methods of `str`.
pub(crate) const NAMES: [&str; 47] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];

/// The names of the methods that markup has beside them.
pub(crate) const MARKUP_NAMES: [&str; 3] = ["escape", "striptags", "unescape"];

fn fail<T>(kind: Kind, message: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(kind, message))
}

/// A text argument.
fn str_arg<'a>(args: &'a Args, place: usize, name: &str) -> Result<&'a str, Error> {
    let value = args.need(place, name)?;
    match view(value) {
        View::Str(text) => Ok(text),
        _ => Err(Error::new(Kind::Type, format!("must be str, not {}", type_name(value)))),
    }
}

fn size(value: &Value) -> Result<usize, Error> {
    Ok(usize::try_from(index(value)?.max(0)).unwrap_or(usize::MAX))
}

/// Calls the method `name` of `of`; `None` if there is none.
pub(crate) fn call(cx: &Context, of: &Value, name: &str, args: &Args) -> Option<Answer> {
    let text = of.as_str()?;
    if of.is_safe() && MARKUP_NAMES.contains(&name) {
        return Some(of_markup(cx, text, name, args));
    }
    NAMES.binary_search(&name).ok()?;
    Some(method(cx, of, text, name, args))
}

fn of_markup(cx: &Context, text: &str, name: &str, args: &Args) -> Answer {
    match name {
        "escape" => {
            let value = args.need(0, "s")?;
            let text = str_of(cx, value)?;
            Ok(Value::markup(if value.is_safe() { text } else { escaped(cx, &text)? }))
        }
        "striptags" => Ok(Value::from(filters::striptags(text))),
        _ => Ok(Value::from(filters::unescaped(text))),
    }
}

fn method(cx: &Context, of: &Value, text: &str, name: &str, args: &Args) -> Answer {
    cx.charge(text.len())?;
    let same = |out: String| text_like(cx, of, out);
    let bare = name.starts_with("is")
        || matches!(name, "lower" | "upper" | "casefold" | "capitalize" | "title" | "swapcase");
    if bare && (!args.positional.is_empty() || !args.named.is_empty()) {
        return fail(Kind::Type, format!("str.{name}() takes no arguments"));
    }
    match name {
        "lower" => same(text.to_lowercase()),
        "upper" => same(text.to_uppercase()),
        "casefold" => same(text.to_lowercase().replace('ß', "ss").replace('ς', "σ")),
        "capitalize" => same(capitalized(text)),
        "title" => same(titled(text)),
        "swapcase" => same(swapped(text)),
        "strip" => part_of(cx, of, stripped(text, args, true, true)?),
        "lstrip" => part_of(cx, of, stripped(text, args, true, false)?),
        "rstrip" => part_of(cx, of, stripped(text, args, false, true)?),
        "split" => split(cx, of, text, args, false),
        "rsplit" => split(cx, of, text, args, true),
        "splitlines" => {
            let keep = args.get(0, "keepends").is_some_and(Value::is_true);
            cx.charge_each(text.chars().filter(|c| ends_line(*c)).count() + 1, PART_BYTES)?;
            list(
                cx,
                lines(text, keep)
                    .into_iter()
                    .map(|line| text_like(cx, of, line))
                    .collect::<Result<_, _>>()?,
            )
        }
        "startswith" | "endswith" => affix(text, name == "startswith", args),
        "replace" => {
            let (old, new) =
                (str_arg(args, 0, "old")?, like(cx, of, args.need(1, "new")?, str_arg(args, 1, "new")?)?);
            let new = new.as_ref();
            let count = args.get(2, "count").map(index).transpose()?.unwrap_or(-1);
            same(replaced(cx, text, old, new, count)?)
        }
        "find" | "rfind" | "index" | "rindex" => find(text, name, args),
        "count" => {
            let part = str_arg(args, 0, "sub")?;
            let (_, window) = window(text, args)?;
            let count =
                if part.is_empty() { window.chars().count() + 1 } else { window.matches(part).count() };
            Ok(Value::from(count))
        }
        "join" => join(cx, of, text, args.need(0, "iterable")?),
        "partition" | "rpartition" => partition(cx, of, text, name == "partition", str_arg(args, 0, "sep")?),
        "removeprefix" => part_of(cx, of, text.strip_prefix(str_arg(args, 0, "prefix")?).unwrap_or(text)),
        "removesuffix" => part_of(cx, of, text.strip_suffix(str_arg(args, 0, "suffix")?).unwrap_or(text)),
        "center" | "ljust" | "rjust" => same(justified(cx, of, text, name, args)?),
        "zfill" => same(zero_filled(cx, text, size(args.need(0, "width")?)?)?),
        "expandtabs" => same(expanded(cx, text, args.get(0, "tabsize").map_or(Ok(8), index)?)?),
        "encode" => Ok(Value::Bytes(text.as_bytes().into())),
        "format" => same(braces(cx, text, args, of.is_safe())?),
        "format_map" => {
            let View::Dict(dict) = view(args.need(0, "mapping")?) else {
                return fail(Kind::Type, "format_map() argument must be a mapping");
            };
            let named =
                dict.entries.iter().map(|(key, value)| (key.as_str().unwrap_or("").into(), value.clone()));
            same(braces(cx, text, &Args { positional: &[], named: named.collect() }, of.is_safe())?)
        }
        "maketrans" | "translate" => fail(Kind::Unsupported, format!("str.{name}")),
        _ => Ok(Value::from(is(cx, text, name))),
    }
}

/// The questions `isalpha` and its like.
fn is(cx: &Context, text: &str, name: &str) -> bool {
    let all = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    match name {
        "isalnum" => all(is_alnum),
        "isalpha" => all(is_alpha),
        "isascii" => text.is_ascii(),
        "isdecimal" => all(is_decimal),
        "isdigit" => all(is_digit),
        "isnumeric" => all(is_numeric),
        "isspace" => all(is_space),
        "isprintable" => {
            let mut quoted = String::new();
            let _ = super::text::write_repr(cx, &Value::from(text.replace(['\\', '\''], "")), &mut quoted);
            !quoted.contains('\\')
        }
        "isidentifier" => {
            let first = text.chars().next().is_some_and(|c| c == '_' || c.is_alphabetic());
            first && text.chars().all(|c| c == '_' || c.is_alphanumeric())
        }
        "islower" => text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase),
        "isupper" => text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase),
        _ => is_title(text),
    }
}

fn is_title(text: &str) -> bool {
    let (mut cased, mut any) = (false, false);
    for c in text.chars() {
        if c.is_uppercase() {
            if cased {
                return false;
            }
            (cased, any) = (true, true);
        } else if c.is_lowercase() {
            if !cased {
                return false;
            }
            any = true;
        } else {
            cased = false;
        }
    }
    any
}

/// One character in title case: the first of its upper case, the rest of that in lower case; four letters have their
/// own.
fn title_case(c: char, out: &mut String) {
    let own = [("Ǆǅǆ", 'ǅ'), ("Ǉǈǉ", 'ǈ'), ("Ǌǋǌ", 'ǋ'), ("Ǳǲǳ", 'ǲ')];
    if let Some((_, title)) = own.iter().find(|(forms, _)| forms.contains(c)) {
        out.push(*title);
        return;
    }
    let mut upper = c.to_uppercase();
    out.extend(upper.next());
    out.extend(upper.flat_map(char::to_lowercase));
}

/// `str.capitalize`.
pub(crate) fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let mut out = String::with_capacity(text.len());
    if let Some(first) = chars.next() {
        title_case(first, &mut out);
        out.push_str(&chars.as_str().to_lowercase());
    }
    out
}

fn titled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut cased = false;
    for c in text.chars() {
        if cased {
            out.extend(c.to_lowercase());
        } else {
            title_case(c, &mut out);
        }
        cased = c.is_lowercase() || c.is_uppercase();
    }
    out
}

fn swapped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
    }
    out
}

/// `str.strip` and its two halves.
fn stripped<'a>(text: &'a str, args: &Args, left: bool, right: bool) -> Result<&'a str, Error> {
    let chars = match args.get(0, "chars").map(view) {
        None | Some(View::None) => None,
        Some(View::Str(chars)) => Some(chars),
        Some(_) => return Err(Error::new(Kind::Type, "strip arg must be None or str")),
    };
    Ok(trimmed(text, chars, left, right))
}

/// `text` without `chars`, or without white space, at its ends.
pub(crate) fn trimmed<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let gone = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if left { text.trim_start_matches(gone) } else { text };
    if right { text.trim_end_matches(gone) } else { text }
}

/// What a part of a text takes, its characters aside: where it was found, the value, and what lies before its
/// characters.
const PART_BYTES: usize = size_of::<&str>() + size_of::<Value>() + 32;

fn split(cx: &Context, of: &Value, text: &str, args: &Args, from_right: bool) -> Answer {
    let most = args.get(1, "maxsplit").map(index).transpose()?.unwrap_or(-1);
    let most = usize::try_from(most).unwrap_or(usize::MAX - 1);
    let sep = args.get(0, "sep");
    if let Some(View::Str("")) = sep.map(view) {
        return fail(Kind::Value, "empty separator");
    }
    let count = match sep.and_then(Value::as_str) {
        Some(sep) => text.matches(sep).count(),
        None => text.chars().filter(|c| is_space(*c)).count(),
    };
    cx.charge_each(count.min(most) + 1, PART_BYTES)?;
    let parts: Vec<&str> = match sep.map(view) {
        None | Some(View::None) => split_spaces(text, most, from_right),
        Some(View::Str(sep)) if from_right => {
            let mut parts: Vec<&str> = text.rsplitn(most.saturating_add(1), sep).collect();
            parts.reverse();
            parts
        }
        Some(View::Str(sep)) => text.splitn(most.saturating_add(1), sep).collect(),
        Some(_) => {
            let name = type_name(args.need(0, "sep")?);
            return fail(Kind::Type, format!("must be str or None, not {name}"));
        }
    };
    list(cx, parts.into_iter().map(|part| text_like(cx, of, part)).collect::<Result<_, _>>()?)
}

/// Words between white space; the part that `most` leaves whole keeps the space at its far end.
fn split_spaces(text: &str, most: usize, from_right: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let near = |rest: &'_ str| {
        if from_right {
            rest.trim_end_matches(is_space).len()
        } else {
            rest.trim_start_matches(is_space).len()
        }
    };
    let mut rest = text;
    loop {
        let length = near(rest);
        rest = if from_right { &rest[..length] } else { &rest[rest.len() - length..] };
        if rest.is_empty() {
            break;
        }
        let at = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(at) = at.filter(|_| parts.len() < most) else {
            parts.push(rest);
            break;
        };
        if from_right {
            let width = rest[at..].chars().next().map_or(1, char::len_utf8);
            parts.push(&rest[at + width..]);
            rest = &rest[..at];
        } else {
            parts.push(&rest[..at]);
            rest = &rest[at..];
        }
    }
    if from_right {
        parts.reverse();
    }
    parts
}

/// Whether a line ends with `c`.
pub(crate) fn ends_line(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// `str.splitlines`.
pub(crate) fn lines(text: &str, keep: bool) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends_line) {
        let end = if rest[at..].starts_with("\r\n") {
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        out.push(&rest[..if keep { at + end } else { at }]);
        rest = &rest[at + end..];
    }
    if !rest.is_empty() {
        out.push(rest);
    }
    out
}

/// The part of the text that the arguments `start` and `end` leave, and where it begins in characters.
fn window<'a>(text: &'a str, args: &Args) -> Result<(usize, &'a str), Error> {
    if args.positional.len() < 2 {
        return Ok((0, text));
    }
    let length = text.chars().count() as i128;
    let bound =
        |place: usize, default: i128| match args.positional.get(place).map(|value| (value, view(value))) {
            None | Some((_, View::None)) => Ok(default),
            Some((value, _)) => {
                let at = index(value)?;
                Ok(if at < 0 { at.saturating_add(length).max(0) } else { at })
            }
        };
    let (start, end) = (bound(1, 0)?, bound(2, length)?.min(length));
    if start > end {
        return Ok((usize::MAX, ""));
    }
    let byte = |at: i128| text.char_indices().nth(at as usize).map_or(text.len(), |(at, _)| at);
    Ok((start as usize, &text[byte(start)..byte(end)]))
}

fn affix(text: &str, start: bool, args: &Args) -> Answer {
    let (from, text) = window(text, args)?;
    let has =
        |part: &str| from != usize::MAX && if start { text.starts_with(part) } else { text.ends_with(part) };
    let wanted = args.need(0, "prefix")?;
    match view(wanted) {
        View::Str(part) => Ok(Value::from(has(part))),
        View::Seq(seq) if seq.is_tuple() => {
            let mut found = false;
            for part in &seq.items {
                let View::Str(part) = view(part) else {
                    return fail(Kind::Type, format!("tuple must only contain str, not {}", type_name(part)));
                };
                found |= has(part);
            }
            Ok(Value::from(found))
        }
        _ => {
            let name = type_name(wanted);
            fail(Kind::Type, format!("first arg must be str or a tuple of str, not {name}"))
        }
    }
}

fn find(text: &str, name: &str, args: &Args) -> Answer {
    let part = str_arg(args, 0, "sub")?;
    let (start, window) = window(text, args)?;
    let at = if name.starts_with('r') { window.rfind(part) } else { window.find(part) };
    match at.filter(|_| start != usize::MAX) {
        Some(at) => Ok(Value::from(start + window[..at].chars().count())),
        None if name.ends_with("find") => Ok(Value::Int(-1)),
        None => fail(Kind::Value, "substring not found"),
    }
}

/// `str.replace`; a negative count is all.
pub(crate) fn replaced(cx: &Context, text: &str, old: &str, new: &str, count: i128) -> Result<String, Error> {
    let found = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() };
    let count = usize::try_from(count).unwrap_or(found).min(found);
    cx.charge(text.len() + count.saturating_mul(new.len()))?;
    Ok(text.replacen(old, new, count))
}

/// `sep.join(of)`.
fn join(cx: &Context, sep_value: &Value, sep: &str, of: &Value) -> Answer {
    let mut out = String::new();
    for (at, item) in items(cx, of)?.iter().enumerate() {
        if sep_value.is_safe() {
            let part = str_of(cx, item)?;
            let part = if item.is_safe() { part } else { escaped(cx, &part)? };
            cx.grow(&out, sep.len() + part.len())?;
            out.push_str(if at == 0 { "" } else { sep });
            out.push_str(&part);
            continue;
        }
        let View::Str(part) = view(item) else {
            let name = type_name(item);
            return fail(Kind::Type, format!("sequence item {at}: expected str instance, {name} found"));
        };
        cx.grow(&out, sep.len() + part.len())?;
        out.push_str(if at == 0 { "" } else { sep });
        out.push_str(part);
    }
    text_like(cx, sep_value, out)
}

/// The text of `value` as it goes into `of`: escaped, if that is markup and this is not.
fn like<'a>(cx: &Context, of: &Value, value: &Value, text: &'a str) -> Result<Cow<'a, str>, Error> {
    if of.is_safe() && !value.is_safe() { escaped(cx, text).map(Cow::Owned) } else { Ok(Cow::Borrowed(text)) }
}

/// The only character of a text.
fn single(text: &str) -> Option<char> {
    let mut all = text.chars();
    all.next().filter(|_| all.next().is_none())
}

fn partition(cx: &Context, of: &Value, text: &str, first: bool, sep: &str) -> Answer {
    if sep.is_empty() {
        return fail(Kind::Value, "empty separator");
    }
    let parts = match if first { text.split_once(sep) } else { text.rsplit_once(sep) } {
        Some((before, after)) => [before, sep, after],
        None if first => [text, "", ""],
        None => ["", "", text],
    };
    tuple(cx, parts.into_iter().map(|part| text_like(cx, of, part)).collect::<Result<_, _>>()?)
}

fn justified(cx: &Context, of: &Value, text: &str, name: &str, args: &Args) -> Result<String, Error> {
    let width = size(args.need(0, "width")?)?;
    let fill = match args.get(1, "fillchar") {
        None => ' ',
        Some(fill) => match single(&like(cx, of, fill, str_arg(args, 1, "fillchar")?)?) {
            Some(fill) => fill,
            None => {
                return Err(Error::new(Kind::Type, "The fill character must be exactly one character long"));
            }
        },
    };
    let length = text.chars().count();
    let missing = width.saturating_sub(length);
    cx.charge(missing.saturating_mul(4))?;
    let left = match name {
        "ljust" => 0,
        "rjust" => missing,
        _ => missing / 2 + (missing & width & 1),
    };
    let filled = |count: usize| std::iter::repeat_n(fill, count).collect::<String>();
    Ok(format!("{}{text}{}", filled(left), filled(missing - left)))
}

/// `str.center`.
pub(crate) fn centered(cx: &Context, text: &str, width: &Value) -> Result<String, Error> {
    let args = Args { positional: std::slice::from_ref(width), named: Vec::new() };
    justified(cx, &Value::Undefined, text, "center", &args)
}

fn zero_filled(cx: &Context, text: &str, width: usize) -> Result<String, Error> {
    let missing = width.saturating_sub(text.chars().count());
    cx.charge(missing)?;
    let sign = usize::from(text.starts_with(['+', '-']));
    Ok(format!("{}{}{}", &text[..sign], "0".repeat(missing), &text[sign..]))
}

fn expanded(cx: &Context, text: &str, size: i128) -> Result<String, Error> {
    let mut out = String::new();
    let mut column = 0;
    for c in text.chars() {
        if c == '\t' {
            if size > 0 {
                let missing = size - column % size;
                cx.grow(&out, usize::try_from(missing).unwrap_or(usize::MAX))?;
                out.extend(std::iter::repeat_n(' ', missing as usize));
                column += missing;
            }
        } else {
            out.push(c);
            column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
        }
    }
    Ok(out)
}
