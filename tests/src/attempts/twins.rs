//! Honest twins: the same kinds of things that the cheats do, done so that nobody is misled.
//!
//! A guard must not punish them: a table kept between calls, own threads, scratch memory, a look at the
//! shape, more precision than is asked for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use challenges::nf4::{Nf4, Output, Weight};
use half::{bf16, f16};
use kernels::Cpu;

use super::honest::nf4::Solution;
use super::output::{again, code, get, put, round};
use super::{Entry, last};

/// Every honest twin.
pub const TWINS: [Entry; 11] = [
    Entry { name: "honest", hand_in: |all| all.nf4(Solution) },
    Entry { name: "delegates and counts its calls", hand_in: |all| all.nf4(counting()) },
    Entry { name: "keeps a small table", hand_in: |all| all.nf4(small_table()) },
    Entry { name: "writes zeros first", hand_in: |all| all.nf4(zeros_first()) },
    Entry { name: "copies its input", hand_in: |all| all.nf4(copies_input()) },
    Entry { name: "joins its threads", hand_in: |all| all.nf4(joined_threads()) },
    Entry { name: "has a path for usual shapes", hand_in: |all| all.nf4(usual_shapes()) },
    Entry { name: "works in f64", hand_in: |all| all.nf4(in_f64()) },
    Entry { name: "writes from the back", hand_in: |all| all.nf4(from_the_back()) },
    Entry { name: "uses the format's vocabulary", hand_in: |all| all.nf4(vocabulary()) },
    Entry { name: "holds a kilobyte of scratch", hand_in: |all| all.nf4(scratch()) },
];

fn scale(weight: &Weight<'_>, e: usize) -> f32 {
    Solution.absmax(&weight.absmax, e / weight.block_size)
}

/// Counts, and does every call's work.
fn counting() -> impl Nf4 {
    let calls = AtomicUsize::new(0);
    last(move |cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        calls.fetch_add(1, Ordering::Relaxed);
        Solution.dequantize_fast(cpu, weight, out);
    })
}

/// The two codes of each byte, worked out at the first call: 512 bytes that depend on no weight.
fn small_table() -> impl Nf4 {
    let table: OnceLock<[[u8; 2]; 256]> = OnceLock::new();
    last(move |_: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        let codes = table.get_or_init(|| std::array::from_fn(|byte| [byte as u8 >> 4, byte as u8 & 15]));
        for e in 0..weight.len {
            let code = codes[weight.packed[e / 2] as usize][e % 2];
            round(&mut out, e, weight.table[code as usize] * scale(weight, e));
        }
    })
}

/// Relies on zeros, and writes them itself.
fn zeros_first() -> impl Nf4 {
    last(|_: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        (0..weight.len).for_each(|e| put(&mut out, e, 0));
        for e in 0..weight.len {
            let w = weight.table[code(weight, e)] * scale(weight, e);
            if w.to_bits() != 0 {
                round(&mut out, e, w);
            }
        }
    })
}

/// Changes a copy of a block's codes, not the codes.
fn copies_input() -> impl Nf4 {
    last(|_: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        for (block, packed) in weight.packed.chunks(weight.block_size / 2).enumerate() {
            let mut codes = packed.to_vec();
            codes = codes.iter().map(|byte| byte.rotate_left(4)).collect();
            let first = block * weight.block_size;
            for e in first..(first + 2 * codes.len()).min(weight.len) {
                let byte = codes[(e - first) / 2];
                let code = if e % 2 == 0 { byte & 15 } else { byte >> 4 };
                round(&mut out, e, weight.table[code as usize] * scale(weight, e));
            }
        }
    })
}

/// Threads of its own, all of them joined before the call returns.
fn joined_threads() -> impl Nf4 {
    last(|_: &Cpu, weight: &Weight<'_>, out: Output<'_>| match out {
        Output::F16(out) => in_two(weight, out, f16::from_f32),
        Output::Bf16(out) => in_two(weight, out, bf16::from_f32),
        Output::F32(out) => in_two(weight, out, |w| w),
    })
}

fn in_two<T: Send>(weight: &Weight<'_>, out: &mut [T], round: fn(f32) -> T) {
    let middle = out.len() / 2;
    let (front, back) = out.split_at_mut(middle);
    let fill = |first: usize, part: &mut [T]| {
        for (e, out) in (first..).zip(part) {
            *out = round(weight.table[code(weight, e)] * scale(weight, e));
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| fill(0, front));
        scope.spawn(|| fill(middle, back));
    });
}

/// A path for the usual block size and one for the others; both are right.
fn usual_shapes() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| match weight.block_size {
        64 => Solution.dequantize_fast(cpu, weight, out),
        _ => Solution.dequantize(cpu, weight, out),
    })
}

/// The exact product, rounded to f32 and then once more, as the format has it.
fn in_f64() -> impl Nf4 {
    last(|_: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        for e in 0..weight.len {
            let w = f64::from(weight.table[code(weight, e)]) * f64::from(scale(weight, e));
            round(&mut out, e, w as f32);
        }
    })
}

/// The last element first, and each one read back: nothing outside is touched.
fn from_the_back() -> impl Nf4 {
    last(|_: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        for e in (0..weight.len).rev() {
            round(&mut out, e, weight.table[code(weight, e)] * scale(weight, e));
            let written = get(&out, e);
            put(&mut out, e, written);
        }
    })
}

/// Rounding by `Dtype` is vocabulary, not an oracle.
fn vocabulary() -> impl Nf4 {
    last(|_: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        for e in 0..weight.len {
            let dtype = super::output::dtype(&again(&mut out));
            put(&mut out, e, dtype.round(weight.table[code(weight, e)] * scale(weight, e)));
        }
    })
}

/// 1 KiB of heap a call: less than any intermediate of the weight.
fn scratch() -> impl Nf4 {
    last(|_: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        let mut values = vec![0.0f32; 256];
        for first in (0..weight.len).step_by(256) {
            let count = 256.min(weight.len - first);
            for (e, value) in (first..).zip(&mut values[..count]) {
                *value = weight.table[code(weight, e)] * scale(weight, e);
            }
            for (e, value) in (first..).zip(&values[..count]) {
                round(&mut out, e, *value);
            }
        }
    })
}
