//! The full solutions, linked to a program last.
//!
//! Nothing that takes long to compile depends on this crate, so a changed line of a solution compiles four files and
//! links: the grader is not compiled again. Each challenge declares what is defined here (the package [`linked`]) and
//! its `Solution` calls it. The steps are wrapped in the challenge's `Counted`, so that every call counts. A program
//! that names a `Solution` needs one line:
//!
//! ```
//! extern crate solutions as _;
//! ```
//!
//! Without it the linker misses `warpbook_...`. The texts stay beside their exercises, in `challenges/src/NAME/`.

use challenges::fsdp::Fsdp;
use challenges::graph::Compile;
use challenges::issues::attention::Attend;
use challenges::issues::chat::Chat;
use challenges::issues::classify::Classify;
use challenges::issues::gguf::Gguf;
use challenges::issues::vision::Vision;
use challenges::loss::Chunked;
use challenges::nf4::Nf4;
use linked::Linked;

#[path = "../../src/issues/attention/solution.rs"]
mod attention;
#[path = "../../src/issues/chat/solution.rs"]
mod chat;
#[path = "../../src/issues/classify/solution.rs"]
mod classify;
#[path = "../../src/fsdp/solution.rs"]
mod fsdp;
#[path = "../../src/issues/gguf/solution.rs"]
mod gguf;
#[path = "../../src/graph/solution.rs"]
mod graph;
#[path = "../../src/loss/solution.rs"]
mod loss;
#[path = "../../src/nf4/solution.rs"]
mod nf4;
#[path = "../../src/issues/vision/solution.rs"]
mod vision;

/// Defines what a challenge declares.
macro_rules! define {
    ($name:ident -> $what:ty, $value:expr) => {
        #[allow(unsafe_code, missing_docs)]
        // SAFETY: the name begins with the project's; if anything else defined it, the linker would refuse the program.
        #[unsafe(no_mangle)]
        pub fn $name() -> $what {
            $value
        }
    };
}

define!(warpbook_nf4 -> Linked<dyn Nf4>, Linked {
    steps: &challenges::nf4::Counted(nf4::Solution),
    text: include_str!("../../src/nf4/solution.rs"),
});
define!(warpbook_nf4_cuda -> &'static str, include_str!("../../src/nf4/solution.cu"));
define!(warpbook_fsdp -> Linked<dyn Fsdp>, Linked {
    steps: &challenges::fsdp::Counted(fsdp::Solution),
    text: include_str!("../../src/fsdp/solution.rs"),
});
define!(warpbook_graph -> Linked<dyn Compile>, Linked {
    steps: &challenges::graph::Counted(graph::Solution),
    text: include_str!("../../src/graph/solution.rs"),
});
define!(warpbook_attention -> Linked<dyn Attend>, Linked {
    steps: &challenges::issues::attention::Counted(attention::Solution),
    text: include_str!("../../src/issues/attention/solution.rs"),
});
define!(warpbook_chat -> Linked<dyn Chat>, Linked {
    steps: &challenges::issues::chat::Counted(chat::Solution),
    text: include_str!("../../src/issues/chat/solution.rs"),
});
define!(warpbook_classify -> Linked<dyn Classify>, Linked {
    steps: &challenges::issues::classify::Counted(classify::Solution),
    text: include_str!("../../src/issues/classify/solution.rs"),
});
define!(warpbook_gguf -> Linked<dyn Gguf>, Linked {
    steps: &challenges::issues::gguf::Counted(gguf::Solution),
    text: include_str!("../../src/issues/gguf/solution.rs"),
});
define!(warpbook_vision -> Linked<dyn Vision>, Linked {
    steps: &challenges::issues::vision::Counted(vision::Solution),
    text: include_str!("../../src/issues/vision/solution.rs"),
});
define!(warpbook_loss -> Linked<dyn Chunked>, Linked {
    steps: &challenges::loss::Counted(loss::Solution),
    text: include_str!("../../src/loss/solution.rs"),
});
