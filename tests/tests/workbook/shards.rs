//! Laws of parameters in shards: what every rank holds, and what all of them hold together.

use challenges::fsdp::{Fsdp, Solution};
use proptest::collection::vec;
use proptest::prelude::*;
use reference::fsdp::{Cut, Fault, Parameter, Placement, Shards, Shared, check};
use reference::graph::Dtype;
use reference::llama::Storage;
use reference::nf4::{OutputDtype, PartValues, Quantized, Scales, Weight, dequantize_bits};

/// A weight of numbers that are all different, in NF4.
fn quantized(shape: [usize; 2], block: usize, is_nested: bool) -> Quantized {
    let value = |i: usize| ((i * 7919 + 13) % 1009) as f32 / 1009.0 - 0.5;
    let values: Vec<f32> = (0..shape[0] * shape[1]).map(value).collect();
    let make = if is_nested { Quantized::double } else { Quantized::single };
    make(&values, &shape, OutputDtype::Bf16, block).expect("a block size that the format allows")
}

fn parameter(shape: [usize; 2], block: usize, is_nested: bool) -> Parameter {
    let storage = Storage::Nf4 { dtype: Dtype::Bf16, block_size: block, nested: is_nested.then_some(256) };
    Parameter { name: "w".into(), shape: shape.to_vec(), storage }
}

/// The bytes of each part.
fn bytes(weight: &Quantized) -> Vec<Vec<u8>> {
    let view = weight.view();
    let of = |values: PartValues<'_>| match values {
        PartValues::Bytes(bytes) => bytes.to_vec(),
        PartValues::Floats(floats) => floats.iter().flat_map(|float| float.to_le_bytes()).collect(),
    };
    view.parts().map(|(_, values)| of(values)).collect()
}

/// What a rank's shards decode to by themselves.
fn decoded(weight: &Quantized, placement: &Placement, rank: usize) -> Vec<u32> {
    let at = |part: usize| placement.parts[part].ranges[rank].clone();
    let last = weight.shape.iter().product::<usize>();
    let elements = at(0).start * 2..(at(0).end * 2).min(last);
    let absmax: Scales = match &weight.absmax {
        Scales::Single(scales) => Scales::Single(scales[at(2)].to_vec()),
        Scales::Double { codes, table, scales, block_size, offset } => {
            // From where the first group begins: a rank that begins inside it holds its scale.
            let before = at(2).start - at(4).start * block_size;
            let codes: Vec<u8> = std::iter::repeat_n(0, before).chain(codes[at(2)].iter().copied()).collect();
            let scales = scales[at(4)].to_vec();
            Scales::Double { codes, table: table.clone(), scales, block_size: *block_size, offset: *offset }
        }
    };
    let skipped = match &weight.absmax {
        Scales::Single(_) => 0,
        Scales::Double { block_size, .. } => (at(2).start - at(4).start * block_size) * weight.block_size,
    };
    let packed = std::iter::repeat_n(0, skipped / 2).chain(weight.packed[at(0)].iter().copied());
    let packed: Vec<u8> = packed.collect();
    let view = Weight {
        len: skipped + elements.len(),
        block_size: weight.block_size,
        packed: &packed,
        table: &weight.table,
        absmax: absmax.view(),
    };
    dequantize_bits(&view, OutputDtype::Bf16).split_off(skipped)
}

