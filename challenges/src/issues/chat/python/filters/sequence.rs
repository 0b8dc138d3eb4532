//! Filters of sequences and dicts.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::super::super::error::{Error, Kind};
use super::super::super::limits::charge;
use super::super::compare::{equal, order};
use super::super::methods::item;
use super::super::tests;
use super::super::text::str_of;
use super::super::value::{
    Answer, Args, Value, View, defined, items, iterable, list, raise, stream, text_like, tuple, type_name,
    view,
};
use super::{count_arg, fail, find, flag};

pub(super) fn batch(value: &Value, args: &Args) -> Answer {
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

pub(super) fn slice(value: &Value, args: &Args) -> Answer {
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

/// What a sort without case compares.
pub(super) fn folded(value: &Value, case_sensitive: bool) -> Result<Value, Error> {
    match view(value) {
        View::Str(text) if !case_sensitive => {
            charge(text.len())?;
            Ok(Value::from(text.to_lowercase()))
        }
        _ => Ok(value.clone()),
    }
}

/// Sorts by keys, stably; `reverse` keeps equal ones in order too.
pub(super) fn sorted(keyed: Vec<(Value, Value)>, reverse: bool) -> Result<Vec<(Value, Value)>, Error> {
    charge(keyed.len().saturating_mul(32))?;
    super::super::compare::sorted(keyed, &mut |(left, _), (right, _)| {
        let found = order(left, right)?;
        Ok(if reverse { found.reverse() } else { found })
    })
}

pub(super) fn dictsort(value: &Value, args: &Args) -> Answer {
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

    pub(super) fn of(&self, value: &Value, default: Option<&Value>) -> Result<Value, Error> {
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

pub(super) fn path(args: &Args, place: usize) -> Path {
    args.get(place, "attribute").map_or(Path(Vec::new()), Path::new)
}

pub(super) fn groupby(value: &Value, args: &Args) -> Answer {
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

pub(super) fn map(value: &Value, args: &Args) -> Answer {
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

pub(super) fn select(value: &Value, args: &Args, wanted: bool, by_attribute: bool) -> Answer {
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
            let Some(test) = tests::find(&name) else {
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

pub(super) fn extreme(value: &Value, args: &Args, wanted: Ordering) -> Answer {
    let case_sensitive = flag(args, 0, "case_sensitive");
    let path = path(args, 1);
    let mut best: Option<(Value, Value)> = None;
    for item in items(value)? {
        let key = folded(&path.of(&item, None)?, case_sensitive)?;
        let better = match &best {
            None => true,
            Some((so_far, _)) if wanted == Ordering::Greater => {
                super::super::compare::ordered(">", &key, so_far)?
            }
            Some((so_far, _)) => order(&key, so_far)? == wanted,
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map(|(_, item)| item).unwrap_or_default())
}

/// `reversed(value)`.
pub(super) fn reversed(value: &Value) -> Result<Vec<Value>, Error> {
    let reversible = !matches!(view(value), View::Stream(_));
    match if reversible { iterable(value)? } else { None } {
        Some(mut items) => {
            items.reverse();
            // read from its end, markup gives markup; from its start it gives plain texts
            items
                .iter()
                .map(|item| {
                    if value.is_safe() {
                        text_like(value, item.as_str().unwrap_or(""))
                    } else {
                        Ok(item.clone())
                    }
                })
                .collect()
        }
        None => fail(Kind::Type, format!("'{}' object is not reversible", type_name(value))),
    }
}

pub(super) fn reverse(value: &Value) -> Answer {
    if let View::Str(text) = view(value) {
        return text_like(value, text.chars().rev().collect::<String>());
    }
    let Some(mut items) = iterable(value)? else {
        return Err(raise(Kind::FilterArgument, "argument must be iterable"));
    };
    items.reverse();
    stream(items)
}

pub(super) fn sort(value: &Value, args: &Args) -> Answer {
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

#[expect(clippy::mutable_key_type, reason = "namespaces and generators are told apart by where they lie")]
pub(super) fn unique(value: &Value, args: &Args) -> Answer {
    let case_sensitive = flag(args, 0, "case_sensitive");
    let path = path(args, 1);
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    for item in items(value)? {
        let key = folded(&path.of(&item, None)?, case_sensitive)?;
        // As a key of a dict: refused where it cannot be one.
        super::super::value::Dict::new(vec![(key.clone(), Value::None)])?;
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
