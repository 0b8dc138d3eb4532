//! Whole reports that hold, made up for tests: **none of their numbers was measured.**
//!
//! Every check that this version runs has passed, every guard has looked, every row is met that can be; the rows are
//! judged as those of a run are.

use std::collections::BTreeMap;

use grader::judge::{self, Part, Seen, nf4, replay_command};
use grader::rubric::{RUBRICS, Rubric, possible};
use grader::timing::{Pairs, median, speedup};
use kernels::Vector;
use scorecard::{Basis, Challenge, Check, Guard, Machine, Measurement, Outcome, Scorecard};

const SEED: u64 = 0x5eed;

type Numbers = BTreeMap<String, Measurement>;

/// The L2 of the made-up card.
const L2_BYTES: usize = 50 << 20;

/// A report of the solution: on a CPU of everything that is built, on a card of A.
pub fn whole(on_a_card: bool) -> Scorecard {
    let machine = machine(on_a_card);
    let mut guards = Vec::new();
    let challenges: Vec<Challenge> = RUBRICS
        .iter()
        .map(|rubric| {
            let is_meant = |part: &Part| part.challenge() == rubric.name && part.is_on_gpu() == on_a_card;
            let parts: Vec<Part> = Part::all().filter(is_meant).collect();
            if parts.is_empty() {
                judge::absent(rubric)
            } else {
                challenge(rubric, &parts, &mut guards, &machine)
            }
        })
        .collect();
    let sum = |of: fn(&Challenge) -> i32| challenges.iter().map(of).sum();
    let rows = challenges.iter().flat_map(|challenge| &challenge.rows);
    Scorecard {
        warpbook: env!("CARGO_PKG_VERSION").into(),
        attempt: "solution".into(),
        seed: format!("{SEED:#x}"),
        machine,
        points: sum(|challenge| challenge.points),
        possible: possible(),
        unmeasured: sum(|challenge| challenge.unmeasured),
        stand_in: rows.filter(|row| row.basis == Basis::StandIn).map(|row| row.points).sum(),
        challenges,
        guards,
    }
}

fn machine(on_a_card: bool) -> Machine {
    let gpu = "a made-up GPU, 132 multiprocessors, sm_90, 50 MiB L2, 79.2 GiB memory, driver for CUDA 13.0";
    Machine {
        cpu: "a made-up processor".into(),
        cores: 2,
        vector: Vector::Avx2.to_string(),
        widest: None,
        cache_bytes: 32 << 20,
        memory_bytes: 16 << 30,
        gpu: on_a_card.then(|| gpu.into()),
        os: "linux".into(),
        wine: None,
        arch: "x86_64".into(),
        date: "2026-01-31".into(),
    }
}

/// A challenge, all of its parts.
fn challenge(
    rubric: &'static Rubric,
    parts: &[Part],
    guards: &mut Vec<Guard>,
    machine: &Machine,
) -> Challenge {
    let [checks, own] = judge::names(parts, Vector::Avx2);
    let passed = |name: String| Check {
        replay: replay_command(rubric.name, &name, SEED),
        name,
        outcome: Outcome::Passed,
        detail: String::new(),
    };
    let looked = |name: String| Guard {
        challenge: rubric.name.into(),
        name,
        ran: true,
        tripped: false,
        detail: String::new(),
    };
    let checks: Vec<Check> = checks.into_iter().map(passed).collect();
    let own: Vec<Guard> = own.into_iter().map(looked).collect();
    let measurements = parts.iter().flat_map(|part| measurements(&part.key())).collect();
    let unmeasured = BTreeMap::new();
    let seen = Seen { checks: &checks, guards: &own, measurements: &measurements, unmeasured: &unmeasured };
    let challenge = judge::challenge(rubric, parts, &seen, machine);
    guards.extend(own);
    challenge
}

/// Makes up the numbers of a course.
type Make = fn(&mut Numbers);

/// The numbers of each course, by its key.
const NUMBERS: [(&str, Make); 12] = [
    ("nf4", of_nf4),
    ("nf4.cuda", of_nf4_cuda),
    ("fsdp", of_fsdp),
    ("graph", of_graph),
    ("graph.cuda", of_graph),
    ("issues.chat", of_chat),
    ("issues.attention", of_attention),
    ("issues.classify", of_classify),
    ("issues.gguf", of_gguf),
    ("issues.vision", of_vision),
    ("loss", of_loss),
    ("loss.cuda", of_loss_cuda),
];

/// Made-up numbers of a course whose every row they win.
///
/// # Panics
/// If no course has the key.
pub fn measurements(key: &str) -> Numbers {
    let mut numbers = Numbers::new();
    let (_, make) = NUMBERS.iter().find(|(name, _)| *name == key).expect("every course has made-up numbers");
    make(&mut numbers);
    numbers
}

