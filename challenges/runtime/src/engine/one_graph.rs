//! A step that is one graph, forward, backward and optimiser at once, as a reader's own compiler recorded it.

use std::collections::BTreeMap;

use compiler::Compile;
use compiler::session::{self, DeviceTensor, Program, Session, Settings};
use kernels::{Callee, Device};
use reference::graph::interpret::Values;
use reference::graph::{Array, Graph};

use crate::step::Error;

/// A model on a device, step by step.
pub struct Trainer<'a> {
    session: Session<'a>,
    step: Program,
}

impl<'a> Trainer<'a> {
    /// A model whose step is one graph, with its loss. `start` has all inputs that do not change with the batch.
    ///
    /// # Errors
    /// If the graph cannot be loaded, or the device lacks the memory.
    pub fn new(
        passes: &'a dyn Compile,
        device: &'a dyn Device,
        dequantizer: &'a dyn Callee,
        settings: Settings,
        step: &Graph,
        start: &Values<f32>,
    ) -> Result<Self, Error> {
        let mut session = session(passes, device, dequantizer, settings, start)?;
        let step = session.load(step).map_err(Error::Session)?;
        Ok(Self { session, step })
    }

    /// A step; the loss before its update. `batch` is what `start` did not have.
    ///
    /// # Errors
    /// If an input is missing or does not fit, and what the session or the device says.
    pub fn step(&mut self, batch: &Values<f32>) -> Result<f64, Error> {
        let inputs = batch.iter().map(|(name, value)| Ok((name.clone(), tensor(&self.session, value)?)));
        let inputs: BTreeMap<String, DeviceTensor> = inputs.collect::<Result<_, Error>>()?;
        let outputs = self.session.run(self.step, &inputs).map_err(Error::Session)?;
        let loss = outputs.array("loss").map_err(Error::Session)?;
        Ok(loss.wide().first().copied().unwrap_or(f64::NAN))
    }

    /// Keeps tensors that are on the device already, such as [loaded weights](crate::weights::load), as if they had
    /// been in `start`.
    pub fn keep(&mut self, tensors: BTreeMap<String, DeviceTensor>) {
        for (name, tensor) in tensors {
            self.session.keep(&name, tensor);
        }
    }

    /// A tensor that steps update, as it is now; `None` if none has the name.
    pub fn kept(&self, name: &str) -> Option<&DeviceTensor> {
        self.session.kept(name)
    }

    /// The session that it runs in.
    pub fn session(&self) -> &Session<'a> {
        &self.session
    }
}

/// A session that keeps everything that does not change with the batch.
fn session<'a>(
    passes: &'a dyn Compile,
    device: &'a dyn Device,
    dequantizer: &'a dyn Callee,
    settings: Settings,
    start: &Values<f32>,
) -> Result<Session<'a>, Error> {
    let settings = Settings { donate: true, ..settings };
    let mut session = Session::new(passes, device, dequantizer, settings);
    for (name, value) in start {
        let tensor = tensor(&session, value)?;
        session.keep(name, tensor);
    }
    Ok(session)
}

fn tensor(session: &Session<'_>, value: &Array<f32>) -> Result<DeviceTensor, Error> {
    let made = DeviceTensor::new(session.device(), &value.shape, &value.to_memory());
    made.map_err(|error| Error::Session(session::Error::Device(error)))
}
