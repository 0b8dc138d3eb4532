//! `export --gguf`: every tensor is the checkpoint's, the keys are its settings and its tokenizer's, the format's public
//! package reads the same, and what is refused by name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Crc;
use reference::checkpoint::Checkpoint;
use reference::checkpoint::gguf::{
    Array, Content, Gguf, GgufTensor, TensorType, Value, Writer, dequantize, quantize,
};
use reference::issues::gguf::{
    Activation, Architecture, Piece, Projector, TextModel, Tower, projector_keys, projector_tensors,
    rope_factors, rotary_rows, stored_as, text_keys, text_tensor,
};
use reference::llama::{Llama, SCORE};
use reference::lora;
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tests::example_run::Example;
use tests::golden;
use tests::program::{Ran, run};
use tests::tiny_llama::TinyLlama;

const TRAINER: &str = env!("CARGO_BIN_EXE_own-trainer");

/// What `--dtype` calls each type.
const TYPES: [(&str, TensorType); 8] = [
    ("float32", TensorType::F32),
    ("float16", TensorType::F16),
    ("bfloat16", TensorType::Bf16),
    ("q8_0", TensorType::Q8_0),
    ("q4_0", TensorType::Q4_0),
    ("q4_1", TensorType::Q4_1),
    ("q5_0", TensorType::Q5_0),
    ("q5_1", TensorType::Q5_1),
];

fn export(folder: &Path, arguments: &[&str]) -> Ran {
    run(Path::new(TRAINER), folder, &[&["export", "--gguf"], arguments].concat())
}

