//! Golden files: what the original libraries answer.
//!
//! A file is looked up by its name, else by its name with `.gz`: in the folder that `WARPBOOK_GOLDEN` names
//! if it is set, else in `tests/golden/`. The folder may hold another set of the same form with other cases,
//! so a test reads the list of cases from the file and counts on none. A set may also lack a file; that is
//! an answer, `not measured`, while a file missing from `tests/golden/` is a defect.

use std::env;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use reference::exact;
use safetensors::SafeTensors;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use crate::place;

/// The bytes of a golden file, unpacked if it is stored as `NAME.gz`; `None`: not measured.
pub fn find(name: &str) -> Option<Vec<u8>> {
    let (folder, chosen) = folder();
    let found = plain(&folder.join(name)).or_else(|| gunzipped(&folder.join(format!("{name}.gz"))));
    assert!(found.is_some() || chosen, "{name} is missing from {}", folder.display());
    if found.is_none() {
        println!("not measured: {name} is missing from {}", folder.display());
    }
    found
}

/// The bytes of a golden file about chats, which hold other people's templates and are no part of the project: in
/// `chat/` of the folder that `WARPBOOK_GOLDEN` names, else beside the project; `None`: not measured.
pub fn find_chat(name: &str) -> Option<Vec<u8>> {
    let (folder, chosen) = folder();
    let beside = || place::workbook().join("../shared/golden/chat");
    let folder = if chosen { folder.join("chat") } else { beside() };
    let found = plain(&folder.join(name)).or_else(|| gunzipped(&folder.join(format!("{name}.gz"))));
    if found.is_none() {
        println!("not measured: {name} is missing from {}", folder.display());
    }
    found
}

/// A golden `.tgz`, unpacked into a folder that lives as long as the answer.
pub fn find_archive(name: &str) -> Option<TempDir> {
    let archive = find(name)?;
    let folder = TempDir::new().expect("a temporary folder can be made");
    let mut tar = tar::Archive::new(GzDecoder::new(archive.as_slice()));
    tar.unpack(&folder).unwrap_or_else(|error| panic!("{name} does not unpack: {error}"));
    Some(folder)
}

/// Runs `check` on every case of a golden safetensors file, if the file is there.
pub fn each_case<Case: DeserializeOwned>(name: &str, check: impl Fn(&Case, &SafeTensors)) {
    let Some(file) = find(name) else { return };
    let tensors = SafeTensors::deserialize(&file).expect("the golden file is sound");
    let cases = cases(&file);
    assert!(!cases.is_empty(), "a golden file without a case proves nothing");
    for case in &cases {
        check(case, &tensors);
    }
}

/// The list of cases in a golden safetensors file.
fn cases<Case: DeserializeOwned>(file: &[u8]) -> Vec<Case> {
    let (_, header) = SafeTensors::read_metadata(file).expect("a golden file has a sound header");
    let cases = header.metadata().as_ref().and_then(|texts| texts.get("cases"));
    serde_json::from_str(cases.expect("a golden file lists its cases")).expect("the list of cases parses")
}

/// Where golden conversations are: `chat/` in the folder that `WARPBOOK_GOLDEN` names if it is set, else
/// `../shared/golden/chat` beside the repository; `None`: not measured.
pub fn chat_folder() -> Option<PathBuf> {
    let beside = || place::workbook().join("../shared/golden/chat");
    let chat = match folder() {
        (chosen, true) => chosen.join("chat"),
        (_, false) => beside(),
    };
    if !chat.is_dir() {
        println!("not measured: {} is missing", chat.display());
        return None;
    }
    Some(chat)
}

/// The rows of `chat/NAME.jsonl.gz`; `None`: not measured.
pub fn chat_rows(name: &str) -> Option<Vec<serde_json::Value>> {
    let path = chat_folder()?.join(format!("{name}.jsonl.gz"));
    let Some(bytes) = gunzipped(&path) else {
        println!("not measured: {} is missing", path.display());
        return None;
    };
    let text = String::from_utf8(bytes).expect("a golden file is UTF-8");
    Some(text.lines().map(|line| exact::from_str(line).expect("a golden row is JSON")).collect())
}

/// Where to look, and whether somebody chose it.
fn folder() -> (PathBuf, bool) {
    let chosen = env::var_os("WARPBOOK_GOLDEN").filter(|name| !name.is_empty());
    let own = || place::tests().join("golden");
    (chosen.as_ref().map_or_else(own, PathBuf::from), chosen.is_some())
}

fn plain(path: &Path) -> Option<Vec<u8>> {
    path.exists().then(|| fs::read(path).expect("a golden file can be read"))
}

fn gunzipped(path: &Path) -> Option<Vec<u8>> {
    let packed = plain(path)?;
    let mut bytes = Vec::new();
    GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).expect("a golden .gz unpacks");
    Some(bytes)
}
