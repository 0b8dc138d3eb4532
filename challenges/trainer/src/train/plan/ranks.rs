//! `train --plan` of a run on ranks: what each stage takes, what is sent, how long the pipeline waits.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use challenges::fsdp::forecast::{Forecast, Planned, Sheet};
use challenges::fsdp::{self, Error, Store};
use reference::graph::ranks::Mesh;
use reference::llama::Spec;

use super::{Config, GIB};
use crate::output::Failure;

/// A step of a run: micro-batches of so many rows and tokens.
pub(super) struct Step {
    pub shape: [usize; 2],
    pub micro_batches: usize,
}

/// The plan as a text, from the model with the rows of the run, and with rows of the whole context. `memory` is the
/// number of bytes that each rank has.
pub(super) fn plan(
    config: &Config,
    mesh: &Mesh,
    [spec, whole]: [&Spec; 2],
    step: &Step,
    memory: usize,
) -> Result<String, Failure> {
    let store = Store::default();
    let pipeline = config.pipeline_parallel_schedule.pipeline();
    let (recipe, room) = (config.recipe(), config.room());
    let pipeline = Some(&pipeline);
    let loss = config.loss(spec, None)?;
    let loss = config.in_chunks(loss.as_ref());
    let planned = Planned {
        pipeline,
        room,
        loss,
        ..challenges::fsdp::planned_by_solutions(spec, &recipe, mesh, &store)
    };
    let ask = |stage| {
        planned.on_paper(stage, |sheet| {
            Ok((sheet.step(step.shape, step.micro_batches)?, sheet.bubble(lane(mesh, step))?))
        })
    };
    let stages = all(&planned, ask)?;
    let planned = Planned { spec: whole, ..planned };
    let longest = |stage| planned.on_paper(stage, |sheet| longest(sheet, step, memory));
    let longest = all(&planned, longest)?;
    let (forecasts, bubbles): (Vec<Forecast>, Vec<Option<f64>>) = stages.into_iter().unzip();
    let unit = Unit::of(&forecasts);
    let [rows, tokens] = step.shape;
    let axes: Vec<String> =
        mesh.axes().map(|axis| format!("{axis} {}", mesh.size(axis).unwrap_or(1))).collect();
    let mut text = format!(
        "{} ranks, {}; a step has {} micro-batches of {rows} rows of {tokens} tokens\n{} on a rank at its \
         fullest:\n",
        mesh.ranks(),
        axes.join(" x "),
        step.micro_batches,
        unit.name
    );
    table(&mut text, &forecasts, unit);
    traffic(&mut text, &forecasts, unit);
    if let Some(bubble) = bubbles[0] {
        let _ = writeln!(
            text,
            "ranks of the pipeline wait {:.1} % of a step (simulated: {}, F = B = R = 1, W = 0.1)",
            100.0 * bubble,
            config.pipeline_parallel_schedule.name()
        );
    }
    context(&mut text, longest, whole.config.positions, memory);
    Ok(text)
}

/// What bytes are told in.
#[derive(Clone, Copy)]
struct Unit {
    name: &'static str,
    bytes: f64,
}

impl Unit {
    /// GiB, or MiB where no stage takes a GiB.
    fn of(stages: &[Forecast]) -> Self {
        let most = stages.iter().map(Forecast::total).max().unwrap_or(0) as f64;
        if most < GIB { Self { name: "MiB", bytes: GIB / 1024.0 } } else { Self { name: "GiB", bytes: GIB } }
    }

    fn show(self, bytes: u64) -> String {
        format!("{:.3}", bytes as f64 / self.bytes)
    }
}

/// What each stage answers.
fn all<T>(planned: &Planned<'_>, ask: impl Fn(usize) -> Result<T, Error>) -> Result<Vec<T>, Failure> {
    (0..planned.stages()).map(|stage| ask(stage).map_err(Failure::usage)).collect()
}

/// Micro-batches of each lane.
fn lane(mesh: &Mesh, step: &Step) -> usize {
    step.micro_batches.div_ceil(mesh.size(fsdp::FSDP).unwrap_or(1))
}

/// The longest rows that a stage has room for, with what a step then takes.
type Longest = Option<(usize, u64)>;

fn longest(sheet: &mut Sheet<'_>, step: &Step, memory: usize) -> Result<Longest, Error> {
    let found = sheet.longest(step.shape[0], step.micro_batches, memory as u64)?;
    Ok(found.map(|(length, forecast)| (length, forecast.total())))
}

/// A row for each thing that takes memory, a column for each stage.
fn table(text: &mut String, stages: &[Forecast], unit: Unit) {
    let mut rows: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (stage, forecast) in stages.iter().enumerate() {
        for (name, bytes) in &forecast.bytes {
            rows.entry(name).or_insert_with(|| vec![0; stages.len()])[stage] = *bytes;
        }
    }
    if stages.len() > 1 {
        let names: Vec<String> =
            (0..stages.len()).map(|stage| format!("{:>10}", format!("stage {stage}"))).collect();
        let _ = writeln!(text, "  {:<11}{}", "", names.concat());
    }
    let totals = stages.iter().map(Forecast::total).collect();
    for (name, bytes) in rows.into_iter().chain([("all", totals)]) {
        let cells: Vec<String> = bytes.iter().map(|bytes| format!("{:>10}", unit.show(*bytes))).collect();
        let _ = writeln!(text, "  {name:<11}{}", cells.concat());
    }
}

fn traffic(text: &mut String, stages: &[Forecast], unit: Unit) {
    for (stage, forecast) in stages.iter().enumerate() {
        let of = if stages.len() > 1 { format!("stage {stage}: ") } else { String::new() };
        let sent: Vec<String> =
            forecast.sent.iter().map(|(axis, bytes)| format!("{axis} {}", unit.show(*bytes))).collect();
        let sent = if sent.is_empty() { "nothing".to_owned() } else { sent.join(", ") };
        let (gathered, unit) = (unit.show(forecast.gathered), unit.name);
        let _ = writeln!(
            text,
            "{of}a step gathers {gathered} {unit} of whole parts, and a rank sends, in {unit}: {sent}"
        );
    }
}

fn context(text: &mut String, stages: Vec<Longest>, most: usize, memory: usize) {
    let given = memory as f64 / GIB;
    let shortest: Option<Vec<(usize, u64)>> = stages.into_iter().collect();
    let _ = match shortest.into_iter().flatten().min() {
        Some((length, bytes)) => {
            let which =
                if length >= most { "the whole context fits" } else { "the longest context that fits" };
            writeln!(text, "{which} into {given:.1} GiB a rank: {length} tokens, {bytes} bytes")
        }
        None => writeln!(text, "no context fits into {given:.1} GiB a rank"),
    };
}
