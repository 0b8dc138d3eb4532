//! The bytes that training takes of a device, before anything runs.
//!
//! All graphs of a step are compiled for the sizes in question, which gives the arena to the byte; everything else are
//! inputs whose sizes do not depend on the batch, and, where the loss is chunked, what lies between the graphs. Weights
//! are counted as they are stored, and are not needed: the model's sizes are enough.

use std::collections::BTreeMap;

use compiler::compile;
use compiler::rewrite::split::Halves;
use compiler::session::{self, Session};
use kernels::{Device, DeviceError};
use reference::graph::{Dim, Dtype, Graph, Symbol, Type};
use reference::issues::classify::Problem;
use reference::llama::Spec;
use reference::llama::train::{self, Recipe};

use super::replica::{self, chunked};
use crate::loss::run::Size;
use crate::step::chunks::InChunks;
use crate::step::{Activations, Error, Machine};

mod evaluate;

/// Bytes by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// The weights, as they are stored.
    pub weights: usize,
    /// The trained parameters: A, B, their gradients and their moments.
    pub trained: usize,
    /// The rotary tables and the batch.
    pub inputs: usize,
    /// Everything between, in one arena.
    pub arena: usize,
    /// The tensors that a chunked loss keeps of the forward pass for the backward pass.
    pub saved: usize,
    /// The memory of a chunked loss: the hidden states, a chunk of the logits, and the weight of the output layer,
    /// where that is not counted with the weights.
    pub loss: usize,
    /// The device's scratch memory for its executables.
    pub scratch: usize,
}

/// Forecasts for one model.
pub struct Forecaster<'a> {
    session: Session<'a>,
    device: &'a dyn Device,
    spec: Spec,
    accumulate: Graph,
    programs: Vec<Graph>,
    saved: Vec<(String, Type)>,
    chunk: Option<usize>,
}

impl Forecast {
    /// All of them.
    pub fn total(&self) -> usize {
        let Self { weights, trained, inputs, arena, saved, loss, scratch } = self;
        weights + trained + inputs + arena + saved + loss + scratch
    }
}

impl<'a> Forecaster<'a> {
    /// Forecasts for a model on a kind of device, whose loss is computed from all logits or in chunks.
    ///
    /// # Errors
    /// If there is nothing to train.
    pub fn new(
        on: Machine<'a>,
        spec: Spec,
        recipe: &Recipe,
        loss: Option<&InChunks<'_>>,
        activations: Activations,
    ) -> Result<Self, Error> {
        let accumulate = match loss {
            Some(_) => train::accumulate_from_states(&spec),
            None => train::accumulate_graph(&spec),
        };
        let accumulate = accumulate.map_err(Error::Graph)?;
        let parameters = chunked::parameters(&spec, &accumulate, loss.is_some())?;
        let update = train::update_graph(&parameters, recipe, spec.compute).map_err(Error::Graph)?;
        let (mut programs, saved) = match loss {
            Some(_) => {
                let Halves { forward, backward, saved } = chunked::halves(&spec, &accumulate, activations)?;
                (vec![forward, backward], saved)
            }
            None => (vec![accumulate.clone()], Vec::new()),
        };
        programs.push(update);
        if loss.is_some() && spec.has_trained_head() {
            programs.push(spec.output_layer().map_err(Error::Graph)?);
            programs.push(train::accumulate_from_weight(&spec).map_err(Error::Graph)?);
        }
        let chunk = loss.map(|loss| match loss.size {
            Size::Bytes(bytes) => bytes,
            Size::Rows(rows) => rows * spec.config.vocab * Dtype::F32.bytes(),
        });
        let Machine { passes, device, dequantizer } = on;
        let session =
            Session::new(passes, device, dequantizer, replica::settings(loss.is_some(), activations));
        Ok(Self { session, device, spec, accumulate, programs, saved, chunk })
    }

