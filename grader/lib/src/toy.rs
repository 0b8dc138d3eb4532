//! A challenge as small as one can be, with all that the grader wants of one: its table of checks, guards and numbers,
//! what they say about its row, and its course. It has no letter and no place in the published scheme; two ranks do
//! each of its items. CONTRIBUTING counts its lines.

use crate::attempts::Attempts;
use crate::course::{Backend, Course};
use crate::evidence::{Seen, met, unmet};
use crate::gather::{Child, Effort, Item, Kind, Source};
use crate::rubric::Facts;
use crate::scorecard::Measurement;
use crate::stub::Language;
use crate::table::{self, Measured, Steps};
use crate::verdict::verdict;

/// The contract: one step.
trait Double {
    fn double(&self, x: u64) -> u64;
}

/// The solution's text, as `solution.rs` would hold it.
const SOLUTION: &str = "impl Double for Solution {\n    // step T.1: twice a number\n    fn double(&self, x: u64) -> u64 {\n        2 * x\n    }\n}\n";

struct Solution;

impl Double for Solution {
    fn double(&self, x: u64) -> u64 {
        2 * x
    }
}

type Check = fn(&dyn Double) -> Result<(), String>;

const CHECKS: &Steps<Check> =
    &[("T.1", &[("small", |attempt| is(attempt, 2)), ("large", |attempt| is(attempt, 1 << 40))])];

fn is(attempt: &dyn Double, x: u64) -> Result<(), String> {
    let got = attempt.double(x);
    if got == 2 * x { Ok(()) } else { Err(format!("twice {x}: expected {}, found {got}", 2 * x)) }
}

type Guard = fn(&dyn Double) -> Result<Option<String>, String>;

const GUARDS: [(&str, Guard); 1] = [("a constant", |attempt| {
    Ok((attempt.double(1) == attempt.double(3)).then(|| "1 and 3 have one double".into()))
})];

type Measure = fn(&mut Child, &dyn Double);

const MEASURED: [Measured<Measure>; 1] = [Measured {
    name: "watch/ranks",
    seconds: 60,
    numbers: &["toy.ranks"],
    fresh: false,
    quick: true,
    run: |child, _| {
        let value = child.request.ranks as f64;
        child.measured(
            "toy.ranks",
            Measurement { value, unit: "count".into(), interval: None, samples: vec![] },
        );
    },
}];

fn items(_: &Effort) -> Vec<Item> {
    let checks = table::checks(CHECKS).into_iter().map(|name| Item::new(name, 60));
    let guards = table::names(&GUARDS).map(|name| Item::new(format!("guard/{name}"), 60));
    checks.chain(guards).chain(MEASURED.iter().map(Measured::item)).collect()
}

fn work(child: &mut Child, attempt: &dyn Double, name: &str) {
    match Kind::of(name) {
        Kind::Check => child.check(name, || table::check(CHECKS, name)?.2(attempt)),
        Kind::Guard(guard) => child.guard(guard, || table::find(&GUARDS, guard)?(attempt)),
        Kind::Number => match table::measured(&MEASURED, name) {
            Ok(run) => run(child, attempt),
            Err(unknown) => child.unmeasured(name, &unknown),
        },
    }
}

fn facts(seen: &Seen<'_>) -> Facts {
    let names = table::checks(CHECKS);
    let verdict = verdict(seen, names.iter().map(String::as_str), &table::names(&GUARDS));
    let fact = match seen.checks.iter().find(|check| !check.detail.is_empty()) {
        Some(check) => unmet(&format!("{} is {}", check.name, check.outcome.word())),
        None => met("ranks 2"),
    };
    Facts::from([("doubles", verdict.judge(fact))])
}

const COURSE: Course = Course {
    name: "toy",
    part: None,
    backend: Backend::Cpu,
    language: Language::Rust,
    items,
    work: |child, attempts, source, item| match (source, COURSE.required::<Box<dyn Double>>(attempts)) {
        (Source::Solution, _) => work(child, &Solution, item),
        (Source::Own, Ok(own)) => work(child, own.as_ref(), item),
        (Source::Own, Err(reason)) => child.impossible(item, &reason),
    },
    facts,
    step_through: |_, _, _| Err("a doubling is not single-stepped".into()),
    ranks: 2,
    memory_limit: 1 << 30,
    solution: || SOLUTION,
    hints: "",
    takes: None,
    together: &[],
    follow: None,
};

