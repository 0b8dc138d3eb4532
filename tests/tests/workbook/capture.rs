//! Capture: what a program does is a graph or a break, and every kind of break has a cure that means the same.

use std::collections::BTreeSet;
use std::fs;
use std::panic::Location;
use std::path::Path;

use challenges::graph::capture::{Capture, capture};
use challenges::graph::change::difference;
use challenges::graph::explain::{Break, Kind};
use challenges::graph::zoo::{Case, Shows, zoo};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, Eager, Facts, Fault, Host, Tape, Type, interpret};

use crate::look::looks_like;

/// A program of a case, with its number where it has one.
type Program<'a> = &'a dyn Fn(&Tape);

fn record(program: Program, examples: &Values<f32>) -> Capture {
    capture("case", program, examples).expect("shapes and types fit")
}

fn run(program: Program, values: &Values<f32>) -> Values<f32> {
    let eager = Eager::new(values.clone());
    program(eager.tape());
    eager.finish().expect("the program runs on its examples")
}

/// What a graph gives, by name.
fn meaning(capture: &Capture, values: &Values<f32>) -> Values<f32> {
    let names = capture.graph.outputs().iter().map(|(name, _)| name.clone());
    names.zip(interpret(&capture.graph, values).expect("the graph runs on its examples")).collect()
}

/// Every output of one is an output of the other, with the same values but for the rounding of one or two operations:
/// a host calculates in f64.
fn agree(name: &str, got: &Values<f32>, want: &Values<f32>) {
    for (output, want) in want {
        let got = &got[output];
        assert_eq!((&got.shape, got.dtype), (&want.shape, want.dtype), "{name}: {output}");
        for (got, want) in got.wide().into_iter().zip(want.wide()) {
            assert!((got - want).abs() <= 2e-7 * want.abs(), "{name}: {output} is {got}, needed is {want}");
        }
    }
}

/// The lines of a case that end in a mark, from where it begins to where the next one does.
fn marked(case: &Case, all: &[Case], mark: &str) -> BTreeSet<u32> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(case.at.file());
    let text = fs::read_to_string(path).expect("the zoo's source can be read");
    let of_file = all.iter().filter(|other| other.at.file() == case.at.file());
    let end = of_file.map(|other| other.at.line()).filter(|line| *line > case.at.line()).min();
    let within = |line: u32| line > case.at.line() && end.is_none_or(|end| line < end);
    let lines = (1..).zip(text.lines());
    lines.filter(|(number, line)| within(*number) && line.ends_with(mark)).map(|(number, _)| number).collect()
}

fn lines<'a>(places: impl Iterator<Item = &'a Location<'static>>, case: &Case) -> BTreeSet<u32> {
    let line = |at: &Location| {
        assert_eq!(at.file(), case.at.file(), "{}", case.name);
        at.line()
    };
    places.map(line).collect()
}

#[test]
fn the_zoo_has_every_published_kind() {
    let zoo = zoo();
    let names: BTreeSet<_> = zoo.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), zoo.len(), "names are used once");
    let breaks: usize = zoo.iter().filter(|case| matches!(case.shows, Shows::Breaks { .. })).count();
    assert!(breaks >= 24 && zoo.len() - breaks >= 5, "{breaks} breaks of {}", zoo.len());
}

#[test]
fn every_case_breaks_as_often_and_where_it_says() {
    let all = zoo();
    for case in &all {
        if let Shows::Breaks { times, program, examples, .. } = &case.shows {
            let breaks = record(program, &examples()).breaks;
            assert_eq!(breaks.len(), *times, "{}: {breaks:#?}", case.name);
            assert_eq!(
                lines(breaks.iter().map(|one| one.at), case),
                marked(case, &all, "// break"),
                "{}",
                case.name
            );
        }
    }
}

#[test]
fn a_break_is_found_without_examples_too() {
    for case in &zoo() {
        if let Shows::Breaks { program, examples, .. } = &case.shows {
            let (blind, seeing) = (record(program, &Values::new()), record(program, &examples()));
            assert!(!blind.breaks.is_empty(), "{}", case.name);
            let lines = |capture: &Capture| lines(capture.breaks.iter().map(|one| one.at), case);
            assert_eq!(lines(&blind), lines(&seeing), "{}", case.name);
        }
    }
}

#[test]
fn every_cure_captures_whole_and_means_the_same() {
    for case in &zoo() {
        match &case.shows {
            Shows::Breaks { program, cured, examples, .. } => same_meaning(case, program, cured, &examples()),
            Shows::Recompiles { numbers, program, cured, examples } => {
                for number in *numbers {
                    let with = |program: fn(&Tape, i64)| move |tape: &Tape| program(tape, number);
                    same_meaning(case, &with(*program), &with(*cured), &examples(number));
                }
            }
        }
    }
}

fn same_meaning(case: &Case, program: Program, cured: Program, values: &Values<f32>) {
    let name = case.name;
    let captured = record(cured, values);
    assert_eq!(captured.breaks, [], "{name}");
    let want = run(program, values);
    assert!(!want.is_empty(), "{name} has outputs");
    assert_eq!(meaning(&captured, values), run(cured, values), "{name}: run at once, bit for bit");
    agree(name, &meaning(&captured, values), &want);
}

#[test]
fn every_recompilation_is_found_where_it_is_and_every_cure_is_one_graph() {
    let all = zoo();
    for case in &all {
        if let Shows::Recompiles { numbers, program, cured, examples } = &case.shows {
            let twice = |program: &fn(&Tape, i64)| {
                numbers.map(|number| record(&|tape: &Tape| program(tape, number), &examples(number)))
            };
            let [before, now] = twice(program);
            let change = difference(&before, &now).expect("another number, another graph");
            assert_eq!(lines(change.at.into_iter(), case), marked(case, &all, "// changes"), "{}", case.name);
            assert_eq!(difference(&before, &before), None, "{}", case.name);
            let [before, now] = twice(cured);
            assert_eq!(difference(&before, &now), None, "{}", case.name);
        }
    }
}

#[test]
fn what_explain_says_of_the_zoo_is_kept() {
    let mut text = String::new();
    for case in &zoo() {
        let said = match &case.shows {
            Shows::Breaks { program, examples, .. } => {
                let breaks = record(program, &examples()).breaks;
                let texts: Vec<String> = breaks.iter().map(Break::to_string).collect();
                texts.join("\n")
            }
            Shows::Recompiles { numbers, program, examples, .. } => {
                let [before, now] =
                    numbers.map(|number| record(&|tape: &Tape| program(tape, number), &examples(number)));
                difference(&before, &now).map(|change| change.to_string()).unwrap_or_default()
            }
        };
        text += &format!("# {}\n# {}\n{said}\n\n", case.name, case.seen);
    }
    looks_like("capture.txt", &text);
}
