//! What a run leaves on the disk, and how it goes on from there.
//!
//! ```text
//! OUTPUT_DIR/metrics.jsonl                   a line a step, and one an evaluation
//! OUTPUT_DIR/loss.svg                        the curves of their losses
//! OUTPUT_DIR/adapter/                        the adapter at the end, as peft reads it
//! OUTPUT_DIR/checkpoint-STEP/                where a run goes on
//!     adapter_config.json, adapter_model.safetensors
//!     optimizer-00001-of-00002.safetensors   the moments, in as many files as there were ranks: each writes its own,
//!     optimizer-00002-of-00002.safetensors     whole tensors, so that any number of ranks may read them
//!     trainer_state.json                     the step, the SHA-256 of the files beside it, what it was trained on
//! ```
//!
//! A folder is written under another name, synced, and then renamed: it is whole or it is not there, whenever the
//! machine stops. A checkpoint whose files do not have their hashes is left alone, and the one before it is taken; one
//! of another adapter, or that was trained on something else, ends the run. What a killed run was writing has a name
//! that begins with a dot, and the next one takes it away.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use challenges::train::LossScale;
use reference::atomic_write;
use reference::checkpoint::Checkpoint;
use reference::graph::interpret::Values;
use reference::graph::{Array, Dtype};
use reference::llama;
use reference::lora::{self, Adapter, serialize};
use serde_json::{Value as Json, json};

use super::adapter::{Difference, differences};
use super::digest;
use super::worker::Worker;
use crate::files::{read_json, read_text};
use crate::output::{Failure, warn};

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
    /// Steps of those that changed nothing, since their gradient was not finite.
    pub skipped: u64,
    /// What the loss is multiplied by, of a run in f16.
    pub scale: Option<LossScale>,
    /// A, B and the moments.
    pub state: Values<f32>,
    /// What it was trained on, as [`identity`](super::identity) writes it; null of an earlier version.
    pub trained_on: Json,
}

/// Copies of what is trained that are there at once while a checkpoint is written, beside those of the engine: the
/// adapter, both moments, and twice the same in the making of their file.
pub const COPIES: usize = 7;

const ADAPTER: [&str; 2] = ["adapter_config.json", "adapter_model.safetensors"];
const STATE: &str = "trainer_state.json";
const METRICS: &str = "metrics.jsonl";

impl Output {
    /// The folder, made if it is missing.
    ///
    /// Fails where another trainer has it, or it cannot be written.
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        let fault = |error: &dyn std::fmt::Display| Failure::fault(folder, error);
        fs::create_dir_all(folder).map_err(|error| fault(&error))?;
        let lock = File::create(folder.join(".lock")).map_err(|error| fault(&error))?;
        match lock.try_lock() {
            Ok(()) => {
                let output = Self { folder: folder.into(), _lock: lock };
                output.tidy()?;
                Ok(output)
            }
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

    /// Takes away what a run was writing when it was killed. The lock is held, so nobody is writing it now.
    fn tidy(&self) -> Result<(), Failure> {
        for path in self.entries()? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_left =
                [".checkpoint-", ".adapter", ".warpbook-"].iter().any(|left| name.starts_with(left));
            if is_left {
                let taken = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                taken.map_err(|error| Failure::fault(&path, error))?;
            }
        }
        Ok(())
    }

    fn entries(&self) -> Result<Vec<PathBuf>, Failure> {
        let entries = fs::read_dir(&self.folder).and_then(Iterator::collect);
        let entries: Vec<fs::DirEntry> = entries.map_err(|error| Failure::fault(&self.folder, error))?;
        Ok(entries.iter().map(fs::DirEntry::path).collect())
    }

    /// The checkpoints by their steps, the newest first.
    fn checkpoints(&self) -> Result<Vec<(u64, PathBuf)>, Failure> {
        let step = |path: &Path| path.file_name()?.to_str()?.strip_prefix("checkpoint-")?.parse().ok();
        let entries = self.entries()?.into_iter();
        let mut all: Vec<(u64, PathBuf)> = entries.filter_map(|path| Some((step(&path)?, path))).collect();
        all.sort_by_key(|(step, _)| std::cmp::Reverse(*step));
        Ok(all)
    }

