//! A micro-batch, and what is logged of it.

use std::collections::BTreeMap;

use compiler::session::{self, DeviceTensor};
use kernels::{Device, DeviceError};
use reference::graph::Array;
use reference::loss::IGNORED;

use super::Error;

/// Rows side by side, filled up at their ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Microbatch {
    /// Rows, and tokens of each.
    pub shape: [usize; 2],
    /// The tokens; any in padding.
    pub ids: Vec<i32>,
    /// The labels as they stand beside the tokens; -100 in padding and for the first token of a row. Of a classifier
    /// they stand beside the tokens that texts are answered from.
    pub labels: Vec<i32>,
    /// What a classifier's numbers are held against, as many for each token as it has outputs; empty of classes, and of a
    /// model that predicts the next token.
    pub targets: Vec<f32>,
    /// The position of each token in its document.
    pub positions: Vec<i32>,
    /// The number of each token's document, from 1 on; 0 in padding.
    pub documents: Vec<i32>,
    /// What it has of images, if its model reads some: then positions are those of three axes, (3, B, T), where the
    /// model's are.
    pub images: Option<ImageRows>,
}

/// What a micro-batch has of images.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageRows {
    /// The row of the features that each token takes, (B, T); 0 of a token of the text.
    pub slots: Vec<i32>,
    /// What images are to the model, (N, H): first a row that no token takes, and no more where there is no image.
    pub features: Vec<f32>,
}

impl Microbatch {
    /// One of padding alone.
    pub(crate) fn padding(shape: [usize; 2]) -> Self {
        let all = |value: i32| vec![value; shape.iter().product()];
        let targets = Vec::new();
        let (ids, labels, positions, documents) = (all(0), all(IGNORED), all(0), all(0));
        Self { shape, ids, labels, targets, positions, documents, images: None }
    }

    /// The same with padding up to a larger shape.
    #[must_use]
    pub(crate) fn padded(&self, [rows, length]: [usize; 2]) -> Self {
        let fill = |values: &[i32], padding: i32| {
            let mut all = vec![padding; rows * length];
            for (to, from) in all.chunks_mut(length.max(1)).zip(values.chunks(self.shape[1].max(1))) {
                to[..from.len()].copy_from_slice(from);
            }
            all
        };
        Self {
            shape: [rows, length],
            ids: fill(&self.ids, 0),
            labels: fill(&self.labels, IGNORED),
            targets: self.targets.clone(), // none: only the loss of next tokens is chunked
            positions: fill(&self.positions, 0),
            documents: fill(&self.documents, 0),
            images: self.images.clone(), // none: a loss in chunks is refused beside images
        }
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

/// What is logged of a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Logged {
    /// Its part of the step's loss.
    pub loss: f64,
    /// Tokens that count.
    pub counted: f64,
    /// Those of them that were predicted.
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

    /// As text that has every bit.
    pub(crate) fn bits_text(&self) -> String {
        let Self { loss, counted, correct, entropy } = self;
        [loss, counted, correct, entropy].map(|number| format!("{:016x}", number.to_bits())).join(" ")
    }

    /// From that text; `None` of another.
    pub(crate) fn from_bits_text(text: &str) -> Option<Self> {
        let number = |word: &str| u64::from_str_radix(word, 16).ok().map(f64::from_bits);
        let numbers: Vec<f64> = text.split(' ').map(number).collect::<Option<_>>()?;
        let [loss, counted, correct, entropy] = numbers[..] else { return None };
        Some(Self { loss, counted, correct, entropy })
    }
}

pub(super) fn upload(device: &dyn Device, value: &Array<f32>) -> Result<DeviceTensor, Error> {
    DeviceTensor::new(device, &value.shape, &value.to_memory()).map_err(device_error)
}

/// Uploads a tensor into the memory of the one of its name, or into new memory if that has another size. Memory that
/// stays where it is lets a card repeat a run by the graph that it has captured.
pub(super) fn put(
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

pub(super) fn device_error(error: DeviceError) -> Error {
    Error::Session(session::Error::Device(error))
}
