//! Flat rows: what FSDP 1 shards.
//!
//! ```text
//! a piece's frozen parts    q: codes | q: absmax | k: codes | ...        one behind the other, a row for each type
//! on rank 0, 1              0000000000000000000 | 1111111111111111       cut anywhere: in a part, a row, a block
//! ```
//!
//! A whole piece is one gather for each type, where FSDP 2 has one for each part. What it costs: a rank cannot decode
//! what it holds, nothing in its memory is a parameter, so nothing can be saved, counted or kept by its name alone; and
//! a row has one type. FSDP 1 has a single row for everything that a module trains and does not train, which is why
//! integers break it: a row that has gradients is of floating-point numbers, so codes of 4 bits have to pass as such.
//!
//! Trained parameters keep separate shards, as in FSDP 2.
//!
//! Source: Zhao et al., "`PyTorch` FSDP" (2023), section 4.2, `FlatParameter`.

use std::collections::BTreeMap;
use std::ops::Range;

use reference::fsdp::Parameter;
use reference::graph::Dtype;
use reference::llama::{Piece, Storage};

/// Everything frozen of one type that a piece reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The piece that reads it.
    pub piece: Piece,
    /// The row, as if it were a parameter: all of its elements.
    pub parameter: Parameter,
    /// The parts, by their names in the model, each with its range of elements.
    pub members: Vec<(String, Range<usize>)>,
}

/// The rows of a piece whose frozen parts have these types and so many elements each.
pub fn rows(piece: Piece, parts: impl Iterator<Item = (String, Dtype, usize)>) -> Vec<Row> {
    let mut by_type: BTreeMap<Dtype, Vec<(String, Range<usize>)>> = BTreeMap::new();
    for (name, dtype, elements) in parts {
        let members = by_type.entry(dtype).or_default();
        let start = members.last().map_or(0, |(_, range)| range.end);
        members.push((name, start..start + elements));
    }
    let row = |(dtype, members): (Dtype, Vec<(String, Range<usize>)>)| {
        let elements = members.last().map_or(0, |(_, range)| range.end);
        let (name, storage) = (piece.own_name(&name(piece, dtype)), Storage::Dense(dtype));
        Row { piece, parameter: Parameter { name, shape: vec![elements], storage }, members }
    };
    by_type.into_iter().map(row).collect()
}

/// The canonical name of a row.
fn name(piece: Piece, dtype: Dtype) -> String {
    match piece {
        Piece::Embedding => format!("model.embedding.flat.{}", dtype.name()),
        Piece::Layer(_) => format!("model.layers.0.flat.{}", dtype.name()),
        Piece::Head => format!("model.head.flat.{}", dtype.name()),
    }
}
