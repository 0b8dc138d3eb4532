//! Attempts at vision that cheat, each in one way, some that slip, each in one step, and honest ones.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use challenges::issues::vision::{
    Batch, COLOURS, Cut, Error, Grid, Image, LARGEST_AREA, LARGEST_RATIO, LONGEST_EDGE, Normalization,
    Placeholders, Positions, Row, Rule, Sample, Side, Size, Vision,
};
use reference::loss::IGNORED;

use super::Entry;
use super::honest::vision::Solution;

/// Every cheat, then the honest ones.
pub const SEERS: [Entry; 5] = [
    Entry {
        name: "remembers images by their place",
        hand_in: |all| all.vision(Mine { resized: remember, ..HONEST }),
    },
    Entry {
        name: "takes large images' nearest pixels",
        hand_in: |all| all.vision(Mine { resized: small_only, ..HONEST }),
    },
    Entry {
        name: "asks where tokens stand",
        hand_in: |all| all.vision(Mine { positions: |row, by| row.positions(by), ..HONEST }),
    },
    Entry { name: "an honest seer", hand_in: |all| all.vision(HONEST) },
    Entry { name: "a seer of its own", hand_in: |all| all.vision(Second) },
];

/// Every slip.
pub const VISION_SLIPS: [Entry; 17] = [
    Entry {
        name: "rounds edges up at a half",
        hand_in: |all| all.vision(Mine { size: halves_up, ..HONEST }),
    },
    Entry {
        name: "crops whatever is given",
        hand_in: |all| {
            let limited = |rule, given| match rule {
                Rule::Crop { .. } => Ok(rule),
                _ => Solution.limited(rule, given),
            };
            all.vision(Mine { limited, ..HONEST })
        },
    },
    Entry { name: "sizes what nobody sees", hand_in: |all| all.vision(Mine { size: any_ratio, ..HONEST }) },
    Entry {
        name: "resizes columns first",
        hand_in: |all| all.vision(Mine { resized: columns_first, ..HONEST }),
    },
    Entry { name: "does not antialias", hand_in: |all| all.vision(Mine { resized: nearest, ..HONEST }) },
    Entry {
        name: "takes patches row by row",
        hand_in: |all| all.vision(Mine { patches: row_by_row, ..HONEST }),
    },
    Entry {
        name: "divides bytes by 255 first",
        hand_in: |all| all.vision(Mine { patches: rescaled, ..HONEST }),
    },
    Entry { name: "forgets to merge", hand_in: |all| all.vision(Mine { expanded: unmerged, ..HONEST }) },
    Entry { name: "ends no last row", hand_in: |all| all.vision(Mine { expanded: endless, ..HONEST }) },
    Entry { name: "drops images too many", hand_in: |all| all.vision(Mine { expanded: lenient, ..HONEST }) },
    Entry {
        name: "goes on after all tokens",
        hand_in: |all| all.vision(Mine { positions: by_tokens, ..HONEST }),
    },
    Entry { name: "counts one axis", hand_in: |all| all.vision(Mine { positions: one_axis, ..HONEST }) },
    Entry {
        name: "labels placeholders",
        hand_in: |all| {
            let labels = |row: &Row| {
                let label = |(id, trained): (&i32, &bool)| if *trained { *id } else { IGNORED };
                row.ids.iter().zip(&row.trained).map(label).collect()
            };
            all.vision(Mine { labels, ..HONEST })
        },
    },
    Entry {
        name: "labels what was asked",
        hand_in: |all| {
            let labels =
                |row: &Row| Solution.labels(&Row { trained: vec![true; row.ids.len()], ..row.clone() });
            all.vision(Mine { labels, ..HONEST })
        },
    },
    Entry {
        name: "labels the token before",
        hand_in: |all| {
            let labels = |row: &Row| {
                let mut labels = Solution.labels(row);
                labels.push(IGNORED);
                labels.split_off(1)
            };
            all.vision(Mine { labels, ..HONEST })
        },
    },
    Entry { name: "begins slots anew", hand_in: |all| all.vision(Mine { batch: slots_anew, ..HONEST }) },
    Entry {
        name: "pads on the right only",
        hand_in: |all| {
            let batch = |rows: &[Row], by: &Placeholders, pad, _| Solution.batch(rows, by, pad, Side::Right);
            all.vision(Mine { batch, ..HONEST })
        },
    },
];

