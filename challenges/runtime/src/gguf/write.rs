//! From a checkpoint's tensors to a file, by the steps of an attempt.
//!
//! Every tensor is decided on first: names, types and sizes stand at the front of the file. Then one after the other is
//! read, taken apart, made into blocks and written, so that one weight at a time is in memory.

use std::collections::HashMap;
use std::fmt;
use std::io;

use reference::checkpoint::{
    self,
    gguf::{Content, TensorType, Value, Writer},
};
use reference::issues::gguf::stored_as;
use reference::llama::Scaling;

use super::{Gguf, Part, Piece, Projector, TextModel};

/// Tensors by their names in a checkpoint, as numbers.
pub trait Source {
    /// Every tensor, with its dimensions.
    fn tensors(&self) -> Vec<(String, Vec<usize>)>;

    /// The elements of one of them, row-major.
    ///
    /// # Errors
    /// A sentence that says why they cannot be had.
    fn numbers(&self, name: &str) -> Result<Vec<f32>, String>;
}

/// Which of a model's files is written.
#[derive(Clone, Copy, Debug)]
pub enum Model<'m> {
    /// That of the language model.
    Text(&'m TextModel),
    /// That of what sees.
    Projector(&'m Projector),
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Tensors of the file.
    pub tensors: usize,
    /// Those that are stored in another type than the file's weights are, because their rows are not whole blocks.
    pub not_whole_blocks: Vec<String>,
    /// Tensors of the checkpoint that are not in the file.
    pub left_out: Vec<String>,
}

/// What keeps a file from being written.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A tensor's numbers cannot be had.
    Source {
        /// Which tensor.
        name: String,
        /// Why.
        why: String,
    },
    /// A piece asks for what its tensor does not have.
    Piece {
        /// Which tensor.
        name: String,
        /// Its dimensions.
        shape: Vec<usize>,
        /// What it should become.
        piece: Piece,
        /// Why it cannot.
        why: String,
    },
    /// The file cannot be written.
    File(checkpoint::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Source { name, why } => write!(f, "{name}: {why}"),
            Error::Piece { name, shape, piece, why } => {
                write!(f, "{name} {shape:?} as {} ({:?}): {why}", piece.name, piece.part)
            }
            Error::File(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<checkpoint::Error> for Error {
    fn from(error: checkpoint::Error) -> Self {
        Error::File(error)
    }
}

impl Model<'_> {
    fn stored(&self) -> TensorType {
        match self {
            Model::Text(model) => model.stored,
            Model::Projector(projector) => projector.stored,
        }
    }

    fn keys(&self, steps: &dyn Gguf) -> Vec<(String, Value)> {
        match self {
            Model::Text(model) => steps.text_keys(model),
            Model::Projector(projector) => steps.projector_keys(projector),
        }
    }

    fn pieces(&self, steps: &dyn Gguf, name: &str, shape: &[usize]) -> Vec<Piece> {
        match self {
            Model::Text(model) => steps.text_tensor(model, name).into_iter().collect(),
            Model::Projector(projector) => steps.projector_tensors(projector, name, shape),
        }
    }

    /// The factors of a language model's frequencies, if it has some.
    fn factors(&self, steps: &dyn Gguf) -> Option<Vec<f32>> {
        match self {
            Model::Text(TextModel { config, .. }) => match &config.rope.scaling {
                Scaling::Factors(factors) => Some(factors.clone()), // of a file that was read
                _ => steps.rope_factors(&config.rope, config.head_dim),
            },
            Model::Projector(_) => None,
        }
    }
}

/// The name of the tensor of the factors.
const FACTORS: &str = "rope_freqs.weight";

/// Writes one of a model's files: the keys that the steps give and `more` of them, and every tensor that has a place in
/// it.
///
/// # Errors
/// If a step asks for what a tensor does not have, if numbers cannot be had, or the file cannot be written.
pub fn write(
    steps: &dyn Gguf,
    model: Model<'_>,
    source: &dyn Source,
    more: &[(String, Value)],
    to: impl io::Write,
) -> Result<Written, Error> {
    let mut written = Written::default();
    let mut contents = Vec::new();
    let mut plan: Vec<(String, Vec<usize>, Vec<Piece>)> = Vec::new();
    for (name, shape) in source.tensors() {
        let pieces = model.pieces(steps, &name, &shape);
        for piece in &pieces {
            let content = content(steps, model.stored(), (&name, &shape), piece)?;
            if content.ty == TensorType::F16 && model.stored().block()[0] > 1 {
                written.not_whole_blocks.push(piece.name.clone());
            }
            contents.push(content);
        }
        if pieces.is_empty() {
            written.left_out.push(name);
        } else {
            plan.push((name, shape, pieces));
        }
    }
    let factors = model.factors(steps);
    if let Some(factors) = &factors {
        contents.push(Content { name: FACTORS.into(), ty: TensorType::F32, sizes: vec![factors.len()] });
    }
    written.tensors = contents.len();
    let types: HashMap<String, TensorType> = contents.iter().map(|one| (one.name.clone(), one.ty)).collect();
    let keys = [model.keys(steps), more.to_vec()].concat();
    let mut writer = Writer::begin(to, &keys, contents)?;
    for (name, shape, pieces) in plan {
        let numbers = source.numbers(&name).map_err(|why| Error::Source { name: name.clone(), why })?;
        for piece in pieces {
            let part = part(steps, &numbers, &name, &shape, &piece)?;
            writer.write(&steps.quantize(types[&piece.name], &part))?;
        }
    }
    if let Some(factors) = factors {
        writer.write(&steps.quantize(TensorType::F32, &factors))?;
    }
    writer.finish();
    Ok(written)
}

/// What the front of the file says of a piece.
fn content(
    steps: &dyn Gguf,
    stored: TensorType,
    (name, shape): (&str, &[usize]),
    piece: &Piece,
) -> Result<Content, Error> {
    let of_part =
        piece.part.shape(shape).ok_or_else(|| wrong(name, shape, piece, "there is no such part"))?;
    let sizes = steps.sizes(&of_part);
    let ty = stored_as(stored, &piece.name, &sizes);
    Ok(Content { name: piece.name.clone(), ty, sizes })
}

/// The numbers of a piece.
fn part(
    steps: &dyn Gguf,
    numbers: &[f32],
    name: &str,
    shape: &[usize],
    piece: &Piece,
) -> Result<Vec<f32>, Error> {
    if let Part::Rotary { heads } = piece.part {
        let (got, rows) = (steps.rotary_rows(shape[0], heads), shape[0]);
        if got.len() != rows || got.iter().any(|row| *row >= rows) {
            let why = format!("expected {rows} rows below {rows} of {heads} heads, found {}", got.len());
            return Err(wrong(name, shape, piece, &why));
        }
    }
    let part = piece.part.of(numbers, shape, |rows, heads| steps.rotary_rows(rows, heads));
    part.ok_or_else(|| wrong(name, shape, piece, "there is no such part"))
}

fn wrong(name: &str, shape: &[usize], piece: &Piece, why: &str) -> Error {
    Error::Piece { name: name.into(), shape: shape.to_vec(), piece: piece.clone(), why: why.into() }
}
