//! The processes that work on an item together: one a rank, and one alone where there are no ranks.
//!
//! All are in one process group, hold no more memory together than the attempt may, and have one deadline. Each has its
//! own private connection, and `RANK`, `LOCAL_RANK` and `WORLD_SIZE` in its environment where there are several. A rank
//! that ends, oversteps or is late ends the team, and what is reported names it.

use std::ffi::OsString;
use std::io::{BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use process_wrap::std::{ChildWrapper, CommandWrap};

use super::held::MOST_PROCESSES;
use super::link::{self, Line};
use super::tree::Tree;
use super::{CHILD_FLAG, Order, Request};

/// Which program to start as a child.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub program: PathBuf,
    /// Arguments in front of the hidden flag.
    pub arguments: Vec<OsString>,
}

/// How often children are looked at when they say nothing.
const POLL: Duration = Duration::from_millis(50);

/// How often their memory and their processes are counted: that reads the whole table of processes.
const COUNT: Duration = Duration::from_millis(400);

/// How long a child that closed its connection may take to end.
const LAST_BREATH: Duration = Duration::from_secs(2);

/// Lines that may wait to be read; a child that writes more waits.
const WAITING_LINES: usize = 16;

/// Bytes of an attempt's own output that are kept: its end.
const KEPT_OUTPUT_BYTES: usize = 8 * 1024;

/// The same where its calls are shown, to be read.
const SHOWN_OUTPUT_BYTES: usize = 32 * 1024;

/// What keeps an item from its end.
pub(super) enum Stop {
    /// A rank is gone, or closed its connection.
    Gone(usize),
    /// One said what it must not say, or the team holds more than it may.
    Refused(String),
    /// The time is over, and this rank is not done.
    Late(Duration, usize),
}

/// One rank's process.
struct Member {
    child: Box<dyn ChildWrapper>,
    orders: Box<dyn Write>,
    output: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

/// What a rank wrote; nothing at its connection's end.
type Heard = (usize, Option<Line>);

/// Running processes, by rank.
pub(super) struct Team {
    members: Vec<Member>,
    heard: Receiver<Heard>,
    memory_limit: usize,
    counted: Instant,
    tree: Tree, // the last to be dropped: what is left when the children are gone
}

impl Team {
    /// Starts as many processes as are asked for.
    pub fn start(launch: &Launch, request: &Request) -> std::io::Result<Self> {
        let tree = Tree::watch()?;
        #[cfg(unix)]
        usual_stack();
        let most = if request.effort.shows_calls { SHOWN_OUTPUT_BYTES } else { KEPT_OUTPUT_BYTES };
        let (send, heard) = sync_channel(WAITING_LINES);
        let counted = Instant::now();
        let mut team = Self { members: vec![], heard, memory_limit: request.memory_limit, counted, tree };
        for rank in 0..request.ranks.max(1) {
            let leader = team.members.first().map(|member| member.child.id());
            let member = Member::start(launch, (rank, request.ranks), leader, most, &send)?;
            let id = member.child.id();
            team.members.push(member);
            team.tree.root(id)?; // nothing of the attempt runs in it before it is told what to do
        }
        Ok(team)
    }

    /// How many there are.
    pub fn ranks(&self) -> usize {
        self.members.len()
    }

    /// What is reported of a rank, with its number where there are several.
    pub fn of_rank(&self, rank: usize, message: &str) -> String {
        if self.ranks() > 1 { format!("rank {rank} {message}") } else { message.to_owned() }
    }

    /// Writes a line to a rank.
    pub fn tell(&mut self, rank: usize, line: &impl serde::Serialize) -> Result<(), Stop> {
        link::write_line(&mut self.members[rank].orders, line).map_err(|_| Stop::Gone(rank))
    }

    /// Nothing more is asked of anybody: who waits for an order gets one for no item, and ends.
    pub fn dismiss(&mut self) {
        for member in &mut self.members {
            _ = link::write_line(&mut member.orders, &Order { item: usize::MAX, nonce: String::new() });
        }
    }

    /// The next line of any rank; `None` if none came for a while.
    pub fn hear(&mut self) -> Result<Option<(usize, Line)>, Stop> {
        match self.heard.recv_timeout(POLL) {
            Ok((rank, Some(line))) => Ok(Some((rank, line))),
            Ok((rank, None)) => Err(Stop::Gone(rank)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Stop::Gone(0)),
        }
    }

