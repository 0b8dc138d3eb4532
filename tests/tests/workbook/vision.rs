//! Vision: sizes, pixels, batches, towers and logits of the original (`open-vlm.tgz`), resampling to torchvision's bits,
//! laws of sizes and positions, and what is refused.

use std::fs;

use proptest::prelude::*;
use reference::graph::interpret::Values;
use reference::graph::{Array, Builder, Dtype, Real, interpret};
use reference::llama::{IMAGE_FEATURES, IMAGE_SLOTS, Llama, Rows, rope};
use reference::loss::IGNORED;
use reference::vision::{
    Batch, Cut, Error, Grid, Image, Normalization, Placeholders, Rule, Sample, Side, Size, Vision, erf,
};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype as Stored;
use serde_json::Value;
use tempfile::TempDir;
use tests::golden;

/// The golden folder, unpacked.
struct Golden {
    folder: TempDir,
}

/// Golden tensors and the texts beside them.
struct File(Vec<u8>);

impl Golden {
    fn find() -> Option<Self> {
        Some(Self { folder: golden::find_archive("open-vlm.tgz")? })
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join("open-vlm").join(name).to_str().expect("a path of plain letters").to_owned()
    }

    fn file(&self, name: &str) -> File {
        File(fs::read(self.path(name)).expect("a golden file can be read"))
    }
}

impl File {
    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.0).expect("a golden file is sound")
    }

    fn json(&self, key: &str) -> Option<Value> {
        let (_, header) = SafeTensors::read_metadata(&self.0).expect("a golden file is sound");
        let text = header.metadata().as_ref().and_then(|texts| texts.get(key));
        text.map(|text| serde_json::from_str(text).expect("JSON"))
    }

    fn numbers(&self, name: &str) -> (Vec<usize>, Vec<f64>) {
        let tensors = self.tensors();
        let tensor = tensors.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        let bytes = tensor.data();
        let values = match tensor.dtype() {
            Stored::I64 => {
                bytes.as_chunks().0.iter().map(|eight| i64::from_le_bytes(*eight) as f64).collect()
            }
            Stored::F32 => bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four).into()).collect(),
            Stored::U8 => bytes.iter().copied().map(f64::from).collect(),
            other => panic!("golden numbers of {other}"),
        };
        (tensor.shape().to_vec(), values)
    }

    fn integers(&self, name: &str) -> Vec<i32> {
        self.numbers(name).1.into_iter().map(|value| value as i32).collect()
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        self.numbers(name).1.into_iter().map(|value| value as f32).collect()
    }

    fn image(&self, name: &str) -> Image {
        let (shape, pixels) = self.numbers(name);
        Image::new(Size::new(shape[0], shape[1]), pixels.into_iter().map(|pixel| pixel as u8).collect())
    }
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("{value}: expected a size")) as usize
}

#[test]
fn sizes_of_qwen_are_those_of_the_original() {
    let Some(golden) = Golden::find() else { return };
    let text = fs::read_to_string(golden.path("qwen2vl-sizes.json")).expect("a golden file can be read");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    assert!(!cases.is_empty());
    for case in &cases {
        let of = |name: &str| number(&case[name]);
        let rule = Rule::Area { factor: of("factor"), least: of("min_pixels"), most: of("max_pixels") };
        let got = match rule.size(Size::new(of("height"), of("width"))) {
            Ok(Size { height, width }) => serde_json::json!([height, width]),
            Err(Error::Ratio { ratio }) => {
                format!("error: absolute aspect ratio must be smaller than 200, got {ratio:?}").into()
            }
            Err(error) => panic!("{case}: {error}"),
        };
        assert_eq!(got, case["expected"], "{case}");
    }
}

