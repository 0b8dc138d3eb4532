//! A model that is trained, on a device.
//!
//! ```text
//! kept on the device    weights, A and B, moments, sums of gradients
//! a micro-batch         ids, labels, ..  ->  what is logged; the sums grow in place
//! the end of a step     the rates  ->  the norm; A, B and moments change in place, the sums are 0
//! ```
//!
//! Both are graphs of [`reference::llama::train`], run by one [`Session`].

use std::collections::BTreeMap;

use compiler::session::{self, Counters, DeviceTensor, Program, Session, Settings};
use kernels::{Callee, Device, DeviceError};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dim, Type};
use reference::llama::train::{self, Recipe};
use reference::llama::{DROPOUT_KEY, Spec, rope};
use reference::optim::AdamW;

use super::Error;
use crate::graph::Compile;

mod evaluate;

/// Rows side by side, filled up at their ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Microbatch {
    /// Rows, and tokens of each.
    pub shape: [usize; 2],
    /// The tokens; any in padding.
    pub ids: Vec<i32>,
    /// The labels as they stand beside the tokens; -100 in padding and for the first token of a row.
    pub labels: Vec<i32>,
    /// The position of each token in its document.
    pub positions: Vec<i32>,
    /// The number of each token's document, from 1 on; 0 in padding.
    pub documents: Vec<i32>,
}

/// A model on a device, with everything that its training changes.
pub struct Engine<'a> {
    session: Session<'a>,
    accumulate: Program,
    update: Program,
    evaluation: Option<Program>, // once something was evaluated
    spec: Spec,
    optimizer: AdamW,
    /// What is trained: names and types.
    pub parameters: Vec<(String, Type)>,
    tables: BTreeMap<String, DeviceTensor>, // of the last length
}

/// What is logged of a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Logged {
    /// Its part of the step's loss.
    pub loss: f64,
    /// Tokens that count.
    pub counted: f64,
    /// Those of them that were predicted.
    pub correct: f64,
    /// The sum of the entropies of the distributions that predict them, in nats.
    pub entropy: f64,
}

impl<'a> Engine<'a> {
    /// A model of these weights with its adapter, where it was when `state` was saved: A, B and, but at the beginning, moments.
    ///
    /// # Errors
    /// If there is nothing to train, or the device lacks the memory.
    pub fn new(
        passes: &'a dyn Compile,
        device: &'a dyn Device,
        dequantizer: &'a dyn Callee,
        weights: BTreeMap<String, DeviceTensor>,
        spec: Spec,
        recipe: &Recipe,
        state: &Values<f32>,
    ) -> Result<Self, Error> {
        let settings = Settings { donate: true, ..Settings::default() };
        let mut session = Session::new(passes, device, dequantizer, settings);
        for (name, tensor) in weights {
            session.keep(&name, tensor);
        }
        let accumulate = train::accumulate_graph(&spec).map_err(Error::Graph)?;
        let parameters = train::trained_types(&accumulate).map_err(Error::Graph)?;
        let update = train::update_graph(&parameters, recipe).map_err(Error::Graph)?;
        for (name, ty) in &parameters {
            let [first, second] = train::moments(name);
            for kept in [name, &first, &second, &train::gradient(name)] {
                let value = state.get(kept).cloned().unwrap_or_else(|| zeros(ty));
                let tensor = upload(device, &value)?;
                session.keep(kept, tensor);
            }
        }
        let [accumulate, update] =
            [accumulate, update].map(|graph| session.load(&graph).map_err(Error::Session));
        Ok(Self {
            accumulate: accumulate?,
            update: update?,
            evaluation: None,
            session,
            spec,
            optimizer: recipe.optimizer,
            parameters,
            tables: BTreeMap::new(),
        })
    }

    /// Adds a micro-batch to the step; `items` are the tokens that count in all of its micro-batches, `key` is what the
    /// masks of its dropout are drawn from.
    ///
    /// # Errors
    /// What the session says.
    pub fn microbatch(&mut self, batch: &Microbatch, items: u64, key: [i32; 2]) -> Result<Logged, Error> {
        let device = self.session.device();
        let all = self.spec.config.positions; // where tokens say which rows of the tables they take
        self.fit_tables(if self.spec.rows.positions { all } else { batch.shape[1] })?;
        let integers = |values: &Vec<i32>| upload(device, &Array::integers(&batch.shape, values.clone()));
        let own = [
            ("ids", integers(&batch.ids)?),
            ("labels", integers(&batch.labels)?),
            ("positions", integers(&batch.positions)?),
            ("documents", integers(&batch.documents)?),
            (DROPOUT_KEY, upload(device, &Array::integers(&[2], key.to_vec()))?),
            ("items", upload(device, &Array::scalar(items as f64))?),
        ];
        let mut io = session::Io::from(&self.tables);
        io.inputs.extend(own.iter().map(|(name, tensor)| (*name, tensor)));
        let outputs = self.session.run(self.accumulate, io).map_err(Error::Session)?;
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

    /// Ends a step, counted from 1; the norm of its gradient before the bound.
    ///
    /// # Errors
    /// What the session says.
    pub fn update(&mut self, step: u64, rate: f64) -> Result<f64, Error> {
        let device = self.session.device();
        let rates: Values<f32> = self.optimizer.rates(step, rate);
        let rates = rates.iter().map(|(name, value)| Ok((name.clone(), upload(device, value)?)));
        let rates: BTreeMap<String, DeviceTensor> = rates.collect::<Result<_, Error>>()?;
        let outputs = self.session.run(self.update, &rates).map_err(Error::Session)?;
        let norm = outputs.array("grad_norm").map_err(Error::Session)?;
        Ok(norm.wide().first().copied().unwrap_or(f64::NAN))
    }

    /// The rotary tables of a length.
    fn fit_tables(&mut self, length: usize) -> Result<(), Error> {
        if self.tables.values().any(|table| table.shape[0] == length) {
            return Ok(());
        }
        let device = self.session.device();
        let tables: Values<f32> = rope::values(&self.spec.config, length);
        let tables = tables.into_iter().map(|(name, table)| Ok((name, upload(device, &table)?)));
        self.tables = tables.collect::<Result<_, Error>>()?;
        Ok(())
    }

    /// Everything that a run goes on from: A, B and the moments.
    ///
    /// # Errors
    /// What the session says.
    pub fn state(&self) -> Result<Values<f32>, Error> {
        let mut state = Values::new();
        for (name, ty) in &self.parameters {
            let [first, second] = train::moments(name);
            for kept in [name, &first, &second] {
                state.insert(kept.clone(), self.download(kept, ty)?);
            }
        }
        Ok(state)
    }

    /// What the session has done so far.
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

fn zeros(ty: &Type) -> Array<f32> {
    let shape: Vec<usize> = ty.shape.iter().filter_map(Dim::as_fixed).map(|size| size as usize).collect();
    Array::floats(ty.dtype, &shape, std::iter::repeat_n(0.0, shape.iter().product()))
}

fn upload(device: &dyn Device, value: &Array<f32>) -> Result<DeviceTensor, Error> {
    DeviceTensor::new(device, &value.shape, &value.to_memory()).map_err(device_error)
}

fn device_error(error: DeviceError) -> Error {
    Error::Session(session::Error::Device(error))
}
