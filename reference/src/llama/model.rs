//! The model, as a recipe: what each part computes from what, in whichever type it is computed.
//!
//! ```text
//! x = embed(ids)
//! x = x + attention(norm(x));  x = x + mlp(norm(x))       for every layer
//! logits = head(norm(x))
//! ```
//!
//! The residual stream and the products are in the compute type; norms, the softmax of the attention and the loss
//! stay in f32, and every change of type is a node. Weights are inputs under their names in the checkpoint, each
//! declared where it is first used.
//!
//! Sources: Touvron et al., "LLaMA" (2023), section 2.2; `modeling_llama` of the `transformers` library, whose order
//! of operations this is; Hu et al., "LoRA" (2021), section 4.1.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

use super::cache::{self, Cache};
use super::classify;
use super::rows::{self, PerRow, Rows};
use super::storage::{Storage, Storages};
use super::{Config, rope};
use crate::graph::{Builder, Dim, Dtype, Error, Facts, Graph, Op, Tape, Tensor, Type};
use crate::lora::Module;
use crate::nf4::Layout;
use crate::{lora, loss};

/// What is written into a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Sizes and settings.
    pub config: Config,
    /// How every weight is stored.
    pub storages: Storages,
    /// The type of the residual stream and of the products: f32, f16 or bf16.
    pub compute: Dtype,
    /// The low-rank adapter beside the projections, if there is one.
    pub adapter: Option<lora::Config>,
    /// What is given beside the tokens of a row; by default, nothing.
    pub rows: Rows,
    /// Whether the adapter's dropout is written, for training: then a graph has the input [`DROPOUT_KEY`].
    pub dropout: bool,
}

/// The key of the dropout's masks, i32 (2): another one for each batch.
pub const DROPOUT_KEY: &str = "dropout.key";

/// A model being written onto a tape.
pub struct Model<'a> {
    spec: &'a Spec,
    tape: &'a Tape,
    shapes: BTreeMap<String, Vec<usize>>,
    inputs: RefCell<BTreeMap<String, Tensor>>, // each is declared once
    per_row: OnceCell<PerRow>,
    is_decoding: bool,
}

/// The largest batch that a graph is built for.
const LARGEST_BATCH: i64 = 1 << 16;

impl Spec {
    /// A batch of B sequences of T tokens: `ids` i32 (B, T) to `logits` (B, T, V), in the compute type; of a classifier
    /// (B, T, C), what each token would answer.
    pub fn forward(&self) -> Result<Graph, Error> {
        let builder = Builder::new("llama");
        let model = Model::new(self, builder.tape());
        builder.tape().output("logits", &model.logits(&model.tokens("ids")));
        builder.finish()
    }

    /// The same and `labels` i32 (B, T), where -100 is ignored, to `loss`: the mean over every token that follows
    /// another one of its row, or of its document. Of a classifier it is the mean over the tokens that are
    /// [answered from](super::classify).
    pub fn training_loss(&self) -> Result<Graph, Error> {
        let builder = Builder::new("llama_loss");
        self.write_loss(builder.tape());
        builder.finish()
    }

    /// A micro-batch of a step to what is logged of it: `loss`, `counted`, `correct` and `entropy`, see
    /// [`loss::Statistics`]. Beside `ids` and `labels` it has `items` f32 (), the tokens that count in all
    /// micro-batches of the step.
    pub fn microbatch(&self) -> Result<Graph, Error> {
        let builder = Builder::new("llama_microbatch");
        let _logits = self.write_microbatch(builder.tape());
        builder.finish()
    }

    /// Writes what is logged; the logits that it is made of.
    fn write_microbatch(&self, tape: &Tape) -> Tensor {
        let model = Model::new(self, tape);
        let logits = model.logits(&model.tokens("ids"));
        let items = tape.input("items", Dtype::F32, [] as [Dim; 0]);
        model.write_statistics(&logits, &items);
        logits
    }

    /// [`Self::microbatch`] as an evaluation reads it: of a classifier it also gives `logits` f32 (B, T, C).
    pub fn evaluation(&self) -> Result<Graph, Error> {
        let builder = Builder::new("llama_evaluation");
        let logits = self.write_microbatch(builder.tape());
        if self.config.classifier.is_some() {
            builder.tape().output("logits", &logits.cast(Dtype::F32));
        }
        builder.finish()
    }

