//! `export --gguf`: a model as a GGUF file, by the steps of challenge D.
//!
//! ```text
//! a Llama             OUTPUT               with its adapter merged, if one is given; NF4 weights are decoded first
//! --only-adapter      OUTPUT               the adapter alone: lora_a and lora_b of each weight
//! sees images         OUTPUT, projector    the language model, and what sees: mmproj-OUTPUT, or --projector FILE
//! ```
//!
//! A file is complete or not there, and of two both or none. One that exists stays, but for `--overwrite`.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use challenges::issues::gguf::{Architecture, Gguf, Model, Solution, Source, TextModel, Written, write};
use clap::Args;
use reference::atomic_write;
use reference::checkpoint::gguf::{Content, TensorType, Value, Writer};
use reference::graph::interpret::Values;
use reference::llama::{Llama, hub};
use reference::lora::{self, Adapter};

use reference::issues::gguf::stored_as;

use super::projector::Seeing;
use super::{Export, Stored, four_bits, is_untied, own_numbers, range, vocabulary, with_adapter};
use crate::gguf_tokenizer;
use crate::model_files;
use crate::output::{Failure, print, warn};

/// The flags of a GGUF file.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flags of a GGUF file")]
pub(super) struct Flags {
    /// Writes a GGUF file
    #[arg(long)]
    pub gguf: bool,
    /// Writes the adapter alone, as a file that a reader applies to the model's
    #[arg(long, requires = "gguf", requires = "adapter")]
    only_adapter: bool,
    /// The folder of the tokenizer, if it is not the model's
    #[arg(long, value_name = "DIR", requires = "gguf")]
    tokenizer: Option<PathBuf>,
    /// What readers call the pattern that the tokenizer cuts texts by, if it is none that is known here
    #[arg(long, value_name = "NAME", requires = "gguf")]
    pre: Option<String>,
    /// The file of what sees [default: mmproj-OUTPUT, beside it]
    #[arg(long, value_name = "FILE", requires = "gguf", conflicts_with = "only_adapter")]
    projector: Option<PathBuf>,
    /// Replaces a file that exists
    #[arg(long, requires = "gguf")]
    overwrite: bool,
}

impl From<Stored> for TensorType {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Float32 => TensorType::F32,
            Stored::Bfloat16 => TensorType::Bf16,
            Stored::Float16 => TensorType::F16,
            Stored::Q80 => TensorType::Q8_0,
            Stored::Q40 => TensorType::Q4_0,
            Stored::Q41 => TensorType::Q4_1,
            Stored::Q50 => TensorType::Q5_0,
            Stored::Q51 => TensorType::Q5_1,
        }
    }
}

/// Runs `export --gguf`.
pub(super) fn run(export: &Export) -> Result<u8, Failure> {
    exported(export).map_err(|failure| gguf_tokenizer::name_file(&export.model, failure))
}

fn exported(export: &Export) -> Result<u8, Failure> {
    let flags = &export.gguf;
    is_free(&export.into, flags.overwrite)?;
    let folder = gguf_tokenizer::folder(&export.model)?;
    let model = model_files::open(&export.model)?;
    if model.config.classifier.is_some() {
        let reason = "expected a model that predicts the next token, found a classifier";
        return Err(Failure::Usage(format!("{}: {reason}", export.model)));
    }
    let adapter = export.adapter.as_ref().map(|adapter| Adapter::open(adapter, &model.config));
    let adapter = adapter.transpose().map_err(Failure::usage)?;
    if let Some((folder, adapter)) = export.adapter.as_ref().zip(adapter.as_ref()) {
        four_bits::warn_of_merge(folder, adapter, &model);
    }
    let stored = export.dtype.unwrap_or(Stored::Float16).into();
    let text = text_model(hub::gguf(&export.model).unwrap_or(&folder), &model, stored);
    if flags.only_adapter && export.dtype.is_some_and(|dtype| dtype != Stored::Float32) {
        let reason = "--dtype: expected float32 or none beside --only-adapter, whose file is in float32";
        return Err(Failure::usage(reason));
    }
    if let Some(adapter) = adapter.as_ref().filter(|_| flags.only_adapter) {
        return only_adapter(&export.into, &text, adapter);
    }
    let seeing = match (&model.config.images, &flags.projector) {
        (Some(_), _) => Some((projector_path(export)?, Seeing::open(&folder, &text.name, stored)?)),
        (None, None) => None,
        (None, Some(_)) => {
            let reason = "--projector: expected a model that reads images, found one of texts alone";
            return Err(Failure::Usage(format!("{}: {reason}", export.model)));
        }
    };
    let tokenizer = flags.tokenizer.as_deref().unwrap_or(&folder);
    let vocabulary::Keys { keys, warnings } =
        vocabulary::keys(tokenizer, &folder, model.config.vocab, flags.pre.as_deref())?;
    let source = Merged::new(&model, adapter.as_ref());
    let mut said = String::new();
    // the first file takes its place when the second has: neither is there alone
    to_file(&export.into, Model::Text(&text), &source, &keys, |written| {
        said += &report(&export.into, &written, stored);
        if let Some((path, Seeing { projector, tensors })) = &seeing {
            to_file(path, Model::Projector(projector), tensors, &[], |written| {
                said += &report(path, &written, stored);
                Ok(())
            })?;
        }
        Ok(())
    })
    .map_err(|fault| fault.at(&export.into))?;
    print(&said);
    for warning in &warnings {
        warn(warning);
    }
    Ok(0)
}

