//! The steps of vision, of which one is under test.

use std::sync::atomic::AtomicU64;

use challenges::issues::vision::{
    Batch, Cut, Error, Image, Normalization, Placeholders, Positions, Row, Rule, Sample, Side, Size,
    Solution, Vision, solution_calls,
};

use crate::calls::few;

/// The attempt's step of that name; all others are the solution's.
pub(super) type StepUnderTest<'a> = crate::step_under_test::StepUnderTest<'a, dyn Vision + 'a>;

/// Nothing of it has run yet.
pub(super) fn step_under_test<'a>(step: &'a str, attempt: &'a dyn Vision) -> StepUnderTest<'a> {
    StepUnderTest { step, attempt, solution: &Solution, solution_calls, asked: AtomicU64::new(0) }
}

impl Vision for StepUnderTest<'_> {
    fn limited(&self, rule: Rule, given: Option<usize>) -> Result<Rule, Error> {
        self.of("D.23", || format!("limited: {rule:?}, given {given:?}"), |step| step.limited(rule, given))
    }

    fn size(&self, rule: Rule, image: Size) -> Result<Size, Error> {
        self.of("D.23", || format!("size: {rule:?}, an image of {image}"), |step| step.size(rule, image))
    }

    fn resized(&self, image: &Image, to: Size) -> Image {
        self.of(
            "D.24",
            || format!("resized: {} to {to}, pixels {}", image.size, few(&image.pixels)),
            |step| step.resized(image, to),
        )
    }

    fn patches(&self, image: &Image, cut: Cut, by: &Normalization) -> Vec<f32> {
        self.of(
            "D.24",
            || format!("patches: {cut:?} of {}, pixels {}", image.size, few(&image.pixels)),
            |step| step.patches(image, cut, by),
        )
    }

    fn expanded(&self, sample: &Sample, by: &Placeholders) -> Result<Row, Error> {
        self.of("D.25", || format!("expanded: {by:?}, {sample:?}"), |step| step.expanded(sample, by))
    }

    fn positions(&self, row: &Row, by: &Placeholders) -> Positions {
        self.of("D.25", || format!("positions: {by:?}, {row:?}"), |step| step.positions(row, by))
    }

    fn labels(&self, row: &Row) -> Vec<i32> {
        self.of("D.26", || format!("labels: {row:?}"), |step| step.labels(row))
    }

    fn batch(&self, rows: &[Row], by: &Placeholders, pad: i32, side: Side) -> Batch {
        self.of(
            "D.27",
            || format!("batch: {by:?}, padding {pad} on the {side:?}, rows {rows:?}"),
            |step| step.batch(rows, by, pad, side),
        )
    }
}