fn of_nf4(numbers: &mut Numbers) {
    cases(numbers, &challenges::nf4::BENCHES, 24, false);
    counts(numbers, &CPU);
    timed(numbers, "nf4.version.1-three-passes", "us", &around(900.0, 5));
}

fn of_nf4_cuda(numbers: &mut Numbers) {
    cases(numbers, &challenges::nf4::cuda::BENCHES, 30, true);
    counts(numbers, &CARD);
    for (family, bytes) in nf4::version_bytes() {
        let times = around(75.0, 9);
        timed(numbers, &format!("nf4.{family}.01-naive"), "us", &times);
        let rate = bytes / median(&times) / 1e3;
        number(numbers, &format!("nf4.{family}_rate.01-naive"), rate, "GB/s");
    }
}

fn of_fsdp(numbers: &mut Numbers) {
    counts(numbers, &FSDP);
    pair(numbers, "fsdp.over_baseline", ["fsdp.timed.baseline", "fsdp.timed.attempt"], 16);
    number(numbers, "fsdp.training", 0.0, "relative");
    let losses: Vec<f64> = (0..60).map(|i| 4.0 - 0.01 * f64::from(i)).collect();
    for name in ["fsdp.training.one", "fsdp.training.rank_0", "fsdp.training.rank_1"] {
        number(numbers, name, losses[59], "nats");
        numbers.entry(name.into()).and_modify(|number| number.samples.clone_from(&losses));
    }
}

fn of_graph(numbers: &mut Numbers) {
    counts(numbers, &GRAPH);
    pair(numbers, "graph.over_op_by_op", ["graph.op_by_op.step", "graph.step"], 16);
}

fn of_chat(numbers: &mut Numbers) {
    counts(numbers, &ISSUES);
    timed(numbers, "issues.prompts.time", "us", &around(25.0, 25));
}

fn of_attention(numbers: &mut Numbers) {
    let each = [("packed", 33.0), ("split", 15.0), ("tiled", 154.0), ("expanded", 172.0)];
    for (name, value) in each {
        number(numbers, &format!("issues.attention.features.{name}"), value, "count");
    }
    for name in ["same", "all"] {
        number(numbers, &format!("issues.attention.{name}"), 546.0, "count");
    }
    for (name, value) in
        [("lengths", 102.0), ("lengths_right", 102.0), ("compilations", 27.0), ("buckets", 39.0)]
    {
        number(numbers, &format!("issues.attention.{name}"), value, "count");
    }
}

fn of_classify(numbers: &mut Numbers) {
    number(numbers, "issues.classifier.batches", 6.0, "count");
    for name in ["loss", "gradient", "training"] {
        number(numbers, &format!("issues.classifier.{name}"), 0.0, "relative");
    }
    let losses: Vec<f64> = (0..120).map(|i| 1.3 - 0.01 * f64::from(i)).collect();
    for name in ["issues.classifier.losses.attempt", "issues.classifier.losses.oracle"] {
        number(numbers, name, losses[119], "nats");
        numbers.entry(name.into()).and_modify(|number| number.samples.clone_from(&losses));
    }
    for (step, right) in [(0, 27.0), (40, 50.0), (80, 78.0), (120, 80.0)] {
        let name = format!("issues.classifier.confusion.{step}");
        let wrong = (80.0 - right) / 2.0;
        let counts = (0..9).map(|at| if at % 4 == 0 { right } else { wrong }).collect();
        number(numbers, &name, 240.0, "count");
        numbers.entry(name).and_modify(|number| number.samples = counts);
    }
    number(numbers, "issues.classifier.accuracy", 1.0, "share");
}

fn of_gguf(numbers: &mut Numbers) {
    for (name, value) in [("files", 8.0), ("tensors", 240.0), ("equal", 240.0), ("keys", 8.0)] {
        number(numbers, &format!("issues.gguf.{name}"), value, "count");
    }
}

fn of_vision(numbers: &mut Numbers) {
    let each = [
        ("images.all", 300.0),
        ("images.same", 300.0),
        ("images.largest", 156_000.0),
        ("mixed.all", 120.0),
        ("mixed.same", 120.0),
        ("mixed.slots", 2400.0),
        ("mixed.features", 2400.0),
        ("completions.all", 120.0),
        ("completions.same", 120.0),
        ("completions.images", 150.0),
    ];
    for (name, value) in each {
        number(numbers, &format!("issues.{name}"), value, "count");
    }
}

fn of_loss(numbers: &mut Numbers) {
    counts(numbers, &LOSS);
    pair(numbers, "loss.over_whole", ["loss.timed.whole", "loss.timed.chunked"], 4);
    number(numbers, "loss.training", 0.0, "relative");
    let losses: Vec<f64> = (0..40).map(|i| 4.0 - 0.01 * f64::from(i)).collect();
    for name in ["loss.training.whole", "loss.training.chunked"] {
        number(numbers, name, losses[39], "nats");
        numbers.entry(name.into()).and_modify(|number| number.samples.clone_from(&losses));
    }
}

