//! What a run leaves on the disk, and how it goes on from there.
//!
//! ```text
//! OUTPUT_DIR/metrics.jsonl                   a line a step
//! OUTPUT_DIR/adapter/                        the adapter at the end, as peft reads it
//! OUTPUT_DIR/checkpoint-STEP/                where a run goes on
//!     adapter_config.json, adapter_model.safetensors
//!     optimizer-00001-of-00001.safetensors   the moments
//!     trainer_state.json                     the step, and the SHA-256 of the files beside it
//! ```
//!
//! A checkpoint is written under another name, synced, and then renamed: it is whole or it is not there, whenever the
//! machine stops. One whose files do not have their hashes is left alone, and the one before it is taken.

use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

use reference::atomic_write;
use reference::checkpoint::Checkpoint;
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype};
use reference::llama;
use reference::lora::{self, Adapter, serialize};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use crate::cli::{Failure, warn};
use crate::files::{read_json, read_text};

/// The folder of a run; no other trainer has it as long as this lives.
pub struct Output {
    folder: PathBuf,
    _lock: File,
}

/// Where a run stands after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// Steps that were made.
    pub step: u64,
    /// Tokens that were read.
    pub tokens: u64,
    /// A, B and the moments.
    pub state: Values<f32>,
}

const MOMENTS: &str = "optimizer-00001-of-00001.safetensors";
const FILES: [&str; 3] = ["adapter_config.json", "adapter_model.safetensors", MOMENTS];
const STATE: &str = "trainer_state.json";

impl Output {
    /// The folder, made if it is missing.
    ///
    /// Fails where another trainer has it, or it cannot be written.
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        let fault = |error: &dyn std::fmt::Display| Failure::fault(folder, error);
        fs::create_dir_all(folder).map_err(|error| fault(&error))?;
        let lock = File::create(folder.join(".lock")).map_err(|error| fault(&error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { folder: folder.into(), _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                Err(Failure::Usage(format!("{}: another trainer writes here", folder.display())))
            }
            Err(TryLockError::Error(error)) => Err(fault(&error)),
        }
    }

    /// A file or a folder in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The checkpoints by their steps, the newest first.
    fn checkpoints(&self) -> Result<Vec<(u64, PathBuf)>, Failure> {
        let entries = fs::read_dir(&self.folder).map_err(|error| Failure::fault(&self.folder, error))?;
        let step = |name: &str| name.strip_prefix("checkpoint-")?.parse::<u64>().ok();
        let names =
            entries.flatten().filter_map(|entry| Some((step(entry.file_name().to_str()?)?, entry.path())));
        let mut all: Vec<(u64, PathBuf)> = names.collect();
        all.sort_by_key(|(step, _)| std::cmp::Reverse(*step));
        Ok(all)
    }

    /// Whether a run was here.
    pub fn is_used(&self) -> Result<bool, Failure> {
        Ok(self.join("metrics.jsonl").exists() || !self.checkpoints()?.is_empty())
    }

    /// The newest checkpoint that is whole. What is wrong with a newer one is said.
    pub fn newest(&self, config: &lora::Config, model: &llama::Config) -> Result<Option<Saved>, Failure> {
        for (step, path) in self.checkpoints()? {
            match read(&path, step, config, model) {
                Ok(saved) => return Ok(Some(saved)),
                Err(reason) => {
                    warn(&format!("{}: {reason}; the checkpoint before it is taken", path.display()));
                }
            }
        }
        Ok(None)
    }

    /// Writes a checkpoint, and takes away all but the newest `kept`.
    pub fn save(&self, saved: &Saved, adapter: &Adapter, kept: Option<u64>) -> Result<(), Failure> {
        let path = self.join(&format!("checkpoint-{}", saved.step));
        let partial = self.join(&format!(".checkpoint-{}", saved.step));
        let fault = |error: &dyn std::fmt::Display| Failure::fault(&path, error);
        for old in [&partial, &path] {
            if old.exists() {
                fs::remove_dir_all(old).map_err(|error| fault(&error))?; // a partial one, or one that was not whole
            }
        }
        adapter.save(&partial).map_err(|error| fault(&error))?;
        let moments = saved.state.iter().filter(|(name, _)| name.starts_with("optim."));
        let moments = moments.map(|(name, value)| (name.clone(), value.clone())).collect();
        atomic_write::write(&partial.join(MOMENTS), &serialize(&moments)).map_err(|error| fault(&error))?;
        let hashes = FILES.map(|name| Ok((name.to_owned(), Json::from(hash(&partial.join(name))?))));
        let hashes: serde_json::Map<String, Json> =
            hashes.into_iter().collect::<Result<_, std::io::Error>>().map_err(|error| fault(&error))?;
        let state =
            json!({"global_step": saved.step, "num_input_tokens_seen": saved.tokens, "sha256": hashes});
        atomic_write::write(&partial.join(STATE), format!("{state:#}\n").as_bytes())
            .map_err(|error| fault(&error))?;
        let sync = |folder: &Path| File::open(folder).and_then(|folder| folder.sync_all());
        sync(&partial).map_err(|error| fault(&error))?;
        fs::rename(&partial, &path).map_err(|error| fault(&error))?;
        sync(&self.folder).map_err(|error| fault(&error))?;
        let most = kept.map_or(usize::MAX, |kept| kept as usize);
        for (_, old) in self.checkpoints()?.into_iter().skip(most) {
            fs::remove_dir_all(&old).map_err(|error| Failure::fault(&old, error))?;
        }
        Ok(())
    }

