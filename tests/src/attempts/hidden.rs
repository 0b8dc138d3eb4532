//! Cheats whose work or memory lies where a plain count does not look: in the linked solution, in statics and on
//! stacks, on another device, in threads that outlive the call. The last entries are honest twins.

#![allow(unsafe_code)] // a cheat does what the contract's types forbid

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, Once, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use challenges::nf4::{Nf4, Output, Weight};
use kernels::Cpu;
use linked::Linked;

use super::honest::nf4::Solution;
use super::{Entry, last};

/// Attempts that reach the linked solution without naming `Solution`.
pub const BY_SYMBOL: [Entry; 3] = [
    Entry { name: "calls the linked name", hand_in: |all| all.nf4(by_name()) },
    Entry { name: "keeps the linked steps", hand_in: |all| all.nf4(kept_steps()) },
    Entry { name: "takes the linked address in assembly", hand_in: |all| all.nf4(by_address()) },
];

/// Attempts that write all scales to memory first, and in the last one an honest launch through another device.
pub const TWO_PASSES: [Entry; 5] = [
    Entry { name: "keeps scales in a static", hand_in: |all| all.nf4(in_static()) },
    Entry { name: "keeps scales in atomics", hand_in: |all| all.nf4(in_atomics()) },
    Entry { name: "keeps scales on the stack", hand_in: |all| all.nf4(on_the_stack()) },
    Entry { name: "keeps scales from its first call", hand_in: |all| all.nf4(from_the_first_call()) },
    Entry { name: "launches through its own device", hand_in: |all| all.nf4(own_device()) },
];

/// Attempts whose threads work while the baseline is timed.
pub const SLOWERS: [Entry; 2] = [
    Entry { name: "spins now and then", hand_in: |all| all.nf4(spins_now_and_then()) },
    Entry { name: "queues work on the device", hand_in: |all| all.nf4(queues_work()) },
];

/// Honest attempts that look like these.
pub const UNHIDDEN: [Entry; 3] = [
    Entry { name: "keeps a small table in a static", hand_in: |all| all.nf4(static_table()) },
    Entry { name: "holds a kilobyte of stack", hand_in: |all| all.nf4(stack_scratch()) },
    Entry { name: "keeps a sleeping thread", hand_in: |all| all.nf4(sleeping_thread()) },
];

// SAFETY: the package `solutions` defines it with this type.
unsafe extern "Rust" {
    safe fn warpbook_nf4() -> Linked<dyn Nf4>;
}

fn by_name() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        warpbook_nf4().steps.dequantize_fast(cpu, weight, out);
    })
}

/// Asks for the steps once, before anything is counted.
fn kept_steps() -> impl Nf4 {
    let steps = warpbook_nf4().steps;
    last(move |cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| steps.dequantize_fast(cpu, weight, out))
}

#[cfg(target_arch = "x86_64")]
fn by_address() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        let address: usize;
        // SAFETY: it only computes where the function lies.
        unsafe { std::arch::asm!("lea {}, [rip + warpbook_nf4]", out(reg) address) };
        // SAFETY: a function of this type lies there.
        let linked = unsafe { std::mem::transmute::<usize, fn() -> Linked<dyn Nf4>>(address) };
        linked().steps.dequantize_fast(cpu, weight, out);
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn by_address() -> impl Nf4 {
    by_name()
}

/// Blocks of the largest weight whose scales are kept: that of the weight whose bytes are counted.
const KEPT: usize = 4096 * 4096 / 64;

/// Writes all scales, then does the honest work.
fn two_passes(mut keep: impl FnMut(usize, f32), (cpu, weight, out): (&Cpu, &Weight<'_>, Output<'_>)) {
    for block in 0..weight.len.div_ceil(weight.block_size).min(KEPT) {
        keep(block, Solution.absmax(&weight.absmax, block));
    }
    Solution.dequantize_fast(cpu, weight, out);
}

fn in_static() -> impl Nf4 {
    static SCALES: Mutex<[f32; KEPT]> = Mutex::new([0.0; KEPT]);
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        let mut scales = SCALES.lock().unwrap();
        two_passes(|block, scale| scales[block] = scale, (cpu, weight, out));
    })
}

fn in_atomics() -> impl Nf4 {
    static SCALES: [AtomicU32; KEPT] = [const { AtomicU32::new(0) }; KEPT];
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        two_passes(|block, scale| SCALES[block].store(scale.to_bits(), Relaxed), (cpu, weight, out));
    })
}

#[allow(clippy::large_stack_arrays)] // that is its trick
fn on_the_stack() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        let mut scales = black_box([0.0; KEPT]);
        two_passes(|block, scale| scales[block] = scale, (cpu, weight, out));
    })
}

/// Allocates where the step is only asked whether it is a hole.
fn from_the_first_call() -> impl Nf4 {
    let scales: OnceLock<Mutex<Vec<f32>>> = OnceLock::new();
    last(move |cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        let mut scales = scales.get_or_init(|| Mutex::new(vec![1.0; KEPT])).lock().unwrap();
        two_passes(|block, scale| scales[block] = scale, (cpu, weight, out));
    })
}

/// One pass through the step's device, and one that the device does not see.
fn own_device() -> impl Nf4 {
    let own = Cpu::with_threads(1);
    last(move |cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        own.launch(&mut [0_u8; 64], 64, |_, piece| piece.fill(1));
        Solution.dequantize_fast(cpu, weight, out);
    })
}

fn spin(for_us: u64) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_micros(for_us) {
        std::hint::spin_loop();
    }
}

/// One thread that takes a sixth of a core, for ever.
fn spins_now_and_then() -> impl Nf4 {
    static BEGUN: Once = Once::new();
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        BEGUN.call_once(|| {
            thread::spawn(|| {
                loop {
                    spin(500);
                    thread::sleep(Duration::from_micros(2500));
                }
            });
        });
        Solution.dequantize_fast(cpu, weight, out);
    })
}

/// Leaves tasks in the pool of the device, which run after the call has returned.
fn queues_work() -> impl Nf4 {
    fn again(left: usize) {
        spin(200);
        if left > 0 {
            rayon::spawn(move || again(left - 1));
        }
    }
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        Solution.dequantize_fast(cpu, weight, out);
        if cpu.threads() > 1 {
            cpu.launch(&mut [0_u8; 1], 1, |_, _| rayon::spawn(|| again(100)));
        }
    })
}

/// Half a kilobyte that depends on no weight.
fn static_table() -> impl Nf4 {
    static TABLE: OnceLock<[[u8; 2]; 256]> = OnceLock::new();
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        black_box(TABLE.get_or_init(|| std::array::from_fn(|byte| [byte as u8 >> 4, byte as u8 & 15])));
        Solution.dequantize_fast(cpu, weight, out);
    })
}

fn stack_scratch() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        black_box(&mut [1_u8; 1024]);
        Solution.dequantize_fast(cpu, weight, out);
    })
}

/// A thread that outlives the call and sleeps.
fn sleeping_thread() -> impl Nf4 {
    static BEGUN: Once = Once::new();
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        BEGUN.call_once(|| {
            thread::spawn(|| {
                loop {
                    thread::sleep(Duration::from_millis(50));
                }
            });
        });
        Solution.dequantize_fast(cpu, weight, out);
    })
}