    /// Whether a run was here.
    pub fn is_used(&self) -> Result<bool, Failure> {
        Ok(self.join(METRICS).exists() || !self.checkpoints()?.is_empty())
    }

    /// The newest checkpoint that is whole. What is wrong with a newer one is said.
    ///
    /// Fails where that one is of another adapter.
    pub fn newest(&self, config: &lora::Config, model: &llama::Config) -> Result<Option<Saved>, Failure> {
        for (step, path) in self.checkpoints()? {
            match whole(&path, step) {
                Ok(state) => {
                    let saved = read(&path, &state, config, model).map(Some);
                    return saved.map_err(|reason| Failure::Usage(format!("{}: {reason}", path.display())));
                }
                Err(reason) => {
                    warn(&format!("{}: {reason}; the checkpoint before it is taken", path.display()));
                }
            }
        }
        Ok(None)
    }

    /// Writes a checkpoint, and takes away all but the newest `kept`; where it is. `metrics` are brought to the disk
    /// before it, so that the lines of its steps are there if it is.
    pub fn save(
        &self,
        saved: Saved,
        adapter: &Adapter,
        metrics: &File,
        kept: Option<u64>,
        worker: &Worker<'_>,
    ) -> Result<PathBuf, Failure> {
        metrics.sync_data().map_err(|error| Failure::fault(&self.join(METRICS), error))?;
        let name = format!("checkpoint-{}", saved.step);
        self.whole(&name, |folder| write_checkpoint(folder, saved, adapter, worker))?;
        worker.agree("")?;
        let most = kept.map_or(usize::MAX, |kept| kept as usize);
        self.checkpoints()?.into_iter().skip(most).try_for_each(|(_, old)| self.remove(&old))?;
        Ok(self.join(&name))
    }

    /// Writes the adapter at the end; where it is.
    pub fn finish(&self, adapter: &Adapter) -> Result<PathBuf, Failure> {
        self.whole("adapter", |folder| adapter.save(folder).map_err(Failure::bug))?;
        Ok(self.join("adapter"))
    }

    /// A folder that is there as a whole or not at all. One that could not be filled is taken away: a full disk has its
    /// bytes back.
    fn whole(&self, name: &str, fill: impl FnOnce(&Path) -> Result<(), Failure>) -> Result<(), Failure> {
        let (path, partial) = (self.join(name), self.join(&format!(".{name}")));
        let fault = |error| Failure::fault(&path, error);
        let sync = |folder: &Path| File::open(folder)?.sync_all();
        let filled = fs::create_dir(&partial).map_err(fault).and_then(|()| fill(&partial));
        if filled.is_err() {
            let _ = fs::remove_dir_all(&partial); // the reason is the one above
            return filled;
        }
        sync(&partial).map_err(fault)?;
        if path.exists() {
            self.remove(&path)?; // one that was not whole, or the adapter of a run that was made longer
        }
        fs::rename(&partial, &path).and_then(|()| sync(&self.folder)).map_err(fault)
    }

    /// Removes a folder, so that half of it is never seen under its name.
    fn remove(&self, path: &Path) -> Result<(), Failure> {
        let name = path.file_name().unwrap_or_default().display();
        let aside = self.join(&format!(".{name}-old"));
        let removed = fs::rename(path, &aside).and_then(|()| fs::remove_dir_all(&aside));
        removed.map_err(|error| Failure::fault(path, error))
    }

    /// The metrics, to be gone on with after so many steps, and their lines: what was written of later steps is taken
    /// away.
    pub fn metrics(&self, steps: u64) -> Result<(File, Vec<Json>), Failure> {
        let path = self.join(METRICS);
        let text = read_text(&path).map_err(Failure::usage)?.unwrap_or_default();
        let line = |line: &str| serde_json::from_str::<Json>(line).ok();
        let is_before = |line: &Json| line["step"].as_u64().is_some_and(|step| step <= steps);
        let lines: Vec<Json> = text.lines().map_while(line).take_while(is_before).collect();
        let kept: String = lines.iter().flat_map(|line| [line.to_string(), "\n".to_owned()]).collect();
        atomic_write::write(&path, kept.as_bytes()).map_err(|error| Failure::fault(&path, error))?;
        let file = File::options().append(true).open(&path);
        Ok((file.map_err(|error| Failure::fault(&path, error))?, lines))
    }

