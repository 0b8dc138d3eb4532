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
