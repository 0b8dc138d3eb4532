//! What the graph challenge is graded on: a Llama with an adapter, written as an ordinary function.
//!
//! The weights are drawn, quantised and dequantised like real ones; no file is needed. A reader's own checkpoint can
//! stand in its place.

use std::collections::BTreeMap;

use challenges::weights;
use compiler::session::DeviceTensor;
use kernels::Device;
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype, Graph, Tape};
use reference::llama::train::{self, Recipe};
use reference::llama::{Config, Llama, Rope, Rows, Scaling, Spec, Storage, parts, rope};
use reference::optim::AdamW;
use reference::{lora, nf4};

use crate::compare::tensor;
use crate::random::Random;

/// A model with its weights.
pub(crate) struct Model {
    pub spec: Spec,
    values: Values<f32>,
    stored: Option<Llama>, // a reader's own
}

/// Sizes of a drawn model.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub vocab: usize,
}

/// Small enough to be run at a hundred lengths.
pub(crate) const TINY: Sizes = Sizes { layers: 2, hidden: 32, heads: 2, vocab: 96 };

/// What is timed.
pub(crate) const TIMED: Sizes = Sizes { layers: 4, hidden: 512, heads: 8, vocab: 512 };

/// The same on a card, for which the other one's products are microseconds: as wide as a Llama of 1B.
pub(crate) const TIMED_ON_A_CARD: Sizes = Sizes { layers: 4, hidden: 2048, heads: 32, vocab: 4096 };

/// The longest sequence that a drawn model is made for.
pub(crate) const LONGEST: usize = 4096;

impl Sizes {
    /// Those of everything else follow.
    pub fn config(self) -> Config {
        let Self { layers, hidden, heads, vocab } = self;
        Config {
            vocab,
            hidden,
            intermediate: hidden * 11 / 4,
            layers,
            heads,
            key_heads: heads / 2,
            head_dim: hidden / heads,
            positions: LONGEST,
            norm_eps: 1e-5,
            rope: Rope { theta: 10_000.0, scaling: Scaling::None },
            tied: false,
            quantized: true,
            classifier: None,
            images: None,
        }
    }
}

/// The shape of Llama 3.2 1B: 1.24 billion numbers, those of its layers in NF4.
pub(crate) fn llama_1b() -> Config {
    Config {
        vocab: 128_256,
        hidden: 2048,
        intermediate: 8192,
        layers: 16,
        heads: 32,
        key_heads: 8,
        head_dim: 64,
        positions: 131_072,
        norm_eps: 1e-5,
        rope: Rope {
            theta: 500_000.0,
            scaling: Scaling::Llama3 { factor: 32.0, low: 1.0, high: 4.0, original: 8192 },
        },
        tied: true,
        quantized: true,
        classifier: None,
        images: None,
    }
}

impl Model {
    /// A drawn one.
    pub fn drawn(sizes: Sizes, seed: u64) -> Result<Self, String> {
        Self::of_config(sizes.config(), seed)
    }

    /// A drawn one of any shape.
    pub fn of_config(config: Config, seed: u64) -> Result<Self, String> {
        let hidden = config.hidden;
        let mut random = Random::named(seed, "weights");
        let (mut storages, mut values) = (BTreeMap::new(), Values::new());
        for spec in config.tensor_specs() {
            let spread =
                if spec.name.ends_with("norm.weight") { 0.0 } else { (hidden as f64).sqrt().recip() };
            let middle = if spread == 0.0 { 1.0 } else { 0.0 };
            let count: usize = spec.shape.iter().product();
            let numbers: Vec<f32> =
                (0..count).map(|_| (middle + spread * (2.0 * random.unit() - 1.0)) as f32).collect();
            if spec.quantizable {
                let weight = nf4::Quantized::double(&numbers, &spec.shape, nf4::OutputDtype::F32, 64);
                let weight = weight.map_err(|error| error.to_string())?;
                values.append(&mut parts(&spec.name, &weight));
                let form =
                    Storage::Nf4 { dtype: Dtype::F32, block_size: 64, nested: Some(nf4::NESTED_BLOCK) };
                storages.insert(spec.name, form);
            } else {
                let array = Array::floats(Dtype::F32, &spec.shape, numbers.into_iter().map(f64::from));
                values.insert(spec.name.clone(), array);
                storages.insert(spec.name, Storage::Dense(Dtype::F32));
            }
        }
        Self::adapted(
            Spec {
                config,
                storages,
                compute: Dtype::F32,
                adapter: None,
                rows: Rows::default(),
                dropout: false,
            },
            values,
            None,
            seed,
        )
    }

    /// A reader's own checkpoint.
    pub fn open(model: &str, seed: u64) -> Result<Self, String> {
        let llama = Llama::open(model).map_err(|error| error.to_string())?;
        let values = llama.values().map_err(|error| error.to_string())?;
        Self::adapted(llama.spec(), values, Some(llama), seed)
    }

