//! The grader's side: start a child, read its results, end it when it oversteps, go on behind the fault.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use process_wrap::std::{ChildWrapper, CommandWrap};

use super::child::replay_command;
use super::ledger::Ledger;
use super::link::{self, Line};
use super::tree::{MOST_PROCESSES, Tree};
use super::{CHILD_FLAG, Item, Message, Opening, Order, Request, Said};
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
    /// The texts of items by the items' names.
    pub texts: BTreeMap<String, String>,
    /// What the attempt printed, where its calls are shown.
    pub printed: String,
}

impl Gathered {
    /// A guard that looks at several places is one guard: it tripped if it tripped anywhere, and ran if it ran
    /// everywhere.
    pub(super) fn add(&mut self, guard: Guard) {
        match self.guards.iter_mut().find(|known| known.name == guard.name) {
            None => self.guards.push(guard),
            Some(known) => {
                let is_worse =
                    (guard.tripped && !known.tripped) || (!guard.ran && known.ran && !known.tripped);
                if is_worse {
                    known.detail = guard.detail;
                }
                known.tripped |= guard.tripped;
                known.ran &= guard.ran;
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

/// How often its memory and its processes are counted: that reads the whole table of processes.
const COUNT: Duration = Duration::from_millis(400);

/// What a program may take to start.
const STARTUP: Duration = Duration::from_mins(1);

/// How long a child that closed its connection may take to end.
const LAST_BREATH: Duration = Duration::from_secs(2);

/// Lines that may wait to be read; a child that writes more waits.
const WAITING_LINES: usize = 16;

/// Bytes of an attempt's own output that are kept: its end.
const KEPT_OUTPUT_BYTES: usize = 8 * 1024;

/// The same where its calls are shown, to be read.
const SHOWN_OUTPUT_BYTES: usize = 32 * 1024;

/// One attempt at a time: what it leaves behind is known by having appeared while it ran.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs all items, with as many children as it takes. `progress` hears each item begin.
pub(crate) fn gather(
    launch: &Launch,
    request: &Request,
    items: &[Item],
    progress: &dyn Fn(&str),
) -> std::io::Result<Gathered> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut gathered = Gathered::default();
    let mut rest = items;
    while !rest.is_empty() {
        let batch = batch(rest);
        let run = Run::new(launch, request)?;
        let done = match run.work(request, batch, &mut gathered, progress) {
            Ok(done) => done,
            Err(Fault { item, cause, hang }) => {
                let skipped = if hang { siblings(&batch[item..]) } else { 1 };
                for (i, at_fault) in batch[item..item + skipped].iter().enumerate() {
                    let told = if i == 0 { cause.clone() } else { after(&batch[item], &cause) };
                    blame(&mut gathered, request, at_fault, told, hang);
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

/// Books a fault on the item that was being worked on. An attempt that leaves a timed case has kept the guards
/// of it from looking; one that is slow has not, for a busy machine makes everyone slow.
fn blame(gathered: &mut Gathered, request: &Request, item: &Item, cause: String, hang: bool) {
    let challenge = &request.challenge;
    let blind = |name: &str| {
        let (challenge, name, detail) = (challenge.clone(), name.to_owned(), cause.clone());
        Guard { challenge, name, ran: false, tripped: false, detail }
    };
    if let Some(name) = item.guard() {
        return gathered.add(blind(name));
    }
    if !item.is_check() {
        item.guards.iter().filter(|_| !hang).for_each(|name| gathered.add(blind(name)));
        gathered.unmeasured.insert(item.name.clone(), cause);
        return;
    }
    gathered.checks.push(Check {
        name: item.name.clone(),
        outcome: Outcome::Wrong,
        detail: cause,
        replay: replay_command(challenge, &item.name, request.effort.seed),
    });
}

/// Why a child ended before its list did.
struct Fault {
    item: usize,
    cause: String,
    hang: bool,
}

/// What keeps an item from its end.
enum Stop {
    /// The child is gone, or closed its connection.
    Gone,
    /// It said what it must not say, or holds more than it may.
    Refused(String),
    /// Its time is over.
    Late(Duration),
}

/// A running child.
struct Run {
    child: Box<dyn ChildWrapper>,
    orders: Box<dyn Write>,
    results: Receiver<Line>,
    output: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    memory_limit: usize,
    shows_calls: bool,
    counted: Instant,
    tree: Tree, // the last to be dropped: what is left when the child is gone
}

impl Run {
    fn new(launch: &Launch, request: &Request) -> std::io::Result<Self> {
        let mut tree = Tree::watch();
        let mut command = Command::new(&launch.program);
        command.args(&launch.arguments).arg(CHILD_FLAG);
        let link = link::connect(&mut command)?;
        #[cfg(unix)]
        usual_stack();
        let mut child = contained(command).spawn()?;
        tree.root(child.id());
        let (orders, results_from, printed) = link.split(child.as_mut())?;
        let output = Arc::new(Mutex::new(Vec::new()));
        let Request { memory_limit, effort, .. } = request;
        let most = if effort.shows_calls { SHOWN_OUTPUT_BYTES } else { KEPT_OUTPUT_BYTES };
        let reader = keep(printed, &output, most);
        let (send, results) = sync_channel(WAITING_LINES);
        let beside = Arc::clone(&output);
        std::thread::spawn(move || forward(results_from, &send, &beside, most));
        let (orders, memory_limit, shows_calls) = (Box::new(orders), *memory_limit, effort.shows_calls);
        let counted = Instant::now();
        Ok(Self { child, orders, results, output, reader, memory_limit, shows_calls, counted, tree })
    }

    /// Has items done until the list is at its end or the child can do no more, and says how many are done; or
    /// what went wrong with which item.
    fn work(
        mut self,
        request: &Request,
        items: &[Item],
        into: &mut Gathered,
        progress: &dyn Fn(&str),
    ) -> Result<usize, Fault> {
        if let Err(stop) = self.open(request, items) {
            return Err(self.fault(0, stop));
        }
        for (i, item) in items.iter().enumerate() {
            progress(&item.name);
            let mut ledger = Ledger::new(&request.challenge, item);
            match self.one(i, item, &mut ledger) {
                Ok(recycle) => {
                    ledger.close(into);
                    if recycle {
                        return Ok(i + 1);
                    }
                }
                Err(stop) => {
                    ledger.break_off(into);
                    return Err(self.fault(i, stop));
                }
            }
        }
        if self.shows_calls {
            into.printed.push_str(&self.said());
        }
        Ok(items.len()) // the child is ended by `drop`: an exit can hang, too
    }

    /// Says what there will be to do, and waits until the program is there to do it.
    fn open(&mut self, request: &Request, items: &[Item]) -> Result<(), Stop> {
        let order = Order { item: 0, nonce: nonce() };
        let items = items.iter().map(|item| item.name.clone()).collect();
        let opening = Opening { request: request.clone(), items, nonce: order.nonce.clone() };
        self.tell(&opening)?;
        match self.hear(&order, Instant::now() + STARTUP, STARTUP)? {
            Message::Ready => Ok(()),
            _ => Err(Stop::Refused("reported a result before it was asked for one".into())),
        }
    }

    /// Has one item done; whether the process is of no use after it.
    fn one(&mut self, i: usize, item: &Item, ledger: &mut Ledger<'_>) -> Result<bool, Stop> {
        let order = Order { item: i, nonce: nonce() };
        self.tell(&order)?;
        let deadline = Instant::now() + item.limit;
        loop {
            let recycle = match self.hear(&order, deadline, item.limit)? {
                Message::Done => false,
                Message::Recycle => true,
                result => {
                    ledger.admit(result).map_err(Stop::Refused)?;
                    continue;
                }
            };
            return ledger.lacks().map_or(Ok(recycle), |lack| Err(Stop::Refused(lack)));
        }
    }

    fn tell(&mut self, line: &impl serde::Serialize) -> Result<(), Stop> {
        link::write_line(&mut self.orders, line).map_err(|_| Stop::Gone)
    }

    /// The next message on the item in progress.
    fn hear(&mut self, order: &Order, deadline: Instant, limit: Duration) -> Result<Message, Stop> {
        loop {
            if Instant::now() > deadline {
                return Err(Stop::Late(limit));
            }
            if self.counted.elapsed() > COUNT {
                self.count()?;
            }
            match self.results.recv_timeout(POLL) {
                Ok(line) => return understood(line, order).map_err(Stop::Refused),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Stop::Gone),
            }
        }
    }

    /// Whether the attempt and all that it started hold no more than they may.
    fn count(&mut self) -> Result<(), Stop> {
        let held = self.tree.held();
        self.counted = Instant::now();
        if held.bytes > self.memory_limit {
            let (bytes, limit) = (held.bytes, self.memory_limit);
            let told = format!("ran past its memory limit: {bytes} bytes resident, {limit} allowed");
            return Err(Stop::Refused(told));
        }
        if held.processes > MOST_PROCESSES {
            let told = format!("has {} processes, {MOST_PROCESSES} are allowed", held.processes);
            return Err(Stop::Refused(told));
        }
        Ok(())
    }

    fn fault(self, item: usize, stop: Stop) -> Fault {
        match stop {
            Stop::Gone => self.ended(item),
            Stop::Refused(cause) => self.stopped(item, cause, false),
            Stop::Late(limit) => {
                self.stopped(item, format!("ran past its time limit of {} s", limit.as_secs()), true)
            }
        }
    }

    /// The child closed its connection by itself, as its end does. One that lives on is ended in time.
    fn ended(mut self, item: usize) -> Fault {
        let deadline = Instant::now() + LAST_BREATH;
        let status = loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL / 10),
                status => break status,
            }
        };
        let said = self.said();
        let cause = match status {
            Ok(Some(status)) => cause_of_death(status, &said),
            Ok(None) => "closed the pipe of the grader's results".into(),
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
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&output).trim().to_owned()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill(); // no attempt outlives its verdict
    }
}

/// A message on the item in progress, or what was written in its place.
fn understood(line: Line, order: &Order) -> Result<Message, String> {
    let line = match line {
        Line::Whole(line) => line,
        Line::TooLong => {
            let most = link::LINE_BYTES;
            return Err(format!(
                "wrote a line of more than {most} bytes into the pipe of the grader's results"
            ));
        }
    };
    let Ok(said) = serde_json::from_slice::<Said>(&line) else {
        let begin: String = String::from_utf8_lossy(&line).chars().take(200).collect();
        return Err(format!("wrote {begin:?} into the pipe of the grader's results"));
    };
    if said.item != order.item || said.nonce != order.nonce {
        return Err(
            "wrote a result of its own into the pipe of the grader's results: it has not the nonce of the \
                    item in progress"
                .into(),
        );
    }
    Ok(said.message)
}

/// Hands a child's lines on, one at a time.
fn forward(reader: impl Read, to: &SyncSender<Line>, printed: &Mutex<Vec<u8>>, most: usize) {
    let mut reader = BufReader::new(reader);
    while let Ok(Some(line)) = link::read_line(&mut reader) {
        match line {
            // there the attempt's own words come the same way
            Line::Whole(words) if cfg!(windows) && serde_json::from_slice::<Said>(&words).is_err() => {
                remember(printed, &[&words, b"\n".as_slice()].concat(), most);
            }
            line => {
                if to.send(line).is_err() {
                    return;
                }
            }
        }
    }
}

/// 128 bits that nobody can guess.
fn nonce() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    format!("{:032x}", u128::from_ne_bytes(bytes))
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
    match status.code() {
        Some(code) => format!("left the process with exit({code}) instead of returning"),
        None => format!("ended: {status}"),
    }
}

fn with_output(cause: String, said: &str) -> String {
    if said.is_empty() { cause } else { format!("{cause}\nit printed:\n{said}") }
}

/// Children that speak the protocol wrongly, as shell scripts: their standard input is the connection.
#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::gather::{Effort, Source};

    /// Reads an order into `$i` and `$n`, and says something about it.
    const SPEAKS: &str = r#"
        hear() { read -r l || exit 0; n=${l##*nonce\":\"}; n=${n%\"\}}; i=${l##*\"item\":}; i=${i%%,*}; }
        say() { echo "{\"item\":$i,\"nonce\":\"$n\",\"message\":$1}" >&0; }
        check() { say "{\"Check\":{\"name\":\"$1\",\"outcome\":\"passed\",\"detail\":\"\",\"replay\":\"\"}}"; }
        number() { say "{\"Measured\":[\"$1\",{\"value\":1.0,\"unit\":\"x\",\"interval\":null,\"samples\":[]}]}"; }
        hear; i=0; say '"Ready"'
    "#;

    /// What is gathered of a script that is asked for some items; each may take a second.
    fn gathered(script: &str, items: &[Item]) -> Gathered {
        let effort = Effort { seed: 1, quick: true, ..Effort::default() };
        let request = Request {
            challenge: "nf4".into(),
            source: Source::Own,
            effort,
            memory_limit: 256 << 20,
            on_card: false,
            ordinal: 0,
            text: None,
            graph: None,
        };
        let script = format!("{SPEAKS}\n{script}");
        let launch = Launch { program: "sh".into(), arguments: vec!["-c".into(), script.into()] };
        gather(&launch, &request, items, &|_| ()).expect("there is a shell")
    }

    fn steps() -> [Item; 2] {
        ["A.1/0", "A.2/1"].map(|name| Item::new(name, 1))
    }

    /// Every step is wrong, for this reason.
    fn each_is_wrong(script: &str, reason: &str) {
        let checks = gathered(script, &steps()).checks;
        assert_eq!(checks.len(), 2, "{script}");
        for check in checks {
            assert_eq!(check.outcome, Outcome::Wrong, "{script}");
            assert!(check.detail.contains(reason), "{script}: {}", check.detail);
        }
    }

    #[test]
    fn results_in_order_are_taken_down() {
        let seen =
            gathered("hear; check A.1/0; say '\"Done\"'; hear; check A.2/1; say '\"Recycle\"'", &steps());
        let names: Vec<_> = seen.checks.iter().map(|check| (check.name.as_str(), check.outcome)).collect();
        assert_eq!(names, [("A.1/0", Outcome::Passed), ("A.2/1", Outcome::Passed)]);
    }

    #[test]
    fn an_end_without_results_is_the_items_fault() {
        each_is_wrong("hear; say '\"Done\"'; hear; say '\"Done\"'", " without its outcome");
        each_is_wrong("hear; say '\"Recycle\"'", " without its outcome");
        each_is_wrong("hear; exit 0", "left the process with exit(0)");
        each_is_wrong("hear; check A.9/0", "which is none of A.");
    }

    #[test]
    fn only_the_nonce_of_the_item_in_progress_counts() {
        each_is_wrong("hear; n=guessed; check A.1/0", "has not the nonce of the item in progress");
        each_is_wrong("hear; i=7; check A.1/0", "has not the nonce of the item in progress");
        each_is_wrong("check A.1/0; hear", "has not the nonce of the item in progress");
        let early = "hear; check A.1/0; say '\"Done\"'; i=1; check A.2/1; say '\"Done\"'; hear; sleep 9";
        let checks = gathered(early, &steps()).checks;
        assert_eq!((checks[0].outcome, checks[1].outcome), (Outcome::Passed, Outcome::Wrong), "{checks:#?}");
    }

    #[test]
    fn lines_and_messages_are_bounded() {
        each_is_wrong("hear; head -c 2000000000 /dev/zero >&0", "wrote a line of more than 262144 bytes");
        each_is_wrong("hear; echo begin >&0", "wrote \"begin\" into the pipe of the grader's results");
        let bench =
            [Item { limit: Duration::from_secs(20), ..Item::new("bench/x", 1) }.measuring(&["nf4.*"])];
        let seen = gathered("hear; while :; do j=$((j+1)); number nf4.$j; done", &bench);
        assert_eq!(seen.unmeasured["bench/x"], "reported more than 2000 results");
        assert!(seen.measurements.is_empty(), "nothing of a broken item counts");
    }

    #[test]
    fn an_item_has_one_deadline_whatever_is_said() {
        let bench = [Item::new("bench/x", 1).measuring(&["nf4.*"]).guarded(&["wrong answers"])];
        let seen = gathered("hear; while :; do j=$((j+1)); number nf4.$j; sleep 0.2; done", &bench);
        assert_eq!(seen.unmeasured["bench/x"], "ran past its time limit of 1 s");
        assert!(seen.guards.is_empty(), "a slow machine accuses nobody");
        let seen = gathered("hear; exit 0", &bench);
        assert!(seen.guards.iter().all(|guard| !guard.ran) && seen.guards.len() == 1, "{:?}", seen.guards);
    }

    #[test]
    fn what_an_attempt_started_ends_with_it() {
        let folder = tempfile::tempdir().expect("a folder for a number");
        let file = folder.path().join("id");
        let script = format!(
            "hear; (setsid sh -c 'echo $$ > {}; exec sleep 1000' <&- >/dev/null 2>&1 &); sleep 0.3; check A.1/0; \
             say '\"Done\"'",
            file.display()
        );
        let checks = gathered(&script, &steps()[..1]).checks;
        assert_eq!(checks[0].outcome, Outcome::Passed, "{checks:#?}");
        let id = std::fs::read_to_string(file).expect("the script wrote it");
        assert!(!std::path::Path::new(&format!("/proc/{}", id.trim())).exists(), "process {id} lives on");
    }

    #[test]
    fn what_an_attempt_started_counts_as_its_own() {
        let large = "(setsid sh -c 'x=$(head -c 500000000 /dev/zero | tr \"\\0\" x); sleep 9' &)";
        let many =
            "for j in 1 2 3 4 5 6 7 8 9; do for k in 1 2 3 4 5 6 7 8; do (setsid sleep 9 &); done; done";
        for (script, told) in [(large, "ran past its memory limit"), (many, " processes, 64 are allowed")] {
            let item = [Item::new("A.1/0", 20)];
            let checks =
                gathered(&format!("hear; {script}; sleep 9; check A.1/0; say '\"Done\"'"), &item).checks;
            assert!(checks[0].detail.contains(told), "{}", checks[0].detail);
        }
    }
}