    /// [`Self::microbatch`] up to `hidden`, what the output layer is given: (B * T, H), in the compute type.
    pub fn hidden_states(&self) -> Result<Graph, Error> {
        let builder = Builder::new("llama_hidden");
        let model = Model::new(self, builder.tape());
        builder.tape().output("hidden", &model.hidden(&model.tokens("ids")));
        builder.finish()
    }

    /// The output layer alone, for a loss that is computed elsewhere: `weight` (V, H), in the compute type.
    pub fn output_layer(&self) -> Result<Graph, Error> {
        let builder = Builder::new("llama_output_layer");
        let model = Model::new(self, builder.tape());
        builder.tape().output("weight", &model.output_weight());
        builder.finish()
    }

    /// The output layer alone, for a loss that is computed elsewhere and trains it: `weight` f32 (V, H), before it is
    /// rounded to the compute type.
    pub fn wide_output_layer(&self) -> Result<Graph, Error> {
        let builder = Builder::new("llama_output_layer");
        let model = Model::new(self, builder.tape());
        builder.tape().output("weight", &model.trained_output_weight().cast(Dtype::F32));
        builder.finish()
    }

    /// Whether the weight of the output layer, or some of its rows, is trained.
    pub fn has_trained_head(&self) -> bool {
        self.adapter.as_ref().is_some_and(|adapter| {
            adapter.modules.to_save.contains(&Module::LmHead)
                || adapter.modules.rows_of(Module::LmHead, self.config.tied).is_some()
        })
    }

    /// The program of [`Self::training_loss`], for whoever stands behind the tape.
    pub fn write_loss(&self, tape: &Tape) {
        let model = Model::new(self, tape);
        let logits = model.logits(&model.tokens("ids"));
        let loss = tape.within("loss", || match &self.config.classifier {
            Some(classifier) => classify::mean(&model, classifier, &logits),
            None => loss::causal(&logits, &model.labels()),
        });
        tape.output("loss", &loss);
    }
}

impl<'a> Model<'a> {
    /// Nothing is written yet.
    pub fn new(spec: &'a Spec, tape: &'a Tape) -> Self {
        let shapes = spec.config.tensor_specs().into_iter().map(|spec| (spec.name, spec.shape)).collect();
        Self { spec, tape, shapes, inputs: RefCell::default(), per_row: OnceCell::new(), is_decoding: false }
    }

    /// One whose tokens follow those in a cache: see [`Spec::decode`].
    pub(super) fn decoding(spec: &'a Spec, tape: &'a Tape) -> Self {
        Self { is_decoding: true, ..Self::new(spec, tape) }
    }

    /// Writes what the tokens have to do with a cache; `None` if they follow none.
    pub(super) fn cache(&self) -> Option<Cache> {
        self.is_decoding.then(|| Cache::write(self))
    }

    /// The tape that it is written onto.
    pub(super) fn tape(&self) -> &Tape {
        self.tape
    }

    /// What is written.
    pub fn spec(&self) -> &Spec {
        self.spec
    }

    /// The sizes B and T of a batch of token sequences; a cache is of one.
    pub fn batch(&self) -> [Dim; 2] {
        let symbol = |name: &str, largest| self.tape.symbol(name, Facts::range(1, largest));
        let length = symbol("T", self.spec.config.positions as i64);
        [if self.is_decoding { 1.into() } else { symbol("B", LARGEST_BATCH) }, length]
    }

    /// An input of token ids, i32 (B, T).
    pub fn tokens(&self, name: &str) -> Tensor {
        self.input(name, &Type::new(Dtype::I32, self.batch()))
    }

    /// The number of each token's document, i32 (B, T); below 1 is padding. See [`Rows`].
    pub fn documents(&self) -> Tensor {
        self.tokens("documents")
    }

    /// The labels, i32 (B, T): ignored where documents begin and in padding.
    pub(super) fn labels(&self) -> Tensor {
        let labels = self.tokens("labels");
        if self.spec.rows.documents { loss::within_documents(&labels, &self.documents()) } else { labels }
    }

    /// What the layers read of each row, written where it is first asked for.
    fn per_row(&self) -> &PerRow {
        self.per_row.get_or_init(|| PerRow::write(self))
    }

    /// From token ids (B, T) to logits (B, T, V).
    pub fn logits(&self, ids: &Tensor) -> Tensor {
        self.head(&self.states(ids))
    }

    /// From token ids (1, T) that follow those in a cache to the last one's logits, (V).
    pub(super) fn last_logits(&self, ids: &Tensor) -> Tensor {
        let states = self.states(ids);
        let last =
            self.per_row().cache.as_ref().map_or_else(|| states.clone(), |cache| cache.last_row(&states));
        self.head(&last).reshape([self.spec.config.vocab])
    }

