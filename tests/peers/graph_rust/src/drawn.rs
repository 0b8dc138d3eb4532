//! The model that both compute: sizes, weights, tokens.

use std::collections::BTreeMap;

use reference::graph::Array;
use reference::graph::Dtype;
use reference::graph::interpret::Values;
use reference::llama::{Config, Rope, Rows, Scaling, Spec, Storage, parts, rope};
use reference::{lora, nf4};

use crate::Result;

/// Weights by name, and a sequence of tokens.
pub struct Drawn {
    pub config: Config,
    pub adapter: BTreeMap<String, Vec<usize>>,
    pub scale: f64,
    pub dense: Values<f32>,
    pub tokens: Vec<i32>,
    lora: lora::Config,
}

const BLOCK: usize = 64;

impl Drawn {
    pub fn new(length: usize) -> Result<Self> {
        let config = Config {
            vocab: 512,
            hidden: 512,
            intermediate: 1408,
            layers: 4,
            heads: 8,
            key_heads: 4,
            head_dim: 64,
            positions: 4096,
            norm_eps: 1e-5,
            rope: Rope { theta: 10_000.0, scaling: Scaling::None },
            tied: false,
            quantized: true,
            classifier: None,
            images: None,
        };
        let targets = lora::Targets::AllLinear;
        let lora = lora::Config::new(8, 16.0, targets);
        let mut random = random();
        let mut dense: Values<f32> = config
            .tensor_specs()
            .into_iter()
            .map(|spec| {
                let (middle, spread) =
                    if spec.name.ends_with("norm.weight") { (1.0, 0.0) } else { (0.0, 0.04) };
                let count = spec.shape.iter().product();
                let numbers = (0..count).map(|_| middle + spread * random());
                let array = Array::floats(Dtype::F32, &spec.shape, numbers);
                (spec.name, array)
            })
            .collect();
        let adapter: BTreeMap<_, _> =
            lora.needs(&config)?.into_iter().map(|(name, shape)| (name, shape.to_vec())).collect();
        for (name, shape) in &adapter {
            let numbers = (0..shape.iter().product()).map(|_| 0.1 * random());
            dense.insert(name.clone(), Array::floats(Dtype::F32, shape, numbers));
        }
        let tokens = (0..length).map(|_| ((random() + 1.0) * 256.0) as i32 % 512).collect();
        Ok(Self { scale: lora.scale(), config, adapter, dense, tokens, lora })
    }

    /// The model as graphs speak of it, and its weights: dense, or the projections in NF4.
    pub fn spec(&self, quantized: bool) -> Result<(Spec, Values<f32>)> {
        let (mut storages, mut values) = (BTreeMap::new(), self.dense.clone());
        for spec in self.config.tensor_specs() {
            let is_nf4 = quantized && spec.quantizable;
            if is_nf4 {
                let weight = values.remove(&spec.name).ok_or("a weight was not drawn")?;
                let weight = nf4::Quantized::double(weight.as_floats(), &spec.shape, nf4::OutputDtype::F32, BLOCK)?;
                values.append(&mut parts(&spec.name, &weight));
            }
            let nested = Some(nf4::NESTED_BLOCK);
            let nf4 = Storage::Nf4 { dtype: Dtype::F32, block_size: BLOCK, nested };
            storages.insert(spec.name, if is_nf4 { nf4 } else { Storage::Dense(Dtype::F32) });
        }
        let length = self.tokens.len();
        values.append(&mut rope::values(&self.config, length));
        for name in ["ids", "labels"] {
            values.insert(name.into(), Array::integers(&[1, length], self.tokens.clone()));
        }
        let (config, adapter) = (self.config.clone(), Some(self.lora.clone()));
        Ok((Spec { config, storages, compute: Dtype::F32, adapter, rows: Rows::default(), dropout: false }, values))
    }
}

/// Numbers in -1..1, the same ones every time.
fn random() -> impl FnMut() -> f64 {
    let mut state = 1_u64;
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / f64::from(1_u32 << 23) - 1.0
    }
}