    /// The metrics, to be gone on with after so many steps: what was written of later ones is taken away.
    pub fn metrics(&self, steps: u64) -> Result<File, Failure> {
        let path = self.join("metrics.jsonl");
        let text = read_text(&path).map_err(Failure::usage)?.unwrap_or_default();
        let step = |line: &str| serde_json::from_str::<Json>(line).ok()?.get("step")?.as_u64();
        let before = text.lines().take_while(|line| step(line).is_some_and(|step| step <= steps));
        let mut kept: String = before.collect::<Vec<_>>().join("\n");
        kept.push_str(if kept.is_empty() { "" } else { "\n" });
        atomic_write::write(&path, kept.as_bytes()).map_err(|error| Failure::fault(&path, error))?;
        let file = File::options().append(true).open(&path);
        file.map_err(|error| Failure::fault(&path, error))
    }

    /// Adds a line to the metrics.
    pub fn log(&self, file: &mut File, line: &Json) -> Result<(), Failure> {
        let written = file.write_all(format!("{line}\n").as_bytes());
        written.map_err(|error| Failure::fault(&self.join("metrics.jsonl"), error))
    }
}

/// What a checkpoint holds, if it is whole and of this adapter.
fn read(path: &Path, step: u64, config: &lora::Config, model: &llama::Config) -> Result<Saved, String> {
    let state = read_json(&path.join(STATE)).map_err(|error| error.to_string())?;
    let state = state.ok_or_else(|| format!("{STATE} is missing"))?;
    for name in FILES {
        let found = hash(&path.join(name)).map_err(|error| format!("{name}: {error}"))?;
        if state["sha256"][name] != found.as_str() {
            return Err(format!("{name} is damaged: its SHA-256 is not the one in {STATE}"));
        }
    }
    if state["global_step"] != step {
        return Err(format!("{STATE}: expected global_step {step}, found {}", state["global_step"]));
    }
    let adapter = Adapter::open(path, model).map_err(|error| error.to_string())?;
    let (own, asked) = (&adapter.config, config);
    if (own.rank, own.scale()) != (asked.rank, asked.scale())
        || own.needs(model).ok() != asked.needs(model).ok()
    {
        return Err("its adapter has another rank, scale or targets than the config".into());
    }
    let moments = Checkpoint::open(path.join(MOMENTS)).map_err(|error| error.to_string())?;
    let mut values: Values<f32> = adapter.values();
    for (name, value) in adapter.values::<f32>() {
        for moment in llama::train::moments(&name) {
            let tensor = moments.tensor(&moment).map_err(|error| error.to_string())?;
            if tensor.shape != value.shape || tensor.bytes.len() != 4 * value.shape.iter().product::<usize>()
            {
                return Err(format!("{MOMENTS}: expected {moment} in the shape of {name}"));
            }
            values.insert(moment, Array::from_memory(Dtype::F32, &value.shape, tensor.bytes));
        }
    }
    let tokens = state["num_input_tokens_seen"].as_u64();
    Ok(Saved { step, tokens: tokens.ok_or("num_input_tokens_seen is missing")?, state: values })
}

/// The SHA-256 of a file, in hexadecimal digits.
fn hash(path: &Path) -> std::io::Result<String> {
    let (mut file, mut hasher, mut part) = (File::open(path)?, Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut part)? {
            0 => break,
            count => hasher.update(&part[..count]),
        }
    }
    let mut digits = String::new();
    for byte in hasher.finalize() {
        let _ = write!(digits, "{byte:02x}");
    }
    Ok(digits)
}