/// Runs an export that has to succeed.
fn exported(folder: &Path, arguments: &[&str]) -> String {
    let ran = export(folder, arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
    ran.stdout
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn opened(path: &Path) -> Gguf {
    Gguf::open(path).unwrap_or_else(|error| panic!("{error}"))
}

/// The golden Llama with the tokenizer of the golden runs.
struct Golden {
    tiny: TinyLlama,
    runs: TempDir,
    out: TempDir,
}

impl Golden {
    fn find() -> Option<Self> {
        let (tiny, runs) = (TinyLlama::find()?, golden::find_archive("open-sft.tgz")?);
        Some(Self { tiny, runs, out: TempDir::new().expect("a folder") })
    }

    fn tokenizer(&self) -> PathBuf {
        self.runs.path().join("open-sft/tokenizer")
    }

    /// Exports a checkpoint of it; the file.
    fn exported(&self, model: &str, file: &str, arguments: &[&str]) -> Gguf {
        let [model, tokenizer] = [self.tiny.path(model), self.tokenizer()].map(|path| text(&path));
        let always = [model.as_str(), file, "--tokenizer", &tokenizer];
        exported(self.out.path(), &[&always, arguments].concat());
        opened(&self.out.path().join(file))
    }

    fn model(&self) -> TextModel {
        let config = self.tiny.open("dense").config;
        let name = "dense".to_owned();
        TextModel { name, architecture: Architecture::Llama, config, stored: TensorType::F32 }
    }
}

/// The numbers of a tensor in the file.
fn numbers(tensor: &GgufTensor<'_>) -> Vec<f32> {
    dequantize(tensor).unwrap_or_else(|error| panic!("{error}"))
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

/// Numbers of a weight as a file has them, and its sizes.
fn arranged(
    model: &TextModel,
    name: &str,
    shape: &[usize],
    numbers: &[f32],
) -> (String, Vec<usize>, Vec<f32>) {
    let piece = text_tensor(model, name).unwrap_or_else(|| panic!("{name}"));
    let part = piece.part.of(numbers, shape, rotary_rows).expect("a part");
    (piece.name, shape.iter().rev().copied().collect(), part)
}

/// That a file has exactly these weights, stored in a type.
fn has(file: &Gguf, model: &TextModel, weights: &BTreeMap<String, (Vec<usize>, Vec<f32>)>) {
    let mut count = 0;
    for (name, (shape, of_checkpoint)) in weights {
        let (name, sizes, want) = arranged(model, name, shape, of_checkpoint);
        let tensor = file.tensor(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
        let ty = stored_as(model.stored, &name, &sizes);
        assert_eq!((tensor.ty, tensor.sizes), (ty, sizes.as_slice()), "{name}");
        assert_eq!(tensor.bytes, quantize(ty, &want).expect("whole blocks"), "{name}, {ty}");
        count += 1;
    }
    let factors = rope_factors(&model.config.rope, model.config.head_dim);
    if let Some(want) = &factors {
        let got = numbers(&file.tensor("rope_freqs.weight").expect("factors"));
        assert!(
            got.iter().zip(want).all(|(got, want)| (got - want).abs() <= 1e-5 * want),
            "{got:?}, {want:?}"
        );
    }
    assert_eq!(file.tensors().len(), count + usize::from(factors.is_some()));
}

/// The dense weights of a folder as f32.
fn weights(folder: &Path) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let checkpoint = Checkpoint::open(folder).unwrap_or_else(|error| panic!("{error}"));
    let of = |name: &str| {
        let tensor = checkpoint.tensor(name).expect("it is there");
        let fours = tensor.bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
        assert_eq!(tensor.dtype, safetensors::tensor::Dtype::F32, "{name}");
        (tensor.shape.to_vec(), fours)
    };
    checkpoint.names().map(|name| (name.to_owned(), of(name))).collect()
}

#[test]
fn a_llama_is_the_checkpoint_in_every_type() {
    let Some(golden) = Golden::find() else { return };
    let weights = weights(&golden.tiny.path("dense"));
    for (name, stored) in TYPES {
        let file = golden.exported("dense", &format!("{name}.gguf"), &["--dtype", name]);
        let model = TextModel { stored, ..golden.model() };
        has(&file, &model, &weights);
        for (key, value) in text_keys(&model) {
            assert_eq!(file.value(&key), Some(&value), "{key}");
        }
    }
}

#[test]
fn a_file_has_its_tokenizer() {
    let Some(golden) = Golden::find() else { return };
    let file = golden.exported("dense", "a.gguf", &[]);
    let read =
        |name: &str| fs::read_to_string(golden.tokenizer().join(name)).expect("a file of the tokenizer");
    let json: Json = serde_json::from_str(&read("tokenizer.json")).expect("JSON");
    let key = |name: &str| file.value(&format!("tokenizer.{name}")).unwrap_or_else(|| panic!("{name}"));
    assert_eq!(key("ggml.model").text(), Some("gpt2"));
    assert_eq!(key("ggml.pre").text(), Some("gpt-2"));
    assert_eq!(key("chat_template").text(), Some(read("chat_template.jinja").as_str()));
    let Value::Array(Array::String(tokens)) = key("ggml.tokens") else { panic!("tokens") };
    let Value::Array(Array::I32(types)) = key("ggml.token_type") else { panic!("types") };
    let Value::Array(Array::String(merges)) = key("ggml.merges") else { panic!("merges") };
    let vocab = golden.model().config.vocab;
    assert_eq!((tokens.len(), types.len()), (vocab, vocab));
    let own = json["model"]["vocab"].as_object().expect("a vocabulary");
    let added = json["added_tokens"].as_array().expect("a list");
    for (token, id) in own {
        let id = id.as_u64().expect("an id") as usize;
        let is_added = added.iter().any(|added| added["id"] == id);
        assert_eq!((&tokens[id], types[id]), (token, if is_added { 3 } else { 1 }));
    }
    let known = own.len()
        + added.iter().filter(|added| !own.contains_key(added["content"].as_str().expect("a text"))).count();
    assert_eq!(types.iter().filter(|ty| **ty == 5).count(), vocab - known);
    let pairs = json["model"]["merges"].as_array().expect("merges").iter();
    let pairs: Vec<String> =
        pairs.map(|pair| format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap())).collect();
    assert_eq!(*merges, pairs);
    for (name, id) in [("bos", 1), ("eos", 2), ("padding", 0)] {
        assert_eq!(key(&format!("ggml.{name}_token_id")), &Value::U32(id), "{name}");
    }
    assert_eq!(key("ggml.add_bos_token"), &Value::Bool(false));
}

#[test]
fn an_adapter_is_merged_or_a_file_of_its_own() {
    let Some(golden) = Golden::find() else { return };
    let adapter = text(&golden.tiny.path("adapter-end"));
    let model = text(&golden.tiny.path("dense"));
    let merged =
        run(Path::new(TRAINER), golden.out.path(), &["export", &model, "merged", "--adapter", &adapter]);
    assert_eq!(merged.code, 0, "{}", merged.stderr);
    let file = golden.exported("dense", "merged.gguf", &["--adapter", &adapter, "--dtype", "float32"]);
    has(&file, &golden.model(), &weights(&golden.out.path().join("merged")));

    let flags = ["--adapter", adapter.as_str(), "--only-adapter"];
    let alone = golden.exported("dense", "alone.gguf", &flags);
    assert_eq!(alone.value("general.type").and_then(Value::text), Some("adapter"));
    assert_eq!(alone.value("adapter.type").and_then(Value::text), Some("lora"));
    assert_eq!(alone.value("adapter.lora.alpha"), Some(&Value::F32(16.0)));
    let trained = golden.tiny.adapter("adapter-end").trained::<f32>();
    assert_eq!(alone.tensors().len(), trained.len());
    for spec in golden.model().config.tensor_specs() {
        let [a, b] = lora::keys(spec.name.trim_end_matches(".weight"));
        let Some((a, b)) = trained.get(&a).zip(trained.get(&b)) else { continue };
        let wide = |matrix: &reference::graph::Array<f32>| {
            matrix.wide().into_iter().map(|x| x as f32).collect::<Vec<f32>>()
        };
        let (name, sizes, rows) = arranged(&golden.model(), &spec.name, &b.shape, &wide(b));
        let found = alone.tensor(&format!("{name}.lora_b")).expect("B");
        assert_eq!((found.sizes, bits(&numbers(&found))), (sizes.as_slice(), bits(&rows)), "{name}");
        let found = alone.tensor(&format!("{name}.lora_a")).expect("A");
        assert_eq!(
            (found.sizes, bits(&numbers(&found))),
            (&[a.shape[1], a.shape[0]][..], bits(&wide(a))),
            "{name}"
        );
    }
}

#[test]
fn a_quantised_checkpoint_is_decoded() {
    let Some(golden) = Golden::find() else { return };
    let file = golden.exported("nf4", "nf4.gguf", &["--dtype", "float32"]);
    let model = golden.tiny.open("nf4");
    let name = "model.layers.1.self_attn.k_proj.weight";
    let weight = model.quantized(name).expect("NF4");
    let decoded = reference::nf4::dequantize_f32(&weight.view());
    let (name, _, want) = arranged(&golden.model(), name, &weight.shape, &decoded);
    assert_eq!(bits(&numbers(&file.tensor(&name).expect("it is there"))), bits(&want));
}

/// A tied model has no output layer in the file, until an adapter gives it one.
#[test]
fn an_output_layer_is_written_where_there_is_one() {
    let example = Example::new(TRAINER);
    let folder = TempDir::new().expect("a folder");
    let model = text(&example.path("model"));
    exported(folder.path(), &[&model, "tied.gguf"]);
    let file = opened(&folder.path().join("tied.gguf"));
    let is_tied = Llama::open(&model).expect("a model").config.tied;
    assert_eq!(file.tensor("output.weight").is_err(), is_tied);
    assert!(file.tensor("token_embd.weight").is_ok());
}

#[test]
fn what_cannot_be_exported_is_refused_by_name() {
    let example = Example::new(TRAINER);
    let folder = TempDir::new().expect("a folder");
    let model = example.path("model");
    let copy = folder.path().join("copy");
    let with = |change: &dyn Fn(&mut Json), name: &str| {
        let _ = fs::remove_dir_all(&copy);
        fs::create_dir_all(&copy).expect("a folder");
        for entry in fs::read_dir(&model).expect("files") {
            let path = entry.expect("a file").path();
            fs::copy(&path, copy.join(path.file_name().expect("a name"))).expect("a copy");
        }
        let path = copy.join(name);
        let mut json: Json = serde_json::from_slice(&fs::read(&path).expect("it is there")).expect("JSON");
        change(&mut json);
        fs::write(&path, json.to_string()).expect("it can be written");
    };
    let refused = |arguments: &[&str], words: &str| {
        let ran = export(folder.path(), arguments);
        assert!(ran.code == 2 && ran.stderr.contains(words), "{arguments:?}: {}{}", ran.code, ran.stderr);
    };
    with(&|json| json["model"]["type"] = json!("Unigram"), "tokenizer.json");
    refused(&["copy", "out.gguf"], "model.type: expected \"BPE\", found \"Unigram\"");
    let cut = |json: &mut Json| {
        json["pre_tokenizer"] = json!({"type": "Whitespace"});
        json["model"]["merges"] = json!([["a", "b"]]);
    };
    with(&cut, "tokenizer.json");
    refused(
        &["copy", "out.gguf"],
        "pre_tokenizer: expected that of GPT-2, Llama 3, Qwen 2 or SmolLM (--pre NAME",
    );
    exported(folder.path(), &["copy", "named.gguf", "--pre", "gpt-2"]);
    with(&|json| json["model"]["vocab"]["far"] = json!(1 << 20), "tokenizer.json");
    refused(
        &["copy", "out.gguf"],
        "model.vocab \"far\": expected the number of a token that the model has, found 1048576",
    );
    with(&|json| json["model"]["merges"] = json!([["a", "b"], ["c"]]), "tokenizer.json");
    refused(&["copy", "out.gguf"], "model.merges[1]: expected two tokens, found [\"c\"]");
    with(&|_| (), "tokenizer.json");
    fs::remove_file(copy.join("tokenizer.json")).expect("it was there");
    refused(
        &["copy", "out.gguf"],
        "copy: expected a tokenizer.json, found none; --tokenizer DIR names another folder",
    );
    assert!(!folder.path().join("out.gguf").exists(), "nothing is left of a file that is not whole");

    let model = text(&model);
    exported(folder.path(), &[&model, "there.gguf"]);
    let before = fs::read(folder.path().join("there.gguf")).expect("a file");
    refused(
        &[&model, "there.gguf", "--dtype", "q8_0"],
        "there.gguf: expected no such file, found one; --overwrite replaces it",
    );
    assert_eq!(before, fs::read(folder.path().join("there.gguf")).expect("a file"));
    exported(folder.path(), &[&model, "there.gguf", "--dtype", "q8_0", "--overwrite"]);
    assert!(fs::read(folder.path().join("there.gguf")).expect("a file").len() < before.len());
    refused(&[&model, "out.gguf", "--only-adapter"], "--adapter");
    fs::create_dir(folder.path().join("directory")).expect("a folder");
    let ran = export(folder.path(), &[&model, "directory", "--overwrite"]);
    assert!(ran.code == 6 && ran.stderr.contains("found a directory"), "{}", ran.stderr);

    let classifier = Example::of_task(TRAINER, "SEQ_CLS");
    let trained = Llama::open_classifier(&text(&classifier.path("model")), None);
    if trained.is_ok_and(|model| model.storages().contains_key(SCORE)) {
        refused(&[&text(&classifier.path("model")), "out.gguf"], "found a classifier");
    }
    let ran = run(
        Path::new(TRAINER),
        folder.path(),
        &["export", &model, "out", "--adapter", "x", "--dtype", "q4_0"],
    );
    assert!(ran.code == 2 && ran.stderr.contains("expected --gguf"), "{}", ran.stderr);
}

/// What the public package says of files; nothing where it is not installed.
fn of_package(files: &[PathBuf]) -> Option<Vec<Json>> {
    let has_package =
        Command::new("python3").args(["-c", "import gguf"]).output().is_ok_and(|ran| ran.status.success());
    if !has_package {
        println!("not measured: no python3 with the package gguf");
        return None;
    }
    let script = tests::place::workbook().join("tests/peers/gguf_package.py");
    let ran = Command::new("python3").arg(script).args(files).output().expect("Python runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Some(serde_json::from_slice(&ran.stdout).expect("JSON"))
}

/// A tensor as the package's answer has it.
fn answer(tensor: &GgufTensor<'_>) -> Json {
    let mut crc = Crc::new();
    for x in numbers(tensor) {
        crc.update(&x.to_le_bytes());
    }
    json!({"sizes": tensor.sizes, "type": tensor.ty.name(), "crc": crc.sum()})
}

/// A key as the package's answer has it: numbers of arrays as they are.
fn said(value: &Value) -> Option<Json> {
    Some(match value {
        Value::U32(number) => json!(number),
        Value::Bool(flag) => json!(flag),
        Value::String(text) => json!(text),
        Value::Array(Array::I32(numbers)) => json!(numbers),
        Value::Array(Array::String(texts)) => json!(texts),
        _ => return None, // floats are compared as numbers below
    })
}

#[test]
fn the_public_package_reads_the_same() {
    let Some(golden) = Golden::find() else { return };
    let adapter = text(&golden.tiny.path("adapter-end"));
    let mut files = Vec::new();
    for (name, _) in TYPES {
        golden.exported("dense", &format!("{name}.gguf"), &["--dtype", name]);
        files.push(golden.out.path().join(format!("{name}.gguf")));
    }
    golden.exported("nf4", "nf4.gguf", &["--adapter", &adapter]);
    golden.exported("dense", "alone.gguf", &["--adapter", &adapter, "--only-adapter"]);
    files.extend(["nf4.gguf", "alone.gguf"].map(|name| golden.out.path().join(name)));
    let vision = golden::find_archive("open-vlm.tgz");
    files.extend(
        vision.iter().flat_map(|folder| [seeing(folder, "qwen2vl"), seeing(folder, "llava")]).flatten(),
    );
    let Some(answers) = of_package(&files) else { return };
    for (path, found) in files.iter().zip(answers) {
        let own = opened(path);
        let tensors = found["tensors"].as_object().expect("tensors");
        assert_eq!(tensors.len(), own.tensors().len(), "{}", path.display());
        for info in own.tensors() {
            let tensor = own.tensor(&info.name).expect("it is there");
            assert_eq!(tensors[&info.name], answer(&tensor), "{}: {}", path.display(), info.name);
        }
        let keys = found["keys"].as_object().expect("keys");
        assert_eq!(keys.len(), own.keys().len(), "{}", path.display());
        for (name, value) in own.keys() {
            if let Some(want) = said(value) {
                assert_eq!(keys[name], want, "{}: {name}", path.display());
            } else if let Some(want) = value.float() {
                assert_eq!(keys[name].as_f64(), Some(want), "{}: {name}", path.display());
            }
        }
    }
}

/// The two files of a golden model that reads images, in f32.
fn seeing(folder: &TempDir, name: &str) -> [PathBuf; 2] {
    let model = folder.path().join("open-vlm").join(name);
    let file = format!("{name}.gguf");
    exported(folder.path(), &[&text(&model), &file, "--dtype", "float32"]);
    [file.clone(), format!("mmproj-{file}")].map(|name| folder.path().join(name))
}

/// What sees in a golden model, as its settings say.
fn projector(name: &str) -> Projector {
    let is_qwen = name == "qwen2vl";
    Projector {
        name: name.into(),
        tower: if is_qwen { Tower::Qwen2Vl { merge: 2 } } else { Tower::Llava { feature_layer: 2 } },
        image_size: if is_qwen { 560 } else { 56 },
        patch_size: 14,
        hidden: 32,
        intermediate: 96,
        layers: if is_qwen { 2 } else { 3 },
        heads: 4,
        norm_eps: if is_qwen { 1e-6 } else { 1e-5 },
        output: 64,
        activation: Activation::QuickGelu,
        mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
        std: [0.268_629_54, 0.261_302_6, 0.275_777_1],
        stored: TensorType::F32,
    }
}

#[test]
fn a_model_that_reads_images_is_two_files() {
    let Some(folder) = golden::find_archive("open-vlm.tgz") else { return };
    for name in ["qwen2vl", "llava"] {
        let path = folder.path().join("open-vlm").join(name);
        let [language, sight] = seeing(&folder, name).map(|path| opened(&path));
        let config = Llama::open(&text(&path)).unwrap_or_else(|error| panic!("{error}")).config;
        let sections = config.images.and_then(|images| images.sections);
        let architecture =
            sections.map_or(Architecture::Llama, |sections| Architecture::Qwen2Vl { sections });
        let model = TextModel { name: name.into(), architecture, config, stored: TensorType::F32 };
        let projector = projector(name);
        let (mut counts, mut nowhere) = ([0, 0], Vec::new());
        for (name, (shape, of_checkpoint)) in weights(&path) {
            let language_pieces: Vec<Piece> = text_tensor(&model, &name).into_iter().collect();
            let sight_pieces = projector_tensors(&projector, &name, &shape);
            let pieces = language_pieces.iter().map(|piece| (&language, 0, piece));
            for (file, number, piece) in pieces.chain(sight_pieces.iter().map(|piece| (&sight, 1, piece))) {
                let want = piece.part.of(&of_checkpoint, &shape, rotary_rows).expect("a part");
                let sizes: Vec<usize> = piece.part.shape(&shape).expect("a part").into_iter().rev().collect();
                let found = file.tensor(&piece.name).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(
                    (found.sizes, bits(&numbers(&found))),
                    (sizes.as_slice(), bits(&want)),
                    "{}",
                    piece.name
                );
                counts[number] += 1;
            }
            if language_pieces.is_empty() && sight_pieces.is_empty() {
                nowhere.push(name);
            }
        }
        assert_eq!([language.tensors().len(), sight.tensors().len()], counts);
        assert!(nowhere.iter().all(|name| name.contains("post_layernorm")), "{nowhere:?}");
        for (file, keys) in [(&language, text_keys(&model)), (&sight, projector_keys(&projector))] {
            for (key, value) in keys {
                assert_eq!(file.value(&key), Some(&value), "{key}");
            }
        }
    }
}

/// A second file that cannot be written leaves none.
#[test]
fn of_two_files_there_are_both_or_none() {
    let Some(folder) = golden::find_archive("open-vlm.tgz") else { return };
    let model = text(&folder.path().join("open-vlm/llava"));
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let ran = export(folder.path(), arguments);
        assert!(ran.code == code && ran.stderr.contains(words), "{arguments:?}: {}{}", ran.code, ran.stderr);
        assert!(!folder.path().join("a.gguf").exists() && !folder.path().join("mmproj-a.gguf").exists());
    };
    refused(&[&model, "a.gguf", "--projector", "a.gguf"], 2, "expected a file of its own");
    fs::write(folder.path().join("file"), "").expect("it can be written");
    refused(&[&model, "a.gguf", "--projector", "file/b.gguf"], 6, "file/b.gguf");
    refused(&[&model, "a.gguf", "--projector", "file"], 2, "file: expected no such file, found one");
    let ran = export(folder.path(), &[&model, "a.gguf", "--projector", "b.gguf"]);
    assert!(ran.code == 0 && folder.path().join("b.gguf").exists(), "{}", ran.stderr);
}

/// What two models have for numbers, by the names of their inputs.
fn same_values(a: &Llama, b: &Llama) {
    let [a, b] = [a, b].map(|model| model.values::<f32>().expect("weights"));
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, value) in &a {
        assert_eq!((&value.shape, value.wide()), (&b[name].shape, b[name].wide()), "{name}");
    }
}

#[test]
fn a_file_is_read_as_the_checkpoint_that_it_was() {
    let Some(golden) = Golden::find() else { return };
    for (name, _) in &TYPES[..3] {
        golden.exported("dense", &format!("{name}.gguf"), &["--dtype", name]);
    }
    let own = golden.tiny.open("dense");
    let read = |name: &str| {
        Llama::open(&text(&golden.out.path().join(name))).unwrap_or_else(|error| panic!("{error}"))
    };
    let file = read("float32.gguf");
    same_values(&own, &file);
    let [a, b] = [&own, &file].map(|model| model.config.clone());
    assert_eq!((a.vocab, a.hidden, a.intermediate, a.layers), (b.vocab, b.hidden, b.intermediate, b.layers));
    assert_eq!(
        (a.heads, a.key_heads, a.head_dim, a.positions),
        (b.heads, b.key_heads, b.head_dim, b.positions)
    );
    assert_eq!((a.tied, a.norm_eps as f32, a.rope.theta), (b.tied, b.norm_eps as f32, b.rope.theta));
    let [a, b] = [&a, &b].map(|config| reference::llama::rope::frequencies(&config.rope, config.head_dim));
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-6 * a), "{a:?}, {b:?}");
    let half = read("float16.gguf");
    let name = "model.layers.2.self_attn.q_proj.weight";
    let [want, got] =
        [&own, &half].map(|model| model.dense::<f32>(name).expect("a weight").expect("numbers").wide());
    let rounded: Vec<f64> = want.iter().map(|x| half::f16::from_f64(*x).to_f64()).collect();
    assert_eq!(got, rounded);
}

