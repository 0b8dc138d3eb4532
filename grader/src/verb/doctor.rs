//! `doctor`: what this machine has, what that means for the score, and one line that fixes each gap.

use std::process::Command;
use std::time::Instant;

use kernels::{Cpu, Vector, cpu};

use crate::report;
use crate::score::machine;
use crate::terminal::print;
use crate::workbook::Workbook;

/// Prints a line for each thing that the grader relies on.
pub(crate) fn doctor() -> u8 {
    let vectors: Vec<String> = Vector::available().iter().map(ToString::to_string).collect();
    let lines = [
        ("machine", report::machine(&machine())),
        ("vector units", vectors.join(", ")),
        ("memory", memory()),
        ("streaming", streaming()),
        ("single-step", stepping()),
        ("GPU", "none used: this version has no CUDA back end; every challenge runs on the CPU".into()),
        ("workbook", workbook()),
        ("compiler", compiler()),
    ];
    for (name, told) in lines {
        print(&format!("{name:<13} {told}\n"));
    }
    0
}

fn memory() -> String {
    match cpu::host().memory_bytes {
        0 => "unknown; a timed case needs about 1 GiB".into(),
        bytes if bytes < 2 << 30 => {
            format!("{:.1} GiB: the timed cases need about 1 GiB free", bytes as f64 / f64::from(1 << 30))
        }
        bytes => format!("{:.1} GiB, enough", bytes as f64 / f64::from(1 << 30)),
    }
}

/// Bandwidth of four mixes, streaming, on all threads.
fn streaming() -> String {
    const OUT: usize = 32 << 20; // words: 64 MiB
    let device = Cpu::new();
    let source = vec![1u8; OUT * 2];
    let mut out = vec![0u16; OUT];
    let mut rate = |read: usize| {
        let times = (0..4).map(|_| {
            let begin = Instant::now();
            cpu::stream(&device, &source[..read], &mut out);
            begin.elapsed().as_secs_f64()
        });
        let best = times.fold(f64::INFINITY, f64::min);
        (read + OUT * 2) as f64 / best / 1e9
    };
    format!(
        "{:.1} GB/s writing only, {:.1} at 1 read : 4 written (NF4's mix), {:.1} at 1 : 1",
        rate(0),
        rate(OUT / 2),
        rate(OUT * 2)
    )
}

fn stepping() -> String {
    match crate::step::watch("nf4", "solution") {
        Ok(seen) => {
            format!("works ({} instructions of the solution's fast path followed)", seen.instructions)
        }
        Err(reason) => format!("{reason}: two rows of A, worth 4 points, are not measured here"),
    }
}

fn workbook() -> String {
    match Workbook::find() {
        Ok(workbook) => workbook.root().display().to_string(),
        Err(reason) => format!("{reason} (only --attempt solution can be graded)"),
    }
}

fn compiler() -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    match Command::new(cargo).arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(_) => "no cargo on PATH: an exercise cannot be compiled; rustup installs it".into(),
    }
}
