//! The reader's attempt at challenge E with their attempt at C, behind the grader's own command line.

#[allow(unused, unsafe_code, missing_docs, clippy::all, clippy::pedantic)] // the reader's text is the reader's
#[path = "../../../challenges/src/loss/exercise.rs"]
mod exercise;

#[allow(unused, unsafe_code, missing_docs, clippy::all, clippy::pedantic)]
#[path = "../../../challenges/src/graph/exercise.rs"]
mod graph;

fn main() -> std::process::ExitCode {
    grader::Attempts::new().loss(exercise::Exercise).graph(graph::Exercise).run(std::env::args_os())
}
