//! Fuzz: any bytes, read as a GGUF file, whose tensors are dequantised.
//!
//! Nothing may panic, overflow or run out of memory; what is read has its bytes inside the file, and is read the same
//! once more when it is written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use reference::checkpoint::gguf::{Content, Gguf, Writer, dequantize};

fuzz_target!(|bytes: &[u8]| read(bytes));

fn read(bytes: &[u8]) {
    let Ok(gguf) = Gguf::from_bytes(bytes.to_vec()) else { return };
    for info in gguf.tensors() {
        let tensor = gguf.tensor(&info.name).expect("it is listed");
        assert!(info.bytes.end <= bytes.len() && tensor.bytes.len() == info.bytes.len());
        if let Ok(numbers) = dequantize(&tensor) {
            assert_eq!(Some(numbers.len()), info.sizes.iter().copied().reduce(|all, size| all * size).or(Some(1)));
        }
    }
    let of = |info: &reference::checkpoint::gguf::Info| Content {
        name: info.name.clone(),
        ty: info.ty,
        sizes: info.sizes.clone(),
    };
    let contents = gguf.tensors().iter().map(of).collect();
    let Ok(mut writer) = Writer::begin(Vec::new(), gguf.keys(), contents) else { return }; // a long name, an alignment
    for info in gguf.tensors() {
        writer.write(gguf.tensor(&info.name).expect("it is listed").bytes).expect("as many bytes as before");
    }
    let again = Gguf::from_bytes(writer.finish()).expect("what is written is sound");
    assert_eq!(format!("{:?}", again.keys()), format!("{:?}", gguf.keys()));
}
