//! Lists, tuples, dicts, generators and namespaces.
//!
//! Every container knows how deep it is, so nothing that is built can be too deep to be written, compared or dropped.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::rc::Rc;

use super::super::context::Meter;
use super::super::error::{Error, Kind};
use super::value::{Answer, Value, View, depth_of, hash_of, same_key, type_name, view};

/// What kind of sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeqKind {
    List,
    Tuple,
    /// `range(start, stop, step)`.
    Range(i128, i128, i128),
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

pub(crate) fn deepest<'a>(cx: &Meter, items: impl IntoIterator<Item = &'a Value>) -> Result<usize, Error> {
    let mut depth = 0;
    for item in items {
        depth = depth.max(depth_of(item)?);
    }
    cx.nest(depth + 1)?;
    Ok(depth + 1)
}

impl Seq {
    pub(crate) fn new(cx: &Meter, kind: SeqKind, items: Vec<Value>) -> Result<Seq, Error> {
        cx.charge(items.len() * size_of::<Value>() + 64)?;
        let depth = deepest(cx, &items)?;
        Ok(Seq { kind, items, depth })
    }

    pub(crate) fn is_tuple(&self) -> bool {
        self.kind == SeqKind::Tuple
    }
}

/// A list.
pub(crate) fn list(cx: &Meter, items: Vec<Value>) -> Answer {
    Ok(Value::Seq(Rc::new(Seq::new(cx, SeqKind::List, items)?)))
}

/// A tuple.
pub(crate) fn tuple(cx: &Meter, items: Vec<Value>) -> Answer {
    Ok(Value::Seq(Rc::new(Seq::new(cx, SeqKind::Tuple, items)?)))
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
    index: Option<Index>,
    pub(crate) depth: usize,
}

impl Dict {
    /// A dict of entries whose later ones win; refuses keys that cannot be hashed.
    pub(crate) fn new(cx: &Meter, pairs: Vec<(Value, Value)>) -> Result<Dict, Error> {
        cx.charge(pairs.len() * 2 * size_of::<Value>() + 64)?;
        for (key, _) in &pairs {
            check_hashable(cx, key)?;
        }
        let mut dict = Dict { entries: Vec::with_capacity(pairs.len()), index: None, depth: 0 };
        for (key, value) in pairs {
            match dict.position(cx, &key) {
                Some(at) => dict.entries[at].1 = value,
                None => dict.push(cx, key, value),
            }
        }
        dict.depth = deepest(cx, dict.entries.iter().flat_map(|(key, value)| [key, value]))?;
        Ok(dict)
    }

    fn push(&mut self, cx: &Meter, key: Value, value: Value) {
        self.entries.push((key, value));
        let new = match self.entries.len() {
            ..=SCANNED => return,
            _ if self.index.is_some() => self.entries.len() - 1,
            _ => 0,
        };
        let index = self.index.get_or_insert_default();
        for (at, (key, _)) in self.entries.iter().enumerate().skip(new) {
            index.insert(cx, key, at);
        }
    }

    fn position(&self, cx: &Meter, key: &Value) -> Option<usize> {
        match &self.index {
            Some(index) => index.find(cx, key, |at| same_key(cx, &self.entries[at].0, key)),
            None => self.entries.iter().position(|(found, _)| same_key(cx, found, key)),
        }
    }

    pub(crate) fn get(&self, cx: &Meter, key: &Value) -> Option<&Value> {
        self.position(cx, key).map(|at| &self.entries[at].1)
    }

    pub(crate) fn get_str(&self, key: &str) -> Option<&Value> {
        let is = |found: &Value| found.as_str() == Some(key);
        let at = match &self.index {
            Some(index) => index.find_str(key, |at| is(&self.entries[at].0)),
            None => self.entries.iter().position(|(found, _)| is(found)),
        };
        at.map(|at| &self.entries[at].1)
    }
}

/// Refuses a key that cannot be hashed.
pub(crate) fn check_hashable(cx: &Meter, key: &Value) -> Result<(), Error> {
    if hashable(cx, key)? {
        return Ok(());
    }
    Err(Error::new(Kind::Type, format!("unhashable type: '{}'", type_name(key))))
}

/// The place of a slot that holds no key; there are not so many keys.
const FREE: u32 = u32::MAX;

/// Where keys are, by their hashes: open addressing, at least half of it free.
///
/// A map of the standard library would hash and compare a key where there is no meter at hand; a key may be a tuple
/// that takes long to read.
#[derive(Default)]
pub(crate) struct Index {
    hasher: RandomState,
    /// Half of the hash of each key, and its place, or [`FREE`].
    slots: Vec<(u32, u32)>,
    used: usize,
}