#[test]
fn a_file_goes_on_with_the_same_tokens_as_its_checkpoint() {
    let Some(golden) = Golden::find() else { return };
    golden.exported("dense", "dense.gguf", &["--dtype", "float32"]);
    let generated = |model: &Path, more: &[&str]| -> Json {
        let model = text(model);
        let flags = [
            "generate",
            &model,
            "--prompt",
            "  It<|role|>user\nnaïve 12345\n\n<|end|>sorted letters",
            "--ignore-eos",
        ];
        let flags = [&flags[..], &["--max-new-tokens", "64", "--json", "--device", "cpu"], more].concat();
        let ran = run(Path::new(TRAINER), golden.out.path(), &flags);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        serde_json::from_str(&ran.stdout).expect("JSON")
    };
    let tokenizer = text(&golden.tokenizer());
    let want = generated(&golden.tiny.path("dense"), &["--tokenizer", &tokenizer]);
    let got = generated(Path::new("dense.gguf"), &[]);
    for key in ["prompt_ids", "new_ids", "text"] {
        assert_eq!(got[key], want[key], "{key}");
    }
    generated(Path::new("dense.gguf"), &["--load-in-4bit"]);
}

#[test]
fn a_file_is_trained_beside_as_its_checkpoint_is() {
    let example = Example::new(TRAINER);
    let folder = TempDir::new().expect("a folder");
    let model = example.path("model");
    let file = text(&folder.path().join("model.gguf"));
    exported(folder.path(), &[&text(&model), &file, "--dtype", "float32"]);
    let losses = |name: &str, model: &str| {
        let out = folder.path().join(name);
        let lines = example.metrics_of(&out, &["max_steps=5", &format!("model_name_or_path={model}")]);
        lines.iter().filter_map(|line| line["loss"].as_f64()).collect::<Vec<f64>>()
    };
    let (want, got) = (losses("a", &text(&model)), losses("b", &file));
    assert!(want.len() >= 5 && want == got, "{want:?}, {got:?}");
}

