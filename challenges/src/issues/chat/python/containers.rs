//! Lists, tuples, dicts, generators and namespaces.
//!
//! Every container knows how deep it is, so nothing that is built can be too deep to be written, compared or dropped.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use super::super::error::{Error, Kind};
use super::super::limits::{charge, charge_each, nest};
use super::value::{Answer, Value, View, depth_of, type_name, view};

/// What kind of sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeqKind {
    List,
    Tuple,
    /// `range(start, stop, step)`.
    Range(i64, i64, i64),
    Keys,
    Values,
    Items,
}

/// A list, a tuple, a range or a view of a dict.
pub(crate) struct Seq {
    pub(crate) kind: SeqKind,
    pub(crate) items: Vec<Value>,
    pub(crate) depth: usize,
}

pub(crate) fn deepest<'a>(items: impl IntoIterator<Item = &'a Value>) -> Result<usize, Error> {
    let mut depth = 0;
    for item in items {
        depth = depth.max(depth_of(item)?);
    }
    nest(depth + 1)?;
    Ok(depth + 1)
}

impl Seq {
    pub(crate) fn new(kind: SeqKind, items: Vec<Value>) -> Result<Seq, Error> {
        charge(items.len() * size_of::<Value>() + 64)?;
        let depth = deepest(&items)?;
        Ok(Seq { kind, items, depth })
    }

    pub(crate) fn is_tuple(&self) -> bool {
        self.kind == SeqKind::Tuple
    }
}

/// A list.
pub(crate) fn list(items: Vec<Value>) -> Answer {
    Ok(Value::Seq(Rc::new(Seq::new(SeqKind::List, items)?)))
}

/// A tuple.
pub(crate) fn tuple(items: Vec<Value>) -> Answer {
    Ok(Value::Seq(Rc::new(Seq::new(SeqKind::Tuple, items)?)))
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{:?} of {}>", self.kind, self.items.len())
    }
}

/// A dict up to so many entries is searched from the start.
const SCANNED: usize = 12;

/// A dict: entries in the order in which they came.
pub(crate) struct Dict {
    pub(crate) entries: Vec<(Value, Value)>,
    index: Option<HashMap<Value, usize>>,
    pub(crate) depth: usize,
}

impl Dict {
    /// A dict of entries whose later ones win; refuses keys that cannot be hashed.
    pub(crate) fn new(pairs: Vec<(Value, Value)>) -> Result<Dict, Error> {
        charge(pairs.len() * 2 * size_of::<Value>() + 64)?;
        for (key, _) in &pairs {
            if !hashable(key)? {
                return Err(Error::new(Kind::Type, format!("unhashable type: '{}'", type_name(key))));
            }
        }
        let mut dict = Dict { entries: Vec::with_capacity(pairs.len()), index: None, depth: 0 };
        for (key, value) in pairs {
            match dict.position(&key) {
                Some(at) => dict.entries[at].1 = value,
                None => dict.push(key, value),
            }
        }
        dict.depth = deepest(dict.entries.iter().flat_map(|(key, value)| [key, value]))?;
        Ok(dict)
    }

    fn push(&mut self, key: Value, value: Value) {
        if let Some(index) = &mut self.index {
            index.insert(key.clone(), self.entries.len());
        }
        self.entries.push((key, value));
        if self.index.is_none() && self.entries.len() > SCANNED {
            self.index =
                Some(self.entries.iter().enumerate().map(|(at, (key, _))| (key.clone(), at)).collect());
        }
    }

    fn position(&self, key: &Value) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(key).copied(),
            None => self.entries.iter().position(|(found, _)| found == key),
        }
    }

    pub(crate) fn get(&self, key: &Value) -> Option<&Value> {
        self.position(key).map(|at| &self.entries[at].1)
    }

    pub(crate) fn get_str(&self, key: &str) -> Option<&Value> {
        if self.index.is_some() {
            return self.get(&Value::from(key));
        }
        self.entries.iter().find(|(found, _)| found.as_str() == Some(key)).map(|(_, value)| value)
    }
}

/// A dict value.
pub(crate) fn dict(pairs: Vec<(Value, Value)>) -> Answer {
    Ok(Value::Dict(Rc::new(Dict::new(pairs)?)))
}

