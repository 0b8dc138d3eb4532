//! A micro-batch, and what is logged of it.

use std::collections::BTreeMap;

use compiler::session::{self, DeviceTensor};
use kernels::{Device, DeviceError};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype};
use reference::issues::classify::Problem;
use reference::llama::classify::TARGETS;
use reference::llama::train::LOSS_SCALE;
use reference::llama::{DROPOUT_KEY, IMAGE_FEATURES, IMAGE_SLOTS, Spec, rope};
use reference::loss::IGNORED;

use super::Error;

/// Rows side by side, filled up at their ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Microbatch {
    /// Rows, and tokens of each.
    pub shape: [usize; 2],
    /// The tokens; any in padding.
    pub ids: Vec<i32>,
    /// The label of each token, not shifted; -100 in padding and for the first token of a row. A classifier has labels
    /// at the tokens that texts are answered from, and -100 elsewhere.
    pub labels: Vec<i32>,
    /// The targets of a classifier's numbers, one for each output of each token; empty for classes, and for a model
    /// that predicts the next token.
    pub targets: Vec<f32>,
    /// The position of each token in its document.
    pub positions: Vec<i32>,
    /// The number of each token's document, from 1 on; 0 in padding.
    pub documents: Vec<i32>,
    /// The images, if the model reads some. Positions are then (3, B, T), if the model turns by three axes.
    pub images: Option<ImageRows>,
}

/// The images of a micro-batch.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageRows {
    /// The row of the features that each token takes, (B, T); 0 of a token of the text.
    pub slots: Vec<i32>,
    /// The features of images, (N, H). Row 0 is of no token, so that N is 1 without an image.
    pub features: Vec<f32>,
}

impl Microbatch {
    /// A micro-batch of padding alone, with every input that the model reads.
    pub(crate) fn padding(shape: [usize; 2], spec: &Spec) -> Self {
        let tokens: usize = shape.iter().product();
        let all = |value: i32| vec![value; tokens];
        let classifier = spec.config.classifier.as_ref();
        let numbers = classifier.filter(|classifier| classifier.problem() != Problem::SingleLabel);
        let outputs = numbers.map_or(0, |classifier| classifier.labels.len());
        let has_axes = spec.config.images.is_some_and(|images| images.sections.is_some());
        Self {
            shape,
            ids: all(0),
            labels: all(IGNORED),
            targets: vec![0.0; tokens * outputs],
            positions: vec![0; tokens * if has_axes { 3 } else { 1 }],
            documents: all(0),
            images: spec
                .rows
                .images
                .then(|| ImageRows { slots: all(0), features: vec![0.0; spec.config.hidden] }),
        }
    }

    /// A micro-batch in which every token counts but the first of each row: the most that a shape allows.
    pub(crate) fn counted(shape: [usize; 2], spec: &Spec) -> Self {
        let [rows, length] = shape;
        let label = |token: usize| if token == 0 { IGNORED } else { 0 };
        let labels = (0..rows).flat_map(|_| (0..length).map(label)).collect();
        Self { labels, documents: vec![1; rows * length], ..Self::padding(shape, spec) }
    }

    /// Returns the same rows with padding up to a larger shape.
    #[must_use]
    pub(crate) fn padded(&self, [rows, length]: [usize; 2]) -> Self {
        fn fill<T: Copy>(values: &[T], padding: T, from: [usize; 2], to: [usize; 2]) -> Vec<T> {
            let width = values.len() / (from[0] * from[1]).max(1); // elements per token
            let mut all = vec![padding; to[0] * to[1] * width];
            let rows = all.chunks_mut((to[1] * width).max(1));
            for (to, from) in rows.zip(values.chunks((from[1] * width).max(1))) {
                to[..from.len()].copy_from_slice(from);
            }
            all
        }
        let to = [rows, length];
        let integers = |values: &[i32], padding| fill(values, padding, self.shape, to);
        let axes = self.positions.chunks(self.ids.len().max(1)); // three where the model turns by axes
        let images = self.images.as_ref().map(|ImageRows { slots, features }| ImageRows {
            slots: integers(slots, 0),
            features: features.clone(),
        });
        Self {
            shape: to,
            ids: integers(&self.ids, 0),
            labels: integers(&self.labels, IGNORED),
            targets: fill(&self.targets, 0.0, self.shape, to),
            positions: axes.flat_map(|axis| integers(axis, 0)).collect(),
            documents: integers(&self.documents, 0),
            images,
        }
    }

    /// The inputs of a graph that differ from micro-batch to micro-batch, by name; a graph reads those that it has.
    /// `items` is the number of tokens that count in the whole step, `key` seeds the masks of dropout, `factor` scales
    /// the loss, and `hidden` is the width of the model.
    pub(crate) fn inputs(
        &self,
        hidden: usize,
        items: u64,
        key: [i32; 2],
        factor: f64,
    ) -> Vec<(&'static str, Array<f32>)> {
        let [rows, length] = self.shape;
        let integers = |values: &[i32]| Array::integers(&self.shape, values.to_vec());
        let floats = |shape: &[usize], values: &[f32]| {
            Array::floats(Dtype::F32, shape, values.iter().copied().map(f64::from))
        };
        let positions = match self.positions.len() {
            all if all == rows * length => integers(&self.positions),
            _ => Array::integers(&[3, rows, length], self.positions.clone()),
        };
        let mut all = vec![
            ("ids", integers(&self.ids)),
            ("labels", integers(&self.labels)),
            ("positions", positions),
            ("documents", integers(&self.documents)),
            (DROPOUT_KEY, Array::integers(&[2], key.to_vec())),
            ("items", Array::scalar(items as f64)),
            (LOSS_SCALE, Array::scalar(factor)),
        ];
        if let Some(ImageRows { slots, features }) = &self.images {
            all.push((IMAGE_SLOTS, integers(slots)));
            all.push((IMAGE_FEATURES, floats(&[features.len() / hidden, hidden], features)));
        }
        if !self.targets.is_empty() {
            let outputs = self.targets.len() / self.ids.len();
            all.push((TARGETS, floats(&[rows, length, outputs], &self.targets)));
        }
        all
    }

