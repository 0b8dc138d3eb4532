//! What ranks do together, as operations.
//!
//! Every rank of a world runs a graph - usually the same text, on other values (SPMD: a rank's own number, where a
//! graph needs it, is an input like others). Ranks lie in a mesh of named axes, and the ranks that differ along one
//! axis alone are a *group*: that of `fsdp` gathers a weight, that of `dp` adds gradients, that of `pp` hands
//! activations on. A collective names the axis, and what it does among the group's ranks, in their order along it:
//!
//! | operation | on every rank of a group of W | its derivative |
//! |---|---|---|
//! | `all_gather` | `x (.., n, ..) -> (.., W n, ..)`: all shards, rank 0's first | `reduce_scatter` |
//! | `reduce_scatter` | `x (.., W n, ..) -> (.., n, ..)`: the sum of all, of it the own shard | `all_gather` |
//! | `all_reduce` | `x -> x`: the sum of all | `all_reduce` |
//! | `send` | `x -> x`: goes to the rank `by` further along the axis, round its end | `receive` |
//! | `receive` | `x -> x`: what came from the rank `by` further along; of `x` the type alone counts | `send` |
//!
//! **Sums** are taken in rank order, rank 0 first, in f32 for f16 and bf16, and rounded once.
//!
//! **The size W** stands in the operation ([`Group::size`]): a number, or a symbol of the graph, whose facts then say
//! what is known of it (a graph for any world). It makes the types (`W n`), so ranks never have to ask; that a mesh
//! really has so many ranks along the axis is checked when the graph runs, and a symbol is bound then.
//!
//! **Derivatives** are those of the sum of all ranks' losses, with respect to each rank's own values: what a rank's
//! `x` does to other ranks' losses comes back by the collective in the table.
//!
//! **Sends.** What a `send` gives is a token: the type of what was sent, which a `receive` may read (after that send,
//! in this graph) and an output may name, and nothing else. So a ring is `x.send(1).receive(-1)`, and the gradient of
//! the token is itself a token, that of the gradient sent back. A stage of a pipeline that only sends has the token as
//! an output, and one that only receives has an input of zeros in its place, whose gradient it names as an output.
//! Messages between two ranks arrive in the order in which they were sent; a send never waits.
//!
//! Reading: Rajbhandari et al., "`ZeRO`" (2020), for gather and scatter as each other's derivative; the MPI standard,
//! chapter 6, for the collectives.

use super::Dim;

/// What the ranks of a group do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Everyone's shards one after the other along a dimension.
    AllGather {
        /// The dimension.
        dim: usize,
    },
    /// The sum of everyone's tensors, of it the own shard along a dimension.
    ReduceScatter {
        /// The dimension.
        dim: usize,
    },
    /// The sum of everyone's tensors.
    AllReduce,
    /// A tensor goes to another rank.
    Send {
        /// How many ranks further along the axis, round its end; negative towards rank 0.
        by: i64,
    },
    /// A tensor comes from another rank.
    Receive {
        /// How many ranks further along the axis, round its end; negative towards rank 0.
        by: i64,
    },
}

/// The ranks that differ along one axis of the mesh alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The axis.
    pub axis: String,
    /// How many they are: a number or a symbol.
    pub size: Dim,
}

impl Group {
    /// The group of an axis of so many ranks.
    pub fn new(axis: impl Into<String>, size: impl Into<Dim>) -> Self {
        Self { axis: axis.into(), size: size.into() }
    }
}

impl Collective {
    /// Its name in a graph's text.
    pub fn name(self) -> &'static str {
        match self {
            Collective::AllGather { .. } => "all_gather",
            Collective::ReduceScatter { .. } => "reduce_scatter",
            Collective::AllReduce => "all_reduce",
            Collective::Send { .. } => "send",
            Collective::Receive { .. } => "receive",
        }
    }

    /// What it does to gradients.
    #[must_use]
    pub fn derivative(self) -> Self {
        match self {
            Collective::AllGather { dim } => Collective::ReduceScatter { dim },
            Collective::ReduceScatter { dim } => Collective::AllGather { dim },
            Collective::AllReduce => Collective::AllReduce,
            Collective::Send { by } => Collective::Receive { by },
            Collective::Receive { by } => Collective::Send { by },
        }
    }

    /// Whether every rank of the group waits for every other one.
    pub fn is_joint(self) -> bool {
        match self {
            Collective::AllGather { .. } | Collective::ReduceScatter { .. } | Collective::AllReduce => true,
            Collective::Send { .. } | Collective::Receive { .. } => false,
        }
    }
}
