//! The same step in candle, operation by operation, differentiated by it.

use std::collections::BTreeMap;

use candle_core::{D, DType, Device, Tensor, Var};
use candle_nn::{loss, ops};
use reference::graph::interpret::Values;
use reference::llama::rope;

use crate::drawn::Drawn;
use crate::{Outcome, Result};

/// The model in candle's tensors.
pub struct Step {
    weights: BTreeMap<String, Tensor>,
    adapter: BTreeMap<String, Var>,
    cos: Tensor,
    sin: Tensor,
    mask: Tensor,
    ids: Tensor,
    labels: Tensor,
    sizes: [usize; 4], // layers, heads, key heads, head dimension
    eps: f64,
    scale: f64,
}

type Tried<T> = candle_core::Result<T>;

impl Step {
    pub fn new(drawn: &Drawn) -> Result<Self> {
        let (config, length, device) = (&drawn.config, drawn.tokens.len(), Device::Cpu);
        let (mut weights, mut adapter) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in &drawn.dense {
            let tensor = Tensor::from_slice(value.as_floats(), value.shape.as_slice(), &device)?;
            if drawn.adapter.contains_key(name) {
                adapter.insert(name.clone(), Var::from_tensor(&tensor)?);
            } else {
                weights.insert(name.clone(), tensor);
            }
        }
        let tables: Values<f32> = rope::values(config, length);
        let table = |name: &str| {
            let table = &tables.iter().find(|(one, _)| one.contains(name)).ok_or("no such table")?.1;
            Ok::<_, Box<dyn std::error::Error>>(Tensor::from_slice(
                table.as_floats(),
                (length, config.head_dim / 2),
                &device,
            )?)
        };
        let mask =
            (0..length * length).map(|i| if i % length > i / length { f32::NEG_INFINITY } else { 0.0 });
        let ids: Vec<u32> = drawn.tokens.iter().map(|id| *id as u32).collect();
        Ok(Self {
            weights,
            adapter,
            cos: table("cos")?,
            sin: table("sin")?,
            mask: Tensor::from_iter(mask, &device)?.reshape((length, length))?,
            ids: Tensor::from_slice(&ids, length, &device)?,
            labels: Tensor::from_slice(&ids[1..], length - 1, &device)?,
            sizes: [config.layers, config.heads, config.key_heads, config.head_dim],
            eps: config.norm_eps,
            scale: drawn.scale,
        })
    }

    /// The loss, and the gradient of each half of an adapter's pair.
    pub fn run(&self) -> Result<Outcome> {
        let loss = self.loss()?;
        let gradients = loss.backward()?;
        let mut found = BTreeMap::new();
        for (name, var) in &self.adapter {
            let gradient = gradients.get(var).ok_or_else(|| format!("{name} has no gradient"))?;
            found.insert(name.clone(), gradient.flatten_all()?.to_vec1()?);
        }
        Ok((loss.to_dtype(DType::F32)?.to_scalar()?, found))
    }

    fn loss(&self) -> Tried<Tensor> {
        let mut x = self.weights["model.embed_tokens.weight"].index_select(&self.ids, 0)?;
        for layer in 0..self.sizes[0] {
            x = self.layer(&x, &format!("model.layers.{layer}"))?;
        }
        let x = self.norm(&x, "model.norm")?;
        let logits = x.matmul(&self.weights["lm_head.weight"].t()?)?;
        loss::cross_entropy(&logits.narrow(0, 0, logits.dim(0)? - 1)?, &self.labels)
    }

    fn layer(&self, x: &Tensor, name: &str) -> Tried<Tensor> {
        let y = self.norm(x, &format!("{name}.input_layernorm"))?;
        let x = (x + self.attention(&y, &format!("{name}.self_attn"))?)?;
        let y = self.norm(&x, &format!("{name}.post_attention_layernorm"))?;
        let gate = ops::silu(&self.linear(&y, &format!("{name}.mlp.gate_proj"))?)?;
        let up = self.linear(&y, &format!("{name}.mlp.up_proj"))?;
        x + self.linear(&(gate * up)?, &format!("{name}.mlp.down_proj"))?
    }

    fn attention(&self, x: &Tensor, name: &str) -> Tried<Tensor> {
        let [_, heads, key_heads, depth] = self.sizes;
        let length = x.dim(0)?;
        let project = |part: &str, heads: usize| {
            let y = self.linear(x, &format!("{name}.{part}"))?;
            y.reshape((length, heads, depth))?.transpose(0, 1)?.contiguous()
        };
        let q = self.rotate(&project("q_proj", heads)?)?;
        let k = repeat(&self.rotate(&project("k_proj", key_heads)?)?, heads / key_heads)?;
        let v = repeat(&project("v_proj", key_heads)?, heads / key_heads)?;
        let scores = (q.matmul(&k.transpose(1, 2)?)? * (depth as f64).powf(-0.5))?;
        let p = ops::softmax(&scores.broadcast_add(&self.mask)?, D::Minus1)?;
        let output = p.matmul(&v)?.transpose(0, 1)?.reshape((length, heads * depth))?;
        self.linear(&output, &format!("{name}.o_proj"))
    }

    /// W x + scale B A x
    fn linear(&self, x: &Tensor, name: &str) -> Tried<Tensor> {
        let half = |which: &str| {
            let key = format!("base_model.model.{name}.lora_{which}.weight");
            self.adapter[&key].as_tensor().t()
        };
        let base = x.matmul(&self.weights[&format!("{name}.weight")].t()?)?;
        base + (x.matmul(&half("A")?)?.matmul(&half("B")?)? * self.scale)?
    }

    fn norm(&self, x: &Tensor, name: &str) -> Tried<Tensor> {
        let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
        let y = x.broadcast_div(&(mean + self.eps)?.sqrt()?)?;
        y.broadcast_mul(&self.weights[&format!("{name}.weight")])
    }

    /// Rotary positions over (heads, T, depth), the two halves of a row being the pairs.
    fn rotate(&self, x: &Tensor) -> Tried<Tensor> {
        let half = x.dim(2)? / 2;
        let (a, b) = (x.narrow(2, 0, half)?, x.narrow(2, half, half)?);
        let first = (a.broadcast_mul(&self.cos)? - b.broadcast_mul(&self.sin)?)?;
        let second = (b.broadcast_mul(&self.cos)? + a.broadcast_mul(&self.sin)?)?;
        Tensor::cat(&[first, second], 2)
    }
}

/// Each key head for the query heads that it serves.
fn repeat(x: &Tensor, times: usize) -> Tried<Tensor> {
    let (heads, length, depth) = x.dims3()?;
    x.unsqueeze(1)?.broadcast_as((heads, times, length, depth))?.reshape((heads * times, length, depth))
}
