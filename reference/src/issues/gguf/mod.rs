//! A model as GGUF files: which tensors a file has, how the elements of each are arranged, and what its keys say.
//!
//! ```text
//! checkpoint                         text file                    projector file (of a model that sees images)
//! model.layers.0.self_attn.q_proj -> blk.0.attn_q, rotated rows
//! visual.blocks.0.attn.qkv        ->                              v.blk.0.attn_q, .attn_k, .attn_v
//! visual.patch_embed.proj (O, C, 2, P, P) ->                      v.patch_embd.weight, v.patch_embd.weight.1
//! ```
//!
//! Sizes are written in reverse: a weight (out, in) has the sizes [in, out], and its bytes stay where they are.
//!
//! **Rotated rows.** A rotary embedding turns pairs of a head's elements. `transformers` pairs element p with
//! p + D / 2; the architecture `llama` of GGUF pairs 2p with 2p + 1, as the published weights of Llama do. Dot products
//! of queries with keys do not change if the rows of both weights are rearranged in the same way, so the file has them
//! as its reader wants them. `qwen2vl` pairs as `transformers` does.
//!
//! Sources: `tensor_mapping.py` and `constants.py` of the public package gguf 0.19; `conversion/llama.py`,
//! `conversion/qwenvl.py` and `tools/mtmd/clip.cpp` of llama.cpp, as of its Python binding 0.3.36.

mod projector;
mod text;

pub use projector::{Activation, Projector, Tower, projector_keys, projector_tensors};
pub use text::{Architecture, TextModel, text_keys, text_tensor};

use crate::checkpoint::gguf::TensorType;
use crate::llama::{Rope, Scaling, rope};
use crate::oracles::GGUF;

// ANCHOR: gguf-piece
/// A tensor of a GGUF file that is made of one of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Its name in the file.
    pub name: String,
    /// Which of the checkpoint's elements it has.
    pub part: Part,
}

/// Which elements of a checkpoint's tensor one of a file has, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// All of them, in their order.
    Whole,
    /// All rows, those of each head rearranged by [`rotary_rows`].
    Rotary {
        /// Heads that the rows belong to.
        heads: usize,
    },
    /// Some rows, that is, places of the first dimension.
    Rows {
        /// The first of them.
        begin: usize,
        /// How many.
        count: usize,
    },
    /// Of a tensor (O, C, T, ..) the elements of one time: (O, C, ..).
    Time(usize),
}
// ANCHOR_END: gguf-piece

impl Part {
    /// The dimensions of this part of a tensor; `None` if the tensor has no such part.
    pub fn shape(self, shape: &[usize]) -> Option<Vec<usize>> {
        let rows = shape.first().copied().unwrap_or(0);
        match self {
            Part::Whole => Some(shape.to_vec()),
            Part::Rotary { heads } => (heads > 0 && rows.is_multiple_of(2 * heads)).then(|| shape.to_vec()),
            Part::Rows { begin, count } => {
                let is_within = begin.checked_add(count).is_some_and(|end| end <= rows);
                is_within.then(|| [&[count], &shape[1..]].concat())
            }
            Part::Time(time) => {
                let has_time = shape.len() > 3 && time < shape[2];
                has_time.then(|| [&shape[..2], &shape[3..]].concat())
            }
        }
    }

    /// The elements of this part of a tensor, with the rows of heads as `rotary` says ([`rotary_rows`]); `None` if the
    /// tensor has no such part.
    ///
    /// # Panics
    /// If `rotary` names a row that there is not.
    pub fn of<T: Copy>(
        self,
        elements: &[T],
        shape: &[usize],
        rotary: impl FnOnce(usize, usize) -> Vec<usize>,
    ) -> Option<Vec<T>> {
        self.shape(shape)?;
        let width: usize = shape.iter().skip(1).product();
        let row = |row: usize| &elements[row * width..][..width];
        Some(match self {
            Part::Whole => elements.to_vec(),
            Part::Rotary { heads } => rotary(shape[0], heads).into_iter().flat_map(row).copied().collect(),
            Part::Rows { begin, count } => (begin..begin + count).flat_map(row).copied().collect(),
            Part::Time(time) => {
                let (times, image) = (shape[2], shape[3..].iter().product::<usize>());
                let outer = 0..shape[0] * shape[1];
                outer.flat_map(|at| &elements[(at * times + time) * image..][..image]).copied().collect()
            }
        })
    }
}

/// For each row of a weight of queries or keys as the architecture `llama` has it, which of the checkpoint's rows it
/// is: within a head of D rows, row 2p is row p and row 2p + 1 is row p + D / 2.
///
/// # Panics
/// If the rows are not an even number for each of the heads.
pub fn rotary_rows(rows: usize, heads: usize) -> Vec<usize> {
    GGUF.count();
    assert!(heads > 0 && rows.is_multiple_of(2 * heads), "{rows} rows of {heads} heads");
    let (head_dim, half) = (rows / heads, rows / heads / 2);
    let of_head = |head: usize| (0..half).flat_map(move |p| [p, p + half].map(|row| head * head_dim + row));
    (0..heads).flat_map(of_head).collect()
}

/// What divides each of the D / 2 frequencies of a head; nothing if none is divided by a number of its own.
///
/// `llama3` scales some frequencies; a file has a tensor of the factors, `rope_freqs.weight`, since no key describes
/// them. One factor for all is a key.
pub fn rope_factors(rope: &Rope, head_dim: usize) -> Option<Vec<f32>> {
    GGUF.count();
    let Scaling::Llama3 { factor, low, high, original } = rope.scaling else { return None };
    let plain = rope::frequencies(&Rope { theta: rope.theta, scaling: Scaling::None }, head_dim);
    let of_frequency = |frequency: f32| {
        let turns = original as f64 * f64::from(frequency) / std::f64::consts::TAU; // in the first training's length
        if turns < low {
            return factor;
        }
        if turns > high {
            return 1.0;
        }
        let smooth = (turns - low) / (high - low);
        1.0 / ((1.0 - smooth) / factor + smooth)
    };
    Some(plain.into_iter().map(|frequency| of_frequency(frequency) as f32).collect())
}

/// The type that a tensor is stored in, where `asked` is what the file is made of: vectors stay numbers in `F32`, and
/// rows that are not whole blocks become `F16`.
pub fn stored_as(asked: TensorType, name: &str, sizes: &[usize]) -> TensorType {
    let is_patch_embedding = name.starts_with("v.patch_embd.weight");
    if sizes.len() < 2 || name == "v.position_embd.weight" {
        return TensorType::F32;
    }
    if is_patch_embedding && asked != TensorType::F16 {
        return TensorType::F32; // a convolution: readers know no other types of its weight
    }
    if sizes[0].is_multiple_of(asked.block()[0]) { asked } else { TensorType::F16 }
}

/// What `general.file_type` says of a file of this type: `llama_ftype` of llama.cpp.
///
/// Fails for a type that is not written.
pub fn file_type(ty: TensorType) -> Option<u32> {
    Some(match ty {
        TensorType::F32 => 0,
        TensorType::F16 => 1,
        TensorType::Q4_0 => 2,
        TensorType::Q4_1 => 3,
        TensorType::Q8_0 => 7,
        TensorType::Q5_0 => 8,
        TensorType::Q5_1 => 9,
        TensorType::Bf16 => 32,
        _ => return None,
    })
}
