//! What the book says that the grader prints is what the grader prints.
//!
//! A chapter that shows a `cargo grader replay` shows its output in the next block of plain text. This program
//! hands in an attempt with the chapter's mistakes, runs each such command and compares, to the letter. With
//! `UPDATE=1` the pages are rewritten.
//!
//! The grader starts the program that it is part of again, as the child that an attempt runs in. So this test
//! is a program without a harness: with [`AS_GRADER`] set it is the grader.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use book::markdown::{Block, Piece, pieces};
use challenges::graph::Compile;
use challenges::issues::attention::{Attend, BackEnd, Feature, Packing, Part, Rules, Verdict};
use challenges::issues::chat::lint::Criterion;
use challenges::issues::chat::tools::{ArgumentType, Signature};
use challenges::issues::chat::{Chat, Find, MarkerState, Match, Next, Rendered, Tool};
use challenges::issues::gguf::{self, Gguf, Projector, TensorType, TextModel};
use challenges::issues::vision::{
    self, Batch, Cut, Image, Normalization, Placeholders, Positions, Row, Rule, Sample, Side, Size, Vision,
};
use challenges::nf4::{Absmax, Nf4, Output, Weight};
use compiler::front::capture::Capture;
use compiler::ir::arena::{Arena, Life};
use compiler::ir::code::Code;
use compiler::ir::sized::Sized;
use grader::Attempts;
use kernels::Cpu;
use kernels::plan::Choice;
use kernels::tile::Value;
use reference::graph::interpret::Values;
use reference::graph::programs::ScoreEntry;
use reference::graph::{Dtype, Error, Facts, Graph, Id, Known, Op, Tape, Tensor, Type};
use reference::llama::Rope;
use tests::attempts::honest;

/// Set for the grader's own processes.
const AS_GRADER: &str = "WARPBOOK_AS_GRADER";

/// The pages that show what the grader prints.
const PAGES: [&str; 7] = ["nf4.md", "graph.md", "chat.md", "attention.md", "gguf.md", "vision.md", PRINTS];

/// The page whose attempt prints what it does; also the value of [`AS_GRADER`] for it.
const PRINTS: &str = "debugging.md";

/// The solutions with the mistakes that the chapters ask for: nibbles swapped in A.1, `mul_add` in A.4; no bucket for
/// the largest size in C.2, unused inputs gone in C.3, lives that end before their last part in C.5; and in every step
/// of tool calling, of attention and of GGUF files the one that its section asks for; halves rounded up in D.23.
struct Mistaken;

