//! What the chapter on attention shows is what is computed: choices, windows, packed documents, pieces and merged parts
//! are kept files that it includes.

use std::fmt::Write as _;

use book::attention::{BLOCK, TOKENS, WINDOW, mask};
use challenges::issues::attention::backends::{PIECES, Shape, graph};
use challenges::issues::attention::{
    Attend, BACK_ENDS, BackEnd, Feature, Part, Request, Rules, Sizes, Solution, Way,
};
use compiler::compile::{Level, compile};
use figures::attention::{Claim, Left};
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, interpret, programs};

use crate::look::looks_like;

fn shows(name: &str, text: &str) {
    looks_like(&format!("attention/{name}.txt"), text);
}

fn causal() -> Rules {
    Rules { causal: true, ..Rules::default() }
}

/// All but the one that has everything.
static WITHOUT_EXPANDED: [BackEnd; 3] = [BACK_ENDS[0], BACK_ENDS[1], BACK_ENDS[2]];

#[test]
fn a_choice_is_explained_with_a_line_for_each_back_end() {
    let plain = |more: &[Feature]| Request { rules: causal(), more: more.to_vec(), ..Request::default() };
    let documents = Rules { documents: true, ..causal() };
    let packed = Request { rules: documents, ..plain(&[Feature::Documents, Feature::Gradients]) };
    let prefix = Request { rules: Rules { prefix: Some(64), ..documents }, ..packed.clone() };
    let dropout = Request { keep: Some(0.9), ..plain(&[Feature::Gradients]) };
    let requests = [
        plain(&[Feature::Gradients]),
        packed,
        prefix,
        plain(&[Feature::ShortQueries, Feature::Decoding]),
        dropout.clone(),
    ];
    let mut text = String::new();
    for request in requests {
        let (_, lines) = request.choose(&Solution, &BACK_ENDS).expect("one of them can");
        _ = writeln!(text, "{}\n{lines}", listed(&request));
    }
    shows("explain", &(text.trim_end().to_owned() + "\n"));
    let error = dropout.choose(&Solution, &WITHOUT_EXPANDED).map(|_| ()).expect_err("none of them can");
    shows("none", &error);
}

fn listed(request: &Request) -> String {
    let names: Vec<String> = request.features().iter().map(Feature::to_string).collect();
    names.join(", ")
}

#[test]
fn a_window_counts_the_querys_own_key() {
    let rows = |window: u32| {
        let mask = mask("", Rules { window: Some(window), ..causal() }, |_| 1);
        let line = |query: usize| {
            let row = &mask.sees[query * TOKENS..][..8];
            row.iter().map(|sees| if *sees { "1 " } else { ". " }).collect::<String>()
        };
        (0..8).map(line).collect::<Vec<_>>()
    };
    let mut text = format!("{:<24}left = 3\n", "a window of 3");
    for (three, four) in rows(3).iter().zip(rows(4)) {
        _ = writeln!(text, "{:<24}{}", three.trim_end(), four.trim_end());
    }
    shows("window", &text);
}

#[test]
fn the_rules_are_a_program_of_one_score() {
    let rules = Rules { window: Some(3), ..causal() };
    let program = programs::mask("rules", &[], |at| Solution.sees(at, &rules)).expect("it is sound");
    shows("sees", &format!("{program}\n"));
}

#[test]
fn documents_are_packed_row_by_row() {
    let documents = [1, 1, 1, 2, 2, 0, 0, 2, 2, 2, 2, 3];
    let packing = Solution.pack(&documents, 6);
    let mut text = String::new();
    for (row, documents) in documents.chunks(6).enumerate() {
        _ = writeln!(text, "row {row}       {documents:?}");
    }
    _ = writeln!(text, "tokens      {:?}", packing.tokens);
    _ = writeln!(text, "documents   {:?}", packing.documents);
    _ = writeln!(text, "cu_seqlens  {:?}", packing.starts);
    shows("pack", &text);
}

/// The score and the value of each key, in two parts.
const PARTS: [&[(f64, f64)]; 2] = [&[(2.0, 10.0), (1.0, 20.0)], &[(0.0, 30.0), (3.0, 40.0), (1.0, 50.0)]];

/// What attention to some keys gives.
fn attended(keys: &[(f64, f64)]) -> [f64; 2] {
    let sum: f64 = keys.iter().map(|(score, _)| score.exp()).sum();
    [keys.iter().map(|(score, value)| score.exp() / sum * value).sum(), sum.ln()]
}

/// Parts by D.12.
fn merged(parts: &[[f64; 2]]) -> [f64; 2] {
    let builder = Builder::new("merged");
    let mut values: Values<f64> = Values::new();
    let mut input = |name: String, dims: usize, value: f64| {
        let shape = vec![1; dims];
        values.insert(name.clone(), Array::floats(Dtype::F32, &shape, [value]));
        builder.tape().input(&name, Dtype::F32, shape)
    };
    let part = |(i, [output, lse]): (usize, &[f64; 2])| Part {
        output: input(format!("output{i}"), 4, *output),
        lse: input(format!("lse{i}"), 3, *lse),
    };
    let parts: Vec<Part> = parts.iter().enumerate().map(part).collect();
    let whole = Solution.merge(&parts);
    builder.tape().output("output", &whole.output);
    builder.tape().output("lse", &whole.lse);
    drop((parts, whole));
    let found = interpret(&builder.finish().expect("sound"), &values).expect("it runs");
    [0, 1].map(|i| found[i].wide()[0])
}

