//! The full solutions, linked to a program last.
//!
//! Nothing that takes long to compile depends on this crate, so a changed line of a solution compiles four files and
//! links: the grader is not compiled again. `challenges` declares what is defined here
//! ([`challenges::solutions`]) and each challenge's `Solution` calls it. A program that names a `Solution` needs one line:
//!
//! ```
//! extern crate solutions as _;
//! ```
//!
//! Without it the linker misses `warpbook_solutions`. The texts stay beside their exercises, in `challenges/src/NAME/`.

use challenges::solutions::{Solutions, Texts};

#[path = "../../src/issues/chat/solution.rs"]
mod chat;
#[path = "../../src/graph/solution.rs"]
mod graph;
#[path = "../../src/loss/solution.rs"]
mod loss;
#[path = "../../src/nf4/solution.rs"]
mod nf4;

static SOLUTIONS: Solutions = Solutions {
    nf4: &nf4::Solution,
    graph: &graph::Solution,
    chat: &chat::Solution,
    loss: &loss::Solution,
    texts: Texts {
        nf4: include_str!("../../src/nf4/solution.rs"),
        nf4_cuda: include_str!("../../src/nf4/solution.cu"),
        graph: include_str!("../../src/graph/solution.rs"),
        chat: include_str!("../../src/issues/chat/solution.rs"),
        loss: include_str!("../../src/loss/solution.rs"),
    },
};

/// What `challenges::solutions` declares.
#[allow(unsafe_code)]
// SAFETY: the name begins with the project's; nothing else defines it, or the linker refuses the program.
#[unsafe(no_mangle)]
pub fn warpbook_solutions() -> &'static Solutions {
    &SOLUTIONS
}