fn main() -> ExitCode {
    if std::env::var_os(AS_GRADER).is_some() {
        let attempts = Attempts::new().nf4(Mistaken).graph(Mistaken).chat(Mistaken).attention(Mistaken);
        return attempts.gguf(Mistaken).vision(Mistaken).run(std::env::args_os());
    }
    let src = book::root().join("src");
    let stale: usize = PAGES.iter().map(|page| stale(&src.join(page))).sum();
    if stale == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How many printed texts of a page are not what its commands print.
fn stale(page: &Path) -> usize {
    let text = std::fs::read_to_string(page).expect("the page can be read");
    let shown = shown(&text);
    assert!(!shown.is_empty(), "{} shows no replay", page.display());
    let (mut fresh, mut stale) = (text.clone(), 0);
    for (command, body) in shown {
        let printed = printed(command, page);
        if printed != body {
            eprintln!("{command}\n-- the page\n{body}-- the grader\n{printed}");
            fresh = fresh.replace(body, &printed);
            stale += 1;
        }
    }
    if stale > 0 && std::env::var_os("UPDATE").is_some() {
        std::fs::write(page, fresh).expect("the page can be written");
        return 0;
    }
    stale
}

/// Each `cargo grader replay` of a page with the plain text that follows.
fn shown(text: &str) -> Vec<(&str, &str)> {
    let blocks: Vec<Block<'_>> = pieces(text).into_iter().filter_map(block).collect();
    let after = blocks.windows(2).filter(|pair| pair[1].info == "text");
    after.filter_map(|pair| Some((replay(pair[0].body)?, pair[1].body))).collect()
}

fn block(piece: Piece<'_>) -> Option<Block<'_>> {
    if let Piece::Block(block) = piece { Some(block) } else { None }
}

fn replay(body: &str) -> Option<&str> {
    body.trim().strip_prefix("cargo grader ").filter(|words| words.starts_with("replay "))
}

/// What a command of the grader prints, with the attempt of a page.
fn printed(command: &str, page: &Path) -> String {
    let program = std::env::current_exe().expect("this program has a path");
    let name = page.file_name().expect("a page has a name");
    let output = Command::new(program)
        .args(command.split_whitespace())
        .env(AS_GRADER, name)
        .output()
        .expect("it runs");
    String::from_utf8(output.stdout).expect("the grader prints UTF-8")
}

impl Nf4 for Mistaken {
    fn unpack(&self, packed: &[u8], codes: &mut [u8]) {
        if std::env::var_os(AS_GRADER).is_some_and(|page| page == PRINTS) {
            for byte in packed {
                println!("byte {byte:#04x}: {} and {}", byte & 15, byte >> 4);
            }
        }
        let swapped: Vec<u8> = packed.iter().map(|byte| byte.rotate_left(4)).collect();
        honest::nf4::Solution.unpack(&swapped, codes);
    }

    fn look_up(&self, codes: &[u8], table: &[f32; 16], values: &mut [f32]) {
        honest::nf4::Solution.look_up(codes, table, values);
    }

    fn block(&self, packed: &[u8], table: &[f32; 16], absmax: f32, values: &mut [f32]) {
        honest::nf4::Solution.block(packed, table, absmax, values);
    }

    fn absmax(&self, absmax: &Absmax<'_>, block: usize) -> f32 {
        match *absmax {
            Absmax::Single(scales) => scales[block],
            Absmax::Double { codes, table, scales, block_size, offset } => {
                table[codes[block] as usize].mul_add(scales[block / block_size], offset)
            }
        }
    }

    fn dequantize(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        honest::nf4::Solution.dequantize(cpu, weight, out);
    }

    fn dequantize_fast(&self, cpu: &Cpu, weight: &Weight<'_>, out: Output<'_>) {
        honest::nf4::Solution.dequantize_fast(cpu, weight, out);
    }
}

impl Compile for Mistaken {
    fn capture(&self, name: &str, program: &dyn Fn(&Tape), examples: &Values<f32>) -> Result<Capture, Error> {
        honest::graph::Solution.capture(name, program, examples)
    }

    fn buckets(&self, facts: Facts) -> Vec<i64> {
        let mut buckets = honest::graph::Solution.buckets(facts);
        buckets.pop();
        buckets
    }

    fn prune(&self, graph: &Graph) -> Result<Graph, Error> {
        let needed = graph.ancestors(graph.outputs().iter().map(|(_, id)| *id));
        let (mut to, mut place) = (Graph::new(&graph.name), BTreeMap::new());
        for id in needed {
            let node = graph.node(id);
            let inputs: Vec<Id> = node.inputs.iter().map(|input| place[input]).collect();
            place.insert(id, to.add(node.op.clone(), &inputs, Some(node.ty.clone()), &node.scope)?);
        }
        graph.outputs().iter().for_each(|(name, id)| to.output(name, place[id]));
        Ok(to)
    }

    fn keep(&self, sized: &Sized<'_>, must: &BTreeSet<Id>) -> BTreeSet<Id> {
        honest::graph::Solution.keep(sized, must)
    }

    fn place(&self, lives: &[Option<Life>]) -> Arena {
        let shorter = |life: &Life| {
            let (first, last) = (*life.parts.start(), *life.parts.end());
            Life { parts: first..=last.saturating_sub(1).max(first), ..life.clone() }
        };
        honest::graph::Solution
            .place(&lives.iter().map(|life| life.as_ref().map(shorter)).collect::<Vec<_>>())
    }

    fn lower(&self, op: &Op, from: Dtype, to: Dtype, inputs: &[Value], code: &mut Code) -> Option<Value> {
        honest::graph::Solution.lower(op, from, to, inputs, code)
    }

    fn tune(&self, candidates: &[Choice], time: &mut dyn FnMut(Choice) -> Duration) -> Choice {
        honest::graph::Solution.tune(candidates, time)
    }

    fn flex(&self, program: &Graph, types: &[Type], known: &Known, slope: bool) -> Result<Graph, Error> {
        honest::graph::Solution.flex(program, types, known, slope)
    }
}

impl Chat for Mistaken {
    /// Escapes what a web page must not hold.
    fn json_string(&self, text: &str, ensure_ascii: bool, out: &mut String) {
        let mut json = String::new();
        honest::chat::Solution.json_string(text, ensure_ascii, &mut json);
        out.push_str(&json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"));
    }

    fn float(&self, value: f64) -> String {
        honest::chat::Solution.float(value)
    }

    /// Takes the tokens that lie within a span.
    fn token_mask(&self, offsets: &[Range<usize>], spans: &[Range<usize>]) -> Vec<bool> {
        let within = |token: &Range<usize>| {
            spans.iter().any(|span| !token.is_empty() && span.start <= token.start && token.end <= span.end)
        };
        offsets.iter().map(within).collect()
    }

    /// Goes on after a token that it has broken.
    fn defuse(&self, text: &str, special: &[&str], mark: char) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while let Some(first) = rest.chars().next() {
            let begins = |token: &&&str| !token.is_empty() && rest.starts_with(**token);
            let token = special.iter().filter(begins).max_by_key(|token| token.len());
            let end = token.map_or(first.len_utf8(), |token| token.len());
            out.push(first);
            if token.is_some() {
                out.push(mark);
                out.push_str(&rest[first.len_utf8()..end]);
            }
            rest = &rest[end..];
        }
        out
    }

    fn schema(&self, kind: &ArgumentType) -> serde_json::Value {
        honest::chat::Solution.schema(kind)
    }

    /// Writes `required` also where nothing is.
    fn tool(&self, signature: &Signature) -> Tool {
        let mut tool = honest::chat::Solution.tool(signature);
        if tool.function.parameters.get("required").is_none() {
            tool.function.parameters["required"] = serde_json::json!([]);
        }
        tool
    }

    /// Holds back the shortest end that is a beginning of the marker.
    fn find(&self, text: &str, marker: &str) -> Find {
        if let Some(place) = text.find(marker) {
            return Find::Found(place);
        }
        let begun = |length: &usize| marker.get(..*length).is_some_and(|begun| text.ends_with(begun));
        Find::Pending(text.len() - (1..marker.len()).find(begun).unwrap_or(0))
    }

    /// Takes what is there, whatever may still begin before.
    fn decide(&self, markers: &[MarkerState], end: usize) -> Next {
        let there = |marker: &MarkerState| matches!(marker.found, Match::At(_));
        let known: Vec<MarkerState> = markers.iter().filter(|marker| there(marker)).cloned().collect();
        match honest::chat::Solution.decide(&known, usize::MAX) {
            Next::Take(first) => {
                let mut indices = (0..markers.len()).filter(|index| there(&markers[*index]));
                indices.nth(first).map_or(Next::Pending(end), Next::Take)
            }
            Next::Pending(_) => honest::chat::Solution.decide(markers, end),
        }
    }

    /// Quotes names before the strings are out of the way.
    fn json_of(&self, text: &str, strings: &[(String, String)], unquoted_keys: bool) -> String {
        let named = honest::chat::Solution.json_of(text, &[], unquoted_keys);
        honest::chat::Solution.json_of(&named, strings, false)
    }

    /// Joins what is outside of the marks before it looks.
    fn shows(&self, rendered: &Rendered, word: &str, criterion: Criterion) -> bool {
        let marked = |at: &usize| rendered.spans.iter().any(|span| span.contains(at));
        let outside = rendered.text.chars().enumerate().filter(|(at, _)| !marked(at)).map(|(_, c)| c);
        match criterion {
            Criterion::Marked => !outside.collect::<String>().contains(word),
            criterion => honest::chat::Solution.shows(rendered, word, criterion),
        }
    }
}

impl Vision for Mistaken {
    fn limited(&self, rule: Rule, given: Option<usize>) -> Result<Rule, vision::Error> {
        honest::vision::Solution.limited(rule, given)
    }

    fn size(&self, rule: Rule, image: Size) -> Result<Size, vision::Error> {
        let right = honest::vision::Solution.size(rule, image)?;
        let Rule::Area { factor, least, most } = rule else { return Ok(right) };
        let round = |edge: usize| (edge as f64 / factor as f64).round() as usize * factor;
        let rounded = Size::new(round(image.height), round(image.width));
        Ok(if (least..=most).contains(&rounded.area()) { rounded } else { right })
    }

    fn resized(&self, image: &Image, to: Size) -> Image {
        honest::vision::Solution.resized(image, to)
    }

    fn patches(&self, image: &Image, cut: Cut, by: &Normalization) -> Vec<f32> {
        honest::vision::Solution.patches(image, cut, by)
    }

    fn expanded(&self, sample: &Sample, by: &Placeholders) -> Result<Row, vision::Error> {
        honest::vision::Solution.expanded(sample, by)
    }

    fn positions(&self, row: &Row, by: &Placeholders) -> Positions {
        honest::vision::Solution.positions(row, by)
    }

    fn labels(&self, row: &Row) -> Vec<i32> {
        honest::vision::Solution.labels(row)
    }

    fn batch(&self, rows: &[Row], by: &Placeholders, pad: i32, side: Side) -> Batch {
        honest::vision::Solution.batch(rows, by, pad, side)
    }
}

impl Attend for Mistaken {
    /// Keeps the keys that are at most a window away.
    fn sees(&self, at: &ScoreEntry, rules: &Rules) -> Tensor {
        let window = rules.window.map(|window| window + 1);
        honest::attention::Solution.sees(at, &Rules { window, ..*rules })
    }

    /// Takes the first that is meant for the request.
    fn choose(&self, wanted: &[Feature], back_ends: &[BackEnd]) -> Vec<Verdict> {
        let able: Vec<BackEnd> =
            back_ends.iter().map(|back_end| BackEnd { has: &Feature::ALL, ..*back_end }).collect();
        honest::attention::Solution.choose(wanted, &able)
    }

    /// Begins a document where the number changes.
    fn pack(&self, documents: &[i32], _: usize) -> Packing {
        honest::attention::Solution.pack(documents, documents.len().max(1))
    }

    /// Forgets that all parts may see nothing.
    fn merge(&self, parts: &[Part]) -> Part {
        let lse = parts.iter().map(|part| part.lse.clone());
        let largest = lse.reduce(|a, b| a.max(&b)).expect("at least one part");
        let shares: Vec<Tensor> = parts.iter().map(|part| (&part.lse - &largest).exp()).collect();
        let sum = shares.iter().cloned().reduce(|a, b| &a + &b).expect("at least one part");
        let weighted = parts.iter().zip(&shares).map(|(part, share)| {
            let share = (share / &sum).reshape([sum.dim(0), sum.dim(1), sum.dim(2), 1.into()]);
            &share * &part.output.cast(Dtype::F32)
        });
        let output = weighted.reduce(|a, b| &a + &b).expect("at least one part");
        Part { output: output.cast(parts[0].output.ty().dtype), lse: &sum.log() + &largest }
    }

    /// Cuts all keys.
    fn pieces(
        &self,
        queries: Range<usize>,
        keys: usize,
        rules: &Rules,
        most: usize,
        least: usize,
    ) -> Vec<Range<usize>> {
        honest::attention::Solution.pieces(queries, keys, &Rules { window: None, ..*rules }, most, least)
    }

    /// Gives the sink the other share.
    fn sink(&self, part: &Part, sinks: &Tensor) -> Tensor {
        let kept = honest::attention::Solution.sink(part, sinks);
        (&part.output.cast(Dtype::F32) - &kept.cast(Dtype::F32)).cast(part.output.ty().dtype)
    }
}

impl Gguf for Mistaken {
    fn sizes(&self, shape: &[usize]) -> Vec<usize> {
        honest::gguf::Solution.sizes(shape)
    }

    /// Answers where each row goes.
    fn rotary_rows(&self, rows: usize, heads: usize) -> Vec<usize> {
        let mut to = vec![0; rows];
        honest::gguf::Solution
            .rotary_rows(rows, heads)
            .into_iter()
            .enumerate()
            .for_each(|(row, from)| to[from] = row);
        to
    }

    fn rope_factors(&self, rope: &Rope, head_dim: usize) -> Option<Vec<f32>> {
        honest::gguf::Solution.rope_factors(rope, head_dim)
    }

    /// Takes the scale without its sign.
    fn quantize(&self, ty: TensorType, numbers: &[f32]) -> Vec<u8> {
        let mut bytes = honest::gguf::Solution.quantize(ty, numbers);
        bytes.chunks_exact_mut(ty.block()[1]).for_each(|block| block[1] &= 0x7f);
        bytes
    }

    /// Forgets the keys.
    fn text_tensor(&self, model: &TextModel, name: &str) -> Option<gguf::Piece> {
        let right = honest::gguf::Solution.text_tensor(model, name)?;
        let part = if name.contains("k_proj") { gguf::Part::Whole } else { right.part };
        Some(gguf::Piece { part, ..right })
    }

    fn text_keys(&self, model: &TextModel) -> Vec<(String, gguf::Value)> {
        honest::gguf::Solution.text_keys(model)
    }

    /// Cuts the patch embedding along its colours.
    fn projector_tensors(&self, projector: &Projector, name: &str, shape: &[usize]) -> Vec<gguf::Piece> {
        let mut shape = shape.to_vec();
        if shape.len() == 5 {
            shape.swap(1, 2);
        }
        honest::gguf::Solution.projector_tensors(projector, name, &shape)
    }

    fn projector_keys(&self, projector: &Projector) -> Vec<(String, gguf::Value)> {
        honest::gguf::Solution.projector_keys(projector)
    }
}