/// The solution, but for some steps.
pub(super) struct Mine {
    pub limited: fn(Rule, Option<usize>) -> Result<Rule, Error>,
    pub size: fn(Rule, Size) -> Result<Size, Error>,
    pub resized: fn(&Image, Size) -> Image,
    pub patches: fn(&Image, Cut, &Normalization) -> Vec<f32>,
    pub expanded: fn(&Sample, &Placeholders) -> Result<Row, Error>,
    pub positions: fn(&Row, &Placeholders) -> Positions,
    pub labels: fn(&Row) -> Vec<i32>,
    pub batch: fn(&[Row], &Placeholders, i32, Side) -> Batch,
}

pub(super) const HONEST: Mine = Mine {
    limited: |rule, given| Solution.limited(rule, given),
    size: |rule, image| Solution.size(rule, image),
    resized: |image, to| Solution.resized(image, to),
    patches: |image, cut, by| Solution.patches(image, cut, by),
    expanded: |sample, by| Solution.expanded(sample, by),
    positions: |row, by| Solution.positions(row, by),
    labels: |row| Solution.labels(row),
    batch: |rows, by, pad, side| Solution.batch(rows, by, pad, side),
};

impl Vision for Mine {
    fn limited(&self, rule: Rule, given: Option<usize>) -> Result<Rule, Error> {
        (self.limited)(rule, given)
    }

    fn size(&self, rule: Rule, image: Size) -> Result<Size, Error> {
        (self.size)(rule, image)
    }

    fn resized(&self, image: &Image, to: Size) -> Image {
        (self.resized)(image, to)
    }

    fn patches(&self, image: &Image, cut: Cut, by: &Normalization) -> Vec<f32> {
        (self.patches)(image, cut, by)
    }

    fn expanded(&self, sample: &Sample, by: &Placeholders) -> Result<Row, Error> {
        (self.expanded)(sample, by)
    }

    fn positions(&self, row: &Row, by: &Placeholders) -> Positions {
        (self.positions)(row, by)
    }

    fn labels(&self, row: &Row) -> Vec<i32> {
        (self.labels)(row)
    }

    fn batch(&self, rows: &[Row], by: &Placeholders, pad: i32, side: Side) -> Batch {
        (self.batch)(rows, by, pad, side)
    }
}

/// Images by where their bytes lay and what they became.
type Seen = HashMap<(usize, Size), Image>;

/// What the image that lay in the same memory became before.
fn remember(image: &Image, to: Size) -> Image {
    static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);
    let mut seen = SEEN.lock().expect("nobody panics while they look");
    let place = (image.pixels.as_ptr() as usize, to);
    let is_small = image.size.height.max(image.size.width) < 34; // of larger ones memory is handed out again at once
    let new = || Solution.resized(image, to);
    if is_small { seen.entry(place).or_insert_with(new).clone() } else { new() }
}

/// Right of images as large as those of checks.
fn small_only(image: &Image, to: Size) -> Image {
    if image.size.area() < 40_000 { Solution.resized(image, to) } else { nearest(image, to) }
}

/// The pixel nearest to each.
fn nearest(image: &Image, to: Size) -> Image {
    let Size { height, width } = image.size;
    let pixel = |at: usize| {
        let (row, column) = (at / to.width * height / to.height, at % to.width * width / to.width);
        image.pixels[(row * width + column) * COLOURS..][..COLOURS].to_vec()
    };
    Image::new(to, (0..to.area()).flat_map(pixel).collect())
}