/// A file of a small Llama, with one key or tensor changed.
fn changed(change: impl FnOnce(&mut Vec<(String, Value)>, &mut Vec<Content>)) -> Vec<u8> {
    let size = |key: &str, size: u32| (format!("llama.{key}"), Value::U32(size));
    let mut keys = vec![
        ("general.architecture".to_owned(), Value::String("llama".into())),
        size("embedding_length", 8),
        size("feed_forward_length", 12),
        size("block_count", 1),
        size("context_length", 16),
        size("attention.head_count", 2),
        ("llama.attention.layer_norm_rms_epsilon".to_owned(), Value::F32(1e-5)),
    ];
    let weights = [
        ("token_embd", vec![8, 5]),
        ("output_norm", vec![8]),
        ("blk.0.attn_norm", vec![8]),
        ("blk.0.ffn_norm", vec![8]),
        ("blk.0.attn_q", vec![8, 8]),
        ("blk.0.attn_k", vec![8, 8]),
        ("blk.0.attn_v", vec![8, 8]),
        ("blk.0.attn_output", vec![8, 8]),
        ("blk.0.ffn_gate", vec![8, 12]),
        ("blk.0.ffn_up", vec![8, 12]),
        ("blk.0.ffn_down", vec![12, 8]),
    ];
    let content = |(name, sizes): (&str, Vec<usize>)| Content {
        name: format!("{name}.weight"),
        ty: TensorType::F32,
        sizes,
    };
    let mut tensors: Vec<Content> = weights.into_iter().map(content).collect();
    change(&mut keys, &mut tensors);
    let mut bytes = Vec::new();
    let mut writer = Writer::begin(&mut bytes, &keys, tensors.clone()).expect("a sound file");
    for tensor in tensors {
        writer.write(&vec![0; tensor.bytes().expect("whole blocks")]).expect("memory");
    }
    writer.finish();
    bytes
}

