//! `'%s' % x`, `'{}'.format(x)` and the format mini-language.

use std::borrow::Cow;

use super::super::context::Context;
use super::super::error::{Error, Kind};
use super::big::Whole;
use super::number::float_text;
use super::text::{ascii_of, escaped, repr_of, str_of};
use super::value::{Args, SeqKind, Value, View, defined, type_name, view};

/// How one value is laid out.
#[derive(Clone, Debug, Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: usize,
    comma: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

fn wrong<T>(kind: Kind, message: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(kind, message))
}

/// `pattern % args`; `whole` is what stood right of the sign. Texts are escaped if the pattern is `markup`.
pub(crate) fn percent(
    cx: &Context,
    pattern: &str,
    args: &[Value],
    whole: &Value,
    markup: bool,
) -> Result<String, Error> {
    let mut out = String::new();
    let mut next = args.iter();
    let mut used_mapping = false;
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        cx.charge(at)?;
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let mut named = None;
        if let Some(inner) = rest.strip_prefix('(') {
            let Some(end) = inner.find(')') else { return wrong(Kind::Value, "incomplete format key") };
            let View::Dict(dict) = view(whole) else { return wrong(Kind::Type, "format requires a mapping") };
            let key = &inner[..end];
            let Some(value) = dict.get_str(key) else { return wrong(Kind::Key, format!("'{key}'")) };
            named = Some(value.clone());
            used_mapping = true;
            rest = &inner[end + 1..];
        }
        let mut spec = Spec::default();
        rest = percent_spec(rest, &mut spec, &mut next)?;
        let Some(kind) = rest.chars().next() else { return wrong(Kind::Value, "incomplete format") };
        rest = &rest[kind.len_utf8()..];
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = match named {
            Some(value) => value,
            None => match next.next() {
                Some(value) => value.clone(),
                None => return wrong(Kind::Type, "not enough arguments for format string"),
            },
        };
        let part = percent_one(cx, &value, kind, spec, markup)?;
        cx.grow(&out, part.len())?;
        out.push_str(&part);
    }
    cx.charge(rest.len())?;
    out.push_str(rest);
    let leftover = next.next().is_some();
    if leftover && !used_mapping && !is_mapping(whole) {
        return wrong(Kind::Type, "not all arguments converted during string formatting");
    }
    Ok(out)
}

/// Whether Python takes a value for a mapping here: whatever can be subscripted, a tuple and a text excepted.
fn is_mapping(value: &Value) -> bool {
    match view(value) {
        View::Seq(seq) => matches!(seq.kind, SeqKind::List | SeqKind::Range(..)),
        View::Dict(_) | View::Bytes(_) | View::Undefined | View::Forbidden(_) => true,
        _ => false,
    }
}

/// `text` as markup has it.
fn for_markup(cx: &Context, text: String, markup: bool) -> Result<String, Error> {
    if markup { escaped(cx, &text) } else { Ok(text) }
}

fn percent_spec<'a, 'v>(
    mut rest: &'a str,
    spec: &mut Spec,
    next: &mut impl Iterator<Item = &'v Value>,
) -> Result<&'a str, Error> {
    while let Some(flag) = rest.chars().next().filter(|c| "#0- +".contains(*c)) {
        match flag {
            '#' => spec.alternate = true,
            '0' => spec.zero = true,
            '-' => spec.align = Some('<'),
            ' ' if spec.sign.is_none() => spec.sign = Some(' '),
            '+' => spec.sign = Some('+'),
            _ => (),
        }
        rest = &rest[1..];
    }
    rest = percent_number(rest, next, &mut |width| spec.width = width)?;
    if let Some(after) = rest.strip_prefix('.') {
        let mut precision = 0;
        rest = percent_number(after, next, &mut |found| precision = found)?;
        spec.precision = Some(precision);
    }
    Ok(rest.trim_start_matches(['l', 'h', 'L']))
}

