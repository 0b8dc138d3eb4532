//! A course: a challenge, or a part of one, on one back end - its steps, its text, its ways of looking - behind the
//! same few functions. Each stands in its challenge's folder; [`COURSES`](crate::courses::COURSES) has a row for it,
//! and nothing else names it.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::attempts::Attempts;
use crate::evidence::Seen;
use crate::gather::{Child, Effort, Item, Source};
use crate::rubric::Facts;
use crate::scorecard::{Challenge, Check, Machine, Measurement, Row};
use crate::stub::{self, Language};

/// What runs an attempt, or the plans that it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// The CPU.
    Cpu,
    /// A GPU.
    Cuda,
}

impl Backend {
    /// As the command line names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}

/// Numbers that follow from all the others, the machine and what the workbook's folder `.warpbook` keeps.
pub(crate) type Follow =
    fn(&BTreeMap<String, Measurement>, &Machine, Option<&Path>) -> Vec<(String, Measurement)>;

/// What the grader needs to know of a challenge on a back end.
pub(crate) struct Course {
    /// The challenge: `nf4`.
    pub name: &'static str,
    /// Which part of the challenge, where it has several: each is an attempt of its own.
    pub part: Option<&'static str>,
    /// What runs it.
    pub backend: Backend,
    /// What its exercise is written in: Rust, `exercise.rs`, which cargo builds, also where its plans run on a GPU; or
    /// CUDA C++, `exercise.cu`, which is compiled when it is graded.
    pub language: Language,
    /// Its items, in order.
    pub items: fn(&Effort) -> Vec<Item>,
    /// Does one item in a child.
    pub work: fn(&mut Child, &Attempts, Source, &str),
    /// What was seen, as the facts of its rows.
    pub facts: fn(&Seen<'_>) -> Facts,
    /// The watched process's side of single-stepping: a small call, or calls as they are timed.
    pub step_through: fn(&Attempts, Source, bool) -> Result<(), String>,
    /// Processes that do an item together, one a rank.
    pub ranks: usize,
    /// Bytes that a child may hold, or all ranks together.
    pub memory_limit: usize,
    /// Gives the solution's text.
    pub solution: fn() -> &'static str,
    /// The hints' text.
    pub hints: &'static str,
    /// The key of another course whose exercise is built into the same program if it compiles. Whether that exercise
    /// is used is decided there: by its checks, not by its text.
    pub takes: Option<&'static str>,
    /// Numbers that are measured together: where the first is, the others are.
    pub together: &'static [&'static [&'static str]],
    /// Numbers that follow from its others, such as a total.
    pub follow: Option<Follow>,
}

/// The code of a challenge in a report: the hash of its one course; of several parts each hash after its part.
pub(crate) fn code(of: &[(&Course, String)]) -> String {
    let part = |(course, hash): &(&Course, String)| match course.part {
        Some(part) if !hash.is_empty() => format!("{part} {hash}"),
        _ => hash.clone(),
    };
    match of {
        [(_, hash)] => hash.clone(),
        several => several.iter().map(part).collect::<Vec<_>>().join(", "),
    }
}

impl Course {
    /// The solution's text.
    pub fn solution(&self) -> &'static str {
        (self.solution)()
    }

    /// The facts of its rows.
    pub fn rows(&self) -> Vec<&'static str> {
        let nothing = BTreeMap::new();
        let seen = Seen { checks: &[], guards: &[], measurements: &BTreeMap::new(), unmeasured: &nothing };
        (self.facts)(&seen).into_keys().collect()
    }

