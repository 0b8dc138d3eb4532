//! `cargo dev ptx` compiles the repository's kernels to the PTX that is kept under `kernels/ptx/`.
//!
//! It wants an NVRTC of CUDA 12, whose PTX drivers since 12.0 read; one of CUDA 13 writes a newer PTX and is
//! refused. `CUDA_HOME` names the one to use: the folder of the wheel `nvidia-cuda-nvrtc-cu12`, or a toolkit.

use std::fs;
use std::path::Path;

use grader::ptx::{Text, texts};
use kernels::cuda::{Kept, Target, compile};

use crate::{Error, Fault};

/// The newest PTX ISA that the oldest supported driver (CUDA 12.0) reads.
const NEWEST: (u32, u32) = (8, 0);

fn fault(text: &Text, what: String) -> Error {
    Error::Faults(vec![Fault { at: format!("kernels/ptx/{}.ptx", text.name), what }])
}

/// Writes every kept PTX afresh, and removes those of texts that are no more.
pub fn write(root: &Path) -> Result<(), Error> {
    let folder = root.join("kernels/ptx");
    let texts = texts();
    for text in &texts {
        let compiled = compile(&text.source(), Target::Ptx(text.capability));
        let ptx = compiled.map_err(|error| fault(text, error.to_string()))?.ptx;
        if isa(&ptx) > NEWEST {
            let (major, minor) = isa(&ptx);
            let what = format!(
                "this NVRTC writes PTX ISA {major}.{minor}, which older drivers do not read: CUDA_HOME must name \
                 an NVRTC of CUDA 12.0 (pip install nvidia-cuda-nvrtc-cu12==12.0.*)"
            );
            return Err(fault(text, what));
        }
        let whole = format!("{}\n{}", Kept::first_line(&text.source(), text.capability), without_lines(&ptx));
        let path = folder.join(&text.name).with_extension("ptx");
        fs::write(&path, whole).map_err(|source| Error::File { path: path.clone(), source })?;
        println!("{}", path.display());
    }
    let known = |name: &str| texts.iter().any(|text| format!("{}.ptx", text.name) == name);
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        if !known(&entry.file_name().to_string_lossy()) {
            println!("stale: {}", entry.path().display());
        }
    }
    Ok(())
}

/// The ISA that a PTX text says it is of.
fn isa(ptx: &str) -> (u32, u32) {
    let version = ptx.lines().find_map(|line| line.strip_prefix(".version "));
    let parts = version.and_then(|version| version.trim().split_once('.'));
    parts.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?))).unwrap_or((u32::MAX, 0))
}

/// Without the source lines that a debugger would want: the text is beside it.
fn without_lines(ptx: &str) -> String {
    let kept = ptx.lines().take_while(|line| !line.trim_start().starts_with(".section"));
    let kept = kept.filter(|line| {
        let line = line.trim_start();
        !line.starts_with(".loc") && !line.starts_with(".file") && !line.starts_with("$L__tmp")
    });
    kept.fold(String::new(), |text, line| text + line + "\n")
}