/// The language model as it is written: by the name of its folder, or of its file without the ending.
fn text_model(from: &Path, model: &Llama, stored: TensorType) -> TextModel {
    let whole = from.canonicalize().unwrap_or_else(|_| from.into());
    let name = if from.is_file() { whole.file_stem() } else { whole.file_name() };
    let name = name.unwrap_or_default().to_string_lossy().into_owned();
    let sections = model.config.images.and_then(|images| images.sections);
    let architecture = sections.map_or(Architecture::Llama, |sections| Architecture::Qwen2Vl { sections });
    TextModel { name, architecture, config: model.config.clone(), stored }
}

/// Where the file of what sees goes.
fn projector_path(export: &Export) -> Result<PathBuf, Failure> {
    let name = export.into.file_name().unwrap_or_default().to_string_lossy();
    let beside = || export.into.with_file_name(format!("mmproj-{name}"));
    let path = export.gguf.projector.clone().unwrap_or_else(beside);
    if path == export.into {
        let reason = "--projector: expected a file of its own, found that of the language model";
        return Err(Failure::Usage(format!("{}: {reason}", path.display())));
    }
    is_free(&path, export.gguf.overwrite)?;
    Ok(path)
}

/// That a file may be written.
fn is_free(path: &Path, overwrite: bool) -> Result<(), Failure> {
    if !overwrite && path.symlink_metadata().is_ok() {
        let reason = "expected no such file, found one; --overwrite replaces it";
        return Err(Failure::Usage(format!("{}: {reason}", path.display())));
    }
    atomic_write::target(path).map(drop).map_err(|error| Failure::fault(path, error))
}

/// What keeps a file from being written.
enum Fault {
    Io(std::io::Error),
    Export(challenges::issues::gguf::Error),
    /// Of another file.
    Other(Failure),
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Fault::Io(error)
    }
}

impl Fault {
    fn at(self, path: &Path) -> Failure {
        match self {
            Fault::Io(error) => Failure::fault(path, error),
            Fault::Export(error) => Failure::Usage(format!("{}: {error}", path.display())),
            Fault::Other(failure) => failure,
        }
    }
}

/// Writes one of a model's files; `then` is done before it takes its place, and keeps it away if it fails.
fn to_file(
    path: &Path,
    model: Model<'_>,
    source: &dyn Source,
    keys: &[(String, Value)],
    then: impl FnOnce(Written) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let fill = |file: &mut BufWriter<File>| {
        then(write(&Solution, model, &Held { model, source }, keys, file).map_err(Fault::Export)?)
    };
    atomic_write::write_by(path, fill).map_err(|fault: Fault| Fault::Other(fault.at(path)))
}

/// What is said of a file that was written.
fn report(path: &Path, written: &Written, stored: TensorType) -> String {
    let count = written.not_whole_blocks.len();
    let others = written.not_whole_blocks.first().map_or_else(String::new, |first| {
        format!("{count} of them in F16, whose rows are not whole blocks of {stored}: {first}\n")
    });
    format!("{}: {} tensors\n{others}", path.display(), written.tensors)
}

/// The weights of a Llama, with an adapter merged into them.
struct Merged<'m> {
    model: &'m Llama,
    adapter: Option<&'m Adapter>,
    trained: Values<f32>,
}