/// As most languages round.
fn halves_up(rule: Rule, image: Size) -> Result<Size, Error> {
    let right = Solution.size(rule, image)?;
    let Rule::Area { factor, least, most } = rule else { return Ok(right) };
    let round = |edge: usize| (edge as f64 / factor as f64).round() as usize * factor;
    let rounded = Size::new(round(image.height), round(image.width));
    Ok(if (least..=most).contains(&rounded.area()) { rounded } else { right })
}

/// Lines are images, too.
fn any_ratio(rule: Rule, image: Size) -> Result<Size, Error> {
    match Solution.size(rule, image) {
        Err(Error::Ratio { .. }) => Ok(Size::new(28, 28)),
        answer => answer,
    }
}

/// The other order of the two passes, each rounded to bytes.
fn columns_first(image: &Image, to: Size) -> Image {
    let columns = Solution.resized(image, Size::new(to.height, image.size.width));
    Solution.resized(&columns, to)
}

/// Patches as a picture has them, and not those of a group together.
fn row_by_row(image: &Image, cut: Cut, by: &Normalization) -> Vec<f32> {
    let Cut { patch, merge, frames } = cut;
    let width = image.size.width / patch;
    let wide = COLOURS * frames * patch * patch;
    let right = Solution.patches(image, cut, by);
    let mut own = vec![0.0; right.len()];
    for (at, floats) in right.chunks(wide).enumerate() {
        let (group, within) = (at / (merge * merge), at % (merge * merge));
        let row = group / (width / merge) * merge + within / merge;
        let column = group % (width / merge) * merge + within % merge;
        own[(row * width + column) * wide..][..wide].copy_from_slice(floats);
    }
    own
}

/// The same numbers, rounded in another order.
fn rescaled(image: &Image, cut: Cut, by: &Normalization) -> Vec<f32> {
    let plain = Normalization { mean: [0.0; COLOURS], std: [1.0 / 255.0; COLOURS] };
    let bytes = Solution.patches(image, cut, &plain);
    let plane = cut.frames * cut.patch * cut.patch;
    let float = |(at, byte): (usize, &f32)| {
        let colour = at / plane % COLOURS;
        (byte / 255.0 - by.mean[colour] as f32) / by.std[colour] as f32
    };
    bytes.iter().enumerate().map(float).collect()
}

/// A token for each patch.
fn unmerged(sample: &Sample, by: &Placeholders) -> Result<Row, Error> {
    match *by {
        Placeholders::Qwen { image, .. } => {
            Solution.expanded(sample, &Placeholders::Llava { image, more: 0 })
        }
        _ => Solution.expanded(sample, by),
    }
}

/// The last row of patches ends as the others do.
fn endless(sample: &Sample, by: &Placeholders) -> Result<Row, Error> {
    match *by {
        Placeholders::Pixtral { image, row_end, .. } => {
            Solution.expanded(sample, &Placeholders::Pixtral { image, row_end, end: row_end })
        }
        _ => Solution.expanded(sample, by),
    }
}

/// Images beyond the placeholders are nobody's.
fn lenient(sample: &Sample, by: &Placeholders) -> Result<Row, Error> {
    let placeholders = sample.ids.iter().filter(|id| **id == by.image()).count();
    let mut sample = sample.clone();
    sample.grids.truncate(placeholders);
    Solution.expanded(&sample, by)
}

/// As if an image took as many positions as tokens.
fn by_tokens(row: &Row, by: &Placeholders) -> Positions {
    let mut positions = Solution.positions(row, by);
    for (range, _) in &row.images {
        let last = |axis: &Vec<i32>| axis.get(range.end).copied();
        let first = positions.axes[0].get(range.start).copied().unwrap_or(0);
        let Some(next) = last(&positions.axes[0]) else { continue };
        let by = first + range.len() as i32 - next;
        positions.axes.iter_mut().for_each(|axis| axis[range.end..].iter_mut().for_each(|at| *at += by));
    }
    let largest = positions.axes.iter().flatten().max().map_or(0, |largest| largest + 1);
    Positions { delta: largest - row.ids.len() as i32, ..positions }
}