fn percent_number<'a, 'v>(
    rest: &'a str,
    next: &mut impl Iterator<Item = &'v Value>,
    found: &mut dyn FnMut(usize),
) -> Result<&'a str, Error> {
    if let Some(after) = rest.strip_prefix('*') {
        return match next.next().map(view) {
            Some(View::Huge(_)) => wrong(Kind::Overflow, "Python int too large to convert to C ssize_t"),
            Some(View::Int(width)) => {
                let Some(width) = usize::try_from(width.max(0)).ok().filter(|width| *width < 1 << 31) else {
                    return wrong(Kind::Overflow, "Python int too large to convert to C int");
                };
                found(width);
                Ok(after)
            }
            _ => wrong(Kind::Type, "* wants int"),
        };
    }
    let (number, after) = digits(rest)?;
    if let Some(number) = number {
        found(number);
    }
    Ok(after)
}

fn digits(text: &str) -> Result<(Option<usize>, &str), Error> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 {
        return Ok((None, text));
    }
    match text[..end].parse::<usize>().ok().filter(|number| *number < 1 << 31) {
        Some(number) => Ok((Some(number), &text[end..])),
        None => wrong(Kind::Value, "Too many decimal digits in format string"),
    }
}

fn percent_one(
    cx: &Context,
    value: &Value,
    kind: char,
    mut spec: Spec,
    markup: bool,
) -> Result<String, Error> {
    let aligned = spec.align.is_some();
    spec.align = spec.align.or(Some('>'));
    match kind {
        's' | 'r' | 'a' => {
            let text = match kind {
                's' => str_of(cx, value)?,
                'r' => repr_of(cx, value)?,
                _ => ascii_of(cx, value)?,
            };
            let text = for_markup(cx, text, markup && !(kind == 's' && value.is_safe()))?;
            spec.zero = false;
            pad(cx, &cut(text, spec.precision), "", &spec)
        }
        'c' => match view(value) {
            View::Str(text) if text.chars().count() == 1 && !markup => pad(cx, text, "", &spec),
            View::Int(_) | View::Huge(_) if !markup => match whole(value).and_then(|code| code.character()) {
                Some(c) => pad(cx, &c.to_string(), "", &spec),
                None => wrong(Kind::Overflow, "%c arg not in range(0x110000)"),
            },
            _ => wrong(Kind::Type, "%c requires int or char"),
        },
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => {
            let number = match (whole(value), view(value)) {
                (Some(number), _) => number,
                (None, View::Float(float)) if float.is_finite() && "diu".contains(kind) => {
                    Whole::from_float(float)
                }
                _ => {
                    defined(value)?;
                    let wanted = if "diu".contains(kind) { "a real number" } else { "an integer" };
                    let name = type_name(value);
                    return wrong(Kind::Type, format!("%{kind} format: {wanted} is required, not {name}"));
                }
            };
            spec.zero &= !aligned;
            if spec.precision.is_some() {
                let digits = number.digits(radix(kind))?;
                let digits = if kind == 'X' { digits.to_uppercase() } else { digits };
                let least = spec.precision.take().unwrap_or(0);
                cx.charge(least)?;
                let sign =
                    sign_of(number.is_negative(), &spec) + if spec.alternate { prefix(kind) } else { "" };
                return pad(
                    cx,
                    &format!("{}{digits}", "0".repeat(least.saturating_sub(digits.len()))),
                    &sign,
                    &spec,
                );
            }
            spec.kind = Some(if "iu".contains(kind) { 'd' } else { kind });
            whole_number(cx, &number, &spec)
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            let float = match (whole(value), view(value)) {
                (Some(number), _) => number.to_float()?,
                (None, View::Float(float)) => float,
                _ => {
                    defined(value)?;
                    return wrong(Kind::Type, format!("must be real number, not {}", type_name(value)));
                }
            };
            spec.zero &= !aligned;
            spec.kind = Some(kind);
            floating(cx, float, &spec)
        }
        _ => wrong(Kind::Value, format!("unsupported format character '{kind}'")),
    }
}

