//! C.1, capture: programs of operations alone, and every break of the zoo.

use challenges::graph::Compile;
use challenges::graph::zoo::{Case, Shows, zoo};
use compiler::front::capture::Capture;
use compiler::front::change::difference;
use compiler::front::explain::Break;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, Facts, Graph, Tape};

use super::{Check, Rows};
use crate::compare::describe;
use crate::graph::model::{Model, TINY};

pub(super) const CHECKS: &Rows<Check> = &[
    ("operations-alone", |trial| operations(trial.passes)),
    ("parts-and-facts", |trial| same(trial.passes, &parts_and_facts)),
    ("a-mistake-names-its-line", |trial| mistake(trial.passes).and_then(|()| unsound(trial.passes))),
    ("a-read-is-a-break", |trial| read(trial.passes, false)),
    ("a-read-is-answered", |trial| read(trial.passes, true)),
    ("behind-a-call", |trial| behind_a_call(trial.passes).and_then(|()| call_is_made(trial.passes))),
    ("every-break-of-the-zoo", |trial| {
        zoo().iter().try_for_each(|case| breaks(trial.passes, case)).and_then(|()| overwritten(trial.passes))
    }),
    ("the-cured-zoo", |trial| zoo().iter().try_for_each(|case| cured(trial.passes, case))),
    ("a-llama", |trial| same(trial.passes, &Model::drawn(TINY, 1)?.program())),
];

/// A program of parts within parts, over a size that is a symbol.
fn parts_and_facts(tape: &Tape) {
    let length = tape.symbol("T", Facts::range(2, 64).multiple_of(2));
    let x = tape.input("x", Dtype::F32, [length]);
    let y = tape.within("layers.0", || tape.within("mlp", || x.exp()));
    tape.output("y", &tape.within("norm", || &y / &y.sum(0)));
}

fn capture(
    attempt: &dyn Compile,
    program: &dyn Fn(&Tape),
    examples: &Values<f32>,
) -> Result<Capture, String> {
    attempt.capture("captured", program, examples).map_err(describe)
}

/// The graph that a builder writes of a program.
fn built(program: &dyn Fn(&Tape)) -> Result<Graph, String> {
    let builder = Builder::new("captured");
    program(builder.tape());
    builder.finish().map_err(describe)
}

fn operations(attempt: &dyn Compile) -> Result<(), String> {
    let line = std::cell::Cell::new(0);
    let program = |tape: &Tape| {
        let x = tape.input("x", Dtype::F32, [3_usize, 4]);
        let w = tape.input("w", Dtype::F32, [4_usize, 4]);
        line.set(line!() + 1);
        let product = x.matmul(&w);
        tape.output("y", &(&product.sigmoid() + &x));
        tape.output("sum", &x.total());
    };
    same(attempt, &program)?;
    let captured = capture(attempt, &program, &Values::new())?;
    let got: Vec<u32> = captured.lines.iter().map(|line| line.line()).collect();
    if got.len() != captured.graph.nodes().len() || got[2] != line.get() {
        let nodes = captured.graph.nodes().len();
        return Err(format!(
            "`lines` has {got:?} for {nodes} nodes; %2, the product, was asked for in line {}",
            line.get()
        ));
    }
    Ok(())
}

/// A program of operations alone is its graph, and nothing else.
fn same(attempt: &dyn Compile, program: &dyn Fn(&Tape)) -> Result<(), String> {
    let captured = capture(attempt, program, &Values::new())?;
    if let Some(found) = captured.breaks.first() {
        return Err(format!("a program of operations alone has a break:\n{found}"));
    }
    let (got, want) = (captured.graph.to_string(), built(program)?.to_string());
    let differs = got.lines().zip(want.lines()).find(|(got, want)| got != want);
    let describe = |(got, want): (&str, &str)| Err(format!("got  {got}\nwant {want}"));
    match differs {
        Some(lines) => describe(lines),
        None if got.lines().count() != want.lines().count() => describe((&got, &want)),
        None if captured.graph != built(program)? => {
            Err("the parts of the model are missing in the graph".into())
        }
        None => Ok(()),
    }
}

fn mistake(attempt: &dyn Compile) -> Result<(), String> {
    let mut line = 0;
    let seen = std::cell::Cell::new(0);
    let program = |tape: &Tape| {
        let x = tape.input("x", Dtype::F32, [3_usize, 4]);
        seen.set(line!() + 1);
        let wrong = x.matmul(&x);
        tape.output("y", &wrong.exp());
    };
    line += capture_line(attempt, &program)?;
    if line == seen.get() {
        Ok(())
    } else {
        Err(format!("line {line} is named, line {} is wrong", seen.get()))
    }
}

/// The line that an error names.
fn capture_line(attempt: &dyn Compile, program: &dyn Fn(&Tape)) -> Result<u32, String> {
    match attempt.capture("captured", program, &Values::new()) {
        Ok(_) => Err("a product of (3, 4) and (3, 4) is captured without an error".into()),
        Err(error) => {
            error.source.map(std::panic::Location::line).ok_or_else(|| "the error names no line".into())
        }
    }
}

