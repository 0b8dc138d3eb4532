//! Lists, tuples, dicts and the other values that Python has and the engine has not.
//!
//! Every container knows how deep it is, so nothing that is built can be too deep to be written, compared or dropped.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use minijinja::value::{DynObject, Enumerator, Kwargs, Object, ObjectRepr, ValueKind};
use minijinja::{State, Value};

use super::super::error::{Error, Kind};
use super::super::limits::{charge, nest};

/// What the engine's functions answer.
pub(crate) type Answer = Result<Value, minijinja::Error>;

/// An error on its way through the engine.
pub(crate) fn raise(kind: Kind, message: impl Into<String>) -> minijinja::Error {
    Error::new(kind, message).into()
}

impl From<Error> for minijinja::Error {
    fn from(error: Error) -> minijinja::Error {
        minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, "").with_source(error)
    }
}

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

/// How deep `value` is: 0 for what holds nothing.
pub(crate) fn depth_of(value: &Value) -> Result<usize, Error> {
    let Some(object) = value.as_object() else { return Ok(0) };
    if let Some(seq) = object.downcast_ref::<Seq>() {
        return Ok(seq.depth);
    }
    if let Some(dict) = object.downcast_ref::<Dict>() {
        return Ok(dict.depth);
    }
    if let Some(stream) = object.downcast_ref::<Stream>() {
        return Ok(stream.depth);
    }
    if let Some(method) = object.downcast_ref::<Method>() {
        return Ok(depth_of(&method.of)? + 1);
    }
    if let Some(cycler) = object.downcast_ref::<super::functions::Cycler>() {
        return Ok(cycler.depth);
    }
    if is_function(object) {
        return Ok(0);
    }
    Err(Error::new(Kind::Unsupported, "a loop cannot be kept in a value"))
}

fn is_function(object: &DynObject) -> bool {
    object.downcast_ref::<Space>().is_some()
        || object.downcast_ref::<Forbidden>().is_some()
        || object.downcast_ref::<super::functions::Macro>().is_some()
        || object.downcast_ref::<super::functions::Joiner>().is_some()
        || object.downcast_ref::<super::functions::Global>().is_some()
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
    Ok(Value::from_object(Seq::new(SeqKind::List, items)?))
}

/// A tuple.
pub(crate) fn tuple(items: Vec<Value>) -> Answer {
    Ok(Value::from_object(Seq::new(SeqKind::Tuple, items)?))
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{:?} of {}>", self.kind, self.items.len())
    }
}

impl Object for Seq {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let index = key.as_i64()?;
        let at = if index < 0 {
            self.items.len().checked_sub(index.unsigned_abs() as usize)?
        } else {
            index as usize
        };
        self.items.get(at).cloned()
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        // The groups of `groupby` are pairs with names.
        match (self.items.as_slice(), key) {
            ([key, _], "grouper") if self.is_tuple() => Some(key.clone()),
            ([_, items], "list") if self.is_tuple() => Some(items.clone()),
            _ => None,
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.items.clone())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.items.len())
    }

    fn is_true(self: &Arc<Self>) -> bool {
        !self.items.is_empty()
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
        if let Some((key, _)) = pairs.iter().find(|(key, _)| !hashable(key)) {
            return Err(Error::new(Kind::Type, format!("unhashable type: '{}'", type_name(key))));
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
    Ok(Value::from_object(Dict::new(pairs)?))
}

fn hashable(key: &Value) -> bool {
    match view(key) {
        View::Dict(_) | View::Stream(_) => false,
        View::Seq(seq) => match seq.kind {
            SeqKind::Tuple => seq.items.iter().all(hashable),
            SeqKind::Range(..) => true,
            _ => false,
        },
        _ => true,
    }
}

impl fmt::Debug for Dict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<dict of {}>", self.entries.len())
    }
}

impl Object for Dict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str() {
            Some(key) => self.get_str(key).cloned(),
            None => self.get(key).cloned(),
        }
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.get_str(key).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.entries.iter().map(|(key, _)| key.clone()).collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.entries.len())
    }

    fn is_true(self: &Arc<Self>) -> bool {
        !self.entries.is_empty()
    }
}

/// A generator: its items can be taken once. They are computed when it is made.
pub(crate) struct Stream {
    items: Mutex<Vec<Value>>,
    depth: usize,
}

impl Stream {
    pub(crate) fn take(&self) -> Vec<Value> {
        self.items.lock().map(|mut items| std::mem::take(&mut *items)).unwrap_or_default()
    }
}

