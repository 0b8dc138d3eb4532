//! How the rows of a micro-batch lie in it.
//!
//! ```text
//! side by side    a a a a a     joined    a a a a a b b b c c
//!                 b b b . .
//!                 c c . . .
//! ```
//!
//! Where training's rows have unequal lengths, those of a micro-batch are joined, as the documents of longer rows, if
//! less is computed for padding then. A document's tokens see each other alone: without dropout they have the losses
//! and gradients that they have side by side, but for rounding.
//!
//! The `trl` library's `padding_free` joins all rows to one. Here a joined row has at most [`MOST_JOINED`] tokens,
//! because attention looks at every pair of blocks of a row, if only to leave it out.

use challenges::graph::{Compile as _, Solution};
use challenges::issues::vision::{self, Placeholders, Side, Vision as _};
use challenges::train::{ImageRows, Microbatch};
use reference::graph::Facts;
use reference::llama::{self, Spec};
use reference::loss::IGNORED;

use super::Config;
use super::batches::Batches;
use super::config::Objective;
use super::dataset::Dataset;
use super::labels::Target;
use super::pack::packed;
use super::row::Row;

/// How rows lie in micro-batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Filled up at their ends.
    SideBySide,
    /// Filled up at their ends, and of several documents each.
    Packed,
    /// Filled up at their ends, or joined, whichever is compiled for fewer tokens.
    Joined(Sizes),
    /// Filled up at their ends, with images in them.
    WithImages(Placeholders),
}

/// The sizes that are compiled for rows and tokens, in growing order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    rows: Vec<i64>,
    tokens: Vec<i64>,
}

/// Tokens that a joined row has at most, if none of its rows has more.
const MOST_JOINED: usize = 1024;

impl Layout {
    /// That of a run over training's rows.
    pub fn of(config: &Config, data: &Dataset) -> Self {
        let batch = config.per_device_train_batch_size as usize;
        if config.objective != Objective::Sft {
            Self::SideBySide // the reference model reads what is trained, row for row
        } else if config.packing {
            Self::Packed
        } else if batch == 1 || data.is_even() {
            Self::SideBySide
        } else {
            let most = data.longest().max(data.longest().saturating_mul(batch).min(MOST_JOINED));
            let of = |most: usize| Solution.buckets(Facts::range(1, most as i64));
            Self::Joined(Sizes { rows: of(batch), tokens: of(most) })
        }
    }

    /// The model for such rows: its context holds a joined row, and every row of the evaluations.
    pub fn spec(&self, spec: Spec, evaluated: &Dataset) -> Spec {
        let rows = match self {
            Self::SideBySide => llama::Rows::default(),
            Self::Packed | Self::Joined(_) => llama::Rows::PACKED,
            Self::WithImages(_) => llama::Rows { documents: false, ..llama::Rows::IMAGES },
        };
        let mut spec = Spec { rows, ..spec };
        if let Self::Joined(sizes) = self {
            spec.config.positions = sizes.most().max(evaluated.longest());
        }
        spec
    }

    /// A micro-batch of rows.
    pub fn microbatch(&self, rows: &[&Row]) -> Microbatch {
        let sizes = match self {
            Self::SideBySide | Self::Packed => return side_by_side(rows),
            Self::WithImages(placeholders) => return with_images(rows, placeholders),
            Self::Joined(sizes) => sizes,
        };
        let longest = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0);
        let joined = sizes.tokens.iter().map(|most| *most as usize).filter(|most| *most >= longest);
        let joined = joined.map(|most| packed(rows.to_vec(), most));
        let as_they_are = rows.iter().map(|row| (*row).clone()).collect();
        let all = std::iter::once(as_they_are).chain(joined);
        let cost = |rows: &Vec<Row>| (sizes.compiled(shape(rows)), shape(rows).iter().product::<usize>());
        let best = all.min_by_key(cost).unwrap_or_default();
        side_by_side(&best.iter().collect::<Vec<_>>())
    }

    /// Rows and tokens of the largest micro-batch of a run. Where its batches are too many to look at, or drawn, that
    /// of its longest rows side by side, which none exceeds.
    pub fn largest(&self, config: &Config, data: &Dataset) -> [usize; 2] {
        let batches = Batches::new(config, data.rows.len());
        let side_by_side = [data.rows.len().min(config.per_device_train_batch_size as usize), data.longest()];
        let Self::Joined(sizes) = self else { return side_by_side };
        let steps = batches.steps_of_epoch();
        if batches.is_drawn() && steps > 1 || steps.saturating_mul(data.rows.len() as u64) > LOOKED_AT {
            return side_by_side;
        }
        let of_step = (0..steps).flat_map(|step| batches.step(step));
        let shape = |rows: Vec<usize>| {
            self.microbatch(&rows.iter().map(|row| &data.rows[*row]).collect::<Vec<_>>()).shape
        };
        of_step.map(shape).max_by_key(|shape| sizes.compiled(*shape)).unwrap_or_default()
    }
}