    /// Adds a line to the metrics.
    pub fn log(&self, file: &mut File, line: &Json) -> Result<(), Failure> {
        let written = file.write_all(format!("{line}\n").as_bytes());
        written.map_err(|error| Failure::fault(&self.join(METRICS), error))
    }

    /// Writes the curves of the losses.
    pub fn draw(&self, curves: &str) -> Result<(), Failure> {
        let path = self.join("loss.svg");
        atomic_write::write(&path, curves.as_bytes()).map_err(|error| Failure::fault(&path, error))
    }
}

/// The file of a worker's part of the moments.
fn moments_file((own, all): (usize, usize)) -> String {
    format!("optimizer-{:05}-of-{all:05}.safetensors", own + 1)
}

/// The files of a checkpoint whose moments were written by so many workers.
fn files(workers: usize) -> impl Iterator<Item = String> {
    let adapter = ADAPTER.into_iter().map(str::to_owned);
    adapter.chain((0..workers).map(move |own| moments_file((own, workers))))
}

/// A worker's part of the moments, in a folder that the first one has made; whether each wrote its own is known to all
/// of them afterwards.
fn write_moments(folder: &Path, worker: &Worker<'_>, mut moments: Values<f32>) -> Result<(), Failure> {
    moments.retain(|name, _| name.starts_with("optim."));
    let path = folder.join(moments_file(worker.place()));
    let written = atomic_write::write(&path, &serialize(&moments));
    let written = written.map_err(|error| Failure::fault(&path, error));
    let said = worker.agree(&written.as_ref().err().map(ToString::to_string).unwrap_or_default());
    written?;
    match said?.into_iter().find(|said| !said.is_empty()) {
        Some(reason) => Err(Failure::Fault(reason)),
        None => Ok(()),
    }
}

/// What the other workers do while the first one saves.
///
/// Fails where one of them cannot write, or the first one ends before it has saved.
pub fn write_part(folder: &Path, step: u64, worker: &Worker<'_>, state: Values<f32>) -> Result<(), Failure> {
    let partial = folder.join(format!(".checkpoint-{step}"));
    worker.agree("")?; // the folder is there
    write_moments(&partial, worker, state)?;
    worker.agree("").map(|_| ()) // the checkpoint is there
}

/// Fills the folder of a checkpoint.
fn write_checkpoint(
    folder: &Path,
    saved: Saved,
    adapter: &Adapter,
    worker: &Worker<'_>,
) -> Result<(), Failure> {
    worker.agree("")?;
    adapter.save(folder).map_err(Failure::bug)?;
    let Saved { step, tokens, skipped, scale, state, trained_on } = saved;
    write_moments(folder, worker, state)?;
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        atomic_write::write(&path, bytes).map_err(|error| Failure::fault(&path, error))
    };
    let hashed = |name: &str| {
        let path = folder.join(name);
        digest::of_file(&path).map_err(|error| Failure::fault(&path, error))
    };
    let hashes = files(worker.place().1).map(|name| Ok((name.clone(), Json::from(hashed(&name)?))));
    let hashes: serde_json::Map<String, Json> = hashes.collect::<Result<_, Failure>>()?;
    let mut state = json!({
        "global_step": step,
        "num_input_tokens_seen": tokens,
        "sha256": hashes,
        "trained_on": trained_on,
    });
    if let Some(LossScale { factor, finite_steps }) = scale {
        state["loss_scale"] = json!({"scale": factor, "growth_tracker": finite_steps});
    }
    if scale.is_some() || skipped > 0 {
        // also where a run goes on in another type: the schedule counts without
        state["skipped_steps"] = skipped.into();
    }
    write(STATE, format!("{state:#}\n").as_bytes())
}

