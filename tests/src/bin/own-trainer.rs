//! The trainer, as a program beside the tests.

fn main() -> std::process::ExitCode {
    trainer::run(std::env::args_os())
}
