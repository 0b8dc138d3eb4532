//! Where a model's files are: in a folder, or in the local cache of the Hugging Face hub. Nothing is downloaded.
//!
//! ```text
//! HUB/models--ORG--NAME/refs/main             a revision
//! HUB/models--ORG--NAME/snapshots/REVISION/   its files
//! ```
//!
//! HUB is `$HF_HUB_CACHE`, else `$HF_HOME/hub`, else `$XDG_CACHE_HOME/huggingface/hub`, else
//! `~/.cache/huggingface/hub`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::Error;

/// The folder of a model, given the folder itself or a repository's name, `org/name`.
///
/// Fails where it is neither, where a GGUF file is not there, and where the repository is not in the cache: then the error gives the command that
/// downloads it.
pub fn find(model: &str) -> Result<PathBuf, Error> {
    let path = Path::new(model);
    if path.is_dir() {
        return Ok(model.into());
    }
    if is_gguf(path)
        && let Err(source) = fs::metadata(path)
    {
        return Err(Error::Open { source }.at(path));
    }
    find_in(&cache(), model)
}

/// A GGUF file, if that is what was given: a file whose name ends so.
pub fn gguf(model: &str) -> Option<&Path> {
    let path = Path::new(model);
    (is_gguf(path) && path.is_file()).then_some(path)
}

/// Whether a name is that of a GGUF file.
fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"))
}

/// The folder of a repository in a given cache.
pub fn find_in(cache: &Path, repository: &str) -> Result<PathBuf, Error> {
    let (org, name) = split(repository).ok_or_else(|| Error::NoSuchModel { given: repository.to_owned() })?;
    let missing =
        |looked: &Path| Error::NotCached { repository: repository.to_owned(), looked: looked.into() };
    let folder = cache.join(format!("models--{org}--{name}"));
    let reference = folder.join("refs/main");
    let revision = fs::read_to_string(&reference).map_err(|_| missing(&reference))?;
    let revision = Some(revision.trim()).filter(|revision| is_plain(revision));
    let snapshot = folder.join("snapshots").join(revision.ok_or_else(|| missing(&reference))?);
    let config = snapshot.join("config.json");
    if config.exists() { Ok(snapshot) } else { Err(missing(&config)) }
}

/// Organisation and name.
fn split(repository: &str) -> Option<(&str, &str)> {
    repository.split_once('/').filter(|(org, name)| is_plain(org) && is_plain(name))
}

/// Whether a text can stand in a repository's name, and so leads to no other folder.
fn is_plain(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.is_empty() && text.chars().all(allowed) && !text.starts_with('.')
}

/// The cache that the environment names.
fn cache() -> PathBuf {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || env::home_dir().unwrap_or_default().join(".cache");
    named("HF_HUB_CACHE")
        .or_else(|| named("HF_HOME").map(|home| home.join("hub")))
        .unwrap_or_else(|| named("XDG_CACHE_HOME").unwrap_or_else(home).join("huggingface/hub"))
}
