//! Guards: compilers that look as if they compiled. `tests` holds a cheat for each guard.

use std::cell::Cell;

use challenges::graph::Compile;
use challenges::nf4;
use compiler::calls::compilations;
use compiler::compile::Level;
use compiler::session::{Session, Settings};
use kernels::Device;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, Facts, Graph, Tape, Type, interpret};

use super::begun::Begun;
use super::model::{Model, TINY};
use crate::compare::{describe, upload};
use crate::random::Random;
use crate::table;

/// What a guard does on a device; the number is the run's seed.
type Guard = fn(&dyn Compile, &dyn Device, u64) -> Verdict;

/// `Some` says what was caught.
type Verdict = Result<Option<String>, String>;

/// The guards of C.
const GUARDS: [(&str, Guard); 6] = [
    ("a fallback that hides", |attempt, _, seed| hidden_fallback(attempt, seed)),
    ("a guard on values", |attempt, _, seed| guard_on_values(attempt, seed)),
    ("a recompilation that is not counted", uncounted),
    ("an eager loss", |attempt, _, seed| eager_loss(attempt, seed)),
    ("answers of the examples", |attempt, _, seed| baked(attempt, seed)),
    ("right on the checked programs only", |attempt, _, seed| unseen(attempt, seed)),
];

/// Their names.
pub(super) const NAMES: [&str; 6] = table::names(&GUARDS);

/// Runs one guard.
pub(super) fn run(name: &str, attempt: &dyn Compile, device: &dyn Device, seed: u64) -> Verdict {
    table::find(&GUARDS, name)?(attempt, device, seed)
}

/// What a program does outside of the graph is counted by the program itself.
fn hidden_fallback(attempt: &dyn Compile, seed: u64) -> Verdict {
    let mut random = Random::named(seed, "fallback");
    let shape = [2 + random.below(6), 2 + random.below(6)];
    let steps = 2 + random.below(4);
    let looks = random.below(steps);
    let asked = Cell::new(0);
    let program = |tape: &Tape| {
        let mut x = tape.input("x", Dtype::F32, shape);
        for step in 0..steps {
            asked.set(asked.get() + 1);
            let twice = |values: &[Array<f32>]| {
                let doubled = values[0].as_floats().iter().map(|x| f64::from(2.0 * x));
                Array::floats(Dtype::F32, &shape, doubled)
            };
            x = tape.foreign("cdouble", &[&x], &Type::new(Dtype::F32, shape), twice);
            if step == looks {
                asked.set(asked.get() + 1);
                _ = x.pointer();
            }
            x = x.sigmoid();
        }
        tape.output("y", &x);
    };
    let examples = Values::from([("x".to_owned(), numbers(&shape, random.unit()))]);
    let captured = attempt.capture("foreign", &program, &examples).map_err(describe)?;
    let (asked, message) = (asked.get(), captured.breaks.len());
    Ok((message < asked)
        .then(|| format!("the program left the graph {asked} times, {message} breaks are reported")))
}

/// A branch on a value goes one way for one batch, and the other way for the next.
fn guard_on_values(attempt: &dyn Compile, seed: u64) -> Verdict {
    let mut random = Random::named(seed, "values");
    let (len, reach) = (1 + random.below(9), 0.5 + random.unit());
    let program = |tape: &Tape| {
        let x = tape.input("x", Dtype::F32, [len]);
        let positive = x.total().read().is_some_and(|sum| sum.first().is_some_and(|sum| *sum > 0.0));
        tape.output("y", &if positive { x.exp() } else { x.sigmoid() });
    };
    let mut texts = Vec::new();
    for value in [reach, -reach] {
        let values = Array::floats(Dtype::F32, &[len], std::iter::repeat_n(value, len));
        let examples = Values::from([("x".to_owned(), values)]);
        let captured = attempt.capture("branch", &program, &examples).map_err(describe)?;
        if !captured.breaks.is_empty() {
            return Ok(None); // said, and so nobody is misled
        }
        texts.push(captured.graph.to_string());
    }
    let differ = texts[0] != texts[1];
    let same = "the program looks at a value, and no break is reported";
    Ok(Some(if differ { format!("{same}: another value gives another graph") } else { same.to_owned() }))
}

/// Everything that is compiled is counted here as well.
fn uncounted(attempt: &dyn Compile, device: &dyn Device, seed: u64) -> Verdict {
    let begun = Begun::of(attempt);
    if let Some(step) = begun.lacks() {
        return Err(format!("{step} is not written yet"));
    }
    let mut random = Random::named(seed, "uncounted");
    let (most, width, low) = (40 + random.below(80), 4 + random.below(12), 4 + random.below(12));
    let made = graph(|tape| {
        let length = tape.symbol("T", Facts::range(1, most as i64));
        let x = tape.input("x", Dtype::F32, [length, width.into()]);
        let low = x.matmul(&tape.input("a", Dtype::F32, [width, low]));
        tape.output("y", &low.softmax(1));
    })?;
    let settings = Settings { level: Level::O3, ..begun.settings() };
    let mut session = Session::new(attempt, device, &nf4::DEQUANTIZER, settings);
    let program = session.load(&made).map_err(describe)?;
    let before = compilations();
    for _ in 0..20 {
        let length = 1 + random.below(most);
        let values = Values::from([
            ("x".to_owned(), numbers(&[length, width], random.unit())),
            ("a".to_owned(), numbers(&[width, low], 0.3)),
        ]);
        session.run(program, &upload(device, &values).map_err(describe)?).map_err(describe)?;
    }
    let (done, counted) = (compilations() - before, session.counters().compilations as u64);
    Ok((done > counted).then(|| format!("{done} compilations were made, {counted} are counted")))
}

