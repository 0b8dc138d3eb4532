//! Every course of this version, and how one is found: by its key, its name, its letter, a step, or a report.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::course::{Backend, Course, backend_of, code};
use crate::evidence::{Seen, unmeasured};
use crate::issues::windows;
use crate::rubric::{Facts, RUBRICS, Rubric};
use crate::scorecard::{Challenge, Machine};
use crate::stub::{Language, code_hash};

/// Every course of this version: the challenges in the published order, of each the CPU first.
pub(crate) static COURSES: [Course; 12] = [
    crate::nf4::COURSE,
    crate::nf4::cuda::COURSE,
    crate::fsdp::COURSE,
    crate::graph::COURSE,
    crate::graph::ON_A_CARD,
    crate::issues::CHAT,
    crate::issues::ATTENTION,
    crate::issues::CLASSIFY,
    crate::issues::GGUF,
    crate::issues::VISION,
    crate::loss::COURSE,
    crate::loss::ON_A_CARD,
];

/// One course for each exercise: the first that grades it.
pub(crate) fn exercises() -> impl Iterator<Item = &'static Course> {
    COURSES.iter().filter(|course| course.is_first())
}

/// The same part of a challenge on the CPU, if it is graded there.
pub(crate) fn on_the_cpu(course: &Course) -> Option<&'static Course> {
    let is_twin = |other: &&Course| (other.name, other.part) == (course.name, course.part);
    COURSES.iter().filter(is_twin).find(|other| other.backend == Backend::Cpu)
}

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

/// The course that a step belongs to, on a back end if its exercise is graded there: `A.9`.
pub(crate) fn of_step(step: &str, backend: Backend) -> Option<&'static Course> {
    let has_step = || COURSES.iter().filter(|course| course.has_step(step));
    has_step().find(|course| course.backend == backend).or_else(|| has_step().next())
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

/// The code of the solutions of some courses, as [`code`] gives it.
pub(crate) fn code_of_solutions(courses: &[&Course]) -> String {
    let each: Vec<_> = courses.iter().map(|course| (*course, code_hash(course.solution()))).collect();
    code(&each)
}

/// The facts of a challenge by what some of its courses saw on a machine; the rows of the others are open.
pub(crate) fn facts(rubric: &Rubric, courses: &[&Course], seen: &Seen<'_>, machine: &Machine) -> Facts {
    let open = |reason: &'static str| move |name: &'static str| (name, unmeasured(reason));
    let mut facts: Facts = rubric.facts().into_iter().map(open("not part of this version")).collect();
    for course in of_challenge(rubric.name, Backend::Cpu) {
        facts.extend(course.rows().into_iter().map(open("not asked for")));
    }
    facts.extend(courses.iter().flat_map(|course| (course.facts)(seen)));
    if let Some(fact) = facts.get_mut(windows::ROW) {
        *fact = windows::fact(machine, courses, seen);
    }
    facts
}

/// The courses that a program hands in an attempt at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Supplied(BTreeSet<String>);

impl Supplied {
    /// Those of some keys.
    pub fn of(keys: impl IntoIterator<Item = String>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// As the workbook does.
    pub fn everything() -> Self {
        Self::of(COURSES.iter().map(Course::exercise_key))
    }

    /// Whether it hands in anything.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether it hands in an attempt at a course.
    pub fn has(&self, course: &Course) -> bool {
        self.0.contains(&course.exercise_key())
    }
}

/// A solution's text, and the exercise that is derived from it.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The exercise's file, below the workbook's folder: `challenges/src/nf4/exercise.cu`.
    pub exercise: PathBuf,
    /// What both are written in.
    pub language: Language,
    /// The solution's text.
    pub solution: &'static str,
}

/// Every solution that an exercise is derived from.
pub fn solutions() -> impl Iterator<Item = Origin> {
    exercises().map(|course| Origin {
        exercise: course.exercise(),
        language: course.language,
        solution: course.solution(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub;

    #[test]
    fn every_course_is_found_by_its_key_its_name_its_letter_and_its_steps() {
        for course in &COURSES {
            let is = |found: &Course| found.key() == course.key();
            assert!(of_key(&course.key()).is_some_and(is), "{}", course.key());
            for name in [course.name.to_uppercase(), course.letter().to_lowercase(), course.key()] {
                assert!(named(&name, course.backend).into_iter().any(is), "{name}");
            }
            let found = |step: &stub::Step<'_>| of_step(step.name, course.backend).is_some_and(is);
            assert!(stub::steps(course.solution()).iter().all(found));
        }
        assert!(of_step("A.9", Backend::Cpu).is_some_and(|course| course.key() == "nf4.cuda"));
        assert!(named("f", Backend::Cpu).is_empty() && named("", Backend::Cpu).is_empty());
        let keys: Vec<String> = named("D", Backend::Cuda).iter().map(|course| course.key()).collect();
        assert_eq!(
            keys,
            ["issues.chat", "issues.attention", "issues.classify", "issues.gguf", "issues.vision"],
            "on the CPU, where a part has no other back end"
        );
        assert_eq!(named("chat", Backend::Cpu)[0].key(), "issues.chat");
    }

    #[test]
    fn an_exercise_in_rust_is_one_on_every_device() {
        for name in ["graph", "loss"] {
            let [cpu, card] = [Backend::Cpu, Backend::Cuda].map(|backend| of_challenge(name, backend)[0]);
            assert_eq!([cpu.key(), card.key()], [name.to_owned(), format!("{name}.cuda")]);
            assert_eq!((cpu.exercise(), cpu.exercise_key()), (card.exercise(), card.exercise_key()));
            assert_eq!((cpu.language, card.language), (Language::Rust, Language::Rust));
            assert!(Supplied::of([name.to_owned()]).has(card));
            assert_eq!(on_the_cpu(card).map(Course::key), Some(cpu.key()));
        }
        let keys: Vec<String> = exercises().map(Course::key).collect();
        assert_eq!(
            keys,
            [
                "nf4",
                "nf4.cuda",
                "fsdp",
                "graph",
                "issues.chat",
                "issues.attention",
                "issues.classify",
                "issues.gguf",
                "issues.vision",
                "loss"
            ]
        );
    }

    #[test]
    fn every_step_of_every_solution_can_be_restored() {
        for Origin { language, solution, exercise } in solutions() {
            let fresh = stub::derive(solution, language).unwrap();
            let mut text = solution.replace("Solution", "Exercise");
            for step in stub::steps(solution).into_iter().rev() {
                text = stub::restore(&text, solution, language, step.name).unwrap();
            }
            assert_eq!(code_hash(&text), code_hash(&fresh), "{}", exercise.display());
        }
    }

    #[test]
    fn the_code_of_several_parts_is_taken_apart_again() {
        let vision = crate::issues::VISION;
        let several = [(&crate::issues::CHAT, "a1".to_owned()), (&vision, "b2".to_owned())];
        let message = code(&several);
        assert_eq!(message, "chat a1, vision b2");
        assert_eq!(several.map(|(course, _)| course.code_in(&message)), ["a1", "b2"]);
        assert_eq!(code(&[(&vision, "b2".to_owned())]), "b2", "one alone needs no name");
        assert_eq!(vision.code_in("b2"), "b2");
    }
}
