//! (D) `vision`: images in conversations, from pixels to a batch.
//!
//! A vision-language model reads an image as a few hundred tokens. How many depends on the image's size, so it has to
//! be resized first, within a limit that decides what a batch takes. In the text one token stands for the image, and has
//! to become as many as the tower gives features; one too few, and every later feature belongs to another token. Their
//! positions run along three axes. And a batch mixes conversations with images and without: padding for an image that
//! is not there costs a tower's work, and a label on an image's token trains the model to predict a placeholder.
//!
//! ```text
//! image (H, W, 3) --D.23--> its size --D.24--> patches (P, 3 T p p) --tower--> features (N, H)
//! text, one token for an image --D.25--> row, N tokens for images, positions (3, T) --D.26--> labels --D.27--> batch
//! ```
//!
//! **What is given.** Decoded images, a model's rules and placeholders, the tower, and which tokens the assistant wrote
//! (the mask of D.2). **What comes out.** The sizes, pixels, rows, labels and batches of the original processors.
//!
//! Sources: `Qwen2VLImageProcessor`, `CLIPImageProcessor`, `PixtralImageProcessor` and their processors of text in the
//! `transformers` library, 5.23; `resize` of `torchvision`, 0.29; Wang et al., "Qwen2-VL" (2024), section 2.1; Liu et
//! al., "Visual Instruction Tuning" (2023); Agrawal et al., "Pixtral 12B" (2024).

pub use reference::vision::{
    Batch, COLOURS, Cut, Error, Grid, Image, LARGEST_AREA, LARGEST_RATIO, LONGEST_EDGE, Normalization,
    Placeholders, Positions, Row, Rule, Sample, Side, Size,
};

use linked::{Linked, counted, linked};

// ANCHOR: vision-trait
/// The steps of a processor of images and texts, from small to large.
pub trait Vision: Sync {
    /// D.23 - the rule with the largest size that is given, the `most` of [`Rule::Area`] in pixels or the `edge` of
    /// [`Rule::Longest`]; without one, the rule as the model's config has it. [`Error::Limit`]: of 0, with `only: None`,
    /// where a rule has such a limit; of anything but its edge, with `only: Some(edge)`, where it is a [`Rule::Crop`].
    fn limited(&self, rule: Rule, given: Option<usize>) -> Result<Rule, Error>;

    /// D.23 - the size that an image is resized to. Quotients are of f64. With [`Rule::Area`] both edges are rounded to
    /// multiples of the factor, a half to the even one. Is the product above `most`, they are h / b and w / b rounded
    /// down to multiples, at least one, with b = sqrt(h w / most); is it below `least`, h b and w b rounded up, with
    /// b = sqrt(least / (h w)). With [`Rule::Crop`] the shorter edge becomes `edge` and the longer one
    /// `edge * longer / shorter`, cut to a whole number; the square is cut from it later. With [`Rule::Longest`] both
    /// are divided by max(h / edge, w / edge) if that is above 1, rounded down, and then filled up to multiples of the
    /// patch.
    ///
    /// [`Error::Size`]: an edge of the image is 0 or above [`LONGEST_EDGE`]. [`Error::Ratio`]: of [`Rule::Area`], the
    /// longer edge is above [`LARGEST_RATIO`] times the shorter one. [`Error::Resized`]: an edge of the result is 0 or
    /// above [`LONGEST_EDGE`], or its area above [`LARGEST_AREA`]; sizes saturate.
    fn size(&self, rule: Rule, image: Size) -> Result<Size, Error>;

    /// D.24 - the image in another size, by antialiased bicubic interpolation (Keys' kernel with a = -1/2), to the bit of
    /// torchvision's on bytes: rows first, then columns, each pass rounded to bytes; weights are whole numbers of
    /// 2^-P, rounded half away from zero, with the largest P up to 22 for which the largest weight of the axis, times
    /// 2^P and rounded, is below 2^15. Sums are rounded by adding 2^(P-1) and shifting, and cut to 0..=255. An axis that
    /// keeps its size is copied. No edge is 0.
    fn resized(&self, image: &Image, to: Size) -> Image;

    /// D.24 - the patches (P, 3 T p p) of an image whose edges are multiples of `cut.patch * cut.merge`, as floats: in
    /// f32, (byte - 255 mean) / (255 std); mean and std become f32 first, and their products again. Patches that are
    /// merged follow each other, row by row within the group, and groups row by row; within a patch are colours, then
    /// frames, which are all the same, then rows, then columns.
    fn patches(&self, image: &Image, cut: Cut, by: &Normalization) -> Vec<f32>;

    /// D.25 - a sample with each placeholder as the tokens of its image, of which each is trained if the placeholder was.
    /// Qwen's image has t h w / merge^2 tokens, LLaVA's h w and `more`, Pixtral's h rows of w and `row_end`, but for the
    /// last, which has `end`. [`Error::Images`]: not one placeholder for each image. [`Error::Grid`]: a size of a grid
    /// is 0, or Qwen's h or w is no multiple of `merge`; with Qwen's `merge`, or 1. Images are looked at in their order,
    /// after all are counted.
    fn expanded(&self, sample: &Sample, by: &Placeholders) -> Result<Row, Error>;

    /// D.25 - where each token of a row stands. Of Qwen's, tokens of a text count on all three axes; an image's begin
    /// where the text ended, s, at (s + frame, s + row, s + column) in its h / merge rows of w / merge, and the text goes
    /// on at s + max(h, w) / merge. Of others all tokens count. The delta is the largest position plus 1, less the
    /// number of tokens; of no tokens 0.
    fn positions(&self, row: &Row, by: &Placeholders) -> Positions;

    /// D.26 - what each token is to be predicted as: itself, where it is trained and no part of an image, else -100.
    fn labels(&self, row: &Row) -> Vec<i32>;

    /// D.27 - rows filled up to the longest: ids with `pad`, labels with -100, all else with 0. Positions are (3, B, T).
    /// A slot is the number of a token's feature, counted from 1 through the whole batch, of the tokens within images
    /// that are the placeholder's; else 0. Grids are those of the images that are there. There may be no rows.
    fn batch(&self, rows: &[Row], by: &Placeholders, pad: i32, side: Side) -> Batch;
}
// ANCHOR_END: vision-trait

linked!(warpbook_vision -> Linked<dyn Vision>);

counted! {
    Vision, warpbook_vision;

    fn limited(&self, rule: Rule, given: Option<usize>) -> Result<Rule, Error>;
    fn size(&self, rule: Rule, image: Size) -> Result<Size, Error>;
    fn resized(&self, image: &Image, to: Size) -> Image;
    fn patches(&self, image: &Image, cut: Cut, by: &Normalization) -> Vec<f32>;
    fn expanded(&self, sample: &Sample, by: &Placeholders) -> Result<Row, Error>;
    fn positions(&self, row: &Row, by: &Placeholders) -> Positions;
    fn labels(&self, row: &Row) -> Vec<i32>;
    fn batch(&self, rows: &[Row], by: &Placeholders, pad: i32, side: Side) -> Batch;
}

/// A template of conversations with images, written for this project: ChatML with the placeholders of Qwen2-VL.
pub const TEMPLATE: &str = include_str!("template.jinja");

/// The solution's text: what an exercise is derived from, and the last page of the lesson.
pub fn solution_text() -> &'static str {
    warpbook_vision().text
}

/// Hints from small to large, chosen by the step that failed.
pub const HINTS: &str = include_str!("hints.toml");
