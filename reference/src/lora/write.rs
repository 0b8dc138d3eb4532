//! Tensors as a file.

use std::collections::HashMap;

use safetensors::tensor::{self, Dtype, TensorView};

use crate::graph::interpret::Values;

/// Tensors of f32 as a safetensors file, marked as torch's own are.
pub fn serialize(values: &Values<f32>) -> Vec<u8> {
    serialize_with(values, &[])
}

/// [`serialize`], with further entries of the file's metadata.
pub(super) fn serialize_with(values: &Values<f32>, more: &[(&str, &str)]) -> Vec<u8> {
    let bytes = |(name, value): (&String, &crate::graph::Array<f32>)| {
        let bytes: Vec<u8> = value.as_floats().iter().flat_map(|x| x.to_le_bytes()).collect();
        (name.clone(), value.shape.clone(), bytes)
    };
    let parts: Vec<_> = values.iter().map(bytes).collect();
    let entries = [("format", "pt")].iter().chain(more);
    let mark: HashMap<String, String> =
        entries.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    tensor::serialize(parts.iter().map(view), Some(mark)).expect("names and shapes are texts and numbers")
}

fn view((name, shape, bytes): &(String, Vec<usize>, Vec<u8>)) -> (String, TensorView<'_>) {
    (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).expect("four bytes an element"))
}
