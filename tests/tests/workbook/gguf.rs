//! GGUF files: what the format's public package wrote and answered, corrupted ones, and those that are written here.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::DeflateDecoder;
use proptest::prelude::*;
use reference::checkpoint::gguf::{
    Array, Content, Endian, Gguf, GgufTensor, TensorType, Value, ValueType, Writer, dequantize, quantize,
};
use reference::issues::gguf::rotary_rows;
use serde::Deserialize;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use tests::golden;

/// What the public package and libggml answered.
#[derive(Deserialize)]
struct Expected {
    quants: BTreeMap<String, Quants>,
    files: BTreeMap<String, Described>,
    bad: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Quants {
    block: usize,
    bytes: usize,
}

#[derive(Deserialize)]
struct Described {
    kv: BTreeMap<String, Json>,
    alignment: usize,
    data_offset: usize,
    tensors: Vec<Tensor>,
}

#[derive(Deserialize)]
struct Tensor {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    ne: Vec<usize>,
    offset: usize,
    n_bytes: usize,
    sha256: String,
}

fn expected() -> Option<Expected> {
    let json = golden::find("gguf/expected.json")?;
    Some(serde_json::from_slice(&json).expect("the golden answers parse"))
}

fn file(name: &str) -> Option<Vec<u8>> {
    golden::find(&format!("gguf/{name}"))
}

/// An array: its shape and its bytes.
type Numbers = (Vec<usize>, Vec<u8>);

/// The arrays of `quants.npz`.
fn quants() -> Option<BTreeMap<String, Numbers>> {
    let entries = unzipped(&file("quants.npz")?);
    Some(
        entries
            .into_iter()
            .map(|(name, bytes)| (name.trim_end_matches(".npy").to_owned(), npy(&bytes)))
            .collect(),
    )
}

/// The entries of a zip file as `numpy` writes it, deflated: sizes stand in the list at the end, which has one entry
/// after the other (APPNOTE 6.3.10, 4.3.12).
fn unzipped(file: &[u8]) -> Vec<(String, Vec<u8>)> {
    let u16_at = |at: usize| usize::from(u16::from_le_bytes([file[at], file[at + 1]]));
    let u32_at = |at: usize| u16_at(at) | u16_at(at + 2) << 16;
    let end =
        (0..=file.len() - 22).rev().find(|at| file[*at..].starts_with(b"PK\x05\x06")).expect("a zip file");
    let (mut at, mut entries) = (u32_at(end + 16), Vec::new());
    for _ in 0..u16_at(end + 10) {
        let [method, packed, name, extra, comment] =
            [u16_at(at + 10), u32_at(at + 20), u16_at(at + 28), u16_at(at + 30), u16_at(at + 32)];
        let begin = u32_at(at + 42);
        let data = begin + 30 + u16_at(begin + 26) + u16_at(begin + 28);
        let mut bytes = Vec::new();
        match method {
            0 => bytes.extend(&file[data..data + packed]),
            _ => {
                _ = DeflateDecoder::new(&file[data..data + packed])
                    .read_to_end(&mut bytes)
                    .expect("deflated");
            }
        }
        entries.push((String::from_utf8_lossy(&file[at + 46..at + 46 + name]).into_owned(), bytes));
        at += 46 + name + extra + comment;
    }
    entries
}

/// An array of `numpy`'s version 1: a header that is Python's dictionary, then the numbers, row by row.
fn npy(bytes: &[u8]) -> Numbers {
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..10 + length]).expect("text");
    assert!(header.contains("'fortran_order': False"), "{header}");
    let shape = header.split_once('(').and_then(|(_, rest)| rest.split_once(')')).expect("a shape").0;
    let shape = shape.split(',').filter_map(|size| size.trim().parse().ok()).collect();
    (shape, bytes[10 + length..].to_vec())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

/// A type as the golden answers call it.
fn called(ty: ValueType) -> &'static str {
    match ty {
        ValueType::U8 => "UINT8",
        ValueType::I8 => "INT8",
        ValueType::U16 => "UINT16",
        ValueType::I16 => "INT16",
        ValueType::U32 => "UINT32",
        ValueType::I32 => "INT32",
        ValueType::F32 => "FLOAT32",
        ValueType::Bool => "BOOL",
        ValueType::String => "STRING",
        ValueType::Array => "ARRAY",
        ValueType::U64 => "UINT64",
        ValueType::I64 => "INT64",
        ValueType::F64 => "FLOAT64",
    }
}

