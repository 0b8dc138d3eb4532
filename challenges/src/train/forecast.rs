//! The bytes that training takes of a device, before anything runs.
//!
//! Both graphs of a step are compiled for the sizes in question, which gives the arena to the byte; everything else are
//! inputs whose sizes do not depend on the batch. Weights are counted as they are stored, and are not needed: the
//! model's sizes are enough.

use std::collections::BTreeMap;

use compiler::session::{Session, Settings};
use kernels::{Callee, Device};
use reference::graph::{Dim, Graph, Type};
use reference::llama::Spec;
use reference::llama::train::{self, Recipe};

use super::Error;
use crate::graph::Compile;

mod evaluate;

/// Bytes by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// The weights, as they are stored.
    pub weights: usize,
    /// What is trained: A, B, their gradients and their moments.
    pub trained: usize,
    /// The rotary tables and the batch.
    pub inputs: usize,
    /// Everything between, in one arena.
    pub arena: usize,
    /// What the device needs for its executables.
    pub scratch: usize,
}

/// Forecasts for one model.
pub struct Forecaster<'a> {
    session: Session<'a>,
    device: &'a dyn Device,
    spec: Spec,
    accumulate: Graph,
    update: Graph,
}

impl Forecast {
    /// All of them.
    pub fn total(&self) -> usize {
        let Self { weights, trained, inputs, arena, scratch } = self;
        weights + trained + inputs + arena + scratch
    }
}

impl<'a> Forecaster<'a> {
    /// Forecasts for a model on a kind of device.
    ///
    /// # Errors
    /// If there is nothing to train.
    pub fn new(
        passes: &'a dyn Compile,
        device: &'a dyn Device,
        dequantizer: &'a dyn Callee,
        spec: Spec,
        recipe: &Recipe,
    ) -> Result<Self, Error> {
        let settings = Settings { donate: true, ..Settings::default() };
        let accumulate = train::accumulate_graph(&spec).map_err(Error::Graph)?;
        let parameters = train::trained_types(&accumulate).map_err(Error::Graph)?;
        let update = train::update_graph(&parameters, recipe).map_err(Error::Graph)?;
        Ok(Self {
            session: Session::new(passes, device, dequantizer, settings),
            device,
            spec,
            accumulate,
            update,
        })
    }

    /// The bytes for micro-batches of so many rows of so many tokens, rounded up to what is compiled for them.
    ///
    /// # Errors
    /// What the session says: a size beyond what the model is made for.
    pub fn at(&mut self, rows: usize, length: usize) -> Result<Forecast, Error> {
        let sizes = BTreeMap::from([("B".into(), rows as i64), ("T".into(), length as i64)]);
        let mut arena = 0;
        for (graph, sizes) in [(&self.accumulate, sizes), (&self.update, BTreeMap::new())] {
            let program = self.session.load(graph).map_err(Error::Session)?;
            self.session.memory_profile(program, &sizes).map_err(Error::Session)?;
            let needed = self.session.all_compiled(program).map(|compiled| compiled.arena.bytes).max();
            arena = arena.max(needed.unwrap_or(0));
        }
        let parameters: usize = train::trained_types(&self.accumulate)
            .map_err(Error::Graph)?
            .iter()
            .map(|(_, ty)| fixed_bytes(ty).unwrap_or(0))
            .sum();
        let fixed: usize =
            self.accumulate.inputs().filter_map(|(_, id)| fixed_bytes(self.accumulate.ty(id))).sum();
        let config = &self.spec.config;
        let table = if self.spec.rows.positions { config.positions } else { length };
        Ok(Forecast {
            weights: fixed - 2 * parameters, // A, B and their gradients are among the inputs
            trained: 4 * parameters,
            inputs: 2 * table * (config.head_dim / 2) * 4 + 4 * rows * length * 4,
            arena,
            scratch: self.device.counts().scratch_bytes as usize,
        })
    }

    /// The largest of the lengths that are compiled for whose forecast is at most `bytes`; `None` if none is.
    ///
    /// # Errors
    /// As [`Self::at`].
    pub fn longest(&mut self, rows: usize, bytes: usize) -> Result<Option<(usize, Forecast)>, Error> {
        let program = self.session.load(&self.accumulate).map_err(Error::Session)?;
        let lengths: Vec<usize> =
            self.session.buckets(program, "T").iter().map(|length| *length as usize).collect();
        let (mut from, mut to, mut best) = (0, lengths.len(), None);
        while from < to {
            let middle = usize::midpoint(from, to);
            let forecast = self.at(rows, lengths[middle])?;
            if forecast.total() <= bytes {
                (from, best) = (middle + 1, Some((lengths[middle], forecast)));
            } else {
                to = middle;
            }
        }
        Ok(best)
    }
}

/// The bytes of a tensor of fixed sizes; `None` of one that depends on the batch.
fn fixed_bytes(ty: &Type) -> Option<usize> {
    let sizes = ty.shape.iter().map(Dim::as_fixed).collect::<Option<Vec<i64>>>()?;
    Some(sizes.iter().product::<i64>() as usize * ty.dtype.bytes())
}
