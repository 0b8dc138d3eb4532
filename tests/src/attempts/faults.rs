//! Faults: attempts that end early, never, or in a way that disturbs whoever grades them.
//!
//! Each is the solution but for one check's input (a block whose scale is zero), so that a test can tell
//! whether the fault stayed where it belongs.

#![allow(unsafe_code)] // a segmentation fault has no safe form

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use challenges::nf4::{Absmax, Nf4, Output, Weight};
use kernels::Cpu;

use super::Entry;
use super::honest::nf4::Solution;

/// Every fault.
pub const FAULTS: [Entry; 12] = [
    Entry { name: "panics", hand_in: |all| all.nf4(Fault(|| panic!("no block has a scale of zero"))) },
    Entry { name: "overflows its stack", hand_in: |all| all.nf4(Fault(|| _ = deeper(&[0; 64]))) },
    Entry { name: "segfaults", hand_in: |all| all.nf4(Fault(segfault)) },
    Entry { name: "exits", hand_in: |all| all.nf4(Fault(|| std::process::exit(0))) },
    Entry { name: "aborts", hand_in: |all| all.nf4(Fault(|| std::process::abort())) },
    Entry { name: "loops", hand_in: |all| all.nf4(Fault(endless)) },
    Entry { name: "allocates without bound", hand_in: |all| all.nf4(Fault(hoard)) },
    Entry { name: "prints results", hand_in: |all| all.nf4(Fault(print_results)) },
    Entry { name: "spoils the result pipe", hand_in: |all| all.nf4(Fault(spoil_pipe)) },
    Entry { name: "hangs at its exit", hand_in: |all| all.nf4(Fault(|| HANGING.with(|_| ()))) },
    Entry { name: "leaves a child process", hand_in: |all| all.nf4(Fault(leave_child)) },
    Entry {
        name: "leaves a child process and loops",
        hand_in: |all| {
            all.nf4(Fault(|| {
                leave_child();
                endless();
            }))
        },
    },
];

/// The file that a process which "leaves a child process" left goes on writing to.
pub const HEARTBEAT: &str = "WARPBOOK_HEARTBEAT";

/// The solution, and what happens at a block whose scale is zero.
pub(super) struct Fault(pub fn());

impl Nf4 for Fault {
    fn unpack(&self, packed: &[u8], codes: &mut [u8]) {
        Solution.unpack(packed, codes);
    }

    fn look_up(&self, codes: &[u8], table: &[f32; 16], values: &mut [f32]) {
        Solution.look_up(codes, table, values);
    }

    fn block(&self, packed: &[u8], table: &[f32; 16], absmax: f32, values: &mut [f32]) {
        if absmax == 0.0 {
            (self.0)();
        }
        Solution.block(packed, table, absmax, values);
    }

    fn absmax(&self, absmax: &Absmax<'_>, block: usize) -> f32 {
        Solution.absmax(absmax, block)
    }

    fn dequantize(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        Solution.dequantize(cpu, weight, out);
    }

    fn dequantize_fast(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        Solution.dequantize_fast(cpu, weight, out);
    }
}

/// Every call needs a frame of its own, and none of them is the last.
fn deeper(above: &[u64; 64]) -> u64 {
    let mine = std::hint::black_box(above.map(|word| word + 1));
    if mine[0] == u64::MAX { 0 } else { deeper(&mine) + mine[1] }
}

fn segfault() {
    let nowhere = std::hint::black_box(8usize) as *mut u64;
    // SAFETY: none; the first page belongs to nobody, which is the point.
    unsafe { nowhere.write_volatile(1) };
}

fn endless() {
    loop {
        std::hint::spin_loop();
    }
}

fn hoard() {
    let mut all = Vec::new();
    loop {
        all.push(std::hint::black_box(vec![0u8; 64 << 20]));
    }
}

/// What the grader would say, on every stream that an attempt has, and an answer awaited.
fn print_results() {
    let forged = r#"{"Check":{"name":"A.5/prime-f16","outcome":"wrong","detail":"","replay":""}}"#;
    for _ in 0..2000 {
        println!("{forged}\n\"End\"");
        eprintln!("{{\"points\": 55}} {forged}");
    }
    let _ = std::io::stdin().read(&mut [0; 16]);
}

/// Writes nonsense into every connection that this process has, then waits to be believed.
fn spoil_pipe() {
    super::forge::say("this is no message\n");
    endless();
}

/// A value whose end never comes.
struct Hanging;

impl Drop for Hanging {
    fn drop(&mut self) {
        endless();
    }
}

thread_local! {
    static HANGING: Hanging = const { Hanging };
}

/// This program once more, which would outlive the grader by an hour.
fn leave_child() {
    let own = std::env::current_exe().expect("the program has a path");
    let mut beating = Command::new(own);
    beating.env(super::VARIABLE, BEATS).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    #[allow(clippy::zombie_processes)] // that nobody waits for it is the fault
    drop(beating.spawn().expect("the program starts once more"));
    let file = std::env::var_os(HEARTBEAT).expect("the test names the file");
    while std::fs::metadata(&file).map_or(0, |file| file.len()) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What the program `own` is called as by the process that it leaves.
pub const BEATS: &str = "beats";

/// A byte more in the file, twenty times a second, for an hour.
pub fn beat() {
    let file = std::env::var_os(HEARTBEAT).expect("the test names the file");
    for _ in 0..20 * 3600 {
        let open = std::fs::File::options().create(true).append(true).open(&file);
        if open.and_then(|mut file| file.write_all(b".")).is_err() {
            return; // the test is over, and its folder gone
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
