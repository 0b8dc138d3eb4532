//! The same pass as data: NF4 as one tile program, and as the three that the usual library launches.
//!
//! ```text
//! program nf4
//!   %0 = nibble in0[lane]               codes
//!   %1 = table in1[%0] (16)             NF4
//!   %2 = load u8 in2[lane / 64]         8-bit scales
//!   %3 = table in3[%2] (256)
//!   %4 = load f32 in4[lane / 16384]     second-level scales
//!   %5 = mul %3 %4
//!   %6 = load f32 in5[0]                offset
//!   %7 = add %5 %6
//!   %8 = mul %1 %7
//!   store bf16 out[lane] %8
//! ```
//!
//! Nobody compiled it: the device interprets it, a tile of lanes at a time, and still it is one pass. It is
//! the form in which challenge C will hand this work to a device.

use std::sync::Arc;

use kernels::plan::Plan;
use kernels::tile::{Binary, Element, Index, Op, Program};
use kernels::{Buffer, Device, DeviceError, Links, Memories};

use super::{Absmax, OutputDtype, Weight};
use crate::given;

/// A weight's parts in a device's memory, in the order in which [`fused`] reads them.
pub struct Uploaded {
    buffers: Vec<Buffer>,
    block_log2: u32,
    scales: Scales,
}

/// How the scales lie.
#[derive(Clone, Copy)]
enum Scales {
    Single,
    Double { block_log2: u32 },
}

/// Copies a weight to a device.
pub fn upload(device: &dyn Device, weight: &Weight<'_>) -> Result<Uploaded, DeviceError> {
    let mut buffers = Vec::new();
    let mut put = |tag, bytes: &[u8]| {
        let mut buffer = device.alloc(tag, bytes.len())?;
        device.upload(&mut buffer, bytes)?;
        buffers.push(buffer);
        Ok::<(), DeviceError>(())
    };
    put("packed", weight.packed)?;
    put("table", &bytes(weight.table))?;
    let scales = match weight.absmax {
        Absmax::Single(scales) => {
            put("absmax", &bytes(scales))?;
            Scales::Single
        }
        Absmax::Double { codes, table, scales, block_size, offset } => {
            put("absmax codes", codes)?;
            put("absmax table", &bytes(table))?;
            put("second-level scales", &bytes(scales))?;
            put("offset", &bytes(&[offset]))?;
            Scales::Double { block_log2: block_size.trailing_zeros() }
        }
    };
    Ok(Uploaded { buffers, block_log2: weight.block_size.trailing_zeros(), scales })
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// The whole format in one program.
pub fn fused(weight: &Uploaded, dtype: OutputDtype) -> Program {
    given::NF4.count();
    let block = weight.block_log2;
    let mut ops = vec![Op::Nibble { input: 0 }, Op::Table { input: 1, at: 0, entries: 16 }];
    let scale = match weight.scales {
        Scales::Single => {
            ops.push(Op::Load { input: 2, element: Element::F32, index: Index::Block(block) });
            2
        }
        Scales::Double { block_log2 } => {
            ops.extend([
                Op::Load { input: 2, element: Element::U8, index: Index::Block(block) },
                Op::Table { input: 3, at: 2, entries: 256 },
                Op::Load { input: 4, element: Element::F32, index: Index::Block(block + block_log2) },
                Op::Binary(Binary::Mul, 3, 4),
                Op::Load { input: 5, element: Element::F32, index: Index::First },
                Op::Binary(Binary::Add, 5, 6),
            ]);
            7
        }
    };
    ops.push(Op::Binary(Binary::Mul, 1, scale));
    let value = ops.len() - 1;
    Program::flat("nf4", ops, value, element(dtype))
}

fn element(dtype: OutputDtype) -> Element {
    match dtype {
        OutputDtype::F16 => Element::F16,
        OutputDtype::Bf16 => Element::Bf16,
        OutputDtype::F32 => Element::F32,
    }
}

/// Runs a program over `len` lanes of one row, as a plan of one step.
pub fn pass(
    device: &dyn Device,
    program: Program,
    len: usize,
    inputs: &[&Buffer],
    out: &mut Buffer,
) -> Result<(), DeviceError> {
    let bytes: Vec<usize> = inputs.iter().map(|input| input.bytes()).collect();
    let plan = Plan::of_program(Arc::new(program), len, &bytes, out.bytes());
    let mut arena = device.alloc("arena", 0)?;
    let mut executable = device.prepare(Arc::new(plan), &Links::default())?;
    executable.run(&mut Memories { arena: &mut arena, inputs, donated: &mut [out] }, None)
}

/// Dequantises `len` elements into `out` by the fused program: one launch.
pub fn run(
    device: &dyn Device,
    weight: &Uploaded,
    dtype: OutputDtype,
    len: usize,
    out: &mut Buffer,
) -> Result<(), DeviceError> {
    let inputs: Vec<&Buffer> = weight.buffers.iter().collect();
    pass(device, fused(weight, dtype), len, &inputs, out)
}

/// The same by three launches with an f32 buffer between them: scales, offset, codes. Single-level scales
/// need the last one only.
pub fn run_in_three(
    device: &dyn Device,
    weight: &Uploaded,
    dtype: OutputDtype,
    len: usize,
    out: &mut Buffer,
) -> Result<(), DeviceError> {
    given::NF4.count();
    let Scales::Double { block_log2 } = weight.scales else {
        return run(device, weight, dtype, len, out);
    };
    let blocks = len.div_ceil(1 << weight.block_log2);
    let part = |n: usize| &weight.buffers[n];
    let mut scaled = device.alloc("scales without offset", blocks * 4)?;
    let first = Program::flat(
        "scales",
        vec![
            Op::Load { input: 0, element: Element::U8, index: Index::Lane },
            Op::Table { input: 1, at: 0, entries: 256 },
            Op::Load { input: 2, element: Element::F32, index: Index::Block(block_log2) },
            Op::Binary(Binary::Mul, 1, 2),
        ],
        3,
        Element::F32,
    );
    pass(device, first, blocks, &[part(2), part(3), part(4)], &mut scaled)?;
    let mut scales = device.alloc("scales", blocks * 4)?;
    let second = Program::flat(
        "offset",
        vec![
            Op::Load { input: 0, element: Element::F32, index: Index::Lane },
            Op::Load { input: 1, element: Element::F32, index: Index::First },
            Op::Binary(Binary::Add, 0, 1),
        ],
        2,
        Element::F32,
    );
    pass(device, second, blocks, &[&scaled, part(5)], &mut scales)?;
    let third = Program::flat(
        "codes",
        vec![
            Op::Nibble { input: 0 },
            Op::Table { input: 1, at: 0, entries: 16 },
            Op::Load { input: 2, element: Element::F32, index: Index::Block(weight.block_log2) },
            Op::Binary(Binary::Mul, 1, 2),
        ],
        3,
        element(dtype),
    );
    pass(device, third, len, &[part(0), part(1), &scales], out)
}
