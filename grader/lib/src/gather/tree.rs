//! The processes of an attempt: its own, and all that it started, whoever their parent is by now.
//!
//! On Linux a process whose parent ends is handed to the nearest ancestor that asked for it (a *subreaper*,
//! prctl(2)); while it gathers, the grader is one. So whatever an attempt started is below its process, or a
//! child of the grader's own that was not there before. On Windows all of them are in one job (`job`), which ends with
//! the grader. Elsewhere the process group is all that is known.

#[cfg(target_os = "linux")]
mod system {
    #![expect(clippy::unnecessary_wraps, reason = "a job of Windows may be refused")]

    use std::collections::{BTreeMap, BTreeSet};
    use std::io;
    use std::time::{Duration, Instant};

    use nix::sys::prctl::set_child_subreaper;
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::{WaitPidFlag, waitpid};
    use nix::unistd::Pid;

    use super::super::held::Held;

    /// How long the end of what was left behind is waited for.
    const PATIENCE: Duration = Duration::from_secs(2);

    /// What is known of the grader's children before an attempt starts.
    pub(in super::super) struct Tree {
        before: BTreeSet<u32>,
        roots: BTreeSet<u32>,
    }

    /// A line of the table of processes.
    struct Process {
        parent: u32,
        bytes: usize,
        has_ended: bool, // and nobody has collected it yet
    }

    impl Tree {
        /// Before the attempt's process starts.
        pub fn watch() -> io::Result<Self> {
            _ = set_child_subreaper(true); // where it is refused, the process group is left
            let own = std::process::id();
            let children = processes().into_iter().filter(|(_, process)| process.parent == own);
            Ok(Self { before: children.map(|(id, _)| id).collect(), roots: BTreeSet::new() })
        }

        /// A process of the attempt's own: one a rank, which has not been told what to do yet.
        pub fn root(&mut self, id: u32) -> io::Result<()> {
            self.roots.insert(id);
            Ok(())
        }

        /// What the attempt holds now.
        pub fn held(&self) -> Held {
            let all = processes();
            let live = self.members(&all).into_iter().filter_map(|id| all.get(&id));
            live.filter(|process| !process.has_ended).fold(Held::default(), |held, process| Held {
                processes: held.processes + 1,
                bytes: held.bytes + process.bytes,
            })
        }

        fn members(&self, all: &BTreeMap<u32, Process>) -> BTreeSet<u32> {
            let own = std::process::id();
            let is_first =
                |id: &u32| self.roots.contains(id) || (all[id].parent == own && !self.before.contains(id));
            let mut members: BTreeSet<u32> = all.keys().copied().filter(is_first).collect();
            loop {
                let more = all
                    .iter()
                    .filter(|(id, process)| members.contains(&process.parent) && !members.contains(id));
                let more: Vec<u32> = more.map(|(id, _)| *id).collect();
                if more.is_empty() {
                    return members;
                }
                members.extend(more);
            }
        }

        /// Ends all that is left; the attempt's own process was collected by whoever started it.
        fn end(&mut self) {
            let begin = Instant::now();
            while begin.elapsed() < PATIENCE {
                let all = processes();
                let left = self.members(&all);
                if left.is_empty() {
                    return;
                }
                for id in left {
                    let id = Pid::from_raw(id.cast_signed());
                    _ = kill(id, Signal::SIGKILL);
                    _ = waitpid(id, Some(WaitPidFlag::WNOHANG)); // fails where it is no child of ours yet
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            self.roots.clear();
            self.end();
            _ = set_child_subreaper(false);
        }
    }

    /// Every process that can be seen, by its number.
    fn processes() -> BTreeMap<u32, Process> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        ids.filter_map(|id| Some((id, process(id)?))).collect()
    }

    fn process(id: u32) -> Option<Process> {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()
        };
        let parent = field("PPid:")?.parse().ok()?;
        let kib: usize = field("VmRSS:").and_then(|kib| kib.parse().ok()).unwrap_or(0); // none: the kernel's own
        Some(Process { parent, bytes: kib * 1024, has_ended: matches!(field("State:"), Some("Z" | "X")) })
    }
}

#[cfg(windows)]
mod system {
    use std::io;

    use super::super::held::Held;
    use super::super::job::Job;

    /// The attempt's job.
    pub(in super::super) struct Tree(Job);

    impl Tree {
        pub fn watch() -> io::Result<Self> {
            Job::new().map(Self)
        }

        pub fn root(&mut self, id: u32) -> io::Result<()> {
            self.0.add(id)
        }

        pub fn held(&self) -> Held {
            self.0.held()
        }
    }
}

#[cfg(not(any(target_os = "linux", windows)))]
mod system {
    #![expect(clippy::unnecessary_wraps, reason = "a job of Windows may be refused")]

    use std::io;

    use super::super::held::Held;

    /// Nothing is known of other processes here; the counting allocator's limit still holds.
    pub(in super::super) struct Tree;

    impl Tree {
        pub fn watch() -> io::Result<Self> {
            Ok(Self)
        }

        pub fn root(&mut self, _: u32) -> io::Result<()> {
            Ok(())
        }

        pub fn held(&self) -> Held {
            Held::default()
        }
    }
}

pub(super) use system::Tree;