fn cut(text: String, precision: Option<usize>) -> String {
    match precision {
        Some(precision) => text.chars().take(precision).collect(),
        None => text,
    }
}

/// Fills up to the width; `sign` stays in front of zeros.
fn pad(cx: &Context, body: &str, sign: &str, spec: &Spec) -> Result<String, Error> {
    let length = body.chars().count() + sign.len();
    let missing = spec.width.saturating_sub(length);
    cx.charge(missing.saturating_mul(4) + body.len())?;
    if missing == 0 {
        return Ok(format!("{sign}{body}"));
    }
    if spec.zero && spec.align.is_none_or(|align| align == '>' && spec.fill.is_none()) {
        return Ok(format!("{sign}{}{body}", "0".repeat(missing)));
    }
    let fill = spec.fill.unwrap_or(if spec.zero { '0' } else { ' ' });
    let filled = |count: usize| std::iter::repeat_n(fill, count).collect::<String>();
    Ok(match spec.align {
        Some('=') => format!("{sign}{}{body}", filled(missing)),
        Some('^') => format!("{}{sign}{body}{}", filled(missing / 2), filled(missing - missing / 2)),
        Some('>') => format!("{}{sign}{body}", filled(missing)),
        _ => format!("{sign}{body}{}", filled(missing)),
    })
}

fn sign_of(negative: bool, spec: &Spec) -> String {
    match spec.sign {
        _ if negative => "-".into(),
        Some(sign @ ('+' | ' ')) => sign.into(),
        _ => String::new(),
    }
}

fn grouped(digits: &str, mark: char, every: usize) -> String {
    let length = digits.len();
    let mut out = String::with_capacity(length * 2);
    for (at, c) in digits.chars().enumerate() {
        if at > 0 && (length - at) % every == 0 {
            out.push(mark);
        }
        out.push(c);
    }
    out
}

/// A value as a whole number, if it is one.
fn whole(value: &Value) -> Option<Whole<'_>> {
    match view(value) {
        View::Int(int) => Some(Whole::Small(int)),
        View::Bool(bool) => Some(Whole::Small(bool.into())),
        View::Huge(huge) => Some(Whole::Big(Cow::Borrowed(huge))),
        _ => None,
    }
}

/// The radix of a conversion.
fn radix(kind: char) -> u32 {
    match kind {
        'x' | 'X' => 16,
        'o' => 8,
        'b' => 2,
        _ => 10,
    }
}

/// The prefix of an alternate form.
fn prefix(kind: char) -> &'static str {
    match kind {
        'x' => "0x",
        'X' => "0X",
        'o' => "0o",
        'b' => "0b",
        _ => "",
    }
}

fn whole_number(cx: &Context, value: &Whole, spec: &Spec) -> Result<String, Error> {
    let kind = spec.kind.unwrap_or('d');
    let digits = value.digits(radix(kind))?;
    let digits = if kind == 'X' { digits.to_uppercase() } else { digits };
    let digits = match spec.comma {
        Some(mark) => grouped(&digits, mark, if radix(kind) == 10 { 3 } else { 4 }),
        None => digits,
    };
    let sign = sign_of(value.is_negative(), spec) + if spec.alternate { prefix(kind) } else { "" };
    let spec = Spec { align: spec.align.or(if spec.zero { None } else { Some('>') }), ..spec.clone() };
    pad(cx, &digits, &sign, &spec)
}

