//! Fuzz: any bytes, read as a config of the trainer.
//!
//! Nothing may panic. A config that is accepted is written as TOML and reads back as the same config.

#![no_main]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use trainer::train::Config;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().expect("a temporary folder can be made"));

fuzz_target!(|bytes: &[u8]| {
    let path = FOLDER.path().join("config.toml");
    let Some(config) = read(&path, bytes) else { return };
    let text = config.to_toml();
    let again = read(&path, text.as_bytes()).unwrap_or_else(|| panic!("a written config is refused:\n{text}"));
    assert_eq!(again.to_toml(), text);
});

fn read(path: &Path, bytes: &[u8]) -> Option<Config> {
    fs::write(path, bytes).expect("the file can be written");
    Config::read(path, &[]).ok()
}
