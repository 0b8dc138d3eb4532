//! `export --gguf`: a model as a GGUF file, by the steps of challenge D.
//!
//! ```text
//! a Llama             OUTPUT               with its adapter merged, if one is given; NF4 weights are decoded first
//! --only-adapter      OUTPUT               the adapter alone: lora_a and lora_b of each weight
//! sees images         OUTPUT, projector    the language model, and what sees: mmproj-OUTPUT, or --projector FILE
//! ```
//!
//! A file is complete or not there, and of two both or none. One that exists stays, but for `--overwrite`.

mod adapter;
mod fault;
mod source;

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use adapter::Pairs;
use challenges::issues::gguf::{Architecture, Model, Solution, Source, TextModel, Written, write};
use clap::Args;
use fault::Fault;
use reference::atomic_write;
use reference::checkpoint::gguf::{TensorType, Value};
use reference::llama::{Llama, hub};
use reference::lora::Adapter;
use source::{Held, Merged};

use super::projector::Seeing;
use super::{Export, Stored, four_bits, vocabulary};
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
    /// The name that readers give to the pattern by which the tokenizer cuts texts, if it is not a known one
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
    let job = Job::check(export)?;
    let (said, warnings) = job.write()?;
    print(&said);
    for warning in warnings {
        warn(warning);
    }
    Ok(0)
}

/// An export whose inputs were read and checked: nothing but a write can fail.
struct Job<'e> {
    into: &'e Path,
    model: Llama,
    adapter: Option<Adapter>,
    text: TextModel,
    what: What,
}

/// The files that are written.
enum What {
    /// The adapter alone.
    Adapter(Pairs),
    /// The model, with its tokenizer; and the tower of images, if it has one, in a separate file.
    Model { vocabulary: vocabulary::Keys, seeing: Option<Box<(PathBuf, Seeing)>> },
}

impl<'e> Job<'e> {
    /// Reads and checks everything that the flags name.
    fn check(export: &'e Export) -> Result<Self, Failure> {
        let (into, flags) = (&*export.into, &export.gguf);
        is_free(into, flags.overwrite)?;
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
            let reason = "--dtype: expected float32 or none with --only-adapter, whose file is in float32";
            return Err(Failure::usage(reason));
        }
        if let Some(pairs) = adapter.as_ref().filter(|_| flags.only_adapter) {
            let what = What::Adapter(Pairs::check(&text, pairs)?);
            return Ok(Self { into, model, adapter, text, what });
        }
        let seeing = match (&model.config.images, &flags.projector) {
            (Some(_), _) => {
                Some(Box::new((projector_path(export)?, Seeing::open(&folder, &text.name, stored)?)))
            }
            (None, None) => None,
            (None, Some(_)) => {
                let reason = "--projector: expected a model that reads images, found one of texts alone";
                return Err(Failure::Usage(format!("{}: {reason}", export.model)));
            }
        };
        let tokenizer = flags.tokenizer.as_deref().unwrap_or(&folder);
        let vocabulary = vocabulary::keys(tokenizer, &folder, model.config.vocab, flags.pre.as_deref())?;
        Ok(Self { into, model, adapter, text, what: What::Model { vocabulary, seeing } })
    }

    /// Writes all of the files or none; what is said of them, and warnings.
    fn write(&self) -> Result<(String, &[String]), Failure> {
        let (vocabulary, seeing) = match &self.what {
            What::Adapter(pairs) => {
                let count = pairs.write(self.into)?;
                return Ok((format!("{}: {count} tensors\n", self.into.display()), &[]));
            }
            What::Model { vocabulary, seeing } => (vocabulary, seeing),
        };
        let source = Merged::new(&self.model, self.adapter.as_ref());
        let text = Output {
            path: self.into,
            model: Model::Text(&self.text),
            source: &source,
            keys: &vocabulary.keys,
        };
        let projector = seeing.as_deref().map(|(path, Seeing { projector, tensors })| Output {
            path,
            model: Model::Projector(projector),
            source: tensors,
            keys: &[],
        });
        let outputs: Vec<Output<'_>> = std::iter::once(text).chain(projector).collect();
        let written = all_or_none(&outputs)?;
        let said = outputs.iter().zip(&written);
        let said = said.map(|(output, written)| report(output.path, written, self.text.stored)).collect();
        Ok((said, &vocabulary.warnings))
    }
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

/// Checks that a file may be written.
fn is_free(path: &Path, overwrite: bool) -> Result<(), Failure> {
    if !overwrite && path.symlink_metadata().is_ok() {
        let reason = "expected no such file, found one; --overwrite replaces it";
        return Err(Failure::Usage(format!("{}: {reason}", path.display())));
    }
    atomic_write::target(path).map(drop).map_err(|error| Failure::fault(path, error))
}

/// A file of a model.
struct Output<'o> {
    path: &'o Path,
    model: Model<'o>,
    source: &'o dyn Source,
    keys: &'o [(String, Value)],
}

/// Writes files. Each takes its place when those after it have, so that a fault leaves none of them.
fn all_or_none(outputs: &[Output<'_>]) -> Result<Vec<Written>, Failure> {
    let Some((Output { path, model, source, keys }, rest)) = outputs.split_first() else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    let fill = |file: &mut BufWriter<File>| {
        let held = Held { model: *model, source: *source };
        all.push(write(&Solution, *model, &held, keys, file).map_err(Fault::Export)?);
        all.extend(all_or_none(rest).map_err(Fault::Other)?);
        Ok(())
    };
    atomic_write::write_by(path, fill).map_err(|fault: Fault| fault.at(path))?;
    Ok(all)
}

/// The lines that are printed for a written file.
fn report(path: &Path, written: &Written, stored: TensorType) -> String {
    let count = written.not_whole_blocks.len();
    let others = written.not_whole_blocks.first().map_or_else(String::new, |first| {
        format!("{count} of them in F16, whose rows are not whole blocks of {stored}: {first}\n")
    });
    format!("{}: {} tensors\n{others}", path.display(), written.tensors)
}
