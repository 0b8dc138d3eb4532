//! Image files whose few bytes would become many in memory.

use super::*;

/// Bytes that a bomb becomes, and what a run with it may take beyond a run without it.
const BOMB: usize = 256 << 20;
const MORE: f64 = 48.0 * (1 << 20) as f64;

/// Compresses [`BOMB`] zeros.
fn compressed() -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    let zeros = vec![0; 1 << 20];
    for _ in 0..BOMB >> 20 {
        std::io::Write::write_all(&mut encoder, &zeros).expect("memory");
    }
    encoder.finish().expect("memory")
}

fn chunk(name: &[u8], data: &[u8]) -> Vec<u8> {
    let mut crc = Crc::new();
    crc.update(name);
    crc.update(data);
    [&(data.len() as u32).to_be_bytes(), name, data, &crc.sum().to_be_bytes()].concat()
}

/// A PNG with chunks after its header.
fn with(image: &Image, chunks: &[u8]) -> Vec<u8> {
    const HEADER: usize = 8 + 12 + 13;
    let plain = png(image);
    [&plain[..HEADER], chunks, &plain[HEADER..]].concat()
}

#[test]
fn compressed_chunks_of_a_png_take_no_memory() {
    let Some(setting) = Setting::find() else { return };
    let image = drawn(1, Size::new(56, 56));
    let bomb = compressed();
    let text = |front: &[u8]| [front, &bomb].concat();
    let cases = [
        ("iCCP", chunk(b"iCCP", &text(b"a\0\0"))),
        ("zTXt", chunk(b"zTXt", &text(b"Comment\0\0"))),
        ("iTXt", chunk(b"iTXt", &text(b"XML:com.adobe.xmp\0\x01\0\0\0"))),
        ("two", [chunk(b"iCCP", &text(b"a\0\0")), chunk(b"iCCP", &text(b"b\0\0"))].concat()),
    ];
    let messages = json!([
        {"role": "user", "content": [{"type": "image", "image": "bomb.png"}]},
        {"role": "assistant", "content": "A."},
    ]);
    setting.write("bomb.jsonl", &[json!({"messages": messages})]);
    let peak = |name: &str, file: &[u8]| {
        fs::write(setting.path("bomb.png"), file).expect("it can be written");
        let lines = setting.metrics(&setting.path(name), &["dataset_name=bomb.jsonl", "max_steps=1"]);
        lines.iter().filter_map(|line| line["peak_bytes"].as_f64()).fold(0.0, f64::max)
    };
    let plain = peak("plain", &png(&image));
    for (name, chunks) in cases {
        let file = with(&image, &chunks);
        assert_eq!(picture::decode(&file).expect("it is read"), image, "{name}");
        let more = peak(name, &file) - plain;
        assert!(plain > 0.0 && more < MORE, "{name}: {more} bytes more");
    }
}

#[test]
fn chunks_that_lie_about_their_length() {
    let image = drawn(1, Size::new(9, 7));
    let lying = |length: u32, name: &[u8]| [&length.to_be_bytes()[..], name, b"a\0\0xyz"].concat();
    for length in [0x7fff_ffff, u32::MAX, 3_000_000_000] {
        for name in [b"iCCP", b"zTXt", b"iTXt", b"tEXt", b"eXIf"] {
            assert!(picture::decode(&with(&image, &lying(length, name))).is_err(), "{length}");
        }
    }
    let mut huge = png(&image);
    huge[16..20].copy_from_slice(&60_000_u32.to_be_bytes());
    huge[20..24].copy_from_slice(&60_000_u32.to_be_bytes());
    assert!(picture::decode(&huge).expect_err("too large").contains("found 60000 x 60000"));
    assert!(picture::decode(&png(&image)[..20]).is_err());
}
