//! The courses that this version can grade, each behind the same few functions. A course is a challenge, or a part of
//! one, on one back end: its steps, its text, its ways of looking. Each stands in its challenge's folder; [`COURSES`]
//! has a row for it, and nothing else names it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::Attempts;
use crate::evidence::{Seen, unmeasured};
use crate::gather::{Child, Effort, Item, Source};
use crate::rubric::{Facts, RUBRICS, Rubric};
use crate::scorecard::{Challenge, Check, Measurement, Row};
use crate::stub::{self, Language, code_hash};

/// What runs an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// Rust on the CPU: `exercise.rs`, built by cargo.
    Cpu,
    /// CUDA C++ on a GPU: `exercise.cu`, compiled when it is graded.
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

/// A number that follows from all the others, with its name.
pub(crate) type Total = fn(&BTreeMap<String, Measurement>) -> Option<(&'static str, Measurement)>;

/// What the grader needs to know of a challenge on a back end.
pub(crate) struct Course {
    /// The challenge: `nf4`.
    pub name: &'static str,
    /// Which part of the challenge, where it has several: each is an attempt of its own.
    pub part: Option<&'static str>,
    /// What runs it.
    pub backend: Backend,
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
    /// Another exercise that the reader's program takes along.
    pub takes: Option<Takes>,
    /// Numbers that are measured together: where the first is, the others are.
    pub together: &'static [&'static [&'static str]],
    /// What is summed up of its numbers.
    pub total: Option<Total>,
}

/// An exercise that goes along with another one, if it is written and compiles.
#[derive(Clone, Copy)]
pub(crate) struct Takes {
    /// The course, by its key.
    pub course: &'static str,
    /// How holes begin that must not be left in it.
    pub hole: &'static str,
}

/// Every course of this version: the challenges in the published order, of each the CPU first.
pub(crate) static COURSES: [Course; 5] = [
    crate::nf4::COURSE,
    crate::nf4::cuda::COURSE,
    crate::graph::COURSE,
    crate::issues::CHAT,
    crate::loss::COURSE,
];

/// The course of a key: `nf4`, `nf4.cuda`, `issues.chat`.
pub(crate) fn of_key(key: &str) -> Option<&'static Course> {
    COURSES.iter().find(|course| course.key() == key)
}

/// Every part of a challenge once, on a back end where it has it, else on the CPU.
pub(crate) fn of_challenge(name: &str, backend: Backend) -> Vec<&'static Course> {
    let has = |course: &Course, on: Backend| {
        COURSES.iter().any(|other| (other.name, other.part, other.backend) == (course.name, course.part, on))
    };
    let is_meant = |course: &&Course| {
        let asked = course.backend == backend;
        course.name == name && (asked || (course.backend == Backend::Cpu && !has(course, backend)))
    };
    COURSES.iter().filter(is_meant).collect()
}

/// The courses that a name means: a challenge's name or letter, the key of a course, or a part.
pub(crate) fn named(name: &str, backend: Backend) -> Vec<&'static Course> {
    let lower = name.to_lowercase();
    if let Some(rubric) =
        RUBRICS.iter().find(|rubric| rubric.name == lower || rubric.letter == name.to_uppercase())
    {
        return of_challenge(rubric.name, backend);
    }
    let is_meant = |course: &&Course| course.key() == lower || course.part == Some(lower.as_str());
    COURSES.iter().filter(is_meant).collect()
}

/// The course that a step belongs to: `A.9`.
pub(crate) fn of_step(step: &str) -> Option<&'static Course> {
    COURSES.iter().find(|course| course.has_step(step))
}

