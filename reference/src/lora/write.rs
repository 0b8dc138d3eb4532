//! Tensors as a file.

use std::collections::HashMap;

use safetensors::tensor::{self, Dtype, TensorView};
use serde_json::Value;

use crate::graph::interpret::Values;

/// Tensors of f32 as a safetensors file, marked as torch's own are.
pub fn serialize(values: &Values<f32>) -> Vec<u8> {
    let bytes = |(name, value): (&String, &crate::graph::Array<f32>)| {
        let bytes: Vec<u8> = value.as_floats().iter().flat_map(|x| x.to_le_bytes()).collect();
        (name.clone(), value.shape.clone(), bytes)
    };
    let parts: Vec<_> = values.iter().map(bytes).collect();
    let mark = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    tensor::serialize(parts.iter().map(view), Some(mark)).expect("names and shapes are texts and numbers")
}

/// [`serialize`], with a further entry of the file's metadata. The library writes several entries in a random order;
/// equal tensors must make equal files, so the entry is added to the header afterwards.
pub(super) fn serialize_with(values: &Values<f32>, (key, value): (&str, &str)) -> Vec<u8> {
    let file = serialize(values);
    let (length, rest) = file.split_first_chunk().expect("a length");
    let (header, tensors) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header: Value = serde_json::from_slice(header).expect("the library writes JSON");
    header["__metadata__"][key] = value.into();
    let mut header = header.to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' '); // the tensors begin at a multiple of eight
    [&(header.len() as u64).to_le_bytes(), header.as_slice(), tensors].concat()
}

fn view((name, shape, bytes): &(String, Vec<usize>, Vec<u8>)) -> (String, TensorView<'_>) {
    (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).expect("four bytes an element"))
}
