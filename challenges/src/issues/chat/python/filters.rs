//! Jinja's filters, and `tojson` as transformers has it.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt::Write;

use minijinja::Value;

use super::super::error::{Error, Kind};
use super::super::limits::charge;
use super::compare::{equal, order};
use super::json::{Layout, dumps};
use super::methods::{attribute, item, pairs};
use super::number::{parse_float, parse_int, rounded};
use super::operators;
use super::strings;
use super::text::{escaped, is_space, repr_of, str_of};
use super::value::{
    Answer, Args, SeqKind, View, defined, dict, index, int, items, iterable, list, raise, stream, text,
    text_like, tuple, type_name, view,
};

/// A filter of a value and its arguments.
pub(crate) type Filter = fn(&Value, &Args) -> Answer;

/// The names that a template may write after `|`.
pub(crate) const NAMES: [&str; 54] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "random",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "striptags",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap",
    "xmlattr",
];

/// The filter `name`.
pub(crate) fn find(name: &str) -> Option<Filter> {
    Some(match name {
        "abs" => |value, _| abs(value),
        "attr" => |value, args| attr(value, args.need(0, "name")?),
        "batch" => batch,
        "capitalize" => |value, _| on_text(value, |text| Ok(strings::capitalized(text))),
        "center" => |value, args| {
            let width = args.get(0, "width").cloned().unwrap_or_else(|| Value::from(80));
            on_text(value, |text| strings::centered(text, &width))
        },
        "count" | "length" => |value, _| Ok(Value::from(length(value)?)),
        "d" | "default" => |value, args| Ok(default(value, args)),
        "dictsort" => dictsort,
        "e" | "escape" => |value, _| {
            if value.is_safe() {
                Ok(value.clone())
            } else {
                Ok(Value::from_safe_string(escaped(&str_of(value)?)?))
            }
        },
        "forceescape" => |value, _| Ok(Value::from_safe_string(escaped(&str_of(value)?)?)),
        "filesizeformat" => filesizeformat,
        "first" => |value, _| Ok(items(value)?.into_iter().next().unwrap_or_default()),
        "last" => |value, _| Ok(reversed(value)?.into_iter().next().unwrap_or_default()),
        "float" => float,
        "format" => format,
        "groupby" => groupby,
        "indent" => indent,
        "int" => whole,
        "items" => |value, _| match view(value) {
            View::Undefined | View::Forbidden(_) => stream(Vec::new()),
            View::Dict(of) => stream(items(&pairs(of)?)?),
            _ => Err(raise(Kind::Type, "Can only get item pairs from a mapping.")),
        },
        "join" => join,
        "list" => |value, _| list(items(value)?),
        "lower" => |value, _| on_text(value, |text| Ok(text.to_lowercase())),
        "upper" => |value, _| on_text(value, |text| Ok(text.to_uppercase())),
        "map" => map,
        "max" => |value, args| extreme(value, args, Ordering::Greater),
        "min" => |value, args| extreme(value, args, Ordering::Less),
        "pprint" => |value, _| text(pprint(value)?),
        "random" => |value, _| random(value),
        "reject" => |value, args| select(value, args, false, false),
        "rejectattr" => |value, args| select(value, args, false, true),
        "select" => |value, args| select(value, args, true, false),
        "selectattr" => |value, args| select(value, args, true, true),
        "replace" => replace,
        "reverse" => |value, _| reverse(value),
        "round" => round,
        "safe" => |value, _| Ok(Value::from_safe_string(str_of(value)?)),
        "slice" => slice,
        "sort" => sort,
        "string" => |value, _| if value.is_safe() { Ok(value.clone()) } else { text(str_of(value)?) },
        "striptags" => |value, _| text(striptags(&str_of(value)?)),
        "sum" => sum,
        "title" => |value, _| on_text(value, |text| Ok(titled(text))),
        "tojson" => tojson,
        "trim" => |value, args| {
            let chars = match args.get(0, "chars").filter(|chars| !chars.is_none()) {
                Some(chars) => Some(str_of(chars)?),
                None => None,
            };
            on_text(value, |text| Ok(strings::trimmed(text, chars.as_deref(), true, true).to_string()))
        },
        "truncate" => truncate,
        "unique" => unique,
        "urlencode" => |value, _| urlencode(value),
        "urlize" => |_, _| Err(raise(Kind::Unsupported, "the filter urlize")),
        "wordcount" => |value, _| {
            let text = str_of(value)?;
            let words =
                text.split(|c: char| c != '_' && !c.is_alphanumeric()).filter(|word| !word.is_empty());
            Ok(Value::from(words.count()))
        },
        "wordwrap" => |_, _| Err(raise(Kind::Unsupported, "the filter wordwrap")),
        "xmlattr" => |value, args| xmlattr(value, args.get(0, "autospace").is_none_or(Value::is_true)),
        _ => return None,
    })
}