fn read(attempt: &dyn Compile, with_examples: bool) -> Result<(), String> {
    let line = std::cell::Cell::new((0, None));
    let program = |tape: &Tape| {
        let x = tape.input("x", Dtype::F32, [2_usize]);
        let sum = x.total();
        line.set((line!() + 1, None));
        let value = sum.read();
        line.set((line.get().0, value.map(|values| values[0].to_bits())));
        tape.output("y", &x.exp());
    };
    let mut examples = Values::new();
    if with_examples {
        examples.insert("x".into(), Array::floats(Dtype::F32, &[2], [1.5, 2.5]));
    }
    let captured = capture(attempt, &program, &examples)?;
    let (asked, answer) = line.get();
    let [found] = &captured.breaks[..] else {
        return Err(format!("the program reads one value, {} breaks are reported", captured.breaks.len()));
    };
    if found.at.line() != asked {
        return Err(format!("the break names line {}, the read is in line {asked}", found.at.line()));
    }
    let want = with_examples.then_some(4.0_f64);
    let got = answer.map(f64::from_bits);
    if got.map(f64::to_bits) == want.map(f64::to_bits) {
        Ok(())
    } else {
        Err(format!("the answer of the read: expected {want:?}, found {got:?}"))
    }
}

/// A call's result is an input of what comes after it.
fn behind_a_call(attempt: &dyn Compile) -> Result<(), String> {
    let program = |tape: &Tape| {
        let x = tape.input("x", Dtype::F32, [2_usize]);
        let y = tape.foreign("library", &[&x.exp()], x.ty(), |values| values[0].clone());
        tape.output("y", &y.sigmoid());
    };
    let captured = capture(attempt, &program, &Values::new())?;
    if captured.breaks.len() != 1 {
        return Err(format!("one call, {} breaks", captured.breaks.len()));
    }
    let inputs: Vec<&str> = captured.graph.inputs().map(|(name, _)| name).collect();
    if inputs == ["x", "break.0"] && captured.graph.find_output("y").is_some() {
        Ok(())
    } else {
        Err(format!(
            "expected the inputs x and break.0 and the output y after the call, found the inputs {inputs:?}"
        ))
    }
}

/// With examples a call is made, and what it gives can be read after it.
fn call_is_made(attempt: &dyn Compile) -> Result<(), String> {
    let answer = std::cell::RefCell::new(None);
    let program = |tape: &Tape| {
        let x = tape.input("x", Dtype::F32, [2_usize]);
        let double =
            |values: &[Array<f32>]| Array::floats(Dtype::F32, &[2], values[0].wide().iter().map(|x| 2.0 * x));
        let y = tape.foreign("library", &[&x], x.ty(), double);
        *answer.borrow_mut() = y.total().read();
        tape.output("y", &y);
    };
    let examples = Values::from([("x".into(), Array::floats(Dtype::F32, &[2], [1.5, 2.5]))]);
    capture(attempt, &program, &examples)?;
    match &*answer.borrow() {
        Some(values) if values[..] == [8.0] => Ok(()),
        got => Err(format!(
            "the call doubles 1.5 and 2.5; a read of the sum after it: expected [8.0], found {got:?}"
        )),
    }
}

/// A mistake that no single operation makes is one too: two outputs of one name.
fn unsound(attempt: &dyn Compile) -> Result<(), String> {
    let program = |tape: &Tape| {
        let x = tape.input("x", Dtype::F32, [2_usize]);
        tape.output("y", &x.exp());
        tape.output("y", &x.sigmoid());
    };
    match attempt.capture("captured", &program, &Values::new()) {
        Ok(_) => {
            Err("a program with two outputs `y` is captured: the graph was not checked at the end".into())
        }
        Err(_) => Ok(()),
    }
}

/// Behind a write every handle of the place means what was written; what does not fit is a mistake.
fn overwritten(attempt: &dyn Compile) -> Result<(), String> {
    let write = |shape: usize| {
        move |tape: &Tape| {
            let x = tape.input("x", Dtype::F32, [2_usize]);
            let (y, alias) = (x.exp(), x.clone());
            let other = tape.input("other", Dtype::F32, [shape]);
            x.write(&if shape == 2 { y } else { other });
            tape.output("z", &alias.sigmoid());
        }
    };
    let captured = capture(attempt, &write(2), &Values::new())?;
    let z = captured.graph.find_output("z").ok_or("the output z is missing")?;
    let input = captured.graph.node(z).inputs.first().copied();
    let read = input.map_or("", |input| captured.graph.node(input).op.name());
    if read != "exp" {
        return Err(format!(
            "x is overwritten with exp x; what sigmoid reads after it: expected `exp`, found `{read}`"
        ));
    }
    match attempt.capture("captured", &write(3), &Values::new()) {
        Ok(_) => Err("a tensor of (2) is overwritten with one of (3), and no error is given".into()),
        Err(_) => Ok(()),
    }
}

fn breaks(attempt: &dyn Compile, case: &Case) -> Result<(), String> {
    let Shows::Breaks { times, program, examples, .. } = &case.shows else { return Ok(()) };
    let captured = capture(attempt, program, &examples())?;
    let message: Vec<String> = captured.breaks.iter().map(Break::to_string).collect();
    if message.len() == *times {
        Ok(())
    } else {
        Err(format!(
            "{}: {} breaks are reported, there are {times}:\n{}",
            case.name,
            message.len(),
            message.join("\n")
        ))
    }
}

fn cured(attempt: &dyn Compile, case: &Case) -> Result<(), String> {
    let found = match &case.shows {
        Shows::Breaks { cured, examples, .. } => capture(attempt, cured, &examples())?.breaks,
        Shows::Recompiles { numbers, cured, .. } => {
            let [a, b] = numbers.map(|number| capture(attempt, &|tape| cured(tape, number), &Values::new()));
            let (a, b) = (a?, b?);
            if let Some(change) = difference(&a, &b) {
                return Err(format!("{}: the cured program has two graphs:\n{change}", case.name));
            }
            a.breaks
        }
    };
    found.first().map_or(Ok(()), |found| Err(format!("{}: the cured program breaks:\n{found}", case.name)))
}
