//! The weights of a model: which tensors it needs, how each is stored, and their values.

use std::collections::BTreeSet;
use std::path::Path;

use safetensors::tensor::Dtype as Stored;

use super::gguf::GgufWeights;
use super::images::is_beside;
use super::storage::{Storage, Storages, StoredInput, TensorSpec, array};
use super::{Config, Error, Rows, Spec, hub, open_checkpoint};
use crate::checkpoint::{self, Checkpoint, Tensor};
use crate::graph::interpret::Values;
use crate::graph::{Array, Dtype, Real};
use crate::nf4::{self, Layout, PartValues, QuantizedTensor};

/// A model in a folder, opened and checked.
#[derive(Debug)]
pub struct Llama {
    /// Its sizes and settings.
    pub config: Config,
    storages: Storages,
    files: Files,
}

/// Where the weights are.
#[derive(Debug)]
enum Files {
    Safetensors(Checkpoint),
    Gguf(GgufWeights),
}

impl Config {
    /// The weights of a model of these sizes, the embedding first.
    pub fn tensor_specs(&self) -> Vec<TensorSpec> {
        let table = [self.vocab, self.hidden];
        let mut specs = vec![spec(EMBEDDING, &table, false)];
        for layer in 0..self.layers {
            let of_layer = |part: &str| format!("model.layers.{layer}.{part}.weight");
            for norm in ["input_layernorm", "post_attention_layernorm"] {
                specs.push(spec(&of_layer(norm), &[self.hidden], false));
            }
            for (part, outputs, inputs) in self.projections() {
                specs.push(spec(&of_layer(part), &[outputs, inputs], true));
                if self.has_bias(part) {
                    specs.push(spec(&format!("model.layers.{layer}.{part}.bias"), &[outputs], false));
                }
            }
        }
        specs.push(spec("model.norm.weight", &[self.hidden], false));
        match &self.classifier {
            Some(classifier) => specs.push(spec(SCORE, &[classifier.labels.len(), self.hidden], false)),
            None if self.tied => {}
            None => specs.push(spec(HEAD, &table, true)),
        }
        specs
    }

    /// Whether a projection of a layer, such as `self_attn.q_proj`, adds a bias.
    pub fn has_bias(&self, part: &str) -> bool {
        const BIASED: [&str; 3] = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
        self.images.is_some_and(|images| images.has_biases) && BIASED.contains(&part)
    }

    /// The name of a tensor in a checkpoint.
    fn stored_name(&self, name: &str) -> String {
        self.images.map_or_else(|| name.to_owned(), |images| format!("{}{name}", images.prefix))
    }
}

/// The names of the embedding and of the output layer.
const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// The name of a classifier's head.
pub const SCORE: &str = "score.weight";

fn spec(name: &str, shape: &[usize], quantizable: bool) -> TensorSpec {
    TensorSpec { name: name.to_owned(), shape: shape.to_vec(), quantizable }
}

impl Llama {
    /// Opens a folder with a `config.json` and safetensors files, a repository in the local cache ([`hub::find`]), or a
    /// GGUF file ([`hub::gguf`]).
    ///
    /// Fails as [`Config::read`] and [`Checkpoint::open`] do, and where a weight that the model needs is missing, has
    /// another shape or type, or a quantisation state that cannot be decoded. Nothing is decoded yet.
    pub fn open(model: &str) -> Result<Self, Error> {
        if let Some(path) = hub::gguf(model) {
            let (config, storages, weights) = GgufWeights::open(path)?;
            return Ok(Self { config, storages, files: Files::Gguf(weights) });
        }
        let folder = hub::find(model)?;
        Self::of(&folder, Config::read(&folder.join("config.json"))?, false)
    }

    /// The same as a classifier, with these labels if some are given. A model that predicts the next token is made into
    /// one: its output layer is left out, and it has no head before one is trained.
    ///
    /// Fails as [`Self::open`] does, and where its head has another number of outputs.
    pub fn open_classifier(model: &str, labels: Option<&[String]>) -> Result<Self, Error> {
        let folder = hub::find(model)?;
        let (config, is_new) = Config::read_as_classifier(&folder.join("config.json"), labels)?;
        Self::of(&folder, config, is_new)
    }

