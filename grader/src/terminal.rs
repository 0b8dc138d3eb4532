//! The terminal: what is printed, how wide it is, the line that says what is going on.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};

use indicatif::ProgressBar;

use crate::report::paper;

/// A closed pipe (`| head`) is no fault.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
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
    if !std::io::stderr().is_terminal() {
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
