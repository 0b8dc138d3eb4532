//! The CPU as a device: threads, vector units, launches.
//!
//! [`Cpu::launch`] is the CPU's word for a kernel launch: one parallel pass over an output that is cut
//! into pieces, each owned by one thread at a time. Launches are counted; a fused kernel is one.

mod amx;
mod attention;
mod callee;
mod device;
mod engine;
mod executable;
mod host;
mod lanes;
mod narrow;
mod packed_gemm;
mod product;
mod scratch;
mod stream;
mod tick;
mod transpose;
mod vector;
#[cfg(windows)]
mod windows;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use rayon::prelude::*;

use crate::buffer::Tally;

pub use callee::{HostCallee, Quantized, Scales};
pub(crate) use executable::executable_scratch;
pub use executable::{MOST_KEPT_BYTES, pass_scratch};
pub use host::{Host, host};
pub use stream::stream;
pub use tick::Tick;
pub use vector::{VECTOR_VARIABLE, Vector};

use scratch::Scratch;

/// Launches of all devices of this process.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// Launches of this process so far, whichever device they went through.
pub fn launches() -> u64 {
    LAUNCHES.load(Relaxed)
}

/// A CPU with a number of threads and a vector unit that work may use.
pub struct Cpu {
    pool: Option<rayon::ThreadPool>, // none: everything runs on the calling thread
    threads: usize,
    vector: Vector,
    made: Instant,
    launches: AtomicU64,
    read: AtomicU64,      // bytes, by steps
    written: AtomicU64,   // bytes, by steps
    allocated: AtomicU64, // bytes
    tally: Arc<Tally>,
    uploaded: AtomicU64,   // bytes
    downloaded: AtomicU64, // bytes
    attention_blocks: AtomicU64,
    scratch: Scratch,
}

/// Pieces that a launch cuts for each thread: more than one, so that a thread which the system holds up does
/// not hold up the whole pass; few, because each piece is a stream that the prefetcher has to find again (at
/// 32 pieces an ordinary-store pass over 148 MB was a tenth slower than at 2, on two cores of an Intel Xeon
/// with AVX-512).
const PIECES_PER_THREAD: usize = 2;

/// A piece is at least this long in bytes, so that small outputs are not shredded.
const PIECE_BYTES: usize = 64 * 1024;

impl Cpu {
    /// All cores that the process may use, and the widest vector unit there is.
    pub fn new() -> Self {
        Self::with_threads(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// A given number of threads. With one, work runs on the calling thread itself.
    pub fn with_threads(threads: usize) -> Self {
        let build = || rayon::ThreadPoolBuilder::new().num_threads(threads).build().ok();
        let pool = (threads > 1).then(build).flatten();
        if let Some(pool) = &pool {
            // A thread takes memory when it starts, and when it first looks for work at its neighbours: let that be
            // now, not in a run.
            pool.broadcast(|_| rayon::yield_now());
        }
        let threads = if pool.is_some() { threads } else { 1 };
        Self {
            pool,
            threads,
            vector: Vector::widest(),
            made: Instant::now(),
            launches: AtomicU64::new(0),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            allocated: AtomicU64::new(0),
            tally: Arc::default(),
            uploaded: AtomicU64::new(0),
            downloaded: AtomicU64::new(0),
            attention_blocks: AtomicU64::new(0),
            scratch: Scratch::new(threads),
        }
    }

    /// The same device held to a narrower vector unit; `None` if the machine does not have it.
    #[must_use]
    pub fn limited_to(self, vector: Vector) -> Option<Self> {
        Vector::available().contains(&vector).then_some(Self { vector, ..self })
    }

    /// Threads that a launch spreads over.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Bytes that the library of products keeps for threads that have run one: a second-level cache for each. They are
    /// beside the scratch of executables.
    ///
    /// Source: `L2_SLAB` of the crate `gemm-common`, 0.19.
    pub fn product_bytes(&self) -> usize {
        self.threads * gemm_common::cache::CACHE_INFO[1].cache_bytes
    }

    /// The vector unit that work may use: the widest of the machine, or what the device was limited to.
    pub fn vector(&self) -> Vector {
        self.vector
    }

    /// Whether products of bf16 are computed by a matrix unit: on x86 with AMX, unless the device was limited.
    pub fn has_matrix_unit(&self) -> bool {
        self.vector == Vector::Avx512 && amx::is_available()
    }

    /// Launches since the device was made.
    pub fn launches(&self) -> u64 {
        self.launches.load(Relaxed)
    }

    /// What each of the device's threads answers, once each; of a device with one thread, the calling one.
    pub fn each_thread<T: Send>(&self, ask: impl Fn() -> T + Sync) -> Vec<T> {
        match &self.pool {
            Some(pool) => pool.broadcast(|_| ask()),
            None => vec![ask()],
        }
    }

    /// Blocks of attention that were computed since the device was made. The gradients of a block count as one, or as
    /// two where those of its queries and those of its keys are computed apart.
    pub fn attention_blocks(&self) -> u64 {
        self.attention_blocks.load(Relaxed)
    }

    /// Counts a step of a plan.
    fn count(&self, (read, written): (u64, u64)) {
        self.launches.fetch_add(1, Relaxed);
        LAUNCHES.fetch_add(1, Relaxed);
        self.read.fetch_add(read, Relaxed);
        self.written.fetch_add(written, Relaxed);
    }

    /// One pass over `out`, cut into pieces whose lengths are multiples of `unit` elements (the last one
    /// may be shorter). `body(first, piece)` fills the piece that begins at element `first`; pieces run on
    /// all threads, in no given order.
    ///
    /// # Panics
    /// If `unit` is 0, or when `body` panics.
    pub fn launch<T: Send>(&self, out: &mut [T], unit: usize, body: impl Fn(usize, &mut [T]) + Sync) {
        self.launches.fetch_add(1, Relaxed);
        LAUNCHES.fetch_add(1, Relaxed);
        let length = piece_length(out.len(), unit, size_of::<T>(), self.threads);
        let Some(pool) = &self.pool else {
            return body(0, out);
        };
        pool.install(|| {
            out.par_chunks_mut(length).enumerate().for_each(|(i, piece)| body(i * length, piece));
        });
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

/// Elements a piece: a multiple of `unit`, about half a thread's share, at least 64 KiB.
fn piece_length(elements: usize, unit: usize, element_bytes: usize, threads: usize) -> usize {
    assert!(unit > 0, "a launch needs a unit of at least one element");
    let share = elements.div_ceil(threads * PIECES_PER_THREAD);
    share.max(PIECE_BYTES / element_bytes.max(1)).div_ceil(unit).max(1) * unit
}
