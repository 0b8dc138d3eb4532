//! A graph that somebody wrote, tried: checked, compiled at a level, run on drawn values, compared with its meaning.
//!
//! `cargo grader graph FILE` ([`crate::verb`]) reads the text and chooses sizes, which is cheap and touches no attempt.
//! What compiles runs in a child, as all attempts do: an item a level ([`work`]), whose outcome is a check and whose
//! numbers are an [`Answer`] in JSON.
//!
//! ```text
//! text --read--> graph --sizes--> numbers --cost--> refused, or tried:
//! values --interpret--> truth, naive                        |
//!        --compile, run--> results --fair tolerance--> an answer, or the first node that differs
//! ```

pub(crate) mod answer;
mod cost;
mod locate;
mod sizes;
mod text;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

use challenges::graph::Compile;
use challenges::nf4::{self, Dequantizer, Nf4};
use compiler::compile::{Compiled, Level, compile};
use compiler::session::{Session, Settings};
use compiler::tune::Tuned;
use kernels::Cpu;
use reference::graph::interpret::Values;
use reference::graph::{Array, Error, Graph, Symbol, interpret};

use super::compare::{describe, narrowed};
use super::model::upload;
use crate::fair;
use crate::gather::{Child, Item};

pub use answer::{Answer, Drawn, Output};
pub use text::{MOST_TEXT_BYTES, lines, read};
use values::Caution;

/// A graph with everything that its results are compared with.
pub struct Trial {
    graph: Graph,
    lines: Vec<usize>,
    sizes: BTreeMap<Symbol, i64>,
    values: Values<f64>,
    meaning: Result<Meaning, Error>,
}

/// What every output is.
struct Meaning {
    truth: Vec<Array<f64>>,
    naive: Vec<Array<f32>>,
}

/// How often values are drawn for which a graph has a meaning.
const DRAWS: [Caution; 6] =
    [Caution::Free, Caution::Free, Caution::Free, Caution::Small, Caution::Small, Caution::Least];

/// Sizes for a graph's symbols: those asked for, drawn ones for the others.
///
/// # Errors
/// If a size does not fit, or the graph is larger than this verb runs.
pub fn sizes(
    graph: &Graph,
    asked: &BTreeMap<String, i64>,
    seed: u64,
) -> Result<BTreeMap<Symbol, i64>, String> {
    sizes::sizes(graph, asked, seed)
}

/// Whether a graph of these sizes is tried in well under a second.
pub fn is_cheap(graph: &Graph, sizes: &BTreeMap<Symbol, i64>) -> bool {
    cost::Cost::of(graph, sizes).is_ok_and(|cost| cost.is_cheap())
}

impl Trial {
    /// Reads a text, draws values and interprets.
    ///
    /// # Errors
    /// If the text is no graph, or the sizes are not its own.
    pub fn new(text: &str, sizes: &BTreeMap<Symbol, i64>, seed: u64) -> Result<Self, String> {
        let graph = read(text)?;
        cost::Cost::of(&graph, sizes)?.allowed()?;
        let (values, meaning) = drawn(&graph, sizes, seed)?;
        Ok(Self { graph, lines: lines(text), sizes: sizes.clone(), values, meaning })
    }

    /// Compiles at a level, runs, compares.
    ///
    /// # Errors
    /// What is wrong, with the first node that differs.
    pub fn at(
        &self,
        passes: &dyn Compile,
        dequantizer: &dyn Nf4,
        level: Level,
        drawn: bool,
    ) -> Result<Answer, String> {
        let attempt = Attempt { passes, dequantizer, level };
        let ran = attempt.run(&self.graph, &self.sizes, &narrowed(&self.values));
        let (meaning, ran) = match (&self.meaning, ran) {
            (Err(error), Err(refused)) => return Ok(Answer::refused(error, &refused)),
            (Err(error), Ok(_)) => return Err(format!("expected a refusal: {error}; found results")),
            (Ok(_), Err(refused)) => return Err(self.located(&attempt, &refused)),
            (Ok(meaning), Ok(ran)) => (meaning, ran),
        };
        for (i, (name, id)) in self.graph.outputs().iter().enumerate() {
            let rounding = fair::rounding(&self.graph, *id);
            let difference =
                fair::difference(&ran.results[i], &meaning.naive[i], &meaning.truth[i], rounding);
            if let Some(difference) = difference {
                let message = locate::describe(&self.graph, *id, &meaning.naive[i], &difference);
                return Err(self.located(&attempt, &format!("output `{name}`: {message}")));
            }
        }
        Ok(Answer::new(&self.graph, &ran.compiled, &ran.results, (&meaning.naive, &meaning.truth), drawn))
    }

