//! Files that say how images are read: every field is obeyed or refused by name.

use super::*;

/// The processor of the newer file, and an object of the older one.
fn nested(processor: &Value) -> Value {
    json!({"processor_class": "Qwen2VLProcessor", "image_processor": processor})
}

fn small() -> Value {
    json!({
        "image_processor_type": "Qwen2VLImageProcessor",
        "size": {"shortest_edge": 3136, "longest_edge": 12544},
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    })
}

impl Setting {
    fn write_model(&self, name: &str, json: &Value) {
        fs::write(self.path("model").join(name), json.to_string()).expect("it can be written");
    }

    fn remove_model(&self, name: &str) {
        let _ = fs::remove_file(self.path("model").join(name));
    }

    fn vision(&self) -> Result<Vision, String> {
        let model = self.path("model").display().to_string();
        Vision::open(&model).map_err(|error| error.to_string())
    }
}

#[test]
fn a_nested_image_processor_wins() {
    let Some(setting) = Setting::find() else { return };
    let image = drawn(3, Size::new(300, 400));
    fs::write(setting.path("wide.png"), png(&image)).expect("it can be written");
    setting.write(
        "one.jsonl",
        &[json!({"images": ["wide.png"], "messages": [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]},
            {"role": "assistant", "content": "A."},
        ]})],
    );
    let config = "model_name_or_path = \"model\"\ndataset_name = \"one.jsonl\"\nassistant_only_loss = true\n\
                  max_length = false\nlora_target_modules = [\"o_proj\"]\nmax_steps = 1\nlora_dropout = 0.0\n\
                  per_device_train_batch_size = 1\n";
    fs::write(setting.path("one.toml"), config).expect("it can be written");
    let tokens = |name: &str| {
        let output = setting.path(name);
        let set = format!("output_dir={}", output.display());
        let ran =
            program::run(Path::new(TRAINER), setting.folder.path(), &["train", "one.toml", "--set", &set]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        metrics(&output).last().expect("a line")["num_tokens"].clone()
    };
    let (new, old) = ("processor_config.json", "preprocessor_config.json");
    assert_eq!(tokens("none"), 184);
    setting.write_model(old, &small());
    assert_eq!(tokens("old"), 42);
    setting.write_model(old, &json!({"min_pixels": 3136, "max_pixels": 50176}));
    setting.write_model(new, &nested(&small()));
    assert_eq!(tokens("both"), 42);
    setting.remove_model(old);
    assert_eq!(tokens("new"), 42);
    let vision = setting.vision().expect("it is read");
    assert_eq!((vision.normalization.mean, vision.normalization.std), ([0.5; 3], [0.5; 3]));
    assert_eq!(vision.rule, Rule::Area { factor: 28, least: 3136, most: 12544 });
    setting.write_model(old, &json!({"min_pixels": 784, "max_pixels": 12544}));
    setting.write_model(new, &json!({"processor_class": "Qwen2VLProcessor"}));
    let rule = setting.vision().expect("an older file").rule;
    assert_eq!(rule, Rule::Area { factor: 28, least: 784, most: 12544 });
}

#[test]
fn fields_of_qwen_that_are_not_supported() {
    let Some(setting) = Setting::find() else { return };
    for (field, value, need) in [
        ("do_resize", json!(false), "`do_resize`: expected true, found false"),
        ("do_rescale", json!(false), "`do_rescale`: expected true, found false"),
        ("do_normalize", json!(false), "`do_normalize`: expected true, found false"),
        ("do_convert_rgb", json!(false), "`do_convert_rgb`: expected true, found false"),
        ("do_center_crop", json!(true), "`do_center_crop`: expected false, found true"),
        ("do_pad", json!(true), "`do_pad`: expected false, found true"),
        ("resample", json!(2), "`resample`: expected 3, which is bicubic, found 2"),
        ("rescale_factor", json!(0.00784), "`rescale_factor`: expected 1 / 255, found 0.00784"),
        ("patch_size", json!(16), "`patch_size`: expected 14, as the tower has it, found 16"),
        ("merge_size", json!(1), "`merge_size`: expected 2, as the tower has it, found 1"),
        ("temporal_patch_size", json!(1), "`temporal_patch_size`: expected 2, as the tower has it, found 1"),
        ("image_mean", json!([0.5, "a", 0.5, 0.5]), "`image_mean`: expected three numbers"),
        ("image_std", json!([0.5, 0.0, 0.5]), "`image_std`: expected three numbers, deviations above 0"),
        ("min_pixels", json!(-1), "`min_pixels`: expected an integer from 1"),
        ("max_pixels", json!(3135), "`max_pixels`: expected at least 3136, the smallest area, found 3135"),
        ("size", json!(224), "`size`: expected an object or null, found 224"),
        ("size", json!({"shortest_edge": 3136}), "missing `size.longest_edge`: expected an area in pixels"),
        ("size", json!({"height": 28, "width": 28}), "`size.height`: expected no such field"),
        (
            "size",
            json!({"shortest_edge": 3136, "longest_edge": 3000}),
            "`size.longest_edge`: expected at least 3136",
        ),
        ("crop_size", json!({"height": 28, "width": 28}), "`crop_size`: expected no such field"),
        ("image_grid_pinpoints", json!([[336, 672]]), "`image_grid_pinpoints`: expected no such field"),
        (
            "image_processor_type",
            json!("SiglipImageProcessor"),
            "`image_processor_type`: expected \"Qwen2VLImageProcessor\", found \"SiglipImageProcessor\"",
        ),
        ("do_resize", json!("yes"), "`do_resize`: expected true, found \"yes\""),
        ("do_resise", json!(true), "`do_resise`: expected no such field"),
    ] {
        setting.remove_model("processor_config.json");
        setting.write_model("preprocessor_config.json", &json!({field: value}));
        let error = setting.vision().expect_err(need);
        assert!(
            error.contains("preprocessor_config.json") && error.contains(need),
            "{error}, expected {need}"
        );
        setting.write_model("processor_config.json", &nested(&json!({field: value})));
        let (error, need) = (setting.vision().expect_err(need), need.replace('`', ""));
        let error = error.replace(['`'], "").replace("image_processor.", "");
        assert!(
            error.contains("/processor_config.json") && error.contains(&need),
            "{error}, expected {need}"
        );
    }
    for (around, need) in [
        (json!({"size": {"shortest_edge": 1}}), "`size`: expected no such field here"),
        (json!({"chat_template": "a"}), "`chat_template`: expected no such field: the template"),
        (json!({"image_processor": 5}), "`image_processor`: expected an object or null, found 5"),
    ] {
        setting.write_model("processor_config.json", &around);
        let error = setting.vision().expect_err(need);
        assert!(error.contains(need), "{error}, expected {need}");
    }
}

