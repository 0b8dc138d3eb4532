//! The child's side: work through the items, catch what can be caught, report each result at once.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use super::{Kind, Message, Opening, Order, Request, Said, link};
use crate::calls::replay_command;
use crate::oracles::{self, Found};
use crate::scorecard::{Check, Guard, Measurement, Outcome};
use crate::terminal::warn;
use crate::unwound::{self, Unwound, caught};

/// A child's connection to the grader, and what it was asked.
pub(crate) struct Child {
    pub request: Request,
    /// The names of the items that this process may be asked for.
    pub items: Vec<String>,
    /// Which of the request's ranks this process is.
    pub rank: usize,
    results: link::Results,
    order: Order,
    recycle: bool,
}

/// Bytes of a text in one message; as JSON it has at most six times as many.
const PIECE_BYTES: usize = link::LINE_BYTES / 8;

/// Works through what the grader orders; `work` does one item.
pub(crate) fn run(work: impl Fn(&mut Child, &str)) -> ExitCode {
    let Ok((mut orders, results)) = link::private() else {
        warn("the child process was started without its connection to the grader");
        return ExitCode::from(6);
    };
    let Some(opening) = next::<Opening>(&mut orders) else {
        warn("the request to the child process is not readable");
        return ExitCode::from(6);
    };
    let Opening { request, rank, items, nonce } = opening;
    kernels::bytes::set_limit(request.memory_limit);
    std::panic::set_hook(Box::new(|info| remember(&info.to_string())));
    end_with_parent();
    if request.effort.shows_calls {
        crate::calls::show();
    }
    oracles::grade(request.source);
    let mut child = Child { request, items, rank, results, order: Order { item: 0, nonce }, recycle: false };
    child.send(Message::Ready);
    while let Some(order) = next::<Order>(&mut orders) {
        let Some(name) = child.items.get(order.item).cloned() else { break };
        child.order = order;
        _ = oracles::take();
        work(&mut child, &name);
        child.trip();
        if child.recycle {
            child.send(Message::Recycle);
            break;
        }
        child.send(Message::Done);
    }
    ExitCode::SUCCESS
}

/// The next line from the grader; `None` if it wants no more.
fn next<T: serde::de::DeserializeOwned>(orders: &mut impl BufRead) -> Option<T> {
    let mut line = String::new();
    orders.read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// An attempt in an endless loop must not outlive a grader that was interrupted, nor must what it started: all of them
/// are in a process group of their own.
#[cfg(unix)]
fn end_with_parent() {
    use nix::sys::signal::{Signal, killpg};
    let parent = std::os::unix::process::parent_id();
    std::thread::spawn(move || {
        while std::os::unix::process::parent_id() == parent {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        _ = killpg(nix::unistd::getpgrp(), Signal::SIGKILL);
        std::process::exit(124);
    });
}

#[cfg(windows)]
fn end_with_parent() {} // the parent has the only handle to this process's job, which ends with it

fn remember(message: &str) {
    let message = as_the_reader_knows_it(message);
    let mut last = unwound::last();
    last.get_or_insert(message);
}

/// Until it is dropped, a panic is reported with what was asked for when it came.
pub(crate) struct Asked<F: Fn() -> String>(pub F);

impl<F: Fn() -> String> Drop for Asked<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut last = unwound::last();
            let said = last.take().unwrap_or_else(|| "panicked".into());
            *last = Some(format!("{said}\nwhen asked for {}", (self.0)()));
        }
    }
}

impl Child {
    /// Says something of the item in progress. Of a rank other than the first only what went wrong is reported.
    fn send(&mut self, message: Message) {
        let Some(message) = (if self.rank == 0 { Some(message) } else { beside(message) }) else { return };
        let Order { item, nonce } = self.order.clone();
        let mut line = serde_json::to_vec(&Said { item, nonce, message }).unwrap_or_default();
        line.push(b'\n');
        if self.results.write_all(&line).is_err() {
            std::process::exit(124); // the grader is gone
        }
    }

    /// Reports a check: `Ok` passes, `Err` is wrong with its report; a hole is not attempted.
    pub fn check(&mut self, name: &str, run: impl FnOnce() -> Result<(), String>) {
        let (outcome, detail) = match caught(run) {
            Ok(Ok(())) => (Outcome::Passed, String::new()),
            Ok(Err(detail)) => (Outcome::Wrong, detail),
            Err(Unwound::Hole(hole)) => (Outcome::NotAttempted, hole),
            Err(Unwound::Panic(message)) => (Outcome::Wrong, message),
        };
        self.outcome(name, outcome, &detail);
    }

