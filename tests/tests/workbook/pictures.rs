//! Pictures of challenges B, C and E: nothing overlaps, nothing is cut off, and what is drawn is what was computed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use challenges::graph::Solution;
use compiler::compile::{Compiled, Level, compile};
use figures::confusion::{Look, confusions};
use figures::curves::Runs;
use figures::file::{Kind, Part, lines, map};
use figures::gantt::{self, Gantt, chart};
use figures::graph::{Drawing, one_each, placed, shown, sources};
use figures::layers::{Item, lay};
use figures::memory::{Memory, rectangles};
use figures::overlap::{Overlap, Way, steps};
use figures::prompt::{self, Arrival, Out, Piece, Role};
use figures::shares::{Bar, shares};
use figures::{Figure, Law, Pass, Rect, Scale, Share, timing};
use proptest::prelude::*;
use reference::graph::{Graph, Id};
use reference::schedule::{
    Held, Schedule, Shape, Span, Stage, Timeline, Times, Workload, check, one_f_one_b, zero_bubble,
};
use scorecard::{Challenge, Measurement};
use tests::fixture;
use tests::graphs;
use tests::one_graph::CPU;
use tests::svg::Svg;
use tests::tiny_llama::TinyLlama;

use crate::compiled::{Runner, sizes, trains};
use crate::llama::trained;

/// Every figure of the book that is computed, and every one of a scorecard.
fn figures() -> Vec<(String, String)> {
    let book = ::book::drawn::figures(&::book::root()).unwrap_or_else(|error| panic!("{error}"));
    let cards = [
        fixture::solved(),
        fixture::half_done(),
        fixture::compiled(),
        fixture::chunked(),
        fixture::on_ranks(),
    ];
    let reports = cards.iter().flat_map(|card| &card.challenges).flat_map(figures::all);
    let own = book.into_iter().map(|(name, svg)| (name.to_owned(), svg));
    own.chain(reports.map(|figure| (figure.name.to_owned(), figure.svg))).collect()
}

#[test]
fn every_figure_is_well_formed_and_its_words_stay_inside_and_apart() {
    let figures = figures();
    let graph = ["graph-fusion", "graph-lives", "graph-memory", "graph-losses"];
    let chat = ["chat-prompt", "chat-difference", "chat-stream", "classify-learning"];
    let attention = ["attention-features", "attention-masks"];
    let files = ["gguf-file"];
    let measured = ["memory", "timeline", "losses", "chunks", "sizes", "training"];
    let ranks = ["fsdp-schedules", "fsdp-bytes", "ranks", "gantt", "overlap"];
    for name in graph.into_iter().chain(chat).chain(attention).chain(files).chain(measured).chain(ranks) {
        assert!(figures.iter().any(|(known, _)| known == name), "{name} is not drawn");
    }
    for (name, text) in figures {
        let svg = Svg::read(&text).unwrap_or_else(|what| panic!("{name}: {what}"));
        if let Some(fault) = svg.fault() {
            panic!("{name}: {fault}");
        }
    }
}

#[test]
fn words_that_are_cut_off_or_stand_over_others_are_found() {
    let figure = |inside: &str| format!("<svg viewBox=\"0 0 460 100\">{inside}</svg>");
    let text = |x: f64, y: f64| {
        format!("<text class=\"wb-text\" x=\"{x}\" y=\"{y}\" text-anchor=\"start\">launch</text>")
    };
    let fault = |inside: String| Svg::read(&figure(&inside)).expect("it is well formed").fault();
    assert_eq!(fault(text(10.0, 50.0) + &text(60.0, 50.0) + &text(10.0, 60.0)), None);
    for wrong in [text(440.0, 50.0), text(10.0, 101.0), text(10.0, 50.0) + &text(30.0, 53.0)] {
        assert!(fault(wrong.clone()).is_some(), "{wrong}");
    }
    for broken in ["<g>", "<path d=\"M0 0/>", "a & b", "<a b=\"1\" b=\"2\"/>"] {
        assert!(Svg::read(&figure(broken)).is_err(), "{broken}");
    }
}

