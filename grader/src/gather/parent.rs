//! The grader's side: start a child, read its results, end it when it oversteps, go on behind the fault.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use process_wrap::std::{ChildWrapper, CommandWrap};

use super::child::replay_command;
use super::{CHILD_FLAG, Item, Message, Request};
use crate::scorecard::{Check, Guard, Measurement, Outcome};

/// Everything seen of one attempt at one challenge.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Outcomes in the order of the items.
    pub checks: Vec<Check>,
    /// What the guards saw.
    pub guards: Vec<Guard>,
    /// Numbers by name.
    pub measurements: BTreeMap<String, Measurement>,
    /// What could not be measured, and why.
    pub unmeasured: BTreeMap<String, String>,
    /// What the attempt printed, where its calls are shown.
    pub printed: String,
}

impl Gathered {
    /// A guard that looks at several places is one guard: it ran if it ran anywhere, tripped if anywhere.
    fn add(&mut self, guard: Guard) {
        match self.guards.iter_mut().find(|known| known.name == guard.name) {
            None => self.guards.push(guard),
            Some(known) => {
                known.ran |= guard.ran;
                if guard.tripped && !known.tripped {
                    (known.tripped, known.detail) = (true, guard.detail);
                }
            }
        }
    }
}

/// Which program to start as a child.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub program: PathBuf,
    /// Arguments in front of the hidden flag.
    pub arguments: Vec<OsString>,
}

/// How often a child is looked at when it says nothing.
const POLL: Duration = Duration::from_millis(50);

/// Bytes of an attempt's own output that are kept: its end.
const KEPT_OUTPUT_BYTES: usize = 8 * 1024;

/// The same where its calls are shown, to be read.
const SHOWN_OUTPUT_BYTES: usize = 32 * 1024;

/// Runs all items of `request`, with as many children as it takes. `progress` hears each item begin.
pub(crate) fn gather(
    launch: &Launch,
    request: &Request,
    progress: &dyn Fn(&str),
) -> std::io::Result<Gathered> {
    let mut gathered = Gathered::default();
    let mut rest = request.items.as_slice();
    while !rest.is_empty() {
        let batch = batch(rest);
        let run = Run::new(launch, &Request { items: batch.to_vec(), ..request.clone() })?;
        let done = match run.listen(batch, &mut gathered, progress) {
            Ok(done) => done,
            Err(Fault { item, cause, hang }) => {
                let skipped = if hang { siblings(&batch[item..]) } else { 1 };
                for (i, at_fault) in batch[item..item + skipped].iter().enumerate() {
                    let told = if i == 0 { cause.clone() } else { after(&batch[item], &cause) };
                    blame(&mut gathered, request, at_fault, told);
                }
                item + skipped
            }
        };
        rest = &rest[done..];
    }
    Ok(gathered)
}

/// The items that one child may do: up to the next one that wants a process of its own.
fn batch(items: &[Item]) -> &[Item] {
    if items[0].fresh {
        return &items[..1];
    }
    let end = items.iter().position(|item| item.fresh).unwrap_or(items.len());
    &items[..end]
}

/// How many items from the first on are of the same step: one that hangs is not waited for again.
fn siblings(items: &[Item]) -> usize {
    items.iter().take_while(|item| item.group() == items[0].group()).count()
}

fn after(first: &Item, cause: &str) -> String {
    format!("not run, because {} {cause}", first.name)
}

/// Books a fault on the item that was being worked on.
fn blame(gathered: &mut Gathered, request: &Request, item: &Item, cause: String) {
    let challenge = request.challenge.clone();
    match item.name.split_once('/') {
        Some(("guard", name)) => {
            gathered.add(Guard { challenge, name: name.into(), ran: false, tripped: false, detail: cause });
        }
        Some(("bench" | "watch", _)) => {
            gathered.unmeasured.insert(item.name.clone(), cause);
        }
        _ => gathered.checks.push(Check {
            name: item.name.clone(),
            outcome: Outcome::Wrong,
            detail: cause,
            replay: replay_command(&challenge, &item.name, request.effort.seed),
        }),
    }
}

/// Why a child ended before its list did.
struct Fault {
    item: usize,
    cause: String,
    hang: bool,
}

/// A running child.
struct Run {
    child: Box<dyn ChildWrapper>,
    results: Receiver<Result<Message, String>>, // a line that is no message is an error
    output: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    memory_limit: usize,
    shows_calls: bool,
}