fn of_loss_cuda(numbers: &mut Numbers) {
    of_loss(numbers);
    counts(numbers, &LOSS_ON_A_CARD);
    let losses: Vec<f64> = (0..25).map(|i| 4.0 - 0.01 * f64::from(i)).collect();
    for name in ["loss.training.whole", "loss.training.chunked", "loss.training.ulp"] {
        number(numbers, name, losses[24], "nats");
        numbers.entry(name.into()).and_modify(|number| number.samples.clone_from(&losses));
    }
}

const CPU: [(&str, f64); 16] = [
    ("nf4.working_bytes", 0.0),
    ("nf4.peak_bytes", 0.0),
    ("nf4.launches", 1.0),
    ("nf4.instructions", 16702.0),
    ("nf4.vector_instructions", 6151.0),
    ("nf4.streaming_stores", 512.0),
    ("nf4.streamed_bytes", 32768.0),
    ("nf4.unfenced_stores", 0.0),
    ("nf4.timed_instructions", 1.2e6),
    ("nf4.timed_vector_instructions", 5.0e5),
    ("nf4.timed_streamed_bytes", 2.4e6),
    ("nf4.timed_elements", 1.2e6),
    ("nf4.graph_weights", 4.0),
    ("nf4.graph_weights_equal", 4.0),
    ("nf4.graph_breaks", 0.0),
    ("nf4.graph_launches", 12.0),
];

const CARD: [(&str, f64); 6] = [
    ("nf4.working_bytes", 24.0),
    ("nf4.launches", 1.0),
    ("nf4.inline_ptx_executions", 6.0e6),
    ("nf4.plain_inline_ptx", 0.0),
    ("nf4.hinted_load_bytes", 8388608.0),
    ("nf4.hinted_store_bytes", 33554432.0),
];

const FSDP: [(&str, f64); 37] = [
    ("fsdp.training.ranks", 2.0),
    ("fsdp.training.norms", 0.0),
    ("fsdp.training.adapter", 0.0),
    ("fsdp.training.bytes", 1.2e5),
    ("fsdp.training.share", 1.4e5),
    ("fsdp.training.all_bytes", 2.6e5),
    ("fsdp.training.weights", 21.0),
    ("fsdp.training.beyond_share", 0.0),
    ("fsdp.training.gathered", 4.4e7),
    ("fsdp.training.gathered_most", 4.4e7),
    ("fsdp.training.reduced", 1.8e7),
    ("fsdp.training.reduced_most", 1.8e7),
    ("fsdp.training.compilations", 8.0),
    ("fsdp.training.recompilations", 0.0),
    ("fsdp.training.runs", 1440.0),
    ("fsdp.training.room", 0.0),
    ("fsdp.training.room_early", 40.0),
    ("fsdp.training.room_gathers", 41.0),
    ("fsdp.tensor", 0.0),
    ("fsdp.pipeline", 0.0),
    ("fsdp.bubble", 0.176),
    ("fsdp.bubble.least", 0.176),
    ("fsdp.dequantizer.calls", 19.0),
    ("fsdp.dequantizer.planned", 19.0),
    ("fsdp.dequantizer.parts", 0.0),
    ("fsdp.dequantizer.weights", 8.0),
    ("fsdp.dequantizer.called", 8.0),
    ("fsdp.dequantizer.fewest", 2.0),
    ("fsdp.dequantizer.most", 3.0),
    ("fsdp.dequantizer.own", 1.0),
    ("fsdp.dequantizer.sizes", 4.0),
    ("fsdp.dequantizer.wrong_sizes", 0.0),
    ("fsdp.dequantizer.working_bytes", 0.0),
    ("fsdp.dequantizer.apart", 0.0),
    ("fsdp.flat", 0.0),
    ("fsdp.flat.bytes", 1.2e5),
    ("fsdp.flat.share", 1.4e5),
];

const GRAPH: [(&str, f64); 19] = [
    ("graph.lengths", 100.0),
    ("graph.lengths_right", 100.0),
    ("graph.breaks", 0.0),
    ("graph.buckets", 20.0),
    ("graph.compilations", 12.0),
    ("graph.hidden_compilations", 0.0),
    ("graph.launches", 268.0),
    ("graph.layers", 2.0),
    ("graph.attention_layers", 2.0),
    ("graph.mlp_layers", 2.0),
    ("graph.norm_layers", 2.0),
    ("graph.loss_parts", 1.0),
    ("graph.flex_launches", 2.0),
    ("graph.dequantized", 27.0),
    ("graph.dequantizer_calls", 27.0),
    ("graph.products", 108.0),
    ("graph.questions", 324.0),
    ("graph.trials", 6480.0),
    ("graph.part_a", 1.0),
];

