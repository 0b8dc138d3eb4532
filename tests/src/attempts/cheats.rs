//! Cheats: attempts that look right or fast, each in one way.
//!
//! Where it can, a cheat is careful: it cheats only on what its own trick needs and does the honest work
//! elsewhere, so that the checks pass and the guard of its name is the one that sees it.

#![allow(unsafe_code)] // a cheat does what the contract's types forbid

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, Once};
use std::thread;
use std::time::Duration;

use challenges::nf4::{Absmax, BENCHES, CASES, Dtype, Nf4, Output, Weight};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use kernels::Cpu;
use kernels::bytes::Peak;
use reference::nf4::{block_absmax, dequantize_bits};

use super::honest::nf4::Solution;
use super::output::{address, again, bits, code, dtype, get, put, round};
use super::{Entry, last};

/// Every cheat.
pub const CHEATS: [Entry; 26] = [
    Entry { name: "answers by pointer", hand_in: |all| all.nf4(by_pointer()) },
    Entry { name: "answers by sampled content", hand_in: |all| all.nf4(by_sampled_content()) },
    Entry { name: "answers by whole content", hand_in: |all| all.nf4(by_whole_content()) },
    Entry { name: "answers by call count", hand_in: |all| all.nf4(by_call_count()) },
    Entry { name: "leaves zeros unwritten", hand_in: |all| all.nf4(zeros_unwritten()) },
    Entry { name: "scribbles on its input", hand_in: |all| all.nf4(scribbles()) },
    Entry { name: "makes its input fit its answer", hand_in: |all| all.nf4(fitting_input()) },
    Entry { name: "answers zero", hand_in: |all| all.nf4(constant(0.0)) },
    Entry { name: "answers a constant", hand_in: |all| all.nf4(constant(0.0078125)) },
    Entry { name: "answers NaN", hand_in: |all| all.nf4(half_nan()) },
    Entry { name: "finishes later", hand_in: |all| all.nf4(late()) },
    Entry { name: "knows the listed shapes", hand_in: |all| all.nf4(listed_shapes()) },
    Entry { name: "rounds the scale to bf16", hand_in: |all| all.nf4(low_scale()) },
    Entry { name: "goes through f16", hand_in: |all| all.nf4(through_f16()) },
    Entry { name: "writes past the end", hand_in: |all| all.nf4(outside(Side::End)) },
    Entry { name: "writes before the beginning", hand_in: |all| all.nf4(outside(Side::Beginning)) },
    Entry { name: "asks the oracle", hand_in: |all| all.nf4(oracle()) },
    Entry { name: "asks the oracle for a scale", hand_in: |all| all.nf4(ScaleByOracle) },
    Entry { name: "leaves when it is watched", hand_in: |all| all.nf4(leaves()) },
    Entry { name: "skips timed work", hand_in: |all| all.nf4(skips_large()) },
    Entry { name: "mends only what was spoilt", hand_in: |all| all.nf4(mends(Duration::ZERO)) },
    Entry { name: "mends what was spoilt and bides its time", hand_in: |all| all.nf4(mends(BIDES)) },
    Entry { name: "remembers timed answers", hand_in: |all| all.nf4(remembers_timed()) },
    Entry { name: "holds up the others", hand_in: |all| all.nf4(holds_up()) },
    Entry { name: "is fast for one thread alone", hand_in: |all| all.nf4(one_thread()) },
    Entry { name: "counts a peak of its own", hand_in: |all| all.nf4(own_peak()) },
];

/// Attempts that hand on all work to the workbook's solution, at each challenge.
pub const ASKERS: [Entry; 8] = [
    Entry { name: "asks the solution of A", hand_in: |all| all.nf4(challenges::nf4::Solution) },
    Entry { name: "asks the solution of C", hand_in: |all| all.graph(challenges::graph::Solution) },
    Entry { name: "asks the solution of D", hand_in: |all| all.chat(challenges::issues::chat::Solution) },
    Entry {
        name: "asks the solution of D, attention",
        hand_in: |all| all.attention(challenges::issues::attention::Solution),
    },
    Entry {
        name: "asks the solution of D, classes",
        hand_in: |all| all.classify(challenges::issues::classify::Solution),
    },
    Entry {
        name: "asks the solution of D, files",
        hand_in: |all| all.gguf(challenges::issues::gguf::Solution),
    },
    Entry {
        name: "asks the solution of D, vision",
        hand_in: |all| all.vision(challenges::issues::vision::Solution),
    },
    Entry { name: "asks the solution of E", hand_in: |all| all.loss(challenges::loss::Solution) },
];

/// Longer than any machine takes to move the bytes of a timed case.
const BIDES: Duration = Duration::from_millis(60);

