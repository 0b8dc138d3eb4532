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
//!
//! A graph with collectives is all that on as many ranks as its groups have ([`world`]), each with values of its own,
//! and its meaning is what all ranks are together.

pub(crate) mod answer;
mod cost;
mod locate;
mod sizes;
mod text;
mod values;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use challenges::graph::Compile;
use challenges::nf4::{self, Dequantizer, Nf4};
use compiler::compile::{Compiled, Level, compile};
use compiler::groups::Groups;
use compiler::session::{Session, Settings};
use compiler::tune::Tuned;
use kernels::Cpu;
use reference::graph::interpret::Values;
use reference::graph::ranks::{Mesh, interpret_ranks};
use reference::graph::{Array, Error, Graph, Symbol};

use crate::compare::{describe, narrowed, upload};
use crate::fair;
use crate::fair::ties::{Sides, Ties};
use crate::gather::{Child, Item};

pub use answer::{Answer, Drawn, Output};
pub use text::{MOST_TEXT_BYTES, lines, read};
use values::Caution;

/// A graph with everything that its results are compared with.
pub struct Trial {
    graph: Graph,
    lines: Vec<usize>,
    sizes: BTreeMap<Symbol, i64>,
    mesh: Mesh,
    values: Vec<Values<f64>>, // of each rank
    meaning: Result<Meaning, Error>,
}

/// What every output of each rank is.
pub(crate) struct Meaning {
    truth: Vec<Vec<Array<f64>>>,
    naive: Vec<Vec<Array<f32>>>,
}

/// Values of each rank, and what they mean or why they mean nothing.
type DrawnValues = (Vec<Values<f64>>, Result<Meaning, Error>);

/// How often values are drawn for which a graph has a meaning.
const DRAWS: [Caution; 6] =
    [Caution::Free, Caution::Free, Caution::Free, Caution::Small, Caution::Small, Caution::Least];

/// Sizes for a graph's symbols: those asked for, drawn ones for the others; and its ranks, as many as its groups have
/// then, or as are asked for.
///
/// # Errors
/// If a size or the number of ranks does not fit, or the graph is larger than this verb runs.
pub fn sizes(
    graph: &Graph,
    asked: &BTreeMap<String, i64>,
    ranks: Option<usize>,
    seed: u64,
) -> Result<(BTreeMap<Symbol, i64>, Mesh), String> {
    let mut asked = asked.clone();
    if let Some((symbol, ranks)) = world::asked(graph, ranks)? {
        asked.entry(symbol).or_insert(ranks);
    }
    let sizes = sizes::sizes(graph, &asked, seed)?;
    let mesh = world::mesh(graph, &sizes, ranks)?;
    cost::Cost::of(graph, &sizes)?.of_ranks(mesh.ranks()).allowed()?;
    Ok((sizes, mesh))
}

/// Whether a graph of these sizes is tried in well under a second.
pub fn is_cheap(graph: &Graph, sizes: &BTreeMap<Symbol, i64>) -> bool {
    cost::Cost::of(graph, sizes).is_ok_and(|cost| cost.is_cheap())
}

impl Trial {
    /// Reads a text, draws values and interprets.
    ///
    /// # Errors
    /// If the text is no graph, or the sizes and the number of ranks are not its own.
    pub fn new(
        text: &str,
        sizes: &BTreeMap<Symbol, i64>,
        ranks: Option<usize>,
        seed: u64,
    ) -> Result<Self, String> {
        let graph = read(text)?;
        let mesh = world::mesh(&graph, sizes, ranks)?;
        cost::Cost::of(&graph, sizes)?.of_ranks(mesh.ranks()).allowed()?;
        let (values, meaning) = drawn(&graph, sizes, &mesh, seed)?;
        Ok(Self { graph, lines: lines(text), sizes: sizes.clone(), mesh, values, meaning })
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
        let ran = attempt.run(&self.graph, &self.sizes, &self.mesh, &all_narrowed(&self.values));
        let (meaning, ran) = match (&self.meaning, ran) {
            (Err(error), Err(refused)) => return Ok(Answer::refused(error, &refused)),
            (Err(error), Ok(_)) => return Err(format!("expected a refusal: {error}; found results")),
            (Ok(_), Err(refused)) => return Err(self.located(&attempt, &refused)),
            (Ok(meaning), Ok(ran)) => (meaning, ran),
        };
        for (rank, ran) in ran.iter().enumerate() {
            let (naive, truth) = (&meaning.naive[rank], &meaning.truth[rank]);
            for (i, (name, id)) in self.graph.outputs().iter().enumerate() {
                let rounding = fair::rounding(&self.graph, *id);
                let difference = fair::difference(&ran.results[i], &naive[i], &truth[i], rounding);
                if let Some(difference) = difference {
                    let message = locate::describe(&self.graph, *id, &naive[i], &difference);
                    let message = world::of_rank(&self.mesh, rank, &format!("output `{name}`: {message}"));
                    return Err(self.located(&attempt, &message));
                }
            }
        }
        let results: Vec<&[Array<f32>]> = ran.iter().map(|ran| &*ran.results).collect();
        Ok(Answer::new(&self.graph, &ran[0].compiled, &results, meaning, drawn))
    }