fn fail<T>(kind: Kind, message: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(kind, message))
}

/// The result of `work` on the value's text; markup stays markup.
fn on_text(value: &Value, work: impl FnOnce(&str) -> Result<String, Error>) -> Answer {
    if let View::Str(text) = view(value) {
        return text_like(value, work(text)?);
    }
    text(work(&str_of(value)?)?)
}

fn flag(args: &Args, place: usize, name: &str) -> bool {
    args.get(place, name).is_some_and(Value::is_true)
}

/// `len(value)`.
pub(crate) fn length(value: &Value) -> Result<usize, Error> {
    Ok(match view(value) {
        View::Undefined | View::Forbidden(_) => 0,
        View::Str(text) => text.chars().count(),
        View::Bytes(bytes) => bytes.len(),
        View::Seq(seq) => seq.items.len(),
        View::Dict(dict) => dict.entries.len(),
        _ => return fail(Kind::Type, format!("object of type '{}' has no len()", type_name(value))),
    })
}

fn abs(value: &Value) -> Answer {
    match view(value) {
        View::Bool(bool) => Ok(Value::from(i64::from(bool))),
        View::Int(whole) => Ok(int(whole.saturating_abs())),
        View::Float(float) => Ok(Value::from(float.abs())),
        _ => Err(raise(Kind::Type, format!("bad operand type for abs(): '{}'", type_name(value)))),
    }
}

/// An attribute that is no item.
fn attr(value: &Value, name: &Value) -> Answer {
    defined(value)?;
    let name = str_of(name)?;
    let found = attribute(value, &name)?;
    let is_item =
        matches!(view(value), View::Dict(of) if of.get_str(&name).is_some_and(|item| equal(item, &found)));
    Ok(if is_item { Value::UNDEFINED } else { found })
}

fn count_arg(args: &Args, name: &str) -> Result<usize, Error> {
    let count = index(args.need(0, name)?)?;
    Ok(usize::try_from(count.max(0)).unwrap_or(usize::MAX))
}

fn batch(value: &Value, args: &Args) -> Answer {
    let size = count_arg(args, "linecount")?;
    let fill = args.get(1, "fill_with").filter(|fill| !fill.is_none());
    let mut batches = Vec::new();
    let mut batch = Vec::new();
    for item in items(value)? {
        if batch.len() == size {
            batches.push(list(std::mem::take(&mut batch))?);
        }
        batch.push(item);
    }
    if !batch.is_empty() {
        if let Some(fill) = fill {
            let missing = size.saturating_sub(batch.len());
            charge(missing.saturating_mul(size_of::<Value>()))?;
            batch.extend((0..missing).map(|_| fill.clone()));
        }
        batches.push(list(batch)?);
    }
    stream(batches)
}

