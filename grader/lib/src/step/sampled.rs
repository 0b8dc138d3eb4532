//! Calls as they are timed, looked at in samples: see the head of [`super`].
//!
//! Before a call an element of its results is drawn, and the thread that writes it is stopped there: it is at work, on
//! a busy machine as on a quiet one. Where the system lends no debug registers, all threads are stopped at moments that
//! are drawn, again and again until one of them is at work or the call has ended.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use kernels::cpu::Tick;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::stepper::{head, program_text, traced};
use super::writes::stop_at;
use super::{AS_TIMED, AsTimed, Instruction, STEP_FLAG, classify};
use crate::random::{self, Random};

/// Samples that are taken, and instructions of each.
const SAMPLES: usize = 24;
const STEPS: usize = 4096;

/// How long samples are taken at most: on a busy machine each step waits for a processor.
const WITHIN: Duration = Duration::from_mins(1);

/// Calls without a stop at a write after which moments are drawn instead.
const IN_VAIN: usize = 8;

/// Calls before the moments, from which the length of a call is known.
const UNDISTURBED: usize = 5;

/// Looks at calls of the attempt that this program would work on as a child.
pub(crate) fn watch_as_timed(challenge: &str, source: &str) -> Result<AsTimed, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let mut command = Command::new(&program);
    command.args([STEP_FLAG, challenge, source, AS_TIMED]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("no second process: {error}"))?;
    let seen = Watched::new(&mut child).and_then(Watched::look);
    let _ = child.kill();
    while waitpid(Pid::from_raw(-1), Some(WaitPidFlag::__WALL)).is_ok() {} // its threads are ours to collect, too
    let _ = child.wait();
    seen
}

/// The watched process's side: tells where its 16-bit results lie and how many there are, and waits until somebody
/// traces it.
pub(crate) fn announce((address, count): (usize, usize)) -> Result<(), String> {
    println!("{address} {count}");
    std::io::stdin().read_exact(&mut [0]).map_err(|error| error.to_string())
}

/// The mark in front of a call, and the one after it.
pub(crate) fn mark() -> Result<(), String> {
    raise(Signal::SIGSTOP).map_err(|error| error.to_string())
}

/// A traced process.
struct Watched {
    pid: Pid,
    text: Vec<Range<u64>>,
    memory: File,
    output: Range<u64>, // addresses
    known: HashMap<u64, Instruction>,
    random: Random,
    total: AsTimed,
    trap: Option<u64>, // the address whose write stops a thread
    _stdin: ChildStdin,
}

/// What a thread is stopped at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The mark in front of a call or after it.
    Mark,
    /// A signal that is to be passed on, or something that only a tracer sees.
    Other(Option<Signal>),
}