/// A processor of a golden case: the pixels that it makes of an image, and what it says of their size.
fn processed(case: &Value, image: &Image) -> (Vec<f32>, &'static str, Vec<i32>) {
    let three = |name: &str| [0, 1, 2].map(|colour| case[name][colour].as_f64().expect("a number"));
    let by = Normalization { mean: three("mean"), std: three("std") };
    let options = &case["options"];
    let usual = |name: &str, usual: usize| options.get(name).map_or(usual, number);
    let sized = |rule: Rule| image.resized(rule.size(image.size).expect("a size"));
    match case["processor"].as_str().expect("a name") {
        "Qwen2VLImageProcessor" => {
            let (patch, merge) = (usual("patch_size", 14), usual("merge_size", 2));
            let [least, most] = ["shortest_edge", "longest_edge"].map(|name| number(&options["size"][name]));
            let cut = Cut { patch, merge, frames: usual("temporal_patch_size", 2) };
            let resized = sized(Rule::Area { factor: patch * merge, least, most });
            let (pixels, Grid { t, h, w }) = resized.patches(cut, &by).expect("whole patches");
            (pixels, "image_grid_thw", [t, h, w].map(|size| size as i32).to_vec())
        }
        "CLIPImageProcessor" => {
            let edge = number(&options["size"]["shortest_edge"]);
            let cropped = sized(Rule::Crop { edge }).cropped(number(&options["crop_size"]["height"]));
            (cropped.planes(&by), "", Vec::new())
        }
        "PixtralImageProcessor" => {
            let edge = number(&options["size"]["longest_edge"]);
            let resized = sized(Rule::Longest { edge, patch: number(&options["patch_size"]["height"]) });
            let Size { height, width } = resized.size;
            (resized.planes(&by), "image_sizes", vec![height as i32, width as i32])
        }
        other => panic!("a processor {other}"),
    }
}

/// Sizes exactly; pixels as the golden file's description asks, within 3 / 255 of the range, and 99 % within 1 / 255.
#[test]
fn images_are_those_of_the_originals_processors() {
    let Some(golden) = Golden::find() else { return };
    let file = golden.file("images.safetensors");
    let cases = file.json("cases").expect("a list of cases");
    let (mut all, mut equal) = (0_usize, 0_usize);
    for case in cases.as_array().expect("a list") {
        let name = case["case"].as_str().expect("a name");
        let image = file.image(case["image"].as_str().expect("a name"));
        let (got, sizes, size) = processed(case, &image);
        if !sizes.is_empty() {
            assert_eq!(size, file.integers(&format!("{name}.{sizes}")), "{name}");
        }
        let want = file.floats(&format!("{name}.pixel_values"));
        assert_eq!(got.len(), want.len(), "{name}");
        let step =
            1.0 / (255.0 * (0..3).map(|c| case["std"][c].as_f64().unwrap()).fold(f64::INFINITY, f64::min));
        let apart: Vec<f64> = got.iter().zip(&want).map(|(a, b)| f64::from((a - b).abs()) / step).collect();
        assert!(apart.iter().all(|apart| *apart <= 3.001), "{name}");
        let near = apart.iter().filter(|apart| **apart <= 1.001).count();
        assert!(near * 100 >= 99 * apart.len(), "{name}: {near} of {} are near", apart.len());
        all += got.len();
        equal += got.iter().zip(&want).filter(|(a, b)| a.to_bits() == b.to_bits()).count();
    }
    println!("{equal} of {all} floats have the original's bits");
}

/// As `tests/peers/vision_torchvision.py` draws and hashes.
#[test]
fn resampling_has_torchvisions_bits() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("vision_torchvision.json")).expect("JSON");
    for case in &cases {
        let size = |name: &str| Size::new(number(&case[name][0]), number(&case[name][1]));
        let (from, mut state) = (size("from"), number(&case["number"]) as u64);
        let extremes = case["extremes"].as_bool().expect("a flag");
        let draw = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let byte = (state >> 56) as u8;
            if extremes { if byte > 127 { 255 } else { 0 } } else { byte }
        };
        let image = Image::new(from, (0..from.area() * 3).map(draw).collect());
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in image.resized(size("to")).pixels {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        assert_eq!(format!("{hash:016x}"), case["fnv"], "{case}");
    }
}

/// A golden model that reads images, with its batches.
struct Model {
    vision: Vision,
    llama: Llama,
    file: File,
    grids: Vec<Grid>,
}