    /// Reports a check whose outcome is known. One in which a step called an oracle is wrong, whatever it answered.
    pub fn outcome(&mut self, name: &str, outcome: Outcome, detail: &str) {
        let called = self.trip();
        let (outcome, detail) =
            called.as_ref().map_or((outcome, detail), |found| (Outcome::Wrong, found.message.as_str()));
        let replay = replay_command(&self.request.challenge, name, self.request.effort.seed);
        let detail = as_the_reader_knows_it(detail);
        self.send(Message::Check(Check { name: name.into(), outcome, detail, replay }));
    }

    /// Reports the guard on oracles as tripped if a step called one since the item began.
    fn trip(&mut self) -> Option<Found> {
        let found = oracles::take()?;
        if let Some(guard) = found.guard_in(&self.request.challenge) {
            self.guard(guard, || Ok(Some(found.message.clone())));
        }
        Some(found)
    }

    /// Reports an item that this machine cannot do.
    pub fn impossible(&mut self, name: &str, reason: &str) {
        match Kind::of(name) {
            Kind::Guard(guard) => self.guard(guard, || Err(reason.into())),
            Kind::Number => self.unmeasured(name, reason),
            Kind::Check => self.outcome(name, Outcome::NotMeasured, reason),
        }
    }

    /// Whether this process is of no more use after the present item: the next one is done by another.
    pub fn ends_if(&mut self, broken: bool) {
        self.recycle |= broken;
    }

    /// Reports a guard: `Ok(None)` saw nothing, `Ok(Some)` caught something, `Err` could not run.
    pub fn guard(&mut self, name: &str, run: impl FnOnce() -> Result<Option<String>, String>) {
        let result = caught(run).unwrap_or_else(|unwound| {
            Err(match unwound {
                Unwound::Hole(hole) => format!("{NOT_WRITTEN}{hole}"),
                Unwound::Panic(message) => message,
            })
        });
        let (ran, tripped, detail) = match result {
            Ok(None) => (true, false, String::new()),
            Ok(Some(detail)) => (true, true, as_the_reader_knows_it(&detail)),
            Err(reason) => (false, false, as_the_reader_knows_it(&reason)),
        };
        let challenge = self.request.challenge.clone();
        self.send(Message::Guard(Guard { challenge, name: name.into(), ran, tripped, detail }));
    }

    /// Reports a number; not one of a run in which a step called an oracle.
    pub fn measured(&mut self, name: &str, measurement: Measurement) {
        if let Some(found) = oracles::peek() {
            return self.unmeasured(name, &found.message);
        }
        self.send(Message::Measured(name.into(), measurement));
    }

    /// Reports a text, in pieces that fit on a line.
    pub fn text(&mut self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
            self.send(Message::Text(piece.into()));
            rest = after;
        }
    }

    /// Reports that something could not be measured.
    pub fn unmeasured(&mut self, name: &str, reason: &str) {
        self.send(Message::Unmeasured(name.into(), as_the_reader_knows_it(reason)));
    }
}

/// What is said of a rank that does not report.
fn beside(message: Message) -> Option<Message> {
    match message {
        Message::Check(Check { outcome: Outcome::Wrong, detail, .. }) => Some(Message::Failed(detail)),
        Message::Guard(Guard { tripped: true, detail, .. } | Guard { ran: false, detail, .. })
            if !detail.starts_with(NOT_WRITTEN) =>
        {
            Some(Message::Failed(detail))
        }
        Message::Check(_) | Message::Guard(_) | Message::Measured(..) => None,
        Message::Unmeasured(..) | Message::Text(_) => None,
        Message::Ready | Message::Done | Message::Recycle | Message::Failed(_) => Some(message),
    }
}

/// How the reason begins of a guard that reached a hole.
const NOT_WRITTEN: &str = "not written yet: ";

/// A path as the compiler was given it, without its detours.
pub(crate) fn as_the_reader_knows_it(words: &str) -> String {
    let detour = ["grader", "attempts", "src", "..", "..", "..", ""];
    words.replace(&detour.join("/"), "").replace(&detour.join("\\"), "")
}
