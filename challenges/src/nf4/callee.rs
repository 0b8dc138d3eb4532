//! A dequantiser where a compiled graph calls one.

use compiler::compile::{Dequantizer, Parts};
use kernels::{Cpu, DeviceError};
use reference::graph::Dtype;
use reference::nf4;

use super::{Absmax, Nf4, Output, Weight};

/// A dequantiser of challenge A as plans call it.
#[derive(Clone, Copy)]
pub struct Callee<'a>(pub &'a dyn Nf4);

impl Dequantizer for Callee<'_> {
    /// Hands the parts of a weight to a dequantiser.
    fn dequantize(
        &self,
        device: &Cpu,
        parts: &Parts,
        inputs: &[&[u8]],
        to: &mut [u8],
    ) -> Result<(), DeviceError> {
        let broken = |reason: &str| DeviceError::Work { name: "dequantize".into(), reason: reason.into() };
        let table = floats(inputs[1]);
        let (code_table, scales) = match parts.nested {
            Some(_) => (floats(inputs[3]), floats(inputs[4])),
            None => (Vec::new(), floats(inputs[2])),
        };
        let absmax = match parts.nested {
            None => Absmax::Single(&scales),
            Some(block_size) => Absmax::Double {
                codes: inputs[2],
                table: code_table.as_slice().try_into().map_err(|_| broken("no table of 256"))?,
                scales: &scales,
                block_size,
                offset: floats(inputs[5])[0],
            },
        };
        let table = table.as_slice().try_into().map_err(|_| broken("no table of 16"))?;
        let weight =
            Weight { len: parts.len, block_size: parts.block_size, packed: inputs[0], table, absmax };
        weight.check().map_err(|error: nf4::Error| broken(&error.to_string()))?;
        let out = match parts.dtype {
            Dtype::F16 => Output::F16(kernels::buffer::cast_mut(to)),
            Dtype::Bf16 => Output::Bf16(kernels::buffer::cast_mut(to)),
            Dtype::F32 => Output::F32(kernels::buffer::cast_mut(to)),
            Dtype::U8 | Dtype::I32 => return Err(broken("no weight of floats")),
        };
        self.0.dequantize_fast(device, &weight, out);
        Ok(())
    }
}

/// Small parts of a weight, copied.
fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|four| f32::from_ne_bytes(*four)).collect()
}