fn slice(value: &Value, args: &Args) -> Answer {
    let count = count_arg(args, "slices")?;
    let fill = args.get(1, "fill_with").filter(|fill| !fill.is_none());
    let all = items(value)?;
    if count == 0 {
        return Err(raise(Kind::ZeroDivision, "integer division or modulo by zero"));
    }
    charge(count.saturating_mul(size_of::<Value>() + 64))?;
    let (each, extra) = (all.len() / count, all.len() % count);
    let mut slices = Vec::new();
    let mut from = 0;
    for at in 0..count {
        let size = each + usize::from(at < extra);
        let mut part = all[from..from + size].to_vec();
        from += size;
        part.extend(fill.filter(|_| at >= extra).cloned());
        slices.push(list(part)?);
    }
    stream(slices)
}

fn default(value: &Value, args: &Args) -> Value {
    let missing = matches!(view(value), View::Undefined | View::Forbidden(_));
    if missing || (flag(args, 1, "boolean") && !value.is_true()) {
        return args.get(0, "default_value").cloned().unwrap_or_else(|| Value::from(""));
    }
    value.clone()
}

/// What a sort without case compares.
fn folded(value: &Value, case_sensitive: bool) -> Result<Value, Error> {
    match view(value) {
        View::Str(text) if !case_sensitive => {
            charge(text.len())?;
            Ok(Value::from(text.to_lowercase()))
        }
        _ => Ok(value.clone()),
    }
}

/// Sorts by keys, stably; `reverse` keeps equal ones in order too.
fn sorted(mut keyed: Vec<(Value, Value)>, reverse: bool) -> Result<Vec<(Value, Value)>, Error> {
    let mut failed = None;
    charge(keyed.len().saturating_mul(32))?;
    keyed.sort_by(|(left, _), (right, _)| {
        let found = if failed.is_some() { Ok(Ordering::Equal) } else { order(left, right) };
        let found = found.unwrap_or_else(|error| {
            failed = Some(error);
            Ordering::Equal
        });
        if reverse { found.reverse() } else { found }
    });
    failed.map_or(Ok(keyed), Err)
}

fn dictsort(value: &Value, args: &Args) -> Answer {
    defined(value)?;
    let by = match args.get(1, "by").map(str_of).transpose()?.as_deref() {
        None | Some("key") => 0,
        Some("value") => 1,
        Some(_) => {
            return Err(raise(Kind::FilterArgument, "You can only sort by either \"key\" or \"value\""));
        }
    };
    let View::Dict(of) = view(value) else {
        let name = type_name(value);
        return Err(raise(Kind::Attribute, format!("'{name}' object has no attribute 'items'")));
    };
    let case_sensitive = flag(args, 0, "case_sensitive");
    let mut keyed = Vec::new();
    for (key, value) in &of.entries {
        let sort_by = folded(if by == 0 { key } else { value }, case_sensitive)?;
        keyed.push((sort_by, tuple(vec![key.clone(), value.clone()])?));
    }
    let sorted = sorted(keyed, flag(args, 2, "reverse"))?;
    list(sorted.into_iter().map(|(_, pair)| pair).collect())
}

fn filesizeformat(value: &Value, args: &Args) -> Answer {
    let bytes = to_float(value)?;
    let binary = flag(args, 0, "binary");
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    if matches!(bytes, 1.0) {
        return Ok(Value::from("1 Byte"));
    }
    if bytes < base {
        return text(format!("{} Bytes", bytes.trunc() as i128));
    }
    let names = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
    let mut unit = base;
    for (at, name) in names.iter().enumerate() {
        unit *= base;
        if bytes < unit || at + 1 == names.len() {
            let name = if binary { format!("{}iB", name.to_uppercase()) } else { format!("{name}B") };
            return text(format!("{:.1} {name}", base * bytes / unit));
        }
    }
    Ok(Value::UNDEFINED)
}

/// `float(value)`.
fn to_float(value: &Value) -> Result<f64, Error> {
    match view(value) {
        View::Bool(bool) => Ok(f64::from(u8::from(bool))),
        View::Int(int) => Ok(int as f64),
        View::Float(float) => Ok(float),
        View::Str(text) => match parse_float(text) {
            Some(float) => Ok(float),
            None => fail(Kind::Value, format!("could not convert string to float: {}", repr_of(value)?)),
        },
        _ => {
            defined(value)?;
            let name = type_name(value);
            fail(Kind::Type, format!("float() argument must be a string or a real number, not '{name}'"))
        }
    }
}

