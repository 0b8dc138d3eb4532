//! The courses that this version can grade, each behind the same few functions. A course is a challenge on one
//! back end: its steps, its text, its ways of looking.

use std::path::PathBuf;

use crate::Attempts;
use crate::evidence::Seen;
use crate::gather::{Child, Effort, Item, Source};
use crate::rubric::Facts;
use crate::stub::{self, Language};

/// What runs an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// Rust on the CPU: `exercise.rs`, built by cargo.
    Cpu,
    /// CUDA C++ on a GPU: `exercise.cu`, compiled when it is graded.
    Cuda,
}

impl Back {
    /// As the command line names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}

/// What the grader needs to know of a challenge on a back end.
pub(crate) struct Course {
    /// `nf4`.
    pub name: &'static str,
    /// Which part of the challenge, where it has several: each is an attempt of its own.
    pub part: Option<&'static str>,
    /// What runs it.
    pub back: Back,
    /// Its items, in order.
    pub items: fn(&Effort) -> Vec<Item>,
    /// Does one item in a child.
    pub work: fn(&mut Child, &Attempts, Source, &str),
    /// What was seen, as facts.
    pub facts: fn(&Seen<'_>) -> Facts,
    /// The watched process's side of single-stepping: a small call, or calls as they are timed.
    pub step_through: fn(&Attempts, Source, bool) -> Result<(), String>,
    /// Bytes that a child may hold.
    pub memory_limit: usize,
    /// The solution's text.
    pub solution: &'static str,
    /// The hints' text.
    pub hints: &'static str,
}

/// Every challenge that is built, in the published order.
pub(crate) static COURSES: [Course; 5] = [
    Course {
        name: "nf4",
        part: None,
        back: Back::Cpu,
        items: crate::nf4::items,
        work: |child, attempts, source, item| crate::nf4::work(child, attempts.nf4_attempt(source), item),
        facts: crate::nf4::facts,
        step_through: |attempts, source, as_timed| {
            crate::nf4::step_through(attempts.nf4_attempt(source), as_timed)
        },
        memory_limit: crate::nf4::MEMORY_LIMIT,
        solution: challenges::nf4::SOLUTION,
        hints: challenges::nf4::HINTS,
    },
    Course {
        name: "nf4",
        part: None,
        back: Back::Cuda,
        items: crate::nf4::cuda::items,
        work: |child, attempts, source, item| match attempts
            .nf4_kernels(source, child.request.text.as_deref())
        {
            Ok(attempt) => crate::nf4::cuda::work(child, attempt, item),
            Err(reason) => child.impossible(item, &reason),
        },
        facts: crate::nf4::cuda::facts,
        step_through: |_, _, _| Err("a kernel is not single-stepped".into()),
        memory_limit: crate::nf4::cuda::MEMORY_LIMIT,
        solution: challenges::nf4::cuda::SOLUTION,
        hints: challenges::nf4::HINTS,
    },
    Course {
        name: "graph",
        part: None,
        back: Back::Cpu,
        items: crate::graph::items,
        work: |child, attempts, source, item| {
            crate::graph::work(child, attempts.graph_attempt(source), attempts.nf4_beside(source), item);
        },
        facts: crate::graph::facts,
        step_through: |_, _, _| Err("a compiler is not single-stepped".into()),
        memory_limit: crate::graph::MEMORY_LIMIT,
        solution: challenges::graph::SOLUTION,
        hints: challenges::graph::HINTS,
    },
    Course {
        name: "issues",
        part: Some("chat"),
        back: Back::Cpu,
        items: crate::issues::items,
        work: |child, attempts, source, item| {
            crate::issues::work(child, &attempts.chat_attempt(source), item);
        },
        facts: crate::issues::facts,
        step_through: |_, _, _| Err("a parser is not single-stepped".into()),
        memory_limit: crate::issues::MEMORY_LIMIT,
        solution: challenges::issues::chat::SOLUTION,
        hints: challenges::issues::chat::HINTS,
    },
    Course {
        name: "loss",
        part: None,
        back: Back::Cpu,
        items: crate::loss::items,
        work: |child, attempts, source, item| {
            crate::loss::work(child, attempts.loss_attempt(source), attempts.graph_beside(source), item);
        },
        facts: crate::loss::facts,
        step_through: |_, _, _| Err("a plan is not single-stepped".into()),
        memory_limit: crate::loss::MEMORY_LIMIT,
        solution: challenges::loss::SOLUTION,
        hints: challenges::loss::HINTS,
    },
];

/// A challenge on a back end, by name or letter.
pub(crate) fn find(name: &str, back: Back) -> Option<&'static Course> {
    let rubric = crate::rubric::RUBRICS
        .iter()
        .find(|rubric| rubric.name == name.to_lowercase() || rubric.letter == name.to_uppercase())?;
    COURSES.iter().find(|course| course.name == rubric.name && course.back == back)
}

/// The course that a step belongs to: `A.9`.
pub(crate) fn of_step(step: &str) -> Option<&'static Course> {
    let has = |course: &&Course| stub::steps(course.solution).iter().any(|known| known.name == step);
    COURSES.iter().find(has)
}

impl Course {
    /// The reader's file, relative to the workbook's root.
    pub fn exercise(&self) -> PathBuf {
        ["challenges", "src"].into_iter().chain(self.folders()).chain([self.file()]).collect()
    }

    /// The folders of its texts, below `challenges/src`.
    pub fn folders(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.part)
    }

    /// The program that is built from the exercise.
    pub fn program(&self) -> String {
        format!("{}-exercise", self.part.unwrap_or(self.name))
    }

    /// The reader's file's name.
    pub fn file(&self) -> &'static str {
        match self.back {
            Back::Cpu => "exercise.rs",
            Back::Cuda => "exercise.cu",
        }
    }

    /// What the course's exercise is written in.
    pub fn language(&self) -> Language {
        match self.back {
            Back::Cpu => Language::Rust,
            Back::Cuda => Language::Cuda,
        }
    }

    /// The name under which progress is kept: `nf4`, `nf4.cuda`.
    pub fn key(&self) -> String {
        key(self.name, self.back)
    }

    /// The published letter.
    pub fn letter(&self) -> &'static str {
        crate::rubric::find(self.name).map_or("", |rubric| rubric.letter)
    }
}

/// The back end that a report's device names.
pub(crate) fn back_of(device: &str) -> Back {
    if device.starts_with("cuda") { Back::Cuda } else { Back::Cpu }
}

/// See [`Course::key`].
pub(crate) fn key(name: &str, back: Back) -> String {
    match back {
        Back::Cpu => name.into(),
        Back::Cuda => format!("{name}.cuda"),
    }
}