    /// The bytes for micro-batches of so many rows of so many tokens, rounded up to what is compiled for them.
    ///
    /// # Errors
    /// What the session says: a size beyond what the model is made for.
    pub fn at(&mut self, rows: usize, length: usize) -> Result<Forecast, Error> {
        let sizes = chunked::sizes([rows, length]);
        let mut arena = 0;
        for graph in &self.programs {
            let program = self.session.load(graph).map_err(Error::Session)?;
            let own: BTreeMap<Symbol, i64> = sizes
                .iter()
                .filter(|(symbol, _)| graph.known().contains_key(*symbol))
                .map(|(symbol, size)| (symbol.clone(), *size))
                .collect();
            self.session.memory_profile(program, &own).map_err(Error::Session)?;
            let needed = self.session.all_compiled(program).map(|compiled| compiled.arena.bytes).max();
            arena = arena.max(needed.unwrap_or(0));
        }
        let trained = chunked::parameters(&self.spec, &self.accumulate, self.chunk.is_some())?;
        let trained: usize = trained.iter().map(|(_, ty)| fixed_bytes(ty).unwrap_or(0)).sum();
        let inputs = self
            .accumulate
            .inputs()
            .filter(|(name, _)| !name.starts_with("base_model.") && !name.starts_with("grad."));
        let weights: usize = inputs.filter_map(|(_, id)| fixed_bytes(self.accumulate.ty(id))).sum();
        let config = &self.spec.config;
        let hidden = config.hidden * self.spec.compute.bytes();
        let table = if self.spec.rows.positions { config.positions } else { length };
        Ok(Forecast {
            weights,
            trained: 4 * trained, // with both moments and the gradient
            inputs: 2 * table * (config.head_dim / 2) * 4 + (4 + self.targets()) * rows * length * 4,
            arena,
            saved: self.saved.iter().map(|(_, ty)| bytes_at(ty, &sizes)).sum(),
            loss: self.chunk.map_or(0, |chunk| chunk + rows * length * hidden + self.head_bytes()),
            scratch: self.device.counts().scratch_bytes as usize,
        })
    }

    /// The numbers that a classifier's token is held against.
    fn targets(&self) -> usize {
        let classifier = self.spec.config.classifier.as_ref();
        let of_numbers = classifier.filter(|classifier| classifier.problem() != Problem::SingleLabel);
        of_numbers.map_or(0, |classifier| classifier.labels.len())
    }

    /// The weight of a chunked loss, where it is not among the inputs of the other graphs.
    fn head_bytes(&self) -> usize {
        let Spec { config, compute, .. } = &self.spec;
        let copy = config.vocab * config.hidden * compute.bytes();
        if self.spec.has_trained_head() {
            return copy + config.vocab * config.hidden * Dtype::F32.bytes(); // and its gradient
        }
        if config.tied && chunked::has_head_as_computed(&self.spec) { 0 } else { copy }
    }

    /// The largest of the lengths that are compiled for whose forecast is at most `bytes`; `None` if none is. A length
    /// at which some step of a plan would be larger than any device runs is too long, whatever the bytes.
    ///
    /// # Errors
    /// As [`Self::at`].
    pub fn longest(&mut self, rows: usize, bytes: usize) -> Result<Option<(usize, Forecast)>, Error> {
        let program = self.session.load(&self.programs[0]).map_err(Error::Session)?;
        let lengths: Vec<usize> =
            self.session.buckets(program, "T").iter().map(|length| *length as usize).collect();
        let (mut from, mut to, mut best) = (0, lengths.len(), None);
        while from < to {
            let middle = usize::midpoint(from, to);
            let forecast = match self.at(rows, lengths[middle]) {
                Err(error) if is_refused_step(&error) => None,
                forecast => Some(forecast?).filter(|forecast| forecast.total() <= bytes),
            };
            match forecast {
                Some(forecast) => (from, best) = (middle + 1, Some((lengths[middle], forecast))),
                None => to = middle,
            }
        }
        Ok(best)
    }
}

/// Whether a plan has a step that cannot run at its sizes.
fn is_refused_step(error: &Error) -> bool {
    let Error::Session(
        session::Error::Device(error) | session::Error::Compile(compile::Error::Device(error)),
    ) = error
    else {
        return false;
    };
    matches!(error, DeviceError::Step { .. })
}

/// The bytes of a tensor at given sizes.
fn bytes_at(ty: &Type, sizes: &BTreeMap<Symbol, i64>) -> usize {
    chunked::shape(ty, sizes).iter().product::<usize>() * ty.dtype.bytes()
}

/// The bytes of a tensor of fixed sizes; `None` of one that depends on the batch.
fn fixed_bytes(ty: &Type) -> Option<usize> {
    let sizes = ty.shape.iter().map(Dim::as_fixed).collect::<Option<Vec<i64>>>()?;
    Some(sizes.iter().product::<i64>() as usize * ty.dtype.bytes())
}