    /// From token ids (B, T) to what the output layer is given, (B * T, H).
    pub fn hidden(&self, ids: &Tensor) -> Tensor {
        self.last_norm(&self.states(ids))
    }

    /// The last layer's states (B, T, H) to what the output layer is given, (B * T, H).
    pub(super) fn last_norm(&self, states: &Tensor) -> Tensor {
        let x = self.norm("model.norm", states);
        x.reshape([&x.dim(0) * &x.dim(1), x.dim(2)])
    }

    /// From token ids (B, T) to the last layer's states, (B, T, H).
    fn states(&self, ids: &Tensor) -> Tensor {
        let layers = 0..self.spec.config.layers;
        layers.fold(self.embed(ids), |x, layer| self.layer(layer, &x))
    }

    /// The rows of the embedding, (B, T, H).
    pub fn embed(&self, ids: &Tensor) -> Tensor {
        self.within("embed_tokens", || {
            let rows = self.whole(Module::EmbedTokens).gather(ids);
            let rows = self.with_trained_rows(Module::EmbedTokens, &rows, Some(ids)).cast(self.spec.compute);
            if self.spec.rows.images { self.with_images(&rows) } else { rows }
        })
    }

    /// Rows (B, T, H) with the features of images where a token stands for a part of one. See [`Rows`].
    fn with_images(&self, rows: &Tensor) -> Tensor {
        let count = self.tape.symbol("N", Facts::range(1, LARGEST_BATCH));
        let features = Type::new(Dtype::F32, [count, self.spec.config.hidden.into()]);
        let features = self.input(rows::IMAGE_FEATURES, &features);
        let slots = self.tokens(rows::IMAGE_SLOTS);
        let is_text = slots.equal(&slots.like(0.0)).reshape([slots.dim(0), slots.dim(1), 1.into()]);
        is_text.select(rows, &features.gather(&slots).cast(self.spec.compute))
    }

    /// A layer: (B, T, H) to (B, T, H).
    ///
    /// # Panics
    /// If the model has no layer of that number.
    pub fn layer(&self, layer: usize, x: &Tensor) -> Tensor {
        _ = self.per_row(); // before the layer's scope: it is no part of the layer
        self.within(&format!("layers.{layer}"), || {
            let name = format!("model.layers.{layer}");
            let x = x + &self.attention(&name, &self.norm(&format!("{name}.input_layernorm"), x));
            &x + &self.mlp(&name, &self.norm(&format!("{name}.post_attention_layernorm"), &x))
        })
    }

    /// The last norm and the output layer, or the head of a classifier: (B, T, H) to (B, T, V) or (B, T, C).
    pub fn head(&self, x: &Tensor) -> Tensor {
        let x = self.norm("model.norm", x);
        let name = if self.spec.config.classifier.is_some() { Module::Score } else { Module::LmHead }.name();
        self.within(name, || x.matmul(&self.output_weight().t()))
    }

    /// The weight of the output layer, (V, H), which may be that of the embedding, in the compute type; or of the head
    /// of a classifier, (C, H).
    fn output_weight(&self) -> Tensor {
        self.trained_output_weight().cast(self.spec.compute)
    }

    fn trained_output_weight(&self) -> Tensor {
        if self.spec.config.classifier.is_some() {
            return self.whole(Module::Score);
        }
        let weight = self.whole(Module::LmHead);
        self.with_trained_rows(Module::LmHead, &weight, None)
    }

    /// The weight of the embedding, (V, H), or of the output layer, as it is stored or as it is trained.
    fn whole(&self, module: Module) -> Tensor {
        let stored = module.stored(&self.spec.config);
        match &self.spec.adapter {
            Some(adapter) if adapter.modules.to_save.contains(&module) => {
                let shape = self.shapes[stored].iter().map(|size| Dim::from(*size));
                self.input(&module.whole(), &Type { dtype: Dtype::F32, shape: shape.collect() })
            }
            _ => self.table(stored),
        }
    }