    /// What is wrong, and the first node with which it is.
    fn located(&self, attempt: &Attempt<'_>, message: &str) -> String {
        match locate::first(self, attempt) {
            Ok(site) => format!("{message}\n{site}"),
            Err(reason) => format!("{message}\nthe first node that differs is not known: {reason}"),
        }
    }
}

/// Values for which the graph has a meaning, in f64 and in f32; if there are none, why the last ones have none.
fn drawn(
    graph: &Graph,
    sizes: &BTreeMap<Symbol, i64>,
    seed: u64,
) -> Result<(Values<f64>, Result<Meaning, Error>), String> {
    let mut last = None;
    for (draw, caution) in DRAWS.into_iter().enumerate() {
        let values = values::values(graph, sizes, seed.wrapping_add(draw as u64), caution)?;
        match (interpret(graph, &values), interpret(graph, &narrowed(&values))) {
            (Ok(truth), Ok(naive)) => return Ok((values, Ok(Meaning { truth, naive }))),
            (Err(error), Err(_)) => last = Some((values, Err(error))),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => {
                last.get_or_insert((values, Err(error)));
            }
        }
    }
    last.ok_or_else(|| "no values were drawn".into())
}

/// Whose passes compile, with whose dequantiser, how far.
pub(crate) struct Attempt<'a> {
    passes: &'a dyn Compile,
    dequantizer: &'a dyn Nf4,
    level: Level,
}

/// A graph that ran.
struct Ran {
    compiled: Arc<Compiled>,
    results: Vec<Array<f32>>,
}

impl Attempt<'_> {
    /// Compiles a graph and runs it once, in memory full of junk: the one place where this verb meets the device.
    fn run(&self, graph: &Graph, sizes: &BTreeMap<Symbol, i64>, values: &Values<f32>) -> Result<Ran, String> {
        let device = Cpu::with_threads(2);
        let mut compiled = compile(self.passes, graph, sizes, self.level.options()).map_err(describe)?;
        if self.level.tunes() {
            compiled.tune(self.passes, &device, &mut Tuned::default()).map_err(describe)?;
        }
        let callee = Dequantizer(self.dequantizer);
        let settings = Settings { poison: true, ..Settings::default() };
        let mut session = Session::new(self.passes, &device, &callee, settings);
        let program = session.load_compiled(compiled).map_err(describe)?;
        let given = upload(&device, values).map_err(describe)?;
        let outputs = session.run(program, &given).map_err(describe)?;
        let ports = outputs.compiled().outputs();
        let results = ports.iter().map(|port| outputs.array(&port.name)).collect::<Result<_, _>>();
        let (compiled, results) = (outputs.compiled().clone(), results.map_err(describe)?);
        Ok(Ran { compiled, results })
    }
}

/// Every level, as the command line and a child's items name it.
pub(crate) const LEVELS: [(Level, &str); 4] =
    [(Level::O0, "O0"), (Level::O1, "O1"), (Level::O2, "O2"), (Level::O3, "O3")];

/// Seconds that a level may take.
const LEVEL_SECONDS: u64 = 180;

/// The item that tries a level.
pub(crate) fn item(name: &str) -> Item {
    Item::new(format!("level/{name}"), LEVEL_SECONDS).texting(answer::MOST_BYTES)
}

/// Tries a level in a child.
pub(crate) fn work(child: &mut Child, passes: &dyn Compile, own: Option<&dyn Nf4>, level: &str) {
    let name = format!("level/{level}");
    let (Some(job), seed) = (child.request.graph.clone(), child.request.effort.seed) else {
        return child.impossible(&name, "no graph was given");
    };
    let Some((level, _)) = LEVELS.iter().find(|(_, known)| *known == level) else {
        return child.impossible(&name, "no such level");
    };
    let sizes = job.sizes.iter().map(|(symbol, size)| (symbol.as_str().into(), *size)).collect();
    let mut answer = None;
    child.check(&name, || {
        let trial = Trial::new(&job.text, &sizes, seed)?;
        answer = Some(trial.at(passes, own.unwrap_or(&nf4::Solution), *level, job.drawn)?);
        Ok(())
    });
    if let Some(answer) = answer {
        child.text(&serde_json::to_string(&answer).unwrap_or_default());
    }
}