impl Model {
    fn of(golden: &Golden, name: &str) -> Self {
        let vision = Vision::open(&golden.path(name)).unwrap_or_else(|error| panic!("{error}"));
        let llama = Llama::open(&golden.path(name)).unwrap_or_else(|error| panic!("{error}"));
        let file = golden.file(&format!("{name}-expected.safetensors"));
        let grids = match vision.tower {
            reference::vision::Tower::Qwen(_) => {
                let size = |three: &[i32]| [0, 1, 2].map(|i| three[i] as usize);
                let grids = file.integers("grid_thw");
                grids.chunks(3).map(size).map(|[t, h, w]| Grid { t, h, w }).collect()
            }
            reference::vision::Tower::Clip(tower) => {
                let images = file.numbers("pixel_values").0[0];
                vec![Grid::of_image(tower.across(), tower.across()); images]
            }
        };
        Self { vision, llama, file, grids }
    }

    /// The samples of a golden batch: each image's tokens as one placeholder.
    fn samples(&self, batch: &str) -> Vec<Sample> {
        let by = &self.vision.placeholders;
        let (shape, _) = self.file.numbers(&format!("{batch}input_ids"));
        let [ids, mask] =
            ["input_ids", "attention_mask"].map(|name| self.file.integers(&format!("{batch}{name}")));
        let mut grids = self.grids.iter();
        let rows = ids.chunks(shape[1]).zip(mask.chunks(shape[1]));
        let sample = |(ids, mask): (&[i32], &[i32])| {
            let (mut sample, mut left) = (Sample::default(), 0);
            for (id, _) in ids.iter().zip(mask).filter(|(_, kept)| **kept == 1) {
                if *id == by.image() && left == 0 {
                    let grid = *grids.next().expect("a grid for each image");
                    left = by.tokens(grid).expect("patches that merge").len();
                    sample.grids.push(grid);
                }
                if *id != by.image() || left == by.tokens(*sample.grids.last().unwrap()).unwrap().len() {
                    sample.ids.push(*id);
                }
                left -= usize::from(*id == by.image());
            }
            sample.trained = vec![true; sample.ids.len()];
            sample
        };
        rows.map(sample).collect()
    }

    fn batch(&self, batch: &str, side: Side) -> Batch {
        let by = &self.vision.placeholders;
        let rows: Vec<_> =
            self.samples(batch).iter().map(|sample| sample.expanded(by).expect("it fits")).collect();
        let ids = self.file.integers(&format!("{batch}input_ids"));
        let mask = self.file.integers(&format!("{batch}attention_mask"));
        let pad = ids.iter().zip(&mask).find(|(_, kept)| **kept == 0).map_or(0, |(id, _)| *id);
        Batch::of(&rows, by, pad, side)
    }

    fn pixels(&self) -> Vec<f32> {
        self.file.floats("pixel_values")
    }

    /// The logits of a batch, with the images' features as the tower here has them.
    fn logits<R: Real>(&self, batch: &Batch) -> Array<R> {
        let features = self.vision.features::<R>(&self.pixels(), &self.grids).expect("features");
        let [rows, length] = batch.shape;
        let (mut spec, has_axes) = (self.llama.spec(), self.llama.config.images.unwrap().sections.is_some());
        spec.rows = Rows::IMAGES;
        let mut values: Values<R> = self.llama.values().expect("weights");
        values.append(&mut rope::values(&self.llama.config, self.llama.config.positions));
        let mut put = |name: &str, shape: &[usize], integers: &[i32]| {
            values.insert(name.into(), Array::integers(shape, integers.to_vec()));
        };
        put("ids", &batch.shape, &batch.ids);
        put("documents", &batch.shape, &batch.mask);
        put(IMAGE_SLOTS, &batch.shape, &batch.slots);
        if has_axes {
            put("positions", &[3, rows, length], &batch.positions);
        } else {
            put("positions", &batch.shape, &batch.positions[..rows * length]);
        }
        let hidden = features.shape[1];
        let table = std::iter::repeat_n(0.0, hidden).chain(features.wide());
        let table = Array::floats(Dtype::F32, &[features.shape[0] + 1, hidden], table);
        values.insert(IMAGE_FEATURES.into(), table);
        interpret(&spec.forward().expect("a graph"), &values).expect("a run").swap_remove(0)
    }
}

/// The largest distance, as a part of the largest number wanted.
fn apart(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let largest = want.iter().fold(1e-30_f64, |most, x| most.max(x.abs()));
    got.iter().zip(want).map(|(got, want)| (got - want).abs() / largest).fold(0.0, f64::max)
}

