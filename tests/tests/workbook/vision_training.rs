//! `trainer train` with images: runs as the oracle and transformers make them (`vision_transformers.json`, by
//! `tests/peers/vision_transformers.py`), image files as Pillow reads them (`vision_pillow.json`, by
//! `tests/peers/vision_pillow.py`), runs that go on, and what is refused by name.

mod bombs;
mod lines;
mod processor;

use std::fs;
use std::path::{Path, PathBuf};

use challenges::issues::vision::TEMPLATE;
use flate2::{Compression, Crc, write::ZlibEncoder};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype};
use reference::llama::{IMAGE_FEATURES, IMAGE_SLOTS, Llama, Rows, rope, train};
use reference::lora::{self, Adapter, Modules, Targets};
use reference::optim::AdamW;
use reference::vision::{Batch, Grid, Image, Row, Rule, Sample, Side, Size, Tower, Vision};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::example_run::{files, metrics, on_devices};
use tests::golden;
use tests::program::{self, Ran};
use trainer::picture;

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");
const KEPT: &str = include_str!("vision_transformers.json");
const PILLOW: &str = include_str!("vision_pillow.json");

/// A folder with the tiny model, its template, images and data.
struct Setting {
    folder: TempDir,
    kept: Value,
}

impl Setting {
    fn find() -> Option<Self> {
        Self::of("qwen2vl", TEMPLATE)
    }

    fn of(name: &str, template: &str) -> Option<Self> {
        let archive = golden::find_archive("open-vlm.tgz")?;
        let (folder, kept) =
            (TempDir::new().expect("a folder"), serde_json::from_str::<Value>(KEPT).expect("JSON"));
        let model = folder.path().join("model");
        fs::create_dir(&model).expect("a folder");
        for entry in fs::read_dir(archive.path().join("open-vlm").join(name)).expect("a folder").flatten() {
            fs::copy(entry.path(), model.join(entry.file_name())).expect("it can be copied");
        }
        fs::write(model.join("chat_template.jinja"), template).expect("it can be written");
        for (number, image) in kept["images"].as_array().expect("a list").iter().enumerate() {
            let edge = |at: usize| image[at].as_u64().expect("a size") as usize;
            let image_of = drawn(number as u64, Size::new(edge(1), edge(2)));
            fs::write(folder.path().join(image[0].as_str().expect("a name")), png(&image_of))
                .expect("written");
        }
        let setting = Self { folder, kept };
        let rows = setting.kept["rows"].as_array().expect("a list").clone();
        setting.write("data.jsonl", &rows);
        let config = "model_name_or_path = \"model\"\ndataset_name = \"data.jsonl\"\nassistant_only_loss = true\n\
                      max_length = false\n";
        fs::write(setting.path("config.toml"), config).expect("it can be written");
        Some(setting)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, rows: &[Value]) {
        let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
        fs::write(self.path(name), lines.join("\n") + "\n").expect("it can be written");
    }

    fn settings(&self) -> Vec<String> {
        let given = self.kept["settings"].as_object().expect("settings");
        given.iter().map(|(key, value)| format!("{key}={value}")).collect()
    }

    fn run(&self, output: &Path, more: &[&str]) -> Ran {
        let (own, output) = (self.settings(), format!("output_dir={}", output.display()));
        let mut all: Vec<&str> = vec!["train", "config.toml", "--set", &output];
        for setting in own.iter().map(String::as_str).chain(more.iter().copied()) {
            all.extend(["--set", setting]);
        }
        program::run(Path::new(TRAINER), self.folder.path(), &all)
    }

    fn metrics(&self, output: &Path, more: &[&str]) -> Vec<Value> {
        let ran = self.run(output, more);
        assert_eq!(ran.code, 0, "{more:?}: {}{}", ran.stdout, ran.stderr);
        metrics(output)
    }

