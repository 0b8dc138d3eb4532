//! Attention: what each back end claims, and what a mask leaves of a matrix of scores and of its blocks.
//!
//! A mask is drawn score by score, a row a query. Over it lie the blocks that a machine computes at a time: whole where
//! every score is seen, in part where some are, and left out where none is. Nothing tells the three apart by colour
//! alone: a block left out is empty, one in part shows its own scores, and one that is whole has no gap.

use std::ops::Range;

use super::Rect;
use super::plot::{Anchor, Ink, Plot, WIDTH};

const LEFT: f64 = 8.0;
const RIGHT: f64 = WIDTH - 8.0;

// ---- the features of back ends

const TOP: f64 = 78.0;
const PITCH: f64 = 17.0;
/// Where the first back end's column is, of those that share the rest.
const COLUMNS: f64 = 130.0;

/// What a back end makes of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It lacks it.
    Lacks,
    /// It has it.
    Has,
    /// It has it, and is meant for requests with it.
    MeantFor,
}

impl Claim {
    /// Returns the claim of a back end that has a feature or not, and is meant for requests with it or not.
    pub fn of(has: bool, is_meant: bool) -> Self {
        match (has, is_meant) {
            (false, _) => Self::Lacks,
            (true, false) => Self::Has,
            (true, true) => Self::MeantFor,
        }
    }

    fn draw(self, plot: &mut Plot, (x, y): (f64, f64)) {
        match self {
            Self::Lacks => plot.line((x - 5.0, y), (x + 5.0, y), 1.2, Ink::Quiet),
            Self::Has => plot.mark(x, y, Ink::Attempt),
            Self::MeantFor => plot.mark(x, y, Ink::Baseline),
        }
    }
}

/// A back end, and its claim on each feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackEnd {
    /// The name above its column.
    pub name: String,
    /// A claim for each feature.
    pub claims: Vec<Claim>,
    /// Whether it is meant for some requests only.
    pub is_special: bool,
}

/// A row for each feature, a column for each back end.
pub fn claims(title: &str, features: &[String], back_ends: &[BackEnd]) -> String {
    let mut plot = Plot::new(title, &describe_claims(features, back_ends));
    let legend = [
        (Claim::Has, "has it"),
        (Claim::MeantFor, "has it, and is meant for requests with it"),
        (Claim::Lacks, "lacks it"),
    ];
    plot.entries(40.0, &legend, |plot, (x, y), claim| claim.draw(plot, (x + 6.0, y - 4.0)));
    let x =
        |column: usize| COLUMNS + (RIGHT - COLUMNS) * (column as f64 + 0.5) / back_ends.len().max(1) as f64;
    for (column, back_end) in back_ends.iter().enumerate() {
        plot.text((x(column), TOP - 12.0), Anchor::Middle, Ink::Text, &back_end.name);
    }
    for (row, feature) in features.iter().enumerate() {
        let y = TOP + PITCH * (row as f64 + 0.5);
        plot.line((LEFT, y - PITCH / 2.0), (RIGHT, y - PITCH / 2.0), 1.0, Ink::Grid);
        plot.text((LEFT, y + 4.0), Anchor::Start, Ink::Text, feature);
        for (column, back_end) in back_ends.iter().enumerate() {
            back_end.claims[row].draw(&mut plot, (x(column), y));
        }
    }
    plot.finish(TOP + PITCH * features.len() as f64 + 6.0)
}

fn describe_claims(features: &[String], back_ends: &[BackEnd]) -> String {
    let named = |back_end: &BackEnd, claim: Claim| {
        let all = features.iter().zip(&back_end.claims).filter(|(_, own)| **own == claim);
        let names: Vec<&str> = all.map(|(feature, _)| feature.as_str()).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    };
    let one = |back_end: &BackEnd| {
        let meant = if back_end.is_special {
            format!("requests with {}", named(back_end, Claim::MeantFor))
        } else {
            "every request".into()
        };
        format!("{} is meant for {meant} and lacks {}.", back_end.name, named(back_end, Claim::Lacks))
    };
    let sentences: Vec<String> = back_ends.iter().map(one).collect();
    format!("{} features of {} back ends. {}", features.len(), back_ends.len(), sentences.join(" "))
}

// ---- masks and their blocks

/// What a mask leaves of a square of scores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// What it is called.
    pub name: String,
    /// Queries, and keys.
    pub size: usize,
    /// Whether each query sees each key, query after query.
    pub sees: Vec<bool>,
}

/// How much of a block a mask leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing: it is left out.
    None,
    /// Some scores: it is computed, and the mask applied.
    Part,
    /// Every score: it is computed, and nothing applied.
    Whole,
}

impl Mask {
    /// What is left of each block of so many queries by as many keys, row after row.
    pub fn blocks(&self, block: usize) -> Vec<Left> {
        let side = self.size.div_ceil(block);
        (0..side * side).map(|at| self.left(self.places(at, block))).collect()
    }

    /// The queries and the keys of a block.
    fn places(&self, at: usize, block: usize) -> [Range<usize>; 2] {
        let side = self.size.div_ceil(block);
        [at / side, at % side].map(|at| at * block..((at + 1) * block).min(self.size))
    }

    fn left(&self, [queries, keys]: [Range<usize>; 2]) -> Left {
        let all = queries.flat_map(|query| keys.clone().map(move |key| query * self.size + key));
        let (seen, all) = all.fold((0, 0), |(seen, all), at| (seen + usize::from(self.sees[at]), all + 1));
        match seen {
            0 => Left::None,
            seen if seen == all => Left::Whole,
            _ => Left::Part,
        }
    }
}