    /// A checkpoint of these sizes, whose head may be new. An output layer that stands beside the embedding and is not
    /// equal to it is a weight of its own, whatever the `config.json` says of the two: so transformers 5.24 loads it.
    fn of(folder: &Path, mut config: Config, has_new_head: bool) -> Result<Self, Error> {
        let checkpoint = open_checkpoint(folder, &config)?;
        config.tied = config.tied && !has_own_head(&checkpoint, &config);
        let mut storages = Storages::new();
        for spec in config.tensor_specs() {
            if has_new_head && spec.name == SCORE {
                continue;
            }
            let storage = storage(&checkpoint, &config.stored_name(&spec.name), &spec)?;
            storages.insert(spec.name, storage);
        }
        Ok(Self { config, storages, files: Files::Safetensors(checkpoint) })
    }

    /// Whether it is a classifier whose checkpoint has no head.
    pub fn has_new_head(&self) -> bool {
        self.config.classifier.is_some() && !self.storages.contains_key(SCORE)
    }

    /// Tensors of the checkpoint that the model has no use for, in order, but for those that are known to say nothing
    /// of their own: frequencies of rotary embeddings, an output layer that is the embedding or that a classifier has
    /// its head for, and what sees.
    pub fn unused_tensors(&self) -> Vec<&str> {
        let Files::Safetensors(checkpoint) = &self.files else { return Vec::new() };
        let stored = |name: &String| self.config.stored_name(name);
        let used: BTreeSet<String> = self.storages.keys().map(stored).collect();
        let is_nf4 = |(name, storage): (&String, &Storage)| {
            matches!(storage, Storage::Nf4 { .. }).then(|| stored(name))
        };
        let nf4: BTreeSet<String> = self.storages.iter().filter_map(is_nf4).collect();
        // the parts of a quantised weight stand below its name
        let is_state = |name: &str| {
            let end = |at: usize| at + ".weight".len();
            name.match_indices(".weight.")
                .any(|(at, _)| nf4.contains(&name[..end(at)]) && is_part(&name[end(at)..]))
        };
        let head = self.config.stored_name(HEAD);
        let is_head =
            |name: &str| name.strip_prefix(&head).is_some_and(|rest| rest.is_empty() || is_part(rest));
        let is_known = |name: &str| {
            let sees = self.config.images.is_some() && is_beside(name);
            used.contains(name) || is_state(name) || sees || is_head(name) || name.ends_with(".inv_freq")
        };
        checkpoint.names().filter(|name| !is_known(name)).collect()
    }

    /// How every weight is stored.
    pub fn storages(&self) -> &Storages {
        &self.storages
    }

    /// The model as it is written into a graph: in f32, without an adapter.
    pub fn spec(&self) -> Spec {
        Spec {
            config: self.config.clone(),
            storages: self.storages.clone(),
            compute: Dtype::F32,
            adapter: None,
            rows: Rows::default(),
            dropout: false,
        }
    }

    /// A weight as numbers; `None` if it is stored in NF4.
    ///
    /// Fails where there is no such weight.
    pub fn dense<R: Real>(&self, name: &str) -> Result<Option<Array<R>>, Error> {
        match self.storages.get(name) {
            Some(Storage::Nf4 { .. }) => Ok(None),
            _ => match &self.files {
                Files::Safetensors(checkpoint) => {
                    Ok(Some(dense(checkpoint.tensor(&self.config.stored_name(name))?)?))
                }
                Files::Gguf(weights) => weights.dense(&self.tensor_spec(name)?).map(Some),
            },
        }
    }

    /// A weight that is stored in NF4.
    ///
    /// Fails where there is none of that name.
    pub fn quantized(&self, name: &str) -> Result<QuantizedTensor<'_>, Error> {
        match &self.files {
            Files::Safetensors(checkpoint) => Ok(checkpoint.nf4(&self.config.stored_name(name))?),
            Files::Gguf(_) => Err(Error::from(checkpoint::Error::MissingTensor).of(name)),
        }
    }

    /// The weight of a name.
    fn tensor_spec(&self, name: &str) -> Result<TensorSpec, Error> {
        let spec = self.config.tensor_specs().into_iter().find(|spec| spec.name == name);
        spec.ok_or_else(|| Error::from(checkpoint::Error::MissingTensor).of(name))
    }

    /// Every weight as numbers, under the names of the graph's inputs: for the interpreter.
    pub fn values<R: Real>(&self) -> Result<Values<R>, Error> {
        let stored = self.stored()?.into_iter();
        Ok(stored.map(|input| (input.name, array(input.dtype, &input.shape, &input.bytes))).collect())
    }

    /// Every weight as it is stored, under the names of the graph's inputs: for a device, which needs no numbers. A
    /// dense weight is one input; a quantised one is as many as it has parts.
    pub fn stored(&self) -> Result<Vec<StoredInput<'_>>, Error> {
        let mut inputs = Vec::new();
        for spec in self.config.tensor_specs() {
            match (self.storages.get(&spec.name), &self.files) {
                (None, _) => {} // a head that is not there yet
                (Some(_), Files::Gguf(weights)) => inputs.push(weights.stored(&spec)?),
                (Some(Storage::Nf4 { .. }), Files::Safetensors(checkpoint)) => {
                    let weight = checkpoint.nf4_stored(&self.config.stored_name(&spec.name))?;
                    inputs.extend(stored_parts(&spec.name, &weight));
                }
                (Some(&Storage::Dense(dtype)), Files::Safetensors(checkpoint)) => {
                    let bytes = checkpoint.tensor(&self.config.stored_name(&spec.name))?.bytes.into();
                    inputs.push(StoredInput { name: spec.name, dtype, shape: spec.shape, bytes });
                }
            }
        }
        Ok(inputs)
    }
}