impl Index {
    /// Adds a key that is not there yet.
    pub(crate) fn insert(&mut self, cx: &Meter, key: &Value, at: usize) {
        if self.slots.len() < 2 * (self.used + 1) {
            let count = (2 * self.slots.len()).max(4 * SCANNED).next_power_of_two();
            let before = std::mem::replace(&mut self.slots, vec![(0, FREE); count]);
            before.into_iter().filter(|slot| slot.1 != FREE).for_each(|slot| self.put(slot));
        }
        self.used += 1;
        self.put((hash_of(cx, &self.hasher, key) as u32, at as u32));
    }

    fn put(&mut self, key: (u32, u32)) {
        let mask = self.slots.len() - 1;
        let mut slot = key.0 as usize & mask;
        while self.slots[slot].1 != FREE {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = key;
    }

    /// The place of a key; `is` says whether it is the one at a place.
    pub(crate) fn find(&self, cx: &Meter, key: &Value, is: impl Fn(usize) -> bool) -> Option<usize> {
        self.at(hash_of(cx, &self.hasher, key), is)
    }

    fn find_str(&self, key: &str, is: impl Fn(usize) -> bool) -> Option<usize> {
        self.at(self.hasher.hash_one(key), is)
    }

    fn at(&self, hash: u64, is: impl Fn(usize) -> bool) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut slot = hash as usize & mask;
        loop {
            match self.slots[slot] {
                (_, FREE) => return None,
                (found, at) if found == hash as u32 && is(at as usize) => return Some(at as usize),
                _ => slot = (slot + 1) & mask,
            }
        }
    }
}

/// A dict value.
pub(crate) fn dict(cx: &Meter, pairs: Vec<(Value, Value)>) -> Answer {
    Ok(Value::Dict(Rc::new(Dict::new(cx, pairs)?)))
}

/// One tuple may be a thousand times in another, so what is looked through is paid for.
fn hashable(cx: &Meter, key: &Value) -> Result<bool, Error> {
    let View::Seq(seq) = view(key) else {
        return Ok(!matches!(view(key), View::Dict(_) | View::Stream(_)));
    };
    if seq.kind != SeqKind::Tuple {
        return Ok(matches!(seq.kind, SeqKind::Range(..)));
    }
    cx.charge(seq.items.len())?;
    for item in &seq.items {
        if !hashable(cx, item)? {
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
pub(crate) fn stream(cx: &Meter, items: Vec<Value>) -> Answer {
    cx.charge(items.len() * size_of::<Value>() + 64)?;
    let depth = deepest(cx, &items)?;
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
    pub(crate) fn set(&self, cx: &Meter, name: &str, value: Value) -> Result<(), Error> {
        depth_of(&value)?;
        cx.charge(size_of::<Value>())?;
        let mut fields = self.fields.borrow_mut();
        if let Some((_, old)) = fields.iter_mut().find(|(found, _)| found.as_str() == Some(name)) {
            *old = value;
        } else {
            drop(fields);
            self.add(cx, Value::from(name), value)?;
        }
        Ok(())
    }

    /// Adds a field that is not there yet. Its name need not be a text: Python takes any key here, and nothing reads
    /// it.
    pub(crate) fn add(&self, cx: &Meter, name: Value, value: Value) -> Result<(), Error> {
        depth_of(&name)?;
        depth_of(&value)?;
        cx.charge(128)?;
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
pub(crate) fn items(cx: &Meter, value: &Value) -> Result<Vec<Value>, Error> {
    iterable(cx, value)?
        .ok_or_else(|| Error::new(Kind::Type, format!("'{}' object is not iterable", type_name(value))))
}

/// As [`items`]; `None` if the value cannot be looped over.
pub(crate) fn iterable(cx: &Meter, value: &Value) -> Result<Option<Vec<Value>>, Error> {
    Ok(Some(match view(value) {
        View::Undefined | View::Forbidden(_) => Vec::new(),
        View::Str(text) => {
            cx.charge_each(text.len(), size_of::<Value>() + 32)?;
            let mut buffer = [0; 4];
            text.chars().map(|c| Value::from(&*c.encode_utf8(&mut buffer))).collect()
        }
        View::Bytes(bytes) => {
            cx.charge(bytes.len() * size_of::<Value>())?;
            bytes.iter().map(|byte| Value::Int((*byte).into())).collect()
        }
        View::Seq(seq) => {
            cx.charge(seq.items.len() * size_of::<Value>())?;
            seq.items.clone()
        }
        View::Dict(dict) => {
            cx.charge(dict.entries.len() * size_of::<Value>())?;
            dict.entries.iter().map(|(key, _)| key.clone()).collect()
        }
        View::Stream(stream) => stream.take()?,
        _ => return Ok(None),
    }))
}
