//! The terminal: what is printed, how wide it is, the line that says what is going on.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;
use reference::clean::clean;

use crate::report::paper;

/// Whether an error of standard output was reported.
static HAS_LOST_OUTPUT: AtomicBool = AtomicBool::new(false);
/// Whether any output could not be written, for whatever reason.
static IS_UNREAD: AtomicBool = AtomicBool::new(false);

/// Prints on standard output. All of the grader's output goes through here or [`output`].
///
/// The first error is reported at once and decides the exit code ([`has_lost_output`]). A closed pipe (`| head`) is not
/// an error, but nobody reads on ([`is_unread`]).
pub(crate) fn print(text: &str) {
    let mut output = output().lock();
    note_output(output.write_all(text.as_bytes()).and_then(|()| output.flush()));
}

/// Returns standard output, for a caller that handles its errors and passes them to [`note_output`].
pub(crate) fn output() -> io::Stdout {
    io::stdout()
}

/// Reports the first error of standard output.
pub(crate) fn note_output(written: io::Result<()>) {
    let Err(error) = written else { return };
    IS_UNREAD.store(true, Ordering::Relaxed);
    if error.kind() != ErrorKind::BrokenPipe && !HAS_LOST_OUTPUT.swap(true, Ordering::Relaxed) {
        warn(&format!("standard output cannot be written: {error}"));
    }
}

/// Returns true if some of the output could not be written.
pub(crate) fn has_lost_output() -> bool {
    HAS_LOST_OUTPUT.load(Ordering::Relaxed)
}

/// Returns true if nobody can read what is printed from now on: it could not be written, or the pipe is closed.
pub(crate) fn is_unread() -> bool {
    IS_UNREAD.load(Ordering::Relaxed)
}

/// Prints a message on standard error, without control characters that it may quote from a file. A message that cannot
/// be written is lost.
pub(crate) fn warn(message: &str) {
    let _ = writeln!(io::stderr(), "warpbook: {}", clean(message));
}

/// A lead and a text after it, wrapped at words; further lines begin below the text's first word.
pub(crate) fn hanging(lead: &str, text: &str) -> String {
    paper::hanging(lead, text, paper::columns(lead), width())
}

/// Lines of a text, long ones wrapped at words below their own indentation.
pub(crate) fn wrapped(text: &str) -> String {
    let line = |line: &str| {
        let own = line.len() - line.trim_start().len();
        if paper::columns(line) <= width() {
            format!("{line}\n")
        } else {
            hanging(&line[..own], &line[own..])
        }
    };
    text.lines().map(line).collect()
}

/// Columns of the terminal, 80 elsewhere.
pub(crate) fn width() -> usize {
    match console::Term::stdout().size_checked() {
        Some((_, columns)) => usize::from(columns).clamp(60, 100),
        None => 80,
    }
}

/// What a run says while it works: a line on a terminal, nothing elsewhere. The line is gone when the run is:
/// an empty message ends it.
pub(crate) fn progress() -> Box<dyn Fn(&str)> {
    if !io::stderr().is_terminal() {
        return Box::new(|_| {});
    }
    let line: RefCell<Option<ProgressBar>> = RefCell::new(None);
    Box::new(move |item| {
        if item.is_empty() {
            if let Some(spinner) = line.take() {
                spinner.finish_and_clear();
            }
            return;
        }
        let mut line = line.borrow_mut();
        let spinner = line.get_or_insert_with(|| {
            let spinner = ProgressBar::new_spinner();
            spinner.enable_steady_tick(std::time::Duration::from_millis(120));
            spinner
        });
        spinner.set_message(item.chars().take(width() - 4).collect::<String>()); // one line, whatever it names
    })
}