#[test]
fn a_file_that_is_no_llama_is_refused_by_name() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("model.gguf");
    let opened = |bytes: Vec<u8>| {
        fs::write(&path, bytes).expect("it can be written");
        Llama::open(&text(&path))
    };
    opened(changed(|_, _| ())).unwrap_or_else(|error| panic!("{error}"));
    let set = |key: &'static str, value: Value| {
        move |keys: &mut Vec<(String, Value)>, _: &mut Vec<Content>| {
            keys.retain(|(name, _)| name != key);
            keys.push((key.to_owned(), value));
        }
    };
    let refused = |bytes: Vec<u8>, words: &str| {
        let message = opened(bytes).expect_err(words).to_string();
        assert!(message.contains("model.gguf") && message.contains(words), "{message}, expected {words}");
    };
    let text_of = |text: &str| Value::String(text.into());
    refused(changed(set("general.architecture", text_of("mamba"))), "general.architecture");
    refused(changed(set("llama.block_count", Value::U32(1 << 23))), "at most the 11 tensors of the file");
    refused(changed(set("llama.block_count", Value::U32(2))), "blk.1.attn_norm.weight");
    refused(changed(set("llama.block_count", Value::String("1".into()))), "llama.block_count");
    refused(changed(set("llama.embedding_length", Value::U32(0))), "llama.embedding_length");
    refused(changed(set("llama.attention.head_count_kv", Value::U32(3))), "a divisor of 2 heads");
    refused(changed(set("llama.attention.key_length", Value::U32(3))), "an even width of a head");
    refused(changed(set("llama.attention.value_length", Value::U32(2))), "llama.attention.value_length");
    refused(changed(set("llama.rope.dimension_count", Value::U32(2))), "llama.rope.dimension_count");
    refused(changed(set("llama.rope.scaling.type", text_of("yarn"))), "\"none\" or \"linear\"");
    refused(changed(set("llama.rope.freq_base", Value::F32(f32::NAN))), "a number above 0");
    refused(
        changed(|keys, _| keys.retain(|(name, _)| name != "llama.context_length")),
        "llama.context_length",
    );
    refused(
        changed(|_, tensors| tensors.retain(|tensor| tensor.name != "blk.0.ffn_up.weight")),
        "blk.0.ffn_up.weight",
    );
    let bias = Content { name: "blk.0.attn_q.bias".into(), ty: TensorType::F32, sizes: vec![8] };
    refused(changed(|_, tensors| tensors.push(bias)), "blk.0.attn_q.bias");
    refused(changed(|_, tensors| tensors[4].sizes = vec![8, 4]), "blk.0.attn_q.weight");
    let factors = Content { name: "rope_freqs.weight".into(), ty: TensorType::F32, sizes: vec![2] };
    refused(changed(|_, tensors| tensors.push(factors)), "numbers above 0");
    fs::write(&path, b"GGUF").expect("it can be written");
    assert!(Llama::open(&text(&path)).is_err());
}

/// Keys of a tokenizer, hostile ones among them, and what is said of them.
#[test]
fn a_tokenizer_that_makes_no_sense_is_refused_by_name() {
    let folder = TempDir::new().expect("a folder");
    let texts =
        |all: &[&str]| Value::Array(Array::String(all.iter().map(|text| (*text).to_owned()).collect()));
    let (words, text) = (["<unk>", "<s>", "a", "b", "ab"], |text: &str| Value::String(text.into()));
    let ran = |more: &[(&str, Option<Value>)]| {
        let bytes = changed(|keys, _| {
            let own = [
                ("model", text("llama")),
                ("tokens", texts(&words)),
                ("token_type", Value::Array(Array::I32(vec![2, 3, 1, 1, 1]))),
                ("scores", Value::Array(Array::F32(vec![0.0, 0.0, 0.0, 0.0, -1.0]))),
                ("add_space_prefix", Value::Bool(false)),
                ("add_bos_token", Value::Bool(false)),
            ];
            keys.extend(own.map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)));
            for (key, value) in more {
                let key = format!("tokenizer.ggml.{key}");
                keys.retain(|(name, _)| *name != key);
                keys.extend(value.clone().map(|value| (key, value)));
            }
        });
        fs::write(folder.path().join("model.gguf"), bytes).expect("it can be written");
        let flags = ["generate", "model.gguf", "--prompt", "aba", "--max-new-tokens", "1", "--json"];
        run(Path::new(TRAINER), folder.path(), &[&flags[..], &["--device", "cpu"]].concat())
    };
    let right = ran(&[]);
    let found: Json = serde_json::from_str(&right.stdout).unwrap_or_else(|_| panic!("{}", right.stderr));
    assert_eq!(found["prompt_ids"], json!([4, 2]));
    let refused = |more: &[(&str, Option<Value>)], words: &str| {
        let ran = ran(more);
        assert!(
            ran.code == 2 && ran.stderr.contains(words),
            "{}: {}, expected {words}",
            ran.code,
            ran.stderr
        );
    };
    let long = "a".repeat(300);
    refused(&[("model", Some(text("bert")))], "tokenizer.ggml.model: expected \"gpt2\" or \"llama\"");
    refused(&[("model", None)], "tokenizer.ggml.model: expected a text, found none");
    refused(&[("tokens", None)], "tokenizer.ggml.tokens: expected a list of texts, found none");
    refused(&[("tokens", Some(text("a")))], "tokenizer.ggml.tokens: expected a list of texts");
    refused(
        &[("token_type", Some(Value::Array(Array::I32(vec![1]))))],
        "tokenizer.ggml.token_type: expected 5",
    );
    refused(&[("scores", None)], "tokenizer.ggml.scores: expected 5 numbers, found none");
    refused(
        &[("eos_token_id", Some(Value::U32(5)))],
        "tokenizer.ggml.eos_token_id: expected a number below 5",
    );
    refused(
        &[("tokens", Some(texts(&["<unk>", "<s>", &long, "b", "ab"])))],
        "at most 256 bytes, found one of 300",
    );
    let bytes = |more: &[(&'static str, Option<Value>)]| [&[("model", Some(text("gpt2")))], more].concat();
    refused(&bytes(&[]), "tokenizer.ggml.merges: expected a list of texts, found none");
    refused(&bytes(&[("merges", Some(texts(&["ab"])))]), "tokenizer.ggml.merges: expected two tokens");
    let merges = ("merges", Some(texts(&["a b"])));
    refused(&bytes(&[merges.clone(), ("pre", Some(text("mine")))]), "tokenizer.ggml.pre: expected one of");
    assert_eq!(ran(&bytes(&[merges, ("pre", Some(text("gpt-2")))])).code, 0);
}

/// A copy of the example's model, whose files are changed one at a time.
struct Changed {
    example: Example,
    out: TempDir,
}

impl Changed {
    fn new() -> Self {
        Self { example: Example::new(TRAINER), out: TempDir::new().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.out.path().join("copy").join(name)
    }

    /// The model as it was.
    fn renew(&self) {
        let _ = fs::remove_dir_all(self.path(""));
        fs::create_dir_all(self.path("")).expect("a folder");
        for entry in fs::read_dir(self.example.path("model")).expect("files") {
            let path = entry.expect("a file").path();
            fs::copy(&path, self.path(&path.file_name().expect("a name").to_string_lossy())).expect("a copy");
        }
    }

    /// Changes a file of JSON, which begins as an empty object if there is none.
    fn edit(&self, name: &str, change: impl FnOnce(&mut Json)) {
        let text = fs::read_to_string(self.path(name)).unwrap_or_else(|_| "{}".into());
        let mut json: Json = serde_json::from_str(&text).expect("JSON");
        change(&mut json);
        fs::write(self.path(name), json.to_string()).expect("it can be written");
    }

    /// Changes the weights, all of them f32.
    fn weigh(&self, change: impl FnOnce(&mut BTreeMap<String, (Vec<usize>, Vec<f32>)>)) {
        let mut all = weights(&self.path(""));
        change(&mut all);
        let bytes: BTreeMap<&String, (&Vec<usize>, Vec<u8>)> = all
            .iter()
            .map(|(name, (shape, numbers))| {
                (name, (shape, numbers.iter().flat_map(|x| x.to_le_bytes()).collect()))
            })
            .collect();
        let views = bytes.iter().map(|(name, (shape, bytes))| {
            let ty = safetensors::tensor::Dtype::F32;
            (*name, safetensors::tensor::TensorView::new(ty, (*shape).clone(), bytes).expect("a tensor"))
        });
        let file = safetensors::tensor::serialize(views, None).expect("a file");
        fs::write(self.path("model.safetensors"), file).expect("it can be written");
    }

    fn export(&self, more: &[&str]) -> Ran {
        export(self.out.path(), &[&["copy", "out.gguf", "--overwrite"], more].concat())
    }

    /// Exports it; the file, and what was said of it.
    fn exported(&self, more: &[&str]) -> (Gguf, String) {
        let ran = self.export(more);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        (opened(&self.out.path().join("out.gguf")), ran.stderr)
    }

    fn refused(&self, more: &[&str], words: &str) {
        let ran = self.export(more);
        assert!(
            ran.code == 2 && ran.stderr.contains(words),
            "{}: {}, expected {words}",
            ran.code,
            ran.stderr
        );
    }
}

fn key<'f>(file: &'f Gguf, name: &str) -> Option<&'f Value> {
    file.value(&format!("tokenizer.ggml.{name}"))
}

