//! `doctor`: what this machine has, what that means for the score, and one line that fixes each gap.

use std::process::Command;
use std::time::Instant;

use kernels::cuda::condition::Condition;
use kernels::cuda::library::{self, Found, Kind, NotFound};
use kernels::cuda::{Card, Gpu, NoGpu};
use kernels::{Cpu, Vector, cpu};

use crate::course::{Backend, Course};
use crate::courses::COURSES;
use crate::report;
use crate::score::machine;
use crate::terminal::{hanging, print};
use crate::workbook::Workbook;

/// Prints a line for each thing that the grader relies on.
pub(crate) fn doctor() -> u8 {
    let vectors: Vec<String> = Vector::available().iter().map(ToString::to_string).collect();
    line("machine", &report::machine(&machine()));
    line("vector units", &vectors.join(", "));
    line("matrix unit", if Cpu::with_threads(1).has_matrix_unit() { "AMX, for bf16" } else { "none" });
    line("memory", &memory());
    line("streaming", &streaming());
    line("single-step", &stepping());
    gpu();
    line("workbook", &workbook());
    line("compiler", &compiler());
    0
}

fn line(name: &str, message: &str) {
    print(&hanging(&format!("{name:<13} "), message));
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
        Ok(followed) => {
            format!(
                "works ({} instructions of the solution's fast path followed)",
                followed.seen.instructions
            )
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
        Err(_) => {
            "no cargo on PATH: exercise.rs cannot be compiled (exercise.cu needs none); rustup installs it"
                .into()
        }
    }
}

/// The cards, the driver, and CUDA's libraries: all of them where there is a card, else those that are there.
fn gpu() {
    let cards = cards();
    for kind in [Kind::Driver, Kind::Nvrtc, Kind::CublasLt, Kind::Nccl, Kind::Nvml] {
        match library::open(kind) {
            Ok(found) => here(found),
            Err(missing) if kind == Kind::Driver => fix(&missing.fix()),
            Err(missing) if cards > 0 || !missing.refused.is_empty() => gap(&missing),
            Err(_) => {}
        }
    }
}

/// Prints the cards and returns how many there are.
fn cards() -> usize {
    let mut count = 0;
    loop {
        match Gpu::look(count) {
            Ok(found) => card(&found),
            Err(reason) if count == 0 => {
                line("GPU", "none; every challenge runs on the CPU");
                more(&reason.to_string());
                return 0;
            }
            Err(NoGpu::NoDevice { .. }) => return count, // that was the last one
            Err(reason) => {
                line(&format!("GPU {count}"), &reason.to_string());
                return count;
            }
        }
        count += 1;
    }
}

/// What a card is, how it fares, and whether it can be used: only a start tells.
fn card(card: &Card) {
    let Card { ordinal, name, capability: (major, minor), sms, memory_bytes, pci_bus, .. } = card;
    let memory = *memory_bytes as f64 / f64::from(1 << 30);
    let message = format!("{name}, compute capability {major}.{minor}, {sms} SMs, {memory:.1} GiB");
    line(&format!("GPU {ordinal}"), &message);
    if library::open(Kind::Nvml).is_ok() {
        more(&Condition::of(pci_bus).map_or_else(|reason| reason, |condition| condition.to_string()));
    }
    match Gpu::nth(*ordinal) {
        Ok(_) => more(&format!("runs {}; the other challenges run on the CPU", on_cards())),
        Err(reason) => more(&format!("not used: {reason}")),
    }
}

/// The letters of the challenges that have a back end for it.
fn on_cards() -> String {
    let letters = COURSES.iter().filter(|course| course.backend == Backend::Cuda).map(Course::letter);
    letters.collect::<Vec<_>>().join(", ")
}

fn here(found: &Found) {
    let Found { kind, path, place, version, passed_over, .. } = found;
    let version = version.map_or(String::new(), |(major, minor)| format!("{major}.{minor}, "));
    line(&short(*kind), &format!("{version}{} ({place})", path.display()));
    for refused in passed_over {
        more(&format!("passed over: {refused}"));
    }
    if *kind == Kind::Driver && found.version.is_none_or(|version| version < (12, 0)) {
        more("fix: update NVIDIA's driver to one of CUDA 12.0 or newer");
    }
}

fn gap(missing: &NotFound) {
    line(&short(missing.kind), &format!("missing: {}", missing.reason()));
    fix(&missing.fix());
}

/// What closes a gap; a command stays on one line.
fn fix(message: &str) {
    if message.starts_with("pip ") {
        return print(&format!("{:<13} fix: {message}\n", ""));
    }
    more(&format!("fix: {message}"));
}

/// A line that goes on with the one above it.
fn more(message: &str) {
    line("", message);
}

/// A library's name in the first column.
fn short(kind: Kind) -> String {
    if kind == Kind::Driver { "CUDA driver".into() } else { kind.to_string() }
}