fn floating(cx: &Context, value: f64, spec: &Spec) -> Result<String, Error> {
    cx.charge(spec.precision.unwrap_or(0).min(1 << 20) + 400)?;
    if spec.precision.unwrap_or(0) > 1 << 20 {
        return wrong(Kind::Limit, "a precision of more than a million digits");
    }
    let sign = sign_of(value.is_sign_negative() && !value.is_nan(), spec);
    let size = value.abs();
    let kind = spec.kind.unwrap_or('g');
    let percent = kind == '%';
    let body = if value.is_nan() {
        "nan".to_string()
    } else if value.is_infinite() {
        "inf".to_string()
    } else {
        match kind.to_ascii_lowercase() {
            'f' => fixed(size, spec.precision.unwrap_or(6)),
            '%' => fixed(size * 100.0, spec.precision.unwrap_or(6)),
            'e' => exponential(size, spec.precision.unwrap_or(6)),
            'r' => float_text(cx, size),
            _ => general(size, spec.precision.unwrap_or(6).max(1), spec.alternate),
        }
    };
    let body = match spec.comma {
        Some(mark) => {
            let end = body.find(|c: char| !c.is_ascii_digit()).unwrap_or(body.len());
            grouped(&body[..end], mark, 3) + &body[end..]
        }
        None => body,
    };
    let body = if kind.is_ascii_uppercase() { body.to_ascii_uppercase() } else { body };
    let body = if percent { body + "%" } else { body };
    let spec = Spec { align: spec.align.or(if spec.zero { None } else { Some('>') }), ..spec.clone() };
    pad(cx, &body, &sign, &spec)
}

/// A double has no more digits than this after the point, and what follows is zeros.
const MOST_DIGITS: usize = 1100;

fn fixed(value: f64, precision: usize) -> String {
    let digits = precision.min(MOST_DIGITS);
    format!("{value:.digits$}") + &"0".repeat(precision - digits)
}