impl Run {
    fn new(launch: &Launch, request: &Request) -> std::io::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        let mut command = Command::new(&launch.program);
        command.args(&launch.arguments).arg(CHILD_FLAG).arg(serde_json::to_string(request)?);
        let (said, says) = std::io::pipe()?; // one for both, so that what is printed keeps its order
        command.stdin(Stdio::from(writer)).stdout(says.try_clone()?).stderr(says);
        #[cfg(unix)]
        usual_stack();
        let child = contained(command).spawn()?;
        let output = Arc::new(Mutex::new(Vec::new()));
        let shows_calls = request.effort.shows_calls;
        let most = if shows_calls { SHOWN_OUTPUT_BYTES } else { KEPT_OUTPUT_BYTES };
        let printing = keep(said, &output, most);
        let (send, results) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).map_err(|_| line);
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, results, output, reader: printing, memory_limit: request.memory_limit, shows_calls })
    }

    /// Collects results until the list is done or the child gives way, and says how many items are done; or
    /// what went wrong with which item.
    fn listen(self, items: &[Item], into: &mut Gathered, progress: &dyn Fn(&str)) -> Result<usize, Fault> {
        let mut item = 0;
        let mut deadline = Instant::now() + Duration::from_secs(30); // for the program to start
        loop {
            let message = match self.results.recv_timeout(POLL) {
                Ok(Err(line)) => {
                    let cause = format!("wrote {line:?} into the pipe of the grader's results");
                    return Err(self.stopped(item, cause, false));
                }
                Ok(Ok(message)) => Ok(message),
                Err(error) => Err(error),
            };
            match message {
                Ok(Message::Begin(i)) if i < items.len() => {
                    item = i;
                    deadline = Instant::now() + items[i].limit;
                    progress(&items[i].name);
                }
                Ok(Message::Check(check)) => into.checks.push(check),
                Ok(Message::Guard(guard)) => into.add(guard),
                Ok(Message::Measured(name, value)) => _ = into.measurements.insert(name, value),
                Ok(Message::Unmeasured(name, reason)) => _ = into.unmeasured.insert(name, reason),
                Ok(Message::End) => {
                    if self.shows_calls {
                        into.printed.push_str(&self.said());
                    }
                    return Ok(items.len()); // ended by `drop`: an exit can hang, too
                }
                Ok(Message::GiveWay) => return Ok(item + 1),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended(item, deadline)),
                Ok(Message::Begin(_)) | Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() > deadline {
                let cause = format!("ran past its time limit of {} s", items[item].limit.as_secs());
                return Err(self.stopped(item, cause, true));
            }
            if let Some(bytes) = resident_bytes(self.child.id()).filter(|bytes| *bytes > self.memory_limit) {
                let cause = format!(
                    "ran past its memory limit: {bytes} bytes resident, {} allowed",
                    self.memory_limit
                );
                return Err(self.stopped(item, cause, false));
            }
        }
    }

    /// The child closed its pipe by itself, as its end does. One that lives on is ended in time.
    fn ended(mut self, item: usize, deadline: Instant) -> Fault {
        let status = loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL / 10),
                status => break status,
            }
        };
        let said = self.said();
        let cause = match status {
            Ok(Some(status)) => cause_of_death(status, &said),
            Ok(None) => "closed the pipe of the grader's results and ran past its time limit".into(),
            Err(error) => format!("was lost: {error}"),
        };
        let is_told = |line: &&str| !line.starts_with(kernels::bytes::LIMIT_MESSAGE);
        let said: Vec<&str> = said.lines().filter(is_told).collect();
        Fault { item, cause: with_output(cause, said.join("\n").trim()), hang: false }
    }

    fn stopped(mut self, item: usize, cause: String, hang: bool) -> Fault {
        let _ = self.child.kill();
        let said = self.said();
        Fault { item, cause: with_output(cause, &said), hang }
    }

    /// Its last words. They may still be on their way when it is gone, but not for long; what it started and
    /// left behind may hold the pipe open for ever.
    fn said(&self) -> String {
        let patience = Instant::now() + Duration::from_millis(500);
        while Instant::now() < patience && !self.reader.is_finished() {
            std::thread::sleep(POLL / 10);
        }
        let output = self.output.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        String::from_utf8_lossy(&output).trim().to_owned()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill(); // no attempt outlives its verdict
    }
}

/// The command in a process group or job of its own, so that what it starts ends with it.
fn contained(command: Command) -> CommandWrap {
    let mut wrap = CommandWrap::from(command);
    #[cfg(unix)]
    wrap.wrap(process_wrap::std::ProcessGroup::leader());
    #[cfg(windows)]
    wrap.wrap(process_wrap::std::JobObject);
    wrap
}

/// Reads an attempt's own output to its end, keeping the last part.
fn keep(mut stream: impl Read + Send + 'static, output: &Arc<Mutex<Vec<u8>>>, most: usize) -> JoinHandle<()> {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            let mut kept = output.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            kept.extend_from_slice(&buffer[..length]);
            let excess = kept.len().saturating_sub(most);
            kept.drain(..excess);
        }
    })
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
    match status.code() {
        Some(code) => format!("left the process with exit({code}) instead of returning"),
        None => format!("ended: {status}"),
    }
}

fn with_output(cause: String, said: &str) -> String {
    if said.is_empty() { cause } else { format!("{cause}\nit printed:\n{said}") }
}

#[cfg(target_os = "linux")]
fn resident_bytes(id: u32) -> Option<usize> {
    let fields = std::fs::read_to_string(format!("/proc/{id}/statm")).ok()?;
    Some(fields.split_whitespace().nth(1)?.parse::<usize>().ok()? * 4096)
}

#[cfg(not(target_os = "linux"))]
fn resident_bytes(_: u32) -> Option<usize> {
    None // the counting allocator's limit still holds there
}
