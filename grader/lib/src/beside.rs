//! Measures what else of this process runs while a time is taken.
//!
//! An attempt is compared with a bound and with baselines, so it wins as much by holding those up as by being fast:
//! threads that it leaves running after its call take their cores. Times show that only where the machine is otherwise
//! quiet. Processor time shows it anywhere: the time that the process spent during a call of the bound or the baseline,
//! less the time of the threads that did the call's work, was spent by something else.
//!
//! A thread at work is held up without any processor time, too: by one that moves it to the core of another, or takes
//! its priority. So the cores, the niceness and the policy of each thread at work have to stay as they were.
//!
//! On a card, threads of the host hold up nothing but launches, and nothing is watched.
//!
//! Linux has a clock for the process and one for each thread (`clock_getcpuclockid(3)`), exact to the moment. They are
//! read one after the other, and the order of the readings never counts a thread's own work as another's. On other
//! systems the sign test on speed stands alone.

use kernels::Cpu;

/// The share of the others' time above which they were held up. Threads that sleep take nothing. A thread that spins
/// now and then slows the baseline by at most its share of a core, which must stay far below the smallest speed-up that
/// wins a point, 5 %.
const LIMIT: f64 = 0.02;

/// The processor time of threads that had nothing to do with what was timed.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    own: Vec<Thread>,           // the threads that do the work that is timed
    places: Vec<Option<Place>>, // where each of them may run, from the beginning
    is_moved: bool,             // whether one of them may run elsewhere now
    spent_us: f64,
    timed_us: f64,
}

impl Beside {
    /// Watches all threads but the calling one and those of a device.
    pub fn new(cpu: &Cpu) -> Self {
        Self::of(cpu.each_thread(Thread::present).into_iter().chain([Thread::present()]).flatten())
    }

    /// Watches all threads but these.
    pub fn of(threads: impl IntoIterator<Item = Thread>) -> Self {
        let mut own: Vec<Thread> = threads.into_iter().collect();
        own.sort_unstable();
        own.dedup();
        let places = own.iter().map(|thread| thread.place()).collect();
        Self { own, places, ..Self::default() }
    }

    /// Runs a call and counts the time of all other threads meanwhile; `micros` is the call's time.
    pub fn watch<T>(&mut self, call: impl FnOnce() -> T, micros: impl Fn(&T) -> f64) -> T {
        let is_moved = |(thread, before): (&Thread, &Option<Place>)| {
            let now = thread.place(); // of a thread that has ended, nothing
            now.zip(before.as_ref()).is_some_and(|(now, before)| now != *before)
        };
        self.is_moved |= self.own.iter().zip(&self.places).any(is_moved);
        // What runs between the two readings is counted before the call and not after it.
        let before = self.own_us().and_then(|own| Some(process_us()? - own));
        let answer = call();
        let after = process_us().and_then(|all| Some(all - self.own_us()?));
        if let Some((before, after)) = before.zip(after) {
            self.spent_us += (after - before).max(0.0);
            self.timed_us += micros(&answer);
        }
        answer
    }

    /// Why times are no comparison, if they are none; `timed` says what was timed, as in `the baseline was timed`.
    pub fn fault(&self, timed: &str) -> Option<String> {
        if self.is_moved {
            return Some(format!(
                "before {timed}, the cores or the priority of a thread at work were changed"
            ));
        }
        let share = self.spent_us / self.timed_us;
        (share > LIMIT).then(|| {
            format!(
                "other threads of the process ran for {:.0} us while {timed} for {:.0} us (limit {:.0} %)",
                self.spent_us,
                self.timed_us,
                LIMIT * 100.0
            )
        })
    }

    /// Microseconds of the threads that do the work; `None` where the system does not say.
    fn own_us(&self) -> Option<f64> {
        self.own.iter().map(|thread| thread.micros()).sum()
    }
}