    fn refused(&self, more: &[&str], words: &str) {
        let output = self.path("refused");
        let ran = self.run(&output, more);
        assert_eq!(ran.code, 2, "{words}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(words), "expected {words:?}: {}", ran.stderr);
        assert!(metrics(&output).is_empty(), "{words}: something was written");
    }
}

/// As the script beside the kept logs draws them.
fn drawn(number: u64, size: Size) -> Image {
    let mut state = number;
    let draw = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    Image::new(size, (0..size.area() * 3).map(draw).collect())
}

/// An image as a PNG file.
fn png(image: &Image) -> Vec<u8> {
    let Size { height, width } = image.size;
    let mut lines = ZlibEncoder::new(Vec::new(), Compression::fast());
    for line in image.pixels.chunks(width * 3) {
        std::io::Write::write_all(&mut lines, &[&[0], line].concat()).expect("memory");
    }
    let mut header = [(width as u32).to_be_bytes(), (height as u32).to_be_bytes()].concat();
    header.extend([8, 2, 0, 0, 0]);
    let chunk = |name: &[u8], data: &[u8]| {
        let mut crc = Crc::new();
        crc.update(name);
        crc.update(data);
        [&(data.len() as u32).to_be_bytes(), name, data, &crc.sum().to_be_bytes()].concat()
    };
    let lines = lines.finish().expect("memory");
    [b"\x89PNG\r\n\x1a\n".to_vec(), chunk(b"IHDR", &header), chunk(b"IDAT", &lines), chunk(b"IEND", b"")]
        .concat()
}

/// The largest distance of a key in two logs, as a part of it.
fn apart(key: &str, want: &[Value], got: &[Value]) -> f64 {
    let number = |line: &Value| line[key].as_f64().unwrap_or(f64::NAN);
    assert_eq!(want.len(), got.len(), "{key}");
    let each = want.iter().zip(got).map(|(want, got)| ((number(want) - number(got)) / number(want)).abs());
    each.fold(0.0, |most: f64, apart| if apart.is_nan() { f64::INFINITY } else { most.max(apart) })
}

#[test]
fn a_run_with_images_is_that_of_transformers() {
    let Some(setting) = Setting::find() else { return };
    let losses: [&[&str]; 2] = [&[], &["loss_chunk_bytes=60000"]];
    let devices = on_devices().into_iter().chain(["ranks=2", "ranks=3"]);
    for (device, more) in devices.flat_map(|device| losses.map(|loss| (device, loss))) {
        let output = setting.path(&format!("out-{device}-{}", more.len()));
        let own = setting.metrics(&output, &[&[device], more].concat());
        let [wide, narrow] =
            ["f64", "f32"].map(|dtype| setting.kept["runs"][dtype].as_array().expect("a log"));
        for (key, floor) in [("loss", 5e-6), ("grad_norm", 5e-5)] {
            // no further from the run in f64 than three times the original's own run in f32
            let (ours, theirs) = (apart(key, wide, &own), apart(key, wide, narrow));
            println!("{device}: {key}: ours {ours:.1e}, theirs {theirs:.1e}");
            assert!(ours <= (3.0 * theirs).max(floor), "{key}: {ours:.1e} off, theirs {theirs:.1e}");
        }
    }
}

/// The twenty steps by the reference alone, in f64: images, rows, tower, model, gradients, updates.
#[test]
fn a_run_with_images_is_that_of_the_oracle() {
    let Some(setting) = Setting::find() else { return };
    let own = setting.metrics(&setting.path("out"), &["device=cpu"]);
    let model = setting.path("model");
    let (llama, vision) = (
        Llama::open(model.to_str().expect("a path")).expect("a model"),
        Vision::open(model.to_str().expect("a path")).expect("a tower"),
    );
    let given = &setting.kept["settings"];
    let number = |key: &str| given[key].as_f64().expect("a number");
    let names = given["lora_target_modules"].as_array().expect("names");
    let adapter = lora::Config {
        rank: number("lora_r") as usize,
        alpha: number("lora_alpha"),
        rank_stabilized: false,
        dropout: 0.0,
        targets: Targets::Named(names.iter().map(|name| name.as_str().expect("a name").to_owned()).collect()),
        modules: Modules::default(),
        base: None,
    };
    let start = Adapter::beside(adapter.clone(), &llama, 42).expect("an adapter");
    let mut spec = llama.spec();
    spec.adapter = Some(adapter);
    spec.rows = Rows::IMAGES;
    let recipe = train::Recipe {
        optimizer: AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: number("weight_decay") },
        max_norm: 1.0,
    };
    let mut values: Values<f64> = llama.values().expect("weights");
    values.append(&mut rope::values(&llama.config, llama.config.positions));
    values.append(&mut start.values());
    let mut oracle = train::Trainer::new(spec, recipe, values).expect("a trainer");
    let rule = vision.rule.at_most(Some(number("max_pixels") as usize)).expect("a rule");
    let rows: Vec<(Row, Vec<f32>)> = setting.kept["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| encoded(&setting, row, &vision, rule))
        .collect();
    let size = number("per_device_train_batch_size") as usize;
    for (step, line) in own.iter().enumerate() {
        let first = step * size % rows.len();
        let batch = laid(&vision, &rows[first..first + size]);
        let report = oracle.step_on(batch, number("learning_rate")).expect("a step");
        let number = |key: &str| line[key].as_f64().expect("a number");
        let [loss, norm] = [(number("loss"), report.loss), (number("grad_norm"), report.grad_norm)]
            .map(|(own, truth)| ((own - truth) / truth).abs());
        println!("step {}: loss {loss:.1e}, norm {norm:.1e} from the oracle's", step + 1);
        assert!(loss <= 5e-6 && norm <= 5e-5, "step {}: {loss:.1e}, {norm:.1e}", step + 1);
    }
    assert_eq!(own.len(), 20);
}

/// A line as a row and its images' pixels, by the reference and a few lines of this test's own.
fn encoded(setting: &Setting, line: &Value, vision: &Vision, rule: Rule) -> (Row, Vec<f32>) {
    let Tower::Qwen(tower) = vision.tower else { panic!("a Qwen2-VL") };
    let (mut pixels, mut grids) = (Vec::new(), Vec::<Grid>::new());
    for name in line.get("images").and_then(Value::as_array).into_iter().flatten() {
        let all = setting.kept["images"].as_array().expect("a list");
        let number = all.iter().position(|image| image[0] == *name).expect("an image");
        let edge = |at: usize| all[number][at].as_u64().expect("a size") as usize;
        let image = drawn(number as u64, Size::new(edge(1), edge(2)));
        let resized = image.resized(rule.size(image.size).expect("a size"));
        let (more, grid) = resized.patches(tower.cut, &vision.normalization).expect("patches");
        pixels.extend(more);
        grids.push(grid);
    }
    let mut sample = Sample { grids, ..Sample::default() };
    let mut put = |text: &str, trained: bool| {
        sample.ids.extend(tokens(text));
        sample.trained.resize(sample.ids.len(), trained);
    };
    for message in line["messages"].as_array().expect("messages") {
        let role = message["role"].as_str().expect("a role");
        put(&format!("<|im_start|>{role}\n"), false);
        let parts = message["content"]
            .as_array()
            .cloned()
            .unwrap_or_else(|| vec![json!({"text": message["content"]})]);
        for part in parts {
            let image = "<|vision_start|><|image_pad|><|vision_end|>";
            put(part["text"].as_str().unwrap_or(image), role == "assistant");
        }
        put("<|im_end|>", role == "assistant");
        put("\n", false);
    }
    (sample.expanded(&vision.placeholders).expect("it fits"), pixels)
}

/// The golden tokenizer: special tokens, and a token for each byte in the order of GPT-2's alphabet.
fn tokens(text: &str) -> Vec<i32> {
    const SPECIAL: [&str; 6] = [
        "<|im_start|>",
        "<|im_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|image_pad|>",
        "<|video_pad|>",
    ];
    let is_shown = |byte: &u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let alphabet: Vec<u8> =
        (0..=255).filter(is_shown).chain((0..=255).filter(|byte| !is_shown(byte))).collect();
    let (mut ids, mut rest) = (Vec::new(), text);
    while let Some(byte) = rest.bytes().next() {
        if let Some(special) = SPECIAL.iter().position(|special| rest.starts_with(special)) {
            ids.push(259 + special as i32);
            rest = &rest[SPECIAL[special].len()..];
        } else {
            ids.push(alphabet.iter().position(|known| *known == byte).expect("a byte") as i32);
            rest = &rest[1..];
        }
    }
    ids
}

/// Rows side by side, and what their images are to the model.
fn laid(vision: &Vision, rows: &[(Row, Vec<f32>)]) -> Values<f64> {
    let (rows, pixels): (Vec<Row>, Vec<Vec<f32>>) = rows.iter().cloned().unzip();
    let Batch { shape, ids, mask, labels, positions, slots, grids, .. } =
        Batch::of(&rows, &vision.placeholders, 0, Side::Right);
    let features = vision.features::<f64>(&pixels.concat(), &grids).expect("features");
    let hidden = features.shape[1];
    let table = std::iter::repeat_n(0.0, hidden).chain(features.wide());
    let integers = |values: Vec<i32>| Array::integers(&shape, values);
    Values::from([
        ("positions".to_owned(), Array::integers(&[3, shape[0], shape[1]], positions)),
        ("ids".to_owned(), integers(ids)),
        ("documents".to_owned(), integers(mask)),
        ("labels".to_owned(), integers(labels)),
        (IMAGE_SLOTS.to_owned(), integers(slots)),
        (IMAGE_FEATURES.to_owned(), Array::floats(Dtype::F32, &[features.shape[0] + 1, hidden], table)),
    ])
}

#[test]
fn image_files_are_read_as_pillow_reads_them_or_refused() {
    let cases: Vec<Value> = serde_json::from_str(PILLOW).expect("JSON");
    let bytes = |text: &str| -> Vec<u8> {
        (0..text.len() / 2)
            .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("digits"))
            .collect()
    };
    for case in &cases {
        let name = case["name"].as_str().expect("a name");
        let answer = picture::decode(&bytes(case["file"].as_str().expect("digits")));
        // what Pillow reads and is not read here
        let may_be_refused =
            ["cmyk", "16 bits", "16 bits of grey", "a gif"].contains(&name) || name.ends_with(" bytes");
        match answer {
            Err(error) => {
                assert!(case.get("error").is_some() || may_be_refused, "{name}: {error}");
                assert!(!error.is_empty(), "{name}");
            }
            Ok(image) => {
                assert_eq!(json!([image.size.height, image.size.width]), case["size"], "{name}");
                let Some(pixels) = case["pixels"].as_str() else { continue };
                let reach = if name.starts_with("jpeg") { 4 } else { 0 };
                let apart =
                    image.pixels.iter().zip(bytes(pixels)).map(|(own, other)| own.abs_diff(other)).max();
                println!("{name}: {apart:?} apart");
                assert!(apart.is_some_and(|apart| apart <= reach), "{name}: {apart:?} apart");
            }
        }
    }
    for (name, words) in [
        (
            "a promise",
            "expected edges from 1 to 16777216 pixels and an area of at most 67108864, found 60000 x 60000",
        ),
        ("16 bits", "expected at most 8 bits a colour, found 16"),
        ("cmyk", "expected grey, or red, green and blue, found CMYK"),
        ("a gif", "expected a PNG or a JPEG image, found neither"),
        ("jpeg of 722 bytes", "the file ends before the image does"),
    ] {
        let case = cases.iter().find(|case| case["name"] == name).expect("a case");
        let error =
            picture::decode(&bytes(case["file"].as_str().expect("digits"))).expect_err("it is refused");
        assert!(error.contains(words), "{name}: {error}");
    }
}

