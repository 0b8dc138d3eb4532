//! An adapter as a separate GGUF file, which a reader applies to the model's file.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use challenges::issues::gguf::{Gguf as _, Solution, TextModel};
use reference::atomic_write;
use reference::checkpoint::gguf::{Content, TensorType, Value, Writer};
use reference::lora::{self, Adapter};

use super::super::range;
use super::fault::Fault;
use crate::output::Failure;

/// The pairs of an adapter, checked: W + alpha / r B A is what a reader computes.
pub(super) struct Pairs {
    keys: Vec<(String, Value)>,
    tensors: Vec<(Content, Vec<f32>)>,
}

impl Pairs {
    /// Checks that a GGUF adapter holds everything that is trained.
    pub fn check(model: &TextModel, adapter: &Adapter) -> Result<Self, Failure> {
        let config = &adapter.config;
        let whole = config.modules.tensors(&model.config).map_err(Failure::usage)?;
        if let Some(whole) = whole.first() {
            let need = "expected pairs of matrices alone: a GGUF adapter has nothing else; merge it instead";
            return Err(Failure::Usage(format!("{}: {need}", whole.name)));
        }
        let alpha = config.scale() * config.rank as f64;
        let text = |key: &str, text: &str| (key.to_owned(), Value::String(text.to_owned()));
        let keys = vec![
            text("general.architecture", model.architecture.name()),
            text("general.type", "adapter"),
            text("general.name", &model.name),
            text("adapter.type", "lora"),
            ("adapter.lora.alpha".to_owned(), Value::F32(alpha as f32)),
        ];
        let tensors = pairs(model, adapter);
        for (content, numbers) in &tensors {
            range::check_finite(numbers).map_err(|why| Failure::Usage(format!("{}: {why}", content.name)))?;
        }
        Ok(Self { keys, tensors })
    }

    /// Writes the file; the number of its tensors.
    pub fn write(&self, path: &Path) -> Result<usize, Failure> {
        let contents = self.tensors.iter().map(|(content, _)| content.clone()).collect();
        let fill = |file: &mut BufWriter<File>| {
            let wrong = |error| Fault::Export(challenges::issues::gguf::Error::File(error));
            let mut writer = Writer::begin(file, &self.keys, contents).map_err(wrong)?;
            for (content, numbers) in &self.tensors {
                writer.write(&Solution.quantize(content.ty, numbers)).map_err(wrong)?;
            }
            writer.finish();
            Ok(())
        };
        atomic_write::write_by(path, fill).map_err(|fault: Fault| fault.at(path))?;
        Ok(self.tensors.len())
    }
}

/// A and B of every weight, in f32. The rows of B are those of the weight, and stand as its rows do.
fn pairs(model: &TextModel, adapter: &Adapter) -> Vec<(Content, Vec<f32>)> {
    let trained = adapter.trained::<f32>();
    let mut all = Vec::new();
    for spec in model.config.tensor_specs() {
        let keys = lora::keys(spec.name.trim_end_matches(".weight"));
        let Some(piece) = Solution.text_tensor(model, &spec.name) else { continue };
        for (key, end) in keys.iter().zip(["lora_a", "lora_b"]) {
            let Some(matrix) = trained.get(key) else { continue };
            let numbers: Vec<f32> = matrix.wide().into_iter().map(|x| x as f32).collect();
            let as_stored = |rows, heads| Solution.rotary_rows(rows, heads);
            let arranged = match end {
                "lora_b" => piece.part.of(&numbers, &matrix.shape, as_stored),
                _ => Some(numbers),
            };
            let sizes = Solution.sizes(&matrix.shape);
            let content = Content { name: format!("{}.{end}", piece.name), ty: TensorType::F32, sizes };
            all.extend(arranged.map(|numbers| (content, numbers)));
        }
    }
    all
}
