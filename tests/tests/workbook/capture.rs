//! Capture: what a program does is a graph or a break, and every kind of break has a cure that means the same.

use std::collections::BTreeSet;
use std::fs;
use std::panic::Location;

use challenges::graph::zoo::{Case, Shows, zoo};
use challenges::graph::{Compile, Solution};
use compiler::front::capture::Capture;
use compiler::front::change::difference;
use compiler::front::explain::{Break, Kind};
use proptest::prelude::*;
use reference::graph::interpret::Values;
use reference::graph::{
    Array, Builder, Dtype, Eager, Error, Facts, Fault, Graph, Host, Id, Tape, Tensor, Type, interpret,
};
use reference::llama::{Llama, Model, Spec, rope};
use reference::lora::{self, Adapter, Targets};
use reference::loss;
use tests::graphs;
use tests::small_llama::SmallLlama;

use crate::look::looks_like;

/// A program of a case, with its number where it has one.
type Program<'a> = &'a dyn Fn(&Tape);

fn record(program: Program, examples: &Values<f32>) -> Capture {
    Solution.capture("case", program, examples).expect("shapes and types fit")
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
            assert!(
                (got - want).abs() <= 2e-7 * want.abs(),
                "{name}: {output}: expected {want}, found {got}"
            );
        }
    }
}

/// The lines of a case that end in a mark, from where it begins to where the next one does.
fn marked(case: &Case, all: &[Case], mark: &str) -> BTreeSet<u32> {
    let path = tests::place::workbook().join(case.at.file());
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
    let texts = zoo().into_iter().map(|case| {
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
        format!("# {}\n# {}\n{said}\n\n", case.name, case.seen)
    });
    looks_like("capture.txt", &texts.collect::<String>());
}

/// x (T,)
#[track_caller]
fn line(tape: &Tape) -> Tensor {
    tape.input("x", Dtype::F32, [tape.symbol("T", Facts::range(1, 8))])
}

fn values(name: &str, values: &[f64]) -> Values<f32> {
    let array = Array::floats(Dtype::F32, &[values.len()], values.iter().copied());
    [(name.to_owned(), array)].into()
}

#[test]
fn what_follows_a_foreign_call_starts_from_a_fresh_input() {
    let program = |tape: &Tape| {
        let x = &line(tape) * 2.0;
        let y = tape.foreign("library.negate", &[&x], x.ty(), |v| {
            Array::floats(Dtype::F32, &v[0].shape, v[0].wide().into_iter().map(|x| -x))
        });
        let read = (&y + 1.0).read();
        tape.output("y", &(&y * read.map_or(0.0, |values| values[1])));
    };
    let examples = values("x", &[1.0, 2.0]);
    let captured = record(&program, &examples);
    let kinds: Vec<Kind> = captured.breaks.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [Kind::Foreign, Kind::Read]);
    let expected = "\
graph \"case\" (T in 1..=8) {
  %0 = input \"x\" : f32[T]
  %1 = constant 2.0 : f32[T]
  %2 = mul %0 %1 : f32[T]
  %3 = input \"break.0\" : f32[T]
  %4 = constant 1.0 : f32[T]
  %5 = add %3 %4 : f32[T]
  %6 = constant -3.0 : f32[T]
  %7 = mul %3 %6 : f32[T]
  return \"y\" %7
}";
    assert_eq!(captured.graph.to_string(), expected);
    assert_eq!(run(&program, &examples)["y"].wide(), [6.0, 12.0]);
    let unanswered = record(&program, &Values::new()).graph.to_string();
    assert_eq!(unanswered, expected.replace("-3.0", "0.0"), "without examples a read gives nothing");
}

#[test]
fn every_handle_of_an_overwritten_tensor_means_the_new_one() {
    let program = |tape: &Tape| {
        let x = line(tape);
        let (same, before) = (x.clone(), &x * 1.0);
        x.write(&(&x + 1.0));
        x.write(&(&same * 3.0));
        for (name, tensor) in [("x", &x), ("same", &same), ("before", &before)] {
            tape.output(name, tensor);
        }
    };
    let examples = values("x", &[1.0, 2.0]);
    let captured = record(&program, &examples);
    assert_eq!(captured.breaks.iter().map(|one| one.kind).collect::<Vec<_>>(), [Kind::Write; 2]);
    let eager = run(&program, &examples);
    assert_eq!(meaning(&captured, &examples), eager);
    assert_eq!(
        [&eager["x"], &eager["same"], &eager["before"]].map(Array::wide),
        [vec![6.0, 9.0], vec![6.0, 9.0], vec![1.0, 2.0]]
    );
}