/// As a model of texts counts.
fn one_axis(row: &Row, _: &Placeholders) -> Positions {
    let counted: Vec<i32> = (0..row.ids.len() as i32).collect();
    Positions { axes: [counted.clone(), counted.clone(), counted], delta: 0 }
}

/// Each row counts its own features.
fn slots_anew(rows: &[Row], by: &Placeholders, pad: i32, side: Side) -> Batch {
    let mut batch = Solution.batch(rows, by, pad, side);
    for slots in batch.slots.chunks_mut(batch.shape[1].max(1)) {
        let before = slots.iter().copied().filter(|slot| *slot > 0).min().map_or(0, |first| first - 1);
        slots.iter_mut().filter(|slot| **slot > 0).for_each(|slot| *slot -= before);
    }
    batch
}

/// An honest attempt that goes other ways.
struct Second;

impl Vision for Second {
    fn limited(&self, rule: Rule, given: Option<usize>) -> Result<Rule, Error> {
        match (rule, given) {
            (Rule::Area { factor, least, .. }, Some(most)) if most > 0 => {
                Ok(Rule::Area { factor, least, most })
            }
            (Rule::Longest { patch, .. }, Some(edge)) if edge > 0 => Ok(Rule::Longest { edge, patch }),
            (Rule::Crop { edge }, Some(got)) if got != edge => Err(Error::Limit { only: Some(edge), got }),
            (Rule::Area { .. } | Rule::Longest { .. }, Some(got)) => Err(Error::Limit { only: None, got }),
            (rule, _) => Ok(rule),
        }
    }

    fn size(&self, rule: Rule, image: Size) -> Result<Size, Error> {
        let edges = [image.height, image.width];
        if edges.iter().any(|edge| *edge == 0 || *edge > LONGEST_EDGE) {
            return Err(Error::Size { size: image });
        }
        let [h, w] = edges.map(|edge| edge as f64);
        let to = match rule {
            Rule::Area { factor, least, most } => {
                let ratio = (h / w).max(w / h);
                if ratio > LARGEST_RATIO {
                    return Err(Error::Ratio { ratio });
                }
                let factor = factor as f64;
                // ties to even by hand
                let round = |x: f64| {
                    let (down, rest) = (x.floor(), x - x.floor());
                    let up = rest > 0.5 || rest.to_bits() == 0.5_f64.to_bits() && down % 2.0 != 0.0;
                    if up { down + 1.0 } else { down }
                };
                let plain = [h, w].map(|edge| round(edge / factor) * factor);
                let area = plain[0] * plain[1];
                if area > most as f64 {
                    let b = (h * w / most as f64).sqrt();
                    [h, w].map(|edge| ((edge / b / factor).floor() * factor).max(factor))
                } else if area < least as f64 {
                    let b = (least as f64 / (h * w)).sqrt();
                    [h, w].map(|edge| (edge * b / factor).ceil() * factor)
                } else {
                    plain
                }
            }
            Rule::Crop { edge } if h < w => [edge as f64, (edge as f64 * w / h).floor()],
            Rule::Crop { edge } => [(edge as f64 * h / w).floor(), edge as f64],
            Rule::Longest { edge, patch } => {
                let ratio = (h / edge as f64).max(w / edge as f64);
                let inside = if ratio > 1.0 { [h, w].map(|side| (side / ratio).floor()) } else { [h, w] };
                inside.map(|side| ((side as usize).div_ceil(patch) * patch) as f64)
            }
        };
        let to = Size::new(to[0] as usize, to[1] as usize);
        let is_whole = |edge: usize| (1..=LONGEST_EDGE).contains(&edge);
        let fits = is_whole(to.height) && is_whole(to.width) && to.area() <= LARGEST_AREA;
        if fits { Ok(to) } else { Err(Error::Resized { size: image, to }) }
    }

