//! `graph FILE`: a graph that the reader wrote, or that a program printed, tried from its text to its results.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use figures::memory::{Memory, staircase};
use figures::{graph as drawing, lives, number, stacked};
use reference::atomic_write;
use reference::clean::clean;
use reference::graph::{Dim, Graph, Symbol};
use scorecard::file::kind_of;
use serde_json::{Value as Json, json};

use crate::courses::Supplied;
use crate::gather::{Gathered, GraphRequest, Item, Request, gather};
use crate::graph::trial::{self, Answer};
use crate::options::{Failure, Options};
use crate::score::{Attempt, Plan, start};
use crate::scorecard::{Check, Outcome};
use crate::terminal::{print, warn};
use crate::workbook::NotBuilt;

/// What is tried, and how.
#[derive(Debug, Args)]
pub(crate) struct GraphFile {
    /// The graph's text, as graphs are printed; - is standard input
    file: PathBuf,
    /// One level alone: 0 as written, 1 pruned and placed, 2 fused, 3 tuned
    #[arg(long, value_name = "0..3", value_parser = clap::value_parser!(u8).range(0..=3))]
    level: Option<u8>,
    /// The size of a symbol; drawn within its facts if none is given
    #[arg(long, value_name = "T=37", value_parser = size)]
    size: Vec<(String, i64)>,
    /// Prints the plan of the level (of level 2 if none is named)
    #[arg(long)]
    plan: bool,
    /// Draws the plan and its memory, of the same level
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn size(text: &str) -> Result<(String, i64), String> {
    let (symbol, size) = text.rsplit_once('=').ok_or_else(|| format!("expected T=37, found {text:?}"))?;
    let number =
        size.parse().map_err(|_| format!("expected a whole number behind {symbol}=, found {size:?}"))?;
    Ok((symbol.into(), number))
}

/// The level that is printed and drawn if none is named.
const SHOWN: u8 = 2;

/// Launches of which each has a line of its own in a drawing.
const MOST_LINES: usize = 40;

/// Nodes that are drawn as boxes.
const MOST_BOXES: usize = 160;

/// A graph with what was found at each level.
struct Tried<'a> {
    file: &'a GraphFile,
    graph: Graph,
    sizes: BTreeMap<Symbol, i64>,
    ranks: usize,
    plan: Plan,
    levels: Vec<Level>,
}

/// What every level is tried with.
struct GraphText<'a> {
    text: String,
    sizes: &'a BTreeMap<Symbol, i64>,
    ranks: usize,
}

/// What was found at a level.
struct Level {
    name: &'static str,
    check: Check,
    answer: Option<Answer>,
}

/// Runs `graph`.
pub(crate) fn graph(options: &Options, own: &Supplied, file: &GraphFile) -> Result<u8, Failure> {
    let plan = options.graph_plan(own)?;
    let read: &[&Path] = if file.is_stdin() { &[] } else { &[&file.file] };
    options.writes_elsewhere_with(read, ("--svg", &file.svg))?;
    let named = |message: String| Failure::Usage(format!("{}: {message}", file.name()));
    let text = file.read().map_err(named)?;
    let graph = trial::read(&text).map_err(named)?;
    let sizes = trial::sizes(&graph, &file.asked()?, options.ranks(), plan.effort.seed);
    let (sizes, mesh) = sizes.map_err(named)?;
    let ranks = mesh.ranks();
    let levels = levels(&plan, file, GraphText { text, sizes: &sizes, ranks })?;
    let tried = Tried { file, graph, sizes, ranks, plan, levels };
    let shown = if options.json {
        format!("{}\n", serde_json::to_string_pretty(&tried.json()).unwrap_or_default())
    } else {
        clean(&tried.text())
    };
    match &options.output {
        Some(path) => write(path, &shown)?,
        None => print(&shown),
    }
    if let Some(path) = &file.svg {
        match tried.svg() {
            Ok(svg) => write(path, &svg)?,
            Err(reason) => warn(&format!("no drawing: {reason}")),
        }
    }
    Ok(tried.code())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = atomic_write::write(path, text.as_bytes());
    written.map_err(|error| Failure::Fault(format!("{} cannot be written: {error}", path.display())))
}

