//! The clock of timed calls: the processor's own counter, read in place.
//!
//! A program's other clocks are functions of a library, and whoever links a function of the same name into the
//! program answers in their place. Here the counter is read by an instruction that stands where the time is
//! taken. Ratios of ticks need nothing else; microseconds are worked out with a rate that is compared once with
//! the system's clock.
//!
//! On x86-64 that is the time-stamp counter, which runs at one rate whatever the cores do (every processor of
//! the last fifteen years); on `AArch64` the virtual count. Elsewhere it is the system's clock after all.
//!
//! Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3, section 19.17 (the counter)
//! and volume 2, RDTSC (LFENCE before and after); Arm Architecture Reference Manual, D12.

#![allow(unsafe_code)] // reading the counter has no safe form
#![allow(clippy::inline_always)] // a function of its own could be replaced, which is what this is about

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A moment, in ticks of the processor's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(u64);

impl Tick {
    /// The present moment: after everything that the program has asked for before, ahead of everything behind.
    #[inline(always)]
    #[must_use]
    pub fn now() -> Self {
        Self(counter())
    }

    /// Ticks since then; 0 if another core's counter is a little behind.
    #[inline(always)]
    #[must_use]
    pub fn ticks(self) -> u64 {
        counter().saturating_sub(self.0)
    }

    /// Microseconds since then.
    #[inline(always)]
    #[must_use]
    pub fn micros(self) -> f64 {
        let ticks = self.ticks();
        ticks as f64 / rate()
    }
}

/// Ticks a microsecond, compared with the system's clock at the first call.
fn rate() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        const SPAN: Duration = Duration::from_millis(10);
        let (begin, first) = both();
        while begin.elapsed() < SPAN {
            std::hint::spin_loop();
        }
        let (end, last) = both();
        let micros = (end - begin).as_secs_f64() * 1e6;
        last.saturating_sub(first).max(1) as f64 / micros
    })
}

/// Both clocks at one moment: of several readings the one that was held up least in between.
fn both() -> (Instant, u64) {
    let reading = |_| {
        let before = counter();
        let system = Instant::now();
        let after = counter();
        (after.saturating_sub(before), system, before)
    };
    let least = (0..16).map(reading).min_by_key(|(held_up, ..)| *held_up);
    least.map_or_else(
        || (Instant::now(), counter()),
        |(held_up, system, before)| (system, before + held_up / 2),
    )
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 processor has both instructions; LFENCE keeps others from passing the reading.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn counter() -> u64 {
    let ticks: u64;
    // SAFETY: reads a counter that every system lets programs read; the barriers keep others from passing it.
    unsafe { core::arch::asm!("isb", "mrs {}, cntvct_el0", "isb", out(reg) ticks, options(nostack)) };
    ticks
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_follow_one_another() {
        let first = Tick::now();
        let second = Tick::now();
        assert!(second >= first);
    }

    #[test]
    fn microseconds_are_those_of_the_system_clock() {
        let near = |_| {
            let (system, own) = (Instant::now(), Tick::now());
            std::thread::sleep(Duration::from_millis(20));
            let (own, system) = (own.micros(), system.elapsed().as_secs_f64() * 1e6);
            (own / system - 1.0).abs() < 0.02
        };
        assert!((0..50).any(near), "a machine that is held up between two readings is tried again");
    }
}