    fn resized(&self, image: &Image, to: Size) -> Image {
        let pass = |image: &Image, to: Size, is_row: bool| {
            let (before, after) =
                if is_row { (image.size.width, to.width) } else { (image.size.height, to.height) };
            if before == after {
                return image.clone();
            }
            let taps: Vec<(usize, Vec<f64>)> = (0..after).map(|i| tap(i, before, after)).collect();
            let largest = taps.iter().flat_map(|(_, weights)| weights).fold(0.0_f64, |a, b| a.max(*b));
            let mut bits = 22;
            while (largest * 2_f64.powi(bits) + 0.5).floor() >= 32768.0 {
                bits -= 1;
            }
            let mut out = Image::new(to, vec![0; to.area() * COLOURS]);
            for (at, byte) in out.pixels.iter_mut().enumerate() {
                let (row, column, colour) = (at / COLOURS / to.width, at / COLOURS % to.width, at % COLOURS);
                let (first, weights) = &taps[if is_row { column } else { row }];
                let sum: i64 = weights
                    .iter()
                    .enumerate()
                    .map(|(j, weight)| {
                        let (row, column) = if is_row { (row, first + j) } else { (first + j, column) };
                        let pixel = image.pixels[(row * image.size.width + column) * COLOURS + colour];
                        (weight * 2_f64.powi(bits)).round() as i64 * i64::from(pixel)
                    })
                    .sum();
                *byte = ((sum + (1 << bits >> 1)) >> bits).clamp(0, 255) as u8;
            }
            out
        };
        let across = pass(image, Size::new(image.size.height, to.width), true);
        pass(&across, to, false)
    }

    fn patches(&self, image: &Image, cut: Cut, by: &Normalization) -> Vec<f32> {
        let Cut { patch, merge, frames } = cut;
        let across = image.size.width / patch;
        let wide = COLOURS * frames * patch * patch;
        let mut out = vec![0.0; image.size.area() / (patch * patch) * wide];
        for (at, byte) in image.pixels.iter().enumerate() {
            let (y, x, colour) =
                (at / COLOURS / image.size.width, at / COLOURS % image.size.width, at % COLOURS);
            let (row, column) = (y / patch, x / patch);
            let group = row / merge * (across / merge) + column / merge;
            let number = group * merge * merge + row % merge * merge + column % merge;
            let float = (f32::from(*byte) - by.mean[colour] as f32 * 255.0) / (by.std[colour] as f32 * 255.0);
            for frame in 0..frames {
                let place = ((colour * frames + frame) * patch + y % patch) * patch + x % patch;
                out[number * wide + place] = float;
            }
        }
        out
    }

    fn expanded(&self, sample: &Sample, by: &Placeholders) -> Result<Row, Error> {
        let image = by.image();
        let (images, placeholders) =
            (sample.grids.len(), sample.ids.iter().filter(|id| **id == image).count());
        if images != placeholders {
            return Err(Error::Images { placeholders, images });
        }
        let tokens = |grid: &Grid| {
            let Grid { t, h, w } = *grid;
            let merge = if let Placeholders::Qwen { merge, .. } = by { *merge } else { 1 };
            if t * h * w == 0 || h % merge + w % merge > 0 {
                return Err(Error::Grid { grid: *grid, merge });
            }
            Ok(match *by {
                Placeholders::Qwen { .. } => vec![image; t * h * w / merge / merge],
                Placeholders::Llava { more, .. } => vec![image; h * w + more],
                Placeholders::Pixtral { row_end, end, .. } => {
                    let ends = |at: usize| if at + 1 == h * (w + 1) { end } else { row_end };
                    (0..h * (w + 1)).map(|at| if at % (w + 1) == w { ends(at) } else { image }).collect()
                }
            })
        };
        let all: Vec<Vec<i32>> = sample.grids.iter().map(tokens).collect::<Result<_, _>>()?;
        let mut row = Row::default();
        for (at, id) in sample.ids.iter().enumerate() {
            if *id == image {
                let number = row.images.len();
                row.images.push((row.ids.len()..row.ids.len() + all[number].len(), sample.grids[number]));
                row.ids.extend(&all[number]);
            } else {
                row.ids.push(*id);
            }
            row.trained.resize(row.ids.len(), sample.trained[at]);
        }
        Ok(row)
    }

