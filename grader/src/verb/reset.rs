//! `reset`: an exercise as it was in the beginning, the reader's text kept aside.

use reference::atomic_write;

use crate::course::Course;
use crate::date;
use crate::options::Failure;
use crate::progress::{Progress, folder};
use crate::stub;
use crate::terminal::print;
use crate::workbook::Workbook;

/// Derives the exercise from the solution after a dated backup.
pub(crate) fn reset(course: &Course) -> Result<u8, Failure> {
    let workbook = Workbook::find().map_err(Failure::Usage)?;
    let path = workbook.root().join(course.exercise());
    let fresh = stub::derive(course.solution, course.language()).map_err(Failure::Fault)?;
    let fault =
        |error: std::io::Error| Failure::Fault(format!("{} cannot be written: {error}", path.display()));
    if let Ok(old) = std::fs::read_to_string(&path) {
        if old == fresh {
            print(&format!("{} is as it was in the beginning\n", course.exercise().display()));
            return Ok(0);
        }
        let (stem, ending) = course.file().split_once('.').unwrap_or_default();
        let name = format!("{}-{stem}-{}.{ending}", course.name, date::stamp());
        let backup = folder(&workbook).join("backups").join(name);
        atomic_write::write(&backup, old.as_bytes()).map_err(fault)?;
        print(&format!("kept your text as {}\n", backup.display()));
    }
    atomic_write::write(&path, fresh.as_bytes()).map_err(fault)?;
    let mut progress = Progress::load(&workbook);
    let steps = stub::steps(course.solution);
    progress.hints.retain(|step, _| steps.iter().all(|own| own.name != step)); // hints begin small again
    let _ = progress.save(&workbook);
    print(&format!("wrote {}\n", course.exercise().display()));
    Ok(0)
}
