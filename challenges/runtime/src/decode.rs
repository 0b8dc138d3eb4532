//! A model that is given tokens bit by bit, on a device.
//!
//! ```text
//! kept on the device    weights, A and B, rotary tables, a cache of keys and values for each layer
//! a call                new tokens -> the last one's logits; the caches change in place
//! ```
//!
//! A prompt is one call and each token after it another. Both run the graph of [`Spec::decode`], compiled for the
//! number of new tokens: for 1, and for powers of two from 16 on, to which a prompt is padded.

use std::collections::BTreeMap;

use compiler::session::{self, Counters, DeviceTensor, Program, Session, Settings};
use kernels::{Callee, Device};
use reference::graph::interpret::Values;
use reference::graph::{Array, Dim, Type};
use reference::llama::{Spec, rope};

use crate::step::Error;
use compiler::Compile;

/// A model on a device, and what it has read so far.
pub struct Decoder<'a> {
    session: Session<'a>,
    program: Program,
    context: usize,
    filled: usize,
}

impl<'a> Decoder<'a> {
    /// A model that has read nothing, for at most `spec.config.positions` tokens in all: see [`Spec::with_context`].
    /// `weights` are on the device already, as from [`load`](crate::weights::load); `adapter` are A and B of the
    /// specification's adapter, if it has one.
    ///
    /// # Errors
    /// If there is no such graph, or the device lacks the memory.
    pub fn new(
        passes: &'a dyn Compile,
        device: &'a dyn Device,
        dequantizer: &'a dyn Callee,
        weights: BTreeMap<String, DeviceTensor>,
        spec: &Spec,
        adapter: &Values<f32>,
    ) -> Result<Self, Error> {
        let context = spec.config.positions;
        let buckets = BTreeMap::from([("T".into(), buckets(context))]);
        let settings = Settings { donate: true, buckets, ..Settings::default() };
        let mut session = Session::new(passes, device, dequantizer, settings);
        for (name, tensor) in weights {
            session.keep(&name, tensor);
        }
        let tables: Values<f32> = rope::values(&spec.config, context);
        let (caches, ty) = spec.caches();
        let caches = caches.into_iter().map(|name| (name, zeros(&ty)));
        for (name, value) in tables.into_iter().chain(adapter.clone()).chain(caches) {
            session.keep(&name, upload(device, &value)?);
        }
        let program = session.load(&spec.decode().map_err(Error::Graph)?).map_err(Error::Session)?;
        Ok(Self { session, program, context, filled: 0 })
    }

    /// Takes other values of its adapter; names that it does not have are left out. What was read before is forgotten.
    ///
    /// # Errors
    /// If the device lacks the memory.
    pub fn adapt(&mut self, adapter: &Values<f32>) -> Result<(), Error> {
        self.truncate(0);
        for (name, value) in adapter {
            if self.session.kept(name).is_some() {
                let tensor = upload(self.session.device(), value)?;
                self.session.keep(name, tensor);
            }
        }
        Ok(())
    }

    /// Tokens that it can read in all.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Tokens that it has read.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Forgets all tokens but the first so many.
    pub fn truncate(&mut self, tokens: usize) {
        self.filled = self.filled.min(tokens); // slots after them are hidden until they are written anew
    }

    /// Reads tokens, at least one; the logits (V) of what follows the last of them.
    ///
    /// # Errors
    /// If the tokens are none or more than there is room for, and what the session says. After an error of the session
    /// the tokens have not been read.
    pub fn read(&mut self, ids: &[i32]) -> Result<Vec<f32>, Error> {
        let room = self.context - self.filled;
        if !(1..=room).contains(&ids.len()) {
            return Err(Error::Room { got: ids.len(), room });
        }
        let device = self.session.device();
        let own = [
            ("ids", upload(device, &Array::integers(&[1, ids.len()], ids.to_vec()))?),
            ("start", upload(device, &Array::integers(&[], vec![self.filled as i32]))?),
        ];
        let mut io = session::Io::default();
        io.inputs.extend(own.iter().map(|(name, tensor)| (*name, tensor)));
        let outputs = self.session.run(self.program, io).map_err(Error::Session)?;
        let logits = outputs.array("logits").map_err(Error::Session)?;
        self.filled += ids.len();
        Ok(logits.wide().into_iter().map(|logit| logit as f32).collect())
    }

    /// What the session has done so far.
    pub fn counters(&self) -> &Counters {
        self.session.counters()
    }

    /// The steps of what is compiled so far, as text.
    pub fn plans(&self) -> Vec<String> {
        self.session.all_compiled(self.program).map(|compiled| compiled.plan().to_string()).collect()
    }
}

/// 1, powers of two from 16 on, and the context itself.
fn buckets(context: usize) -> Vec<i64> {
    let powers = std::iter::successors(Some(16), |size: &i64| size.checked_mul(2));
    let below = std::iter::once(1).chain(powers).take_while(|size| *size < context as i64);
    below.chain([context as i64]).collect()
}

fn zeros(ty: &Type) -> Array<f32> {
    let shape: Vec<usize> = ty.shape.iter().filter_map(Dim::as_fixed).map(|size| size as usize).collect();
    Array::floats(ty.dtype, &shape, std::iter::repeat_n(0.0, shape.iter().product()))
}

fn upload(device: &dyn Device, value: &Array<f32>) -> Result<DeviceTensor, Error> {
    DeviceTensor::new(device, &value.shape, &value.to_memory())
        .map_err(|error| Error::Session(session::Error::Device(error)))
}
