//! The fast against the true: solution and baseline equal the oracle over shapes, types, units and threads.

use challenges::nf4::baseline::Baseline;
use challenges::nf4::{Nf4, Output, Solution, Weight};
use half::{bf16, f16};
use kernels::{Cpu, Vector};
use proptest::prelude::*;
use reference::nf4::{CODE2, NF4, OutputDtype, Quantized, Scales, dequantize_bits};

/// Bits that no 16-bit weight of these tests has.
const POISON: u16 = 0x7e57;

/// Runs `dequantize` into poisoned memory and returns the bits that it left.
fn bits(len: usize, dtype: OutputDtype, dequantize: impl FnOnce(Output<'_>)) -> Vec<u32> {
    match dtype {
        OutputDtype::F16 => {
            let mut out = vec![f16::from_bits(POISON); len];
            dequantize(Output::F16(&mut out));
            out.iter().map(|value| u32::from(value.to_bits())).collect()
        }
        OutputDtype::Bf16 => {
            let mut out = vec![bf16::from_bits(POISON); len];
            dequantize(Output::Bf16(&mut out));
            out.iter().map(|value| u32::from(value.to_bits())).collect()
        }
        OutputDtype::F32 => {
            let mut out = vec![f32::from_bits(0x7fc0_0e57); len];
            dequantize(Output::F32(&mut out));
            out.iter().map(|value| value.to_bits()).collect()
        }
    }
}

/// Every vector unit of this machine, on one thread and on three.
fn devices() -> Vec<Cpu> {
    let with = |threads| {
        Vector::available().into_iter().filter_map(move |unit| Cpu::with_threads(threads).limited_to(unit))
    };
    with(1).chain(with(3)).collect()
}

/// Any well-formed weight: lengths around blocks, lines and pieces, any bytes, scales of any magnitude.
fn quantized() -> impl Strategy<Value = Quantized> {
    let len = prop_oneof![1_usize..200, 4000_usize..4200, 65_000_usize..66_000, Just(64 * 1024), Just(8191)];
    let scale = prop_oneof![0.001_f32..1.0, 1.0e-7_f32..1.0e-4, 1.0e3_f32..1.0e6];
    (len, 5_u32..13, any::<bool>(), any::<u64>(), scale, 0.0_f32..0.1).prop_map(
        |(len, log2, nested, seed, scale, offset)| {
            let block_size = 1 << log2;
            let blocks = len.div_ceil(block_size);
            let byte = |i: usize| ((i as u64 + 1).wrapping_mul(seed | 1) >> 32) as u8;
            let absmax = if nested {
                let scales = (0..blocks.div_ceil(256)).map(|s| scale * (1.0 + s as f32)).collect();
                let codes = (0..blocks).map(|b| byte(b ^ 0x55)).collect();
                Scales::Double { codes, table: Box::new(CODE2), scales, block_size: 256, offset }
            } else {
                Scales::Single((0..blocks).map(|b| scale * (1.0 + b as f32)).collect())
            };
            let packed = (0..len.div_ceil(2)).map(byte).collect();
            Quantized { shape: vec![len], dtype: OutputDtype::F16, packed, table: NF4, block_size, absmax }
        },
    )
}

fn all_agree(weight: &Weight<'_>) -> Result<(), TestCaseError> {
    let mut baseline = Baseline::default();
    for dtype in [OutputDtype::F16, OutputDtype::Bf16, OutputDtype::F32] {
        let want = dequantize_bits(weight, dtype);
        for cpu in devices() {
            let got = bits(weight.len, dtype, |out| Solution.dequantize_fast(&cpu, weight, out));
            prop_assert_eq!(&got, &want, "fast, {:?}, {}, {} threads", dtype, cpu.vector(), cpu.threads());
            let got = bits(weight.len, dtype, |out| baseline.dequantize(&cpu, weight, out));
            prop_assert_eq!(&got, &want, "baseline, {:?}, {}", dtype, cpu.vector());
        }
        let got = bits(weight.len, dtype, |out| Solution.dequantize(&Cpu::with_threads(2), weight, out));
        prop_assert_eq!(&got, &want, "one pass, {:?}", dtype);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_path_of_the_solution_and_the_baseline_equals_the_oracle(weight in quantized()) {
        all_agree(&weight.view())?;
    }
}

/// Scales from subnormal to overflowing, on lengths around a line, a block and a piece.
#[test]
fn extreme_scales_agree_at_every_ragged_length() {
    let scales = [0.0, -0.0, 1.0e-45, 1.0e-40, 5.9e-8, 6.1e-5, 1.0, 65519.0, 65520.0, 1.0e30, f32::MAX];
    for block_size in [32, 64, 4096] {
        for len in [1_usize, 31, 32, 33, 63, 64, 65, 127, block_size * 10 + 1, block_size * 11] {
            let blocks = len.div_ceil(block_size);
            let absmax = Scales::Single((0..blocks).map(|b| scales[b % scales.len()]).collect());
            let packed: Vec<u8> = (0..len.div_ceil(2)).map(|i| (i * 151 + 7) as u8).collect();
            let weight = Quantized {
                shape: vec![len],
                dtype: OutputDtype::F16,
                packed,
                table: NF4,
                block_size,
                absmax,
            };
            all_agree(&weight.view()).expect("equal bits");
        }
    }
}

/// Scales that are no numbers travel through as such.
#[test]
fn infinite_and_undefined_scales_stay_what_they_are() {
    for scale in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        let scales = [scale, 1.0];
        let packed: Vec<u8> = (0..64).collect();
        let absmax = challenges::nf4::Absmax::Single(&scales);
        let weight = Weight { len: 128, block_size: 64, packed: &packed, table: &NF4, absmax };
        for dtype in [OutputDtype::F16, OutputDtype::Bf16] {
            let want = dequantize_bits(&weight, dtype);
            for cpu in devices() {
                let mut got = bits(128, dtype, |out| Solution.dequantize_fast(&cpu, &weight, out));
                got.extend(bits(128, dtype, |out| Baseline::default().dequantize(&cpu, &weight, out)));
                for (got, want) in got.iter().zip(want.iter().cycle()) {
                    let both_nan = dtype.value(*got).is_nan() && dtype.value(*want).is_nan();
                    assert!(both_nan || got == want, "{got:x} {want:x} at scale {scale} on {}", cpu.vector());
                }
            }
        }
    }
}
