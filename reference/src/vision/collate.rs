//! Texts with images as rows of tokens, and rows as a batch.
//!
//! ```text
//! Qwen2-VL     <s> I </s>    -> <s> I I I I I I </s>          t h w / m^2 tokens for an image
//! LLaVA        I             -> I I I I I I I I I             h w, and those of the class if they are read
//! Pixtral      I             -> I I I br I I I br I I I end   h rows of w and a token that ends the row
//!
//! Qwen2-VL, an image of 2 x 3 tokens:
//! tokens       a  b  I  I  I  I  I  I  c  d
//! frame        0  1  2  2  2  2  2  2  5  6
//! row          0  1  2  2  2  3  3  3  5  6
//! column       0  1  2  3  4  2  3  4  5  6                   a text goes on after the longer edge
//! ```
//!
//! The positions of a row begin at 0, wherever its padding is; in padding they are 0. What a row's next position is
//! beyond its number of tokens, its delta, is what a decoder adds to the number of tokens in its cache.
//!
//! A batch has features and pixels for the images that are there and for no others: a text without one takes no slot.
//!
//! Sources: `Qwen2VLProcessor`, `LlavaProcessor` and `PixtralProcessor`, `get_rope_index` of `Qwen2VLModel` in the
//! `transformers` library, 5.23; Wang et al., "Qwen2-VL" (2024), section 2.1, for positions of three axes.

use std::ops::Range;

use super::Error;
use super::patches::Grid;
use crate::loss::IGNORED;
use crate::oracles::IMAGES;

// ANCHOR: vision-rows
/// What stands in a text for an image, and what it becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeholders {
    /// Qwen2-VL's: one token for each group of merged patches, with positions of three axes.
    Qwen {
        /// The token.
        image: i32,
        /// The patches along an edge that become one token.
        merge: usize,
    },
    /// LLaVA's: one token for each patch.
    Llava {
        /// The token.
        image: i32,
        /// Tokens of an image beside those of its patches: that of the class, if it is read.
        more: usize,
    },
    /// Pixtral's: rows of patches, each with an end.
    Pixtral {
        /// The token of a patch.
        image: i32,
        /// The token that ends a row.
        row_end: i32,
        /// The token that ends the last row.
        end: i32,
    },
}

/// The tokens of a text, in which each image is one placeholder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The tokens.
    pub ids: Vec<i32>,
    /// Which of them are trained.
    pub trained: Vec<bool>,
    /// The patches of each image, in the order of the text.
    pub grids: Vec<Grid>,
}

/// The same as a model reads it: each placeholder is as many tokens as its image has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The tokens.
    pub ids: Vec<i32>,
    /// Which of them are trained; a placeholder's are if it was.
    pub trained: Vec<bool>,
    /// The tokens of each image, and its patches.
    pub images: Vec<(Range<usize>, Grid)>,
}

/// Where each token of a row stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// Frame, row and column of each token; the same three in a text.
    pub axes: [Vec<i32>; 3],
    /// The position after the last one, less the number of tokens.
    pub delta: i32,
}

/// On which side of a row the padding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before it, for generation.
    Left,
    /// After it, for training.
    Right,
}

/// Rows of one length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// B rows of T tokens.
    pub shape: [usize; 2],
    /// The tokens, (B, T).
    pub ids: Vec<i32>,
    /// 1 of a token, 0 of padding, (B, T).
    pub mask: Vec<i32>,
    /// The labels, (B, T).
    pub labels: Vec<i32>,
    /// Frames, rows and columns, (3, B, T).
    pub positions: Vec<i32>,
    /// The delta of each row, (B).
    pub deltas: Vec<i32>,
    /// Which row of the images' features each token is, counted from 1, (B, T); 0 of a text.
    pub slots: Vec<i32>,
    /// The patches of each image that is there, in the order of its features.
    pub grids: Vec<Grid>,
}
// ANCHOR_END: vision-rows

impl Placeholders {
    /// The token of a placeholder.
    pub fn image(&self) -> i32 {
        let (Self::Qwen { image, .. } | Self::Llava { image, .. } | Self::Pixtral { image, .. }) = self;
        *image
    }

    /// The tokens of an image.
    ///
    /// Fails where its patches cannot be merged, or there are none.
    pub fn tokens(&self, grid: Grid) -> Result<Vec<i32>, Error> {
        IMAGES.count();
        let Grid { h, w, .. } = grid;
        let repeated = |count| vec![self.image(); count];
        match *self {
            Self::Qwen { merge, .. } if !merges(grid, merge) => Err(Error::Grid { grid, merge }),
            _ if grid.patches() == 0 => Err(Error::Grid { grid, merge: 1 }),
            Self::Qwen { merge, .. } => Ok(repeated(grid.patches() / (merge * merge))),
            Self::Llava { more, .. } => Ok(repeated(h * w + more)),
            Self::Pixtral { row_end, end, .. } => {
                let row = [repeated(w), vec![row_end]].concat();
                let mut tokens = row.repeat(h);
                tokens.iter_mut().next_back().into_iter().for_each(|last| *last = end);
                Ok(tokens)
            }
        }
    }
}