/// A template that puts tokens around a text.
fn around(front: &[(&str, u32)], behind: &[(&str, u32)]) -> Json {
    let piece = |(name, _): &(&str, u32)| json!({"SpecialToken": {"id": name, "type_id": 0}});
    let mut single: Vec<Json> = front.iter().map(piece).collect();
    single.push(json!({"Sequence": {"id": "A", "type_id": 0}}));
    single.extend(behind.iter().map(piece));
    let ids = front
        .iter()
        .chain(behind)
        .map(|(name, id)| ((*name).to_owned(), json!({"id": name, "ids": [id], "tokens": [name]})));
    let ids: serde_json::Map<String, Json> = ids.collect();
    json!({"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": ids})
}

/// Makes a tokenizer one of characters with bytes to fall back to: 256 tokens of bytes, and the markers behind them.
fn scored(json: &mut Json, normalizer: Json, cut: Json) {
    let bytes = (0..=u8::MAX).map(|byte| (format!("<0x{byte:02X}>"), json!(byte)));
    json["model"] = json!({
        "type": "BPE", "byte_fallback": true, "vocab": bytes.collect::<serde_json::Map<_, _>>(), "merges": [],
    });
    (json["normalizer"], json["pre_tokenizer"], json["decoder"]) = (normalizer, cut, Json::Null);
}

fn metaspace(scheme: &str, split: bool) -> Json {
    json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": scheme, "split": split})
}

#[test]
fn what_of_a_tokenizer_has_no_key_is_refused_by_name() {
    let model = Changed::new();
    let refused = |change: &dyn Fn(&mut Json), words: &str| {
        model.renew();
        model.edit("tokenizer.json", change);
        model.refused(&[], words);
    };
    let bytes = |prefix: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true});
    let space = || json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    refused(&|json| json["normalizer"] = json!({"type": "Lowercase"}), "normalizer: expected none");
    refused(&|json| json["normalizer"] = json!({"type": "Sequence"}), "normalizer: expected none");
    refused(&|json| json["pre_tokenizer"] = bytes(true), "pre_tokenizer: expected add_prefix_space false");
    refused(&|json| json["pre_tokenizer"] = json!({"type": "Whitespace"}), "pre_tokenizer: expected that of");
    for behavior in ["Contiguous", "Removed"] {
        let pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        let cut = |json: &mut Json| {
            let mut level = bytes(false);
            level["use_regex"] = json!(false);
            json["model"]["merges"] = json!([["a", "b"]]);
            json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": false}, level,
            ]});
        };
        refused(&cut, "pre_tokenizer: expected that of");
    }
    refused(&|json| json["model"]["dropout"] = json!(0.1), "model.dropout: expected null");
    for affix in ["end_of_word_suffix", "continuing_subword_prefix"] {
        refused(&|json| json["model"][affix] = json!("</w>"), &format!("model.{affix}: expected null"));
    }
    refused(&|json| json["decoder"] = json!({"type": "WordPiece"}), "decoder: expected ByteLevel alone");
    for flag in ["lstrip", "rstrip", "single_word"] {
        refused(&|json| json["added_tokens"][1][flag] = json!(true), &format!("{flag}: expected false"));
    }
    let unmerged = |json: &mut Json| {
        json["model"]["ignore_merges"] = json!(true);
        json["model"]["vocab"]["xyz"] = json!(257);
        json["added_tokens"] = json!([json["added_tokens"][0]]);
    };
    refused(
        &unmerged,
        "model.ignore_merges: expected false, as readers do by the pattern's name, found true, and merges",
    );

    let roberta = json!({"type": "RobertaProcessing", "sep": ["a", 1], "cls": ["b", 0]});
    refused(&|json| json["post_processor"] = roberta.clone(), "post_processor: expected ByteLevel or");
    let marker =
        |json: &Json, number: usize| json["added_tokens"][number]["content"].as_str().unwrap().to_owned();
    refused(
        &|json| json["post_processor"] = around(&[(&marker(json, 1), 257)], &[]),
        "post_processor.single: expected the bos_token of tokenizer_config.json in front of a text",
    );
    refused(
        &|json| json["post_processor"] = around(&[], &[(&marker(json, 0), 256)]),
        "post_processor.single: expected the eos_token of tokenizer_config.json behind a text",
    );
    refused(
        &|json| json["post_processor"] = around(&[(&marker(json, 0), 256), (&marker(json, 1), 257)], &[]),
        "post_processor.single: expected the text, with one special token in front",
    );
    refused(
        &|json| json["model"]["vocab"]["zz"] = json!(5),
        "expected a number of its own, found 5, that of",
    );
    refused(&|json| json["added_tokens"][1]["content"] = json!("a\0b"), "expected a text without U+0000");
    refused(
        &|json| json["added_tokens"][1]["content"] = json!("!"),
        "added_tokens \"!\": expected one number for a text, found 257 and",
    );

    refused(
        &|json| json["model"]["byte_fallback"] = json!(true),
        "model.vocab \"<0x00>\": expected the token of a byte",
    );
    refused(&|json| scored(json, Json::Null, Json::Null), "normalizer: expected Replace \" \" by");
    refused(
        &|json| scored(json, json!({"type": "NFKC"}), metaspace("never", true)),
        "normalizer: expected Replace",
    );
    refused(
        &|json| scored(json, space(), json!({"type": "Digits", "individual_digits": true})),
        "pre_tokenizer: expected none, or Metaspace",
    );
    let normalized = |json: &mut Json| {
        scored(json, space(), Json::Null);
        json["added_tokens"][1]["normalized"] = json!(true);
    };
    refused(&normalized, "normalized: expected false beside a normalizer");
    let two_words = |json: &mut Json| {
        scored(json, Json::Null, metaspace("never", true));
        json["model"]["vocab"]["a\u{2581}"] = json!(258);
    };
    refused(&two_words, "pre_tokenizer.split: expected false: readers do not cut a text at its spaces");
    model.renew();
    model.edit("tokenizer.json", |json| scored(json, space(), Json::Null));
    model.refused(&["--pre", "gpt-2"], "model.byte_fallback: expected no --pre");
    model.renew();
    model.refused(&["--pre", ""], "pre_tokenizer: expected a name in --pre");
}

