//! A stand-in for NVRTC, cuBLASLt and NCCL: it says its version and does nothing. The tests compile it under
//! the names of those libraries. Variants, by `--cfg`: none, of CUDA 13.0; `old`, of CUDA 12.4.

#![allow(non_snake_case)]

use std::ffi::c_int;

#[unsafe(no_mangle)]
extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int {
    let version = if cfg!(old) { (12, 4) } else { (13, 0) };
    // SAFETY: the caller hands in two places for the answer.
    unsafe {
        major.write(version.0);
        minor.write(version.1);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    if cfg!(old) { 120405 } else { 130002 }
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller hands in a place for the answer.
    unsafe { version.write(22809) };
    0
}
