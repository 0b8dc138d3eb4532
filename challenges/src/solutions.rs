//! The solutions that a program is linked with.
//!
//! They are compiled in a package of their own, `challenges/solutions`, on which nothing but a program's last crate
//! depends: a changed line of a solution is built in seconds. So they are declared here and defined there, and the
//! linker joins the two. Each challenge's `Solution` calls its own and counts the calls.

use crate::graph::Compile;
use crate::issues::chat::Chat;
use crate::loss::Chunked;
use crate::nf4::Nf4;

/// A solution of each challenge, and their texts.
#[allow(missing_debug_implementations)] // functions behind pointers
pub struct Solutions {
    /// (A)
    pub nf4: &'static dyn Nf4,
    /// (C)
    pub graph: &'static dyn Compile,
    /// (D), part `chat`.
    pub chat: &'static dyn Chat,
    /// (E)
    pub loss: &'static dyn Chunked,
    /// What they were compiled from.
    pub texts: Texts,
}

/// The texts of the solutions: what the exercises are derived from.
#[derive(Clone, Copy, Debug)]
pub struct Texts {
    /// (A)
    pub nf4: &'static str,
    /// (A) on CUDA.
    pub nf4_cuda: &'static str,
    /// (C)
    pub graph: &'static str,
    /// (D), part `chat`.
    pub chat: &'static str,
    /// (E)
    pub loss: &'static str,
}

#[allow(unsafe_code)]
// SAFETY: the package `solutions` defines it with this very type, from this crate.
unsafe extern "Rust" {
    safe fn warpbook_solutions() -> &'static Solutions;
}

/// The solutions of this program.
pub(crate) fn linked() -> &'static Solutions {
    warpbook_solutions()
}
