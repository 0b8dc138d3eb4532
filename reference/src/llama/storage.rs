//! How a weight is stored, and what is stored of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use half::{bf16, f16};

use crate::graph::{Array, Dtype, Real};

/// How a weight is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// As numbers.
    Dense(Dtype),
    /// In NF4.
    Nf4 {
        /// The type that it had before, and is decoded to.
        dtype: Dtype,
        /// Elements that share one absmax.
        block_size: usize,
        /// Codes that share one second-level scale, if there is a second level.
        nested: Option<usize>,
    },
}

/// How every weight of a model is stored, by its name.
pub type Storages = BTreeMap<String, Storage>;

/// A weight that a model needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name in a checkpoint.
    pub name: String,
    /// Its dimensions: (out, in) of a projection.
    pub shape: Vec<usize>,
    /// Whether it may be stored in NF4: the embedding and the norms may not.
    pub quantizable: bool,
}

/// An input of a model's graphs, as its checkpoint stores it.
#[derive(Clone, Debug)]
pub struct StoredInput<'a> {
    /// The name of the input.
    pub name: String,
    /// The type of each element.
    pub dtype: Dtype,
    /// Dimensions, row-major.
    pub shape: Vec<usize>,
    /// The elements, little endian and aligned to nothing: borrowed from the mapped file, but for the four bytes of an
    /// [`Part::NestedOffset`](crate::nf4::Part::NestedOffset), which no file has as a tensor.
    pub bytes: Cow<'a, [u8]>,
}

/// Stored elements as numbers.
pub(super) fn array<R: Real>(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Array<R> {
    let (twos, fours) = (|| bytes.as_chunks().0.iter(), || bytes.as_chunks().0.iter());
    let halves = |value: fn([u8; 2]) -> f32| twos().map(move |two| f64::from(value(*two)));
    match dtype {
        Dtype::F32 => Array::floats(dtype, shape, fours().map(|four| f64::from(f32::from_le_bytes(*four)))),
        Dtype::F16 => Array::floats(dtype, shape, halves(|two| f16::from_le_bytes(two).to_f32())),
        Dtype::Bf16 => Array::floats(dtype, shape, halves(|two| bf16::from_le_bytes(two).to_f32())),
        Dtype::U8 => Array::bytes(shape, bytes.to_vec()),
        Dtype::I32 => Array::integers(shape, fours().map(|four| i32::from_le_bytes(*four)).collect()),
    }
}
