//! B.1: where the parts of a parameter lie.

use std::ops::RangeInclusive;

use challenges::fsdp::Fsdp;
use reference::fsdp::{Fault, Parameter, Placement, check};
use reference::graph::Dtype;
use reference::llama::Storage;
use reference::nf4::{NESTED_BLOCK, OutputDtype, PartValues, Quantized, Scales, Weight, dequantize_bits};

use super::{Check, Rows};
use crate::random::Random;

pub(super) const CHECKS: &Rows<Check> = &[
    ("dense", |steps, _| {
        every_rank_count(steps, &[dense(&[8, 6]), dense(&[64, 16]), dense(&[1024, 3]), dense(&[12])])
    }),
    ("odd-sizes", |steps, _| {
        every_rank_count(steps, &[dense(&[7, 5]), dense(&[13, 1]), dense(&[9]), dense(&[17, 12])])
    }),
    ("fewer-rows-than-ranks", |steps, _| {
        every_rank_count(steps, &[dense(&[1, 40]), dense(&[3, 8]), quantized([2, 64], 64, true)])
    }),
    ("one-f32-a-block", |steps, _| {
        every_rank_count(steps, &[quantized([6, 128], 64, false), quantized([33, 64], 32, false)])
    }),
    ("nested", |steps, _| {
        every_rank_count(steps, &[quantized([6, 128], 64, true), quantized([192, 96], 32, true)])
    }),
    ("rows-of-no-whole-number-of-blocks", |steps, _| {
        every_rank_count(steps, &[quantized([24, 12], 64, true), quantized([20, 12], 32, false)])?;
        every_rank_count(steps, &[quantized([7, 13], 64, true), quantized([5, 200], 128, true)])
    }),
    ("any-parameter", |steps, random| on_ranks(steps, &drawn_parameters(random), 1..=9)),
    ("shards-decode-alone", |steps, random| {
        for (shape, block) in [([24, 12], 64), ([192, 96], 32), ([41, 64], 64), ([5, 200], 128)] {
            for is_nested in [false, true] {
                (1..=5).try_for_each(|ranks| decodes_alone(steps, shape, block, is_nested, ranks, random))?;
            }
        }
        Ok(())
    }),
    ("together-the-file", |steps, random| {
        let all = [dense(&[7, 5]), quantized([24, 12], 64, true), quantized([192, 96], 32, true)];
        for parameter in &all {
            (1..=5).try_for_each(|ranks| together(steps, parameter, ranks, random))?;
        }
        Ok(())
    }),
];

fn dense(shape: &[usize]) -> Parameter {
    Parameter { name: "w".into(), shape: shape.to_vec(), storage: Storage::Dense(Dtype::F32) }
}

fn quantized(shape: [usize; 2], block_size: usize, is_nested: bool) -> Parameter {
    let storage = Storage::Nf4 { dtype: Dtype::Bf16, block_size, nested: is_nested.then_some(NESTED_BLOCK) };
    Parameter { name: "w".into(), shape: shape.to_vec(), storage }
}

/// Parameters of any size and storage.
pub(in crate::fsdp) fn drawn_parameters(random: &mut Random) -> Vec<Parameter> {
    let mut one = || {
        let shape = [1 + random.below(90), 1 + random.below(220)];
        match random.below(3) {
            0 => dense(&shape),
            kind => quantized(shape, [32, 64, 128][random.below(3)], kind == 1),
        }
    };
    (0..40).map(|_| one()).collect()
}

/// That parameters lie where they may, on 1 to 5 ranks.
fn every_rank_count(attempt: &dyn Fsdp, parameters: &[Parameter]) -> Result<(), String> {
    on_ranks(attempt, parameters, 1..=5)
}

/// That parameters lie where they may.
fn on_ranks(
    attempt: &dyn Fsdp,
    parameters: &[Parameter],
    counts: RangeInclusive<usize>,
) -> Result<(), String> {
    for parameter in parameters {
        for ranks in counts.clone() {
            let placement = attempt.place(parameter, ranks);
            let wrong = check(parameter, &placement, ranks);
            wrong.map_err(|fault| diagnosed(parameter, ranks, &fault))?;
        }
    }
    Ok(())
}

/// A fault with what may have caused it.
fn diagnosed(parameter: &Parameter, ranks: usize, fault: &Fault) -> String {
    let about = format!("{:?}, {:?}, on {ranks} ranks: {fault}", parameter.shape, parameter.storage);
    match cause(fault) {
        Some(cause) => format!("{about}\nlikely cause: {cause}"),
        None => about,
    }
}

/// The likely mistake behind a fault.
fn cause(fault: &Fault) -> Option<&'static str> {
    match fault {
        Fault::Parts { .. } => Some("a part is left out: tables and the offset have an entry, too"),
        Fault::Cut { .. } => Some(
            "elements or rows were divided by the ranks; what is divided are groups of `fewest_rows` rows",
        ),
        Fault::Missing { .. } => Some("a division rounds down, so that the last rows are on no rank"),
        Fault::Range { found, elements, .. } if found.end > *elements => {
            Some("a rank's range is not clamped to the end of the parameter")
        }
        Fault::Range { .. } => Some("`len` is not the length of the longest range"),
        Fault::Lacks { name, .. } if name.contains("nested") => {
            Some("a second-level scale stands for blocks of two ranks: both of them hold it (`standing_for`)")
        }
        Fault::Lacks { .. } => Some("a part's range does not follow the rows (`standing_for`)"),
        Fault::Share { .. } => {
            Some("a rank holds what belongs to others: everything, or rows rounded up twice")
        }
        _ => None,
    }
}