#[test]
fn the_figures_of_the_book_are_what_is_computed() {
    ::book::drawn::check(&::book::root()).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_arena_that_is_drawn_is_that_of_the_table() {
    let table = include_str!("../../look/graph/step.txt");
    let last = |name: &str| -> f64 {
        let row = table.lines().find(|line| line.trim_end().starts_with(name)).expect("a row");
        row.split_whitespace().last().and_then(|bytes| bytes.parse().ok()).expect("bytes")
    };
    let figures = ::book::drawn::figures(&::book::root()).unwrap_or_else(|error| panic!("{error}"));
    let (_, svg) = figures.into_iter().find(|(name, _)| *name == "graph-memory").expect("it is drawn");
    for bytes in [last("-O2"), last("-O1, no flex")].map(figures::number::bytes) {
        assert!(svg.contains(&bytes), "{bytes} is not in {}", svg.lines().nth(2).unwrap_or_default());
    }
}

// ---- ranks

fn on_ranks() -> Challenge {
    fixture::on_ranks().challenges.swap_remove(1)
}

/// The filled boxes of a figure: left, top, width, height.
fn boxes(svg: &str) -> Vec<[f64; 4]> {
    let one = |text: &str| {
        let numbers = text.split(['h', 'v', ' ']).map(|number| number.parse().ok());
        numbers.take(4).collect::<Option<Vec<f64>>>()?.try_into().ok()
    };
    let paths =
        svg.lines().filter(|line| line.contains("fill-opacity")).filter_map(|line| line.split("d=\"").nth(1));
    paths.flat_map(|path| path.split('M').skip(1).filter_map(one)).collect()
}

#[test]
fn boxes_stand_where_their_times_say_the_measured_ones_below_the_simulated() {
    let gantt = Gantt::of(&on_ranks()).expect("a step");
    let across = gantt::across(std::slice::from_ref(&gantt));
    let svg = chart("A step", std::slice::from_ref(&gantt)).expect("it is drawn");
    let of = |height: f64| boxes(&svg).into_iter().filter(move |at| (at[3] - height).abs() < 0.01);
    let mut seen = 0;
    for row in &gantt.ranks {
        for (works, height) in [(&row.simulated, 20.0), (&row.measured, 9.0)] {
            for work in works.iter().filter(|work| work.micro_batch.is_some()) {
                let [left, right] = [work.span.start, work.span.end].map(|time| across.at(time));
                let stands = |at: &[f64; 4]| {
                    (at[0] - left).abs() < 0.02 && (0.0..0.85).contains(&(right - at[0] - at[2]))
                };
                assert_eq!(of(height).filter(stands).count(), 1, "{work:?} from {left} to {right}");
                seen += 1;
            }
        }
    }
    assert_eq!((seen, of(20.0).count() + of(9.0).count()), (64, 64));
    let tops = |height: f64| -> BTreeSet<i64> { of(height).map(|at| at[1].round() as i64).collect() };
    let pairs: Vec<(i64, i64)> = tops(20.0).into_iter().zip(tops(9.0)).collect();
    assert!(pairs.len() == 2 && pairs.iter().all(|(high, low)| low - high == 22), "{pairs:?}");
}

#[test]
fn idle_shares_and_bubbles_are_those_of_the_timeline() {
    let challenge = on_ranks();
    let gantt = Gantt::of(&challenge).expect("a step");
    let svg = chart("A step", std::slice::from_ref(&gantt)).expect("it is drawn");
    let timeline = |way: &str| {
        let rank = |rank: usize| -> Vec<Span> {
            let of = format!("fsdp.gantt.{way}.{rank}.");
            let all = challenge.measurements.iter().filter(|(name, _)| name.starts_with(&of));
            let samples: Vec<f64> = all.flat_map(|(_, measurement)| measurement.samples.clone()).collect();
            samples.chunks(3).map(|triple| Span { start: triple[1], end: triple[2] }).collect()
        };
        Timeline::new(vec![rank(0), rank(1)])
    };
    for (own, timeline) in [
        (gantt.simulated(), timeline("simulated")),
        (gantt.measured().expect("it ran"), timeline("measured")),
    ] {
        assert_eq!((own.busy(), own.makespan()), (timeline.busy(), timeline.makespan()));
        assert!(svg.contains(&format!("{:.1} %", 100.0 * timeline.bubble())), "{svg}");
        for (rank, busy) in timeline.busy().into_iter().enumerate() {
            let idle = 1.0 - busy / timeline.makespan();
            assert!((gantt::share(&own, rank) - idle).abs() < 1e-12);
            assert!(svg.contains(&format!(">{:.1} %<", 100.0 * idle)), "rank {rank}: {idle}");
        }
    }
}

/// Measurements that make no sense: what is changed, and the name of the measurement.
type Slip = (&'static str, fn(&mut Measurement));

#[test]
fn broken_triples_give_no_figure() {
    let slips: [Slip; 11] = [
        ("a number is missing", |it| _ = it.samples.pop()),
        ("a time that is none", |it| it.samples[1] = f64::NAN),
        ("an end without end", |it| it.samples[2] = f64::INFINITY),
        ("an end before its start", |it| it.samples.swap(1, 2)),
        ("before the beginning", |it| it.samples[1] = -1.0),
        ("half a micro-batch", |it| it.samples[0] = 0.5),
        ("a number below -1", |it| it.samples[0] = -2.0),
        ("a number that is none", |it| it.samples[0] = f64::NAN),
        ("another unit", |it| it.unit = "s".into()),
        ("two at once", |it| it.samples.extend([0.0, it.samples[1], 1e4])),
        ("more than can be drawn", |it| it.samples = vec![0.0; 300_003]),
    ];
    let drawn = |challenge: &Challenge| -> Vec<&str> {
        figures::all(challenge).into_iter().map(|figure| figure.name).collect()
    };
    assert_eq!(drawn(&on_ranks()), ["ranks", "gantt", "overlap"]);
    for (what, slip) in slips {
        for (figure, name) in [
            ("gantt", "gantt.measured.1.F"),
            ("gantt", "gantt.simulated.0.RBW"),
            ("overlap", "step.early.backward"),
        ] {
            let mut challenge = on_ranks();
            slip(challenge.measurements.get_mut(&format!("fsdp.{name}")).expect("a measurement"));
            assert!(!drawn(&challenge).contains(&figure), "{what} in {name}");
        }
    }
}

#[test]
fn ranks_and_operations_that_make_no_sense_give_no_figure() {
    let with = |name: &str, number: f64| {
        let mut challenge = on_ranks();
        let samples = vec![number, 900.0, 901.0];
        let measurement = Measurement { value: 1.0, unit: "ms".into(), interval: None, samples };
        challenge.measurements.insert(format!("fsdp.gantt.{name}"), measurement);
        Gantt::of(&challenge)
    };
    assert!(with("simulated.1.W", 0.0).is_some());
    let ranks = [
        "simulated.1000.F",
        "simulated.99999999999999999999.F",
        "simulated.3.F",
        "measured.2.F",
        "simulated.01.W",
    ];
    let kinds =
        ["simulated.1.BR", "simulated.1.X", "simulated.1.", "simulated.1.W.W", "other.1.W", "simulated.1"];
    for name in ranks.into_iter().chain(kinds) {
        assert_eq!(with(name, 0.0), None, "{name}");
    }
    for (name, number) in [("simulated.1.D", 0.0), ("simulated.1.W", -1.0)] {
        assert_eq!(with(name, number), None, "{name} of {number}");
    }
    let span = Span { start: 1.0, end: f64::NAN };
    let (late, early) =
        (Way { computes: vec![(Pass::Forward, None, span)], ..Way::default() }, Way::default());
    assert_eq!((steps(&Overlap { late, early }, "A step"), chart("None", &[])), (None, None));
}

#[test]
fn the_schedules_that_are_drawn_have_the_bubbles_of_the_chapter() {
    let figures = ::book::drawn::figures(&::book::root()).unwrap_or_else(|error| panic!("{error}"));
    let (_, svg) = figures.into_iter().find(|(name, _)| *name == "fsdp-schedules").expect("it is drawn");
    let at =
        |bubble: &str| svg.find(&format!(">bubble {bubble} %<")).unwrap_or_else(|| panic!("{bubble}: {svg}"));
    assert!(at("27.3") < at("17.6"));
}

#[test]
fn the_bytes_that_are_drawn_are_those_of_the_forecast() {
    let forecasts = ::book::ranks::forecasts().unwrap_or_else(|what| panic!("{what}"));
    let bars: Vec<Bar> = forecasts.iter().map(|forecast| Bar::of("some ranks", &forecast.bytes)).collect();
    for (bar, forecast) in bars.iter().zip(&forecasts) {
        let scratch = forecast.bytes.get("scratch").copied().unwrap_or(0);
        assert!((bar.total() - (forecast.total() - scratch) as f64).abs() < 0.5);
        assert!((bar.bytes(Share::Weights) - forecast.bytes["weights"] as f64).abs() < 0.5);
    }
    let svg = shares("Bytes", &bars).expect("they are drawn");
    assert!(bars.iter().all(|bar| svg.contains(&figures::number::bytes(bar.total()))));
    let shard = |bar: &Bar| bar.bytes(Share::Weights) + bar.bytes(Share::Trained);
    assert!((0.99..1.01).contains(&(8.0 * shard(&bars[3]) / shard(&bars[0]))), "an eighth on each of eight");
    assert!(bars[0].bytes(Share::Activations) <= bars[3].bytes(Share::Activations));
}

#[test]
fn losses_of_ranks_are_held_to_those_of_one() {
    let runs = Runs::ranks(&on_ranks(), 1e-6).expect("losses");
    assert_eq!((runs.called.as_str(), runs.name.as_str(), runs.own.len()), ("rank 0 of 2", "one rank", 60));
    let mut short = on_ranks();
    short.measurements.get_mut("fsdp.training.one").expect("losses").samples.pop();
    assert_eq!(Runs::ranks(&short, 1e-6), None);
}

/// A schedule, as it is simulated and as it ran so many times as slow.
fn ran(schedule: &Schedule, workload: &Workload, slower: f64) -> Gantt {
    let timeline = check(schedule, workload).expect("it can be run").simulate();
    let slow = |span: &Span| Span { start: span.start * slower, end: span.end * slower };
    let slow = Timeline::new(timeline.spans().iter().map(|spans| spans.iter().map(slow).collect()).collect());
    Gantt::new(("a schedule", "time"), schedule, &timeline, (slower > 1.0).then_some(&slow))
}

#[test]
fn two_texts_part_at_the_first_character_that_differs() {
    for (a, b, at) in [("abc", "abd", 2), ("ab", "abc", 2), ("xé", "xè", 1), ("", "", 0), ("a", "a", 1)] {
        assert_eq!(prompt::departs(a, b), at, "{a:?} and {b:?}");
    }
    let drawn = prompt::difference("Two", [("one", "{\"a\": \"<\"}"), ("other", "{\"a\": \"\\u003c\"}")]);
    for message in ["byte 7 is 0x3c, &lt;", "byte 7 is 0x5c, \\", "7 bytes are equal"] {
        assert!(drawn.contains(message), "{message}: {drawn}");
    }
}

#[test]
fn what_is_trained_is_underlined_and_special_tokens_have_frames() {
    let piece = |text: &str, role, trained| Piece { text: text.into(), id: 300, role, trained };
    let count = |pieces: &[Piece], what: &str| prompt::prompt("A prompt", pieces).matches(what).count();
    let plain = [piece("a", None, false), piece("b", None, false)];
    let own = [piece("a", None, false), piece("b", None, true)];
    let special = [piece("a", None, false), piece("b", Some(Role::Call), false)];
    assert_eq!(count(&own, "wb-baseline\" d="), count(&plain, "wb-baseline\" d=") + 1);
    assert_eq!(count(&special, "rx=\"3\""), count(&plain, "rx=\"3\"") + 1);
    assert_eq!(count(&special, "wb-id\""), 2);
}

/// A compiled random graph, if it compiles.
fn compiled(case: &graphs::Case) -> Option<Compiled> {
    let sizes = sizes(&case.graph, &case.values());
    compile(&Solution, &case.graph, &sizes, Level::O2.options()).ok()
}

#[test]
fn a_node_between_two_of_a_launch_is_drawn_in_it() {
    let text = "graph \"g\" { %0 = input \"x\" : f32[2] %1 = exp %0 : f32[2] %2 = neg %1 : f32[2] \
                %3 = add %2 %1 : f32[2] return \"y\" %3 }";
    let graph = Graph::parse(text).expect("a graph");
    let drawing = placed(&graph, &[BTreeSet::from([Id(1), Id(3)])], 200.0);
    assert_eq!((drawing.frames.len(), wrong(&graph, &drawing, 200.0)), (1, None));
    assert!(drawing.boxes.iter().all(|(id, frame, _)| frame.is_some() || *id == Id(0)));
}

/// A product that takes the sign of its factor on the way, while a later launch computes it for others.
#[test]
fn what_a_launch_does_on_its_way_and_a_later_one_for_others_stands_in_both() {
    let text = "graph \"sign\" {\n  %0 = input \"x\" : f32[7, 1]\n  %1 = neg %0 : f32[7, 1]\n  %2 = input \"w\" : f32[1, 7]\n  \
                %3 = matmul %1 %2 : f32[7, 7]\n  %4 = cast %1 : f16[7, 1]\n  return \"y\" %3, \"z\" %4\n}\n";
    let graph = Graph::parse(text).expect("a graph");
    let drawing = placed(&graph, &[BTreeSet::from([Id(3)]), BTreeSet::from([Id(1), Id(4)])], 200.0);
    assert_eq!(wrong(&graph, &drawing, 200.0), None);
    assert_eq!(drawing.boxes.iter().filter(|(id, ..)| *id == Id(1)).count(), 2);
}

fn meeting(rects: &[Rect]) -> Option<(Rect, Rect)> {
    let all = rects.iter().enumerate();
    all.flat_map(|(i, a)| rects[i + 1..].iter().map(move |b| (*a, *b))).find(|(a, b)| a.meets(b))
}

/// What is wrong with a drawing.
fn wrong(graph: &Graph, drawing: &Drawing, room: f64) -> Option<String> {
    let boxes: Vec<Rect> = drawing.boxes.iter().map(|(.., at)| *at).collect();
    let alone = drawing.boxes.iter().filter(|(_, frame, _)| frame.is_none()).map(|(.., at)| *at);
    let outer: Vec<Rect> = drawing.frames.iter().map(|(_, at)| *at).chain(alone).collect();
    if let Some((a, b)) = meeting(&boxes).or_else(|| meeting(&outer)) {
        return Some(format!("{a:?} meets {b:?}"));
    }
    let widest = outer.iter().map(|at| at.width).fold(room, f64::max);
    if drawing.size.0 > widest + 1e-6 {
        return Some(format!("it is {} wide", drawing.size.0));
    }
    if let Some(id) =
        graph.ids().find(|id| shown(graph, *id) && !drawing.boxes.iter().any(|(node, ..)| node == id))
    {
        return Some(format!("{} is not drawn", graph.site(id)));
    }
    drawing.boxes.iter().find_map(|(id, frame, at)| {
        let above = |source: &Id| {
            drawing.boxes.iter().any(|(node, ..)| node == source && is_above(drawing, *node, *frame, at))
        };
        let lost = sources(graph, *id).into_iter().find(|source| !above(source))?;
        Some(format!("{} is not below {}", graph.site(*id), graph.site(lost)))
    })
}

/// Whether some box of a node ends above another one: within its frame, if it is there too.
fn is_above(drawing: &Drawing, node: Id, frame: Option<usize>, at: &Rect) -> bool {
    let of = || drawing.boxes.iter().filter(|(other, ..)| *other == node);
    let inside = of().any(|(_, other, _)| other.is_some() && *other == frame);
    of().any(|(_, other, rect)| (!inside || *other == frame) && rect.bottom() <= at.y + 1e-6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn in_a_drawing_every_node_stands_below_its_inputs_and_over_no_other(case in graphs::any(), room in 150.0..444.0) {
        let graph = Graph::parse(&case.graph.to_string()).expect("its own text");
        let fault = wrong(&graph, &placed(&graph, &one_each(&graph), room), room);
        prop_assert!(fault.is_none(), "{}\n{graph}", fault.unwrap_or_default());
        if let Some(compiled) = compiled(&case) {
            let graph = Graph::parse(&compiled.graph.to_string()).expect("its own text");
            let fault = wrong(&graph, &placed(&graph, &compiled.nodes, room), room);
            prop_assert!(fault.is_none(), "{}\n{graph}\n{:?}", fault.unwrap_or_default(), compiled.nodes);
        }
    }

    #[test]
    fn any_schedule_finds_room(
        (ranks, micro_batches) in (1..10_usize, 1..33_usize),
        times in prop::array::uniform4(0.01..20.0),
        slower in 0.9..1.5,
    ) {
        let [forward, recompute, backward, weight] = times;
        let times = Times { forward, backward, weight, recompute, dequantize: 0.0 };
        let stage = Stage { times, held: Held::default(), recomputed: true, trained: true };
        let (shape, workload) = (Shape::line(ranks, micro_batches).expect("a shape"), Workload::uniform(stage));
        let gantt = |schedule: Result<Schedule, _>| ran(&schedule.expect("a schedule"), &workload, slower);
        let both = [gantt(one_f_one_b(shape, &workload)), gantt(zero_bubble(shape, &workload))];
        for gantts in [&both[..], &both[..1]] {
            let drawn = chart("A schedule", gantts).expect("it is drawn");
            prop_assert_eq!(Svg::read(&drawn).expect("it is well formed").fault(), None, "{}", drawn);
        }
    }

    #[test]
    fn any_bytes_and_any_gathers_find_room(
        bytes in prop::collection::vec(prop::array::uniform6(0.0..1e11), 1..9),
        gathers in prop::collection::vec((0.0..100.0, 0.1..30.0), 0..40),
    ) {
        let bar = |of: &[f64; 6]| Bar { name: "8 ranks".into(), shares: Share::ALL.into_iter().zip(*of).collect() };
        let drawn = shares("Bytes", &bytes.iter().map(bar).collect::<Vec<_>>()).expect("they are drawn");
        prop_assert_eq!(Svg::read(&drawn).expect("it is well formed").fault(), None, "{}", drawn);
        let span = |(start, takes): &(f64, f64)| Span { start: *start, end: start + takes };
        let gathers = gathers.iter().enumerate().map(|(piece, when)| (Some(piece), span(when))).collect();
        let way = Way { gathers, computes: vec![(Pass::Forward, Some(0), Span { start: 0.0, end: 60.0 })] };
        let drawn = steps(&Overlap { early: way.clone(), late: way }, "Two steps").expect("they are drawn");
        prop_assert_eq!(Svg::read(&drawn).expect("it is well formed").fault(), None, "{}", drawn);
    }

    #[test]
    fn no_two_rectangles_of_an_arena_meet(case in graphs::any()) {
        let Some(compiled) = compiled(&case) else { return Ok(()) };
        let memory = Memory {
            buffers: ::book::drawn::buffers(&compiled),
            launches: compiled.plan().steps.len(),
            arena: compiled.arena.bytes as f64,
            without: None,
        };
        let across = Scale::new(Law::Linear, [0.0, memory.launches as f64 + 1.0], [0.0, 4000.0]);
        let up = Scale::new(Law::Linear, [0.0, memory.arena], [4000.0, 0.0]);
        let all = rectangles(&memory, &across, &up);
        let solid: Vec<Rect> = all.into_iter().map(|(_, at)| at).filter(|at| at.height > 1e-9).collect();
        prop_assert!(meeting(&solid).is_none(), "{:?}\n{memory:?}", meeting(&solid));
        prop_assert!(memory.floor() <= memory.arena, "{} are alive in {}", memory.floor(), memory.arena);
    }

    #[test]
    fn any_text_finds_room_token_by_token(tokens in prop::collection::vec(("[ -~\n]{1,90}", 0..1_000_000_usize, 0..4_usize, any::<bool>()), 1..40)) {
        let roles = [None, Some(Role::Turn), Some(Role::Call), Some(Role::Result)];
        let piece = |(text, id, role, trained): &(String, usize, usize, bool)| {
            Piece { text: text.clone(), id: *id, role: roles[*role], trained: *trained }
        };
        let drawn = prompt::prompt("Any prompt", &tokens.iter().map(piece).collect::<Vec<Piece>>());
        prop_assert_eq!(Svg::read(&drawn).expect("it is well formed").fault(), None, "{}", drawn);
    }

    #[test]
    fn any_answers_find_room(classes in 2..5_usize, looks in prop::collection::vec((0..100_000_u64, prop::collection::vec(0..1_000_u32, 16)), 1..5)) {
        let look = |(steps, counts): &(u64, Vec<u32>)| {
            let counts = counts[..classes * classes].iter().map(|count| f64::from(*count)).collect();
            Look { steps: *steps, counts }
        };
        let looks: Vec<Look> = looks.iter().map(look).collect();
        let Some(drawn) = confusions("Answers", &looks) else {
            prop_assert!(looks.iter().any(|look| look.counts.iter().all(|count| *count == 0.0)));
            return Ok(());
        };
        prop_assert_eq!(Svg::read(&drawn).expect("it is well formed").fault(), None, "{}", drawn);
    }

    #[test]
    fn any_file_finds_room_and_no_part_of_it_is_lost(parts in prop::collection::vec((0..5_usize, 1..160_000_usize, "[ -~]{0,90}"), 1..60)) {
        let mut begin = 0;
        let part = |(kind, bytes, words): &(usize, usize, String)| {
            let part = Part { kind: Kind::ALL[*kind], begin, bytes: *bytes, words: words.clone() };
            begin += bytes;
            part
        };
        let parts: Vec<Part> = parts.iter().map(part).collect();
        let shown = lines(&parts);
        prop_assert_eq!(shown.iter().map(|line| line.parts).sum::<usize>(), parts.len());
        prop_assert_eq!(shown.iter().map(|line| line.part.bytes).sum::<usize>(), begin);
        let drawn = map("Any file", &parts).expect("parts that follow each other");
        prop_assert_eq!(Svg::read(&drawn).expect("it is well formed").fault(), None, "{}", drawn);
        prop_assert_eq!(map("A hole", &parts[1..]), None);
    }

    #[test]
    fn any_two_texts_and_any_stream_find_room(a in "[ -~\n]{0,200}", b in "[ -~\n]{0,200}", same in "[ -~é]{0,60}") {
        let texts = [same.clone() + &a, same.clone() + &b];
        let drawn = prompt::difference("Two texts", [("one", &texts[0]), ("another", &texts[1])]);
        prop_assert_eq!(Svg::read(&drawn).expect("it is well formed").fault(), None, "{}", drawn);
        let out = vec![Out::Event("content opens".into()), Out::Content(b.clone()), Out::Call(same), Out::Event(a.clone())];
        let arrivals = [Arrival { piece: a, out, held: b }];
        let drawn = prompt::stream("A stream", &arrivals);
        prop_assert_eq!(Svg::read(&drawn).expect("it is well formed").fault(), None, "{}", drawn);
    }

    #[test]
    fn any_items_find_room(after in prop::collection::vec((10.0..120.0, prop::collection::vec(any::<prop::sample::Index>(), 0..4)), 1..40)) {
        let item = |(i, (width, after)): (usize, &(f64, Vec<prop::sample::Index>))| Item {
            size: (*width, 18.0),
            after: if i == 0 { Vec::new() } else { after.iter().map(|index| index.index(i)).collect::<BTreeSet<_>>().into_iter().collect() },
        };
        let items: Vec<Item> = after.iter().enumerate().map(item).collect();
        let layers = lay(&items, 300.0, 15.0);
        prop_assert!(meeting(&layers.boxes).is_none(), "{:?}", meeting(&layers.boxes));
        for (i, item) in items.iter().enumerate() {
            let at = layers.boxes[i];
            prop_assert!(at.x >= -1e-6 && at.x + at.width <= 300.0 + 1e-6, "{at:?}");
            prop_assert!(item.after.iter().all(|above| layers.boxes[*above].bottom() < at.y));
        }
        prop_assert_eq!(layers.lines.len(), items.iter().map(|item| item.after.len()).sum::<usize>());
    }
}

fn kept() -> PathBuf {
    tests::place::workbook().join("book/src/results/qlora-losses.csv")
}

/// How far the losses of another machine may be from those that are kept: sums in another order, and what 40 updates
/// make of them.
const NEAR: f64 = 3e-4;

/// `UPDATE=1` writes the kept losses again.
#[test]
fn the_kept_losses_are_those_of_the_golden_run() {
    let Some(tiny) = TinyLlama::find() else { return };
    let compiled = trains(&tiny, |graph, values| Runner::new(&*CPU, graph, values, Level::O2));
    let (interpreted, _) = trained::<f32>(&tiny);
    let interpreted: Vec<f64> = interpreted.iter().map(|step| step.loss).collect();
    let libraries = tiny.numbers("expected.safetensors", "qlora_losses").values;
    let truth = tiny.numbers("truth.safetensors", "losses").values;
    if std::env::var("UPDATE").is_ok_and(|update| update == "1") {
        let mut text = String::from(
            "# Losses of the golden QLoRA run, nats a token: compiled at -O2, interpreted in f32, by the original libraries in f32, in f64.\n\
             # UPDATE=1 cargo test --release -p tests --test workbook pictures:: writes this file.\n\
             step,compiled,interpreted,libraries,truth\n",
        );
        for step in 0..truth.len() {
            let [a, b, c, d] = [&compiled, &interpreted, &libraries, &truth].map(|series| series[step]);
            _ = writeln!(text, "{step},{a:.9},{b:.9},{c:.9},{d:.9}");
        }
        fs::write(kept(), text).expect("the file can be written");
    }
    if std::env::var_os("WARPBOOK_GOLDEN").is_some() {
        return; // another run than the kept one
    }
    let text = fs::read_to_string(kept()).expect("kept losses");
    let rows: Vec<Vec<f64>> = text
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .map(|line| line.split(',').map(|cell| cell.parse().expect("a number")).collect())
        .collect();
    let steps: BTreeSet<usize> = rows.iter().map(|row| row[0] as usize).collect();
    assert_eq!(steps.len(), truth.len(), "a row for each step");
    for row in &rows {
        let step = row[0] as usize;
        for (kept, now) in row[1..].iter().zip([&compiled, &interpreted, &libraries, &truth]) {
            assert!((kept - now[step]).abs() <= NEAR, "step {step}: kept {kept}, now {}", now[step]);
        }
    }
}

fn nf4() -> Challenge {
    fixture::solved().challenges.remove(0)
}

#[test]
fn every_figure_names_its_cases() {
    let challenge = nf4();
    assert_eq!(figures::all(&challenge).len(), 3);
    for Figure { name, svg, .. } in figures::all(&challenge) {
        assert!(svg.contains("<title>") && svg.contains("<desc>") && svg.contains(r#"role="img""#), "{name}");
        assert!(svg.contains("4096 \u{d7} 14336 bf16"), "{name}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
    }
}

#[test]
fn unmeasured_challenge_has_no_figure() {
    let mut challenge = nf4();
    challenge.measurements.clear();
    assert!(figures::all(&challenge).is_empty());
}

#[test]
fn hostile_measurements_stay_out_of_figures() {
    let mut challenge = nf4();
    for (i, value) in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300, 1e-300].into_iter().enumerate() {
        for family in ["speedup", "baseline", "attempt", "bound"] {
            let bad = Measurement {
                value,
                unit: "<x>".into(),
                interval: Some([value, 2.0]),
                samples: vec![value; 3],
            };
            challenge.measurements.insert(format!("nf4.{family}.<script>{i}"), bad);
        }
    }
    for Figure { svg, .. } in figures::all(&challenge) {
        assert!(!svg.contains("NaN") && !svg.contains("<script") && !svg.contains("inf"));
    }
}

#[test]
fn fixture_has_five_cases_and_five_counts() {
    let card = fixture::solved();
    let timings = timing::timings(&card.challenges[0]);
    assert_eq!(timings.len(), 5);
    assert!(timings.iter().all(|t| t.speedup.is_some() && t.bound.is_some() && t.rate.is_some()));
    assert_eq!(timing::counts(&card.challenges[0]).len(), 5);
}
