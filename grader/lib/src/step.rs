//! Single-stepping: which instructions an attempt really ran.
//!
//! Whether a fast path is taken can be claimed by its author, or looked at. This looks: a second process
//! runs one small call between two stops, and its parent steps through it one instruction at a time, reads
//! each instruction's first bytes, and counts vector instructions and streaming stores. Only the program's
//! own text counts; the C library's `memcpy` is a vector loop too.
//!
//! A baseline x86-64 build of Rust emits no VEX- or EVEX-encoded instruction and none of SSSE3 or later, so
//! each one that runs was asked for by a `#[target_feature]` function or by `asm!`. Boundaries are known
//! because the processor finds them; only the encoding's head has to be read, not the whole instruction.
//!
//! A small call on one thread can be told from a timed one. So a call as it is timed, on all threads, is looked at
//! as well. It is too long to be stepped through, so the parent stops it at an unforeseeable place, steps a thread that is
//! at work for a while as the others stand still, and counts in the output itself what the thread wrote meanwhile.
//!
//! Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, sections 2.3 (VEX) and
//! 2.7 (EVEX); ptrace(2).

/// What was counted between the stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Instructions of the program's own text.
    pub instructions: u64,
    /// Those that work on vectors.
    pub vector: u64,
    /// Stores that go past the caches.
    pub streaming: u64,
    /// Bytes that those wrote.
    pub streamed_bytes: u64,
    /// Those that no fence follows: they may reach memory after the call has returned.
    pub unfenced: u64,
}

/// The counts of a call that was followed step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    /// The counts.
    pub seen: Seen,
    /// Whether that is the whole call. Following it is given up after a time, and after many instructions.
    pub to_the_end: bool,
}

/// What was counted of calls as they are timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AsTimed {
    /// Instructions of the program's own text that were stepped through.
    pub seen: Seen,
    /// Elements of the output that changed meanwhile.
    pub elements: u64,
}

