//! The trainer: `cargo trainer VERB`.

fn main() -> std::process::ExitCode {
    trainer::run(std::env::args_os())
}