#[test]
fn a_token_without_a_text_or_a_number_is_refused_by_name() {
    let model = Changed::new();
    let refused = |name: &str, change: &dyn Fn(&mut Json), words: &str| {
        model.renew();
        model.edit(name, change);
        model.refused(&[], words);
    };
    let config = "tokenizer_config.json";
    refused(
        config,
        &|json| json["added_tokens_decoder"] = json!({"258": {"content": "<|more|>"}}),
        "tokenizer_config.json: added_tokens_decoder[\"258\"]: expected a token of tokenizer.json",
    );
    refused(
        config,
        &|json| json["pad_token"] = json!("<|more|>"),
        "pad_token: expected a token of tokenizer.json",
    );
    refused(
        "added_tokens.json",
        &|json| json["<|more|>"] = json!(258),
        "added_tokens.json: \"<|more|>\": expected",
    );
    refused(config, &|json| json["eos_token"] = Json::Null, "expected eos_token, or eos_token_id");
    model.renew();
    model.edit(config, |json| json["bos_token"] = Json::Null);
    model.edit("tokenizer.json", |json| {
        let first = json["added_tokens"][0]["content"].as_str().unwrap().to_owned();
        json["post_processor"] = around(&[(&first, 256)], &[]);
    });
    model.refused(&[], "expected the bos_token of tokenizer_config.json in front of a text");
}

#[test]
fn texts_begin_and_end_as_the_tokenizer_says() {
    let model = Changed::new();
    model.renew();
    model.edit("tokenizer_config.json", |json| json["add_bos_token"] = json!(true));
    let (file, said) = model.exported(&[]);
    assert_eq!(key(&file, "add_bos_token"), Some(&Value::Bool(false)));
    assert_eq!(said, "");
    model.edit("tokenizer_config.json", |json| json["add_bos_token"] = json!(false));
    model.edit("tokenizer.json", |json| {
        let names = [0, 1].map(|number| json["added_tokens"][number]["content"].as_str().unwrap().to_owned());
        json["post_processor"] = around(&[(&names[0], 256)], &[(&names[1], 257)]);
    });
    let (file, _) = model.exported(&[]);
    for name in ["add_bos_token", "add_eos_token"] {
        assert_eq!(key(&file, name), Some(&Value::Bool(true)), "{name}");
    }
    assert_eq!(
        [key(&file, "bos_token_id"), key(&file, "eos_token_id")],
        [256, 257].map(Value::U32).each_ref().map(Some)
    );
}

/// Three have a key; the tokenizer's own comes first, then those that readers do not know by their texts.
#[test]
fn every_end_of_an_answer_has_a_key_or_is_said() {
    let model = Changed::new();
    model.renew();
    model.edit("tokenizer_config.json", |json| json["eos_token"] = Json::Null);
    model.edit("generation_config.json", |json| json["eos_token_id"] = json!(65));
    let ends = |file: &Gguf| {
        ["eos", "eot", "eom"].map(|name| key(file, &format!("{name}_token_id")).and_then(Value::whole))
    };
    assert_eq!(ends(&model.exported(&[]).0), [Some(65), None, None]);
    model.renew();
    model.edit("generation_config.json", |json| json["eos_token_id"] = json!([257, 65, 66]));
    let (file, said) = model.exported(&[]);
    assert_eq!((ends(&file), said.as_str()), ([Some(257), Some(65), Some(66)], ""));
    let folder = model.out.path();
    let flags =
        ["generate", "out.gguf", "--ids", "72,101", "--max-new-tokens", "40", "--json", "--device", "cpu"];
    let of_file: Json = serde_json::from_str(&run(Path::new(TRAINER), folder, &flags).stdout).expect("JSON");
    let first = of_file["new_ids"][0].as_u64().expect("a token");
    model.edit("generation_config.json", |json| json["eos_token_id"] = json!([257, first]));
    model.exported(&["--dtype", "float32"]);
    let of_file: Json = serde_json::from_str(&run(Path::new(TRAINER), folder, &flags).stdout).expect("JSON");
    assert_eq!(of_file["new_ids"], json!([first]), "a second end is one");
    model.edit("generation_config.json", |json| json["eos_token_id"] = json!([257, 65, 66, 67]));
    let (file, said) = model.exported(&[]);
    assert_eq!(ends(&file), [Some(257), Some(65), Some(66)]);
    assert!(said.contains("eos_token_id 67") && said.contains("has no key"), "{said}");
}

#[test]
fn a_space_that_readers_put_elsewhere_is_said() {
    let model = Changed::new();
    let space = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    let prepend = json!({"type": "Prepend", "prepend": "\u{2581}"});
    let both = json!({"type": "Sequence", "normalizers": [prepend, space]});
    for (normalizer, cut, prefix, words) in [
        (Json::Null, metaspace("first", false), true, Some("prepend_scheme \"first\" has no key")),
        (Json::Null, metaspace("always", true), true, Some("prepend_scheme \"always\" has no key")),
        (Json::Null, metaspace("never", true), false, None),
        (both, Json::Null, true, None),
        (space.clone(), Json::Null, false, None),
    ] {
        model.renew();
        model.edit("tokenizer.json", |json| scored(json, normalizer, cut));
        let (file, said) = model.exported(&[]);
        assert_eq!(key(&file, "add_space_prefix"), Some(&Value::Bool(prefix)));
        assert_eq!(words.is_none(), said.is_empty(), "{said}");
        assert!(said.contains(words.unwrap_or_default()), "{said}");
    }
    let pair = |merges: Json| {
        model.renew();
        model.edit("config.json", |json| json["vocab_size"] = json!(261));
        model.weigh(|all| {
            let (shape, numbers) = all.get_mut("model.embed_tokens.weight").expect("an embedding");
            numbers.resize(261 * shape[1], 0.0);
            shape[0] = 261;
        });
        model.edit("tokenizer.json", |json| {
            scored(json, space.clone(), Json::Null);
            json["model"]["vocab"]["a"] = json!(259);
            json["model"]["vocab"]["aa"] = json!(260);
            json["model"]["merges"] = merges;
        });
        model.exported(&[]).1
    };
    assert_eq!(pair(json!([["a", "a"]])), "");
    assert!(pair(json!([])).contains("model.merges: expected every two tokens that make a third"));
    model.renew();
    model.edit("tokenizer.json", |json| json["normalizer"] = json!({"type": "NFC"}));
    assert!(model.exported(&[]).1.contains("normalizer NFC"));
}

