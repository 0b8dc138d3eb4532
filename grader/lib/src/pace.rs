//! How far a run is: its items counted, and the seconds that the rest took the last time.
//!
//! Items differ by a factor of a thousand, so a share of the items says nothing of the time. What each took is kept
//! in `.warpbook/times.json`; where one of the rest was never timed, no seconds are reported.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// The items of a run, by the name under which their seconds are kept.
pub(crate) struct Pace {
    items: Vec<String>,
    seconds: RefCell<BTreeMap<String, f64>>,
    begun: RefCell<Option<(usize, Instant)>>,
    file: Option<PathBuf>,
}

impl Pace {
    /// Of a run of these items; `file` is where seconds are kept, `None` if nowhere.
    pub fn new(items: Vec<String>, file: Option<PathBuf>) -> Self {
        let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        let seconds = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        Self { items, seconds: RefCell::new(seconds), begun: RefCell::new(None), file }
    }

    /// An item begins, so the one before it has ended: `83/147  A.5/prime-f16, 40 s left`.
    pub fn begin(&self, item: &str, shown: &str) -> String {
        self.end();
        let Some(at) = self.items.iter().position(|known| known == item) else { return shown.to_owned() };
        *self.begun.borrow_mut() = Some((at, Instant::now()));
        let left = self.left(at).map_or_else(String::new, |seconds| format!(", {seconds:.0} s left"));
        format!("{}/{}  {shown}{left}", at + 1, self.items.len())
    }

    /// Seconds that the items from number `at` on took the last time.
    fn left(&self, at: usize) -> Option<f64> {
        let seconds = self.seconds.borrow();
        self.items[at..].iter().map(|item| seconds.get(item).filter(|s| s.is_finite()).copied()).sum()
    }

    fn end(&self) {
        if let Some((at, begun)) = self.begun.take() {
            self.seconds.borrow_mut().insert(self.items[at].clone(), begun.elapsed().as_secs_f64());
        }
    }

    /// The run is over. Where its seconds cannot be kept, the next run tells none.
    pub fn over(&self) {
        self.end();
        if let Some(file) = &self.file {
            let text = serde_json::to_string(&*self.seconds.borrow()).unwrap_or_default();
            let _ = reference::atomic_write::write(file, text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_counted_and_seconds_told_once_all_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("times.json");
        let run = || Pace::new(["a A.1/x", "a A.2/y"].map(String::from).into(), Some(file.clone()));
        let first = run();
        assert_eq!(first.begin("a A.1/x", "A.1/x"), "1/2  A.1/x");
        assert_eq!(first.begin("a A.2/y", "A.2/y"), "2/2  A.2/y");
        first.over();
        std::fs::write(&file, r#"{"a A.1/x": 40.0, "a A.2/y": 2.0}"#).unwrap();
        let second = run();
        assert_eq!(second.begin("a A.1/x", "A.1/x"), "1/2  A.1/x, 42 s left");
        assert_eq!(second.begin("a A.2/y", "A.2/y"), "2/2  A.2/y, 2 s left");
        assert_eq!(second.begin("of no list", "compiling"), "compiling");
    }

    #[test]
    fn a_torn_file_of_times_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("times.json");
        for torn in ["{\"a\": ", "[1]", "{\"a\": \"b\"}", ""] {
            std::fs::write(&file, torn).unwrap();
            assert_eq!(Pace::new(vec!["a".into()], Some(file.clone())).begin("a", "a"), "1/1  a");
        }
    }
}