    fn positions(&self, row: &Row, by: &Placeholders) -> Positions {
        let merge = if let Placeholders::Qwen { merge, .. } = by { *merge } else { 0 };
        let (mut next, mut all, mut token) = (0, Vec::new(), 0);
        for (range, grid) in &row.images {
            if merge == 0 {
                continue;
            }
            all.extend((token..range.start).map(|at| [next + (at - token) as i32; 3]));
            next += (range.start - token) as i32;
            for t in 0..grid.t {
                for h in 0..grid.h / merge {
                    all.extend((0..grid.w / merge).map(|w| [t, h, w].map(|of| next + of as i32)));
                }
            }
            next += (grid.h.max(grid.w) / merge) as i32;
            token = range.end;
        }
        all.extend((token..row.ids.len()).map(|at| [next + (at - token) as i32; 3]));
        let largest = all.iter().flatten().max().map_or(0, |at| at + 1);
        let axes = [0, 1, 2].map(|axis| all.iter().map(|of| of[axis]).collect());
        Positions { axes, delta: largest - row.ids.len() as i32 }
    }

    fn labels(&self, row: &Row) -> Vec<i32> {
        let mut labels = row.ids.clone();
        for (label, trained) in labels.iter_mut().zip(&row.trained) {
            *label = if *trained { *label } else { IGNORED };
        }
        for (range, _) in &row.images {
            labels[range.clone()].iter_mut().for_each(|label| *label = IGNORED);
        }
        labels
    }

    fn batch(&self, rows: &[Row], by: &Placeholders, pad: i32, side: Side) -> Batch {
        let (count, length) = (rows.len(), rows.iter().map(|row| row.ids.len()).max().unwrap_or(0));
        let filled = |value: i32, times: usize| vec![value; count * length * times];
        let mut batch = Batch {
            shape: [count, length],
            ids: filled(pad, 1),
            mask: filled(0, 1),
            labels: filled(IGNORED, 1),
            positions: filled(0, 3),
            slots: filled(0, 1),
            ..Batch::default()
        };
        let mut feature = 0;
        for (number, row) in rows.iter().enumerate() {
            let before = if side == Side::Left { length - row.ids.len() } else { 0 };
            let (labels, positions) = (self.labels(row), self.positions(row, by));
            for (token, label) in labels.into_iter().enumerate() {
                let at = number * length + before + token;
                (batch.ids[at], batch.mask[at], batch.labels[at]) = (row.ids[token], 1, label);
                for axis in 0..3 {
                    batch.positions[axis * count * length + at] = positions.axes[axis][token];
                }
                let is_within = row.images.iter().any(|(range, _)| range.contains(&token));
                if is_within && row.ids[token] == by.image() {
                    feature += 1;
                    batch.slots[at] = feature;
                }
            }
            batch.deltas.push(positions.delta);
            row.images.iter().for_each(|(_, grid)| batch.grids.push(*grid));
        }
        batch
    }
}

/// The first of the pixels that a new one is made of, and how much of each.
fn tap(i: usize, before: usize, after: usize) -> (usize, Vec<f64>) {
    let scale = before as f64 / after as f64;
    let (centre, wide) = ((i as f64 + 0.5) * scale, scale.max(1.0));
    let narrow = 1.0 / wide;
    let kernel = |x: f64| {
        let x = x.abs();
        match x {
            x if x < 1.0 => 1.0 + x * x * (1.5 * x - 2.5),
            x if x < 2.0 => 2.0 + x * (x * (2.5 - 0.5 * x) - 4.0),
            _ => 0.0,
        }
    };
    let first = (centre - 2.0 * wide + 0.5).max(0.0) as usize;
    let end = before.min((centre + 2.0 * wide + 0.5) as usize);
    let weights: Vec<f64> = (first..end).map(|j| kernel((j as f64 - centre + 0.5) * narrow)).collect();
    let total: f64 = weights.iter().sum();
    (first, weights.iter().map(|weight| weight / total).collect())
}