    /// Whether the attempt and all that it started hold no more than they may. Asked often, it looks now and then.
    pub fn count(&mut self) -> Result<(), Stop> {
        if self.counted.elapsed() <= COUNT {
            return Ok(());
        }
        let held = self.tree.held();
        self.counted = Instant::now();
        if held.bytes > self.memory_limit {
            let (bytes, limit) = (held.bytes, self.memory_limit);
            let message = format!("ran past its memory limit: {bytes} bytes resident, {limit} allowed");
            return Err(Stop::Refused(message));
        }
        if held.processes > MOST_PROCESSES {
            let message = format!("has {} processes, {MOST_PROCESSES} are allowed", held.processes);
            return Err(Stop::Refused(message));
        }
        Ok(())
    }

    /// What became of a rank that closed its connection by itself, as its end does. One that lives on is ended in time.
    pub fn ended(mut self, rank: usize) -> String {
        let deadline = Instant::now() + LAST_BREATH;
        let status = loop {
            match self.members[rank].child.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL / 10),
                status => break status,
            }
        };
        let said = self.said(rank);
        let cause = match status {
            Ok(Some(status)) => cause_of_death(status, &said),
            Ok(None) => "closed the pipe of the grader's results".into(),
            Err(error) => format!("was lost: {error}"),
        };
        let is_told = |line: &&str| !line.starts_with(kernels::bytes::LIMIT_MESSAGE);
        let said: Vec<&str> = said.lines().filter(is_told).collect();
        with_output(self.of_rank(rank, &cause), said.join("\n").trim())
    }

    /// Ends all of them for a cause; what they printed is reported with it.
    pub fn stopped(mut self, cause: String) -> String {
        self.end();
        let said: Vec<String> = (0..self.ranks()).map(|rank| self.said(rank)).collect();
        let said: Vec<&str> = said.iter().map(String::as_str).filter(|said| !said.is_empty()).collect();
        with_output(cause, &said.join("\n"))
    }

    fn end(&mut self) {
        for member in self.members.iter_mut().rev() {
            _ = member.child.kill(); // the first one's is that of the whole group
        }
    }

    /// A rank's last words. They may still be on their way when it is gone, but not for long; what it started and left
    /// after may hold the pipe open for ever.
    pub fn said(&self, rank: usize) -> String {
        let member = &self.members[rank];
        let patience = Instant::now() + Duration::from_millis(500);
        while Instant::now() < patience && !member.reader.is_finished() {
            std::thread::sleep(POLL / 10);
        }
        let output = member.output.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&output).trim().to_owned()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.end(); // no attempt outlives its verdict
    }
}

impl Member {
    fn start(
        launch: &Launch,
        (rank, ranks): (usize, usize),
        leader: Option<u32>,
        most: usize,
        to: &SyncSender<Heard>,
    ) -> std::io::Result<Self> {
        let mut command = Command::new(&launch.program);
        command.args(&launch.arguments).arg(CHILD_FLAG);
        if ranks > 1 {
            let variables = [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", ranks)];
            command.envs(variables.map(|(name, value)| (name, value.to_string())));
        }
        let link = link::connect(&mut command)?;
        let mut child = contained(command, leader).spawn()?;
        let (orders, results, printed) = link.split(child.as_mut())?;
        let output = Arc::new(Mutex::new(Vec::new()));
        let reader = keep(printed, &output, most);
        let to = to.clone();
        std::thread::spawn(move || forward(results, rank, &to));
        Ok(Self { child, orders: Box::new(orders), output, reader })
    }
}

/// Hands a child's lines on, one at a time, and says when there are no more.
fn forward(reader: impl Read, rank: usize, to: &SyncSender<Heard>) {
    let mut reader = BufReader::new(reader);
    while let Ok(Some(line)) = link::read_line(&mut reader) {
        if to.send((rank, Some(line))).is_err() {
            return;
        }
    }
    _ = to.send((rank, None)); // nobody hears it where the team was ended
}

/// The command in a process group of its own, or in the first rank's, so that what it starts ends with it. Only the
/// first rank waits for the group: two that did would take each other's end from one another.
#[cfg(unix)]
fn contained(mut command: Command, leader: Option<u32>) -> CommandWrap {
    if let Some(leader) = leader.and_then(|leader| i32::try_from(leader).ok()) {
        std::os::unix::process::CommandExt::process_group(&mut command, leader);
        return CommandWrap::from(command);
    }
    let mut wrap = CommandWrap::from(command);
    wrap.wrap(process_wrap::std::ProcessGroup::leader());
    wrap
}

/// The command as it is: on Windows the attempt's job holds all that it starts.
#[cfg(windows)]
fn contained(command: Command, _: Option<u32>) -> CommandWrap {
    CommandWrap::from(command)
}

/// Reads an attempt's own output to its end, keeping the last part.
fn keep(mut stream: impl Read + Send + 'static, output: &Arc<Mutex<Vec<u8>>>, most: usize) -> JoinHandle<()> {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            remember(&output, &buffer[..length], most);
        }
    })
}

