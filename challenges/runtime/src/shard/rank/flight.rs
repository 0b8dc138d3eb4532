//! Micro-batches on their way through a rank, and the memory that they use again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use compiler::session::DeviceTensor;
use kernels::{Buffer, Device};
use reference::graph::interpret::Values;
use reference::graph::{Symbol, Type};

use crate::shard::Error;
use crate::step::{Evaluated, Microbatch, Scored};

/// A micro-batch and what is kept of it, by the number of a piece.
pub(super) struct Flight {
    /// The batch, without padding.
    pub batch: Microbatch,
    /// The batch on the device.
    pub own: Vec<(&'static str, DeviceTensor)>,
    /// The rotary tables of its length.
    pub tables: Arc<BTreeMap<String, DeviceTensor>>,
    /// The sizes of the batch.
    pub sizes: BTreeMap<Symbol, i64>,
    /// The compiled sizes, which its tensors have; elements beyond `sizes` are padding.
    pub compiled: BTreeMap<Symbol, i64>,
    /// The input of each piece.
    pub xs: BTreeMap<usize, DeviceTensor>,
    /// The gradient of what comes next: of the x of the piece before which backward is.
    pub gradient: Option<DeviceTensor>,
    /// The kept tensors of each piece.
    pub kept: BTreeMap<usize, BTreeMap<String, DeviceTensor>>,
    /// The gradient of the y of each piece whose weight gradients are not computed yet.
    pub y_grads: BTreeMap<usize, DeviceTensor>,
    /// The tensors of each piece that are on the host: its x, and what is kept of it.
    pub on_host: BTreeMap<usize, Vec<HostTensor>>,
    /// The work of the head, where the loss is in chunks.
    pub loss: HeadLoss,
    /// The result, on the ranks that compute the loss.
    pub result: Evaluated,
    /// The result of an objective, on the ranks that compute the loss.
    pub scored: Option<Scored>,
}

/// The work of the head on a micro-batch, from its hidden states.
pub(super) enum HeadLoss {
    /// The likelihood of its tokens; the number is that of the tokens of the whole step.
    Tokens(u64),
    /// The values of each row; no loss.
    Values,
    /// The loss of an objective, from its inputs, and what its gradients are multiplied by.
    Objective(Values<f32>, f64),
    /// No loss: its gradient is 0.
    Nothing,
}

/// A tensor in the memory of the host.
pub(super) struct HostTensor {
    /// The name in the piece's graphs.
    pub name: String,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// The elements.
    pub bytes: Vec<u8>,
}

/// Memory that was given back.
#[derive(Default)]
pub(super) struct Pool {
    free: BTreeMap<usize, Vec<Buffer>>, // by bytes
    shapes: BTreeSet<[usize; 2]>,       // of the micro-batches that it is for
}

impl Pool {
    /// A tensor with anything in it.
    pub fn take(
        &mut self,
        device: &dyn Device,
        name: &str,
        shape: Vec<usize>,
        element: usize,
    ) -> Result<DeviceTensor, Error> {
        let bytes = shape.iter().product::<usize>() * element;
        if let Some(buffer) = self.free.get_mut(&bytes).and_then(Vec::pop) {
            return Ok(DeviceTensor { shape, buffer });
        }
        let alloc = device.alloc("activation", bytes);
        let buffer = alloc.map_err(|source| Error::Device { input: name.to_owned(), source })?;
        Ok(DeviceTensor { shape, buffer })
    }

    /// Takes memory back.
    pub fn give(&mut self, tensors: impl IntoIterator<Item = DeviceTensor>) {
        for DeviceTensor { buffer, .. } in tensors {
            self.free.entry(buffer.bytes()).or_default().push(buffer);
        }
    }

    /// Gives everything back to the device, if micro-batches of other shapes come.
    pub fn fit(&mut self, shapes: BTreeSet<[usize; 2]>) {
        if self.shapes != shapes {
            self.free.clear();
            self.shapes = shapes;
        }
    }
}

/// The dimensions of a type at given sizes.
pub(super) fn shape(ty: &Type, sizes: &BTreeMap<Symbol, i64>) -> Vec<usize> {
    ty.shape.iter().map(|dim| dim.value(sizes).unwrap_or(0).max(0) as usize).collect()
}
