//! Spreads the threads of a device over the cores.
//!
//! Linux may wake two sleeping threads on one core, and moves one of them only at its next tick, up to 4 ms later. A call
//! of half a millisecond is over by then and took twice its time, next to an idle core. So each thread that is timed
//! stays on a core of its own (`sched_setaffinity(2)`), where the device has as many threads as the process may use
//! cores. With fewer threads than cores the scheduler finds an idle core by itself, and a thread that is held on a core
//! might share it with another program.

use kernels::Cpu;

/// A device with all threads that the process may use, each on a core of its own where the system can hold it there.
pub(super) fn one_thread_a_core() -> Cpu {
    let cpu = Cpu::new();
    hold(&cpu);
    cpu
}

#[cfg(target_os = "linux")]
fn hold(cpu: &Cpu) {
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    let this_thread = Pid::from_raw(0);
    let Ok(allowed) = sched_getaffinity(this_thread) else { return };
    let cores: Vec<usize> = (0..CpuSet::count()).filter(|core| allowed.is_set(*core) == Ok(true)).collect();
    if cores.len() < 2 || cores.len() != cpu.threads() {
        return;
    }
    let next = AtomicUsize::new(0);
    cpu.each_thread(|| {
        let mut own = CpuSet::new();
        let core = cores[next.fetch_add(1, Relaxed)];
        // A system that refuses leaves the thread where it was: its times are as they were without this.
        let _ = own.set(core).and_then(|()| sched_setaffinity(this_thread, &own));
    });
}

#[cfg(not(target_os = "linux"))]
fn hold(_: &Cpu) {}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_core() {
        use nix::sched::{CpuSet, sched_getaffinity};
        let cpu = one_thread_a_core();
        let allowed =
            |set: CpuSet| (0..CpuSet::count()).filter(|core| set.is_set(*core) == Ok(true)).collect();
        let mut cores: Vec<Vec<usize>> =
            cpu.each_thread(|| sched_getaffinity(nix::unistd::Pid::from_raw(0)).map_or(vec![], allowed));
        let count = cores.len();
        assert!(count == 1 || cores.iter().all(|cores| cores.len() == 1 || cores.len() > count), "{cores:?}");
        cores.sort_unstable();
        cores.dedup();
        assert!(cores.len() == count || cores[0].len() > count, "{cores:?}");
    }
}
