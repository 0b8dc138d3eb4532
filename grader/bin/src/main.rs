//! The workbook's grader: `cargo grader VERB`.

fn main() -> std::process::ExitCode {
    grader::Attempts::new().run(std::env::args_os())
}