    /// The rotary tables that the micro-batch reads; `None` if tables of `rows` rows are right. They have a row for
    /// each token of a row of the batch, or, if tokens have separate positions, for each position of the model.
    pub(crate) fn new_tables(&self, spec: &Spec, rows: Option<usize>) -> Option<Values<f32>> {
        let needed = if spec.rows.positions { spec.config.positions } else { self.shape[1] };
        (rows != Some(needed)).then(|| rope::values(&spec.config, needed))
    }

    /// The labels, ignored where documents begin and in padding if there are documents: what
    /// [`loss::within_documents`](reference::loss::within_documents) is in a graph.
    pub(super) fn targets(&self, has_documents: bool) -> Vec<i32> {
        let mut targets = self.labels.clone();
        if has_documents {
            let rows = targets.chunks_mut(self.shape[1].max(1));
            for (targets, documents) in rows.zip(self.documents.chunks(self.shape[1].max(1))) {
                for t in 0..targets.len() {
                    let goes_on = t > 0 && documents[t] == documents[t - 1] && documents[t] > 0;
                    targets[t] = if goes_on { targets[t] } else { IGNORED };
                }
            }
        }
        targets
    }
}

/// The numbers that are logged of a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Logged {
    /// The part of the step's loss.
    pub loss: f64,
    /// Tokens that count.
    pub counted: f64,
    /// The number of these tokens that were predicted.
    pub correct: f64,
    /// The sum of the entropies of the distributions that predict them, in nats.
    pub entropy: f64,
}

impl Logged {
    /// From the numbers that a program gives by name.
    pub(crate) fn of<E>(number: impl Fn(&str) -> Result<f64, E>) -> Result<Self, E> {
        Ok(Self {
            loss: number("loss")?,
            counted: number("counted")?,
            correct: number("correct")?,
            entropy: number("entropy")?,
        })
    }
}

/// The result of a micro-batch that is only read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluated {
    /// The numbers that are logged of it.
    pub logged: Logged,
    /// The C logits of each token that counts, one token after the other, of a classifier; else empty.
    pub logits: Vec<f32>,
}

impl Evaluated {
    /// Keeps the logits of the tokens that count, from those of all tokens.
    pub(crate) fn new(logged: Logged, batch: &Microbatch, logits: &[f32]) -> Self {
        let tokens = logits.chunks((logits.len() / batch.labels.len().max(1)).max(1));
        let counted = tokens.zip(&batch.labels).filter(|(_, label)| **label != IGNORED);
        Self { logged, logits: counted.flat_map(|(token, _)| token).copied().collect() }
    }

    /// A line of text that has every bit.
    pub(crate) fn bits_text(&self) -> String {
        let Logged { loss, counted, correct, entropy } = self.logged;
        let logged = [loss, counted, correct, entropy].map(|number| format!("{:016x}", number.to_bits()));
        let logits = self.logits.iter().map(|number| format!("{:08x}", number.to_bits()));
        logged.into_iter().chain(logits).collect::<Vec<_>>().join(" ")
    }

    /// Reads such a line; `None` if it is not one.
    pub(crate) fn from_bits_text(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut number = || u64::from_str_radix(words.next()?, 16).ok().map(f64::from_bits);
        let logged = Logged { loss: number()?, counted: number()?, correct: number()?, entropy: number()? };
        let logits = words.map(|word| u32::from_str_radix(word, 16).ok().map(f32::from_bits));
        Some(Self { logged, logits: logits.collect::<Option<_>>()? })
    }
}

pub(crate) fn upload(device: &dyn Device, value: &Array<f32>) -> Result<DeviceTensor, Error> {
    DeviceTensor::new(device, &value.shape, &value.to_memory()).map_err(device_error)
}

/// Uploads a tensor into the memory of the one of its name, or into new memory if that has a different size. A GPU can
/// repeat a captured graph only while its tensors keep their addresses.
pub(crate) fn put(
    device: &dyn Device,
    all: &mut BTreeMap<String, DeviceTensor>,
    name: &str,
    value: &Array<f32>,
) -> Result<(), Error> {
    let bytes = value.to_memory();
    if let Some(tensor) = all.get_mut(name).filter(|tensor| tensor.buffer.bytes() == bytes.len()) {
        tensor.shape.clone_from(&value.shape);
        return device.upload(&mut tensor.buffer, &bytes).map_err(device_error);
    }
    all.remove(name); // first, so that both are never there together
    all.insert(name.to_owned(), upload(device, value)?);
    Ok(())
}

pub(crate) fn device_error(error: DeviceError) -> Error {
    Error::Session(session::Error::Device(error))
}
