//! The reader's attempt at challenge C with their attempt at A, behind the grader's own command line.

#[allow(unused, unsafe_code, missing_docs, clippy::all, clippy::pedantic)] // the reader's text is the reader's
#[path = "../../../challenges/src/graph/exercise.rs"]
mod exercise;

#[allow(unused, unsafe_code, missing_docs, clippy::all, clippy::pedantic)]
#[path = "../../../challenges/src/nf4/exercise.rs"]
mod nf4;

fn main() -> std::process::ExitCode {
    grader::Attempts::new().graph(exercise::Exercise).nf4(nf4::Exercise).run(std::env::args_os())
}
