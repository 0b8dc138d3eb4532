//! Values as Python has them.
//!
//! A value is small and cheap to copy: what is large lies behind a count of its holders. The count is a plain one, so
//! values stay on the thread that made them; only the texts of a template itself are shared between threads.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use num_bigint::{BigInt, Sign};
use num_traits::ToPrimitive;

use super::super::context::{Context, Meter};
use super::super::error::{Error, Kind};
pub(crate) use super::args::Args;
use super::big;
pub(crate) use super::containers::{
    Dict, Index, Seq, SeqKind, Space, Stream, check_hashable, deepest, dict, items, iterable, list, stream,
    tuple,
};
use super::functions::{Builtin, Cycler, Joiner, Macro};
use super::repeat::Loop;

/// What an operation answers.
pub(crate) type Answer = Result<Value, Error>;

/// An error that is an answer.
pub(crate) fn raise(kind: Kind, message: impl Into<String>) -> Error {
    Error::new(kind, message)
}

/// A value.
#[derive(Clone, Debug, Default)]
pub(crate) enum Value {
    #[default]
    Undefined,
    None,
    Bool(bool),
    Int(i64),
    /// A whole number that needs more than 64 bits.
    Big(Rc<i128>),
    /// A whole number that needs more than 128 bits.
    Huge(Rc<BigInt>),
    Float(f64),
    Str(Rc<str>),
    /// A text that stands in the template.
    Lit(Arc<str>),
    /// A text that is not to be escaped any more.
    Markup(Rc<str>),
    Bytes(Rc<[u8]>),
    Seq(Rc<Seq>),
    Dict(Rc<Dict>),
    Stream(Rc<Stream>),
    Space(Rc<Space>),
    /// What the sandbox hides, and why: it looks undefined, and any use of it is refused.
    Forbidden(Rc<str>),
    /// A method that was looked up and not yet called.
    Method(Rc<(Value, String)>),
    Builtin(Builtin),
    Macro(Rc<Macro>),
    Cycler(Rc<Cycler>),
    Joiner(Rc<Joiner>),
    Loop(Rc<Loop>),
    /// The template itself, as `self`: its blocks by name; `None` if a block can only be written at its own place.
    Template(Rc<Blocks>),
    /// What a name holds that was not yet assigned to. No expression has this value.
    Unset,
}

/// The blocks of a template by name.
pub(crate) type Blocks = Vec<(String, Option<Rc<Macro>>)>;

