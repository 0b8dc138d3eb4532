//! Fuzz: any bytes, drawn as a plan.
//!
//! Nothing may panic, overflow or leave its memory; a plan is refused when it is prepared, or it writes its outputs and
//! nothing else, on one thread and on three.

#![no_main]

use std::sync::LazyLock;

use kernels::Cpu;
use libfuzzer_sys::fuzz_target;

#[path = "../../src/plans.rs"]
#[allow(dead_code)] // what only the tests call
mod plans;

static DEVICES: LazyLock<[Cpu; 2]> = LazyLock::new(|| [1, 3].map(Cpu::with_threads));

fuzz_target!(|bytes: &[u8]| {
    for device in &*DEVICES {
        plans::hold(plans::drawn(bytes), device, 0);
    }
});