    /// The rows of a challenge that are its own: all of them where it has no parts.
    pub fn rows_of<'a>(&self, challenge: &'a Challenge) -> impl Iterator<Item = &'a Row> {
        let own = self.rows();
        let rubric = crate::rubric::find(self.name);
        let facts = move |wording: &str| rubric.map(|rubric| rubric.facts_of(wording)).unwrap_or_default();
        let is_own = move |row: &&Row| facts(&row.wording).iter().any(|fact| own.contains(fact));
        let is_whole = self.part.is_none();
        challenge.rows.iter().filter(move |row| is_whole || is_own(row))
    }

    /// The points that a challenge has by it.
    pub fn points(&self, challenge: &Challenge) -> i32 {
        match self.part {
            None => challenge.points, // whoever tried nothing has those of that
            Some(_) => self.rows_of(challenge).map(|row| row.points).sum(),
        }
    }

    /// Whether a step is one of its own.
    pub fn has_step(&self, step: &str) -> bool {
        stub::steps(self.solution()).iter().any(|known| known.name == step)
    }

    /// Whether a check is one of its own.
    pub fn owns(&self, check: &Check) -> bool {
        self.has_step(check.step())
    }

    /// What a program hands in at it.
    ///
    /// # Errors
    /// If it hands in nothing there.
    pub fn required<'a, T: Any>(&self, attempts: &'a Attempts) -> Result<&'a T, String> {
        attempts.own(&self.exercise_key()).ok_or_else(|| self.not_handed_in())
    }

    /// What is said where a program is asked for an attempt that it does not hand in.
    pub fn not_handed_in(&self) -> String {
        format!("this program hands in no attempt at challenge {} for {}", self.letter(), self.backend.name())
    }

    /// Its hash in the code of a challenge of several parts.
    pub fn code_in(&self, code: &str) -> String {
        if !code.contains(' ') {
            return code.to_owned(); // of one alone, which needs no name
        }
        let own = code.split(", ").find_map(|part| part.strip_prefix(self.part?)?.strip_prefix(' '));
        own.unwrap_or_default().to_owned()
    }

    /// The reader's file, relative to the workbook's root.
    pub fn exercise(&self) -> PathBuf {
        ["challenges", "src"].into_iter().chain(self.folders()).chain([self.file()]).collect()
    }

    /// The folders of its texts, below `challenges/src`.
    pub fn folders(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.part)
    }

    /// The feature of the package `attempts` that takes the exercise.
    pub fn feature(&self) -> &'static str {
        self.part.unwrap_or(self.name)
    }

    /// The reader's file's name.
    pub fn file(&self) -> &'static str {
        match self.language {
            Language::Rust => "exercise.rs",
            Language::Cuda => "exercise.cu",
        }
    }

    /// Its name among all courses: `nf4`, `nf4.cuda`, `graph.cuda`, `issues.chat`.
    pub fn key(&self) -> String {
        self.key_on(self.backend)
    }

    /// The key of the first course that grades its exercise, under which an attempt is handed in and progress is kept:
    /// of `graph.cuda`, whose exercise is Rust, `graph`.
    pub fn exercise_key(&self) -> String {
        self.key_on(match self.language {
            Language::Rust => Backend::Cpu,
            Language::Cuda => Backend::Cuda,
        })
    }

    fn key_on(&self, backend: Backend) -> String {
        let backend = (backend != Backend::Cpu).then(|| backend.name());
        self.folders().chain(backend).collect::<Vec<_>>().join(".")
    }

    /// Whether it is the first course that grades its exercise.
    pub fn is_first(&self) -> bool {
        self.key() == self.exercise_key()
    }

    /// What a reader calls it: the letter, and the part where a challenge has several: `D attention`.
    pub fn spoken(&self) -> String {
        self.part.map_or(self.letter().into(), |part| format!("{} {part}", self.letter()))
    }

    /// What names it alone on the command line: the part, where a challenge has several.
    pub fn word(&self) -> &'static str {
        self.part.unwrap_or(self.name)
    }

    /// The published letter.
    pub fn letter(&self) -> &'static str {
        crate::rubric::find(self.name).map_or("", |rubric| rubric.letter)
    }
}

/// The back end that a report's device names.
pub(crate) fn backend_of(device: &str) -> Backend {
    if device.starts_with("cuda") { Backend::Cuda } else { Backend::Cpu }
}
