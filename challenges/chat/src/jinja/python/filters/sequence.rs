//! Filters of sequences and dicts.

use std::cmp::Ordering;

use super::super::super::context::Context;
use super::super::super::error::{Error, Kind};
use super::super::compare::{equal, order};
use super::super::methods::item;
use super::super::predicates;
use super::super::text::str_of;
use super::super::value::{
    Answer, Args, Index, Value, View, check_hashable, defined, items, iterable, list, raise, same_key,
    stream, text_like, tuple, type_name, view,
};
use super::{count_arg, fail, find, flag};

pub(super) fn batch(cx: &Context, value: &Value, args: &Args) -> Answer {
    let size = count_arg(args, "linecount")?;
    let fill = args.get(1, "fill_with").filter(|fill| !fill.is_none());
    let mut batches = Vec::new();
    let mut batch = Vec::new();
    for item in items(cx, value)? {
        if batch.len() == size {
            batches.push(list(cx, std::mem::take(&mut batch))?);
        }
        batch.push(item);
    }
    if !batch.is_empty() {
        if let Some(fill) = fill {
            let missing = size.saturating_sub(batch.len());
            cx.charge(missing.saturating_mul(size_of::<Value>()))?;
            batch.extend((0..missing).map(|_| fill.clone()));
        }
        batches.push(list(cx, batch)?);
    }
    stream(cx, batches)
}

pub(super) fn slice(cx: &Context, value: &Value, args: &Args) -> Answer {
    let count = count_arg(args, "slices")?;
    let fill = args.get(1, "fill_with").filter(|fill| !fill.is_none());
    let all = items(cx, value)?;
    if count == 0 {
        return Err(raise(Kind::ZeroDivision, "integer division or modulo by zero"));
    }
    cx.charge(count.saturating_mul(size_of::<Value>() + 64))?;
    let (each, extra) = (all.len() / count, all.len() % count);
    let mut slices = Vec::new();
    let mut from = 0;
    for at in 0..count {
        let size = each + usize::from(at < extra);
        let mut part = all[from..from + size].to_vec();
        from += size;
        part.extend(fill.filter(|_| at >= extra).cloned());
        slices.push(list(cx, part)?);
    }
    stream(cx, slices)
}

/// What a sort without case compares.
pub(super) fn folded(cx: &Context, value: &Value, case_sensitive: bool) -> Result<Value, Error> {
    match view(value) {
        View::Str(text) if !case_sensitive => {
            cx.charge(text.len())?;
            Ok(Value::from(text.to_lowercase()))
        }
        _ => Ok(value.clone()),
    }
}

/// Sorts by keys, stably; `reverse` keeps equal ones in order too.
pub(super) fn sorted(
    cx: &Context,
    keyed: Vec<(Value, Value)>,
    reverse: bool,
) -> Result<Vec<(Value, Value)>, Error> {
    cx.charge(keyed.len().saturating_mul(32))?;
    super::super::compare::sorted(keyed, &mut |(left, _), (right, _)| {
        let found = order(cx, left, right)?;
        Ok(if reverse { found.reverse() } else { found })
    })
}

pub(super) fn dictsort(cx: &Context, value: &Value, args: &Args) -> Answer {
    defined(value)?;
    let by = match args.get(1, "by").map(|value| str_of(cx, value)).transpose()?.as_deref() {
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
        let sort_by = folded(cx, if by == 0 { key } else { value }, case_sensitive)?;
        keyed.push((sort_by, tuple(cx, vec![key.clone(), value.clone()])?));
    }
    let sorted = sorted(cx, keyed, flag(args, 2, "reverse"))?;
    list(cx, sorted.into_iter().map(|(_, pair)| pair).collect())
}

/// Where a path of attributes leads: `a.b.0`.
pub(super) struct Path(Vec<Value>);