/// A generator of `items`.
pub(crate) fn stream(items: Vec<Value>) -> Answer {
    charge(items.len() * size_of::<Value>() + 64)?;
    let depth = deepest(&items)?;
    Ok(Value::from_object(Stream { items: Mutex::new(items), depth }))
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<generator object>")
    }
}

impl Object for Stream {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// A namespace: the one value that a template may change.
pub(crate) struct Space {
    pub(crate) fields: Mutex<Vec<(Value, Value)>>,
}

impl Space {
    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        let fields = self.fields.lock().ok()?;
        fields.iter().find(|(found, _)| found.as_str() == Some(name)).map(|(_, value)| value.clone())
    }

    /// Sets a field; `value` can hold namespaces, whose own fields are dropped one by one at the end of the render.
    pub(crate) fn set(&self, name: &Value, value: Value) -> Result<(), Error> {
        depth_of(&value)?;
        charge(size_of::<Value>())?;
        let Ok(mut fields) = self.fields.lock() else { return Ok(()) };
        if let Some((_, old)) = fields.iter_mut().find(|(found, _)| found == name) {
            *old = value;
        } else {
            charge(128)?;
            fields.push((name.clone(), value));
        }
        Ok(())
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<Namespace>")
    }
}

impl Object for Space {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get(key.as_str()?)
    }
}

/// What the sandbox hides: it looks undefined, and any use of it is refused.
#[derive(Debug)]
pub(crate) struct Forbidden(pub(crate) String);

impl Forbidden {
    pub(crate) fn error(&self) -> Error {
        Error::new(Kind::Security, self.0.clone())
    }
}

impl Object for Forbidden {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, _key: &Value) -> Option<Value> {
        Some(Value::from(minijinja::Error::from(self.error())))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Empty
    }

    fn is_true(self: &Arc<Self>) -> bool {
        false
    }

    fn call(self: &Arc<Self>, _state: &mut State, _args: &[Value]) -> Answer {
        Err(self.error().into())
    }
}

/// A method that was looked up and not yet called.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) of: Value,
    pub(crate) name: String,
}

impl Object for Method {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, state: &mut State, args: &[Value]) -> Answer {
        super::methods::call(state, &self.of, &self.name, args)
    }
}

/// A value as Python sees it.
pub(crate) enum View<'a> {
    Undefined,
    Forbidden(&'a Forbidden),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(&'a str),
    Bytes(&'a [u8]),
    Seq(&'a Seq),
    Dict(&'a Dict),
    Stream(&'a Stream),
    Space(&'a Space),
    Other,
}

/// Looks at `value`.
pub(crate) fn view(value: &Value) -> View<'_> {
    match value.kind() {
        ValueKind::Undefined => View::Undefined,
        ValueKind::None => View::None,
        ValueKind::Bool => View::Bool(value.is_true()),
        ValueKind::Number => number(value),
        ValueKind::String => View::Str(value.as_str().unwrap_or_default()),
        ValueKind::Bytes => View::Bytes(value.as_bytes().unwrap_or_default()),
        _ => object(value),
    }
}

fn number(value: &Value) -> View<'_> {
    if value.is_integer() {
        return match value.as_i64() {
            Some(int) => View::Int(int.into()),
            None => i128::try_from(value.clone()).map_or(View::Float(f64::INFINITY), View::Int),
        };
    }
    View::Float(f64::try_from(value.clone()).unwrap_or(f64::NAN))
}

fn object(value: &Value) -> View<'_> {
    let Some(object) = value.as_object() else { return View::Other };
    if let Some(seq) = object.downcast_ref::<Seq>() {
        View::Seq(seq)
    } else if let Some(dict) = object.downcast_ref::<Dict>() {
        View::Dict(dict)
    } else if let Some(stream) = object.downcast_ref::<Stream>() {
        View::Stream(stream)
    } else if let Some(space) = object.downcast_ref::<Space>() {
        View::Space(space)
    } else if let Some(forbidden) = object.downcast_ref::<Forbidden>() {
        View::Forbidden(forbidden)
    } else {
        View::Other
    }
}

/// Python's name of a value's type.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match view(value) {
        View::Undefined | View::Forbidden(_) => "Undefined",
        View::None => "NoneType",
        View::Bool(_) => "bool",
        View::Int(_) => "int",
        View::Float(_) => "float",
        View::Str(_) if value.is_safe() => "Markup",
        View::Str(_) => "str",
        View::Bytes(_) => "bytes",
        View::Seq(seq) => match seq.kind {
            SeqKind::List => "list",
            SeqKind::Tuple => "tuple",
            SeqKind::Range(..) => "range",
            SeqKind::Keys => "dict_keys",
            SeqKind::Values => "dict_values",
            SeqKind::Items => "dict_items",
        },
        View::Dict(_) => "dict",
        View::Stream(_) => "generator",
        View::Space(_) => "Namespace",
        View::Other => "object",
    }
}

