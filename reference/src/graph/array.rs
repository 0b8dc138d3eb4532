//! Tensors of numbers, as the interpreter holds them.

use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Sub};

use half::{bf16, f16};

use super::Dtype;

/// The numbers that stand for floats: f32, where every value is rounded to its declared type, or f64, where nothing
/// is rounded and the result is the truth that roundings are measured against.
pub trait Real:
    Copy
    + Default
    + fmt::Debug
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Send
    + Sync
    + 'static
{
    /// The nearest number.
    #[must_use]
    fn of(value: f64) -> Self;
    /// As an f64, exactly.
    fn wide(self) -> f64;
    /// The nearest value of a type of floats, rounded once; the nearest number where nothing is rounded further.
    #[must_use]
    fn nearest(value: f64, dtype: Dtype) -> Self;
    /// The nearest value of a type of floats, ties to even; the same where nothing is rounded.
    #[must_use]
    fn round_to(self, dtype: Dtype) -> Self;
    /// e^x
    #[must_use]
    fn exp(self) -> Self;
    /// ln x
    #[must_use]
    fn ln(self) -> Self;
    /// The square root.
    #[must_use]
    fn sqrt(self) -> Self;
    /// The hyperbolic tangent.
    #[must_use]
    fn tanh(self) -> Self;
    /// sin x
    #[must_use]
    fn sin(self) -> Self;
    /// cos x
    #[must_use]
    fn cos(self) -> Self;
}

/// What both kinds of floats have under the same name.
macro_rules! functions {
    ($type:ty) => {
        fn exp(self) -> Self {
            <$type>::exp(self)
        }
        fn ln(self) -> Self {
            <$type>::ln(self)
        }
        fn sqrt(self) -> Self {
            <$type>::sqrt(self)
        }
        fn tanh(self) -> Self {
            <$type>::tanh(self)
        }
        fn sin(self) -> Self {
            <$type>::sin(self)
        }
        fn cos(self) -> Self {
            <$type>::cos(self)
        }
    };
}

impl Real for f32 {
    fn of(value: f64) -> Self {
        value as f32
    }
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn nearest(value: f64, dtype: Dtype) -> Self {
        if dtype == Dtype::F32 { value as f32 } else { to_odd(value).round_to(dtype) }
    }
    fn round_to(self, dtype: Dtype) -> Self {
        match dtype {
            Dtype::F16 => f16::from_f32(self).to_f32(),
            Dtype::Bf16 => bf16::from_f32(self).to_f32(),
            Dtype::F32 | Dtype::U8 | Dtype::I32 => self,
        }
    }
    functions!(f32);
}

impl Real for f64 {
    fn of(value: f64) -> Self {
        value
    }
    fn wide(self) -> f64 {
        self
    }
    fn nearest(value: f64, _: Dtype) -> Self {
        value
    }
    fn round_to(self, _: Dtype) -> Self {
        self
    }
    functions!(f64);
}

/// As an f32 that a narrower type rounds as it would round the value itself: of the two neighbours of a value between
/// them, the one whose last bit is 1, which is no tie. From Boldo and Melquiond, "When double rounding is odd" (2005).
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near).to_bits() == value.to_bits() || near.is_nan() {
        return near;
    }
    let beyond = u32::from(f64::from(near).abs() > value.abs());
    f32::from_bits((near.to_bits() - beyond) | 1)
}

/// A tensor of numbers, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<R> {
    /// The declared type of each element; what `data` holds of it is a float for f16 and bf16.
    pub dtype: Dtype,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// The elements.
    pub data: Data<R>,
}

/// Elements.
#[derive(Clone, Debug, PartialEq)]
pub enum Data<R> {
    /// Of f32, f16 and bf16.
    Float(Vec<R>),
    /// Of u8.
    U8(Vec<u8>),
    /// Of i32.
    I32(Vec<i32>),
}

impl<R: Real> Array<R> {
    /// Floats of a type, rounded to it.
    ///
    /// # Panics
    /// If the shape has another number of elements.
    pub fn floats(dtype: Dtype, shape: &[usize], values: impl IntoIterator<Item = f64>) -> Self {
        let data = Data::Float(values.into_iter().map(|value| R::nearest(value, dtype)).collect());
        Self::new(dtype, shape, data)
    }

    /// Integers.
    ///
    /// # Panics
    /// If the shape has another number of elements.
    pub fn integers(shape: &[usize], values: Vec<i32>) -> Self {
        Self::new(Dtype::I32, shape, Data::I32(values))
    }