proptest! {
    /// Every rank decodes its rows without the others, no rank has more than its share, and all shards together are the
    /// bytes of the file, whatever they mean: those of a NaN as well.
    #[test]
    fn shards_decode_alone_and_are_the_whole_together(
        rows in 1_usize..70,
        row in 1_usize..200,
        block in prop::sample::select(vec![32_usize, 64, 128]),
        is_nested: bool,
        ranks in 1_usize..6,
        noise in vec(any::<u8>(), 64),
    ) {
        let shape = [rows, row];
        let (weight, parameter) = (quantized(shape, block, is_nested), parameter(shape, block, is_nested));
        let placement = Solution.place(&parameter, ranks);
        prop_assert_eq!(check(&parameter, &placement, ranks), Ok(()));
        let truth = dequantize_bits(&weight.view(), OutputDtype::Bf16);
        let held = (0..ranks).flat_map(|rank| {
            let is_empty = placement.parts[0].ranges[rank].is_empty();
            if is_empty { Vec::new() } else { decoded(&weight, &placement, rank) }
        });
        prop_assert_eq!(held.collect::<Vec<u32>>(), truth);
        for (part, bytes) in parameter.parts().iter().zip(bytes(&weight)) {
            let (shards, element) = (&placement.parts[parameter.parts().iter().position(|other| other == part).unwrap_or(0)], part.dtype.bytes());
            let noisy: Vec<u8> = bytes.iter().zip(noise.iter().cycle()).map(|(byte, noise)| byte ^ noise).collect();
            let cut: Vec<Vec<u8>> = (0..ranks).map(|rank| shards.cut(&noisy, element, rank)).collect();
            prop_assert!(cut.iter().all(|shard| shard.len() == shards.len * element));
            prop_assert_eq!(shards.whole(&cut, element), noisy);
        }
        let whole: usize = parameter.parts().iter().map(|part| part.elements() * part.dtype.bytes()).sum();
        let fewest = Solution.place(&Parameter { shape: vec![parameter.fewest_rows(), row], ..parameter.clone() }, 1);
        let slack = fewest.rank_bytes(&parameter) + 8; // whole blocks, and a scale of either neighbour
        let tables: usize = parameter.parts().iter().filter(|part| part.covers.is_none()).map(|part| part.elements() * 4).sum();
        prop_assert!(placement.rank_bytes(&parameter) <= whole / ranks + tables + slack);
    }

    /// What ranks share of a tensor is the tensor, and of a quantised one decodes to its own part of it.
    #[test]
    fn parts_of_a_layer_are_the_layer_together(
        rows in 1_usize..7,
        row in 1_usize..7,
        is_nested: bool,
        ranks in 1_usize..4,
        cut in prop::sample::select(vec![Cut::Whole, Cut::Rows, Cut::Columns]),
    ) {
        let shape = [rows * 2, row * 64];
        let weight = quantized(shape, 64, is_nested);
        let local = match cut {
            Cut::Whole => shape,
            Cut::Rows => [shape[0].div_ceil(ranks), shape[1]],
            Cut::Columns => [shape[0], row.div_ceil(ranks) * 64],
        };
        let shared = Shared { cut, whole: shape.to_vec(), local: local.to_vec() };
        prop_assert!(shared.is_complete(ranks));
        let truth = dequantize_bits(&weight.view(), OutputDtype::Bf16);
        let truth: Vec<u8> = truth.iter().flat_map(|bits| (*bits as u16).to_le_bytes()).collect();
        let own = |rank: usize| {
            let part = shared.quantized(&weight, 64, rank);
            part.check().expect("it can be decoded");
            dequantize_bits(&part.view(), OutputDtype::Bf16).iter().flat_map(|bits| (*bits as u16).to_le_bytes()).collect()
        };
        let parts: Vec<Vec<u8>> = (0..ranks).map(own).collect();
        for (rank, part) in parts.iter().enumerate() {
            prop_assert_eq!(part, &shared.part(&truth, 2, rank));
        }
        let parts = if cut == Cut::Whole { &parts[..1] } else { &parts[..] };
        prop_assert_eq!(shared.together(parts, 2), truth);
    }
}

/// A placement with another first part.
fn with(change: impl FnOnce(&mut Shards)) -> Placement {
    let mut placement = Solution.place(&parameter([8, 64], 64, true), 2);
    change(&mut placement.parts[0]);
    placement
}

#[test]
fn what_is_wrong_with_a_placement_is_named() {
    let parameter = parameter([8, 64], 64, true);
    let name = || "w".to_owned();
    let of = |placement: &Placement| check(&parameter, placement, 2).expect_err("it is wrong");
    let good = Solution.place(&parameter, 2);
    assert_eq!(check(&parameter, &good, 2), Ok(()));
    assert_eq!(check(&parameter, &good, 3), Err(Fault::Ranks { name: name(), found: 2, expected: 3 }));
    let fewer = Placement { parts: good.parts[..2].to_vec() };
    assert_eq!(of(&fewer), Fault::Parts { name: name(), found: 2, expected: 6 });
    let beyond = with(|shards| shards.ranges[1].end += 1);
    assert_eq!(of(&beyond), Fault::Range { name: name(), rank: 1, found: 128..257, elements: 256, len: 128 });
    let hole = with(|shards| shards.ranges[1].start += 32);
    assert_eq!(of(&hole), Fault::Order { name: name(), rank: 1, found: 160..256, covered: 128 });
    let short = with(|shards| shards.ranges[1].end -= 32);
    assert_eq!(of(&short), Fault::Missing { name: name(), covered: 224, expected: 256 });
    let inside = with(|shards| {
        (shards.ranges[0].end, shards.ranges[1].start) = (120, 120);
        shards.len = 136;
    });
    assert_eq!(of(&inside), Fault::Cut { name: name(), rank: 1, found: 240, multiple: 64 });
    let uneven = with(|shards| {
        (shards.ranges[0].end, shards.ranges[1].start) = (160, 160);
        shards.len = 160;
    });
    assert_eq!(of(&uneven), Fault::Lacks { name: "w.absmax".into(), rank: 0, found: 0..4, expected: 0..5 });
    let everything = Placement {
        parts: parameter.parts().iter().map(|part| Shards::replicated(part.elements(), 2)).collect(),
    };
    assert_eq!(of(&everything), Fault::Share { name: name(), found: 256, most: 128 });
}
