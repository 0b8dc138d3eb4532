//! What a key says.

use std::fmt;

use super::Problem;
use super::cursor::Cursor;

/// Arrays in arrays that are read.
const DEEPEST: usize = 8;

/// The type of a value, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // their names are their meaning
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

/// One of all types.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // their names are their meaning
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// Many of one type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // their names are their meaning
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl ValueType {
    /// All of them, each at its number.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    fn read(cursor: &mut Cursor) -> Result<Self, Problem> {
        let got = cursor.u32()?;
        Self::ALL.get(got as usize).copied().ok_or(Problem::ValueType { got })
    }

    /// The fewest bytes of one in an array.
    fn least(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::String | Self::U64 | Self::I64 | Self::F64 => 8,
            Self::Array => 12, // its type and its length
        }
    }
}

/// Calls a macro with every type but arrays: its name, and the cursor's function.
macro_rules! each_plain {
    ($then:ident) => {
        $then! {
            U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, F32 f32, Bool boolean, String string, U64 u64, I64 i64,
            F64 f64
        }
    };
}

impl Value {
    pub(super) fn read(cursor: &mut Cursor) -> Result<Self, Problem> {
        let ty = ValueType::read(cursor)?;
        macro_rules! read {
            ($($variant:ident $read:ident),+) => {
                match ty {
                    $(ValueType::$variant => Value::$variant(cursor.$read()?),)+
                    ValueType::Array => Value::Array(Array::read(cursor, DEEPEST)?),
                }
            };
        }
        Ok(each_plain!(read))
    }

    /// Its type.
    pub fn ty(&self) -> ValueType {
        macro_rules! ty {
            ($($variant:ident $read:ident),+) => {
                match self {
                    $(Value::$variant(_) => ValueType::$variant,)+
                    Value::Array(_) => ValueType::Array,
                }
            };
        }
        each_plain!(ty)
    }

    /// A whole number of any type, if it is one that is not below 0.
    pub fn whole(&self) -> Option<u64> {
        match *self {
            Value::U8(x) => Some(x.into()),
            Value::U16(x) => Some(x.into()),
            Value::U32(x) => Some(x.into()),
            Value::U64(x) => Some(x),
            Value::I8(x) => x.try_into().ok(),
            Value::I16(x) => x.try_into().ok(),
            Value::I32(x) => x.try_into().ok(),
            Value::I64(x) => x.try_into().ok(),
            _ => None,
        }
    }

    /// A number with a fraction.
    pub fn float(&self) -> Option<f64> {
        match *self {
            Value::F32(x) => Some(x.into()),
            Value::F64(x) => Some(x),
            _ => None,
        }
    }

    /// A string.
    pub fn text(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }
}

impl Array {
    /// `deep` arrays may be in each other.
    fn read(cursor: &mut Cursor, deep: usize) -> Result<Self, Problem> {
        if deep == 0 {
            return Err(Problem::Nested { limit: DEEPEST });
        }
        let ty = ValueType::read(cursor)?;
        let count = cursor.u64()?;
        let count = cursor.count("items of an array", count, ty.least())?;
        macro_rules! read {
            ($($variant:ident $read:ident),+) => {
                match ty {
                    $(ValueType::$variant => Array::$variant((0..count).map(|_| cursor.$read()).collect::<Result<_, _>>()?),)+
                    ValueType::Array => {
                        Array::Array((0..count).map(|_| Array::read(cursor, deep - 1)).collect::<Result<_, _>>()?)
                    }
                }
            };
        }
        Ok(each_plain!(read))
    }

    /// The type of its items.
    pub fn ty(&self) -> ValueType {
        macro_rules! ty {
            ($($variant:ident $read:ident),+) => {
                match self {
                    $(Array::$variant(_) => ValueType::$variant,)+
                    Array::Array(_) => ValueType::Array,
                }
            };
        }
        each_plain!(ty)
    }

    /// How many items it has.
    pub fn len(&self) -> usize {
        macro_rules! len {
            ($($variant:ident $read:ident),+) => {
                match self { $(Array::$variant(items) => items.len(),)+ Array::Array(items) => items.len() }
            };
        }
        each_plain!(len)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Cursor<'_> {
    fn boolean(&mut self) -> Result<bool, Problem> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            got => Err(Problem::Boolean { got }),
        }
    }
}

/// Bytes of a value as a file has them, little endian, without its type.
pub(super) fn bytes(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::Bool(x) => to.push((*x).into()),
        Value::String(text) => string(text, to),
        Value::Array(array) => array_bytes(array, to),
        Value::U8(x) => to.extend(x.to_le_bytes()),
        Value::I8(x) => to.extend(x.to_le_bytes()),
        Value::U16(x) => to.extend(x.to_le_bytes()),
        Value::I16(x) => to.extend(x.to_le_bytes()),
        Value::U32(x) => to.extend(x.to_le_bytes()),
        Value::I32(x) => to.extend(x.to_le_bytes()),
        Value::F32(x) => to.extend(x.to_le_bytes()),
        Value::U64(x) => to.extend(x.to_le_bytes()),
        Value::I64(x) => to.extend(x.to_le_bytes()),
        Value::F64(x) => to.extend(x.to_le_bytes()),
    }
}

fn array_bytes(array: &Array, to: &mut Vec<u8>) {
    to.extend((array.ty() as u32).to_le_bytes());
    to.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::Bool(all) => to.extend(all.iter().map(|x| u8::from(*x))),
        Array::String(all) => all.iter().for_each(|text| string(text, to)),
        Array::Array(all) => all.iter().for_each(|array| array_bytes(array, to)),
        Array::U8(all) => to.extend(all),
        Array::I8(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::U16(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::I16(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::U32(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::I32(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::F32(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::U64(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::I64(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::F64(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
    }
}

/// A string as a file has it.
pub(super) fn string(text: &str, to: &mut Vec<u8>) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Array(array) => write!(f, "{} items of type {:?}", array.len(), array.ty()),
            Value::String(text) => write!(f, "{text:?}"),
            Value::U8(x) => x.fmt(f),
            Value::I8(x) => x.fmt(f),
            Value::U16(x) => x.fmt(f),
            Value::I16(x) => x.fmt(f),
            Value::U32(x) => x.fmt(f),
            Value::I32(x) => x.fmt(f),
            Value::F32(x) => x.fmt(f),
            Value::Bool(x) => x.fmt(f),
            Value::U64(x) => x.fmt(f),
            Value::I64(x) => x.fmt(f),
            Value::F64(x) => x.fmt(f),
        }
    }
}
