//! Fuzz: any bytes, read as a safetensors file whose every tensor is taken for an NF4 weight.
//!
//! Nothing may panic, overflow or run out of memory; a weight that is handed out passes its check, and its
//! first and last elements decode; one that is handed out as it is stored has parts of the right lengths. Nothing is
//! written to disk.

#![no_main]

use libfuzzer_sys::fuzz_target;
use reference::checkpoint::Checkpoint;
use reference::nf4::dequantize_bits_range;

fuzz_target!(|bytes: &[u8]| read(bytes));

fn read(bytes: &[u8]) {
    let Ok(checkpoint) = Checkpoint::from_bytes(bytes.to_vec()) else { return };
    for name in checkpoint.names() {
        if let Ok(stored) = checkpoint.nf4_stored(name) {
            stored.parts().for_each(|(part, bytes)| assert_eq!(bytes.len(), part.bytes(), "{name}: {part:?}"));
        }
        match checkpoint.nf4(name) {
            Ok(weight) => {
                weight.check().expect("what is handed out is sound");
                let (view, len) = (weight.view(), weight.view().len);
                dequantize_bits_range(&view, weight.dtype, 0..len.min(9));
                dequantize_bits_range(&view, weight.dtype, len.saturating_sub(9)..len);
            }
            Err(error) => assert!(error.to_string().contains(name), "{error} does not name {name}"),
        }
    }
}