/// What each recorder says of a program that makes a mistake: capture, one that runs it, one that only notes it down.
fn mistakes(program: Program, examples: &Values<f32>) -> [Option<Error>; 3] {
    let (eager, builder) = (Eager::new(examples.clone()), Builder::new("case"));
    program(eager.tape());
    program(builder.tape());
    [Solution.capture("case", program, examples).err(), eager.finish().err(), builder.finish().err()]
}

#[test]
fn a_shape_that_does_not_fit_is_a_mistake_and_no_break() {
    let line_of_mistake = line!() + 3;
    let program = |tape: &Tape| {
        let x = line(tape);
        let y = x.matmul(&x);
        assert_eq!(y.read(), None, "nothing is computed from a mistake");
        tape.output("y", &y);
    };
    for error in mistakes(&program, &values("x", &[1.0])) {
        let error = error.expect("a row times a row");
        assert_eq!(error.at, "%1 matmul", "{error}");
        assert_eq!(error.source.map(Location::line), Some(line_of_mistake), "{error}");
    }
}

#[test]
fn a_tensor_is_overwritten_by_one_of_its_own_type_only() {
    let line_of_mistake = line!() + 3;
    let program = |tape: &Tape| {
        let x = line(tape);
        x.write(&x.sum(0));
        tape.output("x", &x);
    };
    let [captured, eager, _] = mistakes(&program, &values("x", &[1.0]));
    for error in [captured, eager] {
        let error = error.expect("one element for T");
        assert!(matches!(error.fault, Fault::Type { .. }), "{error}");
        assert_eq!(error.at, "%0 input \"x\"");
        assert_eq!(error.source.map(Location::line), Some(line_of_mistake), "{error}");
    }
}

#[test]
fn an_example_that_does_not_fit_is_named() {
    let program = |tape: &Tape| {
        let read = line(tape).read();
        tape.output("x", &tape.constant(f64::from(u8::from(read.is_some())), &Type::scalar(Dtype::F32)));
    };
    let [captured, eager, _] = mistakes(&program, &values("x", &[1.0; 9]));
    for error in [captured, eager] {
        let error = error.expect("nine are too many");
        assert!(error.to_string().contains("T: expected 1..=8, found 9"), "{error}");
        assert!(error.source.is_some(), "{error}");
    }
    let [captured, eager, _] = mistakes(&program, &Values::new());
    assert_eq!(captured, None, "an example may be missing");
    assert_eq!(eager.map(|error| error.fault), Some(Fault::NotGiven { name: "x".into() }));
}

#[test]
fn an_input_with_the_name_of_a_break_is_refused() {
    let program = |tape: &Tape| {
        let x = tape.input("break.0", Dtype::F32, [2]);
        tape.output("y", &tape.foreign("library.same", &[&x], x.ty(), |v| v[0].clone()));
    };
    let error = Solution.capture("case", &program, &Values::new()).expect_err("two inputs of one name");
    assert_eq!((error.at.as_str(), error.fault), ("`break.0`", Fault::Twice));
}

#[test]
fn who_only_notes_down_names_what_no_operation_says() {
    let said = |program: Program| {
        let builder = Builder::new("case");
        program(builder.tape());
        let error = builder.finish().expect_err("no operation says it");
        assert!(error.source.is_some_and(|at| at.file().ends_with("capture.rs")), "{error}");
        format!("{}: {}", error.at, error.fault)
    };
    let no_operation = "while the graph is recorded, and no operation says that";
    let read = said(&|tape| assert_eq!(line(tape).read(), None));
    assert_eq!(read, "%0 input \"x\": its value is read while the graph is recorded, before there is one");
    let pointer = said(&|tape| assert_eq!(line(tape).pointer(), None));
    assert_eq!(pointer, format!("%0 input \"x\": its address is asked for {no_operation}"));
    let foreign = said(&|tape| {
        let x = line(tape);
        tape.output("y", &tape.foreign("library.same", &[&x], x.ty(), |v| v[0].clone()));
    });
    assert_eq!(foreign, format!("`library.same`: a function is called {no_operation}"));
    let host = said(&|tape| assert_eq!(tape.host(Host::Clock, "time.time()", || 1.0), None));
    assert_eq!(host, format!("`time.time()`: the host reads a clock {no_operation}"));
    let write = said(&|tape| line(tape).write(&line(tape)));
    assert_eq!(write, format!("%0 input \"x\": its elements are overwritten {no_operation}"));
}

