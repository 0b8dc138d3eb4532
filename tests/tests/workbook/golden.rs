//! Golden: the oracle against the library that made the format.

use reference::checkpoint::Checkpoint;
use reference::nf4::{
    CODE2, NESTED_BLOCK, NF4, OutputDtype, Quantized, Scales, dequantize_bits, dequantize_bits_range,
    double_quantize, quantize,
};
use safetensors::SafeTensors;
use serde::Deserialize;
use tests::golden;

/// One weight that the original library quantised and dequantised.
#[derive(Deserialize)]
struct Case {
    #[serde(rename = "case")]
    name: String,
    shape: Vec<usize>,
    dtype: String,
    blocksize: usize,
    nested: bool,
    nested_offset: Option<f64>,
    nested_blocksize: Option<usize>,
}

/// Runs `check` on every case of the golden file.
fn each_case(check: impl Fn(&Case, &SafeTensors)) {
    golden::each_case("open-nf4.safetensors", check);
}

#[test]
fn every_case_dequantises_to_the_bit() {
    each_case(|case, tensors| {
        let quantized = case.quantized(tensors);
        quantized.view().check().unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let want = case.bits(tensors, "dequantized");
        assert_same(&case.name, &dequantize_bits(&quantized.view(), quantized.dtype), &want);
    });
}

/// One weight whose codes are stored under another type.
#[derive(Deserialize)]
struct StorageCase {
    #[serde(rename = "case")]
    name: String,
    shape: Vec<usize>,
    storage: String,
}

#[test]
fn codes_are_read_as_bytes_under_whatever_type_they_are_stored() {
    let Some(file) = golden::find("open-storage.safetensors") else { return };
    let checkpoint = Checkpoint::from_bytes(file).expect("the golden file is sound");
    golden::each_case("open-storage.safetensors", |case: &StorageCase, tensors| {
        let StorageCase { name, shape, storage } = case;
        let weight = format!("{name}.weight");
        assert!(checkpoint.is_quantized(&weight));
        let quantized = checkpoint.nf4(&weight).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(quantized.shape, *shape, "{name}, stored as {storage}");
        let want = tensors.tensor(&format!("{name}.dequantized")).expect("it is there");
        let got = dequantize_bits(&quantized.view(), quantized.dtype);
        let bytes = want.dtype().bitsize() / 8;
        let got: Vec<u8> = got.iter().flat_map(|bits| bits.to_le_bytes()[..bytes].to_vec()).collect();
        assert!(got == want.data(), "{name}, stored as {storage}: other values");
    });
}

#[test]
fn the_kernels_dequantise_every_case_to_the_bit() {
    let Some(gpu) = crate::card::probed() else { return };
    each_case(|case, tensors| {
        let quantized = case.quantized(tensors);
        let want = case.bits(tensors, "dequantized");
        for kernel in ["dequantize_naive", "dequantize_wide", "dequantize"] {
            let got = crate::card::dequantized(&gpu, kernel, &quantized.view(), quantized.dtype);
            assert_same(&format!("{kernel} on {}", case.name), &got, &want);
        }
    });
}

#[test]
fn a_window_of_every_case_dequantises_to_the_bit() {
    each_case(|case, tensors| {
        let quantized = case.quantized(tensors);
        let want = case.bits(tensors, "dequantized");
        let window = want.len() / 3..want.len() - want.len() / 7;
        let got = dequantize_bits_range(&quantized.view(), quantized.dtype, window.clone());
        assert_same(&case.name, &got, &want[window]);
    });
}

#[test]
fn every_case_quantises_to_the_same_codes() {
    each_case(|case, tensors| {
        let weight = case.values(tensors, "weight");
        let (packed, absmax) = quantize(&weight, case.blocksize).expect("golden weights are finite");
        let want = case.bytes(tensors, "packed");
        assert_eq!(packed.len(), want.len(), "{}: bytes", case.name);
        for (e, x) in weight.iter().enumerate() {
            let codes = [nibble(&packed, e), nibble(&want, e)];
            assert_code(case, e, codes, x / absmax[e / case.blocksize], &NF4);
        }
    });
}

#[test]
fn every_case_finds_the_same_scales() {
    each_case(|case, tensors| {
        let weight = case.values(tensors, "weight");
        let (_, absmax) = quantize(&weight, case.blocksize).expect("golden weights are finite");
        let Some(offset) = case.nested_offset.map(|offset| offset as f32) else {
            return assert_eq!(absmax, case.floats(tensors, "absmax"), "{}: absmax", case.name);
        };
        let (codes, scales, _) = double_quantize(&absmax, Some(offset));
        assert_eq!(scales, case.floats(tensors, "nested_absmax"), "{}: nested_absmax", case.name);
        let want = case.bytes(tensors, "absmax");
        assert_eq!(codes.len(), want.len(), "{}: absmax", case.name);
        for (b, a) in absmax.iter().enumerate() {
            let n = (a - offset) / scales[b / NESTED_BLOCK];
            assert_code(case, b, [codes[b] as usize, want[b] as usize], n, &CODE2);
        }
    });
}

#[test]
fn the_mean_of_the_scales_is_the_stored_offset_but_for_the_order_of_its_sum() {
    each_case(|case, tensors| {
        let Some(want) = case.nested_offset else { return };
        let (_, absmax) = quantize(&case.values(tensors, "weight"), case.blocksize).expect("finite");
        let (.., offset) = double_quantize(&absmax, None);
        let slack = want.abs() * 1e-6; // some roundings of f32 along a sum of many
        assert!((offset as f64 - want).abs() <= slack, "{}: {offset}, stored is {want}", case.name);
    });
}

