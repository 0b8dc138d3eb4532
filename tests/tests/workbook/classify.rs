//! Sequence classification: the golden classifier with its adapter, where rows are answered from, each loss by its
//! laws, and what is refused by name.

use std::fs;
use std::path::PathBuf;

use reference::grad;
use reference::graph::interpret::Values;
use reference::graph::{Array, Id, Real, interpret};
use reference::issues::classify::{Problem, last_tokens};
use reference::llama::{Llama, Rows, Spec, rope};
use reference::lora::Adapter;
use reference::loss::IGNORED;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype as Stored;
use tempfile::TempDir;
use tests::golden;

/// The golden classifier.
struct Golden {
    folder: TempDir,
    expected: Vec<u8>,
}

impl Golden {
    fn find() -> Option<Self> {
        let folder = golden::find_archive("open-vlm.tgz")?;
        let path = folder.path().join("open-vlm/classify-expected.safetensors");
        let expected = fs::read(path).expect("a golden file can be read");
        Some(Self { folder, expected })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("open-vlm").join(name)
    }

    fn model(&self) -> Llama {
        let path = self.path("classify");
        Llama::open(path.to_str().expect("a path of plain letters")).unwrap_or_else(|error| panic!("{error}"))
    }

    fn adapter(&self, model: &Llama) -> Adapter {
        let opened = Adapter::open(self.path("classify-adapter"), &model.config);
        opened.unwrap_or_else(|error| panic!("{error}"))
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.expected).expect("a golden file is sound")
    }

    /// The names of its batches: what stands before the first dot.
    fn batches(&self) -> Vec<String> {
        let names = self.tensors().names().into_iter().map(str::to_owned).collect::<Vec<_>>();
        names.iter().filter_map(|name| name.strip_suffix(".input_ids")).map(str::to_owned).collect()
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
            other => panic!("golden numbers of {other}"),
        };
        (tensor.shape().to_vec(), values)
    }

    fn integers(&self, name: &str) -> (Vec<usize>, Vec<i32>) {
        let (shape, values) = self.numbers(name);
        (shape, values.into_iter().map(|value| value as i32).collect())
    }
}

/// Tokens and what the model is told of them: the padding is where the mask says.
fn batch<R: Real>(shape: &[usize], ids: &[i32], mask: &[i32]) -> Values<R> {
    let positions = |row: &[i32]| {
        row.iter()
            .scan(0, |seen, real| {
                *seen += real;
                Some((*seen - 1).max(0))
            })
            .collect::<Vec<i32>>()
    };
    let positions = mask.chunks(shape[1]).flat_map(positions).collect();
    [("ids", ids.to_vec()), ("positions", positions), ("documents", mask.to_vec())]
        .into_iter()
        .map(|(name, values)| (name.to_owned(), Array::integers(shape, values)))
        .collect()
}

/// Classes beside the tokens that rows are answered from.
fn beside(shape: &[usize], last: &[usize], classes: &[i32]) -> Vec<i32> {
    let mut labels = vec![IGNORED; shape[0] * shape[1]];
    last.iter()
        .zip(classes)
        .enumerate()
        .for_each(|(row, (last, class))| labels[row * shape[1] + last] = *class);
    labels
}

fn close(what: &str, got: &[f64], want: &[f64], most: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    let largest = want.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
    let apart = got.iter().zip(want).map(|(got, want)| (got - want).abs()).fold(0.0, f64::max);
    assert!(apart <= most * largest.max(1e-3), "{what}: {apart} apart, the largest is {largest}");
}

