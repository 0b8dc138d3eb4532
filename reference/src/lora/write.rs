//! Writing an adapter's files so that no half of one is ever seen.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use safetensors::tensor::{Dtype, TensorView, serialize};

use crate::graph::interpret::Values;

/// Tensors of f32 as a safetensors file, marked as torch's own are.
pub(super) fn tensors(values: &Values<f32>) -> Vec<u8> {
    let bytes = |(name, value): (&String, &crate::graph::Array<f32>)| {
        let bytes: Vec<u8> = value.as_floats().iter().flat_map(|x| x.to_le_bytes()).collect();
        (name.clone(), value.shape.clone(), bytes)
    };
    let parts: Vec<_> = values.iter().map(bytes).collect();
    let mark = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    serialize(parts.iter().map(view), Some(mark)).expect("names and shapes are texts and numbers")
}

fn view((name, shape, bytes): &(String, Vec<usize>, Vec<u8>)) -> (String, TensorView<'_>) {
    (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).expect("four bytes an element"))
}

/// Writes a file beside its place and then renames it into it.
pub(super) fn whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = fill(&aside, bytes).and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        let _ = fs::remove_file(&aside); // the reason is the one above
    }
    written
}

fn fill(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