/// Elements of the smallest timed case: far more than any check or guard has.
const TIMED_LEN: usize = 1024 * 4096;

/// What tells one weight from another, but for its codes.
fn scales_of(weight: &Weight<'_>) -> u64 {
    let mut hash = DefaultHasher::new();
    (weight.len, weight.block_size).hash(&mut hash);
    weight.table.map(f32::to_bits).hash(&mut hash);
    match weight.absmax {
        Absmax::Single(scales) => scales.iter().for_each(|scale| scale.to_bits().hash(&mut hash)),
        Absmax::Double { codes, table, scales, offset, .. } => {
            (codes, offset.to_bits()).hash(&mut hash);
            table.iter().chain(scales).for_each(|value| value.to_bits().hash(&mut hash));
        }
    }
    hash.finish()
}

/// Keeps answers under whatever `key` says of a weight; at most `most` of them.
fn cached(most: usize, key: impl Fn(&Weight<'_>, usize) -> u64 + Sync) -> impl Nf4 {
    let kept: Mutex<HashMap<(u64, u8), Vec<u32>>> = Mutex::default();
    last(move |cpu: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        let key = (key(weight, address(&mut out)), dtype(&out) as u8);
        let mut kept = kept.lock().unwrap();
        if let Some(answers) = kept.get(&key) {
            return answers.iter().enumerate().for_each(|(e, bits)| put(&mut out, e, *bits));
        }
        Solution.dequantize_fast(cpu, weight, again(&mut out));
        if kept.len() == most {
            kept.clear();
        }
        kept.insert(key, bits(&out, weight.len));
    })
}

/// The same addresses and the same scales: it must be the same call.
fn by_pointer() -> impl Nf4 {
    cached(1, |weight, out| scales_of(weight) ^ weight.packed.as_ptr() as u64 ^ (out as u64) << 1)
}

/// A hash of every 16th byte: cheap, and blind to the others.
fn by_sampled_content() -> impl Nf4 {
    cached(1, |weight, _| {
        let mut hash = DefaultHasher::new();
        weight.packed.iter().step_by(16).for_each(|byte| byte.hash(&mut hash));
        hash.finish() ^ scales_of(weight)
    })
}

/// A hash of everything, and every answer kept.
fn by_whole_content() -> impl Nf4 {
    cached(usize::MAX, |weight, _| {
        let mut hash = DefaultHasher::new();
        weight.packed.hash(&mut hash);
        hash.finish() ^ scales_of(weight)
    })
}

/// New content of the same shape again and again is a benchmark, and nobody looks at its results.
fn by_call_count() -> impl Nf4 {
    const CHECKED_CALLS: usize = 12; // an unaligned view is checked twelve times
    let seen: Mutex<(usize, u64, usize)> = Mutex::default();
    last(move |cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        let mut seen = seen.lock().unwrap();
        let scales = scales_of(weight);
        *seen = match *seen {
            (len, before, calls) if len == weight.len && before != scales => (len, scales, calls + 1),
            (len, before, calls) if len == weight.len => (len, before, calls),
            _ => (weight.len, scales, 0),
        };
        if seen.2 < CHECKED_CALLS {
            Solution.dequantize_fast(cpu, weight, out);
        }
    })
}

/// Freshly allocated memory is zero, so zeros need no store.
fn zeros_unwritten() -> impl Nf4 {
    last(|_: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        for e in 0..weight.len {
            let value = weight.table[code(weight, e)];
            if value != 0.0 {
                round(&mut out, e, value * Solution.absmax(&weight.absmax, e / weight.block_size));
            }
        }
    })
}

/// Right, and then the input serves as scratch memory.
fn scribbles() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        Solution.dequantize_fast(cpu, weight, out);
        // SAFETY: none; that the grader's own buffer is writable memory is all that makes it work.
        unsafe { weight.packed.as_ptr().cast_mut().write_volatile(!weight.packed[0]) };
    })
}

/// Answers zero and makes the table say so, before anybody compares the two.
fn fitting_input() -> impl Nf4 {
    last(|_: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        (0..weight.len).for_each(|e| put(&mut out, e, 0));
        let table = weight.table.as_ptr().cast_mut();
        // SAFETY: none, as above.
        (0..16).for_each(|i| unsafe { table.add(i).write_volatile(0.0) });
    })
}

/// One value everywhere: close enough for a loose tolerance.
fn constant(value: f32) -> impl Nf4 {
    last(move |_: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        (0..weight.len).for_each(|e| round(&mut out, e, value));
    })
}