/// A value as the golden answers write it: arrays in arrays are one list.
fn json(value: &Value) -> (Vec<&'static str>, Json) {
    let types = vec![called(value.ty())];
    match value {
        Value::U8(x) => (types, (*x).into()),
        Value::I8(x) => (types, (*x).into()),
        Value::U16(x) => (types, (*x).into()),
        Value::I16(x) => (types, (*x).into()),
        Value::U32(x) => (types, (*x).into()),
        Value::I32(x) => (types, (*x).into()),
        Value::F32(x) => (types, f64::from(*x).into()),
        Value::Bool(x) => (types, (*x).into()),
        Value::String(x) => (types, x.clone().into()),
        Value::U64(x) => (types, (*x).into()),
        Value::I64(x) => (types, (*x).into()),
        Value::F64(x) => (types, (*x).into()),
        Value::Array(array) => {
            let mut all = types;
            let mut flat = Vec::new();
            flatten(array, &mut all, &mut flat);
            (all, Json::Array(flat))
        }
    }
}

fn flatten(array: &Array, types: &mut Vec<&'static str>, flat: &mut Vec<Json>) {
    if types.last() != Some(&called(array.ty())) || array.ty() == ValueType::Array {
        types.push(called(array.ty()));
    }
    match array {
        Array::Array(all) => {
            let own = types.len();
            for array in all {
                types.truncate(own);
                flatten(array, types, flat);
            }
        }
        Array::String(all) => flat.extend(all.iter().map(|x| Json::from(x.clone()))),
        Array::I32(all) => flat.extend(all.iter().map(|x| Json::from(*x))),
        Array::U32(all) => flat.extend(all.iter().map(|x| Json::from(*x))),
        Array::F32(all) => flat.extend(all.iter().map(|x| Json::from(f64::from(*x)))),
        Array::Bool(all) => flat.extend(all.iter().map(|x| Json::from(*x))),
        Array::U8(all) => flat.extend(all.iter().map(|x| Json::from(*x))),
        Array::I8(all) => flat.extend(all.iter().map(|x| Json::from(*x))),
        Array::U16(all) => flat.extend(all.iter().map(|x| Json::from(*x))),
        Array::I16(all) => flat.extend(all.iter().map(|x| Json::from(*x))),
        Array::U64(all) => flat.extend(all.iter().map(|x| Json::from(*x))),
        Array::I64(all) => flat.extend(all.iter().map(|x| Json::from(*x))),
        Array::F64(all) => flat.extend(all.iter().map(|x| Json::from(*x))),
    }
}