#[test]
fn two_parts_are_merged_by_their_logarithms() {
    let parts = PARTS.map(attended);
    let whole = attended(&PARTS.concat());
    let together = merged(&parts);
    assert!(whole.iter().zip(together).all(|(whole, together)| (whole - together).abs() < 1e-12));
    let mut text = format!("{:<24}{:<16}{:>8}{:>10}{:>9}\n", "scores", "values", "output", "lse", "share");
    let mut row = |keys: &[(f64, f64)], [output, lse]: [f64; 2]| {
        let of =
            |of: fn(&(f64, f64)) -> f64| keys.iter().map(|key| format!("{}", of(key))).collect::<Vec<_>>();
        let [scores, values] = [of(|key| key.0).join(" "), of(|key| key.1).join(" ")];
        let share = (lse - whole[1]).exp();
        _ = writeln!(text, "{scores:<24}{values:<16}{output:>8.4}{lse:>10.4}{share:>9.4}");
    };
    PARTS.iter().zip(parts).for_each(|(keys, part)| row(keys, part));
    row(&PARTS.concat(), together);
    shows("merge", &text);
}

#[test]
fn keys_are_cut_where_some_query_sees_them() {
    let [most, least] = PIECES;
    let mut text = String::new();
    let cases = [
        (4095..4096, 4096, causal()),
        (1000..1001, 4096, causal()),
        (4095..4096, 4096, Rules { window: Some(1000), ..causal() }),
        (4095..4096, 4096, Rules { window: Some(100), ..causal() }),
    ];
    for (queries, keys, rules) in cases {
        let window = rules.window.map_or(String::new(), |window| format!(", window {window}"));
        let pieces = Solution.pieces(queries.clone(), keys, &rules, most, least);
        _ = writeln!(text, "query {} of {keys} keys{window}: {}", queries.start, said(&pieces));
    }
    shows("pieces", &text);
}

fn said(pieces: &[std::ops::Range<usize>]) -> String {
    let said: Vec<String> = pieces.iter().map(|piece| format!("{}..{}", piece.start, piece.end)).collect();
    said.join(" ")
}

/// What one head of 2,048 tokens keeps in memory, tile by tile and score by score.
#[test]
fn tiles_need_no_memory_for_scores() {
    let sizes = Sizes { batch: 1, heads: 8, groups: 8, queries: 2048, keys: 2048, depth: 64, width: 64 };
    let request =
        Request { scale: 0.125, rules: causal(), more: vec![Feature::Gradients], ..Request::default() };
    let mut text = format!("{:<12}{:>8}{:>14}\n", "", "launches", "arena");
    for (name, way) in [("tiled", Way::Tiled), ("expanded", Way::Expanded)] {
        let graph = graph(way, &request, &Solution, &Shape::of(sizes, 0, Dtype::F32)).expect("it is written");
        let sizes = std::collections::BTreeMap::new();
        let compiled =
            compile(&challenges::graph::Solution, &graph, &sizes, Level::O2.options()).expect("it compiles");
        let (launches, arena) = (compiled.plan().steps.len(), compiled.arena.bytes as f64 / 1_048_576.0);
        _ = writeln!(text, "{name:<12}{launches:>8}{arena:>10.1} MiB");
    }
    shows("memory", &text);
}

#[test]
fn a_claim_of_a_figure_is_that_of_the_back_end() {
    for back_end in &BACK_ENDS {
        for feature in Feature::ALL {
            let claim = book::attention::claim(back_end, feature);
            assert_eq!(claim != Claim::Lacks, back_end.has.contains(&feature), "{} {feature}", back_end.name);
            assert_eq!(
                claim == Claim::MeantFor,
                back_end.of.contains(&feature),
                "{} {feature}",
                back_end.name
            );
        }
    }
}

/// Of a causal mask the blocks of the diagonal are in part, and those below it whole.
#[test]
fn blocks_are_whole_in_part_or_left_out() {
    let side = TOKENS / BLOCK;
    let blocks = mask("", causal(), |_| 1).blocks(BLOCK);
    for (at, left) in blocks.iter().enumerate() {
        let want = match (at / side).cmp(&(at % side)) {
            std::cmp::Ordering::Greater => Left::Whole,
            std::cmp::Ordering::Equal => Left::Part,
            std::cmp::Ordering::Less => Left::None,
        };
        assert_eq!(*left, want, "block {at}");
    }
    let window = mask("", Rules { window: Some(WINDOW), ..causal() }, |_| 1);
    let ragged = window.blocks(BLOCK + 1); // the last ones are cut
    assert_eq!(ragged.len(), (TOKENS.div_ceil(BLOCK + 1)).pow(2));
    assert!(ragged.last() == Some(&Left::Whole), "the last token is a block of its own");
}