/// No damage of a file takes the reader down, or is read as something larger.
#[test]
fn damaged_image_files_are_read_or_refused() {
    let whole = [png(&drawn(1, Size::new(9, 7))), {
        let cases: Vec<Value> = serde_json::from_str(PILLOW).expect("JSON");
        let file = cases.iter().find(|case| case["name"] == "jpeg progressive").expect("a case");
        let text = file["file"].as_str().expect("digits");
        (0..text.len() / 2)
            .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("digits"))
            .collect()
    }];
    let mut state = 7_u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for file in whole {
        for length in 0..file.len() {
            let _ = picture::decode(&file[..length]);
        }
        for _ in 0..3000 {
            let mut damaged = file.clone();
            for _ in 0..=draw(4) {
                let at = draw(damaged.len());
                damaged[at] = draw(256) as u8;
            }
            if let Ok(image) = picture::decode(&damaged) {
                assert!(image.size.area() <= reference::vision::LARGEST_AREA);
            }
        }
    }
}

#[test]
fn images_that_no_model_reads_are_named_with_their_line() {
    let Some(setting) = Setting::find() else { return };
    fs::write(setting.path("long.png"), png(&drawn(1, Size::new(1, 100_000)))).expect("written");
    fs::write(setting.path("cut.png"), &png(&drawn(1, Size::new(50, 50)))[..3000]).expect("written");
    fs::create_dir(setting.path("folder.png")).expect("a folder");
    let asked = |images: Value, parts: usize| {
        let image = json!({"type": "image"});
        let content: Vec<Value> =
            (0..parts).map(|_| image.clone()).chain([json!({"type": "text", "text": "?"})]).collect();
        let messages = json!([{"role": "user", "content": content}, {"role": "assistant", "content": "a"}]);
        json!({"images": images, "messages": messages})
    };
    for (images, parts, words) in [
        (
            json!(["long.png"]),
            1,
            "long.png: expected a longer edge of at most 200 shorter ones, found 100000",
        ),
        (json!(["cut.png"]), 1, "cut.png: "),
        (json!(["none.png"]), 1, "none.png: "),
        (json!(["folder.png"]), 1, "folder.png: expected a regular file"),
        (json!(["config.toml"]), 1, "config.toml: expected a PNG or a JPEG image, found neither"),
        (json!(["a.png"]), 2, "expected a placeholder for each of 1 images, found 2"),
        (json!(["a.png", "b.png"]), 1, "expected a placeholder for each of 2 images, found 1"),
        (json!([]), 1, "expected a placeholder for each of 0 images, found 1"),
        (json!("a.png"), 1, "images: expected a list of files"),
        (json!([7]), 1, "images: expected the path of a file, found 7"),
    ] {
        setting.write("bad.jsonl", &[setting.kept["rows"][1].clone(), asked(images, parts)]);
        setting.refused(&["dataset_name=bad.jsonl"], words);
        setting.refused(&["dataset_name=bad.jsonl"], "bad.jsonl: line 2: ");
    }
    setting
        .refused(&["max_length=20"], "line 1: expected at most 20 tokens (max_length) in a row with images");
}

