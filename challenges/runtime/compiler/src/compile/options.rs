//! The passes that are made, and the levels that choose them.

/// Which passes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each pass is there or not, whatever the others are
pub struct Options {
    /// C.3: without what is dead, double or idle.
    pub prune: bool,
    /// C.4: kernels of more than one operation.
    pub fuse: bool,
    /// C.5: buffers that share bytes.
    pub place: bool,
    /// C.8: attention as one launch.
    pub flex: bool,
    /// Whether what costs next to nothing is computed again for the backward part.
    pub remat: bool,
    /// Whether every layer is computed again from its input for the backward part (gradient checkpointing), and with
    /// it what costs next to nothing. A cap decides otherwise.
    pub remat_layers: bool,
    /// The largest arena in bytes, if there is a bound: then as much is computed again as that takes, and no more.
    pub cap: Option<usize>,
    /// Whether an output with the name and the type of an input ends in that input's memory. See
    /// [`Compiled::donated`](super::Compiled::donated).
    pub donate: bool,
    /// Whether an attention in f16 or bf16 is a step in that type; else it is one in f32, between casts. A step in the
    /// type reads half the bytes and multiplies on tensor cores; its gradients read the output as it is stored,
    /// rounded, as those of `FlashAttention` do. [`Session`](crate::session::Session) asks the device.
    pub narrow_attention: bool,
    /// Whether the device runs steps that do not wait for each other side by side. Then memory that is free again is
    /// left alone for a while, where that takes few bytes more: see [`arena::apart`](crate::ir::arena::apart). The
    /// session asks the device. With [`remat_layers`](Self::remat_layers) bytes are what is short, and none are left
    /// alone.
    pub side_by_side: bool,
    /// How many operations between ranks may be in flight while this rank computes. With none, each is waited for where
    /// it is started; all ranks have to agree. See [`overlap`](crate::fuse::overlap).
    pub in_flight: usize,
}

/// How much is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Every operation as it is written, a launch each, in memory of its own.
    O0,
    /// Without what is dead or computed twice, over one arena; still a launch for each operation.
    O1,
    /// Fused.
    #[default]
    O2,
    /// And tuned.
    O3,
}

impl Level {
    /// Each of them, from the least on.
    pub const ALL: [Level; 4] = [Level::O0, Level::O1, Level::O2, Level::O3];

    /// Whether products are tuned.
    pub fn tunes(self) -> bool {
        self >= Level::O3
    }

    /// Its passes.
    pub fn options(self) -> Options {
        let from = |level: Level| self >= level;
        let (prune, place) = (from(Level::O1), from(Level::O1));
        let (fuse, remat) = (from(Level::O2), from(Level::O2));
        Options {
            prune,
            place,
            fuse,
            flex: true,
            remat,
            remat_layers: false,
            cap: None,
            donate: false,
            narrow_attention: false,
            side_by_side: false,
            in_flight: 0,
        }
    }
}
