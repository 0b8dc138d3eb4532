//! Where CUDA's libraries are looked for: stand-ins put into each place, and what `doctor` makes of them.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tests::program::{finish, unwrapped};
use tests::stub::compile;

/// A machine with folders of our own and no Python but ours.
struct Machine {
    folder: TempDir,
    toolkit: bool,
}

impl Machine {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder for a machine"), toolkit: false }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// A stand-in for NVRTC, and the built-in functions beside it.
    fn nvrtc(&self, folder: &str, variant: &str) -> PathBuf {
        let (major, version) = if variant == "old" { ("12", "12.4") } else { ("13", "13.0") };
        let library = self.at(folder).join(format!("libnvrtc.so.{major}"));
        compile("library", variant, &library);
        compile("library", variant, &self.at(folder).join(format!("libnvrtc-builtins.so.{version}")));
        library
    }

    /// A Python that answers with `script`.
    fn python(&self, script: &str) {
        let program = self.at("bin/python3");
        fs::create_dir_all(self.at("bin")).expect("a folder for programs");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it can be run");
    }

    /// The doctor's line for NVRTC with those that go on with it; empty if there is none.
    fn nvrtc_lines(&self) -> String {
        self.lines_of("NVRTC")
    }

    fn lines_of(&self, name: &str) -> String {
        let mut command = Command::new(tests::place::program(Path::new(env!("CARGO_BIN_EXE_own"))));
        command.arg("doctor").env("PATH", self.at("bin")).env("LD_LIBRARY_PATH", self.at("loader"));
        command.env_remove("CUDA_PATH").env_remove("CUDA_HOME");
        if self.toolkit {
            command.env("CUDA_HOME", self.at("toolkit"));
        }
        let ran = finish(&mut command);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
        let lines = ran.stdout.lines().skip_while(|line| !line.starts_with(name));
        let whole = lines.enumerate().take_while(|(n, line)| *n == 0 || line.starts_with(' '));
        unwrapped(&whole.map(|(_, line)| line).collect::<Vec<_>>().join("\n")).trim().to_owned()
    }
}

fn holds(lines: &str, library: &Path, version: &str, place: &str) {
    let message = format!("{version}, {} ({place}", library.display());
    assert!(lines.contains(&message), "{message:?} in {lines:?}");
}

#[test]
fn a_compiler_is_found_where_the_environment_says() {
    let machine = Machine { toolkit: true, ..Machine::new() };
    let library = machine.nvrtc("toolkit/lib64", "");
    holds(&machine.nvrtc_lines(), &library, "13.0", "CUDA_HOME, ");
}

#[test]
fn a_compiler_is_found_on_the_loaders_path() {
    let machine = Machine::new();
    let library = machine.nvrtc("loader", "");
    holds(&machine.nvrtc_lines(), &library, "13.0", "the loader's path)");
}

#[test]
fn a_compiler_is_found_in_the_wheels_of_cuda_12_and_of_cuda_13() {
    for (folder, variant, version) in
        [("site/nvidia/cu13/lib", "", "13.0"), ("site/nvidia/cuda_nvrtc/lib", "old", "12.4")]
    {
        let machine = Machine::new();
        let elsewhere = machine.nvrtc_lines();
        if !elsewhere.is_empty() {
            println!("not measured: this machine has a compiler already: {elsewhere}");
            return;
        }
        let library = machine.nvrtc(folder, variant);
        machine.python(&format!("echo\necho /nowhere\necho {}", machine.at("site").display()));
        let place = format!("the wheels of {})", machine.at("bin/python3").display());
        holds(&machine.nvrtc_lines(), &library, version, &place);
    }
}

/// NCCL's wheel has a name that cudarc does not look for.
#[test]
fn a_library_is_found_under_a_name_that_is_not_cudarcs() {
    let machine = Machine { toolkit: true, ..Machine::new() };
    let library = machine.at("toolkit/lib/libnccl.so.2");
    compile("library", "", &library);
    holds(&machine.lines_of("NCCL"), &library, "2.28", "CUDA_HOME, ");
}

/// The loader would hand cudarc the newer one.
#[test]
fn beside_an_old_driver_the_compiler_that_it_reads_is_taken() {
    let machine = Machine { toolkit: true, ..Machine::new() };
    compile("driver", "old", &machine.at("loader/libcuda.so.1"));
    let newer = machine.nvrtc("loader", "");
    let newest = machine.nvrtc("toolkit/lib64", "");
    let fitting = machine.nvrtc("toolkit/lib64", "old");
    fs::copy(&newer, machine.at("loader/libnvrtc.so")).expect("cudarc's first name");
    let lines = machine.nvrtc_lines();
    holds(&lines, &fitting, "12.4", "CUDA_HOME, ");
    let refusal = format!("passed over: {}: it is of CUDA 13.0", newest.display());
    assert!(lines.contains(&refusal), "{refusal:?} in {lines:?}");
}

#[test]
fn a_compiler_that_no_driver_here_reads_is_told_with_the_wheel_that_fits() {
    let machine = Machine::new();
    compile("driver", "old", &machine.at("loader/libcuda.so.1"));
    let newer = machine.nvrtc("loader", "");
    let lines = machine.nvrtc_lines();
    if !lines.contains("missing: ") {
        println!("not measured: this machine has another compiler: {lines}");
        return;
    }
    let message =
        format!("{}: it is of CUDA 13.0, which the driver (CUDA 12.4) does not read", newer.display());
    assert!(lines.contains(&message), "{message:?} in {lines:?}");
    assert!(lines.contains("fix: pip install nvidia-cuda-nvrtc-cu12==12.4.*"), "{lines:?}");
}

#[test]
fn a_file_that_cannot_be_opened_is_told_with_the_reason() {
    for broken in ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"] {
        let machine = Machine { toolkit: true, ..Machine::new() };
        machine.nvrtc("toolkit/lib64", "");
        let file = machine.at("toolkit/lib64").join(broken);
        fs::write(&file, "no library").expect("a broken file");
        let lines = machine.nvrtc_lines();
        assert!(lines.contains(&format!("{}: ", file.display())), "{lines:?}");
        assert!(lines.contains("too short") || lines.contains("ELF"), "the loader's words: {lines:?}");
    }
}

#[test]
fn a_python_that_does_not_answer_is_not_waited_for() {
    let machine = Machine::new();
    machine.python("exec /bin/sleep 60");
    let begin = Instant::now();
    machine.nvrtc_lines();
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}
