//! The figure of challenge D's files: the map of one that the solution writes.

use challenges::issues::gguf::{Architecture, Model, Solution, Source, TextModel, write};
use figures::file::{Kind, Part, map};
use reference::checkpoint::gguf::{Gguf, Info, TensorType, Value};
use reference::llama::{Config, Rope, Scaling};

use crate::figure::Drawn;

/// Bytes before the first key: four letters, the version, and two counts.
const HEADER: usize = 4 + 4 + 8 + 8;

/// The file of a Llama of one layer.
pub(crate) fn file() -> Result<Drawn, String> {
    let svg = map("A GGUF file from its first byte to its last", &parts()?);
    let caption = "A Llama of one layer in Q8_0, as D.19 to D.21 write it, without the keys of a tokenizer. Above to scale; below \
                   the byte that each part begins at, and how many it has. An entry's last number is its tensor's offset, which counts from the data.";
    Ok(("gguf-file", caption, svg.ok_or("the parts of the file do not follow each other")?))
}

/// What stands in the file, from byte 0 on.
///
/// # Errors
/// What keeps the file from being written, or its parts from being found in it.
pub fn parts() -> Result<Vec<Part>, String> {
    let bytes = written()?;
    let file = Gguf::from_bytes(bytes.clone()).map_err(|error| error.to_string())?;
    let place = |name: &str| place(&bytes[..file.data_offset()], name);
    let (keys, tensors) = (file.keys(), file.tensors());
    let words = format!("GGUF, version {}, {} tensors, {} keys", file.version(), tensors.len(), keys.len());
    let mut begins = vec![(0, Kind::Header, words)];
    for (name, value) in keys {
        begins.push((place(name)?, Kind::Key, format!("{name} {}", said(value))));
    }
    for tensor in tensors {
        begins.push((place(&tensor.name)?, Kind::Entry, entry(tensor, file.data_offset())));
    }
    let end = match tensors.last() {
        Some(tensor) => place(&tensor.name)? + entry_bytes(tensor),
        None => HEADER,
    };
    begins.push((end, Kind::Padding, "zeros".into()));
    for Info { name, bytes, .. } in tensors {
        begins.push((bytes.start, Kind::Data, name.clone()));
        begins.push((bytes.end, Kind::Padding, "zeros".into()));
    }
    let ends: Vec<usize> = begins.iter().skip(1).map(|(begin, ..)| *begin).chain([bytes.len()]).collect();
    let part = |((begin, kind, words), end): ((usize, Kind, String), usize)| {
        let bytes = end.checked_sub(begin).ok_or_else(|| format!("{words}: it ends at {end}"))?;
        Ok(Part { kind, begin, bytes, words })
    };
    let parts: Vec<Part> = begins.into_iter().zip(ends).map(part).collect::<Result<_, String>>()?;
    Ok(parts.into_iter().filter(|part| part.bytes > 0).collect())
}

/// Where a name stands with its length before it; no two names of a file are one.
fn place(front: &[u8], name: &str) -> Result<usize, String> {
    let string = [&(name.len() as u64).to_le_bytes(), name.as_bytes()].concat();
    let place = front.windows(string.len()).position(|window| window == string);
    place.ok_or_else(|| format!("{name} is not in the file"))
}

/// Bytes of an entry: its name, its sizes, its type, its offset.
fn entry_bytes(tensor: &Info) -> usize {
    8 + tensor.name.len() + 4 + 8 * tensor.sizes.len() + 4 + 8
}

fn entry(tensor: &Info, data: usize) -> String {
    let Info { name, ty, sizes, bytes } = tensor;
    format!("{name} {sizes:?} {ty} +{}", bytes.start - data)
}

/// A value with its type.
fn said(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::U32(number) => format!("u32 {number}"),
        Value::F32(number) => format!("f32 {number}"),
        other => other.to_string(),
    }
}

/// The file's bytes.
fn written() -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let model = model();
    let source = Small(model.config.clone());
    write(&Solution, Model::Text(&model), &source, &[], &mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn model() -> TextModel {
    TextModel {
        name: "small".into(),
        architecture: Architecture::Llama,
        config: Config {
            vocab: 32,
            hidden: 64,
            intermediate: 96,
            layers: 1,
            heads: 8,
            key_heads: 4,
            head_dim: 8,
            positions: 1024,
            norm_eps: 1e-5,
            rope: Rope {
                theta: 10_000.0,
                scaling: Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 256 },
            },
            tied: false,
            quantized: false,
            classifier: None,
            images: None,
        },
        stored: TensorType::Q8_0,
    }
}

/// A checkpoint whose numbers are of no account here.
struct Small(Config);

impl Source for Small {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        self.0.tensor_specs().into_iter().map(|spec| (spec.name, spec.shape)).collect()
    }

    fn numbers(&self, name: &str) -> Result<Vec<f32>, String> {
        let specs = self.0.tensor_specs();
        let spec = specs.iter().find(|spec| spec.name == name).ok_or("there is no such tensor")?;
        Ok((0..spec.shape.iter().product::<usize>()).map(|i| (i % 7) as f32 - 3.0).collect())
    }
}
