//! What else of this process runs while a time is taken.
//!
//! An attempt is compared with the bound and with the baseline, so it wins as much by holding those up as by being
//! fast: threads that it leaves running behind its call take their cores. Times alone show that only where the machine
//! is otherwise quiet. Processor time shows it anywhere: what the process spent during a call of the others, less what
//! the threads spent that did the call's work, is what something else spent, and there is nothing else.
//!
//! Linux counts both to the nanosecond (`getrusage(2)`; `/proc/PID/task/TID/schedstat`, Documentation/scheduler/
//! sched-stats.rst); a thread that is on a core at that moment is counted up to the last tick of the scheduler, so a
//! single call says little and a case says enough. On other systems the sign test on speed stands alone.
//!
//! Other programs take cores, too. The second number of `schedstat` is how long a thread has waited for a processor. A
//! round in which a thread waited is disturbed, and the report counts these rounds.

use kernels::Cpu;
use kernels::cpu::Tick;

/// The share of the others' time above which they were held up. Threads that fall asleep after their work take next to
/// nothing; those that spin take a whole core, a share of one for each.
const LIMIT: f64 = 0.25;

/// The share of a call that a thread may wait for a processor before the call is disturbed.
const WAIT_LIMIT: f64 = 0.1;

/// The processor time of threads that had nothing to do with what was timed.
#[derive(Debug, Default)]
pub(super) struct Beside {
    own: Vec<String>, // the counters of the threads that do the work that is timed
    spent_us: f64,
    timed_us: f64,
    waited: bool, // in some call since that was last asked
}

impl Beside {
    /// Beside the calling thread and those of a device.
    pub fn new(cpu: &Cpu) -> Self {
        let counter = || std::fs::read_link("/proc/thread-self").ok();
        let threads = cpu.each_thread(counter).into_iter().chain([counter()]).flatten();
        let mut own: Vec<String> =
            threads.map(|thread| format!("/proc/{}/schedstat", thread.display())).collect();
        own.sort_unstable();
        own.dedup();
        Self { own, ..Self::default() }
    }

    /// What a call answers, and what ran beside it; `micros` is its time.
    pub fn watch<T>(&mut self, call: impl FnOnce() -> T, micros: impl Fn(&T) -> f64) -> T {
        let before = self.others();
        let answer = self.note_waits(call);
        if let Some((before, after)) = before.zip(self.others()) {
            self.spent_us += after - before;
            self.timed_us += micros(&answer);
        }
        answer
    }

    /// Runs a call, and notes whether one of the threads that work on it waited for a processor.
    pub fn note_waits<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let (before, begin) = (self.waits(), Tick::now());
        let answer = call();
        let (limit, after) = (WAIT_LIMIT * begin.micros(), self.waits());
        self.waited |= before.iter().zip(&after).any(|(before, after)| (after - before) / 1e3 > limit);
        answer
    }

    /// Whether a thread waited for a processor in a call since the last question; `None` where the system does not report
    /// it.
    pub fn take_waited(&mut self) -> Option<bool> {
        let waited = std::mem::take(&mut self.waited);
        (!self.waits().is_empty()).then_some(waited)
    }

    /// Nanoseconds that each thread has waited for a processor so far; empty where the system does not report it.
    fn waits(&self) -> Vec<f64> {
        self.own.iter().filter_map(|counter| nanoseconds(counter, 1)).collect()
    }

    /// Why times are no comparison, if they are none.
    pub fn fault(&self) -> Option<String> {
        let share = self.spent_us / self.timed_us;
        (share > LIMIT).then(|| {
            format!(
                "other threads of the process ran for {:.0} us while bound and baseline were timed for {:.0} us \
                 (limit {:.0} %)",
                self.spent_us,
                self.timed_us,
                LIMIT * 100.0
            )
        })
    }

    /// Microseconds of all other threads so far, those that ended included; `None` where the system does not tell.
    fn others(&self) -> Option<f64> {
        let own = self.own.iter().map(|counter| nanoseconds(counter, 0)).sum::<Option<f64>>()?;
        Some(process_us()? - own / 1e3)
    }
}

/// Reads one of a thread's counters: number 0 is its time on a processor, number 1 its wait for one.
fn nanoseconds(counters: &str, number: usize) -> Option<f64> {
    std::fs::read_to_string(counters).ok()?.split_whitespace().nth(number)?.parse().ok()
}

#[cfg(unix)]
fn process_us() -> Option<f64> {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike as _;
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    Some((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64)
}

#[cfg(not(unix))]
fn process_us() -> Option<f64> {
    None
}

// What it says of attempts is held by the tests of cheats: the processor time of a process is that of all its tests.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_others_time_is_too_much() {
        let describe =
            |spent_us: f64, timed_us: f64| Beside { spent_us, timed_us, ..Beside::default() }.fault();
        assert_eq!((describe(0.0, 0.0), describe(249.0, 1000.0), describe(-9.0, 1000.0)), (None, None, None));
        assert!(describe(251.0, 1000.0).is_some_and(|message| message.contains("for 251 us while")));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn every_thread_of_the_device_and_the_calling_one_are_known() {
        assert_eq!(Beside::new(&Cpu::with_threads(3)).own.len(), 4);
        let alone = Beside::new(&Cpu::with_threads(1));
        assert_eq!(alone.own.len(), 1);
        assert!(alone.others().is_some(), "Linux counts the time of threads");
    }
}