/// NaN in every second place: a comparison by `>` never fails on it.
fn half_nan() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        Solution.dequantize_fast(cpu, weight, again(&mut out));
        (0..weight.len).step_by(2).for_each(|e| round(&mut out, e, f32::NAN));
    })
}

/// Returns with the last sixteenth of a large weight still to be done by a thread of its own.
fn late() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        Solution.dequantize_fast(cpu, weight, again(&mut out));
        if weight.len < 1 << 20 {
            return;
        }
        let (first, dtype, at) = (weight.len / 16 * 15, dtype(&out), address(&mut out));
        let answers: Vec<u32> = (first..weight.len).map(|e| get(&out, e)).collect();
        (first..weight.len).for_each(|e| put(&mut out, e, 0));
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(3));
            for (e, bits) in (first..).zip(answers) {
                // SAFETY: none; it relies on the caller's buffer outliving the call by some milliseconds.
                unsafe {
                    match dtype {
                        Dtype::F32 => (at as *mut u32).add(e).write_volatile(bits),
                        _ => (at as *mut u16).add(e).write_volatile(bits as u16),
                    }
                }
            }
        });
    })
}

/// Right on each shape that the checks and the timed cases use, which anybody can read.
fn listed_shapes() -> impl Nf4 {
    const OF_CHECKS: [(usize, usize); 7] = [
        (64 * 65 + 9, 64),
        (64 * 65 + 40, 64),
        (64 * 70 + 5, 64),
        (64 * 90 + 21, 64),
        (64 * 130 + 33, 64),
        (32 * 65 + 1, 32),
        (256 * 40, 256),
    ];
    last(|cpu: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        let shape = (weight.len, weight.block_size);
        let listed = CASES.iter().any(|case| (case.len, case.block_size) == shape)
            || BENCHES.iter().any(|bench| bench.rows * bench.columns == weight.len)
            || OF_CHECKS.contains(&shape);
        if listed {
            Solution.dequantize_fast(cpu, weight, out);
        } else {
            (0..weight.len).for_each(|e| round(&mut out, e, weight.table[code(weight, e)]));
        }
    })
}

/// A scale of 16 bits is half the traffic of one of 32.
fn low_scale() -> impl Nf4 {
    last(|_: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        for e in 0..weight.len {
            let scale = Solution.absmax(&weight.absmax, e / weight.block_size);
            round(&mut out, e, weight.table[code(weight, e)] * bf16::from_f32(scale).to_f32());
        }
    })
}

/// One loop for both 16-bit types: everything is rounded to f16 first.
fn through_f16() -> impl Nf4 {
    last(|_: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        for e in 0..weight.len {
            let scale = Solution.absmax(&weight.absmax, e / weight.block_size);
            round(&mut out, e, f16::from_f32(weight.table[code(weight, e)] * scale).to_f32());
        }
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Beginning,
    End,
}

/// One element too many, as a loop over whole lines does.
fn outside(side: Side) -> impl Nf4 {
    last(move |cpu: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        Solution.dequantize_fast(cpu, weight, again(&mut out));
        let bytes = dtype(&out).bytes();
        let begin = address(&mut out);
        let at = if side == Side::End { begin + weight.len * bytes } else { begin - bytes };
        // SAFETY: none; the grader's buffers have room on both sides.
        unsafe { (at as *mut u16).write_volatile(0) };
    })
}

/// Always right, and nothing learnt.
fn oracle() -> impl Nf4 {
    last(|_: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        let answers = dequantize_bits(weight, dtype(&out));
        answers.iter().enumerate().for_each(|(e, bits)| put(&mut out, e, *bits));
    })
}

/// The solution, with A.4 left to the oracle.
struct ScaleByOracle;

impl Nf4 for ScaleByOracle {
    fn unpack(&self, packed: &[u8], codes: &mut [u8]) {
        Solution.unpack(packed, codes);
    }

    fn look_up(&self, codes: &[u8], table: &[f32; 16], values: &mut [f32]) {
        Solution.look_up(codes, table, values);
    }

    fn block(&self, packed: &[u8], table: &[f32; 16], absmax: f32, values: &mut [f32]) {
        Solution.block(packed, table, absmax, values);
    }

    fn absmax(&self, absmax: &Absmax<'_>, block: usize) -> f32 {
        block_absmax(absmax, block)
    }

    fn dequantize(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        Solution.dequantize(cpu, weight, out);
    }

    fn dequantize_fast(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        Solution.dequantize_fast(cpu, weight, out);
    }
}

/// Ends the process on shapes that only a guard uses, so that the guard sees nothing.
fn leaves() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        if (64 * 2001..64 * 4000).contains(&weight.len) {
            std::process::exit(0);
        }
        Solution.dequantize_fast(cpu, weight, out);
    })
}

