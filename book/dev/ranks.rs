//! Computed figures of challenge B: three schedules of the same work, and the bytes of a rank of one, two, four, eight.
//!
//! Both are the same on every machine: schedules are simulated, and a rank's bytes counted on paper, from the sizes of
//! a model that no machine here could hold.

use std::sync::OnceLock;

use challenges::fsdp::forecast::{Forecast, Planned};
use challenges::fsdp::{self, FSDP, Fsdp, Room, Store};
use figures::gantt::{Gantt, chart};
use figures::shares::{Bar, shares};
use reference::graph::Dtype;
use reference::graph::ranks::Mesh;
use reference::llama::train::Recipe;
use reference::llama::{Config, Rope, Rows, Scaling, Spec, Storage};
use reference::lora::{self, Targets};
use reference::nf4;
use reference::optim::AdamW;
use reference::schedule::{
    Error, Held, Schedule, Shape, Stage, Times, Workload, check, one_f_one_b, zero_bubble,
};

use crate::figure::Drawn;

// ---- schedules

/// Ranks and micro-batches.
const SHAPE: [usize; 2] = [4, 8];

/// Three schedules of the same work, on one axis.
pub(crate) fn schedules() -> Result<Drawn, String> {
    let [ranks, micro_batches] = SHAPE;
    let (shape, workload) = (Shape::line(ranks, micro_batches).map_err(said)?, qlora());
    let solution = |shape: Shape, workload: &Workload| fsdp::Solution.schedule(shape, workload);
    let gantts = [
        simulated("1F1B", one_f_one_b(shape, &workload), &workload)?,
        simulated("zero bubble", zero_bubble(shape, &workload), &workload)?,
        simulated("B.8: R while a rank waits for its gradient", solution(shape, &workload), &workload)?,
    ];
    let svg = chart("Three schedules of the same work", &gantts).ok_or("the schedules cannot be drawn")?;
    let caption = "Four ranks, a row each, and eight micro-batches, simulated. Strips at the foot of a box are what \
                   runs within it: R and W in 1F1B, R in the zero-bubble schedule. In the third, R is an operation of \
                   its own.";
    Ok(("fsdp-schedules", caption, svg))
}

/// A stage under QLoRA: F, B and R take equally long, and W, of an adapter alone, a tenth.
fn qlora() -> Workload {
    let times = Times { forward: 1.0, backward: 1.0, weight: 0.1, recompute: 1.0, dequantize: 0.0 };
    let held = Held { forward: 1, recompute: 12, weight: 12 };
    Workload::uniform(Stage { times, held, recomputed: true, trained: true })
}

fn simulated(name: &str, schedule: Result<Schedule, Error>, workload: &Workload) -> Result<Gantt, String> {
    let schedule = schedule.map_err(said)?;
    let timeline = check(&schedule, workload).map_err(said)?.simulate();
    Ok(Gantt::new((name, "time; F = B = R = 1, W = 0.1"), &schedule, &timeline, None))
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

// ---- bytes

/// Numbers of ranks.
const RANKS: [usize; 4] = [1, 2, 4, 8];
/// Rows and tokens of a micro-batch, and micro-batches of a rank. One would not do: the arena is at its largest after
/// the first, and what is gathered beside it counts from the second on.
const ROWS: [usize; 2] = [2, 2048];
const MICRO_BATCHES: usize = 4;

/// What a rank holds at its fullest, by the number of ranks.
pub(crate) fn bytes() -> Result<Drawn, String> {
    let bars = forecasts()?.into_iter().zip(RANKS).map(|(forecast, ranks)| {
        Bar::of(&if ranks == 1 { "1 rank".to_owned() } else { format!("{ranks} ranks") }, &forecast.bytes)
    });
    let svg = shares("Bytes of a rank at its fullest", &bars.collect::<Vec<_>>());
    let caption = "Llama 3.1 8B in NF4 with double quantisation, an adapter of rank 64 beside all projections, four \
                   micro-batches a rank of two rows of 2,048 tokens, activations computed again; counted on paper. \
                   What lies in shards shrinks with every rank; what a rank's own micro-batch needs does not.";
    Ok(("fsdp-bytes", caption, svg.ok_or("the bytes cannot be drawn")?))
}

/// A step of each number of ranks, on paper, counted once a process.
///
/// # Errors
/// What keeps a rank from being planned.
pub fn forecasts() -> Result<Vec<Forecast>, String> {
    static FORECASTS: OnceLock<Result<Vec<Forecast>, String>> = OnceLock::new();
    FORECASTS.get_or_init(counted).clone()
}

fn counted() -> Result<Vec<Forecast>, String> {
    let (spec, store) = (eight_billion(), Store::default());
    let recipe = Recipe { optimizer: AdamW::default(), max_norm: 0.3 };
    let on = |ranks: usize| -> Result<Forecast, String> {
        let mesh = Mesh::line(FSDP, ranks).map_err(said)?;
        let room = Room { prefetch_bytes: usize::MAX, ..Room::default() };
        let planned =
            Planned { room, ..challenges::fsdp::planned_by_solutions(&spec, &recipe, &mesh, &store) };
        planned.on_paper(0, |sheet| sheet.step(ROWS, MICRO_BATCHES * ranks)).map_err(said)
    };
    RANKS.into_iter().map(on).collect()
}

/// Llama 3.1 8B in 4 bits with its adapter, from its sizes alone.
fn eight_billion() -> Spec {
    let config = Config {
        vocab: 128_256,
        hidden: 4096,
        intermediate: 14_336,
        layers: 32,
        heads: 32,
        key_heads: 8,
        head_dim: 128,
        positions: 131_072,
        norm_eps: 1e-5,
        rope: Rope { theta: 500_000.0, scaling: Scaling::None },
        tied: false,
        quantized: true,
        classifier: None,
        images: None,
    };
    let nf4 = Storage::Nf4 { dtype: Dtype::Bf16, block_size: 64, nested: Some(nf4::NESTED_BLOCK) };
    let storage = |quantizable: bool| if quantizable { nf4 } else { Storage::Dense(Dtype::Bf16) };
    let storages =
        config.tensor_specs().into_iter().map(|spec| (spec.name, storage(spec.quantizable))).collect();
    Spec {
        config,
        storages,
        compute: Dtype::Bf16,
        adapter: Some(lora::Config::new(64, 128.0, Targets::AllLinear)),
        rows: Rows::default(),
        dropout: false,
    }
}