    /// Rows (.., H) of tokens (..), or of the whole vocabulary, with those in place that are trained by themselves.
    fn with_trained_rows(&self, module: Module, rows: &Tensor, tokens: Option<&Tensor>) -> Tensor {
        let adapter = self.spec.adapter.as_ref();
        let trained = adapter.and_then(|adapter| adapter.modules.rows_of(module, self.spec.config.tied));
        let Some((holder, trained)) = trained else { return rows.clone() };
        let Config { vocab, hidden, .. } = self.spec.config;
        let slots = self.input(&holder.slots(), &Type::new(Dtype::I32, [vocab]));
        let slots = tokens.map_or_else(|| slots.clone(), |tokens| slots.gather(tokens));
        let own = self.input(&holder.rows(), &Type::new(Dtype::F32, [trained.len(), hidden]));
        let none = self.tape.constant(0.0, &Type::new(Dtype::F32, [1, hidden])); // what other tokens read
        let own = self.tape.concat(&[&own, &none], 0).gather(&slots);
        let other = slots.equal(&slots.like(trained.len() as f64));
        let other = other.reshape(slots.shape().iter().cloned().chain([1.into()]));
        other.select(&rows.cast(Dtype::F32), &own)
    }

    /// x / sqrt(mean x^2 + eps) * weight, in f32 but for the last product.
    fn norm(&self, name: &str, x: &Tensor) -> Tensor {
        self.within(part(name), || {
            let wide = x.cast(Dtype::F32);
            let last = x.ty().rank() - 1;
            let root = (&(&wide * &wide).mean(last) + self.spec.config.norm_eps).sqrt();
            let normed = (&wide / &root).cast(self.spec.compute);
            &normed * &self.weight(&format!("{name}.weight"))
        })
    }

    /// Causal attention of heads over grouped key heads, between its four projections.
    fn attention(&self, layer: &str, x: &Tensor) -> Tensor {
        let config = &self.spec.config;
        let project = |part: &str, x: &Tensor| self.project(&format!("{layer}.self_attn.{part}"), x);
        let heads = |part: &str, heads: usize| self.split(&project(part, x), heads);
        let q = self.rotate(&heads("q_proj", config.heads)); // (B, heads, T, D)
        let k = self.rotate(&heads("k_proj", config.key_heads)); // (B, key heads, T, D)
        let v = heads("v_proj", config.key_heads);
        let [k, v] = self.with_cached(layer, [k, v]);
        let (attention, extras) = self.per_row().attention(config);
        let attended = self.within("self_attn", || q.attend(attention, &k, &v, &extras));
        project("o_proj", &Self::join(&attended))
    }

    /// A layer's keys and values (B, key heads, T, D), after those in its cache, if there is one: (1, key heads, C, D).
    fn with_cached(&self, layer: &str, new: [Tensor; 2]) -> [Tensor; 2] {
        let Some(cache) = &self.per_row().cache else { return new };
        let names = cache::caches(layer);
        let all = |i: usize| cache.extend(self.tape, &names[i], &Self::join(&new[i]));
        self.within("self_attn.cache", || [0, 1].map(|i| self.split(&all(i), self.spec.config.key_heads)))
    }

    /// down(silu(gate(x)) * up(x))
    fn mlp(&self, layer: &str, x: &Tensor) -> Tensor {
        let project = |part: &str, x: &Tensor| self.project(&format!("{layer}.mlp.{part}"), x);
        let (gate, up) = (project("gate_proj", x), project("up_proj", x));
        let product = self.within("mlp", || {
            let wide = gate.cast(Dtype::F32);
            &(&wide * &wide.sigmoid()).cast(self.spec.compute) * &up
        });
        project("down_proj", &product)
    }

    /// x W^T, and, where an adapter stands beside it, scale (x A^T) B^T.
    fn project(&self, name: &str, x: &Tensor) -> Tensor {
        self.within(part(name), || {
            let y = x.matmul(&self.weight(&format!("{name}.weight")).t());
            let y = if self.spec.config.has_bias(part(name)) {
                &y + &self.weight(&format!("{name}.bias"))
            } else {
                y
            };
            match &self.spec.adapter {
                Some(adapter) if adapter.covers(name) => &y + &self.adapt(adapter, name, x),
                _ => y,
            }
        })
    }

    /// The low-rank part of a projection. A and B are f32, and used in the compute type.
    fn adapt(&self, adapter: &lora::Config, name: &str, x: &Tensor) -> Tensor {
        let weight = &self.shapes[&format!("{name}.weight")];
        let [a, b] = adapter
            .pair(name, weight[0], weight[1])
            .map(|(key, shape)| self.input(&key, &Type::new(Dtype::F32, shape)).cast(self.spec.compute));
        let x = &self.dropped(adapter, name, x);
        &x.matmul(&a.t()).matmul(&b.t()) * adapter.scale() // A (r, in), B (out, r)
    }