impl Watched {
    /// Traces a process that has told where its results lie and waits.
    fn new(child: &mut Child) -> Result<Self, String> {
        let pid = Pid::from_raw(child.id().cast_signed());
        let lost = || "the watched process did not get to its call".to_owned();
        let mut line = String::new();
        let message = child.stdout.take().ok_or_else(lost)?;
        BufReader::new(message.take(64)).read_line(&mut line).map_err(|error| error.to_string())?;
        let (address, count) = line.trim().split_once(' ').ok_or_else(lost)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| lost());
        let (address, count) = (number(address)?, number(count)?);
        for thread in threads(pid)? {
            let options = ptrace::Options::PTRACE_O_TRACECLONE | ptrace::Options::PTRACE_O_EXITKILL;
            ptrace::seize(thread, options).map_err(traced)?;
        }
        let mut stdin = child.stdin.take().ok_or_else(lost)?;
        stdin.write_all(b"\n").map_err(|error| error.to_string())?;
        Ok(Self {
            pid,
            text: program_text(child.id())?,
            memory: File::open(format!("/proc/{pid}/mem")).map_err(|error| error.to_string())?,
            output: address..address + 2 * count,
            known: HashMap::new(),
            random: random::unforeseen()?,
            total: AsTimed::default(),
            trap: None,
            _stdin: stdin,
        })
    }

    fn look(mut self) -> Result<AsTimed, String> {
        let begin = Instant::now();
        let over = |taken| taken == SAMPLES || begin.elapsed() > WITHIN;
        let (mut calls, mut taken) = (0, 0);
        let mut writes_stop = true;
        while writes_stop && !over(taken) {
            self.until_mark()?;
            writes_stop = self.call_stopped_at_a_write(&mut taken)? && (taken > 0 || calls < IN_VAIN);
            calls += 1;
            ptrace::cont(self.pid, None).map_err(traced)?;
        }
        let mut shortest = u64::MAX; // ticks of the calls that are not looked at
        let mut undisturbed = 0;
        while !over(taken) {
            self.until_mark()?;
            if undisturbed < UNDISTURBED {
                shortest = shortest.min(self.undisturbed_call()?);
                undisturbed += 1;
            } else {
                self.call_stopped_at_moments(shortest, &mut taken)?;
                calls += 1;
            }
            ptrace::cont(self.pid, None).map_err(traced)?;
        }
        match taken {
            0 => {
                Err(format!("in none of {calls} calls was a thread seen at work, in {} s", WITHIN.as_secs()))
            }
            _ => Ok(self.total),
        }
    }

    /// One call, from its mark to the next, in which the thread that writes a drawn element is looked at. Returns whether
    /// the system has lent its debug registers.
    fn call_stopped_at_a_write(&mut self, taken: &mut usize) -> Result<bool, String> {
        let eights = (self.output.end - self.output.start) / 8;
        let address = (self.output.start + 8 * self.random.below(eights as usize) as u64).next_multiple_of(8);
        self.trap = Some(address);
        let is_lent = self.stop_all_at(Some(address))?;
        ptrace::cont(self.pid, None).map_err(traced)?;
        let Some(thread) = self.until_write()? else {
            self.stop_all_at(None)?;
            return Ok(is_lent);
        };
        if !self.sample(&threads(self.pid)?, Some(thread), taken)? {
            self.until_mark()?;
        }
        Ok(is_lent)
    }

    /// Arms or disarms every thread, while the process itself is at a mark. Returns whether the system allows it.
    fn stop_all_at(&mut self, address: Option<u64>) -> Result<bool, String> {
        self.trap = address;
        let mut is_lent = stop_at(self.pid, address).is_ok();
        for thread in threads(self.pid)?.into_iter().filter(|thread| *thread != self.pid) {
            let mut stopped = Vec::new();
            self.interrupt(thread, &mut stopped)?;
            for (thread, stop) in stopped {
                is_lent &= stop_at(thread, address).is_ok();
                if let Stop::Other(signal) = stop {
                    let_go(thread, signal)?;
                }
            }
        }
        Ok(is_lent)
    }

    /// Goes on until a thread has written the watched element; `None` if the process is at its mark before.
    fn until_write(&mut self) -> Result<Option<Pid>, String> {
        loop {
            let status = waitpid(Pid::from_raw(-1), Some(WaitPidFlag::__WALL)).map_err(traced)?;
            if let WaitStatus::Stopped(thread, Signal::SIGTRAP) = status {
                return Ok(Some(thread));
            }
            if self.passed_on(status)? {
                return Ok(None);
            }
        }
    }

    /// One call, from its mark to the next: its ticks.
    fn undisturbed_call(&mut self) -> Result<u64, String> {
        ptrace::cont(self.pid, None).map_err(traced)?;
        let begin = Tick::now();
        self.until_mark()?;
        Ok(begin.ticks())
    }

    /// One call, from its mark to the next, stopped until a thread is seen at work.
    fn call_stopped_at_moments(&mut self, shortest: u64, taken: &mut usize) -> Result<(), String> {
        let threads = threads(self.pid)?; // now: a call may be shorter than it takes to list them
        let before = *taken;
        ptrace::cont(self.pid, None).map_err(traced)?;
        let begin = Tick::now();
        let mut ended = false;
        let mut span = shortest as f64;
        while !ended && *taken == before {
            let moment = begin.ticks() + (self.random.unit() * span) as u64;
            ended = self.marked(|| begin.ticks() >= moment)? || self.sample(&threads, None, taken)?;
            span = shortest as f64 / 8.0; // from now on in small steps
        }
        if ended { Ok(()) } else { self.until_mark() }
    }

    /// Goes on until the process stands at a mark.
    fn until_mark(&mut self) -> Result<(), String> {
        loop {
            let status = waitpid(Pid::from_raw(-1), Some(WaitPidFlag::__WALL)).map_err(traced)?;
            if self.passed_on(status)? {
                return Ok(());
            }
        }
    }

    /// Goes on until `enough`; says whether the process stands at a mark by then.
    fn marked(&mut self, enough: impl Fn() -> bool) -> Result<bool, String> {
        let any = Pid::from_raw(-1);
        while !enough() {
            let status = waitpid(any, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)).map_err(traced)?;
            if status != WaitStatus::StillAlive && self.passed_on(status)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets a stopped thread go on, unless it is the process at a mark: then it says so.
    fn passed_on(&self, status: WaitStatus) -> Result<bool, String> {
        if let Some((thread, stop)) = self.stop(status)? {
            match stop {
                Stop::Mark => return Ok(true),
                Stop::Other(signal) => {
                    if matches!(status, WaitStatus::PtraceEvent(..)) && self.trap.is_some() {
                        let _ = stop_at(thread, self.trap); // one that the call has started itself
                    }
                    let_go(thread, signal)?;
                }
            }
        }
        Ok(false)
    }

    /// Which thread stopped, and at what; nothing for one that has ended.
    fn stop(&self, status: WaitStatus) -> Result<Option<(Pid, Stop)>, String> {
        Ok(match status {
            WaitStatus::Stopped(thread, Signal::SIGSTOP) if thread == self.pid => Some((thread, Stop::Mark)),
            WaitStatus::Stopped(thread, Signal::SIGSTOP | Signal::SIGTRAP)
            | WaitStatus::PtraceEvent(thread, ..) => Some((thread, Stop::Other(None))),
            WaitStatus::Stopped(thread, signal) => Some((thread, Stop::Other(Some(signal)))),
            WaitStatus::Exited(thread, _) | WaitStatus::Signaled(thread, ..) if thread == self.pid => {
                return Err(format!("the watched call did not return: {status:?}"));
            }
            _ => None,
        })
    }

    /// Stops every thread, steps one that is in the program's text, and lets all go on: the one that is stopped already,
    /// or any. Says whether the call has ended by then, with the process at its mark.
    fn sample(&mut self, known: &[Pid], at_a_write: Option<Pid>, taken: &mut usize) -> Result<bool, String> {
        let mut stopped: Vec<_> = at_a_write.map(|thread| (thread, Stop::Other(None))).into_iter().collect();
        let others = known.iter().copied().filter(|thread| *thread != self.pid).chain([self.pid]);
        for thread in others.filter(|thread| Some(*thread) != at_a_write) {
            self.interrupt(thread, &mut stopped)?;
        }
        for thread in threads(self.pid)? {
            if !known.contains(&thread) {
                self.interrupt(thread, &mut stopped)?; // one that the call has started itself
            }
        }
        if self.trap.take().is_some() {
            for (thread, _) in &stopped {
                _ = stop_at(*thread, None); // it may have ended
            }
        }
        let ended = stopped.iter().any(|(_, stop)| *stop == Stop::Mark);
        let may_be_looked_at = |i: &usize| at_a_write.is_none_or(|thread| thread == stopped[*i].0);
        let at_work: Vec<usize> =
            (0..stopped.len()).filter(|i| may_be_looked_at(i) && self.is_at_work(stopped[*i])).collect();
        if !ended && !at_work.is_empty() {
            let chosen = at_work[self.random.below(at_work.len())];
            let before = self.results()?;
            self.step(&mut stopped[chosen])?;
            let after = self.results()?;
            let changed = before.as_chunks::<2>().0.iter().zip(after.as_chunks::<2>().0);
            self.total.elements += changed.filter(|(before, after)| before != after).count() as u64;
            *taken += 1;
        }
        for (thread, stop) in stopped {
            if let Stop::Other(signal) = stop {
                let_go(thread, signal)?;
            }
        }
        Ok(ended)
    }

    /// Stops one thread, unless it has ended.
    fn interrupt(&self, thread: Pid, stopped: &mut Vec<(Pid, Stop)>) -> Result<(), String> {
        if ptrace::interrupt(thread).is_ok() {
            let status = waitpid(thread, Some(WaitPidFlag::__WALL)).map_err(traced)?;
            stopped.extend(self.stop(status)?);
        }
        Ok(())
    }

    fn is_at_work(&self, (thread, stop): (Pid, Stop)) -> bool {
        let at = ptrace::getregs(thread).map(|registers| registers.rip);
        stop == Stop::Other(None) && at.is_ok_and(|at| self.text.iter().any(|range| range.contains(&at)))
    }

    /// Steps one thread, up to a call of the system: that might wait for the others, which stand still.
    fn step(&mut self, (thread, stop): &mut (Pid, Stop)) -> Result<(), String> {
        for _ in 0..STEPS {
            let at = ptrace::getregs(*thread).map_err(traced)?.rip;
            let instruction = match self.known.get(&at) {
                Some(instruction) => *instruction,
                None => *self.known.entry(at).or_insert(classify(&head(*thread, at)?)),
            };
            if instruction == Instruction::System {
                return Ok(());
            }
            if self.text.iter().any(|range| range.contains(&at)) {
                self.total.seen.count(instruction);
            }
            ptrace::step(*thread, None).map_err(traced)?;
            let status = waitpid(*thread, Some(WaitPidFlag::__WALL)).map_err(traced)?;
            match self.stop(status)? {
                Some((_, Stop::Other(None))) => {}
                Some((_, other)) => {
                    *stop = other;
                    return Ok(());
                }
                None => return Err("a thread ended while it was stepped".into()),
            }
        }
        Ok(())
    }

    /// The results as they are now.
    fn results(&self) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; (self.output.end - self.output.start) as usize];
        let read = self.memory.read_exact_at(&mut bytes, self.output.start);
        read.map_err(|error| format!("the results cannot be read: {error}"))?;
        Ok(bytes)
    }
}

fn let_go(thread: Pid, signal: Option<Signal>) -> Result<(), String> {
    match ptrace::cont(thread, signal) {
        Ok(()) | Err(nix::Error::ESRCH) => Ok(()), // it may have ended
        Err(error) => Err(traced(error)),
    }
}

fn threads(pid: Pid) -> Result<Vec<Pid>, String> {
    let list = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| error.to_string())?;
    let numbers = list.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.map(Pid::from_raw).collect())
}