#[test]
fn batches_are_those_of_the_original_padded_on_either_side() {
    let Some(golden) = Golden::find() else { return };
    let model = Model::of(&golden, "qwen2vl");
    for (name, side) in [("batch.left.", Side::Left), ("batch.right.", Side::Right)] {
        let batch = model.batch(name, side);
        for (of, got) in [
            ("input_ids", &batch.ids),
            ("attention_mask", &batch.mask),
            ("position_ids", &batch.positions),
            ("rope_deltas", &batch.deltas),
        ] {
            assert_eq!(*got, model.file.integers(&format!("{name}{of}")), "{name}{of}");
        }
        let features = model.file.numbers("image_features").0[0] as i32;
        let slots: Vec<i32> = batch.slots.iter().copied().filter(|slot| *slot > 0).collect();
        assert_eq!(slots, (1..=features).collect::<Vec<_>>(), "a slot for each feature and no other");
        assert_eq!(batch.grids, model.grids);
    }
    let model = Model::of(&golden, "llava");
    let batch = model.batch("", Side::Right);
    assert_eq!(batch.ids, model.file.integers("input_ids"));
    assert_eq!(batch.mask, model.file.integers("attention_mask"));
}

#[test]
fn towers_give_the_features_of_the_original() {
    let Some(golden) = Golden::find() else { return };
    for name in ["qwen2vl", "llava"] {
        let model = Model::of(&golden, name);
        let (shape, want) = model.file.numbers("image_features");
        let wide = model.vision.features::<f64>(&model.pixels(), &model.grids).expect("features");
        let short = model.vision.features::<f32>(&model.pixels(), &model.grids).expect("features");
        let [wide_apart, short_apart] = [apart(&wide.wide(), &want), apart(&short.wide(), &want)];
        println!("{name}: {wide_apart:.1e} in f64, {short_apart:.1e} in f32");
        assert_eq!(wide.shape, shape);
        assert!(wide_apart < 2e-6 && short_apart < 4e-6, "{name}: {wide_apart:.1e}, {short_apart:.1e}");
    }
}

#[test]
fn logits_of_texts_with_images_are_those_of_the_original() {
    let Some(golden) = Golden::find() else { return };
    for (name, batch, logits) in [("qwen2vl", "batch.right.", "logits.right"), ("llava", "", "logits")] {
        let model = Model::of(&golden, name);
        let batch = model.batch(batch, Side::Right);
        let (shape, want) = model.file.numbers(logits);
        for (got, limit) in
            [(model.logits::<f64>(&batch).wide(), 2e-6), (model.logits::<f32>(&batch).wide(), 4e-6)]
        {
            let of_tokens = |all: &[f64]| -> Vec<f64> {
                let rows = all.chunks(shape[2]).zip(&batch.mask);
                rows.filter(|(_, kept)| **kept == 1).flat_map(|(row, _)| row.to_vec()).collect()
            };
            let apart = apart(&of_tokens(&got), &of_tokens(&want));
            println!("{name}: logits {apart:.1e}");
            assert!(apart < limit, "{name}: {apart:.1e}");
        }
    }
}

/// A row has the logits that it has alone, whatever stands beside it and on whichever side the padding is.
#[test]
fn a_row_with_images_has_its_own_logits_in_any_batch() {
    let Some(golden) = Golden::find() else { return };
    let model = Model::of(&golden, "qwen2vl");
    let vocab = model.llama.config.vocab;
    let of_tokens = |side: Side, name: &str| {
        let batch = model.batch(name, side);
        let logits = model.logits::<f64>(&batch).wide();
        let rows = logits.chunks(vocab).zip(&batch.mask).filter(|(_, kept)| **kept == 1);
        rows.flat_map(|(row, _)| row.to_vec()).collect::<Vec<f64>>()
    };
    let apart = apart(&of_tokens(Side::Left, "batch.left."), &of_tokens(Side::Right, "batch.right."));
    assert!(apart < 1e-12, "{apart:.1e}");
}

