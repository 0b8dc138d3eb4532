//! The figures of challenge D's vision: an image on its grid of patches, and a batch with its masks and positions.

use challenges::issues::vision::{
    Cut, Grid, Image, Normalization, Placeholders, Rule, Sample, Side, Size, Solution, Vision as _,
};
use figures::vision::{Gridded, Kind, Token, batch as drawn, grids};
use reference::loss::IGNORED;

use crate::figure::Drawn;

/// The image that is drawn, in pixels, the rule for it, and how it is cut.
const IMAGE: Size = Size { height: 97, width: 130 };
const RULE: Rule = Rule::Area { factor: 28, least: 3136, most: 12_544 };
const CUT: Cut = Cut { patch: 14, merge: 2, frames: 1 };

/// As it is, and as the tower reads it.
pub(crate) fn patches() -> Result<Drawn, String> {
    let to = Solution.size(RULE, IMAGE).map_err(|error| error.to_string())?;
    let gridded = |heading: &str, size: Size, order| Gridded {
        heading: heading.into(),
        size: [size.height, size.width],
        patch: CUT.patch,
        order,
        merge: CUT.merge,
    };
    let images = [gridded("as it comes", IMAGE, Vec::new()), gridded("as it is read", to, order(to))];
    let caption = "An image on a grid of patches of 14 pixels, before and after it is resized to multiples of 28 within 12,544 \
                   pixels. Shaded: pixels of patches that are cut off. The numbers are the order in which the tower reads \
                   patches; the four within a frame become one token.";
    Ok(("vision-patches", caption, grids("An image and its patches", &images)))
}

/// Where each patch stands that the solution gives, told by its brightness.
fn order(size: Size) -> Vec<(usize, usize)> {
    let across = size.width / CUT.patch;
    let number = |at: usize| (at / size.width / CUT.patch) * across + at % size.width / CUT.patch;
    let pixels = (0..size.area()).flat_map(|at| [number(at) as u8; 3]).collect();
    let plain = Normalization { mean: [0.0; 3], std: [1.0 / 255.0; 3] };
    let floats = Solution.patches(&Image::new(size, pixels), CUT, &plain);
    let numbers = floats.chunks(3 * CUT.patch * CUT.patch).map(|patch| patch[0].round() as usize);
    numbers.map(|number| (number / across, number % across)).collect()
}

/// Placeholders of the drawn batch.
const BY: Placeholders = Placeholders::Qwen { image: 99, merge: 2 };

/// A text with an image and one without.
pub(crate) fn batch() -> Result<Drawn, String> {
    let first = Sample {
        ids: vec![1, 98, 99, 97, 2, 3, 4, 5, 6],
        trained: vec![false, false, false, false, false, false, true, true, true],
        grids: vec![Grid::of_image(4, 6)],
    };
    let second = Sample {
        ids: vec![1, 7, 8, 2, 3, 4, 9, 6],
        trained: vec![false, false, false, false, false, true, true, true],
        grids: Vec::new(),
    };
    let rows = [first, second].map(|sample| Solution.expanded(&sample, &BY));
    let rows = rows.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    let batch = Solution.batch(&rows, &BY, 0, Side::Left);
    let [count, length] = batch.shape;
    let token = |at: usize| {
        let kind = match (batch.mask[at], batch.slots[at]) {
            (0, _) => Kind::Padding,
            (_, 0) => Kind::Text,
            (_, slot) => Kind::Image(slot as usize),
        };
        let text = match kind {
            Kind::Padding => String::new(),
            Kind::Image(slot) => format!("f{slot}"),
            Kind::Text => word(batch.ids[at]).into(),
        };
        let places = [0, 1, 2].map(|axis| batch.positions[axis * count * length + at]);
        Token { text, kind, labelled: batch.labels[at] != IGNORED, places }
    };
    let rows: Vec<Vec<Token>> =
        (0..count).map(|row| (row * length..(row + 1) * length).map(token).collect()).collect();
    let caption = "A batch of a text with an image of 2 by 3 tokens and one without, padded on the left. f1 to f6 are the \
                   features that the tower gives; the text after them goes on after the longer edge. Only the assistant's \
                   words are labelled.";
    Ok(("vision-batch", caption, drawn("A batch with its positions", &rows)))
}

/// What stands in a cell.
fn word(id: i32) -> &'static str {
    match id {
        1 => "<u",
        2 => "?",
        3 => "<a",
        4 => "it",
        5 => "is",
        6 => "/>",
        7 => "no",
        8 => "im",
        9 => "so",
        97 => "]",
        98 => "[",
        _ => "",
    }
}