/// The loss of the captured program follows its labels.
fn eager_loss(attempt: &dyn Compile, seed: u64) -> Verdict {
    let model = Model::drawn(TINY, seed)?;
    let random = &mut Random::named(seed, "eager");
    let length = 4 + random.below(8);
    let sample = |random: &mut Random| {
        let mut values = weights(&model);
        values.append(&mut model.tokens(length, random));
        values
    };
    let examples = sample(random);
    let captured = attempt.capture("llama_loss", &model.program(), &examples).map_err(describe)?;
    let own = model.spec.training_loss().map_err(describe)?;
    for _ in 0..2 {
        let values = sample(random);
        let want = interpret(&own, &values).map_err(describe)?;
        let got = interpret(&captured.graph, &values).map_err(describe)?;
        if captured.breaks.is_empty() && got.first() != want.first() {
            let number = |values: &[Array<f32>]| values.first().map(Array::wide);
            return Ok(Some(format!(
                "the loss in the captured graph is {:?}, it is {:?}: it does not follow its inputs",
                number(&got),
                number(&want)
            )));
        }
    }
    let in_scope = |graph: &Graph| graph.nodes().iter().filter(|node| node.scope.starts_with("loss")).count();
    let (got, want) = (in_scope(&captured.graph), in_scope(&own));
    Ok((got < want && captured.breaks.is_empty()).then(|| {
        format!("{got} operations of the captured graph belong to the loss, the program has {want}")
    }))
}

fn weights(model: &Model) -> Values<f32> {
    let graph = model.spec.training_loss().unwrap_or_default();
    model.fixed(&graph)
}

/// Inputs that had example values are inputs still.
fn baked(attempt: &dyn Compile, seed: u64) -> Verdict {
    let mut random = Random::named(seed, "baked");
    let [rows, width, columns] = [0; 3].map(|_| 1 + random.below(6));
    let program = |tape: &Tape| {
        let x = tape.input("x", Dtype::F32, [rows, width]);
        let w = tape.input("w", Dtype::F32, [width, columns]);
        tape.output("y", &x.matmul(&w).tanh());
    };
    let values = |start: f64| {
        Values::from([
            ("x".to_owned(), numbers(&[rows, width], start)),
            ("w".to_owned(), numbers(&[width, columns], 2.0 * start)),
        ])
    };
    let [first, second] = [0.2, 0.6].map(|least| least + 0.3 * random.unit());
    let captured = attempt.capture("baked", &program, &values(first)).map_err(describe)?;
    let want = interpret(&graph(program)?, &values(second)).map_err(describe)?;
    let got = interpret(&captured.graph, &values(second)).map_err(describe)?;
    Ok((got != want).then(|| "other inputs than the examples do not give other results".to_owned()))
}

/// Programs that no check has.
fn unseen(attempt: &dyn Compile, seed: u64) -> Verdict {
    let mut random = Random::named(seed, "unseen");
    for _ in 0..8 {
        let side = 2 + random.below(7);
        let choices: Vec<usize> = (0..8 + random.below(8)).map(|_| random.below(6)).collect();
        let program = |tape: &Tape| {
            let mut x = tape.input("x", Dtype::F32, [side, side]);
            for choice in &choices {
                x = match choice {
                    0 => x.exp().sigmoid(),
                    1 => x.matmul(&x.t()).tanh(),
                    2 => &x + 0.25,
                    3 => x.softmax(1),
                    4 => tape.within("part", || x.slice(0, 0, side as i64).transpose(&[1, 0])),
                    _ => x.max(&x.t()),
                };
            }
            tape.output("y", &x);
        };
        let captured = attempt.capture("captured", &program, &Values::new()).map_err(describe)?;
        let own = graph(program)?;
        if captured.graph.to_string() != own.to_string() {
            let wrong = "a program of operations alone is captured as another one";
            return Ok(Some(format!("{wrong}:\n{}\nit is\n{own}", captured.graph)));
        }
    }
    Ok(None)
}

fn graph(write: impl Fn(&Tape)) -> Result<Graph, String> {
    let builder = Builder::new("captured");
    write(builder.tape());
    builder.finish().map_err(describe)
}

/// Numbers that follow from a start.
fn numbers(shape: &[usize], start: f64) -> Array<f32> {
    let count = shape.iter().product::<usize>();
    Array::floats(Dtype::F32, shape, (0..count).map(|i| (start * (i + 1) as f64 * 1.7).sin()))
}