#[test]
fn what_is_not_done_beside_images_is_named() {
    let Some(setting) = Setting::find() else { return };
    for (settings, words) in [
        (&["packing=true"][..], "packing: expected false with a model that reads images, found true"),
        (
            &["objective=orpo", "assistant_only_loss=false"],
            "objective: expected sft with a model that reads images, found orpo",
        ),
        (&["max_pixels=0"], "max_pixels: largest size: expected at least 1, found 0"),
        (
            &["lora_target_modules=\"all-linear\""],
            "lora_target_modules: expected names of projections of the language model alone",
        ),
    ] {
        setting.refused(settings, words);
    }
    let plan = program::run(Path::new(TRAINER), setting.folder.path(), &["train", "config.toml", "--plan"]);
    assert!(plan.code == 2 && plan.stderr.contains("expected a model of texts alone"), "{}", plan.stderr);
}

/// Evaluations read images, too; a run that goes on has the same files, and not with another image.
#[test]
fn a_run_with_images_goes_on_bit_for_bit() {
    let Some(setting) = Setting::find() else { return };
    let [whole, parted] = ["whole", "parted"].map(|name| setting.path(name));
    let short = [
        "max_steps=6",
        "save_steps=2",
        "eval_dataset_name=data.jsonl",
        "eval_strategy=steps",
        "eval_steps=3",
    ];
    let lines = setting.metrics(&whole, &short);
    let evaluated: Vec<f64> = lines.iter().filter_map(|line| line["eval_loss"].as_f64()).collect();
    assert!(evaluated.len() == 2 && evaluated[1] < evaluated[0], "{evaluated:?}");
    setting.metrics(&parted, &short);
    for name in ["checkpoint-4", "checkpoint-6", "adapter"] {
        fs::remove_dir_all(parted.join(name)).expect("it was written");
    }
    let on = [&short[..], &["resume_from_checkpoint=true"]].concat();
    setting.metrics(&parted, &on);
    let (whole_files, parted_files) = (files(&whole), files(&parted));
    assert!(whole_files.keys().eq(parted_files.keys()));
    for (name, bytes) in &whole_files {
        assert!(*bytes == parted_files[name], "{} differs", name.display());
    }
    fs::write(setting.path("a.png"), png(&drawn(9, Size::new(60, 44)))).expect("it can be written");
    let longer = ["max_steps=8", "resume_from_checkpoint=true", "save_steps=2"];
    let ran = setting.run(&parted, &longer);
    assert!(ran.code == 2 && ran.stderr.contains("dataset_name: "), "{}{}", ran.stdout, ran.stderr);
}

