//! A micro-batch whose loss is chunked (challenge E): hidden states, loss and gradient are computed once each.
//!
//! ```text
//! forward    ids, ..              -> hidden, what the backward part reads of the layers
//! loss       hidden, labels       -> what is logged, hidden.grad; a chunk of the logits at a time
//! backward   hidden.grad, saved   -> the sums of gradients grow in place
//! ```
//!
//! Forward and backward are one graph that is [split](compiler::rewrite::split) at the output layer. A session would
//! pad a batch to its buckets and cut what comes out; what is saved is not cut, so the batch is filled up to its
//! buckets here, with tokens that count for nothing. Rows whose label is ignored have no logits at all.
//!
//! Where the output layer is trained, too, the loss also gives the gradient of its weight:
//!
//! ```text
//! weight     what is trained      -> weight, in the type that the model computes in
//! update     weight.grad          -> the sums of gradients grow in place
//! ```

use std::collections::BTreeMap;

use compiler::rewrite::remat::RematPolicy;
use compiler::rewrite::split::{Halves, split};
use compiler::session::{Counters, DeviceTensor, Io, Program, Session, Settings};
use kernels::{Buffer, Device};
use reference::graph::{Graph, Symbol, Type};
use reference::llama::{Spec, Storage, train};

use crate::step::chunks::{ChunkLoss, Computed, InChunks};
use crate::step::{Activations, Error, Logged, Machine, Microbatch, device_error};

/// The parts of a micro-batch.
pub(super) struct States<'a> {
    forward: Program,
    backward: Program,
    saved: Vec<(String, Type)>,
    lent: BTreeMap<String, DeviceTensor>, // what is saved, for the sizes of the last micro-batch
    loss: ChunkLoss<'a>,
    head: Option<String>, // the name that the graphs know its weight by
    trained: Option<TrainedHead>,
}

/// An output layer that is trained.
struct TrainedHead {
    weight: Program,
    update: Program,
}

impl TrainedHead {
    fn new(session: &mut Session<'_>, spec: &Spec) -> Result<Self, Error> {
        let mut load = |graph: Result<Graph, reference::graph::Error>| {
            session.load(&graph.map_err(Error::Graph)?).map_err(Error::Session)
        };
        Ok(Self { weight: load(spec.output_layer())?, update: load(train::accumulate_from_weight(spec))? })
    }

    /// The weight as it is now, or as the inputs have it.
    fn weight(
        &self,
        session: &mut Session<'_>,
        inputs: &BTreeMap<&str, &DeviceTensor>,
    ) -> Result<DeviceTensor, Error> {
        let io = Io { inputs: inputs.clone(), ..Io::default() };
        let weight = session.run(self.weight, io).and_then(|outputs| outputs.tensor("weight"));
        weight.map_err(Error::Session)
    }

    /// Adds a gradient of its weight to the step.
    fn add(&self, session: &mut Session<'_>, gradient: &DeviceTensor) -> Result<(), Error> {
        let io = Io { inputs: BTreeMap::from([("weight.grad", gradient)]), ..Io::default() };
        session.run(self.update, io).map(|_| ()).map_err(Error::Session)
    }
}

impl<'a> States<'a> {
    /// `graph` is that of [`accumulate_from_states`](reference::llama::train::accumulate_from_states). The session
    /// keeps the model's weights; that of the output layer is taken from it.
    pub fn new(
        session: &mut Session<'a>,
        on: Machine<'a>,
        spec: &Spec,
        graph: &Graph,
        loss: &InChunks<'a>,
        activations: Activations,
    ) -> Result<Self, Error> {
        let Halves { forward, backward, saved } = halves(spec, graph, activations)?;
        let [forward, backward] =
            [forward, backward].map(|graph| session.load(&graph).map_err(Error::Session));
        let trained = spec.has_trained_head().then(|| TrainedHead::new(session, spec)).transpose()?;
        let (weight, head) = match &trained {
            Some(trained) => (trained.weight(session, &BTreeMap::new())?, None),
            None => output_weight(session, on, spec)?,
        };
        let mut loss = ChunkLoss::new(session.device(), on.passes, loss, spec);
        loss.set_weight(weight);
        let lent = BTreeMap::new();
        Ok(Self { forward: forward?, backward: backward?, saved, lent, loss, head, trained })
    }

    /// The counters of the session of the chunks.
    pub fn counters(&mut self) -> &Counters {
        self.loss.counters()
    }

    /// The weight of the output layer by the name that the session's graphs know it by, if it is as they expect it.
    pub fn head(&self) -> Option<(&str, &DeviceTensor)> {
        self.head.as_deref().zip(self.loss.weight())
    }

    /// A model whose graphs read the output layer as it is here, and its weight by the name that they know it by.
    pub fn own_head(&self, spec: &Spec) -> (Spec, &'static str, &DeviceTensor) {
        let own = if self.head.is_some() { spec.clone() } else { with_own_head(spec) };
        let name = head_name(&own);
        (own, name, self.loss.weight().expect("no loss is computed"))
    }