const ISSUES: [(&str, f64); 4] = [
    ("issues.prompts.same", 432.0),
    ("issues.prompts.all", 432.0),
    ("issues.calls.same", 232.0),
    ("issues.calls.all", 232.0),
];

const LOSS: [(&str, f64); 7] = [
    ("loss.bytes.whole", 4.0e8),
    ("loss.bytes.chunked", 1.0e8),
    ("loss.bytes.rows", 164.0),
    ("loss.policy.bytes.whole", 4.0e8),
    ("loss.policy.bytes.chunked", 1.0e8),
    ("loss.policy.bytes.rows", 164.0),
    ("loss.compiler", 0.0),
];

const LOSS_ON_A_CARD: [(&str, f64); 10] = [
    ("loss.bytes.driver.whole", 4.1e8),
    ("loss.bytes.driver.chunked", 1.1e8),
    ("loss.policy.bytes.driver.whole", 4.1e8),
    ("loss.policy.bytes.driver.chunked", 1.1e8),
    ("loss.published.whole", 4.3e9),
    ("loss.published.chunked", 2.6e8),
    ("loss.published.rows", 496.0),
    ("loss.published.driver.whole", 4.4e9),
    ("loss.published.driver.chunked", 2.7e8),
    ("loss.training.parameters", 1.236e9),
];

fn counts(numbers: &mut Numbers, all: &[(&str, f64)]) {
    for (name, value) in all {
        number(numbers, name, *value, "count");
    }
}

fn number(numbers: &mut Numbers, name: &str, value: f64, unit: &str) {
    let unit = unit.into();
    numbers.insert(name.into(), Measurement { value, unit, interval: None, samples: vec![] });
}

fn timed(numbers: &mut Numbers, name: &str, unit: &str, times: &[f64]) {
    let (value, unit, samples) = (median(times), unit.into(), times.to_vec());
    numbers.insert(name.into(), Measurement { value, unit, interval: None, samples });
}

/// So many times around one.
fn around(time: f64, count: usize) -> Vec<f64> {
    (0..count).map(|i| time * (1.0 + 0.003 * ((i * 7) % 5) as f64)).collect()
}

fn pair(numbers: &mut Numbers, ratio: &str, [baseline, attempt]: [&str; 2], count: usize) {
    let times = [around(500.0, count), around(250.0, count)];
    timed(numbers, baseline, "ms", &times[0]);
    timed(numbers, attempt, "ms", &times[1]);
    let (value, interval) = speedup(Pairs { baseline: &times[0], attempt: &times[1] });
    let ratio_of = Measurement { value, unit: "x".into(), interval, samples: vec![] };
    numbers.insert(ratio.into(), ratio_of);
}

/// The timed cases of A: three times as fast as the baseline, at nine tenths of the bound.
fn cases(numbers: &mut Numbers, benches: &[challenges::nf4::Bench], pairs: usize, on_a_card: bool) {
    for bench in benches {
        let (case, bytes) = (nf4::bench_name(bench), nf4::total_bytes(bench.rows * bench.columns));
        let time = bytes / if on_a_card { 2.9e6 } else { 3.0e4 };
        let times = [around(3.0 * time, pairs), around(time, pairs), around(0.9 * time, pairs)];
        for (kind, times) in ["baseline", "attempt", "bound"].into_iter().zip(&times) {
            timed(numbers, &format!("nf4.{kind}.{case}"), "us", times);
        }
        let both = Pairs { baseline: &times[0], attempt: &times[1] };
        let (value, interval) = speedup(both);
        let ratio = Measurement { value, unit: "x".into(), interval, samples: both.ratios() };
        numbers.insert(format!("nf4.speedup.{case}"), ratio);
        let share = median(&times[2]) / median(&times[1]);
        number(numbers, &format!("nf4.share_of_bound.{case}"), share, "share");
        number(numbers, &format!("nf4.rate.{case}"), bytes / median(&times[1]) / 1e3, "GB/s");
        if on_a_card {
            let fastest = times[2].iter().copied().fold(f64::INFINITY, f64::min);
            number(numbers, &format!("nf4.copy_rate.{case}"), bytes / fastest / 1e3, "GB/s");
            number(numbers, &format!("nf4.bound_credit.{case}"), nf4::credit(bench, L2_BYTES), "share");
        }
    }
    if let Some((value, interval)) = nf4::total_speedup(numbers) {
        let total = Measurement { value, unit: "x".into(), interval, samples: vec![] };
        numbers.insert("nf4.speedup".into(), total);
    }
}