/// Each type and each way to hold the model trains with images.
#[test]
fn a_model_with_images_is_trained_in_every_way() {
    let Some(setting) = Setting::find() else { return };
    for (number, more) in [
        &["per_device_train_batch_size=1"][..],
        &["gradient_accumulation_steps=2", "gradient_checkpointing=true"],
        &["dtype=bfloat16"],
        &["dtype=float16"],
        &["load_in_4bit=true"],
        &["lora_dropout=0.5"],
        &["lora_modules_to_save=[\"lm_head\"]"],
        &["trainable_token_indices=[260]"],
        &["assistant_only_loss=false"],
    ]
    .into_iter()
    .enumerate()
    {
        let settings = [more, &["max_steps=3"]].concat();
        let lines = setting.metrics(&setting.path(&format!("way-{number}")), &settings);
        let losses: Vec<f64> = lines.iter().filter_map(|line| line["loss"].as_f64()).collect();
        assert!(losses.len() == 3 && losses.iter().all(|loss| loss.is_finite()), "{more:?}: {losses:?}");
    }
}

/// The numbers of a run do not depend on how many ranks share it, nor on whether its loss is in chunks.
#[track_caller]
fn equal_on_ranks(setting: &Setting, name: &str, settings: &[&str]) {
    let common =
        ["device=cpu", "max_steps=3", "gradient_accumulation_steps=3", "per_device_train_batch_size=1"];
    let evaluated = ["eval_dataset_name=data.jsonl", "eval_strategy=steps", "eval_steps=3"];
    let run = |own: &str, more: &[&str]| {
        let all = [&common[..], &evaluated, &["per_device_eval_batch_size=1"], settings, more].concat();
        setting.metrics(&setting.path(&format!("{name}-{own}")), &all)
    };
    let one = run("one", &[]);
    let chunks = "loss_chunk_bytes=100000";
    let others: [(&str, &[&str]); 6] = [
        ("chunks", &[chunks]),
        ("two", &["ranks=2"]),
        ("three-in-chunks", &["ranks=3", chunks]),
        ("stages", &["mesh=pp=2"]),
        ("stages-in-chunks", &["mesh=pp=2,fsdp=2", chunks]),
        ("checkpointed", &[chunks, "gradient_checkpointing=true"]),
    ];
    for (own, more) in others {
        let found = run(own, more);
        let steps =
            |all: &[Value]| all.iter().filter(|line| line.get("loss").is_some()).cloned().collect::<Vec<_>>();
        for (found, expected) in steps(&found).iter().zip(&steps(&one)) {
            for key in ["loss", "grad_norm", "entropy", "mean_token_accuracy"] {
                let (found, expected) = (found[key].as_f64(), expected[key].as_f64());
                let (found, expected) = (found.expect("a number"), expected.expect("a number"));
                let distance = (found - expected).abs() / expected.abs().max(1e-3);
                assert!(distance < 2e-5, "{more:?}: {key}: {found} {expected}");
            }
        }
        let losses =
            |all: &[Value]| all.iter().filter_map(|line| line["eval_loss"].as_f64()).collect::<Vec<f64>>();
        let (found, expected) = (losses(&found), losses(&one));
        assert!(
            found.len() == 1 && (found[0] - expected[0]).abs() < 2e-5,
            "{more:?}: {found:?} {expected:?}"
        );
    }
}

