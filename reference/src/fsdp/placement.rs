//! What each rank holds of a parameter.

use std::ops::Range;

use crate::graph::Dtype;
use crate::llama::Storage;
use crate::nf4::{self, Layout};

/// A parameter: a weight of the model, or a trained tensor of its adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in the model.
    pub name: String,
    /// Dimensions: (out, in) of a projection.
    pub shape: Vec<usize>,
    /// How it is stored.
    pub storage: Storage,
}

/// A tensor that a parameter is stored as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The name of the graph's input.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// How many elements of the parameter, one after the other, an element of it stands for; `None` if it is a table,
    /// of which every element may be needed for any.
    pub covers: Option<usize>,
}

/// Where a parameter lies: of each of its parts, in their order, who holds what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// One for each part.
    pub parts: Vec<Shards>,
}

/// A part in shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    /// The elements of each rank, in order; they may overlap, and may be none.
    pub ranges: Vec<Range<usize>>,
    /// Elements of every shard: what a range lacks is padding, zeros.
    pub len: usize,
}

impl Parameter {
    /// Elements of a row: an index of the first dimension. A number is one row.
    pub fn row(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// Rows: the first dimension.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Elements.
    pub fn elements(&self) -> usize {
        self.rows() * self.row()
    }

    /// Elements that share one scale; 1 if it is dense.
    pub fn block(&self) -> usize {
        match self.storage {
            Storage::Dense(_) => 1,
            Storage::Nf4 { block_size, .. } => block_size,
        }
    }

    /// The fewest rows that are whole blocks.
    pub fn fewest_rows(&self) -> usize {
        let (row, block) = (self.row().max(1), self.block().max(1));
        block / greatest_common_divisor(row, block)
    }

    /// Its parts, in the order in which a graph names them.
    pub fn parts(&self) -> Vec<Part> {
        match self.storage {
            Storage::Dense(dtype) => {
                vec![Part { name: self.name.clone(), dtype, shape: self.shape.clone(), covers: Some(1) }]
            }
            Storage::Nf4 { block_size, nested, .. } => {
                let layout = Layout { len: self.elements(), block_size, nested };
                layout.parts().map(|part| self.part(&part, layout)).collect()
            }
        }
    }

    fn part(&self, part: &nf4::PartType, layout: Layout) -> Part {
        let covers = match part.part {
            nf4::Part::Packed => Some(2),
            nf4::Part::Absmax => Some(layout.block_size),
            nf4::Part::NestedAbsmax => layout.nested.map(|nested| nested * layout.block_size),
            nf4::Part::QuantMap | nf4::Part::NestedQuantMap | nf4::Part::NestedOffset => None,
        };
        Part { name: part.part.of(&self.name), dtype: part.dtype, shape: part.shape().to_vec(), covers }
    }
}

impl Part {
    /// Elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its elements that stand for some of the parameter's.
    pub fn standing_for(&self, elements: &Range<usize>) -> Range<usize> {
        match self.covers {
            Some(_) if elements.is_empty() => {
                let at = self.covers.map_or(0, |covers| elements.start / covers).min(self.elements());
                at..at
            }
            Some(covers) => elements.start / covers..elements.end.div_ceil(covers),
            None => 0..self.elements(),
        }
    }
}

impl Placement {
    /// Bytes that a rank holds of a parameter, padding included.
    pub fn rank_bytes(&self, parameter: &Parameter) -> usize {
        let parts = parameter.parts();
        self.parts.iter().zip(&parts).map(|(shards, part)| shards.len * part.dtype.bytes()).sum()
    }

    /// Bytes of everyone's shards that are padding.
    pub fn padding_bytes(&self, parameter: &Parameter) -> usize {
        let parts = parameter.parts();
        self.parts.iter().zip(&parts).map(|(shards, part)| shards.padding() * part.dtype.bytes()).sum()
    }
}

impl Shards {
    /// Everyone holds all `elements`.
    pub fn replicated(elements: usize, ranks: usize) -> Self {
        Self { ranges: vec![0..elements; ranks], len: elements }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranges.len()
    }

    /// Whether everyone holds all of it, so that there is nothing to gather.
    pub fn is_replicated(&self) -> bool {
        self.ranges.iter().all(|range| *range == (0..self.len))
    }

    /// Elements of all shards that are padding.
    pub fn padding(&self) -> usize {
        self.ranges.iter().map(|range| self.len - range.len().min(self.len)).sum()
    }

    /// Where the whole is found in the shards one after the other, in its order: one piece, where all shards but the
    /// last ones are full and none overlap.
    pub fn pieces(&self) -> Vec<Range<usize>> {
        let mut pieces: Vec<Range<usize>> = Vec::new();
        let mut done = 0;
        for (rank, range) in self.ranges.iter().enumerate().filter(|(_, range)| range.end > range.start) {
            let (from, to) = (range.start.max(done), range.end.max(done));
            let at = |element: usize| rank * self.len + element - range.start;
            match pieces.last_mut() {
                _ if from == to => {}
                Some(last) if last.end == at(from) => last.end = at(to),
                _ => pieces.push(at(from)..at(to)),
            }
            done = to;
        }
        pieces
    }

    /// A rank's shard of the bytes of a part, with its padding.
    ///
    /// # Panics
    /// If the part has fewer bytes than the rank's range.
    pub fn cut(&self, bytes: &[u8], element_bytes: usize, rank: usize) -> Vec<u8> {
        let range = &self.ranges[rank];
        let mut shard = bytes[range.start * element_bytes..range.end * element_bytes].to_vec();
        shard.resize(self.len * element_bytes, 0);
        shard
    }

    /// The bytes of a part from everyone's shards, in rank order.
    ///
    /// # Panics
    /// If a shard has fewer bytes than [`Self::len`] elements.
    pub fn whole(&self, shards: &[impl AsRef<[u8]>], element_bytes: usize) -> Vec<u8> {
        if self.is_replicated() {
            return shards.first().map(|shard| shard.as_ref().to_vec()).unwrap_or_default();
        }
        let all: Vec<u8> =
            shards.iter().flat_map(|shard| &shard.as_ref()[..self.len * element_bytes]).copied().collect();
        let piece = |piece: Range<usize>| &all[piece.start * element_bytes..piece.end * element_bytes];
        self.pieces().into_iter().flat_map(piece).copied().collect()
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