/// The hidden first argument of the watched process, and what a call as it is timed is called in the third.
pub(crate) const STEP_FLAG: &str = "--step-through";
pub(crate) const AS_TIMED: &str = "as-timed";

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod stepper {
    use super::{AsTimed, Followed};

    const ELSEWHERE: &str = "single-stepping an attempt needs Linux on x86-64";

    pub(crate) fn watch(_: &str, _: &str) -> Result<Followed, String> {
        Err(ELSEWHERE.into())
    }

    pub(crate) fn between_stops(_: impl FnOnce()) -> Result<(), String> {
        Err(ELSEWHERE.into())
    }

    pub(crate) fn watch_as_timed(_: &str, _: &str) -> Result<AsTimed, String> {
        Err(ELSEWHERE.into())
    }

    pub(crate) fn announce(_: (usize, usize)) -> Result<(), String> {
        Err(ELSEWHERE.into())
    }

    pub(crate) fn mark() -> Result<(), String> {
        Err(ELSEWHERE.into())
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod stepper {
    use std::collections::HashMap;
    use std::ops::Range;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use nix::sys::ptrace;
    use nix::sys::signal::{Signal, raise};
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::Pid;

    use super::{Followed, Instruction, STEP_FLAG, Seen, classify};

    /// Steps after which a call is given up: a hundred times what a plain loop needs.
    const MOST_STEPS: u64 = 5_000_000;

    /// How long a call is followed at most: on a busy machine each step waits for a processor.
    const WITHIN: Duration = Duration::from_mins(1);

    /// Steps through a call of the attempt that this program would work on as a child.
    pub(crate) fn watch(challenge: &str, source: &str) -> Result<Followed, String> {
        let program =
            std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
        let mut command = Command::new(&program);
        command.args([STEP_FLAG, challenge, source]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("no second process: {error}"))?;
        let seen = follow(&child);
        let _ = child.kill();
        let _ = child.wait();
        seen
    }

    /// Runs `call` between two stops of this process, which its parent traces.
    pub(crate) fn between_stops(call: impl FnOnce()) -> Result<(), String> {
        ptrace::traceme()
            .map_err(|error| format!("this system does not let a process be traced: {error}"))?;
        raise(Signal::SIGSTOP).map_err(|error| error.to_string())?;
        call();
        raise(Signal::SIGSTOP).map_err(|error| error.to_string())
    }

    fn follow(child: &Child) -> Result<Followed, String> {
        let pid = Pid::from_raw(child.id().cast_signed());
        first_stop(pid)?;
        let text = program_text(child.id())?;
        let mut known: HashMap<u64, Instruction> = HashMap::new();
        let mut seen = Seen::default();
        let (mut pass_on, begin) = (None, Instant::now());
        for step in 0..MOST_STEPS {
            if step.is_multiple_of(1024) && begin.elapsed() > WITHIN {
                break;
            }
            ptrace::step(pid, pass_on.take()).map_err(traced)?;
            match waitpid(pid, None).map_err(traced)? {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
                WaitStatus::Stopped(_, Signal::SIGSTOP) => return Ok(Followed { seen, to_the_end: true }),
                WaitStatus::Stopped(_, other) => pass_on = Some(other),
                other => return Err(format!("the watched call did not return: {other:?}")),
            }
            let at = ptrace::getregs(pid).map_err(traced)?.rip;
            if text.iter().any(|range| range.contains(&at)) {
                let instruction = match known.get(&at) {
                    Some(instruction) => *instruction,
                    None => *known.entry(at).or_insert(classify(&head(pid, at)?)),
                };
                seen.count(instruction);
            }
        }
        Ok(Followed { seen, to_the_end: false })
    }

    pub(super) fn traced(error: nix::Error) -> String {
        format!("the system refused to trace: {error}")
    }

    fn first_stop(pid: Pid) -> Result<(), String> {
        match waitpid(pid, None).map_err(traced)? {
            WaitStatus::Stopped(_, Signal::SIGSTOP) => Ok(()),
            other => Err(format!("the watched process did not get to its call: {other:?}")),
        }
    }

    /// The first eight bytes of an instruction and eight more.
    pub(super) fn head(pid: Pid, at: u64) -> Result<[u8; 16], String> {
        let word = |at: u64| ptrace::read(pid, at as ptrace::AddressType).map_err(traced);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&word(at)?.to_ne_bytes());
        bytes[8..].copy_from_slice(&word(at + 8).unwrap_or(0).to_ne_bytes());
        Ok(bytes)
    }

    /// Where the program's own code lies.
    pub(super) fn program_text(id: u32) -> Result<Vec<Range<u64>>, String> {
        let program = std::fs::read_link(format!("/proc/{id}/exe")).map_err(|error| error.to_string())?;
        let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).map_err(|error| error.to_string())?;
        let program = program.to_string_lossy().into_owned();
        let own = maps.lines().filter(|line| line.ends_with(&program) && line.contains(" r-xp "));
        Ok(own.filter_map(range).collect())
    }

    fn range(line: &str) -> Option<Range<u64>> {
        let (begin, end) = line.split(' ').next()?.split_once('-')?;
        Some(u64::from_str_radix(begin, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod sampled;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod writes;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use sampled::{announce, mark, watch_as_timed};
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) use stepper::{announce, mark, watch_as_timed};
pub(crate) use stepper::{between_stops, watch};

/// What an instruction does, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(all(target_os = "linux", target_arch = "x86_64")), allow(dead_code))]
enum Instruction {
    /// Anything else.
    Other,
    /// Works on vectors.
    Vector,
    /// Waits for earlier stores: SFENCE, MFENCE, or a locked instruction.
    Fence,
    /// Calls the system.
    System,
    /// Stores so many bytes past the caches.
    Streaming { bytes: u64, vector: bool },
}

#[cfg_attr(not(all(target_os = "linux", target_arch = "x86_64")), allow(dead_code))]
impl Seen {
    fn count(&mut self, instruction: Instruction) {
        self.instructions += 1;
        match instruction {
            Instruction::Other | Instruction::System => {}
            Instruction::Vector => self.vector += 1,
            Instruction::Fence => self.unfenced = 0,
            Instruction::Streaming { bytes, vector } => {
                self.vector += u64::from(vector);
                self.streaming += 1;
                self.unfenced += 1;
                self.streamed_bytes += bytes;
            }
        }
    }
}

/// Reads the head of an x86-64 instruction.
#[cfg_attr(not(all(target_os = "linux", target_arch = "x86_64")), allow(dead_code))]
fn classify(bytes: &[u8; 16]) -> Instruction {
    const LEGACY: [u8; 11] = [0x66, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65, 0x67, 0xf0];
    let mut at = bytes.iter().take_while(|byte| LEGACY.contains(byte)).count().min(4);
    let wide = bytes[at] & 0xf8 == 0x48; // REX.W
    let operand = bytes[..at].contains(&0x66);
    if bytes[..at].contains(&0xf0) {
        return Instruction::Fence;
    }
    at += usize::from(bytes[at] & 0xf0 == 0x40);
    let [a, b, c, d, e] = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3], bytes[at + 4]];
    match a {
        0xc5 => encoded(1, c, b & 3, 16 << (b >> 2 & 1)),
        0xc4 => encoded(b & 31, d, c & 3, 16 << (c >> 2 & 1)),
        0x62 => encoded(b & 7, e, c & 3, 16 << (d >> 5 & 3).min(2)),
        0x0f => match (b, c) {
            (0xae, 0xf0..) => Instruction::Fence, // MFENCE, SFENCE
            (0x05, _) => Instruction::System,     // SYSCALL
            (0x2b, _) => Instruction::Streaming { bytes: 16, vector: true },
            (0xe7, _) => Instruction::Streaming { bytes: if operand { 16 } else { 8 }, vector: true },
            (0xc3, _) => Instruction::Streaming { bytes: if wide { 8 } else { 4 }, vector: false },
            (0x38 | 0x3a, ..0xf0) => Instruction::Vector, // SSSE3 and SSE4
            _ => Instruction::Other,
        },
        _ => Instruction::Other,
    }
}

/// A VEX or EVEX instruction: opcode map, opcode, implied prefix, vector bytes.
#[cfg_attr(not(all(target_os = "linux", target_arch = "x86_64")), allow(dead_code))]
fn encoded(map: u8, opcode: u8, prefix: u8, bytes: u64) -> Instruction {
    match (map, opcode, prefix) {
        (1, 0x2b, 0 | 1) | (1, 0xe7, 1) => Instruction::Streaming { bytes, vector: true },
        // VZEROUPPER; BMI, which works on general registers
        (1, 0x77, _) | (2, 0xf2 | 0xf3 | 0xf5..=0xf7, _) | (3, 0xf0, _) => Instruction::Other,
        _ => Instruction::Vector,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(head: &[u8]) -> Instruction {
        let mut bytes = [0x90; 16];
        bytes[..head.len()].copy_from_slice(head);
        classify(&bytes)
    }

    #[test]
    fn streaming_stores_are_told_from_others() {
        let streaming = |bytes| Instruction::Streaming { bytes, vector: true };
        assert_eq!(of(&[0x62, 0xf1, 0x7d, 0x48, 0xe7, 0x07]), streaming(64)); // vmovntdq [rdi], zmm0
        assert_eq!(of(&[0xc5, 0xfd, 0xe7, 0x07]), streaming(32)); // vmovntdq [rdi], ymm0
        assert_eq!(of(&[0x66, 0x0f, 0xe7, 0x07]), streaming(16)); // movntdq [rdi], xmm0
        assert_eq!(of(&[0x48, 0x0f, 0xc3, 0x07]), Instruction::Streaming { bytes: 8, vector: false }); // movnti
        assert_eq!(of(&[0xc5, 0xfd, 0x7f, 0x07]), Instruction::Vector); // vmovdqa [rdi], ymm0
    }

    #[test]
    fn a_call_of_the_system_is_known() {
        assert_eq!(of(&[0x0f, 0x05]), Instruction::System); // syscall
        assert_eq!(of(&[0x0f, 0x0b]), Instruction::Other); // ud2
    }

    #[test]
    fn a_fence_settles_the_stores_before_it() {
        assert_eq!(of(&[0x0f, 0xae, 0xf8]), Instruction::Fence); // sfence
        assert_eq!(of(&[0xf0, 0x48, 0x0f, 0xc1, 0x07]), Instruction::Fence); // lock xadd [rdi], rax
        let mut seen = Seen::default();
        let store = Instruction::Streaming { bytes: 64, vector: true };
        for instruction in [store, store, Instruction::Fence, store] {
            seen.count(instruction);
        }
        assert_eq!((seen.streaming, seen.unfenced), (3, 1));
    }

    #[test]
    fn scalar_code_is_no_vector_code() {
        assert_eq!(of(&[0xf3, 0x0f, 0x59, 0xc1]), Instruction::Other); // mulss xmm0, xmm1
        assert_eq!(of(&[0x0f, 0x10, 0x07]), Instruction::Other); // movups: the compiler copies with it
        assert_eq!(of(&[0xc4, 0xe2, 0xf8, 0xf3, 0xc8]), Instruction::Other); // blsr: VEX on a general register
        assert_eq!(of(&[0xc5, 0xf8, 0x77]), Instruction::Other); // vzeroupper
        assert_eq!(of(&[0x66, 0x0f, 0x38, 0x00, 0xc1]), Instruction::Vector); // pshufb
        assert_eq!(of(&[0x62, 0xf2, 0xfd, 0x48, 0x8d, 0xc1]), Instruction::Vector); // vpermw zmm
    }
}
