//! A scorecard made up for tests: **none of its numbers was measured.**
//!
//! Tests of reports and figures need a full scorecard that is the same on every machine. The rows are
//! scored by the real rubric, the times come from a small integer generator.

use std::collections::BTreeMap;

use grader::rubric::{Fact, Facts, RUBRICS, Rubric};
use scorecard::{Basis, Challenge, Check, Guard, Machine, Measurement, Outcome, Scorecard, Truth};

/// A case: name, weights, bound, attempt and baseline in microseconds - all made up.
type Case = (&'static str, f64, f64, f64, f64);

const CASES: [Case; 5] = [
    ("2048x8192.f16", 50331648.0, 3710.0, 4310.0, 25400.0),
    ("1024x4096.bf16", 12582912.0, 928.0, 1142.0, 6350.0),
    ("4096x14336.bf16", 176160768.0, 12990.0, 14520.0, 88900.0),
    ("2048x8192.bf16", 50331648.0, 3710.0, 4295.0, 25700.0),
    ("4096x14336.f16", 176160768.0, 12990.0, 14610.0, 88700.0),
];

/// A scorecard of the solution: nf4 scored in full on a CPU, the others not built.
pub fn solved() -> Scorecard {
    let rubric = &RUBRICS[0];
    let score = rubric.score(&solved_facts(), "cpu");
    let first = Challenge {
        attempted: true,
        built: true,
        device: "cpu".into(),
        points: score.points,
        unmeasured: score.unmeasured,
        rows: score.rows,
        checks: checks(),
        measurements: measurements(),
        ..unbuilt(rubric)
    };
    card("solution", first)
}

/// A scorecard of a half-done exercise: slower than the baseline, checks of every outcome, hostile texts,
/// a tripped guard.
pub fn half_done() -> Scorecard {
    let mut card = solved();
    let score = RUBRICS[0].score(&half_done_facts(), "cpu");
    let first = &mut card.challenges[0];
    (first.points, first.unmeasured, first.rows) = (score.points, score.unmeasured, score.rows);
    first.checks.splice(2.., bad_checks());
    slow_down(&mut first.measurements);
    card.attempt = "exercise".into();
    let guard = &mut card.guards[1];
    guard.tripped = true;
    guard.detail = "the second call on new content took 0.02 us and returned the first call's bytes".into();
    add_up(&mut card);
    card
}

/// A scorecard of an untouched workbook.
pub fn untouched() -> Scorecard {
    let mut card = solved();
    let first = &mut card.challenges[0];
    first.attempted = false;
    first.measurements.clear();
    let score = RUBRICS[0].score(&Facts::new(), "cpu");
    (first.points, first.unmeasured, first.rows) = (0, 14, score.rows);
    for check in &mut first.checks {
        check.outcome = Outcome::NotAttempted;
        check.detail = "unpack two codes from each byte, the high nibble first".into();
    }
    card.attempt = "exercise".into();
    add_up(&mut card);
    card
}

/// A scorecard with a compiled step: twelve layers of one buffer each, kept from the way there to the way back.
pub fn compiled() -> Scorecard {
    let mut card = solved();
    let graph = &mut card.challenges[2];
    (graph.built, graph.attempted, graph.measurements) = (true, true, step());
    graph.checks = vec![check("C.3/inputs-stay", Outcome::Passed, "")];
    card
}

/// A scorecard with a chunked loss.
pub fn chunked() -> Scorecard {
    let mut card = solved();
    let loss = &mut card.challenges[4];
    (loss.built, loss.attempted, loss.measurements) = (true, true, in_chunks());
    loss.checks = vec![check("E.2/cut", Outcome::Passed, "")];
    card
}

/// A scorecard of two ranks: their losses, a pipeline of eight micro-batches that runs later than it should, and a step
/// with its gathers.
pub fn on_ranks() -> Scorecard {
    let mut card = solved();
    let fsdp = &mut card.challenges[1];
    (fsdp.built, fsdp.attempted, fsdp.measurements) = (true, true, ranks());
    fsdp.checks = vec![check("B.1/rows", Outcome::Passed, "")];
    card
}

fn ranks() -> BTreeMap<String, Measurement> {
    let mut all = BTreeMap::new();
    let mut add = |name: &str, unit: &str, samples: Vec<f64>| {
        let value = samples.last().copied().unwrap_or_default();
        all.insert(format!("fsdp.{name}"), Measurement { samples, ..plain(value, unit) });
    };
    add("training.ranks", "count", vec![2.0]);
    for (name, off) in [("one", 0.0), ("rank_0", 3e-7), ("rank_1", 3e-7)] {
        let loss = |i: u32| 2.0 + 4.0 * (-0.1 * f64::from(i)).exp() + off * (f64::from(i % 3) - 1.0);
        add(&format!("training.{name}"), "nats", (0..60).map(loss).collect());
    }
    for (way, late) in [("simulated", 1.0), ("measured", 1.06)] {
        for (rank, kinds, samples) in pipeline(late) {
            add(&format!("gantt.{way}.{rank}.{kinds}"), "ms", samples);
        }
    }
    for (way, ahead) in [("late", false), ("early", true)] {
        for (what, samples) in step_with_gathers(ahead) {
            add(&format!("step.{way}.{what}"), "ms", samples);
        }
    }
    all
}

/// 1F1B of two ranks, eight micro-batches and a D at the beginning, `late` times as slow: rank, kinds, and triples of
/// micro-batch, start and end.
fn pipeline(late: f64) -> Vec<(usize, &'static str, Vec<f64>)> {
    let (mut forwards, mut backwards) = ([vec![], vec![]], [vec![], vec![]]);
    for i in 0..8_u32 {
        let begin = 20.0 + 40.0 * f64::from(i);
        let ahead = if i == 0 { 5.0 } else { begin - 20.0 }; // rank 0 is a forward ahead
        for (rank, start, takes) in [(0, ahead, 10.0), (1, begin, 10.0)] {
            forwards[rank].extend([f64::from(i), start * late, (start + takes) * late]);
        }
        for (rank, start) in [(1, begin + 10.0), (0, begin + 31.0)] {
            let takes = if rank == 1 { 20.0 } else { 18.0 };
            backwards[rank].extend([f64::from(i), start * late, (start + takes) * late]);
        }
    }
    let both = |rank: usize| {
        let fetch = vec![-1.0, 0.0, 5.0 * late];
        [(rank, "D", fetch), (rank, "F", forwards[rank].clone()), (rank, "RBW", backwards[rank].clone())]
    };
    [both(0), both(1)].concat()
}

/// A step of four pieces: what, and triples of piece, start and end.
fn step_with_gathers(ahead: bool) -> [(&'static str, Vec<f64>); 4] {
    let (mut wire, mut now) = (0.0, 0.0_f64);
    let (mut gathers, mut forward, mut backward) = (vec![], vec![], vec![]);
    for turn in 0..8_u32 {
        let (piece, takes) = (f64::from(turn.min(7 - turn)), if turn < 4 { 4.0 } else { 8.0 });
        let start = if ahead { wire } else { now };
        gathers.extend([piece, start, start + 3.0]);
        let begin = now.max(start + 3.0);
        let computed = if turn < 4 { &mut forward } else { &mut backward };
        computed.extend([piece, begin, begin + takes]);
        (wire, now) = (begin.max(start + 3.0), begin + takes);
    }
    [
        ("gather", gathers),
        ("forward", forward),
        ("backward", backward),
        ("update", vec![-1.0, now, now + 1.5]),
    ]
}

fn in_chunks() -> BTreeMap<String, Measurement> {
    let mut all = BTreeMap::new();
    let mut add = |name: &str, measurement| _ = all.insert(format!("loss.{name}"), measurement);
    let mib = f64::from(1 << 20);
    for (name, mibs, rows) in
        [("bytes", [513.0, 127.0, 126.0], 250.0), ("policy.bytes", [514.0, 128.0, 126.5], 246.0)]
    {
        for (part, mibs) in ["whole", "chunked", "formula"].into_iter().zip(mibs) {
            add(&format!("{name}.{part}"), plain(mibs * mib, "B"));
        }
        add(&format!("{name}.rows"), plain(rows, "count"));
    }
    add("bytes.once", plain(3.0 * mib, "B"));
    let timed = [("whole", 2600.0, 251.0), ("chunked", 2480.0, 24.5)];
    for (name, ms, mibs) in timed {
        add(&format!("timed.{name}"), raw(&noisy(ms, 5)[..4], "ms"));
        add(&format!("timed.{name}.bytes"), plain(mibs * mib, "B"));
    }
    add("over_whole", plain(1.05, "x")); // two rounds have no interval
    add("timed.rows", plain(187.0, "count"));
    for power in 4..=11 {
        let rows = f64::from(1 << power);
        add(&format!("sizes.{rows}.time"), plain(2400.0 + 60_000.0 / rows, "ms"));
        add(&format!("sizes.{rows}.bytes"), plain((1.0 + rows / 8.2) * mib, "B"));
    }
    let published = [("logits", 8016.0, "B"), ("counted", 249.0, "B"), ("planned", 251.0, "B")];
    for (name, mibs, unit) in published {
        add(&format!("published.{name}"), plain(mibs * mib, unit));
    }
    add("published.rows", plain(482.0, "count"));
    add("published.seconds", plain(31.5, "s"));
    for (name, alive, parts) in [("op_by_op", 48.0, 12_usize), ("whole", 16.5, 5), ("chunked", 2.1, 45)] {
        let stair = |part: usize| mib * alive * (1.0 + (part % 5) as f64) / 5.0;
        add(
            &format!("stairs.{name}"),
            Measurement { samples: (0..parts).map(stair).collect(), ..plain(alive * mib, "B") },
        );
        let ms: Vec<f64> = (0..parts).map(|part| (1.0 + (part % 3) as f64) * 12.0 / parts as f64).collect();
        add(&format!("stairs.{name}_ms"), Measurement { samples: ms, ..plain(24.0, "ms") });
    }
    add("stairs.parts", Measurement { samples: vec![5.0; 9], ..plain(9.0, "count") });
    add("stairs.rows", plain(57.0, "count"));
    add("training", plain(2.4e-7, "relative"));
    for (name, off) in [("whole", 0.0), ("chunked", 4e-7)] {
        let loss = |i: u32| 2.0 + 4.0 * (-0.1 * f64::from(i)).exp() + off * (f64::from(i % 3) - 1.0);
        add(
            &format!("training.{name}"),
            Measurement { samples: (0..40).map(loss).collect(), ..plain(2.0, "nats") },
        );
    }
    all
}

fn step() -> BTreeMap<String, Measurement> {
    let mut all = BTreeMap::new();
    let mut add = |name: &str, measurement| _ = all.insert(format!("graph.{name}"), measurement);
    let counts = [("captures", 1.0), ("breaks", 0.0), ("compilations", 11.0), ("hits", 89.0)];
    let more = [("launches", 25.0), ("tuning_us", 86070.0), ("nodes", 1691.0), ("step_launches", 25.0)];
    for (name, value) in counts.into_iter().chain(more).chain([("op_by_op.launches", 96.0)]) {
        add(name, plain(value, "count"));
    }
    let (attempt, baseline) = (noisy(217.0, 3), noisy(455.0, 4));
    let ratios: Vec<f64> = baseline.iter().zip(&attempt).map(|(a, b)| a / b).collect();
    add("over_op_by_op", Measurement { interval: Some([1.95, 2.14]), ..plain(median(&ratios), "x") });
    add("step", raw(&attempt, "ms"));
    add("op_by_op.step", raw(&baseline, "ms"));
    add("compile", plain(249.0, "ms"));
    add("tuning", plain(421.0, "ms"));
    add("pays_after", plain(3.0, "steps"));
    add("arena", plain(f64::from(13 << 20), "B"));
    add("op_by_op.arena", plain(f64::from(40 << 20), "B"));
    for (name, unit, samples) in memory().into_iter().chain(times()) {
        let value = if unit == "B" { f64::from(13 << 20) } else { samples.iter().sum() };
        add(&name, Measurement { samples, ..plain(value, unit) });
    }
    add("longest.01.launch 12 loss program", plain(3.0, "ms"));
    add("longest.02.launch 3 layers.3.mlp.down_proj product 512x512x1408", plain(2.5, "ms"));
    for (name, off) in [("compiled", 0.0), ("op_by_op", 1e-6)] {
        let loss = |i: u32| 2.0 + 4.0 * (-0.1 * f64::from(i)).exp() + off * f64::from(i % 3);
        add(
            &format!("losses.{name}"),
            Measurement { samples: (0..40).map(loss).collect(), ..plain(2.0, "nats") },
        );
    }
    all
}

/// Columns of a samples' table.
type Column = (String, &'static str, Vec<f64>);

/// Twelve buffers that end in the reverse order, and a small one beside each launch; the last is a result.
fn memory() -> Vec<Column> {
    let mib = f64::from(1 << 20);
    let kept = (0..12).map(|i| [f64::from(i) * mib, mib, f64::from(i), f64::from(24 - i)]);
    let small = (0..25).map(|i| [12.0 * mib, mib / 2.0, f64::from(i), f64::from(i)]);
    let rows: Vec<[f64; 4]> = kept.chain(small).chain([[12.5 * mib, mib / 2.0, 20.0, 25.0]]).collect();
    let names = [("place", "B"), ("bytes", "B"), ("first", "count"), ("last", "count")];
    let column = |(i, (name, unit)): (usize, (&str, &'static str))| {
        (format!("plan.{name}"), unit, rows.iter().map(|row| row[i]).collect())
    };
    names.into_iter().enumerate().map(column).collect()
}

/// What 25 launches take: every fourth is a product.
fn times() -> Vec<Column> {
    let is = |i: u32, product: bool| (i % 4 == 3) == product;
    let ms = |i: u32| if i == 12 { 3.0 } else { 0.5 + f64::from(i % 5) / 4.0 };
    let column = |(name, product): (&str, bool)| {
        let samples = (0..25).map(|i| if is(i, product) { ms(i) } else { 0.0 }).collect();
        (format!("timeline.{name}"), "ms", samples)
    };
    [("product", true), ("program", false)].into_iter().map(column).collect()
}

fn card(attempt: &str, first: Challenge) -> Scorecard {
    let mut card = Scorecard {
        warpbook: "0.1.0".into(),
        attempt: attempt.into(),
        seed: "0x5eed".into(),
        machine: machine(),
        points: 0,
        possible: grader::rubric::possible(),
        unmeasured: 0,
        stand_in: 0,
        challenges: std::iter::once(first).chain(RUBRICS[1..].iter().map(unbuilt)).collect(),
        guards: guards(),
    };
    add_up(&mut card);
    card
}

fn add_up(card: &mut Scorecard) {
    card.points = card.challenges.iter().map(|c| c.points).sum();
    card.unmeasured = card.challenges.iter().map(|c| c.unmeasured).sum();
    let rows = card.challenges.iter().flat_map(|c| &c.rows);
    card.stand_in = rows.filter(|row| row.basis == Basis::StandIn).map(|row| row.points).sum();
}

fn machine() -> Machine {
    Machine {
        gpu: None,
        cpu: "Fixture CPU (made up)".into(),
        cores: 2,
        vector: "AVX-512".into(),
        widest: None,
        cache_bytes: 33 << 20,
        memory_bytes: 8 << 30,
        os: "linux".into(),
        wine: None,
        arch: "x86_64".into(),
        date: "2026-01-02".into(),
    }
}

fn unbuilt(rubric: &Rubric) -> Challenge {
    let score = rubric.score(&Facts::new(), "cpu");
    Challenge {
        name: rubric.name.into(),
        letter: rubric.letter.into(),
        built: false,
        attempted: false,
        device: "cpu".into(),
        code: String::new(),
        points: score.points,
        possible: rubric.possible,
        unmeasured: score.unmeasured,
        rows: score.rows,
        checks: Vec::new(),
        measurements: BTreeMap::new(),
    }
}

fn facts(all: &[(&'static str, Truth, &str)]) -> Facts {
    all.iter()
        .map(|(name, truth, text)| (*name, Fact { truth: *truth, evidence: (*text).into(), basis: None }))
        .collect()
}

fn solved_facts() -> Facts {
    use Truth::{Met, Unmeasured, Unmet};
    let ratio = "5.97x the baseline [5.95, 5.99] over the three published cases, 24 pairs each";
    facts(&[
        (
            "single_triton_kernel",
            Met,
            "peak heap 4.10 KiB per thread (limit 64 KiB), 8.20 KiB total; kernel launches: 1 of exactly 1",
        ),
        ("speedup <= 1.00", Unmet, ratio),
        ("speedup >= 1.05", Met, ratio),
        ("speedup >= 1.10", Met, ratio),
        ("speedup >= 1.15", Met, ratio),
        ("kernel_works_in_torch_compile", Unmeasured, "challenge C is not built in this version"),
        (
            "custom_asm_works",
            Met,
            "1,835,008 vector instructions seen on the executed path; AVX2 and AVX-512 are bit-equal to the portable path",
        ),
        ("uses_cache_eviction", Met, "458,752 streaming stores seen on the executed path"),
        ("tested_in_f16_and_bf16", Met, "22 of 22 f16 cases and 22 of 22 bf16 cases are bit-equal"),
    ])
}

fn half_done_facts() -> Facts {
    use Truth::{Met, Unmeasured, Unmet};
    let ratio = "0.985x the baseline [0.961, 1.02]: inconclusive after 8 s, which counts as unmet";
    facts(&[
        (
            "single_triton_kernel",
            Unmet,
            "peak heap 16 MiB per thread (limit 64 KiB), 32 MiB total; kernel launches: 1 of exactly 1",
        ),
        ("speedup <= 1.00", Unmet, ratio),
        ("speedup >= 1.05", Unmet, ratio),
        ("speedup >= 1.10", Unmet, ratio),
        ("speedup >= 1.15", Unmet, ratio),
        ("kernel_works_in_torch_compile", Unmeasured, "challenge C is not built in this version"),
        ("custom_asm_works", Unmeasured, "single-stepping is not permitted in this container"),
        ("uses_cache_eviction", Met, "458,752 streaming stores | seen on <b>the executed</b> path"),
        ("tested_in_f16_and_bf16", Unmet, "21 of 22 f16 cases are bit-equal; bf16 does not compile"),
    ])
}

fn checks() -> Vec<Check> {
    let names = ["A.1/one-byte", "A.1/odd-count", "A.2/every-code", "A.3/one-block", "A.4/two-levels"];
    let tails = ["A.5/ragged-tail-f16", "A.5/ragged-tail-bf16", "A.6/vector-equals-portable"];
    names.iter().chain(&tails).map(|name| check(name, Outcome::Passed, "")).collect()
}

fn bad_checks() -> Vec<Check> {
    let rustc = "error[E0308]: mismatched types\n  --> challenges/src/nf4/exercise.rs:61:9\n   |\n60 |     fn dequantise(&self, weight: &Weight) -> Vec<u16> {\n   |                                              -------- expected because of return type\n61 |         \u{1b}[1;31mweight.packed\u{1b}[0m\n   |         ^^^^^^^^^^^^^ expected `Vec<u16>`, found `&[u8]`";
    let wrong = "element 64 (block 1 of 3)\n  got   0x3c21 (1.0322)\n  want  0xbc21 (-1.0322)\n  65 of 129 elements differ, at most 30720 ulps\nlikely cause: the block index is off by one (e / 64, not (e + 1) / 64)";
    let why = "a path with <script>alert(1)</script>, a | pipe, `ticks`, \u{1b}]0;title\u{7}\u{202e}and a very long word: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    vec![
        check("A.2/every-code", Outcome::Wrong, why),
        check("A.3/second-block", Outcome::Wrong, wrong),
        check("A.4/two-levels-f16", Outcome::DoesNotCompile, rustc),
        check("A.4/two-levels-bf16", Outcome::DoesNotCompile, rustc),
        check("A.5/ragged-tail-f16", Outcome::NotAttempted, "decode the ragged tail first"),
        check("A.5/ragged-tail-bf16", Outcome::NotAttempted, "decode the ragged tail first"),
        check("A.5/whole-f16", Outcome::NotAttempted, "decode the ragged tail first"),
        check("A.5/whole-bf16", Outcome::NotAttempted, "decode the ragged tail first"),
        check("A.6/neon-equals-portable", Outcome::NotMeasured, "this processor has no NEON"),
        check("A.6/stream", Outcome::GraderFault, "the child's report ended after 12 of 40 bytes"),
    ]
}

fn check(name: &str, outcome: Outcome, detail: &str) -> Check {
    let replay = format!("cargo grader replay nf4:{name} --seed 0x5eed");
    Check { name: name.into(), outcome, detail: detail.into(), replay }
}

fn guards() -> Vec<Guard> {
    let names = [
        "answers cached by pointer",
        "answers cached by content",
        "unwritten outputs",
        "inputs modified",
        "constants and zeros",
        "writes outside the buffer",
        "work finished after the clock stops",
    ];
    let guard = |name: &&str| Guard {
        challenge: "nf4".into(),
        name: (*name).into(),
        ran: true,
        tripped: false,
        detail: String::new(),
    };
    let mut guards: Vec<Guard> = names.iter().map(guard).collect();
    guards[6].ran = false;
    guards[6].detail = "the attempt started no thread".into();
    guards
}

fn measurements() -> BTreeMap<String, Measurement> {
    let mut all = BTreeMap::new();
    for (seed, (case, weights, bound, attempt, baseline)) in CASES.into_iter().enumerate() {
        let [bound, attempt, baseline] =
            [bound, attempt, baseline].map(|us| noisy(us, seed as u64 + us as u64));
        let ratios: Vec<f64> = baseline.iter().zip(&attempt).map(|(a, b)| a / b).collect();
        let (ratio, share) = (median(&ratios), median(&bound) / median(&attempt));
        let rate = plain(weights * 2.516 / median(&attempt) / 1e3, "GB/s");
        let speedup = Measurement { interval: Some([ratio * 0.994, ratio * 1.006]), ..raw(&ratios, "x") };
        for (family, measurement) in [
            ("speedup", speedup),
            ("baseline", raw(&baseline, "us")),
            ("attempt", raw(&attempt, "us")),
            ("bound", raw(&bound, "us")),
            ("share_of_bound", plain(share, "share")),
            ("rate", rate),
        ] {
            all.insert(format!("nf4.{family}.{case}"), measurement);
        }
    }
    all.insert("nf4.speedup".into(), Measurement { interval: Some([5.95, 5.99]), ..plain(5.97, "x") });
    all.insert("nf4.working_bytes".into(), plain(4198.0, "B/thread"));
    for (name, value) in [
        ("launches", 1.0),
        ("instructions", 9437184.0),
        ("vector_instructions", 1835008.0),
        ("streaming_stores", 458752.0),
    ] {
        all.insert(format!("nf4.{name}"), plain(value, "count"));
    }
    all
}

/// Makes the attempt about as slow as the baseline.
fn slow_down(measurements: &mut BTreeMap<String, Measurement>) {
    for (name, m) in measurements {
        let factor = match name.split('.').nth(1) {
            Some("speedup" | "share_of_bound" | "rate") => 0.165,
            Some("attempt") => 1.0 / 0.165,
            _ => continue,
        };
        m.value *= factor;
        m.samples.iter_mut().for_each(|sample| *sample *= factor);
        m.interval = m.interval.map(|_| [m.value * 0.976, m.value * 1.037]);
    }
}

fn raw(samples: &[f64], unit: &str) -> Measurement {
    Measurement { samples: samples.to_vec(), ..plain(median(samples), unit) }
}

fn plain(value: f64, unit: &str) -> Measurement {
    Measurement { value, unit: unit.into(), interval: None, samples: Vec::new() }
}

/// 24 made-up samples: a few per cent of spread, a slow drift, now and then an outlier.
fn noisy(center: f64, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    let sample = |i: u32| {
        let spread = 0.03 * (next() - 0.5) + 0.0006 * f64::from(i);
        let outlier = if next() > 0.93 { 0.08 } else { 0.0 };
        (center * (1.0 + spread + outlier) * 10.0).round() / 10.0
    };
    (0..24).map(sample).collect()
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}
