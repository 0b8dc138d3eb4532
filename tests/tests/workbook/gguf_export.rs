//! `export --gguf`: every tensor is the checkpoint's, the keys are its settings and its tokenizer's, the format's public
//! package reads the same, and what is refused by name.

mod keys;
mod read;
mod split;
mod tokenizer;

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

/// A golden model that reads images with the names that its tensors have in memory since transformers 4.52.
fn with_newer_names(folder: &TempDir, name: &str) -> PathBuf {
    let (from, to) = (folder.path().join("open-vlm").join(name), folder.path().join("newer").join(name));
    fs::create_dir_all(&to).expect("a folder");
    for file in fs::read_dir(&from).expect("a folder").flatten() {
        fs::copy(file.path(), to.join(file.file_name())).expect("it can be copied");
    }
    let stored = fs::read(from.join("model.safetensors")).expect("it can be read");
    let (length, rest) = stored.split_first_chunk::<8>().expect("a length");
    let (header, tensors) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let header: BTreeMap<String, Json> = serde_json::from_slice(header).expect("JSON");
    let header: BTreeMap<String, Json> =
        header.into_iter().map(|(name, entry)| (newer_name(&name), entry)).collect();
    let header = serde_json::to_vec(&header).expect("JSON");
    let renamed = [&(header.len() as u64).to_le_bytes()[..], &header, tensors].concat();
    fs::write(to.join("model.safetensors"), renamed).expect("it can be written");
    to
}

fn newer_name(name: &str) -> String {
    let (inside, is_llava) = match name.strip_prefix("language_model.") {
        Some(inside) => (inside, true),
        None => (name, false),
    };
    match inside.strip_prefix("model.") {
        Some(rest) => format!("model.language_model.{rest}"),
        None if is_llava || ["lm_head.weight", "__metadata__"].contains(&name) => inside.to_owned(),
        None => format!("model.{name}"),
    }
}

#[test]
fn newer_names_of_a_model_that_reads_images_are_read_as_the_usual_ones() {
    let Some(folder) = golden::find_archive("open-vlm.tgz") else { return };
    for name in ["qwen2vl", "llava"] {
        let usual = seeing(&folder, name).map(|path| fs::read(path).expect("a file"));
        let newer = with_newer_names(&folder, name);
        assert!(weights(&newer).contains_key("model.language_model.embed_tokens.weight"), "{name}");
        exported(folder.path(), &[&text(&newer), "newer.gguf", "--dtype", "float32", "--overwrite"]);
        let same = ["newer.gguf", "mmproj-newer.gguf"].map(|path| fs::read(folder.path().join(path)));
        assert!(same.iter().zip(&usual).all(|(same, usual)| same.as_ref().is_ok_and(|same| same == usual)));
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
        // in memory: on Windows a file that is mapped cannot be replaced
        let bytes = fs::read(self.out.path().join("out.gguf")).expect("it is written");
        (Gguf::from_bytes(bytes).unwrap_or_else(|error| panic!("{error}")), ran.stderr)
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
