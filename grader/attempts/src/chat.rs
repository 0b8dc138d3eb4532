//! The reader's attempt at the part of challenge D that calls tools, behind the grader's own command line.

#[allow(unused, unsafe_code, missing_docs, clippy::all, clippy::pedantic)] // the reader's text is the reader's
#[path = "../../../challenges/src/issues/chat/exercise.rs"]
mod exercise;

fn main() -> std::process::ExitCode {
    grader::Attempts::new().chat(exercise::Exercise).run(std::env::args_os())
}
