//! What the pictures of a compiled step are drawn from: where its buffers lie, and what each launch takes.

use std::time::Duration;

use compiler::compile::Compiled;
use figures::StepKind;
use kernels::plan::Step;

use crate::gather::Child;
use crate::scorecard::Measurement;

/// Launches that are named.
const LONGEST: usize = 20;

fn number(value: f64, unit: &str, samples: Vec<f64>) -> Measurement {
    Measurement { value, unit: unit.into(), interval: None, samples }
}

/// Reports the places and the lives of the buffers, a sample for each.
pub(super) fn memory(child: &mut Child, compiled: &Compiled) {
    let placed = compiled.lives.iter().zip(&compiled.arena.places);
    let buffers: Vec<[f64; 4]> = placed
        .filter_map(|(life, place)| {
            let life = life.as_ref()?;
            Some([(*place)?, life.bytes, *life.parts.start(), *life.parts.end()].map(|n| n as f64))
        })
        .collect();
    let column = |i: usize| buffers.iter().map(|buffer| buffer[i]).collect::<Vec<_>>();
    let launches = compiled.plan().steps.len() as f64;
    let all: f64 = column(1).iter().sum();
    child.measured("graph.plan.place", number(compiled.arena.bytes as f64, "B", column(0)));
    child.measured("graph.plan.bytes", number(all, "B", column(1)));
    child.measured("graph.plan.first", number(launches, "count", column(2)));
    child.measured("graph.plan.last", number(launches, "count", column(3)));
}

/// Reports what each launch of a step took: for each kind of work a sample for every launch, 0 where it is of another
/// kind, and the longest with their names.
pub(super) fn timeline(child: &mut Child, compiled: &Compiled, times: &[Duration]) {
    let ms: Vec<f64> = times.iter().map(|time| (time.as_secs_f64() * 1e7).round() / 1e4).collect();
    let kinds: Vec<StepKind> = (0..ms.len()).map(|launch| work(compiled, launch)).collect();
    for kind in StepKind::ALL {
        let samples: Vec<f64> =
            kinds.iter().zip(&ms).map(|(work, ms)| if *work == kind { *ms } else { 0.0 }).collect();
        let name = format!("graph.timeline.{}", kind.name());
        child.measured(&name, number(samples.iter().sum(), "ms", samples));
    }
    let mut order: Vec<usize> = (0..ms.len()).collect();
    order.sort_by(|a, b| ms[*b].total_cmp(&ms[*a]));
    for (rank, launch) in order.into_iter().take(LONGEST).enumerate() {
        let name = format!("graph.longest.{:02}.launch {launch} {}", rank + 1, named(compiled, launch));
        child.measured(&name, number(ms[launch], "ms", Vec::new()));
    }
}

/// What kind of work a launch is.
fn work(compiled: &Compiled, launch: usize) -> StepKind {
    let scopes = compiled.scopes(launch);
    match &compiled.plan().steps[launch] {
        Step::Product(_) => StepKind::Product,
        Step::Attention { .. } | Step::AttentionGrad(_) => StepKind::Attention,
        Step::Scatter { .. } => StepKind::Scatter,
        Step::Call { .. } => StepKind::Dequantise,
        Step::Pass { .. } if !scopes.is_empty() && scopes.iter().all(|scope| scope.starts_with("optim")) => {
            StepKind::Optimiser
        }
        Step::Pass { .. } | Step::Start(_) | Step::Wait { .. } => StepKind::Program, // no step here has other ranks
    }
}

/// A launch by the part of the model that it belongs to, and what it does.
fn named(compiled: &Compiled, launch: usize) -> String {
    let step = &compiled.plan().steps[launch];
    let word = match step {
        Step::Pass { .. } => "program".to_owned(),
        Step::Call { .. } => "dequantise".to_owned(),
        step => step.name(),
    };
    let node = compiled.nodes[launch].last().map(|id| compiled.graph.node(*id).scope.as_str());
    format!("{} {word}", node.unwrap_or_default()).trim_start().to_owned()
}
