//! The index of a checkpoint that was saved in several files: `{"weight_map": {tensor: file}}`.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::Error;
use crate::json;

/// The files that an index lists, each with its tensors.
///
/// A file is a plain name beside the index: an index that was downloaded names no file elsewhere.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, Vec<String>>, Error> {
    let bytes = fs::read(path).map_err(|source| Error::Open { source })?;
    let index: Index = json::parse(&bytes).map_err(|source| Error::IndexJson { source })?;
    let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (tensor, file) in index.weight_map {
        if !is_plain(&file) {
            return Err(Error::ShardName { got: file }.of(&tensor));
        }
        shards.entry(file).or_default().push(tensor);
    }
    Ok(shards)
}

#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

/// Whether a name leads to no other folder.
fn is_plain(file: &str) -> bool {
    Path::new(file).file_name() == Some(OsStr::new(file)) && !file.contains(['/', '\\', ':'])
}