/// Runs a call that gives its time or fails, watched where something watches; `micros` converts its time.
pub(crate) fn watch<T, E>(
    beside: Option<&mut Beside>,
    call: impl FnOnce() -> Result<T, E>,
    micros: impl Fn(&T) -> f64,
) -> Result<T, E> {
    match beside {
        Some(beside) => beside.watch(call, |answer| answer.as_ref().map_or(0.0, &micros)),
        None => call(),
    }
}

#[cfg(target_os = "linux")]
mod clocks {
    use nix::sched::{CpuSet, sched_getaffinity};
    use nix::time::{ClockId, clock_gettime};
    use nix::unistd::Pid;

    /// A thread, by the clock of its processor time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Thread(ClockId);

    impl Thread {
        /// The calling thread. The number of a thread's clock is made as the kernel documents it
        /// (include/linux/posix-timers_types.h): the complement of its ID, and below it the kind of the clock.
        #[expect(clippy::unnecessary_wraps, reason = "other systems have no such clock")]
        pub fn present() -> Option<Self> {
            const OF_A_THREAD_BY_THE_SCHEDULER: i32 = 4 | 2;
            let id = nix::unistd::gettid().as_raw();
            Some(Self(ClockId::from_raw((!id << 3) | OF_A_THREAD_BY_THE_SCHEDULER)))
        }

        pub fn micros(self) -> Option<f64> {
            micros(self.0)
        }

        /// Where and how it runs: its cores, then its niceness and its policy (fields 19 and 41 of
        /// `/proc/PID/task/TID/stat`, proc(5)).
        pub fn place(self) -> Option<Place> {
            let id = !(self.0.as_raw() >> 3);
            let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")).ok()?;
            let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect(); // from the third
            let field = |number: usize| fields.get(number - 3).map(|field| (*field).to_owned());
            Some((sched_getaffinity(Pid::from_raw(id)).ok()?, [field(19)?, field(41)?]))
        }
    }

    pub(super) type Place = (CpuSet, [String; 2]);

    /// The time of all threads so far, those that ended included.
    pub(super) fn process_us() -> Option<f64> {
        micros(ClockId::CLOCK_PROCESS_CPUTIME_ID)
    }

    fn micros(clock: ClockId) -> Option<f64> {
        let time = clock_gettime(clock).ok()?;
        Some(time.tv_sec() as f64 * 1e6 + time.tv_nsec() as f64 / 1e3)
    }
}

#[cfg(not(target_os = "linux"))]
mod clocks {
    /// Nothing is known of a thread's processor time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Thread;

    impl Thread {
        pub fn present() -> Option<Self> {
            None
        }

        pub fn micros(self) -> Option<f64> {
            None
        }

        pub fn place(self) -> Option<Place> {
            None
        }
    }

    pub(super) type Place = ();

    pub(super) fn process_us() -> Option<f64> {
        None
    }
}

pub(crate) use clocks::Thread;
use clocks::{Place, process_us};

// What it finds in attempts is covered by the tests of cheats: the processor time of a process is that of all its tests.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_a_fiftieth() {
        let describe =
            |spent_us: f64, timed_us: f64| Beside { spent_us, timed_us, ..Beside::default() }.fault("it ran");
        assert_eq!((describe(0.0, 0.0), describe(19.0, 1000.0)), (None, None));
        assert!(
            describe(21.0, 1000.0)
                .is_some_and(|message| message.contains("for 21 us while it ran for 1000 us"))
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn device_threads_and_the_caller_are_known() {
        assert_eq!(Beside::new(&Cpu::with_threads(3)).own.len(), 4);
        let alone = Beside::new(&Cpu::with_threads(1));
        assert_eq!(alone.own.len(), 1);
        let first = alone.own_us().expect("Linux has a clock for each thread");
        let begin = std::time::Instant::now();
        while begin.elapsed().as_millis() < 3 {
            std::hint::spin_loop();
        }
        assert!(alone.own_us() > Some(first) && process_us().is_some());
    }
}
