//! `export`: a model, with its adapter if one is given, as one dense checkpoint or as a GGUF file.
//!
//! ```text
//! W' = W + scale * B A        the sum in f64, rounded once to the type that is written; to f32 before blocks are made
//! ```
//!
//! An embedding or an output layer that was trained as a whole takes the place of the model's, and trained rows that of
//! its rows. Weights in NF4 are decoded first, to the type that they had before. Where embedding and output layer were
//! one weight (`tie_word_embeddings`) and no longer are, the output layer becomes a weight of
//! its own.
//!
//! What comes out is a folder as transformers reads it: `config.json`, `model.safetensors`, and the files of the
//! tokenizer as they were; or, with `--gguf`, a file ([`gguf`]). One weight at a time is in memory.
//!
//! Source: Hu et al., "LoRA" (2021), section 4.1: at inference the product is added to the weight.

mod carried;
mod gguf;
mod projector;
mod range;
mod vocabulary;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use half::{bf16, f16};
use reference::atomic_write;
use reference::checkpoint::gguf::TensorType;
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype};
use reference::llama::{self, Llama, Storage, StoredInput, TensorSpec, hub};
use reference::lora::{self, Adapter, Module, Modules};
use serde_json::{Map, Value as Json, json};

use crate::files::{read_json, write_json};
use crate::four_bits;
use crate::model_files;
use crate::output::{Failure, print};

/// The flags of `export`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// A checkpoint's folder, or the name of a repository in the local cache
    model: String,
    /// The folder of the adapter that is merged into it
    #[arg(long, value_name = "DIR")]
    adapter: Option<PathBuf>,
    /// The new folder, or with --gguf the new file
    #[arg(value_name = "OUTPUT")]
    into: PathBuf,
    /// The type of the weights [default: as they are stored; with --gguf float16]
    #[arg(long, value_name = "TYPE")]
    dtype: Option<Stored>,
    #[command(flatten)]
    gguf: gguf::Flags,
}

/// A type that weights can be written in; those after the third in GGUF files alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Stored {
    #[value(alias = "f32")]
    Float32,
    #[value(alias = "bf16")]
    Bfloat16,
    #[value(alias = "f16")]
    Float16,
    #[value(name = "q8_0")]
    Q80,
    #[value(name = "q4_0")]
    Q40,
    #[value(name = "q4_1")]
    Q41,
    #[value(name = "q5_0")]
    Q50,
    #[value(name = "q5_1")]
    Q51,
}

impl Stored {
    /// The type of numbers, if it is one.
    fn float(self) -> Option<Float> {
        match self {
            Stored::Float32 => Some(Float::Float32),
            Stored::Bfloat16 => Some(Float::Bfloat16),
            Stored::Float16 => Some(Float::Float16),
            _ => None,
        }
    }
}

/// A type of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Float {
    Float32,
    Bfloat16,
    Float16,
}

impl Float {
    fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self::Float32),
            Dtype::Bf16 => Some(Self::Bfloat16),
            Dtype::F16 => Some(Self::Float16),
            Dtype::U8 | Dtype::I32 => None,
        }
    }

    /// Its names in a `config.json` and in a safetensors file, and its bytes.
    fn names(self) -> (&'static str, &'static str, usize) {
        match self {
            Self::Float32 => ("float32", "F32", 4),
            Self::Bfloat16 => ("bfloat16", "BF16", 2),
            Self::Float16 => ("float16", "F16", 2),
        }
    }

    fn tensor_type(self) -> TensorType {
        match self {
            Self::Float32 => TensorType::F32,
            Self::Bfloat16 => TensorType::Bf16,
            Self::Float16 => TensorType::F16,
        }
    }

    /// Numbers as they are stored.
    fn bytes(self, numbers: impl Iterator<Item = f64>) -> Vec<u8> {
        match self {
            Self::Float32 => numbers.flat_map(|x| (x as f32).to_le_bytes()).collect(),
            Self::Bfloat16 => numbers.flat_map(|x| bf16::from_f64(x).to_le_bytes()).collect(),
            Self::Float16 => numbers.flat_map(|x| f16::from_f64(x).to_le_bytes()).collect(),
        }
    }
}

