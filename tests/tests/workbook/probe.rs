//! Drivers that are old, empty or broken: stand-ins, met by the real programs.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;

use tests::program::{Ran, finish, unwrapped};
use tests::stub::compile;

const GRADER: &str = env!("CARGO_BIN_EXE_own");

/// The grader on a machine whose driver is a stand-in.
fn beside(driver: &Path, arguments: &[&str]) -> Ran {
    let mut command = Command::new(tests::place::program(Path::new(GRADER)));
    finish(command.args(arguments).env("LD_LIBRARY_PATH", driver).env_remove("CUDA_HOME"))
}

/// A driver, and what `doctor` says of it.
const DRIVERS: [(&str, &[&str]); 5] = [
    ("", &[CARD, "CUDA driver   13.0, ", "not used: the NVIDIA driver does not start: "]),
    ("old", &[CARD, "CUDA driver   12.4, ", "not used: the NVIDIA driver does not start: "]),
    ("ancient", &[NONE, "the NVIDIA driver is too old", "CUDA driver   11.4, ", "fix: update"]),
    ("empty", &[NONE, "the NVIDIA driver finds no device"]),
    ("bare", &[NONE, "the NVIDIA driver is too old", "fix: update"]),
];
const CARD: &str = "GPU 0         Tesla T4, compute capability 7.5, 40 SMs, 14.6 GiB";
const NONE: &str = "GPU           none; every challenge runs on the CPU";

#[test]
fn no_driver_brings_the_doctor_or_a_score_down() {
    for (variant, message) in DRIVERS {
        let folder = tempfile::tempdir().expect("a folder for a driver");
        let library = folder.path().join("libcuda.so.1");
        compile("driver", variant, &library);

        let doctor = beside(folder.path(), &["doctor"]);
        assert_eq!((doctor.code, doctor.stderr.as_str()), (0, ""), "{variant}: {}", doctor.stdout);
        for message in message.iter().chain([&*library.display().to_string()].iter()) {
            assert!(unwrapped(&doctor.stdout).contains(message), "{variant}: {message:?}\n{}", doctor.stdout);
        }

        let arguments = ["score", "nf4", "--device", "cuda", "--attempt", "solution", "--json"];
        let score = beside(folder.path(), &arguments);
        let words = &score.stderr;
        assert_eq!(score.code, 3, "{variant}: {}\n{words}", score.stdout);
        assert!(words.lines().count() == 1 && words.contains("NVIDIA driver"), "{variant}: {words}");
        assert!(!words.contains("panicked"), "{variant}: {words}");
    }
}

#[test]
fn a_driver_that_is_no_library_is_named_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder for a driver");
    if beside(folder.path(), &["doctor"]).stdout.contains("CUDA driver ") {
        println!("not measured: this machine has a driver, which is found behind the broken one");
        return;
    }
    let library = folder.path().join("libcuda.so.1");
    std::fs::write(&library, "no library").expect("a file");
    let doctor = beside(folder.path(), &["doctor"]);
    assert_eq!(doctor.code, 0, "{}", doctor.stderr);
    let message = format!("no NVIDIA driver that can be used: {}: ", library.display());
    assert!(unwrapped(&doctor.stdout).contains(&message), "{}", doctor.stdout); // then the loader's own words
}
