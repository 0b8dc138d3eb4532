//! The trainer, as a program beside the tests.

/// So that the peak that `train` reports is counted.
#[global_allocator]
static BYTES: kernels::bytes::Counting = kernels::bytes::Counting;

fn main() -> std::process::ExitCode {
    trainer::run(std::env::args_os())
}