#[test]
fn every_good_file_has_the_keys_and_tensors_that_the_public_package_reads() {
    let Some(expected) = expected() else { return };
    for (name, want) in &expected.files {
        let Some(bytes) = file(name) else { continue };
        let gguf = Gguf::from_bytes(bytes.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!([gguf.alignment(), gguf.data_offset()], [want.alignment, want.data_offset], "{name}");
        let counts = ["GGUF.version", "GGUF.tensor_count", "GGUF.kv_count"].map(|key| want.kv[key].as_u64());
        let own = [u64::from(gguf.version()), gguf.tensors().len() as u64, gguf.keys().len() as u64];
        assert_eq!(own.map(Some), counts, "{name}");
        for (key, value) in want.kv.iter().filter(|(key, _)| !key.starts_with("GGUF.")) {
            let (types, found) = json(gguf.value(key).unwrap_or_else(|| panic!("{name}: {key}")));
            assert_eq!(Json::from(types), value["types"], "{name}: {key}");
            assert_eq!(found, value["value"], "{name}: {key}");
        }
        for (info, want) in gguf.tensors().iter().zip(&want.tensors) {
            assert_eq!(
                (&info.name, info.ty.name(), &info.sizes),
                (&want.name, &*want.ty, &want.ne),
                "{name}"
            );
            assert_eq!(info.bytes, want.offset..want.offset + want.n_bytes, "{name}: {}", want.name);
            let tensor = gguf.tensor(&info.name).expect("it is there");
            let hash = Sha256::digest(tensor.bytes)
                .iter()
                .fold(String::new(), |all, byte| format!("{all}{byte:02x}"));
            assert_eq!(hash, want.sha256, "{name}: {}", want.name);
        }
    }
}

#[test]
fn every_corrupted_file_is_refused() {
    let Some(expected) = expected() else { return };
    for (name, why) in &expected.bad {
        let Some(bytes) = file(name) else { continue };
        let error = Gguf::from_bytes(bytes).err().unwrap_or_else(|| panic!("{name} was read ({why})"));
        println!("{name}: {error}");
    }
}

#[test]
fn every_type_of_blocks_is_dequantised_to_the_bit() {
    let (Some(expected), Some(arrays)) = (expected(), quants()) else { return };
    for (name, quants) in &expected.quants {
        let ty = TensorType::named(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(ty.block(), [quants.block, quants.bytes], "{name}");
        let (shape, want) = &arrays[&format!("d_{name}")];
        let sizes = [shape[1], shape[0]];
        let bytes = &arrays[&format!("q_{name}")].1;
        let tensor = GgufTensor { ty, sizes: &sizes, bytes, endian: Endian::Little };
        let found = dequantize(&tensor).unwrap_or_else(|error| panic!("{name}: {error}"));
        let apart = found.iter().zip(floats(want)).position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(
            apart,
            None,
            "{name}: got {:?}, want {:?}",
            apart.map(|i| found[i]),
            apart.map(|i| floats(want)[i])
        );
        assert_eq!(found.len() * 4, want.len(), "{name}");
    }
}

#[test]
fn every_type_that_is_written_is_quantised_to_the_bit() {
    let (Some(expected), Some(arrays)) = (expected(), quants()) else { return };
    let numbers = floats(&arrays["x"].1);
    let mut written = 0;
    for name in expected.quants.keys() {
        let Ok(found) = quantize(TensorType::named(name).expect("a type"), &numbers) else { continue };
        let apart = found.iter().zip(&arrays[&format!("q_{name}")].1).position(|(a, b)| a != b);
        assert_eq!(apart, None, "{name}");
        assert_eq!(found.len(), arrays[&format!("q_{name}")].1.len(), "{name}");
        written += 1;
    }
    assert!(written > 0, "no type of {:?} is written", expected.quants.keys());
}

/// The public package turns plain numbers round, and writes blocks and bf16 as they are. The numbers of the two files
/// were drawn apart, so that plain ones are held to what drawn numbers look like.
#[test]
fn a_big_endian_file_has_its_plain_numbers_turned_round() {
    let (Some(little), Some(big)) = (file("tensors.gguf"), file("big_endian.gguf")) else { return };
    let [little, big] = [little, big].map(|bytes| Gguf::from_bytes(bytes).expect("sound"));
    assert_eq!(little.keys(), big.keys());
    for info in little.tensors() {
        let [a, b] = [&little, &big].map(|gguf| dequantize(&gguf.tensor(&info.name).expect("it is there")));
        match (a, b) {
            (Ok(a), Ok(b)) if info.name.starts_with("q.") => assert_eq!(a, b, "{}", info.name),
            (Ok(a), Ok(b)) => {
                let is_drawn = |x: &f32| *x == 0.0 || (1e-9..1e9).contains(&x.abs());
                assert!(a.iter().chain(&b).all(is_drawn), "{}: {b:?}", info.name);
            }
            (a, b) => assert!(a.is_err() && b.is_err(), "{}", info.name),
        }
    }
}

/// The zeros before the data are missing, and so is the data, which is empty.
#[test]
fn an_empty_tensor_may_lie_at_the_end_of_a_file() {
    let tensor = Content { name: "empty".into(), ty: TensorType::F32, sizes: vec![0] };
    let mut bytes = written(&[], &[tensor]);
    bytes.truncate(24 + (8 + "empty".len()) + 4 + 8 + 4 + 8); // counts; name, dimensions, size, type, offset
    let gguf = Gguf::from_bytes(bytes).expect("sound");
    assert!(gguf.tensor("empty").expect("it is there").bytes.is_empty());
}

// ---- what is written

/// A value of any type.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<f32>().prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        ".{0,12}".prop_map(Value::String),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        any::<f64>().prop_map(Value::F64),
        array().prop_map(Value::Array),
    ]
}

fn array() -> impl Strategy<Value = Array> {
    let many = |n| 0..n;
    let plain = prop_oneof![
        prop::collection::vec(any::<u8>(), many(5)).prop_map(Array::U8),
        prop::collection::vec(any::<bool>(), many(5)).prop_map(Array::Bool),
        prop::collection::vec(any::<i32>(), many(5)).prop_map(Array::I32),
        prop::collection::vec(any::<f64>(), many(5)).prop_map(Array::F64),
        prop::collection::vec(".{0,6}", many(5)).prop_map(Array::String),
    ];
    plain.prop_recursive(3, 12, 3, |inner| prop::collection::vec(inner, 0..3).prop_map(Array::Array))
}