fn remember(output: &Mutex<Vec<u8>>, words: &[u8], most: usize) {
    let mut kept = output.lock().unwrap_or_else(PoisonError::into_inner);
    kept.extend_from_slice(words);
    let excess = kept.len().saturating_sub(most);
    kept.drain(..excess);
}

/// A child's first stack is the one that this process is allowed. Where that is without a bound, as in some
/// containers, endless recursion would eat the memory instead of overflowing; 8 MiB are what most systems give.
#[cfg(unix)]
fn usual_stack() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    const USUAL: u64 = 8 << 20;
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_STACK)
        && soft > USUAL
    {
        _ = setrlimit(Resource::RLIMIT_STACK, USUAL, hard); // a limit may always be lowered
    }
}

/// What a program that ended by itself died of.
fn cause_of_death(status: ExitStatus, said: &str) -> String {
    if let Some(line) = said.lines().find(|line| line.starts_with(kernels::bytes::LIMIT_MESSAGE)) {
        return format!("ran past its {line}");
    }
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = match signal {
            4 => "an illegal instruction (SIGILL)",
            6 if said.contains("overflowed its stack") => "a stack overflow",
            6 => "an abort (SIGABRT)",
            7 => "a bus error (SIGBUS)",
            8 => "an arithmetic fault (SIGFPE)",
            9 => "a kill (SIGKILL), as the system sends when memory runs out",
            11 => {
                "a segmentation fault (SIGSEGV); likely cause: an aligned or streaming store at an address that is \
                 not a multiple of its size, or an index past the end of a buffer"
            }
            _ => return format!("ended by signal {signal}"),
        };
        return format!("ended by {name}");
    }
    #[cfg(windows)]
    if let Some(exception) = status.code().and_then(|code| exception(code.cast_unsigned(), said)) {
        return format!("ended by {exception}");
    }
    match status.code() {
        Some(code) => format!("left the process with exit({code}) instead of returning"),
        None => format!("ended: {status}"),
    }
}

/// Characters of a line that are shown of what a program printed.
const SHOWN: usize = 400;

fn with_output(cause: String, said: &str) -> String {
    if said.is_empty() {
        return cause;
    }
    let lines: Vec<String> = said.lines().map(shortened).collect();
    format!("{cause}\nit printed:\n{}", lines.join("\n"))
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(SHOWN) {
        None => line.into(),
        Some((end, _)) => format!("{}... ({} bytes more)", &line[..end], line.len() - end),
    }
}

/// What an exit code says that is one of Windows' own (NTSTATUS values, "[MS-ERREF]", section 2.3.1).
#[cfg(windows)]
fn exception(code: u32, said: &str) -> Option<&'static str> {
    Some(match code {
        0xC000_0005 => "an access violation; likely cause: an index past the end of a buffer",
        0xC000_0006 => "an error of reading a mapped file",
        0xC000_001D => "an illegal instruction",
        0xC000_0094 | 0xC000_0095 => "an arithmetic fault",
        0xC000_0096 => "a privileged instruction",
        0xC000_00FD => "a stack overflow",
        0xC000_0409 if said.contains("overflowed its stack") => "a stack overflow",
        0xC000_0409 => "an abort",
        _ => return None,
    })
}