fn unreadable(error: &io::Error) -> String {
    format!("cannot be read: {error}")
}

impl GraphFile {
    fn is_stdin(&self) -> bool {
        self.file == Path::new("-")
    }

    fn name(&self) -> String {
        if self.is_stdin() { "standard input".into() } else { self.file.display().to_string() }
    }

    /// All of it, up to the bound that the reader of texts holds it against. What is no regular file is read as
    /// standard input only: to open a pipe is to wait for its writer.
    fn read(&self) -> Result<String, String> {
        let mut bytes = Vec::new();
        let most = trial::MOST_TEXT_BYTES as u64 + 1;
        let done = if self.is_stdin() {
            io::stdin().lock().take(most).read_to_end(&mut bytes)
        } else {
            self.is_regular()?;
            File::open(&self.file).and_then(|file| file.take(most).read_to_end(&mut bytes))
        };
        done.map_err(|error| unreadable(&error))?;
        if bytes.len() as u64 == most {
            return Err(format!("expected at most {} bytes of text, found more", trial::MOST_TEXT_BYTES));
        }
        String::from_utf8(bytes).map_err(|error| {
            format!("expected UTF-8, found another byte at {}", error.utf8_error().valid_up_to())
        })
    }

    fn is_regular(&self) -> Result<(), String> {
        let kind = std::fs::metadata(&self.file).map_err(|error| unreadable(&error))?.file_type();
        if kind.is_file() {
            return Ok(());
        }
        let found = kind_of(kind);
        Err(format!("expected a regular file, or - for standard input, found {found}"))
    }

    /// The sizes that are asked for.
    fn asked(&self) -> Result<BTreeMap<String, i64>, Failure> {
        let mut asked = BTreeMap::new();
        for (symbol, size) in &self.size {
            if asked.insert(symbol.clone(), *size).is_some() {
                return Err(Failure::Usage(format!("--size {symbol}: expected one size, found two")));
            }
        }
        Ok(asked)
    }

    /// The level whose plan is shown.
    fn shown(&self) -> u8 {
        self.level.unwrap_or(SHOWN)
    }
}