/// The error of using an undefined value, if `value` is one.
pub(crate) fn defined(value: &Value) -> Result<(), Error> {
    match view(value) {
        View::Undefined => Err(Error::new(Kind::Undefined, "an undefined value is used")),
        View::Forbidden(forbidden) => Err(forbidden.error()),
        _ => Ok(()),
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
            charge(text.len() * size_of::<Value>())?;
            let mut buffer = [0; 4];
            text.chars().map(|c| Value::from(&*c.encode_utf8(&mut buffer))).collect()
        }
        View::Bytes(bytes) => {
            charge(bytes.len() * size_of::<Value>())?;
            bytes.iter().map(|byte| Value::from(*byte)).collect()
        }
        View::Seq(seq) => {
            charge(seq.items.len() * size_of::<Value>())?;
            seq.items.clone()
        }
        View::Dict(dict) => {
            charge(dict.entries.len() * size_of::<Value>())?;
            dict.entries.iter().map(|(key, _)| key.clone()).collect()
        }
        View::Stream(stream) => stream.take(),
        View::Other if value.kind() == ValueKind::Seq => {
            // A list that the engine has just built from the words of the template.
            value.try_iter().map(Iterator::collect).unwrap_or_default()
        }
        _ => return Ok(None),
    }))
}

/// The arguments of a call: those by place, and those by name.
pub(crate) struct Args<'a> {
    pub(crate) positional: &'a [Value],
    pub(crate) named: Vec<(String, Value)>,
}

impl<'a> Args<'a> {
    /// Takes the arguments as the engine hands them over.
    pub(crate) fn new(args: &'a [Value]) -> Args<'a> {
        match args.split_last() {
            Some((last, rest)) if last.is_kwargs() => Args { positional: rest, named: kwargs(last) },
            _ => Args { positional: args, named: Vec::new() },
        }
    }

    /// The argument at `place`, or of `name`.
    pub(crate) fn get(&self, place: usize, name: &str) -> Option<&Value> {
        self.positional.get(place).or_else(|| self.named(name))
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Value> {
        self.named.iter().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// As [`Args::get`]; its absence is a `TypeError`.
    pub(crate) fn need(&self, place: usize, name: &str) -> Result<&Value, Error> {
        self.get(place, name).ok_or_else(|| {
            Error::new(Kind::Type, format!("missing 1 required positional argument: '{name}'"))
        })
    }

    /// Refuses more than `most` arguments by place, and names other than `names`.
    pub(crate) fn only(&self, most: usize, names: &[&str]) -> Result<(), Error> {
        if self.positional.len() > most {
            let message =
                format!("takes {most} positional arguments but {} were given", self.positional.len());
            return Err(Error::new(Kind::Type, message));
        }
        match self.named.iter().find(|(name, _)| !names.contains(&name.as_str())) {
            Some((name, _)) => {
                Err(Error::new(Kind::Type, format!("got an unexpected keyword argument '{name}'")))
            }
            None => Ok(()),
        }
    }
}

fn kwargs(value: &Value) -> Vec<(String, Value)> {
    let Ok(kwargs) = Kwargs::try_from(value.clone()) else { return Vec::new() };
    let names: Vec<String> = kwargs.args().map(str::to_string).collect();
    names.into_iter().filter_map(|name| kwargs.peek(&name).ok().map(|value| (name, value))).collect()
}

/// An integer argument, by Python's `operator.index`.
pub(crate) fn index(value: &Value) -> Result<i128, Error> {
    match view(value) {
        View::Int(int) => Ok(int),
        View::Bool(bool) => Ok(bool.into()),
        _ => {
            let name = type_name(value);
            Err(Error::new(Kind::Type, format!("'{name}' object cannot be interpreted as an integer")))
        }
    }
}

/// A whole number as the engine keeps it.
pub(crate) fn int(value: i128) -> Value {
    i64::try_from(value).map_or_else(|_| Value::from(value), Value::from)
}

/// `text` as markup if `like` is, else as plain text.
pub(crate) fn text_like(like: &Value, text: String) -> Answer {
    charge(text.len())?;
    Ok(if like.is_safe() { Value::from_safe_string(text) } else { Value::from(text) })
}

/// A plain text.
pub(crate) fn text(text: String) -> Answer {
    charge(text.len())?;
    Ok(Value::from(text))
}