/// The state of a checkpoint that is whole: each of its files has its hash.
fn whole(path: &Path, step: u64) -> Result<Json, String> {
    let state = read_json(&path.join(STATE)).map_err(|error| error.to_string())?;
    let state = state.ok_or_else(|| format!("{STATE} is missing"))?;
    for name in files(workers(&state)?) {
        let found = digest::of_file(&path.join(&name)).map_err(|error| format!("{name}: {error}"))?;
        if state["sha256"][&name] != found.as_str() {
            return Err(format!("{name} is damaged: its SHA-256 is not the one in {STATE}"));
        }
    }
    match &state["global_step"] {
        found if *found == step => Ok(state),
        found => Err(format!("{STATE}: expected global_step {step}, found {found}")),
    }
}

/// How many workers wrote the moments of a checkpoint: what its files say of themselves.
fn workers(state: &Json) -> Result<usize, String> {
    let names = state["sha256"].as_object().into_iter().flat_map(serde_json::Map::keys);
    let of =
        |name: &String| name.strip_prefix("optimizer-")?.strip_suffix(".safetensors")?.get(9..)?.parse().ok();
    let all: Vec<usize> = names.filter_map(of).collect();
    match all.first() {
        Some(first) if all.iter().all(|other| other == first) && all.len() == *first => Ok(*first),
        _ => {
            Err(format!("{STATE}: expected the SHA-256 of files optimizer-R-of-N.safetensors, R from 1 to N"))
        }
    }
}

/// What a checkpoint holds, if it is of this adapter.
fn read(path: &Path, state: &Json, config: &lora::Config, model: &llama::Config) -> Result<Saved, String> {
    let adapter = Adapter::open(path, model).map_err(|error| error.to_string())?;
    let (own, asked) = (&adapter.config, config);
    let others: Vec<String> = differences(own, asked, model).iter().map(Difference::to_string).collect();
    if !others.is_empty() {
        return Err(format!("its adapter is another one: {}", others.join("; ")));
    }
    let opened = files(workers(state)?).skip(ADAPTER.len()).map(|name| Checkpoint::open(path.join(name)));
    let opened: Vec<Checkpoint> = opened.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let mut values: Values<f32> = adapter.values();
    for (name, value) in adapter.trained::<f32>() {
        for moment in llama::train::moments(&name) {
            let found = opened.iter().find_map(|file| file.tensor(&moment).ok());
            let tensor = found.ok_or_else(|| format!("{moment} is in none of its files"))?;
            if tensor.shape != value.shape || tensor.bytes.len() != 4 * value.shape.iter().product::<usize>()
            {
                return Err(format!("expected {moment} in the shape of {name}"));
            }
            values.insert(moment, Array::from_memory(Dtype::F32, &value.shape, tensor.bytes));
        }
    }
    let number = |key: &str| state[key].as_u64().ok_or_else(|| format!("{STATE}: {key} is missing"));
    let (step, tokens) = (number("global_step")?, number("num_input_tokens_seen")?);
    let scale = scale(state)?;
    let has_skipped = scale.is_some() || state.get("skipped_steps").is_some();
    let skipped = if has_skipped { number("skipped_steps")? } else { 0 };
    if skipped > step {
        return Err(format!("{STATE}: expected skipped_steps of at most {step}, found {skipped}"));
    }
    Ok(Saved { step, tokens, skipped, scale, state: values, trained_on: state["trained_on"].clone() })
}

/// What the loss of a run in f16 is multiplied by.
fn scale(state: &Json) -> Result<Option<LossScale>, String> {
    let Some(scale) = state.get("loss_scale") else { return Ok(None) };
    match (scale["scale"].as_f64(), scale["growth_tracker"].as_u64()) {
        (Some(factor), Some(finite_steps)) if factor > 0.0 && (factor as f32).is_finite() => {
            Ok(Some(LossScale { factor, finite_steps }))
        }
        _ => Err(format!(
            "{STATE}: expected loss_scale with a scale above 0 and a growth_tracker, found {scale}"
        )),
    }
}
