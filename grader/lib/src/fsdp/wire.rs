//! What a rank puts on the wire, counted where it leaves the rank; and the most that shards take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use challenges::fsdp::programs::{self, Layout, PieceGraphs};
use challenges::fsdp::{FSDP, Sharding, Solution};
use kernels::comm::{Collective, Comm, CommError, Destination, Kind, Span, SpanMut, Ticket};
use reference::graph::ranks::Mesh;
use reference::graph::{Dim, Type};
use reference::llama::Spec;
use reference::llama::train::STREAM_GRAD;

use crate::compare::describe;

/// Bytes that a rank has put on the wire, its own share of each operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Bytes {
    /// In gathers and messages.
    pub gathered: u64,
    /// In sums. An all-reduce is a scatter and a gather: its bytes count twice.
    pub reduced: u64,
}

/// A rank's place among the others, with a count of what it puts in.
pub(super) struct Counted {
    inner: Arc<dyn Comm>,
    so_far: Arc<Counters>,
}

/// Counters of a rank, whatever group it does something with.
#[derive(Default)]
pub(super) struct Counters {
    gathered: AtomicU64,
    reduced: AtomicU64,
}

impl Counters {
    /// What was counted so far.
    pub fn bytes(&self) -> Bytes {
        Bytes { gathered: self.gathered.load(Relaxed), reduced: self.reduced.load(Relaxed) }
    }

    fn add(&self, what: &Collective, input_bytes: usize) {
        let bytes = input_bytes as u64;
        match what.kind {
            Kind::AllGather | Kind::Send { .. } => self.gathered.fetch_add(bytes, Relaxed),
            Kind::ReduceScatter => self.reduced.fetch_add(bytes, Relaxed),
            Kind::AllReduce => self.reduced.fetch_add(2 * bytes, Relaxed),
            Kind::Receive { .. } => 0,
        };
    }
}

impl Counted {
    /// Around a world, or a group of it.
    pub fn around(inner: Arc<dyn Comm>, so_far: &Arc<Counters>) -> Arc<dyn Comm> {
        Arc::new(Self { inner, so_far: Arc::clone(so_far) })
    }
}

impl Comm for Counted {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn ranks(&self) -> &[usize] {
        self.inner.ranks()
    }

    fn start(&self, what: &Collective, input: Span<'_>, output: Destination) -> Result<Ticket, CommError> {
        self.so_far.add(what, what.input_bytes(self.world()).unwrap_or(usize::MAX));
        self.inner.start(what, input, output)
    }

    fn wait(&self, ticket: Ticket, output: SpanMut<'_>) -> Result<(), CommError> {
        self.inner.wait(ticket, output)
    }

    fn exchange(&self, text: &str) -> Result<Vec<String>, CommError> {
        self.inner.exchange(text)
    }

    fn group(&self, ranks: &[usize]) -> Result<Arc<dyn Comm>, CommError> {
        Ok(Self::around(self.inner.group(ranks)?, &self.so_far))
    }

    fn fail(&self, error: CommError) -> CommError {
        self.inner.fail(error)
    }
}

/// What a rank puts on the wire for one micro-batch of its own, if it gathers its shards as they are stored, once
/// before each piece's forward and backward, and hands in each trained element's gradient in f32, padding included.
pub(super) fn of_shards(spec: &Spec, ranks: usize) -> Result<Bytes, String> {
    let mesh = Mesh::line(FSDP, ranks).map_err(describe)?;
    let layout = Layout::new(&Solution, spec, &mesh, Sharding::Parameters).map_err(describe)?;
    let pieces = programs::pieces(&Solution, &layout).map_err(describe)?;
    let last = pieces.len() - 1; // its backward follows its forward
    let gathers = |number: usize, piece: &PieceGraphs| 1 + usize::from(number < last && has_backward(piece));
    let gathered = pieces.iter().enumerate().map(|(number, piece)| gathers(number, piece) * shards(piece));
    let reduced = layout.trained().iter().map(|(_, shard)| bytes(shard) * ranks).sum::<usize>();
    Ok(Bytes { gathered: gathered.sum::<usize>() as u64, reduced: reduced as u64 })
}

fn has_backward(piece: &PieceGraphs) -> bool {
    piece.training.outputs().iter().any(|(name, _)| name == STREAM_GRAD || name.starts_with("grad."))
}

/// Bytes of the shards that are gathered for a piece.
fn shards(piece: &PieceGraphs) -> usize {
    let Some(gather) = &piece.gather else { return 0 };
    let shards = piece.shards.iter().filter_map(|shard| gather.find_input(&shard.input));
    shards.map(|id| bytes(gather.ty(id))).sum()
}

fn bytes(ty: &Type) -> usize {
    ty.shape.iter().filter_map(Dim::as_fixed).product::<i64>() as usize * ty.dtype.bytes()
}