impl Attempts {
    fn toy(self, attempt: impl Double + 'static) -> Self {
        self.with::<Box<dyn Double>>(COURSE.key(), Box::new(attempt))
    }
}

mod tests {
    use super::*;
    use crate::gather::{Gathered, Launch, Request, gather};
    use crate::program;
    use crate::rubric::{Asks, Effect, Line, Rubric, When};
    use crate::scorecard::{Basis, Outcome, Truth};
    use crate::stub;

    const RUBRIC: Rubric = Rubric {
        name: "toy",
        letter: "T",
        title: "twice a number",
        possible: 1,
        not_attempted: 0,
        lines: &[Line {
            wording: "doubles",
            cpu: "twice the number, on two ranks",
            cuda: "",
            asks: Asks::Processor,
            fact: When::Is("doubles"),
            branches: &[(When::Is("doubles"), Effect::Add(1))],
        }],
    };

    /// Right for small numbers only.
    struct Narrow;

    impl Double for Narrow {
        fn double(&self, x: u64) -> u64 {
            2 * (x % 1000)
        }
    }

    /// Two ranks of it are started by the test below.
    #[test]
    #[ignore = "a child process of the test below"]
    fn a_child() {
        _ = program::serve(&Attempts::new().toy(Narrow), &[COURSE]);
    }

    fn gathered(source: Source) -> Gathered {
        let effort = Effort { seed: 1, quick: true, ..Effort::default() };
        let request = Request {
            challenge: COURSE.name.into(),
            course: COURSE.key(),
            source,
            effort: effort.clone(),
            ranks: COURSE.ranks,
            memory_limit: COURSE.memory_limit,
            ordinal: 0,
            text: None,
            graph: None,
        };
        let program = std::env::current_exe().expect("this program has a path");
        let arguments =
            ["toy::tests::a_child", "--exact", "--ignored", "--nocapture", "--"].map(Into::into).into();
        let items = (COURSE.items)(&effort);
        gather(&Launch { program, arguments }, &request, &items, &|_| ()).expect("this program runs twice")
    }

    #[test]
    fn a_new_challenge_is_graded_by_its_course_alone() {
        for (source, right, points) in [(Source::Solution, true, 1), (Source::Own, false, 0)] {
            let Gathered { checks, guards, measurements, unmeasured, .. } = gathered(source);
            let outcomes: Vec<_> = checks.iter().map(|check| (check.name.as_str(), check.outcome)).collect();
            let last = if right { Outcome::Passed } else { Outcome::Wrong };
            assert_eq!(outcomes, [("T.1/small", Outcome::Passed), ("T.1/large", last)], "{checks:#?}");
            assert!(
                guards.iter().all(|guard| guard.ran && !guard.tripped) && guards.len() == 1,
                "{guards:#?}"
            );
            assert_eq!(measurements["toy.ranks"].value.to_bits(), 2.0_f64.to_bits());
            let seen = Seen {
                checks: &checks,
                guards: &guards,
                measurements: &measurements,
                unmeasured: &unmeasured,
            };
            let score = RUBRIC.score(&(COURSE.facts)(&seen), "cpu");
            let fact = if right { Truth::Met } else { Truth::Unmet };
            assert_eq!(
                (score.points, score.rows[0].fact, score.rows[0].basis),
                (points, fact, Basis::AsPublished)
            );
        }
        let stub = stub::derive(SOLUTION, COURSE.language).expect("sound markers");
        assert!(stub.contains("todo!(\"T.1: twice a number\")"), "{stub}");
    }

    #[test]
    fn contributing_counts_the_lines_of_the_smallest_challenge() {
        let own = include_str!("toy.rs").lines().take_while(|line| *line != "mod tests {").count();
        let message = format!("about {} lines", own.next_multiple_of(10));
        assert!(include_str!("../../../CONTRIBUTING.md").contains(&message), "{message} of {own}");
    }
}