    /// Bytes.
    ///
    /// # Panics
    /// If the shape has another number of elements.
    pub fn bytes(shape: &[usize], values: Vec<u8>) -> Self {
        Self::new(Dtype::U8, shape, Data::U8(values))
    }

    pub(super) fn new(dtype: Dtype, shape: &[usize], data: Data<R>) -> Self {
        let array = Self { dtype, shape: shape.to_vec(), data };
        assert_eq!(array.data.len(), shape.iter().product::<usize>(), "elements of shape {shape:?}");
        array
    }

    /// A number without dimensions.
    pub fn scalar(value: f64) -> Self {
        Self::floats(Dtype::F32, &[], [value])
    }

    /// The floats; none if it holds something else.
    pub fn as_floats(&self) -> &[R] {
        if let Data::Float(values) = &self.data { values } else { &[] }
    }

    /// The integers; none if it holds something else.
    pub fn as_integers(&self) -> &[i32] {
        if let Data::I32(values) = &self.data { values } else { &[] }
    }

    /// The bytes; none if it holds something else.
    pub fn as_bytes(&self) -> &[u8] {
        if let Data::U8(values) = &self.data { values } else { &[] }
    }

    /// Every element as an f64.
    pub fn wide(&self) -> Vec<f64> {
        match &self.data {
            Data::Float(values) => values.iter().map(|value| value.wide()).collect(),
            Data::U8(values) => values.iter().map(|value| f64::from(*value)).collect(),
            Data::I32(values) => values.iter().map(|value| f64::from(*value)).collect(),
        }
    }

    /// Where its first element lies in memory.
    pub fn address(&self) -> usize {
        match &self.data {
            Data::Float(values) => values.as_ptr().addr(),
            Data::U8(values) => values.as_ptr().addr(),
            Data::I32(values) => values.as_ptr().addr(),
        }
    }

    /// Whether shape, type and data fit each other: what an array from outside has to be asked.
    pub fn is_sound(&self) -> bool {
        let kind = match self.data {
            Data::Float(_) => self.dtype.is_float(),
            Data::U8(_) => self.dtype == Dtype::U8,
            Data::I32(_) => self.dtype == Dtype::I32,
        };
        let count = self.shape.iter().try_fold(1_usize, |count, dim| count.checked_mul(*dim));
        kind && count == Some(self.data.len())
    }
}

impl Array<f32> {
    /// The same numbers in f64.
    pub fn widened(&self) -> Array<f64> {
        let data = match &self.data {
            Data::Float(values) => Data::Float(values.iter().map(|value| f64::from(*value)).collect()),
            Data::U8(values) => Data::U8(values.clone()),
            Data::I32(values) => Data::I32(values.clone()),
        };
        Array { dtype: self.dtype, shape: self.shape.clone(), data }
    }

    /// The elements as memory has them, in this machine's byte order.
    pub fn to_memory(&self) -> Vec<u8> {
        let mut memory = Vec::with_capacity(self.data.len() * self.dtype.bytes());
        let floats = self.as_floats().iter();
        match self.dtype {
            Dtype::F32 => floats.for_each(|x| memory.extend(x.to_ne_bytes())),
            Dtype::F16 => floats.for_each(|x| memory.extend(f16::from_f32(*x).to_ne_bytes())),
            Dtype::Bf16 => floats.for_each(|x| memory.extend(bf16::from_f32(*x).to_ne_bytes())),
            Dtype::U8 => memory.extend(self.as_bytes()),
            Dtype::I32 => self.as_integers().iter().for_each(|x| memory.extend(x.to_ne_bytes())),
        }
        memory
    }

    /// From elements as memory has them.
    ///
    /// # Panics
    /// If the shape has another number of elements.
    pub fn from_memory(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Self {
        let floats = |values: Vec<f32>| Self::new(dtype, shape, Data::Float(values));
        let (twos, fours) = (|| bytes.as_chunks::<2>().0.iter(), || bytes.as_chunks::<4>().0.iter());
        match dtype {
            Dtype::F32 => floats(fours().map(|x| f32::from_ne_bytes(*x)).collect()),
            Dtype::F16 => floats(twos().map(|x| f16::from_ne_bytes(*x).to_f32()).collect()),
            Dtype::Bf16 => floats(twos().map(|x| bf16::from_ne_bytes(*x).to_f32()).collect()),
            Dtype::U8 => Self::bytes(shape, bytes.to_vec()),
            Dtype::I32 => Self::integers(shape, fours().map(|x| i32::from_ne_bytes(*x)).collect()),
        }
    }
}

impl<R> Data<R> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Data::Float(values) => values.len(),
            Data::U8(values) => values.len(),
            Data::I32(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
