//! Laws: what holds of the NF4 codec whatever the numbers are.

#![allow(clippy::float_cmp)] // exact values are compared where the format makes them exact

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use reference::nf4::{
    Absmax, CODE2, Error, NESTED_BLOCK, NF4, OutputDtype, Quantized, Weight, block_absmax, dequantize_bits,
    dequantize_bits_range, dequantize_f32, double_quantize, quantize,
};

const DTYPES: [OutputDtype; 3] = [OutputDtype::F16, OutputDtype::Bf16, OutputDtype::F32];

/// Lengths that break things: none, one, around a block, prime, several blocks with a ragged last one.
fn awkward_len() -> impl Strategy<Value = usize> {
    prop_oneof![
        prop::sample::select(vec![0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 251, 256, 257, 1021]),
        0..700_usize,
    ]
}

/// Values of very different size, zeros and repetitions among them; none so small that a scale is subnormal.
fn value() -> impl Strategy<Value = f32> {
    prop_oneof![
        6 => -1.0..1.0_f32,
        1 => Just(0.0),
        1 => Just(-0.0),
        1 => Just(-1.0),
        1 => -3e4..3e4_f32,
        1 => (-1.0..1.0_f32).prop_map(|x| x * 1e-20),
        1 => (-1.0..1.0_f32).prop_map(|x| x * 1e30),
    ]
}

fn values() -> impl Strategy<Value = Vec<f32>> {
    awkward_len().prop_flat_map(|len| vec(value(), len))
}

fn block_size() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![32, 64, 128, 256, 4096])
}

fn single(values: &[f32], block_size: usize) -> Quantized {
    Quantized::single(values, &[values.len()], OutputDtype::F32, block_size)
        .expect("finite values of a good size")
}

fn double(values: &[f32], block_size: usize) -> Quantized {
    Quantized::double(values, &[values.len()], OutputDtype::F32, block_size)
        .expect("finite values of a good size")
}

fn round_trip(values: &[f32], block_size: usize) -> Vec<f32> {
    dequantize_f32(&single(values, block_size).view())
}

/// Half the largest step between neighbours of a table.
fn half_gap(table: &[f32]) -> f32 {
    table.windows(2).map(|pair| (pair[1] - pair[0]) / 2.0).fold(0.0, f32::max)
}

