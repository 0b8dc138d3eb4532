//! `reset`: an exercise, or one step of it, as it was in the beginning. The reader's text is kept aside first, always.

use std::fs::{self, File};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use reference::atomic_write;

use crate::course::Course;
use crate::date;
use crate::options::Failure;
use crate::progress::Progress;
use crate::stub;
use crate::terminal::print;
use crate::workbook::{Workbook, folder};

/// Whether the reader has to agree before a whole file is written afresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    /// It was given: by `--yes`, or by a second key of `watch`.
    Given,
    /// It is asked for where there is work to lose.
    Asked,
}

/// Derives a step, or the whole exercise, from the solution after a dated backup.
pub(crate) fn reset(course: &Course, step: Option<&str>, consent: Consent) -> Result<u8, Failure> {
    let workbook = Workbook::find().map_err(Failure::Usage)?;
    let path = workbook.root().join(course.exercise());
    let shown = course.exercise().display().to_string();
    let old = read(&path)?;
    let fresh = fresh(course, step, old.as_deref())?;
    if old.as_deref() == Some(fresh.as_bytes()) {
        print(&format!("{}{shown} is as it was in the beginning\n", of_step(step)));
        return Ok(0);
    }
    if let Some(old) = &old {
        if step.is_none() && consent == Consent::Asked && !agreed(course, &shown)? {
            print("nothing was changed\n");
            return Ok(0);
        }
        let backup = keep(&folder(&workbook).join("backups"), course, old)
            .map_err(|error| Failure::Fault(format!("no backup, so nothing was changed: {error}")))?;
        print(&format!("kept your text as {}\n", backup.display()));
    }
    atomic_write::write(&path, fresh.as_bytes())
        .map_err(|error| Failure::Fault(format!("{} cannot be written: {error}", path.display())))?;
    forget_hints(&workbook, course, step);
    print(&format!("wrote {}{shown}\n", of_step(step)));
    Ok(0)
}

fn of_step(step: Option<&str>) -> String {
    step.map_or_else(String::new, |step| format!("{step} in "))
}

/// The file as it is; `None` if there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::Fault(format!("{} cannot be read: {error}", path.display()))),
    }
}

/// The text that is to be written.
fn fresh(course: &Course, step: Option<&str>, old: Option<&[u8]>) -> Result<String, Failure> {
    let (Some(step), Some(old)) = (step, old) else {
        return stub::derive(course.solution(), course.language).map_err(Failure::Fault);
    };
    let whole = || format!("; `cargo grader reset {}` writes the whole file afresh", course.name);
    let text = std::str::from_utf8(old).map_err(|error| {
        Failure::Usage(format!("expected UTF-8 in {}: {error}{}", course.file(), whole()))
    })?;
    stub::restore(text, course.solution(), course.language, step)
        .map_err(|reason| Failure::Usage(format!("{step} cannot be reset alone: {reason}{}", whole())))
}

/// Asks on a terminal; elsewhere only `--yes` agrees.
fn agreed(course: &Course, shown: &str) -> Result<bool, Failure> {
    let (input, name) = (std::io::stdin(), course.name);
    if !(input.is_terminal() && std::io::stdout().is_terminal()) {
        return Err(Failure::Usage(format!(
            "{shown} holds your work: `reset {name} --yes` writes all of it afresh (a copy is kept), `reset {}.N` one step",
            course.letter()
        )));
    }
    print(&format!("{shown} holds your work. Write all of it afresh? A copy is kept. [y/N] "));
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    input.read_line(&mut answer).map_err(|error| Failure::Fault(format!("no answer: {error}")))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Writes a copy under a name of its own, whatever was kept in the same second.
fn keep(folder: &Path, course: &Course, text: &[u8]) -> std::io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let (stem, ending) = course.file().split_once('.').unwrap_or_default();
    let dated = format!("{}-{stem}-{}", course.folders().collect::<Vec<_>>().join("-"), date::stamp());
    let numbers = (2..).map(|number| format!("-{number}"));
    for number in std::iter::once(String::new()).chain(numbers) {
        let path = folder.join(format!("{dated}{number}.{ending}"));
        match File::create_new(&path) {
            Ok(mut file) => return file.write_all(text).and_then(|()| file.sync_all()).map(|()| path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    unreachable!("the numbers do not end")
}

/// Hints begin small again.
fn forget_hints(workbook: &Workbook, course: &Course, step: Option<&str>) {
    let mut progress = Progress::load(workbook);
    let steps = stub::steps(course.solution());
    let again = |name: &str| steps.iter().any(|own| own.name == name && step.is_none_or(|step| step == name));
    progress.hints.retain(|name, _| !again(name));
    let _ = progress.save(workbook);
}
