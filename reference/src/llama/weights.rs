//! The weights of a model: which tensors it needs, how each is stored, and their values.

use std::collections::BTreeMap;

use half::{bf16, f16};
use safetensors::tensor::Dtype as Stored;

use super::{Config, Error, Rows, Spec, hub};
use crate::graph::interpret::Values;
use crate::graph::{Array, Dtype, Real};
use crate::nf4::{self, Checkpoint, QuantizedTensor, Scales};

/// How a weight is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As numbers.
    Dense(Dtype),
    /// In NF4.
    Nf4 {
        /// The type that it had before, and is decoded to.
        dtype: Dtype,
        /// Elements that share one absmax.
        block_size: usize,
        /// Codes that share one second-level scale, if there is a second level.
        nested: Option<usize>,
    },
}

/// How every weight of a model is stored, by its name.
pub type Forms = BTreeMap<String, Form>;

/// A weight that a model needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Its name in a checkpoint.
    pub name: String,
    /// Its dimensions: (out, in) of a projection.
    pub shape: Vec<usize>,
    /// Whether it may be stored in NF4: the embedding and the norms may not.
    pub quantizable: bool,
}

/// A model in a folder, opened and checked.
#[derive(Debug)]
pub struct Llama {
    /// Its sizes and settings.
    pub config: Config,
    forms: Forms,
    checkpoint: Checkpoint,
}

impl Config {
    /// The weights of a model of these sizes, the embedding first.
    pub fn needs(&self) -> Vec<Need> {
        let table = [self.vocab, self.hidden];
        let mut needs = vec![need("model.embed_tokens.weight", &table, false)];
        for layer in 0..self.layers {
            let of_layer = |part: &str| format!("model.layers.{layer}.{part}.weight");
            for norm in ["input_layernorm", "post_attention_layernorm"] {
                needs.push(need(&of_layer(norm), &[self.hidden], false));
            }
            for (part, outputs, inputs) in self.projections() {
                needs.push(need(&of_layer(part), &[outputs, inputs], true));
            }
        }
        needs.push(need("model.norm.weight", &[self.hidden], false));
        if !self.tied {
            needs.push(need("lm_head.weight", &table, true));
        }
        needs
    }
}

fn need(name: &str, shape: &[usize], quantizable: bool) -> Need {
    Need { name: name.to_owned(), shape: shape.to_vec(), quantizable }
}

impl Llama {
    /// Opens a folder with a `config.json` and safetensors files, or a repository in the local cache ([`hub::find`]).
    ///
    /// Fails as [`Config::read`] and [`Checkpoint::open`] do, and where a weight that the model needs is missing, has
    /// another shape or type, or a quantisation state that cannot be decoded. Nothing is decoded yet.
    pub fn open(model: &str) -> Result<Self, Error> {
        let folder = hub::find(model)?;
        let config = Config::read(&folder.join("config.json"))?;
        let checkpoint = Checkpoint::open(&folder)?;
        let mut forms = Forms::new();
        for need in config.needs() {
            let form = form(&checkpoint, &need)?;
            forms.insert(need.name, form);
        }
        Ok(Self { config, forms, checkpoint })
    }

    /// How every weight is stored.
    pub fn forms(&self) -> &Forms {
        &self.forms
    }

    /// The model as it is written into a graph: in f32, without an adapter.
    pub fn spec(&self) -> Spec {
        Spec {
            config: self.config.clone(),
            forms: self.forms.clone(),
            compute: Dtype::F32,
            adapter: None,
            rows: Rows::default(),
        }
    }

    /// Every weight, under the names of the graph's inputs.
    pub fn values<R: Real>(&self) -> Result<Values<R>, Error> {
        let mut values = Values::new();
        for need in self.config.needs() {
            values.append(&mut self.value(&need)?);
        }
        Ok(values)
    }