proptest! {
    #[test]
    fn a_round_trip_errs_by_half_the_largest_step_at_most(x in values(), size in block_size()) {
        let quantized = single(&x, size);
        for (e, (x, y)) in x.iter().zip(dequantize_f32(&quantized.view())).enumerate() {
            let a = block_absmax(&quantized.view().absmax, e / size);
            prop_assert!((x - y).abs() <= half_gap(&NF4) * a * 1.000_001, "x[{}]: {} became {}", e, x, y);
        }
    }

    #[test]
    fn what_came_back_once_comes_back_again(x in values(), size in block_size()) {
        let once = round_trip(&x, size);
        prop_assert_eq!(bits(&once), bits(&round_trip(&once, size)));
    }

    #[test]
    fn a_quantised_weight_passes_its_check(x in values(), size in block_size()) {
        prop_assert!(single(&x, size).view().check().is_ok());
        prop_assert!(double(&x, size).view().check().is_ok());
    }

    #[test]
    fn blocks_are_independent(
        x in values(), size in block_size(), other in value(), at in any::<Index>(),
    ) {
        prop_assume!(!x.is_empty());
        let at = at.index(x.len());
        let mut changed = x.clone();
        changed[at] = other;
        let (before, after) = (round_trip(&x, size), round_trip(&changed, size));
        let elsewhere = |e: &usize| e / size != at / size;
        prop_assert!((0..x.len()).filter(elsewhere).all(|e| before[e].to_bits() == after[e].to_bits()));
    }

    #[test]
    fn a_window_is_a_slice_of_the_whole(
        x in values(), size in block_size(), cut in any::<[Index; 2]>(),
    ) {
        let quantized = double(&x, size);
        let ends = cut.map(|end| end.index(x.len() + 1));
        let window = ends[0].min(ends[1])..ends[0].max(ends[1]);
        for dtype in DTYPES {
            let whole = dequantize_bits(&quantized.view(), dtype);
            let part = dequantize_bits_range(&quantized.view(), dtype, window.clone());
            prop_assert_eq!(&whole[window.clone()], part);
        }
    }

    #[test]
    fn bits_are_the_f32_rounded_once(x in values(), size in block_size()) {
        let quantized = double(&x, size);
        let w = dequantize_f32(&quantized.view());
        for dtype in DTYPES {
            let want: Vec<u32> = w.iter().map(|w| dtype.round(*w)).collect();
            prop_assert_eq!(dequantize_bits(&quantized.view(), dtype), want);
        }
    }

    #[test]
    fn order_within_a_block_is_kept(x in vec(value(), 64)) {
        let y = round_trip(&x, 64);
        for i in 0..x.len() {
            for j in 0..x.len() {
                prop_assert!(x[i] > x[j] || y[i] <= y[j], "{} <= {}, but {} > {}", x[i], x[j], y[i], y[j]);
            }
        }
    }

    #[test]
    fn a_power_of_two_passes_through(
        x in vec(-1.0..1.0_f32, 0..300), exponent in -20..20_i32, size in block_size(),
    ) {
        let factor = 2_f32.powi(exponent);
        let scaled: Vec<f32> = x.iter().map(|x| x * factor).collect();
        let (codes, absmax) = quantize(&x, size).expect("finite");
        let (scaled_codes, scaled_absmax) = quantize(&scaled, size).expect("finite");
        prop_assert_eq!(codes, scaled_codes);
        prop_assert_eq!(absmax.iter().map(|a| a * factor).collect::<Vec<_>>(), scaled_absmax);
    }

    #[test]
    fn the_sign_changes_no_scale_and_no_value_of_full_size(x in values(), size in block_size()) {
        let negated: Vec<f32> = x.iter().map(|x| -x).collect();
        let (plus, minus) = (single(&x, size), single(&negated, size));
        prop_assert_eq!(&plus.absmax, &minus.absmax);
        let (plus, minus) = (dequantize_f32(&plus.view()), dequantize_f32(&minus.view()));
        for (block, at) in x.chunks(size).zip((0..).step_by(size)) {
            let a = block.iter().fold(0.0_f32, |a, x| a.max(x.abs()));
            for e in (at..at + block.len()).filter(|e| x[*e].abs() >= a) {
                prop_assert!(plus[e] == x[e] && minus[e] == -x[e]);
            }
        }
    }

    #[test]
    fn a_doubled_scale_errs_by_half_the_largest_step_at_most(a in vec(0.0..8.0_f32, 1..600)) {
        let (codes, scales, offset) = double_quantize(&a, None);
        let (table, block_size) = (&CODE2, NESTED_BLOCK);
        let absmax = Absmax::Double { codes: &codes, table, scales: &scales, block_size, offset };
        for (b, a) in a.iter().enumerate() {
            let error = (a - block_absmax(&absmax, b)).abs();
            // -1 is the one value in reach that the table lacks: its nearest entry is a whole step away.
            let step = (CODE2[0] + 1.0).max(half_gap(&CODE2));
            prop_assert!(error <= step * scales[b / NESTED_BLOCK] + 2e-6, "scale {}: off by {}", b, error);
        }
    }

    #[test]
    fn the_second_table_is_symmetric_but_for_its_top(d in vec(-1.0..1.0_f32, 255)) {
        let mut d: Vec<f32> = d.iter().map(|d| d * 0.99).collect();
        d.push(1.0);
        let negated: Vec<f32> = d.iter().map(|d| -d).collect();
        let (plus, scales, _) = double_quantize(&d, Some(0.0));
        let (minus, other_scales, _) = double_quantize(&negated, Some(0.0));
        prop_assert_eq!(scales, other_scales);
        for (p, m) in plus.iter().zip(&minus) {
            prop_assert!(*p == 255 && *m == 0 || *p == 254 - *m, "{} against {}", p, m);
        }
    }
}

#[test]
fn the_first_element_is_the_high_nibble() {
    let weight =
        Weight { len: 3, block_size: 64, packed: &[0x0f, 0x87], table: &NF4, absmax: Absmax::Single(&[2.0]) };
    assert_eq!(dequantize_f32(&weight), [-2.0, 2.0, NF4[8] * 2.0]);
}