fn merges(grid: Grid, merge: usize) -> bool {
    let whole = |side: usize| side > 0 && merge > 0 && side.is_multiple_of(merge);
    grid.t > 0 && whole(grid.h) && whole(grid.w)
}

impl Sample {
    /// With each placeholder as the tokens of its image.
    ///
    /// Fails where there is not one placeholder for each image, and where the patches of an image cannot be merged.
    ///
    /// # Panics
    /// If it is not said of each token whether it is trained.
    pub fn expanded(&self, by: &Placeholders) -> Result<Row, Error> {
        IMAGES.count();
        assert!(self.ids.len() == self.trained.len(), "{} tokens, {}", self.ids.len(), self.trained.len());
        let placeholders = self.ids.iter().filter(|id| **id == by.image()).count();
        if placeholders != self.grids.len() {
            return Err(Error::Images { placeholders, images: self.grids.len() });
        }
        let (mut row, mut grids) = (Row::default(), self.grids.iter());
        for (id, trained) in self.ids.iter().zip(&self.trained) {
            let grid = if *id == by.image() { grids.next() } else { None };
            let tokens = grid.map_or_else(|| Ok(vec![*id]), |grid| by.tokens(*grid))?;
            let first = row.ids.len();
            row.trained.extend(std::iter::repeat_n(*trained, tokens.len()));
            row.ids.extend(tokens);
            row.images.extend(grid.map(|grid| (first..row.ids.len(), *grid)));
        }
        Ok(row)
    }
}

impl Row {
    /// Where each token stands.
    pub fn positions(&self, by: &Placeholders) -> Positions {
        IMAGES.count();
        let Placeholders::Qwen { merge, .. } = *by else {
            let counted: Vec<i32> = (0..self.ids.len() as i32).collect();
            return Positions { axes: [0; 3].map(|_| counted.clone()), delta: 0 };
        };
        let (mut positions, mut next, mut token) = (Positions::default(), 0, 0);
        for (range, grid) in &self.images {
            positions.text(&mut next, range.start - token);
            let (h, w) = (grid.h / merge, grid.w / merge);
            for i in 0..range.len() {
                let place = [i / (h * w), i / w % h, i % w];
                positions.axes.iter_mut().zip(place).for_each(|(axis, at)| axis.push(next + at as i32));
            }
            next += h.max(w) as i32;
            token = range.end;
        }
        positions.text(&mut next, self.ids.len() - token);
        let last = positions.axes.iter().flatten().max();
        positions.delta = last.map_or(0, |last| last + 1 - self.ids.len() as i32);
        positions
    }

    /// What each token is to be predicted as: itself, where it is trained and no part of an image, else -100.
    pub fn labels(&self) -> Vec<i32> {
        IMAGES.count();
        let label = |(id, trained): (&i32, &bool)| if *trained { *id } else { IGNORED };
        let mut labels: Vec<i32> = self.ids.iter().zip(&self.trained).map(label).collect();
        self.images.iter().for_each(|(range, _)| labels[range.clone()].fill(IGNORED));
        labels
    }
}

impl Positions {
    /// So many tokens of a text.
    fn text(&mut self, next: &mut i32, tokens: usize) {
        let after = *next + tokens as i32;
        self.axes.iter_mut().for_each(|axis| axis.extend(*next..after));
        *next = after;
    }
}

impl Batch {
    /// Rows filled up with `pad` to the longest.
    pub fn of(rows: &[Row], by: &Placeholders, pad: i32, side: Side) -> Self {
        IMAGES.count();
        let length = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0);
        let filled = |values: &[i32], with: i32| {
            let padding = vec![with; length - values.len()];
            match side {
                Side::Left => [padding.as_slice(), values].concat(),
                Side::Right => [values, padding.as_slice()].concat(),
            }
        };
        let all = |of: &dyn Fn(&Row) -> Vec<i32>, with: i32| -> Vec<i32> {
            rows.iter().flat_map(|row| filled(&of(row), with)).collect()
        };
        let positions: Vec<Positions> = rows.iter().map(|row| row.positions(by)).collect();
        let axis = |axis: usize| positions.iter().flat_map(move |of| filled(&of.axes[axis], 0));
        let ids = all(&|row| row.ids.clone(), pad);
        let mask = all(&|row| vec![1; row.ids.len()], 0);
        let mut slot = 0;
        let slots = rows.iter().flat_map(|row| filled(&row.slots(by, &mut slot), 0)).collect();
        Self {
            shape: [rows.len(), length],
            labels: all(&Row::labels, IGNORED),
            positions: (0..3).flat_map(axis).collect(),
            deltas: positions.iter().map(|of| of.delta).collect(),
            grids: rows.iter().flat_map(|row| row.images.iter().map(|(_, grid)| *grid)).collect(),
            ids,
            mask,
            slots,
        }
    }
}

impl Row {
    /// The number of each token's feature, after those that are taken.
    fn slots(&self, by: &Placeholders, taken: &mut i32) -> Vec<i32> {
        let mut slots = vec![0; self.ids.len()];
        for token in self.images.iter().flat_map(|(range, _)| range.clone()) {
            if self.ids[token] == by.image() {
                *taken += 1;
                slots[token] = *taken;
            }
        }
        slots
    }
}