    /// The batch with padding up to the sizes that are compiled.
    pub fn rounded(&self, session: &Session<'_>, batch: &Microbatch) -> Result<Microbatch, Error> {
        let sizes = session.rounded(self.forward, &sizes(batch.shape)).map_err(Error::Session)?;
        Ok(batch.padded(["B", "T"].map(|symbol| sizes[symbol] as usize)))
    }

    /// Adds a micro-batch of rounded sizes to its step. `inputs` are the batch and what belongs to its length, on the
    /// device; `factor` is what the gradient of the loss is multiplied by.
    pub fn add<'b>(
        &mut self,
        session: &mut Session<'_>,
        inputs: impl Fn() -> BTreeMap<&'b str, &'b DeviceTensor>,
        batch: &Microbatch,
        items: u64,
        factor: f64,
    ) -> Result<Logged, Error> {
        let hidden = self.forward(session, inputs(), batch)?;
        let (logged, gradient) = self.loss(session, hidden, batch, items, factor)?;
        self.backward(session, inputs(), batch, &gradient)?;
        Ok(logged)
    }

    /// The hidden states of a batch; what the backward part reads of its layers is kept.
    pub(super) fn forward(
        &mut self,
        session: &mut Session<'_>,
        inputs: BTreeMap<&str, &DeviceTensor>,
        batch: &Microbatch,
    ) -> Result<DeviceTensor, Error> {
        let sizes = sizes(batch.shape);
        self.fit(session.device(), &sizes)?;
        self.refresh(session, &inputs)?;
        let mut io = Io { inputs, sizes, ..Io::default() };
        io.inputs.extend(self.head.as_deref().zip(self.loss.weight())); // not all of self
        io.donated = self.lent.iter_mut().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let hidden = session.run(self.forward, io).and_then(|outputs| outputs.tensor("hidden"));
        hidden.map_err(Error::Session)
    }

    /// Adds the gradients of the batch whose hidden states were computed last to its step.
    pub(super) fn backward(
        &mut self,
        session: &mut Session<'_>,
        inputs: BTreeMap<&str, &DeviceTensor>,
        batch: &Microbatch,
        gradient: &DeviceTensor,
    ) -> Result<(), Error> {
        let mut io = Io { inputs, sizes: sizes(batch.shape), ..Io::default() };
        io.inputs.extend(self.head());
        io.inputs.extend(self.lent.iter().map(|(name, tensor)| (name.as_str(), tensor)));
        io.inputs.insert("hidden.grad", gradient);
        session.run(self.backward, io).map(|_| ()).map_err(Error::Session)
    }

    /// The numbers logged of a batch of rounded sizes that is only read, by the program of its hidden states.
    pub fn evaluate(
        &mut self,
        session: &mut Session<'_>,
        program: Program,
        io: Io<'_>,
        batch: &Microbatch,
        items: u64,
    ) -> Result<Logged, Error> {
        self.refresh(session, &io.inputs)?;
        let mut io = io;
        io.inputs.extend(self.head());
        io.sizes = sizes(batch.shape);
        let hidden = session.run(program, io).and_then(|outputs| outputs.tensor("hidden"));
        let hidden = hidden.map_err(Error::Session)?;
        let logged = self.loss.compute(session.device(), hidden, batch, items, 1.0)?.logged;
        Ok(logged)
    }

    /// The weight of an output layer that is trained, as it is now, or as the inputs have it.
    fn refresh(
        &mut self,
        session: &mut Session<'_>,
        inputs: &BTreeMap<&str, &DeviceTensor>,
    ) -> Result<(), Error> {
        if let Some(trained) = &self.trained {
            self.loss.take_weight(); // first, so that both are never there together
            self.loss.set_weight(trained.weight(session, inputs)?);
        }
        Ok(())
    }

    /// Memory for what is saved.
    fn fit(&mut self, device: &dyn Device, sizes: &BTreeMap<Symbol, i64>) -> Result<(), Error> {
        for (name, ty) in &self.saved {
            let shape = shape(ty, sizes);
            if self.lent.get(name).is_none_or(|tensor| tensor.shape != shape) {
                self.lent.remove(name); // first, so that both are never there together
                let bytes = shape.iter().product::<usize>() * ty.dtype.bytes();
                let buffer = device.alloc("saved", bytes).map_err(device_error)?;
                self.lent.insert(name.clone(), DeviceTensor { shape, buffer });
            }
        }
        Ok(())
    }

    /// The loss of a batch, and the gradient of its hidden states in their memory; that of an output layer that is
    /// trained is added to the step.
    fn loss(
        &mut self,
        session: &mut Session<'_>,
        hidden: DeviceTensor,
        batch: &Microbatch,
        items: u64,
        factor: f64,
    ) -> Result<(Logged, DeviceTensor), Error> {
        let shape = hidden.shape.clone();
        let Computed { logged, gradients } =
            self.loss.compute(session.device(), hidden, batch, items, factor)?;
        self.add_weight(session, gradients.weight)?;
        Ok((logged, DeviceTensor { shape, buffer: gradients.hidden }))
    }

    /// Adds the gradient of an output layer that is trained to the step.
    pub(super) fn add_weight(&self, session: &mut Session<'_>, weight: Option<Buffer>) -> Result<(), Error> {
        let Some((trained, buffer)) = self.trained.as_ref().zip(weight) else { return Ok(()) };
        let shape = self.loss.weight().expect("no loss is computed").shape.clone();
        trained.add(session, &DeviceTensor { shape, buffer })
    }

    /// The loss, which reads hidden states.
    pub(super) fn loss_of_states(&mut self) -> &mut ChunkLoss<'a> {
        &mut self.loss
    }
}