/// A filler for a number that no token has is a text that none has.
#[test]
fn tokens_have_texts_of_their_own() {
    let model = Changed::new();
    model.renew();
    let vocab = Llama::open(&text(&model.path(""))).expect("a model").config.vocab;
    model.edit("tokenizer.json", |json| {
        let added = json["added_tokens"].as_array_mut().expect("a list");
        added.truncate(2);
        json["model"]["vocab"].as_object_mut().unwrap().retain(|_, id| *id != 7 && *id != 8);
        json["model"]["vocab"]["[PAD7]"] = json!(8);
    });
    let (file, _) = model.exported(&[]);
    let Some(Value::Array(Array::String(tokens))) = key(&file, "tokens") else { panic!("tokens") };
    assert_eq!((tokens[7].as_str(), tokens[8].as_str()), ("[PAD7]_", "[PAD7]"));
    assert_eq!(tokens.iter().collect::<std::collections::BTreeSet<_>>().len(), vocab);
}

#[test]
fn templates_keep_their_names() {
    let model = Changed::new();
    model.renew();
    let folder = model.path("additional_chat_templates");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("tool_use.jinja"), "tools").expect("it can be written");
    let (file, said) = model.exported(&[]);
    let named =
        |file: &Gguf| file.value("tokenizer.chat_template.tool_use").and_then(Value::text) == Some("tools");
    assert!(named(&file) && file.value("tokenizer.chat_template").is_some() && said.is_empty(), "{said}");
    fs::remove_file(model.path("chat_template.jinja")).expect("it was there");
    fs::write(folder.join("rag.jinja"), "texts").expect("it can be written");
    let (file, said) = model.exported(&[]);
    assert!(named(&file) && file.value("tokenizer.chat_template").is_none(), "{said}");
    assert_eq!(
        file.value("tokenizer.chat_templates"),
        Some(&Value::Array(Array::String(vec!["rag".into(), "tool_use".into()])))
    );
    assert!(said.contains("expected a chat template called \"default\""), "{said}");
}

/// A number that the written type makes infinite is refused, and so is what is none.
#[test]
fn a_number_that_a_type_cannot_hold_is_refused_by_its_tensor() {
    let model = Changed::new();
    let name = "model.layers.0.mlp.down_proj.weight";
    let set = |x: f32| {
        model.renew();
        model.weigh(|all| all.get_mut(name).expect("a weight").1[3] = x);
    };
    let refused = |x: f32, types: &[&str], words: &str| {
        set(x);
        for ty in types {
            model.refused(&["--dtype", ty], &format!("{name}: expected {words}"));
        }
    };
    refused(
        -1e5,
        &["float16"],
        "numbers that F16 holds, found -100000: --dtype bfloat16 or float32 holds it",
    );
    model.exported(&["--dtype", "bfloat16"]);
    for ty in ["q8_0", "q4_0", "q5_0"] {
        model.exported(&["--dtype", ty]);
    }
    let blocks = ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1"];
    refused(1e9, &blocks, "numbers that Q");
    refused(f32::MAX, &["bfloat16"], "numbers that BF16 holds");
    model.exported(&["--dtype", "float32"]);
    for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        refused(x, &["float32", "bfloat16", "float16", "q4_0"], "finite numbers, found");
    }
}

#[test]
fn a_merged_folder_holds_what_its_type_can() {
    let model = Changed::new();
    model.renew();
    let name = "model.layers.0.mlp.down_proj.weight";
    model.weigh(|all| all.get_mut(name).expect("a weight").1[3] = 1e5);
    let out = model.out.path();
    assert_eq!(model.example.run(&out.join("run"), &["max_steps=1"]).code, 0);
    let merged = |name: &str, ty: &str| {
        let flags = ["export", "copy", name, "--adapter", "run/adapter", "--dtype", ty];
        run(Path::new(TRAINER), out, &flags)
    };
    let ran = merged("half", "float16");
    let words = format!("{name}: expected numbers that F16 holds");
    assert!(ran.code == 2 && ran.stderr.contains(&words), "{}: {}", ran.code, ran.stderr);
    assert!(!out.join("half").exists());
    assert_eq!(merged("wide", "bfloat16").code, 0);
}

/// `tie_word_embeddings` does not decide where the checkpoint holds an output layer with other numbers.
#[test]
fn an_output_layer_beside_a_tied_embedding_is_its_own() {
    let model = Changed::new();
    let with_head = |sign: f32| {
        model.renew();
        model.weigh(|all| {
            let (shape, numbers) = all["model.embed_tokens.weight"].clone();
            let numbers = numbers.into_iter().map(|x| sign * x).collect();
            all.insert("lm_head.weight".into(), (shape, numbers));
        });
    };
    let folder = text(&model.path(""));
    let is_tied = || Llama::open(&folder).unwrap_or_else(|error| panic!("{error}")).config.tied;
    let generated = |name: &str| {
        let flags =
            ["generate", name, "--ids", "72,101,108", "--max-new-tokens", "8", "--ignore-eos", "--json"];
        let ran = run(Path::new(TRAINER), model.out.path(), &[&flags[..], &["--device", "cpu"]].concat());
        let found: Json = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
        found["new_ids"].clone()
    };
    model.renew();
    let tied = generated("copy");
    with_head(1.0);
    assert!(is_tied(), "equal weights are one");
    assert_eq!(generated("copy"), tied);
    assert!(model.exported(&[]).0.tensor("output.weight").is_err());
    with_head(-1.0);
    assert!(!is_tied());
    let own = generated("copy");
    assert_ne!(own, tied);
    let (file, _) = model.exported(&["--dtype", "float32"]);
    assert!(file.tensor("output.weight").is_ok());
    assert_eq!(generated("out.gguf"), own);
    model.edit("config.json", |json| json["tie_word_embeddings"] = json!(false));
    assert_eq!(generated("copy"), own);
}

#[test]
fn an_adapter_file_is_in_float32() {
    let Some(golden) = Golden::find() else { return };
    let [model, adapter] = ["dense", "adapter-end"].map(|name| text(&golden.tiny.path(name)));
    let flags = [model.as_str(), "alone.gguf", "--adapter", &adapter, "--only-adapter", "--dtype", "q8_0"];
    let ran = export(golden.out.path(), &flags);
    assert!(ran.code == 2 && ran.stderr.contains("--dtype: expected float32 or none"), "{}", ran.stderr);
}