    /// What is wrong, and the first node with which it is.
    fn located(&self, attempt: &Attempt<'_>, message: &str) -> String {
        match locate::first(self, attempt) {
            Ok(site) => format!("{message}\n{site}"),
            Err(reason) => format!("{message}\nthe first node that differs is not known: {reason}"),
        }
    }
}

/// Values of each rank for which the graph has a meaning, in f64 and in f32, and rounding decides nothing; if there are
/// none such, the first ones with a meaning, or why the last ones have none.
fn drawn(
    graph: &Graph,
    sizes: &BTreeMap<Symbol, i64>,
    mesh: &Mesh,
    seed: u64,
) -> Result<DrawnValues, String> {
    let (mut last, mut tied) = (None, None);
    let ties = Ties::of(graph);
    for (draw, caution) in DRAWS.into_iter().enumerate() {
        let seed = seed.wrapping_add(draw as u64);
        let of_rank = |rank: usize| {
            let seed = seed ^ (rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15); // rank 0 has those of one rank
            values::values(graph, sizes, seed, caution)
        };
        let values = (0..mesh.ranks()).map(of_rank).collect::<Result<Vec<_>, _>>()?;
        let narrow = all_narrowed(&values);
        match (interpret_ranks(&[graph], mesh, &values), interpret_ranks(&[graph], mesh, &narrow)) {
            (Ok(truth), Ok(naive)) => {
                let is_tied = ties.as_ref().is_some_and(|ties| is_tied(ties, mesh, &values, &narrow));
                let drawn = (values, Ok(Meaning { truth, naive }));
                if !is_tied {
                    return Ok(drawn);
                }
                tied.get_or_insert(drawn);
            }
            (Err(error), Err(_)) => last = Some((values, Err(error))),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => {
                last.get_or_insert((values, Err(error)));
            }
        }
    }
    tied.or(last).ok_or_else(|| "no values were drawn".into())
}

/// Whether rounding decides a comparison on some rank.
fn is_tied(ties: &Ties, mesh: &Mesh, values: &[Values<f64>], narrow: &[Values<f32>]) -> bool {
    let probe = [ties.probe()];
    let sides = (interpret_ranks(&probe, mesh, values), interpret_ranks(&probe, mesh, narrow));
    let (Ok(truth), Ok(naive)) = sides else { return false };
    truth.iter().zip(&naive).any(|(truth, naive)| ties.first(&Sides { truth, naive }).is_some())
}

fn all_narrowed(values: &[Values<f64>]) -> Vec<Values<f32>> {
    values.iter().map(narrowed).collect()
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
    /// Compiles a graph and runs it once on each rank, in memory full of junk: the one place where this verb meets the
    /// device.
    fn run(
        &self,
        graph: &Graph,
        sizes: &BTreeMap<Symbol, i64>,
        mesh: &Mesh,
        values: &[Values<f32>],
    ) -> Result<Vec<Ran>, String> {
        if mesh.ranks() == 1 {
            return Ok(vec![self.run_rank(graph, sizes, &values[0], world::alone(mesh)?)?]);
        }
        world::launch(mesh, |rank, groups| self.run_rank(graph, sizes, &values[rank], groups))
    }

    fn run_rank(
        &self,
        graph: &Graph,
        sizes: &BTreeMap<Symbol, i64>,
        values: &Values<f32>,
        groups: Groups,
    ) -> Result<Ran, String> {
        let device = Cpu::with_threads(2);
        let mut compiled = compile(self.passes, graph, sizes, self.level.options()).map_err(describe)?;
        if self.level.tunes() {
            compiled.tune(self.passes, &device, &mut Tuned::default()).map_err(describe)?;
        }
        let callee = Dequantizer(self.dequantizer);
        let settings = Settings { poison: true, ..Settings::default() };
        let mut session = Session::new(self.passes, &device, &callee, settings).with_groups(groups);
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
        let trial = Trial::new(&job.text, &sizes, job.ranks, seed)?;
        answer = Some(trial.at(passes, own.unwrap_or(&nf4::Solution), *level, job.drawn)?);
        Ok(())
    });
    if let Some(answer) = answer {
        child.text(&serde_json::to_string(&answer).unwrap_or_default());
    }
}