impl Path {
    pub(super) fn new(path: &Value) -> Path {
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

    pub(super) fn of(&self, cx: &Context, value: &Value, default: Option<&Value>) -> Result<Value, Error> {
        let mut value = value.clone();
        for part in &self.0 {
            value = item(cx, &value, part)?;
            if let Some(default) = default.filter(|default| value.is_undefined() && !default.is_none()) {
                value = default.clone();
            }
        }
        Ok(value)
    }
}

pub(super) fn path(args: &Args, place: usize) -> Path {
    args.get(place, "attribute").map_or(Path(Vec::new()), Path::new)
}

pub(super) fn groupby(cx: &Context, value: &Value, args: &Args) -> Answer {
    let path = Path::new(args.need(0, "attribute")?);
    let case_sensitive = flag(args, 2, "case_sensitive");
    let mut keyed = Vec::new();
    for item in items(cx, value)? {
        keyed.push((folded(cx, &path.of(cx, &item, args.get(1, "default"))?, case_sensitive)?, item));
    }
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for (key, item) in sorted(cx, keyed, false)? {
        match groups.last_mut() {
            Some((last, group)) if equal(cx, last, &key) => group.push(item),
            _ => groups.push((key, vec![item])),
        }
    }
    let mut out = Vec::new();
    for (_, group) in groups {
        let key = path.of(cx, &group[0], args.get(1, "default"))?;
        out.push(tuple(cx, vec![key, list(cx, group)?])?);
    }
    list(cx, out)
}

pub(super) fn map(cx: &Context, value: &Value, args: &Args) -> Answer {
    if !value.is_true() {
        return stream(cx, Vec::new());
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
        for item in items(cx, value)? {
            out.push(path.of(cx, &item, args.named("default"))?);
        }
        return stream(cx, out);
    };
    let name = str_of(cx, name)?;
    let Some(filter) = find(&name) else {
        return Err(raise(Kind::Runtime, format!("No filter named '{name}'.")));
    };
    let inner = Args { positional: rest, named: args.named.clone() };
    for item in items(cx, value)? {
        cx.charge(16)?;
        out.push(filter(cx, &item, &inner)?);
    }
    stream(cx, out)
}

pub(super) fn select(cx: &Context, value: &Value, args: &Args, wanted: bool, by_attribute: bool) -> Answer {
    if !value.is_true() {
        return stream(cx, Vec::new());
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
            let name = str_of(cx, name)?;
            let Some(test) = predicates::find(&name) else {
                return Err(raise(Kind::Runtime, format!("No test named '{name}'.")));
            };
            Some((test, Args { positional: rest, named: args.named.clone() }))
        }
    };
    let mut out = Vec::new();
    for item in items(cx, value)? {
        cx.charge(16)?;
        let tested = path.of(cx, &item, None)?;
        let passes = match &test {
            Some((test, args)) => test(cx, &tested, args)?,
            None => tested.is_true(),
        };
        if passes == wanted {
            out.push(item);
        }
    }
    stream(cx, out)
}

pub(super) fn extreme(cx: &Context, value: &Value, args: &Args, wanted: Ordering) -> Answer {
    let case_sensitive = flag(args, 0, "case_sensitive");
    let path = path(args, 1);
    let mut best: Option<(Value, Value)> = None;
    for item in items(cx, value)? {
        let key = folded(cx, &path.of(cx, &item, None)?, case_sensitive)?;
        let better = match &best {
            None => true,
            Some((so_far, _)) if wanted == Ordering::Greater => {
                super::super::compare::ordered(cx, ">", &key, so_far)?
            }
            Some((so_far, _)) => order(cx, &key, so_far)? == wanted,
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map(|(_, item)| item).unwrap_or_default())
}

/// `reversed(value)`.
pub(super) fn reversed(cx: &Context, value: &Value) -> Result<Vec<Value>, Error> {
    let reversible = !matches!(view(value), View::Stream(_));
    match if reversible { iterable(cx, value)? } else { None } {
        Some(mut items) => {
            items.reverse();
            // read from its end, markup gives markup; from its start it gives plain texts
            items
                .iter()
                .map(|item| {
                    if value.is_safe() {
                        text_like(cx, value, item.as_str().unwrap_or(""))
                    } else {
                        Ok(item.clone())
                    }
                })
                .collect()
        }
        None => fail(Kind::Type, format!("'{}' object is not reversible", type_name(value))),
    }
}

pub(super) fn reverse(cx: &Context, value: &Value) -> Answer {
    if let View::Str(text) = view(value) {
        return text_like(cx, value, text.chars().rev().collect::<String>());
    }
    let Some(mut items) = iterable(cx, value)? else {
        return Err(raise(Kind::FilterArgument, "argument must be iterable"));
    };
    items.reverse();
    stream(cx, items)
}

pub(super) fn sort(cx: &Context, value: &Value, args: &Args) -> Answer {
    let case_sensitive = flag(args, 1, "case_sensitive");
    let paths = match args.get(2, "attribute").map(view) {
        Some(View::Str(all)) => all.split(',').map(|one| Path::new(&Value::from(one))).collect(),
        _ => vec![path(args, 2)],
    };
    // Jinja compares lists of keys, even of one key: keys that are equal have no order, whatever they are.
    let mut keyed = Vec::new();
    for item in items(cx, value)? {
        let mut keys = Vec::with_capacity(paths.len());
        for path in &paths {
            keys.push(folded(cx, &path.of(cx, &item, None)?, case_sensitive)?);
        }
        keyed.push((list(cx, keys)?, item));
    }
    list(cx, sorted(cx, keyed, flag(args, 0, "reverse"))?.into_iter().map(|(_, item)| item).collect())
}

pub(super) fn unique(cx: &Context, value: &Value, args: &Args) -> Answer {
    let case_sensitive = flag(args, 0, "case_sensitive");
    let path = path(args, 1);
    let (mut keys, mut index) = (Vec::new(), Index::default());
    let mut out = Vec::new();
    for item in items(cx, value)? {
        let key = folded(cx, &path.of(cx, &item, None)?, case_sensitive)?;
        cx.charge(2 * size_of::<Value>() + 64)?;
        check_hashable(cx, &key)?;
        if index.find(cx, &key, |at| same_key(cx, &keys[at], &key)).is_none() {
            index.insert(cx, &key, keys.len());
            keys.push(key);
            out.push(item);
        }
    }
    stream(cx, out)
}