/// Rows, times the steps in which they are looked at.
const LOOKED_AT: u64 = 10_000_000;

impl Sizes {
    /// The tokens of the longest row that is compiled.
    fn most(&self) -> usize {
        self.tokens.last().map_or(0, |most| *most as usize)
    }

    /// The tokens that are computed for a shape.
    fn compiled(&self, [rows, length]: [usize; 2]) -> usize {
        let up = |sizes: &[i64], size: usize| {
            let least = sizes.iter().map(|size| *size as usize).find(|least| *least >= size);
            least.unwrap_or(size)
        };
        up(&self.rows, rows).saturating_mul(up(&self.tokens, length))
    }
}

/// Rows, and tokens of the longest.
fn shape(rows: &[Row]) -> [usize; 2] {
    [rows.len(), rows.iter().map(|row| row.ids.len()).max().unwrap_or(0)]
}

/// The number of each token's document, from 1 on.
fn numbers(row: &Row) -> Vec<i32> {
    let lengths = row.documents.iter().zip(1..);
    lengths.flat_map(|(length, number)| std::iter::repeat_n(number, *length)).collect()
}

/// Rows side by side, filled up at their ends.
pub fn side_by_side(rows: &[&Row]) -> Microbatch {
    let length = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0);
    let filled = |of: &dyn Fn(&Row) -> Vec<i32>, with: i32| -> Vec<i32> {
        let padded = |row: &&Row| {
            let mut values = of(row);
            values.resize(length, with);
            values
        };
        rows.iter().flat_map(padded).collect()
    };
    Microbatch {
        shape: [rows.len(), length],
        ids: filled(&|row| row.ids.clone(), 0),
        labels: filled(&Row::labels, IGNORED),
        targets: targets(rows, length),
        positions: filled(&|row| row.documents.iter().flat_map(|length| 0..*length as i32).collect(), 0),
        documents: filled(&numbers, 0),
        images: None,
    }
}

/// The same with images in them, whose features are still to be filled in.
fn with_images(rows: &[&Row], placeholders: &Placeholders) -> Microbatch {
    let of_row = |row: &&Row| vision::Row {
        ids: row.ids.clone(),
        trained: row.trained.clone(),
        images: row.pictures.iter().map(|picture| (picture.tokens.clone(), picture.grid)).collect(),
    };
    let all: Vec<vision::Row> = rows.iter().map(of_row).collect();
    let batch = vision::Solution.batch(&all, placeholders, 0, Side::Right);
    let plain = side_by_side(rows);
    let positions = match placeholders {
        Placeholders::Qwen { .. } => batch.positions,
        Placeholders::Llava { .. } | Placeholders::Pixtral { .. } => plain.positions,
    };
    let images = Some(ImageRows { slots: batch.slots, features: Vec::new() });
    Microbatch { ids: batch.ids, labels: batch.labels, positions, images, ..plain }
}