fn exponential(value: f64, precision: usize) -> String {
    let shown = precision.min(MOST_DIGITS);
    let text = format!("{value:.shown$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let zeros = "0".repeat(precision - shown);
    format!("{digits}{zeros}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn general(value: f64, precision: usize, alternate: bool) -> String {
    let scientific = exponential(value, precision - 1);
    let exponent: i32 = scientific.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let trim = |text: &str| -> String {
        if alternate || !text.contains('.') {
            return text.to_string();
        }
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    };
    if exponent < -4 || exponent >= precision as i32 {
        let (digits, tail) = scientific.split_once('e').unwrap_or((&scientific, "+00"));
        return format!("{}e{tail}", trim(digits));
    }
    trim(&fixed(value, (precision as i32 - 1 - exponent).max(0) as usize))
}

/// `format(value, spec)`.
fn formatted(cx: &Context, value: &Value, spec: &str) -> Result<String, Error> {
    if spec.is_empty() {
        return str_of(cx, value);
    }
    match view(value) {
        View::Str(text) => {
            let spec = parse(spec, "str")?;
            if spec.kind.is_some_and(|kind| kind != 's') {
                return unknown(spec.kind, "str");
            }
            if spec.sign.is_some() {
                return wrong(Kind::Value, "Sign not allowed in string format specifier");
            }
            if spec.align == Some('=') {
                return wrong(Kind::Value, "'=' alignment not allowed in string format specifier");
            }
            let fill = spec.fill.or(spec.zero.then_some('0'));
            let text = cut(text.to_string(), spec.precision);
            pad(cx, &text, "", &Spec { align: spec.align.or(Some('<')), fill, zero: false, ..spec })
        }
        View::Int(int) => format_int(cx, &Whole::Small(int), spec),
        View::Huge(huge) => format_int(cx, &Whole::Big(Cow::Borrowed(huge)), spec),
        View::Bool(bool) => format_int(cx, &Whole::Small(bool.into()), spec),
        View::Float(float) => format_float(cx, float, &parse(spec, "float")?, "float"),
        View::Undefined => wrong(Kind::Type, "unsupported format string passed to Undefined.__format__"),
        View::Forbidden(forbidden) => Err(super::value::forbidden(forbidden)),
        _ => {
            wrong(Kind::Type, format!("unsupported format string passed to {}.__format__", type_name(value)))
        }
    }
}

fn format_int(cx: &Context, value: &Whole, spec: &str) -> Result<String, Error> {
    let spec = parse(spec, "int")?;
    match spec.kind {
        Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => format_float(cx, value.to_float()?, &spec, "int"),
        _ if spec.precision.is_some() => {
            wrong(Kind::Value, "Precision not allowed in integer format specifier")
        }
        None | Some('d' | 'x' | 'X' | 'o' | 'b' | 'n') => whole_number(cx, value, &spec),
        Some('c') => match value.character() {
            Some(c) => pad(cx, &c.to_string(), "", &spec),
            None => wrong(Kind::Overflow, "%c arg not in range(0x110000)"),
        },
        kind => unknown(kind, "int"),
    }
}

fn format_float(cx: &Context, value: f64, spec: &Spec, of: &str) -> Result<String, Error> {
    match spec.kind {
        None if spec.precision.is_none() => floating(cx, value, &Spec { kind: Some('r'), ..spec.clone() }),
        None => {
            // As `g`, but with a digit after the point.
            let precision = spec.precision.unwrap_or(6).max(1);
            let text = general(value.abs(), precision, false);
            let text = if text.contains(['.', 'e']) || !value.is_finite() { text } else { text + ".0" };
            let sign = sign_of(value.is_sign_negative(), spec);
            pad(cx, &text, &sign, &Spec { align: spec.align.or(Some('>')), ..spec.clone() })
        }
        Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => floating(cx, value, spec),
        Some('n') => floating(cx, value, &Spec { kind: Some('g'), ..spec.clone() }),
        kind => unknown(kind, of),
    }
}

fn unknown<T>(kind: Option<char>, of: &str) -> Result<T, Error> {
    wrong(Kind::Value, format!("Unknown format code '{}' for object of type '{of}'", kind.unwrap_or(' ')))
}

/// `[[fill]align][sign][z][#][0][width][grouping][.precision][type]`.
fn parse(text: &str, of: &str) -> Result<Spec, Error> {
    let mut spec = Spec::default();
    let mut rest = text;
    let mut chars = text.chars();
    let (first, second) = (chars.next(), chars.next());
    if let (Some(fill), Some(align @ ('<' | '>' | '^' | '='))) = (first, second) {
        (spec.fill, spec.align) = (Some(fill), Some(align));
        rest = &rest[fill.len_utf8() + 1..];
    } else if let Some(align @ ('<' | '>' | '^' | '=')) = first {
        spec.align = Some(align);
        rest = &rest[1..];
    }
    if let Some(sign) = rest.chars().next().filter(|c| "+- ".contains(*c)) {
        spec.sign = Some(sign);
        rest = &rest[1..];
    }
    for (mark, flag) in [('z', None), ('#', Some(&mut spec.alternate)), ('0', Some(&mut spec.zero))] {
        if let Some(after) = rest.strip_prefix(mark) {
            rest = after;
            if let Some(flag) = flag {
                *flag = true;
            }
        }
    }
    let (width, after) = digits(rest)?;
    spec.width = width.unwrap_or(0);
    rest = after;
    if let Some(mark) = rest.chars().next().filter(|c| ",_".contains(*c)) {
        spec.comma = Some(mark);
        rest = &rest[1..];
    }
    if let Some(after) = rest.strip_prefix('.') {
        let (precision, after) = digits(after)?;
        let Some(precision) = precision else {
            return wrong(Kind::Value, "Format specifier missing precision");
        };
        spec.precision = Some(precision);
        rest = after;
    }
    let mut chars = rest.chars();
    spec.kind = chars.next();
    if chars.next().is_some() {
        let message = format!("Invalid format specifier '{text}' for object of type '{of}'");
        return wrong(Kind::Value, message);
    }
    Ok(spec)
}

/// `pattern.format(*args)`. What is filled in is escaped if the pattern is `markup`.
pub(crate) fn braces(cx: &Context, pattern: &str, args: &Args, markup: bool) -> Result<String, Error> {
    let mut fields = Fields { args, next: 0, markup };
    fields.fill(cx, pattern, 0)
}

struct Fields<'a> {
    args: &'a Args<'a>,
    next: usize,
    markup: bool,
}

impl Fields<'_> {
    fn fill(&mut self, cx: &Context, pattern: &str, depth: usize) -> Result<String, Error> {
        if depth > 2 {
            return wrong(Kind::Value, "Max string recursion exceeded");
        }
        let mut out = String::new();
        let mut rest = pattern;
        while let Some(at) = rest.find(['{', '}']) {
            cx.charge(at)?;
            out.push_str(&rest[..at]);
            let mark = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(mark) {
                out.push_str(mark);
                rest = after;
                continue;
            }
            if mark == "}" {
                return wrong(Kind::Value, "Single '}' encountered in format string");
            }
            let Some(end) = closing(rest) else {
                let message = if rest.is_empty() {
                    "Single '{' encountered in format string"
                } else {
                    "expected '}' before end of string"
                };
                return wrong(Kind::Value, message);
            };
            let part = self.field(cx, &rest[..end], depth)?;
            cx.grow(&out, part.len())?;
            out.push_str(&part);
            rest = &rest[end + 1..];
        }
        cx.charge(rest.len())?;
        out.push_str(rest);
        Ok(out)
    }

    fn field(&mut self, cx: &Context, field: &str, depth: usize) -> Result<String, Error> {
        let bang = field.find(['!', ':']).unwrap_or(field.len());
        let (name, mut rest) = field.split_at(bang);
        let mut conversion = None;
        if let Some(after) = rest.strip_prefix('!') {
            conversion = after.chars().next();
            rest = &after[conversion.map_or(0, char::len_utf8)..];
            if !rest.is_empty() && !rest.starts_with(':') {
                return wrong(Kind::Value, "expected ':' after conversion specifier");
            }
        }
        let value = self.value(cx, name)?;
        let spec = self.fill(cx, rest.strip_prefix(':').unwrap_or(""), depth + 1)?;
        let value = match conversion {
            None => value,
            Some('r') => Value::from(repr_of(cx, &value)?),
            Some('a') => Value::from(ascii_of(cx, &value)?),
            Some('s') => Value::from(str_of(cx, &value)?),
            Some(c) => return wrong(Kind::Value, format!("Unknown conversion specifier '{c}'")),
        };
        if !self.markup || depth > 0 {
            return formatted(cx, &value, &spec);
        }
        if value.is_safe() && !spec.is_empty() {
            return wrong(Kind::Value, "Unsupported format specification for Markup.");
        }
        for_markup(cx, formatted(cx, &value, &spec)?, !value.is_safe())
    }

    fn value(&mut self, cx: &Context, name: &str) -> Result<Value, Error> {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut path) = name.split_at(end);
        let mut value = if first.is_empty() || first.bytes().all(|byte| byte.is_ascii_digit()) {
            let at = if first.is_empty() { self.next } else { first.parse().unwrap_or(usize::MAX) };
            self.next += usize::from(first.is_empty());
            let Some(value) = self.args.positional.get(at) else {
                let message = format!("Replacement index {at} out of range for positional args tuple");
                return wrong(Kind::Index, message);
            };
            value.clone()
        } else {
            match self.args.named(first) {
                Some(value) => value.clone(),
                None => return wrong(Kind::Key, format!("'{first}'")),
            }
        };
        while !path.is_empty() {
            if let Some(after) = path.strip_prefix('[') {
                let Some(end) = after.find(']') else {
                    return wrong(Kind::Value, "Missing ']' in format string");
                };
                let key = &after[..end];
                let key = key.parse::<i64>().map_or_else(|_| Value::from(key), Value::from);
                value = super::methods::item(cx, &value, &key)?;
                path = &after[end + 1..];
            } else {
                let after = &path[1..];
                let end = after.find(['.', '[']).unwrap_or(after.len());
                value = super::methods::attribute(cx, &value, &after[..end])?;
                path = &after[end..];
            }
        }
        Ok(value)
    }
}

/// Where the field ends that has just begun.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' if open == 0 => return Some(at),
            b'}' => open -= 1,
            _ => (),
        }
    }
    None
}