/// A value as most operations look at it: the ways to keep a text or a number are one.
pub(crate) enum View<'a> {
    Undefined,
    Forbidden(&'a str),
    None,
    Bool(bool),
    Int(i128),
    /// A whole number that needs more than 128 bits.
    Huge(&'a BigInt),
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
#[inline]
pub(crate) fn view(value: &Value) -> View<'_> {
    match value {
        Value::Undefined | Value::Unset => View::Undefined,
        Value::None => View::None,
        Value::Bool(bool) => View::Bool(*bool),
        Value::Int(int) => View::Int((*int).into()),
        Value::Big(int) => View::Int(**int),
        Value::Huge(int) => View::Huge(int),
        Value::Float(float) => View::Float(*float),
        Value::Str(text) | Value::Markup(text) => View::Str(text),
        Value::Lit(text) => View::Str(text),
        Value::Bytes(bytes) => View::Bytes(bytes),
        Value::Seq(seq) => View::Seq(seq),
        Value::Dict(dict) => View::Dict(dict),
        Value::Stream(stream) => View::Stream(stream),
        Value::Space(space) => View::Space(space),
        Value::Forbidden(why) => View::Forbidden(why),
        _ => View::Other,
    }
}

impl Value {
    #[inline]
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(text) | Value::Markup(text) => Some(text),
            Value::Lit(text) => Some(text),
            _ => None,
        }
    }

    /// The text, if it is a plain one.
    #[inline]
    pub(crate) fn as_plain(&self) -> Option<&str> {
        match self {
            Value::Str(text) => Some(text),
            Value::Lit(text) => Some(text),
            _ => None,
        }
    }

    /// How many bytes a text has; 0 for everything else.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Value::Bytes(bytes) => bytes.len(),
            _ => self.as_str().map_or(0, str::len),
        }
    }

    /// Whether it is markup.
    pub(crate) fn is_safe(&self) -> bool {
        matches!(self, Value::Markup(_))
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }

    pub(crate) fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined | Value::Unset)
    }

    /// `bool(value)`.
    #[inline]
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Value::Undefined | Value::Unset | Value::None | Value::Forbidden(_) => false,
            Value::Bool(bool) => *bool,
            Value::Int(int) => *int != 0,
            Value::Float(float) => *float != 0.0,
            Value::Str(text) | Value::Markup(text) => !text.is_empty(),
            Value::Lit(text) => !text.is_empty(),
            Value::Bytes(bytes) => !bytes.is_empty(),
            Value::Seq(seq) => !seq.items.is_empty(),
            Value::Dict(dict) => !dict.entries.is_empty(),
            _ => true,
        }
    }

    pub(crate) fn markup(text: impl Into<Rc<str>>) -> Value {
        Value::Markup(text.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Str(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Str(text.into())
    }
}

impl From<bool> for Value {
    fn from(bool: bool) -> Value {
        Value::Bool(bool)
    }
}

impl From<i64> for Value {
    fn from(int: i64) -> Value {
        Value::Int(int)
    }
}

impl From<u32> for Value {
    fn from(int: u32) -> Value {
        Value::Int(int.into())
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Value {
        int(count as i128)
    }
}

impl From<f64> for Value {
    fn from(float: f64) -> Value {
        Value::Float(float)
    }
}

/// A whole number.
#[inline]
pub(crate) fn int(value: i128) -> Value {
    i64::try_from(value).map_or_else(|_| Value::Big(Rc::new(value)), Value::Int)
}

/// Equality of keys: as `==`, with what is no text, number or tuple equal to itself only.
pub(crate) fn same_key(cx: &Meter, left: &Value, right: &Value) -> bool {
    match (view(left), view(right)) {
        (View::Str(left), View::Str(right)) => left == right,
        (View::None, View::None) | (View::Undefined, View::Undefined) => true,
        (View::Bytes(left), View::Bytes(right)) => left == right,
        (View::Seq(left), View::Seq(right)) => {
            std::ptr::eq(left, right)
                || cx.charge(left.items.len()).is_ok()
                    && left.kind == right.kind
                    && left.items.len() == right.items.len()
                    && left.items.iter().zip(&right.items).all(|(left, right)| same_key(cx, left, right))
        }
        _ => match (number(left), number(right)) {
            (Some(left), Some(right)) => left == right,
            _ => address(left).is_some() && address(left) == address(right),
        },
    }
}

/// The hash of a key: keys that are [`same_key`] have the same one.
pub(crate) fn hash_of(cx: &Meter, hasher: &RandomState, key: &Value) -> u64 {
    let mut state = hasher.build_hasher();
    match view(key) {
        View::Str(text) => return hasher.hash_one(text),
        View::Bytes(bytes) => bytes.hash(&mut state),
        // where that is more than a render may read, the next charge says so
        View::Seq(seq) if cx.charge(seq.items.len()).is_ok() => {
            seq.items.iter().for_each(|item| hash_of(cx, hasher, item).hash(&mut state));
        }
        View::Seq(_) => (),
        _ => number(key).hash(&mut state),
    }
    state.finish()
}

/// A number as a key: whole ones by their value, others by their bits.
#[derive(Hash, PartialEq)]
enum NumberKey {
    Int(i128),
    Huge(BigInt),
    Bits(u64),
}

fn number(value: &Value) -> Option<NumberKey> {
    match view(value) {
        View::Bool(bool) => Some(NumberKey::Int(bool.into())),
        View::Int(int) => Some(NumberKey::Int(int)),
        View::Huge(huge) => Some(NumberKey::Huge(huge.clone())),
        View::Float(float) if float.fract() == 0.0 && float.abs() < 1e18 => {
            Some(NumberKey::Int(float as i128))
        }
        View::Float(float) if float.fract() == 0.0 => {
            let whole = big::from_float(float);
            Some(whole.to_i128().map_or_else(|| NumberKey::Huge(whole), NumberKey::Int))
        }
        View::Float(float) => Some(NumberKey::Bits(float.to_bits())),
        _ => None,
    }
}

/// Where a value lies that is equal to itself only.
pub(crate) fn address(value: &Value) -> Option<usize> {
    Some(match value {
        Value::Seq(seq) => Rc::as_ptr(seq) as usize,
        Value::Dict(dict) => Rc::as_ptr(dict) as usize,
        Value::Stream(stream) => Rc::as_ptr(stream) as usize,
        Value::Space(space) => Rc::as_ptr(space) as usize,
        Value::Macro(of) => Rc::as_ptr(of) as usize,
        Value::Builtin(builtin) => *builtin as usize,
        _ => return None,
    })
}

/// How deep `value` is: 0 for what holds nothing.
pub(crate) fn depth_of(value: &Value) -> Result<usize, Error> {
    Ok(match value {
        Value::Seq(seq) => seq.depth,
        Value::Dict(dict) => dict.depth,
        Value::Stream(stream) => stream.depth,
        Value::Method(method) => depth_of(&method.0)? + 1,
        Value::Cycler(cycler) => cycler.depth,
        Value::Loop(_) => return Err(Error::new(Kind::Unsupported, "a loop cannot be kept in a value")),
        _ => 0,
    })
}

/// Python's name of a value's type.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match view(value) {
        View::Undefined | View::Forbidden(_) => "Undefined",
        View::None => "NoneType",
        View::Bool(_) => "bool",
        View::Int(_) | View::Huge(_) => "int",
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

/// The error of what the sandbox hides.
pub(crate) fn forbidden(why: &str) -> Error {
    Error::new(Kind::Security, why)
}

/// What using an undefined value says, where nobody knows what it was called.
pub(crate) const UNDEFINED: &str = "an undefined value is used";

/// The error of using an undefined value, if `value` is one.
#[inline]
pub(crate) fn defined(value: &Value) -> Result<(), Error> {
    match value {
        Value::Undefined | Value::Unset => Err(Error::new(Kind::Undefined, UNDEFINED)),
        Value::Forbidden(why) => Err(forbidden(why)),
        _ => Ok(()),
    }
}

/// An integer argument, by Python's `operator.index`; the nearest of 128 bits where it has more.
pub(crate) fn index(value: &Value) -> Result<i128, Error> {
    match view(value) {
        View::Int(int) => Ok(int),
        View::Huge(huge) => Ok(if huge.sign() == Sign::Minus { i128::MIN } else { i128::MAX }),
        View::Bool(bool) => Ok(bool.into()),
        _ => {
            let name = type_name(value);
            Err(Error::new(Kind::Type, format!("'{name}' object cannot be interpreted as an integer")))
        }
    }
}

/// `text` as markup if `like` is, else as plain text.
pub(crate) fn text_like(cx: &Context, like: &Value, text: impl Into<Rc<str>>) -> Answer {
    let text: Rc<str> = text.into();
    cx.charge(text.len())?;
    Ok(if like.is_safe() { Value::Markup(text) } else { Value::Str(text) })
}

/// A part of the text `of`: `of` itself where nothing is left out.
pub(crate) fn part_of(cx: &Context, of: &Value, part: &str) -> Answer {
    if part.len() == of.text_bytes() { Ok(of.clone()) } else { text_like(cx, of, part) }
}

/// A plain text.
pub(crate) fn text(cx: &Context, text: String) -> Answer {
    cx.charge(text.len())?;
    Ok(Value::from(text))
}
