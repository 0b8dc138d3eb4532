//! Pictures of challenges C and E: nothing overlaps, nothing is cut off, and what is drawn is what was computed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use challenges::graph::Solution;
use compiler::compile::{Compiled, Level, compile};
use grader::figure::graph::{Drawing, one_each, placed, shown, sources};
use grader::figure::layers::{Item, lay};
use grader::figure::memory::{Memory, rectangles};
use grader::figure::prompt::{self, Arrival, Out, Piece, Role};
use grader::figure::{Law, Rect, Scale};
use grader::fixture;
use proptest::prelude::*;
use reference::graph::{Graph, Id};
use tests::graphs;
use tests::svg::Svg;
use tests::tiny_llama::TinyLlama;

use crate::compiled::{Runner, sizes, trains};
use crate::llama::trained;

/// Every figure of the book that is computed, and every one of a scorecard.
fn figures() -> Vec<(String, String)> {
    let book = ::book::drawn::figures(&::book::root()).unwrap_or_else(|error| panic!("{error}"));
    let cards = [fixture::solved(), fixture::half_done(), fixture::compiled(), fixture::chunked()];
    let reports = cards.iter().flat_map(|card| &card.challenges).flat_map(grader::figure::all);
    let own = book.into_iter().map(|(name, svg)| (name.to_owned(), svg));
    own.chain(reports.map(|figure| (figure.name.to_owned(), figure.svg))).collect()
}

#[test]
fn every_figure_is_well_formed_and_its_words_stay_inside_and_apart() {
    let figures = figures();
    let graph = ["graph-fusion", "graph-lives", "graph-memory", "graph-losses"];
    let chat = ["chat-prompt", "chat-difference", "chat-stream"];
    let measured = ["memory", "timeline", "losses", "chunks", "sizes", "training"];
    for name in graph.into_iter().chain(chat).chain(measured) {
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
    for bytes in [last("-O2"), last("-O1, no flex")].map(grader::figure::number::bytes) {
        assert!(svg.contains(&bytes), "{bytes} is not in {}", svg.lines().nth(2).unwrap_or_default());
    }
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
    let compiled = trains(&tiny, |graph, values| Runner::new(graph, values, Level::O2));
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