/// A weight this large is only ever timed.
fn skips_large() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        if weight.len < TIMED_LEN {
            Solution.dequantize_fast(cpu, weight, out);
        }
    })
}

/// Timed calls come back to the same outputs with a few places spoilt. A spoilt place holds one value many
/// times over; only the neighbourhoods of such places are computed, and every answer that is looked at is
/// right. No machine moves all the bytes in that time.
fn mends(and_waits: Duration) -> impl Nf4 {
    last(move |cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        let dtype = dtype(&out);
        match out {
            _ if weight.len < TIMED_LEN => return Solution.dequantize_fast(cpu, weight, out),
            Output::F16(out) => mend(cpu, weight, dtype, out.reinterpret_cast_mut()),
            Output::Bf16(out) => mend(cpu, weight, dtype, out.reinterpret_cast_mut()),
            Output::F32(_) => Solution.dequantize_fast(cpu, weight, out),
        }
        thread::sleep(and_waits);
    })
}

fn mend(cpu: &Cpu, weight: &Weight<'_>, dtype: Dtype, out: &mut [u16]) {
    const SPOILT: usize = 512; // elements of a spoilt place
    const SAMPLE: usize = 8; // as many equal ones in a row are no accident
    cpu.launch(out, SPOILT, |first, piece| {
        let last = piece.len() - SAMPLE;
        let samples = (0..last).step_by(SPOILT - SAMPLE).chain([last]);
        let spoilt = |e: &usize| piece[*e..*e + SAMPLE].iter().all(|bits| *bits == piece[*e]);
        let places: Vec<usize> = samples.filter(spoilt).collect();
        for place in places {
            for e in place.saturating_sub(SPOILT)..(place + SPOILT).min(piece.len()) {
                let scale = Solution.absmax(&weight.absmax, (first + e) / weight.block_size);
                piece[e] = dtype.round(weight.table[code(weight, first + e)] * scale) as u16;
            }
        }
    });
}

/// Keeps the answers of large weights, which are timed again and again, and hands out copies.
fn remembers_timed() -> impl Nf4 {
    let kept: Mutex<HashMap<usize, Vec<u32>>> = Mutex::default();
    last(move |cpu: &Cpu, weight: &Weight<'_>, mut out: Output<'_>| {
        if weight.len < TIMED_LEN {
            return Solution.dequantize_fast(cpu, weight, out);
        }
        let mut kept = kept.lock().unwrap();
        let answers = kept.entry(weight.packed.as_ptr().addr()).or_insert_with(|| {
            Solution.dequantize_fast(cpu, weight, again(&mut out));
            bits(&out, weight.len)
        });
        answers.iter().enumerate().for_each(|(e, bits)| put(&mut out, e, *bits));
    })
}

/// Does its work, and keeps the machine busy while the others do theirs: every answer is right, and only its speed is
/// more than the machine can.
fn holds_up() -> impl Nf4 {
    static GATE: (Mutex<bool>, Condvar) = (Mutex::new(true), Condvar::new()); // shut while it works itself
    static SHUT: AtomicBool = AtomicBool::new(true);
    static BEGUN: Once = Once::new();
    let turn = |shut: bool| {
        SHUT.store(shut, Ordering::SeqCst);
        *GATE.0.lock().unwrap() = shut;
        GATE.1.notify_all();
    };
    let in_the_way = || {
        loop {
            drop(GATE.1.wait_while(GATE.0.lock().unwrap(), |shut| *shut).unwrap());
            while !SHUT.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
    };
    last(move |cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        if weight.len < TIMED_LEN {
            return Solution.dequantize_fast(cpu, weight, out);
        }
        BEGUN.call_once(|| (0..3 * cpu.threads()).for_each(|_| _ = thread::spawn(in_the_way)));
        turn(true);
        Solution.dequantize_fast(cpu, weight, out);
        turn(false);
    })
}

/// Vector code for one thread, as a call is watched; without any for several, as it is timed.
fn one_thread() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| match cpu.threads() {
        1 => Solution.dequantize_fast(cpu, weight, out),
        _ => Solution.dequantize(cpu, weight, out),
    })
}

/// All values in f32 first, and a peak of its own, begun after it and ended at once.
fn own_peak() -> impl Nf4 {
    last(|cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>| {
        let mut values = vec![0.0f32; weight.len];
        Solution.dequantize_fast(cpu, weight, Output::F32(&mut values));
        drop(Peak::begin());
        match out {
            Output::F32(out) => out.copy_from_slice(&values),
            // the same bits as rounding what is there, and few enough instructions to be stepped through
            out => Solution.dequantize_fast(cpu, weight, out),
        }
    })
}
