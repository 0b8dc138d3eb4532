//! What a row of a batch holds, where it is not one sequence from the first token to the last.
//!
//! ```text
//!             packed               left-padded
//! ids         a b c d e x y z      . . . a b c d e
//! positions   0 1 2 3 4 0 1 2      0 0 0 0 1 2 3 4
//! documents   1 1 1 1 1 2 2 2      0 0 0 1 1 1 1 1
//! ```
//!
//! `positions` i32 (B, T) are rows of the rotary tables, which then are (P, D/2) with P =
//! [`Config::positions`](super::Config::positions): the same tensors for every batch. A position outside 0..P is an
//! error when the graph runs.
//!
//! `documents` i32 (B, T) say what attends to what: a token sees the tokens of its own row that have its own number, up
//! to itself. A number below 1 is padding: nothing sees it, and it sees nothing, not even itself. Attention gives a
//! token without a visible key zeros and takes no gradient from it, so that what stands in padding reaches no document
//! and its own logits are whatever the rest of the model makes of its embedding; only its label has to be ignored, as
//! [`loss::within_documents`](crate::loss::within_documents) does.
//!
//! The law that both are for: rows of documents have the logits and the gradients of the documents alone.
//!
//! A model that reads images has, where it is asked for, two inputs more: `image_features` f32 (N, H), of which row 0 is
//! read by no token, so that N is 1 where there is no image; and `image_slots` i32 (B, T), the row that a token takes in
//! the place of its embedding, 0 of a token of the text. Where its rotary embedding has sections, `positions` are
//! (3, B, T): each section turns with the frame, the row or the column of a token.
//!
//! Sources: `position_ids` and the block-diagonal masks of packed sequences in the `transformers` library; Krell et
//! al., "Efficient Sequence Packing without Cross-contamination" (2021).

use super::cache::Cache;
use super::rope;
use super::{Config, Model};
use crate::graph::{Attention, Dtype, Tensor, Type, programs};

/// What is given beside the tokens of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Whether each token has a position of its own, `positions`; else they count from 0 in every row.
    pub positions: bool,
    /// Whether each token belongs to a document of its row, `documents`; else a row is one.
    pub documents: bool,
    /// Whether some tokens stand for parts of images, [`IMAGE_FEATURES`] and [`IMAGE_SLOTS`].
    pub images: bool,
}

/// What images are to the model, f32 (N, H), after a row that no token reads.
pub const IMAGE_FEATURES: &str = "image_features";

/// The row of these that each token takes, i32 (B, T); 0 of a token of the text.
pub const IMAGE_SLOTS: &str = "image_slots";

impl Rows {
    /// Packed documents, and sequences with padding on any side: positions and documents.
    pub const PACKED: Self = Self { positions: true, documents: true, images: false };

    /// The same with images in them.
    pub const IMAGES: Self = Self { images: true, ..Self::PACKED };
}

/// What all layers read of a row, computed once.
pub(super) struct PerRow {
    /// Cosines and sines (B, 1, T, D/2), in the compute type; `None` if positions are not given.
    pub rotary: Option<[Tensor; 2]>,
    /// The documents (B * T), one row after the other, and T as a number, i32 (); `None` if a row is one document.
    pub documents: Option<[Tensor; 2]>,
    /// Where the tokens follow those in a cache.
    pub cache: Option<Cache>,
}

impl PerRow {
    /// Writes what the specification of a model asks for; nothing, where it asks for neither.
    pub fn write(model: &Model) -> Self {
        if let Some(cache) = model.cache() {
            return Self {
                rotary: Some(rotary(model, &cache.positions)),
                documents: None,
                cache: Some(cache),
            };
        }
        let Rows { positions, documents, .. } = model.spec().rows;
        Self {
            rotary: positions.then(|| rotary(model, &given_positions(model))),
            documents: documents.then(|| flat(&model.documents())),
            cache: None,
        }
    }

    /// Causal attention within documents, and the extras that its mask reads.
    pub fn attention(&self, config: &Config) -> (Attention, Vec<&Tensor>) {
        let scale = 1.0 / (config.head_dim as f64).sqrt();
        if let Some(cache) = &self.cache {
            return cache.attention(scale);
        }
        let extras: Vec<&Tensor> = self.documents.iter().flatten().collect();
        let types: Vec<Type> = extras.iter().map(|extra| extra.ty().clone()).collect();
        let mask = match self.documents {
            None => programs::mask("causal", &types, programs::causal),
            Some(_) => programs::mask("documents", &types, |at| {
                let [ids, length] = [&at.extras[0], &at.extras[1]];
                programs::and(&programs::causal(at), &programs::document_of_row(at, ids, length))
            }),
        };
        let mask = Some(mask.expect("scalars fit each other"));
        (Attention { mask, ..Attention::plain(scale) }, extras)
    }
}

/// The position of each token, i32 (B, T), or (3, B, T) where each axis has its own.
fn given_positions(model: &Model) -> Tensor {
    let [batch, length] = model.batch();
    match sections(model) {
        None => model.tokens("positions"),
        Some(_) => model.input("positions", &Type::new(Dtype::I32, [3.into(), batch, length])),
    }
}

fn sections(model: &Model) -> Option<[usize; 3]> {
    model.spec().config.images.and_then(|images| images.sections)
}

/// The rows of the rotary tables that the positions name.
fn rotary(model: &Model, of: &Tensor) -> [Tensor; 2] {
    let Config { positions, head_dim, .. } = model.spec().config;
    let table = Type::new(Dtype::F32, [positions, head_dim / 2]);
    let of_token = |name: &str| {
        let table = model.input(name, &table);
        let taken = match sections(model) {
            Some(sections) if of.ty().rank() == 3 => by_sections(&table, of, sections),
            _ => table.gather(of), // (B, T, D/2)
        };
        let one_head = [taken.dim(0), 1.into(), taken.dim(1), taken.dim(2)];
        taken.cast(model.spec().compute).reshape(one_head)
    };
    model.within("rotary", || rope::NAMES.map(of_token))
}

/// Of each section the columns of a table (P, D/2) at the positions of its axis, (B, T, D/2).
fn by_sections(table: &Tensor, positions: &Tensor, sections: [usize; 3]) -> Tensor {
    let mut first = 0;
    let of_axis = (0..3).zip(sections).filter(|(_, size)| *size > 0).map(|(axis, size)| {
        let of = positions.slice(0, axis, axis + 1).reshape([positions.dim(1), positions.dim(2)]);
        first += size;
        table.slice(1, (first - size) as i64, first as i64).gather(&of)
    });
    let of_axis: Vec<Tensor> = of_axis.collect();
    table.tape().concat(&of_axis.iter().collect::<Vec<_>>(), 2)
}

/// A tensor (B, T) as (B * T), and T.
fn flat(documents: &Tensor) -> [Tensor; 2] {
    let [batch, length] = [0, 1].map(|dim| documents.dim(dim));
    documents.tape().within("documents", || {
        let ones = documents.tape().constant(1.0, &Type::new(Dtype::I32, [&length]));
        [documents.reshape([&batch * &length]), ones.total()]
    })
}