#[test]
fn the_error_function_is_the_sum_of_its_series() {
    let values: Vec<f64> = (-700..=700).map(|i| f64::from(i) / 100.0).collect();
    let builder = Builder::new("erf");
    let x = builder.tape().input("x", Dtype::F32, [values.len()]);
    builder.tape().output("erf", &erf(&x));
    let graph = builder.finish().expect("a graph");
    let given = [("x".to_owned(), Array::<f64>::floats(Dtype::F32, &[values.len()], values.clone()))].into();
    let got = interpret(&graph, &given).expect("a run").swap_remove(0).wide();
    for (x, got) in values.into_iter().zip(got) {
        assert!((got - series(x)).abs() < 4e-15, "erf {x}: got {got}, want {}", series(x));
    }
}

/// erf x = 2 / sqrt(pi) e^(-x^2) sum 2^n x^(2n+1) / (1 3 5 .. (2n + 1)), whose terms have one sign.
fn series(x: f64) -> f64 {
    let (mut term, mut sum) = (x, 0.0);
    for n in 1..400 {
        sum += term;
        term *= 2.0 * x * x / f64::from(2 * n + 1);
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

proptest! {
    /// Multiples of the factor, within the area unless an edge is one factor, and as near the aspect as one factor.
    #[test]
    fn an_area_is_kept_and_patches_are_whole(
        height in 1_usize..5000,
        width in 1_usize..5000,
        factor in prop_oneof![Just(28_usize), Just(32), 1..64_usize],
        most in 1_usize..2_000_000,
    ) {
        let image = Size::new(height, width);
        let rule = Rule::Area { factor, least: 1, most };
        let ratio = height.max(width) as f64 / height.min(width) as f64;
        match rule.size(image) {
            Err(error) => prop_assert_eq!(error, Error::Ratio { ratio }),
            Ok(to) => {
                prop_assert!(ratio <= 200.0);
                prop_assert!(to.height > 0 && to.height % factor == 0 && to.width > 0 && to.width % factor == 0);
                let is_least = to.height == factor || to.width == factor;
                prop_assert!(to.area() <= most || is_least, "{:?} has more than {} pixels", to, most);
                let scale = (to.height as f64 / height as f64).min(to.width as f64 / width as f64);
                let reach = factor as f64 * 1.5;
                prop_assert!(is_least || (scale * height as f64 - to.height as f64).abs() <= reach * ratio);
            }
        }
    }

    /// No edge is longer than the limit filled up to a whole patch, and nothing that fits is made smaller.
    #[test]
    fn a_longest_edge_is_kept(height in 1_usize..3000, width in 1_usize..3000, edge in 1_usize..2000, patch in 1_usize..32) {
        let image = Size::new(height, width);
        if let Ok(to) = (Rule::Longest { edge, patch }).size(image) {
            let most = edge.div_ceil(patch) * patch;
            prop_assert!(to.height % patch == 0 && to.width % patch == 0);
            prop_assert!(to.height <= most && to.width <= most);
            if height.max(width) <= edge {
                prop_assert!(to.height >= height && to.width >= width);
            }
        } else {
            prop_assert!(height.max(width) > edge * height.min(width), "an edge of nothing");
        }
    }

    /// A constant image stays constant, and bytes stay within the image's where nothing is added.
    #[test]
    fn a_constant_image_stays_constant(
        byte in any::<u8>(), from in (1_usize..50, 1_usize..50), to in (1_usize..50, 1_usize..50),
    ) {
        let image = Image::new(Size::new(from.0, from.1), vec![byte; from.0 * from.1 * 3]);
        let resized = image.resized(Size::new(to.0, to.1));
        prop_assert!(resized.pixels.iter().all(|pixel| *pixel == byte));
    }

    /// Each token of a text is one further than what is before it, on all axes; an image's begin where the text ended.
    #[test]
    fn positions_go_on_after_the_longer_edge(texts in prop::collection::vec(0_usize..5, 1..5), sides in (1_usize..5, 1_usize..5)) {
        let by = Placeholders::Qwen { image: 9, merge: 2 };
        let grid = Grid::of_image(2 * sides.0, 2 * sides.1);
        let ids: Vec<i32> = texts.iter().flat_map(|n| [vec![1; *n], vec![9]].concat()).collect();
        let sample = Sample { trained: vec![true; ids.len()], ids, grids: vec![grid; texts.len()] };
        let row = sample.expanded(&by).expect("it fits");
        let positions = row.positions(&by);
        let mut next = 0;
        let mut token = 0;
        for text in texts {
            for _ in 0..text {
                prop_assert!(positions.axes.iter().all(|axis| axis[token] == next));
                (token, next) = (token + 1, next + 1);
            }
            for at in 0..sides.0 * sides.1 {
                let want = [0, at / sides.1, at % sides.1].map(|at| next + at as i32);
                prop_assert_eq!(positions.axes.each_ref().map(|axis| axis[token]), want);
                token += 1;
            }
            next += sides.0.max(sides.1) as i32;
        }
        let last = positions.axes.iter().flatten().max().map_or(0, |last| last + 1);
        prop_assert_eq!(positions.delta, last - row.ids.len() as i32);
        let labels: Vec<i32> = row.ids.iter().map(|id| if *id == 9 { IGNORED } else { *id }).collect();
        prop_assert_eq!(row.labels(), labels);
    }
}

#[test]
fn pixtrals_rows_end() {
    let by = Placeholders::Pixtral { image: 10, row_end: 12, end: 13 };
    let sample =
        Sample { ids: vec![1, 10, 2], trained: vec![false, false, true], grids: vec![Grid::of_image(2, 3)] };
    let row = sample.expanded(&by).expect("it fits");
    assert_eq!(row.ids, [1, 10, 10, 10, 12, 10, 10, 10, 13, 2]);
    let batch = Batch::of(&[row], &by, 0, Side::Right);
    assert_eq!(batch.slots, [0, 1, 2, 3, 0, 4, 5, 6, 0, 0]);
    assert_eq!(batch.labels, [vec![IGNORED; 9], vec![2]].concat());
    assert_eq!(batch.positions[..10], (0..10).collect::<Vec<_>>());
}

#[test]
fn what_no_tower_reads_is_named() {
    let area = Rule::Area { factor: 28, least: 3136, most: 12544 };
    let longest = Rule::Longest { edge: 64, patch: 16 };
    let crop = Rule::Crop { edge: 56 };
    for (rule, height, width, words) in [
        (area, 1, 100_000, "expected a longer edge of at most 200 shorter ones, found 100000"),
        (area, 0, 5, "expected edges from 1 to 16777216 pixels and an area of at most 67108864, found 0 x 5"),
        (area, 5, usize::MAX, "found 5 x 18446744073709551615"),
        (longest, 1, 100_000, "found 1 x 100000, which becomes 0 x 64"),
        (crop, 1, 16_000_000, "found 1 x 16000000, which becomes 56 x 896000000"),
        (
            Rule::Area { factor: 28, least: usize::MAX, most: usize::MAX },
            30,
            30,
            "found 30 x 30, which becomes",
        ),
    ] {
        let error = rule.size(Size::new(height, width)).expect_err("it is refused").to_string();
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(area.at_most(Some(0)).unwrap_err().to_string(), "largest size: expected at least 1, found 0");
    let words = "largest size: expected 56, the only edge that the model reads, found 100";
    assert_eq!(crop.at_most(Some(100)).unwrap_err().to_string(), words);
    let by = Placeholders::Qwen { image: 9, merge: 2 };
    let of = |ids: &[i32], grids: &[Grid]| {
        let sample = Sample { ids: ids.to_vec(), trained: vec![true; ids.len()], grids: grids.to_vec() };
        sample.expanded(&by).expect_err("it is refused").to_string()
    };
    let grid = Grid::of_image(2, 2);
    assert_eq!(of(&[9, 9], &[grid]), "expected a placeholder for each of 1 images, found 2");
    assert_eq!(of(&[1], &[grid]), "expected a placeholder for each of 1 images, found 0");
    let words = "expected rows and columns of patches that are multiples of 2, found 1 x 2 x 3";
    assert_eq!(of(&[9], &[Grid::of_image(2, 3)]), words);
    assert_eq!(
        of(&[9], &[Grid { t: 0, ..grid }]),
        "expected rows and columns of patches that are multiples of 2, found 0 x 2 x 2"
    );
}