    /// One weight: itself, or the parts that it is decoded from.
    pub fn value<R: Real>(&self, need: &Need) -> Result<Values<R>, Error> {
        if let Some(Form::Nf4 { .. }) = self.forms.get(&need.name) {
            return Ok(parts(&need.name, &self.checkpoint.nf4(&need.name)?));
        }
        let dense = dense(self.checkpoint.tensor(&need.name)?).map_err(|fault| fault.of(&need.name))?;
        Ok(Values::from([(need.name.clone(), dense)]))
    }
}

/// How a weight is stored, if it is as the model needs it.
fn form(checkpoint: &Checkpoint, need: &Need) -> Result<Form, Error> {
    let tensor = checkpoint.tensor(&need.name)?;
    let (form, got) = if need.quantizable && tensor.dtype == Stored::U8 {
        quantized_form(&checkpoint.nf4(&need.name)?)
    } else {
        (dtype(tensor.dtype).map(Form::Dense), tensor.shape.to_vec())
    };
    let shape = || Error::Shape { got: got.clone(), need: need.shape.clone() };
    let checked = form.and_then(|form| if got == need.shape { Ok(form) } else { Err(shape()) });
    checked.map_err(|fault| fault.of(&need.name))
}

fn quantized_form(weight: &QuantizedTensor) -> (Result<Form, Error>, Vec<usize>) {
    let nested = match &weight.absmax {
        Scales::Single(_) => None,
        Scales::Double { block_size, .. } => Some(*block_size),
    };
    let dtype = weight.dtype.into();
    (Ok(Form::Nf4 { dtype, block_size: weight.block_size, nested }), weight.shape.clone())
}

/// A stored type that is read.
fn dtype(stored: Stored) -> Result<Dtype, Error> {
    match stored {
        Stored::F32 => Ok(Dtype::F32),
        Stored::F16 => Ok(Dtype::F16),
        Stored::BF16 => Ok(Dtype::Bf16),
        other => Err(Error::Dtype { got: other.to_string(), need: "F32, F16 or BF16" }),
    }
}

/// A stored tensor as numbers.
pub(crate) fn dense<R: Real>(tensor: nf4::Tensor) -> Result<Array<R>, Error> {
    let (bytes, dtype) = (tensor.bytes, dtype(tensor.dtype)?);
    let halves =
        |value: fn([u8; 2]) -> f32| bytes.as_chunks().0.iter().map(move |two| f64::from(value(*two)));
    let numbers: Box<dyn Iterator<Item = f64>> = match dtype {
        Dtype::F16 => Box::new(halves(|two| f16::from_le_bytes(two).to_f32())),
        Dtype::Bf16 => Box::new(halves(|two| bf16::from_le_bytes(two).to_f32())),
        _ => Box::new(bytes.as_chunks().0.iter().map(|four| f64::from(f32::from_le_bytes(*four)))),
    };
    Ok(Array::floats(dtype, tensor.shape, numbers))
}

/// The parts of a quantised weight, under the names of the graph's inputs.
pub fn parts<R: Real, B: AsRef<[u8]>>(name: &str, weight: &nf4::Quantized<B>) -> Values<R> {
    let bytes = |bytes: &[u8]| Array::bytes(&[bytes.len()], bytes.to_vec());
    let floats =
        |floats: &[f32]| Array::floats(Dtype::F32, &[floats.len()], floats.iter().copied().map(f64::from));
    let mut parts = vec![("", bytes(weight.packed.as_ref())), (".quant_map", floats(&weight.table))];
    match &weight.absmax {
        Scales::Single(scales) => parts.push((".absmax", floats(scales))),
        Scales::Double { codes, table, scales, offset, .. } => parts.extend([
            (".absmax", bytes(codes.as_ref())),
            (".nested_quant_map", floats(table.as_slice())),
            (".nested_absmax", floats(scales)),
            (".nested_offset", Array::scalar(f64::from(*offset))),
        ]),
    }
    parts.into_iter().map(|(part, value)| (format!("{name}{part}"), value)).collect()
}