/// How the files of a tokenizer end, and of a chat template.
const COPIED: [&str; 4] = ["json", "jinja", "txt", "model"];

/// Runs `export`.
pub(crate) fn run(export: &Export) -> Result<u8, Failure> {
    if export.gguf.gguf { gguf::run(export) } else { folder(export) }
}

/// Writes a folder.
fn folder(export: &Export) -> Result<u8, Failure> {
    let output = &export.into;
    let dtype = export.dtype.and_then(Stored::float);
    if dtype.is_none() && export.dtype.is_some() {
        return Err(Failure::usage("--dtype: blocks of numbers are a GGUF file's: expected --gguf"));
    }
    if output.exists() {
        return Err(Failure::Usage(format!("{}: expected no such folder, found one", output.display())));
    }
    let model = model_files::open(&export.model)?;
    if model.config.images.is_some() {
        let need = "expected a model of texts alone, found one that reads images, whose tower would be lost";
        return Err(Failure::Usage(format!("{}: {need}", export.model)));
    }
    let open = |folder: &PathBuf| Adapter::open(folder, &model.config).map_err(Failure::usage);
    let adapter = export.adapter.as_ref().map(open).transpose()?;
    if let Some((folder, adapter)) = export.adapter.as_ref().zip(adapter.as_ref()) {
        four_bits::warn_of_merge(folder, adapter, &model);
    }
    let from = hub::find(&export.model).map_err(Failure::usage)?;
    let partial = beside(output)?;
    let written = write(&from, &partial, &model, adapter.as_ref(), dtype);
    let moved =
        written.and_then(|()| fs::rename(&partial, output).map_err(|error| Failure::fault(output, error)));
    if moved.is_err() {
        let _ = fs::remove_dir_all(&partial); // the reason is the one above
    }
    moved?;
    let what = if adapter.is_some() { "the merged model" } else { "the model" };
    let decoded = if four_bits::has_nf4(&model) { ", decoded from NF4," } else { "" };
    print(&format!("{what}{decoded} is in {}\n", output.display()));
    Ok(0)
}

/// A new folder beside the one that is asked for, under another name.
fn beside(output: &Path) -> Result<PathBuf, Failure> {
    let name = output
        .file_name()
        .ok_or_else(|| Failure::Usage(format!("{}: expected the name of a new folder", output.display())))?;
    let partial = output.with_file_name(format!(".{}-{}", name.display(), std::process::id()));
    fs::create_dir_all(&partial).map_err(|error| Failure::fault(&partial, error))?;
    Ok(partial)
}

/// Every file of the merged model.
fn write(
    from: &Path,
    to: &Path,
    model: &Llama,
    adapter: Option<&Adapter>,
    dtype: Option<Float>,
) -> Result<(), Failure> {
    for entry in fs::read_dir(from).map_err(|error| Failure::fault(from, error))? {
        let path = entry.map_err(|error| Failure::fault(from, error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_copied =
            path.extension().and_then(|end| end.to_str()).is_some_and(|end| COPIED.contains(&end));
        if is_copied && path.is_file() && !name.ends_with(".index.json") {
            fs::copy(&path, to.join(&name)).map_err(|error| Failure::fault(&path, error))?;
        }
    }
    let is_untied = is_untied(&model.config, adapter);
    let weights = weights(model, is_untied);
    let path = to.join("config.json");
    let mut config = read_json(&path).map_err(Failure::usage)?.unwrap_or_default();
    if let Some(dtype) = dtype {
        let key = if config.get("torch_dtype").is_some() { "torch_dtype" } else { "dtype" };
        config[key] = dtype.names().0.into();
    }
    // older readers go by the config alone, and would leave the output layer of its own out
    let is_apart = config["tie_word_embeddings"] == true && (is_untied || !model.config.tied);
    if is_apart {
        config["tie_word_embeddings"] = false.into();
    }
    let had_quantization =
        config.as_object_mut().is_some_and(|all| all.shift_remove("quantization_config").is_some());
    if dtype.is_some() || is_apart || had_quantization {
        write_json(&path, &config).map_err(Failure::usage)?;
    }
    let path = to.join("model.safetensors");
    let written = atomic_write::write_by(&path, |file| write_weights(file, &weights, model, adapter, dtype));
    written.map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData => Failure::usage(error),
        _ => Failure::fault(&path, error),
    })
}