fn check_golden<R: Real>(golden: &Golden, name: &str) {
    let model = golden.model();
    let adapter = golden.adapter(&model);
    let classifier = model.config.classifier.clone().expect("it is a classifier");
    let spec = Spec { adapter: Some(adapter.config.clone()), rows: Rows::PACKED, ..model.spec() };
    let of = |part: &str| format!("{name}.{part}");
    let (shape, ids) = golden.integers(&of("input_ids"));
    let last = last_tokens(&ids, shape[1], classifier.pad);
    let mut values = model.values::<R>().expect("weights");
    values.append(&mut adapter.values());
    values.append(&mut rope::values(&model.config, model.config.positions));
    values.append(&mut batch(&shape, &ids, &golden.integers(&of("attention_mask")).1));

    let logits = interpret(&spec.forward().expect("a graph"), &values).expect("logits")[0].wide();
    let classes = classifier.labels.len();
    let answered = last
        .iter()
        .enumerate()
        .flat_map(|(row, last)| logits[(row * shape[1] + last) * classes..][..classes].to_vec());
    close(&of("logits"), &answered.collect::<Vec<f64>>(), &golden.numbers(&of("logits")).1, 2e-6);

    let labels = beside(&shape, &last, &golden.integers(&of("labels")).1);
    values.insert("labels".into(), Array::integers(&shape, labels));
    let mut graph = spec.training_loss().expect("a graph");
    let trained: Vec<(String, Id)> = graph
        .inputs()
        .filter(|(name, _)| name.starts_with("base_model."))
        .map(|(name, id)| (name.to_owned(), id))
        .collect();
    let inputs: Vec<Id> = trained.iter().map(|(_, id)| *id).collect();
    let loss = graph.outputs()[0].1;
    let gradients = grad::differentiate(&mut graph, loss, &inputs).expect("gradients");
    trained.iter().zip(gradients).for_each(|((name, _), id)| graph.output(name.clone(), id));
    let results = interpret(&graph, &values).expect("gradients");
    close(&of("loss"), &results[0].wide(), &golden.numbers(&of("loss")).1, 2e-6);
    let expected = golden.tensors().names().iter().filter(|tensor| tensor.starts_with(&of("grad."))).count();
    assert_eq!(trained.len(), expected, "what is trained");
    for ((tensor, _), got) in trained.iter().zip(&results[1..]) {
        // as torch names them while they are trained
        let kept = match tensor
            .strip_suffix(".lora_A.weight")
            .map(|path| (path, "lora_A"))
            .or_else(|| tensor.strip_suffix(".lora_B.weight").map(|path| (path, "lora_B")))
        {
            Some((path, part)) => format!("{path}.{part}.default.weight"),
            None => tensor.replace(".weight", ".modules_to_save.default.weight"),
        };
        close(tensor, &got.wide(), &golden.numbers(&of(&format!("grad.{kept}"))).1, 5e-6);
    }
}

#[test]
fn logits_loss_and_gradients_of_a_classifier_are_those_of_the_original() {
    let Some(golden) = Golden::find() else { return };
    let batches = golden.batches();
    assert!(!batches.is_empty(), "a golden file without a batch proves nothing");
    for name in batches {
        check_golden::<f64>(&golden, &name);
        check_golden::<f32>(&golden, &name);
    }
}

#[test]
fn an_adapter_of_a_classifier_is_read_and_written_as_it_was() {
    let Some(golden) = Golden::find() else { return };
    let model = golden.model();
    let adapter = golden.adapter(&model);
    let folder = TempDir::new().expect("a folder");
    adapter.save(folder.path()).expect("it can be written");
    assert_eq!(Adapter::open(folder.path(), &model.config).expect("it can be read"), adapter);
    let file = |folder: PathBuf, name: &str| fs::read(folder.join(name)).expect("a file");
    let [own, original] = [folder.path().to_owned(), golden.path("classify-adapter")].map(|folder| {
        serde_json::from_slice::<serde_json::Value>(&file(folder, "adapter_config.json")).expect("JSON")
    });
    for field in ["task_type", "modules_to_save", "r", "lora_alpha", "peft_type"] {
        assert_eq!(own[field], original[field], "{field}");
    }
    let name = "adapter_model.safetensors";
    let [own, original] =
        [folder.path().to_owned(), golden.path("classify-adapter")].map(|folder| file(folder, name));
    let tensors = |bytes: &[u8]| {
        let file = SafeTensors::deserialize(bytes).expect("sound");
        let of = |(name, view): (String, safetensors::tensor::TensorView)| {
            (name, view.shape().to_vec(), view.data().to_vec())
        };
        let mut all: Vec<_> = file.tensors().into_iter().map(of).collect();
        all.sort();
        all
    };
    assert_eq!(tensors(&own), tensors(&original));
}

#[test]
fn a_row_is_answered_from_its_last_token_that_is_no_padding() {
    let table: [(&[i32], Option<i32>, usize); 8] = [
        (&[5, 6, 7, 0, 0], Some(0), 2),
        (&[0, 0, 5, 6, 7], Some(0), 4),
        (&[5, 0, 6, 0, 0], Some(0), 2), // the token of padding in the middle of a text
        (&[0, 5, 0, 0, 0], Some(0), 1), // on both sides
        (&[0, 0, 0, 0, 0], Some(0), 0), // nothing but padding
        (&[5, 0, 0, 0, 0], Some(-1), 4),
        (&[5, 0, 0, 0, 0], None, 4),
        (&[2, 2, 2, 9, 9], Some(2), 4),
    ];
    for (ids, pad, want) in table {
        assert_eq!(last_tokens(ids, 5, pad), [want], "{ids:?}, {pad:?}");
    }
    let all: Vec<i32> = table[..5].iter().flat_map(|(ids, ..)| ids.to_vec()).collect();
    assert_eq!(last_tokens(&all, 5, Some(0)), [2, 4, 2, 1, 0], "rows of a batch do not disturb each other");
    assert!(last_tokens(&[], 5, Some(0)).is_empty());
}

#[test]
fn problems_have_the_names_of_the_original() {
    for (problem, name) in Problem::NAMES {
        assert_eq!((Problem::called(name), problem.name()), (Some(problem), name));
    }
    assert_eq!(Problem::called("single_label"), None);
}