const SIDE: f64 = 138.0;
const GAP: f64 = 15.0;
const ABOVE: f64 = 20.0; // a mask's name
const BELOW: f64 = 30.0; // what is left of its blocks
const ACROSS: usize = 3;

/// Masks, three in a row, with their blocks of `block` queries by `block` keys.
pub fn masks(title: &str, all: &[Mask], block: usize) -> String {
    let mut plot = Plot::new(title, &describe_masks(all, block));
    let legend = [(Left::Whole, "whole block"), (Left::Part, "in part"), (Left::None, "left out")];
    plot.entries(40.0, &legend, |plot, (x, y), left| {
        let at = Rect { x, y: y - 10.0, width: 12.0, height: 12.0 };
        ground(plot, &[at], left);
        if left == Left::None {
            plot.frame(at, Ink::Quiet, 0.0);
        }
        if left == Left::Part {
            plot.area((x, y - 4.0), (x + 6.0, y + 2.0), Ink::Baseline, SEEN);
        }
    });
    plot.text((RIGHT, 40.0), Anchor::End, Ink::Quiet, "down: queries, across: keys");
    for (number, mask) in all.iter().enumerate() {
        let (row, column) = (number / ACROSS, number % ACROSS);
        let x = LEFT + (SIDE + GAP) * column as f64;
        let y = 52.0 + (ABOVE + SIDE + BELOW) * row as f64;
        one(&mut plot, mask, block, (x, y));
    }
    plot.finish(52.0 + (ABOVE + SIDE + BELOW) * all.len().div_ceil(ACROSS) as f64)
}

const SEEN: f64 = 0.85;

fn one(plot: &mut Plot, mask: &Mask, block: usize, (x, y): (f64, f64)) {
    plot.text((x, y + 13.0), Anchor::Start, Ink::Text, &mask.name);
    let (top, token) = (y + ABOVE, SIDE / mask.size.max(1) as f64);
    let blocks = mask.blocks(block);
    let side = mask.size.div_ceil(block);
    let place = |at: usize| {
        let [queries, keys] = mask.places(at, block);
        let [x, y] = [x + token * keys.start as f64, top + token * queries.start as f64];
        Rect { x, y, width: token * keys.len() as f64, height: token * queries.len() as f64 }
    };
    for left in [Left::Whole, Left::Part, Left::None] {
        let of: Vec<Rect> = (0..blocks.len()).filter(|at| blocks[*at] == left).map(place).collect();
        ground(plot, &of, left);
    }
    let in_part = (0..blocks.len()).filter(|at| blocks[*at] == Left::Part);
    let seen: Vec<Rect> =
        in_part.flat_map(|at| scores(mask, mask.places(at, block), &place(at), token)).collect();
    plot.areas(seen.iter(), Ink::Baseline, SEEN);
    for line in 0..=side {
        let at = (line * block).min(mask.size) as f64 * token;
        plot.line((x + at, top), (x + at, top + SIDE), 0.8, Ink::Grid);
        plot.line((x, top + at), (x + SIDE, top + at), 0.8, Ink::Grid);
    }
    plot.text((x, top + SIDE + 14.0), Anchor::Start, Ink::Quiet, &counted(&blocks));
}

/// The scores of a block that are seen, a rectangle for each stretch of keys.
fn scores(mask: &Mask, [queries, keys]: [Range<usize>; 2], at: &Rect, token: f64) -> Vec<Rect> {
    let of_query = |query: usize| {
        let row = &mask.sees[query * mask.size..][keys.clone()];
        let y = at.y + token * (query - queries.start) as f64;
        stretches(row).into_iter().map(move |keys| {
            let (x, width) = (at.x + token * keys.start as f64, token * keys.len() as f64);
            Rect { x, y, width, height: token }
        })
    };
    queries.clone().flat_map(of_query).collect()
}

/// Where a row is set, as stretches.
fn stretches(row: &[bool]) -> Vec<Range<usize>> {
    let begins = (0..row.len()).filter(|at| row[*at] && (*at == 0 || !row[at - 1]));
    begins.map(|at| at..at + row[at..].iter().take_while(|is_set| **is_set).count()).collect()
}

/// Blocks of a kind.
fn ground(plot: &mut Plot, blocks: &[Rect], left: Left) {
    match left {
        Left::Whole => plot.areas(blocks.iter(), Ink::Attempt, 0.75),
        Left::Part => plot.areas(blocks.iter(), Ink::Baseline, 0.16),
        Left::None => plot.areas(blocks.iter(), Ink::Grid, 0.06),
    }
}

fn counts(blocks: &[Left]) -> [usize; 2] {
    [Left::Whole, Left::Part].map(|left| blocks.iter().filter(|of| **of == left).count())
}

fn counted(blocks: &[Left]) -> String {
    let [whole, part] = counts(blocks);
    format!("{whole} whole, {part} in part")
}

fn describe_masks(all: &[Mask], block: usize) -> String {
    let one = |mask: &Mask| {
        let blocks = mask.blocks(block);
        let [whole, part] = counts(&blocks);
        let seen = mask.sees.iter().filter(|sees| **sees).count();
        format!(
            "{}: {seen} of {} scores are seen; of {} blocks of {block} by {block}, {whole} are whole, {part} in part, and {} \
             left out.",
            mask.name,
            mask.sees.len(),
            blocks.len(),
            blocks.len() - whole - part
        )
    };
    all.iter().map(one).collect::<Vec<_>>().join(" ")
}