/// A weight that is written.
struct Weight {
    name: String,
    /// The weight of the model that it is made from.
    from: String,
    shape: Vec<usize>,
    /// The type that it is stored in, or had before it was quantised.
    dtype: Dtype,
}

/// Every weight of the new checkpoint. An output layer that is untied is made from the embedding.
fn weights(model: &Llama, is_untied: bool) -> Vec<Weight> {
    let dtype = |storage: &Storage| match storage {
        Storage::Dense(dtype) | Storage::Nf4 { dtype, .. } => *dtype,
    };
    let stored = |TensorSpec { name, shape, .. }: TensorSpec| {
        let dtype = dtype(model.storages().get(&name)?); // a head that is not there yet has none
        Some(Weight { from: name.clone(), name, shape, dtype })
    };
    let mut all: Vec<Weight> = model.config.tensor_specs().into_iter().filter_map(stored).collect();
    let head = all.iter().find(|weight| is_untied && module_of(&weight.name) == Some(Module::EmbedTokens));
    let head = head.map(|Weight { from, shape, dtype, .. }| Weight {
        name: "lm_head.weight".to_owned(),
        from: from.clone(),
        shape: shape.clone(),
        dtype: *dtype,
    });
    all.extend(head);
    all
}

/// A safetensors file: eight bytes of the length of its header, the header, the tensors one after the other.
fn write_weights(
    file: &mut impl Write,
    all: &[Weight],
    model: &Llama,
    adapter: Option<&Adapter>,
    dtype: Option<Float>,
) -> io::Result<()> {
    let (mut header, mut end) = (Map::from_iter([("__metadata__".to_owned(), json!({"format": "pt"}))]), 0);
    let mut types = Vec::new();
    for Weight { name, dtype: stored, shape, .. } in all {
        let as_stored = Float::of(*stored).ok_or_else(|| io::Error::other(format!("{name}: {stored:?}")))?;
        let float = dtype.unwrap_or(as_stored);
        let (_, named, bytes) = float.names();
        let begin = end;
        end += shape.iter().product::<usize>() * bytes;
        header.insert(name.clone(), json!({"dtype": named, "shape": shape, "data_offsets": [begin, end]}));
        types.push(float);
    }
    let mut header = Json::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' '); // the tensors begin at a multiple of eight
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    let trained: Values<f32> = adapter.map(Adapter::trained).unwrap_or_default();
    for (Weight { name, from, shape, .. }, float) in all.iter().zip(types) {
        let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {why}"));
        let weight = own_numbers(model, from).map_err(wrong)?;
        let merged = match adapter {
            Some(Adapter { config, .. }) => {
                with_adapter(weight, (name, shape), config, model.config.tied, &trained)
            }
            None => weight,
        };
        check_held(&merged, float).map_err(wrong)?;
        file.write_all(&float.bytes(merged.into_iter()))?;
    }
    Ok(())
}

/// That numbers stay finite in a type; those that are not are written as they are.
fn check_held(numbers: &[f64], float: Float) -> Result<(), String> {
    let finite: Vec<f32> = numbers.iter().filter(|x| x.is_finite()).map(|x| *x as f32).collect();
    range::check_finite(&finite)?;
    range::check(&finite, float.tensor_type())
}

/// Whether the adapter gives an output layer of its own to a model that has none.
fn is_untied(config: &llama::Config, adapter: Option<&Adapter>) -> bool {
    let is_given =
        |modules: &Modules| !modules.to_save.is_empty() || modules.tokens.contains_key(&Module::LmHead);
    config.tied && adapter.is_some_and(|adapter| is_given(&adapter.config.modules))
}