/// One tuple may be a thousand times in another, so what is looked through is paid for.
fn hashable(key: &Value) -> Result<bool, Error> {
    let View::Seq(seq) = view(key) else {
        return Ok(!matches!(view(key), View::Dict(_) | View::Stream(_)));
    };
    if seq.kind != SeqKind::Tuple {
        return Ok(matches!(seq.kind, SeqKind::Range(..)));
    }
    charge(seq.items.len())?;
    for item in &seq.items {
        if !hashable(item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl fmt::Debug for Dict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<dict of {}>", self.entries.len())
    }
}

/// A generator: its items can be taken once. They are computed when it is made.
pub(crate) struct Stream {
    items: RefCell<Result<Vec<Value>, Error>>,
    pub(crate) depth: usize,
}

impl Stream {
    fn take(&self) -> Result<Vec<Value>, Error> {
        self.items.replace(Ok(Vec::new()))
    }
}

/// A generator that fails when its first item is asked for.
pub(crate) fn failing(error: Error) -> Value {
    Value::Stream(Rc::new(Stream { items: RefCell::new(Err(error)), depth: 0 }))
}

/// A generator of `items`.
pub(crate) fn stream(items: Vec<Value>) -> Answer {
    charge(items.len() * size_of::<Value>() + 64)?;
    let depth = deepest(&items)?;
    Ok(Value::Stream(Rc::new(Stream { items: RefCell::new(Ok(items)), depth })))
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<generator object>")
    }
}

/// A namespace: the one value that a template may change.
#[derive(Default)]
pub(crate) struct Space {
    pub(crate) fields: RefCell<Vec<(Value, Value)>>,
}

impl Space {
    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        let fields = self.fields.borrow();
        fields.iter().find(|(found, _)| found.as_str() == Some(name)).map(|(_, value)| value.clone())
    }

    /// Sets a field; `value` can hold namespaces, whose own fields are dropped one by one at the end of the render.
    pub(crate) fn set(&self, name: &str, value: Value) -> Result<(), Error> {
        depth_of(&value)?;
        charge(size_of::<Value>())?;
        let mut fields = self.fields.borrow_mut();
        if let Some((_, old)) = fields.iter_mut().find(|(found, _)| found.as_str() == Some(name)) {
            *old = value;
        } else {
            drop(fields);
            self.add(Value::from(name), value)?;
        }
        Ok(())
    }

    /// Adds a field that is not there yet. Its name need not be a text: Python takes any key here, and nothing reads it.
    pub(crate) fn add(&self, name: Value, value: Value) -> Result<(), Error> {
        depth_of(&name)?;
        depth_of(&value)?;
        charge(128)?;
        self.fields.borrow_mut().push((name, value));
        Ok(())
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<Namespace>")
    }
}

/// The items of what can be looped over; a generator is used up.
pub(crate) fn items(value: &Value) -> Result<Vec<Value>, Error> {
    iterable(value)?
        .ok_or_else(|| Error::new(Kind::Type, format!("'{}' object is not iterable", type_name(value))))
}

/// As [`items`]; nothing if the value cannot be looped over.
pub(crate) fn iterable(value: &Value) -> Result<Option<Vec<Value>>, Error> {
    Ok(Some(match view(value) {
        View::Undefined | View::Forbidden(_) => Vec::new(),
        View::Str(text) => {
            charge_each(text.len(), size_of::<Value>() + 32)?;
            let mut buffer = [0; 4];
            text.chars().map(|c| Value::from(&*c.encode_utf8(&mut buffer))).collect()
        }
        View::Bytes(bytes) => {
            charge(bytes.len() * size_of::<Value>())?;
            bytes.iter().map(|byte| Value::Int((*byte).into())).collect()
        }
        View::Seq(seq) => {
            charge(seq.items.len() * size_of::<Value>())?;
            seq.items.clone()
        }
        View::Dict(dict) => {
            charge(dict.entries.len() * size_of::<Value>())?;
            dict.entries.iter().map(|(key, _)| key.clone()).collect()
        }
        View::Stream(stream) => stream.take()?,
        _ => return Ok(None),
    }))
}