/// The trained parameters: the inputs of the graph of a micro-batch, and of the output layer where its loss is in
/// chunks.
pub(in crate::engine) fn parameters(
    spec: &Spec,
    graph: &Graph,
    is_chunked: bool,
) -> Result<Vec<(String, Type)>, Error> {
    let mut all = train::trained_types(graph).map_err(Error::Graph)?;
    if is_chunked && spec.has_trained_head() {
        let head = train::accumulate_from_weight(spec).map_err(Error::Graph)?;
        let own = train::trained_types(&head).map_err(Error::Graph)?;
        let more: Vec<(String, Type)> = own.into_iter().filter(|own| !all.contains(own)).collect();
        all.extend(more);
    }
    Ok(all)
}

/// A usual number of tokens.
const USUAL: usize = 1024;

/// Both parts of a micro-batch. What is saved is chosen for rows of a usual length: all of it grows with the tokens
/// alike, so that other lengths would make the same choice.
pub(in crate::engine) fn halves(
    spec: &Spec,
    graph: &Graph,
    activations: Activations,
) -> Result<Halves, Error> {
    let mut sizes = sizes([1, USUAL.min(spec.config.positions)]);
    for symbol in graph.known().keys() {
        sizes.entry(symbol.clone()).or_insert(1); // rows of image features, which no part saves
    }
    let policy = match activations {
        Activations::Kept => RematPolicy::cheap(),
        Activations::Recomputed => RematPolicy::every_layer(graph),
    };
    split(graph, &sizes, &policy).map_err(Error::Graph)
}

pub(in crate::engine) fn sizes([rows, length]: [usize; 2]) -> BTreeMap<Symbol, i64> {
    BTreeMap::from([("B".into(), rows as i64), ("T".into(), length as i64)])
}

/// The shape of a type at given sizes.
pub(in crate::engine) fn shape(ty: &Type, sizes: &BTreeMap<Symbol, i64>) -> Vec<usize> {
    ty.shape.iter().map(|dim| dim.value(sizes).unwrap_or(0).max(0) as usize).collect()
}

/// The weight of the output layer, by its name.
pub(in crate::engine) fn head_name(spec: &Spec) -> &'static str {
    if spec.config.tied { "model.embed_tokens.weight" } else { "lm_head.weight" }
}

/// Whether the output layer is stored in the type that the model computes in.
pub(in crate::engine) fn has_head_as_computed(spec: &Spec) -> bool {
    spec.storages.get(head_name(spec)) == Some(&Storage::Dense(spec.compute))
}

/// The model with an output layer of its own, stored as it is computed with: a copy that was made is its weight.
fn with_own_head(spec: &Spec) -> Spec {
    let mut own = spec.clone();
    own.config.tied = false;
    own.storages.insert(head_name(&own).to_owned(), Storage::Dense(spec.compute));
    own
}

/// The weight of the output layer in the type that the model computes in, and the name by which the session's graphs
/// may ask for it. It is taken from the session, so that it is there once; where it is stored in another way a copy is
/// made, and the original stays only if it is the embedding, too.
fn output_weight<'a>(
    session: &mut Session<'a>,
    on: Machine<'a>,
    spec: &Spec,
) -> Result<(DeviceTensor, Option<String>), Error> {
    let mut taken = |name: &str| session.release(name).ok_or(Error::Batch { name: "output weight" });
    if has_head_as_computed(spec) {
        let name = head_name(spec);
        return Ok((taken(name)?, Some(name.to_owned())));
    }
    let graph = spec.output_layer().map_err(Error::Graph)?;
    let names: Vec<&str> = graph.inputs().map(|(name, _)| name).collect(); // one, or the parts of one in NF4
    let mut own = Session::new(on.passes, on.device, on.dequantizer, Settings::default()); // its arena goes with it
    for name in &names {
        own.keep(name, taken(name)?);
    }
    let program = own.load(&graph).map_err(Error::Session)?;
    let weight = own.run(program, Io::default()).and_then(|outputs| outputs.tensor("weight"));
    if spec.config.tied {
        for name in names {
            own.release(name).and_then(|tensor| session.keep(name, tensor));
        }
    }
    Ok((weight.map_err(Error::Session)?, None))
}
