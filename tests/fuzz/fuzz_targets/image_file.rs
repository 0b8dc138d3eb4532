//! Fuzz: any bytes, read as an image file, sized by each rule and resized.
//!
//! Nothing may panic, overflow or take memory without end: what is read has as many bytes as it says, and what is sized
//! has the size that it was given.

#![no_main]

use libfuzzer_sys::fuzz_target;
use reference::vision::{LARGEST_AREA, Rule};
use trainer::picture;

fuzz_target!(|bytes: &[u8]| read(bytes));

const RULES: [Rule; 3] = [
    Rule::Area { factor: 28, least: 3136, most: 12544 },
    Rule::Crop { edge: 56 },
    Rule::Longest { edge: 64, patch: 16 },
];

fn read(bytes: &[u8]) {
    let Ok(image) = picture::decode(bytes) else { return };
    assert!(image.size.area() <= LARGEST_AREA && image.pixels.len() == 3 * image.size.area());
    for to in RULES.iter().filter_map(|rule| rule.size(image.size).ok()).filter(|to| to.area() < 1 << 20) {
        assert_eq!(image.resized(to).size, to);
    }
}
