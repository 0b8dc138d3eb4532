//! Counts the times that other programs disturbed.
//!
//! A thread that waits for a processor makes a time longer than the code took. Linux counts the wait of each thread: the
//! second number of `/proc/PID/task/TID/schedstat`, in nanoseconds (Documentation/scheduler/sched-stats.rst). A round in
//! which a thread waited is disturbed, and the report counts these rounds.

use kernels::Cpu;
use kernels::cpu::Tick;

/// The share of a call that a thread may wait for a processor before the call is disturbed.
const LIMIT: f64 = 0.1;

/// The waits of the threads that are timed.
#[derive(Debug)]
pub(super) struct Waits {
    counters: Vec<String>, // a file for each thread
    waited: bool,          // in a call since `take`
}

impl Waits {
    /// Watches the calling thread and those of some devices.
    pub fn new(devices: [&Cpu; 2]) -> Self {
        let thread = || std::fs::read_link("/proc/thread-self").ok();
        let threads = devices.iter().flat_map(|cpu| cpu.each_thread(thread)).chain([thread()]).flatten();
        let mut counters: Vec<String> =
            threads.map(|thread| format!("/proc/{}/schedstat", thread.display())).collect();
        counters.sort_unstable();
        counters.dedup();
        Self { counters, waited: false }
    }

    /// Runs a call, notes whether a thread waited for a processor, and returns the call's time in microseconds.
    pub fn time(&mut self, call: impl FnOnce()) -> f64 {
        let before = self.nanoseconds();
        let begin = Tick::now();
        call();
        let time = begin.micros();
        let after = self.nanoseconds();
        self.waited |= before.iter().zip(&after).any(|(before, after)| (after - before) / 1e3 > LIMIT * time);
        time
    }

    /// Returns whether a thread waited since the last call of this function; `None` where the system does not report it.
    pub fn take(&mut self) -> Option<bool> {
        let waited = std::mem::take(&mut self.waited);
        (!self.nanoseconds().is_empty()).then_some(waited)
    }

    /// The wait of each thread so far; empty where the system does not report it.
    fn nanoseconds(&self) -> Vec<f64> {
        let wait =
            |counter: &String| std::fs::read_to_string(counter).ok()?.split_whitespace().nth(1)?.parse().ok();
        self.counters.iter().filter_map(wait).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn threads_of_both_devices_are_watched() {
        let devices = [Cpu::with_threads(3), Cpu::with_threads(2)]; // its threads end when a device is dropped
        let waits = Waits::new(devices.each_ref());
        assert_eq!(waits.counters.len(), 6);
        assert_eq!(waits.nanoseconds().len(), 6);
    }
}
