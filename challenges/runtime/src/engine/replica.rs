//! A model that is trained, on a device.
//!
//! ```text
//! kept on the device    weights, A and B, moments, sums of gradients
//! a micro-batch         ids, labels, ..  ->  what is logged; the sums grow in place
//! the end of a step     the rates  ->  the norm; A, B and moments change in place, the sums are 0
//! ```
//!
//! Both are graphs of [`reference::llama::train`], run by one [`Session`]. Where the loss is [chunked](super::chunked),
//! a micro-batch is three programs, and no more than a chunk of the logits is there at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use compiler::compile::{Level, Options};
use compiler::session::{Counters, DeviceTensor, Io, Program, Session, Settings};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dim, Type};
use reference::llama::Spec;
use reference::llama::train::{self, Recipe};

use crate::step::chunks::InChunks;
use crate::step::{
    Activations, Error, Logged, LossScale, Machine, Microbatch, Updates, device_error, put, upload,
};
use chunked::States;

pub(super) mod chunked;
mod evaluate;
mod locate;
mod scored;

pub use locate::NotFinite;

/// A model on a device, with everything that its training changes.
pub struct Replica<'a> {
    session: Session<'a>,
    accumulate: Accumulate<'a>,
    update: Program,
    evaluation: Option<Program>, // once something was evaluated
    spec: Spec,
    updates: Updates,
    /// The trained parameters: names and types.
    pub parameters: Vec<(String, Type)>,
    tables: BTreeMap<String, DeviceTensor>,    // of the last length
    batch: BTreeMap<String, DeviceTensor>,     // what changes from micro-batch to micro-batch
    reference: BTreeMap<String, DeviceTensor>, // what is trained, as it was at the start, if it is kept
    rates: BTreeMap<String, DeviceTensor>,     // of the last update
}

/// How a micro-batch is added to its step.
enum Accumulate<'a> {
    /// By one program, with all logits.
    Whole(Program),
    /// With a chunk of the logits at a time.
    Chunked(Box<States<'a>>),
}

impl<'a> Replica<'a> {
    /// A model of these weights with its adapter, where it was when `state` was saved: A, B and, but at the beginning,
    /// moments. Its loss is computed from all logits of a micro-batch, or in chunks.
    ///
    /// # Errors
    /// If there is nothing to train, or the device lacks the memory.
    pub fn new(
        on: Machine<'a>,
        weights: BTreeMap<String, DeviceTensor>,
        spec: Spec,
        recipe: &Recipe,
        state: &Values<f32>,
        loss: Option<&InChunks<'a>>,
        activations: Activations,
    ) -> Result<Self, Error> {
        let Machine { passes, device, dequantizer } = on;
        let mut session = Session::new(passes, device, dequantizer, settings(loss.is_some(), activations));
        let graph = match loss {
            Some(_) => train::accumulate_from_states(&spec),
            None => train::accumulate_graph(&spec),
        };
        let graph = graph.map_err(Error::Graph)?;
        let read: BTreeSet<&str> = graph.inputs().map(|(name, _)| name).collect();
        let is_head = |name: &str| loss.is_some() && name.starts_with(chunked::head_name(&spec));
        for (name, tensor) in
            weights.into_iter().filter(|(name, _)| read.contains(name.as_str()) || is_head(name))
        {
            session.keep(&name, tensor); // but those in whose place others are trained
        }
        for (name, value) in state.iter().filter(|(name, _)| name.starts_with("trainable_tokens.")) {
            session.keep(name, upload(device, value)?);
        }
        let parameters = chunked::parameters(&spec, &graph, loss.is_some())?;
        let update = train::update_graph(&parameters, recipe, spec.compute).map_err(Error::Graph)?;
        for (name, ty) in &parameters {
            let [first, second] = train::moments(name);
            for kept in [name, &first, &second, &train::gradient(name)] {
                let value = state.get(kept).cloned().unwrap_or_else(|| zeros(ty));
                let tensor = upload(device, &value)?;
                session.keep(kept, tensor);
            }
        }
        let update = session.load(&update).map_err(Error::Session)?;
        let accumulate = match loss {
            Some(loss) => Accumulate::Chunked(Box::new(States::new(
                &mut session,
                on,
                &spec,
                &graph,
                loss,
                activations,
            )?)),
            None => Accumulate::Whole(session.load(&graph).map_err(Error::Session)?),
        };
        Ok(Self {
            accumulate,
            update,
            evaluation: None,
            session,
            updates: Updates::new(recipe, spec.compute),
            spec,
            parameters,
            tables: BTreeMap::new(),
            batch: BTreeMap::new(),
            reference: BTreeMap::new(),
            rates: BTreeMap::new(),
        })
    }

    /// Tokens that a row may have.
    pub fn context(&self) -> usize {
        self.spec.config.positions
    }

    /// The factor of the loss, if the model computes in f16.
    pub fn loss_scale(&self) -> Option<LossScale> {
        self.updates.scale
    }

    /// Goes on with a factor; one of another type of computation is none.
    pub fn resume_scale(&mut self, scale: LossScale) {
        self.updates.resume(scale);
    }

