//! Cheats whose gain lies outside of the calls that are checked: threads that hold up what an attempt is compared with
//! or that help it, memory that still holds an answer, work of the solution where only numbers are taken. The last
//! entry of each list is an honest twin.

#![allow(unsafe_code)] // a cheat does what the contract's types forbid

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{LazyLock, Once};
use std::thread;
use std::time::Duration;

use challenges::nf4::{Nf4, Output, Weight};
use kernels::Cpu;

use super::honest::nf4::Solution as A;
use super::output::{again, code, dtype, get};
use super::{Entry, fsdp, graph, last, loss};

/// Attempts at B, with what they do at A.
pub const BESIDE_RANKS: [Entry; 4] = [
    Entry { name: "spins beside the ranks", hand_in: |all| all.fsdp(fsdp::honest()).nf4(spins()) },
    Entry { name: "borrows threads among ranks", hand_in: |all| all.fsdp(fsdp::honest()).nf4(borrows()) },
    Entry { name: "relies on the step before", hand_in: |all| all.fsdp(fsdp::honest()).nf4(relies()) },
    Entry { name: "sleeps beside the ranks", hand_in: |all| all.fsdp(fsdp::honest()).nf4(sleeps()) },
];

/// Attempts at C.
pub const BESIDE_PLANS: [Entry; 3] = [
    Entry {
        name: "spins beside the plans",
        hand_in: |all| all.graph(graph::with_captures(|_, _| begin_spinning())),
    },
    Entry { name: "asks for the plan that is measured", hand_in: |all| all.graph(graph::asks()) },
    Entry {
        name: "sleeps beside the plans",
        hand_in: |all| all.graph(graph::with_captures(|_, _| begin_sleeping())),
    },
];

/// Attempts at E.
pub const BESIDE_CHUNKS: [Entry; 4] = [
    Entry {
        name: "spins beside the chunks",
        hand_in: |all| {
            all.loss(loss::with_rows(|problem| {
                begin_spinning();
                Ok(problem.loss.clone())
            }))
        },
    },
    Entry { name: "wastes memory with all rows", hand_in: |all| all.loss(loss::wastes()) },
    Entry { name: "asks for the chunks that are measured", hand_in: |all| all.loss(loss::asks()) },
    Entry {
        name: "sleeps beside the chunks",
        hand_in: |all| {
            all.loss(loss::with_rows(|problem| {
                begin_sleeping();
                Ok(problem.loss.clone())
            }))
        },
    },
];

/// Attempts at A that hold up the others without any work, and an honest one that looks at its threads.
pub const MOVERS: [Entry; 2] = [
    Entry { name: "moves the others to one core", hand_in: |all| all.nf4(moves(true)) },
    Entry { name: "looks at its threads", hand_in: |all| all.nf4(moves(false)) },
];

/// Elements of the smallest weight that is timed, in A and among ranks.
const TIMED_LEN: usize = 1 << 20;

fn begin_spinning() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        thread::spawn(|| {
            loop {
                std::hint::spin_loop();
            }
        });
    });
}

fn begin_sleeping() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        thread::spawn(|| {
            loop {
                thread::sleep(Duration::from_millis(50));
            }
        });
    });
}

fn spins() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        begin_spinning();
        A.dequantize_fast(cpu, weight, out);
    })
}

fn sleeps() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        begin_sleeping();
        A.dequantize_fast(cpu, weight, out);
    })
}

/// Works on a device of its own, where its rank has one thread and three passes have no more.
fn borrows() -> impl Nf4 {
    static OWN: LazyLock<Cpu> = LazyLock::new(|| Cpu::with_threads(4));
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        let is_large = weight.len >= TIMED_LEN && cpu.threads() == 1;
        A.dequantize_fast(if is_large { &OWN } else { cpu }, weight, out);
    })
}

/// Leaves an output as it is where it seems to hold the answer: a model's weights stay the same from step to step.
fn relies() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        const LOOKS: usize = 64;
        let is_there = |e: usize| {
            let value = weight.table[code(weight, e)] * A.absmax(&weight.absmax, e / weight.block_size);
            get(&out, e) == dtype(&out).round(value)
        };
        let seems_done = weight.len >= TIMED_LEN && (0..LOOKS).all(|i| is_there(i * (weight.len / LOOKS)));
        if !seems_done {
            A.dequantize_fast(cpu, weight, again(&mut out));
        }
    })
}

/// Puts all threads but those of its own device on one core, once.
fn moves(is_cheat: bool) -> impl Nf4 {
    static BEGUN: Once = Once::new();
    last(move |cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        if weight.len >= TIMED_LEN {
            BEGUN.call_once(|| {
                let this = || std::fs::read_link("/proc/thread-self").ok();
                let own: BTreeSet<PathBuf> =
                    cpu.each_thread(this).into_iter().chain([this()]).flatten().collect();
                let own: BTreeSet<_> = own.iter().filter_map(|path| path.file_name()).collect();
                let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
                let others = tasks.map(|task| task.file_name()).filter(|task| !own.contains(&**task));
                for task in others.filter(|_| is_cheat) {
                    move_to_first_core(task.to_string_lossy().parse().unwrap_or(0));
                }
            });
        }
        A.dequantize_fast(cpu, weight, out);
    })
}

#[cfg(target_os = "linux")]
fn move_to_first_core(thread: i32) {
    // SAFETY: the C library of Linux defines it with this type (sched_setaffinity(2)).
    unsafe extern "C" {
        fn sched_setaffinity(thread: i32, bytes: usize, cores: *const u64) -> i32;
    }
    for core in 0..64 {
        let cores = 1_u64 << core;
        // SAFETY: eight bytes are there, as the call says.
        if unsafe { sched_setaffinity(thread, 8, &raw const cores) } == 0 {
            return;
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn move_to_first_core(_: i32) {}