#[test]
fn a_scope_is_a_label_and_no_difference() {
    let layer = |number: usize| {
        record(
            &|tape| tape.output("y", &tape.within(&format!("layers.{number}"), || line(tape).exp())),
            &Values::new(),
        )
    };
    let [first, second] = [layer(0), layer(1)];
    assert_ne!(first.graph, second.graph);
    assert_eq!(difference(&first, &second), None);
}

#[test]
fn a_number_that_is_none_is_the_same_each_time() {
    let one = record(&|tape| tape.output("y", &(&line(tape) * f64::NAN)), &Values::new());
    assert_eq!(difference(&one, &one), None);
    let zero = |zero: f64| record(&|tape| tape.output("y", &(&line(tape) * zero)), &Values::new());
    let change = difference(&zero(0.0), &zero(-0.0)).expect("x * -0.0 has another sign");
    assert_eq!(
        (change.was.as_str(), change.is.as_str()),
        ("%1 = constant 0.0 : f32[T]", "%1 = constant -0.0 : f32[T]")
    );
}

/// A graph, written once more as a program.
fn rewrite(graph: &Graph, tape: &Tape) {
    for (symbol, facts) in graph.known() {
        tape.symbol(symbol, *facts);
    }
    let inputs = graph.inputs().map(|(name, id)| tape.input(name, graph.ty(id).dtype, &graph.ty(id).shape));
    let results = tape.inline(graph, &inputs.collect::<Vec<_>>());
    graph.outputs().iter().zip(&results).for_each(|((name, _), result)| tape.output(name, result));
}

proptest! {
    #[test]
    fn any_graph_run_at_once_or_captured_means_what_it_meant(case in graphs::any()) {
        let values = case.values::<f32>();
        let program = |tape: &Tape| rewrite(&case.graph, tape);
        let captured = record(&program, &values);
        prop_assert_eq!(&captured.breaks, &[]);
        let eager = Eager::new(values.clone());
        program(eager.tape());
        let Ok(want) = interpret(&case.graph, &values) else { return Ok(()) };
        let want: Values<f32> = case.graph.outputs().iter().map(|(name, _)| name.clone()).zip(want).collect();
        prop_assert_eq!(format!("{:?}", meaning(&captured, &values)), format!("{want:?}"), "captured");
        prop_assert_eq!(format!("{:?}", eager.finish()), format!("Ok({want:?})"), "run at once");
    }
}

/// The loss of a small Llama with an adapter, as a program; what `Spec::training_loss` builds.
fn training_loss(spec: &Spec, tape: &Tape) {
    let model = Model::new(spec, tape);
    let logits = model.logits(&model.tokens("ids"));
    let loss = tape.within("loss", || loss::causal(&logits, &model.tokens("labels")));
    tape.output("loss", &loss);
}

/// A small Llama with an adapter, and values for two texts of five tokens.
fn small_llama() -> (Spec, Values<f32>) {
    let llama: Llama = SmallLlama::sound().open().expect("it is sound");
    let config = lora::Config::new(4, 8.0, Targets::AllLinear);
    let adapter = Adapter::fresh(config.clone(), &llama.config, 3407).expect("an adapter");
    let mut values = llama.values::<f32>().expect("weights of floats");
    values.extend(adapter.values::<f32>());
    values.extend(rope::values(&llama.config, 5));
    let ids = Array::integers(&[2, 5], vec![3, 1, 4, 1, 5, 9, 2, 6, 5, 3]);
    values.extend([("labels".to_owned(), ids.clone()), ("ids".to_owned(), ids)]);
    (Spec { adapter: Some(config), ..llama.spec() }, values)
}