#[test]
fn a_value_on_a_midpoint_takes_the_lower_index() {
    let mut x: Vec<f32> = NF4.windows(2).map(|pair| f32::midpoint(pair[0], pair[1])).collect();
    x.push(1.0);
    let (packed, _) = quantize(&x, 64).expect("finite");
    assert_eq!(packed, [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
}

#[test]
fn a_step_past_a_midpoint_takes_the_upper_index() {
    let mut x: Vec<f32> = NF4.windows(2).map(|pair| f32::midpoint(pair[0], pair[1]).next_up()).collect();
    x.push(1.0);
    let (packed, _) = quantize(&x, 64).expect("finite");
    assert_eq!(packed, [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xff]);
}

#[test]
fn a_scale_between_two_entries_takes_the_even_index() {
    let exact = |pair: &&[f32]| {
        f64::midpoint(pair[0] as f64, pair[1] as f64) as f32 as f64
            == f64::midpoint(pair[0] as f64, pair[1] as f64)
    };
    let ties: Vec<f32> = CODE2.windows(2).filter(exact).map(|pair| f32::midpoint(pair[0], pair[1])).collect();
    assert!(ties.len() > 32, "a test of {} ties says little", ties.len());
    let d: Vec<f32> = ties.iter().copied().chain([1.0]).collect();
    let (codes, ..) = double_quantize(&d, Some(0.0));
    assert!(codes[..ties.len()].iter().all(|code| code % 2 == 0), "{codes:?}");
}

#[test]
fn the_odd_nibble_left_over_is_the_code_of_zero() {
    let (packed, _) = quantize(&[1.0], 64).expect("finite");
    assert_eq!(packed, [0xf7]);
}

#[test]
fn zeros_come_back_as_positive_zeros() {
    assert_eq!(bits(&round_trip(&[0.0, -0.0, 0.0], 64)), [0, 0, 0]);
    assert_eq!(bits(&dequantize_f32(&double(&[0.0; 65], 64).view())), [0; 65]);
}

#[test]
fn a_subnormal_scale_is_not_flushed() {
    let tiny = f32::from_bits(3);
    assert_eq!(round_trip(&[tiny, -tiny], 64), [tiny, -tiny]);
}

#[test]
fn fusing_the_product_and_the_sum_would_show() {
    let scales = [f32::from_bits(0x3dcc_cccd)];
    let codes: Vec<u8> = (0..=255).collect();
    let (table, offset) = (&CODE2, 0.7_f32);
    let absmax = Absmax::Double { codes: &codes, table, scales: &scales, block_size: 256, offset };
    let fused = |b: usize| CODE2[b].mul_add(scales[0], offset);
    let differ = (0..256).filter(|b| fused(*b).to_bits() != block_absmax(&absmax, *b).to_bits()).count();
    assert!(differ > 0, "no entry of the table tells the two apart");
}

#[test]
fn every_bit_pattern_of_a_short_type_is_its_own_rounding() {
    for dtype in [OutputDtype::F16, OutputDtype::Bf16] {
        let finite = (0..=0xffff_u32).filter(|bits| dtype.value(*bits).is_finite());
        for bits in finite {
            assert_eq!(dtype.round(dtype.value(bits)), bits, "{dtype:?}");
        }
    }
}

#[test]
fn rounding_to_a_short_type_takes_ties_to_even_and_overflows_to_infinity() {
    assert_eq!(OutputDtype::F16.round(1.0 + 1.0 / 2048.0), 0x3c00);
    assert_eq!(OutputDtype::F16.round(1.0 + 3.0 / 2048.0), 0x3c02);
    assert_eq!(OutputDtype::F16.round(65519.0), 0x7bff);
    assert_eq!(OutputDtype::F16.round(65520.0), 0x7c00);
    assert_eq!(OutputDtype::F16.round(-1e9), 0xfc00);
    assert_eq!(OutputDtype::F16.round(f32::from_bits(0x3340_0000)), 0x0001); // 0.75 of the smallest subnormal
    assert_eq!(OutputDtype::Bf16.round(1.0 + 1.0 / 256.0), 0x3f80);
    assert_eq!(OutputDtype::Bf16.round(1.0 + 3.0 / 256.0), 0x3f82);
    assert_eq!(OutputDtype::Bf16.round(f32::MAX), 0x7f80);
}

#[test]
fn a_value_that_is_not_finite_is_refused_and_named() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = [0.5; 70];
        x[67] = bad;
        let error = quantize(&x, 64).expect_err("there is no code for it");
        assert_eq!(error.to_string(), format!("values[67]: expected a finite number, found {bad}"));
    }
}

#[test]
fn a_block_size_out_of_the_format_is_refused() {
    for size in [0, 1, 16, 63, 65, 96, 8192, usize::MAX] {
        let error = quantize(&[1.0], size).expect_err("no such block size");
        assert!(matches!(error, Error::BlockSize { got, .. } if got == size), "{error}");
    }
}

#[test]
fn a_shape_that_does_not_fit_its_values_is_refused() {
    let short = Quantized::single(&[1.0; 6], &[2, 4], OutputDtype::F16, 64).expect_err("6 values of 8");
    assert_eq!(short.to_string(), "length of values: expected 8, found 6");
    let huge = Quantized::single(&[], &[usize::MAX, 2], OutputDtype::F16, 64).expect_err("too many elements");
    assert!(matches!(huge, Error::ShapeOverflow { .. }), "{huge}");
}

#[test]
fn every_call_of_the_oracle_is_counted() {
    let x = [1.0_f32; 64];
    let quantized = double(&x, 64);
    let view = quantized.view();
    let calls: [&dyn Fn(); 6] = [
        &|| drop(quantize(&x, 64)),
        &|| drop(double_quantize(&x, None)),
        &|| drop(dequantize_f32(&view)),
        &|| drop(dequantize_bits(&view, OutputDtype::F16)),
        &|| drop(dequantize_bits_range(&view, OutputDtype::F16, 3..5)),
        &|| assert!(block_absmax(&view.absmax, 0).is_finite()),
    ];
    // Other tests ask the oracle meanwhile; they cannot hide an uncounted call a hundred times in a row.
    for call in calls.iter().cycle().take(600) {
        let before = reference::oracles::NF4.so_far();
        call();
        assert!(reference::oracles::NF4.so_far() > before);
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}
