//! What a run leaves on the disk, and how it goes on from there.
//!
//! ```text
//! OUTPUT_DIR/metrics.jsonl                   a line a step, and one an evaluation
//! OUTPUT_DIR/loss.svg                        the curves of their losses
//! OUTPUT_DIR/adapter/                        the adapter at the end, as peft reads it
//! OUTPUT_DIR/checkpoint-STEP/                where a run goes on
//!     adapter_config.json, adapter_model.safetensors
//!     optimizer-0000R-of-0000N.safetensors   the moments of rank R of N
//!     trainer_state.json                     the step, the SHA-256 of the files beside it, what it was trained on
//! ```
//!
//! A folder is written under another name, synced, and then renamed: it is whole or it is not there, whenever the
//! machine stops. The first of several ranks makes it, each writes its own file into it, and when all have, the first
//! renames it; so the checkpoint is there for all or for none, and one that a rank cannot write is an error on all. A
//! checkpoint whose files do not have their hashes is left alone, and the run resumes from the one before it; where
//! every one is damaged, the run ends. One of another adapter, or that was trained on something else, ends it, too. What a killed run was writing has a name
//! that begins with a dot, and the next one takes it away.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use challenges::train::LossScale;
use reference::atomic_write;
use reference::graph::interpret::Values;
use reference::llama;
use reference::lora::{self, Adapter};
use serde_json::{Value as Json, json};

use super::adapter::{Difference, differences};
use super::digest;
use super::moments;
use super::peers::Peers;
use crate::files::{read_json, read_text};
use crate::output::{Failure, warn};
use challenges::train::Moments;

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
    /// What it was trained on, as [`identity`](super::identity) writes it; null of an earlier version.
    pub trained_on: Json,
}