    /// With an adapter that is in the middle of its training: neither half of a pair is zero. That of a classifier has
    /// its head.
    fn adapted(
        spec: Spec,
        mut values: Values<f32>,
        stored: Option<Llama>,
        seed: u64,
    ) -> Result<Self, String> {
        let rank = 8;
        let targets = lora::Targets::AllLinear;
        let mut adapter = lora::Config::new(rank, 16.0, targets);
        if spec.config.classifier.is_some() {
            adapter.modules = adapter.modules.with_head();
        }
        let whole = adapter.modules.tensors(&spec.config).map_err(|error| error.to_string())?;
        let whole = whole.into_iter().map(|tensor| (tensor.name, tensor.shape));
        let mut random = Random::named(seed, "adapter");
        let pairs = adapter.needs(&spec.config).map_err(|error| error.to_string())?;
        for (name, shape) in pairs.into_iter().chain(whole) {
            let numbers = (0..shape[0] * shape[1]).map(|_| 0.2 * random.unit() - 0.1);
            values.insert(name, Array::floats(Dtype::F32, &shape, numbers));
        }
        Ok(Self { spec: Spec { adapter: Some(adapter), ..spec }, values, stored })
    }

    /// The program: from ids and labels to the loss.
    pub fn program(&self) -> impl Fn(&Tape) + '_ {
        |tape: &Tape| self.spec.write_loss(tape)
    }

    /// How it is trained.
    pub fn recipe() -> Recipe {
        Recipe { optimizer: AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 }, max_norm: 1.0 }
    }

    /// The whole step, from the graph of its loss.
    pub fn step(loss: Graph) -> Result<Graph, String> {
        train::step_of(loss, &Self::recipe()).map_err(|error| error.to_string())
    }

    /// Values for every input of the step but the tokens: they stay from step to step.
    pub fn fixed(&self, step: &Graph) -> Values<f32> {
        let mut values = self.values.clone();
        values.append(&mut Self::recipe().optimizer.rates(3, 1e-3));
        for (name, id) in step.inputs().filter(|(name, _)| name.starts_with("optim.exp_avg")) {
            let shape: Vec<usize> =
                step.ty(id).shape.iter().filter_map(|dim| Some(dim.as_fixed()? as usize)).collect();
            let moment = if name.contains("exp_avg_sq") { 1e-6 } else { 1e-4 };
            let count = shape.iter().product();
            values.insert(name.into(), Array::floats(Dtype::F32, &shape, std::iter::repeat_n(moment, count)));
        }
        values
    }

    /// [`Self::fixed`] in a device's memory. The weights of a reader's own checkpoint go there as they are stored.
    pub fn upload_fixed(
        &self,
        device: &dyn Device,
        fixed: &Values<f32>,
    ) -> Result<BTreeMap<String, DeviceTensor>, String> {
        let mut tensors = self.upload_weights(device)?;
        let rest = fixed.iter().filter(|(name, _)| !tensors.contains_key(*name));
        let rest: Result<Vec<_>, _> = rest.map(|(name, value)| tensor(device, name, value)).collect();
        tensors.extend(rest.map_err(|error| error.to_string())?);
        Ok(tensors)
    }

    /// Every weight in a device's memory: those of a reader's own checkpoint as they are stored.
    pub fn upload_weights(&self, device: &dyn Device) -> Result<BTreeMap<String, DeviceTensor>, String> {
        if let Some(llama) = &self.stored {
            return weights::load(device, llama).map_err(|error| error.to_string());
        }
        self.weights()
            .map(|(name, value)| tensor(device, name, value).map_err(|error| error.to_string()))
            .collect()
    }

    /// The adapter, by the names of a graph's inputs.
    pub fn adapter(&self) -> Values<f32> {
        let adapter = self.values.iter().filter(|(name, _)| is_of_adapter(name));
        adapter.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The adapter with each number's neighbour, away from 0.
    pub fn adapter_one_ulp_away(&self) -> Values<f32> {
        let next = |value: &Array<f32>| {
            let numbers = value.as_floats().iter().map(|x| f64::from(f32::from_bits(x.to_bits() + 1)));
            Array::floats(value.dtype, &value.shape, numbers)
        };
        self.adapter().iter().map(|(name, value)| (name.clone(), next(value))).collect()
    }

    /// Every weight, by the names of a graph's inputs: of a quantised one its parts.
    pub fn weights(&self) -> impl Iterator<Item = (&String, &Array<f32>)> {
        self.values.iter().filter(|(name, _)| !is_of_adapter(name))
    }

    /// A weight, or a part of one, by its name.
    pub fn weight(&self, name: &str) -> Option<&Array<f32>> {
        self.values.get(name)
    }

    /// How many numbers its weights are, without the adapter.
    pub fn parameters(&self) -> usize {
        let specs = self.spec.config.tensor_specs();
        specs.iter().map(|spec| spec.shape.iter().product::<usize>()).sum()
    }

    /// [`Self::fixed`] where training begins: the optimiser has seen no gradient.
    pub fn start(&self, step: &Graph) -> Values<f32> {
        let mut values = self.fixed(step);
        for (_, value) in values.iter_mut().filter(|(name, _)| name.starts_with("optim.exp_avg")) {
            let count = value.shape.iter().product();
            *value = Array::floats(value.dtype, &value.shape, vec![0.0; count]);
        }
        values
    }

    /// Values for a batch of one sequence, drawn by a name.
    pub fn tokens(&self, length: usize, random: &mut Random) -> Values<f32> {
        let mut draw =
            || (0..length).map(|_| random.below(self.spec.config.vocab) as i32).collect::<Vec<_>>();
        let ids = draw();
        let mut labels = draw();
        if length > 4 {
            labels[length / 2] = -100;
        }
        let mut values = rope::values(&self.spec.config, length);
        values.insert("ids".into(), Array::integers(&[1, length], ids));
        values.insert("labels".into(), Array::integers(&[1, length], labels));
        values
    }
}

fn is_of_adapter(name: &str) -> bool {
    name.starts_with("base_model.")
}
