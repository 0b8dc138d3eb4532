//! What is measured of an attempt: the files of both layouts, written by all its steps together and read again.
//!
//! What stands in a file is compared with what the checkpoint's tensors say it should be: names and parts by the
//! reference, numbers as they come out of the blocks of the file.

use std::collections::BTreeMap;

use challenges::issues::gguf::{Gguf, Model, Source as _, write};
use reference::checkpoint::gguf::{self, TensorType, Value, dequantize, quantize};
use reference::issues::gguf as oracle;

use super::super::part::{answer, number};
use super::drawn::{self, Checkpoint, one_of};
use super::layout::FACTOR;
use super::text::same_keys;
use crate::gather::Child;
use crate::random::Random;

/// What was found in some files.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    files: usize,
    tensors: usize,
    equal: usize,
    keys: usize, // files whose keys are right
}

/// The text file and the projector file of a checkpoint of each layout.
pub(super) fn files(child: &mut Child, attempt: &dyn Gguf) {
    let seed = child.request.effort.seed;
    let Some(found) = answer(child, "issues.gguf.files", || found(attempt, seed)) else { return };
    let count = |value: usize| number(value as f64, "count", Vec::new());
    child.measured("issues.gguf.files", count(found.files));
    child.measured("issues.gguf.tensors", count(found.tensors));
    child.measured("issues.gguf.equal", count(found.equal));
    child.measured("issues.gguf.keys", count(found.keys));
}

fn found(attempt: &dyn Gguf, seed: u64) -> Result<Found, String> {
    let mut random = Random::named(seed, "gguf files");
    let mut all = Found::default();
    for (is_qwen, is_new) in [(false, false), (true, false), (false, true), (true, true)] {
        let stored = one_of(&drawn::STORED, &mut random);
        let text = oracle::TextModel { stored, ..drawn::text_model(is_qwen, 2, &mut random) };
        let projector = drawn::projector(is_qwen, 2, text.config.hidden, &mut random);
        let projector = oracle::Projector { stored, ..projector };
        let front = match (is_new, is_qwen) {
            (true, _) => "model.language_model.",
            (false, true) => "",
            (false, false) => "language_model.",
        };
        let mut tensors = drawn::text_tensors(&text, front);
        tensors.extend(drawn::vision_tensors(&projector, is_new));
        let checkpoint = Checkpoint { tensors, seed: random.next_u64() };
        for model in [Model::Text(&text), Model::Projector(&projector)] {
            let one = file(attempt, model, &checkpoint)?;
            all.files += 1;
            all.tensors += one.tensors;
            all.equal += one.equal;
            all.keys += one.keys;
        }
    }
    Ok(all)
}

/// The tensor of what divides the frequencies.
const FACTORS: &str = "rope_freqs.weight";

/// A key that stands for those of a tokenizer.
const MORE: &str = "tokenizer.ggml.model";

/// One file, written by the attempt's steps.
fn file(attempt: &dyn Gguf, model: Model<'_>, checkpoint: &Checkpoint) -> Result<Found, String> {
    let more = [(MORE.to_owned(), Value::String("gpt2".into()))];
    let mut bytes = Vec::new();
    write(attempt, model, checkpoint, &more, &mut bytes).map_err(|error| error.to_string())?;
    let file = gguf::Gguf::from_bytes(bytes).map_err(|error| error.to_string())?;
    let expected = expected(model, checkpoint)?;
    let is_equal = |(name, (ty, sizes, numbers)): (&String, &Expected)| {
        let within = if name == FACTORS { FACTOR } else { 0.0 }; // computed, not copied
        // numbers out of blocks are finite, so that 0 apart is equal
        let is_near = |(got, want): (&f32, &f32)| (got - want).abs() <= within * want.abs();
        file.tensor(name).is_ok_and(|tensor| {
            tensor.ty == *ty
                && tensor.sizes == sizes
                && dequantize(&tensor).is_ok_and(|found| found.iter().zip(numbers).all(is_near))
        })
    };
    let equal = expected.iter().filter(|one| is_equal(*one)).count();
    let is_alone = file.tensors().iter().all(|tensor| expected.contains_key(&tensor.name));
    let mut want = match model {
        Model::Text(text) => oracle::text_keys(text),
        Model::Projector(projector) => oracle::projector_keys(projector),
    };
    want.extend(more);
    let keys = usize::from(same_keys(file.keys(), &want).is_ok());
    // a tensor that belongs elsewhere counts as one that is not equal
    Ok(Found { files: 1, tensors: expected.len() + usize::from(!is_alone), equal, keys })
}

/// A tensor's type, sizes and numbers.
type Expected = (TensorType, Vec<usize>, Vec<f32>);

/// Every tensor of a file by its name, as the reference would have it.
fn expected(model: Model<'_>, checkpoint: &Checkpoint) -> Result<BTreeMap<String, Expected>, String> {
    let stored = match model {
        Model::Text(text) => text.stored,
        Model::Projector(projector) => projector.stored,
    };
    let mut all = BTreeMap::new();
    for (name, shape) in &checkpoint.tensors {
        let pieces: Vec<oracle::Piece> = match model {
            Model::Text(text) => oracle::text_tensor(text, name).into_iter().collect(),
            Model::Projector(projector) => oracle::projector_tensors(projector, name, shape),
        };
        let numbers = if pieces.is_empty() { Vec::new() } else { checkpoint.numbers(name)? };
        for piece in pieces {
            let missing = || format!("{name}: the reference has no such part: {piece:?}");
            let part = piece.part.of(&numbers, shape, oracle::rotary_rows).ok_or_else(missing)?;
            let sizes: Vec<usize> = piece.part.shape(shape).ok_or_else(missing)?.into_iter().rev().collect();
            let ty = oracle::stored_as(stored, &piece.name, &sizes);
            all.insert(piece.name, (ty, sizes, stored_numbers(ty, &part)?));
        }
    }
    if let Model::Text(text) = model
        && let Some(factors) = oracle::rope_factors(&text.config.rope, text.config.head_dim)
    {
        let sizes = vec![factors.len()];
        all.insert(FACTORS.into(), (TensorType::F32, sizes, factors));
    }
    Ok(all)
}

/// What a reader gets of numbers that are stored in a type.
fn stored_numbers(ty: TensorType, numbers: &[f32]) -> Result<Vec<f32>, String> {
    let bytes = quantize(ty, numbers).map_err(|error| error.to_string())?;
    let tensor =
        gguf::GgufTensor { ty, sizes: &[numbers.len()], bytes: &bytes, endian: gguf::Endian::Little };
    dequantize(&tensor).map_err(|error| error.to_string())
}
