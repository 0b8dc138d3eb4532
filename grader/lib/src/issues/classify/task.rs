//! A task that is made up: which of three tokens a text holds.
//!
//! ```text
//! 41 77 11 90 66       of class 1: 10 + 1 is among noise from 30 on
//! ```
//!
//! The token that decides may stand anywhere but at the end, so what answers, the last token, has to find it. Texts
//! that are held out are drawn after those that are trained on.

use challenges::issues::classify::Problem;

use crate::random::Random;

/// Classes of the task.
pub(super) const CLASSES: usize = 3;

/// The token of class 0, and the first of the noise.
const FIRST: i32 = 10;
const NOISE: usize = 30;

/// The token of padding.
pub(super) const PAD: i32 = 0;

/// Where the padding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Rows of equal length, and what they are held against.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// Rows, and tokens of each.
    pub shape: [usize; 2],
    /// The tokens.
    pub ids: Vec<i32>,
    /// 1 where a token is no padding, else 0.
    pub mask: Vec<i32>,
    /// The class of each row; of other problems, numbers (B, C) are made of it.
    pub classes: Vec<usize>,
}

impl Batch {
    /// Drawn rows of 4 to 10 tokens below `vocab`, filled up on a side.
    pub fn drawn(rows: usize, vocab: usize, side: Side, random: &mut Random) -> Self {
        let classes: Vec<usize> = (0..rows).map(|_| random.below(CLASSES)).collect();
        let texts: Vec<Vec<i32>> = classes.iter().map(|class| text(*class, vocab, random)).collect();
        let length = texts.iter().map(Vec::len).max().unwrap_or(1);
        let filled = |text: &Vec<i32>, real: &dyn Fn(i32) -> i32, with: i32| {
            let padding = std::iter::repeat_n(with, length - text.len());
            let text = text.iter().map(|id| real(*id));
            match side {
                Side::Left => padding.chain(text).collect::<Vec<i32>>(),
                Side::Right => text.chain(padding).collect(),
            }
        };
        let all = |real: &dyn Fn(i32) -> i32, with: i32| {
            texts.iter().flat_map(|text| filled(text, real, with)).collect::<Vec<i32>>()
        };
        let (ids, mask) = (all(&|id| id, PAD), all(&|_| 1, 0));
        Self { shape: [rows, length], ids, mask, classes }
    }

    /// The position of each token in its text; 0 in padding.
    pub fn positions(&self) -> Vec<i32> {
        let of_row = |row: &[i32]| {
            let mut seen = 0;
            let each = row.iter().map(|real| {
                seen += real;
                (seen - 1).max(0)
            });
            each.collect::<Vec<i32>>()
        };
        self.mask.chunks(self.shape[1]).flat_map(of_row).collect()
    }

    /// What the rows are held against, as numbers: the class, or (B, C).
    pub fn targets(&self, problem: Problem) -> Vec<f64> {
        let of_row = |class: &usize| -> Vec<f64> {
            let is = |output: usize| f64::from(u8::from(output == *class));
            match problem {
                Problem::SingleLabel => vec![*class as f64],
                Problem::MultiLabel => (0..CLASSES).map(|output| is(output).max(is(output + 1))).collect(),
                Problem::Regression => (0..CLASSES).map(|output| 1.5 * is(output) - 0.25).collect(),
            }
        };
        self.classes.iter().flat_map(of_row).collect()
    }
}

/// Noise with one token of a class before its end.
fn text(class: usize, vocab: usize, random: &mut Random) -> Vec<i32> {
    let length = 4 + random.below(7);
    let noise = |random: &mut Random| (NOISE + random.below(vocab - NOISE)) as i32;
    let mut text: Vec<i32> = (0..length).map(|_| noise(random)).collect();
    text[random.below(length - 1)] = FIRST + class as i32;
    text
}
