//! What kind of thing an operation does: the one table that passes ask instead of listing operations.
//!
//! | class | reads | who cares |
//! |---|---|---|
//! | source | nothing of the graph | never recomputed, never fused into |
//! | pointwise | of each input the element at its own place | fusion, padding, rematerialisation |
//! | view | one element of its input for each of its own | vanishes into the strides of whoever reads it |
//! | reduction | a line of its input | fusion into rows |
//! | contraction | a line of each of two inputs | a library's product |
//! | indexing | places that values or a seam decide | gathers, scatters, concatenations |
//! | collective | what other ranks have | order across ranks, overlap |
//! | opaque | as its own definition says | a kernel of its own |
//!
//! Reading: the operator pattern kinds of Chen et al., "TVM" (2018), section 3.

use super::Op;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// No inputs: what comes from outside, constants, places.
    Source,
    /// Each element from the elements of the inputs at the same place.
    Pointwise,
    /// The elements of its one input, found by other coordinates.
    View,
    /// Elements along one dimension become one.
    Reduction,
    /// Sums of products along a dimension that two inputs share.
    Contraction,
    /// Rows or parts put where an index or their order says.
    Indexing,
    /// Something that all ranks of a group do together.
    Collective,
    /// An operation with a definition and a kernel of its own.
    Opaque,
}

impl Op {
    /// What kind of operation it is.
    pub fn class(&self) -> Class {
        match self {
            Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } => Class::Source,
            Op::Cast | Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select => Class::Pointwise,
            Op::RandomMask { .. } => Class::Pointwise,
            Op::Detach | Op::Reshape | Op::Transpose { .. } | Op::Broadcast | Op::Slice { .. } => Class::View,
            Op::Reduce(..) => Class::Reduction,
            Op::Matmul => Class::Contraction,
            Op::Gather | Op::ScatterAdd | Op::Concat { .. } => Class::Indexing,
            Op::Collective { .. } => Class::Collective,
            Op::Dequantize { .. } | Op::Attention(_) | Op::AttentionGrad { .. } => Class::Opaque,
            Op::AttentionLse(_) | Op::AttentionLseGrad { .. } => Class::Opaque,
        }
    }

    /// Whether its result is its input's elements in another arrangement.
    pub fn is_view(&self) -> bool {
        self.class() == Class::View
    }
}
