//! Hostile: every way in which a checkpoint can be wrong gets an error that names the tensor, what is there
//! and what is needed. Nothing panics, and nothing is allocated by a number that was not checked.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use reference::checkpoint::{Checkpoint, Error};
use reference::nf4::{
    self, Absmax, CODE2, NF4, OutputDtype, Quantized, Scales, Weight, dequantize_bits_range,
};
use tempfile::TempDir;

const STATE: &str = "w.quant_state.bitsandbytes__nf4";

/// A checkpoint of one weight `w` of (5, 13) in two blocks, to be spoilt part by part.
struct Parts(BTreeMap<&'static str, Part>);

struct Part {
    dtype: &'static str,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Parts {
    fn sound() -> Self {
        let floats = |values: &[f32]| Part {
            dtype: "F32",
            shape: vec![values.len()],
            bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        };
        Parts(BTreeMap::from([
            ("w", Part { dtype: "U8", shape: vec![33, 1], bytes: (0..33).collect() }),
            ("w.absmax", Part { dtype: "U8", shape: vec![2], bytes: vec![200, 17] }),
            ("w.quant_map", floats(&NF4)),
            ("w.nested_absmax", floats(&[0.25])),
            ("w.nested_quant_map", floats(&CODE2)),
            (STATE, text(&state("64", "[5, 13]", NESTED))),
        ]))
    }

    fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }

    fn with(mut self, name: &'static str, part: Part) -> Self {
        self.0.insert(name, part);
        self
    }

    fn with_state(self, json: &str) -> Self {
        self.with(STATE, text(json))
    }

    /// The same with one f32 of a part replaced.
    fn with_float(mut self, name: &'static str, at: usize, value: f32) -> Self {
        let part = self.0.get_mut(name).expect("a part");
        part.bytes[4 * at..4 * at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    /// The same with a part's last `bytes` cut off.
    fn shortened(mut self, name: &'static str, bytes: usize) -> Self {
        let part = self.0.get_mut(name).expect("a part");
        part.bytes.truncate(part.bytes.len() - bytes);
        part.shape = vec![if part.dtype == "F32" { part.bytes.len() / 4 } else { part.bytes.len() }];
        self
    }

    fn file(&self) -> Vec<u8> {
        let (mut entries, mut data) = (Vec::new(), Vec::new());
        for (name, part) in &self.0 {
            let begin = data.len();
            data.extend(&part.bytes);
            entries.push(entry(name, part.dtype, &part.shape, [begin, data.len()]));
        }
        file(&format!("{{{}}}", entries.join(",")), &data)
    }

    /// What reading `w` answers.
    fn error(&self) -> String {
        let checkpoint = Checkpoint::from_bytes(self.file()).expect("the file itself is sound");
        checkpoint.nf4("w").expect_err("the weight is not").to_string()
    }
}

const NESTED: &str = r#", "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5"#;

fn state(block_size: &str, shape: &str, rest: &str) -> String {
    format!(
        r#"{{"quant_type": "nf4", "blocksize": {block_size}, "dtype": "float16", "shape": {shape}{rest}}}"#
    )
}

fn text(json: &str) -> Part {
    Part { dtype: "U8", shape: vec![json.len()], bytes: json.into() }
}

fn entry(name: &str, dtype: &str, shape: &[usize], offsets: [usize; 2]) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":{offsets:?}}}"#)
}

/// A safetensors file with a header of one's own making.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

fn open_error(bytes: Vec<u8>) -> String {
    Checkpoint::from_bytes(bytes).expect_err("the file is not sound").to_string()
}

#[test]
fn the_sound_weight_is_read() {
    let checkpoint = Checkpoint::from_bytes(Parts::sound().file()).expect("sound");
    let weight = checkpoint.nf4("w").expect("sound");
    assert_eq!(
        (weight.shape.as_slice(), weight.dtype, weight.block_size),
        (&[5, 13][..], OutputDtype::F16, 64)
    );
    assert!(matches!(weight.absmax, Scales::Double { block_size: 256, offset: 0.5, .. }));
    assert_eq!(checkpoint.names().count(), 6);
    let stored = checkpoint.nf4_stored("w").expect("sound");
    for (part, bytes) in stored.parts() {
        let tensor = checkpoint.tensor(&part.part.of("w"));
        let want = tensor.map_or(0.5_f32.to_le_bytes().to_vec(), |tensor| tensor.bytes.to_vec());
        assert_eq!(bytes, want, "{part:?}");
        assert_eq!(matches!(bytes, Cow::Borrowed(_)), part.part != nf4::Part::NestedOffset, "{part:?}");
    }
}

#[test]
fn a_missing_part_is_named() {
    for part in ["absmax", "quant_map", "nested_absmax", "nested_quant_map", "quant_state.bitsandbytes__nf4"]
    {
        let error = Parts::sound().without(&format!("w.{part}")).error();
        assert_eq!(error, format!("tensor `w`: its companion `.{part}` is not in the checkpoint"));
    }
    assert_eq!(Parts::sound().without("w").error(), "tensor `w`: not in the checkpoint");
}

#[test]
fn a_part_of_another_type_is_named() {
    let half = || Part { dtype: "F16", shape: vec![2], bytes: vec![0; 4] };
    let wrong = |name| Parts::sound().with(name, half()).error();
    assert_eq!(wrong("w"), "tensor `w`: length of packed bytes: expected 33, found 4");
    let whole = Part { dtype: "I32", shape: vec![1], bytes: vec![0; 4] };
    let whole = Parts::sound().with("w", whole).error();
    assert_eq!(whole, "tensor `w`: weight: expected U8, BF16, F16 or F32, found I32");
    assert_eq!(wrong("w.absmax"), "tensor `w`: absmax: expected U8, found F16");
    assert_eq!(wrong("w.nested_absmax"), "tensor `w`: nested_absmax: expected F32, found F16");
    let one_level = Parts::sound().with_state(&state("64", "[5, 13]", "")).error();
    assert_eq!(one_level, "tensor `w`: absmax: expected F32, found U8");
}

#[test]
fn a_part_of_another_length_is_named() {
    let short = |name, bytes| Parts::sound().shortened(name, bytes).error();
    assert_eq!(short("w", 1), "tensor `w`: length of packed bytes: expected 33, found 32");
    assert_eq!(short("w.absmax", 1), "tensor `w`: length of absmax: expected 2, found 1");
    assert_eq!(short("w.quant_map", 4), "tensor `w`: length of quant_map: expected 16, found 15");
    assert_eq!(
        short("w.nested_quant_map", 4),
        "tensor `w`: length of nested_quant_map: expected 256, found 255"
    );
    assert_eq!(short("w.nested_absmax", 4), "tensor `w`: length of nested_absmax: expected 1, found 0");
}

#[test]
fn a_value_that_is_not_finite_is_named() {
    let spoilt = |name, at, value| Parts::sound().with_float(name, at, value).error();
    assert_eq!(
        spoilt("w.nested_absmax", 0, f32::NAN),
        "tensor `w`: nested_absmax[0]: expected a finite number, found NaN"
    );
    assert_eq!(
        spoilt("w.nested_quant_map", 9, f32::INFINITY),
        "tensor `w`: nested_quant_map[9]: expected a finite number, found inf"
    );
    assert_eq!(
        spoilt("w.quant_map", 15, f32::NEG_INFINITY),
        "tensor `w`: quant_map[15]: expected a finite number, found -inf"
    );
    let offset = NESTED.replace("0.5", "1e300");
    assert_eq!(
        Parts::sound().with_state(&state("64", "[5, 13]", &offset)).error(),
        "tensor `w`: nested_offset[0]: expected a finite number, found inf"
    );
}

#[test]
fn a_block_size_outside_the_format_is_named() {
    for size in ["0", "1", "48", "16", "8192", "18446744073709551615"] {
        let need = "expected a power of two from 32 to 4096";
        let first = Parts::sound().with_state(&state(size, "[5, 13]", NESTED)).error();
        assert_eq!(first, format!("tensor `w`: blocksize: {need}, found {size}"));
        let nested = NESTED.replace("256", size);
        let second = Parts::sound().with_state(&state("64", "[5, 13]", &nested)).error();
        assert_eq!(second, format!("tensor `w`: nested_blocksize: {need}, found {size}"));
    }
}

#[test]
fn a_shape_that_does_not_fit_its_codes_is_named() {
    let shaped = |shape| Parts::sound().with_state(&state("64", shape, NESTED)).error();
    assert_eq!(shaped("[5, 14]"), "tensor `w`: length of packed bytes: expected 35, found 33");
    assert_eq!(shaped("[]"), "tensor `w`: length of packed bytes: expected 1, found 33");
    assert_eq!(
        shaped("[4294967296, 4294967296, 2]"),
        "tensor `w`: shape [4294967296, 4294967296, 2] has more elements than fit in memory"
    );
    assert!(shaped("[1e400]").starts_with("tensor `w`: its quantisation state does not parse: "));
    assert!(shaped("[-5, 13]").starts_with("tensor `w`: its quantisation state does not parse: "));
}

#[test]
fn another_quantisation_is_named() {
    let fp4 = Parts::sound().without(STATE).with("w.quant_state.bitsandbytes__fp4", text("{}"));
    assert_eq!(fp4.error(), "tensor `w`: expected quantisation `nf4`, found `fp4`");
    let inside = state("64", "[5, 13]", NESTED).replace("nf4", "int8");
    assert_eq!(
        Parts::sound().with_state(&inside).error(),
        "tensor `w`: expected quantisation `nf4`, found `int8`"
    );
}

#[test]
fn a_state_that_makes_no_sense_is_named() {
    let with = |json: &str| Parts::sound().with_state(json).error();
    let sound = state("64", "[5, 13]", NESTED);
    assert_eq!(
        with(&sound.replace("float16", "float8")),
        "tensor `w`: its quantisation state: expected dtype float16, bfloat16 or float32, found `float8`"
    );
    assert_eq!(
        with(&sound.replace("float32", "float16")),
        "tensor `w`: its quantisation state: expected nested_dtype float32, found `float16`"
    );
    for field in ["nested_blocksize", "nested_dtype", "nested_offset"] {
        let error = with(&sound.replace(field, "something_else"));
        assert_eq!(error, format!("tensor `w`: its quantisation state lacks `{field}`"));
    }
    for json in ["", "{", "[]", "{}", "\u{1}", r#"{"quant_type": 4}"#, &sound.replace("0.5", "NaN")] {
        let error = with(json);
        assert!(error.starts_with("tensor `w`: its quantisation state does not parse: "), "{error}");
    }
    assert!(with("{}").contains("missing field `quant_type`"));
}

#[test]
fn a_state_that_is_not_text_is_no_state() {
    let bytes = vec![0xff, 0xfe, 0x00];
    let error = Parts::sound().with(STATE, Part { dtype: "U8", shape: vec![3], bytes }).error();
    assert!(error.starts_with("tensor `w`: its quantisation state does not parse: "), "{error}");
}

#[test]
fn a_dense_tensor_is_no_quantised_weight() {
    let dense = Part { dtype: "F32", shape: vec![1], bytes: vec![0; 4] };
    let file = Parts(BTreeMap::from([("norm", dense)])).file();
    let error = Checkpoint::from_bytes(file).expect("sound").nf4("norm").expect_err("dense");
    assert_eq!(
        error.to_string(),
        "tensor `norm`: its companion `.quant_state.bitsandbytes__nf4` is not in the checkpoint"
    );
}

#[test]
fn a_file_cut_short_anywhere_is_refused() {
    let whole = Parts::sound().file();
    for len in 0..whole.len() {
        let error = open_error(whole[..len].to_vec());
        assert!(error.contains("needs") || error.contains("the file holds"), "{len} bytes: {error}");
    }
    let cut = open_error(whole[..whole.len() - 1].to_vec());
    assert!(cut.starts_with("tensor `w.quant_state.bitsandbytes__nf4`: data from byte "), "{cut}");
}

#[test]
fn a_file_that_goes_on_is_refused() {
    let header = format!("{{{}}}", entry("a", "U8", &[4], [0, 4]));
    assert_eq!(open_error(file(&header, &[0; 7])), "7 bytes of data, the header describes 4");
}

#[test]
fn a_length_that_lies_is_refused() {
    let with_length = |n: u64| [&n.to_le_bytes()[..], b"{}"].concat();
    assert_eq!(open_error(with_length(3)), "file of 10 bytes, its header alone needs 11");
    assert_eq!(open_error(with_length(100_000_000)), "file of 10 bytes, its header alone needs 100000008");
    let limit = "the format allows 100000000";
    assert_eq!(open_error(with_length(100_000_001)), format!("header of 100000001 bytes, {limit}"));
    assert_eq!(open_error(with_length(u64::MAX)), format!("header of {} bytes, {limit}", u64::MAX));
}

#[test]
fn a_header_that_is_no_object_is_refused() {
    let nested = "[".repeat(100_000);
    for header in ["", "[]", "null", "{", "{\"w\":}", "\u{0}", &nested, &format!("{{\"w\":{nested}")] {
        let error = open_error(file(header, &[]));
        assert!(error.starts_with("header does not parse: "), "{error}");
    }
    let not_text = [&2_u64.to_le_bytes()[..], &[0xff, 0xff]].concat();
    assert!(open_error(not_text).starts_with("header does not parse: "));
}

#[test]
fn an_entry_that_is_none_is_named() {
    for json in [
        "3",
        "{}",
        r#"{"dtype":"F33","shape":[1],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[0]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[0,99999999999999999999999]}"#,
    ] {
        let error = open_error(file(&format!(r#"{{"a":{json}}}"#), &[0; 4]));
        assert!(error.starts_with("tensor `a`: header entry does not parse: "), "{error}");
    }
}

#[test]
fn offsets_that_lie_are_named() {
    let lie = |offsets| open_error(file(&format!("{{{}}}", entry("a", "U8", &[4], offsets)), &[0; 8]));
    assert_eq!(lie([0, 9]), "tensor `a`: data from byte 0 to 9, the file holds 8 bytes of data");
    assert_eq!(
        lie([0, usize::MAX]),
        format!("tensor `a`: data from byte 0 to {}, the file holds 8 bytes of data", usize::MAX)
    );
    assert_eq!(lie([4, 8]), "tensor `a`: data offset: expected 0, found 4");
    assert_eq!(lie([usize::MAX, 0]), format!("tensor `a`: data offset: expected 0, found {}", usize::MAX));
    assert_eq!(lie([0, 8]), "tensor `a`: expected 4 bytes of data for [4] of U8, found 8");
    assert_eq!(lie([0, 4]), "8 bytes of data, the header describes 4");
}

#[test]
fn data_that_overlaps_or_leaves_a_gap_is_named() {
    let two = |second| {
        let entries = [entry("a", "U8", &[4], [0, 4]), entry("b", "U8", &[4], second)];
        open_error(file(&format!("{{{}}}", entries.join(",")), &[0; 9]))
    };
    assert_eq!(two([3, 7]), "tensor `b`: data offset: expected 4, found 3");
    assert_eq!(two([5, 9]), "tensor `b`: data offset: expected 4, found 5");
    assert_eq!(two([4, 3]), "tensor `b`: data from byte 4 to 3, the file holds 9 bytes of data");
}

#[test]
fn a_shape_that_overflows_is_named() {
    for shape in [vec![usize::MAX, 2], vec![usize::MAX / 8]] {
        let header = format!("{{{}}}", entry("a", "F64", &shape, [0, 8]));
        let error = open_error(file(&header, &[0; 8]));
        assert_eq!(error, format!("tensor `a`: shape {shape:?} has more elements than fit in memory"));
    }
}

#[test]
fn a_path_that_leads_nowhere_is_named() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("model.safetensors");
    let error = Checkpoint::open(&path).expect_err("no such file");
    assert!(error.to_string().starts_with(&format!("`{}`: cannot be opened: ", path.display())), "{error}");
    assert!(std::error::Error::source(&error).is_some_and(<dyn std::error::Error>::is::<std::io::Error>));
    let error = Checkpoint::open(folder.path()).expect_err("an empty folder");
    assert!(matches!(error.fault(), Error::EmptyFolder), "{error}");
    assert!(error.to_string().starts_with(&format!("`{}`: neither ", folder.path().display())));
}

#[test]
fn a_broken_file_is_named_by_its_path() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("model.safetensors");
    for bytes in [&b""[..], b"1234567", b"PK\x03\x04 not a checkpoint at all"] {
        fs::write(&path, bytes).expect("written");
        let error = Checkpoint::open(folder.path()).expect_err("not a checkpoint").to_string();
        assert!(error.starts_with(&format!("`{}`: ", path.display())), "{error}");
    }
}

#[test]
fn shards_are_read_as_one() {
    let folder = sharded(&Parts::sound(), |name| if name.ends_with("absmax") { "b" } else { "a" });
    let checkpoint = Checkpoint::open(folder.path()).expect("two shards");
    let whole = Checkpoint::from_bytes(Parts::sound().file()).expect("one file");
    assert_eq!(checkpoint.nf4("w").expect("sound"), whole.nf4("w").expect("sound"));
    assert!(checkpoint.names().eq(whole.names()));
}

#[test]
fn a_missing_shard_is_named() {
    let folder = sharded(&Parts::sound(), |name| if name == "w" { "b" } else { "a" });
    let shard = folder.path().join("b.safetensors");
    fs::remove_file(&shard).expect("removed");
    let error = Checkpoint::open(folder.path()).expect_err("a shard is missing").to_string();
    assert!(error.starts_with(&format!("`{}`: cannot be opened: ", shard.display())), "{error}");
}

#[test]
fn a_tensor_that_is_not_in_its_shard_is_named() {
    let folder = sharded(&Parts::sound(), |_| "a");
    let without = Parts::sound().without("w.quant_map").file();
    fs::write(folder.path().join("a.safetensors"), without).expect("written");
    let error = Checkpoint::open(folder.path()).expect_err("a tensor is missing").to_string();
    let shard = folder.path().join("a.safetensors");
    let need = "tensor `w.quant_map`: not in this file, where the index places it";
    assert_eq!(error, format!("`{}`: {need}", shard.display()));
}

#[test]
fn an_index_that_makes_no_sense_is_named() {
    let folder = TempDir::new().expect("a temporary folder");
    let index = folder.path().join("model.safetensors.index.json");
    for json in ["", "[]", "{}", r#"{"weight_map": 3}"#, r#"{"weight_map": {"w": 3}}"#] {
        fs::write(&index, json).expect("written");
        let error = Checkpoint::open(folder.path()).expect_err("no index").to_string();
        assert!(error.starts_with(&format!("`{}`: index does not parse: ", index.display())), "{error}");
    }
    for name in ["../secret", "/etc/passwd", "a/b", "..", ".", "", "c:\\x", "a\\b"] {
        let json = serde_json::json!({"weight_map": {"w": name}});
        fs::write(&index, json.to_string()).expect("written");
        let error = Checkpoint::open(folder.path()).expect_err("a name elsewhere").to_string();
        let need = format!("tensor `w`: expected a name in the index's own folder, found `{name}`");
        assert_eq!(error, format!("`{}`: {need}", index.display()));
    }
}

#[test]
fn a_weight_put_together_wrongly_fails_its_check() {
    let sound = Quantized::single(&[1.0; 65], &[65], OutputDtype::F32, 64).expect("finite");
    let view = sound.view();
    assert!(view.check().is_ok());
    let fails = |weight: Weight| weight.check().expect_err("wrong").to_string();
    assert_eq!(fails(Weight { len: 67, ..view }), "length of packed bytes: expected 34, found 33");
    assert_eq!(
        fails(Weight { len: usize::MAX, ..view }),
        format!("length of packed bytes: expected {}, found 33", usize::MAX / 2 + 1)
    );
    assert_eq!(
        fails(Weight { block_size: 0, ..view }),
        "blocksize: expected a power of two from 32 to 4096, found 0"
    );
    assert_eq!(
        fails(Weight { absmax: Absmax::Single(&[1.0]), ..view }),
        "length of absmax: expected 2, found 1"
    );
    let nan = Weight { absmax: Absmax::Single(&[1.0, f32::NAN]), ..view };
    assert_eq!(fails(nan), "absmax[1]: expected a finite number, found NaN");
    let overflowing = Quantized { shape: vec![usize::MAX, 2], ..sound };
    assert!(overflowing.view().check().is_err());
}

#[test]
fn no_mutation_of_a_sound_file_brings_the_reader_down() {
    let sound = Parts::sound().file();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20_000 {
        let mut file = sound.clone();
        for _ in 0..=random.below(4) {
            mutate(&mut file, &mut random);
        }
        read_everything(file);
    }
}

/// Opens a file and decodes the ends of every weight that it offers.
fn read_everything(file: Vec<u8>) {
    let Ok(checkpoint) = Checkpoint::from_bytes(file) else { return };
    for name in checkpoint.names() {
        if let Ok(stored) = checkpoint.nf4_stored(name) {
            stored
                .parts()
                .for_each(|(part, bytes)| assert_eq!(bytes.len(), part.bytes(), "{name}: {part:?}"));
        }
        let Ok(weight) = checkpoint.nf4(name) else { continue };
        let (view, end) = (weight.view(), weight.view().len);
        view.check().expect("what is handed out is sound");
        dequantize_bits_range(&view, weight.dtype, 0..end.min(4));
        dequantize_bits_range(&view, weight.dtype, end.saturating_sub(4)..end);
    }
}

/// One small accident: a flipped bit, another byte, a digit, a cut, a hole, a doubled stretch.
fn mutate(file: &mut Vec<u8>, random: &mut Random) {
    if file.is_empty() {
        return;
    }
    let at = random.below(file.len());
    match random.below(6) {
        0 => file[at] ^= 1 << random.below(8),
        1 => file[at] = random.below(256) as u8,
        2 => mutate_digit(file, at, random),
        3 => file.truncate(at),
        4 => drop(file.drain(at..(at + 1 + random.below(8)).min(file.len()))),
        _ => {
            let stretch = file[at..(at + 1 + random.below(8)).min(file.len())].to_vec();
            drop(file.splice(at..at, stretch));
        }
    }
}

/// Replaces the first digit from `at` on: numbers in the header stay numbers, and lie.
fn mutate_digit(file: &mut [u8], at: usize, random: &mut Random) {
    if let Some(digit) = file[at..].iter_mut().find(|byte| byte.is_ascii_digit()) {
        *digit = b'0' + random.below(10) as u8;
    }
}

/// Marsaglia's xorshift: the same accidents in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }
}

/// A folder with an index and two shards, `a` and `b`.
fn sharded(parts: &Parts, shard_of: impl Fn(&str) -> &'static str) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    for shard in ["a", "b"] {
        let absent = parts.0.keys().filter(|name| shard_of(name) != shard);
        let own = absent.fold(Parts::sound(), |own, name| own.without(name));
        write(folder.path(), &format!("{shard}.safetensors"), &own.file());
    }
    let file_of = |name: &&'static str| (name.to_string(), format!("{}.safetensors", shard_of(name)));
    let map: BTreeMap<String, String> = parts.0.keys().map(file_of).collect();
    let index = serde_json::json!({"metadata": {"total_size": 0}, "weight_map": map});
    write(folder.path(), "model.safetensors.index.json", index.to_string().as_bytes());
    folder
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    fs::write(folder.join(name), bytes).expect("a temporary file can be written");
}