/// The module whose weight has a name, if it may be trained as a whole.
fn module_of(name: &str) -> Option<Module> {
    name.strip_suffix(".weight").and_then(Module::called)
}

/// A weight with what the adapter has for it.
fn with_adapter(
    weight: Vec<f64>,
    (name, shape): (&str, &[usize]),
    config: &lora::Config,
    is_tied: bool,
    trained: &Values<f32>,
) -> Vec<f64> {
    match module_of(name) {
        Some(module) => whole(weight, (module, shape), (&config.modules, is_tied), trained),
        None => merged(weight, (name, shape), config, trained),
    }
}

/// A module's weight, with what was trained in the place of it or of its rows.
fn whole(
    mut weight: Vec<f64>,
    (module, shape): (Module, &[usize]),
    (modules, is_tied): (&Modules, bool),
    trained: &Values<f32>,
) -> Vec<f64> {
    if let Some(trained) = trained.get(&module.whole()) {
        return trained.wide();
    }
    if let Some((holder, tokens)) = modules.rows_of(module, is_tied) {
        let (rows, width) = (trained[&holder.rows()].wide(), shape[1]);
        for (token, row) in tokens.iter().zip(rows.chunks(width)) {
            weight[token * width..][..width].copy_from_slice(row);
        }
    }
    weight
}

/// A weight (out, in) with scale * B A added to it, if the adapter has them: row o of the product is the sum over r of
/// B[o, r] times row r of A.
fn merged(
    mut weight: Vec<f64>,
    (name, shape): (&str, &[usize]),
    config: &lora::Config,
    adapter: &BTreeMap<String, Array<f32>>,
) -> Vec<f64> {
    let [a, b] = lora::keys(name.trim_end_matches(".weight")).map(|name| adapter.get(&name));
    let (Some(a), Some(b), Some(inputs)) = (a, b, shape.get(1)) else { return weight };
    let (a, b) = (a.wide(), b.wide());
    for (row, factors) in weight.chunks_mut(*inputs).zip(b.chunks(config.rank)) {
        for (factor, of_rank) in factors.iter().zip(a.chunks(*inputs)) {
            let factor = config.scale() * factor;
            row.iter_mut().zip(of_rank).for_each(|(sum, x)| *sum += factor * x);
        }
    }
    weight
}

/// The elements of a dense weight.
fn numbers(input: &StoredInput<'_>) -> Vec<f64> {
    let (twos, fours) = (input.bytes.as_chunks().0, input.bytes.as_chunks().0);
    match Float::of(input.dtype) {
        Some(Float::Float32) => fours.iter().map(|four| f32::from_le_bytes(*four).into()).collect(),
        Some(Float::Bfloat16) => twos.iter().map(|two| bf16::from_le_bytes(*two).to_f64()).collect(),
        Some(Float::Float16) => twos.iter().map(|two| f16::from_le_bytes(*two).to_f64()).collect(),
        None => Vec::new(),
    }
}

/// The elements of a weight without an adapter, decoded if it is in NF4.
fn own_numbers(model: &Llama, name: &str) -> Result<Vec<f64>, String> {
    if let Some(Storage::Nf4 { dtype, .. }) = model.storages().get(name) {
        let weight = model.quantized(name).map_err(|error| error.to_string())?;
        let numbers = reference::nf4::dequantize_f32(&weight.view());
        return Ok(numbers.into_iter().map(|x| rounded(*dtype, x)).collect());
    }
    let dense = model.dense::<f64>(name).map_err(|error| error.to_string())?;
    dense.map(|weight| weight.wide()).ok_or_else(|| "expected numbers, found NF4".into())
}

/// A number as the type that a decoded weight has.
fn rounded(dtype: Dtype, x: f32) -> f64 {
    match dtype {
        Dtype::F16 => f16::from_f32(x).to_f64(),
        Dtype::Bf16 => bf16::from_f32(x).to_f64(),
        Dtype::F32 | Dtype::U8 | Dtype::I32 => x.into(),
    }
}