/// Returns true if the end of a tensor's name is that of a part of a quantised weight, such as `.absmax`.
fn is_part(end: &str) -> bool {
    [".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"].contains(&end)
        || end.starts_with(".quant_state.")
}

/// Whether a checkpoint has an output layer with other bytes than its embedding.
fn has_own_head(checkpoint: &Checkpoint, config: &Config) -> bool {
    let stored = |name: &str| checkpoint.tensor(&config.stored_name(name)).ok();
    let Some(head) = stored(HEAD) else { return false };
    stored(EMBEDDING).is_none_or(|embedding| {
        (head.dtype, head.shape, head.bytes) != (embedding.dtype, embedding.shape, embedding.bytes)
    })
}

fn stored_parts<'a>(name: &str, weight: &nf4::StoredWeight<'a>) -> impl Iterator<Item = StoredInput<'a>> {
    weight.parts().map(move |(part, bytes)| StoredInput {
        name: part.part.of(name),
        dtype: part.dtype,
        shape: part.shape().to_vec(),
        bytes,
    })
}

/// How a weight is stored, if it is as the model needs it.
fn storage(checkpoint: &Checkpoint, name: &str, spec: &TensorSpec) -> Result<Storage, Error> {
    let tensor = checkpoint.tensor(name)?;
    let (storage, got) = if spec.quantizable && (tensor.dtype == Stored::U8 || checkpoint.is_quantized(name))
    {
        quantized_storage(&checkpoint.nf4(name)?)
    } else {
        (float(tensor.dtype).map(Storage::Dense), tensor.shape.to_vec())
    };
    let shape = || Error::Shape { got: got.clone(), need: spec.shape.clone() };
    let checked = storage.and_then(|storage| if got == spec.shape { Ok(storage) } else { Err(shape()) });
    checked.map_err(|fault| fault.of(name))
}

fn quantized_storage(weight: &QuantizedTensor) -> (Result<Storage, Error>, Vec<usize>) {
    let Layout { block_size, nested, .. } = weight.view().layout();
    (Ok(Storage::Nf4 { dtype: weight.dtype.into(), block_size, nested }), weight.shape.clone())
}

/// A stored type that a dense weight may have.
fn float(stored: Stored) -> Result<Dtype, Error> {
    let float = Dtype::of_file(stored).filter(|dtype| dtype.is_float());
    float.ok_or_else(|| Error::Dtype { got: stored.to_string(), need: "F32, F16 or BF16" })
}

/// A stored tensor of floats as numbers.
pub(crate) fn dense<R: Real>(tensor: Tensor) -> Result<Array<R>, Error> {
    Ok(array(float(tensor.dtype)?, tensor.shape, tensor.bytes))
}

/// The parts of a quantised weight as numbers, under the names of the graph's inputs.
///
/// # Panics
/// If the weight does not pass its [check](nf4::Quantized::check).
pub fn parts<R: Real, B: AsRef<[u8]>>(name: &str, weight: &nf4::Quantized<B>) -> Values<R> {
    let value = |part: nf4::PartType, values: PartValues<'_>| match values {
        PartValues::Bytes(bytes) => Array::bytes(part.shape(), bytes.to_vec()),
        PartValues::Floats(floats) => {
            Array::floats(part.dtype, part.shape(), floats.iter().copied().map(f64::from))
        }
    };
    weight.view().parts().map(|(part, values)| (part.part.of(name), value(part, values))).collect()
}
