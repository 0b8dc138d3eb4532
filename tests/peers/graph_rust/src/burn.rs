//! The same step in burn, operation by operation, differentiated by it.

use std::collections::BTreeMap;

use burn::tensor::{Device, Int, Tensor, TensorData, activation};
use reference::graph::interpret::Values;
use reference::llama::rope;

use crate::drawn::Drawn;
use crate::{Outcome, Result};

/// The model in burn's tensors.
pub struct Step {
    weights: BTreeMap<String, Tensor<2>>, // a norm's as one row
    adapter: BTreeMap<String, Tensor<2>>,
    cos: Tensor<3>,
    sin: Tensor<3>,
    mask: Tensor<3>,
    ids: Tensor<1, Int>,
    labels: Tensor<2, Int>,
    sizes: [usize; 4], // layers, heads, key heads, head dimension
    eps: f64,
    scale: f64,
}

impl Step {
    pub fn new(drawn: &Drawn) -> Result<Self> {
        let (config, length) = (&drawn.config, drawn.tokens.len());
        let device = Device::flex().autodiff();
        let (mut weights, mut adapter) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in &drawn.dense {
            let shape =
                if value.shape.len() == 1 { [1, value.shape[0]] } else { [value.shape[0], value.shape[1]] };
            let data = TensorData::new(value.as_floats().to_vec(), shape);
            let tensor = Tensor::<2>::from_data(data, &device);
            if drawn.adapter.contains_key(name) {
                adapter.insert(name.clone(), tensor.require_grad());
            } else {
                weights.insert(name.clone(), tensor);
            }
        }
        let tables: Values<f32> = rope::values(config, length);
        let table = |name: &str| {
            let table = &tables.iter().find(|(one, _)| one.contains(name)).ok_or("no such table")?.1;
            let data = TensorData::new(table.as_floats().to_vec(), [1, length, config.head_dim / 2]);
            Ok::<_, Box<dyn std::error::Error>>(Tensor::<3>::from_data(data, &device))
        };
        let mask =
            (0..length * length).map(|i| if i % length > i / length { f32::NEG_INFINITY } else { 0.0 });
        let mask = TensorData::new(mask.collect::<Vec<f32>>(), [1, length, length]);
        let ids: Vec<i32> = drawn.tokens.clone();
        let labels = TensorData::new(ids[1..].to_vec(), [length - 1, 1]);
        Ok(Self {
            weights,
            adapter,
            cos: table("cos")?,
            sin: table("sin")?,
            mask: Tensor::from_data(mask, &device),
            ids: Tensor::from_data(TensorData::new(ids, [length]), &device),
            labels: Tensor::from_data(labels, &device),
            sizes: [config.layers, config.heads, config.key_heads, config.head_dim],
            eps: config.norm_eps,
            scale: drawn.scale,
        })
    }

    /// The loss, and the gradient of each half of an adapter's pair.
    pub fn run(&self) -> Result<Outcome> {
        let loss = self.loss();
        let gradients = loss.backward();
        let mut found = BTreeMap::new();
        for (name, half) in &self.adapter {
            let gradient = half.grad(&gradients).ok_or_else(|| format!("{name} has no gradient"))?;
            found.insert(name.clone(), numbers(gradient.into_data())?);
        }
        Ok((numbers(loss.into_data())?[0], found))
    }

    fn loss(&self) -> Tensor<1> {
        let mut x = self.weights["model.embed_tokens.weight"].clone().select(0, self.ids.clone());
        for layer in 0..self.sizes[0] {
            x = self.layer(x, &format!("model.layers.{layer}"));
        }
        let x = self.norm(x, "model.norm");
        let logits = x.matmul(self.weights["lm_head.weight"].clone().transpose());
        let [length, vocab] = logits.dims();
        let predicted = activation::log_softmax(logits.slice([0..length - 1, 0..vocab]), 1);
        predicted.gather(1, self.labels.clone()).mean().neg()
    }

    fn layer(&self, x: Tensor<2>, name: &str) -> Tensor<2> {
        let y = self.norm(x.clone(), &format!("{name}.input_layernorm"));
        let x = x + self.attention(y, &format!("{name}.self_attn"));
        let y = self.norm(x.clone(), &format!("{name}.post_attention_layernorm"));
        let gate = activation::silu(self.linear(y.clone(), &format!("{name}.mlp.gate_proj")));
        let up = self.linear(y, &format!("{name}.mlp.up_proj"));
        x + self.linear(gate * up, &format!("{name}.mlp.down_proj"))
    }

    fn attention(&self, x: Tensor<2>, name: &str) -> Tensor<2> {
        let [_, heads, key_heads, depth] = self.sizes;
        let length = x.dims()[0];
        let project = |part: &str, heads: usize| {
            let y = self.linear(x.clone(), &format!("{name}.{part}"));
            y.reshape([length, heads, depth]).swap_dims(0, 1)
        };
        let q = self.rotate(project("q_proj", heads));
        let k = repeat(self.rotate(project("k_proj", key_heads)), heads / key_heads);
        let v = repeat(project("v_proj", key_heads), heads / key_heads);
        let scores = q.matmul(k.swap_dims(1, 2)).mul_scalar((depth as f64).powf(-0.5));
        let p = activation::softmax(scores + self.mask.clone(), 2);
        let output = p.matmul(v).swap_dims(0, 1).reshape([length, heads * depth]);
        self.linear(output, &format!("{name}.o_proj"))
    }

    /// W x + scale B A x
    fn linear(&self, x: Tensor<2>, name: &str) -> Tensor<2> {
        let half = |which: &str| {
            self.adapter[&format!("base_model.model.{name}.lora_{which}.weight")].clone().transpose()
        };
        let base = x.clone().matmul(self.weights[&format!("{name}.weight")].clone().transpose());
        base + x.matmul(half("A")).matmul(half("B")).mul_scalar(self.scale)
    }

    fn norm(&self, x: Tensor<2>, name: &str) -> Tensor<2> {
        let root = x.clone().square().mean_dim(1).add_scalar(self.eps).sqrt();
        x / root * self.weights[&format!("{name}.weight")].clone()
    }

    /// Rotary positions over (heads, T, depth), the two halves of a row being the pairs.
    fn rotate(&self, x: Tensor<3>) -> Tensor<3> {
        let [heads, length, depth] = x.dims();
        let half = |from: usize| x.clone().slice([0..heads, 0..length, from..from + depth / 2]);
        let (a, b) = (half(0), half(depth / 2));
        let (cos, sin) = (self.cos.clone(), self.sin.clone());
        let first = a.clone() * cos.clone() - b.clone() * sin.clone();
        Tensor::cat(vec![first, b * cos + a * sin], 2)
    }
}

/// Each key head for the query heads that it serves.
fn repeat(x: Tensor<3>, times: usize) -> Tensor<3> {
    let [heads, length, depth] = x.dims();
    let apart = x.reshape([heads, 1, length, depth]).repeat_dim(1, times);
    apart.reshape([heads * times, length, depth])
}

fn numbers(data: TensorData) -> Result<Vec<f32>> {
    data.try_to_vec::<f32>().map_err(|error| format!("{error:?}").into())
}