fn contents() -> impl Strategy<Value = Vec<Content>> {
    let ty = prop::sample::select(TensorType::all().collect::<Vec<_>>());
    let one = (ty, prop::collection::vec(0..4_usize, 1..5)).prop_map(|(ty, mut sizes)| {
        sizes[0] *= ty.block()[0];
        Content { name: String::new(), ty, sizes }
    });
    prop::collection::vec(one, 0..6).prop_map(|mut all| {
        all.iter_mut().enumerate().for_each(|(i, tensor)| tensor.name = format!("blk.{i}.weight"));
        all
    })
}

fn written(keys: &[(String, Value)], contents: &[Content]) -> Vec<u8> {
    let mut writer = Writer::begin(Vec::new(), keys, contents.to_vec()).expect("sound");
    for (number, tensor) in contents.iter().enumerate() {
        writer.write(&vec![number as u8 + 1; tensor.bytes().expect("whole blocks")]).expect("a vector");
    }
    writer.finish()
}

fn same(a: &Value, b: &Value) -> bool {
    format!("{a:?}") == format!("{b:?}") // a NaN is itself
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_it_was(
        values in prop::collection::vec(value(), 0..8), contents in contents()
    ) {
        let keys: Vec<(String, Value)> =
            values.into_iter().enumerate().map(|(i, value)| (format!("general.key{i}"), value)).collect();
        let gguf = Gguf::from_bytes(written(&keys, &contents)).expect("sound");
        prop_assert_eq!(gguf.keys().len(), keys.len());
        for ((name, value), (own, found)) in keys.iter().zip(gguf.keys()) {
            prop_assert!(name == own && same(value, found), "{name}: {value:?} {found:?}");
        }
        for (number, (tensor, info)) in contents.iter().zip(gguf.tensors()).enumerate() {
            prop_assert_eq!((&tensor.name, tensor.ty, &tensor.sizes), (&info.name, info.ty, &info.sizes));
            let bytes = gguf.tensor(&info.name).expect("it is there").bytes;
            prop_assert!(bytes.iter().all(|byte| *byte == number as u8 + 1));
        }
    }

    #[test]
    fn a_damaged_file_is_read_or_refused(
        values in prop::collection::vec(value(), 0..6), contents in contents(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![any::<u8>(), Just(0), Just(255)]), 1..6),
        end in prop::option::of(any::<prop::sample::Index>())
    ) {
        let keys: Vec<(String, Value)> =
            values.into_iter().enumerate().map(|(i, value)| (format!("key{i}"), value)).collect();
        let mut bytes = written(&keys, &contents);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(end) = end {
            bytes.truncate(end.index(bytes.len()));
        }
        if let Ok(gguf) = Gguf::from_bytes(bytes) {
            for info in gguf.tensors() {
                let tensor = gguf.tensor(&info.name).expect("it is there");
                _ = dequantize(&tensor);
            }
        }
    }
}

/// Turns pairs of a head's elements, each by its angle; `pair` says which two are one.
fn rotated(x: &[f64], position: f64, pair: fn(usize, usize) -> [usize; 2]) -> Vec<f64> {
    let half = x.len() / 2;
    let mut turned = x.to_vec();
    for p in 0..half {
        let [a, b] = pair(p, half);
        let (sine, cosine) = (position * 10_000_f64.powf(-(p as f64) / half as f64)).sin_cos();
        (turned[a], turned[b]) = (x[a] * cosine - x[b] * sine, x[a] * sine + x[b] * cosine);
    }
    turned
}

proptest! {
    /// What files of the architecture `llama` rest on: turned rows and turned pairs undo each other in a score.
    #[test]
    fn queries_and_keys_whose_rows_are_turned_alike_have_the_same_scores(
        (q, k) in (1..40_usize).prop_flat_map(|half| {
            let vector = || prop::collection::vec(-1.0..1.0_f64, 2 * half);
            (vector(), vector())
        }),
        positions in prop::array::uniform2(0.0..5000.0_f64),
    ) {
        let score = |q: Vec<f64>, k: Vec<f64>| q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>();
        let [m, n] = positions;
        let halves = |p: usize, half: usize| [p, p + half];
        let neighbours = |p: usize, _: usize| [2 * p, 2 * p + 1];
        let rows = rotary_rows(q.len(), 1);
        let arranged = |x: &[f64]| rows.iter().map(|row| x[*row]).collect::<Vec<f64>>();
        let own = score(rotated(&q, m, halves), rotated(&k, n, halves));
        let file = score(rotated(&arranged(&q), m, neighbours), rotated(&arranged(&k), n, neighbours));
        prop_assert!((own - file).abs() < 1e-11, "{own} and {file}");
    }
}