#[test]
fn the_embedded_tables_are_the_stored_ones() {
    each_case(|case, tensors| {
        assert_eq!(case.floats(tensors, "quant_map"), NF4, "{}", case.name);
        if case.nested {
            let map = case.floats(tensors, "nested_quant_map");
            assert_eq!(map, CODE2, "{}", case.name);
        }
    });
}

#[test]
fn every_projection_of_the_tiny_llama_is_what_its_dense_original_quantises_to() {
    let Some(folder) = golden::find_archive("open-tiny-llama.tgz") else { return };
    let folder = folder.path().join("open-tiny-llama");
    let quantised = Checkpoint::open(folder.join("nf4")).expect("the folder opens");
    let dense = Checkpoint::open(folder.join("dense/model.safetensors")).expect("the file opens");
    let stem = |name: &str| name.strip_suffix(".quant_state.bitsandbytes__nf4").map(str::to_owned);
    let projections: Vec<String> = quantised.names().filter_map(stem).collect();
    assert!(!projections.is_empty());
    for name in projections {
        let weight = quantised.nf4(&name).unwrap_or_else(|error| panic!("{error}"));
        let original = dense.tensor(&name).expect("every projection has its original");
        assert_eq!(weight.shape, original.shape, "{name}");
        let (packed, absmax) = quantize(&to_floats(original.bytes), weight.block_size).expect("finite");
        let Scales::Double { codes, scales, offset, .. } = &weight.absmax else {
            panic!("{name}: one level")
        };
        assert_eq!(packed, weight.packed, "{name}: codes");
        let requantised = double_quantize(&absmax, Some(*offset));
        assert_eq!(requantised, (codes.to_vec(), scales.clone(), *offset), "{name}: scales");
        assert_eq!(dequantize_bits(&weight.view(), weight.dtype).len(), original.bytes.len() / 4);
    }
}

impl Case {
    fn dtype(&self) -> OutputDtype {
        match self.dtype.as_str() {
            "float16" => OutputDtype::F16,
            "bfloat16" => OutputDtype::Bf16,
            "float32" => OutputDtype::F32,
            other => panic!("{}: dtype {other}", self.name),
        }
    }

    fn quantized(&self, tensors: &SafeTensors) -> Quantized {
        Quantized {
            shape: self.shape.clone(),
            dtype: self.dtype(),
            packed: self.bytes(tensors, "packed"),
            table: self.floats(tensors, "quant_map").try_into().expect("16 values"),
            block_size: self.blocksize,
            absmax: self.scales(tensors),
        }
    }

    fn scales(&self, tensors: &SafeTensors) -> Scales {
        if !self.nested {
            return Scales::Single(self.floats(tensors, "absmax"));
        }
        let table: [f32; 256] = self.floats(tensors, "nested_quant_map").try_into().expect("256 values");
        Scales::Double {
            codes: self.bytes(tensors, "absmax"),
            table: Box::new(table),
            scales: self.floats(tensors, "nested_absmax"),
            block_size: self.nested_blocksize.unwrap_or(NESTED_BLOCK),
            offset: self.nested_offset.expect("a nested case has an offset") as f32,
        }
    }

    fn bytes(&self, tensors: &SafeTensors, part: &str) -> Vec<u8> {
        let name = format!("{}.{part}", self.name);
        tensors.tensor(&name).unwrap_or_else(|error| panic!("{error}")).data().to_vec()
    }

    fn floats(&self, tensors: &SafeTensors, part: &str) -> Vec<f32> {
        to_floats(&self.bytes(tensors, part))
    }

    /// A tensor of the case's type as bit patterns.
    fn bits(&self, tensors: &SafeTensors, part: &str) -> Vec<u32> {
        let bytes = self.bytes(tensors, part);
        match self.dtype() {
            OutputDtype::F32 => bytes.as_chunks().0.iter().map(|four| u32::from_le_bytes(*four)).collect(),
            _ => bytes.as_chunks().0.iter().map(|two| u16::from_le_bytes(*two) as u32).collect(),
        }
    }

    /// A tensor of the case's type as f32.
    fn values(&self, tensors: &SafeTensors, part: &str) -> Vec<f32> {
        self.bits(tensors, part).iter().map(|bits| self.dtype().value(*bits)).collect()
    }
}

fn to_floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

/// Element e's code.
fn nibble(packed: &[u8], e: usize) -> usize {
    (packed[e / 2] as usize >> (4 * (1 - e % 2))) & 15
}

/// The same code, or its neighbour where the normalised value stands within two steps of f32 of the midpoint
/// between the two: the original multiplies by an approximate reciprocal. A block of zeros (0 / 0) has no
/// defined code.
fn assert_code(case: &Case, e: usize, [got, want]: [usize; 2], n: f32, table: &[f32]) {
    let near = || {
        let middle = f32::midpoint(table[got], table[want]);
        got.abs_diff(want) == 1 && (n - middle).abs() <= 2.0 * f32::EPSILON * middle.abs()
    };
    let same = got == want || n.is_nan() || near();
    assert!(same, "{}: element {e}, {n} of its scale: code {got}, the original has {want}", case.name);
}

/// Bit equality with the first difference named.
fn assert_same(case: &str, got: &[u32], want: &[u32]) {
    assert_eq!(got.len(), want.len(), "{case}: number of elements");
    let differs = got.iter().zip(want).position(|(got, want)| got != want);
    if let Some(e) = differs {
        panic!("{case}: element {e} is {:#x}, the original has {:#x}", got[e], want[e]);
    }
}