/// Bytes of each part of a parameter.
fn part_bytes(weight: &Quantized) -> Vec<Vec<u8>> {
    let of = |values: PartValues<'_>| match values {
        PartValues::Bytes(bytes) => bytes.to_vec(),
        PartValues::Floats(floats) => floats.iter().flat_map(|float| float.to_le_bytes()).collect(),
    };
    weight.view().parts().map(|(_, values)| of(values)).collect()
}

/// That each rank decodes its rows by itself, to the bits that they have in the whole.
fn decodes_alone(
    attempt: &dyn Fsdp,
    shape: [usize; 2],
    block: usize,
    is_nested: bool,
    ranks: usize,
    random: &mut Random,
) -> Result<(), String> {
    let parameter = quantized(shape, block, is_nested);
    let values: Vec<f32> = (0..shape[0] * shape[1]).map(|_| (random.unit() - 0.5) as f32).collect();
    let make = if is_nested { Quantized::double } else { Quantized::single };
    let weight = make(&values, &shape, OutputDtype::Bf16, block).map_err(|error| error.to_string())?;
    let placement = attempt.place(&parameter, ranks);
    check(&parameter, &placement, ranks).map_err(|fault| diagnosed(&parameter, ranks, &fault))?;
    let truth = dequantize_bits(&weight.view(), OutputDtype::Bf16);
    let parts = part_bytes(&weight);
    for rank in 0..ranks {
        let (elements, got) = decoded(&parameter, &weight, &parts, &placement, rank);
        let Some(at) = elements.clone().zip(&got).position(|(e, bits)| truth[e] != *bits) else { continue };
        return Err(format!(
            "{shape:?} in blocks of {block} on {ranks} ranks: rank {rank} decodes its element {at} to {:#06x}, \
             which is {:#06x} in the whole",
            got[at],
            truth[elements.start + at]
        ));
    }
    Ok(())
}

/// The elements of a rank, and what its shards decode to with nothing else.
fn decoded(
    parameter: &Parameter,
    weight: &Quantized,
    bytes: &[Vec<u8>],
    placement: &Placement,
    rank: usize,
) -> (std::ops::Range<usize>, Vec<u32>) {
    let parts = parameter.parts();
    let shard = |part: usize| placement.parts[part].cut(&bytes[part], parts[part].dtype.bytes(), rank);
    let at = |part: usize| placement.parts[part].ranges[rank].clone();
    let floats = |bytes: &[u8]| -> Vec<f32> {
        bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
    };
    let elements = at(0).start * 2..(at(0).end * 2).min(parameter.elements());
    if elements.is_empty() {
        return (0..0, Vec::new());
    }
    // A group of scales may begin on the rank before: what lies before the rank's own blocks is skipped.
    let mut blocks_before = 0;
    let scales = match &weight.absmax {
        Scales::Single(_) => Scales::Single(floats(&shard(2))),
        Scales::Double { table, block_size, offset, .. } => {
            blocks_before = at(2).start - at(4).start * block_size;
            let codes: Vec<u8> = std::iter::repeat_n(0, blocks_before).chain(shard(2)).collect();
            let scales = floats(&shard(4));
            Scales::Double { codes, table: table.clone(), scales, block_size: *block_size, offset: *offset }
        }
    };
    let skipped = blocks_before * weight.block_size;
    let packed: Vec<u8> = std::iter::repeat_n(0, skipped / 2).chain(shard(0)).collect();
    let view = Weight {
        len: skipped + elements.len(),
        block_size: weight.block_size,
        packed: &packed,
        table: &weight.table,
        absmax: scales.view(),
    };
    (elements, dequantize_bits(&view, OutputDtype::Bf16).split_off(skipped))
}

/// That all shards together are the bytes of the file, whatever these mean.
fn together(
    attempt: &dyn Fsdp,
    parameter: &Parameter,
    ranks: usize,
    random: &mut Random,
) -> Result<(), String> {
    let placement = attempt.place(parameter, ranks);
    check(parameter, &placement, ranks).map_err(|fault| diagnosed(parameter, ranks, &fault))?;
    for (part, shards) in parameter.parts().iter().zip(&placement.parts) {
        let bytes = random.bytes(part.elements() * part.dtype.bytes());
        let cut: Vec<Vec<u8>> = (0..ranks).map(|rank| shards.cut(&bytes, part.dtype.bytes(), rank)).collect();
        if shards.whole(&cut, part.dtype.bytes()) != bytes {
            return Err(format!("`{}` on {ranks} ranks: the shards are not its bytes together", part.name));
        }
    }
    Ok(())
}

/// Bytes that a rank holds of some parameters, tables left out, and those of all of them: what is everyone's anyway
/// says nothing of shards.
pub(in crate::fsdp) fn held_bytes(attempt: &dyn Fsdp, parameters: &[Parameter], ranks: usize) -> [usize; 2] {
    let mut sums = [0; 2];
    for parameter in parameters {
        let placement = attempt.place(parameter, ranks);
        let parts = parameter.parts();
        let of_rows = parts.iter().zip(&placement.parts).filter(|(part, _)| part.covers.is_some());
        for (part, shards) in of_rows {
            sums[0] += shards.len * part.dtype.bytes();
            sums[1] += part.elements() * part.dtype.bytes();
        }
    }
    sums
}
