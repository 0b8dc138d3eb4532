//! A model that is split into several GGUF files.

use super::read::changed;
use super::*;

/// A model of two layers' sizes with weights that differ, as bytes of each of `count` files.
fn parts(count: usize, change: impl Fn(usize, &mut Vec<(String, Value)>)) -> Vec<Vec<u8>> {
    let whole = Gguf::from_bytes(changed(|_, _| ())).expect("a sound file");
    let share = whole.tensors().len().div_ceil(count);
    (0..count)
        .map(|number| {
            let mut keys = if number == 0 { whole.keys().to_vec() } else { Vec::new() };
            let split = |key: &str, value: Value| (format!("split.{key}"), value);
            keys.push(split("no", Value::U16(number as u16)));
            keys.push(split("count", Value::U16(count as u16)));
            keys.push(split("tensors.count", Value::I32(whole.tensors().len() as i32)));
            change(number, &mut keys);
            let own = whole.tensors().iter().skip(number * share).take(share);
            let tensors: Vec<Content> = own
                .map(|info| Content { name: info.name.clone(), ty: info.ty, sizes: info.sizes.clone() })
                .collect();
            let mut bytes = Vec::new();
            let mut writer = Writer::begin(&mut bytes, &keys, tensors.clone()).expect("a sound file");
            for tensor in tensors {
                let count = tensor.bytes().expect("whole blocks") / 4;
                let first = tensor.name.len() as f32;
                let numbers: Vec<u8> =
                    (0..count).flat_map(|i| (first + i as f32 / 8.0).to_le_bytes()).collect();
                writer.write(&numbers).expect("memory");
            }
            writer.finish();
            bytes
        })
        .collect()
}

/// The files under the names that parts have.
fn written(parts: &[Vec<u8>]) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    for (number, bytes) in parts.iter().enumerate() {
        fs::write(part(folder.path(), number, parts.len()), bytes).expect("it can be written");
    }
    folder
}

fn part(folder: &Path, number: usize, count: usize) -> PathBuf {
    folder.join(format!("tiny-{:05}-of-{count:05}.gguf", number + 1))
}

fn refused(path: &Path, words: &str) {
    let message = Llama::open(&text(path)).expect_err(words).to_string();
    assert!(message.contains(words), "{message}, expected {words}");
}

#[test]
fn the_parts_of_a_model_are_one() {
    let whole = written(&parts(1, |_, _| ()));
    let whole = Llama::open(&text(&part(whole.path(), 0, 1))).unwrap_or_else(|error| panic!("{error}"));
    for count in [2, 3, 11] {
        let folder = written(&parts(count, |_, _| ()));
        let path = part(folder.path(), 0, count);
        let model = Llama::open(&text(&path)).unwrap_or_else(|error| panic!("{error}"));
        let [a, b] = [&whole, &model].map(|model| model.values::<f32>().expect("weights"));
        assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
        assert!(a.iter().all(|(name, value)| value.wide() == b[name].wide()), "{count} parts");
        let flags = ["generate", &text(&path), "--ids", "1,2", "--max-new-tokens", "1", "--device", "cpu"];
        let ran = run(Path::new(TRAINER), folder.path(), &flags);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
}

#[test]
fn a_missing_part_is_named() {
    let folder = written(&parts(3, |_, _| ()));
    let [first, second] = [0, 1].map(|number| part(folder.path(), number, 3));
    refused(&second, "it is part 2 of 3 of a split model: give the first part, `tiny-00001-of-00003.gguf`");
    fs::remove_file(part(folder.path(), 2, 3)).expect("it can be removed");
    refused(&first, "tiny-00003-of-00003.gguf`: part 3 of 3 of a split model: the file is missing");
    let renamed = folder.path().join("renamed.gguf");
    fs::rename(&first, &renamed).expect("it can be renamed");
    refused(&renamed, "expected a name that ends with `-00001-of-00003.gguf`");
}

#[test]
fn a_foreign_part_is_refused() {
    let set = |number: usize, key: &'static str, value: Value| {
        parts(2, move |own, keys| {
            if own == number {
                keys.retain(|(name, _)| name != key);
                keys.push((key.to_owned(), value.clone()));
            }
        })
    };
    let refused = |files: Vec<Vec<u8>>, words: &str| {
        let folder = written(&files);
        refused(&part(folder.path(), 0, 2), words);
    };
    refused(set(1, "split.no", Value::U16(0)), "key `split.no`: expected 1, found 0");
    refused(set(1, "split.count", Value::U16(4)), "key `split.count`: expected 2, found 4");
    refused(set(0, "split.no", Value::U16(2)), "key `split.no`: expected an integer below 2");
    refused(set(0, "split.count", Value::String("2".into())), "key `split.count`: expected an integer");
    refused(set(0, "split.tensors.count", Value::I32(12)), "expected 11, the number of tensors in all parts");
    let mut twice = parts(2, |_, _| ());
    twice[1] = parts(3, |_, keys| {
        keys.retain(|(name, _)| name != "split.count");
        keys.push(("split.count".into(), Value::U16(2)));
    })[1]
        .clone();
    refused(twice, "two of the tensor `");
    let mut none = parts(2, |_, _| ());
    none[1] = b"GGUF".to_vec();
    refused(none, "tiny-00002-of-00002.gguf");
}