/// The courses that a challenge of a report ran, with the hash of each one's code.
pub(crate) fn that_ran(challenge: &Challenge) -> Vec<(&'static Course, String)> {
    let all = of_challenge(&challenge.name, backend_of(&challenge.device));
    let [one] = all[..] else {
        let ran = all.into_iter().filter(|course| challenge.checks.iter().any(|check| course.owns(check)));
        return ran.map(|course| (course, course.code_in(&challenge.code))).collect();
    };
    vec![(one, challenge.code.clone())]
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

/// The code of the solutions of some courses, as [`code`] gives it.
pub(crate) fn code_of_solutions(courses: &[&Course]) -> String {
    let each: Vec<_> = courses.iter().map(|course| (*course, code_hash(course.solution()))).collect();
    code(&each)
}

/// The facts of a challenge by what some of its courses saw; the rows of the others are open.
pub(crate) fn facts(rubric: &Rubric, courses: &[&Course], seen: &Seen<'_>) -> Facts {
    let open = |reason: &'static str| move |name: &'static str| (name, unmeasured(reason));
    let mut facts: Facts = rubric.facts().into_iter().map(open("not part of this version")).collect();
    for course in of_challenge(rubric.name, Backend::Cpu) {
        facts.extend(course.rows().into_iter().map(open("not asked for")));
    }
    facts.extend(courses.iter().flat_map(|course| (course.facts)(seen)));
    facts
}

impl Course {
    /// The solution's text.
    pub fn solution(&self) -> &'static str {
        (self.solution)()
    }

    /// The facts of its rows.
    fn rows(&self) -> Vec<&'static str> {
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
    fn has_step(&self, step: &str) -> bool {
        stub::steps(self.solution()).iter().any(|known| known.name == step)
    }

    /// Whether a check is one of its own.
    pub fn owns(&self, check: &Check) -> bool {
        self.has_step(check.step())
    }

    /// Its hash in the code of a challenge of several parts.
    fn code_in(&self, code: &str) -> String {
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
        match self.backend {
            Backend::Cpu => "exercise.rs",
            Backend::Cuda => "exercise.cu",
        }
    }

    /// What the course's exercise is written in.
    pub fn language(&self) -> Language {
        match self.backend {
            Backend::Cpu => Language::Rust,
            Backend::Cuda => Language::Cuda,
        }
    }

    /// Its name among all courses, under which progress is kept: `nf4`, `nf4.cuda`, `issues.chat`.
    pub fn key(&self) -> String {
        let backend = (self.backend != Backend::Cpu).then(|| self.backend.name());
        self.folders().chain(backend).collect::<Vec<_>>().join(".")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_course_is_found_by_its_key_its_name_its_letter_and_its_steps() {
        for course in &COURSES {
            let is = |found: &Course| found.key() == course.key();
            assert!(of_key(&course.key()).is_some_and(is), "{}", course.key());
            for name in [course.name.to_uppercase(), course.letter().to_lowercase(), course.key()] {
                assert!(named(&name, course.backend).into_iter().any(is), "{name}");
            }
            assert!(stub::steps(course.solution()).iter().all(|step| of_step(step.name).is_some_and(is)));
        }
        assert!(named("fsdp", Backend::Cpu).is_empty() && named("", Backend::Cpu).is_empty());
        let keys: Vec<String> = named("D", Backend::Cuda).iter().map(|course| course.key()).collect();
        assert_eq!(keys, ["issues.chat"], "on the CPU, where a part has no other back end");
        assert_eq!(named("chat", Backend::Cpu)[0].key(), "issues.chat");
    }

    #[test]
    fn the_code_of_several_parts_is_taken_apart_again() {
        let vision = Course { part: Some("vision"), ..crate::issues::CHAT };
        let several = [(&crate::issues::CHAT, "a1".to_owned()), (&vision, "b2".to_owned())];
        let message = code(&several);
        assert_eq!(message, "chat a1, vision b2");
        assert_eq!(several.map(|(course, _)| course.code_in(&message)), ["a1", "b2"]);
        assert_eq!(code(&[(&vision, "b2".to_owned())]), "b2", "one alone needs no name");
    }
}
