//! The images of a line, and the hints about rows with images that are too long.

use tests::example_run::Example;

use super::*;

fn part(key: &str, file: &str) -> Value {
    json!({"type": "image", key: file})
}

fn line(parts: &[Value], images: Option<Value>) -> Value {
    let content = [parts, &[json!({"type": "text", "text": "What?"})]].concat();
    let messages = json!([{"role": "user", "content": content}, {"role": "assistant", "content": "A."}]);
    match images {
        Some(images) => json!({"images": images, "messages": messages}),
        None => json!({"messages": messages}),
    }
}

#[test]
fn images_stand_in_messages_too() {
    let Some(setting) = Setting::find() else { return };
    let bare = json!({"type": "image"});
    let both = [bare.clone(), bare.clone()];
    let run = |name: &str, row: Value| -> Vec<Value> {
        setting.write("lines.jsonl", &[row]);
        let lines = setting.metrics(&setting.path(name), &["dataset_name=lines.jsonl", "max_steps=2"]);
        lines.iter().filter_map(|line| line.get("loss").cloned()).collect()
    };
    let want = run("column", line(&both, Some(json!(["a.png", "b.png"]))));
    assert_eq!(want.len(), 2);
    let own = |key: &str| [part(key, "a.png"), part(key, "b.png")];
    for (number, row) in [
        line(&own("image"), None),
        line(&own("path"), None),
        line(&own("url"), None),
        line(&own("image"), Some(Value::Null)),
        line(&own("image"), Some(json!([]))),
        line(&own("image"), Some(json!(["a.png", "b.png"]))),
        line(&[bare.clone(), part("image", "b.png")], Some(json!(["a.png"]))),
        line(&[bare.clone(), part("image", "b.png")], Some(json!(["a.png", "b.png"]))),
        line(
            &[json!({"type": "image", "image": {"path": "a.png", "bytes": null}}), part("url", "b.png")],
            None,
        ),
        line(&[part("image", &setting.path("a.png").display().to_string()), part("image", "b.png")], None),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(run(&format!("own-{number}"), row.clone()), want, "{row}");
    }
}

#[test]
fn images_without_a_file_are_refused() {
    let Some(setting) = Setting::find() else { return };
    let address = "https://example.org/a.png";
    let bare = || json!({"type": "image"});
    for (row, words) in [
        (line(&[part("image", address)], None), "found an address that begins with \"https:\""),
        (line(&[part("url", "HTTP://a/b.png")], None), "found an address that begins with \"http:\""),
        (line(&[part("image", "data:image/png;base64,iVBOR")], None), "begins with \"data:\""),
        (line(&[part("image", "file:///a.png")], None), "begins with \"file:\""),
        (line(&[bare()], Some(json!([address]))), "found an address that begins with \"https:\""),
        (line(&[part("base64", "iVBOR")], None), "expected the path of an image, found the key base64"),
        (line(&[json!({"type": "image", "image": 5})], None), "expected the path of a file, found 5"),
        (line(&[json!({"type": "image", "image": "a.png", "url": "b.png"})], None), "for an image, found 2"),
        (line(&[part("image", "none.png")], None), "none.png: "),
        (
            line(&[bare(), part("image", "a.png")], None),
            "each of the 2 images of the messages, found 1 without",
        ),
        (
            line(&[part("image", "a.png")], Some(json!(["b.png"]))),
            "1 of which name their own, found [\"b.png\"]",
        ),
        (
            line(&[part("image", "a.png")], Some(json!(["a.png", "b.png"]))),
            "expected the files of the 1 images",
        ),
        (
            line(&[json!({"type": "text", "text": "?", "image": "a.png"})], None),
            "expected the type \"text\" or \"image\", found \"text\", which names a file",
        ),
        (
            line(&[json!({"type": "video", "video": "a.mp4"})], None),
            "expected the type \"text\" or \"image\", found",
        ),
    ] {
        setting.write("bad.jsonl", &[setting.kept["rows"][1].clone(), row]);
        setting.refused(&["dataset_name=bad.jsonl"], words);
        setting.refused(&["dataset_name=bad.jsonl"], "bad.jsonl: line 2: ");
    }
    let mut video = line(&[], None);
    video["videos"] = json!(["a.mp4"]);
    setting.write("bad.jsonl", &[video]);
    setting.refused(&["dataset_name=bad.jsonl"], "videos: expected images alone, found [\"a.mp4\"]");
}

#[test]
fn a_row_beyond_the_context_suggests_max_pixels() {
    let Some(setting) = Setting::find() else { return };
    fs::write(setting.path("large.png"), png(&drawn(5, Size::new(800, 1200)))).expect("it can be written");
    setting.write("large.jsonl", &[line(&[part("image", "large.png")], None)]);
    let long = ["dataset_name=large.jsonl", "max_pixels=1000000", "max_steps=1"];
    let suggested = |ran: &Ran| -> String {
        assert_eq!(ran.code, 2, "{}", ran.stdout);
        let (_, after) = ran.stderr.split_once("; max_pixels = ").unwrap_or_else(|| panic!("{}", ran.stderr));
        after.split_once(" makes the images small enough").expect("the suggestion").0.to_owned()
    };
    for more in [&[][..], &["max_length=300"]] {
        let output = setting.path("long");
        let pixels = suggested(&setting.run(&output, &[&long, more].concat()));
        let pixels = format!("max_pixels={pixels}");
        let again = [&long[..1], &[pixels.as_str(), "max_steps=1"], more].concat();
        let ran = setting.run(&setting.path(&format!("short-{}", more.len())), &again);
        assert_eq!(ran.code, 0, "{pixels}: {}", ran.stderr);
    }
    let ran = setting.run(&setting.path("long"), &[&long[..], &["max_length=12"]].concat());
    assert!(ran.code == 2 && ran.stderr.contains("leave such rows out"), "{}", ran.stderr);
}

#[test]
fn a_model_of_texts_refuses_images() {
    let example = Example::new(TRAINER);
    for (row, words) in [
        (
            json!({"text": "a", "images": ["a.png"]}),
            "images: expected no images for a model that reads texts",
        ),
        (json!({"text": "a", "image": "a.png"}), "image: expected no images for a model that reads texts"),
        (line(&[json!({"type": "image", "image": "a.png"})], None), "expected no images in messages"),
    ] {
        let file = example.path("images.jsonl");
        fs::write(&file, row.to_string() + "\n").expect("it can be written");
        let config = example.path("config.toml").display().to_string();
        let set = format!("dataset_name={}", file.display());
        let ran = program::run(Path::new(TRAINER), &example.path(""), &["train", &config, "--set", &set]);
        assert!(ran.code == 2 && ran.stderr.contains(words), "{}, expected {words}", ran.stderr);
    }
}

#[test]
fn generate_refuses_images() {
    let Some(setting) = Setting::find() else { return };
    let messages = json!([{"role": "user", "content": [{"type": "image", "image": "a.png"}]}]);
    fs::write(setting.path("messages.json"), messages.to_string()).expect("it can be written");
    let flags = ["generate", "model", "--messages", "messages.json"];
    let ran = program::run(Path::new(TRAINER), setting.folder.path(), &flags);
    let words = "messages.json: expected messages of texts alone, as generate reads no images, found 1";
    assert!(ran.code == 2 && ran.stderr.contains(words), "{}", ran.stderr);
}
