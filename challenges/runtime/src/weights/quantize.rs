//! NF4 for dense weights while they are loaded: the oracle's bytes, on all threads.
//!
//! ```text
//! mapped file --one weight at a time--> codes and scales --copy--> device
//! ```
//!
//! The projections of the layers are quantised; the embedding, the norms and the output layer stay as they are, as in
//! bitsandbytes. What is in memory beside the map is one weight's codes, half a byte an element, and its scales. A code
//! is the number of thresholds below x / absmax, fifteen comparisons without a branch, so that a block is a few vector
//! instructions; the division is the oracle's, and so is every bit ([`reference::nf4::quantize`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::thread;

use compiler::session::DeviceTensor;
use half::{bf16, f16};
use kernels::Device;
use reference::graph::Dtype;
use reference::llama::{Llama, Storage, Storages, StoredInput};
use reference::nf4::{
    CODE2, NESTED_BLOCK, NF4, OutputDtype, PartType, PartValues, Quantized, Scales, double_quantize,
};

use super::{Error, put};

/// Elements that share one absmax, as in bitsandbytes.
const BLOCK: usize = 64;

/// A block while it is made.
#[derive(Clone, Copy)]
struct Block {
    absmax: f32,
    codes: [u8; BLOCK / 2],
}

/// How the weights of a model are stored once the layers' dense projections are NF4, `nested` with a second level of
/// scales.
pub fn storages(model: &Llama, nested: bool) -> Storages {
    let nested = nested.then_some(NESTED_BLOCK);
    let storage = |(name, storage): (&String, &Storage)| {
        let storage = match *storage {
            Storage::Dense(dtype) if is_projection(name) => Storage::Nf4 { dtype, block_size: BLOCK, nested },
            other => other,
        };
        (name.clone(), storage)
    };
    model.storages().iter().map(storage).collect()
}

fn is_projection(name: &str) -> bool {
    name.starts_with("model.layers.") && name.ends_with("_proj.weight")
}

/// Every weight of a model in a device's memory, the layers' dense projections as NF4, `nested` with a second level of
/// scales, made by `threads` of the host; and how each is stored now.
///
/// # Errors
/// As [`load`](super::load), and if a weight has a number that is not finite.
pub fn load_quantized(
    device: &dyn Device,
    model: &Llama,
    nested: bool,
    threads: usize,
) -> Result<(Storages, BTreeMap<String, DeviceTensor>), Error> {
    let (storages, mut tensors) = (storages(model, nested), BTreeMap::new());
    for input in model.stored().map_err(Error::Model)? {
        match storages.get(&input.name) {
            Some(Storage::Nf4 { nested, .. }) if input.dtype.is_float() && is_projection(&input.name) => {
                let weight = quantize(&input, nested.is_some(), threads)?;
                for part in parts(&weight, &input.name) {
                    tensors.extend([put(device, part)?]);
                }
            }
            _ => tensors.extend([put(device, input)?]),
        }
    }
    Ok((storages, tensors))
}

/// A dense weight in NF4, `nested` with a second level of scales, made by `threads` of the host.
///
/// # Errors
/// If the weight has a number that is not finite.
pub fn quantize(input: &StoredInput<'_>, nested: bool, threads: usize) -> Result<Quantized, Error> {
    let len = input.shape.iter().product::<usize>();
    let mut blocks = vec![Block { absmax: 0.0, codes: [0; BLOCK / 2] }; len.div_ceil(BLOCK)];
    let share = blocks.len().div_ceil(threads.max(1)).max(1);
    thread::scope(|scope| {
        for (blocks, first) in blocks.chunks_mut(share).zip((0..).step_by(share)) {
            scope.spawn(move || {
                for (block, number) in blocks.iter_mut().zip(first..) {
                    *block = quantized(input.dtype, &input.bytes, number * BLOCK, len);
                }
            });
        }
    });
    let absmax: Vec<f32> = blocks.iter().map(|block| block.absmax).collect();
    if absmax.iter().any(|absmax| !absmax.is_finite()) {
        return Err(Error::NotFinite { input: input.name.clone() });
    }
    let mut packed: Vec<u8> = blocks.iter().flat_map(|block| block.codes).collect();
    packed.truncate(len.div_ceil(2));
    let absmax = if nested {
        let (codes, scales, offset) = double_quantize(&absmax, None);
        Scales::Double { codes, table: Box::new(CODE2), scales, block_size: NESTED_BLOCK, offset }
    } else {
        Scales::Single(absmax)
    };
    let dtype = OutputDtype::try_from(input.dtype).expect("a dense weight has floats");
    Ok(Quantized { shape: input.shape.clone(), dtype, packed, table: NF4, block_size: BLOCK, absmax })
}

/// A part's bytes, little endian.
pub fn part_bytes(values: PartValues<'_>) -> Vec<u8> {
    match values {
        PartValues::Bytes(bytes) => bytes.to_vec(),
        PartValues::Floats(floats) => floats.iter().flat_map(|float| float.to_le_bytes()).collect(),
    }
}

/// The parts of a weight in NF4, as a graph's inputs.
fn parts(weight: &Quantized, name: &str) -> Vec<StoredInput<'static>> {
    let stored = |(part, values): (PartType, PartValues<'_>)| StoredInput {
        name: part.part.of(name),
        dtype: part.dtype,
        shape: part.shape().to_vec(),
        bytes: Cow::Owned(part_bytes(values)),
    };
    weight.view().parts().map(stored).collect()
}

/// The block from element `from` on, of `len` stored elements; what is missing from the last one are zeros.
fn quantized(dtype: Dtype, bytes: &[u8], from: usize, len: usize) -> Block {
    let mut values = [0.0_f32; BLOCK];
    let count = (len - from).min(BLOCK);
    widened(dtype, &bytes[from * dtype.bytes()..(from + count) * dtype.bytes()], &mut values[..count]);
    let is_finite = values.iter().all(|x| x.is_finite());
    let absmax = values.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    let mut counts = [0_u8; BLOCK];
    for (count, x) in counts.iter_mut().zip(values) {
        let n = if absmax == 0.0 { 0.0 } else { x / absmax };
        *count = THRESHOLDS.iter().map(|threshold| u8::from(n > *threshold)).sum();
    }
    let codes = std::array::from_fn(|i| counts[2 * i] << 4 | counts[2 * i + 1]);
    Block { absmax: if is_finite { absmax } else { f32::NAN }, codes }
}

/// The midpoints between neighbours of the table.
const THRESHOLDS: [f32; 15] = {
    let (mut all, mut i) = ([0.0; 15], 0);
    while i < 15 {
        all[i] = f32::midpoint(NF4[i], NF4[i + 1]);
        i += 1;
    }
    all
};

/// Stored floats as f32.
fn widened(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        Dtype::F32 => {
            out.iter_mut().zip(bytes.as_chunks().0).for_each(|(x, four)| *x = f32::from_le_bytes(*four));
        }
        Dtype::F16 => {
            out.iter_mut()
                .zip(bytes.as_chunks().0)
                .for_each(|(x, two)| *x = f16::from_le_bytes(*two).to_f32());
        }
        _ => out
            .iter_mut()
            .zip(bytes.as_chunks().0)
            .for_each(|(x, two)| *x = bf16::from_le_bytes(*two).to_f32()),
    }
}