/// Waits until the disk has the names in a folder. Windows has no such call: its file systems keep a journal of them.
fn sync(folder: &Path) -> std::io::Result<()> {
    if cfg!(windows) { Ok(()) } else { File::open(folder)?.sync_all() }
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

    /// The newest checkpoint that is whole, and its A, B and moments; `None` without checkpoints. A warning
    /// says what is wrong with a newer one.
    ///
    /// Fails where that one is of another adapter, and where every checkpoint is damaged.
    pub fn newest(
        &self,
        config: &lora::Config,
        model: &llama::Config,
    ) -> Result<Option<(Saved, Values<f32>)>, Failure> {
        let mut damaged = Vec::new();
        for (step, path) in self.checkpoints()? {
            match whole(&path, step) {
                Ok(state) => {
                    let instead = format!("; the run resumes from checkpoint-{step}");
                    for damage in &damaged {
                        warn(&format!("{damage}{instead}"));
                    }
                    let saved = read(&path, &state, config, model).map(Some);
                    return saved.map_err(|reason| Failure::Usage(format!("{}: {reason}", path.display())));
                }
                Err(reason) => damaged.push(format!("{}: {reason}", path.display())),
            }
        }
        if damaged.is_empty() {
            return Ok(None);
        }
        Err(Failure::Usage(format!(
            "{}: resume_from_checkpoint = true: expected a whole checkpoint, found damaged ones only:\n  {}\n\
             restore one from a copy, or begin anew in another output_dir",
            self.folder.display(),
            damaged.join("\n  ")
        )))
    }

    /// Makes way for a run that begins at its first step, where a run was before that left no checkpoint; a message
    /// about it. The metrics of that run are kept under another name.
    ///
    /// Fails where that run has ended: its adapter would be replaced.
    pub fn begin(&self) -> Result<String, Failure> {
        let folder = self.folder.display();
        if self.join("adapter").exists() {
            return Err(Failure::Usage(format!(
                "{folder}: resume_from_checkpoint = true: expected a checkpoint, found only the adapter of a run that \
                 ended; to train it further, begin a run in another output_dir with adapter_name_or_path = {:?}",
                self.join("adapter").display().to_string()
            )));
        }
        let message = format!("{folder}: found no checkpoint to resume from; the run begins at step 1");
        let path = self.join(METRICS);
        if !fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
            return Ok(message);
        }
        let names = (1_u64..).map(|number| format!("metrics-{number}.jsonl"));
        let kept = names.map(|name| self.join(&name)).find(|kept| !kept.exists()).unwrap_or_default();
        fs::rename(&path, &kept).map_err(|error| Failure::fault(&kept, error))?;
        Ok(format!("{message}; the metrics that were there are in {}", kept.display()))
    }

    /// Writes a checkpoint, and takes away all but the newest `kept`; where it is. Every rank calls this, with the
    /// moments that it writes; the first has the adapter and the metrics. `metrics` are brought to the disk before it,
    /// so
    /// that the lines of its steps are there if it is.
    pub fn save(
        &self,
        peers: &Peers,
        saved: &Saved,
        moments: Moments,
        first: Option<(&Adapter, &File)>,
        kept: Option<u64>,
    ) -> Result<PathBuf, Failure> {
        let name = format!("checkpoint-{}", saved.step);
        let partial = self.partial(&name);
        let of_first = |make: &dyn Fn(&Adapter, &File) -> Result<(), Failure>| {
            first.map_or(Ok(()), |(adapter, metrics)| make(adapter, metrics)).map(|()| String::new())
        };
        let begin = |adapter: &Adapter, metrics: &File| {
            metrics.sync_data().map_err(|error| Failure::fault(&self.join(METRICS), error))?;
            fs::create_dir(&partial).map_err(|error| Failure::fault(&self.join(&name), error))?;
            adapter.save(&partial).map_err(Failure::bug)
        };
        let filled =
            peers.agree(of_first(&begin)).and_then(|_| peers.agree(write_own(&partial, peers, moments)));
        let done = filled.and_then(|digests| {
            peers.agree(of_first(&|_, _| {
                write_state(&partial, saved, &digests)?;
                self.publish(&name)?;
                let most = kept.map_or(usize::MAX, |kept| kept as usize);
                self.checkpoints()?.into_iter().skip(most).try_for_each(|(_, old)| self.remove(&old))
            }))
        });
        if done.is_err() && peers.is_first() {
            let _ = fs::remove_dir_all(&partial); // the reason is the one above
        }
        done.map(|_| self.join(&name))
    }

    /// Writes the adapter at the end; where it is.
    pub fn finish(&self, adapter: &Adapter) -> Result<PathBuf, Failure> {
        self.whole("adapter", |folder| adapter.save(folder).map_err(Failure::bug))?;
        Ok(self.join("adapter"))
    }

    /// A folder that is there as a whole or not at all. One that could not be filled is taken away: a full disk has its
    /// bytes back.
    fn whole(&self, name: &str, fill: impl FnOnce(&Path) -> Result<(), Failure>) -> Result<(), Failure> {
        let partial = self.partial(name);
        let made = fs::create_dir(&partial).map_err(|error| Failure::fault(&self.join(name), error));
        let filled = made.and_then(|()| fill(&partial));
        if filled.is_err() {
            let _ = fs::remove_dir_all(&partial); // the reason is the one above
            return filled;
        }
        self.publish(name)
    }

    /// Where a folder is filled.
    fn partial(&self, name: &str) -> PathBuf {
        self.join(&format!(".{name}"))
    }

    /// Gives a folder that is filled its name.
    fn publish(&self, name: &str) -> Result<(), Failure> {
        let (path, partial) = (self.join(name), self.partial(name));
        let fault = |error| Failure::fault(&path, error);
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

/// Writes this rank's moments; their file's hash.
fn write_own(folder: &Path, peers: &Peers, moments: Moments) -> Result<String, Failure> {
    let path = folder.join(moments::file_name(peers.rank(), peers.count()));
    let written =
        atomic_write::write(&path, &moments::to_file(moments)).and_then(|()| digest::of_file(&path));
    written.map_err(|error| Failure::fault(&path, error))
}

/// Writes where the run stands, and what the files beside it hash to: those of the adapter, and each rank's.
fn write_state(folder: &Path, saved: &Saved, digests: &[String]) -> Result<(), Failure> {
    let Saved { step, tokens, skipped, scale, trained_on } = saved;
    let hashed = |name: &str| {
        let path = folder.join(name);
        digest::of_file(&path).map_err(|error| Failure::fault(&path, error))
    };
    let adapter = ADAPTER.map(|name| Ok((name.to_owned(), Json::from(hashed(name)?))));
    let mut hashes: serde_json::Map<String, Json> = adapter.into_iter().collect::<Result<_, Failure>>()?;
    let of_rank = |(rank, digest): (usize, &String)| {
        (moments::file_name(rank, digests.len()), Json::from(digest.as_str()))
    };
    hashes.extend(digests.iter().enumerate().map(of_rank));
    let mut state = json!({
        "global_step": step,
        "num_input_tokens_seen": tokens,
        "sha256": hashes,
        "trained_on": trained_on,
    });
    if let Some(LossScale { factor, finite_steps }) = scale {
        state["loss_scale"] = json!({"scale": factor, "growth_tracker": finite_steps});
    }
    if scale.is_some() || *skipped > 0 {
        // also where a run goes on in another type: the schedule counts without
        state["skipped_steps"] = (*skipped).into();
    }
    let path = folder.join(STATE);
    let written = atomic_write::write(&path, format!("{state:#}\n").as_bytes());
    written.map_err(|error| Failure::fault(&path, error))
}

/// The files of a checkpoint that its state has to have the hashes of.
fn files(state: &Json) -> [Vec<String>; 2] {
    let hashes = state["sha256"].as_object();
    let is_moments = |name: &&String| name.starts_with(moments::PREFIX);
    let ranks = hashes.map_or(0, |hashes| hashes.keys().filter(is_moments).count()).max(1);
    let of_ranks = (0..ranks).map(|rank| moments::file_name(rank, ranks)).collect();
    [ADAPTER.map(str::to_owned).to_vec(), of_ranks]
}

/// The state of a checkpoint that is whole: each of its files has its hash.
fn whole(path: &Path, step: u64) -> Result<Json, String> {
    let state = read_json(&path.join(STATE)).map_err(|error| error.to_string())?;
    let state = state.ok_or_else(|| format!("{STATE} is missing"))?;
    for name in files(&state).concat() {
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

/// What a checkpoint holds, if it is of this adapter.
fn read(
    path: &Path,
    state: &Json,
    config: &lora::Config,
    model: &llama::Config,
) -> Result<(Saved, Values<f32>), String> {
    let adapter = Adapter::open(path, model).map_err(|error| error.to_string())?;
    let (own, asked) = (&adapter.config, config);
    let others: Vec<String> = differences(own, asked, model).iter().map(Difference::to_string).collect();
    if !others.is_empty() {
        return Err(format!("its adapter is another one: {}", others.join("; ")));
    }
    let mut values: Values<f32> = adapter.values();
    let shapes = adapter.trained::<f32>().into_iter();
    let shapes = shapes
        .flat_map(|(name, value)| llama::train::moments(&name).map(|moment| (moment, value.shape.clone())));
    values.extend(moments::read(path, &files(state)[1], shapes)?);
    let number = |key: &str| state[key].as_u64().ok_or_else(|| format!("{STATE}: {key} is missing"));
    let (step, tokens) = (number("global_step")?, number("num_input_tokens_seen")?);
    let scale = scale(state)?;
    let has_skipped = scale.is_some() || state.get("skipped_steps").is_some();
    let skipped = if has_skipped { number("skipped_steps")? } else { 0 };
    if skipped > step {
        return Err(format!("{STATE}: expected skipped_steps of at most {step}, found {skipped}"));
    }
    Ok((Saved { step, tokens, skipped, scale, trained_on: state["trained_on"].clone() }, values))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use kernels::threads;
    use reference::llama::Llama;
    use reference::lora::Targets;
    use tempfile::TempDir;

    use super::*;
    use crate::train::example;

    /// An output folder, and what two ranks save in it.
    struct Case {
        _folder: TempDir,
        output: Output,
        adapter: Adapter,
        metrics: File,
    }

    fn case() -> Case {
        let folder = TempDir::new().expect("a folder");
        example::write(&folder.path().join("example"), crate::train::Task::CausalLm).expect("an example");
        let model = Llama::open(folder.path().join("example/model").to_str().expect("a path"));
        let config = lora::Config::new(2, 4.0, Targets::AllLinear);
        let adapter = Adapter::fresh(config, &model.expect("a model").config, 7).expect("an adapter");
        let output = Output::open(&folder.path().join("out")).expect("a folder");
        let metrics = File::create(output.join(METRICS)).expect("a file");
        Case { _folder: folder, output, adapter, metrics }
    }

    fn saved(step: u64) -> Saved {
        Saved { step, tokens: 0, skipped: 0, scale: None, trained_on: Json::Null }
    }

    impl Case {
        /// What each of two ranks says of a checkpoint to which the second one does something else.
        fn save(&self, step: u64, second: impl Fn(&Peers) -> Result<(), Failure> + Sync) -> Vec<String> {
            let outcomes = threads::launch(2, Duration::from_mins(5), |comm| {
                let peers = Peers::of(comm);
                if peers.rank() == 1 {
                    return second(&peers);
                }
                let moments = Moments::Whole(Values::new());
                let first = Some((&self.adapter, &self.metrics));
                self.output.save(&peers, &saved(step), moments, first, None).map(drop)
            });
            let told = |outcome: Result<Result<(), Failure>, kernels::comm::CommError>| match outcome {
                Ok(Ok(())) => String::new(),
                Ok(Err(failure)) => failure.to_string(),
                Err(died) => died.to_string(),
            };
            outcomes.into_iter().map(told).collect()
        }

        fn steps(&self) -> Vec<u64> {
            self.output.checkpoints().expect("a folder").iter().map(|(step, _)| *step).collect()
        }

        fn names(&self) -> Vec<String> {
            let entries = self.output.entries().expect("a folder").into_iter();
            let mut names: Vec<String> =
                entries.map(|path| path.file_name().expect("a name").display().to_string()).collect();
            names.sort();
            names
        }
    }

    /// A checkpoint that one rank cannot write, or in which it dies, is there for nobody; the one before it stays.
    #[test]
    fn a_checkpoint_is_there_for_all_ranks_or_for_none() {
        let case = case();
        let plain = |peers: &Peers| {
            case.output.save(peers, &saved(1), Moments::Whole(Values::new()), None, None).map(drop)
        };
        assert_eq!(case.save(1, plain), ["", ""]);
        assert_eq!(case.steps(), [1]);
        let cannot_write = |peers: &Peers| {
            peers.agree(Ok(String::new()))?;
            let partial = case.output.partial("checkpoint-2");
            fs::create_dir(partial.join(moments::file_name(1, 2))).expect("a folder in its place");
            peers.agree(write_own(&partial, peers, Moments::Whole(Values::new()))).map(drop)
        };
        let told = case.save(2, cannot_write);
        let says = "optimizer-00002-of-00002.safetensors: expected a regular file, found a directory";
        assert!(told.iter().all(|told| told.starts_with("rank 1: ") && told.ends_with(says)), "{told:?}");
        assert_eq!(case.names(), [".lock", "checkpoint-1", METRICS]);
        let dies = |peers: &Peers| -> Result<(), Failure> {
            peers.agree(Ok(String::new()))?;
            panic!("a bug")
        };
        assert_eq!(case.save(3, dies), ["rank 1 panicked: a bug"; 2]);
        assert_eq!(case.names(), [".lock", "checkpoint-1", METRICS]);
    }

    #[test]
    fn every_rank_says_why_the_first_that_failed_did() {
        let all = threads::launch(3, Duration::from_mins(5), |comm| {
            let peers = Peers::of(Arc::clone(&comm) as Arc<dyn kernels::comm::Comm>);
            let own = if peers.rank() == 0 { Ok(String::new()) } else { Err(Failure::usage(peers.rank())) };
            peers.agree(own).expect_err("two failed").to_string()
        });
        assert!(all.into_iter().all(|told| told.expect("none died") == "rank 1: 1"));
    }
}
