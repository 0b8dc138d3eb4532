//! Training on a device.
//!
//! [`Engine`] is the one loop: micro-batches of a model with an adapter, and the update at their end; the trainer runs
//! it, and the grader measures it. [`Trainer`] runs a step that is one graph, forward, backward and optimiser at once,
//! as a reader's own compiler recorded it.
//!
//! Weights, adapter and the optimiser's state are uploaded once and stay on the device; what a step updates, it updates
//! in place. A batch is what changes from step to step: tokens, labels, and the numbers of the schedule.

use std::collections::BTreeMap;
use std::fmt;

use compiler::session::{self, DeviceTensor, Program, Session, Settings};
use kernels::{Callee, Device};
use reference::graph::interpret::Values;
use reference::graph::{self, Array, Graph};

use crate::loss::run;
use crate::weights;
use compiler::Compile;

pub mod chunked;
mod forecast;
mod microbatch;
mod replica;
pub mod scale;
mod scored;
mod tower;

pub use forecast::{Forecast, Forecaster};
pub use microbatch::{Evaluated, ImageRows, Logged, Microbatch};
pub use replica::{Activations, Engine, Machine, NotFinite};
pub use scale::LossScale;
pub use scored::{Scored, Whose};
pub use tower::Tower;

/// Why a step was not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A graph does not compile or run.
    Session(session::Error),
    /// The chunked loss.
    Loss(run::Error),
    /// There is no such graph.
    Graph(graph::Error),
    /// Weights are not on the device.
    Weights(weights::Error),
    /// More tokens than there is room for, or none.
    Room {
        /// Tokens that were given.
        got: usize,
        /// Tokens that there is room for.
        room: usize,
    },
    /// The batch lacks something.
    Batch {
        /// What is missing.
        name: &'static str,
    },
}

/// A model on a device, step by step.
pub struct Trainer<'a> {
    session: Session<'a>,
    step: Program,
}

impl<'a> Trainer<'a> {
    /// One whose step is a graph, its loss among it. `start` is everything that does not change with the batch.
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Session(error) => error.fmt(f),
            Error::Loss(error) => error.fmt(f),
            Error::Graph(error) => error.fmt(f),
            Error::Weights(error) => error.fmt(f),
            Error::Room { got, room } => write!(f, "expected 1 to {room} tokens, found {got}"),
            Error::Batch { name } => write!(f, "the batch has no `{name}`"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Session(error) => Some(error),
            Error::Loss(error) => Some(error),
            Error::Graph(error) => Some(error),
            Error::Weights(error) => Some(error),
            Error::Batch { .. } | Error::Room { .. } => None,
        }
    }
}