    /// What the low-rank part of a projection reads: its input, or in training a part of it, where the adapter asks for
    /// dropout. Each projection has a stream of masks of its own.
    fn dropped(&self, adapter: &lora::Config, name: &str, x: &Tensor) -> Tensor {
        if !self.spec.dropout || adapter.dropout == 0.0 {
            return x.clone();
        }
        let key = self.input(DROPOUT_KEY, &Type::new(Dtype::I32, [2_usize]));
        let stream =
            self.shapes.keys().position(|key| key.strip_suffix(".weight") == Some(name)).unwrap_or(0);
        x.dropout(&key, 1.0 - adapter.dropout, stream as u32)
    }

    /// (B, T, heads * D) to (B, heads, T, D)
    fn split(&self, x: &Tensor, heads: usize) -> Tensor {
        let [batch, length] = [x.dim(0), x.dim(1)];
        let apart = x.reshape([batch, length, heads.into(), self.spec.config.head_dim.into()]);
        apart.transpose(&[0, 2, 1, 3])
    }

    /// (B, heads, T, D) to (B, T, heads * D)
    fn join(x: &Tensor) -> Tensor {
        let width = &x.dim(1) * &x.dim(3);
        x.transpose(&[0, 2, 1, 3]).reshape([x.dim(0), x.dim(2), width])
    }

    /// Turns the pair (i, i + D/2) of every head by its position's angle i.
    fn rotate(&self, x: &Tensor) -> Tensor {
        self.within("self_attn.rotary", || {
            let half = self.spec.config.head_dim / 2;
            let [cos, sin] = self.angles(x.dim(2));
            let (left, right) = (x.slice(3, Dim::fixed(0), half), x.slice(3, half, 2 * half));
            let [turned_left, turned_right] =
                [&(&left * &cos) - &(&right * &sin), &(&right * &cos) + &(&left * &sin)];
            self.tape.concat(&[&turned_left, &turned_right], 3)
        })
    }

    /// Cosines and sines of the positions: (B, 1, T, D/2), or, where they are the same in every row, (T, D/2).
    fn angles(&self, length: Dim) -> [Tensor; 2] {
        let table = Type::new(Dtype::F32, [length, (self.spec.config.head_dim / 2).into()]);
        let counted = || rope::NAMES.map(|name| self.input(name, &table).cast(self.spec.compute));
        self.per_row().rotary.clone().unwrap_or_else(counted)
    }

    /// A weight in the compute type.
    fn weight(&self, name: &str) -> Tensor {
        self.table(name).cast(self.spec.compute)
    }

    /// A weight in the type that it is stored in, or was before it was quantised.
    fn table(&self, name: &str) -> Tensor {
        let shape: Vec<Dim> = self.shapes[name].iter().map(|size| Dim::from(*size)).collect();
        match self.spec.storages.get(name) {
            Some(Storage::Nf4 { dtype, block_size, nested }) => {
                self.dequantized(name, &Type { dtype: *dtype, shape }, *block_size, *nested)
            }
            Some(Storage::Dense(dtype)) => self.input(name, &Type { dtype: *dtype, shape }),
            None => self.input(name, &Type { dtype: self.spec.compute, shape }),
        }
    }

    /// A weight from its quantised parts.
    fn dequantized(&self, name: &str, ty: &Type, block_size: usize, nested: Option<usize>) -> Tensor {
        let len = ty.shape.iter().filter_map(Dim::as_fixed).product::<i64>() as usize;
        let parts = Layout { len, block_size, nested }.parts();
        let parts = parts.map(|part| {
            let shape = part.shape().iter().map(|size| Dim::from(*size));
            self.input(&part.part.of(name), &Type { dtype: part.dtype, shape: shape.collect() })
        });
        let parts: Vec<Tensor> = parts.collect();
        let parts: Vec<&Tensor> = parts.iter().collect();
        self.tape.apply(Op::Dequantize { block_size, nested }, &parts, Some(ty.clone()))
    }

    /// An input, the same one each time.
    pub(super) fn input(&self, name: &str, ty: &Type) -> Tensor {
        let declare = || self.tape.input(name, ty.dtype, &ty.shape);
        self.inputs.borrow_mut().entry(name.to_owned()).or_insert_with(declare).clone()
    }

    pub(super) fn within<T>(&self, name: &str, part: impl FnOnce() -> T) -> T {
        self.tape.within(name, part)
    }
}

/// A weight's name without the model's and its layer's: `self_attn.q_proj`.
fn part(name: &str) -> &str {
    let name = name.strip_prefix("model.").unwrap_or(name);
    match name.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
        Some((_, part)) => part,
        None => name,
    }
}