#[test]
fn a_llama_with_an_adapter_is_captured_whole() {
    let (spec, values) = small_llama();
    let captured =
        Solution.capture("llama_loss", &|tape| training_loss(&spec, tape), &values).expect("it fits");
    assert_eq!(captured.breaks, []);
    assert_eq!(captured.graph, spec.training_loss().expect("a graph"));
    assert_eq!(captured.lines.len(), captured.graph.nodes().len());
}

#[test]
fn a_llama_run_at_once_is_what_the_interpreter_says() {
    let (spec, values) = small_llama();
    let eager = run(&|tape| training_loss(&spec, tape), &values);
    let graph = spec.training_loss().expect("a graph");
    assert_eq!(vec![eager["loss"].clone()], interpret(&graph, &values).expect("it runs"));
    assert!(eager["loss"].wide()[0] > 0.0);
}

#[test]
fn a_handle_may_be_read_inside_a_host_call() {
    let program = |tape: &Tape| {
        let x = tape.input("x", Dtype::F32, [2]);
        let largest = tape.host(Host::Print, "print(x.max())", || {
            x.reduce_max(0).read().and_then(|values| values.first().copied()).unwrap_or(-1.0)
        });
        tape.output("y", &(&x * largest.unwrap_or(-1.0)));
    };
    let values: Values<f32> = [("x".to_owned(), Array::floats(Dtype::F32, &[2], [3.0, 5.0]))].into();
    let captured = Solution.capture("host", &program, &values).expect("it is sound");
    assert_eq!(captured.breaks.len(), 2, "{:?}", captured.breaks);
    let eager = Eager::new(values);
    program(eager.tape());
    assert_eq!(eager.finish().expect("it runs")["y"].wide(), [15.0, 25.0]);
    let builder = Builder::new("host");
    program(builder.tape());
    let message = builder.finish().expect_err("it looks at the host").to_string();
    assert!(message.starts_with("`print(x.max())`: the host writes to a log"), "{message}");
}

#[test]
fn a_handle_inside_a_foreign_function_names_its_line() {
    let values: Values<f32> = [("x".to_owned(), Array::floats(Dtype::F32, &[2], [3.0, 5.0]))].into();
    let eager = Eager::new(values);
    let x = eager.tape().input("x", Dtype::F32, [2]);
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eager.tape().foreign("doubled", &[&x], x.ty(), |given| {
            _ = x.read();
            given[0].clone()
        })
    }));
    let message = ran.err().expect("it is at work");
    let message = message.downcast_ref::<&str>().copied();
    let need = "a handle is used inside a function that its recorder runs: expected the values that the function is given";
    assert_eq!(message, Some(need));
}

#[test]
fn the_id_of_a_mistake_is_the_first_mistake() {
    let builder = Builder::new("wrong");
    let [a, b] = [2, 3].map(|size| builder.tape().input(&size.to_string(), Dtype::F32, [size]));
    let wrong = a.matmul(&b).exp();
    let message = builder.id(&wrong).expect_err("no node").to_string();
    assert!(message.contains("matmul") && message.contains("capture.rs:"), "{message}");
    assert_eq!(builder.id(&a), Ok(Id(0)));
}

/// A mean of cross entropy with labels of that shape.
fn labelled(columns: &[i64], write: fn(&Tensor, &Tensor) -> Tensor) -> Result<Graph, Error> {
    let builder = Builder::new("labels");
    let logits = builder.tape().input("logits", Dtype::F32, [4, 5]);
    let labels = builder.tape().input("labels", Dtype::I32, [&[4], columns].concat());
    builder.tape().output("loss", &write(&logits, &labels));
    builder.finish()
}

#[test]
fn labels_are_one_a_row() {
    let writes: [fn(&Tensor, &Tensor) -> Tensor; 3] = [
        loss::cross_entropy,
        |logits, labels| loss::CrossEntropy::default().loss(logits, labels, None, loss::Reduction::Mean),
        |logits, labels| loss::LogProbabilities::default().rows(logits, labels).values.total(),
    ];
    for write in writes {
        let message = labelled(&[2], write).expect_err("two labels a row").to_string();
        assert!(message.contains("expected 8 elements of i32"), "{message}");
        let (one, column) = (labelled(&[], write), labelled(&[1], write));
        assert_eq!(one.expect("a graph").outputs().len(), column.expect("a graph").outputs().len());
    }
}