/// What is found at every level, by the attempt in a child.
fn levels(
    plan: &Plan,
    file: &GraphFile,
    GraphText { text, sizes, ranks }: GraphText<'_>,
) -> Result<Vec<Level>, Failure> {
    let asked =
        |(number, _): &(usize, &'static str)| file.level.is_none_or(|level| usize::from(level) == *number);
    let names = trial::LEVELS.iter().map(|(_, name)| *name).enumerate().filter(asked).map(|(_, name)| name);
    let names: Vec<&'static str> = names.collect();
    let items: Vec<Item> = names.iter().map(|name| trial::item(name)).collect();
    let course = plan.courses[0];
    let started = match start(plan, course) {
        Ok(started) => started, // keeps the program of an exercise as long as it is run
        Err(NotBuilt::Unavailable(reason)) => return Err(Failure::Fault(reason)),
        Err(NotBuilt::Refused { words, .. }) => {
            let level = |name| Level { name, check: unbuilt(name, &words), answer: None };
            return Ok(names.into_iter().map(level).collect());
        }
    };
    let sizes = sizes.iter().map(|(symbol, size)| (symbol.to_string(), *size)).collect();
    let request = Request {
        challenge: course.name.into(),
        source: started.source,
        effort: plan.effort.clone(),
        memory_limit: course.memory_limit,
        course: course.key(),
        ranks: course.ranks,
        ordinal: 0,
        text: None,
        graph: Some(GraphRequest { text, sizes, ranks: Some(ranks), drawn: file.svg.is_some() }),
    };
    let gathered = gather(&started.launch, &request, &items, &|item| (plan.progress)(item));
    (plan.progress)("");
    let gathered = gathered.map_err(|error| Failure::Fault(format!("no child process: {error}")))?;
    names.into_iter().map(|name| found(&gathered, name)).collect()
}

/// A level of an exercise that does not compile.
fn unbuilt(name: &str, words: &str) -> Check {
    let (name, detail) = (format!("level/{name}"), words.to_owned());
    Check { name, outcome: Outcome::DoesNotCompile, detail, replay: String::new() }
}

/// What a child said of a level.
fn found(gathered: &Gathered, name: &'static str) -> Result<Level, Failure> {
    let item = format!("level/{name}");
    let check = gathered.checks.iter().find(|check| check.name == item).cloned();
    let mut check = check.ok_or_else(|| Failure::Fault(format!("{item} has no outcome")))?;
    let answer = gathered.texts.get(&item).map(|text| serde_json::from_str::<Answer>(text));
    if check.outcome == Outcome::Passed && !matches!(answer, Some(Ok(_))) {
        (check.outcome, check.detail) = (Outcome::Wrong, "wrote something else than its answer".into());
    }
    Ok(Level { name, check, answer: answer.and_then(Result::ok) })
}

impl Level {
    fn number(&self) -> u8 {
        trial::LEVELS.iter().position(|(_, name)| *name == self.name).unwrap_or(0) as u8
    }

    fn has_passed(&self) -> bool {
        self.check.outcome == Outcome::Passed
    }

    fn json(&self, with_plan: bool) -> Json {
        let answer = self.answer.as_ref();
        let mut json = json!({
            "level": self.name,
            "outcome": self.check.outcome,
            "detail": self.check.detail,
            "launches": answer.map(|answer| answer.launches),
            "arena_bytes": answer.map(|answer| answer.arena_bytes),
            "refused": answer.and_then(|answer| answer.refused.clone()),
            "outputs": answer.map_or(&[][..], |answer| &answer.outputs),
        });
        if with_plan {
            json["plan"] = json!(answer.map(|answer| &answer.plan));
        }
        json
    }

    /// Its line of the table.
    fn line(&self) -> String {
        let (name, outcome) = (self.name, self.check.outcome.word());
        let Some(answer) = &self.answer else { return format!("{name:<6} {outcome}\n") };
        if let Some(refused) = &answer.refused {
            return format!("{name:<6} {outcome}; no results, as these values have no meaning: {refused}\n");
        }
        let (launches, arena) = (answer.launches, number::bytes(answer.arena_bytes as f64));
        let worst = answer.outputs.iter().filter(|output| output.relative.is_some());
        let worst = worst.max_by(|a, b| a.relative.unwrap_or(0.0).total_cmp(&b.relative.unwrap_or(0.0)));
        let error = worst.map_or("equal to the bit".into(), |output| {
            let [own, naive] = [output.relative, output.naive_relative].map(|error| error.unwrap_or(0.0));
            format!("{own:.1e} of the largest, plain {naive:.1e}: `{}`", output.name)
        });
        format!("{name:<6} {outcome:<8} {launches:>8} {arena:>10}  {error}\n")
    }
}

/// A path as a shell takes it.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:".contains(c) || (cfg!(windows) && c == '\\');
    if path.chars().all(is_plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

impl Tried<'_> {
    fn code(&self) -> u8 {
        let has_fault = self.levels.iter().any(|level| level.check.outcome == Outcome::GraderFault);
        if has_fault { 6 } else { u8::from(!self.levels.iter().all(Level::has_passed)) }
    }

    /// The level that is printed and drawn.
    fn shown(&self) -> Option<&Level> {
        self.levels.iter().find(|level| level.number() == self.file.shown())
    }

    fn seed(&self) -> String {
        format!("{:#x}", self.plan.effort.seed)
    }

    fn json(&self) -> Json {
        let with_plan = |level: &Level| self.file.plan && level.number() == self.file.shown();
        let worst = self.levels.iter().find(|level| !level.has_passed());
        json!({
            "file": self.file.name(),
            "graph": self.graph.name,
            "nodes": self.graph.nodes().len(),
            "attempt": self.plan.attempt.name(),
            "device": "cpu",
            "ranks": self.ranks,
            "seed": self.seed(),
            "sizes": self.sizes.iter().map(|(symbol, size)| (symbol.to_string(), *size)).collect::<BTreeMap<_, _>>(),
            "outcome": worst.map_or(Outcome::Passed, |level| level.check.outcome),
            "levels": self.levels.iter().map(|level| level.json(with_plan(level))).collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let whose = match self.plan.attempt {
            Attempt::Exercise => "the exercise",
            Attempt::Solution => "the solution",
            Attempt::Own => "this program's attempt",
        };
        let (name, nodes) = (&self.graph.name, self.graph.nodes().len());
        let ranks = if self.ranks == 1 { "one rank".to_owned() } else { format!("{} ranks", self.ranks) };
        let mut text = format!("graph {name:?}, {nodes} nodes: {whose}, on {ranks} of the cpu");
        let sizes = self.sizes.iter().map(|(symbol, size)| format!("{symbol} = {size}"));
        let sizes: Vec<String> = sizes.chain([format!("values of seed {}", self.seed())]).collect();
        let _ =
            write!(text, "\n{}\n\nlevel  outcome  launches      arena  largest error\n", sizes.join(", "));
        for level in &self.levels {
            text.push_str(&level.line());
        }
        let mut messages = BTreeMap::new(); // a mistake of all levels is reported once
        for level in self.levels.iter().filter(|level| !level.has_passed()) {
            let names: &mut Vec<&Level> = messages.entry(&level.check.detail).or_default();
            names.push(level);
        }
        let mut messages: Vec<_> = messages.into_iter().collect();
        messages.sort_by_key(|(_, levels)| levels[0].number());
        for (detail, levels) in messages {
            let names: Vec<&str> = levels.iter().map(|level| level.name).collect();
            let _ = write!(text, "\n{}: {}\n{detail}\n", names.join(", "), levels[0].check.outcome.word());
            let _ = writeln!(text, "try it again: {}", self.again(levels[0]));
        }
        if let Some(answer) = self.shown().filter(|_| self.file.plan).and_then(|level| level.answer.as_ref())
        {
            let _ = write!(text, "\n{}", answer.plan);
        }
        text
    }

    /// The command that tries a level again.
    fn again(&self, level: &Level) -> String {
        let file = if self.file.is_stdin() { "-".into() } else { quoted(&self.file.name()) };
        let mut command =
            format!("cargo grader graph {file} --level {} --seed {}", level.number(), self.seed());
        for (symbol, size) in &self.sizes {
            let _ = write!(command, " --size {symbol}={size}");
        }
        if self.ranks > 1 {
            let _ = write!(command, " --ranks {}", self.ranks);
        }
        if self.plan.attempt == Attempt::Solution {
            command.push_str(" --attempt solution");
        }
        command
    }

    /// The plan and its memory.
    fn svg(&self) -> Result<String, String> {
        let level = self.shown().ok_or("the level was not tried")?;
        let answer = level.answer.as_ref().ok_or_else(|| format!("{} is not right", level.name))?;
        let drawn = answer.drawn.as_ref().ok_or("these values have no meaning")?;
        let (name, level) = (&self.graph.name, level.name);
        let mut figures = Vec::new();
        let sizes = self.sizes.iter().map(|(symbol, size)| (symbol.clone(), Dim::fixed(*size))).collect();
        let graph = Graph::parse(&drawn.graph).and_then(|graph| graph.substitute(&sizes));
        let graph = graph.map_err(|error| error.to_string())?;
        if graph.nodes().len() <= MOST_BOXES {
            let launches = drawn.nodes(&graph);
            let heading = format!("{} launches", launches.len());
            let text = graph.to_string(); // with sizes, so that every launch has its bytes
            let side = drawing::Side { heading: &heading, text: &text, launches: &launches };
            let figure = drawing::draw(&format!("{name} at {level}"), &[side]);
            figures.push(figure.map_err(|error| error.to_string())?);
        }
        let (buffers, title) = (drawn.buffers(), format!("The memory of {name} at {level}"));
        if drawn.launches.len() <= MOST_LINES {
            let name = |(name, _): &(String, _)| name.trim_start_matches(": ").to_owned(); // of no scope
            let names: Vec<String> = drawn.launches.iter().map(name).collect();
            figures.push(lives::lives(&title, &names, &buffers));
        } else {
            let (launches, arena) = (drawn.launches.len(), answer.arena_bytes as f64);
            figures.push(staircase(&Memory { buffers, launches, arena, without: None }, &title));
        }
        Ok(stacked(&format!("The plan of {name} at {level}"), &figures))
    }
}
