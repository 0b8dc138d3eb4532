//! The reader's exercises behind the grader's own command line: each by a feature of its own, so that what is not asked
//! for is not compiled. One exercise may take another one along: challenges B and C the dequantiser of A, E the compiler of C.

#[cfg(feature = "nf4")]
#[allow(unused, unsafe_code, missing_docs, clippy::all, clippy::pedantic)] // the reader's text is the reader's
#[path = "../../../challenges/src/nf4/exercise.rs"]
mod nf4;

#[cfg(feature = "fsdp")]
#[allow(unused, unsafe_code, missing_docs, clippy::all, clippy::pedantic)]
#[path = "../../../challenges/src/fsdp/exercise.rs"]
mod fsdp;

#[cfg(feature = "graph")]
#[allow(unused, unsafe_code, missing_docs, clippy::all, clippy::pedantic)]
#[path = "../../../challenges/src/graph/exercise.rs"]
mod graph;

#[cfg(feature = "chat")]
#[allow(unused, unsafe_code, missing_docs, clippy::all, clippy::pedantic)]
#[path = "../../../challenges/src/issues/chat/exercise.rs"]
mod chat;

#[cfg(feature = "attention")]
#[allow(unused, unsafe_code, missing_docs, clippy::all, clippy::pedantic)]
#[path = "../../../challenges/src/issues/attention/exercise.rs"]
mod attention;

#[cfg(feature = "classify")]
#[allow(unused, unsafe_code, missing_docs, clippy::all, clippy::pedantic)]
#[path = "../../../challenges/src/issues/classify/exercise.rs"]
mod classify;

#[cfg(feature = "vision")]
#[allow(unused, unsafe_code, missing_docs, clippy::all, clippy::pedantic)]
#[path = "../../../challenges/src/issues/vision/exercise.rs"]
mod vision;

#[cfg(feature = "gguf")]
#[allow(unused, unsafe_code, missing_docs, clippy::all, clippy::pedantic)]
#[path = "../../../challenges/src/issues/gguf/exercise.rs"]
mod gguf;

#[cfg(feature = "loss")]
#[allow(unused, unsafe_code, missing_docs, clippy::all, clippy::pedantic)]
#[path = "../../../challenges/src/loss/exercise.rs"]
mod loss;

fn main() -> std::process::ExitCode {
    let attempts = grader::Attempts::new();
    #[cfg(feature = "nf4")]
    let attempts = attempts.nf4(nf4::Exercise);
    #[cfg(feature = "fsdp")]
    let attempts = attempts.fsdp(fsdp::Exercise);
    #[cfg(feature = "graph")]
    let attempts = attempts.graph(graph::Exercise);
    #[cfg(feature = "chat")]
    let attempts = attempts.chat(chat::Exercise);
    #[cfg(feature = "attention")]
    let attempts = attempts.attention(attention::Exercise);
    #[cfg(feature = "classify")]
    let attempts = attempts.classify(classify::Exercise);
    #[cfg(feature = "gguf")]
    let attempts = attempts.gguf(gguf::Exercise);
    #[cfg(feature = "vision")]
    let attempts = attempts.vision(vision::Exercise);
    #[cfg(feature = "loss")]
    let attempts = attempts.loss(loss::Exercise);
    attempts.run(std::env::args_os())
}
