//! A call of a dequantiser: the attempt's own kernel, which takes a weight by value.
//!
//! The table and the offset of a weight stand in the kernel's argument, so the host has to know them: they are read
//! when the weight's buffers are first seen, and whenever they may have changed.

use std::sync::Arc;

use super::super::callee::{CardDequantizer, CardWeight};
use super::super::order::Stream;
use super::super::probe::Gpu;
use super::Addresses;
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::DeviceError;
use crate::plan::{Dequantize, MOST_INPUTS, Memory, View, WeightPart};

/// A call that is ready.
pub(super) struct Call<'a> {
    kernel: Arc<dyn CardDequantizer + 'a>,
    name: String,
    what: Dequantize,
    inputs: Vec<usize>, // of each part, its number among the run's inputs
    output: Memory,
    known: [u64; MOST_INPUTS], // versions of the inputs whose numbers these are
    table: [f32; 16],
    offset: f32,
}

impl<'a> Call<'a> {
    /// Of a step that passed its plan's check.
    pub fn new(
        kernel: Arc<dyn CardDequantizer + 'a>,
        name: &str,
        what: &Dequantize,
        inputs: &[View],
        output: &View,
        refused: &dyn Fn(&'static str) -> DeviceError,
    ) -> Result<Self, DeviceError> {
        let given = |view: &View| if let Memory::Input(number) = view.memory { Some(number) } else { None };
        let inputs = inputs.iter().map(given).collect::<Option<Vec<_>>>();
        let inputs =
            inputs.ok_or_else(|| refused("a weight whose parts are inputs of the plan, on this device"))?;
        let weight = CardWeight { block_size: what.block_size, nested: what.nested, ..CardWeight::default() };
        let reason = |reason| DeviceError::Call { name: name.to_owned(), reason };
        kernel.check(&weight).map_err(reason)?;
        let (name, what, output) = (name.to_owned(), what.clone(), output.memory);
        Ok(Self {
            kernel,
            name,
            what,
            inputs,
            output,
            known: [0; MOST_INPUTS],
            table: [0.0; 16],
            offset: 0.0,
        })
    }

    /// Reads what the kernel takes by value, if it may have changed; whether it has been read.
    pub fn learn(&mut self, gpu: &Gpu, inputs: &[&Buffer]) -> Result<bool, DeviceError> {
        let mut versions = [0; MOST_INPUTS];
        versions.iter_mut().zip(&self.inputs).for_each(|(to, number)| *to = inputs[*number].version());
        if versions == self.known {
            return Ok(false);
        }
        let mut table = [0; 16 * size_of::<f32>()];
        gpu.download_at(inputs[self.input(WeightPart::QuantMap)], 0, &mut table)?;
        self.table.copy_from_slice(&floats(&table));
        if self.what.nested.is_some() {
            let mut offset = [0; size_of::<f32>()];
            gpu.download_at(inputs[self.input(WeightPart::NestedOffset)], 0, &mut offset)?;
            self.offset = floats(&offset)[0];
        }
        self.known = versions;
        Ok(true)
    }

    /// Returns the number of a part, which the weight has, among the run's inputs.
    fn input(&self, part: WeightPart) -> usize {
        self.inputs[part as usize]
    }

    /// Queues the kernel, once or twice: see [`Dequantize::pieces`].
    pub fn queue(&self, gpu: &Gpu, stream: &Stream, bound: &Addresses) -> Result<(), DeviceError> {
        let Dequantize { block_size, nested, element, .. } = self.what;
        let at = |part: WeightPart| bound.inputs[self.input(part)];
        let first = self.what.part.start;
        for part in self.what.pieces().into_iter().flatten() {
            let block = part.start / block_size;
            let absmax = at(WeightPart::Absmax);
            let (codes, scales, code2) = match nested {
                None => (0, absmax + 4 * block as u64, 0),
                Some(nested) => {
                    let scales = at(WeightPart::NestedAbsmax) + 4 * (block / nested) as u64;
                    (absmax + block as u64, scales, at(WeightPart::NestedQuantMap))
                }
            };
            let packed = at(WeightPart::Packed) + part.start as u64 / 2;
            let (table, offset) = (self.table, self.offset);
            let weight = CardWeight {
                len: part.len(),
                block_size,
                nested,
                packed,
                codes,
                scales,
                code2,
                offset,
                table,
            };
            let to = bound.of(self.output) + ((part.start - first) * element.bytes()) as u64;
            let failed = |error: crate::cuda::CudaError| DeviceError::Call {
                name: self.name.clone(),
                reason: error.to_string(),
            };
            self.kernel.launch(gpu, stream, &weight, to).map_err(failed)?;
        }
        Ok(())
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|word| f32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect()
}