fn float(value: &Value, args: &Args) -> Answer {
    defined(value)?;
    match to_float(value) {
        Ok(float) => Ok(Value::from(float)),
        Err(_) => Ok(args.get(0, "default").cloned().unwrap_or_else(|| Value::from(0.0))),
    }
}

fn whole(value: &Value, args: &Args) -> Answer {
    defined(value)?;
    let base = args.get(1, "base").map_or(Ok(10), index)?;
    let default = || Ok(args.get(0, "default").cloned().unwrap_or_else(|| Value::from(0)));
    match view(value) {
        View::Int(_) => return Ok(value.clone()),
        View::Bool(bool) => return Ok(Value::from(i64::from(bool))),
        View::Str(text) => {
            let base = u32::try_from(base).ok().filter(|base| (2..=36).contains(base));
            if let Some(int_value) = base.and_then(|base| parse_int(text, base)) {
                return Ok(int(int_value));
            }
        }
        _ => (),
    }
    match to_float(value) {
        Ok(float) if float.is_finite() && float.abs() < 1e38 => Ok(int(float.trunc() as i128)),
        Ok(float) if float.is_finite() => Err(raise(Kind::Overflow, "a whole number of more than 127 bits")),
        _ => default(),
    }
}

fn format(value: &Value, args: &Args) -> Answer {
    if !args.positional.is_empty() && !args.named.is_empty() {
        return Err(raise(
            Kind::FilterArgument,
            "can't handle positional and keyword arguments at the same time",
        ));
    }
    let pattern = if value.is_safe() { value.clone() } else { Value::from(str_of(value)?) };
    let filled = if args.named.is_empty() {
        tuple(args.positional.to_vec())?
    } else {
        dict(args.named.iter().map(|(name, value)| (Value::from(name.as_str()), value.clone())).collect())?
    };
    operators::modulo(&pattern, &filled)
}

/// Where a path of attributes leads: `a.b.0`.
struct Path(Vec<Value>);

impl Path {
    fn new(path: &Value) -> Path {
        Path(match view(path) {
            View::None | View::Undefined => Vec::new(),
            View::Str(text) => text
                .split('.')
                .map(|part| match part.parse::<u32>() {
                    Ok(at) if part.bytes().all(|byte| byte.is_ascii_digit()) => Value::from(at),
                    _ => Value::from(part),
                })
                .collect(),
            _ => vec![path.clone()],
        })
    }

    fn of(&self, value: &Value, default: Option<&Value>) -> Result<Value, Error> {
        let mut value = value.clone();
        for part in &self.0 {
            value = item(&value, part)?;
            if let Some(default) = default.filter(|default| value.is_undefined() && !default.is_none()) {
                value = default.clone();
            }
        }
        Ok(value)
    }
}

fn path(args: &Args, place: usize) -> Path {
    args.get(place, "attribute").map_or(Path(Vec::new()), Path::new)
}

fn groupby(value: &Value, args: &Args) -> Answer {
    let path = Path::new(args.need(0, "attribute")?);
    let case_sensitive = flag(args, 2, "case_sensitive");
    let mut keyed = Vec::new();
    for item in items(value)? {
        keyed.push((folded(&path.of(&item, args.get(1, "default"))?, case_sensitive)?, item));
    }
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for (key, item) in sorted(keyed, false)? {
        match groups.last_mut() {
            Some((last, group)) if equal(last, &key) => group.push(item),
            _ => groups.push((key, vec![item])),
        }
    }
    let mut out = Vec::new();
    for (_, group) in groups {
        let key = path.of(&group[0], args.get(1, "default"))?;
        out.push(tuple(vec![key, list(group)?])?);
    }
    list(out)
}