/// The numbers that tokens are held against, those of rows of `length` tokens side by side; none, where there are none.
fn targets(rows: &[&Row], length: usize) -> Vec<f32> {
    let numbers = |target: &Target| if let Target::Numbers(numbers) = target { numbers.len() } else { 0 };
    let outputs = rows.iter().flat_map(|row| &row.targets).map(numbers).max().unwrap_or(0);
    let mut all = vec![0.0; rows.len() * length * outputs];
    for (row, tokens) in rows.iter().zip(all.chunks_mut((length * outputs).max(1))) {
        for (token, target) in row.answers() {
            if let Target::Numbers(numbers) = target {
                tokens[token * outputs..][..outputs].copy_from_slice(numbers);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::config::Sampling;

    fn data(lengths: &[usize]) -> Dataset {
        let row = |(first, length): (usize, &usize)| Row {
            ids: (0..*length as i32).map(|token| 100 * first as i32 + token).collect(),
            trained: vec![true; *length],
            documents: vec![*length],
            ..Row::default()
        };
        Dataset { rows: lengths.iter().enumerate().map(row).collect(), ..Dataset::default() }
    }

    fn config(batch: u64) -> Config {
        let train_sampling_strategy = Sampling::Sequential;
        Config { per_device_train_batch_size: batch, train_sampling_strategy, ..Config::default() }
    }

    fn layout(batch: u64, lengths: &[usize]) -> Layout {
        Layout::of(&config(batch), &data(lengths))
    }

    fn microbatch(lengths: &[usize]) -> Microbatch {
        let all = data(lengths);
        layout(lengths.len() as u64, lengths).microbatch(&all.rows.iter().collect::<Vec<_>>())
    }

    #[test]
    fn rows_may_be_joined_where_they_are_unequal_and_together() {
        let most = |layout| match layout {
            Layout::Joined(sizes) => sizes.most(),
            Layout::SideBySide | Layout::Packed | Layout::WithImages(_) => 0,
        };
        assert_eq!(layout(4, &[5, 5, 5]), Layout::SideBySide);
        assert_eq!(layout(1, &[5, 3, 5]), Layout::SideBySide);
        assert_eq!(most(layout(4, &[5, 3, 5])), 20);
        assert_eq!(most(layout(4, &[600, 3])), 1024);
        assert_eq!(most(layout(4, &[3000, 3])), 3000);
    }

    #[test]
    fn a_joined_batch_has_every_token_once_with_its_position_and_document() {
        let batch = microbatch(&[5, 2, 3, 2]);
        assert_eq!(batch.shape, [1, 12]);
        assert_eq!(batch.ids, [0, 1, 2, 3, 4, 200, 201, 202, 100, 101, 300, 301]);
        assert_eq!(batch.labels, batch.ids);
        assert_eq!(batch.positions, [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 0, 1]);
        assert_eq!(batch.documents, [1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4]);
    }

    /// Joined, one row in eight would stand alone in a row as long as seven.
    #[test]
    fn rows_that_fill_no_joined_row_stay_side_by_side() {
        let mut lengths = [140; 8];
        lengths[3] = 139;
        assert_eq!(microbatch(&lengths).shape, [8, 140]);
    }

    #[test]
    fn no_batch_is_compiled_for_more_than_its_rows_side_by_side() {
        let mut state = 1_u64;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..300 {
            let lengths: Vec<usize> = (0..2 + draw(12)).map(|_| 1 + draw(400)).collect();
            let (batch, longest) = (microbatch(&lengths), lengths.iter().max().copied().unwrap_or(0));
            assert_eq!(batch.documents.iter().filter(|of| **of > 0).count(), lengths.iter().sum::<usize>());
            if let Layout::Joined(sizes) = layout(lengths.len() as u64, &lengths) {
                assert!(
                    sizes.compiled(batch.shape) <= sizes.compiled([lengths.len(), longest]),
                    "{lengths:?}"
                );
            }
        }
    }

    #[test]
    fn the_largest_batch_is_one_of_the_run() {
        let lengths: Vec<usize> = [vec![344; 8], vec![340; 8]].concat();
        let all = data(&lengths);
        let of = |layout: Layout, config: &Config| layout.largest(config, &all);
        let sequential = of(layout(8, &lengths), &config(8));
        let second: Vec<&Row> = all.rows[8..].iter().collect();
        let shape = layout(8, &lengths).microbatch(&second).shape;
        assert!(sequential[0] * sequential[1] >= shape[0] * shape[1], "{sequential:?} {shape:?}");
        let random = Config { train_sampling_strategy: Sampling::Random, ..config(8) };
        assert_eq!(of(layout(8, &lengths), &random), [8, 344]);
        assert_eq!(of(Layout::SideBySide, &config(8)), [8, 344]);
    }
}