#[test]
fn supported_fields_of_an_image_processor() {
    let Some(setting) = Setting::find() else { return };
    let whole = json!({
        "image_processor_type": "Qwen2VLImageProcessorFast", "processor_class": "Qwen2VLProcessor",
        "size": {"shortest_edge": 3136, "longest_edge": 12544}, "do_resize": true, "resample": 3,
        "do_rescale": true, "rescale_factor": 0.003_921_568_627_450_98, "do_normalize": true,
        "do_convert_rgb": true, "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2,
        "do_center_crop": null, "crop_size": null, "pad_size": null, "do_pad": null, "input_data_format": null,
        "data_format": "channels_first", "device": null, "disable_grouping": null, "return_tensors": null,
        "default_to_square": false, "image_mean": null,
    });
    let rule = |json: &Value| {
        setting.write_model("preprocessor_config.json", json);
        setting.vision().unwrap_or_else(|error| panic!("{error}")).rule
    };
    let area = |least, most| Rule::Area { factor: 28, least, most };
    assert_eq!(rule(&whole), area(3136, 12544));
    // max_pixels wins over size, as in the library
    assert_eq!(
        rule(&json!({"max_pixels": 50176, "size": {"shortest_edge": 784, "longest_edge": 12544}})),
        area(784, 50176)
    );
    assert_eq!(rule(&json!({"size": {"min_pixels": 784, "max_pixels": 12544}})), area(784, 12544));
    assert_eq!(rule(&json!({"min_pixels": 784})), area(784, 28 * 28 * 1280));
    assert_eq!(rule(&json!({})), area(56 * 56, 28 * 28 * 1280));
}

#[test]
fn fields_of_llava_that_are_not_supported() {
    let Some(setting) = Setting::of("llava", OF_LLAVA) else { return };
    for (field, value, need) in [
        ("do_center_crop", json!(false), "`do_center_crop`: expected true, found false"),
        ("do_normalize", json!(false), "`do_normalize`: expected true, found false"),
        ("do_resize", json!(false), "`do_resize`: expected true, found false"),
        ("do_pad", json!(true), "`do_pad`: expected false, found true"),
        ("resample", json!(2), "`resample`: expected 3, which is bicubic, found 2"),
        ("size", json!({"shortest_edge": 112}), "`size.shortest_edge`: expected 56, the edge that the tower"),
        ("size", json!(112), "`size`: expected 56, as the tower has it, found 112"),
        ("size", json!({"height": 56, "width": 56}), "`size.height`: expected no such field next to"),
        ("size", json!({"shortest_edge": 56, "longest_edge": 90}), "`size.longest_edge`: expected no such"),
        ("crop_size", json!({"height": 56, "width": 28}), "`crop_size.width`: expected 56, the edge"),
        ("crop_size", json!({"height": 56}), "missing `crop_size.width`: expected 56, the edge"),
        ("max_pixels", json!(12544), "`max_pixels`: expected no such field"),
        ("image_grid_pinpoints", json!([[56, 112]]), "`image_grid_pinpoints`: expected no such field"),
        ("image_processor_type", json!("LlavaNextImageProcessor"), "\"CLIPImageProcessor\" or"),
    ] {
        setting.write_model("preprocessor_config.json", &json!({field: value}));
        let error = setting.vision().expect_err(need);
        assert!(error.contains(need), "{error}, expected {need}");
    }
    let sound = [
        json!({"size": 56, "crop_size": 56, "feature_extractor_type": "CLIPFeatureExtractor"}),
        json!({
            "size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}, "do_center_crop": true,
            "image_processor_type": "LlavaImageProcessorFast", "do_pad": false,
        }),
    ];
    for json in sound {
        setting.write_model("preprocessor_config.json", &json);
        assert_eq!(setting.vision().expect("it is read").rule, Rule::Crop { edge: 56 }, "{json}");
    }
    let around = |key: &str, value: Value| json!({"image_token": "<image>", key: value});
    for (around, need) in [
        (around("patch_size", json!(3)), "`patch_size`: expected "),
        (around("num_additional_image_tokens", json!(0)), "`num_additional_image_tokens`: expected 1"),
        (
            around("vision_feature_select_strategy", json!("other")),
            "`vision_feature_select_strategy`: expected",
        ),
    ] {
        setting.write_model("processor_config.json", &around);
        let error = setting.vision().expect_err(need);
        assert!(error.contains(need), "{error}, expected {need}");
    }
}
