//! The moments of a run in a checkpoint: a file a rank.
//!
//! ```text
//! optimizer-00001-of-00002.safetensors    optim.NAME[0:8,0:64]     rows 0 to 8 of 16, all 64 columns
//! optimizer-00002-of-00002.safetensors    optim.NAME[8:16,0:64]
//! ```
//!
//! A tensor's name says which rectangle of the moment it is, as numpy writes it; one without is the whole moment. So a
//! checkpoint is read without knowing how the ranks that wrote it lay, and by any number of others. Every element has
//! to
//! be there once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use challenges::fsdp::Slice;
use challenges::train::Moments;
use reference::checkpoint::{Checkpoint, Tensor};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype};
use reference::lora::serialize;

/// The name of a rank's file.
pub fn file_name(rank: usize, ranks: usize) -> String {
    format!("{PREFIX}{:05}-of-{ranks:05}.safetensors", rank + 1)
}

/// What every such name begins with.
pub const PREFIX: &str = "optimizer-";

/// The moments of a rank as a file.
pub fn to_file(moments: Moments) -> Vec<u8> {
    match moments {
        Moments::Whole(values) => serialize(&values),
        Moments::Slices(slices) => serialize(&slices.into_iter().map(named).collect()),
    }
}

fn named(Slice { name, rows, columns, bytes }: Slice) -> (String, Array<f32>) {
    let name = format!("{name}[{}:{},{}:{}]", rows.start, rows.end, columns.start, columns.end);
    (name, Array::from_memory(Dtype::F32, &[rows.len(), columns.len()], &bytes))
}

/// A moment while it is put together.
struct Whole {
    shape: Vec<usize>,
    elements: Vec<f32>,
    is_there: Vec<bool>,
}

/// The moments of such names and shapes from the files of all ranks.
///
/// Fails, with the name of the file, where one has something else, or lacks something.
pub fn read(
    folder: &Path,
    files: &[String],
    shapes: impl Iterator<Item = (String, Vec<usize>)>,
) -> Result<Values<f32>, String> {
    let mut all: BTreeMap<String, Whole> = shapes.map(|(name, shape)| (name, Whole::new(shape))).collect();
    for file in files {
        let stored = Checkpoint::open(folder.join(file)).map_err(|error| error.to_string())?;
        for name in stored.names() {
            let tensor = stored.tensor(name).map_err(|error| error.to_string())?;
            place(&mut all, name, &tensor).map_err(|reason| format!("{file}: {reason}"))?;
        }
    }
    let named = files.join(", ");
    if let Some((name, _)) = all.iter().find(|(_, whole)| whole.is_there.contains(&false)) {
        return Err(format!("{named}: expected every element of {name}, found some of them"));
    }
    Ok(all.into_iter().map(|(name, whole)| (name, whole.finish())).collect())
}

/// Puts a tensor of a file where its name says.
fn place(all: &mut BTreeMap<String, Whole>, stored: &str, tensor: &Tensor<'_>) -> Result<(), String> {
    let (name, bounds) = match stored.strip_suffix(']').and_then(|name| name.rsplit_once('[')) {
        Some((name, bounds)) => (name, Some(bounds)),
        None => (stored, None),
    };
    let whole =
        all.get_mut(name).ok_or_else(|| format!("expected moments of the adapter, found {stored}"))?;
    let [rows, columns] = match bounds {
        Some(bounds) => rectangle(bounds).ok_or_else(|| format!("expected NAME[A:B,C:D], found {stored}"))?,
        None => whole.all(),
    };
    let shape = if bounds.is_some() { vec![rows.len(), columns.len()] } else { whole.shape.clone() };
    let [height, width] = whole.size();
    if tensor.shape != shape || tensor.bytes.len() != 4 * rows.len() * columns.len() {
        return Err(format!("expected {stored} in f32 of {shape:?}, found {:?}", tensor.shape));
    }
    if rows.end > height || columns.end > width {
        return Err(format!("expected a part of {height} by {width} elements, found {stored}"));
    }
    let mut elements = tensor.bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four));
    for at in rows.flat_map(|row| columns.clone().map(move |column| row * width + column)) {
        whole.elements[at] = elements.next().unwrap_or_default();
        if std::mem::replace(&mut whole.is_there[at], true) {
            return Err(format!("expected each element once, found some of {stored} again"));
        }
    }
    Ok(())
}

/// `A:B,C:D`.
fn rectangle(text: &str) -> Option<[Range<usize>; 2]> {
    let (rows, columns) = text.split_once(',')?;
    let range = |text: &str| {
        let (start, end) = text.split_once(':')?;
        let (start, end) = (start.parse().ok()?, end.parse().ok()?);
        (start <= end).then_some(start..end)
    };
    Some([range(rows)?, range(columns)?])
}

impl Whole {
    fn new(shape: Vec<usize>) -> Self {
        let count = shape.iter().product();
        Self { shape, elements: vec![0.0; count], is_there: vec![false; count] }
    }

    /// Rows, and elements of each.
    fn size(&self) -> [usize; 2] {
        [self.shape.first().copied().unwrap_or(1), self.shape.iter().skip(1).product()]
    }

    fn all(&self) -> [Range<usize>; 2] {
        self.size().map(|size| 0..size)
    }

    fn finish(self) -> Array<f32> {
        let elements = self.elements.into_iter().map(f64::from);
        Array::floats(Dtype::F32, &self.shape, elements)
    }
}