impl<'m> Merged<'m> {
    fn new(model: &'m Llama, adapter: Option<&'m Adapter>) -> Self {
        Self { model, adapter, trained: adapter.map(Adapter::trained).unwrap_or_default() }
    }

    /// The weight that a name stands for: of a tied model the output layer is the embedding.
    fn stored_under<'n>(&self, name: &'n str) -> &'n str {
        let is_output = name == "lm_head.weight" && self.model.config.tied;
        if is_output { "model.embed_tokens.weight" } else { name }
    }
}

impl Source for Merged<'_> {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let config = &self.model.config;
        let mut all: Vec<_> = config.tensor_specs().into_iter().map(|spec| (spec.name, spec.shape)).collect();
        if is_untied(config, self.adapter) {
            all.push(("lm_head.weight".into(), vec![config.vocab, config.hidden]));
        }
        all
    }

    fn numbers(&self, name: &str) -> Result<Vec<f32>, String> {
        let stored = self.stored_under(name);
        let weight = own_numbers(self.model, stored)?;
        let specs = self.model.config.tensor_specs();
        let shape = specs.iter().find(|spec| spec.name == stored).map_or(&[][..], |spec| &spec.shape);
        let weight = match self.adapter {
            None => weight,
            Some(adapter) => {
                let is_tied = self.model.config.tied;
                with_adapter(weight, (name, shape), &adapter.config, is_tied, &self.trained)
            }
        };
        Ok(weight.into_iter().map(|x| x as f32).collect())
    }
}

/// Weights whose numbers the types that they are written in can hold. NaN and infinities are refused in every type:
/// what blocks make of them is no number or another one, and a model that has some does not work.
struct Held<'s> {
    model: Model<'s>,
    source: &'s dyn Source,
}

impl Source for Held<'_> {
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        self.source.tensors()
    }

    fn numbers(&self, name: &str) -> Result<Vec<f32>, String> {
        let numbers = self.source.numbers(name)?;
        range::check_finite(&numbers)?;
        let tensors = self.source.tensors();
        let shape = tensors.iter().find(|(known, _)| known == name).map_or(&[][..], |(_, shape)| shape);
        for ty in self.types(name, shape) {
            range::check(&numbers, ty)?;
        }
        Ok(numbers)
    }
}

impl Held<'_> {
    /// The types that the pieces of a tensor are written in.
    fn types(&self, name: &str, shape: &[usize]) -> Vec<TensorType> {
        let (pieces, stored) = match self.model {
            Model::Text(model) => {
                (Solution.text_tensor(model, name).into_iter().collect::<Vec<_>>(), model.stored)
            }
            Model::Projector(projector) => {
                (Solution.projector_tensors(projector, name, shape), projector.stored)
            }
        };
        let parts = pieces.iter().filter_map(|piece| Some((&piece.name, piece.part.shape(shape)?)));
        parts.map(|(name, shape)| stored_as(stored, name, &Solution.sizes(&shape))).collect()
    }
}

/// Writes the pairs of an adapter: W + alpha / r B A is what a reader computes.
fn only_adapter(path: &Path, model: &TextModel, adapter: &Adapter) -> Result<u8, Failure> {
    let config = &adapter.config;
    let whole = config.modules.tensors(&model.config).map_err(Failure::usage)?;
    if let Some(whole) = whole.first() {
        let need = "expected pairs of matrices alone: a GGUF adapter has nothing else; merge it instead";
        return Err(Failure::Usage(format!("{}: {need}", whole.name)));
    }
    let alpha = config.scale() * config.rank as f64;
    let text = |key: &str, text: &str| (key.to_owned(), Value::String(text.to_owned()));
    let keys = [
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
    let contents = tensors.iter().map(|(content, _)| content.clone()).collect();
    let fill = |file: &mut BufWriter<File>| {
        let wrong = |error| Fault::Export(challenges::issues::gguf::Error::File(error));
        let mut writer = Writer::begin(file, &keys, contents).map_err(wrong)?;
        for (content, numbers) in &tensors {
            writer.write(&Solution.quantize(content.ty, numbers)).map_err(wrong)?;
        }
        writer.finish();
        Ok(())
    };
    atomic_write::write_by(path, fill).map_err(|fault: Fault| fault.at(path))?;
    print(&format!("{}: {} tensors\n", path.display(), tensors.len()));
    Ok(0)
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