#[test]
fn images_on_ranks_equal_one_rank() {
    if let Some(setting) = Setting::find() {
        equal_on_ranks(&setting, "qwen", &[]);
        equal_on_ranks(&setting, "head", &["lora_modules_to_save=[\"lm_head\"]"]);
    }
}

/// Questions of parts, with LLaVA's placeholder.
const OF_LLAVA: &str = "{% for message in messages %}{% if message.role == 'assistant' %} ASSISTANT: \
    {% generation %}{{ message.content }}{% endgeneration %}{% else %}USER: {% for part in message.content %}\
    {{ '<image>' if part.type == 'image' else part.text }}{% endfor %}{% endif %}{% endfor %}";

#[test]
fn a_llava_is_trained_on_images_too() {
    let Some(setting) = Setting::of("llava", OF_LLAVA) else { return };
    let row = |images: Value, parts: usize| {
        let content: Vec<Value> = (0..parts)
            .map(|_| json!({"type": "image"}))
            .chain([json!({"type": "text", "text": "What?"})])
            .collect();
        let messages =
            json!([{"role": "user", "content": content}, {"role": "assistant", "content": "A disc."}]);
        json!({"images": images, "messages": messages})
    };
    setting.write(
        "data.jsonl",
        &[row(json!(["a.png"]), 1), row(json!([]), 0), row(json!(["b.png", "c.png"]), 2)],
    );
    let targets = "lora_target_modules=[\"o_proj\", \"up_proj\"]";
    let lines = setting.metrics(&setting.path("out"), &[targets, "max_pixels=56"]);
    let losses: Vec<f64> = lines.iter().filter_map(|line| line["loss"].as_f64()).collect();
    assert!(losses.len() == 20 && losses[19] < losses[0], "{losses:?}");
    equal_on_ranks(&setting, "llava", &[targets, "max_pixels=56"]);
    setting.refused(
        &[targets],
        "max_pixels: largest size: expected 56, the only edge that the model reads, found 12544",
    );
    setting.refused(&["max_pixels=56"], "found \"q_proj\", which the tower has, too");
}