    /// Adds a micro-batch to the step; `items` are the tokens that count in all of its micro-batches, `key` is what the
    /// masks of its dropout are drawn from.
    ///
    /// # Errors
    /// What the session says.
    pub fn microbatch(&mut self, batch: &Microbatch, items: u64, key: [i32; 2]) -> Result<Logged, Error> {
        let rounded = self.rounded(batch)?;
        let batch = rounded.as_ref().unwrap_or(batch);
        self.fit(batch)?;
        self.put_batch(batch, items, key)?;
        let factor = self.factor();
        let inputs =
            || self.batch.iter().chain(&self.tables).map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let accumulate = match &mut self.accumulate {
            Accumulate::Whole(program) => *program,
            Accumulate::Chunked(states) => {
                return states.add(&mut self.session, inputs, batch, items, factor);
            }
        };
        let io = Io { inputs: inputs(), ..Io::default() };
        let outputs = self.session.run(accumulate, io).map_err(Error::Session)?;
        let number = |name: &str| {
            let value = outputs.array(name).map_err(Error::Session)?;
            Ok(value.wide().first().copied().unwrap_or(f64::NAN))
        };
        Ok(Logged {
            loss: number("loss")?,
            counted: number("counted")?,
            correct: number("correct")?,
            entropy: number("entropy")?,
        })
    }

    /// Uploads the inputs that differ from micro-batch to micro-batch.
    fn put_batch(&mut self, batch: &Microbatch, items: u64, key: [i32; 2]) -> Result<(), Error> {
        let device = self.session.device();
        let values = batch.inputs(self.spec.config.hidden, items, key, self.factor());
        values.iter().try_for_each(|(name, value)| put(device, &mut self.batch, name, value))
    }

    /// The batch with the padding that a chunked loss asks for; `None` if that of the session is enough.
    fn rounded(&self, batch: &Microbatch) -> Result<Option<Microbatch>, Error> {
        match &self.accumulate {
            Accumulate::Chunked(states) => states.rounded(&self.session, batch).map(Some),
            Accumulate::Whole(_) => Ok(None),
        }
    }

    /// The factor that gradients are multiplied by.
    fn factor(&self) -> f64 {
        self.updates.factor()
    }

    /// Ends a step; `step` counts the updates that were made, this one among them. The norm of its gradient before the
    /// bound: where it is not finite, A, B and the moments are what they were, and the update is not to be counted.
    ///
    /// # Errors
    /// What the session says.
    pub fn update(&mut self, step: u64, rate: f64) -> Result<f64, Error> {
        let device = self.session.device();
        let rates = self.updates.rates(step, rate);
        rates.iter().try_for_each(|(name, value)| put(device, &mut self.rates, name, value))?;
        let outputs = self.session.run(self.update, &self.rates).map_err(Error::Session)?;
        let norm = outputs.array("grad_norm").map_err(Error::Session)?;
        let norm = norm.wide().first().copied().unwrap_or(f64::NAN);
        self.updates.after(norm);
        Ok(norm)
    }

    /// Uploads the rotary tables of a micro-batch, if they are not those of the last one.
    fn fit(&mut self, batch: &Microbatch) -> Result<(), Error> {
        let rows = self.tables.values().next().map(|table| table.shape[0]);
        let Some(tables) = batch.new_tables(&self.spec, rows) else { return Ok(()) };
        let device = self.session.device();
        let tables = tables.into_iter().map(|(name, table)| Ok((name, upload(device, &table)?)));
        self.tables = tables.collect::<Result<_, Error>>()?;
        Ok(())
    }

    /// A and B.
    ///
    /// # Errors
    /// What the session says.
    pub fn adapter(&self) -> Result<Values<f32>, Error> {
        let of = |(name, ty): &(String, Type)| Ok((name.clone(), self.download(name, ty)?));
        self.parameters.iter().map(of).collect()
    }

    /// The moments of A and B.
    ///
    /// # Errors
    /// What the session says.
    pub fn moments(&self) -> Result<Values<f32>, Error> {
        let of = |(name, ty): &(String, Type)| train::moments(name).map(|moment| (moment, ty.clone()));
        let all = self.parameters.iter().flat_map(of);
        all.map(|(name, ty)| Ok((name.clone(), self.download(&name, &ty)?))).collect()
    }

    /// The time that compilations and that runs took so far, with those of chunks.
    pub fn spent(&mut self) -> [Duration; 2] {
        let of = |counters: &Counters| [counters.compiling, counters.running];
        let [compiling, running] = of(self.session.counters());
        let [more_compiling, more_running] = match &mut self.accumulate {
            Accumulate::Chunked(states) => of(states.counters()),
            Accumulate::Whole(_) => [Duration::ZERO; 2],
        };
        [compiling + more_compiling, running + more_running]
    }

    /// The counters of the session.
    pub fn counters(&self) -> &Counters {
        self.session.counters()
    }

    fn download(&self, name: &str, ty: &Type) -> Result<Array<f32>, Error> {
        let tensor = self.session.kept(name).expect("what is trained is kept");
        let mut bytes = vec![0; tensor.buffer.bytes()];
        self.session.device().download(&tensor.buffer, &mut bytes).map_err(device_error)?;
        Ok(Array::from_memory(ty.dtype, &tensor.shape, &bytes))
    }
}

/// How a run's graphs are compiled. Where the loss is in chunks, what is computed again is chosen when the graph is
/// split, and not a second time.
pub(super) fn settings(is_chunked: bool, activations: Activations) -> Settings {
    let remat_layers = !is_chunked && activations == Activations::Recomputed;
    let options = Options { remat: !is_chunked, remat_layers, ..Level::default().options() };
    Settings { donate: true, options: Some(options), ..Settings::default() }
}

fn zeros(ty: &Type) -> Array<f32> {
    let shape: Vec<usize> = ty.shape.iter().filter_map(Dim::as_fixed).map(|size| size as usize).collect();
    Array::floats(ty.dtype, &shape, std::iter::repeat_n(0.0, shape.iter().product()))
}