fn indent(value: &Value, args: &Args) -> Answer {
    let width = match args.get(0, "width").map(|width| (view(width), width)) {
        None => " ".repeat(4),
        Some((View::Str(text), _)) => text.to_string(),
        Some((_, width)) => {
            let width = usize::try_from(index(width)?.max(0)).unwrap_or(usize::MAX);
            charge(width)?;
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
    let source = format!("{source}\n");
    let lines = strings::lines(&source, false);
    charge(source.len() + lines.len().saturating_mul(width.len()))?;
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
    text_like(value, out)
}

fn join(value: &Value, args: &Args) -> Answer {
    let sep = args.get(0, "d").map_or_else(|| Ok(String::new()), str_of)?;
    let path = path(args, 1);
    let mut out = String::new();
    for (at, item) in items(value)?.iter().enumerate() {
        let part = str_of(&path.of(item, None)?)?;
        charge(sep.len() + part.len())?;
        out.push_str(if at == 0 { "" } else { &sep });
        out.push_str(&part);
    }
    Ok(Value::from(out))
}

fn map(value: &Value, args: &Args) -> Answer {
    if !value.is_true() {
        return stream(Vec::new());
    }
    let mut out = Vec::new();
    let Some((name, rest)) = args.positional.split_first() else {
        let Some(attribute) = args.named("attribute") else {
            return Err(raise(Kind::FilterArgument, "map requires a filter argument"));
        };
        if let Some((name, _)) = args.named.iter().find(|(name, _)| name != "attribute" && name != "default")
        {
            return Err(raise(Kind::FilterArgument, format!("Unexpected keyword argument '{name}'")));
        }
        let path = Path::new(attribute);
        for item in items(value)? {
            out.push(path.of(&item, args.named("default"))?);
        }
        return stream(out);
    };
    let name = str_of(name)?;
    let Some(filter) = find(&name) else {
        return Err(raise(Kind::Runtime, format!("No filter named '{name}'.")));
    };
    let inner = Args { positional: rest, named: args.named.clone() };
    for item in items(value)? {
        charge(16)?;
        out.push(filter(&item, &inner)?);
    }
    stream(out)
}

fn select(value: &Value, args: &Args, wanted: bool, by_attribute: bool) -> Answer {
    if !value.is_true() {
        return stream(Vec::new());
    }
    let (path, rest) = match args.positional.split_first() {
        Some((path, rest)) if by_attribute => (Path::new(path), rest),
        None if by_attribute => {
            return Err(raise(Kind::FilterArgument, "Missing parameter for attribute name"));
        }
        _ => (Path(Vec::new()), args.positional),
    };
    let test = match rest.split_first() {
        None => None,
        Some((name, rest)) => {
            let name = str_of(name)?;
            let Some(test) = super::tests::find(&name) else {
                return Err(raise(Kind::Runtime, format!("No test named '{name}'.")));
            };
            Some((test, Args { positional: rest, named: args.named.clone() }))
        }
    };
    let mut out = Vec::new();
    for item in items(value)? {
        charge(16)?;
        let tested = path.of(&item, None)?;
        let passes = match &test {
            Some((test, args)) => test(&tested, args)?,
            None => tested.is_true(),
        };
        if passes == wanted {
            out.push(item);
        }
    }
    stream(out)
}

fn extreme(value: &Value, args: &Args, wanted: Ordering) -> Answer {
    let case_sensitive = flag(args, 0, "case_sensitive");
    let path = path(args, 1);
    let mut best: Option<(Value, Value)> = None;
    for item in items(value)? {
        let key = folded(&path.of(&item, None)?, case_sensitive)?;
        let better = match &best {
            None => true,
            Some((so_far, _)) if wanted == Ordering::Greater => super::compare::ordered(">", &key, so_far)?,
            Some((so_far, _)) => order(&key, so_far)? == wanted,
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map(|(_, item)| item).unwrap_or_default())
}

/// `pprint.pformat`: as `repr` with keys sorted, where that fits on a line.
fn pprint(value: &Value) -> Result<String, Error> {
    let out = repr_of(&with_sorted_keys(value)?)?;
    if out.chars().count() > 80 {
        return fail(Kind::Unsupported, "pprint of more than one line");
    }
    Ok(out)
}

fn with_sorted_keys(value: &Value) -> Result<Value, Error> {
    let ours = |error: minijinja::Error| super::super::render::ours(&error);
    match view(value) {
        View::Dict(of) => {
            let mut keyed = Vec::new();
            for (key, value) in &of.entries {
                keyed.push((key.clone(), with_sorted_keys(value)?));
            }
            let entries = sorted(keyed.clone(), false).unwrap_or(keyed);
            dict(entries).map_err(ours)
        }
        View::Seq(seq) if seq.kind == SeqKind::List => {
            list(seq.items.iter().map(with_sorted_keys).collect::<Result<_, _>>()?).map_err(ours)
        }
        _ => Ok(value.clone()),
    }
}

/// One item, always the same: nothing here is random.
fn random(value: &Value) -> Answer {
    let count = length(value)?;
    if count == 0 {
        return Ok(Value::UNDEFINED);
    }
    if let View::Dict(of) = view(value) {
        return of.get(&Value::from(0)).cloned().ok_or_else(|| raise(Kind::Key, "0"));
    }
    Ok(item(value, &Value::from(0))?)
}

fn replace(value: &Value, args: &Args) -> Answer {
    let (old, new) = (str_of(args.need(0, "old")?)?, str_of(args.need(1, "new")?)?);
    let count = args.get(2, "count").filter(|count| !count.is_none()).map_or(Ok(-1), index)?;
    text(strings::replaced(&str_of(value)?, &old, &new, count)?)
}

/// `reversed(value)`.
fn reversed(value: &Value) -> Result<Vec<Value>, Error> {
    let reversible = !matches!(view(value), View::Stream(_));
    match if reversible { iterable(value)? } else { None } {
        Some(mut items) => {
            items.reverse();
            Ok(items)
        }
        None => fail(Kind::Type, format!("'{}' object is not reversible", type_name(value))),
    }
}

fn reverse(value: &Value) -> Answer {
    if let View::Str(text) = view(value) {
        return text_like(value, text.chars().rev().collect());
    }
    let Some(mut items) = iterable(value)? else {
        return Err(raise(Kind::FilterArgument, "argument must be iterable"));
    };
    items.reverse();
    stream(items)
}

fn round(value: &Value, args: &Args) -> Answer {
    let precision = args.get(0, "precision").map_or(Ok(0), index)?;
    let method = args.get(1, "method").map_or_else(|| Ok("common".to_string()), str_of)?;
    if !matches!(method.as_str(), "common" | "ceil" | "floor") {
        return Err(raise(Kind::FilterArgument, "method must be common, ceil or floor"));
    }
    let digits = i32::try_from(precision.clamp(-400, 400)).unwrap_or(0);
    if method == "common" {
        return match view(value) {
            View::Bool(bool) => Ok(int(rounded_int(bool.into(), digits))),
            View::Int(whole) => Ok(int(rounded_int(whole, digits))),
            View::Float(float) => Ok(Value::from(rounded(float, digits))),
            _ => Err(raise(Kind::Type, format!("type {} doesn't define __round__ method", type_name(value)))),
        };
    }
    let float = match view(value) {
        View::Bool(_) | View::Int(_) | View::Float(_) => to_float(value)?,
        _ => {
            defined(value)?;
            return Err(raise(Kind::Type, format!("must be real number, not {}", type_name(value))));
        }
    };
    let unit = 10f64.powi(digits);
    let scaled = float * unit;
    Ok(Value::from(if method == "ceil" { scaled.ceil() } else { scaled.floor() } / unit))
}

/// A whole number to so many digits before the point, half to even.
fn rounded_int(value: i128, digits: i32) -> i128 {
    if digits >= 0 {
        return value;
    }
    let Some(unit) = 10i128.checked_pow(digits.unsigned_abs()) else { return 0 };
    let (quotient, rest) = (value.div_euclid(unit), value.rem_euclid(unit));
    let up = rest * 2 > unit || (rest * 2 == unit && quotient % 2 != 0);
    (quotient + i128::from(up)).saturating_mul(unit)
}

fn sort(value: &Value, args: &Args) -> Answer {
    let case_sensitive = flag(args, 1, "case_sensitive");
    let paths = match args.get(2, "attribute").map(view) {
        Some(View::Str(all)) => all.split(',').map(|one| Path::new(&Value::from(one))).collect(),
        _ => vec![path(args, 2)],
    };
    let mut keyed = Vec::new();
    for item in items(value)? {
        let mut keys = Vec::new();
        for path in &paths {
            keys.push(folded(&path.of(&item, None)?, case_sensitive)?);
        }
        let key = if keys.len() == 1 { keys.remove(0) } else { list(keys)? };
        keyed.push((key, item));
    }
    list(sorted(keyed, flag(args, 0, "reverse"))?.into_iter().map(|(_, item)| item).collect())
}

/// markupsafe's `striptags`: no comments, no tags, single spaces, no entities.
fn striptags(source: &str) -> String {
    let mut out = String::new();
    let mut rest = source;
    while let Some(at) = rest.find("<!--") {
        let Some(end) = rest[at..].find("-->") else { break };
        out.push_str(&rest[..at]);
        rest = &rest[at + end + 3..];
    }
    out.push_str(rest);
    let (mut plain, mut rest) = (String::new(), out.as_str());
    while let Some(at) = rest.find('<') {
        let Some(end) = rest[at..].find('>') else { break };
        plain.push_str(&rest[..at]);
        rest = &rest[at + end + 1..];
    }
    plain.push_str(rest);
    let words: Vec<&str> = plain.split(is_space).filter(|word| !word.is_empty()).collect();
    let known =
        [("&lt;", "<"), ("&gt;", ">"), ("&#39;", "'"), ("&#34;", "\""), ("&quot;", "\""), ("&amp;", "&")];
    known.iter().fold(words.join(" "), |text, (entity, plain)| text.replace(entity, plain))
}

fn sum(value: &Value, args: &Args) -> Answer {
    let path = path(args, 0);
    let start = args.get(1, "start").cloned().unwrap_or_else(|| Value::from(0));
    if matches!(view(&start), View::Str(_)) {
        return Err(raise(Kind::Type, "sum() can't sum strings [use ''.join(seq) instead]"));
    }
    let mut total = start;
    for item in items(value)? {
        total = operators::add(&[total, path.of(&item, None)?])?;
    }
    Ok(total)
}

/// Jinja's own title case: words begin after white space, `-` and opening brackets.
fn titled(text: &str) -> String {
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

fn tojson(value: &Value, args: &Args) -> Answer {
    args.only(4, &["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = match args.get(1, "indent").map(|indent| (view(indent), indent)) {
        None | Some((View::None, _)) => None,
        Some((View::Str(text), _)) => Some(text.to_string()),
        Some((_, indent)) => {
            let width = usize::try_from(index(indent)?.max(0)).unwrap_or(usize::MAX);
            charge(width)?;
            Some(" ".repeat(width))
        }
    };
    let separators = match args.get(2, "separators").filter(|separators| !separators.is_none()) {
        None => (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string()),
        Some(pair) => match items(pair)?.as_slice() {
            [item, key] => match (view(item), view(key)) {
                (View::Str(item), View::Str(key)) => (item.to_string(), key.to_string()),
                _ => return Err(raise(Kind::Type, "separators must be strings")),
            },
            parts => return Err(unpack_error(2, parts.len()).into()),
        },
    };
    let layout = Layout {
        ensure_ascii: flag(args, 0, "ensure_ascii"),
        indent,
        separators,
        sort_keys: flag(args, 3, "sort_keys"),
    };
    Ok(Value::from(dumps(value, &layout)?))
}

fn truncate(value: &Value, args: &Args) -> Answer {
    let limit = args.get(0, "length").map_or(Ok(255), index)?;
    let leeway = args.get(3, "leeway").filter(|leeway| !leeway.is_none()).map_or(Ok(5), index)?;
    let end = args.get(2, "end").map_or_else(|| Ok("...".to_string()), str_of)?;
    let room = limit - end.chars().count() as i128;
    if room < 0 || leeway < 0 {
        return Err(raise(Kind::Value, format!("expected length >= {}, got {limit}", end.chars().count())));
    }
    if length(value)? as i128 <= limit.saturating_add(leeway) {
        return Ok(value.clone());
    }
    let View::Str(all) = view(value) else {
        let cut = operators::slice(value, &Value::from(()), &int(room), &Value::from(()))?;
        if flag(args, 1, "killwords") {
            return operators::add(&[cut, Value::from(end)]);
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
    text_like(value, format!("{cut}{end}"))
}

fn unique(value: &Value, args: &Args) -> Answer {
    let case_sensitive = flag(args, 0, "case_sensitive");
    let path = path(args, 1);
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    for item in items(value)? {
        let key = folded(&path.of(&item, None)?, case_sensitive)?;
        // As a key of a dict: refused where it cannot be one.
        super::value::Dict::new(vec![(key.clone(), Value::from(()))])?;
        let number = match view(&key) {
            View::Bool(bool) => Value::from(i64::from(bool)),
            _ => key,
        };
        if seen.insert(number) {
            out.push(item);
        }
    }
    stream(out)
}

fn quoted(value: &Value, in_query: bool, out: &mut String) -> Result<(), Error> {
    let text = str_of(value)?;
    charge(text.len().saturating_mul(3))?;
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

fn urlencode(value: &Value) -> Answer {
    let mut out = String::new();
    let pairs = match view(value) {
        View::Str(_) => None,
        View::Dict(of) => Some(items(&pairs(of)?)?),
        _ => iterable(value)?,
    };
    let Some(pairs) = pairs else {
        quoted(value, false, &mut out)?;
        return Ok(Value::from(out));
    };
    for (at, pair) in pairs.iter().enumerate() {
        let parts = unpacked(pair, 2)?;
        out.push_str(if at == 0 { "" } else { "&" });
        quoted(&parts[0], true, &mut out)?;
        out.push('=');
        quoted(&parts[1], true, &mut out)?;
    }
    Ok(Value::from(out))
}

fn unpack_error(wanted: usize, got: usize) -> Error {
    if got > wanted {
        return Error::new(Kind::Value, format!("too many values to unpack (expected {wanted})"));
    }
    Error::new(Kind::Value, format!("not enough values to unpack (expected {wanted}, got {got})"))
}

/// The `count` items of a value that is assigned to as many names.
pub(crate) fn unpacked(value: &Value, count: usize) -> Result<Vec<Value>, Error> {
    let Some(parts) = iterable(value)? else {
        return fail(Kind::Type, format!("cannot unpack non-iterable {} object", type_name(value)));
    };
    if parts.len() == count { Ok(parts) } else { Err(unpack_error(count, parts.len())) }
}

fn xmlattr(value: &Value, autospace: bool) -> Answer {
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
        let key = str_of(key)?;
        if key.contains(|c: char| is_space(c) || "/>=".contains(c)) {
            return Err(raise(Kind::Value, format!("Invalid character in attribute name: '{key}'")));
        }
        let value = if value.is_safe() { str_of(value)? } else { escaped(&str_of(value)?)? };
        let space = if out.is_empty() && !autospace { "" } else { " " };
        let _ = write!(out, "{space}{}=\"{value}\"", escaped(&key)?);
    }
    text(out)
}
